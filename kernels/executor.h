/* SPDX-License-Identifier: Apache-2.0
 *
 * An executor runs programs. It belongs to one rank of one communicator: it has the rank's
 * connectors and keeps the counters `posted` and `consumed` of every FIFO end. The executors `host`
 * and `cuda` are two rows of one ops table and give the same bits. An executor sees slots and never
 * a transport.
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

/* How far an executor is with its works. Each word has one writer at a time, the thread or the
 * kernel that runs the works, and is written with release. */
struct gyre_progress {
    uint64_t completed; /* works that have finished, in order; none of their kernels runs */
    uint64_t activity;  /* host: grows with every slot that moves. cuda: works that have started.
                         * Graph replays count, here and in `completed`. */
    uint64_t mismatch; /* 0, or 1 + the peer that sent a slot of a different call (another signature
                        * or size). The work then waits until the health thread raises a fault */
    uint64_t late_signal; /* cuda: 0, or 1 + sending rank * GYRE_N_SIGNALS + signal of a wait that
                           * has lasted longer than its timeout. It waits on likewise */
    uint64_t lost_signal; /* cuda: likewise, of a wait for signals of a rank that has left without
                           * sending them (peer_left) */
};

/* What a worker waits for. X(enum suffix, word) */
#define GYRE_WAIT_TABLE(X)                                                        \
    X(NOTHING, "nothing") /* its step can run */                                  \
    X(SLOT, "slot")       /* the peer has not sent the slot */                    \
    X(CREDIT, "credit")   /* the peer has not consumed a slot, so none is free */ \
    X(ENTRY, "entry")     /* placed data: the peer has not begun the call */      \
    X(FIT, "fit")         /* the slot that the peer sent is of another call */

enum gyre_wait {
#define GYRE_WAIT_ENUM(id, word) GYRE_WAIT_##id,
    GYRE_WAIT_TABLE(GYRE_WAIT_ENUM)
#undef GYRE_WAIT_ENUM
        GYRE_N_WAITS
};

#define GYRE_STEP_TEXT_BYTES 96

/* Where one worker of the running launch is. Ranks send it to each other: fixed layout. */
struct gyre_position {
    uint64_t sequence; /* of the call */
    uint64_t tile;
    uint64_t n_tiles;
    uint64_t slot;   /* the number of the slot that the worker waits for, or of the slot for whose
                      * credit it waits; a connection's first slot is number 0 */
    uint64_t n_seen; /* slots that the peer has sent, or consumed, as far as this rank sees */
    uint32_t step;   /* of the worker's steps in one tile, from 0 */
    uint32_t n_steps;
    uint16_t channel;
    uint16_t worker;
    uint16_t peer;     /* communicator rank that is waited for */
    uint16_t fifo;     /* of the pair of ranks */
    uint16_t work;     /* of the launch; works of one launch run side by side */
    uint8_t waits_for; /* enum gyre_wait; NOTHING: peer, fifo, slot and n_seen are 0 */
    uint8_t coll;      /* enum gyre_collective */
    uint8_t is_lines;  /* 1: the slot is one of LL between hosts, which have numbers of their own */
    uint8_t pad[3];
    char algorithm[16];
    char step_text[GYRE_STEP_TEXT_BYTES]; /* gyre_step_to_text(), with communicator ranks */
};

GYRE_STATIC_ASSERT(sizeof(struct gyre_position) == 176, "exchanged between ranks");

/* One end of a FIFO of the executor. */
struct gyre_end_name {
    uint32_t peer;
    uint32_t fifo;
    bool is_send;
    bool is_lines; /* its slots of LL between hosts, else those of SIMPLE */
};

struct gyre_end_state {
    uint64_t n_moved; /* slots published (sending end) or consumed (receiving end) */
    bool is_held;     /* an unfinished worker of the running launch uses this end */
    uint16_t work;    /* that worker's, as in struct gyre_position */
    uint16_t channel;
    uint16_t worker;
};

