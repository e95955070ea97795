/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule --predict: the simulator's prediction, size by size. schedule --json: the results of
 * --verify and --predict as a file.
 */
#ifndef GYRE_BENCH_SCHEDULE_PREDICT_H
#define GYRE_BENCH_SCHEDULE_PREDICT_H

#include "algorithms/simulate/simulate.h"
#include "algorithms/verify/verify.h"
#include "bench/report/tidy.h"

#include <stdio.h>

struct bench_schedule_json;

/* @program: of rank 0, which stands for the shape. */
struct bench_schedule_proof {
    const struct gyre_program *program;
    int variant;
    bool in_place;
    bool is_proved;
    const struct gyre_verify_report *report;
};

/** bench_schedule_json_open - errors: UNSUPPORTED if the build has no json-c, OUT_OF_MEMORY. */
gyre_status bench_schedule_json_open(int argc, char **argv, struct bench_schedule_json **json_out);

/** bench_schedule_json_proof - NULL does nothing. */
void bench_schedule_json_proof(struct bench_schedule_json *json,
                               const struct bench_schedule_proof *proof);

/** bench_schedule_json_close - NULL does nothing. Errors: as gyre_file_replace(). */
gyre_status bench_schedule_json_close(struct bench_schedule_json *json, const char *path);

enum bench_schedule_net {
    BENCH_NET_UNNAMED, /* RDMA, with the constants as the table has them */
    BENCH_NET_IB,
    BENCH_NET_SOCKET
};

/** bench_net_name - not of BENCH_NET_UNNAMED. */
static inline const char *bench_net_name(enum bench_schedule_net net)
{
    return net == BENCH_NET_IB ? "ib" : "socket";
}

/* Texts are those of the command line; NULL or 0 = not given. */
struct bench_schedule_request {
    const struct gyre_algorithm *algorithm; /* NULL = all that have the collective */
    enum gyre_collective coll;
    unsigned n_ranks;
    unsigned root;
    const struct gyre_grouping *grouping;
    const char *cost;     /* a name, or a file; default h200 */
    uint64_t first_bytes; /* default 1K; on in steps of a factor of four */
    uint64_t last_bytes;  /* default 1G */
    const char *proto;
    const char *trace; /* for one algorithm and size */
    double nic_gbytes_per_s;
    enum bench_schedule_net net;
    const char *fabric_path;
    const struct gyre_fabric *fabric; /* of fabric_path, for the hosts of `grouping` */
    int n_channels;
    size_t tile_bytes;
    int depth;
    struct bench_schedule_json *json; /* NULL = not wanted */
    struct bench_tidy *csv;           /* NULL = not wanted */
};

/** bench_schedule_predict - for one algorithm time, bandwidth and bottleneck; else the times of all
 * algorithms. Values that are not given are a communicator's choice. Errors: INVALID_ARGUMENT,
 * SYSTEM (the file of constants), UNSUPPORTED (too large to simulate). */
gyre_status bench_schedule_predict(const struct bench_schedule_request *request);

/** bench_predict_rows - schedule --rows: a line of key=value words is a call of another library on
 * a machine (docs/fabric.md#rows); each has one line of answer, which is flushed, or "error" and
 * the reason. @path: "-" = standard input. False: it cannot be read, which is told on standard
 * error. */
bool bench_predict_rows(const char *path, FILE *out);

/** bench_predict_library - schedule --library: a table of what another library would do. @request:
 * its coll, hosts, sizes, cost, fabric and NICs count. @words: its name, and words of a row behind
 * commas. Errors: as bench_schedule_predict(). */
gyre_status bench_predict_library(const struct bench_schedule_request *request, const char *words);

/* From one size of a table to the next. */
#define BENCH_PREDICT_SIZE_FACTOR 4

struct bench_schedule_fastest {
    const struct gyre_algorithm *algorithm;
    struct gyre_prediction prediction;
};

/** bench_schedule_fastest - prints nothing. @n_bytes: of the whole vector or of all blocks. Errors:
 * as bench_schedule_predict(); UNSUPPORTED also if no algorithm can be predicted. */
gyre_status bench_schedule_fastest(const struct bench_schedule_request *request, uint64_t n_bytes,
                                   struct bench_schedule_fastest *fastest_out);

/** bench_schedule_simulate - all ranks and tiles, as a communicator would choose it. @request:
 * names one algorithm; its sizes are not read. @n_bytes: of the whole vector or of all blocks.
 * @most_steps: over all ranks, rail programs and tiles. @simulation: has `observe` and `observer`;
 * the other fields are set, except for `cost`. Errors: as bench_schedule_predict(); UNSUPPORTED
 * also for too many steps. */
gyre_status bench_schedule_simulate(const struct bench_schedule_request *request, uint64_t n_bytes,
                                    uint64_t most_steps, struct gyre_simulation *simulation,
                                    struct gyre_prediction *prediction_out);

/** bench_simulated_trace - schedule --predict --trace: with the tracks of a measured trace
 * (docs/trace.md), one channel of each rail program. @request: names one algorithm. @n_bytes: of
 * the whole vector or of all blocks. Errors: as bench_schedule_simulate(); those of
 * gyre_file_replace(). */
gyre_status bench_simulated_trace(const struct bench_schedule_request *request, uint64_t n_bytes,
                                  const char *path);

#endif
