/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA executor against the host executor: the same programs, inputs and bits. With fewer GPUs
 * than ranks they share them.
 */
#define TEST_OWN_MAIN
#include "algorithms/library/library.h"
#include "core/engine/plan/plan_cache.h"
#include "kernels/cuda/host/copies.h"
#include "kernels/cuda/runtime/state.h"
#include "tests/fuzz/random.h"
#include "tests/gpu/gpu_rig.h"
#include "tests/support/gpus.h"
#include "tests/support/host_rig.h"
#include "tests/support/test_work.h"

#include <math.h>

#define GUARD_BYTES 64
#define GUARD       0xa5

static struct fuzz_rng rng;

static uint32_t below(uint32_t n)
{
    return (uint32_t)fuzz_below(&rng, n);
}

/* f32 and f64: finite, of many exponents. Narrow types: any bits, since every computed NaN is
 * written alike. */
static void fill_random(gyre_dtype dtype, void *to, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t word = fuzz_next(&rng);
        const double number =
            ((double)(word >> 11) / (double)(1ULL << 53) - 0.5) * (double)(1U << word % 21);
        if (dtype == GYRE_FLOAT32)
            ((float *)to)[i] = (float)number;
        else if (dtype == GYRE_FLOAT64)
            ((double *)to)[i] = number;
        else
            memcpy((char *)to + i * gyre_dtype_bytes(dtype), &word, gyre_dtype_bytes(dtype));
    }
}

static uint64_t buffer_elems(const struct gpu_run *run, bool is_out, int n_ranks)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[run->coll];
    return run->count * ((is_out ? traits->out_blocks : traits->in_blocks) ? (uint64_t)n_ranks : 1);
}

/* [guard] in [guard] out [guard]. In place they overlap as gyre.h says. */
struct buffers {
    size_t n_bytes;
    size_t in_offset;
    size_t out_offset;
    unsigned char *host; /* the host executor's */
    unsigned char *staged;
    unsigned char *device;
};

static void make_buffers(const struct gpu_run *run, int n_ranks, int rank, struct buffers *buffers)
{
    const size_t elem_bytes = gyre_dtype_bytes((gyre_dtype)run->reduction.dtype);
    const size_t in_bytes = buffer_elems(run, false, n_ranks) * elem_bytes;
    const size_t out_bytes = buffer_elems(run, true, n_ranks) * elem_bytes;
    const struct gyre_collective_traits *traits = &gyre_collectives[run->coll];
    const size_t block_bytes = run->count * elem_bytes * (size_t)rank;
    const bool is_misaligned = !run->misaligns_last || rank == n_ranks - 1;
    const size_t start = GUARD_BYTES + (is_misaligned ? run->misaligned_elems * elem_bytes : 0);
    buffers->in_offset = start;
    buffers->out_offset = run->in_place ? start : start + (in_bytes + 15) / 16 * 16 + GUARD_BYTES;
    if (run->misaligns_last && !run->in_place) /* a window is where its peers' are */
        buffers->out_offset = (buffers->out_offset + 15) / 16 * 16;
    if (run->in_place && traits->in_blocks && !traits->out_blocks)
        buffers->out_offset = start + block_bytes;
    if (run->in_place && traits->out_blocks && !traits->in_blocks)
        buffers->in_offset = start + block_bytes;
    buffers->n_bytes = start + in_bytes + out_bytes + 16 + 2 * GUARD_BYTES;
    buffers->host = malloc(buffers->n_bytes);
    buffers->staged = malloc(buffers->n_bytes);
    memset(buffers->host, GUARD, buffers->n_bytes);
    unsigned char *aligned = malloc(in_bytes + 8);
    fill_random((gyre_dtype)run->reduction.dtype, aligned, buffer_elems(run, false, n_ranks));
    memcpy(buffers->host + buffers->in_offset, aligned, in_bytes);
    free(aligned);
    GPU_OK(cudaMalloc((void **)&buffers->device, buffers->n_bytes));
    GPU_OK(cudaMemcpy(buffers->device, buffers->host, buffers->n_bytes, cudaMemcpyHostToDevice));
}

static void free_buffers(struct buffers *buffers)
{
    free(buffers->host);
    free(buffers->staged);
    GPU_OK(cudaFree(buffers->device));
}

