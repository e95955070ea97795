/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_KERNELS_CUDA_STATE_H
#define GYRE_KERNELS_CUDA_STATE_H

#include "core/foundation/base/util.h"
#include "core/foundation/device/cuda_error.h"
#include "core/foundation/device/driver_cuda.h"
#include "kernels/cuda/host/arena.h"
#include "kernels/cuda/host/copies.h"
#include "kernels/cuda/host/kernel_rows.h"
#include "kernels/cuda/host/records.h"
#include "kernels/cuda/runtime/kernel_table.h"

#include <pthread.h>

/* Copies to the GPU while kernels run, through pinned memory on a stream of the highest priority,
 * which shares no hardware queue with the user's streams, where a kernel may wait for a peer. */
/* Longer copies go in pieces. */
#define GYRE_CUDA_STAGING_BYTES ((size_t)(64 << 10))

struct gyre_cuda_uploader {
    cudaStream_t stream;
    void *staging;      /* pinned, GYRE_CUDA_STAGING_BYTES */
    bool is_unfinished; /* an unseen copy may still read the staging memory */
};

struct gyre_loaded {
    struct gyre_cuda_program *program;
    struct gyre_cuda_arena_block *block; /* on the GPU; NULL = not there */
    uint32_t n_channels;
    uint32_t n_variants; /* channel c runs c % n_variants */
    uint32_t n_workers;  /* of the largest variant, as n_transfers and n_connections */
    uint32_t n_chunks;
    uint32_t n_transfers; /* chunks of a tile, received or sent, whichever is more */
    uint32_t n_connections;
    uint32_t channel_stride;
    uint32_t tile_bytes; /* the most in a slot of any connection */
    uint32_t area_bytes;
    uint32_t n_threads;
    uint32_t shared_bytes;
    enum gyre_proto proto;
    uint16_t n_areas;
    bool in_blocks;
    bool out_blocks;
    bool reduces;
    bool is_placed;
    bool is_proxied;
    uint32_t max_connections;
    uint32_t traced;       /* variant 0's, or GYRE_TRACE_NO_PROGRAM */
    uint32_t inline_words; /* 0 = too long for kernel parameters */
    uint16_t n_in_flight;
    bool posts_late;
    bool shares_steps;
    struct gyre_fused_call fused_call; /* pattern NONE: the steps are interpreted */
    struct gyre_cuda_fused fused;      /* offsets in blocks */
    const struct gyre_program **programs;
    uint64_t n_tiles_run;
    struct gyre_loaded *next;
    struct gyre_cuda_copies *copies; /* NULL = none */
};

struct gyre_cuda_form {
    struct gyre_run run;
    const void *kernels[2]; /* full, lean (device/lean.cuh) */
};

/* What no plan has is written at each launch, under the executor's lock. */
struct gyre_cuda_ready {
    struct gyre_ready base;           /* must be first */
    uint64_t number;                  /* from 1, never used again */
    uint64_t step_bytes;              /* about, of the largest step */
    uint64_t transferred_bytes;       /* about, sent or received, whichever is more */
    struct gyre_cuda_form forms[2];   /* [is there a recorder?] */
    struct gyre_cuda_args_fused args; /* without `common`; the interpreter takes `work` */
    struct gyre_cuda_pair *pair;      /* of sends and receives; NULL = neither */
};

/* A send and a receive that come together, kept with the first one's plan. */
struct gyre_cuda_pair {
    uint64_t other;                 /* number of the second one's plan; 0 = none so far */
    struct gyre_cuda_form forms[2]; /* NULL kernel: one fused kernel cannot run both */
    struct gyre_cuda_args_fused args;
    bool is_in_place;
    bool
        goes_apart; /* without a recorder: send first, because both hold too many multiprocessors */
    uint8_t send;
};

/* One for each further channel, the last for copies within this rank's memory. The caller's stream
 * goes on after they have ended. */
#define GYRE_CUDA_SIDE_STREAMS GYRE_CUDA_COPY_CHANNELS
struct gyre_cuda_side_streams {
    cudaStream_t streams[GYRE_CUDA_SIDE_STREAMS];
    cudaEvent_t joins[GYRE_CUDA_SIDE_STREAMS];
    cudaEvent_t fork;
};

/* A stream's newest one-sided operation. Another stream may take the mark once it has ended. */
struct gyre_cuda_put_mark {
    cudaStream_t stream;
    cudaEvent_t event;
};

struct gyre_cuda_put_marks {
    struct gyre_cuda_put_mark *marks;
    uint32_t n_marks;
};

