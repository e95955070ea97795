/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/comm.h"
#include "tests/support/ranks.h"

#include <fenv.h>
#ifdef __x86_64__
#include <xmmintrin.h>
#endif

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

struct caller {
    pthread_t thread;
    gyre_comm *comm;
    gyre_status status;
    char cause[GYRE_CAUSE_MAX_BYTES];
};

/* The other rank does not come. */
static void *gather_alone(void *argument)
{
    struct caller *caller = argument;
    int mine = 0, all[2];
    caller->status = gyre_comm_exchange(caller->comm, &mine, sizeof(mine), all);
    snprintf(caller->cause, sizeof(caller->cause), "%s", gyre_last_error());
    return NULL;
}

static void start_gather(struct caller *caller, gyre_comm *comm)
{
    caller->comm = comm;
    pthread_create(&caller->thread, NULL, gather_alone, caller);
    test_await(&comm->in_call, 1);
}

TEST_CASE("a call beside another thread's is refused")
{
    gyre_comm *comms[2];
    struct caller caller;
    fill();
    open_pair(comms);
    start_gather(&caller, comms[0]);
    CHECK_BAD_USAGE(add_up(comms, 0, NULL), "two threads called on rank 0 of communicator");
    pthread_join(caller.thread, NULL);
    CHECK(caller.status != GYRE_SUCCESS);
    CHECK_HAS(caller.cause, "two threads called");
    /* The other rank does not wait for calls that cannot come. */
    (void)test_await_error(comms[1]);
    CHECK_HAS(gyre_comm_last_error(comms[1]), "two threads called");
    test_destroy_all(comms, 2);
}

TEST_CASE("a group beside another thread's call is refused")
{
    gyre_comm *comms[2];
    struct caller caller;
    fill();
    open_pair(comms);
    CHECK_OK(gyre_group_start());
    CHECK_OK(add_up(comms, 0, NULL));
    start_gather(&caller, comms[0]);
    CHECK_BAD_USAGE(gyre_group_end(), "two threads called on rank 0");
    pthread_join(caller.thread, NULL);
    test_destroy_all(comms, 2);
}

TEST_CASE("questions may be asked beside a call")
{
    gyre_comm *comms[2];
    struct caller caller;
    gyre_registration registration = NULL;
    gyre_status status = GYRE_IN_PROGRESS;
    int n_ranks = 0, rank = -1, mine = 0, all[2];
    open_pair(comms);
    start_gather(&caller, comms[0]);
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

/* Any thread may call, one at a time. */
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

TEST_CASE("threads may take turns")
{
    gyre_comm *comms[2];
    struct turns turns[4];
    uint32_t turn[2] = {0, 0};
    fill();
    open_pair(comms);
    for (int i = 0; i < 4; i++)
        turns[i] = (struct turns){comms, i / 2, &turn[i / 2], (uint32_t)i % 2};
    test_run_threads(call_by_turns, turns, 4, sizeof(turns[0]));
    check_sums();
    test_destroy_all(comms, 2);
}

static void *destroy(void *argument)
{
    struct caller *caller = argument;
    caller->status = gyre_comm_destroy(caller->comm);
    snprintf(caller->cause, sizeof(caller->cause), "%s", gyre_last_error());
    return NULL;
}

TEST_CASE("one of several threads destroys")
{
    for (int round = 0; round < 100; round++) {
        gyre_comm *comms[2];
        struct caller callers[4];
        open_pair(comms);
        for (int i = 0; i < 4; i++)
            callers[i].comm = comms[i % 2];
        test_run_threads(destroy, callers, 4, sizeof(callers[0]));
        for (int rank = 0; rank < 2; rank++) {
            const struct caller *a = &callers[rank], *b = &callers[rank + 2];
            const struct caller *refused = a->status == GYRE_SUCCESS ? b : a;
            CHECK((a->status == GYRE_SUCCESS) != (b->status == GYRE_SUCCESS));
            CHECK(refused->status == GYRE_ERROR_INVALID_USAGE);
            CHECK_HAS(refused->cause, "destroyed");
        }
    }
}

TEST_CASE("destroying ends another thread's call")
{
    gyre_comm *comms[2];
    struct caller caller;
    open_pair(comms);
    start_gather(&caller, comms[0]);
    CHECK_OK(gyre_comm_destroy(comms[0]));
    pthread_join(caller.thread, NULL);
    CHECK(caller.status != GYRE_SUCCESS);
    CHECK_OK(gyre_comm_destroy(comms[1]));
}

TEST_CASE("two ranks of a group on one host stream are refused")
{
    gyre_comm *comms[2];
    fill();
    open_pair(comms);
    CHECK_OK(gyre_group_start());
    for (int rank = 0; rank < 2; rank++)
        CHECK_OK(add_up(comms, rank, NULL));
    CHECK_BAD_USAGE(gyre_group_end(), "needs a stream of its own");
    CHECK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST) != GYRE_SUCCESS); /* and ends */
    test_destroy_all(comms, 2);
}

