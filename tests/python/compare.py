# SPDX-License-Identifier: Apache-2.0
"""Tests of `gyre compare`: its statistics against tables and other implementations, its verdicts, and a comparison on
host memory as a user starts it.

    python3 tests/python/compare.py CASE BUILD_DIR SOURCE_DIR      (CASE: the name of a case_* function)
"""
import copy
import itertools
import math
import os
import subprocess
import sys
import tempfile
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../support"))
from common import skip
from files import read_csv, read_json, write_text

sys.dont_write_bytecode = True


def case_statistics(_build, _source):
    import compare_stats as stats
    # Conover, Practical Nonparametric Statistics, table A3: ranks of the 95 % interval of a median.
    assert [stats.interval_rank(n) for n in (5, 6, 8, 9, 10, 12, 15, 20, 25)] == [0, 1, 1, 2, 2, 3, 4, 6, 8]
    assert stats.interval([3, 1, 2, 6, 5, 4]) == (1, 6) and stats.interval([1, 2, 3, 4, 5]) is None
    assert stats.interval(range(1, 11)) == (2, 9)
    # No value of one sample is above one of the other: 2 of C(20, 10) ways are as extreme.
    apart = stats.rank_sum_p(range(10), range(10, 20))
    assert math.isclose(apart, 2 / 184756), apart
    # Published critical values of U, two-sided 5 %: 23 for 10 and 10, 5 for 6 and 6, 13 for 8 and 8.
    for n, critical in ((10, 23), (6, 5), (8, 13)):
        def p_of(u, n=n):
            """A sample of n that is above those of the other one u times."""
            full, rest = divmod(u, n)
            first = [-i - 1 for i in range(n - full - (rest > 0))] + [rest - 0.5] * (rest > 0) + [n + i for i in range(full)]
            return stats.rank_sum_p(first, range(n))
        assert p_of(critical) <= 0.05 < p_of(critical + 1), (n, p_of(critical), p_of(critical + 1))
    # Ties, against all ways one by one.
    for first, second in (([1, 1, 2, 5], [1, 3, 3, 5, 5]), ([2, 2, 2], [2, 2, 2, 2]), ([1.5, 2], [7, 2, 2])):
        pooled = first + second
        rank = {value: sum(other < value for other in pooled) + (pooled.count(value) + 1) / 2 for value in pooled}
        mean = len(first) * (len(pooled) + 1) / 2
        sums = [abs(sum(rank[value] for value in way) - mean) for way in itertools.combinations(pooled, len(first))]
        due = sum(each >= sums[0] - 1e-9 for each in sums) / len(sums)
        assert math.isclose(stats.rank_sum_p(first, second), due), (first, second, due)
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == [0.03, 0.06, 0.06, 0.02]
    assert stats.holm([0.9, 0.8]) == [1, 1]
    try:
        from scipy.stats import mannwhitneyu
    except ImportError:
        print("scipy is not here; the tables above are the check")
        return
    first, second = [1.1, 4.2, 0.3, 7.7, 2.9, 3.3], [2.2, 5.1, 6.4, 8.8, 9.9, 7.1, 10.3]
    assert math.isclose(stats.rank_sum_p(first, second), mannwhitneyu(first, second, method="exact").pvalue)


def launches_of(factor, n):
    """Launches in which "b" takes factor(launch) times as long as "a", which gets slower from launch to launch."""
    def case(name, us):
        return {"candidate": name, "process": 0, "bytes": 8, "us": us, "turns": [{"us": us, "samples_ns": [round(us * 1e3)]}]}
    return [{"cases": [case("a", 10.0 + number), case("b", (10.0 + number) * factor(number))], "failures": [], "hosts": []}
            for number in range(n)]


def case_verdicts(_build, _source):
    from compare import summarize
    plan = {"setups": {"a": {}, "b": {}}, "options": {"coll": "all_reduce"}, "ranks": 4, "seed": 1, "command": [],
            "refused": {}, "facts": {}, "searched": {}}

    def last(factor, n=10):
        return summarize(copy.deepcopy(plan), launches_of(factor, n))["rows"][-1]
    assert last(lambda _: 0.4)["verdict"] == "faster" and last(lambda _: 3.0)["verdict"] == "slower"
    assert last(lambda _: 0.4)["ratio"] == 0.4 and math.isclose(last(lambda _: 0.4)["p_holm"], 2 / 184756)
    # the interval excludes 1, but the times of launches are spread so far that the rank sums say nothing
    near = last(lambda _: 0.99)
    assert near["ratio_hi"] < 1 and near["p_holm"] > 0.05 and near["verdict"] == "not shown", near
    assert last(lambda number: 0.5 if number % 2 else 2.0)["verdict"] == "not shown"
    assert last(lambda _: 0.1, 5)["verdict"] == "no verdict"
    assert math.isclose(last(lambda _: 1.0)["busbw_gbytes_per_s"], 8 / 14.5e3 * 1.5)


