/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/transport/transport_rig.h"

#include "bootstrap/bootstrap.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"
#include "tests/fuzz/random.h"
#include "tests/support/check.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#define RIG_PATIENCE_NS 40000000000ULL /* sanitizers on a busy machine */

void rig_params(struct gyre_params *params, const char *ifname)
{
    char setting[GYRE_PARAM_MAX_BYTES];
    snprintf(setting, sizeof(setting), "GYRE_SOCKET_IFNAME=%s", ifname != NULL ? ifname : "");
    char *const environment[] = {setting, NULL};
    CHECK_OK(gyre_params_from(ifname != NULL ? environment : &environment[1], params));
}

struct gyre_device *rig_device(void)
{
    struct gyre_device *device = NULL;
    CHECK_OK(gyre_device_host.open(-1, &device));
    return device;
}

bool rig_barrier(struct rig_rank *rank)
{
    const uint64_t deadline_ns = gyre_now_ns() + RIG_PATIENCE_NS;
    const uint32_t all = ++rank->n_barriers * rank->shared->n_ranks;
    gyre_fetch_add_u32(&rank->shared->n_arrived, 1);
    while (gyre_load_acquire_u32(&rank->shared->n_arrived) < all) {
        if (gyre_now_ns() > deadline_ns) {
            CHECK_MSG(false, "rank %d waited in vain at barrier %u", rank->rank, rank->n_barriers);
            return false;
        }
        sched_yield();
    }
    return true;
}

struct lane {
    const struct gyre_connector *connector;
    unsigned proto;
    bool is_send;
    uint64_t seed; /* the same at both ends */
    uint64_t n_moved;
    uint32_t slot_bytes;
};

/* Empty and full slots are half of all. */
static uint32_t bytes_of(const struct lane *lane, uint64_t step)
{
    const uint64_t draw = fuzz_mix(lane->seed + step);
    if (draw % 4 == 0)
        return 0;
    if (draw % 4 == 1)
        return lane->slot_bytes;
    return (uint32_t)((draw >> 8) % (lane->slot_bytes + 1));
}

static bool is_filled(const unsigned char *slot, uint32_t n_bytes, uint64_t draw)
{
    for (uint32_t i = 0; i < n_bytes; i++)
        if (slot[i] !=
            (unsigned char)((unsigned char)(draw >> 16) ^ (unsigned char)(i * 31 + (i >> 8))))
            return false;
    return true;
}

static bool send_one(struct lane *lane)
{
    const struct gyre_connector *connector = lane->connector;
    const uint64_t head = gyre_load_acquire_u64(&connector->credit->head[lane->proto]);
    CHECK_MSG(head <= lane->n_moved, "head %" PRIu64 " is ahead of %" PRIu64, head, lane->n_moved);
    if (lane->n_moved - head >= connector->depth)
        return false;
    const uint64_t index = lane->n_moved % connector->depth;
    const uint32_t n_bytes = bytes_of(lane, lane->n_moved);
    unsigned char *slot = connector->slots[lane->proto] + index * lane->slot_bytes;
    const uint64_t draw = fuzz_mix(lane->seed + lane->n_moved);
    for (uint32_t i = 0; i < n_bytes; i++)
        slot[i] = (unsigned char)(draw >> 16) ^ (unsigned char)(i * 31 + (i >> 8));
    if (lane->proto == GYRE_PROTO_SIMPLE)
        gyre_store_relaxed_u64(&connector->inbox->slot_info[index],
                               gyre_slot_info(n_bytes, (uint32_t)lane->n_moved));
    gyre_store_release_u64(&connector->inbox->tail[lane->proto], ++lane->n_moved);
    return true;
}

static bool receive_one(struct lane *lane)
{
    const struct gyre_connector *connector = lane->connector;
    const uint64_t tail = gyre_load_acquire_u64(&connector->inbox->tail[lane->proto]);
    CHECK_MSG(tail - lane->n_moved <= connector->depth, "tail %" PRIu64 " after %" PRIu64, tail,
              lane->n_moved);
    if (tail == lane->n_moved)
        return false;
    const uint64_t index = lane->n_moved % connector->depth;
    const uint32_t n_bytes = bytes_of(lane, lane->n_moved);
    if (lane->proto == GYRE_PROTO_SIMPLE)
        CHECK(gyre_load_relaxed_u64(&connector->inbox->slot_info[index]) ==
              gyre_slot_info(n_bytes, (uint32_t)lane->n_moved));
    CHECK_MSG(is_filled(connector->slots[lane->proto] + index * lane->slot_bytes, n_bytes,
                        fuzz_mix(lane->seed + lane->n_moved)),
              "slot %" PRIu64 " of %u bytes", lane->n_moved, n_bytes);
    gyre_store_release_u64(&connector->credit->head[lane->proto], ++lane->n_moved);
    return true;
}

