# SPDX-License-Identifier: Apache-2.0
"""Translates a file of spanning trees (ForestColl's generator writes it) into the text of gyre's programs. Each root has
trees of `nchunkspernode` chunks together, a tree of w chunks counts w times, and tree v of all roots is variant v. An
all-gather goes down the trees, a reduce-scatter up, an all-reduce up and down."""
import re

from msccl_file import MAX_GPUS, MAX_VARIANTS, parse
from program_text import MAX_RECEIVED, MAX_SENT, Programs, Refused, Step

DEPTH = 8


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


def translate(path, file, coll="all_gather"):
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
