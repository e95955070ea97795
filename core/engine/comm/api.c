/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls that take buffers. Their arguments are checked here and nowhere deeper.
 */
#include "core/engine/comm/parts.h"

#include "core/foundation/base/util.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* of all blocks together */
#define MAX_BYTES ((uint64_t)INT64_MAX)

static gyre_status check_types(gyre_comm *comm, const struct gyre_call *call)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[call->coll];
    if ((unsigned)call->dtype >= GYRE_N_DTYPES)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: dtype %d is not one of the %d types",
                         traits->name, (int)call->dtype, GYRE_N_DTYPES);
    const uint64_t n_blocks =
        traits->in_blocks || traits->out_blocks ? (uint64_t)comm->self.n_ranks : 1;
    const uint64_t element = gyre_dtype_bytes(call->dtype);
    /* Most calls need no division, which costs as much as the rest of the checks. */
    if (call->count > UINT32_MAX && call->count > MAX_BYTES / element / n_blocks)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "%s: count %" PRIu64 " x %" PRIu64 " bytes x %" PRIu64
                         " blocks is more than 2^63 bytes",
                         traits->name, call->count, element, n_blocks);
    if (!traits->reduces)
        return GYRE_SUCCESS;
    const int op = (int)call->op;
    if (op >= 0 && op < GYRE_N_OPS)
        return GYRE_SUCCESS;
    const unsigned user = (unsigned)op - GYRE_FIRST_USER_OP; /* wraps for smaller values */
    if (user >= GYRE_MAX_USER_OPS || !comm->user_ops[user].is_used)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "%s: op %d is neither sum prod max min avg nor one made by "
                         "gyre_op_create_premul_sum on this communicator",
                         traits->name, op);
    if (comm->user_ops[user].dtype != call->dtype)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "%s: op %d was made for %s, the call is of %s", traits->name, op,
                         gyre_dtype_names[comm->user_ops[user].dtype],
                         gyre_dtype_names[call->dtype]);
    return GYRE_SUCCESS;
}

static gyre_status check_pointer(gyre_comm *comm, const char *name, const char *which,
                                 const void *pointer)
{
    if (pointer == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: the %s buffer is NULL", name, which);
    const gyre_status status = comm->self.device->ops->check_pointer(comm->self.device, pointer);
    if (status != GYRE_SUCCESS)
        gyre_fail_context(status, "%s: the %s buffer", name, which);
    return status;
}

struct buffers {
    bool reads;
    bool writes;
    uint64_t in_bytes;
    uint64_t out_bytes;
    const char *in_place; /* where `recv` must stand for the in-place form */
};

static gyre_status check_buffers(gyre_comm *comm, const struct gyre_call *call)
{
    const char *name = gyre_collectives[call->coll].name;
    if (call->count == 0)
        return GYRE_SUCCESS;
    const struct gyre_collective_traits *traits = &gyre_collectives[call->coll];
    const uint64_t block = call->count * gyre_dtype_bytes(call->dtype);
    const uint64_t n = (uint64_t)comm->self.n_ranks;
    struct buffers b = {true, true, traits->in_blocks ? block * n : block,
                        traits->out_blocks ? block * n : block, NULL};
    const uint64_t own = block * (uint64_t)comm->self.rank;
    const char *send = call->send;
    const bool is_root = comm->self.rank == call->root;
    switch (call->coll) {
    case GYRE_COLL_BROADCAST:
        b.reads = is_root;
        b.in_place = send;
        break;
    case GYRE_COLL_REDUCE:
        b.writes = is_root;
        b.in_place = send;
        break;
    case GYRE_COLL_ALL_GATHER:
    case GYRE_COLL_GATHER:
        b.writes = is_root || call->coll == GYRE_COLL_ALL_GATHER;
        b.in_place = (uintptr_t)send >= own ? (const char *)((uintptr_t)send - own) : NULL;
        break;
    case GYRE_COLL_REDUCE_SCATTER:
    case GYRE_COLL_SCATTER:
        b.reads = is_root || call->coll == GYRE_COLL_REDUCE_SCATTER;
        b.in_place = (const char *)((uintptr_t)send + own);
        break;
    case GYRE_COLL_SEND_RECV:
        b.reads = call->is_send;
        b.writes = !call->is_send;
        break;
    default: /* an all-to-all in place is undefined, as in NCCL, whose users call it */
        b.in_place = send;
        break;
    }
    if (b.reads)
        GYRE_TRY(check_pointer(comm, name, "send", call->send));
    if (b.writes && (!b.reads || call->recv != call->send))
        GYRE_TRY(check_pointer(comm, name, "recv", call->recv));
    if (!b.reads || !b.writes || (b.in_place != NULL && call->recv == b.in_place))
        return GYRE_SUCCESS;
    const uintptr_t in = (uintptr_t)call->send;
    const uintptr_t out = (uintptr_t)call->recv;
    if (in >= out + b.out_bytes || out >= in + b.in_bytes)
        return GYRE_SUCCESS;
    char in_place[80] = "; it has no in-place form";
    if (b.in_place != NULL)
        snprintf(in_place, sizeof(in_place), ", and not in the in-place form (recv == %p)",
                 (const void *)b.in_place);
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                     "%s: send [%p, +%" PRIu64 ") and recv [%p, +%" PRIu64 ") overlap%s", name,
                     call->send, b.in_bytes, call->recv, b.out_bytes, in_place);
}

