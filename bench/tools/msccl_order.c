/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns the thread blocks of an MSCCL algorithm into workers with moves.
 *
 * A thread block may wait for steps of other thread blocks of its GPU, but a worker of gyre waits
 * only for its connections. So thread blocks become one worker if they touch a chunk that one of
 * them writes, or if they depend on each other. To find the order of a worker's moves, this file
 * runs the whole algorithm with FIFOs of a few slots. The order in which the run carries out the
 * steps works. During the run the contributions in every chunk are known. From them follows which
 * step completes a reduction, and the order in which two inputs are reduced: the input with the
 * lowest rank comes first, which is the same order on all ranks.
 */
#include "bench/tools/msccl_run.h"

#include <stdlib.h>
#include <string.h>

/* One chunk of one step. */
struct act {
    int gpu, block;
    const struct bench_msccl_step *step;
    const struct bench_msccl_traits *traits;
    struct bench_msccl_value values[2]; /* of its inputs */
    struct bench_msccl_move move;
};

static int lowest_rank(const struct bench_msccl_value *value)
{
    for (int rank = 0; rank < BENCH_MSCCL_MAX_GPUS; rank++)
        if ((value->from[rank / 64] >> (rank % 64) & 1U) != 0)
            return rank;
    return BENCH_MSCCL_MAX_GPUS;
}

static int count_ranks(const struct bench_msccl_value *value)
{
    int n = 0;
    for (int i = 0; i < BENCH_MSCCL_WORDS; i++)
        for (uint64_t bits = value->from[i]; bits != 0; bits &= bits - 1)
            n++;
    return n;
}

/* Appends to a worker; the capacity doubles. */
static gyre_status append(const struct bench_msccl_run *run, int g, int worker,
                          const struct bench_msccl_move *move)
{
    struct bench_msccl_worker *to = &run->order->workers[g][worker];
    int *capacity = &run->gpus[g].capacities[worker];
    if (to->n_moves == *capacity) {
        const int wanted = *capacity > 0 ? 2 * *capacity : 16;
        struct bench_msccl_move *moves = realloc(to->moves, (size_t)wanted * sizeof(*moves));
        if (moves == NULL)
            return bench_msccl_out_of_memory(run->algo);
        to->moves = moves;
        *capacity = wanted;
    }
    to->moves[to->n_moves++] = *move;
    return GYRE_SUCCESS;
}

static void add_input(struct act *act, struct gyre_ref ref, const struct bench_msccl_value *value)
{
    act->values[act->move.n_ins] = *value;
    act->move.ins[act->move.n_ins++] = ref;
}

static gyre_status read_cell(const struct bench_msccl_run *run, struct act *act,
                             struct bench_msccl_place place, int part)
{
    static const char letters[] = "ios";
    place.offset += part;
    const struct bench_msccl_cell *cell = bench_msccl_cell_of(run, act->gpu, place);
    if (!cell->value.is_valid)
        return bench_msccl_fail(GYRE_ERROR_INVALID_ARGUMENT, run->algo, act->step->line,
                                "step: chunk %d of buffer %c of gpu %d is read before it is "
                                "written (a dependency may be missing)",
                                place.offset, letters[place.buffer], act->gpu);
    add_input(act, cell->ref, &cell->value);
    return GYRE_SUCCESS;
}

/* Combine the two inputs of a move into one value. A move with one input keeps its value. */
static gyre_status reduce(const struct bench_msccl_run *run, struct act *act,
                          struct bench_msccl_value *result)
{
    *result = act->values[0];
    if (act->move.n_ins < 2)
        return GYRE_SUCCESS;
    const struct bench_msccl_value *other = &act->values[1];
    if (!gyre_collectives[run->algo->coll].reduces)
        return BENCH_MSCCL_REFUSE(run, act->step->line, "step: %s reduces, which %s does not",
                                  act->traits->word, gyre_collectives[run->algo->coll].name);
    if (result->chunk != other->chunk)
        return BENCH_MSCCL_REFUSE(run, act->step->line, "step: reduces chunk %u with chunk %u",
                                  result->chunk, other->chunk);
    if (lowest_rank(other) < lowest_rank(result)) {
        const struct gyre_ref first = act->move.ins[0];
        act->move.ins[0] = act->move.ins[1];
        act->move.ins[1] = first;
    }
    for (int i = 0; i < BENCH_MSCCL_WORDS; i++) {
        if ((result->from[i] & other->from[i]) != 0)
            return bench_msccl_fail(GYRE_ERROR_INVALID_ARGUMENT, run->algo, act->step->line,
                                    "step: counts a contribution twice");
        result->from[i] |= other->from[i];
    }
    if (count_ranks(result) == run->algo->n_gpus)
        act->move.flags = GYRE_STEP_FINAL;
    return GYRE_SUCCESS;
}

