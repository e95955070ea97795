/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds lines, trees and grids in the links of programs.
 */
#include "bench/draw/drawing.h"

#include "core/foundation/base/status.h"
#include "core/foundation/base/util.h"

#include <stdlib.h>
#include <string.h>

#define MOST_IN_A_ROW  16
#define MOST_OF_A_LINE 8 /* then it turns back in the next row */
#define NO_RANK        UINT32_MAX
#define MOST_TREES     2 /* a double tree */

struct finder {
    struct bench_drawing *drawing;
    struct bench_draw_place *places;
    uint32_t n;
    uint8_t *links;    /* [rank][peer]: of all steps, or of one chunk's */
    uint32_t *parents; /* by rank */
    uint32_t *order;   /* ranks, parents first */
};

/* @chunk: -1 = all. Links have no direction. */
static void find_links(struct finder *finder, int chunk)
{
    const uint32_t n = finder->n;
    memset(finder->links, 0, (size_t)n * n);
    for (uint32_t rank = 0; rank < n; rank++) {
        const struct gyre_program *program = finder->drawing->programs[rank];
        for (uint32_t i = 0; i < program->n_steps; i++) {
            const struct gyre_step *step = &program->steps[i];
            for (uint32_t k = 0; k < step->n_outs && (chunk < 0 || step->chunk == chunk); k++) {
                if (step->outs[k].kind != GYRE_OPERAND_CONNECTION)
                    continue;
                const uint32_t peer = program->connections[step->outs[k].index].peer;
                finder->links[rank * n + peer] = finder->links[peer * n + rank] = 1;
            }
        }
    }
}

/* Where the first sum is completed, or the call's root. NO_RANK = the collective has no such rank.
 */
static uint32_t find_root(const struct bench_drawing *drawing)
{
    const struct gyre_program *first = drawing->programs[0];
    const uint32_t chunk = first->n_steps > 0 ? first->steps[0].chunk : 0;
    if (gyre_collectives[first->coll].has_root)
        return first->root;
    for (uint32_t rank = 0; rank < drawing->n_ranks; rank++)
        for (uint32_t i = 0; i < drawing->programs[rank]->n_steps; i++) {
            const struct gyre_step *step = &drawing->programs[rank]->steps[i];
            if (step->chunk == chunk && (step->flags & GYRE_STEP_FINAL) != 0)
                return rank;
        }
    return NO_RANK;
}

/* Fills in parents and order. False if the links are no tree over all ranks. */
static bool walk_tree(struct finder *finder, uint32_t root)
{
    const uint32_t n = finder->n;
    uint32_t n_links = 0, n_seen = 1;
    for (uint32_t i = 0; i < n; i++)
        finder->parents[i] = NO_RANK;
    finder->order[0] = finder->parents[root] = root;
    for (uint32_t at = 0; at < n_seen; at++) {
        const uint32_t rank = finder->order[at];
        for (uint32_t peer = 0; peer < n; peer++) {
            n_links += finder->links[rank * n + peer];
            if (finder->links[rank * n + peer] == 0 || finder->parents[peer] != NO_RANK)
                continue;
            finder->parents[peer] = rank;
            finder->order[n_seen++] = peer;
        }
    }
    return n_seen == n && n_links == 2 * (n - 1);
}

/* The ranks below each other by levels; a rank stands above the middle of its children. */
static bool place_tree(struct finder *finder)
{
    const uint32_t n = finder->n;
    uint32_t n_leaves = 0;
    /* Depth first from the left: a rank's leaves are those between its visit and its return. */
    for (uint32_t rank = finder->order[0], from = 0;;) {
        uint32_t child = from;
        while (child < n && (finder->parents[child] != rank || child == rank))
            child++;
        if (child < n) {
            finder->places[child].y = finder->places[rank].y + 1;
            rank = child;
            from = 0;
            continue;
        }
        double low = 0, high = 0;
        bool is_leaf = true;
        for (child = 0; child < n; child++) {
            if (finder->parents[child] != rank || child == rank)
                continue;
            low = is_leaf ? finder->places[child].x : low;
            high = finder->places[child].x;
            is_leaf = false;
        }
        finder->places[rank].x = is_leaf ? n_leaves++ : (low + high) / 2;
        if (rank == finder->order[0])
            return n_leaves <= MOST_IN_A_ROW;
        from = rank + 1;
        rank = finder->parents[rank];
    }
}

/* To the right from the call's root, or from the end with the lower rank. */
static bool place_line(struct finder *finder)
{
    const uint32_t n = finder->n;
    uint32_t end = NO_RANK;
    for (uint32_t rank = 0; rank < n; rank++) {
        uint32_t n_links = 0;
        for (uint32_t peer = 0; peer < n; peer++)
            n_links += finder->links[rank * n + peer];
        if (n_links > 2)
            return false;
        if (n_links == 1 && end == NO_RANK)
            end = rank;
    }
    const uint32_t root = find_root(finder->drawing);
    if (end == NO_RANK || !walk_tree(finder, end) ||
        (root != NO_RANK && root != end && root != finder->order[n - 1]))
        return false;
    if (gyre_collectives[finder->drawing->programs[0]->coll].has_root)
        walk_tree(finder, root);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t row = i / MOST_OF_A_LINE, column = i % MOST_OF_A_LINE;
        finder->places[finder->order[i]] =
            (struct bench_draw_place){row % 2 == 0 ? column : MOST_OF_A_LINE - 1 - column, row};
    }
    return true;
}

