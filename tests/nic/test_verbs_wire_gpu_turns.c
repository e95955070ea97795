/* SPDX-License-Identifier: Apache-2.0
 *
 * Queue pairs that write to GPU memory and host memory in turns, as gyre does with the payload of a
 * slot and the label behind it: the RDMA device between processes waits once for the copies of many
 * slots, and a label is never seen before its payload.
 */
#include "core/foundation/base/util.h"
#include "tests/nic/wire_places.h"
#include "tests/support/check.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#define SLOT_BYTES  8192u
#define LABEL_BYTES 16u
#define LABELS_AT   200000u /* in host memory, from where no slot comes */
#define N_SLOTS     30u
#define N_ROUNDS    6u

/* ---- slots and labels ----------------------------------------------------------------------- */

static struct move slot(uint32_t i)
{
    return (struct move){.source = i % 3, /* host memory and both GPUs */
                         .target = GPU_A,
                         .from = i * SLOT_BYTES % LABELS_AT,
                         .to = i * SLOT_BYTES,
                         .n_bytes = SLOT_BYTES};
}

static struct move label(uint32_t i, uint32_t source)
{
    return (struct move){.source = source,
                         .target = HOST,
                         .from = i * LABEL_BYTES,
                         .to = LABELS_AT + i * LABEL_BYTES,
                         .n_bytes = LABEL_BYTES,
                         .has_imm = true};
}

static void make_slots(struct move *moves, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        moves[2 * i] = slot(i);
        moves[2 * i + 1] = label(i, i % 2 == 0 ? INLINE : HOST);
    }
}

static void expect_slot(const struct places *places, uint32_t i)
{
    const struct move from = slot(i);
    places_expect(places, GPU_A, from.to, places_pattern[from.source] + from.from, SLOT_BYTES);
}

static void expect_label(const struct places *places, uint32_t i)
{
    places_expect(places, HOST, LABELS_AT + i * LABEL_BYTES, places_pattern[HOST] + i * LABEL_BYTES,
                  LABEL_BYTES);
}

/* Completions of the sender, in order. */
static void expect_sent(struct rig_end *end, uint32_t n)
{
    for (uint32_t i = 0; i < n && test_n_failures == 0; i++) {
        const struct ibv_wc wc = rig_wait_completion(end);
        CHECK_MSG(wc.status == IBV_WC_SUCCESS && wc.wr_id == i, "request %u: status %d of %u", i,
                  (int)wc.status, (unsigned)wc.wr_id);
    }
}

static void send_slots(struct rig_end *end)
{
    struct places places;
    struct move moves[2 * N_SLOTS];
    places_open(end, &places, 0);
    make_slots(moves, N_SLOTS);
    const struct rig_counts before = rig_count();
    places_post(end, &places, 0, moves, 2 * N_SLOTS);
    expect_sent(end, 2 * N_SLOTS);
    const struct rig_counts after = rig_count();
    CHECK_MSG(after.n_waits == before.n_waits + 1, "%u waits",
              (unsigned)(after.n_waits - before.n_waits));
    CHECK(after.n_gpu == before.n_gpu + N_SLOTS && after.n_direct == before.n_direct + N_SLOTS);
    CHECK(after.n_ring == before.n_ring);
    places_close(end, &places);
}

static void receive_slots(struct rig_end *end)
{
    struct places places;
    places_open(end, &places, N_SLOTS);
    for (uint32_t i = 0; i < N_SLOTS && test_n_failures == 0; i++) {
        const struct ibv_wc wc = rig_wait_completion(end);
        CHECK_MSG(wc.status == IBV_WC_SUCCESS && wc.imm_data == 2 * i + 1, "label %u: %u", i,
                  wc.imm_data);
        CHECK(wc.byte_len == LABEL_BYTES);
        expect_slot(&places, i);
        expect_label(&places, i);
    }
    places_expect(&places, GPU_A, N_SLOTS * SLOT_BYTES, NULL, PLACE_BYTES - N_SLOTS * SLOT_BYTES);
    places_expect(&places, HOST, 0, NULL, LABELS_AT);
    places_close(end, &places);
}

TEST_CASE("slots and their labels are waited for at once")
{
    rig_on_two(send_slots, receive_slots);
}

/* Without messages: the receiver looks at the last byte of each label. */
static void send_in_rounds(struct rig_end *end)
{
    struct places places;
    struct move moves[2 * N_SLOTS];
    places_open(end, &places, 0);
    make_slots(moves, N_SLOTS);
    for (uint32_t i = 0; i < N_SLOTS; i++)
        moves[2 * i + 1].has_imm = false;
    for (uint32_t round = 0; round < N_ROUNDS; round++) {
        rig_barrier(end);
        places_post(end, &places, 0, moves, 2 * N_SLOTS);
        expect_sent(end, 2 * N_SLOTS);
        rig_barrier(end);
    }
    places_close(end, &places);
}

