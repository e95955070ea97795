/* SPDX-License-Identifier: Apache-2.0
 *
 * Every message is an RDMA write. If the peer waits for it, an immediate value consumes a posted
 * receive.
 */
#include "transport/ib/ib_trial.h"

#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"
#include "transport/ib/ib_transport.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

GYRE_STATIC_ASSERT(GYRE_IB_TRIAL_GIDS >= GYRE_IB_PAIR_GIDS, "a rail's GIDs have room in a port");

#define LARGE_BYTES ((size_t)256 << 10)
/* What this process sends, then the peer. */
#define MEMORY_BYTES (2 * LARGE_BYTES)

#define SMALL_BYTES  64 /* one packet of every MTU */
#define N_SMALL      20
#define N_IN_FLIGHT  16
#define MAX_LARGE    4096
#define LARGE_NS     30e6
#define WAIT_SMALL_S 5 /* longer than the retries, which may take four times as long */
#define WAIT_LARGE_S 20
/* The most that the time between two polls counts: a loaded or virtual machine may stop for
 * seconds. */
#define MOST_GAP_NS 100000000ULL
#define SPIN_NS     200000 /* then others get the processor */
#define N_RECEIVES  64
#define N_CQE       256 /* more than are posted at once */
#define TIMEOUT     15  /* 4.096 us x 2^15 = 0.13 s */
#define RETRIES     6   /* Soft-RoCE takes 7 for ever */

struct open_port {
    struct gyre_ib_trial_port told;
    struct gyre_ib_port port;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
};

struct gyre_ib_trial {
    const struct gyre_params *params;
    struct gyre_ib_scan scan;
    struct open_port ports[GYRE_IB_MAX_PORTS];
    unsigned char *memory;
    struct open_port *at; /* NULL = none */
    struct ibv_qp *qp;
    struct gyre_ib_qp_path path;
    struct gyre_ib_trial_peer peer;
    uint32_t their_gid_index;
    uint64_t n_posted, n_done; /* sends */
    uint64_t n_imms;
    uint64_t n_taken; /* waited for */
    uint64_t last_ns; /* of the last completion */
    int wait_s;
};

static gyre_status open_port(struct gyre_ib_trial *trial, struct open_port *port)
{
    const struct gyre_verbs *verbs = trial->scan.verbs;
    int n_gids = 0;
    port->context = verbs->open_device(port->port.device);
    if (port->context == NULL)
        return gyre_fail_errno(errno, "ibv_open_device(%s)", port->port.name);
    GYRE_TRY(gyre_ib_rail_gids(verbs, trial->params, port->context, &port->port, port->told.gids,
                               &n_gids));
    port->told.n_gids = (uint32_t)n_gids;
    port->pd = verbs->alloc_pd(port->context);
    if (port->pd == NULL)
        return gyre_fail_errno(errno, "ibv_alloc_pd(%s)", port->port.name);
    port->cq = verbs->create_cq(port->context, N_CQE, NULL, NULL, 0);
    if (port->cq == NULL)
        return gyre_fail_errno(errno, "ibv_create_cq(%s, %d)", port->port.name, N_CQE);
    const struct gyre_ib_mr_request request = {.verbs = verbs,
                                               .pd = port->pd,
                                               .base = trial->memory,
                                               .n_bytes = MEMORY_BYTES,
                                               .remote_write = true};
    return gyre_ib_mr_register(&request, &port->mr);
}

