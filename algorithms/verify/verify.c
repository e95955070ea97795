/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/verify/verify.h"

#include "algorithms/verify/machine.h"
#include "core/foundation/base/status.h"
#include "core/foundation/base/util.h"
#include "core/foundation/model/connector.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Simultaneous steps do not know of each other, so until all are done the worker's clock has its
 * previous time. */
static gyre_status run_fire(void *context, const struct gyre_firing *firing)
{
    struct gyre_verify_run *run = context;
    const struct gyre_program *program = run->network->programs[firing->rank];
    const uint32_t first_of_worker = program->workers[firing->worker].first_step;
    const uint32_t worker = run->network->first_worker[firing->rank] + firing->worker;
    struct gyre_verify_act act = {.run = run, .program = program};
    act.fifo_of = &run->network->fifo_of[run->network->first_connection[firing->rank]];
    act.is_alone = firing->n_steps == 1;
    act.access.rank = (uint16_t)firing->rank;
    act.access.worker = act.access.view.worker = worker;
    act.access.tile = firing->tile;
    act.access.time = act.access.view.time = gyre_clocks_own_time(run->clocks, worker) + 1;
    act.access.clocks = run->clocks;
    if (act.is_alone)
        gyre_clocks_set_time(run->clocks, worker, act.access.time);
    for (uint32_t i = 0; i < firing->n_steps; i++) {
        act.step = &program->steps[firing->first_step + i];
        act.access.step = firing->first_step + i - first_of_worker;
        act.access.view.is_apart =
            !act.is_alone && gyre_verify_receives(act.step) && gyre_verify_needs_clocks(run);
        act.access.view.n_snapshots = 0;
        const gyre_status status = gyre_verify_step(&act);
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
    if (!gyre_clocks_learn(run->clocks, worker))
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for the verifier's clocks");
    gyre_clocks_set_time(run->clocks, worker, act.access.time);
    return GYRE_SUCCESS;
}

/* The fields network, depth and n_tiles are set. The caller frees all in any case. */
static gyre_status open_run(struct gyre_verify_run *run, const struct gyre_verify_options *options)
{
    const struct gyre_verify_network *network = run->network;
    const size_t max_range = network->programs[0]->max_range;
    run->place = gyre_verify_nowhere;
    run->credits_elidable = true;
    run->slot_bytes = sizeof(struct gyre_verify_slot) + max_range * sizeof(*run->results);
    run->fifo_bytes = sizeof(struct gyre_verify_fifo) + run->depth * run->slot_bytes;
    run->fifos = calloc((size_t)network->n_fifos + 1, run->fifo_bytes);
    run->results = calloc(max_range, sizeof(*run->results));
    run->first_scratch = calloc(network->n_ranks + 1, sizeof(*run->first_scratch));
    uint32_t n_scratches = 0;
    uint64_t n_most_steps = 0;
    for (uint32_t rank = 0; rank < network->n_ranks && run->first_scratch != NULL; rank++) {
        const struct gyre_program *program = network->programs[rank];
        run->first_scratch[rank] = n_scratches;
        n_scratches += program->n_scratch;
        for (uint32_t w = 0; w < program->n_workers; w++)
            n_most_steps = gyre_max_u64(n_most_steps, program->workers[w].n_steps);
    }
    run->scratches = calloc(n_scratches + 1, sizeof(*run->scratches));
    if (run->fifos == NULL || run->results == NULL || run->first_scratch == NULL ||
        run->scratches == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to verify %u ranks",
                         network->n_ranks);
    GYRE_TRY(gyre_values_open(network->n_ranks, options->any_order, &run->values));
    GYRE_TRY(gyre_clocks_open(network, n_most_steps * run->n_tiles, &run->clocks));
    GYRE_TRY(gyre_verify_memory_open(network, options->in_place, run->n_tiles, &run->memory));
    run->shares_chunks = gyre_verify_shares_chunks(run->memory);
    return GYRE_SUCCESS;
}

const struct gyre_verify_place gyre_verify_nowhere = {-1, -1, -1, -1, -1};

/* Counts slots only. @result_out: place and waits of the last deadlock. */
static gyre_status find_min_depth(const struct gyre_verify_network *network, uint32_t first_depth,
                                  uint32_t *depth_out, struct gyre_machine_result *result_out)
{
    gyre_status status = GYRE_ERROR_INVALID_ARGUMENT;
    for (uint32_t depth = first_depth; depth <= GYRE_MAX_DEPTH; depth++) {
        const struct gyre_machine_options options = {.depth = depth, .n_tiles = depth + 2};
        struct gyre_machine_result result;
        status = gyre_machine_run(network, &options, &result);
        *depth_out = depth;
        if (status == GYRE_SUCCESS) {
            result_out->is_deadlock = false;
            return GYRE_SUCCESS;
        }
        *result_out = result;
        if (!result.is_deadlock)
            return status;
    }
    return status;
}

/* @result_out: where a deadlock is. */
static gyre_status verify(const struct gyre_verify_network *network,
                          const struct gyre_verify_options *options,
                          struct gyre_verify_report *report, struct gyre_machine_result *result_out)
{
    uint32_t depth = options->depth;
    if (depth > GYRE_MAX_DEPTH)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "depth %u (0..%d)", depth, GYRE_MAX_DEPTH);
    if (options->n_tiles > UINT16_MAX)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%u tiles (0..%d)", options->n_tiles,
                         UINT16_MAX);
    if (depth == 0) {
        const gyre_status found = find_min_depth(network, 1, &depth, result_out);
        report->place = result_out->place;
        if (found != GYRE_SUCCESS)
            return found;
        report->min_depth = depth;
        if (network->programs[0]->min_depth < depth)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "the programs say that depth %u is enough, but they need %u",
                             network->programs[0]->min_depth, depth);
        report->place = gyre_verify_nowhere; /* of a deadlock at a smaller depth */
    }
    struct gyre_verify_run run = {.network = network, .depth = depth};
    run.n_tiles = options->n_tiles == 0 ? depth + 2 : options->n_tiles;
    gyre_status status = open_run(&run, options);
    if (status == GYRE_SUCCESS) {
        const struct gyre_machine_options machine = {depth, run.n_tiles, run_fire, &run};
        status = gyre_machine_run(network, &machine, result_out);
        report->n_steps = result_out->n_steps;
        report->place = result_out->is_deadlock ? result_out->place : run.place;
    }
    if (status == GYRE_SUCCESS)
        status = gyre_verify_outputs(run.memory, run.values, &report->place, &run.orders_differ);
    report->same_bits = !options->any_order && !run.orders_differ;
    report->credits_elidable = status == GYRE_SUCCESS && run.credits_elidable;
    gyre_values_close(run.values);
    gyre_clocks_close(run.clocks);
    gyre_verify_memory_close(run.memory);
    free(run.fifos);
    free(run.results);
    free(run.first_scratch);
    free(run.scratches);
    return status;
}

