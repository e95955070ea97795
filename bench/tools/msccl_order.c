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
#include "bench/tools/msccl.h"
#include "core/base/status.h"
#include "core/model/connector.h"

#include <stdlib.h>
#include <string.h>

#define N_WORDS (BENCH_MSCCL_MAX_GPUS / 64)

/* The contents of a chunk of memory or of a slot. */
struct value {
    bool is_valid;
    uint16_t chunk;         /* of the vector, or number of the block */
    uint64_t from[N_WORDS]; /* one bit for each rank whose contribution it holds */
};

struct cell {
    struct value value;
    struct gyre_ref ref;    /* where it is now; if valid */
    struct gyre_ref target; /* where it is written; a scratch area gets its number when it is */
    bool has_target;
    bool is_result;
};

/* One thread block while the algorithm runs. */
struct block {
    int worker;
    int sender_block; /* the thread block of recv_peer that sends to this one */
    int send_lane, recv_lane;
    int step, part;                     /* next: which step, and which of its chunks */
    int n_ahead;                        /* chunks of the step after it that are done already */
    struct value queue[GYRE_MAX_DEPTH]; /* sent and not yet received */
    int n_queued;
};

struct gpu {
    struct cell *cells;
    struct block *blocks;
    int n_cells;
    int first_cell_of[BENCH_MSCCL_N_BUFFERS];
    int n_scratch;
    int n_workers;
    int capacities[GYRE_MAX_WORKERS]; /* of the moves of each worker */
};

struct run {
    const struct bench_msccl *algo;
    struct bench_msccl_order *order;
    struct gpu *gpus;
    int depth;
};

#define REFUSE(run, line, ...) \
    bench_msccl_fail(GYRE_ERROR_UNSUPPORTED, (run)->algo, line, __VA_ARGS__)

static gyre_status out_of_memory(const struct bench_msccl *algo)
{
    return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%s: out of memory", algo->path);
}

/* ---- memory ------------------------------------------------------------------------------- */

static bool is_vector(const struct bench_msccl *algo)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[algo->coll];
    return !traits->in_blocks && !traits->out_blocks;
}

/* How many chunks the input or the output of a GPU has. */
static int expected_chunks(const struct bench_msccl *algo, enum bench_msccl_buffer buffer)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[algo->coll];
    const bool in_blocks = buffer == BENCH_MSCCL_INPUT ? traits->in_blocks : traits->out_blocks;
    if (is_vector(algo))
        return algo->n_chunks;
    return in_blocks ? algo->n_gpus : 1;
}

static gyre_status check_chunks(const struct run *run)
{
    const struct bench_msccl *algo = run->algo;
    if (!is_vector(algo) && algo->n_chunks != algo->n_gpus)
        return REFUSE(run, algo->line,
                      "nchunksperloop is %d for %d GPUs: a block of %s is one chunk in gyre, which "
                      "channels cut further (so there are no instances either)",
                      algo->n_chunks, algo->n_gpus, gyre_collectives[algo->coll].name);
    if (algo->coll == GYRE_COLL_ALL_TO_ALL && algo->is_aliased)
        return REFUSE(run, algo->line, "all_to_all has no form in place in gyre");
    if (algo->n_gpus < 2)
        return REFUSE(run, algo->line, "one GPU has nothing to send");
    for (int g = 0; g < algo->n_gpus; g++)
        for (int buffer = 0; buffer < BENCH_MSCCL_SCRATCH; buffer++) {
            const int most = expected_chunks(algo, (enum bench_msccl_buffer)buffer);
            if (algo->gpus[g].n_chunks_of[buffer] > most)
                return REFUSE(run, algo->gpus[g].line, "gpu: %s_chunks is %d; %s has %d here",
                              buffer == BENCH_MSCCL_INPUT ? "i" : "o",
                              algo->gpus[g].n_chunks_of[buffer], gyre_collectives[algo->coll].name,
                              most);
        }
    return GYRE_SUCCESS;
}

