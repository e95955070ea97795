/* SPDX-License-Identifier: Apache-2.0
 *
 * gyre: collectives for GPUs and hosts. The only installed header.
 *
 * A communicator joins n ranks. Collectives are enqueued on a stream and return at once; the
 * stream's completion is the collective's completion. Every call returns a gyre_status; the cause
 * of the last failure, with the values that matter, is in gyre_last_error() (per thread) and
 * gyre_comm_last_error() (per communicator). Nothing here prints, exits or aborts the process.
 */
#ifndef GYRE_H
#define GYRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define GYRE_API
#else
#define GYRE_API __attribute__((visibility("default")))
#endif

#define GYRE_VERSION_MAJOR 0
#define GYRE_VERSION_MINOR 1
#define GYRE_VERSION_PATCH 0
#define GYRE_VERSION       (GYRE_VERSION_MAJOR * 10000 + GYRE_VERSION_MINOR * 100 + GYRE_VERSION_PATCH)

/** What a call ended with. Values are stable. */
typedef enum gyre_status {
    GYRE_SUCCESS = 0,
    GYRE_ERROR_INVALID_ARGUMENT = 1, /* this call's arguments; nothing was enqueued */
    GYRE_ERROR_INVALID_USAGE = 2,    /* calls that do not fit each other, or a dead communicator */
    GYRE_ERROR_OUT_OF_MEMORY = 3,    /* host, shared or device memory */
    GYRE_ERROR_SYSTEM = 4,           /* an operating-system call failed; the cause has its errno */
    GYRE_ERROR_DEVICE = 5,           /* the CUDA driver or runtime failed */
    GYRE_ERROR_REMOTE = 6,           /* another rank died, left or reported an error */
    GYRE_ERROR_TIMEOUT = 7,          /* a deadline passed; the cause names who was waited for */
    GYRE_ERROR_UNSUPPORTED = 8,      /* legal, but not on this device, build or machine */
    GYRE_ERROR_ABORTED = 9,          /* gyre_comm_abort() was called on this communicator */
    GYRE_ERROR_INTERNAL = 10,        /* a bug in gyre */
    GYRE_IN_PROGRESS = 11            /* not an error: not finished yet */
} gyre_status;

/** Element types. Sizes in bytes: 1 1 4 4 8 8 2 2 4 8 1 1. */
typedef enum gyre_dtype {
    GYRE_INT8 = 0,
    GYRE_UINT8 = 1,
    GYRE_INT32 = 2,
    GYRE_UINT32 = 3,
    GYRE_INT64 = 4,
    GYRE_UINT64 = 5,
    GYRE_FLOAT16 = 6,
    GYRE_FLOAT32 = 7,
    GYRE_FLOAT64 = 8,
    GYRE_BFLOAT16 = 9,
    GYRE_FLOAT8_E4M3 = 10,
    GYRE_FLOAT8_E5M2 = 11
} gyre_dtype;

/** Reductions. GYRE_AVG: floats are multiplied by 1/n, rounded to the type, before they are summed;
 * integers are summed, then divided (towards zero). Further values come from
 * gyre_op_create_premul_sum(). Integer sums and products wrap. */
typedef enum gyre_op {
    GYRE_SUM = 0,
    GYRE_PROD = 1,
    GYRE_MAX = 2,
    GYRE_MIN = 3,
    GYRE_AVG = 4,
    GYRE_FIRST_USER_OP = 16
} gyre_op;

typedef enum gyre_device_kind {
    GYRE_DEVICE_AUTO = 0, /* CUDA where this process has a usable GPU, else the host */
    GYRE_DEVICE_HOST = 1,
    GYRE_DEVICE_CUDA = 2
} gyre_device_kind;

typedef struct gyre_comm gyre_comm;

/** A stream of the communicator's device: a cudaStream_t on CUDA; on the host, one from
 * gyre_stream_create(). NULL is the device's default stream (host: one per thread). */
