/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/host/host_exec.h"

#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"
#include "core/foundation/model/line.h"

#include <string.h>

/* Slots of LL between hosts, into which a NIC or the proxy writes lines. Steps work on plain bytes.
 */
static uint64_t *words_of(const struct gyre_host_end *end)
{
    return (uint64_t *)(void *)(end->slots + (size_t)end->slot * end->slot_bytes);
}

bool gyre_host_lines_arrived(struct gyre_host_end *end, uint64_t n_bytes)
{
    const uint64_t flag = gyre_ll_flag(end->n_moved);
    const uint64_t n_words = 2ULL * gyre_ll_lines(n_bytes);
    const uint64_t *words = words_of(end);
    /* Each word carries its flag, so loads need no order. */
    while (end->n_seen < n_words && gyre_load_relaxed_u64(&words[end->n_seen]) >> 32 == flag)
        end->n_seen++;
    return end->n_seen >= n_words;
}

void gyre_host_lines_unpack(const struct gyre_host_end *end, unsigned char *to, uint64_t n_bytes)
{
    const uint64_t *words = words_of(end);
    const uint64_t n_whole = n_bytes / sizeof(uint32_t);
    uint32_t data;
    for (uint64_t i = 0; i < n_whole; i++) {
        data = (uint32_t)gyre_load_relaxed_u64(&words[i]);
        memcpy(to + i * sizeof(data), &data, sizeof(data));
    }
    if (n_bytes % sizeof(data) != 0) {
        data = (uint32_t)gyre_load_relaxed_u64(&words[n_whole]);
        memcpy(to + n_whole * sizeof(data), &data, n_bytes % sizeof(data));
    }
}

void gyre_host_lines_send(const struct gyre_host_end *end, const unsigned char *from,
                          uint64_t n_bytes)
{
    const uint64_t flag = (uint64_t)gyre_ll_flag(end->n_moved) << 32;
    const uint32_t n_lines = gyre_ll_lines(n_bytes);
    const uint64_t n_whole = n_bytes / sizeof(uint32_t);
    uint64_t *words = words_of(end);
    uint32_t data;
    for (uint64_t i = 0; i < n_whole; i++) {
        memcpy(&data, from + i * sizeof(data), sizeof(data));
        gyre_store_relaxed_u64(&words[i], flag | data);
    }
    for (uint64_t i = n_whole; i < 2ULL * n_lines; i++) {
        data = 0;
        if (i * sizeof(data) < n_bytes)
            memcpy(&data, from + i * sizeof(data), n_bytes % sizeof(data));
        gyre_store_relaxed_u64(&words[i], flag | data);
    }
    gyre_store_release_u64(&end->inbox->slot_info[GYRE_FIRST_LINE_INFO + end->slot],
                           gyre_ll_announcement(end->n_moved, n_lines));
}

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
    end->n_seen = gyre_load_acquire_u64(&end->credit->head[end->proto]);
    return end->n_moved - end->n_seen < end->depth;
}

/* A sender must not place data earlier. */
static bool has_receiver_entered(const struct gyre_host_end *end)
{
    return gyre_load_acquire_u64(&end->credit->head[GYRE_HEAD_ENTERED]) > end->n_entry;
}

