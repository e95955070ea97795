/* SPDX-License-Identifier: Apache-2.0
 *
 * Which thread may do what with a communicator at the same time as another one, and which ranks may
 * share a host stream. What is not allowed is refused; it does not crash and does not hang.
 */
#include "core/base/util.h"
#include "core/comm/comm.h"
#include "tests/support/ranks.h"

#include <sched.h>

enum { N_ELEMS = 1000 };

static int32_t out[2][N_ELEMS], in[2][N_ELEMS];

static void open_pair(gyre_comm **comms)
{
    const gyre_config config = test_config(0);
    CHECK_OK(gyre_comm_init_all(comms, 2, NULL, &config));
}

static gyre_status add_up(gyre_comm *const *comms, int rank, gyre_stream stream)
{
    return gyre_all_reduce(out[rank], in[rank], N_ELEMS, GYRE_INT32, GYRE_SUM, comms[rank], stream);
}

static void fill(void)
{
    for (int rank = 0; rank < 2; rank++)
        for (int i = 0; i < N_ELEMS; i++) {
            out[rank][i] = i * (rank + 1);
            in[rank][i] = -1;
        }
}

static void check_sums(void)
{
    for (int rank = 0; rank < 2; rank++)
        CHECK_MSG(in[rank][N_ELEMS - 1] == (N_ELEMS - 1) * 3, "%d", in[rank][N_ELEMS - 1]);
}

/* ---- two threads, one communicator --------------------------------------------------------- */

struct caller {
    pthread_t thread;
    gyre_comm *comm;
    gyre_status status;
    char cause[GYRE_CAUSE_MAX_BYTES];
};

/* A call that waits for the other rank, which does not come. */
static void *exchange(void *argument)
{
    struct caller *caller = argument;
    int mine = 0, all[2];
    caller->status = gyre_comm_exchange(caller->comm, &mine, sizeof(mine), all);
    snprintf(caller->cause, sizeof(caller->cause), "%s", gyre_last_error());
    return NULL;
}

static void start_exchange(struct caller *caller, gyre_comm *comm)
{
    caller->comm = comm;
    pthread_create(&caller->thread, NULL, exchange, caller);
    while (gyre_load_acquire_u32(&comm->in_call) == 0)
        sched_yield();
}

static void a_call_beside_another_threads_is_refused(void)
{
    gyre_comm *comms[2];
    struct caller caller;
    gyre_status status = GYRE_SUCCESS;
    fill();
    open_pair(comms);
    start_exchange(&caller, comms[0]);
    CHECK_FAILS(add_up(comms, 0, NULL), GYRE_ERROR_INVALID_USAGE,
                "two threads called on rank 0 of communicator");
    pthread_join(caller.thread, NULL);
    CHECK(caller.status != GYRE_SUCCESS);
    CHECK_MSG(strstr(caller.cause, "two threads called") != NULL, "%s", caller.cause);
    /* The other rank hears of it, and does not wait for calls that cannot come. */
    while (status == GYRE_SUCCESS)
        CHECK_OK(gyre_comm_async_error(comms[1], &status));
    CHECK_MSG(strstr(gyre_comm_last_error(comms[1]), "two threads called") != NULL, "%s",
              gyre_comm_last_error(comms[1]));
    for (int rank = 0; rank < 2; rank++)
        CHECK_OK(gyre_comm_destroy(comms[rank]));
}

static void a_group_beside_another_threads_call_is_refused(void)
{
    gyre_comm *comms[2];
    struct caller caller;
    fill();
    open_pair(comms);
    CHECK_OK(gyre_group_start());
    CHECK_OK(add_up(comms, 0, NULL));
    start_exchange(&caller, comms[0]);
    CHECK_FAILS(gyre_group_end(), GYRE_ERROR_INVALID_USAGE, "two threads called on rank 0");
    pthread_join(caller.thread, NULL);
    for (int rank = 0; rank < 2; rank++)
        CHECK_OK(gyre_comm_destroy(comms[rank]));
}

