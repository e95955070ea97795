/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of gyre that carry out the measured calls: those of the linked library, or those of
 * another one that is loaded beside it (--compare old).
 */
#ifndef GYRE_BENCH_LIBRARY_H
#define GYRE_BENCH_LIBRARY_H

#include "bench/driver/rank.h"

/* X(name, behind "gyre_") */
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

/** bench_library_call - enqueue a call. In sends and receives each rank sends to the next one.
 * @comm, @stream: of this library. */
gyre_status bench_library_call(const struct bench_library *library, gyre_comm *comm,
                               gyre_stream stream, const struct bench_rank *rank,
                               const struct bench_call *call);

/** bench_library_wait - wait until everything on the stream is done. Errors: the one that ended the
 * communicator. */
gyre_status bench_library_wait(const struct bench_library *library, gyre_comm *comm,
                               gyre_stream stream, gyre_device_kind kind);

#endif
