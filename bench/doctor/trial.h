/* SPDX-License-Identifier: Apache-2.0
 *
 * libcuda and NVML are opened with dlopen(), for builds without CUDA. Trials have processes of
 * their own, because a broken driver can hang in any call.
 */
#ifndef GYRE_BENCH_DOCTOR_TRIAL_H
#define GYRE_BENCH_DOCTOR_TRIAL_H

#include "core/foundation/base/status.h"

#include <stdint.h>
#include <sys/types.h>

#define BENCH_NVML_MAX_GPUS 64

/* -1 = not told by NVML or the GPU. */
struct bench_nvml_gpu {
    char bus_id[32];        /* "0000:18:00.0" */
    int64_t has_ecc;        /* 0 or 1 */
    int64_t n_corrected;    /* ECC errors since the driver was loaded */
    int64_t n_uncorrected;  /* as n_corrected */
    int64_t n_rows_pending; /* 1 = rows are replaced at the next reset */
    int64_t n_rows_failed;  /* 1 = a row could not be replaced */
    int64_t sm_mhz;
    int64_t most_sm_mhz;
    int64_t reasons; /* of nvmlClocksThrottleReasons */
    int64_t celsius;
    int64_t width;
    int64_t most_width;
    int64_t generation;
    int64_t most_generation;
    int64_t n_replays; /* packets that PCI sent again */
};

struct bench_nvml {
    int n;
    char cause[256]; /* why n is 0, "" = NVML shows none */
    struct bench_nvml_gpu gpus[BENCH_NVML_MAX_GPUS];
};

/** @root: "" = this machine's, else ROOT/lib/libnvidia-ml.so.1 is the library. @gpus_out:
 * BENCH_NVML_MAX_GPUS. Errors: UNSUPPORTED (no library or no symbol), DEVICE (NVML does not
 * start). */
gyre_status bench_nvml_read(const char *root, struct bench_nvml_gpu *gpus_out, int *n_out);

#define BENCH_CUDA_MAX_GPUS 64

/* Sent through a pipe, so it has no pointers. */
struct bench_cuda_gpu {
    char bus_id[32];
    char busy_cause[160]; /* GPU in use by other processes, "" = tried */
    double to_gbytes_per_s;
    double from_gbytes_per_s;
    char copy_cause[160];   /* "" = copies were right */
    char ipc_cause[160];    /* in the second process */
    char dmabuf_cause[160]; /* of the export */
};

struct bench_cuda_results {
    int n;
    int32_t status; /* of the whole trial, whose list ends before a failure */
    char cause[256];
    struct bench_cuda_gpu gpus[BENCH_CUDA_MAX_GPUS];
};

/* Longest silence of the trial's process. */
struct bench_cuda_limits {
    int start_ms; /* until all GPUs have started */
    int gpu_ms;   /* between results of GPUs */
};

/** One GPU after the other. @root: "" = this machine's, else ROOT/lib/libcuda.so.1 is the library.
 * @gpus_out: BENCH_CUDA_MAX_GPUS. *n_out is set on failure too. Errors: UNSUPPORTED (no library or
 * no symbol), DEVICE (CUDA does not start), TIMEOUT (a call hangs), REMOTE (the process ended). */
gyre_status bench_cuda_trial(const char *root, const struct bench_cuda_limits *limits,
                             struct bench_cuda_gpu *gpus_out, int *n_out);

#define BENCH_MAX_PAIR_DEVICES 32

enum bench_pair_event_kind {
    BENCH_PAIR_COUNT, /* first: `from` counts devices */
    BENCH_PAIR_START,
    BENCH_PAIR_DONE,
    BENCH_PAIR_FAILED, /* ends everything, from < 0: before any pair */
    BENCH_PAIR_END
};

/* Sent through a pipe: fixed layout, below PIPE_BUF. */
struct bench_pair_event {
    int32_t kind;
    int32_t from;
    int32_t to;
    double latency_us; /* of 8 bytes */
    double gbytes_per_s;
    char cause[256];
};

/* In the child, which tells events. @kind: a gyre_device_kind. */
typedef void bench_pairs_function(int fd, const void *kind);

struct bench_pairs {
    int n;
    double latency_us[BENCH_MAX_PAIR_DEVICES][BENCH_MAX_PAIR_DEVICES]; /* NAN = not measured */
    double gbytes_per_s[BENCH_MAX_PAIR_DEVICES][BENCH_MAX_PAIR_DEVICES];
    int from; /* begun last, -1 = none */
    int to;
};

void bench_pairs_measure(int fd, const void *kind);

/** @measure: runs in a child. @timeout_ms: longest silence. @pairs: gets what is known, on failure
 * too. Errors: TIMEOUT, DEVICE with the child's cause, SYSTEM. */
gyre_status bench_pairs_run(bench_pairs_function *measure, gyre_device_kind kind, int timeout_ms,
                            struct bench_pairs *pairs);

/* For programs and drivers that may hang. */

struct bench_child {
    pid_t pid; /* also of its process group */
    int fd;    /* what it writes */
};

/** @run: in the child, which ends when it returns. Errors: SYSTEM. */
gyre_status bench_child_start(void (*run)(int fd, const void *argument), const void *argument,
                              struct bench_child *child_out);

/** Returns what read() does, or -1 after @timeout_ms. */
ssize_t bench_child_read(const struct bench_child *child, int timeout_ms, void *bytes_out,
                         size_t n_bytes);

/** A whole record, which is below PIPE_BUF and so written at once. @what: the child's work. Errors:
 * TIMEOUT (@silence), REMOTE. */
gyre_status bench_child_take(const struct bench_child *child, int timeout_ms, const char *silence,
                             const char *what, void *record_out, size_t record_bytes);

/** In the child, to the parent's bench_child_take(). */
void bench_child_tell(int fd, const void *record, size_t record_bytes);

/** Ends its process group. A child that hangs in a driver may outlive that and is left alone. */
void bench_child_end(const struct bench_child *child);

#endif
