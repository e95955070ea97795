/* SPDX-License-Identifier: Apache-2.0
 *
 * Measured thresholds as text, one file for each kind of machine and one for several hosts (*.rows,
 * docs/tuning.md). Embedded in the library and parsed once.
 */
#ifndef GYRE_PLAN_ROWS_H
#define GYRE_PLAN_ROWS_H

#include "algorithms/algorithm.h"
#include "core/foundation/base/status.h"

#define GYRE_MAX_ROWS 160 /* of a file */

/* X(enum suffix, word): a row may ask for it or, with "!", refuse it. All ranks know each. */
#define GYRE_ROW_FACT_TABLE(X)                                               \
    X(GPUS, gpus)                                                            \
    X(NVLINK, nvlink)       /* of all ranks */                               \
    X(PROXIED, proxied)     /* of some pair's connections */                 \
    X(TCP, tcp)             /* proxies copy through TCP */                   \
    X(FLOAT_SUM, float_sum) /* of 16 bits or more */                         \
    X(PLACED, placed)       /* results are or may be in peers' windows */    \
    X(ONE_HOP, one_hop)     /* all data go to all ranks in one hop */        \
    X(RING, ring)           /* sends go to a ring's next rank only */        \
    X(CHAIN, chain)         /* the whole vector moves to or from one rank */ \
    X(TWO_LEVEL, two_level) /* steps inside and between hosts differ */      \
    X(FANS_IN, fans_in)     /* several hosts send to a rank at once */       \
    X(LINES, lines)         /* not simple */                                 \
    X(LL, ll)                                                                \
    X(COPIES, copy_engines)                                                  \
    X(FUSED, fused) /* by a row of kind FUSED */

/* By what must be known first. */
#define GYRE_ROW_FACTS_CALL      ((1U << GYRE_ROW_FACT_PLACED) - 1)
#define GYRE_ROW_FACTS_ALGORITHM (GYRE_ROW_FACTS_CALL | 0xfU << GYRE_ROW_FACT_ONE_HOP)
#define GYRE_ROW_FACTS_WEIGHT    (GYRE_ROW_FACTS_ALGORITHM | 1U << GYRE_ROW_FACT_FANS_IN)
#define GYRE_ROW_FACTS_PROTO     (GYRE_ROW_FACTS_CALL | 3U << GYRE_ROW_FACT_LINES)
#define GYRE_ROW_FACTS_PLACED    (GYRE_ROW_FACTS_CALL | 1U << GYRE_ROW_FACT_PLACED)
#define GYRE_ROW_FACTS_ALL       UINT32_MAX

enum gyre_row_fact {
#define GYRE_ROW_FACT_ENUM(id, name) GYRE_ROW_FACT_##id,
    GYRE_ROW_FACT_TABLE(GYRE_ROW_FACT_ENUM)
#undef GYRE_ROW_FACT_ENUM
        GYRE_N_ROW_FACTS
};

/* Behind "->". A rule's form is one of the bits from 8 on. */
#define GYRE_RESULT_RULE(form) (8U << GYRE_RULE_##form)
enum gyre_result {
    GYRE_RESULT_ALGORITHM = 1,
    GYRE_RESULT_PROTO = 2,
    GYRE_RESULT_WAY = GYRE_RESULT_ALGORITHM | GYRE_RESULT_PROTO,
    GYRE_RESULT_STAGED = 4,
};
#define GYRE_RESULT_NUMBER GYRE_RESULT_RULE(NUMBER)
#define GYRE_RESULT_CHANNELS \
    (GYRE_RESULT_NUMBER | GYRE_RESULT_RULE(BLOCK) | GYRE_RESULT_RULE(BYTES))
#define GYRE_RESULT_TILE                                                          \
    (GYRE_RESULT_RULE(BLOCK) | GYRE_RESULT_RULE(BYTES) | GYRE_RESULT_RULE(SLOT) | \
     GYRE_RESULT_RULE(ROUNDS) | GYRE_RESULT_RULE(CHAIN))