/* The place of chunk `offset` of input or output in an in-place call, as an index into the longer
 * of the two buffers. */
static int place_in_alias(const struct bench_msccl *algo, int gpu, enum bench_msccl_buffer buffer,
                          int offset)
{
    if (!is_vector(algo) && expected_chunks(algo, buffer) == 1)
        return gpu;
    return offset;
}

static struct cell *cell_of(const struct run *run, int gpu, struct bench_msccl_place place)
{
    const struct gpu *own = &run->gpus[gpu];
    int index = own->first_cell_of[place.buffer] + place.offset;
    if (run->algo->is_aliased && place.buffer != BENCH_MSCCL_SCRATCH)
        index = place_in_alias(run->algo, gpu, place.buffer, place.offset);
    return &own->cells[index];
}

/* Fill in the initial contents of the input, and the places of the results. */
static void fill_cells(const struct run *run, int g)
{
    const struct bench_msccl *algo = run->algo;
    const bool has_input = algo->coll != GYRE_COLL_BROADCAST || g == algo->root;
    const bool has_result = algo->coll != GYRE_COLL_REDUCE || g == algo->root;
    for (int i = 0; i < expected_chunks(algo, BENCH_MSCCL_INPUT) && has_input; i++) {
        struct cell *cell = cell_of(run, g, (struct bench_msccl_place){BENCH_MSCCL_INPUT, i});
        cell->ref = gyre_in(i);
        cell->value.is_valid = true;
        cell->value.chunk = (uint16_t)(algo->coll == GYRE_COLL_ALL_GATHER ? g : i);
        cell->value.from[g / 64] = 1ULL << (g % 64);
    }
    for (int i = 0; i < expected_chunks(algo, BENCH_MSCCL_OUTPUT) && has_result; i++) {
        struct cell *cell = cell_of(run, g, (struct bench_msccl_place){BENCH_MSCCL_OUTPUT, i});
        cell->target = gyre_out(i);
        cell->has_target = true;
        cell->is_result = true;
    }
}

static gyre_status open_cells(const struct run *run, int g)
{
    struct gpu *gpu = &run->gpus[g];
    const struct bench_msccl *algo = run->algo;
    const int n_in = expected_chunks(algo, BENCH_MSCCL_INPUT);
    const int n_out = expected_chunks(algo, BENCH_MSCCL_OUTPUT);
    gpu->first_cell_of[BENCH_MSCCL_OUTPUT] = n_in;
    gpu->first_cell_of[BENCH_MSCCL_SCRATCH] = n_in + n_out;
    gpu->n_cells = n_in + n_out + algo->gpus[g].n_chunks_of[BENCH_MSCCL_SCRATCH];
    gpu->cells = calloc((size_t)gpu->n_cells, sizeof(*gpu->cells));
    if (gpu->cells == NULL)
        return out_of_memory(algo);
    fill_cells(run, g);
    return GYRE_SUCCESS;
}

/* ---- workers ------------------------------------------------------------------------------ */

static int root_of(const int *group_of, int block)
{
    while (group_of[block] != block)
        block = group_of[block];
    return block;
}

static void join(int *group_of, int a, int b)
{
    a = root_of(group_of, a);
    b = root_of(group_of, b);
    group_of[a > b ? a : b] = a > b ? b : a;
}

/* The number of a chunk of memory, to find the thread blocks that touch it. Input and output count
 * as one buffer, because they are one buffer in an in-place call. */
static int touched_cell(const struct run *run, int g, struct bench_msccl_place place)
{
    const struct gpu *gpu = &run->gpus[g];
    if (place.buffer == BENCH_MSCCL_SCRATCH || run->algo->coll == GYRE_COLL_ALL_TO_ALL)
        return gpu->first_cell_of[place.buffer] + place.offset;
    return place_in_alias(run->algo, g, place.buffer, place.offset);
}

/* Join thread blocks that touch a chunk that one of them writes. @first_of: by chunk, the first
 * thread block that touches it. @written: by chunk, whether a thread block writes it. */
