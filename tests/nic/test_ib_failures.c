/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/util.h"
#include "tests/support/check.h"
#include "tests/nic/ib_rig.h"
#include "transport/ib/ib_path.h"

#include <sched.h>

static struct ib_rig rig; /* of the case */

static void wait_for_fault(void)
{
    TEST_YIELD_UNTIL(ib_rig_has_fault(&rig));
    CHECK(gyre_fault_status(&rig.ranks[0].fault) != GYRE_SUCCESS ||
          gyre_fault_status(&rig.ranks[1].fault) != GYRE_SUCCESS); /* sets the cause */
}

static void start_ranks(uint32_t slot_bytes)
{
    ib_rig_open(&rig, 2, 2, slot_bytes);
    CHECK(ib_rig_send_all(&rig, 5));
}

TEST_CASE("each completion error is put in words")
{
    static const struct {
        enum ibv_wc_status status;
        const char *name;
        const char *hint;
    } cases[] = {
        {IBV_WC_RETRY_EXC_ERR, "no acknowledgement (RETRY_EXC, status 12", "does not answer"},
        {IBV_WC_RNR_RETRY_EXC_ERR, "RNR_RETRY_EXC, status 13", "no receive"},
        {IBV_WC_REM_ACCESS_ERR, "REM_ACCESS, status 10", "not registered"},
        {IBV_WC_REM_INV_REQ_ERR, "REM_INV_REQ, status 9", "refused the request"},
        {IBV_WC_REM_OP_ERR, "REM_OP, status 11", "could not execute"},
        {IBV_WC_LOC_PROT_ERR, "LOC_PROT, status 4", "not registered as used"},
        {IBV_WC_LOC_QP_OP_ERR, "LOC_QP_OP, status 2", "could not execute"},
        {IBV_WC_LOC_LEN_ERR, "LOC_LEN, status 1", "did not fit"},
        {IBV_WC_WR_FLUSH_ERR, "WR_FLUSH, status 5", "had failed before"},
        {IBV_WC_FATAL_ERR, "FATAL, status 19", "the device failed"},
        {IBV_WC_GENERAL_ERR, "GENERAL, status 21", "gives no reason"},
    };
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(cases); i++) {
        for (int large = 0; large < 2; large++) {
            start_ranks(4096);
            vm_fail_send(large ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM, cases[i].status);
            CHECK(!ib_rig_send_all(&rig, 30));
            wait_for_fault();
            CHECK_HAS(gyre_cause(), cases[i].name);
            CHECK_HAS(gyre_cause(), cases[i].hint);
            CHECK_HAS(gyre_cause(), "E401 RDMA mem0/1->10.0.0.1 (rank ");
            CHECK_HAS(gyre_cause(), "local GID 3 10.0.0.1 qpn 0x");
            CHECK_HAS(gyre_cause(), "MTU 4096 TC 0 = DSCP 0");
            ib_rig_close(&rig);
        }
    }
}

TEST_CASE("a failed receive is an error too")
{
    start_ranks(1024);
    vm_fail_recv(IBV_WC_LOC_ACCESS_ERR);
    CHECK(!ib_rig_send_all(&rig, 30));
    wait_for_fault();
    CHECK_HAS(gyre_cause(), "LOC_ACCESS");
    ib_rig_close(&rig);
}

TEST_CASE("a port that comes back costs nothing but time")
{
    start_ranks(4096);
    vm_port_set("mem0", 1, false);
    /* Not every send asks for a completion, so the slot before the first may not be released. */
    for (uint32_t i = 0; i < IB_RIG_DEPTH - 1; i++)
        CHECK(ib_rig_send(&rig, 0, 1, 0, ib_rig_step_bytes(&rig, 5 + i)));
    vm_event("mem0", IBV_EVENT_GID_CHANGE, 1);
    vm_port_set("mem0", 1, true);
    for (uint32_t i = 0; i < IB_RIG_DEPTH - 1; i++)
        TEST_YIELD_UNTIL(ib_rig_receive(&rig, 0, 1, 0, ib_rig_step_bytes(&rig, 5 + i)) ||
                         ib_rig_has_fault(&rig));
    CHECK(!ib_rig_has_fault(&rig));
    CHECK(ib_rig_send_all(&rig, 50));
    ib_rig_close(&rig);
}

TEST_CASE("a port that stays down ends in retry exceeded")
{
    start_ranks(4096);
    vm_port_set("mem0", 1, false);
    CHECK(ib_rig_send(&rig, 0, 1, 0, ib_rig_step_bytes(&rig, 5)));
    while (!ib_rig_has_fault(&rig)) {
        vm_expire("mem0");
        sched_yield();
    }
    wait_for_fault();
    CHECK_HAS(gyre_cause(), "RETRY_EXC");
    CHECK_HAS(gyre_cause(), "after 7x0.54s");
    CHECK_HAS(gyre_cause(), "This port is down.");
    ib_rig_close(&rig);
}

