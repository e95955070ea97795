"""A job of victims: its processes, what they report, its end."""

import os
import re
import selectors
import shutil
import signal
import subprocess
import tempfile
import time

BOOTSTRAP_TIMEOUT_S = 6
# Where a silent network is to be found within 10 s, the time of set-up must not end the job before.
NETWORK_BOOTSTRAP_TIMEOUT_S = 15
LINE = re.compile(r"(\d+\.\d+) (\d+) (\w+) ?(.*)")


class Line:
    def __init__(self, time_s, word, text):
        self.time_s, self.word, self.text = time_s, word, text


class Job:
    """n ranks in one phase. transport: shm, socket, threads, or network (two hosts)."""

    def __init__(self, build, transport, n_ranks, phase, network=None, absent=(), seconds=60,
                 options=(), environment=None, rank_options=None, rank_environment=None):
        self.n_ranks, self.phase, self.transport = n_ranks, phase, transport
        self.network = network
        self.setup_s = BOOTSTRAP_TIMEOUT_S if network is None else NETWORK_BOOTSTRAP_TIMEOUT_S
        self.directory = tempfile.mkdtemp(prefix="gyre-faults-")
        self.lines = {rank: [] for rank in range(n_ranks)}
        self.processes = {}  # by the first rank that it runs
        self.rests = {}
        self.selector = selectors.DefaultSelector()
        common = [f"ranks={n_ranks}", f"directory={self.directory}", f"phase={phase}",
                  f"seconds={seconds}", *options]
        starts = [0] if transport == "threads" else range(n_ranks)
        if transport == "threads":
            common.append(f"threads={n_ranks}")
        for rank in starts:
            if rank in absent:
                continue
            self.start(build, rank, common + list((rank_options or {}).get(rank, ())),
                       {**(environment or {}), **(rank_environment or {}).get(rank, {})})

    def host(self, rank):
        return rank * 2 // self.n_ranks

    def start(self, build, rank, options, environment):
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith(("GYRE_", "NCCL_"))}
        kept.update(GYRE_BOOTSTRAP_TIMEOUT=str(self.setup_s), **environment)
        command = [os.path.join(build, "tests", "fault_victim"), f"rank={rank}", *options]
        if self.network is not None:
            kept.update(GYRE_NET="Socket", GYRE_HOSTID=f"host{self.host(rank)}")
            command = self.network.command(self.host(rank)) + command
        else:
            kept.setdefault("GYRE_SOCKET_IFNAME", "lo")
            if self.transport == "socket":
                kept["GYRE_TRANSPORT"] = "socket"
        with open(os.path.join(self.directory, f"stderr.{rank}"), "wb") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors,
                                       stdin=subprocess.DEVNULL, env=kept)
        os.set_blocking(process.stdout.fileno(), False)
        self.processes[rank] = process
        self.rests[rank] = b""
        self.selector.register(process.stdout, selectors.EVENT_READ, rank)

    def read(self, wait_s):
        """Take what the ranks have printed, for at most so long; False when all have ended."""
        if not self.selector.get_map():
            return False
        for key, _ in self.selector.select(max(0, wait_s)):
            data = key.fileobj.read()
            if data is None:
                continue
            if data == b"":
                self.selector.unregister(key.fileobj)
                continue
            whole, _, self.rests[key.data] = (self.rests[key.data] + data).rpartition(b"\n")
            for text in whole.decode(errors="replace").split("\n"):
                match = LINE.fullmatch(text)
                if match:
                    self.lines[int(match[2])].append(Line(float(match[1]), match[3], match[4]))
        return bool(self.selector.get_map())

    def wait(self, is_over, deadline_s):
        """Read until is_over() or all have ended; False at the deadline."""
        while not is_over():
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return False
            if not self.read(min(left_s, 0.05)):
                return True
        return True

    def wait_ready(self, ranks, limit_s):
        return self.wait(lambda: all(self.find(rank, "ready", "error") for rank in ranks),
                         time.monotonic() + limit_s)

    def wait_end(self, ranks, deadline_s):
        """Until every process that runs one of these ranks has ended."""
        processes = [process for rank, process in self.processes.items()
                     if self.transport == "threads" or rank in ranks]
        if not self.wait(lambda: all(process.poll() is not None for process in processes),
                         deadline_s):
            return False
        while time.monotonic() < deadline_s:
            if all(process.poll() is not None for process in processes):
                while self.read(0) and self.has_unread(ranks):
                    pass
                return True
            time.sleep(0.005)
        return False

    def has_unread(self, ranks):
        return any(key.data in ranks for key, _ in self.selector.select(0))

    def find(self, rank, *words):
        """The first such line of this rank, or None."""
        for line in self.lines[rank]:
            if line.word in words:
                return line
        return None

    def process_of(self, rank):
        return self.processes[0 if self.transport == "threads" else rank]

    def signal(self, rank, number):
        process = self.process_of(rank)
        if process.poll() is None:
            process.send_signal(number)

    def mark_dead(self):
        """Ranks that wait for an id which rank 0 will never write may stop."""
        with open(os.path.join(self.directory, "dead"), "w"):
            pass

    def stderr(self, rank):
        path = os.path.join(self.directory, f"stderr.{0 if self.transport == 'threads' else rank}")
        with open(path, errors="replace") as errors:
            return errors.read()

    def close(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
        self.selector.close()
        shutil.rmtree(self.directory, ignore_errors=True)
