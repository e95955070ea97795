/* SPDX-License-Identifier: Apache-2.0
 *
 * The symbolic run (algorithms/verify/verify.h). For each step it follows the values that the step
 * computes and moves, and how far the step's worker knows the other workers to be. Values are in
 * values.c, chunks and their hazards in memory.c, blocking in machine.c.
 */
#include "algorithms/verify/verify.h"

#include "algorithms/verify/clocks.h"
#include "algorithms/verify/machine.h"
#include "algorithms/verify/memory.h"
#include "algorithms/verify/values.h"
#include "core/base/status.h"
#include "core/model/connector.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_REMEMBERED 2 /* credits are judged at depth 2 */

const struct gyre_verify_place gyre_verify_nowhere = {-1, -1, -1, -1, -1};

/* The chunks of a step, as in struct gyre_step. */
struct range {
    uint16_t chunk;
    uint16_t n_chunks;
    uint8_t spacing;
};

/* A slot on its way: the chunks that it carries and the sender's clock. A real slot has the byte
 * count of these chunks in its header. The values of the pieces are in run.slot_values. */
struct slot {
    uint32_t snapshot;
    uint32_t tile;
    struct range range;
    bool is_placed;
};

struct fifo {
    uint32_t n_sent;
    uint32_t n_received;
    uint32_t received_at[N_REMEMBERED]; /* the receiver's time, by slot number */
};

struct scratch {
    uint32_t value;
    uint32_t tile;
    uint16_t chunk;
};

struct run {
    struct gyre_network *network;
    uint32_t depth;
    uint32_t n_tiles;
    struct gyre_values *values;
    struct gyre_verify_memory *memory;
    struct gyre_clocks *clocks;
    struct fifo *fifos;
    struct slot *slots;      /* depth for each FIFO */
    uint32_t max_range;      /* of the programs */
    uint32_t *slot_values;   /* max_range for each slot */
    uint32_t *results;       /* of the pieces of the step at hand */
    uint32_t *first_scratch; /* of a rank; n_ranks + 1 entries */
    struct scratch *scratches;
    uint32_t *step_clock; /* of one step of several that may run at the same time */
    uint32_t *next_clock; /* of the worker after all of them */
    bool credits_elidable;
    struct gyre_verify_place place; /* of the step that is wrong */
};

/* One step being carried out. */
struct act {
    struct run *run;
    const struct gyre_program *program;
    const struct gyre_step *step;
    uint32_t worker; /* of the network */
    uint32_t *clock; /* what it knows */
    struct gyre_access access;
    const uint32_t *fifo_of;
    const uint32_t *received[GYRE_STEP_MAX_INS]; /* by input: the values of the slot's pieces */
};

/* The chunk or block that a piece of an operand is. */
static uint32_t part_of(const struct act *act, struct gyre_operand operand)
{
    const uint32_t n_parts =
        gyre_program_n_parts(act->program, (enum gyre_operand_kind)operand.kind);
    return gyre_step_part(act->step, operand.index, act->access.piece, n_parts);
}

static struct range range_of(const struct gyre_step *step)
{
    return (struct range){step->chunk, step->n_chunks, step->spacing};
}

/* Do the two ranges have tiles of the same lengths? All blocks are equally long. */
static bool is_same_range(const struct act *act, struct range range)
{
    const struct range own = range_of(act->step);
    return range.n_chunks == own.n_chunks &&
           (act->program->n_chunks == 1 ||
            (range.chunk == own.chunk && range.spacing == own.spacing));
}

/* The chunk of the vector whose tile is the piece at hand. */
static uint32_t chunk_of_piece(const struct act *act)
{
    return gyre_step_part(act->step, act->step->chunk, act->access.piece,
                          gyre_program_n_parts(act->program, GYRE_OPERAND_SCRATCH));
}

/* Check that the value in OUT is the value that the slot announced. */
static gyre_status read_placed(struct act *act, uint32_t announced)
{
    const struct gyre_operand out = {GYRE_OPERAND_OUT, 0, act->step->chunk};
    uint32_t value;
    GYRE_TRY(gyre_verify_read(act->run->memory, &act->access, out, &value));
    if (value != announced)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "what was placed in out %u was overwritten",
                         act->step->chunk);
    return GYRE_SUCCESS;
}

