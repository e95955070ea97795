/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/comm.h"
#include "core/foundation/device/host_stream.h"
#include "tests/support/ranks.h"

enum { N_COMMS = 3, N_ELEMS = 100, N_ROUNDS = 50 };

/* A call that hangs becomes an error. */
#define OPERATION_TIMEOUT_MS "20000"

struct sum {
    gyre_comm *comm;
    int32_t *values; /* on the device */
};

static struct sum make_sum(gyre_comm *comm)
{
    const int32_t ones[N_ELEMS] = {1, 1, 1};
    struct sum sum = {.comm = comm};
    CHECK_OK(gyre_mem_alloc((void **)&sum.values, sizeof(ones), test_device(),
                            comm->self.device_info.ordinal));
    CHECK_OK(comm->self.device->ops->copy(comm->self.device, sum.values, ones, sizeof(ones)));
    return sum;
}

static gyre_status add_up(struct sum *sum, gyre_stream stream)
{
    return gyre_all_reduce(sum->values, sum->values, N_ELEMS, GYRE_INT32, GYRE_SUM, sum->comm,
                           stream);
}

static void check_sum(struct sum *sum, int n_ranks, int n_calls)
{
    int32_t values[N_ELEMS];
    uint32_t expected = 1;
    for (int i = 0; i < n_calls; i++)
        expected *= (uint32_t)n_ranks;
    CHECK_OK(sum->comm->self.device->ops->copy(sum->comm->self.device, values, sum->values,
                                               sizeof(values)));
    CHECK_MSG((uint32_t)values[0] == expected && values[3] == 0, "%d, not %u", values[0], expected);
    CHECK_OK(gyre_mem_free(sum->values, test_device()));
}

static gyre_stream make_stream(const gyre_comm *comm)
{
    gyre_stream stream = NULL;
    CHECK_OK(gyre_stream_create(&stream, test_device(), comm->self.device_info.ordinal));
    return stream;
}

static void finish_stream(gyre_stream stream)
{
    test_end_stream(stream, test_device());
}

TEST_RANK(call_in_own_orders)
{
    struct sum sums[N_COMMS] = {make_sum(comm)};
    gyre_stream stream = make_stream(comm);
    for (int i = 1; i < N_COMMS; i++) {
        gyre_comm *child = NULL;
        CHECK_OK(gyre_comm_split(comm, 0, rank, &child, NULL));
        sums[i] = make_sum(child);
    }
    for (int round = 0; round < N_ROUNDS; round++) {
        CHECK_OK(gyre_group_start());
        for (int i = 0; i < N_COMMS; i++) {
            const int step = 1 + (round / 2 + rank) % 2;
            CHECK_OK(add_up(&sums[(i * step + rank + round) % N_COMMS], stream));
        }
        CHECK_OK(gyre_group_end());
    }
    finish_stream(stream);
    for (int i = 0; i < N_COMMS; i++)
        check_sum(&sums[i], n_ranks, N_ROUNDS);
    for (int i = 1; i < N_COMMS; i++)
        CHECK_OK(gyre_comm_destroy(sums[i].comm));
}

static void ranks_may_name_communicators_in_any_order(void)
{
    setenv("GYRE_TIMEOUT", OPERATION_TIMEOUT_MS, 1);
    test_on_processes(2, call_in_own_orders, NULL); /* forks: before there are threads */
    test_on_threads(2, call_in_own_orders, NULL);
    test_on_threads(3, call_in_own_orders, NULL);
}

TEST_CASE("communicators whose calls are compared may share a stream")
{
    setenv("GYRE_CHECK", "calls", 1);
    ranks_may_name_communicators_in_any_order();
}

/* It calls the pair's communicator first. */
TEST_ON_THREADS_WITH("a message may skip a rank", 3, "GYRE_TIMEOUT=" OPERATION_TIMEOUT_MS)
{
    gyre_comm *pair = NULL;
    struct sum message = make_sum(comm), all = make_sum(comm), two = make_sum(comm);
    gyre_stream stream = make_stream(comm);
    CHECK_OK(gyre_comm_split(comm, rank < 2 ? 0 : GYRE_SPLIT_NOCOLOR, rank, &pair, NULL));
    two.comm = pair;
    CHECK_OK(gyre_group_start());
    if (rank == 2)
        CHECK_OK(gyre_send(message.values, N_ELEMS, GYRE_INT32, 0, comm, stream));
    if (rank == 0)
        CHECK_OK(gyre_recv(message.values, N_ELEMS, GYRE_INT32, 2, comm, stream));
    if (rank < 2)
        CHECK_OK(add_up(&two, stream));
    CHECK_OK(add_up(&all, stream));
    CHECK_OK(gyre_group_end());
    finish_stream(stream);
    two.comm = comm;
    check_sum(&message, n_ranks, 0);
    check_sum(&all, n_ranks, 1);
    check_sum(&two, 2, rank < 2 ? 1 : 0);
    if (pair != NULL)
        CHECK_OK(gyre_comm_destroy(pair));
}

