/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/algorithm.h"
#include "core/foundation/base/util.h"
#include "core/foundation/model/fused.h"
#include "tests/support/check.h"

#define MAX_RANKS (GYRE_FUSED_MAX_PEERS + 2)

/* More ranks reduce vectors in chains of steps. */
#define MOST_REDUCING GYRE_STEP_MAX_RECVS

static struct gyre_program *emit(const struct gyre_algorithm *algorithm, enum gyre_collective coll,
                                 bool is_placed, int n_ranks, int rank)
{
    const struct gyre_shape shape = {
        .coll = coll, .n_ranks = (uint16_t)n_ranks, .is_placed = is_placed};
    struct gyre_program *program = NULL;
    CHECK_OK(gyre_algorithm_emit(algorithm, &shape, rank, &program));
    return program;
}

static struct gyre_fused_program find(const struct gyre_algorithm *algorithm,
                                      enum gyre_collective coll, bool is_placed, int n_ranks,
                                      int rank)
{
    struct gyre_program *program = emit(algorithm, coll, is_placed, n_ranks, rank);
    struct gyre_fused_program fused;
    gyre_fused_find(program, &fused);
    CHECK((fused.pattern == GYRE_FUSED_NONE) == (fused.n_peers == 0));
    for (unsigned p = 0; p < fused.n_peers; p++) {
        const struct gyre_fused_peer *peer = &fused.peers[p];
        const struct gyre_connection *send = &program->connections[peer->send];
        const struct gyre_connection *recv = &program->connections[peer->recv];
        CHECK(fused.pattern == GYRE_FUSED_RECEIVE ? peer->send == GYRE_FUSED_NO_CONNECTION
                                                  : send->is_send && send->peer == peer->rank);
        CHECK(fused.pattern == GYRE_FUSED_SEND ? peer->recv == GYRE_FUSED_NO_CONNECTION
                                               : !recv->is_send && recv->peer == peer->rank);
    }
    gyre_program_free(program);
    return fused;
}

static uint64_t reduce(uint64_t a, uint64_t b)
{
    return a * 31 + b;
}

struct play {
    enum gyre_collective coll;
    int n_ranks;
    struct gyre_fused_program ranks[MAX_RANKS];
    uint64_t in[MAX_RANKS][MAX_RANKS]; /* by rank and chunk or block */
    uint64_t out[MAX_RANKS][MAX_RANKS];
    uint64_t sent[MAX_RANKS][MAX_RANKS][2]; /* by sender, receiver and slot of the tile */
};

static bool scatters(const struct gyre_fused_program *fused)
{
    return gyre_fused_patterns[fused->pattern].scatters;
}

static bool reduces(const struct gyre_fused_program *fused)
{
    return gyre_fused_patterns[fused->pattern].reduces;
}

static bool gathers(const struct gyre_fused_program *fused)
{
    return gyre_fused_patterns[fused->pattern].gathers;
}

static uint32_t in_index(const struct play *play, uint32_t block, uint32_t chunk)
{
    return gyre_collectives[play->coll].in_blocks ? block : chunk;
}

static uint32_t out_index(const struct play *play, uint32_t block, uint32_t chunk)
{
    return gyre_collectives[play->coll].out_blocks ? block : chunk;
}

static void make_result(struct play *play, int rank)
{
    const struct gyre_fused_program *own = &play->ranks[rank];
    const uint64_t input = play->in[rank][in_index(play, own->own_in_block, own->own_chunk)];
    uint64_t result = input;
    for (unsigned i = 0, p = 0; i <= own->n_peers && reduces(own); i++) {
        const uint64_t next =
            i == own->own_place ? input : play->sent[own->peers[p++].rank][rank][0];
        result = i == 0 ? next : reduce(result, next);
    }
    play->out[rank][out_index(play, own->own_out_block, own->own_chunk)] = result;
    for (unsigned p = 0; p < own->n_peers && gathers(own) && (reduces(own) || !scatters(own)); p++)
        play->sent[rank][own->peers[p].rank][reduces(own)] = result;
}

static void gather(struct play *play, int rank)
{
    const struct gyre_fused_program *own = &play->ranks[rank];
    for (unsigned p = 0; p < own->n_peers && gathers(own); p++) {
        const struct gyre_fused_peer *peer = &own->peers[p];
        const struct gyre_fused_program *theirs = &play->ranks[peer->rank];
        /* Where the peer has its own. */
        const uint32_t index = own->is_placed
                                   ? out_index(play, theirs->own_out_block, theirs->own_chunk)
                                   : out_index(play, peer->out_block, peer->chunk);
        play->out[rank][index] = play->sent[peer->rank][rank][reduces(own)];
    }
}

