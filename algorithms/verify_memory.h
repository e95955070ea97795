/* SPDX-License-Identifier: Apache-2.0
 *
 * The verifier's memory: what every chunk of OUT holds on every rank and tile, which chunks of IN
 * alias it when the call is in place, who may touch what, and who touched it last, so that two
 * accesses without an order between them are noticed.
 */
#ifndef GYRE_ALGORITHMS_VERIFY_MEMORY_H
#define GYRE_ALGORITHMS_VERIFY_MEMORY_H

#include "algorithms/verify.h"
#include "algorithms/verify_network.h"
#include "algorithms/verify_values.h"

/* What one step of one worker does, and how far it knows the other workers to be. */
struct gyre_access {
    uint16_t rank;
    uint32_t worker; /* of the network */
    uint32_t tile;
    uint32_t step;               /* of the worker */
    uint32_t time;               /* of the worker: steps that may run at the same time share it */
    const uint32_t *known_times; /* by worker of the network */
};

/* What a collective promises: whose contributions a chunk of OUT holds. */
struct gyre_expectation {
    bool is_owned;   /* false: the rank has no such buffer, nothing may touch it */
    uint32_t chunk;  /* of IN */
    bool from_all;   /* else from one rank */
    uint16_t source; /* which */
};

struct gyre_verify_memory;

/** gyre_verify_memory_open - nothing written yet. @network: must outlive the memory.
 * Errors: OUT_OF_MEMORY. */
gyre_status gyre_verify_memory_open(const struct gyre_network *network, bool in_place,
                                    uint32_t n_tiles, struct gyre_verify_memory **memory_out);
void gyre_verify_memory_close(struct gyre_verify_memory *memory);

/** gyre_verify_owns_in - does the collective give this rank an IN? */
bool gyre_verify_owns_in(const struct gyre_program *program);

/** gyre_verify_expect - what OUT(chunk) must hold in the end. */
struct gyre_expectation gyre_verify_expect(const struct gyre_program *program, uint32_t chunk);

/** gyre_verify_read - read IN or OUT; GYRE_NO_VALUE in `value_out` stands for IN as the caller gave
 * it.
 * Errors: INVALID_ARGUMENT with the reason. */
gyre_status gyre_verify_read(struct gyre_verify_memory *memory, const struct gyre_access *access,
                             struct gyre_operand operand, uint32_t *value_out);

/** gyre_verify_write - write OUT(chunk) of `owner`, which is access->rank or the rank that
 * something is placed on. Errors: INVALID_ARGUMENT with the reason. */
gyre_status gyre_verify_write(struct gyre_verify_memory *memory, const struct gyre_access *access,
                              uint16_t owner, uint32_t chunk, uint32_t value);

/** gyre_verify_outputs - compare what OUT holds on all ranks with what the collective promises,
 * and across ranks. Errors: INVALID_ARGUMENT with the reason. */
gyre_status gyre_verify_outputs(const struct gyre_verify_memory *memory,
                                const struct gyre_values *values);

#endif
