/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule --predict: the simulator's prediction for a collective, size by size.
 */
#ifndef GYRE_BENCH_SCHEDULE_PREDICT_H
#define GYRE_BENCH_SCHEDULE_PREDICT_H

#include "algorithms/simulate/simulate.h"
#include "bench/report/tidy.h"
#include "bench/tools/schedule_json.h"

/* What carries data between hosts. */
enum bench_schedule_net {
    BENCH_NET_UNNAMED, /* RDMA, with the constants as the table has them */
    BENCH_NET_IB,
    BENCH_NET_SOCKET
};

/** bench_net_name - as users write it; not of BENCH_NET_UNNAMED. */
static inline const char *bench_net_name(enum bench_schedule_net net)
{
    return net == BENCH_NET_IB ? "ib" : "socket";
}

/* Texts are those of the command line; NULL or 0 = the option was not given. */
struct bench_schedule_request {
    const struct gyre_algorithm *algorithm; /* built in or of given programs; NULL = all algorithms
                                               that have the collective */
    enum gyre_collective coll;
    unsigned n_ranks;
    unsigned root;
    const struct gyre_grouping *grouping;
    const char *cost;     /* name of a table of constants, or a file; default h200 */
    uint64_t first_bytes; /* and on in steps of a factor of four; default 1K */
    uint64_t last_bytes;  /* default 1G */
    const char *proto;
    const char *trace;       /* file for the trace of one call of one algorithm and size */
    double nic_gbytes_per_s; /* of one NIC in each direction */
    enum bench_schedule_net net;
    const char *fabric_path;
    const struct gyre_fabric *fabric; /* of fabric_path; its hosts are those of `grouping` */
    int n_channels;
    size_t tile_bytes;
    int depth;
    struct bench_schedule_json *json; /* gets each prediction; NULL = no file is wanted */
    struct bench_tidy *csv;           /* likewise */
};

/** bench_schedule_predict - print a line for each size. For one algorithm the line has time,
 * bandwidth and bottleneck; else it has the times of all algorithms side by side. A communicator's
 * choice is used for values that are not given.
 * Errors: INVALID_ARGUMENT, SYSTEM (the file of constants), UNSUPPORTED (too large to simulate). */
gyre_status bench_schedule_predict(const struct bench_schedule_request *request);

struct bench_schedule_fastest {
    const struct gyre_algorithm *algorithm;
    struct gyre_prediction prediction;
};

/** bench_schedule_fastest - the prediction of the fastest algorithm for one call. Prints nothing.
 * @n_bytes: of the whole vector or of all blocks.
 * Errors: as bench_schedule_predict(); UNSUPPORTED also if no algorithm can be predicted. */
gyre_status bench_schedule_fastest(const struct bench_schedule_request *request, uint64_t n_bytes,
                                   struct bench_schedule_fastest *fastest_out);

/** bench_schedule_simulate - simulate one call, of all ranks and tiles, in the way that a
 * communicator would choose.
 * @request: names one algorithm; its sizes are not read.
 * @n_bytes: of the whole vector or of all blocks.
 * @most_steps: a call of more steps, over all ranks, variants and tiles, is not simulated.
 * @simulation: has `observe` and `observer`; the other fields are set, except for `cost`.
 * Errors: as bench_schedule_predict(); UNSUPPORTED also for too many steps. */
gyre_status bench_schedule_simulate(const struct bench_schedule_request *request, uint64_t n_bytes,
                                    uint64_t most_steps, struct gyre_simulation *simulation,
                                    struct gyre_prediction *prediction_out);

#endif
