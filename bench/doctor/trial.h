/* SPDX-License-Identifier: Apache-2.0
 *
 * libcuda and NVML are opened with dlopen(), so a build without CUDA has them too. Trials run in
 * processes of their own, because a broken driver can hang in any call.
 */
#ifndef GYRE_BENCH_DOCTOR_TRIAL_H
#define GYRE_BENCH_DOCTOR_TRIAL_H

#include "core/foundation/base/status.h"

#include <stdint.h>

/* ---- NVML ---------------------------------------------------------------------------------- */

#define BENCH_NVML_MAX_GPUS 64

/* -1 = NVML or the GPU does not tell it. */
struct bench_nvml_gpu {
    char bus_id[32];        /* "0000:18:00.0" */
    int64_t has_ecc;        /* 0 or 1 */
    int64_t n_corrected;    /* ECC errors since the driver was loaded */
    int64_t n_uncorrected;  /* ECC errors, too */
    int64_t n_rows_pending; /* 1 = memory rows are replaced at the next reset */
    int64_t n_rows_failed;  /* 1 = a row could not be replaced */
    int64_t sm_mhz;
    int64_t most_sm_mhz;
    int64_t reasons; /* bits of nvmlClocksThrottleReasons */
    int64_t celsius;
    int64_t width;
    int64_t most_width;
    int64_t generation;
    int64_t most_generation;
    int64_t n_replays; /* packets that the PCI link sent again */
};

struct bench_nvml {
    int n;
    char cause[256]; /* why n is 0; "" = NVML shows none */
    struct bench_nvml_gpu gpus[BENCH_NVML_MAX_GPUS];
};

/** bench_nvml_read - @root: below another root the library is ROOT/lib/libnvidia-ml.so.1; "" = this
 * machine's. @gpus_out: BENCH_NVML_MAX_GPUS. Errors: UNSUPPORTED (no library, or a symbol is
 * missing), DEVICE (NVML does not start). */
gyre_status bench_nvml_read(const char *root, struct bench_nvml_gpu *gpus_out, int *n_out);

/** bench_nvml_reasons - why clocks are low: "power brake, too hot". Idle is left out. @is_bad_out:
 * a fault of the machine and no setting. Returns text_out. */
const char *bench_nvml_reasons(int64_t reasons, bool *is_bad_out, char *text_out,
                               size_t text_bytes);

/* ---- trials of CUDA on each GPU: copies, IPC, dma-buf --------------------------------------- */

#define BENCH_CUDA_MAX_GPUS 64

/* Processes send it through a pipe, so it has no pointers. */
struct bench_cuda_gpu {
    char bus_id[32];
    char busy_cause[160]; /* other processes use the GPU, so nothing was tried; "" = tried */
    double to_gbytes_per_s;
    double from_gbytes_per_s;
    char copy_cause[160];   /* why copies failed; "" = they were right */
    char ipc_cause[160];    /* of the second process */
    char dmabuf_cause[160]; /* of the export */
};

struct bench_cuda_results {
    int n;
    int32_t status; /* of the whole trial; GPUs before a failure are in the list */
    char cause[256];
    struct bench_cuda_gpu gpus[BENCH_CUDA_MAX_GPUS];
};

/* How long the process that tries may say nothing. A start initialises all GPUs of the machine. */
struct bench_cuda_limits {
    int start_ms; /* until CUDA has started */
    int gpu_ms;   /* until the result of the next GPU */
};

/** bench_cuda_trial - one GPU after the other. @root: below another root the library is
 * ROOT/lib/libcuda.so.1; "" = this machine's. @gpus_out: BENCH_CUDA_MAX_GPUS. *n_out is also set on
 * failure. Errors: UNSUPPORTED (no libcuda, or a symbol is missing), DEVICE (CUDA does not start),
 * TIMEOUT (a call hangs, or the start), REMOTE (the process ended). */
gyre_status bench_cuda_trial(const char *root, const struct bench_cuda_limits *limits,
                             struct bench_cuda_gpu *gpus_out, int *n_out);

/* ---- copies between each pair of devices, through gyre's own calls ------------------------- */

#define BENCH_MAX_PAIR_DEVICES 32

enum bench_pair_event_kind {
    BENCH_PAIR_COUNT, /* `from` is the number of devices; comes first */
    BENCH_PAIR_START, /* the copy from -> to begins */
    BENCH_PAIR_DONE,
    BENCH_PAIR_FAILED, /* ends everything. from < 0: before the first pair */
    BENCH_PAIR_END
};

/* Goes through a pipe: fixed layout, less than PIPE_BUF. */
struct bench_pair_event {
    int32_t kind;
    int32_t from;
    int32_t to;
    double latency_us; /* of a call of 8 bytes */
    double gbytes_per_s;
    char cause[256];
};

/* In the child. It tells each event with bench_pair_tell(fd, ...). */
typedef void bench_pairs_function(int fd, int kind);

struct bench_pairs {
    int n;
    double latency_us[BENCH_MAX_PAIR_DEVICES][BENCH_MAX_PAIR_DEVICES]; /* NAN = not measured */
    double gbytes_per_s[BENCH_MAX_PAIR_DEVICES][BENCH_MAX_PAIR_DEVICES];
    int from; /* the last pair that began; -1 = none */
    int to;
};

void bench_pair_tell(int fd, const struct bench_pair_event *event);

void bench_pairs_measure(int fd, int kind);

/** bench_pairs_run - run `measure` in a child process. @timeout_ms: the child is ended if no event
 * comes for so long. @pairs_out: set also on failure, as far as it is known. Errors: TIMEOUT
 * (pairs_out says at which pair), DEVICE with the child's cause, SYSTEM. */
gyre_status bench_pairs_run(bench_pairs_function *measure, int kind, int timeout_ms,
                            struct bench_pairs *pairs_out);

#endif