typedef void *gyre_stream;

#define GYRE_UNIQUE_ID_BYTES 128

/** Names one job's rendezvous and carries its secret: hand it to the job's ranks only. */
typedef struct gyre_unique_id {
    uint8_t bytes[GYRE_UNIQUE_ID_BYTES];
} gyre_unique_id;

#define GYRE_CONFIG_UNDEFINED (-1)

/** How a communicator is made. Always start from GYRE_CONFIG_INIT; a field left undefined takes
 * the environment's value (GYRE_*, then NCCL_*), then the built-in default. */
typedef struct gyre_config {
    uint32_t struct_bytes; /* sizeof(gyre_config) of the caller */
    uint32_t version;      /* GYRE_VERSION of the caller */
    int device_kind;       /* enum gyre_device_kind */
    int device_ordinal;    /* CUDA: default the thread's current device */
    int blocking;          /* 1 (default): calls return when done or enqueued; 0: see below */
    int min_channels;      /* 1..64 */
    int max_channels;      /* 1..64 */
    int sm_budget;         /* CUDA: most thread blocks that one collective may occupy */
    int traffic_class;     /* RoCE/IB: the 8-bit ToS byte, 0..255 */
    int service_level;     /* RoCE/IB: 0..15 */
    int timeout_ms;        /* per operation; 0 = none (default) */
    const char *transport; /* "p2p", "shm", "ib", "socket" or NULL */
    const char *name;      /* shown in messages; NULL = made from the id */
    const char *net; /* "IB" or "Socket", in any case: between hosts only, as GYRE_NET; or NULL */
} gyre_config;

#define GYRE_CONFIG_INIT                                                            \
    {                                                                               \
        sizeof(gyre_config), GYRE_VERSION, GYRE_DEVICE_AUTO, GYRE_CONFIG_UNDEFINED, \
            GYRE_CONFIG_UNDEFINED, GYRE_CONFIG_UNDEFINED, GYRE_CONFIG_UNDEFINED,    \
            GYRE_CONFIG_UNDEFINED, GYRE_CONFIG_UNDEFINED, GYRE_CONFIG_UNDEFINED,    \
            GYRE_CONFIG_UNDEFINED, NULL, NULL, NULL                                 \
    }

/* ---- library ---------------------------------------------------------------------------- */

/** gyre_get_version - the library's GYRE_VERSION, as loaded (not as compiled against).
 * @version_out: receives it. Errors: INVALID_ARGUMENT for NULL. */
GYRE_API gyre_status gyre_get_version(int *version_out);

/** gyre_get_device - the device that GYRE_CONFIG_INIT means on this thread now: the current CUDA
 * device's ordinal, or -1 for the host. */
GYRE_API gyre_status gyre_get_device(int *ordinal_out);

/** gyre_get_variable - a GYRE_* variable's value in force: of the environment, else the default.
 * @name: "GYRE_DEBUG" or "DEBUG". @text_out: at most text_bytes with its NUL; "" = unset.
 * Errors: INVALID_ARGUMENT (no such variable, a value that does not parse, too little room). */
GYRE_API gyre_status gyre_get_variable(const char *name, char *text_out, size_t text_bytes);

/** gyre_status_name - the status in words, e.g. "invalid argument". Never NULL. */
GYRE_API const char *gyre_status_name(gyre_status status);

/** gyre_last_error - the cause text of the last call that failed on this thread ("" if none).
 * Valid until this thread's next gyre call. */
GYRE_API const char *gyre_last_error(void);

