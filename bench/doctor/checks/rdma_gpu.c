/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/doctor/doctor.h"

#include "core/foundation/base/text.h"

#include <string.h>

void bench_check_rdma_peermem(struct bench_doctor *doctor)
{
    char *version = NULL;
    const char *level = gyre_param_text(&doctor->params, GYRE_PARAM_NET_GDR_LEVEL);
    if (gyre_text_same(level, "LOC") || strcmp(level, "0") == 0) {
        bench_skip(doctor, "%s=%s: no adapter is to reach GPU memory",
                   gyre_param_source(&doctor->params, GYRE_PARAM_NET_GDR_LEVEL), level);
        return;
    }
    const enum bench_read result = bench_read_all(BENCH_DRIVER_PATH, &version);
    const bool is_open = version != NULL && strstr(version, "Open Kernel Module") != NULL;
    if (bench_exists("/sys/module/nvidia_peermem") ||
        bench_exists("/sys/kernel/mm/memory_peers/nv_mem"))
        bench_ok(doctor, NULL,
                 "/sys/module/nvidia_peermem: loaded%s; gyre proves it by a trial registration",
                 is_open ? ", and the open driver offers dma-buf" : "");
    else if (is_open)
        bench_ok(doctor, NULL,
                 "/proc/driver/nvidia/version: the open driver, which offers dma-buf; "
                 "nvidia_peermem is not needed");
    else if (result != BENCH_READ_OK)
        bench_say_unreadable(doctor, NULL, BENCH_DRIVER_PATH, result);
    else
        bench_warn(doctor, NULL,
                   "modprobe nvidia-peermem (echo nvidia-peermem > "
                   "/etc/modules-load.d/nvidia-peermem.conf), or install the open driver",
                   "neither /sys/module/nvidia_peermem nor the open NVIDIA driver: NICs cannot "
                   "reach GPU memory, and every byte goes through host memory");
}

/* Ports that only a topology file shows count as used. */
static bool is_used(const struct bench_machine *machine, const struct gyre_topo_node *net)
{
    for (int i = 0; i < machine->n_ports; i++)
        if (strcmp(machine->ports[i].device, net->name) == 0 && machine->ports[i].port == net->port)
            return machine->ports[i].why_unused[0] == '\0';
    return true;
}

/* @limit: names GPUDirect's limit @farthest. */
static void check_gpu(struct bench_doctor *doctor, const struct gyre_topo *topo, int32_t gpu,
                      enum gyre_topo_level farthest, const char *limit)
{
    int32_t nets[64], net = -1; /* the nearest one that jobs use */
    const int32_t n = gyre_topo_nearest_nets(topo, gpu, true, 64, nets);
    for (int32_t i = 0; i < n && net < 0; i++)
        if (is_used(&doctor->machine, &topo->nodes[nets[i]]))
            net = nets[i];
    const bool is_near = net >= 0;
    for (int32_t other = gyre_topo_next(topo, GYRE_TOPO_NET, 0); !is_near && other >= 0;
         other = gyre_topo_next(topo, GYRE_TOPO_NET, other + 1))
        if (topo->nodes[other].is_rdma && is_used(&doctor->machine, &topo->nodes[other]) &&
            (net < 0 ||
             gyre_topo_level_between(topo, gpu, other) < gyre_topo_level_between(topo, gpu, net)))
            net = other;
    const char *bus_id = topo->nodes[gpu].bus_id;
    if (net < 0)
        return;
    const enum gyre_topo_level level = gyre_topo_level_between(topo, gpu, net);
    const char *name = topo->nodes[net].name;
    if (level == GYRE_TOPO_SYS)
        bench_warn(doctor, bus_id,
                   "bind the rank to the NUMA node of its GPU, and look whether an adapter of that "
                   "node is missing: gyre topo",
                   "its nearest RDMA port, %s, is on another NUMA node (SYS): GPUDirect crosses "
                   "the processors' link",
                   name);
    else if (level > farthest)
        bench_ok(doctor, bus_id,
                 "nearest RDMA port %s%s, which is beyond %s: bytes go through host memory", name,
                 level == GYRE_TOPO_PHB ? ", through the processor's host bridge (PHB)" : "",
                 limit);
    else
        bench_ok(doctor, bus_id, "nearest RDMA port %s (%s)", name, gyre_topo_level_name(level));
}

void bench_check_rdma_gpu_distance(struct bench_doctor *doctor)
{
    struct gyre_topo topo;
    enum gyre_topo_level farthest = GYRE_TOPO_PXB;
    const char *limit = "the default of GYRE_NET_GDR_LEVEL (PXB)";
    const char *level = gyre_param_text(&doctor->params, GYRE_PARAM_NET_GDR_LEVEL);
    const char *source = gyre_param_called(&doctor->params, GYRE_PARAM_NET_GDR_LEVEL);
    if (level[0] != '\0' && gyre_topo_level_parse(source, level, &farthest) == GYRE_SUCCESS)
        limit = bench_text("%s=%s", source, level);
    const char *file = gyre_param_text(&doctor->params, GYRE_PARAM_TOPO_FILE);
    const struct gyre_topo_detect_options options = {.sysfs_root = bench_text("%s/sys", bench_root),
                                                     .nvml_library =
                                                         bench_root[0] != '\0' ? "" : NULL};
    if ((file[0] != '\0' && gyre_topo_xml_read(file, &topo) == GYRE_SUCCESS
             ? GYRE_SUCCESS
             : gyre_topo_detect(&options, &topo)) != GYRE_SUCCESS) {
        bench_unknown(doctor, NULL, NULL, "/sys/bus/pci/devices: %s", gyre_cause());
        return;
    }
    for (int32_t gpu = gyre_topo_next(&topo, GYRE_TOPO_GPU, 0); gpu >= 0;
         gpu = gyre_topo_next(&topo, GYRE_TOPO_GPU, gpu + 1))
        if (!bench_gpu_is_hidden(&doctor->machine, topo.nodes[gpu].bus_id))
            check_gpu(doctor, &topo, gpu, farthest, limit);
    gyre_topo_fini(&topo);
}