static void join_by_chunks(const struct run *run, int g, int *group_of, int *first_of,
                           bool *written)
{
    const struct bench_msccl_gpu *gpu = &run->algo->gpus[g];
    for (int pass = 0; pass < 2; pass++)
        for (int b = 0; b < gpu->n_blocks; b++)
            for (int s = 0; s < gpu->blocks[b].n_steps; s++) {
                const struct bench_msccl_step *step = &gpu->blocks[b].steps[s];
                const struct bench_msccl_traits *traits = &bench_msccl_traits[step->type];
                for (int i = 0; i < 2 * step->n_chunks; i++) {
                    const bool is_dst = i % 2 == 1;
                    struct bench_msccl_place place = is_dst ? step->dst : step->src;
                    if (is_dst ? !traits->writes && !traits->reads_dst : !traits->reads_src)
                        continue;
                    place.offset += i / 2;
                    const int cell = touched_cell(run, g, place);
                    if (pass == 0)
                        written[cell] = written[cell] || (is_dst && traits->writes);
                    else if (written[cell] && first_of[cell] >= 0)
                        join(group_of, first_of[cell], b);
                    else
                        first_of[cell] = b;
                }
            }
}

/* Gives every thread block a worker. If there are more than GYRE_MAX_WORKERS groups, several groups
 * share a worker. */
static void number_workers(const struct run *run, int g, const int *group_of)
{
    struct gpu *own = &run->gpus[g];
    const int n_blocks = run->algo->gpus[g].n_blocks;
    int n_groups = 0;
    for (int b = 0; b < n_blocks; b++)
        own->blocks[b].worker = group_of[b] == b ? n_groups++ % GYRE_MAX_WORKERS : -1;
    for (int b = 0; b < n_blocks; b++)
        own->blocks[b].worker = own->blocks[root_of(group_of, b)].worker;
    own->n_workers = n_groups < GYRE_MAX_WORKERS ? n_groups : GYRE_MAX_WORKERS;
}

static gyre_status assign_workers(const struct run *run, int g)
{
    const struct bench_msccl_gpu *gpu = &run->algo->gpus[g];
    const size_t n_cells = (size_t)run->gpus[g].n_cells;
    int *group_of = calloc((size_t)gpu->n_blocks + 1, sizeof(*group_of));
    int *first_of = calloc(n_cells, sizeof(*first_of));
    bool *written = calloc(n_cells, sizeof(*written));
    const bool has_memory = group_of != NULL && first_of != NULL && written != NULL;
    if (has_memory) {
        for (int b = 0; b < gpu->n_blocks; b++)
            group_of[b] = b;
        for (size_t i = 0; i < n_cells; i++)
            first_of[i] = -1;
        join_by_chunks(run, g, group_of, first_of, written);
        for (int b = 0; b < gpu->n_blocks; b++)
            for (int s = 0; s < gpu->blocks[b].n_steps; s++)
                if (gpu->blocks[b].steps[s].dep_block >= 0)
                    join(group_of, b, gpu->blocks[b].steps[s].dep_block);
        number_workers(run, g, group_of);
    }
    free(group_of);
    free(first_of);
    free(written);
    return has_memory ? GYRE_SUCCESS : out_of_memory(run->algo);
}

/* ---- connections -------------------------------------------------------------------------- */

/* The lane of a connection: how many channels with lower numbers the sender uses to this peer. */
static gyre_status find_lane(const struct run *run, int sender, int receiver, int channel,
                             int *block_out, int *lane_out)
{
    const struct bench_msccl_gpu *gpu = &run->algo->gpus[sender];
    *block_out = -1;
    *lane_out = 0;
    for (int b = 0; b < gpu->n_blocks; b++) {
        const struct bench_msccl_block *block = &gpu->blocks[b];
        if (block->send_peer != receiver)
            continue;
        if (block->channel == channel && *block_out >= 0)
            return REFUSE(run, block->line,
                          "tb: another tb of gpu %d sends to gpu %d on channel %d too", sender,
                          receiver, channel);
        if (block->channel == channel)
            *block_out = b;
        *lane_out += block->channel < channel;
    }
    if (*block_out >= 0 && *lane_out >= GYRE_MAX_LANES)
        return REFUSE(run, gpu->blocks[*block_out].line,
                      "tb: gpu %d sends to gpu %d on more than %d channels, and gyre has %d lanes",
                      sender, receiver, GYRE_MAX_LANES, GYRE_MAX_LANES);
    return GYRE_SUCCESS;
}

