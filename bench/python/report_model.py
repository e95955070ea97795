# SPDX-License-Identifier: Apache-2.0
"""Turns the sources into sections, (title, blocks), and writes the Markdown and the HTML page, which show the
same blocks. A number stands there only if it was measured or read; otherwise the cell says why there is none.
"""
import datetime
import os

import jinja2

import report_charts
from report_checks import (NOT_MEASURED, first_line, first_of_each_id, gid_reason, gid_table, gpudirect, infiniband,
                           issues, name_of, nothing, pairs, pfc_ecn, table, text, traffic_class)
from report_sources import doctor_checks, this_machine, write_whole

TEMPLATES = os.path.join(os.path.dirname(os.path.realpath(__file__)), "templates")
MOST_PROBLEMS = 3
LAUNCHERS_OWN = "OMPI_COMM_WORLD_"  # rank and size, which Open MPI tells every process
MANY_GBPS = 0.8  # part of the limit from which the link counts as filled


class Report:
    """The sources, and what several sections need of them."""

    def __init__(self, sources, options):
        self.sources = sources
        self.options = options
        self.runs = sources.runs
        self.doctor = sources.doctor
        self.baseline = next((run for run in self.runs if "NET/Socket" in run.transports()), None)
        self.fastest = max(self.runs, key=self.peak, default=None)

    @staticmethod
    def busbw(row):
        us = report_charts.times_of(row)[0]
        return report_charts.busbw_of(row, us) if row["bytes"] > 0 and us > 0 else 0.0

    def peak(self, run):
        return max(self.busbw(row) for row in run.report["results"])

    def limit(self, run):
        """(GB/s, where from), or (None, why)."""
        if self.options.limit:
            return self.options.limit, "--limit"
        known = run.report["settings"].get("limit_gbytes_per_s")
        if known:
            return known, f"measured by gyre limits ({run.report['settings'].get('limit', '')})"
        return None, "unknown (gyre limits measures GPUs' links; --limit says that of a network)"

    def checks(self, check_id):
        return doctor_checks(self.doctor, check_id)

    def problems(self):
        """Failures first, then warnings."""
        found = [check for check in (self.doctor["checks"] if self.doctor else [])
                 if check["severity"] in ("fail", "warn")]
        return sorted(found, key=lambda check: check["severity"])

    def evidence(self, *check_ids):
        """What gyre doctor said, or why it said nothing."""
        if self.doctor is None:
            return nothing(NO_DOCTOR)
        rows = [[check["id"], check["subject"] or "-", *self.ranks_cell(check), check["severity"], check["evidence"]]
                for check in self.doctor["checks"] if check["id"] in check_ids]
        if not rows:
            return nothing(f"Not known: gyre doctor reported nothing about {', '.join(check_ids)}.")
        return [table(["check", "of", *self.ranks_header(), "verdict", "evidence"], rows)]

    def has_ranks(self):
        """Did gyre doctor run as a job? On one machine alone, its findings name no ranks."""
        return any(check.get("ranks") for check in self.doctor["checks"])

    def ranks_header(self):
        return ["ranks"] if self.has_ranks() else []

    def ranks_cell(self, check):
        return [str(check.get("ranks") or "-")] if self.has_ranks() else []


# ---- the sections, in the order of the page ----------------------------------------------------


def summary(report):
    rows = [[run.label, run.transports(), f"{report.peak(run):.3g} GB/s"] for run in report.runs]
    blocks = [table(["run", "transport detected", "highest busbw"], rows)] if rows else nothing(
        "Transport detected: not known, because no bench could be measured.")
    problems = [f"{name_of(check)}: {first_line(check['evidence'])}"
                for check in first_of_each_id(report.problems())[:MOST_PROBLEMS]]
    blocks.append(text("Key problems:" if problems else "Key problems: " + (
        "gyre doctor found none." if report.doctor else "not known, gyre doctor was not run.")))
    return blocks + ([("list", problems)] if problems else [])


def system(report):
    rows = []
    if not report.options.json:
        rows += this_machine()
    if report.doctor:
        rows += [("hosts that gyre doctor saw", str(report.doctor.get("hosts", "unknown"))),
                 ("gyre", f"{report.doctor.get('gyre_version', '?')}, commit {report.doctor.get('commit', '?')}")]
    for run in report.runs[:1]:
        places = [place for place in run.report["places"] if isinstance(place, dict)]
        hosts = sorted({str(place.get("host")) for place in places})
        rows.append(("ranks", f"{run.report['settings'].get('ranks', '?')} on {', '.join(hosts) or 'unknown hosts'}"))
        rows += [("devices", words) for words in sorted({str(place.get("words")) for place in places})]
    blocks = [table(["what", "value"], [list(row) for row in rows])] if rows else nothing("Not known.")
    if report.doctor and report.has_ranks():
        blocks.append(text("In the tables of checks below, ranks with the same verdict share a row. The evidence is "
                           "that of the first of them, so the others' addresses and files may have other names."))
    return blocks


