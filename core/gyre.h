/* SPDX-License-Identifier: Apache-2.0
 *
 * gyre: collectives for GPUs and hosts. The only installed header.
 *
 * A communicator joins n ranks. A collective is enqueued on a stream and the call returns at once;
 * it is complete when the stream has carried it out. Every call returns a gyre_status.
 * gyre_last_error() has the cause of a thread's failure, gyre_comm_last_error() a communicator's.
 * No function ends the process.
 *
 * Contents: version, types, configuration; library; threads; communicators; groups; collectives;
 * observers; registered buffers; one-sided calls; memory and streams.
 *
 * ---- one example: two ranks in one process add up their vectors -------------------------------
 *
 *     #include <gyre.h>
 *     #include <stdio.h>
 *     #include <stdlib.h>
 *
 *     static void must(gyre_status status)
 *     {
 *         if (status == GYRE_SUCCESS)
 *             return;
 *         fprintf(stderr, "%s: %s\n", gyre_status_name(status), gyre_last_error());
 *         exit(1);
 *     }
 *
 *     int main(void)
 *     {
 *         gyre_config config = GYRE_CONFIG_INIT;
 *         gyre_comm *comms[2];
 *         gyre_stream streams[2];
 *         float data[2][4] = {{1, 2, 3, 4}, {10, 20, 30, 40}};
 *
 *         config.device_kind = GYRE_DEVICE_HOST;
 *         must(gyre_comm_init_all(comms, 2, NULL, &config));
 *         for (int rank = 0; rank < 2; rank++)
 *             must(gyre_stream_create(&streams[rank], GYRE_DEVICE_HOST, -1));
 *
 *         must(gyre_group_start());
 *         for (int rank = 0; rank < 2; rank++)
 *             must(gyre_all_reduce(data[rank], data[rank], 4, GYRE_FLOAT32, GYRE_SUM, comms[rank],
 *                                  streams[rank]));
 *         must(gyre_group_end());
 *
 *         for (int rank = 0; rank < 2; rank++)
 *             must(gyre_stream_synchronize(streams[rank], GYRE_DEVICE_HOST));
 *         printf("%g %g\n", (double)data[0][3], (double)data[1][3]);
 *
 *         for (int rank = 0; rank < 2; rank++) {
 *             must(gyre_stream_destroy(streams[rank], GYRE_DEVICE_HOST));
 *             must(gyre_comm_destroy(comms[rank]));
 *         }
 *         return data[1][3] == 44 ? 0 : 1;
 *     }
 *
 * ---- index: the file that defines each function -----------------------------------------------
 *
 *     core/foundation/base/status.c  gyre_status_name gyre_last_error
 *     core/engine/comm/library.c     gyre_get_version gyre_get_variable gyre_get_variable_name
 *                                    gyre_log_text gyre_get_launch gyre_get_launch_id
 *                                    gyre_get_device gyre_mem_alloc gyre_mem_free
 *                                    gyre_stream_create gyre_stream_destroy
 *                                    gyre_stream_synchronize gyre_stream_query
 *     core/engine/comm/make.c        gyre_get_unique_id gyre_comm_init_rank gyre_comm_init_all
 *     core/engine/comm/split.c       gyre_comm_split gyre_comm_grow
 *     core/engine/comm/shrink.c      gyre_comm_shrink
 *     core/engine/comm/comm.c        gyre_comm_finalize gyre_comm_destroy gyre_comm_abort
 *                                    gyre_comm_count gyre_comm_rank gyre_comm_device
 *                                    gyre_comm_last_error gyre_comm_async_error gyre_comm_dump
 *                                    gyre_comm_properties gyre_comm_observe
 *     core/engine/comm/api.c         gyre_all_reduce gyre_broadcast gyre_reduce gyre_all_gather
 *                                    gyre_reduce_scatter gyre_all_to_all gyre_gather gyre_scatter
 *                                    gyre_send gyre_recv gyre_collective
 *                                    gyre_op_create_premul_sum gyre_op_destroy
 *                                    gyre_comm_exchange
 *     core/engine/call/group.c       gyre_group_start gyre_group_end gyre_group_simulate_end
 *                                    gyre_group_cancel
 *     core/engine/comm/window.c      gyre_comm_register gyre_comm_deregister gyre_window_register
 *                                    gyre_window_deregister gyre_window_address
 *     core/engine/comm/signals.c     gyre_put gyre_signal gyre_wait_signal
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

/** The result of a call. The values never change. */
typedef enum gyre_status {
    GYRE_SUCCESS = 0,
    GYRE_ERROR_INVALID_ARGUMENT = 1, /* an argument of this call is wrong; nothing was enqueued */
    GYRE_ERROR_INVALID_USAGE = 2,    /* the ranks' calls differ, or the communicator has failed */
    GYRE_ERROR_OUT_OF_MEMORY = 3,    /* of host, shared or device memory */
    GYRE_ERROR_SYSTEM = 4,           /* an operating-system call failed; the cause has its errno */
    GYRE_ERROR_DEVICE = 5,           /* the CUDA driver or runtime failed */
    GYRE_ERROR_REMOTE = 6,           /* another rank died, left or reported an error */
    GYRE_ERROR_TIMEOUT = 7,          /* a deadline passed; the cause names the missing ranks */
    GYRE_ERROR_UNSUPPORTED = 8,      /* legal, but impossible on this device, build or machine */
    GYRE_ERROR_ABORTED = 9,          /* gyre_comm_abort() was called on this communicator */
    GYRE_ERROR_INTERNAL = 10,        /* a bug in gyre */
    GYRE_IN_PROGRESS = 11            /* not an error: the call goes on in the background */
} gyre_status;

/** Element types. Sizes in bytes, in this order: 1 1 4 4 8 8 2 4 8 2 1 1. */
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

/** Reductions. Integer sums and products wrap. GYRE_AVG of floats multiplies each element by 1/n,
 * rounds to the type, and sums; of integers it sums and then divides, rounding towards zero.
 * gyre_op_create_premul_sum() makes further operations. */
typedef enum gyre_op {
    GYRE_SUM = 0,
    GYRE_PROD = 1,
    GYRE_MAX = 2,
    GYRE_MIN = 3,
    GYRE_AVG = 4,
    GYRE_FIRST_USER_OP = 16
} gyre_op;

