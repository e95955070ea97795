/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/calls/calls.h"

#include "tests/fuzz/run.h"

#include <sched.h>
#include <stdio.h>
#include <unistd.h>

/* Now and then, so that ranks drift apart. */
static void pause_shortly(struct fuzz_rng *pace)
{
    const uint64_t how = fuzz_below(pace, 64);
    if (how == 0)
        usleep((useconds_t)fuzz_below(pace, 3000));
    else if (how < 4)
        usleep((useconds_t)fuzz_below(pace, 100));
    else if (how < 16)
        for (uint64_t n = fuzz_below(pace, 8); n > 0; n--)
            sched_yield();
}

static bool has_own_op(const struct fuzz_call *call)
{
    return call->values.is_reduction && call->values.op == FUZZ_PREMUL_SUM &&
           call->fate != FUZZ_LEFT_OUT;
}

void fuzz_issue_open(struct fuzz_rank *rank)
{
    for (int i = 0; i < rank->n_calls; i++) {
        struct fuzz_call *call = &rank->calls[i];
        const uint64_t scalar = fuzz_value_encode(call->values.type, call->values.scalar);
        call->op = (gyre_op)call->values.op;
        if (has_own_op(call))
            FUZZ_TRY(rank,
                     gyre_op_create_premul_sum(&call->op, &scalar, (gyre_dtype)call->values.type,
                                               call->comm->handle));
    }
}

void fuzz_issue_close(struct fuzz_rank *rank)
{
    for (int i = 0; i < rank->n_calls; i++)
        if (has_own_op(&rank->calls[i]))
            FUZZ_TRY(rank, gyre_op_destroy(rank->calls[i].op, rank->calls[i].comm->handle));
}

struct pointers {
    const void *send;
    void *recv;
};

/* What gyre.h lets a rank leave out is NULL half of the time. */
static struct pointers find_pointers(const struct fuzz_rank *rank, const struct fuzz_call *call,
                                     struct fuzz_rng *pace)
{
    uint8_t *recv = rank->recv + call->recv.data, *send = rank->send + call->send.data;
    const size_t own = fuzz_check_own_part(call) * fuzz_types[call->values.type].n_bytes;
    const bool may_omit = call->count > 0 && call->kind != FUZZ_SEND_RECV && !call->is_in_place;
    if (call->chain >= 0)
        send = rank->recv + rank->calls[call->chain].recv.data;
    if (call->is_in_place && fuzz_check_sends_all(call))
        return (struct pointers){recv, recv + own};
    if (call->is_in_place)
        return (struct pointers){recv + own, recv};
    if (may_omit && call->n_send == 0 && fuzz_once_in(pace, 2))
        send = NULL;
    if (may_omit && call->n_recv == 0 && !call->is_windowed && fuzz_once_in(pace, 2))
        recv = NULL;
    return (struct pointers){send, recv};
}

static void issue_messages(struct fuzz_rank *rank, const struct fuzz_call *call,
                           const struct pointers *at, bool sends_first)
{
    const gyre_dtype type = (gyre_dtype)call->values.type;
    gyre_comm *comm = call->comm->handle;
    gyre_stream stream = rank->streams[call->stream];
    if (call->to >= 0 && sends_first)
        FUZZ_TRY(rank, gyre_send(at->send, call->count, type, call->to, comm, stream));
    if (call->from >= 0)
        FUZZ_TRY(rank, gyre_recv(at->recv, call->count, type, call->from, comm, stream));
    if (call->to >= 0 && !sends_first)
        FUZZ_TRY(rank, gyre_send(at->send, call->count, type, call->to, comm, stream));
}

static gyre_status issue_collective(const struct fuzz_call *call, const struct pointers *at,
                                    gyre_stream stream)
{
    const gyre_dtype type = (gyre_dtype)call->values.type;
    const size_t count = call->count;
    gyre_comm *comm = call->comm->handle;
    switch (call->kind) {
    case FUZZ_ALL_REDUCE:
        return gyre_all_reduce(at->send, at->recv, count, type, call->op, comm, stream);
    case FUZZ_BROADCAST:
        return gyre_broadcast(at->send, at->recv, count, type, call->root, comm, stream);
    case FUZZ_REDUCE:
        return gyre_reduce(at->send, at->recv, count, type, call->op, call->root, comm, stream);
    case FUZZ_ALL_GATHER:
        return gyre_all_gather(at->send, at->recv, count, type, comm, stream);
    case FUZZ_REDUCE_SCATTER:
        return gyre_reduce_scatter(at->send, at->recv, count, type, call->op, comm, stream);
    case FUZZ_ALL_TO_ALL:
        return gyre_all_to_all(at->send, at->recv, count, type, comm, stream);
    case FUZZ_GATHER:
        return gyre_gather(at->send, at->recv, count, type, call->root, comm, stream);
    default:
        return gyre_scatter(at->send, at->recv, count, type, call->root, comm, stream);
    }
}

