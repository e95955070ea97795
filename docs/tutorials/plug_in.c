/* SPDX-License-Identifier: Apache-2.0
 *
 * A plug-in: a library with an algorithm for any number of ranks, which gyre loads by its name.
 */
#include "docs/tutorials/ranks.h"

/* The library is xor.c of docs/extend.md, built as the page says; a test does that, too. */
void run_rank(int rank, gyre_comm *comm)
{
    int32_t mine = 10 * rank, all[4];
    must(gyre_all_gather(&mine, all, 1, GYRE_INT32, comm, NULL));
    wait_for_stream();
    printf("rank %d has %d %d %d %d\n", rank, (int)all[0], (int)all[1], (int)all[2], (int)all[3]);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        printf("usage: plug_in libxor.so\n");
        return 2;
    }
    setenv("GYRE_ALGORITHMS", argv[1], 1); /* loaded and named by every communicator */
    setenv("GYRE_ALGO", "all_gather:xor", 1);
    run_ranks(4);
    return 0;
}
