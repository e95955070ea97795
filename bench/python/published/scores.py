# SPDX-License-Identifier: Apache-2.0
"""Published measurements: their tables, predictions of their rows, the fit of a machine's constants, and the errors.

Tables have the columns of tests/published/score.csv. A row that carries a trap is reported apart. The error of a row is
|ln(predicted / measured)|; a series is a machine, collective, number of ranks, library and algorithm, and all series
weigh the same, however many rows they have."""
import collections
import csv
import math
import os
import subprocess

import rounds
from machines import CHIPS, MachineError, find_machine

COLUMNS = ("machine", "gpu", "gpus_per_host", "hosts", "nic_per_host", "nic_gbit_s", "collective", "library",
           "algorithm_or_proto", "bytes", "time_us", "graph", "trap")
SERIES = ("machine", "collective", "ranks", "hosts", "library", "algorithm_or_proto")
COLLECTIVES = {"alltoall": "all_to_all"}
FIT_ROUNDS, FIT_STEP, FIT_MOST = 12, 0.05, 0.7
STEP_NS, HOP_NS = 166, 853  # of lamport on H200 (algorithms/simulate/cost.c)


class TableError(Exception):
    """What is wrong with a table."""


# ---- tables -------------------------------------------------------------------------------------------------------

def read_table(path):
    """The rows of a table, with numbers as numbers. Errors: TableError with the line."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    rows = []
    for number, row in enumerate(lines, 2):
        missing = [name for name in COLUMNS if row.get(name) is None]
        if missing:
            raise TableError(f"{path}: line {number}: there is no column {missing[0]}; columns are {', '.join(COLUMNS)}")
        try:
            row |= {key: int(row[key] or 0) for key in ("gpus_per_host", "hosts", "nic_per_host", "bytes")}
            row |= {key: float(row[key] or 0) for key in ("time_us", "nic_gbit_s")}
        except ValueError as error:
            raise TableError(f"{path}: line {number}: {error}") from None
        if min(row["gpus_per_host"], row["hosts"], row["bytes"]) < 1 or not row["time_us"] > 0:
            raise TableError(f"{path}: line {number}: hosts, GPUs, bytes and time must be above 0")
        row["line"], row["ranks"] = number, row["gpus_per_host"] * row["hosts"]
        rows.append(row)
    return rows


# ---- the simulator ------------------------------------------------------------------------------------------------

class Simulator:
    """`schedule --predict --rows`: one process for many rows, each asked once."""

    def __init__(self, tools):
        self.folder = os.path.join(tools, "machines")
        self.command = [os.path.join(tools, "schedule"), "--predict", "--rows", "-"]
        self.known = {}

    def ask(self, queries):
        """@queries: lines. Returns a dictionary of words for each; {"error": TEXT} if it cannot be predicted."""
        for query in queries:
            if isinstance(query, tuple):
                found = rounds.predict_us(*query[:4], dict(query[4]), query[5])
                self.known[query] = {"error": "MPI: what an algorithm of that name does is not public"} if found is None else \
                    {"time_us": found[0], "algo": found[1], "busiest": "busy", "share": f"{found[2]:.2f}"}
        new = [query for query in dict.fromkeys(queries) if query not in self.known]
        if new:
            done = subprocess.run(self.command, input="\n".join(new) + "\n", capture_output=True, text=True, check=False)
            answers = done.stdout.splitlines()
            if len(answers) != len(new):
                raise TableError(f"{' '.join(self.command)}: {len(new)} rows, {len(answers)} answers: "
                                 f"{done.stderr.strip()[-300:]}")
            for query, answer in zip(new, answers):
                self.known[query] = {"error": answer[6:]} if answer.startswith("error ") else \
                    dict(word.split("=", 1) for word in answer.split() if "=" in word)
        return [self.known[query] for query in queries]


def query_of(machine, row, changed=None, as_given=True):
    """One line of `schedule --predict --rows`. @changed: constants that replace those of the machine's file.
    @as_given: with the algorithm that the table names."""
    words, constants = machine.words, machine.constants | (changed or {})
    library = words["library"]
    if library == "mpi":
        constants = constants | {"wire_ns": machine.wire_ns(row["hosts"])}
        return (row["collective"], row["algorithm_or_proto"] if as_given else "default", row["ranks"], row["bytes"],
                tuple(constants.items()), machine.dimensions(row["hosts"]))
    own = dict(changed or {})
    if machine.is_mixed:
        own |= {key: constants[key] for key in ("host_egress_bytes_per_ns", "launch_ns")} | \
            {"lamport_step_ns": STEP_NS * machine.clock}
    # SGLang's kernel has no barrier of its own since 0.5.14; vLLM's (csrc/custom_all_reduce.cuh) has two.
    version = [int(word) for word in row.get("library_version", "").split(".") if word.isdigit()]
    is_one_barrier = "sglang" in row["library"].lower() and version >= [0, 5, 14]
    if library == "oneshot" and not is_one_barrier:  # a flag to each peer before and after the data
        own["launch_ns"] = constants["launch_ns"] + 2 * (STEP_NS * machine.clock + HOP_NS)
    given = row["algorithm_or_proto"].lower() if as_given and library in ("nccl", "rccl") else "default"
    if as_given and given == "default" and library in ("nccl", "rccl"):
        given = words.get("algorithm", "default")
    query = {"machine": machine.path, "coll": COLLECTIVES.get(row["collective"], row["collective"]),
             "ranks": row["ranks"], "hosts": row["hosts"], "bytes": row["bytes"], "library": library,
             "algo": given,
             "graph": int(row["graph"] == "yes" and library != "oneshot"),
             "version": row["library_version"].split()[0] if row.get("library_version") else "2.29"}
    if row["hosts"] > 1:
        query |= {"nics": min(row["nic_per_host"] or words["nics"], words["nics"]),
                  "nic_gbit": row["nic_gbit_s"] or 8 * constants["nic_bytes_per_ns"]}
    return " ".join(f"{key}={value}" for key, value in query.items()) + "".join(
        f" {key}={value:.9g}" for key, value in sorted(own.items()))


# ---- the fit ------------------------------------------------------------------------------------------------------

def rows_of_fits(machine, rows):
    """key -> the row of the calibration table that the machine's file names. Errors: MachineError."""
    found = {}
    for key, (coll, hosts, gpus, n_bytes, library) in machine.fits.items():
        found[key] = next((row for row in rows if (row["collective"], row["hosts"], row["gpus_per_host"], row["bytes"]) ==
                           (coll, hosts, gpus, n_bytes) and row["library"].startswith(library) and
                           any(row["machine"].lower().startswith(name.lower()) for name in machine.names)), None)
        if found[key] is None:
            raise MachineError(f"{machine.path}: {key} is fitted on a row that the calibration table does not have")
    return found


