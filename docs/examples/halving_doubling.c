/* SPDX-License-Identifier: Apache-2.0
 *
 * An algorithm of your own, in one file: all-reduce by recursive halving and doubling. This program
 * proves it for 2 to 16 ranks, says how long it would take, and runs it on ranks in host memory.
 *
 * Four ranks, four chunks; in a round every rank exchanges chunks with the rank at that distance:
 *
 *   distance   rank 0               rank 1               rank 2               rank 3
 *   halve 2    sends c2 c3 to 2     sends c2 c3 to 3     sends c0 c1 to 0     sends c0 c1 to 1
 *              adds  c0 c1          adds  c0 c1          adds  c2 c3          adds  c2 c3
 *   halve 1    sends c1, adds c0!   sends c0, adds c1!   sends c3, adds c2!   sends c2, adds c3!
 *   double 1   c0 to 1              c1 to 0              c2 to 3              c3 to 2
 *   double 2   c0 c1 to 2           c0 c1 to 3           c2 c3 to 0           c2 c3 to 1
 *
 * 2 log2(n) hops and 2(n-1)/n of the bytes. Ranks beyond a power of two give their vector to a rank
 * below it first, and get the result from it last.
 *
 * To have such an algorithm in the library: move its functions and the structure (not static, as
 * gyre_algorithm_NAME) to algorithms/NAME.c, and add the line X(NAME) to GYRE_ALGORITHM_LIST in
 * algorithms/algorithm.h. Nothing else has to know: `allreduce --algo NAME` runs it. The library's
 * own algorithms/halving.c does the same with steps that move several chunks, so that each of its
 * rounds is one message.
 */
#include "algorithms/algorithm.h"
#include "algorithms/simulate/simulate.h"
#include "algorithms/verify/verify.h"
#include "core/foundation/device/host_stream.h"
#include "kernels/executor.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_RANKS = 16, COUNT = 1000, DEPTH = 2, TILE_BYTES = 64 };

/* ---- the algorithm ------------------------------------------------------------------------ */

static int largest_power_of_two(int n)
{
    int power = 1;
    while (power * 2 <= n)
        power *= 2;
    return power;
}

static void copy(struct gyre_builder *builder, int chunk, struct gyre_ref from, struct gyre_ref to)
{
    gyre_builder_step(builder, chunk, &from, 1, &to, 1, 0);
}

static void add(struct gyre_builder *builder, int chunk, struct gyre_ref mine,
                struct gyre_ref theirs, unsigned flags)
{
    const struct gyre_ref ins[] = {mine, theirs}, out = gyre_out(chunk);
    gyre_builder_step(builder, chunk, ins, 2, &out, 1, flags);
}

/* Ranks 0 to n - 1, a power of two. Chunks that were written before are in OUT, else in IN. */
static void emit_core(struct gyre_builder *builder, int n, int rank, bool is_in_out)
{
    for (int distance = n / 2; distance > 0; distance /= 2) {
        const struct gyre_ref peer = gyre_peer(rank ^ distance, 0);
        const int mine = rank & ~(distance - 1); /* the first of the chunks that I keep */
        for (int i = 0; i < distance; i++) {
            const int kept = mine + i, given = kept ^ distance;
            copy(builder, given, is_in_out ? gyre_out(given) : gyre_in(given), peer);
            add(builder, kept, is_in_out ? gyre_out(kept) : gyre_in(kept), peer,
                distance == 1 ? GYRE_STEP_FINAL : 0);
        }
        is_in_out = true;
    }
    for (int distance = 1; distance < n; distance *= 2) {
        const struct gyre_ref peer = gyre_peer(rank ^ distance, 0);
        const int mine = rank & ~(distance - 1);
        for (int i = 0; i < distance; i++) {
            copy(builder, mine + i, gyre_out(mine + i), peer);
            copy(builder, (mine + i) ^ distance, peer, gyre_out((mine + i) ^ distance));
        }
    }
}

