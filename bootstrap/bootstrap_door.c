/* SPDX-License-Identifier: Apache-2.0
 *
 * Doors: how some ranks of a communicator find each other again without its hub. The lowest of
 * them waits until all have knocked, and only then answers, so all get the same verdict: the new
 * unique id, or why there is none. Ranks learn of deaths one after the other: one that counts with
 * more ranks than the lowest is sent away to learn, and awaited again.
 */
#include "bootstrap/bootstrap_wire.h"

#include "core/base/util.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND_NS  1000000000ULL
#define SLICE_MS   100
#define PROOF_NS   (2 * SECOND_NS) /* a rank proves itself in milliseconds; a stranger goes */
#define CONNECT_NS (4 * SECOND_NS) /* refused for this long: nobody lives behind that door */
#define ANSWER_NS  (5 * SECOND_NS)

/* Who knocks. Exchanged: fixed layout. */
struct claim {
    int32_t rank;
    int32_t n_members;
    uint64_t members; /* hash of the list: only equal lists meet */
};

struct verdict {
    uint32_t status;
    char text[GYRE_TEXT_MAX_BYTES];
    gyre_unique_id id;
};

struct gyre_door {
    int fd;
};

static struct claim claim_of(const struct gyre_regroup *regroup)
{
    struct claim claim = {.rank = regroup->rank, .members = GYRE_HASH_INIT};
    for (int32_t rank = 0; rank < regroup->n_ranks; rank++) {
        if (!regroup->is_member[rank])
            continue;
        claim.n_members++;
        claim.members = gyre_hash(claim.members, &rank, sizeof(rank));
    }
    return claim;
}

static uint64_t deadline_of(const struct gyre_regroup *regroup)
{
    return gyre_now_ns() +
           (uint64_t)gyre_param_number(regroup->params, GYRE_PARAM_BOOTSTRAP_TIMEOUT) * SECOND_NS;
}

gyre_status gyre_door_open(const struct gyre_params *params, struct gyre_door **door_out,
                           struct gyre_sock_address *address_out)
{
    struct gyre_sock_interface interface;
    GYRE_TRY(gyre_sock_choose(params, &interface));
    struct gyre_door *door = calloc(1, sizeof(*door));
    if (door == NULL)
        return gyre_fail_errno(ENOMEM, "a rank's door");
    const gyre_status status = gyre_sock_listen(&interface.address, &door->fd, address_out);
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
    gyre_sock_close(door->fd);
    free(door);
}

/* ---- the lowest member -------------------------------------------------------------------- */

struct serving {
    const struct gyre_regroup *regroup;
    struct claim own;
    bool *missing;        /* by rank */
    struct pollfd *polls; /* [0] is the door, the others are guests */
    int *rank_of;         /* of the guest in polls[i] */
    int n_polls;
};

/* "1, 3 and more": ranks with is_member[rank] == wanted. */
static void list_ranks(const struct gyre_regroup *regroup, const bool *is_member, bool wanted,
                       char *text_out, size_t text_bytes)
{
    size_t n_text = 0;
    text_out[0] = '\0';
    for (int rank = 0; rank < regroup->n_ranks; rank++) {
        if (is_member[rank] != wanted)
            continue;
        if (n_text > text_bytes - 32) {
            snprintf(text_out + n_text, text_bytes - n_text, " and more");
            return;
        }
        n_text += (size_t)snprintf(text_out + n_text, text_bytes - n_text, "%s%d",
                                   n_text == 0 ? "" : ", ", rank);
    }
}

static void send_verdict(int fd, gyre_status status, const char *text, const gyre_unique_id *id)
{
    char before[GYRE_CAUSE_MAX_BYTES];
    struct verdict verdict;
    memset(&verdict, 0, sizeof(verdict));
    verdict.status = (uint32_t)status;
    if (id != NULL)
        verdict.id = *id;
    snprintf(verdict.text, sizeof(verdict.text), "%.700s", text);
    snprintf(before, sizeof(before), "%s", gyre_cause());
    /* A guest that is gone does not come to the new hub either, which says so. */
    if (gyre_sock_send(fd, &verdict, sizeof(verdict), gyre_now_ns() + ANSWER_NS) != GYRE_SUCCESS)
        gyre_set_cause(before);
    gyre_sock_close(fd);
    explicit_bzero(&verdict, sizeof(verdict));
}

