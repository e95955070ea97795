/* SPDX-License-Identifier: Apache-2.0
 *
 * The lowest member answers when all others have connected, so all get the same verdict. A rank
 * whose list still has dead ranks is told so, and joins again.
 */
#include "bootstrap/bootstrap_wire.h"

#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PROOF_NS  2000000000ULL
#define ANSWER_NS 5000000000ULL

/* Ranks send it to each other: fixed layout. */
struct claim {
    int32_t rank;
    int32_t n_members;
    uint64_t members; /* hash of the list of members */
    uint32_t failure;
    char text[GYRE_TEXT_MAX_BYTES];
};

/* Ranks send it to each other: fixed layout. */
struct verdict {
    uint32_t status;
    char text[GYRE_TEXT_MAX_BYTES];
    gyre_unique_id id;
};

#define CONNECT_NS (4 * GYRE_SECOND_NS) /* then the listening process counts as gone */
#define TRY_NS     (1 * GYRE_SECOND_NS)

static struct claim claim_of(const struct gyre_regroup *regroup)
{
    struct claim claim = {
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

static uint64_t deadline_of(const struct gyre_regroup *regroup)
{
    return gyre_now_ns() +
           (uint64_t)gyre_param_number(regroup->params, GYRE_PARAM_BOOTSTRAP_TIMEOUT) *
               GYRE_SECOND_NS;
}

/* After its challenge the lowest member sends nothing until its verdict. */
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

/* One try at each address. *is_proved_out: the peer is the lowest member, so its answer counts. */
static gyre_status try_addresses(const struct gyre_sock_address *addresses, int n,
                                 const struct gyre_regroup *regroup, uint64_t deadline_ns,
                                 bool *is_proved_out, struct verdict *verdict_out)
{
    const struct claim claim = claim_of(regroup);
    bool is_late = false;
    gyre_status status = GYRE_ERROR_TIMEOUT;
    for (int i = 0; i < n; i++) {
        int fd = -1;
        GYRE_TRY(regroup->check(regroup->context, NULL));
        const uint64_t try_ns = gyre_now_ns() + (n == 1 ? CONNECT_NS : TRY_NS);
        status = gyre_sock_connect(&addresses[i], gyre_min_u64(deadline_ns, try_ns), &fd);
        const bool is_connected = status == GYRE_SUCCESS;
        if (status == GYRE_SUCCESS)
            status = wait_for_word(fd, regroup, deadline_ns);
        if (status == GYRE_SUCCESS)
            status = gyre_authenticate(fd, regroup->secret, false, gyre_now_ns() + PROOF_NS);
        *is_proved_out = status == GYRE_SUCCESS;
        if (status == GYRE_SUCCESS)
            status = gyre_sock_send(fd, &claim, sizeof(claim), gyre_now_ns() + PROOF_NS);
        if (status == GYRE_SUCCESS)
            status = wait_for_word(fd, regroup, deadline_ns);
        if (status == GYRE_SUCCESS)
            status =
                gyre_sock_recv(fd, verdict_out, sizeof(*verdict_out), gyre_now_ns() + ANSWER_NS);
        if (is_connected)
            gyre_sock_close(fd);
        if (*is_proved_out || gyre_cause_is_limit(status))
            return status;
        is_late = is_late || status == GYRE_ERROR_TIMEOUT;
    }
    return is_late ? GYRE_ERROR_TIMEOUT : status;
}

gyre_status gyre_regroup_join(const struct gyre_sock_list *list, const struct gyre_regroup *regroup,
                              gyre_unique_id *id_out)
{
    /* The lowest member's deadline comes first, because its error names the missing ranks. */
    const uint64_t deadline_ns = deadline_of(regroup) + 2 * GYRE_SECOND_NS;
    struct gyre_sock_address addresses[GYRE_SOCK_LIST_MAX];
    struct verdict verdict;
    char text[256];
    bool is_proved = false;
    int n = 0;
    GYRE_TRY(gyre_sock_list_targets(list, addresses, &n));
    gyre_sock_list_to_text(addresses, n, text, sizeof(text));
    for (;;) {
        const gyre_status status =
            try_addresses(addresses, n, regroup, deadline_ns, &is_proved, &verdict);
        if (status == GYRE_SUCCESS)
            break;
        if (is_proved || gyre_cause_is_limit(status))
            return status;
        GYRE_TRY(regroup->check(regroup->context, NULL));
        if (status != GYRE_ERROR_TIMEOUT)
            return gyre_fail(GYRE_ERROR_REMOTE, "no rank listens at %s any more to regroup", text);
        if (gyre_now_ns() >= deadline_ns)
            return gyre_fail(status, "no answer came from the regroup listener at %s", text);
    }
    verdict.text[sizeof(verdict.text) - 1] = '\0';
    if (verdict.status != GYRE_SUCCESS)
        return gyre_fail(verdict.status < GYRE_IN_PROGRESS ? (gyre_status)verdict.status
                                                           : GYRE_ERROR_REMOTE,
                         "%s", verdict.text);
    *id_out = verdict.id;
    return GYRE_SUCCESS;
}

#define SLICE_MS       100
#define REFUSED_NS     500000000ULL
#define TELL_NS        1000000000ULL
#define MAX_CANDIDATES 512 /* the cap for strangers is lower */

/* A connection until its claim is whole. */
struct candidate {
    struct gyre_stranger stranger;
    bool is_proved;
    struct claim claim;
    size_t n_read;
};

struct serving {
    const struct gyre_regroup *regroup;
    const struct gyre_sock_listeners *listeners;
    struct claim own;
    bool *missing;
    struct candidate *candidates;
    int n_candidates;
    int *joiners; /* descriptors */
    int *rank_of;
    int n_joiners;
    uint64_t refused_ns; /* 0 = accepting works */
    uint64_t differs_ns; /* 0 = no list differs */
    int n_arrived;
    gyre_status failure;
    char failure_text[GYRE_TEXT_MAX_BYTES];
    struct pollfd *polls;
};

static void list_ranks(const struct gyre_regroup *regroup, const bool *is_member, bool wanted,
                       char *text_out, size_t text_bytes)
{
    text_out[0] = '\0';
    for (int rank = 0; rank < regroup->n_ranks; rank++) {
        if (is_member[rank] != wanted)
            continue;
        if (strlen(text_out) > text_bytes - 32) {
            gyre_text_append(text_out, text_bytes, " and more");
            return;
        }
        gyre_text_append(text_out, text_bytes, "%s%d", text_out[0] == '\0' ? "" : ", ", rank);
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
    if (gyre_sock_send(fd, &verdict, sizeof(verdict), gyre_now_ns() + ANSWER_NS) != GYRE_SUCCESS)
        gyre_set_cause(before);
    gyre_sock_close(fd);
    explicit_bzero(&verdict, sizeof(verdict));
}

/* The caller owns the descriptor now, or it was closed. */
static void forget_candidate(struct serving *serving, int index)
{
    serving->n_candidates--;
    memmove(&serving->candidates[index], &serving->candidates[index + 1],
            (size_t)(serving->n_candidates - index) * sizeof(*serving->candidates));
}

static void drop_candidate(struct serving *serving, int index)
{
    gyre_sock_close(serving->candidates[index].stranger.fd);
    forget_candidate(serving, index);
}

static bool make_room(struct serving *serving)
{
    int n_strangers = 0;
    int oldest = -1;
    for (int i = serving->n_candidates - 1; i >= 0; i--) {
        if (serving->candidates[i].is_proved)
            continue;
        n_strangers++;
        oldest = i;
    }
    const enum gyre_stranger_room room =
        gyre_stranger_room(n_strangers, oldest >= 0 ? &serving->candidates[oldest].stranger : NULL);
    if (room == GYRE_STRANGER_EVICT)
        drop_candidate(serving, oldest);
    return room != GYRE_STRANGER_FULL && serving->n_candidates < MAX_CANDIDATES;
}

static gyre_status accept_some(struct serving *serving, int listen_fd)
{
    while (make_room(serving)) {
        struct candidate *candidate = &serving->candidates[serving->n_candidates];
        int fd = -1;
        const gyre_status status = gyre_sock_accept(listen_fd, 0, &fd);
        if (status == GYRE_ERROR_TIMEOUT)
            break;
        /* Another thread may give a descriptor back soon. */
        if (status != GYRE_SUCCESS && serving->refused_ns == 0)
            serving->refused_ns = gyre_now_ns();
        if (status != GYRE_SUCCESS)
            return gyre_now_ns() - serving->refused_ns < REFUSED_NS ? GYRE_SUCCESS : status;
        serving->refused_ns = 0;
        memset(candidate, 0, sizeof(*candidate));
        if (gyre_stranger_greet(&candidate->stranger, fd))
            serving->n_candidates++;
        else
            gyre_sock_close(fd);
    }
    return GYRE_SUCCESS;
}

enum progress { WAITS, IS_WHOLE, IS_OVER };

static enum progress read_candidate(const struct serving *serving, struct candidate *candidate)
{
    if (!candidate->is_proved) {
        const enum gyre_stranger_state state =
            gyre_stranger_read(&candidate->stranger, serving->regroup->secret);
        if (state != GYRE_STRANGER_PROVED)
            return state == GYRE_STRANGER_WAITS ? WAITS : IS_OVER;
        candidate->is_proved = true;
    }
    while (candidate->n_read < sizeof(candidate->claim)) {
        const ssize_t n_got =
            recv(candidate->stranger.fd, (uint8_t *)&candidate->claim + candidate->n_read,
                 sizeof(candidate->claim) - candidate->n_read, 0);
        if (n_got < 0 && errno == EINTR)
            continue;
        if (n_got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return WAITS;
        if (n_got <= 0)
            return IS_OVER;
        candidate->n_read += (size_t)n_got;
    }
    return candidate->claim.rank >= 0 && candidate->claim.rank < serving->regroup->n_ranks
               ? IS_WHOLE
               : IS_OVER;
}

static void tell_joiners(struct serving *serving, gyre_status status, const char *text,
                         const gyre_unique_id *id)
{
    while (serving->n_joiners > 0)
        send_verdict(serving->joiners[--serving->n_joiners], status, text, id);
}

static void note_failure(struct serving *serving, gyre_status status, const char *text)
{
    if (serving->failure != GYRE_SUCCESS)
        return;
    serving->failure = status;
    snprintf(serving->failure_text, sizeof(serving->failure_text), "%s", text);
}

static gyre_status admit(struct serving *serving, int fd, struct claim *claim)
{
    const struct gyre_regroup *regroup = serving->regroup;
    char text[400];
    char excluded[256];
    if (regroup->may_lose_ranks &&
        (!regroup->is_member[claim->rank] || claim->n_members > serving->own.n_members)) {
        list_ranks(regroup, regroup->is_member, false, excluded, sizeof(excluded));
        snprintf(text, sizeof(text), "rank %d excludes ranks %s", regroup->rank, excluded);
        send_verdict(fd, GYRE_ERROR_REMOTE, text, NULL);
        return GYRE_SUCCESS;
    }
    if (claim->members != serving->own.members) {
        snprintf(text, sizeof(text),
                 "ranks %d and %d do not go on with the same ranks (%d of %d there, %d here): "
                 "exclude the same ranks everywhere",
                 regroup->rank, claim->rank, claim->n_members, regroup->n_ranks,
                 serving->own.n_members);
        note_failure(serving, GYRE_ERROR_INVALID_USAGE, text);
        if (serving->differs_ns == 0)
            serving->differs_ns = gyre_now_ns();
        tell_joiners(serving, serving->failure, serving->failure_text, NULL);
        send_verdict(fd, serving->failure, serving->failure_text, NULL);
        return GYRE_SUCCESS;
    }
    if (!serving->missing[claim->rank] && serving->failure != GYRE_SUCCESS) {
        send_verdict(fd, serving->failure, serving->failure_text, NULL);
        return GYRE_SUCCESS;
    }
    serving->joiners[serving->n_joiners] = fd;
    serving->rank_of[serving->n_joiners++] = claim->rank;
    if (!serving->missing[claim->rank])
        return gyre_fail(GYRE_ERROR_INVALID_USAGE, "rank %d came twice", claim->rank);
    serving->missing[claim->rank] = false;
    serving->n_arrived++;
    claim->text[sizeof(claim->text) - 1] = '\0';
    if (claim->failure != GYRE_SUCCESS)
        note_failure(serving,
                     claim->failure < GYRE_IN_PROGRESS ? (gyre_status)claim->failure
                                                       : GYRE_ERROR_REMOTE,
                     claim->text);
    if (serving->failure != GYRE_SUCCESS)
        tell_joiners(serving, serving->failure, serving->failure_text, NULL);
    return GYRE_SUCCESS;
}

static gyre_status wait_for_all(struct serving *serving)
{
    const struct gyre_regroup *regroup = serving->regroup;
    const uint64_t deadline_ns = deadline_of(regroup);
    /* Which ranks come is unknown while lists differ, so ranks are told for a while. */
    while (serving->differs_ns != 0 ? gyre_now_ns() - serving->differs_ns < TELL_NS
                                    : serving->n_arrived < serving->own.n_members - 1) {
        GYRE_TRY(regroup->check(regroup->context, serving->missing));
        if (gyre_now_ns() >= deadline_ns) {
            char text[256];
            list_ranks(regroup, serving->missing, true, text, sizeof(text));
            return gyre_fail(GYRE_ERROR_TIMEOUT, "ranks %s did not come in time", text);
        }
        const struct gyre_sock_listeners *listeners = serving->listeners;
        const int n_candidates = serving->n_candidates;
        int n = 0;
        for (int i = 0; i < listeners->n; i++)
            serving->polls[n++] = (struct pollfd){.fd = listeners->fds[i], .events = POLLIN};
        for (int i = 0; i < n_candidates; i++)
            serving->polls[n++] =
                (struct pollfd){.fd = serving->candidates[i].stranger.fd, .events = POLLIN};
        const struct pollfd *joiners = serving->polls + n;
        for (int i = 0; i < serving->n_joiners; i++)
            serving->polls[n++] = (struct pollfd){.fd = serving->joiners[i], .events = POLLIN};
        (void)poll(serving->polls, (nfds_t)n, SLICE_MS);
        /* A joiner sends nothing while it waits, so an event is the end of its connection. */
        for (int i = 0; i < serving->n_joiners; i++)
            if (joiners[i].revents != 0)
                return gyre_fail(GYRE_ERROR_REMOTE, "rank %d came and went: it died or gave up",
                                 serving->rank_of[i]);
        for (int i = 0; i < listeners->n; i++)
            if (serving->polls[i].revents != 0)
                GYRE_TRY(accept_some(serving, listeners->fds[i]));
        for (int i = 0; i < serving->n_candidates;) {
            struct candidate *candidate = &serving->candidates[i];
            const enum progress progress = read_candidate(serving, candidate);
            if (progress == IS_WHOLE) {
                const int fd = candidate->stranger.fd;
                struct claim claim = candidate->claim;
                forget_candidate(serving, i);
                GYRE_TRY(admit(serving, fd, &claim));
            } else if (progress == IS_OVER ||
                       gyre_now_ns() - candidate->stranger.born_ns > PROOF_NS) {
                drop_candidate(serving, i);
            } else {
                i++;
            }
        }
    }
    return GYRE_SUCCESS;
}

gyre_status gyre_regroup_serve(const struct gyre_sock_listeners *listeners,
                               const struct gyre_regroup *regroup, gyre_unique_id *id_out)
{
    const size_t n = (size_t)regroup->n_ranks;
    char text[GYRE_CAUSE_MAX_BYTES + 32] = "";
    GYRE_FREED bool *missing = malloc(n * sizeof(*missing));
    GYRE_FREED struct candidate *candidates = malloc(MAX_CANDIDATES * sizeof(*candidates));
    GYRE_FREED int *joiners = calloc(2 * n, sizeof(*joiners));
    GYRE_FREED struct pollfd *polls =
        calloc(n + GYRE_SOCK_LIST_MAX + MAX_CANDIDATES, sizeof(*polls));
    if (missing == NULL || candidates == NULL || joiners == NULL || polls == NULL)
        return gyre_fail_errno(ENOMEM, "a regroup listener");
    struct serving serving = {.regroup = regroup,
                              .listeners = listeners,
                              .own = claim_of(regroup),
                              .missing = missing,
                              .candidates = candidates,
                              .joiners = joiners,
                              .rank_of = joiners + n,
                              .polls = polls};
    memcpy(serving.missing, regroup->is_member, n * sizeof(*serving.missing));
    serving.missing[regroup->rank] = false;
    if (regroup->failure != GYRE_SUCCESS)
        note_failure(&serving, regroup->failure, regroup->failure_text);
    gyre_status status = wait_for_all(&serving);
    if (serving.failure != GYRE_SUCCESS)
        status = gyre_fail(serving.failure, "%s", serving.failure_text);
    else if (status == GYRE_SUCCESS)
        status = gyre_unique_id_create(regroup->params, id_out);
    if (status != GYRE_SUCCESS)
        snprintf(text, sizeof(text), "rank %d: %s", regroup->rank, gyre_cause());
    tell_joiners(&serving, status, text, status == GYRE_SUCCESS ? id_out : NULL);
    while (serving.n_candidates > 0)
        drop_candidate(&serving, serving.n_candidates - 1);
    return status;
}
