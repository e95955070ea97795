/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the verifier on programs that a communicator is about to use. Every rank proves the programs
 * of all ranks. All ranks have the same programs, so all of them reach the same verdict without a
 * message, and every rank refuses a wrong program.
 */
#include "core/engine/plan/proof.h"

#include "algorithms/verify/verify.h"
#include "core/foundation/base/status.h"

#include <stdlib.h>

/* The limit of (steps of all ranks) x (workers of all ranks), with which the time of a proof grows.
 * At 2^27 a ring of 406 ranks takes 0.64 s on one core of a shared machine, 2026-11. */
#define MOST_WORK (1ULL << 27)

const char *gyre_proof_obstacle(uint32_t n_ranks, uint64_t n_steps, uint64_t n_workers)
{
    const uint64_t most = MOST_WORK / ((uint64_t)n_ranks * n_ranks);
    return n_steps * n_workers <= most ? NULL
                                       : "it has too many steps to be proved while a communicator "
                                         "waits (gyre schedule --verify has no limit)";
}

gyre_status gyre_proof_run(const struct gyre_program *const *programs, int n_ranks)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        const struct gyre_verify_options options = {.in_place = in_place == 1};
        struct gyre_verify_report report;
        const gyre_status status = gyre_verify(programs, n_ranks, &options, &report);
        if (status != GYRE_SUCCESS)
            return gyre_fail(status, "the verifier refuses it %s: %s",
                             in_place == 1 ? "in place" : "out of place", report.reason);
    }
    return GYRE_SUCCESS;
}

gyre_status gyre_proof_of_shape(const struct gyre_algorithm *algorithm,
                                const struct gyre_shape *shape)
{
    const int n_ranks = shape->n_ranks;
    struct gyre_program **programs = calloc((size_t)n_ranks, sizeof(struct gyre_program *));
    gyre_status status = GYRE_SUCCESS;
    if (programs == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to prove %d programs", n_ranks);
    for (int rank = 0; rank < n_ranks && status == GYRE_SUCCESS; rank++)
        status = gyre_algorithm_emit(algorithm, shape, rank, &programs[rank]);
    if (status == GYRE_SUCCESS)
        status = gyre_proof_run((const struct gyre_program *const *)programs, n_ranks);
    for (int rank = 0; rank < n_ranks; rank++)
        gyre_program_free(programs[rank]);
    free(programs);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "%s %s of %d ranks", algorithm->name,
                                 gyre_collectives[shape->coll].name, n_ranks);
    return GYRE_SUCCESS;
}