static gyre_status read_claim(const struct gyre_regroup *regroup, int fd, struct claim *claim_out)
{
    const uint64_t proof_ns = gyre_now_ns() + PROOF_NS;
    GYRE_TRY(gyre_authenticate(fd, regroup->secret, true, proof_ns));
    GYRE_TRY(gyre_sock_recv(fd, claim_out, sizeof(*claim_out), proof_ns));
    return claim_out->rank >= 0 && claim_out->rank < regroup->n_ranks ? GYRE_SUCCESS
                                                                      : GYRE_ERROR_REMOTE;
}

/* Strangers and those who hang up are nobody's business: SUCCESS without a guest. */
static gyre_status let_in(struct serving *serving)
{
    const struct gyre_regroup *regroup = serving->regroup;
    char text[400];
    char excluded[256];
    struct claim claim;
    int fd = -1;
    if (gyre_sock_accept(serving->polls[0].fd, 0, &fd) != GYRE_SUCCESS)
        return GYRE_SUCCESS;
    if (read_claim(regroup, fd, &claim) != GYRE_SUCCESS) {
        gyre_sock_close(fd);
        return GYRE_SUCCESS;
    }
    if (!regroup->is_member[claim.rank] || claim.n_members > serving->own.n_members) {
        list_ranks(regroup, regroup->is_member, false, excluded, sizeof(excluded));
        snprintf(text, sizeof(text), "rank %d excludes ranks %s", regroup->rank, excluded);
        send_verdict(fd, GYRE_ERROR_REMOTE, text, NULL);
        return GYRE_SUCCESS;
    }
    serving->polls[serving->n_polls] = (struct pollfd){.fd = fd, .events = POLLIN};
    serving->rank_of[serving->n_polls++] = claim.rank;
    if (claim.members != serving->own.members)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "ranks %d and %d do not go on with the same ranks (%d of %d there, %d "
                         "here): exclude the same ranks everywhere",
                         regroup->rank, claim.rank, claim.n_members, regroup->n_ranks,
                         serving->own.n_members);
    if (!serving->missing[claim.rank])
        return gyre_fail(GYRE_ERROR_INVALID_USAGE, "rank %d came twice", claim.rank);
    serving->missing[claim.rank] = false;
    return GYRE_SUCCESS;
}

static gyre_status fail_missing(const struct serving *serving)
{
    char text[256];
    list_ranks(serving->regroup, serving->missing, true, text, sizeof(text));
    return gyre_fail(GYRE_ERROR_TIMEOUT, "ranks %s did not come in time", text);
}

static gyre_status wait_for_all(struct serving *serving, uint64_t deadline_ns)
{
    const struct gyre_regroup *regroup = serving->regroup;
    while (serving->n_polls < serving->own.n_members) { /* the door stands for this rank */
        GYRE_TRY(regroup->check(regroup->context, serving->missing));
        if (gyre_now_ns() >= deadline_ns)
            return fail_missing(serving);
        if (poll(serving->polls, (nfds_t)serving->n_polls, SLICE_MS) <= 0)
            continue;
        /* Guests only wait: a word from one is its end. */
        for (int i = 1; i < serving->n_polls; i++)
            if (serving->polls[i].revents != 0)
                return gyre_fail(GYRE_ERROR_REMOTE, "rank %d came and went: it died or gave up",
                                 serving->rank_of[i]);
        if (serving->polls[0].revents != 0)
            GYRE_TRY(let_in(serving));
    }
    return GYRE_SUCCESS;
}

static void tell_guests(const struct serving *serving, gyre_status status, const gyre_unique_id *id)
{
    char text[GYRE_CAUSE_MAX_BYTES + 32] = "";
    if (status != GYRE_SUCCESS)
        snprintf(text, sizeof(text), "rank %d: %s", serving->regroup->rank, gyre_cause());
    for (int i = 1; i < serving->n_polls; i++)
        send_verdict(serving->polls[i].fd, status, text, status == GYRE_SUCCESS ? id : NULL);
}

