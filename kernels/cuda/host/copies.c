/* SPDX-License-Identifier: Apache-2.0
 *
 * Usually all channels are one tile: sync kernel, copies, sync kernel. In a chain (broadcast) a
 * rank passes on what it receives, so the walk goes by channel and tile and announces each copied
 * tile before the next.
 */
#include "kernels/cuda/host/copies.h"

#include "core/foundation/base/util.h"

#include <stdlib.h>
#include <string.h>

struct pending {
    struct gyre_cuda_sync_entry entries[GYRE_CUDA_SYNC_ENTRIES];
    uint32_t n_entries;
    uint32_t tile;
    bool waits;
};

struct tail_end {
    uint32_t index; /* in channel 0 */
    uint32_t depth;
    bool is_used;
    uint32_t moved[GYRE_CUDA_COPY_CHANNELS]; /* slots of this call */
};

struct gyre_cuda_copies {
    const struct gyre_program *program;
    uint32_t first_step;
    uint32_t n_channels;
    uint32_t channel_stride;
    uint32_t n_ends_used;
    bool is_chain;
    struct pending pending[GYRE_CUDA_COPY_CHANNELS];
    struct tail_end ends[]; /* by the program's connections */
};

struct walk {
    struct gyre_cuda_copies *copies;
    const struct gyre_split *split;
    const struct gyre_cuda_copies_sink *sink;
    uint32_t elem_bytes;
    uint32_t channel;
    uint32_t tile;
};

static gyre_status use_end(struct gyre_cuda_copies *copies, const struct gyre_fifo_spec *spec,
                           const struct gyre_connector *connectors, int n_ranks, uint32_t i)
{
    const struct gyre_program *program = copies->program;
    const struct gyre_connection *connection = &program->connections[i];
    struct tail_end *end = &copies->ends[i];
    if (end->is_used)
        return GYRE_SUCCESS;
    if (connection->peer >= n_ranks ||
        (copies->n_channels - 1) * program->n_lanes + connection->lane >= spec->n_fifos)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "%s: no connection with rank %u, channel %u",
                         program->algorithm, connection->peer, copies->n_channels - 1);
    end->index =
        gyre_connector_index(spec, connection->peer, connection->lane, connection->is_send != 0);
    const struct gyre_connector *connector = &connectors[end->index];
    if (connector->inbox == NULL || connector->is_proxied)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "%s: this rank cannot address rank %u's memory: nothing can be placed",
                         program->algorithm, connection->peer);
    end->depth = connector->depth;
    end->is_used = true;
    copies->n_ends_used++;
    return GYRE_SUCCESS;
}

static gyre_status find_ends(struct gyre_cuda_copies *copies, const struct gyre_fifo_spec *spec,
                             const struct gyre_connector *connectors, int n_ranks)
{
    const struct gyre_program *program = copies->program;
    for (uint32_t s = copies->first_step; s < program->n_steps; s++) {
        const struct gyre_step *step = &program->steps[s];
        if (step->ins[0].is_placed != 0)
            GYRE_TRY(use_end(copies, spec, connectors, n_ranks, step->ins[0].index));
        for (unsigned i = 0; i < step->n_outs; i++)
            if (step->outs[i].is_placed != 0)
                GYRE_TRY(use_end(copies, spec, connectors, n_ranks, step->outs[i].index));
    }
    return GYRE_SUCCESS;
}

