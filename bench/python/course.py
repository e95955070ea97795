# SPDX-License-Identifier: Apache-2.0
"""`gyre course` (bench/gyre.c starts it and prints its help): checks exercises of docs/course.

    python3 bench/python/course.py TOOLS_FOLDER LESSON FILE

An exercise is a function that yields what is wrong with a file, the most helpful first. Programs are also proved."""
import os
import re
import subprocess
import sys

from program_text import Refused, parse, prove

N_COST_RANKS, COST_BYTES, ALPHA_US, BETA, GAMMA = 8, 1 << 20, 2.0, 1 / 50e3, 1 / 200e3  # us, us a byte


def messages(programs):
    """(sender, receiver, worker, step) of each message."""
    for rank, workers in enumerate(programs.ranks):
        for number, steps in enumerate(workers):
            for step in steps:
                for output in step.outputs:
                    to = re.match(r"to (\d+)", output)
                    if to:
                        yield rank, int(to[1]), number, step


def wrong_way(programs, allowed, words):
    """allowed: from a rank, the ranks that it may send to."""
    for rank, to, number, step in messages(programs):
        if to not in allowed(rank):
            yield f"rank {rank} sends to rank {to} (worker {number}, {step.text().strip()}); {words(rank)}"
            return


def sends(programs, rank):
    return sum(sender == rank for sender, *_ in messages(programs))


def exercise_1(programs, _):
    if programs.name == "ring":
        yield "the name behind \"program\" is still ring; give your ring another one, so that logs tell the two apart"
    yield from wrong_way(programs, lambda rank: {(rank - 1) % 4},
                         lambda rank: f"the other way round it sends to rank {(rank - 1) % 4} only")
    if programs.n_chunks != 4:
        yield f"chunks is {programs.n_chunks}; a ring cuts the vector into as many chunks as there are ranks, 4"
    for rank in range(4):
        if sends(programs, rank) != 6:
            yield f"rank {rank} sends {sends(programs, rank)} chunks; in a ring of 4 ranks each sends 2 (4 - 1) = 6"


