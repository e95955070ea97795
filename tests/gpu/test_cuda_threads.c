/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread per GPU in one process. A call must not wait for any kernel: a kernel of one rank may
 * wait for the very thread that makes the call. So ranks make calls whose programs and kernels are
 * new, while kernels run that cannot end. If a call hangs, the test says where each rank stands and
 * fails.
 */
#include "tests/fuzz/random.h"
#include "tests/support/gpus.h"
#include "tests/support/jobs.h"

#include <cuda_runtime_api.h>

enum { RANKS = 2, MAX_COUNT = 1 << 20, N_RANDOM_CALLS = 150, DEADLINE_S = 60 };

#define BUFFER_BYTES  ((size_t)MAX_COUNT * 8 * RANKS)
#define CUDA_OK(call) cuda_ok((call), #call, __LINE__)

static void cuda_ok(cudaError_t error, const char *call, int line)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, line, call, cudaGetErrorString(error));
    exit(1);
}

static const enum gyre_collective colls[] = {GYRE_COLL_ALL_REDUCE,     GYRE_COLL_BROADCAST,
                                             GYRE_COLL_REDUCE,         GYRE_COLL_ALL_GATHER,
                                             GYRE_COLL_REDUCE_SCATTER, GYRE_COLL_ALL_TO_ALL};
static const gyre_dtype types[] = {GYRE_INT8,    GYRE_UINT8,   GYRE_INT32,   GYRE_UINT32,
                                   GYRE_INT64,   GYRE_UINT64,  GYRE_FLOAT16, GYRE_FLOAT32,
                                   GYRE_FLOAT64, GYRE_BFLOAT16};
static const gyre_op ops[] = {GYRE_SUM, GYRE_MAX, GYRE_MIN};

struct rank {
    gyre_comm *comm;
    int number;
    unsigned char *in;
    unsigned char *out;
    cudaStream_t stream;
    cudaStream_t side;
    cudaEvent_t event;
    uint32_t call; /* 1 + the number of the call that it makes; 0 = none */
};

static struct rank ranks[RANKS];
static uint32_t n_calls_made;     /* by both ranks */
static uint32_t n_arrived[RANKS]; /* how often a stream has come to arrive() */
static uint32_t is_over[RANKS];   /* ends hold() */

/* The same on both ranks. */
static struct test_job make_call(unsigned number)
{
    const uint64_t random = fuzz_mix(number);
    struct test_job call = {
        .coll = colls[number % GYRE_ARRAY_LENGTH(colls)],
        .dtype = types[number % GYRE_ARRAY_LENGTH(types)],
        .op = ops[number / GYRE_ARRAY_LENGTH(types) % GYRE_ARRAY_LENGTH(ops)],
        .count = (size_t)1 << random % 21,
        .root = (int)(number / GYRE_ARRAY_LENGTH(colls) % RANKS),
    };
    call.count -= random >> 32 & (call.count - 1) & 7; /* some lengths are odd */
    return call;
}

static const char *text_of(unsigned number, char *text, size_t n_bytes)
{
    const struct test_job call = make_call(number);
    snprintf(text, n_bytes, "call %u, %s of %zu elements of type %s, operation %s, root %d", number,
             gyre_collectives[call.coll].name, call.count, gyre_dtype_names[call.dtype],
             gyre_op_names[call.op], call.root);
    return text;
}

static void submit(struct rank *own, unsigned number)
{
    const struct test_job call = make_call(number);
    const struct test_place place = {
        .comm = own->comm, .rank = own->number, .n_ranks = RANKS, .stream = own->stream};
    gyre_store_release_u32(&own->call, 1 + number);
    CHECK_OK(test_job_call(&call, &place, own->in, own->out));
    gyre_store_release_u32(&own->call, 0);
    gyre_fetch_add_u32(&n_calls_made, 1);
}

