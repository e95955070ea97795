#!/usr/bin/env python3
"""The numbers that decide which way a call goes are rows of text (core/engine/plan/tuner/*.rows, each with the
place where it was measured). This lists the numbers that are left in the code that decides, each with its
reason. A number that is not in the list, or an entry whose number is gone, is a violation.

check_tree.py runs it. Alone: .ci/check_thresholds.py [root] prints the list, then the violations.
"""

import glob
import os
import re
import sys

# All files of these folders are read. A fused kernel's row that has a number says where it was
# measured; what a kernel can do is a name.
FOLDERS = ("core/engine/plan", "core/engine/call", "core/engine/links", "kernels/cuda/host", "kernels/cuda/runtime")
ROWS_OF_KERNELS = "kernels/cuda/fused/*.cuh"
KERNEL_ROW = re.compile(r"GYRE_KERNEL_ROW\((?:[^()]|\([^()]*\)|\((?:[^()]|\([^()]*\))*\))*\)")

# Data in C: a row or a limit that ends with the place where it was measured.
MEASURED = re.compile(r'\{[^{}]*\b20\d\d-\d\d"\}')

# Numbers that say nothing: 0, 1, 2, masks, and lengths of texts and tables.
IGNORED = re.compile(r"\b(char|uint32_t|uint64_t|uint8_t|uint16_t) \w+\[\d+\]|\bstatic_assert\b.*|\b0x[0-9a-fA-F]+U?"
                     r"|\bwords\[\d+\]|lost\[[^\]]*\]")
NUMBER = re.compile(r"(?<![\w.])(?:\d+\.\d+(?:e\d+)?|\d+e\d+|\d+)(?:U?L{0,2})?(?![\w.])(?: << \d+)?")
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'[^\']*\'', re.S)

# (file, number) -> the reason why it is no row.
TILE = "data move in units of 16 bytes"
WARP = "threads of a warp"
UNIT = "a conversion of units"
MODEL = "a constant of the model, as the shipped ones, not a threshold"
LINE = "bytes of a line of the protocol, or threads that move them"
P = "core/engine/plan/"
T = P + "tuner/"
FUSED = "kernels/cuda/host/kernel_rows.c"
READY = "kernels/cuda/runtime/ready.c"
REASONS = {
    (P + "plan_choice.c", "16"): TILE,
    (P + "call.c", "32"): "half of a hash",
    (P + "call.c", "64"): "the most channels that gyre.h says a call can ask for",
    (P + "tuning_file.c", "16383"): "a limit of the file's length",
    (P + "tuning_file.c", "9"): "the letters of \"measured \"",
    (P + "tuning_file.c", "8000.0"): UNIT,
    (P + "tuning_file.c", "0.98"): MODEL,
    (P + "tuning_file.c", "0.92"): MODEL,
    (P + "tuning_file.c", "2000"): MODEL,
    (P + "tuning_file.c", "9000"): MODEL,
    (P + "tuning_file.c", "700"): MODEL,
    (P + "tuning_file.c", "10000"): MODEL,
    (T + "filter.c", "31"): "the bit that only a list that excludes has",
    (T + "predict.c", "100"): "rows say percent",
    (T + "predict.c", "256"): "the smallest class of sizes for which a prediction is kept",
    (T + "predict.c", "4"): "classes between two powers of two, and the next shorter tile that the search tries",
    (T + "predict.c", "3"): "the last tile that the search tries: three quarters of the best one",
    (T + "predict.c", "16"): TILE,
    (T + "sizes.c", "1U << 30"): "the most that fits 32 bits: copy engines have no slots",
    (T + "sizes.c", "1ULL << 31"): "the first bit of a square root",
    (T + "sizes.c", "15U"): TILE,
    (T + "sizes.c", "16"): TILE + ", and LAMPORT moves so many a thread",
    (T + "sizes.c", "32"): WARP,
    (T + "sizes.c", "480"): LINE,
    (T + "sizes.c", "512"): LINE,
    (T + "tuner.c", "16"): TILE,
    (T + "tuner.c", "512"): "a fused all-gather copies in such units",
    (FUSED, "15"): "barriers of a block that a kernel can use",
    (FUSED, "32"): WARP,
    (FUSED, "16"): LINE,
    (FUSED, "3"): "peers for which kernels are compiled",
    (FUSED, "7"): "peers for which kernels are compiled",
    (FUSED, "8"): LINE,
    (FUSED, "480"): LINE,
    (FUSED, "64"): "two warps, the fewest of a block",
    (FUSED, "15ULL"): LINE,
    (FUSED, "512"): "LAMPORT: the bytes of a warp's round",
    (FUSED, "2ULL"): "threads that a LAMPORT block may have beyond those of the interpreter",
    (READY, "16"): TILE,
    ("kernels/cuda/fused/fused_message.cuh", "32"): WARP,
}


