/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/host/position.h"
#include "tests/support/check.h"

static struct gyre_cuda_mailbox mailbox;

static void begin(uint64_t n_completed, const struct gyre_cuda_common *launch)
{
    mailbox.begun = gyre_cuda_begun_word(launch, n_completed);
}

static void check(uint64_t n_completed, uint64_t n_begun)
{
    const struct gyre_progress progress = gyre_cuda_mailbox_read(&mailbox);
    CHECK_MSG(progress.completed == n_completed && progress.activity == n_begun,
              "%d completed, %d begun, not %d and %d", (int)progress.completed,
              (int)progress.activity, (int)n_completed, (int)n_begun);
}

TEST_CASE("a launch is over when all that report have")
{
    const struct gyre_cuda_common wide = {.n_reports = 3, .n_works = 1, .ends_works = 1};
    const struct gyre_cuda_common narrow = {.n_reports = 1, .n_works = 2, .ends_works = 1};
    memset(&mailbox, 0, sizeof(mailbox));
    check(0, 0);
    begin(0, &wide);
    check(0, 1);
    mailbox.ended[2] = mailbox.ended[0] = 1; /* in any order */
    check(0, 1);
    mailbox.ended[1] = 1;
    check(1, 1);
    begin(1, &narrow); /* blocks that take no part have reported less */
    check(1, 3);
    mailbox.ended[0] = 3;
    check(3, 3);
    begin(3, &wide);
    mailbox.ended[0] = mailbox.ended[1] = 4;
    check(3, 4);
    mailbox.ended[2] = 4;
    check(4, 4);
}

TEST_CASE("works that go on after a launch are not over with it")
{
    const struct gyre_cuda_common first = {.n_reports = 2, .n_works = 1, .ends_works = 0};
    const struct gyre_cuda_common last = {.n_reports = 1, .n_works = 1, .ends_works = 1};
    memset(&mailbox, 0, sizeof(mailbox));
    begin(0, &first);
    check(0, 1);
    mailbox.ended[0] = mailbox.ended[1] = 0; /* what its blocks report */
    check(0, 1);
    begin(0, &last);
    check(0, 1);
    mailbox.ended[0] = 1;
    check(1, 1);
}

TEST_CASE("the largest launch and a long life fit the word")
{
    const uint64_t n_before = 1ULL << 46;
    const struct gyre_cuda_common launch = {
        .n_reports = GYRE_CUDA_MAX_BLOCKS, .n_works = GYRE_CUDA_MAX_WORKS, .ends_works = 1};
    memset(&mailbox, 0, sizeof(mailbox));
    begin(n_before, &launch);
    for (int i = 0; i < GYRE_CUDA_MAX_BLOCKS; i++) {
        check(n_before, n_before + GYRE_CUDA_MAX_WORKS);
        mailbox.ended[i] = n_before + GYRE_CUDA_MAX_WORKS;
    }
    check(n_before + GYRE_CUDA_MAX_WORKS, n_before + GYRE_CUDA_MAX_WORKS);
    mailbox.mismatch = 5;
    CHECK(gyre_cuda_mailbox_read(&mailbox).mismatch == 5);
    mailbox.late_signal = 6;
    mailbox.lost_signal = 7;
    CHECK(gyre_cuda_mailbox_read(&mailbox).late_signal == 6);
    CHECK(gyre_cuda_mailbox_read(&mailbox).lost_signal == 7);
}