TEST_CASE("a rank that only receives notices its dead port")
{
    char *environment[] = {"GYRE_IB_TIMEOUT=1", "GYRE_IB_RETRY_CNT=0", NULL};
    rig.environment = environment;
    ib_rig_open(&rig, 2, 1, 1024);
    vm_port_set("mem0", 1, false);
    wait_for_fault();
    CHECK_HAS(gyre_cause(), "the port has been down for");
    ib_rig_close(&rig);
}

TEST_CASE("a peer that is silent is asked for a sign of life")
{
    start_ranks(200);
    /* The only plain write at this slot size is the probe. */
    CHECK(ib_rig_send_all(&rig, 5));
    CHECK(vm_counters().n_writes == 0);
    TEST_YIELD_UNTIL(vm_counters().n_writes >= 2 || ib_rig_has_fault(&rig));
    CHECK(ib_rig_send_all(&rig, 30));
    CHECK(!ib_rig_has_fault(&rig));
    vm_fail_send(IBV_WR_RDMA_WRITE, IBV_WC_RETRY_EXC_ERR);
    wait_for_fault();
    CHECK_HAS(gyre_cause(), "control channel): no acknowledgement (RETRY_EXC");
    ib_rig_close(&rig);
}

TEST_CASE("fatal events end the communicator and other ports do not")
{
    static const struct {
        enum ibv_event_type type;
        const char *words;
    } cases[] = {{IBV_EVENT_DEVICE_FATAL, "DEVICE_FATAL"}, {IBV_EVENT_CQ_ERR, "overrun"}};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(cases); i++) {
        start_ranks(1024);
        vm_event("mem0", IBV_EVENT_PORT_ERR, 2); /* not the port in use */
        vm_event("mem0", IBV_EVENT_LID_CHANGE, 1);
        CHECK(ib_rig_send_all(&rig, 5));
        CHECK(!ib_rig_has_fault(&rig));
        vm_event("mem0", cases[i].type, 0);
        wait_for_fault();
        CHECK_HAS(gyre_cause(), cases[i].words);
        ib_rig_close(&rig);
    }
}

/* What a side can see of two rails: a good one is active. */
static struct gyre_ib_rails_seen seen_of(uint32_t number)
{
    const struct gyre_ib_rails_seen seen = {.active = number & 3, .last = number >> 4 & 3};
    return (struct gyre_ib_rails_seen){seen.active, seen.active & (number >> 2 & 3), seen.last};
}

TEST_CASE("both ranks choose the same rails, active on both, and some if there are any")
{
    for (uint32_t number = 0; number < 1U << 12; number++) {
        const struct gyre_ib_rails_seen a = seen_of(number & 63), b = seen_of(number >> 6);
        const uint8_t chosen = gyre_ib_choose_rails(&a, &b);
        const uint8_t common = a.active & b.active;
        CHECK(chosen == gyre_ib_choose_rails(&b, &a));
        CHECK((chosen & ~common) == 0 && (chosen != 0) == (common != 0));
        CHECK((a.good & b.good) == 0 || chosen == (a.good & b.good));
        /* Of two rails that are not good the one that broke last is left out. */
        if ((a.good & b.good) == 0 && common == 3 && (a.last | b.last) == 1)
            CHECK(chosen == 2);
    }
}

TEST_CASE("a rail that fails again and again is tried less often, until an hour was calm")
{
    uint64_t wait_ns = 0;
    for (uint64_t move = 0; move < 12; move++) {
        wait_ns = gyre_ib_return_ns(wait_ns, wait_ns);
        CHECK(wait_ns == (5 * GYRE_SECOND_NS) << gyre_min_u64(move, 7));
    }
    CHECK(gyre_ib_return_ns(wait_ns, 3599 * GYRE_SECOND_NS) == 640 * GYRE_SECOND_NS);
    CHECK(gyre_ib_return_ns(wait_ns, 3600 * GYRE_SECOND_NS) == 5 * GYRE_SECOND_NS);
}

TEST_CASE("with NCCL_IB_RETURN_ASYNC_EVENTS=0 slots move on after a fatal event")
{
    char *environment[] = {"NCCL_IB_RETURN_ASYNC_EVENTS=0", NULL};
    rig.environment = environment;
    ib_rig_open(&rig, 2, 2, 1024);
    const uint64_t n_taken = vm_counters().n_events_taken;
    vm_event("mem0", IBV_EVENT_DEVICE_FATAL, 0);
    TEST_YIELD_UNTIL(vm_counters().n_events_taken >= n_taken + 2); /* by both ranks */
    CHECK(vm_counters().n_events_taken == n_taken + 2);
    CHECK(ib_rig_send_all(&rig, 30));
    CHECK(!ib_rig_has_fault(&rig));
    ib_rig_close(&rig);
}

TEST_TOGETHER(8)
