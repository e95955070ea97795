/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the facts that all ranks of a job should have in common. Each rank gathers the facts of
 * all ranks, so all ranks come to the same finding.
 */
#include "bench/command/version.h"
#include "bench/doctor/doctor.h"
#include "bench/doctor/merge.h"
#include "core/foundation/base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A fact of one rank. Ranks all-gather it, so its layout is fixed. */
struct entry {
    char host[64];
    char text[160];
};

struct rule {
    enum bench_severity severity; /* if ranks differ */
    const char *fix;
};

/* The index of a rank with the value that most ranks have. */
static int find_usual(const struct entry *all, int n)
{
    int best = 0, n_best = 0;
    for (int i = 0; i < n; i++) {
        int n_same = 0;
        for (int j = 0; j < n; j++)
            n_same += strcmp(all[i].text, all[j].text) == 0;
        if (n_same > n_best) {
            n_best = n_same;
            best = i;
        }
    }
    return best;
}

/* Adds a line for the ranks that have the same value as rank `first`. */
static void list_ranks(const struct entry *all, int n, int first, bool *is_in, char *text_out,
                       size_t text_bytes)
{
    char ranks[64];
    for (int i = 0; i < n; i++)
        is_in[i] = strcmp(all[i].text, all[first].text) == 0;
    bench_ranks_to_text(is_in, n, ranks, sizeof(ranks));
    const size_t used = strlen(text_out);
    if (used < text_bytes)
        snprintf(text_out + used, text_bytes - used, "\nrank %s (%s): %s", ranks, all[first].host,
                 all[first].text[0] == '\0' ? "not known" : all[first].text);
}

static void say_difference(struct bench_doctor *doctor, const struct entry *all, int n,
                           const char *title, const struct rule *rule)
{
    char list[1024] = "";
    bool *is_in = calloc((size_t)n, sizeof(*is_in));
    const int usual = find_usual(all, n);
    if (is_in == NULL)
        return;
    for (int i = 0; i < n; i++) {
        bool is_first = strcmp(all[i].text, all[usual].text) != 0;
        for (int j = 0; j < i; j++)
            is_first = is_first && strcmp(all[i].text, all[j].text) != 0;
        if (is_first)
            list_ranks(all, n, i, is_in, list, sizeof(list));
    }
    free(is_in);
    if (list[0] == '\0' && all[usual].text[0] == '\0')
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "%s: not known on any rank", title);
    else if (list[0] == '\0')
        bench_say(doctor, BENCH_OK, NULL, NULL, "%s: %s on all %d ranks", title, all[usual].text,
                  n);
    else
        bench_say(doctor, rule->severity, NULL, rule->fix, "%s: most ranks have %s, but%s", title,
                  all[usual].text[0] == '\0' ? "none that is known" : all[usual].text, list);
}

/* Gathers one fact and reports the ranks that differ. */
static void compare(struct bench_doctor *doctor, enum bench_fact_id fact, const struct rule *rule)
{
#define BENCH_FACT_TITLE(name, title) title,
    static const char *const titles[] = {BENCH_FACT_TABLE(BENCH_FACT_TITLE)};
    struct bench_launcher *launcher = &doctor->launcher;
    struct entry mine;
    if (launcher->n_processes == 1) {
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "one process: nothing to compare with");
        return;
    }
    memset(&mine, 0, sizeof(mine));
    memcpy(mine.host, doctor->facts.host, sizeof(mine.host));
    memcpy(mine.text, doctor->facts.texts[fact], sizeof(mine.text));
    struct entry *all = calloc((size_t)launcher->n_processes, sizeof(*all));
    if (all == NULL ||
        launcher->ops->all_gather(launcher, &mine, sizeof(mine), all) != GYRE_SUCCESS)
        bench_say(doctor, BENCH_UNKNOWN, NULL, NULL, "the other ranks do not answer: %s",
                  all == NULL ? "no memory" : gyre_cause());
    else {
        for (int i = 0; i < launcher->n_processes; i++) {
            all[i].host[sizeof(all[i].host) - 1] = '\0';
            all[i].text[sizeof(all[i].text) - 1] = '\0';
        }
        say_difference(doctor, all, launcher->n_processes, titles[fact], rule);
    }
    free(all);
}

void bench_check_job_version(struct bench_doctor *doctor)
{
    static const struct rule rule = {BENCH_FAIL, "install the same gyre on every host"};
    bench_set_fact(doctor, BENCH_FACT_VERSION, "%s %s, CUDA %d.%d", bench_version_text(),
                   bench_version_commit(), bench_version_cuda() / 10, bench_version_cuda() % 10);
    compare(doctor, BENCH_FACT_VERSION, &rule);
}

/* Ranks with different values of these variables would make different plans, so the library refuses
 * them. */
