#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The whole verbs path without RDMA hardware: ranks are processes on two hosts that are one machine
(GYRE_HOSTID), their RDMA devices the stand-in of this folder.

    tests/nic/verbs_wire/processes.py BUILD_DIR [--device host|cuda] [CASE...]

A case is a function case_*; its docstring is a sentence that is true when it passes. A case may say
that it was skipped. Exit status: 0, 1 if a case failed, 77 if nothing can run here.
"""
import argparse
import glob
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../support"))
from cases import Failed, Skipped, cases_of, check, run_cases
from open_mpi import for_open_mpi

BENCHES = "allreduce allgather broadcast reduce reducescatter sendrecv alltoall".split()
SKIPPED = 77
IS_SHORT = bool(os.environ.get("TEST_FEW"))
IS_LONG = bool(os.environ.get("TEST_LONG"))
# The contract's bound from a death to the error on every rank; sanitized builds get more.
NAMED_WITHIN_S = 20 if IS_SHORT else 2


def count_gpus():
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([name for name in visible.split(",") if name])
    return len(glob.glob("/dev/nvidia[0-9]*"))


class Rig:
    def __init__(self, build, device):
        self.build, self.device = build, device
        self.n_jobs = 0
        self.transport = "NET/IB/0"
        self.extra = {}  # environment of every run
        most = count_gpus() if device == "cuda" else 4
        self.sizes = [n for n in (2, 4) if n <= most]

    def environment(self, extra=None):
        drop = ("OMPI_", "PMIX_", "PMI_", "SLURM_", "NCCL_", "GYRE_", "VERBS_WIRE_")
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
        # A machine without ssh needs these two to start ranks at all.
        keep = ("OMPI_MCA_plm", "OMPI_MCA_plm_rsh_agent")
        env = {k: v for k, v in os.environ.items()
               if k in keep or not k.startswith(drop) and k not in names}
        self.n_jobs += 1
        env.update({
            **for_open_mpi(),
            "VERBS_WIRE_JOB": f"test-{os.getpid()}-{self.n_jobs}", "VERBS_WIRE_STATS": "1",
            "GYRE_DEBUG": "INFO", "GYRE_IB_TC": "106", "TEST_DEVICE": self.device,
        })
        env.update(self.extra)
        env.update(extra or {})
        return env

    def bench_words(self, name, options):
        return [os.path.join(HERE, "rank"), self.build, f"{self.build}/bench/{name}", "--device",
                self.device, *options.split()]

    def mpirun(self, n, name, options, env=None, limit_s=100):
        words = ["mpirun", "-np", str(n), "--oversubscribe", "--bind-to", "none"]
        env = self.environment(env)
        done = subprocess.run(words + self.bench_words(name, options), env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit_s)
        self.forget(env)
        return done

    def forget(self, env):
        """A killed job leaves its file. The NIC of another one may remove it at the same time."""
        for path in glob.glob(f"/dev/shm/verbs_wire.{os.geteuid()}.{env['VERBS_WIRE_JOB']}*"):
            pathlib.Path(path).unlink(missing_ok=True)

    def right(self, done, n):
        check(done.returncode == 0, f"exit status {done.returncode}: {done.stdout[-2500:]}")
        check(re.search(r"Out of bounds values : 0 OK", done.stdout), done.stdout[-800:])
        between = re.findall(r"rank (\d+) -> (\d+) via (\S+)", done.stdout)
        hosts = [rank * 2 // n for rank in range(n)]
        for rank, peer, transport in between:
            if hosts[int(rank)] != hosts[int(peer)]:
                check(transport == self.transport, f"{rank} -> {peer} via {transport}")
        check(between, "no transports in the log")

    def stats(self, done):
        """What each device of each rank says that it sent: (device, direct, ring, copies)."""
        pattern = r"(\w+) sent .*: (\d+) direct, (\d+) by ring, (\d+) by CUDA copy"
        return [(name, int(a), int(b), int(c))
                for name, a, b, c in re.findall(pattern, done.stdout)]


def largest(rig):
    return "64M" if rig.device == "cuda" else "32K" if IS_SHORT else "1M"


def case_collectives(rig):
    """every bench gives right values on 2 and 4 ranks, over RDMA between the hosts"""
    for n in rig.sizes[-1:] if IS_SHORT else rig.sizes:
        for name in BENCHES if n > 2 or IS_LONG else ["allreduce", "alltoall"]:
            rig.right(rig.mpirun(n, name, f"-b 4 -e {largest(rig)} -f 8 -n 2 -w 1"), n)
    if rig.sizes != [2, 4]:
        print(f"     4 ranks skipped: {count_gpus()} GPUs")


def case_algorithms(rig):
    """every algorithm gives right values over RDMA"""
    n = rig.sizes[-1]
    for name, algo in (("allreduce", "all_reduce:ring"), ("allreduce", "all_reduce:tree"),
                       ("allreduce", "all_reduce:direct"), ("allreduce", "all_reduce:twoshot"),
                       ("broadcast", "broadcast:ring"), ("broadcast", "broadcast:tree"),
                       ("reduce", "reduce:ring"), ("reduce", "reduce:tree")):
        rig.right(rig.mpirun(n, name, f"-b 64 -e {largest(rig)} -f 128 -n 2 -w 1 --algo {algo}"), n)


def case_types(rig):
    """all types and operations, and unaligned buffers, give right values over RDMA"""
    rig.right(rig.mpirun(2, "allreduce", "-b 4K -e 128K -f 32 -n 1 -w 0 -d all -o all"), 2)
    rig.right(rig.mpirun(2, "allreduce", "-b 1K -e 1M -f 32 -n 2 -w 1 -u 1"), 2)


def case_graphs(rig):
    """captured operations give right values over RDMA when they are replayed"""
    if rig.device != "cuda":
        raise Skipped("graphs are CUDA's")
    for n in rig.sizes:
        rig.right(rig.mpirun(n, "allreduce", "-b 1K -e 16M -f 16 -n 5 -G 3"), n)


def payload_requests(rig, done):
    """By device, what carried payload in each rank: GPU memory is copied, host memory written."""
    moved = {}
    for name, direct, ring, copies in rig.stats(done):
        moved.setdefault(name, []).append(copies if "GDRDMA" in rig.transport else direct)
    return moved


def case_rails(rig):
    """two devices share the payload as rails; one named device takes it all"""
    done = rig.mpirun(2, "allreduce", "-b 4M -e 4M -n 4 -w 1")
    rig.right(done, 2)
    moved = payload_requests(rig, done)
    check(sorted(moved) == ["wire0", "wire1"] and
          all(len(v) == 2 and min(v) > 0 for v in moved.values()), f"payload requests {moved}")
    done = rig.mpirun(2, "allreduce", "-b 4M -e 4M -n 4 -w 1", env={"GYRE_IB_HCA": "=wire1"})
    rig.right(done, 2)
    moved = payload_requests(rig, done)
    check(list(moved) == ["wire1"] and min(moved["wire1"]) > 0, f"payload requests {moved}")


def case_queue_pairs(rig):
    """several queue pairs a connection give right values"""
    rig.right(rig.mpirun(2, "allreduce", "-b 8 -e 4M -f 64 -n 3 -w 1",
                         env={"GYRE_IB_QPS_PER_CONNECTION": "4"}), 2)


def case_ring(rig):
    """payload goes through the shared file where the kernel does not let processes write"""
    if rig.device == "cuda":
        raise Skipped("host memory's matter")
    done = rig.mpirun(2, "allreduce", "-b 8 -e 4M -f 64 -n 3 -w 1", env={"VERBS_WIRE_MOVE": "ring"})
    rig.right(done, 2)
    check(all(row[1] == 0 and row[2] > 0 for row in rig.stats(done)), f"{rig.stats(done)}")


def case_latency(rig):
    """the latency of the wire is measured, and all ranks plan with the same number"""
    wire_us, n = 300, rig.sizes[-1]
    done = rig.mpirun(n, "allreduce", "-b 64 -e 64K -f 32 -n 1 -w 0",
                      {"VERBS_WIRE_US": str(wire_us), "GYRE_DEBUG_SUBSYS": "INIT,TUNING"})
    rig.right(done, n)
    found = re.search(r"network: a latency of (\d+) ns; round trips took (\d+) ns", done.stdout)
    check(found, f"no latency in the log: {done.stdout[-1500:]}")
    latency_ns, round_trip_ns = map(int, found.groups())
    check(round_trip_ns >= 2000 * wire_us, f"round trips of {round_trip_ns} ns")
    # The next lower class may be taken, which is smaller by the square root of two at most.
    least_us = wire_us / 1.42
    check(latency_ns >= 1000 * least_us, f"a latency of {latency_ns} ns")
    plans = re.findall(r"all_reduce (\d+) B: (.*?predicted [\d.]+ us)", done.stdout)
    check(len(plans) >= 3 * n, f"{len(plans)} plans of {n} ranks")
    check(len(set(plans)) == 3, f"ranks plan differently: {sorted(set(plans))}")
    check(float(plans[0][1].split()[-2]) > least_us, f"a prediction without the latency: {plans[0]}")


def case_read_off(rig):
    """slots that are sent from host memory arrive in GPU memory with right values"""
    if rig.device != "cuda":
        raise Skipped("CUDA only")
    rig.right(rig.mpirun(2, "allreduce", "-b 8 -e 16M -f 64 -n 3 -w 1",
                         env={"GYRE_NET_GDR_READ": "0"}), 2)


def case_staged(rig):
    """without GPUDirect RDMA slots are staged in host memory and values are right"""
    if rig.device != "cuda":
        raise Skipped("CUDA only")
    done = rig.mpirun(2, "allreduce", "-b 8 -e 16M -f 64 -n 3 -w 1",
                      env={"VERBS_WIRE_GPU": "none"})
    transport, rig.transport = rig.transport, "NET/IB/0"
    try:
        rig.right(done, 2)
    finally:
        rig.transport = transport


def run_test(rig, name, case, limit_s, env=None):
    env = rig.environment({"GYRE_TRANSPORT": "ib",
                           "LD_LIBRARY_PATH": f"{rig.build}/tests/verbs", **(env or {})})
    done = subprocess.run([f"{rig.build}/tests/{name}", *case], env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit_s)
    rig.forget(env)
    check(done.returncode == 0, f"{name}: exit status {done.returncode}: {done.stdout[-2500:]}")
    # Over RDMA, not beside it.
    check(f"via {rig.transport}\n" in done.stdout, f"{name} did not use {rig.transport}: "
          f"{done.stdout[-2500:]}")
    return done.stdout


def case_lines(rig):
    """lines between the hosts give right values, and a killed rank is named while others wait for one;
    ranks may fork"""
    if rig.device == "cuda":
        raise Skipped("test_hosts runs lines into GPU memory")
    lines = {"GYRE_PROTO": "simple/ll"}
    for name in ("allreduce", "alltoall"):
        done = rig.mpirun(4, name, "-b 8 -e 32K -f 16 -n 2 -w 1", env=lines)
        rig.right(done, 4)
    run_test(rig, "test_failures", ["killed rank over rdma"], 100, {"TEST_RDMA": "1", **lines})
    run_test(rig, "test_fork", ["over RDMA"], 100, {"TEST_RDMA": "1"})


def case_fence(rig):
    """slots that are given on after a read through their own NIC have right values"""
    for n in rig.sizes:
        done = rig.mpirun(n, "allreduce", f"-b 8 -e {largest(rig)} -f 32 -n 3 -w 1",
                          env={"GYRE_NET_GDR_FENCE": "1", "GYRE_IB_QPS_PER_CONNECTION": "2"})
        rig.right(done, n)


def case_conformance(rig):
    """the communicator's tests pass over RDMA, between threads and between processes"""
    run_test(rig, "test_comm", [] if IS_LONG else ["between"], 300)


