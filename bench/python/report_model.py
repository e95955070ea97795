# SPDX-License-Identifier: Apache-2.0
"""Turns the sources into sections, (title, blocks), and writes the Markdown and the HTML page, which show the
same blocks. A number stands there only if it was measured or read; otherwise the cell says why there is none.
"""
import datetime
import os
import re

import jinja2

import report_charts
from report_checks import (NOT_MEASURED, first_line, gid_table, gpudirect, infiniband, issues, name_of, nothing, pairs,
                           pfc_ecn, table, text, traffic_class)
from report_sources import doctor_checks, this_machine, write_whole

TEMPLATES = os.path.join(os.path.dirname(os.path.realpath(__file__)), "templates")
LAUNCHERS_OWN = "OMPI_COMM_WORLD_"  # rank and size, which Open MPI tells every process
MANY_GBPS = 0.8  # part of the limit from which the link counts as filled
MOST_GBPS = 1.05 # and up to which it can be this run's limit
REFERENCES = (
    "busbw and its factors: PERFORMANCE.md of NVIDIA/nccl-tests; docs/read_your_result.md of gyre",
    "variables: NCCL's documentation, Environment Variables; gyre env",
    "RoCE v2: InfiniBand Architecture Specification, annex A17; PFC: IEEE 802.1Qbb; ECN: RFC 3168",
    "ECN and PFC together: Zhu et al., Congestion Control for Large-Scale RDMA Deployments (DCQCN), SIGCOMM 2015",
    "what each check reads and how to mend it: docs/doctor.md of gyre; setting up hosts: docs/cluster.md",
)


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
        used = self.used_ports(run)
        rates = {check["subject"]: float(found.group(1)) for check in self.checks("rdma.devices")
                 for found in [re.search(r"(\d+(?:\.\d+)?) Gb/sec", check["evidence"])]
                 if found and not check["subject"].startswith(("rxe", "siw")) and (not used or check["subject"] in used)}
        if rates and "NET/IB" in run.transports():
            return sum(rates.values()) / 8, f"line rate of {len(rates)} RDMA port{'s' if len(rates) > 1 else ''} together"
        return None, "unknown (gyre limits measures GPUs' links; --limit says that of a network)"

    def used_ports(self, run):
        """The RDMA ports that the run's log names, else those that gyre doctor calls active. Empty = not known."""
        lines = run.evidence or [line for _, lines in self.sources.logs for line in lines]
        named = {port for _, line in lines if re.search("NET/IB : (rail|Using)", line)
                 for port in re.findall(r"\[\d+\]([\w.-]+:\d+)", line)}
        return named or {check["subject"] for check in self.checks("rdma.ports") if check["severity"] == "ok"}

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


def verdict(report):
    """Three sentences: the transport, how far it is from the bound, what to change first."""
    best = report.fastest
    if best is None:
        return [text("Transport: not known, because no bench could be measured."),
                text("Distance from the bound: not known."), text("Change first: " + change_first(report))]
    peak, (limit, source) = report.peak(best), report.limit(best)
    far = f"not known, because the bound is {source}"
    if limit:
        far = f"it reaches {peak / limit:.0%} of {limit:g} GB/s, {source}" if peak <= MOST_GBPS * limit else \
            f"not known, because {limit:g} GB/s, {source}, is less than it reaches"
    beside = f"; TCP reaches {gbps(report.peak(report.baseline))} GB/s" if report.baseline not in (None, best) else ""
    return [text(f"Transport: \"{best.label}\" uses {best.transports()} and is the fastest of "
                 f"{len(report.runs)} run{'s' if len(report.runs) > 1 else ''} with {gbps(peak)} GB/s of busbw{beside}."),
            text(f"Distance from the bound: {far}."),
            text("Change first: " + change_first(report)), *moves(report)]


def moves(report):
    """What broke while this was measured (docs/failover.md); nothing if nothing did."""
    lines = [line for run in report.runs for _, line in run.evidence]
    lines += [line for _, found in report.sources.logs for _, line in found]
    lines = [line for line in lines if re.search(r"NET/\w+ : connection .*It runs again after", line)]
    ports = sorted({port for line in lines for port in re.findall(r": (?:rank \d+: )?([\w.-]+/\d+): ", line)})
    return [text(f"Failures: {len(lines)} move{'s' if len(lines) > 1 else ''} of connections in the logs, away from "
                 f"{', '.join(ports) or 'TCP links'}: these runs' figures are those of the links that were left.")] if lines else []


