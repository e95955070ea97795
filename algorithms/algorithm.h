/* SPDX-License-Identifier: Apache-2.0
 *
 * Algorithms are pure functions from (shape, rank) to that rank's program. A new one is a file that
 * defines `const struct gyre_algorithm gyre_algorithm_NAME`, and a line X(NAME) of
 * GYRE_ALGORITHM_LIST.
 */
#ifndef GYRE_ALGORITHMS_ALGORITHM_H
#define GYRE_ALGORITHMS_ALGORITHM_H

#include "core/foundation/model/schedule.h"

struct gyre_given_programs;

/* Whom a rank sends staged data to. */
enum gyre_reach {
    GYRE_REACH_ALL,
    GYRE_REACH_NEAR, /* on several hosts only near ranks (gyre_near_peers_find()) */
    GYRE_REACH_RING, /* on one host only its successor, so slots are large; else near ranks */
};

/* How data get to their ranks. */
enum gyre_flow {
    GYRE_FLOW_RELAY,   /* other ranks pass parts on */
    GYRE_FLOW_ONE_HOP, /* every rank sends all its data to every other rank */
    GYRE_FLOW_CUT,     /* all pairs of ranks exchange the vector, one part for each rank */
    GYRE_FLOW_CHAIN,   /* the whole vector flows to or from one rank, tile by tile */
};

/* What an algorithm's programs for a shape do, which decides how they are carried out. A test
 * compares it with the programs. */
struct gyre_ability {
    uint8_t reach;   /* enum gyre_reach */
    uint8_t flow;    /* enum gyre_flow */
    bool places;     /* with is_placed the programs place data */
    bool copy_tail;  /* with is_placed all programs have one (gyre_program_copy_tail()) */
    bool keeps_sums; /* sums are kept in scratch even where one step could add all inputs */
    bool ranges;     /* steps may move ranges of chunks, which GPUs cannot run */
    bool two_level;  /* steps inside a host differ from those between hosts */
    bool fans_in;    /* with 3 hosts or more, a rank receives from several at a time */
};

struct gyre_algorithm {
    const char *name; /* at most 15 characters */
    const char *summary;
    uint32_t collectives; /* bit i = collective i */
    /* Are there programs for a shape of one of these collectives, and what do they do? The answer
     * holds for all roots. False: *why_not is the reason, such as "it needs 2^k ranks", and another
     * algorithm is taken. */
    bool (*can_do)(const struct gyre_shape *shape, struct gyre_ability *can_out,
                   const char **why_not);
    /* How many variants a shape has; NULL = 1. n_ranks >= 2. */
    int (*n_variants)(const struct gyre_shape *shape);
    /* Append the steps of one rank. n_ranks >= 2. The builder remembers the first error. */
    void (*emit)(const struct gyre_shape *shape, int rank, struct gyre_builder *builder);
    /* Into how many chunks a vector is cut; NULL or 1 if the buffers consist of blocks. n_ranks >=
     * 2. */
    int (*n_chunks)(const struct gyre_shape *shape);
    /* Programs that were read from a file, in place of the functions above; NULL = none. */
    const struct gyre_given_programs *given;
    /* By gyre_algorithms_add(): only its name or a row takes such an algorithm. */
    const char *from; /* the file that it came in, without folder; NULL = compiled in */
    uint64_t build;   /* hash of that file */
};

/* Of one shape. */
struct gyre_given_programs {
    const struct gyre_given_programs *next; /* of another shape; NULL = none */
    enum gyre_collective coll;
    uint16_t n_ranks;
    uint16_t root;
    uint16_t n_variants;
    bool is_placed; /* results must lie in windows */
    struct gyre_ability ability;
    /* The algorithm of the table that emits exactly these programs, so that its measurements hold
     * for them; NULL = none does. */
    const struct gyre_algorithm *like;
    const struct gyre_program *const *programs[GYRE_MAX_VARIANTS]; /* each by rank */
};

/* In the order in which the tuner tries them. `spread` is in ring.c, `doubling` in halving.c,
 * `sendrecv` in direct.c. */
#define GYRE_ALGORITHM_LIST(X)                           \
    X(ring)     /* neighbours only */                    \
    X(tree)     /* double binary tree over the hosts */  \
    X(direct)   /* all pairs, one hop: "one-shot" */     \
    X(twoshot)  /* all pairs, scatter then gather */     \
    X(spread)   /* ring of sums, results to all peers */ \
    X(sendrecv) /* one rank to another */                \
    X(two_level_ring)                                    \
    X(two_level_tree)                                    \
    X(two_level_log)                                     \
    X(doubling) /* pairs exchange whole vectors */       \
    X(halving)  /* pairs halve and double the vector */  \
    X(bruck)    /* blocks at distance 1, 2, 4, ... */    \
    X(pat)      /* trees over blocks, aggregated */

#define GYRE_DECLARE_ALGORITHM(name) extern const struct gyre_algorithm gyre_algorithm_##name;
GYRE_ALGORITHM_LIST(GYRE_DECLARE_ALGORITHM)
#undef GYRE_DECLARE_ALGORITHM

