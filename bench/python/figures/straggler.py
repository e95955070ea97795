# SPDX-License-Identifier: Apache-2.0
"""One server keeps a fraction f of its bandwidth: the ring, and a ring of the others with the slow one as a leaf."""
import os
import tempfile

from program_text import Programs, Step, verify
from result import Result, predicted

PAPER = "OptCC, arXiv 2606.01680; R2CCL, arXiv 2512.25059"
CLAIM = "with half of one server's bandwidth an all-reduce needs only O(1 / n) more time, where a ring needs twice as much"
INEQUALITY = "f = 1/2, simulated: ring at least 1.8 times its healthy time; leaf at most 1.25 (8 ranks), 1.1 (32 ranks)"
EVIDENCE = "simulated by gyre schedule --predict --fabric; the leaf is a program of ours, not the paper's four stages"
MINUTES = 1
N_BYTES, RATE = 1 << 30, 1  # so slow that the NICs alone count, as the formula has it


def bound(n, f):
    """The leaf's time over that of the healthy ring: others move 2B - B / (n - 1), the slow one B over f."""
    return max(2 - 1 / (n - 1), 1 / f) / (2 * (n - 1) / n)


def split(n, f):
    """Likewise for R2CCL's split: a part of the vector goes round a ring of all, the rest as the leaf's."""
    def longest(part):
        slow = part * 2 * (n - 1) / n + 1 - part
        return max(slow / f, part * 2 * (n - 1) / n + (1 - part) * (2 - 1 / (n - 1)))
    return min(longest(part / 1000) for part in range(1001)) / (2 * (n - 1) / n)


def leaf(n):
    """Ranks 0 to n - 2 are a ring on n - 1 chunks: rank r handles chunk r - h at hop h. The slow rank n - 1 sends chunk c
    when the ring is at hop c, to the rank that adds to it then, and gets its sum as long after it is final, so that its
    link is busy all the time and no one else waits for it."""
    m, slow = n - 1, n - 1
    programs = Programs("leaf", "all_reduce", n_chunks=m, depth=4)
    for rank in range(m):
        right, left = f"to {(rank + 1) % m}", f"from {(rank - 1) % m}"
        steps = []
        for hop in range(m):
            c = (rank - hop) % m
            inputs = ([left] if hop > 0 else []) + ([f"from {slow}"] if hop == c else []) + [f"in {c}"]
            is_last = hop == m - 1
            outputs = ([f"out {c}"] if is_last else []) + [right] + ([f"to {slow}"] if is_last and c == 0 else [])
            steps.append(Step(str(c), inputs, outputs, " final" if is_last else ""))
        for hop in range(1, m):
            c = (rank + 1 - hop) % m
            outputs = [f"out {c}"] + ([right] if hop < m - 1 else []) + ([f"to {slow}"] if hop == c else [])
            steps.append(Step(str(c), [left], outputs))
        programs.ranks.append([steps])
    programs.ranks.append([[Step(str(c), [f"in {c}"], [f"to {2 * c % m}"]) for c in range(m)],
                           [Step(str(c), [f"from {(2 * c - 1) % m}"], [f"out {c}"]) for c in range(m)]])
    return programs.text()


def predicted_us(tools, n, f, shape):
    fabric = f"hosts {n} gpus 1 nics 1 rate {RATE}\nlink host {n - 1} nic 0 rate {RATE * f:g}\n"
    return predicted(tools, *shape, "--bytes", str(N_BYTES), "--channels", "8", "--proto", "simple", fabric=fabric)[0][1]


def run(tools):
    rows, curves = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for n in (8, 32):
            own = os.path.join(folder, "leaf.gyre")
            with open(own, "w", encoding="utf-8") as file:
                file.write(leaf(n))
            why = verify(tools, leaf(n))
            if why is not None:
                raise OSError(0, f"the leaf's programs are not proved: {why}", "gyre schedule")
            ring = ["--algo", "ring", "--coll", "all_reduce"]
            healthy = predicted_us(tools, n, 1, ring)
            for f in (1, 0.75, 0.5, 0.25):
                rows.append([n, f, predicted_us(tools, n, f, ring) / healthy,
                             predicted_us(tools, n, f, ["--file", own]) / healthy, bound(n, f),
                             split(n, f)])
    for n in (8, 32):
        for at, name in ((2, "ring"), (3, "leaf"), (4, "bound of leaf"), (5, "bound of split")):
            curves[f"{name}, {n} ranks"] = [(row[1], row[at]) for row in rows if row[0] == n]
    half = {row[0]: row for row in rows if row[1] == 0.5}
    return Result(all(half[n][2] >= 1.8 for n in (8, 32)) and half[8][3] <= 1.25 and half[32][3] <= 1.1,
                  f"with half the bandwidth, ring {half[8][2]:.2f} and leaf {half[8][3]:.2f} for 8 ranks, {half[32][2]:.2f} and "
                  f"{half[32][3]:.2f} for 32; R2CCL's split at best {half[8][5]:.2f}", ["ranks", "f", "ring", "leaf", "bound of leaf", "bound of split"], rows, curves,
                  "bandwidth that is left", "time over the healthy ring's")
