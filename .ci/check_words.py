#!/usr/bin/env python3
"""One word, one meaning: words that had several meanings, or that were metaphors, have a new word, and the old one
may not come back in code, comments, messages or pages. docs/glossary.md defines the words in use.

check_tree.py runs it. Alone: .ci/check_words.py [root] prints the violations.
Words that only a reader can judge are not here: host, lane, share, place, head, choice, way, path.
"""

import os
import re
import subprocess
import sys

TEXTS = (".c", ".h", ".cu", ".cuh", ".cpp", ".py", ".sh", ".js", ".css", ".html", ".rows", ".md", ".txt", ".cmake")

# (stems that stand in every hit, in small letters; the old word; where it counts; the new word)
OLD = [
    (("exchang",), r"(?i)exchang", "", "all-gather over the bootstrap; fused program, fused kernel; send to each other"),
    (("macro",), r"(?i)macro[-_ ]steps?\b", "", "fused program, fused kernel"),
    (("board",), r"(?i)\b(?:\w+_)?boards?(?:_\w+)?\b", "", "call log; progress mailbox; flag page"),
    (("pulse",), r"(?i)(?<!im)pulses?\b", "", "progress"),
    (("take_turn",), r"\btake_turn\b", "", "begin_launch"),
    (("seat",), r"(?i)\b(?:\w+_)?seats?(?:_\w+)?\b", "", "block placement"),
    (("invit",), r"(?i)invit(?:e|es|ing|ation)(?![a-z])", "", "allow_dependent_launch"),
    (("gate",), r"(?i)\b(?:\w+_)?gates?(?:_\w+)?\b", "", "sync kernel"),
    (("door", "knock", "guest"), r"(?i)(?<![a-z])(?:doors?|knock(?:s|ing)?|guests?)(?![a-z])", "",
     "regroup listener, join, joiner"),
    (("hub",), r"(?i)\b(?:\w+_)?hubs?(?:_\w+)?\b", "", "rendezvous server"),
    (("own_line", "form"), r"\bown_lines?\b|\bFORM\b", "", "per-thread lines, FORMAT"),
    (("empty_line", "is_there"), r"\bempty_line\b|\bis_there\b", "", "clear_line, has_arrived"),
    (("abreast",), r"(?i)abreast", "", "in flight"),
    (("meet",), r"(?i)\b(?:\w+_)?meets?(?:_\w+)?\b", "kernels/", "reduce across groups"),
    (("turned",), r"(?i)\bturned\b(?! (?:off|into)\b)", "", "rotated"),
    (("is_plain", "is_whole"), r"(?i)\bis_plain\b|\bis_whole\b", "kernels/", "is_unscaled, EXACT_FIT, is_16_byte_aligned"),
    (("stretch",), r"(?i)\bstretch(?:es)?\b", "", "unaligned span"),
    (("meeting", "making"), r"(?i)\b(?:\w+_)?meetings?(?:_\w+)?\b|\bstruct making\b|\bmaking_\w+", "",
     "init task, init request"),
    (("world", "team"), r"(?i)\b(?:bench_)?(?:worlds?|teams?)\b", "bench/", "launcher, ranks"),
    (("terms",), r"(?i)\b(?:\w+_)?terms(?:_\w+)?\b", "", "options agreed, call options"),
    (("gyre_member", "bench_member"), r"\b(?:gyre|bench)_members?\w*", "", "a rank's state"),
    (("gyre_caller",), r"\bgyre_caller\w*", "", "the API's callbacks"),
    (("landing",), r"(?i)\blandings?\b", "", "receive buffer"),
    (("end", "ends"), r"(?i)\b(?:sending|receiving) ends?\b|\bFIFO ends?\b|_end_(?:state|name)\b", "",
     "sender, receiver; both sides of a FIFO"),
]

# Not these: names that others chose, and the words of their fields.
OTHERS = re.compile(r"(?i)compare[-_ ]exchang\w*|atomic_exchange\w*|\w*ExchangeStreamCapture\w*|\bgyre_comm_exchange"
                    r"|\bEXCHANGE_MAX_BYTES\b|\bwire_exchange\b|\batomic exchange\b")

# (path, old word, why it stays)
PAIRS = "ranks exchange data in pairs: the field's word"
CARD = "of an adapter: its maker's word"
EXCEPTIONS = [
    (r"CHANGELOG\.md|docs/lab_notes\.md|docs/performance/", r".*", "tells of the past in its words"),
    (r"algorithms/|docs/(algorithms|across_hosts|glossary|tuning)\.md|docs/examples/|docs/course/|bench/tools/schedule_"
     r"|tests/algorithms/", r"exchang.*", PAIRS),
    (r"core/gyre\.h|core/engine/comm/api\.c|core/nccl/", r"exchang.*", "gyre_comm_exchange(): a public name"),
    (r"docs/(examples/|tour\.md)|tests/python/", r"terms", "plain English"),
    (r"bench/doctor/|bench/python/machine_facts\.py|docs/doctor\.md|tests/doctor/", r"(?i).*(board|seat).*", CARD),
    (r"bench/engines/engine_mpi\.c", r"world", "MPI_COMM_WORLD"),
    (r"tests/", r"(?i).*(gates?|guests?|hubs?|meetings?).*", "words of tests: a flag that opens, a virtual machine, a bridge"),
    (r"tests/plan/test_golden\.c", r"terms", "in the texts whose sums golden.txt has"),
]


def excepted(name, word):
    return any(re.match(path, name) and re.fullmatch(pattern, word, re.I) for path, pattern, _ in EXCEPTIONS)


def check_words(root, complain):
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True, text=True, check=True).stdout
    rules = [(stems, re.compile(pattern), where, new) for stems, pattern, where, new in OLD]
    for name in listed.split("\0"):
        path = os.path.join(root, name)
        if not name.endswith(TEXTS) or name == ".ci/check_words.py" or not os.path.isfile(path):
            continue
        with open(path, encoding="utf-8") as file:
            text = file.read()
        small = text.lower()
        for stems, pattern, where, new in rules:
            if not name.startswith(where) or not any(stem in small for stem in stems):
                continue
            for match in pattern.finditer(text):
                around = text[max(0, match.start() - 40):match.end() + 40]
                own = any(match.group(0) in found for found in OTHERS.findall(around))
                if own or excepted(name, match.group(0)):
                    continue
                complain(f"{name}:{text.count(chr(10), 0, match.start()) + 1}", f"{match.group(0)}: instead write {new}")


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..")
    problems = []
    check_words(root, lambda where, what: problems.append(f"{where}: {what}"))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