static gyre_status connect_block(const struct run *run, int g, int b)
{
    const struct bench_msccl_block *from = &run->algo->gpus[g].blocks[b];
    struct block *block = &run->gpus[g].blocks[b];
    int own;
    if (from->send_peer >= 0)
        GYRE_TRY(find_lane(run, g, from->send_peer, from->channel, &own, &block->send_lane));
    if (from->recv_peer < 0)
        return GYRE_SUCCESS;
    for (int other = 0; other < b; other++)
        if (run->algo->gpus[g].blocks[other].recv_peer == from->recv_peer &&
            run->algo->gpus[g].blocks[other].channel == from->channel)
            return REFUSE(run, from->line,
                          "tb: another tb of gpu %d receives from gpu %d on channel %d too", g,
                          from->recv_peer, from->channel);
    GYRE_TRY(
        find_lane(run, from->recv_peer, g, from->channel, &block->sender_block, &block->recv_lane));
    if (block->sender_block < 0)
        return bench_msccl_fail(GYRE_ERROR_INVALID_ARGUMENT, run->algo, from->line,
                                "tb: no tb of gpu %d sends to gpu %d on channel %d",
                                from->recv_peer, g, from->channel);
    return GYRE_SUCCESS;
}

static gyre_status connect_all(const struct run *run)
{
    run->order->n_lanes = 1;
    for (int g = 0; g < run->algo->n_gpus; g++)
        for (int b = 0; b < run->algo->gpus[g].n_blocks; b++) {
            GYRE_TRY(connect_block(run, g, b));
            if (run->order->n_lanes <= run->gpus[g].blocks[b].send_lane)
                run->order->n_lanes = run->gpus[g].blocks[b].send_lane + 1;
        }
    return GYRE_SUCCESS;
}

/* ---- running ------------------------------------------------------------------------------ */

/* One chunk of one step. */
struct act {
    int gpu, block;
    const struct bench_msccl_step *step;
    const struct bench_msccl_traits *traits;
    struct value values[2]; /* of its inputs */
    struct bench_msccl_move move;
};

static int lowest_rank(const struct value *value)
{
    for (int rank = 0; rank < BENCH_MSCCL_MAX_GPUS; rank++)
        if ((value->from[rank / 64] >> (rank % 64) & 1U) != 0)
            return rank;
    return BENCH_MSCCL_MAX_GPUS;
}

static int count_ranks(const struct value *value)
{
    int n = 0;
    for (int i = 0; i < N_WORDS; i++)
        for (uint64_t bits = value->from[i]; bits != 0; bits &= bits - 1)
            n++;
    return n;
}

/* Appends to a worker; the capacity doubles. */
static gyre_status append(const struct run *run, int g, int worker,
                          const struct bench_msccl_move *move)
{
    struct bench_msccl_worker *to = &run->order->workers[g][worker];
    int *capacity = &run->gpus[g].capacities[worker];
    if (to->n_moves == *capacity) {
        const int wanted = *capacity > 0 ? 2 * *capacity : 16;
        struct bench_msccl_move *moves = realloc(to->moves, (size_t)wanted * sizeof(*moves));
        if (moves == NULL)
            return out_of_memory(run->algo);
        to->moves = moves;
        *capacity = wanted;
    }
    to->moves[to->n_moves++] = *move;
    return GYRE_SUCCESS;
}

static void add_input(struct act *act, struct gyre_ref ref, const struct value *value)
{
    act->values[act->move.n_ins] = *value;
    act->move.ins[act->move.n_ins++] = ref;
}

