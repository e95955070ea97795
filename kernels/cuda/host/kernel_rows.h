/* SPDX-License-Identifier: Apache-2.0
 *
 * Fused kernels run a whole fused program (core/foundation/model/fused.h) at once. Each kernel's
 * file in kernels/cuda/fused declares its rows, which only gyre_kernel_choose() compares with a
 * call.
 */
#ifndef GYRE_KERNELS_CUDA_KERNEL_ROWS_H
#define GYRE_KERNELS_CUDA_KERNEL_ROWS_H

#include "core/foundation/model/fused.h"
#include "kernels/cuda/host/program.h"
#include "kernels/executor.h"

enum gyre_kernel_fact {
    GYRE_KERNEL_ALIGNED = 1 << 0,  /* gyre_fused_call.is_aligned */
    GYRE_KERNEL_UNSCALED = 1 << 1, /* gyre_fused_call.is_unscaled */
    GYRE_KERNEL_STAGED = 1 << 2,
    GYRE_KERNEL_PLACED = 1 << 3,
    GYRE_KERNEL_UNMOVED = 1 << 4,      /* without block placement */
    GYRE_KERNEL_HOST_MEMORY = 1 << 5,  /* gyre_fused_call.in_host_memory */
    GYRE_KERNEL_TWO_ROWS = 1 << 6,     /* gyre_fused_call.fits_two_rows */
    GYRE_KERNEL_HAS_SLOTS = 1 << 7,    /* no block that also receives waits for credit */
    GYRE_KERNEL_HAS_BARRIERS = 1 << 8, /* one tile, or a barrier for each slot */
};

enum gyre_kernel_axis {
    GYRE_AXIS_NONE,
    GYRE_AXIS_OP,
    GYRE_AXIS_UNROLL, /* of LL128 */
    GYRE_AXIS_PEERS,  /* gyre_cuda_peers_class() */
    GYRE_AXIS_KIND,   /* enum gyre_cuda_lamport */
    GYRE_AXIS_EXACT,
    GYRE_AXIS_PLACED,
    GYRE_AXIS_SCATTERS, /* an all-to-all, not an all-gather */
    GYRE_N_AXES
};

/* All must hold; masks have a bit for each value. */
struct gyre_kernel_when {
    enum gyre_proto proto;
    uint16_t patterns;  /* enum gyre_fused_pattern */
    uint16_t needs;     /* enum gyre_kernel_fact */
    uint8_t arithmetic; /* enum gyre_fused_arithmetic */
    uint8_t most_peers;
    uint32_t least_tiles; /* of a launch */
    uint32_t most_tiles;
    uint32_t least_step_bytes; /* of a tile's largest chunk */
};

struct gyre_kernel_row {
    const char *name;
    const char *measured; /* NULL: faster wherever it fits */
    struct gyre_kernel_when when;
    bool is_interpreter;     /* what follows is 0 */
    bool copies;             /* in struct gyre_cuda_copy_kernels */
    uint16_t first;          /* in the table (runtime/kernel_table.h) */
    uint8_t axes[3];         /* enum gyre_kernel_axis; the last counts fastest */
    uint8_t n_rows;          /* two: the first sends, the other receives */
    uint8_t most_unroll;     /* in shared memory; 0 = none */
    uint8_t service_threads; /* of a block, beside those that move data */
    uint8_t tile_threads;    /* likewise, with several tiles */
    uint16_t most_threads;   /* for a peer; 0 = as loaded */
};

/* A call takes the first row that fits, numbered from 1. */
extern const struct gyre_kernel_row gyre_kernel_rows[];
extern const uint32_t gyre_n_kernel_rows;

bool gyre_kernel_row_fits(const struct gyre_kernel_row *row, const struct gyre_fused_call *call);

void gyre_kernel_choose(const struct gyre_fused_call *call, struct gyre_run *run_out);

/** 0 if no fused kernel fits. @call: n_tiles is the least number. */
uint32_t gyre_kernel_most_tiles(const struct gyre_fused_call *call);

/** Threads that move such chunks. Line protocols: at most one a line (LL128: a
 * warp takes four), at least two warps. @most_threads: as loaded. */
uint32_t gyre_cuda_block_threads(enum gyre_proto proto, uint64_t chunk_bytes,
                                 uint32_t most_threads);

/** Whole warps. */
uint32_t gyre_cuda_threads_per_peer(uint32_t n_peers, uint32_t n_threads);

/** 16 bytes for each thread and own value, for the rounds in flight
 * and the next ones. With one peer none. */
uint32_t gyre_cuda_fused_shared_bytes(uint32_t n_peers, uint32_t threads_per_peer, uint32_t unroll);

/** Registers for 1, 3 or 7 peers: 0, 1 or 2. */
uint32_t gyre_cuda_peers_class(uint32_t n_peers);

#endif
