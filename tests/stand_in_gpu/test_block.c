/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/sync.h"
#include "tests/stand_in_gpu/block.h"
#include "tests/stand_in_gpu/launch.h"
#include "tests/support/check.h"

#include <signal.h>

enum { THREADS = 96, ROUNDS = 50 };

static struct {
    uint32_t n_here;
    uint32_t n_wrong;
    uint32_t values[THREADS];
    uint64_t word;
} shared;

typedef void (*kernel)(const void *function, const void *args);

static void run(kernel call)
{
    const struct stand_in_launch launch = {
        .call = call, .n_blocks = 1, .n_rows = 1, .n_threads = THREADS};
    memset(&shared, 0, sizeof(shared));
    stand_in_run_block(&launch, 0);
}

static uint32_t own_index(void)
{
    return stand_in_place.thread.x;
}

static void expect(bool is_true)
{
    shared.n_wrong += !is_true;
}

static void write_then_read(const void *function, const void *args)
{
    (void)function, (void)args;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        shared.values[own_index()] = round;
        (void)stand_in_barrier(0, 0, false);
        expect(shared.values[(own_index() + 33) % THREADS] == round);
        (void)stand_in_barrier(0, 0, false);
    }
}

TEST_CASE("a barrier holds all threads")
{
    run(write_then_read);
    CHECK(shared.n_wrong == 0);
}

static void vote(const void *function, const void *args)
{
    (void)function, (void)args;
    expect(stand_in_barrier(0, 0, own_index() % 3 == 0) == THREADS / 3);
    if (own_index() < 5)
        return;
    expect(stand_in_barrier(0, 0, true) == THREADS - 5);
}

TEST_CASE("a barrier counts votes of threads that have not ended")
{
    run(vote);
    CHECK(shared.n_wrong == 0);
}

/* The first warp waits for the others. */
static void produce(const void *function, const void *args)
{
    (void)function, (void)args;
    if (own_index() >= STAND_IN_WARP_LANES) {
        shared.values[own_index()] = 1;
        stand_in_barrier_arrive(3, THREADS);
        return;
    }
    (void)stand_in_barrier(3, THREADS, false);
    for (uint32_t i = STAND_IN_WARP_LANES; i < THREADS; i++)
        expect(shared.values[i] == 1);
}

TEST_CASE("threads arrive without waiting")
{
    run(produce);
    CHECK(shared.n_wrong == 0);
}

static void shuffle(const void *function, const void *args)
{
    const uint32_t warp = own_index() / STAND_IN_WARP_LANES;
    (void)function, (void)args;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const uint64_t *values =
            stand_in_warp_shuffle(own_index() * 1000U + round, __FILE__, __LINE__);
        for (uint32_t lane = 0; lane < STAND_IN_WARP_LANES; lane++)
            expect(values[lane] == (warp * STAND_IN_WARP_LANES + lane) * 1000U + round);
    }
}

TEST_CASE("lanes read the values of all lanes")
{
    run(shuffle);
    CHECK(shared.n_wrong == 0);
}

/* The last lane's store comes last. */
static void store_together(const void *function, const void *args)
{
    (void)function, (void)args;
    if (own_index() >= STAND_IN_WARP_LANES)
        return;
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        (void)stand_in_warp_shuffle(0, __FILE__, __LINE__);
        expect(shared.n_here == (round - 1) * STAND_IN_WARP_LANES + own_index());
        shared.n_here++;
    }
}

TEST_CASE("lanes go on in ascending order")
{
    run(store_together);
    CHECK(shared.n_wrong == 0 && shared.n_here == ROUNDS * STAND_IN_WARP_LANES);
}

static void poll(const void *function, const void *args)
{
    (void)function, (void)args;
    if (own_index() == THREADS - 1)
        gyre_store_release_u64(&shared.word, 7);
    while (own_index() == 0 && gyre_load_acquire_u64(&shared.word) == 0)
        stand_in_polled(&shared.word);
}

TEST_CASE("a thread that polls lets others run")
{
    run(poll);
    CHECK(shared.word == 7);
}

static bool aborts(kernel call)
{
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        (void)close(STDERR_FILENO);
        run(call);
        _exit(0);
    }
    return waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
           WTERMSIG(status) == SIGABRT;
}

static void meet_in_two_lines(const void *function, const void *args)
{
    (void)function, (void)args;
    (void)stand_in_warp_shuffle(0, __FILE__, own_index() % 2 == 0 ? 1 : 2);
}

static void wait_at_two_barriers(const void *function, const void *args)
{
    (void)function, (void)args;
    (void)stand_in_barrier(own_index() % 2, THREADS, false);
}

static void disagree_on_a_barrier(const void *function, const void *args)
{
    (void)function, (void)args;
    (void)stand_in_barrier(1, own_index() == 0 ? THREADS : THREADS / 2, false);
}

TEST_CASE("mistakes end the process")
{
    CHECK(aborts(meet_in_two_lines));
    CHECK(aborts(wait_at_two_barriers));
    CHECK(aborts(disagree_on_a_barrier));
}
