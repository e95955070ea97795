#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`gyre doctor` on two virtual machines with two rails of Soft-RoCE: a healthy job, then one trouble
after the other, each of which must be named by the check that it belongs to.

    tests/lab/doctor_lab.py BUILD_DIR [--out FOLDER] [CASE...]
        (--out keeps the reports of the healthy job)

It takes minutes, because the machines are emulated. Exit status: 0, 1 if a case failed, 77 with the
reason if nothing can run here.
"""
import argparse
import os
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path[:0] = [HERE, f"{HERE}/../support"]
import roce_lab  # noqa: E402
from cases import Failed, cases_of, run_cases  # noqa: E402

# Rules of routing take the place of a firewall. The table of local addresses must come after them.
DROP = ("ip rule add pref 20 lookup local && ip rule del pref 0 && "
        "ip rule add pref 10 iif {iface} {what} blackhole")
ALLOW = "ip rule add pref 0 lookup local; ip rule del pref 20; ip rule del pref 10"


class Rig:
    def __init__(self, build, out):
        self.build, self.out = build, out
        self.lab = None

    def doctor(self, options, before="", limit_s=240):
        """The doctor on both machines. `before`: shell words that each rank runs first."""
        line = f"{before} {self.build}/bench/gyre doctor {options}"
        words = self.lab.mpirun_words(["sh", "-c", line], env={"GYRE_SOCKET_IFNAME": "eth0"})
        return self.lab.on("vm1", words, limit_s=limit_s)

    def on(self, name, words):
        result = self.lab.on(name, words)
        if result.status != 0:
            raise Failed(f"{name}: {words}: {result.out}")
        return result.out


def expect(result, severity, check, *words):
    """A finding with all the words. A finding's lines follow each other."""
    findings, current = [], None
    for line in result.out.splitlines():
        if line[2:10].strip() in ("ok", "warn", "fail", "unknown", "skipped"):
            current = [line]
            findings.append(current)
        elif current is not None and line.startswith("      "):
            current.append(line)
    texts = [" ".join(lines) for lines in findings]
    if not any(t[2:10].strip() == severity and t[11:].startswith(check + " ") and
               all(w in t for w in words) for t in texts):
        raise Failed(f"no \"{severity} {check}\" with {words}:\n{result.out[-4000:]}")


def case_healthy(rig):
    """every check runs, both rails are measured, and nothing fails"""
    files = "--json /tmp/d.json --markdown /tmp/d.md --html /tmp/d.html"
    result = rig.doctor("--all " + files)
    if rig.out is not None:
        with open(f"{rig.out}/doctor.txt", "w", encoding="utf-8") as file:
            file.write(result.out)
        for name in ("json", "md", "html"):
            with open(f"{rig.out}/doctor.{name}", "w", encoding="utf-8") as file:
                file.write(rig.on("vm1", f"cat /tmp/d.{name}"))
    expect(result, "ok", "job.firewall", "2 pairs of hosts")
    expect(result, "ok", "job.path_mtu", "2 pairs of hosts")
    expect(result, "ok", "job.network", "2 of 2 pairs")
    if "8 of 8 pairs tried" not in result.out and "4 of 4 pairs tried" not in result.out:
        raise Failed(result.out[-4000:])
    if "\n  fail " in result.out:
        raise Failed(result.out[-4000:])


def case_wrong_gid(rig):
    """a GID index that is forced on one host is named with its rank"""
    result = rig.doctor("--only rdma.gid", "[ $(hostname) = vm1 ] || export NCCL_IB_GID_INDEX=0;")
    expect(result, "warn", "rdma.gid", "rank 1", "NCCL_IB_GID_INDEX=0")


def case_gids_that_do_not_fit(rig):
    """two hosts whose rules leave no common kind of GID are named with both tables"""
    result = rig.doctor("--only job.rails", "[ $(hostname) = vm1 ] && export GYRE_IB_ADDR_FAMILY="
                        "AF_INET || export GYRE_IB_GID_INDEX=0;")
    expect(result, "fail", "job.rails", "rail 0", "does not reach", "fe80")


