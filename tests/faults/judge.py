"""Was it right? What the ranks reported against the kind's row of the table."""

import re
import signal

import network

INTERNAL = 10       # of gyre_status
END_S = 5.0         # to destroy a communicator that has failed
# Who an error says has failed, died, or is missing.
BLAMED = re.compile(r"ranks? (\d+)(?: \([^)]*\))? (?:died|is gone|ended before|destroyed|gave up|"
                    r"has left|does not answer)")
# A rank that never reached the rendezvous can only be missed when set-up's time is over.
MISSED = re.compile(r"have not joined: ([\d, ]+)|never reached|cannot reach the rendezvous|"
                    r"an all-gather still waits for ranks: ([\d, ]+)|ranks ([\d, ]+) did not come|"
                    r"rendezvous at \S+ does not answer")


def in_parent(text):
    """The text with the ranks of split and shrunk communicators by their numbers in the parent."""
    return re.sub(r"rank \d+ of the \w+ communicator \(rank (\d+) of its parent[^)]*\)", r"rank \1",
                  text)


def mentioned(text):
    """All ranks that a text mentions."""
    found = set()
    text = in_parent(text)
    plain = re.sub(r" ?\([^)]*\)", "", text.replace("rank(s)", "ranks"))
    for listed in re.findall(r"\branks?:?((?:[ ,]*(?:and )?\d+\b)+)", plain):
        found.update(int(number) for number in re.findall(r"\d+", listed))
    for groups in MISSED.findall(text):
        found.update(int(number) for listed in groups for number in re.findall(r"\d+", listed))
    return found


def right_ranks(fault, rank):
    """The ranks of which an error on `rank` must mention one."""
    if fault.kind.name == "control flow lost":
        return set(fault.flow_ends)  # a rank's own connection to the rendezvous may be the one
    if fault.kind.names == "flow":
        return set(fault.flow_ends) - {rank}
    if fault.kind.names == "other host":
        here = fault.job.host(rank)
        return {other for other in range(fault.n_ranks) if fault.job.host(other) != here}
    return set(fault.victims)


def names_right(fault, rank, text):
    right = right_ranks(fault, rank)
    if fault.transport == "threads":
        return True  # there is no other process to name
    # A latecomer cannot learn the reason from a rendezvous that has ended with rank 0's process.
    of_rank_0 = fault.job.find(0, "error")
    if "cannot reach the rendezvous" in text and of_rank_0 and rank != 0 and \
            of_rank_0.time_s < fault.job.find(rank, "error").time_s:
        return True
    # Rank 0's process serves the rendezvous, and who cannot reach it may not know rank 0 by name.
    if 0 in right and "rendezvous" in text:
        return True
    here = fault.job.host(rank)
    if fault.kind.name in ("interface down", "address lost") and \
            here == fault.job.host(fault.victim) and network.address(here) in text:
        return True
    wrong = {int(number) for number in BLAMED.findall(in_parent(text))} - right
    if fault.kind.names != "victim":
        wrong -= {rank}  # its own network may be what this rank has lost
    return bool(mentioned(text) & right) and not wrong


def judge_error(fault, rank, line, verdict):
    """One living rank's error: when, and whom it names."""
    took_s = line.time_s - fault.began_s
    status, _, text = line.text.partition(" ")
    verdict.times_s.append(max(0.0, took_s))
    bound_s = fault.kind.bound_s
    if MISSED.search(text) and not fault.can_tell:
        # What is made next is begun when the communicator before it has been destroyed.
        began_s = bound_s if fault.phase == "destroy" else 0
        bound_s = max(bound_s, began_s + fault.job.setup_s + 2)
    if took_s > bound_s * fault.slack:
        verdict.complain("late", f"rank {rank} came to its error after {took_s:.1f} s, bound "
                                 f"{bound_s:g} s: {text}")
    if int(status) == INTERNAL:
        verdict.complain("crash", f"rank {rank}: internal error: {text}")
    verdict.n_named += 1
    if names_right(fault, rank, text):
        verdict.n_named_right += 1
    else:
        verdict.complain("name", f"rank {rank} does not name rank "
                                 f"{sorted(right_ranks(fault, rank))}: {text}")
    ended = fault.job.find(rank, "destroyed")
    if ended:
        end_s = float(ended.text)
        verdict.ends_s.append(end_s)
        if end_s > END_S * fault.slack:
            verdict.complain("end", f"rank {rank} took {end_s:.1f} s to destroy what had failed, "
                                    f"bound {END_S:g} s")