struct gyre_executor_config {
    struct gyre_device *device;
    int rank; /* for messages */
    int n_ranks;
    struct gyre_fifo_spec spec;
    /* gyre_connector_index() order, n_ranks * n_fifos * 2 entries; copied. Entries with NULL
     * inbox do not exist. */
    const struct gyre_connector *connectors;
    bool overlaps_launches;         /* GPUs: a launch may begin while the one before it ends */
    uint64_t block_placement_bytes; /* CUDA: the blocks of works that transfer at least so much
                                     * choose their multiprocessors (block placement) */
    uint32_t n_gpu_sharers;   /* CUDA: most ranks on one GPU, each of which uses its part of the
                               * multiprocessors. 0 = 1 */
    struct gyre_fault *fault; /* polled; when it is raised, all works end with its status */
    struct gyre_trace *trace; /* gets what the workers do; outlives the executor. NULL = nothing is
                               * recorded */
    /* Moves slots of proxied connectors in the executor's thread; true if any moved. An executor
     * whose ops say `helps` calls this while its works wait, and with is_last when a launch has
     * ended. NULL = there is nothing to move. */
    bool (*help)(void *context, bool is_last);
    void *help_context;
};

/* Most blocks of a kernel that copies within a GPU's memory while copy engines copy between
 * GPUs. */
#define GYRE_COPY_BLOCKS 16

/* CUDA: memory for scratch areas of whole slots is kept only where one step cannot add the inputs
 * of all ranks (gyre_builder_reduce()), so that sums go through scratch. Elsewhere areas are this
 * short, and so are the tiles of the programs that keep sums in scratch all the same (algorithms by
 * pairs). */
#define GYRE_CUDA_SMALL_AREA_BYTES 4096

/** gyre_cuda_has_small_areas - are the scratch areas of a communicator on GPUs that short? */
static inline bool gyre_cuda_has_small_areas(uint32_t n_ranks)
{
    return n_ranks <= GYRE_STEP_MAX_RECVS;
}

/* How a program is prepared for one executor: its ranks, channels and protocol. */
struct gyre_load_config {
    const struct gyre_program *program; /* must outlive the loaded program */
    /* The programs of all variants of the shape, `program` first: channel c runs
     * variants[c % n_variants]. NULL = every channel runs `program`. All of them have the same
     * collective, chunks and lanes. Outlive the loaded program. */
    const struct gyre_program *const *variants;
    uint32_t n_variants;
    const uint16_t *rank_of;   /* shape rank -> communicator rank; NULL = the same */
    uint32_t n_channels;       /* channel c, lane l of the program uses the pair's FIFO
                                * c * program->n_lanes + l */
    enum gyre_proto proto;     /* of all connections but those that a proxy serves */
    enum gyre_proto net_proto; /* of connections that a proxy serves: SIMPLE, or LL */
    uint32_t n_threads;        /* CUDA: threads of a block; 0 = default */
    /* CUDA: copy engines run the program's copy tail (gyre_program_copy_tail()) for all channels
     * and tiles at once, or one after the other in a chain (broadcast). The same on all ranks. */
    bool by_copy_engines;
    bool in_host_memory; /* CUDA: slots that no proxy serves lie in host memory */
};

/** gyre_load_variants - how many variants the config has that some channel runs: at least 1. */
static inline uint32_t gyre_load_variants(const struct gyre_load_config *config)
{
    const uint32_t n_variants = config->variants == NULL ? 1 : config->n_variants;
    return n_variants < config->n_channels ? n_variants : config->n_channels;
}

/** gyre_load_program - the program of variant `variant`, which is below gyre_load_variants(). */
static inline const struct gyre_program *gyre_load_program(const struct gyre_load_config *config,
                                                           uint32_t variant)
{
    return config->variants == NULL ? config->program : config->variants[variant];
}

struct gyre_loaded; /* a loaded program; each executor has its own kind */

/* How an operation treats elements. The plan derives this from the caller's op. */
struct gyre_reduction {
    uint8_t dtype;       /* gyre_dtype */
    uint8_t op;          /* GYRE_SUM, _PROD, _MAX or _MIN */
    uint8_t premultiply; /* 1: elements of IN are multiplied by `scalar` and rounded when read */
    uint8_t pad;
    uint32_t divisor; /* > 1: integer results of FINAL steps are divided by it, towards zero */
    uint64_t scalar;  /* one element of dtype, in the low bytes */
};

/* Where the OUT buffers of all ranks are, for programs with placed operands. Every rank's OUT lies
 * at the same offset from that rank's base. */
struct gyre_placement {
    void *const *bases; /* by communicator rank, this rank included, as addresses of this rank */
    void *const *device_bases; /* a copy of `bases` that the GPU can read; NULL on the host */
};