static void see_label(const unsigned char *last)
{
    const uint64_t until_ns = gyre_now_ns() + RIG_LIMIT_NS;
    while (__atomic_load_n(last, __ATOMIC_ACQUIRE) == 0 && gyre_now_ns() < until_ns)
        sched_yield();
}

static void see_labels(struct rig_end *end)
{
    static unsigned char zeros[PLACE_BYTES];
    struct places places;
    places_open(end, &places, 0);
    for (uint32_t round = 0; round < N_ROUNDS; round++) {
        rig_barrier(end);
        for (uint32_t i = 0; i < N_SLOTS && test_n_failures == 0; i++) {
            see_label(places.memory[HOST] + LABELS_AT + (i + 1) * LABEL_BYTES - 1);
            expect_slot(&places, i);
        }
        rig_barrier(end);
        memset(places.memory[HOST], 0, PLACE_BYTES);
        rig_copy_gpu(places_gpus[GPU_A], places.memory[GPU_A], zeros, PLACE_BYTES);
    }
    places_close(end, &places);
}

TEST_CASE("no label is seen before its slot")
{
    rig_on_two(send_in_rounds, see_labels);
}

/* ---- a kernel that refuses ------------------------------------------------------------------ */

/* Memory of the receiver that the kernel does not let the NIC write, until it is touched. The NIC
 * finds that out after the copies, when labels in it are put in place. */
static unsigned char *locked;

static void unlock(int signal_number)
{
    (void)signal_number;
    if (mprotect(locked, PLACE_BYTES, PROT_READ | PROT_WRITE) != 0)
        abort();
}

static void send_to_locked(struct rig_end *end)
{
    struct places places;
    struct move moves[2 * N_SLOTS];
    places_open(end, &places, 0);
    rig_barrier(end);
    make_slots(moves, N_SLOTS);
    for (uint32_t i = 10; i < N_SLOTS; i++)
        moves[2 * i + 1].target = EXTRA;
    const struct rig_counts before = rig_count();
    places_post(end, &places, 0, moves, 2 * N_SLOTS);
    expect_sent(end, 2 * N_SLOTS);
    const struct rig_counts after = rig_count();
    CHECK(after.n_gpu == before.n_gpu + N_SLOTS && after.n_direct == before.n_direct + 10);
    CHECK(after.n_ring == before.n_ring + N_SLOTS - 10);
    places_close(end, &places);
}

static void receive_in_locked(struct rig_end *end)
{
    struct places places;
    places_open(end, &places, N_SLOTS);
    locked = mmap(NULL, PLACE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ibv_mr *mr = rig_register(end, RIG_HOST, locked, PLACE_BYTES);
    CHECK(mr != NULL && signal(SIGSEGV, unlock) != SIG_ERR);
    CHECK(mprotect(locked, PLACE_BYTES, PROT_NONE) == 0);
    end->shared->told[1].places[EXTRA] = (struct rig_place){(uintptr_t)locked, mr->rkey};
    rig_barrier(end);
    for (uint32_t i = 0; i < N_SLOTS && test_n_failures == 0; i++) {
        const uint32_t at = LABELS_AT + i * LABEL_BYTES;
        const unsigned char *labels = i < 10 ? places.memory[HOST] : locked;
        CHECK(rig_wait_completion(end).imm_data == 2 * i + 1);
        expect_slot(&places, i);
        CHECK_MSG(memcmp(labels + at, places_pattern[HOST] + i * LABEL_BYTES, LABEL_BYTES) == 0,
                  "label %u", i);
    }
    CHECK(end->verbs->dereg_mr(mr) == 0);
    places_close(end, &places);
}

TEST_CASE("labels that the kernel refuses to write go by the ring")
{
    rig_on_two(send_to_locked, receive_in_locked);
}

/* ---- failures ------------------------------------------------------------------------------- */

static void expect_statuses(struct rig_end *end, const enum ibv_wc_status *statuses, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct ibv_wc wc = rig_wait_completion(end);
        CHECK_MSG(wc.status == statuses[i] && wc.wr_id == i, "request %u: status %d, expected %d",
                  i, (int)wc.status, (int)statuses[i]);
    }
}

/* Five requests. The statuses are those of their completions. */
static void send_five(struct rig_end *end, const struct move *moves,
                      const enum ibv_wc_status *statuses)
{
    struct places places;
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init_attr;
    places_open(end, &places, 0);
    places_post(end, &places, 0, moves, 5);
    expect_statuses(end, statuses, 5);
    CHECK(ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init_attr) == 0);
    CHECK(attr.qp_state == IBV_QPS_ERR);
    rig_barrier(end);
    places_close(end, &places);
}

static void send_copy_that_fails(struct rig_end *end)
{
    struct move moves[] = {slot(0), label(0, INLINE), slot(1), label(1, HOST), slot(2)};
    moves[2].from = WAIT_AT;
    moves[2].n_bytes = 8;
    send_five(end, moves,
              (enum ibv_wc_status[]){IBV_WC_LOC_QP_OP_ERR, IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR,
                                     IBV_WC_WR_FLUSH_ERR, IBV_WC_WR_FLUSH_ERR});
}

