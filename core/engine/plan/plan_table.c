/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/plan/plan_table.h"

#include "core/foundation/base/util.h"

#include <stdlib.h>
#include <string.h>

static struct gyre_plan **set_of(struct gyre_plan_table *table, const struct gyre_plan_key *key)
{
    /* Folding moves high bits down, which a product never does. */
    uint64_t words[sizeof(*key) / sizeof(uint64_t)], hash = GYRE_HASH_INIT;
    memcpy(words, key, sizeof(words));
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(words); i++) {
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15ULL;
        hash ^= hash >> 32;
    }
    return table->sets[hash % GYRE_PLAN_SETS];
}

const struct gyre_plan *gyre_plan_table_find(struct gyre_plan_table *table,
                                             const struct gyre_plan_key *key)
{
    struct gyre_plan **set = set_of(table, key);
    for (int i = 0; i < GYRE_PLAN_PER_SET && set[i] != NULL; i++) {
        struct gyre_plan *plan = set[i];
        if (memcmp(&plan->key, key, sizeof(*key)) != 0)
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

void gyre_plan_table_sweep(struct gyre_plan_table *table)
{
    while (table->replaced != NULL) {
        struct gyre_plan *plan = table->replaced;
        table->replaced = plan->next;
        free(plan);
    }
}

void gyre_plan_table_close(struct gyre_plan_table *table)
{
    gyre_plan_table_sweep(table);
    for (size_t i = 0; i < GYRE_PLAN_SETS; i++)
        for (size_t k = 0; k < GYRE_PLAN_PER_SET; k++)
            free(table->sets[i][k]);
    memset(table, 0, sizeof(*table));
}