/** Where a communicator's buffers and streams are. */
typedef enum gyre_device_kind {
    GYRE_DEVICE_AUTO = 0, /* CUDA if this process has a usable GPU, else the host */
    GYRE_DEVICE_HOST = 1,
    GYRE_DEVICE_CUDA = 2
} gyre_device_kind;

/** One rank's handle of a communicator. */
typedef struct gyre_comm gyre_comm;

/** A stream of the communicator's device: on CUDA a cudaStream_t, on the host from
 * gyre_stream_create(). NULL is the device's default stream; on the host each thread has its own
 * and ends only when it has carried out all calls. */
typedef void *gyre_stream;

#define GYRE_UNIQUE_ID_BYTES 128

/** The address of one job's rendezvous, and the job's secret. Give it to the job's ranks only. */
typedef struct gyre_unique_id {
    uint8_t bytes[GYRE_UNIQUE_ID_BYTES];
} gyre_unique_id;

#define GYRE_CONFIG_UNDEFINED (-1)

/** The settings of a new communicator. Always start from GYRE_CONFIG_INIT. An undefined field takes
 * the value of its GYRE_* variable, else of its NCCL_* variable, else the built-in default. */
typedef struct gyre_config {
    uint32_t struct_bytes; /* sizeof(gyre_config) of the caller */
    uint32_t version;      /* GYRE_VERSION of the caller */
    int device_kind;       /* enum gyre_device_kind */
    int device_ordinal;    /* CUDA; default: the thread's current device */
    int blocking;          /* 1 (default): set-up calls wait; 0: see "communicators" below */
    int min_channels;      /* 1..64 */
    int max_channels;      /* 1..64 */
    int sm_budget;         /* CUDA: the most thread blocks that one collective may use */
    int traffic_class;     /* RoCE and InfiniBand: the whole ToS byte, 0..255 */
    int service_level;     /* RoCE and InfiniBand: 0..15 */
    int timeout_ms;        /* for each operation; 0 = no limit (default) */
    const char *transport; /* "p2p", "shm", "ib", "socket" or NULL */
    const char *name;      /* for messages; NULL = derived from the unique id */
    const char *net;       /* "IB" or "Socket", in upper or lower case, as GYRE_NET: the transport
                            * between hosts; or NULL */
    const char *refusal;   /* NULL; else the call fails with INVALID_ARGUMENT and this cause, and
                            * init, split and growth tell the ranks that wait for this one. For a
                            * layer above gyre.h that finds arguments of its own wrong */
} gyre_config;

#define GYRE_CONFIG_INIT                                                            \
    {                                                                               \
        sizeof(gyre_config), GYRE_VERSION, GYRE_DEVICE_AUTO, GYRE_CONFIG_UNDEFINED, \
            GYRE_CONFIG_UNDEFINED, GYRE_CONFIG_UNDEFINED, GYRE_CONFIG_UNDEFINED,    \
            GYRE_CONFIG_UNDEFINED, GYRE_CONFIG_UNDEFINED, GYRE_CONFIG_UNDEFINED,    \
            GYRE_CONFIG_UNDEFINED, NULL, NULL, NULL, NULL                           \
    }

/* ---- library ---------------------------------------------------------------------------- */

/** gyre_get_version - GYRE_VERSION of the loaded library.
 * Errors: INVALID_ARGUMENT (NULL). */
GYRE_API gyre_status gyre_get_version(int *version_out);

/** gyre_get_device - the device that GYRE_CONFIG_INIT means on this thread now.
 * @ordinal_out: the ordinal of the current CUDA device, or -1 for the host.
 * Errors: INVALID_ARGUMENT (NULL), DEVICE. */
GYRE_API gyre_status gyre_get_device(int *ordinal_out);

/** gyre_get_variable - the value of a GYRE_* variable: the environment's, else the default.
 * @name: with or without the prefix, e.g. "GYRE_DEBUG" or "DEBUG".
 * @text_out: receives the value and its NUL, at most text_bytes; "" when unset.
 * Errors: INVALID_ARGUMENT (no such variable, a value that does not parse, text_bytes too
 * small). */
GYRE_API gyre_status gyre_get_variable(const char *name, char *text_out, size_t text_bytes);

/** gyre_get_variable_name - the name of a variable with its prefix, e.g. "GYRE_DEBUG". Never freed.
 * @index: 0, 1, 2, ... NULL once there are no more. */
GYRE_API const char *gyre_get_variable_name(int index);

/** gyre_log_text - write to gyre's log, if GYRE_DEBUG asks for warnings, or for information of
 * INIT. Any thread. */
GYRE_API void gyre_log_text(bool is_warning, const char *text);

/** gyre_status_name - the status in words, e.g. "invalid argument". Never NULL. */
GYRE_API const char *gyre_status_name(gyre_status status);

/** gyre_last_error - the cause of the last call that failed on this thread, or "". Valid until this
 * thread's next gyre call. */
GYRE_API const char *gyre_last_error(void);

/* ---- threads ---------------------------------------------------------------------------- *
 *
 * One thread may serve all ranks of a process, or each rank may have a thread. Any thread may use a
 * communicator.
 *
 * One handle. At most one thread at a time may make these calls on a rank's handle: collectives,
 * gyre_send, gyre_recv, gyre_op_*, gyre_comm_exchange, gyre_comm_split, gyre_comm_finalize,
 * gyre_comm_grow, gyre_comm_observe, gyre_window_*, gyre_put, gyre_signal, gyre_wait_signal, and
 * gyre_group_end() of a group that has calls on the handle. Threads may take turns if the order of
 * the calls is the same on all ranks. A second thread's call at the same time fails with
 * INVALID_USAGE and ends the communicator on all ranks, because ranks could not agree on an order.
 * Any thread may at any time call gyre_comm_abort, _async_error, _last_error, _count, _rank,
 * _device, _properties, _dump, _register, _deregister and _shrink.
 *
 * Destroying. One thread succeeds; others, and every later use of the handle, get INVALID_USAGE.
 * gyre_comm_destroy() waits for a call that another thread is in, and aborts the communicator after
 * a second.
 *
 * Several handles. Threads may make calls on different handles, also of one communicator, at the
 * same time.
 *
 * Streams. A stream carries out one call after the other. So if communicators share a stream, all
 * ranks must enqueue their calls in the same order, as gyre_group_end() does for a group's. On the
 * host every rank of a communicator needs its own stream: a call behind another rank's unfinished
 * call of the communicator fails with INVALID_USAGE, and the communicator ends. A thread that
 * serves several ranks needs gyre_stream_create() there, because NULL is one stream for each
 * thread.
 *
 * Groups. A group has only calls of the thread that starts it.
 *
 * GPUs. A collective can wait on the GPU for another rank of the process, whose call must then be
 * made. cudaMalloc, cudaFree, cudaDeviceSynchronize and the first launch of a kernel, which loads
 * its module, can wait until running kernels end. A thread that does one of these between two
 * ranks' calls, or before its own rank's, can block for ever. So allocate before the calls, use a
 * thread for each GPU or a group, and set CUDA_MODULE_LOADING=EAGER. gyre_group_end() loads and
 * allocates what its calls need before it launches the first. */

