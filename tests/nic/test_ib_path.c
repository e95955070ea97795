/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"
#include "tests/support/check.h"
#include "tests/nic/ib_rig.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>

static void print_faults(struct ib_rig *rig)
{
    for (int r = 0; r < rig->n_ranks; r++)
        if (gyre_fault_status(&rig->ranks[r].fault) != GYRE_SUCCESS)
            fprintf(stderr, "rank %d: %s\n", r, gyre_cause());
}

static void run_sends(const struct vm_device *devices, char **environment, int n_ranks,
                      uint32_t n_fifos, uint32_t slot_bytes)
{
    struct ib_rig rig = {.devices = devices, .environment = environment};
    ib_rig_prepare(&rig, n_ranks, n_fifos, slot_bytes);
    const gyre_status status = ib_rig_connect(&rig);
    CHECK_MSG(status == GYRE_SUCCESS, "%s", gyre_cause());
    if (status == GYRE_SUCCESS) {
        CHECK(ib_rig_send_all(&rig, 300));
        CHECK_MSG(!ib_rig_has_fault(&rig), "a fault was raised");
        print_faults(&rig);
        CHECK(gyre_transport_ib.memory_bytes(rig.ranks[0].transport) >
              2ULL * IB_RIG_DEPTH * slot_bytes);
    }
    ib_rig_close(&rig);
}

TEST_RUNS("numbered slots pass every FIFO in both directions",
          run_sends(ib_rig_one_nic, NULL, 2, 5, 4096))
TEST_RUNS("four ranks send to each other", run_sends(ib_rig_one_nic, NULL, 4, 2, 1024))

TEST_CASE("far pairs have sizes of their own")
{
    static const struct gyre_fifo_size sizes[] = {{2, 256}, {1, 1200}, {3, 4096}};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(sizes); i++) {
        struct ib_rig rig = {0};
        ib_rig_prepare(&rig, 3, 4, 5000);
        ib_rig_describe_far(&rig, sizes[i]);
        CHECK_OK(ib_rig_connect(&rig));
        CHECK(ib_rig_send_all(&rig, 100));
        print_faults(&rig);
        const struct gyre_connector *ends = rig.ranks[0].connectors;
        const struct gyre_connector *near = &ends[gyre_connector_index(&rig.spec, 2, 3, true)];
        const struct gyre_connector *far = &ends[gyre_connector_index(&rig.spec, 1, 0, true)];
        CHECK(near->slot_bytes == 5000 && far->slot_bytes == sizes[i].slot_bytes);
        CHECK(ends[gyre_connector_index(&rig.spec, 1, sizes[i].n_fifos, true)].inbox == NULL);
        ib_rig_close(&rig);
    }
}

TEST_CASE("small slots travel in one message")
{
    struct ib_rig rig = {0};
    ib_rig_open(&rig, 2, 1, 200);
    CHECK(ib_rig_send_all(&rig, 40));
    const struct vm_counters counters = vm_counters();
    CHECK(counters.n_writes == 0);
    /* 80 slots, and not a credit for each */
    CHECK_MSG(counters.n_imms < 80 + 80, "%" PRIu64, counters.n_imms);
    CHECK(counters.n_inline == counters.n_imms);
    CHECK_MSG(counters.n_cqes < 80, "%" PRIu64 " completions", counters.n_cqes);
    ib_rig_close(&rig);
}

static void two_devices(struct vm_device devices[3])
{
    devices[0] = ib_rig_one_nic[0];
    devices[1] = ib_rig_one_nic[0];
    devices[1].name = "mem1";
    devices[1].ports[0].gids[3].address = "10.0.1.1";
    devices[2].name = NULL;
}

/* Waits for the last credit, which follows the data. */
static uint32_t queue_pairs_used(uint32_t expected)
{
    TEST_YIELD_UNTIL(vm_counters().n_queue_pairs_used >= expected);
    return (uint32_t)vm_counters().n_queue_pairs_used;
}

