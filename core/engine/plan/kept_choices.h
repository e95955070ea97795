/* SPDX-License-Identifier: Apache-2.0
 *
 * Choices that were made by prediction. They are kept, because a prediction takes too long to be
 * repeated for each call. A choice is a pure function of its key, so a rank that has dropped a
 * choice makes the same choice again, and ranks need not drop the same ones.
 */
#ifndef GYRE_PLAN_KEPT_CHOICES_H
#define GYRE_PLAN_KEPT_CHOICES_H

#include "core/engine/plan/terms.h"
#include "core/engine/plan/tuner/tuner.h"

/* The facts about a call on which a choice by prediction depends. */
struct gyre_choice_key {
    enum gyre_collective coll;
    const struct gyre_algorithm *given; /* from a file; NULL = the choice is free */
    struct gyre_call_terms terms;
    bool in_window;
    bool has_lamport;
    uint64_t class_bytes;
};

#define GYRE_KEPT_ROWS    64
#define GYRE_KEPT_PER_ROW 8

/* A hash table of rows. Zeros = nothing is kept. A row has its choices in the order of their last
 * use. A new choice takes the place of the one in its row that was not used for the longest time.
 * So a search compares at most GYRE_KEPT_PER_ROW keys, and the table never grows. Only the caller's
 * thread of the communicator uses it. */
struct gyre_kept_choices {
    struct gyre_kept_row {
        uint32_t n_kept;
        struct gyre_kept_choice {
            struct gyre_choice_key key;
            struct gyre_choice choice;
        } kept[GYRE_KEPT_PER_ROW];
    } rows[GYRE_KEPT_ROWS];
};

/** gyre_kept_choices_find - the choice for a key; NULL if none is kept. It counts as used now. The
 * pointer is valid until the next call of a function of this table. */
const struct gyre_choice *gyre_kept_choices_find(struct gyre_kept_choices *choices,
                                                 const struct gyre_choice_key *key);

/** gyre_kept_choices_keep - keep a choice for a key for which none is kept. */
void gyre_kept_choices_keep(struct gyre_kept_choices *choices, const struct gyre_choice_key *key,
                            const struct gyre_choice *choice);

/** gyre_kept_choices_forget - forget all choices, because calls may get different ones now. */
void gyre_kept_choices_forget(struct gyre_kept_choices *choices);

#endif
