/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host/host_exec.h"
#include "algorithms/library/library.h"
#include "bench/check/pattern.h"
#include "core/engine/plan/plan.h"
#include "tests/fuzz/random.h"
#include "tests/support/halves.h"
#include "tests/support/host_programs.h"
#include "tests/support/shapes.h"
#include "tests/support/test_work.h"

#include <pthread.h>

struct call {
    const struct kind *kind;
    struct gyre_pattern pattern;
    int root;
    uint64_t count;
    uint32_t n_channels;
    uint32_t tile_elems;
    uint32_t unit_elems;
    uint32_t offset_elems; /* of every buffer */
    bool is_in_place;
    bool has_threads;
};

struct rank_call {
    struct host_rig *rig;
    struct gyre_loaded *loaded;
    int rank;
    struct test_work work;
    unsigned char *in_area;
    unsigned char *out_area;
};

enum { GUARD_BYTES = 16 };

static struct fuzz_rng rng;

static uint64_t in_elems(const struct call *call)
{
    const uint32_t n = call->pattern.n_ranks;
    return gyre_collectives[call->kind->coll].in_blocks ? n * call->count : call->count;
}

static uint64_t out_elems(const struct call *call)
{
    const uint32_t n = call->pattern.n_ranks;
    return gyre_collectives[call->kind->coll].out_blocks ? n * call->count : call->count;
}

static struct gyre_reduction reduction_of(const struct gyre_pattern *pattern)
{
    const struct gyre_call call = {
        .coll = GYRE_COLL_ALL_REDUCE, .dtype = pattern->dtype, .op = pattern->op};
    return gyre_call_reduction(&call, pattern->n_ranks);
}

static void *run_rank(void *argument)
{
    struct rank_call *own = argument;
    const gyre_stream stream = own->rig->streams[own->rank];
    CHECK_OK(test_enqueue(own->rig->executors[own->rank], &own->work, 1, stream));
    CHECK_OK(gyre_host_stream_synchronize(stream));
    return NULL;
}

static void run_all(const struct call *call, struct host_rig *rig, struct rank_call *ranks)
{
    if (call->has_threads) {
        test_run_threads(run_rank, ranks, rig->n_ranks, sizeof(ranks[0]));
        return;
    }
    for (int rank = 0; rank < rig->n_ranks; rank++)
        CHECK_OK(test_enqueue(rig->executors[rank], &ranks[rank].work, 1, rig->streams[rank]));
    CHECK(host_rig_run_in_one_thread(rig));
    for (int rank = 0; rank < rig->n_ranks; rank++)
        CHECK_OK(gyre_host_stream_synchronize(rig->streams[rank]));
}

static void check_block(const struct call *call, struct rank_call *own, int from, uint64_t first,
                        const void *buffer)
{
    struct gyre_pattern_errors errors = {0, 0, 0, 0};
    if (from < 0)
        CHECK_OK(gyre_pattern_check_reduced(own->rig->device, &call->pattern, first, call->count,
                                            buffer, &errors));
    else
        CHECK_OK(gyre_pattern_check_copy(own->rig->device, &call->pattern, (uint32_t)from, first,
                                         call->count, buffer, &errors));
    CHECK_MSG(errors.n_wrong == 0,
              "%s %s %s %s n %u rank %d root %d count %" PRIu64
              " channels %u tile %u in place %d: %" PRIu64 " wrong, first %" PRIu64,
              call->kind->algorithm->name, gyre_collectives[call->kind->coll].name,
              gyre_dtype_names[call->pattern.dtype], gyre_op_names[call->pattern.op],
              call->pattern.n_ranks, own->rank, call->root, call->count, call->n_channels,
              call->tile_elems, call->is_in_place, errors.n_wrong, errors.first_wrong);
}

static void check_rank(const struct call *call, struct rank_call *own)
{
    const size_t elem_bytes = gyre_dtype_bytes(call->pattern.dtype);
    const enum gyre_collective coll = call->kind->coll;
    unsigned char *out = own->work.out;
    if (coll == GYRE_COLL_ALL_GATHER || coll == GYRE_COLL_ALL_TO_ALL)
        for (int from = 0; from < own->rig->n_ranks; from++)
            check_block(call, own, from,
                        coll == GYRE_COLL_ALL_TO_ALL ? (uint64_t)own->rank * call->count : 0,
                        out + (size_t)from * (size_t)call->count * elem_bytes);
    else if (coll == GYRE_COLL_SEND_RECV && own->rank == call->root && own->rig->n_ranks > 1)
        return;
    else if (coll == GYRE_COLL_BROADCAST || coll == GYRE_COLL_SEND_RECV)
        check_block(call, own, call->root, 0, out);
    else if (coll == GYRE_COLL_REDUCE_SCATTER)
        check_block(call, own, -1, (uint64_t)own->rank * call->count, out);
    else if (coll == GYRE_COLL_ALL_REDUCE || own->rank == call->root)
        check_block(call, own, -1, 0, out);
    if (!call->is_in_place) {
        check_block(call, own, own->rank, 0, own->work.in);
        CHECK(out[-1] == 0x5a && out[out_elems(call) * elem_bytes] == 0x5a);
    }
}

