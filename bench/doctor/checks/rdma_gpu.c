/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of RDMA adapters on PCI and of their PCI paths to GPUs.
 */
#include "bench/doctor/pci.h"
#include "bench/doctor/rdma.h"
#include "core/foundation/topo/topo.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rdma.pcie ----------------------------------------------------------------------------- */

void bench_check_rdma_pcie(struct bench_doctor *doctor)
{
    struct bench_rdma *rdma = bench_rdma_read(doctor->root);
    if (bench_rdma_skip(doctor, rdma)) {
        free(rdma);
        return;
    }
    for (int i = 0; i < rdma->n_ports; i++) {
        const struct bench_rdma_port *port = &rdma->ports[i];
        struct bench_pci_link link;
        if (port->bus_id[0] == '\0')
            continue;
        const enum bench_read result = bench_pci_read_link(doctor->root, port->bus_id, &link);
        if (result == BENCH_READ_ABSENT)
            continue; /* a virtual function has no link of its own */
        if (result != BENCH_READ_OK)
            bench_say_unreadable(doctor, port->name, "its PCI link (current_link_speed, ...)",
                                 result);
        else if (link.width < link.most_width || link.gt_per_s < link.most_gt_per_s)
            bench_say(
                doctor, BENCH_WARN, port->name,
                "seat the adapter in a slot with all lanes; look at the slot's setting in the "
                "firmware: lspci -vv -s BUS_ID | grep LnkSta",
                "/sys/bus/pci/devices/%s: x%d at %.4g GT/s, could be x%d at %.4g: %.4g of "
                "%.4g Gbit/s",
                port->bus_id, link.width, link.gt_per_s, link.most_width, link.most_gt_per_s,
                bench_pci_gbit_per_s(link.width, link.gt_per_s), port->gbit_per_s);
        else if (bench_pci_gbit_per_s(link.width, link.gt_per_s) < port->gbit_per_s)
            bench_say(
                doctor, BENCH_WARN, port->name,
                "nothing can be set; a slot of a newer generation, or with more lanes, could "
                "carry the port's rate",
                "/sys/bus/pci/devices/%s: x%d at %.4g GT/s carries %.4g Gbit/s, less than the "
                "port's %.4g",
                port->bus_id, link.width, link.gt_per_s,
                bench_pci_gbit_per_s(link.width, link.gt_per_s), port->gbit_per_s);
        else
            bench_say(doctor, BENCH_OK, port->name, NULL,
                      "/sys/bus/pci/devices/%s: x%d at %.4g GT/s", port->bus_id, link.width,
                      link.gt_per_s);
    }
    if (bench_said(doctor) < 0)
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "no RDMA device with a PCI link of its own");
    free(rdma);
}

/* ---- rdma.peermem -------------------------------------------------------------------------- */

static bool has_hardware(const struct bench_rdma *rdma)
{
    for (int i = 0; i < rdma->n_ports; i++)
        if (!rdma->ports[i].is_soft)
            return true;
    return false;
}

void bench_check_rdma_peermem(struct bench_doctor *doctor)
{
    struct bench_rdma *rdma = bench_rdma_read(doctor->root);
    char *version = NULL;
    if (rdma == NULL)
        return;
    const bool is_needed = has_hardware(rdma) && bench_pci_has_gpu(doctor->root);
    free(rdma);
    if (!is_needed) {
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "needs both a GPU and an RDMA adapter");
        return;
    }
    const enum bench_read result =
        bench_read_all(doctor->root, "/proc/driver/nvidia/version", &version);
    const bool is_open = version != NULL && strstr(version, "Open Kernel Module") != NULL;
    free(version);
    if (bench_exists(doctor->root, "/sys/module/nvidia_peermem") ||
        bench_exists(doctor->root, "/sys/kernel/mm/memory_peers/nv_mem"))
        bench_say(doctor, BENCH_OK, NULL, NULL,
                  "/sys/module/nvidia_peermem: loaded%s; gyre proves it by a trial registration",
                  is_open ? ", and the open driver offers dma-buf" : "");
    else if (is_open)
        bench_say(doctor, BENCH_OK, NULL, NULL,
                  "/proc/driver/nvidia/version: the open driver, which offers dma-buf; "
                  "nvidia_peermem is not needed");
    else if (result != BENCH_READ_OK)
        bench_say_unreadable(doctor, NULL, "/proc/driver/nvidia/version", result);
    else
        bench_say(
            doctor, BENCH_WARN, NULL,
            "modprobe nvidia-peermem (echo nvidia-peermem > /etc/modules-load.d/"
            "nvidia-peermem.conf), or install the open driver",
            "neither /sys/module/nvidia_peermem nor the open NVIDIA driver: NICs cannot reach "
            "GPU memory, and every byte goes through host memory");
}

/* ---- rdma.gpu_distance --------------------------------------------------------------------- */

static void check_gpu(struct bench_doctor *doctor, const struct gyre_topo *topo, int32_t gpu)
{
    int32_t net = -1;
    char subject[32];
    const char *bus_id = topo->nodes[gpu].bus_id;
    snprintf(subject, sizeof(subject), "%s", bus_id);
    if (gyre_topo_nearest_nets(topo, gpu, true, 1, &net) == 0)
        return;
    const enum gyre_topo_level level = gyre_topo_level_between(topo, gpu, net);
    const char *name = topo->nodes[net].name;
    if (level == GYRE_TOPO_SYS)
        bench_say(doctor, BENCH_WARN, subject,
                  "bind the rank to the NUMA node of its GPU, and look whether an adapter of that "
                  "node is missing: gyre topo",
                  "its nearest RDMA port, %s, is on another NUMA node (SYS): GPUDirect crosses the "
                  "processors' link",
                  name);
    else if (level == GYRE_TOPO_PHB)
        bench_say(
            doctor, BENCH_OK, subject, NULL,
            "nearest RDMA port %s, through the processor's host bridge (PHB), which is beyond the "
            "default of GYRE_NET_GDR_LEVEL (PXB): bytes go through host memory",
            name);
    else
        bench_say(doctor, BENCH_OK, subject, NULL, "nearest RDMA port %s (%s)", name,
                  gyre_topo_level_name(level));
}

void bench_check_rdma_gpu_distance(struct bench_doctor *doctor)
{
    char sysfs[PATH_MAX];
    struct gyre_topo topo;
    const bool is_fixture = doctor->root[0] != '\0';
    snprintf(sysfs, sizeof(sysfs), "%s/sys", doctor->root);
    const struct gyre_topo_detect_options options = {.sysfs_root = sysfs,
                                                     .nvml_library = is_fixture ? "" : NULL};
    if (gyre_topo_detect(&options, &topo) != GYRE_SUCCESS) {
        bench_say(doctor, BENCH_UNKNOWN, NULL, NULL, "/sys/bus/pci/devices: %s", gyre_cause());
        return;
    }
    for (int32_t gpu = gyre_topo_next(&topo, GYRE_TOPO_GPU, 0); gpu >= 0;
         gpu = gyre_topo_next(&topo, GYRE_TOPO_GPU, gpu + 1))
        check_gpu(doctor, &topo, gpu);
    gyre_topo_fini(&topo);
    if (bench_said(doctor) < 0)
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "needs both a GPU and an RDMA adapter");
}
