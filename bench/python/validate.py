# SPDX-License-Identifier: Apache-2.0
"""`gyre validate` (bench/gyre.c starts it and prints its help): predictions held against published measurements.

    python3 bench/python/validate.py TOOLS_FOLDER [options] [TABLE.csv...]

Here are the tables that it prints, the page, and the chart; published/ has the tables of measurements, the
fit and the scores."""
import argparse
import collections
import math
import os
import re
import sys

from report import go_to_python_with_packages
from report_sources import csv_text, say_written, write_whole

sys.path[:0] = [os.path.join(os.path.dirname(os.path.realpath(__file__)), "published")]
from machines import MachineError, library_of, read_machine, read_machines  # noqa: E402 (the folder must be in the path first)
from scores import (Simulator, TableError, bus_factor, fit, line_rate, query_of, read_table, score_rows,  # noqa: E402
                    summary, write_fit)

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
LIBRARIES = {"nccl": "NCCL", "rccl": "RCCL", "mpi": "MPI", "oneshot": "vLLM"}
CLASSES = (("up to 64 KiB", 0, 1 << 16), ("up to 16 MiB", (1 << 16) + 1, 1 << 24), ("above", (1 << 24) + 1, 1 << 62))
PLACES = ("GPUs of one host", "GPUs of several hosts", "host memory (MPI)")
CSV_COLUMNS = ("machine", "collective", "hosts", "gpus_per_host", "bytes", "library", "measured_us", "predicted_us",
               "algorithm", "protocol", "trap")
GOAL_BYTES = 16384  # the classes: below, and from here on
WORST = 10
SIDES = (f"from {GOAL_BYTES >> 10} KiB", f"below {GOAL_BYTES >> 10} KiB")
CLASS_NAMES = [f"{place}, {side}" for place in PLACES for side in SIDES]
LEVELS = {1: "the fitted machine, other calls", 2: "its class, another machine", 3: "another vendor or fabric"}


def percent(value):
    return f"{100 * value:.1f} %" if value < 10 else f"{value + 1:.0f}x"


def place_of(row):
    return PLACES[2] if library_of(row["library"]) == "mpi" else PLACES[row["hosts"] > 1]


def bar_of(row):
    """The class by which error bars are given."""
    return f"{place_of(row)}, {next(name for name, least, most in CLASSES if least <= row['bytes'] <= most)}"


def class_of(row):
    """The class of a row, by which errors are reported."""
    return f"{place_of(row)}, {SIDES[row['bytes'] < GOAL_BYTES]}"


def without_traps(scored):
    return [score for score in scored if not score["row"]["trap"]]


def table_line(name, scored):
    found = summary(scored)
    if found is None:
        return None
    mean, median, p90, n_rows, n_series = found
    return [name, str(n_series), str(n_rows), percent(mean), percent(median), percent(p90)] + [
        percent(summary(scored, key)[0]) for key in ("floor", "alpha_beta", "line_rate")]


HEADER = ["rows", "series", "rows", "geometric mean", "median", "p90", "noise", "alpha-beta", "line rate x 0.8"]


def markdown(rows):
    return "\n".join("|" + "|".join(row) + "|" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]])


def tables(scored):
    """[(title, rows of a table)]: by the issue's classes, collective and size, and machine."""
    clean = without_traps(scored)

    def where(test):
        return [score for score in clean if test(score["row"])]

    one = [(name, where(lambda row, name=name: class_of(row) == name)) for name in CLASS_NAMES]
    goals = one + [("all", clean)] + [(name, [score for score in clean if score["level"] == level])
                                      for level, name in LEVELS.items()]
    sizes = [(f"{coll}, {name}", where(lambda row, coll=coll, least=least, most=most: row["collective"] == coll and
                                       least <= row["bytes"] <= most))
             for coll in dict.fromkeys(score["row"]["collective"] for score in clean) for name, least, most in CLASSES]
    places = [(machine, where(lambda row, machine=machine: row["machine"] == machine))
              for machine in dict.fromkeys(score["row"]["machine"] for score in clean)]
    # where the aims are missed: a class without the rows that miss them
    def without(name, words, test):
        return f"{name}, {words}", where(lambda row: class_of(row) == name and not test(row))
    parts = [without(CLASS_NAMES[0], "without GB200", lambda row: row["machine"].startswith("GB200")),
             without(CLASS_NAMES[0], "16 MiB and more, without GB200",
                     lambda row: row["machine"].startswith("GB200") or row["bytes"] < 1 << 24),
             without(CLASS_NAMES[1], "without GB200", lambda row: row["machine"].startswith("GB200")),
             without(CLASS_NAMES[2], "without 64 KiB to 32 MiB", lambda row: 1 << 16 < row["bytes"] <= 1 << 25),
             without(CLASS_NAMES[2], "256 MiB and more", lambda row: row["bytes"] < 1 << 28),
             without(CLASS_NAMES[3], "without 65 B to 2 KiB", lambda row: 64 < row["bytes"] <= 2048)]
    traps = [(f"trap: {trap}", [score for score in scored if score["row"]["trap"] == trap])
             for trap in sorted({score["row"]["trap"] for score in scored if score["row"]["trap"]})]
    return [(title, [HEADER] + [line for line in (table_line(*entry) for entry in entries) if line])
            for title, entries in (("classes", goals), ("parts", parts), ("sizes", sizes), ("machines", places), ("traps", traps))]


