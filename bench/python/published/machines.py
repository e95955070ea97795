# SPDX-License-Identifier: Apache-2.0
"""Machine files (docs/published.md): one text file describes a machine, in the words of --fabric and --cost.

    name TEXT             the tables' name of the machine begins with TEXT; several lines are allowed
    gpu CHIP NAME         CHIP is NCCL's word (hopper); a table's GPU that begins with NAME and has no machine of its
                          own is taken for one of this class
    library WORD          nccl, rccl, mpi or oneshot; whose rows the file is for
    like FILE             what the file does not say is as in FILE.machine
    inside switch [reduces] | mesh, cpu amd | intel | grace, nics behind cpu, algorithm WORD
    hosts N gpus N nics N rate X, and every other line of docs/fabric.md
    KEY = NUMBER          a constant of docs/tuning.md

A comment `fitted on COLL HOSTSxGPUS BYTES LIBRARY` behind a line names the measured row that its number is fitted to.
"""
import copy
import math
import os
import re

WORDS = ("gpu", "library", "like", "inside", "cpu", "nics", "algorithm", "hosts")
SHAPES = ("torus", "dragonfly", "leaves")  # a file that has one inherits nothing of another but latencies
FABRIC = ("leaves", "spines", "wiring", "attach", "uplinks", "latency", "route", "link", "torus", "dragonfly", "wire")
LIBRARIES = {"nccl": "nccl", "rccl": "rccl", "sglang": "oneshot", "vllm": "oneshot", "tensorrt": "oneshot",
             "trt": "oneshot", "msccl": "oneshot", "mpi": "mpi", "ompi": "mpi", "mpich": "mpi", "mlsl": "mpi"}
# GB/s of one link of NVLink or xGMI as NCCL and RCCL count it, times links: src/graph/topo.h of both.
CHIPS = {"volta": 120, "ampere": 240, "hopper": 370.8, "blackwell": 721.8, "cdna3": 336, "none": 0}
STEP_NS = 1068  # simple_step_ns of H200 (algorithms/simulate/cost.c)
FITTED = re.compile(r"#\s*fitted on (\w+) (\d+)x(\d+) (\d+) (.+?)\s*$")


class MachineError(Exception):
    """What is wrong with a machine file, or with the choice of one."""


def library_of(text):
    """The simulator's word for a table's library, or None."""
    text = text.lower()
    return next((word for part, word in LIBRARIES.items() if part in text), None)


class Machine:
    """@names: of tables. @own: what its file says; @words, @constants, @fabric: with what it inherits.
    @fits: key -> (collective, hosts, GPUs a host, bytes, library). "rate" is the NICs' rate.
    @clock: how much longer a step of a multiprocessor takes than on H200."""

    def __init__(self, path, base=None):
        self.path, self.base = path, base
        self.names, self.fits, self.is_mixed, self.clock = [], {}, False, 1
        self.words = dict(base.words) if base else {}
        self.constants = dict(base.constants) if base else {}
        self.fabric = list(base.fabric) if base else []

    @property
    def short(self):
        return os.path.basename(self.path).rsplit(".", 1)[0]

    def take(self, number, line):
        text, fitted = line.split("#", 1)[0].strip(), FITTED.search(line)
        key, _, rest = text.partition(" ")
        if not text:
            return
        if "=" in text:
            key, _, value = (part.strip() for part in text.partition("="))
            try:
                self.constants[key] = float(value)
            except ValueError:
                raise MachineError(f"{self.path}: line {number}: {key} = {value}: not a number") from None
        elif key == "name":
            self.names.append(rest.strip())
        elif key == "hosts":
            found = re.fullmatch(r"(\d+) gpus (\d+) nics (\d+) rate ([0-9.]+)", rest.strip())
            if found is None:
                raise MachineError(f"{self.path}: line {number}: expected: hosts N gpus N nics N rate X")
            self.words |= dict(zip(("hosts", "gpus", "nics"), map(int, found.groups()[:3])))
            self.constants["nic_bytes_per_ns"], key = float(found[4]), "nic_bytes_per_ns"
        elif key == "nics":
            if rest.split() != ["behind", "cpu"]:
                raise MachineError(f"{self.path}: line {number}: expected: nics behind cpu")
            self.words["far_nics"] = 1
        elif key in WORDS:
            self.words[key] = rest.strip()
        elif key in FABRIC:
            self.fabric = [old for old in self.fabric if old.split()[0] != key or key in ("link", "torus")] + [text]
        else:
            raise MachineError(f"{self.path}: line {number}: \"{key}\" is none of: name {' '.join(WORDS + FABRIC)}, "
                               "and no constant (KEY = NUMBER)")
        if fitted:
            self.fits[key] = (fitted[1], int(fitted[2]), int(fitted[3]), int(fitted[4]), fitted[5])

    def fit_of(self, key):
        """The machine, of this one and those that it is like, whose file has a key."""
        return self if key in self.fits or self.base is None else self.base.fit_of(key)

    def gpus(self):
        """What a table may call the GPU, if this file is the one of its class."""
        mine = self.words.get("gpu") != (self.base.words.get("gpu") if self.base else None)
        return self.words["gpu"].split()[1:] if mine else []

    def dimensions(self, n_hosts):
        """Of the torus of so many hosts; empty if there is none."""
        sizes = [[int(word) for word in line.split()[1:] if word.isdigit()] for line in self.fabric
                 if line.startswith("torus ")]
        return next((tuple(size) for size in sizes if math.prod(size) == n_hosts), ())

    def wire_ns(self, n_hosts):
        """Of the links between two hosts."""
        found = re.search(r"latency nic ([0-9.]+) uplink ([0-9.]+)", "\n".join(self.fabric))
        group = re.search(r"(?:groups|leaves) of (\d+) hosts", "\n".join(self.fabric))
        far = 2 if group is None or n_hosts > int(group[1]) else 0
        return 2 * float(found[1]) + far * float(found[2]) if found else 0

    def chip(self):
        return self.words.get("gpu", "none").split()[0]


