/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPUs of this machine and their NVLinks: from NVML where it answers, else from sysfs.
 */
#include "core/foundation/topo/detect.h"

#include "core/foundation/base/log.h"
#include "core/foundation/topo/topo_nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PCI_CLASS_IS_DISPLAY(class) ((class) >> 16 == 0x03)
#define PCI_VENDOR_NVIDIA           0x10de

static gyre_status add_gpu(struct gyre_detect *detect, const char *bus_id, int ordinal, int arch_sm)
{
    struct gyre_pci_chain chain;
    char path[64];
    int32_t index;
    snprintf(path, sizeof(path), "bus/pci/devices/%s", bus_id);
    if (!gyre_detect_read_chain(detect, path, &chain)) {
        /* In a container sysfs may be hidden. The GPU is then put below the first CPU. */
        chain.n = 1;
        snprintf(chain.bus_ids[0], sizeof(chain.bus_ids[0]), "%.15s", bus_id);
    }
    GYRE_TRY(gyre_detect_add_function(detect, &chain, GYRE_TOPO_GPU, &index));
    detect->topo->nodes[index].ordinal = ordinal;
    detect->topo->nodes[index].arch_sm = arch_sm;
    return GYRE_SUCCESS;
}

/* Without NVML: NVIDIA's display controllers, in bus order. */
static gyre_status add_gpus_from_sysfs(struct gyre_detect *detect)
{
    struct dirent **names;
    const int n_names = gyre_detect_list_names(detect, "bus/pci/devices", &names);
    gyre_status status = GYRE_SUCCESS;
    int ordinal = 0;
    for (int i = 0; i < n_names && status == GYRE_SUCCESS; i++) {
        const char *name = names[i]->d_name;
        if (name[0] == '.' || strlen(name) >= GYRE_TOPO_BUS_ID_BYTES)
            continue;
        if (PCI_CLASS_IS_DISPLAY(gyre_detect_read_pci(detect, name, "class")) &&
            gyre_detect_read_pci(detect, name, "vendor") == PCI_VENDOR_NVIDIA)
            status = add_gpu(detect, name, ordinal++, 0);
    }
    gyre_detect_free_names(names, n_names);
    return status;
}

static gyre_status add_nvlinks(struct gyre_detect *detect, const struct gyre_nvml_gpu *gpu)
{
    struct gyre_topo *topo = detect->topo;
    const int32_t from = gyre_topo_find_bus_id(topo, gpu->bus_id);
    for (uint32_t i = 0; from >= 0 && i < gpu->n_links; i++) {
        int32_t to = gyre_topo_next(topo, GYRE_TOPO_NVSWITCH, 0);
        if (!gpu->links[i].is_switch) {
            to = gyre_topo_find_bus_id(topo, gpu->links[i].target);
        } else if (to < 0) {
            struct gyre_topo_node node;
            gyre_topo_node_init(&node, GYRE_TOPO_NVSWITCH, -1);
            GYRE_TRY(gyre_topo_add_node(topo, &node, &to));
        }
        /* The lane leads to a GPU that this process may not use, or to another device: it is left
         * out. */
        if (to < 0 || to == from ||
            (topo->nodes[to].kind != GYRE_TOPO_GPU && topo->nodes[to].kind != GYRE_TOPO_NVSWITCH))
            continue;
        const struct gyre_topo_link link = {GYRE_TOPO_NVLINK, from, to, 1, 0.0};
        GYRE_TRY(gyre_topo_add_link(topo, &link));
    }
    return GYRE_SUCCESS;
}

/* The caller's list says which GPUs and in which order; NVML adds what it knows about them. */
static gyre_status add_gpus(struct gyre_detect *detect,
                            const struct gyre_topo_detect_options *options,
                            const struct gyre_nvml_gpu *known, size_t n_known)
{
    for (size_t i = 0; i < options->n_gpu_bus_ids; i++) {
        char bus_id[GYRE_TOPO_BUS_ID_BYTES];
        int arch_sm = 0;
        GYRE_TRY(gyre_topo_bus_id_parse(options->gpu_bus_ids[i], bus_id));
        for (size_t j = 0; j < n_known; j++)
            arch_sm = strcmp(known[j].bus_id, bus_id) == 0 ? known[j].arch_sm : arch_sm;
        GYRE_TRY(add_gpu(detect, bus_id, (int)i, arch_sm));
    }
    for (size_t j = 0; options->gpu_bus_ids == NULL && j < n_known; j++)
        GYRE_TRY(add_gpu(detect, known[j].bus_id, known[j].ordinal, known[j].arch_sm));
    for (size_t j = 0; j < n_known; j++)
        GYRE_TRY(add_nvlinks(detect, &known[j]));
    return GYRE_SUCCESS;
}

gyre_status gyre_detect_gpus(struct gyre_detect *detect,
                             const struct gyre_topo_detect_options *options)
{
    struct gyre_nvml_gpu *known = NULL;
    size_t n_known = 0;
    const char *library =
        options->nvml_library != NULL ? options->nvml_library : "libnvidia-ml.so.1";
    const bool asked = library[0] != '\0';
    const bool answered = asked && gyre_nvml_scan(library, &known, &n_known) == GYRE_SUCCESS;
    if (asked && !answered)
        GYRE_INFO(GRAPH, "NVLinks are not known: %s", gyre_cause());
    if (!answered && options->gpu_bus_ids == NULL)
        return add_gpus_from_sysfs(detect);
    const gyre_status status = add_gpus(detect, options, known, n_known);
    free(known);
    return status;
}
