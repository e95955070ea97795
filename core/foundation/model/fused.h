/* SPDX-License-Identifier: Apache-2.0
 *
 * Recognises programs that one kernel can run whole, without interpreting their steps: every rank
 * talks to every peer directly. Pure.
 */
#ifndef GYRE_MODEL_FUSED_H
#define GYRE_MODEL_FUSED_H

#include "core/foundation/model/schedule.h"

/* One step reduces all peers' slots. */
#define GYRE_FUSED_MAX_PEERS GYRE_STEP_MAX_RECVS

/* X(enum suffix, word, scatters, reduces, gathers, keeps). "Scatters": the first slot of a tile on
 * each connection holds the chunk of IN that is meant for that peer. "Reduces": it is an input of
 * the peer's reduction. "Gathers": the next slot, or the same if nothing is reduced, is stored to
 * OUT; if it was not scattered, it holds the sender's result. "Keeps": this rank's own chunk, or
 * its result, goes to OUT. */
#define GYRE_FUSED_TABLE(X)                                                                      \
    X(NONE, none, 0, 0, 0, 0)         /* the steps are run one by one */                         \
    X(ONE_SHOT, one_shot, 1, 1, 0, 1) /* all ranks send their vector to all, all reduce all */   \
    X(REDUCE_SCATTER, reduce_scatter, 1, 1, 0, 1) /* each peer gets the chunk that it reduces */ \
    X(TWO_SHOT, two_shot, 1, 1, 1, 1)     /* likewise; then each sends its result to all */      \
    X(ALL_GATHER, all_gather, 0, 0, 1, 1) /* nothing is reduced: each sends its chunk to all */  \
    X(ALL_TO_ALL, all_to_all, 1, 0, 1, 1) /* likewise, but each peer gets another chunk */       \
    X(SEND, send, 1, 0, 0, 0)             /* to one rank */                                      \
    X(RECEIVE, receive, 0, 0, 1, 0)       /* from one rank */                                    \
    X(SEND_RECEIVE, send_receive, 1, 0, 1, 0) /* both at once: two programs, in one launch; the  \
                                               * \ ranks may differ, and are one "peer" */

enum gyre_fused_pattern {
#define GYRE_FUSED_ENUM(id, name, scatters, reduces, gathers, keeps) GYRE_FUSED_##id,
    GYRE_FUSED_TABLE(GYRE_FUSED_ENUM)
#undef GYRE_FUSED_ENUM
        GYRE_N_FUSED_PATTERNS
};

struct gyre_fused_traits {
    const char *name;
    bool scatters;
    bool reduces;
    bool gathers;
    bool keeps;
};

extern const struct gyre_fused_traits gyre_fused_patterns[GYRE_N_FUSED_PATTERNS];

/** On each connection. Not of NONE. */
static inline uint32_t gyre_fused_slots_per_tile(enum gyre_fused_pattern pattern)
{
    return gyre_fused_patterns[pattern].reduces && gyre_fused_patterns[pattern].gathers ? 2 : 1;
}

/** A send, a receive or both. */
static inline bool gyre_fused_is_message(enum gyre_fused_pattern pattern)
{
    return pattern != GYRE_FUSED_NONE && !gyre_fused_patterns[pattern].keeps;
}

/* nothing is sent to this peer, or nothing comes from it */
#define GYRE_FUSED_NO_CONNECTION UINT16_MAX

/* A block number is 0 where the buffer is one vector; a chunk number is 0 where that vector is not
 * cut. */
struct gyre_fused_peer {
    uint16_t rank;      /* in the shape */
    uint16_t send;      /* connection to it, or GYRE_FUSED_NO_CONNECTION */
    uint16_t recv;      /* connection from it, likewise */
    uint16_t in_block;  /* of IN, scattered to it */
    uint16_t out_block; /* of OUT, where its result is stored; 0 if that is placed */
    uint16_t chunk;     /* scattered to it, or sent by it */
};

struct gyre_fused_program {
    enum gyre_fused_pattern pattern;
    bool is_placed; /* results are written into the peers' OUT */
    uint16_t n_peers;
    uint16_t own_place; /* the own chunk is reduced after so many peers' slots */
    uint16_t own_chunk;
    uint16_t own_in_block;
    uint16_t own_out_block;
    struct gyre_fused_peer peers[GYRE_FUSED_MAX_PEERS];
};

/** Takes a few hundred nanoseconds. @fused_out: n_peers is 0 where the pattern is NONE. */
void gyre_fused_find(const struct gyre_program *program, struct gyre_fused_program *fused_out);

#endif
