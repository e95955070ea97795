"""`gyre bottleneck`: the communication of a training step beside its computation."""

import json
import math
import os
import tempfile

from running import bench, clean_environment, read_json, run, write_text

MODEL = ["--params", "1e9", "--tokens", "1e6", "--layers", "10", "--dtype", "bf16"]


def start(directory, *arguments, status=0):
    return run([bench(directory, "bottleneck"), *arguments], status=status, environment=clean_environment())


def result_of(directory, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "result.json")
        done = start(directory, *arguments, "--json", path)
        if os.path.exists(path):
            return read_json(path), done.stdout
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
    write_text(path, value if isinstance(value, str) else json.dumps(value))
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
    paths = [write(folder, f"{name}_{part}.json", report(name, {size: part * us(size) for size in sizes}))
             for name, us in (("all_reduce", reduce_us), ("all_gather", gather_us), ("reduce_scatter", scatter_us))
             for part in (1, 0.5, 1.5)]  # the mean of several reports counts
    arguments = [word for path in paths for word in ("--from", path)]
    common = [*MODEL, *arguments, "--hidden", "1000", "--bucket", "3e8", "--micro-batch", "3e5", "--peak", "100",
              "--utilisation", "0.5"]
    found, text = result_of(directory, *common, "--tensor", "4")
    assert found["ranks"] == 4 and found["hosts"] == 2 and found["communication"] == "measured"
    compute_us = 6 * 1e9 * 1e6 / (4 * 100e12 * 0.5) * 1e6
    assert near(found["compute_us"], compute_us), found["compute_us"]
    data, sharded, tensor = found["strategies"]
    expected = [6 * reduce_us(3e8) + reduce_us(2e8),                      # 2e9 bytes in buckets
                20 * gather_us(2e8) + 10 * scatter_us(2e8),               # 10 layers
                40 * (3 * reduce_us(3e5 * 2000) + reduce_us(1e5 * 2000))]  # activations
    exposed = [max(expected[0] - compute_us * 2 / 3, reduce_us(2e8)),
               max(expected[1] - compute_us, gather_us(2e8) + scatter_us(2e8)), expected[2]]
    for strategy, us, left in zip((data, sharded, tensor), expected, exposed):
        assert near(strategy["exposed_us"], left), (strategy, left)
        assert near(strategy["share_overlapped"], left / (left + compute_us)), strategy
        assert strategy["bottleneck_overlapped"] == ("communication" if left / compute_us > 0.3
                                                     else "computation"), strategy
        assert near(strategy["communication_us"], us), (strategy, us)
        assert near(strategy["ratio"], us / compute_us), strategy
        assert near(strategy["share"], us / (us + compute_us)), strategy
        assert strategy["bottleneck"] == ("communication" if us / compute_us > 0.3 else "computation"), strategy
    assert "extrapolated" not in text, text
    # Groups of all ranks reach over both hosts: a finding. By default they stay within a host, whose times are
    # needed, and have half of the tokens.
    assert "finding: groups of 4 ranks reach over 2 hosts" in text and "finding" in tensor, text
    found, text = result_of(directory, *common)
    assert "no --tensor-from" in found["strategies"][2]["unknown"] and "finding" not in text, text
    own = write(folder, "own.json", report("all_reduce", {size: size / 8000 for size in sizes}, 2, 1))
    found, _ = result_of(directory, *common, "--tensor-from", own)
    us = 40 * (3e5 * 2000 + 2e5 * 2000) / 8000
    assert near(found["strategies"][2]["communication_us"], us), (found["strategies"][2], us)

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


def check_measured_computation(directory, folder):
    """--compute-ms takes the place of the formula, and --threshold that of 0.3."""
    path = write(folder, "reduce.json", report("all_reduce", {int(2e9): 400.0}))
    for threshold, verdict in (("0.39", "communication"), ("0.41", "computation")):
        found, text = result_of(directory, "--params", "1e9", "--bucket", "2e9", "--compute-ms", "1", "--from", path,
                                "--threshold", threshold)
        data = found["strategies"][0]
        assert found["compute_us"] == 1000 and near(data["share"], 400 / 1400), found
        assert data["bottleneck"] == verdict and data["bottleneck_overlapped"] == verdict, (threshold, data)
    assert "--tokens is needed" in found["strategies"][2]["unknown"], found
    assert "tokens a step" not in text, text