def case_abort(rig):
    """an abort ends all ranks that talk over RDMA"""
    run_test(rig, "test_failures", ["an abort"], 100)


def case_apart(rig):
    """ranks whose packets reach nobody end with E401, which names the peer and both GIDs"""
    done = rig.mpirun(2, "allreduce", "-b 8 -e 8 -n 1 -w 0",
                      env={"WIRE_APART": "1", "GYRE_IB_TIMEOUT": "12", "GYRE_IB_RETRY_CNT": "2"})
    check(done.returncode != 0, "it ran")
    for words in (r"E401 RDMA wire[01]/1->\S+ \(rank [01] ", "RETRY_EXC", "after 3x0.02s",
                  "local GID 3 10.77", "remote GID 3 10.77"):
        check(re.search(words, done.stdout), f"no \"{words}\": {done.stdout[-2500:]}")


def case_faults(rig):
    """a fault of a port in the middle of a run ends it with the cause, the device and the port, or costs
    time alone"""
    retry = {"GYRE_IB_TIMEOUT": "12", "GYRE_IB_RETRY_CNT": "2"}
    from_port = r"E401 RDMA wire{0}/1->10.77.{0}.\d \(rank [01] .*RETRY_EXC.*after 3x0.02s"
    lost = (r"took longer than 1000 ms \(GYRE_TIMEOUT\): .*look for slow links" if rig.device == "cuda"
            else r"\d+ have arrived: the rest is lost or still under way over ib")  # GPUs do not know the step
    for text, words in (("host1 0 down", [r"port wire0/1 went down", "E401 RDMA wire0/1->"]),
                        ("host1 0 lose_out", [from_port.format(0)]),
                        ("host1 1 lose_in", [from_port.format(1)]),
                        ("host2 1 lose_answers", [from_port.format(1)]),
                        ("host1 0 only_answer", [lost])):
        out = run_with_faults(rig, text, "", "-b 64K -e 64K -n 100000000 -w 0", {**retry, "GYRE_TIMEOUT": "1000"})
        check(out.returncode != 0, f"{text}: it ran: {out.stdout[-1500:]}")
        for word in words:
            check(re.search(word, out.stdout), f"{text}: no \"{word}\": {out.stdout[-2500:]}")
    for text in ("host1 0 late_ms 3", "host1 0 mbit_per_s 400", "host1 0 gids 4",
                 "host2 1 destroy_ms 100\nhost2 1 no_flushes"):
        rig.right(run_with_faults(rig, "", text, "-b 64K -e 64K -n 100 -w 0"), 2)
    out = run_with_faults(rig, "", "host1 0 rtr_ms 50", "-b 8 -e 8 -n 1 -w 0",
                          {**retry, "GYRE_BOOTSTRAP_TIMEOUT": "5"})
    check(out.returncode != 0 and "E401 RDMA wire0/1->" in out.stdout, out.stdout[-2500:])


