/* SPDX-License-Identifier: Apache-2.0
 *
 * The fastest choices on GPUs that are joined by NVLink: H200, 18 links each, multicast off. They
 * were measured with 2 and 4 GPUs, for float32 sums under CUDA graphs (tests/gpu/bench_cuda_exec)
 * and for results in windows (bench -R 2 with GYRE_PATH), 2026-11. Calls of more than 4 ranks use
 * the rows of 4 ranks. All-to-alls in lines have the sizes of all-gathers, because the same kernels
 * move as many lines for both. Two ranks take lines for longer ones, and for longer messages,
 * because their blocks then send and receive at the same time (docs/lab_notes.md, 2026-11-27).
 */
#include "core/plan/tuner/table.h"

#include "core/base/util.h"

/* Rows of one collective and one number of ranks are in ascending order of size. The rows of
 * LAMPORT, which carries sums of floating point, come before all other rows. A row of LL after a
 * row of LL128 with more bytes is the choice for GPUs that cannot use LL128. */
static const struct gyre_tuner_row rows[] = {
    {GYRE_COLL_ALL_REDUCE, true, 3 << 20, &gyre_algorithm_direct, GYRE_PROTO_LAMPORT, 0},
    {GYRE_COLL_ALL_REDUCE, true, 12 << 20, &gyre_algorithm_twoshot, GYRE_PROTO_LAMPORT, 48},
    {GYRE_COLL_ALL_REDUCE, false, 160 << 10, &gyre_algorithm_direct, GYRE_PROTO_LAMPORT, 0},
    {GYRE_COLL_ALL_REDUCE, false, 2 << 20, &gyre_algorithm_twoshot, GYRE_PROTO_LAMPORT, 0},
    {GYRE_COLL_ALL_REDUCE, false, 9 << 20, &gyre_algorithm_twoshot, GYRE_PROTO_LAMPORT, 48},
    {GYRE_COLL_REDUCE_SCATTER, true, 4 << 20, &gyre_algorithm_direct, GYRE_PROTO_LAMPORT, 0},
    {GYRE_COLL_REDUCE_SCATTER, true, 16 << 20, &gyre_algorithm_direct, GYRE_PROTO_LAMPORT, 48},
    {GYRE_COLL_REDUCE_SCATTER, false, 4 << 20, &gyre_algorithm_direct, GYRE_PROTO_LAMPORT, 0},
    {GYRE_COLL_REDUCE_SCATTER, false, 13 << 20, &gyre_algorithm_direct, GYRE_PROTO_LAMPORT, 48},
    {GYRE_COLL_ALL_REDUCE, true, 112 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_ALL_REDUCE, true, 448 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL128, 0},
    {GYRE_COLL_ALL_REDUCE, true, 2 << 20, &gyre_algorithm_twoshot, GYRE_PROTO_LL128, 0},
    {GYRE_COLL_ALL_REDUCE, true, 4 << 20, &gyre_algorithm_twoshot, GYRE_PROTO_LL128, 32},
    {GYRE_COLL_ALL_REDUCE, true, 12 << 20, &gyre_algorithm_twoshot, GYRE_PROTO_LL128, 64},
    {GYRE_COLL_ALL_REDUCE, true, UINT64_MAX, &gyre_algorithm_ring, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_ALL_REDUCE, false, 80 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_ALL_REDUCE, false, 2 << 20, &gyre_algorithm_twoshot, GYRE_PROTO_LL128, 0},
    {GYRE_COLL_ALL_REDUCE, false, 4 << 20, &gyre_algorithm_twoshot, GYRE_PROTO_LL128, 32},
    {GYRE_COLL_ALL_REDUCE, false, UINT64_MAX, &gyre_algorithm_ring, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_ALL_GATHER, true, 512, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_ALL_GATHER, true, 8 << 20, &gyre_algorithm_direct, GYRE_PROTO_LL128, 0},
    {GYRE_COLL_ALL_GATHER, true, 12 << 20, &gyre_algorithm_direct, GYRE_PROTO_LL128, 64},
    {GYRE_COLL_ALL_GATHER, true, 16 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_ALL_GATHER, true, UINT64_MAX, &gyre_algorithm_ring, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_ALL_GATHER, false, 2 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_ALL_GATHER, false, 8 << 20, &gyre_algorithm_direct, GYRE_PROTO_LL128, 0},
    {GYRE_COLL_ALL_GATHER, false, UINT64_MAX, &gyre_algorithm_ring, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_REDUCE_SCATTER, true, 160 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_REDUCE_SCATTER, true, 4 << 20, &gyre_algorithm_direct, GYRE_PROTO_LL128, 0},
    {GYRE_COLL_REDUCE_SCATTER, true, 12 << 20, &gyre_algorithm_direct, GYRE_PROTO_LL128, 64},
    {GYRE_COLL_REDUCE_SCATTER, true, UINT64_MAX, &gyre_algorithm_ring, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_REDUCE_SCATTER, false, 192 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_REDUCE_SCATTER, false, 4 << 20, &gyre_algorithm_direct, GYRE_PROTO_LL128, 0},
    {GYRE_COLL_REDUCE_SCATTER, false, UINT64_MAX, &gyre_algorithm_ring, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_BROADCAST, true, 160 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_BROADCAST, true, 2 << 20, &gyre_algorithm_direct, GYRE_PROTO_LL128, 0},
    {GYRE_COLL_BROADCAST, true, UINT64_MAX, &gyre_algorithm_ring, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_BROADCAST, false, 96 << 10, &gyre_algorithm_ring, GYRE_PROTO_LL, 0},
    {GYRE_COLL_BROADCAST, false, 2 << 20, &gyre_algorithm_ring, GYRE_PROTO_LL128, 0},
    {GYRE_COLL_BROADCAST, false, UINT64_MAX, &gyre_algorithm_ring, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_REDUCE, true, 160 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_REDUCE, true, 2 << 20, &gyre_algorithm_ring, GYRE_PROTO_LL128, 0},
    {GYRE_COLL_REDUCE, true, UINT64_MAX, &gyre_algorithm_ring, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_REDUCE, false, 96 << 10, &gyre_algorithm_ring, GYRE_PROTO_LL, 0},
    {GYRE_COLL_REDUCE, false, 2 << 20, &gyre_algorithm_ring, GYRE_PROTO_LL128, 0},
    {GYRE_COLL_REDUCE, false, UINT64_MAX, &gyre_algorithm_ring, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_ALL_TO_ALL, true, 512, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_ALL_TO_ALL, true, 8 << 20, &gyre_algorithm_direct, GYRE_PROTO_LL128, 0},
    {GYRE_COLL_ALL_TO_ALL, true, 48 << 20, &gyre_algorithm_direct, GYRE_PROTO_LL128, 64},
    {GYRE_COLL_ALL_TO_ALL, true, 2 << 20, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_ALL_TO_ALL, true, UINT64_MAX, &gyre_algorithm_direct, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_ALL_TO_ALL, false, 2 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_ALL_TO_ALL, false, 8 << 20, &gyre_algorithm_direct, GYRE_PROTO_LL128, 0},
    {GYRE_COLL_ALL_TO_ALL, false, 4 << 20, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_ALL_TO_ALL, false, UINT64_MAX, &gyre_algorithm_direct, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_GATHER, true, 512 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_GATHER, true, 8 << 20, &gyre_algorithm_direct, GYRE_PROTO_LL128, 0},
    {GYRE_COLL_GATHER, true, 2 << 20, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_GATHER, true, UINT64_MAX, &gyre_algorithm_direct, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_SCATTER, true, 512 << 10, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_SCATTER, true, 8 << 20, &gyre_algorithm_direct, GYRE_PROTO_LL128, 0},
    {GYRE_COLL_SCATTER, true, 2 << 20, &gyre_algorithm_direct, GYRE_PROTO_LL, 0},
    {GYRE_COLL_SCATTER, true, UINT64_MAX, &gyre_algorithm_direct, GYRE_PROTO_SIMPLE, 0},
    /* A send has one receiver, however many ranks there are. */
    {GYRE_COLL_SEND_RECV, true, 512, &gyre_algorithm_sendrecv, GYRE_PROTO_LL, 0},
    {GYRE_COLL_SEND_RECV, true, 3 << 20, &gyre_algorithm_sendrecv, GYRE_PROTO_LL128, 0},
    {GYRE_COLL_SEND_RECV, true, 9 << 20, &gyre_algorithm_sendrecv, GYRE_PROTO_LL128, 64},
    {GYRE_COLL_SEND_RECV, true, 2 << 20, &gyre_algorithm_sendrecv, GYRE_PROTO_LL, 0},
    {GYRE_COLL_SEND_RECV, true, UINT64_MAX, &gyre_algorithm_sendrecv, GYRE_PROTO_SIMPLE, 0},
    {GYRE_COLL_SEND_RECV, false, 1 << 20, &gyre_algorithm_sendrecv, GYRE_PROTO_LL, 0},
    {GYRE_COLL_SEND_RECV, false, 3 << 20, &gyre_algorithm_sendrecv, GYRE_PROTO_LL128, 0},
    {GYRE_COLL_SEND_RECV, false, 2 << 20, &gyre_algorithm_sendrecv, GYRE_PROTO_LL, 0},
    {GYRE_COLL_SEND_RECV, false, UINT64_MAX, &gyre_algorithm_sendrecv, GYRE_PROTO_SIMPLE, 0},
};

