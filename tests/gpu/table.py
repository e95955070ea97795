#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/performance.md, from the reports that tests/gpu/compare wrote, and that of
their predictions in docs/tuning.md.

    tests/gpu/table.py                 write the tables into the pages
    tests/gpu/table.py --check         exit status 1 if a page has other tables
    tests/gpu/table.py --print FOLDER  print the table of the reports in FOLDER
    tests/gpu/table.py --keep FOLDER   put what the tables need of FOLDER's reports into docs/performance

A table stands in a page between <!-- table NAME --> and <!-- end -->. NAME is `summary`, `limits`,
`predictions`, or a file of docs/performance without its suffix (`h200` for the reports of its folder). A name
that begins with `h100`, of two ranks, gets a table with one column for each collective.
"""
import functools
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
LEFT_OUT = {4096, 16384, 262144, 67108864}  # of the tables of sizes, which are long
# Rows of the summary: set of reports, what was measured.
SUMMARY = [("h200", "f32, plain"), ("h200-bf16", "bf16, plain"), ("h200-best", "f32, best"),
           ("h200-tiny", "f32, best"), ("h200-windows", "f32, best, W"), ("h200-registered", "f32, best, W")]

# Rows of the predictions: set of reports, ranks, what was measured.
PREDICTED = [("h200", 2, "2 H200"), ("h200", 4, "4 H200"), ("h100-nvlink-2.32", 2, "2 H100"),
             ("h100-nvlink-2.32-windows", 2, "2 H100, windows"),
             ("rails", 2, "[2 hosts of namespaces](across_hosts.md#measured)"),
             ("rails", 4, "[4 hosts of namespaces](across_hosts.md#measured)")]

# What the tables need of a row and of its comparison.
KEPT = ("bytes", "algorithm", "protocol", "blocks", "path", "predicted_us")
KEPT_COMPARED = ("gyre_us", "reference_us", "reference_mode", "ratio", "ratio_low", "ratio_high", "gyre_host_us",
                 "reference_host_us")


def size_text(n_bytes):
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if n_bytes >= 1 << shift:
            return f"{n_bytes >> shift} {unit}"
    return f"{n_bytes} B"


def keep_row(row):
    """Of a row of a report: what the tables need, flat."""
    kept = {key: row[key] for key in KEPT if row.get(key) is not None}
    kept |= {key: row["comparison"][key] for key in KEPT_COMPARED if key in row.get("comparison", {})}
    for key in ("time_us", "busbw_gbytes_per_s"):
        kept[key] = row["out_of_place"][key]
    return {key: float(f"{value:.7g}") if isinstance(value, float) else value for key, value in kept.items()}


def keep_report(report):
    settings = report.get("settings", {})
    return {"command": report.get("command"), "started": report.get("started"),
            "reference": settings.get("reference"),
            "places": sorted({place["words"] for place in report.get("places", [])}),
            "rows": [keep_row(row) for row in report["results"]]}


@functools.cache
def reports_of(path):
    """The reports of a folder, or of a file that --keep wrote, by "COLLECTIVE-RANKS"."""
    file = path.with_name(path.name + ".json")
    if file.exists():
        return json.loads(file.read_text())
    return {report.stem: keep_report(json.loads(report.read_text())) for report in path.glob("*-[24].json")}


def keep(folder):
    """One row a line."""
    parts = []
    for name, report in sorted(reports_of(folder).items()):
        rows = ",\n".join("      " + json.dumps(row) for row in report["rows"])
        head = json.dumps({key: value for key, value in report.items() if key != "rows"})
        parts.append(f"  {json.dumps(name)}: {head[:-1]}, \"rows\": [\n{rows}\n  ]}}")
    (REPORTS / (folder.name + ".json")).write_text("{\n" + ",\n".join(parts) + "\n}\n")


def read_rows(folder, collective, n_ranks):
    """Compared rows by size; none where there is no report."""
    rows = reports_of(folder).get(f"{collective}-{n_ranks}", {"rows": []})["rows"]
    return {row["bytes"]: row for row in rows if "ratio" in row and row["bytes"] > 0}


def number(value):
    """Three digits or more."""
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def host_times(compared):
    """The time that an enqueue takes on the host, gyre's and the other engine's."""
    return f"{number(compared['gyre_host_us'])} / {number(compared['reference_host_us'])}"


def cells(row, is_eager):
    if row is None:
        return ["", "", "", "", ""]
    choice = f"{row['algorithm']} {row['protocol']} x{row['blocks']}"
    if row.get("path") == "copy_engine":
        choice += " ce"
    if is_eager:
        choice = host_times(row)
    window = MODE_LETTERS.get(row.get("reference_mode"), "")
    busbw = row["busbw_gbytes_per_s"] * row["time_us"] / row["gyre_us"]
    return [choice, number(row["gyre_us"]), number(row["reference_us"]) + window, f"{row['ratio']:.2f}",
            number(busbw)]


def line(words):
    """Without blanks: rows of twelve columns must not be too wide."""
    return "|" + "|".join(words) + "|"


def folder_table(folder):
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
    return lines


def mean_and_lowest(ratios):
    if not ratios:
        return ""
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return f"{mean:.2f} ({min(ratios):.2f})"


def summary_cell(folder, collective, n_ranks):
    ratios = [row["ratio"] for row in read_rows(folder, collective, n_ranks).values()]
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
    if name == "limits":
        return limits_table()
    if name == "predictions":
        return predictions_table()
    if name.startswith("h100"):
        return narrow_table(REPORTS / name)
    return folder_table(REPORTS / name)


def predictions_table():
    """Predicted over measured time, out of place, of all sizes for which a report has both."""
    lines = [line(["reports", "sizes", "median error", "predicted / measured"]), line(["---"] * 4)]
    for name, n_ranks, text in PREDICTED:
        quotients = [row["predicted_us"] / row["time_us"] for key, report in sorted(reports_of(REPORTS / name).items())
                     for row in report["rows"]
                     if key.endswith(f"-{n_ranks}") and row.get("predicted_us") and row["time_us"]]
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
            row = by_name[name].get(size)
            words.append(f"{number(row['gyre_us'])}, {row['ratio']:.2f}" if row else "")
        lines.append(line(words))
    return lines


def fill(page):
    def replaced(match):
        return match.group(1) + "\n" + "\n".join(table(match.group(2))) + "\n" + match.group(3)
    return re.sub(r"(<!-- table (\S+) -->)\n.*?(<!-- end -->)", replaced, page, flags=re.S)


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--keep"] and len(arguments) == 2:
        keep(pathlib.Path(arguments[1]))
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