static uint64_t expected(const struct play *play, int rank, int index)
{
    if (play->coll == GYRE_COLL_ALL_GATHER)
        return play->in[index][0];
    if (play->coll == GYRE_COLL_ALL_TO_ALL)
        return play->in[index][rank];
    const int of = play->coll == GYRE_COLL_REDUCE_SCATTER ? rank : index;
    uint64_t result = play->in[0][of];
    for (int r = 1; r < play->n_ranks; r++)
        result = reduce(result, play->in[r][of]);
    return result;
}

static void check_play(const struct gyre_algorithm *algorithm, enum gyre_collective coll,
                       bool is_placed, int n_ranks, enum gyre_fused_pattern pattern)
{
    struct play play = {.coll = coll, .n_ranks = n_ranks};
    const bool is_cut = algorithm == &gyre_algorithm_twoshot || coll == GYRE_COLL_ALL_GATHER ||
                        coll == GYRE_COLL_ALL_TO_ALL;
    const int n_results = is_cut ? n_ranks : 1;
    for (int rank = 0; rank < n_ranks; rank++) {
        play.ranks[rank] = find(algorithm, coll, is_placed, n_ranks, rank);
        CHECK_MSG(play.ranks[rank].pattern == pattern && play.ranks[rank].n_peers == n_ranks - 1 &&
                      play.ranks[rank].is_placed == is_placed,
                  "%s %s, rank %d of %d: %s, %d peers", algorithm->name,
                  gyre_collectives[coll].name, rank, n_ranks,
                  gyre_fused_patterns[play.ranks[rank].pattern].name, play.ranks[rank].n_peers);
        for (int i = 0; i < n_ranks; i++)
            play.in[rank][i] = (uint64_t)(rank * 1000 + i + 1);
    }
    for (int rank = 0; rank < n_ranks; rank++) {
        const struct gyre_fused_program *own = &play.ranks[rank];
        for (unsigned p = 0; p < own->n_peers && scatters(own); p++)
            play.sent[rank][own->peers[p].rank][0] =
                play.in[rank][in_index(&play, own->peers[p].in_block, own->peers[p].chunk)];
    }
    for (int rank = 0; rank < n_ranks; rank++)
        make_result(&play, rank);
    for (int rank = 0; rank < n_ranks; rank++)
        gather(&play, rank);
    for (int rank = 0; rank < n_ranks; rank++)
        for (int i = 0; i < n_results; i++)
            CHECK_MSG(play.out[rank][i] == expected(&play, rank, i),
                      "%s %s, rank %d of %d, chunk %d: %" PRIu64 " instead of %" PRIu64,
                      algorithm->name, gyre_collectives[coll].name, rank, n_ranks, i,
                      play.out[rank][i], expected(&play, rank, i));
}

TEST_CASE("programs between all pairs are fused, and do the same")
{
    for (int n = 2; n <= MOST_REDUCING; n++) {
        check_play(&gyre_algorithm_direct, GYRE_COLL_ALL_REDUCE, false, n, GYRE_FUSED_ONE_SHOT);
        check_play(&gyre_algorithm_direct, GYRE_COLL_REDUCE_SCATTER, false, n,
                   GYRE_FUSED_REDUCE_SCATTER);
        check_play(&gyre_algorithm_twoshot, GYRE_COLL_ALL_REDUCE, false, n, GYRE_FUSED_TWO_SHOT);
    }
    for (int n = 2; n <= GYRE_FUSED_MAX_PEERS + 1; n++) {
        check_play(&gyre_algorithm_direct, GYRE_COLL_ALL_GATHER, false, n, GYRE_FUSED_ALL_GATHER);
        check_play(&gyre_algorithm_direct, GYRE_COLL_ALL_TO_ALL, false, n, GYRE_FUSED_ALL_TO_ALL);
    }
}

TEST_CASE("so are those that place their results")
{
    for (int n = 2; n <= MOST_REDUCING; n++) {
        check_play(&gyre_algorithm_direct, GYRE_COLL_ALL_GATHER, true, n, GYRE_FUSED_ALL_GATHER);
        check_play(&gyre_algorithm_twoshot, GYRE_COLL_ALL_REDUCE, true, n, GYRE_FUSED_TWO_SHOT);
    }
    check_play(&gyre_algorithm_direct, GYRE_COLL_ALL_GATHER, true, GYRE_FUSED_MAX_PEERS + 1,
               GYRE_FUSED_ALL_GATHER);
    /* For two ranks a ring is all pairs. */
    check_play(&gyre_algorithm_ring, GYRE_COLL_ALL_GATHER, true, 2, GYRE_FUSED_ALL_GATHER);
}

