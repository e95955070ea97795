/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank ends instead of sending a signal that is waited for.
 */
#include "tests/comm/puts_rig.h"

#include <signal.h>
#include <time.h>

enum how { BY_KILL, BY_ABORT, BY_DESTROY };

struct end {
    enum how how;
    pthread_barrier_t *ready; /* in shared memory: rank 0's wait is enqueued */
};

static struct end make_end(enum how how)
{
    struct end end = {.how = how};
    pthread_barrierattr_t attributes;
    end.ready = test_share(sizeof(*end.ready));
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(end.ready, &attributes, 2);
    pthread_barrierattr_destroy(&attributes);
    return end;
}

TEST_RANK(end_instead)
{
    const struct end *end = argument;
    int *memory = puts_buffer(comm, 1);
    gyre_stream stream = puts_stream(comm);
    (void)puts_window(comm, memory, 1);
    const gyre_signal_wait one = {1, 0, 1};
    if (rank == 0)
        CHECK_OK(gyre_wait_signal(&one, 1, comm, stream));
    pthread_barrier_wait(end->ready); /* a call after the end would fail itself */
    if (rank == 0)
        puts_expect_end(comm, stream, GYRE_ERROR_REMOTE,
                        end->how == BY_KILL ? "rank 1" : "aborted");
    else if (end->how == BY_KILL)
        raise(SIGKILL);
    else
        CHECK_OK(gyre_comm_abort(comm));
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
}

TEST_CASE("a wait ends when the other process is killed")
{
    struct end end = make_end(BY_KILL);
    pid_t pids[2];
    if (test_most_ranks() < 2)
        return;
    test_fork_ranks(2, end_instead, &end, pids);
    CHECK(test_wait_rank(pids[0]));
    CHECK(!test_wait_rank(pids[1]));
}

TEST_CASE("a wait ends when the other process aborts")
{
    struct end end = make_end(BY_ABORT);
    test_on_processes(2, end_instead, &end);
}

TEST_CASE("a wait ends when the other rank aborts")
{
    struct end end = make_end(BY_ABORT);
    test_on_threads(2, end_instead, &end);
}

static void await_goodbye(const gyre_comm *comm, int rank)
{
    const struct timespec nap = {0, 1000000};
    const uint64_t end_ns = gyre_now_ns() + 60000000000ULL;
    while (!gyre_health_has_left(comm->health, rank) && gyre_now_ns() < end_ns)
        nanosleep(&nap, NULL);
    CHECK_MSG(gyre_health_has_left(comm->health, rank), "rank %d has not left", rank);
}

/* Rank 1 sends two each of signals 1 and 2, and leaves. Rank 0 takes one of each before that and
 * one after it. Signal 0 never comes. */
TEST_RANK(leave_instead)
{
    const struct end *end = argument;
    const gyre_signal_wait sent[] = {{1, 1, 1}, {1, 2, 1}}, missing = {1, 0, 1};
    gyre_stream streams[] = {puts_stream(comm), puts_stream(comm)};
    (void)puts_window(comm, puts_buffer(comm, 1), 1);
    for (int i = 0; rank == 1 && i < 4; i++)
        CHECK_OK(gyre_signal(0, 1 + i % 2, comm, streams[0]));
    if (rank == 0) {
        CHECK_OK(gyre_wait_signal(sent, 2, comm, streams[0]));
        CHECK_OK(gyre_stream_synchronize(streams[0], test_device()));
        CHECK_OK(gyre_wait_signal(&missing, 1, comm, streams[1]));
    }
    pthread_barrier_wait(end->ready);
    if (rank == 0) {
        await_goodbye(comm, 1);
        if (test_device() == GYRE_DEVICE_HOST) { /* a GPU's communicator ends by the other wait */
            CHECK_OK(gyre_wait_signal(sent, 2, comm, streams[0]));
            CHECK_OK(gyre_stream_synchronize(streams[0], test_device()));
        }
        puts_expect_end(comm, streams[1], GYRE_ERROR_REMOTE,
                        "destroyed its communicator; the signal that rank 0 waits for can no "
                        "longer come");
    }
    for (int i = 0; i < 2; i++)
        CHECK_OK(gyre_stream_destroy(streams[i], test_device()));
}

