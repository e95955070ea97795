# SPDX-License-Identifier: Apache-2.0
"""Translates an algorithm in the XML format of MSCCL into the text of gyre's programs (docs/schedule.md):

    python3 from_msccl.py algo.xml > algo.gyre

`gyre schedule --from-msccl` starts it and proves what it writes. A thread block may wait for steps of other thread
blocks of its GPU, but a worker of gyre waits only for its connections. So thread blocks become one worker if they
touch a chunk that one of them writes, or if they depend on each other. To find the order of a worker's steps, the
whole algorithm is run with FIFOs of a few slots; the order of that run works. During the run the contributions in
every chunk are known. From them follows which step completes a reduction, and the order of two inputs: the one
with the lowest rank comes first, which is the same order on all ranks.

A block of all_gather and the like is one chunk in gyre, which channels cut further. If the file cuts blocks into
K parts, part p of all blocks becomes variant p of the programs, which every K-th channel runs."""
import sys

from msccl_file import MAX_VARIANTS, REDUCES, Algorithm, Refused, parse
from program_text import Programs, Step

MAX_WORKERS, MAX_LANES, MAX_DEPTH = 16, 8, 8  # as programs of gyre can have


# ---- running it --------------------------------------------------------------------------------

class Cell:
    """A chunk of memory. value: (chunk or block, part, bits of the ranks that contributed), or None. ref: the chunk
    of the program that holds the value. target: where the next write goes, by part; result: the chunk and part of
    the output that it is, or None."""
    __slots__ = ("value", "ref", "target", "result")

    def __init__(self):
        self.value = self.ref = self.result = None
        self.target = {}


