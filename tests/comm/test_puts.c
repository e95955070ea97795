/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/comm/puts_rig.h"

enum { N = 4, COUNT = 200000 };

static int most_ranks(int n_wanted)
{
    return n_wanted < test_most_ranks() ? n_wanted : test_most_ranks();
}

/* Into the right neighbour's window, several times. A signal back says that the numbers were read.
 */
TEST_RANK(put_around)
{
    const int right = (rank + 1) % n_ranks;
    const int left = (rank + n_ranks - 1) % n_ranks;
    int *memory = puts_buffer(comm, COUNT + 3), *local = puts_buffer(comm, COUNT);
    int before = 7;
    gyre_stream stream = puts_stream(comm);
    const gyre_window window = puts_window(comm, memory, COUNT + 3);
    const gyre_put_target target = {right, window, 3 * sizeof(int), 5};
    const gyre_signal_wait data_came = {left, 5, 1};
    const gyre_signal_wait was_read = {right, 6, 1};
    for (int round = 0; round < 4; round++) {
        puts_fill(comm, local, COUNT, rank, round);
        CHECK_OK(gyre_put(local, COUNT, GYRE_INT32, &target, comm, stream));
        CHECK_OK(gyre_wait_signal(&data_came, 1, comm, stream));
        CHECK_OK(gyre_stream_synchronize(stream, test_device()));
        puts_check(comm, memory + 3, COUNT, left, round);
        CHECK_OK(gyre_signal(left, 6, comm, stream));
        CHECK_OK(gyre_wait_signal(&was_read, 1, comm, stream));
        CHECK_OK(gyre_stream_synchronize(stream, test_device()));
    }
    puts_copy(comm, &before, memory + 2, 1);
    CHECK(before == 0);
    puts_close(comm, window, stream, memory, local);
}

TEST_CASE("puts of processes arrive before their signal")
{
    for (int n_ranks = 1; n_ranks <= most_ranks(N); n_ranks++)
        test_on_processes(n_ranks, put_around, NULL);
}

TEST_RUNS("puts arrive before their signal and nowhere else",
          test_on_threads(most_ranks(N), put_around, NULL))

enum { N_ENTRIES = 600 }; /* of one wait: more than one GPU kernel takes */

/* Other numbers and pairs do not count. */
TEST_RANK(count_signals)
{
    int values[4] = {7, 7, 7, 7};
    const int twice[2] = {1, 2};
    int *memory = puts_buffer(comm, 4), *ones = puts_buffer(comm, 2);
    gyre_stream stream = puts_stream(comm);
    const gyre_window window = puts_window(comm, memory, 4);
    puts_copy(comm, ones, twice, 2);
    if (rank == 0) {
        const gyre_signal_wait own_and_none[] = {{0, 31, 1}, {1, 9, 0}};
        const gyre_signal_wait of_rank_2 = {2, 0, 1};
        gyre_signal_wait *many = calloc(N_ENTRIES, sizeof(*many));
        for (int i = 0; i < N_ENTRIES; i++)
            many[i] = (gyre_signal_wait){1, 0, 1};
        CHECK_OK(gyre_signal(0, 31, comm, stream)); /* to itself */
        CHECK_OK(gyre_wait_signal(own_and_none, 2, comm, stream));
        CHECK_OK(gyre_wait_signal(many, N_ENTRIES, comm, stream));
        CHECK_OK(gyre_wait_signal(many, 0, comm, stream));
        if (n_ranks > 2)
            CHECK_OK(gyre_wait_signal(&of_rank_2, 1, comm, stream));
        free(many);
        CHECK_OK(gyre_stream_synchronize(stream, test_device()));
        puts_copy(comm, values, memory, 4);
        CHECK(values[1] == 1 && values[2] == 2 && values[0] == 0 && values[3] == 0);
    } else if (rank == 1) { /* later signals of the stream cover these puts */
        const gyre_put_target quiet = {0, window, sizeof(int), GYRE_NO_SIGNAL};
        CHECK_OK(gyre_put(ones, 2, GYRE_INT32, &quiet, comm, stream));
        for (int i = 0; i < N_ENTRIES; i++)
            CHECK_OK(gyre_signal(0, 0, comm, stream));
    } else if (rank == 2) {
        const gyre_put_target nothing = {0, window, 4 * sizeof(int), 0};
        CHECK_OK(gyre_put(NULL, 0, GYRE_INT32, &nothing, comm, stream));
    }
    CHECK_OK(gyre_stream_synchronize(stream, test_device()));
    puts_close(comm, window, stream, memory, ones);
}

