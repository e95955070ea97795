/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/doctor/trial.h"
#include "tests/support/check.h"

#include <math.h>
#include <signal.h>

TEST_CASE("every pair of devices is measured and verified")
{
    struct bench_pairs pairs;
    CHECK_OK(bench_pairs_run(bench_pairs_measure, GYRE_DEVICE_HOST, 60000, &pairs));
    CHECK_MSG(pairs.n == 3, "%d devices", pairs.n);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
            const bool is_measured = pairs.gbytes_per_s[i][j] > 0 && pairs.latency_us[i][j] > 0;
            CHECK_MSG(is_measured == (i != j), "%d to %d: %g GB/s, %g us", i, j,
                      pairs.gbytes_per_s[i][j], pairs.latency_us[i][j]);
        }
}

static void announce(int fd)
{
    const struct bench_pair_event count = {.kind = BENCH_PAIR_COUNT, .from = 2};
    const struct bench_pair_event start = {.kind = BENCH_PAIR_START, .from = 1, .to = 0};
    bench_child_tell(fd, &count, sizeof(count));
    bench_child_tell(fd, &start, sizeof(start));
}

static void hang(int fd, const void *kind)
{
    (void)kind;
    announce(fd);
    for (;;)
        pause();
}

static void die(int fd, const void *kind)
{
    (void)kind;
    announce(fd);
    raise(SIGKILL);
}

static void fail(int fd, const void *kind)
{
    struct bench_pair_event event = {.kind = BENCH_PAIR_FAILED, .from = 1, .to = 0};
    (void)kind;
    announce(fd);
    snprintf(event.cause, sizeof(event.cause), "the copy damages data");
    bench_child_tell(fd, &event, sizeof(event));
}

/* No device has such numbers. */
static void lie(int fd, const void *kind)
{
    struct bench_pair_event event = {.kind = BENCH_PAIR_DONE, .from = 1000, .to = -7};
    (void)kind;
    announce(fd);
    bench_child_tell(fd, &event, sizeof(event));
    event.kind = BENCH_PAIR_END;
    bench_child_tell(fd, &event, sizeof(event));
}

TEST_CASE("a pair that hangs is named, and its process is ended")
{
    struct bench_pairs pairs;
    CHECK_FAILS(bench_pairs_run(hang, 0, 200, &pairs), GYRE_ERROR_TIMEOUT, "nothing for");
    CHECK_MSG(pairs.n == 2 && pairs.from == 1 && pairs.to == 0, "%d to %d", pairs.from, pairs.to);
    CHECK(isnan(pairs.gbytes_per_s[1][0]));
    CHECK_MSG(waitpid(-1, NULL, WNOHANG) == -1, "the child is still there");
}

TEST_CASE("a pair that ends the process is named")
{
    struct bench_pairs pairs;
    CHECK_FAILS(bench_pairs_run(die, 0, 60000, &pairs), GYRE_ERROR_REMOTE, "has ended");
    CHECK_MSG(pairs.from == 1 && pairs.to == 0, "%d to %d", pairs.from, pairs.to);
}

TEST_CASE("a pair that fails is named with its cause")
{
    struct bench_pairs pairs;
    CHECK_FAILS(bench_pairs_run(fail, 0, 60000, &pairs), GYRE_ERROR_DEVICE, "damages data");
    CHECK_MSG(pairs.from == 1 && pairs.to == 0, "%d to %d", pairs.from, pairs.to);
}

TEST_CASE("numbers of no device are left out")
{
    struct bench_pairs pairs;
    CHECK_OK(bench_pairs_run(lie, 0, 60000, &pairs));
    for (int i = 0; i < BENCH_MAX_PAIR_DEVICES; i++)
        for (int j = 0; j < BENCH_MAX_PAIR_DEVICES; j++)
            CHECK(isnan(pairs.gbytes_per_s[i][j]));
}
