#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs compiled against headers of several versions of NCCL run on gyre's libnccl.so.2, and what
gyre's headers declare is what NCCL's declare.

usage: clients.py own|installed|nccl SOURCE_FOLDER LIBNCCL LIBGYRE

own: against gyre's headers. installed: against one of NCCL 2.28 in a folder of the system. nccl: against NCCL's of 2.28, 2.30 and 2.32; the variable NCCL_HEADERS
names a folder with one include folder for each version (FOLDER/2.32.3/nccl.h), or is `pypi`: fetch
the wheels with pip, about 700 MB. Without it the exit status is 77.
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../support"))
from files import read_text, write_text

VERSIONS = ("2.28.9", "2.30.7", "2.32.3")
INSTALLED = ("/usr/local/cuda/include", "/usr/include")

# What nccl.h needs of CUDA's headers.
CUDA_RUNTIME = """#pragma once
#include <stddef.h>
#define CUDART_VERSION 13000
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
"""

# What callers compile in, by the version that it came with: sizes, places and numbers.
CONFIG_FIELDS = """magic version blocking minCTAs maxCTAs netName splitShare trafficClass commName shrinkShare
nvlinkCentricSched""".split()
LAYOUT = {22800: ["sizeof(ncclUniqueId)", "sizeof(ncclConfig_t)", "sizeof(ncclSimInfo_t)",
                  "offsetof(ncclSimInfo_t, estimatedTime)",
                  *(f"offsetof(ncclConfig_t, {field})" for field in CONFIG_FIELDS), *"""ncclInProgress ncclRemoteError
ncclNumResults ncclBfloat16 ncclFloat8e4m3 ncclFloat8e5m2 ncclAvg ncclNumOps ncclScalarDevice ncclScalarHostImmediate
NCCL_SHRINK_ABORT NCCL_SPLIT_NOCOLOR NCCL_REVOKE_DEFAULT NCCL_WIN_REQUIRED_ALIGNMENT NCCL_CTA_POLICY_DEFAULT
NCCL_CTA_POLICY_EFFICIENCY NCCL_CTA_POLICY_ZERO NCCL_WIN_COLL_SYMMETRIC""".split()],
          22900: ["sizeof(ncclWaitSignalDesc_t)", "offsetof(ncclWaitSignalDesc_t, ctx)", "ncclStatGpuMemTotal",
                  "NCCL_SUSPEND_MEM"],
          23200: ["sizeof(ncclCollConfig_t)", "offsetof(ncclCollConfig_t, algSelection)",
                  "offsetof(ncclCollConfig_t, launchCompletionEvent)", "sizeof(ncclConfigExt_t)",
                  "offsetof(ncclConfigExt_t, val)", "sizeof(ncclEncryptionConfig_t)",
                  "offsetof(ncclEncryptionConfig_t, psk)", "NCCL_ENCRYPTION_MODE_PSK"]}


def code(version):
    """NCCL's number of a version: 23203 of 2.32.3."""
    return int("".join(f"{int(part):02}" for part in version.split(".")))


def fetch(version, folder):
    """The include folder of one version out of its wheel; None if it cannot be had."""
    done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest",
                           folder, f"nvidia-nccl-cu13=={version}"], check=False,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wheels = [name for name in os.listdir(folder) if version in name]
    if done.returncode or not wheels:
        print(f"skipped {version}: pip: {done.stderr.strip().splitlines()[-1:]}")
        return None
    wheel = os.path.join(folder, wheels[0])
    subprocess.run([sys.executable, "-m", "zipfile", "-e", wheel, os.path.join(folder, version)], check=True)
    os.remove(wheel)
    return os.path.join(folder, version, "nvidia", "nccl", "include")


def functions(source, name):
    """The functions in the tables of one of gyre's headers: name to type and parameters."""
    text = read_text(os.path.join(source, "core", "nccl", name)).replace("\\\n", " ")
    return {"nccl" + match[1]: (match[0].strip(), match[2]) for match in
            re.findall(r"\bX\(([^,()]+), (\w+),\s*(\((?:[^()]|\(\))*\))\)", text)}


def compile_c(text, flags, out):
    path = out + ".c"
    write_text(path, text)
    command = shlex.split(os.environ.get("CC", "cc")) + [path, "-o", out] + flags
    return subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True)


