/* SPDX-License-Identifier: Apache-2.0
 *
 * The ports of a trial, and the queue pair between two of them. ib_trial_messages.c moves bytes
 * over the queue pair.
 */
#include "transport/ib/ib_trial_state.h"

#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(GYRE_IB_TRIAL_GIDS >= GYRE_IB_PAIR_GIDS, "a rail's GIDs have room in a port");

#define N_RECEIVES 64
#define N_CQE      256 /* more than the requests that are ever posted at once */
#define TIMEOUT    15  /* 4.096 us x 2^15 = 0.13 s until a packet is sent again */
#define RETRIES    6   /* Soft-RoCE takes 7 for ever */

/* ---- ports --------------------------------------------------------------------------------- */

static gyre_status open_port(struct gyre_ib_trial *trial, struct gyre_ib_trial_open_port *port)
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
                                               .n_bytes = GYRE_IB_TRIAL_MEMORY_BYTES,
                                               .remote_write = true};
    return gyre_ib_mr_register(&request, &port->mr);
}

static void describe_port(struct gyre_ib_trial_open_port *port)
{
    struct gyre_ib_trial_port *told = &port->told;
    snprintf(told->device, sizeof(told->device), "%.63s", port->port.name);
    snprintf(told->name, sizeof(told->name), "%.63s:%u", port->port.name, port->port.port);
    told->port = port->port.port;
    told->is_roce = port->port.is_roce;
    told->mtu_bytes = gyre_ib_mtu_bytes(port->port.active_mtu);
    told->max_msg_bytes = port->port.max_msg_bytes;
    told->gbit_per_s = port->port.gbit_per_s;
    told->lid = port->port.lid;
}

