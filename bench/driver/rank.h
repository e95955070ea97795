/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank of a run: its communicator, stream and buffers, and one call of the collective that is
 * measured.
 */
#ifndef GYRE_BENCH_RANK_H
#define GYRE_BENCH_RANK_H

#include "bench/driver/bench.h"
#include "bench/driver/options.h"
#include "bench/driver/progress.h"
#include "bench/launch/ranks.h"
#include "core/device/device.h"

/* Where the data of calls lies, in device memory. */
struct bench_buffers {
    void *send; /* both n_bytes */
    void *recv;
    size_t n_bytes;
};

struct bench_rank {
    struct bench_member member;
    const struct bench_options *options;
    const struct bench_kind *kind;
    struct gyre_filter_words allowed; /* what calls may choose from; NULL = as the variables say */
    struct bench_progress *progress;  /* of the process; only local rank 0 reports to it */
    gyre_comm *comm;
    gyre_stream stream;
    gyre_device_kind device_kind;
    int ordinal;
    struct gyre_device *device;
    struct bench_buffers buffers;       /* of gyre's calls; larger than max_bytes */
    gyre_window window;                 /* of buffers.recv; 0 = none */
    gyre_registration registrations[2]; /* send and receive; NULL = none */
    uint32_t seed;                      /* of the last pattern; the same on all ranks */
    bool has_failed;                    /* and has said so */
};

/* What is measured; the same on all ranks. */
struct bench_case {
    enum gyre_collective coll;
    size_t count;   /* as the collective's parameter */
    size_t n_bytes; /* the larger of what a rank sends and receives */
    gyre_dtype dtype;
    gyre_op op;
    int root;
};

/* The case with one rank's buffers. */
struct bench_call {
    struct bench_case what;
    const struct bench_buffers *buffers; /* that the next two point into */
    const void *send;
    void *recv;
    bool is_in_place;
};

/** bench_rank_open / close - communicator, stream and buffers of a rank thread. Collective.
 * @id: NULL when all ranks are threads of this process and @comms_of_process holds their
 * communicators already. */
gyre_status bench_rank_open(struct bench_rank *rank, const gyre_unique_id *id,
                            gyre_comm *const *comms_of_process);
void bench_rank_close(struct bench_rank *rank);

/** bench_rank_print_error - a failure of this rank and its cause, on standard error. */
void bench_rank_print_error(const struct bench_rank *rank, gyre_status status);

/** bench_rank_agree - end of a phase: as bench_ranks_agree(). A rank that failed prints its cause
 * and aborts its communicator first, so that no other rank waits for it inside a collective. */
gyre_status bench_rank_agree(struct bench_rank *rank, gyre_status status);

/** bench_case_of - the case of about n_bytes: blocks are cut down to a multiple of 16 bytes, as in
 * nccl-tests. Pure. */
struct bench_case bench_case_of(enum gyre_collective coll, int n_ranks, size_t n_bytes,
                                gyre_dtype dtype, gyre_op op, int root);

/** bench_call_of - where this rank's data of a case lies, in place as gyre.h says or not.
 * @buffers: the rank's own or another engine's; outlives the call. */
struct bench_call bench_call_of(const struct bench_rank *rank, const struct bench_buffers *buffers,
                                const struct bench_case *what, bool is_in_place);

/** bench_enqueue - the collective, on the rank's stream. */
gyre_status bench_enqueue(const struct bench_rank *rank, const struct bench_call *call);

/** bench_wait - until everything enqueued is done. Errors: what ended the communicator. */
gyre_status bench_wait(const struct bench_rank *rank);

/** bench_fill - new inputs for a call, and zeros where results will be. All ranks together. */
gyre_status bench_fill(struct bench_rank *rank, const struct bench_call *call);

/** bench_check - the wrong elements that the last call left on this rank. */
gyre_status bench_check(const struct bench_rank *rank, const struct bench_call *call,
                        uint64_t *n_wrong_out);

#endif
