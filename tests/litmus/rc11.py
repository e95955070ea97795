"""Decides litmus tests under the memory model of C11 as repaired by RC11 (Lahav, Vafeiadis, Kang, Hur, Dreyer:
Repairing Sequential Consistency in C/C++11, PLDI 2017), without its sequentially consistent accesses, which gyre
does not use. It tries every execution, so it is for tests of a few lines.

The language is a part of what herd7 takes for C: declarations, plain and atomic loads and stores, fetch_add,
compare_exchange, fences, and if with ==.
"""

import itertools
import re

ACQUIRE = ("acquire", "acq_rel")
RELEASE = ("release", "acq_rel")

LOAD = re.compile(r"atomic_load_explicit\((\w+), memory_order_(\w+)\)$")
STORE = re.compile(r"atomic_store_explicit\((\w+), (\d+), memory_order_(\w+)\)$")
ADD = re.compile(r"atomic_fetch_add_explicit\((\w+), (\d+), memory_order_(\w+)\)$")
SWAP = re.compile(r"atomic_compare_exchange_strong_explicit\((\w+), (\w+), (\d+), memory_order_(\w+), "
                  r"memory_order_(\w+)\)$")
FENCE = re.compile(r"atomic_thread_fence\(memory_order_(\w+)\)$")


class Event:
    """A read, a write, both at once, or a fence. `order`: a memory order, or "plain"."""

    def __init__(self, thread, kind, where, order, read=None, written=None):
        self.thread, self.kind, self.where, self.order = thread, kind, where, order
        self.read, self.written = read, written

    def reads(self):
        return self.read is not None

    def writes(self):
        return self.written is not None


def parse(text):
    """-> initial values, lists of statements by thread, and the condition as a Python expression."""
    text = re.sub(r"\(\*.*?\*\)", "", text, flags=re.S)
    start = dict((name, int(value)) for name, value in re.findall(r"\[(\w+)\] = (\d+);", text))
    threads = []
    for match in re.finditer(r"^P\d+ \([^)]*\) \{\n(.*?)^\}", text, re.S | re.M):
        threads.append(parse_block(iter(match.group(1).splitlines())))
    condition = re.search(r"exists (.*)", text, re.S).group(1).strip()
    condition = condition.replace("/\\", " and ").replace("\\/", " or ")
    condition = re.sub(r"(\d+):(\w+)=(\d+)", r'(final.get((\1, "\2")) == \3)', condition)
    return start, threads, condition


def parse_block(lines):
    block = []
    for line in lines:
        line = line.strip()
        branch = re.match(r"if \((\w+) == (\d+)\) \{$", line)
        if line == "}":
            return block
        if branch:
            block.append(("if", branch.group(1), int(branch.group(2)), parse_block(lines)))
        elif line:
            block.append(("do", line.rstrip(";").removeprefix("int ")))
    return block


def domains(start, threads):
    """Which values a location may ever hold: those that are stored, and sums of additions."""
    values = {name: {value} for name, value in start.items()}
    added = {name: [] for name in start}

    def walk(block):
        for statement in block:
            if statement[0] == "if":
                walk(statement[3])
                continue
            code = statement[1].split(" = ")[-1]
            plain = re.match(r"\*(\w+) = (\d+)$", statement[1])
            for pattern, at in ((STORE, 2), (SWAP, 3)):
                if pattern.match(code):
                    values[pattern.match(code).group(1)].add(int(pattern.match(code).group(at)))
            if plain:
                values[plain.group(1)].add(int(plain.group(2)))
            if ADD.match(code):
                added[ADD.match(code).group(1)].append(int(ADD.match(code).group(2)))

    for block in threads:
        walk(block)
    for name, amounts in added.items():
        for n in range(1, len(amounts) + 1):
            for some in itertools.combinations(amounts, n):
                values[name] |= {value + sum(some) for value in set(values[name])}
    return values


def runs(thread, block, start, values):
    """Every way through a thread, with every value that its reads might get: (events, registers)."""
    done = [([], {}, list(block))]
    while done:
        events, registers, rest = done.pop()
        if not rest:
            yield events, registers
            continue
        statement, rest = rest[0], rest[1:]
        if statement[0] == "if":
            taken = registers[statement[1]] == statement[2]
            done.append((events, registers, (list(statement[3]) if taken else []) + rest))
            continue
        for event, name, value in steps(thread, statement[1], start, values):
            after = dict(registers)
            if name is not None:
                after[name] = value
            done.append((events + ([event] if event else []), after, rest))


