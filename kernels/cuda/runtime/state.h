/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA executor's own structures, shared by its files: exec.c (life), memory.c (its
 * memory on the GPU), preload.c (its kernels), load.c (loaded programs), launch.c
 * (launches), launch_exchange.c (of programs that one kernel runs), lanes.c (copy
 * engines).
 */
#ifndef GYRE_KERNELS_CUDA_STATE_H
#define GYRE_KERNELS_CUDA_STATE_H

#include "core/base/util.h"
#include "core/device/cuda_error.h"
#include "core/device/driver_cuda.h"
#include "kernels/cuda/host/arena.h"
#include "kernels/cuda/host/copies.h"
#include "kernels/cuda/runtime/exec.h"
#include "kernels/cuda/host/program.h"
#include "kernels/cuda/runtime/upload.h"

#include <pthread.h>

struct gyre_loaded {
    struct gyre_cuda_program *program;
    struct gyre_cuda_arena_block *block; /* the program on the GPU; NULL = not there (any more) */
    uint32_t n_channels;
    uint32_t n_workers;
    uint32_t n_chunks;
    uint32_t n_transfers; /* chunks of a tile from peers, or to them if those are more */
    uint32_t n_connections;
    uint32_t channel_stride;
    uint32_t tile_bytes; /* the most that a slot of any of its connections holds */
    uint32_t area_bytes;
    uint32_t n_threads;
    uint32_t shared_bytes;
    enum gyre_proto proto;
    uint16_t n_areas;
    bool in_blocks;
    bool out_blocks;
    bool reduces;
    bool is_placed;
    uint32_t max_connections;
    uint32_t inline_words; /* 0 = too long for kernel parameters */
    uint16_t n_abreast;
    bool posts_late;
    bool shares_steps;
    struct gyre_cuda_exchange exchange;
    struct gyre_cuda_copies
        *copies; /* the tail that copy engines run; NULL = the kernel runs all */
};

/* Streams beside the caller's: one for each further channel of copies, the last for copies within
 * this rank's memory. They begin after the caller's stream and it goes on after them. */
#define GYRE_CUDA_LANES GYRE_CUDA_COPY_CHANNELS
struct gyre_cuda_lanes {
    cudaStream_t streams[GYRE_CUDA_LANES];
    cudaEvent_t joins[GYRE_CUDA_LANES];
    cudaEvent_t fork;
};

struct gyre_cuda_executor {
    struct gyre_executor base; /* first: what the interface hands out */
    struct gyre_device *device;
    const struct gyre_cuda_driver *driver;
    int rank;
    int n_ranks;
    uint32_t n_sms;
    uint32_t most_shared_bytes; /* that a block can have */
    uint64_t min_seated_bytes;  /* as asked, on GPUs where that is known to help */
    struct gyre_fifo_spec spec;
    struct gyre_connector *connectors; /* host copy, for lowering */
    struct gyre_connector *device_connectors;
    uint64_t *counters; /* [slots' protocol][connector], device memory */
    struct gyre_cuda_control *control;
    struct gyre_cuda_board *board;
    struct gyre_fault *fault;
    void *memory;                  /* on the GPU: counters, control, connectors, then the arena */
    void *host_memory;             /* pinned: the board, then the uploads' staging */
    uint32_t default_shared_bytes; /* that every kernel may share without being told */

    pthread_mutex_t lock; /* guards what follows: memory, and the order of launches */
    struct gyre_cuda_arena arena;
    struct gyre_cuda_uploader uploader;
    /* Of all programs: launches of an executor never overlap. NULL = none needs any. */
    struct gyre_cuda_arena_block *scratch;
    cudaStream_t last_stream;
    cudaEvent_t last_event;        /* recorded after every launch once has_streams */
    bool overlaps_launches;        /* in graphs; as asked, where the kernels can */
    bool has_streams;              /* more than one was seen, or a graph */
    bool has_launched;             /* on last_stream, what may still run */
    bool lacks_event;              /* that launch was before has_streams */
    uint64_t last_capture;         /* id of the last capture that took a launch, 0 = none */
    cudaStream_t captured_stream;  /* of that launch */
    cudaGraphNode_t captured_node; /* likewise */
    cudaEvent_t captured_event;
    struct gyre_cuda_lanes lanes[2]; /* for captures: the second */
    union {
        struct gyre_cuda_args_one one;
        struct gyre_cuda_args_many many;
        struct gyre_cuda_args_exchange exchange;
        struct gyre_cuda_args_gate gate;
    } args;
};

static inline struct gyre_cuda_executor *gyre_cuda_own(struct gyre_executor *base)
{
    return (struct gyre_cuda_executor *)base;
}

static inline uint32_t gyre_cuda_n_ends(const struct gyre_cuda_executor *executor)
{
    return (uint32_t)executor->n_ranks * executor->spec.n_fifos * 2;
}

/** gyre_cuda_only_copies - no arithmetic in running the program for this reduction: the
 * kernels that only copy do, whatever the type. */
static inline bool gyre_cuda_only_copies(const struct gyre_loaded *loaded,
                                         const struct gyre_reduction *reduction)
{
    return !loaded->reduces && reduction->premultiply == 0 && reduction->divisor <= 1;
}

/* One kernel launch. */
struct gyre_cuda_start {
    const void *kernel;
    void *args;
    uint32_t n_blocks;
    uint32_t n_threads;
    uint32_t shared_bytes;
    uint32_t n_works; /* that begin with it: counted as launched */
    bool awaits_last; /* the kernel does (await_last_launch): it may begin before that has ended */
};

/* ---- memory.c ------------------------------------------------------------------------ */

/** gyre_cuda_memory_open - everything that the executor and its programs need on the GPU, and the
 * pinned memory beside it; nothing is allocated later. The device is current. */
