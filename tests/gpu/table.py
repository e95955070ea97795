#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/performance.md, from the reports that tests/gpu/compare wrote, and that of
their predictions in docs/tuning.md.

    tests/gpu/table.py                 write the tables into the pages
    tests/gpu/table.py --check         exit status 1 if a page has other tables
    tests/gpu/table.py --print FOLDER  print the table of the reports in FOLDER
    tests/gpu/table.py --compact FILE...    rewrite reports with one row a line

A table stands in a page between <!-- table NAME --> and <!-- end -->. NAME is `summary`, `paths`,
`limits`, `predictions`, or a folder of docs/performance (`.` for the reports directly in it). A folder below
`h100`, of two ranks, gets a table with one column for each collective. Where a folder has no
reports of some or of all collectives, the table says so and how to get them.
"""
import json
import math
import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "docs" / "performance.md", ROOT / "docs" / "tuning.md"]
REPORTS = ROOT / "docs" / "performance"
COLLECTIVES = ["allreduce", "allgather", "reducescatter", "broadcast", "reduce"]
ALL_COLLECTIVES = COLLECTIVES + ["sendrecv", "alltoall", "gather", "scatter"]
# Behind NCCL's time: the mode that was fastest, if it was not that of plain buffers.
MODE_LETTERS = {"window": " w", "registered": " r", "zero-sm": " z"}
LEFT_OUT = {4096}  # of the tables of sizes, which are long
# Rows of the summary: folder, what was measured.
SUMMARY = [(".", "f32, plain"), ("bf16", "bf16, plain"), ("best", "f32, best"), ("tiny", "f32, best"),
           ("windows", "f32, best, W"), ("registered", "f32, best, W")]

# The paths that ranks can take: folder, VIA and MODE of tests/gpu/compare.
VIAS = [(".", "nvlink", "graph"), ("eager", "nvlink", "eager"), ("shm", "shm", "graph"),
        ("shm/eager", "shm", "eager"), ("socket", "socket", "graph"),
        ("socket/eager", "socket", "eager"), ("nic", "nic", "graph"), ("nic/eager", "nic", "eager")]

# Rows of the predictions: the reports, what was measured.
PREDICTED = [("*-2.json", "2 H200"), ("*-4.json", "4 H200"),
             ("h100/nvlink-2.32/*.json", "2 H100"), ("h100/nvlink-2.32-windows/*.json", "2 H100, windows"),
             ("rails/2-hosts.json", "[2 hosts of namespaces](across_hosts.md#measured)"),
             ("rails/4-hosts.json", "[4 hosts of namespaces](across_hosts.md#measured)")]


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


def host_times(compared):
    """The time that an enqueue takes on the host, gyre's and the other engine's."""
    return f"{number(compared['gyre_host_us'])} / {number(compared['reference_host_us'])}"


def cells(row, is_eager):
    if row is None:
        return ["", "", "", "", ""]
    compared = row["comparison"]
    choice = f"{row['algorithm']} {row['protocol']} x{row['blocks']}"
    if row.get("path") == "copy_engine":
        choice += " ce"
    if is_eager:
        choice = host_times(compared)
    window = MODE_LETTERS.get(compared.get("reference_mode"), "")
    scale = row["out_of_place"]["time_us"] / compared["gyre_us"]
    busbw = row["out_of_place"]["busbw_gbytes_per_s"] * scale
    return [choice, number(compared["gyre_us"]), number(compared["reference_us"]) + window,
            f"{compared['ratio']:.2f}", number(busbw)]


def line(words):
    """Without blanks: rows of twelve columns must not be too wide."""
    return "|" + "|".join(words) + "|"


def path_of(folder):
    """VIA and MODE of a folder that holds the reports of a path; None of any other folder."""
    return {REPORTS / name: (via, mode) for name, via, mode in VIAS}.get(folder)


def command_of(path, missing):
    """How to get the reports that a path lacks."""
    via, mode = path
    names = "" if missing == ALL_COLLECTIVES else f' NAMES="{" ".join(missing)}"'
    mode = "" if mode == "graph" else f" MODE={mode}"
    return f"`VIA={via}{mode}{names} tests/gpu/compare FOLDER`"


def missing_lines(folder):
    """What a path's table lacks. Other folders hold the collectives that somebody chose."""
    missing = [name for name in ALL_COLLECTIVES
               if not any((folder / f"{name}-{n_ranks}.json").exists() for n_ranks in (2, 4))]
    if not missing or path_of(folder) is None:
        return []
    what = "any collective" if missing == ALL_COLLECTIVES else ", ".join(missing)
    return ["", f"No report of {what}.", f"To measure: {command_of(path_of(folder), missing)}"]


