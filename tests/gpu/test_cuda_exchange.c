/* SPDX-License-Identifier: Apache-2.0
 *
 * Which programs the CUDA executor runs as one exchange, and that an exchange does what the program
 * does. No GPU: the pattern is played by hand, with a reduction that minds the order.
 */
#include "algorithms/algorithm.h"
#include "core/base/util.h"
#include "kernels/cuda/host/program.h"
#include "kernels/numeric.h"
#include "tests/support/check.h"

#include <math.h>

#define MAX_RANKS  9
#define N_CHANNELS 3

/* Ends of one rank, nowhere in memory: an exchange only keeps their addresses. */
struct place {
    struct gyre_fifo_spec spec;
    struct gyre_connector *connectors;
};

static void open_place(struct place *place, int n_ranks)
{
    const struct gyre_fifo_spec spec = {.n_fifos = 8, .depth = 4, .slot_bytes = {4096, 4096, 4096}};
    const uint32_t n_ends = (uint32_t)n_ranks * spec.n_fifos * 2;
    place->spec = spec;
    place->connectors = calloc(n_ends, sizeof(*place->connectors));
    for (uint32_t i = 0; i < n_ends; i++) {
        struct gyre_connector *end = &place->connectors[i];
        for (int proto = 0; proto < GYRE_N_SLOT_PROTOS; proto++)
            end->slots[proto] = (unsigned char *)(uintptr_t)(0x10000000 + i * 0x10000);
        end->inbox = (struct gyre_inbox *)(uintptr_t)(0x1000 + i * sizeof(struct gyre_inbox));
        end->credit = (struct gyre_credit *)(uintptr_t)(0x100000 + i * sizeof(struct gyre_credit));
        end->slot_bytes = spec.slot_bytes[GYRE_PROTO_SIMPLE];
        end->depth = (uint16_t)spec.depth;
    }
}

static bool places; /* programs place what they can */

/* The exchange that a rank's program is; n_peers is 0 if it is none. */
static struct gyre_cuda_exchange find(const struct gyre_algorithm *algorithm,
                                      enum gyre_collective coll, enum gyre_proto proto, int n_ranks,
                                      int rank)
{
    const struct gyre_shape shape = {
        .coll = coll, .n_ranks = (uint16_t)n_ranks, .is_placed = places};
    struct gyre_cuda_exchange exchange = {0};
    struct gyre_cuda_program *blob = NULL;
    struct gyre_program *program = NULL;
    struct gyre_cuda_shape size;
    struct place place;
    open_place(&place, n_ranks);
    CHECK_OK(gyre_algorithm_emit(algorithm, &shape, rank, &program));
    const struct gyre_load_config config = {
        .program = program, .n_channels = N_CHANNELS, .proto = proto};
    CHECK_OK(gyre_cuda_lower(&place.spec, place.connectors, n_ranks, &config, &blob, &size));
    gyre_cuda_exchange_find(&place.spec, place.connectors, &config, blob, &exchange);
    /* What is left of the places: the peer's rank, in both its ends. */
    for (unsigned p = 0; p < exchange.n_peers; p++) {
        exchange.peers[p].send_end /= place.spec.n_fifos * 2;
        exchange.peers[p].recv_end /= place.spec.n_fifos * 2;
        CHECK(exchange.peers[p].send_end == exchange.peers[p].recv_end);
    }
    free(blob);
    gyre_program_free(program);
    free(place.connectors);
    return exchange;
}

/* Neither commutative nor associative. */
static uint64_t reduce(uint64_t a, uint64_t b)
{
    return a * 31 + b;
}

struct play {
    enum gyre_collective coll;
    int n_ranks;
    struct gyre_cuda_exchange exchanges[MAX_RANKS];
    uint64_t in[MAX_RANKS][MAX_RANKS]; /* by rank and chunk or block */
    uint64_t out[MAX_RANKS][MAX_RANKS];
    uint64_t sent[MAX_RANKS][MAX_RANKS][2]; /* from, to, use */
};

static uint32_t in_index(const struct play *play, uint64_t block, uint32_t chunk)
{
    return gyre_collectives[play->coll].in_blocks ? (uint32_t)block : chunk;
}

static uint32_t out_index(const struct play *play, uint64_t block, uint32_t chunk)
{
    return gyre_collectives[play->coll].out_blocks ? (uint32_t)block : chunk;
}

static void scatter(struct play *play, int rank)
{
    const struct gyre_cuda_exchange *own = &play->exchanges[rank];
    for (unsigned p = 0; p < own->n_peers && own->reduces != 0; p++)
        play->sent[rank][own->peers[p].send_end][0] =
            play->in[rank][in_index(play, own->peers[p].in_offset, own->peers[p].chunk)];
}

