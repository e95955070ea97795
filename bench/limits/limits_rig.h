/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPUs that `limits` measures, and how a transfer among them is timed: on all GPUs at once,
 * again and again, checked afterwards. One thread drives them all.
 */
#ifndef GYRE_BENCH_LIMITS_RIG_H
#define GYRE_BENCH_LIMITS_RIG_H

#include "bench/limits/limits_kernels.h"
#include "core/device/cuda_error.h"
#include "core/device/device.h"

struct bench_rig_gpu {
    struct gyre_device *device;
    struct gyre_device_info info;
    gyre_stream stream;
    cudaEvent_t begin;
    cudaEvent_t end;
    void *from; /* both n_bytes of the rig; holds the pattern of its number */
    void *to;   /* zeroed before each transfer */
    bool reaches[BENCH_LIMITS_MAX_GPUS]; /* loads and stores there; itself too */
};

struct bench_rig {
    int n_gpus;
    uint64_t n_bytes;
    struct bench_flag_page *flags;
    struct bench_rig_gpu gpus[BENCH_LIMITS_MAX_GPUS];
};

/* What every GPU of a ring does at the same time. */
struct bench_transfer {
    enum bench_limits_path path;
    uint64_t point; /* blocks or bytes, as the path's unit says */
    int n_gpus;     /* GPUs 0 to n - 1; a ring of one copies within its own memory */
};

/** bench_rig_open - all visible GPUs, up to BENCH_LIMITS_MAX_GPUS, with two buffers of n_bytes each
 * and access to each other where that is possible.
 * Errors: UNSUPPORTED (no GPU), DEVICE, OUT_OF_MEMORY. */
gyre_status bench_rig_open(uint64_t n_bytes, struct bench_rig *rig_out);

/** bench_rig_close - works on what bench_rig_open left when it failed, too. */
void bench_rig_close(struct bench_rig *rig);

/** bench_rig_use - make a GPU the thread's current one. */
gyre_status bench_rig_use(int gpu);

/** bench_rig_time - the rate of a transfer, of one GPU in one direction: bytes of a pass over the
 * time of the slowest GPU; the best of three rounds of several passes. All GPUs start a round
 * together, when everything is enqueued. Then, whether every byte is where it should be.
 * Errors: DEVICE (a CUDA call failed, or bytes did not arrive), TIMEOUT. */
gyre_status bench_rig_time(struct bench_rig *rig, const struct bench_transfer *transfer,
                           double *gbytes_per_s_out);

/** bench_rig_check_overdue - TIMEOUT if a kernel gave up waiting since the flags were cleared. To
 * be called after the kernels ended. @what: for the error. */
gyre_status bench_rig_check_overdue(const struct bench_rig *rig, const char *what);

#endif
