/* SPDX-License-Identifier: Apache-2.0
 *
 * Which ranks hold a call up, in words for a warning or an error: ranks that do not answer, ranks
 * that have left, ranks that are behind and ranks that wait in another call.
 */
#include "core/health/watch.h"

#include "core/base/util.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SECOND_NS   ((uint64_t)1000000000)
#define MAX_NAMED   4 /* ranks of a kind in a message, with host and call */
#define MAX_NUMBERS 16
#define WHO_BYTES   GYRE_HEALTH_WHO_BYTES

static void append(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* @text: WHO_BYTES; what does not fit is cut off. */
static void append(char *text, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, WHO_BYTES - used, format, args);
    va_end(args);
}

/* The letter of proc(5), of a process of this host; '?' if it cannot be seen. */
static char process_state(const struct gyre_health *health, int rank)
{
    const struct gyre_peer_info *mine = &health->links->infos[health->member->rank];
    const struct gyre_peer_info *peer = &health->links->infos[rank];
    char path[64];
    char line[256];
    char state = '?';
    if (mine->host_hash != peer->host_hash || mine->pid_namespace != peer->pid_namespace)
        return state;
    snprintf(path, sizeof(path), "/proc/%u/stat", peer->pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return state;
    if (fgets(line, sizeof(line), file) != NULL) {
        const char *end = strrchr(line, ')'); /* its name may have any characters */
        if (end != NULL && end[1] == ' ')
            state = end[2];
    }
    fclose(file);
    return state;
}

static const char *why_silent(char state)
{
    switch (state) {
    case 'T':
        return "its process is stopped (by a signal; SIGCONT lets it go on)";
    case 't':
        return "its process is stopped by a debugger";
    case 'D':
        return "its process waits in the kernel (state D: a disk or a network file system)";
    default:
        return "its process is stopped, swapped out or its host is overloaded";
    }
}

static void name_silent_rank(const struct gyre_health *health, int rank, uint64_t now_ns, char *who)
{
    char name[GYRE_RANK_NAME_BYTES];
    append(who, "%s does not answer for %" PRIu64 " s: %s",
           gyre_health_rank_name(health, rank, name),
           (gyre_health_silent_ns(health, rank, now_ns) + SECOND_NS / 2) / SECOND_NS,
           why_silent(process_state(health, rank)));
}

/* Without the rendezvous nobody can be asked. */
static void name_rendezvous(const struct gyre_health *health, uint64_t now_ns, char *who)
{
    const struct gyre_member *member = health->member;
    const struct gyre_bootstrap *bootstrap = member->bootstrap;
    if (bootstrap->server_rank >= 0)
        name_silent_rank(health, bootstrap->server_rank, now_ns, who);
    else
        append(who, "%s does not answer for %" PRIu64 " s", bootstrap->server_text,
               (gyre_health_silent_ns(health, member->rank, now_ns) + SECOND_NS / 2) / SECOND_NS);
    append(who, "; that process carries the rendezvous, without which no other rank can be asked");
}

/* How a rank stands to the call that this rank waits in. */
enum standing {
    IS_SILENT,
    HAS_LEFT,
    IS_BEHIND,
    IS_ELSEWHERE,
    IS_DONE,
    IS_IN_THE_CALL,
    N_STANDINGS
};

static enum standing stands(const struct gyre_health *health, int rank, uint64_t now_ns,
                            const struct gyre_record *mine)
{
    const struct gyre_health_peer *peer = &health->peers[rank];
    const struct gyre_health_place *place = &peer->place;
    const bool is_collective = mine->sequence > 0 && mine->coll != GYRE_COLL_SEND_RECV;
    if (rank == health->member->rank)
        return IS_IN_THE_CALL;
    if (health->has_left[rank])
        return HAS_LEFT;
    if (gyre_health_is_silent(health, rank, now_ns))
        return IS_SILENT;
    if ((is_collective && place->n_collectives < mine->sequence) ||
        (peer->behind_ns != 0 &&
         now_ns - peer->behind_ns < gyre_health_silence_limit_ns(health, now_ns)))
        return IS_BEHIND;
    if (!place->is_waiting)
        return IS_DONE;
    return place->call.sequence == mine->sequence && place->call.coll == mine->coll ? IS_IN_THE_CALL
                                                                                    : IS_ELSEWHERE;
}

static void name_rank(const struct gyre_health *health, int rank, enum standing standing,
                      uint64_t now_ns, char *who)
{
    const struct gyre_health_place *place = &health->peers[rank].place;
    char name[GYRE_RANK_NAME_BYTES];
    char call[160] = "an operation that is not on record";
    if (standing == IS_SILENT) {
        name_silent_rank(health, rank, now_ns, who);
        return;
    }
    gyre_health_rank_name(health, rank, name);
    if (place->call.sequence != 0)
        gyre_record_text(&place->call, call, sizeof(call));
    if (standing == HAS_LEFT)
        append(who, "%s has left", name);
    else if (standing == IS_ELSEWHERE)
        append(who, "%s waits in %s", name, call);
    else if (place->is_waiting)
        append(who, "%s is behind: it waits in %s", name, call);
    else if (place->call.sequence != 0)
        append(who, "%s is behind: it has called nothing after %s", name, call);
    else
        append(who, "%s is behind: it has called nothing yet", name);
}

/* "ranks 0, 2, 3 and 17 more" */
static void list_numbers(const uint8_t *standings, int n_ranks, enum standing standing, char *who)
{
    int n = 0;
    for (int rank = 0; rank < n_ranks; rank++) {
        if (standings[rank] != standing)
            continue;
        if (n < MAX_NUMBERS)
            append(who, "%s%d", n == 0 ? "" : ", ", rank);
        n++;
    }
    if (n > MAX_NUMBERS)
        append(who, " and %d more", n - MAX_NUMBERS);
}

/* Those to blame, each with its host and its call. Returns how many there are. */
static int name_culprits(const struct gyre_health *health, const uint8_t *standings,
                         uint64_t now_ns, char *who)
{
    int n_all = 0;
    for (int standing = IS_SILENT; standing <= IS_ELSEWHERE; standing++) {
        int n = 0;
        for (int rank = 0; rank < health->member->n_ranks; rank++) {
            if (standings[rank] != standing)
                continue;
            if (n < MAX_NAMED) {
                append(who, "%s", n_all + n > 0 ? "; " : "");
                name_rank(health, rank, (enum standing)standing, now_ns, who);
            }
            n++;
        }
        if (n > MAX_NAMED)
            append(who, "; likewise %d more ranks", n - MAX_NAMED);
        n_all += n;
    }
    return n_all;
}

void gyre_health_name_culprits(struct gyre_health *health, const struct gyre_record *mine,
                               uint64_t now_ns, char *who_out)
{
    const struct gyre_member *member = health->member;
    int n_of[N_STANDINGS] = {0};
    who_out[0] = '\0';
    if (gyre_health_is_silent(health, member->rank, now_ns)) {
        name_rendezvous(health, now_ns, who_out);
        return;
    }
    for (int rank = 0; rank < member->n_ranks; rank++) {
        health->standings[rank] = (uint8_t)stands(health, rank, now_ns, mine);
        n_of[health->standings[rank]]++;
    }
    if (name_culprits(health, health->standings, now_ns, who_out) == 0)
        append(who_out,
               "all ranks answer, and none is behind%s; look for slow links, and at what is ahead "
               "of the call on its stream on each rank: work of the program, or another "
               "communicator's call that some ranks made before this one and some after it",
               gyre_param_has(&member->params, GYRE_PARAM_CHECK, GYRE_CHECK_CALLS)
                   ? ", and GYRE_CHECK=calls found them alike"
                   : "");
    if (n_of[IS_IN_THE_CALL] > 1) {
        append(who_out, "; waiting in the same call: ranks ");
        list_numbers(health->standings, member->n_ranks, IS_IN_THE_CALL, who_out);
    }
    if (n_of[IS_DONE] > 0) {
        append(who_out, "; done with their part: ranks ");
        list_numbers(health->standings, member->n_ranks, IS_DONE, who_out);
    }
}