TEST_CASE("two ranks on one host stream are refused")
{
    gyre_comm *comms[2];
    gyre_stream stream;
    fill();
    open_pair(comms);
    CHECK_OK(gyre_stream_create(&stream, GYRE_DEVICE_HOST, -1));
    CHECK_OK(add_up(comms, 1, stream));
    CHECK_BAD_USAGE(add_up(comms, 0, stream),
                    "was called on the stream where a call of rank 1 waits for it");
    CHECK(gyre_stream_synchronize(stream, GYRE_DEVICE_HOST) != GYRE_SUCCESS);
    CHECK_OK(gyre_stream_destroy(stream, GYRE_DEVICE_HOST));
    test_destroy_all(comms, 2);
}

TEST_CASE("ranks may use a host stream after each other")
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

enum { N_STATES = 7, FLOAT_ELEMS = 300, N_FLOATS = 6, N_FLOAT_OPS = 3 };

struct float_rank {
    pthread_t thread;
    const gyre_unique_id *id;
    int rank;
    int state; /* 0 = the default */
    uint64_t results[N_FLOATS][N_FLOAT_OPS][FLOAT_ELEMS];
};

static const struct {
    gyre_dtype dtype;
    unsigned n_bytes;
    uint64_t exponent;
} floats[N_FLOATS] = {
    {GYRE_FLOAT32, 4, 0x7f800000}, {GYRE_FLOAT64, 8, 0x7ff0000000000000},
    {GYRE_FLOAT16, 2, 0x7c00},     {GYRE_BFLOAT16, 2, 0x7f80},
    {GYRE_FLOAT8_E4M3, 1, 0x78},   {GYRE_FLOAT8_E5M2, 1, 0x7c},
};

static uint64_t float_bits(int type, int rank, int i)
{
    const uint64_t exponent = floats[type].exponent;
    uint64_t bits = ((uint64_t)i + 1) * 0x9e3779b97f4a7c15 + (uint64_t)rank * 0xc2b2ae3d27d4eb4f;
    bits ^= bits >> 29;
    bits &= UINT64_MAX >> (64 - 8 * floats[type].n_bytes);
    return i % 3 == 0 ? bits & ~exponent : bits & ~(exponent & ~(exponent >> 1));
}

