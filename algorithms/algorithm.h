/* SPDX-License-Identifier: Apache-2.0
 *
 * Algorithms are pure functions from (shape, rank) to that rank's program. A new one is a file that
 * defines `gyre_algorithm_NAME`, and a line of GYRE_ALGORITHM_LIST.
 */
#ifndef GYRE_ALGORITHMS_ALGORITHM_H
#define GYRE_ALGORITHMS_ALGORITHM_H

#include "core/foundation/model/schedule.h"

#define GYRE_MAX_SIDES 3

struct gyre_given_programs;

/* Whom a rank sends staged data to. */
enum gyre_reach {
    GYRE_REACH_ALL,
    GYRE_REACH_NEAR, /* on several hosts only near ranks */
    GYRE_REACH_RING, /* on one host only its successor; else near ranks */
};

enum gyre_flow {
    GYRE_FLOW_RELAY,
    GYRE_FLOW_ONE_HOP, /* every rank sends all its data to all others */
    GYRE_FLOW_CUT,     /* all pairs exchange the vector, one part a rank */
    GYRE_FLOW_CHAIN,   /* the vector flows to or from one rank, tile by tile */
    GYRE_FLOW_SPARING, /* the grouping's weak host moves less than the others */
};

/* What an algorithm's programs for a shape do. A test compares it with the programs. */
struct gyre_ability {
    uint8_t reach;   /* enum gyre_reach */
    uint8_t flow;    /* enum gyre_flow */
    bool places;     /* with is_placed */
    bool copy_tail;  /* with is_placed: gyre_program_copy_tail() */
    bool keeps_sums; /* in scratch even where one step could add all inputs */
    bool ranges;     /* of chunks */
    bool two_level;
    bool fans_in; /* with 3 hosts or more, a rank receives from several at a time */
};

struct gyre_algorithm {
    const char *name; /* at most 15 characters */
    const char *summary;
    uint32_t collectives; /* bit i = collective i */
    /* Holds for all roots. False: *why_not is the reason, such as "it needs 2^k ranks". */
    bool (*can_do)(const struct gyre_shape *shape, struct gyre_ability *can_out,
                   const char **why_not);
    /* NULL = 1 variant. n_ranks >= 2. */
    int (*n_variants)(const struct gyre_shape *shape);
    /* Append one rank's steps. n_ranks >= 2. The builder remembers the first error. */
    void (*emit)(const struct gyre_shape *shape, int rank, struct gyre_builder *builder);
    /* NULL or 1 if the buffers consist of blocks. n_ranks >= 2. */
    int (*n_chunks)(const struct gyre_shape *shape);
    /* Programs from a file replace the functions above; NULL = none. */
    const struct gyre_given_programs *given;
    /* By gyre_algorithms_add(): only its name or a row takes such an algorithm. */
    const char *from; /* its file, without folder; NULL = compiled in */
    uint64_t build;   /* hash of that file */
    /* Of the shape that its functions get. "swing:8x8" makes such an instance of swing. */
    uint16_t sides[GYRE_MAX_SIDES + 1];
};

struct gyre_given_programs {
    const struct gyre_given_programs *next; /* of another shape; NULL = none */
    enum gyre_collective coll;
    uint16_t n_ranks;
    uint16_t root;
    uint16_t n_variants;
    bool is_placed;
    struct gyre_ability ability;
    /* Emits exactly these programs, so that its measurements hold; NULL = none. */
    const struct gyre_algorithm *like;
    const struct gyre_program *const *programs[GYRE_MAX_VARIANTS]; /* each by rank */
};

/* In the tuner's order. `spread` is in ring.c, `doubling` in halving.c, `sendrecv` in direct.c. */
#define GYRE_ALGORITHM_LIST(X)                    \
    X(ring)                                       \
    X(tree)    /* double and binary */            \
    X(direct)  /* one-shot */                     \
    X(twoshot) /* scatter, then gather */         \
    X(spread)  /* ring of sums, results to all */ \
    X(sendrecv)                                   \
    X(two_level_ring)                             \
    X(two_level_tree)                             \
    X(two_level_log)                              \
    X(doubling) /* of whole vectors, in pairs */  \
    X(halving)  /* of the vector, in pairs */     \
    X(bruck)    /* distances 1, 2, 4, ... */      \
    X(pat)      /* aggregated trees */            \
    X(leaf)     /* a ring but for a weak host */