/* With spec.far, every other pair of ranks is far. */
static bool is_far_pair(int a, int b)
{
    return (a + b) % 2 != 0;
}

static size_t make_lanes(const struct rig_rank *rank, struct gyre_connector *connectors,
                         struct lane *lanes)
{
    const struct gyre_fifo_spec *spec = &rank->options->spec;
    size_t n = 0;
    for (int peer = 0; peer < rank->options->n_ranks; peer++) {
        const struct gyre_fifo_size size = gyre_fifo_size_of(spec, is_far_pair(rank->rank, peer));
        /* What a far pair lacks stays empty. */
        const uint32_t n_fifos = size.n_fifos;
        for (uint32_t fifo = n_fifos; fifo < spec->n_fifos; fifo++)
            for (int is_send = 0; is_send < 2; is_send++)
                CHECK(connectors[gyre_connector_index(spec, (uint32_t)peer, fifo, is_send != 0)]
                          .inbox == NULL);
        for (uint32_t end = 0; peer != rank->rank && end < size.n_fifos * 2; end++)
            for (unsigned proto = 0; proto < GYRE_N_SLOT_PROTOS; proto++) {
                const bool is_send = end % 2;
                const int from = is_send ? rank->rank : peer;
                const int to = is_send ? peer : rank->rank;
                const struct gyre_connector *connector =
                    &connectors[gyre_connector_index(spec, (uint32_t)peer, end / 2, is_send)];
                CHECK(connector->inbox != NULL && connector->depth == spec->depth);
                const bool is_proxied_line = proto != GYRE_PROTO_SIMPLE && connector->is_proxied;
                const bool has_lines = proto == GYRE_PROTO_LL && spec->net_line_bytes > 0;
                CHECK((connector->slots[proto] != NULL) ==
                      (is_proxied_line ? has_lines : spec->slot_bytes[proto] > 0));
                if (connector->slots[proto] == NULL || is_proxied_line)
                    continue;
                lanes[n++] = (struct lane){
                    .connector = connector,
                    .proto = proto,
                    .is_send = is_send,
                    .seed = fuzz_mix((uint64_t)(from * RIG_MAX_RANKS + to) << 32 |
                                     (end / 2 * 8 + proto)),
                    .slot_bytes = proto == GYRE_PROTO_SIMPLE ? connector->slot_bytes
                                                             : spec->slot_bytes[proto],
                };
                CHECK(spec->far.n_fifos == 0 || connector->slot_bytes == size.slot_bytes);
            }
    }
    return n;
}

bool rig_traffic(struct rig_rank *rank, struct gyre_connector *connectors)
{
    const struct rig_options *options = rank->options;
    struct lane *lanes = calloc(
        (size_t)options->n_ranks * options->spec.n_fifos * 2 * GYRE_N_SLOT_PROTOS, sizeof(*lanes));
    const size_t n_lanes = make_lanes(rank, connectors, lanes);
    const uint64_t deadline_ns = gyre_now_ns() + RIG_PATIENCE_NS;
    const uint64_t total = n_lanes * (uint64_t)options->n_slots;
    uint64_t n_moved = 0;
    while (n_moved < total && !gyre_fault_is_raised(&rank->fault) && gyre_now_ns() < deadline_ns) {
        const uint64_t before = n_moved;
        for (size_t i = 0; i < n_lanes; i++) {
            if (lanes[i].n_moved == options->n_slots)
                continue;
            n_moved += lanes[i].is_send ? send_one(&lanes[i]) : receive_one(&lanes[i]);
        }
        if (n_moved == before)
            sched_yield();
    }
    free(lanes);
    return n_moved == total;
}

static void connect_and_move(struct rig_rank *rank, struct gyre_transport *transport)
{
    const struct rig_options *options = rank->options;
    unsigned char *blobs = malloc(RIG_MAX_RANKS * RIG_BLOB_BYTES);
    size_t offsets[RIG_MAX_RANKS + 1];
    struct gyre_connector *connectors =
        calloc((size_t)options->n_ranks * options->spec.n_fifos * 2, sizeof(*connectors));
    const struct rig_shared *shared = rank->shared;
    size_t n_bytes = 0;
    for (uint32_t r = 0; r < shared->n_ranks; r++) {
        offsets[r] = n_bytes;
        memcpy(blobs + n_bytes, shared->blobs[r], shared->blob_bytes[r]);
        n_bytes += shared->blob_bytes[r];
    }
    offsets[shared->n_ranks] = n_bytes;
    const gyre_status status = options->ops->connect(
        transport, blobs, offsets, gyre_now_ns() + RIG_PATIENCE_NS / 2, connectors);
    CHECK_MSG(status == GYRE_SUCCESS, "rank %d: %s", rank->rank, gyre_cause());
    if (status == GYRE_SUCCESS && options->body != NULL) {
        options->body(transport, connectors, rank->rank, rank);
    } else if (status == GYRE_SUCCESS) {
        CHECK(options->ops->memory_bytes(transport) > 0);
        CHECK_MSG(rig_traffic(rank, connectors), "rank %d: %s", rank->rank, rank->fault.cause);
        rig_barrier(rank);
    }
    free(connectors);
    free(blobs);
}

