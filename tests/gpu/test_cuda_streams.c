/* SPDX-License-Identifier: Apache-2.0
 *
 * What follows what on streams, graphs, GPUs that others keep busy, aborts. With fewer GPUs than
 * ranks they share them.
 */
#define TEST_OWN_MAIN
#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"
#include "kernels/cuda/runtime/state.h"
#include "tests/support/check.h"
#include "tests/gpu/gpu_rig.h"
#include "tests/gpu/hog.h"
#include "tests/support/gpus.h"
#include "tests/support/test_work.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>

#define DEADLINE_NS ((uint64_t)(GPU_RIG_DEADLINE_S * 1e9))

static int wanted_ranks = 4;

TEST_CASE("a captured graph replays without the host")
{
    for (unsigned proto = 0; proto < GYRE_N_PROTOS; proto++) {
        struct gpu_rig gpus;
        struct gpu_loads loads;
        cudaGraph_t captured[GPU_RIG_MAX_RANKS];
        cudaGraphExec_t graphs[GPU_RIG_MAX_RANKS];
        struct gpu_run run = gpu_run_ring;
        run.proto = (enum gyre_proto)proto;
        gpu_rig_open(&gpus, wanted_ranks, &gpu_run_spec);
        gpu_run_load_all(&gpus, &run, &loads);
        for (int rank = 0; rank < gpus.n_ranks; rank++) {
            gpu_rig_use(&gpus, rank);
            GPU_OK(cudaStreamBeginCapture(gpus.streams[rank], cudaStreamCaptureModeThreadLocal));
        }
        for (int i = 0; i < 3; i++)
            gpu_run_all_reduce(&gpus, &loads, gpus.n_ranks);
        for (int rank = 0; rank < gpus.n_ranks; rank++) {
            gpu_rig_use(&gpus, rank);
            GPU_OK(cudaStreamEndCapture(gpus.streams[rank], &captured[rank]));
            /* The graph reads the program whenever it is launched, so it stays there. */
            CHECK(loads.loaded[rank]->block != NULL && loads.loaded[rank]->block->is_captured);
        }
        for (int rank = 0; rank < gpus.n_ranks; rank++) {
            gpu_rig_use(&gpus, rank);
            GPU_OK(cudaGraphInstantiate(&graphs[rank], captured[rank], 0));
            GPU_OK(cudaGraphDestroy(captured[rank]));
        }
        double expected = 1.0;
        for (int i = 0; i < 3; i++) {
            for (int rank = 0; rank < gpus.n_ranks; rank++) {
                gpu_rig_use(&gpus, rank);
                GPU_OK(cudaGraphLaunch(graphs[rank], gpus.streams[rank]));
            }
            expected *= gpus.n_ranks * gpus.n_ranks * gpus.n_ranks;
        }
        CHECK(gpu_rig_wait(&gpus, GPU_RIG_DEADLINE_S));
        for (int rank = 0; rank < gpus.n_ranks; rank++) {
            float *values = malloc(run.count * 4);
            GPU_OK(cudaMemcpy(values, loads.buffers[rank], run.count * 4, cudaMemcpyDeviceToHost));
            CHECK_MSG(values[0] == (float)expected && values[run.count - 1] == (float)expected,
                      "%s: %g, %g, not %g", gyre_proto_names[proto], (double)values[0],
                      (double)values[run.count - 1], expected);
            CHECK(gyre_executor_cuda.progress(gpus.executors[rank]).completed == 9);
            GPU_OK(cudaGraphExecDestroy(graphs[rank]));
            free(values);
        }
        gpu_run_unload_all(&gpus, &loads);
        gpu_rig_close(&gpus);
    }
}

/* All-reduces in place, with moves of the data away and back. */
struct chain {
    struct gpu_rig gpus;
    struct gpu_loads loads;
    float *spares[GPU_RIG_MAX_RANKS];
    cudaStream_t sides[GPU_RIG_MAX_RANKS];
    cudaEvent_t events[GPU_RIG_MAX_RANKS];
};

#define CHAIN_CALLS 8

static void move_away_and_back(const struct chain *chain, int rank, cudaStream_t stream)
{
    const size_t n_bytes = chain->loads.run.count * 4;
    float *buffer = chain->loads.buffers[rank], *spare = chain->spares[rank];
    GPU_OK(cudaMemcpyAsync(spare, buffer, n_bytes, cudaMemcpyDeviceToDevice, stream));
    GPU_OK(cudaMemsetAsync(buffer, 0, n_bytes, stream));
    GPU_OK(cudaMemcpyAsync(buffer, spare, n_bytes, cudaMemcpyDeviceToDevice, stream));
}

