/* SPDX-License-Identifier: Apache-2.0
 *
 * --compare-algos: algorithms of gyre in turns, in one run.
 */
#ifndef GYRE_BENCH_COMPARE_ALGOS_H
#define GYRE_BENCH_COMPARE_ALGOS_H

#include "bench/report/output.h"

/** bench_compare_algos - time all sizes, and print a line for each. Rank 0 prints, and writes the
 * files of --json and --csv. Collective.
 * Errors: as bench_compare_contenders(); UNSUPPORTED (point to point); SYSTEM (a file cannot be
 * written). */
gyre_status bench_compare_algos(struct bench_rank *rank, const struct bench_setting *setting);

#endif