struct gyre_cuda_remembered {
    struct gyre_loaded *loaded; /* NULL: nothing, or it was unloaded */
    uint64_t number;            /* works launched before */
    uint64_t first;             /* likewise, before its launch */
    uint64_t sequence;
    uint32_t n_tiles;
};
#define GYRE_CUDA_REMEMBERED 1024 /* more works rarely lie in a stream's queue */

/* All zero: nothing is recorded. */
struct gyre_cuda_recorder_state {
    struct gyre_trace *trace;     /* NULL: only launches are timed */
    struct gyre_cuda_span *spans; /* pinned; NULL: no times */
    bool times_next;
    struct gyre_cuda_recorder *recorder; /* on the GPU */
    struct gyre_cuda_clock_words *words; /* pinned */
    bool is_unanswered;                  /* the clock's kernel may still use the words */
    struct gyre_cuda_clock clock;
    struct gyre_cuda_record_program *programs; /* by number in the trace */
    uint32_t n_programs;
    uint32_t n_blocks;
    uint32_t capacity; /* of each block */
    uint64_t n_left_out;
};

struct gyre_cuda_executor {
    struct gyre_executor base; /* must be first */
    struct gyre_device *device;
    const struct gyre_cuda_driver *driver;
    int rank;
    int n_ranks;
    uint32_t n_sms;
    uint32_t most_shared_bytes;     /* of a block */
    uint64_t block_placement_bytes; /* where it is known to help */
    struct gyre_fifo_spec spec;
    struct gyre_connector *connectors; /* host copy */
    struct gyre_connector *device_connectors;
    uint64_t *counters; /* [slots' protocol][connector], device memory */
    struct gyre_cuda_control *control;
    struct gyre_cuda_mailbox *mailbox;
    uint64_t *has_left; /* struct gyre_cuda_args_await's; behind the mailbox */
    struct gyre_fault *fault;
    void *memory;                  /* on the GPU: counters, control, connectors, arena */
    void *host_memory;             /* pinned: mailbox, has_left, uploads' staging */
    uint32_t default_shared_bytes; /* of every kernel, without a raised limit */

    uint64_t n_ready;     /* counted by any thread */
    pthread_mutex_t lock; /* guards what follows, and the order of launches */
    struct gyre_cuda_arena arena;
    struct gyre_cuda_uploader uploader;
    /* Shared, because launches never overlap. NULL: none needs any. */
    struct gyre_cuda_arena_block *scratch;
    cudaStream_t last_stream;
    cudaEvent_t last_event; /* after every launch once has_streams */
    bool overlaps_launches;
    bool has_streams;              /* more than one, or a graph */
    bool has_launched;             /* the launch on last_stream may still run */
    bool lacks_event;              /* of that launch */
    uint64_t last_capture;         /* that took a launch; 0 = none */
    cudaStream_t captured_stream;  /* of that launch */
    cudaGraphNode_t captured_node; /* likewise */
    cudaEvent_t captured_event;
    struct gyre_cuda_side_streams side_streams[2]; /* for captures: the second */
    struct gyre_cuda_put_marks marks;
    struct gyre_cuda_recorder_state recorder;
    /* For standstill.c. */
    struct gyre_loaded *first_loaded;
    uint64_t *slots_of_unloaded; /* [slots' protocol][connector], on the host */
    bool miscounts;              /* some moved slots were not counted */
    struct gyre_cuda_remembered remembered[GYRE_CUDA_REMEMBERED]; /* by number of the work */
    union {
        struct gyre_cuda_args_one one;
        struct gyre_cuda_args_many many;
        struct gyre_cuda_args_mixed mixed;
        struct gyre_cuda_args_fused fused;
        struct gyre_cuda_args_sync sync;
        struct gyre_cuda_args_await await;
    } args;
};

static inline struct gyre_cuda_executor *gyre_cuda_own(struct gyre_executor *base)
{
    return (struct gyre_cuda_executor *)base;
}

static inline struct gyre_cuda_ready *gyre_cuda_own_ready(const struct gyre_work *work)
{
    return (struct gyre_cuda_ready *)(uintptr_t)work->ready;
}

static inline uint32_t gyre_cuda_n_ends(const struct gyre_cuda_executor *executor)
{
    return (uint32_t)executor->n_ranks * executor->spec.n_fifos * 2;
}

/** No arithmetic: copying kernels run it, whatever the type. */
static inline bool gyre_cuda_only_copies(const struct gyre_loaded *loaded,
                                         const struct gyre_reduction *reduction)
{
    return !loaded->reduces && reduction->premultiply == 0 && reduction->divisor <= 1;
}

