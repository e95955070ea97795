/* SPDX-License-Identifier: Apache-2.0
 *
 * One pair of ports at a time. Port k of each host belongs to rail k. Pairs of one rail come first,
 * because gyre needs those. Each host's first process takes part; the others wait in gathers.
 */
#include "bench/doctor/doctor.h"

#include "core/foundation/base/util.h"
#include "transport/ib/ib_trial.h"

#include <string.h>

#define MAX_RAILS 128
#define MAX_SAID  8
/* Slower devices are software, whose rate means nothing. */
#define SOFT_GBIT_PER_S 10
#define BUDGET_NS       (30 * 1000000000ULL)

/* Processes all-gather it, so its layout is fixed. */
struct offer {
    int32_t n_ports;
    int32_t n_left_out;
    char cause[320]; /* why there are none */
    struct gyre_ib_trial_port ports[BENCH_MAX_RAILS];
};

/* Processes all-gather it. */
struct step {
    struct bench_note note;
    double value; /* 0 = not measured */
    struct gyre_ib_trial_end end;
};

struct rail {
    int host;
    int port;
    const struct gyre_ib_trial_port *told;
};

struct rig {
    struct bench_doctor *doctor;
    struct bench_hosts hosts;
    struct gyre_ib_trial *trial; /* NULL = takes no part */
    struct offer *offers;
    struct step *steps;
    struct rail rails[MAX_RAILS];
    int n_rails;
    int n_left_out;
    int n_tried, n_reached;
    int n_across, n_across_failed;
    int n_said;
    bool is_over;
};

/* Processes of other hosts only gather. */
static gyre_status try_pair(struct rig *rig, int from, int to, uint64_t deadline_ns)
{
    struct bench_matrix *matrix = &rig->doctor->rails;
    const struct rail *ends[2] = {&rig->rails[from], &rig->rails[to]};
    const bool is_sender = rig->hosts.me == ends[0]->host;
    const bool is_in = is_sender || rig->hosts.me == ends[1]->host;
    const struct rail *theirs = ends[is_sender ? 1 : 0];
    const int sender = rig->hosts.leaders[ends[0]->host];
    struct gyre_ib_trial_end end;
    struct step mine;
    memset(&mine, 0, sizeof(mine));
    mine.note.is_over = gyre_now_ns() > deadline_ns;
    gyre_status status = GYRE_SUCCESS;
    if (is_in)
        status = gyre_ib_trial_begin(rig->trial, ends[is_sender ? 0 : 1]->port, &mine.end);
    GYRE_TRY(bench_gather(rig->doctor, status, &mine, sizeof(mine), rig->steps));
    if (is_in) {
        end = rig->steps[rig->hosts.leaders[theirs->host]].end;
        const struct gyre_ib_trial_peer peer = {
            .port = theirs->told, .end = &end, .is_receiver = !is_sender};
        status = gyre_ib_trial_connect(rig->trial, &peer);
    }
    GYRE_TRY(bench_gather(rig->doctor, status, &mine, sizeof(mine), rig->steps));
    if (is_in)
        status = gyre_ib_trial_small(rig->trial, &mine.value);
    GYRE_TRY(bench_gather(rig->doctor, status, &mine, sizeof(mine), rig->steps));
    matrix->latency_us[from * matrix->n + to] = rig->steps[sender].value;
    if (is_in)
        status = gyre_ib_trial_large(rig->trial, &mine.value);
    GYRE_TRY(bench_gather(rig->doctor, status, &mine, sizeof(mine), rig->steps));
    matrix->gbytes_per_s[from * matrix->n + to] = rig->steps[sender].value;
    return GYRE_SUCCESS;
}

/* They work with the smaller packets. */
static void say_mtu(struct rig *rig, int from, int to)
{
    const uint32_t a = rig->rails[from].told->mtu_bytes, b = rig->rails[to].told->mtu_bytes;
    const struct rail *smaller = &rig->rails[a < b ? from : to];
    const char *fix =
        bench_text("ip link set dev NETDEV mtu 9000 on %.40s, and on every switch port",
                   rig->hosts.names[smaller->host]);
    if (a != b && from < to && rig->n_said++ < MAX_SAID)
        bench_warn(
            rig->doctor, rig->doctor->rails.names[from],
            bench_fix_of_port(fix, smaller->told->device,
                              smaller->told->n_gids > 0 ? smaller->told->gids[0].netdev : ""),
            "MTU mismatch: packets of %u bytes here, of %u bytes at %s; the pair uses %u", a, b,
            rig->doctor->rails.names[to], a < b ? a : b);
}

