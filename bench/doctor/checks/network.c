/* SPDX-License-Identifier: Apache-2.0
 *
 * The transports' own `reachable` decides, as for a communicator. One pair and direction is
 * measured at a time. Each host's first process takes part; the others wait in gathers.
 */
#include "bench/doctor/doctor.h"

#include "bench/launch/launcher.h"
#include "core/foundation/base/util.h"
#include "transport/transport.h"

#include <stdlib.h>
#include <string.h>

#define MAX_SAID     8
#define NO_TRANSPORT 127

/* Processes all-gather it, so its layout is fixed. */
struct place {
    struct bench_note note;
    struct gyre_peer_info info;
    int32_t has_rdma; /* an RDMA port works and is on */
};

struct choice {
    uint8_t transport; /* into gyre_transports, or NO_TRANSPORT */
    char why[127];     /* reason against ib */
};

static gyre_status describe(const struct bench_doctor *doctor, int host, struct place *place)
{
    const struct gyre_device_ops *ops;
    struct gyre_device *device;
    GYRE_TRY(gyre_device_find(GYRE_DEVICE_HOST, &ops));
    GYRE_TRY(ops->open(0, &device));
    const gyre_status status = gyre_peer_info_fill(&doctor->params, device, host, &place->info);
    ops->close(device);
    place->has_rdma =
        status == GYRE_SUCCESS && place->info.ib_usable && bench_rdma_off(&doctor->params) == NULL;
    for (int i = 0; i < doctor->machine.n_ports; i++)
        if (doctor->machine.ports[i].is_active && doctor->machine.ports[i].why_unused[0] == '\0')
            place->has_rdma = 1;
    return status;
}

static struct choice choose(const struct gyre_params *params, const struct gyre_peer_info *mine,
                            const struct gyre_peer_info *peer)
{
    struct choice choice = {.transport = NO_TRANSPORT};
    for (int i = 0; gyre_transports[i] != NULL; i++) {
        const struct gyre_transport_ops *ops = gyre_transports[i];
        char why[160] = "";
        if (bench_can_reach(params, ops, mine, peer, why, sizeof(why))) {
            choice.transport = (uint8_t)i;
            return choice;
        }
        if (ops->is_rdma)
            snprintf(choice.why, sizeof(choice.why), "%.126s", why);
    }
    return choice;
}

static void judge(struct bench_doctor *doctor, const struct bench_hosts *hosts,
                  const struct place *places, const struct choice *all)
{
    const int n = hosts->n;
    int n_rdma = 0, n_bad = 0;
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++) {
            const struct choice *mine = &all[hosts->leaders[a] * n + b],
                                *theirs = &all[hosts->leaders[b] * n + a];
            const struct choice *later =
                mine->transport >= theirs->transport ? mine : theirs; /* in both's order */
            const bool has_rdma[] = {places[hosts->leaders[a]].has_rdma != 0,
                                     places[hosts->leaders[b]].has_rdma != 0};
            const struct gyre_transport_ops *ops =
                later->transport == NO_TRANSPORT ? NULL : gyre_transports[later->transport];
            if (ops != NULL && ops->is_rdma)
                n_rdma++;
            const bool is_bad = ops == NULL || (!ops->is_rdma && (has_rdma[0] || has_rdma[1]));
            if (!is_bad || n_bad++ >= MAX_SAID)
                continue;
            bench_say(doctor, ops == NULL ? BENCH_FAIL : BENCH_WARN, hosts->names[a],
                      "look at rdma.ports, rdma.device_files, rdma.gid and job.harmful on the host "
                      "that is named",
                      "to %s over %s, although %s RDMA; not over it, because: %.126s",
                      hosts->names[b], ops == NULL ? "nothing" : ops->name,
                      has_rdma[0] && has_rdma[1] ? "both have" : "one of the two has", later->why);
        }
    doctor->uses_rdma = n_rdma == n * (n - 1) / 2;
    const char *words = bench_text("%d pairs of hosts: %d over RDMA, %d over sockets",
                                   n * (n - 1) / 2, n_rdma, n * (n - 1) / 2 - n_rdma);
    if (n_bad == 0)
        bench_ok(doctor, NULL, "%s", words);
    else if (n_bad > MAX_SAID)
        bench_warn(doctor, NULL, "mend those above, then run gyre doctor again",
                   "%s; %d more findings of this kind are not printed", words, n_bad - MAX_SAID);
}