# Parameters that the models' authors or repositories publish; of GPT-3 the paper rounds to 175.0 billion.
PUBLISHED = {"gpt2": 124439808, "gpt2-medium": 354823168, "gpt2-large": 774030080, "gpt2-xl": 1557611200,
             "llama2-7b": 6738415616, "llama2-13b": 13015864320, "llama2-70b": 68976648192, "llama3-1b": 1235814400,
             "llama3-3b": 3212749824, "llama3-8b": 8030261248, "llama3-70b": 70553706496,
             "llama3-405b": 405853388800, "mistral-7b": 7241732096, "qwen2.5-7b": 7615616512,
             "qwen2.5-32b": 32763876352, "qwen2.5-72b": 72706203648}
# Narayanan et al., SC 2021, table 1: layers, hidden, billions of parameters; 51200 words and 2048 positions.
MEGATRON = ((24, 2304, 1.7), (30, 3072, 3.6), (36, 4096, 7.5), (40, 6144, 18.4), (48, 8192, 39.1), (60, 10240, 76.1),
            (80, 12288, 145.6), (96, 16384, 310.1), (105, 20480, 529.6), (128, 25600, 1008.0))


def check_models(directory):
    """Sizes add up to what is published, and a number of parameters finds its model's layers."""
    common = ["--compute-ms", "1", "--ranks", "2"]
    listed = start(directory, "--help").stdout.split("Models:")[1].split("Exit status")[0].split()
    assert set(listed) == {*PUBLISHED, "gpt3-175b"}, listed
    for name, count in PUBLISHED.items():
        model = result_of(directory, "--model", name, *common)[0]["model"]
        assert model["params"] == count, (name, model, count)
        nearest = result_of(directory, "--params", str(count), *common)[0]["model"]
        assert nearest == model, (name, nearest)
    assert abs(result_of(directory, "--model", "gpt3-175b", *common)[0]["model"]["params"] / 175e9 - 1) < 0.003
    for layers, hidden, billions in MEGATRON:
        model = result_of(directory, "--layers", str(layers), "--hidden", str(hidden), "--vocab", str(51200 + 2048),
                          *common)[0]["model"]
        assert round(model["params"] / 1e9, 1) == billions and model["like"] == "", (billions, model)