/* A call follows a call, a copy, or both. */
static void enqueue_chain(struct chain *chain, bool has_moves)
{
    struct gpu_rig *gpus = &chain->gpus;
    for (int i = 0; i < CHAIN_CALLS; i++) {
        gpu_run_all_reduce(gpus, &chain->loads, gpus->n_ranks);
        for (int rank = 0; rank < gpus->n_ranks; rank++) {
            gpu_rig_use(gpus, rank);
            if (i % 4 == 1 && has_moves)
                move_away_and_back(chain, rank, gpus->streams[rank]);
            if (i % 4 != 2 || !has_moves)
                continue;
            GPU_OK(cudaEventRecord(chain->events[rank], gpus->streams[rank]));
            GPU_OK(cudaStreamWaitEvent(chain->sides[rank], chain->events[rank], 0));
            move_away_and_back(chain, rank, chain->sides[rank]);
            GPU_OK(cudaEventRecord(chain->events[rank], chain->sides[rank]));
            GPU_OK(cudaStreamWaitEvent(gpus->streams[rank], chain->events[rank], 0));
        }
    }
}

/* Which may begin while the node before them ends. */
static size_t count_overlaps(cudaGraph_t graph)
{
    cudaGraphNode_t from[CHAIN_CALLS * 8], to[CHAIN_CALLS * 8];
    cudaGraphEdgeData edges[CHAIN_CALLS * 8];
    size_t n_edges = CHAIN_CALLS * 8, n_overlaps = 0;
    GPU_OK(cudaGraphGetEdges(graph, from, to, edges, &n_edges));
    CHECK(n_edges >= CHAIN_CALLS - 1 && n_edges < CHAIN_CALLS * 8);
    for (size_t i = 0; i < n_edges; i++)
        n_overlaps += edges[i].type == cudaGraphDependencyTypeProgrammatic;
    return n_overlaps;
}

/* Graphs on one GPU that wait for each other hang where they also copy, so ranks that share a GPU
 * make no moves. Only calls right behind a call overlap with it. */
static void enqueue_captured(struct chain *chain)
{
    struct gpu_rig *gpus = &chain->gpus;
    const bool has_moves = gpus->n_ranks <= gpus->n_gpus;
    const size_t n_behind = has_moves ? CHAIN_CALLS / 2 - 1 : CHAIN_CALLS - 1;
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        gpu_rig_use(gpus, rank);
        GPU_OK(cudaStreamBeginCapture(gpus->streams[rank], cudaStreamCaptureModeThreadLocal));
    }
    enqueue_chain(chain, has_moves);
    cudaGraph_t graphs[GPU_RIG_MAX_RANKS];
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        gpu_rig_use(gpus, rank);
        GPU_OK(cudaStreamEndCapture(gpus->streams[rank], &graphs[rank]));
    }
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        cudaGraphExec_t ready;
        gpu_rig_use(gpus, rank);
        CHECK(count_overlaps(graphs[rank]) ==
              (gyre_cuda_own(gpus->executors[rank])->overlaps_launches ? n_behind : 0));
        GPU_OK(cudaGraphInstantiate(&ready, graphs[rank], 0));
        GPU_OK(cudaGraphLaunch(ready, gpus->streams[rank]));
        GPU_OK(cudaGraphDestroy(graphs[rank]));
        GPU_OK(cudaGraphExecDestroy(ready)); /* when it has run */
    }
}

