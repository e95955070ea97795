/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/topo/topo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

static const struct {
    const char *name;
    int legacy;
} levels[] = {
#define LEVEL_ROW(name, legacy, meaning) {#name, legacy},
    GYRE_TOPO_LEVEL_TABLE(LEVEL_ROW)
#undef LEVEL_ROW
};

const char *gyre_topo_level_name(enum gyre_topo_level level)
{
    return (unsigned)level < GYRE_TOPO_N_LEVELS ? levels[level].name : "?";
}

const char *gyre_topo_kind_name(enum gyre_topo_kind kind)
{
    static const char *const names[] = {"CPU", "PCI", "GPU", "NIC", "NET", "NVSWITCH"};
    return (unsigned)kind < GYRE_ARRAY_LENGTH(names) ? names[kind] : "?";
}

gyre_status gyre_topo_level_parse(const char *variable, const char *text,
                                  enum gyre_topo_level *level_out)
{
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(levels); i++) {
        if (gyre_text_same(text, levels[i].name)) {
            *level_out = (enum gyre_topo_level)i;
            return GYRE_SUCCESS;
        }
    }
    const size_t n_digits = strspn(text, "0123456789");
    if (n_digits > 0 && n_digits < 10 && text[n_digits] == '\0') {
        const long number = strtol(text, NULL, 10);
        *level_out = GYRE_TOPO_SYS;
        for (size_t i = 0; i < GYRE_ARRAY_LENGTH(levels); i++)
            if (levels[i].legacy == number)
                *level_out = (enum gyre_topo_level)i;
        return GYRE_SUCCESS;
    }
    char legal[128] = "";
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(levels); i++)
        gyre_text_append(legal, sizeof(legal), "%s ", levels[i].name);
    return gyre_fail(
        GYRE_ERROR_INVALID_ARGUMENT,
        "%s=%.64s is no path level; legal: %sor 0 (LOC) 1 (PIX) 2 (PXB) 3 (PHB) 4 (SYS)", variable,
        text, legal);
}

gyre_status gyre_topo_bus_id_parse(const char *text, char bus_id_out[GYRE_TOPO_BUS_ID_BYTES])
{
    unsigned domain = 0, bus = 0, device = 0, function = 0;
    int n_used = -1;
    /* sscanf's %x takes signs and leading blanks. */
    if (strspn(text, "0123456789abcdefABCDEF:.") == strlen(text)) {
        if (sscanf(text, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &n_used) != 4) {
            domain = 0;
            n_used = -1;
            if (sscanf(text, "%2x:%2x.%1x%n", &bus, &device, &function, &n_used) != 3)
                n_used = -1;
        }
    }
    if (n_used < 0 || text[n_used] != '\0' || device > 31 || function > 7)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "\"%.40s\" is no PCI bus id (domain:bus:device.function)", text);
    char formatted[32];
    snprintf(formatted, sizeof(formatted), "%04x:%02x:%02x.%x", domain, bus, device, function);
    const size_t n_bytes = strlen(formatted) + 1;
    if (n_bytes > GYRE_TOPO_BUS_ID_BYTES)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "PCI domain %x is out of range", domain);
    memcpy(bus_id_out, formatted, n_bytes);
    return GYRE_SUCCESS;
}

void gyre_topo_init(struct gyre_topo *topo)
{
    memset(topo, 0, sizeof(*topo));
}

void gyre_topo_fini(struct gyre_topo *topo)
{
    free(topo->nodes);
    free(topo->links);
    gyre_topo_init(topo);
}

void gyre_topo_node_init(struct gyre_topo_node *node, enum gyre_topo_kind kind, int32_t parent)
{
    memset(node, 0, sizeof(*node));
    node->kind = kind;
    node->parent = parent;
    node->ordinal = -1;
    node->rank = -1;
    node->gdr = -1;
    node->port = 1;
}

gyre_status gyre_topo_add_node(struct gyre_topo *topo, const struct gyre_topo_node *node,
                               int32_t *index_out)
{
    if (topo->n_nodes >= GYRE_TOPO_MAX_NODES)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "topology has more than %d nodes; it may leave out ports and functions "
                         "that are not used",
                         GYRE_TOPO_MAX_NODES);
    const bool is_root = node->kind == GYRE_TOPO_CPU || node->kind == GYRE_TOPO_NVSWITCH;
    const bool has_parent = node->parent >= 0 && node->parent < topo->n_nodes;
    const enum gyre_topo_kind above = has_parent ? topo->nodes[node->parent].kind : GYRE_TOPO_NET;
    const bool is_fit = is_root ? node->parent == -1
                        : node->kind == GYRE_TOPO_NET
                            ? above == GYRE_TOPO_NIC
                            : above == GYRE_TOPO_CPU || above == GYRE_TOPO_PCI;
    if (!is_fit)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "a %s cannot stand below node %d",
                         gyre_topo_kind_name(node->kind), node->parent);
    int depth = 0;
    for (int32_t at = node->parent; at >= 0; at = topo->nodes[at].parent)
        depth++;
    if (depth > GYRE_TOPO_MAX_DEPTH)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "PCI nodes nest deeper than %d",
                         GYRE_TOPO_MAX_DEPTH);
    const int32_t known = node->bus_id[0] != '\0' ? gyre_topo_find_bus_id(topo, node->bus_id) : -1;
    if (known >= 0 && (node->kind != GYRE_TOPO_GPU || topo->nodes[known].kind != GYRE_TOPO_GPU ||
                       topo->nodes[known].parent != node->parent))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "PCI device %s stands there twice",
                         node->bus_id);
    if (node->kind == GYRE_TOPO_CPU && gyre_topo_find_numa(topo, node->numa_id) >= 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "NUMA node %d stands there twice",
                         node->numa_id);
    if (!gyre_grow(&topo->nodes, &topo->nodes_capacity, (uint64_t)topo->n_nodes + 1,
                   sizeof(*topo->nodes)))
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "topology of %d elements", topo->n_nodes + 1);
    topo->nodes[topo->n_nodes] = *node;
    if (index_out != NULL)
        *index_out = topo->n_nodes;
    topo->n_nodes++;
    return GYRE_SUCCESS;
}

