/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages of a trial. Every message is an RDMA write into the peer's landing area; a message
 * that the peer waits for carries an immediate value, which consumes a posted receive.
 */
#include "transport/ib/ib_trial_state.h"

#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define SMALL_BYTES  64 /* fits into one packet of every MTU */
#define N_SMALL      20
#define N_IN_FLIGHT  16   /* large writes */
#define MAX_LARGE    4096 /* large writes of a measurement */
#define LARGE_NS     30e6 /* wanted duration of the measurement */
#define WAIT_SMALL_S 5    /* longer than the retries take: adapters may wait four times as long */
#define WAIT_LARGE_S 20   /* the pair is known to reach each other, so a slow pair may have time */
/* A loaded or virtual machine may stop for seconds, and with it the adapter that runs in software.
 * Then the answer is not late, so the time between two polls counts up to this. */
#define MOST_GAP_NS 100000000ULL
#define SPIN_NS     200000 /* without a completion; then a single processor is left to others */

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

static gyre_status fail_completion(const struct gyre_ib_trial *trial, const struct ibv_wc *wc)
{
    char way[256], window[64] = "";
    if (wc->status == IBV_WC_RETRY_EXC_ERR)
        gyre_text_format(window, sizeof(window), " after %dx%.2f s", trial->path.retries + 1,
                         (double)gyre_ib_ack_timeout_ns(trial->path.timeout) / 1e9);
    return gyre_fail(GYRE_ERROR_REMOTE, "%s%s (%s); %s", gyre_ib_wc_name(wc->status), window,
                     gyre_ib_wc_hint(wc->status), describe_path(trial, way, sizeof(way)));
}

/* Take the completions that are there. */
static gyre_status progress(struct gyre_ib_trial *trial)
{
    const struct timespec pause = {.tv_nsec = 20000};
    struct ibv_wc wcs[16];
    const int n = ibv_poll_cq(trial->at->cq, 16, wcs);
    int n_received = 0;
    if (n < 0)
        return gyre_fail(GYRE_ERROR_SYSTEM, "ibv_poll_cq(%s) failed", trial->at->told.name);
    for (int i = 0; i < n; i++) {
        if (wcs[i].status != IBV_WC_SUCCESS)
            return fail_completion(trial, &wcs[i]);
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
    return gyre_ib_trial_post_receives(trial, n_received);
}

/* Wait until the peer has sent its next n_messages (0 or 1), and at most n_open sends are not done.
 */
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
    const unsigned char *landing = trial->memory + GYRE_IB_TRIAL_LARGE_BYTES;
    for (size_t i = 0; i < n_bytes; i++)
        if (landing[i] != trial->memory[i])
            return gyre_fail(GYRE_ERROR_REMOTE,
                             "byte %zu of %zu is %d and should be %d: RDMA damages data", i,
                             n_bytes, landing[i], trial->memory[i]);
    return GYRE_SUCCESS;
}

static gyre_status exchange_small(struct gyre_ib_trial *trial, int n)
{
    for (int i = 0; i < n; i++) {
        if (!trial->peer.is_receiver)
            GYRE_TRY(post_write(trial, SMALL_BYTES, true));
        GYRE_TRY(wait_for(trial, 1, N_IN_FLIGHT));
        GYRE_TRY(check_bytes(trial, SMALL_BYTES));
        memset(trial->memory + GYRE_IB_TRIAL_LARGE_BYTES, 0, SMALL_BYTES);
        if (trial->peer.is_receiver)
            GYRE_TRY(post_write(trial, SMALL_BYTES, true));
    }
    return wait_for(trial, 0, 0);
}

gyre_status gyre_ib_trial_small(struct gyre_ib_trial *trial, double *latency_us_out)
{
    trial->wait_s = WAIT_SMALL_S;
    GYRE_TRY(exchange_small(trial, 1)); /* the first message may resolve addresses */
    const uint64_t start_ns = gyre_now_ns();
    GYRE_TRY(exchange_small(trial, N_SMALL));
    *latency_us_out = trial->peer.is_receiver
                          ? (double)NAN
                          : (double)(gyre_now_ns() - start_ns) / 1e3 / (2 * N_SMALL);
    return GYRE_SUCCESS;
}

/* n writes, the last of which the peer answers. */
static gyre_status send_large(struct gyre_ib_trial *trial, int n, size_t n_bytes)
{
    for (int i = 0; i < n; i++) {
        GYRE_TRY(wait_for(trial, 0, N_IN_FLIGHT - 1));
        GYRE_TRY(post_write(trial, n_bytes, i + 1 == n));
    }
    return wait_for(trial, 1, 0);
}

static gyre_status answer_large(struct gyre_ib_trial *trial, size_t n_bytes)
{
    for (int i = 0; i < 2; i++) {
        GYRE_TRY(wait_for(trial, 1, 0));
        if (i == 0)
            GYRE_TRY(check_bytes(trial, n_bytes));
        GYRE_TRY(post_write(trial, SMALL_BYTES, true));
    }
    return wait_for(trial, 0, 0);
}

static gyre_status move_large(struct gyre_ib_trial *trial, size_t n_bytes, double *gbytes_per_s_out)
{
    if (trial->peer.is_receiver)
        return answer_large(trial, n_bytes);
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
    const uint32_t most = trial->at->told.max_msg_bytes < trial->peer.port->max_msg_bytes
                              ? trial->at->told.max_msg_bytes
                              : trial->peer.port->max_msg_bytes;
    const size_t n_bytes = most < GYRE_IB_TRIAL_LARGE_BYTES ? most : GYRE_IB_TRIAL_LARGE_BYTES;
    *gbytes_per_s_out = (double)NAN;
    trial->wait_s = WAIT_LARGE_S;
    const gyre_status status = move_large(trial, n_bytes, gbytes_per_s_out);
    if (status == GYRE_ERROR_TIMEOUT ||
        (status == GYRE_ERROR_REMOTE && strstr(gyre_cause(), "RETRY_EXC") != NULL))
        return gyre_fail_context(
            status,
            "packets of %d bytes arrive, packets of %u bytes do not: something on the way "
            "(an interface, a switch) has a smaller MTU than both ports",
            SMALL_BYTES,
            trial->at->told.mtu_bytes < trial->peer.port->mtu_bytes ? trial->at->told.mtu_bytes
                                                                    : trial->peer.port->mtu_bytes);
    return status;
}
