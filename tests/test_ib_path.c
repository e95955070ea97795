/* SPDX-License-Identifier: Apache-2.0
 *
 * The ib transport over the verbs device in memory: ranks are threads' worth of proxies in this
 * process, the test plays all executors.
 */
#include "core/base/sync.h"
#include "core/base/util.h"
#include "tests/check.h"
#include "tests/verbs_memory.h"
#include "transport/ib/ib_transport.h"
#include "transport/transport.h"

#include <errno.h>
#include <sched.h>

#define MAX_RANKS 4
#define DEPTH     4

static const struct vm_device one_nic[] = {
    {.name = "mem0",
     .n_ports = 1,
     .ports = {{.state = IBV_PORT_ACTIVE,
                .active_mtu = IBV_MTU_4096,
                .max_msg_bytes = 1 << 30,
                .gids = {{"fe80::5054:ff:fe77:1", 1},
                         {"fe80::5054:ff:fe77:1", 2},
                         {"10.0.0.1", 1},
                         {"10.0.0.1", 2}}}}},
    {.name = NULL},
};

struct rank_end {
    struct gyre_transport *transport;
    struct gyre_fault fault;
    struct gyre_transport_config config;
    uint16_t peers[MAX_RANKS];
    struct gyre_connector *connectors;
    uint64_t *published; /* by FIFO of the table of connectors */
    uint64_t *consumed;
};

struct world {
    struct gyre_params params;
    struct gyre_device *device;
    struct gyre_peer_info infos[MAX_RANKS];
    struct rank_end ranks[MAX_RANKS];
    int n_ranks;
    struct gyre_fifo_spec spec;
};

static void load_params(struct world *world, char **environment)
{
    static char *nothing[] = {NULL};
    CHECK_OK(gyre_params_from(environment != NULL ? environment : nothing, &world->params));
}

static void describe_world(struct world *world, int n_ranks, uint32_t n_fifos, uint32_t slot_bytes)
{
    world->n_ranks = n_ranks;
    world->spec = (struct gyre_fifo_spec){.n_fifos = n_fifos, .depth = DEPTH};
    world->spec.slot_bytes[GYRE_PROTO_SIMPLE] = slot_bytes;
    CHECK_OK(gyre_device_host.open(-1, &world->device));
    for (int r = 0; r < n_ranks; r++) {
        struct rank_end *end = &world->ranks[r];
        const size_t n = (size_t)n_ranks * n_fifos * 2;
        world->infos[r].rank = (uint32_t)r;
        snprintf(world->infos[r].host_name, sizeof(world->infos[r].host_name), "host%d", r);
        gyre_fault_init(&end->fault);
        end->connectors = calloc(n, sizeof(*end->connectors));
        end->published = calloc(n, sizeof(*end->published));
        end->consumed = calloc(n, sizeof(*end->consumed));
        int n_peers = 0;
        for (int p = 0; p < n_ranks; p++)
            if (p != r)
                end->peers[n_peers++] = (uint16_t)p;
        end->config = (struct gyre_transport_config){
            .device = world->device,
            .params = &world->params,
            .rank = r,
            .n_ranks = n_ranks,
            .infos = world->infos,
            .peers = end->peers,
            .n_peers = n_peers,
            .spec = world->spec,
            .traffic_class = -1,
            .service_level = -1,
            .fault = &end->fault,
        };
    }
}

/* Open all, exchange blobs as the bootstrap does, connect all. */
static gyre_status connect_world(struct world *world)
{
    unsigned char *blobs = NULL;
    size_t offsets[MAX_RANKS + 1] = {0};
    gyre_status status = GYRE_SUCCESS;
    for (int r = 0; r < world->n_ranks && status == GYRE_SUCCESS; r++) {
        void *blob = NULL;
        size_t n_bytes = 0;
        status = gyre_transport_ib.open(&world->ranks[r].config, &world->ranks[r].transport, &blob,
                                        &n_bytes);
        if (status != GYRE_SUCCESS)
            break;
        blobs = realloc(blobs, offsets[r] + n_bytes);
        memcpy(blobs + offsets[r], blob, n_bytes);
        offsets[r + 1] = offsets[r] + n_bytes;
        free(blob);
    }
    for (int r = 0; r < world->n_ranks && status == GYRE_SUCCESS; r++)
        status =
            gyre_transport_ib.connect(world->ranks[r].transport, blobs, offsets,
                                      gyre_now_ns() + 20000000000ULL, world->ranks[r].connectors);
    free(blobs);
    return status;
}

