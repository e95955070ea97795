# SPDX-License-Identifier: Apache-2.0
"""PAT with a limit on its buffers: rounds by the number of blocks in a message."""
from result import Result

PAPER = "Jeaugey, PAT, arXiv 2506.20252"
CLAIM = "logarithmic number of rounds with enough buffers, linear with one block a message, for any number of ranks"
INEQUALITY = "from 64 to 128 ranks, rounds grow by at most 4 with n / 2 blocks, and at least 1.9 times with one block"
EVIDENCE = "computed: rounds of NCCL's phases"
MINUTES = 0.1


def rounds(n, blocks):
    """D / 2 + D - 2 + 2 log2 A + 1 with D = 2^ceil(log2 n) / A: the phases of NCCL's src/include/collectives.h."""
    d = (1 << (n - 1).bit_length()) // blocks
    return d // 2 + d - 2 + 2 * (blocks.bit_length() - 1) + 1


def run(_tools):
    curves = {name: [(n, rounds(n, blocks(n))) for n in (16, 32, 64, 128, 256, 512, 1024)] for name, blocks in (
        ("1 block", lambda n: 1), ("8 blocks", lambda n: 8), ("n / 2 blocks", lambda n: n // 2))}
    curves["ring"] = [(n, n - 1) for n, _ in curves["1 block"]]
    rows = [[n, *(dict(points)[n] for points in curves.values())] for n, _ in curves["ring"]]
    many, one = dict(curves["n / 2 blocks"]), dict(curves["1 block"])
    return Result(many[128] - many[64] <= 4 and one[128] / one[64] >= 1.9,
                  f"64 ranks need {one[64]}, {rounds(64, 8)} and {many[64]} rounds with 1, 8 and 32 blocks",
                  ["ranks", *curves], rows, curves, "ranks", "rounds")
