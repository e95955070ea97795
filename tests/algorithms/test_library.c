/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/library/library.h"
#include "algorithms/verify/verify.h"
#include "tests/support/check.h"
#include "tests/support/shapes.h"

#include <string.h>

static bool can_do(const struct gyre_algorithm *algorithm, const struct gyre_shape *shape)
{
    return gyre_algorithm_obstacle(algorithm, shape, NULL) == NULL;
}

static bool is_ring(const struct gyre_algorithm *algorithm)
{
    return algorithm == &gyre_algorithm_nccl_ring ||
           strcmp(algorithm->name, gyre_algorithm_rings.name) == 0;
}

static void prove(const struct gyre_algorithm *algorithm, const struct gyre_shape *shape)
{
    struct gyre_program **programs = can_do(algorithm, shape) ? emit_all(algorithm, shape) : NULL;
    CHECK_MSG(!can_do(algorithm, shape) || programs != NULL, "%s", gyre_cause());
    for (int in_place = 0; in_place < 2 && programs != NULL; in_place++) {
        const struct gyre_verify_options options = {.in_place = in_place == 1};
        struct gyre_verify_report report;
        CHECK_MSG(gyre_verify((const struct gyre_program *const *)programs, shape->n_ranks,
                              &options, &report) == GYRE_SUCCESS,
                  "%s %s, %u ranks%s: %s", algorithm->name, gyre_collectives[shape->coll].name,
                  shape->n_ranks, in_place == 1 ? ", in place" : "", report.reason);
        CHECK(report.same_bits && (report.min_depth == 1 || is_ring(algorithm) ||
                                   (shape->most_range > 0 && report.min_depth <= 2)));
    }
    if (programs != NULL)
        free_programs(programs, shape->n_ranks);
}

/* The n-th number of ranks, the largest ones first, because their proofs take longest. 0 = no more.
 * With TEST_LONG a proof of 4096 ranks needs 2.5 GB and half a minute. */
static unsigned ranks_at(int n)
{
    static const uint16_t of_long[] = {4096, 1024, 1000}, more[] = {243, 128, 100, 96};
    const bool is_long = getenv("TEST_LONG") != NULL, is_short = getenv("TEST_FEW") != NULL;
    const int n_more = is_long ? 3 : is_short ? 0 : 4, most = is_long ? 256 : is_short ? 24 : 64;
    if (n < n_more)
        return (is_long ? of_long : more)[n];
    return n - n_more < most ? (unsigned)(most - (n - n_more)) : 0;
}

/* One of the threads, which take the proofs in turns. */
static void *prove_some(void *next)
{
    unsigned n_algorithms = 0;
    while (gyre_library[n_algorithms] != NULL)
        n_algorithms++;
    while (true) {
        const unsigned at = __atomic_fetch_add((unsigned *)next, 1, __ATOMIC_RELAXED);
        const unsigned a = at / GYRE_N_COLLECTIVES % n_algorithms;
        struct gyre_shape shape = {.coll = (enum gyre_collective)(at % GYRE_N_COLLECTIVES)};
        shape.n_ranks = (uint16_t)ranks_at((int)(at / GYRE_N_COLLECTIVES / n_algorithms));
        if (shape.n_ranks == 0)
            return NULL;
        shape.root = (uint16_t)(gyre_collectives[shape.coll].has_root ? shape.n_ranks / 3 : 0);
        if (shape.n_ranks <= 1024 ||
            (shape.coll != GYRE_COLL_ALL_TO_ALL && gyre_library[a] != &gyre_algorithm_nccl_nvls &&
             gyre_library[a] != &gyre_algorithm_bucket &&
             !is_ring(gyre_library[a]))) /* else it takes minutes */
            prove(gyre_library[a], &shape);
    }
}

TEST_CASE("the library is proved for every number of ranks")
{
    const long n_gbytes = sysconf(_SC_PHYS_PAGES) / ((1L << 30) / sysconf(_SC_PAGESIZE));
    long n_threads = getenv("TEST_LONG") != NULL ? sysconf(_SC_NPROCESSORS_ONLN) : 1;
    unsigned next = 0;
    if (n_threads > n_gbytes / 4)
        n_threads = n_gbytes / 4;
    n_threads = n_threads < 1 ? 1 : n_threads > 64 ? 64 : n_threads;
    test_run_threads(prove_some, &next, (int)n_threads, 0);
}

