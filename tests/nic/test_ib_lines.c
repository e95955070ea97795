/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"
#include "core/foundation/model/line.h"
#include "kernels/host/host_exec.h"
#include "tests/nic/ib_rig.h"
#include "tests/support/check.h"

#include <sched.h>

enum { N_FIFOS = 3, MOST_BYTES = 8192 };

struct pipe {
    struct gyre_host_end out;
    struct gyre_host_end in;
    uint32_t fifo;
};

/* Of the case. */
static struct ib_rig rig;
static struct pipe pipes[N_FIFOS];

static struct gyre_host_end end_of(int rank, int peer, uint32_t fifo, bool is_send)
{
    const struct gyre_connector *connector =
        &rig.ranks[rank].connectors[gyre_connector_index(&rig.spec, (uint32_t)peer, fifo, is_send)];
    CHECK(connector->slots[GYRE_PROTO_LL] != NULL);
    return (struct gyre_host_end){.slots = connector->slots[GYRE_PROTO_LL],
                                  .inbox = connector->inbox,
                                  .credit = connector->credit,
                                  .depth = connector->depth,
                                  .proto = GYRE_PROTO_LL,
                                  .slot_bytes = rig.spec.net_line_bytes};
}

static void open_rig(const struct vm_device *devices, char **environment, uint32_t line_bytes)
{
    rig = (struct ib_rig){.devices = devices, .environment = environment};
    ib_rig_prepare(&rig, 2, N_FIFOS, 4096);
    rig.spec.net_line_bytes = line_bytes;
    for (int r = 0; r < 2; r++)
        rig.ranks[r].config.spec = rig.spec;
    const gyre_status status = ib_rig_connect(&rig);
    CHECK_MSG(status == GYRE_SUCCESS, "%s", gyre_cause());
    for (uint32_t f = 0; f < N_FIFOS && status == GYRE_SUCCESS; f++)
        pipes[f] = (struct pipe){end_of(0, 1, f, true), end_of(1, 0, f, false), f};
}

static uint32_t n_bytes_of(uint64_t number)
{
    const uint32_t most = gyre_slot_payload_bytes(GYRE_PROTO_LL, rig.spec.net_line_bytes);
    const uint32_t sizes[] = {8, most, 0, 1, 9, most - 1, 100, most / 2 + 3, 4, 7};
    return sizes[number % GYRE_ARRAY_LENGTH(sizes)];
}

static void advance(struct gyre_host_end *end)
{
    end->n_moved++;
    end->slot = (end->slot + 1) % end->depth;
    end->n_seen = 0;
}

static bool send_slot(struct pipe *pipe)
{
    unsigned char bytes[MOST_BYTES];
    struct gyre_host_end *end = &pipe->out;
    const uint32_t n_bytes = n_bytes_of(end->n_moved);
    if (end->n_moved - gyre_load_acquire_u64(&end->credit->head[GYRE_PROTO_LL]) >= end->depth)
        return false;
    for (uint32_t i = 0; i < n_bytes; i++)
        bytes[i] = ib_rig_byte(0, 1, pipe->fifo, end->n_moved, i);
    gyre_host_lines_send(end, bytes, n_bytes);
    advance(end);
    return true;
}

static bool receive_slot(struct pipe *pipe)
{
    unsigned char bytes[MOST_BYTES];
    struct gyre_host_end *end = &pipe->in;
    const uint32_t n_bytes = n_bytes_of(end->n_moved);
    uint32_t n_wrong = 0;
    if (!gyre_host_lines_arrived(end, n_bytes))
        return false;
    gyre_host_lines_unpack(end, bytes, n_bytes);
    for (uint32_t i = 0; i < n_bytes; i++)
        n_wrong += bytes[i] != ib_rig_byte(0, 1, pipe->fifo, end->n_moved, i);
    CHECK_MSG(n_wrong == 0, "FIFO %u, slot %llu: %u of %u bytes are wrong", pipe->fifo,
              (unsigned long long)end->n_moved, n_wrong, n_bytes);
    advance(end);
    gyre_store_release_u64(&end->credit->head[GYRE_PROTO_LL], end->n_moved);
    return true;
}

static void pass(uint64_t n)
{
    const uint64_t until_ns = gyre_now_ns() + 60000000000ULL;
    uint64_t n_left = n * N_FIFOS;
    while (n_left > 0 && gyre_now_ns() < until_ns && !ib_rig_has_fault(&rig)) {
        bool has_moved = false;
        for (uint32_t f = 0; f < N_FIFOS; f++) {
            if (pipes[f].out.n_moved < n)
                has_moved = send_slot(&pipes[f]) || has_moved;
            if (pipes[f].in.n_moved < n && receive_slot(&pipes[f])) {
                has_moved = true;
                n_left--;
            }
        }
        if (!has_moved)
            sched_yield();
    }
    CHECK_MSG(n_left == 0, "%llu slots did not arrive", (unsigned long long)n_left);
    CHECK(!ib_rig_has_fault(&rig));
}

