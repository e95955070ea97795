# SPDX-License-Identifier: Apache-2.0
"""Compares what the cases measured on gyre with NCCL and gloo, from the files CASE-ENGINE-ROUND.json."""
import glob
import json
import os
import statistics

ENGINES = ("gyre", "nccl", "gloo")


def runs_of(folder, case):
    """Engine -> the results of its runs; engines without a run are left out."""
    runs = {}
    for engine in ENGINES:
        for path in sorted(glob.glob(os.path.join(folder, f"{case}-{engine}-*.json"))):
            with open(path, encoding="utf-8") as file:
                runs.setdefault(engine, []).append(json.load(file))
    return runs


def check_losses(case, runs, tolerance_at):
    """Errors where gyre's losses differ from those of another engine. @tolerance_at: step -> relative."""
    errors = []
    ours = runs["gyre"][0]["losses"]
    for engine in ENGINES[1:]:
        for step, (a, b) in enumerate(zip(ours, runs[engine][0]["losses"]) if engine in runs else ()):
            if abs(a - b) > tolerance_at(step) * max(abs(a), abs(b)) + 1e-4 * tolerance_at(0):
                errors.append(f"{case}: loss of step {step}: {a} on gyre, {b} on {engine}")
                break
    return errors


def report_ddp(runs):
    """The runs of gyre have the same bits, NCCL's and gloo's curves the same shape; times."""
    errors = []
    first = runs["gyre"][0]
    if len(runs["gyre"]) < 2:
        errors.append("one run on gyre is not enough to compare its bits")
    for other in runs["gyre"][1:]:
        if first["losses"] != other["losses"] or first["hash"] != other["hash"]:
            errors.append("two runs on gyre differ")
    # Training amplifies the last bits: the beginning must agree closely, the end by and large.
    errors += check_losses("ddp", runs, lambda step: 1e-4 if step < 20 else 5e-2)
    print("DDP, ms per iteration (median of the runs; all of them):")
    medians = {}
    for engine in ENGINES:
        if engine not in runs:
            print(f"  {engine:<5} not run")
            continue
        times = [result["ms_per_iteration"] for result in runs[engine]]
        medians[engine] = statistics.median(times)
        print(f"  {engine:<5} {medians[engine]:9.3f}  ({' '.join(f'{ms:.3f}' for ms in times)})")
    if "nccl" in medians:
        print(f"  NCCL's time / gyre's: {medians['nccl'] / medians['gyre']:.3f}")
    return errors


def report_case(case, runs):
    """Losses, where the case has some, and each of its times beside NCCL's."""
    ours, others = runs["gyre"][0], runs.get("nccl", [None])[0]
    errors = check_losses(case, runs, lambda step: 1e-4) if "losses" in ours else []
    for name, ms in ours["times"].items():
        beside = ""
        if others:
            theirs = others["times"][name]
            beside = f", NCCL {theirs:.3f}, NCCL's / gyre's {theirs / ms:.3f}"
        print(f"{case}: {name}: gyre {ms:.3f}{beside}")
    if "losses" in ours and others:
        same = ours["losses"] == others["losses"]
        print(f"{case}: losses {'have the same bits as' if same else 'are close to'} NCCL's")
    return errors


def report(folder):
    """Prints everything; the exit status."""
    errors = []
    paths = glob.glob(os.path.join(folder, "*-gyre-1.json"))
    for case in sorted(os.path.basename(path).split("-")[0] for path in paths):
        runs = runs_of(folder, case)
        errors += report_ddp(runs) if case == "ddp" else report_case(case, runs)
    for error in errors:
        print("FAILED", error)
    return 1 if errors else 0
