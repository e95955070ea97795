/* SPDX-License-Identifier: Apache-2.0
 *
 * A fused program has one worker, and in this order: sends of chunks of IN (the scatter), one step
 * that makes the result, stores of peers' results (the gather). Each peer takes part once in every
 * phase. A send or a receive is one step.
 */
#include "core/foundation/model/fused.h"

#include <string.h>

const struct gyre_fused_traits gyre_fused_patterns[GYRE_N_FUSED_PATTERNS] = {
#define TRAITS(id, name, scatters, reduces, gathers, keeps) \
    [GYRE_FUSED_##id] = {#name, scatters != 0, reduces != 0, gathers != 0, keeps != 0},
    GYRE_FUSED_TABLE(TRAITS)
#undef TRAITS
};

struct finder {
    const struct gyre_program *program;
    bool scatters;
    bool reduces;
    bool gathers;
    struct gyre_fused_program fused;
    uint8_t n_sent[GYRE_FUSED_MAX_PEERS];
    uint8_t n_received[GYRE_FUSED_MAX_PEERS];
};

static unsigned find_peer(const struct finder *finder, const struct gyre_operand *operand)
{
    const uint16_t rank = finder->program->connections[operand->index].peer;
    unsigned p = 0;
    while (p < finder->fused.n_peers && finder->fused.peers[p].rank != rank)
        p++;
    return p;
}

static bool add_peer(struct finder *finder, const struct gyre_operand *from)
{
    struct gyre_fused_program *fused = &finder->fused;
    if (fused->n_peers == GYRE_FUSED_MAX_PEERS || find_peer(finder, from) != fused->n_peers)
        return false;
    fused->peers[fused->n_peers++] =
        (struct gyre_fused_peer){.rank = finder->program->connections[from->index].peer,
                                 .send = GYRE_FUSED_NO_CONNECTION,
                                 .recv = from->index};
    return true;
}

/* 0 = the vector is not cut */
static uint16_t chunk_of(const struct finder *finder, const struct gyre_step *step)
{
    return finder->program->n_chunks == 1 ? 0 : step->chunk;
}

/* In a buffer of blocks an operand is a block, in a vector the step's piece. */
static bool find_chunk(const struct finder *finder, const struct gyre_step *step,
                       const struct gyre_operand *operand, enum gyre_operand_kind kind,
                       uint16_t *block_out)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[finder->program->coll];
    const bool has_blocks = kind == GYRE_OPERAND_IN ? traits->in_blocks : traits->out_blocks;
    *block_out = has_blocks ? operand->index : 0;
    return operand->kind == kind && (has_blocks || operand->index == chunk_of(finder, step));
}

/* Either all results are placed and nothing else, or nothing is. */
static bool is_placed_rightly(const struct finder *finder, const struct gyre_operand *operand,
                              bool is_result)
{
    return (operand->is_placed != 0) == (is_result && finder->program->is_placed != 0);
}

/* NULL unless that is the tile's `n_before`-th slot to the peer. */
static struct gyre_fused_peer *find_send(struct finder *finder, const struct gyre_operand *to,
                                         unsigned n_before, bool is_result)
{
    const unsigned p = find_peer(finder, to);
    if (p == finder->fused.n_peers || finder->n_sent[p] != n_before ||
        !is_placed_rightly(finder, to, is_result))
        return NULL;
    struct gyre_fused_peer *peer = &finder->fused.peers[p];
    if (peer->send != GYRE_FUSED_NO_CONNECTION && peer->send != to->index)
        return NULL;
    peer->send = to->index;
    finder->n_sent[p]++;
    return peer;
}

/* One slot of each peer, in reduction order, and the own chunk of IN once. */
static bool find_inputs(struct finder *finder, const struct gyre_step *step)
{
    struct gyre_fused_program *fused = &finder->fused;
    bool has_own = false;
    for (unsigned i = 0; i < step->n_ins; i++) {
        if (step->ins[i].kind == GYRE_OPERAND_CONNECTION) {
            if (!is_placed_rightly(finder, &step->ins[i], false) ||
                !add_peer(finder, &step->ins[i]))
                return false;
            finder->n_received[fused->n_peers - 1]++;
            continue;
        }
        if (has_own ||
            !find_chunk(finder, step, &step->ins[i], GYRE_OPERAND_IN, &fused->own_in_block))
            return false;
        has_own = true;
        fused->own_place = fused->n_peers;
    }
    finder->reduces = fused->n_peers > 0;
    fused->own_chunk = chunk_of(finder, step);
    return has_own && (!finder->reduces || (step->flags & GYRE_STEP_FINAL) != 0);
}

/* How many peers a step of the scatter sends to; 0 = another step. */
static unsigned find_scatter(struct finder *finder, const struct gyre_step *step)
{
    uint16_t block;
    if (step->n_ins != 1 || !find_chunk(finder, step, &step->ins[0], GYRE_OPERAND_IN, &block))
        return 0;
    for (unsigned o = 0; o < step->n_outs; o++) {
        struct gyre_fused_peer *peer = step->outs[o].kind == GYRE_OPERAND_CONNECTION
                                           ? find_send(finder, &step->outs[o], 0, false)
                                           : NULL;
        if (peer == NULL)
            return 0;
        peer->in_block = block;
        peer->chunk = chunk_of(finder, step);
    }
    return step->n_outs;
}

