/* SPDX-License-Identifier: Apache-2.0
 *
 * Hash-consed expressions and sets of ranks (algorithms/verify/values.h). All data are in arrays
 * that only grow, and are freed together when the verifier has finished.
 */
#include "algorithms/verify/values.h"

#include "core/base/status.h"

#include <stdlib.h>
#include <string.h>

/* Open addressing, a power of two long, at most half full; 0 = free. */
struct index {
    uint32_t *ids;
    uint32_t n_slots;
    uint32_t n_used;
};

struct gyre_values {
    unsigned n_ranks;
    unsigned n_words; /* of a set */
    struct gyre_value *values;
    uint32_t n_values, values_capacity;
    uint32_t *operands;
    uint32_t n_operands, operands_capacity;
    uint64_t *sets; /* n_words each */
    uint32_t n_sets, sets_capacity;
    uint64_t *scratch_set;
    struct index value_index, set_index;
};

/* A hash that multiplies and folds. The verifier searches the tables for every step, and FNV, which
 * works byte by byte, would take most of the run. The constant is 2^64 divided by the golden ratio,
 * made odd. */
static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    return hash ^ hash >> 29;
}

static uint64_t hash_value(const struct gyre_value *value, const uint32_t *operands)
{
    uint64_t hash = mix((uint64_t)value->n_ins << 1 | value->is_final,
                        (uint64_t)value->chunk << 32 | value->tile);
    const unsigned n = value->n_ins == 0 ? 1 : value->n_ins;
    for (unsigned i = 0; i < n; i++)
        hash = mix(hash, operands[i]);
    return hash;
}

static uint64_t hash_set(const struct gyre_values *values, const uint64_t *set)
{
    uint64_t hash = 0;
    for (unsigned i = 0; i < values->n_words; i++)
        hash = mix(hash, set[i]);
    return hash;
}

static bool reserve(void **array, uint32_t *capacity, uint64_t n_needed, size_t item_bytes)
{
    if (n_needed <= *capacity)
        return true;
    uint64_t bigger = *capacity == 0 ? 256 : *capacity;
    while (bigger < n_needed)
        bigger *= 2;
    if (bigger > UINT32_MAX)
        return false;
    void *memory = realloc(*array, bigger * item_bytes);
    if (memory == NULL)
        return false;
    *array = memory;
    *capacity = (uint32_t)bigger;
    return true;
}

static uint64_t hash_of_id(const struct gyre_values *values, bool is_set, uint32_t id)
{
    if (is_set)
        return hash_set(values, &values->sets[(size_t)id * values->n_words]);
    const struct gyre_value *value = &values->values[id];
    return hash_value(value, &values->operands[value->first_in]);
}

/* Double the index when it is half full. */
static bool make_room(const struct gyre_values *values, struct index *index, bool is_set)
{
    if (index->n_used * 2 < index->n_slots)
        return true;
    const uint32_t n_slots = index->n_slots == 0 ? 1024 : index->n_slots * 2;
    uint32_t *ids = calloc(n_slots, sizeof(*ids));
    if (ids == NULL)
        return false;
    for (uint32_t i = 0; i < index->n_slots; i++) {
        if (index->ids[i] == 0)
            continue;
        uint64_t at = hash_of_id(values, is_set, index->ids[i]);
        while (ids[at & (n_slots - 1)] != 0)
            at++;
        ids[at & (n_slots - 1)] = index->ids[i];
    }
    free(index->ids);
    index->ids = ids;
    index->n_slots = n_slots;
    return true;
}

gyre_status gyre_values_open(unsigned n_ranks, struct gyre_values **values_out)
{
    struct gyre_values *values = calloc(1, sizeof(*values));
    if (values != NULL) {
        values->n_ranks = n_ranks;
        values->n_words = (n_ranks + 63) / 64;
        values->n_values = 1; /* 0 is GYRE_NO_VALUE */
        values->n_sets = 1;
        values->scratch_set = calloc(values->n_words, sizeof(uint64_t));
    }
    if (values == NULL || values->scratch_set == NULL) {
        free(values);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for the verifier's values");
    }
    *values_out = values;
    return GYRE_SUCCESS;
}

void gyre_values_close(struct gyre_values *values)
{
    if (values == NULL)
        return;
    free(values->values);
    free(values->operands);
    free(values->sets);
    free(values->scratch_set);
    free(values->value_index.ids);
    free(values->set_index.ids);
    free(values);
}

/* The number of the set in scratch_set; 0 without memory. */
static uint32_t intern_set(struct gyre_values *values)
{
    const size_t n_bytes = values->n_words * sizeof(uint64_t);
    struct index *index = &values->set_index;
    void *sets = values->sets;
    if (!make_room(values, index, true) ||
        !reserve(&sets, &values->sets_capacity, values->n_sets + 1ULL, n_bytes))
        return 0;
    values->sets = sets;
    uint64_t at = hash_set(values, values->scratch_set);
    for (;; at++) {
        const uint32_t id = index->ids[at & (index->n_slots - 1)];
        if (id == 0)
            break;
        if (memcmp(&values->sets[(size_t)id * values->n_words], values->scratch_set, n_bytes) == 0)
            return id;
    }
    memcpy(&values->sets[(size_t)values->n_sets * values->n_words], values->scratch_set, n_bytes);
    index->ids[at & (index->n_slots - 1)] = values->n_sets;
    index->n_used++;
    return values->n_sets++;
}