static void close_world(struct world *world)
{
    char cause[GYRE_CAUSE_MAX_BYTES];
    snprintf(cause, sizeof(cause), "%s", gyre_cause());
    for (int r = 0; r < world->n_ranks; r++) {
        struct rank_end *end = &world->ranks[r];
        if (end->transport != NULL)
            gyre_transport_ib.close(end->transport);
        gyre_fault_fini(&end->fault);
        free(end->connectors);
        free(end->published);
        free(end->consumed);
    }
    gyre_device_host.close(world->device);
    memset(world, 0, sizeof(*world));
    CHECK_MSG(vm_uninstall(), "something was not destroyed");
    gyre_set_cause(cause);
}

static bool any_fault(const struct world *world)
{
    for (int r = 0; r < world->n_ranks; r++)
        if (gyre_fault_is_raised(&world->ranks[r].fault))
            return true;
    return false;
}

static unsigned char byte_of(int from, int to, uint32_t fifo, uint64_t step, size_t i)
{
    return (unsigned char)(from * 67 + to * 31 + (int)fifo * 13 + (int)(step * 7) + (int)(i * 3));
}

/* The sending executor: publish one slot if there is room. */
static bool try_send(struct world *world, int from, int to, uint32_t fifo, uint32_t n_bytes)
{
    struct rank_end *end = &world->ranks[from];
    const uint32_t index = gyre_connector_index(&world->spec, (uint32_t)to, fifo, true);
    const struct gyre_connector *connector = &end->connectors[index];
    const uint64_t step = end->published[index];
    if (step - gyre_load_acquire_u64(&connector->credit->head[0]) >= DEPTH)
        return false;
    unsigned char *slot =
        connector->slots[0] + (step % DEPTH) * world->spec.slot_bytes[GYRE_PROTO_SIMPLE];
    for (uint32_t i = 0; i < n_bytes; i++)
        slot[i] = byte_of(from, to, fifo, step, i);
    gyre_store_relaxed_u64(&connector->inbox->slot_info[step % DEPTH],
                           gyre_slot_info(n_bytes, (uint32_t)step * 3 + fifo));
    end->published[index] = step + 1;
    gyre_store_release_u64(&connector->inbox->tail[0], step + 1);
    return true;
}

/* The receiving executor: take one slot if there is one, and check it. */
static bool try_receive(struct world *world, int from, int to, uint32_t fifo, uint32_t n_bytes)
{
    struct rank_end *end = &world->ranks[to];
    const uint32_t index = gyre_connector_index(&world->spec, (uint32_t)from, fifo, false);
    const struct gyre_connector *connector = &end->connectors[index];
    const uint64_t step = end->consumed[index];
    if (gyre_load_acquire_u64(&connector->inbox->tail[0]) <= step)
        return false;
    const uint64_t info = gyre_load_relaxed_u64(&connector->inbox->slot_info[step % DEPTH]);
    CHECK_MSG(info == gyre_slot_info(n_bytes, (uint32_t)step * 3 + fifo),
              "%d->%d fifo %u step %" PRIu64 ": slot_info 0x%" PRIx64, from, to, fifo, step, info);
    const unsigned char *slot =
        connector->slots[0] + (step % DEPTH) * world->spec.slot_bytes[GYRE_PROTO_SIMPLE];
    for (uint32_t i = 0; i < n_bytes; i++)
        if (slot[i] != byte_of(from, to, fifo, step, i)) {
            CHECK_MSG(false, "%d->%d fifo %u step %" PRIu64 " byte %u is %u", from, to, fifo, step,
                      i, slot[i]);
            break;
        }
    end->consumed[index] = step + 1;
    gyre_store_release_u64(&connector->credit->head[0], step + 1);
    return true;
}

static uint32_t size_of_step(const struct world *world, uint64_t step)
{
    const uint32_t most = world->spec.slot_bytes[GYRE_PROTO_SIMPLE];
    const uint32_t sizes[] = {8, 0, 248, 249, 1, most, 256, most / 2 + 1, 100, most - 1};
    const uint32_t n_bytes = sizes[step % GYRE_ARRAY_LENGTH(sizes)];
    return n_bytes < most ? n_bytes : most;
}

