/* SPDX-License-Identifier: Apache-2.0
 *
 * What kernels record for traces and profilers: layouts in device memory. Valid as C11 and as
 * CUDA.
 */
#ifndef GYRE_KERNELS_CUDA_RECORDING_H
#define GYRE_KERNELS_CUDA_RECORDING_H

#include "core/foundation/model/schedule.h"

/* At most one a multiprocessor, of which no GPU has more. */
#define GYRE_CUDA_MAX_BLOCKS 256

/* Recording for GYRE_TRACE_FILE (device/record.cuh). Every block of the grid appends entries of 32
 * bytes to a ring of its own. A launch appends
 *
 *   its FIFO ends, four to an entry   how many slots each end had moved before the launch
 *   an entry for each step            the times; only the interpreter records steps
 *   GYRE_CUDA_RUN_ENTRIES entries     what the launch was; they come last
 *
 * so the host reads a ring from its newest entry backwards. Everything else that an event of the
 * trace says follows from the program, which the host knows. */
union gyre_cuda_record {
    struct {
        uint64_t begin_ns; /* waits for the step's slots from here on */
        uint32_t data_ns;  /* after begin_ns: the data were there */
        uint32_t ready_ns; /* after begin_ns: there was room as well */
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
        uint32_t program; /* of the block's work: variant 0 */
        uint32_t block;   /* among the blocks of its work */
        uint32_t n_ends;
        uint32_t n_steps; /* that were recorded */
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

/* In a block's run of a fused program. */
enum gyre_cuda_mark {
    GYRE_CUDA_MARK_SENT,      /* inputs, or its chunk, are sent and its own block is copied */
    GYRE_CUDA_MARK_ARRIVED,   /* first lines or slots of all peers are there */
    GYRE_CUDA_MARK_PASSED_ON, /* two-shot: its results are sent */
    GYRE_CUDA_MARK_GATHERED   /* two-shot: first lines of the peers' results are there */
};

/* What a recorded launch is. */
enum gyre_cuda_run {
    GYRE_CUDA_RUN_STEPS, /* the interpreter */
    GYRE_CUDA_RUN_FUSED, /* a fused kernel */
    GYRE_CUDA_RUN_OPENS, /* the sync kernel before copies */
    GYRE_CUDA_RUN_CLOSES /* the sync kernel after them */
};

struct gyre_cuda_record_block {
    uint64_t n_entries;   /* ever recorded, by launches that have ended */
    uint64_t begin_ns;    /* when the running launch began */
    uint64_t call;        /* number of the running launch's call */
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

/* When a block ran, for profilers. Pinned; a ring of GYRE_CUDA_SPANS launches by their first
 * work's number. */
struct gyre_cuda_span {
    uint64_t call; /* 1 + the number of the launch's first work */
    uint64_t begin_ns;
    uint64_t end_ns;
};
#define GYRE_CUDA_SPANS 512

struct gyre_cuda_recording {
    struct gyre_cuda_recorder *recorder; /* NULL: the launch is not recorded */
    struct gyre_cuda_span *spans;        /* [GYRE_CUDA_SPANS][n_span_blocks]; NULL = for nobody */
    uint64_t first_work;                 /* works launched before it, or GYRE_CUDA_CAPTURED */
    uint64_t sequence;                   /* of its first call in the communicator */
    uint64_t n_bytes;                    /* of the first call */
    uint32_t program;                    /* of the first call: its program's number in the trace */
    uint32_t slot_bytes;                 /* about, of the first call's largest slot */
    uint16_t kind;                       /* enum gyre_cuda_run */
    uint16_t records_steps;
    uint32_t n_span_blocks;
};

/* The launch belongs to a graph, which may run often. Its events are numbered by the works that
 * the GPU has completed, from GYRE_CUDA_FIRST_REPLAY on, unlike any call that the host numbers. */
#define GYRE_CUDA_CAPTURED     UINT64_MAX
#define GYRE_CUDA_FIRST_REPLAY (UINT64_C(1) << 30)

GYRE_STATIC_ASSERT(sizeof(union gyre_cuda_record) == 32, "written in 16-byte words");

#endif