/* ---- communicators ---------------------------------------------------------------------- */

/* Communicators that do not block (config.blocking = 0). Init, split, shrink, grow and finalize,
 * and the gyre_group_end() of a group with such calls, return GYRE_IN_PROGRESS at once and go on in
 * the background. The call sets the new handle and reports wrong arguments. Poll
 * gyre_comm_async_error() until it is no longer GYRE_IN_PROGRESS, on the new communicator and, for
 * split, shrink and grow, on the parent. Until then other calls on them are refused, except abort
 * and destroy. A failure in the background becomes the communicator's error; its handle must still
 * be destroyed. Collectives return as on any communicator.
 *
 * The child of a fork() has none of its parent's communicators and streams: calls with their
 * handles, and waiting for a default stream with the parent's work, fail with INVALID_USAGE. It can
 * make its own; on GPUs only if the parent had not used CUDA before that. */

/** gyre_get_unique_id - start a rendezvous on a thread of this process. It ends with the
 * communicator, or when GYRE_BOOTSTRAP_TIMEOUT passes and nobody used the id. The process need not
 * be a rank, but when it ends the communicator fails.
 * @id_out: for every rank of one communicator; an id makes only one.
 * Errors: SYSTEM (no usable interface, no socket), INVALID_ARGUMENT. */
GYRE_API gyre_status gyre_get_unique_id(gyre_unique_id *id_out);

/** What the launcher of this process (torchrun, mpirun, srun, ...) says in the environment. */
typedef struct gyre_launch {
    uint32_t struct_bytes; /* sizeof(gyre_launch) of the caller */
    uint32_t version;      /* GYRE_VERSION of the caller */
    int rank;
    int n_ranks;
    int local_rank;    /* among the ranks of its host; -1 = the launcher does not say */
    int n_local_ranks; /* on its host; -1 = the launcher does not say */
    int port;          /* where rank 0 listens, with address */
    char name[32];     /* of the launcher, such as "torchrun"; "" = the process was started alone */
    char address[256]; /* a host, or "@" and a name that only this host knows; "" = not said */
    char job[256];     /* the job's and the step's identity: "SLURM_JOB_ID=7 SLURM_STEP_ID=0" */
    char choice[512];  /* why this launcher, if several say different things; else "" */
} gyre_launch;

#define GYRE_LAUNCH_INIT                                                   \
    {                                                                      \
        sizeof(gyre_launch), GYRE_VERSION, 0, 1, -1, -1, 0, "", "", "", "" \
    }

/** gyre_get_launch - find out which launcher started this process; the innermost one counts.
 * @launch_out: initialised with GYRE_LAUNCH_INIT.
 * Errors: INVALID_ARGUMENT, INVALID_USAGE (launchers disagree, or one is unknown, naming the
 * variables, their values and the remedy). */
GYRE_API gyre_status gyre_get_launch(gyre_launch *launch_out);

/** gyre_get_launch_id - one unique id for all processes of the launch, each of which calls this.
 * Rank 0 listens at the launch's port on all addresses (GYRE_SOCKET_IFNAME: on those of its
 * interfaces, loopback and the address's own). Another job's processes are told why.
 * @launch: from gyre_get_launch(); local_rank and n_local_ranks are filled in where they were -1.
 * @number: 0, 1, 2, ..., of the id, the same on all ranks.
 * @timeout_ms: 0 = GYRE_BOOTSTRAP_TIMEOUT.
 * Errors: INVALID_ARGUMENT, INVALID_USAGE (another job listens there, the ranks' numbers of ranks
 * differ, or two ranks have one number), TIMEOUT (names the ranks that never came), SYSTEM. */
GYRE_API gyre_status gyre_get_launch_id(gyre_launch *launch, unsigned number, int timeout_ms,
                                        gyre_unique_id *id_out);

/** gyre_comm_init_rank - join a communicator. Every rank calls this once.
 * @comm_out: set on success only.
 * @n_ranks: size of the communicator, >= 1, the same on all ranks.
 * @id: from gyre_get_unique_id() of one process.
 * @rank: 0 <= rank < n_ranks; each rank number is used once.
 * @config: copied; NULL = all defaults.
 * Blocks until all ranks have come or GYRE_BOOTSTRAP_TIMEOUT has passed. Inside a group,
 * gyre_group_end() waits and sets comm_out; the same holds for split and shrink.
 * Errors: INVALID_ARGUMENT, INVALID_USAGE (one rank number twice, or n_ranks or settings differ
 * between ranks), TIMEOUT (names the ranks that never came), REMOTE, SYSTEM, DEVICE. */
GYRE_API gyre_status gyre_comm_init_rank(gyre_comm **comm_out, int n_ranks,
                                         const gyre_unique_id *id, int rank,
                                         const gyre_config *config);

/** gyre_comm_init_all - make a communicator whose ranks all live in this process. Always blocks,
 * also with config.blocking = 0, because it waits for no other process.
 * @comms_out: receives n_ranks handles, by rank.
 * @device_ordinals: n_ranks CUDA ordinals, or NULL for 0..n_ranks-1. Ignored on the host. */
GYRE_API gyre_status gyre_comm_init_all(gyre_comm **comms_out, int n_ranks,
                                        const int *device_ordinals, const gyre_config *config);

#define GYRE_SPLIT_NOCOLOR (-1)

/** gyre_comm_split - divide a communicator's ranks into new communicators. Every rank of `comm`
 * calls this. In a group, other calls on `comm` must stand before split, shrink and grow, which
 * begin at once.
 * @color: ranks with the same color form one new communicator. GYRE_SPLIT_NOCOLOR joins none and
 * gets NULL.
 * @key: orders the new ranks; the parent's rank does where keys are equal.
 * @config: NULL = the parent's.
 * Errors: INVALID_ARGUMENT (a bad argument of any rank of the same color, reported on every rank of
 * that color), and those of gyre_comm_init_rank(). */
