/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/bootstrap.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"
#include "tests/support/check.h"
#include "tests/transport/transport_rig.h"
#include "transport/slab.h"

#include <sched.h>
#include <sys/resource.h>

#define N_SLOTS 80
static void conform(const struct gyre_transport_ops *ops, bool use_processes)
{
    static const struct gyre_fifo_spec specs[] = {
        {.n_fifos = 1, .depth = 2, .slot_bytes = {4096}},
        {.n_fifos = 3, .depth = 4, .slot_bytes = {5000, 2048, 1024}},
        {.n_fifos = 2, .depth = GYRE_MAX_DEPTH, .slot_bytes = {65536, 0, 4352}},
    };
    for (int n_ranks = 2; n_ranks <= 5; n_ranks++)
        for (size_t i = 0; i < GYRE_ARRAY_LENGTH(specs); i++)
            rig_run(&(struct rig_options){.ops = ops,
                                          .spec = specs[i],
                                          .n_ranks = n_ranks,
                                          .use_processes = use_processes,
                                          .n_slots = N_SLOTS,
                                          .ifname = "=lo"});
}

TEST_CASE("large slots from the rank before")
{
    for (int n_ranks = 2; n_ranks <= 5; n_ranks++)
        rig_run(&(struct rig_options){.ops = &gyre_transport_p2p,
                                      .spec = {.n_fifos = 3,
                                               .depth = 4,
                                               .slot_bytes = {5000, 2048, 1024},
                                               .ring_slot_bytes = 70000},
                                      .n_ranks = n_ranks,
                                      .n_slots = N_SLOTS,
                                      .ifname = "=lo"});
}

TEST_CASE("far pairs over socket have sizes of their own")
{
    static const struct gyre_fifo_spec specs[] = {
        {.n_fifos = 4, .depth = 4, .slot_bytes = {5000}, .far = {2, 256}},
        {.n_fifos = 3, .depth = 3, .slot_bytes = {65536}, .far = {1, 2000}},
    };
    for (int n_ranks = 2; n_ranks <= 5; n_ranks++)
        for (size_t i = 0; i < GYRE_ARRAY_LENGTH(specs); i++)
            rig_run(&(struct rig_options){.ops = &gyre_transport_socket,
                                          .spec = specs[i],
                                          .n_ranks = n_ranks,
                                          .n_slots = N_SLOTS,
                                          .ifname = "=lo"});
}

TEST_CASE("threads send each other every byte over p2p")
{
    conform(&gyre_transport_p2p, false);
    CHECK(gyre_slab_registry_count() == 0);
}

TEST_RUNS("processes send each other every byte over shm", conform(&gyre_transport_shm, true))
TEST_RUNS("threads send each other every byte over shm", conform(&gyre_transport_shm, false))
TEST_RUNS("processes send each other every byte over socket", conform(&gyre_transport_socket, true))
TEST_RUNS("threads send each other every byte over socket", conform(&gyre_transport_socket, false))

/* The kernel has taken it, but the peer has not consumed it. */
static void keep_until_consumed(struct gyre_transport *transport, struct gyre_connector *connectors,
                                int rank, void *context)
{
    struct rig_rank *self = context;
    const struct gyre_fifo_spec *spec = &self->options->spec;
    struct gyre_connector *to = &connectors[gyre_connector_index(spec, 1, 0, true)];
    struct gyre_connector *from = &connectors[gyre_connector_index(spec, 0, 0, false)];
    if (rank == 0) {
        CHECK(to->depth == 2 * spec->depth);
        for (uint32_t i = 0; i < spec->depth; i++)
            to->inbox->slot_info[i] = gyre_slot_info(8, i);
        gyre_store_release_u64(&to->inbox->tail[GYRE_PROTO_SIMPLE], spec->depth);
        transport->ops->wake(transport);
    } else {
        CHECK(from->depth == spec->depth);
        TEST_YIELD_UNTIL(gyre_load_acquire_u64(&from->inbox->tail[GYRE_PROTO_SIMPLE]) >=
                         spec->depth);
    }
    rig_barrier(self);
    if (rank == 0)
        CHECK(gyre_load_acquire_u64(&to->credit->head[GYRE_PROTO_SIMPLE]) == 0);
    rig_barrier(self);
    if (rank == 1) {
        CHECK(gyre_load_acquire_u64(&from->inbox->tail[GYRE_PROTO_SIMPLE]) == spec->depth);
        gyre_store_release_u64(&from->credit->head[GYRE_PROTO_SIMPLE], spec->depth);
        transport->ops->wake(transport);
    }
    TEST_YIELD_UNTIL(rank != 0 ||
                     gyre_load_acquire_u64(&to->credit->head[GYRE_PROTO_SIMPLE]) >= spec->depth);
    rig_barrier(self);
    if (rank == 0)
        CHECK(gyre_load_acquire_u64(&to->credit->head[GYRE_PROTO_SIMPLE]) == spec->depth);
}

