/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/simulate/run.h"
#include "tests/support/simulated.h"

#define N_RANKS 96 /* more than are compared of built-in ones */
#define NO_RANK -1

/* To the next rank. @early: the rank that copies its own block first. */
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

/* Without a grouping every rank counts as a host. */
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

static bool can_do(const struct gyre_shape *shape, struct gyre_ability *can_out,
                   const char **why_not)
{
    (void)shape;
    (void)why_not; /* it can do all shapes */
    *can_out = (struct gyre_ability){.reach = GYRE_REACH_RING};
    return true;
}

#define LATE_RANK 77 /* no sample */

/* A ring in which one rank passes blocks on by way of scratch. */
static void emit(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    const int n = shape->n_ranks;
    const struct gyre_ref in = gyre_in(0), next = gyre_peer((rank + 1) % n, 0);
    const struct gyre_ref from = gyre_peer((rank + n - 1) % n, 0), aside = gyre_scratch(0);
    gyre_builder_step(builder, rank, &in, 1, (struct gyre_ref[]){gyre_out(rank), next}, 2, 0);
    for (int i = 1; i < n; i++) {
        const int block = (rank + n - i) % n;
        const struct gyre_ref outs[] = {gyre_out(block), next};
        const int n_outs = i < n - 1 ? 2 : 1;
        if (rank == LATE_RANK)
            gyre_builder_step(builder, block, &from, 1, &aside, 1, 0);
        gyre_builder_step(builder, block, rank == LATE_RANK ? &aside : &from, 1, outs, n_outs, 0);
    }
    gyre_builder_min_depth(builder, 2);
}

/* A step costs 10 ns; the late rank has two a block. */
static void check_all_ranks(const struct gyre_algorithm *algorithm, const char *what)
{
    struct gyre_cost cost = plain_cost(HOP_NS, BYTES_PER_NS);
    cost.step_ns[GYRE_PROTO_SIMPLE] = 10;
    struct question question = {
        .algorithm = algorithm, .coll = GYRE_COLL_ALL_GATHER, .n_ranks = N_RANKS, .n_bytes = 64};
    const double folded_ns = time_of(&cost, &question);
    question.all_ranks = true;
    CHECK_TIME(&cost, &question, folded_ns);
    struct question even = question;
    even.algorithm = &gyre_algorithm_ring;
    CHECK_MSG(folded_ns > time_of(&cost, &even) + 1, "%s: the slow rank costs nothing", what);
}

TEST_CASE("a rank that differs is simulated, of plug-ins and of files")
{
    const struct gyre_shape shape = {.coll = GYRE_COLL_ALL_GATHER, .n_ranks = N_RANKS};
    const struct gyre_algorithm plugin = {.name = "late",
                                          .collectives = 1U << GYRE_COLL_ALL_GATHER,
                                          .can_do = can_do,
                                          .emit = emit,
                                          .from = "late.so"};
    struct gyre_program *programs[N_RANKS] = {NULL};
    struct gyre_given_programs given = {.n_variants = 1,
                                        .programs = {(const struct gyre_program *const *)programs}};
    struct gyre_algorithm from_file;
    bool has_all = true;
    check_all_ranks(&plugin, "plug-in");
    for (int rank = 0; rank < N_RANKS; rank++) {
        CHECK_OK(gyre_algorithm_emit(&plugin, &shape, rank, &programs[rank]));
        has_all = has_all && programs[rank] != NULL;
    }
    if (has_all) {
        CHECK_OK(gyre_algorithm_give(&given, NULL, &from_file));
        check_all_ranks(&from_file, "file");
    }
    for (int rank = 0; rank < N_RANKS; rank++)
        gyre_program_free(programs[rank]);
}