/* ---- threads ---------------------------------------------------------------------------- *
 *
 * A thread for each rank or GPU is fine, and so is one thread for all of them. Any thread may use a
 * communicator, also one that another thread made.
 *
 * One communicator. One thread at a time may make calls on a rank's handle: collectives, send and
 * recv, gyre_op_*, gyre_comm_exchange, gyre_comm_split, gyre_comm_finalize, gyre_window_*, and
 * gyre_group_end() of a group that has calls on it. Threads may take turns, in an order that is the
 * same on all ranks. A call that comes while another thread is in one fails with INVALID_USAGE, and
 * the communicator ends on all ranks with that cause: no order of the two would be the same
 * everywhere. At any time, beside a call too, any thread may use gyre_comm_abort, _async_error,
 * _last_error, _count, _rank, _device, _register, _deregister and _shrink.
 *
 * Destroying. If several threads destroy one handle, one of them does; the others get
 * INVALID_USAGE, as every later use of the handle does. A call of another thread that is under way
 * is waited for, and aborted after a second.
 *
 * Several communicators. Threads may call on different communicators, and on different ranks'
 * handles of one communicator, at the same time.
 *
 * Streams. Any thread may enqueue on a stream. A stream carries out one call after the other, so
 * all ranks must enqueue the calls of communicators that share a stream in the same order; a group
 * does that by itself (see below). On the host each rank of a communicator needs a stream of its
 * own: a call on a stream where an unfinished call of another rank of the same communicator is the
 * latest fails with INVALID_USAGE, and the communicator ends. NULL is one host stream for each
 * thread, so a thread that serves several ranks needs gyre_stream_create(). On GPUs each rank has
 * its own GPU.
 *
 * Groups belong to the thread that starts them: other threads' calls are not in them.
 *
 * GPUs. While a collective of one rank waits for another rank of the same process, that other
 * rank's call must be able to come. cudaMalloc, cudaFree, cudaDeviceSynchronize and the first
 * launch of a kernel, which loads its module, can wait until running kernels end. A thread that
 * does this between two ranks' calls, or before its own rank's call, can therefore block for ever.
 * Allocate before, use a thread for each GPU or a group, and set CUDA_MODULE_LOADING=EAGER, which
 * loads all modules at the start. In a group, gyre loads and allocates what its calls need before
 * it launches the first. */

/* ---- communicators ---------------------------------------------------------------------- */

/* Communicators that do not block (config.blocking = 0). Calls that wait for other ranks - init,
 * split, shrink, finalize - return GYRE_IN_PROGRESS at once and go on in the background; so does
 * the gyre_group_end() of a group that has such calls. The new handle is there at once, and so is
 * what a call made of wrong arguments. Poll gyre_comm_async_error() of the new communicator (and,
 * for split and shrink, of the parent) until it is no longer GYRE_IN_PROGRESS; other calls on it
 * are refused until then. What failed in the background is the communicator's error, and its handle
 * is to be destroyed. Abort and destroy may be called at any time. Collectives never wait for other
 * ranks, so they return as on any communicator.
 *
 * A process may fork(). The child has none of its parent's communicators: calls with them fail with
 * INVALID_USAGE, and it can make its own (on GPUs only if CUDA was not used before the fork). */

/** gyre_get_unique_id - start a rendezvous in this process and write its name.
 * @id_out: 128 bytes, to be given to every rank of the one communicator made with it.
 * The rendezvous ends when the communicator ends, or when GYRE_BOOTSTRAP_TIMEOUT passes unused. It
 * is a thread of this process, rank or not: the communicator fails if the process ends before it.
 * Errors: SYSTEM (no usable interface, no socket), INVALID_ARGUMENT. */
GYRE_API gyre_status gyre_get_unique_id(gyre_unique_id *id_out);

/** gyre_comm_init_rank - join a communicator; every rank of it calls this once.
 * @comm_out: set on success only.
 * @n_ranks: size of the communicator, the same on all ranks, >= 1.
 * @id: from gyre_get_unique_id() in one process.
 * @rank: 0 <= rank < n_ranks, each once.
 * @config: NULL = all defaults. Copied.
 * Blocks until all ranks came or GYRE_BOOTSTRAP_TIMEOUT passed; inside a group gyre_group_end()
 * waits for it and sets comm_out, and the same holds for split and shrink. Errors:
 * INVALID_ARGUMENT, INVALID_USAGE (a rank twice, different n_ranks, settings that differ), TIMEOUT
 * (names the ranks that never came), REMOTE, SYSTEM, DEVICE. */
