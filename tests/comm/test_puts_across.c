/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/comm/puts_rig.h"

#include <signal.h>
#include <time.h>
#ifdef TEST_WITH_VERBS
#include "tests/nic/verbs_memory.h"
#endif

/* Each rank reads GYRE_HOSTID in its init, so one thread makes these calls. */
static void on_hosts(int n_hosts, int n_per_host, test_rank_fn run, void *argument)
{
    const int n_ranks = n_hosts * n_per_host;
    gyre_comm *comms[TEST_MAX_RANKS];
    gyre_unique_id id;
    test_had_threads = true;
    CHECK_OK(gyre_get_unique_id(&id));
    CHECK_OK(gyre_group_start());
    for (int rank = 0; rank < n_ranks; rank++) {
        const gyre_config config = test_config(rank);
        char host[16];
        snprintf(host, sizeof(host), "host%d", rank / n_per_host);
        setenv("GYRE_HOSTID", host, 1);
        CHECK_OK(gyre_comm_init_rank(&comms[rank], n_ranks, &id, rank, &config));
    }
    CHECK_OK(gyre_group_end());
    unsetenv("GYRE_HOSTID");
    if (test_n_failures == 0)
        test_on_comms(comms, n_ranks, run, argument);
}

static void over_sockets(int n_hosts, int n_per_host, test_rank_fn run, void *argument)
{
    setenv("GYRE_NET", "Socket", 1);
    on_hosts(n_hosts, n_per_host, run, argument);
    unsetenv("GYRE_NET");
}

#ifdef TEST_WITH_VERBS
static void over_rdma(int n_hosts, int n_per_host, test_rank_fn run, void *argument)
{
    CHECK(vm_install(vm_one_nic));
    setenv("GYRE_NET", "IB", 1);
    on_hosts(n_hosts, n_per_host, run, argument);
    unsetenv("GYRE_NET");
    CHECK(vm_uninstall());
}
#endif

static void over_networks(int n_hosts, int n_per_host, test_rank_fn run, void *argument)
{
    over_sockets(n_hosts, n_per_host, run, argument);
#ifdef TEST_WITH_VERBS
    over_rdma(n_hosts, n_per_host, run, argument);
#endif
}

static void set_apart(bool is_apart)
{
    if (is_apart)
        setenv("GYRE_SHM_DISABLE", "1", 1);
    else
        unsetenv("GYRE_SHM_DISABLE");
}

static void on_processes(int n_ranks, test_rank_fn run, void *argument)
{
    set_apart(true);
    test_on_processes(n_ranks, run, argument);
    set_apart(false);
}

enum { COUNT = 100003, N_ROUNDS = 3, N_SIGNALS = 500 };

/* Into every rank's window, itself included, at a place of its own. A signal back says that the
 * numbers were read. The call's memory is ordinary where no other process maps it. */
TEST_RANK(put_to_all)
{
    int *memory = puts_buffer(comm, (size_t)n_ranks * COUNT + 1), *local = puts_buffer(comm, COUNT);
    gyre_stream stream = puts_stream(comm);
    const gyre_window window = puts_window(comm, memory, (size_t)n_ranks * COUNT + 1);
    for (int round = 0; round < N_ROUNDS; round++) {
        puts_fill(comm, local, COUNT, rank, round);
        for (int peer = 0; peer < n_ranks; peer++) {
            const gyre_put_target target = {peer, window, ((size_t)rank * COUNT + 1) * sizeof(int),
                                            5};
            CHECK_OK(gyre_put(local, COUNT, GYRE_INT32, &target, comm, stream));
        }
        for (int peer = 0; peer < n_ranks; peer++) {
            const gyre_signal_wait data_came = {peer, 5, 1};
            CHECK_OK(gyre_wait_signal(&data_came, 1, comm, stream));
            CHECK_OK(gyre_stream_synchronize(stream, test_device()));
            puts_check(comm, memory + 1 + (size_t)peer * COUNT, COUNT, peer, round);
            CHECK_OK(gyre_signal(peer, 6, comm, stream));
        }
        for (int peer = 0; peer < n_ranks; peer++) {
            const gyre_signal_wait was_read = {peer, 6, 1};
            CHECK_OK(gyre_wait_signal(&was_read, 1, comm, stream));
        }
        CHECK_OK(gyre_stream_synchronize(stream, test_device()));
    }
    CHECK(memory[0] == 0);
    puts_close(comm, window, stream, memory, local);
}

