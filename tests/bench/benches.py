#!/usr/bin/env python3
"""The benches as their users start them: under mpirun, as threads, with torchrun's variables, with
wrong options. Output is parsed strictly, by nccl-tests' format.

    benches.py CASE BENCH_DIR SOURCE_DIR      (CASE: a function below without its leading "case_")
"""

import csv
import json
import os
import re
import resource
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time

from running import (BENCHES, SKIPPED, SMALL, bench, clean_environment, ends_by, free_port,
                     mpirun, needs_mpi_build, parse, run, start, start_ranks)


def case_mpi(directory, _):
    needs_mpi_build(directory)
    for name in BENCHES:
        for n in (2, 3, 4):
            done = mpirun(n, [bench(directory, name), "--device", "host"] + SMALL)
            rows = parse(done.stdout, n)
            assert len(rows) == 4, rows
            blocks = name in ("allgather", "alltoall", "reducescatter")
            for size, row in zip((8, 128, 2048, 32768), rows):
                expected = size // 4 // n // 4 * 4 * n * 4 if blocks else size
                assert int(row[0]) == expected, row
                assert row[2] == "float", row
                assert row[3] == ("sum" if "reduce" in name else "none"), row
                assert row[4] == ("0" if name in ("broadcast", "reduce") else "-1"), row
                assert row[-1].endswith("N/A") == (name == "sendrecv"), row


def case_threads(directory, _):
    for name in BENCHES:
        done = run([bench(directory, name), "-g", "4", "--device", "host"] + SMALL)
        parse(done.stdout, 4)
    rows = parse(run([bench(directory, "allreduce"), "-t", "2", "-g", "2", "--device", "host", "-d",
                      "all", "-o", "all", "-u", "1", "-b", "96", "-e", "96", "-n", "1"]).stdout, 4)
    assert len(rows) == 12 * 5, len(rows)
    rows = parse(run([bench(directory, "broadcast"), "-g", "3", "--device", "host", "-r", "all",
                      "-b", "1K", "-e", "2K", "-i", "512", "-m", "3", "-a", "3"]).stdout, 3)
    assert [(r[0], r[4]) for r in rows] == [(str(s), str(root)) for root in range(3)
                                            for s in (1024, 1536, 2048)], rows


def case_torchrun(directory, _):
    """With strangers at the door: silence, garbage, and a hello of another world."""
    port = free_port()
    stop = threading.Event()

    def pester():
        held = []
        words = [b"", b"GET / HTTP/1.1\r\n\r\n" * 4, b"gyre bench 0001\0" + b"\1\0\0\0\7\0\0\0"]
        while not stop.is_set():
            for word in words:
                try:
                    stranger = socket.create_connection(("127.0.0.1", port), timeout=1)
                    stranger.sendall(word)
                    held = held[-8:] + [stranger]
                except OSError:
                    stop.wait(0.01)

    pest = threading.Thread(target=pester)
    pest.start()
    try:
        ranks = start_ranks(directory, 3, port)
        outputs = [rank.communicate(timeout=100) for rank in ranks]
    finally:
        stop.set()
        pest.join()
    for rank, output in zip(ranks, outputs):
        assert rank.returncode == 0, output
    parse(outputs[0][0], 3)
    assert outputs[1][0] == "" and outputs[2][0] == "", outputs


def case_refusal(directory, _):
    """What is wrong with one rank alone, all hear at once, before they wait for each other."""
    for odd, options, variables, words in [
            (1, [], {"GYRE_FOO": "1"}, "unknown variable GYRE_FOO"),
            (0, [], {"GYRE_FOO": "1"}, "unknown variable GYRE_FOO"),
            (2, [], {"GYRE_DEBUG_FILE": "/nonexistent/log"}, "log file /nonexistent/log"),
            (1, [], {"GYRE_TUNING_FILE": "/nonexistent/costs"}, "/nonexistent/costs"),
            (1, [], {"GYRE_TRANSPORT": "carrier_pigeon"}, "carrier_pigeon"),
            (1, ["--device", "cuda"], {"CUDA_VISIBLE_DEVICES": ""}, "CUDA")]:
        ranks = start_ranks(directory, 3, free_port(), odd, options, variables)
        try:
            for rank in ranks:  # GYRE_BOOTSTRAP_TIMEOUT is 120 s
                errors = rank.communicate(timeout=30)[1]
                assert rank.returncode == 1 and f"rank {odd}: " in errors and words in errors, \
                    (odd, variables, errors)
        finally:
            for rank in ranks:
                rank.kill()