class Header:
    """A version's header, and how programs are compiled against it."""

    def __init__(self, source, work, libraries, folder=None, version=None):
        self.source, self.work, self.libraries, self.version = source, work, libraries, version
        self.flags = ["-I" + source, "-I" + os.path.join(source, "core", "nccl"), "-DCLIENT_OF_GYRE"]
        self.lines = '#include <nccl.h>\n#include "core/nccl/nccl_later.h"\n'
        self.text = None
        if folder:
            self.flags = ["-I" + folder, "-I" + os.path.join(work, "cuda")]
            self.lines = "#include <nccl.h>\n"
            self.text = read_text(os.path.join(folder, "nccl.h"))

    def run_client(self):
        out = os.path.join(self.work, "client")
        text = read_text(os.path.join(self.source, "tests", "nccl", "header_client.c"))
        libraries = list(self.libraries)
        flags = self.flags + shlex.split(os.environ.get("USER_CFLAGS", "")) + libraries + [
            "-pthread"] + ["-Wl,-rpath," + os.path.dirname(os.path.abspath(path)) for path in libraries]
        made = compile_c(text, flags, out)
        if made.returncode:
            return [f"the client does not compile:\n{made.stderr}"]
        version = self.version or "2.32.3"
        done = subprocess.run([out], check=False, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=100,
                              env={**os.environ, "GYRE_NCCL_VERSION": version})
        print(done.stdout.strip())
        if done.returncode == 0 and not done.stdout.rstrip().endswith(f"library {code(version)}"):
            return [f"with GYRE_NCCL_VERSION={version} it printed {done.stdout}"]
        return [] if done.returncode == 0 else [f"the client ended with {done.returncode}:\n{done.stderr}"]

    def layout(self, number):
        """The values of LAYOUT that a version has."""
        lines = "".join(f'    printf("{text} %lld\\n", (long long)({text}));\n'
                        for since, texts in LAYOUT.items() if since <= number for text in texts)
        out = os.path.join(self.work, "layout")
        made = compile_c("#include <stddef.h>\n#include <stdio.h>\n" + self.lines +
                         "int main(void)\n{\n" + lines + "    return 0;\n}\n", self.flags, out)
        assert made.returncode == 0, made.stderr
        return subprocess.run([out], check=True, stdout=subprocess.PIPE, text=True).stdout

    def compare(self, own):
        """Declares every function again as gyre does: a difference is an error of the compiler.
        ncclResetDebugInit is a macro in later headers."""
        declared = {**functions(self.source, "nccl.h"), **functions(self.source, "nccl_later.h")}
        known = {name: how for name, how in declared.items()
                 if re.search(rf"\b{name}\b *\(", self.text) and name != "ncclResetDebugInit"}
        lines = "".join(f"{kind} {name}{parameters};\n" for name, (kind, parameters) in known.items())
        made = compile_c(self.lines + "#include <stdint.h>\n" + lines + "int main(void) { return 0; }\n",
                         self.flags, os.path.join(self.work, "declared"))
        errors = [f"declarations differ:\n{made.stderr}"] if made.returncode else []
        theirs = set(re.findall(r"^[\w* ]*\bnccl\w+ *\(", re.sub(r"/\*.*?\*/", "", self.text, flags=re.S), re.M))
        names = {re.search(r"(nccl\w+) *\($", line).group(1) for line in theirs}
        missing = names - set(declared)
        if missing:
            errors.append(f"gyre does not declare {sorted(missing)}")
        if len(known) < 35:
            errors.append(f"only {len(known)} functions were compared")
        layouts = [header.layout(code(self.version)) for header in (own, self)]
        if layouts[0] != layouts[1]:
            errors.append(f"layouts differ:\n{layouts[0]}\nNCCL's:\n{layouts[1]}")
        print(f"{self.version}: {len(known)} declarations are the same")
        return errors


def main():
    what, source, *libraries = sys.argv[1:]
    errors, n_run = [], 0
    with tempfile.TemporaryDirectory() as work:
        os.mkdir(os.path.join(work, "cuda"))
        for name in ("cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h"):
            write_text(os.path.join(work, "cuda", name), CUDA_RUNTIME if name == "cuda_runtime.h" else "")
        own = Header(source, work, libraries)
        if what == "own":
            errors += own.run_client()
            print(*errors, sep="\n")
            return 1 if errors else 0
        if what == "installed":
            folders = [folder for folder in INSTALLED if os.path.exists(os.path.join(folder, "nccl.h")) and
                       "#define NCCL_MINOR 28\n" in read_text(os.path.join(folder, "nccl.h"))]
            if not folders:
                print(f"skipped: no NCCL 2.28 header in {' or '.join(INSTALLED)}")
                return 77
            errors = Header(source, work, libraries, folders[0], VERSIONS[0]).compare(own)
            print(*errors, sep="\n")
            return 1 if errors else 0
        where = os.environ.get("NCCL_HEADERS", "")
        if not where:
            print("skipped: NCCL_HEADERS=pypi fetches NCCL's headers with pip (700 MB), "
                  "NCCL_HEADERS=FOLDER has them as FOLDER/2.32.3/nccl.h")
            return 77
        for version in VERSIONS:
            folder = fetch(version, work) if where == "pypi" else os.path.join(where, version)
            if folder is None or not os.path.exists(os.path.join(folder, "nccl.h")):
                print(f"skipped {version}: no nccl.h in {folder}")
                continue
            header = Header(source, work, libraries, folder, version)
            errors += [f"{version}: {error}" for error in header.run_client() + header.compare(own)]
            n_run += 1
    print(*errors, sep="\n")
    return 1 if errors else 0 if n_run else 77


sys.exit(main())
