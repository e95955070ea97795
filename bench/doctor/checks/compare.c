/* SPDX-License-Identifier: Apache-2.0
 *
 * Every rank gathers all facts, so all come to the same finding.
 */
#include "bench/doctor/doctor.h"

#include "bench/command/version.h"
#include "core/foundation/base/util.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void bench_facts_gather(struct bench_doctor *doctor)
{
    const size_t n_bytes = sizeof(doctor->facts[0]);
    const struct bench_netdev *first = bench_net_first(&doctor->machine);
    if (bench_read_text(doctor->root, "/proc/sys/kernel/hostname", doctor->host,
                        sizeof(doctor->host)) != BENCH_READ_OK)
        snprintf(doctor->host, sizeof(doctor->host), "a host without a name");
    snprintf(doctor->facts[BENCH_FACT_VERSION], n_bytes, "%s %s, CUDA %d.%d", bench_version_text(),
             bench_version_commit(), bench_version_cuda() / 10, bench_version_cuda() % 10);
    char *fact = doctor->facts[BENCH_FACT_VARIABLES];
    char text[160] = "";
    uint64_t hash = GYRE_HASH_INIT;
    for (int i = 0; i < GYRE_N_PARAMS; i++) {
        const enum gyre_param_id id = (enum gyre_param_id)i;
        const char *name = gyre_param_name(id), *value = gyre_param_text(&doctor->params, id);
        if ((gyre_param_flags(id) & GYRE_PARAM_PLAN) == 0 ||
            !gyre_param_is_set(&doctor->params, id))
            continue;
        hash = gyre_hash(hash, value, strlen(value));
        hash = gyre_hash(hash, name, strlen(name));
        if (strlen(text) < 120)
            bench_append(text, 130, "%s%s=%s", text[0] != '\0' ? " " : "", name, value);
    }
    snprintf(fact, n_bytes, "%s (%08x)", text[0] == '\0' ? "none set" : text, (unsigned)hash);
    (void)bench_read_text(doctor->root, "/proc/sys/kernel/osrelease",
                          doctor->facts[BENCH_FACT_KERNEL], 128);
    bench_fact_of_driver(doctor, doctor->facts[BENCH_FACT_DRIVER], n_bytes);
    char *firmware = doctor->facts[BENCH_FACT_FIRMWARE];
    char *rates = doctor->facts[BENCH_FACT_RATE];
    for (int i = 0; i < doctor->machine.n_ports; i++) {
        const struct bench_rdma_port *port = &doctor->machine.ports[i];
        const char *one = bench_text("%s %s", port->board, port->firmware);
        if (port->why_unused[0] != '\0')
            continue;
        if (!port->is_soft && strstr(firmware, one) == NULL)
            bench_append(firmware, n_bytes, "%s%s", firmware[0] != '\0' ? ", " : "", one);
        if (port->is_active)
            bench_append(rates, n_bytes, "%s%.4g", rates[0] != '\0' ? "," : "", port->gbit_per_s);
    }
    if (doctor->machine.n_used_ports > 0)
        bench_append(rates, n_bytes, "%s Gbit/s", rates[0] == '\0' ? "0" : "");
    if (first != NULL)
        snprintf(doctor->facts[BENCH_FACT_MTU], n_bytes, "%" PRId64, first->mtu);
    bench_fact_of_gids(doctor, doctor->facts[BENCH_FACT_GID], n_bytes);
    bench_text_clean(doctor->host);
    for (int i = 0; i < BENCH_N_FACTS; i++)
        bench_text_clean(doctor->facts[i]);
}

/* Ranks all-gather it, so its layout is fixed. */
struct entry {
    char host[64];
    char text[160];
};

/* The ranks that have all[first]'s text. */
static void list_ranks(const struct entry *all, int n, int first, char *text_out, size_t text_bytes)
{
    char ranks[64];
    bool *is_in = bench_keep((size_t)n, sizeof(*is_in));
    for (int i = 0; i < n; i++)
        is_in[i] = strcmp(all[i].text, all[first].text) == 0;
    bench_ranks_to_text(is_in, n, ranks, sizeof(ranks));
    bench_append(text_out, text_bytes, "\nrank %s (%s): %s", ranks, all[first].host,
                 all[first].text[0] == '\0' ? "not known" : all[first].text);
}

