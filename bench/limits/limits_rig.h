/* SPDX-License-Identifier: Apache-2.0
 *
 * The rig of `limits`: the GPUs that are measured, and how a transfer among them is timed. All
 * GPUs transfer at once and repeatedly, and the bytes are checked afterwards. One thread drives
 * all GPUs.
 */
#ifndef GYRE_BENCH_LIMITS_RIG_H
#define GYRE_BENCH_LIMITS_RIG_H

#include "bench/limits/limits_kernels.h"
#include "core/foundation/device/cuda_error.h"
#include "core/foundation/device/device.h"

struct bench_rig_gpu {
    struct gyre_device *device;
    struct gyre_device_info info;
    gyre_stream stream;
    cudaEvent_t begin;
    cudaEvent_t end;
    void *from; /* each of the rig's n_bytes; holds the pattern of its GPU's number */
    void *to;   /* zeroed before each transfer */
    bool reaches[BENCH_LIMITS_MAX_GPUS]; /* this GPU can load and store there; true for itself */
};

struct bench_rig {
    int n_gpus;
    uint64_t n_bytes;
    struct bench_flag_page *flags;
    struct bench_rig_gpu gpus[BENCH_LIMITS_MAX_GPUS];
};

/* A transfer that all GPUs of a ring make at the same time. */
struct bench_transfer {
    enum bench_limits_path path;
    uint64_t point; /* blocks or bytes, as the path's unit says */
    int n_gpus;     /* GPUs 0 to n_gpus - 1; a ring of one copies within its own memory */
};

/** bench_rig_open - open all visible GPUs, up to BENCH_LIMITS_MAX_GPUS, with two buffers of n_bytes
 * each, and peer access between them where that is possible.
 * Errors: UNSUPPORTED (no GPU), DEVICE, OUT_OF_MEMORY. */
gyre_status bench_rig_open(uint64_t n_bytes, struct bench_rig *rig_out);

/** bench_rig_close - release a rig. It may be called after bench_rig_open() failed. */
void bench_rig_close(struct bench_rig *rig);

/** bench_rig_use - make a GPU the current one of this thread. */
gyre_status bench_rig_use(int gpu);

/** bench_rig_time - the rate of a transfer, for one GPU in one direction: the bytes of a pass over
 * the time of the slowest GPU. It is the best of three rounds, each of several passes. All GPUs
 * start a round together once everything is enqueued. Afterwards every byte is checked.
 * Errors: DEVICE (a CUDA call failed, or bytes did not arrive), TIMEOUT. */
gyre_status bench_rig_time(struct bench_rig *rig, const struct bench_transfer *transfer,
                           double *gbytes_per_s_out);

/** bench_rig_check_overdue - TIMEOUT if a kernel gave up waiting since is_overdue was cleared. Call
 * it after the kernels ended.
 * @what: the measurement, for the message. */
gyre_status bench_rig_check_overdue(const struct bench_rig *rig, const char *what);

#endif
