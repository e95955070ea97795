#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gyre on a true RoCEv2 wire: cases that share one lab of two machines.

    tests/lab/test_roce.py BUILD_DIR [CASE...]

A case is a function case_*; its docstring is a sentence that is true when it passes. Exit status 77
with the reason where the lab cannot run.
"""
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import roce_lab  # noqa: E402

BENCHES = "allreduce broadcast reduce reducescatter allgather sendrecv".split()
# What an error may take beyond the retry window: emulated processors start and end slowly.
SLACK_S = 20


class Failed(Exception):
    pass


def check(condition, words):
    if not condition:
        raise Failed(words)


class Rig:
    def __init__(self, lab, build, pcap):
        self.lab, self.build, self.pcap = lab, build, pcap

    def bench(self, name, options, env=None, np=2, limit_s=180, mpi=()):
        words = [f"{self.build}/bench/{name}", *options.split()]
        sets = {"GYRE_SOCKET_IFNAME": "eth0", "GYRE_DEBUG": "INFO", "GYRE_IB_TC": "106"}
        sets.update(env or {})
        return self.lab.on("vm1", self.lab.mpirun_words(words, np=np, env=sets, options=mpi),
                           limit_s=limit_s)

    def right(self, result, transport="NET/IB/0"):
        check(result.status == 0, f"exit status {result.status}: {result.out[-1500:]}")
        check(re.search(r"Out of bounds values : 0 OK", result.out), result.out[-800:])
        check(f"via {transport}" in result.out, f"not via {transport}: {result.out[:1500]}")

    def counter(self, vm, name):
        return int(self.lab.on(vm, f"cat /sys/class/infiniband/rxe0/ports/1/hw_counters/{name}").out)

    def packets(self, fields, where="infiniband"):
        """Of all packets so far: one tuple of fields each."""
        args = ["tshark", "-r", self.pcap, "-Y", where, "-T", "fields"]
        for field in fields:
            args += ["-e", field]
        out = subprocess.run(args, text=True, capture_output=True).stdout
        return [tuple(line.split("\t")) for line in out.splitlines()]


def case_collectives(rig):
    """every bench gives right values between two machines"""
    for name in BENCHES:
        rig.right(rig.bench(name, "-b 4 -e 256K -f 16 -n 2 -w 1"))


def case_algorithms(rig):
    """every algorithm and the large sizes give right values"""
    for algo in ("ring", "tree", "direct"):
        rig.right(rig.bench("allreduce", f"-b 1M -e 2M -f 2 -n 1 -w 1 --algo {algo}"))


def case_four_ranks(rig):
    """four ranks on two machines use shared memory inside and RDMA between"""
    result = rig.bench("allreduce", "-b 8 -e 64K -f 16 -n 2 -w 1", np=4, limit_s=240)
    rig.right(result)
    check("via SHM" in result.out, "no shared memory inside the machines")


def case_wire(rig):
    """the wire carries UDP 4791, the class and the GIDs asked for, RDMA writes of the path MTU"""
    rows = rig.packets(["udp.dstport", "ip.dsfield", "infiniband.bth.opcode", "ip.src", "ip.dst",
                        "udp.length"])
    check(rows, "no RoCE packets in the capture")
    check({row[0] for row in rows} == {"4791"}, f"ports {({row[0] for row in rows})}")
    check({int(row[1], 0) for row in rows} == {106}, f"ToS {({row[1] for row in rows})}")
    check({row[3] for row in rows} | {row[4] for row in rows} == {"10.77.0.1", "10.77.0.2"}, "GIDs")
    opcodes = {int(row[2]) for row in rows}
    # RC: 6 7 8 RDMA WRITE first, middle, last; 9 11 with immediate; 10 only; 17 acknowledge
    check({6, 7, 8, 11, 17} <= opcodes <= {6, 7, 8, 9, 10, 11, 17}, f"opcodes {opcodes}")
    middles = {int(row[5]) for row in rows if row[2] == "7"}
    # UDP header 8, BTH 12, ICRC 4
    check(middles == {1024 + 24}, f"lengths of middle packets {middles}")


def case_range(rig):
    """IPv6 alone, a forced index and an address range choose the GID"""
    def gid_of(env):
        result = rig.bench("allreduce", "-b 8 -e 8 -n 1 -w 1", env=env)
        rig.right(result)
        return set(re.findall(r"data QP local GID \d+ (\S+)", result.out))
    check(gid_of({"GYRE_IB_ADDR_FAMILY": "AF_INET6"}) == {"fd77::1", "fd77::2"}, "family")
    check(gid_of({"GYRE_IB_ADDR_RANGE": "fe80::/10"}) ==
          {"fe80::5054:ff:fe77:1", "fe80::5054:ff:fe77:2"}, "range")
    check(gid_of({"NCCL_IB_GID_INDEX": "1"}) == {"10.77.0.1", "10.77.0.2"}, "index")


def case_wrong_index(rig):
    """an index without a GID is an error that prints the table when RDMA is forced"""
    result = rig.bench("allreduce", "-b 8 -e 8 -n 1", env={"GYRE_IB_GID_INDEX": "7",
                                                           "GYRE_NET": "IB"})
    check(result.status != 0, "it ran")
    check("IB_GID_INDEX=7" in result.out, result.out[-1500:])


def case_memlock(rig):
    """a low memlock limit is explained with the numbers"""
    line = (f"ulimit -l 64; setpriv --bounding-set -all --inh-caps -all env GYRE_IB_TC=106 "
            f"GYRE_NET=IB {rig.build}/bench/allreduce -b 8 -e 8 -n 1")
    words = ["sh", "-c", line]
    result = rig.lab.on("vm1", rig.lab.mpirun_words(
        words, env={"GYRE_SOCKET_IFNAME": "eth0"}))
    check(result.status != 0, "it ran")
    check("memlock limit is 64 KiB" in result.out, result.out[-1500:])


def netem(rig, words):
    rig.lab.on_all(f"tc qdisc replace dev eth0 root netem {words}" if words else
                   "tc qdisc del dev eth0 root")


def case_loss(rig):
    """1% and 5% loss cost time, not values"""
    for loss in ("1%", "5%"):
        before = sum(rig.counter(vm, "sent_pkts") for vm in rig.lab.names)
        netem(rig, f"loss {loss}")
        try:
            rig.right(rig.bench("allreduce", "-b 8 -e 64K -f 32 -n 2 -w 1", limit_s=300))
        finally:
            netem(rig, "")
        retried = sum(rig.counter(vm, name) for vm in rig.lab.names
                      for name in ("completer_retry_err", "out_of_seq_request",
                                   "duplicate_request"))
        check(retried > 0 and before >= 0, "nothing was sent again")


def case_reorder(rig):
    """reordering and 50 ms of delay cost time, not values"""
    for words in ("delay 5ms reorder 25% 50%", "delay 50ms"):
        netem(rig, words)
        try:
            rig.right(rig.bench("allreduce", "-b 8 -e 8K -f 32 -n 2 -w 1", limit_s=300))
        finally:
            netem(rig, "")


def run_and_break(rig, action, env=None, settle_s=12.0):
    """Start a long all-reduce, call action() once it moves data, return (output, status, seconds
    from the action to the end)."""
    sets = {"GYRE_SOCKET_IFNAME": "eth0", "GYRE_IB_TC": "106", "GYRE_DEBUG": "INFO"}
    sets.update(env or {})
    words = rig.lab.mpirun_words([f"{rig.build}/bench/allreduce", "-b", "64K", "-e", "64K", "-n",
                                  "100000", "-w", "1"], env=sets)
    process = subprocess.Popen([*rig.lab.ssh("vm1"), rig.lab.command(words)], text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, errors="replace")
    try:
        time.sleep(settle_s)
        check(process.poll() is None, "it ended early: " + (process.stdout.read()
                                                           if process.poll() is not None else ""))
        action()
        began = time.monotonic()
        out, _ = process.communicate(timeout=90)
        return out, process.returncode, time.monotonic() - began
    except subprocess.TimeoutExpired:
        process.kill()
        raise Failed("no end within 90 s: " + process.communicate()[0][-2000:])
    finally:
        rig.lab.on_all("killall -q -9 allreduce orted mpirun; true")


def case_flap(rig):
    """a link that is down for one second does not fail the job"""
    netem_free = "ip link set eth0 down; sleep 1; ip link set eth0 up"
    words = rig.lab.mpirun_words([f"{rig.build}/bench/allreduce", "-b", "64K", "-e", "64K", "-n",
                                  "150", "-w", "1"],
                                 env={"GYRE_SOCKET_IFNAME": "eth0", "GYRE_IB_TC": "106",
                                      "GYRE_DEBUG": "INFO"})
    process = subprocess.Popen([*rig.lab.ssh("vm1"), rig.lab.command(words)], text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, errors="replace")
    time.sleep(10)
    running = process.poll() is None
    rig.lab.on("vm2", netem_free)
    try:
        out, _ = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        raise Failed("hangs: " + process.communicate()[0][-1500:])
    check(running, "it had ended before the link went down")
    check(process.returncode == 0 and "Out of bounds values : 0 OK" in out, out[-2000:])


def case_kill(rig):
    """a killed rank ends the other with an error that names it"""
    out, status, seconds = run_and_break(
        rig, lambda: rig.lab.on("vm2", "killall -9 allreduce"))
    check(status != 0, "exit status 0")
    check(seconds < SLACK_S, f"took {seconds:.1f} s")
    print(f"     ended after {seconds:.1f} s")


def case_link_down(rig):
    """a link that stays down ends every rank within the retry window, naming both ends"""
    out, status, seconds = run_and_break(
        rig, lambda: rig.lab.on("vm2", "ip link set eth0 down"))
    rig.lab.on("vm2", "ip link set eth0 up; ip addr add fd77::2/64 dev eth0 nodad")
    check(status != 0, "exit status 0")
    check(seconds < SLACK_S + 10, f"took {seconds:.1f} s")
    check("RETRY_EXC" in out or "rank 1" in out, out[-2000:])
    print(f"     ended after {seconds:.1f} s")


CASES = [value for name, value in list(globals().items()) if name.startswith("case_")]


def main():
    build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
    wanted = sys.argv[2:]
    cases = [c for c in CASES if not wanted or c.__name__[5:] in wanted]
    if not os.path.exists(f"{build}/bench/allreduce"):
        print(f"skipped: {build}/bench/allreduce is not built")
        return 77
    roce_lab.clean_up_when_told_to_end()
    n_failed = 0
    try:
        with tempfile.TemporaryDirectory(prefix="gyre-lab-out.") as scratch:
            pcap = f"{scratch}/wire.pcap"
            with roce_lab.Lab(pcap=pcap) as lab:
                rig = Rig(lab, build, pcap)
                for case in cases:
                    began = time.monotonic()
                    try:
                        case(rig)
                        words = "ok  "
                    except Failed as why:
                        n_failed += 1
                        words = "FAIL"
                        print(f"     {case.__name__}: {why}")
                    print(f"{words} {case.__doc__} ({time.monotonic() - began:.0f} s)", flush=True)
    except roce_lab.Unavailable as why:
        print(f"skipped: {why}")
        return 77
    print(f"{len(cases)} cases, {n_failed} failed")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