def case_failover(rig):
    """with GYRE_FAILOVER=1 a rail that fails in the middle of a run costs time alone"""
    own = subprocess.run(["hostname", "-I"], text=True, capture_output=True).stdout.split()
    if own and "." in own[0]:
        done = rig.mpirun(2, "allreduce", "-b 8 -e 8 -n 1 -w 0", env={
            "GYRE_FAILOVER": "1", "VERBS_WIRE_DEVICES": f"wire0={own[0]};wire1=10.77.1.1"})
        check(re.search(rf"link to the rendezvous, {re.escape(own[0])}:\d+, runs over wire0/1", done.stdout),
              done.stdout[-2500:])
    for text, env in (("host1 0 down", {}), ("host1 0 down\nhost2 0 down", {"GYRE_PROTO": "simple/ll"}),
                      ("host2 1 lose_answers", {}), ("host1 1 lose_out", {"GYRE_IB_QPS_PER_CONNECTION": "2"})):
        done = run_with_faults(rig, text, "", "-b 512 -e 2M -f 64 -n 40 -w 0",
                               {"GYRE_FAILOVER": "1", **env})
        rig.right(done, 2)
        for rank in (0, 1):
            check(re.search(rf"connection to rank {rank} .*\(1 of 2 rails\)", done.stdout),
                  f"{text}: rank {1 - rank} moved nothing: {done.stdout[-2500:]}")


