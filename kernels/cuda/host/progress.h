/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_KERNELS_CUDA_HOST_PROGRESS_H
#define GYRE_KERNELS_CUDA_HOST_PROGRESS_H

#include "kernels/cuda/host/program.h"
#include "kernels/executor.h"

/** gyre_cuda_mailbox_read - any thread; does not wait. */
struct gyre_progress gyre_cuda_mailbox_read(const struct gyre_cuda_mailbox *mailbox);

#endif
