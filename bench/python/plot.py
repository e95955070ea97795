# SPDX-License-Identifier: Apache-2.0
"""`gyre plot` (bench/gyre.c starts it and prints its help).

    python3 bench/python/plot.py TOOLS_FOLDER [options] [LABEL=]FILE...

It reads reports of benches, and the predictions of schedule, which take the form of a bench's report. Only
the chart needs more than Python's own library.
"""
import argparse
import csv
import html
import io
import os
import sys
from dataclasses import dataclass

import call_figure
from report import amount, go_to_python_with_packages, install
from report_sources import SourceError, check_bench, is_number, read_json, say_written, split_label, write_whole

NEEDED = ("matplotlib",)
KINDS = ("svg", "png", "pdf", "html")
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>body {{ font: 15px/1.5 sans-serif; margin: 2rem; }} svg {{ max-width: 100%; height: auto; }}
td, th {{ text-align: left; padding: 0 1rem 0 0; }}</style>
</head>
<body>
{svg}
<table>
<tr><th>curve</th><th>file</th><th>collective</th><th>ranks</th><th>hosts</th><th>gyre</th><th>date</th>
<th>other engine</th></tr>
{rows}
</table>
</body>
</html>
"""
# The columns of the tidy CSV (bench/report/table_file.c), behind the file.
COLUMNS = ("file", "engine", "version", "date", "machine", "device", "fabric", "ranks", "hosts", "collective", "dtype",
           "algorithm", "protocol", "channels", "bytes", "time_us", "busbw_gbytes_per_s", "ratio", "ratio_low",
           "ratio_high")
TIMES = ("time_us", "algbw_gbytes_per_s", "busbw_gbytes_per_s")


@dataclass
class Source:
    """One file, or the predictions of one algorithm in a file."""
    path: str
    label: str
    report: dict          # of a bench, or in the form of one
    hosts: int            # "" = unknown
    is_predicted: bool = False

    @property
    def ranks(self):
        return self.report["settings"].get("ranks", "")

    @property
    def version(self):
        return str(self.report.get("gyre_version", ""))

    @property
    def date(self):
        return str(self.report.get("started", ""))


def check_prediction(row, path):
    """SourceError unless the row is one of schedule's predictions."""
    if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in ("algorithm", "collective")) \
            or not all(isinstance(row.get(key), int) for key in ("ranks", "hosts", "bytes")):
        raise SourceError(f"{path}: a prediction lacks its algorithm, collective, ranks, hosts or bytes")
    if not all(is_number(row.get(key)) and row[key] >= 0 for key in TIMES):
        raise SourceError(f"{path}: the prediction of {row['algorithm']} for {row['bytes']} bytes has no times")


def predictions(report, label, path):
    """The sources of a report of schedule --predict: one for each algorithm."""
    if report.get("schema_version") != 1:
        raise SourceError(f"{path}: its schema_version is {report.get('schema_version')}, not 1")
    if not report["predictions"]:
        raise SourceError(f"{path}: has no predictions; schedule --predict --json writes them")
    groups = {}
    for row in report["predictions"]:
        check_prediction(row, path)
        groups.setdefault((row["algorithm"], row["collective"], row["ranks"], row["hosts"]), []).append(row)
    sources = []
    for (algorithm, collective, ranks, hosts), rows in groups.items():
        results = [{"type": "float", "machine": row.get("constants", ""), "fabric": row.get("fabric", ""),
                    **{key: row.get(key, "") for key in ("bytes", "algorithm", "protocol", "channels")},
                    "out_of_place": {key: row[key] for key in TIMES}} for row in rows]
        sources.append(Source(path, f"{label}: {algorithm}" if label else f"predicted {algorithm}",
                              {"collective": collective, "settings": {"ranks": ranks}, "results": results,
                               "gyre_version": report.get("gyre_version", ""), "started": report.get("written", "")},
                              hosts, True))
    if label and len(sources) == 1:
        sources[0].label = label
    return sources


