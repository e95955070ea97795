"""A bench beside something else: another engine's times (--compare), its errors (--accuracy), the
limits of the machine (--limits)."""

import csv
import json
import os
import re
import subprocess
import tempfile

from report_schema import check_schema, has_json, schema_of_reports
from running import (BENCHES, SKIPPED, SMALL, bench, clean_environment, mpirun, needs_mpi_build,
                     run, start)


def check_comparisons(path, schema):
    """Checks a report of a comparison with MPI, which has one mode."""
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    check_schema(report, schema)
    for row in report["results"]:
        compared = row["comparison"]
        assert compared["reference_mode"] == "plain", row
        assert row["versions"]["reference"].startswith("Open MPI v"), row
        assert compared["reference_modes_us"] == {"plain": compared["reference_us"]}, row
        assert 0 < compared["ratio_low"] <= compared["ratio"] <= compared["ratio_high"], row


def case_compare(directory, source):
    needs_mpi_build(directory)
    if has_json(directory):
        with tempfile.TemporaryDirectory() as work:
            path, table = os.path.join(work, "r.json"), os.path.join(work, "t.csv")
            mpirun(2, [bench(directory, "allreduce"), "--device", "host", "--compare", "mpi",
                       "--rounds", "3", "-J", path, "--csv", table] + SMALL)
            check_comparisons(path, schema_of_reports(source))
            with open(table, newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            assert all(None not in row.values() for row in rows), rows
            assert [row["reference_mode"] for row in rows] == ["plain", ""] * 4, rows
    for name in BENCHES:
        done = mpirun(2, [bench(directory, name), "--device", "host", "--compare", "mpi",
                          "--rounds", "3"] + SMALL)
        rows = [line.split() for line in done.stdout.split("\n") if line and line[0] != "#"]
        assert len(rows) == 4, done.stdout
        for row in rows:
            gyre_us, reference_us, ratio = (float(field) for field in row[-5:-2])
            # The ratio has two decimals, and is 0.00 if a rank had to wait long for its core.
            assert gyre_us > 0 and reference_us > 0 and ratio >= 0, row
        assert "# Comparing with Open MPI" in done.stdout, done.stdout
    done = mpirun(2, [bench(directory, "allreduce"), "--device", "host", "--compare", "mpi", "-d",
                      "half"] + SMALL, status=1)
    assert "MPI has no type half" in done.stderr, done.stderr


ACCURACY = re.compile(r" *(\d+)  (\w+) +\w+ +\w+  ([\d.e+-]+)  ([\d.e+-]+) +([\d.e+-]+) +"
                      r"([\d.e+-]+)  (\S+) +([\d.e+-]+|inf)  OK$")
FLOATS = ["half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2"]


def accuracy_lines(done):
    """For each line: type, gyre's largest and mean error, the engine's as texts, mode, bound."""
    lines = []
    for line in done.stdout.split("\n"):
        if line and line[0] != "#":
            match = ACCURACY.match(line)
            assert match, line
            lines.append((match[2], float(match[3]), float(match[4]), match[5], match[6], match[7],
                          float(match[8])))
    assert f"# Accuracy: 0 of {len(lines)} lines FAILED" in done.stdout, done.stdout
    return lines


def case_accuracy(directory, _):
    """Errors of sums stay below the bound for any order of additions, and are no worse than
    MPI's."""
    options = ["--device", "host", "--accuracy", "1", "-b", "1K", "-e", "256K", "-f", "16"]
    for n in (1, 2, 5):
        done = run([bench(directory, "allreduce"), "-g", str(n), "-d", "all"] + options)
        lines = accuracy_lines(done)
        assert [line[0] for line in lines] == [name for name in FLOATS for _ in range(3)], lines
        for name, largest, mean, _, _, mode, bound in lines:
            assert mode == "-" and mean <= largest <= bound, (n, name)
            assert (largest > 0) == (n > 1), (n, name, largest)  # sums of these inputs are rounded
    for extra, words in [(["-d", "int32"], "sums of int32 are exact"), (["-o", "max"], "sums only"),
                         (["-J", "x.json"], "does not go with"),
                         (["--predict", "1"], "does not go with")]:
        done = run([bench(directory, "allreduce"), "-g", "2"] + options + extra, status=1)
        assert words in done.stderr, (extra, done.stderr)
    done = run([bench(directory, "reduce"), "-g", "2"] + options, status=1)
    assert "allreduce only" in done.stderr, done.stderr
    needs_mpi_build(directory)
    # Up to three ranks every order has as many additions on each path; MPI adds more in pairs.
    for n in (2, 3):
        done = mpirun(n, [bench(directory, "allreduce"), "-d", "all", "--compare", "mpi"] + options)
        for name, largest, mean, their_largest, their_mean, mode, _ in accuracy_lines(done):
            if name not in ("float", "double"):
                assert mode == "-" and f"MPI has no type {name}" in done.stdout, done.stdout
                continue
            assert mode == "plain", (name, mode)
            if n == 2:  # there is one addition, so the results are the same
                assert (largest, mean) == (float(their_largest), float(their_mean)), name


def limits_of(path, rings):
    """Writes a file like those of `limits`, with rings of these numbers of GPUs and their
    ceilings."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"schema_version": 1, "bench": "limits", "rings": [
            {"gpus": gpus, "ceilings_gbytes_per_s": ceilings} for gpus, ceilings in rings]}, file)


def case_limits(directory, source):
    """`limits` measures or reports that there is no GPU. --limits adds busbw in percent of a
    ceiling."""
    with tempfile.TemporaryDirectory() as work:
        path, report = os.path.join(work, "limits.json"), os.path.join(work, "report.json")
        done = subprocess.run([bench(directory, "limits"), "-J", path], capture_output=True,
                              text=True, timeout=100, env=clean_environment())
        if done.returncode == SKIPPED:
            assert re.fullmatch(r"limits: no GPU: .+\n", done.stderr) and not done.stdout, done
            assert not os.path.exists(path), "figures without a GPU"
            n_gpus = 0
        else:
            n_gpus = 0 if "built without json-c" in done.stderr else check_limits(done, path)
        for variables in ({"PMI_SIZE": "4"}, {"OMPI_COMM_WORLD_SIZE": "1"}):
            done = run([bench(directory, "limits")], status=1, environment=variables)
            assert done.returncode == 1 and "start it once" in done.stderr, (variables, done)
        limits_of(path, [(4, {"all_reduce_push_push": 0.5, "push": 0.25}), (2, {"push": 2.0})])
        limited = ["--limits", path] + SMALL
        for options, words in [([], "these are limits of GPUs, but the ranks are in host memory"),
                               (["--predict", "1"], "does not go with --predict")]:
            done = run([bench(directory, "allreduce"), "-g", "2", "--device", "host"] + limited +
                       options, status=1)
            assert words in done.stderr, (options, done.stderr)
        # Without GPUs, only tests/bench/test_limits.c tests these columns.
        for name, n, limit, ceiling in [("allreduce", 4, 0.5, "all_reduce_push_push"),
                                        ("allgather", 4, 0.25, "push"), ("sendrecv", 2, 2, "push")]:
            if n > n_gpus:
                continue
            done = run([bench(directory, name), "-g", str(n), "--device", "cuda", "-J", report] +
                       limited)
            assert check_shares(done.stdout, limit, ceiling) > 1, "no share that could be wrong"
            with open(report, encoding="utf-8") as file, \
                    open(os.path.join(source, "bench", "report", "report.schema.json"),
                         encoding="utf-8") as schema:
                parsed = json.load(file)
                check_schema(parsed, json.load(schema))
            assert parsed["settings"]["limit"] == ceiling, parsed["settings"]
            assert parsed["settings"]["limit_gbytes_per_s"] == limit, parsed["settings"]
        for n, words in [(3, "no ring of 3 GPUs, but of 4 2"),
                         (2, "no ceiling all_reduce_push_push")]:
            if n <= n_gpus:
                done = run([bench(directory, "allreduce"), "-g", str(n), "--device", "cuda"] +
                           limited, status=1)
                assert words in done.stderr, (n, done.stderr)


def check_limits(done, path):
    """Checks the output of `limits` on a machine with GPUs. Returns the size of the largest
    ring."""
    assert done.returncode == 0, done
    assert done.stdout.startswith("# gyre limits: "), done.stdout
    with open(path, encoding="utf-8") as file:
        parsed = json.load(file)
    assert parsed["local_copy_gbytes_per_s"] > 0 and parsed["launch_us"] > 0, parsed
    for ring in parsed["rings"]:
        assert all(rate["gbytes_per_s"] > 0 for rate in ring["rates"]), ring
        assert ring["ceilings_gbytes_per_s"]["push"] > 0, ring
    return max([ring["gpus"] for ring in parsed["rings"]], default=0)


def check_shares(text, limit, ceiling):
    """Each row ends with the busbw of its two halves in percent of the limit. Returns the largest
    percentage out of place."""
    assert re.search(rf"^# Limit of busbw: [\d.]+ GB/s, {ceiling} of \S+$", text, re.M), text
    rows = [line.split() for line in text.split("\n") if line and line[0] != "#"]
    assert len(rows) == 4, text
    for row in rows:
        for busbw, share in ((row[7], row[-2]), (row[11], row[-1])):
            # busbw is printed with two decimals, its share with one
            expected, error = 100 * float(busbw) / limit, 0.51 / limit + 0.051
            assert abs(float(share) - expected) <= error, (row, expected)
    return max(float(row[-2]) for row in rows)
