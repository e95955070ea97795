#!/usr/bin/env python3
"""Litmus tests of gyre's memory orderings (docs/memory_order.md).

    tests/litmus/run.py SOURCE c11
        our own checker of C11's model (rc11.py): every test and every mutant of it
    tests/litmus/run.py SOURCE herd
        the same under herd7, and the tests in ARM64 instructions under its model of ARMv8; skipped
        without herd7 (HERD7 may name it)
    tests/litmus/run.py SOURCE arm64
        the instructions that compilers make of core/foundation/base/sync.h for ARM64; skipped without one
    tests/litmus/run.py SOURCE table
        docs/memory_order.md names every file that orders memory, no other file, and every test

A test says which outcome must not happen, which lines of gyre it stands for, and which changes of an ordering
(mutants) must be found: then the outcome can happen, or there is a data race. The lines must be in the source,
outside comments, each of them once or as often as the test says ("code 2 FILE: LINE").
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

import rc11

SKIPPED = 77
ORDERS = re.compile(r"gyre_(load_acquire|load_relaxed|store_release|store_relaxed|fetch_add|compare_exchange)_u"
                    r"|__atomic_|fence\.(acq_rel|proxy)|\bld\.|\bst\.|\bred\.|load_acquire_sys|load_relaxed_sys"
                    r"|store_relaxed_sys|fence_acq_rel_sys|__threadfence")
failures = []


def check(condition, text):
    if not condition:
        failures.append(text)
        print("FAIL " + text)


def read(path):
    with open(path, encoding="utf-8") as stream:
        return stream.read()


def read_code(path):
    """A source file without its comments."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", read(path), flags=re.S)


def tests_of(folder):
    paths = sorted(glob.glob(os.path.join(folder, "*.litmus")))
    check(paths, "no tests in " + folder)
    return [(os.path.basename(path)[:-len(".litmus")], read(path)) for path in paths]


def variants(text):
    """The test itself, then its mutants: (what was changed, text)."""
    yield None, text
    body = re.sub(r"\(\*.*?\*\)", "", text, flags=re.S)
    for old, new in re.findall(r"\(\* mutant (.*?) -> (.*?) \*\)", text):
        check(old in body, "a mutant changes nothing: " + old)
        yield f"{old} -> {new}", body.replace(old, new)


def squeeze(text):
    return re.sub(r"\s+", "", text)


def check_lines(source, name, text):
    lines = re.findall(r"\(\* code (?:(\d+) )?(\S+): (.*?) \*\)", text)
    check(lines, f"{name} names no line of gyre")
    for expected, path, line in lines:
        n_found = squeeze(read_code(os.path.join(source, path))).count(squeeze(line))
        check(n_found == int(expected or 1), f"{name}: {path} has {n_found} times, not {expected or 1}: {line}")


def report(name, change, is_found):
    what = name if change is None else f"{name}, {change}"
    if change is None:
        check(not is_found, f"{what}: the outcome can happen, or there is a race")
        print(f"ok   {what}: cannot happen")
    else:
        check(is_found, f"{what}: the change is not found")


def run_c11(source):
    for name, text in tests_of(os.path.dirname(os.path.abspath(__file__))):
        check_lines(source, name, text)
        n_mutants = -1
        for change, variant in variants(text):
            holds, races = rc11.decide(variant)
            report(name, change, holds or races)
            n_mutants += 1
        check(n_mutants > 0, f"{name} has no mutants")


def herd(command, options, text):
    """-> (can the condition hold?, is a race flagged?)"""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "test.litmus")
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)
        run = subprocess.run(command + options + [path], capture_output=True, text=True, timeout=300,
                             check=False)
    seen = re.search(r"^Observation \S+ (Never|Sometimes|Always)", run.stdout, re.M)
    check(seen, "herd7 says nothing: " + run.stdout + run.stderr)
    return bool(seen) and seen.group(1) != "Never", "undefined" in run.stdout.lower() or "Flag" in run.stdout


def run_herd(_source):
    command = os.environ.get("HERD7", "herd7").split()
    if shutil.which(command[0]) is None:
        print("skipped: no herd7 (part of herdtools7; HERD7 may name it)")
        sys.exit(SKIPPED)
    here = os.path.dirname(os.path.abspath(__file__))
    for name, text in tests_of(here):
        for change, variant in variants(text):
            found = herd(command, ["-model", "rc11.cat"], variant)
            check(found == rc11.decide(variant),
                  f"{name}, {change}: herd7 and rc11.py differ: {found}, {rc11.decide(variant)}")
            report(name, change, found[0] or found[1])
    for name, text in tests_of(os.path.join(here, "aarch64")):
        for change, variant in variants(text):
            report("aarch64/" + name, change, herd(command, [], variant)[0])