def case_agreement(directory, _):
    """Options that differ between processes end all of them with the option and who has what."""
    for odd, options, words in [
            (1, ["-e", "1M"], "-e: process 0 has 262144, 1 has 1048576: all"),
            (0, ["-g", "2"], "-g: process 0 has 2, 1 has 1, 2 has 1: all"),
            (2, ["-c", "0"], "-c: process 0 has 1, 2 has 0: all"),
            (1, ["--compare", "mpi"], "--compare: process 0 has (not given), 1 has mpi: all"),
            (1, ["--csv", "/nonexistent/x"], "--csv: process 0 has (not given), 1 has given: all")]:
        ranks = start_ranks(directory, 3, free_port(), odd, options)
        try:
            for rank in ranks:
                output, errors = rank.communicate(timeout=30)
                assert rank.returncode == 1 and words in errors, (odd, options, errors)
                said = [line for line in errors.splitlines() if " waits for " not in line]
                assert output == "" and len(said) == 1, (output, errors)
        finally:
            for rank in ranks:
                rank.kill()
    ranks = start_ranks(directory, 2, free_port(), 0, ["-S", "1"])  # rank 0's alone
    for rank in ranks:
        errors = rank.communicate(timeout=100)[1]
        assert rank.returncode == 0, errors
    needs_mpi_build(directory)
    one = [bench(directory, "allreduce"), "--device", "host", "-b", "1K", "-e"]
    for odd in (["1M"], ["1K", "-n", "3"], ["1K", "-g", "2"]):
        done = mpirun(1, one + ["1K", ":", "-np", "1"] + one + odd, status=1, timeout=30)
        assert ", 1 has " in done.stderr and "all need the same" in done.stderr, done.stderr