static void finish(struct play *play, int rank)
{
    const struct gyre_cuda_exchange *own = &play->exchanges[rank];
    const uint64_t input = play->in[rank][in_index(play, own->own_offset, own->own_chunk)];
    uint64_t result = input;
    for (unsigned i = 0, p = 0; i <= own->n_peers && own->reduces != 0; i++) {
        const uint64_t next =
            i == own->own_place ? input : play->sent[own->peers[p++].recv_end][rank][0];
        result = i == 0 ? next : reduce(result, next);
    }
    play->out[rank][out_index(play, own->own_out_offset, own->own_chunk)] = result;
    for (unsigned p = 0; p < own->n_peers && own->gathers != 0; p++)
        play->sent[rank][own->peers[p].send_end][own->reduces] = result;
}

static void gather(struct play *play, int rank)
{
    const struct gyre_cuda_exchange *own = &play->exchanges[rank];
    for (unsigned p = 0; p < own->n_peers && own->gathers != 0; p++) {
        const struct gyre_cuda_peer *peer = &own->peers[p];
        const struct gyre_cuda_exchange *theirs = &play->exchanges[peer->recv_end];
        /* What is placed comes to where the peer has its own. */
        const uint32_t index = places ? out_index(play, theirs->own_out_offset, theirs->own_chunk)
                                      : out_index(play, peer->out_offset, peer->chunk);
        play->out[rank][index] = play->sent[peer->recv_end][rank][own->reduces];
    }
}

/* The collective by its definition, ranks in ascending order. */
static uint64_t expected(const struct play *play, int rank, int index)
{
    if (play->coll == GYRE_COLL_ALL_GATHER)
        return play->in[index][0];
    const int of = play->coll == GYRE_COLL_REDUCE_SCATTER ? rank : index;
    uint64_t result = play->in[0][of];
    for (int r = 1; r < play->n_ranks; r++)
        result = reduce(result, play->in[r][of]);
    return result;
}

static void check_play(const struct gyre_algorithm *algorithm, enum gyre_collective coll,
                       enum gyre_proto proto, int n_ranks)
{
    struct play play = {.coll = coll, .n_ranks = n_ranks};
    const bool is_cut = algorithm == &gyre_algorithm_twoshot || coll == GYRE_COLL_ALL_GATHER;
    const int n_results = is_cut ? n_ranks : 1;
    for (int rank = 0; rank < n_ranks; rank++) {
        play.exchanges[rank] = find(algorithm, coll, proto, n_ranks, rank);
        CHECK_MSG(play.exchanges[rank].n_peers == n_ranks - 1, "%s %s, rank %d of %d: %d peers",
                  algorithm->name, gyre_collectives[coll].name, rank, n_ranks,
                  play.exchanges[rank].n_peers);
        for (int i = 0; i < n_ranks; i++)
            play.in[rank][i] = (uint64_t)(rank * 1000 + i + 1);
    }
    for (int rank = 0; rank < n_ranks; rank++)
        scatter(&play, rank);
    for (int rank = 0; rank < n_ranks; rank++)
        finish(&play, rank);
    for (int rank = 0; rank < n_ranks; rank++)
        gather(&play, rank);
    for (int rank = 0; rank < n_ranks; rank++)
        for (int i = 0; i < n_results; i++)
            CHECK_MSG(play.out[rank][i] == expected(&play, rank, i),
                      "%s %s, rank %d of %d, chunk %d: %" PRIu64 " instead of %" PRIu64,
                      algorithm->name, gyre_collectives[coll].name, rank, n_ranks, i,
                      play.out[rank][i], expected(&play, rank, i));
}

static void one_and_two_shots_are_exchanges_that_do_the_same(void)
{
    for (int n_ranks = 2; n_ranks <= GYRE_CUDA_MAX_PEERS + 1; n_ranks++)
        for (int proto = GYRE_PROTO_LL; proto < GYRE_N_PROTOS; proto++) {
            const enum gyre_proto lines = (enum gyre_proto)proto;
            check_play(&gyre_algorithm_direct, GYRE_COLL_ALL_REDUCE, lines, n_ranks);
            check_play(&gyre_algorithm_direct, GYRE_COLL_REDUCE_SCATTER, lines, n_ranks);
            check_play(&gyre_algorithm_direct, GYRE_COLL_ALL_GATHER, lines, n_ranks);
            check_play(&gyre_algorithm_twoshot, GYRE_COLL_ALL_REDUCE, lines, n_ranks);
        }
}