TEST_CASE("puts to every rank arrive before their signal")
{
    over_networks(2, 1, put_to_all, NULL);
    over_networks(2, 2, put_to_all, NULL);
    over_networks(3, 1, put_to_all, NULL);
}

TEST_RUNS("so do those of processes without shared memory", on_processes(3, put_to_all, NULL))

/* Rank 1 counts up one word of rank 0's window from two streams, and signals each time. The last
 * signal finds its stream's last word. */
TEST_RANK(signal_often)
{
    const gyre_signal_wait all = {1, 3, 2 * N_SIGNALS}, one = {1, 3, 1};
    static int numbers[2][N_SIGNALS];
    int *memory = puts_buffer(comm, 2);
    gyre_stream streams[2] = {puts_stream(comm), puts_stream(comm)};
    uint8_t bytes[TEST_MAX_RANKS] = {0};
    const gyre_window window = puts_window(comm, memory, 2);
    for (int i = 0; rank == 1 && i < 2 * N_SIGNALS; i++) {
        const gyre_put_target target = {0, window, (size_t)(i % 2) * sizeof(int), 3};
        numbers[i % 2][i / 2] = i / 2 + 1;
        CHECK_OK(gyre_put(&numbers[i % 2][i / 2], 1, GYRE_INT32, &target, comm, streams[i % 2]));
    }
    if (rank == 0) {
        CHECK_OK(gyre_wait_signal(&all, 1, comm, streams[0]));
        CHECK_OK(gyre_stream_synchronize(streams[0], test_device()));
        CHECK_MSG(memory[0] == N_SIGNALS && memory[1] == N_SIGNALS, "%d, %d", memory[0], memory[1]);
        CHECK_OK(gyre_wait_signal(&one, 1, comm, streams[0]));
        CHECK(gyre_stream_query(streams[0], test_device()) == GYRE_IN_PROGRESS);
    }
    CHECK_OK(gyre_comm_exchange(comm, bytes, 1, bytes)); /* rank 1 signals after the query */
    if (rank == 1)
        CHECK_OK(gyre_signal(0, 3, comm, streams[1]));
    for (int i = 0; i < 2; i++) {
        test_end_stream(streams[i], test_device());
    }
    puts_close(comm, window, NULL, memory, NULL);
}

TEST_RUNS("signals of several streams are all counted", over_networks(2, 1, signal_often, NULL))

/* Puts without a signal are in the window when it was given back, and the next window of the same
 * memory gets none of them. */
TEST_RANK(put_and_give_back)
{
    int *memory = puts_buffer(comm, COUNT), *local = puts_buffer(comm, COUNT);
    gyre_stream stream = puts_stream(comm);
    for (int round = 0; round < N_ROUNDS; round++) {
        const gyre_window window = puts_window(comm, memory, COUNT);
        const gyre_put_target quiet = {0, window, 0, GYRE_NO_SIGNAL};
        puts_fill(comm, local, COUNT, rank, round);
        if (rank == n_ranks - 1)
            CHECK_OK(gyre_put(local, COUNT, GYRE_INT32, &quiet, comm, stream));
        CHECK_OK(gyre_stream_synchronize(stream, test_device()));
        CHECK_OK(gyre_window_deregister(comm, window));
        if (rank == 0)
            puts_check(comm, memory, COUNT, n_ranks - 1, round);
    }
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
    puts_free(local);
    puts_free(memory);
}

TEST_RUNS("a window that is given back has all puts", over_networks(2, 2, put_and_give_back, NULL))

