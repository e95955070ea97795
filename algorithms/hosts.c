/* SPDX-License-Identifier: Apache-2.0
 *
 * Two hosts of four ranks, variant 0:
 *
 *     host 0: 0 3 2 1   -> rail 1 ->   host 1: 5 6 7 4   -> rail 0 ->   host 0
 *
 * Variant 1 enters at rank 1 and leaves at rank 2, and so on, so that four NICs carry a quarter
 * each.
 */
#include "algorithms/hosts.h"

#include "algorithms/algorithm.h"
#include "core/foundation/base/status.h"

#include <stdio.h>
#include <stdlib.h>

/* Ranks are mostly numbered host after host, so handling runs is faster. */
static unsigned run_of(const struct gyre_shape *shape, unsigned rank)
{
    const uint16_t *host_of = shape->grouping->host_of;
    unsigned end = rank + 1;
    while (end < shape->n_ranks && host_of[end] == host_of[rank])
        end++;
    return end - rank;
}

static void measure_hosts(const struct gyre_shape *shape, int *least_out, int *most_out)
{
    const struct gyre_grouping *grouping = shape->grouping;
    uint16_t n_of[GYRE_MAX_RANKS] = {0};
    *least_out = *most_out = shape->n_ranks;
    if (grouping == NULL || grouping->n_hosts < 2)
        return;
    *most_out = 1;
    for (unsigned rank = 0, n_run; rank < shape->n_ranks; rank += n_run) {
        uint16_t *n = &n_of[grouping->host_of[rank]];
        n_run = run_of(shape, rank);
        *n = (uint16_t)(*n + n_run);
        if (*n > *most_out)
            *most_out = *n;
    }
    for (unsigned host = 0; host < grouping->n_hosts; host++)
        if (n_of[host] < *least_out)
            *least_out = n_of[host];
}

int gyre_hosts_rails(const struct gyre_shape *shape)
{
    int least, most;
    measure_hosts(shape, &least, &most);
    return least;
}

int gyre_hosts_variants(const struct gyre_shape *shape)
{
    const struct gyre_grouping *grouping = shape->grouping;
    int least, most;
    if (grouping == NULL || grouping->n_hosts < 2)
        return 1;
    measure_hosts(shape, &least, &most);
    if (grouping->n_nics > 0 && grouping->n_nics < most)
        most = grouping->n_nics;
    return most < GYRE_MAX_VARIANTS ? most : GYRE_MAX_VARIANTS;
}

static void sort_by_host(const struct gyre_shape *shape, uint16_t *first, uint16_t *order,
                         unsigned n_hosts)
{
    const uint16_t *host_of = shape->grouping->host_of;
    for (unsigned rank = 0, n_run; rank < shape->n_ranks; rank += n_run) {
        n_run = run_of(shape, rank);
        first[host_of[rank] + 1] = (uint16_t)(first[host_of[rank] + 1] + n_run);
    }
    for (unsigned host = 1; host <= n_hosts; host++)
        first[host] = (uint16_t)(first[host] + first[host - 1]);
    for (unsigned rank = 0, n_run; rank < shape->n_ranks; rank += n_run) {
        const unsigned at = first[host_of[rank]];
        n_run = run_of(shape, rank);
        for (unsigned i = 0; i < n_run; i++)
            order[at + i] = (uint16_t)(rank + i);
        first[host_of[rank]] = (uint16_t)(at + n_run);
    }
    for (unsigned host = n_hosts; host > 0; host--)
        first[host] = first[host - 1];
    first[0] = 0;
}

