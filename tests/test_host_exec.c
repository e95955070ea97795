/* SPDX-License-Identifier: Apache-2.0
 *
 * The host executor: programs written here with the builder and those of all algorithms, run by
 * one thread a rank and by one thread for all, over FIFOs in plain memory with slots so small that
 * many tiles run; then what happens when calls do not fit, when a fault is raised, and in which
 * order launches run.
 */
#include "algorithms/algorithm.h"
#include "core/model/schedule.h"
#include "kernels/host/host_exec.h"
#include "kernels/pattern.h"
#include "tests/host_world.h"

#include <pthread.h>

enum { N_LANES = 2, MAX_CHANNELS = 3 };

/* ---- programs ----------------------------------------------------------------------------- */

/* Each chunk goes round once to be reduced and once more to be known. */
static void emit_ring_all_reduce(struct gyre_builder *builder, int n, int rank, int root)
{
    const struct gyre_ref to = gyre_peer((rank + 1) % n, 0);
    const struct gyre_ref from = gyre_peer((rank + n - 1) % n, 0);
    (void)root;
    gyre_builder_worker(builder);
    gyre_builder_min_depth(builder, 2);
    if (n == 1) {
        const struct gyre_ref in = gyre_in(0);
        const struct gyre_ref out = gyre_out(0);
        gyre_builder_step(builder, 0, &in, 1, &out, 1, GYRE_STEP_FINAL);
        return;
    }
    for (int k = 0; k < 2 * n - 1; k++) {
        const int chunk = (rank + 2 * n - 1 - k) % n;
        const struct gyre_ref ins[] = {from, gyre_in(chunk)};
        const struct gyre_ref outs[] = {to, gyre_out(chunk)};
        if (k == 0)
            gyre_builder_step(builder, chunk, &ins[1], 1, &to, 1, 0);
        else if (k < n - 1)
            gyre_builder_step(builder, chunk, ins, 2, &to, 1, 0);
        else if (k == n - 1)
            gyre_builder_step(builder, chunk, ins, 2, outs, 2, GYRE_STEP_FINAL);
        else if (k < 2 * n - 2)
            gyre_builder_step(builder, chunk, &from, 1, outs, 2, 0);
        else
            gyre_builder_step(builder, chunk, &from, 1, &outs[1], 1, 0);
    }
}

/* Everybody tells everybody; two workers, on two lanes, so that both run at once. */
static void emit_all_gather(struct gyre_builder *builder, int n, int rank, int root)
{
    const struct gyre_ref in = gyre_in(0);
    struct gyre_ref outs[WORLD_MAX_RANKS];
    (void)root;
    gyre_builder_lanes(builder, N_LANES);
    gyre_builder_worker(builder);
    for (int k = 1; k < n; k++)
        outs[k - 1] = gyre_peer((rank + k) % n, 1);
    if (n > 1)
        gyre_builder_step(builder, 0, &in, 1, outs, n - 1, 0);
    const struct gyre_ref own = gyre_out(rank);
    gyre_builder_step(builder, 0, &in, 1, &own, 1, 0);
    gyre_builder_worker(builder);
    for (int k = 1; k < n; k++) {
        const struct gyre_ref from = gyre_peer((rank + k) % n, 1);
        const struct gyre_ref out = gyre_out((rank + k) % n);
        gyre_builder_step(builder, 0, &from, 1, &out, 1, 0);
    }
}

/* Everybody sends everybody its block, then reduces all blocks in rank order in one step. */
static void emit_reduce_scatter(struct gyre_builder *builder, int n, int rank, int root)
{
    struct gyre_ref ins[WORLD_MAX_RANKS];
    const struct gyre_ref out = gyre_out(0);
    (void)root;
    gyre_builder_worker(builder);
    for (int k = 1; k < n; k++) {
        const int peer = (rank + k) % n;
        const struct gyre_ref block = gyre_in(peer);
        const struct gyre_ref to = gyre_peer(peer, 0);
        gyre_builder_step(builder, 0, &block, 1, &to, 1, 0);
    }
    for (int k = 0; k < n; k++)
        ins[k] = k == rank ? gyre_in(rank) : gyre_peer(k, 0);
    gyre_builder_step(builder, 0, ins, n, &out, 1, GYRE_STEP_FINAL);
}