def fit(machine, rows, simulator):
    """The constants that a machine's file says are fitted: as many unknowns as rows, so Newton's method in logarithms,
    with a slight pull (Levenberg) where a row says nothing of a constant. Returns key -> value."""
    of_key = rows_of_fits(machine, rows)
    keys, targets = list(of_key), list(of_key.values())
    values = {key: machine.constants[key] for key in keys}

    def errors(trials):
        queries = [query_of(machine, row, trial) for trial in trials for row in targets]
        answers = simulator.ask(queries)
        for answer in answers:
            if "error" in answer:
                raise MachineError(f"{machine.path}: a row of the fit cannot be predicted: {answer['error']}")
        times = [float(answer["time_us"]) for answer in answers]
        return [[math.log(times[i * len(targets) + k] / targets[k]["time_us"]) for k in range(len(targets))]
                for i in range(len(trials))]

    best, best_cost = dict(values), math.inf
    for _ in range(FIT_ROUNDS):
        trials = [values] + [values | {key: values[key] * math.exp(FIT_STEP)} for key in keys]
        now, *moved = errors(trials)
        cost = sum(error * error for error in now)
        if cost < best_cost:
            best, best_cost = dict(values), cost
        if cost < 1e-8 * len(keys):
            break
        slopes = [[(moved[k][i] - now[i]) / FIT_STEP for k in range(len(keys))] for i in range(len(keys))]
        steps = solve(slopes, now)
        for key, step in zip(keys, steps):
            values[key] = values[key] * math.exp(max(-FIT_MOST, min(FIT_MOST, -step)))
    return best


