#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/tutorials: every program is run, and prints what the page shows. Ranks are threads, so the lines come in any
order.

    python3 tests/docs/tutorials.py check BUILD SOURCE [cc]
    python3 tests/docs/tutorials.py update BUILD SOURCE [cc]      write the page's outputs anew
"""
import glob
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
for folder in ("../bench", "../course"):
    sys.path.insert(0, os.path.join(HERE, folder))
from course import INDENT, commands_of, read_lines
from extend import blocks_of
from running import clean_environment, read_text, write_text

NO_GPU = 77
N_PROGRAMS = 10


def build_plug_in(source, folder, cc):
    """libxor.so, from the page that has its source."""
    text = next(block for block in blocks_of(read_text(os.path.join(source, "docs", "extend.md"))) if block.startswith("// xor.c"))
    write_text(os.path.join(folder, "xor.c"), text)
    subprocess.run([cc, "-shared", "-fPIC", f"-I{source}", "-o", "libxor.so", "xor.c"], cwd=folder, check=True)


def outputs(commands, build, folder):
    """The sorted lines of each command, or None where the program needs a GPU and there is none."""
    os.symlink(build, os.path.join(folder, "build"))
    for command in commands:
        words = command.text.split()
        if not os.path.exists(os.path.join(folder, words[0])):
            assert words[0].endswith("_graph"), f"{words[0]} was not built"
            yield None
            continue
        done = subprocess.run(words, cwd=folder, env=clean_environment(), capture_output=True, text=True, timeout=100,
                              check=False)
        assert done.returncode in (0, NO_GPU), (command.text, done)
        yield None if done.returncode == NO_GPU else sorted(done.stdout.rstrip("\n").split("\n"))


def main():
    is_update = sys.argv[1] == "update"
    build, source = (os.path.realpath(path) for path in sys.argv[2:4])
    page = os.path.join(source, "docs", "tutorials", "README.md")
    lines = read_lines(page)
    commands = commands_of(lines)
    programs = {"tutorial_" + os.path.basename(path)[:-len(".c")]
                for path in glob.glob(os.path.join(source, "docs", "tutorials", "*.c"))} | {"example_all_reduce"}
    named = [os.path.basename(command.text.split()[0]) for command in commands]
    assert sorted(named) == sorted(programs) and len(programs) == N_PROGRAMS, (named, programs)
    n_skipped = 0
    with tempfile.TemporaryDirectory() as folder:
        build_plug_in(source, folder, sys.argv[4] if len(sys.argv) > 4 else "cc")
        printed = list(outputs(commands, build, folder))
    for command, output in reversed(list(zip(commands, printed))):
        shown = sorted(line[len(INDENT):] for line in lines[command.first:command.end])
        n_skipped += output is None
        if is_update and output is not None:
            lines[command.first:command.end] = [INDENT + line for line in output]
        else:
            assert output in (None, shown), "\n".join(["$ " + command.text, "the page shows:", *shown, "it prints:", *output])
    if is_update:
        write_text(page, "\n".join(lines))
    print(f"{N_PROGRAMS - n_skipped} programs print what docs/tutorials shows, {n_skipped} need a GPU")


if __name__ == "__main__":
    main()
