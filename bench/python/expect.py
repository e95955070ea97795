# SPDX-License-Identifier: Apache-2.0
"""`gyre expect` (bench/gyre.c starts it and prints its help): what a collective should reach on a machine: the bound of
its links, the prediction, and an error bar from predictions of published measurements (docs/published.md).

    python3 bench/python/expect.py TOOLS_FOLDER COLLECTIVE BYTES HOSTSxGPUS --machine NAME"""
import argparse
import os
import re
import sys

from machines import MachineError, read_machine
from published import Simulator, bus_factor, line_rate, query_of
from validate import bar_of

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
LIBRARIES = {"nccl": "NCCL", "rccl": "RCCL", "mpi": "MPI", "oneshot": "vLLM"}


def size(text):
    found = re.fullmatch(r"(\d+)([KMG]?)", text)
    if found is None or int(found[1]) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a size such as 64K or 1G")
    return int(found[1]) * UNITS[found[2]]


def shape(text):
    found = re.fullmatch(r"(\d+)x(\d+)", text)
    if found is None or int(found[1]) * int(found[2]) < 2:
        raise argparse.ArgumentTypeError(f"{text}: expected HOSTSxGPUS, such as 64x8, of at least 2 GPUs")
    return int(found[1]), int(found[2])


def make_parser():
    parser = argparse.ArgumentParser(prog="gyre expect", add_help=False, allow_abbrev=False,
                                     usage="gyre expect COLLECTIVE BYTES HOSTSxGPUS --machine NAME (gyre expect --help)")
    parser.add_argument("collective", choices=("all_reduce", "all_gather", "reduce_scatter", "broadcast", "alltoall"))
    parser.add_argument("bytes", type=size)
    parser.add_argument("shape", type=shape)
    parser.add_argument("--machine", required=True)
    return parser


def error_bar(folder, name):
    """(factor, rows) of a class, from bars.txt."""
    with open(os.path.join(folder, "bars.txt"), encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file if not line.startswith("#")]
    return next(((float(row[1]), int(row[2])) for row in rows if row[0] == name), (None, 0))


def main():
    tools, options = sys.argv[1], make_parser().parse_args(sys.argv[2:])
    simulator = Simulator(tools)
    named = os.path.join(simulator.folder, f"{options.machine}.machine")
    path = options.machine if os.path.exists(options.machine) else named
    hosts, gpus = options.shape
    try:
        machine = read_machine(path, simulator.folder)
    except MachineError as error:
        known = sorted(name[:-8] for name in os.listdir(simulator.folder) if name.endswith(".machine"))
        print(f"gyre expect: {error}; machines are: {', '.join(known)}, or a file", file=sys.stderr)
        return 1
    row = {"collective": options.collective, "bytes": options.bytes, "hosts": hosts, "gpus_per_host": gpus,
           "ranks": hosts * gpus, "nic_per_host": 0, "nic_gbit_s": 0, "graph": "no", "algorithm_or_proto": "default",
           "library": LIBRARIES[machine.words["library"]], "library_version": ""}
    answer = simulator.ask([query_of(machine, row)])[0]
    if "error" in answer:
        print(f"gyre expect: {answer['error']}", file=sys.stderr)
        return 1
    time_us, rate = float(answer["time_us"]), line_rate(machine, row)
    busbw = row["bytes"] * bus_factor(row) / time_us / 1e3
    name = bar_of(row)
    factor, n_rows = error_bar(simulator.folder, name)
    print(f"{row['collective']} of {row['bytes']} B by {row['ranks']} ranks, {hosts} x {gpus}, on {machine.short}")
    print(f"bound       {row['bytes'] * bus_factor(row) / rate / 1e3:12.1f} us {rate:9.1f} GB/s of busbw: its links alone")
    print(f"prediction  {time_us:12.1f} us {busbw:9.1f} GB/s: {answer['algo']} {answer.get('proto', '')}, busiest: "
          f"{answer['busiest']} {answer['share']}")
    if factor:
        print(f"error bar   {time_us / factor:12.1f} to {time_us * factor:.1f} us: nine of ten of the {n_rows} published "
              f"times of \"{name}\" are within a factor of {factor:.2f}")
    else:
        print(f"error bar   none: no published time of \"{name}\" was predicted")
    print(f"source      {os.path.relpath(path)}; tests/published/score.csv; docs/published.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