TEST_CASE("lines of every length arrive in whatever order their halves come")
{
    static const uint32_t sizes[] = {256, 4096, 2 * MOST_BYTES};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(sizes); i++) {
        open_rig(ib_rig_one_nic, NULL, sizes[i]);
        vm_scramble(true);
        pass(200);
        vm_scramble(false);
        ib_rig_close(&rig);
    }
}

TEST_CASE("the receiving proxy is told of no slot")
{
    open_rig(ib_rig_one_nic, NULL, 256);
    pass(100);
    const struct vm_counters counters = vm_counters();
    /* What is left is credit: a message for one slot or more. */
    CHECK_MSG(counters.n_imms <= 100 * N_FIFOS, "%llu", (unsigned long long)counters.n_imms);
    CHECK_MSG(counters.n_writes >= 100 * N_FIFOS, "%llu", (unsigned long long)counters.n_writes);
    CHECK(counters.largest_bytes <= 256);
    ib_rig_close(&rig);
}

TEST_CASE("long slots are cut into messages that the port takes")
{
    struct vm_device devices[] = {ib_rig_one_nic[0], {.name = NULL}};
    devices[0].ports[0].max_msg_bytes = 5000;
    open_rig(devices, NULL, 2 * MOST_BYTES);
    pass(100);
    CHECK_MSG(vm_counters().largest_bytes == 4992, "%llu",
              (unsigned long long)vm_counters().largest_bytes);
    ib_rig_close(&rig);
}

TEST_CASE("lines go over all queue pairs and rails")
{
    char *environment[] = {"GYRE_IB_QPS_PER_CONNECTION=2", NULL};
    struct vm_device devices[] = {ib_rig_one_nic[0], ib_rig_one_nic[0], {.name = NULL}};
    devices[1].name = "mem1";
    devices[1].ports[0].gids[3].address = "10.0.1.1";
    open_rig(devices, environment, 1024);
    pass(200);
    /* two rails x two queue pairs of the sender, and the receiver's control queue pair */
    CHECK_MSG(vm_counters().n_queue_pairs_used == 5, "%u", vm_counters().n_queue_pairs_used);
    ib_rig_close(&rig);
}

TEST_CASE("a slot is not released before it is acknowledged")
{
    open_rig(ib_rig_one_nic, NULL, 1024);
    vm_port_set("mem0", 1, false);
    const uint64_t n_posts = vm_counters().n_posts;
    while (pipes[0].out.n_moved < IB_RIG_DEPTH && send_slot(&pipes[0]))
        ;
    CHECK(pipes[0].out.n_moved == IB_RIG_DEPTH);
    gyre_transport_ib.wake(rig.ranks[0].transport);
    TEST_YIELD_UNTIL(vm_counters().n_posts != n_posts);
    CHECK(gyre_load_acquire_u64(&pipes[0].out.credit->head[GYRE_PROTO_LL]) == 0);
    CHECK(!send_slot(&pipes[0]) && !receive_slot(&pipes[0]));
    vm_port_set("mem0", 1, true);
    pass(20);
    ib_rig_close(&rig);
}

/* Whether n slots have been sent and received. */
static bool move_slots(struct pipe *pipe, uint64_t n)
{
    if (pipe->out.n_moved < n)
        (void)send_slot(pipe);
    (void)receive_slot(pipe);
    return pipe->in.n_moved >= n;
}

TEST_CASE("slots may be returned before they are sent")
{
    open_rig(ib_rig_one_nic, NULL, 1024);
    for (int i = 0; i < IB_RIG_DEPTH; i++)
        advance(&pipes[0].in);
    const uint64_t n_posts = vm_counters().n_posts;
    gyre_store_release_u64(&pipes[0].in.credit->head[GYRE_PROTO_LL], IB_RIG_DEPTH);
    gyre_transport_ib.wake(rig.ranks[1].transport);
    TEST_YIELD_UNTIL(vm_counters().n_posts != n_posts);
    CHECK(vm_counters().n_posts > n_posts); /* the credit is under way */
    TEST_YIELD_UNTIL(move_slots(&pipes[0], 2 * IB_RIG_DEPTH) || ib_rig_has_fault(&rig));
    CHECK(pipes[0].in.n_moved == 2 * IB_RIG_DEPTH);
    CHECK(!ib_rig_has_fault(&rig));
    ib_rig_close(&rig);
}

TEST_CASE("a peer that is gone raises the fault of the sender")
{
    open_rig(ib_rig_one_nic, NULL, 1024);
    vm_fail_send(IBV_WR_RDMA_WRITE, IBV_WC_RETRY_EXC_ERR);
    CHECK(send_slot(&pipes[0]));
    gyre_transport_ib.wake(rig.ranks[0].transport);
    TEST_YIELD_UNTIL(gyre_fault_is_raised(&rig.ranks[0].fault));
    CHECK(gyre_fault_status(&rig.ranks[0].fault) == GYRE_ERROR_REMOTE);
    CHECK_HAS(gyre_cause(), "E401");
    ib_rig_close(&rig);
}

