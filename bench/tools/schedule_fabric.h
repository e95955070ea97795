/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule --fabric: hosts and the network between them, read from a file.
 */
#ifndef GYRE_BENCH_SCHEDULE_FABRIC_H
#define GYRE_BENCH_SCHEDULE_FABRIC_H

#include "algorithms/simulate/fabric.h"

struct bench_fabric {
    struct gyre_fabric *fabric; /* NULL = --fabric was not given */
    struct gyre_grouping grouping;
};

/** bench_fabric_load - read the file of a fabric. @path: NULL = there is none.
 * Errors: INVALID_ARGUMENT with file, line and reason; SYSTEM; OUT_OF_MEMORY. */
gyre_status bench_fabric_load(const char *path, struct bench_fabric *fabric_out);

void bench_fabric_close(struct bench_fabric *fabric);

#endif
