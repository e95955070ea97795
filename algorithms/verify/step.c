/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/verify/machine.h"

#include "core/foundation/base/status.h"

#include <string.h>

static uint32_t part_of(const struct gyre_verify_act *act, struct gyre_operand operand)
{
    const uint32_t n_parts =
        gyre_program_n_parts(act->program, (enum gyre_operand_kind)operand.kind);
    return gyre_step_part(act->step, operand.index, act->access.piece, n_parts);
}

static struct gyre_verify_fifo *fifo_at(const struct gyre_verify_run *run, uint32_t number)
{
    return (struct gyre_verify_fifo *)(void *)&run->fifos[number * run->fifo_bytes];
}

/* @number: from the first slot that was sent. */
static struct gyre_verify_slot *slot_at(const struct gyre_verify_run *run,
                                        struct gyre_verify_fifo *fifo, uint32_t number)
{
    char *first = (char *)(fifo + 1);
    return (struct gyre_verify_slot *)(void *)&first[number % run->depth * run->slot_bytes];
}

static uint32_t chunk_of_piece(const struct gyre_verify_act *act)
{
    return gyre_step_part(act->step, act->step->chunk, act->access.piece,
                          gyre_program_n_parts(act->program, GYRE_OPERAND_SCRATCH));
}

static gyre_status receive(struct gyre_verify_act *act, struct gyre_operand operand,
                           const struct gyre_content **contents_out)
{
    const uint32_t number = act->fifo_of[operand.index];
    struct gyre_verify_run *run = act->run;
    struct gyre_verify_fifo *fifo = fifo_at(run, number);
    const struct gyre_verify_slot *slot = slot_at(run, fifo, fifo->n_received);
    if (slot->n_chunks != act->step->n_chunks)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "gets %u chunks from rank %u, expects %u",
                         slot->n_chunks, run->network->fifos[number].from, act->step->n_chunks);
    const struct gyre_step sent = {.run = slot->run, .stride = slot->stride};
    const uint32_t n_parts = gyre_program_n_parts(act->program, GYRE_OPERAND_SCRATCH);
    const uint32_t n_chunks = act->program->n_chunks;
    bool is_same_range = true;
    for (uint32_t i = 0; i < slot->n_chunks && n_chunks > 1; i++)
        is_same_range =
            is_same_range && gyre_step_part(&sent, slot->chunk, i, n_parts) % n_chunks ==
                                 gyre_step_part(act->step, act->step->chunk, i, n_parts) % n_chunks;
    if (slot->tile != act->access.tile || !is_same_range)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "gets chunk %u of tile %u from rank %u, expects chunk %u of tile %u",
                         slot->chunk, slot->tile, run->network->fifos[number].from,
                         act->step->chunk, act->access.tile);
    if (slot->is_placed != (operand.is_placed != 0))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "rank %u %s what this step expects %s",
                         run->network->fifos[number].from, slot->is_placed ? "places" : "sends",
                         slot->is_placed ? "in the slot" : "in place");
    if (slot->snapshot != GYRE_NO_SNAPSHOT) {
        if (!gyre_verify_needs_clocks(run))
            gyre_clocks_release(run->clocks, slot->snapshot);
        else if (!gyre_clocks_receive(run->clocks, &act->access.view, slot->snapshot))
            return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for the verifier's clocks");
    }
    fifo->received_at[fifo->n_received % GYRE_VERIFY_REMEMBERED] = act->access.time;
    fifo->n_received++;
    *contents_out = slot->contents;
    if (slot->is_placed) {
        const struct gyre_operand out = {GYRE_OPERAND_OUT, 0, act->step->chunk};
        const struct gyre_content announced = slot->contents[0];
        struct gyre_content content;
        GYRE_TRY(gyre_verify_read(run->memory, &act->access, out, &content));
        if (content.value != announced.value || content.chunk != announced.chunk ||
            content.tile != announced.tile)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "what was placed in out %u was overwritten", act->step->chunk);
    }
    return GYRE_SUCCESS;
}