TEST_CASE("algorithms of tori are proved in every dimension and direction")
{
    static const struct {
        const struct gyre_algorithm *algorithm;
        uint16_t sides[GYRE_MAX_SIDES], n_ranks, n_variants;
    } tori[] = {
        {&gyre_algorithm_swing, {8, 8}, 64, 4},    {&gyre_algorithm_swing, {6, 10}, 60, 4},
        {&gyre_algorithm_swing, {2, 4, 6}, 48, 6}, {&gyre_algorithm_bine, {4, 4, 4}, 64, 6},
        {&gyre_algorithm_bine, {16, 2}, 32, 4},    {&gyre_algorithm_pairs, {4, 8}, 32, 4},
        {&gyre_algorithm_bucket, {3, 5}, 15, 4},   {&gyre_algorithm_bucket, {4, 2, 3}, 24, 6},
        {&gyre_algorithm_rings, {3, 3}, 9, 4},     {&gyre_algorithm_rings, {8, 8}, 64, 4},
        {&gyre_algorithm_factors, {5, 6}, 30, 1},  {&gyre_algorithm_bucket, {7}, 7, 2},
    };
    for (size_t i = 0; i < sizeof(tori) / sizeof(tori[0]); i++)
        for (int c = 0; c < GYRE_N_COLLECTIVES; c++) {
            struct gyre_algorithm algorithm = *tori[i].algorithm;
            struct gyre_shape shape = {.coll = (enum gyre_collective)c, .n_ranks = tori[i].n_ranks};
            memcpy(algorithm.sides, tori[i].sides, sizeof(tori[i].sides));
            if (!gyre_algorithm_has(&algorithm, shape.coll))
                continue;
            CHECK(gyre_algorithm_variants(&algorithm, &shape) == tori[i].n_variants);
            for (; shape.variant < tori[i].n_variants; shape.variant++)
                prove(&algorithm, &shape);
            shape.n_ranks--;
            shape.variant = 0;
            CHECK(gyre_algorithm_obstacle(&algorithm, &shape, NULL) != NULL);
        }
}

/* In a torus of k x k all variants of rings together use each link once in each direction. */
TEST_CASE("the four rings of a square torus share no link")
{
    for (int k = 3; k <= 9; k++) {
        struct gyre_algorithm rings = gyre_algorithm_rings;
        struct gyre_shape shape = {.coll = GYRE_COLL_ALL_GATHER, .n_ranks = (uint16_t)(k * k)};
        rings.sides[0] = rings.sides[1] = (uint16_t)k;
        for (int rank = 0; rank < k * k; rank++) {
            int n_to[4] = {0}; /* neighbours in x and y */
            for (shape.variant = 0; shape.variant < 4; shape.variant++) {
                struct gyre_program *program = NULL;
                CHECK_OK(gyre_algorithm_emit(&rings, &shape, rank, &program));
                for (uint32_t i = 0; program != NULL && i < program->n_connections; i++) {
                    const int dx = (program->connections[i].peer / k - rank / k + k) % k;
                    const int dy = (program->connections[i].peer % k - rank % k + k) % k;
                    if (program->connections[i].is_send == 0)
                        continue;
                    CHECK((dx == 0) != (dy == 0));
                    n_to[dx == 1 ? 0 : dx == k - 1 ? 1 : dy == 1 ? 2 : 3]++;
                    CHECK(dx <= 1 || dx == k - 1);
                    CHECK(dy <= 1 || dy == k - 1);
                }
                gyre_program_free(program);
            }
            CHECK(n_to[0] == 1 && n_to[1] == 1 && n_to[2] == 1 && n_to[3] == 1);
        }
    }
}

/* Every range that a slot may have room for; also those of no power of two. */
static void prove_cuts(const struct gyre_algorithm *algorithm, struct gyre_shape *shape)
{
    for (int c = 0; c < GYRE_N_COLLECTIVES; c++) {
        shape->coll = (enum gyre_collective)c;
        if (!ability_of(algorithm, c, shape->n_ranks).ranges || !can_do(algorithm, shape))
            continue;
        for (int most = 1; most<shape->n_ranks; most += most> 6 ? 5 : 1) {
            shape->most_range = (uint16_t)most;
            prove(algorithm, shape);
        }
    }
}

