# SPDX-License-Identifier: Apache-2.0
"""Cases of a test script. A case is a function case_*; its docstring is a sentence that is true when it
passes. A case raises Failed, or Skipped with the reason."""
import subprocess
import time


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def check(condition, words):
    if not condition:
        raise Failed(words)


def cases_of(names):
    """The cases of a module, by name. @names: its globals()."""
    return {name[5:]: value for name, value in names.items() if name.startswith("case_")}


def run_cases(cases, rig):
    """Runs each case with the rig, and prints how it ended. Returns how many failed, and the sentences of
    those that were skipped with their reasons."""
    failed, skipped = 0, []
    for case in cases:
        began = time.monotonic()
        try:
            case(rig)
            print(f"ok   {case.__doc__} ({time.monotonic() - began:.1f} s)", flush=True)
        except Skipped as why:
            skipped.append(f"{case.__doc__}: {why}")
            print(f"skip {skipped[-1]}", flush=True)
        except (Failed, subprocess.TimeoutExpired) as problem:
            failed += 1
            print(f"FAIL {case.__doc__}\n     {problem}", flush=True)
    return failed, skipped
