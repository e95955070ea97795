/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of fused kernels, which run a whole fused program (core/foundation/model/fused.h) at
 * once. Only gyre_cuda_fused_fits() compares a call with a row: for the tuner, when a program is
 * loaded, at each launch.
 */
#ifndef GYRE_KERNELS_CUDA_HOST_FUSED_H
#define GYRE_KERNELS_CUDA_HOST_FUSED_H

#include "core/foundation/model/fused.h"
#include "kernels/cuda/host/program.h"
#include "kernels/executor.h"

/* Families of kernels, with instances by type, operation, peers and so on. */
enum gyre_cuda_fused_id {
    GYRE_CUDA_FUSED_LL_ONE_SHOT, /* LL, one tile, in few instructions */
    GYRE_CUDA_FUSED_LL_SUM,
    GYRE_CUDA_FUSED_LL_COPY,
    GYRE_CUDA_FUSED_LL128_SUM,
    GYRE_CUDA_FUSED_LL128_COPY,
    GYRE_CUDA_FUSED_LAMPORT_SUM,
    GYRE_CUDA_FUSED_SIMPLE_TWO_SHOT,
    GYRE_CUDA_FUSED_SIMPLE_ALL_GATHER,
    GYRE_CUDA_N_FUSED
};

/* Masks have a bit for each value of the enum. */
struct gyre_cuda_fused_kernel {
    const char *name;
    enum gyre_proto proto;
    uint16_t patterns;  /* enum gyre_fused_pattern */
    uint8_t placements; /* bit 0: staged results, bit 1: placed results */
    uint8_t arithmetic; /* enum gyre_fused_arithmetic */
    uint8_t most_peers;
    uint32_t most_tiles;     /* of a launch; FIFOs must hold them too, but see fused.c */
    bool needs_alignment;    /* in addresses, lengths and cuts: multiples of 16 bytes */
    bool needs_unscaled;     /* nothing is multiplied or divided */
    bool places_blocks;      /* by block placement */
    uint8_t most_unroll;     /* rounds in flight in shared memory; 0 = it takes none */
    uint8_t service_threads; /* of a block, beside those that move data */
};

extern const struct gyre_cuda_fused_kernel gyre_cuda_fused_kernels[GYRE_CUDA_N_FUSED];

struct gyre_cuda_fused_launch {
    const struct gyre_cuda_fused_kernel *kernel; /* NULL: the steps are interpreted */
    bool is_exact;             /* LAMPORT: one tile, aligned, and as many peers as registers */
    bool places_blocks;        /* the blocks choose their multiprocessors */
    uint32_t n_rows;           /* of blocks; of two, the first sends and the other receives */
    uint32_t unroll;           /* line protocols: rounds in flight */
    uint32_t n_threads;        /* of a block */
    uint32_t threads_per_peer; /* whole warps */
    uint32_t shared_bytes;
};

/** gyre_cuda_is_exchange - does exchange_message() run the pattern in LL and LL128? */
static inline bool gyre_cuda_is_exchange(enum gyre_fused_pattern pattern, uint32_t n_rows)
{
    return n_rows > 1 || gyre_fused_is_message(pattern);
}

/** gyre_cuda_fused_fits - some ten comparisons, and a division for kernels that take shared
 * memory. */
bool gyre_cuda_fused_fits(const struct gyre_cuda_fused_kernel *kernel,
                          const struct gyre_fused_call *call);

/** gyre_cuda_fused_find - the first kernel that fits; NULL if none does. */
const struct gyre_cuda_fused_kernel *gyre_cuda_fused_find(const struct gyre_fused_call *call);

/** gyre_cuda_fused_most_tiles - the most tiles that a fused kernel takes; 0 if none fits.
 * @call: n_tiles is the least number of tiles. */
uint32_t gyre_cuda_fused_most_tiles(const struct gyre_fused_call *call);

/** gyre_cuda_fused_loads - may a fused kernel run some call of this program? Asked once, at
 * loading; what only a call knows is taken as it suits best.
 * @call: proto, pattern, is_placed, n_peers, depth, n_threads and most_shared_bytes count. */
bool gyre_cuda_fused_loads(const struct gyre_fused_call *call);

/** gyre_cuda_fused_plan - which kernel runs a call, and its size.
 * @tile_bytes: of the largest chunk of a tile.
 * @launch_out: kernel is NULL if none fits or the interpreter is faster; the rest is set only
 * with a kernel. */
void gyre_cuda_fused_plan(const struct gyre_fused_call *call, uint64_t tile_bytes,
                          struct gyre_cuda_fused_launch *launch_out);

/** gyre_cuda_fused_resolve - the kernel's argument: the peers' FIFO ends in channel 0. Offsets
 * are in blocks, which the launch makes bytes.
 * @found: has a pattern. Returns false if an end has a proxy, the depth is no power of two, or
 * channels are not equally far apart. */
bool gyre_cuda_fused_resolve(const struct gyre_fifo_spec *spec,
                             const struct gyre_connector *connectors,
                             const struct gyre_load_config *config,
                             const struct gyre_fused_program *found,
                             struct gyre_cuda_fused *fused_out);

/** gyre_cuda_fused_joins - can one launch do both? Only if their FIFOs are addressed alike. */
bool gyre_cuda_fused_joins(const struct gyre_cuda_fused *send,
                           const struct gyre_cuda_fused *receive);

/** gyre_cuda_fused_join - one peer with the ends of both. */
struct gyre_cuda_fused gyre_cuda_fused_join(const struct gyre_cuda_fused *send,
                                            const struct gyre_cuda_fused *receive);

/** gyre_cuda_fused_before - a send launched before the receive gives the credit of the receive's
 * ends, for which a peer that also sends first waits.
 * @n_channels: of the receive. */
struct gyre_cuda_fused gyre_cuda_fused_before(const struct gyre_cuda_fused *send,
                                              const struct gyre_cuda_fused *receive,
                                              uint32_t n_channels);

/** gyre_cuda_block_threads - the threads of a block that move such chunks. Line protocols: at
 * most one for each line (LL128: a warp takes four at a time), at least two warps.
 * @most_threads: as the program was loaded. */
uint32_t gyre_cuda_block_threads(enum gyre_proto proto, uint64_t chunk_bytes,
                                 uint32_t most_threads);

/** gyre_cuda_threads_per_peer - of a block of n_threads, in whole warps. */
uint32_t gyre_cuda_threads_per_peer(uint32_t n_peers, uint32_t n_threads);

/** gyre_cuda_fused_shared_bytes - of a block: 16 bytes for each thread and each own value, for
 * the rounds in flight and for the next ones. With one peer none. */
uint32_t gyre_cuda_fused_shared_bytes(uint32_t n_peers, uint32_t threads_per_peer, uint32_t unroll);

/** gyre_cuda_peers_class - the kernels' registers for 1, 3 or 7 peers: 0, 1 or 2. */
uint32_t gyre_cuda_peers_class(uint32_t n_peers);

#endif
