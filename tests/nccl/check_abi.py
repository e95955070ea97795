#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/nccl_compat.md, nccl.h and libnccl.so.2 name the same functions.

usage: check_abi.py SHIM_FOLDER TABLE LIBRARY    (exit status 77: a tool is missing)
"""
import glob
import os
import re
import shutil
import subprocess
import sys


def main():
    shim, table, library = sys.argv[1:]
    errors = []
    with open(os.path.join(shim, "nccl.h"), encoding="utf-8") as file:
        names = re.findall(r"^\s+X\([^,]+, (\w+),", file.read(), re.M)
    with open(table, encoding="utf-8") as file:
        rows = re.findall(r"^\| (nccl\w+) \| (\w+) \| ?(.*)\|$", file.read(), re.M)
    refused = set()
    for path in glob.glob(os.path.join(shim, "*.c")):
        with open(path, encoding="utf-8") as file:
            bodies = re.findall(r"^NCCL_EXPORT [^{;]*?\bp(nccl\w+)\([^{;]*\)\n\{\n(.*?)^\}",
                                file.read(), re.M | re.S)
        # Refused: all that a function does without another library is to say so.
        refused |= {name for name, body in bodies if "return unsupported(" in body}
    declared = ["nccl" + name for name in names]
    listed = [row[0] for row in rows]
    if not declared or sorted(declared) != sorted(listed):
        errors.append(f"table and header differ in {sorted(set(declared) ^ set(listed))}, "
                      f"{len(listed)} rows for {len(declared)} functions")
    for name, status, notes in rows:
        if status not in ("supported", "limits", "refused"):
            errors.append(f"{name}: status {status}")
        if status != "supported" and not notes.strip():
            errors.append(f"{name}: {status}, and no note says how")
        if (status == "refused") != (name in refused):
            errors.append(f"{name}: the table says {status}, the code otherwise")

    if not shutil.which("nm") or not shutil.which("readelf"):
        print("skipped the library: no nm or no readelf")
        return 1 if errors and not print(*errors, sep="\n") else 77
    run = lambda *command: subprocess.run(command, check=True, text=True,
                                          stdout=subprocess.PIPE).stdout
    exported = {line.split()[-1] for line in run("nm", "-D", "--defined-only", library).splitlines()}
    wanted = set(declared) | {"p" + name for name in declared}
    if exported != wanted:
        errors.append(f"exports differ from the header in {sorted(exported ^ wanted)}")
    if "[libnccl.so.2]" not in run("readelf", "-d", library):
        errors.append("the SONAME is not libnccl.so.2")
    print(*errors, sep="\n")
    return 1 if errors else 0


sys.exit(main())
