/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank and the calls that it measures.
 */
#ifndef GYRE_BENCH_RANK_H
#define GYRE_BENCH_RANK_H

#include "bench/driver/options.h"
#include "bench/launch/launcher.h"
#include "core/foundation/base/status.h"
#include "core/foundation/device/device.h"

#include <limits.h>

/* A terminal on standard error shows the current size and phase once a size takes longer than a
 * second. */

struct bench_progress;

/** @progress_out: NULL unless standard error is a terminal; other functions accept NULL. */
gyre_status bench_progress_open(struct bench_progress **progress_out);
void bench_progress_close(struct bench_progress *progress);

/** @phase: static text. */
void bench_progress_begin(struct bench_progress *progress, size_t n_bytes, const char *phase);
void bench_progress_end(struct bench_progress *progress);

struct bench_buffers {
    void *send; /* n_bytes each */
    void *recv;
    size_t n_bytes;
};

struct bench_rank {
    struct bench_self self;
    const struct bench_options *options;
    const struct bench_kind *kind;
    struct gyre_filter_words allowed;
    struct bench_progress *progress; /* NULL but on local rank 0 of process 0 */
    gyre_comm *comm;
    gyre_op mulsum; /* of -o mulsum, for the measured type */
    gyre_stream stream;
    gyre_device_kind device_kind;
    int ordinal;
    struct gyre_device *device;
    struct bench_buffers buffers;       /* of gyre's calls, above max_bytes */
    gyre_window window;                 /* over buffers.recv; 0 = none */
    gyre_registration registrations[2]; /* of send and recv, NULL = none */
    uint32_t seed;                      /* the same on all ranks */
    bool has_failed;                    /* cause was printed */
};

/* The same on all ranks. */
struct bench_case {
    enum gyre_collective coll;
    size_t count;
    size_t n_bytes; /* sent or received, the larger */
    gyre_dtype dtype;
    gyre_op op;
    bool is_mulsum; /* GYRE_SUM by the rank's premultiplied sum */
    int root;
};

const char *bench_op_name(const struct bench_case *what);

struct bench_call {
    struct bench_case what;
    const struct bench_buffers *buffers; /* hold send and recv */
    const void *send;
    void *recv;
    bool is_in_place;
};

/** Pure. */
gyre_config bench_config_of(const struct bench_options *options);

/** The rank's index on the host, modulo the GPUs that this process sees. @local: its index in this
 * process. */
gyre_status bench_rank_ordinal(const struct bench_options *options, const struct bench_ranks *ranks,
                               int local, int *ordinal_out);

/** Collective. @id: may be NULL if ranks are threads of one process, whose communicators are in
 * @comms_of_process. */
gyre_status bench_rank_open(struct bench_rank *rank, const gyre_unique_id *id,
                            gyre_comm *const *comms_of_process);
void bench_rank_close(struct bench_rank *rank);

void bench_rank_print_error(const struct bench_rank *rank, gyre_status status);

/** As bench_ranks_agree_on(). The first failed rank prints the cause and aborts its communicator,
 * so that none waits for it. */
gyre_status bench_rank_agree(struct bench_rank *rank, gyre_status status);

/** About wanted->n_bytes. Blocks are multiples of 16 bytes, as in nccl-tests. Pure. */
struct bench_case bench_case_of(const struct bench_case *wanted, int n_ranks);

/** In place as gyre.h defines it. @buffers: outlive the call. */
struct bench_call bench_call_of(const struct bench_rank *rank, const struct bench_buffers *buffers,
                                const struct bench_case *what, bool is_in_place);

/** The peer of sends and receives. */
int bench_next_rank(const struct bench_rank *rank);

/** On the rank's stream. Wait's errors: the one that ended the communicator. */
gyre_status bench_enqueue(const struct bench_rank *rank, const struct bench_call *call);
gyre_status bench_wait(const struct bench_rank *rank);

gyre_status bench_fill(struct bench_rank *rank, const struct bench_call *call);

/** Counts this rank's wrong elements. */
gyre_status bench_check(const struct bench_rank *rank, const struct bench_call *call,
                        uint64_t *n_wrong_out);

/* The linked library, or another beside it (--compare old). X(name without "gyre_"). */
#define BENCH_LIBRARY_TABLE(X) \
    X(get_version)             \
    X(last_error)              \
    X(get_unique_id)           \
    X(comm_init_rank)          \
    X(comm_destroy)            \
    X(comm_abort)              \
    X(comm_async_error)        \
    X(comm_last_error)         \
    X(comm_register)           \
    X(comm_deregister)         \
    X(window_register)         \
    X(window_deregister)       \
    X(mem_alloc)               \
    X(mem_free)                \
    X(stream_create)           \
    X(stream_destroy)          \
    X(stream_synchronize)      \
    X(group_start)             \
    X(group_end)               \
    X(send)                    \
    X(recv)                    \
    X(all_reduce)              \
    X(broadcast)               \
    X(reduce)                  \
    X(all_gather)              \
    X(reduce_scatter)          \
    X(all_to_all)              \
    X(gather)                  \
    X(scatter)