static gyre_status receive(struct act *act, struct gyre_operand operand,
                           const uint32_t **values_out)
{
    const uint32_t number = act->fifo_of[operand.index];
    struct run *run = act->run;
    struct fifo *fifo = &run->fifos[number];
    const size_t at = (size_t)number * run->depth + fifo->n_received % run->depth;
    const struct slot *slot = &run->slots[at];
    if (slot->range.n_chunks != act->step->n_chunks)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "gets %u chunks from rank %u, expects %u",
                         slot->range.n_chunks, run->network->fifos[number].from,
                         act->step->n_chunks);
    if (slot->tile != act->access.tile || !is_same_range(act, slot->range))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "gets chunk %u of tile %u from rank %u, expects chunk %u of tile %u",
                         slot->range.chunk, slot->tile, run->network->fifos[number].from,
                         act->step->chunk, act->access.tile);
    if (slot->is_placed != (operand.is_placed != 0))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "rank %u %s what this step expects %s",
                         run->network->fifos[number].from, slot->is_placed ? "places" : "sends",
                         slot->is_placed ? "in the slot" : "in place");
    gyre_clocks_receive(run->clocks, slot->snapshot, act->clock);
    gyre_clocks_release(run->clocks, slot->snapshot);
    fifo->received_at[fifo->n_received % N_REMEMBERED] = act->access.time;
    fifo->n_received++;
    *values_out = &run->slot_values[at * run->max_range];
    return slot->is_placed ? read_placed(act, **values_out) : GYRE_SUCCESS;
}

static gyre_status read_scratch(const struct act *act, struct gyre_operand operand,
                                uint32_t *value_out)
{
    const struct run *run = act->run;
    const uint32_t index = part_of(act, operand);
    const uint32_t chunk = chunk_of_piece(act);
    const struct scratch *scratch = &run->scratches[run->first_scratch[act->access.rank] + index];
    if (scratch->value == GYRE_NO_VALUE || scratch->tile != act->access.tile)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "reads scratch %u before it is written in this tile", index);
    if (act->program->n_chunks > 1 && scratch->chunk != chunk)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "reads scratch %u, written for chunk %u, for chunk %u", index,
                         scratch->chunk, chunk);
    *value_out = scratch->value;
    return GYRE_SUCCESS;
}

/* Read one piece of one input. */
static gyre_status read_input(struct act *act, uint32_t i, uint32_t *value_out)
{
    struct gyre_operand operand = act->step->ins[i];
    if (operand.kind == GYRE_OPERAND_CONNECTION) {
        if (act->access.piece == 0)
            GYRE_TRY(receive(act, operand, &act->received[i]));
        *value_out = act->received[i][act->access.piece];
        return GYRE_SUCCESS;
    }
    if (operand.kind == GYRE_OPERAND_SCRATCH)
        return read_scratch(act, operand, value_out);
    operand.index = (uint16_t)part_of(act, operand);
    GYRE_TRY(gyre_verify_read(act->run->memory, &act->access, operand, value_out));
    if (operand.kind == GYRE_OPERAND_IN) {
        *value_out =
            gyre_values_input(act->run->values, act->access.rank, operand.index, act->access.tile);
        if (*value_out == GYRE_NO_VALUE)
            return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for the verifier's values");
    }
    return GYRE_SUCCESS;
}

/* Check that FINAL is set on exactly the step whose result holds the contributions of all ranks for
 * the first time. */
static gyre_status check_final(const struct act *act, const uint32_t *ins, uint32_t result)
{
    const struct gyre_values *values = act->run->values;
    const bool is_final = (act->step->flags & GYRE_STEP_FINAL) != 0;
    const bool was_final = gyre_values_get(values, ins[0])->is_final;
    const uint32_t n_ranks_in = gyre_values_get(values, result)->n_ranks_in;
    const bool is_whole = n_ranks_in == act->program->n_ranks;
    if (is_final && was_final)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "is final, but its input already was");
    if (is_final && !is_whole)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "is final, but holds the contributions of %u ranks of %u", n_ranks_in,
                         act->program->n_ranks);
    if (!is_final && !was_final && is_whole && gyre_collectives[act->program->coll].reduces)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "holds all contributions, but is not final");
    return GYRE_SUCCESS;
}