/* A chain of reductions towards the root, the last one by way of scratch. */
static void emit_chain_reduce(struct gyre_builder *builder, int n, int rank, int root)
{
    const int place = (rank - root + n) % n; /* 0 = root; n-1 begins */
    const struct gyre_ref ins[] = {gyre_peer((rank + 1) % n, 0), gyre_in(0)};
    const struct gyre_ref to = gyre_peer((rank + n - 1) % n, 0);
    const struct gyre_ref scratch = gyre_scratch(0);
    const struct gyre_ref out = gyre_out(0);
    gyre_builder_worker(builder);
    if (place == n - 1 && n > 1) {
        gyre_builder_step(builder, 0, &ins[1], 1, &to, 1, 0);
    } else if (place > 0) {
        gyre_builder_step(builder, 0, ins, 2, &to, 1, 0);
    } else {
        gyre_builder_step(builder, 0, n > 1 ? ins : &ins[1], n > 1 ? 2 : 1, &scratch, 1,
                          GYRE_STEP_FINAL);
        gyre_builder_step(builder, 0, &scratch, 1, &out, 1, 0);
    }
}

static void emit_chain_broadcast(struct gyre_builder *builder, int n, int rank, int root)
{
    const int place = (rank - root + n) % n;
    const struct gyre_ref in = place == 0 ? gyre_in(0) : gyre_peer((rank + n - 1) % n, 0);
    const struct gyre_ref outs[] = {gyre_out(0), gyre_peer((rank + 1) % n, 0)};
    gyre_builder_worker(builder);
    gyre_builder_step(builder, 0, &in, 1, outs, place == n - 1 ? 1 : 2, 0);
}

static void emit_send_recv(struct gyre_builder *builder, int n, int rank, int root)
{
    const struct gyre_ref in = rank == root ? gyre_in(0) : gyre_peer(1 - rank, 0);
    const struct gyre_ref out = rank != root || n == 1 ? gyre_out(0) : gyre_peer(1 - rank, 0);
    gyre_builder_worker(builder);
    gyre_builder_step(builder, 0, &in, 1, &out, 1, 0);
}

struct kind {
    enum gyre_collective coll;
    void (*emit)(struct gyre_builder *builder, int n, int rank, int root);
    bool has_chunks;                        /* n of them */
    const struct gyre_algorithm *algorithm; /* instead of emit */
    const struct gyre_grouping *grouping;
};

static const struct kind kinds[] = {
    {GYRE_COLL_ALL_REDUCE, emit_ring_all_reduce, true, NULL, NULL},
    {GYRE_COLL_ALL_GATHER, emit_all_gather, false, NULL, NULL},
    {GYRE_COLL_REDUCE_SCATTER, emit_reduce_scatter, false, NULL, NULL},
    {GYRE_COLL_REDUCE, emit_chain_reduce, false, NULL, NULL},
    {GYRE_COLL_BROADCAST, emit_chain_broadcast, false, NULL, NULL},
};
static const struct kind send_recv_kind = {GYRE_COLL_SEND_RECV, emit_send_recv, false, NULL, NULL};
enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static struct gyre_program *make_program(const struct kind *kind, int n, int rank, int root)
{
    const struct gyre_shape shape = {kind->coll, (uint16_t)n, (uint16_t)root, kind->grouping};
    struct gyre_builder *builder = NULL;
    struct gyre_program *program = NULL;
    if (kind->algorithm != NULL) {
        CHECK_OK(gyre_algorithm_emit(kind->algorithm, &shape, rank, &program));
        return program;
    }
    CHECK_OK(gyre_builder_open("test", &shape, rank, kind->has_chunks ? n : 1, &builder));
    kind->emit(builder, n, rank, root);
    CHECK_OK(gyre_builder_close(builder, &program));
    return program;
}

static struct gyre_loaded *load(struct world *world, int rank, const struct kind *kind, int root,
                                uint32_t n_channels)
{
    struct gyre_program *program = make_program(kind, world->n_ranks, rank, root);
    struct gyre_loaded *loaded = NULL;
    const struct gyre_load_config config = {.program = program, .n_channels = n_channels};
    CHECK_OK(gyre_executor_host.load(world->executors[rank], &config, &loaded));
    gyre_program_free(program); /* the host executor keeps what it needs */
    return loaded;
}

