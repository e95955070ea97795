#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/extend.md: what its blocks say is built and used as they stand there, and what goes wrong is told.

    python3 tests/docs/extend.py BENCH_FOLDER SOURCE [cc]
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../bench"))
from running import clean_environment, free_port, read_text, write_text

SMALL = ["-b", "1K", "-e", "4K", "-f", "4", "-n", "2", "-w", "1", "--device", "host"]
# Entries of libraries that are none. `void *` is the table of gyre's functions.
EMPTY = "int gyre_something_else;"
REFUSES = "const void *gyre_algorithms_v1(const void *host) { return 0; }"
OF_ANOTHER_VERSION = "const void *gyre_algorithms_v1(const void *host) { static unsigned v[16] = {7}; return v; }"
OF_OTHER_HEADERS = "const void *gyre_algorithms_v1(const void *host) { static unsigned v[16] = {1, 8}; return v; }"


def blocks_of(page):
    """The indented blocks of a page, without their indent."""
    blocks, block = [], []
    for line in page.split("\n") + ["end"]:
        if line.startswith("    ") or (line == "" and block):
            block.append(line[4:])
        elif block:
            blocks.append("\n".join(block).strip("\n") + "\n")
            block = []
    return blocks


class Rig:
    def __init__(self, bench, source, folder, cc):
        self.bench, self.source, self.folder, self.cc = bench, source, folder, cc
        self.blocks = blocks_of(read_text(os.path.join(source, "docs", "extend.md")))

    def block(self, first):
        found = [block for block in self.blocks if block.startswith(first)]
        assert len(found) == 1, f"docs/extend.md has {len(found)} blocks that begin with {first}"
        return found[0]

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        write_text(self.path(name), text)
        return self.path(name)

    def library(self, name, text):
        """-z defs: the linker refuses a library that needs a symbol of gyre."""
        source = self.write(name + ".c", text)
        subprocess.run([self.cc, "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-shared", "-fPIC",
                        "-Wl,-z,defs", f"-I{self.source}", "-o", self.path(name + ".so"), source], check=True)
        return self.path(name + ".so")

    def run(self, program, *options, status=0, algorithms="", **variables):
        environment = {**clean_environment(), **variables}
        if algorithms:
            environment["GYRE_ALGORITHMS"] = algorithms
        done = subprocess.run([os.path.join(self.bench, program), *options], capture_output=True, text=True,
                              env=environment, cwd=self.folder, timeout=100, check=False)
        assert done.returncode == status, (program, options, done)
        return done.stdout + done.stderr

    def gather(self, n_ranks, *options, **more):
        return self.run("allgather", "-g", str(n_ranks), *SMALL, *options, **more)

    def run_ranks(self, algorithms, *options):
        """A process for each rank, each with its own GYRE_ALGORITHMS."""
        ranks, port = [], str(free_port())
        for rank, own in enumerate(algorithms):
            environment = {**clean_environment(), "RANK": str(rank), "WORLD_SIZE": str(len(algorithms)),
                           "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                           "GYRE_BOOTSTRAP_TIMEOUT": "60"}  # ranks that do not meet say why, before this test gives up
            if own:
                environment["GYRE_ALGORITHMS"] = own
            ranks.append(subprocess.Popen([os.path.join(self.bench, "allgather"), *SMALL, *options],
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment))
        outputs = [rank.communicate(timeout=100)[0] for rank in ranks]
        return [rank.returncode for rank in ranks], "\n".join(outputs)


def check_algorithm(rig):
    source = rig.block("// xor.c")
    xor = rig.library("libxor", source)
    # The page's commands, as they stand there: sources first, then the benches of this build.
    build, export, *commands = rig.block("cc -shared").strip().split("\n")
    assert build == "cc -shared -fPIC -I. -o libxor.so xor.c" and export == "export GYRE_ALGORITHMS=$PWD/libxor.so"
    assert len(commands) == 2
    for command in commands:
        program, *options = command.split()
        options += ["--device", "host", "-n", "2", "-w", "1"] if program.endswith("allgather") else []
        rig.run(program.removeprefix("build/bench/"), *options, algorithms=xor)

    # A name: 2^k ranks, and no other number. Nothing takes it unasked.
    debug = {"GYRE_DEBUG": "INFO", "GYRE_DEBUG_SUBSYS": "TUNING"}
    told = rig.gather(4, "--algo", "xor", algorithms=xor, **debug)
    assert "algorithm xor joins from libxor.so" in told and "libxor.so: xor all_gather of 4 ranks" in told, told
    assert "Out of bounds values : 0 OK" in told, told
    told = rig.gather(3, "--algo", "xor", algorithms=xor, status=1)
    assert "algorithm xor cannot do all_gather here: it needs 2^k ranks" in told, told
    told = rig.gather(4, algorithms=xor, **debug)
    assert "xor all_gather" not in told, told

    # A row: other shapes fall to the next row, and explain-choice says why.
    row = re.search(r"`(way all_gather [^`]*xor simple)`",
                    open(os.path.join(rig.source, "docs", "extend.md"), encoding="utf-8").read()).group(1)
    rows = rig.write("my.rows", f"measured here\n{row}\n")
    told = rig.run("gyre", "explain-choice", "1K", "--coll", "all_gather", "--ranks", "4", algorithms=xor,
                   GYRE_TUNING_FILE=rows)
    assert "host: xor simple" in told and f"my.rows:2  {row}" in told, told
    told = rig.run("gyre", "explain-choice", "1K", "--coll", "all_gather", "--ranks", "3", algorithms=xor,
                   GYRE_TUNING_FILE=rows)
    assert "host: xor" not in told and f"my.rows:2  {row}: it needs 2^k ranks" in told, told
    for n_ranks in (3, 4):
        told = rig.gather(n_ranks, algorithms=xor, GYRE_TUNING_FILE=rows, **debug)
        assert ("xor all_gather of 4 ranks is proved" in told.replace(", placed", "")) == (n_ranks == 4), told
    return xor, source


def check_program_file(rig):
    """Programs of two shapes, as an algorithm of their own name."""
    text = "".join(rig.run("schedule", "--algo", "bruck", "--coll", "all_gather", "--ranks", n) for n in ("3", "5"))
    programs = rig.write("mine.gyre", text.replace("bruck", "mine"))
    for n_ranks in (3, 5):
        told = rig.gather(n_ranks, "--algo", "mine", algorithms=programs)
        assert "Out of bounds values : 0 OK" in told, told
    told = rig.gather(4, "--algo", "mine", algorithms=programs, status=1)
    assert "algorithm mine cannot do all_gather here: its file has no programs for it" in told, told
    told = rig.gather(3, "--algo", "bruck", algorithms=rig.write("taken.gyre", text), status=1)
    assert "algorithm bruck: there is one of this name" in told, told
    part = rig.run("schedule", "--algo", "ring", "--coll", "broadcast", "--ranks", "3").replace("ring", "mine")
    told = rig.gather(3, algorithms=rig.write("part.gyre", part), status=1)
    assert "mine broadcast of 3 ranks has programs for 1 roots; it needs all" in told, told
    return programs


def check_bad_libraries(rig, source):
    bad = {"none": ("", "No such file"),
           "empty": (EMPTY, "it exports no gyre_algorithms_v1"),
           "refuses": (REFUSES, "it does not work with version 1"),
           "version": (OF_ANOTHER_VERSION, "it is of version 7, this gyre knows version 1"),
           "headers": (OF_OTHER_HEADERS, "built with the headers of another gyre"),
           "named": (source.replace('"xor"', '"ring"'), "algorithm ring: there is one of this name"),
           "long": (source.replace('"xor"', '"a_name_that_is_too_long"'), "a name has 1 to 15"),
           "no_emit": (source.replace(".emit = emit,", ".emit = 0,").replace("static void emit", "void emit"),
                       "it needs collectives (not send_recv), can_do and emit")}
    for name, (text, cause) in bad.items():
        path = rig.library(name, text) if text else rig.path("none.so")
        told = rig.gather(2, algorithms=path, status=1)
        assert f"GYRE_ALGORITHMS: {path}: " in told and cause in told, (name, told)
    # An option that names its algorithm: what failed is told, too.
    told = rig.gather(2, "--algo", "xor", algorithms=rig.path("none.so"), status=2)
    assert "none.so: " in told and "No such file" in told and "xor" in told.split("No such file")[1], told
    # A wrong program: the verifier's finding, on the first call.
    wrong = rig.library("wrong", source.replace("gyre_out(other)", "gyre_out(rank)"))
    told = rig.gather(4, "--algo", "xor", algorithms=wrong, status=1)
    assert "wrong.so: xor all_gather of 4 ranks: the verifier refuses it" in told, told
    told = rig.gather(4, algorithms=wrong)  # nothing else is lost
    assert "Out of bounds values : 0 OK" in told, told


def check_agreement(rig, xor, source, programs):
    other = rig.library("other/libxor", source.replace("in turn", "in another turn"))
    build = r"algorithm xor of libxor\.so, build [0-9a-f]{16}"
    for files, first, second in (([xor, ""], build, "no algorithm"), (["", xor], "no algorithm", build),
                                 ([xor, other], build, build), ([xor, programs], build, "algorithm mine of mine.gyre")):
        status, told = rig.run_ranks(files)
        assert 0 not in status, told
        assert re.search(f'"{first}[^"]*" on rank 0, "{second}[^"]*" on rank 1', told), told
    status, told = rig.run_ranks([xor, xor], "--algo", "xor")
    assert status == [0, 0], told


def check_kernel(rig):
    """The row stands first in the table and is found; nvcc compiles the kernel, where there is one."""
    rig.write("fused_own.cuh", rig.block("// fused_own.cuh"))
    table = read_text(os.path.join(rig.source, "kernels/cuda/host/kernel_rows.c"))
    first = '#include "kernels/cuda/fused/'
    assert first in table
    source = rig.write("rows.c", table.replace(first, '#include "fused_own.cuh"\n' + first, 1))
    asks = rig.write("asks.c", '''#include "kernels/cuda/host/kernel_rows.h"
#include <stdio.h>
int main(void)
{
    struct gyre_fused_call call = {.proto = GYRE_PROTO_SIMPLE, .pattern = GYRE_FUSED_ALL_GATHER,
        .arithmetic = GYRE_FUSED_COPY, .is_placed = true, .is_aligned = true, .is_unscaled = true,
        .n_peers = 1, .n_tiles = 1, .depth = 4, .most_shared_bytes = UINT32_MAX};
    for (int n_peers = 1; n_peers <= 2; n_peers++)
        for (uint32_t i = 0; i < gyre_n_kernel_rows; i++) {
            call.n_peers = (uint8_t)n_peers;
            if (gyre_kernel_row_fits(&gyre_kernel_rows[i], &call)) {
                puts(gyre_kernel_rows[i].name);
                break;
            }
        }
    return 0;
}
''')
    folders = [f"-I{rig.source}", f"-I{rig.folder}"]
    # This table is linked in place of the library's.
    subprocess.run([rig.cc, "-D_GNU_SOURCE", "-std=gnu11", *folders, asks, source,
                    os.path.join(os.path.dirname(rig.bench), "libgyre_static.a"), "-lm", "-lpthread", "-ldl",
                    "-o", rig.path("asks")], check=True)
    found = subprocess.run([rig.path("asks")], capture_output=True, text=True, check=True).stdout.split("\n")
    assert found[:2] == ["own all-gather", "simple all-gather"], found
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        print("no nvcc here: the kernel of the page is not compiled")
        return
    unit = rig.write("own.cu", '#include "fused_own.cuh"\nconst void *own = (const void *)own_all_gather;\n')
    subprocess.run([nvcc, "-std=c++17", "-arch=sm_90", *folders, "-c", unit, "-o", rig.path("own.o")], check=True)


def check_protocol(rig):
    """With its line in the table the tables of names, payloads and costs have it; nvcc compiles its step."""
    rig.write("own.cuh", rig.block("// own.cuh"))
    line = re.search(r"`(X\(OWN, [^`]*\))`", read_text(os.path.join(rig.source, "docs", "extend.md"))).group(1)
    types = read_text(os.path.join(rig.source, "core/foundation/model/types.h"))
    last = "    X(LAMPORT, lamport, 16, 16)\n"
    assert last in types
    os.makedirs(rig.path("own/core/foundation/model"))
    rig.write("own/core/foundation/model/types.h", types.replace(last, f"{last[:-1]} \\\n    {line}\n", 1))
    asks = rig.write("asks_own.c", '''#include "core/foundation/model/connector.h"
#include "algorithms/simulate/simulate.h"
#include <stdio.h>
int main(void)
{
    const int own = gyre_name_find(gyre_proto_names, GYRE_N_PROTOS, "own");
    printf("%d %u %d\\n", own, gyre_slot_payload_bytes((enum gyre_proto)own, 128),
           (int)gyre_proto_slots((enum gyre_proto)own));
    char *costs;
    return gyre_cost_to_text(&gyre_cost_host, &costs) != GYRE_SUCCESS || puts(costs) < 0;
}
''')
    folders = [f"-I{rig.path('own')}", f"-I{rig.source}", f"-I{rig.folder}"]
    sources = [os.path.join(rig.source, name) for name in ("core/foundation/model/schedule.c", "algorithms/simulate/cost.c",
                                                           "core/engine/plan/tuner/filter.c")]
    subprocess.run([rig.cc, "-D_GNU_SOURCE", "-std=gnu11", *folders, asks, *sources,
                    os.path.join(os.path.dirname(rig.bench), "libgyre_static.a"), "-lm", "-lpthread", "-ldl",
                    "-o", rig.path("asks_own")], check=True)
    told = subprocess.run([rig.path("asks_own")], capture_output=True, text=True, check=True).stdout
    assert told.startswith("4 64 2\n") and "own_step_ns" in told and "own_network_hop_ns" in told, told
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        print("no nvcc here: the protocol of the page is not compiled")
        return
    unit = rig.write("own_step.cu", '''#include "own.cuh"
#include "kernels/cuda/interpreter/per_thread_lines.cuh"
__global__ void run(const __grid_constant__ struct gyre_cuda_args_one args)
{
    const struct block block = open_block<GYRE_PROTO_OWN>(args.common, args.work, args.program, blockIdx.x);
    run_lines<per_thread_step<own_format, GYRE_FLOAT32, GYRE_SUM>>(block);
    close_block<GYRE_PROTO_OWN>(block);
}
''')
    subprocess.run([nvcc, "-std=c++17", "-arch=sm_90", *folders, "-c", unit, "-o", rig.path("own_step.o")], check=True)


def main():
    bench, source = (os.path.abspath(folder) for folder in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "other"))
        rig = Rig(bench, source, folder, sys.argv[3] if len(sys.argv) > 3 else "cc")
        xor, text = check_algorithm(rig)
        programs = check_program_file(rig)
        check_bad_libraries(rig, text)
        check_agreement(rig, xor, text, programs)
        check_kernel(rig)
        check_protocol(rig)
    print("ok")


if __name__ == "__main__":
    main()
