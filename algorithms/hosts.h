/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of a shape, host after host. From this list algorithms derive the ranks at which data
 * cross between hosts in each variant, and the order of ranks in which a ring or a chain passes
 * data on.
 */
#ifndef GYRE_ALGORITHMS_HOSTS_H
#define GYRE_ALGORITHMS_HOSTS_H

#include "core/foundation/model/schedule.h"

/* A host's ranks are numbered by position, in ascending order of rank. Hosts are in order of their
 * lowest rank. */
struct gyre_hosts {
    int n_ranks;
    int n_hosts;
    int n_variants;        /* as gyre_hosts_variants() */
    const uint16_t *first; /* host i has order[first[i]] to order[first[i + 1] - 1] */
    const uint16_t *order; /* all ranks, host after host */
};

/** gyre_hosts_make - the hosts of a shape. Returns malloc'ed memory, or NULL when there is none.
 * @apart: every rank counts as a host of its own. */
struct gyre_hosts *gyre_hosts_make(const struct gyre_shape *shape, bool apart);

/** gyre_hosts_open - find the hosts of a shape for an algorithm. The memory belongs to @builder,
 * and the builder remembers the error if there is no memory. */
const struct gyre_hosts *gyre_hosts_open(const struct gyre_shape *shape, bool apart,
                                         struct gyre_builder *builder);

/** gyre_hosts_variants - how many variants a ring or a tree needs so that every NIC carries its
 * share: one for each NIC that the ranks of a host use. 1 if all ranks are on one host. */
int gyre_hosts_variants(const struct gyre_shape *shape);

/** gyre_hosts_rails - the number of rails, which is the number of ranks of the smallest host. A
 * rail takes one rank of each host, so more rails would share ranks. On a single host: all its
 * ranks. */
int gyre_hosts_rails(const struct gyre_shape *shape);

/** gyre_hosts_size - how many ranks a host has. */
static inline int gyre_hosts_size(const struct gyre_hosts *hosts, int host)
{
    return hosts->first[host + 1] - hosts->first[host];
}

/** gyre_hosts_rank - the rank at a position of a host. @position: any number, taken modulo the
 * host's size. */
int gyre_hosts_rank(const struct gyre_hosts *hosts, int host, int position);

/** gyre_hosts_find - the host and the position of a rank. */
void gyre_hosts_find(const struct gyre_hosts *hosts, int rank, int *host_out, int *position_out);

/** gyre_hosts_at_rail - the position on a host of the rank that uses rail @rail of @n_rails rails.
 * The host may have more or fewer ranks than there are rails. @rail: taken modulo @n_rails. */
int gyre_hosts_at_rail(const struct gyre_hosts *hosts, int host, int rail, int n_rails);

/** gyre_hosts_ring - the order of ranks in which the ring of the shape's variant passes data on;
 * for broadcast a chain that begins at the root, for reduce a chain that ends there. The ranks of a
 * host follow each other. Neighbouring hosts are joined at the same position: variant v crosses
 * from host i to host i + 1 at rail v if i is even, else at rail v + 1, so that over all variants
 * every rank of a host sends to other hosts as often as it receives from them.
 * @order_out: n_ranks entries. */
void gyre_hosts_ring(const struct gyre_hosts *hosts, const struct gyre_shape *shape,
                     uint16_t *order_out);

#endif