/* All inputs are bytes of 1, as is any type's maximum. */
static void check_last(struct rank *own, unsigned number)
{
    static unsigned char bytes[RANKS][64];
    const struct test_job call = make_call(number);
    const size_t n_bytes =
        gyre_min_u64(call.count * gyre_dtype_bytes(call.dtype), sizeof(bytes[0]));
    char text[160];
    if ((gyre_collectives[call.coll].reduces && call.op == GYRE_SUM) ||
        (call.coll == GYRE_COLL_REDUCE && call.root != own->number))
        return;
    CUDA_OK(cudaMemcpy(bytes[own->number], own->out, n_bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < n_bytes; i++)
        CHECK_MSG(bytes[own->number][i] == 1, "rank %d: %s: byte %zu is %u", own->number,
                  text_of(number, text, sizeof(text)), i, bytes[own->number][i]);
}

/* ---- what goes on around the calls -------------------------------------------------------- */

static void wait_for(const uint32_t *word, uint32_t value)
{
    while (gyre_load_acquire_u32(word) < value)
        sched_yield();
}

static void CUDART_CB arrive(void *n)
{
    gyre_fetch_add_u32(n, 1);
}

static void CUDART_CB hold(void *word)
{
    wait_for(word, 1);
}

/* Until is_over[own->number] is set, behind an event. */
static void delay_stream(struct rank *own)
{
    CUDA_OK(cudaLaunchHostFunc(own->side, hold, &is_over[own->number]));
    CUDA_OK(cudaEventRecord(own->event, own->side));
    CUDA_OK(cudaStreamWaitEvent(own->stream, own->event, 0));
}

static uint32_t n_synchronizing; /* ranks that wait for their streams after all calls */

static void synchronize(struct rank *own)
{
    gyre_fetch_add_u32(&n_synchronizing, 1);
    const cudaError_t error = cudaStreamSynchronize(own->stream);
    gyre_fetch_add_u32(&n_synchronizing, UINT32_MAX);
    CHECK_MSG(error == cudaSuccess, "%s", cudaGetErrorString(error));
}

/* Nothing that waits for the GPU can be ended. After both ranks' calls kernels may take longer, as
 * on a busy stand-in GPU. */
static void *watch(void *unused)
{
    uint64_t end_ns = gyre_now_ns() + DEADLINE_S * 1000000000ULL;
    uint32_t n_seen = 0;
    const struct timespec nap = {0, 10000000};
    char text[160];
    (void)unused;
    while (gyre_now_ns() < end_ns) {
        nanosleep(&nap, NULL);
        const uint32_t n = gyre_load_acquire_u32(&n_calls_made);
        if (n != n_seen || gyre_load_acquire_u32(&n_synchronizing) == RANKS)
            end_ns = gyre_now_ns() + DEADLINE_S * 1000000000ULL;
        n_seen = n;
    }
    for (int rank = 0; rank < RANKS; rank++) {
        const uint32_t call = gyre_load_acquire_u32(&ranks[rank].call);
        fprintf(stderr, "hangs: rank %d is %s%s\n", rank, call > 0 ? "inside " : "between calls",
                call > 0 ? text_of(call - 1, text, sizeof(text)) : "");
    }
    fflush(stderr);
    _exit(1);
}

/* CUDA may wait where it makes kernels, events and memory. */
static void open_ranks(void)
{
    gyre_comm *comms[RANKS];
    gyre_config config = GYRE_CONFIG_INIT;
    config.device_kind = GYRE_DEVICE_CUDA;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, watch, NULL) == 0);
    CHECK(pthread_detach(thread) == 0);
    CHECK_OK(gyre_comm_init_all(comms, RANKS, NULL, &config));
    for (int i = 0; i < RANKS; i++) {
        struct rank *own = &ranks[i];
        own->comm = comms[i];
        own->number = i;
        CUDA_OK(cudaSetDevice(i));
        CUDA_OK(cudaMalloc((void **)&own->in, BUFFER_BYTES));
        CUDA_OK(cudaMalloc((void **)&own->out, BUFFER_BYTES));
        CUDA_OK(cudaMemset(own->in, 1, BUFFER_BYTES));
        CUDA_OK(cudaMemset(own->out, 0, BUFFER_BYTES));
        CUDA_OK(cudaStreamCreateWithFlags(&own->stream, cudaStreamNonBlocking));
        CUDA_OK(cudaStreamCreateWithFlags(&own->side, cudaStreamNonBlocking));
        CUDA_OK(cudaEventCreateWithFlags(&own->event, cudaEventDisableTiming));
        CUDA_OK(cudaDeviceSynchronize());
    }
}

