/* SPDX-License-Identifier: Apache-2.0
 *
 * An executor runs the programs of one rank of a communicator and keeps the counters of every FIFO.
 * It sees slots and never a transport. All executors give the same bits.
 */
#ifndef GYRE_KERNELS_EXECUTOR_H
#define GYRE_KERNELS_EXECUTOR_H

#include "core/foundation/base/thread.h"
#include "core/foundation/device/device.h"
#include "core/foundation/model/connector.h"
#include "core/foundation/model/fused.h"
#include "core/foundation/model/schedule.h"
#include "core/foundation/model/tile.h"
#include "core/foundation/trace/trace.h"

/* The thread or kernel that runs the works is each word's one writer (release). */
struct gyre_progress {
    uint64_t completed;   /* finished works, in order */
    uint64_t activity;    /* host: grows with every slot that moves. cuda: works that have started,
                           * graph replays included */
    uint64_t mismatch;    /* 0, or 1 + the peer that sent a slot of a different call. The work waits
                           * for the fault */
    uint64_t late_signal; /* cuda: 0, or 1 + sending rank * GYRE_N_SIGNALS + signal of a wait past
                           * its timeout. It waits on */
    uint64_t lost_signal; /* as late_signal: the rank left without sending (peer_left) */
};

/* X(enum suffix, word) */
#define GYRE_WAIT_TABLE(X)                                                   \
    X(NOTHING, "nothing") /* its step can run */                             \
    X(SLOT, "slot")       /* the peer has not sent the slot */               \
    X(CREDIT, "credit")   /* no slot is free */                              \
    X(ENTRY, "entry")     /* placed data: the peer has not begun the call */ \
    X(FIT, "fit")         /* the slot that the peer sent is of another call */

enum gyre_wait {
#define GYRE_WAIT_ENUM(id, word) GYRE_WAIT_##id,
    GYRE_WAIT_TABLE(GYRE_WAIT_ENUM)
#undef GYRE_WAIT_ENUM
        GYRE_N_WAITS
};

#define GYRE_STEP_TEXT_BYTES 96

/* Ranks send it to each other: fixed layout. */
struct gyre_position {
    uint64_t sequence; /* of the call */
    uint64_t tile;
    uint64_t n_tiles;
    uint64_t slot;   /* that the worker waits for, or for whose credit; from 0 */
    uint64_t n_seen; /* sent or consumed by the peer, as far as this rank sees */
    uint32_t step;   /* in one tile, from 0 */
    uint32_t n_steps;
    uint16_t channel;
    uint16_t worker;
    uint16_t peer; /* communicator rank */
    uint16_t fifo; /* of the pair of ranks */
    uint16_t work;
    uint8_t waits_for; /* enum gyre_wait; NOTHING: peer, fifo, slot and n_seen are 0 */
    uint8_t coll;      /* enum gyre_collective */
    uint8_t is_lines;  /* 1: a slot of LL between hosts, which are numbered apart */
    uint8_t pad[3];
    char algorithm[16];
    char step_text[GYRE_STEP_TEXT_BYTES];
};

GYRE_STATIC_ASSERT(sizeof(struct gyre_position) == 176, "ranks send it to each other");

struct gyre_end_name {
    uint32_t peer;
    uint32_t fifo;
    bool is_send;
    bool is_lines; /* slots of LL between hosts, else of SIMPLE */
};

struct gyre_end_state {
    uint64_t n_moved; /* slots published (sender) or consumed (receiver) */
    bool is_held;     /* an unfinished worker of the running launch uses it */
    uint16_t work;    /* that worker's, as in struct gyre_position */
    uint16_t channel;
    uint16_t worker;
};

struct gyre_executor_config {
    struct gyre_device *device;
    int rank; /* for messages */
    int n_ranks;
    struct gyre_fifo_spec spec;
    /* In the order of gyre_connector_index(); copied. An entry whose inbox is NULL does not
     * exist. */
    const struct gyre_connector *connectors;
    bool overlaps_launches;         /* GPUs: a launch may begin before the previous one ends */
    uint64_t block_placement_bytes; /* CUDA: least transfer for block placement */
    uint32_t n_gpu_sharers;         /* CUDA: most ranks on one GPU. 0 = 1 */
    struct gyre_fault *fault;       /* ends all works with its status */
    struct gyre_trace *trace;       /* outlives the executor. NULL = nothing is recorded */
    /* Moves slots of proxied connectors in the executor's thread; true if any moved. Executors
     * whose ops say `helps` call it while works wait, and with is_last when a launch has ended. May
     * be NULL. */
    bool (*help)(void *context, bool is_last);
    void *help_context;
};