/* A lone call goes from here through gyre_batch_one() and enqueue() to the executor's launch().
 * @options: or NULL. */
static gyre_status submit(struct gyre_item *item, const gyre_call_args *options)
{
    gyre_comm *comm = item->comm;
    struct gyre_call *call = &item->call;
    const struct gyre_collective_traits *traits = &gyre_collectives[call->coll];
    GYRE_IN_CALL(comm);
    if (options != NULL)
        GYRE_TRY(gyre_call_options_parse(call->coll, options, &call->options));
    GYRE_TRY(check_types(comm, call));
    if (traits->has_root && (call->root < 0 || call->root >= comm->self.n_ranks))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: %s %d is not a rank of 0..%d",
                         traits->name, call->coll == GYRE_COLL_SEND_RECV ? "peer" : "root",
                         call->root, comm->self.n_ranks - 1);
    GYRE_TRY(check_buffers(comm, call));
    if (traits->reduces && (int)call->op >= GYRE_FIRST_USER_OP)
        call->scalar = comm->user_ops[(int)call->op - GYRE_FIRST_USER_OP].scalar;
    /* A failed launch could end the communicator, so a call whose own options leave no choice is
     * refused here. Failures that not all ranks have are left to the launch, which tells the
     * others. */
    if (gyre_call_options_any(&call->options) && call->count > 0 && comm->self.n_ranks > 1) {
        const struct gyre_plan *plan;
        gyre_window_find(&comm->windows, (uint32_t)comm->self.n_ranks, call);
        const gyre_status status = gyre_plan_get(&comm->plans, call, &plan);
        if (status != GYRE_ERROR_OUT_OF_MEMORY && status != GYRE_ERROR_SYSTEM)
            GYRE_TRY(status);
    }
    if (comm->observing != NULL)
        gyre_observe_submitted(comm->observing, call);
    return gyre_group_is_open() ? gyre_group_add_call(item) : gyre_batch_one(item);
}

#define ELEMENTS .count = count, .dtype = dtype, .stream = stream
#define BUFFERS  .send = send, .recv = recv, ELEMENTS

gyre_status gyre_all_reduce(const void *send, void *recv, size_t count, gyre_dtype dtype,
                            gyre_op op, gyre_comm *comm, gyre_stream stream)
{
    struct gyre_item item = {.comm = comm,
                             .call = {.coll = GYRE_COLL_ALL_REDUCE, BUFFERS, .op = op, .root = -1}};
    return submit(&item, NULL);
}

