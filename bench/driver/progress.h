/* SPDX-License-Identifier: Apache-2.0
 *
 * A line on standard error with the current size and phase, when a size takes longer than a second
 * and standard error is a terminal.
 */
#ifndef GYRE_BENCH_PROGRESS_H
#define GYRE_BENCH_PROGRESS_H

#include "core/foundation/base/status.h"

struct bench_progress;

/** bench_progress_open / close - @progress_out: NULL if standard error is no terminal. The other
 * functions accept NULL. */
gyre_status bench_progress_open(struct bench_progress **progress_out);
void bench_progress_close(struct bench_progress *progress);

/** bench_progress_begin / end - a size, or its next phase. @phase: static text. */
void bench_progress_begin(struct bench_progress *progress, size_t n_bytes, const char *phase);
void bench_progress_end(struct bench_progress *progress);

#endif
