/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans, and the table in which a communicator keeps them. A plan says how all calls with one key
 * are carried out. It never changes once it is made.
 */
#ifndef GYRE_PLAN_PLAN_TABLE_H
#define GYRE_PLAN_PLAN_TABLE_H

#include "core/engine/plan/call.h"
#include "core/engine/plan/tuner/tuner.h"

struct gyre_variants;

/* The bits of a key's flags. */
enum {
    GYRE_KEY_SEND = 1 << 0,
    GYRE_KEY_IN_PLACE = 1 << 1,       /* this rank's result replaces its input */
    GYRE_KEY_ALIGNED = 1 << 2,        /* both buffers and a block are multiples of 16 bytes */
    GYRE_KEY_IN_WINDOW = 1 << 3,      /* the result lies in a window */
    GYRE_KEY_LARGE_PAGES = 1 << 4,    /* of that window, on all ranks */
    GYRE_KEY_WINDOW_ALIGNED = 1 << 5, /* the result's addresses on all ranks are multiples of 16 */
};

/* The key of a call: everything on which its plan and the kernel that runs it depend. It has no
 * pointer, so calls with other buffers have the same key. IN_PLACE and the two ALIGNED bits are
 * this rank's own: a choice that all ranks must make alike never reads them. */
struct gyre_plan_key {
    uint64_t count; /* elements of the vector, or of one block */
    struct gyre_call_terms terms;
    uint32_t settings; /* of the communicator: a new number whenever a choice may change */
    int32_t root;      /* or the peer; -1 where there is none */
    uint16_t flags;
    uint8_t coll;
    uint8_t dtype;
    uint8_t op; /* GYRE_SUM where nothing is reduced; GYRE_FIRST_USER_OP for every user operation */
};

struct gyre_plan {
    struct gyre_plan_key key;
    struct gyre_choice choice;
    const struct gyre_variants *variants;
    struct gyre_work work;  /* without what each call brings: buffers, placement, a user's scalar */
    bool is_placed;         /* the program writes results into windows */
    bool waits;             /* the call waits for other ranks */
    struct gyre_plan *next; /* in the table's list of replaced plans */
};

#define GYRE_PLAN_SETS    512
#define GYRE_PLAN_PER_SET 4

/* A hash table of sets. Zeros = it is empty. A set has its plans in the order of their last use,
 * and a new plan takes the place of the one that was not used for the longest time. So a search
 * compares at most four keys, and the table never grows. There are so many sets that 256 keys
 * almost never meet in one. Only the caller's thread uses it. */
struct gyre_plan_table {
    struct gyre_plan *sets[GYRE_PLAN_SETS][GYRE_PLAN_PER_SET];
    struct gyre_plan *replaced; /* plans without a place, which a batch may still refer to */
};

/** gyre_plan_table_find - the plan of a key, which counts as used now; NULL if there is none. */
const struct gyre_plan *gyre_plan_table_find(struct gyre_plan_table *table,
                                             const struct gyre_plan_key *key);

/** gyre_plan_table_add - the table owns the plan from now on. No plan with its key is there. */
void gyre_plan_table_add(struct gyre_plan_table *table, struct gyre_plan *plan);

/** gyre_plan_table_sweep - free the plans that were replaced. Pointers to plans from before are
 * invalid from now on. */
void gyre_plan_table_sweep(struct gyre_plan_table *table);

void gyre_plan_table_close(struct gyre_plan_table *table);

#endif