/* Not all ranks address the window, so collectives do not write into it directly. */
TEST_RANK(reduce_in_windows)
{
    int *memory = puts_buffer(comm, COUNT), *local = puts_buffer(comm, COUNT);
    gyre_stream stream = puts_stream(comm);
    const gyre_window window = puts_window(comm, memory, COUNT);
    void *address = NULL;
    size_t n_bytes = 0;
    int n_wrong = 0;
    for (int i = 0; i < COUNT; i++)
        local[i] = rank + i;
    CHECK_OK(gyre_all_reduce(local, memory, COUNT, GYRE_INT32, GYRE_SUM, comm, stream));
    CHECK_OK(gyre_stream_synchronize(stream, test_device()));
    for (int i = 0; i < COUNT; i++)
        n_wrong += memory[i] != n_ranks * (n_ranks - 1) / 2 + n_ranks * i;
    CHECK_MSG(n_wrong == 0, "%d of %d sums are wrong", n_wrong, COUNT);
    CHECK_OK(gyre_window_address(comm, window, rank, &address, &n_bytes));
    CHECK(address == memory && n_bytes == COUNT * sizeof(int));
    CHECK_FAILS(gyre_window_address(comm, window, (rank + n_ranks / 2) % n_ranks, &address, NULL),
                GYRE_ERROR_UNSUPPORTED, "gyre_put reaches it");
    puts_close(comm, window, stream, memory, local);
}

TEST_RUNS("collectives in such windows are right", over_networks(2, 2, reduce_in_windows, NULL))

/* The last rank puts much, signals once, and leaves. Rank 0 takes that signal, and the next one
 * never comes. Then it puts to the rank that has left. */
TEST_RANK(leave_instead)
{
    const int other = n_ranks - 1;
    const gyre_signal_wait sent = {other, 1, 1}, missing = {other, 1, 1};
    int *memory = puts_buffer(comm, COUNT), *local = puts_buffer(comm, COUNT);
    gyre_stream stream = puts_stream(comm);
    const gyre_window window = puts_window(comm, memory, COUNT);
    const gyre_put_target target = {rank == 0 ? other : 0, window, 0, 1};
    puts_fill(comm, local, COUNT, rank, 0);
    if (rank == other) {
        CHECK_OK(gyre_put(local, COUNT, GYRE_INT32, &target, comm, stream));
        CHECK_OK(gyre_stream_synchronize(stream, test_device()));
    } else if (rank == 0) {
        CHECK_OK(gyre_wait_signal(&sent, 1, comm, stream));
        CHECK_OK(gyre_stream_synchronize(stream, test_device()));
        puts_check(comm, memory, COUNT, other, 0);
        CHECK_OK(gyre_wait_signal(&missing, 1, comm, stream));
        puts_expect_end(comm, stream, GYRE_ERROR_REMOTE,
                        "destroyed its communicator; the signal that rank 0 waits for can no "
                        "longer come");
        CHECK_OK(gyre_put(local, COUNT, GYRE_INT32, &target, comm, stream));
        CHECK_FAILS(gyre_stream_synchronize(stream, GYRE_DEVICE_HOST), GYRE_ERROR_REMOTE,
                    "destroyed its communicator; a one-sided call of rank 0");
    }
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
}

TEST_CASE("a wait ends when the rank of another host leaves")
{
    over_networks(2, 1, leave_instead, NULL);
    over_networks(2, 2, leave_instead, NULL);
}

TEST_RUNS("a wait ends when the process without shared memory leaves",
          on_processes(2, leave_instead, NULL))

TEST_RANK(end_instead)
{
    const bool by_kill = argument != NULL;
    const gyre_signal_wait first = {1, 0, 1}, missing = {1, 0, 1};
    int *memory = puts_buffer(comm, COUNT), *local = puts_buffer(comm, COUNT);
    gyre_stream streams[2] = {puts_stream(comm), puts_stream(comm)};
    const gyre_window window = puts_window(comm, memory, COUNT);
    const gyre_put_target target = {1, window, 0, 1};
    if (rank == 1) {
        CHECK_OK(gyre_signal(0, 0, comm, streams[0]));
        CHECK_OK(gyre_wait_signal(&(gyre_signal_wait){0, 1, 1}, 1, comm, streams[0]));
        CHECK_OK(gyre_stream_synchronize(streams[0], test_device()));
        if (by_kill)
            raise(SIGKILL);
        CHECK_OK(gyre_comm_abort(comm));
    } else {
        CHECK_OK(gyre_wait_signal(&first, 1, comm, streams[0]));
        CHECK_OK(gyre_wait_signal(&missing, 1, comm, streams[0]));
        for (int i = 0; i < 50; i++)
            CHECK_OK(gyre_put(local, COUNT, GYRE_INT32, &target, comm, streams[1]));
        puts_expect_end(comm, streams[0], GYRE_ERROR_REMOTE, "rank 1");
        (void)gyre_stream_synchronize(streams[1], test_device()); /* ends, either way */
    }
    for (int i = 0; i < 2; i++)
        CHECK_OK(gyre_stream_destroy(streams[i], test_device()));
}

