#!/usr/bin/env python3
"""The rules of the tree: who may include whom, no include cycles, header guards, where the outside
world may be touched, the index in gyre.h, formatting; of the pages (check_docs.py), which numbers decide in
code (check_thresholds.py), and old words (check_words.py).

Run from anywhere; prints one line a violation and exits 1 if there is any.
    .ci/check_tree.py [--no-format] [root]
"""

import os
import re
import shutil
import subprocess
import sys

from check_docs import check_docs
from check_thresholds import check_thresholds
from check_words import check_words

SOURCE = (".c", ".h", ".cpp", ".cu", ".cuh")

# Folder -> what it may include besides itself: folders (with all their headers) or single headers.
MODEL = ["core/foundation/base", "core/gyre.h"]
ALLOWED = {
    "core/foundation/base": ["core/gyre.h"],
    "core/foundation/model": MODEL,
    "core/foundation/trace": MODEL + ["core/foundation/model"],
    "core/foundation/device": MODEL + ["core/foundation/model"],
    "core/foundation/topo": MODEL + ["core/foundation/model", "core/foundation/device"],
    "bootstrap": MODEL,
    "algorithms": MODEL + ["core/foundation/model", "core/foundation/topo"],
    "transport": MODEL + ["core/foundation/model", "core/foundation/trace", "core/foundation/device", "core/foundation/topo"],
    "kernels": MODEL + ["core/foundation/model", "core/foundation/trace", "core/foundation/device"],
    "core/nccl": ["core/gyre.h", "core/foundation/base/text.h"],
    # gyre_model.h: what tools may know
    "core": ["algorithms", "core/foundation/model", "core/foundation/topo", "core/engine/comm/local.h",
             "core/engine/plan/plan.h", "transport/ib/rules/ib_gid.h"],
    "bench": MODEL + ["core/gyre_model.h"],
    "tests": None,  # anything
    "docs": None,  # the examples
}

# Beyond this, files of bench/ by name: device memory, NVML, the trial of a NIC, transports that the doctor asks,
# the trace writer, how a launcher started a process, other libraries' algorithms, test patterns.
BENCH_ALSO = {
    "core/foundation/device/device.h": r"driver/rank\.h|launch/agreement\.c|limits/limits_kernels\.h|doctor/pairs\.c|check/",
    "core/foundation/device/cuda_error.h": r"driver/measure\.c|engines/engine_nccl\.c|limits/|report/machine\.c"
                                           r"|command/env\.c|check/",
    "core/foundation/topo/topo_nvml.h": r"report/machine\.c|doctor/checks/gpu\.c",
    "core/foundation/trace/trace_file.h": r"tools/simulated_trace\.c",
    "transport/transport.h": r"doctor/machine\.c|doctor/checks/network\.c",
    "transport/ib/ib_trial.h": r"doctor/checks/rails\.c",
    "bootstrap/launch.h": r"launch/launcher\.c",
    "algorithms/contenders/contender.h": r"tools/(predict_rows\.c|programs\.h)|command/explain_choice\.c",
    "core/foundation/model/types.h": r"limits/limits\.h|check/",  # for CUDA's compiler
    "core/foundation/model/schedule.h": r"check/",
    "kernels/numeric.h": r"check/",
}

# The folders of a communicator, lower ones first: each may include those before it. core/engine itself has comm.h.
COMM_FOLDERS = ["core/engine/links", "core/engine/plan", "core/engine", "core/engine/health", "core/engine/call",
                "core/engine/comm"]
for i, folder in enumerate(COMM_FOLDERS):
    ALLOWED[folder] = MODEL + ["core/foundation/model", "core/foundation/trace", "core/foundation/device", "core/foundation/topo", "bootstrap/bootstrap.h",
                               "bootstrap/launch.h", "algorithms/algorithm.h", "algorithms/plugin.h", "algorithms/simulate/simulate.h",
                               "algorithms/verify/verify.h",
                               "transport/transport.h", "kernels/executor.h"] + COMM_FOLDERS[:i]

# Outside header -> the only files that may include it.
HOMES = [
    (r"(infiniband|rdma)/", r"transport/ib/"),
    (r"(cuda|cuda_runtime|cuda_fp16|cuda_bf16|cuda_fp8|cudaTypedefs|nvml|cuda_runtime_api)\b",
     r"kernels/cuda/(?!host/)|core/foundation/device/[^/]*cuda[^/]*$|(transport|core/foundation/topo|bench)/([^/]*/)?[^/]*_(cuda|nccl)\.[ch]u?$|tests/"
     r"|docs/(examples/gpu|tutorials/graph)\.c$"),
    (r"mpi\.h$", r"bench/(launch/launcher|engines/engine)_mpi\.c$|tests/"
     r"|docs/examples/mpi\.c$"),
    (r"nccl\.h$", r"core/nccl/|tests/"),
]

