/* SPDX-License-Identifier: Apache-2.0
 *
 * core/foundation/model/tile.h without divisions on the GPU. Valid as C11 and as CUDA.
 */
#ifndef GYRE_KERNELS_CUDA_SPLIT_H
#define GYRE_KERNELS_CUDA_SPLIT_H

#include "core/foundation/model/tile.h"

/* gyre_part()'s quotients: a range takes eight 64-bit divisions of some 100 instructions each. */
struct gyre_cuda_split {
    uint64_t count;
    uint64_t share_units; /* the first extra_channels have one more */
    uint32_t extra_channels;
    uint32_t n_chunks;
    uint32_t tile_elems;
    uint32_t unit_elems;
    uint64_t chunk_share_units[2]; /* in channels with share_units, with one more */
    uint32_t extra_chunks[2];
    uint32_t n_tiles;
    uint32_t pad;
};

static inline struct gyre_cuda_split gyre_cuda_split_make(const struct gyre_split *split)
{
    struct gyre_cuda_split own;
    const uint64_t n_units = (split->count + split->unit_elems - 1) / split->unit_elems;
    own.count = split->count;
    own.share_units = n_units / split->n_channels;
    own.extra_channels = (uint32_t)(n_units % split->n_channels);
    own.n_chunks = split->n_chunks;
    own.tile_elems = split->tile_elems;
    own.unit_elems = split->unit_elems;
    for (uint32_t longer = 0; longer < 2; longer++) {
        own.chunk_share_units[longer] = (own.share_units + longer) / split->n_chunks;
        own.extra_chunks[longer] = (uint32_t)((own.share_units + longer) % split->n_chunks);
    }
    own.n_tiles = (uint32_t)gyre_tile_count(split);
    own.pad = 0;
    return own;
}

static GYRE_HOST_DEVICE inline uint64_t gyre_cuda_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* A channel's part of the vector, in elements. */
struct gyre_cuda_share {
    uint64_t begin;
    uint64_t end;
    uint64_t chunk_elems;  /* the first extra_chunks have a unit more */
    uint32_t extra_chunks; /* of one chunk: 0 */
    uint32_t unit_elems;
    uint32_t tile_elems;
    uint32_t chunk_mask; /* 0: one chunk, whatever the steps call it */
};

/** gyre_cuda_share_make - once a block. */
static GYRE_HOST_DEVICE inline struct gyre_cuda_share
gyre_cuda_share_make(const struct gyre_cuda_split *split, uint32_t channel)
{
    const uint32_t longer = channel < split->extra_channels ? 1 : 0;
    const uint64_t unit = split->unit_elems;
    const uint64_t first_unit =
        split->share_units * channel + (longer != 0 ? channel : split->extra_channels);
    struct gyre_cuda_share share;
    share.begin = gyre_cuda_min(first_unit * unit, split->count);
    share.end = gyre_cuda_min((first_unit + split->share_units + longer) * unit, split->count);
    share.chunk_elems = split->chunk_share_units[longer] * unit;
    share.extra_chunks = split->extra_chunks[longer];
    share.unit_elems = split->unit_elems;
    share.tile_elems = split->tile_elems;
    share.chunk_mask = split->n_chunks == 1 ? 0 : UINT32_MAX;
    return share;
}

static GYRE_HOST_DEVICE inline struct gyre_range
gyre_cuda_tile_range(const struct gyre_cuda_share *share, uint32_t chunk, uint32_t tile)
{
    const uint32_t part = chunk & share->chunk_mask;
    const uint32_t n_extra = part < share->extra_chunks ? part : share->extra_chunks;
    const uint64_t from =
        share->begin + share->chunk_elems * part + (uint64_t)n_extra * share->unit_elems;
    const uint64_t own = share->chunk_elems + (part < share->extra_chunks ? share->unit_elems : 0);
    const uint64_t part_end = gyre_cuda_min(from + own, share->end);
    struct gyre_range range;
    range.first_elem = gyre_cuda_min(
        gyre_cuda_min(from, share->end) + (uint64_t)tile * share->tile_elems, part_end);
    range.n_elems = gyre_cuda_min(part_end - range.first_elem, share->tile_elems);
    return range;
}

#endif
