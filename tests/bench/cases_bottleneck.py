"""`gyre bottleneck`: the communication of a training step beside its computation."""

import json
import math
import os
import tempfile

from running import bench, clean_environment, run

MODEL = ["--params", "1e9", "--tokens", "1e6", "--layers", "10", "--dtype", "bf16"]


def start(directory, *arguments, status=0):
    return run([bench(directory, "bottleneck"), *arguments], status=status,
               environment=clean_environment())


def result_of(directory, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "result.json")
        done = start(directory, *arguments, "--json", path)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                return json.load(file), done.stdout
    return None, done.stdout


def report(collective, times, ranks=4, hosts=2, wrong=0):
    """The report of a bench with these times: bytes -> us."""
    timing = {"algbw_gbytes_per_s": 1, "busbw_gbytes_per_s": 1, "wrong": wrong}
    return {"schema_version": 1, "gyre_version": "0", "bench": "x", "collective": collective,
            "settings": {"ranks": ranks, "iterations": 1, "device": "host"},
            "places": [{"rank": rank, "host": f"host{rank * hosts // ranks}", "pid": 1, "device": 0}
                       for rank in range(ranks)],
            "results": [{"bytes": size, "count": 1, "type": "float",
                         "out_of_place": {"time_us": us, **timing},
                         "in_place": {"time_us": 1e9, **timing}} for size, us in times.items()]}


def write(folder, name, value):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(value if isinstance(value, str) else json.dumps(value))
    return path


def near(value, expected):
    return math.isclose(value, expected, rel_tol=1e-9)


def check_measured(directory, folder):
    """Times that are a power of the size are met between the points, too."""
    def reduce_us(size):
        return size / 2000

    def gather_us(size):
        return 3 * math.sqrt(size)

    def scatter_us(size):
        return 0.5 * size ** 0.7
    sizes = [1 << 10, 1 << 20, 1 << 30]
    paths = [write(folder, name + ".json", report(name, {size: us(size) for size in sizes}))
             for name, us in (("all_reduce", reduce_us), ("all_gather", gather_us),
                              ("reduce_scatter", scatter_us))]
    arguments = [word for path in paths for word in ("--from", path)]
    found, text = result_of(directory, *MODEL, *arguments, "--hidden", "1000", "--bucket", "3e8",
                            "--micro-batch", "3e5", "--peak", "100", "--utilisation", "0.5")
    assert found["ranks"] == 4 and found["hosts"] == 2 and found["communication"] == "measured"
    compute_us = 6 * 1e9 * 1e6 / (4 * 100e12 * 0.5) * 1e6
    assert near(found["compute_us"], compute_us), found["compute_us"]
    data, sharded, tensor = found["strategies"]
    expected = [6 * reduce_us(3e8) + reduce_us(2e8),                      # 2e9 bytes in buckets
                20 * gather_us(2e8) + 10 * scatter_us(2e8),               # 10 layers
                40 * (3 * reduce_us(3e5 * 2000) + reduce_us(1e5 * 2000))]  # activations
    for strategy, us in zip((data, sharded, tensor), expected):
        assert near(strategy["communication_us"], us), (strategy, us)
        assert near(strategy["ratio"], us / compute_us), strategy
        assert near(strategy["share"], us / (us + compute_us)), strategy
        assert strategy["bottleneck"] == ("communication" if us / compute_us > 0.3
                                          else "computation"), strategy
    assert "extrapolated" not in text, text

    # Beyond the measured sizes the time grows with the bytes, and the output says so.
    found, text = result_of(directory, *MODEL, "--from", paths[0], "--bucket", "2e9")
    assert near(found["strategies"][0]["communication_us"], reduce_us(2e9)), found["strategies"][0]
    assert "extrapolated beyond the measured sizes" in text, text
    # A collective without a report is unknown, not guessed.
    assert "no --from has a report of all_gather" in found["strategies"][1]["unknown"]
    assert "communication_us" not in found["strategies"][1]


