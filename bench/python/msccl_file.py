# SPDX-License-Identifier: Apache-2.0
"""Reads a file in the XML format of MSCCL: algo, gpu, tb (a thread block) and step. Each element is checked by
itself: its words, its ranges, and that the peers and steps that it names exist."""
import xml.parsers.expat

from program_text import Refused

MAX_FILE_BYTES, MAX_GPUS, MAX_CHUNKS, MAX_BLOCKS, MAX_CHANNELS = 64 << 20, 256, 4096, 4096, 256
MAX_STEPS, MAX_MOVES = 1 << 20, 1 << 22
MAX_VARIANTS = 16  # that a shape of gyre can have
MAX_PARTS = 256    # of a block; those whose programs are the same become one variant

COLLECTIVES = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter",
               "reduce_scatter": "reduce_scatter", "alltoall": "all_to_all", "broadcast": "broadcast",
               "reduce": "reduce"}
IN_BLOCKS = {"reduce_scatter": (True, False), "all_gather": (False, True), "all_to_all": (True, True)}
REDUCES = {"all_reduce", "reduce", "reduce_scatter"}

# By type: does a step receive, read src, read dst, write dst, send?
TYPES = {"s": (0, 1, 0, 0, 1), "r": (1, 0, 0, 1, 0), "cpy": (0, 1, 0, 1, 0), "re": (0, 1, 1, 1, 0),
         "rcs": (1, 0, 0, 1, 1), "rrc": (1, 1, 0, 1, 0), "rrs": (1, 1, 0, 0, 1), "rrcs": (1, 1, 0, 1, 1),
         "nop": (0, 0, 0, 0, 0)}


class Element:
    """An element of the XML, and its line."""

    def __init__(self, name, attributes, line):
        self.name, self.attributes, self.line, self.children = name, attributes, line, []

    def refuse(self, text):
        raise Refused(f"line {self.line}: {text}")

    def named(self, name):
        return [child for child in self.children if child.name == name]

    def text(self, name):
        return self.attributes.get(name, "")

    def number(self, name, low, high, fallback=None):
        """An attribute as a number. fallback: of a missing attribute; None = it is required."""
        text = self.text(name)
        if text == "" and fallback is not None:
            return fallback
        try:
            number = int(text)
        except ValueError:
            number = None
        if number is None or not low <= number <= high:
            self.refuse(f'{self.name}: attribute {name} is "{text}"; expected a number from {low} to {high}')
        return number


