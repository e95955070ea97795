/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/host/arena.h"
#include "tests/support/check.h"

#define UNIT    ((size_t)GYRE_CUDA_ARENA_ALIGN_BYTES)
#define N_UNITS 8

static unsigned char *const base = (unsigned char *)(uintptr_t)0x7f0000000000;
static struct gyre_cuda_arena arena;
static struct gyre_cuda_arena_block *blocks[N_UNITS];

static void open_arena(void)
{
    memset(blocks, 0, sizeof(blocks));
    gyre_cuda_arena_open(&arena, base, N_UNITS * UNIT + 1);
}

/* A unit in each place, which works 1, 2, ... have read last. */
static void fill(void)
{
    open_arena();
    for (unsigned i = 0; i < N_UNITS; i++) {
        CHECK_OK(gyre_cuda_arena_take(&arena, UNIT, 0, &blocks[i], &blocks[i]));
        blocks[i]->last_work = i + 1;
    }
}

TEST_CASE("blocks are aligned and share no byte")
{
    static const size_t sizes[] = {1, UNIT, UNIT + 1, 0, 2 * UNIT};
    const unsigned char *end = base;
    open_arena();
    for (unsigned i = 0; i < 5; i++) {
        CHECK_OK(gyre_cuda_arena_take(&arena, sizes[i], 0, &blocks[i], &blocks[i]));
        CHECK(blocks[i]->address == end && blocks[i]->n_bytes >= sizes[i]);
        CHECK(blocks[i]->n_bytes % UNIT == 0);
        end = blocks[i]->address + blocks[i]->n_bytes;
    }
    CHECK(end <= base + arena.n_bytes && arena.n_bytes == N_UNITS * UNIT);
    gyre_cuda_arena_close(&arena);
    CHECK(arena.first == NULL);
}

TEST_CASE("what was used longest ago makes room")
{
    struct gyre_cuda_arena_block *more = NULL;
    fill();
    unsigned char *second = blocks[1]->address;
    blocks[0]->last_work = N_UNITS + 1; /* used again */
    CHECK_OK(gyre_cuda_arena_take(&arena, UNIT, N_UNITS + 1, &more, &more));
    CHECK(more->address == second && blocks[1] == NULL && blocks[0] != NULL && blocks[2] != NULL);
    CHECK(arena.n_evicted == 1);
    gyre_cuda_arena_close(&arena);
}

TEST_CASE("programs of works that run keep their memory")
{
    struct gyre_cuda_arena_block *more = NULL;
    fill();
    CHECK_FAILS(gyre_cuda_arena_take(&arena, UNIT, 0, &more, &more), GYRE_ERROR_OUT_OF_MEMORY,
                "in use by 8 programs");
    CHECK(more == NULL);
    CHECK_OK(gyre_cuda_arena_take(&arena, 2 * UNIT, 2, &more, &more)); /* works 1 and 2 are over */
    CHECK(more->address == base && blocks[0] == NULL && blocks[1] == NULL && blocks[2] != NULL);
    gyre_cuda_arena_close(&arena);
}

TEST_CASE("captured programs are never evicted")
{
    struct gyre_cuda_arena_block *more = NULL;
    fill();
    for (unsigned i = 0; i < N_UNITS; i++)
        blocks[i]->is_captured = i != 5;
    CHECK_OK(gyre_cuda_arena_take(&arena, UNIT, 100, &more, &more));
    CHECK(blocks[5] == NULL && more->address == base + 5 * UNIT);
    more->is_captured = true;
    CHECK_FAILS(gyre_cuda_arena_take(&arena, UNIT, 100, &more, &more), GYRE_ERROR_OUT_OF_MEMORY,
                "8 of them captured");
    gyre_cuda_arena_give_back(more, 0);
    CHECK_FAILS(gyre_cuda_arena_take(&arena, UNIT, 100, &more, &more), GYRE_ERROR_OUT_OF_MEMORY,
                "8 of them captured");
    gyre_cuda_arena_close(&arena);
}

TEST_CASE("what is given back is free once its works are over")
{
    struct gyre_cuda_arena_block *more = NULL;
    fill();
    for (unsigned i = 0; i < N_UNITS; i++)
        blocks[i]->holder = NULL; /* never evicted */
    gyre_cuda_arena_give_back(blocks[3], 50);
    gyre_cuda_arena_give_back(NULL, 50);
    CHECK_FAILS(gyre_cuda_arena_take(&arena, UNIT, 49, &more, &more), GYRE_ERROR_OUT_OF_MEMORY,
                "programs and tables");
    CHECK_OK(gyre_cuda_arena_take(&arena, UNIT, 50, &more, &more));
    CHECK(more->address == base + 3 * UNIT);
    gyre_cuda_arena_close(&arena);
}

TEST_CASE("what can never fit evicts nothing")
{
    struct gyre_cuda_arena_block *more = NULL;
    fill();
    CHECK_FAILS(gyre_cuda_arena_take(&arena, (N_UNITS + 1) * UNIT, 100, &more, &more),
                GYRE_ERROR_OUT_OF_MEMORY, "2304 bytes");
    for (unsigned i = 0; i < N_UNITS; i++)
        CHECK(blocks[i] != NULL);
    gyre_cuda_arena_close(&arena);
}

TEST_CASE("random programs never share memory")
{
    enum { HOLDERS = 24, ROUNDS = 20000 };
    static struct gyre_cuda_arena_block *holders[HOLDERS];
    uint64_t random = 1, n_launched = 0, n_refused = 0;
    memset(holders, 0, sizeof(holders));
    gyre_cuda_arena_open(&arena, base, 40 * UNIT);
    for (int round = 0; round < ROUNDS; round++) {
        random = random * 6364136223846793005ULL + 1442695040888963407ULL;
        const unsigned i = (unsigned)(random >> 33) % HOLDERS;
        const uint64_t n_completed = n_launched > 12 ? n_launched - 12 : 0;
        if (holders[i] == NULL &&
            gyre_cuda_arena_take(&arena, (1 + (random >> 40) % 5) * UNIT, n_completed, &holders[i],
                                 &holders[i]) != GYRE_SUCCESS) {
            n_refused++;
            continue;
        }
        holders[i]->last_work = ++n_launched;
        if ((random >> 50) % 8 == 0) {
            gyre_cuda_arena_give_back(holders[i], n_launched);
            holders[i] = NULL;
        }
        const unsigned char *end = base;
        for (const struct gyre_cuda_arena_block *at = arena.first; at != NULL; at = at->next) {
            CHECK(at->address >= end);
            end = at->address + at->n_bytes;
            CHECK(at->is_given_back || *at->holder == at);
        }
        CHECK(end <= base + arena.n_bytes);
    }
    CHECK_MSG(arena.n_evicted > 100 && n_refused < ROUNDS / 2, "%d evicted, %d refused",
              (int)arena.n_evicted, (int)n_refused);
    gyre_cuda_arena_close(&arena);
}
