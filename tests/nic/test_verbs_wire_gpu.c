/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/util.h"
#include "tests/fuzz/random.h"
#include "tests/nic/wire_rig.h"
#include "tests/support/check.h"

#include <signal.h>

#define PLACES(n_pairs, n) \
    ((struct rig_options){.has_places = true, .n_qps = (n_pairs), .n_receives = (n)})
#define N_CHAINS 16 /* of requests */

static int make_chain(struct fuzz_rng *rng, int qp, int n_qps, struct move *moves)
{
    const uint32_t part_bytes = PLACE_BYTES / (uint32_t)n_qps;
    const int n = 1 + (int)fuzz_below(rng, RIG_MAX_WR - 1);
    /* These make the longest batches. */
    const bool is_to_one = fuzz_once_in(rng, 2);
    const bool is_in_turns = is_to_one && fuzz_once_in(rng, 2);
    for (int i = 0; i < n; i++) {
        struct move *move = &moves[i];
        const uint32_t most =
            fuzz_once_in(rng, is_to_one ? 2 : 8) ? part_bytes - POISON_BYTES : 3000;
        *move = (struct move){.source = (uint32_t)fuzz_below(rng, N_PLACES + 1),
                              .target = (uint32_t)fuzz_below(rng, N_PLACES)};
        move->target = is_to_one ? GPU_A : move->target;
        if (is_in_turns && fuzz_once_in(rng, 2)) {
            move->target = HOST;
            move->source = fuzz_once_in(rng, 2) ? HOST : INLINE;
        }
        move->n_bytes = (uint32_t)fuzz_below(rng, move->source == INLINE ? 200 : most);
        move->has_imm = i == n - 1 || fuzz_once_in(rng, 8);
        move->from = (uint32_t)fuzz_below(rng, PLACE_BYTES - POISON_BYTES - move->n_bytes);
        move->to =
            (uint32_t)fuzz_below(rng, fuzz_once_in(rng, 2) ? 1000 : part_bytes - move->n_bytes);
        if (move->to + move->n_bytes > part_bytes)
            move->to = 0;
        move->to += (uint32_t)qp * part_bytes;
        if (!move->has_imm && fuzz_once_in(rng, 16))
            *move = (struct move){.source = HOST, .target = GPU_A, .is_read = true}; /* no bytes */
    }
    return n;
}

static void write_chains(struct rig_end *end)
{
    struct move moves[RIG_MAX_WR];
    struct fuzz_rng rng = {7};
    for (int i = 0; i < N_CHAINS / end->n_qps; i++) {
        int n_all = 0;
        for (int qp = 0; qp < end->n_qps; qp++) {
            const int n = make_chain(&rng, qp, end->n_qps, moves);
            places_post(end, qp, moves, n);
            n_all += n;
        }
        places_expect_all(end, n_all);
        rig_barrier(end);
    }
}

/* In the order of each queue pair's requests, of which the last has an immediate value. */
static void expect_messages(struct rig_end *end, struct move (*moves)[RIG_MAX_WR], const int *n)
{
    int next[RIG_MAX_QPS] = {0};
    int n_left = end->n_qps;
    while (n_left > 0 && test_n_failures == 0) {
        const struct ibv_wc wc = rig_wait_completion(end);
        int qp = 0;
        while (qp + 1 < end->n_qps && wc.qp_num != end->qps[qp]->qp_num)
            qp++;
        while (next[qp] < n[qp] - 1 && !moves[qp][next[qp]].has_imm)
            next[qp]++;
        CHECK_MSG(wc.status == IBV_WC_SUCCESS && wc.imm_data == (uint32_t)next[qp],
                  "pair %d: request %u, not %d", qp, wc.imm_data, next[qp]);
        CHECK(wc.byte_len == moves[qp][next[qp]].n_bytes);
        n_left -= ++next[qp] == n[qp];
    }
}

static void check_chains(struct rig_end *end)
{
    static unsigned char expected[N_PLACES][PLACE_BYTES];
    static struct move moves[RIG_MAX_QPS][RIG_MAX_WR];
    struct fuzz_rng rng = {7};
    for (int i = 0; i < N_CHAINS / end->n_qps; i++) {
        int n[RIG_MAX_QPS];
        for (int qp = 0; qp < end->n_qps; qp++) {
            n[qp] = make_chain(&rng, qp, end->n_qps, moves[qp]);
            for (int k = 0; k < n[qp]; k++) {
                const struct move *move = &moves[qp][k];
                memcpy(expected[move->target] + move->to,
                       places_pattern[move->source == INLINE ? HOST : move->source] + move->from,
                       move->n_bytes);
            }
        }
        expect_messages(end, moves, n);
        for (int place = 0; place < N_PLACES; place++)
            places_expect(end, place, 0, expected[place], PLACE_BYTES);
        for (int qp = 0; qp < end->n_qps; qp++)
            for (int k = 0; k < n[qp]; k++)
                rig_post_receives(end->qps[qp], moves[qp][k].has_imm);
        rig_barrier(end);
    }
}