struct gyre_hosts *gyre_hosts_make(const struct gyre_shape *shape, bool apart)
{
    const unsigned n_ranks = shape->n_ranks;
    const bool is_one = !apart && (shape->grouping == NULL || shape->grouping->n_hosts == 1);
    const unsigned n_hosts = apart ? n_ranks : is_one ? 1 : shape->grouping->n_hosts;
    const size_t n_words = (size_t)n_hosts + 1 + n_ranks;
    struct gyre_hosts *hosts = calloc(1, sizeof(*hosts) + n_words * sizeof(uint16_t));
    if (hosts == NULL)
        return NULL;
    uint16_t *first = (uint16_t *)(hosts + 1);
    uint16_t *order = first + n_hosts + 1;
    *hosts = (struct gyre_hosts){.n_ranks = (int)n_ranks,
                                 .n_hosts = (int)n_hosts,
                                 .n_variants = gyre_hosts_variants(shape),
                                 .first = first,
                                 .order = order};
    if (apart || is_one) {
        for (unsigned rank = 0; rank < n_ranks; rank++)
            order[rank] = (uint16_t)rank;
        for (unsigned host = 1; host <= n_hosts; host++)
            first[host] = (uint16_t)(apart ? host : n_ranks);
    } else {
        sort_by_host(shape, first, order, n_hosts);
    }
    return hosts;
}

int gyre_hosts_rank(const struct gyre_hosts *hosts, int host, int position)
{
    const int size = gyre_hosts_size(hosts, host);
    return hosts->order[hosts->first[host] + (position % size + size) % size];
}

void gyre_hosts_find(const struct gyre_hosts *hosts, int rank, int *host_out, int *position_out)
{
    int at = 0, host = 0;
    while (hosts->order[at] != rank)
        at++;
    while (hosts->first[host + 1] <= at)
        host++;
    *host_out = host;
    *position_out = at - hosts->first[host];
}

int gyre_hosts_at_rail(const struct gyre_hosts *hosts, int host, int rail, int n_rails)
{
    return rail % n_rails * gyre_hosts_size(hosts, host) / n_rails;
}

const struct gyre_hosts *gyre_hosts_open(const struct gyre_shape *shape, bool apart,
                                         struct gyre_builder *builder)
{
    return gyre_builder_keep(builder, gyre_hosts_make(shape, apart));
}

/* With an odd number of hosts the last crossing would use the rail of the first one. */
static int crossing(const struct gyre_hosts *hosts, int variant, int i)
{
    const bool meets_first = i == hosts->n_hosts - 1 && i % 2 == 0;
    return variant + (meets_first ? 2 : i % 2);
}

/* Without a division, because a simulation of many hosts walks for each rank. */
static int walk_host(const struct gyre_hosts *hosts, int host, int enter, int leave,
                     uint16_t *order_out)
{
    const int size = gyre_hosts_size(hosts, host);
    const uint16_t *ranks = &hosts->order[hosts->first[host]];
    const int stride = size > 2 && leave == (enter + 1) % size ? size - 1 : 1;
    int n = 0, position = enter % size;
    for (int i = 0; i < size; i++) {
        if (i == 0 || position != leave)
            order_out[n++] = ranks[position];
        position += stride;
        position -= position >= size ? size : 0;
    }
    if (n < size)
        order_out[n++] = ranks[leave];
    return n;
}

/* A ring leaves at the position before it entered if there is one variant, or if both crossings are
 * at the same rank. */
static int leave_at(const struct gyre_hosts *hosts, int host, int enter, int rail)
{
    const int size = gyre_hosts_size(hosts, host);
    const int leave = gyre_hosts_at_rail(hosts, host, rail, hosts->n_variants);
    return hosts->n_variants == 1 || leave == enter ? (enter + size - 1) % size : leave;
}

static void order_ring(const struct gyre_hosts *hosts, int variant, uint16_t *order_out)
{
    const int n_variants = hosts->n_variants;
    int rail = crossing(hosts, variant, hosts->n_hosts - 1);
    for (int host = 0, n = 0; host < hosts->n_hosts; host++) {
        const int enter = gyre_hosts_at_rail(hosts, host, rail, n_variants);
        rail = crossing(hosts, variant, host);
        n += walk_host(hosts, host, enter, leave_at(hosts, host, enter, rail), &order_out[n]);
    }
}

