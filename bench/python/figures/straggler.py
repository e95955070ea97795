# SPDX-License-Identifier: Apache-2.0
"""One server keeps a fraction f of its bandwidth: the ring, and a ring of the others with the slow one as a leaf."""
from result import Result, predicted

PAPER = "OptCC, arXiv 2606.01680; R2CCL, arXiv 2512.25059"
CLAIM = "with half of one server's bandwidth an all-reduce needs only O(1 / n) more time, where a ring needs twice as much"
INEQUALITY = "f = 1/2, simulated: ring at least 1.8 times its healthy time; leaf at most 1.25 (8 ranks), 1.1 (32 ranks)"
EVIDENCE = "simulated by gyre schedule --predict --fabric; the leaf is ours, not the paper's four stages"
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


def predicted_us(tools, n, f, algorithm):
    fabric = f"hosts {n} gpus 1 nics 1 rate {RATE}\nlink host {n - 1} nic 0 rate {RATE * f:g}\n"
    return predicted(tools, "--algo", algorithm, "--coll", "all_reduce", "--bytes", str(N_BYTES), "--channels", "8", "--proto", "simple", fabric=fabric)[0][1]


def run(tools):
    rows, curves = [], {}
    for n in (8, 32):
        healthy = predicted_us(tools, n, 1, "ring")
        for f in (1, 0.75, 0.5, 0.25):
            rows.append([n, f, predicted_us(tools, n, f, "ring") / healthy, predicted_us(tools, n, f, "leaf") / healthy,
                         bound(n, f), split(n, f)])
    for n in (8, 32):
        for at, name in ((2, "ring"), (3, "leaf"), (4, "bound of leaf"), (5, "bound of split")):
            curves[f"{name}, {n} ranks"] = [(row[1], row[at]) for row in rows if row[0] == n]
    half = {row[0]: row for row in rows if row[1] == 0.5}
    return Result(all(half[n][2] >= 1.8 for n in (8, 32)) and half[8][3] <= 1.25 and half[32][3] <= 1.1,
                  f"with half the bandwidth, ring {half[8][2]:.2f} and leaf {half[8][3]:.2f} for 8 ranks, {half[32][2]:.2f} and "
                  f"{half[32][3]:.2f} for 32; R2CCL's split at best {half[8][5]:.2f}", ["ranks", "f", "ring", "leaf", "bound of leaf", "bound of split"], rows, curves,
                  "bandwidth that is left", "time over the healthy ring's")
