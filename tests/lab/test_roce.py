#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gyre on a true RoCEv2 wire: cases that share one lab of two machines.

    TEST_ROCE=1 tests/lab/test_roce.py BUILD_DIR [CASE...]

A case is a function case_*; its docstring is a sentence that is true when it passes. Exit status 77
with the reason where the lab cannot run.
"""
import os
import re
import subprocess
import sys
import tempfile
import threading
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
        return int(self.lab.on(vm, f"busybox cat /sys/class/infiniband/rxe0/ports/1/hw_counters/{name}").out)

    def wait_traffic(self, limit_s):
        """Until some hundred KiB have passed the wire."""
        before = os.path.getsize(self.pcap)
        until = time.monotonic() + limit_s
        while os.path.getsize(self.pcap) < before + 400000:
            check(time.monotonic() < until, "no traffic")
            time.sleep(0.1)

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


RESENT = ("completer_retry_err", "out_of_seq_request", "duplicate_request", "rcvd_seq_err")


def case_loss(rig):
    """1% and 5% loss cost time, not values"""
    for loss in ("1%", "5%"):
        before = sum(rig.counter(vm, name) for vm in rig.lab.names for name in RESENT)
        netem(rig, f"loss {loss}")
        try:
            rig.right(rig.bench("allreduce", "-b 64K -e 256K -f 2 -n 4 -w 1", limit_s=300))
        finally:
            netem(rig, "")
        after = sum(rig.counter(vm, name) for vm in rig.lab.names for name in RESENT)
        check(after > before, f"nothing was sent again with {loss} loss")
        print(f"     {loss}: {after - before} retransmission events")


def case_reorder(rig):
    """reordering and 50 ms of delay cost time, not values"""
    for words in ("delay 5ms reorder 25% 50%", "delay 50ms"):
        netem(rig, words)
        try:
            rig.right(rig.bench("allreduce", "-b 8 -e 8K -f 32 -n 2 -w 1", limit_s=300))
        finally:
            netem(rig, "")


class Ranks:
    """One rank a machine, started without mpirun, so that each one's end can be timed."""

    def __init__(self, rig, options, env=None):
        self.rig, self.ends, self.threads = rig, {}, []
        self.shells = {name: rig.lab.shell(name) for name in rig.lab.names}
        port = roce_lab.free_port()
        for i, name in enumerate(rig.lab.names):
            sets = {"RANK": str(i), "LOCAL_RANK": "0", "WORLD_SIZE": str(rig.lab.n_vms),
                    "MASTER_ADDR": "vm1", "MASTER_PORT": str(port), "GYRE_SOCKET_IFNAME": "eth0",
                    "GYRE_IB_TC": "106", "GYRE_DEBUG": "INFO", **(env or {})}
            words = [f"{rig.build}/bench/allreduce", *options.split()]
            thread = threading.Thread(target=self.run, args=(name, words, sets))
            thread.start()
            self.threads.append(thread)

    def run(self, name, words, env):
        result = self.rig.lab.on(name, words, env=env, limit_s=120)
        self.ends[name] = (time.monotonic(), result)

    def wait_running(self, limit_s=40):
        """Until packets with data are on the wire."""
        self.rig.wait_traffic(limit_s)

    def tell(self, name, line):
        """Run a line there, now."""
        self.shells[name].stdin.write(line + "\n")
        self.shells[name].stdin.flush()

    def finish(self, limit_s=150):
        for shell in self.shells.values():
            shell.stdin.close()
        until = time.monotonic() + limit_s
        for thread in self.threads:
            thread.join(max(0, until - time.monotonic()))
        return self.ends

    def ended(self, name, began, limit_s):
        """(result, seconds after `began`) of a rank that must end by itself."""
        until = began + limit_s
        while name not in self.ends:
            check(time.monotonic() < until, f"the rank on {name} has not ended after {limit_s} s")
            time.sleep(0.1)
        at, result = self.ends[name]
        return result, at - began


LONG = "-b 64K -e 64K -n 100000 -w 1"


def case_kill(rig):
    """a killed rank ends the other with an error that names it"""
    ranks = Ranks(rig, LONG)
    ranks.wait_running()
    began = time.monotonic()
    ranks.tell("vm2", "pkill -9 allreduce")
    result, seconds = ranks.ended("vm1", began, SLACK_S)
    check(result.status != 0 and "rank 1" in result.out, result.out[-1500:])
    print(f"     vm1 ended after {seconds:.1f} s: {result.out.strip().splitlines()[-1][:200]}")
    ranks.finish()


def case_flap(rig):
    """a cable that is out for one second costs time only"""
    ranks = Ranks(rig, "-b 64K -e 64K -n 1500 -w 1")
    ranks.wait_running()
    rig.lab.monitor("vm2", "set_link nic0 off")
    time.sleep(1)
    rig.lab.monitor("vm2", "set_link nic0 on")
    for name, (_, result) in ranks.finish().items():
        check(result.status == 0, f"{name}: {result.out[-1500:]}")
    check("went down" in ranks.ends["vm2"][1].out, "the run had ended before")


def end_both(rig, act):
    """Run, act(ranks), and see both end with E401; prints the times."""
    ranks = Ranks(rig, LONG)
    ranks.wait_running()
    began = time.monotonic()
    act(ranks)
    try:
        for name in rig.lab.names:
            result, seconds = ranks.ended(name, began, SLACK_S + 20)
            words = [line for line in result.out.splitlines() if " error: " in line]
            print(f"     {name} ended after {seconds:.1f} s: {(words or ['?'])[-1][:260]}")
            check(result.status != 0, f"{name}: exit status 0")
            check("E401 RDMA rxe0/1" in result.out or "died" in result.out, result.out[-1500:])
    finally:
        ranks.finish()


def case_cable_out(rig):
    """a cable that stays out ends every rank, naming both ends"""
    try:
        end_both(rig, lambda ranks: rig.lab.monitor("vm2", "set_link nic0 off"))
    finally:
        rig.lab.monitor("vm2", "set_link nic0 on")


def case_link_down(rig):
    """an interface that is taken down ends every rank"""
    try:
        end_both(rig, lambda ranks: ranks.tell("vm2", "ip link set eth0 down"))
    finally:
        rig.lab.on("vm2", "ip link set eth0 up; ip addr add fd77::2/64 dev eth0 nodad")


def case_power_cut(rig):
    """a machine that is gone ends the other's rank"""
    ranks = Ranks(rig, LONG)
    ranks.wait_running()
    began = time.monotonic()
    rig.lab.power_cut("vm2")
    result, seconds = ranks.ended("vm1", began, SLACK_S)
    check(result.status != 0 and "rank 1" in result.out, result.out[-1500:])
    print(f"     vm1 ended after {seconds:.1f} s: {result.out.strip().splitlines()[-1][:300]}")


CASES = [value for name, value in list(globals().items()) if name.startswith("case_")]


def main():
    build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
    wanted = sys.argv[2:]
    cases = [c for c in CASES if not wanted or c.__name__[5:] in wanted]
    if not os.path.exists(f"{build}/bench/allreduce"):
        print(f"skipped: {build}/bench/allreduce is not built")
        return 77
    if os.environ.get("TEST_ROCE") != "1":
        print("skipped: takes minutes of emulated machines; TEST_ROCE=1 runs it")
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