struct gyre_work {
    struct gyre_loaded *loaded;
    const void *in; /* NULL if the program never reads IN */
    void *out;
    struct gyre_split split;
    struct gyre_reduction reduction;
    uint32_t signature; /* of the call; compared with the signature in each received slot */
    uint64_t sequence;  /* of the call, for messages */
    const struct gyre_placement
        *placement;            /* outlives the work; NULL if the program places nothing */
    uint64_t out_offset_bytes; /* of OUT from its base, the same on all ranks */
    uint32_t follows; /* 1 + number in the launch of an earlier work, after whose end this one
                       * begins; 0 = it begins with the launch. Each work has at most one that
                       * follows it. Not 0 only where the executor's ops say `queues` */
};

/* The properties that a work must have so that a loaded program can run it. */
struct gyre_work_needs {
    uint32_t n_channels;
    uint32_t n_chunks;
    uint64_t most_tile_bytes; /* payload of one slot */
    bool is_placed;           /* the work needs a placement */
    bool by_gpu;              /* the placement needs device_bases */
};

/* When a launch ran: from its first block's begin to its last block's end. */
struct gyre_launch_span {
    uint64_t begin_ns;
    uint64_t end_ns;
};

/* How many works may be launched after a timed launch until its times are read. */
#define GYRE_TIMED_WORKS 256

/* ---- one-sided operations ------------------------------------------------------------------
 *
 * Each rank has counters of signals in memory of its device, which all ranks address: the arrays
 * below, each of n_ranks * GYRE_N_SIGNALS 64-bit words, zero at first. They only grow. */
enum gyre_signal_array {
    GYRE_SIGNALS_ARRIVED, /* by sending rank: signals that have come. The sending rank writes it */
    GYRE_SIGNALS_SENT,    /* CUDA, by receiving rank: signals that this rank has sent */
    GYRE_SIGNALS_AWAITED, /* by sending rank: signals that this rank's waits have taken */
    GYRE_N_SIGNAL_ARRAYS
};

/** gyre_signal_index - the word of a signal with another rank, in a rank's counters. */
static inline size_t gyre_signal_index(int n_ranks, enum gyre_signal_array array, int peer,
                                       int signal)
{
    return ((size_t)array * (size_t)n_ranks + (size_t)peer) * GYRE_N_SIGNALS + (size_t)signal;
}

struct gyre_put;

/* How one-sided operations reach ranks whose memory this rank does not address. Host only. It
 * outlives the executor. */
struct gyre_remote_puts {
    void *context;
    uint64_t most_bytes; /* of one piece */
    /* Send a piece of a put, with its signal behind it. False: there is no room now. */
    bool (*post)(void *context, const struct gyre_put *piece);
    void (*help)(void *context); /* take what has come, while a wait lasts */
};

/* A write into another rank's memory. */
struct gyre_put {
    uint64_t *const *counters; /* by rank: its counters, as addresses of this rank; they outlive
                                * the executor */
    int peer;
    int signal; /* counted up behind the data; GYRE_NO_SIGNAL = none */
    void *to;   /* as an address of this rank; unused with `remote` */
    const void *from;
    size_t n_bytes;                        /* 0 = only the signal */
    const struct gyre_remote_puts *remote; /* carries the put; NULL = this rank writes to `to` */
    uint32_t window;                       /* remote: what is written to */
    uint64_t offset_bytes;                 /* likewise: in the peer's buffer */
    uint64_t timeout_ns;                   /* remote: of one message; 0 = none */
};

struct gyre_signals_await {
    uint64_t *const *counters;     /* as in struct gyre_put */
    const gyre_signal_wait *waits; /* copied */
    int n_waits;
    uint64_t timeout_ns;                   /* 0 = none */
    const struct gyre_remote_puts *remote; /* NULL = no signals come from ranks that need it */
};

#define GYRE_BLOCKED_SENDERS 16

/* A rank whose one-sided operations all wait for signals, itself or behind such a wait of their
 * stream. */
struct gyre_blocked {
    uint64_t n_ended;   /* one-sided operations that have ended, plus 1: no signal was sent while it
                         * stays the same */
    uint32_t n_senders; /* ranks whose signals are missing; one for each stream */
    uint32_t pad;
    uint32_t senders[GYRE_BLOCKED_SENDERS];
};

struct gyre_executor;