def case_weak_host(rig):
    """a host that has lost a port halves the rate with which ways are predicted"""
    done = rig.mpirun(2, "allreduce", "-b 64K -e 64K -n 1 -w 0", {"HCA_OF_HOST_1": "=wire1", "GYRE_DEBUG_SUBSYS": "ALL"})
    rig.right(done, 2)
    check(re.search(r"\(rank 0\) has 1 RDMA ports and another host 2: ways are predicted with 50 % of the NICs' rate\n",
                    done.stdout), done.stdout[-2500:])  # of two hosts none is a leaf


# Sums of all four ranks, of those with the weak host, and of those without it, each of its own size.
SUMS = r"""
import array, gyre, os
with gyre.from_environment(device="host") as comm:
    rank = comm.rank
    parts = [(comm, range(4), 4), (comm.split(0 if rank > 0 else None), range(1, 4), 16),
             (comm.split(0 if rank != 2 else None), (0, 1, 3), 3)]
    for part, ranks, mib in parts:
        if rank in ranks:
            data = array.array("f", [rank + 1.0]) * (mib << 18)
            part.all_reduce(data)
            expected = float(sum(rank + 1 for rank in ranks))
            assert set(data) == {expected}, (rank, mib, set(data))
            os.write(1, f"right {mib}\n".encode())  # whole, beside other ranks' lines
    for part, ranks, _ in parts[1:]:
        if rank in ranks:
            part.destroy()
"""


