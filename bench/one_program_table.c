/* SPDX-License-Identifier: Apache-2.0
 *
 * The wheel has one copy of the GPU kernels, because libgyre.so has all programs.
 */
#include "bench/one_program.h"

#include <stdio.h>
#include <string.h>

#define ENTRY(name) {#name, bench_main_##name},
static const struct program {
    const char *name;
    int (*run)(int argc, char **argv);
} programs[] = {BENCH_PROGRAM_TABLE(ENTRY)};

int gyre_one_program(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof(programs) / sizeof(programs[0]); i++)
        if (strcmp(argv[1], programs[i].name) == 0)
            return programs[i].run(argc - 1, argv + 1);
    fprintf(stderr, "one_program: the first argument must name one of:");
    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
        fprintf(stderr, " %s", programs[i].name);
    fprintf(stderr, "\n");
    return 2;
}
