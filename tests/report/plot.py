#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of `gyre plot`, as users start it: the points of its curves, its table, and what it refuses.

    python3 tests/report/plot.py CASE BENCH_DIR SOURCE_DIR
        (CASE: the name of a case_* function, without "case_")

Exits 77 where matplotlib is missing (case "absent" runs without it).
"""
import csv
import math
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

from report import FACTOR, HERE, Page, bench_report, read, start, write

NUMBER = r"(-?[\d.]+)"
TIMES = {1024: 5.0, 16384: 8.0, 1 << 20: 300.0}
PREDICTED = {1024: 4.0, 1 << 20: 250.0}
RIVAL, LIMIT = 1.25, 10.0


def plot(directory, folder, *arguments, **keywords):
    return start(directory, folder, *arguments, command="plot", **keywords)


def prediction_report(times, algorithm="ring", **changes):
    """What schedule --predict --json writes: bytes -> us, of an all-reduce of 4 ranks."""
    rows = [{"algorithm": algorithm, "collective": "all_reduce", "ranks": 4, "hosts": 1, "bytes": size,
             "time_us": us, "algbw_gbytes_per_s": size / us / 1e3, "busbw_gbytes_per_s": size / us / 1e3 * FACTOR,
             **changes} for size, us in times.items()]
    return {"schema_version": 1, "gyre_version": "9.8.7", "written": "2026-01-02T03:04:05Z", "proofs": [],
            "predictions": rows}


def measured_report():
    report = bench_report(TIMES, "SHM", rival=RIVAL, limit="x", limit_gbytes_per_s=LIMIT)
    report.update(gyre_version="1.2.3", started="2026-05-06T07:08:09Z")
    report["settings"].update(reference="NCCL 2.0, plain buffers", device="host")
    for row in report["results"]:
        row["predicted_us"] = row["out_of_place"]["time_us"] / 2
    return report


def contenders_report(times_of):
    """What a bench writes with --compare-algos: algorithm -> bytes -> us."""
    report = bench_report({}, "SHM")
    report["contenders"] = [{"algorithm": algorithm, "bytes": size, "time_us": us, "algbw_gbytes_per_s": size / us / 1e3,
                             "busbw_gbytes_per_s": size / us / 1e3 * FACTOR}
                            for algorithm, times in times_of.items() for size, us in times.items()]
    return report


def curves_of_svg(svg):
    """The points of the lines, in the units of the picture."""
    lines = re.findall(r'<g id="curve_\d+">\s*<path d="([^"]*)"', svg)
    return [[(float(x), float(y)) for x, y in re.findall(rf"[ML] {NUMBER} {NUMBER}", line)] for line in lines]


def check_points(found, expected):
    """Logarithmic axes: positions are linear in the logarithms, the same way for all curves."""
    assert [len(curve) for curve in found] == [len(curve) for curve in expected], (found, expected)
    positions = [point for curve in found for point in curve]
    values = [(math.log(size), math.log(value)) for curve in expected for size, value in curve.items()]
    for axis in (0, 1):
        low, high = (pick(range(len(values)), key=lambda i: values[i][axis]) for pick in (min, max))
        scale = (positions[high][axis] - positions[low][axis]) / (values[high][axis] - values[low][axis])
        assert scale > 0 if axis == 0 else scale < 0, "an axis runs the wrong way"
        for position, value in zip(positions, values):
            due = positions[low][axis] + scale * (value[axis] - values[low][axis])
            assert abs(position[axis] - due) < 0.01, (axis, position, due)


def case_curves(directory, _source, folder):
    """Measured, the other engine, predicted by the bench, predicted by schedule, limit: in this order."""
    write(folder, "measured.json", measured_report())
    write(folder, "predicted.json", prediction_report(PREDICTED))
    times = [TIMES, {size: us * RIVAL for size, us in TIMES.items()}, {size: us / 2 for size, us in TIMES.items()},
             PREDICTED, {size: size * FACTOR / (LIMIT * 1e3) for size in TIMES}]
    for what, expected in (("time", times),
                           ("busbw", [{size: size / us / 1e3 * FACTOR for size, us in curve.items()}
                                      for curve in times])):
        plot(directory, folder, "own $x=measured.json", "--y", what, "predicted.json", "--predicted", "-o", "a.svg")
        svg = read(folder, "a.svg")
        check_points(curves_of_svg(svg), expected)
        for words in ("own $x<", "own $x: NCCL 2.0<", "own $x: predicted<", "predicted ring<", "limit, 10 GB/s<"):
            assert words in svg, words


def case_formats(directory, _source, folder):
    path = write(folder, "a<b.json", measured_report())
    other = measured_report()
    other["collective"] = "all_gather"
    write(folder, "other.json", other)
    for name, start_of_file in (("a.png", b"\x89PNG"), ("a.pdf", b"%PDF"), ("a.html", b"<!DOCTYPE html>")):
        done = plot(directory, folder, path, "other.json", "--y", "busbw", "-o", name)
        assert done.stdout == f"wrote {name}\n" and not done.stderr, done
        with open(os.path.join(folder, name), "rb") as file:
            assert file.read().startswith(start_of_file), name
    page, text = Page(), read(folder, "a.html")
    assert 'name="viewport"' in text and "prefers-color-scheme: dark" in text, "the page is made for narrow and dark screens"
    page.feed(text)
    assert not page.loads and "a<b" not in text, page.loads
    assert "<td>a&lt;b, all_reduce</td>" in text and "<td>NCCL 2.0, plain buffers</td>" in text


def case_table(directory, source, folder):
    write(folder, "measured.json", measured_report())
    write(folder, "predicted.json", prediction_report(PREDICTED, constants="measured", fabric="leaf.fabric",
                                                      protocol="ll", channels=2))
    done = plot(directory, folder, "--table", "out.csv", "measured.json", "predicted.json")
    assert done.stdout == "wrote out.csv\n" and not os.path.exists(os.path.join(folder, "gyre_plot.svg")), done
    rows = list(csv.DictReader(read(folder, "out.csv").splitlines()))
    assert len(rows) == 2 * len(TIMES) + len(PREDICTED), rows
    same = {"file": "measured.json", "version": "1.2.3", "date": "2026-05-06T07:08:09Z", "ranks": "4", "hosts": "1",
            "collective": "all_reduce", "algorithm": "", "bytes": "16384", "machine": "hostA", "device": "host",
            "fabric": "", "dtype": "float", "protocol": "", "channels": "", "ratio": "", "ratio_low": "",
            "ratio_high": ""}
    for engine, us in (("gyre", TIMES[16384]), ("NCCL 2.0, plain buffers", TIMES[16384] * RIVAL)):
        row = next(row for row in rows if row["engine"] == engine and row["bytes"] == "16384")
        assert float(row.pop("time_us")) == us, row
        assert math.isclose(float(row.pop("busbw_gbytes_per_s")), 16384 / us / 1e3 * FACTOR, rel_tol=1e-5), row
        assert row == {**same, "engine": engine}, row
    assert [row["algorithm"] for row in rows if row["engine"] == "predicted"] == ["ring"] * len(PREDICTED)
    assert {(row["machine"], row["fabric"], row["protocol"], row["channels"], row["dtype"]) for row in rows
            if row["engine"] == "predicted"} == {("measured", "leaf.fabric", "ll", "2", "float")}, rows
    # Its columns are those of the tidy CSV, behind the file.
    source_of_names = read(source, "bench/report/table_file.c").replace('"\n              "', "")
    names = re.search(r'fputs\("(engine,[a-z_,]*)\\n"', source_of_names).group(1)
    assert read(folder, "out.csv").splitlines()[0] == "file," + names
    # To the standard output goes the table alone.
    listed = plot(directory, folder, "--table", "-", "measured.json", "predicted.json")
    assert listed.stdout == read(folder, "out.csv") and not os.path.exists(os.path.join(folder, "-")), listed
    if os.access("/dev/shm", os.W_OK):   # its files are replaced, and not written behind what they have
        with tempfile.TemporaryDirectory(dir="/dev/shm") as ordinary:
            for _ in range(2):
                plot(directory, folder, "--table", os.path.join(ordinary, "out.csv"), "measured.json", "predicted.json")
            assert read(ordinary, "out.csv").splitlines()[1:] == listed.stdout.splitlines()[1:]
    # A report of --compare-algos: a curve for each algorithm.
    write(folder, "turns.json", contenders_report({"ring": TIMES, "tree": PREDICTED}))
    plot(directory, folder, "--table", "out.csv", "turns.json")
    rows = list(csv.DictReader(read(folder, "out.csv").splitlines()))
    assert [(row["algorithm"], int(row["bytes"]), float(row["time_us"])) for row in rows] == \
        [("ring", *pair) for pair in TIMES.items()] + [("tree", *pair) for pair in PREDICTED.items()], rows
    assert {(row["engine"], row["ranks"], row["hosts"]) for row in rows} == {("gyre", "4", "1")}, rows
    ratios = contenders_report({"ring": TIMES})
    assert {(row["dtype"], row["protocol"], row["channels"]) for row in rows} == {("", "", "")}, rows
    ratios["contenders"][0].update(ratio=1.5, ratio_low=1.25, ratio_high=2, type="half", protocol="LL", channels=3)
    write(folder, "ratios.json", ratios)
    listed = plot(directory, folder, "--table", "-", "ratios.json").stdout.splitlines()
    assert listed[1].endswith(",1.5,1.25,2") and listed[2].endswith(",,,"), listed
    assert ",half,ring,LL,3," in listed[1] and ",,ring,,," in listed[2], listed
    plot(directory, folder, "-o", "turns.svg", "turns.json")
    check_points(curves_of_svg(read(folder, "turns.svg")), [TIMES, PREDICTED])


def trace_of(rank, launch, step, end, call=3):
    """A trace of one call: (begin, length) of its launch and its step, which sends a slot or reads the other rank's."""
    def event(tid, name, begin, length, **args):
        return {"ph": "X", "name": name, "pid": rank, "tid": tid, "ts": begin, "dur": length, "args": args}

    slots = {"sent": ["c:0>1/0#7"], "received": []} if rank == 0 else {"sent": [], "received": ["c:0>1/0#7"]}
    names = {0: "launch", 1: "calls", 2: "proxy socket", 16: "channel 0 worker 0"}
    return {"otherData": {"tool": "gyre"}, "traceEvents": [
        *({"ph": "M", "name": "thread_name", "pid": rank, "tid": tid, "args": {"name": name}} for tid, name in names.items()),
        {"ph": "M", "name": "gyre_rank", "pid": rank, "args": {"rank": rank}},
        event(0, "launch", *launch, call=call), event(16, "copy", *step, call=call, bytes=64, text="chunk 0: in 0 -> to 1", **slots),
        event(2, "send", step[0], 1, bytes=64, **slots), event(2, "send", end + 50, 1, bytes=64, **slots),
        event(1, "broadcast", launch[0], end - launch[0], call=call, collective="broadcast", bytes=64, algorithm="ring")]}


