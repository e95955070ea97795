/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/host/position.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"

#include <stdlib.h>
#include <string.h>

/* `number`: among the worker's connections. */
struct user {
    const struct gyre_cuda_known_work *work;
    const struct gyre_cuda_worker *worker;
    const struct gyre_cuda_connection *connection;
    uint32_t channel;
    uint32_t worker_number;
    uint32_t number;
};

static const void *blob_at(const struct gyre_cuda_program *blob, uint32_t offset)
{
    return (const unsigned char *)blob + offset;
}

static bool find_user(const struct gyre_cuda_standstill *still, uint32_t index,
                      struct user *user_out)
{
    for (uint32_t n = 0; n < still->n_works; n++) {
        const struct gyre_cuda_known_work *work = &still->works[n];
        if (work->lowered == NULL)
            continue;
        const struct gyre_cuda_worker *workers =
            blob_at(work->lowered, work->lowered->workers_offset);
        const struct gyre_cuda_connection *connections =
            blob_at(work->lowered, work->lowered->connections_offset);
        for (uint32_t at = 0; at < work->n_channels * work->n_workers; at++) {
            const uint32_t channel = at / work->n_workers, w = at % work->n_workers;
            const struct gyre_cuda_worker *worker =
                &workers[channel % work->n_variants * work->n_workers + w];
            for (uint32_t i = 0; i < worker->n_connections; i++) {
                const struct gyre_cuda_connection *own = &connections[worker->first_connection + i];
                if (own->index + channel * work->channel_stride != index)
                    continue;
                *user_out = (struct user){work, worker, own, channel, w, i};
                return true;
            }
        }
    }
    return false;
}

static bool is_simple(const struct user *user)
{
    return user->work->proto == GYRE_PROTO_SIMPLE || user->connection->is_simple != 0;
}

static uint64_t count_before(const struct gyre_cuda_standstill *still, const struct user *user,
                             uint32_t index)
{
    const enum gyre_proto slots =
        is_simple(user) ? GYRE_PROTO_SIMPLE : gyre_proto_slots(user->work->proto);
    return still->counters[(size_t)slots * still->n_ends + index];
}

static uint64_t count_moved(const struct user *user)
{
    return (uint64_t)user->connection->n_uses * user->work->n_tiles;
}

/* Only SIMPLE's waits are reported. */
static bool is_polled(const struct gyre_cuda_standstill *still, uint32_t index, uint64_t address,
                      enum gyre_wait *waits_for_out)
{
    const struct gyre_connector *end = &still->connectors[index];
    const struct gyre_credit *credit = end->credit;
    *waits_for_out = GYRE_WAIT_SLOT;
    if ((index & 1) == 0) /* receiver side (gyre_connector_index()) */
        return address == (uint64_t)(uintptr_t)&end->inbox->tail[GYRE_PROTO_SIMPLE];
    *waits_for_out = address == (uint64_t)(uintptr_t)&credit->head[GYRE_PROTO_SIMPLE]
                         ? GYRE_WAIT_CREDIT
                         : GYRE_WAIT_ENTRY;
    return *waits_for_out == GYRE_WAIT_CREDIT ||
           address == (uint64_t)(uintptr_t)&credit->head[GYRE_HEAD_ENTERED];
}

static const struct gyre_cuda_step *steps_of(const struct user *user)
{
    const struct gyre_cuda_program *blob = user->work->lowered;
    return (const struct gyre_cuda_step *)blob_at(blob, blob->steps_offset) +
           user->worker->first_step;
}

static bool is_end(const struct gyre_cuda_step *step, uint32_t i, bool is_out, uint32_t number)
{
    const uint32_t mask = is_out ? step->send_mask : step->recv_mask;
    const struct gyre_cuda_operand *operand = is_out ? &step->outs[i] : &step->ins[i];
    return (mask >> i & 1) != 0 && (operand->ref & (GYRE_CUDA_REF_PLACED - 1)) == (uint16_t)number;
}

/* @number: of a connection of its worker. */
static uint32_t count_uses(const struct gyre_cuda_step *step, uint32_t number)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < step->n_ins; i++)
        n += is_end(step, i, false, number);
    for (uint32_t i = 0; i < step->n_outs; i++)
        n += is_end(step, i, true, number);
    return n;
}

static uint32_t find_step(const struct user *user, uint32_t use)
{
    uint32_t n_before = 0, step = 0;
    for (; step + 1 < user->worker->n_steps; step++) {
        n_before += count_uses(&steps_of(user)[step], user->number);
        if (n_before > use)
            break;
    }
    return step;
}

