/* SPDX-License-Identifier: Apache-2.0
 *
 * Algorithms are pure functions from (shape, rank) to that rank's program. A new algorithm is one
 * file that defines `const struct gyre_algorithm gyre_algorithm_NAME`, and a line X(NAME) of
 * GYRE_ALGORITHM_LIST.
 */
#ifndef GYRE_ALGORITHMS_ALGORITHM_H
#define GYRE_ALGORITHMS_ALGORITHM_H

#include "core/foundation/model/schedule.h"

struct gyre_given_programs;

/* An algorithm and its traits, on which the tuner and the plan base their choices. In a mask, bit i
 * stands for collective i. */
struct gyre_algorithm {
    const char *name; /* as in GYRE_ALGO and --algo, at most 15 characters */
    const char *summary;
    uint32_t collectives;
    bool follows_ring;    /* on one host all send to their successors: slots are large */
    bool stages_in_ring;  /* with is_placed: staged data go only to the successor */
    uint32_t keeps_near;  /* mask: on several hosts all send only to near ranks */
    bool is_two_level;    /* steps inside a host differ from those between hosts */
    bool is_one_shot;     /* every rank sends all its data to every other rank */
    uint32_t fans_in;     /* mask: with 3 hosts or more, a rank receives from several at a time */
    uint32_t chains;      /* mask: the whole vector flows to or from one rank, tile by tile */
    uint32_t cuts_vector; /* mask: all pairs of ranks exchange the vector, one part for each rank */
    uint32_t places;      /* mask: with is_placed the programs place data */
    bool keeps_sums;      /* sums are kept in scratch even where one step could add all inputs */
    uint32_t ranges;      /* mask: steps move ranges of chunks, which GPUs cannot run */
    uint32_t copy_tails; /* mask: with is_placed all programs have one (gyre_program_copy_tail()) */
    /* How many variants a shape has; NULL = 1. n_ranks >= 2. */
    int (*n_variants)(const struct gyre_shape *shape);
    /* Append the steps of one rank. n_ranks >= 2. The builder remembers the first error. */
    void (*emit)(const struct gyre_shape *shape, int rank, struct gyre_builder *builder);
    /* How many chunks a vector is cut into; NULL or 1 if the buffers consist of blocks. n_ranks >=
     * 2. */
    int (*n_chunks)(const struct gyre_shape *shape);
    /* The programs of the algorithm's only shape, read from a file, in place of the functions
     * above; NULL = none. */
    const struct gyre_given_programs *given;
};

struct gyre_given_programs {
    enum gyre_collective coll;
    uint16_t n_ranks;
    uint16_t root;
    uint16_t n_variants;
    bool is_placed; /* results must lie in windows */
    /* The algorithm of the table that emits exactly these programs, so that its measurements hold
     * for them; NULL = none does. */
    const struct gyre_algorithm *like;
    const struct gyre_program *const *programs[GYRE_MAX_VARIANTS]; /* each by rank */
};

/* Every algorithm, in the order in which the tuner tries them. `spread` is in ring.c, `doubling` in
 * halving.c, `sendrecv` in direct.c. */
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

/** In the order of GYRE_ALGORITHM_LIST, ended by NULL. */
extern const struct gyre_algorithm *const gyre_algorithms[];

/** gyre_algorithm_find - by name, in upper or lower case; NULL = there is none. */
const struct gyre_algorithm *gyre_algorithm_find(const char *name);

static inline bool gyre_algorithm_has(const struct gyre_algorithm *algorithm,
                                      enum gyre_collective coll)
{
    return (algorithm->collectives >> coll & 1U) != 0;
}

/** gyre_algorithm_suits - can the algorithm do this collective, and was it made for so many hosts?
 * A two-level algorithm gains nothing on one host. */
static inline bool gyre_algorithm_suits(const struct gyre_algorithm *algorithm,
                                        enum gyre_collective coll, uint32_t n_hosts)
{
    return gyre_algorithm_has(algorithm, coll) && (!algorithm->is_two_level || n_hosts > 1);
}

/** gyre_algorithm_give - make an algorithm out of given programs, for the shape of these programs
 * only. Its traits are those of the algorithm that emits the same programs, else they follow from
 * the steps.
 * @given: n_variants and the programs are set, the other fields are filled in. It must live as long
 * as the algorithm.
 * Errors: INVALID_ARGUMENT (the programs are not those of one shape, by rank), OUT_OF_MEMORY. */
gyre_status gyre_algorithm_give(struct gyre_given_programs *given,
                                const struct gyre_grouping *grouping,
                                struct gyre_algorithm *algorithm_out);

/** gyre_algorithm_variants - 1..GYRE_MAX_VARIANTS. All variants have the same n_chunks, n_lanes and
 * min_depth. The variant of @shape is ignored. */
int gyre_algorithm_variants(const struct gyre_algorithm *algorithm, const struct gyre_shape *shape);

/** gyre_algorithm_emit - make one rank's program. With one rank, it copies IN to OUT.
 * Errors: INVALID_ARGUMENT (shape, rank, or a collective the algorithm does not have),
 * OUT_OF_MEMORY, INTERNAL (the algorithm wrote a malformed program). */
gyre_status gyre_algorithm_emit(const struct gyre_algorithm *algorithm,
                                const struct gyre_shape *shape, int rank,
                                struct gyre_program **program_out);

/** gyre_peers_from_next - all other ranks from rank + 1 on, so that the ranks do not all send to
 * the same peer first. @peers_out: n_ranks - 1 entries. Returns how many. */
int gyre_peers_from_next(const struct gyre_shape *shape, int rank, bool is_placed,
                         struct gyre_ref *peers_out);

/* How many peers of each kind a rank has: the greatest number of all ranks. */
struct gyre_peer_counts {
    uint32_t n_inside; /* on its own host */
    uint32_t n_near;   /* on other hosts */
    uint32_t n_far;
};

/** gyre_near_peers_find - the ranks that are far from @rank: those of other hosts with which no
 * algorithm exchanges data in the collectives of keeps_near. The relation is symmetric. @grouping:
 * NULL = one host, where no rank is far. @is_far_out: by rank. Errors: OUT_OF_MEMORY. */
gyre_status gyre_near_peers_find(const struct gyre_grouping *grouping, unsigned n_ranks, int rank,
                                 uint8_t *is_far_out);

/** gyre_near_peers_count - of all ranks. Errors: OUT_OF_MEMORY. */
gyre_status gyre_near_peers_count(const struct gyre_grouping *grouping, unsigned n_ranks,
                                  struct gyre_peer_counts *counts_out);

/** gyre_ring_to_text - the ranks of a ring, and the rail on which it crosses to the next host: "0 1
 * 2 3 | rail 3 | 7 4 5 6 | rail 2". @text_out: malloc'ed. Errors: OUT_OF_MEMORY. */
gyre_status gyre_ring_to_text(const struct gyre_shape *shape, char **text_out);

#endif