TEST_CASE("a wait ends when the process without shared memory is killed")
{
    static int by_kill;
    pid_t pids[2];
    set_apart(true);
    test_fork_ranks(2, end_instead, &by_kill, pids);
    CHECK(test_wait_rank(pids[0]));
    CHECK(!test_wait_rank(pids[1]));
    set_apart(false);
}

TEST_RUNS("a wait ends when the rank of another host aborts",
          over_networks(2, 1, end_instead, NULL))

/* Rank 1 is stopped, so the link fills up. Each of the other puts has its own time limit. */
TEST_RANK(put_to_a_stopped_rank)
{
    int *memory = puts_buffer(comm, COUNT), *local = puts_buffer(comm, COUNT);
    gyre_stream stream = puts_stream(comm);
    const gyre_window window = puts_window(comm, memory, COUNT);
    const gyre_put_target target = {1, window, 0, 1};
    if (rank == 1)
        raise(SIGSTOP);
    for (int i = 0; i < 100; i++)
        CHECK_OK(gyre_put(local, COUNT, GYRE_INT32, &target, comm, stream));
    CHECK_FAILS(gyre_stream_synchronize(stream, test_device()), GYRE_ERROR_TIMEOUT,
                "rank 1 took no message");
    CHECK_OK(gyre_comm_abort(comm));
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
}

TEST_CASE("a put to a stopped process ends by the timeout")
{
    pid_t pids[2];
    set_apart(true);
    setenv("GYRE_TIMEOUT", "20", 1);
    test_fork_ranks(2, put_to_a_stopped_rank, NULL, pids);
    CHECK(test_wait_rank(pids[0]));
    CHECK(kill(pids[1], SIGKILL) == 0);
    CHECK(!test_wait_rank(pids[1]));
    unsetenv("GYRE_TIMEOUT");
    set_apart(false);
}

TEST_RANK(put_late)
{
    const gyre_signal_wait start = {1, 0, 1}, never = {0, 9, 1};
    int *memory = puts_buffer(comm, 1);
    gyre_stream stream = puts_stream(comm);
    const gyre_window first = puts_window(comm, memory, 1), second = puts_window(comm, memory, 1);
    const gyre_put_target target = {1, first, 0, GYRE_NO_SIGNAL};
    if (rank == 0) {
        CHECK_OK(gyre_wait_signal(&start, 1, comm, stream));
        CHECK_OK(gyre_put(memory, 1, GYRE_INT32, &target, comm, stream));
    }
    CHECK_OK(gyre_window_deregister(comm, first));
    if (rank == 1) {
        CHECK_OK(gyre_signal(0, 0, comm, stream));
        CHECK_OK(gyre_wait_signal(&never, 1, comm, stream));
        CHECK_BAD_USAGE(gyre_stream_synchronize(stream, GYRE_DEVICE_HOST),
                        "give a window back after all calls that use it are complete");
    }
    (void)second;
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
}

TEST_RUNS("a put into a window that was given back is an error",
          over_networks(2, 1, put_late, NULL))

/* No rank of this version sends these: of an unknown kind, signal, or window. */
struct bad_message {
    struct gyre_put_head head;
    gyre_status status;
    const char *words;
};

TEST_RANK(send_bad_message)
{
    const struct bad_message *bad = argument;
    const gyre_signal_wait registered = {1, 0, 1};
    const int data = 0;
    gyre_stream stream = puts_stream(comm);
    (void)puts_window(comm, puts_buffer(comm, 1), 1);
    if (rank == 0) { /* a fault, so it must not meet a rank that still registers */
        CHECK_OK(gyre_wait_signal(&registered, 1, comm, stream));
        CHECK_OK(gyre_stream_synchronize(stream, test_device()));
        CHECK(gyre_put_links_post(comm->puts.links, 1, &bad->head, &data));
        CHECK_OK(gyre_stream_destroy(stream, test_device()));
        return;
    }
    CHECK_OK(gyre_signal(0, 0, comm, stream));
    const gyre_status status = test_await_error(comm);
    CHECK_MSG(status == bad->status && strstr(gyre_comm_last_error(comm), bad->words) != NULL,
              "%s: %s", gyre_status_name(status), gyre_comm_last_error(comm));
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
}

