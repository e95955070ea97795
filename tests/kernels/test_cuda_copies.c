/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/algorithm.h"
#include "kernels/cuda/host/copies.h"
#include "kernels/cuda/host/lower.h"
#include "tests/support/check.h"

#include <pthread.h>

#define MAX_RANKS 6
#define N_FIFOS   8
#define DEPTH     2
#define ELEM      4

struct play {
    enum gyre_collective coll;
    int n_ranks;
    struct gyre_fifo_spec spec;
    struct gyre_split split;
    unsigned char *ins[MAX_RANKS];
    unsigned char *outs[MAX_RANKS];
    size_t in_bytes;
    size_t out_bytes;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    /* Indexed by sending rank, receiving rank and FIFO. */
    uint32_t tail[MAX_RANKS][MAX_RANKS][N_FIFOS];
    uint32_t head[MAX_RANKS][MAX_RANKS][N_FIFOS];
    bool has_entered[MAX_RANKS][MAX_RANKS][N_FIFOS];
    uint32_t slot_bytes[MAX_RANKS][MAX_RANKS][N_FIFOS][DEPTH];
};

struct player {
    struct play *play;
    int rank;
    struct gyre_cuda_copies *copies;
    uint32_t n_syncs;
    uint32_t n_copies;
};

/* As kernels/cuda/copy_engine/kernels.cu, except that both ends count from 0 in each call. */
static void pass_sync(struct player *player, const struct gyre_cuda_sync_entry *entries, uint32_t n)
{
    struct play *play = player->play;
    const uint32_t ends_per_rank = play->spec.n_fifos * 2;
    pthread_mutex_lock(&play->lock);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t peer = entries[i].index / ends_per_rank;
        const uint32_t fifo = entries[i].index % ends_per_rank / 2;
        if ((entries[i].acts & GYRE_CUDA_SYNC_OPEN) != 0)
            play->has_entered[peer][player->rank][fifo] = true;
        if ((entries[i].acts & GYRE_CUDA_SYNC_POST) == 0)
            continue;
        CHECK(play->tail[player->rank][peer][fifo] == entries[i].slot);
        CHECK(entries[i].slot - play->head[player->rank][peer][fifo] < DEPTH);
        play->slot_bytes[player->rank][peer][fifo][entries[i].slot % DEPTH] = entries[i].n_bytes;
        play->tail[player->rank][peer][fifo] = entries[i].slot + 1;
    }
    pthread_cond_broadcast(&play->moved);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t peer = entries[i].index / ends_per_rank;
        const uint32_t fifo = entries[i].index % ends_per_rank / 2;
        const uint32_t acts = entries[i].acts, slot = entries[i].slot;
        while ((acts & GYRE_CUDA_SYNC_ENTER) != 0 && !play->has_entered[player->rank][peer][fifo])
            pthread_cond_wait(&play->moved, &play->lock);
        while ((acts & GYRE_CUDA_SYNC_CREDIT) != 0 &&
               slot - play->head[player->rank][peer][fifo] >= DEPTH)
            pthread_cond_wait(&play->moved, &play->lock);
        while ((acts & GYRE_CUDA_SYNC_TAKE) != 0 && play->tail[peer][player->rank][fifo] <= slot)
            pthread_cond_wait(&play->moved, &play->lock);
        if ((acts & GYRE_CUDA_SYNC_TAKE) == 0)
            continue;
        CHECK(play->head[peer][player->rank][fifo] == slot);
        CHECK(play->slot_bytes[peer][player->rank][fifo][slot % DEPTH] == entries[i].n_bytes);
        play->head[peer][player->rank][fifo] = slot + 1;
        pthread_cond_broadcast(&play->moved);
    }
    player->n_syncs++;
    pthread_mutex_unlock(&play->lock);
}

static gyre_status play_sync(void *context, uint32_t channel,
                             const struct gyre_cuda_sync_entry *entries, uint32_t n_entries)
{
    struct player *player = context;
    CHECK(channel < GYRE_CUDA_COPY_CHANNELS && n_entries > 0);
    pass_sync(player, entries, n_entries);
    return GYRE_SUCCESS;
}

static gyre_status play_ends(void *context, bool is_last,
                             const struct gyre_cuda_sync_entry *entries, uint32_t n_entries)
{
    struct player *player = context;
    struct play *play = player->play;
    const uint32_t ends_per_rank = play->spec.n_fifos * 2;
    pass_sync(player, entries, n_entries);
    for (uint32_t i = 0; i < n_entries && is_last; i++) {
        const uint32_t peer = entries[i].index / ends_per_rank;
        const uint32_t fifo = entries[i].index % ends_per_rank / 2;
        const bool is_send = entries[i].index % 2 != 0;
        if ((entries[i].acts & GYRE_CUDA_SYNC_COUNT) == 0)
            continue;
        pthread_mutex_lock(&play->lock);
        CHECK(entries[i].slot == (is_send ? play->tail[player->rank][peer][fifo]
                                          : play->head[peer][player->rank][fifo]));
        pthread_mutex_unlock(&play->lock);
    }
    return GYRE_SUCCESS;
}

