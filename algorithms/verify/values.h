/* SPDX-License-Identifier: Apache-2.0
 *
 * The verifier's values. A value is either a contribution, which is the input of one rank, or a
 * reduction of values in a given order. Equal expressions are stored once, so equal numbers of
 * values mean equal bits. A value also has the exact set of ranks that contributed.
 *
 * A value does not say of which chunk and tile the contributions are. All contributions of a
 * reduction are of one chunk and tile, so struct gyre_content has these two beside the value. Most
 * algorithms reduce all chunks and all tiles in few different orders, so there are few values.
 */
#ifndef GYRE_ALGORITHMS_VERIFY_VALUES_H
#define GYRE_ALGORITHMS_VERIFY_VALUES_H

#include "core/foundation/model/schedule.h"

#define GYRE_NO_VALUE 0U

/* The content of a chunk or of a slot. */
struct gyre_content {
    uint32_t value;
    uint16_t chunk; /* of all contributions in the value */
    uint16_t tile;
};

struct gyre_value {
    uint32_t first_in;   /* index in the list of operands; a contribution has none */
    uint32_t set;        /* the set of ranks that contributed, or 0 if it is an interval: */
    uint32_t first_rank; /* the ranks from first_rank on; rank 0 follows the last rank */
    uint32_t n_ranks_in; /* how many ranks contributed */
    uint16_t n_ins;      /* 0 = a contribution */
    bool is_final;
};

enum gyre_value_fault {
    GYRE_VALUE_FINE,
    GYRE_VALUE_TWICE, /* a rank contributes twice */
    GYRE_VALUE_NO_MEMORY,
};

struct gyre_values;

/** gyre_values_open - a store that has the contributions of `n_ranks` ranks, and nothing else.
 * Errors: OUT_OF_MEMORY. */
gyre_status gyre_values_open(unsigned n_ranks, struct gyre_values **values_out);
void gyre_values_close(struct gyre_values *values);

/** gyre_values_input - the contribution of one rank, 0 <= rank < n_ranks. */
static inline uint32_t gyre_values_input(unsigned rank)
{
    return rank + 1;
}

/** gyre_values_reduce - the reduction of `n_ins` values in this order.
 * @is_final: the result is divided afterwards, which makes it a different value.
 * @value_out: set on GYRE_VALUE_FINE. New values are numbered one after the other. */
enum gyre_value_fault gyre_values_reduce(struct gyre_values *values, const uint32_t *ins,
                                         unsigned n_ins, bool is_final, uint32_t *value_out);

/** gyre_values_get - the value with this number. Valid until the next value is added. */
const struct gyre_value *gyre_values_get(const struct gyre_values *values, uint32_t value);

/** gyre_values_has - did `rank` contribute? */
bool gyre_values_has(const struct gyre_values *values, uint32_t value, unsigned rank);

#endif
