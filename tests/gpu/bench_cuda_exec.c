/* SPDX-License-Identifier: Apache-2.0
 *
 * What the interpreter reaches, without communicator, tuner or transport: collectives of f32, as a
 * CUDA graph of calls. One JSON line each.
 *
 * bench_cuda_exec FILE [ranks [algorithms [protocols [channels [threads [sizes [collectives]]]]]]];
 * lists are separated by commas, sizes are bytes with K, M, G.
 */
#define TEST_OWN_MAIN
#include "algorithms/algorithm.h"
#include "core/foundation/base/util.h"
#include "kernels/cuda/runtime/state.h"
#include "tests/support/check.h"
#include "tests/gpu/decode.h"
#include "tests/gpu/gpu_rig.h"
#include "tests/support/test_work.h"

#define MAX_LIST     32
#define SIMPLE_BYTES (256 * 1024)
#define LL_BYTES     (64 * 1024)
#define LL128_BYTES  (128 * 1024)
#define UNIT_ELEMS   4                   /* 16 bytes, as of communicators */
#define PLACED       GYRE_N_PROTOS       /* beside the protocols: SIMPLE with placed data */
#define COPIED       (GYRE_N_PROTOS + 1) /* likewise, by copy engines */

struct sweep {
    uint64_t n_ranks[MAX_LIST];
    int n_n_ranks;
    char algorithms[256];
    char protocols[64];
    char collectives[128];
    uint64_t channels[MAX_LIST];
    int n_channels;
    uint64_t threads[MAX_LIST];
    int n_threads;
    uint64_t sizes[MAX_LIST];
    int n_sizes;
};

static const struct gyre_reduction float_sum = {.dtype = GYRE_FLOAT32, .op = GYRE_SUM};

static int parse_list(const char *text, uint64_t *values)
{
    int n = 0;
    while (*text != '\0' && n < MAX_LIST) {
        char *end;
        values[n] = strtoull(text, &end, 10);
        values[n] <<= *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
        n++;
        while (*end != '\0' && *end != ',')
            end++;
        text = *end == ',' ? end + 1 : end;
    }
    return n;
}

struct point {
    const struct gyre_algorithm *algorithm;
    enum gyre_proto proto;
    uint32_t n_channels;
    uint32_t n_threads;
    uint64_t n_bytes; /* as nccl-tests counts them: of all blocks */
    enum gyre_collective coll;
    bool is_placed; /* finished data go straight into the peers' OUT */
    bool is_copied; /* likewise, by copy engines */
};

struct rank_state {
    struct gyre_program *program;
    struct gyre_loaded *loaded;
    float *in, *out;
    struct gyre_placement placement;
    void *bases[GPU_RIG_MAX_RANKS];
    cudaGraphExec_t graph;
    cudaEvent_t begin, end;
};

static uint32_t payload_bytes(enum gyre_proto proto)
{
    return proto == GYRE_PROTO_LL        ? LL_BYTES / 2
           : proto == GYRE_PROTO_LL128   ? LL128_BYTES / 128 * 120
           : proto == GYRE_PROTO_LAMPORT ? LL128_BYTES
                                         : SIMPLE_BYTES;
}

static gyre_status load(struct gpu_rig *rig, const struct point *point, struct rank_state *states)
{
    const struct gyre_shape shape = {
        .coll = point->coll, .n_ranks = (uint16_t)rig->n_ranks, .is_placed = point->is_placed};
    for (int rank = 0; rank < rig->n_ranks; rank++) {
        struct rank_state *own = &states[rank];
        GYRE_TRY(gyre_algorithm_emit(point->algorithm, &shape, rank, &own->program));
        const struct gyre_load_config config = {.program = own->program,
                                                .n_channels = point->n_channels,
                                                .proto = point->proto,
                                                .n_threads = point->n_threads,
                                                .by_copy_engines = point->is_copied};
        GYRE_TRY(gyre_executor_cuda.load(rig->executors[rank], &config, &own->loaded));
    }
    return GYRE_SUCCESS;
}

static uint64_t n_blocks(const struct gpu_rig *rig, const struct point *point)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[point->coll];
    return traits->in_blocks || traits->out_blocks ? (uint64_t)rig->n_ranks : 1;
}