def impact(report):
    """What is lost of a step beside the bound and beside the fastest run, which a fault costs."""
    runs = [run for run in report.runs if run.report["collective"] == "all_reduce"]
    if not runs:
        return nothing(f"{NOT_MEASURED}: there is no run of all-reduces.")
    n_bytes = report.options.step or max(row["bytes"] for run in runs for row in run.report["results"])
    compute = report.options.compute_ms or 0
    times = {}
    for run in runs:  # at the rate of the largest call that is no larger than the step
        known = sorted((row for row in run.report["results"] if row["bytes"] > 0 and report_charts.times_of(row)[0] > 0),
                       key=lambda row: row["bytes"])
        row = ([row for row in known if row["bytes"] <= n_bytes] or known[:1] or [None])[-1]
        times[id(run)] = report_charts.times_of(row)[0] / 1e3 * n_bytes / row["bytes"] if row else None
    least = min((ms for ms in times.values() if ms), default=0)
    fastest = next((run for run in runs if times[id(run)] == least), None)
    rows = []
    for run in runs:
        ms, limit = times[id(run)], report.limit(run)[0]
        if not ms:
            continue
        row = max(run.report["results"], key=lambda row: row["bytes"])
        ideal = n_bytes * report_charts.bus_factor(row) / (limit * 1e6) if limit else None
        cells = [run.label, f"{ms:.3f}"]
        for lost in (ms - least, None if ideal is None else max(ms - ideal, 0)):
            cells += ["", ""] if lost is None else [f"{lost:.3f}", f"{100 * lost / (ms + compute):.1f}"]
        rows.append(cells)
    whole = f"the step, which also computes for {compute:g} ms" if compute else \
        "its communication (--compute-ms makes it that of the step)"
    blocks = [text(f"A step that all-reduces {report_charts.size_text(n_bytes)}"
                   f"{'' if report.options.step else ' (the largest call; --step says what a step of the training moves)'}. "
                   f"The percentages are of {whole}."),
              table(["run", "ms a step", "more than the fastest run, ms", "%", "more than the bound, ms", "%"], rows)]
    chosen = next((cells for cells in rows if cells[0] == runs[0].label), None)
    if chosen and fastest is not runs[0]:
        blocks.append(text(f"\"{chosen[0]}\" costs {chosen[2]} ms a step more than \"{fastest.label}\", {chosen[3]} %." + (
            f" The first finding is {name_of(report.problems()[0])}." if report.problems() else "")))
    elif chosen and chosen[4]:
        blocks.append(text(f"So whatever is mended saves at most {chosen[4]} ms a step, {chosen[5]} %."))
    return blocks


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


def before_after(report):
    if not report.runs:
        return nothing("Not known, because no bench could be measured.")
    before = report.baseline or report.runs[0]
    others = [run for run in report.runs if run.transports() != before.transports()]
    after = max(others, key=report.peak, default=before)
    old, new = before.report["environment"], after.report["environment"]
    names = sorted(name for name in set(old) | set(new) if not name.startswith(LAUNCHERS_OWN))
    if not others:
        same = f"There is only one run, {before.label}" if len(report.runs) == 1 else \
            f"All runs used {before.transports()}, so there is no before and after"
        rows = [[name, old[name]] for name in names if name in old]
        return [text(same + ("." if rows else ", and no variable was set."))] + (
            [table(["variable", "value"], rows)] if rows else [])
    reason = "the fastest run" if after is report.fastest else \
        f"the fastest of the other runs; {before.label} was faster"
    rows = [["transport", before.transports(), after.transports()],
            ["highest busbw, GB/s", gbps(report.peak(before)), gbps(report.peak(after))]]
    return [text(f"Before: {before.label}. After: {after.label}, {reason}."),
            table(["what", "before", "after"],
                  rows + [[name, old.get(name, "unset"), new.get(name, "unset")] for name in names])]


def exports(report):
    if not report.sources.exports:
        return nothing("Not known: gyre doctor --emit-env was not run (--env FILE takes what it printed).")
    return [text("As gyre doctor --emit-env prints them, with == for exactly this name:"),
            ("code", report.sources.exports)]


