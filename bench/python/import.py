# SPDX-License-Identifier: Apache-2.0
"""`gyre import` (bench/gyre.c starts it and prints its help): an algorithm of another system as programs of gyre,
which are proved before they are written.

    python3 bench/python/import.py TOOLS_FOLDER [options] FILE
"""
import argparse
import io
import os
import subprocess
import sys

import from_flows
import from_msccl
import from_mscclpp
import program_text
from report_sources import write_whole

MOST_SLOTS = 4  # of a FIFO of a communicator
READERS = {"msccl": from_msccl.translate, "mscclpp": from_mscclpp.translate, "teccl": from_flows.translate_teccl,
           "trees": from_flows.translate_trees}


def format_of(path):
    """By what the file begins with and contains."""
    with open(path, "rb") as file:
        data = file.read(1 << 20)
    if data.lstrip()[:1] == b"<":
        return "trees" if b"<tree" in data else "msccl"
    return "teccl" if b'"7-Flows"' in data else "mscclpp"


def run(tools, options):
    def say(text):
        print(f"gyre import: {text}", file=sys.stderr)

    text = io.StringIO()
    reader = READERS[options.format or format_of(options.file)]
    reader(options.file, text, *([options.coll] if reader == from_flows.translate_trees else []))
    variants = program_text.parse(text.getvalue())
    asked = ("--any-order",) if options.any_order else ()

    def built_in(name):
        shape = ["--algo", name, "--coll", variants[0].coll, "--ranks", str(len(variants[0].ranks)),
                 "--root", str(variants[0].root)]
        done = subprocess.run([os.path.join(tools, "schedule"), *shape], capture_output=True, text=True, check=False)
        return program_text.parse(done.stdout)[0] if done.returncode == 0 else None

    own = None if options.as_written else program_text.recognize(variants, built_in)
    if own is not None:
        say(f"its chunks take the routes of gyre's {own[0].name}, whose programs stand for them")
        variants = own
    why = program_text.verify(tools, "".join(one.text() for one in variants), *asked)
    if why is not None:
        if not options.unproved:
            raise program_text.Refused(f"the programs are not proved: {why} (--unproved writes them nevertheless)")
        say(f"not proved: {why}")
    elif own is None and not options.as_written:
        variants = program_text.improve(variants, lambda changed: program_text.verify(tools, changed, *asked), say)
    if why is None:
        def depth_of(changed):
            return max(program_text.prove(tools, one.text(), *asked)[1] for one in changed)
        depth = depth_of(variants)
        if depth > MOST_SLOTS:
            changed = list(map(program_text.chunk_by_chunk, variants))
            proved = program_text.verify(tools, "".join(one.text() for one in changed), *asked) is None
            least = depth_of(changed) if proved else depth
            if least < depth:
                say(f"chunk by chunk: {least} slots of a FIFO are enough in place of {depth}")
                variants, depth = changed, least
        if depth > MOST_SLOTS:
            say(f"no communicator runs it: it needs {depth} slots of a FIFO, which has {MOST_SLOTS}")
        for one in variants:
            one.depth = depth
    result = "".join(one.text() for one in variants)
    if options.output:
        write_whole(options.output, result)
        say(f"wrote {options.output}: {variants[0].coll} of {len(variants[0].ranks)} ranks, "
            f"{'not ' if why else ''}proved")
    else:
        sys.stdout.write(result)


def main():
    parser = argparse.ArgumentParser(prog="gyre import", add_help=False, allow_abbrev=False,
                                     usage="gyre import [options] FILE (gyre import --help)")
    parser.add_argument("file")  # the options' help is in bench/gyre.c
    parser.add_argument("-o", "--output")
    parser.add_argument("--format", choices=sorted(READERS))
    parser.add_argument("--coll", choices=("all_gather", "reduce_scatter", "all_reduce"), default="all_gather")
    parser.add_argument("--as-written", action="store_true")
    parser.add_argument("--unproved", action="store_true")
    parser.add_argument("--any-order", action="store_true")
    tools, options = sys.argv[1], parser.parse_args(sys.argv[2:])
    try:
        run(tools, options)
    except program_text.Refused as refused:
        text = str(refused)
        print(f"gyre import: {options.file}{',' if text.startswith('line ') else ':'} {text}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"gyre import: {options.file}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