TEST_CASE("with GYRE_FAILOVER a slot over socket returns to its executor once it was consumed")
{
    char *const environment[] = {"GYRE_SOCKET_IFNAME==lo", "GYRE_FAILOVER=1", NULL};
    rig_run(&(struct rig_options){.ops = &gyre_transport_socket,
                                  .spec = {.n_fifos = 1, .depth = 4, .slot_bytes = {4096}},
                                  .n_ranks = 2,
                                  .environment = environment,
                                  .body = keep_until_consumed});
}

static void write_after_close(struct gyre_transport *transport, struct gyre_connector *connectors,
                              int rank, void *context)
{
    struct rig_rank *self = context;
    const struct gyre_fifo_spec *spec = &self->options->spec;
    rig_barrier(self); /* all are connected */
    if (rank == 0) {
        gyre_transport_p2p.close(transport);
        self->is_closed = true;
    }
    rig_barrier(self);
    if (rank == 0)
        return;
    const struct gyre_connector *to_0 = &connectors[gyre_connector_index(spec, 0, 0, true)];
    memset(to_0->slots[GYRE_PROTO_SIMPLE], rank, (size_t)spec->depth * spec->slot_bytes[0]);
    gyre_store_release_u64(&to_0->inbox->tail[0], 1);
}

TEST_CASE("a closed slab stays while peers write to it")
{
    rig_run(&(struct rig_options){.ops = &gyre_transport_p2p,
                                  .spec = {.n_fifos = 1, .depth = 4, .slot_bytes = {65536}},
                                  .n_ranks = 3,
                                  .body = write_after_close});
    CHECK(gyre_slab_registry_count() == 0);
}

/* `words`: why not; NULL = it is. */
static void check_reachable(const struct gyre_transport_ops *ops, const struct gyre_params *params,
                            const struct gyre_peer_info *mine, const struct gyre_peer_info *peer,
                            const char *words)
{
    char why[128] = "";
    CHECK(ops->reachable(params, mine, peer, why, sizeof(why)) == (words == NULL));
    CHECK_HAS(why, words != NULL ? words : "");
}

TEST_CASE("p2p says why not")
{
    const struct gyre_transport_ops *ops = &gyre_transport_p2p;
    struct gyre_params params;
    struct gyre_peer_info mine, peer;
    rig_params(&params, NULL);
    CHECK_OK(gyre_peer_info_fill(&params, rig_device(), 0, &mine));
    CHECK_OK(gyre_peer_info_fill(&params, rig_device(), 1, &peer));
    check_reachable(ops, &params, &mine, &peer, NULL);
    peer.process_id++;
    check_reachable(ops, &params, &mine, &peer, "rank 1 is another process");
    peer.process_id--;
    peer.host_hash++;
    check_reachable(ops, &params, &mine, &peer, "another host");
    peer.host_hash--;
    CHECK_OK(gyre_param_override(&params, GYRE_PARAM_P2P_DISABLE, "NCCL_P2P_DISABLE", "1"));
    check_reachable(ops, &params, &mine, &peer, "NCCL_P2P_DISABLE is set");
}

TEST_CASE("shm says why not")
{
    const struct gyre_transport_ops *ops = &gyre_transport_shm;
    struct gyre_params params;
    struct gyre_peer_info mine, peer;
    rig_params(&params, NULL);
    CHECK_OK(gyre_peer_info_fill(&params, rig_device(), 0, &mine));
    CHECK_OK(gyre_peer_info_fill(&params, rig_device(), 1, &peer));
    check_reachable(ops, &params, &mine, &peer, NULL);
    peer.pid_namespace++;
    check_reachable(ops, &params, &mine, &peer, "pid namespace");
    peer.pid_namespace = 0;
    check_reachable(ops, &params, &mine, &peer, "/proc is not mounted where rank 1 runs");
    snprintf(params.values[GYRE_PARAM_HOSTID].text, GYRE_PARAM_MAX_BYTES, "another");
    CHECK_OK(gyre_peer_info_fill(&params, rig_device(), 1, &peer));
    check_reachable(ops, &params, &mine, &peer, "another host");
    CHECK_OK(gyre_param_override(&params, GYRE_PARAM_SHM_DISABLE, "GYRE_SHM_DISABLE", "1"));
    check_reachable(ops, &params, &mine, &mine, "GYRE_SHM_DISABLE");
}

