#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The course (docs/course): its pages cannot rot.

    tests/course/course.py check PAGE BENCH_FOLDER SOURCE
        run every command of a page, and compare its output
    tests/course/course.py solutions BENCH_FOLDER SOURCE
        prove, run and predict the solution of each exercise
    tests/course/course.py update BENCH_FOLDER SOURCE [PAGE...]
        write the outputs and pictures of the pages anew, or of those whose names begin so

A command of a page is an indented line that begins with "$ ". The indented lines below it are its
output. What gyre schedule and gyre draw print is the same everywhere, so it must be equal. What
benches print depends on the machine: numbers may differ, and a line "..." stands for any lines.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../bench"))
from running import SKIPPED, clean_environment, needs_mpi_build, read_text, run, write_text
from open_mpi import for_open_mpi

INDENT = "    "
SECONDS = 100  # for one command
SOLUTIONS = 14  # of programs
BENCH_OF = {"all_reduce": "allreduce", "reduce_scatter": "reducescatter", "broadcast": "broadcast"}


class Command:
    """One command of a page. first, end: the lines of its output in the page."""

    def __init__(self, text, first):
        self.text, self.first, self.end = text, first, first

    def is_exact(self):
        return not re.search(r"(?<![\w.])gyre (?!schedule\b|draw\b|explain-choice\b)|protocols (?!.*cu$)|packets\.py|\.sh |stop\.txt", self.text)

    def needs_mpi(self):
        return re.search(r"mpirun|rail_down|wire\.host", self.text) is not None


def commands_of(lines):
    found = []
    is_open = False
    for number, line in enumerate(lines):
        if line.startswith(INDENT + "$ "):
            found.append(Command(line[len(INDENT) + 2:], number + 1))
            is_open = True
        elif is_open and found[-1].text.endswith("\\") and found[-1].first == number:
            found[-1].text = found[-1].text[:-1] + line.strip()
            found[-1].first = found[-1].end = number + 1
        elif is_open and line.startswith(INDENT):
            found[-1].end = number + 1
        else:
            is_open = False
    return found


def execute(command, folder, bench_folder):
    """The lines that a command prints in a folder that has docs/. They end without blanks, as the
    lines of pages do."""
    environment = {**clean_environment(), **(for_open_mpi() if command.needs_mpi() else {})}
    environment["CUDA_VISIBLE_DEVICES"] = ""  # the lessons measure host memory, whatever was built
    environment["PATH"] = os.path.realpath(bench_folder) + os.pathsep + environment["PATH"]
    environment["OMPI_MCA_rmaps_base_oversubscribe"] = "1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command.text], cwd=folder, env=environment,
                          capture_output=True, text=True, timeout=SECONDS, check=False)
    status = 1 if "--verify" in command.text and "course/wrong/" in command.text else 0  # the proof must fail
    assert done.returncode == status, f"$ {command.text}\nended with {done.returncode}\n{done.stdout}{done.stderr}"
    return [line.rstrip() for line in done.stdout.split("\n")[:-1]]


def mask(line):
    """A line without its numbers."""
    return re.sub(r"0x[0-9a-f]+|-?\d[\d.e+]*|\s+", " ", line).split()


def has_lines(wanted, lines):
    """Do the lines follow each other as a page shows them, but for their numbers?"""
    at, may_skip = 0, False
    for line in wanted:
        if line.strip() == "...":
            may_skip = True
            continue
        while may_skip and at < len(lines) and mask(lines[at]) != mask(line):
            at += 1
        if at == len(lines) or mask(lines[at]) != mask(line):
            return False
        at, may_skip = at + 1, False
    return may_skip or at == len(lines)


def check_command(page, command, lines, folder, bench_folder):
    if command.needs_mpi():
        needs_mpi_build(bench_folder)
        if subprocess.run(["which", "mpirun"], capture_output=True, check=False).returncode != 0:
            print("no mpirun here")
            sys.exit(SKIPPED)
    wanted = [line[len(INDENT):].rstrip() for line in lines[command.first:command.end]]
    printed = execute(command, folder, bench_folder)
    is_right = printed == wanted if command.is_exact() else has_lines(wanted, printed)
    assert is_right, "\n".join([f"{page}: $ {command.text}", "the page shows:", *wanted, "it prints:", *printed,
                                "(tests/course/course.py update writes the pages anew)"])


