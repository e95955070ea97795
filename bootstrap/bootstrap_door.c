/* SPDX-License-Identifier: Apache-2.0
 *
 * Doors: how some ranks of a communicator find each other again without its hub. The lowest of
 * them waits until all have knocked, and only then answers, so all get the same verdict: the new
 * unique id, or why there is none. Ranks learn of deaths one after the other: one that counts with
 * more ranks than the lowest is sent away to learn, and awaited again.
 */
#include "bootstrap/bootstrap_door.h"

#include "core/base/util.h"

#include <stdlib.h>
#include <string.h>

#define SECOND_NS  1000000000ULL
#define CONNECT_NS (4 * SECOND_NS) /* refused for this long: nobody lives behind that door */
#define TRY_NS     (1 * SECOND_NS) /* for one of several addresses */

struct gyre_door_claim gyre_door_claim_of(const struct gyre_regroup *regroup)
{
    struct gyre_door_claim claim = {.rank = regroup->rank, .members = GYRE_HASH_INIT};
    for (int32_t rank = 0; rank < regroup->n_ranks; rank++) {
        if (!regroup->is_member[rank])
            continue;
        claim.n_members++;
        claim.members = gyre_hash(claim.members, &rank, sizeof(rank));
    }
    return claim;
}

uint64_t gyre_door_deadline(const struct gyre_regroup *regroup)
{
    return gyre_now_ns() +
           (uint64_t)gyre_param_number(regroup->params, GYRE_PARAM_BOOTSTRAP_TIMEOUT) * SECOND_NS;
}

gyre_status gyre_door_open(const struct gyre_params *params, struct gyre_door **door_out,
                           struct gyre_sock_list *list_out)
{
    struct gyre_door *door = calloc(1, sizeof(*door));
    if (door == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "a rank's door");
    const gyre_status status = gyre_sock_listen_all(params, NULL, &door->listeners, list_out);
    if (status == GYRE_SUCCESS)
        *door_out = door;
    else
        free(door);
    return status;
}

void gyre_door_close(struct gyre_door *door)
{
    if (door == NULL)
        return;
    gyre_sock_close_all(&door->listeners);
    free(door);
}

/* The lowest member speaks when it has come to its door, and again when all have. */
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

/* *is_proved_out: what follows is the lowest member's own word, whatever it is. */
static gyre_status talk(int fd, const struct gyre_regroup *regroup, uint64_t deadline_ns,
                        bool *is_proved_out, struct gyre_door_verdict *verdict_out)
{
    const struct gyre_door_claim claim = gyre_door_claim_of(regroup);
    GYRE_TRY(wait_for_word(fd, regroup, deadline_ns));
    GYRE_TRY(gyre_authenticate(fd, regroup->secret, false, gyre_now_ns() + GYRE_DOOR_PROOF_NS));
    *is_proved_out = true;
    GYRE_TRY(gyre_sock_send(fd, &claim, sizeof(claim), gyre_now_ns() + GYRE_DOOR_PROOF_NS));
    GYRE_TRY(wait_for_word(fd, regroup, deadline_ns));
    return gyre_sock_recv(fd, verdict_out, sizeof(*verdict_out),
                          gyre_now_ns() + GYRE_DOOR_ANSWER_NS);
}

/* One try at each address. A wrong one (this host has a bridge with the same address, say) refuses,
 * is silent, or does not know the secret. */
static gyre_status knock_once(const struct gyre_sock_address *addresses, int n,
                              const struct gyre_regroup *regroup, uint64_t deadline_ns,
                              bool *is_proved_out, struct gyre_door_verdict *verdict_out)
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
        is_late = is_late || status == GYRE_ERROR_TIMEOUT;
    }
    return is_late ? GYRE_ERROR_TIMEOUT : status;
}

/* Until an address has brought the lowest member's word. */
static gyre_status get_verdict(const struct gyre_sock_list *list,
                               const struct gyre_regroup *regroup, uint64_t deadline_ns,
                               struct gyre_door_verdict *verdict_out)
{
    struct gyre_sock_address addresses[GYRE_SOCK_LIST_MAX];
    char text[256];
    bool is_proved = false;
    int n = 0;
    GYRE_TRY(gyre_sock_list_targets(list, addresses, &n));
    gyre_sock_list_to_text(addresses, n, text, sizeof(text));
    for (;;) {
        const gyre_status status =
            knock_once(addresses, n, regroup, deadline_ns, &is_proved, verdict_out);
        if (status == GYRE_SUCCESS || is_proved)
            return status;
        GYRE_TRY(regroup->check(regroup->context, NULL));
        if (status != GYRE_ERROR_TIMEOUT)
            return gyre_fail(GYRE_ERROR_REMOTE, "nobody is behind the door at %s any more", text);
        if (gyre_now_ns() >= deadline_ns)
            return gyre_fail(status, "no word came from the door at %s", text);
    }
}

gyre_status gyre_door_knock(const struct gyre_sock_list *list, const struct gyre_regroup *regroup,
                            gyre_unique_id *id_out)
{
    /* The lowest member says more about who is missing: let its deadline come first. */
    const uint64_t deadline_ns = gyre_door_deadline(regroup) + 2 * SECOND_NS;
    struct gyre_door_verdict verdict;
    GYRE_TRY(get_verdict(list, regroup, deadline_ns, &verdict));
    verdict.text[sizeof(verdict.text) - 1] = '\0';
    if (verdict.status != GYRE_SUCCESS)
        return gyre_fail(verdict.status < GYRE_IN_PROGRESS ? (gyre_status)verdict.status
                                                           : GYRE_ERROR_REMOTE,
                         "%s", verdict.text);
    *id_out = verdict.id;
    return GYRE_SUCCESS;
}
