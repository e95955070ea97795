/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs one step of one worker: checks that all slots are available and belong to this call, reduces
 * directly from incoming slots and local chunks to outgoing slots and the local chunk, publishes
 * the outgoing slots, and returns credit for the incoming ones.
 */
#include "kernels/host/host_exec.h"

#include "core/base/sync.h"
#include "core/base/util.h"
#include "kernels/host/reduce.h"

static bool has_arrived(struct gyre_host_end *end)
{
    if (end->n_seen > end->n_moved)
        return true;
    end->n_seen = gyre_load_acquire_u64(&end->inbox->tail[GYRE_PROTO_SIMPLE]);
    return end->n_seen > end->n_moved;
}

static bool has_credit(struct gyre_host_end *end)
{
    if (end->n_moved - end->n_seen < end->depth)
        return true;
    end->n_seen = gyre_load_acquire_u64(&end->credit->head[GYRE_PROTO_SIMPLE]);
    return end->n_moved - end->n_seen < end->depth;
}

/* A sender may place data when the receiver has entered the same call. */
static bool has_receiver_entered(const struct gyre_host_end *end)
{
    return gyre_load_acquire_u64(&end->credit->head[GYRE_HEAD_ENTERED]) > end->n_entry;
}

/* Tell the peers that place data into this rank's OUT that they may write it. Once for each work.
 */
static void enter(struct gyre_host_runner *runner)
{
    for (uint32_t s = 0; s < runner->n_steps; s++) {
        const struct gyre_step *step = &runner->steps[s];
        for (uint32_t i = 0; i < step->n_outs; i++)
            if (step->outs[i].is_placed)
                runner->ends[step->outs[i].index]->n_entry =
                    runner->ends[step->outs[i].index]->n_moved;
        if (!step->ins[0].is_placed)
            continue;
        struct gyre_host_end *end = runner->ends[step->ins[0].index];
        gyre_store_release_u64(&end->credit->head[GYRE_HEAD_ENTERED], end->n_moved + 1);
    }
    runner->has_entered = true;
}

static bool is_ready(const struct gyre_step *step, struct gyre_host_end *const *ends)
{
    for (uint32_t i = 0; i < step->n_ins; i++)
        if (step->ins[i].kind == GYRE_OPERAND_CONNECTION && !has_arrived(ends[step->ins[i].index]))
            return false;
    for (uint32_t i = 0; i < step->n_outs; i++)
        if (step->outs[i].kind == GYRE_OPERAND_CONNECTION &&
            (!has_credit(ends[step->outs[i].index]) ||
             (step->outs[i].is_placed && !has_receiver_entered(ends[step->outs[i].index]))))
            return false;
    return true;
}

/* Does every incoming slot have this call's signature and size? If not, record the peer. */
static bool fits(const struct gyre_step *step, struct gyre_host_end *const *ends, uint64_t info,
                 uint32_t *peer_out)
{
    for (uint32_t i = 0; i < step->n_ins; i++) {
        if (step->ins[i].kind != GYRE_OPERAND_CONNECTION)
            continue;
        const struct gyre_host_end *end = ends[step->ins[i].index];
        if (gyre_load_relaxed_u64(&end->inbox->slot_info[end->slot]) != info) {
            *peer_out = end->peer;
            return false;
        }
    }
    return true;
}

/* The address at which a local operand's part of the step begins. @range: of the step's chunk. */
static unsigned char *local_address(const struct gyre_host_runner *runner,
                                    const struct gyre_operand *operand, struct gyre_range range,
                                    uint16_t step_chunk)
{
    const struct gyre_work *work = &runner->work->work;
    const struct gyre_loaded *loaded = work->loaded;
    if (operand->kind == GYRE_OPERAND_SCRATCH)
        return runner->scratch + (size_t)operand->index * loaded->area_bytes;
    const bool is_in = operand->kind == GYRE_OPERAND_IN;
    uint64_t first = range.first_elem;
    if (is_in ? loaded->in_blocks : loaded->out_blocks)
        first += operand->index * work->split.count;
    else if (operand->index != step_chunk)
        first =
            gyre_tile_range(&work->split, runner->channel, operand->index, runner->tile).first_elem;
    const uint64_t skip_bytes = first * gyre_dtype_bytes((gyre_dtype)work->reduction.dtype);
    /* IN is only read, but all operands have one type of address. */
    return (is_in ? (unsigned char *)(uintptr_t)work->in : (unsigned char *)work->out) + skip_bytes;
}

static unsigned char *slot_address(const struct gyre_host_end *end)
{
    return end->slots + (size_t)end->slot * end->slot_bytes;
}

/* The address of placed data: the step's chunk in this rank's OUT, or for an output in the peer's.
 */