GYRE_API gyre_status gyre_comm_split(gyre_comm *comm, int color, int key, gyre_comm **comm_out,
                                     const gyre_config *config);

#define GYRE_SHRINK_DEFAULT 0 /* the communicator is healthy and stays as it is */
#define GYRE_SHRINK_ABORT   1 /* it has failed, or the excluded ranks are dead: abort it first */

/** gyre_comm_shrink - make a communicator without some of the ranks. Every rank that stays calls
 * this with the same list; the excluded ranks need not do anything.
 * @excluded_ranks: of `comm`, in any order. May be NULL if n_excluded is 0, which keeps all ranks.
 * @flags: GYRE_SHRINK_DEFAULT or GYRE_SHRINK_ABORT. Destroy the parent in either case.
 * @config: NULL = the parent's. The new ranks keep the parent's order.
 * Blocks until all remaining ranks have come or GYRE_BOOTSTRAP_TIMEOUT has passed.
 * Errors: INVALID_ARGUMENT (a wrong config of one rank is reported on every remaining rank; a wrong
 * list on its rank alone), INVALID_USAGE (GYRE_SHRINK_DEFAULT on a failed communicator; or the
 * lists differ, reported on every rank that calls within a second and names the same lowest
 * remaining rank), REMOTE (another rank died, or with GYRE_SHRINK_ABORT the lowest remaining rank
 * excludes another rank: exclude that rank too and call again), TIMEOUT (names the ranks that did
 * not come), SYSTEM (no network interface). */
GYRE_API gyre_status gyre_comm_shrink(gyre_comm *comm, const int *excluded_ranks, int n_excluded,
                                      int flags, gyre_comm **comm_out, const gyre_config *config);

/** gyre_comm_grow - make a larger communicator. Every rank of `comm` calls this and keeps its
 * number. The new ranks, numbered from the size of `comm` on, call gyre_comm_init_rank() with the
 * same n_ranks and id. `comm` stays as it is.
 * @n_ranks: size of the new communicator, more than `comm` has; the same on all ranks.
 * @id: on one rank of `comm` a new one from gyre_get_unique_id(); NULL on its other ranks.
 * @config: NULL = the parent's. The new ranks must give the same settings, as in every init.
 * Blocks until all ranks have come or GYRE_BOOTSTRAP_TIMEOUT has passed.
 * Errors: INVALID_ARGUMENT (a bad argument of any rank of `comm`), INVALID_USAGE (n_ranks differs,
 * or not exactly one rank of `comm` gives an id), both reported on every rank of `comm`, while the
 * new ranks get REMOTE; and those of gyre_comm_init_rank(). */
GYRE_API gyre_status gyre_comm_grow(gyre_comm *comm, int n_ranks, const gyre_unique_id *id,
                                    gyre_comm **comm_out, const gyre_config *config);

/** gyre_comm_finalize - wait until all enqueued work is done, then leave. Afterwards the handle can
 * only be queried and destroyed. It is no error if another rank ended the communicator after all
 * work of this rank had ended. */
GYRE_API gyre_status gyre_comm_finalize(gyre_comm *comm);

/** gyre_comm_destroy - finalize, unless done, and free the communicator. The handle is invalid
 * afterwards. Of several threads one succeeds, and the others get INVALID_USAGE. A process that
 * destroys its last handle of a communicator waits until the other ranks have left too: at most 1 s
 * while it has other communicators, at most 10 s for all when it has none. So the process may exit
 * when its last communicator is destroyed. Freeing memory of GPUs waits for kernels that run, also
 * those of other communicators, so it may go on in the background. */
GYRE_API gyre_status gyre_comm_destroy(gyre_comm *comm);

/** gyre_comm_abort - end all operations at once, without waiting for other ranks: with ABORTED on
 * this rank and with REMOTE on the others. Any thread. The handle stays valid for queries until
 * gyre_comm_destroy(). */
GYRE_API gyre_status gyre_comm_abort(gyre_comm *comm);

/** gyre_comm_count - the number of ranks, >= 1. Also of a communicator that failed or was
 * finalized. Errors: INVALID_ARGUMENT (NULL), INVALID_USAGE (destroyed, or still being made). */
GYRE_API gyre_status gyre_comm_count(const gyre_comm *comm, int *n_ranks_out);

/** gyre_comm_rank - the rank of this handle, 0 <= rank < n_ranks, as gyre_comm_count(). */
GYRE_API gyre_status gyre_comm_rank(const gyre_comm *comm, int *rank_out);

/** gyre_comm_device - the device that this rank's buffers and streams belong to.
 * @kind_out: GYRE_DEVICE_HOST or GYRE_DEVICE_CUDA. May be NULL.
 * @ordinal_out: the CUDA ordinal, or -1 on the host. May be NULL. */
GYRE_API gyre_status gyre_comm_device(const gyre_comm *comm, gyre_device_kind *kind_out,
                                      int *ordinal_out);

/** The facts about a communicator. Always start from GYRE_PROPERTIES_INIT. */
typedef struct gyre_properties {
    uint32_t struct_bytes; /* sizeof(gyre_properties) of the caller */
    uint32_t version;      /* GYRE_VERSION of the caller */
    int rank;
    int n_ranks;
    int n_hosts;
    int device_kind;       /* GYRE_DEVICE_HOST or GYRE_DEVICE_CUDA */
    int device_ordinal;    /* CUDA; -1 on the host */
    int can_window;        /* 1: all ranks address each other, so collectives may use windows */
    int max_channels;      /* the most channels that one call may use */
    uint64_t id;           /* equal on all ranks; other communicators have another */
    uint64_t device_bytes; /* memory of this rank on its GPU for connections; 0 on the host */
    uint64_t host_bytes;   /* memory of this rank on the host for connections */
    char transports[64];   /* "SHM", "P2P/IPC+NET/IB/0"; "" if there is no other rank */
    char name[64];         /* config.name, or the name that gyre derived from the unique id */
} gyre_properties;

#define GYRE_PROPERTIES_INIT                                                                      \
    {                                                                                             \
        sizeof(gyre_properties), GYRE_VERSION, -1, 0, 0, GYRE_DEVICE_AUTO, -1, 0, 0, 0, 0, 0, "", \
            ""                                                                                    \
    }