/* Twice eager, then twice from a graph. */
static void run_chain(const struct gpu_run *run)
{
    struct chain chain;
    gpu_rig_open(&chain.gpus, wanted_ranks, &gpu_run_spec);
    gpu_run_load_all(&chain.gpus, run, &chain.loads);
    for (int rank = 0; rank < chain.gpus.n_ranks; rank++) {
        gpu_rig_use(&chain.gpus, rank);
        GPU_OK(cudaMalloc((void **)&chain.spares[rank], run->count * 4));
        GPU_OK(cudaStreamCreateWithFlags(&chain.sides[rank], cudaStreamNonBlocking));
        GPU_OK(cudaEventCreateWithFlags(&chain.events[rank], cudaEventDisableTiming));
    }
    enqueue_chain(&chain, true);
    enqueue_chain(&chain, true);
    enqueue_captured(&chain);
    enqueue_captured(&chain);
    if (!gpu_rig_wait(&chain.gpus, GPU_RIG_DEADLINE_S)) {
        fprintf(stderr, "calls in a row hang: %s\n", gpu_run_text(run));
        exit(1);
    }
    double expected = 1;
    uint32_t n_wrong = 0;
    for (int i = 0; i < 4 * CHAIN_CALLS; i++)
        expected *= chain.gpus.n_ranks;
    for (int rank = 0; rank < chain.gpus.n_ranks; rank++) {
        float *values = malloc(run->count * 4);
        gpu_rig_use(&chain.gpus, rank);
        GPU_OK(
            cudaMemcpy(values, chain.loads.buffers[rank], run->count * 4, cudaMemcpyDeviceToHost));
        for (uint64_t i = 0; i < run->count; i++)
            n_wrong += !(fabs(values[i] / expected - 1) <= 1e-4);
        free(values);
        GPU_OK(cudaFree(chain.spares[rank]));
        GPU_OK(cudaStreamDestroy(chain.sides[rank]));
        GPU_OK(cudaEventDestroy(chain.events[rank]));
    }
    CHECK_MSG(n_wrong == 0, "%u elements are wrong: %s", n_wrong, gpu_run_text(run));
    gpu_run_unload_all(&chain.gpus, &chain.loads);
    gpu_rig_close(&chain.gpus);
}

TEST_CASE("calls in a row read what the last one wrote")
{
    static const struct gyre_algorithm *const algorithms[] = {
        &gyre_algorithm_direct, &gyre_algorithm_twoshot, &gyre_algorithm_ring};
    for (size_t a = 0; a < sizeof(algorithms) / sizeof(algorithms[0]); a++)
        for (unsigned proto = 0; proto < GYRE_N_PROTOS; proto++)
            for (uint32_t n_channels = 2; n_channels <= GPU_RUN_FIFOS; n_channels *= 4) {
                struct gpu_run run = gpu_run_ring;
                run.algorithm = algorithms[a];
                run.proto = (enum gyre_proto)proto;
                run.n_channels = n_channels;
                run_chain(&run);
            }
}

/* All other multiprocessors are taken, those of block places among them. */
#define FREE_SMS 6

struct hogs {
    uint32_t *words; /* is_over, then how many run, of each rank */
    cudaStream_t streams[GPU_RIG_MAX_RANKS];
};

static void stop_hogs(const struct gpu_rig *gpus, struct hogs *hogs)
{
    gyre_store_release_u32(hogs->words, 1);
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        gpu_rig_use(gpus, rank);
        GPU_OK(cudaStreamSynchronize(hogs->streams[rank]));
        GPU_OK(cudaStreamDestroy(hogs->streams[rank]));
    }
    GPU_OK(cudaFreeHost(hogs->words));
}

/* As the kernels say; the hogs end later. */
static bool have_completed(const struct gpu_rig *gpus, uint64_t n_works)
{
    const uint64_t begin_ns = gyre_now_ns();
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        while (gyre_executor_cuda.progress(gpus->executors[rank]).completed < n_works)
            if (gyre_now_ns() - begin_ns > DEADLINE_NS)
                return false;
    }
    return true;
}