static void run_call(const struct call *call, struct host_rig *rig)
{
    enum { BEFORE_OUT = 8 };
    struct rank_call ranks[HOST_RIG_MAX_RANKS];
    void *bases[HOST_RIG_MAX_RANKS];
    const struct gyre_placement placement = {.bases = bases};
    for (int rank = 0; rank < rig->n_ranks; rank++) {
        struct rank_call *own = &ranks[rank];
        const size_t elem_bytes = gyre_dtype_bytes(call->pattern.dtype);
        const size_t skip_bytes = GUARD_BYTES + call->offset_elems * elem_bytes;
        const size_t in_bytes = (size_t)in_elems(call) * elem_bytes + skip_bytes + GUARD_BYTES;
        const size_t out_bytes = (size_t)out_elems(call) * elem_bytes + skip_bytes + GUARD_BYTES;
        const size_t block_bytes = (size_t)rank * (size_t)call->count * elem_bytes;
        memset(own, 0, sizeof(*own));
        own->rig = rig;
        own->rank = rank;
        own->loaded = load(rig, rank, call->kind, call->root, call->n_channels);
        own->in_area = malloc(in_bytes > out_bytes ? in_bytes : out_bytes);
        own->out_area = malloc(out_bytes);
        memset(own->in_area, 0x5a, in_bytes > out_bytes ? in_bytes : out_bytes);
        memset(own->out_area, 0x5a, out_bytes);
        unsigned char *in = own->in_area + skip_bytes;
        unsigned char *out = own->out_area + skip_bytes;
        if (call->is_in_place) {
            out = in;
            const struct gyre_collective_traits *traits = &gyre_collectives[call->kind->coll];
            if (traits->in_blocks && !traits->out_blocks)
                out += block_bytes;
            if (traits->out_blocks && !traits->in_blocks)
                in += block_bytes;
        }
        CHECK_OK(
            gyre_pattern_fill(rig->device, &call->pattern, (uint32_t)rank, 0, in_elems(call), in));
        own->work = (struct test_work){
            .loaded = own->loaded,
            .in = in,
            .out = out,
            .split = {call->count, call->n_channels, own->loaded->n_chunks, call->tile_elems,
                      call->unit_elems},
            .reduction = reduction_of(&call->pattern),
            .signature = 0xfeed0000U + call->pattern.seed,
            .sequence = call->pattern.seed,
        };
        bases[rank] = (unsigned char *)ranks[rank].work.out - BEFORE_OUT;
        ranks[rank].work.out_offset_bytes = BEFORE_OUT;
        if (call->kind->is_placed)
            ranks[rank].work.placement = &placement;
    }
    run_all(call, rig, ranks);
    for (int rank = 0; rank < rig->n_ranks; rank++) {
        const struct gyre_progress progress = gyre_executor_host.progress(rig->executors[rank]);
        check_rank(call, &ranks[rank]);
        CHECK(rig->executors[rank]->n_launched == progress.completed && progress.mismatch == 0);
        gyre_executor_host.unload(rig->executors[rank], ranks[rank].loaded);
        free(ranks[rank].in_area);
        free(ranks[rank].out_area);
    }
}