/* With one GPU nothing runs, because no other rank would signal. */
static int at_least_two(void)
{
    return most_ranks(N) > 1 ? most_ranks(N) : 2;
}

TEST_RUNS("signals of processes are counted",
          test_on_processes(at_least_two(), count_signals, NULL))
TEST_RUNS("signals are counted by rank and number",
          test_on_threads(at_least_two(), count_signals, NULL))

enum { N_STREAMS = 4, N_FROM_EACH = 50 };

/* One signal from several streams at once. None is lost or doubled: the next wait finds the next
 * signal alone. */
TEST_RANK(signal_from_streams)
{
    const gyre_signal_wait all = {1, 3, N_STREAMS * N_FROM_EACH}, one = {1, 3, 1};
    int *memory = puts_buffer(comm, 1);
    gyre_stream streams[N_STREAMS];
    uint8_t bytes[TEST_MAX_RANKS] = {0};
    const gyre_window window = puts_window(comm, memory, 1);
    for (int i = 0; i < N_STREAMS; i++)
        streams[i] = puts_stream(comm);
    for (int i = 0; rank == 1 && i < N_STREAMS * N_FROM_EACH; i++)
        CHECK_OK(gyre_signal(0, 3, comm, streams[i % N_STREAMS]));
    if (rank == 0) {
        CHECK_OK(gyre_wait_signal(&all, 1, comm, streams[0]));
        CHECK_OK(gyre_stream_synchronize(streams[0], test_device()));
        CHECK_OK(gyre_wait_signal(&one, 1, comm, streams[0]));
        CHECK(gyre_stream_query(streams[0], test_device()) == GYRE_IN_PROGRESS);
    }
    CHECK_OK(gyre_comm_exchange(comm, bytes, 1, bytes)); /* rank 1 signals after the query */
    if (rank == 1)
        CHECK_OK(gyre_signal(0, 3, comm, streams[1]));
    for (int i = 0; i < N_STREAMS; i++) {
        test_end_stream(streams[i], test_device());
    }
    puts_close(comm, window, NULL, memory, NULL);
}

TEST_RUNS("signals of several streams of processes are all counted",
          test_on_processes(2, signal_from_streams, NULL))
TEST_RUNS("signals of several streams are all counted and waits hold their stream",
          test_on_threads(2, signal_from_streams, NULL))

TEST_RANK(mix_with_collectives)
{
    const int right = (rank + 1) % n_ranks, left = (rank + n_ranks - 1) % n_ranks;
    int *memory = puts_buffer(comm, COUNT), *local = puts_buffer(comm, COUNT);
    int sum = 0, first = 1;
    gyre_stream stream = puts_stream(comm);
    const gyre_window window = puts_window(comm, memory, COUNT);
    const gyre_put_target target = {right, window, 0, 0};
    const gyre_signal_wait data_came = {left, 0, 1};
    puts_copy(comm, local, &first, 1);
    for (int round = 0; round < 5; round++) { /* all elements grow n_ranks-fold in a round */
        CHECK_OK(gyre_all_reduce(local, local, COUNT, GYRE_INT32, GYRE_SUM, comm, stream));
        CHECK_OK(gyre_put(local, COUNT, GYRE_INT32, &target, comm, stream));
        CHECK_OK(gyre_wait_signal(&data_came, 1, comm, stream));
        CHECK_OK(gyre_all_reduce(memory, local, COUNT, GYRE_INT32, GYRE_MAX, comm, stream));
    }
    CHECK_OK(gyre_stream_synchronize(stream, test_device()));
    for (int round = 0; round < 5; round++)
        first *= n_ranks;
    puts_copy(comm, &sum, local, 1);
    CHECK_MSG(sum == first, "%d, not %d", sum, first);
    puts_close(comm, window, stream, memory, local);
}

TEST_CASE("puts keep their order with collectives of the stream")
{
    test_on_processes(most_ranks(3), mix_with_collectives, NULL);
    test_on_threads(most_ranks(3), mix_with_collectives, NULL);
}

#ifdef TEST_WITH_CUDA
TEST_CASE("captured puts and waits of processes replay")
{
    if (test_device() == GYRE_DEVICE_CUDA)
        test_on_processes(most_ranks(N), puts_in_graphs, NULL);
}

