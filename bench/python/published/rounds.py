# SPDX-License-Identifier: Apache-2.0
"""The time of MPI's collectives, whose ranks go from round to round together: a sum over rounds, as in Thakur et al.
(IJHPCA 2005), with the machine file's constants.

    round = hop + bytes / rate * load + reduced bytes / reduction rate     (+ 2 hops where the sender asks first)

The load is the number of messages that share the busiest link: on a torus, the distance of the partners."""
import math
from dataclasses import dataclass

EAGER_BYTES = 8192  # from here on a message waits for its receiver's answer (UCX and Open MPI: about 8 KiB)
SEND_NS = 300  # between two messages of one sender that waits for nothing


# Fujitsu's algorithms for its torus, of which only the names are public.
SECRET = ("blacc", "6d", "3dtorus", "rdbc")


@dataclass
class Round:
    """@step: of doubling or halving; partners are 2^step ranks away; None = neighbours. @n: alike rounds.
    @is_burst: the messages follow each other without waiting, so only the first hop counts."""
    n: int
    n_bytes: float
    reduced: float = 0
    step: int = None
    is_burst: bool = False


def halving(p, n_bytes, reduces, is_near_first):
    """Recursive halving; backwards it is doubling. Ranks beyond a power of two fold in: one more round.
    @is_near_first: the largest message goes to the nearest partner, as in Bine trees (arXiv 2508.17311)."""
    steps = int(math.log2(p))
    rounds = [Round(1, n_bytes / 2 ** (k + 1), n_bytes / 2 ** (k + 1) if reduces else 0,
                    k if is_near_first else steps - 1 - k) for k in range(steps)]
    return rounds + ([Round(1, n_bytes, n_bytes if reduces else 0)] if p > 1 << steps else [])


def tree(p, n_bytes, reduces):
    return [Round(1, n_bytes, n_bytes if reduces else 0, k) for k in range(math.ceil(math.log2(p)))]


def ring(p, n_bytes, reduces):
    return [Round(p - 1, n_bytes / p, n_bytes / p if reduces else 0)]


def burst(p, n_bytes, reduces):
    return [Round(p - 1, n_bytes, n_bytes if reduces else 0, is_burst=True)]


def rounds_of(coll, algorithm, p, n_bytes):
    """The rounds of an algorithm by the name that a table gives it, or None where the name is not known."""
    name = algorithm.lower()

    def has(*words):
        return any(word in name for word in words)

    is_ring, is_linear = has("ring"), has("linear", "pairwise", "non_blocking", "blacc", "sync")
    if has(*SECRET):
        return None
    near = has("bine")
    is_reduce = coll in ("all_reduce", "reduce_scatter", "reduce")
    if coll == "all_reduce":
        if is_ring:
            return ring(p, n_bytes, True) + ring(p, n_bytes, False)
        if has("recursive_doubling", "-l-", "_lat", "rdbc"):
            return tree(p, n_bytes, True)
        if has("rabenseifner", "-b", "_bdw", "halving"):
            return halving(p, n_bytes, True, near) + halving(p, n_bytes, False, near)
    elif coll in ("all_gather", "reduce_scatter"):
        if is_ring:
            return ring(p, n_bytes, is_reduce)
        if is_linear:
            return burst(p, n_bytes / p, is_reduce)
        if has("doubling", "halving", "bruck", "sparbit", "bine", "rabenseifner"):
            return halving(p, n_bytes, is_reduce, near)
    elif coll in ("broadcast", "reduce"):
        if has("scatter_gather", "rabenseifner", "_bdw", "scatter_allgather"):
            return halving(p, n_bytes, is_reduce, near) + halving(p, n_bytes, False, near)
        if has("chain", "pipeline"):
            return [Round(p - 1, n_bytes, n_bytes if is_reduce else 0)]
        if is_linear and not has("binomial"):
            return burst(p, n_bytes, is_reduce)
        if has("binomial", "_lat", "knomial"):
            return tree(p, n_bytes, is_reduce)
        if has("binary", "bintree"):  # each inner rank serves two
            return [Round(2, n_bytes, n_bytes if is_reduce else 0, k) for k in range(math.ceil(math.log2(p + 1)) - 1)]
    elif coll in ("gather", "scatter"):
        return burst(p, n_bytes / p, False) if is_linear else halving(p, n_bytes, False, near)
    elif coll == "alltoall":
        if has("bruck", "log"):
            return [Round(1, n_bytes / 2, 0, k) for k in range(math.ceil(math.log2(p)))]
        if is_linear:
            return burst(p, n_bytes / p, False)
    return None


CHOICES = {"all_reduce": ("recursive_doubling", "rabenseifner", "ring"), "all_gather": ("doubling", "ring"),
           "reduce_scatter": ("halving", "ring"), "broadcast": ("binomial", "scatter_allgather"),
           "reduce": ("binomial", "rabenseifner"), "gather": ("binomial", "linear"), "scatter": ("binomial", "linear"),
           "alltoall": ("bruck", "linear")}


def load_of(step, dimensions):
    """Messages on the busiest link of a torus if partners are 2^step ranks apart; ranks go along the last dimension
    first."""
    if step is None:
        return 1
    distance = 2 ** step
    for size in reversed(dimensions):
        if distance < size:
            return max(1, distance / 2 if 2 * distance >= size else distance)
        distance //= size
    return 1


def predict_us(coll, algorithm, p, n_bytes, constants, dimensions=()):
    """(time in us, algorithm, the part of the time that is busy sending or reducing), or None if the name is unknown.
    "default" and names that say nothing: the fastest of the usual ones."""
    rounds = rounds_of(coll, algorithm, p, n_bytes)
    if rounds is None and any(word in algorithm.lower() for word in SECRET):
        return None
    if rounds is None:
        found = [(predict_us(coll, name, p, n_bytes, constants, dimensions), name) for name in CHOICES.get(coll, ())]
        return min((prediction[0], name, prediction[2]) for prediction, name in found) if found else None
    hop = constants["simple_network_hop_ns"] + constants.get("wire_ns", 0)
    word = algorithm.rsplit("-", 1)[-1]  # uTofu's algorithms of Bine trees: the number of interfaces
    n_ports = int(word) if "UTOFU" in algorithm.upper() and word.isdigit() else 1
    rate, gamma = constants["nic_bytes_per_ns"] * n_ports, constants["worker_read_bytes_per_ns"]
    total, busy = constants.get("launch_ns", 0), 0.0
    for part in rounds:
        moved = part.n_bytes / rate * load_of(part.step, dimensions) + part.reduced / gamma
        waits = hop * (3 if part.n_bytes >= EAGER_BYTES else 1)
        total += waits + part.n * (max(SEND_NS, moved)) if part.is_burst else part.n * (waits + moved)
        busy += part.n * moved
    return total / 1e3, algorithm, busy / total