def open_folder(folder, source, bench_folder):
    """A folder from which the commands of pages find docs/course, what it names of the sources, and build."""
    for name in ("docs", "tests", "core", "kernels", "transport", "bootstrap"):
        os.symlink(os.path.join(os.path.realpath(source), name), os.path.join(folder, name))
    os.symlink(os.path.dirname(os.path.realpath(bench_folder)), os.path.join(folder, "build"))
    shutil.copy(os.path.join(source, "docs/course/solutions/5_one_hop.gyre"), os.path.join(folder, "mine.gyre"))  # lesson 5


def read_lines(path):
    return read_text(path).split("\n")


def pictures_in(folder, source):
    """The pictures that commands have drawn: (new, old) paths."""
    return [(path, os.path.join(source, "docs", "course", os.path.basename(path)))
            for path in sorted(glob.glob(os.path.join(folder, "*.svg")))]


def case_check(page, bench_folder, source):
    path = os.path.join(source, "docs", "course", page)
    lines = read_lines(path)
    commands = commands_of(lines)
    assert len(commands) >= 3, f"{page}: {len(commands)} commands"
    with tempfile.TemporaryDirectory() as folder:
        open_folder(folder, source, bench_folder)
        # Commands of MPI come last, because a machine without MPI skips them.
        for command in sorted(commands, key=Command.needs_mpi):
            if command.needs_mpi():
                check_pictures(lines, folder, source)
            check_command(page, command, lines, folder, bench_folder)
        check_pictures(lines, folder, source)
        check_ignored(folder, source)


def check_ignored(folder, source):
    """What the commands leave in the folder, the root of gyre's sources for a student, git must ignore."""
    left = [name for name in os.listdir(folder) if not os.path.islink(os.path.join(folder, name))]
    if left and shutil.which("git") and os.path.exists(os.path.join(source, ".git")):
        ignored = subprocess.run(["git", "-C", source, "-c", "safe.directory=*", "check-ignore", *left],
                                 capture_output=True, text=True, check=False)
        assert sorted(ignored.stdout.split()) == sorted(left), f".gitignore lacks one of {left}: {ignored}"


def check_pictures(lines, folder, source):
    pictures = pictures_in(folder, source)
    shown = set(re.findall(r"\]\((\w+\.svg)\)", "\n".join(lines)))
    assert shown <= {os.path.basename(new) for new, _ in pictures}, (shown, pictures)
    for new, old in pictures:
        assert read_lines(new) == read_lines(old), f"{old} is not what gyre draw draws"


def shape_of(path):
    """The collective and the ranks of a file of programs."""
    text = "\n".join(read_lines(path))
    return re.search(r"^program \w+ (\w+)$", text, re.M).group(1), int(re.search(r"^ranks (\d+)", text, re.M).group(1))


def check_solution(path, bench_folder):
    schedule = [os.path.join(bench_folder, "schedule"), "--file", path]
    coll, n_ranks = shape_of(path)
    proof = run([*schedule, "--rounds", "--verify"]).stdout
    assert "# proved out of place" in proof and "# proved in place" in proof, proof
    # -c 1: every element is compared with a sum that the bench computes by itself.
    measured = run([os.path.join(bench_folder, BENCH_OF[coll]), "-g", str(n_ranks), "--device", "host", "-b", "1K",
                    "-e", "256K", "-f", "16", "-n", "2", "-w", "1", "-c", "1", "--algo-file", path],
                   environment={"GYRE_DEBUG": "INFO", "GYRE_DEBUG_SUBSYS": "TUNING"})
    assert "# Out of bounds values : 0 OK" in measured.stdout, measured.stdout
    name = os.path.basename(path)[2:].split(".")[0]
    assert f"{name} (from the file)" in measured.stderr, f"{path} was not run\n{measured.stderr}"
    predicted = run([*schedule, "--predict", "--cost", "host", "--bytes", "1K:1M"]).stdout
    times = [float(line.split()[4]) for line in predicted.split("\n") if line and line[0] != "#"]
    assert len(times) == 6 and times == sorted(times) and times[0] > 0, predicted


