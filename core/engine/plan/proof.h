/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves programs before they run. Programs of a file are always proved, programs of built-in
 * algorithms with GYRE_CHECK=programs.
 */
#ifndef GYRE_PLAN_PROOF_H
#define GYRE_PLAN_PROOF_H

#include "algorithms/algorithm.h"

/** gyre_proof_steps - what a program's steps count for gyre_proof_obstacle(): a step that moves a
 * range of chunks is as many steps as it moves chunks. */
static inline uint64_t gyre_proof_steps(const struct gyre_program *program)
{
    uint64_t n_steps = 0;
    for (uint32_t i = 0; i < program->n_steps; i++)
        n_steps += program->steps[i].n_chunks;
    return n_steps;
}

/** gyre_proof_obstacle - is a shape too large to be proved while a communicator waits? The time of
 * a proof grows with the steps of all ranks times the workers of all ranks. The limit is reached by
 * a ring all-reduce of more than 406 ranks (docs/schedule.md says how long proofs take).
 * @n_steps: gyre_proof_steps(). @n_steps, @n_workers: of one rank. NULL = it can be proved; else
 * the reason, in words. */
const char *gyre_proof_obstacle(uint32_t n_ranks, uint64_t n_steps, uint64_t n_workers);

/** gyre_proof_run - prove the programs of all ranks, out of place and in place.
 * @programs: by rank, of one variant of one shape.
 * Errors: INVALID_ARGUMENT with the verifier's finding (rank, worker, step); OUT_OF_MEMORY. */
gyre_status gyre_proof_run(const struct gyre_program *const *programs, int n_ranks);

/** gyre_proof_of_shape - emit the programs of all ranks of one variant of a shape, and prove them.
 * Errors: as gyre_algorithm_emit() and gyre_proof_run(). */
gyre_status gyre_proof_of_shape(const struct gyre_algorithm *algorithm,
                                const struct gyre_shape *shape);

#endif