static void questions_may_be_asked_beside_a_call(void)
{
    gyre_comm *comms[2];
    struct caller caller;
    gyre_registration registration = NULL;
    gyre_status status = GYRE_IN_PROGRESS;
    int n_ranks = 0, rank = -1, mine = 0, all[2];
    open_pair(comms);
    start_exchange(&caller, comms[0]);
    CHECK_OK(gyre_comm_count(comms[0], &n_ranks));
    CHECK_OK(gyre_comm_rank(comms[0], &rank));
    CHECK_OK(gyre_comm_device(comms[0], NULL, NULL));
    CHECK_OK(gyre_comm_async_error(comms[0], &status));
    CHECK(n_ranks == 2 && rank == 0 && status == GYRE_SUCCESS);
    CHECK_OK(gyre_comm_register(comms[0], out, sizeof(out), &registration));
    CHECK_OK(gyre_comm_deregister(comms[0], registration));
    CHECK_OK(gyre_comm_exchange(comms[1], &mine, sizeof(mine), all));
    pthread_join(caller.thread, NULL);
    CHECK(caller.status == GYRE_SUCCESS);
    for (int i = 0; i < 2; i++)
        CHECK_OK(gyre_comm_destroy(comms[i]));
}

/* Two threads of each rank call by turns: any thread may call, one at a time. */
struct turns {
    gyre_comm *const *comms;
    int rank;
    uint32_t *turn;
    uint32_t parity;
};

static void *call_by_turns(void *argument)
{
    struct turns *turns = argument;
    for (int i = 0; i < 100; i++) {
        while (gyre_load_acquire_u32(turns->turn) % 2 != turns->parity)
            sched_yield();
        CHECK_OK(add_up(turns->comms, turns->rank, NULL));
        CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
        gyre_fetch_add_u32(turns->turn, 1);
    }
    return NULL;
}

static void threads_may_take_turns(void)
{
    gyre_comm *comms[2];
    pthread_t threads[4];
    struct turns turns[4];
    uint32_t turn[2] = {0, 0};
    fill();
    open_pair(comms);
    for (int i = 0; i < 4; i++) {
        turns[i] = (struct turns){comms, i / 2, &turn[i / 2], (uint32_t)i % 2};
        pthread_create(&threads[i], NULL, call_by_turns, &turns[i]);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    check_sums();
    for (int rank = 0; rank < 2; rank++)
        CHECK_OK(gyre_comm_destroy(comms[rank]));
}

/* ---- destroying ---------------------------------------------------------------------------- */

static void *destroy(void *argument)
{
    struct caller *caller = argument;
    caller->status = gyre_comm_destroy(caller->comm);
    snprintf(caller->cause, sizeof(caller->cause), "%s", gyre_last_error());
    return NULL;
}

static void one_of_several_threads_destroys(void)
{
    for (int round = 0; round < 100; round++) {
        gyre_comm *comms[2];
        struct caller callers[4];
        open_pair(comms);
        for (int i = 0; i < 4; i++) {
            callers[i].comm = comms[i % 2];
            pthread_create(&callers[i].thread, NULL, destroy, &callers[i]);
        }
        for (int i = 0; i < 4; i++)
            pthread_join(callers[i].thread, NULL);
        for (int rank = 0; rank < 2; rank++) {
            const struct caller *a = &callers[rank], *b = &callers[rank + 2];
            const struct caller *refused = a->status == GYRE_SUCCESS ? b : a;
            CHECK((a->status == GYRE_SUCCESS) != (b->status == GYRE_SUCCESS));
            CHECK(refused->status == GYRE_ERROR_INVALID_USAGE);
            CHECK_MSG(strstr(refused->cause, "destroyed") != NULL, "%s", refused->cause);
        }
    }
}

/* The call waits for a rank that does not come: destroying the communicator ends it. */
static void destroying_ends_another_threads_call(void)
{
    gyre_comm *comms[2];
    struct caller caller;
    open_pair(comms);
    start_exchange(&caller, comms[0]);
    CHECK_OK(gyre_comm_destroy(comms[0]));
    pthread_join(caller.thread, NULL);
    CHECK(caller.status != GYRE_SUCCESS);
    CHECK_OK(gyre_comm_destroy(comms[1]));
}

/* ---- two ranks, one host stream ------------------------------------------------------------ */

static void two_ranks_of_a_group_on_one_host_stream_are_refused(void)
{
    gyre_comm *comms[2];
    fill();
    open_pair(comms);
    CHECK_OK(gyre_group_start());
    for (int rank = 0; rank < 2; rank++)
        CHECK_OK(add_up(comms, rank, NULL));
    CHECK_FAILS(gyre_group_end(), GYRE_ERROR_INVALID_USAGE, "needs a stream of its own");
    CHECK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST) != GYRE_SUCCESS); /* and ends */
    for (int rank = 0; rank < 2; rank++)
        CHECK_OK(gyre_comm_destroy(comms[rank]));
}

