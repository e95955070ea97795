/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/comm.h"
#include "tests/support/ranks.h"

#include <signal.h>

enum { COUNT = 4096 };

struct shared {
    uint64_t n_calls[TEST_MAX_RANKS]; /* so far, by rank; shared between the processes */
};

struct plan {
    struct shared *shared;
    int killed[2];
    int n_killed;
    int n_told;        /* how many of the dead are named; the first shrink finds the others */
    const char *words; /* of the error that finds them out */
};

static void check_sum(gyre_comm *comm, int parent_rank, float expected)
{
    float *data = NULL;
    int ordinal = -1;
    gyre_status status = GYRE_SUCCESS;
    CHECK_OK(gyre_comm_device(comm, NULL, &ordinal));
    CHECK_OK(gyre_mem_alloc((void **)&data, COUNT * sizeof(float), test_device(), ordinal));
    if (test_device() == GYRE_DEVICE_HOST)
        for (int i = 0; i < COUNT; i++)
            data[i] = (float)parent_rank;
    CHECK_OK(gyre_all_reduce(data, data, COUNT, GYRE_FLOAT32, GYRE_SUM, comm, NULL));
    CHECK_OK(gyre_all_reduce(data, data, COUNT, GYRE_FLOAT32, GYRE_MAX, comm, NULL));
    CHECK_OK(gyre_stream_synchronize(NULL, test_device()));
    if (test_device() == GYRE_DEVICE_HOST)
        CHECK_MSG(data[0] == expected && data[COUNT - 1] == expected, "%f", (double)data[0]);
    CHECK_OK(gyre_comm_async_error(comm, &status));
    CHECK(status == GYRE_SUCCESS);
    CHECK_OK(gyre_mem_free(data, test_device()));
}

TEST_RANK(leave_out_rank_1)
{
    const int excluded[] = {1};
    gyre_comm *child = NULL;
    int child_rank = -1;
    int n_children = 0;
    if (rank != 1) {
        CHECK_OK(gyre_comm_shrink(comm, excluded, 1, GYRE_SHRINK_DEFAULT, &child, NULL));
        CHECK_OK(gyre_comm_rank(child, &child_rank));
        CHECK_OK(gyre_comm_count(child, &n_children));
        CHECK(n_children == n_ranks - 1);
        CHECK(child_rank == (rank > 1 ? rank - 1 : rank));
        check_sum(child, rank, (float)(n_ranks * (n_ranks - 1) / 2 - 1));
    }
    /* The parent is as it was. */
    check_sum(comm, rank, (float)(n_ranks * (n_ranks - 1) / 2));
    if (child != NULL)
        CHECK_OK(gyre_comm_destroy(child));
}

TEST_CASE("a rank is left out of a healthy communicator")
{
    test_on_processes(4, leave_out_rank_1, NULL);
    test_on_threads(4, leave_out_rank_1, NULL);
}

TEST_ON_THREADS("a shrunk communicator shrinks again", 3)
{
    gyre_comm *first = NULL;
    gyre_comm *second = NULL;
    const int all_others[] = {0, 1};
    CHECK_OK(gyre_comm_shrink(comm, NULL, 0, GYRE_SHRINK_DEFAULT, &first, NULL));
    check_sum(first, rank, (float)(n_ranks * (n_ranks - 1) / 2));
    if (rank == 2) { /* of a shrunk communicator, to the very end */
        CHECK_OK(gyre_comm_shrink(first, all_others, 2, GYRE_SHRINK_DEFAULT, &second, NULL));
        check_sum(second, rank, 2.0F);
        CHECK_OK(gyre_comm_destroy(second));
    }
    CHECK_OK(gyre_comm_destroy(first));
}

TEST_RANK(shrink_alone)
{
    int n = 0;
    gyre_comm *child = NULL;
    CHECK_OK(gyre_comm_shrink(comm, NULL, 0, GYRE_SHRINK_DEFAULT, &child, NULL));
    CHECK_OK(gyre_comm_count(child, &n));
    CHECK(n == 1);
    CHECK_OK(gyre_comm_destroy(child));
}

