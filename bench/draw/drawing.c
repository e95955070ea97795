/* SPDX-License-Identifier: Apache-2.0
 *
 * FIFOs keep their order, so the n-th slot received is the n-th sent.
 */
#include "bench/draw/drawing.h"

#include "core/foundation/base/status.h"
#include "core/foundation/base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gyre_status open_steps(struct bench_drawing *drawing)
{
    uint64_t n_steps = 0;
    drawing->n_parts = 1;
    for (uint32_t rank = 0; rank < drawing->n_ranks; rank++) {
        const struct gyre_program *program = drawing->programs[rank];
        const uint32_t n_in = gyre_program_n_parts(program, GYRE_OPERAND_IN);
        const uint32_t n_out = gyre_program_n_parts(program, GYRE_OPERAND_OUT);
        if (program->rank != rank || program->n_ranks != drawing->n_ranks)
            return gyre_fail(
                GYRE_ERROR_INVALID_ARGUMENT,
                "program %u of %u is of rank %u of %u ranks: each rank has one program, in "
                "the order of the ranks",
                rank, drawing->n_ranks, program->rank, program->n_ranks);
        if (program->coll != drawing->programs[0]->coll)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "rank %u runs %s, rank 0 runs %s", rank,
                             gyre_collectives[program->coll].name,
                             gyre_collectives[drawing->programs[0]->coll].name);
        if (program->names != NULL)
            return gyre_fail(
                GYRE_ERROR_UNSUPPORTED,
                "%s names its blocks, which draw cannot show; schedule --rounds prints them",
                program->algorithm);
        n_steps += program->n_steps;
        drawing->n_parts = n_in > drawing->n_parts ? n_in : drawing->n_parts;
        drawing->n_parts = n_out > drawing->n_parts ? n_out : drawing->n_parts;
    }
    if (n_steps > BENCH_DRAW_MAX_STEPS)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "%llu steps of %u ranks are too many to draw (at most %u): give fewer "
                         "ranks",
                         (unsigned long long)n_steps, drawing->n_ranks, BENCH_DRAW_MAX_STEPS);
    drawing->first_step = calloc(drawing->n_ranks + 1, sizeof(*drawing->first_step));
    drawing->steps = calloc(n_steps + 1, sizeof(*drawing->steps));
    if (drawing->first_step == NULL || drawing->steps == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a drawing");
    for (uint32_t rank = 0; rank < drawing->n_ranks; rank++)
        drawing->first_step[rank + 1] =
            drawing->first_step[rank] + drawing->programs[rank]->n_steps;
    for (uint64_t i = 0; i < n_steps; i++)
        drawing->steps[i].round = BENCH_DRAW_NEVER;
    return GYRE_SUCCESS;
}

/* Out of place, then in place; keeps the first refusal. */
static gyre_status verify(struct bench_drawing *drawing)
{
    for (int i = 0; i < 2; i++) {
        const struct gyre_verify_options options = {.in_place = i == 1};
        struct gyre_verify_report report;
        const gyre_status status =
            gyre_verify(drawing->programs, (int)drawing->n_ranks, &options, &report);
        if (status == GYRE_ERROR_OUT_OF_MEMORY)
            return status;
        drawing->is_proved = status == GYRE_SUCCESS;
        drawing->is_wrong_in_place_only = !drawing->is_proved && i == 1;
        if (i == 0 || !drawing->is_proved)
            drawing->report = report;
        if (!drawing->is_proved)
            break;
    }
    return GYRE_SUCCESS;
}

_Static_assert(BENCH_DRAW_NOTHING == GYRE_NO_VALUE, "values have the verifier's numbers");

struct slot {
    uint32_t value;
    uint32_t next; /* 0 = last */
};

struct fifo {
    uint32_t first; /* 0 = empty */
    uint32_t last;
};

struct known {
    uint32_t stored;
    uint32_t next; /* 0 = none */
};