static struct call random_call(const struct kind *kind, const struct host_rig *rig, uint32_t seed)
{
    const uint32_t n = (uint32_t)rig->n_ranks;
    struct call call = {.kind = kind};
    call.pattern =
        (struct gyre_pattern){(gyre_dtype)fuzz_below(&rng, GYRE_N_DTYPES), GYRE_SUM, n, seed};
    if (gyre_collectives[kind->coll].reduces)
        call.pattern.op = (gyre_op)fuzz_below(&rng, GYRE_N_OPS);
    const uint32_t slot_elems =
        rig->spec.slot_bytes[GYRE_PROTO_SIMPLE] / gyre_dtype_bytes(call.pattern.dtype);
    call.root = (int)fuzz_below(&rng, n);
    call.n_channels = 1 + (uint32_t)fuzz_below(&rng, MAX_CHANNELS);
    call.unit_elems = 1U << fuzz_below(&rng, 3);
    call.tile_elems = slot_elems / call.unit_elems * call.unit_elems;
    call.count = fuzz_below(&rng, 4) == 0 ? (uint32_t)fuzz_below(&rng, 4)
                                          : (uint32_t)fuzz_below(&rng, 40 * slot_elems);
    call.offset_elems = (uint32_t)fuzz_below(&rng, 4);
    call.is_in_place = fuzz_once_in(&rng, 2);
    if (kind->coll == GYRE_COLL_ALL_TO_ALL && kind->is_placed)
        call.is_in_place = false; /* it has no defined result */
    call.has_threads = fuzz_once_in(&rng, 3);
    return call;
}

TEST_CASE("every collective is right over many tiles")
{
    uint32_t seed = 1;
    for (int n = 1; n <= HOST_RIG_MAX_RANKS; n++) {
        for (uint32_t depth = 2; depth <= 4; depth += 2) {
            struct host_rig rig;
            host_rig_open(&rig, n, MAX_CHANNELS * N_LANES, depth, depth == 2 ? 64 : 1000);
            for (int k = 0; k < 60; k++) {
                const struct call call = random_call(&kinds[k % N_KINDS], &rig, seed++);
                run_call(&call, &rig);
            }
            host_rig_close(&rig);
        }
    }
}

/* @most_range: longer ranges are cut; 0 = none. */
static uint32_t run_cut(const struct gyre_algorithm *algorithm, enum gyre_collective coll, int n,
                        bool is_placed, uint16_t most_range)
{
    enum { N_CALLS = GYRE_N_DTYPES };
    static uint32_t seed = 1000;
    struct gyre_grouping grouping = {.n_hosts = 0};
    for (int rank = 0; rank < n; rank++) {
        const uint16_t host = (uint16_t)fuzz_below(&rng, grouping.n_hosts + 1U);
        grouping.host_of[rank] = host;
        if (host == grouping.n_hosts)
            grouping.n_hosts++;
    }
    const struct kind kind = {.coll = coll,
                              .algorithm = algorithm,
                              .grouping = n % 2 == 0 ? NULL : &grouping,
                              .is_placed = is_placed,
                              .most_range = most_range};
    struct host_rig rig;
    uint32_t max_range;
    uint32_t depth = 2;
    max_range = 1;
    for (int root = 0; root < n; root++) {
        for (int rank = 0; rank < n; rank++) {
            struct gyre_program *program = make_program(&kind, n, rank, root);
            if (program->min_depth > depth)
                depth = program->min_depth;
            max_range = program->max_range;
            gyre_program_free(program);
        }
    }
    const uint32_t slot_bytes = 104 * max_range;
    host_rig_open(&rig, n, MAX_CHANNELS * GYRE_MAX_LANES, depth, slot_bytes);
    for (int k = 0; k < N_CALLS; k++) {
        struct call call = random_call(&kind, &rig, seed++);
        call.pattern.dtype = (gyre_dtype)(k % GYRE_N_DTYPES);
        call.tile_elems =
            gyre_piece_bytes(slot_bytes, max_range) / gyre_dtype_bytes(call.pattern.dtype) & ~3U;
        call.count /= max_range; /* as many tiles as other programs have */
        run_call(&call, &rig);
    }
    host_rig_close(&rig);
    return N_CALLS;
}

static uint32_t run_algorithm(const struct gyre_algorithm *algorithm, enum gyre_collective coll,
                              int n, bool is_placed)
{
    const bool has_ranges = n > 2 && ability_of(algorithm, (int)coll, (unsigned)n).ranges;
    return run_cut(algorithm, coll, n, is_placed, 0) +
           (has_ranges ? run_cut(algorithm, coll, n, is_placed, 1) +
                             run_cut(algorithm, coll, n, is_placed, 2)
                       : 0);
}

TEST_CASE("every algorithm gives the right bits")
{
    uint32_t n_calls = 0;
    for (int n = 1; n <= HOST_RIG_MAX_RANKS; n++) {
        for (size_t a = 0; gyre_algorithms[a] != NULL; a++) {
            for (int coll = 0; coll <= GYRE_COLL_ALL_TO_ALL; coll++)
                if (gyre_algorithm_has(gyre_algorithms[a], (enum gyre_collective)coll) &&
                    (coll != GYRE_COLL_SEND_RECV || n <= 2))
                    n_calls +=
                        run_algorithm(gyre_algorithms[a], (enum gyre_collective)coll, n, false);
        }
    }
    CHECK_MSG(n_calls >= 1000, "only %u calls", n_calls);
}

