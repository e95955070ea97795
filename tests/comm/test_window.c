/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/comm.h"
#include "tests/support/ranks.h"

#define N_ELEMS 100003

static void copy(gyre_comm *comm, void *to, const void *from, size_t n_elems)
{
    CHECK_OK(comm->self.device->ops->copy(comm->self.device, to, from, n_elems * sizeof(float)));
}

/* On this rank's device. Block b holds value + b, value + b + 1, ... value + b + 6, value + b, ...
 */
static float *make_blocks(gyre_comm *comm, int n_blocks, size_t n_elems, float value)
{
    const size_t n_all = (size_t)n_blocks * n_elems;
    float *buffer = NULL, *values = malloc(n_all * sizeof(*values));
    int ordinal = -1;
    CHECK_OK(gyre_comm_device(comm, NULL, &ordinal));
    CHECK_OK(gyre_mem_alloc((void **)&buffer, n_all * sizeof(*buffer), test_device(), ordinal));
    for (size_t i = 0; i < n_all; i++)
        values[i] = value + (float)(i / n_elems) + (float)(i % n_elems % 7);
    copy(comm, buffer, values, n_all);
    free(values);
    return buffer;
}

static gyre_stream make_stream(gyre_comm *comm)
{
    gyre_stream stream = NULL;
    int ordinal = -1;
    CHECK_OK(gyre_comm_device(comm, NULL, &ordinal));
    CHECK_OK(gyre_stream_create(&stream, test_device(), ordinal));
    return stream;
}

static void check_buffer(gyre_comm *comm, gyre_stream stream, const float *buffer, float value,
                         float slope)
{
    float *values = malloc(N_ELEMS * sizeof(*values));
    size_t n_wrong = 0;
    CHECK_OK(gyre_stream_synchronize(stream, test_device()));
    copy(comm, values, buffer, N_ELEMS);
    for (size_t i = 0; i < N_ELEMS; i++)
        n_wrong += values[i] < value + slope * (float)(i % 7) ||
                   values[i] > value + slope * (float)(i % 7);
    CHECK_MSG(n_wrong == 0, "%zu of %d elements are wrong", n_wrong, N_ELEMS);
    free(values);
}

TEST_RANK(place)
{
    const size_t n_window = (size_t)n_ranks * N_ELEMS + 16;
    float *buffer = make_blocks(comm, 1, n_window, 0);
    float *in = make_blocks(comm, 1, N_ELEMS, (float)rank);
    float *blocks = make_blocks(comm, n_ranks, N_ELEMS, (float)(rank * n_ranks));
    const float sum = (float)(n_ranks * (n_ranks - 1) / 2);
    gyre_stream stream = make_stream(comm);
    gyre_window window = 0;
    CHECK_OK(gyre_window_register(comm, buffer, n_window * sizeof(float), &window));
    CHECK(window == 1);
    for (int round = 0; round < 3; round++) {
        float *out = buffer + 5 + round;
        CHECK_OK(gyre_all_reduce(in, out, N_ELEMS, GYRE_FLOAT32, GYRE_SUM, comm, stream));
        check_buffer(comm, stream, out, sum, (float)n_ranks);
        CHECK_OK(gyre_all_reduce(out, out, N_ELEMS, GYRE_FLOAT32, GYRE_MAX, comm, stream));
        check_buffer(comm, stream, out, sum, (float)n_ranks);
        CHECK_OK(gyre_all_gather(in, out, N_ELEMS, GYRE_FLOAT32, comm, stream));
        for (int from = 0; from < n_ranks; from++)
            check_buffer(comm, stream, out + (size_t)from * N_ELEMS, (float)from, 1);
        CHECK_OK(gyre_all_to_all(blocks, out, N_ELEMS, GYRE_FLOAT32, comm, stream));
        for (int from = 0; from < n_ranks; from++)
            check_buffer(comm, stream, out + (size_t)from * N_ELEMS, (float)(from * n_ranks + rank),
                         1);
        CHECK_OK(gyre_broadcast(in, out, N_ELEMS, GYRE_FLOAT32, round % n_ranks, comm, stream));
        check_buffer(comm, stream, out, (float)(round % n_ranks), 1);
    }
    CHECK_OK(gyre_window_deregister(comm, window));
    CHECK_BAD_ARGUMENT(gyre_window_deregister(comm, window), "none of this communicator");
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
    CHECK_OK(gyre_mem_free(in, test_device()));
    CHECK_OK(gyre_mem_free(blocks, test_device()));
    CHECK_OK(gyre_mem_free(buffer, test_device()));
}

static void use_rings(void)
{
    test_set("GYRE_ALGO=all_reduce:ring;all_gather:ring;broadcast:ring", "GYRE_PROTO=simple", NULL);
}

