/* SPDX-License-Identifier: Apache-2.0
 *
 * A call on its way from the API to a work, and the windows: buffers that all ranks can write to.
 * Registering is collective, so windows have the same numbers on all ranks.
 */
#ifndef GYRE_PLAN_CALL_H
#define GYRE_PLAN_CALL_H

#include "core/foundation/model/types.h"
#include "core/engine/plan/terms.h"
#include "kernels/executor.h"

struct gyre_observed;
struct gyre_share_mapping;

struct gyre_window_entry {
    struct gyre_window_entry *next;      /* the next older one */
    uint32_t number;                     /* from 1 */
    unsigned char *base;                 /* this rank's */
    uint64_t n_bytes;                    /* the smallest rank's */
    struct gyre_share_mapping *mappings; /* by rank */
    void **bases;                        /* by rank */
    bool is_remote; /* some rank's base is NULL: it has no address here. The same on all ranks */
    bool has_large_pages; /* on all ranks, as the others map it */
    int8_t residue;       /* of all bases modulo 16; -1 = they differ */
    struct gyre_placement placement;
};

struct gyre_windows {
    struct gyre_window_entry *newest;
    uint32_t n_made;
};

struct gyre_call {
    enum gyre_collective coll;
    const void *send;
    void *recv;
    uint64_t count;
    gyre_dtype dtype;
    gyre_op op;
    int root;     /* or the peer; -1 without one */
    bool is_send; /* SEND_RECV */
    gyre_stream stream;
    uint64_t scalar; /* of a user's op, which may be gone before the group ends */
    struct gyre_call_terms terms;
    /* By gyre_window_find(), right before planning. */
    const struct gyre_window_entry *window; /* that holds recv; or NULL */
    uint64_t window_offset;                 /* of recv */
    struct gyre_observed *observed;         /* core/engine/call/batch.h; or NULL */
};

/** The newest one that holds the result and that all ranks address, for collectives whose result
 * has one size and place on all ranks: all-reduce, all-gather, all-to-all and broadcast. Valid
 * until deregistered, which no thread does during a call. */
void gyre_window_find(const struct gyre_windows *windows, uint32_t n_ranks, struct gyre_call *call);

/** An average is a sum with a factor ahead (floating point) or a division after it (integers), a
 * user's operation a sum with its factor. Without a reduction: a sum of one summand. */
struct gyre_reduction gyre_call_reduction(const struct gyre_call *call, uint32_t n_ranks);

#endif
