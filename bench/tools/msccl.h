/* SPDX-License-Identifier: Apache-2.0
 *
 * Translates algorithms in the XML format of MSCCL into programs of gyre (docs/schedule.md
 * describes the translation). msccl_xml.c reads the file, msccl_order.c finds an order of the
 * steps, and msccl.c builds the programs.
 */
#ifndef GYRE_BENCH_MSCCL_H
#define GYRE_BENCH_MSCCL_H

#include "core/foundation/model/program_file.h"

#define BENCH_MSCCL_MAX_GPUS 256

/* The kinds of steps, by their word in the XML. The numbers say whether a step receives, whether it
 * reads the chunks that src names, whether it reads and writes those that dst names, and whether it
 * sends.
 * X(enum suffix, word, receives, reads src, reads dst, writes dst, sends) */
#define BENCH_MSCCL_STEP_TABLE(X)                                    \
    X(SEND, s, false, true, false, false, true)                      \
    X(RECEIVE, r, true, false, false, true, false)                   \
    X(COPY, cpy, false, true, false, true, false)                    \
    X(REDUCE, re, false, true, true, true, false)                    \
    X(RECEIVE_COPY_SEND, rcs, true, false, false, true, true)        \
    X(RECEIVE_REDUCE_COPY, rrc, true, true, false, true, false)      \
    X(RECEIVE_REDUCE_SEND, rrs, true, true, false, false, true)      \
    X(RECEIVE_REDUCE_COPY_SEND, rrcs, true, true, false, true, true) \
    X(NOTHING, nop, false, false, false, false, false)

enum bench_msccl_type {
#define BENCH_MSCCL_ENUM(id, word, receives, reads_src, reads_dst, writes, sends) BENCH_MSCCL_##id,
    BENCH_MSCCL_STEP_TABLE(BENCH_MSCCL_ENUM)
#undef BENCH_MSCCL_ENUM
        BENCH_MSCCL_N_TYPES
};

struct bench_msccl_traits {
    const char *word;
    bool receives, reads_src, reads_dst, writes, sends;
};
extern const struct bench_msccl_traits bench_msccl_traits[BENCH_MSCCL_N_TYPES];

/* The buffers of a GPU: input, output, scratch. */
enum bench_msccl_buffer {
    BENCH_MSCCL_INPUT,
    BENCH_MSCCL_OUTPUT,
    BENCH_MSCCL_SCRATCH,
    BENCH_MSCCL_N_BUFFERS
};

struct bench_msccl_place {
    enum bench_msccl_buffer buffer;
    int offset; /* in chunks */
};

struct bench_msccl_step {
    enum bench_msccl_type type;
    struct bench_msccl_place src, dst;
    int n_chunks;  /* consecutive ones, from src and dst on */
    int dep_block; /* index of a thread block of this GPU, of which a step must be done; -1 = none
                    */
    int dep_step;
    int line; /* of the XML */
};

struct bench_msccl_block {
    int id;
    int send_peer; /* -1 = none */
    int recv_peer; /* -1 = none */
    int channel;
    int line;
    struct bench_msccl_step *steps;
    int n_steps;
};

struct bench_msccl_gpu {
    int n_chunks_of[BENCH_MSCCL_N_BUFFERS];
    int line;
    struct bench_msccl_block *blocks;
    int n_blocks;
};

struct bench_msccl {
    const char *path; /* for messages */
    char name[16];    /* fit for a program */
    enum gyre_collective coll;
    int root;
    int n_gpus;
    int n_chunks;    /* pieces of the vector; of all blocks where buffers are made of blocks */
    bool is_aliased; /* only in place: input and output are the same memory */
    int line;
    struct bench_msccl_gpu *gpus; /* by id */
};

/** bench_msccl_read - read an XML file. Errors: SYSTEM, OUT_OF_MEMORY, INVALID_ARGUMENT and
 * UNSUPPORTED with file and line; UNSUPPORTED if the build has no libxml2. */
gyre_status bench_msccl_read(const char *path, struct bench_msccl *algo_out);
void bench_msccl_free(struct bench_msccl *algo);

/** bench_msccl_fail - set a cause that begins with file and line. Returns @status. */
gyre_status bench_msccl_fail(gyre_status status, const struct bench_msccl *algo, int line,
                             const char *format, ...) __attribute__((format(printf, 4, 5)));

/* One step of a program: at most one received and two local inputs, one local output and one sent
 * output. */
struct bench_msccl_move {
    uint16_t chunk;
    uint8_t n_ins;
    uint8_t n_outs;
    uint8_t flags;
    struct gyre_ref ins[2];
    struct gyre_ref outs[2];
};

/* One worker of one GPU: the moves of one or several thread blocks, in the order in which they can
 * be carried out one after the other. */
struct bench_msccl_worker {
    struct bench_msccl_move *moves;
    int n_moves;
};

struct bench_msccl_order {
    int n_gpus;
    int n_lanes;
    struct bench_msccl_worker (*workers)[GYRE_MAX_WORKERS]; /* of each GPU */
};

/** bench_msccl_order - assign thread blocks to workers, and find an order of all steps in which the
 * inputs of each step are available. Errors: INVALID_ARGUMENT, UNSUPPORTED with the line of the
 * step that gyre cannot carry out; OUT_OF_MEMORY. */
gyre_status bench_msccl_order(const struct bench_msccl *algo, struct bench_msccl_order *order_out);
void bench_msccl_order_free(struct bench_msccl_order *order);

/** bench_msccl_load - read an XML file, make programs of it and prove them.
 * Errors: as above, and INVALID_ARGUMENT with the verifier's finding. */
gyre_status bench_msccl_load(const char *path, struct gyre_program_file *file_out);

#endif