def solve(matrix, right):
    """The x that minimises |matrix x - right|^2 + 1e-4 |x|^2: normal equations, Gaussian elimination."""
    n = len(right)
    rows = [[sum(matrix[k][i] * matrix[k][j] for k in range(n)) + (1e-4 if i == j else 0) for j in range(n)] +
            [sum(matrix[k][i] * right[k] for k in range(n))] for i in range(n)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k in range(n):
            if k != i:
                factor = rows[k][i] / rows[i][i]
                rows[k] = [a - factor * b for a, b in zip(rows[k], rows[i])]
    return [rows[i][n] / rows[i][i] for i in range(n)]


def write_fit(machine, values):
    """Puts fitted numbers into the machine's file."""
    with open(machine.path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    for i, line in enumerate(lines):
        key = line.split("=")[0].strip() if "=" in line.split("#")[0] else \
            "nic_bytes_per_ns" if line.startswith("hosts ") else ""
        if key not in values or "# fitted on" not in line:
            continue
        text, comment = line.split("#", 1)
        head = text.split("=")[0] + "= " if "=" in text else text.rsplit(None, 1)[0] + " "
        lines[i] = f"{head}{values[key]:.4g}".ljust(len(text) - 1) + f" #{comment}"
    with open(machine.path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


# ---- baselines ----------------------------------------------------------------------------------------------------

def bus_factor(row):
    n = row["ranks"]
    return {"all_reduce": 2 * (n - 1) / n, "all_gather": (n - 1) / n, "reduce_scatter": (n - 1) / n,
            "alltoall": (n - 1) / n}.get(row["collective"], 1.0)


def line_rate(machine, row):
    """GB/s of busbw that the links allow: those inside the host, or the host's NICs."""
    inside = machine.constants.get("host_egress_bytes_per_ns") or CHIPS.get(machine.chip()) or math.inf
    if row["hosts"] == 1:
        return inside
    network = machine.constants["nic_bytes_per_ns"] * min(row["nic_per_host"] or machine.words["nics"],
                                                          machine.words["nics"])
    if row["collective"] == "alltoall":
        network *= (row["ranks"] - 1) / (row["ranks"] - row["gpus_per_host"]) / row["gpus_per_host"]
    return min(inside, network)


def alpha_beta(machine, calibration):
    """(us, GB/s) of time = alpha + bytes * bus factor / beta, which passes best through the rows of the machine's fit."""
    while machine is not None and not machine.fits:
        machine = machine.base
    if machine is None:
        return 10.0, 100.0
    points = [(row["bytes"] * bus_factor(row) / 1e3, row["time_us"])
              for row in rows_of_fits(machine, calibration).values()]
    best = None
    for i in range(200):  # alpha from a thousandth of the least time up to all of it; then beta has a closed form
        alpha = min(t for _, t in points) * (i + 1) / 200
        logs = [math.log((t - alpha) / x) for x, t in points if t > alpha * 1.02]
        slope = math.exp(sum(logs) / len(logs)) if logs else 1e-9
        cost = sum(math.log((alpha + slope * x) / t) ** 2 for x, t in points)
        if best is None or cost < best[0]:
            best = cost, alpha, 1 / slope
    return best[1:]


# ---- scores -------------------------------------------------------------------------------------------------------

def error_of(predicted_us, measured_us):
    return abs(math.log(predicted_us / measured_us))


def summary(scored, key="error"):
    """(geometric mean - 1, median, p90 as exp(error) - 1, rows, series) of scored rows; every series weighs the same."""
    of_series = collections.defaultdict(list)
    for score in scored:
        of_series[score["series"]].append(score[key])
    if not of_series:
        return None
    weighted = sorted((error, 1 / len(errors)) for errors in of_series.values() for error in errors)
    total = sum(weight for _, weight in weighted)

    def quantile(part):
        reached = 0.0
        for error, weight in weighted:
            reached += weight
            if reached >= part * total - 1e-9:
                return math.expm1(error)
        return math.expm1(weighted[-1][0])

    mean = math.expm1(sum(error * weight for error, weight in weighted) / total)
    return mean, quantile(0.5), quantile(0.9), len(weighted), len(of_series)


def set_floors(scored):
    """Sets "floor": the error of the best times that do not fall as bytes grow, for the rows of one series and version
    (isotonic regression of the logarithms, by medians of pooled neighbours). No prediction that grows with the bytes is
    nearer, so it is the noise of the measurements."""
    groups = collections.defaultdict(list)
    for score in scored:
        groups[score["series"], score["row"].get("library_version"), score["row"]["trap"] != ""].append(score)
    for group in groups.values():
        pools = []  # of alike bytes, then of neighbours out of order
        for score in sorted(group, key=lambda score: score["row"]["bytes"]):
            if pools and pools[-1][0]["row"]["bytes"] == score["row"]["bytes"]:
                pools[-1].append(score)
            else:
                pools.append([score])
        i = 0
        while i + 1 < len(pools):
            if median_log(pools[i]) > median_log(pools[i + 1]):
                pools[i:i + 2] = [pools[i] + pools[i + 1]]
                i = max(0, i - 1)
            else:
                i += 1
        for pool in pools:
            for score in pool:
                score["floor"] = abs(math.log(score["row"]["time_us"]) - median_log(pool))


def median_log(pool):
    logs = sorted(math.log(score["row"]["time_us"]) for score in pool)
    return (logs[(len(logs) - 1) // 2] + logs[len(logs) // 2]) / 2


def level_of(machine, how):
    """1: this machine, with more GPUs or hosts; 2: its class; 3: another vendor or fabric than any calibrated one."""
    if machine.fits and how == "named":
        return 1
    base = machine
    while base is not None and not base.fits:
        base = base.base
    return 2 if base is not None and base.words["library"] == machine.words["library"] and \
        base.chip().split()[0] != "none" and machine.chip() != "none" and \
        bool(machine.words["inside"] == "pcie") == bool(base.words["inside"] == "pcie") else 3


def score_rows(rows, machines, simulator, calibration):
    """(scored, left out): a dictionary a row, and (row, reason). Rows of a fit must not be among them."""
    asked, left = [], []
    for row in rows:
        try:
            machine, how = find_machine(machines, row)
        except MachineError as error:
            left.append((row, str(error)))
            continue
        asked.append((row, machine, how, query_of(machine, row), query_of(machine, row, as_given=False)))
    given = simulator.ask([entry[3] for entry in asked])
    free = simulator.ask([entry[4] for entry in asked])
    lines, scored = {}, []
    for (row, machine, how, *_), answer, own in zip(asked, given, free):
        if "error" in answer:
            left.append((row, answer["error"]))
            continue
        if machine.short not in lines:
            lines[machine.short] = alpha_beta(machine, calibration)
        alpha, beta = lines[machine.short]
        moved = row["bytes"] * bus_factor(row) / 1e3
        score = {"row": row, "machine": machine, "level": level_of(machine, how), "series": tuple(row[key] for key in SERIES),
                 "answer": answer, "us": float(answer["time_us"]),
                 "error": error_of(float(answer["time_us"]), row["time_us"]),
                 "alpha_beta": error_of(alpha + moved / beta, row["time_us"]),
                 "line_rate": error_of(moved / (0.8 * line_rate(machine, row)), row["time_us"])}
        if "error" not in own:
            score["free"] = error_of(float(own["time_us"]), row["time_us"])
        scored.append(score)
    set_floors(scored)
    return scored, left
