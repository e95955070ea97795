#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/performance.md, from the reports that tests/gpu/compare wrote.

    tests/gpu/table.py                 write the tables into docs/performance.md
    tests/gpu/table.py --check         exit status 1 if the page has other tables
    tests/gpu/table.py --print FOLDER  print the table of the reports in FOLDER
    tests/gpu/table.py --compact FILE...    rewrite reports with one row a line

A table stands in the page between <!-- table NAME --> and <!-- end -->. NAME is `summary`, `limits`,
or a folder of docs/performance (`.` for the reports directly in it).
"""
import json
import math
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "performance.md"
REPORTS = ROOT / "docs" / "performance"
COLLECTIVES = ["allreduce", "allgather", "reducescatter", "broadcast", "reduce"]
LEFT_OUT = {4096}  # of the tables of sizes, which are long
# Rows of the summary: folder, what was measured.
SUMMARY = [(".", "f32, plain"), ("bf16", "bf16, plain"), ("best", "f32, best"), ("tiny", "f32, best"),
           ("windows", "f32, best, W"), ("registered", "f32, best, W")]


def size_text(n_bytes):
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if n_bytes >= 1 << shift:
            return f"{n_bytes >> shift} {unit}"
    return f"{n_bytes} B"


def read_rows(folder, collective, n_ranks):
    """Rows by size; none where there is no report."""
    file = folder / f"{collective}-{n_ranks}.json"
    if not file.exists():
        return {}
    results = json.loads(file.read_text())["results"]
    return {row["bytes"]: row for row in results if "comparison" in row and row["bytes"] > 0}


def number(value):
    """Three digits or more."""
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def cells(row):
    if row is None:
        return ["", "", "", "", ""]
    compared = row["comparison"]
    choice = f"{row['algorithm']} {row['protocol']} x{row['blocks']}"
    if row.get("path") == "copy_engine":
        choice += " ce"
    window = " w" if compared.get("reference_mode") == "window" else ""
    scale = row["out_of_place"]["time_us"] / compared["gyre_us"]
    busbw = row["out_of_place"]["busbw_gbytes_per_s"] * scale
    return [choice, number(compared["gyre_us"]), number(compared["reference_us"]) + window,
            f"{compared['ratio']:.2f}", number(busbw)]


def line(words):
    """Without blanks: rows of twelve columns must not be too wide."""
    return "|" + "|".join(words) + "|"


def folder_table(folder):
    head = ["gyre us", "NCCL us", "ratio", "GB/s"]
    lines = [line(["", "size", "2 GPUs"] + head + ["4 GPUs"] + head), line(["---"] * 12)]
    for name in COLLECTIVES:
        by_ranks = [read_rows(folder, name, n_ranks) for n_ranks in (2, 4)]
        words = name
        for size in sorted(set().union(*by_ranks) - LEFT_OUT):
            lines.append(line([words, size_text(size)] +
                              [cell for rows in by_ranks for cell in cells(rows.get(size))]))
            words = ""
    return lines


def summary_cell(folder, collective, n_ranks):
    ratios = [row["comparison"]["ratio"] for row in read_rows(folder, collective, n_ranks).values()]
    if not ratios:
        return ""
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return f"{mean:.2f} ({min(ratios):.2f})"


def summary_table():
    lines = ["| measured | sizes | GPUs |" + "".join(f" {name} |" for name in COLLECTIVES),
             "|---|---|---|" + "---|" * len(COLLECTIVES)]
    for name, words in SUMMARY:
        folder = REPORTS / name
        for n_ranks in (2, 4):
            row = [summary_cell(folder, collective, n_ranks) for collective in COLLECTIVES]
            if not any(row):
                continue
            sizes = set().union(*(read_rows(folder, collective, n_ranks)
                                  for collective in COLLECTIVES))
            span = f"{size_text(min(sizes))} to {size_text(max(sizes))}"
            lines.append(line([words, span, str(n_ranks)] + row))
    return lines


PATHS = [("sm_store", "stores of 16 B to the next GPU"),
         ("sm_load", "loads of 16 B from the next GPU"),
         ("tma_store", "TMA stores of 16 KiB, one thread a block")]


def limits_table():
    limits = json.loads((REPORTS / "limits.json").read_text())
    ring = max(limits["rings"], key=lambda ring: ring["gpus"])
    rates = {(rate["path"], rate["blocks"]): rate["gbytes_per_s"]
             for rate in ring["rates"] if rate.get("blocks")}
    blocks = sorted({n for _, n in rates})
    lines = [f"| {ring['gpus']} GPUs, blocks |" + "".join(f" {n} |" for n in blocks),
             "|---|" + "---|" * len(blocks)]
    for path, words in PATHS:
        lines.append(f"| {words} |" + "".join(f" {rates[path, n]:.1f} |" for n in blocks))
    return lines


def table(name):
    if name == "summary":
        return summary_table()
    if name == "limits":
        return limits_table()
    return folder_table(REPORTS / name)


def fill(page):
    def replaced(match):
        return match.group(1) + "\n" + "\n".join(table(match.group(2))) + "\n" + match.group(3)
    return re.sub(r"(<!-- table (\S+) -->)\n.*?(<!-- end -->)", replaced, page, flags=re.S)


def compact(file):
    """One line for each key, one for each entry of a list of objects."""
    report = json.loads(file.read_text())
    parts = []
    for key, value in report.items():
        text = json.dumps(value)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            text = "[\n" + ",\n".join("    " + json.dumps(entry) for entry in value) + "\n  ]"
        parts.append(f"  {json.dumps(key)}: {text}")
    file.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--compact"] and len(arguments) > 1:
        for name in arguments[1:]:
            compact(pathlib.Path(name))
    elif arguments[:1] == ["--print"] and len(arguments) == 2:
        print("\n".join(folder_table(pathlib.Path(arguments[1]))))
    elif arguments in ([], ["--check"]):
        page = PAGE.read_text()
        filled = fill(page)
        if not arguments:
            PAGE.write_text(filled)
        elif filled != page:
            sys.exit("the tables of docs/performance.md are not those of the reports in "
                     "docs/performance: run tests/gpu/table.py")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