TEST_RUNS("one pair keeps its order, whatever memory its requests name",
          rig_on_two(PLACES(1, RIG_MAX_WR), write_chains, check_chains))
TEST_RUNS("pairs keep their orders beside each other",
          rig_on_two(PLACES(4, RIG_MAX_WR), write_chains, check_chains))

TEST_CASE("order is kept where host memory is closed")
{
    setenv("VERBS_WIRE_MOVE", "ring", 1);
    rig_on_two(PLACES(1, RIG_MAX_WR), write_chains, check_chains);
}

static void write_and_read(struct rig_end *end)
{
    for (uint32_t i = 0; i < 20; i++) {
        const uint32_t at = i * 4096;
        const struct move moves[] = {
            {.source = GPU_A, .target = GPU_B, .from = at + 100000, .to = 0, .n_bytes = 100000},
            {.source = HOST, .target = GPU_B, .from = at, .to = 50000, .n_bytes = 4096},
            {.source = i % 2 == 0 ? HOST : GPU_B,
             .target = GPU_B,
             .from = 0,
             .to = 40000,
             .n_bytes = 30000,
             .is_read = true},
        };
        places_post(end, 0, moves, 3);
        places_expect_all(end, 3);
        const int back = i % 2 == 0 ? HOST : GPU_B;
        places_expect(end, back, 0, places_pattern[GPU_A] + at + 140000, 10000);
        places_expect(end, back, 10000, places_pattern[HOST] + at, 4096);
        places_expect(end, back, 14096, places_pattern[GPU_A] + at + 154096, 30000 - 14096);
        /* The read has spoiled what the next round sends. */
        if (back == HOST)
            memcpy(end->places.memory[HOST], places_pattern[HOST], PLACE_BYTES);
    }
}

TEST_RUNS("a read sees the writes before it", rig_on_two(PLACES(1, 0), write_and_read, NULL))

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
    const struct move moves[] = {GOOD(GPU_A, GPU_A, 0), *refused, GOOD(HOST, GPU_A, 8192)};
    places_post(end, 0, moves, 3);
    rig_expect(end, IBV_WC_SUCCESS);
    rig_expect(end, status);
    rig_expect(end, IBV_WC_WR_FLUSH_ERR);
    rig_barrier(end);
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
    rig_barrier(end);
    places_expect(end, GPU_A, 0, places_pattern[GPU_A], 4096);
    places_expect(end, GPU_A, 4096, NULL, PLACE_BYTES - 4096);
}

TEST_CASE("a refused request comes after the copies before it")
{
    rig_on_two(PLACES(1, 0), write_with_wrong_key, see_first_write);
    if (is_failing())
        rig_on_two(PLACES(1, 0), write_that_does_not_start, see_first_write);
}

/* In a batch with a write to the other GPU, and maybe one of another pair. */
static void write_that_fails(struct rig_end *end)
{
    struct move moves[] = {GOOD(GPU_A, GPU_A, 0), GOOD(GPU_A, GPU_A, 4096), GOOD(GPU_A, GPU_B, 0),
                           GOOD(GPU_A, GPU_A, 8192)};
    const struct move other = GOOD(GPU_A, GPU_B, 65536);
    moves[1].from = WAIT_AT;
    moves[1].n_bytes = 8;
    moves[3].has_imm = true;
    places_post(end, 0, moves, 4);
    places_post(end, 1, &other, 1);
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
}

static void see_nothing_after_it(struct rig_end *end)
{
    struct ibv_wc wc;
    rig_barrier(end);
    places_expect(end, GPU_A, 4096, NULL, PLACE_BYTES - 4096);
    places_expect(end, GPU_B, 0, NULL, 65536);
    places_expect(end, GPU_B, 65536, places_pattern[GPU_A] + 65536, 4096);
    CHECK(ibv_poll_cq(end->cq, 1, &wc) == 0);
}

TEST_CASE("a copy that fails ends its pair alone")
{
    if (is_failing())
        rig_on_two(PLACES(2, 1), write_that_fails, see_nothing_after_it);
}