struct walk {
    struct bench_drawing *drawing;
    struct gyre_values *values;
    struct known *known; /* by value, number 0 is unused */
    uint32_t known_capacity;
    uint32_t *newest; /* value by number in the verifier's store, 0 = none */
    uint32_t newest_capacity;
    struct bench_draw_state state;
    uint32_t n_lanes;
    struct fifo *fifos; /* by (from, to, lane) */
    struct slot *slots; /* number 0 is unused */
    uint32_t n_slots, slots_capacity;
    uint32_t n_scratch;
    uint32_t *scratch;     /* [rank][n_scratch] */
    uint32_t *first_input; /* by rank: value of IN(0), others follow */
};

static gyre_status reserve(void *array, uint32_t *capacity, uint64_t n, size_t elem_bytes)
{
    return gyre_grow(array, capacity, n, elem_bytes)
               ? GYRE_SUCCESS
               : gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a drawing");
}

/* Makes `value` the newest of @stored, its number in the verifier's store. */
static gyre_status add_value(struct walk *walk, uint32_t stored, struct bench_draw_value value,
                             uint32_t *value_out)
{
    struct bench_drawing *drawing = walk->drawing;
    const uint32_t number = drawing->n_values + 1;
    GYRE_TRY(
        reserve(&drawing->values, &drawing->values_capacity, number, sizeof(*drawing->values)));
    GYRE_TRY(reserve(&walk->known, &walk->known_capacity, number + 1ULL, sizeof(*walk->known)));
    drawing->values[number - 1] = value;
    walk->known[number] = (struct known){stored, walk->newest[stored]};
    walk->newest[stored] = number;
    drawing->n_values = number;
    *value_out = number;
    return GYRE_SUCCESS;
}

/* The store numbers values in order. */
static gyre_status reserve_newest(struct walk *walk, uint32_t stored)
{
    const uint32_t n_before = walk->newest_capacity;
    GYRE_TRY(reserve(&walk->newest, &walk->newest_capacity, stored + 1ULL, sizeof(*walk->newest)));
    memset(&walk->newest[n_before], 0, (walk->newest_capacity - n_before) * sizeof(*walk->newest));
    return GYRE_SUCCESS;
}

static gyre_status reduce(struct walk *walk, const struct gyre_step *step, const uint32_t *ins,
                          uint32_t *value_out)
{
    const bool is_final = (step->flags & GYRE_STEP_FINAL) != 0;
    struct bench_drawing *drawing = walk->drawing;
    const struct bench_draw_value *values = drawing->values;
    uint32_t stored, operands[GYRE_STEP_MAX_INS];
    *value_out = step->n_ins == 0 ? BENCH_DRAW_NOTHING : ins[0];
    for (uint32_t i = 0; i < step->n_ins; i++) {
        if (ins[i] == BENCH_DRAW_NOTHING || ins[0] == BENCH_DRAW_NOTHING ||
            values[ins[i] - 1].chunk != values[ins[0] - 1].chunk) {
            *value_out = BENCH_DRAW_NOTHING;
            return GYRE_SUCCESS;
        }
        operands[i] = walk->known[ins[i]].stored;
    }
    if (step->n_ins == 0 || (step->n_ins == 1 && !is_final))
        return GYRE_SUCCESS;
    switch (gyre_values_reduce(walk->values, operands, step->n_ins, is_final, &stored)) {
    case GYRE_VALUE_FINE:
        break;
    case GYRE_VALUE_NO_MEMORY:
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for the values of a drawing");
    default: /* a contribution twice */
        *value_out = BENCH_DRAW_NOTHING;
        return GYRE_SUCCESS;
    }
    const struct bench_draw_value value = {.chunk = values[ins[0] - 1].chunk,
                                           .first_operand = drawing->n_operands,
                                           .n_operands = step->n_ins,
                                           .is_final =
                                               gyre_values_get(walk->values, stored)->is_final};
    GYRE_TRY(reserve_newest(walk, stored));
    for (*value_out = walk->newest[stored]; *value_out != 0;
         *value_out = walk->known[*value_out].next)
        if (values[*value_out - 1].chunk == value.chunk)
            return GYRE_SUCCESS;
    GYRE_TRY(reserve(&drawing->operands, &drawing->operands_capacity,
                     (uint64_t)drawing->n_operands + step->n_ins, sizeof(*drawing->operands)));
    for (uint32_t i = 0; i < step->n_ins; i++)
        drawing->operands[drawing->n_operands++] = ins[i];
    return add_value(walk, stored, value, value_out);
}

