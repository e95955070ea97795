# SPDX-License-Identifier: Apache-2.0
"""Programs of gyre as Python values: reads and writes their text (docs/schedule.md), has them proved, and makes
imported ones smaller and faster: fold, coarsen and fuse. A pass whose result is not proved is left out."""
import copy
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass, field

STEP = re.compile(r"(chunk \d+|chunks [-\d]+(?: by [\d/]+)?): (.+) -> (.+?)((?: final| with_next)*)$")


class Refused(Exception):
    """A file cannot be read or expressed; the text says where and why."""


@dataclass
class Step:
    """chunks: "3", or a range as the text has it. Operands are texts: "in 3", "from 2/1"."""
    chunks: str
    inputs: list
    outputs: list
    flags: str = ""

    @property
    def first(self):
        return int(re.match(r"\d+", self.chunks)[0])

    @property
    def n_chunks(self):
        ends = re.match(r"(\d+)-(\d+)", self.chunks)
        if ends is None:
            return 1
        span, rule = int(ends[2]) - int(ends[1]) + 1, re.search(r"by (\d+)(?:/(\d+))?$", self.chunks)
        if rule is None:
            return span
        stride, run = int(rule[1]), int(rule[2] or 1)
        return sum((i % stride) < run for i in range(span))

    def text(self):
        return f"  chunk{'s' if '-' in self.chunks else ''} {self.chunks}: {' + '.join(self.inputs)} -> " \
               f"{', '.join(self.outputs)}{self.flags}\n"


@dataclass
class Programs:
    """One variant of a shape. ranks: for each rank a list of workers, each a list of steps."""
    name: str
    coll: str
    root: int = 0
    n_chunks: int = 1
    depth: int = 2
    max_range: int = 1
    ranks: list = field(default_factory=list)
    least_lanes: int = 1

    @property
    def lanes(self):
        found = [0]
        for step in self.steps():
            found += [int(ref.partition("/")[2] or 0) for ref in step.inputs + step.outputs]
        return max(self.least_lanes, max(found) + 1)

    @property
    def is_vector(self):
        return self.coll in ("all_reduce", "broadcast", "reduce")

    def steps(self):
        return (step for workers in self.ranks for steps in workers for step in steps)

    def text(self):
        lanes, words = self.lanes, f" range {self.max_range}" if self.max_range > 1 else ""
        return "".join(
            f"program {self.name} {self.coll}\nranks {len(self.ranks)} rank {rank} root {self.root} chunks "
            f"{self.n_chunks} lanes {lanes} depth {self.depth}{words}\n" +
            "".join(f"worker {number}\n" + "".join(step.text() for step in steps)
                    for number, steps in enumerate(steps for steps in workers if steps)) + "end\n"
            for rank, workers in enumerate(self.ranks))