/* X(enum suffix, word, what it decides, facts that it may ask for). COPIES and FUSED are asked
 * before WAY. From ONLY on rows are about predictions:
 *
 *   LEAST_CHANNELS  as CHANNELS, the least to predict
 *   WEIGHT          percent of a predicted time that count; all rows that fit are multiplied
 *   GAIN            percent of the best time that a choice of more channels or smaller tiles beats
 *   MESSAGES        twice as many messages must gain one part of GAIN more, of so many parts
 *   CHANNEL_BYTES   many ranks: so many channels are predicted that none has more bytes
 *   FLAT_STEPS      many ranks: two-level algorithms come first, then others of so few steps a
 *                   tile, and none in which all pairs send to each other */
#define GYRE_ROW_KIND_TABLE(X)                                                 \
    X(COPIES, copies, WAY, CALL)                                               \
    X(FUSED, fused, WAY, PLACED)                                               \
    X(WAY, way, WAY, CALL)                                                     \
    X(LINE, line, PROTO, ALGORITHM) /* of an algorithm without a row of WAY */ \
    X(PATH, path, STAGED, CALL)     /* kernels place no results */             \
    X(CHANNELS, channels, CHANNELS, ALL)                                       \
    X(TILE, tile, TILE, ALL)                                                   \
    X(COPY_RANKS, copy_ranks, NUMBER, CALL) /* most ranks of copies */         \
    X(PAIR, pair, NUMBER, PROTO)            /* most channels of a message */   \
    X(ONLY, only, ALGORITHM, CALL)          /* nothing else is predicted */    \
    X(INSIDE, inside, PROTO, CALL)          /* also predicted inside hosts */  \
    X(BETWEEN, between, PROTO, CALL)        /* likewise between hosts */       \
    X(LEAST_CHANNELS, least_channels, CHANNELS, ALL)                           \
    X(WEIGHT, weight, NUMBER, WEIGHT)                                          \
    X(GAIN, gain, NUMBER, CALL)                                                \
    X(MESSAGES, messages, NUMBER, CALL)                                        \
    X(LEAST_TILE, least_tile, NUMBER, CALL) /* smallest to predict */          \
    X(TILE_NS, tile_ns, NUMBER, CALL)       /* longest on a wire */            \
    X(CHANNEL_BYTES, channel_bytes, NUMBER, CALL)                              \
    X(FLAT_STEPS, flat_steps, NUMBER, CALL)

enum gyre_row_kind {
#define GYRE_ROW_KIND_ENUM(id, name, result, facts) GYRE_ROW_##id,
    GYRE_ROW_KIND_TABLE(GYRE_ROW_KIND_ENUM)
#undef GYRE_ROW_KIND_ENUM
        GYRE_N_ROW_KINDS
};

/* X(member, word): a row may bound it. */
#define GYRE_ROW_NUMBER_TABLE(X)                                                           \
    X(ranks, "ranks")                                                                      \
    X(hosts, "hosts")                                                                      \
    X(channels, "channels") /* of the call */                                              \
    X(sms, "sms")           /* of each GPU */                                              \
    X(bytes, "bytes")       /* of the vector, or of all blocks where buffers are blocks */ \
    X(block, "block")       /* of the vector, or of one block */

struct gyre_when {
    uint32_t colls;   /* by bit */
    uint32_t needs;   /* by bit */
    uint32_t refuses; /* by bit */
    uint32_t pad;
    struct gyre_bounds {
        uint64_t least, most;
    } ranks, hosts, channels, sms, bytes, block;
};

/* X(enum suffix, word): gives the channels or a tile's bytes. A channel's tile goes by the
 * channel's bytes. */