TEST_CASE("messages that mean nothing are errors")
{
    const struct bad_message messages[] = {
        {{.kind = 99, .signal = GYRE_NO_SIGNAL}, GYRE_ERROR_REMOTE, "the unknown kind 99"},
        {{.kind = GYRE_PUT_DATA, .signal = GYRE_N_SIGNALS}, GYRE_ERROR_INVALID_USAGE, "rank 0 put"},
        {{.kind = GYRE_PUT_DATA, .window = 7, .n_bytes = 4, .signal = GYRE_NO_SIGNAL},
         GYRE_ERROR_INVALID_USAGE,
         "into window 7, where rank 1 has no such bytes"},
        {{.kind = GYRE_PUT_DATA,
          .window = 1,
          .offset_bytes = UINT64_MAX,
          .n_bytes = 4,
          .signal = GYRE_NO_SIGNAL},
         GYRE_ERROR_INVALID_USAGE,
         "into window 1, where rank 1 has no such bytes"},
    };
    for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++)
        over_sockets(2, 1, send_bad_message, (void *)(uintptr_t)&messages[i]);
}

enum { N_LATE_ROUNDS = 200 };

/* Every rank waits for the next one's signal, behind one that comes, and leaves. Of two ranks each
 * has the other's signal behind its wait. A failed wait holds no later signal back, so in a larger
 * circle the other waits would succeed. */
TEST_RANK(wait_in_a_circle)
{
    const int next = (rank + 1) % n_ranks, before = (rank + n_ranks - 1) % n_ranks;
    const gyre_signal_wait sent = {next, 1, 1}, missing = {next, 0, 1};
    gyre_stream stream = puts_stream(comm);
    char words[120];
    (void)puts_window(comm, puts_buffer(comm, 1), 1);
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

TEST_RUNS("so do processes without shared memory", on_processes(2, wait_in_a_circle, NULL))

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

/* Rank 0 leaves at once. Rank 1 sends the signals in the end, so no wait fails. Both are blocked in
 * between, and rank 0 waits in two streams. */
TEST_RANK(wait_for_a_late_signal)
{
    const struct timespec nap = {0, 400000000};
    const gyre_signal_wait one = {1 - rank, 0, 1}, other = {1 - rank, 1, 1};
    gyre_stream streams[2] = {puts_stream(comm), puts_stream(comm)};
    (void)puts_window(comm, puts_buffer(comm, 1), 1);
    for (int round = 0; rank == 0 && round < N_LATE_ROUNDS; round++) {
        CHECK_OK(gyre_wait_signal(&one, 1, comm, streams[0]));
        CHECK_OK(gyre_signal(1, 0, comm, streams[0]));
    }
    if (rank == 0)
        CHECK_OK(gyre_wait_signal(&other, 1, comm, streams[1]));
    if (rank == 1)
        nanosleep(&nap, NULL);
    for (int round = 0; rank == 1 && round < N_LATE_ROUNDS; round++) {
        CHECK_OK(gyre_signal(0, 0, comm, streams[0]));
        CHECK_OK(gyre_wait_signal(&one, 1, comm, streams[0]));
    }
    if (rank == 1)
        CHECK_OK(gyre_signal(0, 1, comm, streams[0]));
    CHECK_OK(gyre_comm_finalize(comm));
    for (int i = 0; i < 2; i++) {
        test_end_stream(streams[i], GYRE_DEVICE_HOST);
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

/* Rank 1 leaves with a signal behind another communicator's operation. So it is not blocked, and
 * rank 0 waits until the signal comes. */
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
        test_end_stream(streams[i], GYRE_DEVICE_HOST);
    }
}

static void *send_late(void *argument)
{
    const struct timespec nap = {0, 400000000};
    struct delay *delay = argument;
    test_await(&delay->may_send, 1);
    nanosleep(&nap, NULL);
    gyre_stream stream = puts_stream(delay->alone);
    CHECK_OK(gyre_signal(0, 0, delay->alone, stream));
    test_end_stream(stream, GYRE_DEVICE_HOST);
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