void bench_check_job_transport(struct bench_doctor *doctor)
{
    struct bench_launcher *launcher = &doctor->launcher;
    struct bench_hosts hosts;
    struct place mine;
    doctor->knows_transport = true;
    if (bench_root[0] != '\0') {
        bench_skip(doctor, "nothing is measured with --root");
        return;
    }
    gyre_status status = bench_hosts_find(doctor, &hosts);
    if (status == GYRE_SUCCESS && hosts.n == 1) {
        bench_skip(doctor, "all %d processes are on one host", launcher->n_processes);
        return;
    }
    memset(&mine, 0, sizeof(mine));
    struct place *places = bench_keep((size_t)launcher->n_processes, sizeof(*places));
    struct choice *row = bench_keep((size_t)hosts.n, sizeof(*row)), *all = NULL;
    if (status == GYRE_SUCCESS && hosts.me >= 0)
        status = describe(doctor, hosts.me, &mine);
    if (hosts.n > 1)
        status = bench_gather(doctor, status, &mine, sizeof(mine), places);
    for (int host = 0; status == GYRE_SUCCESS && hosts.me >= 0 && host < hosts.n; host++)
        if (host != hosts.me)
            row[host] = choose(&doctor->params, &mine.info, &places[hosts.leaders[host]].info);
    if (status == GYRE_SUCCESS)
        all = bench_all_gather(doctor, row, (size_t)hosts.n * sizeof(*row));
    if (all != NULL)
        judge(doctor, &hosts, places, all);
    else
        bench_unknown(doctor, NULL, NULL, "%s", gyre_cause());
}

#define LARGE_BYTES       ((size_t)8 << 20)
#define N_SMALL           50 /* round trips of 8 bytes */
#define N_LARGE           4
#define TIMEOUT_MS        20000
#define THREAD_GBIT_PER_S 8
#define BUDGET_NS         (40 * 1000000000ULL) /* for all pairs */

struct rig {
    struct bench_doctor *doctor;
    struct bench_hosts hosts;
    gyre_comm *comm;
    gyre_stream stream;
    unsigned char *buffer;
};

/* Processes all-gather it. */
struct outcome {
    struct bench_note note;
    double latency_us; /* 0 unless this process sent */
    double gbytes_per_s;
    double line_gbytes_per_s;
};

static gyre_status send_or_receive(const struct rig *rig, bool is_send, int peer, size_t n_bytes)
{
    GYRE_TRY(is_send ? gyre_send(rig->buffer, n_bytes, GYRE_UINT8, peer, rig->comm, rig->stream)
                     : gyre_recv(rig->buffer, n_bytes, GYRE_UINT8, peer, rig->comm, rig->stream));
    GYRE_TRY(gyre_stream_synchronize(rig->stream, GYRE_DEVICE_HOST));
    gyre_status status = GYRE_SUCCESS;
    GYRE_TRY(gyre_comm_async_error(rig->comm, &status));
    if (status != GYRE_SUCCESS)
        gyre_set_cause(gyre_comm_last_error(rig->comm));
    return status;
}

static unsigned char byte_of(size_t i, int from)
{
    return (unsigned char)(i * 131 + i / 257 + (size_t)from * 17 + 1);
}

