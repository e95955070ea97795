# SPDX-License-Identifier: Apache-2.0
"""How `gyre compare` finds a library's best settings: NCCL over its algorithms, protocols and channels, gyre over
its own. Both get equally many minutes. What the search times serves the search alone: the winner of each size is
fixed by it, and then timed like every other candidate."""
import time

import compare_stats as stats
from compare import Process, Setup, say
from report_runs import RunError

ALGORITHMS = {"nccl": ("Ring", "Tree", "NVLS", "NVLSTree", "PAT", "CollnetDirect"),
              "gyre": ("ring", "tree", "direct", "twoshot", "spread", "doubling", "halving", "bruck", "pat",
                       "two_level_ring", "two_level_tree")}
PROTOCOLS = {"nccl": ("Simple", "LL", "LL128"), "gyre": ("simple", "ll", "ll128", "lamport")}
CHANNELS = (2, 8, 16, 32)
BEST_KEPT = 2  # of each size, for the second half of the time


def setup(side, algorithm, protocol, channels=None):
    if side == "nccl":
        pinned = ("--nccl-algo", algorithm, "--nccl-proto", protocol)
        return Setup("nccl", pinned=pinned + (("--nccl-channels", str(channels)) if channels else ()))
    limits = (("GYRE_MIN_NCHANNELS", str(channels)), ("GYRE_MAX_NCHANNELS", str(channels))) if channels else ()
    return Setup(f"{algorithm}@{protocol}", variables=limits)


def search(tools, options, side):
    """The best setup for each size, and a list of all that was tried, with its times or why it has none."""
    trials, times = [], {}
    start, budget = time.monotonic(), options.search_minutes * 60

    def attempt(wanted, sizes, until):
        if time.monotonic() - start >= until:
            trials.append({"setup": wanted.__dict__, "sizes": sizes, "why": "the time of the search was over"})
            return
        trial = {"setup": wanted.__dict__, "sizes": sizes}
        try:
            for row in Process({side: wanted}, sizes).run(tools, options, 1)["report"]["contenders"]:
                us = stats.median(row["samples_us"])
                times.setdefault(row["bytes"], {})[wanted] = us
                trial.setdefault("us", {})[row["bytes"]] = us
        except RunError as error:
            trial["why"] = str(error)
        trials.append(trial)

    say(f"search of {side}, {options.search_minutes:g} minutes at most")
    attempt(Setup(side), options.bytes, budget)  # as shipped
    for algorithm in ALGORITHMS[side]:
        for protocol in PROTOCOLS[side]:
            attempt(setup(side, algorithm, protocol), options.bytes, budget / 2)
    wanted = {}  # setup -> its sizes
    for size, known in sorted(times.items()):
        named = [candidate for candidate in known if candidate.word != side or candidate.pinned]
        for best in sorted(named, key=known.get)[:BEST_KEPT]:
            words = best.pinned[1::2] if side == "nccl" else best.word.split("@")
            for channels in CHANNELS:
                wanted.setdefault(setup(side, *words, channels), []).append(size)
    for candidate, sizes in wanted.items():
        attempt(candidate, sizes, budget)
    # A size that nothing could time keeps the library's own choice.
    return {size: min(times[size], key=times[size].get) if size in times else Setup(side)
            for size in options.bytes}, trials