class Run:
    """The algorithm while it runs, with FIFOs of `depth` slots. lines: by part, GPU and worker. is_careful: a chunk of
    the output is not written while another thread block is still to read the same memory of an in-place call."""

    def __init__(self, algo, depth, is_careful):
        self.algo, self.depth = algo, depth
        self.lines = [[[[] for _ in range(MAX_WORKERS)] for _ in algo.gpus] for _ in range(algo.n_parts)]
        self.n_scratch = [[0] * algo.n_parts for _ in algo.gpus]
        self.lanes = [{} for _ in range(algo.n_parts)]  # (sender, receiver) -> channels in use
        self.cells = []
        for gpu in algo.gpus:
            n_memory = max(algo.expected_chunks("i"), algo.expected_chunks("o"))
            memory = {buffer: [Cell() for _ in range(n_memory)] for buffer in "io"}
            memory["s"] = [Cell() for _ in range(gpu.n_chunks["s"])]
            self.cells.append(memory)
            self.fill(gpu)
            for block in gpu.blocks:
                block.reset()
        self.unread = [self.count_reads(gpu) for gpu in algo.gpus] if is_careful and not algo.is_aliased else None

    def cell(self, gpu, place, part):
        buffer, offset = place[0], place[1] + part
        if self.algo.is_aliased and buffer != "s":
            buffer, offset = "i", self.algo.place_in_alias(gpu, buffer, offset)
        return self.cells[gpu.id][buffer][offset]

    def fill(self, gpu):
        """The initial contents of the input, and the places of the results."""
        algo = self.algo
        if algo.coll != "broadcast" or gpu.id == algo.root:
            for i in range(algo.expected_chunks("i")):
                cell = self.cell(gpu, ("i", 0), i)
                index = i // algo.n_parts
                cell.ref = f"in {index}"
                cell.value = (gpu.id if algo.coll == "all_gather" else index, i % algo.n_parts, 1 << gpu.id)
        if algo.coll != "reduce" or gpu.id == algo.root:
            for i in range(algo.expected_chunks("o")):
                cell = self.cell(gpu, ("o", 0), i)
                cell.result = (i // algo.n_parts, i % algo.n_parts)
                cell.target[cell.result[1]] = f"out {cell.result[0]}"

    def is_ready(self, gpu, block, step, part):
        """Can this chunk of a step of the thread block be carried out now?"""
        if step.depends is not None and not step.depends[0].is_past(step.depends[1]):
            return False
        if step.sends and len(block.fifo) == self.depth:
            return False
        if step.writes and step.dst[0] == "o" and self.unread is not None:
            readers = self.unread[gpu.id].get(self.algo.place_in_alias(gpu, "o", step.dst[1] + part), {})
            if any(n > 0 for reader, n in readers.items() if reader is not block):
                return False
        return not step.receives or (len(block.sender.fifo) > 0 and block.sender.fifo[0][0] == block.channel)

    def count_reads(self, gpu):
        """By chunk of the input and thread block: the reads that are still to come."""
        unread = {}
        for block in gpu.blocks:
            for step in block.steps:
                for place, reads in ((step.src, step.reads_src), (step.dst, step.reads_dst)):
                    for i in range(step.count if reads and place[0] == "i" else 0):
                        readers = unread.setdefault(self.algo.place_in_alias(gpu, "i", place[1] + i), {})
                        readers[block] = readers.get(block, 0) + 1
        return unread

    def read(self, gpu, block, step, place, part):
        cell = self.cell(gpu, place, part)
        if self.unread is not None and place[0] == "i":
            self.unread[gpu.id][self.algo.place_in_alias(gpu, "i", place[1] + part)][block] -= 1
        if cell.value is None:
            step.element.refuse(f"step: chunk {place[1] + part} of buffer {place[0]} of gpu {gpu.id} is read before it "
                                "is written (a dependency may be missing)")
        return cell.ref, cell.value

    def reduce(self, step, inputs):
        """The value of one or two inputs, whose order this changes, and whether it is final."""
        value = inputs[0][1]
        if len(inputs) == 1:
            return value, False
        other = inputs[1][1]
        if self.algo.coll not in REDUCES:
            step.element.refuse(f"step: {step.type} reduces, which {self.algo.coll} does not")
        if value[:2] != other[:2]:
            step.element.refuse(f"step: reduces chunk {value[0]} with chunk {other[0]}" if value[0] != other[0] else
                                f"step: reduces part {value[1]} of block {value[0]} with part {other[1]}")
        if value[2] & other[2]:
            step.element.refuse("step: counts a contribution twice")
        if other[2] & -other[2] < value[2] & -value[2]:
            inputs.reverse()
        ranks = value[2] | other[2]
        return (value[0], value[1], ranks), ranks == (1 << self.algo.n_gpus) - 1

    def write(self, gpu, step, part, value):
        cell = self.cell(gpu, step.dst, part)
        if cell.result is not None and self.algo.is_vector and value[0] != cell.result[0]:
            step.element.refuse(f"step: puts chunk {value[0]} of the vector in the place of chunk {cell.result[0]}")
        if cell.result is not None and value[1] != cell.result[1]:
            step.element.refuse(f"step: puts part {value[1]} of a block in the place of part {cell.result[1]}")
        if value[1] not in cell.target:
            cell.target[value[1]] = f"scratch {self.n_scratch[gpu.id][value[1]]}"
            self.n_scratch[gpu.id][value[1]] += 1
        cell.ref, cell.value = cell.target[value[1]], value
        return cell.ref

    def carry_out(self, gpu, block, step, part):
        """One chunk of one step. Connections are named (sender, receiver, channel) until all are known."""
        inputs, outputs = [], []
        if step.type == "nop":
            return
        if step.receives:
            inputs.append((("from", block.recv, gpu.id, block.channel), block.sender.fifo.pop(0)[1]))
        if step.reads_src:
            inputs.append(self.read(gpu, block, step, step.src, part))
        if step.reads_dst:
            inputs.append(self.read(gpu, block, step, step.dst, part))
        value, is_final = self.reduce(step, inputs)
        if step.writes:
            outputs.append(self.write(gpu, step, part, value))
        if step.sends:
            outputs.append(("to", gpu.id, block.send, block.channel))
            block.fifo.append((block.channel, value))
            self.lanes[value[1]].setdefault((gpu.id, block.send), {}).setdefault(block.channel, block)
        self.lines[value[1]][gpu.id][block.worker].append((value[0], [ref for ref, _ in inputs], outputs, is_final))

    def may_go_ahead(self, block):
        """May a thread block receive chunks of its next step while its current step waits for room to send? Without
        this, if two GPUs first send several chunks to each other and then receive as many, all chunks would have to
        fit into the FIFOs. The current step may only send. The next step may only receive, and must not write chunks
        that are still to be sent."""
        if block.at + 1 == len(block.steps):
            return False
        sending, following = block.steps[block.at], block.steps[block.at + 1]
        if sending.type != "s" or following.type not in ("r", "rrc") or \
                (sending.depends is not None and not sending.depends[0].is_past(sending.depends[1])):
            return False
        if self.algo.is_aliased and not self.algo.is_vector:
            return False  # the same chunk may have two names
        source, written = sending.src, following.dst
        is_same = source[0] == written[0] or (self.algo.is_aliased and "s" not in (source[0], written[0]))
        return not (is_same and source[1] < written[1] + following.count and written[1] < source[1] + sending.count)

    def advance(self, gpu, block):
        """Carries out the next chunk of a thread block, if that is possible. Returns whether it was."""
        if block.at == len(block.steps):
            return False
        step = block.steps[block.at]
        if not self.is_ready(gpu, block, step, block.part):
            if not self.may_go_ahead(block):
                return False
            following = block.steps[block.at + 1]
            if block.n_ahead == following.count or not self.is_ready(gpu, block, following, block.n_ahead):
                return False
            self.carry_out(gpu, block, following, block.n_ahead)
            block.n_ahead += 1
            return True
        self.carry_out(gpu, block, step, block.part)
        block.part += 1
        while block.at < len(block.steps) and block.part >= block.steps[block.at].count:
            block.part, block.n_ahead = block.n_ahead, 0
            block.at += 1
        return True

    def copy_kept(self, gpu):
        """Copies the chunks of the result that no step writes: an algorithm that works only in place need not write a
        chunk that is input and result at once, but in an out-of-place call it must be copied."""
        if self.algo.coll in REDUCES:
            return
        worker = gpu.copier.worker if gpu.copier is not None else 0
        for cell in (cell for buffer in "io" for cell in self.cells[gpu.id][buffer]):
            if cell.result is not None and cell.ref is not None and cell.ref.startswith("in "):
                part = cell.result[1]
                self.lines[part][gpu.id][worker].append((cell.value[0], [cell.ref], [cell.target[part]], False))

    def run(self):
        """Returns the first step that was not carried out, or None."""
        while any([self.advance(gpu, block) for gpu in self.algo.gpus for block in gpu.blocks]):
            pass
        for gpu in self.algo.gpus:
            for block in gpu.blocks:
                if block.at < len(block.steps):
                    return block.steps[block.at]
        for gpu in self.algo.gpus:
            self.copy_kept(gpu)
        return None


# ---- workers and connections -------------------------------------------------------------------

def assign_workers(algo, gpu):
    """Gives every thread block a worker. Groups beyond MAX_WORKERS share workers. Input and output count as one
    buffer, because they are one buffer in an in-place call. Thread blocks that share a lane are one group."""
    group_of = list(range(len(gpu.blocks)))
    index_of = {block: index for index, block in enumerate(gpu.blocks)}

    def root_of(index):
        while group_of[index] != index:
            index = group_of[index]
        return index

    def join(a, b):
        a, b = root_of(a), root_of(b)
        group_of[max(a, b)] = min(a, b)

    def touched(step):
        for place, reads, writes in ((step.src, step.reads_src, 0), (step.dst, step.reads_dst, step.writes)):
            for offset in range(place[1], place[1] + step.count) if reads or writes else ():
                if place[0] == "s":
                    yield (place[0], offset), writes
                else:
                    yield ("i", algo.place_in_alias(gpu, place[0], offset)), writes

    written = {cell for block in gpu.blocks for step in block.steps for cell, writes in touched(step) if writes}
    # A kept chunk is copied by one worker, and in place no other one may read it meanwhile.
    kept = set()
    if algo.coll in ("all_gather", "broadcast") and (algo.coll != "broadcast" or gpu.id == algo.root):
        kept = {("i", algo.place_in_alias(gpu, "i", i)) for i in range(algo.expected_chunks("i"))} - written
    first_of = {}
    gpu.copier = None
    for index, block in enumerate(gpu.blocks):
        for cell in {cell for step in block.steps for cell, _ in touched(step)}:
            if algo.is_aliased and cell in kept and gpu.copier is None:
                gpu.copier = block
            if cell in written or (algo.is_aliased and cell in kept):
                join(first_of.setdefault(cell, index), index)
        for step in block.steps:
            if step.depends is not None:
                join(index, index_of[step.depends[0]])
    for shared in gpu.shared:
        for block in shared[1:]:
            join(index_of[shared[0]], index_of[block])
    if gpu.copier is not None:  # all of them, since one worker makes all copies
        for cell in kept & first_of.keys():
            join(first_of[cell], index_of[gpu.copier])
    roots = [index for index, group in enumerate(group_of) if group == index]
    for index, block in enumerate(gpu.blocks):
        block.worker = roots.index(root_of(index)) % MAX_WORKERS


def connect(algo, gpu, block):
    """Finds the thread block that sends to this one."""
    for other in gpu.blocks:
        if other is block:
            break
        if other.channel == block.channel:
            if block.send >= 0 and other.send == block.send:
                block.element.refuse(f"tb: another tb of gpu {gpu.id} sends to gpu {block.send} on channel "
                                     f"{block.channel} too")
            if block.recv >= 0 and other.recv == block.recv:
                block.element.refuse(f"tb: another tb of gpu {gpu.id} receives from gpu {block.recv} on channel "
                                     f"{block.channel} too")
    if block.recv < 0:
        return
    for other in algo.gpus[block.recv].blocks:
        if other.send == gpu.id and other.channel == block.channel:
            block.sender = other
            return
    block.element.refuse(f"tb: no tb of gpu {block.recv} sends to gpu {gpu.id} on channel {block.channel}")


def share_lanes(algo):
    """If two GPUs have more channels than lanes, several channels share a lane, and their thread blocks a worker on
    both sides. gpu.shared: lists of such thread blocks. Parts of blocks have lanes of their own."""
    for gpu in algo.gpus:
        gpu.shared = []
    for gpu in algo.gpus:
        for peer in {block.send for block in gpu.blocks if block.send >= 0 and algo.n_parts == 1}:
            senders = sorted((block for block in gpu.blocks if block.send == peer), key=lambda block: block.channel)
            for lane in range(MAX_LANES if len(senders) > MAX_LANES else 0):
                sharing = senders[lane::MAX_LANES]
                gpu.shared.append(sharing)
                algo.gpus[peer].shared.append([block for block in algo.gpus[peer].blocks if block.sender in sharing])
                for block in sharing:
                    block.lane, block.fifo = lane, sharing[0].fifo


def number_lanes(run):
    """Numbers the channels of each pair of GPUs, in each part by itself. Returns the number of lanes."""
    most = 1
    for lanes in run.lanes:
        for (sender, receiver), blocks in lanes.items():
            for number, channel in enumerate(sorted(blocks)):
                block = blocks[channel]
                lane = number if block.lane is None else block.lane
                if lane >= MAX_LANES:
                    block.element.refuse(f"tb: gpu {sender} sends to gpu {receiver} on more than {MAX_LANES} channels, "
                                         f"and gyre has {MAX_LANES} lanes")
                blocks[channel] = lane
                most = max(most, lane + 1)
    return most


def write_programs(run, file):
    """Parts of blocks whose programs are the same, each of them equally often, are one variant."""
    algo, n_lanes, texts = run.algo, number_lanes(run), []
    for part, of_ranks in enumerate(run.lines):

        def text_of(ref, part=part):
            if isinstance(ref, str):
                return ref
            word, sender, receiver, channel = ref
            lane = run.lanes[part][(sender, receiver)][channel]
            return f"{word} {sender if word == 'from' else receiver}" + (f"/{lane}" if lane > 0 else "")

        programs = Programs(algo.name, algo.coll, algo.root, algo.n_chunks if algo.is_vector else 1, MAX_DEPTH,
                            least_lanes=n_lanes)
        programs.ranks = [[[Step(str(chunk), list(map(text_of, inputs)), list(map(text_of, outputs)),
                                 " final" if is_final else "") for chunk, inputs, outputs, is_final in lines]
                           for lines in workers] for workers in of_ranks]
        texts.append(programs.text())
    distinct = list(dict.fromkeys(texts))
    if len({texts.count(text) for text in distinct}) == 1:
        texts = distinct
    if len(texts) > MAX_VARIANTS:
        algo.element.refuse(f"the {len(texts)} parts of a block go {len(distinct)} different ways; programs of gyre "
                            f"have {MAX_VARIANTS} variants")
    file.writelines(texts)


def translate(path, file):
    algo = Algorithm(parse(path))
    for gpu in algo.gpus:
        for block in gpu.blocks:
            connect(algo, gpu, block)
    share_lanes(algo)
    for gpu in algo.gpus:
        assign_workers(algo, gpu)
    for is_careful in (True, False):
        for depth in range(1, MAX_DEPTH + 1):
            run = Run(algo, depth, is_careful)
            stuck = run.run()
            if stuck is None:
                write_programs(run, file)
                return
    stuck.element.refuse(f"step: it never runs, with FIFOs of up to {MAX_DEPTH} slots: what it receives, or the step "
                         "that it depends on, does not come")


def main():
    path = sys.argv[1]
    try:
        translate(path, sys.stdout)
    except Refused as refused:
        text = str(refused)
        print(f"schedule: --from-msccl: {path}{',' if text.startswith('line ') else ''} {text}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
