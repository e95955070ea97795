/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes an MSCCL algorithm ready to run (msccl_run.h): the chunks of each GPU and their first
 * contents, the workers of its thread blocks, and the connections between them.
 */
#include "bench/tools/msccl_run.h"

#include <stdlib.h>

gyre_status bench_msccl_out_of_memory(const struct bench_msccl *algo)
{
    return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%s: out of memory", algo->path);
}

/* ---- memory ------------------------------------------------------------------------------- */

bool bench_msccl_is_vector(const struct bench_msccl *algo)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[algo->coll];
    return !traits->in_blocks && !traits->out_blocks;
}

/* How many chunks the input or the output of a GPU has. */
static int expected_chunks(const struct bench_msccl *algo, enum bench_msccl_buffer buffer)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[algo->coll];
    const bool in_blocks = buffer == BENCH_MSCCL_INPUT ? traits->in_blocks : traits->out_blocks;
    if (bench_msccl_is_vector(algo))
        return algo->n_chunks;
    return in_blocks ? algo->n_gpus : 1;
}

static gyre_status check_chunks(const struct bench_msccl_run *run)
{
    const struct bench_msccl *algo = run->algo;
    if (!bench_msccl_is_vector(algo) && algo->n_chunks != algo->n_gpus)
        return BENCH_MSCCL_REFUSE(
            run, algo->line,
            "nchunksperloop is %d for %d GPUs: a block of %s is one chunk in gyre, which "
            "channels cut further (so there are no instances either)",
            algo->n_chunks, algo->n_gpus, gyre_collectives[algo->coll].name);
    if (algo->coll == GYRE_COLL_ALL_TO_ALL && algo->is_aliased)
        return BENCH_MSCCL_REFUSE(run, algo->line, "all_to_all has no form in place in gyre");
    if (algo->n_gpus < 2)
        return BENCH_MSCCL_REFUSE(run, algo->line, "one GPU has nothing to send");
    for (int g = 0; g < algo->n_gpus; g++)
        for (int buffer = 0; buffer < BENCH_MSCCL_SCRATCH; buffer++) {
            const int most = expected_chunks(algo, (enum bench_msccl_buffer)buffer);
            if (algo->gpus[g].n_chunks_of[buffer] > most)
                return BENCH_MSCCL_REFUSE(
                    run, algo->gpus[g].line, "gpu: %s_chunks is %d; %s has %d here",
                    buffer == BENCH_MSCCL_INPUT ? "i" : "o", algo->gpus[g].n_chunks_of[buffer],
                    gyre_collectives[algo->coll].name, most);
        }
    return GYRE_SUCCESS;
}

/* The place of chunk `offset` of input or output in an in-place call, as an index into the longer
 * of the two buffers. */
static int place_in_alias(const struct bench_msccl *algo, int gpu, enum bench_msccl_buffer buffer,
                          int offset)
{
    if (!bench_msccl_is_vector(algo) && expected_chunks(algo, buffer) == 1)
        return gpu;
    return offset;
}

struct bench_msccl_cell *bench_msccl_cell_of(const struct bench_msccl_run *run, int gpu,
                                             struct bench_msccl_place place)
{
    const struct bench_msccl_run_gpu *own = &run->gpus[gpu];
    int index = own->first_cell_of[place.buffer] + place.offset;
    if (run->algo->is_aliased && place.buffer != BENCH_MSCCL_SCRATCH)
        index = place_in_alias(run->algo, gpu, place.buffer, place.offset);
    return &own->cells[index];
}

/* Fill in the initial contents of the input, and the places of the results. */
static void fill_cells(const struct bench_msccl_run *run, int g)
{
    const struct bench_msccl *algo = run->algo;
    const bool has_input = algo->coll != GYRE_COLL_BROADCAST || g == algo->root;
    const bool has_result = algo->coll != GYRE_COLL_REDUCE || g == algo->root;
    for (int i = 0; i < expected_chunks(algo, BENCH_MSCCL_INPUT) && has_input; i++) {
        struct bench_msccl_cell *cell =
            bench_msccl_cell_of(run, g, (struct bench_msccl_place){BENCH_MSCCL_INPUT, i});
        cell->ref = gyre_in(i);
        cell->value.is_valid = true;
        cell->value.chunk = (uint16_t)(algo->coll == GYRE_COLL_ALL_GATHER ? g : i);
        cell->value.from[g / 64] = 1ULL << (g % 64);
    }
    for (int i = 0; i < expected_chunks(algo, BENCH_MSCCL_OUTPUT) && has_result; i++) {
        struct bench_msccl_cell *cell =
            bench_msccl_cell_of(run, g, (struct bench_msccl_place){BENCH_MSCCL_OUTPUT, i});
        cell->target = gyre_out(i);
        cell->has_target = true;
        cell->is_result = true;
    }
}

