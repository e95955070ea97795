/* SPDX-License-Identifier: Apache-2.0
 *
 * What all sizes share, and the cells.
 */
#ifndef GYRE_BENCH_SCHEDULE_TABLE_H
#define GYRE_BENCH_SCHEDULE_TABLE_H

#include "algorithms/simulate/fabric.h"
#include "algorithms/simulate/simulate.h"
#include "bench/tools/schedule_predict.h"
#include "core/engine/plan/plan.h"

#define BENCH_TABLE_ALGORITHMS 16

struct bench_table {
    const struct bench_schedule_request *request;
    struct gyre_cost cost;
    struct gyre_tuner_facts facts;
    struct gyre_filter filter;
    const struct gyre_algorithm *algorithms[BENCH_TABLE_ALGORITHMS];
    struct gyre_simulator *simulators[BENCH_TABLE_ALGORITHMS];
    int n_algorithms;
    bool all_ranks;
    bool is_quiet;
};

struct bench_table_cell {
    struct gyre_choice choice;
    struct gyre_prediction prediction;
};

/** The request, all_ranks and is_quiet are set. The table is closed also after a failure. Errors:
 * of the request's values, UNSUPPORTED (its algorithm cannot be simulated). */
gyre_status bench_table_open(struct bench_table *table);
void bench_table_close(struct bench_table *table);

/** The bytes of the count that the collective's function takes. @n_bytes: of the vector or all
 * blocks. */
uint64_t bench_table_call_bytes(const struct bench_schedule_request *request, uint64_t n_bytes);

/** Chooses as a communicator would, except for what the request names. @n_bytes:
 * bench_table_call_bytes(). */
gyre_status bench_table_choose(const struct bench_table *table, int column, uint64_t n_bytes,
                               struct gyre_choice *choice);

void bench_table_fill(const struct bench_table *table, const struct gyre_choice *choice,
                      uint64_t n_bytes, struct gyre_simulation *simulation);

/** @n_bytes: bench_table_call_bytes(). */
gyre_status bench_table_predict(struct bench_table *table, int column, uint64_t n_bytes,
                                struct bench_table_cell *cell);

#endif