gyre_status gyre_ib_trial_open(const struct gyre_params *params, struct gyre_ib_trial **trial_out)
{
    struct gyre_ib_trial *trial = calloc(1, sizeof(*trial));
    if (trial == NULL)
        return gyre_fail_errno(ENOMEM, "trial of RDMA ports");
    trial->params = params;
    trial->memory = aligned_alloc(4096, MEMORY_BYTES);
    gyre_status status = trial->memory == NULL ? gyre_fail_errno(ENOMEM, "trial of RDMA ports")
                                               : gyre_ib_scan_open(params, &trial->scan);
    if (status != GYRE_SUCCESS) {
        free(trial->memory);
        free(trial);
        return status;
    }
    for (size_t i = 0; i < LARGE_BYTES; i++)
        trial->memory[i] = (unsigned char)(i * 131 + i / 257 + 1);
    for (int i = 0; i < trial->scan.n_ports; i++) {
        struct open_port *port = &trial->ports[i];
        struct gyre_ib_trial_port *told = &port->told;
        port->port = trial->scan.ports[i];
        const char *name = trial->scan.ports[i].name;
        snprintf(told->device, sizeof(told->device), "%.63s", name);
        snprintf(told->name, sizeof(told->name), "%.63s:%u", name, port->port.port);
        told->port = port->port.port;
        told->is_roce = port->port.is_roce;
        told->mtu_bytes = gyre_ib_mtu_bytes(port->port.active_mtu);
        told->max_msg_bytes = port->port.max_msg_bytes;
        told->gbit_per_s = port->port.gbit_per_s;
        told->lid = port->port.lid;
        if (open_port(trial, port) != GYRE_SUCCESS)
            snprintf(told->cause, sizeof(told->cause), "%.319s", gyre_cause());
    }
    *trial_out = trial;
    return GYRE_SUCCESS;
}

void gyre_ib_trial_close(struct gyre_ib_trial *trial)
{
    if (trial == NULL)
        return;
    const struct gyre_verbs *verbs = trial->scan.verbs;
    gyre_ib_trial_finish(trial);
    for (int i = 0; i < trial->scan.n_ports; i++) {
        struct open_port *port = &trial->ports[i];
        if (port->mr != NULL)
            verbs->dereg_mr(port->mr);
        if (port->cq != NULL)
            verbs->destroy_cq(port->cq);
        if (port->pd != NULL)
            verbs->dealloc_pd(port->pd);
        if (port->context != NULL)
            verbs->close_device(port->context);
    }
    gyre_ib_scan_close(&trial->scan);
    free(trial->memory);
    free(trial);
}

int gyre_ib_trial_n_ports(const struct gyre_ib_trial *trial)
{
    return trial->scan.n_ports;
}

const struct gyre_ib_trial_port *gyre_ib_trial_port(const struct gyre_ib_trial *trial, int i)
{
    return &trial->ports[i].told;
}

static gyre_status post_receives(struct gyre_ib_trial *trial, int n)
{
    for (int i = 0; i < n; i++) {
        struct ibv_recv_wr wr, *bad = NULL;
        memset(&wr, 0, sizeof(wr)); /* an immediate value needs no memory */
        const int error = ibv_post_recv(trial->qp, &wr, &bad);
        if (error != 0)
            return gyre_fail_errno(error, "ibv_post_recv(%s)", trial->at->told.name);
    }
    return GYRE_SUCCESS;
}

gyre_status gyre_ib_trial_begin(struct gyre_ib_trial *trial, int i,
                                struct gyre_ib_trial_end *end_out)
{
    struct open_port *port = &trial->ports[i];
    struct gyre_ib_qp_size size = {.n_send = N_RECEIVES, .n_recv = N_RECEIVES};
    struct gyre_ib_qp_path *path = &trial->path;
    const int64_t class = gyre_param_number(trial->params, GYRE_PARAM_IB_TC); /* -1 = not set */
    const int64_t level = gyre_param_number(trial->params, GYRE_PARAM_IB_SL);
    gyre_ib_trial_finish(trial);
    if (port->told.cause[0] != '\0')
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "%s", port->told.cause);
    memset(path, 0, sizeof(*path));
    path->port = port->port.port;
    path->is_roce = port->port.is_roce;
    path->local.lid = port->port.lid;
    path->local.mtu = port->port.active_mtu;
    path->traffic_class = class > 0 ? (uint8_t) class : 0;
    path->service_level = level > 0 ? (uint8_t)level : 0;
    path->pkey_index = (uint16_t)gyre_param_number(trial->params, GYRE_PARAM_IB_PKEY);
    path->timeout = TIMEOUT;
    path->retries = RETRIES;
    GYRE_TRY(gyre_ib_random_psn(&path->local.psn));
    GYRE_TRY(gyre_ib_qp_create(trial->scan.verbs, port->pd, port->cq, path, IBV_ACCESS_REMOTE_WRITE,
                               &size, &trial->qp));
    trial->at = port;
    trial->n_posted = trial->n_done = trial->n_imms = trial->n_taken = 0;
    path->local.qpn = trial->qp->qp_num;
    memset(trial->memory + LARGE_BYTES, 0, LARGE_BYTES);
    *end_out = (struct gyre_ib_trial_end){.address = (uintptr_t)trial->memory + LARGE_BYTES,
                                          .rkey = port->mr->rkey,
                                          .qpn = path->local.qpn,
                                          .psn = path->local.psn};
    return post_receives(trial, N_RECEIVES);
}