def case_solutions(bench_folder, source):
    paths = sorted(glob.glob(os.path.join(source, "docs", "course", "solutions", "*.gyre")))
    assert len(paths) == SOLUTIONS, paths
    for path in paths:
        check_solution(path, bench_folder)
    check_course_command(source, bench_folder)
    # Exercise 6 begins with the programs of host 0, which the solution contains unchanged.
    half = "\n".join(line for line in read_lines(os.path.join(source, "docs", "course", "host0.gyre"))
                     if not line.startswith("#"))
    assert half.strip() in "\n".join(read_lines(paths[5])), f"{paths[5]} has another host 0"
    # Exercise 4 is about speed: two workers must overlap tiles.
    line = os.path.join(source, "docs", "course", "line.gyre")
    one, two = (run([os.path.join(bench_folder, "schedule"), "--predict", "--file", path, "--cost", "host", "--bytes",
                     "1M", "--tile", "64K"]).stdout.split("\n")[3].split()[4] for path in (line, paths[3]))
    assert float(two) < 0.6 * float(one), (one, two)


# (lesson, file of docs/course, replacements (old, new, old, new, ...), what gyre course says): mistakes that students make
MISTAKES = [
    (1, "solutions/1_backwards.gyre", ("chunk 1: in 1 -> to 3", "chunk 1: in 1 -> to 1"),
     "rank 0 sends to rank 1 (worker 0, chunk 1: in 1 -> to 1); the other way round it sends to rank 3 only"),
    (1, "solutions/1_backwards.gyre", ("program backwards", "program back"),
     "the file has programs of 2 names, back, backwards; all ranks need the same one"),
    (1, "solutions/1_backwards.gyre", ("program backwards", "program ring") * 4, "\"program\" is still ring"),
    (1, "line.gyre", None, "chunks is 1; a ring cuts the vector into as many chunks as there are ranks, 4"),
    (2, "solutions/2_heap.gyre", ("from 3 + from 4 -> to 0", "from 3 + from 4 -> to 2"),
     "rank 1 sends to rank 2 (worker 0, chunk 0: in 0 + from 3 + from 4 -> to 2); its parent and children are [0, 3, 4]"),
    (3, "solutions/3_first_shot.gyre", ("-> to 3\n", "-> to 3 with_next\n", "-> to 0\n", "-> to 0 with_next\n"),
     "; step 2 of rank 0 has with_next, so step 3 may come first"),
    (3, "solutions/1_backwards.gyre", None, "the collective is all_reduce; the exercise asks for reduce_scatter"),
    (4, "line.gyre", None, "tiles do not overlap yet; the worker of rank 0 waits for the result of a tile"),
    (5, "wrong/2_order.gyre", None, "the verifier: refused out of place: tile 0: out 0 of rank 1 was reduced in another order"),
    (5, "solutions/5_one_hop.gyre", ("  chunk 0: in 0 -> to 1\n", ""), "rank 0 has 1 step; one hop needs two"),
    (6, "solutions/1_backwards.gyre", None, "rank 0 sends to rank 3 of the other host (worker 0, chunk 1: in 1 -> to 3); its rail leads to rank 2"),
    (7, "cost.txt", None, "ring_messages has no number yet"),
    (7, "solutions/7_cost.txt", ("messages = 14", "messages = 7"), "ring_messages = 7: that is the first way round"),
    (7, "solutions/7_cost.txt", ("added = 917504", "added = 1835008"), "nothing is added on the second way round"),
    (7, "solutions/7_cost.txt", ("ring_us = 69.29", "ring_us = many"), "ring_us = many: not a number"),
    (7, "solutions/7_cost.txt", ("crossing_bytes = 617544", "crossing_bytes = 1235088"), "it is 2 times the right number; all but messages x alpha grows as V does"),
    (6, "solutions/6_two_levels.gyre", ("from 0 + scratch 0", "scratch 0 + from 0"),
     "another order than on rank 0: rank 0 (0+1)+(2+3): rank 2 (2+3)+(0+1)"),
    (9, "orders/1_post.litmus", None, "this outcome can still happen: exists (1:r1=0); P0 lacks release"),
    (9, "orders/3_apart.litmus", None, "; P0 lacks release, and P1 acquire"),
    (9, "orders/3_apart.litmus", ("load_explicit(flag, memory_order_relaxed", "load_explicit(flag, memory_order_release"),
     "a load can acquire, and a store can release"),
    (9, "orders/2_credit.litmus", ("load_explicit(head, memory_order_relaxed", "load_explicit(head, memory_order_acquire"),
     "there is a data race: a plain access is not ordered against the other one; P0 lacks release"),
    (9, "solutions/9_apart.litmus", ("store_explicit(data, 1, memory_order_relaxed", "store_explicit(data, 1, memory_order_release"),
     "right, but stronger than needed: \"atomic_store_explicit(data, 1, memory_order_release);\" may be relaxed"),
    (9, "solutions/9_post.litmus", ("exists (1:r1=0)", "exists (1:r1=9)"), "more than orders and the fence differs from 1_post.litmus"),
    (10, "fused.txt", None, "chunk_bytes has no number yet"),
    (10, "solutions/10_fused.txt", ("lines_cleared = 6144", "lines_cleared = 0"), "the receiver makes its lines zero again"),
    (11, "solutions/11_nccl.txt", ("algorithm_1m = tree", "algorithm_1m = ring"), "126 hops would take longer than all bytes of 1 MiB"),
    (11, "solutions/11_nccl.txt", ("algorithm_1g = ring", "algorithm_1g = Tree"), "at 1 GiB bytes count"),
    (12, "solutions/12_rdma.txt", ("first_sends = RTS", "first_sends = rtr"), "ready to receive only"),
    (12, "solutions/12_rdma.txt", ("window_ms = 3758.1", "window_ms = 3221.2"), "the first time counts as well"),
    (13, "solutions/13_failures.txt", ("timeout_slack_ms = 3000", "timeout_slack_ms = 1"), "GYRE_TIMEOUT in the lesson"),
    (13, "solutions/13_failures.txt", ("last_allowed = 8", "last_allowed = 9"), "5 slots were consumed"),
    (8, "wrong/8_race.gyre", None, "writes chunk 0 while rank 1 in its step 0 may write it"),
    (8, "solutions/8_final.gyre", ("ranks 2 rank 0", "ranks 3 rank 0"), "mend the steps"),
    (8, "solutions/1_backwards.gyre", None, "no file of docs/course/wrong has programs of the name backwards; keep the name"),
]


