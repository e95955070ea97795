# SPDX-License-Identifier: Apache-2.0
"""Everything that a report is made of, checked: reports of benches, gyre doctor, logs, DDP times. A
file that is not what it should be is an error that names it; nothing is taken from it."""
import csv
import io
import json
import math
import os
import platform
import re
import sys
import tempfile
from dataclasses import dataclass, field

import machine_facts
from report_runs import RunError, run_bench, run_ddp, run_doctor, run_env

MOST_BYTES = 64 << 20
MOST_LINES = 40    # of a log, and as many warnings
# The lines of a log that prove which transport is used, and warnings of gyre and of NCCL.
EVIDENCE = re.compile(r"NET/|via (P2P|SHM)|GDRDMA|not via|Falling back|falling back", re.I)
WARNING = re.compile(r"\b(NCCL|GYRE) (WARN|ERROR)\b")
TRANSPORTS = {"default": "default (gyre chooses)", "socket": "TCP", "shm": "shared memory",
              "p2p": "direct (p2p)", "ib": "RDMA", "ib-host": "RDMA, GPUDirect off"}
# The programs of nccl-tests -> the collective, and bytes over a link / size among n ranks.
COLLECTIVES = {"all_reduce": ("all_reduce", lambda n: 2 * (n - 1) / n),
               "all_gather": ("all_gather", lambda n: (n - 1) / n),
               "reduce_scatter": ("reduce_scatter", lambda n: (n - 1) / n),
               "alltoall": ("all_to_all", lambda n: (n - 1) / n), "broadcast": ("broadcast", lambda n: 1),
               "reduce": ("reduce", lambda n: 1), "gather": ("gather", lambda n: (n - 1) / n),
               "scatter": ("scatter", lambda n: (n - 1) / n), "sendrecv": ("send_recv", lambda n: 1)}
RANK_LINE = re.compile(r"#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*)")
VIA = re.compile(r"\bvia ((?:P2P|SHM|NET)(?:/[\w-]+)*)")
SHOWN_VARIABLES = ("NCCL_", "GYRE_", "CUDA_VISIBLE")
SECRET = re.compile(r"TOKEN|KEY|PASS|SECRET", re.I)


class SourceError(Exception):
    """A file that was given cannot be used."""


@dataclass
class Run:
    """One bench over one transport."""
    label: str
    report: dict
    source: str                                    # the file, or the command
    evidence: list = field(default_factory=list)   # lines of its log

    def transports(self):
        names = {row.get("transports") or "" for row in self.report["results"]}
        return ", ".join(sorted(name for name in names if name)) or "not in the report"

    def n_hosts(self):
        """0 = unknown."""
        return len({str(place.get("host")) for place in self.report["places"] if isinstance(place, dict)})


@dataclass
class Sources:
    runs: list
    doctor: dict          # None = there is none
    ddp: dict             # engine -> ms or reason; None = not measured
    missing: list         # (what, why) of everything that could not be measured
    logs: list            # (name, evidence lines)
    scaling: list         # runs over 2, 3, ... hosts
    exports: str          # what gyre doctor --emit-env printed; "" = not known


def read_bytes(path):
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from error
    if len(data) > MOST_BYTES:
        raise SourceError(f"{path}: larger than {MOST_BYTES >> 20} MiB")
    return data


def read_json(path):
    try:
        return json.loads(read_bytes(path).decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path}: is not JSON: {error}") from error


def write_whole(path, data):
    """Writes a file of text or bytes, which appears whole or not at all. A link stays a link, an old file keeps
    its permissions, and devices and pipes are written directly. OSError if that fails."""
    data = data.encode() if isinstance(data, str) else data
    is_descriptor = path.startswith("/dev/") and not path.startswith("/dev/shm/")   # such as /dev/stdout
    if is_descriptor or (os.path.exists(path) and not os.path.isfile(path)):
        with open(path, "ab") as file:
            file.write(data)
        return
    target = os.path.realpath(path)
    try:
        descriptor, new = tempfile.mkstemp(".part", os.path.basename(target) + ".", os.path.dirname(target))
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error   # the random name means nothing to users
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        mask = os.umask(0o077)   # it can be read only by being set
        os.umask(mask)
        os.chmod(new, os.stat(target).st_mode & 0o777 if os.path.exists(target) else 0o666 & ~mask)
        os.replace(new, target)
    except OSError:
        os.unlink(new)
        raise


