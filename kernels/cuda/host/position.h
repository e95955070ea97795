/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the blocks of a launch that stands still are. A kernel keeps its steps in registers. But a
 * block of SIMPLE that has waited for some milliseconds writes the address that it polls, and what
 * it has seen there, into the progress mailbox (must_stop_at() in device/sync.cuh). The address
 * names the end of a FIFO and what is awaited there, and the program and the number of slots that
 * earlier launches moved say which step and tile that is. The host counts those slots itself,
 * because no function of CUDA may be called here: it could wait for a thread that waits for the
 * very launch. Pure: built and tested without nvcc.
 */
#ifndef GYRE_KERNELS_CUDA_POSITION_H
#define GYRE_KERNELS_CUDA_POSITION_H

#include "kernels/cuda/host/program.h"
#include "kernels/executor.h"

/* A work as the host remembers it until later works take its place. */
struct gyre_cuda_known_work {
    uint64_t number; /* works launched before it */
    uint64_t sequence;
    const struct gyre_cuda_program *lowered;    /* NULL: the program was unloaded, or it has none */
    const struct gyre_program *const *programs; /* of the variants */
    enum gyre_proto proto;
    uint32_t n_channels;
    uint32_t n_variants;
    uint32_t n_workers; /* of each variant */
    uint32_t n_tiles;
    uint32_t n_in_flight;
    uint32_t channel_stride;
    uint16_t place; /* in its launch */
};

/* What is asked about: the works of one launch, and the FIFOs that their kernel uses. */
struct gyre_cuda_standstill {
    const struct gyre_cuda_known_work *works;
    uint32_t n_works;
    const struct gyre_fifo_spec *spec;
    const struct gyre_connector *connectors;
    uint32_t n_ends;
    const uint64_t *counters; /* [slots' protocol][connector], before the launch */
};

/** gyre_cuda_count_slots - add `n_tiles` tiles of a work's program to the counters of its ends.
 * @n_ends: connectors. */
void gyre_cuda_count_slots(const struct gyre_cuda_known_work *work, uint64_t n_tiles,
                           uint32_t n_ends, uint64_t *counters);

/** gyre_cuda_position - what a block waits for that polls `address`. @value: what it reported with
 * the address. Returns false if no worker of the works polls such an address, or if its slot
 * cannot be told. */
bool gyre_cuda_position(const struct gyre_cuda_standstill *still, uint64_t address, uint64_t value,
                        struct gyre_position *position_out);

/** gyre_cuda_end_of - how far an end is, and which worker of the works uses it.
 * @positions: of workers that wait. Returns false if the end's worker is not among them. */
bool gyre_cuda_end_of(const struct gyre_cuda_standstill *still, uint32_t index, bool is_lines,
                      const struct gyre_position *positions, uint32_t n_positions,
                      struct gyre_end_state *state_out);

#endif