gyre_status gyre_broadcast(const void *send, void *recv, size_t count, gyre_dtype dtype, int root,
                           gyre_comm *comm, gyre_stream stream)
{
    struct gyre_item item = {.comm = comm,
                             .call = {.coll = GYRE_COLL_BROADCAST, BUFFERS, .root = root}};
    return submit(&item, NULL);
}

gyre_status gyre_reduce(const void *send, void *recv, size_t count, gyre_dtype dtype, gyre_op op,
                        int root, gyre_comm *comm, gyre_stream stream)
{
    struct gyre_item item = {.comm = comm,
                             .call = {.coll = GYRE_COLL_REDUCE, BUFFERS, .op = op, .root = root}};
    return submit(&item, NULL);
}

gyre_status gyre_all_gather(const void *send, void *recv, size_t count, gyre_dtype dtype,
                            gyre_comm *comm, gyre_stream stream)
{
    struct gyre_item item = {.comm = comm,
                             .call = {.coll = GYRE_COLL_ALL_GATHER, BUFFERS, .root = -1}};
    return submit(&item, NULL);
}

gyre_status gyre_reduce_scatter(const void *send, void *recv, size_t count, gyre_dtype dtype,
                                gyre_op op, gyre_comm *comm, gyre_stream stream)
{
    struct gyre_item item = {
        .comm = comm, .call = {.coll = GYRE_COLL_REDUCE_SCATTER, BUFFERS, .op = op, .root = -1}};
    return submit(&item, NULL);
}

gyre_status gyre_all_to_all(const void *send, void *recv, size_t count, gyre_dtype dtype,
                            gyre_comm *comm, gyre_stream stream)
{
    struct gyre_item item = {.comm = comm,
                             .call = {.coll = GYRE_COLL_ALL_TO_ALL, BUFFERS, .root = -1}};
    return submit(&item, NULL);
}

gyre_status gyre_gather(const void *send, void *recv, size_t count, gyre_dtype dtype, int root,
                        gyre_comm *comm, gyre_stream stream)
{
    struct gyre_item item = {.comm = comm,
                             .call = {.coll = GYRE_COLL_GATHER, BUFFERS, .root = root}};
    return submit(&item, NULL);
}

gyre_status gyre_scatter(const void *send, void *recv, size_t count, gyre_dtype dtype, int root,
                         gyre_comm *comm, gyre_stream stream)
{
    struct gyre_item item = {.comm = comm,
                             .call = {.coll = GYRE_COLL_SCATTER, BUFFERS, .root = root}};
    return submit(&item, NULL);
}

gyre_status gyre_send(const void *send, size_t count, gyre_dtype dtype, int peer, gyre_comm *comm,
                      gyre_stream stream)
{
    struct gyre_item item = {
        .comm = comm,
        .call = {
            .coll = GYRE_COLL_SEND_RECV, .send = send, ELEMENTS, .root = peer, .is_send = true}};
    return submit(&item, NULL);
}

gyre_status gyre_recv(void *recv, size_t count, gyre_dtype dtype, int peer, gyre_comm *comm,
                      gyre_stream stream)
{
    struct gyre_item item = {
        .comm = comm, .call = {.coll = GYRE_COLL_SEND_RECV, .recv = recv, ELEMENTS, .root = peer}};
    return submit(&item, NULL);
}

static const enum gyre_collective collective_of[] = {
    [GYRE_CALL_ALL_REDUCE] = GYRE_COLL_ALL_REDUCE,
    [GYRE_CALL_BROADCAST] = GYRE_COLL_BROADCAST,
    [GYRE_CALL_REDUCE] = GYRE_COLL_REDUCE,
    [GYRE_CALL_ALL_GATHER] = GYRE_COLL_ALL_GATHER,
    [GYRE_CALL_REDUCE_SCATTER] = GYRE_COLL_REDUCE_SCATTER,
    [GYRE_CALL_ALL_TO_ALL] = GYRE_COLL_ALL_TO_ALL,
    [GYRE_CALL_GATHER] = GYRE_COLL_GATHER,
    [GYRE_CALL_SCATTER] = GYRE_COLL_SCATTER,
};

