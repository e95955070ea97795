"""Healthy machines, and machines with one known cause of trouble each."""

from dataclasses import dataclass, field
from typing import Callable

import machines
from machines import limits


@dataclass
class Cause:
    """A machine with one thing wrong, and what `gyre doctor` must say about it."""
    machine: Callable
    check: str
    severity: str
    words: str
    also: tuple = ()  # checks that rightly complain about the same thing
    variables: dict = field(default_factory=dict)


HEALTHY = {
    "roce_server": machines.roce_server,
    "gpu_server": machines.gpu_server,
}


def roce(**changes):
    """A RoCE server with other files: __ stands for /."""
    return lambda: {**machines.roce_server(), **changes}


def changed(make, changes):
    def build():
        machine = make()
        for path, content in changes.items():
            machine[path] = content
        return machine
    return build


CAUSES = {
    "memlock_8_mib": Cause(changed(machines.roce_server, {"proc/self/limits": limits("8388608")}),
                           "host.memlock", "fail", "8388608 bytes"),
    "open_files": Cause(changed(machines.roce_server, {"proc/self/limits": limits(nofile="60")}),
                        "host.nofile", "fail", "Max open files 60"),
    "shm_64_mib": Cause(
        changed(machines.roce_server,
                {"proc/mounts": "shm /dev/shm tmpfs rw,nosuid,size=65536k 0 0"}),
        "host.shm", "warn", "64 MiB"),
}

# Files without which a check cannot say that all is well.
DECISIVE = {
    "proc/self/limits": "host.memlock",
    "proc/mounts": "host.shm",
}
