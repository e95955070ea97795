/* SPDX-License-Identifier: Apache-2.0
 *
 * The interpreter for programs that only copy, for every element type. It also runs several works
 * in one launch, for sends and receives that must not wait for each other. */
#include "kernels/cuda/fused/fused_placed.cuh"
#include "kernels/cuda/interpreter/interp.cuh"

#define COPY_KERNEL(proto)  KERNEL(proto, DTYPE_NONE, GYRE_SUM)
#define COPY_KERNELS(proto) (const void *)&interpret_many<GYRE_PROTO_##proto>

extern "C" const struct gyre_cuda_copy_kernels gyre_cuda_kernels_copy = {
    EXCHANGES(DTYPE_NONE),
    /* LAMPORT: for ranks that only send data which other ranks add */
    {COPY_KERNEL(SIMPLE), COPY_KERNEL(LL), COPY_KERNEL(LL128), COPY_KERNEL(LAMPORT)},
    {COPY_KERNELS(SIMPLE), COPY_KERNELS(LL), COPY_KERNELS(LL128)}};

extern "C" const void *const gyre_cuda_kernel_placed = (const void *)&exchange_placed;
