# SPDX-License-Identifier: Apache-2.0
"""Swing's programs in gyre's simulator, on a torus of 8 x 8 with four ports."""
from result import Result, torus_us

PAPER = "De Sensi et al., Swing, NSDI'24, arXiv 2401.09356"
CLAIM = "all-reduce up to 3 times as fast as the best other algorithm for 32 B to 128 MiB on tori"
INEQUALITY = "8 x 8: the gain is at least 1.2 for some size up to 128 MiB, and below 1.05 at 512 MiB"
EVIDENCE = "simulated: proved programs of the library on a torus of --fabric; links and latencies of the paper alone"
MINUTES = 1
DIMS = (8, 8)
WAYS = ("swing:", "pairs:", "bucket:", "rings:", "doubling", "halving")  # with a colon: a copy for each port
SIZES = [2 << 10, 32 << 10, 512 << 10, 8 << 20, 128 << 20, 512 << 20]


def run(tools):
    rows = []
    for n_bytes in SIZES:
        times = [torus_us(tools, way, DIMS, n_bytes) for way in WAYS]
        rows.append([n_bytes, min(times[1:]) / times[0], *times])
    best = max(rows[:-1], key=lambda row: row[1])
    curves = {way.rstrip(":"): [(row[0], row[2 + at]) for row in rows] for at, way in enumerate(WAYS)}
    return Result(best[1] >= 1.2 and rows[-1][1] < 1.05,
                  f"gain {best[1]:.2f} at {best[0] >> 10} KiB over the best of the others, {rows[-1][1]:.2f} at 512 MiB",
                  ["bytes", "gain", *(f"{way.rstrip(':')}, us" for way in WAYS)], rows, curves, "bytes of the vector",
                  "time, us")
