/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/health/health.h"

#include "core/foundation/base/text.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SETTLE_NS     200000000ULL
#define SETTLE_NAP_NS 5000000
#define MAX_NAMED     8

static const char *kind_text(const struct gyre_origin *origin)
{
    return origin->kind == GYRE_ORIGIN_SPLIT ? "split" : "shrunk";
}

/* @host: "" = not known. */
static const char *write_name(const struct gyre_origin *origin, int rank, const char *host,
                              uint32_t pid, char *name_out)
{
    char where[96] = "";
    if (host[0] != '\0')
        snprintf(where, sizeof(where), "%s pid %u", host, pid);
    if (origin != NULL)
        snprintf(name_out, GYRE_RANK_NAME_BYTES,
                 "rank %d of the %s communicator (rank %d of its parent, %s)", rank,
                 kind_text(origin), origin->members[rank].parent_rank, where);
    else
        snprintf(name_out, GYRE_RANK_NAME_BYTES, where[0] != '\0' ? "rank %d (%s)" : "rank %d%s",
                 rank, where);
    return name_out;
}

const char *gyre_rank_name(const struct gyre_origin *origin, const struct gyre_peer_info *infos,
                           int rank, char *name_out)
{
    if (origin != NULL) {
        const struct gyre_origin_member *member = &origin->members[rank];
        return write_name(origin, rank, member->host_name, member->pid, name_out);
    }
    if (infos == NULL)
        return write_name(NULL, rank, "", 0, name_out);
    return write_name(NULL, rank, infos[rank].host_name, infos[rank].pid, name_out);
}

gyre_status gyre_origin_open(const struct gyre_origin_config *config,
                             struct gyre_origin **origin_out)
{
    const int n_ranks = config->n_ranks;
    struct gyre_origin *origin =
        calloc(1, sizeof(*origin) + (size_t)n_ranks * sizeof(origin->members[0]));
    if (origin == NULL)
        return gyre_fail_errno(ENOMEM, "the ranks of a new communicator");
    pthread_mutex_init(&origin->lock, NULL);
    origin->kind = config->kind;
    origin->n_ranks = n_ranks;
    origin->n_holders = 2;
    origin->fault = config->fault;
    origin->is_joining = true;
    for (int rank = 0; rank < n_ranks; rank++) {
        const int parent_rank = config->parent_ranks[rank];
        const struct gyre_peer_info *info = &config->infos[parent_rank];
        struct gyre_origin_member *member = &origin->members[rank];
        member->parent_rank = parent_rank;
        member->pid = info->pid;
        snprintf(member->host_name, sizeof(member->host_name), "%s", info->host_name);
    }
    *origin_out = origin;
    return GYRE_SUCCESS;
}

void gyre_origin_set_joined(struct gyre_origin *origin)
{
    if (origin == NULL)
        return;
    GYRE_LOCKED(&origin->lock);
    origin->is_joining = false;
}

void gyre_origin_set_made(struct gyre_origin *origin)
{
    if (origin == NULL)
        return;
    GYRE_LOCKED(&origin->lock);
    origin->is_joining = false;
    origin->fault = NULL;
}

bool gyre_origin_is_alone(struct gyre_origin *origin)
{
    GYRE_LOCKED(&origin->lock);
    return origin->n_holders == 1;
}

void gyre_origin_release(struct gyre_origin *origin)
{
    if (origin == NULL)
        return;
    pthread_mutex_lock(&origin->lock);
    const bool is_last = --origin->n_holders == 0;
    pthread_mutex_unlock(&origin->lock);
    if (!is_last)
        return;
    pthread_mutex_destroy(&origin->lock);
    free(origin);
}