def csv_text(columns, rows):
    """A table as CSV. A row is a list, or a dictionary whose missing cells are empty."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [columns, *([row.get(key, "") for key in columns] if isinstance(row, dict) else row for row in rows)])
    return text.getvalue()


def say_written(command_name, write, out=sys.stdout):
    """Says in `out` which files `write` wrote, whose paths it returns, or why it failed. Returns the exit status."""
    try:
        paths = write()
    except (SourceError, OSError) as error:
        print(f"gyre {command_name}: {error}", file=sys.stderr)
        return 1
    if paths:
        print("wrote " + " and ".join(paths), file=out)
    return 0


def split_label(text):
    """LABEL=FILE -> (label, path). A name of a file that exists is a name, even with a = in it."""
    label, _, path = text.partition("=") if "=" in text and not os.path.exists(text) else ("", "", text)
    return label, path


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def has_bad_edges(times, *keys):
    """Is one of the edges of a band there, but no number?"""
    return not isinstance(times, dict) or not all(times.get(key) is None or is_number(times[key]) for key in keys)


def check_row(row):
    """Returns what is wrong with a row, or ""."""
    if not isinstance(row, dict) or not is_number(row.get("bytes")):
        return "a row has no size"
    timing = row.get("out_of_place")
    if not isinstance(timing, dict) or not all(
            is_number(timing.get(key)) and timing[key] >= 0
            for key in ("time_us", "algbw_gbytes_per_s", "busbw_gbytes_per_s")):
        return f"the row of {row['bytes']} bytes has no times"
    for half in (timing, row.get("in_place") or {}):
        if not isinstance(half, dict) or has_bad_edges(half.get("single_calls_us", {}), "min", "p99"):
            return f"the times of single calls of {row['bytes']} bytes are not as benches write them"
        if half.get("wrong") not in (None, 0):
            return f"the results of {row['bytes']} bytes were wrong, so its times say nothing"
    rounds = row.get("comparison")
    if rounds is not None and not (isinstance(rounds, dict) and is_number(rounds.get("gyre_us"))
                                   and is_number(rounds.get("reference_us"))) \
            or has_bad_edges(rounds or {}, "gyre_min_us", "gyre_p99_us"):
        return f"the comparison of {row['bytes']} bytes has no times"
    return ""


def check_bench(report, name):
    """SourceError unless the value is a bench's --json, with rows that are right."""
    if not isinstance(report, dict) or not isinstance(report.get("collective"), str) or not isinstance(
            report.get("settings"), dict) or not isinstance(report.get("results"), list):
        raise SourceError(f"{name}: is not the report of a bench (made by --json)")
    if report.get("schema_version") != 1:
        raise SourceError(f"{name}: its schema_version is {report.get('schema_version')}, not 1")
    if not report["results"]:
        raise SourceError(f"{name}: has no results; was the bench interrupted?")
    for row in report["results"]:
        problem = check_row(row)
        if problem:
            raise SourceError(f"{name}: {problem}")
    for key, kind in (("environment", dict), ("places", list)):
        if not isinstance(report.setdefault(key, kind()), kind):
            raise SourceError(f"{name}: its {key} is not as benches write it")
    return report


