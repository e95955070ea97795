/* SPDX-License-Identifier: Apache-2.0
 *
 * The limits of this machine's GPUs: rates and times that no collective can beat. The program
 * `limits` measures them and writes them as JSON, and --limits of the other benches reads them.
 */
#ifndef GYRE_BENCH_LIMITS_H
#define GYRE_BENCH_LIMITS_H

#include "bench/limits/ceiling.h"
#include "core/foundation/base/status.h"
#include "core/foundation/model/types.h"

#define BENCH_LIMITS_MAX_GPUS  16
#define BENCH_LIMITS_N_POINTS  5
#define BENCH_LIMITS_MAX_NOTES 32

/* The paths by which bytes get from GPU to GPU. A path is measured at BENCH_LIMITS_N_POINTS points,
 * which are numbers of blocks or sizes of a copy. X(id, name in the file, unit of its points, way,
 * description) */
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
    const char *unit; /* of the points: "blocks" or "bytes" */
    const char *description;
    enum bench_way way;
    uint64_t points[BENCH_LIMITS_N_POINTS];
};

extern const struct bench_limits_path_traits bench_limits_paths[BENCH_LIMITS_N_PATHS];

/* GPUs 0 to n_gpus - 1 in a ring, all active at once. Rates are GB/s of one GPU in one direction,
 * those of the slowest GPU; 0 = not measured. */
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

/* A figure that is missing, and the reason. */
struct bench_limits_note {
    char what[32];
    char why[128];
};

/* The figures of a machine; 0 = not measured. */
struct bench_limits {
    int n_gpus;
    struct bench_limits_gpu gpus[BENCH_LIMITS_MAX_GPUS];
    uint64_t buffer_bytes;  /* size of a GPU's buffer; a pass moves as much, except for copies of a
                               given size */
    double launch_us;       /* from one empty kernel to the next in a full stream */
    double launch_wait_us;  /* an empty kernel that is launched and waited for */
    double graph_launch_us; /* from one empty kernel to the next in a CUDA graph */
    double flag_us;         /* time of a flag from GPU 0 to GPU 1, one way */
    double local_copy_gbytes_per_s; /* copy within GPU 0's memory; bytes read plus bytes written */
    int n_rings;
    struct bench_limits_ring rings[BENCH_LIMITS_MAX_GPUS];
    int n_notes;
    struct bench_limits_note notes[BENCH_LIMITS_MAX_NOTES];
};

/* The ceiling with which --limits compares a bench. */
struct bench_limit {
    double gbytes_per_s; /* of busbw; 0 = there is no limit */
    const char *ceiling; /* its name in the file */
};

/** bench_limits_measure - measure all GPUs that this process sees. It takes seconds, and the GPUs
 * should be idle otherwise.
 * @limits_out: about 10 KiB.
 * Errors: UNSUPPORTED (no GPU, no driver, or built without CUDA), TIMEOUT (a GPU waited over two
 * seconds for another GPU or for the host), DEVICE (also when bytes did not arrive as they were
 * sent), OUT_OF_MEMORY. */
gyre_status bench_limits_measure(struct bench_limits *limits_out);

/** bench_limits_note - record a figure that was not measured, and the reason in printf's format.
 * Notes beyond BENCH_LIMITS_MAX_NOTES are dropped. */
void bench_limits_note(struct bench_limits *limits, const char *what, const char *why, ...)
    __attribute__((format(printf, 3, 4)));

/** bench_limits_ceiling - a ceiling from a ring's best rates: for each way the fastest path to the
 * next GPU at its best point. Stores to all GPUs at once do not count, because a collective can
 * send to one GPU after the other. Returns GB/s; 0 = not measured. Pure. */
double bench_limits_ceiling(const struct bench_limits_ring *ring, enum bench_ceiling ceiling);

/** bench_limits_print - print the figures for people on standard output. */
void bench_limits_print(const struct bench_limits *limits);

/** bench_limits_write - write the figures as JSON (docs/performance.md). Errors: SYSTEM,
 * UNSUPPORTED (built without json-c). */
gyre_status bench_limits_write(const struct bench_limits *limits, const char *path);

/** bench_limits_read - read the ceiling of a collective's busbw from a file of
 * bench_limits_write(). For an all-reduce it is all_reduce_push_push: both phases by the SMs'
 * fastest stores. For all other collectives it is push, the rate of those stores, because at best
 * every byte crosses a link once. Loads are slower than stores. Copy engines are faster than stores
 * and can carry an all-gather, but they do not reduce.
 * @n_ranks: the number of GPUs of the ring that was measured.
 * Errors: SYSTEM (the file cannot be read), INVALID_ARGUMENT (not such a file, no ring of n_ranks
 * GPUs, or no such ceiling in it), UNSUPPORTED (built without json-c). */
gyre_status bench_limits_read(const char *path, enum gyre_collective coll, int n_ranks,
                              struct bench_limit *limit_out);

#endif
