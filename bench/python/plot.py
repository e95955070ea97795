# SPDX-License-Identifier: Apache-2.0
"""`gyre plot` (bench/gyre.c starts it and prints its help).

    python3 bench/python/plot.py TOOLS_FOLDER [options] [LABEL=]FILE...
"""
import argparse
import html
import os
import sys

from plot_sources import check_fit, read_sources, table
from python_packages import go_to_python_with_packages, install
from report import amount
from report_sources import SourceError, say_written, write_whole

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
    sources = read_sources(options.files)
    written = []
    if wants_chart:
        check_fit(sources, options.y)
        go_to_python_with_packages("plot", NEEDED)
        write_whole(options.output, draw(sources, options))
        written.append(options.output)
    if options.table == "-":
        sys.stdout.write(table(sources))
        sys.stdout.flush()
    elif options.table:
        write_whole(options.table, table(sources))
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