gyre_status gyre_collective(const gyre_call_args *given, gyre_comm *comm, gyre_stream stream)
{
    gyre_call_args args = GYRE_CALL_ARGS_INIT;
    if (given == NULL || given->version == 0 ||
        given->struct_bytes < offsetof(gyre_call_args, algorithm))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "collective: the arguments are NULL or were not initialised with "
                         "GYRE_CALL_ARGS_INIT");
    memcpy(&args, given, given->struct_bytes < sizeof(args) ? given->struct_bytes : sizeof(args));
    if (args.kind < 0 || (size_t)args.kind >= GYRE_ARRAY_LENGTH(collective_of))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "collective: %d is no enum gyre_call_kind",
                         args.kind);
    const enum gyre_collective coll = collective_of[args.kind];
    struct gyre_item item = {.comm = comm,
                             .call = {.coll = coll,
                                      .send = args.send,
                                      .recv = args.recv,
                                      .count = args.count,
                                      .dtype = args.dtype,
                                      .op = args.op,
                                      .root = gyre_collectives[coll].has_root ? args.root : -1,
                                      .stream = stream}};
    return submit(&item, &args);
}

gyre_status gyre_op_create_premul_sum(gyre_op *op_out, const void *scalar, gyre_dtype dtype,
                                      gyre_comm *comm)
{
    GYRE_IN_CALL(comm);
    if (op_out == NULL || scalar == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "op_create_premul_sum: %s is NULL",
                         op_out == NULL ? "op_out" : "scalar");
    if ((unsigned)dtype >= GYRE_N_DTYPES)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "op_create_premul_sum: unknown dtype %d",
                         (int)dtype);
    for (int i = 0; i < GYRE_MAX_USER_OPS; i++) {
        if (comm->user_ops[i].is_used)
            continue;
        struct gyre_user_op op = {true, dtype, 0};
        GYRE_TRY(comm->self.device->ops->copy(comm->self.device, &op.scalar, scalar,
                                              gyre_dtype_bytes(dtype)));
        comm->user_ops[i] = op;
        *op_out = (gyre_op)(GYRE_FIRST_USER_OP + i);
        return GYRE_SUCCESS;
    }
    return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                     "op_create_premul_sum: all %d user operations are in use; destroy one",
                     GYRE_MAX_USER_OPS);
}

gyre_status gyre_op_destroy(gyre_op op, gyre_comm *comm)
{
    GYRE_IN_CALL(comm);
    const unsigned user = (unsigned)op - GYRE_FIRST_USER_OP;
    if (user >= GYRE_MAX_USER_OPS || !comm->user_ops[user].is_used)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "op_destroy: %d is not an operation made on this communicator", (int)op);
    comm->user_ops[user].is_used = false;
    return GYRE_SUCCESS;
}

#define EXCHANGE_MAX_BYTES (1u << 20)

gyre_status gyre_comm_gather(gyre_comm *comm, const void *mine, size_t n_bytes, void *all_out)
{
    GYRE_TRY(gyre_comm_check(comm));
    if (mine == NULL || all_out == NULL || n_bytes == 0 ||
        n_bytes > EXCHANGE_MAX_BYTES / (size_t)comm->self.n_ranks)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "exchange of %zu bytes a rank: %s", n_bytes,
                         mine == NULL || all_out == NULL ? "a buffer is NULL"
                                                         : "legal is 1..1 MiB / n_ranks");
    const gyre_status status =
        comm->self.bootstrap->ops->all_gather(comm->self.bootstrap, mine, n_bytes, all_out);
    if (status != GYRE_SUCCESS) /* if the communicator has failed, its fault says more */
        GYRE_TRY(gyre_fault_status(&comm->self.fault));
    return status == GYRE_ERROR_OUT_OF_MEMORY ? gyre_comm_give_up(comm, status) : status;
}

gyre_status gyre_comm_exchange(gyre_comm *comm, const void *mine, size_t n_bytes, void *all_out)
{
    GYRE_IN_CALL(comm);
    return gyre_comm_gather(comm, mine, n_bytes, all_out);
}
