/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/library/butterfly.h"

#include <string.h>

/* Sets of blocks have a byte for each chunk, in the order of the names. */
struct walk {
    const struct gyre_butterfly *b;
    int n;
    uint16_t *names;    /* chunk -> rank */
    uint16_t *chunk_of; /* rank -> chunk */
    uint8_t *mine, *theirs, *both;
};

static void name_from(struct walk *walk, int rank, int step, int *n_named)
{
    if (step < walk->b->n_steps) {
        name_from(walk, rank, step + 1, n_named);
        name_from(walk, walk->b->partner(walk->b, rank, step), step + 1, n_named);
        return;
    }
    if (walk->chunk_of[rank] != UINT16_MAX)
        return;
    walk->chunk_of[rank] = (uint16_t)*n_named;
    walk->names[(*n_named)++] = (uint16_t)rank;
}

/* R(rank, step). */
static void add_reached(const struct walk *walk, int rank, int step, uint8_t *set)
{
    if (step == walk->b->n_steps) {
        set[walk->chunk_of[rank]] = 1;
        return;
    }
    add_reached(walk, rank, step + 1, set);
    add_reached(walk, walk->b->partner(walk->b, rank, step), step + 1, set);
}

/* Takes a range out of a set: equal runs at equal distances. */
static bool take_range(const struct walk *walk, uint8_t *set, struct gyre_chunks *chunks_out)
{
    const int n = walk->n;
    int first = 0, run = 0, length = 0, stride = 0;
    while (first < n && !(set[first] && !set[(first + n - 1) % n]))
        first++;
    if (first == n && !set[0])
        return false;
    first %= n; /* all: from chunk 0 on */
    while (run < n && set[(first + run) % n])
        run++;
    for (int at = run; at < n && stride == 0; at++)
        if (set[(first + at) % n])
            stride = at;
    length = run;
    for (int at = stride; stride > 0 && at + run <= n; at += stride) {
        int n_alike = 0;
        while (n_alike < run && set[(first + at + n_alike) % n])
            n_alike++;
        const bool is_longer = at + run < n && set[(first + at + run) % n];
        const bool has_more = set[(first + at + n - 1) % n]; /* between the runs */
        if (n_alike < run || is_longer || has_more)
            break;
        bool is_clear = true;
        for (int i = at - stride + run; i < at; i++)
            is_clear = is_clear && !set[(first + i) % n];
        if (!is_clear)
            break;
        length += run;
    }
    *chunks_out = (struct gyre_chunks){.first = (uint16_t)first,
                                       .n = (uint16_t)length,
                                       .run = (uint16_t)run,
                                       .stride = (uint16_t)(length > run ? stride : 0)};
    for (int i = 0; i < length; i++)
        set[(first + i / run * (length > run ? stride : 0) + i % run) % n] = 0;
    return true;
}

static struct gyre_ref sum_of(const struct walk *walk, int chunk)
{
    return walk->b->shape->coll == GYRE_COLL_REDUCE_SCATTER ? gyre_scratch(chunk) : gyre_out(chunk);
}

/* R of the one without R of the other. */
static void find_sets(const struct walk *walk, int partner, int step)
{
    memset(walk->mine, 0, (size_t)walk->n);
    memset(walk->theirs, 0, (size_t)walk->n);
    add_reached(walk, walk->b->rank, step + 1, walk->mine);
    add_reached(walk, partner, step + 1, walk->theirs);
    for (int i = 0; i < walk->n; i++) {
        const uint8_t both = walk->mine[i] & walk->theirs[i];
        walk->both[i] = both;
        walk->mine[i] &= (uint8_t)!both;
        walk->theirs[i] &= (uint8_t)!both;
    }
}

static void copy(const struct walk *walk, struct gyre_chunks chunks, struct gyre_ref in,
                 struct gyre_ref out)
{
    gyre_builder_range_step(walk->b->builder, chunks, &in, 1, &out, 1, 0);
}

