/* SPDX-License-Identifier: Apache-2.0
 *
 * Where blocks stand still. A block of SIMPLE that has waited for milliseconds writes the address
 * that it polls, and what it saw there, into the mailbox (must_stop_at() in device/sync.cuh). The
 * address names one side of a FIFO; the program and the slots moved before, which the host counts,
 * give step and tile.
 */
#ifndef GYRE_KERNELS_CUDA_POSITION_H
#define GYRE_KERNELS_CUDA_POSITION_H

#include "kernels/cuda/host/program.h"
#include "kernels/executor.h"

/* Until later works take its place. */
struct gyre_cuda_known_work {
    uint64_t number; /* works launched before */
    uint64_t sequence;
    const struct gyre_cuda_program *lowered; /* NULL: unloaded, or none */
    const struct gyre_program *const *programs;
    enum gyre_proto proto;
    uint32_t n_channels;
    uint32_t n_variants;
    uint32_t n_workers; /* of each variant */
    uint32_t n_tiles;
    uint32_t n_in_flight;
    uint32_t channel_stride;
    uint16_t place; /* in its launch */
};

struct gyre_cuda_standstill {
    const struct gyre_cuda_known_work *works;
    uint32_t n_works;
    const struct gyre_fifo_spec *spec;
    const struct gyre_connector *connectors;
    uint32_t n_ends;
    const uint64_t *counters; /* [slots' protocol][connector], before the launch */
};

/** Adds to the counters of the program's ends. @n_ends: connectors. */
void gyre_cuda_count_slots(const struct gyre_cuda_known_work *work, uint64_t n_tiles,
                           uint32_t n_ends, uint64_t *counters);

/** gyre_cuda_position - @value: reported with `address`. False: no worker or slot is known. */
bool gyre_cuda_position(const struct gyre_cuda_standstill *still, uint64_t address, uint64_t value,
                        struct gyre_position *position_out);

/** gyre_cuda_end_of - @positions: of waiting workers. False: the end's worker is not among them. */
bool gyre_cuda_end_of(const struct gyre_cuda_standstill *still, uint32_t index, bool is_lines,
                      const struct gyre_position *positions, uint32_t n_positions,
                      struct gyre_side_state *state_out);

/** Any thread; does not wait. */
struct gyre_progress gyre_cuda_mailbox_read(const struct gyre_cuda_mailbox *mailbox);

#endif
