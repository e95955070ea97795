/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts ranges of chunks into steps that each fit a slot. A step that sends and the next one, which
 * receives, then take turns, because a rank that first sent all would wait for ever for slots that
 * its peers free only once they receive. Sends of pieces 0 to 3, and receptions:
 *
 *   s0 s1 r0 s2 r1 s3 r2 r3
 *
 * A send leads by one, so that it does not wait for the peer's slot of the same turn.
 */
#include "core/foundation/model/schedule.h"

#include "core/foundation/base/status.h"
#include "core/foundation/base/util.h"

#include <stdlib.h>
#include <string.h>

#define LEAD 1

/* Scratch is kept for tiles of all chunks. */
#define MOST_SCRATCH_BYTES ((uint64_t)8 << 20)

uint16_t gyre_program_range_for(const struct gyre_program *program, uint64_t n_bytes,
                                uint32_t n_channels, uint32_t tile_bytes)
{
    const uint64_t share = gyre_div_round_up(gyre_div_round_up(n_bytes, 16), n_channels);
    const uint64_t chunk_bytes = 16 * gyre_max_u64(gyre_div_round_up(share, program->n_chunks), 1);
    const uint64_t all_bytes =
        (uint64_t)gyre_program_n_parts(program, GYRE_OPERAND_SCRATCH) * tile_bytes;
    uint32_t range = 1;
    if (program->max_range * chunk_bytes <= tile_bytes)
        return 0;
    while (2 * range < program->max_range &&
           (2 * range * chunk_bytes <= tile_bytes || range * MOST_SCRATCH_BYTES < all_bytes))
        range *= 2;
    return (uint16_t)range;
}

uint32_t gyre_program_transfers(const struct gyre_program *program)
{
    uint32_t n_sends = 0, n_recvs = 0;
    for (uint32_t i = 0; i < program->n_steps; i++) {
        const struct gyre_step *step = &program->steps[i];
        for (uint32_t k = 0; k < step->n_outs; k++)
            n_sends += step->outs[k].kind == GYRE_OPERAND_CONNECTION;
        for (uint32_t k = 0; k < step->n_ins; k++)
            n_recvs += step->ins[k].kind == GYRE_OPERAND_CONNECTION;
    }
    return (uint32_t)gyre_max_u64(n_sends, n_recvs);
}

struct cut {
    struct gyre_program *program;
    uint32_t most;
    struct gyre_step *steps;
    uint32_t n_steps;
    uint32_t capacity;
    /* By place in memory: the last turn of the group in which a step touches it, plus 1. */
    uint32_t *read, *written;
    uint32_t n_places;
    uint8_t *is_used; /* by connection */
};

/* Piece @i begins at a chunk that is returned; @n_out: 0 = there is none. */
static uint32_t find_piece(const struct cut *cut, const struct gyre_step *step, uint32_t i,
                           uint32_t *n_out)
{
    const uint32_t run = step->stride == 0 ? step->n_chunks : step->run;
    const uint32_t length =
        cut->most < run || step->stride == 0 ? cut->most : cut->most / run * run;
    const uint32_t n_of_run = length < run ? (uint32_t)gyre_div_round_up(run, length) : 1;
    const uint32_t skip = i % n_of_run * length;
    const uint32_t first = n_of_run > 1 ? i / n_of_run * run + skip : i * length;
    uint32_t n = length;
    if (n_of_run > 1)
        n = gyre_min_u32(n, run - skip);
    *n_out = first >= step->n_chunks ? 0 : gyre_min_u32(n, step->n_chunks - first);
    return first;
}

static uint32_t part_of(const struct cut *cut, const struct gyre_step *step,
                        const struct gyre_operand *operand, uint32_t i)
{
    const uint32_t n_parts =
        gyre_program_n_parts(cut->program, (enum gyre_operand_kind)operand->kind);
    return gyre_step_part(step, operand->index, i, n_parts);
}