TEST_CASE("placed calls are right between processes")
{
    const int most = test_device() == GYRE_DEVICE_HOST ? 4 : 2;
    use_rings();
    for (int n_ranks = 2; n_ranks <= most; n_ranks++)
        test_on_processes(n_ranks, place, NULL);
    setenv("GYRE_ALGO", "all_reduce:twoshot", 1);
    test_on_processes(most, place, NULL);
    unsetenv("GYRE_ALGO");
    unsetenv("GYRE_PROTO");
    test_on_processes(most, place, NULL); /* whatever is chosen */
}

TEST_CASE("placed calls are right between threads")
{
    use_rings();
    for (int n_ranks = 1; n_ranks <= 4; n_ranks++)
        test_on_threads(n_ranks, place, NULL);
    unsetenv("GYRE_ALGO");
    unsetenv("GYRE_PROTO");
    test_on_threads(3, place, NULL); /* whatever is chosen */
    test_set("GYRE_ALGO=all_reduce:twoshot", "GYRE_PROTO=simple", NULL);
    for (int n_ranks = 2; n_ranks <= 4; n_ranks++)
        test_on_threads(n_ranks, place, NULL);
}

#define COPY_ENGINES                                                               \
    "all_reduce:copy_engine;all_gather:placed,copy_engine;all_to_all:copy_engine;" \
    "broadcast:copy_engine"

TEST_CASE("copy engines place in windows")
{
    if (test_device() == GYRE_DEVICE_HOST)
        return;
    setenv("GYRE_PATH", COPY_ENGINES, 1);
    test_on_processes(2, place, NULL); /* forks: before there are threads */
    for (int n_ranks = 1; n_ranks <= 4; n_ranks++)
        test_on_threads(n_ranks, place, NULL);
}

/* The same call before, in and after a window. */
TEST_RANK(come_and_go)
{
    float *in = make_blocks(comm, 1, N_ELEMS, (float)rank), *out = make_blocks(comm, 1, N_ELEMS, 0);
    const float sum = (float)(n_ranks * (n_ranks - 1) / 2);
    struct gyre_call call = {.coll = GYRE_COLL_ALL_REDUCE,
                             .send = in,
                             .recv = out,
                             .count = N_ELEMS,
                             .dtype = GYRE_FLOAT32,
                             .op = GYRE_SUM,
                             .root = -1};
    gyre_stream stream = make_stream(comm);
    gyre_window window = 0;
    for (int round = 0; round < 5; round++) {
        const struct gyre_plan *plan;
        struct gyre_work work;
        if (round % 2 == 1)
            CHECK_OK(gyre_window_register(comm, out, N_ELEMS * sizeof(float), &window));
        CHECK_OK(gyre_all_reduce(in, out, N_ELEMS, GYRE_FLOAT32, GYRE_SUM, comm, stream));
        check_buffer(comm, stream, out, sum, (float)n_ranks);
        gyre_window_find(&comm->windows, (uint32_t)n_ranks, &call);
        CHECK_OK(gyre_plan_get(&comm->plans, &call, &plan));
        gyre_plan_work(&comm->plans, plan, &call, &work);
        CHECK((work.placement != NULL) == (round % 2 == 1));
        if (round % 2 == 1)
            CHECK_OK(gyre_window_deregister(comm, window));
    }
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
    CHECK_OK(gyre_mem_free(in, test_device()));
    CHECK_OK(gyre_mem_free(out, test_device()));
}

TEST_CASE("a window changes calls that came before it")
{
    use_rings();
    test_on_processes(2, come_and_go, NULL); /* forks: before there are threads */
    test_on_threads(2, come_and_go, NULL);
}

/* @argument: the error of an all-reduce whose result lies in a window, or in none. */
TEST_RANK(refuse_path)
{
    float *buffer = make_blocks(comm, 1, N_ELEMS, 0), *other = make_blocks(comm, 1, N_ELEMS, 0);
    gyre_stream stream = make_stream(comm);
    gyre_window window;
    CHECK_OK(gyre_window_register(comm, buffer, N_ELEMS * sizeof(float), &window));
    CHECK_BAD_USAGE(gyre_all_reduce(buffer, other, N_ELEMS, GYRE_FLOAT32, GYRE_SUM, comm, stream),
                    "takes a receive buffer in a window");
    const gyre_status status =
        gyre_all_reduce(other, buffer, N_ELEMS, GYRE_FLOAT32, GYRE_SUM, comm, stream);
    if (argument == NULL) {
        CHECK(status == GYRE_SUCCESS);
        check_buffer(comm, stream, buffer, 0, (float)n_ranks);
    } else {
        CHECK(status == GYRE_ERROR_INVALID_USAGE &&
              strstr(gyre_last_error(), (const char *)argument) != NULL);
    }
    CHECK_OK(gyre_window_deregister(comm, window));
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
    CHECK_OK(gyre_mem_free(buffer, test_device()));
    CHECK_OK(gyre_mem_free(other, test_device()));
}

