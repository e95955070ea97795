"""An independent reader of what `draw` writes: it runs the lines of the text form with sets of ranks
for values, and says what a collective must leave in every output."""

import re

LINE = re.compile(r"chunk (\d+): (.+) ->(.*)")


def parse_operands(text, separator):
    operands = []
    for word in text.split(separator):
        kind, place = word.split()
        index, _, lane = place.partition("/")
        operands.append((kind, int(index), int(lane or 0)))
    return operands


class Step:
    def __init__(self, rank, text):
        self.rank = rank
        match = LINE.fullmatch(text)
        words = match.group(3).replace("with_next", "")
        self.chunk = int(match.group(1))
        self.is_final = "final" in words
        self.ins = parse_operands(match.group(2), "+")
        outs = words.replace("final", "").strip()
        self.outs = parse_operands(outs, ",") if outs else []


def replay(drawing):
    """Runs the steps round by round. Returns the outputs, {(rank, chunk): value}, and the value of
    each step by (rank, worker, step). A value is a sorted tuple of (rank, chunk of its input)."""
    rounds = {}
    for rank, program in enumerate(drawing["programs"]):
        for worker, lists in enumerate(program["workers"]):
            for index, (text, number) in enumerate(zip(lists["text"], lists["rounds"])):
                rounds.setdefault(number, []).append(((rank, worker, index), Step(rank, text)))
    fifos, outputs, scratch, results = {}, {}, {}, {}
    for number in range(drawing["rounds"]):
        for place, step in rounds[number]:
            value = []
            for kind, index, lane in step.ins:
                if kind in ("from", "placed"):
                    value += fifos[index, step.rank, lane].pop(0)
                elif kind == "in":
                    value.append((step.rank, index))
                else:
                    value += (outputs if kind == "out" else scratch)[step.rank, index]
            value = tuple(sorted(value))
            results[place] = value
            for kind, index, lane in step.outs:
                if kind in ("to", "into"):
                    fifos.setdefault((step.rank, index, lane), []).append(value)
                if kind == "into":
                    outputs[index, step.chunk] = value
                elif kind in ("out", "scratch"):
                    (outputs if kind == "out" else scratch)[step.rank, index] = value
    return outputs, results


def embedded_values(drawing):
    """The drawing's own values by number, in the form of replay()."""
    values = [()]
    for rank, chunk in drawing["inputs"]:
        values.append(((rank, chunk),))
    for _, *operands in drawing["results"]:
        values.append(tuple(sorted(sum((values[i] for i in operands), ()))))
    return values


def wanted(collective, ranks, root, n_chunks):
    """What the collective demands, by its definition: {(rank, chunk of output): value}."""
    everyone = range(ranks)
    result = {}
    for rank in everyone:
        if collective == "all_reduce" or (collective == "reduce" and rank == root):
            for chunk in range(n_chunks):
                result[rank, chunk] = tuple((source, chunk) for source in everyone)
        elif collective == "broadcast" or (collective == "send_recv" and rank != root):
            for chunk in range(n_chunks):
                result[rank, chunk] = ((root, chunk),)
        elif collective == "all_gather" or (collective == "gather" and rank == root):
            for source in everyone:
                result[rank, source] = ((source, 0),)
        elif collective == "reduce_scatter":
            result[rank, 0] = tuple((source, rank) for source in everyone)
        elif collective == "scatter":
            result[rank, 0] = ((root, rank),)
        elif collective == "all_to_all":
            for source in everyone:
                result[rank, source] = ((source, rank),)
    return result
