/* SPDX-License-Identifier: Apache-2.0
 *
 * An executor runs the programs of one rank and keeps the counters of every FIFO. It sees slots and
 * never a transport. All executors give the same bits.
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

/* One writer a word (release): the thread or kernel that runs the works. */
struct gyre_progress {
    uint64_t completed;   /* in order */
    uint64_t activity;    /* host: moved slots. cuda: started works, graph replays included */
    uint64_t mismatch;    /* 0, or 1 + the peer that sent a slot of a different call */
    uint64_t late_signal; /* cuda: 0, or 1 + sending rank * GYRE_N_SIGNALS + signal of a wait past
                           * its timeout */
    uint64_t lost_signal; /* likewise: the rank left without sending */
};

#define GYRE_WAIT_TABLE(X)                                                 \
    X(NOTHING, "nothing")                                                  \
    X(SLOT, "slot")     /* the peer has not sent the slot */               \
    X(CREDIT, "credit") /* no slot is free */                              \
    X(ENTRY, "entry")   /* placed data: the peer has not begun the call */ \
    X(FIT, "fit")       /* the slot that the peer sent is of another call */

enum gyre_wait {
#define GYRE_WAIT_ENUM(id, word) GYRE_WAIT_##id,
    GYRE_WAIT_TABLE(GYRE_WAIT_ENUM)
#undef GYRE_WAIT_ENUM
        GYRE_N_WAITS
};

#define GYRE_STEP_TEXT_BYTES 96

struct gyre_position {
    uint64_t sequence;
    uint64_t tile;
    uint64_t n_tiles;
    uint64_t slot;   /* that the worker waits for, or for whose credit; from 0 */
    uint64_t n_seen; /* sent or consumed by the peer, as this rank sees */
    uint32_t step;   /* of a tile, from 0 */
    uint32_t n_steps;
    uint16_t channel;
    uint16_t worker;
    uint16_t peer; /* communicator rank */
    uint16_t fifo; /* of the pair of ranks */
    uint16_t work;
    uint8_t waits_for; /* enum gyre_wait; NOTHING: peer, fifo, slot and n_seen are 0 */
    uint8_t coll;      /* enum gyre_collective */
    uint8_t is_lines;  /* 1: LL between hosts, numbered apart */
    uint8_t pad[3];
    char algorithm[16];
    char step_text[GYRE_STEP_TEXT_BYTES];
};

GYRE_STATIC_ASSERT(sizeof(struct gyre_position) == 176, "ranks send it to each other");

struct gyre_side_name {
    uint32_t peer;
    uint32_t fifo;
    bool is_send;
    bool is_lines; /* LL between hosts, else SIMPLE */
};

struct gyre_side_state {
    uint64_t n_moved;
    bool is_held;  /* by an unfinished worker of the running launch */
    uint16_t work; /* that worker's, as the next two */
    uint16_t channel;
    uint16_t worker;
};

struct gyre_executor_config {
    struct gyre_device *device;
    int rank; /* for messages */
    int n_ranks;
    struct gyre_fifo_spec spec;
    /* In gyre_connector_index() order; copied. A NULL inbox = no connector. */
    const struct gyre_connector *connectors;
    bool overlaps_launches;         /* GPUs */
    uint64_t block_placement_bytes; /* CUDA: the least transfer */
    uint32_t n_gpu_sharers;         /* CUDA: most ranks on one GPU. 0 = 1 */
    struct gyre_fault *fault;       /* ends all works */
    struct gyre_trace *trace;       /* outlives the executor. NULL = none */
    /* Moves slots of proxied connectors; true if any moved. Executors that help call it while works
     * wait, and with is_last after a launch. May be NULL. */
    bool (*help)(void *context, bool is_last);
    void *help_context;
};

/* Of a kernel that copies within a GPU beside copy engines. */
#define GYRE_COPY_BLOCKS 16

/* CUDA: of a scratch area, where one step can add all ranks' inputs. */
#define GYRE_CUDA_SMALL_AREA_BYTES 4096

static inline bool gyre_cuda_has_small_areas(uint32_t n_ranks)
{
    return n_ranks <= GYRE_STEP_MAX_RECVS;
}

/** CUDA: of a tile, which a scratch area holds.
 * @has_range_areas: of reduce-scatter and all-to-all whose steps move ranges, an area a rank. */
static inline uint32_t gyre_cuda_most_tile_bytes(uint32_t n_ranks, bool has_areas,
                                                 bool has_range_areas)
{
    if (has_areas && gyre_cuda_has_small_areas(n_ranks))
        return GYRE_CUDA_SMALL_AREA_BYTES;
    return has_range_areas ? 128 << 10 : UINT32_MAX;
}

