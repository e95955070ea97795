/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_ALGORITHMS_VERIFY_RUN_H
#define GYRE_ALGORITHMS_VERIFY_RUN_H

#include "algorithms/verify/clocks.h"
#include "algorithms/verify/machine.h"
#include "algorithms/verify/memory.h"

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
