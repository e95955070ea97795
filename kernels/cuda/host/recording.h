/* SPDX-License-Identifier: Apache-2.0
 *
 * What kernels record for traces and profilers, in device memory. Valid as C11 and as CUDA.
 */
#ifndef GYRE_KERNELS_CUDA_RECORDING_H
#define GYRE_KERNELS_CUDA_RECORDING_H

#include "core/foundation/model/schedule.h"

/* One a multiprocessor, of which no GPU has more. */
#define GYRE_CUDA_MAX_BLOCKS 256

/* Every block appends entries of 32 bytes to a ring of its own (device/record.cuh). A launch
 * appends
 *
 *   sides of its FIFOs, four to an entry   how many slots each had moved before
 *   an entry for each step                 the times; only the interpreter
 *   GYRE_CUDA_RUN_ENTRIES entries          what the launch was; they come last
 *
 * so the host reads a ring from its newest entry backwards. All else follows from the program. */
union gyre_cuda_record {
    struct {
        uint64_t begin_ns; /* begins to wait for the step's slots */
        uint32_t data_ns;  /* after begin_ns: data were there */
        uint32_t ready_ns; /* after begin_ns: also room */
        uint64_t end_ns;   /* bytes moved, slots published */
        uint32_t n_bytes;  /* of each slot */
        uint32_t pad;
    } step;
    struct {
        uint32_t index;  /* of the connector */
        uint32_t number; /* slots before this launch, modulo 2^32 */
    } ends[4];
    struct { /* a run's first entry */
        uint64_t begin_ns;
        uint64_t end_ns;
        uint64_t call;
        uint64_t sequence;
    } run;
    uint64_t marks_ns[4]; /* its second: enum gyre_cuda_mark; 0 = not reached */
    struct {              /* the third one */
        uint32_t program; /* variant 0 */
        uint32_t block;   /* of its work */
        uint32_t n_ends;
        uint32_t n_steps;
        uint32_t n_tiles;
        uint32_t kind; /* enum gyre_cuda_run */
        uint32_t slot_bytes;
        uint32_t first_program; /* of the launch's first call */
    } facts;
    struct {              /* the last one */
        uint64_t n_bytes; /* of the first call */
        uint64_t pad[3];
    } call;
};

#define GYRE_CUDA_RUN_ENTRIES 4

enum gyre_cuda_mark {
    GYRE_CUDA_MARK_SENT,      /* inputs, or the chunk, are sent, the own block is copied */
    GYRE_CUDA_MARK_ARRIVED,   /* first lines or slots of all peers */
    GYRE_CUDA_MARK_PASSED_ON, /* two-shot: results are sent */
    GYRE_CUDA_MARK_GATHERED   /* two-shot: first lines of all results */
};

enum gyre_cuda_run {
    GYRE_CUDA_RUN_STEPS,
    GYRE_CUDA_RUN_FUSED,
    GYRE_CUDA_RUN_OPENS, /* the sync kernel before copies */
    GYRE_CUDA_RUN_CLOSES /* the one after them */
};

struct gyre_cuda_record_block {
    uint64_t n_entries; /* of launches that have ended */
    uint64_t begin_ns;  /* of the running launch, as call */
    uint64_t call;
    uint64_t marks_ns[4]; /* of the running launch; 0 between launches */
    uint32_t n_steps;     /* likewise */
    uint32_t pad;
};

/* In device memory; written by kernels only, in the GPU's time. */
struct gyre_cuda_recorder {
    union gyre_cuda_record *entries; /* [block][capacity] */
    uint32_t capacity;               /* a power of two */
    uint32_t pad;
    struct gyre_cuda_record_block blocks[GYRE_CUDA_MAX_BLOCKS];
};

/* Pinned; a ring of GYRE_CUDA_SPANS launches by their first work's number. */
struct gyre_cuda_span {
    uint64_t call; /* 1 + number of the launch's first work */
    uint64_t begin_ns;
    uint64_t end_ns;
};
#define GYRE_CUDA_SPANS 512

struct gyre_cuda_recording {
    struct gyre_cuda_recorder *recorder; /* NULL: not recorded */
    struct gyre_cuda_span *spans;        /* [GYRE_CUDA_SPANS][n_span_blocks]; NULL = none */
    uint64_t first_work;                 /* works launched before, or GYRE_CUDA_CAPTURED */
    uint64_t sequence;                   /* of its first call */
    uint64_t n_bytes;                    /* likewise */
    uint32_t program;                    /* likewise, in the trace */
    uint32_t slot_bytes;                 /* about, of its largest slot */
    uint16_t kind;                       /* enum gyre_cuda_run */
    uint16_t records_steps;
    uint32_t n_span_blocks;
};

/* A graph may run often, so its events are numbered by the works that the GPU has completed, from
 * GYRE_CUDA_FIRST_REPLAY on, unlike any call of the host. */
#define GYRE_CUDA_CAPTURED     UINT64_MAX
#define GYRE_CUDA_FIRST_REPLAY (UINT64_C(1) << 30)

GYRE_STATIC_ASSERT(sizeof(union gyre_cuda_record) == 32, "written in 16-byte words");

#endif