TEST_CASE("a communicator of one rank shrinks")
{
    test_on_processes(1, shrink_alone, NULL);
    test_on_threads(1, shrink_alone, NULL);
}

static void wait_for(uint32_t *n_there, int n)
{
    gyre_fetch_add_u32(n_there, 1);
    test_await(n_there, (uint32_t)n);
}

TEST_RANK(wrong_arguments)
{
    const int self[] = {rank};
    const int none[] = {n_ranks};
    gyre_comm *child = NULL;
    CHECK_BAD_ARGUMENT(gyre_comm_shrink(comm, self, 1, GYRE_SHRINK_DEFAULT, &child, NULL),
                       "excludes itself");
    CHECK_BAD_ARGUMENT(gyre_comm_shrink(comm, none, 1, GYRE_SHRINK_DEFAULT, &child, NULL),
                       "not a rank");
    CHECK_BAD_ARGUMENT(gyre_comm_shrink(comm, NULL, 1, GYRE_SHRINK_DEFAULT, &child, NULL),
                       "no list");
    CHECK_BAD_ARGUMENT(gyre_comm_shrink(comm, none, 0, 2, &child, NULL), "flags");
    wait_for(argument, n_ranks); /* an abort ends other ranks' communicator too */
    CHECK_OK(gyre_comm_abort(comm));
    CHECK_BAD_USAGE(gyre_comm_shrink(comm, none, 0, GYRE_SHRINK_DEFAULT, &child, NULL),
                    "only GYRE_SHRINK_ABORT");
    CHECK(child == NULL);
}

TEST_CASE("wrong arguments are refused")
{
    uint32_t n_there = 0;
    test_on_threads(2, wrong_arguments, &n_there);
}

/* Rank 3 is left out, and another rank's config is refused. */
struct refusal {
    int rank;
    int flags;
    bool is_of_config;  /* before the call has an effect, else when parts are made */
    uint32_t n_refused; /* ranks that have their error */
    uint32_t n_there;
};

TEST_RANK(refuse_on_one_rank)
{
    struct refusal *refusal = argument;
    gyre_config config = test_config(rank);
    if (refusal->is_of_config)
        config.struct_bytes = 1;
    else
        config.transport = "pigeon";
    const int excluded[] = {3};
    char words[32] = "";
    gyre_comm *child = NULL;
    if (rank == 3) {
        wait_for(&refusal->n_there, n_ranks);
        return;
    }
    /* Before rank 2 comes. */
    while (rank == 2 && gyre_load_acquire_u32(&refusal->n_refused) == 0)
        sched_yield();
    if (rank != refusal->rank)
        snprintf(words, sizeof(words), "rank %d (", refusal->rank);
    CHECK_BAD_ARGUMENT(gyre_comm_shrink(comm, excluded, 1, refusal->flags, &child,
                                        rank == refusal->rank ? &config : NULL),
                       words);
    CHECK_MSG(strstr(gyre_last_error(), refusal->is_of_config ? "struct_bytes is 1" : "pigeon"),
              "%s", gyre_last_error());
    CHECK(child == NULL);
    gyre_fetch_add_u32(&refusal->n_refused, 1);
    test_await(&refusal->n_refused, 3);
    CHECK_OK(gyre_comm_shrink(comm, excluded, 1, refusal->flags, &child, NULL));
    if (child != NULL) {
        check_sum(child, rank, 3.0F);
        CHECK_OK(gyre_comm_destroy(child));
    }
    wait_for(&refusal->n_there, n_ranks);
}

TEST_CASE("a refused config is an error on all ranks at once")
{
    for (int i = 0; i < 8; i++) {
        struct refusal refusal = {.rank = i % 2,
                                  .flags =
                                      (i / 2) % 2 != 0 ? GYRE_SHRINK_ABORT : GYRE_SHRINK_DEFAULT,
                                  .is_of_config = i / 4 != 0};
        test_on_threads(4, refuse_on_one_rank, &refusal);
    }
}

