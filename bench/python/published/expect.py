# SPDX-License-Identifier: Apache-2.0
"""`gyre validate --expect`: what a collective should reach on a machine: the bound of its links, the prediction, and an
error bar from predictions of published measurements."""
import os
import re

from machines import MachineError, library_of, read_machine
from scores import TableError, bus_factor, line_rate, query_of

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
LIBRARIES = {"nccl": "NCCL", "rccl": "RCCL", "mpi": "MPI", "oneshot": "vLLM"}
CLASSES = (("up to 64 KiB", 0, 1 << 16), ("up to 16 MiB", (1 << 16) + 1, 1 << 24), ("above", (1 << 24) + 1, 1 << 62))
PLACES = ("GPUs of one host", "GPUs of several hosts", "host memory (MPI)")


def place_of(row):
    return PLACES[2] if library_of(row["library"]) == "mpi" else PLACES[row["hosts"] > 1]


def bar_of(row):
    """The class by which error bars are given."""
    return f"{place_of(row)}, {next(name for name, least, most in CLASSES if least <= row['bytes'] <= most)}"


def error_bar(folder, name):
    """(factor, rows) of a class, from bars.txt."""
    with open(os.path.join(folder, "bars.txt"), encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file if not line.startswith("#")]
    return next(((float(row[1]), int(row[2])) for row in rows if row[0] == name), (None, 0))


def find(folder, machine):
    """The machine of a name or a file."""
    known = sorted(name[:-8] for name in os.listdir(folder) if name.endswith(".machine"))
    if machine not in known and not os.path.exists(machine):
        raise MachineError(f"there is no machine {machine}; machines are: {', '.join(known)}, or a file")
    return read_machine(os.path.join(folder, f"{machine}.machine") if machine in known else machine, folder)


def expect(simulator, machine, coll, size, shape):
    """Prints the answer. Returns the exit status. Errors: MachineError, TableError."""
    machine = find(simulator.folder, machine)
    sizes, shapes = re.fullmatch(r"(\d+)([KMG]?)", size), re.fullmatch(r"(\d+)x(\d+)", shape)
    if sizes is None or int(sizes[1]) < 1 or shapes is None or int(shapes[1]) * int(shapes[2]) < 2:
        raise TableError(f"{size} {shape}: expected a size and HOSTSxGPUS, such as 1G 64x8, of at least 2 GPUs")
    hosts, gpus = int(shapes[1]), int(shapes[2])
    row = {"collective": coll, "bytes": int(sizes[1]) * UNITS[sizes[2]], "hosts": hosts, "gpus_per_host": gpus,
           "ranks": hosts * gpus, "nic_per_host": 0, "nic_gbit_s": 0, "graph": "no", "algorithm_or_proto": "default",
           "library": LIBRARIES[machine.words["library"]], "library_version": ""}
    answer = simulator.ask([query_of(machine, row)])[0]
    if "error" in answer:
        raise TableError(answer["error"])
    time_us, rate, moved = float(answer["time_us"]), line_rate(machine, row), row["bytes"] * bus_factor(row) / 1e3
    factor, n_rows = error_bar(simulator.folder, bar_of(row))
    print(f"{coll} of {row['bytes']} B by {row['ranks']} ranks, {hosts} x {gpus}, on {machine.short}")
    print(f"bound       {moved / rate:12.1f} us {rate:9.1f} GB/s of busbw: its links alone")
    print(f"prediction  {time_us:12.1f} us {moved / time_us:9.1f} GB/s: {answer['algo']} {answer.get('proto', '')}, busiest: "
          f"{answer['busiest']} {answer['share']}")
    print(f"error bar   {time_us / factor:12.1f} to {time_us * factor:.1f} us: nine of ten of the {n_rows} published times "
          f"of \"{bar_of(row)}\" are within a factor of {factor:.2f}" if factor else
          f"error bar   none: no published time of \"{bar_of(row)}\" was predicted")
    print(f"source      {os.path.relpath(machine.path)}; tests/published/score.csv; docs/published.md")
    return 0
