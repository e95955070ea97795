/* SPDX-License-Identifier: Apache-2.0
 *
 * The verifier's memory. It knows the value of every chunk of OUT on every rank and tile, the
 * chunks of IN that alias it when the call is in place, and the ranks that may touch a buffer. For
 * every chunk it also knows the last accesses, to find two accesses without an order between them.
 */
#ifndef GYRE_ALGORITHMS_VERIFY_MEMORY_H
#define GYRE_ALGORITHMS_VERIFY_MEMORY_H

#include "algorithms/verify/clocks.h"
#include "algorithms/verify/network.h"
#include "algorithms/verify/values.h"
#include "algorithms/verify/verify.h"

/* One step of one worker, and how far that worker knows the other workers to be. */
struct gyre_access {
    uint16_t rank;
    uint32_t worker; /* of the network */
    uint32_t tile;
    uint32_t step;  /* of the worker */
    uint32_t piece; /* of the step's range; the pieces of a step may run in any order */
    int32_t time;   /* of the worker; steps that may run at the same time have the same one */
    struct gyre_clocks *clocks;
    struct gyre_view view; /* what the step knows of the other workers */
};

/* The contributions that a chunk of OUT must hold in the end. */
struct gyre_expectation {
    bool is_owned;   /* false: the rank has no such buffer, and no step may touch it */
    uint32_t chunk;  /* of IN */
    bool from_all;   /* true: from all ranks; false: from `source` */
    uint16_t source; /* rank, if not from_all */
};

struct gyre_verify_memory;

/** gyre_verify_memory_open - memory in which no chunk was written yet. @network: must outlive it.
 * Errors: OUT_OF_MEMORY. */
gyre_status gyre_verify_memory_open(const struct gyre_network *network, bool in_place,
                                    uint32_t n_tiles, struct gyre_verify_memory **memory_out);
void gyre_verify_memory_close(struct gyre_verify_memory *memory);

/** gyre_verify_owns_in - does the collective give this rank an IN? */
bool gyre_verify_owns_in(const struct gyre_program *program);

/** gyre_verify_expect - the contributions that OUT(chunk) must hold in the end. */
struct gyre_expectation gyre_verify_expect(const struct gyre_program *program, uint32_t chunk);

/** gyre_verify_shares_chunks - do two workers touch the same chunk, so that what a step knows of
 * other workers counts? It does if a rank has a chunk that one of its workers writes and another
 * one touches, or if data are placed. */
bool gyre_verify_shares_chunks(const struct gyre_verify_memory *memory);

/** gyre_verify_read - read a chunk of IN or OUT.
 * @content_out: without a value, it stands for the caller's input.
 * Errors: INVALID_ARGUMENT with the reason. */
gyre_status gyre_verify_read(struct gyre_verify_memory *memory, const struct gyre_access *access,
                             struct gyre_operand operand, struct gyre_content *content_out);

/** gyre_verify_write - write OUT(chunk) of `owner`, which is access->rank or, for placed data, the
 * receiving rank. Errors: INVALID_ARGUMENT with the reason. */
gyre_status gyre_verify_write(struct gyre_verify_memory *memory, const struct gyre_access *access,
                              uint16_t owner, uint32_t chunk, struct gyre_content content);

/** gyre_verify_outputs - check that every OUT holds the expected contributions, and that all ranks
 * have the same expressions.
 * @place_out: set on failure, to the chunk that is wrong.
 * Errors: INVALID_ARGUMENT with the reason. */
gyre_status gyre_verify_outputs(const struct gyre_verify_memory *memory,
                                const struct gyre_values *values,
                                struct gyre_verify_place *place_out);

#endif