/** gyre_comm_properties - Local. Any thread, also if the communicator failed or was finalized.
 * @properties_out: only fields of the caller's version are set.
 * Errors: INVALID_ARGUMENT (NULL, or not initialised with GYRE_PROPERTIES_INIT), INVALID_USAGE
 * (destroyed, or still being made). */
GYRE_API gyre_status gyre_comm_properties(gyre_comm *comm, gyre_properties *properties_out);

/** gyre_comm_exchange - all-gather a few bytes of host memory over TCP, for set-up data such as
 * another library's id. Every rank calls this, outside groups. Always blocks.
 * @mine: n_bytes of this rank; at most 1 MiB / n_ranks, the same size on all ranks.
 * @all_out: n_ranks * n_bytes; rank r's bytes start at r * n_bytes. */
GYRE_API gyre_status gyre_comm_exchange(gyre_comm *comm, const void *mine, size_t n_bytes,
                                        void *all_out);

/** gyre_comm_last_error - the cause of the communicator's first failure, or "". */
GYRE_API const char *gyre_comm_last_error(gyre_comm *comm);

/** gyre_comm_async_error - the state of the communicator. Never blocks.
 * @status_out: SUCCESS while it is healthy, IN_PROGRESS while it is being made or finalized in the
 * background, else the error that ended it; SUCCESS again after a gyre_comm_finalize() that
 * succeeded. The call's own result is about its arguments. */
GYRE_API gyre_status gyre_comm_async_error(gyre_comm *comm, gyre_status *status_out);

/** gyre_comm_dump - write, for a person, the call that each rank waits in, the channel, step and
 * awaited slot of each of its workers, and the chain of waits from this rank on. Asks the other
 * ranks over TCP, for at most 3 s, without disturbing calls. On GPUs the steps are not known.
 * @fd: an open file descriptor. The format of the text may change.
 * Errors: INVALID_ARGUMENT (NULL), INVALID_USAGE (destroyed, or still being made), TIMEOUT (nothing
 * could be printed), SYSTEM (the write failed). */
GYRE_API gyre_status gyre_comm_dump(gyre_comm *comm, int fd);

/* ---- groups ----------------------------------------------------------------------------- */

/** gyre_group_start / gyre_group_end - the outermost gyre_group_end() launches all calls of the
 * group together: needed when one thread serves several ranks, and for sends and receives that must
 * not wait for each other. Groups nest. A call with a wrong argument reports it and leaves the
 * group usable. If a communicator's calls name several streams, they begin after all earlier work
 * on them, and later work on any of them waits.
 *
 * Sends and receives. The collectives of one communicator are carried out in order, then its sends
 * and receives, wherever they stand in the group. A send or receive waits only for earlier ones of
 * the group with the same peer in the same direction, so other ranks may make the matching calls in
 * other groups, or in none. There are two exceptions. If a group has both collectives and messages
 * of a communicator, both ends of each message must be in the group of the same collectives. And on
 * GPUs the second send to one rank, or receive from it, begins when the group's first sends and
 * receives, with all ranks, have ended, and so on; so both ends of a second message should be in
 * one group.
 *
 * Order. The collectives of one communicator keep their order, and so do the messages of a pair of
 * ranks in one direction. The communicators of a group are launched one after the other, in the
 * order in which they were made, or, if made at the same time, in one that is the same on all their
 * ranks. So each rank may name communicators in its own order, also if they share a stream.
 *
 * With GYRE_CHECK=calls, gyre_group_end() waits until all ranks have made the group's collectives,
 * and launches each after all ranks' calls were compared. */
GYRE_API gyre_status gyre_group_start(void);
GYRE_API gyre_status gyre_group_end(void);

/** gyre_group_simulate_end - end the group without launching its calls, and predict how long they
 * would take. Calls of one communicator count one after the other, different communicators side by
 * side. Communicators that the group makes are made nevertheless.
 * @time_us_out: microseconds, by the cost model. Its constants come from GYRE_TUNING_FILE, else
 * they are built in; docs/tuning.md says how accurate they are.
 * Errors: INVALID_USAGE (no group is open, or it is inside another group, which stays open),
 * INVALID_ARGUMENT, UNSUPPORTED (the group has a send or a receive, or too many ranks to
 * simulate). */
GYRE_API gyre_status gyre_group_simulate_end(double *time_us_out);

/** gyre_group_cancel - end the group without launching its calls, for instance because one failed.
 * Communicators that the group makes are made nevertheless, and waited for as by gyre_group_end().
 * Errors: INVALID_USAGE (no group is open, or it is inside another group, which stays open). */
GYRE_API gyre_status gyre_group_cancel(void);

/* ---- collectives ------------------------------------------------------------------------ *
 *
 * Rules for all of them:
 * - Buffers are on the communicator's device. They need no more than their element's alignment.
 * - `count` is in elements. A count of 0 is legal and moves nothing.
 * - `send` and `recv` may not overlap, except in the in-place form that each call names.
 * - All ranks make the calls of a communicator in the same order, with the same count, type,
 *   operation and root.
 * - Ranks that receive the same value receive the same bits, and every run gives the same bits.
 * Errors of the call: INVALID_ARGUMENT (nothing was enqueued), INVALID_USAGE (the communicator has
 * failed or was destroyed, or the ranks' calls differ). Later errors come through the stream and
 * gyre_comm_async_error(): REMOTE, TIMEOUT, SYSTEM, DEVICE, INVALID_USAGE. */

/** gyre_all_reduce - on every rank, recv[i] = the reduction of all ranks' send[i], for i < count.
 * In place: send == recv. */
GYRE_API gyre_status gyre_all_reduce(const void *send, void *recv, size_t count, gyre_dtype dtype,
                                     gyre_op op, gyre_comm *comm, gyre_stream stream);

/** gyre_broadcast - on every rank, recv[i] = the root's send[i]. Only the root's `send` is read.
 * In place: send == recv. */
GYRE_API gyre_status gyre_broadcast(const void *send, void *recv, size_t count, gyre_dtype dtype,
                                    int root, gyre_comm *comm, gyre_stream stream);

/** gyre_reduce - on the root, recv[i] = the reduction of all ranks' send[i]. Only the root's `recv`
 * is written; it may be NULL on other ranks. In place: send == recv. */
GYRE_API gyre_status gyre_reduce(const void *send, void *recv, size_t count, gyre_dtype dtype,
                                 gyre_op op, int root, gyre_comm *comm, gyre_stream stream);