def given_table(clean):
    """Rows whose table names the algorithm: the error with it, and with the algorithm that the simulator chooses."""
    named = [score for score in clean if "free" in score and score["row"]["algorithm_or_proto"] != "default" and
             score["machine"].words["library"] != "oneshot"]
    if not named:
        return [["algorithm", "rows", "geometric mean"], ["(no table names one)", "0", "-"]]
    return [["algorithm", "rows", "geometric mean"],
            ["given by the table", str(len(named)), percent(summary(named)[0])],
            ["chosen by the simulator", str(len(named)), percent(summary(named, "free")[0])]]


# What other simulators publish of their own errors (docs/published.md): rows, theirs, collectives, GPUs, bytes from.
BARS = [("ASTRA-sim 2.0, all-reduce, ring", value, ("all_reduce",), (n,), 1 << 20)
        for n, value in ((2, "20.6 %"), (4, "12.0 %"), (8, "9.7 %"))] + [
    (f"autoparallel, {name}", value, colls, gpus, least << 20)
    for name, colls, gpus, values in (
        ("all-reduce", ("all_reduce",), (2, 4, 8), ("10-20 %", "4-8 %", "1-3 %")),
        ("all-gather, reduce-scatter", ("all_gather", "reduce_scatter"), (2,), ("20 %", "8-10 %", "2-3 %")),
        ("all-gather, reduce-scatter", ("all_gather", "reduce_scatter"), (4,), ("11 %", "5 %", "1 %")),
        ("all-gather, reduce-scatter", ("all_gather", "reduce_scatter"), (8,), ("4-6 %", "1-3 %", "< 1 %")))
    for value, least in zip(values, (1, 64, 512))]


def beside_table(clean):
    """Our errors on held rows of the kind on which others publish theirs; "-" where no such row is held."""
    lines = [["simulator, rows", "GPUs", "from", "its error", "ours: H100, H200", "ours: A100"]]
    for name, value, colls, gpus, least in BARS:
        line = [name, ", ".join(map(str, gpus)), f"{least >> 20} MiB", value]
        for chips in (("H100", "H200"), ("A100",)):
            found = [score for score in clean for row in [score["row"]]
                     if row["hosts"] == 1 and row["library"] == "NCCL" and row["collective"] in colls and
                     row["ranks"] in gpus and row["bytes"] >= least and any(f"8x {chip}" in row["machine"] for chip in chips)]
            line.append(f"{percent(summary(found)[0])} ({len(found)})" if found else "-")
        lines.append(line)
    return lines


def worst_table(clean):
    """The worst row of each of the worst series, so that one bad series does not fill the table, and the mechanism that is
    missing, as the page lists them; else what the prediction was bound by."""
    worst, lines = {}, [["row", "measured us", "predicted us", "what is missing"]]
    for score in sorted(clean, key=lambda score: -score["error"]):
        worst.setdefault(score["series"][:2] + score["series"][4:5], score)
    for score in list(worst.values())[:WORST]:
        answer, row, name = score["answer"], score["row"], score["row"]["algorithm_or_proto"].upper()
        is_low, net = score["us"] < row["time_us"], row.get("net", "")
        reasons = ((is_low and "UTOFU" in name, "set-up of uTofu"), ("Tofu" in net and is_low, "messages of a burst"),
                   ("Tofu" in net, "load of the torus"), ("LUMI" in row["machine"], "LUMI's rate and latency"),
                   ("Slingshot" in net and 1 << 16 < row["bytes"] <= 1 << 25, "Slingshot's plug-in"))
        missing = next((reason for holds, reason in reasons if holds),
                       f"{answer.get('algo', '?')} {answer.get('proto', '')}, busiest: {answer.get('busiest', '?')}")
        lines.append([f"{row['machine'].split(' (')[0]}, {row['collective']}, {row['hosts']}x{row['gpus_per_host']}, "
                      f"{row['bytes']} B", f"{row['time_us']:.1f}", f"{score['us']:.1f}", missing])
    return lines