struct gyre_executor_ops {
    const char *name;
    bool helps; /* the executor calls config.help, so proxies need not be woken for an operation */
    bool
        queues; /* launch() runs any mixture of works that only copy, and heeds gyre_work.follows */
    gyre_status (*open)(const struct gyre_executor_config *config,
                        struct gyre_executor **executor_out);
    /* Does not wait. Before it the caller has synchronised the streams or raised the fault, which
     * ends works that still run. */
    void (*close)(struct gyre_executor *executor);
    /* The present state. Any thread; does not block. */
    struct gyre_progress (*progress)(const struct gyre_executor *executor);
    /* Where the unfinished workers of the running launch are, in the order of works, channels and
     * workers: the first `most` of them. *n_out: how many there are in all, 0 if no launch runs.
     * Any thread; waits at most until a poll of the executor has ended. Errors: UNSUPPORTED (this
     * executor cannot tell). */
    gyre_status (*positions)(struct gyre_executor *executor, struct gyre_position *positions_out,
                             uint32_t most, uint32_t *n_out);
    /* How far this rank's end of a FIFO is. Likewise. Errors: UNSUPPORTED, INVALID_ARGUMENT (there
     * is no such end). */
    gyre_status (*end_state)(struct gyre_executor *executor, const struct gyre_end_name *name,
                             struct gyre_end_state *state_out);
    /* Have all works and one-sided operations ended that were enqueued? Any thread; does not
     * block. */
    bool (*is_idle)(struct gyre_executor *executor);
    /* Make all running and all later works end at once. Called when the fault was raised. Any
     * thread; does not block. */
    void (*abort)(struct gyre_executor *executor);
    /* Copy placement->bases (n_ranks addresses) to placement->device_bases; NULL on the host. Does
     * not wait for works. */
    gyre_status (*place)(struct gyre_executor *executor, struct gyre_placement *placement);
    void (*unplace)(struct gyre_executor *executor, struct gyre_placement *placement);
    /* Prepare a program. CUDA: copies it to the GPU and waits for that copy, but for no kernel. Not
     * to be called between the first and the last launch of a group. */
    gyre_status (*load)(struct gyre_executor *executor, const struct gyre_load_config *config,
                        struct gyre_loaded **loaded_out);
    /* Check that the program can run with this reduction, and set up its kernel. To be called
     * before the first launch of the two. On the host there is nothing to do. */
    gyre_status (*prepare)(struct gyre_executor *executor, struct gyre_loaded *loaded,
                           const struct gyre_reduction *reduction);
    void (*unload)(struct gyre_executor *executor, struct gyre_loaded *loaded);
    /* From now on the executor can tell when launches ran (time_next). Called once, and not while
     * another thread launches. Errors: UNSUPPORTED (the host's tasks know it themselves),
     * OUT_OF_MEMORY, DEVICE. */
    gyre_status (*time_works)(struct gyre_executor *executor);
    /* Keep the times of the next launch, which the calling thread makes on `stream`. Its times are
     * known until GYRE_TIMED_WORKS later works have been launched. Returns false if they cannot be
     * kept: a captured launch runs many times or never. */
    bool (*time_next)(struct gyre_executor *executor, gyre_stream stream);
    /* When a launch ran, as times of the host. Asked after all of its works have completed.
     * @work: works that were launched before it. Returns false if that is not known. Any thread. */
    bool (*span_of)(struct gyre_executor *executor, uint64_t work,
                    struct gyre_launch_span *span_out);
    /* Enqueue works on a stream and return at once. The works of one launch run at the same time,
     * but for those that follow another one. Works that run at the same time share no FIFO end.
     * Where no work waits for a later one, the executor may run them one after the other, in this
     * order. The launches of one executor run one after the other, on any streams. */
    gyre_status (*launch)(struct gyre_executor *executor, const struct gyre_work *works,
                          int n_works, gyre_stream stream);
    /* Enqueue one-sided operations on a stream and return at once. They are no works: progress()
     * does not count them, and they are ordered with other operations by their streams alone.
     * is_idle() counts those that were not captured in a graph. When the fault is raised, they end
     * with its status and send no signal. A put to a rank that has left is REMOTE: it ends the
     * host's stream, while CUDA looks only in the call, and returns it. */
    gyre_status (*put)(struct gyre_executor *executor, const struct gyre_put *put,
                       gyre_stream stream);
    /* The stream waits until all these signals have come, and takes them. If that lasts longer than
     * the timeout, the host's stream ends with TIMEOUT; CUDA sets gyre_progress.late_signal and
     * waits on. If the signals are those of a rank that has left, the host's stream ends with
     * REMOTE; CUDA sets gyre_progress.lost_signal and waits on. */
    gyre_status (*await_signals)(struct gyre_executor *executor,
                                 const struct gyre_signals_await *await, gyre_stream stream);
    /* A rank has left, or can send no signal any more (core/engine/comm/drain.c). All its signals
     * have arrived. Any thread; does not block. */
    void (*peer_left)(struct gyre_executor *executor, int rank);
    /* Do all operations that are not complete wait for signals, or stand behind such a wait in
     * their stream? False too if there is no operation, if more than GYRE_BLOCKED_SENDERS streams
     * wait, and on CUDA, whose host cannot tell. Any thread; waits at most until a poll has ended.
     * @blocked_out: bytes that are not used are zero. */
    bool (*find_blocked)(struct gyre_executor *executor, struct gyre_blocked *blocked_out);
};