TEST_CASE("slots are striped over queue pairs and rails")
{
    struct vm_device devices[3];
    char *environment[] = {"GYRE_IB_QPS_PER_CONNECTION=2", NULL};
    two_devices(devices);
    struct ib_rig rig = {.devices = devices, .environment = environment};
    ib_rig_open(&rig, 2, 2, 300000);
    CHECK(ib_rig_send_all(&rig, 100));
    /* each rank: 2 rails x 2 queue pairs and the control queue pair */
    const uint32_t n_used = queue_pairs_used(10);
    CHECK_MSG(n_used == 10, "%u", n_used);
    CHECK_MSG(vm_counters().largest_bytes <= 75008, "%" PRIu64, vm_counters().largest_bytes);
    ib_rig_close(&rig);
}

static void check_pairs(const struct gyre_ib_rail_list *mine,
                        const struct gyre_ib_rail_list *theirs, int cross, const char *expected)
{
    struct gyre_ib_rail_pairs pairs = {.n = 0};
    struct gyre_ib_rail_pairs back = {.n = 0};
    char text[64] = "";
    const gyre_status status = gyre_ib_pair_rails(mine, theirs, cross, "GYRE_CROSS_NIC", &pairs);
    CHECK(gyre_ib_pair_rails(theirs, mine, cross, "GYRE_CROSS_NIC", &back) == status);
    CHECK(back.n == pairs.n);
    for (int i = 0; i < pairs.n; i++) {
        const size_t used = strlen(text);
        snprintf(text + used, sizeof(text) - used, "%u-%u ", mine->indices[pairs.mine[i]],
                 theirs->indices[pairs.theirs[i]]);
        CHECK(back.mine[i] == pairs.theirs[i] && back.theirs[i] == pairs.mine[i]);
    }
    CHECK_MSG(strcmp(text, expected) == 0, "cross %d: %s instead of %s", cross, text, expected);
}

TEST_CASE("rails are paired as GYRE_CROSS_NIC says")
{
    const struct gyre_ib_rail_list both = {2, {0, 1}};
    const struct gyre_ib_rail_list swapped = {2, {1, 0}};
    const struct gyre_ib_rail_list second = {2, {1, 2}};
    const struct gyre_ib_rail_list far = {2, {4, 5}};
    const struct gyre_ib_rail_list one = {1, {1}};
    struct gyre_ib_rail_pairs pairs;
    for (int cross = 0; cross < 3; cross++)
        check_pairs(&both, &both, cross, "0-0 1-1 ");
    check_pairs(&both, &swapped, 0, "0-0 1-1 ");
    check_pairs(&both, &swapped, 1, "0-1 1-0 ");
    check_pairs(&both, &swapped, 2, "0-0 1-1 ");
    check_pairs(&both, &second, 0, "1-1 ");
    check_pairs(&both, &second, 1, "0-1 1-2 ");
    check_pairs(&both, &second, 2, "1-1 ");
    check_pairs(&both, &one, 0, "1-1 ");
    check_pairs(&both, &one, 1, "0-1 ");
    check_pairs(&both, &far, 2, "0-4 1-5 ");
    CHECK_FAILS(gyre_ib_pair_rails(&both, &far, 0, "GYRE_CROSS_NIC", &pairs),
                GYRE_ERROR_UNSUPPORTED, "near rails 0,1, the peer near 4,5");
}

TEST_CASE("ranks with different numbers of rails use those that both have")
{
    struct vm_device devices[3];
    char *fewer[] = {"GYRE_IB_QPS_PER_CONNECTION=2", "GYRE_IB_HCA==mem0", NULL};
    char *all[] = {"GYRE_IB_QPS_PER_CONNECTION=2", NULL};
    struct gyre_params params;
    two_devices(devices);
    struct ib_rig rig = {.devices = devices, .environment = all};
    CHECK_OK(gyre_params_from(fewer, &params));
    ib_rig_prepare(&rig, 2, 2, 300000);
    rig.ranks[1].config.params = &params;
    CHECK_OK(ib_rig_connect(&rig));
    CHECK(ib_rig_send_all(&rig, 50));
    CHECK(!ib_rig_has_fault(&rig));
    /* each rank: one rail of two queue pairs, and the control queue pair */
    const uint32_t n_used = queue_pairs_used(6);
    CHECK_MSG(n_used == 6, "%u", n_used);
    ib_rig_close(&rig);
}

