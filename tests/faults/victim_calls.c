/* SPDX-License-Identifier: Apache-2.0
 *
 * Every element that arrives is compared with a formula.
 */
#include "tests/faults/victim.h"

#include <stdlib.h>

static uint64_t next_random(struct victim_rank *own)
{
    own->random = own->random * 6364136223846793005ULL + 1442695040888963407ULL;
    return own->random >> 33;
}

static int32_t value_of(int rank, uint64_t call, size_t i)
{
    return (int32_t)((i + call) % 1000 * (uint64_t)(rank + 1));
}

struct request {
    gyre_comm *comm;
    int rank; /* in comm */
    int n_ranks;
    int root;
    size_t n_elems;
    uint64_t call;
};

static void check(const struct victim_rank *own, const char *call, size_t i, int32_t got,
                  int32_t expected)
{
    if (got == expected)
        return;
    victim_say(own, "wrong %s element %zu is %d, not %d", call, i, got, expected);
    exit(3);
}

static gyre_status synchronize(const struct victim_rank *own, const char *call, gyre_comm *comm)
{
    VICTIM_TRY(own, call, comm, gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
    return GYRE_SUCCESS;
}

static gyre_status all_reduce(struct victim_rank *own, const struct request *r)
{
    gyre_status status;
    const int factor = r->n_ranks * (r->n_ranks + 1) / 2 - 1; /* of rank 0's value, less one */
    VICTIM_TRY(own, "all_reduce", r->comm,
               gyre_all_reduce(own->in, own->out, r->n_elems, GYRE_INT32, GYRE_SUM, r->comm, NULL));
    if ((status = synchronize(own, "all_reduce", r->comm)) != GYRE_SUCCESS)
        return status;
    for (size_t i = 0; i < r->n_elems; i++)
        check(own, "all_reduce", i, own->out[i], value_of(factor, r->call, i));
    return GYRE_SUCCESS;
}

static gyre_status broadcast(struct victim_rank *own, const struct request *r)
{
    gyre_status status;
    VICTIM_TRY(own, "broadcast", r->comm,
               gyre_broadcast(own->in, own->out, r->n_elems, GYRE_INT32, r->root, r->comm, NULL));
    if ((status = synchronize(own, "broadcast", r->comm)) != GYRE_SUCCESS)
        return status;
    for (size_t i = 0; i < r->n_elems; i++)
        check(own, "broadcast", i, own->out[i], value_of(r->root, r->call, i));
    return GYRE_SUCCESS;
}

static gyre_status all_gather(struct victim_rank *own, const struct request *r)
{
    gyre_status status;
    VICTIM_TRY(own, "all_gather", r->comm,
               gyre_all_gather(own->in, own->out, r->n_elems, GYRE_INT32, r->comm, NULL));
    if ((status = synchronize(own, "all_gather", r->comm)) != GYRE_SUCCESS)
        return status;
    for (size_t i = 0; i < r->n_elems * (size_t)r->n_ranks; i++)
        check(own, "all_gather", i, own->out[i],
              value_of((int)(i / r->n_elems), r->call, i % r->n_elems));
    return GYRE_SUCCESS;
}

gyre_status victim_end_group(gyre_status of_calls)
{
    if (of_calls == GYRE_SUCCESS)
        return gyre_group_end();
    gyre_group_cancel();
    return of_calls;
}

static gyre_status send_recv(struct victim_rank *own, const struct request *r)
{
    gyre_status status;
    const int to = (r->rank + 1) % r->n_ranks;
    const int from = (r->rank + r->n_ranks - 1) % r->n_ranks;
    VICTIM_TRY(own, "group_start", r->comm, gyre_group_start());
    status = gyre_send(own->in, r->n_elems, GYRE_INT32, to, r->comm, NULL);
    if (status == GYRE_SUCCESS)
        status = gyre_recv(own->out, r->n_elems, GYRE_INT32, from, r->comm, NULL);
    VICTIM_TRY(own, "send_recv", r->comm, victim_end_group(status));
    if ((status = synchronize(own, "send_recv", r->comm)) != GYRE_SUCCESS)
        return status;
    for (size_t i = 0; i < r->n_elems; i++)
        check(own, "send_recv", i, own->out[i], value_of(from, r->call, i));
    return GYRE_SUCCESS;
}

gyre_status victim_call(struct victim_rank *own, gyre_comm *comm)
{
    static gyre_status (*const calls[])(struct victim_rank *, const struct request *) = {
        all_reduce, broadcast, all_gather, send_recv};
    struct request r = {.comm = comm, .call = own->n_calls++};
    r.n_elems = (size_t)1 << next_random(own) % 17;
    const uint64_t kind = next_random(own);
    const uint64_t root = next_random(own);
    VICTIM_TRY(own, "comm_count", comm, gyre_comm_count(comm, &r.n_ranks));
    VICTIM_TRY(own, "comm_rank", comm, gyre_comm_rank(comm, &r.rank));
    r.root = (int)(root % (uint64_t)r.n_ranks);
    for (size_t i = 0; i < r.n_elems; i++)
        own->in[i] = value_of(r.rank, r.call, i);
    return calls[kind % (sizeof(calls) / sizeof(calls[0]))](own, &r);
}
