/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host/host_exec.h"

#include "core/foundation/base/sync.h"

#include <string.h>

/* In the executor's order of checks. */
static const struct gyre_host_end *find_wait(const struct gyre_host_runner *runner,
                                             struct gyre_position *position)
{
    const struct gyre_step *step = &runner->steps[runner->step];
    for (uint32_t i = 0; i < step->n_ins; i++) {
        if (step->ins[i].kind != GYRE_OPERAND_CONNECTION)
            continue;
        /* A receiver of LL sees only the next slot. */
        const struct gyre_operand *in = &step->ins[i];
        const struct gyre_host_end *end = runner->ends[in->index];
        position->slot = end->n_moved;
        position->waits_for = GYRE_WAIT_SLOT;
        if (end->proto == GYRE_PROTO_LL)
            position->n_seen = end->n_moved + (gyre_host_has_arrived(runner, in) ? 1 : 0);
        else
            position->n_seen = gyre_load_acquire_u64(&end->inbox->tail[GYRE_PROTO_SIMPLE]);
        if (position->n_seen <= position->slot)
            return runner->ends[step->ins[i].index];
    }
    for (uint32_t i = 0; i < step->n_outs; i++) {
        if (step->outs[i].kind != GYRE_OPERAND_CONNECTION)
            continue;
        const struct gyre_host_end *end = runner->ends[step->outs[i].index];
        if (end->n_moved >= end->depth) {
            position->slot = end->n_moved - end->depth;
            position->n_seen = gyre_load_acquire_u64(&end->credit->head[end->proto]);
            position->waits_for = GYRE_WAIT_CREDIT;
            if (position->n_seen <= position->slot)
                return end;
        }
        if (step->outs[i].is_placed && runner->has_entered) {
            position->slot = end->n_entry;
            position->n_seen = gyre_load_acquire_u64(&end->credit->head[GYRE_HEAD_ENTERED]);
            position->waits_for = GYRE_WAIT_ENTRY;
            if (position->n_seen <= position->slot)
                return end;
        }
    }
    position->waits_for = GYRE_WAIT_NOTHING;
    position->slot = 0;
    position->n_seen = 0;
    return NULL;
}

static void describe(const struct gyre_host_launch *launch, const struct gyre_host_runner *runner,
                     struct gyre_position *position)
{
    const struct gyre_host_executor *executor = launch->executor;
    const struct gyre_loaded *loaded = runner->work->loaded;
    memset(position, 0, sizeof(*position));
    position->sequence = runner->work->work.sequence;
    position->tile = runner->tile;
    position->n_tiles = runner->n_tiles;
    position->step = runner->step;
    position->n_steps = runner->n_steps;
    position->work = (uint16_t)(runner->work - launch->works);
    position->channel = (uint16_t)runner->channel;
    position->worker = (uint16_t)runner->worker;
    position->coll = loaded->coll;
    memcpy(position->algorithm, loaded->algorithm, sizeof(position->algorithm));
    gyre_step_to_text(&runner->steps[runner->step],
                      loaded->connections +
                          (size_t)(runner->channel % loaded->n_variants) * loaded->n_connections,
                      loaded->n_parts[GYRE_OPERAND_SCRATCH], position->step_text,
                      sizeof(position->step_text));
    if (runner->is_stuck) { /* only the first such peer was recorded */
        const uint64_t mismatch = gyre_load_acquire_u64(&executor->progress->mismatch);
        position->waits_for = GYRE_WAIT_FIT;
        position->peer = (uint16_t)(mismatch > 0 ? mismatch - 1 : 0);
        return;
    }
    const struct gyre_host_end *end = find_wait(runner, position);
    if (end != NULL) {
        position->peer = end->peer;
        position->is_lines = end->proto == GYRE_PROTO_LL;
        position->fifo = end->fifo;
    }
}

/* The last runner replaces a finished one, so they lie out of order. */
static bool comes_before(const struct gyre_host_runner *a, const struct gyre_host_runner *b)
{
    if (a->work != b->work)
        return a->work < b->work;
    return a->channel != b->channel ? a->channel < b->channel : a->worker < b->worker;
}

static const struct gyre_host_runner *next_runner(const struct gyre_host_launch *launch,
                                                  const struct gyre_host_runner *after)
{
    const struct gyre_host_runner *next = NULL;
    for (uint32_t i = 0; i < launch->n_runners; i++) {
        const struct gyre_host_runner *runner = &launch->runners[i];
        if ((after == NULL || comes_before(after, runner)) &&
            (next == NULL || comes_before(runner, next)))
            next = runner;
    }
    return next;
}

gyre_status gyre_host_positions(struct gyre_executor *base, struct gyre_position *positions_out,
                                uint32_t most, uint32_t *n_out)
{
    struct gyre_host_executor *executor = (struct gyre_host_executor *)base;
    pthread_mutex_lock(&executor->poll_lock);
    const struct gyre_host_launch *launch = executor->is_closed ? NULL : executor->running;
    const struct gyre_host_runner *runner = NULL;
    for (uint32_t n = 0; launch != NULL && n < launch->n_runners && n < most; n++) {
        runner = next_runner(launch, runner);
        describe(launch, runner, &positions_out[n]);
    }
    *n_out = launch == NULL ? 0 : launch->n_runners;
    pthread_mutex_unlock(&executor->poll_lock);
    return GYRE_SUCCESS;
}

static bool uses(const struct gyre_host_runner *runner, const struct gyre_host_end *end)
{
    for (uint32_t s = 0; s < runner->n_steps; s++) {
        const struct gyre_step *step = &runner->steps[s];
        for (uint32_t i = 0; i < step->n_ins; i++)
            if (step->ins[i].kind == GYRE_OPERAND_CONNECTION &&
                runner->ends[step->ins[i].index] == end)
                return true;
        for (uint32_t i = 0; i < step->n_outs; i++)
            if (step->outs[i].kind == GYRE_OPERAND_CONNECTION &&
                runner->ends[step->outs[i].index] == end)
                return true;
    }
    return false;
}

gyre_status gyre_host_side_state(struct gyre_executor *base, const struct gyre_side_name *name,
                                 struct gyre_side_state *state_out)
{
    struct gyre_host_executor *executor = (struct gyre_host_executor *)base;
    struct gyre_side_state state = {0};
    if (name->peer >= executor->n_ranks || name->fifo >= executor->spec.n_fifos ||
        (name->is_lines && executor->line_ends == NULL))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "rank %d has no FIFO %u with rank %u",
                         executor->rank, name->fifo, name->peer);
    const struct gyre_host_end *end =
        (name->is_lines ? executor->line_ends : executor->ends) +
        gyre_connector_index(&executor->spec, name->peer, name->fifo, name->is_send);
    pthread_mutex_lock(&executor->poll_lock);
    const struct gyre_host_launch *launch = executor->is_closed ? NULL : executor->running;
    state.n_moved = end->n_moved;
    for (uint32_t i = 0; launch != NULL && i < launch->n_runners && !state.is_held; i++) {
        const struct gyre_host_runner *runner = &launch->runners[i];
        if (!uses(runner, end))
            continue;
        state.is_held = true;
        state.work = (uint16_t)(runner->work - launch->works);
        state.channel = (uint16_t)runner->channel;
        state.worker = (uint16_t)runner->worker;
    }
    pthread_mutex_unlock(&executor->poll_lock);
    *state_out = state;
    return GYRE_SUCCESS;
}