def variables(report):
    if not report.runs:
        return nothing("Not known, because no bench could be measured.")
    before = report.baseline or report.runs[0]
    others = [run for run in report.runs if run is not before]
    after = max(others, key=report.peak, default=before)
    old, new = before.report["environment"], after.report["environment"]
    names = sorted(name for name in set(old) | set(new) if not name.startswith(LAUNCHERS_OWN))
    if not names:
        return nothing("No variable was set in any run.")
    if not others:
        return [text(f"There is only one run, {before.label}."),
                table(["variable", "value"], [[name, old[name]] for name in names])]
    reason = "the fastest run" if after is report.fastest else \
        f"the fastest of the other runs; {before.label} was faster"
    return [text(f"Before: {before.label}. After: {after.label}, {reason}."),
            table(["variable", "before", "after"],
                  [[name, old.get(name, "unset"), new.get(name, "unset")] for name in names])]


def by_collective(runs):
    """[(collective, its runs)]"""
    names = sorted({run.report["collective"] for run in runs})
    return [(name, [run for run in runs if run.report["collective"] == name]) for name in names]


def results(report):
    if not report.runs:
        return nothing("No bench could be measured; the last section says why.")
    blocks = []
    for name, runs in by_collective(report.runs):
        base = report.baseline if report.baseline in runs else None
        header = ["bytes"]
        for run in runs:
            header += [f"{run.label}: us", "GB/s"]
            if report.limit(run)[0]:
                header.append("% of limit")
            if base and run is not base:
                header.append(f"times as fast as {base.label}")
        by_bytes = {id(run): {row["bytes"]: row for row in run.report["results"]} for run in runs}
        lines = []
        for size in sorted({size for rows in by_bytes.values() for size in rows}):
            line = [str(size)]
            old = by_bytes[id(base)].get(size) if base else None
            for run in runs:
                line += result_cells(report, run, base, by_bytes[id(run)].get(size), old)
            lines.append(line)
        is_checked = all(row["out_of_place"].get("wrong") == 0 for run in runs for row in run.report["results"])
        blocks += [text(f"{name}, busbw. " + ("Data were checked: every result here was right." if is_checked else
                        "Data were not checked in all rows.")),
                   table(header, lines)]
        if base is None:
            blocks.append(text("Speed-up: not measured, there is no TCP run to compare with."))
        blocks += limits(report, runs)
    return blocks


def limits(report, runs):
    """Where the limits come from; runs with the same answer share a line."""
    labels = {}
    for run in runs:
        limit, source = report.limit(run)
        labels.setdefault(f"{limit:g} GB/s, {source}" if limit else source, []).append(run.label)
    return [text(f"Limit of {', '.join(names)}: {words}.") for words, names in labels.items()]


def gbps(busbw):
    """Three decimals, or three digits where decimals would be zeros."""
    return f"{busbw:.3f}" if busbw >= 0.1 else f"{busbw:.3g}"


def result_cells(report, run, base, row, old):
    """The cells of one run and size; empty where the size was not run."""
    limit = report.limit(run)[0]
    n_cells = 2 + bool(limit) + bool(base and run is not base)
    us = report_charts.times_of(row)[0] if row else 0
    if us <= 0:
        return [""] * n_cells
    busbw = report.busbw(row)
    cells = [f"{us:.2f}", gbps(busbw)]
    if limit:
        cells.append(f"{100 * busbw / limit:.1f}")
    if base and run is not base:
        cells.append(f"{report_charts.times_of(old)[0] / us:.2f}" if old else "")
    return cells


def charts(report):
    blocks = []
    for name, runs in by_collective(report.runs):
        limits = [limit for limit in (report.limit(run)[0] for run in runs) if limit]
        pairs = [(run.label, run.report) for run in runs]
        blocks += [("chart", *chart) for chart in report_charts.draw_reports(pairs, max(limits, default=None))]
    return blocks + [text("Bands: lowest to 99th percentile of rounds (--compare) or of single calls.")] \
        if blocks else nothing("No bench could be measured.")


def slow_rdma(report, port):
    """The fastest run is one over TCP, although there is an active RDMA port."""
    run = max((run for run in report.runs if "NET/IB" in run.transports()), key=report.peak, default=None)
    if run is None:
        return nothing(f"No run used RDMA, although {port} is an active RDMA port. What lifts it: RDMA; where "
                       "gyre chose the transport, the log's lines \"not via ib\" say why it is not used.")
    words = (f"RDMA is slower than TCP here: the run \"{run.label}\" reaches {report.peak(run):.3g} GB/s, and "
             f"\"{report.fastest.label}\" {report.peak(report.fastest):.3g}. ")
    warnings = [check for check in report.problems() if check["id"].startswith(("rdma.", "job.rail"))]
    if not warnings:
        return nothing(words + "gyre doctor names no cause.")
    return nothing(words + f"gyre doctor's first warning about RDMA is {name_of(warnings[0])}: "
                   f"{first_line(warnings[0]['evidence'])}. What lifts it: {warnings[0]['fix'] or 'not known'}.")