void gyre_ib_trial_finish(struct gyre_ib_trial *trial)
{
    struct ibv_wc wc;
    if (trial == NULL || trial->at == NULL)
        return;
    gyre_ib_qp_stop(trial->scan.verbs, trial->qp);
    trial->scan.verbs->destroy_qp(trial->qp);
    while (ibv_poll_cq(trial->at->cq, 1, &wc) > 0)
        ;
    trial->qp = NULL;
    trial->at = NULL;
}

gyre_status gyre_ib_trial_connect(struct gyre_ib_trial *trial,
                                  const struct gyre_ib_trial_peer *peer)
{
    struct gyre_ib_qp_path *path = &trial->path;
    trial->peer = *peer;
    if (peer->port->is_roce != trial->at->told.is_roce)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "one end is RoCE, the other InfiniBand");
    path->remote.qpn = peer->end->qpn;
    path->remote.psn = peer->end->psn & 0xffffff;
    path->remote.lid = (uint16_t)peer->port->lid;
    path->remote.mtu = IBV_MTU_256;
    while (path->remote.mtu < IBV_MTU_4096 &&
           gyre_ib_mtu_bytes(path->remote.mtu) < peer->port->mtu_bytes)
        path->remote.mtu = (enum ibv_mtu)((int)path->remote.mtu + 1);
    if (path->is_roce) {
        /* Both pass the sender's rows first and choose alike. */
        const struct gyre_ib_trial_port *mine = &trial->at->told, *theirs = trial->peer.port;
        const int n_theirs = (int)gyre_min_u64(theirs->n_gids, GYRE_IB_TRIAL_GIDS);
        int my_row = 0, their_row = 0;
        if (trial->peer.is_receiver)
            GYRE_TRY(gyre_ib_gid_pair(theirs->gids, n_theirs, mine->gids, (int)mine->n_gids,
                                      &their_row, &my_row));
        else
            GYRE_TRY(gyre_ib_gid_pair(mine->gids, (int)mine->n_gids, theirs->gids, n_theirs,
                                      &my_row, &their_row));
        trial->path.gid_index = (uint8_t)mine->gids[my_row].index;
        trial->their_gid_index = theirs->gids[their_row].index;
        memcpy(trial->path.local.gid, mine->gids[my_row].raw, sizeof(trial->path.local.gid));
        memcpy(trial->path.remote.gid, theirs->gids[their_row].raw, sizeof(trial->path.remote.gid));
    }
    return gyre_ib_qp_connect(trial->scan.verbs, trial->qp, path, 0);
}

static const char *describe_path(const struct gyre_ib_trial *trial, char *text_out,
                                 size_t text_bytes)
{
    const struct gyre_ib_qp_path *path = &trial->path;
    char local[48], remote[48];
    if (path->is_roce)
        snprintf(text_out, text_bytes, "local GID %u %s MTU %u, remote GID %u %s MTU %u, TC %u",
                 path->gid_index, gyre_ib_gid_to_text(path->local.gid, local, sizeof(local)),
                 trial->at->told.mtu_bytes, trial->their_gid_index,
                 gyre_ib_gid_to_text(path->remote.gid, remote, sizeof(remote)),
                 trial->peer.port->mtu_bytes, path->traffic_class);
    else
        snprintf(text_out, text_bytes, "local LID %u MTU %u, remote LID %u MTU %u, SL %u",
                 path->local.lid, trial->at->told.mtu_bytes, path->remote.lid,
                 trial->peer.port->mtu_bytes, path->service_level);
    return text_out;
}

