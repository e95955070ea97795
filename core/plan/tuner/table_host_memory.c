/* SPDX-License-Identifier: Apache-2.0
 *
 * The fastest choices on GPUs whose slots are in host memory, because the GPUs cannot address each
 * other's memory. Measured between 2 H100 with 16 lanes of PCIe 5.0 each, for float32 sums under
 * CUDA graphs (benches with --sweep and GYRE_P2P_DISABLE=1), 2026-11. More than two ranks were not
 * measured and use the same sizes.
 */
#include "core/plan/tuner/table.h"

#include "core/base/util.h"

/* Rows of one collective and one number of ranks are in ascending order of size. LL is fast while a
 * channel has no more lines than a warp reads at once, so longer calls need more channels
 * (tuner_tiles.c). All-reduces between 2 GPUs, in us: 16 KiB by direct in 64 channels 5.8, in 32
 * channels 11.0, by twoshot in 32 channels 7.6, by direct in SIMPLE 14.2. Calls with more lines
 * are interpreted (kernels/cuda/host/fused.c). 64 KiB in LL, then in SIMPLE: all-reduce 12.2, 15.9;
 * all-gather 9.7, 13.7; reduce-scatter 10.0, 14.5. 256 KiB: 25.5, 23.5; 16.5, 17.7; 16.4, 18.6. */
static const struct gyre_tuner_row rows[] = {
    {GYRE_COLL_ALL_REDUCE, true, 4 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_ALL_REDUCE, true, 8 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 32},
    {GYRE_COLL_ALL_REDUCE, true, 16 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 64},
    {GYRE_COLL_ALL_REDUCE, true, 16 << 10, &gyre_algorithm_twoshot, GYRE_PROTO_LL, 32},
    {GYRE_COLL_ALL_REDUCE, true, 32 << 10, &gyre_algorithm_twoshot, GYRE_PROTO_LL, 64},
    {GYRE_COLL_ALL_REDUCE, true, 128 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 32},
    {GYRE_COLL_ALL_REDUCE, true, 512 << 10, &gyre_algorithm_direct, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_ALL_REDUCE, true, 8 << 20, &gyre_algorithm_twoshot, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_ALL_REDUCE, true, UINT64_MAX, &gyre_algorithm_ring, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_ALL_REDUCE, false, 4 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_ALL_REDUCE, false, 8 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 32},
    {GYRE_COLL_ALL_REDUCE, false, 16 << 10, &gyre_algorithm_twoshot, GYRE_PROTO_LL, 32},
    {GYRE_COLL_ALL_REDUCE, false, 32 << 10, &gyre_algorithm_twoshot, GYRE_PROTO_LL, 64},
    {GYRE_COLL_ALL_REDUCE, false, 8 << 20, &gyre_algorithm_twoshot, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_ALL_REDUCE, false, UINT64_MAX, &gyre_algorithm_ring, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_ALL_GATHER, true, 4 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_ALL_GATHER, true, 16 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 32},
    {GYRE_COLL_ALL_GATHER, true, 32 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 64},
    {GYRE_COLL_ALL_GATHER, true, 256 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 16},
    {GYRE_COLL_ALL_GATHER, true, 8 << 20, &gyre_algorithm_direct, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_ALL_GATHER, true, UINT64_MAX, &gyre_algorithm_ring, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_ALL_GATHER, false, 4 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_ALL_GATHER, false, 16 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 32},
    {GYRE_COLL_ALL_GATHER, false, 32 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 64},
    {GYRE_COLL_ALL_GATHER, false, 2 << 20, &gyre_algorithm_direct, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_ALL_GATHER, false, UINT64_MAX, &gyre_algorithm_ring, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_REDUCE_SCATTER, true, 4 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_REDUCE_SCATTER, true, 16 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 32},
    {GYRE_COLL_REDUCE_SCATTER, true, 32 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 64},
    {GYRE_COLL_REDUCE_SCATTER, true, 256 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 16},
    {GYRE_COLL_REDUCE_SCATTER, true, 8 << 20, &gyre_algorithm_direct, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_REDUCE_SCATTER, true, UINT64_MAX, &gyre_algorithm_ring, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_REDUCE_SCATTER, false, 4 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_REDUCE_SCATTER, false, 16 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 32},
    {GYRE_COLL_REDUCE_SCATTER, false, 32 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 64},
    {GYRE_COLL_REDUCE_SCATTER, false, 2 << 20, &gyre_algorithm_direct, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_REDUCE_SCATTER, false, UINT64_MAX, &gyre_algorithm_ring, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_BROADCAST, true, 128 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_BROADCAST, true, UINT64_MAX, &gyre_algorithm_ring, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_BROADCAST, false, 128 << 10, &gyre_algorithm_ring, GYRE_PROTO_LL, 0},
    {GYRE_COLL_BROADCAST, false, UINT64_MAX, &gyre_algorithm_ring, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_REDUCE, true, 128 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_REDUCE, true, UINT64_MAX, &gyre_algorithm_ring, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_REDUCE, false, 128 << 10, &gyre_algorithm_ring, GYRE_PROTO_LL, 0},
    {GYRE_COLL_REDUCE, false, UINT64_MAX, &gyre_algorithm_ring, GYRE_PROTO_SIMPLE, 0},
};

const struct gyre_tuner_table gyre_tuner_table_host_memory = {
    .rows = rows,
    .n_rows = GYRE_ARRAY_LENGTH(rows),
};