static void close_ranks(void)
{
    for (int i = 0; i < RANKS; i++)
        CHECK_OK(gyre_comm_destroy(ranks[i].comm));
}

static void run_ranks(void *(*run)(void *))
{
    test_run_threads(run, ranks, RANKS, sizeof(ranks[0]));
}

/* ---- the cases ---------------------------------------------------------------------------- */

/* In turns, one rank's kernel waits for the other rank, whose thread only then makes its first call
 * of that kind. */
static void *run_turns(void *argument)
{
    struct rank *own = argument;
    CUDA_OK(cudaSetDevice(own->number));
    for (unsigned number = 0; number < 60; number++) {
        const int first = (int)(number % RANKS);
        if (own->number == first)
            CUDA_OK(cudaLaunchHostFunc(own->stream, arrive, &n_arrived[first]));
        else
            wait_for(&n_arrived[first], number / RANKS + 1);
        submit(own, number);
        synchronize(own);
        check_last(own, number);
    }
    return NULL;
}

TEST_CASE("a first call does not wait for a peer's kernel")
{
    open_ranks();
    run_ranks(run_turns);
    close_ranks();
}

/* Rank 1's stream is held up, so rank 0's first kernel ends after both threads' calls, made at
 * their own pace. */
static void *run_at_random(void *argument)
{
    struct rank *own = argument;
    uint64_t random = fuzz_mix((uint64_t)own->number + 1);
    CUDA_OK(cudaSetDevice(own->number));
    if (own->number == 1)
        delay_stream(own);
    for (unsigned number = 0; number < N_RANDOM_CALLS; number++) {
        random = fuzz_mix(random);
        for (unsigned i = 0; i < random % 64; i++)
            sched_yield();
        submit(own, number);
    }
    arrive(&n_arrived[own->number]);
    wait_for(&n_arrived[1 - own->number], 1);
    gyre_store_release_u32(&is_over[own->number], 1);
    synchronize(own);
    check_last(own, N_RANDOM_CALLS - 1);
    return NULL;
}

TEST_CASE("calls of many shapes do not wait for kernels that cannot end")
{
    open_ranks();
    run_ranks(run_at_random);
    close_ranks();
}

static void *run_groups(void *argument)
{
    struct rank *own = argument;
    const int peer = 1 - own->number;
    CUDA_OK(cudaSetDevice(own->number));
    if (own->number == 1)
        delay_stream(own);
    for (unsigned i = 0; i < 12; i++) {
        const size_t count = (size_t)1 << i;
        gyre_store_release_u32(&own->call, 1 + i);
        CHECK_OK(gyre_group_start());
        CHECK_OK(gyre_send(own->in, count, GYRE_INT32, peer, own->comm, own->stream));
        CHECK_OK(gyre_recv(own->out, count, GYRE_INT32, peer, own->comm,
                           own->number == 0 ? own->side : own->stream));
        CHECK_OK(gyre_group_end());
        gyre_store_release_u32(&own->call, 0);
        gyre_fetch_add_u32(&n_calls_made, 1);
    }
    arrive(&n_arrived[own->number]);
    wait_for(&n_arrived[peer], 1);
    gyre_store_release_u32(&is_over[own->number], 1);
    synchronize(own);
    return NULL;
}

TEST_CASE("groups on several streams do not wait")
{
    open_ranks();
    run_ranks(run_groups);
    close_ranks();
}

