# SPDX-License-Identifier: Apache-2.0
"""`gyre export` (bench/gyre.c starts it and prints its help): the programs of a collective in formats of other
systems.

    python3 bench/python/export.py TOOLS_FOLDER FORMAT --output PATH [--bytes N] [options of schedule]
"""
import argparse
import os
import subprocess
import sys
from xml.sax.saxutils import quoteattr

import program_text
from compare import sizes_of
from program_text import Refused
from report_sources import write_whole

MSCCL_NAMES = {"all_reduce": "allreduce", "all_gather": "allgather", "reduce_scatter": "reducescatter",
               "all_to_all": "alltoall", "broadcast": "broadcast", "reduce": "reduce"}
CHAKRA_VERSION = "0.0.4"
COMP_NODE, SEND_NODE, RECV_NODE = 4, 5, 6


def words_of(ref):
    """("from", peer, lane), or ("in", index, 0)."""
    word, _, number = ref.partition(" ")
    index, _, lane = number.partition("/")
    return word, int(index), int(lane or 0)


def chunk_bytes(programs, n_bytes):
    """Of a call whose whole vector, or all blocks together, has n_bytes."""
    return n_bytes // (programs.n_chunks if programs.is_vector else len(programs.ranks))


# ---- MSCCL's XML --------------------------------------------------------------------------------

class Gpu:
    """The thread blocks of one rank while its program is written: one for each connection and each worker. Steps of a
    worker follow each other, so each depends on the one before it."""

    def __init__(self):
        self.blocks, self.steps, self.last, self.n_scratch = [], {}, None, 0

    def block(self, send, recv, channel, worker=None):
        key = (send, recv, channel, worker)
        if key not in self.steps:
            self.blocks.append(key)
            self.steps[key] = []
        return key

    def step(self, key, kind, src, dst, count):
        depends = self.last if self.last is not None and self.last[0] != key else None
        self.steps[key].append([kind, src, dst, count, depends, False])
        if depends is not None:
            self.steps[depends[0]][depends[1]][5] = True
        self.last = (key, len(self.steps[key]) - 1)

    def scratch(self, count):
        self.n_scratch += count
        return "s", self.n_scratch - count


def place(gpu, ref, areas, step):
    """(buffer, offset) of a local operand."""
    word, index, _ = words_of(ref)
    if word == "scratch":
        return areas.setdefault(index, gpu.scratch(step.n_chunks) if index not in areas else None)
    return word[0], index


def add_step(gpu, programs, worker, step, areas):
    """A step of gyre as receives, local sums and sends. What comes in goes to scratch unless it is just kept."""
    if "by" in step.chunks:
        raise Refused(f"step {step.text().strip()}: chunks with gaps, which one step of MSCCL cannot move")
    if any(ref.startswith(("placed", "into")) for ref in step.inputs + step.outputs):
        raise Refused(f"step {step.text().strip()}: data placed in windows, which MSCCL does not have")
    count = step.n_chunks
    local = [ref for ref in step.outputs if not ref.startswith("to")]
    target = place(gpu, local[0], areas, step) if local else None
    sources = []
    for ref in step.inputs:
        word, peer, lane = words_of(ref)
        if word == "from":
            at = target if len(step.inputs) == 1 and target else gpu.scratch(count)
            gpu.step(gpu.block(-1, peer, lane), "r", ("i", 0), at, count)
            sources.append(at)
        else:
            sources.append(place(gpu, ref, areas, step))
    adder = gpu.block(-1, -1, 0, worker)
    if len(sources) > 1:
        # In place, input and output are one memory, so nothing is written there before all inputs are read.
        is_read_later = any(source == target or source[0] == "i" for source in sources[1:])
        sums = target if target is not None and not is_read_later else gpu.scratch(count)
        if sources[0] != sums:
            gpu.step(adder, "cpy", sources[0], sums, count)
        for source in sources[1:]:
            gpu.step(adder, "re", source, sums, count)
    else:
        sums = sources[0]
    if target not in (None, sums):
        gpu.step(adder, "cpy", sums, target, count)
        sums = target
    for ref in step.outputs:
        word, peer, lane = words_of(ref)
        if word == "to":
            gpu.step(gpu.block(peer, -1, lane), "s", sums, sums, count)