/* With 48 channels the multiprocessors that sum before the copies are fast enough; with 16 they can
 * run the copies beside the copy engines. */
static const struct gyre_tuner_copy_row copy_rows[] = {
    {GYRE_COLL_ALL_REDUCE, true, 384 << 20, 48, &gyre_algorithm_spread},
    {GYRE_COLL_ALL_REDUCE, false, 384 << 20, 16, &gyre_algorithm_spread},
    {GYRE_COLL_ALL_GATHER, true, 64 << 20, 16, &gyre_algorithm_direct},
    {GYRE_COLL_ALL_GATHER, false, 192 << 20, 16, &gyre_algorithm_direct},
    {GYRE_COLL_ALL_TO_ALL, true, 96 << 20, 16, &gyre_algorithm_direct},
    {GYRE_COLL_ALL_TO_ALL, false, 192 << 20, 16, &gyre_algorithm_direct},
    {GYRE_COLL_BROADCAST, true, 48 << 20, 16, &gyre_algorithm_ring},
    {GYRE_COLL_BROADCAST, false, 768 << 20, 16, &gyre_algorithm_ring},
};

const struct gyre_tuner_table gyre_tuner_table_h200 = {
    .rows = rows,
    .n_rows = GYRE_ARRAY_LENGTH(rows),
    .copy_rows = copy_rows,
    .n_copy_rows = GYRE_ARRAY_LENGTH(copy_rows),
};