/* Of a kernel that copies within a GPU's memory beside copy engines. */
#define GYRE_COPY_BLOCKS 16

/* CUDA: of a scratch area where one step can add the inputs of all ranks, so that few programs use
 * scratch. Their tiles are as short. */
#define GYRE_CUDA_SMALL_AREA_BYTES 4096

static inline bool gyre_cuda_has_small_areas(uint32_t n_ranks)
{
    return n_ranks <= GYRE_STEP_MAX_RECVS;
}

struct gyre_load_config {
    const struct gyre_program *program; /* outlives the loaded program */
    /* Of the shape, `program` first: channel c runs variants[c % n_variants]. NULL = all run
     * `program`. They agree in collective, chunks and lanes. Outlive the loaded program. */
    const struct gyre_program *const *variants;
    uint32_t n_variants;
    const uint16_t *rank_of; /* shape rank -> communicator rank; NULL = the same */
    uint32_t n_channels;     /* lane l of channel c uses the pair's FIFO c * program->n_lanes + l */
    enum gyre_proto proto;   /* of connections without a proxy */
    enum gyre_proto net_proto; /* of connections with a proxy: SIMPLE, or LL */
    uint32_t n_threads;        /* CUDA: threads of a block; 0 = default */
    /* CUDA: copy engines run the copy tail (gyre_program_copy_tail()). The same on all ranks. */
    bool by_copy_engines;
    bool in_host_memory; /* CUDA: slots without a proxy lie in host memory */
};

/** gyre_load_variants - that some channel runs: at least 1. */
static inline uint32_t gyre_load_variants(const struct gyre_load_config *config)
{
    const uint32_t n_variants = config->variants == NULL ? 1 : config->n_variants;
    return n_variants < config->n_channels ? n_variants : config->n_channels;
}

/** gyre_load_program - @variant: below gyre_load_variants(). */
static inline const struct gyre_program *gyre_load_program(const struct gyre_load_config *config,
                                                           uint32_t variant)
{
    return config->variants == NULL ? config->program : config->variants[variant];
}

struct gyre_loaded;

struct gyre_reduction {
    uint8_t dtype;       /* gyre_dtype */
    uint8_t op;          /* GYRE_SUM, _PROD, _MAX or _MIN */
    uint8_t premultiply; /* 1: elements of IN are multiplied by `scalar`, rounded, when read */
    uint8_t pad;
    uint32_t divisor; /* > 1: divides integer results of FINAL steps, towards zero */
    uint64_t scalar;  /* one element of dtype, in the low bytes */
};

/* The OUT buffers of all ranks, each at the same offset from its rank's base. */
struct gyre_placement {
    void *const *bases;        /* by communicator rank, as addresses of this rank */
    void *const *device_bases; /* `bases` for the GPU; NULL on the host */
};

/* How an executor runs a call, which each rank decides alone: fused kernel and interpreter write
 * the same slots. */
struct gyre_run {
    const char *kernel;   /* the fused kernel; NULL = the steps are interpreted */
    const char *measured; /* where the row was; NULL = nowhere */
    uint32_t shared_bytes;
    uint16_t row;      /* of the kernels' table, from 1; 0 = none fits */
    uint16_t n_blocks; /* of a row */
    uint16_t n_rows;   /* of blocks; of two, the first sends and the other receives */
    uint16_t n_threads;
    uint16_t threads_per_peer; /* whole warps */
    uint8_t unroll;            /* line protocols: rounds in flight */
    bool is_exact;             /* LAMPORT: one tile, aligned, and as many peers as registers */
    bool places_blocks;        /* the blocks choose their multiprocessors */
};

/* A plan made ready, without the buffers of a call: what all of its works have in common. Executors
 * put more behind it. */
