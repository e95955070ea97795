/* SPDX-License-Identifier: Apache-2.0
 *
 * PCIe functions of this machine, and the switches between them and the root complex.
 */
#include "core/foundation/topo/detect.h"

#include "core/foundation/base/text.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

long gyre_detect_read_pci(const struct gyre_detect *detect, const char *bus_id, const char *file)
{
    char path[96];
    snprintf(path, sizeof(path), "bus/pci/devices/%s/%s", bus_id, file);
    return gyre_detect_read_number(detect, path, 0);
}

static uint32_t read_link_speed(const struct gyre_detect *detect, const char *bus_id)
{
    char path[96], text[64];
    snprintf(path, sizeof(path), "bus/pci/devices/%s/max_link_speed", bus_id);
    if (!gyre_detect_read_line(detect, path, text, sizeof(text)))
        return 0;
    const double gt_per_s = gyre_text_to_double(text, NULL); /* "Unknown" gives 0 */
    return gt_per_s > 0.0 && gt_per_s < 1000.0 ? (uint32_t)(gt_per_s * 1000.0 + 0.5) : 0;
}

/* Speed and width of the link above a function: the lesser of its two ends (0 = not known). The
 * maximum, not the present state: idle GPUs train their link down. */
static void read_link(const struct gyre_detect *detect, const char *port_above,
                      struct gyre_topo_node *node)
{
    node->link_mt_per_s = read_link_speed(detect, node->bus_id);
    const long width = gyre_detect_read_pci(detect, node->bus_id, "max_link_width");
    node->link_width = width > 0 && width <= 32 ? (uint32_t)width : 0;
    if (port_above == NULL)
        return;
    const uint32_t speed_above = read_link_speed(detect, port_above);
    const long width_above = gyre_detect_read_pci(detect, port_above, "max_link_width");
    if (speed_above != 0 && speed_above < node->link_mt_per_s)
        node->link_mt_per_s = speed_above;
    if (width_above > 0 && width_above < (long)node->link_width)
        node->link_width = (uint32_t)width_above;
}

bool gyre_detect_read_chain(const struct gyre_detect *detect, const char *path,
                            struct gyre_pci_chain *chain_out)
{
    char whole[PATH_MAX], real[PATH_MAX];
    char cause[GYRE_CAUSE_MAX_BYTES];
    if (snprintf(whole, sizeof(whole), "%s/%s", detect->root, path) >= (int)sizeof(whole) ||
        realpath(whole, real) == NULL)
        return false;
    chain_out->n = 0;
    snprintf(cause, sizeof(cause), "%s", gyre_cause());
    char *rest = NULL;
    for (char *part = strtok_r(real, "/", &rest); part != NULL; part = strtok_r(NULL, "/", &rest)) {
        char bus_id[GYRE_TOPO_BUS_ID_BYTES];
        if (strlen(part) < 12 || gyre_topo_bus_id_parse(part, bus_id) != GYRE_SUCCESS)
            continue;
        if (chain_out->n == GYRE_PCI_MAX_CHAIN)
            return false;
        memcpy(chain_out->bus_ids[chain_out->n++], bus_id, sizeof(bus_id));
    }
    gyre_set_cause(cause); /* most parts of a path are no bus id, which is no failure */
    return chain_out->n > 0;
}

/* Add the switches above the last function of a chain. A chain is root port, then the upstream and
 * downstream port of each switch, then the function; a switch is named by its upstream port. */
static gyre_status add_switches(struct gyre_detect *detect, const struct gyre_pci_chain *chain,
                                int32_t *parent_out)
{
    int32_t parent;
    GYRE_TRY(gyre_detect_find_cpu(detect, chain->bus_ids[chain->n - 1], &parent));
    for (int i = 1; i + 1 < chain->n; i += 2) {
        int32_t node_index = gyre_topo_find_bus_id(detect->topo, chain->bus_ids[i]);
        if (node_index < 0) {
            struct gyre_topo_node node;
            gyre_topo_node_init(&node, GYRE_TOPO_PCI, parent);
            memcpy(node.bus_id, chain->bus_ids[i], sizeof(node.bus_id));
            node.pci_class = (uint32_t)gyre_detect_read_pci(detect, node.bus_id, "class");
            read_link(detect, chain->bus_ids[i - 1], &node);
            GYRE_TRY(gyre_topo_add_node(detect->topo, &node, &node_index));
        }
        parent = node_index;
    }
    *parent_out = parent;
    return GYRE_SUCCESS;
}

gyre_status gyre_detect_add_function(struct gyre_detect *detect, const struct gyre_pci_chain *chain,
                                     enum gyre_topo_kind kind, int32_t *index_out)
{
    const char *bus_id = chain->bus_ids[chain->n - 1];
    *index_out = gyre_topo_find_bus_id(detect->topo, bus_id);
    if (*index_out >= 0)
        return GYRE_SUCCESS;
    struct gyre_topo_node node;
    int32_t parent;
    GYRE_TRY(add_switches(detect, chain, &parent));
    gyre_topo_node_init(&node, kind, parent);
    memcpy(node.bus_id, bus_id, sizeof(node.bus_id));
    node.pci_class = (uint32_t)gyre_detect_read_pci(detect, bus_id, "class");
    read_link(detect, chain->n > 1 ? chain->bus_ids[chain->n - 2] : NULL, &node);
    return gyre_topo_add_node(detect->topo, &node, index_out);
}