def check_profile(directory, folder):
    """A profile of two steps: what ran at once is counted once, and what a computation hides is no wait."""
    def event(name, begin, us, category="kernel"):
        return {"ph": "X", "name": name, "cat": category, "ts": begin, "dur": us}
    events = [event("ProfilerStep#7", 0, 500, "user_annotation"), event("ProfilerStep#8", 500, 500, "user_annotation"),
              event("ProfilerStep#7", 0, 500, "gpu_user_annotation"), event("aten::mm", 0, 900, "cpu_op"),
              event("gemm", 100, 300), event("gemm", 110, 50), event("gemm", 300, 200),  # 100 to 500
              event("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 400, 300),   # 400 to 700
              event("run_lamport(gyre_cuda_args_lamport)", 650, 100),        # to 750
              event("gemm", 700, 10), event("gemm", 1000, 100)]
    path = write(folder, "profile.json", {"schemaVersion": 1, "traceEvents": events})
    found, text = result_of(directory, "--trace", path)
    compute, communication, hidden = 400 + 10 + 100, 350, 100 + 10
    profiled, exposed = found["strategies"][0], (communication - hidden) / 2
    assert found["steps"] == 2 and found["step_us"] == (1100 - 100) / 2 and found["compute_us"] == compute / 2, found
    assert profiled["communication_us"] == communication / 2 and profiled["exposed_us"] == exposed, profiled
    assert near(profiled["share"], communication / (communication + compute)), profiled
    assert near(profiled["share_overlapped"], exposed / (exposed + compute / 2)), profiled
    assert "and none for 0.125 ms" in text and "communication" in text, text   # 750 to 1000, over two steps
    assert result_of(directory, "--trace", path, "--threshold", "0.6")[1].count("unless it overlaps") == 1
    for words, value in (("no traceEvents", {"traceEvents": 3}), ("0 kernels that communicate and 1 other",
                         {"traceEvents": [event("gemm", 0, 1)]}), ("not JSON", "[")):
        done = start(directory, "--trace", write(folder, "bad.json", value), status=1)
        assert words in done.stderr and "bad.json" in done.stderr, (words, done)


def check_predicted(directory, folder):
    """Predictions are those of `schedule --predict`: its fastest algorithm."""
    common = ["--hosts", "2x4", "--nic-rate", "50", "--net", "socket"]
    found, _ = result_of(directory, *MODEL, "--bucket", "1e8", *common)
    call = found["strategies"][0]["calls"][0]
    assert found["communication"] == "predicted" and call["calls"] == 20, found
    path = os.path.join(folder, "predicted.json")
    run([bench(directory, "schedule"), "--predict", "--coll", "all_reduce", *common, "--bytes",
         "100000000", "--json", path], environment=clean_environment())
    times = [row["time_us"] for row in read_json(path)["predictions"]]
    assert near(call["us"], min(times)), (call, times)
    # Groups within a host know no network: predicted as ranks of one host.
    path = os.path.join(folder, "one_host.json")
    tensor = found["strategies"][2]["calls"][0]
    run([bench(directory, "schedule"), "--predict", "--coll", "all_reduce", "--ranks", "4", "--bytes",
         str(int(tensor["bytes"])), "--json", path], environment=clean_environment())
    assert near(tensor["us"], min(row["time_us"] for row in read_json(path)["predictions"])), tensor
    assert tensor["bytes"] == 1e6 * 4 / 8 * 2944 * 2, tensor
    found7, _ = result_of(directory, *MODEL, "--hosts", "7+8", "--nic-rate", "50")
    assert "no group of ranks fits" in found7["strategies"][2]["unknown"], found7
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
    for words, arguments in (("--tensor 3: expected a divisor of the 2 ranks", ["--tensor", "3"]),
                             ("4 ranks on 2 hosts, not of 2 ranks on one", ["--tensor-from", good])):
        assert words in start(directory, *MODEL, "--from", good, *arguments, status=1).stderr, words
    for arguments in (["--tokens", "1e6", "--ranks", "2"], MODEL, [*MODEL, "--ranks", "x"],
                      [*MODEL, "--ranks", "1"], [*MODEL, "--hosts", "1x1"], [*MODEL, "--hosts", "0x8"],
                      [*MODEL, "--from", good, "--nic-rate", "3"], [*MODEL, "--ranks", "2", "more"],
                      [*MODEL, "--from", good, "--hosts", "2x2", "--net", "ib"],
                      [*MODEL, "--ranks", "2", "--utilisation", "1.5"],
                      [*MODEL, "--ranks", "2", "--peak", "nan"],
                      [*MODEL, "--ranks", "2", "--dtype", "f33"], [*MODEL, "--ranks", "2", "--model", "gpt2"],
                      ["--model", "gpt9", "--tokens", "1", "--ranks", "2"], ["--params", "1e9", "--ranks", "2"],
                      [*MODEL, "--ranks", "2", "--vocab", "5"], [*MODEL, "--trace", good],
                      [*MODEL, "--ranks", "2", "--tensor-from", good]):
        done = start(directory, *arguments, status=2)
        assert done.stderr.startswith("bottleneck: ") and done.stdout == "", (arguments, done)
        assert done.returncode == 2, (arguments, done)
    assert "one rank" in start(directory, *MODEL, "--ranks", "1", status=2).stderr


def case_bottleneck(directory, source):
    with tempfile.TemporaryDirectory() as folder:
        check_measured(directory, folder)
        check_rule(directory, folder)
        check_measured_computation(directory, folder)
        check_models(directory)
        check_profile(directory, folder)
        check_predicted(directory, folder)
        check_refusals(directory, folder)
