/* SPDX-License-Identifier: Apache-2.0
 *
 * A call on its way from the API to a work, and the windows: buffers that all ranks can write to.
 * Registering is collective, so windows have the same numbers on all ranks.
 */
#ifndef GYRE_PLAN_CALL_H
#define GYRE_PLAN_CALL_H

#include "core/foundation/model/types.h"
#include "kernels/executor.h"

/* What a call's caller allows, within GYRE_ALGO, GYRE_PROTO and the communicator's channels. Zeros
 * = no options. Compared byte by byte. */
struct gyre_call_options {
    uint32_t algorithms; /* bit i = gyre_algorithms[i]; 0 = all */
    uint32_t protos;     /* bit i = enum gyre_proto; 0 = all */
    uint8_t min_channels;
    uint8_t max_channels;
    uint8_t prefers; /* 1: all are allowed if these cannot carry out the call */
    uint8_t zero;
};

_Static_assert(sizeof(struct gyre_call_options) == 12, "no padding");

struct gyre_filter;
struct gyre_tuner_facts;

/** An empty list, and with args->prefers an unknown algorithm, is as NULL. Errors: INVALID_ARGUMENT
 * with the word or number and the legal ones. */
gyre_status gyre_call_options_parse(enum gyre_collective coll, const gyre_call_args *args,
                                    struct gyre_call_options *options_out);

static inline bool gyre_call_options_any(const struct gyre_call_options *options)
{
    return (options->algorithms | options->protos | options->min_channels |
            options->max_channels) != 0;
}

/** 0 if there are no options. */
uint32_t gyre_call_options_hash(const struct gyre_call_options *options);

/** The communicator's channels count where the options have none in common with them. */
void gyre_call_options_apply(const struct gyre_call_options *options, enum gyre_collective coll,
                             struct gyre_filter *filter, struct gyre_tuner_facts *facts);

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
    struct gyre_call_options options;
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
