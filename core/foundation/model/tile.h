/* SPDX-License-Identifier: Apache-2.0
 *
 * Maps (channel, chunk, tile) to a range of elements, the same on every rank. A channel has a
 * contiguous part of the vector (or of every block), a chunk a part of that, and a tile at most
 * `tile_elems` elements of its chunk. Parts begin at multiples of `unit_elems`; the last takes the
 * remainder. An empty range's slot is still sent. Valid as C11 and as CUDA.
 */
#ifndef GYRE_MODEL_TILE_H
#define GYRE_MODEL_TILE_H

#include "core/foundation/model/schedule.h"

struct gyre_split {
    uint64_t count; /* of the vector, or a block */
    uint32_t n_channels;
    uint32_t n_chunks;
    uint32_t tile_elems; /* a multiple of unit_elems */
    uint32_t unit_elems;
};

struct gyre_range {
    uint64_t first_elem;
    uint64_t n_elems;
};

static GYRE_HOST_DEVICE inline struct gyre_range gyre_part(struct gyre_range whole, uint64_t unit,
                                                           uint32_t n_parts, uint32_t index)
{
    const uint64_t n_units = (whole.n_elems + unit - 1) / unit;
    const uint64_t share = n_units / n_parts;
    const uint64_t extra = n_units % n_parts;
    const uint64_t before = share * index + (index < extra ? index : extra);
    const uint64_t own = share + (index < extra ? 1 : 0);
    uint64_t first = before * unit;
    uint64_t end = (before + own) * unit;
    if (first > whole.n_elems)
        first = whole.n_elems;
    if (end > whole.n_elems)
        end = whole.n_elems;
    struct gyre_range part = {whole.first_elem + first, end - first};
    return part;
}

/** Of all tiles. @chunk: counted over all blocks. */
static GYRE_HOST_DEVICE inline struct gyre_range gyre_chunk_range(const struct gyre_split *split,
                                                                  uint32_t channel, uint32_t chunk)
{
    struct gyre_range whole = {0, split->count};
    const struct gyre_range mine = gyre_part(whole, split->unit_elems, split->n_channels, channel);
    return gyre_part(mine, split->unit_elems, split->n_chunks,
                     split->n_chunks == 1 ? 0 : chunk % split->n_chunks);
}

static GYRE_HOST_DEVICE inline struct gyre_range
gyre_tile_range(const struct gyre_split *split, uint32_t channel, uint32_t chunk, uint64_t tile)
{
    struct gyre_range range = gyre_chunk_range(split, channel, chunk);
    const uint64_t skip = tile * split->tile_elems;
    if (skip >= range.n_elems) {
        range.first_elem += range.n_elems;
        range.n_elems = 0;
        return range;
    }
    range.first_elem += skip;
    range.n_elems -= skip;
    if (range.n_elems > split->tile_elems)
        range.n_elems = split->tile_elems;
    return range;
}

/** Lets `max_range` chunks fit a slot: a multiple of 16 if max_range > 1; 0 = too small a slot. */
static GYRE_HOST_DEVICE inline uint32_t gyre_piece_bytes(uint32_t slot_bytes, uint32_t max_range)
{
    return max_range <= 1 ? slot_bytes : slot_bytes / max_range / 16 * 16;
}

/** Of the longest chunk: 0 of channel 0. 0 only for count 0. */
static GYRE_HOST_DEVICE inline uint64_t gyre_tile_count(const struct gyre_split *split)
{
    const struct gyre_range longest = gyre_chunk_range(split, 0, 0);
    return (longest.n_elems + split->tile_elems - 1) / split->tile_elems;
}

#endif