static void send_wrong_key(struct rig_end *end)
{
    struct move moves[] = {slot(0), label(0, INLINE), slot(1), label(1, HOST), slot(2)};
    moves[3].wrong_key = 1u << WIRE_INDEX_BITS;
    send_five(end, moves,
              (enum ibv_wc_status[]){IBV_WC_SUCCESS, IBV_WC_SUCCESS, IBV_WC_SUCCESS,
                                     IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR});
}

static void send_one_too_many(struct rig_end *end)
{
    const struct move moves[] = {slot(0), label(0, INLINE), slot(1), label(1, HOST), slot(2)};
    send_five(end, moves,
              (enum ibv_wc_status[]){IBV_WC_SUCCESS, IBV_WC_SUCCESS, IBV_WC_SUCCESS,
                                     IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR});
}

static void see_no_label(struct rig_end *end)
{
    struct places places;
    struct ibv_wc wc;
    places_open(end, &places, 2);
    rig_barrier(end);
    places_expect(&places, HOST, 0, NULL, PLACE_BYTES);
    places_expect(&places, GPU_A, SLOT_BYTES, NULL, PLACE_BYTES - SLOT_BYTES);
    CHECK(ibv_poll_cq(end->cq, 1, &wc) == 0);
    places_close(end, &places);
}

/* One of the two messages, and nothing that is behind the request that failed. */
static void see_one_label(struct rig_end *end, int n_receives)
{
    struct places places;
    struct ibv_wc wc;
    places_open(end, &places, n_receives);
    CHECK(rig_wait_completion(end).imm_data == 1);
    expect_label(&places, 0);
    rig_barrier(end);
    expect_slot(&places, 0);
    expect_slot(&places, 1);
    places_expect(&places, HOST, LABELS_AT + LABEL_BYTES, NULL, LABEL_BYTES);
    places_expect(&places, GPU_A, 2 * SLOT_BYTES, NULL, SLOT_BYTES);
    CHECK(ibv_poll_cq(end->cq, 1, &wc) == 0);
    places_close(end, &places);
}

static void see_one_of_two(struct rig_end *end)
{
    see_one_label(end, 2);
}

static void receive_only_one(struct rig_end *end)
{
    see_one_label(end, 1);
}

TEST_CASE("labels do not arrive when a copy of their batch fails")
{
    rig_on_two(send_copy_that_fails, see_no_label);
}

TEST_CASE("a refused label comes after those before it")
{
    rig_on_two(send_wrong_key, see_one_of_two);
    rig_on_two(send_one_too_many, receive_only_one);
}

#define LONG_WAIT_US 2000000ULL

/* The receiver dies when all five requests are started. The NIC waits for the copies for so long
 * that the first label is put in place after that. */
static void send_to_dying(struct rig_end *end)
{
    const struct move moves[] = {slot(0), label(0, INLINE), slot(1), label(1, HOST), slot(2)};
    const uint64_t window_ns = 4 * (4096ULL << 14); /* 4 tries of 67 ms */
    struct places places;
    char wait_us[16];
    snprintf(wait_us, sizeof(wait_us), "%llu", LONG_WAIT_US);
    setenv("FAKE_CUDA_WAIT_US", wait_us, 1);
    places_open(end, &places, 0);
    const uint64_t posted_ns = gyre_now_ns();
    places_post(end, &places, 0, moves, 5);
    rig_expect(end, IBV_WC_SUCCESS);
    rig_expect(end, IBV_WC_RETRY_EXC_ERR);
    CHECK(gyre_now_ns() >= posted_ns + LONG_WAIT_US * 1000 + window_ns);
    for (int i = 2; i < 5; i++)
        rig_expect(end, IBV_WC_WR_FLUSH_ERR);
    gyre_fetch_add_u32(&end->shared->n_arrived[end->n_barriers], 1); /* for the dead */
    places_close(end, &places);
}

static void die_when_all_are_started(struct rig_end *end)
{
    struct places places;
    places_open(end, &places, 2);
    const struct wire_file *file = rig_job();
    const uint32_t sender = end->shared->told[0].qpns[0] & WIRE_INDEX_MASK;
    const uint64_t until_ns = gyre_now_ns() + RIG_LIMIT_NS;
    while (gyre_load_acquire_u64(&file->pairs[sender].n_started) < 5 && gyre_now_ns() < until_ns)
        sched_yield();
    gyre_store_release_u32(&end->shared->is_killed, 1);
    raise(SIGKILL);
}

TEST_CASE("a label to a peer that has died fails after the retry time")
{
    char job[64];
    snprintf(job, sizeof(job), "slow-%d", (int)getpid());
    setenv("VERBS_WIRE_JOB", job, 1); /* a NIC of its own, since it inherits how long waits are */
    rig_on_two(send_to_dying, die_when_all_are_started);
}
