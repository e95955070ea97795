/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/ranks.h"

#include <time.h>

static gyre_config without_blocking(int rank)
{
    gyre_config config = test_config(rank);
    config.blocking = 0;
    return config;
}

static gyre_status poll_end(gyre_comm *comm)
{
    gyre_status status = GYRE_IN_PROGRESS;
    while (status == GYRE_IN_PROGRESS) {
        CHECK_OK(gyre_comm_async_error(comm, &status));
        sched_yield();
    }
    return status;
}

static void reduce_once(gyre_comm *comm, int n_ranks)
{
    float *data = NULL;
    int ordinal = -1;
    CHECK_OK(gyre_comm_device(comm, NULL, &ordinal));
    if (test_device() != GYRE_DEVICE_HOST)
        return; /* the host cannot look at it */
    CHECK_OK(gyre_mem_alloc((void **)&data, 4 * sizeof(float), test_device(), ordinal));
    for (int i = 0; i < 4; i++)
        data[i] = (float)(i + 1);
    CHECK_OK(gyre_all_reduce(data, data, 4, GYRE_FLOAT32, GYRE_SUM, comm, NULL));
    CHECK_OK(gyre_stream_synchronize(NULL, test_device()));
    CHECK(data[3] == (float)(4 * n_ranks));
    CHECK_OK(gyre_mem_free(data, test_device()));
}

TEST_CASE("one thread makes all ranks one after the other")
{
    enum { N = 4 };
    gyre_comm *comms[N];
    gyre_stream streams[N];
    gyre_unique_id id;
    float data[N];
    if (test_device() != GYRE_DEVICE_HOST)
        return;
    CHECK_OK(gyre_get_unique_id(&id));
    for (int rank = 0; rank < N; rank++) {
        const gyre_config config = without_blocking(rank);
        CHECK(gyre_comm_init_rank(&comms[rank], N, &id, rank, &config) == GYRE_IN_PROGRESS);
        CHECK(comms[rank] != NULL);
    }
    for (int rank = 0; rank < N; rank++)
        CHECK(poll_end(comms[rank]) == GYRE_SUCCESS);
    CHECK_OK(gyre_group_start());
    for (int rank = 0; rank < N; rank++) {
        data[rank] = (float)rank;
        CHECK_OK(gyre_stream_create(&streams[rank], GYRE_DEVICE_HOST, -1));
        CHECK_OK(gyre_all_reduce(&data[rank], &data[rank], 1, GYRE_FLOAT32, GYRE_SUM, comms[rank],
                                 streams[rank]));
    }
    CHECK_OK(gyre_group_end());
    for (int rank = 0; rank < N; rank++) {
        test_end_stream(streams[rank], GYRE_DEVICE_HOST);
        CHECK(data[rank] == 6.0F);
        CHECK(gyre_comm_finalize(comms[rank]) == GYRE_IN_PROGRESS);
    }
    for (int rank = 0; rank < N; rank++)
        CHECK(poll_end(comms[rank]) == GYRE_SUCCESS);
    test_destroy_all(comms, N);
}

TEST_CASE("the end of a group says that something goes on")
{
    enum { N = 2 };
    gyre_comm *comms[N] = {NULL};
    gyre_unique_id id;
    if (test_most_ranks() < N)
        return;
    CHECK_OK(gyre_get_unique_id(&id));
    CHECK_OK(gyre_group_start());
    for (int rank = 0; rank < N; rank++) {
        const gyre_config config = without_blocking(rank);
        CHECK(gyre_comm_init_rank(&comms[rank], N, &id, rank, &config) == GYRE_IN_PROGRESS);
    }
    CHECK(gyre_group_end() == GYRE_IN_PROGRESS);
    for (int rank = 0; rank < N; rank++)
        CHECK(poll_end(comms[rank]) == GYRE_SUCCESS);
    /* And the next group has nothing of it. */
    CHECK_OK(gyre_group_start());
    CHECK_OK(gyre_group_end());
    test_destroy_all(comms, N);
}

