# SPDX-License-Identifier: Apache-2.0
"""All-to-all-v whose counts are skewed: direct sends, and sends that the GPUs of a server balance before (FAST)."""
import random

from result import Result

PAPER = "FAST, arXiv 2505.09764"
CLAIM = "balancing inside servers makes skewed all-to-all-v faster, because no NIC waits for the longest one"
INEQUALITY = "8 servers of 8 GPUs: with Zipf counts of exponent 1 the balanced all-to-all is at least 1.5 times as fast, with " \
             "equal counts at most 1.05 times"
EVIDENCE = "counted: bytes of the busiest NIC and of the busiest NVLink port; programs of gyre have equal blocks, so none ran"
MINUTES = 0.1
N_SERVERS, N_GPUS, NIC, NVLINK, SEED = 8, 8, 50, 450, 1
N_BYTES = 64 << 20  # an average GPU sends


def counts(exponent, dice):
    """bytes[i][j] from GPU i to GPU j: rank^-exponent over all pairs, in random order."""
    n = N_SERVERS * N_GPUS
    weights = [(at + 1) ** -exponent for at in range(n * n)]
    dice.shuffle(weights)
    unit = N_BYTES * n / sum(weights)
    return [[weights[i * n + j] * unit for j in range(n)] for i in range(n)]


def times_us(matrix):
    """(direct, balanced): the longest of all NICs, in and out; balanced: servers' bytes are spread over their NICs (their
    matrix is cut into stages of one partner each, which takes as long as its busiest row or column), and what a GPU has
    too much of goes over NVLink before and after."""
    n, place = len(matrix), range(N_GPUS)
    far = [[0 if i // N_GPUS == j // N_GPUS else matrix[i][j] for j in range(n)] for i in range(n)]
    out, into = [sum(row) for row in far], [sum(far[i][j] for i in range(n)) for j in range(n)]
    servers = [[sum(side[s * N_GPUS + g] for g in place) for s in range(N_SERVERS)] for side in (out, into)]
    moved = max(abs(side[s * N_GPUS + g] - servers[at][s] / N_GPUS)
                for at, side in enumerate((out, into)) for s in range(N_SERVERS) for g in place)
    direct = max(out + into) / NIC
    return direct / 1e3, (max(map(max, servers)) / N_GPUS / NIC + 2 * moved / NVLINK) / 1e3


def run(_tools):
    rows = [[exponent, *times_us(counts(exponent, random.Random(SEED)))] for exponent in (0, 0.25, 0.5, 0.75, 1, 1.25)]
    gains = {row[0]: row[1] / row[2] for row in rows}
    curves = {name: [(row[0], row[at]) for row in rows] for name, at in (("direct", 1), ("balanced", 2))}
    return Result(gains[1] >= 1.5 and gains[0] <= 1.05, f"exponent 1: {gains[1]:.2f} times as fast; equal counts: {gains[0]:.2f}",
                  ["Zipf exponent", "direct, us", "balanced, us"], rows, curves, "Zipf exponent", "time, us")
