# SPDX-License-Identifier: Apache-2.0
"""Bucket and other algorithms on tori of 64 ranks whose sides differ."""
from result import Result, torus_us

PAPER = "Jain and Sabharwal, ICS 2010; Sack and Gropp, TOPC 2015"
CLAIM = "bucket uses all links of a torus: all-reduce 2 D times as fast as one ring; unequal sides lose"
INEQUALITY = "64 ranks, 16 MiB: bucket on 8 x 8 is at least 3.5 times as fast as one ring, and at least 1.1 (1.3) times as " \
             "fast as on 16 x 4 (32 x 2)"
EVIDENCE = "simulated: proved programs of the library on tori of --fabric; links and latencies of Swing's paper alone"
MINUTES = 1
SHAPES = ((8, 8), (16, 4), (32, 2), (4, 4, 4))
WAYS = ("bucket:", "swing:", "pairs:", "ring")
N_BYTES = 16 << 20


def run(tools):
    rows = [["x".join(map(str, dims)), *(torus_us(tools, way, dims, N_BYTES) for way in WAYS)] for dims in SHAPES]
    square, unequal = rows[0], [row[1] / rows[0][1] for row in rows[1:3]]
    gain = square[4] / square[1]
    curves = {way.rstrip(":"): [(number + 1, row[1 + at]) for number, row in enumerate(rows)]
              for at, way in enumerate(WAYS)}
    return Result(gain >= 3.5 and unequal[0] >= 1.1 and unequal[1] >= 1.3,
                  f"bucket on 8 x 8 is {gain:.1f} times as fast as one ring; on 16 x 4 it takes {unequal[0]:.2f}, on 32 x 2 "
                  f"{unequal[1]:.2f} times as long", ["torus", *(f"{way.rstrip(':')}, us" for way in WAYS)], rows, curves,
                  "torus: 8x8, 16x4, 32x2, 4x4x4", "time, us")
