/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/topo/topo.h"

#include <string.h>

#include "core/foundation/base/util.h"

/* Between NUMA nodes, one direction. An estimate: a UPI link of 10.4 GT/s carries 20.8 GB/s (Intel
 * data sheet), an xGMI-2 link 36 (AMD); most hosts share several. */
#define INTERSOCKET_BYTES_PER_NS 20.0

double gyre_topo_uplink_bytes_per_ns(const struct gyre_topo_node *node)
{
    if (node->kind == GYRE_TOPO_NET)
        return node->speed_mbit_per_s == 0 ? 1.25 : node->speed_mbit_per_s / 8000.0;
    const double gt_per_s = node->link_mt_per_s == 0 ? 8.0 : node->link_mt_per_s / 1000.0;
    const double n_lanes = node->link_width == 0 ? 16.0 : node->link_width;
    /* Gen 2 has 8b/10b, later 128b/130b (PCIe base specification). Headers take some 10 %. */
    const double coding = gt_per_s <= 5.0 ? 0.8 : 128.0 / 130.0;
    return gt_per_s / 8.0 * n_lanes * coding * 0.9;
}

static const struct gyre_topo_link *
find_link(const struct gyre_topo *topo, enum gyre_topo_link_kind kind, int32_t from, int32_t to)
{
    for (int32_t i = 0; i < topo->n_links; i++) {
        const struct gyre_topo_link *link = &topo->links[i];
        if (link->kind == kind && link->from == from && link->to == to)
            return link;
    }
    return NULL;
}

/* 0 = none */
static double nvlink_between(const struct gyre_topo *topo, int32_t a, int32_t b)
{
    const struct gyre_topo_link *link = find_link(topo, GYRE_TOPO_NVLINK, a, b);
    if (link == NULL)
        link = find_link(topo, GYRE_TOPO_NVLINK, b, a);
    return link == NULL ? 0.0 : link->bytes_per_ns;
}

static void add_hop(struct gyre_topo_path *path, int32_t from, int32_t to, double bytes_per_ns)
{
    path->hops[path->n_hops] = (struct gyre_topo_hop){from, to, bytes_per_ns};
    if (path->n_hops == 0 || bytes_per_ns < path->bytes_per_ns)
        path->bytes_per_ns = bytes_per_ns;
    path->n_hops++;
}

static int32_t root_of(const struct gyre_topo *topo, int32_t node)
{
    while (topo->nodes[node].parent >= 0)
        node = topo->nodes[node].parent;
    return node;
}

static void climb(const struct gyre_topo *topo, int32_t from, int32_t top,
                  struct gyre_topo_path *path)
{
    for (int32_t at = from; at != top; at = topo->nodes[at].parent)
        add_hop(path, at, topo->nodes[at].parent, gyre_topo_uplink_bytes_per_ns(&topo->nodes[at]));
}

static void descend(const struct gyre_topo *topo, int32_t top, int32_t to,
                    struct gyre_topo_path *path)
{
    int32_t way[GYRE_TOPO_MAX_DEPTH + 2];
    int n_way = 0;
    for (int32_t at = to; at != top; at = topo->nodes[at].parent)
        way[n_way++] = at;
    while (n_way-- > 0)
        add_hop(path, topo->nodes[way[n_way]].parent, way[n_way],
                gyre_topo_uplink_bytes_per_ns(&topo->nodes[way[n_way]]));
}

static void tree_path(const struct gyre_topo *topo, int32_t from, int32_t to,
                      struct gyre_topo_path *path)
{
    memset(path, 0, sizeof(*path));
    /* The lowest common ancestor. */
    int32_t top = from, other = -1;
    for (; top >= 0; top = topo->nodes[top].parent) {
        for (other = to; other >= 0 && other != top;)
            other = topo->nodes[other].parent;
        if (other == top)
            break;
    }
    if (top < 0) {
        const int32_t from_root = root_of(topo, from), to_root = root_of(topo, to);
        climb(topo, from, from_root, path);
        add_hop(path, from_root, to_root, INTERSOCKET_BYTES_PER_NS);
        descend(topo, to_root, to, path);
        path->level = GYRE_TOPO_SYS;
        return;
    }
    climb(topo, from, top, path);
    descend(topo, top, to, path);
    const char *bus_id = topo->nodes[from].bus_id;
    if (bus_id[0] != '\0' && strcmp(bus_id, topo->nodes[to].bus_id) == 0) {
        path->level = GYRE_TOPO_LOC;
    } else if (topo->nodes[top].kind == GYRE_TOPO_CPU) {
        path->level = from == to ? GYRE_TOPO_LOC : GYRE_TOPO_PHB;
    } else if (topo->nodes[top].kind != GYRE_TOPO_PCI || from == to) {
        path->level = GYRE_TOPO_LOC;
    } else {
        int n_switches = topo->nodes[from].kind == GYRE_TOPO_PCI;
        for (int32_t i = 0; i < path->n_hops; i++)
            n_switches += topo->nodes[path->hops[i].to].kind == GYRE_TOPO_PCI;
        path->level = n_switches > 1 ? GYRE_TOPO_PXB : GYRE_TOPO_PIX;
    }
}