class Verdict:
    def __init__(self):
        self.times_s = []  # from the fault to a rank's error
        self.ends_s = []   # from its error until all is destroyed
        self.n_named = self.n_named_right = 0
        self.problems = []  # (sort, words)
        self.note = ""

    def complain(self, sort, words):
        self.problems.append((sort, words))

    @property
    def is_hang(self):
        return any(sort == "hang" for sort, _ in self.problems)


def last_line(fault, rank):
    lines = fault.job.lines[rank]
    return f"{lines[-1].word} {lines[-1].text}"[:200] if lines else "nothing"


def judge_ends(fault, verdict):
    """Every process that should end has ended, and none by a crash or a wrong value."""
    for rank in fault.living:
        process = fault.job.process_of(rank)
        code = process.poll()
        wrong = fault.job.find(rank, "wrong")
        if code is None:
            verdict.complain("hang", f"rank {rank} had not ended {fault.watched_s:.0f} s after the "
                                     f"fault; its last line: {last_line(fault, rank)}")
        elif code < 0:
            verdict.complain("crash", f"rank {rank} ended by {signal.Signals(-code).name}")
        elif code not in (0, 3):
            verdict.complain("crash", f"rank {rank} ended with status {code}: "
                                      f"{fault.job.stderr(rank)[-300:]}")
        if wrong:
            verdict.complain("value", f"rank {rank}: {wrong.text}")


def judge_recovery(fault, verdict):
    for rank in fault.living:
        line = fault.job.find(rank, "error")
        if line:
            verdict.complain("error", f"rank {rank} came to an error after "
                                      f"{line.time_s - fault.began_s:.1f} s: {line.text}")
        slow = fault.job.find(rank, "slow") if fault.kind.name == "strangers" else None
        if slow and float(slow.text.split()[-1]) > 10 * fault.slack:
            verdict.complain("late", f"rank {rank}: strangers held up {slow.text} s")


def judge_clean(fault, verdict):
    """The victim's own error tells when the fault was noticed; the others name the victim."""
    if fault.transport == "threads":  # one process: the call belongs to the rank that fails first
        failed = [(line.time_s, rank) for rank in fault.living
                  if (line := fault.job.find(rank, "error"))]
        fault.victim = min(failed)[1] if failed else fault.victim
    own = fault.job.find(fault.victim, "error")
    others = [rank for rank in fault.living if rank != fault.victim]
    injected = [line for line in fault.job.stderr(fault.victim).split("\n") if "injected" in line]
    verdict.note = f"{' '.join(injected)} {own.text if own else ''}"
    errors = {rank: fault.job.find(rank, "error") for rank in others}
    if own is None:
        for rank, line in errors.items():
            if line and not mentioned(line.text) & {fault.victim}:
                verdict.complain("name", f"rank {rank} failed and the victim did not: {line.text}")
        return
    if int(own.text.split(" ")[0]) == INTERNAL:
        verdict.complain("crash", f"rank {fault.victim}: internal error: {own.text}")
    fault.began_s = own.time_s
    for rank, line in errors.items():
        if line:
            judge_error(fault, rank, line, verdict)
        elif fault.transport == "threads" and "get_unique_id" in own.text:
            continue  # the first thread that gives up waiting for the id ends the process
        elif not fault.job.find(rank, "done", "noid") and "init_all" not in own.text:
            verdict.complain("hang", f"rank {rank} came to no error")


def judge(fault):
    verdict = Verdict()
    judge_ends(fault, verdict)
    if fault.kind.outcome == "recovers":
        judge_recovery(fault, verdict)
    elif fault.kind.outcome == "clean":
        judge_clean(fault, verdict)
    else:
        for rank in fault.living:
            line = fault.job.find(rank, "error")
            if line:
                judge_error(fault, rank, line, verdict)
            elif fault.job.find(rank, "done") or (
                    not fault.job.find(rank, "noid") and not verdict.is_hang):
                verdict.complain("missed", f"rank {rank} came to no error: "
                                           f"{last_line(fault, rank)}")
            if fault.kind.name == "kill and shrink" and line and not fault.job.find(rank, "shrunk"):
                verdict.complain("shrink", f"rank {rank} did not go on: {last_line(fault, rank)}")
    return verdict
