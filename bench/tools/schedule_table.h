/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of predictions: everything that stays the same for all sizes, and its cells.
 */
#ifndef GYRE_BENCH_SCHEDULE_TABLE_H
#define GYRE_BENCH_SCHEDULE_TABLE_H

#include "algorithms/simulate/fabric.h"
#include "algorithms/simulate/simulate.h"
#include "bench/tools/schedule_predict.h"
#include "core/engine/plan/plan.h"

#define BENCH_TABLE_ALGORITHMS 16

/* Everything that stays the same for all sizes. */
struct bench_table {
    const struct bench_schedule_request *request;
    struct gyre_cost cost;
    struct gyre_tuner_facts facts;
    struct gyre_filter filter;
    const struct gyre_algorithm *algorithms[BENCH_TABLE_ALGORITHMS];
    struct gyre_simulator *simulators[BENCH_TABLE_ALGORITHMS];
    int n_algorithms;
    bool all_ranks; /* simulate every rank, even if one stands for all */
    bool is_quiet;  /* print no reason why an algorithm is left out */
};

/* The prediction for one algorithm and size. */
struct bench_table_cell {
    struct gyre_choice choice;
    struct gyre_prediction prediction;
};

/** bench_table_open - fill in a table, whose request, all_ranks and is_quiet are set. The table is
 * closed afterwards also if this fails.
 * Errors: those of the request's values; UNSUPPORTED if the algorithm that it names cannot be
 * simulated. */
gyre_status bench_table_open(struct bench_table *table);
void bench_table_close(struct bench_table *table);

/** bench_table_call_bytes - the bytes of the count that the collective's function takes.
 * @n_bytes: of all blocks where buffers are made of blocks. */
uint64_t bench_table_call_bytes(const struct bench_schedule_request *request, uint64_t n_bytes);

/** bench_table_choose - choose as a communicator would, and replace the parts of the choice that
 * the request names.
 * @n_bytes: bench_table_call_bytes(). */
gyre_status bench_table_choose(const struct bench_table *table, int column, uint64_t n_bytes,
                               struct gyre_choice *choice);

/** bench_table_fill - fill in the simulation of a call by this choice. */
void bench_table_fill(const struct bench_table *table, const struct gyre_choice *choice,
                      uint64_t n_bytes, struct gyre_simulation *simulation);

/** bench_table_predict - fill in the cell of an algorithm.
 * @n_bytes: bench_table_call_bytes(). */
gyre_status bench_table_predict(struct bench_table *table, int column, uint64_t n_bytes,
                                struct bench_table_cell *cell);

#endif
