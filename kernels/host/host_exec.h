/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_KERNELS_HOST_EXEC_H
#define GYRE_KERNELS_HOST_EXEC_H

#include "core/foundation/device/host_stream.h"
#include "kernels/executor.h"

/* This rank's side of a FIFO, of one cache line. Used under poll_lock by the running launch. */
struct gyre_host_end {
    unsigned char *slots;
    struct gyre_inbox *inbox; /* NULL = no connection */
    struct gyre_credit *credit;
    uint64_t n_moved; /* slots posted or consumed */
    uint64_t n_seen;  /* the head or tail read last, which saves cache misses. Receiver of LL:
                       * arrived words of the current slot */
    uint32_t slot;
    uint16_t depth;
    uint8_t proto; /* SIMPLE or LL */
    bool is_proxied;
    uint32_t slot_bytes;
    uint16_t peer;
    uint16_t fifo;    /* of the pair of ranks */
    uint64_t n_entry; /* placed data: n_moved at the work's begin */
};

struct gyre_host_executor {
    struct gyre_executor base; /* must be first */
    int rank;
    uint32_t n_ranks;
    struct gyre_fifo_spec spec;
    struct gyre_host_end *ends;      /* gyre_connector_index() order */
    struct gyre_host_end *line_ends; /* NULL = none */
    /* A step's LL as plain bytes, line_payload_bytes an input, then an output. Under poll_lock. */
    unsigned char *unpacked;
    uint32_t line_payload_bytes;
    struct gyre_progress
        *progress; /* on a cache line of its own, because another thread reads it */

    pthread_mutex_t poll_lock;
    struct gyre_fault *fault;
    struct gyre_trace *trace; /* NULL = none, as of the next */
    struct gyre_trace_buffer *recorded;
    bool (*help)(void *context, bool is_last);
    void *help_context;
    uint64_t running_ticket;
    struct gyre_host_launch *running; /* from its first poll to its end */
    bool is_closed;
    uint64_t n_ended;

    uint32_t *has_left;   /* by rank: 1 = it sends no more signals; any thread sets it, release */
    uint64_t n_one_sided; /* in streams; any thread adds, threads that run streams subtract */
    pthread_mutex_t lock; /* guards the fields below */
    uint64_t n_tickets;
    uint32_t n_users;                      /* the owner, enqueued launches, one-sided operations */
    struct gyre_one_sided_task *one_sided; /* newest first */
    struct gyre_host_launch *free_launches;
};

struct gyre_loaded {
    uint32_t n_users; /* the owner and enqueued works; under the executor's lock */
    uint32_t n_channels;
    uint32_t n_chunks;
    uint32_t n_variants; /* channel c runs c % n_variants */
    uint32_t n_runners;
    uint32_t n_workers; /* of the largest variant, as the next two */
    uint32_t n_connections;
    uint32_t n_scratch; /* areas of a channel */
    uint32_t max_range;
    uint32_t area_bytes; /* of a tile's chunk */
    uint32_t n_parts[GYRE_OPERAND_CONNECTION];
    bool in_blocks;
    bool out_blocks;
    bool is_placed;
    uint16_t *names;             /* NULL = blocks are counted by rank */
    struct gyre_worker *workers; /* [variant][worker]; n_steps is 0 where there are fewer */
    struct gyre_step *steps;
    struct gyre_host_end **ends; /* [channel][connection] */
    unsigned char *scratch;      /* [channel][area] */
    /* For messages: [variant][connection], communicator ranks. */
    struct gyre_connection *connections;
    char algorithm[16];
    uint8_t coll;    /* enum gyre_collective */
    uint32_t traced; /* in the trace, or GYRE_TRACE_NO_PROGRAM */
};

/* Copies what it needs of its plan, which may go earlier. */
struct gyre_host_work {
    struct gyre_work work;
    struct gyre_loaded *loaded;
    struct gyre_split split;
    struct gyre_reduction reduction;
    uint32_t n_live;
    struct gyre_host_work *next; /* begins after this one; NULL = none */
};

struct gyre_host_runner {
    struct gyre_host_work *work;
    const struct gyre_step *steps;
    struct gyre_host_end **ends; /* of the channel, as the next two */
    unsigned char *scratch;
    uint64_t tile;
    uint64_t n_tiles;
    uint32_t n_steps;
    uint32_t step;
    uint32_t channel;
    uint32_t worker;
    bool has_entered; /* peers may write OUT */
    bool is_stuck;    /* the peer makes another call; waits for the fault */
    bool is_next;     /* recorded: the step before has just ended */
    bool has_waited;
    uint64_t begin_ns; /* recorded: the step before ended */
    uint64_t data_ns;  /* recorded: when all data were there; 0 = not yet */
};