struct gyre_cuda_start {
    const void *kernel;
    void *args;              /* begin with struct gyre_cuda_common */
    uint32_t n_more_commons; /* behind the first one */
    uint32_t n_blocks;       /* of a row */
    uint32_t n_rows;         /* 0 counts as 1 */
    uint32_t n_threads;
    uint32_t shared_bytes;
    uint32_t n_works; /* that begin with it */
    bool awaits_last; /* the kernel itself waits for the launch before, so it may begin earlier */
};

/** Returns when the bytes are on the GPU. The device is current, the thread
 * apart (gyre_cuda_enter_apart). One thread at a time. Errors: DEVICE, TIMEOUT, the fault's. */
gyre_status gyre_cuda_upload(struct gyre_cuda_uploader *uploader, struct gyre_fault *fault,
                             void *to, const void *from, size_t n_bytes);

/** Polls. Errors: as gyre_cuda_upload(). */
gyre_status gyre_cuda_await_stream(cudaStream_t stream, struct gyre_fault *fault);

/** NULL for sends and receives that are not lean. */
const void *gyre_cuda_fused_function(const struct gyre_run *run, const struct gyre_fused_call *call,
                                     const struct gyre_reduction *reduction, bool is_lean);

/** Takes struct gyre_cuda_args_one. NULL if there is none.
 * @copies: ignores dtype and op. @is_lean: not recorded, without proxies. */
const void *gyre_cuda_interpreter_function(enum gyre_proto proto, bool copies, unsigned dtype,
                                           unsigned op, bool is_lean);

/** Takes struct gyre_cuda_args_few if it fits, else args_many. */
const void *gyre_cuda_copier_function(enum gyre_proto proto, uint32_t n_works, bool is_lean);

/** Takes struct gyre_cuda_args_mixed_few or args_mixed. */
const void *gyre_cuda_mixer_function(uint32_t n_works);

/** For tests near the number at which flags wrap: every FIFO of
 * a protocol has moved n_slots. Nothing may run; set all inboxes and credits too. */
gyre_status gyre_cuda_executor_set_epoch(struct gyre_executor *executor, enum gyre_proto proto,
                                         uint64_t n_slots);

/** Nothing is allocated later. The device is current. */
gyre_status gyre_cuda_memory_open(struct gyre_cuda_executor *executor);
void gyre_cuda_memory_close(struct gyre_cuda_executor *executor);

/** The last work of which no kernel runs. The caller holds the lock. */
uint64_t gyre_cuda_count_completed(struct gyre_cuda_executor *executor);

/** Waits for the program's copy alone. The caller holds the lock. Errors:
 * OUT_OF_MEMORY (the arena is full of programs in use), DEVICE, TIMEOUT, the fault's. */
gyre_status gyre_cuda_make_resident(struct gyre_cuda_executor *executor,
                                    struct gyre_loaded *loaded);

/** The caller holds the lock. Errors: OUT_OF_MEMORY. */
gyre_status gyre_cuda_reserve_scratch(struct gyre_cuda_executor *executor, size_t n_bytes);

gyre_status gyre_cuda_place(struct gyre_executor *base, struct gyre_placement *placement);
void gyre_cuda_unplace(struct gyre_executor *base, struct gyre_placement *placement);

/** All kernels, once for each process and device. The device is current.
 * @default_shared_bytes_out: of all of them, without gyre_cuda_allow_shared(). */
gyre_status gyre_cuda_preload(const struct gyre_cuda_executor *executor,
                              uint32_t *default_shared_bytes_out);

/** Of a loaded kernel. NULL: does nothing. */
gyre_status gyre_cuda_allow_shared(const void *kernel, uint32_t shared_bytes);

void gyre_cuda_recorder_free(struct gyre_cuda_executor *executor);

/** Without memory only warns. The device is current. */
void gyre_cuda_recorder_open(struct gyre_cuda_executor *executor, struct gyre_trace *trace);

/** gyre_cuda_recorder_close - @has_ended: the trace gets events. The device is current. */
void gyre_cuda_recorder_close(struct gyre_cuda_executor *executor, bool has_ended);

/** Errors: OUT_OF_MEMORY. */
gyre_status gyre_cuda_record_program(struct gyre_cuda_executor *executor,
                                     const struct gyre_load_config *config,
                                     struct gyre_loaded *loaded);