def bottleneck(report):
    """The first cause that applies, from the surest to the least sure."""
    fails = [check for check in report.problems() if check["severity"] == "fail"]
    if fails:
        return nothing(f"{fails[0]['id']} failed: {first_line(fails[0]['evidence'])}. What lifts it: {fails[0]['fix']}")
    if report.fastest is None:
        return nothing("Cannot be told: no bench could be measured.")
    active = [check for check in report.checks("rdma.ports") if check["severity"] == "ok"]
    fast = report.fastest
    if active and "NET/Socket" in fast.transports():
        return slow_rdma(report, active[0]["subject"])
    limit, source = report.limit(fast)
    peak = report.peak(fast)
    warns = [check for check in report.problems() if check["severity"] == "warn"]
    hint = f" The first warning to mend is {warns[0]['id']}." if warns else ""
    if limit is None:
        return nothing(f"Cannot be told: {fast.label} reaches {peak:.3g} GB/s, and the limit of its links is "
                       f"{source}.{hint}")
    share = peak / limit
    if share >= MANY_GBPS:
        return nothing(f"The links: {fast.label} reaches {share:.0%} of {limit:g} GB/s. What lifts it: faster or more "
                       "links, or fewer bytes.")
    return nothing(f"Not the links: {fast.label} reaches {share:.0%} of {limit:g} GB/s at its best size. Larger calls, "
                   f"gyre tune, and gyre doctor's warnings come first.{hint}")


def ddp(report):
    times = {engine: value for engine, value in (report.sources.ddp or {}).items() if not isinstance(value, str)}
    if report.sources.ddp is None:
        return nothing(f"Not measured: {dict(report.sources.missing).get('DDP iteration times', 'unknown')}.")
    gloo = times.get("gloo")
    rows = []
    for engine, value in report.sources.ddp.items():
        known = engine in times
        rows.append([engine, f"{value:.2f}" if known else "",
                     f"{gloo / value:.2f}" if known and gloo and engine != "gloo" else "",
                     "" if known else f"{NOT_MEASURED}: {value}"])
    return [table(["engine", "ms an iteration", "times as fast as gloo", "remark"], rows)]


def log_evidence(report):
    blocks = []
    for run in report.runs:
        if run.evidence:
            blocks += [text(f"{run.label}, log of {run.source}:"),
                       ("code", "\n".join(f"line {number}: {line}" for number, line in run.evidence))]
    for name, lines in report.sources.logs:
        blocks += [text(f"{name}:"), ("code", "\n".join(f"{name}:{number}: {line}" for number, line in lines)
                                      or "no line about transports")]
    return blocks or nothing("No log was given (--log) or made. The transports above are those that the benches' "
                             "reports name.")


def missing(report):
    rows = [list(pair) for pair in report.sources.missing]
    return [table(["what", "why"], rows)] if rows else nothing("Everything that this report measures was measured.")


# (title, what makes the blocks, does it need gyre doctor's report)
SECTIONS = [
    ("Summary", summary, False), ("System", system, False),
    ("Network interfaces", lambda report: report.evidence("net.interfaces"), True),
    ("RDMA devices", lambda report: report.evidence("rdma.devices", "rdma.ports", "rdma.rate", "rdma.pcie"), True),
    ("GID table", gid_table, True), ("Variables before and after", variables, False), ("Issues", issues, True),
    ("GPUDirect RDMA", gpudirect, False),
    ("Interfaces and devices: what was chosen",
     lambda report: report.evidence("net.speed", "net.mtu", "net.bond", "rdma.hca", "rdma.mtu"), True),
    ("GID index: why this row", gid_reason, False), ("Traffic class", traffic_class, False),
    ("PFC and ECN: why both", pfc_ecn, False), ("InfiniBand", infiniband, True),
    ("Pairs of hosts, GPUs and rails", pairs, True), ("Results", results, False), ("Charts", charts, False),
    ("Largest bottleneck", bottleneck, False), ("PyTorch DDP iterations", ddp, False),
    ("Log evidence", log_evidence, False), ("Not measured", missing, False),
]
NO_DOCTOR = "Not known: there is no report of gyre doctor."


def make_sections(sources, options):
    report = Report(sources, options)
    return [(title, nothing(NO_DOCTOR) if needs_doctor and report.doctor is None else make(report))
            for title, make, needs_doctor in SECTIONS]


def cell(words):
    """Text of a Markdown table's cell."""
    return str(words).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", "<br>")


def write_pages(sources, options):
    """Returns the paths of the pages. OSError if one cannot be written."""
    page = {"title": options.title, "sections": make_sections(sources, options),
            "written": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")}
    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, trim_blocks=True,
                                     lstrip_blocks=True,
                                     autoescape=lambda name: name is not None and ".html" in name)
    environment.filters["cell"] = cell
    paths = []
    for kind in ("md", "html"):
        path = f"{options.output}.{kind}"
        write_whole(path, environment.get_template(f"report.{kind}.j2").render(page))
        paths.append(path)
    return paths