static gyre_status read_cell(const struct run *run, struct act *act, struct bench_msccl_place place,
                             int part)
{
    static const char letters[] = "ios";
    place.offset += part;
    const struct cell *cell = cell_of(run, act->gpu, place);
    if (!cell->value.is_valid)
        return bench_msccl_fail(GYRE_ERROR_INVALID_ARGUMENT, run->algo, act->step->line,
                                "step: chunk %d of buffer %c of gpu %d is read before it is "
                                "written (a dependency may be missing)",
                                place.offset, letters[place.buffer], act->gpu);
    add_input(act, cell->ref, &cell->value);
    return GYRE_SUCCESS;
}

/* Combine the two inputs of a move into one value. A move with one input keeps its value. */
static gyre_status reduce(const struct run *run, struct act *act, struct value *result)
{
    *result = act->values[0];
    if (act->move.n_ins < 2)
        return GYRE_SUCCESS;
    const struct value *other = &act->values[1];
    if (!gyre_collectives[run->algo->coll].reduces)
        return REFUSE(run, act->step->line, "step: %s reduces, which %s does not",
                      act->traits->word, gyre_collectives[run->algo->coll].name);
    if (result->chunk != other->chunk)
        return REFUSE(run, act->step->line, "step: reduces chunk %u with chunk %u", result->chunk,
                      other->chunk);
    if (lowest_rank(other) < lowest_rank(result)) {
        const struct gyre_ref first = act->move.ins[0];
        act->move.ins[0] = act->move.ins[1];
        act->move.ins[1] = first;
    }
    for (int i = 0; i < N_WORDS; i++) {
        if ((result->from[i] & other->from[i]) != 0)
            return bench_msccl_fail(GYRE_ERROR_INVALID_ARGUMENT, run->algo, act->step->line,
                                    "step: counts a contribution twice");
        result->from[i] |= other->from[i];
    }
    if (count_ranks(result) == run->algo->n_gpus)
        act->move.flags = GYRE_STEP_FINAL;
    return GYRE_SUCCESS;
}

static gyre_status write_cell(const struct run *run, struct act *act, int part,
                              const struct value *value)
{
    struct bench_msccl_place place = act->step->dst;
    place.offset += part;
    struct cell *cell = cell_of(run, act->gpu, place);
    struct gpu *gpu = &run->gpus[act->gpu];
    if (cell->is_result && is_vector(run->algo) && value->chunk != cell->target.index)
        return REFUSE(run, act->step->line,
                      "step: puts chunk %u of the vector in the place of chunk %u", value->chunk,
                      cell->target.index);
    if (!cell->has_target) {
        cell->target = gyre_scratch(gpu->n_scratch++);
        cell->has_target = true;
    }
    cell->ref = cell->target;
    cell->value = *value;
    act->move.outs[act->move.n_outs++] = cell->ref;
    return GYRE_SUCCESS;
}

static bool is_dependency_done(const struct run *run, int g, const struct bench_msccl_step *step)
{
    return step->dep_block < 0 || run->gpus[g].blocks[step->dep_block].step > step->dep_step;
}

/* Can the next chunk of the thread block be carried out now? */
static bool is_ready(const struct run *run, const struct act *act)
{
    const struct gpu *gpu = &run->gpus[act->gpu];
    const struct bench_msccl_block *from = &run->algo->gpus[act->gpu].blocks[act->block];
    const struct block *block = &gpu->blocks[act->block];
    if (!is_dependency_done(run, act->gpu, act->step))
        return false;
    if (act->traits->sends && block->n_queued == run->depth)
        return false;
    return !act->traits->receives ||
           run->gpus[from->recv_peer].blocks[block->sender_block].n_queued > 0;
}