static gyre_status compute(const struct act *act, const uint32_t *ins, uint32_t *value_out)
{
    const struct gyre_step *step = act->step;
    const bool is_final = (step->flags & GYRE_STEP_FINAL) != 0;
    if (step->n_ins > 1 && !gyre_collectives[act->program->coll].reduces)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "reduces in %s",
                         gyre_collectives[act->program->coll].name);
    if (step->n_ins == 1 && !is_final) {
        *value_out = ins[0];
        return check_final(act, ins, *value_out);
    }
    switch (gyre_values_reduce(act->run->values, ins, step->n_ins, is_final, value_out)) {
    case GYRE_VALUE_FINE:
        break;
    case GYRE_VALUE_MIXED:
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "reduces contributions of different chunks or tiles");
    case GYRE_VALUE_TWICE:
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "counts a contribution twice");
    case GYRE_VALUE_NO_MEMORY:
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for the verifier's values");
    }
    return check_final(act, ins, *value_out);
}

/* Send the results of all pieces in one slot. */
static gyre_status send_results(struct act *act, struct gyre_operand operand, uint32_t snapshot)
{
    const uint32_t number = act->fifo_of[operand.index];
    struct run *run = act->run;
    struct fifo *fifo = &run->fifos[number];
    const size_t at = (size_t)number * run->depth + fifo->n_sent % run->depth;
    run->slots[at] =
        (struct slot){snapshot, act->access.tile, range_of(act->step), operand.is_placed != 0};
    memcpy(&run->slot_values[at * run->max_range], run->results,
           act->step->n_chunks * sizeof(*run->results));
    if (fifo->n_sent >= N_REMEMBERED) {
        /* Without credits, this step would overwrite a slot that the receiver may not have read. */
        const uint32_t reused = fifo->n_sent - N_REMEMBERED;
        const uint32_t receiver = run->network->fifos[number].receiver;
        if (fifo->n_received <= reused ||
            act->clock[receiver] < fifo->received_at[reused % N_REMEMBERED])
            run->credits_elidable = false;
    }
    fifo->n_sent++;
    return operand.is_placed == 0
               ? GYRE_SUCCESS
               : gyre_verify_write(run->memory, &act->access, run->network->fifos[number].to,
                                   act->step->chunk, run->results[0]);
}

static gyre_status send_outputs(struct act *act)
{
    struct run *run = act->run;
    const struct gyre_step *step = act->step;
    uint32_t n_sends = 0, snapshot = GYRE_NO_SNAPSHOT;
    for (uint32_t i = 0; i < step->n_outs; i++)
        n_sends += step->outs[i].kind == GYRE_OPERAND_CONNECTION;
    if (n_sends > 0) {
        snapshot = gyre_clocks_snapshot(run->clocks, act->clock, n_sends);
        if (snapshot == GYRE_NO_SNAPSHOT)
            return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for the verifier's clocks");
    }
    for (uint32_t i = 0; i < step->n_outs; i++)
        if (step->outs[i].kind == GYRE_OPERAND_CONNECTION)
            GYRE_TRY(send_results(act, step->outs[i], snapshot));
    return GYRE_SUCCESS;
}

/* Write one piece of the local output. */
static gyre_status write_output(struct act *act, struct gyre_operand operand, uint32_t value)
{
    const struct run *run = act->run;
    const uint32_t part = part_of(act, operand);
    if (operand.kind == GYRE_OPERAND_OUT)
        return gyre_verify_write(run->memory, &act->access, act->access.rank, part, value);
    run->scratches[run->first_scratch[act->access.rank] + part] =
        (struct scratch){value, act->access.tile, (uint16_t)chunk_of_piece(act)};
    return GYRE_SUCCESS;
}

static gyre_status carry_out_piece(struct act *act)
{
    const struct gyre_step *step = act->step;
    uint32_t ins[GYRE_STEP_MAX_INS], value;
    for (uint32_t i = 0; i < step->n_ins; i++)
        GYRE_TRY(read_input(act, i, &ins[i]));
    GYRE_TRY(compute(act, ins, &value));
    for (uint32_t i = 0; i < step->n_outs; i++)
        if (step->outs[i].kind != GYRE_OPERAND_CONNECTION)
            GYRE_TRY(write_output(act, step->outs[i], value));
    act->run->results[act->access.piece] = value;
    return GYRE_SUCCESS;
}