#define MOST_RANKS_TRIED 64 /* each trial is a proof */

/* Exchange the steps that run together, of which one waits, and those after them. False = there are
 * none. */
static bool exchange_steps(struct gyre_program *program, const struct gyre_verify_place *place)
{
    if (place->worker >= (int32_t)program->n_workers ||
        place->step >= (int32_t)program->workers[place->worker].n_steps)
        return false;
    const struct gyre_worker *worker = &program->workers[place->worker];
    const uint32_t end_of_worker = worker->first_step + worker->n_steps;
    uint32_t first = worker->first_step + (uint32_t)place->step;
    while (first > worker->first_step &&
           (program->steps[first - 1].flags & GYRE_STEP_WITH_NEXT) != 0)
        first--;
    uint32_t ends[2] = {first, 0};
    for (int i = 0; i < 2; i++) {
        while (ends[i] < end_of_worker &&
               (program->steps[ends[i]].flags & GYRE_STEP_WITH_NEXT) != 0)
            ends[i]++;
        if (ends[i]++ >= end_of_worker)
            return false;
        if (i == 0)
            ends[1] = ends[0];
    }
    const uint32_t n_first = ends[0] - first;
    for (uint32_t i = 0; i < n_first; i++) { /* the last ones of them first */
        const struct gyre_step step = program->steps[ends[0] - 1 - i];
        memmove(&program->steps[ends[0] - 1 - i], &program->steps[ends[0] - i],
                (ends[1] - ends[0]) * sizeof(step));
        program->steps[ends[1] - 1 - i] = step;
    }
    return true;
}