TEST_CASE("other programs are not fused")
{
    static const struct {
        const struct gyre_algorithm *algorithm;
        enum gyre_collective coll;
        int n_ranks;
    } others[] = {
        {&gyre_algorithm_ring, GYRE_COLL_ALL_REDUCE, 3},
        {&gyre_algorithm_ring, GYRE_COLL_ALL_GATHER, 3},
        {&gyre_algorithm_tree, GYRE_COLL_ALL_REDUCE, 4},
        {&gyre_algorithm_direct, GYRE_COLL_BROADCAST, 3},
        {&gyre_algorithm_direct, GYRE_COLL_REDUCE, 3},
        {&gyre_algorithm_direct, GYRE_COLL_GATHER, 2},
        {&gyre_algorithm_direct, GYRE_COLL_GATHER, 3},
        {&gyre_algorithm_direct, GYRE_COLL_SCATTER, 2},
        {&gyre_algorithm_direct, GYRE_COLL_SCATTER, 3},
        {&gyre_algorithm_sendrecv, GYRE_COLL_SEND_RECV, 1},
        {&gyre_algorithm_direct, GYRE_COLL_ALL_REDUCE, 1},
        {&gyre_algorithm_direct, GYRE_COLL_ALL_REDUCE, MOST_REDUCING + 1},
        {&gyre_algorithm_direct, GYRE_COLL_ALL_GATHER, GYRE_FUSED_MAX_PEERS + 2},
        {&gyre_algorithm_direct, GYRE_COLL_ALL_TO_ALL, GYRE_FUSED_MAX_PEERS + 2},
        {&gyre_algorithm_twoshot, GYRE_COLL_ALL_REDUCE, MOST_REDUCING + 1},
    };
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(others); i++)
        for (int rank = 0; rank < others[i].n_ranks; rank++) {
            const struct gyre_fused_program fused =
                find(others[i].algorithm, others[i].coll, false, others[i].n_ranks, rank);
            CHECK_MSG(fused.pattern == GYRE_FUSED_NONE, "%s %s, rank %d: %s",
                      others[i].algorithm->name, gyre_collectives[others[i].coll].name, rank,
                      gyre_fused_patterns[fused.pattern].name);
        }
    CHECK(find(&gyre_algorithm_direct, GYRE_COLL_ALL_TO_ALL, true, 3, 1).pattern ==
          GYRE_FUSED_NONE);
}

TEST_CASE("a send and a receive have one end each")
{
    for (int root = 0; root < 2; root++)
        for (int rank = 0; rank < 2; rank++) {
            const struct gyre_shape shape = {
                .coll = GYRE_COLL_SEND_RECV, .n_ranks = 2, .root = (uint16_t)root};
            struct gyre_fused_program fused;
            struct gyre_program *program = NULL;
            CHECK_OK(gyre_algorithm_emit(&gyre_algorithm_sendrecv, &shape, rank, &program));
            gyre_fused_find(program, &fused);
            CHECK(fused.pattern == (rank == root ? GYRE_FUSED_SEND : GYRE_FUSED_RECEIVE));
            CHECK(fused.n_peers == 1 && fused.peers[0].rank == 1 - rank);
            CHECK(fused.peers[0].in_block == 0 && fused.peers[0].out_block == 0);
            CHECK(gyre_fused_slots_per_tile(fused.pattern) == 1);
            CHECK(gyre_fused_is_message(fused.pattern));
            gyre_program_free(program);
            /* find() checks the connections, too. */
            CHECK(find(&gyre_algorithm_sendrecv, GYRE_COLL_SEND_RECV, false, 2, rank).n_peers == 1);
        }
    for (int pattern = 0; pattern < GYRE_N_FUSED_PATTERNS; pattern++)
        CHECK(gyre_fused_is_message((enum gyre_fused_pattern)pattern) ==
              (pattern >= GYRE_FUSED_SEND));
}

static enum gyre_fused_pattern pattern_after(enum gyre_collective coll,
                                             void (*change)(struct gyre_program *program),
                                             bool is_placed)
{
    struct gyre_program *program =
        emit(coll == GYRE_COLL_ALL_REDUCE ? &gyre_algorithm_twoshot : &gyre_algorithm_direct, coll,
             is_placed, 4, 1);
    struct gyre_fused_program fused;
    change(program);
    gyre_fused_find(program, &fused);
    gyre_program_free(program);
    return fused.pattern;
}