/* Find the stored value that equals `value` with these operands. If there is none, return
 * GYRE_NO_VALUE and set *at_out to the value's place in the index. */
static uint32_t find_value(const struct gyre_values *values, const struct gyre_value *value,
                           const uint32_t *operands, uint32_t *at_out)
{
    const struct index *index = &values->value_index;
    const size_t n_bytes = (value->n_ins == 0 ? 1 : value->n_ins) * sizeof(*operands);
    uint64_t at = hash_value(value, operands);
    for (;; at++) {
        const uint32_t id = index->ids[at & (index->n_slots - 1)];
        if (id == 0)
            break;
        const struct gyre_value *known = &values->values[id];
        if (known->n_ins == value->n_ins && known->is_final == value->is_final &&
            known->chunk == value->chunk && known->tile == value->tile &&
            memcmp(&values->operands[known->first_in], operands, n_bytes) == 0)
            return id;
    }
    *at_out = (uint32_t)(at & (index->n_slots - 1));
    return GYRE_NO_VALUE;
}

/* Add a value whose set is in scratch_set. */
static uint32_t add_value(struct gyre_values *values, struct gyre_value value,
                          const uint32_t *operands, uint32_t at)
{
    const uint32_t n = value.n_ins == 0 ? 1 : value.n_ins;
    void *all = values->values, *lists = values->operands;
    const bool has_values =
        reserve(&all, &values->values_capacity, values->n_values + 1ULL, sizeof(*values->values));
    values->values = all;
    const bool has_operands = reserve(&lists, &values->operands_capacity,
                                      (uint64_t)values->n_operands + n, sizeof(*operands));
    values->operands = lists;
    value.set = intern_set(values);
    if (!has_values || !has_operands || value.set == 0)
        return GYRE_NO_VALUE;
    value.first_in = values->n_operands;
    memcpy(&values->operands[values->n_operands], operands, n * sizeof(*operands));
    values->n_operands += n;
    values->values[values->n_values] = value;
    values->value_index.ids[at] = values->n_values;
    values->value_index.n_used++;
    return values->n_values++;
}

uint32_t gyre_values_input(struct gyre_values *values, unsigned rank, unsigned chunk, unsigned tile)
{
    const struct gyre_value value = {.chunk = chunk, .tile = tile, .n_ranks_in = 1};
    const uint32_t operand = rank;
    uint32_t at;
    if (!make_room(values, &values->value_index, false))
        return GYRE_NO_VALUE;
    const uint32_t known = find_value(values, &value, &operand, &at);
    if (known != GYRE_NO_VALUE)
        return known;
    memset(values->scratch_set, 0, values->n_words * sizeof(uint64_t));
    values->scratch_set[rank / 64] = 1ULL << rank % 64;
    return add_value(values, value, &operand, at);
}

enum gyre_value_fault gyre_values_reduce(struct gyre_values *values, const uint32_t *ins,
                                         unsigned n_ins, bool is_final, uint32_t *value_out)
{
    const struct gyre_value *first = &values->values[ins[0]];
    struct gyre_value value = {
        .chunk = first->chunk, .tile = first->tile, .n_ins = (uint16_t)n_ins, .is_final = is_final};
    uint32_t at;
    if (!make_room(values, &values->value_index, false))
        return GYRE_VALUE_NO_MEMORY;
    const uint32_t known = find_value(values, &value, ins, &at);
    if (known != GYRE_NO_VALUE) {
        *value_out = known;
        return GYRE_VALUE_FINE;
    }
    memset(values->scratch_set, 0, values->n_words * sizeof(uint64_t));
    for (unsigned i = 0; i < n_ins; i++) {
        const struct gyre_value *in = &values->values[ins[i]];
        const uint64_t *set = &values->sets[(size_t)in->set * values->n_words];
        if (in->chunk != value.chunk || in->tile != value.tile)
            return GYRE_VALUE_MIXED;
        value.n_ranks_in += in->n_ranks_in;
        for (unsigned word = 0; word < values->n_words; word++) {
            if ((values->scratch_set[word] & set[word]) != 0)
                return GYRE_VALUE_TWICE;
            values->scratch_set[word] |= set[word];
        }
    }
    *value_out = add_value(values, value, ins, at);
    return *value_out == GYRE_NO_VALUE ? GYRE_VALUE_NO_MEMORY : GYRE_VALUE_FINE;
}

const struct gyre_value *gyre_values_get(const struct gyre_values *values, uint32_t value)
{
    return &values->values[value];
}

bool gyre_values_has(const struct gyre_values *values, uint32_t value, unsigned rank)
{
    const uint64_t *set = &values->sets[(size_t)values->values[value].set * values->n_words];
    return (set[rank / 64] >> rank % 64 & 1) != 0;
}