static void emit(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    const int n = largest_power_of_two(shape->n_ranks);
    if (rank >= n) { /* beyond it */
        const struct gyre_ref helper = gyre_peer(rank - n, 0);
        for (int chunk = 0; chunk < n; chunk++)
            copy(builder, chunk, gyre_in(chunk), helper);
        for (int chunk = 0; chunk < n; chunk++)
            copy(builder, chunk, helper, gyre_out(chunk));
        return;
    }
    const bool helps = rank + n < shape->n_ranks;
    const struct gyre_ref helped = gyre_peer(rank + n, 0);
    for (int chunk = 0; helps && chunk < n; chunk++)
        add(builder, chunk, gyre_in(chunk), helped, 0);
    emit_core(builder, n, rank, helps);
    for (int chunk = 0; helps && chunk < n; chunk++)
        copy(builder, chunk, gyre_out(chunk), helped);
}

static int n_chunks(const struct gyre_shape *shape)
{
    return largest_power_of_two(shape->n_ranks);
}

static bool can_do(const struct gyre_shape *shape, struct gyre_ability *can_out,
                   const char **why_not)
{
    (void)shape;
    (void)why_not; /* it can do all shapes */
    *can_out = (struct gyre_ability){.flow = GYRE_FLOW_RELAY};
    return true;
}

static const struct gyre_algorithm halving_doubling = {
    .name = "halving",
    .summary = "recursive halving and doubling: few hops and few bytes",
    .collectives = 1U << GYRE_COLL_ALL_REDUCE,
    .can_do = can_do,
    .emit = emit,
    .n_chunks = n_chunks,
};

/* ---- prove, predict, run ------------------------------------------------------------------ */

static void check(gyre_status status)
{
    if (status == GYRE_SUCCESS)
        return;
    fprintf(stderr, "%s: %s\n", gyre_status_name(status), gyre_last_error());
    exit(1);
}

static struct gyre_shape shape_of(int n_ranks)
{
    return (struct gyre_shape){.coll = GYRE_COLL_ALL_REDUCE, .n_ranks = (uint16_t)n_ranks};
}

static void prove(struct gyre_program *const *programs, int n_ranks)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        const struct gyre_verify_options options = {.in_place = in_place != 0};
        struct gyre_verify_report report;
        if (gyre_verify((const struct gyre_program *const *)programs, n_ranks, &options, &report) !=
                GYRE_SUCCESS ||
            report.min_depth > programs[0]->min_depth) {
            fprintf(stderr, "%d ranks: refused: %s (depth %u)\n", n_ranks, report.reason,
                    report.min_depth);
            exit(1);
        }
    }
}

static double predict_us(const struct gyre_algorithm *algorithm, int n_ranks, uint64_t n_bytes)
{
    const struct gyre_shape shape = shape_of(n_ranks);
    const struct gyre_machine machine = {0};
    const struct gyre_simulation simulation = {.cost = &gyre_cost_h200,
                                               .proto = GYRE_PROTO_LL128,
                                               .n_channels = 16,
                                               .tile_bytes = 8192,
                                               .depth = 4,
                                               .n_bytes = n_bytes};
    struct gyre_simulator *simulator;
    struct gyre_prediction prediction;
    check(gyre_simulator_open(algorithm, &shape, &machine, false, &simulator));
    check(gyre_simulator_run(simulator, &simulation, &prediction));
    gyre_simulator_close(simulator);
    return prediction.time_ns / 1e3;
}

/* The FIFOs between all pairs, as a transport would make them: plain memory of this process. */
struct fifo {
    struct gyre_inbox inbox;
    struct gyre_credit credit;
    unsigned char slots[DEPTH * TILE_BYTES];
};

static void connect_rank(struct fifo *fifos, int n_ranks, int rank,
                         struct gyre_connector *connectors)
{
    for (int end = 0; end < n_ranks * 2; end++) { /* gyre_connector_index(): peer, then direction */
        const int peer = end / 2;
        const bool is_send = end % 2 != 0;
        struct fifo *fifo = &fifos[is_send ? rank * n_ranks + peer : peer * n_ranks + rank];
        if (peer != rank)
            connectors[end] = (struct gyre_connector){.slots = {fifo->slots},
                                                      .inbox = &fifo->inbox,
                                                      .credit = &fifo->credit,
                                                      .slot_bytes = TILE_BYTES,
                                                      .depth = DEPTH};
    }
}

struct rank {
    struct gyre_fault fault;
    struct gyre_executor *executor;
    struct gyre_loaded *loaded;
    gyre_stream stream;
    int32_t numbers[COUNT];
};