/* Signals that came before the goodbye, where nothing else waits. */
TEST_RANK(take_after_goodbye)
{
    const gyre_signal_wait sent = {1, 1, 2}, missing = {1, 1, 1};
    gyre_stream stream = puts_stream(comm);
    (void)puts_window(comm, puts_buffer(comm, 1), 1);
    for (int i = 0; rank == 1 && i < 2; i++)
        CHECK_OK(gyre_signal(0, 1, comm, stream));
    if (rank == 0) {
        await_goodbye(comm, 1);
        CHECK_OK(gyre_wait_signal(&sent, 1, comm, stream));
        CHECK_OK(gyre_stream_synchronize(stream, test_device()));
        CHECK_OK(gyre_wait_signal(&missing, 1, comm, stream));
        puts_expect_end(comm, stream, GYRE_ERROR_REMOTE, "rank 1");
    }
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
}

TEST_CASE("a wait ends when the other process leaves without the signal")
{
    struct end end = make_end(BY_DESTROY);
    test_on_processes(2, leave_instead, &end);
    test_on_processes(2, take_after_goodbye, NULL);
}

TEST_CASE("a wait ends when the other rank leaves without the signal")
{
    struct end end = make_end(BY_DESTROY);
    test_on_threads(2, leave_instead, &end);
    test_on_threads(2, take_after_goodbye, NULL);
}

/* On a GPU the call fails, on the host the stream. */
static void expect_unreachable(gyre_status status, gyre_stream stream)
{
    const char *words = "rank 1 destroyed its communicator; a one-sided call of rank 0 can no "
                        "longer reach it";
    if (test_device() == GYRE_DEVICE_CUDA) {
        CHECK_FAILS(status, GYRE_ERROR_REMOTE, words);
        return;
    }
    CHECK_OK(status);
    CHECK_FAILS(gyre_stream_synchronize(stream, GYRE_DEVICE_HOST), GYRE_ERROR_REMOTE, words);
}

/* Rank 0 puts and signals to rank 1, which has left, then to itself. */
TEST_RANK(put_after_goodbye)
{
    const gyre_signal_wait own = {0, 3, 2};
    int *memory = puts_buffer(comm, 1), *local = puts_buffer(comm, 1);
    gyre_stream stream = puts_stream(comm);
    const gyre_window window = puts_window(comm, memory, 1);
    gyre_put_target target = {1, window, 0, GYRE_NO_SIGNAL};
    if (rank == 0) {
        await_goodbye(comm, 1);
        expect_unreachable(gyre_put(local, 1, GYRE_INT32, &target, comm, stream), stream);
        expect_unreachable(gyre_signal(1, 3, comm, stream), stream);
        target.peer = 0;
        target.signal = 3;
        CHECK_OK(gyre_put(local, 1, GYRE_INT32, &target, comm, stream));
        CHECK_OK(gyre_signal(0, 3, comm, stream));
        CHECK_OK(gyre_wait_signal(&own, 1, comm, stream));
        CHECK_OK(gyre_stream_synchronize(stream, test_device()));
    }
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
}

TEST_RUNS("puts and signals to a process that has left are errors",
          test_on_processes(2, put_after_goodbye, NULL))
TEST_RUNS("puts and signals to a rank that has left are errors",
          test_on_threads(2, put_after_goodbye, NULL))

TEST_RANK(destroy_while_waiting)
{
    const gyre_signal_wait missing = {1, 0, 1};
    gyre_stream *waiting = argument;
    (void)puts_window(comm, puts_buffer(comm, 1), 1);
    if (rank != 0)
        return;
    *waiting = puts_stream(comm);
    CHECK_OK(gyre_wait_signal(&missing, 1, comm, *waiting));
}

TEST_CASE("destroy ends when the other rank left without the signal")
{
    gyre_stream stream = NULL;
    if (test_most_ranks() < 2)
        return;
    test_on_threads(2, destroy_while_waiting, &stream);
    if (test_device() == GYRE_DEVICE_HOST)
        CHECK_FAILS(gyre_stream_synchronize(stream, GYRE_DEVICE_HOST), GYRE_ERROR_REMOTE,
                    "rank 1 destroyed its communicator");
    else
        CHECK_OK(gyre_stream_synchronize(stream, GYRE_DEVICE_CUDA));
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
}