/* n slots through every FIFO of every ordered pair, or until a fault or 60 s. */
static bool exchange(struct world *world, uint64_t n_slots)
{
    const uint64_t until_ns = gyre_now_ns() + 60000000000ULL;
    uint64_t n_left = 0;
    const uint64_t n_pairs = (uint64_t)world->n_ranks * (uint64_t)(world->n_ranks - 1);
    uint64_t goal = n_pairs * world->spec.n_fifos * n_slots;
    uint64_t start_sent[MAX_RANKS][MAX_RANKS][16];
    uint64_t start_got[MAX_RANKS][MAX_RANKS][16];
    for (int a = 0; a < world->n_ranks; a++)
        for (int b = 0; b < world->n_ranks; b++)
            for (uint32_t f = 0; f < world->spec.n_fifos; f++) {
                start_sent[a][b][f] =
                    world->ranks[a]
                        .published[gyre_connector_index(&world->spec, (uint32_t)b, f, true)];
                start_got[a][b][f] =
                    world->ranks[b]
                        .consumed[gyre_connector_index(&world->spec, (uint32_t)a, f, false)];
            }
    for (n_left = goal; n_left > 0;) {
        bool has_moved = false;
        for (int a = 0; a < world->n_ranks; a++)
            for (int b = 0; b < world->n_ranks; b++)
                for (uint32_t f = 0; f < world->spec.n_fifos && a != b; f++) {
                    const uint64_t sent =
                        world->ranks[a]
                            .published[gyre_connector_index(&world->spec, (uint32_t)b, f, true)];
                    const uint64_t got =
                        world->ranks[b]
                            .consumed[gyre_connector_index(&world->spec, (uint32_t)a, f, false)];
                    if (sent < start_sent[a][b][f] + n_slots)
                        has_moved |= try_send(world, a, b, f, size_of_step(world, sent));
                    if (got < start_got[a][b][f] + n_slots &&
                        try_receive(world, a, b, f, size_of_step(world, got))) {
                        has_moved = true;
                        n_left--;
                    }
                }
        if (!has_moved && (any_fault(world) || gyre_now_ns() > until_ns))
            return false;
        if (!has_moved)
            sched_yield();
    }
    return true;
}

static void print_faults(struct world *world)
{
    for (int r = 0; r < world->n_ranks; r++)
        if (gyre_fault_status(&world->ranks[r].fault) != GYRE_SUCCESS)
            fprintf(stderr, "rank %d: %s\n", r, gyre_cause());
}

static void run_exchange(const struct vm_device *devices, char **environment, int n_ranks,
                         uint32_t n_fifos, uint32_t slot_bytes)
{
    struct world world = {.n_ranks = 0};
    CHECK(vm_install(devices));
    load_params(&world, environment);
    describe_world(&world, n_ranks, n_fifos, slot_bytes);
    const gyre_status status = connect_world(&world);
    CHECK_MSG(status == GYRE_SUCCESS, "%s", gyre_cause());
    if (status == GYRE_SUCCESS) {
        CHECK(exchange(&world, 300));
        CHECK_MSG(!any_fault(&world), "a fault was raised");
        print_faults(&world);
        CHECK(gyre_transport_ib.memory_bytes(world.ranks[0].transport) > 2ULL * DEPTH * slot_bytes);
    }
    close_world(&world);
}

/* ---- data ------------------------------------------------------------------------------------ */

static void numbered_slots_pass_every_fifo_in_both_directions(void)
{
    run_exchange(one_nic, NULL, 2, 5, 4096);
}

static void four_ranks_exchange_with_each_other(void)
{
    run_exchange(one_nic, NULL, 4, 2, 1024);
}

static void small_slots_travel_in_one_message(void)
{
    struct world world = {.n_ranks = 0};
    CHECK(vm_install(one_nic));
    load_params(&world, NULL);
    describe_world(&world, 2, 1, 200);
    CHECK_OK(connect_world(&world));
    CHECK(exchange(&world, 40));
    const struct vm_counters counters = vm_counters();
    CHECK(counters.n_writes == 0);
    /* 80 slots, and not a credit for each */
    CHECK_MSG(counters.n_imms < 80 + 80, "%" PRIu64, counters.n_imms);
    CHECK(counters.n_inline == counters.n_imms);
    CHECK_MSG(counters.n_cqes < 80, "%" PRIu64 " completions", counters.n_cqes);
    close_world(&world);
}

static void two_devices(struct vm_device devices[3])
{
    devices[0] = one_nic[0];
    devices[1] = one_nic[0];
    devices[1].name = "mem1";
    devices[1].ports[0].gids[3].address = "10.0.1.1";
    devices[2].name = NULL;
}

/* How many queue pairs have sent anything; waits for the last credit, which goes after the data. */
static uint32_t queue_pairs_used(uint32_t expected)
{
    const uint64_t end_ns = gyre_now_ns() + 10000000000ULL;
    while (vm_counters().n_queue_pairs_used < expected && gyre_now_ns() < end_ns)
        sched_yield();
    return (uint32_t)vm_counters().n_queue_pairs_used;
}

