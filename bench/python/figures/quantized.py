# SPDX-License-Identifier: Apache-2.0
"""All-reduce with rounded messages: the error of two-shot and of a ring by bits, and the predicted time."""
import math
import random

from result import Result, predicted

PAPER = "Flash Communication, arXiv 2412.04964"
CLAIM = "a two-shot all-reduce of quantized messages rounds twice, where a quantized ring rounds 2 (n - 1) times; it is faster"
INEQUALITY = "8 ranks, 8 bits: two-shot's error is at most 0.7 of the ring's, and at most 1.5 times that of one " \
             "rounding; at 64 MiB two-shot takes at most 0.6 of its time with 16 bits"
EVIDENCE = "computed: errors of normal numbers, blocks of 128 with one scale; times by gyre schedule --predict for the bytes, " \
           "without the time of rounding"
MINUTES = 0.5
N_RANKS, N_BLOCK, N_BLOCKS, SEED, N_ELEMS = 8, 128, 16, 1, 32 << 20


def rounded(block, bits):
    """To whole steps of the block's largest number: what is sent, decoded."""
    most = (1 << (bits - 1)) - 1
    unit = max(map(abs, block)) / most or 1
    return [round(value / unit) * unit for value in block]


def add(a, b):
    return [x + y for x, y in zip(a, b)]


def two_shot(inputs, bits):
    """The owner adds decoded blocks, and keeps the decoded value that it sends, so all ranks have the same."""
    total = inputs[0]
    for block in inputs[1:]:
        total = add(total, rounded(block, bits))
    return rounded(total, bits)


def ring(inputs, bits):
    """Rounded before each hop of the reduce-scatter, and once more to gather."""
    total = inputs[0]
    for block in inputs[1:]:
        total = add(rounded(total, bits), block)
    return rounded(total, bits)


def error(way, bits):
    """Root of the mean square error over that of the sum."""
    dice, wrong, size = random.Random(SEED), 0, 0
    for _ in range(N_BLOCKS):
        inputs = [[dice.gauss(0, 1) for _ in range(N_BLOCK)] for _ in range(N_RANKS)]
        exact = [math.fsum(values) for values in zip(*inputs)]
        wrong += sum((a - b) ** 2 for a, b in zip(way(inputs, bits), exact))
        size += sum(value * value for value in exact)
    return math.sqrt(wrong / size)


def once(inputs, bits):
    return rounded([math.fsum(values) for values in zip(*inputs)], bits)


def run(tools):
    rows = []
    for bits in (16, 8, 6, 4):
        n_bytes = N_ELEMS * bits // 8 + (N_ELEMS // N_BLOCK * 2 if bits < 16 else 0)  # a scale of two bytes a block
        us = predicted(tools, "--algo", "twoshot", "--coll", "all_reduce", "--ranks", str(N_RANKS), "--bytes",
                       str(n_bytes))[0][1]
        rows.append([bits, *(error(way, bits) for way in (two_shot, ring, once)), n_bytes, us])
    eight = rows[1]
    return Result(eight[1] <= 0.7 * eight[2] and eight[1] <= 1.5 * eight[3] and eight[5] <= 0.6 * rows[0][5],
                  f"8 bits: error {eight[1]:.4f} in two shots, {eight[2]:.4f} in a ring, {eight[3]:.4f} of one rounding; "
                  f"{rows[0][5] / eight[5]:.2f} times as fast as 16 bits", ["bits", "two-shot error", "ring error",
                  "one rounding", "bytes", "two-shot, us"], rows,
                  {"two-shot": [(row[0], row[1]) for row in rows], "ring": [(row[0], row[2]) for row in rows]}, "bits",
                  "error over the sum's size")
