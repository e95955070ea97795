/* SPDX-License-Identifier: Apache-2.0
 *
 * One-sided puts and signals between ranks that are threads of one process, on the host.
 */
#include "core/comm/comm.h"
#include "tests/support/ranks.h"

#include <pthread.h>
#include <sched.h>

enum { N = 4, COUNT = 200000 };

static gyre_stream make_stream(void)
{
    gyre_stream stream = NULL;
    CHECK_OK(gyre_stream_create(&stream, GYRE_DEVICE_HOST, -1));
    return stream;
}

static gyre_window make_window(gyre_comm *comm, void *buffer, size_t n_bytes)
{
    gyre_window window = 0;
    CHECK_OK(gyre_window_register(comm, buffer, n_bytes, &window));
    return window;
}

/* Every rank writes its numbers into its right neighbour's window, several times. A signal back
 * says that the numbers were read. */
static void put_around(gyre_comm *comm, int rank, int n_ranks, void *argument)
{
    const int right = (rank + 1) % n_ranks;
    const int left = (rank + n_ranks - 1) % n_ranks;
    int *window_memory = calloc(COUNT + 3, sizeof(int));
    int *local = malloc(COUNT * sizeof(int));
    gyre_stream stream = make_stream();
    const gyre_window window = make_window(comm, window_memory, (COUNT + 3) * sizeof(int));
    const gyre_put_target target = {right, window, 3 * sizeof(int), 5};
    const gyre_signal_wait data_came = {left, 5, 1};
    const gyre_signal_wait was_read = {right, 6, 1};
    (void)argument;
    for (int round = 0; round < 4; round++) {
        int n_wrong = 0;
        for (int i = 0; i < COUNT; i++)
            local[i] = 1000 * round + 100000 * rank + i;
        CHECK_OK(gyre_put(local, COUNT, GYRE_INT32, &target, comm, stream));
        CHECK_OK(gyre_wait_signal(&data_came, 1, comm, stream));
        CHECK_OK(gyre_stream_synchronize(stream, GYRE_DEVICE_HOST));
        for (int i = 0; i < COUNT; i++)
            n_wrong += window_memory[3 + i] != 1000 * round + 100000 * left + i;
        CHECK_MSG(n_wrong == 0 && window_memory[2] == 0, "round %d: %d wrong", round, n_wrong);
        CHECK_OK(gyre_signal(left, 6, comm, stream));
        CHECK_OK(gyre_wait_signal(&was_read, 1, comm, stream));
        CHECK_OK(gyre_stream_synchronize(stream, GYRE_DEVICE_HOST));
    }
    CHECK_OK(gyre_window_deregister(comm, window));
    CHECK_OK(gyre_stream_destroy(stream, GYRE_DEVICE_HOST));
    free(local);
    free(window_memory);
}

static void puts_arrive_before_their_signal_and_nowhere_else(void)
{
    test_on_threads(N, put_around, NULL);
}

/* Signals of one number and pair are counted; other numbers and pairs do not count. */
static void count_signals(gyre_comm *comm, int rank, int n_ranks, void *argument)
{
    int values[4] = {0, 0, 0, 0};
    const int ones[2] = {1, 2};
    gyre_stream stream = make_stream();
    const gyre_window window = make_window(comm, values, sizeof(values));
    (void)n_ranks, (void)argument;
    if (rank == 0) {
        const gyre_signal_wait many[] = {{1, 0, 3}, {2, 0, 1}, {0, 31, 1}, {1, 9, 0}};
        CHECK_OK(gyre_signal(0, 31, comm, stream)); /* to itself */
        CHECK_OK(gyre_wait_signal(many, 4, comm, stream));
        CHECK_OK(gyre_wait_signal(many, 0, comm, stream));
        CHECK_OK(gyre_stream_synchronize(stream, GYRE_DEVICE_HOST));
        CHECK(values[1] == 1 && values[2] == 2 && values[0] == 0 && values[3] == 0);
    } else if (rank == 1) { /* the puts have no signal: later signals of the stream cover them */
        const gyre_put_target quiet = {0, window, sizeof(int), GYRE_NO_SIGNAL};
        CHECK_OK(gyre_put(ones, 2, GYRE_INT32, &quiet, comm, stream));
        for (int i = 0; i < 3; i++)
            CHECK_OK(gyre_signal(0, 0, comm, stream));
    } else if (rank == 2) {
        const gyre_put_target nothing = {0, window, sizeof(values), 0};
        CHECK_OK(gyre_put(NULL, 0, GYRE_INT32, &nothing, comm, stream));
    }
    CHECK_OK(gyre_stream_synchronize(stream, GYRE_DEVICE_HOST));
    CHECK_OK(gyre_window_deregister(comm, window));
    CHECK_OK(gyre_stream_destroy(stream, GYRE_DEVICE_HOST));
}

