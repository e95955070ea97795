/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends and receives round a ring of ranks: by the fused kernel and by the interpreter, in one
 * launch and in two, with peers that choose the other way. With fewer GPUs than ranks they share
 * them.
 */
#define TEST_OWN_MAIN
#include "core/foundation/base/util.h"
#include "kernels/cuda/runtime/state.h"
#include "tests/fuzz/random.h"
#include "tests/gpu/gpu_rig.h"
#include "tests/support/check.h"
#include "tests/support/gpus.h"
#include "tests/support/test_work.h"

#define GUARD     0xa5
#define MAX_BYTES (GPU_RUN_FIFOS * 64 * 1024)

static int wanted_ranks = 2;
static uint32_t wanted_rounds = 200;
static struct fuzz_rng rng;
static uint32_t n_fused, n_in_rows, n_interpreted; /* launches */

static uint32_t below(uint32_t n)
{
    return (uint32_t)fuzz_below(&rng, n);
}

struct end {
    struct gyre_program *program;
    struct gyre_loaded *loaded;
};

struct round {
    enum gyre_proto protos[GPU_RIG_MAX_RANKS]; /* of the message that the rank sends */
    gyre_dtype dtype;
    uint32_t n_channels;
    uint32_t n_threads;
    bool is_together; /* a rank's send and receive are one launch */
    bool goes_ahead;  /* the send is launched ahead of the receive */
    bool answers;     /* all but the first rank send behind the receive, in another launch */
    uint64_t counts[GPU_RIG_MAX_RANKS];  /* elements that the rank sends */
    uint32_t offsets[GPU_RIG_MAX_RANKS]; /* of its buffers, in elements */
};

struct ring {
    struct gpu_rig gpus;
    unsigned char *in[GPU_RIG_MAX_RANKS]; /* on GPUs */
    unsigned char *out[GPU_RIG_MAX_RANKS];
    unsigned char *sent[GPU_RIG_MAX_RANKS]; /* on the host: what is in `in` */
    unsigned char *got;
};

static void open_ring(struct ring *ring)
{
    gpu_rig_open(&ring->gpus, wanted_ranks, &gpu_run_spec);
    ring->got = malloc(MAX_BYTES);
    for (int rank = 0; rank < wanted_ranks; rank++) {
        ring->sent[rank] = malloc(MAX_BYTES);
        for (uint32_t i = 0; i < MAX_BYTES; i++)
            ring->sent[rank][i] = (unsigned char)below(256);
        gpu_rig_use(&ring->gpus, rank);
        GPU_OK(cudaMalloc((void **)&ring->in[rank], MAX_BYTES));
        GPU_OK(cudaMalloc((void **)&ring->out[rank], MAX_BYTES));
        GPU_OK(cudaMemcpy(ring->in[rank], ring->sent[rank], MAX_BYTES, cudaMemcpyHostToDevice));
    }
}

static void close_ring(struct ring *ring)
{
    for (int rank = 0; rank < wanted_ranks; rank++) {
        gpu_rig_use(&ring->gpus, rank);
        GPU_OK(cudaFree(ring->in[rank]));
        GPU_OK(cudaFree(ring->out[rank]));
        free(ring->sent[rank]);
    }
    free(ring->got);
    gpu_rig_close(&ring->gpus);
}

static int next_of(int rank)
{
    return (rank + 1) % wanted_ranks;
}

static int before(int rank)
{
    return (rank + wanted_ranks - 1) % wanted_ranks;
}

static struct gyre_reduction copy_of(const struct round *round)
{
    return (struct gyre_reduction){.dtype = (uint8_t)round->dtype, .op = GYRE_SUM, .divisor = 1};
}

static struct end load_end(struct ring *ring, const struct round *round, int from, bool sends)
{
    const int to = next_of(from);
    const uint16_t rank_of[2] = {(uint16_t)from, (uint16_t)to};
    const struct gyre_shape shape = {.coll = GYRE_COLL_SEND_RECV, .n_ranks = 2};
    struct end end = {NULL, NULL};
    CHECK_OK(gyre_algorithm_emit(&gyre_algorithm_sendrecv, &shape, sends ? 0 : 1, &end.program));
    const struct gyre_load_config config = {.program = end.program,
                                            .n_channels = round->n_channels,
                                            .proto = round->protos[from],
                                            .rank_of = rank_of,
                                            .n_threads = round->n_threads};
    CHECK_OK(
        gyre_executor_cuda.load(ring->gpus.executors[sends ? from : to], &config, &end.loaded));
    return end;
}

