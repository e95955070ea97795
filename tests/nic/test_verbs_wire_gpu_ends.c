/* SPDX-License-Identifier: Apache-2.0
 *
 * GPU memory over the RDMA device between processes: copies that fail, peers and
 * regions that go away, and when copies begin. The NIC does copies in batches.
 */
#include "core/foundation/base/util.h"
#include "tests/nic/verbs_wire/protocol.h"
#include "tests/nic/wire_places.h"
#include "tests/support/check.h"

#include <signal.h>
#include <unistd.h>

/* ---- failures ------------------------------------------------------------------------------- */

static bool is_failing(void)
{
    int device = 0;
    CHECK(cuInit(0) == 0 && cuDeviceGet(&device, 0) == 0);
    return device == FAKE_CUDA_DEVICE;
}

#define GOOD(source_, target_, at)                                                          \
    (struct move)                                                                           \
    {                                                                                       \
        .source = (source_), .target = (target_), .from = (at), .to = (at), .n_bytes = 4096 \
    }

/* Three writes, of which the second is refused before its copy starts. */
static void write_refused(struct rig_end *end, const struct move *refused,
                          enum ibv_wc_status status)
{
    struct places places;
    const struct move moves[] = {GOOD(GPU_A, GPU_A, 0), *refused, GOOD(HOST, GPU_A, 8192)};
    places_open(end, &places, 0);
    places_post(end, &places, 0, moves, 3);
    rig_expect(end, IBV_WC_SUCCESS);
    rig_expect(end, status);
    rig_expect(end, IBV_WC_WR_FLUSH_ERR);
    rig_barrier(end);
    places_close(end, &places);
}

static void write_with_wrong_key(struct rig_end *end)
{
    struct move refused = GOOD(GPU_A, GPU_A, 4096);
    refused.wrong_key = 1u << WIRE_INDEX_BITS;
    write_refused(end, &refused, IBV_WC_REM_ACCESS_ERR);
}

static void write_that_does_not_start(struct rig_end *end)
{
    struct move refused = GOOD(GPU_A, GPU_A, 4096);
    refused.from = START_AT;
    refused.n_bytes = 8;
    write_refused(end, &refused, IBV_WC_LOC_QP_OP_ERR);
}

static void see_first_write(struct rig_end *end)
{
    struct places places;
    places_open(end, &places, 0);
    rig_barrier(end);
    places_expect(&places, GPU_A, 0, places_pattern[GPU_A], 4096);
    places_expect(&places, GPU_A, 4096, NULL, PLACE_BYTES - 4096);
    places_close(end, &places);
}

TEST_CASE("a refused request comes after the copies before it")
{
    rig_on_two(write_with_wrong_key, see_first_write);
    if (is_failing())
        rig_on_two(write_that_does_not_start, see_first_write);
}

/* The copy fails when it is waited for. It shares a batch with a write to the other GPU, and maybe
 * with one of another pair. */
static void write_that_fails(struct rig_end *end)
{
    struct places places;
    struct move moves[] = {GOOD(GPU_A, GPU_A, 0), GOOD(GPU_A, GPU_A, 4096), GOOD(GPU_A, GPU_B, 0),
                           GOOD(GPU_A, GPU_A, 8192)};
    const struct move other = GOOD(GPU_A, GPU_B, 65536);
    moves[1].from = WAIT_AT;
    moves[1].n_bytes = 8;
    moves[3].has_imm = true;
    end->n_qps = 2;
    places_open(end, &places, 0);
    places_post(end, &places, 0, moves, 4);
    places_post(end, &places, 1, &other, 1);
    int n_failed = 0;
    for (int i = 0; i < 5; i++) {
        const struct ibv_wc wc = rig_wait_completion(end);
        if (wc.qp_num == end->qps[1]->qp_num) {
            CHECK_MSG(wc.status == IBV_WC_SUCCESS, "status %d", (int)wc.status);
            continue;
        }
        const enum ibv_wc_status right =
            n_failed++ == 0 ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_WR_FLUSH_ERR;
        CHECK_MSG(wc.status == right, "status %d, expected %d", (int)wc.status, (int)right);
    }
    CHECK(n_failed == 4);
    rig_barrier(end);
    places_close(end, &places);
}