static void slots_are_striped_over_queue_pairs_and_rails(void)
{
    struct vm_device devices[3];
    char *environment[] = {"GYRE_IB_QPS_PER_CONNECTION=2", NULL};
    two_devices(devices);
    struct world world = {.n_ranks = 0};
    CHECK(vm_install(devices));
    load_params(&world, environment);
    describe_world(&world, 2, 2, 300000);
    CHECK_OK(connect_world(&world));
    CHECK(exchange(&world, 100));
    /* each rank: 2 rails x 2 queue pairs and the control queue pair */
    const uint32_t n_used = queue_pairs_used(10);
    CHECK_MSG(n_used == 10, "%u", n_used);
    CHECK_MSG(vm_counters().largest_bytes <= 75008, "%" PRIu64, vm_counters().largest_bytes);
    close_world(&world);
}

static void check_pairs(const struct gyre_ib_rail_list *mine,
                        const struct gyre_ib_rail_list *theirs, int cross, const char *expected)
{
    struct gyre_ib_rail_pairs pairs = {.n = 0};
    struct gyre_ib_rail_pairs back = {.n = 0};
    char text[64] = "";
    const gyre_status status = gyre_ib_pair_rails(mine, theirs, cross, &pairs);
    CHECK(gyre_ib_pair_rails(theirs, mine, cross, &back) == status);
    CHECK(back.n == pairs.n);
    for (int i = 0; i < pairs.n; i++) {
        const size_t used = strlen(text);
        snprintf(text + used, sizeof(text) - used, "%u-%u ", mine->indices[pairs.mine[i]],
                 theirs->indices[pairs.theirs[i]]);
        CHECK(back.mine[i] == pairs.theirs[i] && back.theirs[i] == pairs.mine[i]);
    }
    CHECK_MSG(strcmp(text, expected) == 0, "cross %d: %s instead of %s", cross, text, expected);
}

static void rails_are_paired_as_cross_nic_says(void)
{
    const struct gyre_ib_rail_list both = {2, {0, 1}};
    const struct gyre_ib_rail_list turned = {2, {1, 0}};
    const struct gyre_ib_rail_list second = {2, {1, 2}};
    const struct gyre_ib_rail_list far = {2, {4, 5}};
    const struct gyre_ib_rail_list one = {1, {1}};
    struct gyre_ib_rail_pairs pairs;
    for (int cross = 0; cross < 3; cross++)
        check_pairs(&both, &both, cross, "0-0 1-1 ");
    check_pairs(&both, &turned, 0, "0-0 1-1 ");
    check_pairs(&both, &turned, 1, "0-1 1-0 ");
    check_pairs(&both, &turned, 2, "0-0 1-1 ");
    check_pairs(&both, &second, 0, "1-1 ");
    check_pairs(&both, &second, 1, "0-1 1-2 ");
    check_pairs(&both, &second, 2, "1-1 ");
    check_pairs(&both, &one, 0, "1-1 ");
    check_pairs(&both, &one, 1, "0-1 ");
    check_pairs(&both, &far, 2, "0-4 1-5 ");
    CHECK_FAILS(gyre_ib_pair_rails(&both, &far, 0, &pairs), GYRE_ERROR_UNSUPPORTED,
                "near rails 0,1, the peer near 4,5");
}

/* Rank 1 has one rail less than rank 0, so its lanes are numbered otherwise. */
static void ranks_with_different_numbers_of_rails_use_those_that_both_have(void)
{
    struct vm_device devices[3];
    char *fewer[] = {"GYRE_IB_QPS_PER_CONNECTION=2", "GYRE_IB_HCA==mem0", NULL};
    char *all[] = {"GYRE_IB_QPS_PER_CONNECTION=2", NULL};
    struct gyre_params params;
    two_devices(devices);
    struct world world = {.n_ranks = 0};
    CHECK(vm_install(devices));
    load_params(&world, all);
    CHECK_OK(gyre_params_from(fewer, &params));
    describe_world(&world, 2, 2, 300000);
    world.ranks[1].config.params = &params;
    CHECK_OK(connect_world(&world));
    CHECK(exchange(&world, 50));
    CHECK(!any_fault(&world));
    /* each rank: one rail of two queue pairs, and the control queue pair */
    const uint32_t n_used = queue_pairs_used(6);
    CHECK_MSG(n_used == 6, "%u", n_used);
    close_world(&world);
}

/* One slot from rank 0 to rank 1: are the bytes there when the tail says so? */
static bool is_there_with_its_tail(struct world *world, uint32_t n_bytes)
{
    const uint32_t index = gyre_connector_index(&world->spec, 0, 0, false);
    const struct gyre_connector *connector = &world->ranks[1].connectors[index];
    const uint64_t end_ns = gyre_now_ns() + 20000000000ULL;
    CHECK(try_send(world, 0, 1, 0, n_bytes));
    while (gyre_load_acquire_u64(&connector->inbox->tail[0]) == 0 && gyre_now_ns() < end_ns)
        sched_yield();
    CHECK(gyre_load_acquire_u64(&connector->inbox->tail[0]) == 1);
    return connector->slots[0][n_bytes - 1] == byte_of(0, 1, 0, 0, n_bytes - 1);
}

