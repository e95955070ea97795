/* SPDX-License-Identifier: Apache-2.0
 *
 * All programs in one library (cmake/GyreOneProgram.cmake). The build renames each main() to
 * bench_main_NAME() and includes this header first, which declares that name.
 */
#ifndef GYRE_BENCH_ONE_PROGRAM_H
#define GYRE_BENCH_ONE_PROGRAM_H

#define BENCH_PROGRAM_TABLE(X) \
    X(allgather)               \
    X(allreduce)               \
    X(alltoall)                \
    X(bottleneck)              \
    X(broadcast)               \
    X(draw)                    \
    X(gather)                  \
    X(gyre)                    \
    X(limits)                  \
    X(reduce)                  \
    X(reducescatter)           \
    X(scatter)                 \
    X(schedule)                \
    X(sendrecv)                \
    X(topo)                    \
    X(tune)

#define BENCH_DECLARE_PROGRAM(name) int bench_main_##name(int argc, char **argv);
BENCH_PROGRAM_TABLE(BENCH_DECLARE_PROGRAM)

/** Argv[1] names the program. Returns its exit status, 2 = unknown program. */
__attribute__((visibility("default"))) int gyre_one_program(int argc, char **argv);

#endif