static struct fifo *fifo_of(const struct walk *walk, uint32_t rank, struct gyre_operand operand)
{
    const struct gyre_connection *c = &walk->drawing->programs[rank]->connections[operand.index];
    const size_t from = c->is_send ? rank : c->peer, to = c->is_send ? c->peer : rank;
    return &walk->fifos[(from * walk->drawing->n_ranks + to) * walk->n_lanes + c->lane];
}

static uint32_t read_operand(struct walk *walk, uint32_t rank, struct gyre_operand operand)
{
    const struct bench_drawing *drawing = walk->drawing;
    switch (operand.kind) {
    case GYRE_OPERAND_IN:
        return walk->first_input[rank] == BENCH_DRAW_NOTHING
                   ? BENCH_DRAW_NOTHING
                   : walk->first_input[rank] + operand.index;
    case GYRE_OPERAND_OUT:
        return walk->state.out[(size_t)rank * drawing->n_parts + operand.index];
    case GYRE_OPERAND_SCRATCH:
        return walk->scratch[(size_t)rank * walk->n_scratch + operand.index];
    default: {
        struct fifo *fifo = fifo_of(walk, rank, operand);
        const struct slot *slot = &walk->slots[fifo->first];
        fifo->first = slot->next;
        return slot->value;
    }
    }
}

static gyre_status run_steps(void *context, const struct gyre_round_steps *steps)
{
    struct walk *walk = context;
    struct bench_drawing *drawing = walk->drawing;
    const uint32_t rank = steps->rank, end = steps->first_step + steps->n_steps;
    drawing->n_rounds = steps->round + 1;
    for (uint32_t number = steps->first_step; number < end; number++) {
        const struct gyre_step *step = &drawing->programs[rank]->steps[number];
        struct bench_draw_step *drawn = &drawing->steps[drawing->first_step[rank] + number];
        uint32_t ins[GYRE_STEP_MAX_INS];
        for (uint32_t i = 0; i < step->n_ins; i++)
            ins[i] = read_operand(walk, rank, step->ins[i]);
        drawn->round = steps->round;
        GYRE_TRY(reduce(walk, step, ins, &drawn->value));
        for (uint32_t i = 0; i < step->n_outs; i++) {
            const struct gyre_operand operand = step->outs[i];
            if (operand.kind == GYRE_OPERAND_SCRATCH)
                walk->scratch[(size_t)rank * walk->n_scratch + operand.index] = drawn->value;
            if (operand.kind != GYRE_OPERAND_CONNECTION)
                continue;
            GYRE_TRY(reserve(&walk->slots, &walk->slots_capacity, (uint64_t)walk->n_slots + 1,
                             sizeof(*walk->slots)));
            struct fifo *fifo = fifo_of(walk, rank, operand);
            walk->slots[walk->n_slots] = (struct slot){.value = drawn->value};
            if (fifo->first == 0)
                fifo->first = walk->n_slots;
            else
                walk->slots[fifo->last].next = walk->n_slots;
            fifo->last = walk->n_slots++;
        }
        bench_draw_apply(drawing, rank, number, &walk->state);
    }
    return GYRE_SUCCESS;
}