def parse(text):
    """The shapes of a text, in its order."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "program" and len(words) == 3:
            name, coll = words[1:]
        elif words[0] == "ranks":
            head = dict(zip(words[::2], map(int, words[1::2])))
            if head["rank"] == 0:
                found.append(Programs(name, coll, head["root"], head["chunks"], head["depth"], head.get("range", 1)))
            found[-1].ranks.append([])
        elif words[0] == "worker":
            found[-1].ranks[-1].append([])
        elif words[0] != "end":
            match = STEP.match(line.strip())
            if match is None:
                raise Refused(f"line {number}: is no step of a program: {line.strip()}")
            found[-1].ranks[-1][-1].append(Step(match[1].split(" ", 1)[1], match[2].split(" + "), match[3].split(", "),
                                                match[4]))
    return found


def verify(tools, text, *options):
    """None if all programs of the text are proved, in place and out of place; else the reason."""
    return prove(tools, text, *options)[0]


def prove(tools, text, *options, reason="refused.*|step .*"):
    """(None, the FIFO slots that are enough) if all programs are proved, in place and out of place; else (reason, 0).
    @options: of gyre schedule, such as --any-order. @reason: which lines are told."""
    with tempfile.NamedTemporaryFile("w", suffix=".gyre", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        done = subprocess.run([os.path.join(tools, "schedule"), "--file", file.name, "--rank", "0", "--verify", *options],
                              capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None, max(map(int, re.findall(r"^# proved .*: depth (\d+) is enough", done.stdout, re.M)), default=1)
    reasons = re.findall(rf"^# *({reason})$", done.stdout, re.M)
    return ": ".join(reasons) or done.stderr.replace(file.name, "the programs").strip(), 0


# ---- passes over imported programs ------------------------------------------------------------------

MAX_SENT, MAX_RECEIVED, MAX_LOCAL = 8, 8, 2  # operands of a step
AHEAD = 64  # steps in which a partner for fusing is searched


# ---- fold and coarsen: chunks that take the same route --------------------------------------------

class Canon:
    """The steps of a group of chunks at one rank. Scratch areas are numbered as they first occur, lanes of a pair of
    ranks by their order, which is the same at both ends."""

    def __init__(self, renumber, rank, lanes):
        self.renumber, self.rank, self.lanes, self.scratch = renumber, rank, lanes, {}

    def ref(self, ref):
        word, _, number = ref.partition(" ")
        if word in ("in", "out"):
            return f"{word} {self.renumber(int(number))}"
        if word == "scratch":
            return f"scratch {self.scratch.setdefault(number, len(self.scratch))}"
        pair, lane = pair_and_lane(self.rank, word, number)
        peer, lane = pair[word == "to"], self.lanes[pair].index(lane)
        return f"{word} {peer}" + (f"/{lane}" if lane else "")

    def step(self, step):
        return type(step)(str(self.renumber(step.first)), list(map(self.ref, step.inputs)),
                          list(map(self.ref, step.outputs)), step.flags)


def pair_and_lane(rank, word, number):
    """((sender, receiver), lane) of "from 3/1" or "to 3/1" at this rank."""
    peer, _, lane = number.partition("/")
    return (rank, int(peer)) if word == "to" else (int(peer), rank), int(lane or 0)


def part_of(programs, group_of, group, renumber):
    """The programs of one group of chunks alone."""
    found, lanes = copy.copy(programs), {}
    for rank, workers in enumerate(programs.ranks):
        for ref in (ref for steps in workers for step in steps if group_of(step.first) == group for ref in step.outputs):
            if ref.startswith("to"):
                pair, lane = pair_and_lane(rank, *ref.split(" "))
                lanes.setdefault(pair, set()).add(lane)
    lanes = {pair: sorted(known) for pair, known in lanes.items()}
    found.ranks = []
    for rank, workers in enumerate(programs.ranks):
        mine, canon = [], Canon(renumber, rank, lanes)
        for steps in workers:
            mine.append([canon.step(step) for step in steps if group_of(step.first) == group])
        found.ranks.append([steps for steps in mine if steps])
    return found


def fold_chunks(programs):
    """Chunks that take the same route become one chunk: instances of MSCCL, which differ by their channels alone, and
    adjacent chunks that move together. gyre's own channels and tiles do what the copies did."""
    if not programs.is_vector or any(step.n_chunks > 1 for step in programs.steps()):
        return None
    n = programs.n_chunks
    for k in (k for k in range(n, 1, -1) if n % k == 0):
        for group_of, renumber in ((lambda c, k=k: c % k, lambda c, k=k: c // k),
                                   (lambda c, k=k: c // (n // k), lambda c, k=k: c % (n // k))):
            first = part_of(programs, group_of, 0, renumber)
            if all(part_of(programs, group_of, group, renumber).text() == first.text() for group in range(1, k)):
                first.n_chunks = n // k
                return first
    return None


# ---- fuse: steps that hand a value on -------------------------------------------------------------

def connections(step):
    return {ref for ref in step.inputs + step.outputs if ref.startswith(("from", "to"))}


def is_local(ref):
    return ref.startswith(("in", "out", "scratch"))


def fits(step):
    """Is it a step that gyre has?"""
    received, sent = (sum(not is_local(ref) for ref in refs) for refs in (step.inputs, step.outputs))
    return received <= MAX_RECEIVED and sent <= MAX_SENT and len(step.inputs) - received <= MAX_LOCAL and \
        len(step.outputs) - sent <= 1 and len(connections(step)) == received + sent


def next_reader(steps, at, ref):
    """The index of the only step that reads what step `at` writes into `ref`, or None. Until then no step may use the
    connections of step `at`, or write what it reads."""
    first = steps[at]
    for i in range(at + 1, min(at + 1 + AHEAD, len(steps))):
        step = steps[i]
        if ref in step.inputs:
            if step.chunks != first.chunks or step.inputs.count(ref) > 1:
                return None
            if ref in step.outputs:
                return i
            for later in steps[i + 1:]:
                if ref in later.inputs:
                    return None
                if ref in later.outputs:
                    return i
            return i if ref.startswith("scratch") else None
        if connections(step) & connections(first) or set(step.outputs) & {*first.inputs, ref}:
            return None
    return None


def fuse_chain(steps):
    """r + re and chained re: a value that is read once goes straight into the step that reads it."""
    at = 0
    while at < len(steps):
        step = steps[at]
        ref = step.outputs[0] if len(step.outputs) == 1 and is_local(step.outputs[0]) else None
        to = next_reader(steps, at, ref) if ref is not None else None
        reader = steps[to] if to is not None else None
        if reader is not None and (not step.flags or (reader.inputs == [ref] and not reader.flags)):
            place = reader.inputs.index(ref)
            fused = copy.copy(reader)
            fused.flags = step.flags or reader.flags
            fused.inputs = reader.inputs[:place] + step.inputs + reader.inputs[place + 1:]
            if fits(fused):
                steps[to] = fused
                del steps[at]
                at = max(at - 1, 0)
                continue
        at += 1


def fuse_sends(steps):
    """Sends of a value that was just written join the step that writes it."""
    at = 0
    while at < len(steps):
        writer = steps[at]
        own = next((ref for ref in writer.outputs if is_local(ref)), None)
        i, seen, written = at + 1, set(), set()
        while i < min(at + 1 + AHEAD, len(steps)):
            step = steps[i]
            sends = [ref for ref in step.outputs if not is_local(ref)]
            is_copy = step.inputs == [own] or (own is None and step.inputs == writer.inputs and
                                               all(map(is_local, step.inputs)))
            if is_copy and len(sends) == len(step.outputs) and step.chunks == writer.chunks and not step.flags and \
                    not set(sends) & seen and not written & set(step.inputs):
                joined = copy.copy(writer)
                joined.outputs = writer.outputs + sends
                if fits(joined):
                    steps[at] = writer = joined
                    del steps[i]
                    continue
            seen |= connections(step)
            written |= set(step.outputs)
            i += 1
        at += 1


def drop_unread(steps):
    """Leaves out local copies that nobody reads, of values that are sent anyway. Scratch areas belong to a worker."""
    read = {ref for step in steps for ref in step.inputs}
    for step in steps:
        kept = [ref for ref in step.outputs if not ref.startswith("scratch") or ref in read]
        step.outputs = kept or step.outputs


def fused(programs, *passes):
    found = copy.deepcopy(programs)
    for workers in found.ranks:
        areas = {}
        for steps in workers:
            for change in passes:
                change(steps)
            for step in steps:  # areas are numbered without gaps
                step.inputs, step.outputs = ([f"scratch {areas.setdefault(ref, len(areas))}" if ref.startswith("scratch")
                                              else ref for ref in refs] for refs in (step.inputs, step.outputs))
    return found


# ---- recognize: programs that gyre has ------------------------------------------------------------

# Of single chunks. Those with fused kernels come first, because between two ranks many take the same routes.
BUILT_IN = ("direct", "twoshot", "ring", "tree", "spread", "doubling")


def routes(programs):
    """How often each route of a chunk occurs: its steps on all ranks, without names of chunks, lanes, areas, and orders
    of inputs, of outputs and of workers. In collectives of blocks there is one route. None: steps move ranges."""
    def bare(ref):
        word, _, number = ref.partition(" ")
        kept = programs.is_vector and word in ("in", "out") or word == "scratch"
        return word if kept else f"{word} {number.partition('/')[0]}"
    if any(step.n_chunks > 1 for step in programs.steps()):
        return None
    alone, found = {}, {}  # the steps of each chunk by themselves, which more of them can be fused
    for rank, workers in enumerate(programs.ranks):
        for number, steps in enumerate(workers):
            for step in steps:
                of_chunk = alone.setdefault(step.first if programs.is_vector else 0, [{} for _ in programs.ranks])
                of_chunk[rank].setdefault(number, []).append(step)
    for of_chunk in alone.values():
        one = copy.copy(programs)
        one.ranks = [list(workers.values()) for workers in of_chunk]
        one = fused(one, fuse_chain, fuse_sends, fuse_chain, drop_unread)
        key = tuple(sorted((rank, 0 if one.is_vector else step.first, tuple(sorted(map(bare, step.inputs))),
                            tuple(sorted(map(bare, step.outputs))), "final" in step.flags)
                           for rank, workers in enumerate(one.ranks) for steps in workers for step in steps))
        found[key] = found.get(key, 0) + 1
    return found


def recognize(variants, built_in):
    """The programs of gyre's algorithm whose chunks take the same routes, each k times in the imported ones, for gyre's
    own tuning is theirs. @built_in: name -> its programs of this shape, or None."""
    for own in filter(None, map(built_in, BUILT_IN)):
        due = routes(own)
        for programs in variants:
            found = routes(programs)
            n_same = next(iter(found.values())) if found else 0
            if not due or not found or found != {key: n_same * n for key, n in due.items()}:
                break
        else:
            return [own]
    return None


def chunk_by_chunk(programs):
    """Each worker finishes a chunk before it begins the next one: slower, but few chunks are under way."""
    found = copy.deepcopy(programs)
    for workers in found.ranks:
        for steps in workers:
            steps.sort(key=lambda step: step.first)
    return found


def improve(variants, prove, say):
    """The programs of all variants after the passes that help. @prove: text -> None, or why it is not proved.
    @say: gets a line for each pass that was done or left out."""
    def attempt(name, changed):
        nonlocal variants
        if changed is None or [one.text() for one in changed] == [one.text() for one in variants]:
            return
        before, after = (sum(1 for one in each for _ in one.steps()) for each in (variants, changed))
        why = prove("".join(one.text() for one in changed))
        say(f"{name}: {before} steps become {after}" if why is None else f"{name} is left out: {re.sub(chr(10), ' ', why)}")
        variants = changed if why is None else variants
    # Variants whose programs are the same are one: gyre's channels all run it.
    attempt("fold", variants[:1] if len({one.text() for one in variants}) == 1 < len(variants) else None)
    folded = [fold_chunks(one) for one in variants]
    attempt("fold and coarsen", folded if None not in folded else None)
    attempt("fuse", [fused(one, fuse_chain, fuse_sends, fuse_chain, drop_unread) for one in variants])
    attempt("fuse sends", [fused(one, fuse_sends, drop_unread) for one in variants])
    return variants