/** gyre_all_gather - on every rank, recv[r*count + i] = rank r's send[i]. `recv` holds
 * n_ranks*count elements. In place: send == recv + rank*count. */
GYRE_API gyre_status gyre_all_gather(const void *send, void *recv, size_t count, gyre_dtype dtype,
                                     gyre_comm *comm, gyre_stream stream);

/** gyre_reduce_scatter - on rank r, recv[i] = the reduction of all ranks' send[r*count + i]. `send`
 * holds n_ranks*count elements. In place: recv == send + rank*count. */
GYRE_API gyre_status gyre_reduce_scatter(const void *send, void *recv, size_t count,
                                         gyre_dtype dtype, gyre_op op, gyre_comm *comm,
                                         gyre_stream stream);

/** gyre_all_to_all - on rank k, recv[r*count + i] = rank r's send[k*count + i]. Both buffers hold
 * n_ranks*count elements. In place (send == recv) the call is carried out, but its result is
 * undefined, because a block may be overwritten before it is sent. */
GYRE_API gyre_status gyre_all_to_all(const void *send, void *recv, size_t count, gyre_dtype dtype,
                                     gyre_comm *comm, gyre_stream stream);

/** gyre_gather - on the root, recv[r*count + i] = rank r's send[i]. The root's `recv` holds
 * n_ranks*count elements; it may be NULL on other ranks. In place, on the root: send == recv +
 * root*count. */
GYRE_API gyre_status gyre_gather(const void *send, void *recv, size_t count, gyre_dtype dtype,
                                 int root, gyre_comm *comm, gyre_stream stream);

/** gyre_scatter - on rank r, recv[i] = the root's send[r*count + i]. The root's `send` holds
 * n_ranks*count elements; it may be NULL on other ranks. In place, on the root: recv == send +
 * root*count. */
GYRE_API gyre_status gyre_scatter(const void *send, void *recv, size_t count, gyre_dtype dtype,
                                  int root, gyre_comm *comm, gyre_stream stream);

/** gyre_send / gyre_recv - one rank to another. The receiver's count and type must equal the
 * sender's. The n-th send from rank a to rank b matches the n-th receive of rank b from rank a. A
 * rank that sends to itself must make the receive in the same group. */
GYRE_API gyre_status gyre_send(const void *send, size_t count, gyre_dtype dtype, int peer,
                               gyre_comm *comm, gyre_stream stream);
GYRE_API gyre_status gyre_recv(void *recv, size_t count, gyre_dtype dtype, int peer,
                               gyre_comm *comm, gyre_stream stream);

/** The collectives of gyre_collective(). */
typedef enum gyre_call_kind {
    GYRE_CALL_ALL_REDUCE = 0,
    GYRE_CALL_BROADCAST = 1,
    GYRE_CALL_REDUCE = 2,
    GYRE_CALL_ALL_GATHER = 3,
    GYRE_CALL_REDUCE_SCATTER = 4,
    GYRE_CALL_ALL_TO_ALL = 5,
    GYRE_CALL_GATHER = 6,
    GYRE_CALL_SCATTER = 7
} gyre_call_kind;

/** A collective with options of its own. Always start from GYRE_CALL_ARGS_INIT. */
typedef struct gyre_call_args {
    uint32_t struct_bytes; /* sizeof(gyre_call_args) of the caller */
    uint32_t version;      /* GYRE_VERSION of the caller */
    int kind;              /* enum gyre_call_kind */
    int root;              /* where the collective has one */
    const void *send;      /* as in the collective's own function */
    void *recv;
    size_t count;
    gyre_dtype dtype;
    gyre_op op;            /* where the collective reduces */
    const char *algorithm; /* allowed algorithms, as in GYRE_ALGO: "ring" or "^tree,direct"; NULL =
                            * all that it allows */
    const char
        *protocol;    /* allowed protocols inside hosts, as in GYRE_PROTO, no slash; NULL = all */
    int min_channels; /* 1..64, within those of the communicator; 0 = the communicator's */
    int max_channels;
    int prefers; /* 1: `algorithm` does not count if gyre does not know it or it cannot carry out
                  * the call; 0: the call then fails */
} gyre_call_args;

#define GYRE_CALL_ARGS_INIT                                                                      \
    {                                                                                            \
        sizeof(gyre_call_args), GYRE_VERSION, GYRE_CALL_ALL_REDUCE, 0, NULL, NULL, 0, GYRE_INT8, \
            GYRE_SUM, NULL, NULL, 0, 0, 0                                                        \
    }

/** gyre_collective - a collective with limits to its algorithm, protocol and channels. All else is
 * as in the collective's own function. All ranks must give the same limits; others are found as
 * calls that differ. GYRE_ALGO_FILE does not count for calls with limits.
 * @args: copied, with the texts.
 * Errors: those of the collective's own function, INVALID_ARGUMENT (an unknown word, or channels
 * out of range), INVALID_USAGE (no algorithm or protocol that GYRE_ALGO, GYRE_PROTO and the limits
 * allow can carry out the call; nothing was enqueued). */
GYRE_API gyre_status gyre_collective(const gyre_call_args *args, gyre_comm *comm,
                                     gyre_stream stream);

/** gyre_op_create_premul_sum - make the operation sum over ranks of (scalar * x). Each product is
 * rounded to dtype before it is added.
 * @scalar: one element of dtype, in host or device memory; copied before the call returns.
 * @op_out: valid with this communicator and dtype until gyre_op_destroy(). */
GYRE_API gyre_status gyre_op_create_premul_sum(gyre_op *op_out, const void *scalar,
                                               gyre_dtype dtype, gyre_comm *comm);
GYRE_API gyre_status gyre_op_destroy(gyre_op op, gyre_comm *comm);

/* ---- observers -------------------------------------------------------------------------- *
 *
 * A profiler can be told of every collective, send and receive of a communicator, in these stages
 * and this order:
 *
 *     submitted   the call was accepted; in a group it waits for the group's end
 *     launching   the group's end, or a call outside groups, launches it now, perhaps with others
 *     launched    the launch is made, or has failed
 *     begun       its stream has come to it; on the host this may come before `launched`
 *     ended       it is complete, or, on the host, was ended by a failure
 *     finished    the last that is heard of the call
 *
 * On GPUs `begun` and `ended` are told after the end, by a later call or when the communicator is
 * destroyed, with the times of the launch's first and last block. They are left out, and `is_timed`
 * is 0, for a captured call, every call after a capture, and a call 256 or more works after the
 * oldest one whose times are not known yet.
 *
 * A call that is never launched, because its group failed or was cancelled, has submitted and
 * finished only. A rank's receive from itself has no launch, because the send carries it out.
 * Replays of a CUDA graph are not observed, its capture is. */

