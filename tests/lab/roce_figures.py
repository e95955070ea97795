#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The figures of gyre over RoCE: everything on the same two machines in one run, in turns.

    tests/lab/roce_figures.py [--smp N] [--rounds N] [--part NAME]... BUILD_DIR

bandwidth   send_recv against ib_write_bw -b (both directions), broadcast against ib_write_bw (one)
latency     all-reduce of 8 bytes against two one-way times of ib_write_lat
compare     all-reduce against OpenMPI over UCX rc, same calls in turns
socket      gyre over RDMA against gyre over TCP

The processors are emulated: ratios mean something, absolute numbers do not. Exit status 77 with the
reason where the lab cannot run.
"""
import argparse
import json
import os
import re
import statistics
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import roce_lab  # noqa: E402

KIB, MIB = 1024, 1024 * 1024
PARTS = ("bandwidth", "latency", "compare", "socket")
UCX = ("--mca", "pml", "ucx", "--mca", "osc", "ucx")
# Of the datagrams that UCX 1.13 connects with, Soft-RoCE delivers only those between IPv6 GIDs so
# that UCX takes them: both sides use these.
UCX_ENV = {"UCX_TLS": "rc,self", "UCX_NET_DEVICES": "rxe0:1", "UCX_IB_GID_INDEX": "2",
           "GYRE_IB_ADDR_FAMILY": "AF_INET6"}


def size_text(n):
    return f"{n // MIB} MiB" if n >= MIB else f"{n // KIB} KiB" if n >= KIB else f"{n} B"


class Failed(Exception):
    pass


class Pair:
    def __init__(self, lab, build):
        self.lab, self.build = lab, build

    def perftest(self, tool, options):
        """The row of figures of the calling side."""
        words = f"{tool} -d rxe0 -x 1 -F {options}"
        server = threading.Thread(target=self.lab.on, args=("vm1", words))
        server.start()
        # The server says nothing before its client comes: try until it listens.
        client = self.lab.on("vm2", f"for i in $(seq 30); do {words} vm1 && exit; sleep 1; done",
                             limit_s=300)
        server.join()
        rows = re.findall(r"^ *(\d+ +\d+ +[\d.]+ +.*)$", client.out, re.M)
        if not rows:
            raise Failed(f"{words}: {client.out[-800:]}")
        return [float(word) for word in rows[-1].split()]

    def bench(self, name, options, env=None, mpi=()):
        """The results of a bench's JSON report."""
        sets = {"GYRE_SOCKET_IFNAME": "eth0", "GYRE_IB_TC": "106", **(env or {})}
        words = [f"{self.build}/bench/{name}", *options.split(), "-J", "/lab/report.json"]
        result = self.lab.on("vm1", self.lab.mpirun_words(words, env=sets, options=mpi),
                             limit_s=900)
        if result.status != 0:
            raise Failed(f"{name} {options}: {result.out[-1500:]}")
        with open(f"{self.lab.dir}/vm1/report.json") as f:
            return json.load(f)["results"]


def in_turns(rounds, *measures):
    """Each measure once a round; the list of its values, per measure."""
    values = [[] for _ in measures]
    for _ in range(rounds):
        for i, measure in enumerate(measures):
            values[i].append(measure())
    return values


def ratio_text(upper, lower):
    """Median of the rounds' ratios, with the lowest and the highest."""
    ratios = sorted(a / b for a, b in zip(upper, lower))
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def bandwidth(pair, rounds):
    print("| transfer | size | gyre MB/s | perftest MB/s | ratio (median of rounds, lowest to "
          "highest) |\n|---|---|---|---|---|")
    cases = (("sendrecv", 2, "ib_write_bw -b", "both ways"), ("broadcast", 1, "ib_write_bw", "one way"))
    for n_bytes in (1 * MIB, 8 * MIB):
        n = 24 * MIB // n_bytes
        for name, ways, tool, words in cases:
            def gyre():
                row = pair.bench(name, f"-b {n_bytes} -e {n_bytes} -n {n} -w 2 -c 0")[0]
                # MB of 2^20 bytes, as perftest has them
                return ways * row["out_of_place"]["algbw_gbytes_per_s"] * 1e9 / MIB

            def peer():
                # -t 8: as many messages under way as gyre has slots
                return pair.perftest(tool, f"-s {n_bytes} -n {max(n, 5)} -t 8 --cq-mod=1")[3]
            mine, theirs = in_turns(rounds, gyre, peer)
            print(f"| {name}, {words} | {size_text(n_bytes)} | {statistics.median(mine):.1f} | "
                  f"{statistics.median(theirs):.1f} | {ratio_text(mine, theirs)} |", flush=True)
    print()