def case_interrupt(directory, _):
    """A SIGINT ends a sweep that would last for ever, with a footer and whole files; it ends
    anything else, and a second one a size that would last for ever, at once."""
    two = [bench(directory, "allreduce"), "-g", "2", "--device", "host"]
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "out.json")
        process = start(two + ["-N", "0", "-J", path] + SMALL)
        text = ""
        while "float" not in text:
            text += process.stdout.readline()
        process.send_signal(signal.SIGINT)
        text += process.stdout.read()
        assert process.wait(timeout=100) == -signal.SIGINT, text
        assert "# Interrupted" in text and "# Avg bus bandwidth    : " in text, text
        with open(path, encoding="utf-8") as file:
            assert json.load(file)["summary"]["interrupted"] is True
    for first, second in [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT),
                          (signal.SIGINT, signal.SIGTERM)]:
        process = start(two + ["-b", "8", "-e", "8", "-n", "100000000"])
        while "(GB/s)" not in process.stdout.readline():  # the header's last line
            pass
        time.sleep(0.5)  # until it is in the size
        process.send_signal(first)
        time.sleep(0.5)  # both at once may be taken in either order
        assert process.poll() is None, "the first one is the sweep's"
        ends_by(process, second)
    for number in (signal.SIGINT, signal.SIGTERM):  # the first one is enough, a little later
        process = start(two + ["-b", "8", "-e", "8", "-n", "100000000"])
        while "(GB/s)" not in process.stdout.readline():
            pass
        ends_by(process, number)
    ends_by(start(two[:1] + ["-g", "300"] + two[3:]), signal.SIGTERM)  # while it begins
    ignoring = start(["sh", "-c", 'trap "" INT; exec "$@"', "sh"] + two + ["-N", "0"] + SMALL)
    while "float" not in ignoring.stdout.readline():
        pass
    ignoring.send_signal(signal.SIGINT)  # as a shell has it for jobs in the background
    for _ in range(40):
        assert "Interrupted" not in ignoring.stdout.readline()
    ignoring.stdout.close()
    ignoring.kill()
    ignoring.wait()
    # All processes end when one is told to, and none claims that the run is whole.
    world = [start(two[:1] + two[3:] + ["-N", "0"] + SMALL, {
        "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
        for port in [free_port()] for rank in range(2)]
    while "float" not in world[0].stdout.readline():
        pass
    world[1].send_signal(signal.SIGTERM)
    outputs = [process.communicate(timeout=30)[0] for process in world]
    assert [process.returncode for process in world] == [128 + signal.SIGTERM, -signal.SIGTERM]
    assert "# Interrupted" in outputs[0], outputs
    for name, options in [("tune", []), ("allreduce", ["--predict", "1"]),
                          ("allreduce", ["--accuracy", "1", "-d", "all", "-f", "2"])]:
        process = start([bench(directory, name), "-g", "2", "--device", "host", "-b", "8", "-e",
                         "4M", "-f", "16", "--rounds", "1000"] + options)
        time.sleep(0.5)  # until it measures, or a little less: a signal must end it at any time
        ends_by(process, signal.SIGINT)
    port = free_port()
    lonely = [start(two[:1] + ["--device", "host"], {
        "RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(at)})
        for rank, at in ((0, port), (2, free_port()))]
    for process, words in zip(lonely, ["rank 0 waits for ranks 1 2 to come",
                                       "rank 2 waits for rank 0 to listen"]):
        line = process.stderr.readline()
        assert line.startswith(words), line
        ends_by(process, signal.SIGTERM)


def case_streams(directory, _):
    """Output that is lost is a failure; a stream that is closed is nobody else's."""
    one = ["-g", "2", "--device", "host", "-b", "8", "-e", "8"]
    fit = ["-g", "2", "--device", "host", "-b", "64", "-e", "64K", "-f", "32", "--rounds", "1"]
    program = ["--algo", "ring", "--coll", "all_reduce", "--ranks", "2"]
    for name, options in [("allreduce", one), ("allreduce", ["-h"]), ("reduce", ["--help-vars"]),
                          ("tune", fit), ("schedule", program), ("schedule", ["-h"]), ("topo", []),
                          ("topo", ["-h"]), ("limits", ["-h"])]:
        command = [bench(directory, name)] + options
        done = run(["sh", "-c", '"$@" > /dev/full', "sh"] + command, status=1)
        assert done.returncode == 1, (command, done)
        assert done.stderr.count("standard output: No space left") == 1, (command, done.stderr)
        run(["sh", "-c", '"$@" <&- >&-', "sh"] + command)
        run(command)
    done = run([bench(directory, "allreduce")] + one + ["--csv", "/dev/full"], status=1)
    assert done.stderr.count("--csv /dev/full: No space left") == 1, done
    # The rows fit, the report's last 147 bytes, about, do not.
    with tempfile.TemporaryDirectory() as work:
        report = os.path.join(work, "report.json")
        command = [bench(directory, "allreduce")] + one + ["-J", report]
        run(command)
        most = os.path.getsize(report) - 100
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        done = run(command, status=1, preexec_fn=limit)
        assert done.stderr.count("File too large") == 1, done
        # Not 0: ThreadSanitizer's runtime writes a file before main(), and a write of which nothing
        # fits ends the process.
        most = 16
        table, constants = os.path.join(work, "table.csv"), os.path.join(work, "constants")
        for command in ([bench(directory, "allreduce")] + one + ["--csv", table],
                        [bench(directory, "topo"), "--dump", report],
                        [bench(directory, "tune")] + fit + ["--output", constants]):
            done = run(command, status=1, preexec_fn=limit)
            assert done.stderr.count("File too large") == 1, done
        assert not [name for name in os.listdir(work) if ".part" in name], os.listdir(work)
    # Sockets between two processes must not get the number of a closed stream.
    ranks = start_ranks(directory, 2, free_port(), launcher=["sh", "-c", '"$@" >&-', "sh"])
    for rank in ranks:
        errors = rank.communicate(timeout=100)[1]
        assert rank.returncode == 0, (rank.returncode, errors)


def peak_memory(command):
    """Of a command that ends well, in KiB."""
    # AddressSanitizer keeps what is freed, for a while.
    sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL,
                               env={**clean_environment(), "ASAN_OPTIONS": sanitizer})
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert status == 0, (command, status)
    return usage.ru_maxrss


def case_memory(directory, _):
    """What a run takes does not grow with -n: queues of a host's stream are emptied in between."""
    command = [bench(directory, "allreduce"), "-g", "2", "--device", "host", "-b", "8", "-e", "8",
               "-w", "0", "-c", "0", "-n"]
    few, many = peak_memory(command + ["8000"]), peak_memory(command + ["80000"])
    assert many < few + 16 * 1024, f"{few} KiB for 8000 iterations, {many} for 80000"
    large = ["--device", "host", "-e", "64G"]
    done = run([bench(directory, "allreduce"), "-t", "4", "-g", "256"] + large, status=1)
    assert "1024 ranks in host memory need 131" in done.stderr and "GiB are " in done.stderr, done
    ranks = [start([bench(directory, "allreduce")] + large + ["-g", "512"], {
        "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
        for port in [free_port()] for rank in range(2)]
    errors = [rank.communicate(timeout=60)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [1, 1], errors
    assert "1024 ranks in host memory need 131" in errors[0], errors
    assert "the host of process 0 has too little memory" in errors[1], errors


def case_options(directory, _):
    refused = [
        (["-b", "12X"], "is not a size"),
        (["-b", "2M", "-e", "1M"], "larger than"),
        (["-i", "0"], "never reaches"),
        (["--no-such-option"], "no such option"),
        (["-n"], "needs a value"),
        (["-n", "0"], "is not a number from 1"),
        (["-d", "float3"], "is none of"),
        (["-o", "xor"], "is none of"),
        (["stray"], "take options only"),
        (["-g", "2", "-r", "2", "--device", "host"], "the ranks are 0 to 1"),
        (["--algo", "nonsense", "--device", "host"], "nonsense"),
        (["--compare", "gloo"], "is none of"),
        (["-G", "1", "--device", "host"], "no graphs"),
        (["-f", "1.5"], "is not a number from 0"),
        (["-f", "2K"], "is not a number from 0"),
        (["-f", "1", "-i", "0"], "never reaches"),
        (["--from", "."], "--from and --output do not go with allreduce"),
        (["--output", "x"], "--from and --output do not go with allreduce"),
        (["--nccl-lib", "x"], "--nccl-lib needs --compare nccl"),
        (["--nccl-algo", "Ring", "--compare", "mpi"], "--nccl-algo needs --compare nccl"),
        (["--nccl-proto", "LL"], "--nccl-proto needs --compare nccl"),
        (["--sweep", "1", "--channels", "0"], "\"0\" is not a number from 1 to 64"),
        (["--sweep", "1", "--channels", "1,65"], "\"65\" is not a number from 1 to 64"),
        (["--sweep", "1", "--channels", "1x"], "\"1x\" is not a number from 1 to 64"),
        (["--sweep", "1", "--channels", "1,,2"], "a word of the list is empty"),
        (["--sweep", "1", "--algo", "ring,"], "a word of the list is empty"),
        (["--predict", "1", "-J", "x"], "--predict 1 does not go with"),
        (["-J", "x", "--csv", "x"], "are the same file"),
        (["-J", "-"], "--json -: give the path"),
        (["--csv", "-"], "--csv -: give the path"),
        (["--nccl-mode", "symmetric"], "is none of"),
        (["--nccl-mode", "window"], "needs --compare nccl"),
        (["-J", "/nonexistent/x.json", "-b", "8", "-e", "8", "--device", "host"], "-"),
        (["--csv", "/nonexistent/x.csv", "-b", "8", "-e", "8", "--device", "host"], "/nonexistent"),
    ]
    for options, words in refused:
        done = run([bench(directory, "allreduce")] + options, status=1)
        assert words in done.stderr, (options, done.stderr)
    for options in (["-J", "x"], ["--csv", "x"], ["--predict", "1"], ["--compare", "mpi"]):
        done = run([bench(directory, "tune")] + options, status=1)
        assert "tune does not go with" in done.stderr, (options, done.stderr)
    variables = run([bench(directory, "allreduce"), "--help-vars"]).stdout
    for name in ("SOCKET_IFNAME", "IB_HCA", "ALGO", "BOOTSTRAP_TIMEOUT"):
        assert name in variables, variables
    help_text = run([bench(directory, "allreduce"), "--help"]).stdout
    for option in "begtnwmcodrzifGuJ":
        assert f"-{option}," in help_text, option


def case_causes(directory, _):
    """What went wrong is one line that names what the user wrote, and nothing is OK after it."""
    one = ["-g", "2", "--device", "host", "-b", "8", "-e", "8"]
    for options, words in [(["--algo", "rign"], "--algo: \"rign\" is none of"),
                           (["--proto", "ll"], "no protocol that --proto allows"),
                           (["--path", "placed"], "--path wants the results")]:
        done = run([bench(directory, "allreduce")] + one + options, status=1)
        assert words in done.stderr and "GYRE_" not in done.stderr, done.stderr
        assert " OK" not in done.stdout, done.stdout
        assert "Out of bounds" not in done.stdout or "# Ended by an error" in done.stdout, done
    done = run([bench(directory, "allreduce")] + one, status=1, environment={"GYRE_PROTO": "ll"})
    assert "no protocol that GYRE_PROTO allows" in done.stderr, done.stderr
    topo = bench(directory, "topo")
    for command, variables in [([topo, "--xml", "/etc/passwd"], {}),
                               ([bench(directory, "allreduce"), "-J", "/nonexistent/x"] + one, {}),
                               ([bench(directory, "allreduce")] + one,
                                {"GYRE_TOPO_FILE": "/etc/passwd"})]:
        done = run(command, status=1, environment=variables)
        assert done.stderr and "\n\n" not in done.stderr, done.stderr


def case_launchers(directory, _):
    """A process of many that cannot join the others refuses and says what to do."""
    for variables, words in [
            ({"PMI_SIZE": "4"}, "lonely copies"),
            ({"SLURM_STEP_NUM_TASKS": "2"}, "srun --mpi=pmix"),
            ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}, "MASTER_PORT"),
            ({"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"},
             "RANK=2"),
            ({"GYRE_NO_SUCH_THING": "1"}, "GYRE_NO_SUCH_THING")]:
        done = run([bench(directory, "allreduce"), "-b", "8", "-e", "8", "--device", "host"],
                   status=1, environment=variables)
        assert words in done.stderr, (variables, done.stderr)
        assert done.stdout == "", done.stdout


def check_schema(value, schema, where="report"):
    """The part of JSON Schema that bench/report/report.schema.json uses."""
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None),
             "number": (int, float), "integer": int}
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    fits = any(isinstance(value, kinds[t]) and (t == "boolean" or not isinstance(value, bool))
               for t in types)
    assert fits, f"{where}: {value!r} is not {types}"
    if isinstance(value, dict):
        known = schema.get("properties", {})
        for name in schema.get("required", []):
            assert name in value, f"{where}: no {name}"
        for name, item in value.items():
            if name in known:
                check_schema(item, known[name], f"{where}.{name}")
            else:
                extra = schema.get("additionalProperties", False)
                assert extra, f"{where}: unknown {name}"
                check_schema(item, extra, f"{where}.{name}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            check_schema(item, schema["items"], f"{where}[{i}]")


def schema_of_reports(source):
    with open(os.path.join(source, "bench", "report", "report.schema.json"), encoding="utf-8") as file:
        return json.load(file)


def has_json(directory):
    with tempfile.TemporaryDirectory() as work:
        done = subprocess.run([bench(directory, "allreduce"), "-g", "2", "--device", "host", "-b",
                               "8", "-e", "8", "-J", os.path.join(work, "r.json")],
                              capture_output=True, text=True, env=clean_environment())
    return "built without json-c" not in done.stderr


def case_reports(directory, source):
    schema = schema_of_reports(source)
    if not has_json(directory):
        print("the benches were built without json-c")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as work:
        report, table = os.path.join(work, "r.json"), os.path.join(work, "t.csv")
        command = [bench(directory, "reduce"), "-g", "3", "--device", "host", "-J", report, "--csv",
                   table] + SMALL
        run(command, environment={"NCCL_IB_HCA": "mlx5_0", "NCCL_MY_TOKEN": "hush", "PASSWORD": "x",
                                  "HOME_TOKEN": "hush"})
        with open(report, encoding="utf-8") as file:
            text = file.read()
        parsed = json.loads(text)
        check_schema(parsed, schema)
        assert "hush" not in text, "a secret is in the report"
        assert parsed["environment"]["NCCL_MY_TOKEN"] == "(hidden)", parsed["environment"]
        assert parsed["environment"]["NCCL_IB_HCA"] == "mlx5_0", parsed["environment"]
        assert "PASSWORD" not in parsed["environment"] and "PATH" not in parsed["environment"]
        assert [r["bytes"] for r in parsed["results"]] == [8, 128, 2048, 32768]
        for row in parsed["results"]:
            times = row["out_of_place"]["single_calls_us"]
            assert 0 < times["min"] <= times["median"] <= times["p99"] <= times["max"], row
            assert row["algorithm"] and row["channels"] >= 1, row
            assert row["path"] == "staged" and row["transports"], row
            assert row["versions"]["gyre"] == parsed["gyre_version"], row
            # host memory, and nothing to compare with
            assert row["versions"]["reference"] is row["versions"]["cuda_driver"] is None, row
            assert row["sms"] == {"gyre": None, "reference": None}, row
            assert row["clocks"] == {"sm_mhz": None, "memory_mhz": None}, row
        placed = command[:command.index("-J")] + ["-R", "2", "--algo", "all_reduce:ring", "-J",
                                                  report, "-b", "64K", "-e", "64K"]
        run([bench(directory, "allreduce")] + placed[1:])
        with open(report, encoding="utf-8") as file:
            assert [r["path"] for r in json.load(file)["results"]] == ["placed"]
        # What is no file is not to be replaced by one, least of all a device node by root.
        pipe = os.path.join(work, "pipe")
        os.mkfifo(pipe)
        done = run(command + ["-J", pipe], status=1)
        assert "not a regular file" in done.stderr, done.stderr
        assert stat.S_ISFIFO(os.stat(pipe).st_mode), "the pipe is gone"
        # Names that another user may have planted in a folder that both can write to.
        victim = os.path.join(work, "victim")
        with open(victim, "w", encoding="utf-8") as file:
            file.write("mine")
        os.symlink(victim, report + ".part")
        run(command)
        with open(victim, encoding="utf-8") as file:
            assert file.read() == "mine", "written through a link that somebody has planted"
        with open(table, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == 8 and all(None not in row.values() for row in rows), rows
        assert [int(row["bytes"]) for row in rows[::2]] == [8, 128, 2048, 32768]


def case_sweep(directory, _):
    """Every combination leaves reports of its own, where tune finds them."""
    command = [bench(directory, "allreduce"), "-g", "2", "--device", "host", "--sweep", "1",
               "--algo", "ring,tree", "--channels", "1,2"] + SMALL
    combinations = [("ring", "1"), ("ring", "2"), ("tree", "1"), ("tree", "2")]
    with tempfile.TemporaryDirectory() as work:
        run(command + ["--csv", os.path.join(work, "z.csv")])
        for algo, channels in combinations:
            with open(os.path.join(work, f"z.{algo}-{channels}.csv"), newline="",
                      encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            assert len(rows) == 8, rows
            assert {(row["algorithm"], row["channels"]) for row in rows} == {(algo, channels)}, rows
        if has_json(directory):
            run(command + ["-J", os.path.join(work, "s.json")])
            for algo, channels in combinations:
                with open(os.path.join(work, f"s.{algo}-{channels}.json"), encoding="utf-8") as file:
                    rows = json.load(file)["results"]
                assert [(row["algorithm"], row["channels"]) for row in rows] == \
                    [(algo, int(channels))] * 4, rows
            constants = os.path.join(work, "constants")
            run([bench(directory, "tune"), "--from", work, "--output", constants])
            with open(constants, encoding="utf-8") as file:
                assert "constants from 16 calls" in file.read()
        assert len(os.listdir(work)) == (9 if has_json(directory) else 4), os.listdir(work)


def check_comparisons(path, schema):
    """A report beside MPI, which is measured in one mode."""
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
            # Two decimals: a rank that had to wait for its core can make it 0.00.
            assert gyre_us > 0 and reference_us > 0 and ratio >= 0, row
        assert "# Comparing with Open MPI" in done.stdout, done.stdout
    done = mpirun(2, [bench(directory, "allreduce"), "--device", "host", "--compare", "mpi", "-d",
                      "half"] + SMALL, status=1)
    assert "MPI has no type half" in done.stderr, done.stderr


ACCURACY = re.compile(r" *(\d+)  (\w+) +\w+ +\w+  ([\d.e+-]+)  ([\d.e+-]+) +([\d.e+-]+) +"
                      r"([\d.e+-]+)  (\S+) +([\d.e+-]+|inf)  OK$")
FLOATS = ["half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2"]


def accuracy_lines(done):
    """(type, gyre's largest and mean error, the reference's as text, mode, bound), a line each."""
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
    """Errors of sums against what any order may have, and beside MPI's."""
    options = ["--device", "host", "--accuracy", "1", "-b", "1K", "-e", "256K", "-f", "16"]
    for n in (1, 2, 5):
        done = run([bench(directory, "allreduce"), "-g", str(n), "-d", "all"] + options)
        lines = accuracy_lines(done)
        assert [line[0] for line in lines] == [name for name in FLOATS for _ in range(3)], lines
        for name, largest, mean, _, _, mode, bound in lines:
            assert mode == "-" and mean <= largest <= bound, (n, name)
            assert (largest > 0) == (n > 1), (n, name, largest)  # such inputs do round
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
            if n == 2:  # one addition: the same result from anybody
                assert (largest, mean) == (float(their_largest), float(their_mean)), name


PREDICTION = re.compile(r" *(\d+)  (\w+) +(\w+) +(\d+) +(\d+) +([\d.]+) +([\d.]+) +([\d.]+)"
                        r"  (\w+) +(\w+) +(\d+) +(\d+) +([\d.]+) +([\d.]+)%$")


def check_restrictions(directory, sizes):
    """What --algo forbids, or GYRE_ALGO, neither tune nor --predict tries."""
    done = run([bench(directory, "tune"), "--algo", "ring"] + sizes)
    tried = re.findall(r"^(?:all|reduce)_\w+ +\d+  (\w+) ", done.stdout, re.M)
    assert len(tried) > 6 and set(tried) == {"ring"}, done.stdout
    for options, variables in [(["--algo", "^direct,ring"], {}),
                               ([], {"GYRE_ALGO": "broadcast:tree,twoshot"})]:
        done = run([bench(directory, "broadcast"), "--predict", "1"] + sizes + options,
                   environment=variables)
        lines = [PREDICTION.match(line) for line in done.stdout.split("\n")]
        used = [line[i] for line in lines if line for i in (2, 9)]
        assert len(used) == 6 and set(used) <= {"tree", "twoshot"}, done.stdout
    done = run([bench(directory, "allreduce"), "--predict", "1", "--path", "placed", "-R", "2"] +
               sizes, status=1)
    assert "planned as if in no window: --path wants" in done.stderr, done.stderr


def case_tune(directory, source):
    """tune writes constants, GYRE_TUNING_FILE takes them, --predict compares with measurements."""
    sizes = ["-b", "64", "-e", "64K", "-f", "32", "--rounds", "2", "--device", "host", "-g", "2"]
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "tuning.txt")
        done = run([bench(directory, "tune"), "--output", path] + sizes)
        assert "constants fitted" in done.stdout, done.stdout
        run([bench(directory, "tune"), "--output", path, "-b", "0"] + sizes[2:])  # from 0 to 1
        with open(path) as file:
            text = file.read()
        assert re.search(r"^simple_host_hop_ns = [\d.e+-]+$", text, re.M), text
        for name in ["allreduce", "allgather", "broadcast", "reduce", "reducescatter", "alltoall"]:
            for environment in [{}, {"GYRE_TUNING_FILE": path}]:
                done = run([bench(directory, name), "--predict", "1"] + sizes,
                           environment=environment)
                lines = [line for line in done.stdout.split("\n") if line and line[0] != "#"]
                assert len(lines) == 3, done.stdout
                for line in lines:
                    match = PREDICTION.match(line)
                    assert match, line
                    assert all(float(match[i]) > 0 for i in (6, 7, 13)), line
                assert "the tuner loses over 5%" in done.stdout, done.stdout
        done = run([bench(directory, "allreduce"), "-b", "4K", "-e", "4K", "--device", "host", "-g",
                    "2"], environment={"GYRE_TUNING_FILE": path, "GYRE_DEBUG": "INFO",
                                       "GYRE_DEBUG_SUBSYS": "TUNING"})
        log = done.stdout + done.stderr
        assert re.search(r"all_reduce 4096 B: \w+ simple, \d channels, tiles of \d+ B, predicted "
                         r"[\d.]+ us \(measured constants\)", log), log
        with open(path, "a") as file:
            file.write("nonsense = 1\n")
        done = run([bench(directory, "allreduce"), "-g", "2", "--device", "host"], status=1,
                   environment={"GYRE_TUNING_FILE": path})
        assert "GYRE_TUNING_FILE" in done.stderr and "nonsense" in done.stderr, done.stderr
        if has_json(directory):
            done = run([bench(directory, "tune"), "--from",
                        os.path.join(source, "docs", "performance"), "--output", path])
            with open(path, encoding="utf-8") as file:  # the shipped constants are these, rounded
                error = re.search(r"constants from \d+ calls; typical error (\d+)%", file.read())
            assert error and int(error.group(1)) <= 15, done.stdout
            done = run([bench(directory, "tune"), "--from", place], status=1)
            assert "no *.json there" in done.stderr, done.stderr
        for options, words in [  # before anything is measured
                (["--output", "/nonexistent/x"], "--output /nonexistent/x: No such file"),
                (["-g", "1"], "one rank sends nothing"),
                (["--algo", "tree"], "no algorithm that --algo allows can do all_gather"),
                (["--path", "placed"], "--path wants the results of all_reduce placed"),
                (["--from", place, "--algo", "ring"], "--from does not go with --algo")]:
            done = run([bench(directory, "tune"), "--rounds", "1000", "--output", path] + sizes[:6] +
                       sizes[8:] + options, status=1)
            assert words in done.stderr, (options, done.stderr)
        assert os.path.getsize(path) > 0, "a refusal has emptied the file"
        new = os.path.join(place, "new.txt")
        run([bench(directory, "tune"), "-g", "1", "--output", new], status=1)
        assert not os.path.exists(new), "a refusal has left a file"
    check_restrictions(directory, sizes)
    done = run([bench(directory, "sendrecv"), "--predict", "1"] + sizes, status=1)
    assert "point to point" in done.stderr, done.stderr
    needs_mpi_build(directory)
    done = mpirun(2, [bench(directory, "allreduce"), "--predict", "1", "-b", "64", "-e", "64",
                      "--device", "host", "--rounds", "2"])
    assert len([line for line in done.stdout.split("\n") if PREDICTION.match(line)]) == 1, done


def case_files(directory, _):
    """Files that never end are refused at once, whoever reads them."""
    two = ["-g", "2", "--device", "host", "-b", "8", "-e", "8"]
    with tempfile.TemporaryDirectory() as work:
        pipe = os.path.join(work, "pipe.json")
        os.mkfifo(pipe)
        for path in (pipe, "/dev/zero"):
            commands = [(["schedule", "--file", path], {}), (["topo", "--xml", path], {}),
                        (["allreduce"] + two, {"GYRE_TOPO_FILE": path}),
                        (["allreduce"] + two, {"GYRE_TUNING_FILE": path}),
                        (["schedule", "--predict", "--coll", "all_reduce", "--ranks", "2",
                          "--cost", path], {})]
            if has_json(directory):
                commands.append((["tune", "--from", work], {}))
            for command, variables in commands:
                done = run([bench(directory, command[0])] + command[1:], status=1, timeout=20,
                           environment=variables)
                assert "not a regular file" in done.stderr or "libxml2" in done.stderr, \
                    (command, done.stderr)
        program = run([bench(directory, "schedule"), "--algo", "ring", "--coll", "all_reduce",
                       "--ranks", "2"]).stdout
        done = run([bench(directory, "schedule"), "--file", "-"], input=program)
        assert done.stdout == program, done.stdout


def case_schedule(directory, _):
    """schedule --predict answers for machines that nobody has at hand."""
    schedule = [bench(directory, "schedule"), "--predict", "--coll", "all_reduce"]
    done = run(schedule + ["--ranks", "4096", "--hosts", "512x8", "--bytes", "1K:1M"])
    assert re.search(r"^ +1048576( +[\d.]+)+  tree$", done.stdout, re.M), done.stdout
    done = run(schedule + ["--ranks", "8", "--algo", "ring", "--cost", "host", "--bytes", "1M"])
    assert re.search(r"^ +1048576 +simple +\d+ +\d+ ", done.stdout, re.M), done.stdout
    done = run(schedule + ["--ranks", "4", "--algo", "twoshot", "--cost", "h200", "--proto", "lamport",
                           "--bytes", "1M"])
    assert re.search(r"^ +1048576 +lamport +\d+ +\d+ ", done.stdout, re.M), done.stdout
    for options, words in [
            (["--ranks", "8", "--cost", "/nonexistent"], "/nonexistent"),
            (["--ranks", "8", "--bytes", "2M:1M"], "FIRST:LAST"),
            (["--ranks", "8", "--proto", "ll", "--cost", "host"], "simple only"),
            (["--ranks", "8", "--hosts", "3x3"], "HOSTSxRANKS"),
            (["--ranks", "8", "--algo", "sendrecv"], "has no all_reduce"),
            (["--ranks", "8", "--algo", "ring", "--depth", "1", "--channels", "1"], "deadlock"),
            (["--ranks", "4097"], "4096"),
            (["--ranks", "4", "--hosts", "0,0,1,-1"], "expected 4 numbers"),
            (["--ranks", "4", "--rounds"], "--predict does not go with"),
            ([], "--ranks is missing")]:
        done = run(schedule + options, status=1)
        assert words in done.stderr and "GYRE_" not in done.stderr, (options, done.stderr)
    for options, words in [(["--channels", "2"], "need --predict"), (["--cost", "x"], "need --pre"),
                           (["--rank", "1", "--rounds"], "--rank does not go with --rounds"),
                           (["--file", "x"], "do not go with --file")]:
        done = run([bench(directory, "schedule"), "--algo", "ring", "--coll", "all_reduce",
                    "--ranks", "4"] + options, status=1)
        assert words in done.stderr, (options, done.stderr)
    placed = [bench(directory, "schedule"), "--algo", "spread", "--coll", "all_reduce", "--ranks",
              "4", "--placed", "--verify"]
    done = run(placed)
    assert done.stdout.count("# the tail: only copies") == 4, done.stdout
    assert "proved in place" in done.stdout and "out 0 -> into 1, into 2, into 3" in done.stdout
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:  # what was printed reads back
        file.write(done.stdout[:done.stdout.index("# proved")])
        file.flush()
        again = run([bench(directory, "schedule"), "--file", file.name, "--verify"])
    assert again.stdout == done.stdout, again.stdout


def limits_of(path, rings):
    """A file as `limits` writes it: rings of so many GPUs, with their ceilings."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"schema_version": 1, "bench": "limits", "rings": [
            {"gpus": gpus, "ceilings_gbytes_per_s": ceilings} for gpus, ceilings in rings]}, file)


def case_limits(directory, source):
    """`limits` measures or says that there is no GPU; --limits adds busbw's share of a ceiling."""
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
        # Without GPUs tests/bench/test_limits.c alone has seen the columns.
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
    """What `limits` left on a machine with GPUs. Returns how many are in the largest ring."""
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
    """Each row ends with busbw of its two halves as a percentage of the limit. Returns the largest
    of the first halves."""
    assert re.search(rf"^# Limit of busbw: [\d.]+ GB/s, {ceiling} of \S+$", text, re.M), text
    rows = [line.split() for line in text.split("\n") if line and line[0] != "#"]
    assert len(rows) == 4, text
    for row in rows:
        for busbw, share in ((row[7], row[-2]), (row[11], row[-1])):
            # busbw is printed with two decimals, its share with one
            expected, error = 100 * float(busbw) / limit, 0.51 / limit + 0.051
            assert abs(float(share) - expected) <= error, (row, expected)
    return max(float(row[-2]) for row in rows)


if __name__ == "__main__":
    globals()["case_" + sys.argv[1]](sys.argv[2], sys.argv[3])
    print(f"{sys.argv[1]}: ok")
