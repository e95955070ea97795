/* SPDX-License-Identifier: Apache-2.0
 *
 * What the GPUs of this machine can do at most, whatever a collective does with them: measured by
 * the program `limits`, kept as JSON, read by --limits of the other benches.
 */
#ifndef GYRE_BENCH_LIMITS_H
#define GYRE_BENCH_LIMITS_H

#include "bench/limits/ceiling.h"
#include "core/base/status.h"
#include "core/model/types.h"

#define BENCH_LIMITS_MAX_GPUS  16
#define BENCH_LIMITS_N_POINTS  5
#define BENCH_LIMITS_MAX_NOTES 32

/* How bytes get from GPU to GPU. A path is measured at BENCH_LIMITS_N_POINTS points: numbers of
 * blocks, or bytes of a copy. X(id, name in the file, unit of its points, way, description) */
#define BENCH_LIMITS_PATH_TABLE(X)                                                     \
    X(STORE, sm_store, blocks, PUSH, "SM stores of 16 B to the next GPU, 512 threads") \
    X(LOAD, sm_load, blocks, PULL, "SM loads of 16 B from the next GPU, 512 threads")  \
    X(STORE_ALL, sm_store_to_all, blocks, PUSH, "SM stores of 16 B to all other GPUs") \
    X(TMA_STORE, tma_store, blocks, PUSH, "TMA stores of 16 KiB, one thread a block")  \
    X(COPY, copy_engine, bytes, COPY_ENGINE, "copy engine to the next GPU")

enum bench_limits_path {
#define BENCH_LIMITS_PATH_ENUM(id, name, unit, way, description) BENCH_LIMITS_##id,
    BENCH_LIMITS_PATH_TABLE(BENCH_LIMITS_PATH_ENUM)
#undef BENCH_LIMITS_PATH_ENUM
        BENCH_LIMITS_N_PATHS
};

struct bench_limits_path_traits {
    const char *name;
    const char *unit; /* of its points: "blocks" or "bytes" */
    const char *description;
    enum bench_way way;
    uint64_t points[BENCH_LIMITS_N_POINTS];
};

extern const struct bench_limits_path_traits bench_limits_paths[BENCH_LIMITS_N_PATHS];

/* GPUs 0 to n - 1 in a ring, all at once. GB/s of one GPU in one direction, of the slowest of them;
 * 0 = not measured. */
struct bench_limits_ring {
    int n_gpus;
    double gbytes_per_s[BENCH_LIMITS_N_PATHS][BENCH_LIMITS_N_POINTS];
};

struct bench_limits_gpu {
    char name[64];
    char pci[24];
    uint32_t arch; /* 90 for 9.0 */
    uint32_t n_sms;
};

/* What is missing in the figures, and why. */
struct bench_limits_note {
    char what[32];
    char why[128];
};

/* 0 = not measured. */
struct bench_limits {
    int n_gpus;
    struct bench_limits_gpu gpus[BENCH_LIMITS_MAX_GPUS];
    uint64_t buffer_bytes;          /* of a GPU; what a pass moves, but for copies by size */
    double launch_us;               /* between empty kernels of one stream, when it is kept full */
    double launch_wait_us;          /* an empty kernel and waiting for it */
    double graph_launch_us;         /* between empty kernels of one CUDA graph */
    double flag_us;                 /* one way of a flag from GPU 0 to GPU 1 */
    double local_copy_gbytes_per_s; /* GPU 0 within its memory, bytes read and bytes written */
    int n_rings;
    struct bench_limits_ring rings[BENCH_LIMITS_MAX_GPUS];
    int n_notes;
    struct bench_limits_note notes[BENCH_LIMITS_MAX_NOTES];
};

/* What --limits compares a bench with. */
struct bench_limit {
    double gbytes_per_s; /* busbw; 0 = there is none */
    const char *ceiling; /* its name in the file */
};

/** bench_limits_measure - measure all GPUs that this process sees; takes seconds, and the GPUs
 * should have nothing else to do. @limits_out: about 10 KiB.
 * Errors: UNSUPPORTED (no GPU, no driver, built without CUDA), TIMEOUT (a GPU waited over two
 * seconds for another or for the host), DEVICE (also when bytes did not arrive as they were sent),
 * OUT_OF_MEMORY. */
gyre_status bench_limits_measure(struct bench_limits *limits_out);

/** bench_limits_note - what was not measured, and why (printf's format); past
 * BENCH_LIMITS_MAX_NOTES it is dropped. */
void bench_limits_note(struct bench_limits *limits, const char *what, const char *why, ...)
    __attribute__((format(printf, 3, 4)));

/** bench_limits_ceiling - from a ring's best rates: of each way the fastest path to the next GPU,
 * at its best point. Stores to all GPUs at once do not count, since a collective may as well send
 * to one after the other. GB/s; 0 = not measured. Pure. */
double bench_limits_ceiling(const struct bench_limits_ring *ring, enum bench_ceiling ceiling);

/** bench_limits_print - the figures for people, on stdout. */
void bench_limits_print(const struct bench_limits *limits);

/** bench_limits_write - as JSON (docs/performance.md). Errors: SYSTEM, UNSUPPORTED (built without
 * json-c). */
gyre_status bench_limits_write(const struct bench_limits *limits, const char *path);

/** bench_limits_read - the ceiling of a collective's busbw from a file of bench_limits_write.
 * All-reduce: all_reduce_push_push, reduce-scatter and all-gather by the SMs' fastest stores.
 * Others: push, those stores themselves, since at best every byte crosses a link once. Loads are
 * slower than stores; copy engines are faster, and can carry an all-gather, but do not reduce.
 * @n_ranks: as many GPUs as the ring that was measured.
 * Errors: SYSTEM (cannot be read), INVALID_ARGUMENT (not such a file, or no ring of n_ranks GPUs,
 * or no such ceiling in it), UNSUPPORTED (built without json-c). */
gyre_status bench_limits_read(const char *path, enum gyre_collective coll, int n_ranks,
                              struct bench_limit *limit_out);

#endif
