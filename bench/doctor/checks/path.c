/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the way of packets between hosts. The measurement is made once, by the first check that
 * needs it (bench/doctor/paths.h).
 */
#include "bench/doctor/paths.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define MAX_SAID 8

/* The measurement. NULL after saying why there is none. */
static const struct bench_paths *paths_of(struct bench_doctor *doctor)
{
    if (doctor->launcher.n_processes == 1) {
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "one process: no pair of hosts");
        return NULL;
    }
    if (doctor->paths == NULL)
        doctor->paths = bench_paths_measure(doctor);
    if (doctor->paths == NULL)
        return NULL;
    const struct bench_paths *paths = doctor->paths;
    if (paths->status != GYRE_SUCCESS)
        bench_say(doctor, BENCH_UNKNOWN, NULL, "look at net.interfaces on that host", "%s",
                  paths->cause);
    else if (paths->hosts.n == 1)
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "all processes are on one host");
    else
        return paths;
    return NULL;
}

/* What no finding says: pairs that were not tried, and findings that were not printed.
 * @worst: the worst severity of the findings. */
static void say_rest(struct bench_doctor *doctor, const struct bench_paths *paths, int n_bad,
                     enum bench_severity worst)
{
    if (n_bad > MAX_SAID)
        bench_say(doctor, worst, NULL, "mend those above, then run gyre doctor again",
                  "%d more findings of this kind are not printed", n_bad - MAX_SAID);
    if (paths->n_pairs < paths->n_all)
        bench_say(doctor, BENCH_UNKNOWN, NULL, "gyre doctor --only job. on fewer hosts at a time",
                  "%d of %d pairs of hosts were tried, then %s", paths->n_pairs, paths->n_all,
                  paths->why_left == NULL ? "the measurement ended" : paths->why_left);
}

/* ---- job.firewall --------------------------------------------------------------------------- */

static const char *words_of(int error)
{
    switch (error) {
    case ETIMEDOUT:
        return "no answer: a firewall drops the packets, or the address is not routed";
    case ECONNREFUSED:
        return "refused, although the peer listens there: a firewall rejects the packets, or the "
               "address belongs to another host as well";
    case EHOSTUNREACH:
    case ENETUNREACH:
        return "no route to it, or a firewall answers that there is none";
    case EACCES:
    case EPERM:
        return "a firewall of the sending host forbids it";
    default:
        return "see the error";
    }
}

void bench_check_job_firewall(struct bench_doctor *doctor)
{
    const struct bench_paths *paths = paths_of(doctor);
    enum bench_severity worst = BENCH_WARN;
    int n_bad = 0;
    if (paths == NULL)
        return;
    for (int i = 0; i < paths->n_pairs; i++) {
        const struct bench_path_pair *pair = &paths->pairs[i];
        if (pair->note.error == 0 && pair->note.n_bytes > 0)
            continue;
        worst = pair->note.error != 0 ? BENCH_FAIL : worst;
        if (n_bad++ >= MAX_SAID)
            continue;
        const char *from = paths->hosts.names[pair->from], *to = paths->hosts.names[pair->to];
        char address[64];
        gyre_sock_to_text(&paths->listeners[paths->hosts.leaders[pair->to]].tcp, address,
                          sizeof(address));
        if (pair->note.error != 0)
            bench_say(doctor, BENCH_FAIL, from,
                      "on the peer let this host's packets in: iptables -I INPUT -s ADDRESS -j "
                      "ACCEPT; ufw allow from ADDRESS; firewall-cmd --zone=trusted "
                      "--add-source=ADDRESS; then look at net.interfaces on both",
                      "TCP to %s at %s: %s (%s)%s", to, address, strerror(pair->note.error),
                      words_of(pair->note.error),
                      pair->note.n_bytes > 0 ? "; UDP passes" : "; UDP does not pass either");
        else
            bench_say(doctor, BENCH_WARN, from,
                      "on the peer let UDP in: iptables -I INPUT -p udp -s ADDRESS -j ACCEPT; RoCE "
                      "needs UDP port 4791",
                      "TCP to %s at %s passes, UDP does not: a firewall; RoCE packets are UDP", to,
                      address);
    }
    if (n_bad == 0 && paths->n_pairs == paths->n_all)
        bench_say(doctor, BENCH_OK, NULL, NULL,
                  "%d pairs of hosts: TCP connections and UDP packets pass", paths->n_pairs);
    say_rest(doctor, paths, n_bad, worst);
}

/* ---- job.path_mtu --------------------------------------------------------------------------- */

/* Packets as large as the sender's interface takes do not arrive. @is_known: the sender's kernel
 * was told so. */
static void say_cut_packets(struct bench_doctor *doctor, const struct bench_paths *paths,
                            const struct bench_path_pair *pair, bool is_known)
{
    const char *from = paths->hosts.names[pair->from], *to = paths->hosts.names[pair->to];
    const struct bench_path_listener *sender = &paths->listeners[paths->hosts.leaders[pair->from]];
    const struct bench_path_listener *receiver = &paths->listeners[paths->hosts.leaders[pair->to]];
    char fix[BENCH_FIX_BYTES];
    snprintf(fix, sizeof(fix),
             "one MTU on every interface and switch port between the hosts: ip link set dev %s mtu "
             "9000 on %s, ip link set dev %s mtu 9000 on %s (or 1500 everywhere); tracepath -n "
             "ADDRESS shows the place",
             sender->name, from, receiver->name, to);
    bench_say(
        doctor, is_known ? BENCH_WARN : BENCH_FAIL, from, fix,
        "%s sends packets of %d bytes, and those do not arrive at %s; the largest of the sizes "
        "tried that does has %d bytes. %s",
        sender->name, pair->note.limit, to, pair->note.n_bytes,
        is_known ? "The kernel was told, so TCP uses smaller packets; RoCE is not told"
                 : "Nobody tells the sender: connections hang as soon as they carry much");
}

void bench_check_job_path_mtu(struct bench_doctor *doctor)
{
    const struct bench_paths *paths = paths_of(doctor);
    enum bench_severity worst = BENCH_WARN;
    int n_bad = 0, n_seen = 0, least = BENCH_PATH_MAX_BYTES;
    if (paths == NULL)
        return;
    for (int i = 0; i < paths->n_pairs; i++) {
        const struct bench_path_pair *pair = &paths->pairs[i];
        const struct bench_path_note *note = &pair->note;
        if (note->n_bytes == 0)
            continue; /* job.firewall */
        n_seen++;
        least = note->n_bytes < least ? note->n_bytes : least;
        if (note->n_bytes >= note->limit)
            continue;
        const bool is_known = note->known > 0 && note->known < note->limit;
        worst = is_known ? worst : BENCH_FAIL;
        if (n_bad++ >= MAX_SAID)
            continue;
        say_cut_packets(doctor, paths, pair, is_known);
    }
    if (n_seen == 0)
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "no UDP packet passes (job.firewall)");
    else if (n_bad == 0 && paths->n_pairs == paths->n_all)
        bench_say(doctor, BENCH_OK, NULL, NULL,
                  "%d of %d pairs of hosts: packets as large as the interface allows pass whole; "
                  "the smallest limit is %d bytes",
                  n_seen, paths->n_all, least);
    say_rest(doctor, paths, n_bad, worst);
}