def parse(path):
    """The outermost element of a file. Nothing outside the file is read, and no entity is expanded."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise Refused(f"cannot be read: {error.strerror} (errno {error.errno})") from None
    if len(data) > MAX_FILE_BYTES:
        raise Refused(f"is longer than {MAX_FILE_BYTES} bytes")
    top = Element("", {}, 0)
    stack = [top]
    parser = xml.parsers.expat.ParserCreate()

    def start(name, attributes):
        element = Element(name, attributes, parser.CurrentLineNumber)
        stack[-1].children.append(element)
        stack.append(element)

    def refuse_entity(name, *_):
        raise Refused(f"line {parser.CurrentLineNumber}: defines the entity {name}; no algorithm needs one")

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: stack.pop()
    parser.EntityDeclHandler = refuse_entity
    try:
        parser.Parse(data, True)
    except xml.parsers.expat.ExpatError as error:
        text = xml.parsers.expat.ErrorString(error.code)
        raise Refused(f"line {error.lineno}: not well-formed XML: {text}") from None
    return top.children[0]


class Step:
    """A step of a thread block. Places are (buffer, first chunk); depends: (block, step) or None."""

    def __init__(self, element, gpu, block):
        self.element = element
        self.type = element.text("type")
        if self.type not in TYPES:
            element.refuse(f'step: type "{self.type}" is none of s r cpy re rcs rrc rrs rrcs nop')
        self.receives, self.reads_src, self.reads_dst, self.writes, self.sends = TYPES[self.type]
        self.depends = (element.number("depid", -1, MAX_BLOCKS, -1), element.number("deps", -1, MAX_STEPS, -1))
        self.count, self.src, self.dst = 1, None, None
        if self.type == "nop":
            return
        self.count = element.number("cnt", 1, MAX_CHUNKS, 1)
        if self.reads_src:
            self.src = self.place(gpu, "src")
        if self.reads_dst or self.writes:
            self.dst = self.place(gpu, "dst")
        if self.sends and block.send < 0:
            element.refuse(f"step: type {self.type} in a tb without a peer to send to")
        if self.receives and block.recv < 0:
            element.refuse(f"step: type {self.type} in a tb without a peer to receive from")

    def place(self, gpu, side):
        buffer = self.element.text(side + "buf")
        if buffer not in ("i", "o", "s"):
            self.element.refuse(f'step: attribute {side}buf is "{buffer}"; expected i, o or s')
        offset = self.element.number(side + "off", 0, MAX_CHUNKS)
        if offset + self.count > gpu.n_chunks[buffer]:
            self.element.refuse(f"step: chunks {offset} to {offset + self.count - 1} of buffer {buffer}, which has "
                                f"{gpu.n_chunks[buffer]}")
        return buffer, offset


class Block:
    """A thread block. While the algorithm runs: its next step and chunk of it, and the chunks of the step after it
    that are done already."""

    def __init__(self, element, gpu, n_gpus):
        self.element, self.id = element, element.number("id", 0, MAX_BLOCKS)
        self.send = element.number("send", -1, n_gpus - 1, -1)
        self.recv = element.number("recv", -1, n_gpus - 1, -1)
        self.channel = element.number("chan", 0, MAX_CHANNELS, 0)
        if gpu.id in (self.send, self.recv):
            element.refuse(f"tb: GPU {gpu.id} sends to itself")
        self.steps = []
        for child in element.named("step"):
            number = child.number("s", 0, MAX_STEPS, len(self.steps))
            if number != len(self.steps):
                child.refuse(f'step: expected s="{len(self.steps)}", found s="{number}"')
            self.steps.append(Step(child, gpu, self))
        self.worker = self.sender = self.lane = None
        self.fifo = []  # (channel, value) of what was sent and not yet received; shared by channels of one lane
        self.reset()

    def reset(self):
        self.at = self.part = self.n_ahead = 0
        self.fifo.clear()

    def is_past(self, step):
        return self.at > step


class Gpu:
    """A GPU: its buffers and thread blocks."""

    def __init__(self, element, number, n_gpus):
        self.element, self.id = element, number
        self.n_chunks = {buffer: element.number(buffer + "_chunks", 0, MAX_CHUNKS, 0) for buffer in "ios"}
        self.blocks = [Block(child, self, n_gpus) for child in element.named("tb")]
        by_id = {}
        for block in self.blocks:
            by_id.setdefault(block.id, block)
        for step in (step for block in self.blocks for step in block.steps):
            other, number = by_id.get(step.depends[0]), step.depends[1]
            if step.depends[0] >= 0 and (other is None or not 0 <= number < len(other.steps)):
                step.element.refuse(f"step: it depends on step {number} of tb {step.depends[0]}, which is not there")
            step.depends = (other, number) if step.depends[0] >= 0 else None


class Algorithm:
    """A file: its collective, the parts that blocks are cut into, and its GPUs by id."""

    def __init__(self, element):
        if element.name != "algo":
            raise Refused("the outermost element is not algo")
        self.element = element
        name = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in element.text("name")[:15])
        self.name = name or "msccl"
        self.coll = COLLECTIVES.get(element.text("coll").lower())
        if self.coll is None:
            element.refuse(f'algo: coll is "{element.text("coll")}"; expected allreduce, allgather, reducescatter, '
                           "alltoall, broadcast or reduce")
        self.n_gpus = element.number("ngpus", 1, MAX_GPUS)
        self.n_chunks = element.number("nchunksperloop", 1, MAX_CHUNKS)
        self.root = element.number("root", 0, self.n_gpus - 1, 0)
        out_of_place = element.number("outofplace", 0, 1, 1)
        gpus = {}
        for child in element.named("gpu"):
            number = child.number("id", 0, self.n_gpus - 1)
            if number in gpus:
                child.refuse(f"gpu: id {number} stands in line {gpus[number].element.line} too")
            gpus[number] = Gpu(child, number, self.n_gpus)
        for number in range(self.n_gpus):
            if number not in gpus:
                element.refuse(f"algo: ngpus is {self.n_gpus}, but gpu {number} is missing")
        self.gpus = [gpus[number] for number in range(self.n_gpus)]
        # An algorithm that works only in place has one buffer, which the letters i and o both name.
        self.is_aliased = out_of_place == 0 or not any(gpu.n_chunks["o"] for gpu in self.gpus)
        self.is_vector = self.coll not in IN_BLOCKS
        self.check()

    def expected_chunks(self, buffer):
        if self.is_vector or IN_BLOCKS[self.coll]["io".index(buffer)]:
            return self.n_chunks
        return self.n_parts

    def check(self):
        n_moves = sum(step.count for gpu in self.gpus for block in gpu.blocks for step in block.steps)
        if n_moves > MAX_MOVES:
            self.element.refuse(f"{n_moves} steps of one chunk each; at most {MAX_MOVES} are translated")
        self.n_parts = 1 if self.is_vector else self.n_chunks // self.n_gpus
        if not self.is_vector and (self.n_chunks % self.n_gpus != 0 or self.n_parts > MAX_PARTS):
            self.element.refuse(f"nchunksperloop is {self.n_chunks} for {self.n_gpus} GPUs: it has to be 1 to "
                                f"{MAX_PARTS} times as many, one chunk for each part of each block")
        if self.coll == "all_to_all" and self.is_aliased:
            self.element.refuse("all_to_all has no form in place in gyre")
        if self.n_gpus < 2:
            self.element.refuse("one GPU has nothing to send")
        for gpu in self.gpus:
            for buffer in "io":
                most = self.expected_chunks(buffer)
                if gpu.n_chunks[buffer] > most:
                    gpu.element.refuse(f"gpu: {buffer}_chunks is {gpu.n_chunks[buffer]}; {self.coll} has {most} here")

    def place_in_alias(self, gpu, buffer, offset):
        """Chunk `offset` of input or output in an in-place call, as an index into the longer of the two."""
        if not self.is_vector and not IN_BLOCKS[self.coll]["io".index(buffer)]:
            return gpu.id * self.n_parts + offset
        return offset
