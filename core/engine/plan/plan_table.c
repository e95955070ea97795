/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/plan/plan_table.h"

#include "core/foundation/base/util.h"

#include <stdlib.h>
#include <string.h>

/* Multilinear hashing (Carter and Wegman, 1979): the products do not wait for each other, and the
 * sum's top bits depend on the whole key. Loads wider than the fields just written would wait for
 * the stores, 10 ns a call. */
static struct gyre_plan **set_of(struct gyre_plan_table *table, const struct gyre_plan_key *key)
{
    const struct gyre_call_terms *terms = &key->terms;
    const uint64_t hash = key->count * 0x9e3779b97f4a7c15 +
                          ((uint64_t)terms->algorithms << 32 | terms->protos) * 0xbf58476d1ce4e5b9 +
                          ((uint64_t)key->settings << 32 | (uint32_t)terms->min_channels << 16 |
                           (uint32_t)terms->max_channels << 8 | terms->prefers) *
                              0x94d049bb133111eb +
                          ((uint64_t)(uint32_t)key->root << 32 | (uint32_t)key->flags << 16 |
                           (uint32_t)key->dtype << 8 | key->op) *
                              0xd6e8feb86659fd93 +
                          key->coll * 0xff51afd7ed558ccd;
    return table->sets[hash >> 55];
}

_Static_assert(GYRE_PLAN_SETS == 1 << (64 - 55), "as many as set_of() tells apart");

const struct gyre_plan *gyre_plan_table_find(struct gyre_plan_table *table,
                                             const struct gyre_plan_key *key)
{
    struct gyre_plan **set = set_of(table, key);
    for (int i = 0; i < GYRE_PLAN_PER_SET && set[i] != NULL; i++) {
        struct gyre_plan *plan = set[i];
        if (!(plan->key.count == key->count &&
              plan->key.terms.algorithms == key->terms.algorithms &&
              plan->key.terms.protos == key->terms.protos &&
              plan->key.terms.min_channels == key->terms.min_channels &&
              plan->key.terms.max_channels == key->terms.max_channels &&
              plan->key.terms.prefers == key->terms.prefers &&
              plan->key.settings == key->settings && plan->key.root == key->root &&
              plan->key.flags == key->flags && plan->key.coll == key->coll &&
              plan->key.dtype == key->dtype && plan->key.op == key->op))
            continue;
        for (; i > 0; i--)
            set[i] = set[i - 1];
        set[0] = plan;
        return plan;
    }
    return NULL;
}

void gyre_plan_table_add(struct gyre_plan_table *table, struct gyre_plan *plan)
{
    struct gyre_plan **set = set_of(table, &plan->key);
    struct gyre_plan *last = set[GYRE_PLAN_PER_SET - 1];
    if (last != NULL) {
        last->next = table->replaced;
        table->replaced = last;
    }
    memmove(&set[1], &set[0], (GYRE_PLAN_PER_SET - 1) * sizeof(set[0]));
    set[0] = plan;
}

static void free_plan(struct gyre_plan *plan)
{
    if (plan != NULL)
        gyre_ready_free(plan->ready);
    free(plan);
}

void gyre_plan_table_sweep(struct gyre_plan_table *table)
{
    while (table->replaced != NULL) {
        struct gyre_plan *plan = table->replaced;
        table->replaced = plan->next;
        free_plan(plan);
    }
}

void gyre_plan_table_close(struct gyre_plan_table *table)
{
    gyre_plan_table_sweep(table);
    for (size_t i = 0; i < GYRE_PLAN_SETS; i++)
        for (size_t k = 0; k < GYRE_PLAN_PER_SET; k++)
            free_plan(table->sets[i][k]);
    memset(table, 0, sizeof(*table));
}