/** The most chunks of a step. */
static inline uint32_t gyre_cuda_most_range(const struct gyre_program *program,
                                            enum gyre_proto proto)
{
    return proto == GYRE_PROTO_SIMPLE && program->names == NULL ? 128 : 1;
}

struct gyre_load_config {
    const struct gyre_program *program; /* outlives the loaded program */
    /* Of the shape, `program` first: channel c runs variants[c % n_variants]. NULL = all run
     * `program`. They agree in collective, chunks and lanes, and outlive the loaded program. */
    const struct gyre_program *const *variants;
    uint32_t n_variants;
    const uint16_t *rank_of; /* of a shape rank; NULL = the same */
    uint32_t n_channels;     /* lane l of channel c is FIFO c * program->n_lanes + l of the pair */
    enum gyre_proto proto;   /* of connections without a proxy */
    enum gyre_proto net_proto; /* with a proxy: SIMPLE or LL */
    uint32_t n_threads;        /* CUDA: of a block; 0 = default */
    /* CUDA: they run gyre_program_copy_tail(). The same on all ranks. */
    bool by_copy_engines;
    bool in_host_memory; /* CUDA: slots without a proxy */
};

static inline uint32_t gyre_load_variants(const struct gyre_load_config *config)
{
    const uint32_t n_variants = config->variants == NULL ? 1 : config->n_variants;
    return n_variants < config->n_channels ? n_variants : config->n_channels;
}

static inline const struct gyre_program *gyre_load_program(const struct gyre_load_config *config,
                                                           uint32_t variant)
{
    return config->variants == NULL ? config->program : config->variants[variant];
}

struct gyre_loaded;

struct gyre_reduction {
    uint8_t dtype;       /* gyre_dtype */
    uint8_t op;          /* GYRE_SUM, _PROD, _MAX or _MIN */
    uint8_t premultiply; /* 1: IN is multiplied by `scalar`, rounded, when read */
    uint8_t pad;
    uint32_t divisor; /* > 1: divides integer results of FINAL steps, towards zero */
    uint64_t scalar;  /* one element of dtype, in the low bytes */
};

/* At the same offset from each rank's base. */
struct gyre_placement {
    void *const *bases;        /* by communicator rank, as this rank's addresses */
    void *const *device_bases; /* for the GPU; NULL on the host */
};

/* Each rank decides it alone: fused kernel and interpreter write the same slots. */
struct gyre_run {
    const char *kernel;   /* NULL = the steps are interpreted */
    const char *measured; /* NULL = nowhere */
    uint32_t shared_bytes;
    uint16_t row; /* of the kernels, from 1; 0 = none */
    uint16_t n_blocks;
    uint16_t n_rows; /* two: the first sends, the other receives */
    uint16_t n_threads;
    uint16_t threads_per_peer; /* in whole warps */
    uint8_t unroll;            /* line protocols */
    bool is_exact;             /* LAMPORT: one aligned tile, as many peers as registers */
    bool places_blocks;
};

/* Without a call's buffers. Executors put more behind it. */
struct gyre_ready {
    struct gyre_loaded *loaded;
    struct gyre_split split;
    struct gyre_reduction reduction; /* without its scalar */
    bool is_in_place;                /* IN is OUT */
    bool is_aligned;                 /* to 16 bytes; of all ranks if results are placed */
    struct gyre_run run;             /* zeros on the host */
};