static void reduce_scatter(const struct walk *walk)
{
    const struct gyre_butterfly *b = walk->b;
    const bool to_block = b->shape->coll == GYRE_COLL_REDUCE_SCATTER;
    for (int step = 0; step < b->n_steps; step++) {
        const int partner = b->partner(b, b->rank, step);
        const bool is_last = step == b->n_steps - 1;
        const struct gyre_ref peer = gyre_peer(partner, 0);
        struct gyre_chunks chunks;
        find_sets(walk, partner, step);
        for (bool goes_on = true; goes_on;) {
            goes_on = take_range(walk, walk->theirs, &chunks);
            if (goes_on)
                copy(walk, chunks, step == 0 ? gyre_in(chunks.first) : sum_of(walk, chunks.first),
                     peer);
            if (!take_range(walk, walk->mine, &chunks))
                continue;
            goes_on = true;
            const struct gyre_ref own =
                step == 0 ? gyre_in(chunks.first) : sum_of(walk, chunks.first);
            const struct gyre_ref ins[] = {own, peer};
            const struct gyre_ref out =
                is_last && to_block ? gyre_out(0) : sum_of(walk, chunks.first);
            gyre_builder_range_step(b->builder, chunks, ins, 2, &out, 1,
                                    is_last ? GYRE_STEP_FINAL : 0);
        }
        /* Blocks of both get no sum in this step; later steps look for them with the sums. */
        for (int i = 0; i < walk->n && step == 0; i++)
            if (walk->both[i])
                copy(walk, (struct gyre_chunks){.first = (uint16_t)i, .n = 1}, gyre_in(i),
                     sum_of(walk, i));
    }
}

static void all_gather(const struct walk *walk)
{
    const struct gyre_butterfly *b = walk->b;
    const int own = walk->chunk_of[b->rank];
    if (b->shape->coll == GYRE_COLL_ALL_GATHER)
        copy(walk, (struct gyre_chunks){.first = (uint16_t)own, .n = 1}, gyre_in(0), gyre_out(own));
    for (int step = b->n_steps - 1; step >= 0; step--) {
        const int partner = b->partner(b, b->rank, step);
        const struct gyre_ref peer = gyre_peer(partner, 0);
        struct gyre_chunks chunks;
        find_sets(walk, partner, step);
        for (bool goes_on = true; goes_on;) {
            goes_on = take_range(walk, walk->mine, &chunks);
            if (goes_on)
                copy(walk, chunks, gyre_out(chunks.first), peer);
            if (!take_range(walk, walk->theirs, &chunks))
                continue;
            goes_on = true;
            copy(walk, chunks, peer, gyre_out(chunks.first));
        }
    }
}

void gyre_butterfly_emit(const struct gyre_butterfly *butterfly)
{
    struct gyre_builder *builder = butterfly->builder;
    const size_t n = butterfly->shape->n_ranks;
    struct walk walk = {.b = butterfly, .n = (int)n};
    walk.names = gyre_builder_allocate(builder, n * sizeof(*walk.names));
    walk.chunk_of = gyre_builder_allocate(builder, n * sizeof(*walk.chunk_of));
    walk.mine = gyre_builder_allocate(builder, n);
    walk.theirs = gyre_builder_allocate(builder, n);
    walk.both = gyre_builder_allocate(builder, n);
    if (walk.names == NULL || walk.chunk_of == NULL || walk.mine == NULL || walk.theirs == NULL ||
        walk.both == NULL)
        return;
    for (size_t i = 0; i < n; i++)
        walk.chunk_of[i] = butterfly->is_named ? UINT16_MAX : (uint16_t)i;
    int n_named = 0;
    if (butterfly->is_named)
        name_from(&walk, 0, 0, &n_named);
    /* The names of an all-reduce's chunks do not matter. */
    if (butterfly->is_named && butterfly->shape->coll != GYRE_COLL_ALL_REDUCE)
        gyre_builder_names(builder, walk.names);
    gyre_builder_max_range(builder, (int)(n + 1) / 2);
    if (butterfly->shape->coll != GYRE_COLL_ALL_GATHER)
        reduce_scatter(&walk);
    if (butterfly->shape->coll != GYRE_COLL_REDUCE_SCATTER)
        all_gather(&walk);
}