GYRE_API gyre_status gyre_comm_init_rank(gyre_comm **comm_out, int n_ranks,
                                         const gyre_unique_id *id, int rank,
                                         const gyre_config *config);

/** gyre_comm_init_all - make a communicator whose ranks all live in this process.
 * @comms_out: n_ranks handles, by rank.
 * @device_ordinals: n_ranks CUDA ordinals, or NULL for 0..n_ranks-1. Ignored on the host.
 * Blocks whatever config.blocking says: it waits for nobody else. */
GYRE_API gyre_status gyre_comm_init_all(gyre_comm **comms_out, int n_ranks,
                                        const int *device_ordinals, const gyre_config *config);

#define GYRE_SPLIT_NOCOLOR (-1)

/** gyre_comm_split - make communicators from a communicator's ranks; collective over it.
 * @color: ranks of one color form one new communicator; GYRE_SPLIT_NOCOLOR takes part but gets
 * NULL.
 * @key: orders the new ranks; ties keep the parent's order.
 * @config: NULL = the parent's. */
GYRE_API gyre_status gyre_comm_split(gyre_comm *comm, int color, int key, gyre_comm **comm_out,
                                     const gyre_config *config);

#define GYRE_SHRINK_DEFAULT 0 /* of a healthy communicator, which stays as it is */
#define GYRE_SHRINK_ABORT   1 /* abort it first: the excluded ranks are dead, or it has failed */

/** gyre_comm_shrink - make a communicator without some of the ranks, and without their help: every
 * rank that is not excluded calls this with the same list, the excluded ones do not.
 * @excluded_ranks: ranks of `comm`, in any order; may be NULL if n_excluded is 0 (a new start with
 * all ranks).
 * @flags: GYRE_SHRINK_DEFAULT or GYRE_SHRINK_ABORT. The parent is to be destroyed in either case.
 * @config: NULL = the parent's. The new ranks keep the parent's order.
 * Blocks until all have come or GYRE_BOOTSTRAP_TIMEOUT passed. Errors: INVALID_ARGUMENT,
 * INVALID_USAGE (DEFAULT on a communicator that failed; lists that differ, on every rank), REMOTE
 * (another rank died, or is excluded by the lowest rank: exclude it too and call again), TIMEOUT
 * (names the ranks that did not come), UNSUPPORTED (no network interface). */
GYRE_API gyre_status gyre_comm_shrink(gyre_comm *comm, const int *excluded_ranks, int n_excluded,
                                      int flags, gyre_comm **comm_out, const gyre_config *config);

/** gyre_comm_finalize - wait for all enqueued work, then tell the peers that this rank leaves. */
GYRE_API gyre_status gyre_comm_finalize(gyre_comm *comm);

/** gyre_comm_destroy - finalize if needed, then free. The handle is dead afterwards. Of several
 * threads that destroy it one succeeds, the others get INVALID_USAGE. */
GYRE_API gyre_status gyre_comm_destroy(gyre_comm *comm);

/** gyre_comm_abort - end everything at once, locally, without the other ranks' help: running
 * operations end with ABORTED here and with REMOTE on the peers. Any thread may call it. The
 * handle stays valid for queries until gyre_comm_destroy(). */
GYRE_API gyre_status gyre_comm_abort(gyre_comm *comm);

GYRE_API gyre_status gyre_comm_count(const gyre_comm *comm, int *n_ranks_out);
GYRE_API gyre_status gyre_comm_rank(const gyre_comm *comm, int *rank_out);

/** gyre_comm_device - the device that this rank's buffers and streams belong to. Either output
 * may be NULL. The host's ordinal is -1. */