struct gyre_ready {
    struct gyre_loaded *loaded;
    struct gyre_split split;
    struct gyre_reduction reduction; /* its scalar is unused */
    bool is_in_place;                /* IN is OUT */
    bool is_aligned; /* IN and OUT, of all ranks if results are placed, at multiples of 16 bytes */
    struct gyre_run run; /* filled in by the executor; zeros on the host */
};

struct gyre_work {
    const struct gyre_ready *ready; /* until enqueue() has returned */
    const void *in;                 /* NULL if the program never reads IN */
    void *out;
    uint64_t scalar; /* of the reduction */
    uint32_t signature;
    uint64_t sequence; /* of the call, for messages */
    const struct gyre_placement
        *placement;            /* outlives the work; NULL if the program places nothing */
    uint64_t out_offset_bytes; /* of OUT from its base, the same on all ranks */
    uint32_t follows; /* 1 + number in the launch of the work after whose end this one begins; 0 =
                       * none. At most one work follows a work. 0 without ops.queues */
};

struct gyre_ready_needs {
    uint32_t n_channels;
    uint32_t n_chunks;
    uint64_t most_tile_bytes;
};

struct gyre_launch_span {
    uint64_t begin_ns;
    uint64_t end_ns;
};

/* In works launched later. */
#define GYRE_TIMED_WORKS 256

/* ---- one-sided operations ------------------------------------------------------------------
 *
 * A rank's signal counters, in its device's memory and addressed by all ranks. Each array has
 * n_ranks * GYRE_N_SIGNALS 64-bit words, zero at first, that only grow. */
enum gyre_signal_array {
    GYRE_SIGNALS_ARRIVED, /* by sending rank, its writer: signals that have come */
    GYRE_SIGNALS_SENT,    /* CUDA, by receiving rank: signals that this rank has sent */
    GYRE_SIGNALS_AWAITED, /* by sending rank: signals that this rank's waits have taken */
    GYRE_N_SIGNAL_ARRAYS
};

static inline size_t gyre_signal_index(int n_ranks, enum gyre_signal_array array, int peer,
                                       int signal)
{
    return ((size_t)array * (size_t)n_ranks + (size_t)peer) * GYRE_N_SIGNALS + (size_t)signal;
}

struct gyre_put;

/* To ranks whose memory this rank does not address. Host only. Outlives the executor. */
struct gyre_remote_puts {
    void *context;
    uint64_t most_bytes; /* of one piece */
    /* Send a piece of a put, then its signal. False = no room now. */
    bool (*post)(void *context, const struct gyre_put *piece);
    void (*help)(void *context); /* receives messages while a wait lasts */
};

struct gyre_put {
    uint64_t *const *counters; /* by rank, as addresses of this rank; outlive the executor */
    int peer;
    int signal; /* counted up behind the data; GYRE_NO_SIGNAL = none */
    void *to;   /* as an address of this rank; unused with `remote` */
    const void *from;
    size_t n_bytes;                        /* 0 = only the signal */
    const struct gyre_remote_puts *remote; /* NULL = this rank writes to `to` */
    uint32_t window;                       /* remote */
    uint64_t offset_bytes;                 /* remote: in the peer's buffer */
    uint64_t timeout_ns;                   /* remote: of one message; 0 = none */
};

struct gyre_signals_await {
    uint64_t *const *counters;     /* as in struct gyre_put */
    const gyre_signal_wait *waits; /* copied */
    int n_waits;
    uint64_t timeout_ns;                   /* 0 = none */
    const struct gyre_remote_puts *remote; /* NULL = no awaited rank needs it */
};

#define GYRE_BLOCKED_SENDERS 16

/* A rank whose one-sided operations all wait for signals, or stand behind such a wait in a
 * stream. */
struct gyre_blocked {
    uint64_t n_ended; /* 1 + one-sided operations that have ended; no signal is sent while it stays
                       * the same */
    uint32_t n_senders; /* one for each stream */
    uint32_t pad;
    uint32_t senders[GYRE_BLOCKED_SENDERS];
};

struct gyre_executor;