/* Direct, by the switch, or (NVB) through the GPU with the widest detour. */
static bool nvlink_path(const struct gyre_topo *topo, int32_t from, int32_t to,
                        struct gyre_topo_path *path)
{
    memset(path, 0, sizeof(*path));
    path->level = GYRE_TOPO_NVL;
    const double direct = nvlink_between(topo, from, to);
    if (direct > 0.0) {
        add_hop(path, from, to, direct);
        return true;
    }
    if (topo->nodes[from].kind != GYRE_TOPO_GPU || topo->nodes[to].kind != GYRE_TOPO_GPU)
        return false;
    int32_t best = -1;
    double best_bytes_per_ns = 0.0;
    for (int32_t i = 0; i < topo->n_links; i++) {
        const struct gyre_topo_link *link = &topo->links[i];
        if (link->kind != GYRE_TOPO_NVLINK || (link->from != from && link->to != from))
            continue;
        const int32_t middle = link->from == from ? link->to : link->from;
        const double first = nvlink_between(topo, from, middle);
        const double second = nvlink_between(topo, middle, to);
        const double narrow = first < second ? first : second;
        const bool is_switch = topo->nodes[middle].kind == GYRE_TOPO_NVSWITCH;
        if (narrow > 0.0 && (is_switch || narrow > best_bytes_per_ns)) {
            best = middle;
            best_bytes_per_ns = narrow;
            if (is_switch)
                break;
        }
    }
    if (best < 0)
        return false;
    if (topo->nodes[best].kind != GYRE_TOPO_NVSWITCH)
        path->level = GYRE_TOPO_NVB;
    add_hop(path, from, best, nvlink_between(topo, from, best));
    add_hop(path, best, to, nvlink_between(topo, best, to));
    return true;
}

/* Over the GPU's package link, then down that CPU's PCIe. */
static bool c2c_path(const struct gyre_topo *topo, int32_t gpu, int32_t to,
                     struct gyre_topo_path *path)
{
    memset(path, 0, sizeof(*path));
    const int32_t cpu = root_of(topo, to);
    const struct gyre_topo_link *link = find_link(topo, GYRE_TOPO_C2CLINK, gpu, cpu);
    if (link == NULL || topo->nodes[to].kind == GYRE_TOPO_GPU)
        return false;
    add_hop(path, gpu, cpu, link->bytes_per_ns);
    descend(topo, cpu, to, path);
    path->level = to == cpu ? GYRE_TOPO_C2C : GYRE_TOPO_P2C;
    return true;
}

gyre_status gyre_topo_path_find(const struct gyre_topo *topo, int32_t from, int32_t to,
                                struct gyre_topo_path *path_out)
{
    if (from < 0 || to < 0 || from >= topo->n_nodes || to >= topo->n_nodes)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "no path from node %d to %d of %d", from, to,
                         topo->n_nodes);
    struct gyre_topo_path other;
    tree_path(topo, from, to, path_out);
    if (from == to)
        return GYRE_SUCCESS;
    if (nvlink_path(topo, from, to, &other) && other.level < path_out->level)
        *path_out = other;
    if (c2c_path(topo, from, to, &other) && other.level < path_out->level)
        *path_out = other;
    if (c2c_path(topo, to, from, &other) && other.level < path_out->level) {
        for (int32_t i = 0, j = other.n_hops - 1; i <= j; i++, j--) {
            const struct gyre_topo_hop first = other.hops[i], last = other.hops[j];
            other.hops[i] = (struct gyre_topo_hop){last.to, last.from, last.bytes_per_ns};
            other.hops[j] = (struct gyre_topo_hop){first.to, first.from, first.bytes_per_ns};
        }
        *path_out = other;
    }
    return GYRE_SUCCESS;
}