# Files whose numbers choose nothing, each with what they are.
FORMAT = "lengths of texts and parts of a format"
HARDWARE = "sizes of memory, tables and blocks, and the time limits of waits"
OTHERS = {
    P + "given.c": "what is too large to be read or proved", P + "plan.c": TILE,
    P + "plan_cache.c": "lengths of texts, a hash and its table", P + "plan.h": "bits of a key, and the size of the table", P + "plugins.c": FORMAT, P + "programs.c": UNIT,
    T + "rows.c": FORMAT, T + "rows.h": FORMAT,
    "core/engine/call/batch.c": "calls for which nothing is allocated",
    "core/engine/call/group.c": "calls for which nothing is allocated, and units",
    "core/engine/call/metrics.c": "classes of sizes in the metrics, and lengths",
    "core/engine/links/agreement.c": "workers of a program, and rounds of the clocks' measurement",
    "core/engine/links/choose.c": "bits of an answer, and lengths",
    "core/engine/links/connect.c": "memory of put links, and units",
    "core/engine/links/fifo_spec.c": "memory of FIFOs, divided at init: the same for all calls",
    "core/engine/links/links.h": FORMAT,
    "core/engine/links/network.c": "classes of measured rates and latencies",
    "kernels/cuda/host/arena.h": HARDWARE, "kernels/cuda/host/copies.h": HARDWARE,
    "kernels/cuda/host/kernel_rows.h": "bits of conditions", "kernels/cuda/host/lower.c": TILE,
    "kernels/cuda/host/program.h": HARDWARE, "kernels/cuda/host/position.c": HARDWARE,
    "kernels/cuda/host/records.c": FORMAT, "kernels/cuda/host/recording.h": FORMAT,
    "kernels/cuda/host/records.c": FORMAT, "kernels/cuda/runtime/exec.c": HARDWARE,
    "kernels/cuda/runtime/kernels.c": HARDWARE, "kernels/cuda/runtime/load.c": HARDWARE,
    "kernels/cuda/runtime/memory.c": HARDWARE,
    "kernels/cuda/runtime/recorder.c": HARDWARE, "kernels/cuda/runtime/standstill.c": HARDWARE,
    "kernels/cuda/runtime/state.h": HARDWARE,
}


def numbers_of(text):
    """Number -> the lines where it stands, without comments, texts and what IGNORED says."""
    found = {}
    text = MEASURED.sub("", text)
    text = COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)
    for n, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("#include"):
            continue
        for match in NUMBER.finditer(IGNORED.sub(" ", line)):
            if match.group(0) not in ("0", "1", "2", "0U", "1U", "2U", "1ULL"):
                found.setdefault(match.group(0), []).append(n)
    return found


def check_thresholds(root, complain):
    """Returns (file, lines, number, reason) of all numbers that are left."""
    left, seen = [], set()
    for path in sorted(glob.glob(os.path.join(root, ROWS_OF_KERNELS))):
        with open(path, encoding="utf-8") as file:
            rows = KERNEL_ROW.findall(file.read())
        for row in rows:
            keys = [(os.path.relpath(path, root), number) for number in numbers_of(row)]
            seen.update(keys)
            numbers = [key[1] for key in keys if key not in REASONS]
            if numbers and not re.search(r'\.measured = "[^"]*20\d\d-\d\d', row):
                complain(os.path.relpath(path, root), f"a kernel's row has the numbers {', '.join(numbers)} and does"
                                                      " not say where they were measured")
    paths = sorted(path for folder in FOLDERS
                   for path in glob.glob(os.path.join(root, folder, "**", "*.[ch]"), recursive=True))
    for path in paths:
        name = os.path.relpath(path, root)
        with open(path, encoding="utf-8") as file:
            found = numbers_of(file.read())
        if name in OTHERS:
            left.append((name, [1], "all numbers", OTHERS[name]))
            if not found:
                complain(".ci/check_thresholds.py", f"{name} has no numbers any more")
            continue
        for number, lines in found.items():
            reason = REASONS.get((name, number))
            seen.add((name, number))
            left.append((name, lines, number, reason))
            if reason is None:
                complain(f"{name}:{lines[0]}", f"the number {number} is no row of *.rows, and .ci/check_thresholds.py"
                                               " has no reason for it")
    for name in OTHERS:
        if not os.path.exists(os.path.join(root, name)):
            complain(".ci/check_thresholds.py", f"{name} is no more")
    for name, number in REASONS:
        if (name, number) not in seen:
            complain(".ci/check_thresholds.py", f"{name} has no number {number} any more")
    return left


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    problems = []
    for name, lines, number, reason in check_thresholds(root, lambda where, what: problems.append(f"{where}: {what}")):
        if reason is not None:
            print(f"{name}:{','.join(map(str, lines))}: {number}: {reason}")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