/* Grace Hopper's NVLink-C2C, a direction (data sheet), as one lane. */
#define C2C_BYTES_PER_NS 450.0

gyre_status gyre_topo_add_link(struct gyre_topo *topo, const struct gyre_topo_link *link)
{
    const bool has_ends = link->from >= 0 && link->from < topo->n_nodes && link->to >= 0 &&
                          link->to < topo->n_nodes && link->from != link->to;
    const enum gyre_topo_kind from = has_ends ? topo->nodes[link->from].kind : GYRE_TOPO_NET;
    const enum gyre_topo_kind to = has_ends ? topo->nodes[link->to].kind : GYRE_TOPO_NET;
    const bool is_fit = link->kind == GYRE_TOPO_C2CLINK
                            ? to == GYRE_TOPO_CPU
                            : to == GYRE_TOPO_GPU || to == GYRE_TOPO_NVSWITCH;
    if (link->n_lanes == 0 || from != GYRE_TOPO_GPU || !is_fit)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "a link of %u lanes cannot join nodes %d and %d", link->n_lanes,
                         link->from, link->to);
    double bytes_per_ns = link->bytes_per_ns;
    if (!(bytes_per_ns > 0.0) && link->kind == GYRE_TOPO_NVLINK) {
        /* One lane, one direction: NVIDIA's data sheets (NVLink 1: 20 GB/s, 2 to 4: 25, 5: 50;
         * GA10x: 14). 81 % is payload (364 of 450 GB/s, ring of 16-byte stores on four H200). */
        const int arch_sm = topo->nodes[link->from].arch_sm;
        double wire = 25.0;
        if (arch_sm >= 100)
            wire = 50.0;
        else if (arch_sm == 86)
            wire = 14.0;
        else if (arch_sm > 0 && arch_sm < 70)
            wire = 20.0;
        bytes_per_ns = link->n_lanes * (wire * 0.81);
    } else if (!(bytes_per_ns > 0.0))
        bytes_per_ns = link->n_lanes * C2C_BYTES_PER_NS;
    for (int32_t i = 0; i < topo->n_links; i++) {
        struct gyre_topo_link *known = &topo->links[i];
        if (known->kind == link->kind && known->from == link->from && known->to == link->to) {
            known->n_lanes += link->n_lanes;
            known->bytes_per_ns += bytes_per_ns;
            return GYRE_SUCCESS;
        }
    }
    if (topo->n_links >= GYRE_TOPO_MAX_LINKS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "topology has more than %d links: take out GPUs of other hosts",
                         GYRE_TOPO_MAX_LINKS);
    if (!gyre_grow(&topo->links, &topo->links_capacity, (uint64_t)topo->n_links + 1,
                   sizeof(*topo->links)))
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "topology of %d elements", topo->n_links + 1);
    topo->links[topo->n_links] = *link;
    topo->links[topo->n_links].bytes_per_ns = bytes_per_ns;
    topo->n_links++;
    return GYRE_SUCCESS;
}

int32_t gyre_topo_find_bus_id(const struct gyre_topo *topo, const char *bus_id)
{
    char wanted[GYRE_TOPO_BUS_ID_BYTES];
    char cause[GYRE_CAUSE_MAX_BYTES];
    snprintf(cause, sizeof(cause), "%s", gyre_cause());
    if (gyre_topo_bus_id_parse(bus_id, wanted) != GYRE_SUCCESS) {
        gyre_set_cause(cause);
        return -1;
    }
    for (int32_t i = 0; i < topo->n_nodes; i++)
        if (strcmp(topo->nodes[i].bus_id, wanted) == 0)
            return i;
    return -1;
}

int32_t gyre_topo_find_numa(const struct gyre_topo *topo, int numa_id)
{
    for (int32_t i = 0; i < topo->n_nodes; i++)
        if (topo->nodes[i].kind == GYRE_TOPO_CPU && topo->nodes[i].numa_id == numa_id)
            return i;
    return -1;
}

int32_t gyre_topo_next(const struct gyre_topo *topo, enum gyre_topo_kind kind, int32_t start)
{
    for (int32_t i = start; i < topo->n_nodes; i++)
        if (topo->nodes[i].kind == kind)
            return i;
    return -1;
}

int32_t gyre_topo_count(const struct gyre_topo *topo, enum gyre_topo_kind kind)
{
    int32_t n_found = 0;
    for (int32_t i = 0; i < topo->n_nodes; i++)
        n_found += topo->nodes[i].kind == kind;
    return n_found;
}
