/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/simulate/network.h"
#include "tests/support/check.h"

#define N_RANKS 96 /* more than are compared of a built-in algorithm */
#define NO_RANK -1

/* Every rank sends its block to the next rank. One rank copies its own block first.
 * @early: that rank. */
static struct gyre_program *make_program(const struct gyre_shape *shape, int rank, int early)
{
    const int previous = (rank + N_RANKS - 1) % N_RANKS;
    const struct gyre_ref in = gyre_in(0), own = gyre_out(rank), got = gyre_out(previous);
    const struct gyre_ref next = gyre_peer((rank + 1) % N_RANKS, 0), from = gyre_peer(previous, 0);
    struct gyre_builder *builder = NULL;
    struct gyre_program *program = NULL;
    CHECK_OK(gyre_builder_open("shift", shape, rank, 1, &builder));
    if (builder == NULL)
        return NULL;
    if (rank == early)
        gyre_builder_step(builder, rank, &in, 1, &own, 1, 0);
    gyre_builder_step(builder, rank, &in, 1, &next, 1, 0);
    gyre_builder_step(builder, previous, &from, 1, &got, 1, 0);
    CHECK_OK(gyre_builder_close(builder, &program));
    return program;
}

/* How many hosts are kept? Without a grouping every rank counts as a host. */
static unsigned count_kept_hosts(int early)
{
    const struct gyre_shape shape = {.coll = GYRE_COLL_ALL_GATHER, .n_ranks = N_RANKS};
    const struct gyre_machine machine = {.grouping = NULL};
    struct gyre_program *programs[N_RANKS];
    struct gyre_given_programs given = {.n_variants = 1,
                                        .programs = {(const struct gyre_program *const *)programs}};
    struct gyre_algorithm algorithm;
    struct gyre_sim_fold fold = {.n_kept_hosts = 0};
    bool has_all = true;
    for (int rank = 0; rank < N_RANKS; rank++) {
        programs[rank] = make_program(&shape, rank, early);
        has_all = has_all && programs[rank] != NULL;
    }
    if (has_all) {
        CHECK_OK(gyre_algorithm_give(&given, NULL, &algorithm));
        CHECK_OK(gyre_sim_fold_find(&algorithm, &shape, &machine, GYRE_SIM_FOLD_ALL, &fold));
    }
    for (int rank = 0; rank < N_RANKS; rank++)
        gyre_program_free(programs[rank]);
    return fold.n_kept_hosts;
}

TEST_RUNS("given programs that are alike are kept once", CHECK(count_kept_hosts(NO_RANK) == 1))

TEST_CASE("one given program that differs keeps all ranks")
{
    for (int early = 0; early < N_RANKS; early += 5)
        CHECK_MSG(count_kept_hosts(early) == N_RANKS, "rank %d differs", early);
}
