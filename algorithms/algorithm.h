/* SPDX-License-Identifier: Apache-2.0
 *
 * Algorithms: pure functions from (shape, rank) to that rank's program. To add an algorithm, write
 * one file in algorithms/ that defines `const struct gyre_algorithm gyre_algorithm_NAME`, and add
 * one line X(NAME) to GYRE_ALGORITHM_LIST below. The build finds the file by itself.
 */
#ifndef GYRE_ALGORITHMS_ALGORITHM_H
#define GYRE_ALGORITHMS_ALGORITHM_H

#include "core/foundation/model/schedule.h"

struct gyre_given_programs;

/* An algorithm and its traits, on which the tuner and the plan base their choices. In a mask, bit i
 * stands for the collective i of enum gyre_collective. */
struct gyre_algorithm {
    const char *name;     /* as in GYRE_ALGO and --algo, at most 15 characters */
    const char *summary;  /* one line for people */
    uint32_t collectives; /* mask: the collectives that it can do */
    bool follows_ring;    /* on one host every rank sends only to its successor in the ring, so
                           * all data go through FIFOs with large slots */
    bool stages_in_ring;  /* in a shape with is_placed some data are placed, and the others go only
                           * to the successor in the ring */
    uint32_t keeps_near;  /* mask: on several hosts every rank sends only to ranks that are near
                           * (gyre_near_peers_find()), where FIFOs have large slots */
    bool is_two_level;    /* for several hosts: its steps inside a host differ from those between
                           * hosts */
    bool is_one_shot;     /* every rank sends all its data to every other rank, in one hop */
    uint32_t fans_in;     /* mask: with three hosts or more, a rank receives from several other
                           * hosts at a time and sends to several */
    uint32_t chains;      /* mask: the whole vector flows to or from one rank, tile by tile. In the
                           * other collectives each rank handles a part of the data */
    uint32_t cuts_vector; /* mask: all pairs of ranks exchange the vector, one part for each rank */
    uint32_t places;      /* mask: in a shape with is_placed the programs place data */
    bool keeps_sums;      /* sums are kept in scratch even where one step could add all inputs */
    uint32_t ranges;      /* mask: steps move ranges of chunks, which GPUs cannot run */
    uint32_t copy_tails;  /* mask: in a shape with is_placed the programs of all ranks have a copy
                           * tail (gyre_program_copy_tail()) */
    /* How many variants a shape has; NULL = 1. n_ranks >= 2. */
    int (*n_variants)(const struct gyre_shape *shape);
    /* Append the steps of one rank. n_ranks >= 2. The builder remembers the first error. */
    void (*emit)(const struct gyre_shape *shape, int rank, struct gyre_builder *builder);
    /* How many chunks a vector is cut into; 1 if the buffers consist of blocks. n_ranks >= 2. */
    int (*n_chunks)(const struct gyre_shape *shape);
    /* The programs of the algorithm's only shape, when they come from a file. NULL: emit() makes
     * the programs. The functions above are not used with given programs. */
    const struct gyre_given_programs *given;
};

/* Programs of one shape that were read instead of emitted. */
struct gyre_given_programs {
    enum gyre_collective coll;
    uint16_t n_ranks;
    uint16_t root;
    uint16_t n_variants;
    bool is_placed; /* some program places data, so results must lie in windows */
    /* The algorithm of the table that emits exactly these programs; NULL = none does. Measurements
     * of that algorithm hold for these programs too. */
    const struct gyre_algorithm *like;
    const struct gyre_program *const *programs[GYRE_MAX_VARIANTS]; /* each by rank */
};

/* Every algorithm, in the order in which the tuner tries them. The declarations below and the table
 * in algorithm.c are generated from this list. `spread` stands in ring.c, because its first half is
 * a ring's. */
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

/** The algorithms of GYRE_ALGORITHM_LIST, in that order, ended by NULL. */
extern const struct gyre_algorithm *const gyre_algorithms[];

/** gyre_algorithm_find - the algorithm with this name, in upper or lower case, or NULL. */
const struct gyre_algorithm *gyre_algorithm_find(const char *name);

