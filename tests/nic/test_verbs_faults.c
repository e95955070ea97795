/* SPDX-License-Identifier: Apache-2.0
 *
 * Each fault that the device between processes can inject does what verbs_wire/README.md says.
 */
#include "core/foundation/base/util.h"
#include "tests/nic/wire_faults.h"
#include "tests/nic/wire_rig.h"
#include "tests/support/check.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>

/* 4 tries of 67 ms, as the rig sets its queue pairs */
#define WINDOW_NS (4 * (4096ULL << 14))

static void inject(const char *text)
{
    set_faults(text);
    await_faults(text, 1);
    await_faults(text, 2);
}

static void run_with(struct rig_options options, rig_end_fn run_a, rig_end_fn run_b)
{
    begin_faults("verbs_faults");
    rig_on_two(options, run_a, run_b);
    remove_faults();
}

static void run(int n_qps, rig_end_fn run_a, rig_end_fn run_b)
{
    run_with((struct rig_options){.n_qps = n_qps}, run_a, run_b);
}

static void start(struct rig_end *end)
{
    memset(end->memory, end->me == 0 ? 7 : 0, RIG_MEMORY_BYTES);
    rig_barrier(end);
}

/* ---- the port ------------------------------------------------------------------------------- */

static void expect_event(struct rig_end *end, enum ibv_event_type type)
{
    struct ibv_async_event event = {.event_type = IBV_EVENT_CQ_ERR};
    struct pollfd readable = {.fd = end->context->async_fd, .events = POLLIN};
    CHECK(poll(&readable, 1, (int)(RIG_LIMIT_NS / 1000000)) == 1);
    CHECK(end->verbs->get_async_event(end->context, &event) == 0);
    CHECK_MSG(event.event_type == type && event.element.port_num == 1, "event %d",
              (int)event.event_type);
    end->verbs->ack_async_event(&event);
}

static enum ibv_port_state port_state(struct rig_end *end)
{
    struct ibv_port_attr attr;
    memset(&attr, 0, sizeof(attr));
    CHECK(end->verbs->query_port(end->context, 1, (void *)&attr) == 0);
    return attr.state;
}

static void write_through_flap(struct rig_end *end)
{
    start(end);
    inject("host1 0 down\n");
    expect_event(end, IBV_EVENT_PORT_ERR);
    CHECK(port_state(end) == IBV_PORT_DOWN);
    rig_post_write(end, &(struct rig_write){.n_bytes = 8});
    inject("# up again\n");
    expect_event(end, IBV_EVENT_PORT_ACTIVE);
    CHECK(port_state(end) == IBV_PORT_ACTIVE);
    rig_expect(end, IBV_WC_SUCCESS);
    rig_barrier(end);
}

static void see_nothing_of_flap(struct rig_end *end)
{
    start(end);
    rig_barrier(end);
    struct pollfd readable = {.fd = end->context->async_fd, .events = POLLIN};
    CHECK(poll(&readable, 1, 0) == 0);
    CHECK(end->memory[7] == 7 && end->memory[8] == 0);
}

TEST_RUNS("a port that flaps tells its own host only, and a short flap costs time alone",
          run(1, write_through_flap, see_nothing_of_flap))

static void see_gids_move(struct rig_end *end)
{
    union ibv_gid before, after;
    start(end);
    CHECK(end->verbs->query_gid(end->context, 1, 3, &before) == 0);
    inject("host1 0 gids 4\n");
    expect_event(end, IBV_EVENT_GID_CHANGE);
    CHECK(end->verbs->query_gid(end->context, 1, 7, &after) == 0);
    CHECK(memcmp(&before, &after, sizeof(before)) == 0);
    CHECK(end->verbs->query_gid(end->context, 1, 3, &after) == 0);
    CHECK(memcmp(&before, &after, sizeof(before)) != 0);
    /* Queue pairs keep their addresses. */
    rig_post_write(end, &(struct rig_write){.n_bytes = 8});
    rig_expect(end, IBV_WC_SUCCESS);
    rig_barrier(end);
}