/* By what a cause contains; the last row is for all others. */
static const struct {
    const char *words[2], *fix;
} remedies[] = {
    {{"MTU than both"},
     "set one MTU on every interface and switch port of the rail: ip link set dev NETDEV mtu 9000; "
     "tracepath -n ADDRESS shows where packets are cut"},
    {{"memlock"},
     "printf '%s - memlock unlimited\\n' '*' root > /etc/security/limits.d/99-memlock.conf, and in "
     "the launcher's limits (host.memlock)"},
    {{"INIT->RTR"},
     "ping -I NETDEV ADDRESS from the GID's interface; look at the rail's VLAN and cabling, and at "
     "rdma.gid on both hosts"},
    {{"RETRY_EXC", "nothing came"},
     "let UDP port 4791 through every firewall (iptables -I INPUT -p udp --dport 4791 -j ACCEPT); "
     "compare rdma.gid on both hosts; ping -I NETDEV ADDRESS"},
    {{""}, "compare rdma.gid on both hosts; leave GYRE_IB_GID_INDEX unset"},
};

/* Both are of one rail. */
static void say_failed(struct rig *rig, int from, int to)
{
    const struct bench_matrix *matrix = &rig->doctor->rails;
    const struct rail *sender = &rig->rails[from];
    const char *cause = gyre_cause(), *fix = NULL;
    const char *netdev = sender->told->n_gids > 0 ? sender->told->gids[0].netdev : "";
    for (size_t i = 0; fix == NULL; i++)
        for (int k = 0; k < 2; k++)
            if (remedies[i].words[k] != NULL && strstr(cause, remedies[i].words[k]) != NULL)
                fix = remedies[i].fix;
    if (rig->n_said++ < MAX_SAID)
        bench_fail(rig->doctor, bench_text("rail %d", sender->port),
                   bench_fix_of_port(fix, sender->told->device, netdev), "%s does not reach %s: %s",
                   matrix->names[from], matrix->names[to], cause);
}

static void try_all(struct rig *rig, bool *is_failed)
{
    const uint64_t deadline_ns = gyre_now_ns() + BUDGET_NS;
    const int n = rig->n_rails;
    /* If no pair of one rail works, the cause is found, and other pairs would cost seconds each. */
    for (int pass = 0; pass < 2 && (pass == 0 || rig->n_reached > 0); pass++)
        for (int step = 1; step < n && !rig->is_over; step++)
            for (int from = 0; from < n && !rig->is_over; from++) {
                const int to = (from + step) % n;
                const struct rail *a = &rig->rails[from], *b = &rig->rails[to];
                if (!(a->host != b->host && (a->port == b->port) == (pass == 0) &&
                      a->told->cause[0] == '\0' && b->told->cause[0] == '\0'))
                    continue;
                const gyre_status status = try_pair(rig, from, to, deadline_ns);
                rig->is_over = rig->steps[0].note.is_over != 0;
                rig->n_tried++;
                rig->n_across += pass;
                rig->n_reached += status == GYRE_SUCCESS;
                if (status == GYRE_SUCCESS) {
                    say_mtu(rig, from, to);
                } else if (pass == 0) {
                    say_failed(rig, from, to);
                } else {
                    is_failed[from * n + to] = true;
                    rig->n_across_failed++;
                }
                gyre_ib_trial_finish(rig->trial);
            }
}