def folder_table(folder):
    if missing_lines(folder)[1:2] == ["No report of any collective."]:
        return missing_lines(folder)[1:]
    head = ["gyre us", "NCCL us", "ratio", "GB/s"]
    is_eager = folder.name == "eager"
    first = [f"{n} GPUs, host us" if is_eager else f"{n} GPUs" for n in (2, 4)]
    lines = [line(["", "size", first[0]] + head + [first[1]] + head), line(["---"] * 12)]
    for name in ALL_COLLECTIVES:
        by_ranks = [read_rows(folder, name, n_ranks) for n_ranks in (2, 4)]
        words = name
        for size in sorted(set().union(*by_ranks) - LEFT_OUT):
            lines.append(line([words, size_text(size)] +
                              [cell for rows in by_ranks for cell in cells(rows.get(size), is_eager)]))
            words = ""
    return lines + missing_lines(folder)


def versions_of(folder):
    """The engines that the folder's reports compare gyre with, and the reports' number."""
    found = [json.loads(file.read_text()) for file in sorted(folder.glob("*-[24].json"))]
    names = {report["settings"]["reference"].split(",")[0] for report in found}
    return ", ".join(sorted(names)), len(found)


def paths_table():
    """One row a path: the geometric mean of the ratios of all collectives and sizes, the lowest."""
    lines = ["| path | calls | compared with | reports | 2 GPUs | 4 GPUs |", "|---|---|---|---|---|---|"]
    for name, via, mode in VIAS:
        folder = REPORTS / name
        rival, n_reports = versions_of(folder)
        means = []
        for n_ranks in (2, 4):
            ratios = [row["comparison"]["ratio"] for collective in ALL_COLLECTIVES
                      for row in read_rows(folder, collective, n_ranks).values()]
            means.append(mean_and_lowest(ratios))
        cells_of_row = [rival, str(n_reports)] + means if n_reports else ["no report", "", "", ""]
        lines.append("| " + " | ".join([via, mode] + cells_of_row) + " |")
    return lines


def mean_and_lowest(ratios):
    if not ratios:
        return ""
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return f"{mean:.2f} ({min(ratios):.2f})"


def summary_cell(folder, collective, n_ranks):
    ratios = [row["comparison"]["ratio"] for row in read_rows(folder, collective, n_ranks).values()]
    return mean_and_lowest(ratios)


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
    if name == "paths":
        return paths_table()
    if name == "limits":
        return limits_table()
    if name == "predictions":
        return predictions_table()
    if name.startswith("h100/"):
        return narrow_table(REPORTS / name)
    return folder_table(REPORTS / name)


def prediction_quotients(file):
    """Predicted over measured time, out of place, of all sizes for which a report has both."""
    report = json.loads(file.read_text())
    if "rows" in report:  # of tests/lab/rails.py
        return [row["predicted_us"] / row["gyre_us"] for row in report["rows"]]
    return [row["predicted_us"] / row["out_of_place"]["time_us"] for row in report["results"]
            if row.get("predicted_us") and row["out_of_place"]["time_us"]]


def predictions_table():
    lines = [line(["reports", "sizes", "median error", "predicted / measured"]), line(["---"] * 4)]
    for pattern, text in PREDICTED:
        quotients = [q for file in sorted(REPORTS.glob(pattern)) for q in prediction_quotients(file)]
        error = statistics.median(abs(quotient - 1) for quotient in quotients)
        lines.append(line([text, str(len(quotients)), f"{100 * error:.1f} %",
                           f"{min(quotients):.2f} to {max(quotients):.2f}"]))
    return lines


def narrow_table(folder):
    """gyre's time and the ratio of each size."""
    by_name = {name: read_rows(folder, name, 2) for name in ALL_COLLECTIVES}
    names = [name for name in ALL_COLLECTIVES if by_name[name]]
    lines = [line(["size"] + [f"{name}" for name in names]), line(["---"] * (len(names) + 1))]
    for size in sorted(set().union(*by_name.values())):
        words = [size_text(size)]
        for name in names:
            compared = by_name[name].get(size, {}).get("comparison")
            words.append(f"{number(compared['gyre_us'])}, {compared['ratio']:.2f}" if compared else "")
        lines.append(line(words))
    return lines


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
        for path in PAGES:
            page = path.read_text()
            filled = fill(page)
            if not arguments:
                path.write_text(filled)
            elif filled != page:
                sys.exit(f"the tables of docs/{path.name} are not those of the reports in "
                         "docs/performance: run tests/gpu/table.py")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