#define GYRE_OBSERVED_SEND 100
#define GYRE_OBSERVED_RECV 101

/** What an observer is told of a call. Texts and the struct are valid during the callback. */
typedef struct gyre_observed_call {
    int kind; /* enum gyre_call_kind, GYRE_OBSERVED_SEND or GYRE_OBSERVED_RECV */
    int root; /* of a send or receive the peer; -1 where there is none */
    const void *send;
    void *recv;
    size_t count; /* as the caller gave it */
    gyre_dtype dtype;
    gyre_stream stream;
    void *tag;             /* from `submitted`; NULL there */
    const char *algorithm; /* from `launching` on, else "" */
    const char *protocol;
    int n_channels;
    int is_timed; /* 1: `begun` and `ended` follow, unless the call fails */
} gyre_observed_call;

/** With GYRE_FAILOVER=1, a connection of data to another host broke, or runs: again, or over a rail
 * that is back. */
enum { GYRE_CONNECTION_BROKE = 1, GYRE_CONNECTION_RUNS = 2 };

typedef struct gyre_connection_event {
    int kind;
    int peer;         /* rank */
    const char *text; /* why it broke; the ports or the interface over which it runs again */
} gyre_connection_event;

/** Functions of an observer; only `connection` may be NULL, or lie behind struct_bytes. They may
 * not call gyre, except gyre_log_text(). */
typedef struct gyre_observer {
    uint32_t struct_bytes; /* sizeof(gyre_observer) of the caller */
    uint32_t version;      /* GYRE_VERSION of the caller */
    void *context;
    /* On the thread that makes the call. Returns the call's tag, which may be NULL. */
    void *(*submitted)(void *context, const gyre_observed_call *call);
    /* On the thread that launches. All calls begin together. */
    void (*launching)(void *context, const gyre_observed_call *calls, int n_calls);
    void (*launched)(void *context, const gyre_observed_call *calls, int n_calls);
    /* On the thread that runs the stream; on GPUs on one that makes a later call or destroys the
     * handle. now_ns: of CLOCK_MONOTONIC, on GPUs converted from the GPU's clock. */
    void (*begun)(void *context, void *tag, uint64_t now_ns);
    void (*ended)(void *context, void *tag, uint64_t now_ns);
    /* On any thread. */
    void (*finished)(void *context, void *tag);
    /* All calls of an ended communicator are finished. On any thread, once. */
    void (*closed)(void *context);
    /* On a thread of the library, which carries no data meanwhile. */
    void (*connection)(void *context, const gyre_connection_event *event);
} gyre_observer;

/** gyre_comm_observe - observe the calls of this rank from now on, until the communicator ends.
 * @observer: copied.
 * Errors: INVALID_ARGUMENT (NULL, a missing function), INVALID_USAGE (the communicator has an
 * observer, or may not take calls), OUT_OF_MEMORY. Then `closed` is not called. */
GYRE_API gyre_status gyre_comm_observe(gyre_comm *comm, const gyre_observer *observer);

/* ---- registered buffers ------------------------------------------------------------------ */

/** Names a registered buffer; no address. NULL names none.
 */
typedef struct gyre_registration_opaque *gyre_registration;

/** gyre_comm_register - a hint of NCCL's ABI that calls will use this buffer repeatedly; changes
 * neither speed nor results. Local, any thread. Ranges may overlap. The same range again gives the
 * same handle, which must be given back as often. Deregister a buffer before you free its memory,
 * or destroy the communicator first.
 * @buffer: start of n_bytes (> 0) on the communicator's device.
 * Errors: INVALID_ARGUMENT (not memory of that device), INVALID_USAGE, OUT_OF_MEMORY. */
GYRE_API gyre_status gyre_comm_register(gyre_comm *comm, const void *buffer, size_t n_bytes,
                                        gyre_registration *handle_out);

/** gyre_comm_deregister - give a registration back, also if the communicator failed or was
 * finalized. gyre_comm_destroy() gives back the rest.
 * Errors: INVALID_ARGUMENT (not a handle of this communicator, or already given back). */
GYRE_API gyre_status gyre_comm_deregister(gyre_comm *comm, gyre_registration handle);

/** A buffer on each rank that all ranks can write to. The same number on all ranks. 0 is no
 * window. */
typedef unsigned gyre_window;

/** gyre_window_register - let all ranks reach each other's buffers, for one-sided calls. If all
 * ranks address each other's memory, large calls of all_reduce, all_gather, all_to_all and
 * broadcast may write results there too. If the `recv` of such a call lies in a window on one rank,
 * it must lie at the same offset of it on every rank; else the ranks' calls differ. Windows do not
 * change the bits of a result. Every rank calls this, outside groups; it waits for the other ranks.
 * @buffer: start of n_bytes on the communicator's device. If the sizes differ between ranks, the
 * smallest one counts. If ranks of one host are processes, the memory must come from
 * gyre_mem_alloc; on GPUs cudaMalloc will do, too. Between hosts, or where processes share no
 * memory, the first window opens further connections; if that fails, the communicator ends. Errors,
 * the same on every rank: UNSUPPORTED (GPUs that cannot address each other, because they are on
 * different hosts or shared memory is off; or not this kind of memory), INVALID_ARGUMENT, DEVICE,
 * SYSTEM, OUT_OF_MEMORY. */
GYRE_API gyre_status gyre_window_register(gyre_comm *comm, void *buffer, size_t n_bytes,
                                          gyre_window *window_out);

/** gyre_window_deregister - give a window back. Every rank calls this, after all calls that use the
 * window are complete: a put is complete when the stream has carried it out on the rank that made
 * it. The buffer may be freed when this returns, and has the data of all puts. Remaining windows
 * end with their communicator; their buffers must live until all ranks have destroyed it. Errors:
 * INVALID_ARGUMENT. */
GYRE_API gyre_status gyre_window_deregister(gyre_comm *comm, gyre_window window);

