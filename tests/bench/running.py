"""Helpers that start a bench as its users do, and parse its output strictly by nccl-tests'
format."""

import os
import re
import shutil
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [os.path.join(HERE, "../support"), os.path.join(HERE, "../../bench/python")]
# For the modules that import this one:
from files import read_csv, read_json, read_text, write_json, write_text
from report_runs import ephemeral_ports, free_port
from open_mpi import for_open_mpi

SKIPPED = 77
BENCHES = ["allreduce", "allgather", "alltoall", "broadcast", "gather", "reduce", "reducescatter",
           "scatter", "sendrecv"]
SMALL = ["-b", "8", "-e", "256K", "-f", "16", "-n", "2", "-w", "1"]

HEADER = [
    r"# gyre version \d+\.\d+\.\d+ gyre-headers=\d+ gyre-library=\d+",
    r"# Collective test starting: \w+",
    r"# nThread \d+ nGpus \d+ minBytes \d+ maxBytes \d+ step: \d+\((factor|bytes)\) "
    r"warmup iters: \d+ iters: \d+ agg iters: \d+ validation: \d+ graph: \d+",
    r"#",
    r"# Using devices",
]
PLACE = r"#  Rank [ \d]\d Group  0 Pid +\d+ on +\S+ device [ \d]\d \[[0-9a-f]{4}:\S+\] .+"
TITLES = [
    "#",
    "# " + " " * 10 + "  " + " " * 12 + "  " + " " * 8 + "  " + " " * 6 + "  " + " " * 6 +
    "           out-of-place                       in-place          ",
    "#       size         count      type   redop    root     time   algbw   busbw  #wrong"
    "     time   algbw   busbw  #wrong ",
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)       "
    "      (us)  (GB/s)  (GB/s)         ",
]
HALF = r"  [ \d.e+]{7}  [ \d.e+]{6}  [ \d.e+]{6}  (?:[ \d]{5}\d|  N/A)"
ROW = re.compile(r"([ \d]{12})  ([ \d]{12})  ( *\w+)  ( *\w+)  ([- \d]{6})" + HALF + HALF + "$")
FOOTER = [
    r"# Out of bounds values : (\d+) (OK|FAILED)",
    r"# Avg bus bandwidth    : [\d.e+-]+ ",
    r"#",
    r"# Collective test concluded: \w+",
    r"#",
]


def parse(text, n_ranks):
    """Returns the rows of a run. Fails on any line that does not have the exact format."""
    lines = text.split("\n")
    assert lines.pop() == "", "does not end with a newline"
    for pattern in HEADER:
        line = lines.pop(0)
        assert re.fullmatch(pattern, line), f"{line!r} is not {pattern!r}"
    for _ in range(n_ranks):
        line = lines.pop(0)
        assert re.fullmatch(PLACE, line), f"{line!r} is no device line"
    for expected in TITLES:
        line = lines.pop(0)
        assert line == expected, f"{line!r} is not {expected!r}"
    for pattern in reversed(FOOTER):
        line = lines.pop()
        assert re.fullmatch(pattern, line), f"{line!r} is not {pattern!r}"
    rows = []
    for line in lines:
        match = ROW.match(line)
        assert match, f"{line!r} is no row"
        rows.append([field.strip() for field in match.groups()] + [line])
    assert rows, "no rows"
    return rows


def clean_environment():
    drop = ("OMPI_", "PMIX_", "PMI_", "SLURM_", "NCCL_", "GYRE_", "TORCHELASTIC_")
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    return {k: v for k, v in os.environ.items() if not k.startswith(drop) and k not in names}


def run(command, status=0, environment=None, timeout=100, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout,
                          env={**clean_environment(), **(environment or {})}, **options)
    if done.returncode != status and "built without json-c" in done.stderr:
        print("skipped: the benches were built without json-c")
        sys.exit(SKIPPED)
    assert done.returncode == status, \
        f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def mpirun(n, command, **options):
    if shutil.which("mpirun") is None:
        print("no mpirun here")
        sys.exit(SKIPPED)
    return run(["mpirun", "-np", str(n), "--oversubscribe", "--bind-to", "none"] + command,
               environment={**for_open_mpi(), **options.pop("environment", {})}, **options)


def bench(directory, name):
    return os.path.join(directory, name)


def needs_mpi_build(directory):
    # a bench without MPI refuses --compare mpi with these words
    done = subprocess.run([bench(directory, "allreduce"), "--compare", "mpi", "--device", "host",
                           "-b", "8", "-e", "8"], capture_output=True, text=True,
                          env=clean_environment())
    if "built without" in done.stderr:
        print("the benches were built without MPI")
        sys.exit(SKIPPED)


def start_ranks(directory, n, port, odd=-1, options=(), environment=None,
                launcher=()):
    """Starts n ranks with torchrun's variables. The rank `odd` may get options and variables that
    the other ranks do not have."""
    ranks = []
    for rank in range(n):
        variables = {"RANK": str(rank), "WORLD_SIZE": str(n), "LOCAL_RANK": str(rank),
                     "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                     **(environment or {} if rank == odd else {})}
        ranks.append(subprocess.Popen(
            list(launcher) + [bench(directory, "allreduce"), "--device", "host"] + SMALL +
            list(options if rank == odd else ()),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**clean_environment(), **variables}))
    return ranks


def start(command, environment=None):
    """Starts a command with the default signal handlers, whatever this script inherited."""
    def take_signals():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**clean_environment(), **(environment or {})},
                            preexec_fn=take_signals)


def read_until(process, words):
    """Reads standard output up to the line that has these words. Returns what it read."""
    text = ""
    while words not in text:
        line = process.stdout.readline()
        assert line, f"it ended before {words!r}\n{text}\n{process.stderr.read()}"
        text += line
    return text


def ends_by(process, number):
    """Sends a signal and checks that this signal ends the process."""
    process.send_signal(number)
    try:
        errors = process.communicate(timeout=20)[1]
    finally:
        process.kill()
    assert process.returncode == -number, (process.args, process.returncode, errors)
