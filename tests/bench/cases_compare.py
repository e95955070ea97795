"""A bench beside something else: another engine's times (--compare), its errors (--accuracy), the
limits of the machine (--limits)."""

import glob
import itertools
import json
import os
import re
import shlex
import subprocess
import tempfile

from report_schema import check_schema, has_json, schema_of_reports
from running import (BENCHES, SKIPPED, SMALL, bench, clean_environment, mpirun, needs_mpi_build,
                     read_csv, read_json, run, start, write_json)


def check_comparisons(path, schema):
    """Checks a report of a comparison with MPI, which has one mode."""
    report = read_json(path)
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
            rows = read_csv(table)
            assert all(None not in row.values() for row in rows), rows
            assert [row["reference_mode"] for row in rows] == ["plain", ""] * 4, rows
            for row in rows:
                compared = row["in_place"] == "0"
                assert row["reference_version"].startswith("Open MPI v") == compared, row
                # MPI's calls return when they are done: they have no enqueue
                assert float(row["host_us"]) > 0, row
                assert row["reference_host_us"] == ("0.000" if compared else ""), row
    for name in BENCHES:
        done = mpirun(2, [bench(directory, name), "--device", "host", "--compare", "mpi", "--rounds", "3"] + SMALL)
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


# The variables that tests/gpu/compare sets for both engines, by path.
SHM = {"GYRE_P2P_DISABLE": "1", "NCCL_P2P_DISABLE": "1", "GYRE_SHM_DISABLE": "0", "NCCL_SHM_DISABLE": "0"}
PATHS = {"nvlink": {}, "shm": SHM, "socket": {"GYRE_NET": "Socket", "NCCL_NET": "Socket"},
         "nic": {"GYRE_NET": "IB", "NCCL_NET": "IB"}}
# Without an RDMA device, VIA=nic takes the stand-in.
if not glob.glob("/sys/class/infiniband/*"):
    PATHS["nic"].update({"GYRE_TRANSPORT": "ib", "NCCL_CUMEM_ENABLE": "0", "NCCL_NET_GDR_LEVEL": "SYS"})