/* One rank a GPU: blocks of many threads on all multiprocessors left. */
TEST_CASE("block places are filled on a busy GPU")
{
    struct gpu_rig gpus;
    struct hogs hogs;
    struct gpu_loads loads;
    struct gpu_run run = gpu_run_ring;
    const struct gyre_cuda_places empty = {.n_taken = 0};
    const int n_gpus = test_n_gpus();
    const uint64_t before = gpu_rig_block_placement_bytes;
    run.n_channels = FREE_SMS;
    run.n_threads = 512;
    gpu_rig_block_placement_bytes = 0;
    gpu_rig_open(&gpus, n_gpus < wanted_ranks ? n_gpus : wanted_ranks, &gpu_run_spec);
    gpu_rig_block_placement_bytes = before;
    gpu_run_load_all(&gpus, &run, &loads);
    GPU_OK(cudaHostAlloc((void **)&hogs.words, (GPU_RIG_MAX_RANKS + 1) * sizeof(uint32_t),
                         cudaHostAllocMapped | cudaHostAllocPortable));
    memset(hogs.words, 0, (GPU_RIG_MAX_RANKS + 1) * sizeof(uint32_t));
    for (int rank = 0; rank < gpus.n_ranks; rank++) {
        const uint32_t n_blocks = gyre_cuda_own(gpus.executors[rank])->n_sms - FREE_SMS;
        uint32_t *n_started = &hogs.words[rank + 1];
        gpu_rig_use(&gpus, rank);
        GPU_OK(cudaStreamCreateWithFlags(&hogs.streams[rank], cudaStreamNonBlocking));
        GPU_OK(hog_start((int)n_blocks, hogs.words, n_started, hogs.streams[rank]));
        const uint64_t begin_ns = gyre_now_ns();
        while (gyre_load_acquire_u32(n_started) < n_blocks &&
               gyre_now_ns() - begin_ns < DEADLINE_NS)
            sched_yield();
        CHECK_MSG(*n_started == n_blocks, "%u of %u blocks run", *n_started, n_blocks);
    }
    for (int i = 0; i < 3; i++)
        gpu_run_all_reduce(&gpus, &loads, gpus.n_ranks);
    const bool has_ended = have_completed(&gpus, 3);
    stop_hogs(&gpus, &hogs);
    CHECK_MSG(has_ended, "not all block places are taken");
    CHECK(gpu_rig_wait(&gpus, GPU_RIG_DEADLINE_S));
    for (int rank = 0; rank < gpus.n_ranks; rank++) {
        struct gyre_cuda_places places;
        float value;
        gpu_rig_use(&gpus, rank);
        GPU_OK(cudaMemcpy(&places, &gyre_cuda_own(gpus.executors[rank])->control->places,
                          sizeof(places), cudaMemcpyDeviceToHost));
        CHECK_MSG(memcmp(&places, &empty, sizeof(places)) == 0, "rank %d leaves block places taken",
                  rank);
        GPU_OK(cudaMemcpy(&value, loads.buffers[rank] + run.count - 1, 4, cudaMemcpyDeviceToHost));
        const float expected = (float)(gpus.n_ranks * gpus.n_ranks * gpus.n_ranks);
        CHECK_MSG(value == expected, "%g, not %g", (double)value, (double)expected);
    }
    gpu_run_unload_all(&gpus, &loads);
    gpu_rig_close(&gpus);
}

/* By copy engines. */
struct gathers {
    struct gpu_rig gpus;
    struct gyre_program *programs[GPU_RIG_MAX_RANKS];
    struct gyre_loaded *loaded[GPU_RIG_MAX_RANKS];
    int32_t *ins[GPU_RIG_MAX_RANKS];
    void *bases[GPU_RIG_MAX_RANKS]; /* of OUT */
    struct gyre_placement placement;
    cudaStream_t others[GPU_RIG_MAX_RANKS]; /* a second stream of each rank */
    cudaGraphExec_t graphs[2][GPU_RIG_MAX_RANKS];
};

#define GATHER_COUNT 3000

static const struct gyre_reduction no_reduction = {
    .dtype = GYRE_INT32, .op = GYRE_SUM, .divisor = 1};

static size_t gathered_bytes(const struct gathers *gathers)
{
    return (size_t)gathers->gpus.n_ranks * GATHER_COUNT * sizeof(int32_t);
}

static int32_t gathered(int32_t replay, int rank, uint64_t i)
{
    return replay * 1000000 + rank * 10000 + (int32_t)i;
}

static void replay_gathers(struct gathers *gathers, int32_t replay)
{
    struct gpu_rig *gpus = &gathers->gpus;
    int32_t *values = malloc(gathered_bytes(gathers));
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        for (uint64_t i = 0; i < GATHER_COUNT; i++)
            values[i] = gathered(replay, rank, i);
        GPU_OK(cudaMemcpy(gathers->ins[rank], values, GATHER_COUNT * sizeof(int32_t),
                          cudaMemcpyHostToDevice));
    }
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        gpu_rig_use(gpus, rank);
        GPU_OK(cudaGraphLaunch(gathers->graphs[replay % 2][rank], gpus->streams[rank]));
    }
    CHECK(gpu_rig_wait(gpus, GPU_RIG_DEADLINE_S));
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        uint64_t n_wrong = 0;
        GPU_OK(cudaMemcpy(values, gathers->bases[rank], gathered_bytes(gathers),
                          cudaMemcpyDeviceToHost));
        for (uint64_t i = 0; i < (uint64_t)gpus->n_ranks * GATHER_COUNT; i++)
            n_wrong += values[i] != gathered(replay, (int)(i / GATHER_COUNT), i % GATHER_COUNT);
        CHECK_MSG(n_wrong == 0, "rank %d, replay %d: %d wrong", rank, replay, (int)n_wrong);
        CHECK(gyre_executor_cuda.progress(gpus->executors[rank]).completed == (uint64_t)replay * 2);
    }
    free(values);
}