# Call -> the only files that may contain it.
CALLS = [
    (r"\b(secure_)?getenv\s*\(|\benviron\b|\bsetenv\s*\(|\bputenv\s*\(",
     r"core/foundation/base/param\.c$|bench/|docs/tutorials/|tests/", "the environment is read in core/foundation/base/param.c only"),
    (r"(?<![\w.>])(exit|_exit|abort)\s*\(", r"bench/|tests/|docs/(examples|course|tutorials)/", "the library never ends the process"),
    (r"(?<![\w.>])(clock_gettime|gyre_now_ns|time|gettimeofday)\s*\(",
     r"(?!algorithms/)", "algorithms are pure: no clock"),
    (r"\b(strto(d|f|ld)|atof|str(n?)casecmp|strcoll|strxfrm|alphasort)\b|"
     r"\b(isalpha|isalnum|isspace|isprint|ispunct|iscntrl|isupper|islower|tolower|toupper)\s*\(",
     r"core/foundation/base/text\.c$|tests/|docs/(examples|course|tutorials)/", "depends on the locale of the caller: core/foundation/base/text.h"),
    (r"\bjson_object_new_string(_len)?\b", r"bench/report/json_add\.h$", "may write bytes that are no UTF-8: json_text()"),
    (r"\b(TODO|FIXME|XXX)\b", r"$^", "no TODO"),
]

INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.M)
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)


def room(path):
    """The folder of the table that a path belongs to."""
    best = ""
    for folder in ALLOWED:
        if path.startswith(folder + "/") and len(folder) > len(best):
            best = folder
    return best


def permitted(path, target):
    own = room(path)
    if target == "core/gyre.h" or room(target) == own:
        return True
    allowed = ALLOWED[own]
    if own == "bench" and re.match(f"bench/({BENCH_ALSO.get(target, '$^')})", path):
        return True
    return allowed is None or any(target == entry or (room(target) == entry) for entry in allowed)


def strip(text):
    """Without comments and string literals, lines kept."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    return COMMENT.sub(blank, text)


def check_includes(files, complain):
    graph = {}
    for path, text in files.items():
        graph[path] = []
        for match in INCLUDE.finditer(text):
            kind, target = match.groups()
            where = f"{path}:{text.count(chr(10), 0, match.start()) + 1 + match.group(0).count(chr(10))}"
            if kind == '"':
                if target not in files:
                    complain(where, f'"{target}" is not a path from the root of the tree')
                    continue
                graph[path].append(target)
                if path != "core/gyre.h" and not permitted(path, target):
                    complain(where, f"{room(path)} may not include {target}")
                continue
            if target == "gyre.h" and path.startswith("tests/install/"):
                continue
            for header, home in HOMES:
                if re.match(header, target) and not re.match(home, path):
                    complain(where, f"<{target}> has no home here")
    check_cycles(graph, complain)


def check_cycles(graph, complain):
    """Over files, and over the folders of the table."""
    folders = {folder: set() for folder in ALLOWED}
    for path, targets in graph.items():
        for target in targets:
            # gyre.h stands above all folders
            if target != "core/gyre.h" and room(path) and room(target) != room(path):
                folders[room(path)].add(room(target))
    for name, edges in (("include", graph), ("folder", folders)):
        state = {}

        def visit(node, trail):
            if state.get(node) == "done":
                return
            if node in trail:
                complain(node, f"{name} cycle: " + " -> ".join(trail[trail.index(node):] + [node]))
                return
            for target in sorted(edges.get(node, ())):
                visit(target, trail + [node])
            state[node] = "done"

        for node in sorted(edges):
            visit(node, [])


def check_calls(files, complain):
    for path, text in files.items():
        code = strip(text)
        for pattern, home, why in CALLS:
            if re.match(home, path):
                continue
            body = text if pattern.startswith(r"\b(TODO") else code
            for match in re.finditer(pattern, body):
                line = body.count("\n", 0, match.start()) + 1
                complain(f"{path}:{line}", f"{match.group(0).strip()}: {why}")


def check_guards(files, complain):
    seen = {}
    for path, text in files.items():
        if not path.endswith((".h", ".cuh")):
            continue
        if "no\n * include guard" in text or "no include guard" in text.lower():
            continue  # an X-macro table says so in its head
        stem = re.sub(r"[^A-Za-z0-9]", "_", os.path.basename(path)).upper()
        first = re.search(r"^#ifndef (\w+)\n#define (\w+)\n", text, re.M)
        guard = first.group(1) if first else ""
        if not guard or first.group(2) != guard or not re.match(f"(GYRE_(\\w+_)?)?{stem}_?$", guard):
            complain(path, f"has no include guard GYRE_..._{stem}")
        elif not text.rstrip().endswith(("#endif", f"#endif /* {guard} */")):
            complain(path, "does not end with the guard's #endif")
        elif guard in seen:
            complain(path, f"shares its guard {guard} with {seen[guard]}")
        seen[guard] = path


def check_heads(files, complain):
    for path, text in files.items():
        if "SPDX-License-Identifier: Apache-2.0" not in text[:200]:
            complain(path, "does not open with its licence line")
        for number, line in enumerate(text.split("\n"), 1):
            if line.endswith((" ", "\t")) or "\t" in line:
                complain(f"{path}:{number}", "tab or trailing space")


PUBLIC_HEADER = "core/gyre.h"
DECLARED = re.compile(r"^GYRE_API[^;(]*?\b(gyre_\w+)\(", re.M)
INDEXED_FILE = re.compile(r"^ \*     (\S+\.c) ")
INDEXED_NAME = re.compile(r"\bgyre_\w+\b")


def index_of(header):
    """Function -> file, as the index in gyre.h's opening comment says."""
    index = {}
    path = None
    section = header.partition("---- index")[2].partition("*/")[0]
    for line in section.split("\n"):
        start = INDEXED_FILE.match(line)
        path = start.group(1) if start else path
        for name in INDEXED_NAME.findall(line):
            index[name] = path
    return index


