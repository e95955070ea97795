#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/cluster.md: commands that need no cluster are run, and what they print is compared with the page;
of the others, options, ids of checks, variables and quoted messages must exist.

    python3 tests/docs/cluster.py BENCH_FOLDER SOURCE
"""
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
for folder in ("../bench", "../course", "../doctor"):
    sys.path.insert(0, os.path.join(HERE, folder))
import machines
from course import INDENT, commands_of, read_lines
from running import clean_environment, read_text

SECONDS = 100
GYRE = "build/bench/gyre "
DOCTOR_STATUS = range(4)  # 0 ok to 3 could not tell
# Words that the page quotes -> what a file of the sources has for them.
MESSAGES = {"no bench could be measured": ("no bench could be measured", "bench/python/report.py"),
            "it took longer than": ("it took longer than {seconds", "bench/python/report_runs.py"),
            "are needed": ("needed, for gyre report", "bench/python/report.py"),
            "not via ib: ": ("not via %s: ", "core/engine/links/choose.c"),
            "NET/IB : Using ": ("NET/IB : Using %s", "transport/ib/ib.c"),
            "NET/IB : not usable: ": ("NET/IB : not usable: %s", "transport/ib/ib.c")}


def is_shown(wanted, line):
    """Is it the line of the page? The page may cut its end: " ..."."""
    return line.startswith(wanted[:-4]) if wanted.endswith(" ...") else line == wanted


def shows(page, printed):
    """Do the printed lines follow each other as on the page, where "..." stands for any?"""
    if not page:
        return not printed
    if page[0].strip() == "...":
        return any(shows(page[1:], printed[at:]) for at in range(len(printed) + 1))
    return bool(printed) and is_shown(page[0], printed[0]) and shows(page[1:], printed[1:])


def run(words, tools, statuses=(0,), **variables):
    done = subprocess.run([os.path.join(tools, "gyre"), *words], capture_output=True, text=True, check=False,
                          timeout=SECONDS, env={**clean_environment(), "CUDA_VISIBLE_DEVICES": "", **variables})
    assert done.returncode in statuses, (words, done)
    return done.stdout.rstrip("\n").split("\n")


def compare(command, page, printed):
    wanted = [line[len(INDENT):] for line in page]
    assert shows(wanted, printed), "\n".join([f"$ {command}", "the page shows:", *wanted, "it prints:", *printed])


def words_of(command):
    """The words behind `gyre` that the shell would give it; quotes stay out of this."""
    return command[len(GYRE):].split("#")[0].split()


def check_doctor_of_adapter(commands, tools, folder):
    """Steps 7 and 8 show the doctor on a prepared machine."""
    machine = machines.roce_server()
    machine["proc/sys/kernel/hostname"] = "a"
    machines.Disk(folder).show(machine)
    shown = [c for c in commands if c.text.startswith(GYRE + "doctor --only rdma")]
    assert len(shown) == 2, shown
    for command in shown:
        compare(command.text, command.page, run([*words_of(command.text), "--root", folder], tools, DOCTOR_STATUS))


def check_doctor_here(commands, tools):
    """Steps 2 and 3 show another machine, so only the frame is the same."""
    shown = [c for c in commands if re.match(GYRE + r"doctor --(quiet|only net)", c.text)]
    assert len(shown) == 2, shown
    for command in shown:
        printed = run(words_of(command.text.split(";")[0]), tools, DOCTOR_STATUS)
        assert printed[0].startswith("gyre doctor on ") and re.fullmatch(
            r"\d+ fail, \d+ warn, \d+ unknown, \d+ ok, \d+ skipped", printed[-1]), printed


def check_others(commands, text, tools):
    bottleneck = next(c for c in commands if c.text.startswith(GYRE + "bottleneck"))
    compare(bottleneck.text, bottleneck.page, run(words_of(bottleneck.text), tools))
    assert "gyre nccl-path" in text and os.path.isabs(run(["nccl-path"], tools)[0])
    assert "gyre env --set" in text
    assert len(run(["env", "--set"], tools)) == 1, "the page says that it prints only a heading"
    assert "GYRE_IB_TC" in run(["env", "--set"], tools, GYRE_IB_TC="104")[1]


def check_names(commands, text, tools, source):
    """Options, ids of checks, variables and quoted messages."""
    helps = {}
    for command in commands:
        # Words behind -- are another program's.
        for name, words in re.findall(r"build/bench/(?:gyre )?(\w+)([^|;]*)", command.text.split(" -- ")[0]):
            name = "bench " + name if name == "allreduce" else name
            for option in re.findall(r"(?<= )--?[a-z][a-z-]*", words.split("'")[0]):
                helps.setdefault(name, "\n".join(run([*name.split(), "--help"], tools)))
                assert re.search(rf"(?<![\w-]){option}(?![\w-])", helps[name]), (command.text, option)
    listed = [line.split()[0] for line in run(["doctor", "--list"], tools)]
    groups = {check.split(".")[0] for check in listed}
    for check in re.findall(r"`(\w+\.\w+)`", text):
        assert check.split(".")[0] not in groups or check in listed, f"there is no check {check}"
    variables = "\n".join(run(["env"], tools))
    for variable in set(re.findall(r"\bGYRE_\w+", text)):
        assert variable in variables, f"there is no variable {variable}"
    for words, (printed, path) in MESSAGES.items():
        assert words in re.sub(r"\s+", " ", text), f"the page does not quote {words!r}"
        assert printed in read_text(os.path.join(source, path)), f"{path} does not print {printed!r}"


def main():
    tools, source = (os.path.realpath(path) for path in sys.argv[1:])
    lines = read_lines(os.path.join(source, "docs", "cluster.md"))
    commands = commands_of(lines)
    for command in commands:
        command.page = [line.rstrip() for line in lines[command.first:command.end]]
    assert len(commands) > 25, len(commands)
    with tempfile.TemporaryDirectory() as folder:
        check_doctor_of_adapter(commands, tools, os.path.join(folder, "machine"))
    check_doctor_here(commands, tools)
    text = "\n".join(lines)
    check_names(commands, text, tools, source)
    check_others(commands, text, tools)
    print("the commands of docs/cluster.md that need no cluster print what it shows")


if __name__ == "__main__":
    main()