TEST_CASE("splits of one thread form a group")
{
    enum { N = 4 };
    gyre_comm *comms[N];
    gyre_comm *halves[N];
    const gyre_config config = test_config(0);
    if (test_most_ranks() < N)
        return;
    CHECK_OK(gyre_comm_init_all(comms, N, NULL, &config));
    CHECK_OK(gyre_group_start());
    for (int rank = 0; rank < N; rank++)
        CHECK_OK(gyre_comm_split(comms[rank], rank == 3 ? GYRE_SPLIT_NOCOLOR : rank % 2, 0,
                                 &halves[rank], NULL));
    CHECK_OK(gyre_group_end());
    for (int rank = 0; rank < N; rank++) {
        int n_ranks = 0;
        if (rank < 3)
            CHECK_OK(gyre_comm_count(halves[rank], &n_ranks));
        CHECK(rank == 3 ? halves[rank] == NULL : n_ranks == (rank == 1 ? 1 : 2));
    }
    for (int rank = 0; rank < N; rank++) {
        if (halves[rank] != NULL)
            CHECK_OK(gyre_comm_destroy(halves[rank]));
    }
    test_destroy_all(comms, N);
}

TEST_CASE("calls are refused until it is made")
{
    gyre_comm *comm = NULL;
    gyre_unique_id id;
    gyre_status status = GYRE_SUCCESS;
    int n_ranks = 0;
    float data[4] = {0};
    const gyre_config config = without_blocking(0);
    CHECK_OK(gyre_get_unique_id(&id));
    /* Rank 1 never comes. */
    CHECK(gyre_comm_init_rank(&comm, 2, &id, 0, &config) == GYRE_IN_PROGRESS);
    CHECK_BAD_USAGE(gyre_all_reduce(data, data, 4, GYRE_FLOAT32, GYRE_SUM, comm, NULL),
                    "still being made");
    CHECK_BAD_USAGE(gyre_comm_count(comm, &n_ranks), "still being made");
    CHECK_OK(gyre_comm_async_error(comm, &status));
    CHECK(status == GYRE_IN_PROGRESS);
    /* Nobody has to wait for BOOTSTRAP_TIMEOUT. */
    CHECK_OK(gyre_comm_abort(comm));
    CHECK_OK(gyre_comm_async_error(comm, &status));
    CHECK(status == GYRE_ERROR_ABORTED);
    CHECK_OK(gyre_comm_destroy(comm));
    CHECK_BAD_USAGE(gyre_comm_destroy(comm), "was destroyed");
}

TEST_CASE("what failed in the background is the communicator's error")
{
    gyre_comm *comm = NULL;
    gyre_unique_id id;
    int rank = 0;
    const gyre_config config = without_blocking(0);
    memset(&id, 7, sizeof(id));
    CHECK(gyre_comm_init_rank(&comm, 2, &id, 0, &config) == GYRE_IN_PROGRESS);
    CHECK(poll_end(comm) == GYRE_ERROR_INVALID_ARGUMENT);
    CHECK_HAS(gyre_comm_last_error(comm), "not a unique id");
    CHECK_BAD_ARGUMENT(gyre_comm_rank(comm, &rank), "never made");
    CHECK_OK(gyre_comm_destroy(comm));
    comm = NULL;
    CHECK_BAD_ARGUMENT(gyre_comm_init_rank(&comm, 2, &id, 2, &config), "rank 2");
    CHECK(comm == NULL);
}