static bool find_gather(struct finder *finder, const struct gyre_step *step)
{
    const bool is_placed = finder->program->is_placed != 0;
    if (step->n_ins != 1 || step->ins[0].kind != GYRE_OPERAND_CONNECTION ||
        step->n_outs != (is_placed ? 0 : 1) || !is_placed_rightly(finder, &step->ins[0], true))
        return false;
    const unsigned p = find_peer(finder, &step->ins[0]);
    if (p == finder->fused.n_peers || finder->n_received[p] != finder->reduces)
        return false;
    struct gyre_fused_peer *peer = &finder->fused.peers[p];
    if (peer->recv != step->ins[0].index ||
        (finder->scatters && peer->chunk != chunk_of(finder, step)))
        return false;
    finder->n_received[p]++;
    peer->chunk = chunk_of(finder, step);
    return is_placed ||
           find_chunk(finder, step, &step->outs[0], GYRE_OPERAND_OUT, &peer->out_block);
}

static bool only_sends(const struct gyre_step *step)
{
    for (unsigned o = 0; o < step->n_outs; o++)
        if (step->outs[o].kind != GYRE_OPERAND_CONNECTION)
            return false;
    return true;
}

static bool find_phases(struct finder *finder, const struct gyre_step *steps, uint32_t n_steps)
{
    const uint16_t *n_peers = &finder->fused.n_peers;
    uint32_t result = 0, n_scattered = 0;
    while (result < n_steps && only_sends(&steps[result]))
        result++;
    if (result == n_steps || !find_inputs(finder, &steps[result]))
        return false;
    finder->scatters = result > 0;
    const struct gyre_step *gather = &steps[result + 1];
    const uint32_t n_gather = n_steps - result - 1;
    for (uint32_t s = 0; s < n_gather && !finder->reduces; s++)
        if (gather[s].n_ins != 1 || gather[s].ins[0].kind != GYRE_OPERAND_CONNECTION ||
            !add_peer(finder, &gather[s].ins[0]))
            return false;
    for (uint32_t s = 0; s < result; s++) {
        const unsigned n = find_scatter(finder, &steps[s]);
        if (n == 0)
            return false;
        n_scattered += n;
    }
    /* OUT once, and all peers or none. */
    const struct gyre_step *step = &steps[result];
    struct gyre_fused_program *fused = &finder->fused;
    unsigned n_sends = 0;
    for (unsigned o = 0; o < step->n_outs; o++) {
        if (step->outs[o].kind == GYRE_OPERAND_CONNECTION) {
            if (find_send(finder, &step->outs[o], finder->reduces, true) == NULL)
                return false;
            n_sends++;
        } else if (!find_chunk(finder, step, &step->outs[o], GYRE_OPERAND_OUT,
                               &fused->own_out_block)) {
            return false;
        }
    }
    finder->gathers = n_sends > 0 || (finder->scatters && !finder->reduces);
    if (n_sends + 1 != step->n_outs || (n_sends != 0 && n_sends != fused->n_peers))
        return false;
    for (uint32_t s = 0; s < n_gather; s++)
        if (!find_gather(finder, &gather[s]))
            return false;
    return *n_peers > 0 && n_scattered == (finder->scatters ? *n_peers : 0U) &&
           (finder->scatters || !finder->reduces) && n_gather == (finder->gathers ? *n_peers : 0U);
}

void gyre_fused_find(const struct gyre_program *program, struct gyre_fused_program *fused_out)
{
    const struct gyre_worker *worker = &program->workers[0];
    struct finder finder = {.program = program};
    enum gyre_fused_pattern pattern = GYRE_FUSED_NONE;
    memset(fused_out, 0, sizeof(*fused_out));
    if (program->n_workers != 1 || program->max_range != 1)
        return;
    const struct gyre_step *steps = &program->steps[worker->first_step];
    if (program->coll != GYRE_COLL_SEND_RECV && find_phases(&finder, steps, worker->n_steps)) {
        const struct gyre_fused_program *fused = &finder.fused;
        bool is_one_shot = true;
        for (unsigned p = 0; p < fused->n_peers; p++)
            is_one_shot = is_one_shot && fused->peers[p].in_block == fused->own_in_block &&
                          fused->peers[p].chunk == fused->own_chunk;
        if (!finder.reduces)
            pattern = finder.scatters ? GYRE_FUSED_ALL_TO_ALL : GYRE_FUSED_ALL_GATHER;
        else if (finder.gathers)
            pattern = GYRE_FUSED_TWO_SHOT;
        else
            pattern = is_one_shot ? GYRE_FUSED_ONE_SHOT : GYRE_FUSED_REDUCE_SCATTER;
    } else if (program->coll == GYRE_COLL_SEND_RECV && worker->n_steps == 1) {
        const bool receives = steps->ins[0].kind == GYRE_OPERAND_CONNECTION;
        const struct gyre_operand *connection = receives ? &steps->ins[0] : &steps->outs[0];
        const struct gyre_operand *chunk = receives ? &steps->outs[0] : &steps->ins[0];
        struct gyre_fused_peer *peer = &finder.fused.peers[0];
        uint16_t block;
        if (steps->n_ins == 1 && steps->n_outs == 1 &&
            connection->kind == GYRE_OPERAND_CONNECTION && connection->is_placed == 0 &&
            find_chunk(&finder, steps, chunk, receives ? GYRE_OPERAND_OUT : GYRE_OPERAND_IN,
                       &block)) {
            finder.fused.n_peers = 1;
            peer->rank = program->connections[connection->index].peer;
            peer->send = receives ? GYRE_FUSED_NO_CONNECTION : connection->index;
            peer->recv = receives ? connection->index : GYRE_FUSED_NO_CONNECTION;
            pattern = receives ? GYRE_FUSED_RECEIVE : GYRE_FUSED_SEND;
        }
    }
    if (pattern == GYRE_FUSED_NONE)
        return;
    finder.fused.pattern = pattern;
    finder.fused.is_placed = program->is_placed != 0;
    *fused_out = finder.fused;
}