gyre_status gyre_cuda_memory_open(struct gyre_cuda_executor *executor);
void gyre_cuda_memory_close(struct gyre_cuda_executor *executor);

/** gyre_cuda_count_completed - no kernel of the works up to this number runs any more. The caller
 * holds the lock. */
uint64_t gyre_cuda_count_completed(struct gyre_cuda_executor *executor);

/** gyre_cuda_make_resident - the lowered program is on the GPU. Does nothing if it is already; else
 * copies it there and waits for that copy alone. The caller holds the lock.
 * Errors: OUT_OF_MEMORY (the arena is full of programs in use), DEVICE, TIMEOUT, the fault's. */
gyre_status gyre_cuda_make_resident(struct gyre_cuda_executor *executor,
                                    struct gyre_loaded *loaded);

/** gyre_cuda_reserve_scratch - the executor's scratch has so many bytes at least. The caller holds
 * the lock. Errors: OUT_OF_MEMORY. */
gyre_status gyre_cuda_reserve_scratch(struct gyre_cuda_executor *executor, size_t n_bytes);

/** The slots place and unplace of the executor's table. */
gyre_status gyre_cuda_place(struct gyre_executor *base, struct gyre_placement *placement);
void gyre_cuda_unplace(struct gyre_executor *base, struct gyre_placement *placement);

/* ---- preload.c ----------------------------------------------------------------------- */

/** gyre_cuda_preload - load all kernels that executors of so many ranks can launch; once a process
 * and device. Loading later would wait for running kernels. The device is current.
 * @default_shared_bytes_out: that all of them may share without gyre_cuda_allow_shared(). */
gyre_status gyre_cuda_preload(const struct gyre_cuda_executor *executor,
                              uint32_t *default_shared_bytes_out);

/** gyre_cuda_allow_shared - let a loaded kernel share so many bytes. NULL: does nothing. */
gyre_status gyre_cuda_allow_shared(const void *kernel, uint32_t shared_bytes);

/* ---- launches ----------------------------------------------------------------------------- */

/** gyre_cuda_start - launch a kernel, ordered after the executor's last one. */
gyre_status gyre_cuda_start(struct gyre_cuda_executor *executor,
                            const struct gyre_cuda_start *launch, cudaStream_t stream);

/** gyre_cuda_start_kernel - the launch alone, on a stream where the order is known.
 * @overlaps: it may begin while the kernel before it in the stream ends. */
gyre_status gyre_cuda_start_kernel(const struct gyre_cuda_start *launch, cudaStream_t stream,
                                   bool overlaps);

/** gyre_cuda_fill_common - what all kernels of a protocol are told. @n_seats: blocks that work. */
void gyre_cuda_fill_common(struct gyre_cuda_executor *executor, enum gyre_proto proto,
                           uint32_t n_seats, struct gyre_cuda_common *common);

/** gyre_cuda_fill_work - what a kernel is told of a work; program and placement included. */
void gyre_cuda_fill_work(const struct gyre_cuda_executor *executor, const struct gyre_work *work,
                         uint32_t first_block, struct gyre_cuda_work *to);

/** gyre_cuda_step_bytes - of the work's largest step, about. */
uint64_t gyre_cuda_step_bytes(const struct gyre_work *work);

/** gyre_cuda_block_threads - of the interpreter's blocks. Lines: no more than the largest step has
 * lines (LL128: a warp takes four at a time). */
uint32_t gyre_cuda_block_threads(const struct gyre_work *work);

/** gyre_cuda_takes_seats - do the blocks choose their multiprocessors (seat.cuh)? It takes 0.7 us.
 */
bool gyre_cuda_takes_seats(const struct gyre_cuda_executor *executor, const struct gyre_work *work,
                           uint32_t n_seats);

/** gyre_cuda_simple_kernel - that runs a program of protocol SIMPLE as one macro-step, where tiles
 * and addresses allow it; NULL if there is none. */
const void *gyre_cuda_simple_kernel(const struct gyre_loaded *loaded, uint32_t n_tiles,
                                    const struct gyre_reduction *reduction);

/** gyre_cuda_exchange_kernel - that runs this work as one macro-step; NULL if there is none. */
const void *gyre_cuda_exchange_kernel(const struct gyre_cuda_executor *executor,
                                      const struct gyre_work *work);

/** gyre_cuda_launch_exchange - with that kernel. */
gyre_status gyre_cuda_launch_exchange(struct gyre_cuda_executor *executor, const void *kernel,
                                      const struct gyre_work *work, cudaStream_t stream);

/** gyre_cuda_lanes_open - make the executor's lanes and use every kind of copy once, so that no
 * call is the first. The device is current. */
gyre_status gyre_cuda_lanes_open(struct gyre_cuda_executor *executor);
void gyre_cuda_lanes_close(struct gyre_cuda_executor *executor);

/** gyre_cuda_launch_copies - enqueue a work's tail of copies.
 * @n_works: that begin with its first gate: 0 if the steps before it were launched. */
gyre_status gyre_cuda_launch_copies(struct gyre_cuda_executor *executor,
                                    const struct gyre_work *work, uint32_t n_works,
                                    cudaStream_t stream);

/** The slots load, prepare, unload and launch of the executor's table. */
gyre_status gyre_cuda_load(struct gyre_executor *base, const struct gyre_load_config *config,
                           struct gyre_loaded **loaded_out);
gyre_status gyre_cuda_prepare(struct gyre_executor *base, struct gyre_loaded *loaded,
                              const struct gyre_reduction *reduction);
void gyre_cuda_unload(struct gyre_executor *base, struct gyre_loaded *loaded);
gyre_status gyre_cuda_launch(struct gyre_executor *base, const struct gyre_work *works, int n_works,
                             gyre_stream stream);

#endif