GYRE_API gyre_status gyre_comm_device(const gyre_comm *comm, gyre_device_kind *kind_out,
                                      int *ordinal_out);

/** gyre_comm_exchange - give n_bytes of host memory to every rank: all_out[r * n_bytes] is rank
 * r's. For set-up data, such as another library's id: at most 1 MiB / n_ranks, over TCP.
 * Collective, outside groups; blocks also on communicators that do not. */
GYRE_API gyre_status gyre_comm_exchange(gyre_comm *comm, const void *mine, size_t n_bytes,
                                        void *all_out);

/** gyre_comm_last_error - the cause text of the communicator's first failure ("" if none). */
GYRE_API const char *gyre_comm_last_error(gyre_comm *comm);

/** gyre_comm_async_error - SUCCESS while the communicator is healthy, else what ended it. Never
 * blocks. @status_out receives it; the call's own status speaks of the arguments. */
GYRE_API gyre_status gyre_comm_async_error(gyre_comm *comm, gyre_status *status_out);

/* ---- groups ----------------------------------------------------------------------------- */

/** gyre_group_start / gyre_group_end - calls between them are launched together by the outermost
 * end; needed when one thread serves several ranks, and for sends and receives that must not wait
 * for each other. Groups nest. An argument error is reported by the call itself and leaves the
 * group usable. Where a communicator's calls name several streams, all of them are enqueued as if
 * on each: they begin after what is on any of those streams, and hold up all of them.
 *
 * Order: the calls of one communicator keep theirs. Communicators are launched one after the other
 * in the order in which they were made (those that were made at the same time: in one that is the
 * same on all their ranks). So each rank may name the communicators of a group in an order of its
 * own, or name a communicator first by a send that no other rank has, also where they share a
 * stream.
 *
 * GYRE_CHECK=calls: the group's end waits until all ranks have made the group's collectives. Each
 * is launched when it is compared, and those before it are launched. */
GYRE_API gyre_status gyre_group_start(void);
GYRE_API gyre_status gyre_group_end(void);

/** gyre_group_simulate_end - end the group, launch nothing of it, and say how long it would take:
 * calls of one communicator after each other, communicators side by side.
 * @time_us_out: microseconds, by the cost model (GYRE_TUNING_FILE's constants, else shipped ones;
 * docs/tuning.md says how far they can be trusted).
 * Communicators that were being made in the group are made all the same.
 * Errors: INVALID_USAGE (no group, or inside another one, which stays open), INVALID_ARGUMENT,
 * UNSUPPORTED (a send or receive is in it; too many ranks to simulate). */
GYRE_API gyre_status gyre_group_simulate_end(double *time_us_out);

/** gyre_group_cancel - end the group and launch nothing of it; for callers to whom a group with a
 * failed call is a failed group. Communicators that were being made in the group are made all the
 * same, and waited for; their failures are the call's as gyre_group_end()'s. IN_PROGRESS as there.
 * Errors: INVALID_USAGE (no group, or inside another one, which stays open). */
GYRE_API gyre_status gyre_group_cancel(void);

/* ---- collectives ------------------------------------------------------------------------ *
 *
 * Common rules. Buffers are on the communicator's device. `count` is in elements; 0 is legal and
 * moves nothing. Buffers may be aligned to the element only. `send` and `recv` may not overlap
 * except for the in-place form named at each call. All ranks call in the same order with the same
 * count, type, operation and root. Results are bitwise identical on all ranks that receive the
 * same value, and from run to run. Errors: INVALID_ARGUMENT (this call; nothing enqueued),
 * INVALID_USAGE (communicator failed or destroyed; calls differ between ranks), and later, through
 * the stream and gyre_comm_async_error(), REMOTE, TIMEOUT, SYSTEM, DEVICE. */

/** gyre_all_reduce - recv[i] on every rank = op over ranks of send[i]; i < count. In place: send ==
 * recv. */
