/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_TESTS_GPU_RUN_H
#define GYRE_TESTS_GPU_RUN_H

#include "algorithms/algorithm.h"
#include "tests/gpu/gpu_rig.h"

#define GPU_RUN_FIFOS        8 /* 4 channels of programs with 2 lanes */
#define GPU_RUN_SIMPLE_BYTES 4096
#define GPU_RUN_LL_BYTES     4096
#define GPU_RUN_LL128_BYTES  4096

struct gpu_run {
    const struct gyre_algorithm *algorithm;
    enum gyre_collective coll;
    enum gyre_proto proto;
    uint64_t count;
    uint32_t root;
    uint16_t most_range; /* of a step; 0 = no limit */
    uint32_t n_channels;
    uint32_t n_threads;
    uint32_t misaligned_elems;
    bool misaligns_last; /* only the last rank's buffers are */
    bool in_place;
    bool is_placed;
    bool by_copy_engines;
    const struct gyre_grouping *grouping; /* hosts that the ranks count as; NULL = one */
    struct gyre_reduction reduction;
};

/** The FIFOs of rigs for these runs. */
extern const struct gyre_fifo_spec gpu_run_spec;

/** Of 5000 floats, on two channels. */
extern const struct gpu_run gpu_run_ring;

/** A slot of either executor holds the tile, on the same cuts. */
struct gyre_split gpu_run_split(const struct gpu_run *run, uint32_t n_chunks);

/** For messages; one at a time. */
const char *gpu_run_text(const struct gpu_run *run);

/** With buffers of ones. */
void gpu_run_load_all(struct gpu_rig *gpus, const struct gpu_run *run,
                      struct gyre_program **programs, struct gyre_loaded **loaded, float **buffers);
void gpu_run_unload_all(struct gpu_rig *gpus, struct gyre_program **programs,
                        struct gyre_loaded **loaded, float **buffers);

/** In place on every rank below n_launched. */
void gpu_run_all_reduce(struct gpu_rig *gpus, struct gyre_loaded **loaded, int n_launched,
                        uint32_t n_chunks, const struct gpu_run *run, float *const *buffers);

#endif