static void run_rank(struct rig_rank *rank)
{
    const struct rig_options *options = rank->options;
    struct rig_shared *shared = rank->shared;
    uint16_t peers[RIG_MAX_RANKS];
    uint16_t ring_prev[RIG_MAX_RANKS];
    uint8_t is_far[RIG_MAX_RANKS];
    int n_peers = 0;
    for (int peer = 0; peer < options->n_ranks; peer++)
        if (peer != rank->rank)
            peers[n_peers++] = (uint16_t)peer;
    if (options->environment != NULL)
        CHECK_OK(gyre_params_from(options->environment, &rank->params));
    else
        rig_params(&rank->params, options->ifname);
    gyre_fault_init(&rank->fault);
    CHECK_OK(
        gyre_peer_info_fill(&rank->params, rig_device(), rank->rank, &shared->infos[rank->rank]));
    if (!rig_barrier(rank))
        return;
    for (int i = 0; i < n_peers; i++) {
        char why[128] = "";
        CHECK_MSG(options->ops->reachable(&rank->params, &shared->infos[rank->rank],
                                          &shared->infos[peers[i]], why, sizeof(why)),
                  "rank %d to %d: %s", rank->rank, peers[i], why);
    }
    /* Proxied transports do not use the ring. */
    for (int r = 0; r < options->n_ranks; r++)
        ring_prev[r] = (uint16_t)((r + options->n_ranks - 1) % options->n_ranks);
    for (int r = 0; r < options->n_ranks; r++)
        is_far[r] = is_far_pair(rank->rank, r);
    const struct gyre_transport_config config = {
        .device = rig_device(),
        .params = &rank->params,
        .rank = rank->rank,
        .n_ranks = options->n_ranks,
        .infos = shared->infos,
        .peers = peers,
        .n_peers = n_peers,
        .spec = options->spec,
        .ring_prev = ring_prev,
        .is_far = options->spec.far.n_fifos > 0 ? is_far : NULL,
        .secret = RIG_SECRET,
        .authenticate = gyre_authenticate,
        .traffic_class = -1,
        .service_level = -1,
        .fault = &rank->fault,
    };
    struct gyre_transport *transport = NULL;
    void *blob = NULL;
    CHECK_OK(options->ops->open(&config, &transport, &blob, &shared->blob_bytes[rank->rank]));
    if (transport != NULL) {
        CHECK(shared->blob_bytes[rank->rank] <= RIG_BLOB_BYTES);
        memcpy(shared->blobs[rank->rank], blob, shared->blob_bytes[rank->rank]);
    }
    if (rig_barrier(rank) && transport != NULL)
        connect_and_move(rank, transport);
    if (transport != NULL && !rank->is_closed)
        options->ops->close(transport);
    free(blob);
    gyre_fault_fini(&rank->fault);
}

static void *rank_thread(void *argument)
{
    run_rank(argument);
    return NULL;
}

void rig_run(const struct rig_options *options)
{
    struct rig_shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct rig_rank *ranks = calloc((size_t)options->n_ranks, sizeof(*ranks));
    if (shared == MAP_FAILED || ranks == NULL) {
        CHECK(ranks != NULL && shared != MAP_FAILED);
        free(ranks);
        return;
    }
    shared->n_ranks = (uint32_t)options->n_ranks;
    for (int r = 0; r < options->n_ranks; r++)
        ranks[r] = (struct rig_rank){.options = options, .shared = shared, .rank = r};
    if (options->use_processes) {
        pid_t pids[RIG_MAX_RANKS];
        fflush(NULL);
        for (int r = 0; r < options->n_ranks; r++) {
            pids[r] = fork();
            if (pids[r] != 0)
                continue;
            test_n_failures = 0;
            run_rank(&ranks[r]);
            gyre_fetch_add_u32(&ranks[r].shared->n_failures, (uint32_t)test_n_failures);
            exit(0); /* so that LeakSanitizer looks */
        }
        for (int r = 0; r < options->n_ranks; r++) {
            int wait_status = -1;
            waitpid(pids[r], &wait_status, 0);
            const bool was_killed = WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == 9;
            CHECK_MSG(wait_status == 0 || (was_killed && options->body != NULL),
                      "rank %d: wait status 0x%x", r, (unsigned)wait_status);
        }
    } else {
        test_run_threads(rank_thread, ranks, options->n_ranks, sizeof(ranks[0]));
    }
    CHECK_MSG(shared->n_failures == 0, "%u failed checks in processes", shared->n_failures);
    free(ranks);
    munmap(shared, sizeof(*shared));
}