TEST_CASE("depths above the most are refused")
{
    ib_rig_prepare(&rig, 2, 1, 4096);
    rig.ranks[0].config.spec.net_line_bytes = 1024;
    rig.ranks[0].config.spec.depth = GYRE_MAX_DEPTH + 1;
    CHECK(ib_rig_connect(&rig) == GYRE_ERROR_INVALID_ARGUMENT);
    CHECK_HAS(gyre_cause(), "FIFOs of 9 slots");
    ib_rig_close(&rig);
}

TEST_CASE("flags never match fresh memory or the round before")
{
    enum { DEPTH = 4, WORDS = 8 };
    static const uint64_t numbers[] = {0, 1, 5, (1ULL << 31) - 1, 1ULL << 31, (1ULL << 40) + 3};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(numbers); i++) {
        uint64_t words[WORDS] = {0};
        struct gyre_inbox inbox = {.tail = {0}};
        struct gyre_host_end end = {.slots = (unsigned char *)words,
                                    .inbox = &inbox,
                                    .depth = DEPTH,
                                    .proto = GYRE_PROTO_LL,
                                    .slot_bytes = sizeof(words),
                                    .n_moved = numbers[i]};
        CHECK(!gyre_host_lines_arrived(&end, 0));
        gyre_host_lines_send(&end, (const unsigned char *)"abcdefghi", 9);
        CHECK(inbox.slot_info[GYRE_FIRST_LINE_INFO] == gyre_ll_announcement(numbers[i], 2));
        CHECK(!gyre_ll_is_announced(0, numbers[i]));
        CHECK(!gyre_ll_is_announced(gyre_ll_announcement(numbers[i], 2), numbers[i] + DEPTH));
        CHECK((words[0] & UINT32_MAX) == 0x64636261); /* "abcd" */
        CHECK(gyre_host_lines_arrived(&end, 9));
        end.n_seen = 0;
        end.n_moved += DEPTH;
        CHECK(!gyre_host_lines_arrived(&end, 0));
    }
}

#define LATE_NUMBER ((1ULL << 30) - 2)

/* Before any proxy runs. */
static void make_late(unsigned char *blob)
{
    struct gyre_ib_transport *ib = (struct gyre_ib_transport *)(void *)rig.ranks[0].transport;
    struct gyre_ib_send *send = &ib->peers[0].sends[0];
    (void)blob;
    send->lines.posted = send->lines.released = send->lines.credit = LATE_NUMBER;
    send->fifo.credit->head[GYRE_PROTO_LL] = LATE_NUMBER;
}

TEST_CASE("once in 2^30 slots all lines of a slot are sent")
{
    enum { LINE_BYTES = 256, N_WORDS = LINE_BYTES / 8, N_SLOTS = 8 };
    rig.spoil = make_late;
    ib_rig_prepare(&rig, 2, 1, 4096);
    rig.spec.net_line_bytes = LINE_BYTES;
    for (int r = 0; r < 2; r++)
        rig.ranks[r].config.spec = rig.spec;
    CHECK_OK(ib_rig_connect(&rig));
    struct pipe pipe = {end_of(0, 1, 0, true), end_of(1, 0, 0, false), 0};
    pipe.in.n_moved = pipe.out.n_moved = LATE_NUMBER;
    pipe.in.slot = pipe.out.slot = LATE_NUMBER % IB_RIG_DEPTH;
    gyre_store_release_u64(&pipe.in.credit->head[GYRE_PROTO_LL], LATE_NUMBER);
    for (uint32_t i = 0; i < N_SLOTS && test_n_failures == 0; i++) {
        const uint64_t number = pipe.in.n_moved;
        const uint64_t *words =
            (const uint64_t *)(const void *)(pipe.in.slots + (size_t)pipe.in.slot * LINE_BYTES);
        TEST_YIELD_UNTIL(send_slot(&pipe));
        TEST_YIELD_UNTIL(receive_slot(&pipe));
        const bool is_cleaned = number >= 1ULL << 30 && number < (1ULL << 30) + IB_RIG_DEPTH;
        const uint64_t *last = &words[N_WORDS - 1];
        TEST_YIELD_UNTIL(!is_cleaned || gyre_load_acquire_u64(last) >> 32 == gyre_ll_flag(number));
        CHECK_MSG(!is_cleaned || gyre_load_acquire_u64(last) >> 32 == gyre_ll_flag(number),
                  "slot %llu", (unsigned long long)number);
    }
    CHECK(!ib_rig_has_fault(&rig));
    ib_rig_close(&rig);
}