def check_doctor(report, name):
    """SourceError unless the value is the --json of gyre doctor."""
    keys = ("id", "severity", "subject", "evidence", "fix")
    if not isinstance(report, dict) or not isinstance(report.get("checks"), list) or not all(
            isinstance(check, dict) and all(isinstance(check.get(key), str) for key in keys)
            for check in report["checks"]):
        raise SourceError(f"{name}: is not the report of gyre doctor (made by --json)")

    def is_matrix(matrix):  # a name for each row, and rows of as many numbers or nulls
        names = matrix.get("names") if isinstance(matrix, dict) else None
        return isinstance(names, list) and all(isinstance(name, str) for name in names) and all(
            isinstance(matrix.get(key), list) and len(matrix[key]) == len(names) and all(
                isinstance(row, list) and len(row) == len(names) and all(value is None or is_number(value) for value in row)
                for row in matrix[key])
            for key in ("gbytes_per_s", "latency_us"))

    matrices = report.get("matrix") or {}
    if not isinstance(matrices, dict) or not all(matrix is None or is_matrix(matrix) for matrix in matrices.values()):
        raise SourceError(f"{name}: its matrix is not as gyre doctor writes it")
    return report


def check_ddp(value, name):
    if not isinstance(value, dict) or not value or not all(
            is_number(time) and time > 0 or isinstance(time, str) for time in value.values()):
        raise SourceError(f'{name}: expected DDP times in ms, {{"gloo": 150.2, "gyre": 80.1}}')
    return value


def evidence_of(log):
    """(line number, line) of the lines that prove a transport; each text once."""
    seen, found, n_left = set(), [], {True: MOST_LINES, False: MOST_LINES}
    for number, line in enumerate(log.splitlines(), 1):
        bare = re.sub(r"^\S+:\d+:\d+ (\[\d+\] )?", "", line)
        bare = re.sub(r"\bcommunicator \w+: |:\d{4,5}\b|rank \d+( -> \d+)?|Channel \d+/\d+ *: *\d+\S* -> \d+\S*", "",
                      bare)
        is_warning = bool(WARNING.search(line))
        if (is_warning or EVIDENCE.search(line)) and bare not in seen and n_left[is_warning] > 0:
            seen.add(bare)
            n_left[is_warning] -= 1
            found.append((number, line.strip()))
    return found


def doctor_checks(doctor, check_id, severities=("ok", "warn", "fail", "unknown")):
    checks = doctor["checks"] if doctor else []
    return [check for check in checks if check["id"] == check_id and check["severity"] in severities]


def absent(transport, doctor, options):
    """Why a transport need not be tried, or ""."""
    if transport == "ib" and doctor and not doctor_checks(doctor, "rdma.devices", ("ok", "warn", "fail")):
        return "gyre doctor found no RDMA device"
    if transport == "ib-host" and not doctor_checks(doctor, "gpu.driver", ("ok", "warn", "fail")):
        return "gyre doctor found no GPU, so no GPUDirect to turn off"
    if transport in ("shm", "p2p") and options.launch:
        return "between hosts there is no shared memory; name it with --transports for a job of one host"
    return ""


# ---- nccl-tests: its text (with NCCL's log between the lines, or without) and the JSON of -J, in the form of a
# bench's report. gyre's own benches print the same text. ----


