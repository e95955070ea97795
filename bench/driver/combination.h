/* SPDX-License-Identifier: Apache-2.0
 *
 * --sweep: the combinations of the lists --algo, --proto and --channels, and the name of each one's
 * reports.
 */
#ifndef GYRE_BENCH_COMBINATION_H
#define GYRE_BENCH_COMBINATION_H

#include "bench/driver/options.h"

#include <limits.h>

/* A word of each list; "" = there is no such list: the tuner's choice. */
struct bench_combination {
    char algo[32];
    char proto[32];
    char channels[32];
};

/** bench_combination_find - the i-th combination; channels change first, then protocols. False past
 * the last one. Pure. */
bool bench_combination_find(const struct bench_options *options, int i,
                            struct bench_combination *combination_out);

/** bench_combination_path - a combination's report: what it forces stands before the extension
 * ("dir/r.json" -> "dir/r.ring-ll-4.json", or "dir/r.ll.json" if only --proto was given). Pure.
 * Errors: INVALID_ARGUMENT (the name is too long). */
gyre_status bench_combination_path(const char *path, const struct bench_combination *combination,
                                   char path_out[PATH_MAX]);

#endif
