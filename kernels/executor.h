/* SPDX-License-Identifier: Apache-2.0
 *
 * Executors run programs. An executor belongs to one rank of one communicator: it knows the rank's
 * connectors and keeps the posted and consumed counters of every FIFO end. `host` and `cuda` are
 * two rows of one table and give the same bits. An executor sees slots and never a transport.
 */
#ifndef GYRE_KERNELS_EXECUTOR_H
#define GYRE_KERNELS_EXECUTOR_H

#include "core/base/fault.h"
#include "core/device/device.h"
#include "core/model/connector.h"
#include "core/model/fused.h"
#include "core/model/schedule.h"
#include "core/model/tile.h"

/* How far the works of an executor are. Each word has one writer at a time, which releases it: the
 * thread or the kernel that runs the works. */
struct gyre_pulse {
    uint64_t completed; /* works finished so far, in order: no kernel of theirs runs */
    uint64_t progress;  /* host: grows with every slot moved; cuda: works started, graph replays
                         * included, as in `completed` (`launched` cannot count replays) */
    uint64_t mismatch;  /* 0, or 1 + the peer whose slot had another call's signature or size; the
                         * work then waits for the fault that the health thread raises */
};

struct gyre_executor_config {
    struct gyre_device *device;
    int rank; /* for messages */
    int n_ranks;
    struct gyre_fifo_spec spec;
    /* gyre_connector_index() order, n_ranks * n_fifos * 2 entries; copied. Entries with NULL
     * inbox do not exist. */
    const struct gyre_connector *connectors;
    bool overlaps_launches; /* CUDA graphs: a launch may begin while the one before it ends */
    uint64_t block_placement_bytes; /* CUDA: the blocks of works that transfer so many bytes choose
                                     * their multiprocessors (block placement) */
    struct gyre_fault *fault;       /* polled; a raised fault ends all works with its status */
    /* Moves slots of proxied connectors in the executor's thread; true if any moved. An executor
     * that helps calls it where works wait, and with is_last when a launch has ended. NULL =
     * nothing to move. */
    bool (*help)(void *context, bool is_last);
    void *help_context;
};

/* Most blocks of a kernel that copies within a GPU's memory while copy engines copy to peers. */
#define GYRE_COPY_BLOCKS 16

/* A program made ready for one executor: which ranks, how many channels, which protocol. */
struct gyre_load_config {
    const struct gyre_program *program; /* must outlive the loaded program */
    const uint16_t *rank_of;            /* shape rank -> communicator rank; NULL = the same */
    uint32_t n_channels;                /* program FIFO (channel c, lane l) is the pair's FIFO
                                         * c * program->n_lanes + l */
    enum gyre_proto proto;
    uint32_t n_threads; /* CUDA: threads of a block; 0 = default */
    /* CUDA: copy engines run the program's tail of copies, gyre_program_copy_tail(), all channels
     * and tiles at once; those of a chain (broadcast) one by one. All ranks alike. */
    bool by_copy_engines;
};

struct gyre_loaded; /* a loaded program; the back end's */

/* How the operation treats elements; made by the plan from the caller's op. */
struct gyre_reduction {
    uint8_t dtype;       /* gyre_dtype */
    uint8_t op;          /* GYRE_SUM, _PROD, _MAX or _MIN */
    uint8_t premultiply; /* IN operands are multiplied by `scalar` and rounded to dtype on load */
    uint8_t pad;
    uint32_t divisor; /* >1: integer results of FINAL steps are divided by it, towards zero */
    uint64_t scalar;  /* one element of dtype, in the low bytes */
};

/* Where the OUT buffers of all ranks are, for programs with placed operands: at the same distance
 * from bases that every rank knows. */
struct gyre_placement {
    void *const *bases;        /* by communicator rank, as this rank addresses them; its own too */
    void *const *device_bases; /* the same array where a GPU reads it; NULL on the host */
};

struct gyre_work {
    struct gyre_loaded *loaded;
    const void *in; /* NULL where the program never reads IN */
    void *out;
    struct gyre_split split;
    struct gyre_reduction reduction;
    uint32_t signature; /* of the call; compared with the one in each received slot */
    uint64_t sequence;  /* of the call, for messages */
    const struct gyre_placement
        *placement;            /* outlives the work; NULL: the program places nothing */
    uint64_t out_offset_bytes; /* of OUT from its base, the same on all ranks */
};

