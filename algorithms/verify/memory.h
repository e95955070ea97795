/* SPDX-License-Identifier: Apache-2.0
 *
 * A value is a rank's input, or a reduction of values in a given order. Equal expressions are
 * stored once, so equal numbers mean equal bits; where any order is allowed, equal sets of ranks.
 */
#ifndef GYRE_ALGORITHMS_VERIFY_MEMORY_H
#define GYRE_ALGORITHMS_VERIFY_MEMORY_H

#include "algorithms/verify/clocks.h"
#include "algorithms/verify/machine.h"
#include "algorithms/verify/verify.h"
#include "core/foundation/model/schedule.h"

#define GYRE_NO_VALUE 0U

/* Contributions to a reduction are of one chunk and tile, and orders are few, so there are few
 * values. */
struct gyre_content {
    uint32_t value;
    uint16_t chunk;
    uint16_t tile;
};

struct gyre_value {
    uint32_t first_in;
    uint32_t set;        /* ranks that contributed; 0 = an interval: */
    uint32_t first_rank; /* its first rank; rank 0 follows the last rank */
    uint32_t n_ranks_in;
    uint16_t n_ins; /* 0 = a contribution */
    bool is_final;
};

enum gyre_value_fault {
    GYRE_VALUE_FINE,
    GYRE_VALUE_TWICE,
    GYRE_VALUE_NO_MEMORY,
};

struct gyre_values;

/** @any_order: reductions of the same ranks are one value. Errors: OUT_OF_MEMORY. */
gyre_status gyre_values_open(unsigned n_ranks, bool any_order, struct gyre_values **values_out);
void gyre_values_close(struct gyre_values *values);

static inline uint32_t gyre_values_input(unsigned rank)
{
    return rank + 1;
}

/** In this order. @is_final: the result is divided afterwards, which makes it a different value.
 * @value_out: set on GYRE_VALUE_FINE. New values are numbered one after the other. */
enum gyre_value_fault gyre_values_reduce(struct gyre_values *values, const uint32_t *ins,
                                         unsigned n_ins, bool is_final, uint32_t *value_out);

/** Valid until the next value is added. */
const struct gyre_value *gyre_values_get(const struct gyre_values *values, uint32_t value);

bool gyre_values_has(const struct gyre_values *values, uint32_t value, unsigned rank);

/** Two expressions, each on a line after "rank N", and where they first differ. Sums of many ranks
 * become sets: {0-3}. */
void gyre_values_compare(const struct gyre_values *values, const uint32_t of_rank[2],
                         const unsigned ranks[2], char *text_out, size_t text_bytes);

struct gyre_access {
    uint16_t rank;
    uint32_t worker;
    uint32_t tile;
    uint32_t step;
    uint32_t piece; /* of the step's range; pieces may run in any order */
    int32_t time;   /* equal for steps that may run at the same time */
    struct gyre_clocks *clocks;
    struct gyre_view view;
};

struct gyre_expectation {
    bool is_owned; /* else no step may touch the buffer */
    uint32_t chunk;
    bool from_all; /* else from `source` */
    uint16_t source;
};

struct gyre_verify_memory;

/** @network: must outlive it. Errors: OUT_OF_MEMORY. */
gyre_status gyre_verify_memory_open(const struct gyre_verify_network *network, bool in_place,
                                    uint32_t n_tiles, struct gyre_verify_memory **memory_out);
void gyre_verify_memory_close(struct gyre_verify_memory *memory);

bool gyre_verify_owns_in(const struct gyre_program *program);

struct gyre_expectation gyre_verify_expect(const struct gyre_program *program, uint32_t chunk);

/** Does a worker write a chunk that another one touches, or are data placed? Otherwise clocks do
 * not matter. */
bool gyre_verify_shares_chunks(const struct gyre_verify_memory *memory);

/** @content_out: no value = the caller's input. Errors: INVALID_ARGUMENT with the reason. */
gyre_status gyre_verify_read(struct gyre_verify_memory *memory, const struct gyre_access *access,
                             struct gyre_operand operand, struct gyre_content *content_out);

/** @owner: access->rank, or the receiving rank of placed data. Errors: INVALID_ARGUMENT with the
 * reason. */
gyre_status gyre_verify_write(struct gyre_verify_memory *memory, const struct gyre_access *access,
                              uint16_t owner, uint32_t chunk, struct gyre_content content);

/** Every OUT must hold the expected contributions, the same on all ranks. @place_out: set on
 * failure. @orders_differ_out: set if an order is wrong. Errors: INVALID_ARGUMENT with the
 * reason. */
gyre_status gyre_verify_outputs(const struct gyre_verify_memory *memory,
                                const struct gyre_values *values,
                                struct gyre_verify_place *place_out, bool *orders_differ_out);

#define GYRE_VERIFY_REMEMBERED 2 /* credits are judged at depth 2 */

/* In flight: its chunks, as in struct gyre_step, and the sender's clock. */
struct gyre_verify_slot {
    uint32_t snapshot;
    uint16_t tile;
    uint16_t chunk;
    uint16_t n_chunks;
    uint16_t run, stride;
    bool is_placed;
    struct gyre_content contents[];
};

/* The slots follow it, because no cache foresees the order of a step's FIFOs. */
struct gyre_verify_fifo {
    uint32_t n_sent;
    uint32_t n_received;
    int32_t received_at[GYRE_VERIFY_REMEMBERED]; /* the receiver's time */
};

struct gyre_verify_scratch {
    struct gyre_content content;
    uint16_t chunk;
    uint16_t tile;
};

struct gyre_verify_run {
    const struct gyre_verify_network *network;
    uint32_t depth;
    uint32_t n_tiles;
    struct gyre_values *values;
    struct gyre_verify_memory *memory;
    struct gyre_clocks *clocks;
    char *fifos;
    size_t fifo_bytes, slot_bytes;
    struct gyre_content *results;
    uint32_t *first_scratch;
    struct gyre_verify_scratch *scratches;
    bool shares_chunks;
    bool credits_elidable;
    bool orders_differ;
    struct gyre_verify_place place;
};

struct gyre_verify_act {
    struct gyre_verify_run *run;
    const struct gyre_program *program;
    const struct gyre_step *step;
    bool is_alone;   /* no other step may run at the same time */
    uint32_t shared; /* snapshot of a sequence's steps that receive nothing */
    struct gyre_access access;
    const uint32_t *fifo_of;
    const struct gyre_content *received[GYRE_STEP_MAX_INS];
};

/** Clocks tell whether workers may touch a chunk at the same time, and whether credits can be left
 * out. */
static inline bool gyre_verify_needs_clocks(const struct gyre_verify_run *run)
{
    return run->shares_chunks || run->credits_elidable;
}

/** Errors: INVALID_ARGUMENT with the reason, OUT_OF_MEMORY. */
gyre_status gyre_verify_step(struct gyre_verify_act *act);

bool gyre_verify_receives(const struct gyre_step *step);

#endif
