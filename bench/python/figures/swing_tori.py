# SPDX-License-Identifier: Apache-2.0
"""Swing on tori: the cost model of the paper, with the congestion of links counted here."""
from result import Result

PAPER = "De Sensi et al., Swing, NSDI'24, arXiv 2401.09356"
CLAIM = "all-reduce up to 3 times as fast as the best other algorithm for 32 B to 128 MiB on tori of any shape"
INEQUALITY = "on each torus the gain is at least 1.2 for some size up to 128 MiB, and below 1.05 at 512 MiB"
EVIDENCE = "computed: a cost model with counted link loads, no simulation of packets"
MINUTES = 0.1
TORI = ((8, 8), (64, 64), (128, 8))
STEP_US, HOP_US, LINK_BYTES_PER_US = 0.8, 0.4, 50e3
WAYS = ("swing", "doubling", "bucket", "4 rings")
SIZES = [32 << 2 * i for i in range(13)]


def swing_hops(k):
    """|rho(k)|: 1, 1, 3, 5, 11, 21, ..."""
    return abs((1 - (-2) ** (k + 1)) // 3)


def swing_peer(rank, k, n):
    rho = (1 - (-2) ** (k + 1)) // 3
    return (rank + rho) % n if rank % 2 == 0 else (rank - rho) % n


def xor_peer(rank, k, _n):
    return rank ^ (1 << k)


def dimension_of_step(dims, first):
    """The (dimension, its own step) of each step of a butterfly that takes dimensions in turn."""
    left, order, at = [d.bit_length() - 1 for d in dims], [], first
    while any(left):
        if left[at % len(dims)]:
            d = at % len(dims)
            order.append((d, dims[d].bit_length() - 1 - left[d]))
            left[d] -= 1
        at += 1
    return order


def hops_of(rank, target, size, share):
    """(link of the ring, direction, bytes) on the shortest way; of two equal ways each gets half."""
    ahead = (target - rank) % size
    part = share / 2 if ahead == size - ahead else share
    if ahead <= size - ahead:
        yield from (((rank + hop) % size, 0, part) for hop in range(ahead))
    if ahead >= size - ahead:
        yield from (((rank - hop - 1) % size, 1, part) for hop in range(size - ahead))


def congestion(peer, dims, is_mirrored):
    """The bytes of the busiest link of each step, summed, over those of an ideal spread, for a reduce-scatter near
    first by a copy for each port: 2 D copies; each two start in another dimension, one of them mirrored."""
    n, ports = 1, 2 * len(dims)
    for d in dims:
        n *= d
    loads = {}  # (step, dimension, link, direction) -> bytes
    for first in range(len(dims)):
        for sign in (1, -1 if is_mirrored else 1):
            for step, (dim, k) in enumerate(dimension_of_step(dims, first)):
                size = dims[dim]
                for rank in range(size):
                    target = peer(rank * sign % size, k, size) * sign % size
                    for link, direction, part in hops_of(rank, target, size, 1 / ports / 2 ** (step + 1)):
                        key = (step, dim, link, direction)
                        loads[key] = loads.get(key, 0) + part
    worst = {}
    for (step, *_), load in loads.items():
        worst[step] = max(worst.get(step, 0), load)
    return sum(worst.values()) / ((n - 1) / n / ports)


def butterfly_us(dims, hops, worst, n_bytes):
    order = dimension_of_step(dims, 0)
    n = dims[0] * dims[1]
    latency = 2 * sum(hops(k) * HOP_US + STEP_US for _, k in order)
    return latency + worst * 2 * n_bytes * (n - 1) / n / (2 * len(dims)) / LINK_BYTES_PER_US


def ring_us(n_steps, stall, dims, n_bytes):
    n = dims[0] * dims[1]
    return n_steps * (STEP_US + HOP_US) + stall * 2 * n_bytes * (n - 1) / n / (2 * len(dims)) / LINK_BYTES_PER_US


def bucket_stall(dims):
    """Phases wait for the longer side: with unequal sides, links of the shorter one stand idle."""
    a, b = max(dims), min(dims)
    return ((a - 1) / a + (a - 1) / a / b) / ((a * b - 1) / (a * b))


def gain(dims, n_bytes, worst):
    """Swing's gain over the best of the others, and the times of all."""
    n = dims[0] * dims[1]
    times = {"swing": butterfly_us(dims, swing_hops, worst["swing"], n_bytes),
             "doubling": butterfly_us(dims, lambda k: 1 << k, worst["doubling"], n_bytes),
             "bucket": ring_us(2 * 2 * (max(dims) - 1), bucket_stall(dims), dims, n_bytes)}
    if dims[0] == dims[1]:
        times["4 rings"] = ring_us(2 * (n - 1), 1.0, dims, n_bytes)
    return min(us for name, us in times.items() if name != "swing") / times["swing"], times


def run(_tools):
    rows, curves, shown = [], {}, True
    for dims in TORI:
        worst = {"swing": congestion(swing_peer, dims, True), "doubling": congestion(xor_peer, dims, False)}
        name = f"{dims[0]}x{dims[1]}"
        gains = []
        for n_bytes in SIZES:
            ratio, times = gain(dims, n_bytes, worst)
            gains.append((n_bytes, ratio))
            rows.append([name, n_bytes, ratio, *(times.get(key, "") for key in WAYS)])
        curves[name] = gains
        best = max(ratio for n_bytes, ratio in gains if n_bytes <= 128 << 20)
        shown = shown and best >= 1.2 and gain(dims, 512 << 20, worst)[0] < 1.05
    best = max(ratio for points in curves.values() for _, ratio in points)
    return Result(shown, f"gain at most {best:.2f}, and none from about 128 MiB on",
                  ["torus", "bytes", "gain", *(f"{key}, us" for key in WAYS)], rows, curves,
                  "bytes of the vector", "gain over the best other")