enum gyre_topo_level gyre_topo_level_between(const struct gyre_topo *topo, int32_t a, int32_t b)
{
    struct gyre_topo_path path;
    if (a < 0 || b < 0 || a >= topo->n_nodes || b >= topo->n_nodes)
        return GYRE_TOPO_SYS;
    return gyre_topo_path_find(topo, a, b, &path) == GYRE_SUCCESS ? path.level : GYRE_TOPO_SYS;
}

static bool counts(const struct gyre_topo_node *node, bool rdma_only)
{
    return node->kind == GYRE_TOPO_NET && (node->is_rdma || !rdma_only);
}

static enum gyre_topo_level best_net_level(const struct gyre_topo *topo, int32_t gpu,
                                           bool rdma_only)
{
    enum gyre_topo_level best = GYRE_TOPO_N_LEVELS;
    for (int32_t i = 0; i < topo->n_nodes; i++) {
        if (!counts(&topo->nodes[i], rdma_only))
            continue;
        const enum gyre_topo_level level = gyre_topo_level_between(topo, gpu, i);
        best = level < best ? level : best;
    }
    return best;
}

int32_t gyre_topo_nearest_nets(const struct gyre_topo *topo, int32_t gpu, bool rdma_only,
                               int32_t n_max, int32_t *nets_out)
{
    const enum gyre_topo_level best = best_net_level(topo, gpu, rdma_only);
    int32_t found[GYRE_TOPO_MAX_NODES];
    int32_t n_found = 0, n_fastest = 0;
    for (int32_t i = 0; i < topo->n_nodes; i++) {
        if (!counts(&topo->nodes[i], rdma_only) || gyre_topo_level_between(topo, gpu, i) != best)
            continue;
        int32_t at = n_found++;
        for (; at > 0 &&
               topo->nodes[found[at - 1]].speed_mbit_per_s < topo->nodes[i].speed_mbit_per_s;
             at--)
            found[at] = found[at - 1];
        found[at] = i;
    }
    while (n_fastest < n_found &&
           topo->nodes[found[n_fastest]].speed_mbit_per_s == topo->nodes[found[0]].speed_mbit_per_s)
        n_fastest++;
    if (n_found == 0)
        return 0;
    /* Never a slow port. */
    int32_t n_rivals = 0;
    for (int32_t other = gyre_topo_next(topo, GYRE_TOPO_GPU, 0); other >= 0 && other < gpu;
         other = gyre_topo_next(topo, GYRE_TOPO_GPU, other + 1)) {
        const enum gyre_topo_level other_best = best_net_level(topo, other, rdma_only);
        bool same = true;
        for (int32_t i = 0; i < topo->n_nodes && same; i++) {
            if (counts(&topo->nodes[i], rdma_only))
                same = (gyre_topo_level_between(topo, gpu, i) == best) ==
                       (gyre_topo_level_between(topo, other, i) == other_best);
        }
        n_rivals += same;
    }
    const int32_t first = n_rivals % n_fastest;
    int32_t n_written = 0;
    for (int32_t i = 0; i < n_found && n_written < n_max; i++)
        nets_out[n_written++] = i < n_fastest ? found[(first + i) % n_fastest] : found[i];
    return n_written;
}

static uint64_t hash_u64(uint64_t hash, uint64_t value)
{
    uint8_t bytes[8]; /* little endian, for mixed clusters */
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    return gyre_hash(hash, bytes, sizeof(bytes));
}

uint64_t gyre_topo_hash(const struct gyre_topo *topo)
{
    uint64_t hash = hash_u64(GYRE_HASH_INIT, (uint64_t)gyre_topo_count(topo, GYRE_TOPO_GPU));
    for (int32_t i = 0; i < topo->n_nodes; i++) {
        const struct gyre_topo_node *node = &topo->nodes[i];
        if (node->kind != GYRE_TOPO_GPU && !counts(node, true))
            continue;
        hash = hash_u64(hash, (uint64_t)node->kind);
        hash = hash_u64(hash, (uint64_t)node->arch_sm);
        hash = hash_u64(hash, node->speed_mbit_per_s);
        for (int32_t j = 0; j < topo->n_nodes; j++) {
            const struct gyre_topo_node *peer = &topo->nodes[j];
            struct gyre_topo_path path;
            if (peer->kind != GYRE_TOPO_GPU && !counts(peer, true))
                continue;
            if (gyre_topo_path_find(topo, i, j, &path) != GYRE_SUCCESS)
                continue;
            hash = hash_u64(hash, (uint64_t)path.level);
            hash = hash_u64(hash, (uint64_t)(path.bytes_per_ns * 1000.0));
        }
    }
    return hash;
}
