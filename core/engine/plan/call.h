/* SPDX-License-Identifier: Apache-2.0
 *
 * A call on its way from the API to a work, and the windows that its result may lie in. A window is
 * a buffer of every rank that all ranks can write to. Windows have the same numbers on all ranks,
 * because registering one is collective.
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
    unsigned char *base;                 /* this rank's buffer */
    uint64_t n_bytes;                    /* of the smallest buffer of any rank */
    struct gyre_share_mapping *mappings; /* by rank */
    void **bases;                        /* by rank, this rank's own included */
    bool is_remote;                      /* this rank cannot address the buffer of some rank: its
                                          * base is NULL. The same on all ranks */
    bool has_large_pages;                /* on all ranks, as the other ranks map it: window.c */
    int8_t residue;                      /* of all bases modulo 16; -1 = they differ */
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
    int root;     /* or the peer; -1 where there is none */
    bool is_send; /* SEND_RECV */
    gyre_stream stream;
    uint64_t scalar; /* of a user's op, which may be gone before the group ends */
    struct gyre_call_terms terms;
    /* By gyre_window_find(), once, right before the call is planned. */
    const struct gyre_window_entry *window; /* that holds recv; NULL = none does */
    uint64_t window_offset;                 /* of recv in it; 0 without one */
    struct gyre_observed *observed;         /* core/engine/call/caller.h; NULL = no observer */
};

/** gyre_window_find - fill in the call's window: the newest one that holds its result, among those
 * whose buffers all ranks address. Only all-reduce, all-gather, all-to-all and broadcast have one,
 * because every rank has a result of the same size, at the same place of its buffer. The window
 * stays valid until it is deregistered, which no thread does during a call. */
void gyre_window_find(const struct gyre_windows *windows, uint32_t n_ranks, struct gyre_call *call);

/** gyre_call_reduction - the reduction that executors carry out for the call's operation, among
 * @n_ranks ranks. An average becomes a sum with a factor ahead of it (floating point) or a division
 * after it (integers), and an operation of the user becomes a sum with that factor. Collectives
 * that do not reduce get a sum of one summand. */
struct gyre_reduction gyre_call_reduction(const struct gyre_call *call, uint32_t n_ranks);

#endif
