# SPDX-License-Identifier: Apache-2.0
"""Charts of benches' reports: time and busbw over size, as SVG text that can stand in an HTML page, or
as a file of another format.

Nothing here reads files or knows of `gyre report` and `gyre plot`: the input is the JSON value of a
bench's --json.
"""
import io
import textwrap
from dataclasses import dataclass, field

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402 (the back end must be chosen first)
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: E402

# Colours that remain apart for colour-blind readers (Okabe and Ito, 2008).
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"]
LEGEND_COLUMNS = 60
LIMIT_COLOUR = "#555555"
MEASURED, REFERENCE, PREDICTED, LIMIT = "-", "--", "-.", ":"  # the styles of lines
AXIS_TEXT = {"time": "time of a call, us", "busbw": "busbw, GB/s"}
# In charts of comparisons a candidate has the same colour and marker in each chart, by its place here.
CANDIDATES = ("gyre", "nccl", "ring", "tree", "twoshot", "doubling", "halving", "nccl-best", "gyre-best", "direct",
              "spread", "bruck", "pat", "mpi", "two_level_ring", "two_level_tree")
LEAST_BOUND = 0.05  # of the first candidate's time
MARKERS = "osD^v"
# Without dates the same reports give the same file.
METADATA = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}


@dataclass
class Curve:
    """One line of a chart. `low` and `high` are the edges of a band, or empty."""
    label: str
    sizes: list
    values: list
    low: list = field(default_factory=list)
    high: list = field(default_factory=list)
    style: str = MEASURED
    candidate: str = ""   # of a comparison: chooses colour and marker


def bus_factor(row):
    """busbw / algbw of a row, which depends on the collective and the ranks alone."""
    timing = row["out_of_place"]
    algbw = timing["algbw_gbytes_per_s"]
    return timing["busbw_gbytes_per_s"] / algbw if algbw > 0 else 1.0


def times_of(row):
    """(time, lowest, highest) of one row in us: of the rounds of --compare if there are any, else of
    the calls that were timed alone. The edges are None where they are unknown."""
    rounds = row.get("comparison")
    if rounds:
        return rounds["gyre_us"], rounds.get("gyre_min_us"), rounds.get("gyre_p99_us")
    timing = row["out_of_place"]
    single = timing.get("single_calls_us", {})
    return timing["time_us"], single.get("min"), single.get("p99")


def busbw_of(row, us):
    """GB/s of a call that takes so many microseconds."""
    return row["bytes"] / (us * 1e3) * bus_factor(row)


def band(edges):
    """The edges of a band, if each of them is known and above 0 (axes are logarithmic)."""
    return edges if all(edge is not None and edge > 0 for edge in edges) else []


def drawn_rows(report):
    """The rows that logarithmic axes can show, by size."""
    return sorted((row for row in report["results"] if times_of(row)[0] > 0 and row["bytes"] > 0),
                  key=lambda row: row["bytes"])


def curves_of(label, report, what, with_predicted=False):
    """The curves of one report: gyre's, and the rival's if the report has one.
    @what: "time" (us) or "busbw" (GB/s). @with_predicted: the times that gyre predicted for its own
    calls, too, if the report has them."""
    rows = drawn_rows(report)

    def value(row, us):
        return us if what == "time" or us is None else busbw_of(row, us)

    sizes = [row["bytes"] for row in rows]
    times = [times_of(row) for row in rows]
    edges = [[value(row, time[i]) if time[i] else None for row, time in zip(rows, times)] for i in (1, 2)]
    low, high = (band(edge) for edge in (edges if what == "time" else reversed(edges)))
    curves = [Curve(label, sizes, [value(row, time[0]) for row, time in zip(rows, times)],
                    low if high else [], high if low else [])]
    rival = [row for row in rows if row.get("comparison", {}).get("reference_us", 0) > 0]
    if rival:
        # How the engine was set up follows a comma, too long for a legend.
        name = str(report["settings"].get("reference") or "reference").split(",")[0]
        curves.append(Curve(f"{label}: {name}", [row["bytes"] for row in rival],
                            [value(row, row["comparison"]["reference_us"]) for row in rival],
                            style=REFERENCE))
    predicted = [row for row in rows if with_predicted and row.get("predicted_us", 0) > 0]
    curves.append(Curve(f"{label}: predicted", [row["bytes"] for row in predicted],
                        [value(row, row["predicted_us"]) for row in predicted], style=PREDICTED))
    return [curve for curve in curves if curve.sizes]


def limit_curves(reports, what, limit=None):
    """The limits of links: a line of constant busbw, or the times that it allows. Reports with the same
    limit share one line.
    @reports: (label, report) pairs. @limit: GB/s, in place of what the reports say."""
    found = {}
    for label, report in reports:
        known = limit or report["settings"].get("limit_gbytes_per_s")
        for row in drawn_rows(report) if known else []:
            factor = round(bus_factor(row), 4)  # rows of one report differ in the last digits
            key = (known, factor if what == "time" else None)
            value = known if what == "busbw" else row["bytes"] * factor / (known * 1e3)
            if value > 0:  # one rank moves nothing
                found.setdefault(key, (label, {}))[1][row["bytes"]] = value
    return [Curve(f"limit, {known:g} GB/s" + (f" ({label})" if len(found) > 1 else ""), sorted(values),
                  [values[size] for size in sorted(values)], style=LIMIT)
            for (known, _), (label, values) in found.items()]


