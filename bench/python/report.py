# SPDX-License-Identifier: Apache-2.0
"""`gyre report` (bench/gyre.c starts it and prints its help).

    python3 bench/python/report.py TOOLS_FOLDER [options]      TOOLS_FOLDER has gyre and the benches

This file needs Python's own library alone: it reads the options, and lets python_packages.py find a
Python that has matplotlib and Jinja2.
"""
import argparse
import re
import shlex
import sys

from python_packages import go_to_python_with_packages, install
from report_sources import TRANSPORTS, collect, say_written

NEEDED = ("matplotlib", "jinja2")


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
    parser.add_argument("--sizes", type=sizes, default="1K:16M")
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
    from report_pages import write_pages  # imported here, because it needs the packages

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