def case_mtu(rig):
    """an MTU that one host alone has is named with both sizes"""
    rig.on("vm1", "ip link set eth0 mtu 9000")
    try:
        result = rig.doctor("--only job.rails")
        expect(result, "warn", "job.rails", "MTU mismatch", "4096", "1024")
    finally:
        rig.on("vm1", "ip link set eth0 mtu 1500")


def case_memlock(rig):
    """a low memlock limit inside the launcher is named, and is why ports cannot be used"""
    result = rig.doctor("--only host.memlock",
                        "ulimit -l 64; exec setpriv --bounding-set -all --inh-caps -all")
    expect(result, "fail", "host.memlock", "65536")
    result = rig.doctor("--only job.rails",
                        "ulimit -l 64; exec setpriv --bounding-set -all --inh-caps -all")
    expect(result, "fail", "job.rails", "the port cannot be used", "memlock limit is 64 KiB")


def case_no_ipv4(rig):
    """a rail without IPv4 is named"""
    address = rig.on("vm2", "ip -4 -o addr show eth1 | awk '{print $4}'").strip()
    rig.on("vm2", "ip addr flush dev eth1 scope global")
    try:
        result = rig.doctor("--only job.rails", "export GYRE_IB_ADDR_FAMILY=AF_INET;")
        expect(result, "fail", "job.rails", "vm2 (rank 1) rxe1:1", "the port cannot be used")
    finally:
        rig.on("vm2", f"ip addr add {address} dev eth1")


def case_unreachable_rail(rig):
    """a rail whose packets are dropped is named with its GIDs; the other one is measured"""
    rig.on("vm2", DROP.format(iface="eth1", what="ipproto udp"))
    try:
        result = rig.doctor("--only job.rail", "export GYRE_CROSS_NIC=0;")
        expect(result, "fail", "job.rails", "rail 1", "does not reach", "RETRY_EXC", "4791")
        expect(result, "warn", "job.rail_counters", "completer_retry_err rose")
    finally:
        rig.on("vm2", ALLOW)


def case_firewall(rig):
    """a firewall that drops connections between the hosts is named"""
    rig.on("vm2", DROP.format(iface="eth0", what="ipproto udp"))
    try:
        expect(rig.doctor("--only job.firewall"), "warn", "job.firewall", "UDP does not")
    finally:
        rig.on("vm2", ALLOW)


def case_versions(rig):
    """a host with another build is named"""
    with open(f"{rig.build}/bench/gyre", "rb") as file:
        program = file.read()
    commit = os.popen(f"{rig.build}/bench/gyre --version").read()
    words = [w.strip(",+") for w in commit.split() if len(w.strip(",+")) == 7]
    if not words:
        raise Failed(f"no commit in {commit}")
    path = f"{rig.build}/tests/doctor/gyre_of_another_commit"
    with open(path, "wb") as file:
        file.write(program.replace(words[0].encode(), b"0ther00"))
    os.chmod(path, 0o755)
    try:
        result = rig.doctor("--only job.version", f"[ $(hostname) = vm1 ] || exec {path} doctor "
                            "--only job.version;")
    finally:
        os.unlink(path)
    expect(result, "fail", "job.version", "0ther00", words[0])


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build")
    parser.add_argument("--out")
    parser.add_argument("cases", nargs="*")
    args = parser.parse_intermixed_args()
    rig = Rig(os.path.realpath(args.build), args.out)
    cases = cases_of(globals())
    roce_lab.clean_up_when_told_to_end()
    try:
        with roce_lab.Lab(rails=2, keep=[rig.build]) as lab:
            rig.lab = lab
            failed, _ = run_cases([cases[name] for name in args.cases or cases], rig)
    except roce_lab.Unavailable as why:
        print(f"skipped: {why}")
        return 77
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