def case_leaf(rig):
    """of four hosts one that lacks a port becomes a leaf of large all-reduces, also after a split; sums are right"""
    if rig.device == "cuda":
        raise Skipped("four GPUs are needed")
    env = {"HOSTS": "4", "HCA_OF_HOST_3": "=wire1", "GYRE_DEBUG_SUBSYS": "ALL", "GYRE_NET_LATENCY": "100000",
           "VERBS_WIRE_GBIT": "1", "PYTHONPATH": f"{rig.build}/python"}
    whole = rig.environment(env)
    done = subprocess.run(["mpirun", "-np", "4", "--oversubscribe", "--bind-to", "none", os.path.join(HERE, "rank"),
                           rig.build, sys.executable, "-c", SUMS], env=whole, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=100, check=False)
    rig.forget(whole)
    check(done.returncode == 0, done.stdout[-2500:])
    for mib, n_ranks, is_leaf in ((4, 4, True), (16, 3, True), (3, 3, False)):
        check(done.stdout.count(f"right {mib}\n") == n_ranks, f"{mib} MiB: {done.stdout[-2500:]}")
        ways = set(re.findall(rf"all_reduce {mib << 20} B: (\w+) ", done.stdout))
        check(ways == {"leaf"} if is_leaf else ways and "leaf" not in ways, f"{mib} MiB: {ways}")
    check("(rank 2) has 1 RDMA ports and another host 2: ways are predicted with 50 % of the NICs' rate; leaf leaves the"
          in done.stdout, done.stdout[-2500:])
    done = rig.mpirun(4, "allreduce", "-b 8 -e 4M -f 64 -n 2 -w 0", env)
    rig.right(done, 4)
    ways = dict(re.findall(r"all_reduce (\d+) B: (\w+) ", done.stdout))
    check(ways["8"] != "leaf" and ways["2097152"] == "leaf", ways)


def case_shares(rig):
    """with GYRE_FAILOVER=1 a rail of half the rate carries about a third, and values are right"""
    def rates(slow):
        return "\n".join(f"host{host} {device} mbit_per_s {slow if device == 0 else 80}"
                         for host in (1, 2) for device in (0, 1))
    sent = r"wire(\d) sent .*?(\d+) bytes"
    done = run_with_faults(rig, "", rates(40), "-b 4M -e 4M -n 15 -w 1", {"GYRE_FAILOVER": "1"})
    rig.right(done, 2)
    check(re.search(r"wire0/1 has \d+ % of the fastest rail's rate", done.stdout), done.stdout[-2500:])
    totals = [0, 0]
    for device, n_bytes in re.findall(sent, done.stdout):
        totals[int(device)] += int(n_bytes)
    share = totals[0] / sum(totals)
    print(f"     the slow rail carried {100 * share:.0f} %, those of the first seconds included")
    check(share < 0.46, f"shares {totals}")


