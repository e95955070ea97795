/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays only grow. A ring of n ranks has n * n sets, which are intervals of ranks, so these are
 * stored as two ends, others as bitmaps.
 */
#include "algorithms/verify/machine.h"

#include "core/foundation/base/status.h"
#include "core/foundation/base/util.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* With most of the hash a search reads few wrong values, and the index can grow without reading
 * any. */
struct entry {
    uint32_t hash;
    uint32_t value; /* 0 = free */
};

struct gyre_values {
    bool any_order;
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

/* FNV, byte by byte, would take most of the run. The constant is 2^64 divided by the golden ratio,
 * made odd. */
static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    return hash ^ hash >> 29;
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
    return gyre_grow(&values->values, &values->values_capacity, values->n_values + 1ULL,
                     sizeof(*values->values)) &&
           gyre_grow(&values->operands, &values->operands_capacity,
                     (uint64_t)values->n_operands + n_ins, sizeof(*values->operands));
}

gyre_status gyre_values_open(unsigned n_ranks, bool any_order, struct gyre_values **values_out)
{
    struct gyre_values *values = calloc(1, sizeof(*values));
    bool is_open = false;
    if (values != NULL) {
        values->any_order = any_order;
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

static uint32_t rank_after(const struct gyre_values *values, uint32_t rank, uint32_t n)
{
    return (rank + n) % values->n_ranks;
}

/* They share no rank if their lengths add up to at most the number of ranks. */
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

/* A single operand is no interval here, so its bitmap is the union. */
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
    if (!gyre_grow(&values->sets, &values->sets_capacity, values->n_sets + 1ULL, n_bytes))
        return GYRE_VALUE_NO_MEMORY;
    memcpy(&values->sets[(size_t)values->n_sets * values->n_words], values->union_words, n_bytes);
    result->set = values->n_sets++;
    return GYRE_VALUE_FINE;
}

static const uint64_t *words_of(const struct gyre_values *values, const struct gyre_value *value)
{
    return &values->sets[(size_t)value->set * values->n_words];
}

/* Equal sets need one form: all ranks are the interval from rank 0, and a bitmap of consecutive
 * ranks is one, too. */
static void normalize(struct gyre_values *values, struct gyre_value *result)
{
    if (result->set != 0) {
        const uint64_t *words = words_of(values, result);
        uint32_t n_firsts = 0, first = 0;
        bool before = (words[(values->n_ranks - 1) / 64] >> (values->n_ranks - 1) % 64 & 1) != 0;
        for (uint32_t rank = 0; rank < values->n_ranks; rank++) {
            const bool has = (words[rank / 64] >> rank % 64 & 1) != 0;
            if (has && !before) {
                first = rank;
                n_firsts++;
            }
            before = has;
        }
        if (n_firsts > 1)
            return;
        if (result->set == values->n_sets - 1)
            values->n_sets--;
        result->set = 0;
        result->first_rank = first;
    }
    if (result->n_ranks_in == values->n_ranks)
        result->first_rank = 0;
}

/* By operands or, in any order, by set of ranks. @at_out: with GYRE_NO_VALUE, its place in the
 * index. */
static uint32_t find_value(const struct gyre_values *values, const struct gyre_value *value,
                           const uint32_t *ins, uint32_t hash, uint32_t *at_out)
{
    for (uint32_t at = hash;; at++) {
        const struct entry *entry = &values->index[at & (values->n_entries - 1)];
        *at_out = at & (values->n_entries - 1);
        if (entry->value == 0)
            return GYRE_NO_VALUE;
        const struct gyre_value *known = &values->values[entry->value];
        if (entry->hash != hash || known->is_final != value->is_final)
            continue;
        if (!values->any_order
                ? known->n_ins == value->n_ins && memcmp(&values->operands[known->first_in], ins,
                                                         value->n_ins * sizeof(*ins)) == 0
                : known->n_ranks_in == value->n_ranks_in &&
                      (known->set == 0) == (value->set == 0) &&
                      (value->set != 0 ? memcmp(words_of(values, known), words_of(values, value),
                                                values->n_words * sizeof(*values->sets)) == 0
                                       : known->first_rank == value->first_rank))
            return entry->value;
    }
}

enum gyre_value_fault gyre_values_reduce(struct gyre_values *values, const uint32_t *ins,
                                         unsigned n_ins, bool is_final, uint32_t *value_out)
{
    uint32_t at = 0, hash = 0;
    if (!make_room(values) || !reserve_value(values, n_ins))
        return GYRE_VALUE_NO_MEMORY;
    struct gyre_value result = {
        .first_in = values->n_operands, .n_ins = (uint16_t)n_ins, .is_final = is_final};
    if (!values->any_order) {
        uint64_t mixed = (uint64_t)n_ins << 1 | is_final;
        for (unsigned i = 0; i < n_ins; i++)
            mixed = mix(mixed, ins[i]);
        hash = (uint32_t)(mixed ^ mixed >> 32);
        *value_out = find_value(values, &result, ins, hash, &at);
        if (*value_out != GYRE_NO_VALUE)
            return GYRE_VALUE_FINE;
    }
    if (!join_intervals(values, ins, n_ins, &result)) {
        const enum gyre_value_fault fault = unite_bitmaps(values, ins, n_ins, &result);
        if (fault != GYRE_VALUE_FINE)
            return fault;
    }
    if (values->any_order) {
        normalize(values, &result);
        uint64_t mixed = (uint64_t)result.n_ranks_in << 1 | is_final;
        if (result.set == 0)
            mixed = mix(mixed, result.first_rank);
        for (unsigned word = 0; result.set != 0 && word < values->n_words; word++)
            mixed = mix(mixed, words_of(values, &result)[word]);
        hash = (uint32_t)(mixed ^ mixed >> 32);
        *value_out = find_value(values, &result, ins, hash, &at);
        if (*value_out != GYRE_NO_VALUE) {
            if (n_ins > 1 && result.set != 0 && result.set == values->n_sets - 1)
                values->n_sets--; /* made by unite_bitmaps() */
            return GYRE_VALUE_FINE;
        }
    }
    memcpy(&values->operands[values->n_operands], ins, n_ins * sizeof(*ins));
    values->n_operands += n_ins;
    *value_out = values->n_values++;
    values->values[*value_out] = result;
    values->index[at] = (struct entry){hash, *value_out};
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

#define MOST_SHOWN 88 /* bytes of an expression */

struct print {
    const struct gyre_values *values;
    char *text;
    size_t n, size;
};

__attribute__((format(printf, 2, 3))) static void put(struct print *print, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (print->n < print->size) {
        const int n = vsnprintf(&print->text[print->n], print->size - print->n, format, args);
        print->n += n > 0 ? (size_t)n : 0;
    }
    va_end(args);
}

static void put_set(struct print *print, uint32_t value)
{
    const uint32_t n_ranks = print->values->n_ranks;
    put(print, "{");
    for (uint32_t rank = 0, n = 0; rank < n_ranks && print->n < print->size; rank++) {
        uint32_t last = rank;
        if (!gyre_values_has(print->values, value, rank))
            continue;
        while (last + 1 < n_ranks && gyre_values_has(print->values, value, last + 1))
            last++;
        put(print, n++ > 0 ? ",%u" : "%u", rank);
        if (last > rank)
            put(print, "-%u", last);
        rank = last;
    }
    put(print, "}");
}

/* @depth: deeper sums are shown as sets. */
static void put_value(struct print *print, uint32_t value, int depth, bool is_outer)
{
    const struct gyre_value *v = &print->values->values[value];
    const uint32_t *ins = &print->values->operands[v->first_in];
    if (v->n_ins == 0) {
        put(print, "%u", v->first_rank);
    } else if (v->n_ins == 1) {
        put_value(print, ins[0], depth, is_outer);
    } else if (depth == 0) {
        put_set(print, value);
    } else {
        put(print, is_outer ? "" : "(");
        for (uint32_t i = 0; i < v->n_ins && print->n < print->size; i++) {
            put(print, i > 0 ? "+" : "");
            put_value(print, ins[i], depth - 1, false);
        }
        put(print, is_outer ? "" : ")");
    }
}

static void put_fitting(struct print *print, uint32_t value)
{
    char text[MOST_SHOWN + 1];
    struct print trial = {print->values, text, 0, sizeof(text)};
    int depth = 12;
    do {
        trial.n = 0;
        put_value(&trial, value, depth, true);
    } while (trial.n >= trial.size && --depth > 0);
    put(print, "%s%s", text, trial.n >= trial.size ? "..." : "");
}

static bool share_a_rank(const struct gyre_values *values, uint32_t a, uint32_t b)
{
    for (unsigned rank = 0; rank < values->n_ranks; rank++)
        if (gyre_values_has(values, a, rank) && gyre_values_has(values, b, rank))
            return true;
    return false;
}

void gyre_values_compare(const struct gyre_values *values, const uint32_t of_rank[2],
                         const unsigned ranks[2], char *text_out, size_t text_bytes)
{
    struct print print = {values, text_out, 0, text_bytes};
    uint32_t a = of_rank[0], b = of_rank[1];
    for (int i = 0; i < 2; i++) {
        put(&print, "\n  rank %-4u ", ranks[i]);
        put_fitting(&print, of_rank[i]);
    }
    /* Into the first operands that differ, as long as they have ranks in common. */
    while (share_a_rank(values, a, b) && values->values[a].n_ins == values->values[b].n_ins &&
           values->values[a].n_ins > 0) {
        const uint32_t *ins_a = &values->operands[values->values[a].first_in];
        const uint32_t *ins_b = &values->operands[values->values[b].first_in];
        uint32_t i = 0;
        while (i + 1U < values->values[a].n_ins && ins_a[i] == ins_b[i])
            i++;
        a = ins_a[i];
        b = ins_b[i];
    }
    put(&print, "\n  first difference: ");
    put_fitting(&print, a);
    put(&print, " | ");
    put_fitting(&print, b);
}