TEST_CASE("captured puts and waits replay")
{
    if (test_device() == GYRE_DEVICE_CUDA)
        test_on_threads(most_ranks(N), puts_in_graphs, NULL);
}
#endif

TEST_ON_THREADS("wrong arguments are refused", 2)
{
    char on_host[64] = "";
    int *memory = puts_buffer(comm, 16), *source = puts_buffer(comm, 16);
    const gyre_signal_wait waits[] = {{0, GYRE_N_SIGNALS, 1}, {0, 0, -1}};
    CHECK_BAD_USAGE(gyre_signal(0, 0, comm, NULL), "register one first");
    const gyre_window window = puts_window(comm, memory, 16);
    gyre_put_target target = {0, window, 60, 0};
    CHECK_BAD_ARGUMENT(gyre_put(source, 5, GYRE_INT8, &target, comm, NULL),
                       "5 bytes at offset 60 do not fit into window");
    target.offset_bytes = 65;
    CHECK_BAD_ARGUMENT(gyre_put(source, 0, GYRE_INT8, &target, comm, NULL), "do not fit");
    target.offset_bytes = 0;
    CHECK_BAD_ARGUMENT(gyre_put(source, SIZE_MAX, GYRE_FLOAT64, &target, comm, NULL), "2^63");
    CHECK_BAD_ARGUMENT(gyre_put(NULL, 1, GYRE_INT8, &target, comm, NULL), "local");
    if (test_device() == GYRE_DEVICE_CUDA)
        CHECK_BAD_ARGUMENT(gyre_put(on_host, 1, GYRE_INT8, &target, comm, NULL), "put: local");
    CHECK_BAD_ARGUMENT(gyre_put(source, 1, GYRE_INT8, NULL, comm, NULL), "target is NULL");
    target.window = window + 1;
    CHECK_BAD_ARGUMENT(gyre_put(source, 1, GYRE_INT8, &target, comm, NULL),
                       "is none of this communicator");
    target.peer = n_ranks;
    CHECK_BAD_ARGUMENT(gyre_put(source, 1, GYRE_INT8, &target, comm, NULL), "is not a rank");
    CHECK_BAD_ARGUMENT(gyre_signal(0, -1, comm, NULL), "is not in 0..31");
    CHECK_BAD_ARGUMENT(gyre_wait_signal(waits, 1, comm, NULL), "0..31");
    CHECK_BAD_ARGUMENT(gyre_wait_signal(waits + 1, 1, comm, NULL), "negative");
    CHECK_BAD_ARGUMENT(gyre_wait_signal(NULL, 1, comm, NULL), "no list");
    puts_close(comm, window, NULL, memory, source);
}

static gyre_comm *wait_alone(int timeout_ms, gyre_stream *stream_out)
{
    gyre_comm *comm = NULL;
    gyre_config config = test_config(0);
    const gyre_signal_wait one = {0, 0, 1};
    config.timeout_ms = timeout_ms;
    CHECK_OK(gyre_comm_init_all(&comm, 1, NULL, &config));
    (void)puts_window(comm, puts_buffer(comm, 1), 1);
    *stream_out = puts_stream(comm);
    CHECK_OK(gyre_wait_signal(&one, 1, comm, *stream_out));
    return comm;
}

TEST_CASE("a wait without signal ends by the timeout")
{
    gyre_stream stream = NULL;
    if (test_most_ranks() < 1)
        return;
    gyre_comm *comm = wait_alone(20, &stream);
    puts_expect_end(comm, stream, GYRE_ERROR_TIMEOUT,
                    test_device() == GYRE_DEVICE_HOST ? "0 of 1 signals" : "within 20 ms");
    CHECK_OK(gyre_comm_destroy(comm));
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
}

TEST_CASE("a wait ends when its communicator is destroyed")
{
    gyre_stream stream = NULL;
    if (test_most_ranks() < 1)
        return;
    gyre_comm *comm = wait_alone(0, &stream);
    CHECK_OK(gyre_comm_abort(comm));
    CHECK_OK(gyre_comm_destroy(comm));
    if (test_device() == GYRE_DEVICE_HOST)
        CHECK_FAILS(gyre_stream_synchronize(stream, GYRE_DEVICE_HOST), GYRE_ERROR_ABORTED, "");
    else
        CHECK_OK(gyre_stream_synchronize(stream, GYRE_DEVICE_CUDA));
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
}