def check_rule(directory, folder):
    """The verdict changes at 0.3, and the way out that is printed leads there."""
    compute_us = 6 * 1e9 * 1e6 / (4 * 100e12) * 1e6
    common = [*MODEL, "--peak", "100", "--utilisation", "1", "--bucket", "2e9"]
    for ratio, verdict in ((0.299, "computation"), (0.301, "communication"), (0.9, "communication")):
        path = write(folder, "rule.json", report("all_reduce", {int(2e9): ratio * compute_us}))
        found, text = result_of(directory, *common, "--from", path)
        assert found["strategies"][0]["bottleneck"] == verdict, (ratio, found["strategies"][0])
    assert "collectives 3.0 times as fast, or 3e+06 tokens a step" in text, text


def check_predicted(directory, folder):
    """Predictions are those of `schedule --predict`: its fastest algorithm."""
    common = ["--hosts", "2x4", "--nic-rate", "50", "--net", "socket"]
    found, _ = result_of(directory, *MODEL, "--bucket", "1e8", *common)
    call = found["strategies"][0]["calls"][0]
    assert found["communication"] == "predicted" and call["calls"] == 20, found
    path = os.path.join(folder, "predicted.json")
    run([bench(directory, "schedule"), "--predict", "--coll", "all_reduce", *common, "--bytes",
         "100000000", "--json", path], environment=clean_environment())
    with open(path, encoding="utf-8") as file:
        times = [row["time_us"] for row in json.load(file)["predictions"]]
    assert near(call["us"], min(times)), (call, times)
    # A model of L layers of 12 hidden^2 parameters: 1e9 / 120 = 2886.75^2, the next 128 is 2944.
    assert found["model"]["hidden"] == 2944, found["model"]


def check_refusals(directory, folder):
    good = write(folder, "good.json", report("all_reduce", {1024: 5}))
    wrong_inputs = [
        ("not JSON", "garbage {"), ("not JSON", json.dumps(report("all_reduce", {8: 1}))[:-40]),
        ("not JSON", ""), ("not the report of a bench", []),
        ("not the report of a bench", {"collective": "all_reduce", "results": 7}),
        ("no row with a time", report("all_reduce", {1024: 0})),
        ("no row with a time", report("all_reduce", {-5: 3})),
        ("were wrong", report("all_reduce", {1024: 5}, wrong=3)),
        ("it is of 8 ranks", report("all_gather", {1024: 5}, ranks=8))]
    for words, content in wrong_inputs:
        path = write(folder, "bad.json", content)
        done = start(directory, *MODEL, "--from", good, "--from", path, status=1)
        assert words in done.stderr and path in done.stderr and done.stdout == "", (words, done)
    done = start(directory, *MODEL, "--from", "/no/such/file", status=1)
    assert "/no/such/file" in done.stderr, done.stderr
    done = start(directory, *MODEL, "--from", good, "--hosts", "2x8", status=1)
    assert "4 ranks on 2 hosts, not of 16 ranks on 2" in done.stderr, done.stderr
    for arguments in (["--tokens", "1e6", "--ranks", "2"], MODEL, [*MODEL, "--ranks", "x"],
                      [*MODEL, "--ranks", "1"], [*MODEL, "--hosts", "1x1"], [*MODEL, "--hosts", "0x8"],
                      [*MODEL, "--from", good, "--nic-rate", "3"], [*MODEL, "--ranks", "2", "more"],
                      [*MODEL, "--from", good, "--hosts", "2x2", "--net", "ib"],
                      [*MODEL, "--ranks", "2", "--utilisation", "1.5"],
                      [*MODEL, "--ranks", "2", "--peak", "nan"],
                      [*MODEL, "--ranks", "2", "--dtype", "f33"]):
        done = start(directory, *arguments, status=2)
        assert done.stderr.startswith("bottleneck: ") and done.stdout == "", (arguments, done)
        assert done.returncode == 2, (arguments, done)
    assert "one rank" in start(directory, *MODEL, "--ranks", "1", status=2).stderr


def case_bottleneck(directory, source):
    with tempfile.TemporaryDirectory() as folder:
        check_measured(directory, folder)
        check_rule(directory, folder)
        check_predicted(directory, folder)
        check_refusals(directory, folder)
