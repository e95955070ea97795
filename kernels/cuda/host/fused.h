/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of fused kernels: kernels that run a whole fused program
 * (core/foundation/model/fused.h) at once. A row says which calls its kernel can run, and
 * gyre_cuda_fused_fits() is the only place that compares a call with a row: for the tuner's hint,
 * when a program is loaded, and at each launch. Rows name kernels by an id; kernels/cuda/runtime
 * knows the functions. Pure: built and tested without nvcc.
 */
#ifndef GYRE_KERNELS_CUDA_HOST_FUSED_H
#define GYRE_KERNELS_CUDA_HOST_FUSED_H

#include "core/foundation/model/fused.h"
#include "kernels/cuda/host/program.h"
#include "kernels/executor.h"

/* Families of kernels; each has instances by type, operation, peers and so on. */
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

/* A row of the table. Masks have a bit for each value of the enum. */
struct gyre_cuda_fused_kernel {
    const char *name;
    enum gyre_proto proto;
    uint16_t patterns;  /* enum gyre_fused_pattern */
    uint8_t placements; /* bit 0: staged results, bit 1: placed results */
    uint8_t arithmetic; /* enum gyre_fused_arithmetic */
    uint8_t most_peers;
    uint32_t most_tiles;     /* of a launch; FIFOs must hold all of them too, but see fused.c */
    bool needs_alignment;    /* addresses, lengths and cuts are multiples of 16 bytes */
    bool needs_unscaled;     /* nothing is multiplied or divided */
    bool places_blocks;      /* its blocks can choose their multiprocessors */
    uint8_t most_unroll;     /* rounds in flight, which take shared memory; 0 = it takes none */
    uint8_t service_threads; /* of a block, beside those that move data */
};

extern const struct gyre_cuda_fused_kernel gyre_cuda_fused_kernels[GYRE_CUDA_N_FUSED];

/* A launch of a fused kernel: which instance, how large. */
struct gyre_cuda_fused_launch {
    const struct gyre_cuda_fused_kernel *kernel; /* NULL: the interpreter runs the steps */
    bool is_exact;      /* LAMPORT: one tile, aligned, and as many peers as registers */
    bool places_blocks; /* the blocks choose their multiprocessors */
    uint32_t n_rows;    /* of blocks: 1, or 2, of which the first sends, the other receives */
    uint32_t unroll;    /* line protocols: rounds in flight */
    uint32_t n_threads; /* of a block */
    uint32_t threads_per_peer; /* whole warps */
    uint32_t shared_bytes;
};

/** gyre_cuda_is_exchange - is it exchange_message() that runs the pattern in LL and LL128, in so
 * many rows of blocks? */
static inline bool gyre_cuda_is_exchange(enum gyre_fused_pattern pattern, uint32_t n_rows)
{
    return n_rows > 1 || gyre_fused_is_message(pattern);
}

/** gyre_cuda_fused_fits - can this kernel run this call? Some ten comparisons; of kernels that take
 * shared memory also a division. */
bool gyre_cuda_fused_fits(const struct gyre_cuda_fused_kernel *kernel,
                          const struct gyre_fused_call *call);

/** gyre_cuda_fused_find - the first kernel of the table that fits; NULL if none does. */
const struct gyre_cuda_fused_kernel *gyre_cuda_fused_find(const struct gyre_fused_call *call);

/** gyre_cuda_fused_most_tiles - the most tiles that a fused kernel takes of this call, which has at
 * least call->n_tiles; 0 if there is no kernel for it. */
uint32_t gyre_cuda_fused_most_tiles(const struct gyre_fused_call *call);

/** gyre_cuda_fused_loads - may a fused kernel run some call of this program? Asked once, when the
 * program is loaded: what only a call knows is taken as it suits best.
 * @call: proto, pattern, is_placed, n_peers, depth, n_threads and most_shared_bytes count. */
bool gyre_cuda_fused_loads(const struct gyre_fused_call *call);

/** gyre_cuda_fused_plan - which kernel runs a call, and its size.
 * @tile_bytes: of the largest chunk of a tile.
 * @launch_out: kernel is NULL if no fused kernel fits, or if the interpreter is faster; the rest is
 * set only with a kernel. */
void gyre_cuda_fused_plan(const struct gyre_fused_call *call, uint64_t tile_bytes,
                          struct gyre_cuda_fused_launch *launch_out);

/** gyre_cuda_fused_resolve - the kernel's argument for a fused program: its peers' FIFO ends in
 * channel 0. Offsets are in blocks; the launch, which knows the count, makes them bytes.
 * @found: has a pattern. Returns false if FIFOs cannot be addressed so: an end has a proxy, the
 * depth is no power of two, or channels are not equally far apart. */
bool gyre_cuda_fused_resolve(const struct gyre_fifo_spec *spec,
                             const struct gyre_connector *connectors,
                             const struct gyre_load_config *config,
                             const struct gyre_fused_program *found,
                             struct gyre_cuda_fused *fused_out);

/** gyre_cuda_fused_joins - can a send and a receive be one launch? Only if the FIFOs of both are
 * addressed alike. */
bool gyre_cuda_fused_joins(const struct gyre_cuda_fused *send,
                           const struct gyre_cuda_fused *receive);

/** gyre_cuda_fused_join - make one peer of a send and a receive: the ends of both. */
struct gyre_cuda_fused gyre_cuda_fused_join(const struct gyre_cuda_fused *send,
                                            const struct gyre_cuda_fused *receive);

/** gyre_cuda_fused_before - make the send ready to be launched before the receive: it gives the
 * credit of the receive's ends. A peer that also sends first waits for that credit.
 * @n_channels: of the receive. */
struct gyre_cuda_fused gyre_cuda_fused_before(const struct gyre_cuda_fused *send,
                                              const struct gyre_cuda_fused *receive,
                                              uint32_t n_channels);

/** gyre_cuda_block_threads - how many threads of a block move chunks of this many bytes. Line
 * protocols: no more than the chunk has lines (LL128: a warp takes four at a time), but two warps
 * at least.
 * @most_threads: as the program was loaded. */
uint32_t gyre_cuda_block_threads(enum gyre_proto proto, uint64_t chunk_bytes,
                                 uint32_t most_threads);

/** gyre_cuda_threads_per_peer - how many threads of a block of n_threads serve a peer, in whole
 * warps. */
uint32_t gyre_cuda_threads_per_peer(uint32_t n_peers, uint32_t n_threads);

/** gyre_cuda_fused_shared_bytes - shared memory of a block: 16 bytes for each thread and for each
 * of this rank's own values, for the rounds in flight and once more for the next rounds. With one
 * peer no memory is shared. */
uint32_t gyre_cuda_fused_shared_bytes(uint32_t n_peers, uint32_t threads_per_peer, uint32_t unroll);

/** gyre_cuda_peers_class - which of the kernels with registers for 1, 3 and 7 peers serves so many:
 * 0, 1 or 2. */
uint32_t gyre_cuda_peers_class(uint32_t n_peers);

#endif
