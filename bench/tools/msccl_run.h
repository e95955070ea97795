/* SPDX-License-Identifier: Apache-2.0
 *
 * An MSCCL algorithm while it runs, to find the order of its moves: what every chunk and every slot
 * holds, and how far every thread block is. msccl_open.c makes it, msccl_order.c runs it.
 */
#ifndef GYRE_BENCH_MSCCL_RUN_H
#define GYRE_BENCH_MSCCL_RUN_H

#include "bench/tools/msccl.h"
#include "core/foundation/base/status.h"
#include "core/foundation/model/connector.h"

#define BENCH_MSCCL_WORDS (BENCH_MSCCL_MAX_GPUS / 64)

/* The contents of a chunk of memory or of a slot. */
struct bench_msccl_value {
    bool is_valid;
    uint16_t chunk;                   /* of the vector, or number of the block */
    uint64_t from[BENCH_MSCCL_WORDS]; /* one bit for each rank whose contribution it holds */
};

/* A chunk of a buffer of the MSCCL file. */
struct bench_msccl_cell {
    struct bench_msccl_value value;
    struct gyre_ref ref;    /* the chunk of the program that holds the value, if value.is_valid */
    struct gyre_ref target; /* the chunk of the program that the next write goes to */
    bool has_target;        /* false: the first write takes a new area of SCRATCH */
    bool is_result;
};

/* One thread block while the algorithm runs. */
struct bench_msccl_run_block {
    int worker;
    int sender_block; /* the thread block of recv_peer that sends to this one */
    int send_lane, recv_lane;
    int step, part; /* next: which step, and which of its chunks */
    int n_ahead;    /* chunks of the step after it that are done already */
    struct bench_msccl_value queue[GYRE_MAX_DEPTH]; /* sent and not yet received */
    int n_queued;
};

struct bench_msccl_run_gpu {
    struct bench_msccl_cell *cells;
    struct bench_msccl_run_block *blocks;
    int n_cells;
    int first_cell_of[BENCH_MSCCL_N_BUFFERS];
    int n_scratch;
    int n_workers;
    int capacities[GYRE_MAX_WORKERS]; /* of the moves of each worker */
};

struct bench_msccl_run {
    const struct bench_msccl *algo;
    struct bench_msccl_order *order;
    struct bench_msccl_run_gpu *gpus;
    int depth;
};

#define BENCH_MSCCL_REFUSE(run, line, ...) \
    bench_msccl_fail(GYRE_ERROR_UNSUPPORTED, (run)->algo, line, __VA_ARGS__)

/** bench_msccl_run_open - give each GPU its chunks, each thread block its worker, and each
 * connection its lane. @run: algo, order and depth are set. bench_msccl_run_close() frees it, also
 * after an error. Errors: UNSUPPORTED with the line and the reason, OUT_OF_MEMORY. */
gyre_status bench_msccl_run_open(struct bench_msccl_run *run);
void bench_msccl_run_close(struct bench_msccl_run *run);

gyre_status bench_msccl_out_of_memory(const struct bench_msccl *algo);

/** bench_msccl_is_vector - are input and output vectors, and not made of blocks? */
bool bench_msccl_is_vector(const struct bench_msccl *algo);

/** bench_msccl_cell_of - the chunk at a place of the file. */
struct bench_msccl_cell *bench_msccl_cell_of(const struct bench_msccl_run *run, int gpu,
                                             struct bench_msccl_place place);

#endif