static void unload_end(struct ring *ring, int rank, struct end *end)
{
    gyre_executor_cuda.unload(ring->gpus.executors[rank], end->loaded);
    gyre_program_free(end->program);
}

static struct test_work work_of(const struct ring *ring, const struct round *round, int from,
                                const struct end *end, bool sends)
{
    const struct gpu_run run = {.proto = round->protos[from],
                                .count = round->counts[from],
                                .n_channels = round->n_channels,
                                .reduction = copy_of(round)};
    const uint32_t elem_bytes = gyre_dtype_bytes(round->dtype);
    const int to = next_of(from);
    return (struct test_work){.loaded = end->loaded,
                              .in =
                                  sends ? ring->in[from] + round->offsets[from] * elem_bytes : NULL,
                              .out = sends ? NULL : ring->out[to] + round->offsets[to] * elem_bytes,
                              .split = gpu_run_split(&run, 1),
                              .reduction = run.reduction,
                              .signature = 77 + (uint32_t)from,
                              .sequence = 1};
}

static void launch(struct ring *ring, int rank, const struct test_work *works, int n_works)
{
    struct gyre_executor *executor = ring->gpus.executors[rank];
    struct gyre_ready *ready[2] = {NULL, NULL};
    struct gyre_work of_plans[2];
    for (int i = 0; i < n_works; i++) {
        CHECK_OK(test_work_ready(executor, &works[i], &ready[i]));
        of_plans[i] = test_work_of(&works[i], ready[i]);
    }
    /* A second search finds the same pair. */
    const struct gyre_run fused =
        n_works == 1 ? ready[0]->run
                     : gyre_cuda_find_pair(gyre_cuda_own(executor), of_plans)->forms[0].run;
    CHECK(n_works == 1 ||
          gyre_cuda_find_pair(gyre_cuda_own(executor), of_plans)->forms[0].run.row == fused.row);
    n_fused += fused.kernel != NULL;
    n_in_rows += fused.kernel != NULL && fused.n_rows > 1;
    n_interpreted += fused.kernel == NULL;
    CHECK_OK(executor->ops->enqueue(executor, of_plans, n_works, ring->gpus.streams[rank]));
    for (int i = 0; i < n_works; i++)
        gyre_ready_free(ready[i]);
}