static void two_ranks_on_one_host_stream_are_refused(void)
{
    gyre_comm *comms[2];
    gyre_stream stream;
    fill();
    open_pair(comms);
    CHECK_OK(gyre_stream_create(&stream, GYRE_DEVICE_HOST, -1));
    CHECK_OK(add_up(comms, 1, stream));
    CHECK_FAILS(add_up(comms, 0, stream), GYRE_ERROR_INVALID_USAGE,
                "was called on the stream where a call of rank 1 waits for it");
    CHECK(gyre_stream_synchronize(stream, GYRE_DEVICE_HOST) != GYRE_SUCCESS);
    CHECK_OK(gyre_stream_destroy(stream, GYRE_DEVICE_HOST));
    for (int rank = 0; rank < 2; rank++)
        CHECK_OK(gyre_comm_destroy(comms[rank]));
}

/* A launch that has ended holds up no other rank, and a copy within a rank waits for no rank. */
static void ranks_may_use_a_host_stream_after_each_other(void)
{
    gyre_comm *comms[2];
    gyre_stream streams[2];
    fill();
    open_pair(comms);
    for (int i = 0; i < 2; i++)
        CHECK_OK(gyre_stream_create(&streams[i], GYRE_DEVICE_HOST, -1));
    for (int round = 0; round < 10; round++) {
        for (int rank = 0; rank < 2; rank++)
            CHECK_OK(add_up(comms, rank, streams[(rank + round) % 2]));
        for (int i = 0; i < 2; i++)
            CHECK_OK(gyre_stream_synchronize(streams[i], GYRE_DEVICE_HOST));
        check_sums();
        fill();
    }
    CHECK_OK(gyre_group_start());
    for (int rank = 0; rank < 2; rank++) {
        CHECK_OK(gyre_send(out[rank], N_ELEMS, GYRE_INT32, rank, comms[rank], streams[0]));
        CHECK_OK(gyre_recv(in[rank], N_ELEMS, GYRE_INT32, rank, comms[rank], streams[0]));
    }
    CHECK_OK(gyre_group_end());
    CHECK_OK(gyre_stream_synchronize(streams[0], GYRE_DEVICE_HOST));
    for (int rank = 0; rank < 2; rank++)
        CHECK(memcmp(in[rank], out[rank], sizeof(in[rank])) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(gyre_stream_destroy(streams[i], GYRE_DEVICE_HOST));
        CHECK_OK(gyre_comm_destroy(comms[i]));
    }
}

static const struct test_case cases[] = {
    {"a call beside another thread's is refused", a_call_beside_another_threads_is_refused},
    {"a group beside another thread's call is refused",
     a_group_beside_another_threads_call_is_refused},
    {"questions may be asked beside a call", questions_may_be_asked_beside_a_call},
    {"threads may take turns", threads_may_take_turns},
    {"one of several threads destroys", one_of_several_threads_destroys},
    {"destroying ends another thread's call", destroying_ends_another_threads_call},
    {"two ranks of a group on one host stream are refused",
     two_ranks_of_a_group_on_one_host_stream_are_refused},
    {"two ranks on one host stream are refused", two_ranks_on_one_host_stream_are_refused},
    {"ranks may use a host stream after each other", ranks_may_use_a_host_stream_after_each_other},
};

TEST_MAIN(cases)
