# SPDX-License-Identifier: Apache-2.0
"""Runs what `gyre report` measures: benches over one transport after the other, gyre doctor, and the
DDP probe. Every run has a time limit, and a run that fails keeps the reason."""
import importlib.util
import json
import os
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.realpath(__file__))
END_SECONDS = 5  # between SIGTERM and SIGKILL
POLL_SECONDS = 0.02


class RunError(Exception):
    """Why something could not be measured. output: what the programs printed until then."""

    def __init__(self, why, output=""):
        super().__init__(why)
        self.output = output


def last_words(text):
    """The line of an output that is most likely to say why a program failed."""
    programs, launcher, is_framed = [], [], False  # Open MPI frames its messages with lines of dashes
    for line in (line.strip() for line in text.splitlines()):
        if re.fullmatch("-{40,}", line):
            is_framed = not is_framed
        elif line:
            (launcher if is_framed else programs).append(line)
    named = [line for line in programs if "error" in line.lower() or ": " in line and "INFO" not in line]
    # The first line of Open MPI's messages names the cause, and the rest is advice.
    return (named[-1:] or launcher[:1] or programs[-1:] or ["it printed nothing"])[0]


def ephemeral_ports():
    """The ports that the kernel gives to sockets which ask for no particular one."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        first, last = map(int, file.read().split())
    return range(first, last + 1)


def free_port():
    """A port on which a rank can listen later. The kernel does not give it to another program
    meanwhile, because it is no ephemeral port. Where all ports are ephemeral, it may."""
    given_away = ephemeral_ports()
    ports = [port for port in range(10000, 65536) if port not in given_away]
    for port in random.sample(ports, min(100, len(ports))) + [0]:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return probe.getsockname()[1]


def start(command, variables, output):
    return subprocess.Popen(command, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stdout=output,
                            stderr=subprocess.STDOUT, start_new_session=True)


def signal_groups(processes, number):
    for process in processes:
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # all of the group have ended


def wait_all(processes, seconds):
    """Waits until all have ended or the time is over."""
    deadline = time.monotonic() + seconds
    while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def end(processes):
    """Ends the processes that run and their children. Launchers get time to end what they started."""
    running = [process for process in processes if process.poll() is None]
    if running:
        signal_groups(running, signal.SIGTERM)
        wait_all(running, END_SECONDS)
        signal_groups(running, signal.SIGKILL)
        wait_all(running, END_SECONDS)


def words_of(output):
    """What a process wrote to its file. Its own descriptor shares the position, so this one is not moved."""
    return os.pread(output.fileno(), os.fstat(output.fileno()).st_size, 0).decode(errors="replace")


def finish(commands, seconds, accepts_failure=False):
    """Starts each of the pairs (command, variables) and waits for all, for `seconds` together. Ends them
    all at the first that fails, or when the time is over. Returns what they printed."""
    processes, outputs = [], []

    def printed():
        return "".join(map(words_of, outputs))

    try:
        for command, variables in commands:
            # A file, because a process would wait for ever at a full pipe that nobody reads.
            outputs.append(tempfile.TemporaryFile())
            processes.append(start(command, variables, outputs[-1]))
        deadline = time.monotonic() + seconds
        while True:
            statuses = [process.poll() for process in processes]
            for status, output in zip(statuses, outputs):
                if status and not accepts_failure:
                    raise RunError(f"exit status {status}: {last_words(words_of(output))}", printed())
            if None not in statuses:
                return printed()
            if time.monotonic() >= deadline:
                raise RunError(f"it took longer than {seconds:g} seconds; --seconds allows more", printed())
            time.sleep(POLL_SECONDS)
    finally:
        end(processes)
        for output in outputs:
            output.close()


def launch_words(options, hosts=None):
    """The words of --launch, for these hosts of --scale (default: all)."""
    hosts = hosts or (options.scale.split(",") if options.scale else [])
    values = {"{hosts}": ",".join(hosts), "{n}": str(len(hosts)), "{ranks}": str(len(hosts) * options.ranks)}
    return [re.sub(r"\{(hosts|n|ranks)\}", lambda found: values[found.group()], word)
            for word in shlex.split(options.launch)]


def run_ranks(command, variables, options, hosts=None):
    """Runs the command as one process for each rank, or as --launch starts it. Returns what it
    printed; RunError if it failed."""
    try:
        if options.launch:
            words = [f"{name}={value}" for name, value in variables.items()]
            return finish([([*launch_words(options, hosts), "env", *words, *command], {})], options.seconds)
        job = {"WORLD_SIZE": str(options.ranks), "LOCAL_WORLD_SIZE": str(options.ranks),
               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        return finish([(command, {**variables, **job, "RANK": str(rank), "LOCAL_RANK": str(rank)})
                       for rank in range(options.ranks)], options.seconds)
    except (OSError, ValueError) as error:
        raise RunError(str(error)) from error


def transport_variables(transport):
    """ib-host: RDMA from host memory, because GPUs and adapters are never near enough for GPUDirect."""
    if transport == "default":
        return {}
    return {"GYRE_TRANSPORT": "ib", "GYRE_NET_GDR_LEVEL": "LOC"} if transport == "ib-host" else \
        {"GYRE_TRANSPORT": transport}


def shown_command(command, transport, options, hosts=None):
    """The words that a reader would start, without folders."""
    words = [f"{name}={value}" for name, value in transport_variables(transport).items()]
    if options.launch:
        words = [*launch_words(options, hosts), *(["env"] if words else []), *words]
    return shlex.join([*words, os.path.basename(command[0]), *command[1:]])


def run_bench(tools, transport, options, hosts=None):
    """An all-reduce over one transport ("default": gyre chooses). Returns (report, log, command)."""
    # To 1 GiB on a network and on GPUs. In the memory of one host that would take minutes.
    is_fast = options.launch or os.path.exists("/dev/nvidiactl")
    first, last = (options.sizes or ("1K:1G" if is_fast else "1K:16M")).split(":")
    variables = {"GYRE_DEBUG": "INFO", "GYRE_DEBUG_SUBSYS": "INIT,NET,P2P,SHM", **transport_variables(transport)}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.json")
        command = [os.path.join(tools, "allreduce"), "-b", first, "-e", last, "-f", "4", *shlex.split(options.bench)]
        # Direct addressing without GPUs is for threads of one process.
        is_one_process = transport == "p2p" and not options.launch
        if is_one_process:
            command += ["-g", str(options.ranks)]
        command += ["--json", path]
        log = finish([(command, variables)], options.seconds) if is_one_process else \
            run_ranks(command, variables, options, hosts)
        try:
            with open(path, encoding="utf-8") as file:
                return json.load(file), log, shown_command(command[:-2], transport, options, hosts)
        except (OSError, ValueError) as error:
            raise RunError(f"the bench left no report on this machine: {error}") from error


def run_doctor(tools, options):
    """The JSON value of gyre doctor, of all ranks of --launch."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "doctor.json")
        log = ""
        try:
            # Its exit status is the severity of what it found.
            command = [*launch_words(options), os.path.join(tools, "gyre"), "doctor", "--json", path]
            log = finish([(command, {})], options.seconds, accepts_failure=True)
            with open(path, encoding="utf-8") as file:
                return json.load(file)
        except RunError as error:
            raise RunError(f"gyre doctor: {error}") from error
        except FileNotFoundError as error:
            raise RunError(f"gyre doctor left no report: {last_words(log) if log else error}") from error
        except (OSError, ValueError) as error:
            raise RunError(f"gyre doctor's report cannot be read: {error}") from error


