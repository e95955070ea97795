/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that leave their communicators while they wait for each other's signals: threads, processes
 * and ranks that a proxy serves. On the host, which sees what its streams wait for.
 */
#include "tests/comm/puts_hosts.h"
#include "tests/comm/puts_rig.h"

#include <time.h>

enum { N_ROUNDS = 200 };

/* Every rank waits for the next one's signal, behind one that comes, and leaves. Of two ranks each
 * has the other's signal behind its wait. A wait that failed holds no later signal back, so in a
 * larger circle the other waits would succeed then. */
static void wait_in_a_circle(gyre_comm *comm, int rank, int n_ranks, void *argument)
{
    const int next = (rank + 1) % n_ranks, before = (rank + n_ranks - 1) % n_ranks;
    const gyre_signal_wait sent = {next, 1, 1}, missing = {next, 0, 1};
    gyre_stream stream = puts_stream(comm);
    char words[120];
    (void)puts_window(comm, puts_buffer(comm, 1), 1);
    (void)argument;
    snprintf(words, sizeof(words),
             "rank %d destroyed its communicator; the signal that rank %d waits for", next, rank);
    CHECK_OK(gyre_signal(before, 1, comm, stream));
    CHECK_OK(gyre_wait_signal(&sent, 1, comm, stream));
    CHECK_OK(gyre_wait_signal(&missing, 1, comm, stream));
    if (n_ranks <= 2)
        CHECK_OK(gyre_signal(before, 0, comm, stream));
    CHECK_OK(gyre_comm_finalize(comm));
    CHECK_FAILS(gyre_stream_synchronize(stream, GYRE_DEVICE_HOST), GYRE_ERROR_REMOTE, words);
    CHECK_OK(gyre_stream_destroy(stream, GYRE_DEVICE_HOST));
}

TEST_CASE("processes that wait for each other's signals and leave get an error")
{
    test_on_processes(2, wait_in_a_circle, NULL);
    test_on_processes(3, wait_in_a_circle, NULL);
}

TEST_CASE("so do processes without shared memory")
{
    on_processes(2, wait_in_a_circle, NULL);
}

TEST_CASE("so do ranks of one process")
{
    for (int n_ranks = 1; n_ranks <= 3; n_ranks++)
        test_on_threads(n_ranks, wait_in_a_circle, NULL);
}

TEST_CASE("so do ranks of several hosts")
{
    over_networks(2, 1, wait_in_a_circle, NULL);
    over_networks(2, 2, wait_in_a_circle, NULL);
}

/* Rank 0 leaves at once. Rank 1 sends the signals that rank 0 waits for, in the end, so no wait
 * fails. Both are blocked for a while in between, and rank 0 waits in two streams. */
static void wait_for_a_late_signal(gyre_comm *comm, int rank, int n_ranks, void *argument)
{
    const struct timespec nap = {0, 400000000};
    const gyre_signal_wait one = {1 - rank, 0, 1}, other = {1 - rank, 1, 1};
    gyre_stream streams[2] = {puts_stream(comm), puts_stream(comm)};
    (void)puts_window(comm, puts_buffer(comm, 1), 1);
    (void)n_ranks, (void)argument;
    for (int round = 0; rank == 0 && round < N_ROUNDS; round++) {
        CHECK_OK(gyre_wait_signal(&one, 1, comm, streams[0]));
        CHECK_OK(gyre_signal(1, 0, comm, streams[0]));
    }
    if (rank == 0)
        CHECK_OK(gyre_wait_signal(&other, 1, comm, streams[1]));
    if (rank == 1)
        nanosleep(&nap, NULL);
    for (int round = 0; rank == 1 && round < N_ROUNDS; round++) {
        CHECK_OK(gyre_signal(0, 0, comm, streams[0]));
        CHECK_OK(gyre_wait_signal(&one, 1, comm, streams[0]));
    }
    if (rank == 1)
        CHECK_OK(gyre_signal(0, 1, comm, streams[0]));
    CHECK_OK(gyre_comm_finalize(comm));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(gyre_stream_synchronize(streams[i], GYRE_DEVICE_HOST));
        CHECK_OK(gyre_stream_destroy(streams[i], GYRE_DEVICE_HOST));
    }
}

TEST_CASE("waits whose signals come late succeed")
{
    test_on_threads(2, wait_for_a_late_signal, NULL);
    over_networks(2, 1, wait_for_a_late_signal, NULL);
}

struct delay {
    gyre_comm *alone;  /* a communicator of one rank */
    uint32_t may_send; /* rank 0 has enqueued its part */
};

/* Rank 1 leaves with a signal behind an operation of another communicator. So it is not blocked,
 * and rank 0's wait goes on until the signal comes. */
static void signal_behind_another_communicator(gyre_comm *comm, int rank, int n_ranks,
                                               void *argument)
{
    struct delay *delay = argument;
    const gyre_signal_wait first = {0, 0, 1}, one = {1 - rank, 0, 1}, back = {1 - rank, 1, 1};
    gyre_stream streams[2] = {puts_stream(comm), puts_stream(comm)};
    (void)puts_window(comm, puts_buffer(comm, 1), 1);
    (void)n_ranks;
    if (rank == 0) {
        CHECK_OK(gyre_wait_signal(&one, 1, comm, streams[0]));
        CHECK_OK(gyre_signal(1, 1, comm, streams[0]));
    } else {
        CHECK_OK(gyre_wait_signal(&first, 1, delay->alone, streams[1]));
        CHECK_OK(gyre_signal(0, 0, comm, streams[1]));
        CHECK_OK(gyre_wait_signal(&back, 1, comm, streams[0]));
    }
    if (rank == 0)
        gyre_store_release_u32(&delay->may_send, 1);
    CHECK_OK(gyre_comm_finalize(comm));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(gyre_stream_synchronize(streams[i], GYRE_DEVICE_HOST));
        CHECK_OK(gyre_stream_destroy(streams[i], GYRE_DEVICE_HOST));
    }
}

static void *send_late(void *argument)
{
    const struct timespec nap = {0, 400000000};
    struct delay *delay = argument;
    while (gyre_load_acquire_u32(&delay->may_send) == 0)
        sched_yield();
    nanosleep(&nap, NULL);
    gyre_stream stream = puts_stream(delay->alone);
    CHECK_OK(gyre_signal(0, 0, delay->alone, stream));
    CHECK_OK(gyre_stream_synchronize(stream, GYRE_DEVICE_HOST));
    CHECK_OK(gyre_stream_destroy(stream, GYRE_DEVICE_HOST));
    return NULL;
}

TEST_CASE("a rank with other operations before its signal is waited for")
{
    const gyre_config config = test_config(0);
    struct delay delay = {0};
    pthread_t thread;
    CHECK_OK(gyre_comm_init_all(&delay.alone, 1, NULL, &config));
    (void)puts_window(delay.alone, puts_buffer(delay.alone, 1), 1);
    pthread_create(&thread, NULL, send_late, &delay);
    test_on_threads(2, signal_behind_another_communicator, &delay);
    pthread_join(thread, NULL);
    CHECK_OK(gyre_comm_destroy(delay.alone));
}