static gyre_status read_input(struct gyre_verify_act *act, uint32_t i,
                              struct gyre_content *content_out)
{
    const struct gyre_verify_run *run = act->run;
    struct gyre_operand operand = act->step->ins[i];
    if (operand.kind == GYRE_OPERAND_CONNECTION) {
        if (act->access.piece == 0)
            GYRE_TRY(receive(act, operand, &act->received[i]));
        *content_out = act->received[i][act->access.piece];
        return GYRE_SUCCESS;
    }
    const uint32_t index = part_of(act, operand);
    if (operand.kind == GYRE_OPERAND_SCRATCH) {
        const uint32_t chunk = chunk_of_piece(act);
        const struct gyre_verify_scratch *scratch =
            &run->scratches[run->first_scratch[act->access.rank] + index];
        if (scratch->content.value == GYRE_NO_VALUE || scratch->tile != act->access.tile)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "reads scratch %u before it is written in this tile", index);
        if (scratch->chunk % act->program->n_chunks != chunk % act->program->n_chunks)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "reads scratch %u, written for chunk %u, for chunk %u", index,
                             scratch->chunk, chunk);
        *content_out = scratch->content;
        return GYRE_SUCCESS;
    }
    operand.index = (uint16_t)index;
    GYRE_TRY(gyre_verify_read(run->memory, &act->access, operand, content_out));
    if (operand.kind == GYRE_OPERAND_IN)
        *content_out = (struct gyre_content){gyre_values_input(act->access.rank), operand.index,
                                             (uint16_t)act->access.tile};
    return GYRE_SUCCESS;
}

/* FINAL is set where a result first holds all contributions. */
static gyre_status compute(const struct gyre_verify_act *act, const struct gyre_content *ins,
                           struct gyre_content *result_out)
{
    const struct gyre_step *step = act->step;
    struct gyre_values *values = act->run->values;
    const struct gyre_collective_traits *coll = &gyre_collectives[act->program->coll];
    const bool is_final = (step->flags & GYRE_STEP_FINAL) != 0;
    uint32_t numbers[GYRE_STEP_MAX_INS], n_alike = 1;
    if (step->n_ins > 1 && !coll->reduces)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "reduces in %s", coll->name);
    for (uint32_t i = 0; i < step->n_ins; i++)
        numbers[i] = ins[i].value;
    *result_out = ins[0];
    if (step->n_ins > 1 || is_final) {
        while (n_alike < step->n_ins && ins[n_alike].chunk == ins[0].chunk &&
               ins[n_alike].tile == ins[0].tile)
            n_alike++;
        switch (gyre_values_reduce(values, numbers, n_alike, is_final, &result_out->value)) {
        case GYRE_VALUE_FINE:
            break;
        case GYRE_VALUE_TWICE:
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "counts a contribution twice");
        case GYRE_VALUE_NO_MEMORY:
            return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for the verifier's values");
        }
        if (n_alike < step->n_ins)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "reduces contributions of different chunks or tiles");
    }
    const bool was_final = gyre_values_get(values, numbers[0])->is_final;
    const uint32_t n_ranks_in = gyre_values_get(values, result_out->value)->n_ranks_in;
    const bool is_whole = n_ranks_in == act->program->n_ranks;
    if (is_final && was_final)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "is final, but its input already was");
    if (is_final && !is_whole)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "is final, but holds the contributions of %u ranks of %u", n_ranks_in,
                         act->program->n_ranks);
    if (!is_final && !was_final && is_whole && coll->reduces)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "holds all contributions, but is not final");
    return GYRE_SUCCESS;
}

bool gyre_verify_receives(const struct gyre_step *step)
{
    for (uint32_t i = 0; i < step->n_ins; i++)
        if (step->ins[i].kind == GYRE_OPERAND_CONNECTION)
            return true;
    return false;
}

