/* SPDX-License-Identifier: Apache-2.0
 *
 * A line on stderr that says what is going on when a size takes longer than a second and stderr is
 * a terminal.
 */
#ifndef GYRE_BENCH_PROGRESS_H
#define GYRE_BENCH_PROGRESS_H

#include "core/base/status.h"

struct bench_progress;

/** bench_progress_open - *progress_out = NULL where nobody would see it. */
gyre_status bench_progress_open(struct bench_progress **progress_out);
void bench_progress_close(struct bench_progress *progress);

/** bench_progress_begin - a size starts, or goes on to another phase. @phase: static text.
 * bench_progress_end - it is done; wipes the line. NULL does nothing. */
void bench_progress_begin(struct bench_progress *progress, size_t n_bytes, const char *phase);
void bench_progress_end(struct bench_progress *progress);

#endif
