# SPDX-License-Identifier: Apache-2.0
"""Translates transfers and trees of whole chunks into the text of gyre's programs.

A schedule of TE-CCL (its JSON, an all-gather): each line of "7-Flows" is one transfer of one chunk in one epoch; a rank
carries its transfers out in the order of the epochs. Chunk c of each rank's block becomes variant c of the programs, as
instances of MSCCL do.

Spanning trees (the XML of ForestColl's generator): the trees of each root have `nchunkspernode` chunks together, a tree of
w chunks counts w times, and tree v of all roots is variant v. An all-gather goes down the trees, a reduce-scatter up, an
all-reduce up and down."""
import json
import re

from msccl_file import MAX_FILE_BYTES, MAX_GPUS, MAX_VARIANTS, parse
from program_text import MAX_RECEIVED, MAX_SENT, Programs, Refused, Step

FLOW = re.compile(r"Chunk (\d+) from (\d+) traveled over (\d+)->(\d+)(?: with volume (\S+))? in epoch (\d+)"
                  r"(?: via switches? [\d, ]+)?$")
DEPTH = 8


def read_flows(path):
    """(line, epoch, chunk, source, sender, receiver) of all transfers, by epoch. Ranks are numbered without gaps, since
    TE-CCL's numbers leave out those of switches."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read(MAX_FILE_BYTES)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"is not JSON: {error}") from None
    if not isinstance(value, dict) or not isinstance(value.get("7-Flows"), list):
        raise Refused('has no list "7-Flows", so it is no schedule of TE-CCL')
    line, flows, at = 1, [], 0
    for flow in value["7-Flows"]:
        found = text.find(json.dumps(flow), at) if isinstance(flow, str) else -1
        line += text.count("\n", at, max(found, at))
        at = found + 1 if found >= 0 else at
        match = FLOW.match(flow) if isinstance(flow, str) else None
        if match is None:
            raise Refused(f'line {line}: is no transfer: "{flow}"; expected "Chunk C from S traveled over U->V in epoch E"')
        if match[5] is not None and float(match[5]) != 1:
            raise Refused(f"line {line}: moves {match[5]} of a chunk; gyre's chunks are not cut (all-to-all of TE-CCL)")
        chunk, source, sender, receiver, epoch = (int(match[i]) for i in (1, 2, 3, 4, 6))
        flows.append((line, epoch, chunk, source, sender, receiver))
    ranks = {rank: i for i, rank in enumerate(sorted({flow[i] for flow in flows for i in (3, 4, 5)}))}
    flows.sort(key=lambda flow: flow[1])
    return [(*flow[:3], *(ranks[rank] for rank in flow[3:])) for flow in flows], len(ranks)


def translate_teccl(path, file):
    flows, n_ranks = read_flows(path)
    n_chunks = max((flow[2] for flow in flows), default=-1) + 1
    if not 2 <= n_ranks <= MAX_GPUS or n_chunks > MAX_VARIANTS:
        raise Refused(f"has {n_ranks} ranks and {n_chunks} chunks a rank; gyre takes 2 to {MAX_GPUS} ranks and up to "
                      f"{MAX_VARIANTS} chunks")
    for chunk in range(n_chunks):
        programs = Programs("teccl", "all_gather", depth=DEPTH)
        programs.ranks = [[[Step(str(rank), ["in 0"], [f"out {rank}"])]] for rank in range(n_ranks)]
        arrived = {(rank, rank): -1 for rank in range(n_ranks)}  # (rank, block) -> epoch
        pending = []  # steps that receive: those of an epoch follow its sends
        mine = [flow for flow in flows if flow[2] == chunk]
        for i, (line, epoch, _, source, sender, receiver) in enumerate(mine):
            if arrived.get((sender, source), epoch) >= epoch:
                raise Refused(f"line {line}: rank {sender} sends chunk {chunk} of rank {source} in epoch {epoch}, but has "
                              "not received it before")
            if (receiver, source) in arrived:
                raise Refused(f"line {line}: rank {receiver} gets chunk {chunk} of rank {source} a second time")
            arrived[(receiver, source)] = epoch
            programs.ranks[sender][0].append(Step(str(source), [f"out {source}"], [f"to {receiver}"]))
            pending.append((receiver, Step(str(source), [f"from {sender}"], [f"out {source}"])))
            if i + 1 == len(mine) or mine[i + 1][1] != epoch:
                for rank, step in pending:
                    programs.ranks[rank][0].append(step)
                pending = []
        missing = next(((rank, block) for rank in range(n_ranks) for block in range(n_ranks)
                        if (rank, block) not in arrived), None)
        if missing is not None:
            raise Refused(f"rank {missing[0]} never gets chunk {chunk} of rank {missing[1]}: the flows do not add up to "
                          "an all-gather")
        file.write(programs.text())


# ---- spanning trees -------------------------------------------------------------------------------

def number_of(name):
    """Sorts (0, 'GPU', 10) behind (0, 'GPU', 9)."""
    return [int(digits) for digits in re.findall(r"-?\d+", name)]


def read_tree(tree, rank_of):
    """(root, weight, parents by rank, depths by rank)."""
    def rank(element, name):
        if element.text(name) not in rank_of:
            element.refuse(f'{element.name}: {name}="{element.text(name)}" is the root of no tree')
        return rank_of[element.text(name)]
    root, parents = rank(tree, "root"), {}
    for send in tree.named("send"):
        child = rank(send, "dst")
        if child in parents or child == root:
            send.refuse(f'send: {send.text("dst")} has the data already')
        parents[child] = rank(send, "src")
    depths = {root: 0}
    while len(depths) < len(rank_of):
        reached = {child: depths[parent] + 1 for child, parent in parents.items()
                   if parent in depths and child not in depths}
        if not reached:
            missing = next(name for name, number in rank_of.items() if number not in depths)
            tree.refuse(f'tree of root {tree.text("root")} does not reach {missing}')
        depths.update(reached)
    return root, tree.number("nchunks", 1, 1 << 20, 1), parents, depths


def add_steps(coll, root, parents, depths, timed):
    """Adds the steps of one tree to those of each rank in `timed`, each with its place in the order: (goes down, layer,
    root), which is the same at both ends of a connection."""
    result = "out 0" if coll == "reduce_scatter" else f"out {root}"
    for rank, depth in depths.items():
        def step(goes_down, inputs, outputs, flags=""):
            timed[rank].append(((goes_down, depth if goes_down else -depth, root), Step(str(root), inputs, outputs, flags)))
        children = [child for child, parent in parents.items() if parent == rank]
        sends = [f"to {child}" for child in children] if coll != "reduce_scatter" else []
        value = ["in 0" if coll == "all_gather" else f"in {root}"]
        if coll != "all_gather":
            received = [f"from {child}" for child in children]
            while len(received) > MAX_RECEIVED:
                step(False, value + received[:MAX_RECEIVED], ["scratch 0"])
                value, received = ["scratch 0"], received[MAX_RECEIVED:]
            value = value + received
        if rank == root:
            step(coll == "all_gather", value, [result, *sends[:MAX_SENT]], " final" if coll != "all_gather" else "")
        else:
            if coll != "all_gather":
                step(False, value, [f"to {parents[rank]}"])
            if coll != "reduce_scatter":
                step(True, [f"from {parents[rank]}"], [result, *sends[:MAX_SENT]])
        for at in range(MAX_SENT, len(sends), MAX_SENT):
            step(coll == "all_gather" or rank != root, [result], sends[at:at + MAX_SENT])


def translate_trees(path, file, coll="all_gather"):
    top = parse(path)
    trees = top.named("tree")
    names = sorted({tree.text("root") for tree in trees}, key=number_of)
    rank_of = {name: rank for rank, name in enumerate(names)}
    if not 2 <= len(names) <= MAX_GPUS:
        raise Refused(f"has trees of {len(names)} roots; gyre takes 2 to {MAX_GPUS} ranks")
    by_root = [[] for _ in names]
    for tree in trees:
        root, weight, parents, depths = read_tree(tree, rank_of)
        by_root[root] += [(parents, depths)] * weight
    n_chunks = top.number("nchunkspernode", 1, 1 << 20, len(by_root[0]))
    for name, mine in zip(names, by_root):
        if len(mine) != n_chunks:
            raise Refused(f"line {top.line}: the trees of root {name} have {len(mine)} chunks, nchunkspernode is {n_chunks}")
    if n_chunks > MAX_VARIANTS:
        raise Refused(f"line {top.line}: each root has {n_chunks} chunks; gyre takes up to {MAX_VARIANTS} (the generator's "
                      "fixed_K gives fewer)")
    for variant in range(n_chunks):
        programs, timed = Programs("trees", coll, depth=DEPTH), [[] for _ in names]
        programs.n_chunks = len(names) if coll == "all_reduce" else 1
        for root, mine in enumerate(by_root):
            add_steps(coll, root, *mine[variant], timed)
        programs.ranks = [[[step for _, step in sorted(steps, key=lambda each: each[0])]] for steps in timed]
        file.write(programs.text())