def scaling(report):
    """busbw, which should not fall with more hosts, over that of the fewest hosts."""
    blocks = []
    runs = [run for run in [*report.runs, *report.sources.scaling] if run.n_hosts() > 1]
    for key in sorted({(run.report["collective"], run.transports()) for run in runs}):
        by_hosts = {run.n_hosts(): run for run in runs if (run.report["collective"], run.transports()) == key}
        sizes = [{row["bytes"] for row in run.report["results"] if row["out_of_place"]["time_us"] > 0}
                 for run in by_hosts.values()]
        common = max(set.intersection(*sizes), default=0)
        if len(by_hosts) < 2 or not common:
            continue
        first, rows = None, []
        for n_hosts, run in sorted(by_hosts.items()):
            row = next(row for row in run.report["results"] if row["bytes"] == common)
            busbw = report.busbw(row)
            first = first or busbw
            rows.append([str(n_hosts), str(run.report["settings"].get("ranks", "?")),
                         f"{report_charts.times_of(row)[0]:.2f}", gbps(busbw), f"{100 * busbw / first:.1f}"])
        blocks += [text(f"{key[0]} of {report_charts.size_text(common)}, {key[1]}. Efficiency: busbw / that of the fewest "
                        "hosts."), table(["hosts", "ranks", "us", "busbw, GB/s", "efficiency, %"], rows)]
    return blocks or nothing(f"{NOT_MEASURED}: it takes runs over two numbers of hosts (--scale a,b,c, or --json of each).")


def by_collective(runs):
    """[(collective, its runs)]"""
    names = sorted({run.report["collective"] for run in runs})
    return [(name, [run for run in runs if run.report["collective"] == name]) for name in names]