/* What a loaded program needs of a work. */
struct gyre_work_needs {
    uint32_t n_channels;
    uint32_t n_chunks;
    uint64_t most_tile_bytes; /* what its slots hold */
    bool is_placed;           /* a placement */
    bool by_gpu;              /* and that the GPU can read it */
};

struct gyre_executor;

struct gyre_executor_ops {
    const char *name;
    bool helps; /* calls config.help: an enqueued operation needs no wake of proxies */
    gyre_status (*open)(const struct gyre_executor_config *config,
                        struct gyre_executor **executor_out);
    /* Wait for nothing: the caller has synchronised or raised the fault; works that still run are
     * ended by the fault. */
    void (*close)(struct gyre_executor *executor);
    /* As it is now. Any thread; does not block. */
    struct gyre_pulse (*pulse)(const struct gyre_executor *executor);
    /* Are all works over that launch() was called for? As pulse(). */
    bool (*is_idle)(struct gyre_executor *executor);
    /* The fault was raised: make works that run, and all later ones, end at once. Any thread; does
     * not block. */
    void (*abort)(struct gyre_executor *executor);
    /* Fill placement->device_bases from placement->bases, n_ranks addresses; NULL on the host.
     * Waits for no work. */
    gyre_status (*place)(struct gyre_executor *executor, struct gyre_placement *placement);
    void (*unplace)(struct gyre_executor *executor, struct gyre_placement *placement);
    /* CUDA: copies the program to the GPU and waits for that copy, not for any kernel. Not between
     * a group's first and last launch. */
    gyre_status (*load)(struct gyre_executor *executor, const struct gyre_load_config *config,
                        struct gyre_loaded **loaded_out);
    /* Check that the program can run with this reduction and let its kernel have what it needs,
     * before the first work that is launched with it. Nothing to do on the host. */
    gyre_status (*prepare)(struct gyre_executor *executor, struct gyre_loaded *loaded,
                           const struct gyre_reduction *reduction);
    void (*unload)(struct gyre_executor *executor, struct gyre_loaded *loaded);
    /* Enqueue works on a stream; returns at once. The works of one launch run at the same time and
     * share no FIFO end; launches of one executor run in launch order, on whatever streams. */
    gyre_status (*launch)(struct gyre_executor *executor, const struct gyre_work *works,
                          int n_works, gyre_stream stream);
};

struct gyre_executor {
    const struct gyre_executor_ops *ops;
    uint64_t n_launched; /* works handed to launch so far; one writer: launch; release */
};

extern const struct gyre_executor_ops gyre_executor_host;
#ifdef GYRE_WITH_CUDA
extern const struct gyre_executor_ops gyre_executor_cuda;
#endif

/** gyre_executor_find - the executor of a device kind (HOST or CUDA). */
gyre_status gyre_executor_find(gyre_device_kind kind, const struct gyre_executor_ops **ops_out);

/* What arithmetic a call takes, since fused kernels exist for some only. */
enum gyre_fused_arithmetic {
    GYRE_FUSED_COPY,      /* none: bytes are moved as they are */
    GYRE_FUSED_FLOAT_SUM, /* as gyre_lamport_adds() */
    GYRE_FUSED_OTHER,     /* any other operation or type */
    GYRE_N_FUSED_ARITHMETIC
};

/* What decides whether a fused kernel can run a call. The tuner fills in what it expects, an
 * executor what it knows. */
struct gyre_fused_call {
    enum gyre_proto proto;
    enum gyre_fused_pattern pattern;
    enum gyre_fused_arithmetic arithmetic;
    bool is_placed;
    bool is_aligned;    /* all addresses, lengths and cuts are multiples of 16 bytes */
    bool is_unscaled;   /* nothing is multiplied or divided */
    bool places_blocks; /* the blocks of the launch are to choose their multiprocessors */
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

/** gyre_work_check - that the work suits its loaded program. Errors: INTERNAL. */
gyre_status gyre_work_check(const struct gyre_work *work, const struct gyre_work_needs *needs);

/** gyre_premultiply_scalar - 1/n in dtype's bits, rounded to nearest even: what GYRE_AVG
 * multiplies floats by. */
uint64_t gyre_premultiply_scalar(gyre_dtype dtype, uint32_t n);

#endif