struct bench_library {
#define BENCH_LIBRARY_MEMBER(name) __typeof__(&gyre_##name) name;
    BENCH_LIBRARY_TABLE(BENCH_LIBRARY_MEMBER)
#undef BENCH_LIBRARY_MEMBER
};

extern const struct bench_library bench_linked_library;

/** On the rank's communicator and stream, which are the library's. */
gyre_status bench_library_call(const struct bench_library *library, const struct bench_rank *rank,
                               const struct bench_call *call);

/** Errors: the one that ended the communicator. */
gyre_status bench_library_wait(const struct bench_library *library, const struct bench_rank *rank);

/** Registered or in a window, as the options say. */
gyre_status bench_library_open_buffers(const struct bench_library *library,
                                       struct bench_rank *rank);

/** Frees what was opened. @is_orderly: all ranks leave together. */
void bench_library_leave(const struct bench_library *library, struct bench_rank *rank,
                         bool is_orderly);

/* Shared by one process's rank threads. */
struct bench_run {
    struct bench_options options;
    const struct bench_kind *kind;
    int argc;
    char **argv;
    struct bench_launcher launcher;
    struct bench_ranks ranks;
    struct gyre_filter_words allowed;
    struct bench_progress *progress;

    gyre_unique_id id;
    gyre_comm **comms;   /* NULL = several processes */
    bool has_sweep_rows; /* written by local rank 0 */
    int exit_status;     /* written by local rank 0 */
    int interrupted_by;  /* written by local rank 0; 0 = none */
};

struct bench_thread {
    pthread_t id;
    struct bench_run *run;
    int local; /* in this process, 0 is the main thread */
};

/** Collective. Failures are printed and set run->exit_status. @thread: struct bench_thread. Returns
 * NULL. */
void *bench_rank_thread(void *thread);

/* "" = list not given, tuner's choice. */
struct bench_combination {
    char algo[32];
    char proto[32];
    char channels[32];
};

/** Channels change first, then protocols. False past the last combination. Pure. */
bool bench_combination_find(const struct bench_options *options, int i,
                            struct bench_combination *combination_out);

/** "dir/r.json" becomes "dir/r.ring-ll-4.json", or "dir/r.ll.json" with --proto alone. Pure.
 * Errors: INVALID_ARGUMENT (name too long). */
gyre_status bench_combination_path(const char *path, const struct bench_combination *combination,
                                   char path_out[PATH_MAX]);

struct bench_stats {
    size_t n_samples; /* 0 = no other field is set */
    double min;
    double median;
    double mean;
    double p99; /* nearest rank */
    double max;
};

/** Sorts the samples. Pure. */
struct bench_stats bench_stats_of(double *samples, size_t n);

/** Sorts the samples. 0 = none. Pure. */
double bench_median_of(double *samples, size_t n);

/** Keeps the order of the samples. @scratch: n samples. Pure. */
double bench_median_of_row(const double *samples, double *scratch, size_t n);

struct bench_timing {
    double time_us; /* mean over iterations, over ranks by -a */
    double algbw;   /* GB/s */
    double busbw;
    int64_t n_wrong;       /* elements on all ranks, -1 = not checked */
    double host_us;        /* of the enqueue, over ranks by -a, 0 = not measured */
    double launch_us;      /* -C on GPUs: of an empty kernel, 0 = not measured */
    struct bench_stats us; /* of single calls on their slowest ranks */
};

/** On this rank alone. The call must have run before. @us_out: of one operation. */
gyre_status bench_time_graph(const struct bench_rank *rank, const struct bench_call *call,
                             int n_iters, double *us_out);

/** Collective, with one result on all ranks. */
gyre_status bench_measure(struct bench_rank *rank, const struct bench_call *call,
                          bool wants_samples, struct bench_timing *timing_out);

/** Zero if unknown. Only rank 0 asks, as it may simulate the call. */
struct gyre_plan_summary bench_plan_of(const struct bench_rank *rank,
                                       const struct bench_call *call);

/** Collective. */
gyre_status bench_max_over_ranks(struct bench_rank *rank, double *values, size_t n);

/** False with -c 0, and where the result in place is undefined. Pure. */
bool bench_is_checked(const struct bench_rank *rank, const struct bench_call *call);

/** On new inputs. @run: NULL = gyre. @n_wrong_out: on all ranks. Collective. */
gyre_status bench_check_all(struct bench_rank *rank, const struct bench_call *call,
                            gyre_status (*run)(void *context, const struct bench_call *call),
                            void *context, int64_t *n_wrong_out);

/* Without CUDA all functions return UNSUPPORTED. */
struct bench_graph;

/** Calls must have run before, since loading and allocating cannot be captured. */
gyre_status bench_graph_begin(gyre_stream stream);

/** Needed after a failed call too, before the stream can be used. */
gyre_status bench_graph_end(gyre_stream stream, struct bench_graph **graph_out);

gyre_status bench_graph_launch(struct bench_graph *graph, gyre_stream stream);

/** The launches must be done. NULL does nothing. */
void bench_graph_close(struct bench_graph *graph);

#endif
