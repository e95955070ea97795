/* SPDX-License-Identifier: Apache-2.0
 *
 * The course of a proof (algorithms/verify/verify.h): find the least depth of the FIFOs, run all
 * programs symbolically, check the outputs. Blocking is in machine.c, the symbolic run in run.c and
 * step.c, values in values.c, chunks and their hazards in memory.c.
 */
#include "algorithms/verify/verify.h"

#include "algorithms/verify/machine.h"
#include "algorithms/verify/memory.h"
#include "algorithms/verify/run.h"
#include "core/foundation/base/status.h"
#include "core/foundation/model/connector.h"

#include <stdio.h>
#include <string.h>

const struct gyre_verify_place gyre_verify_nowhere = {-1, -1, -1, -1, -1};

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
    if (options->n_tiles > UINT16_MAX)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%u tiles (0..%d)", options->n_tiles,
                         UINT16_MAX);
    if (depth == 0) {
        GYRE_TRY(find_min_depth(network, &depth, &report->place));
        report->min_depth = depth;
        if (network->programs[0]->min_depth < depth)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "the programs say that depth %u is enough, but they need %u",
                             network->programs[0]->min_depth, depth);
        report->place = gyre_verify_nowhere; /* the deadlock was at a smaller depth */
    }
    struct gyre_verify_run run = {.network = network, .depth = depth};
    run.n_tiles = options->n_tiles == 0 ? depth + 2 : options->n_tiles;
    gyre_status status = gyre_verify_run_open(&run, options->in_place);
    if (status == GYRE_SUCCESS) {
        const struct gyre_machine_options machine = {depth, run.n_tiles, gyre_verify_run_fire,
                                                     &run};
        struct gyre_machine_result result;
        status = gyre_machine_run(network, &machine, &result);
        report->n_steps = result.n_steps;
        report->place = result.is_deadlock ? result.place : run.place;
    }
    if (status == GYRE_SUCCESS)
        status = gyre_verify_outputs(run.memory, run.values, &report->place);
    report->credits_elidable = status == GYRE_SUCCESS && run.credits_elidable;
    gyre_verify_run_close(&run);
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
