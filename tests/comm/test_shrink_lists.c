/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/comm.h"
#include "tests/support/ranks.h"

#include <time.h>

enum { N = 4, NONE = -1, NO_CALL = -2 };

struct lists {
    int excluded[N]; /* by rank: whom it excludes, or NONE, or NO_CALL */
    int late;        /* calls when another rank has its error; NONE */
    const char *words;
    uint32_t n_ended; /* ranks whose call has ended */
    uint32_t n_there;
};

TEST_RANK(exclude_different_ranks)
{
    struct lists *lists = argument;
    const int *excluded = &lists->excluded[rank];
    gyre_comm *child = NULL;
    gyre_status status = GYRE_SUCCESS;
    while (rank == lists->late && gyre_load_acquire_u32(&lists->n_ended) == 0)
        sched_yield();
    if (*excluded != NO_CALL) {
        CHECK_BAD_USAGE(gyre_comm_shrink(comm, excluded, *excluded == NONE ? 0 : 1,
                                         GYRE_SHRINK_DEFAULT, &child, NULL),
                        lists->words);
        gyre_fetch_add_u32(&lists->n_ended, 1);
    }
    CHECK(child == NULL);
    CHECK_OK(gyre_comm_async_error(comm, &status));
    CHECK(status == GYRE_SUCCESS);
    gyre_fetch_add_u32(&lists->n_there, 1);
    test_await(&lists->n_there, (uint32_t)n_ranks); /* a rank that leaves would be another error */
}

static void check_lists(struct lists lists)
{
    test_on_threads(N, exclude_different_ranks, &lists);
}

TEST_CASE("two lists of equal length are an error on both ranks")
{
    check_lists((struct lists){.excluded = {3, 2, NO_CALL, NO_CALL},
                               .late = NONE,
                               .words = "ranks 0 and 1 do not go on with the same ranks"});
}

TEST_CASE("a lowest rank that excludes more is an error on all ranks")
{
    check_lists((struct lists){.excluded = {3, NONE, NONE, NONE},
                               .late = NONE,
                               .words = "do not go on with the same ranks (4 of 4 there, 3 here)"});
}

TEST_CASE("a lowest rank that excludes fewer is an error on all ranks")
{
    check_lists((struct lists){.excluded = {NONE, 3, 3, NO_CALL},
                               .late = NONE,
                               .words = "do not go on with the same ranks (3 of 4 there, 4 here)"});
}

TEST_CASE("ranks that come after the error get it too")
{
    check_lists((struct lists){.excluded = {3, NONE, 3, NO_CALL},
                               .late = 2,
                               .words = "ranks 0 and 1 do not go on with the same ranks"});
    check_lists((struct lists){.excluded = {3, NONE, 3, NONE},
                               .late = 3,
                               .words = "ranks 0 and 1 do not go on with the same ranks"});
    check_lists((struct lists){.excluded = {3, 3, NONE, NO_CALL},
                               .late = NONE,
                               .words = "ranks 0 and 2 do not go on with the same ranks"});
}

TEST_BEFORE
{
    /* Waiting for this exceeds the test's own limit. */
    setenv("GYRE_BOOTSTRAP_TIMEOUT", "3600", 1);
}