static void signals_are_counted_by_rank_and_number(void)
{
    test_on_threads(N, count_signals, NULL);
}

static void wait_too_early(gyre_comm *comm, int rank, int n_ranks, void *argument)
{
    int value = 0;
    gyre_stream stream = make_stream();
    const gyre_window window = make_window(comm, &value, sizeof(value));
    const gyre_signal_wait one = {1, 0, 1};
    (void)n_ranks, (void)argument;
    if (rank == 0) {
        CHECK_OK(gyre_wait_signal(&one, 1, comm, stream));
        CHECK(gyre_stream_query(stream, GYRE_DEVICE_HOST) == GYRE_IN_PROGRESS);
    }
    uint8_t all[2] = {0, 0}; /* rank 1 signals after the query */
    CHECK_OK(gyre_comm_exchange(comm, all, 1, all));
    if (rank == 1)
        CHECK_OK(gyre_signal(0, 0, comm, stream));
    CHECK_OK(gyre_stream_synchronize(stream, GYRE_DEVICE_HOST));
    CHECK_OK(gyre_window_deregister(comm, window));
    CHECK_OK(gyre_stream_destroy(stream, GYRE_DEVICE_HOST));
}

static void a_wait_holds_its_stream_until_the_signal_comes(void)
{
    test_on_threads(2, wait_too_early, NULL);
}

/* ---- failures ----------------------------------------------------------------------------- */

static void pass_wrong_arguments(gyre_comm *comm, int rank, int n_ranks, void *argument)
{
    char memory[64] = "", source[64] = "";
    const gyre_signal_wait waits[] = {{0, GYRE_N_SIGNALS, 1}, {0, 0, -1}};
    (void)rank, (void)argument;
    CHECK_FAILS(gyre_signal(0, 0, comm, NULL), GYRE_ERROR_INVALID_USAGE, "register one first");
    const gyre_window window = make_window(comm, memory, sizeof(memory));
    gyre_put_target target = {0, window, 60, 0};
    CHECK_FAILS(gyre_put(source, 5, GYRE_INT8, &target, comm, NULL), GYRE_ERROR_INVALID_ARGUMENT,
                "5 bytes at offset 60 do not fit into window");
    target.offset_bytes = 65;
    CHECK_FAILS(gyre_put(source, 0, GYRE_INT8, &target, comm, NULL), GYRE_ERROR_INVALID_ARGUMENT,
                "do not fit");
    target.offset_bytes = 0;
    CHECK_FAILS(gyre_put(source, SIZE_MAX, GYRE_FLOAT64, &target, comm, NULL),
                GYRE_ERROR_INVALID_ARGUMENT, "2^63");
    CHECK_FAILS(gyre_put(NULL, 1, GYRE_INT8, &target, comm, NULL), GYRE_ERROR_INVALID_ARGUMENT,
                "local");
    CHECK_FAILS(gyre_put(source, 1, GYRE_INT8, NULL, comm, NULL), GYRE_ERROR_INVALID_ARGUMENT,
                "target is NULL");
    target.window = window + 1;
    CHECK_FAILS(gyre_put(source, 1, GYRE_INT8, &target, comm, NULL), GYRE_ERROR_INVALID_ARGUMENT,
                "is none of this communicator");
    target.peer = n_ranks;
    CHECK_FAILS(gyre_put(source, 1, GYRE_INT8, &target, comm, NULL), GYRE_ERROR_INVALID_ARGUMENT,
                "is not a rank");
    CHECK_FAILS(gyre_signal(0, -1, comm, NULL), GYRE_ERROR_INVALID_ARGUMENT, "is not in 0..31");
    CHECK_FAILS(gyre_wait_signal(waits, 1, comm, NULL), GYRE_ERROR_INVALID_ARGUMENT, "0..31");
    CHECK_FAILS(gyre_wait_signal(waits + 1, 1, comm, NULL), GYRE_ERROR_INVALID_ARGUMENT,
                "negative");
    CHECK_FAILS(gyre_wait_signal(NULL, 1, comm, NULL), GYRE_ERROR_INVALID_ARGUMENT, "no list");
    CHECK_OK(gyre_window_deregister(comm, window));
}

