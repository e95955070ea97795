# SPDX-License-Identifier: Apache-2.0
"""All-reduce of whole vectors in groups of 2, 4 and 8 ranks: what gyre's simulator predicts."""
from result import Result, predicted

PAPER = "Wilkins et al., CLUSTER 2023"
CLAIM = "recursive multiplying with a larger radix than 2 is faster for short vectors"
INEQUALITY = "64 hosts: radix 4 or 8 is at least 1.1 times as fast as 2 at 256 B, and at 1 MiB radix 2 is best"
EVIDENCE = "simulated by gyre schedule --predict, constants of h200 and its network; the programs are proved"
MINUTES = 0.5
N_HOSTS = 64
ALGORITHMS = {"radix 2": "doubling", "radix 4": "multiplying4", "radix 8": "multiplying8"}


def run(tools):
    curves = {name: predicted(tools, "--algo", algorithm, "--coll", "all_reduce", "--hosts", f"{N_HOSTS}x1", "--bytes",
                              "256:1M") for name, algorithm in ALGORITHMS.items()}
    columns = list(zip(*curves.values()))
    rows = [[points[0][0], *(time for _, time in points)] for points in columns]
    short, long = rows[0][1:], rows[-1][1:]
    gain = short[0] / min(short[1:])
    best = list(curves)[long.index(min(long))]
    return Result(gain >= 1.1 and best == "radix 2",
                  f"at 256 B radix {2 << (1 + short[1:].index(min(short[1:])))} is {gain:.2f} times as fast as 2; at 1 MiB "
                  f"{best} is best", ["bytes", *curves], rows, curves, "bytes", "time, us")