static gyre_status play_copy(void *context, uint32_t channel, const struct gyre_cuda_copy *copy)
{
    struct player *player = context;
    struct play *play = player->play;
    const unsigned char *from = copy->from_in ? play->ins[player->rank] : play->outs[player->rank];
    unsigned char *to = play->outs[copy->peer < 0 ? player->rank : copy->peer];
    const uint64_t span = copy->pitch_bytes * (copy->n_rows - 1) + copy->row_bytes;
    CHECK(channel < GYRE_CUDA_COPY_CHANNELS && copy->n_rows > 0 && copy->row_bytes > 0);
    CHECK(copy->from_offset + span <= (copy->from_in ? play->in_bytes : play->out_bytes));
    CHECK(copy->to_offset + span <= play->out_bytes);
    for (uint64_t row = 0; row < copy->n_rows; row++)
        memcpy(to + copy->to_offset + row * copy->pitch_bytes,
               from + copy->from_offset + row * copy->pitch_bytes, copy->row_bytes);
    player->n_copies++;
    return GYRE_SUCCESS;
}

static void *play_rank(void *argument)
{
    struct player *player = argument;
    const struct gyre_cuda_copies_sink sink = {player, play_sync, play_copy, play_ends};
    CHECK_OK(gyre_cuda_copies_walk(player->copies, &player->play->split, ELEM, &sink));
    return NULL;
}

static uint32_t value(int rank, uint64_t i)
{
    return (uint32_t)(rank + 1) << 24 | (uint32_t)i;
}

/* Before the copies. In an all-reduce OUT holds this rank's summed chunk. */
static void fill(struct play *play, int rank)
{
    const uint64_t n_in = play->in_bytes / ELEM;
    uint32_t *in = (uint32_t *)(void *)play->ins[rank], *out = (uint32_t *)(void *)play->outs[rank];
    for (uint64_t i = 0; i < n_in; i++)
        in[i] = value(rank, i);
    memset(out, 0, play->out_bytes);
    if (play->coll != GYRE_COLL_ALL_REDUCE)
        return;
    for (uint32_t channel = 0; channel < play->split.n_channels; channel++) {
        const struct gyre_range range = gyre_chunk_range(&play->split, channel, (uint32_t)rank);
        for (uint64_t i = 0; i < range.n_elems; i++)
            out[range.first_elem + i] = value(-1, range.first_elem + i);
    }
}

static uint32_t expected(const struct play *play, int root, int rank, uint64_t i)
{
    const uint64_t count = play->split.count;
    if (play->coll == GYRE_COLL_ALL_REDUCE)
        return value(-1, i);
    if (play->coll == GYRE_COLL_BROADCAST)
        return value(root, i);
    if (play->coll == GYRE_COLL_ALL_TO_ALL)
        return value((int)(i / count), (uint64_t)rank * count + i % count);
    return value((int)(i / count), i % count);
}

static struct gyre_connector *make_connectors(const struct play *play)
{
    const uint32_t n_ends = (uint32_t)play->n_ranks * N_FIFOS * 2;
    struct gyre_connector *connectors = calloc(n_ends, sizeof(*connectors));
    for (uint32_t i = 0; i < n_ends; i++) {
        connectors[i].inbox = (struct gyre_inbox *)(uintptr_t)0x1000; /* never looked at */
        connectors[i].depth = DEPTH;
    }
    return connectors;
}