static struct gyre_step *result_of(struct gyre_program *program)
{
    struct gyre_step *step = program->steps;
    while (step->n_ins == 1)
        step++;
    return step;
}

/* A change of the program p. */
#define CHANGE(name, ...)                    \
    static void name(struct gyre_program *p) \
    {                                        \
        __VA_ARGS__;                         \
    }

CHANGE(change_nothing, (void)p)
CHANGE(lose_the_last_step, p->workers[0].n_steps--)
CHANGE(take_two_workers, p->n_workers = 2)
CHANGE(forget_that_the_result_is_final, result_of(p)->flags = 0)
CHANGE(reduce_the_own_chunk_twice, struct gyre_step *step = result_of(p);
       step->ins[0] = step->ins[1].kind == GYRE_OPERAND_IN ? step->ins[1] : step->ins[0])
CHANGE(send_the_wrong_chunk, p->steps[0].ins[0].index++)
CHANGE(send_from_out, p->steps[0].ins[0].kind = GYRE_OPERAND_OUT)
CHANGE(store_in_the_wrong_chunk, p->steps[p->n_steps - 1].outs[0].index++)
CHANGE(store_in_scratch, p->steps[p->n_steps - 1].outs[0].kind = GYRE_OPERAND_SCRATCH)
CHANGE(store_one_peer_twice, p->steps[p->n_steps - 1] = p->steps[p->n_steps - 2])
CHANGE(send_one_peer_two_chunks, p->steps[1].outs[0].index = p->steps[0].outs[0].index)
CHANGE(send_the_result_to_fewer, result_of(p)->n_outs--)
CHANGE(send_to_fewer, p->workers[0].first_step++; p->workers[0].n_steps--)
CHANGE(send_to_one_peer_twice, p->steps[1] = p->steps[0])
CHANGE(send_the_own_block_too, struct gyre_step *step = &p->steps[3];
       step->outs[step->n_outs++] = p->steps[0].outs[0])
CHANGE(copy_into_scratch, p->steps[3].outs[0].kind = GYRE_OPERAND_SCRATCH)
CHANGE(leave_the_copy_out, memmove(&p->steps[3], &p->steps[4], 3 * sizeof(*p->steps));
       p->workers[0].n_steps--)

static void place_one_result_less(struct gyre_program *program)
{
    struct gyre_step *step = result_of(program);
    for (unsigned o = 0; o < step->n_outs; o++)
        if (step->outs[o].is_placed != 0) {
            step->outs[o].is_placed = 0;
            return;
        }
}

TEST_CASE("a program with one thing changed is not fused")
{
    static void (*const changes[])(struct gyre_program *) = {
        lose_the_last_step,         take_two_workers,         forget_that_the_result_is_final,
        reduce_the_own_chunk_twice, send_the_wrong_chunk,     send_from_out,
        store_in_the_wrong_chunk,   store_in_scratch,         store_one_peer_twice,
        send_one_peer_two_chunks,   send_the_result_to_fewer,
    };
    const enum gyre_collective coll = GYRE_COLL_ALL_REDUCE;
    CHECK(pattern_after(coll, change_nothing, false) == GYRE_FUSED_TWO_SHOT);
    CHECK(pattern_after(coll, change_nothing, true) == GYRE_FUSED_TWO_SHOT);
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(changes); i++)
        CHECK_MSG(pattern_after(coll, changes[i], false) == GYRE_FUSED_NONE, "change %zu", i);
    CHECK(pattern_after(coll, place_one_result_less, true) == GYRE_FUSED_NONE);
}

TEST_CASE("nor is an all-to-all")
{
    static void (*const changes[])(struct gyre_program *) = {
        lose_the_last_step,   take_two_workers,   send_from_out,          store_in_scratch,
        store_one_peer_twice, send_to_fewer,      send_to_one_peer_twice, send_the_own_block_too,
        copy_into_scratch,    leave_the_copy_out,
    };
    const enum gyre_collective coll = GYRE_COLL_ALL_TO_ALL;
    CHECK(pattern_after(coll, change_nothing, false) == GYRE_FUSED_ALL_TO_ALL);
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(changes); i++)
        CHECK_MSG(pattern_after(coll, changes[i], false) == GYRE_FUSED_NONE, "change %zu", i);
}