static void start_rank(struct rank *own, const struct gyre_executor_config *config,
                       const struct gyre_program *program)
{
    const struct gyre_executor_ops *ops = &gyre_executor_host;
    const struct gyre_load_config load = {.program = program, .n_channels = 1};
    for (int i = 0; i < COUNT; i++)
        own->numbers[i] = i + config->rank;
    check(ops->open(config, &own->executor));
    check(ops->load(own->executor, &load, &own->loaded));
    check(gyre_host_stream_create(&own->stream));
    const struct gyre_ready wanted = {.loaded = own->loaded,
                                      .split = {.count = COUNT,
                                                .n_channels = 1,
                                                .n_chunks = program->n_chunks,
                                                .tile_elems = TILE_BYTES / sizeof(int32_t),
                                                .unit_elems = 4},
                                      .reduction = {.dtype = GYRE_INT32, .op = GYRE_SUM},
                                      .is_in_place = true};
    struct gyre_ready *ready;
    check(ops->ready(own->executor, &wanted, &ready));
    const struct gyre_work work = {.ready = ready, .in = own->numbers, .out = own->numbers};
    check(ops->enqueue(own->executor, &work, 1, own->stream));
    gyre_ready_free(ready);
}

/* In place, all ranks served by this thread. Returns how many elements are wrong. */
static int run(struct gyre_program *const *programs, int n_ranks)
{
    struct gyre_device *device;
    struct fifo *fifos = calloc((size_t)n_ranks * (size_t)n_ranks, sizeof(*fifos));
    struct rank *ranks = calloc((size_t)n_ranks, sizeof(*ranks));
    int n_wrong = 0;
    if (fifos == NULL || ranks == NULL)
        exit(1);
    check(gyre_device_host.open(-1, &device));
    for (int rank = 0; rank < n_ranks; rank++) {
        struct gyre_connector connectors[MAX_RANKS * 2] = {0};
        const struct gyre_executor_config config = {
            .device = device,
            .rank = rank,
            .n_ranks = n_ranks,
            .spec = {.n_fifos = 1, .depth = DEPTH, .slot_bytes = {TILE_BYTES}},
            .connectors = connectors,
            .fault = &ranks[rank].fault,
        };
        connect_rank(fifos, n_ranks, rank, connectors);
        gyre_fault_init(&ranks[rank].fault);
        start_rank(&ranks[rank], &config, programs[rank]);
    }
    for (int rank = 0; rank < n_ranks; rank++) {
        check(gyre_host_stream_synchronize(ranks[rank].stream));
        for (int i = 0; i < COUNT; i++)
            n_wrong += ranks[rank].numbers[i] != n_ranks * i + n_ranks * (n_ranks - 1) / 2;
    }
    for (int rank = 0; rank < n_ranks; rank++) {
        gyre_executor_host.unload(ranks[rank].executor, ranks[rank].loaded);
        gyre_executor_host.close(ranks[rank].executor);
        check(gyre_host_stream_destroy(ranks[rank].stream));
        gyre_fault_fini(&ranks[rank].fault);
    }
    free(ranks);
    free(fifos);
    return n_wrong;
}

int main(void)
{
    int n_wrong = 0;
    for (int n_ranks = 2; n_ranks <= MAX_RANKS; n_ranks++) {
        const struct gyre_shape shape = shape_of(n_ranks);
        struct gyre_program *programs[MAX_RANKS];
        for (int rank = 0; rank < n_ranks; rank++)
            check(gyre_algorithm_emit(&halving_doubling, &shape, rank, &programs[rank]));
        prove(programs, n_ranks);
        n_wrong += run(programs, n_ranks);
        printf("%2d ranks: proved, run; 1 MiB on GPUs: %.1f us, by ring %.1f us\n", n_ranks,
               predict_us(&halving_doubling, n_ranks, 1 << 20),
               predict_us(&gyre_algorithm_ring, n_ranks, 1 << 20));
        for (int rank = 0; rank < n_ranks; rank++)
            gyre_program_free(programs[rank]);
    }
    printf("%d wrong values\n", n_wrong);
    return n_wrong == 0 ? 0 : 1;
}
