#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""That check_docs.py finds each kind of mistake on a page, and nothing on a page without one.

    python3 tests/docs/test_check_docs.py FOLDER      the folder of check_docs.py
"""
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
from check_docs import check_docs  # noqa: E402

SOURCE = """/* SPDX-License-Identifier: Apache-2.0 */
/* gone() was here; see docs/page.md */
static int used(void);
int gyre_add(int a, int b)
{
    return called(a) + b;
}
"""
# Text of the page, what must be said of it; None: nothing.
CASES = [
    ("`core/a.c` has `gyre_add()`; [here](../core/a.c#gyre_add), [there](#a-page)", None),
    ("[page](page.md#a-page), `a.c`, `core/*.c`, build/bench/x, https://a.b/core/none.c", None),
    ("git show 123abc:docs/old.txt", None),
    ("x" * 110, None),
    ("x" * 111, "columns"),
    ("`core/b.c`", "core/b.c does not exist"),
    ("see core/b.c for it", "core/b.c does not exist"),
    ("`b.c`", "no file b.c"),
    ("`core/a.c#gone`", "does not define gone"),
    ("[a](../core/a.c#gone)", "does not define gone"),
    ("[a](../core/a.c#called)", "does not define called"),
    ("[a](../core/b.c)", "does not exist"),
    ("[a][b]\n\n[b]: ../core/b.c", "does not exist"),
    ("[a](#another)", "no heading"),
    ("`gyre_subtract`", "not in the sources"),
    ("`called()`", None),
    ("    build/bench/x --size 4 \\\n        --json f -- other --strange", None),
    ("`gyre x --size 4`, `gyre plot`, gyre is here", None),
    ("    build/bench/y", "no program build/bench/y"),
    ("    cd build && ./bench/x --length 4", "no program of bench has --length"),
    ("    build/bench/x -n 1 \\\n      --length 4", "no program of bench has --length"),
    ("    build/bench/gyre y --size", "no command gyre y"),
    ("    gyre y --size", "no command gyre y"),
    ("    bench/x.c --size", "cannot be executed"),
    ("`subtract()`", "not in the sources"),
]


def write(root, path, text):
    os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
    with open(os.path.join(root, path), "w", encoding="utf-8") as file:
        file.write(text)


def complaints(root):
    found = []
    check_docs(root, lambda where, what: found.append(f"{where}: {what}"))
    return found


def check_case(root, text, expected):
    write(root, "docs/page.md", f"# A page\n\n{text}\n")
    found = complaints(root)
    is_right = not found if expected is None else len(found) == 1 and expected in found[0]
    if not is_right:
        print(f"FAIL {text!r}: expected {expected}, got {found}")
    return is_right


def main():
    n_failed = 0
    with tempfile.TemporaryDirectory() as root:
        try:
            subprocess.run(["git", "init", "-q", root], check=True)
        except FileNotFoundError:
            print("skipped: no git")
            return 77
        write(root, "core/a.c", SOURCE)
        write(root, "bench/x.c", '{"size", "json"}\n')
        write(root, "bench/gyre.c", '{"x"}\n')
        for text, expected in CASES:
            n_failed += not check_case(root, text, expected)
        write(root, "core/a.c", SOURCE.replace("docs/page.md", "docs/gone.md"))
        n_failed += not check_case(root, "", "docs/gone.md does not exist")
        write(root, "core/a.c", SOURCE)
        for line, expected in (("    tests/run.py BUILD", None), ("    run.py BUILD", "is tests/run.py from")):
            write(root, "tests/run.py", f'"""Runs.\n\n{line}\n"""\n')
            n_failed += not check_case(root, "", expected)
    print(f"{len(CASES) + 3} cases, {n_failed} failed")
    return 0 if n_failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
