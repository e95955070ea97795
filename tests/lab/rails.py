#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Collectives between hosts with several slow rails, beside Open MPI's over the same interfaces.

 
     tests/lab/rails.py BUILD_DIR [--hosts 2] [--ranks 2] [--rails 2] [--mbit 200] [--sizes 4K:16M]
             [--measured] [--priority] [--json FILE]

Hosts are network namespaces of this machine (rails_net.py), so slow that two cores can fill the links. For each
collective and size it prints gyre's time, the share of the bound (docs/across_hosts.md), how many of a large
call's bytes went over each rail, and how many times as long Open MPI took, both in turns in one run.

Exit status: 0 all values right and all rails used alike, 1 not, 77 this machine cannot run it (the reason is
printed).
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../support"))
from files import read_json, write_text
from open_mpi import for_open_mpi
from rails_net import Rails, Skip, check_machine, clean_up_when_told_to_end

COLLECTIVES = {"all_reduce": "allreduce", "reduce_scatter": "reducescatter", "all_gather": "allgather",
               "broadcast": "broadcast", "reduce": "reduce"}

# Of 1514 bytes of a full Ethernet frame, 1448 are TCP payload (IP, TCP, timestamps; tbf counts the frame).
PAYLOAD_SHARE = 1448 / 1514

# From a rank's write to the other host's rank seeing it, of a message that needs no time on the wire: two
# proxies that share two cores with all ranks (sendrecv of 8 bytes between two hosts).
HOP_US = 60

# The size of which the share of the bound and the bytes of each rail are asked.
LARGE = "8M"


def parse_arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=2, help="of each host")
    parser.add_argument("--rails", type=int, default=2)
    parser.add_argument("--mbit", type=int, help="rate of a link in each direction; 200, or 100 for more "
                        "than 2 hosts, where two cores are not enough for more")
    parser.add_argument("--sizes", default="4K:16M", help="FIRST:LAST, a step multiplies by 4; and 8M, if it lies "
                        "between them")
    parser.add_argument("--collectives", default=",".join(COLLECTIVES))
    parser.add_argument("--algo", default="", help="only this algorithm")
    parser.add_argument("--rounds", type=int, default=3, help="of each comparison")
    parser.add_argument("--timeout", type=int, default=300, help="seconds for one collective")
    parser.add_argument("--measured", action="store_true", help="gyre finds rate and latency of the links by "
                        "itself; without it, gyre is told them")
    parser.add_argument("--priority", action="store_true", help="the ranks get the processors before other "
                        "programs of this machine, whose work would be measured too")
    parser.add_argument("--without-mpi", action="store_true", help="do not compare")
    parser.add_argument("--json", help="write all results to this file")
    args = parser.parse_args()
    if args.mbit is None:
        args.mbit = 200 if args.hosts <= 2 else 100
    return args


def write_constants(args, directory):
    """The simulator's constants for these links: the host's own, and what the rails are limited to."""
    path = os.path.join(directory, "constants")
    with open(path, "w", encoding="utf-8") as file:
        file.write("nic_bytes_per_ns = %g\n" % (args.mbit / 8e3 * PAYLOAD_SHARE))
        for name in ("simple_network_hop_ns", "network_credit_ns"):
            file.write("%s = %g\n" % (name, HOP_US * 1e3))
    return path


def write_agent(args, directory, rails):
    """What mpirun calls in place of ssh: ADDRESS COMMAND runs the command on that host.

    The kernel shares processors between sessions first (autogroup), so a host that goes first needs a session of
    its own with a nice value of its own."""
    session = "setsid -w nice -n -20 " if args.priority else ""
    priority = "echo -20 > /proc/self/autogroup; " if args.priority else ""
    path = os.path.join(directory, "agent")
    write_text(path, '#!/bin/bash\naddress=$1\nshift\nhost=$((${address##*.} - 1))\n'
               'export GYRE_HOSTID=host$host TMPDIR=%s/h$host\n'
               'exec %sip netns exec %sh$host unshare --uts bash -c '
               '"%shostname host$host; mkdir -p $TMPDIR; $*"\n' % (
                   directory, session, rails.prefix, priority))
    os.chmod(path, 0o755)
    return path


def words_of_network(args, directory):
    """mpirun's options that tell gyre the constants of the links, or let it say what it has found."""
    if args.measured:
        return ["-x", "GYRE_DEBUG=INFO", "-x", "GYRE_DEBUG_SUBSYS=TUNING"]
    return ["-x", "GYRE_TUNING_FILE=" + write_constants(args, directory)]


def command_of(args, rails, agent, directory, bench):
    """mpirun over all hosts."""
    interfaces = ",".join("10.77.%d.0/24" % rail for rail in range(args.rails))
    hosts = ",".join("%s:%d" % (rails.address(i), args.ranks) for i in range(args.hosts))
    words = ["mpirun", "--allow-run-as-root", "-np", str(args.hosts * args.ranks), "--host", hosts,
             # Open MPI 5 does not know the address of mpirun's own host in --host, and gave that host one rank.
             "--bind-to", "none", "--map-by", "ppr:%d:node:oversubscribe" % args.ranks,
             "--mca", "plm_rsh_agent", agent, "--mca", "btl", "tcp,vader,self",
             "--mca", "btl_tcp_if_include", interfaces, "--mca", "oob_tcp_if_include", "10.77.0.0/24",
             "-x", "GYRE_SOCKET_IFNAME=" + ",".join("rail%d" % r for r in range(args.rails)),
             "-x", "ASAN_OPTIONS", "-x", "TSAN_OPTIONS", "-x", "GYRE_NET=Socket"]
    bench_path = os.path.join(os.path.abspath(args.build), "bench", bench)
    return words + words_of_network(args, directory) + [bench_path, "--device", "host"]


