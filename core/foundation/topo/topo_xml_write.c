/* SPDX-License-Identifier: Apache-2.0
 *
 * gyre's own attributes, which others skip: `rdma` and `netdev` of `net`, `bw` of `xgmi`.
 */
#include "core/foundation/base/file.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"
#include "core/foundation/topo/topo.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NCCL's, if links name no switch */
#define NVSWITCH_TARGET "fffffff:ffff:ff"

static void indent(FILE *file, int depth)
{
    fprintf(file, "%*s", 2 * depth, "");
}

static void put_text(FILE *file, const char *name, const char *text)
{
    fprintf(file, " %s=\"", name);
    gyre_text_put_markup(file, text);
    fputc('"', file);
}

static void put_gpu(FILE *file, const struct gyre_topo *topo, int32_t index, int depth)
{
    const struct gyre_topo_node *gpu = &topo->nodes[index];
    indent(file, depth);
    fprintf(file, "<gpu dev=\"%d\" sm=\"%d\"", gpu->ordinal, gpu->arch_sm);
    if (gpu->rank >= 0)
        fprintf(file, " rank=\"%d\"", gpu->rank);
    if (gpu->gdr >= 0)
        fprintf(file, " gdr=\"%d\"", gpu->gdr);
    fprintf(file, ">\n");
    for (int32_t i = 0; i < topo->n_links; i++) {
        const struct gyre_topo_link *link = &topo->links[i];
        if (link->from != index)
            continue;
        indent(file, depth + 1);
        if (link->kind == GYRE_TOPO_C2CLINK)
            fprintf(file, "<c2c count=\"%u\" bw=\"%.0f\"/>\n", link->n_lanes,
                    link->bytes_per_ns / link->n_lanes * 1000.0);
        else if (topo->nodes[link->to].kind == GYRE_TOPO_NVSWITCH)
            fprintf(file, "<nvlink target=\"%s\" count=\"%u\" tclass=\"0x068000\"/>\n",
                    NVSWITCH_TARGET, link->n_lanes);
        else if (topo->nodes[index].pci_class >> 16 == 0x12 ||
                 topo->nodes[index].pci_class >> 8 == 0x380)
            fprintf(file, "<xgmi target=\"%s\" count=\"%u\" bw=\"%.0f\"/>\n",
                    topo->nodes[link->to].bus_id, link->n_lanes,
                    link->bytes_per_ns / link->n_lanes * 1000.0);
        else
            fprintf(file, "<nvlink target=\"%s\" count=\"%u\" tclass=\"0x%06x\"/>\n",
                    topo->nodes[link->to].bus_id, link->n_lanes,
                    topo->nodes[link->to].pci_class != 0 ? topo->nodes[link->to].pci_class
                                                         : 0x030200);
    }
    indent(file, depth);
    fprintf(file, "</gpu>\n");
}

static void put_nic(FILE *file, const struct gyre_topo *topo, int32_t nic, int depth)
{
    indent(file, depth);
    fprintf(file, "<nic>\n");
    for (int32_t i = 0; i < topo->n_nodes; i++) {
        const struct gyre_topo_node *net = &topo->nodes[i];
        if (net->parent != nic)
            continue;
        indent(file, depth + 1);
        fprintf(file, "<net");
        put_text(file, "name", net->name);
        fprintf(file, " dev=\"%d\" speed=\"%u\" port=\"%d\" guid=\"0x%llx\"", net->ordinal,
                net->speed_mbit_per_s, net->port, (unsigned long long)net->guid);
        if (net->gdr >= 0)
            fprintf(file, " gdr=\"%d\"", net->gdr);
        fprintf(file, " rdma=\"%d\"", net->is_rdma);
        if (net->netdev[0] != '\0')
            put_text(file, "netdev", net->netdev);
        fprintf(file, "/>\n");
    }
    indent(file, depth);
    fprintf(file, "</nic>\n");
}

/* Bounded by GYRE_TOPO_MAX_DEPTH. */
static void put_children(FILE *file, const struct gyre_topo *topo, int32_t parent, int depth)
{
    for (int32_t i = 0; i < topo->n_nodes; i++) {
        const struct gyre_topo_node *node = &topo->nodes[i];
        const bool is_part = node->kind == GYRE_TOPO_GPU && node->bus_id[0] != '\0' &&
                             gyre_topo_find_bus_id(topo, node->bus_id) < i;
        if (node->parent != parent || is_part)
            continue;
        if (node->kind == GYRE_TOPO_NIC && node->bus_id[0] == '\0' &&
            topo->nodes[parent].kind == GYRE_TOPO_CPU) {
            put_nic(file, topo, i, depth);
            continue;
        }
        indent(file, depth);
        fprintf(file, "<pci busid=\"%s\" class=\"0x%06x\"", node->bus_id, node->pci_class);
        if (node->link_mt_per_s == 0)
            fprintf(file, " link_speed=\"\"");
        else
            fprintf(file, " link_speed=\"%u.%u GT/s PCIe\"", node->link_mt_per_s / 1000,
                    node->link_mt_per_s % 1000 / 100);
        fprintf(file, " link_width=\"%u\">\n", node->link_width);
        for (int32_t k = i; k < topo->n_nodes && node->kind == GYRE_TOPO_GPU; k++)
            if (k == i ||
                (node->bus_id[0] != '\0' && strcmp(topo->nodes[k].bus_id, node->bus_id) == 0))
                put_gpu(file, topo, k, depth + 1);
        if (node->kind == GYRE_TOPO_NIC)
            put_nic(file, topo, i, depth + 1);
        else if (node->kind != GYRE_TOPO_GPU)
            put_children(file, topo, i, depth + 1);
        indent(file, depth);
        fprintf(file, "</pci>\n");
    }
}

gyre_status gyre_topo_xml_format(const struct gyre_topo *topo, char **text_out)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *file = open_memstream(&text, &n_bytes);
    if (file == NULL)
        return gyre_fail_errno(errno, "open_memstream");
    fprintf(file, "<system version=\"1\">\n");
    for (int32_t i = 0; i < topo->n_nodes; i++) {
        const struct gyre_topo_node *cpu = &topo->nodes[i];
        if (cpu->kind != GYRE_TOPO_CPU)
            continue;
        fprintf(file, "  <cpu numaid=\"%d\"", cpu->numa_id);
        put_text(file, "affinity", cpu->affinity);
        put_text(file, "arch", cpu->arch);
        put_text(file, "vendor", cpu->vendor);
        fprintf(file, " familyid=\"%d\" modelid=\"%d\">\n", cpu->family, cpu->model);
        put_children(file, topo, i, 2);
        fprintf(file, "  </cpu>\n");
    }
    fprintf(file, "</system>\n");
    if (!gyre_text_finish(file, &text))
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "topology of %d nodes as XML", topo->n_nodes);
    *text_out = text;
    return GYRE_SUCCESS;
}

gyre_status gyre_topo_xml_write(const struct gyre_topo *topo, const char *path)
{
    GYRE_FREED char *text = NULL;
    GYRE_TRY(gyre_topo_xml_format(topo, &text));
    const gyre_status status = gyre_file_replace(path, text, strlen(text));
    return status == GYRE_SUCCESS ? status : gyre_fail_context(status, "cannot write topology");
}