/** gyre_algorithm_has - can the algorithm do this collective? */
static inline bool gyre_algorithm_has(const struct gyre_algorithm *algorithm,
                                      enum gyre_collective coll)
{
    return (algorithm->collectives >> coll & 1U) != 0;
}

/** gyre_algorithm_suits - can the algorithm do this collective, and was it made for so many hosts?
 * A two-level algorithm also works on one host, but gains nothing there. */
static inline bool gyre_algorithm_suits(const struct gyre_algorithm *algorithm,
                                        enum gyre_collective coll, uint32_t n_hosts)
{
    return gyre_algorithm_has(algorithm, coll) && (!algorithm->is_two_level || n_hosts > 1);
}

/** gyre_algorithm_give - make an algorithm out of given programs. Its traits are those of the
 * algorithm that emits the same programs, else they follow from the programs. The functions of this
 * header then take it as any other algorithm, for the shape of its programs only; gyre_algorithms[]
 * does not have it.
 * @given: the caller sets n_variants and, for each variant, the programs of all ranks, by rank; the
 * other fields are filled in. @given and the programs must live as long as the algorithm.
 * @grouping: of the communicator, as in struct gyre_shape.
 * Errors: INVALID_ARGUMENT (the programs are not those of one shape, by rank), OUT_OF_MEMORY. */
gyre_status gyre_algorithm_give(struct gyre_given_programs *given,
                                const struct gyre_grouping *grouping,
                                struct gyre_algorithm *algorithm_out);

/** gyre_algorithm_variants - how many variants a shape has: 1..GYRE_MAX_VARIANTS. All of them have
 * the same n_chunks, n_lanes and min_depth. @shape: as for gyre_algorithm_emit(); its variant is
 * ignored. */
int gyre_algorithm_variants(const struct gyre_algorithm *algorithm, const struct gyre_shape *shape);

/** gyre_algorithm_emit - make one rank's program of a shape. If the shape has only one rank, the
 * program copies IN to OUT.
 * @shape: 1 <= n_ranks <= GYRE_MAX_RANKS, root < n_ranks, variant <
 * gyre_algorithm_variants(); checked.
 * Errors: INVALID_ARGUMENT (shape, or a collective the algorithm does not have), OUT_OF_MEMORY,
 * INTERNAL (the algorithm wrote a malformed program). */
gyre_status gyre_algorithm_emit(const struct gyre_algorithm *algorithm,
                                const struct gyre_shape *shape, int rank,
                                struct gyre_program **program_out);

/** gyre_peers_from_next - all other ranks, beginning with rank + 1, so that the ranks do not all
 * send to the same peer first. @peers_out: n_ranks - 1 entries. Returns how many. */
int gyre_peers_from_next(const struct gyre_shape *shape, int rank, bool is_placed,
                         struct gyre_ref *peers_out);

/* How many peers of each kind a rank has. Each number is the greatest of all ranks. */
struct gyre_peer_counts {
    uint32_t n_inside; /* of its own host, which are near */
    uint32_t n_near;   /* near, on other hosts */
    uint32_t n_far;
};

/** gyre_near_peers_find - find the ranks that are far from @rank. A rank of another host is far if
 * no algorithm exchanges data with it in the collectives that keeps_near names. If a is far from b,
 * then b is far from a. On one host no rank is far.
 * @grouping: NULL = one host. @is_far_out: n_ranks entries, 1 = far. Errors: OUT_OF_MEMORY. */
gyre_status gyre_near_peers_find(const struct gyre_grouping *grouping, unsigned n_ranks, int rank,
                                 uint8_t *is_far_out);

/** gyre_near_peers_count - count the peers of all ranks. Errors: OUT_OF_MEMORY. */
gyre_status gyre_near_peers_count(const struct gyre_grouping *grouping, unsigned n_ranks,
                                  struct gyre_peer_counts *counts_out);

/** gyre_ring_to_text - the ranks of a ring in their order, and on which rail it crosses to the next
 * host: "0 1 2 3 | rail 3 | 7 4 5 6 | rail 2". @text_out: malloc'ed. Errors: OUT_OF_MEMORY. */
gyre_status gyre_ring_to_text(const struct gyre_shape *shape, char **text_out);

#endif