/* Rails, several queue pairs, every size of slot, on memory that shows what a NIC wrote only to a
 * read through that NIC. */
static void a_fence_comes_between_a_nics_writes_and_the_tail(void)
{
    static char never[] = "GYRE_NET_GDR_FENCE=0", always[] = "GYRE_NET_GDR_FENCE=1";
    struct vm_device devices[3];
    two_devices(devices);
    for (int is_fenced = 0; is_fenced < 2; is_fenced++) {
        char *environment[] = {"GYRE_IB_QPS_PER_CONNECTION=2", is_fenced ? always : never, NULL};
        struct world world = {.n_ranks = 0};
        CHECK(vm_install(devices));
        vm_hide(true);
        load_params(&world, environment);
        describe_world(&world, 2, 2, 300000);
        CHECK_OK(connect_world(&world));
        if (is_fenced) {
            CHECK(exchange(&world, 200));
            CHECK_MSG(vm_counters().n_reads >= 2, "%" PRIu64, vm_counters().n_reads);
        } else {
            /* The model's other half: without fences the bytes would be missing. */
            CHECK(!is_there_with_its_tail(&world, 300000));
            CHECK(vm_counters().n_reads == 0);
        }
        CHECK(!any_fault(&world));
        close_world(&world);
    }
}

static void a_fence_that_fails_is_an_error(void)
{
    char *environment[] = {"GYRE_NET_GDR_FENCE=1", NULL};
    struct world world = {.n_ranks = 0};
    CHECK(vm_install(one_nic));
    load_params(&world, environment);
    describe_world(&world, 2, 1, 4096);
    CHECK_OK(connect_world(&world));
    vm_fail_send(IBV_WR_RDMA_READ, IBV_WC_LOC_PROT_ERR);
    CHECK(!exchange(&world, 20));
    CHECK(gyre_fault_status(&world.ranks[0].fault) == GYRE_ERROR_DEVICE ||
          gyre_fault_status(&world.ranks[1].fault) == GYRE_ERROR_DEVICE);
    CHECK_MSG(strstr(gyre_cause(), "lets the GPU see received data: LOC_PROT") != NULL, "%s",
              gyre_cause());
    close_world(&world);
}

static void a_message_is_never_longer_than_the_port_takes(void)
{
    struct vm_device devices[2];
    memcpy(devices, one_nic, sizeof(devices));
    devices[0].ports[0].max_msg_bytes = 4096;
    run_exchange(devices, NULL, 2, 2, 30000);
}

static void queues_of_the_size_that_was_asked_for_never_overrun(void)
{
    struct vm_device devices[2];
    memcpy(devices, one_nic, sizeof(devices));
    devices[0].max_qp_wr = 60; /* less than 5 FIFOs x 4 slots x 2 sends, enough for the receives */
    run_exchange(devices, NULL, 2, 5, 4096);
}

static void a_completion_queue_that_cannot_hold_all_is_refused(void)
{
    struct world world = {.n_ranks = 0};
    struct vm_device devices[2];
    memcpy(devices, one_nic, sizeof(devices));
    devices[0].max_cqe = 50;
    CHECK(vm_install(devices));
    load_params(&world, NULL);
    describe_world(&world, 2, 4, 1024);
    CHECK_FAILS(connect_world(&world), GYRE_ERROR_UNSUPPORTED, "a queue of this device holds 50");
    close_world(&world);
}

/* ---- what was chosen --------------------------------------------------------------------------
 */

static void the_path_uses_the_class_and_the_smaller_mtu(void)
{
    struct world world = {.n_ranks = 0};
    struct vm_device devices[3];
    char *environment[] = {"GYRE_IB_TC=106", NULL};
    devices[0] = one_nic[0];
    devices[0].ports[0].active_mtu = IBV_MTU_1024;
    devices[1].name = NULL;
    CHECK(vm_install(devices));
    load_params(&world, environment);
    describe_world(&world, 2, 1, 1024);
    CHECK_OK(connect_world(&world));
    CHECK(vm_counters().last_traffic_class == 106);
    CHECK(vm_counters().last_path_mtu == IBV_MTU_1024);
    CHECK(strcmp(gyre_transport_ib.describe(world.ranks[0].transport, 1), "NET/IB/0") == 0);
    close_world(&world);
}

