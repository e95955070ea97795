# SPDX-License-Identifier: Apache-2.0
"""`gyre plot` (bench/gyre.c starts it and prints its help).

    python3 bench/python/plot.py TOOLS_FOLDER [options] [LABEL=]FILE...

It reads reports of benches, and the predictions of schedule, which take the form of a bench's report. Only
the chart needs more than Python's own library.
"""
import argparse
import html
import os
import re
import sys
from dataclasses import dataclass

from report import amount, go_to_python_with_packages, install
from report_sources import (SourceError, check_bench, csv_text, is_number, read_json, say_written, split_label,
                            write_whole)

NEEDED = ("matplotlib",)
KINDS = ("svg", "png", "pdf", "html")
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>body {{ font: 15px/1.5 sans-serif; margin: 1rem; color: #222; }} div, table {{ display: block; overflow-x: auto; }}
svg {{ max-width: 100%; min-width: 36rem; height: auto; }} td, th {{ text-align: left; padding: 0 1rem 0 0; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #15171b; color: #eceef2; }} }}</style>
</head>
<body>
<div>{svg}</div>
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


def predictions(report, label, path):
    """The sources of a report of schedule --predict: one for each algorithm."""
    if report.get("schema_version") != 1:
        raise SourceError(f"{path}: its schema_version is {report.get('schema_version')}, not 1")
    if not report["predictions"]:
        raise SourceError(f"{path}: has no predictions; schedule --predict --json writes them")
    groups = {}
    for row in report["predictions"]:
        if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in ("algorithm", "collective")) \
                or not all(isinstance(row.get(key), int) for key in ("ranks", "hosts", "bytes")):
            raise SourceError(f"{path}: a prediction lacks its algorithm, collective, ranks, hosts or bytes")
        if not all(is_number(row.get(key)) and row[key] >= 0 for key in TIMES):
            raise SourceError(f"{path}: the prediction of {row['algorithm']} for {row['bytes']} bytes has no times")
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


def written_chart(curves, title, axis, options, rows):
    """The bytes or the text of a chart's file. @rows: of the page's table."""
    import report_charts
    kind = output_kind(options.output)
    if kind != "html":
        return report_charts.draw_file(curves, title, axis, kind)
    cells = ("".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) for row in rows)
    return PAGE.format(title=html.escape(title), svg=report_charts.draw(curves, title, axis),
                       rows="\n".join(f"<tr>{row}</tr>" for row in cells))


def draw_comparison(path, value, sources, options):
    """The file of the chart of a comparison, beside predictions."""
    import report_charts
    wrong = next((source for source in sources if not source.is_predicted
                  or (source.report["collective"], source.ranks) != (value["collective"], value["ranks"])), None)
    if wrong is not None:
        raise SourceError(f"{wrong.path}: beside {path} only predictions of {value['collective']} for {value['ranks']} "
                          "ranks can be drawn")
    predicted = [(source.label, source.report) for source in sources]
    curves = report_charts.comparison_curves(value, predicted, options.limit)
    title = options.title or f"{value['collective']}, {value['ranks']} ranks, {value['launches']} launches"
    return written_chart(curves, title, f"time / time of {value['first']}", options,
                         [(value["first"], path, value["collective"], value["ranks"], len(value["hosts"]), "", "", "")])


def read_sources(texts):
    """The sources of [LABEL=]FILE texts. SourceError names the file that cannot be used."""
    sources = []
    for label, path in map(split_label, texts):
        value = read_json(path)
        value = value if isinstance(value, dict) else {}
        if isinstance(value.get("predictions"), list):
            sources += predictions(value, label, path)
            continue
        if value.get("contenders") and not value.get("results") and all(  # --compare-algos
                isinstance(value.get(key), kind)
                for key, kind in (("contenders", list), ("places", list), ("settings", dict), ("collective", str))):
            sources += contenders(value, label, path)
            continue
        if "results" not in value:
            raise SourceError(f"{path}: is neither the report of a bench (--json) nor of schedule --predict --json, nor a trace of gyre")
        limit = check_bench(value, path)["settings"].get("limit_gbytes_per_s")
        if limit is not None and not (is_number(limit) and limit > 0):
            raise SourceError(f"{path}: its limit_gbytes_per_s is not a number above 0")
        for row in value["results"]:
            if not is_number(row.get("predicted_us", 0)):
                raise SourceError(f"{path}: the predicted time of {row['bytes']} bytes is not a number")
        sources.append(Source(path, label or name_of(path), value, hosts_of(value)))
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


def lines_of(source, row):
    """The values of COLUMNS for each engine that a row has times of. Unknown ones are left out."""
    timing, rounds = row["out_of_place"], row.get("comparison")
    settings = source.report["settings"]
    host = next((place.get("host", "") for place in source.report.get("places", ())
                 if isinstance(place, dict) and place.get("rank") == 0), "")
    same = {"file": source.path, "version": source.version, "date": source.date, "ranks": source.ranks,
            "hosts": source.hosts, "collective": source.report["collective"], "bytes": row["bytes"],
            "machine": row.get("machine", host),
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


def output_kind(path):
    """The kind of the file, by its ending."""
    kind = os.path.splitext(path)[1][1:].lower()
    if kind not in KINDS:
        raise argparse.ArgumentTypeError(f"{path}: its ending is not one of {', '.join('.' + kind for kind in KINDS)}")
    return kind


def make_parser():
    """The options, whose help is in bench/gyre.c."""
    parser = argparse.ArgumentParser(prog="gyre plot", add_help=False, allow_abbrev=False,
                                     usage="gyre plot [options] [LABEL=]FILE... (gyre plot --help)")
    parser.add_argument("files", nargs="*")
    parser.add_argument("-o", "--output", type=lambda path: output_kind(path) and path)
    parser.add_argument("--y", choices=("time", "busbw"), default="time")
    parser.add_argument("--title")
    parser.add_argument("--call", type=int)
    parser.add_argument("--limit", type=amount)
    parser.add_argument("--predicted", action="store_true")
    parser.add_argument("--table")
    parser.add_argument("--install", action="store_true")
    return parser


def draw(sources, options):
    """The file of the chart. SourceError if a report has nothing that logarithmic axes can show."""
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
    curves += report_charts.limit_curves(pairs, options.y, options.limit)
    names = dict.fromkeys(source.report["collective"] for source in sources)
    title = options.title or f"{', '.join(names)}: {options.y} over size"
    return written_chart(curves, title, report_charts.AXIS_TEXT[options.y], options, [
        (source.label, source.path, source.report["collective"], source.ranks, source.hosts, source.version, source.date,
         source.report["settings"].get("reference", "")) for source in sources])


# One call of a trace: each rank has a lane for its launch, for each worker and for its proxy. Ranks with an odd number
# are upside down, so that the proxies of two ranks face each other. A curve is a slot's way. Needs no packages.
LEFT, WIDTH, LANE, GAP, TOP = 148, 640, 26, 10, 58
COLOURS = {"launch": "#8a8a8a", "copy": "#56b4e9", "reduce": "#e69f00", "send": "#009e73", "receive": "#cc79a7",
           "post": "#009e73", "complete": "#b8a800"}
WORDS = {"launch": "launch", "copy": "copy", "reduce": "add", "wait for data": "wait for data",
         "wait for credit": "wait for credit", "send": "send", "receive": "receive", "post": "post", "complete": "complete"}
CALL_STYLE = """<style>
text{font-family:system-ui,'Segoe UI',Helvetica,Arial,sans-serif;font-size:11px;fill:#1a1c20}.s{fill:#5c6370}
.b{fill:#fff}.l{fill:#f1f2f5}.w{fill:none;stroke:#9aa1ad;stroke-dasharray:3 2}.a{stroke:#1a1c20;fill:none;opacity:.7}
.t{font-size:17px;font-weight:600}.i{fill:#1a1c20}
@media(prefers-color-scheme:dark){text{fill:#eceef2}.s{fill:#a4abb8}.b{fill:#15171b}.l{fill:#1f2228}.a{stroke:#eceef2}
.w{stroke:#5a6170}.i{fill:#15171b}}
@media(max-width:480px){text{font-size:15px}.t{font-size:20px}.i,.n{display:none}}
</style>"""


def is_trace(value):
    return isinstance(value, dict) and isinstance(value.get("traceEvents"), list) and \
        value.get("otherData", {}).get("tool") == "gyre"


def slices_of(path, value, number):
    """Of one file's ranks and a call (None = the last): {(rank, lane): slices}, {rank: end}, what it is."""
    names, ranks, slices = {}, {}, []
    for event in value["traceEvents"]:
        if event.get("ph") == "M" and event["name"] == "thread_name":
            names[event["pid"], event["tid"]] = event["args"]["name"]
        elif event.get("ph") == "M" and event["name"] == "gyre_rank":
            ranks[event["pid"]] = event["args"]["rank"]
        elif event.get("ph") == "X":
            slices.append(event)
    calls = {event["args"]["call"] for event in slices if names[event["pid"], event["tid"]] == "calls"}
    number = max(calls, default=None) if number is None else number
    if not ranks or number not in calls:
        raise SourceError(f"{path}: has no call {'' if number is None else number}; its calls are {sorted(calls)}")
    found, ends = {}, {}
    for pid, rank in ranks.items():
        own = [event for event in slices if event["pid"] == pid]
        whole = [event for event in own if event["args"].get("call") == number]
        about = next((event for event in whole if names[pid, event["tid"]] == "calls"), None)
        if about is None:
            raise SourceError(f"{path}: rank {rank} lacks call {number}")
        begin, end = min(event["ts"] for event in whole), max(event["ts"] + event["dur"] for event in whole)
        for event in own:
            lane = names[pid, event["tid"]]
            is_proxy = lane.startswith("proxy") and begin <= event["ts"] <= end
            if event in whole and lane != "calls" or is_proxy:
                found.setdefault((rank, lane), []).append(event)
        ends[rank] = about["ts"] + about["dur"]
    return found, ends, about["args"]


def draw_call(files, number, title):
    """files: (path, trace) pairs that together have all ranks. Returns the text of an SVG."""
    found, ends, about = {}, {}, {}
    for path, value in files:
        of_file, ends_of_file, about = slices_of(path, value, number)
        found.update(of_file)
        ends.update(ends_of_file)

    def place_of(lane):  # the proxy of an even rank is its lowest lane, of an odd rank its highest
        rank, name = lane
        kind = 0 if name == "launch" else 2 if name.startswith("proxy") else 1
        place = [kind] + [int(word) for word in re.findall(r"\d+", name)]
        return (rank, place if rank % 2 == 0 else [-part for part in place])

    order = sorted(found, key=place_of)
    begin = min(event["ts"] for events in found.values() for event in events)
    span = max(ends.values()) - begin
    has_proxy = any(name.startswith("proxy") for _, name in order)
    height = TOP + len(order) * LANE + (len({rank for rank, _ in order}) - 1) * GAP + (80 if has_proxy else 62)

    def x(when):
        return LEFT + (when - begin) / span * WIDTH

    title = title or f"{about['collective']} of {about['bytes']} B, {about.get('algorithm', '')}" + \
        (", from the API to the wire" if has_proxy else "")
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" '
             f'width="{LEFT + WIDTH + 20}" height="{height}" role="img">', f"<title>{html.escape(title)}</title>", CALL_STYLE,
             f'<rect class="b" width="{LEFT + WIDTH + 20}" height="{height}"/>',
             f'<text class="t" x="16" y="24">{html.escape(title)}</text>']
    step = next(unit for power in range(-1, 9) for unit in (10 ** power, 2 * 10 ** power, 5 * 10 ** power) if span / unit <= 10)
    for i in range(int(span / step) + 1):
        lines.append(f'<text class="s" x="{x(begin + i * step):.1f}" y="{TOP - 8}">{i * step:g} us</text>')
    y, last_rank = TOP, order[0][0]
    sent, received = {}, {}
    for rank, name in order:
        y += GAP if rank != last_rank else 0
        last_rank = rank
        label = f"rank {rank}: {'the API' if name == 'launch' else name.replace('channel 0 ', '')}"
        lines += [f'<rect class="l" x="{LEFT}" y="{y + 2}" width="{WIDTH}" height="{LANE - 4}"/>',
                  f'<text x="12" y="{y + 17}">{label}</text>']
        if name == "launch":
            lines.append(f'<text x="{x(ends[rank]) - 4:.1f}" y="{y + 17}" text-anchor="end">done</text>'
                         f'<path class="a" d="M{x(ends[rank]):.1f} {y + 3}v{LANE - 6}"/>')
        for event in sorted(found[rank, name], key=lambda event: event["ts"]):
            at, width = x(event["ts"]), max(event["dur"] / span * WIDTH, 1.5)
            word, colour = WORDS.get(event["name"], event["name"]), COLOURS.get(event["name"])
            style = f'fill="{colour}"' if colour else 'class="w"'
            args = event["args"]
            what = args.get("text", f"{args['bytes']} B" if "bytes" in args else "")
            lines.append(f'<rect {style} x="{at:.1f}" y="{y + 4}" width="{width:.1f}" height="{LANE - 8}">'
                         f"<title>{word}, {event['dur']:.2f} us: {html.escape(what)}</title></rect>")
            if width > 6.5 * len(word) + 3:
                lines.append(f'<text class="{"i" if colour else "s n"}" x="{at + 3:.1f}" y="{y + 17}">{word}</text>')
            is_step = not name.startswith("proxy")
            for slot in event["args"].get("sent", []) if is_step else []:
                sent[slot] = at + width, y + LANE / 2
            for slot in event["args"].get("received", []) if is_step else []:
                received[slot] = at, y + LANE / 2
        y += LANE
    for slot in sorted(sent.keys() & received.keys()):
        (x1, y1), (x2, y2) = sent[slot], received[slot]
        lines.append(f'<path class="a" d="M{x1:.1f} {y1:.1f}C{x1 + 12:.1f} {(y1 + y2) / 2:.1f} {x2 - 12:.1f} '
                     f'{(y1 + y2) / 2:.1f} {x2:.1f} {y2:.1f}"><title>slot {html.escape(slot)}</title></path>')
    at = 16
    for name in [name for name in COLOURS if any(event["name"] == name for events in found.values() for event in events)]:
        lines.append(f'<rect fill="{COLOURS[name]}" x="{at}" y="{y + 18}" width="9" height="9"/>'
                     f'<text x="{at + 13}" y="{y + 26}">{WORDS[name]}</text>')
        at += 85
    lines.append(f'<text class="s" x="16" y="{y + 46}">Dashed: waiting. Curves: slots, from the step that sent them to the '
                 "step that read them.</text>")
    if has_proxy:
        lines.append(f'<text class="s" x="16" y="{y + 64}">Proxies: system calls.</text>')
    lines += ["</svg>", ""]
    return "\n".join(lines)


def write_files(options):
    """Writes the chart and the table, as far as they are asked for. Returns their paths."""
    wants_chart = options.output is not None or options.table is None
    options.output = options.output or "gyre_plot.svg"
    first = read_json(split_label(options.files[0])[1])
    if is_trace(first):
        files = [(path, read_json(path)) for path in options.files]
        if output_kind(options.output) != "svg" or not all(is_trace(value) for _, value in files):
            raise SourceError(f"{options.files[0]} is a trace: give traces only, and a name that ends in .svg")
        write_whole(options.output, draw_call(files, options.call, options.title))
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
    if options.table:
        table = csv_text(COLUMNS, (line for source in sources for row in source.report["results"]
                                   for line in lines_of(source, row)))
        if options.table == "-":
            sys.stdout.write(table)
            sys.stdout.flush()
        else:
            write_whole(options.table, table)
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