static void set_float_state(int state)
{
    static const int roundings[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    if (state < 4)
        fesetround(roundings[state]);
    if (state == 4)
        feenableexcept(FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW | FE_UNDERFLOW | FE_INEXACT);
#ifdef __x86_64__
    if (state == 5) /* -ffast-math: denormal results and operands become 0 */
        _mm_setcsr(_mm_getcsr() | 0x8040);
    if (state == 6) /* a trap for each denormal operand */
        _mm_setcsr(_mm_getcsr() & ~0x100U);
#endif
}

static unsigned long float_state(void)
{
#ifdef __x86_64__
    return _mm_getcsr();
#else
    return (unsigned long)fegetround() << 16 | (unsigned long)fetestexcept(FE_ALL_EXCEPT) << 8 |
           (unsigned long)fegetexcept();
#endif
}

static void *reduce_in_state(void *argument)
{
    static const gyre_op ops[N_FLOAT_OPS] = {GYRE_SUM, GYRE_PROD, GYRE_AVG};
    struct float_rank *own = argument;
    gyre_config config = test_config(0);
    gyre_comm *comm = NULL;
    uint64_t data[FLOAT_ELEMS];
    set_float_state(own->state);
    const unsigned long before = float_state();
    CHECK_OK(gyre_comm_init_rank(&comm, 2, own->id, own->rank, &config));
    for (int type = 0; type < N_FLOATS && test_n_failures == 0; type++) {
        const unsigned n_bytes = floats[type].n_bytes;
        for (int op = 0; op < N_FLOAT_OPS; op++) {
            unsigned char *bytes = (unsigned char *)data;
            for (int i = 0; i < FLOAT_ELEMS; i++) {
                const uint64_t bits = float_bits(type, own->rank, i);
                memcpy(bytes + (unsigned)i * n_bytes, &bits, n_bytes); /* little-endian */
            }
            CHECK_OK(
                gyre_all_reduce(data, data, FLOAT_ELEMS, floats[type].dtype, ops[op], comm, NULL));
            if (op == 1) /* until the helper thread is done */
                while (gyre_stream_query(NULL, GYRE_DEVICE_HOST) == GYRE_IN_PROGRESS)
                    sched_yield();
            CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
            for (int i = 0; i < FLOAT_ELEMS; i++)
                memcpy(&own->results[type][op][i], bytes + (unsigned)i * n_bytes, n_bytes);
        }
    }
    CHECK_OK(gyre_comm_destroy(comm));
    CHECK_MSG(float_state() == before, "state %d: 0x%lx became 0x%lx", own->state, before,
              float_state());
    return NULL;
}

static void reduce_with_a_state(int state, struct float_rank *ranks)
{
    gyre_unique_id id;
    memset(ranks, 0, 2 * sizeof(*ranks));
    CHECK_OK(gyre_get_unique_id(&id));
    for (int rank = 0; rank < 2; rank++) {
        ranks[rank].id = &id;
        ranks[rank].rank = rank;
        ranks[rank].state = rank == 0 ? state : 0;
    }
    test_run_threads(reduce_in_state, ranks, 2, sizeof(ranks[0]));
}

TEST_CASE("the caller's floating-point state does not reach the data")
{
    static const char *const algos[] = {"direct", "ring", "tree"};
    static struct float_rank plain[2], ranks[2];
    if (test_device() != GYRE_DEVICE_HOST)
        return;
    for (int algo = 0; algo < 3; algo++) {
        setenv("GYRE_ALGO", algos[algo], 1);
        reduce_with_a_state(0, plain);
        const struct float_rank *own = &plain[0];
        for (int i = 0; i < FLOAT_ELEMS; i++) {
            float narrow[2];
            double wide[2];
            for (int rank = 0; rank < 2; rank++) {
                const uint32_t bits = (uint32_t)float_bits(0, rank, i);
                const uint64_t wide_bits = float_bits(1, rank, i);
                memcpy(&narrow[rank], &bits, sizeof(bits));
                memcpy(&wide[rank], &wide_bits, sizeof(wide_bits));
            }
            narrow[0] += narrow[1];
            wide[0] += wide[1];
            CHECK_MSG(memcmp(&own->results[0][0][i], &narrow[0], sizeof(narrow[0])) == 0 &&
                          memcmp(&own->results[1][0][i], &wide[0], sizeof(wide[0])) == 0,
                      "state %d, rank %d, element %d", own->state, own->rank, i);
        }
        for (int state = 1; state < N_STATES && test_n_failures == 0; state++) {
            reduce_with_a_state(state, ranks);
            for (int rank = 0; rank < 2; rank++)
                CHECK_MSG(memcmp(ranks[rank].results, plain[0].results, sizeof(plain[0].results)) ==
                              0,
                          "%s, state %d, rank %d", algos[algo], state, rank);
        }
    }
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
/* what a thread has by default with musl */
#define LITTLE_STACK_BYTES ((size_t)128 << 10)

static gyre_unique_id little_id;

static void *use_little_stack(void *argument)
{
    const int rank = *(const int *)argument;
    const gyre_config config = test_config(0);
    gyre_comm *comms[2] = {NULL, NULL};
    CHECK_OK(gyre_comm_init_rank(&comms[rank], 2, &little_id, rank, &config));
    CHECK_OK(add_up(comms, rank, NULL));
    CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
    CHECK_OK(gyre_comm_destroy(comms[rank]));
    return NULL;
}

TEST_CASE("threads with little stack make a communicator and call")
{
    pthread_t threads[2];
    pthread_attr_t attributes;
    const int ranks[2] = {0, 1};
    if (test_device() != GYRE_DEVICE_HOST)
        return;
    fill();
    CHECK_OK(gyre_get_unique_id(&little_id));
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, LITTLE_STACK_BYTES) == 0);
    for (int rank = 0; rank < 2; rank++)
        CHECK(pthread_create(&threads[rank], &attributes, use_little_stack,
                             (void *)(uintptr_t)&ranks[rank]) == 0);
    for (int rank = 0; rank < 2; rank++)
        pthread_join(threads[rank], NULL);
    check_sums();
}
#endif
