/* SPDX-License-Identifier: Apache-2.0
 *
 * The maximum of a list of snapshots that have vectors. The list has a place for each worker's
 * entry, and is split as a binary tree over these places splits it, and the maximum of each two
 * branches is remembered. So lists that have most of their snapshots in common, such as those of
 * all ranks of an all-pairs program, cost one pass over the list and few comparisons of vectors.
 */
#ifndef GYRE_ALGORITHMS_VERIFY_JOINS_H
#define GYRE_ALGORITHMS_VERIFY_JOINS_H

#include "algorithms/verify/snapshots.h"

struct gyre_joins;

/** gyre_joins_open - a store that remembers at most `n_most` maxima. Errors: OUT_OF_MEMORY. */
gyre_status gyre_joins_open(struct gyre_snapshots *snapshots, uint32_t n_most,
                            struct gyre_joins **joins_out);
void gyre_joins_close(struct gyre_joins *joins);

/** gyre_joins_add - raise `times` to the maximum of a list.
 * @list: by entry: a snapshot that has a vector, or GYRE_NO_SNAPSHOT. Afterwards none of them is
 * set. */
void gyre_joins_add(struct gyre_joins *joins, uint32_t *list, uint32_t n_entries, void *times);

/** gyre_joins_forget - release all that is remembered. */
void gyre_joins_forget(struct gyre_joins *joins);

#endif