def msccl_text(variants, _n_bytes):
    """All ranks in one file, for out of place calls of any size."""
    programs = variants[0]
    if len(variants) > 1:
        raise Refused(f"has {len(variants)} variants; name one with --variant, because a file of MSCCL has one program")
    if programs.coll not in MSCCL_NAMES:
        raise Refused(f"{programs.coll} is no collective of MSCCL")
    n = len(programs.ranks)
    n_chunks = programs.n_chunks if programs.is_vector else n
    n_in = n_chunks if programs.is_vector or programs.coll in ("reduce_scatter", "all_to_all") else 1
    n_out = n_chunks if programs.is_vector or programs.coll in ("all_gather", "all_to_all") else 1
    lines = [f'<algo name={quoteattr(programs.name)} proto="Simple" nchannels="{programs.lanes}" nchunksperloop='
             f'"{n_chunks}" ngpus="{n}" coll="{MSCCL_NAMES[programs.coll]}" inplace="0" outofplace="1" '
             f'root="{programs.root}" minBytes="0" maxBytes="0">']
    for rank, workers in enumerate(programs.ranks):
        gpu = Gpu()
        for worker, steps in enumerate(workers):
            gpu.last, areas = None, {}
            for step in steps:
                add_step(gpu, programs, worker, step, areas)
        ids = {key: number for number, key in enumerate(gpu.blocks)}
        lines.append(f'  <gpu id="{rank}" i_chunks="{n_in}" o_chunks="{n_out}" s_chunks="{gpu.n_scratch}">')
        for key in gpu.blocks:
            lines.append(f'    <tb id="{ids[key]}" send="{key[0]}" recv="{key[1]}" chan="{key[2]}">')
            for number, (kind, src, dst, count, depends, is_awaited) in enumerate(gpu.steps[key]):
                block, at = (ids[depends[0]], depends[1]) if depends else (-1, -1)
                lines.append(f'      <step s="{number}" type="{kind}" srcbuf="{src[0]}" srcoff="{src[1]}" dstbuf="{dst[0]}" '
                             f'dstoff="{dst[1]}" cnt="{count}" depid="{block}" deps="{at}" hasdep="{int(is_awaited)}"/>')
            lines.append("    </tb>")
        lines.append("  </gpu>")
    return {"": "\n".join([*lines, "</algo>", ""])}


# ---- transfers, for GOAL and Chakra ---------------------------------------------------------------

def operations(steps):
    """(kind, peer, lane, chunks) of a worker: its receives, a sum or copy, and its sends, step by step."""
    for step in steps:
        for ref in step.inputs:
            if ref.startswith("from"):
                yield ("recv", *words_of(ref)[1:], step.n_chunks)
        if len(step.inputs) > 1:
            yield "calc", -1, len(step.inputs) - 1, step.n_chunks
        for ref in step.outputs:
            if ref.startswith("to"):
                yield ("send", *words_of(ref)[1:], step.n_chunks)


def goal_text(variants, n_bytes):
    """For LogGOPSim. `calc` is in ns, with a ns for each 16 bytes that are added."""
    programs = variants[0]
    size, lines = chunk_bytes(programs, n_bytes), [f"num_ranks {len(programs.ranks)}", ""]
    for rank, workers in enumerate(programs.ranks):
        lines.append(f"rank {rank} {{")
        number = 0
        for worker, steps in enumerate(workers):
            previous = None
            for kind, peer, lane, count in operations(steps):
                number += 1
                lines.append(f"l{number}: calc {max(1, count * size * lane // 16)} cpu {worker}" if kind == "calc" else
                             f"l{number}: {kind} {count * size}b {'to' if kind == 'send' else 'from'} {peer} tag {lane} "
                             f"cpu {worker}")
                if previous is not None:
                    lines.append(f"l{number} requires l{previous}")
                previous = number
        lines += ["}", ""]
    return {"": "\n".join(lines)}