/* One rank's view of two. */
struct pair {
    struct gyre_params params;
    struct gyre_fault fault;
    struct gyre_peer_info infos[2];
    uint16_t peers[1];
};

static struct gyre_transport_config pair_config(struct pair *pair, int rank)
{
    rig_params(&pair->params, "=lo");
    gyre_fault_init(&pair->fault);
    for (int r = 0; r < 2; r++)
        CHECK_OK(gyre_peer_info_fill(&pair->params, rig_device(), r, &pair->infos[r]));
    pair->peers[0] = (uint16_t)(1 - rank);
    return (struct gyre_transport_config){
        .device = rig_device(),
        .params = &pair->params,
        .rank = rank,
        .n_ranks = 2,
        .infos = pair->infos,
        .peers = pair->peers,
        .n_peers = 1,
        .spec = {.n_fifos = 1, .depth = 4, .slot_bytes = {1 << 20}},
        .secret = RIG_SECRET,
        .authenticate = gyre_authenticate,
        .fault = &pair->fault,
    };
}

TEST_CASE("too little shared memory is a clear error")
{
    static struct pair pair;
    const struct gyre_transport_config config = pair_config(&pair, 0);
    const struct rlimit limit = {65536, 65536}; /* of this case's process */
    struct gyre_transport *transport = NULL;
    void *blob = NULL;
    size_t blob_bytes;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK_FAILS(gyre_transport_shm.open(&config, &transport, &blob, &blob_bytes),
                GYRE_ERROR_OUT_OF_MEMORY, "needs 4202496 bytes, but files may have 65536");
    CHECK(transport == NULL && blob == NULL);
}

#define ANOTHER_PROCESS (-1)

/* To a rank with a wrong byte in its blob. */
static void connect_damaged(int flipped_byte, const char *words)
{
    static struct pair pairs[2];
    const struct gyre_transport_config configs[2] = {pair_config(&pairs[0], 0),
                                                     pair_config(&pairs[1], 1)};
    struct gyre_transport *transports[2] = {NULL, NULL};
    void *blobs[2] = {NULL, NULL};
    size_t blob_bytes[2] = {0, 0};
    for (int r = 0; r < 2; r++)
        CHECK_OK(gyre_transport_shm.open(&configs[r], &transports[r], &blobs[r], &blob_bytes[r]));
    struct gyre_connector connectors[4];
    memset(connectors, 0, sizeof(connectors));
    const size_t offsets[3] = {0, 0, blob_bytes[1]};
    if (flipped_byte != ANOTHER_PROCESS)
        ((unsigned char *)blobs[1])[flipped_byte] ^= 1;
    else
        pairs[0].infos[1].pid = 4194304; /* pids end below it */
    CHECK_FAILS(
        gyre_transport_shm.connect(transports[0], blobs[1], offsets, UINT64_MAX, connectors),
        GYRE_ERROR_REMOTE, words);
    for (int r = 0; r < 2; r++) {
        gyre_transport_shm.close(transports[r]);
        free(blobs[r]);
    }
}

TEST_CASE("a recycled pid or a wrong blob is noticed, and closed slabs keep no descriptor")
{
    connect_damaged(32, "token"); /* the handle's first byte */
    const int lowest = dup(STDERR_FILENO);
    close(lowest);
    connect_damaged(0, "rank 1"); /* of the magic */
    connect_damaged(ANOTHER_PROCESS, "has ended");
    const int lowest_after = dup(STDERR_FILENO);
    close(lowest_after);
    CHECK(lowest_after == lowest);
}

TEST_CASE("a forked child is another process")
{
    struct gyre_params params;
    struct gyre_peer_info mine, again, child;
    int pipe_fds[2];
    rig_params(&params, NULL);
    CHECK_OK(gyre_peer_info_fill(&params, rig_device(), 0, &mine));
    CHECK_OK(gyre_peer_info_fill(&params, rig_device(), 0, &again));
    CHECK(memcmp(&mine, &again, sizeof(mine)) == 0);
    CHECK(pipe(pipe_fds) == 0);
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        const gyre_status status = gyre_peer_info_fill(&params, rig_device(), 0, &child);
        const ssize_t n = write(pipe_fds[1], &child, sizeof(child));
        _exit(status != GYRE_SUCCESS || n != (ssize_t)sizeof(child));
    }
    CHECK(read(pipe_fds[0], &child, sizeof(child)) == (ssize_t)sizeof(child));
    waitpid(pid, NULL, 0);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    CHECK(child.process_id != mine.process_id);
    CHECK(child.host_hash == mine.host_hash && child.pid_namespace == mine.pid_namespace);
}
