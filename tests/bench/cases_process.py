"""What a bench does as a process: signals, standard streams, memory."""

import os
import resource
import select
import signal
import subprocess
import tempfile
import time

from report_schema import has_json
from running import (SMALL, bench, clean_environment, ends_by, free_port, read_json, read_until,
                     run, start, start_ranks)


def case_interrupt(directory, _):
    """A SIGINT ends an endless table with a footer and complete files. A second SIGINT ends an
    endless size at once. Everything else ends with the first SIGINT."""
    two = [bench(directory, "allreduce"), "-g", "2", "--device", "host"]
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "out.json")
        report = ["-J", path] if has_json(directory) else []
        process = start(two + ["-N", "0"] + report + SMALL)
        text = read_until(process, "float")
        process.send_signal(signal.SIGINT)
        text += process.stdout.read()
        assert process.wait(timeout=100) == -signal.SIGINT, text
        assert "# Interrupted" in text and "# Avg bus bandwidth    : " in text, text
        if report:
            assert read_json(path)["summary"]["interrupted"] is True
    for first, second in [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT),
                          (signal.SIGINT, signal.SIGTERM)]:
        process = start(two + ["-b", "8", "-e", "8", "-n", "100000000"])
        read_until(process, "(GB/s)")  # the header's last line
        time.sleep(0.5)  # until the size is being measured
        process.send_signal(first)
        time.sleep(0.5)  # signals that come together may be handled in either order
        assert process.poll() is None, "the first signal has ended the process"
        ends_by(process, second)
    # The first signal alone ends the process a little later.
    for number in (signal.SIGINT, signal.SIGTERM):
        process = start(two + ["-b", "8", "-e", "8", "-n", "100000000"])
        read_until(process, "(GB/s)")
        ends_by(process, number)
    ends_by(start(two[:1] + ["-g", "300"] + two[3:]), signal.SIGTERM)  # while it starts
    ignoring = start(["sh", "-c", 'trap "" INT; exec "$@"', "sh"] + two + ["-N", "0"] + SMALL)
    read_until(ignoring, "float")
    ignoring.send_signal(signal.SIGINT)  # shells start jobs in the background so
    for _ in range(40):
        assert "Interrupted" not in ignoring.stdout.readline()
    ignoring.stdout.close()
    ignoring.kill()
    ignoring.wait()
    # All processes end when one gets a signal, and none reports a complete run.
    processes = [start(two[:1] + two[3:] + ["-N", "0"] + SMALL, {
        "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
        for port in [free_port()] for rank in range(2)]
    read_until(processes[0], "float")
    processes[1].send_signal(signal.SIGTERM)
    outputs = [process.communicate(timeout=30)[0] for process in processes]
    assert [process.returncode for process in processes] == [128 + signal.SIGTERM, -signal.SIGTERM]
    assert "# Interrupted" in outputs[0], outputs
    for name, options in [("tune", []), ("allreduce", ["--predict", "1"]),
                          ("allreduce", ["--accuracy", "1", "-d", "all", "-f", "2"])]:
        process = start([bench(directory, name), "-g", "2", "--device", "host", "-b", "8", "-e",
                         "4M", "-f", "16", "--rounds", "1000"] + options)
        time.sleep(0.5)  # about until it measures; a signal must end it at any time
        ends_by(process, signal.SIGINT)
    port = free_port()
    waiting = [start(two[:1] + ["--device", "host"], {
        "RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(at)})
        for rank, at in ((0, port), (2, free_port()))]
    for process, words in zip(waiting, ["rank 0 waits for ranks 1 2 to come", "rank 2 waits for rank 0 to listen"]):
        line = process.stderr.readline()
        assert words in line and ", 120 s at most" in line, line
        ends_by(process, signal.SIGTERM)


def read_dump(process, words):
    """Reads standard error until all these words have come."""
    text = ""
    while not all(word in text for word in words):
        ready = select.select([process.stderr], [], [], 30)[0]
        more = os.read(process.stderr.fileno(), 65536).decode() if ready else ""
        assert more, (words, text)
        text += more


def case_dump(directory, _):
    """SIGUSR1 prints where all ranks are, also of a run that stands still, and the run goes on."""
    two = [bench(directory, "allreduce"), "-g", "2", "--device", "host"]
    process = start(two + ["-N", "0"] + SMALL)
    read_until(process, "float")
    for _ in range(2):
        process.send_signal(signal.SIGUSR1)
        read_dump(process, ["positions of 2 ranks, as rank 0", "  rank 0 (", "  rank 1 ("])
    read_until(process, "float")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT, process.returncode
    # One of two processes is stopped in the middle of a size.
    port = free_port()
    ranks = [start([bench(directory, "allreduce"), "--device", "host", "-b", "8", "-e", "8", "-n",
                    "100000000"], {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
                                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
             for rank in range(2)]
    read_until(ranks[0], "(GB/s)")
    time.sleep(0.5)  # until the size is being measured
    ranks[1].send_signal(signal.SIGSTOP)
    ranks[0].send_signal(signal.SIGUSR1)
    read_dump(ranks[0], ["  rank 0 (", "    channel 0, worker 0, step ", " all_reduce seq ",
                         "from rank 1 over shm", "  rank 1 (", "does not answer", "chain of waits"])
    for rank in reversed(ranks):
        rank.kill()
        rank.communicate()


def case_streams(directory, _):
    """Lost output is a failure, and the number of a closed stream is not used for a socket."""
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
    # The rows fit, but about the last 147 bytes of the report do not.
    with tempfile.TemporaryDirectory() as work:
        report = os.path.join(work, "report.json")
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        if has_json(directory):
            command = [bench(directory, "allreduce")] + one + ["-J", report]
            run(command)
            most = os.path.getsize(report) - 100
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
    """The peak memory in KiB of a command that must succeed."""
    # AddressSanitizer keeps freed memory for a while.
    sanitizer = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL,
                               env={**clean_environment(), "ASAN_OPTIONS": sanitizer})
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert status == 0, (command, status)
    return usage.ru_maxrss


def case_memory(directory, _):
    """The memory of a run does not grow with -n, because long batches on host streams wait in
    between. Runs that need too much memory are refused."""
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