gyre_status gyre_door_serve(struct gyre_door *door, const struct gyre_regroup *regroup,
                            gyre_unique_id *id_out)
{
    const size_t n = (size_t)regroup->n_ranks;
    struct serving serving = {.regroup = regroup, .own = claim_of(regroup), .n_polls = 1};
    serving.missing = malloc(n * sizeof(*serving.missing));
    serving.polls = calloc(n + 1, sizeof(*serving.polls));
    serving.rank_of = calloc(n + 1, sizeof(*serving.rank_of));
    gyre_status status = GYRE_SUCCESS;
    if (serving.missing == NULL || serving.polls == NULL || serving.rank_of == NULL) {
        status = gyre_fail_errno(ENOMEM, "a rank's door");
    } else {
        memcpy(serving.missing, regroup->is_member, n * sizeof(*serving.missing));
        serving.missing[regroup->rank] = false;
        serving.polls[0] = (struct pollfd){.fd = door->fd, .events = POLLIN};
        status = wait_for_all(&serving, deadline_of(regroup));
        if (status == GYRE_SUCCESS)
            status = gyre_unique_id_create(regroup->params, id_out);
        tell_guests(&serving, status, id_out);
    }
    free(serving.missing);
    free(serving.polls);
    free(serving.rank_of);
    return status;
}

/* ---- the others --------------------------------------------------------------------------- */

static gyre_status connect_door(const struct gyre_sock_address *address,
                                const struct gyre_regroup *regroup, uint64_t deadline_ns,
                                int *fd_out)
{
    char text[64];
    for (;;) {
        GYRE_TRY(regroup->check(regroup->context, NULL));
        const uint64_t slice_ns = gyre_min_u64(deadline_ns, gyre_now_ns() + CONNECT_NS);
        const gyre_status status = gyre_sock_connect(address, slice_ns, fd_out);
        if (status == GYRE_SUCCESS)
            return status;
        if (status != GYRE_ERROR_TIMEOUT)
            return gyre_fail(GYRE_ERROR_REMOTE, "nobody is behind the door at %s any more",
                             gyre_sock_to_text(address, text, sizeof(text)));
        if (gyre_now_ns() >= deadline_ns)
            return status;
    }
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

static gyre_status talk(int fd, const struct gyre_regroup *regroup, uint64_t deadline_ns,
                        struct verdict *verdict_out)
{
    const struct claim claim = claim_of(regroup);
    GYRE_TRY(wait_for_word(fd, regroup, deadline_ns));
    GYRE_TRY(gyre_authenticate(fd, regroup->secret, false, gyre_now_ns() + PROOF_NS));
    GYRE_TRY(gyre_sock_send(fd, &claim, sizeof(claim), gyre_now_ns() + PROOF_NS));
    GYRE_TRY(wait_for_word(fd, regroup, deadline_ns));
    return gyre_sock_recv(fd, verdict_out, sizeof(*verdict_out), gyre_now_ns() + ANSWER_NS);
}

gyre_status gyre_door_knock(const struct gyre_sock_address *address,
                            const struct gyre_regroup *regroup, gyre_unique_id *id_out)
{
    /* The lowest member says more about who is missing: let its deadline come first. */
    const uint64_t deadline_ns = deadline_of(regroup) + 2 * SECOND_NS;
    struct verdict verdict;
    int fd = -1;
    GYRE_TRY(connect_door(address, regroup, deadline_ns, &fd));
    gyre_status status = talk(fd, regroup, deadline_ns, &verdict);
    gyre_sock_close(fd);
    GYRE_TRY(status);
    verdict.text[sizeof(verdict.text) - 1] = '\0';
    if (verdict.status != GYRE_SUCCESS)
        return gyre_fail(verdict.status < GYRE_IN_PROGRESS ? (gyre_status)verdict.status
                                                           : GYRE_ERROR_REMOTE,
                         "%s", verdict.text);
    *id_out = verdict.id;
    return GYRE_SUCCESS;
}
