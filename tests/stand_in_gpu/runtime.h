/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA runtime of the stand-in GPU. A task runs on threads of the host when the tasks that it
 * depends on have ended. One lock guards all state; it is not held while a task runs.
 */
#ifndef GYRE_TESTS_STAND_IN_GPU_RUNTIME_H
#define GYRE_TESTS_STAND_IN_GPU_RUNTIME_H

#include "tests/stand_in_gpu/block.h"
#include "tests/stand_in_gpu/launch.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>

#define STAND_IN_MAX_GPUS         16
#define STAND_IN_FRESH_BYTE       0xA5 /* in new memory, which is not zero in CUDA either */
#define STAND_IN_GPU_MEMORY_BYTES (80ULL << 30)

/** Of the environment. Outside of 1 to @most it ends the process with a message. */
uint32_t stand_in_setting(const char *name, uint32_t fallback, uint32_t most);

uint32_t stand_in_n_gpus(void);

/** The calling thread's current GPU. */
int stand_in_gpu(void);

uint64_t stand_in_now_ns(void);

/** Ends the process without memory. */
void *stand_in_realloc(void *ptr, size_t n_bytes);

/** Sets the calling thread's last error. */
cudaError_t stand_in_result(cudaError_t error);

/** stand_in_enter / stand_in_leave - the lock. @error: returned, as by stand_in_result(). */
void stand_in_enter(void);
cudaError_t stand_in_leave(cudaError_t error);

extern pthread_mutex_t stand_in_lock;

enum stand_in_kind {
    STAND_IN_NOTHING, /* waits for several tasks */
    STAND_IN_KERNEL,
    STAND_IN_COPY,
    STAND_IN_FILL,
    STAND_IN_CALL, /* a function of the host */
};

/* Of a task, or a node of a graph. */
struct stand_in_op {
    enum stand_in_kind kind;
    int gpu;
    struct stand_in_launch launch; /* `args` is the task's or node's */
    size_t args_bytes;
    void *to; /* COPY, FILL: rows */
    const void *from;
    size_t to_pitch_bytes, from_pitch_bytes, row_bytes, n_rows;
    int value;
    cudaHostFn_t function; /* CALL */
    void *argument;
};

struct stand_in_task {
    struct stand_in_op op;
    struct stand_in_task *next, *previous; /* of the tasks that have not ended */
    struct stand_in_task *next_ready;
    struct stand_in_task **followers; /* tasks that depend on this one */
    size_t n_followers;
    uint64_t number; /* counts all tasks */
    uint64_t stream;
    uint64_t begin_ns, end_ns; /* 0 = not yet */
    uint32_t n_users;
    uint32_t n_awaited; /* not ended, and 1 until stand_in_task_start() */
    uint32_t n_parts;   /* blocks of a kernel */
    uint32_t n_begun, n_ended;
    bool is_blocking; /* of the NULL stream, or one that waits for it */
    bool has_ended;
};

/** Lives until it has ended and has no user. @op: copied, with a kernel's arguments. @stream: for
 * messages. */
struct stand_in_task *stand_in_task_new(const struct stand_in_op *op, uint64_t stream);

/** A task that is not started begins after @before, which may be NULL. */
void stand_in_task_follow(struct stand_in_task *task, struct stand_in_task *before);

/** Follows all tasks of the GPU that are `is_blocking`. */
void stand_in_task_follow_blocking(struct stand_in_task *task);

void stand_in_task_start(struct stand_in_task *task);

/** The variable becomes the task's user. NULL = none. */
void stand_in_task_set(struct stand_in_task **variable, struct stand_in_task *task);

/** The lock is free meanwhile. @task: may be NULL. */
void stand_in_task_wait(struct stand_in_task *task);

/** For all tasks that exist now. */
void stand_in_gpu_wait(int gpu);

/** With tasks that are `is_blocking`. */
bool stand_in_gpu_is_busy(int gpu);

/** stand_in_op_copy / stand_in_op_free - with arguments of its own. */
struct stand_in_op stand_in_op_copy(const struct stand_in_op *op);
void stand_in_op_free(struct stand_in_op *op);

/* Nodes that the next operation depends on. */
struct stand_in_nodes {
    cudaGraphNode_t *nodes;
    size_t n;
};

struct CUstream_st {
    struct CUstream_st *next;
    uint64_t number; /* 0: a NULL stream */
    int gpu;
    bool is_blocking;
    struct stand_in_task *last;
    struct stand_in_capture *capture; /* NULL: none */
    struct stand_in_nodes heads;      /* of the capture */
};

/** All that the program made. */
extern struct CUstream_st *stand_in_streams;

/** The current GPU's for NULL. Returns NULL if there is none. */
struct CUstream_st *stand_in_stream_find(cudaStream_t handle);

/** Makes it the last one. The caller starts it. */
void stand_in_stream_append(struct CUstream_st *stream, struct stand_in_task *task);

/** To a stream, or to the graph that it captures. Takes the lock. @overlaps: the launch asks to
 * begin while the one before it ends. */
cudaError_t stand_in_enqueue(cudaStream_t handle, struct stand_in_op *op, bool overlaps);

struct stand_in_capture {
    struct stand_in_capture *next;
    unsigned long long id;
    enum cudaStreamCaptureMode mode;
    pthread_t thread; /* that began it */
    struct CUstream_st *origin;
    cudaGraph_t graph;
    bool is_invalid;
};

/** For calls that are unsafe during captures, which then become invalid. */
cudaError_t stand_in_capture_check(void);

/** A captured stream may not be waited for; the capture becomes invalid. */
cudaError_t stand_in_capture_refuse(struct CUstream_st *stream);

/** To the graph that the stream captures. */
cudaError_t stand_in_capture_add(struct CUstream_st *stream, const struct stand_in_op *op,
                                 bool overlaps);

/** NULL if it has ended. */
struct stand_in_capture *stand_in_capture_find(unsigned long long id);

/** The stream follows nodes of a capture. */
cudaError_t stand_in_capture_join(struct CUstream_st *stream, struct stand_in_capture *capture,
                                  const struct stand_in_nodes *nodes);

void stand_in_nodes_add(struct stand_in_nodes *nodes, const struct stand_in_nodes *more);
void stand_in_nodes_clear(struct stand_in_nodes *nodes);

struct stand_in_edge {
    cudaGraphNode_t from;
    bool overlaps;
};

struct CUgraphNode_st {
    struct stand_in_op op;
    struct stand_in_edge *edges; /* from the nodes that it depends on */
    size_t n_edges;
    struct stand_in_task *task; /* while a launch makes tasks */
    bool is_followed;           /* another node depends on it */
};

/* Constant once its capture has ended. */
struct CUgraph_st {
    uint32_t n_users;
    cudaGraphNode_t *nodes;
    size_t n_nodes;
};

enum stand_in_memory_kind {
    STAND_IN_MEMORY_DEVICE,
    STAND_IN_MEMORY_IMPORTED, /* device memory of another process */
    STAND_IN_MEMORY_HOST,
    STAND_IN_MEMORY_REGISTERED,
};

struct stand_in_memory {
    struct stand_in_memory *next;
    unsigned char *base;
    size_t n_bytes;        /* as asked for */
    size_t n_mapped_bytes; /* DEVICE, IMPORTED */
    unsigned long long id;
    enum stand_in_memory_kind kind;
    int gpu;
    int fd; /* DEVICE */
};

/** Given out by a GPU. The lock is held. */
size_t stand_in_memory_in_use(int gpu);

#endif