static struct test_work make_work(const struct gpu_run *run, struct gyre_loaded *loaded,
                                  unsigned char *base, const struct buffers *buffers,
                                  const struct gyre_program *program)
{
    struct test_work work = {.loaded = loaded,
                             .in = base + buffers->in_offset,
                             .out = base + buffers->out_offset,
                             .split = gpu_run_split(run, program->n_chunks),
                             .reduction = run->reduction,
                             .signature = 77,
                             .sequence = 1};
    const uint32_t elem_bytes = gyre_dtype_bytes((gyre_dtype)run->reduction.dtype);
    work.split.tile_elems =
        gyre_piece_bytes(work.split.tile_elems * elem_bytes, program->max_range) / elem_bytes;
    return work;
}

/* The rank's GPU is current. @prints: the first byte that differs. */
static bool compare_buffers(const struct gpu_run *run, int rank, const struct buffers *own,
                            bool prints)
{
    size_t at = 0;
    GPU_OK(cudaMemcpy(own->staged, own->device, own->n_bytes, cudaMemcpyDeviceToHost));
    if (memcmp(own->staged, own->host, own->n_bytes) == 0)
        return true;
    while (own->staged[at] == own->host[at])
        at++;
    if (prints)
        fprintf(stderr, "rank %d byte %zu of %zu (in %zu out %zu): %02x, not %02x: %s\n", rank, at,
                own->n_bytes, own->in_offset, own->out_offset, own->staged[at], own->host[at],
                gpu_run_text(run));
    return false;
}

static uint32_t n_fused[GYRE_N_PROTOS]; /* launches so far */
static uint32_t n_fused_by_coll[GYRE_N_COLLECTIVES];
static uint32_t n_in_rows; /* in two rows of blocks */

/* True if every byte is the same. */
static bool run_both(struct gpu_rig *gpus, struct host_rig *hosts, const struct gpu_run *run)
{
    const int n = gpus->n_ranks;
    struct gyre_programs programs[GPU_RIG_MAX_RANKS] = {{.in_host_memory = false}};
    const struct gyre_variants *variants[GPU_RIG_MAX_RANKS];
    struct gyre_loaded *on_gpu[GPU_RIG_MAX_RANKS], *on_host[GPU_RIG_MAX_RANKS];
    struct buffers buffers[GPU_RIG_MAX_RANKS];
    const struct gyre_shape shape = {.coll = run->coll,
                                     .n_ranks = (uint16_t)n,
                                     .root = (uint16_t)run->root,
                                     .most_range = run->most_range,
                                     .grouping = run->grouping,
                                     .is_placed = run->is_placed};
    void *gpu_bases[GPU_RIG_MAX_RANKS], *host_bases[GPU_RIG_MAX_RANKS],
        *device_bases[GPU_RIG_MAX_RANKS];
    struct gyre_placement placements[GPU_RIG_MAX_RANKS];
    const struct gyre_placement on_hosts = {.bases = host_bases};
    bool is_same = true;
    for (int rank = 0; rank < n; rank++) {
        CHECK_OK(
            gyre_programs_find(&programs[rank], run->algorithm, &shape, rank, &variants[rank]));
        gpu_rig_use(gpus, rank);
        make_buffers(run, n, rank, &buffers[rank]);
        struct gyre_load_config config = {
            .program = variants[rank]->programs[0],
            .variants = (const struct gyre_program *const *)variants[rank]->programs,
            .n_variants = variants[rank]->n_variants,
            .n_channels = run->n_channels,
            .proto = run->proto,
            .n_threads = run->n_threads,
            .by_copy_engines = run->by_copy_engines};
        CHECK_OK(gyre_executor_cuda.load(gpus->executors[rank], &config, &on_gpu[rank]));
        config.proto = GYRE_PROTO_SIMPLE;
        config.by_copy_engines = false;
        CHECK_OK(gyre_executor_host.load(hosts->executors[rank], &config, &on_host[rank]));
    }
    for (int rank = 0; rank < n; rank++) {
        gpu_bases[rank] = buffers[rank].device + buffers[rank].out_offset;
        host_bases[rank] = buffers[rank].host + buffers[rank].out_offset;
    }
    for (int rank = 0; rank < n; rank++) {
        gpu_rig_use(gpus, rank);
        GPU_OK(cudaMalloc(&device_bases[rank], sizeof(gpu_bases)));
        GPU_OK(
            cudaMemcpy(device_bases[rank], gpu_bases, sizeof(gpu_bases), cudaMemcpyHostToDevice));
        placements[rank] = (struct gyre_placement){gpu_bases, device_bases[rank]};
        const struct gyre_program *program = variants[rank]->programs[0];
        struct test_work work =
            make_work(run, on_gpu[rank], buffers[rank].device, &buffers[rank], program);
        work.placement = &placements[rank];
        work.n_bases = n;
        struct gyre_ready *ready;
        CHECK_OK(test_work_ready(gpus->executors[rank], &work, &ready));
        n_fused[run->proto] += ready->run.kernel != NULL;
        n_fused_by_coll[run->coll] += ready->run.kernel != NULL;
        n_in_rows += ready->run.kernel != NULL && ready->run.n_rows > 1;
        gyre_ready_free(ready);
        CHECK_OK(test_enqueue(gpus->executors[rank], &work, 1, gpus->streams[rank]));
        work = make_work(run, on_host[rank], buffers[rank].host, &buffers[rank], program);
        work.placement = &on_hosts;
        CHECK_OK(test_enqueue(hosts->executors[rank], &work, 1, hosts->streams[rank]));
    }
    CHECK_MSG(host_rig_run_in_one_thread(hosts), "the host executor hangs: %s", gpu_run_text(run));
    if (!gpu_rig_wait(gpus, GPU_RIG_DEADLINE_S)) {
        fprintf(stderr, "the CUDA executor hangs: %s\n", gpu_run_text(run));
        exit(1);
    }
    for (int rank = 0; rank < n; rank++) {
        gpu_rig_use(gpus, rank);
        is_same = compare_buffers(run, rank, &buffers[rank], is_same) && is_same;
        gyre_executor_cuda.unload(gpus->executors[rank], on_gpu[rank]);
        gyre_executor_host.unload(hosts->executors[rank], on_host[rank]);
        gyre_programs_close(&programs[rank]);
        GPU_OK(cudaFree(device_bases[rank]));
        free_buffers(&buffers[rank]);
    }
    return is_same;
}