static unsigned char *placed_address(const struct gyre_host_runner *runner,
                                     const struct gyre_operand *operand, struct gyre_range range,
                                     uint16_t step_chunk, bool is_out)
{
    const struct gyre_work *work = &runner->work->work;
    const struct gyre_operand out = {GYRE_OPERAND_OUT, 0, step_chunk};
    unsigned char *here = local_address(runner, &out, range, step_chunk);
    if (!is_out)
        return here;
    const uint32_t peer = runner->ends[operand->index]->peer;
    return (unsigned char *)work->placement->bases[peer] + work->out_offset_bytes +
           (here - (unsigned char *)work->out);
}

static void reduce(const struct gyre_host_runner *runner, const struct gyre_step *step,
                   struct gyre_range range)
{
    const struct gyre_reduction *reduction = &runner->work->work.reduction;
    struct gyre_reduce_step call;
    call.reduction = reduction;
    call.n_ins = step->n_ins;
    call.n_outs = step->n_outs;
    call.premultiply_mask = 0;
    call.divide = (step->flags & GYRE_STEP_FINAL) != 0 && reduction->divisor > 1;
    call.n_elems = range.n_elems;
    for (uint32_t i = 0; i < step->n_ins; i++) {
        const struct gyre_operand *in = &step->ins[i];
        if (in->is_placed)
            call.ins[i] = placed_address(runner, in, range, step->chunk, false);
        else if (in->kind == GYRE_OPERAND_CONNECTION)
            call.ins[i] = slot_address(runner->ends[in->index]);
        else
            call.ins[i] = local_address(runner, in, range, step->chunk);
        if (in->kind == GYRE_OPERAND_IN && reduction->premultiply)
            call.premultiply_mask |= 1U << i;
    }
    for (uint32_t i = 0; i < step->n_outs; i++) {
        const struct gyre_operand *out = &step->outs[i];
        if (out->is_placed)
            call.outs[i] = placed_address(runner, out, range, step->chunk, true);
        else if (out->kind == GYRE_OPERAND_CONNECTION)
            call.outs[i] = slot_address(runner->ends[out->index]);
        else
            call.outs[i] = local_address(runner, out, range, step->chunk);
    }
    gyre_reduce_run(&call);
}

static void advance(struct gyre_host_end *end)
{
    end->n_moved++;
    end->slot = end->slot + 1 == end->depth ? 0 : end->slot + 1;
}

/* Publish outgoing slots and return credit. Tails are written first, because a peer that waits for
 * data is held up more than one that waits for credit. Returns how many slots moved. */
static uint32_t publish(const struct gyre_step *step, struct gyre_host_end *const *ends,
                        uint64_t info)
{
    uint32_t n_moved = 0;
    for (uint32_t i = 0; i < step->n_outs; i++) {
        if (step->outs[i].kind != GYRE_OPERAND_CONNECTION)
            continue;
        struct gyre_host_end *end = ends[step->outs[i].index];
        gyre_store_relaxed_u64(&end->inbox->slot_info[end->slot], info);
        advance(end);
        gyre_store_release_u64(&end->inbox->tail[GYRE_PROTO_SIMPLE], end->n_moved);
        n_moved++;
    }
    for (uint32_t i = 0; i < step->n_ins; i++) {
        if (step->ins[i].kind != GYRE_OPERAND_CONNECTION)
            continue;
        struct gyre_host_end *end = ends[step->ins[i].index];
        advance(end);
        gyre_store_release_u64(&end->credit->head[GYRE_PROTO_SIMPLE], end->n_moved);
        n_moved++;
    }
    return n_moved;
}

bool gyre_host_step_try(struct gyre_host_executor *executor, struct gyre_host_runner *runner,
                        uint64_t *n_bytes_out)
{
    const struct gyre_step *step = &runner->steps[runner->step];
    const struct gyre_work *work = &runner->work->work;
    if (work->loaded->is_placed && !runner->has_entered)
        enter(runner);
    if (runner->is_stuck || !is_ready(step, runner->ends))
        return false;
    const struct gyre_range range =
        gyre_tile_range(&work->split, runner->channel, step->chunk, runner->tile);
    const uint64_t n_bytes = range.n_elems * gyre_dtype_bytes((gyre_dtype)work->reduction.dtype);
    const uint64_t info = gyre_slot_info((uint32_t)n_bytes, work->signature);
    struct gyre_progress *progress = executor->progress;
    uint32_t peer = 0;
    if (!fits(step, runner->ends, info, &peer)) {
        runner->is_stuck = true;
        if (progress->mismatch == 0)
            gyre_store_release_u64(&progress->mismatch, (uint64_t)peer + 1);
        return false;
    }
    if (n_bytes > 0 && step->n_outs > 0)
        reduce(runner, step, range);
    const uint32_t n_moved = publish(step, runner->ends, info);
    gyre_store_release_u64(&progress->activity, progress->activity + n_moved);
    if (++runner->step == runner->n_steps) {
        runner->step = 0;
        runner->tile++;
    }
    *n_bytes_out = gyre_max_u64(n_bytes * (step->n_ins + step->n_outs), 1);
    return true;
}
