/* SPDX-License-Identifier: Apache-2.0
 *
 * A row of your own: a file says which algorithm carries out which calls. An observer shows it.
 */
#include "docs/tutorials/ranks.h"

static const char *const path = "build/tests/own.rows"; /* any name */
static const char rows[] = "measured 4 ranks of this machine, 2026-12\n"
                           "way all_reduce bytes<=1K -> ring simple\n"
                           "way all_reduce bytes<=64K -> tree simple\n";

static void *submitted(void *none, const gyre_observed_call *call)
{
    return (void)none, (void)call, NULL;
}
static void launching(void *none, const gyre_observed_call *call, int n)
{
    (void)none, (void)call, (void)n;
}
static void at_time(void *none, void *tag, uint64_t ns)
{
    (void)none, (void)tag, (void)ns;
}
static void finished(void *none, void *tag)
{
    (void)none, (void)tag;
}
static void closed(void *none)
{
    (void)none;
}

static void launched(void *none, const gyre_observed_call *call, int n_calls)
{
    for (int i = 0; i < n_calls; i++)
        printf("%zu numbers: %s, %s\n", call[i].count, call[i].algorithm, call[i].protocol);
    (void)none;
}

void run_rank(int rank, gyre_comm *comm)
{
    static float numbers[4][16384];
    const gyre_observer observer = {.struct_bytes = sizeof(observer),
                                    .version = GYRE_VERSION,
                                    .submitted = submitted,
                                    .launching = launching,
                                    .launched = launched,
                                    .begun = at_time,
                                    .ended = at_time,
                                    .finished = finished,
                                    .closed = closed};
    if (rank == 0)
        must(gyre_comm_observe(comm, &observer));
    for (size_t count = 64; count <= 16384; count *= 16)
        must(gyre_all_reduce(numbers[rank], numbers[rank], count, GYRE_FLOAT32, GYRE_SUM, comm,
                             NULL));
    wait_for_stream();
}

int main(int argc, char **argv)
{
    FILE *file = fopen(argc > 1 ? argv[1] : path, "w");
    if (file == NULL || fputs(rows, file) < 0 || fclose(file) != 0)
        return 1;
    setenv("GYRE_TUNING_FILE", argc > 1 ? argv[1] : path, 1);
    run_ranks(4);
    return 0;
}