struct gyre_executor {
    const struct gyre_executor_ops *ops;
    uint64_t n_launched; /* works given to launch(), its one writer; written with release */
};

extern const struct gyre_executor_ops gyre_executor_host;
#ifdef GYRE_WITH_CUDA
extern const struct gyre_executor_ops gyre_executor_cuda;
#endif

/** gyre_executor_find - the executor of a device kind (HOST or CUDA). */
gyre_status gyre_executor_find(gyre_device_kind kind, const struct gyre_executor_ops **ops_out);

/* The arithmetic of a call. Fused kernels exist for some kinds only. */
enum gyre_fused_arithmetic {
    GYRE_FUSED_COPY,      /* none: bytes are moved as they are */
    GYRE_FUSED_FLOAT_SUM, /* as gyre_lamport_adds() */
    GYRE_FUSED_OTHER,     /* any other operation or type */
    GYRE_N_FUSED_ARITHMETIC
};

/* The facts that decide whether a fused kernel can run a call. The tuner fills in facts that it
 * expects, an executor facts that it knows. */
struct gyre_fused_call {
    enum gyre_proto proto;
    enum gyre_fused_pattern pattern;
    enum gyre_fused_arithmetic arithmetic;
    bool is_placed;
    bool is_aligned;     /* all addresses, lengths and cuts are multiples of 16 bytes */
    bool is_unscaled;    /* nothing is multiplied or divided */
    bool places_blocks;  /* the blocks of the launch are to choose their multiprocessors */
    bool in_host_memory; /* slots lie in host memory */
    bool fits_two_rows;  /* blocks that only send may run beside as many that only receive: the
                          * device has room for both, and IN is not OUT */
    uint32_t n_peers;
    uint32_t n_tiles;
    uint32_t depth;             /* slots of a FIFO */
    uint32_t n_threads;         /* of a block, as loaded */
    uint32_t most_shared_bytes; /* that a block can have; UINT32_MAX = it is not known */
};

/** gyre_executor_fused_tiles - the most tiles in which an executor of this kind of device runs such
 * a call by a fused kernel. 0: it has none, and interprets the steps. Pure: the tuner asks on
 * machines without a GPU too.
 * @call: n_tiles is the least number of tiles. */
uint32_t gyre_executor_fused_tiles(gyre_device_kind kind, const struct gyre_fused_call *call);

/** gyre_executor_kernel - the name of the fused kernel that an executor of this kind of device runs
 * for such a call; NULL: it interprets the steps. Pure; for people.
 * @call: n_threads does not count. @tile_bytes: of the largest chunk of a tile.
 * @n_threads_out: of a block; set with a name only. */
const char *gyre_executor_kernel(gyre_device_kind kind, const struct gyre_fused_call *call,
                                 uint64_t tile_bytes, uint32_t *n_threads_out);

/** gyre_work_check - does the work have what its loaded program needs? Errors: INTERNAL. */
gyre_status gyre_work_check(const struct gyre_work *work, const struct gyre_work_needs *needs);

/** gyre_fail_unreachable - the cause of a one-sided call of `rank` to a peer that has left. Returns
 * REMOTE. */
gyre_status gyre_fail_unreachable(int peer, int rank);

/** gyre_premultiply_scalar - 1/n in dtype's bits, rounded to nearest even. GYRE_AVG multiplies
 * floats by it. */
uint64_t gyre_premultiply_scalar(gyre_dtype dtype, uint32_t n);

#endif