TEST_CASE("copy engines replay from graphs")
{
    struct gathers gathers;
    memset(&gathers, 0, sizeof(gathers));
    struct gpu_rig *gpus = &gathers.gpus;
    gpu_rig_open(gpus, wanted_ranks, &gpu_run_spec);
    gathers.placement = (struct gyre_placement){gathers.bases, gathers.bases};
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        const struct gyre_shape shape = {
            .coll = GYRE_COLL_ALL_GATHER, .n_ranks = (uint16_t)gpus->n_ranks, .is_placed = true};
        CHECK_OK(
            gyre_algorithm_emit(&gyre_algorithm_direct, &shape, rank, &gathers.programs[rank]));
        const struct gyre_load_config config = {
            .program = gathers.programs[rank], .n_channels = 1, .by_copy_engines = true};
        CHECK_OK(gyre_executor_cuda.load(gpus->executors[rank], &config, &gathers.loaded[rank]));
        gpu_rig_use(gpus, rank);
        GPU_OK(cudaMalloc((void **)&gathers.ins[rank], GATHER_COUNT * sizeof(int32_t)));
        GPU_OK(cudaMalloc(&gathers.bases[rank], gathered_bytes(&gathers)));
        GPU_OK(cudaStreamCreateWithFlags(&gathers.others[rank], cudaStreamNonBlocking));
    }
    for (int rank = 0; rank < gathers.gpus.n_ranks; rank++) {
        /* With two calls each and open at the same time. */
        const struct test_work work = {.loaded = gathers.loaded[rank],
                                       .in = gathers.ins[rank],
                                       .out = gathers.bases[rank],
                                       .split = {GATHER_COUNT, 1, 1, 1 << 20, 4},
                                       .reduction = no_reduction,
                                       .placement = &gathers.placement,
                                       .n_bases = gpus->n_ranks};
        const cudaStream_t streams[] = {gpus->streams[rank], gathers.others[rank]};
        gpu_rig_use(gpus, rank);
        for (int i = 0; i < 2; i++)
            GPU_OK(cudaStreamBeginCapture(streams[i], cudaStreamCaptureModeRelaxed));
        for (int i = 0; i < 4; i++)
            CHECK_OK(test_enqueue(gpus->executors[rank], &work, 1, streams[i % 2]));
        for (int i = 0; i < 2; i++) {
            cudaGraph_t graph;
            GPU_OK(cudaStreamEndCapture(streams[i], &graph));
            GPU_OK(cudaGraphInstantiate(&gathers.graphs[i][rank], graph, 0));
            GPU_OK(cudaGraphDestroy(graph));
        }
    }
    for (int32_t replay = 1; replay <= 4; replay++)
        replay_gathers(&gathers, replay);
    for (int rank = 0; rank < gpus->n_ranks; rank++) {
        gyre_executor_cuda.unload(gpus->executors[rank], gathers.loaded[rank]);
        gyre_program_free(gathers.programs[rank]);
        gpu_rig_use(gpus, rank);
        GPU_OK(cudaGraphExecDestroy(gathers.graphs[0][rank]));
        GPU_OK(cudaGraphExecDestroy(gathers.graphs[1][rank]));
        GPU_OK(cudaFree(gathers.ins[rank]));
        GPU_OK(cudaFree(gathers.bases[rank]));
        GPU_OK(cudaStreamDestroy(gathers.others[rank]));
    }
    gpu_rig_close(gpus);
}