def hosts_of(report):
    """The number of hosts, or "" if it is unknown."""
    return len({str(place.get("host")) for place in report["places"] if isinstance(place, dict)}) or ""


def name_of(path):
    return os.path.splitext(os.path.basename(path))[0]


def bench_source(report, label, path):
    """The source of a bench's report."""
    limit = check_bench(report, path)["settings"].get("limit_gbytes_per_s")
    if limit is not None and not (is_number(limit) and limit > 0):
        raise SourceError(f"{path}: its limit_gbytes_per_s is not a number above 0")
    for row in report["results"]:
        if not is_number(row.get("predicted_us", 0)):
            raise SourceError(f"{path}: the predicted time of {row['bytes']} bytes is not a number")
    return Source(path, label or name_of(path), report, hosts_of(report))


def contenders(report, label, path):
    """The sources of a report of --compare-algos: one for each algorithm."""
    groups = {}
    for row in report["contenders"]:
        if not isinstance(row, dict) or not isinstance(row.get("algorithm"), str) \
                or not isinstance(row.get("bytes"), int) \
                or not all(is_number(row.get(key)) and row[key] >= 0 for key in TIMES):
            raise SourceError(f"{path}: an entry of its contenders lacks its algorithm, bytes or times")
        groups.setdefault(row["algorithm"], []).append(
            {**row, "out_of_place": {key: row[key] for key in TIMES}})
    return [Source(path, f"{label or name_of(path)}: {algorithm}", {**report, "results": results}, hosts_of(report))
            for algorithm, results in groups.items()]


def is_of_contenders(value):
    """Is this the report of a bench that ran with --compare-algos?"""
    return isinstance(value.get("contenders"), list) and value["contenders"] and not value.get("results") \
        and isinstance(value.get("places"), list) and isinstance(value.get("settings"), dict) \
        and isinstance(value.get("collective"), str)


def check_comparison(value, path):
    """A summary of gyre compare; SourceError if rows lack what is drawn."""
    rows = value.get("rows")
    if not isinstance(rows, list) or not all(
            isinstance(row, dict) and isinstance(row.get("bytes"), int) and isinstance(row.get("candidate"), str)
            and all(is_number(row.get(key)) for key in ("median_us", "busbw_gbytes_per_s"))
            and all(row.get(key) is None or is_number(row[key]) for key in ("ratio", "ratio_lo", "ratio_hi"))
            for row in rows) or value.get("first") not in [row["candidate"] for row in rows]:
        raise SourceError(f"{path}: is no whole summary of gyre compare")
    return value