static void random_reduction(struct gpu_run *run, int n_ranks)
{
    struct gyre_reduction *reduction = &run->reduction;
    memset(reduction, 0, sizeof(*reduction));
    reduction->dtype = (uint8_t)below(GYRE_N_DTYPES);
    reduction->op = (uint8_t)below(GYRE_MIN + 1);
    reduction->divisor = 1;
    if (!gyre_collectives[run->coll].reduces) {
        reduction->op = GYRE_SUM;
    } else if (reduction->op == GYRE_SUM && below(3) == 0) {
        if (gyre_dtype_is_float((gyre_dtype)reduction->dtype)) {
            reduction->premultiply = 1;
            reduction->scalar =
                gyre_premultiply_scalar((gyre_dtype)reduction->dtype, (uint32_t)n_ranks + 1);
        } else {
            reduction->divisor = (uint32_t)n_ranks;
        }
    }
}

/* With several hosts rings and trees have variants. */
static const struct gyre_grouping *random_grouping(int n_ranks)
{
    static struct gyre_grouping groupings[2];
    const uint32_t which = below(3);
    struct gyre_grouping *grouping = &groupings[which % 2];
    if (which == 2 || n_ranks < 3)
        return NULL;
    grouping->n_hosts = 2;
    for (int rank = 0; rank < n_ranks; rank++)
        grouping->host_of[rank] = which == 0 ? (uint16_t)(rank * 2 / n_ranks) : rank > 0;
    return grouping;
}