static bool is_there_with_its_tail(struct ib_rig *rig, uint32_t n_bytes)
{
    const uint32_t index = gyre_connector_index(&rig->spec, 0, 0, false);
    const struct gyre_connector *connector = &rig->ranks[1].connectors[index];
    CHECK(ib_rig_send(rig, 0, 1, 0, n_bytes));
    TEST_YIELD_UNTIL(gyre_load_acquire_u64(&connector->inbox->tail[0]) != 0);
    CHECK(gyre_load_acquire_u64(&connector->inbox->tail[0]) == 1);
    return connector->slots[0][n_bytes - 1] == ib_rig_byte(0, 1, 0, 0, n_bytes - 1);
}

TEST_CASE("a fence comes between a NIC's writes and the tail")
{
    static char never[] = "GYRE_NET_GDR_FENCE=0", always[] = "GYRE_NET_GDR_FENCE=1";
    struct vm_device devices[3];
    two_devices(devices);
    for (int is_fenced = 0; is_fenced < 2; is_fenced++) {
        char *environment[] = {"GYRE_IB_QPS_PER_CONNECTION=2", is_fenced ? always : never, NULL};
        struct ib_rig rig = {.devices = devices, .environment = environment};
        ib_rig_prepare(&rig, 2, 2, 300000);
        vm_hide(true);
        CHECK_OK(ib_rig_connect(&rig));
        if (is_fenced) {
            CHECK(ib_rig_send_all(&rig, 200));
            CHECK_MSG(vm_counters().n_reads >= 2, "%" PRIu64, vm_counters().n_reads);
        } else {
            /* Without fences the bytes would be missing. */
            CHECK(!is_there_with_its_tail(&rig, 300000));
            CHECK(vm_counters().n_reads == 0);
        }
        CHECK(!ib_rig_has_fault(&rig));
        ib_rig_close(&rig);
    }
}

TEST_CASE("a fence that fails is an error")
{
    char *environment[] = {"GYRE_NET_GDR_FENCE=1", NULL};
    struct ib_rig rig = {.environment = environment};
    ib_rig_open(&rig, 2, 1, 4096);
    vm_fail_send(IBV_WR_RDMA_READ, IBV_WC_LOC_PROT_ERR);
    CHECK(!ib_rig_send_all(&rig, 20));
    CHECK(gyre_fault_status(&rig.ranks[0].fault) == GYRE_ERROR_DEVICE ||
          gyre_fault_status(&rig.ranks[1].fault) == GYRE_ERROR_DEVICE);
    CHECK_HAS(gyre_cause(), "lets the GPU see received data: LOC_PROT");
    ib_rig_close(&rig);
}

TEST_CASE("a message is never longer than the port takes")
{
    struct vm_device devices[2] = {ib_rig_one_nic[0]};
    devices[0].ports[0].max_msg_bytes = 4096;
    run_sends(devices, NULL, 2, 2, 30000);
}

TEST_CASE("queues of the size that was asked for never overrun")
{
    struct vm_device devices[2] = {ib_rig_one_nic[0]};
    devices[0].max_qp_wr = 60; /* less than 5 FIFOs x 4 slots x 2 sends, enough for the receives */
    run_sends(devices, NULL, 2, 5, 4096);
}

TEST_CASE("a rank has as many queue pairs as can be told apart")
{
    struct gyre_params params;
    char *environment[] = {"GYRE_IB_QPS_PER_CONNECTION=4", NULL};
    CHECK_OK(gyre_params_from(environment, &params));
    struct gyre_ib_transport ib = {.config = {.params = &params, .n_peers = 820}, .n_rails = 4};
    CHECK_FAILS(gyre_ib_channels_open(&ib), GYRE_ERROR_UNSUPPORTED, "16400 queue pairs");
}

static void tell_of_four_rails(unsigned char *blob)
{
    const uint32_t n_rails = 4;
    memcpy(blob + 2 * sizeof(n_rails), &n_rails, sizeof(n_rails));
}

TEST_CASE("a peer cannot tell of more queue pairs than there is room for")
{
    char *environment[] = {"GYRE_IB_QPS_PER_CONNECTION=16", NULL};
    struct ib_rig rig = {.environment = environment, .spoil = tell_of_four_rails};
    ib_rig_prepare(&rig, 2, 1, 1024);
    CHECK_FAILS(ib_rig_connect(&rig), GYRE_ERROR_REMOTE, "rank 0 told of 4 rails with 16 QPs");
    ib_rig_close(&rig);
}

