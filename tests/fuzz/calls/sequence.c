/* SPDX-License-Identifier: Apache-2.0
 *
 * A call's properties come from a generator that is the same on all ranks of its communicator; each
 * function that draws says which generator it takes.
 */
#include "tests/fuzz/calls/calls.h"

#include "tests/fuzz/options.h"

#include <stdlib.h>

/* Shared by all calls of a group. */
struct drawing {
    struct fuzz_rng rng; /* all ranks */
    long index;
    int only_slot; /* if the group's calls have one communicator */
    bool is_grouped, has_messages, is_canceled, is_divided, has_several_comms;
    bool has_one_stream; /* on this rank: `stream` */
    int stream, first_of_group;
};

static bool is_per_rank(enum fuzz_collective kind)
{
    return kind == FUZZ_ALL_GATHER || kind == FUZZ_REDUCE_SCATTER || kind == FUZZ_ALL_TO_ALL ||
           kind == FUZZ_GATHER || kind == FUZZ_SCATTER;
}

/* Small and large alike; some are 0, 1, odd, or multiples of 256. */
static size_t draw_count(struct fuzz_rng *rng, const struct fuzz_call *call)
{
    const size_t n_blocks = is_per_rank(call->kind) ? (size_t)call->comm->n_ranks : 1;
    const size_t most =
        (size_t)fuzz_options.max_bytes / fuzz_types[call->values.type].n_bytes / n_blocks;
    const uint64_t how = fuzz_below(rng, 16);
    unsigned n_bits = 0;
    while (most >> n_bits > 1)
        n_bits++;
    const size_t power = (size_t)1 << fuzz_below(rng, n_bits + 1);
    size_t count = power + (size_t)fuzz_below(rng, power);
    if (how < 2)
        count = (size_t)how;
    else if (how < 6)
        count |= 1;
    else if (how == 6)
        count &= ~(size_t)255;
    return count < most ? count : most;
}

static void draw_operation(struct fuzz_rng *rng, struct fuzz_call *call)
{
    static const int64_t scalars[] = {1, 2, -1, 3};
    const enum fuzz_collective kind = call->kind;
    const int n = call->comm->n_ranks;
    struct fuzz_values *values = &call->values;
    values->is_reduction =
        kind == FUZZ_ALL_REDUCE || kind == FUZZ_REDUCE || kind == FUZZ_REDUCE_SCATTER;
    values->n_ranks = n;
    values->type = (int)fuzz_below(rng, FUZZ_N_TYPES);
    values->op = (int)fuzz_below(rng, FUZZ_N_OPS);
    values->scalar = scalars[fuzz_below(rng, 4)];
    values->key = fuzz_next(rng);
    const struct fuzz_type *type = &fuzz_types[values->type];
    const bool is_too_large = values->scalar > 1 && type->exact / values->scalar < n;
    if (values->op != FUZZ_PREMUL_SUM || (values->scalar < 0 && !type->is_signed) || is_too_large)
        values->scalar = 1;
    if (values->op == GYRE_AVG && type->is_float && (n & (n - 1)) != 0 && type->exact < n)
        values->op = GYRE_MAX; /* no operand's average would be exact */
}

/* A broadcast or an all-gather may send what an all-reduce of an earlier group left, on the same
 * stream, without a wait. All ranks of the communicator know enough to decide. */
static void chain(const struct fuzz_rank *rank, const struct drawing *drawing,
                  struct fuzz_call *call)
{
    const size_t n_blocks = call->kind == FUZZ_ALL_GATHER ? (size_t)call->comm->n_ranks : 1;
    for (int i = drawing->first_of_group - 1; i >= 0; i--) {
        const struct fuzz_call *earlier = &rank->calls[i];
        const size_t n_bytes = earlier->count * n_blocks * fuzz_types[earlier->values.type].n_bytes;
        if (earlier->comm != call->comm || earlier->kind != FUZZ_ALL_REDUCE ||
            earlier->fate == FUZZ_CANCELED || n_bytes > (size_t)fuzz_options.max_bytes)
            continue;
        call->chain = i;
        call->count = earlier->count;
        call->values.type = earlier->values.type;
        call->stream = earlier->stream;
        return;
    }
}

enum pattern { PERMUTATION, HOLED_PERMUTATION, BOTH_WAYS, ONE_PAIR, ANY_PAIRS, N_PATTERNS };

/* The receiver of `me`'s message `number`, or -1. `order` is a permutation, and `holes` are random
 * bits: of each message of ANY_PAIRS 8 for its sender and 8 for its receiver. */