/* Two communicators of two ranks; one thread serves both ranks, each with one stream. On GPUs a
 * thread has one device current. */
static void serve_two_ranks(void)
{
    gyre_comm *comms[2][2];
    struct sum sums[2][2];
    gyre_stream streams[2];
    const gyre_config config = test_config(0);
    for (int i = 0; i < 2; i++)
        CHECK_OK(gyre_comm_init_all(comms[i], 2, NULL, &config));
    for (int rank = 0; rank < 2; rank++) {
        streams[rank] = make_stream(comms[0][rank]);
        for (int i = 0; i < 2; i++)
            sums[i][rank] = make_sum(comms[i][rank]);
    }
    for (int round = 0; round < N_ROUNDS; round++) {
        CHECK_OK(gyre_group_start());
        for (int call = 0; call < 4; call++) { /* rank 1 has the other order */
            const int rank = call / 2;
            CHECK_OK(add_up(&sums[(call + rank) % 2][rank], streams[rank]));
        }
        CHECK_OK(gyre_group_end());
    }
    for (int rank = 0; rank < 2; rank++)
        finish_stream(streams[rank]);
    for (int i = 0; i < 2; i++)
        for (int rank = 0; rank < 2; rank++)
            check_sum(&sums[i][rank], 2, N_ROUNDS);
    for (int i = 0; i < 2; i++)
        for (int rank = 0; rank < 2; rank++)
            CHECK_OK(gyre_comm_destroy(comms[i][rank]));
}

TEST_CASE("ranks of one thread may name a group's communicators in any order")
{
    if (test_device() != GYRE_DEVICE_HOST)
        return;
    setenv("GYRE_TIMEOUT", OPERATION_TIMEOUT_MS, 1);
    serve_two_ranks();
    setenv("GYRE_CHECK", "calls", 1);
    serve_two_ranks();
}

TEST_ON_PROCESSES("communicators have one order on all ranks", 2)
{
    const gyre_config config = test_config(rank);
    gyre_comm *own[3], *children[2];
    uint64_t numbers[3], all[2][3];
    for (int i = 0; rank == 1 && i < 3; i++) {
        const int ordinal = rank;
        CHECK_OK(gyre_comm_init_all(&own[i], 1, &ordinal, &config));
    }
    for (int i = 0; i < 2; i++)
        CHECK_OK(gyre_comm_split(comm, 0, rank, &children[i], NULL));
    numbers[0] = comm->self.number;
    numbers[1] = children[0]->self.number;
    numbers[2] = children[1]->self.number;
    CHECK_OK(gyre_comm_exchange(comm, numbers, sizeof(numbers), all));
    CHECK(memcmp(all[0], all[1], sizeof(all[0])) == 0);
    CHECK(numbers[0] < numbers[1] && numbers[1] < numbers[2]);
    for (int i = 0; i < 2; i++)
        CHECK_OK(gyre_comm_destroy(children[i]));
    for (int i = 0; rank == 1 && i < 3; i++)
        CHECK_OK(gyre_comm_destroy(own[i]));
}

/* Rank 1 waits for the first sum; rank 0 has both in one group. */
TEST_ON_THREADS_WITH("compared calls are launched as soon as they are compared", 2,
                     "GYRE_TIMEOUT=" OPERATION_TIMEOUT_MS, "GYRE_BOOTSTRAP_TIMEOUT=20",
                     "GYRE_CHECK=calls")
{
    gyre_comm *child = NULL;
    CHECK_OK(gyre_comm_split(comm, 0, rank, &child, NULL));
    struct sum first = make_sum(comm), second = make_sum(child);
    gyre_stream stream = make_stream(comm);
    CHECK_OK(gyre_group_start());
    CHECK_OK(add_up(&first, stream));
    if (rank == 1) {
        CHECK_OK(gyre_group_end());
        CHECK_OK(gyre_stream_synchronize(stream, test_device()));
        CHECK_OK(gyre_group_start());
    }
    CHECK_OK(add_up(&first, stream));
    CHECK_OK(add_up(&second, stream));
    CHECK_OK(gyre_group_end());
    finish_stream(stream);
    check_sum(&first, n_ranks, 2);
    check_sum(&second, n_ranks, 1);
    CHECK_OK(gyre_comm_destroy(child));
}

