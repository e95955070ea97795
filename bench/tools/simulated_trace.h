/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule --predict --trace: a simulated call as a trace with the tracks of a measured one
 * (docs/trace.md).
 */
#ifndef GYRE_BENCH_SIMULATED_TRACE_H
#define GYRE_BENCH_SIMULATED_TRACE_H

#include "bench/tools/schedule_predict.h"

/** bench_simulated_trace - one channel of each variant is in the trace. @request: names one
 * algorithm. @n_bytes: of the whole vector or of all blocks. Errors: as bench_schedule_simulate();
 * those of gyre_file_replace(). */
gyre_status bench_simulated_trace(const struct bench_schedule_request *request, uint64_t n_bytes,
                                  const char *path);

#endif
