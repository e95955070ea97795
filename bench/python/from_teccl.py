# SPDX-License-Identifier: Apache-2.0
"""Translates a schedule of TE-CCL (its JSON, an all-gather) into the text of gyre's programs. Each line of "7-Flows"
is one transfer of one chunk in one epoch; a rank carries its transfers out in the order of the epochs. Chunk c of
each rank's block becomes variant c of the programs, as instances of MSCCL do."""
import json
import re

from msccl_file import MAX_FILE_BYTES, MAX_GPUS, MAX_VARIANTS
from program_text import Programs, Refused, Step

FLOW = re.compile(r"Chunk (\d+) from (\d+) traveled over (\d+)->(\d+)(?: with volume (\S+))? in epoch (\d+)"
                  r"(?: via switches? [\d, ]+)?$")
DEPTH = 8


def read_flows(path):
    """(line, epoch, chunk, source, sender, receiver) of all transfers, by epoch. Ranks are numbered without gaps, since
    TE-CCL's numbers leave out those of switches."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read(MAX_FILE_BYTES)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"is not JSON: {error}") from None
    if not isinstance(value, dict) or not isinstance(value.get("7-Flows"), list):
        raise Refused('has no list "7-Flows", so it is no schedule of TE-CCL')
    line, flows, at = 1, [], 0
    for flow in value["7-Flows"]:
        found = text.find(json.dumps(flow), at) if isinstance(flow, str) else -1
        line += text.count("\n", at, max(found, at))
        at = found + 1 if found >= 0 else at
        match = FLOW.match(flow) if isinstance(flow, str) else None
        if match is None:
            raise Refused(f'line {line}: is no transfer: "{flow}"; expected "Chunk C from S traveled over U->V in epoch E"')
        if match[5] is not None and float(match[5]) != 1:
            raise Refused(f"line {line}: moves {match[5]} of a chunk; gyre's chunks are not cut (all-to-all of TE-CCL)")
        chunk, source, sender, receiver, epoch = (int(match[i]) for i in (1, 2, 3, 4, 6))
        flows.append((line, epoch, chunk, source, sender, receiver))
    ranks = {rank: i for i, rank in enumerate(sorted({flow[i] for flow in flows for i in (3, 4, 5)}))}
    flows.sort(key=lambda flow: flow[1])
    return [(*flow[:3], *(ranks[rank] for rank in flow[3:])) for flow in flows], len(ranks)


def translate(path, file):
    flows, n_ranks = read_flows(path)
    n_chunks = max((flow[2] for flow in flows), default=-1) + 1
    if not 2 <= n_ranks <= MAX_GPUS or n_chunks > MAX_VARIANTS:
        raise Refused(f"has {n_ranks} ranks and {n_chunks} chunks a rank; gyre takes 2 to {MAX_GPUS} ranks and up to "
                      f"{MAX_VARIANTS} chunks")
    for chunk in range(n_chunks):
        programs = Programs("teccl", "all_gather", depth=DEPTH)
        programs.ranks = [[[Step(str(rank), ["in 0"], [f"out {rank}"])]] for rank in range(n_ranks)]
        arrived = {(rank, rank): -1 for rank in range(n_ranks)}  # (rank, block) -> epoch
        pending = []  # steps that receive: those of an epoch follow its sends
        mine = [flow for flow in flows if flow[2] == chunk]
        for i, (line, epoch, _, source, sender, receiver) in enumerate(mine):
            if arrived.get((sender, source), epoch) >= epoch:
                raise Refused(f"line {line}: rank {sender} sends chunk {chunk} of rank {source} in epoch {epoch}, but has "
                              "not received it before")
            if (receiver, source) in arrived:
                raise Refused(f"line {line}: rank {receiver} gets chunk {chunk} of rank {source} a second time")
            arrived[(receiver, source)] = epoch
            programs.ranks[sender][0].append(Step(str(source), [f"out {source}"], [f"to {receiver}"]))
            pending.append((receiver, Step(str(source), [f"from {sender}"], [f"out {source}"])))
            if i + 1 == len(mine) or mine[i + 1][1] != epoch:
                for rank, step in pending:
                    programs.ranks[rank][0].append(step)
                pending = []
        missing = next(((rank, block) for rank in range(n_ranks) for block in range(n_ranks)
                        if (rank, block) not in arrived), None)
        if missing is not None:
            raise Refused(f"rank {missing[0]} never gets chunk {chunk} of rank {missing[1]}: the flows do not add up to "
                          "an all-gather")
        file.write(programs.text())