/* If one rank, or each, exchanges the steps at this place. */
static bool helps(const struct gyre_verify_network *network,
                  const struct gyre_verify_options *options, const struct gyre_verify_place *place,
                  bool on_all_ranks)
{
    struct gyre_program *programs[MOST_RANKS_TRIED] = {NULL};
    const int n_ranks = (int)network->n_ranks;
    bool has_changed = true;
    for (int rank = 0; rank < n_ranks && has_changed; rank++) {
        has_changed = gyre_program_clone(network->programs[rank], &programs[rank]) == GYRE_SUCCESS;
        if (has_changed && (on_all_ranks || rank == place->rank))
            has_changed = exchange_steps(programs[rank], place);
    }
    struct gyre_verify_network *changed = NULL;
    if (has_changed && gyre_verify_network_open((const struct gyre_program *const *)programs,
                                                n_ranks, &changed) != GYRE_SUCCESS)
        changed = NULL;
    struct gyre_verify_report report;
    struct gyre_machine_result result = {.place = gyre_verify_nowhere};
    const bool is_proved =
        changed != NULL && verify(changed, options, &report, &result) == GYRE_SUCCESS;
    gyre_verify_network_close(changed);
    for (int rank = 0; rank < n_ranks; rank++)
        gyre_program_free(programs[rank]);
    return is_proved;
}

static gyre_status add_remedy(const struct gyre_verify_network *network,
                              const struct gyre_verify_options *options,
                              const struct gyre_machine_result *deadlock, gyre_status status)
{
    char cause[GYRE_CAUSE_MAX_BYTES];
    struct gyre_machine_result result = {.place = gyre_verify_nowhere};
    uint32_t depth = 0;
    snprintf(cause, sizeof(cause), "%s", gyre_cause());
    if (options->depth > 0 &&
        find_min_depth(network, options->depth + 1, &depth, &result) == GYRE_SUCCESS)
        return gyre_fail(status, "%s; depth %u is enough", cause, depth);
    for (int on_all = 0; on_all < 2 && network->n_ranks <= MOST_RANKS_TRIED; on_all++)
        for (uint32_t i = 0; i < deadlock->n_waits && i < GYRE_MACHINE_TOLD; i++) {
            const struct gyre_verify_place *place = &deadlock->waits[i];
            if (!helps(network, options, place, on_all != 0))
                continue;
            char rank[24] = "all ranks";
            if (on_all == 0)
                snprintf(rank, sizeof(rank), "rank %d", place->rank);
            return gyre_fail(status,
                             "%s; the proof succeeds if %s, worker %d, takes what follows step %d "
                             "before it",
                             cause, rank, place->worker, place->step);
        }
    return gyre_fail(status, "%s", cause);
}

gyre_status gyre_verify(const struct gyre_program *const *programs, int n_ranks,
                        const struct gyre_verify_options *options,
                        struct gyre_verify_report *report_out)
{
    struct gyre_verify_network *network = NULL;
    memset(report_out, 0, sizeof(*report_out));
    report_out->place = gyre_verify_nowhere;
    gyre_status status = gyre_verify_network_open(programs, n_ranks, &network);
    /* The strict order first, so that the report tells about bits. */
    if (status == GYRE_SUCCESS) {
        struct gyre_verify_options strict = *options;
        strict.any_order = false;
        report_out->same_bits = true;
        struct gyre_machine_result result = {.place = gyre_verify_nowhere};
        status = verify(network, &strict, report_out, &result);
        if (options->any_order && !report_out->same_bits)
            status = verify(network, options, report_out, &result);
        if (status != GYRE_SUCCESS && result.is_deadlock)
            status = add_remedy(network, options, &result, status);
    }
    gyre_verify_network_close(network);
    if (status != GYRE_SUCCESS)
        snprintf(report_out->reason, sizeof(report_out->reason), "%.*s",
                 (int)sizeof(report_out->reason) - 1, gyre_cause());
    return status;
}