struct gyre_host_launch {
    struct gyre_task task; /* must be first */
    struct gyre_host_executor *executor;
    struct gyre_host_launch *next_free;
    uint64_t ticket;
    uint64_t first_work; /* works launched before */
    uint64_t begin_ns;
    uint64_t last_ns;
    bool is_recorded;
    uint32_t n_works;
    uint32_t n_finished; /* leading works */
    uint32_t n_runners;  /* unfinished, of begun works; they stand first */
    uint32_t next;
    uint32_t max_works;
    uint32_t max_runners;
    struct gyre_host_work *works;
    struct gyre_host_runner *runners;
};

/** The last one frees it. The caller holds executor->lock. */
void gyre_host_drop_user_and_unlock(struct gyre_host_executor *executor);

gyre_status gyre_host_ready(struct gyre_executor *executor, const struct gyre_ready *wanted,
                            struct gyre_ready **ready_out);
gyre_status gyre_host_enqueue(struct gyre_executor *executor, const struct gyre_work *works,
                              int n_works, gyre_stream stream);

/** False: nothing was done; else *n_bytes_out is at least 1. At tile n_tiles
 * the runner is finished. The caller holds poll_lock. */
bool gyre_host_step_try(struct gyre_host_executor *executor, struct gyre_host_runner *runner,
                        uint64_t *n_bytes_out);

/** gyre_host_has_arrived - @in: a connection of the runner's step. */
bool gyre_host_has_arrived(const struct gyre_host_runner *runner, const struct gyre_operand *in);

bool gyre_host_has_data(const struct gyre_host_runner *runner);
bool gyre_host_has_room(const struct gyre_step *step, struct gyre_host_end *const *ends);

/** Are n bytes of the next slot there? */
bool gyre_host_lines_arrived(struct gyre_host_end *end, uint64_t n_bytes);

void gyre_host_lines_unpack(const struct gyre_host_end *end, unsigned char *to, uint64_t n_bytes);

/** Announces them to the proxy. */
void gyre_host_lines_send(const struct gyre_host_end *end, const unsigned char *from,
                          uint64_t n_bytes);

/** Tells the peers, once, that they may place data into OUT. */
void gyre_host_enter(struct gyre_host_runner *runner);

bool gyre_host_trace_step(struct gyre_host_launch *launch, struct gyre_host_runner *runner,
                          uint64_t *n_bytes_out);

/** Decides whether the launch is recorded. The caller holds poll_lock. */
void gyre_host_trace_begin(struct gyre_host_launch *launch);
void gyre_host_trace_end(const struct gyre_host_launch *launch);

/** Errors: OUT_OF_MEMORY. */
gyre_status gyre_host_trace_load(const struct gyre_host_executor *executor,
                                 const struct gyre_load_config *config, struct gyre_loaded *loaded);

gyre_status gyre_host_load(struct gyre_executor *executor, const struct gyre_load_config *config,
                           struct gyre_loaded **loaded_out);
void gyre_host_unload(struct gyre_executor *executor, struct gyre_loaded *loaded);

gyre_status gyre_host_positions(struct gyre_executor *executor, struct gyre_position *positions_out,
                                uint32_t most, uint32_t *n_out);
gyre_status gyre_host_side_state(struct gyre_executor *executor, const struct gyre_side_name *name,
                                 struct gyre_side_state *state_out);

gyre_status gyre_host_put(struct gyre_executor *executor, const struct gyre_put *put,
                          gyre_stream stream);
gyre_status gyre_host_await_signals(struct gyre_executor *executor,
                                    const struct gyre_signals_await *await, gyre_stream stream);
void gyre_host_peer_left(struct gyre_executor *executor, int rank);
bool gyre_host_find_blocked(struct gyre_executor *executor, struct gyre_blocked *blocked_out);

/** The last one frees it. The caller holds executor->lock. */
void gyre_host_loaded_release(struct gyre_loaded *loaded);

struct gyre_reduce_step {
    const struct gyre_reduction *reduction;
    const void *ins[GYRE_STEP_MAX_INS]; /* in reduction order; any alignment */
    void *outs[GYRE_STEP_MAX_OUTS];     /* equal to an input or disjoint from all */
    uint32_t n_ins;                     /* >= 1 */
    uint32_t n_outs;
    uint32_t premultiply_mask; /* bit k: ins[k] times the scalar, rounded to dtype */
    bool divide;               /* integers, towards zero */
    uint64_t n_elems;
};

/** All inputs in order to all outputs. f16, bf16 and fp8 accumulate in f32 and
 * round once. About 24 KiB of stack. Any thread. */
void gyre_reduce_run(const struct gyre_reduce_step *step);

#endif