static void outlive(struct rig_end *end)
{
    const struct move moves[] = {GOOD(GPU_A, GPU_A, 0), GOOD(HOST, GPU_A, 4096),
                                 GOOD(GPU_A, HOST, 8192), GOOD(GPU_A, GPU_B, 12288)};
    const uint64_t until_ns = gyre_now_ns() + RIG_LIMIT_NS;
    enum ibv_wc_status status = IBV_WC_SUCCESS;
    for (int round = 0; status == IBV_WC_SUCCESS && gyre_now_ns() < until_ns; round++) {
        places_post(end, 0, moves, 4);
        for (int i = 0; i < 4; i++) {
            const struct ibv_wc wc = rig_wait_completion(end);
            status = status == IBV_WC_SUCCESS ? wc.status : status;
        }
        if (round == 0)
            rig_barrier(end);
    }
    CHECK_MSG(status == IBV_WC_RETRY_EXC_ERR, "status %d", (int)status);
}

static void die(struct rig_end *end)
{
    rig_barrier(end); /* the NIC knows all memory, which it could not open later */
    usleep(5000);
    gyre_store_release_u32(&end->shared->is_killed, 1);
    raise(SIGKILL);
}

TEST_RUNS("a peer that dies ends its writes", rig_on_two(PLACES(1, 0), outlive, die))

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

static void write_until_refused(struct rig_end *end)
{
    struct move moves[N_WRITES];
    make_writes(moves);
    for (int round = 0; round < N_ROUNDS; round++) {
        enum ibv_wc_status status = IBV_WC_SUCCESS;
        rig_barrier(end);
        while (status == IBV_WC_SUCCESS) {
            places_post(end, round, moves, N_WRITES);
            for (int i = 0; i < N_WRITES; i++) {
                const struct ibv_wc wc = rig_wait_completion(end);
                status = status == IBV_WC_SUCCESS ? wc.status : status;
            }
        }
        CHECK_MSG(status == IBV_WC_REM_ACCESS_ERR, "status %d", (int)status);
        rig_barrier(end);
    }
}

static void take_away(struct rig_end *end)
{
    static unsigned char zeros[PLACE_BYTES];
    for (int round = 0; round < N_ROUNDS; round++) {
        rig_barrier(end);
        usleep(2000);
        CHECK(end->verbs->dereg_mr(end->places.mrs[GPU_A]) == 0);
        rig_copy_gpu(places_gpus[GPU_A], end->places.memory[GPU_A], zeros, PLACE_BYTES);
        usleep(1000);
        places_expect(end, GPU_A, 0, zeros, PLACE_BYTES);
        end->places.mrs[GPU_A] =
            rig_register(end, places_gpus[GPU_A], end->places.memory[GPU_A], PLACE_BYTES);
        CHECK(end->places.mrs[GPU_A] != NULL);
        rig_barrier(end);
        end->shared->told[1].places[GPU_A].rkey = end->places.mrs[GPU_A]->rkey;
    }
}

/* The sender takes its own memory away, and puts bytes there that must not get out. */
static void take_own_away(struct rig_end *end)
{
    struct move moves[N_WRITES];
    static unsigned char secret[PLACE_BYTES];
    memset(secret, 0xee, sizeof(secret));
    make_writes(moves);
    for (int round = 0; round < N_ROUNDS; round++) {
        places_post(end, round, moves, N_WRITES);
        usleep((unsigned)round * 15);
        CHECK(end->verbs->dereg_mr(end->places.mrs[GPU_A]) == 0);
        rig_copy_gpu(places_gpus[GPU_A], end->places.memory[GPU_A], secret, PLACE_BYTES);
        for (int i = 0; i < N_WRITES; i++)
            rig_wait_completion(end);
        rig_barrier(end);
        rig_copy_gpu(places_gpus[GPU_A], end->places.memory[GPU_A], places_pattern[GPU_A],
                     PLACE_BYTES);
        end->places.mrs[GPU_A] =
            rig_register(end, places_gpus[GPU_A], end->places.memory[GPU_A], PLACE_BYTES);
        CHECK(end->places.mrs[GPU_A] != NULL);
        rig_barrier(end);
    }
}

static void see_no_secret(struct rig_end *end)
{
    for (int round = 0; round < N_ROUNDS; round++) {
        rig_barrier(end);
        const unsigned char *seen = places_look(end, GPU_A);
        uint32_t n_wrong = 0;
        for (uint32_t i = 0; i < PLACE_BYTES; i++)
            n_wrong += seen[i] != 0 && seen[i] != places_pattern[GPU_A][i];
        CHECK_MSG(n_wrong == 0, "%u bytes in round %d", n_wrong, round);
        rig_barrier(end);
    }
}

TEST_CASE("no copy is under way in memory that was taken away")
{
    rig_on_two(PLACES(N_ROUNDS, 0), write_until_refused, take_away);
    rig_on_two(PLACES(N_ROUNDS, 0), take_own_away, see_no_secret);
}