/* As nccl-tests defines it. */
static double bus_factor(enum gyre_collective coll, double n_ranks)
{
    if (coll == GYRE_COLL_ALL_REDUCE)
        return 2 * (n_ranks - 1) / n_ranks;
    return coll == GYRE_COLL_BROADCAST || coll == GYRE_COLL_REDUCE ? 1 : (n_ranks - 1) / n_ranks;
}

static void launch(struct gpu_rig *rig, const struct point *point, struct rank_state *states,
                   int rank)
{
    struct rank_state *own = &states[rank];
    const char *tile = getenv("BENCH_TILE"); /* bytes; 0 or unset = a whole slot */
    const uint32_t wanted = tile != NULL ? (uint32_t)atoi(tile) : 0;
    const uint32_t room = payload_bytes(point->proto);
    const uint32_t most = wanted > 0 ? gyre_min_u32(wanted, room) : room;
    const uint32_t tile_bytes = most / (UNIT_ELEMS * 4) * (UNIT_ELEMS * 4);
    const struct test_work work = {.loaded = own->loaded,
                                   .in = own->in,
                                   .out = own->out,
                                   .split = {.count = point->n_bytes / 4 / n_blocks(rig, point),
                                             .n_channels = point->n_channels,
                                             .n_chunks = own->program->n_chunks,
                                             .tile_elems = tile_bytes / 4,
                                             .unit_elems = UNIT_ELEMS},
                                   .reduction = float_sum,
                                   .placement = &own->placement,
                                   .n_bases = rig->n_ranks};
    CHECK_OK(test_enqueue(rig->executors[rank], &work, 1, rig->streams[rank]));
}

static void capture(struct gpu_rig *rig, const struct point *point, struct rank_state *states,
                    int n_calls)
{
    for (int rank = 0; rank < rig->n_ranks; rank++) {
        cudaGraph_t graph;
        gpu_rig_use(rig, rank);
        GPU_OK(cudaStreamBeginCapture(rig->streams[rank], cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < n_calls; i++)
            launch(rig, point, states, rank);
        GPU_OK(cudaStreamEndCapture(rig->streams[rank], &graph));
        GPU_OK(cudaGraphInstantiate(&states[rank].graph, graph, 0));
        GPU_OK(cudaGraphUpload(states[rank].graph, rig->streams[rank]));
        GPU_OK(cudaGraphDestroy(graph));
    }
}

/* The second replay is timed. Microseconds per call. */
static double replay(struct gpu_rig *rig, struct rank_state *states, int n_calls)
{
    double longest_us = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int rank = 0; rank < rig->n_ranks; rank++) {
            gpu_rig_use(rig, rank);
            if (pass == 1)
                GPU_OK(cudaEventRecord(states[rank].begin, rig->streams[rank]));
            GPU_OK(cudaGraphLaunch(states[rank].graph, rig->streams[rank]));
            if (pass == 1)
                GPU_OK(cudaEventRecord(states[rank].end, rig->streams[rank]));
        }
    if (!gpu_rig_wait(rig, 20))
        return -1;
    for (int rank = 0; rank < rig->n_ranks; rank++) {
        float ms;
        GPU_OK(cudaEventElapsedTime(&ms, states[rank].begin, states[rank].end));
        const double us = (double)ms * 1000 / n_calls;
        longest_us = us > longest_us ? us : longest_us;
    }
    return longest_us;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static const char *proto_name(const struct point *point)
{
    if (point->is_copied)
        return "copy_engine";
    return point->is_placed ? "placed" : gyre_proto_names[point->proto];
}

static void measure(struct gpu_rig *rig, const struct point *point, struct rank_state *states,
                    FILE *file)
{
    const int n_calls = point->n_bytes >= (64U << 20) ? 4 : 20;
    const double n = rig->n_ranks;
    double us[5];
    if (load(rig, point, states) == GYRE_SUCCESS) {
        capture(rig, point, states, n_calls);
        for (int i = 0; i < 5; i++)
            us[i] = replay(rig, states, n_calls);
        if (us[4] < 0) {
            printf("hangs\n");
            fprintf(file, "{\"hangs\": true}\n");
            fflush(file);
            _Exit(1);
        }
        qsort(us, 5, sizeof(us[0]), compare);
        fprintf(file,
                "{\"coll\": \"%s\", \"algorithm\": \"%s\", \"proto\": \"%s\", \"ranks\": %d, "
                "\"channels\": %u, "
                "\"threads\": %u, \"bytes\": %llu, \"us\": %.2f, \"us_min\": %.2f, \"busbw\": "
                "%.2f}\n",
                gyre_collectives[point->coll].name, point->algorithm->name, proto_name(point),
                rig->n_ranks, point->n_channels, point->n_threads,
                (unsigned long long)point->n_bytes, us[2], us[0],
                (double)point->n_bytes / us[2] / 1e3 * bus_factor(point->coll, n));
        fflush(file);
    } else {
        printf("%s\n", gyre_cause());
    }
    for (int rank = 0; rank < rig->n_ranks; rank++) {
        if (states[rank].graph != NULL)
            GPU_OK(cudaGraphExecDestroy(states[rank].graph));
        gyre_executor_cuda.unload(rig->executors[rank], states[rank].loaded);
        gyre_program_free(states[rank].program);
        states[rank].graph = NULL;
        states[rank].loaded = NULL;
        states[rank].program = NULL;
    }
}

/* Lines are for small sizes only. */
static bool is_sensible(const struct point *point)
{
    const struct gyre_shape shape = {.coll = point->coll, .n_ranks = 2, .is_placed = true};
    if (point->is_copied)
        return gyre_algorithm_ability(point->algorithm, &shape).copy_tail;
    if (point->proto == GYRE_PROTO_LL && point->n_bytes > (4U << 20))
        return false;
    if ((point->proto == GYRE_PROTO_LL128 || point->proto == GYRE_PROTO_LAMPORT) &&
        point->n_bytes > (64U << 20))
        return false;
    if (point->proto == GYRE_PROTO_LAMPORT && !gyre_collectives[point->coll].reduces)
        return false;
    if (strcmp(point->algorithm->name, "direct") == 0 && point->coll == GYRE_COLL_ALL_REDUCE &&
        point->n_bytes > (16U << 20))
        return false;
    if (point->n_bytes > 512 * 1024 && point->n_bytes / point->n_channels > (8U << 20) &&
        point->n_channels < 8)
        return false;
    return point->n_bytes / point->n_channels >= 512;
}

/* "reduce" is not "all_reduce". */
static bool names(const char *list, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = strstr(list, name); at != NULL; at = strstr(at + 1, name))
        if ((at == list || at[-1] == ',') && (at[n] == '\0' || at[n] == ','))
            return true;
    return false;
}

