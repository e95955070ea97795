# SPDX-License-Identifier: Apache-2.0
"""Bine's butterfly (swing, bine) beside pairs at distance 2^k of the same order, in racks of random sizes."""
import random

from bine_groups import random_groups
from compare_stats import median
from result import LINKS_ALONE, Result, predicted

PAPER = "De Sensi et al., Bine Trees, SC'25, arXiv 2508.17311"
CLAIM = "all-reduce and others up to 5 times as fast, because less traffic crosses between groups"
INEQUALITY = "64 hosts in 10 random groupings, 16 MiB, 8 times oversubscribed: the median ratio of times is at most 0.95, " \
             "near first (swing over pairs) and far first (bine over halving)"
EVIDENCE = "simulated: proved programs of the library with racks of --fabric; links and latencies alone"
MINUTES = 1
N_HOSTS, N_GROUPINGS, SEED, N_BYTES = 64, 10, 1, 16 << 20


def racks(groups):
    """A leaf for each group, one spine; a leaf's uplink carries an eighth of what an average rack sends."""
    n = groups[-1] + 1
    lines = [f"hosts {N_HOSTS} gpus 1 nics 1 rate 25", f"leaves {n}", "spines 1",
             f"uplinks rate {25 * N_HOSTS / n / 8:.3f}", "latency nic 400 uplink 400"]
    return "\n".join(lines + [f"attach hosts {host} nics 0 leaf {group}" for host, group in enumerate(groups)]) + "\n"


def run(tools):
    dice, rows = random.Random(SEED), []
    for number in range(N_GROUPINGS):
        fabric = racks(random_groups(N_HOSTS, dice, 4, 14))
        us = {name: predicted(tools, "--algo", name, "--coll", "all_reduce", "--bytes", str(N_BYTES), "--channels", "1",
                              "--tile", str(N_BYTES), fabric=fabric, cost=LINKS_ALONE)[0][1]
              for name in ("swing", "pairs", "bine", "halving", "ring")}
        rows.append([number, us["swing"] / us["pairs"], us["bine"] / us["halving"], *us.values()])
    near, far = (median([row[at] for row in rows]) for at in (1, 2))
    curves = {name: [(at + 1, ratio) for at, ratio in enumerate(sorted(row[column] for row in rows))]
              for name, column in (("near first", 1), ("far first", 2))}
    return Result(near <= 0.95 and far <= 0.95, f"median ratio {near:.2f} near first, {far:.2f} far first",
                  ["grouping", "near first", "far first", "swing, us", "pairs, us", "bine, us", "halving, us", "ring, us"],
                  rows, curves, "grouping", "time of Bine's pairs over that of pairs at 2^k")