/* The first step that places data by it. */
static uint32_t find_entry(const struct user *user)
{
    uint32_t step = 0;
    for (; step + 1 < user->worker->n_steps; step++) {
        const struct gyre_cuda_step *own = &steps_of(user)[step];
        for (uint32_t i = 0; i < own->n_outs; i++)
            if (is_end(own, i, true, user->number) &&
                (own->outs[i].ref & GYRE_CUDA_REF_PLACED) != 0)
                return step;
    }
    return step;
}

/* With communicator ranks, which the lowered step names. */
static void describe_step(const struct gyre_cuda_standstill *still, const struct user *user,
                          struct gyre_position *position)
{
    const struct gyre_program *program =
        user->work->programs[user->channel % user->work->n_variants];
    const struct gyre_step *step =
        &program->steps[program->workers[user->worker_number].first_step + position->step];
    const struct gyre_cuda_step *lowered = &steps_of(user)[position->step];
    const struct gyre_cuda_connection *ends =
        (const struct gyre_cuda_connection *)blob_at(user->work->lowered,
                                                     user->work->lowered->connections_offset) +
        user->worker->first_connection;
    const uint32_t ends_per_rank = still->spec->n_fifos * 2;
    struct gyre_connection *named = calloc(program->n_connections + 1U, sizeof(*named));
    position->coll = (uint8_t)program->coll;
    memcpy(position->algorithm, program->algorithm, sizeof(position->algorithm));
    if (named == NULL)
        return;
    memcpy(named, program->connections, program->n_connections * sizeof(*named));
    for (uint32_t i = 0; i < step->n_ins; i++)
        if (step->ins[i].kind == GYRE_OPERAND_CONNECTION)
            named[step->ins[i].index].peer =
                (uint16_t)(ends[lowered->ins[i].ref & (GYRE_CUDA_REF_PLACED - 1)].index /
                           ends_per_rank);
    for (uint32_t i = 0; i < step->n_outs; i++)
        if (step->outs[i].kind == GYRE_OPERAND_CONNECTION)
            named[step->outs[i].index].peer =
                (uint16_t)(ends[lowered->outs[i].ref & (GYRE_CUDA_REF_PLACED - 1)].index /
                           ends_per_rank);
    gyre_step_to_text(step, named, gyre_program_n_parts(program, GYRE_OPERAND_SCRATCH),
                      position->step_text, sizeof(position->step_text));
    free(named);
}

/* Fills in slot and n_seen. @n_before_out: the launch's earlier slots of this end. */
static bool find_slot(const struct gyre_cuda_standstill *still, const struct user *user,
                      uint32_t index, uint64_t value, struct gyre_position *position,
                      uint64_t *n_before_out)
{
    const uint64_t before = count_before(still, user, index);
    uint64_t number = before;
    position->slot = position->n_seen = before;
    if (position->waits_for != GYRE_WAIT_ENTRY) /* in order: the first one that is not there */
        number = position->slot = position->n_seen = value;
    if (position->waits_for == GYRE_WAIT_CREDIT)
        number += still->connectors[index].depth;
    *n_before_out = number - gyre_min_u64(number, before);
    return number >= before && *n_before_out < count_moved(user);
}

bool gyre_cuda_position(const struct gyre_cuda_standstill *still, uint64_t address, uint64_t value,
                        struct gyre_position *position_out)
{
    const uint32_t ends_per_rank = still->spec->n_fifos * 2;
    struct gyre_position position = {0};
    enum gyre_wait waits_for = GYRE_WAIT_NOTHING;
    struct user user;
    uint64_t n_before = 0;
    uint32_t index = 0, use = 0;
    while (index < still->n_ends && (still->connectors[index].inbox == NULL ||
                                     !is_polled(still, index, address, &waits_for)))
        index++;
    position.waits_for = (uint8_t)waits_for;
    if (index == still->n_ends || !find_user(still, index, &user) || !is_simple(&user) ||
        !find_slot(still, &user, index, value, &position, &n_before))
        return false;
    /* The reverse of slots_before() in device/block.cuh. */
    const uint32_t n_uses = user.connection->n_uses, n_tiles = user.work->n_tiles;
    const uint32_t n_in_flight = (uint32_t)gyre_max_u64(user.work->n_in_flight, 1);
    const uint32_t number = (uint32_t)gyre_min_u64(n_before, count_moved(&user) - 1);
    const uint32_t first = number / (n_uses * n_in_flight) * n_in_flight;
    const uint32_t in_group = number - first * n_uses;
    const uint32_t n_side = gyre_min_u32(n_in_flight, n_tiles - first);
    use = in_group / n_side;
    position.tile = first + in_group % n_side;
    position.sequence = user.work->sequence;
    position.n_tiles = user.work->n_tiles;
    position.step = waits_for == GYRE_WAIT_ENTRY ? find_entry(&user) : find_step(&user, use);
    position.n_steps = user.worker->n_steps;
    position.channel = (uint16_t)user.channel;
    position.worker = (uint16_t)user.worker_number;
    position.peer = (uint16_t)(index / ends_per_rank);
    position.fifo = (uint16_t)(index % ends_per_rank / 2);
    position.work = user.work->place;
    describe_step(still, &user, &position);
    *position_out = position;
    return true;
}