static gyre_status measure_as_sender(const struct rig *rig, int peer, struct outcome *outcome)
{
    GYRE_TRY(send_or_receive(rig, true, peer, 8)); /* opens the connections */
    GYRE_TRY(send_or_receive(rig, false, peer, 8));
    uint64_t start_ns = gyre_now_ns();
    for (int i = 0; i < N_SMALL; i++) {
        GYRE_TRY(send_or_receive(rig, true, peer, 8));
        GYRE_TRY(send_or_receive(rig, false, peer, 8));
    }
    outcome->latency_us = (double)(gyre_now_ns() - start_ns) / 1e3 / (2 * N_SMALL);
    for (size_t i = 0; i < LARGE_BYTES; i++)
        rig->buffer[i] = byte_of(i, rig->hosts.me);
    start_ns = gyre_now_ns();
    for (int i = 0; i < N_LARGE; i++)
        GYRE_TRY(send_or_receive(rig, true, peer, LARGE_BYTES));
    GYRE_TRY(send_or_receive(rig, false, peer, 8));
    outcome->gbytes_per_s = (double)(N_LARGE * LARGE_BYTES) / (double)(gyre_now_ns() - start_ns);
    return GYRE_SUCCESS;
}

static gyre_status measure_as_receiver(const struct rig *rig, int peer)
{
    for (int i = 0; i < N_SMALL + 1; i++) {
        GYRE_TRY(send_or_receive(rig, false, peer, 8));
        GYRE_TRY(send_or_receive(rig, true, peer, 8));
    }
    memset(rig->buffer, 0, LARGE_BYTES);
    for (int i = 0; i < N_LARGE; i++)
        GYRE_TRY(send_or_receive(rig, false, peer, LARGE_BYTES));
    for (size_t i = 0; i < LARGE_BYTES; i++)
        if (rig->buffer[i] != byte_of(i, peer))
            return gyre_fail(GYRE_ERROR_REMOTE,
                             "byte %zu of %zu is %d and should be %d: the network damages data", i,
                             LARGE_BYTES, rig->buffer[i], byte_of(i, peer));
    return send_or_receive(rig, true, peer, 8);
}

static gyre_status open_comm(struct rig *rig)
{
    gyre_config config = GYRE_CONFIG_INIT;
    gyre_unique_id id;
    config.device_kind = GYRE_DEVICE_HOST;
    config.timeout_ms = TIMEOUT_MS;
    setenv("GYRE_BOOTSTRAP_TIMEOUT", "30", 0); /* the default is for thousands of ranks */
    GYRE_TRY(bench_rendezvous(&rig->doctor->launcher, 1, &config, &id));
    if (rig->hosts.me < 0)
        return GYRE_SUCCESS;
    rig->buffer = bench_keep(1, LARGE_BYTES);
    GYRE_TRY(gyre_comm_init_rank(&rig->comm, rig->hosts.n, &id, rig->hosts.me, &config));
    return gyre_stream_create(&rig->stream, GYRE_DEVICE_HOST, -1);
}

static gyre_status measure_all(struct rig *rig, struct outcome *all)
{
    struct bench_matrix *matrix = &rig->doctor->hosts;
    const uint64_t deadline_ns = gyre_now_ns() + BUDGET_NS;
    const int n = rig->hosts.n;
    bool is_over = false;
    for (int step = 1; step < n && !is_over; step++)
        for (int from = 0; from < n && !is_over; from++) {
            const int to = (from + step) % n;
            struct outcome mine;
            gyre_status status = GYRE_SUCCESS;
            memset(&mine, 0, sizeof(mine));
            mine.note.is_over = gyre_now_ns() > deadline_ns;
            if (rig->hosts.me == from)
                status = measure_as_sender(rig, to, &mine);
            else if (rig->hosts.me == to)
                status = measure_as_receiver(rig, from);
            status = bench_gather(rig->doctor, status, &mine, sizeof(mine), all);
            is_over = all[0].note.is_over != 0;
            if (status != GYRE_SUCCESS)
                return gyre_fail_context(status, "%s to %s", matrix->names[from],
                                         matrix->names[to]);
            matrix->latency_us[from * n + to] = all[rig->hosts.leaders[from]].latency_us;
            matrix->gbytes_per_s[from * n + to] = all[rig->hosts.leaders[from]].gbytes_per_s;
        }
    return GYRE_SUCCESS;
}