/* As the host sees it while ranks wait, and after the abort. */
static void check_progress(const struct gpu_rig *gpus, const struct gpu_run *run,
                           uint64_t n_completed, uint64_t n_begun)
{
    for (int rank = 0; rank < gpus->n_ranks - 1; rank++) {
        const struct gyre_progress progress = gyre_executor_cuda.progress(gpus->executors[rank]);
        CHECK_MSG(progress.completed == n_completed && progress.activity == n_begun,
                  "%d completed, %d begun: %s", (int)progress.completed, (int)progress.activity,
                  gpu_run_text(run));
    }
}

TEST_CASE("an abort ends kernels that wait and those behind them")
{
    static const struct gyre_algorithm *const algorithms[] = {
        &gyre_algorithm_direct, &gyre_algorithm_twoshot, &gyre_algorithm_ring};
    for (size_t a = 0; a < sizeof(algorithms) / sizeof(algorithms[0]); a++)
        for (unsigned proto = 0; proto < GYRE_N_PROTOS; proto++) {
            struct gpu_run run = gpu_run_ring;
            run.algorithm = algorithms[a];
            run.proto = (enum gyre_proto)proto;
            struct gpu_rig gpus;
            struct gpu_loads loads;
            gpu_rig_open(&gpus, wanted_ranks, &gpu_run_spec);
            gpu_run_load_all(&gpus, &run, &loads);
            /* The last rank does not launch. */
            for (int i = 0; i < 3; i++)
                gpu_run_all_reduce(&gpus, &loads, gpus.n_ranks - 1);
            for (int rank = 0; rank < gpus.n_ranks - 1; rank++)
                CHECK_MSG(gpu_rig_await_begun(&gpus, rank, 1), "did not begin: %s",
                          gpu_run_text(&run));
            CHECK_MSG(!gpu_rig_wait(&gpus, 0.05), "they did not wait");
            check_progress(&gpus, &run, 0, 1);
            for (int rank = 0; rank < gpus.n_ranks; rank++)
                gyre_executor_cuda.abort(gpus.executors[rank]);
            CHECK_MSG(gpu_rig_wait(&gpus, GPU_RIG_DEADLINE_S), "still runs: %s",
                      gpu_run_text(&run));
            check_progress(&gpus, &run, 3, 3);
            gpu_run_unload_all(&gpus, &loads);
            gpu_rig_close(&gpus);
        }
}

static void check_mismatch(uint64_t count)
{
    struct gpu_rig gpus;
    struct gpu_loads loads;
    struct gpu_run run = gpu_run_ring;
    run.count = count;
    gpu_rig_open(&gpus, 2, &gpu_run_spec);
    gpu_run_load_all(&gpus, &run, &loads);
    for (int rank = 0; rank < 2; rank++) {
        struct test_work work = {.loaded = loads.loaded[rank],
                                 .in = loads.buffers[rank],
                                 .out = loads.buffers[rank],
                                 .split = gpu_run_split(&run, loads.programs[rank]->n_chunks),
                                 .reduction = run.reduction,
                                 .signature = (uint32_t)rank};
        CHECK_OK(test_enqueue(gpus.executors[rank], &work, 1, gpus.streams[rank]));
    }
    const uint64_t begin_ns = gyre_now_ns();
    for (int rank = 0; rank < 2; rank++)
        while (gyre_executor_cuda.progress(gpus.executors[rank]).mismatch == 0 &&
               gyre_now_ns() - begin_ns < DEADLINE_NS)
            sched_yield();
    CHECK(!gpu_rig_wait(&gpus, 0.05));
    for (int rank = 0; rank < 2; rank++) {
        CHECK(gyre_executor_cuda.progress(gpus.executors[rank]).mismatch ==
              1 + (uint64_t)(1 - rank));
        gyre_executor_cuda.abort(gpus.executors[rank]);
    }
    CHECK(gpu_rig_wait(&gpus, GPU_RIG_DEADLINE_S));
    gpu_run_unload_all(&gpus, &loads);
    gpu_rig_close(&gpus);
}

/* Aligned lengths have a fused kernel. */
TEST_CASE("a call that does not fit is reported and waits for the abort")
{
    check_mismatch(5000);
    check_mismatch(4999);
}

/* test_cuda_streams [case [ranks]] */
int main(int argc, char **argv)
{
    if (test_n_gpus() == 0) {
        printf("skipped: there is no GPU\n");
        return TEST_SKIPPED;
    }
    gpu_rig_block_placement_bytes = 4096; /* some calls do, some do not */
    if (argc > 2)
        wanted_ranks = atoi(argv[2]);
    return test_main(argc, argv);
}