static gyre_status write_cell(const struct bench_msccl_run *run, struct act *act, int part,
                              const struct bench_msccl_value *value)
{
    struct bench_msccl_place place = act->step->dst;
    place.offset += part;
    struct bench_msccl_cell *cell = bench_msccl_cell_of(run, act->gpu, place);
    struct bench_msccl_run_gpu *gpu = &run->gpus[act->gpu];
    if (cell->is_result && bench_msccl_is_vector(run->algo) && value->chunk != cell->target.index)
        return BENCH_MSCCL_REFUSE(run, act->step->line,
                                  "step: puts chunk %u of the vector in the place of chunk %u",
                                  value->chunk, cell->target.index);
    if (!cell->has_target) {
        cell->target = gyre_scratch(gpu->n_scratch++);
        cell->has_target = true;
    }
    cell->ref = cell->target;
    cell->value = *value;
    act->move.outs[act->move.n_outs++] = cell->ref;
    return GYRE_SUCCESS;
}

static bool is_dependency_done(const struct bench_msccl_run *run, int g,
                               const struct bench_msccl_step *step)
{
    return step->dep_block < 0 || run->gpus[g].blocks[step->dep_block].step > step->dep_step;
}

/* Can the next chunk of the thread block be carried out now? */
static bool is_ready(const struct bench_msccl_run *run, const struct act *act)
{
    const struct bench_msccl_run_gpu *gpu = &run->gpus[act->gpu];
    const struct bench_msccl_block *from = &run->algo->gpus[act->gpu].blocks[act->block];
    const struct bench_msccl_run_block *block = &gpu->blocks[act->block];
    if (!is_dependency_done(run, act->gpu, act->step))
        return false;
    if (act->traits->sends && block->n_queued == run->depth)
        return false;
    return !act->traits->receives ||
           run->gpus[from->recv_peer].blocks[block->sender_block].n_queued > 0;
}

static gyre_status take_inputs(const struct bench_msccl_run *run, struct act *act, int part)
{
    const struct bench_msccl_block *from = &run->algo->gpus[act->gpu].blocks[act->block];
    const struct bench_msccl_run_block *block = &run->gpus[act->gpu].blocks[act->block];
    if (act->traits->receives) {
        struct bench_msccl_run_block *sender =
            &run->gpus[from->recv_peer].blocks[block->sender_block];
        add_input(act, gyre_peer(from->recv_peer, block->recv_lane), &sender->queue[0]);
        sender->n_queued--;
        memmove(sender->queue, sender->queue + 1,
                (size_t)sender->n_queued * sizeof(sender->queue[0]));
    }
    if (act->traits->reads_src)
        GYRE_TRY(read_cell(run, act, act->step->src, part));
    if (act->traits->reads_dst)
        GYRE_TRY(read_cell(run, act, act->step->dst, part));
    return GYRE_SUCCESS;
}

static gyre_status carry_out(const struct bench_msccl_run *run, struct act *act, int part)
{
    const struct bench_msccl_block *from = &run->algo->gpus[act->gpu].blocks[act->block];
    struct bench_msccl_run_block *block = &run->gpus[act->gpu].blocks[act->block];
    struct bench_msccl_value result;
    if (act->step->type == BENCH_MSCCL_NOTHING)
        return GYRE_SUCCESS;
    GYRE_TRY(take_inputs(run, act, part));
    GYRE_TRY(reduce(run, act, &result));
    act->move.chunk = result.chunk;
    if (act->traits->writes)
        GYRE_TRY(write_cell(run, act, part, &result));
    if (act->traits->sends) {
        act->move.outs[act->move.n_outs++] = gyre_peer(from->send_peer, block->send_lane);
        block->queue[block->n_queued++] = result;
    }
    return append(run, act->gpu, block->worker, &act->move);
}

static bool overlaps(struct bench_msccl_place a, struct bench_msccl_place b, int n_a, int n_b)
{
    return a.buffer == b.buffer && a.offset < b.offset + n_b && b.offset < a.offset + n_a;
}

/* May a thread block receive chunks of its next step while its current step waits for room to send?
 * Without this, if two GPUs first send several chunks to each other and then receive as many, all
 * chunks would have to fit into the FIFOs. The current step may only send. The next step may only
 * receive, and must not write chunks that are still to be sent. */
static bool may_go_ahead(const struct bench_msccl_run *run, int g,
                         const struct bench_msccl_block *from, int step)
{
    const struct bench_msccl_step *sending = &from->steps[step];
    const struct bench_msccl_step *next = &from->steps[step + 1];
    struct bench_msccl_place written = next->dst;
    if (step + 1 == from->n_steps || sending->type != BENCH_MSCCL_SEND ||
        (next->type != BENCH_MSCCL_RECEIVE && next->type != BENCH_MSCCL_RECEIVE_REDUCE_COPY) ||
        !is_dependency_done(run, g, sending))
        return false;
    if (run->algo->is_aliased && !bench_msccl_is_vector(run->algo))
        return false; /* the same chunk may have two names */
    if (run->algo->is_aliased && written.buffer != BENCH_MSCCL_SCRATCH)
        written.buffer = sending->src.buffer;
    return !overlaps(sending->src, written, sending->n_chunks, next->n_chunks);
}