# What the compiler must make of each function, as regular expressions of instructions or of gcc's out-of-line
# atomics, and what it may not make.
ARM64 = {
    "gyre_load_acquire_u64(a)": (r"\bldap?r\b|\bldar\b", None),
    "gyre_load_acquire_u32(c)": (r"\bldap?r\b|\bldar\b", None),
    "gyre_load_relaxed_u64(a)": (r"\bldr\b", r"ldar|ldapr|dmb"),
    "gyre_store_release_u64(a, b)": (r"\bstlr\b", None),
    "gyre_store_release_u32(c, d)": (r"\bstlr\b", None),
    "gyre_store_relaxed_u64(a, b)": (r"\bstr\b", r"stlr|dmb"),
    "gyre_fetch_add_u64(a, b)": (r"ldaddal|__aarch64_ldadd8_acq_rel|ldaxr(.|\n)*stlxr", None),
    "gyre_fetch_add_u32(c, d)": (r"ldaddal|__aarch64_ldadd4_acq_rel|ldaxr(.|\n)*stlxr", None),
    "gyre_compare_exchange_u32(c, d, 1)": (r"casal|__aarch64_cas4_acq_rel|ldaxr(.|\n)*stlxr", None),
}


def arm64_compilers():
    """Commands of the compilers for ARM64 that this machine has."""
    found = []
    if shutil.which("aarch64-linux-gnu-gcc"):
        found.append(["aarch64-linux-gnu-gcc"])
    for name in ("clang", "clang-14"):
        command = [name, "--target=aarch64-linux-gnu"]
        if shutil.which(name) and subprocess.run(command + ["-fsyntax-only", "-x", "c", "-"], text=True,
                                                 input="#include <sched.h>\n", capture_output=True,
                                                 check=False).returncode == 0:
            found.append(command)
            break
    return found


def run_arm64(source):
    compilers = arm64_compilers()
    if not compilers:
        print("skipped: no compiler for ARM64 (gcc-aarch64-linux-gnu)")
        sys.exit(SKIPPED)
    code = '#include "core/foundation/base/sync.h"\n'
    for i, call in enumerate(ARM64):
        code += (f"uint64_t f{i}(uint64_t *a, uint64_t b, uint32_t *c, uint32_t d);\n"
                 f"uint64_t f{i}(uint64_t *a, uint64_t b, uint32_t *c, uint32_t d)\n"
                 f"{{ (void)a, (void)b, (void)c, (void)d; "
                 f"{'' if 'store' in call else 'return '}{call}; {'return 0;' if 'store' in call else ''} }}\n")
    for compiler in compilers:
        run = subprocess.run(compiler + ["-std=c11", "-D_GNU_SOURCE", "-O2", "-S", "-I", source, "-x", "c", "-o",
                                         "-", "-"], input=code, text=True, capture_output=True, check=False)
        check(run.returncode == 0, f"{compiler[0]}: {run.stderr}")
        for i, (call, (wanted, refused)) in enumerate(ARM64.items()):
            body = re.search(rf"^f{i}:[^\n]*\n(.*?)\.size", run.stdout, re.S | re.M)
            check(body and re.search(wanted, body.group(1)), f"{compiler[0]}: {call}: {body and body.group(1)}")
            if refused is not None:
                check(body and not re.search(refused, body.group(1)), f"{compiler[0]}: {call} is stronger than said")
        print(f"ok   {compiler[0]}: {len(ARM64)} functions")


def run_table(source):
    page = read(os.path.join(source, "docs", "memory_order.md"))
    for name, _ in tests_of(os.path.dirname(os.path.abspath(__file__))):
        check(f"`{name}`" in page, f"docs/memory_order.md does not name the test {name}")
    for folder in ("core", "transport", "kernels", "bootstrap"):
        for root, _, names in os.walk(os.path.join(source, folder)):
            for name in names:
                path = os.path.relpath(os.path.join(root, name), source)
                if name.endswith((".c", ".h", ".cu", ".cuh")) and ORDERS.search(
                        read_code(os.path.join(source, path))):
                    check(f"`{path}`" in page, f"docs/memory_order.md does not name {path}")
    rows = re.findall(r"^\| `((?:core|transport|kernels|bootstrap)/[^`]+)` \|", page, re.M)
    check(len(rows) > 40, f"docs/memory_order.md has only {len(rows)} rows of files")
    for path in rows:
        exists = os.path.isfile(os.path.join(source, path))
        check(exists, f"docs/memory_order.md has a row of {path}, which does not exist")
        check(not exists or ORDERS.search(read_code(os.path.join(source, path))),
              f"docs/memory_order.md has a row of {path}, which orders nothing any more")


def main():
    if len(sys.argv) != 3 or sys.argv[2] not in ("c11", "herd", "arm64", "table"):
        print(__doc__)
        return 2
    {"c11": run_c11, "herd": run_herd, "arm64": run_arm64, "table": run_table}[sys.argv[2]](sys.argv[1])
    print(f"{len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