void bench_check_job_variables_differ(struct bench_doctor *doctor)
{
    static const struct rule rule = {
        BENCH_FAIL, "give all ranks the same values: mpirun -x NAME, srun --export=ALL"};
    char text[160] = "";
    uint64_t hash = GYRE_HASH_INIT;
    for (int i = 0; i < GYRE_N_PARAMS; i++) {
        const enum gyre_param_id id = (enum gyre_param_id)i;
        const char *value = gyre_param_text(&doctor->params, id);
        const size_t used = strlen(text);
        if ((gyre_param_flags(id) & GYRE_PARAM_PLAN) == 0 ||
            !gyre_param_is_set(&doctor->params, id))
            continue;
        hash = gyre_hash(hash, value, strlen(value));
        hash = gyre_hash(hash, gyre_param_name(id), strlen(gyre_param_name(id)));
        /* Values that do not fit into the text still count in the hash. */
        if (used < 120)
            snprintf(text + used, 130 - used, "%s%s=%s", used > 0 ? " " : "", gyre_param_name(id),
                     value);
    }
    if (text[0] == '\0')
        snprintf(text, sizeof(text), "none set");
    bench_set_fact(doctor, BENCH_FACT_VARIABLES, "%s (%08x)", text, (unsigned)hash);
    compare(doctor, BENCH_FACT_VARIABLES, &rule);
}

void bench_check_job_kernel(struct bench_doctor *doctor)
{
    static const struct rule rule = {BENCH_WARN, "apt full-upgrade and reboot on every host"};
    char release[128];
    if (bench_read_text(doctor->root, "/proc/sys/kernel/osrelease", release, sizeof(release)) ==
        BENCH_READ_OK)
        bench_set_fact(doctor, BENCH_FACT_KERNEL, "%s", release);
    compare(doctor, BENCH_FACT_KERNEL, &rule);
}

void bench_check_job_driver(struct bench_doctor *doctor)
{
    static const struct rule rule = {BENCH_WARN, "install the same NVIDIA driver on every host"};
    compare(doctor, BENCH_FACT_DRIVER, &rule);
}

void bench_check_job_firmware(struct bench_doctor *doctor)
{
    static const struct rule rule = {BENCH_WARN, "mlxfwmanager --online -u on every host"};
    compare(doctor, BENCH_FACT_FIRMWARE, &rule);
}

void bench_check_job_mtu(struct bench_doctor *doctor)
{
    static const struct rule rule = {
        BENCH_FAIL, "ip link set dev NAME mtu 9000 on every host and switch port of the network"};
    compare(doctor, BENCH_FACT_MTU, &rule);
}

void bench_check_job_gid(struct bench_doctor *doctor)
{
    static const struct rule rule = {
        BENCH_FAIL, "give every port an IPv4 address, and leave GYRE_IB_GID_INDEX unset: a RoCE v2 "
                    "address of one family is needed at both ends (rdma.gid)"};
    compare(doctor, BENCH_FACT_GID, &rule);
}

void bench_check_job_rate(struct bench_doctor *doctor)
{
    static const struct rule rule = {BENCH_WARN, "look for ports that are down: rdma.ports"};
    compare(doctor, BENCH_FACT_RATE, &rule);
}

/* ---- job.clock_skew ------------------------------------------------------------------------ */

#define MOST_SKEW_NS \
    2000000000LL /* a loaded host may come late from the barrier, but not so late */

void bench_check_job_clock_skew(struct bench_doctor *doctor)
{
    struct bench_launcher *launcher = &doctor->launcher;
    const int n = launcher->n_processes;
    struct timespec now;
    int early = 0, late = 0;
    if (n == 1) {
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "one process: nothing to compare with");
        return;
    }
    int64_t *all = calloc((size_t)n, sizeof(*all));
    int64_t mine = 0;
    gyre_status status = all == NULL
                             ? GYRE_ERROR_OUT_OF_MEMORY
                             : launcher->ops->all_gather(launcher, &mine, sizeof(mine), all);
    clock_gettime(CLOCK_REALTIME, &now);
    mine = (int64_t)now.tv_sec * 1000000000LL + now.tv_nsec;
    if (status == GYRE_SUCCESS)
        status = launcher->ops->all_gather(launcher, &mine, sizeof(mine), all);
    for (int i = 0; status == GYRE_SUCCESS && i < n; i++) {
        early = all[i] < all[early] ? i : early;
        late = all[i] > all[late] ? i : late;
    }
    if (status != GYRE_SUCCESS)
        bench_say(doctor, BENCH_UNKNOWN, NULL, NULL, "the other ranks do not answer");
    else if (all[late] - all[early] > MOST_SKEW_NS)
        bench_say(
            doctor, BENCH_WARN, NULL, "timedatectl set-ntp true on every host; chronyc tracking",
            "the clock of rank %d is %.1f s ahead of that of rank %d: logs of the hosts cannot "
            "be put in order",
            late, (double)(all[late] - all[early]) / 1e9, early);
    else
        bench_say(doctor, BENCH_OK, NULL, NULL, "the clocks of %d ranks agree to within 2 s", n);
    free(all);
}