static void issue_call(struct fuzz_rank *rank, int number, struct fuzz_rng *pace)
{
    const struct fuzz_call *call = &rank->calls[number];
    const struct pointers at = find_pointers(rank, call, pace);
    char text[512];
    pause_shortly(pace);
    const bool sends_first = fuzz_once_in(pace, 2);
    if (call->fate == FUZZ_LEFT_OUT)
        return;
    if (fuzz_options.is_verbose) {
        fuzz_describe(rank, call, text, sizeof(text));
        fprintf(stderr, "rank %d: %s\n", rank->world_rank, text);
    }
    atomic_store(&rank->issuing, number);
    /* --skip: the last rank makes no further call, so the others wait for ever. */
    const bool is_asked = fuzz_options.skip_at >= 0 && call->index >= fuzz_options.skip_at;
    if (is_asked && rank->world_rank == (int)fuzz_options.n_ranks - 1) {
        fuzz_rank_phase(rank, "skipping a call, as --skip asks");
        for (;;)
            pause();
    }
    if (call->kind == FUZZ_SEND_RECV)
        issue_messages(rank, call, &at, sends_first);
    else
        FUZZ_TRY(rank, issue_collective(call, &at, rank->streams[call->stream]));
    atomic_fetch_add(&fuzz_shared->n_rank_calls, 1);
}

static void issue_group(struct fuzz_rank *rank, const struct fuzz_group *group,
                        struct fuzz_rng *pace)
{
    if (group->is_divided) {
        /* Messages have the same order on every rank, so no rank waits for ever, however they are
         * divided into groups. A message to oneself must be in a group. */
        bool is_open = false;
        for (int i = 0; i < group->n_calls; i++) {
            const struct fuzz_call *call = &rank->calls[group->first + i];
            if (!is_open && (fuzz_once_in(pace, 2) || call->to == call->from)) {
                FUZZ_TRY(rank, gyre_group_start());
                is_open = true;
            }
            issue_call(rank, group->first + i, pace);
            if (is_open && fuzz_once_in(pace, 4)) {
                FUZZ_TRY(rank, gyre_group_end());
                is_open = false;
            }
        }
        if (is_open)
            FUZZ_TRY(rank, gyre_group_end());
        return;
    }
    if (group->is_grouped)
        FUZZ_TRY(rank, gyre_group_start());
    for (int i = 0; i < group->n_calls; i++) {
        const bool is_inner = group->is_nested && fuzz_once_in(pace, 2);
        if (is_inner)
            FUZZ_TRY(rank, gyre_group_start());
        issue_call(rank, group->first + i, pace);
        if (is_inner)
            FUZZ_TRY(rank, gyre_group_end());
    }
    if (group->is_canceled)
        FUZZ_TRY(rank, gyre_group_cancel());
    else if (group->is_grouped)
        FUZZ_TRY(rank, gyre_group_end());
}

void fuzz_issue_round(struct fuzz_rank *rank, struct fuzz_rng *pace)
{
    fuzz_rank_phase(rank, "making the calls");
    for (int i = 0; i < rank->n_groups; i++)
        issue_group(rank, &rank->groups[i], pace);
}

static void wait_for_stream(struct fuzz_rank *rank, gyre_stream stream, bool polls)
{
    const gyre_device_kind kind = rank->device->kind;
    gyre_status status = polls ? GYRE_IN_PROGRESS : GYRE_SUCCESS;
    while (status == GYRE_IN_PROGRESS) {
        sched_yield();
        status = gyre_stream_query(stream, kind);
    }
    FUZZ_TRY(rank, status);
    FUZZ_TRY(rank, gyre_stream_synchronize(stream, kind));
}

void fuzz_issue_wait(struct fuzz_rank *rank, struct fuzz_rng *pace)
{
    const int first = (int)fuzz_below(pace, FUZZ_N_STREAMS);
    const bool polls = fuzz_once_in(pace, 4);
    fuzz_rank_phase(rank, "waiting for the streams");
    for (int i = 0; i < FUZZ_N_STREAMS; i++)
        wait_for_stream(rank, rank->streams[(first + i) % FUZZ_N_STREAMS], polls);
    for (int slot = 0; slot < FUZZ_N_SLOTS; slot++) {
        gyre_comm *comm = rank->comms[slot].handle;
        gyre_status status = GYRE_SUCCESS;
        if (comm == NULL)
            continue;
        FUZZ_TRY(rank, gyre_comm_async_error(comm, &status));
        if (status != GYRE_SUCCESS)
            fuzz_fail(rank, FUZZ_FAILED, "communicator of slot %d: %s: %s", slot,
                      gyre_status_name(status), gyre_comm_last_error(comm));
    }
}
