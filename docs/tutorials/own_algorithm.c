/* SPDX-License-Identifier: Apache-2.0
 *
 * An algorithm of your own: a text file of programs, proved and then run for all calls it fits.
 */
#include "docs/tutorials/ranks.h"

enum { COUNT = 1000 };

static const char *const path = "build/tests/line.gyre"; /* any name */

/* Two ranks: rank 0 sends its vector, rank 1 adds and sends the sum back. */
static const char programs[] = "program line all_reduce\n"
                               "ranks 2 rank 0 root 0 chunks 1 lanes 1 depth 1\n"
                               "worker 0\n"
                               "  chunk 0: in 0 -> to 1\n"
                               "  chunk 0: from 1 -> out 0\n"
                               "end\n"
                               "program line all_reduce\n"
                               "ranks 2 rank 1 root 0 chunks 1 lanes 1 depth 1\n"
                               "worker 0\n"
                               "  chunk 0: from 0 + in 0 -> out 0, to 0 final\n"
                               "end\n";

void run_rank(int rank, gyre_comm *comm)
{
    float numbers[COUNT];
    for (int i = 0; i < COUNT; i++)
        numbers[i] = (float)(rank + i);
    must(gyre_all_reduce(numbers, numbers, COUNT, GYRE_FLOAT32, GYRE_SUM, comm, NULL));
    wait_for_stream();
    printf("rank %d: %g, %g ... %g\n", rank, (double)numbers[0], (double)numbers[1],
           (double)numbers[COUNT - 1]);
}

int main(int argc, char **argv)
{
    FILE *file = fopen(argc > 1 ? argv[1] : path, "w");
    if (file == NULL || fputs(programs, file) < 0 || fclose(file) != 0)
        return 1;
    setenv("GYRE_ALGO_FILE", argc > 1 ? argv[1] : path, 1); /* before the communicator */
    run_ranks(2);
    return 0;
}
