/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of choices that were made by prediction (kept_choices.h).
 */
#include "core/engine/plan/kept_choices.h"

#include "core/foundation/base/util.h"

#include <string.h>

static struct gyre_kept_row *row_of(struct gyre_kept_choices *choices,
                                    const struct gyre_choice_key *key)
{
    /* Field by field: the bytes between the fields have no defined value. */
    uint64_t hash = gyre_hash(GYRE_HASH_INIT, &key->coll, sizeof(key->coll));
    hash = gyre_hash(hash, &key->given, sizeof(key->given));
    hash = gyre_hash(hash, &key->terms, sizeof(key->terms));
    hash = gyre_hash(hash, &key->in_window, sizeof(key->in_window));
    hash = gyre_hash(hash, &key->has_lamport, sizeof(key->has_lamport));
    hash = gyre_hash(hash, &key->class_bytes, sizeof(key->class_bytes));
    return &choices->rows[(hash ^ hash >> 32) % GYRE_KEPT_ROWS];
}

static bool is_same_key(const struct gyre_choice_key *a, const struct gyre_choice_key *b)
{
    return a->coll == b->coll && a->given == b->given && a->in_window == b->in_window &&
           a->has_lamport == b->has_lamport && a->class_bytes == b->class_bytes &&
           memcmp(&a->terms, &b->terms, sizeof(a->terms)) == 0;
}

/* Moves the choices before `place` one place back, and puts this one first. */
static void put_first(struct gyre_kept_row *row, uint32_t place,
                      const struct gyre_kept_choice *kept)
{
    const struct gyre_kept_choice first = *kept; /* which may be at `place` */
    memmove(&row->kept[1], &row->kept[0], place * sizeof(row->kept[0]));
    row->kept[0] = first;
}

const struct gyre_choice *gyre_kept_choices_find(struct gyre_kept_choices *choices,
                                                 const struct gyre_choice_key *key)
{
    struct gyre_kept_row *row = row_of(choices, key);
    for (uint32_t place = 0; place < row->n_kept; place++) {
        if (!is_same_key(&row->kept[place].key, key))
            continue;
        put_first(row, place, &row->kept[place]);
        return &row->kept[0].choice;
    }
    return NULL;
}

void gyre_kept_choices_keep(struct gyre_kept_choices *choices, const struct gyre_choice_key *key,
                            const struct gyre_choice *choice)
{
    struct gyre_kept_row *row = row_of(choices, key);
    const struct gyre_kept_choice kept = {.key = *key, .choice = *choice};
    if (row->n_kept < GYRE_KEPT_PER_ROW)
        row->n_kept++;
    put_first(row, row->n_kept - 1, &kept);
}

void gyre_kept_choices_forget(struct gyre_kept_choices *choices)
{
    for (uint32_t i = 0; i < GYRE_KEPT_ROWS; i++)
        choices->rows[i].n_kept = 0;
}