static bool add_piece(struct cut *cut, const struct gyre_step *step, uint32_t i)
{
    const uint32_t n_parts = gyre_program_n_parts(cut->program, GYRE_OPERAND_SCRATCH);
    uint32_t n;
    const uint32_t first = find_piece(cut, step, i, &n);
    if (n == 0)
        return true;
    if (!gyre_grow(&cut->steps, &cut->capacity, cut->n_steps + 1ULL, sizeof(*cut->steps)))
        return false;
    struct gyre_step *piece = &cut->steps[cut->n_steps++];
    *piece = *step;
    if (n == step->n_chunks)
        return true;
    piece->flags &= (uint8_t)~GYRE_STEP_WITH_NEXT;
    piece->n_chunks = (uint16_t)n;
    piece->chunk = (uint16_t)gyre_step_part(step, step->chunk, first, n_parts);
    if (n <= step->run)
        piece->run = piece->stride = 0;
    for (unsigned k = 0; k < step->n_ins; k++)
        if (step->ins[k].kind != GYRE_OPERAND_CONNECTION)
            piece->ins[k].index = (uint16_t)part_of(cut, step, &step->ins[k], first);
    for (unsigned k = 0; k < step->n_outs; k++)
        if (step->outs[k].kind != GYRE_OPERAND_CONNECTION)
            piece->outs[k].index = (uint16_t)part_of(cut, step, &step->outs[k], first);
    return true;
}

static bool has_connection(const struct gyre_operand *operands, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (operands[i].kind == GYRE_OPERAND_CONNECTION)
            return true;
    return false;
}

/* In place, IN and OUT are the same memory. */
static uint32_t place_of(const struct cut *cut, const struct gyre_step *step,
                         const struct gyre_operand *operand, uint32_t i)
{
    const struct gyre_program *program = cut->program;
    const struct gyre_collective_traits *traits = &gyre_collectives[program->coll];
    const uint32_t part = part_of(cut, step, operand, i);
    if (operand->kind == GYRE_OPERAND_SCRATCH)
        return gyre_program_n_parts(program, GYRE_OPERAND_SCRATCH) + part;
    const bool is_block = operand->kind == GYRE_OPERAND_IN
                              ? traits->out_blocks && !traits->in_blocks
                              : traits->in_blocks && !traits->out_blocks;
    return is_block ? gyre_program_chunk_of(program, program->rank) + part : part;
}

/* Do the step's accesses in @turns of its pieces come after those of the steps before? */
static bool keeps_order(struct cut *cut, const struct gyre_step *step, uint32_t first_turn)
{
    for (unsigned pass = 0; pass < 2; pass++) { /* its own pieces may run in any order */
        uint32_t n = 1;
        for (uint32_t i = 0; n > 0; i++) {
            const uint32_t turn = first_turn + i, first = find_piece(cut, step, i, &n);
            for (unsigned k = 0; k < step->n_ins + (unsigned)step->n_outs; k++) {
                const bool is_out = k >= step->n_ins;
                const struct gyre_operand *operand =
                    is_out ? &step->outs[k - step->n_ins] : &step->ins[k];
                for (uint32_t c = first; c < first + n; c++) {
                    if (operand->kind == GYRE_OPERAND_CONNECTION)
                        continue;
                    const uint32_t place = place_of(cut, step, operand, c);
                    uint32_t *last = is_out ? &cut->written[place] : &cut->read[place];
                    if (pass == 1)
                        *last = (uint32_t)gyre_max_u64(*last, turn + 1);
                    else if (cut->written[place] > turn + 1 ||
                             (is_out && cut->read[place] > turn + 1))
                        return false;
                }
            }
        }
    }
    return true;
}

static bool uses_again(struct cut *cut, const struct gyre_step *step)
{
    for (unsigned k = 0; k < step->n_ins + (unsigned)step->n_outs; k++) {
        const struct gyre_operand *operand =
            k < step->n_ins ? &step->ins[k] : &step->outs[k - step->n_ins];
        if (operand->kind == GYRE_OPERAND_CONNECTION && cut->is_used[operand->index]++ > 0)
            return true;
    }
    return false;
}

