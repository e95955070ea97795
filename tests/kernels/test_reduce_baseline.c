/* SPDX-License-Identifier: Apache-2.0
 *
 * The tests of the reduction loops once more, on the loops of machines without AVX2.
 */
#define GYRE_REDUCE_BASELINE_ONLY
#include "kernels/host/reduce.c"
#include "tests/kernels/test_reduce.c"
