/* SPDX-License-Identifier: Apache-2.0
 *
 * Trials of CUDA on each GPU: copies from and to host memory, memory that a second process opens
 * (IPC), and an exported dma-buf. libcuda is opened with dlopen(), so a build without CUDA has the
 * trials too. They run in processes of their own, because a broken driver can hang in any call.
 */
#ifndef GYRE_BENCH_DOCTOR_CUDA_TRIAL_H
#define GYRE_BENCH_DOCTOR_CUDA_TRIAL_H

#include "core/foundation/base/status.h"

#include <stdint.h>

#define BENCH_CUDA_MAX_GPUS 64

/* The result of one GPU. Processes send it through a pipe, so it has no pointers. */
struct bench_cuda_gpu {
    char bus_id[32];
    char busy_cause[160];     /* other processes use the GPU, so nothing was tried; "" = tried */
    double to_gbytes_per_s;   /* from pinned host memory */
    double from_gbytes_per_s; /* to pinned host memory */
    char copy_cause[160];     /* why the copies failed; "" = they were right */
    char ipc_cause[160];      /* likewise for the second process */
    char dmabuf_cause[160];   /* likewise for the export */
};

/* The results of a host, kept for all checks that need them. */
struct bench_cuda_results {
    int n;
    int32_t status; /* gyre_status of the whole trial; GPUs before a failure are in the list */
    char cause[256];
    struct bench_cuda_gpu gpus[BENCH_CUDA_MAX_GPUS];
};

/* How long the process that tries may say nothing. A start takes longer than the trial of a GPU,
 * because it initialises all GPUs of the machine. */
struct bench_cuda_limits {
    int start_ms; /* until CUDA has started */
    int gpu_ms;   /* until the result of the next GPU */
};

/** bench_cuda_trial - try all GPUs, one after the other.
 * @root: below another root the library is ROOT/lib/libcuda.so.1; "" = this machine's.
 * @gpus_out: BENCH_CUDA_MAX_GPUS. *n_out is also set on failure: the GPUs that were tried before.
 * Errors: UNSUPPORTED (no libcuda, or a symbol is missing), DEVICE (CUDA does not start), TIMEOUT
 * (a call hangs, or the start), REMOTE (the process ended). */
gyre_status bench_cuda_trial(const char *root, const struct bench_cuda_limits *limits,
                             struct bench_cuda_gpu *gpus_out, int *n_out);

#endif
