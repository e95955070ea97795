/* SPDX-License-Identifier: Apache-2.0
 *
 * Which ranks hold a call up, in words for a warning or an error: ranks that do not answer, ranks
 * that have left, ranks that are behind and ranks that wait in another call.
 */
#include "core/engine/health/watch.h"

#include "core/foundation/base/util.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SECOND_NS   ((uint64_t)1000000000)
#define MAX_NAMED   4 /* ranks of a kind in a message, with host and call */
#define MAX_NUMBERS 16
#define WHO_BYTES   GYRE_HEALTH_WHO_BYTES

void gyre_health_append(char *text, size_t text_bytes, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, text_bytes - used, format, args);
    va_end(args);
}

/* The state letter of proc(5) for a process of this host; '?' if the process cannot be seen. */
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
        const char *end = strrchr(line, ')'); /* the process name may have any characters */
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
    gyre_health_append(who, WHO_BYTES, "%s does not answer for %" PRIu64 " s: %s",
                       gyre_health_rank_name(health, rank, name),
                       (gyre_health_silent_ns(health, rank, now_ns) + SECOND_NS / 2) / SECOND_NS,
                       why_silent(process_state(health, rank)));
}

/* Name the process of the rendezvous: without the rendezvous this rank can ask no other rank. */
static void name_rendezvous(const struct gyre_health *health, uint64_t now_ns, char *who)
{
    const struct gyre_member *member = health->member;
    const struct gyre_bootstrap *bootstrap = member->bootstrap;
    if (bootstrap->server_rank >= 0)
        name_silent_rank(health, bootstrap->server_rank, now_ns, who);
    else
        gyre_health_append(
            who, WHO_BYTES, "%s does not answer for %" PRIu64 " s", bootstrap->server_text,
            (gyre_health_silent_ns(health, member->rank, now_ns) + SECOND_NS / 2) / SECOND_NS);
    gyre_health_append(
        who, WHO_BYTES,
        "; that process carries the rendezvous, without which no other rank can be asked");
}

enum gyre_health_standing gyre_health_stands(const struct gyre_health *health, int rank,
                                             uint64_t now_ns, const struct gyre_record *mine)
{
    const struct gyre_health_peer *peer = &health->peers[rank];
    const struct gyre_health_place *place = &peer->place;
    const bool is_collective = mine->sequence > 0 && mine->coll != GYRE_COLL_SEND_RECV;
    if (rank == health->member->rank)
        return GYRE_STANDS_IN_THE_CALL;
    if (health->has_left[rank])
        return GYRE_STANDS_LEFT;
    if (gyre_health_is_silent(health, rank, now_ns))
        return GYRE_STANDS_SILENT;
    if ((is_collective && place->n_collectives < mine->sequence) ||
        (peer->behind_ns != 0 &&
         now_ns - peer->behind_ns < gyre_health_silence_limit_ns(health, now_ns)))
        return GYRE_STANDS_BEHIND;
    if (!place->is_waiting)
        return GYRE_STANDS_DONE;
    return place->call.sequence == mine->sequence && place->call.coll == mine->coll
               ? GYRE_STANDS_IN_THE_CALL
               : GYRE_STANDS_ELSEWHERE;
}

static void name_rank(const struct gyre_health *health, int rank,
                      enum gyre_health_standing standing, uint64_t now_ns, char *who)
{
    const struct gyre_health_place *place = &health->peers[rank].place;
    char name[GYRE_RANK_NAME_BYTES];
    char call[160] = "an operation that is not on record";
    if (standing == GYRE_STANDS_SILENT) {
        name_silent_rank(health, rank, now_ns, who);
        return;
    }
    gyre_health_rank_name(health, rank, name);
    if (place->call.sequence != 0)
        gyre_record_text(&place->call, call, sizeof(call));
    if (standing == GYRE_STANDS_LEFT)
        gyre_health_append(who, WHO_BYTES, "%s has left", name);
    else if (standing == GYRE_STANDS_ELSEWHERE)
        gyre_health_append(who, WHO_BYTES, "%s waits in %s", name, call);
    else if (place->is_waiting)
        gyre_health_append(who, WHO_BYTES, "%s is behind: it waits in %s", name, call);
    else if (place->call.sequence != 0)
        gyre_health_append(who, WHO_BYTES, "%s is behind: it has called nothing after %s", name,
                           call);
    else
        gyre_health_append(who, WHO_BYTES, "%s is behind: it has called nothing yet", name);
}