def varint(number):
    data = bytearray()
    while number > 0x7f:
        data.append(number & 0x7f | 0x80)
        number >>= 7
    return bytes([*data, number])


def message(*fields):
    """Protocol buffers: (number, value) pairs; a value is an int, a text, bytes of a message, or a list of ints."""
    data = b""
    for number, value in fields:
        if isinstance(value, int):
            data += varint(number << 3) + varint(value)
        else:
            packed = value.encode() if isinstance(value, str) else b"".join(map(varint, value)) \
                if isinstance(value, list) else value
            data += varint(number << 3 | 2) + varint(len(packed)) + packed
    return data


def attribute(name, value):
    """An AttributeProto: bool_val is its field 27, int64_val 9."""
    return 10, message((1, name), (27, int(value)) if isinstance(value, bool) else (9, value))


def chakra_files(variants, n_bytes):
    """An execution trace a rank, RANK.et, for astra-sim: schema/protobuf/et_def.proto of mlcommons/chakra."""
    programs, files = variants[0], {}
    size = chunk_bytes(programs, n_bytes)
    for rank, workers in enumerate(programs.ranks):
        records, number = [message((1, CHAKRA_VERSION))], 0
        for worker, steps in enumerate(workers):
            previous = None
            for kind, peer, lane, count in operations(steps):
                ends = (rank, peer) if kind == "send" else (peer, rank)
                deps = [] if previous is None else [(5, [previous])]
                if kind == "calc":
                    fields = [(3, COMP_NODE), *deps, attribute("is_cpu_op", False),
                              attribute("num_ops", count * size * lane), attribute("tensor_size", count * size)]
                else:
                    fields = [(3, SEND_NODE if kind == "send" else RECV_NODE), *deps, attribute("is_cpu_op", False),
                              attribute("comm_size", count * size), attribute("comm_src", ends[0]),
                              attribute("comm_dst", ends[1]), attribute("comm_tag", lane)]
                number += 1  # 0 is not written, and some readers miss it
                records.append(message((1, number), (2, f"{kind} worker {worker} chunk of {count * size} bytes"), *fields))
                previous = number
        files[f".{rank}.et"] = b"".join(varint(len(record)) + record for record in records)
    return files


# ---- the command --------------------------------------------------------------------------------

FORMATS = {"msccl": msccl_text, "goal": goal_text, "chakra": chakra_files}


def run(tools, options, shape):
    """Returns the paths that were written."""
    schedule = os.path.join(tools, "schedule")
    if options.format == "perfetto":  # the simulator's own trace, which Perfetto opens
        done = subprocess.run([schedule, "--predict", *shape, "--bytes", options.bytes, "--trace", options.output],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Refused(done.stderr.strip())
        return [options.output]
    sizes = sizes_of(options.bytes)
    if len(sizes) != 1:
        raise Refused(f"--bytes {options.bytes}: expected one size")
    done = subprocess.run([schedule, *shape, "--verify"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Refused(done.stderr.strip() or [line for line in done.stdout.split("\n") if line.startswith("# refused")][0])
    paths = []
    for ending, data in FORMATS[options.format](program_text.parse(done.stdout), sizes[0]).items():
        write_whole(options.output + ending, data)
        paths.append(options.output + ending)
    return paths


def main():
    tools = sys.argv[1]
    parser = argparse.ArgumentParser(prog="gyre export", add_help=False, allow_abbrev=False,
                                     usage="gyre export FORMAT --output PATH [options] (gyre export --help)")
    parser.add_argument("format", choices=[*sorted(FORMATS), "perfetto"])  # the options' help is in bench/gyre.c
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--bytes", default="1M")
    options, shape = parser.parse_known_args(sys.argv[2:])  # those of schedule are passed on
    try:
        paths = run(tools, options, shape)
    except (Refused, OSError, argparse.ArgumentTypeError) as error:
        print(f"gyre export: {error}", file=sys.stderr)
        return 1
    print(f"wrote {paths[0]}" + (f" to {paths[-1]}" if len(paths) > 1 else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