static void check_call(const struct gyre_algorithm *algorithm, enum gyre_collective coll,
                       int n_ranks, int root, uint64_t count, uint32_t n_channels)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[coll];
    const struct gyre_shape shape = {
        .coll = coll, .n_ranks = (uint16_t)n_ranks, .root = (uint16_t)root, .is_placed = true};
    static struct play play;
    struct player players[MAX_RANKS] = {0};
    struct gyre_program *programs[MAX_RANKS];
    memset(&play, 0, sizeof(play));
    play.coll = coll;
    play.n_ranks = n_ranks;
    play.spec = (struct gyre_fifo_spec){.n_fifos = N_FIFOS, .depth = DEPTH};
    play.in_bytes = count * ELEM * (traits->in_blocks ? (size_t)n_ranks : 1);
    play.out_bytes = count * ELEM * (traits->out_blocks ? (size_t)n_ranks : 1);
    pthread_mutex_init(&play.lock, NULL);
    pthread_cond_init(&play.moved, NULL);
    struct gyre_connector *connectors = make_connectors(&play);
    for (int rank = 0; rank < n_ranks; rank++) {
        CHECK_OK(gyre_algorithm_emit(algorithm, &shape, rank, &programs[rank]));
        play.split = (struct gyre_split){count, n_channels, programs[rank]->n_chunks, 12, 4};
        play.ins[rank] = malloc(play.in_bytes + 1);
        play.outs[rank] = malloc(play.out_bytes + 1);
        fill(&play, rank);
        const struct gyre_load_config config = {
            .program = programs[rank], .n_channels = n_channels, .by_copy_engines = true};
        players[rank] = (struct player){.play = &play, .rank = rank};
        CHECK_OK(
            gyre_cuda_copies_make(&play.spec, connectors, n_ranks, &config, &players[rank].copies));
    }
    test_run_threads(play_rank, players, n_ranks, sizeof(players[0]));
    for (int rank = 0; rank < n_ranks; rank++) {
        const uint32_t *out = (const uint32_t *)(const void *)play.outs[rank];
        uint64_t n_wrong = 0;
        for (uint64_t i = 0; i < play.out_bytes / ELEM; i++)
            n_wrong += out[i] != expected(&play, root, rank, i);
        CHECK_MSG(n_wrong == 0, "%s %s of %d ranks, root %d, %u channels, count %d: %d wrong on %d",
                  algorithm->name, gyre_collectives[coll].name, n_ranks, root, n_channels,
                  (int)count, (int)n_wrong, rank);
        /* Two sync kernels, and a copy or two for each peer. */
        CHECK(coll == GYRE_COLL_BROADCAST || algorithm == &gyre_algorithm_ring ||
              players[rank].n_syncs == 2);
        CHECK(coll != GYRE_COLL_ALL_REDUCE ||
              players[rank].n_copies <= 2U * (unsigned)(n_ranks - 1));
        free(players[rank].copies);
        gyre_program_free(programs[rank]);
        free(play.ins[rank]);
        free(play.outs[rank]);
    }
    free(connectors);
    pthread_cond_destroy(&play.moved);
    pthread_mutex_destroy(&play.lock);
}

TEST_CASE("copies bring everything everywhere")
{
    static const uint64_t counts[] = {0, 1, 5, 47, 1000, 1024};
    for (int n = 2; n <= MAX_RANKS; n++)
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
            for (uint32_t n_channels = 1; n_channels <= 3; n_channels++) {
                check_call(&gyre_algorithm_direct, GYRE_COLL_ALL_GATHER, n, 0, counts[c],
                           n_channels);
                check_call(&gyre_algorithm_direct, GYRE_COLL_ALL_TO_ALL, n, 0, counts[c],
                           n_channels);
                check_call(&gyre_algorithm_ring, GYRE_COLL_ALL_GATHER, n, 0, counts[c], n_channels);
                check_call(&gyre_algorithm_spread, GYRE_COLL_ALL_REDUCE, n, 0, counts[c],
                           n_channels * 2);
                check_call(&gyre_algorithm_ring, GYRE_COLL_BROADCAST, n, n / 2, counts[c],
                           n_channels);
            }
}

TEST_CASE("the tables say who has tails")
{
    for (int a = 0; gyre_algorithms[a] != NULL; a++)
        for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++)
            for (uint16_t n = 2; n <= 33; n++)
                for (uint16_t rank = 0; rank < n; rank++) {
                    const struct gyre_shape shape = {.coll = (enum gyre_collective)coll,
                                                     .n_ranks = n,
                                                     .root = n / 2,
                                                     .is_placed = true};
                    struct gyre_program *program;
                    if (!gyre_algorithm_has(gyre_algorithms[a], shape.coll) ||
                        (coll == GYRE_COLL_SEND_RECV && n > 2))
                        continue;
                    CHECK_OK(gyre_algorithm_emit(gyre_algorithms[a], &shape, rank, &program));
                    const bool has_tail = gyre_program_copy_tail(program) < program->n_steps;
                    const struct gyre_ability can =
                        gyre_algorithm_ability(gyre_algorithms[a], &shape);
                    CHECK_MSG(has_tail == can.copy_tail, "%s %s, rank %u of %u",
                              gyre_algorithms[a]->name, gyre_collectives[coll].name, rank, n);
                    CHECK_MSG((program->is_placed != 0) == can.places, "%s %s, rank %u of %u",
                              gyre_algorithms[a]->name, gyre_collectives[coll].name, rank, n);
                    gyre_program_free(program);
                }
}

