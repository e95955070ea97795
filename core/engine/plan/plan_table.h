/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan says how all calls with one key are carried out, and never changes.
 */
#ifndef GYRE_PLAN_PLAN_TABLE_H
#define GYRE_PLAN_PLAN_TABLE_H

#include "core/engine/plan/call.h"
#include "core/engine/plan/tuner/tuner.h"

struct gyre_variants;

enum {
    GYRE_KEY_SEND = 1 << 0,
    GYRE_KEY_IN_PLACE = 1 << 1,
    GYRE_KEY_ALIGNED = 1 << 2, /* both buffers and a block, to 16 bytes */
    GYRE_KEY_IN_WINDOW = 1 << 3,
    GYRE_KEY_LARGE_PAGES = 1 << 4,    /* of that window, on all ranks */
    GYRE_KEY_WINDOW_ALIGNED = 1 << 5, /* the result's address to 16 bytes, on all ranks */
};

/* All that a call's plan and kernel depend on, without pointers, so calls with other buffers share
 * it. IN_PLACE and both ALIGNED bits are this rank's own: a choice that all ranks make alike never
 * reads them. */
struct gyre_plan_key {
    uint64_t count; /* of the vector, or of one block */
    struct gyre_call_terms terms;
    uint32_t settings; /* a new number whenever a choice may change */
    int32_t root;      /* or the peer; -1 without one */
    uint16_t flags;
    uint8_t coll;
    uint8_t dtype;
    uint8_t op; /* GYRE_SUM without a reduction, GYRE_FIRST_USER_OP for every user's */
};

struct gyre_plan {
    struct gyre_plan_key key;
    struct gyre_choice choice;
    const struct gyre_variants *variants;
    struct gyre_ready *ready; /* how this rank runs it */
    uint64_t scalar;          /* of the reduction, unless it is a user's */
    bool is_placed;           /* results go into windows */
    bool waits;               /* for other ranks */
    struct gyre_plan *next;   /* of replaced plans */
};

#define GYRE_PLAN_SETS    512
#define GYRE_PLAN_PER_SET 4

/* Zeros = empty. A set is in the order of last use, and a new plan replaces the one unused for
 * longest: a search compares at most four keys, and the table never grows. 256 keys almost never
 * meet in one set. */
struct gyre_plan_table {
    struct gyre_plan *sets[GYRE_PLAN_SETS][GYRE_PLAN_PER_SET];
    struct gyre_plan *replaced; /* a batch may still refer to them */
};

/** The plan counts as used now. */
const struct gyre_plan *gyre_plan_table_find(struct gyre_plan_table *table,
                                             const struct gyre_plan_key *key);

/** The table owns the plan. No plan with its key is there. */
void gyre_plan_table_add(struct gyre_plan_table *table, struct gyre_plan *plan);

/** Frees replaced plans. */
void gyre_plan_table_sweep(struct gyre_plan_table *table);

void gyre_plan_table_close(struct gyre_plan_table *table);

#endif