static bool has_arrived(struct ring *ring, const struct round *round, int rank)
{
    const uint32_t elem_bytes = gyre_dtype_bytes(round->dtype);
    const int from = before(rank);
    const size_t begin = round->offsets[rank] * elem_bytes;
    const size_t n_bytes = round->counts[from] * elem_bytes;
    const unsigned char *sent = ring->sent[from] + round->offsets[from] * elem_bytes;
    gpu_rig_use(&ring->gpus, rank);
    GPU_OK(cudaMemcpy(ring->got, ring->out[rank], MAX_BYTES, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < MAX_BYTES; i++) {
        const bool is_inside = i >= begin && i < begin + n_bytes;
        if (ring->got[i] != (is_inside ? sent[i - begin] : GUARD))
            return false;
    }
    return true;
}

static void load_ends(struct ring *ring, const struct round *round, struct end *sends,
                      struct end *receives)
{
    for (int rank = 0; rank < wanted_ranks; rank++) {
        sends[rank] = load_end(ring, round, rank, true);
        receives[rank] = load_end(ring, round, before(rank), false);
    }
}

static void unload_ends(struct ring *ring, struct end *sends, struct end *receives)
{
    for (int rank = 0; rank < wanted_ranks; rank++) {
        unload_end(ring, rank, &sends[rank]);
        unload_end(ring, rank, &receives[rank]);
    }
}

/* A few times, so that slots and credit come round. */
static void run_round(struct ring *ring, const struct round *round)
{
    struct end sends[GPU_RIG_MAX_RANKS], receives[GPU_RIG_MAX_RANKS];
    load_ends(ring, round, sends, receives);
    for (int rank = 0; rank < wanted_ranks; rank++) {
        gpu_rig_use(&ring->gpus, rank);
        GPU_OK(cudaMemset(ring->out[rank], GUARD, MAX_BYTES));
        GPU_OK(cudaDeviceSynchronize());
    }
    for (int time = 0; time < 3; time++)
        for (int rank = 0; rank < wanted_ranks; rank++) {
            const struct test_work send = work_of(ring, round, rank, &sends[rank], true);
            const struct test_work receive =
                work_of(ring, round, before(rank), &receives[rank], false);
            const bool receives_first = below(2) == 0;
            const struct test_work both[2] = {receives_first ? receive : send,
                                              receives_first ? send : receive};
            if (round->goes_ahead) {
                struct gyre_cuda_executor *executor = gyre_cuda_own(ring->gpus.executors[rank]);
                gpu_rig_use(&ring->gpus, rank);
                struct gyre_ready *ready[2];
                CHECK_OK(test_work_ready(&executor->base, &send, &ready[0]));
                CHECK_OK(test_work_ready(&executor->base, &receive, &ready[1]));
                const struct gyre_work of_plans[2] = {test_work_of(&send, ready[0]),
                                                      test_work_of(&receive, ready[1])};
                CHECK_OK(gyre_cuda_enqueue_ahead(executor, &of_plans[0], &of_plans[1],
                                                 ring->gpus.streams[rank]));
                gyre_ready_free(ready[0]);
                gyre_ready_free(ready[1]);
                launch(ring, rank, &receive, 1);
            } else if (round->answers && rank > 0) {
                launch(ring, rank, &receive, 1);
                launch(ring, rank, &send, 1);
            } else if (round->is_together || round->answers) {
                launch(ring, rank, both, 2);
            } else {
                launch(ring, rank, &send, 1);
                launch(ring, rank, &receive, 1);
            }
        }
    if (!gpu_rig_wait(&ring->gpus, GPU_RIG_DEADLINE_S)) {
        fprintf(stderr, "%s x%u of %llu elements hangs\n", gyre_proto_names[round->protos[0]],
                round->n_channels, (unsigned long long)round->counts[0]);
        exit(1);
    }
    for (int rank = 0; rank < wanted_ranks; rank++)
        CHECK_MSG(has_arrived(ring, round, rank), "%s x%u %s, %llu elements to rank %d%s",
                  gyre_proto_names[round->protos[before(rank)]], round->n_channels,
                  gyre_dtype_names[round->dtype], (unsigned long long)round->counts[before(rank)],
                  rank, round->is_together ? ", in one launch" : "");
    unload_ends(ring, sends, receives);
}

static void set_protos(struct round *round, enum gyre_proto proto)
{
    for (int rank = 0; rank < wanted_ranks; rank++)
        round->protos[rank] = proto;
}

/* If a rank sends first and receives in another launch, no more elements may be sent. */
static uint64_t most_that_slots_hold(const struct round *round, int from)
{
    const struct gpu_run run = {
        .proto = round->protos[from], .n_channels = round->n_channels, .reduction = copy_of(round)};
    return (uint64_t)gpu_run_split(&run, 1).tile_elems * (gpu_run_spec.depth - 1) *
           round->n_channels;
}

static struct round random_round(void)
{
    static const enum gyre_proto protos[] = {GYRE_PROTO_LL, GYRE_PROTO_LL128, GYRE_PROTO_SIMPLE};
    static const gyre_dtype dtypes[] = {GYRE_INT8, GYRE_FLOAT16, GYRE_FLOAT32, GYRE_FLOAT64};
    struct round round = {.dtype = dtypes[below(4)],
                          .n_channels = 1 + below(GPU_RUN_FIFOS),
                          .n_threads = 64 * (1 + below(8)),
                          .is_together = below(3) != 0};
    set_protos(&round, protos[below(3)]);
    const bool are_mixed = below(3) == 0;
    const bool are_alike = !are_mixed && below(3) != 0;
    const bool are_few = below(4) == 0;
    for (int rank = 0; rank < wanted_ranks; rank++) {
        if (are_mixed)
            round.protos[rank] = protos[below(3)];
        const uint64_t most = most_that_slots_hold(&round, rank);
        const uint64_t limit = are_few ? 19 : round.is_together ? 2 * most : most;
        const bool is_as_before = rank > 0 && (are_alike || (!are_mixed && below(2) == 0));
        round.counts[rank] = is_as_before ? round.counts[0] : below((uint32_t)limit + 1);
        round.offsets[rank] = below(2) == 0 ? 0 : below(40);
    }
    return round;
}

TEST_CASE("what is sent arrives")
{
    struct ring ring;
    open_ring(&ring);
    for (uint32_t i = 0; i < wanted_rounds; i++) {
        const struct round round = random_round();
        run_round(&ring, &round);
    }
    CHECK(wanted_rounds < 50 || (n_fused > 0 && n_in_rows > 0 && n_interpreted > 0));
    close_ring(&ring);
}

/* Full slots, then few lines, around the wrap of LL's flags. */
TEST_CASE("flags that wrap never match stale lines")
{
    const uint64_t period = 1ULL << 30;
    struct ring ring;
    struct round round = {
        .dtype = GYRE_INT32, .n_channels = 1, .n_threads = 128, .is_together = true};
    open_ring(&ring);
    set_protos(&round, GYRE_PROTO_LL);
    for (uint64_t epoch = 0; epoch < 4 * period; epoch += period) {
        gpu_rig_set_epoch(&ring.gpus, GYRE_PROTO_LL, epoch == 0 ? 0 : epoch - 2);
        for (int rank = 0; rank < wanted_ranks; rank++)
            round.counts[rank] = 1;
        run_round(&ring, &round);
        run_round(&ring, &round);
        for (int rank = 0; rank < wanted_ranks; rank++)
            round.counts[rank] = GPU_RUN_LL_BYTES / 2 / 4 * 3;
        run_round(&ring, &round);
        run_round(&ring, &round);
    }
    close_ring(&ring);
}

TEST_CASE("sends ahead of receives free each other's slots")
{
    struct ring ring;
    open_ring(&ring);
    for (int ll128 = 0; ll128 < 2; ll128++) {
        struct round round = {
            .dtype = GYRE_INT32, .n_channels = 2, .n_threads = 128, .goes_ahead = true};
        set_protos(&round, ll128 ? GYRE_PROTO_LL128 : GYRE_PROTO_LL);
        for (int rank = 0; rank < wanted_ranks; rank++)
            round.counts[rank] = most_that_slots_hold(&round, rank) - (uint64_t)rank;
        /* An all-to-all by the fused kernel. A rank gives credit by its next launch that receives.
         */
        const struct gyre_shape shape = {.coll = GYRE_COLL_ALL_TO_ALL,
                                         .n_ranks = (uint16_t)wanted_ranks};
        const struct gpu_run run = {
            .proto = round.protos[0], .n_channels = round.n_channels, .reduction = copy_of(&round)};
        struct end ends[GPU_RIG_MAX_RANKS];
        for (int rank = 0; rank < wanted_ranks; rank++) {
            CHECK_OK(
                gyre_algorithm_emit(&gyre_algorithm_direct, &shape, rank, &ends[rank].program));
            const struct gyre_load_config config = {.program = ends[rank].program,
                                                    .n_channels = round.n_channels,
                                                    .proto = run.proto,
                                                    .n_threads = round.n_threads};
            CHECK_OK(
                gyre_executor_cuda.load(ring.gpus.executors[rank], &config, &ends[rank].loaded));
        }
        for (int rank = 0; rank < wanted_ranks; rank++) {
            struct test_work work = {.loaded = ends[rank].loaded,
                                     .in = ring.in[rank],
                                     .out = ring.out[rank],
                                     .split = gpu_run_split(&run, ends[rank].program->n_chunks),
                                     .reduction = run.reduction};
            work.split.count =
                (uint64_t)work.split.tile_elems * gpu_run_spec.depth * round.n_channels;
            launch(&ring, rank, &work, 1);
        }
        CHECK(gpu_rig_wait(&ring.gpus, GPU_RIG_DEADLINE_S));
        for (int rank = 0; rank < wanted_ranks; rank++)
            unload_end(&ring, rank, &ends[rank]);
        run_round(&ring, &round);
    }
    close_ring(&ring);
}

/* By turns. */
TEST_CASE("ranks may fill FIFOs before they receive")
{
    struct ring ring;
    open_ring(&ring);
    for (int ll128 = 0; ll128 < 2 && wanted_ranks == 2; ll128++) {
        struct round round = {.dtype = GYRE_INT32, .n_channels = 2, .n_threads = 128};
        set_protos(&round, ll128 ? GYRE_PROTO_LL128 : GYRE_PROTO_LL);
        for (int rank = 0; rank < wanted_ranks; rank++)
            round.counts[rank] =
                most_that_slots_hold(&round, rank) / (gpu_run_spec.depth - 1) * gpu_run_spec.depth;
        run_round(&ring, &round);
        run_round(&ring, &round);
    }
    close_ring(&ring);
}

/* In one launch of rank 0. All other ranks send when they have received. */
TEST_CASE("answers go by another protocol")
{
    static const enum gyre_proto protos[] = {GYRE_PROTO_LL, GYRE_PROTO_LL128, GYRE_PROTO_SIMPLE};
    struct ring ring;
    open_ring(&ring);
    for (uint32_t i = 0; i < 9; i++) {
        struct round round = {
            .dtype = GYRE_INT32, .n_channels = 2, .n_threads = 128, .answers = true};
        set_protos(&round, protos[i / 3]);
        round.protos[wanted_ranks - 1] = protos[i % 3];
        for (int rank = 0; rank < wanted_ranks; rank++)
            round.counts[rank] = most_that_slots_hold(&round, rank) * 2 + (uint64_t)rank;
        run_round(&ring, &round);
    }
    close_ring(&ring);
}

/* Rank 0 has two rows of blocks. The others do nothing, or send as much; nobody receives from rank
 * 0. */
TEST_CASE("an abort ends messages of several tiles")
{
    for (int is_answered = 0; is_answered < 2; is_answered++) {
        struct end sends[GPU_RIG_MAX_RANKS], receives[GPU_RIG_MAX_RANKS];
        const uint32_t n_before = n_in_rows;
        struct ring ring;
        struct round round = {.dtype = GYRE_INT32, .n_channels = 2, .n_threads = 128};
        open_ring(&ring);
        set_protos(&round, GYRE_PROTO_LL128);
        for (int rank = 0; rank < wanted_ranks; rank++)
            round.counts[rank] = most_that_slots_hold(&round, rank) * 2;
        load_ends(&ring, &round, sends, receives);
        const struct test_work both[2] = {work_of(&ring, &round, 0, &sends[0], true),
                                          work_of(&ring, &round, before(0), &receives[0], false)};
        launch(&ring, 0, both, 2);
        for (int rank = 1; rank < wanted_ranks && is_answered; rank++) {
            const struct test_work send = work_of(&ring, &round, rank, &sends[rank], true);
            launch(&ring, rank, &send, 1);
        }
        CHECK(n_in_rows == n_before + 1);
        CHECK(gpu_rig_await_begun(&ring.gpus, 0, 1));
        CHECK(!gpu_rig_wait(&ring.gpus, 0.05));
        for (int rank = 0; rank < wanted_ranks; rank++)
            gyre_executor_cuda.abort(ring.gpus.executors[rank]);
        CHECK(gpu_rig_wait(&ring.gpus, GPU_RIG_DEADLINE_S));
        unload_ends(&ring, sends, receives);
        close_ring(&ring);
    }
}

/* test_cuda_messages [case [ranks [rounds [seed]]]] */
int main(int argc, char **argv)
{
    if (test_n_gpus() == 0) {
        printf("skipped: there is no GPU\n");
        return TEST_SKIPPED;
    }
    if (argc > 2)
        wanted_ranks = atoi(argv[2]);
    if (argc > 3)
        wanted_rounds = (uint32_t)atoi(argv[3]);
    if (argc > 4)
        rng.state = strtoull(argv[4], NULL, 10);
    return test_main(argc, argv);
}