/* Where all OUT buffers are; peers' memory is mapped. */
static void place(struct gpu_rig *rig, struct rank_state *states, int rank)
{
    void **bases = states[rank].bases, *table;
    for (int peer = 0; peer < rig->n_ranks; peer++)
        bases[peer] = states[peer].out;
    gpu_rig_use(rig, rank);
    GPU_OK(cudaMalloc(&table, sizeof(states[rank].bases)));
    GPU_OK(cudaMemcpy(table, bases, sizeof(states[rank].bases), cudaMemcpyHostToDevice));
    states[rank].placement.bases = bases;
    states[rank].placement.device_bases = table;
}

static void sweep_all(struct gpu_rig *rig, const struct sweep *sweep, FILE *file)
{
    struct rank_state states[GPU_RIG_MAX_RANKS];
    const uint64_t largest = sweep->sizes[sweep->n_sizes - 1];
    memset(states, 0, sizeof(states));
    for (int rank = 0; rank < rig->n_ranks; rank++) {
        gpu_rig_use(rig, rank);
        GPU_OK(cudaMalloc((void **)&states[rank].in, largest));
        GPU_OK(cudaMalloc((void **)&states[rank].out, largest));
        GPU_OK(cudaMemset(states[rank].in, 1, largest));
        GPU_OK(cudaEventCreate(&states[rank].begin));
        GPU_OK(cudaEventCreate(&states[rank].end));
    }
    for (int rank = 0; rank < rig->n_ranks; rank++)
        place(rig, states, rank);
    for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++)
        for (int a = 0; gyre_algorithms[a] != NULL; a++)
            for (unsigned proto = 0; proto <= COPIED; proto++)
                for (int c = 0; c < sweep->n_channels; c++)
                    for (int t = 0; t < sweep->n_threads; t++)
                        for (int s = 0; s < sweep->n_sizes; s++) {
                            const bool is_placed = proto >= PLACED;
                            const struct point point = {gyre_algorithms[a],
                                                        is_placed ? GYRE_PROTO_SIMPLE
                                                                  : (enum gyre_proto)proto,
                                                        (uint32_t)sweep->channels[c],
                                                        (uint32_t)sweep->threads[t],
                                                        sweep->sizes[s],
                                                        (enum gyre_collective)coll,
                                                        is_placed,
                                                        proto == COPIED};
                            if (names(sweep->collectives, gyre_collectives[coll].name) &&
                                strstr(sweep->algorithms, point.algorithm->name) != NULL &&
                                names(sweep->protocols, proto_name(&point)) &&
                                gyre_algorithm_has(point.algorithm, point.coll) &&
                                is_sensible(&point))
                                measure(rig, &point, states, file);
                        }
    for (int rank = 0; rank < rig->n_ranks; rank++) {
        GPU_OK(cudaFree(states[rank].in));
        GPU_OK(cudaFree(states[rank].out));
        GPU_OK(cudaFree((void *)(uintptr_t)states[rank].placement.device_bases));
    }
}