static gyre_status take_inputs(const struct run *run, struct act *act, int part)
{
    const struct bench_msccl_block *from = &run->algo->gpus[act->gpu].blocks[act->block];
    const struct block *block = &run->gpus[act->gpu].blocks[act->block];
    if (act->traits->receives) {
        struct block *sender = &run->gpus[from->recv_peer].blocks[block->sender_block];
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

static gyre_status carry_out(const struct run *run, struct act *act, int part)
{
    const struct bench_msccl_block *from = &run->algo->gpus[act->gpu].blocks[act->block];
    struct block *block = &run->gpus[act->gpu].blocks[act->block];
    struct value result;
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
static bool may_go_ahead(const struct run *run, int g, const struct bench_msccl_block *from,
                         int step)
{
    const struct bench_msccl_step *sending = &from->steps[step];
    const struct bench_msccl_step *next = &from->steps[step + 1];
    struct bench_msccl_place written = next->dst;
    if (step + 1 == from->n_steps || sending->type != BENCH_MSCCL_SEND ||
        (next->type != BENCH_MSCCL_RECEIVE && next->type != BENCH_MSCCL_RECEIVE_REDUCE_COPY) ||
        !is_dependency_done(run, g, sending))
        return false;
    if (run->algo->is_aliased && !is_vector(run->algo))
        return false; /* the same chunk may have two names */
    if (run->algo->is_aliased && written.buffer != BENCH_MSCCL_SCRATCH)
        written.buffer = sending->src.buffer;
    return !overlaps(sending->src, written, sending->n_chunks, next->n_chunks);
}

static gyre_status go_ahead(const struct run *run, int g, int b, bool *has_moved)
{
    const struct bench_msccl_block *from = &run->algo->gpus[g].blocks[b];
    struct block *block = &run->gpus[g].blocks[b];
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
static gyre_status advance(const struct run *run, int g, int b, bool *has_moved)
{
    const struct bench_msccl_block *from = &run->algo->gpus[g].blocks[b];
    struct block *block = &run->gpus[g].blocks[b];
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
static const struct bench_msccl_step *find_stuck(const struct run *run)
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
static gyre_status copy_kept(const struct run *run, int g)
{
    struct gpu *gpu = &run->gpus[g];
    for (int i = 0; i < gpu->n_cells; i++) {
        const struct cell *cell = &gpu->cells[i];
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

static gyre_status run_all(const struct run *run)
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

static void close_run(struct run *run)
{
    for (int g = 0; run->gpus != NULL && g < run->algo->n_gpus; g++) {
        free(run->gpus[g].cells);
        free(run->gpus[g].blocks);
    }
    free(run->gpus);
    run->gpus = NULL;
}

static gyre_status open_run(struct run *run)
{
    const struct bench_msccl *algo = run->algo;
    run->order->n_gpus = algo->n_gpus;
    run->order->workers = calloc((size_t)algo->n_gpus, sizeof(*run->order->workers));
    run->gpus = calloc((size_t)algo->n_gpus, sizeof(*run->gpus));
    if (run->gpus == NULL || run->order->workers == NULL)
        return out_of_memory(algo);
    GYRE_TRY(check_chunks(run));
    for (int g = 0; g < algo->n_gpus; g++) {
        run->gpus[g].blocks =
            calloc((size_t)algo->gpus[g].n_blocks + 1, sizeof(*run->gpus[g].blocks));
        if (run->gpus[g].blocks == NULL)
            return out_of_memory(algo);
        GYRE_TRY(open_cells(run, g));
        GYRE_TRY(assign_workers(run, g));
    }
    return connect_all(run);
}

gyre_status bench_msccl_order(const struct bench_msccl *algo, struct bench_msccl_order *order_out)
{
    const struct bench_msccl_step *stuck = NULL;
    gyre_status status = GYRE_SUCCESS;
    for (int depth = 1; depth <= GYRE_MAX_DEPTH; depth++) {
        struct bench_msccl_order order = {0};
        struct run run = {.algo = algo, .order = &order, .depth = depth};
        status = open_run(&run);
        if (status == GYRE_SUCCESS)
            status = run_all(&run);
        stuck = status == GYRE_SUCCESS ? find_stuck(&run) : NULL;
        close_run(&run);
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