/* Steps that only send, then steps that receive. Returns how many take turns; 0 = none. */
static uint32_t find_group(struct cut *cut, const struct gyre_step *steps, uint32_t n_left,
                           uint32_t *n_sends_out)
{
    uint32_t n_sends = 0, n = 0;
    uint64_t longest = 1;
    memset(cut->read, 0, cut->n_places * sizeof(*cut->read));
    memset(cut->written, 0, cut->n_places * sizeof(*cut->written));
    memset(cut->is_used, 0, cut->program->n_connections);
    for (; n < n_left; n++) {
        const bool receives = has_connection(steps[n].ins, steps[n].n_ins);
        if (!receives && (n > n_sends || !has_connection(steps[n].outs, steps[n].n_outs)))
            break;
        if (uses_again(cut, &steps[n]) || !keeps_order(cut, &steps[n], receives ? LEAD : 0))
            break;
        n_sends += receives ? 0 : 1;
        longest = gyre_max_u64(longest, steps[n].n_chunks);
    }
    *n_sends_out = n_sends;
    return n_sends > 0 && n > n_sends && longest > cut->most ? n : 0;
}

static bool cut_worker(struct cut *cut, const struct gyre_step *steps, uint32_t n_steps)
{
    for (uint32_t s = 0; s < n_steps;) {
        uint32_t n_sends = 0;
        const uint32_t n = has_connection(steps[s].outs, steps[s].n_outs)
                               ? find_group(cut, &steps[s], n_steps - s, &n_sends)
                               : 0;
        const uint32_t n_at_once = n > 0 ? n : 1, lead = n > 0 ? LEAD : 0;
        uint64_t n_turns = 0;
        for (uint32_t k = 0; k < n_at_once; k++)
            n_turns = gyre_max_u64(n_turns, steps[s + k].n_chunks);
        for (uint32_t turn = 0; turn < n_turns + lead; turn++)
            for (uint32_t k = 0; k < n_at_once; k++) {
                const uint32_t first_turn = n > 0 && k >= n_sends ? LEAD : 0;
                if (turn >= first_turn && !add_piece(cut, &steps[s + k], turn - first_turn))
                    return false;
            }
        s += n_at_once;
    }
    return true;
}

gyre_status gyre_program_cut(struct gyre_program *program, uint32_t most_range)
{
    if (most_range == 0 || program->max_range <= most_range)
        return GYRE_SUCCESS;
    struct cut cut = {.program = program, .most = most_range};
    cut.n_places = gyre_program_n_parts(program, GYRE_OPERAND_SCRATCH) * 2U + program->n_scratch;
    cut.read = calloc(cut.n_places, sizeof(*cut.read));
    cut.written = calloc(cut.n_places, sizeof(*cut.written));
    cut.is_used = calloc(program->n_connections + 1U, 1);
    bool is_done = cut.read != NULL && cut.written != NULL && cut.is_used != NULL;
    for (uint32_t w = 0; w < program->n_workers && is_done; w++) {
        struct gyre_worker *worker = &program->workers[w];
        const uint32_t first_step = cut.n_steps;
        is_done = cut_worker(&cut, &program->steps[worker->first_step], worker->n_steps);
        *worker = (struct gyre_worker){first_step, cut.n_steps - first_step};
    }
    if (is_done) {
        struct gyre_step *uncut = program->steps;
        program->steps = cut.steps;
        cut.steps = uncut;
        program->n_steps = cut.n_steps;
        program->max_range = (uint16_t)most_range;
        program->min_depth = (uint16_t)gyre_max_u64(program->min_depth, LEAD + 1);
    }
    free(cut.read);
    free(cut.written);
    free(cut.is_used);
    free(cut.steps);
    return is_done ? gyre_program_check(program)
                   : gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to cut a program's steps");
}
