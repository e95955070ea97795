/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds programs that one kernel can run whole: every rank talks to every peer directly. Pure.
 */
#ifndef GYRE_MODEL_FUSED_H
#define GYRE_MODEL_FUSED_H

#include "core/foundation/model/schedule.h"

#define GYRE_FUSED_MAX_PEERS GYRE_STEP_MAX_RECVS

/* X(enum suffix, word, scatters, reduces, gathers, keeps). "Scatters": a tile's first slot on each
 * connection holds that peer's chunk of IN. "Reduces": the peer reduces it. "Gathers": the next
 * slot, or the same if nothing is reduced, is stored to OUT; unscattered it holds the sender's
 * result. "Keeps": this rank's part goes to OUT. */
#define GYRE_FUSED_TABLE(X)                                                                      \
    X(NONE, none, 0, 0, 0, 0)                                                                    \
    X(ONE_SHOT, one_shot, 1, 1, 0, 1)             /* all ranks send their vector to all */       \
    X(REDUCE_SCATTER, reduce_scatter, 1, 1, 0, 1) /* each peer gets the chunk that it reduces */ \
    X(TWO_SHOT, two_shot, 1, 1, 1, 1)             /* likewise; then each sends its result */     \
    X(ALL_GATHER, all_gather, 0, 0, 1, 1)         /* each sends its chunk to all */              \
    X(ALL_TO_ALL, all_to_all, 1, 0, 1, 1)         /* each peer gets another chunk */             \
    X(SEND, send, 1, 0, 0, 0)                                                                    \
    X(RECEIVE, receive, 0, 0, 1, 0)                                                              \
    X(SEND_RECEIVE, send_receive, 1, 0, 1, 0) /* two programs in one launch, with one "peer" */

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

static inline uint32_t gyre_fused_slots_per_tile(enum gyre_fused_pattern pattern)
{
    return gyre_fused_patterns[pattern].reduces && gyre_fused_patterns[pattern].gathers ? 2 : 1;
}

static inline bool gyre_fused_is_message(enum gyre_fused_pattern pattern)
{
    return pattern != GYRE_FUSED_NONE && !gyre_fused_patterns[pattern].keeps;
}

/* nothing is sent to, or received from, this peer */
#define GYRE_FUSED_NO_CONNECTION UINT16_MAX

/* Block 0 where a buffer is one vector, chunk 0 where that is not cut. */
struct gyre_fused_peer {
    uint16_t rank;
    uint16_t send; /* or GYRE_FUSED_NO_CONNECTION */
    uint16_t recv; /* or GYRE_FUSED_NO_CONNECTION */
    uint16_t in_block;
    uint16_t out_block; /* of its result in OUT; 0 = placed */
    uint16_t chunk;     /* scattered to it, or sent by it */
};

struct gyre_fused_program {
    enum gyre_fused_pattern pattern;
    bool is_placed; /* in the peers' OUT */
    uint16_t n_peers;
    uint16_t own_place; /* the own chunk follows so many peers' slots */
    uint16_t own_chunk;
    uint16_t own_in_block;
    uint16_t own_out_block;
    struct gyre_fused_peer peers[GYRE_FUSED_MAX_PEERS];
};

/** @fused_out: n_peers is 0 for NONE. */
void gyre_fused_find(const struct gyre_program *program, struct gyre_fused_program *fused_out);

#endif