TEST_CASE("an event that comes late does not keep the proxy awake")
{
    struct ib_rig rig = {0};
    const uint64_t one = 1;
    uint64_t event = 0;
    ib_rig_open(&rig, 2, 1, 1024);
    struct gyre_ib_transport *ib = (struct gyre_ib_transport *)rig.ranks[1].transport;
    gyre_proxy_close(ib->proxy); /* the test plays it */
    ib->proxy = NULL;
    const int event_fd = ib->rails[0].events->fd;
    struct pollfd nap = {.fd = ib->nap_fd, .events = POLLIN};
    while (gyre_ib_poll(ib) || gyre_ib_settle(ib))
        continue;
    CHECK(ib->rails[0].is_armed && poll(&nap, 1, 0) == 0);
    CHECK(ib_rig_send(&rig, 0, 1, 0, 100));
    CHECK(poll(&nap, 1, 20000) == 1);
    CHECK(read(event_fd, &event, sizeof(event)) == sizeof(event));
    while (gyre_ib_poll(ib) || gyre_ib_settle(ib))
        continue;
    CHECK(write(event_fd, &one, sizeof(one)) == sizeof(one));
    CHECK(poll(&nap, 1, 0) == 1);
    CHECK(!gyre_ib_poll(ib) && !gyre_ib_settle(ib));
    CHECK(ib->rails[0].is_armed && poll(&nap, 1, 0) == 0);
    ib_rig_close(&rig);
}

TEST_CASE("a completion queue that cannot hold all is refused")
{
    struct vm_device devices[2] = {ib_rig_one_nic[0]};
    struct ib_rig rig = {.devices = devices};
    devices[0].max_cqe = 50;
    ib_rig_prepare(&rig, 2, 4, 1024);
    CHECK_FAILS(ib_rig_connect(&rig), GYRE_ERROR_UNSUPPORTED, "a queue of this device holds 50");
    ib_rig_close(&rig);
}

TEST_CASE("the path uses the class and the smaller MTU")
{
    struct vm_device devices[3] = {ib_rig_one_nic[0]};
    char *environment[] = {"GYRE_IB_TC=106", NULL};
    struct ib_rig rig = {.devices = devices, .environment = environment};
    devices[0].ports[0].active_mtu = IBV_MTU_1024;
    ib_rig_open(&rig, 2, 1, 1024);
    CHECK(vm_counters().last_traffic_class == 106);
    CHECK(vm_counters().last_path_mtu == IBV_MTU_1024);
    CHECK(strcmp(gyre_transport_ib.describe(rig.ranks[0].transport, 1), "NET/IB/0") == 0);
    ib_rig_close(&rig);
    /* Rank 0 has the smaller MTU. */
    char *first[] = {"GYRE_IB_HCA==mem0", NULL}, *second[] = {"GYRE_IB_HCA==mem1", NULL};
    struct gyre_params params;
    two_devices(devices);
    devices[0].ports[0].active_mtu = IBV_MTU_1024;
    rig = (struct ib_rig){.devices = devices, .environment = first};
    ib_rig_prepare(&rig, 2, 1, 1024);
    CHECK_OK(gyre_params_from(second, &params));
    rig.ranks[1].config.params = &params;
    CHECK_OK(ib_rig_connect(&rig));
    CHECK(vm_counters().last_path_mtu == IBV_MTU_1024);
    ib_rig_close(&rig);
}

TEST_CASE("InfiniBand needs no GID")
{
    struct vm_device devices[2] = {ib_rig_one_nic[0]};
    devices[0].ports[0].is_infiniband = true;
    memset(devices[0].ports[0].gids, 0, sizeof(devices[0].ports[0].gids));
    run_sends(devices, NULL, 2, 1, 512);
}

static void expect_refusal(const struct vm_device *devices, char **environment, gyre_status status,
                           const char *words)
{
    struct ib_rig rig = {.devices = devices, .environment = environment};
    ib_rig_prepare(&rig, 2, 1, 1024);
    CHECK_FAILS(ib_rig_connect(&rig), status, words);
    ib_rig_close(&rig);
}