void gyre_host_enter(struct gyre_host_runner *runner)
{
    if (!runner->work->loaded->is_placed || runner->has_entered)
        return;
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

bool gyre_host_has_room(const struct gyre_step *step, struct gyre_host_end *const *ends)
{
    for (uint32_t i = 0; i < step->n_outs; i++)
        if (step->outs[i].kind == GYRE_OPERAND_CONNECTION &&
            (!has_credit(ends[step->outs[i].index]) ||
             (step->outs[i].is_placed && !has_receiver_entered(ends[step->outs[i].index]))))
            return false;
    return true;
}

/* Records the peer. Slots of LL have no signature. */
static bool fits(const struct gyre_step *step, struct gyre_host_end *const *ends, uint64_t info,
                 uint32_t *peer_out)
{
    for (uint32_t i = 0; i < step->n_ins; i++) {
        if (step->ins[i].kind != GYRE_OPERAND_CONNECTION)
            continue;
        const struct gyre_host_end *end = ends[step->ins[i].index];
        if (end->proto == GYRE_PROTO_SIMPLE &&
            gyre_load_relaxed_u64(&end->inbox->slot_info[end->slot]) != info) {
            *peer_out = end->peer;
            return false;
        }
    }
    return true;
}

struct piece {
    uint32_t index;
    struct gyre_range range;
    uint64_t slot_skip_bytes;
};

/* Pieces lie as far apart in a slot as tiles are long. */
static struct piece piece_of(const struct gyre_host_runner *runner, const struct gyre_step *step,
                             uint32_t index)
{
    const struct gyre_host_work *work = runner->work;
    const uint32_t chunk =
        gyre_step_part(step, step->chunk, index, work->loaded->n_parts[GYRE_OPERAND_SCRATCH]);
    return (struct piece){.index = index,
                          .range =
                              gyre_tile_range(&work->split, runner->channel, chunk, runner->tile),
                          .slot_skip_bytes = (uint64_t)index * work->split.tile_elems *
                                             gyre_dtype_bytes((gyre_dtype)work->reduction.dtype)};
}

static uint64_t piece_bytes(const struct gyre_host_runner *runner, const struct piece *piece)
{
    return piece->range.n_elems * gyre_dtype_bytes((gyre_dtype)runner->work->reduction.dtype);
}

static unsigned char *local_address(const struct gyre_host_runner *runner,
                                    const struct gyre_step *step,
                                    const struct gyre_operand *operand, const struct piece *piece)
{
    const struct gyre_host_work *own = runner->work;
    const struct gyre_work *work = &own->work;
    const struct gyre_loaded *loaded = own->loaded;
    const uint32_t part =
        gyre_step_part(step, operand->index, piece->index, loaded->n_parts[operand->kind]);
    if (operand->kind == GYRE_OPERAND_SCRATCH)
        return runner->scratch + (size_t)part * loaded->area_bytes;
    const bool is_in = operand->kind == GYRE_OPERAND_IN;
    uint64_t first = piece->range.first_elem;
    if (is_in ? loaded->in_blocks : loaded->out_blocks) {
        const uint32_t block = loaded->n_chunks == 1 ? part : part / loaded->n_chunks;
        first += (loaded->names == NULL ? block : loaded->names[block]) * own->split.count;
    }
    const uint64_t skip_bytes = first * gyre_dtype_bytes((gyre_dtype)own->reduction.dtype);
    /* IN is only read, but operands have one address type. */
    return (is_in ? (unsigned char *)(uintptr_t)work->in : (unsigned char *)work->out) + skip_bytes;
}

static unsigned char *unpacked_address(const struct gyre_host_executor *executor, uint32_t operand)
{
    return executor->unpacked + (size_t)operand * executor->line_payload_bytes;
}

static unsigned char *slot_address(const struct gyre_host_executor *executor,
                                   const struct gyre_host_end *end, uint32_t operand,
                                   const struct piece *piece)
{
    unsigned char *slot = end->proto == GYRE_PROTO_LL
                              ? unpacked_address(executor, operand)
                              : end->slots + (size_t)end->slot * end->slot_bytes;
    return slot + piece->slot_skip_bytes;
}

/* In this rank's OUT for an input, in the peer's for an output. */
static unsigned char *placed_address(const struct gyre_host_runner *runner,
                                     const struct gyre_step *step,
                                     const struct gyre_operand *operand, const struct piece *piece,
                                     bool is_out)
{
    const struct gyre_work *work = &runner->work->work;
    const struct gyre_operand out = {GYRE_OPERAND_OUT, 0, step->chunk};
    unsigned char *here = local_address(runner, step, &out, piece);
    if (!is_out)
        return here;
    const uint32_t peer = runner->ends[operand->index]->peer;
    return (unsigned char *)work->placement->bases[peer] + work->out_offset_bytes +
           (here - (unsigned char *)work->out);
}

static void fill_call(const struct gyre_host_executor *executor,
                      const struct gyre_host_runner *runner, const struct gyre_step *step,
                      const struct piece *piece, struct gyre_reduce_step *call)
{
    const struct gyre_reduction *reduction = &runner->work->reduction;
    call->reduction = reduction;
    call->n_ins = step->n_ins;
    call->n_outs = step->n_outs;
    call->premultiply_mask = 0;
    call->divide = (step->flags & GYRE_STEP_FINAL) != 0 && reduction->divisor > 1;
    call->n_elems = piece->range.n_elems;
    for (uint32_t i = 0; i < step->n_ins; i++) {
        const struct gyre_operand *in = &step->ins[i];
        if (in->is_placed)
            call->ins[i] = placed_address(runner, step, in, piece, false);
        else if (in->kind == GYRE_OPERAND_CONNECTION)
            call->ins[i] = slot_address(executor, runner->ends[in->index], i, piece);
        else
            call->ins[i] = local_address(runner, step, in, piece);
        if (in->kind == GYRE_OPERAND_IN && reduction->premultiply)
            call->premultiply_mask |= 1U << i;
    }
    for (uint32_t i = 0; i < step->n_outs; i++) {
        const struct gyre_operand *out = &step->outs[i];
        if (out->is_placed)
            call->outs[i] = placed_address(runner, step, out, piece, true);
        else if (out->kind == GYRE_OPERAND_CONNECTION)
            call->outs[i] =
                slot_address(executor, runner->ends[out->index], GYRE_STEP_MAX_INS + i, piece);
        else
            call->outs[i] = local_address(runner, step, out, piece);
    }
}

/* Does each operand lie right behind `call`'s? */
static bool follows(const struct gyre_reduce_step *call, const struct gyre_reduce_step *next,
                    uint64_t call_bytes)
{
    for (uint32_t i = 0; i < call->n_ins; i++)
        if ((const unsigned char *)call->ins[i] + call_bytes != next->ins[i])
            return false;
    for (uint32_t i = 0; i < call->n_outs; i++)
        if ((unsigned char *)call->outs[i] + call_bytes != next->outs[i])
            return false;
    return true;
}

static void reduce(const struct gyre_host_executor *executor, const struct gyre_host_runner *runner,
                   const struct gyre_step *step)
{
    const struct piece first = piece_of(runner, step, 0);
    struct gyre_reduce_step call, next;
    uint64_t call_bytes = piece_bytes(runner, &first);
    fill_call(executor, runner, step, &first, &call);
    for (uint32_t i = 1; i < step->n_chunks; i++) {
        const struct piece piece = piece_of(runner, step, i);
        const uint64_t next_bytes = piece_bytes(runner, &piece);
        if (next_bytes == 0)
            continue;
        fill_call(executor, runner, step, &piece, &next);
        if (call_bytes > 0 && follows(&call, &next, call_bytes)) {
            call.n_elems += next.n_elems;
            call_bytes += next_bytes;
            continue;
        }
        if (call_bytes > 0)
            gyre_reduce_run(&call);
        call = next;
        call_bytes = next_bytes;
    }
    if (call_bytes > 0)
        gyre_reduce_run(&call);
}

static uint64_t step_bytes(const struct gyre_host_runner *runner, const struct gyre_step *step)
{
    const struct piece last = piece_of(runner, step, step->n_chunks - 1U);
    return last.slot_skip_bytes + piece_bytes(runner, &last);
}

bool gyre_host_has_arrived(const struct gyre_host_runner *runner, const struct gyre_operand *in)
{
    const struct gyre_step *step = &runner->steps[runner->step];
    struct gyre_host_end *end = runner->ends[in->index];
    if (end->proto != GYRE_PROTO_LL)
        return has_arrived(end);
    return gyre_host_lines_arrived(end, step_bytes(runner, step));
}

bool gyre_host_has_data(const struct gyre_host_runner *runner)
{
    const struct gyre_step *step = &runner->steps[runner->step];
    for (uint32_t i = 0; i < step->n_ins; i++)
        if (step->ins[i].kind == GYRE_OPERAND_CONNECTION &&
            !gyre_host_has_arrived(runner, &step->ins[i]))
            return false;
    return true;
}

static void advance(struct gyre_host_end *end)
{
    end->n_moved++;
    end->slot = end->slot + 1 == end->depth ? 0 : end->slot + 1;
}

/* Tails first: waiting for data holds a peer up more than waiting for credit. */
static uint32_t publish(const struct gyre_host_executor *executor, const struct gyre_step *step,
                        struct gyre_host_end *const *ends, uint64_t info)
{
    uint32_t n_moved = 0;
    for (uint32_t i = 0; i < step->n_outs; i++) {
        if (step->outs[i].kind != GYRE_OPERAND_CONNECTION)
            continue;
        struct gyre_host_end *end = ends[step->outs[i].index];
        n_moved++;
        if (end->proto == GYRE_PROTO_LL) {
            gyre_host_lines_send(end, unpacked_address(executor, GYRE_STEP_MAX_INS + i),
                                 info & UINT32_MAX);
            advance(end);
            continue;
        }
        gyre_store_relaxed_u64(&end->inbox->slot_info[end->slot], info);
        advance(end);
        gyre_store_release_u64(&end->inbox->tail[GYRE_PROTO_SIMPLE], end->n_moved);
    }
    for (uint32_t i = 0; i < step->n_ins; i++) {
        if (step->ins[i].kind != GYRE_OPERAND_CONNECTION)
            continue;
        struct gyre_host_end *end = ends[step->ins[i].index];
        advance(end);
        if (end->proto == GYRE_PROTO_LL)
            end->n_seen = 0;
        gyre_store_release_u64(&end->credit->head[end->proto], end->n_moved);
        n_moved++;
    }
    return n_moved;
}

bool gyre_host_step_try(struct gyre_host_executor *executor, struct gyre_host_runner *runner,
                        uint64_t *n_bytes_out)
{
    const struct gyre_step *step = &runner->steps[runner->step];
    const struct gyre_work *work = &runner->work->work;
    gyre_host_enter(runner);
    if (runner->is_stuck || !gyre_host_has_data(runner) || !gyre_host_has_room(step, runner->ends))
        return false;
    const uint64_t n_bytes = step_bytes(runner, step);
    const uint64_t info = gyre_slot_info((uint32_t)n_bytes, work->signature);
    struct gyre_progress *progress = executor->progress;
    uint32_t peer = 0;
    if (!fits(step, runner->ends, info, &peer)) {
        runner->is_stuck = true;
        if (progress->mismatch == 0)
            gyre_store_release_u64(&progress->mismatch, (uint64_t)peer + 1);
        return false;
    }
    if (n_bytes > 0 && step->n_outs > 0) {
        for (uint32_t i = 0; i < step->n_ins; i++)
            if (step->ins[i].kind == GYRE_OPERAND_CONNECTION &&
                runner->ends[step->ins[i].index]->proto == GYRE_PROTO_LL)
                gyre_host_lines_unpack(runner->ends[step->ins[i].index],
                                       unpacked_address(executor, i), n_bytes);
        reduce(executor, runner, step);
    }
    const uint32_t n_moved = publish(executor, step, runner->ends, info);
    gyre_store_release_u64(&progress->activity, progress->activity + n_moved);
    if (++runner->step == runner->n_steps) {
        runner->step = 0;
        runner->tile++;
    }
    *n_bytes_out = gyre_max_u64(n_bytes * (step->n_ins + step->n_outs), 1);
    return true;
}