TEST_ON_THREADS_WITH("calls of a group that differ are refused before data moves", 2,
                     "GYRE_CHECK=calls")
{
    gyre_comm *child = NULL;
    gyre_status status = GYRE_SUCCESS;
    CHECK_OK(gyre_comm_split(comm, 0, rank, &child, NULL));
    struct sum good = make_sum(comm), bad = make_sum(child);
    gyre_stream stream = make_stream(comm);
    CHECK_OK(gyre_group_start());
    if (rank == 0)
        CHECK_OK(add_up(&bad, stream));
    else
        CHECK_OK(gyre_broadcast(bad.values, bad.values, N_ELEMS, GYRE_INT32, 0, child, stream));
    CHECK_OK(add_up(&good, stream));
    status = gyre_group_end();
    CHECK_MSG(status == GYRE_ERROR_INVALID_USAGE, "%s", gyre_status_name(status));
    CHECK_HAS(gyre_last_error(), "all_reduce(");
    CHECK_HAS(gyre_last_error(), "broadcast(");
    CHECK_HAS(gyre_last_error(), "no data was moved");
    finish_stream(stream);
    check_sum(&good, n_ranks, 1);
    check_sum(&bad, n_ranks, 0);
    CHECK_OK(gyre_comm_destroy(child));
}

TEST_RANK(compare_during_a_split)
{
    gyre_comm *child = NULL;
    gyre_config config = test_config(rank);
    gyre_status status = GYRE_IN_PROGRESS;
    struct sum sum = make_sum(comm);
    gyre_stream stream = make_stream(comm);
    config.blocking = 0;
    CHECK_OK(gyre_group_start());
    CHECK_OK(add_up(&sum, stream));
    CHECK(gyre_comm_split(comm, 0, rank, &child, &config) == GYRE_IN_PROGRESS);
    CHECK(gyre_group_end() == GYRE_IN_PROGRESS);
    while (status == GYRE_IN_PROGRESS)
        CHECK_OK(gyre_comm_async_error(child, &status));
    CHECK_OK(status);
    finish_stream(stream);
    check_sum(&sum, n_ranks, 1);
    CHECK_OK(gyre_comm_destroy(child));
}

TEST_CASE("calls may be compared while a split goes on")
{
    test_set("GYRE_CHECK=calls", "GYRE_BOOTSTRAP_TIMEOUT=20", NULL);
    for (int i = 0; i < 10; i++)
        test_on_threads(2, compare_during_a_split, NULL);
}

/* Work of the program ahead of a call. */
struct obstacle {
    struct gyre_task task; /* first: what the stream hands back */
    uint32_t is_gone;
    uint32_t is_released;
};

static enum gyre_task_state poll_obstacle(struct gyre_task *task, gyre_status *status_out)
{
    const struct obstacle *obstacle = (const struct obstacle *)(void *)task;
    (void)status_out;
    return gyre_load_acquire_u32(&obstacle->is_gone) != 0 ? GYRE_TASK_DONE : GYRE_TASK_IDLE;
}

static void release_obstacle(struct gyre_task *task)
{
    gyre_store_release_u32(&((struct obstacle *)(void *)task)->is_released, 1);
}

static bool wait_for_log(const char *path, const char *words)
{
    const uint64_t end_ns = gyre_now_ns() + 30000000000ULL;
    char text[8192] = "";
    while (gyre_now_ns() < end_ns) {
        FILE *file = fopen(path, "r");
        if (file == NULL)
            continue;
        const size_t n = fread(text, 1, sizeof(text) - 1, file);
        fclose(file);
        text[n] = '\0';
        if (strstr(text, words) != NULL)
            return true;
        sched_yield();
    }
    fprintf(stderr, "log: %s\n", text);
    return false;
}

TEST_RANK(stall_behind_an_obstacle)
{
    struct sum sum = make_sum(comm);
    struct obstacle obstacle = {{NULL, poll_obstacle, release_obstacle}, 0, 0};
    gyre_stream stream = make_stream(comm);
    if (rank == 1)
        CHECK_OK(gyre_host_stream_push(stream, &obstacle.task));
    CHECK_OK(add_up(&sum, stream));
    if (rank == 1) {
        CHECK(wait_for_log(argument, "GYRE_CHECK=calls found them alike"));
        gyre_store_release_u32(&obstacle.is_gone, 1);
    }
    finish_stream(stream);
    check_sum(&sum, n_ranks, 1);
}

TEST_CASE("a stall of compared calls does not advise to compare them")
{
    char path[] = "/tmp/gyre_test_group_order_XXXXXX";
    const int fd = mkstemp(path);
    if (test_device() != GYRE_DEVICE_HOST)
        return;
    CHECK(fd >= 0);
    setenv("GYRE_DEBUG_FILE", path, 1);
    test_set("GYRE_STALL_WARN=1", "GYRE_CHECK=calls", NULL);
    test_on_threads(2, stall_behind_an_obstacle, path);
    unlink(path);
    close(fd);
}

TEST_RUNS("ranks may name a group's communicators in any order",
          ranks_may_name_communicators_in_any_order())
