/* SPDX-License-Identifier: Apache-2.0
 *
 * The verifier's values. A value is either a contribution, which is one rank's input of one chunk
 * and tile, or a reduction of values in a given order. Equal expressions are stored once, so equal
 * numbers of values mean equal bits. A value also has the exact set of ranks that contributed.
 */
#ifndef GYRE_ALGORITHMS_VERIFY_VALUES_H
#define GYRE_ALGORITHMS_VERIFY_VALUES_H

#include "core/model/schedule.h"

#define GYRE_NO_VALUE 0U

struct gyre_value {
    uint32_t chunk; /* of the input; all contributions are of this chunk */
    uint32_t tile;
    uint32_t set; /* number of the set of ranks that contributed; equal sets, equal numbers */
    uint32_t n_ranks_in;
    uint32_t first_in; /* index in the list of operands; a contribution has its rank there */
    uint16_t n_ins;    /* 0 = a contribution */
    bool is_final;
};

enum gyre_value_fault {
    GYRE_VALUE_FINE,
    GYRE_VALUE_MIXED, /* contributions of different chunks or tiles */
    GYRE_VALUE_TWICE, /* a rank contributes twice */
    GYRE_VALUE_NO_MEMORY,
};

struct gyre_values;

/** gyre_values_open - an empty store for `n_ranks` ranks. Errors: OUT_OF_MEMORY. */
gyre_status gyre_values_open(unsigned n_ranks, struct gyre_values **values_out);
void gyre_values_close(struct gyre_values *values);

/** gyre_values_input - the contribution of one rank. Returns GYRE_NO_VALUE when there is no memory.
 */
uint32_t gyre_values_input(struct gyre_values *values, unsigned rank, unsigned chunk,
                           unsigned tile);

/** gyre_values_reduce - the reduction of `n_ins` values in this order.
 * @is_final: the result is divided afterwards, which makes it a different value.
 * @value_out: set on GYRE_VALUE_FINE. */
enum gyre_value_fault gyre_values_reduce(struct gyre_values *values, const uint32_t *ins,
                                         unsigned n_ins, bool is_final, uint32_t *value_out);

/** gyre_values_get - the value with this number. Valid until the next value is added. */
const struct gyre_value *gyre_values_get(const struct gyre_values *values, uint32_t value);

/** gyre_values_has - did `rank` contribute? */
bool gyre_values_has(const struct gyre_values *values, uint32_t value, unsigned rank);

#endif
