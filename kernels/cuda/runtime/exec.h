/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_KERNELS_CUDA_EXEC_H
#define GYRE_KERNELS_CUDA_EXEC_H

#include "kernels/executor.h"

/** gyre_cuda_executor_set_epoch - for tests near the number at which flags wrap: every FIFO end of
 * a protocol has moved n_slots. Nothing may run; set all inboxes and credits too. */
gyre_status gyre_cuda_executor_set_epoch(struct gyre_executor *executor, enum gyre_proto proto,
                                         uint64_t n_slots);

#endif