static void reduce_until_error(gyre_comm *comm, int rank, struct shared *shared)
{
    float *data = NULL;
    int ordinal = -1;
    gyre_status status = GYRE_SUCCESS;
    CHECK_OK(gyre_comm_device(comm, NULL, &ordinal));
    CHECK_OK(gyre_mem_alloc((void **)&data, COUNT * sizeof(float), test_device(), ordinal));
    while (status == GYRE_SUCCESS) {
        status = gyre_all_reduce(data, data, COUNT, GYRE_FLOAT32, GYRE_SUM, comm, NULL);
        if (status == GYRE_SUCCESS)
            status = gyre_stream_synchronize(NULL, test_device());
        if (status == GYRE_SUCCESS)
            CHECK_OK(gyre_comm_async_error(comm, &status));
        gyre_fetch_add_u64(&shared->n_calls[rank], 1);
    }
    CHECK_MSG(status == GYRE_ERROR_REMOTE, "%s", gyre_status_name(status));
    CHECK_OK(gyre_mem_free(data, test_device()));
}

TEST_RANK(go_on_without_the_dead)
{
    const struct plan *plan = argument;
    gyre_comm *child = NULL;
    int sum = n_ranks * (n_ranks - 1) / 2;
    for (int i = 0; i < plan->n_killed; i++)
        sum -= plan->killed[i];
    reduce_until_error(comm, rank, plan->shared);
    if (plan->n_told < plan->n_killed)
        CHECK_FAILS(
            gyre_comm_shrink(comm, plan->killed, plan->n_told, GYRE_SHRINK_ABORT, &child, NULL),
            GYRE_ERROR_REMOTE, plan->words);
    CHECK_OK(gyre_comm_shrink(comm, plan->killed, plan->n_killed, GYRE_SHRINK_ABORT, &child, NULL));
    if (child == NULL)
        return;
    check_sum(child, rank, (float)sum);
    gyre_status status = GYRE_SUCCESS;
    CHECK_OK(gyre_comm_async_error(comm, &status));
    CHECK(status == GYRE_ERROR_REMOTE);
    CHECK_OK(gyre_comm_destroy(child));
}

static void kill_and_go_on(struct plan *plan, int n_ranks, const char *transport)
{
    pid_t pids[TEST_MAX_RANKS];
    if (n_ranks > test_most_ranks())
        return;
    plan->shared = test_share(sizeof(struct shared));
    setenv("GYRE_TRANSPORT", transport, 1);
    test_fork_ranks(n_ranks, go_on_without_the_dead, plan, pids);
    for (int rank = 0; rank < n_ranks; rank++)
        test_await_u64(&plan->shared->n_calls[rank], 10);
    /* By one signal to a process group: else a rank that is to die second could first shrink with
     * the survivors. */
    const pid_t group = pids[plan->killed[0]];
    for (int i = 0; i < plan->n_killed; i++)
        CHECK(setpgid(pids[plan->killed[i]], group) == 0);
    CHECK(kill(-group, SIGKILL) == 0);
    for (int rank = 0; rank < n_ranks; rank++) {
        bool is_killed = false;
        for (int i = 0; i < plan->n_killed; i++)
            is_killed = is_killed || plan->killed[i] == rank;
        CHECK_MSG(test_wait_rank(pids[rank]) == !is_killed, "rank %d", rank);
    }
    munmap(plan->shared, sizeof(*plan->shared));
    unsetenv("GYRE_TRANSPORT");
}

static const char *local_transport(void)
{
    return test_device() == GYRE_DEVICE_HOST ? "shm" : "p2p";
}

TEST_CASE("survivors go on without a killed rank")
{
    for (int dead = 0; dead < 3; dead++) { /* rank 0 takes the rendezvous with it */
        struct plan plan = {.killed = {dead}, .n_killed = 1, .n_told = 1};
        kill_and_go_on(&plan, 3, local_transport());
    }
}