/* 0 = unknown. Over TCP, what one thread copies (core/engine/links/network.c,
 * THREAD_MBIT_PER_S). */
static double line_gbytes_per_s(const struct bench_doctor *doctor)
{
    const struct bench_netdev *first = bench_net_first(&doctor->machine);
    double gbit_per_s = 0;
    if (!doctor->uses_rdma && first != NULL && bench_root[0] == '\0')
        gbit_per_s = first->mbit_per_s > 1000 * THREAD_GBIT_PER_S
                         ? THREAD_GBIT_PER_S
                         : (double)first->mbit_per_s / 1000;
    for (int i = 0; doctor->uses_rdma && i < doctor->machine.n_ports; i++) {
        const struct bench_rdma_port *port = &doctor->machine.ports[i];
        if (port->is_active && !port->is_soft && port->why_unused[0] == '\0' &&
            port->gbit_per_s > gbit_per_s)
            gbit_per_s = port->gbit_per_s;
    }
    return gbit_per_s / 8;
}

void bench_check_job_network(struct bench_doctor *doctor)
{
    struct rig rig = {.doctor = doctor};
    struct outcome mine;
    const int n = doctor->launcher.n_processes;
    if (n == 1) {
        bench_skip(doctor, "one process: no network to measure");
        return;
    }
    if (!doctor->knows_transport) { /* job.transport did not run */
        const int n_findings = doctor->findings.n;
        bench_check_job_transport(doctor);
        doctor->findings.n = n_findings;
    }
    memset(&mine, 0, sizeof(mine));
    mine.line_gbytes_per_s = line_gbytes_per_s(doctor);
    struct outcome *all = bench_keep((size_t)n, sizeof(*all));
    gyre_status status = bench_hosts_find(doctor, &rig.hosts);
    if (status == GYRE_SUCCESS && rig.hosts.n == 1) {
        bench_skip(doctor, "all %d processes are on one host", n);
        return;
    }
    bench_matrix_open(&doctor->hosts, rig.hosts.n, "network between hosts");
    memcpy(doctor->hosts.names, rig.hosts.names,
           (size_t)rig.hosts.n * sizeof(*doctor->hosts.names));
    if (status == GYRE_SUCCESS)
        status = bench_gather(doctor, open_comm(&rig), &mine, sizeof(mine), all);
    if (status == GYRE_SUCCESS) {
        for (int i = 0; i < rig.hosts.n; i++)
            doctor->hosts.line_gbytes_per_s[i] = all[rig.hosts.leaders[i]].line_gbytes_per_s;
        doctor->hosts.n = rig.hosts.n;
        status = measure_all(&rig, all);
    }
    if (status != GYRE_SUCCESS)
        bench_fail(doctor, NULL,
                   "look at net.interfaces, rdma.gid and the firewall on both hosts; "
                   "GYRE_DEBUG=INFO gyre doctor --only job.network shows each step",
                   "%s", gyre_cause());
    else
        bench_matrix_judge(doctor, &doctor->hosts,
                           "look at the slow pair's ports, cables and switches; gyre doctor on "
                           "both hosts; then measure again without other load",
                           bench_text("%d of %d pairs were measured, every byte was checked",
                                      bench_matrix_rates(&doctor->hosts).n_measured,
                                      rig.hosts.n * (rig.hosts.n - 1)));
    if (rig.stream != NULL)
        (void)gyre_stream_destroy(rig.stream, GYRE_DEVICE_HOST);
    if (rig.comm != NULL)
        (void)(status == GYRE_SUCCESS ? gyre_comm_destroy(rig.comm) : gyre_comm_abort(rig.comm));
}