TEST_CASE("the library gives the right bits")
{
    for (int n = 2; n <= HOST_RIG_MAX_RANKS; n++)
        for (int a = 0; gyre_library[a] != NULL; a++)
            for (int c = 0; c < GYRE_N_COLLECTIVES; c++) {
                const enum gyre_collective coll = (enum gyre_collective)c;
                const struct gyre_shape shape = {.coll = coll, .n_ranks = (uint16_t)n};
                struct gyre_ability ability;
                const char *why_not = "";
                if (gyre_algorithm_has(gyre_library[a], coll) &&
                    gyre_library[a]->can_do(&shape, &ability, &why_not))
                    run_algorithm(gyre_library[a], coll, n, false);
            }
}

TEST_CASE("blocks of several chunks and names give the right bits")
{
    for (int n = 2; n <= HOST_RIG_MAX_RANKS; n++) {
        run_algorithm(&halves, GYRE_COLL_ALL_GATHER, n, false);
        run_algorithm(&halves, GYRE_COLL_ALL_TO_ALL, n, false);
    }
}

TEST_CASE("placed data give the same bits")
{
    uint32_t n_calls = 0;
    for (int n = 2; n <= HOST_RIG_MAX_RANKS; n++)
        for (size_t a = 0; gyre_algorithms[a] != NULL; a++)
            for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++)
                for (int k = 0; k < 4 && ability_of(gyre_algorithms[a], coll, (unsigned)n).places;
                     k++)
                    n_calls +=
                        run_algorithm(gyre_algorithms[a], (enum gyre_collective)coll, n, true);
    CHECK_MSG(n_calls >= 1000, "only %u calls", n_calls);
}

TEST_CASE("nothing is placed before the receiver is there")
{
    const struct kind kind = {
        .coll = GYRE_COLL_ALL_GATHER, .algorithm = &gyre_algorithm_ring, .is_placed = true};
    struct host_rig rig;
    unsigned char in[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}}, out[2][8] = {{0}};
    void *bases[2] = {out[0], out[1]};
    const struct gyre_placement placement = {.bases = bases};
    struct test_work works[2];
    host_rig_open(&rig, 2, 1, 2, 64);
    for (int rank = 0; rank < 2; rank++)
        works[rank] = (struct test_work){.loaded = load(&rig, rank, &kind, 0, 1),
                                         .in = in[rank],
                                         .out = out[rank],
                                         .split = {4, 1, 1, 4, 1},
                                         .reduction = {.dtype = GYRE_UINT8},
                                         .placement = &placement};
    for (int call = 0; call < 3; call++) {
        memset(out, 0, sizeof(out));
        CHECK_OK(test_enqueue(rig.executors[0], &works[0], 1, rig.streams[0]));
        for (int i = 0; i < 100; i++)
            CHECK(gyre_host_stream_query(rig.streams[0]) == GYRE_IN_PROGRESS);
        for (int i = 0; i < 8; i++)
            CHECK(out[1][i] == 0);
        CHECK_OK(test_enqueue(rig.executors[1], &works[1], 1, rig.streams[1]));
        CHECK(host_rig_run_in_one_thread(&rig));
        CHECK(memcmp(out[0], in, 8) == 0 && memcmp(out[1], in, 8) == 0);
    }
    for (int rank = 0; rank < 2; rank++)
        gyre_executor_host.unload(rig.executors[rank], works[rank].loaded);
    host_rig_close(&rig);
}

TEST_CASE("a placement is asked for")
{
    const struct kind kind = {
        .coll = GYRE_COLL_ALL_GATHER, .algorithm = &gyre_algorithm_ring, .is_placed = true};
    struct host_rig rig;
    host_rig_open(&rig, 2, 1, 2, 64);
    unsigned char buffer[64];
    const struct test_work work = {.loaded = load(&rig, 0, &kind, 0, 1),
                                   .in = buffer,
                                   .out = buffer,
                                   .split = {4, 1, 1, 4, 1},
                                   .reduction = {.dtype = GYRE_UINT8}};
    CHECK_FAILS(test_enqueue(rig.executors[0], &work, 1, rig.streams[0]), GYRE_ERROR_INTERNAL,
                "no placement");
    gyre_executor_host.unload(rig.executors[0], work.loaded);
    host_rig_close(&rig);
}