TEST_ON_THREADS("ranks that give back different windows are told", 2)
{
    gyre_window windows[2];
    float *buffer = make_blocks(comm, 1, 2 * N_ELEMS, 0);
    for (int i = 0; i < 2; i++)
        CHECK_OK(
            gyre_window_register(comm, buffer + i * N_ELEMS, N_ELEMS * sizeof(float), &windows[i]));
    CHECK_BAD_USAGE(gyre_window_deregister(comm, windows[rank % 2]), "is given back here");
    CHECK_BAD_USAGE(gyre_window_deregister(comm, windows[1 - rank % 2]), "is given back here");
    CHECK_OK(gyre_mem_free(buffer, test_device()));
}

TEST_CASE("a path that cannot be is an error")
{
    static char none[] = "the host device has none";
    setenv("GYRE_PATH", "placed", 1);
    test_on_threads(2, refuse_path, NULL);
    setenv("GYRE_PATH", "copy_engine", 1);
    test_on_threads(2, refuse_path, test_device() == GYRE_DEVICE_HOST ? none : NULL);
}

static float *left[TEST_MAX_RANKS];

/* Buffers do not lie alike. */
TEST_RANK(differ)
{
    float *buffer = make_blocks(comm, 1, 2 * N_ELEMS, 1);
    gyre_stream stream = make_stream(comm);
    gyre_window window;
    CHECK_OK(gyre_window_register(comm, buffer, 2 * N_ELEMS * sizeof(float), &window));
    float *out = rank == 1 ? buffer + 64 : buffer;
    if (gyre_all_reduce(out, out, N_ELEMS, GYRE_FLOAT32, GYRE_SUM, comm, stream) == GYRE_SUCCESS)
        (void)gyre_stream_synchronize(stream, test_device());
    const gyre_status status = test_await_error(comm);
    CHECK_MSG(status == GYRE_ERROR_INVALID_USAGE, "%s", gyre_status_name(status));
    CHECK_HAS(gyre_comm_last_error(comm), "at window 1 + 256");
    CHECK_OK(gyre_comm_abort(comm));
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
    left[rank] = buffer;
}

TEST_CASE("other places in the window are an error everywhere")
{
    use_rings();
    test_on_threads(3, differ, NULL);
    for (int rank = 0; rank < TEST_MAX_RANKS; rank++)
        if (left[rank] != NULL)
            CHECK_OK(gyre_mem_free(left[rank], test_device()));
}

TEST_ON_THREADS("one mistake is refused on every rank", 3)
{
    float *buffer = make_blocks(comm, 1, 1, 0);
    gyre_window window = 7;
    CHECK_BAD_ARGUMENT(
        gyre_window_register(comm, rank == 1 ? NULL : buffer, sizeof(*buffer), &window), "rank 1");
    CHECK(window == 7);
    CHECK_OK(gyre_mem_free(buffer, test_device()));
}

/* The owner alone writes there, so any memory will do. */
TEST_RANK(make_apart)
{
    static float ordinary[8];
    gyre_window window = 0;
    void *address = NULL;
    CHECK_OK(gyre_window_register(comm, ordinary, sizeof(ordinary), &window));
    CHECK_OK(gyre_window_address(comm, window, rank, &address, NULL));
    CHECK(address == ordinary);
    CHECK_FAILS(gyre_window_address(comm, window, (rank + 1) % n_ranks, &address, NULL),
                GYRE_ERROR_UNSUPPORTED, "gyre_put reaches it");
    CHECK_OK(gyre_window_deregister(comm, window));
}

TEST_CASE("ranks without common memory make windows for puts alone")
{
    if (test_device() != GYRE_DEVICE_HOST)
        return;
    setenv("GYRE_SHM_DISABLE", "1", 1);
    test_on_processes(3, make_apart, NULL);
}

/* Not of gyre_mem_alloc, or shorter than its window. */
TEST_RANK(refuse_memory)
{
    static float ordinary[2];
    float *buffer = make_blocks(comm, 1, 1000, 0);
    gyre_window window = 7;
    CHECK_FAILS(gyre_window_register(comm, rank == 1 ? ordinary : buffer, 8, &window),
                GYRE_ERROR_UNSUPPORTED, "gyre_mem_alloc");
    CHECK(strstr(gyre_last_error(), "rank 1") != NULL && window == 7);
    CHECK_BAD_ARGUMENT(gyre_window_register(comm, buffer + 1, rank == 1 ? 4096 : 8, &window),
                       "4096 bytes, but the allocation has 4092");
    CHECK_OK(gyre_window_register(comm, buffer + 1, 4092, &window));
    CHECK_OK(gyre_window_deregister(comm, window));
    CHECK_OK(gyre_mem_free(buffer, test_device()));
}

TEST_CASE("memory that processes cannot share is refused")
{
    if (test_device() == GYRE_DEVICE_HOST)
        test_on_processes(3, refuse_memory, NULL);
}
