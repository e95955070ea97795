/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows: measured thresholds as text, one file for each kind of machine and one for communicators on
 * several hosts (*.rows beside this file; docs/tuning.md explains how they read). They are embedded
 * in the library and parsed once.
 */
#ifndef GYRE_PLAN_ROWS_H
#define GYRE_PLAN_ROWS_H

#include "algorithms/algorithm.h"
#include "core/foundation/base/status.h"

#define GYRE_MAX_ROWS 128 /* of a file */

/* X(enum suffix, word): yes-or-no facts that a row may ask for, or with "!" refuse. All ranks know
 * each of them. */
#define GYRE_ROW_FACT_TABLE(X)                                                        \
    X(GPUS, gpus)           /* the ranks are on GPUs */                               \
    X(NVLINK, nvlink)       /* NVLink connects all ranks */                           \
    X(PROXIED, proxied)     /* a proxy serves the connections of some pair */         \
    X(TCP, tcp)             /* that proxy copies through TCP connections */           \
    X(FLOAT_SUM, float_sum) /* protocol LAMPORT can carry the call */                 \
    X(PLACED, placed)       /* kernels may place the results in the peers' windows */ \
    X(ONE_HOP, one_hop)     /* the algorithm sends all data to all ranks in one hop */

enum gyre_row_fact {
#define GYRE_ROW_FACT_ENUM(id, name) GYRE_ROW_FACT_##id,
    GYRE_ROW_FACT_TABLE(GYRE_ROW_FACT_ENUM)
#undef GYRE_ROW_FACT_ENUM
        GYRE_N_ROW_FACTS
};

/* X(enum suffix, word, names an algorithm, names a protocol): what a row decides. */
#define GYRE_ROW_KIND_TABLE(X)                                                                   \
    X(COPIES, copies, 1, 1)   /* copy engines carry a call whose result lies in a window */      \
    X(FUSED, fused, 1, 1)     /* a kernel of its own carries the call, if the executor has it */ \
    X(WAY, way, 1, 1)         /* the algorithm and its protocol */                               \
    X(LINE, line, 0, 1)       /* the protocol of an algorithm that no row of kind WAY has */     \
    X(ONLY, only, 1, 0)       /* several hosts: no other algorithm is predicted */               \
    X(INSIDE, inside, 0, 1)   /* several hosts: a protocol inside hosts is predicted, too */     \
    X(BETWEEN, between, 0, 1) /* likewise between hosts */

enum gyre_row_kind {
#define GYRE_ROW_KIND_ENUM(id, name, has_algorithm, has_proto) GYRE_ROW_##id,
    GYRE_ROW_KIND_TABLE(GYRE_ROW_KIND_ENUM)
#undef GYRE_ROW_KIND_ENUM
        GYRE_N_ROW_KINDS
};

/* X(member, word): numbers that a row may bound. */
#define GYRE_ROW_NUMBER_TABLE(X)                                                           \
    X(ranks, "ranks")                                                                      \
    X(hosts, "hosts")                                                                      \
    X(channels, "channels") /* that the call may use at most */                            \
    X(bytes, "bytes")       /* of the vector, or of all blocks where buffers are blocks */ \
    X(block, "block")       /* of the vector, or of one block */

/* The conditions of a row. All of them must hold. */
struct gyre_when {
    uint32_t colls;   /* a bit for each collective */
    uint32_t needs;   /* facts, by bit */
    uint32_t refuses; /* likewise */
    uint32_t pad;
    struct gyre_bounds {
        uint64_t least, most;
    } ranks, hosts, channels, bytes, block;
};

struct gyre_row {
    struct gyre_when when;
    const char *file;     /* without folder */
    const char *text;     /* the row, up to the end of the line */
    const char *measured; /* where and when, likewise */
    uint32_t line;
    enum gyre_row_kind kind;
    const struct gyre_algorithm *algorithm; /* NULL = the kind names none */
    enum gyre_proto proto;                  /* SIMPLE where the kind names none */
};

struct gyre_rows {
    const char *file;
    size_t n_rows;
    struct gyre_row rows[GYRE_MAX_ROWS];
};

/* The kinds of machines that have been measured. */
enum gyre_row_file {
    GYRE_ROWS_H200,
    GYRE_ROWS_GPU_HOST_MEMORY,
    GYRE_ROWS_HOST,
    GYRE_ROWS_HOSTS, /* of any machine */
    GYRE_N_ROW_FILES
};

/** gyre_rows_of - the shipped rows of a kind of machine. */
const struct gyre_rows *gyre_rows_of(enum gyre_row_file file);

/** gyre_rows_parse - read a file of rows.
 * @text: lives as long as the rows. @file: for messages, likewise.
 * Errors: INVALID_ARGUMENT naming file, line, the word and the legal ones. A fact that only one
 * rank knows, such as the alignment of its buffers, is refused: the ranks would not choose alike.
 */
gyre_status gyre_rows_parse(const char *text, const char *file, struct gyre_rows *rows_out);

/** gyre_row_hash - of everything that a row decides and depends on, but not of the words about it.
 */
uint64_t gyre_row_hash(const struct gyre_row *row);

/* The rows that were looked at and did not win, in that order, each once. */
struct gyre_why {
    size_t n;
    struct gyre_why_lost {
        const struct gyre_row *row;
        char reason[64];
    } lost[GYRE_N_ROW_FILES * GYRE_MAX_ROWS];
};

/** gyre_why_add - record why a row that fits is not taken. @why: NULL = nothing is recorded. */
void gyre_why_add(struct gyre_why *why, const struct gyre_row *row, const char *reason);

/* A call, as rows see it. */
struct gyre_row_call {
    enum gyre_row_kind kind;
    enum gyre_collective coll;
    uint32_t facts; /* by bit */
    bool any_size;  /* bounds of bytes and channels do not count */
    uint64_t ranks, hosts, channels, bytes, block;
    const struct gyre_algorithm *algorithm; /* rows with this one only; NULL = with any */
    uint32_t protos;                        /* rows with these only */
    struct gyre_why *why; /* learns of rows of the kind and collective that do not fit; NULL = not
                           * wanted */
};

/** gyre_rows_find - the first row that fits a call, behind the row `after`; NULL if there is none.
 * @after: NULL = from the first row on. */
const struct gyre_row *gyre_rows_find(const struct gyre_rows *rows,
                                      const struct gyre_row_call *call,
                                      const struct gyre_row *after);

/* The embedded files (cmake/embed.cmake). */
struct gyre_rows_embedded {
    const unsigned char *bytes; /* a zero byte follows the last one */
    size_t n_bytes;
};

extern const struct gyre_rows_embedded gyre_rows_h200_rows;
extern const struct gyre_rows_embedded gyre_rows_gpu_host_memory_rows;
extern const struct gyre_rows_embedded gyre_rows_host_rows;
extern const struct gyre_rows_embedded gyre_rows_hosts_rows;

#endif