static bool random_run(struct gpu_run *run, int n_ranks)
{
    static const uint64_t counts[] = {0, 1, 2, 3, 7, 33, 1000, 4097, 20011};
    int n_algorithms = 0, n_library = 0;
    while (gyre_algorithms[n_algorithms] != NULL)
        n_algorithms++;
    while (gyre_library[n_library] != NULL)
        n_library++;
    const uint32_t picked = below((uint32_t)(n_algorithms + n_library / 2));
    run->algorithm = picked < (uint32_t)n_algorithms ? gyre_algorithms[picked]
                                                     : gyre_library[below((uint32_t)n_library)];
    run->coll = (enum gyre_collective)below(GYRE_N_COLLECTIVES);
    const struct gyre_shape shape = {.coll = run->coll, .n_ranks = (uint16_t)n_ranks};
    struct gyre_ability can;
    if (run->coll == GYRE_COLL_SEND_RECV ||
        gyre_algorithm_obstacle(run->algorithm, &shape, &can) != NULL ||
        (picked >= (uint32_t)n_algorithms && !can.ranges)) /* some cut blocks */
        return false;
    random_reduction(run, n_ranks);
    run->proto = (enum gyre_proto)below(GYRE_N_PROTOS);
    if (run->proto == GYRE_PROTO_LAMPORT &&
        (!gyre_collectives[run->coll].reduces ||
         !gyre_lamport_adds((gyre_dtype)run->reduction.dtype, run->reduction.op)))
        run->proto = GYRE_PROTO_LL128;
    run->most_range = 0;
    if (can.ranges) /* swing names its blocks */
        run->most_range = run->proto != GYRE_PROTO_SIMPLE || run->algorithm == &gyre_algorithm_swing
                              ? 1
                              : (uint16_t)below(5);
    run->count = counts[below(sizeof(counts) / sizeof(counts[0]))] + below(3) * 16;
    run->root = gyre_collectives[run->coll].has_root ? below((uint32_t)n_ranks) : 0;
    run->n_channels = 1 + below(4);
    run->n_threads = 32U << below(5);
    run->misaligned_elems = below(3) == 0 ? 1 + below(15) : 0;
    run->misaligns_last = below(2) != 0;
    run->is_placed = run->proto == GYRE_PROTO_SIMPLE && below(2) != 0;
    run->by_copy_engines = run->is_placed && n_ranks > 1 && below(2) != 0 && can.copy_tail;
    if (run->by_copy_engines && run->coll == GYRE_COLL_BROADCAST)
        run->n_channels = 1 + below(GYRE_CUDA_COPY_CHANNELS);
    run->grouping = run->by_copy_engines ? NULL : random_grouping(n_ranks);
    run->in_place = below(2) != 0 && run->coll != GYRE_COLL_ALL_TO_ALL &&
                    run->coll != GYRE_COLL_GATHER && run->coll != GYRE_COLL_SCATTER;
    return true;
}

/* On the ranks whose buffers allow it. */
static bool random_fused_call(struct gpu_run *run, int n_ranks)
{
    static const enum gyre_collective colls[] = {GYRE_COLL_ALL_REDUCE, GYRE_COLL_REDUCE_SCATTER,
                                                 GYRE_COLL_ALL_GATHER, GYRE_COLL_ALL_TO_ALL};
    static const gyre_dtype dtypes[] = {GYRE_FLOAT16, GYRE_BFLOAT16, GYRE_FLOAT32, GYRE_FLOAT64};
    if (!random_run(run, n_ranks))
        return false;
    run->most_range = 0;
    run->algorithm = below(2) != 0 ? &gyre_algorithm_twoshot : &gyre_algorithm_direct;
    run->coll = colls[below(GYRE_ARRAY_LENGTH(colls))];
    if (run->algorithm == &gyre_algorithm_twoshot)
        run->coll = GYRE_COLL_ALL_REDUCE;
    run->by_copy_engines = false;
    run->grouping = NULL;
    run->root = 0;
    run->reduction = (struct gyre_reduction){
        .dtype = (uint8_t)dtypes[below(GYRE_ARRAY_LENGTH(dtypes))], .op = GYRE_SUM, .divisor = 1};
    if (gyre_collectives[run->coll].reduces && below(4) == 0) {
        run->reduction.premultiply = 1;
        run->reduction.scalar =
            gyre_premultiply_scalar((gyre_dtype)run->reduction.dtype, (uint32_t)n_ranks);
    }
    run->proto = (enum gyre_proto)below(GYRE_N_PROTOS);
    run->count = 16 * (1 + below(below(2) != 0 ? 1500 : 100));
    if (!gyre_collectives[run->coll].reduces) { /* lines of copies have any length */
        if (run->proto == GYRE_PROTO_LAMPORT)
            run->proto = GYRE_PROTO_SIMPLE;
        if (run->proto != GYRE_PROTO_SIMPLE && below(2) != 0)
            run->count -= below(16);
    }
    run->in_place = run->in_place && run->coll != GYRE_COLL_ALL_TO_ALL;
    run->is_placed = run->proto == GYRE_PROTO_SIMPLE && below(2) != 0;
    return true;
}

static int wanted_ranks = 4;
static uint32_t wanted_runs = 400;