def run_env(tools, options):
    """What gyre doctor --emit-env prints on this machine."""
    try:
        return finish([([os.path.join(tools, "gyre"), "doctor", "--emit-env"], {})], options.seconds,
                      accepts_failure=True)
    except OSError as error:
        raise RunError(str(error)) from error


def run_ddp(tools, options):
    """DDP iteration times: {engine: milliseconds or the reason why there is none}."""
    if importlib.util.find_spec("torch") is None:
        raise RunError(f"PyTorch is not installed for {sys.executable}")
    probe = [sys.executable, "-B", os.path.join(HERE, "ddp_probe.py")]
    found = {}
    for engine, words in (("gloo", [*probe, "gloo"]), ("NCCL", [*probe, "nccl"]),
                          ("gyre", [os.path.join(tools, "gyre"), "run", "--", *probe, "nccl"])):
        try:
            # Under --launch the probe takes its rank from the launcher's variables; rank 0 runs here.
            address = {"MASTER_ADDR": socket.gethostname(), "MASTER_PORT": str(free_port())} if options.launch else {}
            output = run_ranks(words, address, options)
            lines = [line for line in output.splitlines() if line.startswith("ddp_iteration_ms ")]
            found[engine] = float(lines[-1].split()[1])
        except (RunError, IndexError, ValueError) as error:
            found[engine] = str(error)
    return found