def check_course_command(source, bench_folder):
    """gyre course takes every solution, and names what is wrong with each mistake."""
    pages = os.path.join(source, "docs", "course")
    solutions = sorted(os.path.relpath(path, pages) for path in glob.glob(os.path.join(pages, "solutions", "*")))
    right = [(int(re.search(r"/(\d+)_", path)[1]), path, None, None) for path in solutions]
    with tempfile.TemporaryDirectory() as folder:
        open_folder(folder, source, bench_folder)
        for lesson, name, change, words in right + MISTAKES:
            text = "\n".join(read_lines(os.path.join(pages, name)))
            for old, new in zip((change or ())[::2], (change or ())[1::2]):
                assert old in text, (name, change)
                text = text.replace(old, new, 1)
            write_text(os.path.join(folder, "mine"), text)
            done = run([os.path.realpath(os.path.join(bench_folder, "gyre")), "course", str(lesson), "mine"],
                       status=0 if words is None else 1, cwd=folder)
            assert (words or f"exercise {lesson}: right") in done.stdout, (lesson, name, change, done.stdout)
        # An installation has no model of memory orders: the rest of exercise 9 is checked, and the missing file is named.
        os.remove(os.path.join(folder, "tests"))
        gyre = os.path.realpath(os.path.join(bench_folder, "gyre"))
        for name, words, status in (("solutions/9_post.litmus", "which is not here", 2), ("host0.gyre", "first line", 1)):
            done = run([gyre, "course", "9", os.path.join("docs", "course", name)], status=status, cwd=folder)
            assert words in done.stdout + done.stderr and "Traceback" not in done.stderr, done


def case_update(bench_folder, source, *only):
    for path in sorted(glob.glob(os.path.join(source, "docs", "course", "[0-9]*_*.md"))):
        if only and not os.path.basename(path).startswith(tuple(only)):
            continue
        with tempfile.TemporaryDirectory() as folder:
            open_folder(folder, source, bench_folder)
            lines = read_lines(path)
            commands = commands_of(lines)
            printed = [execute(command, folder, bench_folder) for command in commands]
            # From the end on, because the numbers of the lines behind a command change.
            for command, output in reversed(list(zip(commands, printed))):
                if command.is_exact() or command.first == command.end:
                    lines[command.first:command.end] = [(INDENT + line).rstrip() for line in output]
            for new, old in pictures_in(folder, source):
                with open(new, encoding="utf-8") as drawn, open(old, "w", encoding="utf-8") as file:
                    file.write(drawn.read())
            write_text(path, "\n".join(lines))


if __name__ == "__main__":
    {"check": case_check, "solutions": case_solutions, "update": case_update}[sys.argv[1]](*sys.argv[2:])
