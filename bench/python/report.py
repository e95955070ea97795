# SPDX-License-Identifier: Apache-2.0
"""`gyre report` (bench/gyre.c starts it and prints its help).

    python3 bench/python/report.py TOOLS_FOLDER [options]      TOOLS_FOLDER has gyre and the benches

This file needs Python's own library alone: it reads the options, and finds a Python that has matplotlib
and Jinja2, for gyre plot, too.
"""
import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import namedtuple

from report_sources import TRANSPORTS, collect, say_written

NEEDED = ("matplotlib", "jinja2")
Package = namedtuple("Package", "pip debian")
PACKAGES = {"matplotlib": Package("matplotlib", "python3-matplotlib"),  # by the name of the module
            "jinja2": Package("Jinja2", "python3-jinja2")}
SYSTEM_PYTHON = "/usr/bin/python3"
PROBE_SECONDS = 60     # until an import of the packages has ended
INSTALL_SECONDS = 900  # for each step of --install


def venv_folder():
    """Where --install puts the packages."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "gyre", "report-venv")


def has_packages(python, needed):
    """Can this interpreter import all these packages?"""
    # Without the current folder: a folder there that is called matplotlib is not the package.
    code = "import sys; sys.path = [path for path in sys.path if path]; import " + ", ".join(needed)
    try:
        return subprocess.run([python, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              timeout=PROBE_SECONDS, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def install(command_name):
    """Makes the virtual environment, with the packages of all commands. Returns the exit status."""
    folder = venv_folder()
    python = os.path.join(folder, "bin", "python3")
    for command in ([sys.executable, "-m", "venv", folder],
                    [python, "-m", "pip", "install", "--quiet", *(package.pip for package in PACKAGES.values())]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS,
                                  check=False)
            problem = (done.stderr or done.stdout).strip() if done.returncode != 0 else ""
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = str(error)
        if problem:
            print(f"gyre {command_name} --install: {' '.join(command)} failed:\n{problem}\n"
                  "(on Debian and Ubuntu venv is in the package python3-venv)", file=sys.stderr)
            shutil.rmtree(folder, ignore_errors=True)  # a half-made one would be taken for whole
            return 1
    print(f"matplotlib and Jinja2 are in {folder}; remove that folder to undo this")
    return 0


def find_python(needed):
    """An interpreter that has the packages, this one if it has; None if no one has."""
    return next((python for python in (sys.executable, os.path.join(venv_folder(), "bin", "python3"), SYSTEM_PYTHON)
                 if has_packages(python, needed)), None)


def go_to_python_with_packages(command_name, needed):
    """Returns if this interpreter has the packages; otherwise starts one that has them, with this
    script and its arguments. @needed: names of modules."""
    python = find_python(needed)
    if python == sys.executable:
        return
    if python is not None:
        os.execv(python, [python, "-B", *sys.argv])
    names = " and ".join(PACKAGES[module].pip for module in needed)
    sys.exit(f"gyre {command_name}: {names} {'are' if len(needed) > 1 else 'is'} needed, for gyre report and gyre "
             f"plot alone: run\n    apt-get install {' '.join(PACKAGES[module].debian for module in needed)}\n"
             f"or, without root, gyre {command_name} --install")


def amount(text):
    """A number above 0."""
    number = float(text)
    if not 0 < number < 1e9:
        raise argparse.ArgumentTypeError(f"{text}: expected a number above 0")
    return number


def count(text):
    """A whole number from 1 on."""
    number = int(text)
    if not 1 <= number <= 16384:
        raise argparse.ArgumentTypeError(f"{text}: expected a number from 1 to 16384")
    return number


def sizes(text):
    """Two sizes, FIRST:LAST."""
    if not re.fullmatch(r"\d+[KMG]?:\d+[KMG]?", text):
        raise argparse.ArgumentTypeError(f"{text}: expected FIRST:LAST, as in 1K:16M")
    return text


def n_bytes(text):
    """A size above 0, such as 14G."""
    if not re.fullmatch(r"[1-9]\d{0,17}[KMGT]?", text):
        raise argparse.ArgumentTypeError(f"{text}: expected a size, as in 14G")
    return int(text.rstrip("KMGT")) << 10 * (" KMGT".index(text[-1]) if text[-1] in "KMGT" else 0)


def transports(text):
    """Names of transports, separated by commas."""
    for transport in text.split(",") if text else []:
        if transport not in TRANSPORTS:
            raise argparse.ArgumentTypeError(f"{transport}: there are {', '.join(TRANSPORTS)}")
    return text


def words(text):
    """Options of benches, in the quotes of a shell."""
    try:
        shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from error
    return text


def make_parser():
    """The options, whose help is in bench/gyre.c."""
    parser = argparse.ArgumentParser(prog="gyre report", add_help=False, allow_abbrev=False,
                                     usage="gyre report [options] (gyre report --help)")
    parser.add_argument("--output", default="gyre_report")
    parser.add_argument("--title", default="gyre optimization report")
    parser.add_argument("--json", action="append", default=[])
    parser.add_argument("--doctor")
    parser.add_argument("--log", action="append", default=[])
    parser.add_argument("--ddp")
    parser.add_argument("--limit", type=amount)
    parser.add_argument("--ranks", type=count, default=2)
    parser.add_argument("--launch", default="")
    parser.add_argument("--transports", type=transports, default="")
    parser.add_argument("--sizes", type=sizes)
    parser.add_argument("--scale", default="")
    parser.add_argument("--step", type=n_bytes)
    parser.add_argument("--compute-ms", type=amount)
    parser.add_argument("--env")
    parser.add_argument("--bench", type=words, default="")
    parser.add_argument("--seconds", type=amount, default=120)
    parser.add_argument("--install", action="store_true")
    return parser


def main():
    tools = sys.argv[1]
    options = make_parser().parse_args(sys.argv[2:])
    if options.install:
        return install("report")
    go_to_python_with_packages("report", NEEDED)
    from report_model import write_pages  # imported here, because it needs the packages

    def write():
        sources = collect(tools, options)
        paths = write_pages(sources, options)
        if not sources.runs:
            print("gyre report: no bench could be measured; the last section of the pages says why",
                  file=sys.stderr)
        return paths
    return say_written("report", write)


if __name__ == "__main__":
    sys.exit(main())
