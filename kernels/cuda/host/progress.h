/* SPDX-License-Identifier: Apache-2.0
 *
 * How far the works of an executor are, read from the words that its kernels write into host
 * memory. Pure: built and tested without nvcc.
 */
#ifndef GYRE_KERNELS_CUDA_HOST_PROGRESS_H
#define GYRE_KERNELS_CUDA_HOST_PROGRESS_H

#include "kernels/cuda/host/program.h"
#include "kernels/executor.h"

/** gyre_cuda_mailbox_read - how far the works are. Any thread; does not wait. */
struct gyre_progress gyre_cuda_mailbox_read(const struct gyre_cuda_mailbox *mailbox);

#endif