static void compare(struct bench_doctor *doctor, enum bench_fact_id fact,
                    enum bench_severity severity, const char *fix)
{
#define BENCH_FACT_TITLE(name, title) title,
    static const char *const titles[] = {BENCH_FACT_TABLE(BENCH_FACT_TITLE)};
#undef BENCH_FACT_TITLE
    const int n = doctor->launcher.n_processes;
    const char *title = titles[fact];
    int usual = 0, n_usual = 0;
    char list[1024] = "";
    struct entry mine;
    memcpy(mine.host, doctor->host, sizeof(mine.host));
    memcpy(mine.text, doctor->facts[fact], sizeof(mine.text));
    struct entry *all = bench_all_gather(doctor, &mine, sizeof(mine));
    if (all == NULL) {
        bench_unknown(doctor, NULL, NULL, "the other ranks do not answer: %s", gyre_cause());
        return;
    }
    for (int i = 0; i < n; i++)
        all[i].host[sizeof(all[i].host) - 1] = all[i].text[sizeof(all[i].text) - 1] = '\0';
    for (int i = 0; i < n; i++) {
        int n_same = 0;
        for (int j = 0; j < n; j++)
            n_same += strcmp(all[i].text, all[j].text) == 0;
        usual = n_same > n_usual ? i : usual;
        n_usual = n_same > n_usual ? n_same : n_usual;
    }
    for (int i = 0; i < n; i++) {
        bool is_first = strcmp(all[i].text, all[usual].text) != 0;
        for (int j = 0; j < i; j++)
            is_first = is_first && strcmp(all[i].text, all[j].text) != 0;
        if (is_first)
            list_ranks(all, n, i, list, sizeof(list));
    }
    if (list[0] != '\0')
        bench_say(doctor, severity, NULL, fix, "%s: most ranks have %s, but%s", title,
                  all[usual].text[0] == '\0' ? "none that is known" : all[usual].text, list);
    else if (all[usual].text[0] == '\0')
        bench_skip(doctor, "%s: not known on any rank", title);
    else
        bench_ok(doctor, NULL, "%s: %s on all %d ranks", title, all[usual].text, n);
}

/* RULE(name of the check, fact, severity, fix) */
#define RULE(name, fact, severity, fix)                      \
    void bench_check_job_##name(struct bench_doctor *doctor) \
    {                                                        \
        compare(doctor, BENCH_FACT_##fact, severity, fix);   \
    }

RULE(version, VERSION, BENCH_FAIL, "install the same gyre on every host")
RULE(variables_differ, VARIABLES, BENCH_FAIL,
     "give all ranks the same values: mpirun -x NAME, srun --export=ALL")
RULE(kernel, KERNEL, BENCH_WARN, "apt full-upgrade and reboot on every host")
RULE(driver, DRIVER, BENCH_WARN, "install the same NVIDIA driver on every host")
RULE(firmware, FIRMWARE, BENCH_WARN, "mlxfwmanager --online -u on every host")
RULE(mtu, MTU, BENCH_FAIL,
     "ip link set dev NAME mtu 9000 on every host and switch port of the network")
RULE(gid, GID, BENCH_FAIL,
     "give every port an IPv4 address, and leave GYRE_IB_GID_INDEX unset: a RoCE v2 address of one "
     "family is needed at both ends (rdma.gid)")
RULE(rate, RATE, BENCH_WARN, "look for ports that are down: rdma.ports")

#define MOST_SKEW_NS 2000000000LL /* a loaded host may come this late from the barrier */

void bench_check_job_clock_skew(struct bench_doctor *doctor)
{
    const int n = doctor->launcher.n_processes;
    struct timespec now;
    int64_t mine = 0;
    int early = 0, late = 0;
    const int64_t *all = bench_all_gather(doctor, &mine, sizeof(mine)); /* a barrier */
    clock_gettime(CLOCK_REALTIME, &now);
    mine = (int64_t)now.tv_sec * 1000000000LL + now.tv_nsec;
    if (all != NULL)
        all = bench_all_gather(doctor, &mine, sizeof(mine));
    for (int i = 0; all != NULL && i < n; i++) {
        early = all[i] < all[early] ? i : early;
        late = all[i] > all[late] ? i : late;
    }
    if (all == NULL)
        bench_unknown(doctor, NULL, NULL, "the other ranks do not answer");
    else if (all[late] - all[early] > MOST_SKEW_NS)
        bench_warn(doctor, NULL, "timedatectl set-ntp true on every host; chronyc tracking",
                   "the clock of rank %d is %.1f s ahead of that of rank %d: logs of the hosts "
                   "cannot be put in order",
                   late, (double)(all[late] - all[early]) / 1e9, early);
    else
        bench_ok(doctor, NULL, "the clocks of %d ranks agree to within 2 s", n);
}
