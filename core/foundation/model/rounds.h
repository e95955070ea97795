/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the programs of all ranks together, round by round, for people who want to see them. In a
 * round every worker that can run does one step, or one run of steps that may execute at the same
 * time. One tile is run, with FIFOs of the depth that the programs ask for. The printed tables and
 * the drawings both come from this walk.
 */
#ifndef GYRE_MODEL_ROUNDS_H
#define GYRE_MODEL_ROUNDS_H

#include "core/foundation/model/schedule.h"

/* The steps that one worker does in one round. */
struct gyre_round_steps {
    uint32_t round;
    uint32_t rank;
    uint32_t worker;     /* of the rank */
    uint32_t first_step; /* of the program */
    uint32_t n_steps;
};

/** gyre_rounds_walk - run one tile. Which steps run in a round is decided by the slots that were
 * filled before the round.
 * @programs: n_ranks programs, by rank. They may be wrong: the walk then ends where no step can
 * run.
 * @visit: called once for each worker that runs in a round; by round, then rank, then worker. An
 * error ends the walk.
 * @is_stuck_out: set on success: some steps can never run.
 * Errors: INVALID_ARGUMENT (the programs are not those of all ranks), OUT_OF_MEMORY, those of
 * visit(). */
gyre_status gyre_rounds_walk(const struct gyre_program *const *programs, int n_ranks,
                             gyre_status (*visit)(void *context,
                                                  const struct gyre_round_steps *steps),
                             void *context, bool *is_stuck_out);

#endif
