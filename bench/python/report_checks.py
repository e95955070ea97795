# SPDX-License-Identifier: Apache-2.0
"""The sections of a report that show what gyre doctor found: issues, devices, GIDs, flow control."""
import re

from report_blocks import NOT_MEASURED, first_line, name_of, nothing, table, text


def issues(report):
    if report.doctor is None:
        return nothing("Not known: there is no report of gyre doctor.")
    blocks = []
    for number, check in enumerate(report.problems(), 1):
        blocks.append(table([f"issue {number}", name_of(check)],
                            [["evidence", check["evidence"]], ["what mends it", check["fix"] or "-"],
                             ["impact", f"{NOT_MEASURED}: mend it and run this report again"]]))
    return blocks or nothing("gyre doctor found no problem.")


def gpudirect(report):
    return report.evidence("rdma.peermem", "rdma.gpu_distance") + [text(
        "Leave GYRE_NET_GDR_LEVEL and GYRE_NET_GDR_READ unset: gyre takes the path that a trial "
        "registration proved. The effect of GPUDirect on busbw: " + NOT_MEASURED + " by this report.")]


def selection(report):
    return report.evidence("net.speed", "net.mtu", "net.bond", "rdma.hca", "rdma.mtu")


def gid_table(report):
    if report.doctor is None:
        return nothing("Not known: there is no report of gyre doctor.")
    rows = []
    for check in report.checks("rdma.gid"):
        for line in check["evidence"].split("\n"):
            found = re.fullmatch(r"\[(\d+)\] (.*), (RoCE v[12]|IB|type not readable)(?:, ([^:]*))?: (.*)", line)
            if found:
                index, address, kind, netdev, verdict = found.groups()
                rows.append([check["subject"], *report.ranks_cell(check), index, address, kind, netdev or "-", verdict])
    if rows:
        return [table(["port", *report.ranks_header(), "row", "address", "type", "interface", "verdict"], rows)]
    return report.evidence("rdma.gid")


def gid_reason(report):
    words = []
    for check in report.checks("rdma.gid"):
        reason = "the rules rank it above the other rows" if check["severity"] == "ok" else check["severity"]
        words.append(f"{check['subject']}: {first_line(check['evidence'])} ({reason})")
    return ([("list", words)] if words else []) + [text(
        "Leave NCCL_IB_GID_INDEX unset: indices differ between hosts and change when a link goes down "
        "and up; gyre chooses by the rows themselves.")]


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
    if report.doctor is None:
        return nothing("Not known: there is no report of gyre doctor.")
    ports = [check for check in report.checks("rdma.devices") if check["evidence"].startswith("InfiniBand")]
    if not ports:
        return nothing("Not present on this system: no RDMA port has the link layer InfiniBand.")
    return [table(["port", "evidence"], [[check["subject"], check["evidence"]] for check in ports])]