#define GYRE_RULE_TABLE(X)                                                          \
    X(NUMBER, number)                                                               \
    X(BLOCK, block)   /* bytes of the vector or of one block / number */            \
    X(BYTES, bytes)   /* likewise of all blocks */                                  \
    X(SLOT, slot)     /* a whole slot */                                            \
    X(ROUNDS, rounds) /* few tiles, of whole rounds of a line protocol's threads */ \
    X(CHAIN, chain)   /* sqrt(block * number / hops) */

enum gyre_rule_form {
#define GYRE_RULE_ENUM(id, name) GYRE_RULE_##id,
    GYRE_RULE_TABLE(GYRE_RULE_ENUM)
#undef GYRE_RULE_ENUM
        GYRE_N_RULE_FORMS
};

/* "bytes/ranks/128K >=32": divided by the ranks, too, then within bounds. */
struct gyre_rule {
    uint64_t number;
    uint64_t least, most;
    uint32_t unit_bytes; /* of tiles */
    uint8_t form;
    bool by_ranks;
    bool rounds_down; /* channels; else up */
    bool one_tile;    /* channels: one tile each, that fits a slot */
};

struct gyre_row {
    struct gyre_when when;
    const char *file;     /* without folder */
    const char *text;     /* to the end of the line */
    const char *measured; /* likewise: where and when */
    uint32_t line;
    enum gyre_row_kind kind;
    const struct gyre_algorithm *algorithm; /* NULL = the kind names none */
    enum gyre_proto proto;                  /* SIMPLE where the kind names none */
    struct gyre_rule rule;                  /* zeros where the kind has none */
};

struct gyre_rows {
    const char *file;
    size_t n_rows;
    struct gyre_row rows[GYRE_MAX_ROWS];
};

enum gyre_row_file {
    GYRE_ROWS_H200,
    GYRE_ROWS_GPU_HOST_MEMORY,
    GYRE_ROWS_HOST,
    GYRE_ROWS_HOSTS, /* of any machine */
    GYRE_N_ROW_FILES
};

const struct gyre_rows *gyre_rows_of(enum gyre_row_file file);

/** @text, @file: live as long as the rows. Errors: INVALID_ARGUMENT naming file, line, the word and
 * the legal ones. A fact of one rank alone, such as its buffers' alignment, is refused: ranks would
 * not choose alike. */
gyre_status gyre_rows_parse(const char *text, const char *file, struct gyre_rows *rows_out);

uint64_t gyre_row_hash(const struct gyre_row *row);

/* Rows that did not win, each once. */
struct gyre_why {
    size_t n;
    struct gyre_why_lost {
        const struct gyre_row *row;
        char reason[96];
    } lost[GYRE_N_ROW_FILES * GYRE_MAX_ROWS];
};

/** @why: or NULL. */
void gyre_why_add(struct gyre_why *why, const struct gyre_row *row, const char *reason);

struct gyre_row_call {
    enum gyre_row_kind kind;
    enum gyre_collective coll;
    uint32_t facts; /* by bit */
    bool any_size;  /* whatever the bytes and channels */
    uint64_t ranks, hosts, channels, sms, bytes, block;
    const struct gyre_algorithm *algorithm; /* of the rows; NULL = any */
    uint32_t protos;                        /* of the rows */
    struct gyre_why *why;                   /* the collective's rows that do not fit; or NULL */
};

/** The first that fits after `after` (NULL = of all), or NULL. */
const struct gyre_row *gyre_rows_find(const struct gyre_rows *rows,
                                      const struct gyre_row_call *call,
                                      const struct gyre_row *after);

/* By cmake/embed.cmake. */
struct gyre_rows_embedded {
    const unsigned char *bytes; /* a zero byte follows */
    size_t n_bytes;
};

extern const struct gyre_rows_embedded gyre_rows_h200_rows;
extern const struct gyre_rows_embedded gyre_rows_gpu_host_memory_rows;
extern const struct gyre_rows_embedded gyre_rows_host_rows;
extern const struct gyre_rows_embedded gyre_rows_hosts_rows;

#endif
