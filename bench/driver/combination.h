/* SPDX-License-Identifier: Apache-2.0
 *
 * --sweep: the combinations of the lists of --algo, --proto and --channels, and the names of their
 * reports.
 */
#ifndef GYRE_BENCH_COMBINATION_H
#define GYRE_BENCH_COMBINATION_H

#include "bench/driver/options.h"

#include <limits.h>

/* One word of each list; "" = the list was not given, and the tuner chooses. */
struct bench_combination {
    char algo[32];
    char proto[32];
    char channels[32];
};

/** bench_combination_find - the combination of index i. The word for channels changes first, then
 * that for protocols. Returns false past the last combination. Pure. */
bool bench_combination_find(const struct bench_options *options, int i,
                            struct bench_combination *combination_out);

/** bench_combination_path - the path of a combination's report: the words of the combination come
 * before the extension. "dir/r.json" becomes "dir/r.ring-ll-4.json", or "dir/r.ll.json" if only
 * --proto was given. Pure. Errors: INVALID_ARGUMENT (the name is too long). */
gyre_status bench_combination_path(const char *path, const struct bench_combination *combination,
                                   char path_out[PATH_MAX]);

#endif