def run(args, rails, agent, directory, words):
    """Run a bench on all hosts; returns its JSON results. A value that is wrong ends the run."""
    report = os.path.join(directory, "report.json")
    if os.path.exists(report):
        os.remove(report)
    where = [agent, rails.address(0)] + words + ["--json", report]
    done = subprocess.run(where, capture_output=True, text=True, timeout=args.timeout,
                          env={**os.environ, **for_open_mpi()})
    if done.returncode != 0 or not os.path.exists(report):
        sys.stderr.write(done.stdout[-3000:] + done.stderr[-3000:])
        raise SystemExit("rails: %s ended with status %d" % (words[-5:], done.returncode))
    for line in (done.stdout + done.stderr).splitlines():
        if "network: " in line:
            print(line[line.index("network: "):])
    return read_json(report)["results"]


def bound_us(args, collective, n_bytes):
    """The least time that the links allow. n_bytes: of the whole vector, of all blocks."""
    h, rate = args.hosts, args.rails * args.mbit / 8 * PAYLOAD_SHARE  # bytes a microsecond
    share = {"all_reduce": 2 * (h - 1) / h, "broadcast": 1, "reduce": 1}.get(collective, (h - 1) / h)
    return share * n_bytes / rate


def shares_of_rails(args, rails, agent, directory, bench):
    """Percent of the bytes that hosts send over each rail in large calls."""
    before = rails.sent_bytes()
    run(args, rails, agent, directory,
        command_of(args, rails, agent, directory, bench) + ["-b", LARGE, "-e", LARGE, "-n", "4", "-w", "0", "-c", "0"] +
        (["--algo", args.algo] if args.algo else []))
    after = rails.sent_bytes()
    sent = [sum(a[r] - b[r] for a, b in zip(after, before)) for r in range(args.rails)]
    shares = [100 * n / sum(sent) for n in sent]
    if args.ranks % args.rails == 0 and max(shares) - min(shares) > 10:
        raise SystemExit("rails: %s sent %s %% of its bytes over each rail" % (bench, shares))
    return shares


def bytes_of(word):
    """The number that a size such as 4K or 16M stands for."""
    factor = {"K": 1 << 10, "M": 1 << 20}.get(word[-1].upper())
    return int(word[:-1]) * factor if factor else int(word)


def ranges_of(args):
    """FIRST and LAST of the runs of a bench that together have all sizes: 8 MiB is no power of four, but
    the share of the bound is asked for there."""
    first, last = args.sizes.split(":")
    has_large = bytes_of(first) < bytes_of(LARGE) < bytes_of(last)
    return [(first, last)] + ([(LARGE, LARGE)] if has_large else [])


def measure(args, rails, agent, directory, collective):
    """All sizes of one collective; prints a table and returns rows."""
    bench = COLLECTIVES[collective]
    options = ["-f", "4", "-n", "5", "-w", "1"]
    if args.algo:
        options += ["--algo", args.algo]
    if not args.without_mpi:
        options += ["--compare", "mpi", "--rounds", str(args.rounds)]
    shares = shares_of_rails(args, rails, agent, directory, bench)
    print("\n%s: %d hosts of %d ranks, %d rails of %d Mbit/s; bytes on each rail: %s" % (
        collective, args.hosts, args.ranks, args.rails, args.mbit,
        ", ".join("%.1f %%" % share for share in shares)))
    print("%12s  %-16s %3s %12s %9s %12s %12s %6s" % ("bytes", "algorithm", "ch", "gyre us", "of bound",
                                                       "predicted us", "Open MPI us", "ratio"))
    rows = []
    results = []
    for first, last in ranges_of(args):
        results += run(args, rails, agent, directory,
                       command_of(args, rails, agent, directory, bench) + ["-b", first, "-e", last] + options)
    for result in sorted(results, key=lambda result: result["bytes"]):
        compared = result.get("comparison") or {}
        gyre_us = compared.get("gyre_us") or result["out_of_place"]["time_us"]
        row = {"collective": collective, "bytes": result["bytes"], "algorithm": result["algorithm"],
               "channels": result["channels"], "gyre_us": gyre_us, "mpi_us": compared.get("reference_us"),
               "predicted_us": result.get("predicted_us"),
               "share_of_bound": bound_us(args, collective, result["bytes"]) / gyre_us,
               "rail_percent": shares}
        rows.append(row)
        print("%12d  %-16s %3d %12.1f %8.1f%% %12.1f %12s %6s" % (
            row["bytes"], row["algorithm"], row["channels"], gyre_us, 100 * row["share_of_bound"],
            row["predicted_us"] or 0,
            "%.1f" % row["mpi_us"] if row["mpi_us"] else "-",
            "%.2f" % (row["mpi_us"] / gyre_us) if row["mpi_us"] else "-"), flush=True)
    return rows


def main():
    """Run everything."""
    args = parse_arguments()
    rows = []
    clean_up_when_told_to_end()
    try:
        check_machine()
        if shutil.which("mpirun") is None:
            raise Skip("no mpirun (apt-get install openmpi-bin)")
        if not os.path.exists(os.path.join(args.build, "bench", "allreduce")):
            raise Skip("%s/bench/allreduce is not built" % args.build)
        with tempfile.TemporaryDirectory() as directory, Rails(args.hosts, args.rails, args.mbit) as rails:
            agent = write_agent(args, directory, rails)
            for collective in args.collectives.split(","):
                rows += measure(args, rails, agent, directory, collective)
    except Skip as reason:
        print("skipped: %s" % reason, file=sys.stderr)
        raise SystemExit(77) from None
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"hosts": args.hosts, "ranks": args.ranks, "rails": args.rails, "mbit": args.mbit,
                       "rows": rows}, file, indent=1)


main()