def results(report):
    if not report.runs:
        return nothing("No bench could be measured; the last section says why.")
    blocks = [table(["run", "transport detected", "GPUDirect", "highest busbw"],
                    [[run.label, run.transports(), "-" if "NET/IB" not in run.transports() else
                      "on" if "GDRDMA" in run.transports() else "off", f"{gbps(report.peak(run))} GB/s"]
                     for run in report.runs])]
    for name, runs in by_collective(report.runs):
        base = report.baseline if report.baseline in runs else None
        header = ["size"]
        for run in runs:
            header += [f"{run.label}: us", "GB/s"]
            if report.limit(run)[0]:
                header.append("% of bound")
            if base and run is not base:
                header.append(f"x {base.label}")
        by_bytes = {id(run): {row["bytes"]: row for row in run.report["results"]} for run in runs}
        lines = []
        for size in sorted({size for rows in by_bytes.values() for size in rows}):
            line = [report_charts.size_text(size)]
            old = by_bytes[id(base)].get(size) if base else None
            for run in runs:
                row, limit = by_bytes[id(run)].get(size), report.limit(run)[0]
                is_compared = base is not None and run is not base
                us = report_charts.times_of(row)[0] if row else 0
                if us <= 0:  # the size was not run
                    line += [""] * (2 + bool(limit) + is_compared)
                    continue
                busbw = report.busbw(row)
                line += [f"{us:.2f}", gbps(busbw)]
                line += [f"{100 * busbw / limit:.1f}"] if limit else []
                line += [f"{report_charts.times_of(old)[0] / us:.2f}" if old else ""] if is_compared else []
            lines.append(line)
        is_checked = all(row["out_of_place"].get("wrong") == 0 for run in runs for row in run.report["results"])
        blocks += [text(f"{name}, time and busbw{f'; x {base.label}: times as fast' if base else ''}. " + ("Data were checked: every result here was right." if is_checked else
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


def charts(report):
    blocks = []
    for name, runs in by_collective(report.runs):
        limits = [limit for limit in (report.limit(run)[0] for run in runs) if limit]
        pairs = [(run.label, run.report) for run in runs]
        blocks += [("chart", *chart) for chart in report_charts.draw_reports(pairs, max(limits, default=None))]
    return blocks or nothing("No bench could be measured.")


def change_first(report):
    """The first cause that applies, from the surest to the least sure."""
    fails, warns = ([check for check in report.problems() if check["severity"] == severity]
                    for severity in ("fail", "warn"))
    fast = report.fastest
    active = [check for check in report.checks("rdma.ports") if check["severity"] == "ok"]
    if fails:
        return finding_words(fails[0])
    if fast is not None and active and "NET/Socket" in fast.transports():
        rdma = max((run for run in report.runs if "NET/IB" in run.transports()), key=report.peak, default=None)
        if rdma is None:
            return (f"no run used RDMA, although {active[0]['subject']} is an active RDMA port; where gyre chose the "
                    "transport, the log's lines \"not via ib\" say why.")
        about = [check for check in warns if check["id"].startswith(("rdma.", "job.rail"))]
        return (f"RDMA is slower than TCP here: \"{rdma.label}\" reaches {gbps(report.peak(rdma))} GB/s, and "
                f"\"{fast.label}\" {gbps(report.peak(fast))}. " + (finding_words(about[0]) if about else
                                                                "gyre doctor names no cause."))
    limit = report.limit(fast)[0] if fast is not None else None
    if limit and MANY_GBPS <= report.peak(fast) / limit <= MOST_GBPS:
        return "the links, which are filled: faster or more of them, or fewer bytes."
    if warns:
        return finding_words(warns[0])
    if report.doctor is None:
        return "not known, because gyre doctor was not run."
    return "gyre doctor found no problem; " + ("the links are not filled: try larger calls and gyre tune." if limit else
                                               "give --limit to see whether the links are filled.")


def finding_words(check):
    return f"{name_of(check)}: {first_line(check['evidence'])}. What mends it: {check['fix'] or 'not known'}."


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


def method(report):
    rows = []
    for run in [*report.runs, *report.sources.scaling]:
        settings = run.report["settings"]
        sizes = [row["bytes"] for row in run.report["results"]]
        rows.append([run.label, run.source, f"{settings.get('ranks') or '?'} on {run.n_hosts() or '?'}",
                     f"{report_charts.size_text(min(sizes))} to {report_charts.size_text(max(sizes))}",
                     f"{settings.get('iterations', '?')} after {settings.get('warmup_iterations', '?')}"])
    words = text("A call's time is that of a batch of calls over their number, the mean over ranks, out of place; of "
                 "--compare the median round. algbw = size / time; busbw = algbw x 2 (n - 1) / n for all-reduces among n "
                 "ranks. Bands in charts: lowest to 99th percentile of rounds (--compare) or of calls timed alone.")
    return ([table(["run", "command or file", "ranks on hosts", "sizes", "calls after warm-up"], rows)]
            if rows else []) + [words]


def missing(report):
    rows = [list(pair) for pair in report.sources.missing]
    return [table(["what", "why"], rows)] if rows else nothing("Everything that this report measures was measured.")


# (title, what makes the blocks, does it need gyre doctor's report)
SECTIONS = [
    ("Verdict", verdict, False), ("Impact", impact, False), ("Transports", results, False), ("Charts", charts, False),
    ("Scaling over hosts", scaling, False), ("PyTorch DDP iterations", ddp, False),
    ("Pairs of hosts, GPUs and rails", pairs, True), ("Variables to export", exports, False),
    ("Before and after", before_after, False), ("Issues", issues, True), ("System", system, False),
    ("Network interfaces", lambda report: report.evidence("net.interfaces", "net.speed", "net.mtu", "net.bond"), True),
    ("RDMA devices", lambda report: report.evidence("rdma.devices", "rdma.ports", "rdma.hca", "rdma.rate", "rdma.pcie",
                                                    "rdma.mtu"), True),
    ("GID table, and why this row", gid_table, True), ("Traffic class", traffic_class, False),
    ("PFC and ECN: why both", pfc_ecn, False), ("GPUDirect RDMA", gpudirect, False), ("InfiniBand", infiniband, True),
    ("Log evidence", log_evidence, False), ("Method", method, False),
    ("References", lambda report: [("list", REFERENCES)], False), ("Not measured", missing, False),
]
NO_DOCTOR = "Not known: there is no report of gyre doctor."


def cell(words):
    """Text of a Markdown table's cell."""
    return str(words).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", "<br>")


def write_pages(sources, options):
    """Returns the paths of the pages. OSError if one cannot be written."""
    report = Report(sources, options)
    sections = [(title, nothing(NO_DOCTOR) if needs_doctor and report.doctor is None else make(report))
                for title, make, needs_doctor in SECTIONS]
    page = {"title": options.title, "sections": sections,
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