def case_call(directory, source, folder):
    """A call of traces: lanes from the API to the wire and back, slices at the times of the trace, a curve a slot."""
    write(folder, "a.json", trace_of(0, (1000, 10), (1020, 30), 1060))
    write(folder, "b.json", trace_of(1, (1010, 10), (1150, 50), 1200))
    plot(directory, folder, "a.json", "b.json", "-o", "call.svg")
    root = xml.etree.ElementTree.parse(os.path.join(folder, "call.svg")).getroot()
    svg = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in root.iter(svg + "text")]
    lanes = [text for text in texts if text.startswith("rank ")]
    assert lanes == ["rank 0: the API", "rank 0: worker 0", "rank 0: proxy socket", "rank 1: proxy socket",
                     "rank 1: worker 0", "rank 1: the API"], lanes
    slices = [box for box in root.iter(svg + "rect") if box.find(svg + "title") is not None]
    shown = [(float(box.get("x")), float(box.get("width"))) for box in slices]
    # 640 pixels are the 200 us from the first launch to the last end, from x = 148 on; the later sends are of other calls.
    wanted = [(round(148 + 3.2 * (begin - 1000), 1), round(3.2 * length, 1)) for begin, length in
              ((1000, 10), (1020, 30), (1020, 1), (1150, 1), (1150, 50), (1010, 10))]
    assert shown == wanted, (shown, wanted)
    curves = [path.get("d") for path in root.iter(svg + "path") if path.find(svg + "title") is not None]
    assert len(curves) == 1 and curves[0].startswith("M308.0 ") and " 628.0 " in curves[0], curves  # 1050 to 1150 us
    assert texts.count("done") == 2, texts
    examples = [os.path.join(source, "docs", "examples", f"call.{rank}.json") for rank in (0, 1)]
    plot(directory, folder, *examples, "-o", "call.svg")
    with open(os.path.join(folder, "call.svg"), encoding="utf-8") as new, \
            open(os.path.join(source, "docs", "pictures", "call.svg"), encoding="utf-8") as old:
        assert new.read() == old.read(), "docs/pictures/call.svg is not what gyre plot draws"
    write(folder, "report.json", measured_report())
    write(folder, "foreign.json", {"traceEvents": []})
    both, other = trace_of(0, (1000, 10), (1020, 30), 1060), trace_of(1, (1010, 10), (1150, 50), 1200, call=4)
    both["traceEvents"] += other["traceEvents"]
    write(folder, "both.json", both)
    for arguments, words in ((["a.json", "report.json"], "give traces only"), (["a.json", "-o", "a.html"], "ends in .svg"),
                             (["foreign.json"], "nor a trace of gyre"), (["both.json"], "both.json: rank 0 lacks call 4"),
                             (["a.json", "--call", "9"], "a.json: has no call 9; its calls are [3]")):
        assert words in plot(directory, folder, *arguments, status=1).stderr, arguments