struct gyre_executor_ops {
    const char *name;
    bool helps;  /* proxies need not be woken for an operation */
    bool queues; /* enqueue() takes any works that only copy, and gyre_work.follows */
    gyre_status (*open)(const struct gyre_executor_config *config,
                        struct gyre_executor **executor_out);
    /* Does not wait. The caller has synchronised the streams or raised the fault. */
    void (*close)(struct gyre_executor *executor);
    /* Any thread; does not block. */
    struct gyre_progress (*progress)(const struct gyre_executor *executor);
    /* The first `most` unfinished workers of the running launch, by work, channel and worker.
     * *n_out: how many there are in all; 0 if no launch runs. Any thread; waits at most for one
     * poll. Errors: UNSUPPORTED. */
    gyre_status (*positions)(struct gyre_executor *executor, struct gyre_position *positions_out,
                             uint32_t most, uint32_t *n_out);
    /* This rank's side of a FIFO. As positions(). Errors: UNSUPPORTED, INVALID_ARGUMENT (no such
     * FIFO). */
    gyre_status (*end_state)(struct gyre_executor *executor, const struct gyre_end_name *name,
                             struct gyre_end_state *state_out);
    /* Have all enqueued works and one-sided operations ended? Any thread; does not block. */
    bool (*is_idle)(struct gyre_executor *executor);
    /* End all running and later works, after the fault was raised. Any thread; does not block. */
    void (*abort)(struct gyre_executor *executor);
    /* Copy placement->bases (n_ranks addresses) to device_bases; NULL on the host. Waits for no
     * work. */
    gyre_status (*place)(struct gyre_executor *executor, struct gyre_placement *placement);
    void (*unplace)(struct gyre_executor *executor, struct gyre_placement *placement);
    /* CUDA: copies the program to the GPU, and waits for no kernel. Not to be called between the
     * first and the last launch of a group. */
    gyre_status (*load)(struct gyre_executor *executor, const struct gyre_load_config *config,
                        struct gyre_loaded **loaded_out);
    /* Decide how a plan's works run, and set up its kernel. Not to be called between the first and
     * the last launch of a group.
     * @wanted: without `run`. @ready_out: by gyre_ready_free(), before its program is unloaded. */
    gyre_status (*ready)(struct gyre_executor *executor, const struct gyre_ready *wanted,
                         struct gyre_ready **ready_out);
    void (*unload)(struct gyre_executor *executor, struct gyre_loaded *loaded);
    /* Called once, before time_next(), while no thread launches. Errors: UNSUPPORTED (the host's
     * tasks know their times), OUT_OF_MEMORY, DEVICE. */
    gyre_status (*time_works)(struct gyre_executor *executor);
    /* Keep the times of the calling thread's next launch on `stream`, until GYRE_TIMED_WORKS later
     * works have been launched. False: they cannot be kept, as of a captured launch. */
    bool (*time_next)(struct gyre_executor *executor, gyre_stream stream);
    /* In the host's time. @work: works launched before it. False if the span is not known. Any
     * thread. */
    bool (*span_of)(struct gyre_executor *executor, uint64_t work,
                    struct gyre_launch_span *span_out);
    /* Returns at once. Works run at the same time, but for those that follow another, and share no
     * FIFO. Where none waits for a later one, they may run one after the other in this order.
     * Launches run one after the other, on any streams. */
    gyre_status (*enqueue)(struct gyre_executor *executor, const struct gyre_work *works,
                           int n_works, gyre_stream stream);
    /* Returns at once. Only streams order one-sided operations; progress() does not count them,
     * is_idle() counts those that were not captured. The fault ends them without a signal. A put to
     * a rank that has left is REMOTE: on CUDA the call returns it, on the host the stream ends with
     * it. */
    gyre_status (*put)(struct gyre_executor *executor, const struct gyre_put *put,
                       gyre_stream stream);
    /* The stream waits until all these signals have arrived, and takes them. After the timeout, or
     * if the sending rank has left, the host's stream ends with TIMEOUT or REMOTE; CUDA sets
     * gyre_progress.late_signal or .lost_signal and waits on. */
    gyre_status (*await_signals)(struct gyre_executor *executor,
                                 const struct gyre_signals_await *await, gyre_stream stream);
    /* The rank can send no more signals, and all it sent have arrived. Any thread; does not
     * block. */
    void (*peer_left)(struct gyre_executor *executor, int rank);
    /* Do all unfinished operations wait for signals, or behind such a wait in their stream? False
     * if there is none, if more than GYRE_BLOCKED_SENDERS streams wait, and on CUDA. Any thread;
     * waits at most for one poll. @blocked_out: unused bytes are zero. */
    bool (*find_blocked)(struct gyre_executor *executor, struct gyre_blocked *blocked_out);
};