static void run(struct rig *rig)
{
    struct bench_doctor *doctor = rig->doctor;
    struct bench_matrix *matrix = &doctor->rails;
    bench_matrix_open(matrix, rig->n_rails, "RDMA writes between ports");
    matrix->has_rails = true;
    for (int i = 0; i < rig->n_rails; i++) {
        const struct rail *rail = &rig->rails[i];
        snprintf(matrix->names[i], sizeof(matrix->names[i]), "%.40s %.22s",
                 rig->hosts.names[rail->host], rail->told->name);
        matrix->rails[i] = rail->port;
        if (rail->told->gbit_per_s >= SOFT_GBIT_PER_S)
            matrix->line_gbytes_per_s[i] = (double)rail->told->gbit_per_s / 8;
    }
    bool *is_failed = bench_keep((size_t)(rig->n_rails * rig->n_rails), sizeof(*is_failed));
    doctor->rails.n = rig->n_rails;
    for (int i = 0; i < rig->n_rails; i++)
        if (rig->rails[i].told->cause[0] != '\0')
            bench_fail(rig->doctor, rig->doctor->rails.names[i],
                       "look at rdma.gid, host.memlock and rdma.device_files on that host",
                       "the port cannot be used: %.319s", rig->rails[i].told->cause);
    for (int i = 0; i < rig->hosts.n; i++) {
        const struct offer *offer = &rig->offers[rig->hosts.leaders[i]];
        if (offer->n_ports == 0)
            bench_warn(rig->doctor, rig->hosts.names[i],
                       "look at rdma.devices, rdma.ports and job.harmful on that host",
                       "this host offers no RDMA port, others do: %.319s", offer->cause);
    }
    if (rig->trial != NULL)
        doctor->before_load = bench_counters_read(&doctor->machine);
    try_all(rig, is_failed);
    if (rig->trial != NULL)
        doctor->after_load = bench_counters_read(&doctor->machine);
    for (int i = 0; i < rig->n_rails * rig->n_rails; i++)
        if (is_failed[i] && rig->n_across_failed < rig->n_across && rig->n_said++ < MAX_SAID)
            bench_warn(rig->doctor, "across rails",
                       "route all rails to each other, or none; GYRE_CROSS_NIC=0 uses pairs of one "
                       "rail alone",
                       "%s does not reach %s, though other rails reach each other",
                       rig->doctor->rails.names[i / rig->n_rails],
                       rig->doctor->rails.names[i % rig->n_rails]);
    bench_matrix_judge(
        doctor, &doctor->rails,
        "look at rdma.rate, rdma.pcie and rdma.mtu of the slow pair's ports, and at their cables; "
        "then measure again without other load",
        bench_text("%d of %d pairs tried, %d reach each other, and every byte that was checked was "
                   "right%s",
                   rig->n_tried, rig->n_tried, bench_matrix_rates(&doctor->rails).n_measured,
                   rig->n_across > 0 && rig->n_across == rig->n_across_failed
                       ? "; no rail reaches another one, so GYRE_CROSS_NIC must not be 1"
                       : ""));
    if (rig->is_over || rig->n_left_out > 0 || rig->n_said > MAX_SAID)
        bench_unknown(doctor, NULL,
                      "gyre doctor --only job.rails on fewer hosts, or GYRE_IB_HCA with one port",
                      "%d pairs were tried%s; %d ports were left out; %d findings were not printed",
                      rig->n_tried, rig->is_over ? ", then the time was up" : "", rig->n_left_out,
                      rig->n_said > MAX_SAID ? rig->n_said - MAX_SAID : 0);
}

void bench_check_job_rails(struct bench_doctor *doctor)
{
    const int n = doctor->launcher.n_processes;
    struct rig *rig = bench_keep(1, sizeof(*rig));
    rig->doctor = doctor;
    rig->steps = bench_keep((size_t)n, sizeof(*rig->steps));
    gyre_status status = bench_hosts_find(doctor, &rig->hosts);
    if (status == GYRE_SUCCESS && rig->hosts.n > 1) {
        struct offer *mine = bench_keep(1, sizeof(*mine));
        const char *reason = rig->doctor->params_status != GYRE_SUCCESS
                                 ? "a variable is not legal (job.variables)"
                                 : bench_rdma_off(&rig->doctor->params);
        if (rig->hosts.me >= 0 && reason == NULL &&
            gyre_ib_trial_open(&rig->doctor->params, &rig->trial) != GYRE_SUCCESS)
            reason = gyre_cause();
        snprintf(mine->cause, sizeof(mine->cause), "%.319s", reason == NULL ? "" : reason);
        for (int i = 0; rig->trial != NULL && i < gyre_ib_trial_n_ports(rig->trial); i++)
            if (mine->n_ports < BENCH_MAX_RAILS)
                mine->ports[mine->n_ports++] = *gyre_ib_trial_port(rig->trial, i);
            else
                mine->n_left_out++;
        rig->offers = bench_all_gather(rig->doctor, mine, sizeof(*mine));
        status = rig->offers == NULL ? GYRE_ERROR_REMOTE : GYRE_SUCCESS;
    }
    for (int host = 0; status == GYRE_SUCCESS && rig->hosts.n > 1 && host < rig->hosts.n; host++) {
        const struct offer *offer = &rig->offers[rig->hosts.leaders[host]];
        rig->n_left_out += offer->n_left_out;
        for (int port = 0; port < offer->n_ports && port < BENCH_MAX_RAILS; port++) {
            if (rig->n_rails == MAX_RAILS)
                rig->n_left_out++;
            else
                rig->rails[rig->n_rails++] =
                    (struct rail){.host = host, .port = port, .told = &offer->ports[port]};
        }
    }
    if (status != GYRE_SUCCESS)
        bench_unknown(doctor, NULL, NULL, "%s", gyre_cause());
    else if (rig->hosts.n == 1)
        bench_skip(doctor, "all %d processes are on one host", n);
    else if (rig->n_rails == 0)
        bench_skip(doctor, "no host has an RDMA port: %.319s", rig->offers[0].cause);
    else
        run(rig);
    gyre_ib_trial_close(rig->trial);
}