GYRE_API gyre_status gyre_all_reduce(const void *send, void *recv, size_t count, gyre_dtype dtype,
                                     gyre_op op, gyre_comm *comm, gyre_stream stream);

/** gyre_broadcast - recv[i] on every rank = root's send[i]. `send` is read on the root only. In
 * place: send == recv. */
GYRE_API gyre_status gyre_broadcast(const void *send, void *recv, size_t count, gyre_dtype dtype,
                                    int root, gyre_comm *comm, gyre_stream stream);

/** gyre_reduce - root's recv[i] = op over ranks of send[i]. `recv` is written on the root only
 * and may be NULL elsewhere. In place: send == recv. */
GYRE_API gyre_status gyre_reduce(const void *send, void *recv, size_t count, gyre_dtype dtype,
                                 gyre_op op, int root, gyre_comm *comm, gyre_stream stream);

/** gyre_all_gather - recv[r*count + i] = rank r's send[i]. recv holds n_ranks*count elements. In
 * place: send == recv + rank*count. */
GYRE_API gyre_status gyre_all_gather(const void *send, void *recv, size_t count, gyre_dtype dtype,
                                     gyre_comm *comm, gyre_stream stream);

/** gyre_reduce_scatter - recv[i] = op over ranks of send[rank*count + i]. send holds n_ranks*count
 * elements. In place: recv == send + rank*count. */
GYRE_API gyre_status gyre_reduce_scatter(const void *send, void *recv, size_t count,
                                         gyre_dtype dtype, gyre_op op, gyre_comm *comm,
                                         gyre_stream stream);

/** gyre_all_to_all - recv[r*count + i] = rank r's send[rank*count + i]. Both hold n_ranks*count
 * elements. No in-place form. */
GYRE_API gyre_status gyre_all_to_all(const void *send, void *recv, size_t count, gyre_dtype dtype,
                                     gyre_comm *comm, gyre_stream stream);

/** gyre_gather - root's recv[r*count + i] = rank r's send[i]. `recv` holds n_ranks*count elements
 * on the root and may be NULL elsewhere. In place: send == recv + root*count on the root. */
GYRE_API gyre_status gyre_gather(const void *send, void *recv, size_t count, gyre_dtype dtype,
                                 int root, gyre_comm *comm, gyre_stream stream);

/** gyre_scatter - recv[i] on rank r = root's send[r*count + i]. `send` holds n_ranks*count
 * elements on the root and may be NULL elsewhere. In place: recv == send + root*count on the root.
 */
GYRE_API gyre_status gyre_scatter(const void *send, void *recv, size_t count, gyre_dtype dtype,
                                  int root, gyre_comm *comm, gyre_stream stream);

/** gyre_send / gyre_recv - point to point; the receiver's count and type must equal the sender's.
 * Pairs match in call order per (sender, receiver). A send to oneself needs a recv in the same
 * group. */
GYRE_API gyre_status gyre_send(const void *send, size_t count, gyre_dtype dtype, int peer,
                               gyre_comm *comm, gyre_stream stream);
GYRE_API gyre_status gyre_recv(void *recv, size_t count, gyre_dtype dtype, int peer,
                               gyre_comm *comm, gyre_stream stream);

/** gyre_op_create_premul_sum - an operation sum(scalar * x_r): the product is rounded to dtype
 * before it is added.
 * @scalar: one element of dtype, in host memory or in the device's; copied before the call returns.
 * @op_out: legal with this communicator and dtype until gyre_op_destroy(). */
GYRE_API gyre_status gyre_op_create_premul_sum(gyre_op *op_out, const void *scalar,
                                               gyre_dtype dtype, gyre_comm *comm);
GYRE_API gyre_status gyre_op_destroy(gyre_op op, gyre_comm *comm);

/* ---- registered buffers ------------------------------------------------------------------ */

/** A buffer that was registered with a communicator. Not an address; NULL is none. */
typedef struct gyre_registration_opaque *gyre_registration;