gyre_status gyre_ib_trial_open(const struct gyre_params *params, struct gyre_ib_trial **trial_out)
{
    struct gyre_ib_trial *trial = calloc(1, sizeof(*trial));
    if (trial == NULL)
        return gyre_fail_errno(ENOMEM, "trial of RDMA ports");
    trial->params = params;
    trial->memory = aligned_alloc(4096, GYRE_IB_TRIAL_MEMORY_BYTES);
    gyre_status status = trial->memory == NULL ? gyre_fail_errno(ENOMEM, "trial of RDMA ports")
                                               : gyre_ib_scan_open(params, &trial->scan);
    if (status != GYRE_SUCCESS) {
        free(trial->memory);
        free(trial);
        return status;
    }
    for (size_t i = 0; i < GYRE_IB_TRIAL_LARGE_BYTES; i++)
        trial->memory[i] = (unsigned char)(i * 131 + i / 257 + 1);
    for (int i = 0; i < trial->scan.n_ports; i++) {
        struct gyre_ib_trial_open_port *port = &trial->ports[i];
        port->port = trial->scan.ports[i];
        describe_port(port);
        if (open_port(trial, port) != GYRE_SUCCESS)
            snprintf(port->told.cause, sizeof(port->told.cause), "%.319s", gyre_cause());
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
        struct gyre_ib_trial_open_port *port = &trial->ports[i];
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

/* ---- the queue pair ------------------------------------------------------------------------- */

gyre_status gyre_ib_trial_post_receives(struct gyre_ib_trial *trial, int n)
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

/* A variable of one byte; 0 if it is not set. */
static uint8_t number_or_0(const struct gyre_params *params, enum gyre_param_id id)
{
    const int64_t number = gyre_param_number(params, id);
    return number > 0 ? (uint8_t)number : 0;
}

gyre_status gyre_ib_trial_begin(struct gyre_ib_trial *trial, int i,
                                struct gyre_ib_trial_end *end_out)
{
    struct gyre_ib_trial_open_port *port = &trial->ports[i];
    struct gyre_ib_qp_size size = {.n_send = N_RECEIVES, .n_recv = N_RECEIVES};
    struct gyre_ib_qp_path *path = &trial->path;
    gyre_ib_trial_finish(trial);
    if (port->told.cause[0] != '\0')
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "%s", port->told.cause);
    memset(path, 0, sizeof(*path));
    path->port = port->port.port;
    path->is_roce = port->port.is_roce;
    path->local.lid = port->port.lid;
    path->local.mtu = port->port.active_mtu;
    path->traffic_class = number_or_0(trial->params, GYRE_PARAM_IB_TC);
    path->service_level = number_or_0(trial->params, GYRE_PARAM_IB_SL);
    path->pkey_index = (uint16_t)gyre_param_number(trial->params, GYRE_PARAM_IB_PKEY);
    path->timeout = TIMEOUT;
    path->retries = RETRIES;
    GYRE_TRY(gyre_ib_random_psn(&path->local.psn));
    GYRE_TRY(gyre_ib_qp_create(trial->scan.verbs, port->pd, port->cq, path, IBV_ACCESS_REMOTE_WRITE,
                               &size, &trial->qp));
    trial->at = port;
    trial->n_posted = trial->n_done = trial->n_imms = trial->n_taken = 0;
    path->local.qpn = trial->qp->qp_num;
    memset(trial->memory + GYRE_IB_TRIAL_LARGE_BYTES, 0, GYRE_IB_TRIAL_LARGE_BYTES);
    *end_out =
        (struct gyre_ib_trial_end){.address = (uintptr_t)trial->memory + GYRE_IB_TRIAL_LARGE_BYTES,
                                   .rkey = port->mr->rkey,
                                   .qpn = path->local.qpn,
                                   .psn = path->local.psn};
    return gyre_ib_trial_post_receives(trial, N_RECEIVES);
}

void gyre_ib_trial_finish(struct gyre_ib_trial *trial)
{
    struct ibv_wc wc;
    if (trial == NULL || trial->at == NULL)
        return;
    gyre_ib_qp_stop(trial->scan.verbs, trial->qp);
    trial->scan.verbs->destroy_qp(trial->qp);
    /* The queue of completions serves the next trial too. */
    while (ibv_poll_cq(trial->at->cq, 1, &wc) > 0)
        ;
    trial->qp = NULL;
    trial->at = NULL;
}

static enum ibv_mtu mtu_of(uint32_t n_bytes)
{
    enum ibv_mtu mtu = IBV_MTU_256;
    while (mtu < IBV_MTU_4096 && gyre_ib_mtu_bytes(mtu) < n_bytes)
        mtu = (enum ibv_mtu)((int)mtu + 1);
    return mtu;
}

/* Both processes pass the sender's rows first, so both make the same choice. */
static gyre_status choose_gids(struct gyre_ib_trial *trial)
{
    const struct gyre_ib_trial_port *mine = &trial->at->told, *theirs = trial->peer.port;
    const int n_theirs = (int)gyre_min_u64(theirs->n_gids, GYRE_IB_TRIAL_GIDS);
    int my_row = 0, their_row = 0;
    if (trial->peer.is_receiver)
        GYRE_TRY(gyre_ib_gid_pair(theirs->gids, n_theirs, mine->gids, (int)mine->n_gids, &their_row,
                                  &my_row));
    else
        GYRE_TRY(gyre_ib_gid_pair(mine->gids, (int)mine->n_gids, theirs->gids, n_theirs, &my_row,
                                  &their_row));
    trial->path.gid_index = (uint8_t)mine->gids[my_row].index;
    trial->their_gid_index = theirs->gids[their_row].index;
    memcpy(trial->path.local.gid, mine->gids[my_row].raw, sizeof(trial->path.local.gid));
    memcpy(trial->path.remote.gid, theirs->gids[their_row].raw, sizeof(trial->path.remote.gid));
    return GYRE_SUCCESS;
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
    path->remote.mtu = mtu_of(peer->port->mtu_bytes);
    if (path->is_roce)
        GYRE_TRY(choose_gids(trial));
    return gyre_ib_qp_connect(trial->scan.verbs, trial->qp, path, 0);
}