def read_machine(path, folder, depth=0):
    """Errors: MachineError, with the line."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError as error:
        raise MachineError(f"{path}: {error.strerror}") from None
    like = next((line.split()[1] for line in lines if line.startswith("like ")), None)
    if depth > 4:
        raise MachineError(f"{path}: the files named by \"like\" are a circle")
    base = read_machine(os.path.join(folder, f"{like}.machine"), folder, depth + 1) if like else None
    machine = Machine(path, base)
    if any(line.startswith(SHAPES) for line in lines):
        machine.fabric = [line for line in machine.fabric if line.startswith("latency")]
    for number, line in enumerate(lines, 1):
        machine.take(number, line)
    return machine


def read_machines(folder, more=()):
    """All machine files; those of @more come first."""
    paths = list(more) + sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".machine"))
    return [read_machine(path, folder) for path in paths]


def find_machine(machines, row):
    """(machine, how it was found: "named" or "class") of a table's row, else a MachineError that says what is missing."""
    library = library_of(row["library"])
    if library is None:
        raise MachineError(f"library \"{row['library']}\" is not simulated (nccl, rccl, MPI, SGLang, vLLM, "
                           "TensorRT-LLM and MSCCL++ are)")
    mine = [machine for machine in machines if machine.words.get("library") == library]
    named = [(len(name), machine) for machine in mine for name in machine.names
             if row["machine"].lower().startswith(name.lower())]
    if named:
        return max(named, key=lambda pair: pair[0])[1], "named"
    alike = [(machine in mine, len(name), machine) for machine in machines for name in machine.gpus()
             if name.lower() in row["gpu"].lower()]
    if alike:
        machine = max(alike, key=lambda found: found[:2])[2]
        if machine in mine or not mine:
            return machine, "class"
        other = copy.copy(mine[0])  # kernels of engines are described for one GPU; others have their links and clocks
        other.words, other.is_mixed = machine.words | {"library": library}, True
        mine, links = mine[0].constants, "host_egress_bytes_per_ns"  # faster links do not help: 36 blocks read
        other.clock = machine.constants.get("simple_step_ns", STEP_NS) / STEP_NS
        other.constants = mine | {links: mine[links] * min(1, machine.constants[links] / other.base.constants[links]),
                                  "launch_ns": mine["launch_ns"] * other.clock}
        return other, "class"
    if library == "mpi":
        return next(machine for machine in mine if machine.base is None), "class"
    raise MachineError(f"no machine file is for \"{row['machine']}\" or GPUs \"{row['gpu']}\": pass one with "
                       "--machine FILE")