bool gyre_cuda_end_of(const struct gyre_cuda_standstill *still, uint32_t index, bool is_lines,
                      const struct gyre_position *positions, uint32_t n_positions,
                      struct gyre_side_state *state_out)
{
    struct user user;
    if (index >= still->n_ends || !find_user(still, index, &user) || is_simple(&user) == is_lines)
        return false;
    for (uint32_t i = 0; i < n_positions; i++) {
        const struct gyre_position *position = &positions[i];
        if (position->work != user.work->place || position->channel != user.channel ||
            position->worker != user.worker_number)
            continue;
        /* In this launch. Tiles in flight do a step in order, so earlier tiles have done it. */
        const uint32_t n_uses = user.connection->n_uses;
        const uint32_t n_in_flight = (uint32_t)gyre_max_u64(user.work->n_in_flight, 1);
        const uint32_t place = (uint32_t)position->tile % n_in_flight;
        const uint32_t first = (uint32_t)position->tile - place;
        const uint32_t n_side = gyre_min_u32(n_in_flight, user.work->n_tiles - first);
        uint64_t n = (uint64_t)first * n_uses;
        for (uint32_t step = 0; step < position->step; step++)
            n += (uint64_t)count_uses(&steps_of(&user)[step], user.number) * n_side;
        const uint64_t n_done =
            n + (uint64_t)count_uses(&steps_of(&user)[position->step], user.number) * place;
        *state_out = (struct gyre_side_state){
            .n_moved = count_before(still, &user, index) + n_done,
            .is_held = n_done < count_moved(&user),
            .work = position->work,
            .channel = position->channel,
            .worker = position->worker,
        };
        return true;
    }
    return false;
}

void gyre_cuda_count_slots(const struct gyre_cuda_known_work *work, uint64_t n_tiles,
                           uint32_t n_ends, uint64_t *counters)
{
    if (work->lowered == NULL)
        return;
    const struct gyre_cuda_worker *workers = blob_at(work->lowered, work->lowered->workers_offset);
    const struct gyre_cuda_connection *connections =
        blob_at(work->lowered, work->lowered->connections_offset);
    for (uint32_t channel = 0; channel < work->n_channels; channel++) {
        const struct gyre_cuda_worker *own = workers + channel % work->n_variants * work->n_workers;
        for (uint32_t w = 0; w < work->n_workers; w++)
            for (uint32_t i = 0; i < own[w].n_connections; i++) {
                const struct gyre_cuda_connection *end = &connections[own[w].first_connection + i];
                const enum gyre_proto slots =
                    end->is_simple != 0 ? GYRE_PROTO_SIMPLE : gyre_proto_slots(work->proto);
                counters[(size_t)slots * n_ends + end->index + channel * work->channel_stride] +=
                    n_tiles * end->n_uses;
            }
    }
}

struct gyre_progress gyre_cuda_mailbox_read(const struct gyre_cuda_mailbox *mailbox)
{
    const uint64_t begun = gyre_load_acquire_u64(&mailbox->begun);
    const uint32_t n_reports = (begun & 0xff) + 1;
    const uint64_t n_works = begun >> 8 & 0xff;
    const uint64_t n_before = begun >> 17;
    const uint64_t n_after = n_before + ((begun >> 16 & 1) != 0 ? n_works : 0);
    uint32_t n_ended = 0;
    while (n_ended < n_reports && gyre_load_acquire_u64(&mailbox->ended[n_ended]) >= n_after)
        n_ended++;
    return (struct gyre_progress){
        .completed = n_ended == n_reports ? n_after : n_before,
        .activity = n_before + n_works,
        .mismatch = gyre_load_acquire_u64(&mailbox->mismatch),
        .late_signal = gyre_load_acquire_u64(&mailbox->late_signal),
        .lost_signal = gyre_load_acquire_u64(&mailbox->lost_signal),
    };
}