void gyre_origin_tell(struct gyre_origin *origin, int lost_rank, const char *how, const char *text)
{
    char word[GYRE_CAUSE_MAX_BYTES];
    char name[GYRE_RANK_NAME_BYTES];
    int member = -1;
    for (int rank = 0; rank < origin->n_ranks && lost_rank >= 0 && member < 0; rank++)
        if (origin->members[rank].parent_rank == lost_rank)
            member = rank;
    if (member >= 0)
        snprintf(word, sizeof(word), "%s died: %.700s",
                 write_name(origin, member, origin->members[member].host_name,
                            origin->members[member].pid, name),
                 how);
    else
        snprintf(word, sizeof(word), "the parent of the %s communicator failed: %.900s",
                 kind_text(origin), text);
    /* A shrink is made because its parent failed. */
    const bool concerns_joining = origin->kind == GYRE_ORIGIN_SPLIT;
    GYRE_LOCKED(&origin->lock);
    if (origin->word[0] == '\0' && (member >= 0 || concerns_joining))
        memcpy(origin->word, word, sizeof(word));
    if (origin->fault != NULL && (member >= 0 || (origin->is_joining && concerns_joining)))
        gyre_fault_raise(origin->fault, GYRE_ERROR_REMOTE, word);
}

bool gyre_origin_word(struct gyre_origin *origin, char *word_out)
{
    if (origin == NULL)
        return false;
    GYRE_LOCKED(&origin->lock);
    memcpy(word_out, origin->word, sizeof(origin->word));
    return word_out[0] != '\0';
}

gyre_status gyre_origin_settle(struct gyre_rank *self, struct gyre_origin *origin,
                               gyre_status status)
{
    const struct timespec nap = {0, SETTLE_NAP_NS};
    const uint64_t deadline_ns = gyre_now_ns() + SETTLE_NS;
    char cause[GYRE_CAUSE_MAX_BYTES];
    char word[GYRE_CAUSE_MAX_BYTES];
    snprintf(cause, sizeof(cause), "%s", gyre_cause());
    bool is_heard = false;
    bool waits = status == GYRE_ERROR_REMOTE && (self->bootstrap != NULL || origin != NULL);
    while (waits && !gyre_fault_is_raised(&self->fault)) {
        if (gyre_origin_word(origin, word))
            return gyre_fail(status, "%s", word);
        /* sets the thread's cause to the first failure */
        if (!is_heard && self->bootstrap != NULL &&
            self->bootstrap->ops->check(self->bootstrap) == GYRE_ERROR_REMOTE) {
            is_heard = true;
            snprintf(cause, sizeof(cause), "%s", gyre_cause());
        }
        /* To the child's links a rank that gave up looks dead, so wait for the parent's report
         * too. */
        waits = gyre_now_ns() < deadline_ns && (!is_heard || origin != NULL);
        if (waits)
            nanosleep(&nap, NULL);
    }
    if (gyre_fault_is_raised(&self->fault))
        return gyre_fault_status(&self->fault);
    gyre_set_cause(cause);
    char ranks[128] = "";
    if (origin == NULL)
        return status;
    /* The cause may be a message of the rendezvous such as "rank 1 is gone". */
    char name[GYRE_RANK_NAME_BYTES], verb[8];
    int lost = -1, n_prefix = 0;
    if (sscanf(cause, "rank %d %7[a-z]%n", &lost, verb, &n_prefix) == 2 && lost >= 0 &&
        lost < origin->n_ranks && (strcmp(verb, "gave") == 0 || strcmp(verb, "is") == 0)) {
        const struct gyre_origin_member *member = &origin->members[lost];
        (void)gyre_fail(GYRE_ERROR_REMOTE, "%s %s%s",
                        write_name(origin, lost, member->host_name, member->pid, name), verb,
                        cause + n_prefix);
    }
    for (int rank = 0; rank < origin->n_ranks && rank < MAX_NAMED; rank++)
        gyre_text_append(ranks, sizeof(ranks), "%s%d", rank > 0 ? ", " : "",
                         origin->members[rank].parent_rank);
    return gyre_fail_context(status,
                             "making the %s communicator of which ranks 0..%d are its "
                             "parent's %s%s",
                             kind_text(origin), origin->n_ranks - 1, ranks,
                             origin->n_ranks > MAX_NAMED ? ", ..." : "");
}