TEST_CASE("what has no tail is refused")
{
    static struct play play = {.n_ranks = 3, .spec = {.n_fifos = N_FIFOS, .depth = DEPTH}};
    struct gyre_connector *connectors = make_connectors(&play);
    const struct gyre_shape reduce = {
        .coll = GYRE_COLL_ALL_REDUCE, .n_ranks = 3, .is_placed = true};
    const struct gyre_shape chain = {.coll = GYRE_COLL_BROADCAST, .n_ranks = 3, .is_placed = true};
    struct gyre_cuda_copies *copies;
    struct gyre_program *program;
    CHECK_OK(gyre_algorithm_emit(&gyre_algorithm_ring, &reduce, 0, &program));
    struct gyre_load_config config = {.program = program, .n_channels = 1};
    CHECK_FAILS(gyre_cuda_copies_make(&play.spec, connectors, 3, &config, &copies),
                GYRE_ERROR_UNSUPPORTED, "no part that only copies");
    gyre_program_free(program);
    CHECK_OK(gyre_algorithm_emit(&gyre_algorithm_ring, &chain, 0, &program));
    config.program = program;
    config.n_channels = GYRE_CUDA_COPY_CHANNELS + 1;
    CHECK_FAILS(gyre_cuda_copies_make(&play.spec, connectors, 3, &config, &copies),
                GYRE_ERROR_UNSUPPORTED, "copy engines take up to");
    config.n_channels = 1;
    for (uint32_t i = 0; i < 3 * N_FIFOS * 2; i++)
        connectors[i].is_proxied = 1;
    CHECK_FAILS(gyre_cuda_copies_make(&play.spec, connectors, 3, &config, &copies),
                GYRE_ERROR_UNSUPPORTED, "nothing can be placed");
    gyre_program_free(program);
    free(connectors);
}

TEST_CASE("only what is staged limits a tile")
{
    enum { N = 4, NEAR = 65536, FAR = 4096 };
    struct play play = {
        .n_ranks = N,
        .spec = {.n_fifos = N_FIFOS, .depth = DEPTH, .slot_bytes = {FAR}, .ring_slot_bytes = NEAR}};
    struct gyre_connector *connectors = make_connectors(&play);
    for (uint32_t i = 0; i < N * N_FIFOS * 2; i++) {
        const uint32_t peer = i / (N_FIFOS * 2);
        const bool is_near =
            peer == (i % 2 != 0 ? 1 : N - 1); /* to the next rank, from the previous one */
        connectors[i].slots[GYRE_PROTO_SIMPLE] = (unsigned char *)(uintptr_t)0x10000;
        connectors[i].slot_bytes = is_near ? NEAR : FAR;
    }
    for (int is_placed = 0; is_placed < 2; is_placed++) {
        const struct gyre_shape shape = {
            .coll = GYRE_COLL_ALL_REDUCE, .n_ranks = N, .is_placed = is_placed != 0};
        struct gyre_cuda_program *blob;
        struct gyre_cuda_shape size;
        struct gyre_program *program;
        CHECK_OK(gyre_algorithm_emit(&gyre_algorithm_spread, &shape, 0, &program));
        const struct gyre_load_config config = {.program = program, .n_channels = 1};
        CHECK_OK(gyre_cuda_lower(&play.spec, connectors, N, &config, &blob, &size));
        CHECK_MSG(size.slot_bytes == (is_placed ? NEAR : FAR), "%u", size.slot_bytes);
        free(blob);
        gyre_program_free(program);
    }
    free(connectors);
}

TEST_CASE("steps of several chunks are not lowered to lines")
{
    const struct gyre_fifo_spec spec = {.n_fifos = 1, .depth = 2, .slot_bytes = {4096}};
    const struct gyre_shape shape = {.coll = GYRE_COLL_ALL_GATHER, .n_ranks = 4};
    struct gyre_connector connectors[8] = {0};
    struct gyre_cuda_program *blob = NULL;
    struct gyre_cuda_shape size;
    struct gyre_program *program;
    CHECK_OK(gyre_algorithm_emit(&gyre_algorithm_bruck, &shape, 0, &program));
    const struct gyre_load_config config = {
        .program = program, .n_channels = 1, .proto = GYRE_PROTO_LL};
    CHECK_FAILS(gyre_cuda_lower(&spec, connectors, 4, &config, &blob, &size),
                GYRE_ERROR_UNSUPPORTED, "moves up to 2 chunks: too many for a GPU");
    gyre_program_free(program);
}
