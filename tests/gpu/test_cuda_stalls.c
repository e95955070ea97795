/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that stand still on two GPUs, in protocol SIMPLE, of which the step is known. Each case
 * injects one fault; the error of the operation timeout must name rank, worker, step, slot and
 * peer, and the cycle or the rank at which the chain of waits ends.
 */
#include "core/foundation/base/util.h"
#include "tests/support/pace.h"
#include "tests/support/ranks.h"
#include "tests/support/stall_rig.h"

#include <cuda_runtime_api.h>

enum { RANKS = 2, COUNT = 1 << 20, TIMEOUT_MS = 1000, BOUND_MS = 5000 };

#define CUDA_OK(call) cuda_ok((call), #call, __LINE__)

static void cuda_ok(cudaError_t error, const char *call, int line)
{
    CHECK_MSG(error == cudaSuccess, "line %d: %s: %s", line, call, cudaGetErrorString(error));
}

struct fault {
    const char *programs[RANKS]; /* by rank; NULL: the built-in ring */
    int absent;                  /* this rank makes no call; -1 = both call */
    const char *words[6];        /* the rest is NULL */
};

struct rank {
    gyre_comm *comm;
    int number;
    float *in;
    float *out;
    cudaStream_t stream;
    const struct fault *fault;
};

/* Within the bound. @pace: started with the call; stopped here. */
static void expect_error(const struct rank *own, struct test_pace *pace)
{
    const struct fault *fault = own->fault;
    const gyre_status status = test_await_error(own->comm);
    const uint32_t took_ms = test_pace_stop(pace);
    const char *text = gyre_comm_last_error(own->comm);
    CHECK_MSG(status == GYRE_ERROR_TIMEOUT, "rank %d: %s: %s", own->number,
              gyre_status_name(status), text);
    CHECK_MSG(took_ms < BOUND_MS, "rank %d: after %.1f s", own->number, (double)took_ms / 1e3);
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(fault->words) && fault->words[i] != NULL; i++)
        CHECK_MSG(strstr(text, fault->words[i]) != NULL, "rank %d: no \"%s\" in: %s", own->number,
                  fault->words[i], text);
    if (own->number == 0)
        printf("     %s\n", text);
}

static void *run_rank(void *pointer)
{
    struct rank *own = pointer;
    struct stall_program program = {.in = own->in, .out = own->out, .stream = own->stream};
    const char *text = own->fault->programs[own->number];
    struct test_pace pace;
    CUDA_OK(cudaSetDevice(own->number));
    test_pace_start(&pace);
    if (text != NULL)
        CHECK_OK(stall_launch_text(own->comm, text, 1, &program));
    else if (own->number != own->fault->absent)
        CHECK_OK(gyre_all_reduce(own->in, own->out, COUNT, GYRE_FLOAT32, GYRE_MAX, own->comm,
                                 own->stream));
    expect_error(own, &pace);
    CHECK_MSG(cudaStreamSynchronize(own->stream) == cudaSuccess, "rank %d: its kernel failed",
              own->number);
    if (text != NULL)
        stall_unload(own->comm, &program);
    return NULL;
}

static void inject(const struct fault *fault)
{
    struct rank ranks[RANKS] = {{0}};
    gyre_comm *comms[RANKS];
    gyre_config config = GYRE_CONFIG_INIT;
    config.device_kind = GYRE_DEVICE_CUDA;
    config.max_channels = 1;
    config.timeout_ms = TIMEOUT_MS;
    CHECK_OK(gyre_comm_init_all(comms, RANKS, NULL, &config));
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (struct rank){.comm = comms[i], .number = i, .fault = fault};
        CUDA_OK(cudaSetDevice(i));
        CUDA_OK(cudaMalloc((void **)&ranks[i].in, COUNT * sizeof(float)));
        CUDA_OK(cudaMalloc((void **)&ranks[i].out, COUNT * sizeof(float)));
        CUDA_OK(cudaStreamCreateWithFlags(&ranks[i].stream, cudaStreamNonBlocking));
    }
    test_run_threads(run_rank, ranks, RANKS, sizeof(ranks[0]));
    for (int i = 0; i < RANKS; i++) {
        CHECK_OK(gyre_comm_destroy(comms[i]));
        CUDA_OK(cudaSetDevice(i));
        CUDA_OK(cudaStreamDestroy(ranks[i].stream));
        CUDA_OK(cudaFree(ranks[i].in));
        CUDA_OK(cudaFree(ranks[i].out));
    }
}