/* Their words are those of SIMPLE's FIFOs. */
static void so_are_two_shots_in_simple_and_all_gathers_into_windows(void)
{
    for (int n_ranks = 2; n_ranks <= GYRE_CUDA_MAX_PEERS + 1; n_ranks++)
        check_play(&gyre_algorithm_twoshot, GYRE_COLL_ALL_REDUCE, GYRE_PROTO_SIMPLE, n_ranks);
    places = true;
    for (int n_ranks = 2; n_ranks <= GYRE_CUDA_MAX_PEERS + 1; n_ranks++) {
        check_play(&gyre_algorithm_direct, GYRE_COLL_ALL_GATHER, GYRE_PROTO_SIMPLE, n_ranks);
        check_play(&gyre_algorithm_twoshot, GYRE_COLL_ALL_REDUCE, GYRE_PROTO_SIMPLE, n_ranks);
    }
    CHECK(find(&gyre_algorithm_ring, GYRE_COLL_ALL_REDUCE, GYRE_PROTO_SIMPLE, 2, 0).n_peers == 1);
    CHECK(find(&gyre_algorithm_ring, GYRE_COLL_ALL_GATHER, GYRE_PROTO_SIMPLE, 3, 0).n_peers == 0);
    CHECK(find(&gyre_algorithm_ring, GYRE_COLL_ALL_REDUCE, GYRE_PROTO_SIMPLE, 3, 0).n_peers == 0);
    places = false;
    CHECK(find(&gyre_algorithm_direct, GYRE_COLL_ALL_GATHER, GYRE_PROTO_SIMPLE, 3, 0).n_peers == 0);
}

static void other_programs_are_run_step_by_step(void)
{
    static const struct {
        const struct gyre_algorithm *algorithm;
        enum gyre_collective coll;
        enum gyre_proto proto;
        int n_ranks;
    } others[] = {
        {&gyre_algorithm_ring, GYRE_COLL_ALL_REDUCE, GYRE_PROTO_LL, 3},
        {&gyre_algorithm_ring, GYRE_COLL_ALL_GATHER, GYRE_PROTO_LL, 3},
        {&gyre_algorithm_tree, GYRE_COLL_ALL_REDUCE, GYRE_PROTO_LL, 4},
        {&gyre_algorithm_direct, GYRE_COLL_BROADCAST, GYRE_PROTO_LL, 3},
        {&gyre_algorithm_direct, GYRE_COLL_REDUCE, GYRE_PROTO_LL128, 3},
        {&gyre_algorithm_direct, GYRE_COLL_ALL_REDUCE, GYRE_PROTO_SIMPLE, 4},
        {&gyre_algorithm_twoshot, GYRE_COLL_ALL_REDUCE, GYRE_PROTO_LL, GYRE_CUDA_MAX_PEERS + 2},
    };
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(others); i++)
        for (int rank = 0; rank < others[i].n_ranks; rank++) {
            const struct gyre_cuda_exchange exchange =
                find(others[i].algorithm, others[i].coll, others[i].proto, others[i].n_ranks, rank);
            CHECK_MSG(exchange.n_peers == 0, "%s %s, rank %d", others[i].algorithm->name,
                      gyre_collectives[others[i].coll].name, rank);
        }
}

/* Element `i` of 8 bytes, as a number. */
static double element_of(gyre_dtype dtype, uint64_t half, unsigned i)
{
    const uint64_t bits = half >> 8 * gyre_dtype_bytes(dtype) * i;
    switch (dtype) {
    case GYRE_FLOAT16:
        return gyre_f16_to_f32((uint16_t)bits);
    case GYRE_BFLOAT16:
        return gyre_bf16_to_f32((uint16_t)bits);
    case GYRE_FLOAT32:
        return gyre_f32_from_bits((uint32_t)bits);
    default:
        return gyre_f64_from_bits(bits);
    }
}

static void what_lamport_cannot_carry_stays_nan(void)
{
    const uint64_t half = gyre_cuda_lamport_half(UINT64_MAX);
    CHECK(~half != 0 && gyre_cuda_lamport_half(half) == half);
    CHECK(gyre_cuda_lamport_half(UINT64_MAX - 1) == UINT64_MAX - 1);
    CHECK(gyre_cuda_lamport_half(0) == 0);
    for (int dtype = 0; dtype < GYRE_N_DTYPES; dtype++)
        for (unsigned i = 0; gyre_lamport_adds((gyre_dtype)dtype, GYRE_SUM) &&
                             i < 8 / gyre_dtype_bytes((gyre_dtype)dtype);
             i++)
            CHECK_MSG(isnan(element_of((gyre_dtype)dtype, half, i)), "element %u of %s", i,
                      gyre_dtype_names[dtype]);
}

static const struct test_case cases[] = {
    {"what lamport cannot carry stays NaN", what_lamport_cannot_carry_stays_nan},
    {"one and two shots are exchanges that do the same",
     one_and_two_shots_are_exchanges_that_do_the_same},
    {"so are two-shots in simple, and all-gathers into windows",
     so_are_two_shots_in_simple_and_all_gathers_into_windows},
    {"other programs are run step by step", other_programs_are_run_step_by_step},
};

TEST_MAIN(cases)
