# SPDX-License-Identifier: Apache-2.0
"""Bine trees: bytes that cross the borders of groups, against pairs at distance 2^k in the same order."""
import random

from compare_stats import median
from result import Result
from swing_tori import swing_peer, xor_peer

PAPER = "De Sensi et al., Bine Trees, SC'25, arXiv 2508.17311"
CLAIM = "up to 33 % less traffic between groups of a cluster"
INEQUALITY = "the median over 30 random groupings (groups of 8 to 40 ranks, 1024 ranks) is at most 0.9"
EVIDENCE = "computed: bytes over borders of groups, counted"
MINUTES = 0.1
N_RANKS, N_GROUPINGS, SEED = 1024, 30, 1


def crossing(peer, groups):
    """Blocks that cross borders of groups in a reduce-scatter, near first."""
    n = len(groups)
    return sum((n >> (k + 1)) * sum(groups[rank] != groups[peer(rank, k, n)] for rank in range(n))
               for k in range(n.bit_length() - 1))


def random_groups(n, dice, least=8, most=40):
    found = []
    while len(found) < n:
        found += [found[-1] + 1 if found else 0] * dice.randint(least, most)
    return found[:n]


def run(_tools):
    dice, rows = random.Random(SEED), []
    for number in range(N_GROUPINGS):
        groups = random_groups(N_RANKS, dice)
        rows.append([f"random {number}", crossing(swing_peer, groups) / crossing(xor_peer, groups)])
    middle = median([ratio for _, ratio in rows])
    for size in (8, 16, 32):
        groups = [rank // size for rank in range(N_RANKS)]
        rows.append([f"aligned, {size} ranks", crossing(swing_peer, groups) / crossing(xor_peer, groups)])
    points = [(number + 1, ratio) for number, ratio in enumerate(sorted(ratio for name, ratio in rows if "random" in name))]
    return Result(middle <= 0.9, f"median {middle:.2f} for random groups; but {rows[-3][1]:.1f} to {rows[-1][1]:.1f} for "
                  "aligned groups of 8 to 32 ranks, where it is worse", ["grouping", "Bine / pairs"], rows,
                  {"Bine / pairs, sorted": points}, "grouping", "bytes over borders, ratio")
