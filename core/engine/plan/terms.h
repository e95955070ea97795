/* SPDX-License-Identifier: Apache-2.0
 *
 * The algorithms, protocols and channels that a call's caller allows, within GYRE_ALGO, GYRE_PROTO
 * and the communicator's.
 */
#ifndef GYRE_PLAN_TERMS_H
#define GYRE_PLAN_TERMS_H

#include "core/foundation/model/types.h"

/* Zeros = no terms. Compared byte by byte. */
struct gyre_call_terms {
    uint32_t algorithms; /* bit i = gyre_algorithms[i]; 0 = all */
    uint32_t protos;     /* bit i = enum gyre_proto; 0 = all */
    uint8_t min_channels;
    uint8_t max_channels;
    uint8_t prefers; /* 1: all are allowed if these cannot carry out the call */
    uint8_t zero;
};

_Static_assert(sizeof(struct gyre_call_terms) == 12, "no padding");

struct gyre_filter;
struct gyre_tuner_facts;

/** An empty list, and with args->prefers an unknown algorithm, is as NULL. Errors: INVALID_ARGUMENT
 * with the word or number and the legal ones. */
gyre_status gyre_call_terms_parse(enum gyre_collective coll, const gyre_call_args *args,
                                  struct gyre_call_terms *terms_out);

static inline bool gyre_call_terms_any(const struct gyre_call_terms *terms)
{
    return (terms->algorithms | terms->protos | terms->min_channels | terms->max_channels) != 0;
}

/** 0 if there are no terms. */
uint32_t gyre_call_terms_hash(const struct gyre_call_terms *terms);

/** The communicator's channels count where the terms have none in common with them. */
void gyre_call_terms_apply(const struct gyre_call_terms *terms, enum gyre_collective coll,
                           struct gyre_filter *filter, struct gyre_tuner_facts *facts);

#endif
