#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/nccl_compat.md, our headers, libnccl.so.2 and tests/nccl/functions.txt name the same functions,
and none is missing that an installed header of NCCL 2.28 declares.

usage: check_abi.py SHIM_FOLDER TABLE LIBRARY    (exit status 77: a tool is missing)
"""
import glob
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../support"))
from files import read_text


def of_nccl():
    """The functions of NCCL 2.32: name to version."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "functions.txt")
    with open(path, encoding="utf-8") as file:
        return dict(line.split() for line in file if not line.startswith("#"))


def theirs():
    """The functions that an installed NCCL of the same version declares, with its device API's; none
    where there is none."""
    for folder in ("/usr/local/cuda/include", "/usr/include"):
        path = os.path.join(folder, "nccl.h")
        if not os.path.exists(path):
            continue
        text = re.sub(r"/\*.*?\*/", "", read_text(path), flags=re.S)
        if not re.search(r"^#define NCCL_MINOR 28$", text, re.M):
            continue
        names = set(re.findall(r"^\w[\w* ]*[ *](p?nccl\w+) *\(", text, re.M))
        for path in glob.glob(os.path.join(folder, "nccl_device", "*.h")):
            names |= set(re.findall(r"^NCCL_EXTERN_C __host__ \w+ (nccl\w+)\(", read_text(path), re.M))
        return names
    return set()


def of_device_table(shim):
    """The functions that nccl_real.c makes of one table, all of them refused."""
    assert re.search(r"^NCCL_DEVICE_FUNCTIONS\(REFUSE\)$", read_text(os.path.join(shim, "nccl_real.c")), re.M)
    table = re.search(r"^#define NCCL_DEVICE_FUNCTIONS\(X\)(.*?)\n\n", read_text(os.path.join(shim, "nccl_device.h")), re.M | re.S)
    return {"nccl" + name for name in re.findall(r"^\s+X\([^,]+, (\w+),", table[1], re.M)}


def main():
    shim, table, library = sys.argv[1:]
    errors = []
    names = []
    for header in ("nccl.h", "nccl_later.h", "nccl_device.h"):
        names += re.findall(r"^\s+X\([^,]+, (\w+),", read_text(os.path.join(shim, header)), re.M)
    found = re.findall(r"^\| (nccl[\w, ]+) \| ([\d.]+) \| (\w+) \| ?(.*)\|$", read_text(table), re.M)
    rows = [(name, *rest) for names_of_row, *rest in found for name in names_of_row.split(", ")]
    refused = set()
    for path in glob.glob(os.path.join(shim, "*.c")):
        bodies = re.findall(r"^NCCL_EXPORT [^{;]*?\bp(nccl\w+)\([^{;]*\)\n\{\n(.*?)^\}", read_text(path), re.M | re.S)
        # Refused: all that a function does without another library is to say so.
        refused |= {name for name, body in bodies if re.search(r"\b(nccl_unsupported|unsupported_unless_real)\(", body)}
    refused |= of_device_table(shim)
    declared = ["nccl" + name for name in names]
    listed = [row[0] for row in rows]
    missing = theirs() - set(declared) - {"p" + name for name in declared}
    if missing:
        errors.append(f"the installed nccl.h has {sorted(missing)} besides")
    if not declared or sorted(declared) != sorted(listed):
        errors.append(f"table and header differ in {sorted(set(declared) ^ set(listed))}, "
                      f"{len(listed)} rows for {len(declared)} functions")
    known = of_nccl()
    if set(known) != set(declared):
        errors.append(f"functions.txt and our headers differ in {sorted(set(known) ^ set(declared))}")
    for name, since, status, notes in rows:
        if since != known.get(name):
            errors.append(f"{name}: the table says since {since}, functions.txt {known.get(name)}")
        if status not in ("supported", "limits", "refused"):
            errors.append(f"{name}: status {status}")
        if status != "supported" and not notes.strip():
            errors.append(f"{name}: {status}, and no note says how")
        if (status == "refused") != (name in refused):
            errors.append(f"{name}: the table says {status}, the code otherwise")

    if not shutil.which("nm") or not shutil.which("readelf"):
        print("skipped the library: no nm or no readelf")
        return 1 if errors and not print(*errors, sep="\n") else 77
    run = lambda *command: subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout
    exported = {line.split()[-1] for line in run("nm", "-D", "--defined-only", library).splitlines()}
    wanted = set(declared) | {"p" + name for name in declared}
    if exported != wanted:
        errors.append(f"exports differ from the header in {sorted(exported ^ wanted)}")
    if "[libnccl.so.2]" not in run("readelf", "-d", library):
        errors.append("the SONAME is not libnccl.so.2")
    print(*errors, sep="\n")
    return 1 if errors else 0


sys.exit(main())