def exercise_2(programs, _):
    def neighbours(rank):
        return {(rank - 1) // 2} - {-1} | {2 * rank + 1, 2 * rank + 2} & set(range(7))

    yield from wrong_way(programs, neighbours,
                         lambda rank: f"its parent and children are {sorted(neighbours(rank))}")
    for rank, to, number, step in messages(programs):
        if to < rank and number != 0 or to > rank and number == 0 and rank != 0:
            yield f"rank {rank} sends {'up' if to < rank else 'down'} in worker {number} ({step.text().strip()}); " \
                  "sums go up in worker 0, results down in worker 1"
            return


def exercise_3(programs, _):
    for rank in range(len(programs.ranks)):
        receivers = sorted(to for sender, to, *_ in messages(programs) if sender == rank)
        if receivers != sorted({0, 1, 2, 3} - {rank}):
            yield f"rank {rank} sends to the ranks {receivers}; in one shot it sends one block to each of the others"
    for step in programs.steps():
        if any(word.startswith("from") for word in step.inputs) and any(word.startswith("to") for word in step.outputs):
            yield f"\"{step.text().strip()}\" sends on what it received: that is a second shot"


def predicted_us(tools, path, n_bytes):
    text = subprocess.run([os.path.join(tools, "schedule"), "--predict", "--file", path, "--cost", "host", "--bytes",
                           n_bytes, "--tile", "64K"], capture_output=True, text=True, check=True).stdout
    return float(text.split("\n")[3].split()[4])


def exercise_4(programs, given):
    yield from wrong_way(programs, lambda rank: {rank - 1, rank + 1}, lambda _: "in a line it sends to its neighbours")
    one, two = (predicted_us(given.tools, path, "4M") for path in (given.page("line.gyre"), given.path))
    if two > one / 2:
        alone = [rank for rank, workers in enumerate(programs.ranks[:-1]) if len(workers) < 2]
        yield f"4 MiB are predicted to take {two:.0f} us, and with one worker {one:.0f}: tiles do not overlap yet" + \
            (f"; the worker of rank {alone[0]} waits for the result of a tile before it sends the next" if alone else "")


def exercise_5(programs, _):
    for rank in (0, 1):
        n_steps = sum(len(steps) for steps in programs.ranks[rank])
        if n_steps != 2:
            yield f"rank {rank} has {n_steps} step{'s' * (n_steps != 1)}; one hop needs two: send the input, and add what arrives"


def exercise_6(programs, given):
    for rank, to, number, step in messages(programs):
        if rank // 2 != to // 2 and to != (rank + 2) % 4:
            yield f"rank {rank} sends to rank {to} of the other host (worker {number}, {step.text().strip()}); its " \
                  f"rail leads to rank {(rank + 2) % 4}"
            return
    for rank in range(4):
        crossing = sum(sender == rank and sender // 2 != to // 2 for sender, to, *_ in messages(programs))
        if crossing != 1:
            yield f"rank {rank} sends {crossing} chunks to the other host; one of the two chunks is enough, once"
    with open(given.page("host0.gyre"), encoding="utf-8") as file:
        host0 = parse(file.read())[0]
    for rank in (0, 1):
        if [[step.text() for step in steps] for steps in programs.ranks[rank]] != \
                [[step.text() for step in steps] for steps in host0.ranks[rank]]:
            yield f"the program of rank {rank} is not that of docs/course/host0.gyre"


def costs(n, n_bytes, alpha, beta, gamma):
    """The answers of exercise 7, from the formulas of lesson 7."""
    log_n, part = (n - 1).bit_length(), (n - 1) / n
    ring = {"messages": 2 * (n - 1), "bytes_sent": 2 * part * n_bytes, "bytes_added": part * n_bytes}
    doubling = {"messages": log_n, "bytes_sent": log_n * n_bytes, "bytes_added": log_n * n_bytes}

    def us(of):
        return of["messages"] * alpha + of["bytes_sent"] * beta + of["bytes_added"] * gamma

    bound = {"messages": log_n, "bytes_sent": ring["bytes_sent"], "bytes_added": ring["bytes_added"]}
    answers = {f"{name}_{key}": value for name, of in (("ring", ring), ("doubling", doubling))
               for key, value in {**of, "us": us(of)}.items()}
    per_byte = (doubling["bytes_sent"] - ring["bytes_sent"]) * beta + \
        (doubling["bytes_added"] - ring["bytes_added"]) * gamma
    return {**answers, "bound_us": us(bound),
            "crossing_bytes": (ring["messages"] - doubling["messages"]) * alpha / per_byte * n_bytes}


def why_not(name, value, n, n_bytes, right):
    """What may have been meant by a wrong number."""
    known = {
        "ring_messages": {n: "that is one way round; the results go round, too", n - 1: "that is the first way round; "
                          "the results go round, too", 2 * n: "a chunk needs n - 1 messages to pass n ranks"},
        "ring_bytes_sent": {n_bytes: "each message is a chunk, V / n", 2 * n_bytes: "a rank never sends its finished "
                            "chunk to itself: n - 1 of n chunks, twice", (n - 1) * n_bytes: "each message is a chunk, "
                            "V / n", (n - 1) * n_bytes // n: "that is the first way round only"},
        "ring_bytes_added": {2 * (n - 1) * n_bytes // n: "nothing is added on the second way round"},
        "doubling_messages": {n: "the distance doubles from message to message: 1, 2, 4"},
        "doubling_bytes_sent": {n_bytes: "each of its messages is a whole vector"},
    }.get(name, {})
    for wrong, words in known.items():
        if abs(value - wrong) <= 0.005 * abs(wrong):
            return words
    if name.endswith("_us"):
        return "messages x alpha + bytes sent x beta + bytes added x gamma, of the lines above it" \
            if name != "bound_us" else "log2(n) messages, and sent and added as few bytes as the ring"
    way = "all but messages x alpha grows as V does: solve ring_us = doubling_us for V" if name == "crossing_bytes" else \
        "a row of the lesson's table"
    return f"it is {value / right:.3g} times the right number; {way}"


def compare_answers(text, answers, why):
    """answers: the right ones, in the order of the file. why(name, value): what may have been meant by a wrong one."""
    found = dict(re.findall(r"^(\w+) *=[ \t]*(\S*)", text, re.M))
    for name, right in answers.items():
        if not found.get(name):
            yield f"{name} has no {'word' if isinstance(right, str) else 'number'} yet"
            return
        value = found[name]
        if not isinstance(right, str):
            try:
                value = float(value)
            except ValueError:
                yield f"{name} = {found[name]}: not a number"
                return
        slack = 0.005 * abs(right) if isinstance(right, float) else 0
        if value.lower() != right.lower() if isinstance(right, str) else abs(value - right) > slack:
            yield f"{name} = {found[name]}: {why(name, value)}"
            return


ORDER = re.compile(r"memory_order_(?!relaxed)\w+")
FENCE = re.compile(r"^ *atomic_thread_fence.*\n", re.M)


def lacking(rc11, text):
    """Which thread's orders are too weak."""
    for thread, role in (("P0", "release"), ("P1", "acquire")):
        start = text.index(thread + " (")
        end = text.index("\n}", start)
        strong = re.sub(r"(store_.*)memory_order_relaxed", r"\1memory_order_release", text[start:end])
        strong = re.sub(r"(load_.*)memory_order_relaxed", r"\1memory_order_acquire", strong)
        if rc11.decide(text[:start] + strong + text[end:]) == (False, False):
            return f"; {thread} lacks {role}"
    return "; P0 lacks release, and P1 acquire"


def exercise_9(given, text):
    """A litmus test of docs/course/orders, mended by its orders and its fence, and by no more than it needs."""
    name = re.search(r"^C (\w+)", text, re.M)
    folder = given.page("orders")
    old = next((file for file in os.listdir(folder) if name and file[2:-len(".litmus")] == name[1]), None)
    if old is None:
        return [f"its first line is \"C {name[1]}\", as of none of {folder}" if name else "its first line is not \"C NAME\""]

    def bare(words):
        return re.sub(r"\(\*.*?\*\)|memory_order_\w+|\s", "", FENCE.sub("", words), flags=re.S)

    with open(os.path.join(folder, old), encoding="utf-8") as file:
        if bare(file.read()) != bare(text):
            return [f"more than orders and the fence differs from {old}"]
    if "seq_cst" in text:
        return ["seq_cst is stronger than needed, and the model that decides here does not have it"]
    model = os.path.join("tests", "litmus")
    if not os.path.exists(os.path.join(model, "rc11.py")):
        raise Refused(f"only orders and the fence differ from {old}, as they should; whether they are right decides "
                      f"{model}/rc11.py, which is not here: start this command from the folder of gyre's sources")
    sys.path.insert(0, model)
    import rc11
    for line in text.splitlines():
        if re.search(r"load_.*order_release|store_.*order_acq", line):
            return [f"\"{line.strip()}\": a load can acquire, and a store can release"]
    holds, races = rc11.decide(text)
    outcome = text[text.index("exists"):].strip()
    if holds:
        return [f"this outcome can still happen: {outcome}{lacking(rc11, text)}"]
    if races:
        return ["the outcome cannot happen, but there is a data race: a plain access is not ordered against the other one" +
                lacking(rc11, text)]
    code = re.sub(r"\(\*.*?\*\)", lambda note: " " * len(note[0]), text, flags=re.S)
    for strong in list(ORDER.finditer(code)) + list(FENCE.finditer(code)):
        is_fence = strong[0].lstrip().startswith("atomic_thread_fence")
        line = code[code.rfind("\n", 0, strong.start()) + 1:].split("\n")[0].strip()
        if not is_fence and line.startswith("atomic_thread_fence"):
            continue
        if rc11.decide(code[:strong.start()] + ("" if is_fence else "memory_order_relaxed") + code[strong.end():]) == \
                (False, False):
            return [f"right, but stronger than needed: \"{line}\" may be {'left out' if is_fence else 'relaxed'}"]
    return []


def answers_of_10():
    n, n_bytes, n_channels, line = 4, 65536, 16, 16
    chunk = n_bytes // n_channels // n
    lines = n_channels * 2 * (n - 1) * chunk // line
    return {"chunk_bytes": chunk, "chunk_lines": chunk // line, "threads_that_scatter": min(128, chunk // line),
            "lines_a_thread": n - 1, "lines_sent": lines, "lines_cleared": lines, "fences": 0, "hops": 2}


HINTS_10 = {
    ("chunk_bytes", 16384): "each channel has a sixteenth of the vector, and a chunk is a quarter of that",
    ("chunk_bytes", 4096): "that is the channel's part; a chunk is 1 / n of it",
    ("chunk_lines", 128): "a line of lamport is all data: 16 bytes",
    ("threads_that_scatter", 128): "thread t begins with line t of each chunk; a chunk has fewer lines than there are threads",
    ("lines_a_thread", 4): "nothing is sent to the own rank",
    ("lines_a_thread", 1): "a thread sends the same line of the chunks of all peers",
    ("lines_sent", 3072): "that is the first shot; the second one sends as many",
    ("lines_cleared", 3072): "lines of both shots are cleared",
    ("lines_cleared", 0): "the receiver makes its lines zero again: lamport_clear() and lamport_clear_in_bulk()",
    ("fences", 1): "each line tells by itself that it has arrived; look for fence_acq_rel_sys() in the file",
    ("fences", 2): "each line tells by itself that it has arrived; look for fence_acq_rel_sys() in the file",
    ("hops", 1): "the second shot needs the first one's sum",
}


def predicted_rows(tools, *options):
    """(algorithm, protocol, us) of each size, as gyre schedule --predict prints them; without --library no algorithm."""
    text = subprocess.run([os.path.join(tools, "schedule"), "--predict", "--coll", "all_reduce", *options],
                          capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in text.split("\n") if line and not line.startswith("#")]
    return {int(row[0]): ((row[1], row[2], float(row[5])) if "--library" in options else (None, row[1], float(row[4])))
            for row in rows}


def answers_of_11(tools):
    host = predicted_rows(tools, "--library", "nccl", "--ranks", "8", "--bytes", "1K:1G")
    hosts = predicted_rows(tools, "--library", "nccl", "--hosts", "8x8", "--bytes", "1M:1G")
    switch = predicted_rows(tools, "--library", "nccl,nvls=1", "--ranks", "8", "--bytes", "64M")
    own = predicted_rows(tools, "--algo", "direct", "--proto", "lamport", "--ranks", "8", "--bytes", "1K")
    return {"small_proto": host[1 << 14][1], "large_proto": host[1 << 24][1], "algorithm_1m": hosts[1 << 20][0],
            "algorithm_1g": hosts[1 << 30][0], "switch_64m": switch[1 << 26][0],
            "ratio_1k": float(f"{host[1024][2] / own[1024][2]:.2g}")}


HINTS_11 = {
    ("switch_64m", "ring"): "that is without the switch: nccl,nvls=1",
    ("large_proto", "simple"): "only from 64 MiB on",
    ("algorithm_1m", "ring"): "126 hops would take longer than all bytes of 1 MiB",
    ("algorithm_1g", "tree"): "at 1 GiB bytes count, and a ring sends the fewest",
}


TIMEOUT_MS = 4.096e-3 * 2 ** 17
ANSWERS_12 = {"dscp": 106 >> 2, "ecn": 106 & 3, "first_takes": "RTR", "first_sends": "RTS", "packets_1024": 32,
              "first_packet_bytes": 14 + 20 + 8 + 12 + 16 + 4096 + 4, "lacks": "RETH",
              "timeout_ms": TIMEOUT_MS, "window_ms": 7 * TIMEOUT_MS}
HINTS_12 = {
    ("dscp", 106): "the class is DSCP x 4 + ECN", ("dscp", 13): "the upper six of eight bits: divide by 4",
    ("first_takes", "RTS"): "ready to receive comes before ready to send",
    ("first_takes", "INIT"): "in INIT packets are dropped", ("first_sends", "RTR"): "ready to receive only",
    ("first_packet_bytes", 4096): "that is the payload alone", ("first_packet_bytes", 4166): "the ICRC follows the payload",
    ("lacks", "BTH"): "each packet has one: it says to which queue pair it belongs",
    ("lacks", "ICRC"): "each packet has one, at its end",
    ("timeout_ms", 536870.912): "that is in us", ("window_ms", 6 * TIMEOUT_MS): "the first time counts as well: 7 sendings",
}


ANSWERS_13 = {"look_at": 2, "timeout_slack_ms": 3000, "death_ms": 3000, "cable_ms": 10000, "first_again": 7,
              "last_allowed": 8}
HINTS_13 = {
    ("look_at", 3): "rank 3 waits, too: follow the chain to its end", ("look_at", 0): "rank 0 is where the chain begins",
    ("death_ms", 10000): "an operating system closes the connections of a dead process at once",
    ("cable_ms", 3000): "nobody closes a connection here: silence must tell",
    ("first_again", 8): "arrived = 7 counts slots, and they begin at 0", ("first_again", 5): "head is credit, not arrival",
    ("first_again", 9): "slots 7 and 8 are lost: the receiver does not have them",
    ("last_allowed", 9): "5 slots were consumed and 4 may be in flight: the slots 5 to 8",
    ("last_allowed", 10): "arrived gives no credit, head does",
}
ANSWERS = {10: (lambda _: answers_of_10(), HINTS_10), 11: (answers_of_11, HINTS_11),
           12: (lambda _: ANSWERS_12, HINTS_12), 13: (lambda _: ANSWERS_13, HINTS_13)}


# How to find an answer, for wrong ones that are not among the hints.
WAYS = {
    "chunk_bytes": "V / channels / n", "chunk_lines": "the chunk's bytes / 16",
    "threads_that_scatter": "thread t begins with line t; one thread a line", "lines_a_thread": "one for each peer",
    "lines_sent": "channels x 2 shots x peers x lines of a chunk", "lines_cleared": "as many as arrive",
    "fences": "count fence_acq_rel_sys() in fused_lamport.cuh", "hops": "a shot is a hop",
    "small_proto": "ask gyre schedule --predict --library nccl --ranks 8, row 16384", "large_proto": "row 16777216",
    "algorithm_1m": "--library nccl --hosts 8x8, row 1048576", "algorithm_1g": "row 1073741824 of the same table",
    "switch_64m": "--library nccl,nvls=1 --ranks 8, row 67108864",
    "ratio_1k": "NCCL's predicted us of 1024 B / that of --algo direct --proto lamport", "dscp": "TC / 4",
    "ecn": "TC modulo 4", "first_takes": "the table of states", "first_sends": "the table of states",
    "packets_1024": "bytes / MTU", "first_packet_bytes": "add the headers to 4096",
    "lacks": "which header says where the bytes go?", "timeout_ms": "0.004096 ms x 2^17",
    "window_ms": "7 times the timeout", "look_at": "the end of the chain",
    "timeout_slack_ms": "the sentence about GYRE_TIMEOUT in the lesson",
    "death_ms": "the table of the lesson, a process dies",
    "cable_ms": "the table of the lesson, a host or cable is gone",
    "first_again": "arrived counts the slots that it has", "last_allowed": "head + depth slots may be sent in all",
}


class Given:
    def __init__(self, tools, path):
        self.tools, self.path = tools, path

    def page(self, name):
        """A file of docs/course, beside which the commands of the lessons are run."""
        path = os.path.join("docs", "course", name)
        if not os.path.exists(path):
            raise Refused(f"{path} is not here: start this command from the folder that has docs/")
        return path


PROGRAMS = {1: (exercise_1, "all_reduce", 4), 2: (exercise_2, "all_reduce", 7), 3: (exercise_3, "reduce_scatter", 4),
            4: (exercise_4, "all_reduce", 4), 5: (exercise_5, "all_reduce", 2), 6: (exercise_6, "all_reduce", 4)}


def verify(tools, text):
    """None, or why the programs are wrong."""
    return re.sub(" +", " ", prove(tools, text, reason=r"refused.*|step .*|rank \d+  .*")[0] or "") or None


def check_program(tools, lesson, path, text):
    exercise, coll, n_ranks = PROGRAMS[lesson]
    names = list(dict.fromkeys(re.findall(r"^program (\w+) ", text, re.M)))
    if len(names) > 1:
        return [f"the file has programs of {len(names)} names, {', '.join(names)}; all ranks need the same one"]
    shapes = parse(text)
    if len(shapes) != 1:
        return [f"the file has {len(shapes)} programs for all ranks; write one, for the ranks 0, 1, ... in order"]
    wrong = [] if shapes[0].coll == coll else [f"the collective is {shapes[0].coll}; the exercise asks for {coll}"]
    if len(shapes[0].ranks) != n_ranks:
        wrong.append(f"there are programs of {len(shapes[0].ranks)} ranks; the exercise has {n_ranks}")
    if wrong:
        return wrong
    proof = verify(tools, text)
    if proof is None or lesson != 4:  # lesson 4 predicts, which needs a proof
        wrong += exercise(shapes[0], Given(tools, path))
    if proof and "deadlock" in proof:  # perhaps with_next allowed a step before the one that frees it
        places = (map(int, place.groups()) for place in re.finditer(r"rank (\d+), worker (\d+), step (\d+)", proof))
        proof += next((f"; step {at - 1} of rank {rank} has with_next, so step {at} may come first"
                       for rank, worker, at in places
                       if at > 0 and "with_next" in shapes[0].ranks[rank][worker][at - 1].flags), "")
    return wrong + ([f"the verifier: {proof}"] if proof else [])


def check_repaired(tools, path, text):
    """Exercise 8: one file of docs/course/wrong, mended by few changes."""
    given = Given(tools, path)
    name = re.search(r"^program (\w+) ", text, re.M)
    folder = given.page("wrong")
    old = next((file for file in os.listdir(folder) if name and file[2:-len(".gyre")] == name[1]), None)
    if old is None:
        return [f"no file of {folder} has programs of the name {name[1] if name else '(none)'}; keep the name behind \"program\""]
    with open(os.path.join(folder, old), encoding="utf-8") as file:
        before = [line.strip() for line in file if not line.startswith("#")]
    after = [line.strip() for line in text.splitlines() if line and not line.startswith("#")]
    heads = [[line for line in lines if line.startswith(("program", "ranks"))] for lines in (before, after)]
    if heads[0] != heads[1]:
        return [f"the lines \"program\" and \"ranks\" are not those of {old}; mend the steps"]
    n_changed = max(sum(line not in other for line in lines) for lines, other in ((before, after), (after, before)))
    proof = verify(tools, text)
    return ([f"the verifier: {proof}"] if proof else []) + \
        ([f"{n_changed} lines differ from {old}; 2 are enough"] if n_changed > 2 else [])


def check(tools, lesson, path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if lesson == 7:
        answers = costs(N_COST_RANKS, COST_BYTES, ALPHA_US, BETA, GAMMA)
        return list(compare_answers(text, answers, lambda name, value: why_not(name, value, N_COST_RANKS, COST_BYTES,
                                                                               answers[name])))
    if lesson == 9:
        return exercise_9(Given(tools, path), text)
    if lesson in ANSWERS:
        answers_of, hints = ANSWERS[lesson]

        def why(name, value):
            for (of, wrong), words in hints.items():
                is_word = isinstance(wrong, str)
                if of == name and (value.lower() == wrong.lower() if is_word else abs(value - wrong) <= 0.005 * abs(wrong)):
                    return words
            return WAYS[name]

        return list(compare_answers(text, answers_of(tools), why))
    if not re.search(r"^program ", text, re.M):
        return ["there is no line \"program NAME COLLECTIVE\": is this a file of programs?"]
    return check_repaired(tools, path, text) if lesson == 8 else check_program(tools, lesson, path, text)


def main():
    tools, words = sys.argv[1], sys.argv[2:]
    if len(words) != 2 or not words[0].isdigit() or int(words[0]) not in range(1, 14):
        print("gyre course: a lesson, 1 to 13, and a file are needed: gyre course 1 mine.gyre", file=sys.stderr)
        return 2
    try:
        wrong = check(tools, int(words[0]), words[1])
    except (OSError, UnicodeDecodeError, Refused) as error:
        print(f"gyre course: {words[1]}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 2
    for text in wrong:
        print(text)
    if not wrong:
        print(f"exercise {words[0]}: right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