TEST_CASE("a peer learns that an init was aborted")
{
    enum { N = 3 };
    gyre_comm *comms[N];
    gyre_unique_id id;
    if (test_most_ranks() < N)
        return;
    CHECK_OK(gyre_get_unique_id(&id));
    for (int rank = 0; rank < N - 1; rank++) { /* the last never comes */
        const gyre_config config = without_blocking(rank);
        CHECK(gyre_comm_init_rank(&comms[rank], N, &id, rank, &config) == GYRE_IN_PROGRESS);
    }
    CHECK_OK(gyre_comm_destroy(comms[1]));
    /* Rank 1 had joined, or never comes. */
    gyre_status status = GYRE_SUCCESS;
    CHECK_OK(gyre_comm_async_error(comms[0], &status));
    CHECK(status == GYRE_IN_PROGRESS || status == GYRE_ERROR_REMOTE);
    CHECK_OK(gyre_comm_destroy(comms[0]));
}

TEST_RANK(split_and_poll)
{
    gyre_comm *child = NULL;
    gyre_config config = without_blocking(rank);
    const int color = rank == 0 ? GYRE_SPLIT_NOCOLOR : 5;
    CHECK(gyre_comm_split(comm, color, 0, &child, &config) == GYRE_IN_PROGRESS);
    CHECK((child == NULL) == (rank == 0));
    if (child != NULL)
        CHECK(poll_end(child) == GYRE_SUCCESS);
    CHECK(poll_end(comm) == GYRE_SUCCESS);
    reduce_once(comm, n_ranks);
    if (child == NULL)
        return;
    reduce_once(child, n_ranks - 1);
    CHECK(gyre_comm_finalize(child) == GYRE_IN_PROGRESS);
    CHECK(poll_end(child) == GYRE_SUCCESS);
    CHECK_BAD_USAGE(gyre_comm_finalize(child), "was finalized");
    CHECK_OK(gyre_comm_destroy(child));
}

TEST_CASE("a split goes on in the background")
{
    test_on_processes(3, split_and_poll, NULL);
    test_on_threads(4, split_and_poll, NULL);
}

TEST_CASE("a parent may go while its split is under way")
{
    enum { N = 2 };
    gyre_comm *comms[N];
    gyre_comm *child = NULL;
    const gyre_config config = test_config(0);
    gyre_config own = without_blocking(0);
    if (test_most_ranks() < N)
        return;
    CHECK_OK(gyre_comm_init_all(comms, N, NULL, &config));
    CHECK(gyre_comm_split(comms[0], 1, 0, &child, &own) == GYRE_IN_PROGRESS);
    CHECK_BAD_USAGE(gyre_comm_finalize(comms[0]), "busy with a split");
    CHECK_OK(gyre_comm_abort(comms[0])); /* rank 1 never splits */
    CHECK(poll_end(child) == GYRE_ERROR_ABORTED);
    CHECK_OK(gyre_comm_destroy(child));
    test_destroy_all(comms, N);
}

TEST_CASE("a process may exit while an init goes on")
{
    enum { N_PROCESSES = 12 };
    pid_t pids[N_PROCESSES];
    if (test_device() != GYRE_DEVICE_HOST)
        return;
    for (int i = 0; i < N_PROCESSES; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            const long after_ns = i * 250000L;
            enum { N = 3 };
            gyre_comm *comms[N];
            gyre_unique_id id;
            const struct timespec pause = {0, after_ns};
            CHECK_OK(gyre_get_unique_id(&id));
            for (int rank = 0; rank < N; rank++) {
                const gyre_config config = without_blocking(rank);
                (void)gyre_comm_init_rank(&comms[rank], N, &id, rank, &config);
            }
            nanosleep(&pause, NULL);
            exit(0);
        } /* each at another moment of it */
    }
    for (int i = 0; i < N_PROCESSES; i++) {
        int status = 0;
        CHECK(waitpid(pids[i], &status, 0) == pids[i]);
        CHECK_MSG(!WIFSIGNALED(status), "signal %d in process %d", WTERMSIG(status), i);
    }
}

TEST_BEFORE
{
    /* Waiting for this exceeds the test's own limit. */
    setenv("GYRE_BOOTSTRAP_TIMEOUT", "3600", 1);
}
