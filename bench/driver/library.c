/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/driver/library.h"

#include "core/foundation/base/status.h"

const struct bench_library bench_linked_library = {
#define LINKED(name) .name = gyre_##name,
    BENCH_LIBRARY_TABLE(LINKED)
#undef LINKED
};

static gyre_status send_and_receive(const struct bench_library *library, gyre_comm *comm,
                                    gyre_stream stream, const struct bench_rank *rank,
                                    const struct bench_call *call)
{
    const struct bench_case *what = &call->what;
    const int n_ranks = rank->member.n_ranks;
    const int previous = (rank->member.rank + n_ranks - 1) % n_ranks;
    GYRE_TRY(library->group_start());
    gyre_status status =
        library->send(call->send, what->count, what->dtype, bench_next_rank(rank), comm, stream);
    if (status == GYRE_SUCCESS)
        status = library->recv(call->recv, what->count, what->dtype, previous, comm, stream);
    const gyre_status ended = library->group_end();
    return status != GYRE_SUCCESS ? status : ended;
}

gyre_status bench_library_call(const struct bench_library *library, gyre_comm *comm,
                               gyre_stream stream, const struct bench_rank *rank,
                               const struct bench_call *call)
{
    const struct bench_case *what = &call->what;
    const void *send = call->send;
    void *recv = call->recv;
    const gyre_op op = what->is_mulsum ? rank->mulsum : what->op;
    switch (what->coll) {
    case GYRE_COLL_ALL_REDUCE:
        return library->all_reduce(send, recv, what->count, what->dtype, op, comm, stream);
    case GYRE_COLL_BROADCAST:
        return library->broadcast(send, recv, what->count, what->dtype, what->root, comm, stream);
    case GYRE_COLL_REDUCE:
        return library->reduce(send, recv, what->count, what->dtype, op, what->root, comm, stream);
    case GYRE_COLL_ALL_GATHER:
        return library->all_gather(send, recv, what->count, what->dtype, comm, stream);
    case GYRE_COLL_REDUCE_SCATTER:
        return library->reduce_scatter(send, recv, what->count, what->dtype, op, comm, stream);
    case GYRE_COLL_ALL_TO_ALL:
        return library->all_to_all(send, recv, what->count, what->dtype, comm, stream);
    case GYRE_COLL_GATHER:
        return library->gather(send, recv, what->count, what->dtype, what->root, comm, stream);
    case GYRE_COLL_SCATTER:
        return library->scatter(send, recv, what->count, what->dtype, what->root, comm, stream);
    case GYRE_COLL_SEND_RECV:
        return send_and_receive(library, comm, stream, rank, call);
    default:
        return gyre_fail(GYRE_ERROR_INTERNAL, "no bench measures collective %d", (int)what->coll);
    }
}

gyre_status bench_library_wait(const struct bench_library *library, gyre_comm *comm,
                               gyre_stream stream, gyre_device_kind kind)
{
    GYRE_TRY(library->stream_synchronize(stream, kind));
    gyre_status status = GYRE_SUCCESS;
    GYRE_TRY(library->comm_async_error(comm, &status));
    if (status != GYRE_SUCCESS)
        gyre_set_cause(library->comm_last_error(comm));
    return status;
}