/* A window is registered, used by the kernel and by copy engines, and given back, while rank 0's
 * kernel waits. */
static void *run_windows(void *argument)
{
    struct rank *own = argument;
    gyre_window window;
    CUDA_OK(cudaSetDevice(own->number));
    if (own->number == 1)
        delay_stream(own);
    submit(own, 0);
    CHECK_OK(gyre_window_register(own->comm, own->out, BUFFER_BYTES, &window));
    for (size_t count = 1024; count <= MAX_COUNT; count *= 32) {
        CHECK_OK(gyre_all_gather(own->in, own->out, count, GYRE_INT64, own->comm, own->stream));
        CHECK_OK(gyre_all_reduce(own->in, own->out, count, GYRE_FLOAT32, GYRE_MAX, own->comm,
                                 own->stream));
        CHECK_OK(gyre_broadcast(own->in, own->out, count, GYRE_INT64, 0, own->comm, own->stream));
    }
    arrive(&n_arrived[own->number]);
    wait_for(&n_arrived[1 - own->number], 1);
    gyre_store_release_u32(&is_over[own->number], 1);
    synchronize(own);
    CHECK_OK(gyre_window_deregister(own->comm, window));
    return NULL;
}

TEST_CASE("windows are registered and used while kernels run")
{
    open_ranks();
    run_ranks(run_windows);
    close_ranks();
}

static gyre_comm *others[RANKS];

/* While a kernel of the first communicator waits for rank 1, whose call comes only after that. */
static void *run_destroy(void *argument)
{
    struct rank *own = argument;
    CUDA_OK(cudaSetDevice(own->number));
    if (own->number == 0) {
        CUDA_OK(cudaLaunchHostFunc(own->stream, arrive, &n_arrived[0]));
        submit(own, 0);
    } else {
        wait_for(&n_arrived[0], 1);
    }
    CHECK_OK(gyre_comm_destroy(others[own->number]));
    if (own->number == 1)
        submit(own, 0);
    synchronize(own);
    return NULL;
}

static void destroy_others(void)
{
    gyre_config config = GYRE_CONFIG_INIT;
    config.device_kind = GYRE_DEVICE_CUDA;
    CHECK_OK(gyre_comm_init_all(others, RANKS, NULL, &config));
    open_ranks();
    run_ranks(run_destroy);
    close_ranks();
}

TEST_RUNS("a communicator is destroyed while kernels of another run", destroy_others())

/* CUDA forgets host memory only when all GPUs' kernels have ended. */
TEST_CASE("a communicator over host memory is destroyed while kernels of another run")
{
    setenv("GYRE_P2P_DISABLE", "1", 1);
    destroy_others();
}

static size_t free_bytes(int ordinal)
{
    size_t n_free = 0, n_all = 0;
    CUDA_OK(cudaSetDevice(ordinal));
    CUDA_OK(cudaMemGetInfo(&n_free, &n_all));
    return n_free;
}

/* Memory is used again, and goes back to CUDA with the last one. */
TEST_CASE("communicators that come and go take no more memory")
{
    gyre_config config = GYRE_CONFIG_INIT;
    config.device_kind = GYRE_DEVICE_CUDA;
    open_ranks();
    size_t n_free = 0;
    for (int i = 0; i < 8; i++) {
        CHECK_OK(gyre_comm_init_all(others, RANKS, NULL, &config));
        for (int rank = 0; rank < RANKS; rank++)
            CHECK_OK(gyre_comm_destroy(others[rank]));
        if (i == 1)
            n_free = free_bytes(0);
    }
    CHECK_MSG(free_bytes(0) + ((size_t)8 << 20) >= n_free, "%zu bytes were free, now %zu", n_free,
              free_bytes(0));
    close_ranks();
    CHECK_MSG(free_bytes(0) > n_free, "%zu bytes are free, %zu before the last communicator ended",
              free_bytes(0), n_free);
}

TEST_BEFORE
{
    if (test_n_gpus() < RANKS)
        test_skip_case("it needs two GPUs");
}