static gyre_status progress(struct gyre_ib_trial *trial)
{
    const struct timespec pause = {.tv_nsec = 20000};
    struct ibv_wc wcs[16];
    const int n = ibv_poll_cq(trial->at->cq, 16, wcs);
    int n_received = 0;
    char way[256], window[64] = "";
    if (n < 0)
        return gyre_fail(GYRE_ERROR_SYSTEM, "ibv_poll_cq(%s) failed", trial->at->told.name);
    for (int i = 0; i < n; i++) {
        if (wcs[i].status == IBV_WC_RETRY_EXC_ERR)
            gyre_text_format(window, sizeof(window), " after %dx%.2f s", trial->path.retries + 1,
                             (double)gyre_ib_ack_timeout_ns(trial->path.timeout) / 1e9);
        if (wcs[i].status != IBV_WC_SUCCESS)
            return gyre_fail(GYRE_ERROR_REMOTE, "%s%s (%s); %s", gyre_ib_wc_name(wcs[i].status),
                             window, gyre_ib_wc_hint(wcs[i].status),
                             describe_path(trial, way, sizeof(way)));
        if (wcs[i].opcode == IBV_WC_RECV_RDMA_WITH_IMM)
            n_received++;
        else
            trial->n_done++;
    }
    trial->n_imms += (uint64_t)n_received;
    if (n > 0)
        trial->last_ns = gyre_now_ns();
    else if (gyre_now_ns() - trial->last_ns < SPIN_NS)
        sched_yield();
    else
        nanosleep(&pause, NULL);
    return post_receives(trial, n_received);
}

/* Waits for the peer's next n_messages (0 or 1), and until at most n_open sends are not done. */
static gyre_status wait_for(struct gyre_ib_trial *trial, uint64_t n_messages, uint64_t n_open)
{
    const uint64_t limit_ns = (uint64_t)trial->wait_s * 1000000000;
    const uint64_t n_wanted = trial->n_taken + n_messages;
    uint64_t waited_ns = 0, seen_ns = gyre_now_ns();
    char way[256];
    while (trial->n_imms < n_wanted || trial->n_posted - trial->n_done > n_open) {
        GYRE_TRY(progress(trial));
        const uint64_t now_ns = gyre_now_ns();
        waited_ns += gyre_min_u64(now_ns - seen_ns, MOST_GAP_NS);
        seen_ns = now_ns;
        if (waited_ns > limit_ns)
            return gyre_fail(GYRE_ERROR_TIMEOUT, "%s within %d s; %s",
                             trial->n_imms < n_wanted ? "nothing came from the peer"
                                                      : "the adapter did not finish a write",
                             trial->wait_s, describe_path(trial, way, sizeof(way)));
    }
    trial->n_taken = n_wanted;
    return GYRE_SUCCESS;
}

static gyre_status post_write(struct gyre_ib_trial *trial, size_t n_bytes, bool has_imm)
{
    struct ibv_sge sge = {
        .addr = (uintptr_t)trial->memory, .length = (uint32_t)n_bytes, .lkey = trial->at->mr->lkey};
    struct ibv_send_wr wr, *bad = NULL;
    memset(&wr, 0, sizeof(wr));
    wr.opcode = has_imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.wr.rdma.remote_addr = trial->peer.end->address;
    wr.wr.rdma.rkey = trial->peer.end->rkey;
    const int error = ibv_post_send(trial->qp, &wr, &bad);
    if (error != 0)
        return gyre_fail_errno(error, "ibv_post_send(%s, %zu bytes)", trial->at->told.name,
                               n_bytes);
    trial->n_posted++;
    return GYRE_SUCCESS;
}

static gyre_status check_bytes(const struct gyre_ib_trial *trial, size_t n_bytes)
{
    const unsigned char *received = trial->memory + LARGE_BYTES;
    for (size_t i = 0; i < n_bytes; i++)
        if (received[i] != trial->memory[i])
            return gyre_fail(GYRE_ERROR_REMOTE,
                             "byte %zu of %zu is %d and should be %d: RDMA damages data", i,
                             n_bytes, received[i], trial->memory[i]);
    return GYRE_SUCCESS;
}

