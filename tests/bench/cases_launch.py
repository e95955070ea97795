"""How the ranks of a bench are started: by mpirun, as threads of one process, with torchrun's
variables, and by launchers that a bench cannot join."""

import os
import re
import socket
import tempfile
import threading
import time

from report_schema import has_json
from running import (BENCHES, SMALL, bench, free_port, mpirun, needs_mpi_build, parse, read_json,
                     run, start, start_ranks)


def case_mpi(directory, _):
    needs_mpi_build(directory)
    for name in BENCHES:
        for n in (2, 3, 4):
            done = mpirun(n, [bench(directory, name), "--device", "host"] + SMALL)
            rows = parse(done.stdout, n)
            assert len(rows) == 4, rows
            blocks = name in ("allgather", "alltoall", "gather", "reducescatter", "scatter")
            for size, row in zip((8, 128, 2048, 32768), rows):
                expected = size // 4 // n // 4 * 4 * n * 4 if blocks else size
                assert int(row[0]) == expected, row
                assert row[2] == "float", row
                assert row[3] == ("sum" if "reduce" in name else "none"), row
                rooted = name in ("broadcast", "gather", "reduce", "scatter")
                assert row[4] == ("0" if rooted else "-1"), row
                assert row[-1].endswith("N/A") == (name == "sendrecv"), row
    if has_json(directory):
        check_plan_of_sends(directory)