TEST_CASE("cut ranges are proved, whatever fits a slot")
{
    for (int n = 2; n <= (getenv("TEST_FEW") != NULL ? 17 : 36); n++) {
        struct gyre_shape shape = {.n_ranks = (uint16_t)n};
        for (int a = 0; gyre_algorithms[a] != NULL; a++)
            prove_cuts(gyre_algorithms[a], &shape);
        for (int a = 0; gyre_library[a] != NULL; a++)
            prove_cuts(gyre_library[a], &shape);
    }
}

static void count_sent(const struct gyre_algorithm *algorithm, const struct gyre_shape *shape,
                       int rank, unsigned *messages_out, unsigned *blocks_out)
{
    const unsigned n_blocks = shape->coll == GYRE_COLL_ALL_REDUCE ? shape->n_ranks : 1;
    struct gyre_program *program = NULL;
    *messages_out = *blocks_out = 0;
    CHECK_OK(gyre_algorithm_emit(algorithm, shape, rank, &program));
    for (uint32_t s = 0; program != NULL && s < program->n_steps; s++)
        for (unsigned i = 0; i < program->steps[s].n_outs; i++)
            if (program->steps[s].outs[i].kind == GYRE_OPERAND_CONNECTION) {
                ++*messages_out;
                *blocks_out += program->steps[s].n_chunks;
            }
    if (program != NULL && program->n_chunks > n_blocks) /* slices */
        *blocks_out /= program->n_chunks / n_blocks;
    gyre_program_free(program);
}

TEST_CASE("no rank sends more than n - 1 blocks each way")
{
    for (int a = 0; gyre_library[a] != NULL; a++)
        for (int n = 2; n <= 64; n++)
            for (int c = 0; c < GYRE_N_COLLECTIVES; c++) {
                const struct gyre_shape shape = {.coll = (enum gyre_collective)c,
                                                 .n_ranks = (uint16_t)n};
                const unsigned n_ways = c == GYRE_COLL_ALL_REDUCE ? 2 : 1;
                unsigned n_messages, n_blocks;
                if (c == GYRE_COLL_ALL_TO_ALL || !can_do(gyre_library[a], &shape) ||
                    gyre_library[a]->n_chunks == NULL || /* it has no blocks */
                    gyre_library[a] == &gyre_algorithm_nccl_tree)
                    continue;
                count_sent(gyre_library[a], &shape, n / 3, &n_messages, &n_blocks);
                CHECK_MSG(n_blocks == n_ways * (unsigned)(n - 1), "%s %s, %d ranks: %u blocks",
                          gyre_library[a]->name, gyre_collectives[c].name, n, n_blocks);
            }
}

/* Rounds of circulant: log2(n), rounded up; of bruck to base x: about (x - 1) log_x(n); messages of
 * factors: the sum of the factors less 1. In 64 ranks bruck4 has 9 rounds and moves 144 blocks; by
 * hand for 27 and 9 ranks to base 3. */
