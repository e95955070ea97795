"""THE table of fault kinds: how each is injected, where, and what must come of it.

outcome of a kind:
  error     every living rank comes to an error within bound_s, and the error names the right rank
  recovers  no rank comes to an error: the job goes on with right values and ends well
  clean     either of the two; the rank whose calls fail need not be named by itself
"""

import signal
import socket
import threading
import time
from dataclasses import dataclass, field

import job
import network

MOVING = ("data", "group", "split", "shrink", "window", "idle")  # one communicator for all rounds
MAKING = ("init", "destroy")                                      # a communicator a round
LASTING = ("data", "group", "window", "idle")                    # connections that stay, too
ALL = MOVING + MAKING
LOCAL = ("shm", "socket")


@dataclass
class Kind:
    name: str
    what: str
    act: object                # called at the random moment with the Fault
    outcome: str
    bound_s: float = 3.0
    transports: tuple = LOCAL
    phases: tuple = ALL
    weight: int = 2            # how often, of all that are drawn
    run_s: float = 60.0        # a job that is to fail runs until it does
    prepare: object = None     # what the Job is made with
    names: str = "victim"      # or "other host", whose ranks are cut off, or the ends of a "flow"
    victim_lives: bool = False # the victim need not end
    injects: str = ""          # needs tests/faults/inject.c, with this class of calls
    settings: dict = field(default_factory=dict)


# ---- processes ---------------------------------------------------------------------------------


def kill(fault):
    fault.began_s = time.monotonic()
    fault.job.signal(fault.victim, signal.SIGKILL)


def terminate(fault):
    fault.began_s = time.monotonic()
    fault.job.signal(fault.victim, signal.SIGTERM)


def kill_two(fault):
    fault.began_s = time.monotonic()
    for rank in fault.victims:
        fault.job.signal(rank, signal.SIGKILL)


def abort(fault):
    fault.began_s = time.monotonic()
    fault.job.signal(fault.victim, signal.SIGUSR1)


def stop_and_continue(fault):
    fault.began_s = time.monotonic()
    fault.job.signal(fault.victim, signal.SIGSTOP)
    fault.pause(fault.random.uniform(0.3, 3.0))
    fault.job.signal(fault.victim, signal.SIGCONT)


def stop_for_long(fault):
    """Longer than the bound after which a silent network is an error."""
    fault.began_s = time.monotonic()
    fault.job.signal(fault.victim, signal.SIGSTOP)
    fault.pause(14)
    fault.job.signal(fault.victim, signal.SIGCONT)


def stop_for_ever(fault):
    fault.began_s = time.monotonic()
    fault.job.signal(fault.victim, signal.SIGSTOP)


def never_start(fault):
    return {"absent": (fault.victim,)}


def shrink_after(fault):
    return {"options": (f"dead={fault.victim}",)}


def nothing(fault):
    fault.began_s = fault.job_began_s


# ---- the network -------------------------------------------------------------------------------


def wire_dead(fault):
    fault.began_s = time.monotonic()
    fault.network.tell("loss 2 100")


def one_way(fault):
    fault.began_s = time.monotonic()
    fault.network.tell(f"loss {fault.random.randrange(2)} 100")


def short_outage(fault):
    fault.began_s = time.monotonic()
    fault.network.tell("loss 2 100")
    fault.pause(fault.random.uniform(0.5, 2.0))
    fault.network.tell("loss 2 0")


def data_flow(fault):
    fault.lose_flow(0)


def control_flow(fault):
    fault.lose_flow(1)


def interface_down(fault):
    fault.began_s = time.monotonic()
    network.ip("-n", fault.network.names[fault.job.host(fault.victim)], "link", "set",
               network.DEVICE, "down")


def address_lost(fault):
    fault.began_s = time.monotonic()
    network.ip("-n", fault.network.names[fault.job.host(fault.victim)], "addr", "flush", "dev",
               network.DEVICE)


def bad_wire(fault):
    """Loss up to 3 %, corruption and duplicates up to 1 %, a delay up to 5 ms."""
    fault.began_s = time.monotonic()
    fault.network.tell(f"loss 2 {fault.random.uniform(0, 3):.2f}")
    fault.network.tell(f"corrupt 2 {fault.random.uniform(0, 1):.2f}")
    fault.network.tell(f"duplicate 2 {fault.random.uniform(0, 1):.2f}")
    fault.network.tell(f"delay {fault.random.uniform(0, 5000):.0f}")


# ---- calls that fail ---------------------------------------------------------------------------


def failing_calls(fault):
    """The n-th call of the class fails in the victim; n is anywhere in what a run makes."""
    of_class = fault.kind.injects
    counted = fault.campaign.count_calls(fault.transport, fault.n_ranks, fault.phase, of_class)
    # As many at the beginning as at the end: most calls of set-up are among the first.
    first = round(counted ** fault.random.random())
    n_failing = fault.random.choice((1, 1, 1, 4))
    fault.can_tell = n_failing == 1
    return {"rank_environment": {fault.victim: fault.campaign.injection(
        f"{of_class} {first} {n_failing}")}}


def interrupted_calls(fault):
    every = fault.random.choice((2, 3, 7, 50))
    return {"environment": fault.campaign.injection(f"interrupt {every} 0")}


def signal_storm(fault):
    return {"options": ("storm=1",)}


def few_descriptors(fault):
    fault.can_tell = False  # without a socket
    return {"rank_options": {fault.victim: (f"descriptors={fault.random.randrange(6, 60)}",)}}


# ---- strangers ---------------------------------------------------------------------------------

STRANGERS_A_PORT = 64