/* The root's host comes first. If the variant crosses at the root's own rail, the root sends
 * straight to the next host, and the rest of its host comes last. */
static void order_from_root(const struct gyre_hosts *hosts, int variant, int root,
                            uint16_t *order_out)
{
    const int n_variants = hosts->n_variants;
    int root_host, root_at, n = 0;
    gyre_hosts_find(hosts, root, &root_host, &root_at);
    const int root_leave = gyre_hosts_at_rail(hosts, root_host, variant, n_variants);
    const bool is_direct = n_variants > 1 && root_leave == root_at;
    if (is_direct)
        order_out[n++] = (uint16_t)root;
    else
        n = walk_host(hosts, root_host, root_at, leave_at(hosts, root_host, root_at, variant),
                      order_out);
    for (int i = 1; i < hosts->n_hosts; i++) {
        const int host = (root_host + i) % hosts->n_hosts;
        const int enter = gyre_hosts_at_rail(hosts, host, variant + (i - 1) % 2, n_variants);
        const int leave = leave_at(hosts, host, enter, variant + i % 2);
        n += walk_host(hosts, host, enter, leave, &order_out[n]);
    }
    const int rail = variant + (hosts->n_hosts - 1) % 2; /* out of the last host */
    const int back = gyre_hosts_at_rail(hosts, root_host, rail, n_variants);
    const int first = back == root_at ? root_at + 1 : back;
    for (int i = 0; is_direct && i < gyre_hosts_size(hosts, root_host); i++) {
        const int rank = gyre_hosts_rank(hosts, root_host, first + i);
        if (rank != root)
            order_out[n++] = (uint16_t)rank;
    }
}

static void reverse(uint16_t *order, int n)
{
    for (int i = 0, j = n - 1; i < j; i++, j--) {
        const uint16_t rank = order[i];
        order[i] = order[j];
        order[j] = rank;
    }
}

void gyre_hosts_ring(const struct gyre_hosts *hosts, const struct gyre_shape *shape,
                     uint16_t *order_out)
{
    const int n = hosts->n_ranks;
    if (!gyre_collectives[shape->coll].has_root) {
        order_ring(hosts, shape->variant, order_out);
        return;
    }
    order_from_root(hosts, shape->variant, shape->root, order_out);
    if (shape->coll != GYRE_COLL_REDUCE)
        return;
    /* On one host the chain keeps the ring's direction, in which slots are large. */
    if (hosts->n_hosts == 1)
        reverse(&order_out[1], n - 1);
    reverse(order_out, n);
}

static void print_ring(const struct gyre_hosts *hosts, const uint16_t *order, FILE *file)
{
    int host, next_host, position;
    for (int i = 0; i < hosts->n_ranks; i++) {
        fprintf(file, "%s%d", i > 0 ? " " : "", order[i]);
        gyre_hosts_find(hosts, order[(i + 1) % hosts->n_ranks], &next_host, &position);
        gyre_hosts_find(hosts, order[i], &host, &position);
        if (next_host != host)
            fprintf(file, " | rail %d%s",
                    position * hosts->n_variants / gyre_hosts_size(hosts, host),
                    i + 1 < hosts->n_ranks ? " |" : "");
    }
}

gyre_status gyre_ring_to_text(const struct gyre_shape *shape, char **text_out)
{
    struct gyre_hosts *hosts = gyre_hosts_make(shape, false);
    uint16_t *order = calloc(shape->n_ranks, sizeof(*order));
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *file = open_memstream(&text, &n_bytes);
    bool is_whole = hosts != NULL && order != NULL && file != NULL;
    if (is_whole) {
        gyre_hosts_ring(hosts, shape, order);
        print_ring(hosts, order, file);
    }
    if (file != NULL)
        is_whole = fclose(file) == 0 && is_whole;
    free(order);
    free(hosts);
    if (!is_whole) {
        free(text);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to print a ring");
    }
    *text_out = text;
    return GYRE_SUCCESS;
}