def report(scored, left):
    """name -> the text of a table."""
    clean = without_traps(scored)
    texts = {title: markdown(rows) for title, rows in
             tables(scored) + [("algorithm", given_table(clean)), ("worst", worst_table(clean)),
                                ("beside", beside_table(clean))]}
    reasons = collections.Counter(reason for _, reason in left)
    texts["left out"] = markdown([["rows", "why they are not predicted"]] +
                                 [[str(n), reason] for reason, n in reasons.most_common()])
    return texts


def bars_text(scored):
    """The p90 of each class: the error bars of --expect."""
    lines = ["# Of tests/published/score.csv, written by gyre validate --bars: class, p90 of predicted / measured, rows"]
    for name in (f"{place}, {band}" for place in PLACES for band, _, _ in CLASSES):
        found = summary([score for score in scored if not score["row"]["trap"] and bar_of(score["row"]) == name])
        if found:
            lines.append(f"{name}\t{1 + found[2]:.2f}\t{found[3]}")
    return "\n".join(lines) + "\n"


def draw(scored):
    """The chart: of each class, which part of the rows has at most that error."""
    import report_charts
    curves = []
    for place in PLACES:
        errors = sorted(100 * math.expm1(score["error"]) for score in scored
                        if not score["row"]["trap"] and class_of(score["row"]).startswith(place))
        if errors:
            parts = range(1, 101)
            shown = [max(errors[min(len(errors) - 1, part * len(errors) // 100)], 0.1) for part in parts]
            curves.append(report_charts.Curve(place, list(parts), shown, style=report_charts.PREDICTED))
    return report_charts.draw_file(curves, "Published times, predicted", "error, %", "svg", "% of the rows")


def refit(simulator, calibration, wanted):
    """Fits the machines anew, those first that others are like, and writes their files."""
    def depth(machine):
        return 0 if machine.base is None else 1 + depth(machine.base)

    names = [machine.short for machine in sorted(read_machines(simulator.folder), key=depth)
             if machine.fits and wanted in ("all", machine.short)]
    for name in names:
        machine = read_machine(os.path.join(simulator.folder, f"{name}.machine"), simulator.folder)
        values = fit(machine, calibration, simulator)
        write_fit(machine, values)
        print(f"{name}: " + ", ".join(f"{key} {value:.4g}" for key, value in values.items()))


def expect(simulator, machine, coll, size, shape):
    """--expect: prints what a collective should reach on a machine: the bound of its links, the prediction, and an error
    bar from predictions of published measurements. Returns the exit status. Errors: MachineError, TableError."""
    folder = simulator.folder
    known = sorted(name[:-8] for name in os.listdir(folder) if name.endswith(".machine"))
    if machine not in known and not os.path.exists(machine):
        raise MachineError(f"there is no machine {machine}; machines are: {', '.join(known)}, or a file")
    machine = read_machine(os.path.join(folder, f"{machine}.machine") if machine in known else machine, folder)
    sizes, shapes = re.fullmatch(r"(\d+)([KMG]?)", size), re.fullmatch(r"(\d+)x(\d+)", shape)
    if sizes is None or int(sizes[1]) < 1 or shapes is None or int(shapes[1]) * int(shapes[2]) < 2:
        raise TableError(f"{size} {shape}: expected a size and HOSTSxGPUS, such as 1G 64x8, of at least 2 GPUs")
    hosts, gpus = int(shapes[1]), int(shapes[2])
    row = {"collective": coll, "bytes": int(sizes[1]) * UNITS[sizes[2]], "hosts": hosts, "gpus_per_host": gpus,
           "ranks": hosts * gpus, "nic_per_host": 0, "nic_gbit_s": 0, "graph": "no", "algorithm_or_proto": "default",
           "library": LIBRARIES[machine.words["library"]], "library_version": ""}
    answer = simulator.ask([query_of(machine, row)])[0]
    if "error" in answer:
        raise TableError(answer["error"])
    time_us, rate, moved = float(answer["time_us"]), line_rate(machine, row), row["bytes"] * bus_factor(row) / 1e3
    with open(os.path.join(folder, "bars.txt"), encoding="utf-8") as file:
        bars = [line.rstrip("\n").split("\t") for line in file if not line.startswith("#")]
    factor, n_rows = next(((float(bar[1]), int(bar[2])) for bar in bars if bar[0] == bar_of(row)), (None, 0))
    print(f"{coll} of {row['bytes']} B by {row['ranks']} ranks, {hosts} x {gpus}, on {machine.short}")
    print(f"bound       {moved / rate:12.1f} us {rate:9.1f} GB/s of busbw: its links alone")
    print(f"prediction  {time_us:12.1f} us {moved / time_us:9.1f} GB/s: {answer['algo']} {answer.get('proto', '')}, busiest: "
          f"{answer['busiest']} {answer['share']}")
    print(f"error bar   {time_us / factor:12.1f} to {time_us * factor:.1f} us: nine of ten of the {n_rows} published times "
          f"of \"{bar_of(row)}\" are within a factor of {factor:.2f}" if factor else
          f"error bar   none: no published time of \"{bar_of(row)}\" was predicted")
    print(f"source      {os.path.relpath(machine.path)}; tests/published/score.csv; docs/published.md")
    return 0


def make_parser():
    """The options, whose help is in bench/gyre.c."""
    parser = argparse.ArgumentParser(prog="gyre validate", add_help=False, allow_abbrev=False,
                                     usage="gyre validate [options] TABLE.csv... (gyre validate --help)")
    parser.add_argument("tables", nargs="*")
    parser.add_argument("--machine", action="append", default=[])
    parser.add_argument("--fit", nargs="?", const="all")
    parser.add_argument("--csv")
    parser.add_argument("--page")
    parser.add_argument("--svg")
    parser.add_argument("--bars", action="store_true")
    parser.add_argument("--expect", nargs=3, metavar=("COLL", "BYTES", "HOSTSxGPUS"))
    return parser


def validate(tools, options):
    """Returns the paths that were written."""
    simulator, written = Simulator(tools), {}
    calibration = read_table(os.path.join(simulator.folder, "calibrate.csv"))
    if options.fit:
        refit(simulator, calibration, options.fit)
    if not options.tables:
        return []
    machines = read_machines(simulator.folder, options.machine)
    rows = [row for path in options.tables for row in read_table(path)]
    scored, left = score_rows(rows, machines, simulator, calibration)
    texts = report(scored, left)
    if options.csv:
        rows = ((score["row"], score["answer"], score["us"]) for score in scored)
        written[options.csv] = csv_text(CSV_COLUMNS, (
            [*(row[key] for key in CSV_COLUMNS[:6]), f"{row['time_us']:g}", f"{us:.5g}", answer.get("algo", ""),
             answer.get("proto", ""), row["trap"]] for row, answer, us in rows))
    if options.svg:
        written[options.svg] = draw(scored)
    if options.bars:
        written[os.path.join(simulator.folder, "bars.txt")] = bars_text(scored)
    for path, data in written.items():
        write_whole(path, data)
    if options.page:  # between `<!-- table NAME -->` and `<!-- end -->`
        with open(options.page, encoding="utf-8") as file:
            page = file.read()
        for name, text in texts.items():
            page = re.sub(rf"(<!-- table {name} -->\n).*?(<!-- end -->)",
                          lambda found, text=text: f"{found[1]}{text}\n{found[2]}", page, flags=re.S)
        write_whole(options.page, page)
    else:
        print("\n\n".join(f"{title}\n\n{text}" for title, text in texts.items()))
    return [*written, *([options.page] if options.page else [])]


def main():
    options = make_parser().parse_args(sys.argv[2:])
    if not options.tables and not options.fit and not options.expect:
        make_parser().error("name a table of measurements (CSV)")
    if options.expect and (len(options.machine) != 1 or options.tables):
        make_parser().error("--expect needs one --machine, and no table")
    if options.svg:
        go_to_python_with_packages("validate", ("matplotlib",))
    try:
        if options.expect:
            return expect(Simulator(sys.argv[1]), options.machine[0], *options.expect)
        return say_written("validate", lambda: validate(sys.argv[1], options), sys.stderr)
    except (TableError, MachineError) as error:
        print(f"gyre validate: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