/** gyre_window_address - where this rank reaches a rank's buffer of a window. Local.
 * @rank: 0 <= rank < n_ranks; this rank's own gives the registered buffer.
 * @address_out: receives the address of the buffer's first byte in this process, on the
 * communicator's device. It is valid until the window is given back. Who reads and writes there
 * when is the caller's concern.
 * @n_bytes_out: receives the size of the smallest buffer of any rank. May be NULL.
 * Errors: INVALID_ARGUMENT (no such window or rank, NULL), INVALID_USAGE, UNSUPPORTED (this rank
 * does not address the memory of that one, which is on another host or shares no memory). */
GYRE_API gyre_status gyre_window_address(gyre_comm *comm, gyre_window window, int rank,
                                         void **address_out, size_t *n_bytes_out);

/* ---- one-sided calls -------------------------------------------------------------------- *
 *
 * A rank writes into another rank's window, without a call of that rank, which learns of the data
 * by a signal: a counter for each pair of ranks and each of GYRE_N_SIGNALS numbers. The calls are
 * enqueued in order with everything else on their streams, and at once also inside a group.
 *
 * They need the communicator's first gyre_window_register(). On host memory ranks may be on
 * different hosts: a put there is a message, which the other rank's process writes into its window.
 * GPUs must be of one host; a put is a copy by a copy engine and a small kernel, a wait a kernel of
 * one block. In a captured graph every replay sends, and takes, as many signals as the captured
 * calls.
 *
 * A put is complete on the other rank when a wait there has seen its signal: then its data and the
 * data of all earlier puts of that rank on the same stream can be read. Two puts to the same bytes
 * without a signal between them leave either. A rank that waits needs a stream on which no other
 * rank's put is queued behind the wait. */

#define GYRE_N_SIGNALS 32
#define GYRE_NO_SIGNAL (-1)

/** The target of a put. */
typedef struct gyre_put_target {
    int peer; /* the rank that is written to; may be this rank */
    gyre_window window;
    size_t offset_bytes; /* in the peer's buffer of the window */
    int signal;          /* 0..GYRE_N_SIGNALS-1, or GYRE_NO_SIGNAL */
} gyre_put_target;

/** Signals that a wait takes. */
typedef struct gyre_signal_wait {
    int peer;   /* the rank that sends them; may be this rank */
    int signal; /* 0..GYRE_N_SIGNALS-1 */
    int count;  /* how many, >= 0 */
} gyre_signal_wait;

/** gyre_put - write `count` elements of `local` into the target, then send the target's signal.
 * @local: on the communicator's device; read until the stream has carried out the call. It may not
 * overlap the bytes that are written, unless it is those bytes.
 * Errors: INVALID_ARGUMENT (no such window, rank or signal; the bytes do not fit into the smallest
 * buffer of the window), INVALID_USAGE (no window was ever registered, or the communicator failed),
 * DEVICE, OUT_OF_MEMORY. Later errors come through the stream: that which ended the communicator;
 * REMOTE (the peer destroyed or finalized its communicator); between hosts also TIMEOUT (the peer
 * takes no data for config.timeout_ms). A stream of a GPU has no errors of gyre's. There
 * gyre_comm_async_error() has the communicator's, and the call itself returns REMOTE, if the peer
 * left before the call. */
GYRE_API gyre_status gyre_put(const void *local, size_t count, gyre_dtype dtype,
                              const gyre_put_target *target, gyre_comm *comm, gyre_stream stream);

/** gyre_signal - send a signal without data. It comes after the data of earlier puts on the stream.
 * Errors: as gyre_put(). */
GYRE_API gyre_status gyre_signal(int peer, int signal, gyre_comm *comm, gyre_stream stream);

/** gyre_wait_signal - the stream waits until all these signals have come. Each signal is taken
 * once. If a peer never sends it and neither fails nor leaves, only config.timeout_ms ends the
 * wait. Signals sent before a peer destroyed or finalized its communicator still count. On host
 * memory, ranks that destroy or finalize theirs while they wait for each other's signals have left,
 * too.
 * @waits: n_waits of them; copied. 0 waits for nothing.
 * Errors: as gyre_put(). Later errors come likewise: TIMEOUT (config.timeout_ms passed), REMOTE
 * (the peer destroyed or finalized its communicator without the signal), both of which on GPUs end
 * the communicator; or that which ended the communicator, such as the death of a rank. */
GYRE_API gyre_status gyre_wait_signal(const gyre_signal_wait *waits, int n_waits, gyre_comm *comm,
                                      gyre_stream stream);

/* ---- memory and streams ----------------------------------------------------------------- */

/** gyre_mem_alloc / gyre_mem_free - memory on a device. Host memory is aligned to 4096 bytes, GPU
 * memory as by cudaMalloc. Freeing NULL does nothing. Host memory can be a window of processes:
 * each allocation is an anonymous file with a descriptor. With half of the process's descriptors in
 * use (ulimit -n), or if files may not be so large (ulimit -f), it is ordinary memory, which
 * cannot. A child of fork() shares it with its parent. Memory not allocated here, or freed, is
 * refused.
 * @ordinal: the CUDA device, or -1 for the current one. Ignored on the host. */
GYRE_API gyre_status gyre_mem_alloc(void **ptr_out, size_t n_bytes, gyre_device_kind kind,
                                    int ordinal);
GYRE_API gyre_status gyre_mem_free(void *ptr, gyre_device_kind kind);

/** gyre_stream_create / gyre_stream_destroy - a queue of operations carried out in order.
 * gyre_stream_destroy() waits for all of them. @ordinal: as gyre_mem_alloc(). */
GYRE_API gyre_status gyre_stream_create(gyre_stream *stream_out, gyre_device_kind kind,
                                        int ordinal);
GYRE_API gyre_status gyre_stream_destroy(gyre_stream stream, gyre_device_kind kind);

/** gyre_stream_synchronize - wait until all operations enqueued so far are done. On the host it
 * returns the first failure of an operation on the stream since the last gyre_stream_synchronize().
 * On CUDA, NULL is the default stream of the thread's current device, while a collective with NULL
 * uses that of its communicator's device. */
GYRE_API gyre_status gyre_stream_synchronize(gyre_stream stream, gyre_device_kind kind);

/** gyre_stream_query - SUCCESS when all operations are done, else IN_PROGRESS. Never blocks. */
GYRE_API gyre_status gyre_stream_query(gyre_stream stream, gyre_device_kind kind);

#ifdef __cplusplus
}
#endif

#endif /* GYRE_H */