#define GYRE_DECLARE_ALGORITHM(name) extern const struct gyre_algorithm gyre_algorithm_##name;
GYRE_ALGORITHM_LIST(GYRE_DECLARE_ALGORITHM)
#undef GYRE_DECLARE_ALGORITHM

#define GYRE_MAX_ALGORITHMS 31 /* filters have a bit for each */

/** GYRE_ALGORITHM_LIST, then those that were added; ended by NULL. */
extern const struct gyre_algorithm *gyre_algorithms[GYRE_MAX_ALGORITHMS + 1];

/** No thread may read the list meanwhile. @algorithm: lives as long as the process; `from` is set.
 * Errors: INVALID_ARGUMENT (its name is taken or too long, or a field is missing), UNSUPPORTED
 * (there are too many). */
gyre_status gyre_algorithms_add(const struct gyre_algorithm *algorithm);

/** Take back all but the first @n, before anything has used them. */
void gyre_algorithms_drop(int n);

/** In upper or lower case; NULL = none. */
const struct gyre_algorithm *gyre_algorithm_find(const char *name);

static inline bool gyre_algorithm_has(const struct gyre_algorithm *algorithm,
                                      enum gyre_collective coll)
{
    return (algorithm->collectives >> coll & 1U) != 0;
}

/** Why the algorithm has no programs for a shape; NULL = it has, as for one rank. @can_out: zeros
 * if it has none; may be NULL. */
const char *gyre_algorithm_obstacle(const struct gyre_algorithm *algorithm,
                                    const struct gyre_shape *shape, struct gyre_ability *can_out);

/** Zeros if the algorithm cannot do the shape. */
struct gyre_ability gyre_algorithm_ability(const struct gyre_algorithm *algorithm,
                                           const struct gyre_shape *shape);

/** False also for two-level algorithms on one host and `leaf` without a weak host, where they gain
 * nothing. */
bool gyre_algorithm_suits(const struct gyre_algorithm *algorithm, const struct gyre_shape *shape);

/** Why `leaf` gains nothing in a shape; NULL = it does, because its weak host moves less. */
const char *gyre_leaf_obstacle(const struct gyre_shape *shape);

/** For the one shape of the programs. Its ability is that of the algorithm that emits the same
 * programs, else follows from the steps. @given: n_variants and programs are set; lives as long as
 * the algorithm. Errors: INVALID_ARGUMENT (the programs are not those of one shape, by rank),
 * OUT_OF_MEMORY. */
gyre_status gyre_algorithm_give(struct gyre_given_programs *given,
                                const struct gyre_grouping *grouping,
                                struct gyre_algorithm *algorithm_out);

/** All variants have the same n_chunks, n_lanes and min_depth. Ignores the variant of @shape. */
int gyre_algorithm_variants(const struct gyre_algorithm *algorithm, const struct gyre_shape *shape);

/** One rank alone copies IN to OUT. Errors: INVALID_ARGUMENT (shape, rank, or the algorithm cannot
 * do the shape), OUT_OF_MEMORY, INTERNAL (the algorithm wrote a malformed program). */
gyre_status gyre_algorithm_emit(const struct gyre_algorithm *algorithm,
                                const struct gyre_shape *shape, int rank,
                                struct gyre_program **program_out);

/** From rank + 1 on, so that the ranks do not all send to the same peer first. @peers_out: n_ranks
 * - 1 entries. Returns how many. */
int gyre_peers_from_next(const struct gyre_shape *shape, int rank, bool is_placed,
                         struct gyre_ref *peers_out);

/* The greatest number of any rank. */
struct gyre_peer_counts {
    uint32_t n_inside;
    uint32_t n_near; /* on other hosts */
    uint32_t n_far;
};

/** Ranks of other hosts are far if no algorithm of GYRE_REACH_NEAR exchanges data with them, which
 * is symmetric. @grouping: NULL = one host. @is_far_out: by rank. Errors: OUT_OF_MEMORY. */
gyre_status gyre_near_peers_find(const struct gyre_grouping *grouping, unsigned n_ranks, int rank,
                                 uint8_t *is_far_out);

/** Errors: OUT_OF_MEMORY. */
gyre_status gyre_near_peers_count(const struct gyre_grouping *grouping, unsigned n_ranks,
                                  struct gyre_peer_counts *counts_out);

/** With the rails on which it crosses hosts: "0 1 2 3 | rail 3 | 7 4 5 6 | rail 2". @text_out:
 * malloc'ed. Errors: OUT_OF_MEMORY. */
gyre_status gyre_ring_to_text(const struct gyre_shape *shape, char **text_out);

#endif
