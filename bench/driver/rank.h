/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank of a run and the calls that it measures.
 */
#ifndef GYRE_BENCH_RANK_H
#define GYRE_BENCH_RANK_H

#include "bench/driver/bench.h"
#include "bench/driver/options.h"
#include "bench/driver/progress.h"
#include "bench/launch/ranks.h"
#include "core/foundation/device/device.h"

struct bench_buffers {
    void *send; /* each of n_bytes */
    void *recv;
    size_t n_bytes;
};

struct bench_rank {
    struct bench_member member;
    const struct bench_options *options;
    const struct bench_kind *kind;
    struct gyre_filter_words allowed;
    struct bench_progress *progress; /* for local rank 0 of process 0 only */
    gyre_comm *comm;
    gyre_op mulsum; /* of the type that is measured, with -o mulsum */
    gyre_stream stream;
    gyre_device_kind device_kind;
    int ordinal;
    struct gyre_device *device;
    struct bench_buffers buffers;       /* of gyre's calls; a little larger than max_bytes */
    gyre_window window;                 /* over buffers.recv; 0 = none */
    gyre_registration registrations[2]; /* of buffers.send and buffers.recv; NULL = none */
    uint32_t seed;                      /* the same on all ranks */
    bool has_failed;                    /* this rank failed and has printed the cause */
};

/* The same on all ranks. */
struct bench_case {
    enum gyre_collective coll;
    size_t count;
    size_t n_bytes; /* sent or received, whichever is more */
    gyre_dtype dtype;
    gyre_op op;
    bool is_mulsum; /* op is GYRE_SUM, and calls take the rank's premultiplied sum */
    int root;
};

const char *bench_op_name(const struct bench_case *what);

struct bench_call {
    struct bench_case what;
    const struct bench_buffers *buffers; /* send and recv point into these */
    const void *send;
    void *recv;
    bool is_in_place;
};

/** bench_config_of - pure. */
gyre_config bench_config_of(const struct bench_options *options);

/** bench_rank_ordinal - index on the host, modulo the GPUs that this process sees. @local: the
 * rank's number in this process. */
gyre_status bench_rank_ordinal(const struct bench_options *options, const struct bench_ranks *ranks,
                               int local, int *ordinal_out);

/** bench_rank_open / close - collective. @id: may be NULL when all ranks are threads of this
 * process, and @comms_of_process holds their communicators already. */
gyre_status bench_rank_open(struct bench_rank *rank, const gyre_unique_id *id,
                            gyre_comm *const *comms_of_process);
void bench_rank_close(struct bench_rank *rank);

void bench_rank_print_error(const struct bench_rank *rank, gyre_status status);

/** bench_rank_agree - end a phase, as bench_ranks_agree_on(). A rank that failed first prints the
 * cause and aborts its communicator, so that no other rank waits for it inside a collective. */
gyre_status bench_rank_agree(struct bench_rank *rank, gyre_status status);

/** bench_case_of - of about wanted->n_bytes, with count and bytes that fit each other. Blocks are
 * cut down to a multiple of 16 bytes, as in nccl-tests. Pure. */
struct bench_case bench_case_of(const struct bench_case *wanted, int n_ranks);

/** bench_call_of - in place (as gyre.h defines it) or out of place. @buffers: outlive the call. */
struct bench_call bench_call_of(const struct bench_rank *rank, const struct bench_buffers *buffers,
                                const struct bench_case *what, bool is_in_place);

/** bench_next_rank - of sends and receives. */
int bench_next_rank(const struct bench_rank *rank);

/** bench_enqueue / wait - on the rank's stream. Errors of wait: the one that ended the
 * communicator. */
gyre_status bench_enqueue(const struct bench_rank *rank, const struct bench_call *call);
gyre_status bench_wait(const struct bench_rank *rank);

gyre_status bench_fill(struct bench_rank *rank, const struct bench_call *call);

/** bench_check - counts this rank's wrong elements. */
gyre_status bench_check(const struct bench_rank *rank, const struct bench_call *call,
                        uint64_t *n_wrong_out);

/* Of the linked library or of another one that is loaded beside it (--compare old). X(name, behind
 * "gyre_") */
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

gyre_status bench_library_call(const struct bench_library *library, gyre_comm *comm,
                               gyre_stream stream, const struct bench_rank *rank,
                               const struct bench_call *call);

/** bench_library_wait - errors: the one that ended the communicator. */
gyre_status bench_library_wait(const struct bench_library *library, gyre_comm *comm,
                               gyre_stream stream, gyre_device_kind kind);

#endif