/* @grouping: hosts between which a proxy would serve; NULL = one. */
static void run_many(bool (*random)(struct gpu_run *run, int n_ranks),
                     const struct gyre_grouping *grouping)
{
    struct gpu_rig gpus;
    struct host_rig hosts;
    uint32_t n_wrong = 0, n_done = 0;
    gpu_rig_open_hosts(&gpus, wanted_ranks, &gpu_run_spec, grouping);
    host_rig_open(&hosts, wanted_ranks, GPU_RUN_FIFOS, gpu_run_spec.depth, GPU_RUN_SIMPLE_BYTES);
    while (n_done < wanted_runs && n_wrong < 10) {
        struct gpu_run run;
        if (!random(&run, wanted_ranks))
            continue;
        if (grouping != NULL) {
            run.grouping = grouping;
            run.is_placed = run.by_copy_engines = false; /* proxies place nothing */
            run.n_channels = gyre_min_u32(run.n_channels, 4);
        }
        n_done++;
        n_wrong += run_both(&gpus, &hosts, &run) ? 0 : 1;
    }
    CHECK_MSG(n_wrong == 0, "%u of %u random calls differ", n_wrong, n_done);
    host_rig_close(&hosts);
    gpu_rig_close(&gpus);
}

TEST_RUNS("the GPU computes the same bits as the host", run_many(random_run, NULL))

/* Peers' buffers begin elsewhere. */
TEST_CASE("so do its fused kernels")
{
    run_many(random_fused_call, NULL);
    for (int proto = 0; proto < GYRE_N_PROTOS; proto++)
        CHECK_MSG(n_fused[proto] > 0 || wanted_runs < 100, "none in %s", gyre_proto_names[proto]);
    CHECK_MSG(n_fused_by_coll[GYRE_COLL_ALL_TO_ALL] > 0 || wanted_runs < 100, "no all-to-all");
    CHECK_MSG(n_in_rows > 0 || wanted_ranks > 2 || wanted_runs < 100, "none in two rows");
}

/* Every protocol inside the hosts, SIMPLE between them, by turns. The hosts have equally many
 * ranks, or one rank and all others, or ranks in turns. */
TEST_CASE("links between hosts go by simple beside lines")
{
    static struct gyre_grouping grouping = {.n_hosts = 2};
    for (int which = 0; which < 3 && wanted_ranks > 2; which++) {
        for (int rank = 0; rank < wanted_ranks; rank++)
            grouping.host_of[rank] = (uint16_t)(which == 0   ? rank * 2 / wanted_ranks
                                                : which == 1 ? rank > 0
                                                             : rank % 2);
        run_many(random_run, &grouping);
    }
}

/* Stale lines of a full slot, then a jump to the same flags. */
static void check_flags_that_wrap(enum gyre_collective coll)
{
    const uint64_t period = 1ULL << 30;
    struct gpu_rig gpus;
    struct host_rig hosts;
    struct gpu_run run = {.algorithm = &gyre_algorithm_direct,
                          .coll = coll,
                          .proto = GYRE_PROTO_LL,
                          .n_channels = 1,
                          .n_threads = 128,
                          .reduction = {.dtype = GYRE_INT32, .op = GYRE_SUM, .divisor = 1}};
    gpu_rig_open(&gpus, wanted_ranks, &gpu_run_spec);
    host_rig_open(&hosts, wanted_ranks, GPU_RUN_FIFOS, gpu_run_spec.depth, GPU_RUN_SIMPLE_BYTES);
    for (uint64_t epoch = 0; epoch < 6 * period; epoch += period) {
        gpu_rig_set_epoch(&gpus, GYRE_PROTO_LL, epoch == 0 ? 0 : epoch - 2);
        run.count = 1;
        for (int i = 0; i < 2 + 4; i++)
            CHECK_MSG(run_both(&gpus, &hosts, &run), "small %s, epoch %llu",
                      gyre_collectives[coll].name, (unsigned long long)epoch);
        run.count = GPU_RUN_LL_BYTES / 2 / 4 * 3;
        for (int i = 0; i < 4; i++)
            CHECK_MSG(run_both(&gpus, &hosts, &run), "large %s, epoch %llu",
                      gyre_collectives[coll].name, (unsigned long long)epoch);
    }
    host_rig_close(&hosts);
    gpu_rig_close(&gpus);
}

/* In all kernels that use lines. */
TEST_CASE("flags that wrap never match stale lines")
{
    check_flags_that_wrap(GYRE_COLL_ALL_REDUCE);
    check_flags_that_wrap(GYRE_COLL_ALL_TO_ALL);
}