/** gyre_comm_register - say that calls will use this buffer again and again. Local, any thread. A
 * hint: every call works, and gives the same bits, without it. Ranges may overlap; the same range
 * again gives the same handle, to be given back as often. Memory that is freed must be deregistered
 * first, or with its communicator.
 * @buffer: [buffer, +n_bytes) on the communicator's device; n_bytes > 0.
 * Errors: INVALID_ARGUMENT (not memory of that device), INVALID_USAGE, OUT_OF_MEMORY. */
GYRE_API gyre_status gyre_comm_register(gyre_comm *comm, const void *buffer, size_t n_bytes,
                                        gyre_registration *handle_out);

/** gyre_comm_deregister - give a registration back; also of a communicator that failed or was
 * finalized. gyre_comm_destroy() gives back what is left. Errors: INVALID_ARGUMENT (not a handle of
 * this communicator, or given back already). */
GYRE_API gyre_status gyre_comm_deregister(gyre_comm *comm, gyre_registration handle);

/** A buffer on every rank that all ranks can address; its number, the same everywhere. 0 is none.
 */
typedef unsigned gyre_window;

/** gyre_window_register - let all ranks address each other's buffers, so that large all_reduce,
 * all_gather and broadcast may write results straight to where they belong. Collective, outside
 * groups; waits for the others. A call whose recv lies in a window on one rank must have it at the
 * same distance from the window's start on every rank: else the calls do not fit each other. The
 * bits are the same with and without windows.
 * @buffer: [buffer, +n_bytes) on the communicator's device; sizes may differ, the smallest counts.
 * On GPUs: from cudaMalloc or gyre_mem_alloc where ranks are processes. On the host: ranks that are
 * threads of one process only.
 * Errors, the same on every rank: UNSUPPORTED (not all ranks can address each other, or not this
 * kind of memory), INVALID_ARGUMENT, DEVICE, OUT_OF_MEMORY. */
GYRE_API gyre_status gyre_window_register(gyre_comm *comm, void *buffer, size_t n_bytes,
                                          gyre_window *window_out);

/** gyre_window_deregister - collective; calls that use it are done. The buffer may be freed when
 * this returns. Windows that are left end with their communicator; their buffers must live until
 * all ranks have destroyed it. Errors: INVALID_ARGUMENT. */
GYRE_API gyre_status gyre_window_deregister(gyre_comm *comm, gyre_window window);

/* ---- memory and streams ----------------------------------------------------------------- */

/** gyre_mem_alloc / gyre_mem_free - memory on a device, aligned to 4096 bytes (host) or as
 * cudaMalloc. Freeing NULL is fine. @ordinal: CUDA device, or -1 for the current one. */
GYRE_API gyre_status gyre_mem_alloc(void **ptr_out, size_t n_bytes, gyre_device_kind kind,
                                    int ordinal);
GYRE_API gyre_status gyre_mem_free(void *ptr, gyre_device_kind kind);

/** gyre_stream_create / destroy - a FIFO of operations. Destroying waits for what is enqueued. */
GYRE_API gyre_status gyre_stream_create(gyre_stream *stream_out, gyre_device_kind kind,
                                        int ordinal);
GYRE_API gyre_status gyre_stream_destroy(gyre_stream stream, gyre_device_kind kind);

/** gyre_stream_synchronize - wait until everything enqueued so far is done. Returns the first
 * failure of an operation on it since the last call (host device). No communicator is named here,
 * so NULL on CUDA is the default stream of the thread's current device, which need not be that of a
 * communicator the thread called with NULL. */
GYRE_API gyre_status gyre_stream_synchronize(gyre_stream stream, gyre_device_kind kind);

/** gyre_stream_query - SUCCESS when idle, IN_PROGRESS when not. Never blocks. */
GYRE_API gyre_status gyre_stream_query(gyre_stream stream, gyre_device_kind kind);

#ifdef __cplusplus
}
#endif

#endif /* GYRE_H */