def case_refusals(directory, _source, folder):
    """One line that names the file and what is wrong; nothing is written."""
    write(folder, "good.json", measured_report())
    other = {**measured_report(), "collective": "all_gather"}
    twice = measured_report()
    twice["results"].append(twice["results"][0])
    one_rank = prediction_report(PREDICTED, busbw_gbytes_per_s=0)
    bad_edge = measured_report()
    bad_edge["results"][0]["comparison"]["gyre_min_us"] = "fast"
    wrong = [("is not JSON", b"{"), ("is neither the report of a bench", []), ("is neither the report", {"steps": 3}),
             ("has no results", {**measured_report(), "results": []}), ("is of all_gather, but good.json is of", other),
             ("several rows of 1024 bytes", twice), ("has no predictions", prediction_report({})),
             ("has no times", prediction_report(PREDICTED, time_us="1")), ("lacks its", prediction_report(PREDICTED, ranks=None)),
             ("schema_version is 7", {**prediction_report(PREDICTED), "schema_version": 7}),
             ("no time above 0", prediction_report(PREDICTED, time_us=0)), ("has no times", bad_edge)]
    for words, value in wrong:
        write(folder, "bad.json", value)
        done = plot(directory, folder, "good.json", "bad.json", status=1)
        assert done.stderr.startswith("gyre plot: bad.json: ") and words in done.stderr, (words, done.stderr)
        assert done.stderr.count("\n") == 1, done.stderr
    write(folder, "bad.json", one_rank)
    assert "busbw is 0 for one rank" in plot(directory, folder, "--y", "busbw", "bad.json", status=1).stderr
    assert "/no/such/x.svg" in plot(directory, folder, "good.json", "-o", "/no/such/x.svg", status=1).stderr
    for arguments, words in ((["good.json", "-o", "a.gif"], ".svg, .png, .pdf, .html"), ([], "at least one report"),
                             (["good.json", "--y", "size"], "invalid choice"), (["--limit", "-1", "good.json"], "--limit")):
        assert words in plot(directory, folder, *arguments, status=2).stderr, arguments
    left = set(os.listdir(folder)) - {"matplotlib"}  # its cache of fonts
    assert left == {"bad.json", "good.json"}, left