struct gyre_work {
    const struct gyre_ready *ready; /* until enqueue() has returned */
    const void *in;                 /* NULL if the program never reads IN */
    void *out;
    uint64_t scalar;
    uint32_t signature;
    uint64_t sequence;                      /* for messages */
    const struct gyre_placement *placement; /* outlives the work; NULL = none */
    uint64_t out_offset_bytes;              /* from OUT's base, the same on all ranks */
    uint32_t follows; /* 1 + number of the launch's work after whose end this one begins; 0 = none,
                       * as without ops.queues. At most one work follows a work */
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

#define GYRE_TIMED_WORKS 256

/* A rank's signal counters in its device's memory, addressed by all ranks: each array has n_ranks *
 * GYRE_N_SIGNALS words, zero at first, that only grow. */
enum gyre_signal_array {
    GYRE_SIGNALS_ARRIVED, /* by sending rank, its writer */
    GYRE_SIGNALS_SENT,    /* CUDA, by receiving rank */
    GYRE_SIGNALS_AWAITED, /* by sending rank: taken by this rank's waits */
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
    uint64_t most_bytes; /* of a piece */
    /* A piece, then its signal. False = no room now. */
    bool (*post)(void *context, const struct gyre_put *piece);
    void (*help)(void *context); /* receives messages during a wait */
};

struct gyre_put {
    uint64_t *const *counters; /* by rank, as this rank's addresses; outlive the executor */
    int peer;
    int signal; /* counted after the data; GYRE_NO_SIGNAL = none */
    void *to;   /* as this rank's address; unused with `remote` */
    const void *from;
    size_t n_bytes;                        /* 0 = only the signal */
    const struct gyre_remote_puts *remote; /* NULL = this rank writes `to` */
    uint32_t window;                       /* remote */
    uint64_t offset_bytes;                 /* remote: in the peer's buffer */
    uint64_t timeout_ns;                   /* remote: of a message; 0 = none */
};

struct gyre_signals_await {
    uint64_t *const *counters;     /* as in struct gyre_put */
    const gyre_signal_wait *waits; /* copied */
    int n_waits;
    uint64_t timeout_ns;                   /* 0 = none */
    const struct gyre_remote_puts *remote; /* NULL = not needed */
};

#define GYRE_BLOCKED_SENDERS 16

/* All of the rank's one-sided operations wait for signals or stand behind such a wait. */
struct gyre_blocked {
    uint64_t n_ended;   /* 1 + ended operations; no signal is sent while it stays */
    uint32_t n_senders; /* one a stream */
    uint32_t pad;
    uint32_t senders[GYRE_BLOCKED_SENDERS];
};

struct gyre_executor;

struct gyre_executor_ops {
    const char *name;
    bool helps;  /* proxies need not be woken for an operation */
    bool queues; /* enqueue() takes any copying works, and gyre_work.follows */
    gyre_status (*open)(const struct gyre_executor_config *config,
                        struct gyre_executor **executor_out);
    /* Does not wait: the caller has synchronised the streams or raised the fault. */
    void (*close)(struct gyre_executor *executor);
    /* Any thread; does not block. */
    struct gyre_progress (*progress)(const struct gyre_executor *executor);
    /* The first `most` unfinished workers of the running launch, by work, channel and worker.
     * *n_out: all of them. Any thread; waits at most for one poll. Errors: UNSUPPORTED. */
    gyre_status (*positions)(struct gyre_executor *executor, struct gyre_position *positions_out,
                             uint32_t most, uint32_t *n_out);
    /* As positions(). Errors: UNSUPPORTED, INVALID_ARGUMENT (no such FIFO). */
    gyre_status (*side_state)(struct gyre_executor *executor, const struct gyre_side_name *name,
                              struct gyre_side_state *state_out);
    /* Have all works and one-sided operations ended? Any thread; does not block. */
    bool (*is_idle)(struct gyre_executor *executor);
    /* The fault was raised. Any thread; does not block. */
    void (*abort)(struct gyre_executor *executor);
    /* Copies bases (n_ranks addresses) to device_bases; NULL on the host. Waits for no work. */
    gyre_status (*place)(struct gyre_executor *executor, struct gyre_placement *placement);
    void (*unplace)(struct gyre_executor *executor, struct gyre_placement *placement);
    /* Waits for no kernel. Not to be called between the launches of a group. */
    gyre_status (*load)(struct gyre_executor *executor, const struct gyre_load_config *config,
                        struct gyre_loaded **loaded_out);
    /* Not to be called between the launches of a group. @wanted: without `run`. @ready_out: freed
     * before its program is unloaded. */
    gyre_status (*ready)(struct gyre_executor *executor, const struct gyre_ready *wanted,
                         struct gyre_ready **ready_out);
    void (*unload)(struct gyre_executor *executor, struct gyre_loaded *loaded);
    /* Called once, before time_next(), while no thread launches. Errors: UNSUPPORTED (the host's
     * tasks know their times), OUT_OF_MEMORY, DEVICE. */
    gyre_status (*time_works)(struct gyre_executor *executor);
    /* Keeps the times of the calling thread's next launch on `stream` for GYRE_TIMED_WORKS works.
     * False: it cannot, as of a captured launch. */
    bool (*time_next)(struct gyre_executor *executor, gyre_stream stream);
    /* In the host's time. @work: works launched before. False = not known. Any thread. */
    bool (*span_of)(struct gyre_executor *executor, uint64_t work,
                    struct gyre_launch_span *span_out);
    /* Returns at once. Works run at the same time, except those that follow another, and share no
     * FIFO. Where none waits for a later one, they may run in this order. Launches run one after
     * the other, on any streams. */
    gyre_status (*enqueue)(struct gyre_executor *executor, const struct gyre_work *works,
                           int n_works, gyre_stream stream);
    /* Returns at once. Only streams order one-sided operations; progress() does not count them,
     * is_idle() counts uncaptured ones. The fault ends them without a signal. To a rank that has
     * left: CUDA returns REMOTE, the host's stream ends with it. */
    gyre_status (*put)(struct gyre_executor *executor, const struct gyre_put *put,
                       gyre_stream stream);
    /* The stream waits for all these signals and takes them. After the timeout, or if the sender
     * has left, the host's stream ends with TIMEOUT or REMOTE; CUDA sets gyre_progress.late_signal
     * or .lost_signal and waits on. */
    gyre_status (*await_signals)(struct gyre_executor *executor,
                                 const struct gyre_signals_await *await, gyre_stream stream);
    /* All signals that the rank sent have arrived. Any thread; does not block. */
    void (*peer_left)(struct gyre_executor *executor, int rank);
    /* False if no operation is unfinished, if more than GYRE_BLOCKED_SENDERS streams wait, and on
     * CUDA. Any thread; waits at most for one poll. @blocked_out: unused bytes are zero. */
    bool (*find_blocked)(struct gyre_executor *executor, struct gyre_blocked *blocked_out);
};

struct gyre_executor {
    const struct gyre_executor_ops *ops;
    uint64_t n_launched; /* written by enqueue() only, release */
};

extern const struct gyre_executor_ops gyre_executor_host;
#ifdef GYRE_WITH_CUDA
extern const struct gyre_executor_ops gyre_executor_cuda;
#endif

/** gyre_executor_find - @kind: HOST or CUDA. */
gyre_status gyre_executor_find(gyre_device_kind kind, const struct gyre_executor_ops **ops_out);

enum gyre_fused_arithmetic {
    GYRE_FUSED_COPY,
    GYRE_FUSED_FLOAT_SUM, /* as gyre_lamport_adds() */
    GYRE_FUSED_OTHER,
    GYRE_N_FUSED_ARITHMETIC
};

struct gyre_fused_call {
    enum gyre_proto proto;
    enum gyre_fused_pattern pattern;
    enum gyre_fused_arithmetic arithmetic;
    bool is_placed;
    bool is_aligned; /* addresses, lengths and cuts, to 16 bytes */
    bool is_unscaled;
    bool places_blocks;
    bool in_host_memory;
    bool fits_two_rows; /* room for sending beside receiving blocks, and IN is not OUT */
    uint32_t n_channels;
    uint32_t n_peers;
    uint32_t n_tiles;
    uint64_t step_bytes; /* of a tile's largest chunk */
    uint32_t depth;
    uint32_t n_threads;         /* of a loaded block */
    uint32_t most_shared_bytes; /* of a block; UINT32_MAX = unknown */
};

/** gyre_executor_fused_tiles - the most tiles that a fused kernel runs; 0: the steps are
 * interpreted. Pure. @call: n_tiles is the least number. */
uint32_t gyre_executor_fused_tiles(gyre_device_kind kind, const struct gyre_fused_call *call);

/** gyre_executor_run - pure. @call: n_threads does not count. */
struct gyre_run gyre_executor_run(gyre_device_kind kind, const struct gyre_fused_call *call);

enum gyre_kernel_limit_id {
    GYRE_LIMIT_PLACEMENT_BYTES, /* the least transfer of a rank */
    GYRE_LIMIT_BLOCKS_TOGETHER, /* of a send and a receive: with more, two communicators' calls
                                 * could each hold multiprocessors that the other needs */
    GYRE_N_KERNEL_LIMITS
};

extern const struct gyre_kernel_limit {
    uint64_t number;
    const char *measured;
} gyre_kernel_limits[GYRE_N_KERNEL_LIMITS];

/** gyre_ready_check - errors: INTERNAL (does not fit its loaded program). */
gyre_status gyre_ready_check(const struct gyre_ready *ready, const struct gyre_ready_needs *needs);

/** gyre_ready_free - no work with it is being enqueued. */
void gyre_ready_free(struct gyre_ready *ready);

gyre_status gyre_fail_unreachable(int peer, int rank);

/** gyre_premultiply_scalar - 1/n, rounded to nearest even. */
uint64_t gyre_premultiply_scalar(gyre_dtype dtype, uint32_t n);

#endif
