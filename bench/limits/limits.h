/* SPDX-License-Identifier: Apache-2.0
 *
 * Rates and times that no collective can beat, and the ceilings of busbw from them.
 */
#ifndef GYRE_BENCH_LIMITS_H
#define GYRE_BENCH_LIMITS_H

#include "core/foundation/base/status.h"
#include "core/foundation/model/types.h"

/* Loads by the next GPU's SMs, stores by this one's, or a copy engine. */
enum bench_way { BENCH_WAY_PULL, BENCH_WAY_PUSH, BENCH_WAY_COPY_ENGINE, BENCH_N_WAYS };

/* Of busbw. An all-reduce has two phases, other collectives count as two alike. X(name, way of
 * phase one, way of phase two) */
#define BENCH_CEILING_TABLE(X)                        \
    X(pull, PULL, PULL)                               \
    X(push, PUSH, PUSH)                               \
    X(copy_engine, COPY_ENGINE, COPY_ENGINE)          \
    X(all_reduce_pull_push, PULL, PUSH)               \
    X(all_reduce_push_push, PUSH, PUSH)               \
    X(all_reduce_push_copy_engine, PUSH, COPY_ENGINE) \
    X(all_reduce_copy_engine_copy_engine, COPY_ENGINE, COPY_ENGINE)

enum bench_ceiling {
#define BENCH_CEILING_ENUM(name, first, second) BENCH_CEILING_##name,
    BENCH_CEILING_TABLE(BENCH_CEILING_ENUM)
#undef BENCH_CEILING_ENUM
        BENCH_N_CEILINGS
};

extern const char *const bench_ceiling_names[BENCH_N_CEILINGS];

/** Both phases move the same bytes in sequence, so times add up. Rates are for one direction of a
 * GPU's link. Returns GB/s, 0 = a rate is not positive and finite. */
double bench_ceiling_of_phases(double reduce_scatter_gbytes_per_s, double all_gather_gbytes_per_s);

#define BENCH_LIMITS_MAX_GPUS  16
#define BENCH_LIMITS_N_POINTS  5
#define BENCH_LIMITS_MAX_NOTES 32

/* Each has BENCH_LIMITS_N_POINTS points, numbers of blocks or sizes of a copy. X(id, name in the
 * file, unit, way, description) */
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
    const char *unit;
    const char *description;
    enum bench_way way;
    uint64_t points[BENCH_LIMITS_N_POINTS];
};

extern const struct bench_limits_path_traits bench_limits_paths[BENCH_LIMITS_N_PATHS];

/* GPUs 0 to n_gpus - 1 at once. The slowest GPU counts, in one direction. 0 = not measured. */
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

struct bench_limits_note {
    char what[32];
    char why[128];
};

/* 0 = not measured. */
struct bench_limits {
    int n_gpus;
    struct bench_limits_gpu gpus[BENCH_LIMITS_MAX_GPUS];
    uint64_t buffer_bytes;          /* of a GPU and of a pass, unless copies have a size */
    double launch_us;               /* between empty kernels of a full stream */
    double launch_wait_us;          /* an empty kernel, launched and waited for */
    double graph_launch_us;         /* between empty kernels of a CUDA graph */
    double flag_us;                 /* GPU 0 to GPU 1, one way */
    double local_copy_gbytes_per_s; /* on GPU 0, bytes read plus written */
    int n_rings;
    struct bench_limits_ring rings[BENCH_LIMITS_MAX_GPUS];
    int n_notes;
    struct bench_limits_note notes[BENCH_LIMITS_MAX_NOTES];
};

struct bench_limit {
    double gbytes_per_s; /* busbw, 0 = none */
    const char *ceiling;
};

/** Measures all visible GPUs, which should be idle. Errors: UNSUPPORTED (no GPU, driver or CUDA),
 * TIMEOUT (a GPU waited over two seconds), DEVICE (also wrong bytes), OUT_OF_MEMORY. */
gyre_status bench_limits_measure(struct bench_limits *limits_out);

/** Notes beyond BENCH_LIMITS_MAX_NOTES are dropped. */
void bench_limits_note(struct bench_limits *limits, const char *what, const char *why, ...)
    __attribute__((format(printf, 3, 4)));

/** GB/s by each way's fastest path to the next GPU, 0 = not measured. Stores to all GPUs do not
 * count, as a collective can send to one after the other. */
double bench_limits_ceiling(const struct bench_limits_ring *ring, enum bench_ceiling ceiling);

void bench_limits_print(const struct bench_limits *limits);

/** Errors: SYSTEM, UNSUPPORTED (no json-c). */
gyre_status bench_limits_write(const struct bench_limits *limits, const char *path);

/** By the SMs' fastest stores, as loads are slower and copy engines do not reduce. @n_ranks: GPUs
 * of the ring. Errors: SYSTEM, INVALID_ARGUMENT (wrong file, no such ring or ceiling), UNSUPPORTED
 * (no json-c). */
gyre_status bench_limits_read(const char *path, enum gyre_collective coll, int n_ranks,
                              struct bench_limit *limit_out);

#endif
