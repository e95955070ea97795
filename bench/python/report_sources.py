# SPDX-License-Identifier: Apache-2.0
"""Everything that a report is made of, checked: reports of benches, gyre doctor, logs, DDP times. A
file that is not what it should be is an error that names it; nothing is taken from it."""
import json
import math
import os
import platform
import re
import sys
import tempfile
from dataclasses import dataclass, field

import report_nccl
from report_runs import RunError, run_bench, run_ddp, run_doctor, run_env

MOST_BYTES = 64 << 20
MOST_LINES = 40    # of a log, and as many warnings
# The lines of a log that prove which transport is used, and warnings of gyre and of NCCL.
EVIDENCE = re.compile(r"NET/|via (P2P|SHM)|GDRDMA|not via|Falling back|falling back", re.I)
WARNING = re.compile(r"\b(NCCL|GYRE) (WARN|ERROR)\b")
TRANSPORTS = {"default": "default (gyre chooses)", "socket": "TCP", "shm": "shared memory",
              "p2p": "direct (p2p)", "ib": "RDMA", "ib-host": "RDMA, GPUDirect off"}


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
    matrices = report.get("matrix") or {}
    if not isinstance(matrices, dict) or not all(matrix is None or is_matrix(matrix) for matrix in matrices.values()):
        raise SourceError(f"{name}: its matrix is not as gyre doctor writes it")
    return report


def is_matrix(matrix):
    """Has it a name for each row, and rows of as many numbers or nulls?"""
    names = matrix.get("names") if isinstance(matrix, dict) else None
    return isinstance(names, list) and all(isinstance(name, str) for name in names) and all(
        isinstance(matrix.get(key), list) and len(matrix[key]) == len(names) and all(
            isinstance(row, list) and len(row) == len(names) and all(value is None or is_number(value) for value in row)
            for row in matrix[key])
        for key in ("gbytes_per_s", "latency_us"))


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
    """(the report of a bench of gyre or of nccl-tests, the evidence lines of its text)"""
    data = read_bytes(path)
    text = data.decode("utf-8", errors="replace")
    if text.lstrip()[:1] not in ("{", "["):
        found = report_nccl.from_text(text)
        if found:
            return check_bench(found, path), evidence_of(text)
    value = read_json(path)
    found = report_nccl.from_json(value) if isinstance(value, dict) else None
    return check_bench(found or value, path), []


def read_runs(options):
    runs = []
    for text in options.json:
        label, path = split_label(text)
        report, evidence = read_bench(path)
        run = Run(label, report, path, evidence)
        run.label = label or run.transports()
        runs.append(run)
    return runs


def collect(tools, options):
    """Reads what was given, measures the rest."""
    missing, logs, ddp, doctor, scaling, exports = [], [], None, None, [], ""
    runs = read_runs(options)
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
    cpu = "unknown"
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = re.findall(r"^model name\s*:\s*(.*)$", file.read(), re.M)
        cpu = names[0] if names else cpu
    except OSError:
        pass
    return [("system", f"{platform.system()} {platform.release()}"),
            ("processors", f"{os.cpu_count()} x {cpu}")]
