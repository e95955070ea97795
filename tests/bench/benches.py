#!/usr/bin/env python3
"""Runs one case of the bench tests. The benches are started as their users start them, and their
output is parsed strictly.

    python3 tests/bench/benches.py CASE BENCH_DIR SOURCE_DIR
        (CASE: the name of a case_* function, without "case_")
"""

import sys

import cases_bottleneck
import cases_command
import cases_compare
import cases_launch
import cases_options
import cases_process
import cases_programs
import cases_reports
import cases_tools
import cases_trace

MODULES = [cases_bottleneck, cases_command, cases_launch, cases_process, cases_options, cases_reports,
           cases_compare, cases_tools, cases_programs, cases_trace]


def main():
    name, directory, source = sys.argv[1:]
    cases = [getattr(module, "case_" + name) for module in MODULES
             if hasattr(module, "case_" + name)]
    assert len(cases) == 1, f"{len(cases)} cases are called {name}"
    cases[0](directory, source)
    print(f"{name}: ok")


if __name__ == "__main__":
    main()
