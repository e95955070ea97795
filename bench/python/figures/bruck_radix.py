# SPDX-License-Identifier: Apache-2.0
"""Bruck's all-to-all by radix: rounds and blocks sent, and the time that a cost model gives."""
from result import Result

PAPER = "Bruck et al., IEEE TPDS 8(11), 1997"
CLAIM = "a small radix is best for small blocks of an all-to-all, direct sends for large ones"
INEQUALITY = "64 ranks: radix 2 to 4 is best at 8 B a block, direct at 1 MiB, and the best radix never falls between"
EVIDENCE = "computed: counted rounds and blocks in a cost model of 2 us a round and 25 GB/s"
MINUTES = 0.1
N_RANKS, ROUND_US, BYTES_PER_US = 64, 2.0, 25e3


def counts(n, radix):
    """(rounds, blocks that a rank sends): the block at distance i moves once for each digit of i that is not 0."""
    rounds = blocks = 0
    weight = 1
    while weight < n:
        for digit in range(1, radix):
            moved = sum(i // weight % radix == digit for i in range(n))
            rounds, blocks = rounds + (moved > 0), blocks + moved
        weight *= radix
    return rounds, blocks


def run(_tools):
    radices = (2, 4, 8, N_RANKS)
    known = {radix: counts(N_RANKS, radix) for radix in radices}
    sizes = [8 << 2 * i for i in range(10)]
    curves = {f"radix {radix}" if radix < N_RANKS else "direct":
              [(size, known[radix][0] * ROUND_US + known[radix][1] * size / BYTES_PER_US) for size in sizes]
              for radix in radices}
    best = [min(radices, key=lambda radix, size=size: known[radix][0] * ROUND_US + known[radix][1] * size / BYTES_PER_US)
            for size in [*sizes, 1 << 20]]
    rows = [[size, *(dict(points)[size] for points in curves.values())] for size in sizes]
    return Result(best[0] in (2, 4) and best[-1] == N_RANKS and best == sorted(best),
                  f"best radix by size of block, 8 B to 1 MiB: {', '.join(map(str, dict.fromkeys(best)))} (64: direct)",
                  ["bytes", *curves], rows, curves, "bytes of a block", "time, us")