static void infiniband_needs_no_gid(void)
{
    struct vm_device devices[2];
    memcpy(devices, one_nic, sizeof(devices));
    devices[0].ports[0].is_infiniband = true;
    memset(devices[0].ports[0].gids, 0, sizeof(devices[0].ports[0].gids));
    run_exchange(devices, NULL, 2, 1, 512);
}

/* ---- refusals ---------------------------------------------------------------------------------
 */

static void expect_refusal(const struct vm_device *devices, char **environment, gyre_status status,
                           const char *words)
{
    struct world world = {.n_ranks = 0};
    CHECK(vm_install(devices));
    load_params(&world, environment);
    describe_world(&world, 2, 1, 1024);
    CHECK_FAILS(connect_world(&world), status, words);
    close_world(&world);
}

static void no_usable_gid_prints_the_table_with_the_reasons(void)
{
    struct vm_device devices[2];
    memcpy(devices, one_nic, sizeof(devices));
    char *environment[] = {"GYRE_IB_ADDR_RANGE=192.168.0.0/16", NULL};
    expect_refusal(devices, environment, GYRE_ERROR_UNSUPPORTED,
                   "mem0:1: no usable GID: [0] fe80::5054:ff:fe77:1 v1: RoCE v1, asked for v2; [1] "
                   "fe80::5054:ff:fe77:1 v2: outside IB_ADDR_RANGE");
}

static void a_forced_index_of_an_empty_row_is_refused(void)
{
    char *environment[] = {"GYRE_IB_GID_INDEX=9", NULL};
    expect_refusal(one_nic, environment, GYRE_ERROR_INVALID_ARGUMENT,
                   "IB_GID_INDEX=9: the GID table has no such usable row");
}

static void a_port_that_is_down_is_named(void)
{
    struct vm_device devices[2];
    memcpy(devices, one_nic, sizeof(devices));
    devices[0].ports[0].state = IBV_PORT_DOWN;
    expect_refusal(devices, NULL, GYRE_ERROR_UNSUPPORTED, "mem0:1 is not active");
}

static void a_machine_without_devices_says_so(void)
{
    expect_refusal(&one_nic[1], NULL, GYRE_ERROR_UNSUPPORTED, "there is no RDMA device");
}

static void memlock_is_explained_with_numbers(void)
{
    for (int after = 0; after < 4; after++) {
        struct world world = {.n_ranks = 0};
        CHECK(vm_install(one_nic));
        vm_fail_reg_mr(ENOMEM, after);
        load_params(&world, NULL);
        describe_world(&world, 2, 1, 65536);
        CHECK_FAILS(connect_world(&world), GYRE_ERROR_OUT_OF_MEMORY, "E501 ibv_reg_mr(");
        CHECK(strstr(gyre_cause(), "memlock limit is") != NULL);
        close_world(&world);
    }
}

static void each_errno_of_address_resolution_is_explained(void)
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
        struct world world = {.n_ranks = 0};
        CHECK(vm_install(one_nic));
        load_params(&world, NULL);
        describe_world(&world, 2, 1, 1024);
        vm_fail_modify(IBV_QPS_RTR, cases[i].error_number, 1);
        CHECK_FAILS(connect_world(&world), GYRE_ERROR_SYSTEM, cases[i].words);
        CHECK(strstr(gyre_cause(), "INIT->RTR, local GID 3 10.0.0.1, remote GID 10.0.0.1") != NULL);
        CHECK(strstr(gyre_cause(), "to rank 1 (host1) over ib") != NULL);
        close_world(&world);
    }
}

static void a_peer_that_resolves_late_is_tried_again(void)
{
    struct world world = {.n_ranks = 0};
    CHECK(vm_install(one_nic));
    load_params(&world, NULL);
    describe_world(&world, 2, 1, 1024);
    vm_fail_modify(IBV_QPS_RTR, ETIMEDOUT, 3);
    CHECK_OK(connect_world(&world));
    CHECK(exchange(&world, 3));
    close_world(&world);
}

static void probing_says_why_there_is_no_rdma(void)
{
    struct gyre_params params;
    struct gyre_peer_info info;
    char *disabled[] = {"GYRE_IB_DISABLE=1", NULL};
    char *other[] = {"GYRE_IB_HCA==mlx5_0", NULL};
    char *nothing[] = {NULL};
    CHECK(vm_install(one_nic));
    memset(&info, 0, sizeof(info));
    CHECK_OK(gyre_params_from(nothing, &params));
    gyre_transport_ib_probe(&params, &info);
    CHECK_MSG(info.ib_usable == 1, "%s", info.ib_reason);
    CHECK_OK(gyre_params_from(disabled, &params));
    gyre_transport_ib_probe(&params, &info);
    CHECK(info.ib_usable == 0 && strstr(info.ib_reason, "IB_DISABLE") != NULL);
    CHECK_OK(gyre_params_from(other, &params));
    gyre_transport_ib_probe(&params, &info);
    CHECK(info.ib_usable == 0 && strstr(info.ib_reason, "left out by IB_HCA") != NULL);
    CHECK(vm_uninstall());
}