static gyre_status carry_out(struct act *act)
{
    for (uint32_t piece = 0; piece < act->step->n_chunks; piece++) {
        act->access.piece = piece;
        GYRE_TRY(carry_out_piece(act));
    }
    act->access.piece = 0;
    return send_outputs(act);
}

/* Carry out one step. Steps that may run at the same time do not know of each other, so each of
 * them has a clock of its own, in which this worker has still its previous time. */
static gyre_status fire_step(struct act *act, bool is_alone, uint32_t *worker_clock)
{
    struct run *run = act->run;
    const size_t n_bytes = run->network->n_workers * sizeof(*worker_clock);
    if (is_alone) {
        act->clock = worker_clock;
        worker_clock[act->worker] = act->access.time;
    } else {
        act->clock = run->step_clock;
        memcpy(act->clock, worker_clock, n_bytes);
    }
    act->access.known_times = act->clock;
    GYRE_TRY(carry_out(act));
    for (uint32_t i = 0; !is_alone && i < run->network->n_workers; i++)
        if (run->next_clock[i] < act->clock[i])
            run->next_clock[i] = act->clock[i];
    return GYRE_SUCCESS;
}

static gyre_status fire(void *context, const struct gyre_firing *firing)
{
    struct run *run = context;
    const struct gyre_program *program = run->network->programs[firing->rank];
    const uint32_t first_of_worker = program->workers[firing->worker].first_step;
    struct act act = {.run = run, .program = program};
    act.fifo_of = &run->network->fifo_of[run->network->first_connection[firing->rank]];
    act.worker = run->network->first_worker[firing->rank] + firing->worker;
    uint32_t *clock = gyre_clocks_of(run->clocks, act.worker);
    const size_t n_bytes = run->network->n_workers * sizeof(*clock);
    const bool is_alone = firing->n_steps == 1;
    act.access.rank = (uint16_t)firing->rank;
    act.access.worker = act.worker;
    act.access.tile = firing->tile;
    act.access.time = clock[act.worker] + 1;
    if (!is_alone)
        memcpy(run->next_clock, clock, n_bytes);
    for (uint32_t i = 0; i < firing->n_steps; i++) {
        act.step = &program->steps[firing->first_step + i];
        act.access.step = firing->first_step + i - first_of_worker;
        const gyre_status status = fire_step(&act, is_alone, clock);
        if (status != GYRE_SUCCESS) {
            run->place = (struct gyre_verify_place){.rank = (int32_t)firing->rank,
                                                    .worker = (int32_t)firing->worker,
                                                    .step = (int32_t)act.access.step,
                                                    .tile = (int32_t)firing->tile,
                                                    .chunk = -1};
            return gyre_fail_context(status, "rank %u, worker %u, step %u, tile %u", firing->rank,
                                     firing->worker, act.access.step, firing->tile);
        }
    }
    if (!is_alone)
        memcpy(clock, run->next_clock, n_bytes);
    clock[act.worker] = act.access.time;
    return GYRE_SUCCESS;
}

static gyre_status open_run(struct run *run, bool in_place)
{
    const struct gyre_network *network = run->network;
    const size_t n_slots = (size_t)network->n_fifos * run->depth;
    run->credits_elidable = true;
    run->first_scratch = calloc(network->n_ranks + 1, sizeof(*run->first_scratch));
    run->fifos = calloc(network->n_fifos + 1, sizeof(*run->fifos));
    run->max_range = network->programs[0]->max_range;
    run->slots = calloc(n_slots + 1, sizeof(*run->slots));
    run->slot_values = calloc(n_slots + 1, run->max_range * sizeof(*run->slot_values));
    run->results = calloc(run->max_range, sizeof(*run->results));
    run->step_clock = calloc(network->n_workers + 1, sizeof(*run->step_clock));
    run->next_clock = calloc(network->n_workers + 1, sizeof(*run->next_clock));
    if (run->first_scratch != NULL) {
        for (uint32_t rank = 0; rank < network->n_ranks; rank++)
            run->first_scratch[rank + 1] =
                run->first_scratch[rank] + network->programs[rank]->n_scratch;
        run->scratches = calloc(run->first_scratch[network->n_ranks] + 1, sizeof(*run->scratches));
    }
    if (run->first_scratch == NULL || run->fifos == NULL || run->slots == NULL ||
        run->slot_values == NULL || run->results == NULL || run->step_clock == NULL ||
        run->next_clock == NULL || run->scratches == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to verify %u ranks",
                         network->n_ranks);
    GYRE_TRY(gyre_values_open(network->n_ranks, &run->values));
    GYRE_TRY(gyre_clocks_open(network->n_workers, &run->clocks));
    return gyre_verify_memory_open(network, in_place, run->n_tiles, &run->memory);
}

