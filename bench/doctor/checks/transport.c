/* SPDX-License-Identifier: Apache-2.0
 *
 * The transports' own `reachable` decides, as for a communicator; nothing is connected.
 */
#include "bench/doctor/doctor.h"

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
    if (doctor->root[0] != '\0') {
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