/* "ranks 0, 2, 3 and 17 more" */
static void list_numbers(const uint8_t *standings, int n_ranks, enum gyre_health_standing standing,
                         char *who)
{
    int n = 0;
    for (int rank = 0; rank < n_ranks; rank++) {
        if (standings[rank] != standing)
            continue;
        if (n < MAX_NUMBERS)
            gyre_health_append(who, WHO_BYTES, "%s%d", n == 0 ? "" : ", ", rank);
        n++;
    }
    if (n > MAX_NUMBERS)
        gyre_health_append(who, WHO_BYTES, " and %d more", n - MAX_NUMBERS);
}

/* Name the ranks that hold the call up, each with its host and its call. Returns their number. */
static int name_culprits(const struct gyre_health *health, const uint8_t *standings,
                         uint64_t now_ns, char *who)
{
    int n_all = 0;
    for (int standing = GYRE_STANDS_SILENT; standing <= GYRE_STANDS_ELSEWHERE; standing++) {
        int n = 0;
        for (int rank = 0; rank < health->member->n_ranks; rank++) {
            if (standings[rank] != standing)
                continue;
            if (n < MAX_NAMED) {
                gyre_health_append(who, WHO_BYTES, "%s", n_all + n > 0 ? "; " : "");
                name_rank(health, rank, (enum gyre_health_standing)standing, now_ns, who);
            }
            n++;
        }
        if (n > MAX_NAMED)
            gyre_health_append(who, WHO_BYTES, "; likewise %d more ranks", n - MAX_NAMED);
        n_all += n;
    }
    return n_all;
}

void gyre_health_name_culprits(struct gyre_health *health, const struct gyre_record *mine,
                               uint64_t now_ns, bool is_explained, char *who_out)
{
    const struct gyre_member *member = health->member;
    int n_of[GYRE_N_STANDINGS] = {0};
    who_out[0] = '\0';
    if (gyre_health_is_silent(health, member->rank, now_ns)) {
        name_rendezvous(health, now_ns, who_out);
        return;
    }
    for (int rank = 0; rank < member->n_ranks; rank++) {
        health->standings[rank] = (uint8_t)gyre_health_stands(health, rank, now_ns, mine);
        n_of[health->standings[rank]]++;
    }
    if (name_culprits(health, health->standings, now_ns, who_out) == 0 && !is_explained)
        gyre_health_append(
            who_out, WHO_BYTES,
            "all ranks answer, and none is behind%s; look for slow links, and at what is ahead "
            "of the call on its stream on each rank: work of the program, or another "
            "communicator's call that some ranks made before this one and some after it",
            gyre_param_has(&member->params, GYRE_PARAM_CHECK, GYRE_CHECK_CALLS)
                ? ", and GYRE_CHECK=calls found them alike"
                : "");
    if (n_of[GYRE_STANDS_IN_THE_CALL] > 1) {
        gyre_health_append(who_out, WHO_BYTES, "%swaiting in the same call: ranks ",
                           who_out[0] != '\0' ? "; " : "");
        list_numbers(health->standings, member->n_ranks, GYRE_STANDS_IN_THE_CALL, who_out);
    }
    if (n_of[GYRE_STANDS_DONE] > 0) {
        /* Replays of graphs are not on record, so a rank that has not begun its replay looks like
         * one that has ended it. */
        gyre_health_append(who_out, WHO_BYTES, "%sdone with their part%s: ranks ",
                           who_out[0] != '\0' ? "; " : "",
                           mine->sequence == 0 ? ", or not begun yet" : "");
        list_numbers(health->standings, member->n_ranks, GYRE_STANDS_DONE, who_out);
    }
}