/* Like a cleared line, or not for LAMPORT. */
static uint32_t special_bits(int rank, uint64_t i)
{
    static const uint32_t bits[8] = {0x00000000,             /* 0 */
                                     0x80000000,             /* -0 */
                                     0xffffffff, 0xffffffff, /* NaN, 8 bytes of ones */
                                     0x7f800000,             /* infinity */
                                     0x00000001,             /* the least above 0 */
                                     0x3fc00000,             /* 1.5 */
                                     0xffffff7f};            /* NaN */
    const uint32_t own = bits[i % 8];
    const bool is_nan = (own & 0x7fffffff) > 0x7f800000;
    return is_nan && i / 8 % (uint64_t)wanted_ranks != (uint64_t)rank ? 0x3f800000 : own;
}

static float special_value(int rank, uint64_t i)
{
    const uint32_t bits = special_bits(rank, i);
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static float special_sum(uint64_t i)
{
    float sum = special_value(0, i);
    for (int rank = 1; rank < wanted_ranks; rank++)
        sum += special_value(rank, i);
    return sum;
}

/* In place; all ranks have the same bits, the sums. */
static void check_special_values(struct gpu_rig *gpus, const struct gpu_run *run)
{
    const size_t n_bytes = run->count * sizeof(float);
    struct gpu_loads loads;
    float *values = malloc(n_bytes), *first = malloc(n_bytes);
    uint64_t n_wrong = 0;
    gpu_run_load_all(gpus, run, &loads);
    for (int rank = 0; rank < wanted_ranks; rank++) {
        for (uint64_t i = 0; i < run->count; i++)
            values[i] = special_value(rank, i);
        gpu_rig_use(gpus, rank);
        GPU_OK(cudaMemcpy(loads.buffers[rank], values, n_bytes, cudaMemcpyHostToDevice));
    }
    gpu_run_all_reduce(gpus, &loads, wanted_ranks);
    CHECK(gpu_rig_wait(gpus, GPU_RIG_DEADLINE_S));
    for (int rank = 0; rank < wanted_ranks; rank++) {
        GPU_OK(cudaMemcpy(values, loads.buffers[rank], n_bytes, cudaMemcpyDeviceToHost));
        for (uint64_t i = 0; i < run->count; i++) {
            const float sum = special_sum(i);
            const bool is_right =
                isnan(sum) ? isnan(values[i]) : memcmp(&values[i], &sum, sizeof(sum)) == 0;
            n_wrong += is_right ? 0 : 1;
        }
        if (rank == 0)
            memcpy(first, values, n_bytes);
        CHECK_MSG(memcmp(first, values, n_bytes) == 0, "rank %d has other bits: %s", rank,
                  gpu_run_text(run));
    }
    CHECK_MSG(n_wrong == 0, "%llu values are wrong: %s", (unsigned long long)n_wrong,
              gpu_run_text(run));
    gpu_run_unload_all(gpus, &loads);
    free(values);
    free(first);
}

/* Line protocols use a counter's lower half, so also past 2^32. */
TEST_CASE("lamport carries every value")
{
    static const struct gyre_algorithm *const algorithms[] = {
        &gyre_algorithm_direct, &gyre_algorithm_twoshot, &gyre_algorithm_ring};
    static const uint64_t counts[] = {5000, 4999}; /* whole lines, and not */
    struct gpu_rig gpus;
    gpu_rig_open(&gpus, wanted_ranks, &gpu_run_spec);
    gpu_rig_set_epoch(&gpus, GYRE_PROTO_LAMPORT, (1ULL << 32) - 4);
    for (int round = 0; round < 3; round++)
        for (size_t a = 0; a < GYRE_ARRAY_LENGTH(algorithms); a++)
            for (size_t c = 0; c < GYRE_ARRAY_LENGTH(counts); c++) {
                struct gpu_run run = gpu_run_ring;
                run.algorithm = algorithms[a];
                run.proto = GYRE_PROTO_LAMPORT;
                run.count = counts[c];
                run.n_channels = 4;
                check_special_values(&gpus, &run);
            }
    gpu_rig_close(&gpus);
}

/* test_cuda_exec [case [ranks [random runs [seed]]]] */
int main(int argc, char **argv)
{
    if (test_n_gpus() == 0) {
        printf("skipped: there is no GPU\n");
        return TEST_SKIPPED;
    }
    gpu_rig_block_placement_bytes = 4096; /* some calls do, some do not */
    if (argc > 2)
        wanted_ranks = atoi(argv[2]);
    if (argc > 3)
        wanted_runs = (uint32_t)atoi(argv[3]);
    if (argc > 4)
        rng.state = strtoull(argv[4], NULL, 10);
    return test_main(argc, argv);
}