/* ---- one call of all ranks ---------------------------------------------------------------- */

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
    struct world *world;
    struct gyre_loaded *loaded;
    int rank;
    struct gyre_work work;
    unsigned char *in_area;
    unsigned char *out_area;
};

enum { GUARD_BYTES = 16 };

static uint64_t random_state = 0x2545f4914f6cdd1dULL;

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (uint32_t)((random_state >> 33) % n);
}

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
    struct gyre_reduction reduction = {.dtype = (uint8_t)pattern->dtype,
                                       .op = (uint8_t)pattern->op};
    if (pattern->op != GYRE_AVG)
        return reduction;
    reduction.op = GYRE_SUM;
    reduction.divisor = gyre_dtype_is_float(pattern->dtype) ? 0 : pattern->n_ranks;
    reduction.premultiply = gyre_dtype_is_float(pattern->dtype);
    reduction.scalar = gyre_premultiply_scalar(pattern->dtype, pattern->n_ranks);
    return reduction;
}

static void prepare(const struct call *call, struct world *world, int rank, struct rank_call *own)
{
    const size_t elem_bytes = gyre_dtype_bytes(call->pattern.dtype);
    const size_t skip_bytes = GUARD_BYTES + call->offset_elems * elem_bytes;
    const size_t in_bytes = (size_t)in_elems(call) * elem_bytes + skip_bytes + GUARD_BYTES;
    const size_t out_bytes = (size_t)out_elems(call) * elem_bytes + skip_bytes + GUARD_BYTES;
    const size_t block_bytes = (size_t)rank * (size_t)call->count * elem_bytes;
    memset(own, 0, sizeof(*own));
    own->world = world;
    own->rank = rank;
    own->loaded = load(world, rank, call->kind, call->root, call->n_channels);
    own->in_area = malloc(in_bytes > out_bytes ? in_bytes : out_bytes);
    own->out_area = malloc(out_bytes);
    memset(own->in_area, 0x5a, in_bytes > out_bytes ? in_bytes : out_bytes);
    memset(own->out_area, 0x5a, out_bytes);
    unsigned char *in = own->in_area + skip_bytes;
    unsigned char *out = own->out_area + skip_bytes;
    if (call->is_in_place) {
        out = in;
        if (gyre_collectives[call->kind->coll].in_blocks)
            out += block_bytes;
        if (gyre_collectives[call->kind->coll].out_blocks)
            in += block_bytes;
    }
    CHECK_OK(
        gyre_pattern_fill(world->device, &call->pattern, (uint32_t)rank, 0, in_elems(call), in));
    own->work = (struct gyre_work){
        .loaded = own->loaded,
        .in = in,
        .out = out,
        .split = {call->count, call->n_channels, own->loaded->n_chunks, call->tile_elems,
                  call->unit_elems},
        .reduction = reduction_of(&call->pattern),
        .signature = 0xfeed0000U + call->pattern.seed,
        .sequence = call->pattern.seed,
    };
}

static void *run_rank(void *argument)
{
    struct rank_call *own = argument;
    const gyre_stream stream = own->world->streams[own->rank];
    CHECK_OK(gyre_executor_host.launch(own->world->executors[own->rank], &own->work, 1, stream));
    CHECK_OK(gyre_host_stream_synchronize(stream));
    return NULL;
}

static void run_all(const struct call *call, struct world *world, struct rank_call *ranks)
{
    pthread_t threads[WORLD_MAX_RANKS];
    if (call->has_threads) {
        for (int rank = 0; rank < world->n_ranks; rank++)
            CHECK(pthread_create(&threads[rank], NULL, run_rank, &ranks[rank]) == 0);
        for (int rank = 0; rank < world->n_ranks; rank++)
            pthread_join(threads[rank], NULL);
        return;
    }
    for (int rank = 0; rank < world->n_ranks; rank++)
        CHECK_OK(gyre_executor_host.launch(world->executors[rank], &ranks[rank].work, 1,
                                           world->streams[rank]));
    CHECK(world_run_in_one_thread(world));
    for (int rank = 0; rank < world->n_ranks; rank++)
        CHECK_OK(gyre_host_stream_synchronize(world->streams[rank]));
}

