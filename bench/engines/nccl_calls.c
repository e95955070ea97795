/* SPDX-License-Identifier: Apache-2.0
 *
 * One call of the bench as a call of NCCL. Before 2.28 NCCL has no all-to-all, gather and scatter.
 * Its users then write a group of sends and receives, as nccl-tests does, and so do we.
 */
#include "bench/engines/nccl_api.h"

/* A call, and what all sends and receives of a group need. */
struct transfer {
    const struct bench_nccl_api *api;
    void *comm;
    void *stream;
    const struct bench_call *call;
    int type;
    size_t block_bytes;
};

static int send_block(const struct transfer *transfer, int block, int peer)
{
    const struct bench_call *call = transfer->call;
    return transfer->api->send((const char *)call->send + (size_t)block * transfer->block_bytes,
                               call->what.count, transfer->type, peer, transfer->comm,
                               transfer->stream);
}

static int recv_block(const struct transfer *transfer, int block, int peer)
{
    const struct bench_call *call = transfer->call;
    return transfer->api->recv((char *)call->recv + (size_t)block * transfer->block_bytes,
                               call->what.count, transfer->type, peer, transfer->comm,
                               transfer->stream);
}

static int enqueue_all_to_all(const struct transfer *transfer, int n_ranks)
{
    int result = 0;
    for (int peer = 0; peer < n_ranks && result == 0; peer++) {
        result = send_block(transfer, peer, peer);
        if (result == 0)
            result = recv_block(transfer, peer, peer);
    }
    return result;
}

/* Every rank sends to the root, the root too. */
static int enqueue_gather(const struct transfer *transfer, int n_ranks, int me)
{
    const int root = transfer->call->what.root;
    int result = send_block(transfer, 0, root);
    for (int peer = 0; peer < n_ranks && me == root && result == 0; peer++)
        result = recv_block(transfer, peer, peer);
    return result;
}

static int enqueue_scatter(const struct transfer *transfer, int n_ranks, int me)
{
    const int root = transfer->call->what.root;
    int result = recv_block(transfer, 0, root);
    for (int peer = 0; peer < n_ranks && me == root && result == 0; peer++)
        result = send_block(transfer, peer, peer);
    return result;
}

/* To the next rank, and from the previous one. */
static int enqueue_send_recv(const struct transfer *transfer, int n_ranks, int me)
{
    const int result = send_block(transfer, 0, (me + 1) % n_ranks);
    return result != 0 ? result : recv_block(transfer, 0, (me + n_ranks - 1) % n_ranks);
}

static int run_group(const struct transfer *transfer, const struct bench_member *member)
{
    const int n_ranks = member->n_ranks;
    int result = transfer->api->group_start();
    if (result != 0)
        return result;
    switch (transfer->call->what.coll) {
    case GYRE_COLL_ALL_TO_ALL:
        result = enqueue_all_to_all(transfer, n_ranks);
        break;
    case GYRE_COLL_GATHER:
        result = enqueue_gather(transfer, n_ranks, member->rank);
        break;
    case GYRE_COLL_SCATTER:
        result = enqueue_scatter(transfer, n_ranks, member->rank);
        break;
    default:
        result = enqueue_send_recv(transfer, n_ranks, member->rank);
        break;
    }
    const int ended = transfer->api->group_end();
    return result != 0 ? result : ended;
}

static int run(const struct transfer *transfer, const struct bench_member *member)
{
    const struct bench_nccl_api *api = transfer->api;
    const struct bench_call *call = transfer->call;
    const struct bench_case *what = &call->what;
    const int op = (int)what->op;
    switch (what->coll) {
    case GYRE_COLL_ALL_REDUCE:
        return api->all_reduce(call->send, call->recv, what->count, transfer->type, op,
                               transfer->comm, transfer->stream);
    case GYRE_COLL_BROADCAST:
        return api->broadcast(call->send, call->recv, what->count, transfer->type, what->root,
                              transfer->comm, transfer->stream);
    case GYRE_COLL_REDUCE:
        return api->reduce(call->send, call->recv, what->count, transfer->type, op, what->root,
                           transfer->comm, transfer->stream);
    case GYRE_COLL_ALL_GATHER:
        return api->all_gather(call->send, call->recv, what->count, transfer->type, transfer->comm,
                               transfer->stream);
    case GYRE_COLL_REDUCE_SCATTER:
        return api->reduce_scatter(call->send, call->recv, what->count, transfer->type, op,
                                   transfer->comm, transfer->stream);
    case GYRE_COLL_ALL_TO_ALL:
        if (api->all_to_all != NULL)
            return api->all_to_all(call->send, call->recv, what->count, transfer->type,
                                   transfer->comm, transfer->stream);
        break;
    case GYRE_COLL_GATHER:
        if (api->gather != NULL)
            return api->gather(call->send, call->recv, what->count, transfer->type, what->root,
                               transfer->comm, transfer->stream);
        break;
    case GYRE_COLL_SCATTER:
        if (api->scatter != NULL)
            return api->scatter(call->send, call->recv, what->count, transfer->type, what->root,
                                transfer->comm, transfer->stream);
        break;
    default:
        break;
    }
    return run_group(transfer, member);
}

gyre_status bench_nccl_call(const struct bench_nccl_api *api, void *comm,
                            const struct bench_member *member, const struct bench_call *call,
                            void *stream)
{
    const struct transfer transfer = {
        .api = api,
        .comm = comm,
        .stream = stream,
        .call = call,
        .type = (int)call->what.dtype,
        .block_bytes = call->what.count * gyre_dtype_bytes(call->what.dtype),
    };
    return bench_nccl_api_check(api, run(&transfer, member),
                                gyre_collectives[call->what.coll].name);
}