TEST_CASE("survivors go on over sockets")
{
    struct plan plan = {.killed = {0, 2}, .n_killed = 2, .n_told = 2};
    kill_and_go_on(&plan, 4, "socket");
}

TEST_CASE("a second death is found out by the shrink")
{
    /* Dead before the meeting it has its old number, then its new one. */
    struct plan waited = {.killed = {1, 3}, .n_killed = 2, .n_told = 1, .words = "rank "};
    struct plan leader = {.killed = {1, 0}, .n_killed = 2, .n_told = 1, .words = "rank 0"};
    kill_and_go_on(&waited, 4, local_transport());
    kill_and_go_on(&leader, 4, local_transport());
}

/* One after the other, these would take longer than the test may. */
enum { N_SILENT = 200 };

TEST_ON_THREADS("strangers at the regroup listener keep nobody out", 3)
{
    struct gyre_sock_address addresses[GYRE_SOCK_LIST_MAX];
    const uint64_t deadline_ns = gyre_now_ns() + 60000000000ULL;
    char noise[256] = "GET / HTTP/1.1";
    gyre_comm *child = NULL;
    int silent[N_SILENT];
    int noisy = -1;
    int gone = -1;
    if (rank == 1) {
        CHECK(gyre_sock_list_read(&comm->links.infos[0].regroup_addresses, addresses) > 0);
        CHECK_OK(gyre_sock_connect(&addresses[0], deadline_ns, &gone));
        gyre_sock_close(gone);
        CHECK_OK(gyre_sock_connect(&addresses[0], deadline_ns, &noisy));
        CHECK_OK(gyre_sock_send(noisy, noise, sizeof(noise), deadline_ns));
        for (int i = 0; i < N_SILENT; i++)
            CHECK_OK(gyre_sock_connect(&addresses[0], deadline_ns, &silent[i]));
    }
    CHECK_OK(gyre_comm_shrink(comm, NULL, 0, GYRE_SHRINK_DEFAULT, &child, NULL));
    check_sum(child, rank, (float)(n_ranks * (n_ranks - 1) / 2));
    CHECK_OK(gyre_comm_destroy(child));
    if (rank == 1) {
        gyre_sock_close(noisy);
        for (int i = 0; i < N_SILENT; i++)
            gyre_sock_close(silent[i]);
    }
}

TEST_ON_THREADS("a shrink goes on in the background", 3)
{
    const int excluded[] = {0};
    gyre_comm *child = NULL;
    gyre_config config = test_config(rank);
    gyre_status status = GYRE_IN_PROGRESS;
    config.blocking = 0;
    if (rank == 0)
        return;
    CHECK(gyre_comm_shrink(comm, excluded, 1, GYRE_SHRINK_ABORT, &child, &config) ==
          GYRE_IN_PROGRESS);
    while (status == GYRE_IN_PROGRESS)
        CHECK_OK(gyre_comm_async_error(child, &status));
    CHECK_MSG(status == GYRE_SUCCESS, "%s", gyre_comm_last_error(child));
    check_sum(child, rank, (float)(n_ranks * (n_ranks - 1) / 2));
    CHECK_OK(gyre_comm_destroy(child));
}

TEST_ON_THREADS("a shrink is given up by destroying it", 2)
{
    gyre_comm *child = NULL;
    gyre_config config = test_config(rank);
    config.blocking = 0;
    if (rank == 0)
        return; /* never shrinks */
    CHECK(gyre_comm_shrink(comm, NULL, 0, GYRE_SHRINK_DEFAULT, &child, &config) ==
          GYRE_IN_PROGRESS);
    CHECK_OK(gyre_comm_destroy(child));
}

enum { NONE = -1, NO_CALL = -2 };

struct lists {
    int excluded[4]; /* by rank: whom it excludes, or NONE, or NO_CALL */
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
    wait_for(&lists->n_there, n_ranks); /* a rank that leaves would be another error */
}

static void check_lists(struct lists lists)
{
    test_on_threads(4, exclude_different_ranks, &lists);
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