static void check_block(const struct call *call, struct rank_call *own, int from, uint64_t first,
                        const void *buffer)
{
    struct gyre_pattern_errors errors = {0, 0, 0, 0};
    if (from < 0)
        CHECK_OK(gyre_pattern_check_reduced(own->world->device, &call->pattern, first, call->count,
                                            buffer, &errors));
    else
        CHECK_OK(gyre_pattern_check_copy(own->world->device, &call->pattern, (uint32_t)from, first,
                                         call->count, buffer, &errors));
    CHECK_MSG(errors.n_wrong == 0,
              "%s %s %s %s n %u rank %d root %d count %" PRIu64
              " channels %u tile %u in place %d: %" PRIu64 " wrong, first %" PRIu64,
              call->kind->algorithm != NULL ? call->kind->algorithm->name : "test",
              gyre_collectives[call->kind->coll].name, gyre_dtype_names[call->pattern.dtype],
              gyre_op_names[call->pattern.op], call->pattern.n_ranks, own->rank, call->root,
              call->count, call->n_channels, call->tile_elems, call->is_in_place, errors.n_wrong,
              errors.first_wrong);
}

static void check_rank(const struct call *call, struct rank_call *own)
{
    const size_t elem_bytes = gyre_dtype_bytes(call->pattern.dtype);
    const enum gyre_collective coll = call->kind->coll;
    unsigned char *out = own->work.out;
    if (coll == GYRE_COLL_ALL_GATHER)
        for (int from = 0; from < own->world->n_ranks; from++)
            check_block(call, own, from, 0, out + (size_t)from * (size_t)call->count * elem_bytes);
    else if (coll == GYRE_COLL_SEND_RECV && own->rank == call->root && own->world->n_ranks > 1)
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

static void run_call(const struct call *call, struct world *world)
{
    struct rank_call ranks[WORLD_MAX_RANKS];
    for (int rank = 0; rank < world->n_ranks; rank++)
        prepare(call, world, rank, &ranks[rank]);
    run_all(call, world, ranks);
    for (int rank = 0; rank < world->n_ranks; rank++) {
        const struct gyre_pulse *pulse = gyre_executor_host.pulse(world->executors[rank]);
        check_rank(call, &ranks[rank]);
        CHECK(pulse->launched == pulse->completed && pulse->mismatch == 0);
        gyre_executor_host.unload(world->executors[rank], ranks[rank].loaded);
        free(ranks[rank].in_area);
        free(ranks[rank].out_area);
    }
}

static struct call random_call(const struct kind *kind, const struct world *world, uint32_t seed)
{
    const uint32_t n = (uint32_t)world->n_ranks;
    struct call call = {.kind = kind};
    call.pattern =
        (struct gyre_pattern){(gyre_dtype)random_below(GYRE_N_DTYPES), GYRE_SUM, n, seed};
    if (gyre_collectives[kind->coll].reduces)
        call.pattern.op = (gyre_op)random_below(GYRE_N_OPS);
    const uint32_t slot_elems =
        world->spec.slot_bytes[GYRE_PROTO_SIMPLE] / gyre_dtype_bytes(call.pattern.dtype);
    call.root = (int)random_below(n);
    call.n_channels = 1 + random_below(MAX_CHANNELS);
    call.unit_elems = 1U << random_below(3);
    call.tile_elems = slot_elems / call.unit_elems * call.unit_elems;
    call.count = random_below(4) == 0 ? random_below(4) : random_below(40 * slot_elems);
    call.offset_elems = random_below(4);
    call.is_in_place = random_below(2) == 0;
    call.has_threads = random_below(3) == 0;
    return call;
}

static void every_collective_is_right_over_many_tiles(void)
{
    uint32_t seed = 1;
    for (int n = 1; n <= WORLD_MAX_RANKS; n++) {
        for (uint32_t depth = 2; depth <= 4; depth += 2) {
            struct world world;
            world_open(&world, n, MAX_CHANNELS * N_LANES, depth, depth == 2 ? 64 : 1000);
            for (int k = 0; k < 60; k++) {
                const struct call call = random_call(&kinds[k % N_KINDS], &world, seed++);
                run_call(&call, &world);
            }
            world_close(&world);
        }
    }
}

/* The depth that all ranks' programs of all roots can run with. */
static uint32_t depth_of(const struct kind *kind, int n)
{
    uint32_t depth = 2;
    for (int root = 0; root < n; root++) {
        for (int rank = 0; rank < n; rank++) {
            struct gyre_program *program = make_program(kind, n, rank, root);
            if (program->min_depth > depth)
                depth = program->min_depth;
            gyre_program_free(program);
        }
    }
    return depth;
}

static struct gyre_grouping random_grouping(int n)
{
    struct gyre_grouping grouping = {.n_hosts = 0};
    for (int rank = 0; rank < n; rank++) {
        const uint16_t host = (uint16_t)random_below(grouping.n_hosts + 1U);
        grouping.host_of[rank] = host;
        if (host == grouping.n_hosts)
            grouping.n_hosts++;
    }
    return grouping;
}

static uint32_t run_algorithm(const struct gyre_algorithm *algorithm, enum gyre_collective coll,
                              int n)
{
    enum { N_CALLS = GYRE_N_DTYPES };
    static uint32_t seed = 1000;
    const struct gyre_grouping grouping = random_grouping(n);
    const struct kind kind = {
        .coll = coll, .algorithm = algorithm, .grouping = n % 2 == 0 ? NULL : &grouping};
    struct world world;
    world_open(&world, n, MAX_CHANNELS * GYRE_MAX_LANES, depth_of(&kind, n), 104);
    for (int k = 0; k < N_CALLS; k++) {
        struct call call = random_call(&kind, &world, seed++);
        call.pattern.dtype = (gyre_dtype)(k % GYRE_N_DTYPES);
        call.tile_elems = 104 / gyre_dtype_bytes(call.pattern.dtype) & ~3U;
        run_call(&call, &world);
    }
    world_close(&world);
    return N_CALLS;
}

static void every_algorithm_gives_the_right_bits(void)
{
    uint32_t n_calls = 0;
    for (int n = 1; n <= WORLD_MAX_RANKS; n++) {
        for (size_t a = 0; gyre_algorithms[a] != NULL; a++) {
            for (int coll = 0; coll <= GYRE_COLL_SEND_RECV; coll++)
                if (gyre_algorithm_has(gyre_algorithms[a], (enum gyre_collective)coll) &&
                    (coll != GYRE_COLL_SEND_RECV || n <= 2))
                    n_calls += run_algorithm(gyre_algorithms[a], (enum gyre_collective)coll, n);
        }
    }
    CHECK_MSG(n_calls >= 1000, "only %u calls", n_calls);
}

/* ---- what else is promised ---------------------------------------------------------------- */

static struct gyre_work byte_work(struct gyre_loaded *loaded, const void *in, void *out,
                                  uint64_t count)
{
    return (struct gyre_work){.loaded = loaded,
                              .in = in,
                              .out = out,
                              .split = {count, 1, 1, 64, 1},
                              .reduction = {.dtype = GYRE_UINT8, .op = GYRE_SUM},
                              .signature = 7};
}

/* rank 0 broadcasts; the other rank's call differs by `count` or `signature`. */
static void check_misfit(uint64_t count, uint32_t signature)
{
    struct world world;
    unsigned char buffers[2][128] = {{0}};
    struct gyre_loaded *loaded[2];
    world_open(&world, 2, N_LANES, 2, 64);
    for (int rank = 0; rank < 2; rank++) {
        loaded[rank] = load(&world, rank, &kinds[4], 0, 1);
        struct gyre_work work = byte_work(loaded[rank], buffers[rank], buffers[rank], 50);
        if (rank == 1) {
            work.split.count = count;
            work.signature = signature;
        }
        CHECK_OK(gyre_executor_host.launch(world.executors[rank], &work, 1, world.streams[rank]));
    }
    CHECK_OK(gyre_host_stream_synchronize(world.streams[0])); /* credit is enough for the sender */
    const struct gyre_pulse *pulse = gyre_executor_host.pulse(world.executors[1]);
    for (int i = 0; i < 1000; i++)
        CHECK(gyre_host_stream_query(world.streams[1]) == GYRE_IN_PROGRESS);
    CHECK(__atomic_load_n(&pulse->mismatch, __ATOMIC_ACQUIRE) == 1 + 0);
    gyre_fault_raise(&world.faults[1], GYRE_ERROR_INVALID_USAGE, "calls differ");
    CHECK_FAILS(gyre_host_stream_synchronize(world.streams[1]), GYRE_ERROR_INVALID_USAGE,
                "calls differ");
    for (int rank = 0; rank < 2; rank++)
        gyre_executor_host.unload(world.executors[rank], loaded[rank]);
    world_close(&world);
}

static void a_slot_of_another_call_is_noticed_and_not_used(void)
{
    check_misfit(50, 8);
}

static void a_slot_of_another_size_is_noticed_and_not_used(void)
{
    check_misfit(51, 7);
    check_misfit(49, 7);
}

static void a_fault_ends_everything_on_every_stream(void)
{
    struct world world;
    unsigned char buffer[64] = {0};
    gyre_stream second = NULL;
    world_open(&world, 3, N_LANES, 2, 64);
    struct gyre_loaded *loaded = load(&world, 1, &kinds[4], 0, 1); /* waits for rank 0 */
    const struct gyre_work work = byte_work(loaded, buffer, buffer, 60);
    CHECK_OK(gyre_host_stream_create(&second));
    for (int i = 0; i < 4; i++)
        CHECK_OK(gyre_executor_host.launch(world.executors[1], &work, 1,
                                           i % 2 == 0 ? second : world.streams[1]));
    CHECK(gyre_host_stream_query(second) == GYRE_IN_PROGRESS);
    gyre_fault_raise(&world.faults[1], GYRE_ERROR_REMOTE, "rank 0 died");
    CHECK_FAILS(gyre_host_stream_synchronize(world.streams[1]), GYRE_ERROR_REMOTE, "rank 0 died");
    CHECK_FAILS(gyre_host_stream_synchronize(second), GYRE_ERROR_REMOTE, "rank 0 died");
    CHECK(gyre_executor_host.pulse(world.executors[1])->completed == 0);
    gyre_executor_host.unload(world.executors[1], loaded);
    CHECK_OK(gyre_host_stream_destroy(second));
    world_close(&world);
}

static void a_closed_executor_touches_nothing_any_more(void)
{
    struct world world;
    unsigned char *buffer = malloc(64);
    world_open(&world, 2, N_LANES, 2, 64);
    struct gyre_loaded *loaded = load(&world, 1, &kinds[4], 0, 1);
    const struct gyre_work work = byte_work(loaded, buffer, buffer, 60);
    CHECK_OK(gyre_executor_host.launch(world.executors[1], &work, 1, world.streams[1]));
    CHECK(gyre_host_stream_query(world.streams[1]) == GYRE_IN_PROGRESS);
    gyre_executor_host.unload(world.executors[1], loaded);
    for (int rank = 0; rank < 2; rank++)
        gyre_executor_host.close(world.executors[rank]);
    free(buffer);
    world_free_memory(&world);
    CHECK_FAILS(gyre_host_stream_synchronize(world.streams[1]), GYRE_ERROR_ABORTED, "rank 1 ended");
    for (int rank = 0; rank < 2; rank++)
        CHECK_OK(gyre_host_stream_destroy(world.streams[rank]));
}

static void launches_run_in_order_over_two_streams(void)
{
    enum { COUNT = 50000, N_ROUNDS = 30 };
    static unsigned char buffers[3][COUNT];
    struct world world;
    gyre_stream second = NULL;
    world_open(&world, 1, N_LANES, 2, 64);
    struct gyre_loaded *loaded = load(&world, 0, &send_recv_kind, 0, 1);
    CHECK_OK(gyre_host_stream_create(&second));
    for (int round = 1; round <= N_ROUNDS; round++) {
        memset(buffers[0], round, COUNT);
        const struct gyre_work works[] = {byte_work(loaded, buffers[0], buffers[1], COUNT),
                                          byte_work(loaded, buffers[1], buffers[2], COUNT)};
        CHECK_OK(gyre_executor_host.launch(world.executors[0], &works[0], 1, world.streams[0]));
        CHECK_OK(gyre_executor_host.launch(world.executors[0], &works[1], 1, second));
        CHECK_OK(gyre_host_stream_synchronize(second)); /* the first stream's helper runs it */
        CHECK(memcmp(buffers[0], buffers[2], COUNT) == 0);
    }
    CHECK_OK(gyre_host_stream_synchronize(world.streams[0]));
    gyre_executor_host.unload(world.executors[0], loaded);
    CHECK_OK(gyre_host_stream_destroy(second));
    world_close(&world);
}

/* Both ranks send and receive in one launch: each would wait for ever if one work had to end
 * before the other begins, since a message is longer than a FIFO. */
static void works_of_one_launch_run_at_the_same_time(void)
{
    enum { COUNT = 5000 };
    static const uint16_t orders[2][2] = {{0, 1}, {1, 0}}; /* work 0: from 0 to 1; work 1: back */
    static unsigned char in[2][COUNT];
    static unsigned char out[2][COUNT];
    struct world world;
    struct gyre_loaded *loaded[2][2];
    world_open(&world, 2, N_LANES, 2, 64);
    for (int rank = 0; rank < 2; rank++) {
        struct gyre_work works[2];
        memset(in[rank], 10 + rank, COUNT);
        for (int k = 0; k < 2; k++) {
            struct gyre_program *program = make_program(&send_recv_kind, 2, rank ^ k, 0);
            const struct gyre_load_config config = {
                .program = program, .rank_of = orders[k], .n_channels = 1};
            CHECK_OK(gyre_executor_host.load(world.executors[rank], &config, &loaded[rank][k]));
            gyre_program_free(program);
            works[k] = byte_work(loaded[rank][k], in[rank], out[rank], COUNT);
        }
        CHECK_OK(gyre_executor_host.launch(world.executors[rank], works, 2, world.streams[rank]));
    }
    CHECK(world_run_in_one_thread(&world));
    for (int rank = 0; rank < 2; rank++) {
        CHECK(memcmp(out[rank], in[1 - rank], COUNT) == 0);
        CHECK(gyre_executor_host.pulse(world.executors[rank])->completed == 2);
        for (int k = 0; k < 2; k++)
            gyre_executor_host.unload(world.executors[rank], loaded[rank][k]);
    }
    world_close(&world);
}

static void what_cannot_be_loaded_or_launched_is_refused_with_the_reason(void)
{
    struct world world;
    unsigned char buffer[64];
    struct gyre_loaded *loaded = NULL;
    world_open(&world, 2, 1, 2, 64);
    struct gyre_program *program = make_program(&kinds[0], 2, 0, 0);
    struct gyre_load_config config = {.program = program, .n_channels = 1, .proto = GYRE_PROTO_LL};
    struct gyre_executor *executor = world.executors[0];
    CHECK_FAILS(gyre_executor_host.load(executor, &config, &loaded), GYRE_ERROR_UNSUPPORTED,
                "only simple");
    config.proto = GYRE_PROTO_SIMPLE;
    config.n_channels = 2;
    CHECK_FAILS(gyre_executor_host.load(executor, &config, &loaded), GYRE_ERROR_INVALID_USAGE,
                "no connection");
    config.n_channels = 1;
    program->min_depth = 3;
    CHECK_FAILS(gyre_executor_host.load(executor, &config, &loaded), GYRE_ERROR_UNSUPPORTED,
                "needs FIFOs of 3 slots");
    program->min_depth = 2;
    CHECK_OK(gyre_executor_host.load(executor, &config, &loaded));
    struct gyre_work work = byte_work(loaded, buffer, buffer, 64);
    CHECK_FAILS(gyre_executor_host.launch(executor, &work, 1, NULL), GYRE_ERROR_INTERNAL,
                "1 chunks for a program of 1 channels, 2 chunks");
    work.split.n_chunks = 2;
    work.split.tile_elems = 65;
    CHECK_FAILS(gyre_executor_host.launch(executor, &work, 1, NULL), GYRE_ERROR_INTERNAL,
                "does not fit a slot of 64");
    gyre_executor_host.unload(executor, loaded);
    gyre_program_free(program);
    world_close(&world);
}

static const struct test_case cases[] = {
    {"every collective is right over many tiles", every_collective_is_right_over_many_tiles},
    {"every algorithm gives the right bits", every_algorithm_gives_the_right_bits},
    {"a slot of another call is noticed and not used",
     a_slot_of_another_call_is_noticed_and_not_used},
    {"a slot of another size is noticed and not used",
     a_slot_of_another_size_is_noticed_and_not_used},
    {"a fault ends everything on every stream", a_fault_ends_everything_on_every_stream},
    {"a closed executor touches nothing any more", a_closed_executor_touches_nothing_any_more},
    {"launches run in order over two streams", launches_run_in_order_over_two_streams},
    {"works of one launch run at the same time", works_of_one_launch_run_at_the_same_time},
    {"what cannot be loaded or launched is refused with the reason",
     what_cannot_be_loaded_or_launched_is_refused_with_the_reason},
};

TEST_MAIN(cases)