def steps(thread, code, start, values):
    """The possible events of one statement, and the register that it sets."""
    plain = re.match(r"\*(\w+) = (\d+)$", code)
    if plain:
        yield Event(thread, "write", plain.group(1), "plain", None, int(plain.group(2))), None, None
        return
    name, _, right = code.partition(" = ")
    if not right:
        name, right = None, code
    if re.fullmatch(r"\d+", right):
        yield None, name, int(right)
    elif re.fullmatch(r"\*\w+", right):
        for value in sorted(values[right[1:]]):
            yield Event(thread, "read", right[1:], "plain", value), name, value
    elif LOAD.match(right):
        where, order = LOAD.match(right).groups()
        for value in sorted(values[where]):
            yield Event(thread, "read", where, order, value), name, value
    elif STORE.match(right):
        where, value, order = STORE.match(right).groups()
        yield Event(thread, "write", where, order, None, int(value)), name, None
    elif ADD.match(right):
        where, amount, order = ADD.match(right).groups()
        for value in sorted(values[where]):
            yield Event(thread, "update", where, order, value, value + int(amount)), name, value
    elif SWAP.match(right):
        where, expected, value, order, other = SWAP.match(right).groups()
        for found in sorted(values[where]):
            if found == start[expected]:
                yield Event(thread, "update", where, order, found, int(value)), name, 1
            else:
                yield Event(thread, "read", where, other, found), name, 0
    elif FENCE.match(right):
        yield Event(thread, "fence", None, FENCE.match(right).group(1)), None, None
    else:
        raise ValueError("not understood: " + code)


def closure(pairs, n):
    """The transitive closure, as a list of sets of successors."""
    after = [set() for _ in range(n)]
    for a, b in pairs:
        after[a].add(b)
    changed = True
    while changed:
        changed = False
        for a in range(n):
            more = set().union(*(after[b] for b in after[a])) if after[a] else set()
            if not more <= after[a]:
                after[a] |= more
                changed = True
    return after


def synchronizes(events, po, source):
    """Pairs of a release pattern and the acquire pattern that reads from its release sequence."""
    pairs = set()
    for reader, writer in source.items():
        if events[reader].order == "plain":
            continue
        heads = [writer]
        # An update continues the release sequence of what it read. Executions in which updates read each
        # other in a circle are refused later.
        while events[heads[-1]].kind == "update" and source[heads[-1]] not in heads:
            heads.append(source[heads[-1]])
        starts, ends = set(), set()
        for head in heads:
            if events[head].order in RELEASE:
                starts.add(head)
            if events[head].order != "plain":
                starts |= {f for f in range(len(events)) if events[f].kind == "fence" and
                           events[f].order in RELEASE and (f, head) in po}
        if events[reader].order in ACQUIRE:
            ends.add(reader)
        ends |= {f for f in range(len(events)) if events[f].kind == "fence" and
                 events[f].order in ACQUIRE and (reader, f) in po}
        pairs |= {(a, b) for a in starts for b in ends}
    return pairs


def is_consistent(events, po, source, ranks, hb):
    """Coherence and atomicity. `ranks`: position of each write in the order of its location."""
    n = len(events)
    rf = {(writer, reader) for reader, writer in source.items()}
    mo = {(a, b) for a in ranks for b in ranks
          if events[a].where == events[b].where and ranks[a] < ranks[b]}
    rb = {(r, b) for r, w in source.items() for (a, b) in mo if a == w and b != r}
    for r, w in source.items():
        if events[r].writes() and ranks[r] != ranks[w] + 1:
            return False
    if any(a in after for a, after in enumerate(closure(po | rf, n))):
        return False
    eco = closure(rf | mo | rb, n)
    return not any(b == a or a in eco[b] for a in range(n) for b in hb[a])


def has_race(events, hb, n_start):
    for a, b in itertools.combinations(range(n_start, len(events)), 2):
        first, second = events[a], events[b]
        if first.where is not None and first.where == second.where and \
                first.thread != second.thread and (first.writes() or second.writes()) and \
                "plain" in (first.order, second.order) and b not in hb[a] and a not in hb[b]:
            return True
    return False


def executions(start, combination):
    """The executions that the model allows: whether they have a race."""
    events = [Event(-1, "write", name, "plain", None, value) for name, value in start.items()]
    n_start = len(events)
    po = set()
    for run, _ in combination:
        own = range(len(events), len(events) + len(run))
        po |= set(itertools.combinations(own, 2))
        events += run
    po |= {(a, b) for a in range(n_start) for b in range(n_start, len(events))}
    readers = [i for i, event in enumerate(events) if event.reads()]
    choices = [[w for w, other in enumerate(events) if w != r and other.writes() and
                other.where == events[r].where and other.written == events[r].read]
               for r in readers]
    writers = {name: [i for i in range(n_start, len(events))
                      if events[i].writes() and events[i].where == name] for name in start}
    for sources in itertools.product(*choices):
        source = dict(zip(readers, sources))
        hb = closure(po | synchronizes(events, po, source), len(events))
        for orders in itertools.product(*(itertools.permutations(ws) for ws in writers.values())):
            ranks = {i: 0 for i in range(n_start)}
            for order in orders:
                ranks.update({i: at + 1 for at, i in enumerate(order)})
            if is_consistent(events, po, source, ranks, hb):
                yield has_race(events, hb, n_start)


def decide(text):
    """-> (can the condition hold?, has an execution a race?)"""
    start, threads, condition = parse(text)
    values = domains(start, threads)
    holds = races = False
    all_runs = [list(runs(i, block, start, values)) for i, block in enumerate(threads)]
    for combination in itertools.product(*all_runs):
        final = {(i, name): value for i, (_, registers) in enumerate(combination)
                 for name, value in registers.items()}
        for race in executions(start, combination):
            holds = holds or eval(condition, {"final": final})
            races = races or race
    return holds, races
