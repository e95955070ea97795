/* SPDX-License-Identifier: Apache-2.0 */
#define GYRE_REDUCE_BASELINE_ONLY
#include "kernels/host/reduce.c"
#include "tests/kernels/test_reduce.c"