def number_of(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return None   # N/A, or "nan"


def collective_of(words, factor, n_ranks, has_op):
    """(collective, bytes over a link / size) by the program's name or, where it is not said, by busbw / algbw."""
    named = [name for name in re.findall(r"(\w+)_perf", words) if name in COLLECTIVES]
    if named:
        name, factor_of = COLLECTIVES[named[0]]
        return name, factor_of(n_ranks)
    for name in ("all_reduce", "reduce_scatter") if has_op and n_ranks > 1 else ():
        if abs(COLLECTIVES[name][1](n_ranks) - factor) < 0.03 * factor:
            return name, COLLECTIVES[name][1](n_ranks)
    return "unknown", factor


def nccl_report(rows, places, words, settings, environment, log=""):
    """rows: (bytes, count, type, op, out of place, in place), each half (us, algbw, busbw, wrong) or None."""
    largest = max((row for row in rows if row[4]), key=lambda row: row[0], default=None)
    n_ranks = settings["ranks"] = len(places) or None
    factor = largest[4][2] / largest[4][1] if largest and largest[4][1] else 1.0
    name, factor = collective_of(words, factor, n_ranks or 0, bool(rows) and rows[0][3] != "none")
    # NET/IB/GDRDMA, ...: what the lines "via" name, without numbers of devices.
    transports = ", ".join(sorted({re.sub(r"/\d+(?=/|$)", "", found) for found in VIA.findall(log)}))
    results = []
    for n_bytes, count, kind, _, *halves in rows:
        row = {"bytes": n_bytes, "count": count, "type": kind, "transports": transports}
        for key, half in zip(("out_of_place", "in_place"), halves):
            if half and half[0]:
                # The bandwidths are printed with two decimals, of small calls 0.00.
                algbw = n_bytes / (half[0] * 1e3)
                row[key] = {"time_us": half[0], "algbw_gbytes_per_s": algbw, "busbw_gbytes_per_s": algbw * factor,
                            "wrong": half[3]}
        row.setdefault("out_of_place", row.get("in_place"))   # replays of traces are in place only
        results.append(row)
    return {"schema_version": 1, "collective": name, "settings": {**settings, "reference": ""},
            "environment": environment, "places": places, "results": results}


def from_nccl_text(text):
    """None = there is no table in it."""
    columns = re.search(r"^#\s+(size\s+count\s+type\s+.*time\s+algbw\s+busbw.*)$", text, re.M)
    if not columns:
        return None
    names = columns.group(1).split()
    times = [at for at, name in enumerate(names) if name == "time"]
    op = names.index("redop") if "redop" in names else None
    rows = []
    for line in text.splitlines():
        cells = line.split()
        if len(cells) < times[0] + 3 or not re.fullmatch(r"\s*\d+\s+\d+\s+[a-z]\w*\s.*", line):
            continue
        halves = [tuple(number_of(cell) for cell in (cells[at:at + 4] + [None])[:4]) for at in times if at + 3 <= len(cells)]
        rows.append((int(cells[0]), int(cells[1]), cells[2], cells[op] if op else "none", halves[0],
                     halves[1] if len(halves) > 1 else None))
    places = [{"rank": int(rank), "host": host, "words": words} for rank, host, words in RANK_LINE.findall(text)]
    settings = {key: int(found.group(1)) for key, found in (
        ("warmup_iterations", re.search(r"warmup iters: (\d+)", text)),
        ("iterations", re.search(r"(?<!warmup )(?<!agg )\biters: (\d+)", text))) if found}
    starting = re.search(r"Collective test starting: (\S+)", text)
    words = starting.group(1) if starting else " ".join(re.findall(r"\w+_perf", text)[:1])
    return nccl_report(rows, places, words, settings, {}, text)


def from_nccl_json(value):
    """None = not the JSON of nccl-tests."""
    config, results = value.get("config"), value.get("results")
    if not isinstance(config, dict) or not isinstance(results, list) or "nccl_version" not in value:
        return None

    def half(row, key):
        times = row.get(key) or {}
        return (number_of(times.get("time", times.get("cpu_time"))), number_of(times.get("alg_bw")),
                number_of(times.get("bus_bw")), number_of(times.get("nwrong"))) if times else None
    rows = [(row.get("size"), row.get("count"), row.get("type"), row.get("redop"), half(row, "out_of_place"),
             half(row, "in_place")) for row in results if isinstance(row, dict) and isinstance(row.get("size"), int)]
    devices = next((found for found in (config.get("devices"), value.get("devices")) if isinstance(found, list)), [])
    places = [{"rank": place.get("rank"), "host": place.get("hostname"), "words": place.get("device_info", "")}
              for place in devices if isinstance(place, dict)]
    pairs = [line.partition("=") for line in value.get("env") or [] if isinstance(line, str)]
    environment = {name: text for name, _, text in pairs
                   if name.startswith(SHOWN_VARIABLES) and not SECRET.search(name)}
    settings = {ours: config[theirs] for ours, theirs in (("iterations", "iterations"),
                ("warmup_iterations", "warmup_iters")) if theirs in config}
    args = value.get("args") or [""]
    return nccl_report(rows, places, str(args[0]), settings, environment)


# ---- what is measured and read ----


def measure_one(tools, transport, label, options, missing, logs, hosts=None):
    """A run, or None. What a failed one printed about its transport goes to the logs."""
    try:
        report, log, command = run_bench(tools, transport, options, hosts)
        return Run(label, check_bench(report, label), command, evidence_of(log))
    except (RunError, SourceError) as error:
        missing.append((f"all-reduce over {label}", str(error)))
        lines = evidence_of(getattr(error, "output", ""))
        if lines:
            logs.append((f"log of the failed run over {label}", lines))
    return None


def measure(tools, doctor, options, missing, logs):
    """(runs over each transport, runs over 2, 3, ... of the hosts of --scale)"""
    runs, scaling = [], []
    for transport in options.transports.split(",") if options.transports else TRANSPORTS:
        why = "" if options.transports else absent(transport, doctor, options)
        if why:
            missing.append((f"all-reduce over {TRANSPORTS[transport]}", why))
        else:
            runs.append(measure_one(tools, transport, TRANSPORTS[transport], options, missing, logs))
    names = options.scale.split(",") if options.scale else []
    for n_hosts in range(2, len(names) + 1):
        scaling.append(measure_one(tools, "default", f"{n_hosts} hosts", options, missing, logs, names[:n_hosts]))
    return [run for run in runs if run], [run for run in scaling if run]


def read_bench(path):
    """(the report of a bench of gyre or of nccl-tests, its path, the evidence lines of its text)"""
    data = read_bytes(path)
    text = data.decode("utf-8", errors="replace")
    if text.lstrip()[:1] not in ("{", "["):
        found = from_nccl_text(text)
        if found:
            return check_bench(found, path), path, evidence_of(text)
    value = read_json(path)
    found = from_nccl_json(value) if isinstance(value, dict) else None
    return check_bench(found or value, path), path, []


def collect(tools, options):
    """Reads what was given, measures the rest."""
    missing, logs, ddp, doctor, scaling, exports = [], [], None, None, [], ""
    runs = []
    for label, path in map(split_label, options.json):
        runs.append(Run(label, *read_bench(path)))
        runs[-1].label = label or runs[-1].transports()
    for path in options.log:
        logs.append((os.path.basename(path), evidence_of(read_bytes(path).decode("utf-8", errors="replace"))))
    if options.ddp:
        ddp = check_ddp(read_json(options.ddp), options.ddp)
    if options.doctor:
        doctor = check_doctor(read_json(options.doctor), options.doctor)
    elif runs:
        missing.append(("checks of the machine", "--json was given without --doctor, and this machine may "
                        "not be the one that was measured"))
    else:
        try:
            doctor = check_doctor(run_doctor(tools, options), "gyre doctor")
        except (RunError, SourceError) as error:
            missing.append(("checks of the machine", str(error)))
    if not options.json:
        runs, scaling = measure(tools, doctor, options, missing, logs)
    try:
        exports = read_bytes(options.env).decode("utf-8", errors="replace") if options.env else \
            "" if options.json else run_env(tools, options)
    except RunError as error:
        missing.append(("variables to export", str(error)))
    if ddp is None and options.json:
        missing.append(("DDP iteration times", "--json was given without --ddp"))
    elif ddp is None:
        try:
            ddp = run_ddp(tools, options)
        except RunError as error:
            missing.append(("DDP iteration times", str(error)))
    for engine, value in (ddp or {}).items():
        if isinstance(value, str):
            missing.append((f"DDP iterations on {engine}", value))
    return Sources(runs, doctor, ddp, missing, logs, scaling, exports.strip())


def this_machine():
    """Rows about the machine that writes the report."""
    name = re.search(r"^model name\s*:\s*(.*)$", machine_facts.read("/proc/cpuinfo"), re.M)
    return [("system", f"{platform.system()} {platform.release()}"),
            ("processors", f"{os.cpu_count()} x {name[1] if name else 'unknown'}")]