def case_campaign(rig):
    """with GYRE_FAILOVER=1 random failures of rails cost time alone: sums, graphs, sends, all-to-all"""
    sizes = f"-b 512 -e {os.environ.get('CAMPAIGN_BYTES', '4M')} -f 8 -w 0"
    runs = [f"allreduce {sizes} -n 100", f"sendrecv {sizes} -n 60", f"alltoall {sizes} -n 60"]
    if rig.device == "cuda":
        runs.insert(0, f"allreduce {sizes} -n 50 -G 4")
    draw = random.Random(int(os.environ.get("CAMPAIGN_SEED", "7")))
    wanted = int(os.environ.get("CAMPAIGN", "12"))
    until = time.monotonic() + float(os.environ.get("CAMPAIGN_S", "60"))
    n_failures, n_moves, n_jobs, times = 0, 0, 0, {False: [], True: []}
    while n_failures < wanted and time.monotonic() < until:
        name, options = runs[n_jobs % len(runs)].split(" ", 1)
        done, n = run_through_failures(rig, name, options, draw, times)
        rig.right(done, 2)
        n_failures, n_jobs = n_failures + n, n_jobs + 1
        n_moves += len(re.findall(r"It runs again after", done.stdout))
    print(f"     {n_failures} failures in {n_jobs} jobs, {n_moves} moves of a side, 0 wrong elements")
    for is_silent, word in ((False, "a port reports"), (True, "nothing reports")):
        if times[is_silent]:
            print(f"     {len(times[is_silent])} that {word}, until the connection runs: "
                  f"{1e3 * statistics.median(times[is_silent]):.0f} ms in the median, "
                  f"{1e3 * max(times[is_silent]):.0f} ms at most")
    check(n_failures >= wanted, f"{n_failures} of {wanted} failures, no time for more")