static void wrong_arguments_are_refused(void)
{
    test_on_threads(2, pass_wrong_arguments, NULL);
}

/* Rank 1 aborts instead of signalling; rank 0's wait, which is enqueued before, ends with the
 * cause. */
static void abort_instead(gyre_comm *comm, int rank, int n_ranks, void *argument)
{
    int value = 0;
    gyre_stream stream = make_stream();
    (void)make_window(comm, &value, sizeof(value));
    const gyre_signal_wait one = {1, 0, 1};
    (void)n_ranks;
    if (rank == 0)
        CHECK_OK(gyre_wait_signal(&one, 1, comm, stream));
    pthread_barrier_wait(argument); /* a call after the abort would fail itself */
    if (rank == 0)
        CHECK_FAILS(gyre_stream_synchronize(stream, GYRE_DEVICE_HOST), GYRE_ERROR_REMOTE,
                    "aborted");
    else
        CHECK_OK(gyre_comm_abort(comm));
    CHECK_OK(gyre_stream_destroy(stream, GYRE_DEVICE_HOST));
}

static void a_wait_ends_when_the_other_rank_aborts(void)
{
    pthread_barrier_t enqueued;
    pthread_barrier_init(&enqueued, NULL, 2);
    test_on_threads(2, abort_instead, &enqueued);
    pthread_barrier_destroy(&enqueued);
}

static void a_wait_without_signal_ends_by_the_timeout(void)
{
    gyre_comm *comm = NULL;
    gyre_config config = test_config(0);
    int value = 0;
    gyre_stream stream = make_stream();
    const gyre_signal_wait one = {0, 0, 1};
    config.timeout_ms = 20;
    CHECK_OK(gyre_comm_init_all(&comm, 1, NULL, &config));
    (void)make_window(comm, &value, sizeof(value));
    CHECK_OK(gyre_wait_signal(&one, 1, comm, stream));
    CHECK_FAILS(gyre_stream_synchronize(stream, GYRE_DEVICE_HOST), GYRE_ERROR_TIMEOUT,
                "0 of 1 signals");
    CHECK_OK(gyre_comm_destroy(comm));
    CHECK_OK(gyre_stream_destroy(stream, GYRE_DEVICE_HOST));
}

/* The queued wait outlives its communicator and does not touch it. */
static void a_wait_ends_when_its_communicator_is_destroyed(void)
{
    gyre_comm *comm = NULL;
    const gyre_config config = test_config(0);
    int value = 0;
    gyre_stream stream = make_stream();
    const gyre_signal_wait one = {0, 0, 1};
    CHECK_OK(gyre_comm_init_all(&comm, 1, NULL, &config));
    (void)make_window(comm, &value, sizeof(value));
    CHECK_OK(gyre_wait_signal(&one, 1, comm, stream));
    CHECK_OK(gyre_comm_abort(comm));
    CHECK_OK(gyre_comm_destroy(comm));
    CHECK_FAILS(gyre_stream_synchronize(stream, GYRE_DEVICE_HOST), GYRE_ERROR_ABORTED, "");
    CHECK_OK(gyre_stream_destroy(stream, GYRE_DEVICE_HOST));
}

/* ---- a rank that pauses --------------------------------------------------------------------- */