def size_text(size, _=None):
    """65536 -> 64 KiB: the largest unit of which the size is a whole or a short part."""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power and float(f"{size / (1 << power):.4g}") * (1 << power) == size:
            return f"{size / (1 << power):.4g} {unit}"
    return f"{size:.0f} B"


def legend_text(label):
    """The label as matplotlib shows it literally: $ would begin a formula, a leading _ hide the line."""
    return textwrap.fill((" " if label.startswith("_") else "") + label.replace("$", r"\$"), LEGEND_COLUMNS)


def comparison_curves(summary, predicted, limit=None):
    """The curves of a summary of `gyre compare`: the times of all candidates over that of the first one.
    @predicted: (label, report) pairs in the form of a bench's report. @limit: GB/s of busbw, or None."""
    firsts = {row["bytes"]: row for row in summary["rows"] if row["candidate"] == summary["first"] and row["bytes"] > 0}
    sizes = sorted(firsts)
    curves = [Curve(f"{summary['first']} (1)", sizes, [1.0] * len(sizes), candidate=summary["first"])]
    for name in dict.fromkeys(row["candidate"] for row in summary["rows"] if row.get("ratio") and row["bytes"] > 0):
        rows = [row for row in summary["rows"] if row["candidate"] == name and row.get("ratio") and row["bytes"] > 0]
        edges = [band([row.get(key) for row in rows]) for key in ("ratio_lo", "ratio_hi")]
        curves.append(Curve(name, [row["bytes"] for row in rows], [row["ratio"] for row in rows],
                            edges[0] if all(edges) else [], edges[1] if all(edges) else [], candidate=name))
    for label, report in predicted:
        rows = [row for row in drawn_rows(report) if row["bytes"] in firsts]
        curves.append(Curve(label, [row["bytes"] for row in rows],
                            [times_of(row)[0] / firsts[row["bytes"]]["median_us"] for row in rows], style=PREDICTED,
                            candidate=label.split()[-1]))
    # The part of the first candidate's time that the links need. Where it is tiny it would squash all else.
    bound = {size: firsts[size]["busbw_gbytes_per_s"] / limit for size in sizes} if limit else {}
    drawn = [size for size in sizes if bound.get(size, 0) >= LEAST_BOUND]
    curves.append(Curve(f"bound, {limit or 0:g} GB/s", drawn, [bound[size] for size in drawn], style=LIMIT))
    return [curve for curve in curves if curve.sizes]


def plot_curves(axes, curves):
    """The lines and bands. Line i has the id curve_i."""
    for i, curve in enumerate(curves):
        is_limit = curve.style == LIMIT
        name, _, _ = curve.candidate.partition("@")
        place = CANDIDATES.index(name) if name in CANDIDATES else i + (len(CANDIDATES) if name else 0)
        colour = LIMIT_COLOUR if is_limit else COLOURS[place % len(COLOURS)]
        marker = MARKERS[place // len(COLOURS) % len(MARKERS)] if name else "o"
        axes.plot(curve.sizes, curve.values, label=legend_text(curve.label), color=colour, gid=f"curve_{i}",
                  marker="" if is_limit else marker, markersize=3, linestyle=curve.style)
        if curve.low and curve.high:
            axes.fill_between(curve.sizes, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)


def draw_file(curves, title, y_label, kind, x_label=None):
    """One chart with logarithmic axes, as the bytes of a file. @kind: "svg", "pdf" or "png". @x_label: of numbers
    that are no sizes of buffers."""
    # Ids must differ between the pictures of a page, and be the same in every run.
    style = {"svg.hashsalt": title, "svg.fonttype": "none", "font.family": "sans-serif",
             "font.size": 9}
    with matplotlib.rc_context(style):
        figure, axes = pyplot.subplots(figsize=(7.2, 3.9))
        plot_curves(axes, curves)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(LogLocator(base=2, numticks=9))
        axes.xaxis.set_major_formatter(FuncFormatter(size_text if x_label is None or "bytes" in x_label else lambda x, _: f"{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        low, high = axes.get_ylim()
        if high < 30 * low:  # powers of ten alone would leave one label or none
            axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(x_label or "size of the buffer")
        axes.set_ylabel(y_label)
        axes.set_title(legend_text(title))
        axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
        axes.legend(fontsize=8 if len(curves) <= 8 else 6)
        figure.tight_layout()
        data = io.BytesIO()
        figure.savefig(data, format=kind, metadata=METADATA[kind], dpi=160)
        pyplot.close(figure)
    return data.getvalue()


def draw(curves, title, y_label):
    """One chart, as the text of an <svg> element."""
    svg = draw_file(curves, title, y_label, "svg").decode()
    return svg[svg.index("<svg"):]


def draw_reports(reports, limit=None):
    """Two charts, time and busbw, of several reports of one collective.
    @reports: (label, report) pairs. @limit: GB/s of busbw, or None. Returns [(title, svg)]."""
    name = reports[0][1]["collective"]
    charts = []
    for what, y_label in AXIS_TEXT.items():
        curves = [curve for label, report in reports for curve in curves_of(label, report, what)]
        title = f"{name}: {what} over size"
        if what == "busbw" and limit:
            curves += limit_curves(reports, what, limit)
        if curves:
            charts.append((title, draw(curves, title, y_label)))
    return charts