TEST_CASE("no usable GID prints the table with the reasons")
{
    char *environment[] = {"GYRE_IB_ADDR_RANGE=192.168.0.0/16", NULL};
    expect_refusal(ib_rig_one_nic, environment, GYRE_ERROR_UNSUPPORTED,
                   "mem0:1: no usable GID: [0] fe80::5054:ff:fe77:1 v1: RoCE v1, asked for v2; [1] "
                   "fe80::5054:ff:fe77:1 v2: outside GYRE_IB_ADDR_RANGE");
}

TEST_CASE("a forced index of an empty row is refused")
{
    char *environment[] = {"GYRE_IB_GID_INDEX=9", NULL};
    expect_refusal(ib_rig_one_nic, environment, GYRE_ERROR_INVALID_ARGUMENT,
                   "IB_GID_INDEX=9: the GID table has no such usable row");
}

TEST_CASE("a port that is down is named")
{
    struct vm_device devices[2] = {ib_rig_one_nic[0]};
    devices[0].ports[0].state = IBV_PORT_DOWN;
    expect_refusal(devices, NULL, GYRE_ERROR_UNSUPPORTED, "mem0:1 is not active");
}

TEST_RUNS("a machine without devices says so",
          expect_refusal(&ib_rig_one_nic[1], NULL, GYRE_ERROR_UNSUPPORTED,
                         "there is no RDMA device"))

TEST_CASE("memlock is explained with numbers")
{
    for (int after = 0; after < 4; after++) {
        struct ib_rig rig = {0};
        ib_rig_prepare(&rig, 2, 1, 65536);
        vm_fail_reg_mr(ENOMEM, after);
        CHECK_FAILS(ib_rig_connect(&rig), GYRE_ERROR_OUT_OF_MEMORY, "E501 ibv_reg_mr(");
        CHECK_HAS(gyre_cause(), "memlock limit is");
        ib_rig_close(&rig);
    }
}

TEST_CASE("each errno of address resolution is explained")
{
    static const struct {
        int error_number;
        const char *words;
    } cases[] = {{ENETUNREACH, "no route from this GID's interface"},
                 {EHOSTUNREACH, "no route from this GID's interface"},
                 {EINVAL, "families differ"},
                 {ENODEV, "network namespace"},
                 {ENOMEM, "memlock"}};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(cases); i++) {
        struct ib_rig rig = {0};
        ib_rig_prepare(&rig, 2, 1, 1024);
        vm_fail_modify(IBV_QPS_RTR, cases[i].error_number, 1);
        CHECK_FAILS(ib_rig_connect(&rig), GYRE_ERROR_SYSTEM, cases[i].words);
        CHECK_HAS(gyre_cause(), "INIT->RTR, local GID 3 10.0.0.1, remote GID 10.0.0.1");
        CHECK_HAS(gyre_cause(), "to rank 1 (host1) over ib");
        ib_rig_close(&rig);
    }
}

TEST_CASE("a peer that resolves late is tried again")
{
    struct ib_rig rig = {0};
    ib_rig_prepare(&rig, 2, 1, 1024);
    vm_fail_modify(IBV_QPS_RTR, ETIMEDOUT, 3);
    CHECK_OK(ib_rig_connect(&rig));
    CHECK(ib_rig_send_all(&rig, 3));
    ib_rig_close(&rig);
}

TEST_CASE("probing says why there is no RDMA")
{
    struct gyre_params params;
    struct gyre_peer_info info;
    char *disabled[] = {"GYRE_IB_DISABLE=1", NULL};
    char *other[] = {"GYRE_IB_HCA==mlx5_0", NULL};
    char *nothing[] = {NULL};
    CHECK(vm_install(ib_rig_one_nic));
    memset(&info, 0, sizeof(info));
    CHECK_OK(gyre_params_from(nothing, &params));
    gyre_transport_ib_probe(&params, &info);
    CHECK_MSG(info.ib_usable == 1, "%s", info.ib_reason);
    CHECK_OK(gyre_params_from(disabled, &params));
    gyre_transport_ib_probe(&params, &info);
    CHECK(info.ib_usable == 0 && strstr(info.ib_reason, "IB_DISABLE") != NULL);
    CHECK_OK(gyre_params_from(other, &params));
    gyre_transport_ib_probe(&params, &info);
    CHECK(info.ib_usable == 0 && strstr(info.ib_reason, "left out by GYRE_IB_HCA") != NULL);
    CHECK(vm_uninstall());
}