static gyre_status send_outputs(struct gyre_verify_act *act)
{
    struct gyre_verify_run *run = act->run;
    const struct gyre_step *step = act->step;
    uint32_t n_sends = 0, snapshot = GYRE_NO_SNAPSHOT;
    for (uint32_t i = 0; i < step->n_outs; i++)
        n_sends += step->outs[i].kind == GYRE_OPERAND_CONNECTION;
    if (n_sends > 0 && gyre_verify_needs_clocks(run)) {
        /* Simultaneous steps that receive nothing know the same, so they share a snapshot. */
        const bool is_shared = !act->is_alone && !gyre_verify_receives(step);
        if (is_shared && act->shared != GYRE_NO_SNAPSHOT) {
            gyre_clocks_share(run->clocks, act->shared, n_sends);
            snapshot = act->shared;
        } else {
            snapshot = gyre_clocks_snapshot(run->clocks, &act->access.view, n_sends);
            act->shared = is_shared ? snapshot : act->shared;
        }
        if (snapshot == GYRE_NO_SNAPSHOT)
            return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for the verifier's clocks");
    }
    for (uint32_t i = 0; i < step->n_outs; i++) {
        if (step->outs[i].kind != GYRE_OPERAND_CONNECTION)
            continue;
        const uint32_t number = act->fifo_of[step->outs[i].index];
        const struct gyre_network_fifo *ends = &run->network->fifos[number];
        struct gyre_verify_fifo *fifo = fifo_at(run, number);
        struct gyre_verify_slot *slot = slot_at(run, fifo, fifo->n_sent);
        slot->snapshot = snapshot;
        slot->tile = (uint16_t)act->access.tile;
        slot->chunk = step->chunk;
        slot->n_chunks = step->n_chunks;
        slot->run = step->run;
        slot->stride = step->stride;
        slot->is_placed = step->outs[i].is_placed != 0;
        memcpy(slot->contents, run->results, slot->n_chunks * sizeof(*run->results));
        if (run->credits_elidable && fifo->n_sent >= GYRE_VERIFY_REMEMBERED) {
            const uint32_t reused = fifo->n_sent - GYRE_VERIFY_REMEMBERED;
            run->credits_elidable =
                fifo->n_received > reused &&
                gyre_view_is_after(run->clocks, &act->access.view, ends->receiver,
                                   fifo->received_at[reused % GYRE_VERIFY_REMEMBERED]);
        }
        fifo->n_sent++;
        if (slot->is_placed)
            GYRE_TRY(gyre_verify_write(run->memory, &act->access, ends->to, step->chunk,
                                       run->results[0]));
    }
    return GYRE_SUCCESS;
}

gyre_status gyre_verify_step(struct gyre_verify_act *act)
{
    const struct gyre_verify_run *run = act->run;
    const struct gyre_step *step = act->step;
    struct gyre_access *access = &act->access;
    for (access->piece = 0; access->piece < step->n_chunks; access->piece++) {
        struct gyre_content ins[GYRE_STEP_MAX_INS], result;
        for (uint32_t i = 0; i < step->n_ins; i++)
            GYRE_TRY(read_input(act, i, &ins[i]));
        GYRE_TRY(compute(act, ins, &result));
        for (uint32_t i = 0; i < step->n_outs; i++) {
            if (step->outs[i].kind == GYRE_OPERAND_CONNECTION)
                continue;
            const uint32_t part = part_of(act, step->outs[i]);
            if (step->outs[i].kind == GYRE_OPERAND_OUT)
                GYRE_TRY(gyre_verify_write(run->memory, access, access->rank, part, result));
            else
                run->scratches[run->first_scratch[access->rank] + part] =
                    (struct gyre_verify_scratch){result, (uint16_t)chunk_of_piece(act),
                                                 (uint16_t)access->tile};
        }
        run->results[access->piece] = result;
    }
    access->piece = 0;
    return send_outputs(act);
}