static void stay(struct rig_end *end)
{
    start(end);
    rig_barrier(end);
}

TEST_RUNS("the rows of GIDs move, and connected queue pairs go on", run(1, see_gids_move, stay))

static void write_slowly(struct rig_end *end)
{
    const uint32_t n_bytes = 1u << 20;
    start(end);
    inject("host1 0 mbit_per_s 100\n");
    const uint64_t began_ns = gyre_now_ns();
    rig_post_write(end, &(struct rig_write){.n_bytes = n_bytes});
    rig_expect(end, IBV_WC_SUCCESS);
    CHECK(gyre_now_ns() - began_ns >= n_bytes * UINT64_C(80));
    rig_barrier(end);
}

TEST_RUNS("a port of 100 Mbit/s takes 80 ns a byte", run(1, write_slowly, stay))

/* ---- loss ----------------------------------------------------------------------------------- */

static const char *lossy;
static bool arrives;

static void write_in_vain(struct rig_end *end)
{
    start(end);
    inject(lossy);
    const uint64_t began_ns = gyre_now_ns();
    rig_post_write(end, &(struct rig_write){.n_bytes = 8});
    rig_post_write(end, &(struct rig_write){.n_bytes = 16});
    rig_expect(end, IBV_WC_RETRY_EXC_ERR);
    rig_expect(end, IBV_WC_WR_FLUSH_ERR);
    CHECK(gyre_now_ns() - began_ns >= WINDOW_NS);
    rig_barrier(end);
}

static void see_what_arrives(struct rig_end *end)
{
    start(end);
    rig_barrier(end);
    CHECK(end->memory[7] == (arrives ? 7 : 0));
}

TEST_CASE("what is lost in either direction ends in retry exceeded")
{
    static const struct {
        const char *text;
        bool arrives;
    } cases[] = {
        {"host1 0 lose_out\n", false}, {"host2 0 lose_in\n", false},
        {"host2 0 down\n", false},     {"host1 0 lose_in\n", true}, /* the answers */
        {"host2 0 lose_out\n", true},  {"host1 0 lose_answers\n", true},
    };
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(cases); i++) {
        lossy = cases[i].text;
        arrives = cases[i].arrives;
        run(1, write_in_vain, see_what_arrives);
    }
}

static void write_to_silence(struct rig_end *end)
{
    start(end);
    inject("host1 0 only_answer\n");
    rig_post_write(end, &(struct rig_write){.n_bytes = 8, .has_imm = true});
    rig_expect(end, IBV_WC_SUCCESS);
    inject("# heard again\n");
    rig_post_write(end, &(struct rig_write){.offset = 64, .n_bytes = 16, .has_imm = true});
    rig_expect(end, IBV_WC_SUCCESS);
    rig_barrier(end);
}

static void hear_the_second(struct rig_end *end)
{
    rig_post_receives(end->qp, 2);
    rig_barrier(end);
    CHECK(rig_wait_completion(end).imm_data == 16);
    CHECK(end->memory[0] == 0 && end->memory[64] == 7);
    rig_barrier(end);
}

TEST_RUNS("a request that is only answered never arrives",
          run(1, write_to_silence, hear_the_second))

/* ---- late packets --------------------------------------------------------------------------- */

static bool is_fenced;

/* The first request comes from memory that changes when it is acknowledged. Its bytes land when its
 * queue pair is gone. */
static void write_and_leave(struct rig_end *end)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    start(end);
    inject("host1 0 late_ms 300\n");
    rig_post_write(end, &(struct rig_write){.n_bytes = 8});
    rig_expect(end, IBV_WC_SUCCESS);
    memset(end->memory, 9, RIG_MEMORY_BYTES);
    CHECK(end->verbs->modify_qp(end->qp, &attr, IBV_QP_STATE) == 0);
    rig_barrier(end);
    rig_barrier(end);
    end->qp = end->qps[1];
    rig_post_write(end, &(struct rig_write){.offset = 64, .n_bytes = 16, .has_imm = true});
    rig_expect(end, IBV_WC_SUCCESS);
    rig_barrier(end);
}