/* Each step has its own chunk: with fewer elements than chunks all but the first move nothing. */
static gyre_status make_empty_steps(int n_steps, struct gyre_program **program_out)
{
    const struct gyre_shape shape = {.coll = GYRE_COLL_ALL_REDUCE, .n_ranks = 1};
    struct gyre_builder *builder;
    GYRE_TRY(gyre_builder_open("empty", &shape, 0, n_steps, &builder));
    for (int chunk = 0; chunk < n_steps; chunk++) {
        const struct gyre_ref in = gyre_in(chunk), out = gyre_out(chunk);
        gyre_builder_step(builder, chunk, &in, 1, &out, 1, GYRE_STEP_FINAL);
    }
    return gyre_builder_close(builder, program_out);
}

/* Of one launch, the mean of many on one stream; and without the hand-over between warps. */
static double time_steps(struct gpu_rig *rig, enum gyre_proto proto, int n_steps, float *buffer,
                         struct decode_times *alone_out)
{
    struct rank_state own;
    const int n_launches = 500;
    float ms;
    memset(&own, 0, sizeof(own));
    CHECK_OK(make_empty_steps(n_steps, &own.program));
    const struct gyre_load_config config = {
        .program = own.program, .n_channels = 1, .proto = proto};
    CHECK_OK(gyre_executor_cuda.load(rig->executors[0], &config, &own.loaded));
    gpu_rig_use(rig, 0);
    GPU_OK(cudaEventCreate(&own.begin));
    GPU_OK(cudaEventCreate(&own.end));
    const struct test_work work = {.loaded = own.loaded,
                                   .in = buffer,
                                   .out = buffer + 4,
                                   .split = {4, 1, own.program->n_chunks, 4096, 4096},
                                   .reduction = float_sum};
    for (int i = -50; i < n_launches; i++) {
        if (i == 0)
            GPU_OK(cudaEventRecord(own.begin, rig->streams[0]));
        CHECK_OK(test_enqueue(rig->executors[0], &work, 1, rig->streams[0]));
    }
    GPU_OK(cudaEventRecord(own.end, rig->streams[0]));
    GPU_OK(cudaStreamSynchronize(rig->streams[0]));
    GPU_OK(cudaEventElapsedTime(&ms, own.begin, own.end));
    GPU_OK(decode_measure(&gyre_cuda_own(rig->executors[0])->args.one, proto,
                          own.loaded->shared_bytes, rig->streams[0], alone_out));
    GPU_OK(cudaEventDestroy(own.begin));
    GPU_OK(cudaEventDestroy(own.end));
    gyre_executor_cuda.unload(rig->executors[0], own.loaded);
    gyre_program_free(own.program);
    return (double)ms * 1e6 / n_launches;
}

/* Decode, dispatch and the hand-over between warps, with no data, wait, fence or peer: the
 * difference between a long and a short program, both longer than kernel parameters. */
static void measure_decode(struct gpu_rig *rig, FILE *file)
{
    struct decode_times alone;
    float *buffer;
    gpu_rig_use(rig, 0);
    GPU_OK(cudaMalloc((void **)&buffer, 32));
    for (int proto = 0; proto < GYRE_N_PROTOS; proto++) {
        const double few_ns = time_steps(rig, (enum gyre_proto)proto, 100, buffer, &alone);
        const double many_ns = time_steps(rig, (enum gyre_proto)proto, 250, buffer, &alone);
        fprintf(file,
                "{\"proto\": \"%s\", \"step_ns\": %.1f, \"decode_ns\": %.1f, "
                "\"dispatch_ns\": %.1f}\n",
                gyre_proto_names[proto], (many_ns - few_ns) / 150, alone.decode_ns,
                alone.dispatch_ns);
    }
    GPU_OK(cudaFree(buffer));
}