gyre_status gyre_cuda_time_works(struct gyre_executor *base);
bool gyre_cuda_time_next(struct gyre_executor *base, gyre_stream stream);
bool gyre_cuda_span_of(struct gyre_executor *base, uint64_t work,
                       struct gyre_launch_span *span_out);

/** Records the launch, or counts it as left out. The caller holds the lock. */
void gyre_cuda_record_launch(struct gyre_cuda_executor *executor, const struct gyre_work *works,
                             uint32_t n_works, enum gyre_cuda_run kind,
                             struct gyre_cuda_common *common);

/** For gyre_cuda_positions(). Errors: OUT_OF_MEMORY. */
gyre_status gyre_cuda_know_program(struct gyre_cuda_executor *executor,
                                   const struct gyre_load_config *config,
                                   struct gyre_loaded *loaded);

/** Before it is freed. The caller holds the lock. */
void gyre_cuda_forget_program(struct gyre_cuda_executor *executor, struct gyre_loaded *loaded);

/** gyre_cuda_remember - @number: works launched before. The caller holds the lock. */
void gyre_cuda_remember(struct gyre_cuda_executor *executor, const struct gyre_work *works,
                        uint32_t n_works, uint64_t number);

gyre_status gyre_cuda_positions(struct gyre_executor *base, struct gyre_position *positions_out,
                                uint32_t most, uint32_t *n_out);
gyre_status gyre_cuda_side_state(struct gyre_executor *base, const struct gyre_side_name *name,
                                 struct gyre_side_state *state_out);

/** Launches behind the executor's last launch, on any stream, in a capture or not. */
gyre_status gyre_cuda_start(struct gyre_cuda_executor *executor,
                            const struct gyre_cuda_start *launch, cudaStream_t stream);

/** Launches on a stream whose order is known already. @overlaps: may begin before
 * the kernel before it ends. */
gyre_status gyre_cuda_start_kernel(const struct gyre_cuda_start *launch, cudaStream_t stream,
                                   bool overlaps);

/** 0 = none. */
gyre_status gyre_cuda_find_capture(const struct gyre_cuda_executor *executor, cudaStream_t stream,
                                   uint64_t *capture_out);

/** Made when the two works first come together. NULL: they are no send and
 * receive. The caller holds the lock. */
struct gyre_cuda_pair *gyre_cuda_find_pair(struct gyre_cuda_executor *executor,
                                           const struct gyre_work *works);

/** gyre_cuda_fill_common - @n_places: blocks that work. */
void gyre_cuda_fill_common(struct gyre_cuda_executor *executor, enum gyre_proto proto,
                           uint32_t n_places, struct gyre_cuda_common *common);

/** Launches a send, if gyre_cuda_pair.goes_apart. The next launch is this receive.
 * The caller holds the lock. */
gyre_status gyre_cuda_enqueue_ahead(struct gyre_cuda_executor *executor,
                                    const struct gyre_work *send, const struct gyre_work *receive,
                                    cudaStream_t stream);

/** Uses every kind of copy once, so that CUDA prepares none during a
 * call. The device is current. */
gyre_status gyre_cuda_side_streams_open(struct gyre_cuda_executor *executor);
void gyre_cuda_side_streams_close(struct gyre_cuda_executor *executor);

/** A work's copy tail. @n_works: that begin with the first sync kernel; 0
 * if the steps before were launched. */
gyre_status gyre_cuda_launch_copies(struct gyre_cuda_executor *executor,
                                    const struct gyre_work *work, uint32_t n_works,
                                    cudaStream_t stream);

/** Are all uncaptured one-sided operations over? The caller holds the lock. */
bool gyre_cuda_marks_are_past(const struct gyre_cuda_executor *executor);
void gyre_cuda_marks_close(struct gyre_cuda_executor *executor);

gyre_status gyre_cuda_put(struct gyre_executor *base, const struct gyre_put *put,
                          gyre_stream stream);
gyre_status gyre_cuda_await_signals(struct gyre_executor *base,
                                    const struct gyre_signals_await *await, gyre_stream stream);
void gyre_cuda_peer_left(struct gyre_executor *base, int rank);

gyre_status gyre_cuda_load(struct gyre_executor *base, const struct gyre_load_config *config,
                           struct gyre_loaded **loaded_out);
gyre_status gyre_cuda_ready(struct gyre_executor *base, const struct gyre_ready *wanted,
                            struct gyre_ready **ready_out);
void gyre_cuda_unload(struct gyre_executor *base, struct gyre_loaded *loaded);
gyre_status gyre_cuda_enqueue(struct gyre_executor *base, const struct gyre_work *works,
                              int n_works, gyre_stream stream);

#endif
