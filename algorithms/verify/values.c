/* SPDX-License-Identifier: Apache-2.0
 *
 * All data are in arrays that only grow. Along rings and chains, every set is an interval of ranks,
 * and a ring of n ranks has n * n of these sets, so an interval is stored as its two ends. Any
 * other set is a bitmap.
 */
#include "algorithms/verify/memory.h"

#include "core/foundation/base/status.h"

#include <stdlib.h>
#include <string.h>

/* It has most of the hash, so that a search reads few wrong values, and the index can grow without
 * reading any. */
struct entry {
    uint32_t hash;
    uint32_t value; /* 0 = free */
};

struct gyre_values {
    unsigned n_ranks;
    unsigned n_words;
    struct gyre_value *values;
    uint32_t n_values, values_capacity;
    uint32_t *operands;
    uint32_t n_operands, operands_capacity;
    uint64_t *sets; /* n_words each; number 0 is unused */
    uint32_t n_sets, sets_capacity;
    uint64_t *union_words;
    struct entry *index; /* open addressing, a power of two long, at most half full */
    uint32_t n_entries, n_used;
};

/* FNV, which works byte by byte, would take most of the run. The constant is 2^64 divided by the
 * golden ratio, made odd. */
static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    return hash ^ hash >> 29;
}

static uint32_t hash_reduction(const uint32_t *ins, unsigned n_ins, bool is_final)
{
    uint64_t hash = (uint64_t)n_ins << 1 | is_final;
    for (unsigned i = 0; i < n_ins; i++)
        hash = mix(hash, ins[i]);
    return (uint32_t)(hash ^ hash >> 32);
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

static bool make_room(struct gyre_values *values)
{
    if (values->n_used * 2 < values->n_entries)
        return true;
    if (values->n_entries > UINT32_MAX / 2)
        return false;
    const uint32_t n_entries = values->n_entries == 0 ? 1024 : values->n_entries * 2;
    struct entry *index = calloc(n_entries, sizeof(*index));
    if (index == NULL)
        return false;
    for (uint32_t i = 0; i < values->n_entries; i++) {
        if (values->index[i].value == 0)
            continue;
        uint32_t at = values->index[i].hash;
        while (index[at & (n_entries - 1)].value != 0)
            at++;
        index[at & (n_entries - 1)] = values->index[i];
    }
    free(values->index);
    values->index = index;
    values->n_entries = n_entries;
    return true;
}

static bool reserve_value(struct gyre_values *values, unsigned n_ins)
{
    void *all = values->values, *lists = values->operands;
    const bool has_values =
        reserve(&all, &values->values_capacity, values->n_values + 1ULL, sizeof(*values->values));
    values->values = all;
    const bool has_operands =
        reserve(&lists, &values->operands_capacity, (uint64_t)values->n_operands + n_ins,
                sizeof(*values->operands));
    values->operands = lists;
    return has_values && has_operands;
}

gyre_status gyre_values_open(unsigned n_ranks, struct gyre_values **values_out)
{
    struct gyre_values *values = calloc(1, sizeof(*values));
    bool is_open = false;
    if (values != NULL) {
        values->n_ranks = n_ranks;
        values->n_words = (n_ranks + 63) / 64;
        values->n_values = 1; /* 0 is GYRE_NO_VALUE */
        values->n_sets = 1;
        values->union_words = calloc(values->n_words, sizeof(uint64_t));
        is_open = values->union_words != NULL;
    }
    for (unsigned rank = 0; rank < n_ranks && is_open; rank++) {
        is_open = reserve_value(values, 0);
        if (is_open)
            values->values[values->n_values++] =
                (struct gyre_value){.first_rank = rank, .n_ranks_in = 1};
    }
    if (!is_open) {
        gyre_values_close(values);
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
    free(values->union_words);
    free(values->index);
    free(values);
}

/* @at_out: if GYRE_NO_VALUE is returned, its place in the index. */
static uint32_t find_reduction(const struct gyre_values *values, const uint32_t *ins,
                               unsigned n_ins, bool is_final, uint32_t *at_out)
{
    const uint32_t hash = hash_reduction(ins, n_ins, is_final);
    for (uint32_t at = hash;; at++) {
        const struct entry *entry = &values->index[at & (values->n_entries - 1)];
        if (entry->value == 0) {
            *at_out = at & (values->n_entries - 1);
            return GYRE_NO_VALUE;
        }
        if (entry->hash != hash)
            continue;
        const struct gyre_value *known = &values->values[entry->value];
        if (known->n_ins == n_ins && known->is_final == is_final &&
            memcmp(&values->operands[known->first_in], ins, n_ins * sizeof(*ins)) == 0)
            return entry->value;
    }
}

static uint32_t rank_after(const struct gyre_values *values, uint32_t rank, uint32_t n)
{
    return (rank + n) % values->n_ranks;
}

/* Can the sets, which are intervals, be put together one after the other? They share no rank as
 * long as there are no more ranks in them than there are ranks. */
static bool join_intervals(const struct gyre_values *values, const uint32_t *ins, unsigned n_ins,
                           struct gyre_value *result)
{
    for (unsigned i = 0; i < n_ins; i++) {
        const struct gyre_value *in = &values->values[ins[i]];
        if (in->set != 0 || result->n_ranks_in + in->n_ranks_in > values->n_ranks)
            return false;
        if (i == 0 || rank_after(values, in->first_rank, in->n_ranks_in) == result->first_rank)
            result->first_rank = in->first_rank;
        else if (rank_after(values, result->first_rank, result->n_ranks_in) != in->first_rank)
            return false;
        result->n_ranks_in += in->n_ranks_in;
    }
    return true;
}

/* False = they share a rank. */
static bool add_set(struct gyre_values *values, const struct gyre_value *in)
{
    uint64_t shared = 0;
    if (in->set != 0) {
        const uint64_t *set = &values->sets[(size_t)in->set * values->n_words];
        for (unsigned word = 0; word < values->n_words; word++) {
            shared |= values->union_words[word] & set[word];
            values->union_words[word] |= set[word];
        }
        return shared == 0;
    }
    for (uint32_t i = 0; i < in->n_ranks_in; i++) {
        const uint32_t rank = rank_after(values, in->first_rank, i);
        shared |= values->union_words[rank / 64] & 1ULL << rank % 64;
        values->union_words[rank / 64] |= 1ULL << rank % 64;
    }
    return shared == 0;
}

/* A single operand is not an interval here, so its bitmap is the union. */
static enum gyre_value_fault unite_bitmaps(struct gyre_values *values, const uint32_t *ins,
                                           unsigned n_ins, struct gyre_value *result)
{
    result->n_ranks_in = 0;
    if (n_ins == 1) {
        result->set = values->values[ins[0]].set;
        result->n_ranks_in = values->values[ins[0]].n_ranks_in;
        return GYRE_VALUE_FINE;
    }
    memset(values->union_words, 0, values->n_words * sizeof(*values->union_words));
    for (unsigned i = 0; i < n_ins; i++) {
        const struct gyre_value *in = &values->values[ins[i]];
        result->n_ranks_in += in->n_ranks_in;
        if (!add_set(values, in))
            return GYRE_VALUE_TWICE;
    }
    const size_t n_bytes = values->n_words * sizeof(*values->sets);
    void *sets = values->sets;
    const bool has_room = reserve(&sets, &values->sets_capacity, values->n_sets + 1ULL, n_bytes);
    values->sets = sets;
    if (!has_room)
        return GYRE_VALUE_NO_MEMORY;
    memcpy(&values->sets[(size_t)values->n_sets * values->n_words], values->union_words, n_bytes);
    result->set = values->n_sets++;
    return GYRE_VALUE_FINE;
}

enum gyre_value_fault gyre_values_reduce(struct gyre_values *values, const uint32_t *ins,
                                         unsigned n_ins, bool is_final, uint32_t *value_out)
{
    uint32_t at = 0;
    if (!make_room(values) || !reserve_value(values, n_ins))
        return GYRE_VALUE_NO_MEMORY;
    const uint32_t known = find_reduction(values, ins, n_ins, is_final, &at);
    if (known != GYRE_NO_VALUE) {
        *value_out = known;
        return GYRE_VALUE_FINE;
    }
    struct gyre_value result = {
        .first_in = values->n_operands, .n_ins = (uint16_t)n_ins, .is_final = is_final};
    if (!join_intervals(values, ins, n_ins, &result)) {
        const enum gyre_value_fault fault = unite_bitmaps(values, ins, n_ins, &result);
        if (fault != GYRE_VALUE_FINE)
            return fault;
    }
    memcpy(&values->operands[values->n_operands], ins, n_ins * sizeof(*ins));
    values->n_operands += n_ins;
    *value_out = values->n_values++;
    values->values[*value_out] = result;
    values->index[at] = (struct entry){hash_reduction(ins, n_ins, is_final), *value_out};
    values->n_used++;
    return GYRE_VALUE_FINE;
}

const struct gyre_value *gyre_values_get(const struct gyre_values *values, uint32_t value)
{
    return &values->values[value];
}

bool gyre_values_has(const struct gyre_values *values, uint32_t value, unsigned rank)
{
    const struct gyre_value *known = &values->values[value];
    if (known->set == 0)
        return (rank + values->n_ranks - known->first_rank) % values->n_ranks < known->n_ranks_in;
    const uint64_t *set = &values->sets[(size_t)known->set * values->n_words];
    return (set[rank / 64] >> rank % 64 & 1) != 0;
}
