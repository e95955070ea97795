/* SPDX-License-Identifier: Apache-2.0
 *
 * How some ranks of a communicator find each other again without its rendezvous server. The lowest
 * of them waits until all others have connected to its regroup listener, and only then answers.
 * So all get the same verdict: the new unique id, or why there is none. A member that cannot take
 * part joins too, with its failure. Then every member gets this failure as soon as it joins.
 *
 * Ranks learn of deaths one after the other. A rank whose list still has more ranks than the
 * lowest one's is told so, and the lowest rank waits for it to come again.
 */
#include "bootstrap/bootstrap_regroup.h"

#include "core/foundation/base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS  1000000000ULL
#define CONNECT_NS (4 * SECOND_NS) /* refused for this long: the listening process is gone */
#define TRY_NS     (1 * SECOND_NS) /* for one of several addresses */

struct gyre_regroup_claim gyre_regroup_claim_of(const struct gyre_regroup *regroup)
{
    struct gyre_regroup_claim claim = {
        .rank = regroup->rank, .members = GYRE_HASH_INIT, .failure = (uint32_t)regroup->failure};
    if (regroup->failure != GYRE_SUCCESS)
        snprintf(claim.text, sizeof(claim.text), "%s", regroup->failure_text);
    for (int32_t rank = 0; rank < regroup->n_ranks; rank++) {
        if (!regroup->is_member[rank])
            continue;
        claim.n_members++;
        claim.members = gyre_hash(claim.members, &rank, sizeof(rank));
    }
    return claim;
}

uint64_t gyre_regroup_deadline(const struct gyre_regroup *regroup)
{
    return gyre_now_ns() +
           (uint64_t)gyre_param_number(regroup->params, GYRE_PARAM_BOOTSTRAP_TIMEOUT) * SECOND_NS;
}

gyre_status gyre_regroup_listen(const struct gyre_params *params,
                                struct gyre_regroup_listener **listener_out,
                                struct gyre_sock_list *list_out)
{
    struct gyre_regroup_listener *listener = calloc(1, sizeof(*listener));
    if (listener == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "a regroup listener");
    const gyre_status status = gyre_sock_listen_all(params, NULL, &listener->listeners, list_out);
    if (status == GYRE_SUCCESS)
        *listener_out = listener;
    else
        free(listener);
    return status;
}

void gyre_regroup_close(struct gyre_regroup_listener *listener)
{
    if (listener == NULL)
        return;
    gyre_sock_close_all(&listener->listeners);
    free(listener);
}

/* The lowest member sends its challenge when it begins to serve, and the verdict when all members
 * have joined. Between the two it is silent. */
static gyre_status wait_for_word(int fd, const struct gyre_regroup *regroup, uint64_t deadline_ns)
{
    struct gyre_wire_watch watch;
    gyre_wire_watch_start(fd, &watch);
    for (;;) {
        bool has_word = false;
        GYRE_TRY(gyre_wire_await(fd, &watch, deadline_ns, &has_word));
        if (has_word)
            return GYRE_SUCCESS;
        GYRE_TRY(regroup->check(regroup->context, NULL));
    }
}

/* Ask the lowest member. *is_proved_out: the other end has proved that it is the lowest member, so
 * its answer counts, whatever it is. */
static gyre_status talk(int fd, const struct gyre_regroup *regroup, uint64_t deadline_ns,
                        bool *is_proved_out, struct gyre_regroup_verdict *verdict_out)
{
    const struct gyre_regroup_claim claim = gyre_regroup_claim_of(regroup);
    GYRE_TRY(wait_for_word(fd, regroup, deadline_ns));
    GYRE_TRY(gyre_authenticate(fd, regroup->secret, false, gyre_now_ns() + GYRE_REGROUP_PROOF_NS));
    *is_proved_out = true;
    GYRE_TRY(gyre_sock_send(fd, &claim, sizeof(claim), gyre_now_ns() + GYRE_REGROUP_PROOF_NS));
    GYRE_TRY(wait_for_word(fd, regroup, deadline_ns));
    return gyre_sock_recv(fd, verdict_out, sizeof(*verdict_out),
                          gyre_now_ns() + GYRE_REGROUP_ANSWER_NS);
}

/* One try at each address. A wrong one (this host has a bridge with the same address, say) refuses,
 * is silent, or does not know the secret. */
static gyre_status try_addresses(const struct gyre_sock_address *addresses, int n,
                                 const struct gyre_regroup *regroup, uint64_t deadline_ns,
                                 bool *is_proved_out, struct gyre_regroup_verdict *verdict_out)
{
    gyre_status status = GYRE_ERROR_TIMEOUT;
    bool is_late = false;
    for (int i = 0; i < n; i++) {
        int fd = -1;
        GYRE_TRY(regroup->check(regroup->context, NULL));
        const uint64_t try_ns = gyre_now_ns() + (n == 1 ? CONNECT_NS : TRY_NS);
        status = gyre_sock_connect(&addresses[i], gyre_min_u64(deadline_ns, try_ns), &fd);
        if (status == GYRE_SUCCESS) {
            status = talk(fd, regroup, deadline_ns, is_proved_out, verdict_out);
            gyre_sock_close(fd);
            if (status == GYRE_SUCCESS || *is_proved_out)
                return status;
        }
        if (gyre_cause_is_limit(status))
            return status;
        is_late = is_late || status == GYRE_ERROR_TIMEOUT;
    }
    return is_late ? GYRE_ERROR_TIMEOUT : status;
}

/* Try all addresses again and again, until the lowest member has answered at one of them. */
static gyre_status get_verdict(const struct gyre_sock_list *list,
                               const struct gyre_regroup *regroup, uint64_t deadline_ns,
                               struct gyre_regroup_verdict *verdict_out)
{
    struct gyre_sock_address addresses[GYRE_SOCK_LIST_MAX];
    char text[256];
    bool is_proved = false;
    int n = 0;
    GYRE_TRY(gyre_sock_list_targets(list, addresses, &n));
    gyre_sock_list_to_text(addresses, n, text, sizeof(text));
    for (;;) {
        const gyre_status status =
            try_addresses(addresses, n, regroup, deadline_ns, &is_proved, verdict_out);
        if (status == GYRE_SUCCESS || is_proved || gyre_cause_is_limit(status))
            return status;
        GYRE_TRY(regroup->check(regroup->context, NULL));
        if (status != GYRE_ERROR_TIMEOUT)
            return gyre_fail(GYRE_ERROR_REMOTE, "no rank listens at %s any more to regroup", text);
        if (gyre_now_ns() >= deadline_ns)
            return gyre_fail(status, "no answer came from the regroup listener at %s", text);
    }
}

gyre_status gyre_regroup_join(const struct gyre_sock_list *list, const struct gyre_regroup *regroup,
                              gyre_unique_id *id_out)
{
    /* The lowest member's error names the missing ranks, so its deadline comes first. */
    const uint64_t deadline_ns = gyre_regroup_deadline(regroup) + 2 * SECOND_NS;
    struct gyre_regroup_verdict verdict;
    GYRE_TRY(get_verdict(list, regroup, deadline_ns, &verdict));
    verdict.text[sizeof(verdict.text) - 1] = '\0';
    if (verdict.status != GYRE_SUCCESS)
        return gyre_fail(verdict.status < GYRE_IN_PROGRESS ? (gyre_status)verdict.status
                                                           : GYRE_ERROR_REMOTE,
                         "%s", verdict.text);
    *id_out = verdict.id;
    return GYRE_SUCCESS;
}