static gyre_status go_ahead(const struct bench_msccl_run *run, int g, int b, bool *has_moved)
{
    const struct bench_msccl_block *from = &run->algo->gpus[g].blocks[b];
    struct bench_msccl_run_block *block = &run->gpus[g].blocks[b];
    if (!may_go_ahead(run, g, from, block->step))
        return GYRE_SUCCESS;
    struct act act = {.gpu = g, .block = b, .step = &from->steps[block->step + 1]};
    act.traits = &bench_msccl_traits[act.step->type];
    if (block->n_ahead == act.step->n_chunks || !is_ready(run, &act))
        return GYRE_SUCCESS;
    *has_moved = true;
    return carry_out(run, &act, block->n_ahead++);
}

/* Carries out the next chunk of a thread block, if that is possible. */
static gyre_status advance(const struct bench_msccl_run *run, int g, int b, bool *has_moved)
{
    const struct bench_msccl_block *from = &run->algo->gpus[g].blocks[b];
    struct bench_msccl_run_block *block = &run->gpus[g].blocks[b];
    if (block->step == from->n_steps)
        return GYRE_SUCCESS;
    struct act act = {.gpu = g, .block = b, .step = &from->steps[block->step]};
    act.traits = &bench_msccl_traits[act.step->type];
    if (!is_ready(run, &act))
        return go_ahead(run, g, b, has_moved);
    *has_moved = true;
    GYRE_TRY(carry_out(run, &act, block->part));
    block->part++;
    while (block->step < from->n_steps && block->part >= from->steps[block->step].n_chunks) {
        block->part = block->n_ahead;
        block->n_ahead = 0;
        block->step++;
    }
    return GYRE_SUCCESS;
}

/* The first step that was not carried out, or NULL. */
static const struct bench_msccl_step *find_stuck(const struct bench_msccl_run *run)
{
    for (int g = 0; g < run->algo->n_gpus; g++)
        for (int b = 0; b < run->algo->gpus[g].n_blocks; b++)
            if (run->gpus[g].blocks[b].step < run->algo->gpus[g].blocks[b].n_steps)
                return &run->algo->gpus[g].blocks[b].steps[run->gpus[g].blocks[b].step];
    return NULL;
}

/* Copy the chunks of the result that no step writes. An algorithm that exists only in place may not
 * write a chunk that is input and result at once, but in an out-of-place call the chunk must be
 * copied. */
static gyre_status copy_kept(const struct bench_msccl_run *run, int g)
{
    struct bench_msccl_run_gpu *gpu = &run->gpus[g];
    for (int i = 0; i < gpu->n_cells; i++) {
        const struct bench_msccl_cell *cell = &gpu->cells[i];
        if (!cell->is_result || !cell->value.is_valid || cell->ref.kind != GYRE_OPERAND_IN ||
            gyre_collectives[run->algo->coll].reduces)
            continue;
        const struct bench_msccl_move move = {.chunk = cell->value.chunk,
                                              .n_ins = 1,
                                              .n_outs = 1,
                                              .ins = {cell->ref},
                                              .outs = {cell->target}};
        if (gpu->n_workers == 0)
            gpu->n_workers = 1;
        GYRE_TRY(append(run, g, 0, &move));
    }
    return GYRE_SUCCESS;
}

static gyre_status run_all(const struct bench_msccl_run *run)
{
    bool has_moved = true;
    while (has_moved) {
        has_moved = false;
        for (int g = 0; g < run->algo->n_gpus; g++)
            for (int b = 0; b < run->algo->gpus[g].n_blocks; b++)
                GYRE_TRY(advance(run, g, b, &has_moved));
    }
    for (int g = 0; g < run->algo->n_gpus; g++)
        GYRE_TRY(copy_kept(run, g));
    return GYRE_SUCCESS;
}

gyre_status bench_msccl_order(const struct bench_msccl *algo, struct bench_msccl_order *order_out)
{
    const struct bench_msccl_step *stuck = NULL;
    gyre_status status = GYRE_SUCCESS;
    for (int depth = 1; depth <= GYRE_MAX_DEPTH; depth++) {
        struct bench_msccl_order order = {0};
        struct bench_msccl_run run = {.algo = algo, .order = &order, .depth = depth};
        status = bench_msccl_run_open(&run);
        if (status == GYRE_SUCCESS)
            status = run_all(&run);
        stuck = status == GYRE_SUCCESS ? find_stuck(&run) : NULL;
        bench_msccl_run_close(&run);
        if (status == GYRE_SUCCESS && stuck == NULL) {
            *order_out = order;
            return GYRE_SUCCESS;
        }
        bench_msccl_order_free(&order);
        if (status != GYRE_SUCCESS)
            return status;
    }
    return bench_msccl_fail(GYRE_ERROR_INVALID_ARGUMENT, algo, stuck->line,
                            "step: it never runs, with FIFOs of up to %d slots: what it receives, "
                            "or the step that it depends on, does not come",
                            GYRE_MAX_DEPTH);
}

void bench_msccl_order_free(struct bench_msccl_order *order)
{
    for (int g = 0; order->workers != NULL && g < order->n_gpus; g++)
        for (int w = 0; w < GYRE_MAX_WORKERS; w++)
            free(order->workers[g][w].moves);
    free(order->workers);
    memset(order, 0, sizeof(*order));
}