static int target(enum pattern pattern, const int *order, uint64_t holes, int number, int me, int n)
{
    const uint64_t pair = holes >> number * 16;
    switch (pattern) {
    case HOLED_PERMUTATION:
        return holes >> me & 1 ? -1 : order[me];
    case BOTH_WAYS:
        return number == 0 ? (me + 1) % n : (me + n - 1) % n;
    case ONE_PAIR:
        return me == order[0] ? order[n - 1] : -1;
    case ANY_PAIRS:
        return me == (int)(pair % 256) % n ? (int)(pair / 256 % 256) % n : -1;
    default:
        return order[me];
    }
}

static void draw_messages(struct fuzz_rank *rank, struct drawing *drawing, struct fuzz_rng *rng,
                          const struct fuzz_call *first)
{
    static const int n_messages[N_PATTERNS] = {1, 1, 2, FUZZ_MAX_MESSAGES, FUZZ_MAX_MESSAGES};
    const int n = first->comm->n_ranks, me = first->comm->rank;
    enum pattern pattern =
        drawing->is_grouped ? (enum pattern)fuzz_below(rng, N_PATTERNS) : ONE_PAIR;
    if (drawing->is_divided)
        pattern = ANY_PAIRS;
    const uint64_t holes = fuzz_next(rng);
    int order[FUZZ_MAX_RANKS];
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        const int other = (int)fuzz_below(rng, (uint64_t)i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (int number = 0; number < n_messages[pattern]; number++) {
        struct fuzz_call call = *first;
        call.count = draw_count(rng, first);
        call.values.key += (uint64_t)number * UINT64_C(0x100000001b3);
        call.to = target(pattern, order, holes, number, me, n);
        for (int peer = 0; peer < n; peer++)
            if (target(pattern, order, holes, number, peer, n) == me)
                call.from = peer;
        call.n_send = call.to >= 0 ? call.count : 0;
        call.n_recv = call.from >= 0 ? call.count : 0;
        if (call.to < 0 && call.from < 0)
            continue;
        fuzz_place(rank, &call, rng);
        rank->calls[rank->n_calls++] = call;
    }
}

/* Ranks choose their streams by themselves; half of the groups have one. Calls of several
 * communicators in one graph share a stream: CUDA may run branches one after the other, in an order
 * that differs between ranks. */
static int draw_stream(struct fuzz_rank *rank, const struct drawing *drawing)
{
    const int own = (int)fuzz_below(&rank->own, FUZZ_N_STREAMS);
    const int stream = drawing->has_one_stream ? drawing->stream : own;
    if (rank->n_replays == 0)
        return stream;
    return rank->is_of_one_comm && rank->streams[stream] != NULL ? stream : 0;
}

static enum fuzz_fate find_fate(const struct drawing *drawing)
{
    if (drawing->is_canceled)
        return FUZZ_CANCELED;
    return fuzz_options_makes(drawing->index) ? FUZZ_MADE : FUZZ_LEFT_OUT;
}

static void draw_call(struct fuzz_rank *rank, struct drawing *drawing, const struct fuzz_comm *comm,
                      struct fuzz_rng *rng)
{
    struct fuzz_call call = {.comm = comm,
                             .index = drawing->index,
                             .fate = find_fate(drawing),
                             .chain = -1,
                             .to = -1,
                             .from = -1};
    const uint64_t kind = fuzz_below(rng, FUZZ_N_COLLECTIVES + 1); /* messages: twice as often */
    const bool may_send = drawing->has_messages && (drawing->is_grouped || comm->n_ranks > 1);
    call.kind = kind < FUZZ_SEND_RECV ? (enum fuzz_collective)kind : FUZZ_SEND_RECV;
    if (drawing->is_divided)
        call.kind = FUZZ_SEND_RECV;
    else if (call.kind == FUZZ_SEND_RECV && !may_send)
        call.kind = FUZZ_ALL_REDUCE;
    draw_operation(rng, &call);
    call.root = (int)fuzz_below(rng, (uint64_t)comm->n_ranks);
    call.has_in_place =
        call.kind != FUZZ_ALL_TO_ALL && call.kind != FUZZ_SEND_RECV && fuzz_once_in(rng, 3);
    call.stream = draw_stream(rank, drawing);
    if (call.kind == FUZZ_SEND_RECV) {
        draw_messages(rank, drawing, rng, &call);
        return;
    }
    call.count = draw_count(rng, &call);
    const bool may_chain = fuzz_once_in(rng, 3) && !call.has_in_place;
    if (may_chain && (call.kind == FUZZ_BROADCAST || call.kind == FUZZ_ALL_GATHER))
        chain(rank, drawing, &call);
    /* As gyre.h defines them. */
    const size_t all = call.count * (size_t)call.comm->n_ranks;
    const bool is_root = call.comm->rank == call.root;
    call.n_send = call.n_recv = call.count;
    switch (call.kind) {
    case FUZZ_BROADCAST:
        call.n_send = is_root ? call.count : 0;
        break;
    case FUZZ_REDUCE:
        call.n_recv = is_root || call.has_in_place ? call.count : 0;
        break;
    case FUZZ_ALL_GATHER:
        call.n_recv = all;
        break;
    case FUZZ_REDUCE_SCATTER:
        call.n_send = all;
        break;
    case FUZZ_ALL_TO_ALL:
        call.n_send = call.n_recv = all;
        break;
    case FUZZ_GATHER:
        call.n_recv = is_root ? all : 0;
        break;
    case FUZZ_SCATTER:
        call.n_send = is_root ? all : 0;
        break;
    default:
        break;
    }
    call.is_in_place =
        call.has_in_place && (is_root || (call.kind != FUZZ_GATHER && call.kind != FUZZ_SCATTER));
    fuzz_place(rank, &call, rng);
    rank->calls[rank->n_calls++] = call;
}

static void draw_group(struct fuzz_rank *rank, struct drawing *drawing, struct fuzz_group *group)
{
    struct fuzz_rng *rng = &drawing->rng;
    const int n_calls = 1 + (int)fuzz_below(rng, FUZZ_MAX_GROUP_CALLS);
    *group = (struct fuzz_group){.first = rank->n_calls};
    group->is_grouped = !fuzz_once_in(rng, 4);
    group->is_nested = fuzz_once_in(rng, 5) && group->is_grouped;
    group->is_canceled = fuzz_once_in(rng, 24) && group->is_grouped;
    /* gyre.h forbids this on GPUs. */
    group->is_divided = fuzz_once_in(rng, 5) && group->is_grouped && !group->is_canceled &&
                        rank->n_replays == 0 && rank->device->kind == GYRE_DEVICE_HOST;
    drawing->is_divided = group->is_divided;
    drawing->is_grouped = group->is_grouped;
    drawing->is_canceled = group->is_canceled;
    drawing->has_messages = fuzz_once_in(rng, group->is_grouped ? 2 : 4);
    drawing->has_several_comms =
        fuzz_once_in(rng, 2) && !rank->is_of_one_comm && !group->is_divided;
    drawing->has_one_stream = fuzz_once_in(&rank->own, 2);
    drawing->stream = (int)fuzz_below(&rank->own, FUZZ_N_STREAMS);
    drawing->first_of_group = rank->n_calls;
    const bool is_of_world = !fuzz_once_in(rng, 3);
    const int slot = (int)fuzz_below(rng, FUZZ_N_SLOTS);
    if (!rank->is_of_one_comm)
        drawing->only_slot = is_of_world ? 0 : slot;
    for (int i = 0; i < n_calls; i++) {
        const int any = fuzz_once_in(rng, 2) ? (int)fuzz_below(rng, FUZZ_N_SLOTS) : 0;
        const struct fuzz_comm *comm =
            &rank->comms[drawing->has_several_comms ? any : drawing->only_slot];
        struct fuzz_rng of_comm = {fuzz_mix(fuzz_next(rng) ^ comm->uid)};
        if (comm->handle != NULL)
            draw_call(rank, drawing, comm, &of_comm);
        drawing->index++;
    }
    group->n_calls = rank->n_calls - group->first;
}

long fuzz_draw_round(struct fuzz_rank *rank, struct fuzz_rng rng, long index)
{
    struct drawing drawing = {.index = index};
    const bool is_graph = fuzz_once_in(&rng, 6);
    const int n_replays = 1 + (int)fuzz_below(&rng, 3);
    drawing.only_slot = (int)fuzz_below(&rng, FUZZ_N_SLOTS);
    rank->is_of_one_comm = fuzz_once_in(&rng, 4);
    rank->n_replays = is_graph && rank->device->has_graphs ? n_replays : 0;
    rank->n_groups = 1 + (int)fuzz_below(&rng, FUZZ_MAX_GROUPS);
    rank->n_calls = 0;
    atomic_store(&rank->issuing, -1);
    fuzz_place_nothing(rank);
    drawing.rng = rng;
    for (int i = 0; i < rank->n_groups; i++)
        draw_group(rank, &drawing, &rank->groups[i]);
    return drawing.index;
}