#define GYRE_MAX_ALGORITHMS 31 /* filters have a bit for each */

/** In the order of GYRE_ALGORITHM_LIST, then those that were added; ended by NULL. */
extern const struct gyre_algorithm *gyre_algorithms[GYRE_MAX_ALGORITHMS + 1];

/** gyre_algorithms_add - an algorithm joins those of this process. No thread may read the list, as
 * before the first communicator (core/engine/plan/plugins.h).
 * @algorithm: lives as long as the process; `from` is set.
 * Errors: INVALID_ARGUMENT (its name is taken or too long, or a field is missing), UNSUPPORTED
 * (there are too many). */
gyre_status gyre_algorithms_add(const struct gyre_algorithm *algorithm);

/** gyre_algorithms_drop - take back all but the first @n, before anything has used them. */
void gyre_algorithms_drop(int n);

/** gyre_algorithm_find - in upper or lower case; NULL = there is none. */
const struct gyre_algorithm *gyre_algorithm_find(const char *name);

static inline bool gyre_algorithm_has(const struct gyre_algorithm *algorithm,
                                      enum gyre_collective coll)
{
    return (algorithm->collectives >> coll & 1U) != 0;
}

/** gyre_algorithm_obstacle - why the algorithm has no programs for a shape; or NULL. One rank
 * copies, so nothing stands against it. @can_out: zeros if it cannot; NULL = not wanted. */
const char *gyre_algorithm_obstacle(const struct gyre_algorithm *algorithm,
                                    const struct gyre_shape *shape, struct gyre_ability *can_out);

/** gyre_algorithm_ability - zeros if the algorithm cannot do the shape. */
struct gyre_ability gyre_algorithm_ability(const struct gyre_algorithm *algorithm,
                                           const struct gyre_shape *shape);

/** gyre_algorithm_suits - can the algorithm do the shape, and was it made for as many hosts? A
 * two-level algorithm gains nothing on one host. */
bool gyre_algorithm_suits(const struct gyre_algorithm *algorithm, const struct gyre_shape *shape);

/** gyre_algorithm_give - make an algorithm out of given programs, for the shape of these programs
 * only. Its ability is that of the algorithm that emits the same programs, else it follows from the
 * steps.
 * @given: n_variants and the programs are set, the other fields are filled in. It must live as long
 * as the algorithm.
 * Errors: INVALID_ARGUMENT (the programs are not those of one shape, by rank), OUT_OF_MEMORY. */
gyre_status gyre_algorithm_give(struct gyre_given_programs *given,
                                const struct gyre_grouping *grouping,
                                struct gyre_algorithm *algorithm_out);

/** gyre_algorithm_variants - 1..GYRE_MAX_VARIANTS. All variants have the same n_chunks, n_lanes and
 * min_depth. Ignores the variant of @shape. */
int gyre_algorithm_variants(const struct gyre_algorithm *algorithm, const struct gyre_shape *shape);

/** gyre_algorithm_emit - make one rank's program. With one rank, it copies IN to OUT.
 * Errors: INVALID_ARGUMENT (shape, rank, or a shape that the algorithm cannot do), OUT_OF_MEMORY,
 * INTERNAL (the algorithm wrote a malformed program). */
gyre_status gyre_algorithm_emit(const struct gyre_algorithm *algorithm,
                                const struct gyre_shape *shape, int rank,
                                struct gyre_program **program_out);

/** gyre_peers_from_next - all other ranks from rank + 1 on, so that the ranks do not all send to
 * the same peer first. @peers_out: n_ranks - 1 entries. Returns how many. */
int gyre_peers_from_next(const struct gyre_shape *shape, int rank, bool is_placed,
                         struct gyre_ref *peers_out);

/* Of a rank: the greatest number of all ranks. */
struct gyre_peer_counts {
    uint32_t n_inside; /* on its own host */
    uint32_t n_near;   /* on other hosts */
    uint32_t n_far;
};

/** gyre_near_peers_find - the ranks that are far from @rank: those of other hosts with which no
 * algorithm of GYRE_REACH_NEAR exchanges data. The relation is symmetric. @grouping:
 * NULL = one host, where no rank is far. @is_far_out: by rank. Errors: OUT_OF_MEMORY. */
gyre_status gyre_near_peers_find(const struct gyre_grouping *grouping, unsigned n_ranks, int rank,
                                 uint8_t *is_far_out);

/** gyre_near_peers_count - errors: OUT_OF_MEMORY. */
gyre_status gyre_near_peers_count(const struct gyre_grouping *grouping, unsigned n_ranks,
                                  struct gyre_peer_counts *counts_out);

/** gyre_ring_to_text - the ranks of a ring, and the rail on which it crosses to the next host: "0 1
 * 2 3 | rail 3 | 7 4 5 6 | rail 2". @text_out: malloc'ed. Errors: OUT_OF_MEMORY. */
gyre_status gyre_ring_to_text(const struct gyre_shape *shape, char **text_out);

#endif