def check_index(files, complain):
    """gyre.h's index names every function of gyre.h, with the file that defines it."""
    header = files.get(PUBLIC_HEADER, "")
    index = index_of(header)
    declared = set(DECLARED.findall(header))
    for name in sorted(declared - set(index)):
        complain(PUBLIC_HEADER, f"the index does not name {name}")
    for name in sorted(set(index) - declared):
        complain(PUBLIC_HEADER, f"the index names {name}, which is not declared")
    for name in sorted(declared & set(index)):
        definition = re.compile(rf"^[a-z][^;{{}}()]*\b{name}\([^;]*?\)\s*\{{", re.M)
        if not definition.search(files.get(index[name], "")):
            complain(PUBLIC_HEADER, f"the index says that {index[name]} defines {name}; it does not")


def check_format(root, paths, complain):
    tool = next((name for name in ("clang-format-14", "clang-format") if shutil.which(name)), None)
    if tool is None:
        complain("clang-format", "not installed (version 14 is needed)")
        return
    version = subprocess.run([tool, "--version"], capture_output=True, text=True).stdout
    if "version 14" not in version:
        print(f"note: formatting is not checked: {version.strip()} is not version 14")
        return
    for path in paths:
        done = subprocess.run([tool, "--dry-run", "-Werror", os.path.join(root, path)],
                              capture_output=True, text=True)
        if done.returncode != 0:
            complain(path, "is not as clang-format (version 14) leaves it")


def check_size(root, complain):
    """The limits of tests/ci/size."""
    program = os.path.join(root, "tests", "ci", "size")
    found = subprocess.run([sys.executable, program, "--check", root], capture_output=True, text=True, check=False)
    for line in found.stdout.splitlines():
        complain(*line.split(": ", 1))
    if found.stderr:
        complain("tests/ci/size", found.stderr.splitlines()[-1])


def main():
    arguments = [a for a in sys.argv[1:] if not a.startswith("-")]
    root = arguments[0] if arguments else os.path.join(os.path.dirname(__file__), "..")
    paths = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"],
                           capture_output=True, text=True, check=True).stdout.split("\n")
    paths = sorted(p for p in paths if p.endswith(SOURCE) and os.path.exists(os.path.join(root, p)))
    files = {}
    for path in paths:
        with open(os.path.join(root, path), encoding="utf-8") as file:
            files[path] = file.read()
    problems = []

    def complain(where, what):
        problems.append(f"{where}: {what}")

    check_includes(files, complain)
    check_calls(files, complain)
    check_guards(files, complain)
    check_heads(files, complain)
    check_index(files, complain)
    check_thresholds(root, complain)
    check_words(root, complain)
    check_size(root, complain)
    n_pages = check_docs(root, complain)
    if "--no-format" not in sys.argv:
        check_format(root, paths, complain)
    for problem in problems:
        print(problem)
    print(f"check_tree: {len(files)} files, {n_pages} pages, {len(problems)} violations")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
