# SPDX-License-Identifier: Apache-2.0
"""The blocks of a report's sections, and the sections that show what gyre doctor found and measured. A block
is ("text", words), ("list", [words]), ("table", header, rows), ("heat", header, rows, colours of the rows'
cells), ("code", words) or ("chart", title, svg).
"""
import re
import statistics

NOT_MEASURED = "not measured"


def text(words):
    return ("text", words)


def table(header, rows):
    return ("table", header, rows)


def nothing(words):
    return [text(words)]


def name_of(check):
    """Words like "rdma.mtu rxe0:1 on ranks 0-1 (warn)"."""
    ranks = str(check.get("ranks") or "")
    where = f" on rank{'' if ranks.isdigit() else 's'} {ranks}" if ranks else ""
    return " ".join(f"{check['id']} {check['subject']}".split()) + f"{where} ({check['severity']})"


def first_line(words):
    return words.split("\n", 1)[0]


# ---- sections ----------------------------------------------------------------------------------


def issues(report):
    blocks = []
    for number, check in enumerate(report.problems(), 1):
        blocks.append(table([f"issue {number}", name_of(check)],
                            [["evidence", check["evidence"]], ["what mends it", check["fix"] or "-"],
                             ["impact", f"{NOT_MEASURED}: mend it and run this report again"]]))
    return blocks or nothing("gyre doctor found no problem.")


def gpudirect(report):
    return report.evidence("rdma.peermem", "rdma.gpu_distance", "gpu.dmabuf") + [text(
        "Leave GYRE_NET_GDR_LEVEL and GYRE_NET_GDR_READ unset: gyre takes the path that a trial "
        "registration proved. What GPUDirect brings is the difference of its two rows under Transports.")]


def gid_table(report):
    rows, words = [], []
    for check in report.checks("rdma.gid"):
        reason = "the rules rank it above the other rows" if check["severity"] == "ok" else check["severity"]
        words.append(f"{check['subject']}: {first_line(check['evidence'])} ({reason})")
        for line in check["evidence"].split("\n"):
            found = re.fullmatch(r"\[(\d+)\] (.*), (RoCE v[12]|IB|type not readable)(?:, ([^:]*))?: (.*)", line)
            if found:
                index, address, kind, netdev, verdict = found.groups()
                rows.append([check["subject"], *report.ranks_cell(check), index, address, kind, netdev or "-", verdict])
    header = ["port", *report.ranks_header(), "row", "address", "type", "interface", "verdict"]
    return ([table(header, rows)] if rows else report.evidence("rdma.gid")) + ([("list", words)] if words else []) + [
        text("Leave NCCL_IB_GID_INDEX unset: indices differ between hosts and change when a link goes down and up; "
             "gyre chooses by the rows themselves.")]


def traffic_class(report):
    found = []
    for run in report.runs:
        for name in ("GYRE_IB_TC", "NCCL_IB_TC"):
            value = run.report["environment"].get(name, "")
            if re.fullmatch(r"\d+", value) and int(value) <= 255 and (name, value) not in found:
                found.append((name, value))
    rows = []
    for name, value in found:
        dscp, ecn = int(value) >> 2, int(value) & 3
        warning = "none" if ecn in (0, 2) else "the low two bits are ECN bits; a multiple of 4 was probably meant"
        rows.append([name, value, str(dscp), f"{ecn:02b}", warning])
    header = ["variable", "value", "DSCP", "ECN bits", "remark"]
    return ([table(header, rows)] if rows else nothing(
        "No traffic class was set in any run, so packets of RoCE had the default, 0 (DSCP 0), which most switches "
        "treat as lossy.")) + [text(
        "The traffic class is the whole byte of the IP header: DSCP x 4 + ECN bits. The value 5 is DSCP 1 "
        "with ECN bits 01, not priority 5. Use the DSCP that the switches treat as lossless.")]


def pfc_ecn(report):
    return report.evidence("rdma.congestion", "rdma.counters") + [text(
        "PFC stops a sender hop by hop before a buffer overflows, so that nothing is lost; alone it "
        "spreads the stop over innocent flows. ECN marks packets early, so that senders slow down before "
        "PFC acts; alone it is too late for bursts. Both are needed, on the same priority. What the "
        "switches are set to cannot be read from a host.")]


def infiniband(report):
    ports = [check for check in report.checks("rdma.devices") if check["evidence"].startswith("InfiniBand")]
    if not ports:
        return nothing("Not present on this system: no RDMA port has the link layer InfiniBand.")
    return [table(["port", "evidence"], [[check["subject"], check["evidence"]] for check in ports])]


# ---- pairs of hosts, of GPUs, and of the RDMA ports of hosts (rails) -----------------------------

# (key of the matrix, what it is between, the check that measures it)
MATRICES = (("hosts", "Hosts", "job.network"), ("gpus", "GPUs", "gpu.pairs"), ("rails", "Rails", "job.rails"))
SEVERITIES = ("fail", "warn", "unknown", "skipped", "ok")  # worst first
UNITS = (("gbytes_per_s", "GB/s"), ("latency_us", "latency in us"))


def pairs(report):
    blocks = []
    for key, between, check_id in MATRICES:
        matrix = (report.doctor.get("matrix") or {}).get(key)
        blocks += measured(matrix, between) if matrix else nothing(
            f"{between}: {NOT_MEASURED}. {why_not(report, check_id)}")
    return blocks


def measured(matrix, between):
    names = matrix["names"]
    blocks = []
    for key, title in UNITS:
        known = [value for row in matrix[key] for value in row if value is not None and value > 0]
        median = statistics.median(known) if known else 0
        rows = [[name, *(f"{value:.4g}" if value is not None else "" if i == j else NOT_MEASURED
                         for j, value in enumerate(row))] for i, (name, row) in enumerate(zip(names, matrix[key]))]
        blocks.append(("heat", [f"{between}, {title}: from \\ to", *names], rows,
                       [["", *(heat(value, median, key) for value in row)] for row in matrix[key]]))
        unit, worst = ("us", "twice") if key == "latency_us" else ("GB/s", "half")
        if known:
            blocks.append(text(f"Colour: white at the median, {median:.4g} {unit}, or better; the darkest red at {worst} "
                               "of it or worse."))
    return blocks + [text(f"{between}, slowest pair: {slowest(matrix)}.")]


def heat(value, median, key):
    """The colour of a cell: redder the worse it is than the median, darkest at half of the rate or twice the time."""
    if value is None or not median:
        return ""
    worse = min(max(value / median - 1, 0) if key == "latency_us" else 2 * max(1 - value / median, 0), 1)
    return f"#ff{255 - round(105 * worse):02x}{255 - round(125 * worse):02x}"


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
