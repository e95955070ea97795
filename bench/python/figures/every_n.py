# SPDX-License-Identifier: Apache-2.0
"""All-reduce by numbers of ranks that are no power of two: folding, and what needs none."""
from result import Result, predicted

PAPER = "Thakur et al. 2005; Rabenseifner and Traeff 2004; Traeff, arXiv 2410.14234"
CLAIM = "doubling is best for short vectors, halving for longer ones, ring for the longest; n that are no power of two cost " \
        "halving an extra fold, and circulant nothing"
INEQUALITY = "64 hosts: at 1 KiB doubling is best, at 64 MiB ring is within 1.1 of the best; 17 ranks, 1 MiB: halving takes " \
             "at least 1.15 times as long as with 16, circulant at most 1.1"
EVIDENCE = "simulated by gyre schedule --predict, constants of h200 and its network; the programs are proved"
MINUTES = 1
WAYS = ("doubling", "halving", "circulant", "ring")
NUMBERS = (4, 6, 8, 9, 12, 15, 16, 17, 20, 24, 31, 32, 33, 40, 48, 56, 63, 64)


def times(tools, n, size):
    return {way: predicted(tools, "--algo", way, "--coll", "all_reduce", "--hosts", f"{n}x1", "--bytes", size)[0][1]
            for way in WAYS}


def run(tools):
    by_n = {n: times(tools, n, "1M") for n in NUMBERS}
    short, long = times(tools, 64, "1K"), times(tools, 64, "64M")
    step = {way: by_n[17][way] / by_n[16][way] for way in ("halving", "circulant")}
    best = {name: min(known, key=known.get) for name, known in (("short", short), ("long", long))}
    rows = [[n, "1M", *by_n[n].values()] for n in NUMBERS] + [[64, "1K", *short.values()], [64, "64M", *long.values()]]
    curves = {way: [(n, by_n[n][way]) for n in NUMBERS] for way in WAYS}
    return Result(best["short"] == "doubling" and long["ring"] <= 1.1 * min(long.values()) and step["halving"] >= 1.15 and
                  step["circulant"] <= 1.1,
                  f"best of 64 hosts: {best['short']} at 1 KiB, {best['long']} at 64 MiB (ring {long['ring'] / min(long.values()):.2f} "
                  f"times as long); 17 ranks over 16 at 1 MiB: halving {step['halving']:.2f}, circulant {step['circulant']:.2f}",
                  ["ranks", "bytes", *(f"{way}, us" for way in WAYS)], rows, curves, "ranks", "time at 1 MiB, us")