static void close_run(struct run *run)
{
    gyre_values_close(run->values);
    gyre_clocks_close(run->clocks);
    gyre_verify_memory_close(run->memory);
    free(run->first_scratch);
    free(run->fifos);
    free(run->slots);
    free(run->slot_values);
    free(run->results);
    free(run->step_clock);
    free(run->next_clock);
    free(run->scratches);
}

/* Find the least depth at which the programs end, by counting slots without computing values.
 * @place_out: set to the first wait of the last deadlock that was found. */
static gyre_status find_min_depth(const struct gyre_network *network, uint32_t *depth_out,
                                  struct gyre_verify_place *place_out)
{
    gyre_status status = GYRE_SUCCESS;
    for (uint32_t depth = 1; depth <= GYRE_MAX_DEPTH; depth++) {
        const struct gyre_machine_options options = {.depth = depth, .n_tiles = depth + 2};
        struct gyre_machine_result result;
        status = gyre_machine_run(network, &options, &result);
        if (status == GYRE_SUCCESS) {
            *depth_out = depth;
            return GYRE_SUCCESS;
        }
        *place_out = result.place;
        if (!result.is_deadlock)
            return status;
    }
    return status;
}

static gyre_status verify(struct gyre_network *network, const struct gyre_verify_options *options,
                          struct gyre_verify_report *report)
{
    uint32_t depth = options->depth;
    if (depth > GYRE_MAX_DEPTH)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "depth %u (0..%d)", depth, GYRE_MAX_DEPTH);
    if (depth == 0) {
        GYRE_TRY(find_min_depth(network, &depth, &report->place));
        report->min_depth = depth;
        if (network->programs[0]->min_depth < depth)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "the programs say that depth %u is enough, but they need %u",
                             network->programs[0]->min_depth, depth);
        report->place = gyre_verify_nowhere; /* the deadlock was at a smaller depth */
    }
    struct run run = {.network = network, .depth = depth};
    run.place = gyre_verify_nowhere;
    run.n_tiles = options->n_tiles == 0 ? depth + 2 : options->n_tiles;
    gyre_status status = open_run(&run, options->in_place);
    if (status == GYRE_SUCCESS) {
        const struct gyre_machine_options machine = {depth, run.n_tiles, fire, &run};
        struct gyre_machine_result result;
        status = gyre_machine_run(network, &machine, &result);
        report->n_steps = result.n_steps;
        report->place = result.is_deadlock ? result.place : run.place;
    }
    if (status == GYRE_SUCCESS)
        status = gyre_verify_outputs(run.memory, run.values, &report->place);
    report->credits_elidable = status == GYRE_SUCCESS && run.credits_elidable;
    close_run(&run);
    return status;
}

gyre_status gyre_verify(const struct gyre_program *const *programs, int n_ranks,
                        const struct gyre_verify_options *options,
                        struct gyre_verify_report *report_out)
{
    struct gyre_network *network = NULL;
    memset(report_out, 0, sizeof(*report_out));
    report_out->place = gyre_verify_nowhere;
    gyre_status status = gyre_network_open(programs, n_ranks, &network);
    if (status == GYRE_SUCCESS)
        status = verify(network, options, report_out);
    gyre_network_close(network);
    if (status != GYRE_SUCCESS)
        snprintf(report_out->reason, sizeof(report_out->reason), "%.*s",
                 (int)sizeof(report_out->reason) - 1, gyre_cause());
    return status;
}