static void see_late_bytes(struct rig_end *end)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    rig_post_receives(end->qps[1], 1);
    rig_barrier(end);
    rig_barrier(end);
    CHECK(end->memory[0] == 0);
    if (is_fenced)
        CHECK(end->verbs->modify_qp(end->qp, &attr, IBV_QP_STATE) == 0);
    rig_barrier(end);
    CHECK(rig_wait_completion(end).imm_data == 16);
    CHECK_MSG(end->memory[7] == (is_fenced ? 0 : 7), "byte %d", end->memory[7]);
    CHECK(end->memory[64] == 9);
    rig_barrier(end);
}

TEST_CASE("an acknowledged write lands late with the bytes it had, unless its target is fenced")
{
    is_fenced = false;
    run(2, write_and_leave, see_late_bytes);
    is_fenced = true;
    run(2, write_and_leave, see_late_bytes);
}

static const struct move between_places[] = {
    {.source = HOST, .target = GPU_A, .from = 64, .to = 128, .n_bytes = 3000},
    {.source = GPU_A, .target = GPU_B, .from = 0, .to = 4096, .n_bytes = 200000},
    {.source = GPU_B, .target = HOST, .from = 8192, .to = 0, .n_bytes = 5000, .has_imm = true},
};

static void write_places_late(struct rig_end *end)
{
    inject("host1 0 late_ms 20\n");
    places_post(end, 0, between_places, 3);
    places_expect_all(end, 3);
    rig_barrier(end);
}

static void expect_places(struct rig_end *end)
{
    CHECK(rig_wait_completion(end).imm_data == 2);
    for (int i = 0; i < 3; i++) {
        const struct move *move = &between_places[i];
        places_expect(end, (int)move->target, move->to, places_pattern[move->source] + move->from,
                      move->n_bytes);
    }
    rig_barrier(end);
}

TEST_RUNS("late bytes reach GPU memory, too",
          run_with((struct rig_options){.has_places = true, .n_qps = 1, .n_receives = 1},
                   write_places_late, expect_places))

/* ---- calls ---------------------------------------------------------------------------------- */

static void call_what_hangs(struct rig_end *end)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    struct ibv_wc wc;
    start(end);
    rig_post_receives(end->qp, 1);
    inject("host1 0 no_flushes\nhost1 0 rtr_ms 20\nhost1 0 destroy_ms 30\n");
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR};
    uint64_t began_ns = gyre_now_ns();
    CHECK(end->verbs->modify_qp(end->qp, &rtr, IBV_QP_STATE) == ETIMEDOUT);
    CHECK(gyre_now_ns() - began_ns >= 20000000);
    CHECK(end->verbs->modify_qp(end->qp, &attr, IBV_QP_STATE) == 0);
    CHECK(ibv_poll_cq(end->cq, 1, &wc) == 0);
    began_ns = gyre_now_ns();
    CHECK(end->verbs->destroy_qp(end->qp) == 0);
    CHECK(gyre_now_ns() - began_ns >= 30000000);
    end->n_qps = 0;
    rig_barrier(end);
}

static void flush_in_the_end(struct rig_end *end)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    start(end);
    rig_post_receives(end->qp, 1);
    CHECK(end->verbs->modify_qp(end->qp, &attr, IBV_QP_STATE) == 0);
    rig_expect(end, IBV_WC_WR_FLUSH_ERR);
    rig_barrier(end);
}

TEST_RUNS("calls hang and flushes stay out, on the host that is named",
          run(1, call_what_hangs, flush_in_the_end))