/* On the host; also with everything on the stream finished. */
static void measure_launch(struct gpu_rig *rig, FILE *file)
{
    const struct point point = {.algorithm = &gyre_algorithm_direct,
                                .proto = GYRE_PROTO_LL,
                                .n_channels = 1,
                                .n_threads = 256,
                                .n_bytes = 1024,
                                .coll = GYRE_COLL_ALL_REDUCE};
    struct rank_state states[GPU_RIG_MAX_RANKS];
    memset(states, 0, sizeof(states));
    CHECK_OK(load(rig, &point, states));
    for (int rank = 0; rank < rig->n_ranks; rank++) {
        gpu_rig_use(rig, rank);
        GPU_OK(cudaMalloc((void **)&states[rank].in, 1024));
        GPU_OK(cudaMalloc((void **)&states[rank].out, 1024));
    }
    const int n_calls = 200;
    uint64_t begin_ns = 0;
    for (int i = 0; i < 2 * n_calls; i++) {
        if (i == n_calls)
            begin_ns = gyre_now_ns();
        for (int rank = 0; rank < rig->n_ranks; rank++)
            launch(rig, &point, states, rank);
    }
    fprintf(file, "{\"host_launch_ns\": %.1f}\n",
            (double)(gyre_now_ns() - begin_ns) / n_calls / rig->n_ranks);
    CHECK(gpu_rig_wait(rig, 10));
    for (int rank = 0; rank < rig->n_ranks; rank++) {
        gyre_executor_cuda.unload(rig->executors[rank], states[rank].loaded);
        gyre_program_free(states[rank].program);
        GPU_OK(cudaFree(states[rank].in));
        GPU_OK(cudaFree(states[rank].out));
    }
}

static const char *argument(int argc, char **argv, int i, const char *fallback)
{
    return i < argc ? argv[i] : fallback;
}

int main(int argc, char **argv)
{
    const char *depth = getenv("BENCH_DEPTH"); /* slots of a FIFO */
    const struct gyre_fifo_spec spec = {.n_fifos = 64,
                                        .depth = depth != NULL ? (uint16_t)atoi(depth) : 4,
                                        .slot_bytes = {SIMPLE_BYTES, LL_BYTES, LL128_BYTES}};
    struct sweep sweep;
    struct gpu_rig rig;
    int n_gpus = 0;
    if (argc < 2 || gyre_device_cuda.count(&n_gpus) != GYRE_SUCCESS || n_gpus == 0) {
        printf("bench_cuda_exec FILE ...: no file or no GPU\n");
        return TEST_SKIPPED;
    }
    FILE *file = fopen(argv[1], "a");
    if (file == NULL)
        return 1;
    memset(&sweep, 0, sizeof(sweep));
    const int n_ranks = atoi(argument(argc, argv, 2, "2"));
    snprintf(sweep.algorithms, sizeof(sweep.algorithms), "%s",
             argument(argc, argv, 3, "ring,tree,direct,twoshot"));
    snprintf(sweep.protocols, sizeof(sweep.protocols), "%s",
             argument(argc, argv, 4, "simple,ll,ll128"));
    sweep.n_channels = parse_list(argument(argc, argv, 5, "1,4,8,16,32"), sweep.channels);
    sweep.n_threads = parse_list(argument(argc, argv, 6, "512"), sweep.threads);
    sweep.n_sizes =
        parse_list(argument(argc, argv, 7, "1K,16K,64K,256K,1M,4M,16M,64M,256M,1G"), sweep.sizes);
    snprintf(sweep.collectives, sizeof(sweep.collectives), "%s",
             argument(argc, argv, 8, "all_reduce"));
    const char *least_bytes =
        getenv("BENCH_PLACEMENT_BYTES"); /* of transfers whose blocks choose multiprocessors */
    if (least_bytes != NULL)
        gpu_rig_block_placement_bytes = strtoull(least_bytes, NULL, 10);
    gpu_rig_open(&rig, n_ranks, &spec);
    measure_decode(&rig, file);
    measure_launch(&rig, file);
    sweep_all(&rig, &sweep, file);
    gpu_rig_close(&rig);
    fclose(file);
    return test_n_failures != 0;
}