class Strangers(threading.Thread):
    """Sit silently on every port that the job listens on, as soon as it does."""

    def __init__(self, the_job):
        super().__init__(daemon=True)
        self.job, self.ends, self.known, self.sockets = the_job, threading.Event(), set(), []

    def listening_ports(self):
        pids = [process.pid for process in self.job.processes.values()]
        inodes = set().union(*map(network.sockets_of, pids))
        return {row[1] for row in network.tcp_rows("self") if row[4] == 10 and row[5] in inodes}

    def run(self):
        while not self.ends.wait(0.01) and len(self.sockets) < 800:
            for port in self.listening_ports() - self.known:
                self.known.add(port)
                for _ in range(STRANGERS_A_PORT):
                    stranger = socket.socket()
                    stranger.setblocking(False)
                    stranger.connect_ex(("127.0.0.1", port))
                    self.sockets.append(stranger)

    def close(self):
        self.ends.set()
        self.join()
        for stranger in self.sockets:
            stranger.close()


def strangers(fault):
    fault.began_s = time.monotonic()
    fault.strangers = Strangers(fault.job)
    fault.strangers.start()


TIMEOUT_MS = 1500
SETUP_S = job.BOOTSTRAP_TIMEOUT_S


KINDS = [
    Kind("kill", "SIGKILL to one rank", kill, "error", weight=8),
    Kind("terminate", "SIGTERM to one rank, which has no handler", terminate, "error"),
    Kind("kill two", "SIGKILL to two ranks at once", kill_two, "error"),
    Kind("kill and shrink", "SIGKILL to one rank; the others go on without it", kill, "error",
         phases=("data", "group", "split", "window", "idle"), prepare=shrink_after),
    Kind("never started", "one rank of the job is never started", nothing, "error",
         bound_s=SETUP_S + 2, phases=("init",), prepare=never_start, weight=1),
    Kind("abort", "one rank calls gyre_comm_abort()", abort, "error",
         phases=("data", "group", "split", "window", "idle")),
    Kind("stop, continue", "SIGSTOP to one rank, SIGCONT 0.3 to 3 s later", stop_and_continue,
         "recovers", run_s=1.5, weight=3),
    Kind("long stop", "SIGSTOP to one rank, SIGCONT 14 s later", stop_for_long, "recovers",
         phases=("data", "group", "idle"), transports=LOCAL + ("network",), run_s=1.5, weight=1),
    Kind("frozen", f"SIGSTOP for ever, GYRE_TIMEOUT={TIMEOUT_MS}", stop_for_ever, "error",
         bound_s=TIMEOUT_MS / 1000 + 3, phases=("data", "group", "idle"), victim_lives=True,
         settings={"GYRE_TIMEOUT": str(TIMEOUT_MS)}),
    Kind("frozen in set-up", f"SIGSTOP for ever, GYRE_BOOTSTRAP_TIMEOUT={SETUP_S}", stop_for_ever,
         "error", bound_s=2 * SETUP_S + 3, phases=("init", "split", "shrink", "window", "destroy"),
         victim_lives=True, settings={"GYRE_TIMEOUT": str(TIMEOUT_MS)}, weight=1),
    Kind("wire dead", "no packet passes any more", wire_dead, "error", bound_s=10,
         transports=("network",), names="other host"),
    Kind("one-way loss", "no packet passes in one direction", one_way, "error", bound_s=10,
         transports=("network",), names="other host"),
    Kind("short outage", "no packet passes for 0.5 to 2 s", short_outage, "recovers", run_s=1.5,
         transports=("network",)),
    Kind("data flow lost", "packets of one TCP connection for data are lost", data_flow, "error",
         bound_s=10, transports=("network",), phases=LASTING, names="flow"),
    Kind("control flow lost", "packets of a rank's connection to the rendezvous are lost",
         control_flow, "error", bound_s=10, transports=("network",), phases=LASTING,
         names="flow"),
    Kind("interface down", "ip link set eth0 down on one host", interface_down, "error", bound_s=10,
         transports=("network",), names="other host"),
    Kind("address lost", "the only address of one host is removed", address_lost, "error",
         bound_s=10, transports=("network",), names="other host"),
    Kind("bad wire", "loss, corruption, duplicates and delay", bad_wire, "recovers", run_s=1.5,
         transports=("network",)),
    Kind("memory", "the n-th malloc of the library fails in one rank", nothing, "clean",
         transports=LOCAL + ("threads",), prepare=failing_calls, injects="memory", run_s=0.2,
         weight=6),
    Kind("map", "the n-th mmap, memfd_create or pthread_create fails in one rank", nothing,
         "clean", transports=LOCAL + ("threads",), prepare=failing_calls, injects="map", run_s=0.2),
    Kind("descriptor", "the n-th call that makes a descriptor fails with EMFILE", nothing, "clean",
         transports=LOCAL, prepare=failing_calls, injects="descriptor", run_s=0.2),
    Kind("few descriptors", "one rank may have 6 to 59 descriptors", nothing, "clean",
         prepare=few_descriptors, run_s=0.2),
    Kind("interrupted calls", "each 2nd to 50th call that may wait returns EINTR", nothing,
         "recovers", prepare=interrupted_calls, injects="interrupt", run_s=0.5, weight=1),
    Kind("signal storm", "a signal handler runs 2000 times a second", nothing, "recovers",
         prepare=signal_storm, run_s=0.5, weight=1),
    Kind("strangers", f"{STRANGERS_A_PORT} silent connections to each listening port", strangers,
         "recovers", phases=("init", "split", "shrink", "destroy"), run_s=1.0),
]
BY_NAME = {kind.name: kind for kind in KINDS}