/* One tree of all links, or the first of a double tree. */
static bool find_tree(struct finder *finder)
{
    const size_t n_bytes = (size_t)finder->n * finder->n;
    const uint32_t root = find_root(finder->drawing);
    GYRE_FREED uint8_t *trees = malloc(MOST_TREES * n_bytes);
    uint32_t n_trees = 0;
    bool is_tree = root != NO_RANK && walk_tree(finder, root);
    bool is_double = root != NO_RANK && !is_tree && trees != NULL;
    for (uint32_t chunk = 0; chunk < finder->drawing->n_parts && is_double; chunk++) {
        find_links(finder, (int)chunk);
        uint32_t i = 0;
        while (i < n_trees && memcmp(trees + i * n_bytes, finder->links, n_bytes) != 0)
            i++;
        if (i < n_trees)
            continue;
        is_double = i < MOST_TREES && walk_tree(finder, root);
        if (is_double)
            memcpy(trees + n_trees++ * n_bytes, finder->links, n_bytes);
    }
    if (is_double) {
        memcpy(finder->links, trees, n_bytes);
        walk_tree(finder, root);
    }
    return (is_tree || is_double) && place_tree(finder);
}

/* Each link changes one of column, row and layer, and each rank has links along all. */
static bool is_grid(const struct finder *finder, uint32_t columns, uint32_t rows, uint32_t layers)
{
    for (uint32_t rank = 0; rank < finder->n; rank++) {
        uint32_t along = 0;
        for (uint32_t peer = 0; peer < finder->n; peer++) {
            if (finder->links[rank * finder->n + peer] == 0)
                continue;
            const uint32_t changes = (rank % columns != peer % columns ? 1U : 0U) |
                                     (rank / columns % rows != peer / columns % rows ? 2U : 0U) |
                                     (rank / columns / rows != peer / columns / rows ? 4U : 0U);
            if ((changes & (changes - 1)) != 0)
                return false;
            along |= changes;
        }
        if (along != (layers > 1 ? 7U : 3U))
            return false;
    }
    return true;
}

/* A torus, or other links along rows and columns: the grid with the shortest sides. Layers stand
 * behind each other. */
static bool find_grid(struct finder *finder)
{
    const uint32_t n = finder->n;
    uint32_t columns = 0, layers = 1, least = UINT32_MAX;
    find_links(finder, -1);
    for (uint32_t deep = 1; deep <= MOST_IN_A_ROW / 2; deep++)
        for (uint32_t rows = 2; rows <= MOST_IN_A_ROW / deep; rows++) {
            const uint32_t wide = n / (rows * deep);
            const uint32_t sides = wide + rows + deep;
            if (wide * rows * deep == n && wide >= 2 && wide <= MOST_IN_A_ROW / deep &&
                ((deep > 1 && layers == 1) || sides < least) && is_grid(finder, wide, rows, deep)) {
                columns = wide;
                layers = deep;
                least = sides;
            }
        }
    for (uint32_t rank = 0; rank < n && columns > 0; rank++) {
        const uint32_t layer = rank / (n / layers);
        finder->places[rank] =
            (struct bench_draw_place){rank % columns * layers + layer,
                                      rank / columns % (n / layers / columns) * layers + layer};
    }
    return columns > 0;
}

gyre_status bench_draw_find_places(struct bench_drawing *drawing)
{
    const uint32_t n = drawing->n_ranks;
    if (n < 2 || (drawing->grouping != NULL && drawing->grouping->n_hosts > 1))
        return GYRE_SUCCESS;
    GYRE_FREED struct bench_draw_place *places = calloc(n, sizeof(*places));
    GYRE_FREED uint8_t *links = calloc(n, n);
    GYRE_FREED uint32_t *parents = calloc(n, sizeof(*parents));
    GYRE_FREED uint32_t *order = calloc(n, sizeof(*order));
    if (places == NULL || links == NULL || parents == NULL || order == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to place %u ranks", n);
    struct finder finder = {.drawing = drawing,
                            .n = n,
                            .places = places,
                            .links = links,
                            .parents = parents,
                            .order = order};
    find_links(&finder, -1);
    if (!place_line(&finder) && !find_tree(&finder) && !find_grid(&finder))
        return GYRE_SUCCESS;
    for (uint32_t rank = 0; rank < n; rank++) {
        const struct bench_draw_place *place = &places[rank];
        if (drawing->n_columns < place->x + 1)
            drawing->n_columns = place->x + 1;
        if (drawing->n_rows < place->y + 1)
            drawing->n_rows = place->y + 1;
    }
    drawing->places = places;
    places = NULL;
    return GYRE_SUCCESS;
}