def check_plan_of_sends(directory):
    """The report says how a message goes to the next rank: over sockets, in four channels."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.json")
        mpirun(2, ["sh", "-c", "GYRE_HOSTID=h$OMPI_COMM_WORLD_RANK exec \"$@\"", "sh",
                   bench(directory, "sendrecv"), "--device", "host", "-b", "1M", "-e", "1M", "-n", "2", "-J", path])
        row, = read_json(path)["results"]
    assert row["channels"] == 4 and "Socket" in row["transports"], row


def case_threads(directory, _):
    for name in BENCHES:
        done = run([bench(directory, name), "-g", "4", "--device", "host"] + SMALL)
        parse(done.stdout, 4)
    # columns of --host-time stand behind those of nccl-tests; an enqueue is a part of a call
    done = run([bench(directory, "gather"), "-g", "2", "--device", "host", "--host-time", "1",
                "--nccl-mode", "default"] + SMALL)
    for line in [line for line in done.stdout.split("\n") if line and line[0] != "#"]:
        out_of_place, in_place = (float(field) for field in line.split()[-2:])
        assert out_of_place > 0 and in_place > 0 and len(line.split()) == 15, line
    rows = parse(run([bench(directory, "allreduce"), "-t", "2", "-g", "2", "--device", "host", "-d",
                      "all", "-o", "all", "-u", "1", "-b", "96", "-e", "96", "-n", "1"]).stdout, 4)
    assert len(rows) == 12 * 5, len(rows)
    rows = parse(run([bench(directory, "broadcast"), "-g", "3", "--device", "host", "-r", "all",
                      "-b", "1K", "-e", "2K", "-i", "512", "-m", "3", "-a", "3"]).stdout, 3)
    assert [(r[0], r[4]) for r in rows] == [(str(s), str(root)) for root in range(3)
                                            for s in (1024, 1536, 2048)], rows
    # a time is that of one call of -n x -m, which together are a part of the run
    began = time.monotonic()
    row, = parse(run([bench(directory, "allreduce"), "-g", "2", "--device", "host", "-b", "256K", "-e", "256K", "-n", "2",
                      "-m", "100"]).stdout, 2)
    assert 0 < float(row[-1].split()[5]) * 200 < (time.monotonic() - began) * 1e6, row


def case_torchrun(directory, _):
    """Other programs connect to the port: silent ones, ones that send garbage, and one that stops in
    the middle of a hello. The ranks find each other all the same."""
    port = free_port()
    stop = threading.Event()

    def disturb():
        held = []
        words = [b"", b"GET / HTTP/1.1\r\n\r\n" * 4, b"gyre meets 0001\0" + b"\1\0\0\0\7\0\0\0"]
        while not stop.is_set():
            for word in words:
                try:
                    stranger = socket.create_connection(("127.0.0.1", port), timeout=1)
                    stranger.sendall(word)
                    held = held[-8:] + [stranger]
                except OSError:
                    stop.wait(0.01)

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        ranks = start_ranks(directory, 3, port)
        outputs = [rank.communicate(timeout=100) for rank in ranks]
    finally:
        stop.set()
        disturber.join()
    for rank, output in zip(ranks, outputs):
        assert rank.returncode == 0, output
    parse(outputs[0][0], 3)
    assert outputs[1][0] == "" and outputs[2][0] == "", outputs


def case_refusal(directory, _):
    """If one rank cannot start, all ranks learn the reason at once, before they wait for each
    other."""
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
    """If an option differs between processes, all of them end with the option and its values."""
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
    ranks = start_ranks(directory, 2, free_port(), 0, ["-S", "1"])  # only rank 0 reads it
    for rank in ranks:
        errors = rank.communicate(timeout=100)[1]
        assert rank.returncode == 0, errors
    needs_mpi_build(directory)
    # The ranks choose their options in a shell: mpirun of Debian 13 (5.0.7) crashes of two programs and ":".
    choose = 'case $OMPI_COMM_WORLD_RANK in 0) exec "$0" -e 1K "$@";; esac; exec "$0" ODD "$@"'
    for odd in ("-e 1M", "-e 1K -n 3", "-e 1K -g 2"):
        done = mpirun(2, ["sh", "-c", choose.replace("ODD", odd), bench(directory, "allreduce"), "--device", "host",
                          "-b", "1K"], status=1, timeout=30)
        assert ", 1 has " in done.stderr and "all need the same" in done.stderr, done.stderr


def case_launchers(directory, _):
    """A process that was started as one of many and cannot join the others refuses to run, with a
    remedy. Two steps of one job that run side by side do not meet."""
    one = [bench(directory, "allreduce"), "-b", "8", "-e", "8", "-n", "1", "--device", "host"]
    address = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
    for variables, words in [
            ({"PMI_SIZE": "4"}, "lonely copy"),
            ({"PMIX_RANK": "0"}, "unset PMIX_RANK"),
            ({"GLOO_RANK": "0", "GLOO_SIZE": "2"}, "GLOO_SIZE=2 and GLOO_RANK=0"),
            ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}, "MASTER_PORT"),
            ({"RANK": "2", "WORLD_SIZE": "2", **address}, "RANK=2"),
            ({"RANK": "0", "WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3", **address},
             "RANK=0 WORLD_SIZE=2, OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=3"),
            ({"RANK": "0", "WORLD_SIZE": "2", "GYRE_BOOTSTRAP_TIMEOUT": "1", **address}, "ranks 1 never came"),
            ({"RANK": "1", "WORLD_SIZE": "2", "GYRE_BOOTSTRAP_TIMEOUT": "1", **address}, "within 1 s"),
            ({"GYRE_NO_SUCH_THING": "1"}, "GYRE_NO_SUCH_THING")]:
        done = run(one, status=1, environment=variables)
        assert words in done.stderr, (variables, done.stderr)
        assert done.stdout == "", done.stdout
    steps = [[start(one, {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": str(step), "SLURM_PROCID": str(rank),
                          "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "1"}) for rank in range(2)]
             for step in range(2)]
    for step in steps:
        texts = [rank.communicate(timeout=60) for rank in step]
        assert [rank.returncode for rank in step] == [0, 0], texts
        pids = sorted(line.split("Pid")[1].split()[0] for line in texts[0][0].splitlines() if line.startswith("#  Rank"))
        assert pids == sorted(str(rank.pid) for rank in step), (pids, texts)


def run_hosts(directory, environment, of_last=None, ranks_a_host=2):
    """Four ranks as two hosts of two ranks, or as more hosts. Returns (status, log) of each. The
    last rank may get variables that the other ranks do not have."""
    port = str(free_port())
    ranks = []
    for rank in range(4):
        variables = {"RANK": str(rank), "WORLD_SIZE": "4", "LOCAL_RANK": str(rank % ranks_a_host),
                     "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                     "GYRE_HOSTID": f"host{rank // ranks_a_host}", "GYRE_DEBUG": "INFO",
                     "GYRE_DEBUG_SUBSYS": "TUNING", **environment,
                     **(of_last or {} if rank == 3 else {})}
        ranks.append(start([bench(directory, "allreduce"), "--device", "host", "-b", "1K", "-e",
                            "256K", "-f", "16", "-n", "2", "-w", "1"], variables))
    try:
        errors = [rank.communicate(timeout=60) for rank in ranks]
        return [(rank.returncode, "".join(error)) for rank, error in zip(ranks, errors)]
    finally:
        for rank in ranks:
            rank.kill()


def case_network(directory, _):
    """The rate and the latency of the network are measured or given, and all ranks plan alike."""
    choice = re.compile(r"all_reduce (\d+) B: (.*), predicted ([\d.]+) us")
    done = run_hosts(directory, {})
    assert all(status == 0 for status, _ in done), done
    assert re.search(r"network: (a latency of [1-9]\d* ns; round trips took [1-9]\d* ns|the latency "
                     r"was not measured)", done[0][1]), done[0][1]
    rate = (r"network: NICs (of [1-9]\d* Mbit/s; data arrived at [1-9]\d* Mbit/s|tell no rate, and data "
            r"arrived as fast as one thread copies \([1-9]\d* Mbit/s|tell no rate and none was measured|"
            r"of [1-9]\d* Mbit/s, the rate of \S+ of rank \d+, which is slowest)")
    assert re.search(rate, done[0][1]), done[0][1]
    plans = [set(choice.findall(log)) for _, log in done]
    assert len(plans[0]) == 3 and all(plan == plans[0] for plan in plans), plans
    done = run_hosts(directory, {}, ranks_a_host=1)  # each host measures with two others
    assert all(status == 0 for status, _ in done), done
    assert re.search(rate, done[0][1]), done[0][1]
    assert len({tuple(choice.findall(log)) for _, log in done}) == 1, done
    done = run_hosts(directory, {"GYRE_NET_RATE": "200", "GYRE_NET_LATENCY": "5000000"})
    assert all(status == 0 for status, _ in done), done
    assert "network: NICs of 200 Mbit/s, by GYRE_NET_RATE" in done[0][1], done[0][1]
    assert "network: a latency of 5000000 ns, by GYRE_NET_LATENCY" in done[0][1], done[0][1]
    predicted = [float(us) for _, _, us in choice.findall(done[0][1])]
    assert len(predicted) >= 3 and min(predicted) > 5000, predicted  # a hop takes 5 ms
    done = run_hosts(directory, {}, {"GYRE_NET_RATE": "200"})
    for status, log in done:
        assert status != 0 and "GYRE_NET_RATE differs" in log, log