CONNECTIONS = {"GYRE_SOCKET_NSOCKS": "8", "NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "2"}


def case_compare_old(directory, source):
    """Beside a second copy of the library, between threads and between processes."""
    library = os.path.join(directory, "..", "libgyre.so")
    for options in (["-R", "0"], ["-R", "2"], ["-z", "1"]):
        done = run([bench(directory, "allreduce"), "-g", "2", "--device", "host", "--compare", "old",
                    "--old-lib", library, "--rounds", "3"] + options + SMALL)
        assert "# Comparing with gyre" in done.stdout and library in done.stdout, done.stdout
    done = run([bench(directory, "allreduce"), "-g", "2", "--device", "host", "--compare", "old",
                "--old-lib", "/nonexistent.so"], status=1)
    assert "--old-lib: /nonexistent.so: cannot open" in done.stderr, done.stderr
    needs_mpi_build(directory)
    for name in BENCHES:
        done = mpirun(2, [bench(directory, name), "--device", "host", "--compare", "old", "--old-lib",
                          library, "--rounds", "3"] + SMALL)
        rows = [line.split() for line in done.stdout.split("\n") if line and line[0] != "#"]
        assert len(rows) == 4 and all(float(row[-4]) > 0 for row in rows), done.stdout


def gpu_compare(source, status=0, **variables):
    """The commands that tests/gpu/compare would run, each as its variables and its words."""
    done = run([os.path.join(source, "tests/gpu/compare"), "reports", "built"],
               status=status, environment={"DRY": "1", "N": "4", **variables})
    commands = []
    for words in map(shlex.split, done.stdout.splitlines()):
        assert words.pop(0) == "env", words
        pairs = itertools.takewhile(lambda word: word != "timeout", words)
        commands.append((dict(word.split("=", 1) for word in pairs), words[words.index("mpirun"):]))
    return commands if status == 0 else done.stderr


def value_after(words, option):
    return words[words.index(option) + 1] if option in words else None


def case_rivals(_, source):
    """What tests/gpu/compare sets for gyre and for NCCL, read from the commands it prints."""
    for via, expected in PATHS.items():
        commands = gpu_compare(source, VIA=via)
        assert [value_after(words, "-J") for _, words in commands] == \
            [f"reports/{name}-4.json" for name in ("allreduce", "allgather", "reducescatter", "broadcast",
                                           "reduce", "sendrecv", "alltoall", "gather", "scatter")]
        for variables, words in commands:
            paths = {name: value for name, value in variables.items()
                     if name.startswith(("GYRE_", "NCCL_")) and name != "NCCL_NVLS_ENABLE"}
            assert paths == expected, (via, paths)
            assert variables["NCCL_NVLS_ENABLE"] == "0", variables
            assert value_after(words, "-G") == "2" and "--host-time" not in words, words
            if via in ("nvlink", "shm"):
                assert not any("HOSTID" in word for word in words), words
                continue
            rank_command = words[words.index("none") + 1:words.index("--device") - 1]
            hosts = [run(rank_command + ["printenv", "GYRE_HOSTID", "NCCL_HOSTID"],
                         environment={"OMPI_COMM_WORLD_RANK": str(rank),
                                      "OMPI_COMM_WORLD_SIZE": "4"}).stdout.split()
                     for rank in range(4)]
            first, second = hosts[0][0], hosts[3][0]
            assert hosts == [[first] * 2] * 2 + [[second] * 2] * 2 and first != second, hosts
    variables, words = gpu_compare(source, VIA="socket", SOCKETS="8", MODE="eager",
                                   NAMES="gather", RIVAL="best", LIB="/x/libnccl.so.2")[0]
    assert CONNECTIONS.items() <= variables.items(), variables
    assert "-G" not in words and value_after(words, "--host-time") == "1", words
    assert value_after(words, "--nccl-mode") == "best", words
    assert value_after(words, "--nccl-lib") == "/x/libnccl.so.2", words
    assert value_after(words, "-J") == "reports/eager/gather-4.json", words
    both = gpu_compare(source, MODE="both", NAMES="reduce")
    assert [value_after(words, "-J") for _, words in both] == \
        ["reports/reduce-4.json", "reports/eager/reduce-4.json"], both
    for variables, words in [({"VIA": "smoke"}, "VIA=smoke is none of nvlink, shm"),
                             ({"MODE": "best"}, "NCCL's mode is RIVAL"),
                             ({"SOCKETS": "8"}, "SOCKETS needs VIA=socket"),
                             ({"SOCKETS": "3", "VIA": "socket"}, "SOCKETS=3 is not even"),
                             ({"GYRE_SHARE_GPU": "1"}, "only if they are on different hosts")]:
        assert words in gpu_compare(source, status=2, **variables), variables
    with tempfile.TemporaryDirectory() as work:
        check_eager_table(source, work)


def check_eager_table(source, work):
    """The table that tests/gpu/table.py makes of reports of eager calls."""
    folder = os.path.join(work, "eager")
    os.mkdir(folder)
    row = {"bytes": 1048576, "algorithm": "direct", "protocol": "ll128", "blocks": 8,
           "out_of_place": {"time_us": 10, "busbw_gbytes_per_s": 50},
           "comparison": {"gyre_us": 8, "reference_us": 12, "ratio": 1.5, "gyre_host_us": 2.25,
                          "reference_host_us": 3, "reference_mode": "zero-sm"}}
    write_json(os.path.join(folder, "gather-2.json"), {"results": [row]})
    lines = run([os.path.join(source, "tests/gpu/table.py"), "--print", folder]).stdout.splitlines()
    assert lines[0].startswith("||size|2 GPUs, host us|gyre us|NCCL us|ratio|GB/s|4 GPUs, host us|")
    # the bus bandwidth is that of the compared time: 50 GB/s * 10 us / 8 us
    assert lines[2:] == ["|gather|1 MiB|2.25 / 3.00|8.00|12.0 z|1.50|62.5||||||"], lines


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
            lines.append((match[2], float(match[3]), float(match[4]), match[5], match[6], match[7], float(match[8])))
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
        done = run([bench(directory, "allreduce"), "-g", "2"] + options + extra,
                   status=2 if "go with" in words else 1)
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
    write_json(path, {"schema_version": 1, "bench": "limits", "rings": [
        {"gpus": gpus, "ceilings_gbytes_per_s": ceilings} for gpus, ceilings in rings]})


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
        for variables in ({"PMI_SIZE": "4"}, {"OMPI_COMM_WORLD_SIZE": "4"}):
            done = run([bench(directory, "limits")], status=1, environment=variables)
            assert done.returncode == 1 and "start it once" in done.stderr, (variables, done)
        limits_of(path, [(4, {"all_reduce_push_push": 0.5, "push": 0.25}), (2, {"push": 2.0})])
        limited = ["--limits", path] + SMALL
        for options, words in [([], "these are limits of GPUs, but the ranks are in host memory"),
                               (["--predict", "1"], "does not go with --predict")]:
            done = run([bench(directory, "allreduce"), "-g", "2", "--device", "host"] + limited +
                       options, status=2 if "--predict" in options else 1)
            assert words in done.stderr, (options, done.stderr)
        # Without GPUs, only tests/bench/test_limits.c tests these columns.
        for name, n, limit, ceiling in [("allreduce", 4, 0.5, "all_reduce_push_push"),
                                        ("allgather", 4, 0.25, "push"), ("sendrecv", 2, 2, "push")]:
            if n > n_gpus:
                continue
            done = run([bench(directory, name), "-g", str(n), "--device", "cuda", "-J", report] + limited)
            assert check_shares(done.stdout, limit, ceiling) > 1, "no share that could be wrong"
            with open(report, encoding="utf-8") as file, \
                    open(os.path.join(source, "bench", "report", "report.schema.json"),
                         encoding="utf-8") as schema:
                parsed = json.load(file)
                check_schema(parsed, json.load(schema))
            assert parsed["settings"]["limit"] == ceiling, parsed["settings"]
            assert parsed["settings"]["limit_gbytes_per_s"] == limit, parsed["settings"]
        for n, words in [(3, "no ring of 3 GPUs, but of 4 2"), (2, "no ceiling all_reduce_push_push")]:
            if n <= n_gpus:
                done = run([bench(directory, "allreduce"), "-g", str(n), "--device", "cuda"] + limited, status=1)
                assert words in done.stderr, (n, done.stderr)


def check_limits(done, path):
    """Checks the output of `limits` on a machine with GPUs. Returns the size of the largest
    ring."""
    assert done.returncode == 0, done
    assert done.stdout.startswith("# gyre limits: "), done.stdout
    parsed = read_json(path)
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
