# SPDX-License-Identifier: Apache-2.0
"""The section of measured pairs: what gyre doctor measured between hosts, between GPUs and between the
RDMA ports of hosts (rails). Its report has a matrix for each of them, or none."""
from report_blocks import NOT_MEASURED, first_line, nothing, table, text

# (key of the matrix, what it is between, the check that measures it)
MATRICES = (("hosts", "Hosts", "job.network"), ("gpus", "GPUs", "gpu.pairs"), ("rails", "Rails", "job.rails"))
SEVERITIES = ("fail", "warn", "unknown", "skipped", "ok")  # worst first
UNITS = (("gbytes_per_s", "GB/s"), ("latency_us", "latency in us"))


def pairs(report):
    if report.doctor is None:
        return nothing("Not known: there is no report of gyre doctor.")
    blocks = []
    for key, between, check_id in MATRICES:
        matrix = (report.doctor.get("matrix") or {}).get(key)
        blocks += measured(matrix, between) if matrix else nothing(
            f"{between}: {NOT_MEASURED}. {why_not(report, check_id)}")
    return blocks


def measured(matrix, between):
    names = matrix["names"]
    blocks = []
    for key, unit in UNITS:
        rows = [[name, *(cell(value, i == j) for j, value in enumerate(row))]
                for i, (name, row) in enumerate(zip(names, matrix[key]))]
        blocks.append(table([f"{between}, {unit}: from \\ to", *names], rows))
    return blocks + [text(f"{between}, slowest pair: {slowest(matrix)}.")]


def cell(value, is_own):
    if value is not None:
        return f"{value:.4g}"
    return "" if is_own else NOT_MEASURED


def slowest(matrix):
    """The pair with the lowest rate, with its values."""
    rates = matrix["gbytes_per_s"]
    known = [(rates[i][j], i, j) for i in range(len(rates)) for j in range(len(rates)) if rates[i][j] is not None]
    if not known:
        return f"{NOT_MEASURED}, because no pair has a rate"
    rate, i, j = min(known)
    latency = matrix["latency_us"][i][j]
    words = f"{matrix['names'][i]} to {matrix['names'][j]}, {rate:.4g} GB/s"
    return words if latency is None else f"{words}, {latency:.4g} us"


def why_not(report, check_id):
    """What the check said that would have measured."""
    said = [check for check in report.doctor["checks"] if check["id"] == check_id]
    if not said:
        return f"gyre doctor did not run {check_id}."
    worst = min(said, key=lambda check: SEVERITIES.index(check["severity"]))
    return f"gyre doctor says ({check_id}, {worst['severity']}): {first_line(worst['evidence'])}."
