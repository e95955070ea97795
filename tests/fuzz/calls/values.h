/* SPDX-License-Identifier: Apache-2.0
 *
 * The values that ranks send, and what collectives make of them, computed without gyre. Operands of
 * reductions give the same bits in every order: floating-point sums are of integers so small that
 * every partial sum is exact in the type.
 */
#ifndef GYRE_TESTS_FUZZ_VALUES_H
#define GYRE_TESTS_FUZZ_VALUES_H

#include "core/gyre.h"

#include <stddef.h>

enum { FUZZ_N_TYPES = 12, FUZZ_PREMUL_SUM = 5, FUZZ_N_OPS = 6 };

struct fuzz_type {
    const char *name;
    unsigned n_bytes;
    bool is_float, is_signed;
    int64_t exact; /* -exact..exact are values of the type (unsigned: 0..exact) */
};
extern const struct fuzz_type fuzz_types[FUZZ_N_TYPES]; /* by gyre_dtype */
extern const char *const fuzz_op_names[FUZZ_N_OPS];     /* by gyre_op, then FUZZ_PREMUL_SUM */

struct fuzz_values {
    bool is_reduction;
    int type, op, n_ranks;
    int64_t scalar; /* of FUZZ_PREMUL_SUM, else 1 */
    uint64_t key;   /* of the call */
};

/** The bits of element i. */
uint64_t fuzz_value_sent(const struct fuzz_values *values, int rank, size_t i);

/** The bits, over all ranks. */
uint64_t fuzz_value_reduced(const struct fuzz_values *values, size_t i);

/** A small integer's bits in a type. */
uint64_t fuzz_value_encode(int type, int64_t value);

#endif