def latency(pair, rounds):
    def gyre():
        row = pair.bench("allreduce", "-b 8 -e 8 -n 1000 -w 20 -c 0")[0]["out_of_place"]
        return row["time_us"], row["single_calls_us"]["median"]

    def peer():
        row = pair.perftest("ib_write_lat", "-s 8 -n 2000")
        return 2 * row[5], 2 * row[4]
    mine, theirs = in_turns(rounds, gyre, peer)
    print("| 8-byte all-reduce | gyre us | two one-way times of ib_write_lat us | ratio (median of "
          "rounds) |\n|---|---|---|---|")
    for i, what in enumerate(("calls back to back, mean | mean", "single calls, median | typical")):
        ours, both = what.split(" | ")
        a, b = [row[i] for row in mine], [row[i] for row in theirs]
        print(f"| {ours} | {statistics.median(a):.0f} | {statistics.median(b):.0f} ({both}) | "
              f"{ratio_text(a, b)} |")
    print(flush=True)


def compare(pair, rounds):
    print("| all-reduce | gyre us | OpenMPI over UCX rc us | gyre is faster by (median of rounds, "
          "95 %) |\n|---|---|---|---|")
    for n_bytes in (8, 64 * KIB, 256 * KIB, 1 * MIB, 4 * MIB, 16 * MIB):
        n = 50 if n_bytes < 64 * KIB else max(2, min(20, 2 * MIB // n_bytes))
        row = pair.bench("allreduce", f"-b {n_bytes} -e {n_bytes} -n {n} -w 2 -c 0 --compare mpi "
                         f"--rounds {rounds}", env=UCX_ENV, mpi=UCX)[0]["comparison"]
        print(f"| {size_text(n_bytes)} | {row['gyre_us']:.0f} | {row['reference_us']:.0f} | "
              f"{row['ratio']:.2f} ({row['ratio_low']:.2f} to {row['ratio_high']:.2f}) |", flush=True)
    print()


def socket(pair, rounds):
    print("| configuration | transport | bandwidth MB/s | speed-up (median of rounds) |\n"
          "|---|---|---|---|")
    for name, n_bytes in (("sendrecv", MIB), ("sendrecv", 8 * MIB), ("allreduce", 64 * KIB),
                          ("allreduce", MIB), ("allreduce", 8 * MIB)):
        n = max(3, min(20, 8 * MIB // n_bytes))

        def rate(net):
            row = pair.bench(name, f"-b {n_bytes} -e {n_bytes} -n {n} -w 2 -c 0",
                             env={"GYRE_NET": net})[0]
            return row["out_of_place"]["busbw_gbytes_per_s"] * 1e9 / MIB
        tcp, rdma = in_turns(rounds, lambda: rate("Socket"), lambda: rate("IB"))
        what = f"{name} {size_text(n_bytes)}, 2 machines"
        print(f"| {what} | NET/Socket | {statistics.median(tcp):.1f} | 1 |\n"
              f"| {what} | NET/IB (RoCEv2) | {statistics.median(rdma):.1f} | "
              f"{ratio_text(rdma, tcp)} |", flush=True)
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smp", type=int, default=1, help="processors of a machine")
    parser.add_argument("--mtu", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("build", nargs="?", default="build")
    args = parser.parse_args()
    roce_lab.clean_up_when_told_to_end()
    n_failed = 0
    try:
        with roce_lab.Lab(smp=args.smp, mtu=args.mtu, keep=[args.build]) as lab:
            print(f"two machines of {args.smp} processors, MTU {args.mtu}, {args.rounds} rounds\n",
                  flush=True)
            for part in args.part or PARTS:
                try:
                    globals()[part](Pair(lab, os.path.abspath(args.build)), args.rounds)
                except Failed as why:
                    n_failed += 1
                    print(f"{part}: {why}", flush=True)
    except roce_lab.Unavailable as why:
        print(f"skipped: {why}", file=sys.stderr)
        return 77
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