gyre_status gyre_cuda_copies_make(const struct gyre_fifo_spec *spec,
                                  const struct gyre_connector *connectors, int n_ranks,
                                  const struct gyre_load_config *config,
                                  struct gyre_cuda_copies **copies_out)
{
    const struct gyre_program *program = config->program;
    const uint32_t first = gyre_program_copy_tail(program);
    if (first == program->n_steps || config->rank_of != NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "%s %s has no part that only copies: nothing for copy engines",
                         program->algorithm, gyre_collectives[program->coll].name);
    struct gyre_cuda_copies *copies =
        calloc(1, sizeof(*copies) + program->n_connections * sizeof(copies->ends[0]));
    if (copies == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot load algorithm %s", program->algorithm);
    copies->program = program;
    copies->first_step = first;
    copies->channel_stride = program->n_lanes * 2U;
    copies->is_chain = program->coll == GYRE_COLL_BROADCAST;
    copies->n_channels = copies->is_chain ? config->n_channels : 1;
    gyre_status status = GYRE_SUCCESS;
    if (copies->n_channels > GYRE_CUDA_COPY_CHANNELS || (copies->is_chain && first > 0))
        status = gyre_fail(GYRE_ERROR_UNSUPPORTED, "%s in %u channels: copy engines take up to %d",
                           program->algorithm, copies->n_channels, GYRE_CUDA_COPY_CHANNELS);
    if (status == GYRE_SUCCESS)
        status = find_ends(copies, spec, connectors, n_ranks);
    /* The last sync kernel takes words and counts of all ends. */
    if (status == GYRE_SUCCESS &&
        copies->n_ends_used * copies->n_channels * 2 > GYRE_CUDA_SYNC_ENTRIES)
        status =
            gyre_fail(GYRE_ERROR_UNSUPPORTED, "%s: %u connections are too many for a sync kernel",
                      program->algorithm, copies->n_ends_used);
    if (status != GYRE_SUCCESS) {
        free(copies);
        return status;
    }
    *copies_out = copies;
    return GYRE_SUCCESS;
}

static gyre_status flush(struct walk *walk)
{
    struct pending *pending = &walk->copies->pending[walk->channel];
    const uint32_t n = pending->n_entries;
    pending->n_entries = 0;
    pending->waits = false;
    return n == 0 ? GYRE_SUCCESS
                  : walk->sink->sync(walk->sink->context, walk->channel, pending->entries, n);
}

static gyre_status add(struct walk *walk, uint32_t connection, uint32_t slot, uint64_t n_bytes,
                       enum gyre_cuda_sync_act act)
{
    struct gyre_cuda_copies *copies = walk->copies;
    struct pending *pending = &copies->pending[walk->channel];
    const struct tail_end *end = &copies->ends[connection];
    if (pending->n_entries == GYRE_CUDA_SYNC_ENTRIES)
        GYRE_TRY(flush(walk));
    const struct gyre_cuda_sync_entry entry = {end->index + walk->channel * copies->channel_stride,
                                               slot, (uint32_t)n_bytes, (uint32_t)act};
    pending->entries[pending->n_entries++] = entry;
    pending->tile = walk->tile;
    pending->waits = pending->waits || act == GYRE_CUDA_SYNC_TAKE || act == GYRE_CUDA_SYNC_CREDIT;
    return GYRE_SUCCESS;
}

/* Equally long, at equal distances. */
struct run {
    uint64_t first_elem;
    uint64_t n_elems;
    uint64_t pitch_elems;
    uint64_t n_rows;
};

static gyre_status copy_run(const struct walk *walk, const struct run *run,
                            struct gyre_cuda_copy copy)
{
    if (run->n_elems == 0 || run->n_rows == 0)
        return GYRE_SUCCESS;
    copy.from_offset += run->first_elem * walk->elem_bytes;
    copy.to_offset += run->first_elem * walk->elem_bytes;
    copy.row_bytes = run->n_elems * walk->elem_bytes;
    copy.pitch_bytes = run->pitch_elems * walk->elem_bytes;
    copy.n_rows = run->n_rows;
    if (copy.n_rows == 1 || copy.pitch_bytes == copy.row_bytes) {
        copy.row_bytes *= copy.n_rows;
        copy.pitch_bytes = copy.row_bytes;
        copy.n_rows = 1;
    }
    return walk->sink->copy(walk->sink->context, walk->channel, &copy);
}

static gyre_status copy_step(const struct walk *walk, const struct gyre_step *step,
                             const struct gyre_cuda_copy *copy)
{
    struct run run = {0, 0, 0, 0};
    if (walk->copies->is_chain) {
        const struct gyre_range range =
            gyre_tile_range(walk->split, walk->channel, step->chunk, walk->tile);
        run = (struct run){range.first_elem, range.n_elems, range.n_elems, 1};
        return copy_run(walk, &run, *copy);
    }
    /* The channels' pieces differ by at most one unit, so few strided copies take them all. */
    for (uint32_t channel = 0; channel < walk->split->n_channels; channel++) {
        const struct gyre_range range = gyre_chunk_range(walk->split, channel, step->chunk);
        const uint64_t last_row = run.n_rows > 1 ? run.pitch_elems * (run.n_rows - 1) : 0;
        const uint64_t pitch = range.first_elem - run.first_elem - last_row;
        if (run.n_rows > 0 && range.n_elems == run.n_elems &&
            (run.n_rows == 1 || pitch == run.pitch_elems)) {
            run.pitch_elems = pitch;
            run.n_rows++;
            continue;
        }
        GYRE_TRY(copy_run(walk, &run, *copy));
        run = (struct run){range.first_elem, range.n_elems, 0, 1};
    }
    return copy_run(walk, &run, *copy);
}

static uint64_t block_offset(const struct walk *walk, bool has_blocks, uint32_t index)
{
    return has_blocks ? index * walk->split->count * walk->elem_bytes : 0;
}

static gyre_status walk_step(struct walk *walk, const struct gyre_step *step)
{
    struct gyre_cuda_copies *copies = walk->copies;
    const struct pending *pending = &copies->pending[walk->channel];
    uint64_t n_elems = 0;
    if (walk->copies->is_chain)
        n_elems = gyre_tile_range(walk->split, walk->channel, step->chunk, walk->tile).n_elems;
    else
        for (uint32_t channel = 0; channel < walk->split->n_channels; channel++)
            n_elems += gyre_chunk_range(walk->split, channel, step->chunk).n_elems;
    const uint64_t n_bytes = n_elems * walk->elem_bytes;
    const struct gyre_operand in = step->ins[0];
    /* A sync kernel awaits all words at once, so it takes one slot of each end. */
    if (pending->waits && pending->tile != walk->tile)
        GYRE_TRY(flush(walk));
    if (in.is_placed != 0)
        GYRE_TRY(add(walk, in.index, copies->ends[in.index].moved[walk->channel]++, n_bytes,
                     GYRE_CUDA_SYNC_TAKE));
    if (step->n_outs == 0)
        return GYRE_SUCCESS;
    for (unsigned i = 0; i < step->n_outs; i++) {
        const struct gyre_operand out = step->outs[i];
        /* A receiver in the call has read all earlier calls' slots. */
        if (out.is_placed != 0 &&
            copies->ends[out.index].moved[walk->channel] >= copies->ends[out.index].depth)
            GYRE_TRY(add(walk, out.index, copies->ends[out.index].moved[walk->channel], 0,
                         GYRE_CUDA_SYNC_CREDIT));
    }
    if (pending->waits || pending->tile != walk->tile)
        GYRE_TRY(flush(walk));
    const struct gyre_program *program = walk->copies->program;
    const struct gyre_collective_traits *traits = &gyre_collectives[program->coll];
    const uint32_t index = in.kind == GYRE_OPERAND_CONNECTION ? step->chunk : in.index;
    struct gyre_cuda_copy copy = {.from_in = in.kind == GYRE_OPERAND_IN};
    copy.from_offset =
        block_offset(walk, copy.from_in ? traits->in_blocks : traits->out_blocks, index);
    for (unsigned i = 0; i < step->n_outs; i++) {
        const struct gyre_operand out = step->outs[i];
        const bool is_placed = out.is_placed != 0;
        copy.peer = is_placed ? program->connections[out.index].peer : -1;
        copy.to_offset =
            block_offset(walk, traits->out_blocks, is_placed ? step->chunk : out.index);
        GYRE_TRY(copy_step(walk, step, &copy));
    }
    for (unsigned i = 0; i < step->n_outs; i++) {
        const struct gyre_operand out = step->outs[i];
        if (out.is_placed != 0)
            GYRE_TRY(add(walk, out.index, copies->ends[out.index].moved[walk->channel]++, n_bytes,
                         GYRE_CUDA_SYNC_POST));
    }
    return GYRE_SUCCESS;
}

static gyre_status end_sync(struct walk *walk, bool is_last)
{
    struct gyre_cuda_copies *copies = walk->copies;
    struct pending *pending = &copies->pending[0];
    for (walk->channel = 0; walk->channel < copies->n_channels; walk->channel++)
        for (uint32_t i = 0; i < copies->program->n_connections; i++) {
            const struct tail_end *end = &copies->ends[i];
            const bool is_send = copies->program->connections[i].is_send != 0;
            if (!end->is_used)
                continue;
            const struct gyre_cuda_sync_entry entry = {end->index +
                                                           walk->channel * copies->channel_stride,
                                                       is_last ? end->moved[walk->channel] : 0, 0,
                                                       (uint32_t)(is_last   ? GYRE_CUDA_SYNC_COUNT
                                                                  : is_send ? GYRE_CUDA_SYNC_ENTER
                                                                            : GYRE_CUDA_SYNC_OPEN)};
            pending->entries[pending->n_entries++] = entry;
        }
    const uint32_t n = pending->n_entries;
    pending->n_entries = 0;
    pending->waits = false;
    return walk->sink->ends(walk->sink->context, is_last, pending->entries, n);
}

gyre_status gyre_cuda_copies_walk(struct gyre_cuda_copies *copies, const struct gyre_split *split,
                                  uint32_t elem_bytes, const struct gyre_cuda_copies_sink *sink)
{
    const struct gyre_program *program = copies->program;
    const uint64_t n_tiles = copies->is_chain ? gyre_tile_count(split) : 1;
    struct walk walk = {
        .copies = copies, .split = split, .sink = sink, .elem_bytes = elem_bytes, .tile = 0};
    for (uint32_t channel = 0; channel < copies->n_channels; channel++) {
        copies->pending[channel].n_entries = 0;
        copies->pending[channel].waits = false;
        for (uint32_t i = 0; i < program->n_connections; i++)
            copies->ends[i].moved[channel] = 0;
    }
    GYRE_TRY(end_sync(&walk, false));
    for (walk.tile = 0; walk.tile < n_tiles; walk.tile++)
        for (walk.channel = 0; walk.channel < copies->n_channels; walk.channel++)
            for (uint32_t s = copies->first_step; s < program->n_steps; s++)
                GYRE_TRY(walk_step(&walk, &program->steps[s]));
    /* The last sync kernel takes channel 0's pending words. */
    const bool has_room =
        copies->n_channels == 1 &&
        copies->pending[0].n_entries + copies->n_ends_used <= GYRE_CUDA_SYNC_ENTRIES;
    for (walk.channel = 0; walk.channel < copies->n_channels && !has_room; walk.channel++)
        GYRE_TRY(flush(&walk));
    return end_sync(&walk, true);
}
