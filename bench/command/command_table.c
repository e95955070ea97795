/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of subcommands. To add one, add a row: with the name of a program that CMake builds
 * into build/bench, or with a function that command.h declares.
 */
#include "bench/command/command.h"

#include <stddef.h>

const struct bench_command bench_commands[] = {
    {"doctor",
     "check this machine, or all machines of a job, and say how to mend them",
     {"gyre doctor", "mpirun -np 2 --host hostA,hostB gyre doctor --html doctor.html"},
     bench_command_doctor,
     NULL},
    {"bench",
     "measure a collective: gyre bench allreduce, allgather, ...",
     {"gyre bench allreduce -g 4 -b 8 -e 16M -f 8",
      "mpirun -np 4 gyre bench allreduce -b 8 -e 64M -f 8"},
     bench_command_bench,
     NULL},
    {"topo",
     "print what is connected how on this machine",
     {"gyre topo", "gyre topo --dump topology.xml"},
     NULL,
     "topo"},
    {"limits",
     "measure what the links of this machine's GPUs can do",
     {"gyre limits", "gyre limits -J limits.json"},
     NULL,
     "limits"},
    {"schedule",
     "print, prove and predict the program of a collective",
     {"gyre schedule --algo twoshot --coll all_reduce --ranks 4 --rank 1",
      "gyre schedule --algo ring --coll all_reduce --ranks 8 --rounds --verify"},
     NULL,
     "schedule"},
    {"tune",
     "measure the constants that predictions use",
     {"gyre tune -g 4 --output gyre_tuning.txt", "mpirun -np 4 gyre tune --output gyre_tuning.txt"},
     NULL,
     "tune"},
    {"env",
     "print every variable: its value, where the value comes from, what it does",
     {"gyre env", "gyre env --set"},
     bench_command_env,
     NULL},
    {"version",
     "print the version, and what was compiled in (also: gyre --version)",
     {"gyre version", "gyre --version"},
     bench_command_version,
     NULL},
    {NULL, NULL, {NULL, NULL}, NULL, NULL},
};

const char *const bench_command_benches[] = {"allreduce", "allgather",     "alltoall", "broadcast",
                                             "reduce",    "reducescatter", "sendrecv", NULL};
