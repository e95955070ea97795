/* SPDX-License-Identifier: Apache-2.0
 *
 * Variables that are legal and nearly always a mistake: switches that were left on after a search
 * for an error, and values that were copied from another cluster.
 */
#include "bench/doctor/doctor.h"
#include "bench/doctor/pci.h"
#include "bench/doctor/rdma.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The properties of this machine on which the judgement of variables depends. */
struct place {
    bool has_rdma; /* hardware with an active port */
    bool has_soft_rdma;
    bool has_gpu;
};

static struct place look(const char *root)
{
    struct place place = {.has_gpu = bench_pci_has_gpu(root)};
    struct bench_rdma *rdma = bench_rdma_read(root);
    for (int i = 0; rdma != NULL && i < rdma->n_ports; i++) {
        place.has_soft_rdma = place.has_soft_rdma || rdma->ports[i].is_soft;
        place.has_rdma =
            place.has_rdma || (!rdma->ports[i].is_soft && bench_rdma_is_active(&rdma->ports[i]));
    }
    free(rdma);
    return place;
}

static void warn(struct bench_doctor *doctor, enum gyre_param_id id, const char *harm)
{
    char fix[64];
    const char *source = gyre_param_source(&doctor->params, id);
    snprintf(fix, sizeof(fix), "unset %s", source);
    bench_say(doctor, BENCH_WARN, source, fix, "%s=%s: %s", source,
              gyre_param_text(&doctor->params, id), harm);
}

static bool is_on(const struct bench_doctor *doctor, enum gyre_param_id id)
{
    return gyre_param_is_set(&doctor->params, id) && gyre_param_number(&doctor->params, id) == 1;
}

static void check_switches(struct bench_doctor *doctor, const struct place *place)
{
    if (is_on(doctor, GYRE_PARAM_P2P_DISABLE))
        warn(doctor, GYRE_PARAM_P2P_DISABLE,
             "ranks of a host do not address each other's memory; if it was set because copies "
             "hang, look at host.acs and host.iommu");
    if (is_on(doctor, GYRE_PARAM_SHM_DISABLE))
        warn(doctor, GYRE_PARAM_SHM_DISABLE, "processes of a host talk over TCP");
    if (is_on(doctor, GYRE_PARAM_IB_DISABLE) && place->has_rdma)
        warn(doctor, GYRE_PARAM_IB_DISABLE, "RDMA ports are here and active, but TCP is used");
    if (gyre_param_number(&doctor->params, GYRE_PARAM_NET) == 1 && place->has_rdma)
        warn(doctor, GYRE_PARAM_NET, "RDMA ports are here and active, but TCP is used");
    if (strcmp(gyre_param_text(&doctor->params, GYRE_PARAM_TRANSPORT), "socket") == 0)
        warn(doctor, GYRE_PARAM_TRANSPORT, "everything goes over TCP, inside hosts too");
    if (strcmp(gyre_param_text(&doctor->params, GYRE_PARAM_NET_GDR_LEVEL), "LOC") == 0 &&
        place->has_rdma && place->has_gpu)
        warn(doctor, GYRE_PARAM_NET_GDR_LEVEL, "no NIC may reach GPU memory");
    if (strcmp(gyre_param_text(&doctor->params, GYRE_PARAM_DEBUG), "TRACE") == 0)
        warn(doctor, GYRE_PARAM_DEBUG, "each call is logged, which takes longer than the call");
    if (gyre_param_has(&doctor->params, GYRE_PARAM_CHECK, GYRE_CHECK_CALLS))
        warn(doctor, GYRE_PARAM_CHECK, "each call waits for all ranks before it begins");
}

/* Check a traffic class, which is a whole byte of the IP header: DSCP times 4, plus two bits for
 * ECN. If ECN is in use, these bits have the value 2 ("can be marked"). */
static void check_class(struct bench_doctor *doctor, enum gyre_param_id id)
{
    char harm[256];
    const int64_t class = gyre_param_number(&doctor->params, id);
    if (!gyre_param_is_set(&doctor->params, id) || (class & 1) == 0)
        return;
    snprintf(harm, sizeof(harm),
             "it is the whole byte of the IP header: DSCP %" PRId64 ", ECN bits %" PRId64 "%" PRId64
             ", hardly what was meant; DSCP 26 is 106, priority 5 is 160",
             class >> 2, class >> 1 & 1, class & 1);
    warn(doctor, id, harm);
}

static void check_rdma(struct bench_doctor *doctor, const struct place *place)
{
    char harm[256];
    const int64_t exponent = gyre_param_number(&doctor->params, GYRE_PARAM_IB_TIMEOUT);
    const int64_t retries = gyre_param_number(&doctor->params, GYRE_PARAM_IB_RETRY_CNT);
    if (gyre_param_is_set(&doctor->params, GYRE_PARAM_IB_GID_INDEX) &&
        strcmp(gyre_param_text(&doctor->params, GYRE_PARAM_IB_GID_INDEX), "-1") != 0)
        warn(doctor, GYRE_PARAM_IB_GID_INDEX,
             "rows of the GID table differ between hosts and move after a link failure; the rules "
             "find the right one (rdma.gid)");
    check_class(doctor, GYRE_PARAM_IB_TC);
    check_class(doctor, GYRE_PARAM_IB_FIFO_TC);
    if (gyre_param_is_set(&doctor->params, GYRE_PARAM_IB_TIMEOUT) && exponent >= 20) {
        /* IBTA: 4.096 us times two to the power of the value */
        const double seconds = 4.096e-6 * (double)(1ULL << exponent) * (double)(retries + 1);
        snprintf(harm, sizeof(harm),
                 "a peer that is gone is noticed by the adapter after %.0f s at the earliest",
                 seconds);
        warn(doctor, GYRE_PARAM_IB_TIMEOUT, harm);
    }
    if (gyre_param_is_set(&doctor->params, GYRE_PARAM_IB_RETRY_CNT) && retries == 7 &&
        place->has_soft_rdma)
        warn(doctor, GYRE_PARAM_IB_RETRY_CNT,
             "Soft-RoCE takes 7 for ever: a lost peer is never "
             "reported");
}

void bench_check_job_harmful(struct bench_doctor *doctor)
{
    const struct place place = look(doctor->root);
    const char *visible = bench_variable(doctor, "CUDA_VISIBLE_DEVICES");
    const char *names = gyre_param_text(&doctor->params, GYRE_PARAM_SOCKET_IFNAME);
    check_switches(doctor, &place);
    check_rdma(doctor, &place);
    if (strcmp(names, "lo") == 0 || strcmp(names, "=lo") == 0)
        warn(doctor, GYRE_PARAM_SOCKET_IFNAME, "ranks on other hosts cannot reach loopback");
    if (visible != NULL && place.has_gpu && (visible[0] == '\0' || strcmp(visible, "-1") == 0))
        bench_say(doctor, BENCH_WARN, "CUDA_VISIBLE_DEVICES", "unset CUDA_VISIBLE_DEVICES",
                  "CUDA_VISIBLE_DEVICES=%s hides all GPUs", visible);
    if (bench_said(doctor) < 0)
        bench_say(doctor, BENCH_OK, NULL, NULL, "no variable that is nearly always a mistake");
}
