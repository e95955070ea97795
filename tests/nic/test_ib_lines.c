/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/util.h"
#include "tests/nic/ib_rig.h"
#include "tests/transport/line_pipe.h"

#include <sched.h>

enum { N_FIFOS = 3 };

/* From rank 0 to rank 1. */
struct pipe {
    struct line_pipe out, in;
};

/* Of the case. */
static struct ib_rig rig;
static struct pipe pipes[N_FIFOS];

/* Between two ranks, with lines. */
static void connect_lines(uint32_t n_fifos, uint32_t line_bytes)
{
    ib_rig_prepare(&rig, 2, n_fifos, 4096);
    rig.spec.net_line_bytes = line_bytes;
    for (int r = 0; r < 2; r++)
        rig.ranks[r].config.spec = rig.spec;
    const gyre_status status = ib_rig_connect(&rig);
    CHECK_MSG(status == GYRE_SUCCESS, "%s", gyre_cause());
    for (uint32_t f = 0; f < n_fifos && status == GYRE_SUCCESS; f++)
        pipes[f] = (struct pipe){line_pipe_of(&rig.spec, rig.ranks[0].connectors, 0, 1, f, true),
                                 line_pipe_of(&rig.spec, rig.ranks[1].connectors, 1, 0, f, false)};
}

static void open_rig(const struct vm_device *devices, char **environment, uint32_t line_bytes)
{
    rig = (struct ib_rig){.devices = devices, .environment = environment};
    connect_lines(N_FIFOS, line_bytes);
}

static void pass(uint64_t n)
{
    const uint64_t until_ns = gyre_now_ns() + 60000000000ULL;
    uint64_t n_left = n * N_FIFOS;
    while (n_left > 0 && gyre_now_ns() < until_ns && !ib_rig_has_fault(&rig)) {
        bool has_moved = false;
        for (uint32_t f = 0; f < N_FIFOS; f++) {
            if (pipes[f].out.end.n_moved < n)
                has_moved = line_send_slot(&pipes[f].out) || has_moved;
            if (pipes[f].in.end.n_moved < n && line_receive_slot(&pipes[f].in)) {
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
    static const uint32_t sizes[] = {256, 4096, 2 * LINE_MOST_BYTES};
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
    open_rig(devices, NULL, 2 * LINE_MOST_BYTES);
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
    while (pipes[0].out.end.n_moved < IB_RIG_DEPTH && line_send_slot(&pipes[0].out))
        ;
    CHECK(pipes[0].out.end.n_moved == IB_RIG_DEPTH);
    gyre_transport_ib.wake(rig.ranks[0].transport);
    TEST_YIELD_UNTIL(vm_counters().n_posts != n_posts);
    CHECK(gyre_load_acquire_u64(&pipes[0].out.end.credit->head[GYRE_PROTO_LL]) == 0);
    CHECK(!line_send_slot(&pipes[0].out) && !line_receive_slot(&pipes[0].in));
    vm_port_set("mem0", 1, true);
    pass(20);
    ib_rig_close(&rig);
}

/* Whether n slots have been sent and received. */
static bool move_slots(struct pipe *pipe, uint64_t n)
{
    if (pipe->out.end.n_moved < n)
        (void)line_send_slot(&pipe->out);
    (void)line_receive_slot(&pipe->in);
    return pipe->in.end.n_moved >= n;
}

TEST_CASE("slots may be returned before they are sent")
{
    open_rig(ib_rig_one_nic, NULL, 1024);
    for (int i = 0; i < IB_RIG_DEPTH; i++)
        line_advance(&pipes[0].in.end);
    const uint64_t n_posts = vm_counters().n_posts;
    gyre_store_release_u64(&pipes[0].in.end.credit->head[GYRE_PROTO_LL], IB_RIG_DEPTH);
    gyre_transport_ib.wake(rig.ranks[1].transport);
    TEST_YIELD_UNTIL(vm_counters().n_posts != n_posts);
    CHECK(vm_counters().n_posts > n_posts); /* the credit is under way */
    TEST_YIELD_UNTIL(move_slots(&pipes[0], 2 * IB_RIG_DEPTH) || ib_rig_has_fault(&rig));
    CHECK(pipes[0].in.end.n_moved == 2 * IB_RIG_DEPTH);
    CHECK(!ib_rig_has_fault(&rig));
    ib_rig_close(&rig);
}

TEST_CASE("a peer that is gone raises the fault of the sender")
{
    open_rig(ib_rig_one_nic, NULL, 1024);
    vm_fail_send(IBV_WR_RDMA_WRITE, IBV_WC_RETRY_EXC_ERR);
    CHECK(line_send_slot(&pipes[0].out));
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

/* Before any proxy runs. */
static void make_late(unsigned char *blob)
{
    struct gyre_ib_transport *ib = (struct gyre_ib_transport *)(void *)rig.ranks[0].transport;
    struct gyre_ib_send *send = &ib->peers[0].sends[0];
    (void)blob;
    send->lines.posted = send->lines.released = send->lines.credit = LINE_LATE_NUMBER;
    send->fifo.credit->head[GYRE_PROTO_LL] = LINE_LATE_NUMBER;
}

TEST_CASE("once in 2^30 slots all lines of a slot are sent")
{
    struct pipe *pipe = &pipes[0];
    rig.spoil = make_late;
    connect_lines(1, 256);
    pipe->in.end.n_moved = pipe->out.end.n_moved = LINE_LATE_NUMBER;
    pipe->in.end.slot = pipe->out.end.slot = LINE_LATE_NUMBER % IB_RIG_DEPTH;
    line_return_slots(&pipe->in);
    for (uint32_t i = 0; i < 8 && test_n_failures == 0; i++) {
        const uint64_t number = pipe->in.end.n_moved;
        TEST_YIELD_UNTIL(line_send_slot(&pipe->out));
        TEST_YIELD_UNTIL(line_receive_slot(&pipe->in));
        line_check_cleaned(&pipe->in, number);
    }
    CHECK(!ib_rig_has_fault(&rig));
    ib_rig_close(&rig);
}