/* ---- failures ---------------------------------------------------------------------------------
 */

/* Run until some rank's fault is raised; its cause becomes this thread's. */
static void wait_for_fault(struct world *world)
{
    const uint64_t until_ns = gyre_now_ns() + 30000000000ULL;
    while (!any_fault(world) && gyre_now_ns() < until_ns)
        sched_yield();
    for (int r = 0; r < world->n_ranks; r++)
        if (gyre_fault_status(&world->ranks[r].fault) != GYRE_SUCCESS)
            return;
    CHECK_MSG(false, "no fault was raised");
}

static void start_world(struct world *world, uint32_t slot_bytes)
{
    memset(world, 0, sizeof(*world));
    CHECK(vm_install(one_nic));
    load_params(world, NULL);
    describe_world(world, 2, 2, slot_bytes);
    CHECK_OK(connect_world(world));
    CHECK(exchange(world, 5));
}

static void each_completion_error_is_put_in_words(void)
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
            struct world world;
            start_world(&world, 4096);
            vm_fail_send(large ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_WRITE_WITH_IMM, cases[i].status);
            CHECK(!exchange(&world, 30));
            wait_for_fault(&world);
            CHECK_MSG(strstr(gyre_cause(), cases[i].name) != NULL, "%s", gyre_cause());
            CHECK_MSG(strstr(gyre_cause(), cases[i].hint) != NULL, "%s", gyre_cause());
            CHECK_MSG(strstr(gyre_cause(), "E401 RDMA mem0/1->10.0.0.1 (rank ") != NULL, "%s",
                      gyre_cause());
            CHECK(strstr(gyre_cause(), "local GID 3 10.0.0.1 qpn 0x") != NULL);
            CHECK(strstr(gyre_cause(), "MTU 4096 TC 0 = DSCP 0") != NULL);
            close_world(&world);
        }
    }
}

static void a_failed_receive_is_an_error_too(void)
{
    struct world world;
    start_world(&world, 1024);
    vm_fail_recv(IBV_WC_LOC_ACCESS_ERR);
    CHECK(!exchange(&world, 30));
    wait_for_fault(&world);
    CHECK_MSG(strstr(gyre_cause(), "LOC_ACCESS") != NULL, "%s", gyre_cause());
    close_world(&world);
}

static void a_port_that_comes_back_costs_nothing_but_time(void)
{
    struct world world;
    start_world(&world, 4096);
    vm_port_set("mem0", 1, false);
    /* One slot less than the FIFO has: the last one before may not have been released, because not
     * every send asks for a completion. */
    for (uint32_t i = 0; i < DEPTH - 1; i++)
        CHECK(try_send(&world, 0, 1, 0, size_of_step(&world, 5 + i)));
    vm_event("mem0", IBV_EVENT_GID_CHANGE, 1);
    vm_port_set("mem0", 1, true);
    for (uint32_t i = 0; i < DEPTH - 1; i++)
        while (!try_receive(&world, 0, 1, 0, size_of_step(&world, 5 + i)) && !any_fault(&world))
            sched_yield();
    CHECK(!any_fault(&world));
    CHECK(exchange(&world, 50));
    close_world(&world);
}

static void a_port_that_stays_down_ends_in_retry_exceeded(void)
{
    struct world world;
    start_world(&world, 4096);
    vm_port_set("mem0", 1, false);
    CHECK(try_send(&world, 0, 1, 0, size_of_step(&world, 5)));
    while (!any_fault(&world)) {
        vm_expire("mem0");
        sched_yield();
    }
    wait_for_fault(&world);
    CHECK_MSG(strstr(gyre_cause(), "RETRY_EXC") != NULL, "%s", gyre_cause());
    CHECK_MSG(strstr(gyre_cause(), "after 7x0.54s") != NULL, "%s", gyre_cause());
    close_world(&world);
}

static void a_rank_that_only_receives_notices_its_dead_port(void)
{
    struct world world = {.n_ranks = 0};
    char *environment[] = {"GYRE_IB_TIMEOUT=1", "GYRE_IB_RETRY_CNT=0", NULL};
    CHECK(vm_install(one_nic));
    load_params(&world, environment);
    describe_world(&world, 2, 1, 1024);
    CHECK_OK(connect_world(&world));
    vm_port_set("mem0", 1, false);
    wait_for_fault(&world);
    CHECK_MSG(strstr(gyre_cause(), "the port has been down for") != NULL, "%s", gyre_cause());
    close_world(&world);
}