def case_repeat(_build, _source):
    """Two comparisons: [0.4, 0.5] and [0.45, 0.6] overlap, [0.8, 0.9] and [0.99, 1.2] are 10 % apart."""
    import compare_stats as stats

    def rows(*edges):
        return [{"bytes": 8, "candidate": "first"}, *({"bytes": size, "candidate": "ring", "ratio_lo": low, "ratio_hi": high}
                                                      for size, (low, high) in enumerate(edges, 8))]
    first, second = rows((0.4, 0.5), (0.8, 0.9), (1, 2)), rows((0.45, 0.6), (0.99, 1.2), (None, None))
    for one, other in ((first, second), (second, first)):
        n, n_overlap, (gap, row) = stats.repeat(one, other)
        assert (n, n_overlap, row["bytes"]) == (2, 1, 9) and math.isclose(gap, 0.1), (n, n_overlap, gap, row)
    assert stats.repeat(first[:1], second) == (0, 0, (0, None))


def start(build, *words, status=0):
    done = subprocess.run([os.path.join(build, "bench", "gyre"), "compare", *words], capture_output=True, text=True,
                          check=False, timeout=120)
    assert done.returncode == status, (words, done.stdout, done.stderr)
    return done


def case_launches(build, _source):
    """Candidates of all kinds, an interrupted comparison, and what is refused."""
    with tempfile.TemporaryDirectory() as folder:
        out, own = os.path.join(folder, "out"), os.path.join(folder, "own.gyre")
        programs = subprocess.run([os.path.join(build, "bench", "schedule"), "--algo", "ring", "--coll", "all_reduce",
                                   "--ranks", "2"], capture_output=True, text=True, check=True).stdout
        write_text(own, programs)
        words = ["--coll", "all_reduce", "-g", "2", "--device", "host", "--bytes", "8,4K", "--out", out,
                 "--candidates", f"twoshot,ring@simple,gyre,nccl,file:{own}"]
        first = start(build, *words, "--launches", "2", "--seed", "7")
        if "built without json-c" in first.stdout + first.stderr:
            skip("this build writes no JSON")
        has_nccl = "nccl is left out" not in first.stderr
        assert has_nccl or "# left out: nccl: " in first.stdout, first.stdout
        assert "no verdict" in first.stdout
        path = os.path.join(out, "launch_002.json")
        launch = read_json(path)
        os.unlink(path)
        kept = os.stat(os.path.join(out, "launch_001.json")).st_mtime_ns
        start(build, *words, "--launches", "2")
        assert os.stat(os.path.join(out, "launch_001.json")).st_mtime_ns == kept, "a launch ran twice"
        again = read_json(path)
        assert again["order"] == launch["order"] and again["seed"] == 7, "another order on the second way"
        check_launch(again, f"file:{own}")
        rows = read_csv(os.path.join(out, "summary.csv"))
        names = ["twoshot", "ring@simple", "gyre", *(["nccl"] if has_nccl else []), f"file:{own}"]
        assert [(row["bytes"], row["candidate"]) for row in rows] == \
            [(size, name) for size in ("8", "4096") for name in names], rows
        assert all(row["launches"] == "2" and float(row["min_us"]) <= float(row["p90_us"]) for row in rows), rows
        assert "its bytes is" in start(build, *words[:-4], "--candidates", words[-1], "--out", out, "--bytes", "16",
                                       status=1).stderr
        with open(own, "w", encoding="utf-8") as file:
            file.write(programs.replace("from 1 + in 0", "from 1"))  # loses a contribution
        wrong = start(build, "--coll", "all_reduce", "--device", "host", "--bytes", "8", "--candidates",
                      f"ring,file:{own}", "--out", os.path.join(folder, "other"), status=1)
        assert "is left out" in wrong.stderr and "nothing is left to compare with ring" in wrong.stderr, wrong.stderr
        check_hosts(os.path.join(folder, "mixes"))


def check_hosts(path):
    """A launcher that mixes lines loses no host, and one that prints none is named."""
    import compare
    write_text(path, "#!/bin/sh\necho '{\"host\": {\"host\":'\nexec \"$@\"\n")
    [host] = compare.hosts_of(types.SimpleNamespace(launch=f"sh {path}", seconds=60))
    assert "cpu" in host, host
    try:
        compare.hosts_of(types.SimpleNamespace(launch="true", seconds=60))
    except compare.RunError as error:
        assert "printed what its host is" in str(error), error
    else:
        assert False, "no host, and no error"


def check_launch(launch, own):
    """Everything that a citable measurement has to say."""
    assert {"kernel", "cpu", "gpus", "nics", "load", "environment"} <= set(launch["hosts"][0]), launch["hosts"]
    assert all("--compare-algos" in process["command"] for process in launch["processes"]), launch["processes"]
    for process in launch["order"]:
        assert "twoshot" in process["candidates"], "a process without the first candidate"
    for case in launch["cases"]:
        samples = [value for turn in case["turns"] for value in turn["samples_ns"]]
        assert len(case["turns"]) == 2 and len(samples) >= 10 and min(samples) > 0, case
        means = [sum(turn["samples_ns"]) / len(turn["samples_ns"]) for turn in case["turns"]]
        assert case["us"] <= sum(means) / 2e3 * 1.01, "the mean over the slowest rank is above that over each call's"
    assert {case["candidate"] for case in launch["cases"]} >= {"twoshot", "ring@simple", "gyre", own}, launch["cases"]


if __name__ == "__main__":
    case, build_folder, source_folder = sys.argv[1:]
    sys.path.insert(0, os.path.join(source_folder, "bench", "python"))
    globals()[f"case_{case}"](build_folder, source_folder)