TEST_CASE("rounds and blocks are those of the papers")
{
    static const struct {
        const struct gyre_algorithm *algorithm;
        enum gyre_collective coll;
        uint16_t n_ranks;
        unsigned n_messages, n_blocks;
    } expected[] = {
        {&gyre_algorithm_bruck4, GYRE_COLL_ALL_TO_ALL, 64, 9, 144},
        {&gyre_algorithm_bruck4, GYRE_COLL_ALL_TO_ALL, 16, 6, 24},
        {&gyre_algorithm_bruck3, GYRE_COLL_ALL_TO_ALL, 9, 4, 12},
        {&gyre_algorithm_bruck3, GYRE_COLL_ALL_TO_ALL, 27, 6, 54},
        {&gyre_algorithm_bruck, GYRE_COLL_ALL_TO_ALL, 64, 6, 192},
        {&gyre_algorithm_circulant, GYRE_COLL_REDUCE_SCATTER, 33, 6, 32},
        {&gyre_algorithm_circulant, GYRE_COLL_ALL_REDUCE, 24, 10, 46},
        {&gyre_algorithm_pairs, GYRE_COLL_REDUCE_SCATTER, 64, 6, 63},
        {&gyre_algorithm_rings, GYRE_COLL_ALL_REDUCE, 9, 16, 16},
        {&gyre_algorithm_factors, GYRE_COLL_REDUCE_SCATTER, 60, 8, 59},
        {&gyre_algorithm_factors, GYRE_COLL_REDUCE_SCATTER, 7, 6, 6},
        /* 24 = 4 * 3 * 2, and 48 = 8 * 6; whole vectors */
        {&gyre_algorithm_multiplying4, GYRE_COLL_ALL_REDUCE, 24, 6, 6},
        {&gyre_algorithm_multiplying8, GYRE_COLL_ALL_REDUCE, 48, 12, 12},
        {&gyre_algorithm_multiplying4, GYRE_COLL_ALL_REDUCE, 7, 6, 6},
        /* rank 1 of 16 gets the vector in the last step but has no one to send it to */
        {&gyre_algorithm_bine_tree, GYRE_COLL_REDUCE, 16, 1, 1},
        /* one range for each message of swing */
        {&gyre_algorithm_swing, GYRE_COLL_REDUCE_SCATTER, 64, 6, 63},
        {&gyre_algorithm_swing, GYRE_COLL_ALL_GATHER, 48, 6, 47},
        {&gyre_algorithm_bine, GYRE_COLL_REDUCE_SCATTER, 64, 6, 63},
        {&gyre_algorithm_bine, GYRE_COLL_REDUCE_SCATTER, 40, 6, 39},
    };
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        const struct gyre_shape shape = {.coll = expected[i].coll, .n_ranks = expected[i].n_ranks};
        unsigned n_messages, n_blocks;
        count_sent(expected[i].algorithm, &shape, 1, &n_messages, &n_blocks);
        CHECK_MSG(n_messages == expected[i].n_messages && n_blocks == expected[i].n_blocks,
                  "%s %s, %u ranks: %u messages of %u blocks", expected[i].algorithm->name,
                  gyre_collectives[shape.coll].name, shape.n_ranks, n_messages, n_blocks);
    }
}

/* r + 1, r - 1, r + 3, r - 5 for even ranks, and mirrored for odd ones. */
TEST_CASE("the partners of swing are at its distances")
{
    static const int distances[] = {1, -1, 3, -5};
    const struct gyre_shape shape = {.coll = GYRE_COLL_REDUCE_SCATTER, .n_ranks = 16};
    for (int rank = 0; rank < 16; rank++) {
        struct gyre_program *program = NULL;
        int n_found = 0;
        CHECK_OK(gyre_algorithm_emit(&gyre_algorithm_swing, &shape, rank, &program));
        for (uint32_t s = 0; program != NULL && s < program->n_steps && n_found < 4; s++) {
            const struct gyre_operand out = program->steps[s].outs[0];
            if (out.kind != GYRE_OPERAND_CONNECTION)
                continue;
            const int distance = distances[n_found++] * (rank % 2 == 0 ? 1 : -1);
            CHECK(program->connections[out.index].peer == (rank + distance + 16) % 16);
        }
        CHECK(n_found == 4);
        gyre_program_free(program);
    }
}

TEST_CASE("what the library has not is refused with the reason")
{
    const struct gyre_shape odd = {.coll = GYRE_COLL_ALL_REDUCE, .n_ranks = 5};
    struct gyre_program *program = NULL;
    CHECK_BAD_ARGUMENT(gyre_algorithm_emit(&gyre_algorithm_swing, &odd, 0, &program),
                       "it needs an even number of ranks");
    CHECK(gyre_library_find("SWING") == &gyre_algorithm_swing);
    CHECK(gyre_library_find("ring") == NULL);
}

TEST_CASE("NCCL's all-to-all is proved out of place, for every number of ranks")
{
    for (int n = 2; n <= 24; n++) {
        const struct gyre_shape shape = {.coll = GYRE_COLL_ALL_TO_ALL, .n_ranks = (uint16_t)n};
        const struct gyre_verify_options options = {.in_place = false};
        struct gyre_program **programs = emit_all(&gyre_algorithm_nccl_p2p, &shape);
        struct gyre_verify_report report;
        CHECK(programs != NULL);
        if (programs == NULL)
            continue;
        CHECK_MSG(gyre_verify((const struct gyre_program *const *)programs, n, &options, &report) ==
                      GYRE_SUCCESS,
                  "%d ranks: %s", n, report.reason);
        free_programs(programs, n);
    }
}