static gyre_status small_round_trips(struct gyre_ib_trial *trial, int n)
{
    for (int i = 0; i < n; i++) {
        if (!trial->peer.is_receiver)
            GYRE_TRY(post_write(trial, SMALL_BYTES, true));
        GYRE_TRY(wait_for(trial, 1, N_IN_FLIGHT));
        GYRE_TRY(check_bytes(trial, SMALL_BYTES));
        memset(trial->memory + LARGE_BYTES, 0, SMALL_BYTES);
        if (trial->peer.is_receiver)
            GYRE_TRY(post_write(trial, SMALL_BYTES, true));
    }
    return wait_for(trial, 0, 0);
}

gyre_status gyre_ib_trial_small(struct gyre_ib_trial *trial, double *latency_us_out)
{
    trial->wait_s = WAIT_SMALL_S;
    GYRE_TRY(small_round_trips(trial, 1)); /* may resolve addresses */
    const uint64_t start_ns = gyre_now_ns();
    GYRE_TRY(small_round_trips(trial, N_SMALL));
    *latency_us_out = trial->peer.is_receiver
                          ? (double)NAN
                          : (double)(gyre_now_ns() - start_ns) / 1e3 / (2 * N_SMALL);
    return GYRE_SUCCESS;
}

static gyre_status send_large(struct gyre_ib_trial *trial, int n, size_t n_bytes)
{
    for (int i = 0; i < n; i++) {
        GYRE_TRY(wait_for(trial, 0, N_IN_FLIGHT - 1));
        GYRE_TRY(post_write(trial, n_bytes, i + 1 == n));
    }
    return wait_for(trial, 1, 0);
}

static gyre_status move_large(struct gyre_ib_trial *trial, size_t n_bytes, double *gbytes_per_s_out)
{
    if (trial->peer.is_receiver) {
        GYRE_TRY(wait_for(trial, 1, 0));
        GYRE_TRY(check_bytes(trial, n_bytes));
        GYRE_TRY(post_write(trial, SMALL_BYTES, true));
        GYRE_TRY(wait_for(trial, 1, 0));
        GYRE_TRY(post_write(trial, SMALL_BYTES, true));
        return wait_for(trial, 0, 0);
    }
    uint64_t start_ns = gyre_now_ns();
    GYRE_TRY(send_large(trial, 1, n_bytes));
    const double wanted = LARGE_NS / (double)(gyre_now_ns() - start_ns);
    const int n = wanted < 1 ? 1 : wanted > MAX_LARGE ? MAX_LARGE : (int)wanted;
    start_ns = gyre_now_ns();
    GYRE_TRY(send_large(trial, n, n_bytes));
    *gbytes_per_s_out = (double)n * (double)n_bytes / (double)(gyre_now_ns() - start_ns);
    return GYRE_SUCCESS;
}

gyre_status gyre_ib_trial_large(struct gyre_ib_trial *trial, double *gbytes_per_s_out)
{
    const struct gyre_ib_trial_port *mine = &trial->at->told, *theirs = trial->peer.port;
    const size_t n_bytes =
        gyre_min_u64(gyre_min_u32(mine->max_msg_bytes, theirs->max_msg_bytes), LARGE_BYTES);
    *gbytes_per_s_out = (double)NAN;
    trial->wait_s = WAIT_LARGE_S;
    const gyre_status status = move_large(trial, n_bytes, gbytes_per_s_out);
    if (status == GYRE_ERROR_TIMEOUT ||
        (status == GYRE_ERROR_REMOTE && strstr(gyre_cause(), "RETRY_EXC") != NULL))
        return gyre_fail_context(
            status,
            "packets of %d bytes arrive, packets of %u bytes do not: something on the way "
            "(an interface, a switch) has a smaller MTU than both ports",
            SMALL_BYTES, gyre_min_u32(mine->mtu_bytes, theirs->mtu_bytes));
    return status;
}
