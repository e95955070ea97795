#!/usr/bin/env python3
"""No circles of symbols in the folders of a communicator: the object files of a folder use no symbol
of a folder above it (check_tree.py lists the folders), and no two files use each other, directly or
through others.

    python3 .ci/check_symbols.py object...
"""

import os
import glob
import os
import subprocess
import sys

from check_tree import COMM_FOLDERS


def source_of(path):
    """core/engine/plan/plan.c of build/.../core/engine/plan/plan.c.o; None if it is in none of the folders."""
    at = path.rfind("/core/")
    source = path[at + 1:].removesuffix(".o") if at >= 0 else ""
    return source if folder_of(source) is not None else None


def folder_of(source):
    """The index in COMM_FOLDERS."""
    folder = os.path.dirname(source)
    return COMM_FOLDERS.index(folder) if folder in COMM_FOLDERS else None


def read_symbols(path):
    """(defined, used) global symbols of an object file."""
    text = subprocess.run(["nm", "-g", path], capture_output=True, text=True, check=True).stdout
    defined, used = set(), set()
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2:
            (used if words[-2] in "Uw" else defined).add(words[-1])
    return defined, used


def find_circle(edges):
    """A list of nodes that closes, or None."""
    done = set()

    def visit(node, trail):
        if node in trail:
            return trail[trail.index(node):] + [node]
        if node in done:
            return None
        for target in sorted(edges[node]):
            circle = visit(target, trail + [node])
            if circle:
                return circle
        done.add(node)
        return None

    return next(filter(None, (visit(node, []) for node in sorted(edges))), None)


def main():
    symbols = {}
    for path in sys.argv[1:]:
        if source_of(path) is not None:
            symbols[source_of(path)] = read_symbols(path)
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    missing = [folder for i, folder in enumerate(COMM_FOLDERS)  # core/engine itself has headers only
               if glob.glob(f"{root}/{folder}/*.c") and not any(folder_of(source) == i for source in symbols)]
    if missing:
        print(f"check_symbols: no object file of {', '.join(missing)} was given")
        return 1
    home = {name: source for source, (defined, _) in symbols.items() for name in defined}
    edges = {source: set() for source in symbols}
    n_problems = 0
    for source, (_, used) in sorted(symbols.items()):
        for name in sorted(used):
            target = home.get(name, source)
            if target != source:
                edges[source].add(target)
            if folder_of(target) > folder_of(source):
                print(f"{source}: uses {name} of {target}, which is above it")
                n_problems += 1
    circle = find_circle(edges)
    if circle:
        print("circle of symbols: " + " -> ".join(circle))
        n_problems += 1
    print(f"check_symbols: {len(symbols)} files, {n_problems} violations")
    return 1 if n_problems else 0


if __name__ == "__main__":
    sys.exit(main())