def case_absent(directory, source, folder):
    """Without Python or matplotlib there is one clear line; the help and the table need neither."""
    listed = plot(directory, folder, "--help", PATH="/no/such/folder").stdout
    scripts = os.path.join(source, "bench", "python")
    code = (f"import sys; sys.path.insert(0, {scripts!r}); from plot import make_parser\n"
            "print(*(name for action in make_parser()._actions for name in action.option_strings))")
    known = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert set(re.findall(r"^  (?:(-\w), )?(--[a-z]+)", listed, re.M)) == {
        ("-o" if name == "--output" else "", name) for name in known if name != "-o"} | {("-h", "--help")}, listed
    done = plot(directory, folder, status=127, PATH="/no/such/folder")
    assert "apt-get install python3 python3-matplotlib\n" in done.stderr, done.stderr
    path = write(folder, "good.json", measured_report())
    table = os.path.join(folder, "out.csv")
    for arguments, status, words in (([path], 1, "gyre plot --install"), (["--table", table, path], 0, "")):
        done = subprocess.run([sys.executable, "-I", "-S", "-B", os.path.join(HERE, "without_packages.py"), scripts,
                               "plot", *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == status and words in done.stderr and "Traceback" not in done.stderr, done
    assert os.path.exists(table)


def main():
    name, directory, source = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        globals()["case_" + name](os.path.realpath(directory), os.path.realpath(source), folder)
    print(f"{name}: ok")


if __name__ == "__main__":
    main()