static void see_nothing_after_it(struct rig_end *end)
{
    struct places places;
    struct ibv_wc wc;
    end->n_qps = 2;
    places_open(end, &places, 1);
    rig_barrier(end);
    places_expect(&places, GPU_A, 4096, NULL, PLACE_BYTES - 4096);
    places_expect(&places, GPU_B, 0, NULL, 65536);
    places_expect(&places, GPU_B, 65536, places_pattern[GPU_A] + 65536, 4096);
    CHECK(ibv_poll_cq(end->cq, 1, &wc) == 0);
    places_close(end, &places);
}

TEST_CASE("a copy that fails ends its pair alone")
{
    if (is_failing())
        rig_on_two(write_that_fails, see_nothing_after_it);
}

static void outlive(struct rig_end *end)
{
    struct places places;
    const struct move moves[] = {GOOD(GPU_A, GPU_A, 0), GOOD(HOST, GPU_A, 4096),
                                 GOOD(GPU_A, HOST, 8192), GOOD(GPU_A, GPU_B, 12288)};
    const uint64_t until_ns = gyre_now_ns() + RIG_LIMIT_NS;
    enum ibv_wc_status status = IBV_WC_SUCCESS;
    places_open(end, &places, 0);
    while (status == IBV_WC_SUCCESS && gyre_now_ns() < until_ns) {
        places_post(end, &places, 0, moves, 4);
        for (int i = 0; i < 4; i++) {
            const struct ibv_wc wc = rig_wait_completion(end);
            status = status == IBV_WC_SUCCESS ? wc.status : status;
        }
    }
    CHECK_MSG(status == IBV_WC_RETRY_EXC_ERR, "status %d", (int)status);
    gyre_fetch_add_u32(&end->shared->n_arrived[end->n_barriers], 1); /* for the dead */
    places_close(end, &places);
}

static void die(struct rig_end *end)
{
    struct places places;
    places_open(end, &places, 0);
    usleep(5000);
    gyre_store_release_u32(&end->shared->is_killed, 1);
    raise(SIGKILL);
}

TEST_CASE("a peer that dies ends its writes")
{
    rig_on_two(outlive, die);
}

/* ---- memory that goes ----------------------------------------------------------------------- */

#define N_ROUNDS    8
#define N_WRITES    16
#define WRITE_BYTES 30000

static void make_writes(struct move *moves)
{
    for (uint32_t i = 0; i < N_WRITES; i++)
        moves[i] = (struct move){.source = GPU_A,
                                 .target = GPU_A,
                                 .from = i * WRITE_BYTES,
                                 .to = i * WRITE_BYTES,
                                 .n_bytes = WRITE_BYTES};
}

/* In each round a pair of its own breaks, since the peer takes its memory away. */
static void write_until_refused(struct rig_end *end)
{
    struct places places;
    struct move moves[N_WRITES];
    end->n_qps = N_ROUNDS;
    places_open(end, &places, 0);
    make_writes(moves);
    for (int round = 0; round < N_ROUNDS; round++) {
        enum ibv_wc_status status = IBV_WC_SUCCESS;
        rig_barrier(end);
        while (status == IBV_WC_SUCCESS) {
            places_post(end, &places, round, moves, N_WRITES);
            for (int i = 0; i < N_WRITES; i++) {
                const struct ibv_wc wc = rig_wait_completion(end);
                status = status == IBV_WC_SUCCESS ? wc.status : status;
            }
        }
        CHECK_MSG(status == IBV_WC_REM_ACCESS_ERR, "status %d", (int)status);
        rig_barrier(end);
    }
    places_close(end, &places);
}

static void take_away(struct rig_end *end)
{
    struct places places;
    static unsigned char zeros[PLACE_BYTES];
    end->n_qps = N_ROUNDS;
    places_open(end, &places, 0);
    for (int round = 0; round < N_ROUNDS; round++) {
        rig_barrier(end);
        usleep(2000);
        CHECK(end->verbs->dereg_mr(places.mrs[GPU_A]) == 0);
        rig_copy_gpu(places_gpus[GPU_A], places.memory[GPU_A], zeros, PLACE_BYTES);
        usleep(1000);
        places_expect(&places, GPU_A, 0, zeros, PLACE_BYTES);
        places.mrs[GPU_A] =
            rig_register(end, places_gpus[GPU_A], places.memory[GPU_A], PLACE_BYTES);
        CHECK(places.mrs[GPU_A] != NULL);
        rig_barrier(end);
        end->shared->told[1].places[GPU_A].rkey = places.mrs[GPU_A]->rkey;
    }
    places_close(end, &places);
}