def draw_comparison(path, value, sources, options):
    """The bytes or the text of the chart of a comparison, beside predictions."""
    import report_charts
    wrong = next((source for source in sources if not source.is_predicted
                  or (source.report["collective"], source.ranks) != (value["collective"], value["ranks"])), None)
    if wrong is not None:
        raise SourceError(f"{wrong.path}: beside {path} only predictions of {value['collective']} for {value['ranks']} "
                          "ranks can be drawn")
    predicted = [(source.label, source.report) for source in sources]
    curves = report_charts.comparison_curves(value, predicted, options.limit)
    title = options.title or f"{value['collective']}, {value['ranks']} ranks, {value['launches']} launches"
    axis, kind = f"time / time of {value['first']}", output_kind(options.output)
    if kind != "html":
        return report_charts.draw_file(curves, title, axis, kind)
    cells = (value["first"], path, value["collective"], value["ranks"], len(value["hosts"]), "", "", "")
    return PAGE.format(title=html.escape(title), svg=report_charts.draw(curves, title, axis),
                       rows="<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in cells) + "</tr>")


def read_sources(texts):
    """The sources of [LABEL=]FILE texts. SourceError names the file that cannot be used."""
    sources = []
    for text in texts:
        label, path = split_label(text)
        value = read_json(path)
        if isinstance(value, dict) and isinstance(value.get("predictions"), list):
            sources += predictions(value, label, path)
        elif isinstance(value, dict) and is_of_contenders(value):
            sources += contenders(value, label, path)
        elif not isinstance(value, dict) or "results" not in value:
            raise SourceError(f"{path}: is neither the report of a bench (--json) nor of schedule --predict --json")
        else:
            sources.append(bench_source(value, label, path))
    return sources


def check_fit(sources, what):
    """SourceError unless the sources can be drawn in one chart, under labels that differ."""
    first = sources[0]
    for source in sources:
        name, other = source.report["collective"], first.report["collective"]
        if what == "time" and name != other:
            raise SourceError(f"{source.path}: is of {name}, but {first.path} is of {other}; different collectives "
                              "move different amounts of data, so their times do not belong in one chart. "
                              "--y busbw takes that into account")
        sizes = [row["bytes"] for row in source.report["results"]]
        repeated = [size for size in sizes if sizes.count(size) > 1]
        if repeated:
            raise SourceError(f"{source.path}: has several rows of {repeated[0]} bytes (cycles, types or roots); a curve "
                              "needs one for each size")
    labels = [source.label for source in sources]
    for source, label in zip(sources, labels):
        if labels.count(label) > 1:
            source.label = f"{label} ({source.path}, {source.ranks} ranks on {source.hosts} hosts)"
    if len({source.report["collective"] for source in sources}) > 1:
        for source in sources:
            source.label += f", {source.report['collective']}"


def machine_of(report):
    """The host of rank 0 of a bench's report; "" if it is unknown."""
    places = [place for place in report.get("places", ()) if isinstance(place, dict)]
    return next((place.get("host", "") for place in places if place.get("rank") == 0), "")


def lines_of(source, row):
    """The values of COLUMNS for each engine that a row has times of. Unknown ones are left out."""
    timing, rounds = row["out_of_place"], row.get("comparison")
    settings = source.report["settings"]
    same = {"file": source.path, "version": source.version, "date": source.date, "ranks": source.ranks,
            "hosts": source.hosts, "collective": source.report["collective"], "bytes": row["bytes"],
            "machine": row.get("machine", machine_of(source.report)),
            "device": settings.get("device", ""), "fabric": row.get("fabric", ""), "dtype": row.get("type", "")}
    own = {"engine": "predicted" if source.is_predicted else "gyre",
           **{key: row.get(key, "") for key in ("algorithm", "protocol", "channels")},
           **{key: f"{row[key]:.6g}" for key in ("ratio", "ratio_low", "ratio_high") if is_number(row.get(key))}}
    times = [(own, rounds["gyre_us"] if rounds else timing["time_us"])]
    if rounds:
        times.append(({"engine": settings.get("reference") or "reference"}, rounds["reference_us"]))
    factor = timing["busbw_gbytes_per_s"] / timing["algbw_gbytes_per_s"] if timing["algbw_gbytes_per_s"] else 0
    return [{**same, **engine, "time_us": f"{us:.6g}",
             "busbw_gbytes_per_s": f"{row['bytes'] / (us * 1e3) * factor if us > 0 else 0:.6g}"}
            for engine, us in times]


def table_text(sources):
    """All rows of all sources as CSV: a line for each engine and size."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for source in sources:
        for row in source.report["results"]:
            writer.writerows(lines_of(source, row))
    return text.getvalue()


def output_kind(path):
    """The kind of the file, by its ending."""
    kind = os.path.splitext(path)[1][1:].lower()
    if kind not in KINDS:
        raise argparse.ArgumentTypeError(f"{path}: its ending is not one of {', '.join('.' + kind for kind in KINDS)}")
    return kind


def output_path(path):
    output_kind(path)
    return path


def make_parser():
    """The options, whose help is in bench/gyre.c."""
    parser = argparse.ArgumentParser(prog="gyre plot", add_help=False, allow_abbrev=False,
                                     usage="gyre plot [options] [LABEL=]FILE... (gyre plot --help)")
    parser.add_argument("files", nargs="*")
    parser.add_argument("-o", "--output", type=output_path)
    parser.add_argument("--y", choices=("time", "busbw"), default="time")
    parser.add_argument("--title")
    parser.add_argument("--call", type=int)
    parser.add_argument("--limit", type=amount)
    parser.add_argument("--predicted", action="store_true")
    parser.add_argument("--table")
    parser.add_argument("--install", action="store_true")
    return parser


def curves_of_sources(sources, options):
    """All curves of the chart. SourceError if a file has nothing that logarithmic axes can show."""
    import report_charts
    curves = []
    for source in sources:
        found = report_charts.curves_of(source.label, source.report, options.y, options.predicted)
        if not found or not all(value > 0 for curve in found for value in curve.values):
            raise SourceError(f"{source.path}: has no {options.y} above 0, which logarithmic axes need"
                              + (" (busbw is 0 for one rank)" if options.y == "busbw" else ""))
        if source.is_predicted:
            found[0].style = report_charts.PREDICTED
        curves += found
    pairs = [(source.label, source.report) for source in sources]
    return curves + report_charts.limit_curves(pairs, options.y, options.limit)


def draw(sources, options):
    """The bytes or the text of the chart's file."""
    import report_charts
    names = dict.fromkeys(source.report["collective"] for source in sources)
    title = options.title or f"{', '.join(names)}: {options.y} over size"
    axis, kind = report_charts.AXIS_TEXT[options.y], output_kind(options.output)
    curves = curves_of_sources(sources, options)
    if kind != "html":
        return report_charts.draw_file(curves, title, axis, kind)
    rows = ["".join(f"<td>{html.escape(str(cell))}</td>" for cell in (
        source.label, source.path, source.report["collective"], source.ranks, source.hosts, source.version,
        source.date, source.report["settings"].get("reference", ""))) for source in sources]
    return PAGE.format(title=html.escape(title), svg=report_charts.draw(curves, title, axis),
                       rows="\n".join(f"<tr>{row}</tr>" for row in rows))


def write_files(options):
    """Writes the chart and the table, as far as they are asked for. Returns their paths."""
    wants_chart = options.output is not None or options.table is None
    options.output = options.output or "gyre_plot.svg"
    first = read_json(split_label(options.files[0])[1])
    if call_figure.is_trace(first):
        files = [(path, read_json(path)) for path in options.files]
        if output_kind(options.output) != "svg" or not all(call_figure.is_trace(value) for _, value in files):
            raise SourceError(f"{options.files[0]} is a trace: give traces only, and a name that ends in .svg")
        write_whole(options.output, call_figure.draw_call(files, options.call, options.title))
        return [options.output]
    if isinstance(first, dict) and first.get("kind") == "gyre compare":
        path = split_label(options.files[0])[1]
        if options.table is not None:
            raise SourceError(f"{path}: --table has no lines of it; gyre compare has written a CSV beside it")
        value, sources = check_comparison(first, path), read_sources(options.files[1:])
        go_to_python_with_packages("plot", NEEDED)
        write_whole(options.output, draw_comparison(path, value, sources, options))
        return [options.output]
    sources = read_sources(options.files)
    written = []
    if wants_chart:
        check_fit(sources, options.y)
        go_to_python_with_packages("plot", NEEDED)
        write_whole(options.output, draw(sources, options))
        written.append(options.output)
    if options.table == "-":
        sys.stdout.write(table_text(sources))
        sys.stdout.flush()
    elif options.table:
        write_whole(options.table, table_text(sources))
        written.append(options.table)
    return written


def main():
    parser = make_parser()
    options = parser.parse_intermixed_args(sys.argv[2:])
    if options.install:
        return install("plot")
    if not options.files:
        parser.error("name at least one report")
    # Beside a table in the standard output, what was written is no line of the table.
    out = sys.stderr if options.table == "-" else sys.stdout
    return say_written("plot", lambda: write_files(options), out)


if __name__ == "__main__":
    sys.exit(main())