def run_through_failures(rig, name, options, draw, times):
    """Rails fail and return until the job ends. Returns it, and how many failures it had. Appends
    to times[is silent] how long it took each that was noticed until a connection ran again."""
    kinds = ("{h} {r} down", "{h} {r} down\n{o} {r} down", "{h} {r} lose_out", "{h} {r} lose_in",
             "{h} {r} lose_answers", "{h} 0 down\n{o} 1 down")
    n_failures = 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "faults")

        def set_faults(text):
            pathlib.Path(path + ".new").write_text(text + "\n", encoding="utf-8")
            os.rename(path + ".new", path)

        env = rig.environment({"VERBS_WIRE_FAULTS": path, "GYRE_FAILOVER": "1", "GYRE_TIMEOUT": "60000"})
        set_faults("# none")
        with subprocess.Popen(["mpirun", "-np", "2", "--oversubscribe", "--bind-to", "none",
                               *rig.bench_words(name, options)], env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as job:
            said, runs = [], []

            def read():
                for line in job.stdout:
                    said.append(line)
                    if "It runs again after" in line and "a rail answers again" not in line:
                        runs.append(time.monotonic())

            reader = threading.Thread(target=read)
            reader.start()
            while not any("via NET/IB" in line for line in list(said)) and job.poll() is None:
                time.sleep(0.02)
            while job.poll() is None:
                kind, host = draw.choice(kinds), draw.randrange(2)
                time.sleep(draw.uniform(0.02, 0.2))
                set_faults(kind.format(h=f"host{host + 1}", o=f"host{2 - host}", r=draw.randrange(2)))
                failed, n_runs = time.monotonic(), len(runs)
                n_failures += job.poll() is None
                time.sleep(draw.uniform(0.6, 0.8) if "lose" in kind else draw.uniform(0.02, 0.2))
                times["lose" in kind] += [at - failed for at in runs[n_runs:n_runs + 1]]
                set_faults("# none")
            reader.join()
        rig.forget(env)
        return subprocess.CompletedProcess(job.args, job.returncode, "".join(said)), n_failures


def run_with_faults(rig, text, first, options, env=None):
    """Two ranks of allreduce; `first` holds from the start, `text` from when they are connected."""
    print(f"     {(text or first)!r} ...", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "faults")
        env = rig.environment({"VERBS_WIRE_FAULTS": path, **(env or {})})
        pathlib.Path(path).write_text(first + "\n", encoding="utf-8")
        with subprocess.Popen(["mpirun", "-np", "2", "--oversubscribe", "--bind-to", "none",
                               *rig.bench_words("allreduce", options)], env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as job:
            said = []
            limit = threading.Timer(60, job.terminate)
            limit.start()
            for line in job.stdout:
                said.append(line)
                if text and "via NET/IB" in line:
                    pathlib.Path(path + ".new").write_text(text + "\n", encoding="utf-8")
                    os.rename(path + ".new", path)
                    text = ""
            limit.cancel()
        rig.forget(env)
        return subprocess.CompletedProcess(job.args, job.returncode, "".join(said))


def case_kill(rig):
    """a killed rank is named by all others within two seconds, whichever it is"""
    out = run_test(rig, "test_failures", ["killed rank over rdma"], 100, {"TEST_RDMA": "1"})
    took = re.findall(r"ib: rank (\d) killed, named by all survivors after ([\d.]+) s, "
                      r"all ended after ([\d.]+) s", out)
    check(took, out[-1500:])
    for rank, named_s, ended_s in took:
        print(f"     rank {rank} of {len(took)} killed: named by all others after {named_s} s, "
              f"all ended after {ended_s} s")
        check(float(named_s) < NAMED_WITHIN_S, f"rank {rank}: {named_s} s")


def case_stall(rig):
    """a slot that is lost over RDMA is named with its rank, step and peer"""
    if rig.device == "cuda":
        raise Skipped("on GPUs the step is not known")
    out = run_test(rig, "test_stalls", ["lost over rdma"], 100, {"TEST_RDMA": "1"})
    check("rank 1 has sent slot 6 (" in out and "still under way over ib" in out, out[-2500:])


def probe_gpudirect(rig):
    """Which way GPU memory is reached here; sets what logs must say."""
    for extra, way in (({}, "dma-buf"), ({"VERBS_WIRE_GPU": "peermem"}, "as nvidia-peermem does")):
        done = rig.mpirun(2, "allreduce", "-b 8 -e 8 -n 1 -w 0", env=extra)
        if re.search(r"via NET/IB/0/GDRDMA", done.stdout):
            rig.extra, rig.transport = extra, "NET/IB/0/GDRDMA"
            print(f"     GPU memory is registered by {way}")
            return
        why = re.findall(r"no GPUDirect RDMA, [^\n]*|verbs_wire \d+: [^\n]*", done.stdout)
        print(f"     not by {way}: {why[-3:] or done.stdout[-1500:]}")
    print("SKIPPED GPUDirect: all that follows is staged in host memory")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build")
    parser.add_argument("--device", default="host", choices=["host", "cuda"])
    parser.add_argument("cases", nargs="*")
    arguments = parser.parse_args()
    rig = Rig(os.path.realpath(arguments.build), arguments.device)
    cases = cases_of(globals())
    for path, words in ((f"{rig.build}/tests/verbs/libibverbs.so.1", "built without RDMA"),
                        (f"{rig.build}/bench/allreduce", "the benches are not built")):
        if not os.path.exists(path):
            print(words)
            return SKIPPED
    if shutil.which("mpirun") is None or len(rig.sizes) == 0:
        print("no mpirun here" if rig.sizes else f"{count_gpus()} GPUs, 2 are needed")
        return SKIPPED
    if rig.device == "cuda":
        probe_gpudirect(rig)
    failed, _ = run_cases([cases[name] for name in arguments.cases or cases], rig)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