/* The linker sends calls to the functions with "wrap" in their names. */
gyre_status __real_gyre_signals_import(struct gyre_comm *comm, int rank,
                                       const struct gyre_share_handle *handle);
gyre_status __wrap_gyre_signals_import(struct gyre_comm *comm, int rank,
                                       const struct gyre_share_handle *handle);
void __real_gyre_signals_fini(struct gyre_comm *comm);
void __wrap_gyre_signals_fini(struct gyre_comm *comm);

/* Rank 1 pauses between the all-gather that tells it of rank 0's counters and mapping them. */
static struct {
    uint32_t is_wanted;
    uint32_t has_paused; /* rank 1 */
    uint32_t is_freed;   /* rank 0 has given its counters up */
} pause_of_rank_1;

gyre_status __wrap_gyre_signals_import(struct gyre_comm *comm, int rank,
                                       const struct gyre_share_handle *handle)
{
    const bool pauses =
        gyre_load_acquire_u32(&pause_of_rank_1.is_wanted) != 0 && comm->member.rank == 1;
    if (!pauses)
        return __real_gyre_signals_import(comm, rank, handle);
    gyre_store_release_u32(&pause_of_rank_1.has_paused, 1);
    while (gyre_load_acquire_u32(&pause_of_rank_1.is_freed) == 0)
        sched_yield();
    CHECK(rank == 0 && handle->allocation_bytes > 0);
    CHECK_FAILS(__real_gyre_signals_import(comm, rank, handle), GYRE_ERROR_REMOTE,
                "rank 0 has ended the communicator");
    return GYRE_ERROR_REMOTE;
}

void __wrap_gyre_signals_fini(struct gyre_comm *comm)
{
    const int rank = comm->member.rank;
    __real_gyre_signals_fini(comm);
    if (gyre_load_acquire_u32(&pause_of_rank_1.is_wanted) != 0 && rank == 0)
        gyre_store_release_u32(&pause_of_rank_1.is_freed, 1);
}

static void *register_in_vain(void *argument)
{
    int value = 0;
    gyre_window window = 0;
    CHECK(gyre_window_register(argument, &value, sizeof(value), &window) != GYRE_SUCCESS);
    CHECK_OK(gyre_comm_destroy(argument));
    return NULL;
}

static void a_rank_that_pauses_does_not_use_counters_of_a_rank_that_has_gone(void)
{
    gyre_comm *comms[2];
    pthread_t threads[2];
    const gyre_config config = test_config(0);
    gyre_store_release_u32(&pause_of_rank_1.is_wanted, 1);
    CHECK_OK(gyre_comm_init_all(comms, 2, NULL, &config));
    for (int rank = 0; rank < 2; rank++)
        pthread_create(&threads[rank], NULL, register_in_vain, comms[rank]);
    while (gyre_load_acquire_u32(&pause_of_rank_1.has_paused) == 0)
        sched_yield();
    CHECK_OK(gyre_comm_abort(comms[0]));
    for (int rank = 0; rank < 2; rank++)
        pthread_join(threads[rank], NULL);
    gyre_store_release_u32(&pause_of_rank_1.is_wanted, 0);
}

static const struct test_case cases[] = {
    {"puts arrive before their signal and nowhere else",
     puts_arrive_before_their_signal_and_nowhere_else},
    {"signals are counted by rank and number", signals_are_counted_by_rank_and_number},
    {"a wait holds its stream until the signal comes",
     a_wait_holds_its_stream_until_the_signal_comes},
    {"wrong arguments are refused", wrong_arguments_are_refused},
    {"a wait ends when the other rank aborts", a_wait_ends_when_the_other_rank_aborts},
    {"a wait without signal ends by the timeout", a_wait_without_signal_ends_by_the_timeout},
    {"a wait ends when its communicator is destroyed",
     a_wait_ends_when_its_communicator_is_destroyed},
    {"a rank that pauses does not use counters of a rank that has gone",
     a_rank_that_pauses_does_not_use_counters_of_a_rank_that_has_gone},
};

TEST_MAIN(cases)