static gyre_status run_walk(struct walk *walk)
{
    struct bench_drawing *drawing = walk->drawing;
    const size_t n = drawing->n_ranks;
    for (uint32_t rank = 0; rank < n; rank++) {
        walk->n_lanes = (uint32_t)gyre_max_u64(walk->n_lanes, drawing->programs[rank]->n_lanes);
        walk->n_scratch =
            (uint32_t)gyre_max_u64(walk->n_scratch, drawing->programs[rank]->n_scratch);
    }
    walk->fifos = calloc(n * n * walk->n_lanes, sizeof(*walk->fifos));
    walk->scratch = calloc(n * walk->n_scratch + 1, sizeof(*walk->scratch));
    walk->first_input = calloc(n, sizeof(*walk->first_input));
    walk->n_slots = 1;
    if (walk->fifos == NULL || walk->first_input == NULL || walk->scratch == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a drawing of %zu ranks", n);
    GYRE_TRY(gyre_values_open(drawing->n_ranks, false, &walk->values));
    for (uint32_t rank = 0; rank < drawing->n_ranks; rank++) {
        const struct gyre_program *program = drawing->programs[rank];
        if (!gyre_verify_owns_in(program))
            continue;
        for (uint32_t i = 0; i < gyre_program_n_parts(program, GYRE_OPERAND_IN); i++) {
            const uint32_t stored = gyre_values_input(rank);
            uint32_t value;
            GYRE_TRY(reserve_newest(walk, stored));
            GYRE_TRY(add_value(walk, stored, (struct bench_draw_value){.chunk = i, .rank = rank},
                               &value));
            if (i == 0)
                walk->first_input[rank] = value;
        }
    }
    GYRE_TRY(bench_draw_state_open(drawing, &walk->state));
    return gyre_rounds_walk(drawing->programs, (int)n, run_steps, walk, &drawing->is_stuck);
}

/* Fills in rounds, values and operands of the steps. */
static gyre_status walk_programs(struct bench_drawing *drawing)
{
    struct walk walk = {.drawing = drawing, .n_lanes = 1};
    const gyre_status status = run_walk(&walk);
    gyre_values_close(walk.values);
    free(walk.known);
    free(walk.newest);
    bench_draw_state_close(&walk.state);
    free(walk.fifos);
    free(walk.slots);
    free(walk.scratch);
    free(walk.first_input);
    return status;
}

gyre_status bench_drawing_open(const struct gyre_program *const *programs, int n_ranks,
                               const struct gyre_grouping *grouping,
                               struct bench_drawing *drawing_out)
{
    struct bench_drawing drawing = {
        .programs = programs, .grouping = grouping, .n_ranks = (uint32_t)n_ranks};
    gyre_status status = open_steps(&drawing);
    if (status == GYRE_SUCCESS)
        status = walk_programs(&drawing);
    if (status == GYRE_SUCCESS)
        status = verify(&drawing);
    if (status == GYRE_SUCCESS)
        status = bench_draw_find_places(&drawing);
    if (status == GYRE_SUCCESS)
        *drawing_out = drawing;
    else
        bench_drawing_close(&drawing);
    return status;
}

void bench_drawing_close(struct bench_drawing *drawing)
{
    free(drawing->first_step);
    free(drawing->steps);
    free(drawing->values);
    free(drawing->operands);
    free(drawing->places);
    free(drawing->times.steps);
}

gyre_status bench_draw_title(const struct bench_drawing *drawing, char **title_out)
{
    const struct gyre_program *program = drawing->programs[0];
    size_t n_bytes = 0;
    char *title = NULL;
    FILE *file = open_memstream(&title, &n_bytes);
    if (file == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a title");
    fprintf(file, "%s %s, %u rank%s", program->algorithm, gyre_collectives[program->coll].name,
            drawing->n_ranks, drawing->n_ranks == 1 ? "" : "s");
    if (drawing->grouping != NULL && drawing->grouping->n_hosts > 1)
        fprintf(file, " on %u hosts", drawing->grouping->n_hosts);
    if (gyre_collectives[program->coll].has_root)
        fprintf(file, ", root %u", program->root);
    if (drawing->variant > 0)
        fprintf(file, ", variant %u", drawing->variant);
    if (fclose(file) != 0) {
        free(title);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a title");
    }
    *title_out = title;
    return GYRE_SUCCESS;
}

gyre_status bench_draw_state_open(const struct bench_drawing *drawing,
                                  struct bench_draw_state *state_out)
{
    const size_t n = (size_t)drawing->n_ranks * drawing->n_parts;
    state_out->now = calloc(n, sizeof(*state_out->now));
    state_out->out = calloc(n, sizeof(*state_out->out));
    if (state_out->now == NULL || state_out->out == NULL) {
        bench_draw_state_close(state_out);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a drawing of %zu chunks", n);
    }
    for (uint32_t i = 0; i < drawing->n_values && drawing->values[i].n_operands == 0; i++) {
        const struct bench_draw_value *value = &drawing->values[i];
        const struct gyre_collective_traits *traits =
            &gyre_collectives[drawing->programs[value->rank]->coll];
        const uint32_t part = traits->out_blocks && !traits->in_blocks ? value->rank : value->chunk;
        state_out->now[(size_t)value->rank * drawing->n_parts + part] = i + 1;
    }
    return GYRE_SUCCESS;
}

void bench_draw_state_close(struct bench_draw_state *state)
{
    free(state->now);
    free(state->out);
    state->now = state->out = NULL;
}

void bench_draw_apply(const struct bench_drawing *drawing, uint32_t rank, uint32_t step_number,
                      struct bench_draw_state *state)
{
    const struct gyre_program *program = drawing->programs[rank];
    const struct gyre_step *step = &program->steps[step_number];
    const uint32_t value = drawing->steps[drawing->first_step[rank] + step_number].value;
    state->now[(size_t)rank * drawing->n_parts + step->chunk] = value;
    for (uint32_t i = 0; i < step->n_outs; i++) {
        const struct gyre_operand operand = step->outs[i];
        if (operand.kind == GYRE_OPERAND_OUT)
            state->out[(size_t)rank * drawing->n_parts + operand.index] = value;
        else if (operand.is_placed != 0)
            state->out[(size_t)program->connections[operand.index].peer * drawing->n_parts +
                       step->chunk] = value;
    }
}

uint32_t bench_draw_contributors(const struct bench_drawing *drawing, uint32_t value, bool *has)
{
    if (value == BENCH_DRAW_NOTHING)
        return 0;
    const struct bench_draw_value *known = &drawing->values[value - 1];
    uint32_t n = 0;
    if (known->n_operands == 0) {
        has[known->rank] = true;
        return 1;
    }
    for (uint32_t i = 0; i < known->n_operands; i++)
        n += bench_draw_contributors(drawing, drawing->operands[known->first_operand + i], has);
    return n;
}

bool bench_draw_is_done(const struct bench_drawing *drawing, uint32_t rank, uint32_t chunk,
                        uint32_t value)
{
    const struct gyre_program *program = drawing->programs[rank];
    const struct gyre_expectation expect = gyre_verify_expect(program, chunk);
    if (value == BENCH_DRAW_NOTHING || !expect.is_owned ||
        chunk >= gyre_program_n_parts(program, GYRE_OPERAND_OUT))
        return false;
    const struct bench_draw_value *known = &drawing->values[value - 1];
    if (known->chunk != expect.chunk)
        return false;
    if (!expect.from_all)
        return known->n_operands == 0 && known->rank == expect.source;
    bool *has = calloc(drawing->n_ranks, sizeof(*has));
    if (has == NULL)
        return false; /* a picture only loses a mark */
    const bool is_whole =
        known->is_final && bench_draw_contributors(drawing, value, has) == drawing->n_ranks;
    free(has);
    return is_whole;
}