/* Here the sender takes its own memory away, and puts bytes there that must not get out. */
static void take_own_away(struct rig_end *end)
{
    struct places places;
    struct move moves[N_WRITES];
    static unsigned char secret[PLACE_BYTES];
    memset(secret, 0xee, sizeof(secret));
    end->n_qps = N_ROUNDS;
    places_open(end, &places, 0);
    make_writes(moves);
    for (int round = 0; round < N_ROUNDS; round++) {
        places_post(end, &places, round, moves, N_WRITES);
        usleep((unsigned)round * 15);
        CHECK(end->verbs->dereg_mr(places.mrs[GPU_A]) == 0);
        rig_copy_gpu(places_gpus[GPU_A], places.memory[GPU_A], secret, PLACE_BYTES);
        for (int i = 0; i < N_WRITES; i++)
            rig_wait_completion(end);
        rig_barrier(end);
        rig_copy_gpu(places_gpus[GPU_A], places.memory[GPU_A], places_pattern[GPU_A], PLACE_BYTES);
        places.mrs[GPU_A] =
            rig_register(end, places_gpus[GPU_A], places.memory[GPU_A], PLACE_BYTES);
        CHECK(places.mrs[GPU_A] != NULL);
        rig_barrier(end);
    }
    places_close(end, &places);
}

static void see_no_secret(struct rig_end *end)
{
    struct places places;
    end->n_qps = N_ROUNDS;
    places_open(end, &places, 0);
    for (int round = 0; round < N_ROUNDS; round++) {
        rig_barrier(end);
        const unsigned char *seen = places_look(&places, GPU_A);
        uint32_t n_wrong = 0;
        for (uint32_t i = 0; i < PLACE_BYTES; i++)
            n_wrong += seen[i] != 0 && seen[i] != places_pattern[GPU_A][i];
        CHECK_MSG(n_wrong == 0, "%u bytes in round %d", n_wrong, round);
        rig_barrier(end);
    }
    places_close(end, &places);
}

TEST_CASE("no copy is under way in memory that was taken away")
{
    rig_on_two(write_until_refused, take_away);
    rig_on_two(take_own_away, see_no_secret);
}

/* ---- times ---------------------------------------------------------------------------------- */

#define N_LATE     8
#define LATE_BYTES 60000u
#define LATE_NS    (100000000ULL + (uint64_t)N_LATE * LATE_BYTES * 8) /* 100 ms, 1 Gbit/s */

static void write_late(struct rig_end *end)
{
    struct places places;
    struct move moves[N_LATE];
    for (uint32_t i = 0; i < N_LATE; i++)
        moves[i] = (struct move){.source = i % 2 == 0 ? GPU_A : HOST,
                                 .target = GPU_B,
                                 .from = i * LATE_BYTES,
                                 .to = i * LATE_BYTES,
                                 .n_bytes = LATE_BYTES};
    places_open(end, &places, 0);
    end->shared->posted_ns = gyre_now_ns();
    rig_barrier(end);
    places_post(end, &places, 0, moves, N_LATE);
    places_expect_all(end, N_LATE);
    CHECK(gyre_now_ns() >= end->shared->posted_ns + LATE_NS + 100000000ULL);
    places_close(end, &places);
}

static void see_late(struct rig_end *end)
{
    struct places places;
    uint64_t seen_ns = 0;
    places_open(end, &places, 0);
    rig_barrier(end);
    do
        seen_ns = gyre_now_ns();
    while (places_look(&places, GPU_B)[N_LATE * LATE_BYTES - 1] == 0 &&
           seen_ns < end->shared->posted_ns + RIG_LIMIT_NS);
    seen_ns = gyre_now_ns();
    CHECK_MSG(seen_ns >= end->shared->posted_ns + LATE_NS, "%llu ns early",
              (unsigned long long)(end->shared->posted_ns + LATE_NS - seen_ns));
    places_close(end, &places);
}

TEST_CASE("copies begin when their requests are due")
{
    setenv("VERBS_WIRE_US", "100000", 1);
    setenv("VERBS_WIRE_GBIT", "1", 1);
    rig_on_two(write_late, see_late);
}
