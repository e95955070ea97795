/* SPDX-License-Identifier: Apache-2.0
 *
 * The NUMA nodes of this machine, with what the processor says of itself.
 */
#include "core/foundation/topo/detect.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

static void describe_cpu(struct gyre_topo_node *cpu)
{
    struct utsname host;
    if (uname(&host) == 0)
        snprintf(cpu->arch, sizeof(cpu->arch), "%.15s", host.machine);
#if defined(__x86_64__) || defined(__i386__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid(0, &a, &b, &c, &d)) {
        const unsigned words[3] = {b, d, c};
        memcpy(cpu->vendor, words, sizeof(words));
    }
    if (__get_cpuid(1, &a, &b, &c, &d)) { /* Intel SDM, CPUID leaf 1: base + extended parts */
        cpu->family = (int32_t)(((a >> 8) & 15) + ((a >> 20) & 255));
        cpu->model = (int32_t)(((a >> 4) & 15) + ((a >> 12) & 0xf0));
    }
#endif
}

static gyre_status add_cpu(struct gyre_detect *detect, int numa_id)
{
    struct gyre_topo_node cpu;
    char path[64];
    gyre_topo_node_init(&cpu, GYRE_TOPO_CPU, -1);
    cpu.numa_id = numa_id;
    describe_cpu(&cpu);
    snprintf(path, sizeof(path), "devices/system/node/node%d/cpumap", numa_id);
    gyre_detect_read_line(detect, path, cpu.affinity, sizeof(cpu.affinity));
    return gyre_topo_add_node(detect->topo, &cpu, NULL);
}

gyre_status gyre_detect_cpus(struct gyre_detect *detect)
{
    /* Nodes are read by number, because node10 sorts before node2 in a directory. */
    for (int id = 0; id < 1024; id++) {
        char path[64], cpus[64];
        snprintf(path, sizeof(path), "devices/system/node/node%d/cpulist", id);
        if (gyre_detect_read_line(detect, path, cpus,
                                  sizeof(cpus))) /* memory without processors: not shown */
            GYRE_TRY(add_cpu(detect, id));
    }
    if (detect->topo->n_nodes == 0)
        GYRE_TRY(add_cpu(detect, 0)); /* a kernel without NUMA */
    return GYRE_SUCCESS;
}

gyre_status gyre_detect_find_cpu(struct gyre_detect *detect, const char *bus_id, int32_t *cpu_out)
{
    char path[64];
    snprintf(path, sizeof(path), "bus/pci/devices/%s/numa_node", bus_id);
    const long numa_id = gyre_detect_read_number(detect, path, -1);
    *cpu_out = 0;
    if (numa_id < 0 || numa_id > INT32_MAX)
        return GYRE_SUCCESS;
    if (gyre_topo_find_numa(detect->topo, (int)numa_id) < 0)
        GYRE_TRY(add_cpu(detect, (int)numa_id));
    *cpu_out = gyre_topo_find_numa(detect->topo, (int)numa_id);
    return GYRE_SUCCESS;
}