struct gyre_executor {
    const struct gyre_executor_ops *ops;
    uint64_t n_launched; /* enqueue() is its one writer, with release */
};

extern const struct gyre_executor_ops gyre_executor_host;
#ifdef GYRE_WITH_CUDA
extern const struct gyre_executor_ops gyre_executor_cuda;
#endif

/** gyre_executor_find - @kind: HOST or CUDA. */
gyre_status gyre_executor_find(gyre_device_kind kind, const struct gyre_executor_ops **ops_out);

enum gyre_fused_arithmetic {
    GYRE_FUSED_COPY,      /* moves bytes as they are */
    GYRE_FUSED_FLOAT_SUM, /* as gyre_lamport_adds() */
    GYRE_FUSED_OTHER,     /* any other operation or type */
    GYRE_N_FUSED_ARITHMETIC
};

struct gyre_fused_call {
    enum gyre_proto proto;
    enum gyre_fused_pattern pattern;
    enum gyre_fused_arithmetic arithmetic;
    bool is_placed;
    bool is_aligned;     /* all addresses, lengths and cuts are multiples of 16 bytes */
    bool is_unscaled;    /* nothing is multiplied or divided */
    bool places_blocks;  /* blocks choose their multiprocessors */
    bool in_host_memory; /* slots lie in host memory */
    bool fits_two_rows;  /* room for blocks that only send beside as many that only receive, and IN
                          * is not OUT */
    uint32_t n_channels;
    uint32_t n_peers;
    uint32_t n_tiles;
    uint64_t step_bytes;        /* of the largest chunk of a tile */
    uint32_t depth;             /* slots of a FIFO */
    uint32_t n_threads;         /* of a block, as loaded */
    uint32_t most_shared_bytes; /* of a block; UINT32_MAX = not known */
};

/** gyre_executor_fused_tiles - the most tiles in which a fused kernel runs such a call; 0: the
 * steps are interpreted. Pure: also for machines without a GPU. @call: n_tiles is the least number
 * of tiles. */
uint32_t gyre_executor_fused_tiles(gyre_device_kind kind, const struct gyre_fused_call *call);

/** gyre_executor_run - how such a call is run. Pure; for people.
 * @call: n_threads does not count. */
struct gyre_run gyre_executor_run(gyre_device_kind kind, const struct gyre_fused_call *call);

/* Measured thresholds of launches. */
enum gyre_kernel_limit_id {
    GYRE_LIMIT_PLACEMENT_BYTES, /* what a rank transfers at least for block placement */
    GYRE_LIMIT_BLOCKS_TOGETHER, /* of a send and a receive. More hold most multiprocessors of a GPU,
                                 * so two communicators' calls could each hold those that the other
                                 * needs */
    GYRE_N_KERNEL_LIMITS
};

extern const struct gyre_kernel_limit {
    uint64_t number;
    const char *measured; /* where and when */
} gyre_kernel_limits[GYRE_N_KERNEL_LIMITS];

/** gyre_ready_check - errors: INTERNAL (the plan does not fit its loaded program). */
gyre_status gyre_ready_check(const struct gyre_ready *ready, const struct gyre_ready_needs *needs);

/** gyre_ready_free - NULL: does nothing. No work with it is being enqueued. */
void gyre_ready_free(struct gyre_ready *ready);

/** gyre_fail_unreachable - returns REMOTE. */
gyre_status gyre_fail_unreachable(int peer, int rank);

/** gyre_premultiply_scalar - 1/n in dtype's bits, rounded to nearest even, for GYRE_AVG of
 * floats. */
uint64_t gyre_premultiply_scalar(gyre_dtype dtype, uint32_t n);

#endif
