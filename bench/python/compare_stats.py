# SPDX-License-Identifier: Apache-2.0
"""Statistics of `gyre compare`: intervals and tests that assume nothing about how times are distributed. All are
exact and short, so that no package is needed; tests/python/compare.py holds them against published tables."""
import math
from collections import Counter
from statistics import median

CONFIDENCE = 0.95
SIGNIFICANT = 0.05
LEAST_LAUNCHES = 6  # with 5, even the interval from the least to the greatest value has only 93.75 %


def quantile(values, part):
    """By nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def interval_rank(n):
    """The largest k for which the k-th least to the k-th greatest of n values contain the median of what they were
    drawn from with CONFIDENCE; 0 if none does."""
    tail, k = 0, 0
    while True:
        tail += math.comb(n, k)
        if 1 - 2 * tail / 2 ** n < CONFIDENCE:
            return k
        k += 1


def interval(values):
    """(low, high) of the median, or None for fewer than LEAST_LAUNCHES values."""
    k = interval_rank(len(values))
    ordered = sorted(values)
    return (ordered[k - 1], ordered[-k]) if k > 0 else None


def rank_sum_p(first, second):
    """The exact two-sided p of the Wilcoxon rank-sum test: the part of all ways to choose len(first) of the values
    whose rank sum is as far from its mean as that of `first`, or farther. Equal values share their mean rank."""
    pooled = sorted([*first, *second])
    counts = Counter(pooled)
    doubled = {value: 2 * pooled.index(value) + counts[value] + 1 for value in counts}  # twice the rank is whole
    ranks = [doubled[value] for value in pooled]
    n, mean = len(first), len(first) * (len(pooled) + 1)  # of twice the rank sum
    ways = [Counter() for _ in range(n + 1)]  # by number of chosen values: rank sum -> number of ways
    ways[0][0] = 1
    for rank in ranks:
        for chosen in range(n, 0, -1):
            for total, number in ways[chosen - 1].items():
                ways[chosen][total + rank] += number
    distance = abs(sum(doubled[value] for value in first) - mean)
    return sum(number for total, number in ways[n].items() if abs(total - mean) >= distance) / math.comb(len(ranks), n)


def holm(p_values):
    """The p values, corrected by Holm's method for as many tests as there are."""
    corrected, largest = [0.0] * len(p_values), 0.0
    for at, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - at) * p_values[i]))
        corrected[i] = largest
    return corrected


def compare(pairs):
    """A summary of one candidate at one size, still without the correction of p.
    @pairs: (median of the candidate, median of the first candidate), one pair for each launch."""
    ratios = [mine / theirs for mine, theirs in pairs]
    edges = interval(ratios)
    return {"ratio": median(ratios), "ratio_lo": edges[0] if edges else None, "ratio_hi": edges[1] if edges else None,
            "p": rank_sum_p([mine for mine, _ in pairs], [theirs for _, theirs in pairs]) if edges else None}


def repeat(rows, earlier):
    """How rows of a summary agree with those of an earlier one, of which both have an interval: how many there are, how
    many intervals overlap, and the largest distance of two that do not, with its row."""
    known = {(row["bytes"], row["candidate"]): row for row in earlier if row.get("ratio_lo") is not None}
    pairs = [(row, known[row["bytes"], row["candidate"]]) for row in rows
             if row.get("ratio_lo") is not None and (row["bytes"], row["candidate"]) in known]
    gaps = [(max(a["ratio_lo"] / b["ratio_hi"], b["ratio_lo"] / a["ratio_hi"]) - 1, a) for a, b in pairs]
    return len(gaps), sum(gap <= 0 for gap, _ in gaps), max(gaps, key=lambda each: each[0], default=(0, None))


def judge(row):
    """"faster" or "slower" only if the interval excludes 1 and the corrected p is small."""
    if row["ratio_lo"] is None:
        return "no verdict"
    if row["p_holm"] >= SIGNIFICANT or row["ratio_lo"] <= 1 <= row["ratio_hi"]:
        return "not shown"
    return "faster" if row["ratio_hi"] < 1 else "slower"