static gyre_status open_cells(const struct bench_msccl_run *run, int g)
{
    struct bench_msccl_run_gpu *gpu = &run->gpus[g];
    const struct bench_msccl *algo = run->algo;
    const int n_in = expected_chunks(algo, BENCH_MSCCL_INPUT);
    const int n_out = expected_chunks(algo, BENCH_MSCCL_OUTPUT);
    gpu->first_cell_of[BENCH_MSCCL_OUTPUT] = n_in;
    gpu->first_cell_of[BENCH_MSCCL_SCRATCH] = n_in + n_out;
    gpu->n_cells = n_in + n_out + algo->gpus[g].n_chunks_of[BENCH_MSCCL_SCRATCH];
    gpu->cells = calloc((size_t)gpu->n_cells, sizeof(*gpu->cells));
    if (gpu->cells == NULL)
        return bench_msccl_out_of_memory(algo);
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
static int touched_cell(const struct bench_msccl_run *run, int g, struct bench_msccl_place place)
{
    const struct bench_msccl_run_gpu *gpu = &run->gpus[g];
    if (place.buffer == BENCH_MSCCL_SCRATCH || run->algo->coll == GYRE_COLL_ALL_TO_ALL)
        return gpu->first_cell_of[place.buffer] + place.offset;
    return place_in_alias(run->algo, g, place.buffer, place.offset);
}

/* Join thread blocks that touch a chunk that one of them writes. @first_of: by chunk, the first
 * thread block that touches it. @written: by chunk, whether a thread block writes it. */
static void join_by_chunks(const struct bench_msccl_run *run, int g, int *group_of, int *first_of,
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
static void number_workers(const struct bench_msccl_run *run, int g, const int *group_of)
{
    struct bench_msccl_run_gpu *own = &run->gpus[g];
    const int n_blocks = run->algo->gpus[g].n_blocks;
    int n_groups = 0;
    for (int b = 0; b < n_blocks; b++)
        own->blocks[b].worker = group_of[b] == b ? n_groups++ % GYRE_MAX_WORKERS : -1;
    for (int b = 0; b < n_blocks; b++)
        own->blocks[b].worker = own->blocks[root_of(group_of, b)].worker;
    own->n_workers = n_groups < GYRE_MAX_WORKERS ? n_groups : GYRE_MAX_WORKERS;
}

static gyre_status assign_workers(const struct bench_msccl_run *run, int g)
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
    return has_memory ? GYRE_SUCCESS : bench_msccl_out_of_memory(run->algo);
}

/* ---- connections -------------------------------------------------------------------------- */

/* The lane of a connection: how many channels with lower numbers the sender uses to this peer. */
static gyre_status find_lane(const struct bench_msccl_run *run, int sender, int receiver,
                             int channel, int *block_out, int *lane_out)
{
    const struct bench_msccl_gpu *gpu = &run->algo->gpus[sender];
    *block_out = -1;
    *lane_out = 0;
    for (int b = 0; b < gpu->n_blocks; b++) {
        const struct bench_msccl_block *block = &gpu->blocks[b];
        if (block->send_peer != receiver)
            continue;
        if (block->channel == channel && *block_out >= 0)
            return BENCH_MSCCL_REFUSE(run, block->line,
                                      "tb: another tb of gpu %d sends to gpu %d on channel %d too",
                                      sender, receiver, channel);
        if (block->channel == channel)
            *block_out = b;
        *lane_out += block->channel < channel;
    }
    if (*block_out >= 0 && *lane_out >= GYRE_MAX_LANES)
        return BENCH_MSCCL_REFUSE(
            run, gpu->blocks[*block_out].line,
            "tb: gpu %d sends to gpu %d on more than %d channels, and gyre has %d lanes", sender,
            receiver, GYRE_MAX_LANES, GYRE_MAX_LANES);
    return GYRE_SUCCESS;
}

static gyre_status connect_block(const struct bench_msccl_run *run, int g, int b)
{
    const struct bench_msccl_block *from = &run->algo->gpus[g].blocks[b];
    struct bench_msccl_run_block *block = &run->gpus[g].blocks[b];
    int own;
    if (from->send_peer >= 0)
        GYRE_TRY(find_lane(run, g, from->send_peer, from->channel, &own, &block->send_lane));
    if (from->recv_peer < 0)
        return GYRE_SUCCESS;
    for (int other = 0; other < b; other++)
        if (run->algo->gpus[g].blocks[other].recv_peer == from->recv_peer &&
            run->algo->gpus[g].blocks[other].channel == from->channel)
            return BENCH_MSCCL_REFUSE(
                run, from->line, "tb: another tb of gpu %d receives from gpu %d on channel %d too",
                g, from->recv_peer, from->channel);
    GYRE_TRY(
        find_lane(run, from->recv_peer, g, from->channel, &block->sender_block, &block->recv_lane));
    if (block->sender_block < 0)
        return bench_msccl_fail(GYRE_ERROR_INVALID_ARGUMENT, run->algo, from->line,
                                "tb: no tb of gpu %d sends to gpu %d on channel %d",
                                from->recv_peer, g, from->channel);
    return GYRE_SUCCESS;
}

static gyre_status connect_all(const struct bench_msccl_run *run)
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

/* ---- all of it ---------------------------------------------------------------------------- */

void bench_msccl_run_close(struct bench_msccl_run *run)
{
    for (int g = 0; run->gpus != NULL && g < run->algo->n_gpus; g++) {
        free(run->gpus[g].cells);
        free(run->gpus[g].blocks);
    }
    free(run->gpus);
    run->gpus = NULL;
}

gyre_status bench_msccl_run_open(struct bench_msccl_run *run)
{
    const struct bench_msccl *algo = run->algo;
    run->order->n_gpus = algo->n_gpus;
    run->order->workers = calloc((size_t)algo->n_gpus, sizeof(*run->order->workers));
    run->gpus = calloc((size_t)algo->n_gpus, sizeof(*run->gpus));
    if (run->gpus == NULL || run->order->workers == NULL)
        return bench_msccl_out_of_memory(algo);
    GYRE_TRY(check_chunks(run));
    for (int g = 0; g < algo->n_gpus; g++) {
        run->gpus[g].blocks =
            calloc((size_t)algo->gpus[g].n_blocks + 1, sizeof(*run->gpus[g].blocks));
        if (run->gpus[g].blocks == NULL)
            return bench_msccl_out_of_memory(algo);
        GYRE_TRY(open_cells(run, g));
        GYRE_TRY(assign_workers(run, g));
    }
    return connect_all(run);
}