#define HEAD(rank) \
    "program wrong all_reduce\nranks 2 rank " rank " root 0 chunks 1 lanes 1 depth 1\nworker 0\n"

TEST_CASE("two ranks that both receive first are a cycle")
{
    static const struct fault fault = {
        .programs = {HEAD("0") "chunk 0: from 1 -> out 0\nchunk 0: in 0 -> to 1\nend\n",
                     HEAD("1") "chunk 0: from 0 -> out 0\nchunk 0: in 0 -> to 0\nend\n"},
        .absent = -1,
        .words = {"rank 0, channel 0, worker 0, step 0 of wrong all_reduce seq 1, tile 0 of 1 "
                  "(chunk 0: from 1 -> out 0) waits for slot 0 from rank 1 over p2p",
                  "rank 1 is at step 0 (chunk 0: from 0 -> out 0) and waits for slot 0 from rank 0",
                  "these waits form a cycle: 0 -> 1 -> 0"}};
    inject(&fault);
}

#define SENDS_4(peer)                                                                       \
    "chunk 0: in 0 -> to " peer "\nchunk 0: in 0 -> to " peer "\nchunk 0: in 0 -> to " peer \
    "\nchunk 0: in 0 -> to " peer "\n"
/* More than the slots of any FIFO. */
#define SENDS_32(peer) \
    SENDS_4(peer)      \
    SENDS_4(peer)      \
    SENDS_4(peer) SENDS_4(peer) SENDS_4(peer) SENDS_4(peer) SENDS_4(peer) SENDS_4(peer)

TEST_CASE("two ranks that send more than a FIFO holds are a cycle")
{
    static const struct fault fault = {
        .programs = {HEAD("0") SENDS_32("1") "chunk 0: from 1 -> out 0\nend\n",
                     HEAD("1") SENDS_32("0") "chunk 0: from 0 -> out 0\nend\n"},
        .absent = -1,
        .words = {"rank 0, channel 0, worker 0, step ",
                  "waits for credit from rank 1 over p2p, which has to consume slot 0",
                  "(chunk 0: in 0 -> to 0) and waits for credit from rank 0",
                  "these waits form a cycle: 0 -> 1 -> 0"}};
    inject(&fault);
}

TEST_CASE("a rank whose program sends too little ends the chain")
{
    static const struct fault fault = {
        .programs = {HEAD("0") "chunk 0: from 1 -> out 0\nchunk 0: from 1 -> out 0\nend\n",
                     HEAD("1") "chunk 0: in 0 -> to 0\nend\n"},
        .absent = -1,
        .words = {"rank 0, channel 0, worker 0, step 1 of wrong",
                  "waits for slot 1 from rank 1 over p2p", "rank 1 waits in no call"}};
    inject(&fault);
}

TEST_CASE("a rank that does not call ends the chain")
{
    static const struct fault fault = {
        .absent = 1,
        .words = {"rank 0, channel 0, worker 0, step ", " of ring all_reduce seq 1", "(chunk ",
                  "from rank 1 over p2p", "rank 1 has not begun all_reduce("}};
    setenv("GYRE_ALGO", "ring", 1);
    setenv("GYRE_PROTO", "simple", 1);
    inject(&fault);
}

TEST_BEFORE
{
    if (test_n_gpus() < RANKS)
        test_skip_case("it needs two GPUs");
}