static void a_peer_that_is_silent_is_asked_for_a_sign_of_life(void)
{
    struct world world;
    start_world(&world, 200);
    /* Slots of this size travel without a plain write: the only one is the question. */
    CHECK(exchange(&world, 5));
    CHECK(vm_counters().n_writes == 0);
    while (vm_counters().n_writes < 2 && !any_fault(&world))
        sched_yield();
    CHECK(exchange(&world, 30));
    CHECK(!any_fault(&world));
    vm_fail_send(IBV_WR_RDMA_WRITE, IBV_WC_RETRY_EXC_ERR);
    wait_for_fault(&world);
    CHECK_MSG(strstr(gyre_cause(), "control lane): no acknowledgement (RETRY_EXC") != NULL, "%s",
              gyre_cause());
    close_world(&world);
}

static void fatal_events_end_the_communicator_and_other_ports_do_not(void)
{
    static const struct {
        enum ibv_event_type type;
        const char *words;
    } cases[] = {{IBV_EVENT_DEVICE_FATAL, "DEVICE_FATAL"}, {IBV_EVENT_CQ_ERR, "overrun"}};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(cases); i++) {
        struct world world;
        start_world(&world, 1024);
        vm_event("mem0", IBV_EVENT_PORT_ERR, 2); /* not the port in use */
        vm_event("mem0", IBV_EVENT_LID_CHANGE, 1);
        CHECK(exchange(&world, 5));
        CHECK(!any_fault(&world));
        vm_event("mem0", cases[i].type, 0);
        wait_for_fault(&world);
        CHECK_MSG(strstr(gyre_cause(), cases[i].words) != NULL, "%s", gyre_cause());
        close_world(&world);
    }
}

static const struct test_case cases[] = {
    {"numbered slots pass every FIFO in both directions",
     numbered_slots_pass_every_fifo_in_both_directions},
    {"four ranks exchange with each other", four_ranks_exchange_with_each_other},
    {"small slots travel in one message", small_slots_travel_in_one_message},
    {"slots are striped over queue pairs and rails", slots_are_striped_over_queue_pairs_and_rails},
    {"rails are paired as GYRE_CROSS_NIC says", rails_are_paired_as_cross_nic_says},
    {"ranks with different numbers of rails use those that both have",
     ranks_with_different_numbers_of_rails_use_those_that_both_have},
    {"a fence comes between a NIC's writes and the tail",
     a_fence_comes_between_a_nics_writes_and_the_tail},
    {"a fence that fails is an error", a_fence_that_fails_is_an_error},
    {"a message is never longer than the port takes",
     a_message_is_never_longer_than_the_port_takes},
    {"queues of the size that was asked for never overrun",
     queues_of_the_size_that_was_asked_for_never_overrun},
    {"a completion queue that cannot hold all is refused",
     a_completion_queue_that_cannot_hold_all_is_refused},
    {"the path uses the class and the smaller MTU", the_path_uses_the_class_and_the_smaller_mtu},
    {"InfiniBand needs no GID", infiniband_needs_no_gid},
    {"no usable GID prints the table with the reasons",
     no_usable_gid_prints_the_table_with_the_reasons},
    {"a forced index of an empty row is refused", a_forced_index_of_an_empty_row_is_refused},
    {"a port that is down is named", a_port_that_is_down_is_named},
    {"a machine without devices says so", a_machine_without_devices_says_so},
    {"memlock is explained with numbers", memlock_is_explained_with_numbers},
    {"each errno of address resolution is explained",
     each_errno_of_address_resolution_is_explained},
    {"a peer that resolves late is tried again", a_peer_that_resolves_late_is_tried_again},
    {"probing says why there is no RDMA", probing_says_why_there_is_no_rdma},
    {"each completion error is put in words", each_completion_error_is_put_in_words},
    {"a failed receive is an error too", a_failed_receive_is_an_error_too},
    {"a port that comes back costs nothing but time",
     a_port_that_comes_back_costs_nothing_but_time},
    {"a port that stays down ends in retry exceeded",
     a_port_that_stays_down_ends_in_retry_exceeded},
    {"a rank that only receives notices its dead port",
     a_rank_that_only_receives_notices_its_dead_port},
    {"a peer that is silent is asked for a sign of life",
     a_peer_that_is_silent_is_asked_for_a_sign_of_life},
    {"fatal events end the communicator and other ports do not",
     fatal_events_end_the_communicator_and_other_ports_do_not},
};

TEST_MAIN(cases)
