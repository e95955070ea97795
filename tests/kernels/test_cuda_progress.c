/* SPDX-License-Identifier: Apache-2.0
 *
 * What the host makes of the words that kernels leave for it. No GPU: launches are played by hand.
 */
#include "kernels/cuda/host/progress.h"
#include "tests/support/check.h"

static struct gyre_cuda_board board;

static void begin(uint64_t n_completed, const struct gyre_cuda_common *launch)
{
    board.begun = gyre_cuda_begun_word(launch, n_completed);
}

static void check(uint64_t n_completed, uint64_t n_begun)
{
    const struct gyre_pulse pulse = gyre_cuda_board_read(&board);
    CHECK_MSG(pulse.completed == n_completed && pulse.progress == n_begun,
              "%d completed, %d begun, not %d and %d", (int)pulse.completed, (int)pulse.progress,
              (int)n_completed, (int)n_begun);
}

static void a_launch_is_over_when_all_that_report_have(void)
{
    const struct gyre_cuda_common wide = {.n_reports = 3, .n_works = 1, .ends_works = 1};
    const struct gyre_cuda_common narrow = {.n_reports = 1, .n_works = 2, .ends_works = 1};
    memset(&board, 0, sizeof(board));
    check(0, 0);
    begin(0, &wide);
    check(0, 1);
    board.ended[2] = board.ended[0] = 1; /* in any order */
    check(0, 1);
    board.ended[1] = 1;
    check(1, 1);
    begin(1, &narrow); /* blocks that take no part have reported less */
    check(1, 3);
    board.ended[0] = 3;
    check(3, 3);
    begin(3, &wide);
    board.ended[0] = board.ended[1] = 4;
    check(3, 4);
    board.ended[2] = 4;
    check(4, 4);
}

static void works_that_go_on_after_a_launch_are_not_over_with_it(void)
{
    const struct gyre_cuda_common first = {.n_reports = 2, .n_works = 1, .ends_works = 0};
    const struct gyre_cuda_common last = {.n_reports = 1, .n_works = 1, .ends_works = 1};
    memset(&board, 0, sizeof(board));
    begin(0, &first);
    check(0, 1);
    board.ended[0] = board.ended[1] = 0; /* what its blocks report */
    check(0, 1);
    begin(0, &last);
    check(0, 1);
    board.ended[0] = 1;
    check(1, 1);
}

static void the_largest_launch_and_a_long_life_fit_the_word(void)
{
    const uint64_t n_before = 1ULL << 46;
    const struct gyre_cuda_common launch = {
        .n_reports = GYRE_CUDA_MAX_BLOCKS, .n_works = GYRE_CUDA_MAX_WORKS, .ends_works = 1};
    memset(&board, 0, sizeof(board));
    begin(n_before, &launch);
    for (int i = 0; i < GYRE_CUDA_MAX_BLOCKS; i++) {
        check(n_before, n_before + GYRE_CUDA_MAX_WORKS);
        board.ended[i] = n_before + GYRE_CUDA_MAX_WORKS;
    }
    check(n_before + GYRE_CUDA_MAX_WORKS, n_before + GYRE_CUDA_MAX_WORKS);
    board.mismatch = 5;
    CHECK(gyre_cuda_board_read(&board).mismatch == 5);
}

static const struct test_case cases[] = {
    {"a launch is over when all that report have", a_launch_is_over_when_all_that_report_have},
    {"works that go on after a launch are not over with it",
     works_that_go_on_after_a_launch_are_not_over_with_it},
    {"the largest launch and a long life fit the word",
     the_largest_launch_and_a_long_life_fit_the_word},
};

TEST_MAIN(cases)
