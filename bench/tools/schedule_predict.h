/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule --predict, and --json of --verify and --predict.
 */
#ifndef GYRE_BENCH_SCHEDULE_PREDICT_H
#define GYRE_BENCH_SCHEDULE_PREDICT_H

#include "bench/report/table_file.h"

#include <stdio.h>

struct bench_schedule_json;

/* @program: rank 0's, for the shape. */
struct bench_schedule_proof {
    const struct gyre_program *program;
    int variant;
    bool in_place;
    bool is_proved;
    const struct gyre_verify_report *report;
};

/** Errors: UNSUPPORTED (no json-c), OUT_OF_MEMORY. */
gyre_status bench_schedule_json_open(int argc, char **argv, struct bench_schedule_json **json_out);

/** @json: NULL does nothing. */
void bench_schedule_json_proof(struct bench_schedule_json *json,
                               const struct bench_schedule_proof *proof);

/** @json: NULL does nothing. Errors: as gyre_file_replace(). */
gyre_status bench_schedule_json_close(struct bench_schedule_json *json, const char *path);

enum bench_schedule_net {
    BENCH_NET_UNNAMED, /* RDMA with the table's constants */
    BENCH_NET_IB,
    BENCH_NET_SOCKET
};

/** Not for BENCH_NET_UNNAMED. */
static inline const char *bench_net_name(enum bench_schedule_net net)
{
    return net == BENCH_NET_IB ? "ib" : "socket";
}

/* Texts are argv's. NULL or 0 = not given. */
struct bench_schedule_request {
    const struct gyre_algorithm *algorithm; /* NULL = all of the collective */
    struct gyre_shape shape;
    const char *cost;     /* name or file, default h200 */
    bool is_machine;      /* `cost` names a machine */
    uint64_t first_bytes; /* default 1K, steps of a factor of four */
    uint64_t last_bytes;  /* default 1G */
    const char *proto;
    const char *trace; /* for one algorithm and size */
    double nic_gbytes_per_s;
    enum bench_schedule_net net;
    const char *fabric_path;
    const struct gyre_fabric *fabric; /* of fabric_path, for the shape's grouping */
    int n_channels;
    size_t tile_bytes;
    int depth;
    struct bench_schedule_json *json; /* NULL = not wanted */
    struct bench_tidy *csv;           /* NULL = not wanted */
};

/** Puts a machine in the place of `cost`. @machine: NULL does nothing. @n_nics: NULL, or gets those
 * of a host if it is 0. False after printing what is wrong. */
bool bench_take_machine(struct bench_schedule_request *request, const char *machine, int *n_nics);

/** A communicator's choices fill in what is missing. Errors: INVALID_ARGUMENT, SYSTEM (constants),
 * UNSUPPORTED (too large). */
gyre_status bench_schedule_predict(const struct bench_schedule_request *request);

/** schedule --rows (docs/fabric.md#rows): each line gets one flushed answer. @path: "-" = standard
 * input. False after printing that it is unreadable. */
bool bench_predict_rows(const char *path, FILE *out);

/** schedule --library. @request: its coll, hosts, sizes, cost, fabric, NICs and trace count.
 * @words: name and a row's words behind commas. Errors: as bench_schedule_predict(). */
gyre_status bench_predict_library(const struct bench_schedule_request *request, const char *words);

/* Between sizes of a table. */
#define BENCH_PREDICT_SIZE_FACTOR 4

struct bench_schedule_fastest {
    const struct gyre_algorithm *algorithm;
    struct gyre_prediction prediction;
};

/** Prints nothing. @n_bytes: of the vector or all blocks. Errors: as bench_schedule_predict(), also
 * UNSUPPORTED without a predictable algorithm. */
gyre_status bench_schedule_fastest(const struct bench_schedule_request *request, uint64_t n_bytes,
                                   struct bench_schedule_fastest *fastest_out);

/** All ranks and tiles, as a communicator would choose them. @request: one algorithm, sizes are not
 * read. @n_bytes: of the vector or all blocks. @most_steps: over ranks, rail programs and tiles.
 * @simulation: has `observe` and `observer`, gets the rest except `cost`. Errors: as
 * bench_schedule_predict(), also UNSUPPORTED for too many steps. */
gyre_status bench_schedule_simulate(const struct bench_schedule_request *request, uint64_t n_bytes,
                                    uint64_t most_steps, struct gyre_simulation *simulation,
                                    struct gyre_prediction *prediction_out);

/** Of all ranks, rail programs and tiles. Errors: UNSUPPORTED (too many). */
gyre_status bench_schedule_check_steps(struct gyre_simulator *simulator,
                                       const struct gyre_simulation *simulation,
                                       uint64_t most_steps);

/** Writes tracks as a measured trace has them (docs/trace.md), for one channel of each rail
 * program. @request: one algorithm. @n_bytes: of the vector or all blocks. @given: NULL, or what is
 * simulated in place of a communicator's choice. Errors: as bench_schedule_simulate() and
 * gyre_file_replace(). */
gyre_status bench_simulated_trace(const struct bench_schedule_request *request, uint64_t n_bytes,
                                  const struct gyre_simulation *given, const char *path);

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

/** Of the count that the collective's function takes. @n_bytes: of the vector or all blocks. */
uint64_t bench_table_call_bytes(const struct bench_schedule_request *request, uint64_t n_bytes);

/** As a communicator would choose, except for what the request names. @n_bytes:
 * bench_table_call_bytes(). */
gyre_status bench_table_predict(struct bench_table *table, int column, uint64_t n_bytes,
                                struct bench_table_cell *cell);

#endif
