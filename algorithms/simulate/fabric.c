/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/simulate/fabric.h"

#include "core/foundation/base/status.h"
#include "core/foundation/base/util.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void gyre_fabric_free(struct gyre_fabric *fabric)
{
    if (fabric == NULL)
        return;
    free(fabric->hosts);
    free(fabric->leaf_of_nic);
    free(fabric->nic_of_rank);
    free(fabric->host_of_rank);
    free(fabric->bytes_per_ns);
    free(fabric);
}

static bool works(const struct gyre_fabric *fabric, uint32_t link)
{
    return fabric->bytes_per_ns[link] > 0;
}

uint32_t gyre_fabric_n_uplinks(const struct gyre_fabric *fabric)
{
    return fabric->kind == GYRE_FABRIC_TORUS    ? 2 * fabric->n_hosts * fabric->n_dims
           : fabric->kind == GYRE_FABRIC_LEAVES ? 2 * fabric->n_leaves * fabric->n_spines
                                                : fabric->n_leaves * fabric->n_leaves;
}

gyre_status gyre_fabric_set_uplinks(struct gyre_fabric *fabric, double rate,
                                    double oversubscription)
{
    if (fabric->kind == GYRE_FABRIC_TORUS) {
        for (uint32_t link = 2 * fabric->n_nics; link < fabric->n_links; link++)
            fabric->bytes_per_ns[link] = rate;
        return GYRE_SUCCESS;
    }
    if (fabric->kind == GYRE_FABRIC_DRAGONFLY && fabric->n_spines > 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "a dragonfly has no spines");
    double *down = calloc(fabric->n_leaves, sizeof(*down));
    if (down == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot allocate a fabric");
    for (uint32_t nic = 0; nic < fabric->n_nics; nic++)
        down[fabric->leaf_of_nic[nic]] += fabric->bytes_per_ns[gyre_fabric_nic_link(nic, true)];
    for (uint32_t i = 0; fabric->kind == GYRE_FABRIC_DRAGONFLY && i < gyre_fabric_n_uplinks(fabric);
         i++) {
        const uint32_t from = i / fabric->n_leaves, to = i % fabric->n_leaves;
        fabric->bytes_per_ns[2 * fabric->n_nics + i] =
            from == to ? 0
            : rate > 0 ? rate
                       : fmin(down[from], down[to]) / (fabric->n_leaves - 1) / oversubscription;
    }
    for (uint32_t leaf = 0; leaf < fabric->n_leaves; leaf++)
        for (uint32_t spine = 0; spine < fabric->n_spines; spine++) {
            const double own = rate > 0 ? rate : down[leaf] / fabric->n_spines / oversubscription;
            fabric->bytes_per_ns[gyre_fabric_uplink(fabric, leaf, spine, true)] = own;
            fabric->bytes_per_ns[gyre_fabric_uplink(fabric, leaf, spine, false)] = own;
        }
    free(down);
    return GYRE_SUCCESS;
}

gyre_status gyre_fabric_assign_nics(struct gyre_fabric *fabric)
{
    for (uint32_t h = 0; h < fabric->n_hosts; h++) {
        const struct gyre_fabric_host *host = &fabric->hosts[h];
        for (uint32_t i = 0; i < host->n_gpus; i++) {
            uint32_t nic = host->n_nics < host->n_gpus
                               ? (uint32_t)((uint64_t)i * host->n_nics / host->n_gpus)
                               : i;
            uint32_t n_dead = 0;
            while (!(fabric->bytes_per_ns[gyre_fabric_nic_link(host->first_nic + nic, true)] > 0)) {
                if (++n_dead == host->n_nics)
                    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                                     "every NIC of host %u is dead: nothing reaches its GPUs", h);
                nic = (nic + 1) % host->n_nics;
            }
            fabric->nic_of_rank[host->first_rank + i] = host->first_nic + nic;
            fabric->host_of_rank[host->first_rank + i] = h;
        }
    }
    return GYRE_SUCCESS;
}

/* Of all NICs. */
static double host_rate(const struct gyre_fabric *fabric, uint32_t h)
{
    double rate = 0;
    for (uint32_t i = 0; i < fabric->hosts[h].n_nics; i++)
        rate += fabric->bytes_per_ns[gyre_fabric_nic_link(fabric->hosts[h].first_nic + i, true)];
    return rate;
}

void gyre_fabric_group(const struct gyre_fabric *fabric, struct gyre_grouping *grouping_out)
{
    uint32_t fewest = UINT32_MAX;
    grouping_out->n_hosts = (uint16_t)fabric->n_hosts;
    for (uint32_t rank = 0; rank < fabric->n_ranks; rank++)
        grouping_out->host_of[rank] = (uint16_t)fabric->host_of_rank[rank];
    for (uint32_t h = 0; h < fabric->n_hosts; h++) {
        uint32_t n_working = 0;
        for (uint32_t i = 0; i < fabric->hosts[h].n_nics; i++)
            n_working +=
                works(fabric, gyre_fabric_nic_link(fabric->hosts[h].first_nic + i, true)) ? 1 : 0;
        fewest = gyre_min_u32(fewest, n_working);
    }
    grouping_out->n_nics = (uint16_t)fewest;
    double least = INFINITY, next = INFINITY;
    for (uint32_t h = 0; h < fabric->n_hosts; h++) {
        const double rate = host_rate(fabric, h);
        next = fmin(next, fmax(rate, least));
        if (rate < least)
            grouping_out->weak_host = (uint16_t)h;
        least = fmin(least, rate);
    }
    grouping_out->weak_part = least < next && isfinite(next) ? least / next : 0;
}

double gyre_fabric_host_rate(const struct gyre_fabric *fabric)
{
    double least = INFINITY;
    for (uint32_t h = 0; h < fabric->n_hosts; h++)
        least = fmin(least, host_rate(fabric, h));
    return least;
}

bool gyre_fabric_is_uniform(const struct gyre_fabric *fabric)
{
    const struct gyre_fabric_host *first = &fabric->hosts[0];
    for (uint32_t h = 0; h < fabric->n_hosts; h++)
        if (fabric->hosts[h].n_gpus != first->n_gpus || fabric->hosts[h].n_nics != first->n_nics)
            return false;
    for (uint32_t link = 0; link < 2 * fabric->n_nics; link++)
        if (fabric->bytes_per_ns[link] < fabric->bytes_per_ns[0] ||
            fabric->bytes_per_ns[link] > fabric->bytes_per_ns[0])
            return false;
    for (uint32_t nic = 0; nic < fabric->n_nics; nic++)
        if (fabric->leaf_of_nic[nic] != fabric->leaf_of_nic[nic % first->n_nics])
            return false;
    return true;
}

bool gyre_fabric_is_in_leaf(const struct gyre_fabric *fabric, uint32_t rank, uint32_t other)
{
    return fabric->leaf_of_nic[fabric->nic_of_rank[rank]] ==
           fabric->leaf_of_nic[fabric->nic_of_rank[other]];
}

static uint32_t host_of_nic(const struct gyre_fabric *fabric, uint32_t nic)
{
    uint32_t first = 0, end = fabric->n_hosts;
    while (end - first > 1) {
        const uint32_t middle = first + (end - first) / 2;
        if (nic < fabric->hosts[middle].first_nic)
            end = middle;
        else
            first = middle;
    }
    return first;
}

/* The product of the later dimensions. */
static uint32_t torus_stride(const struct gyre_fabric *fabric, uint32_t dim)
{
    uint32_t stride = 1;
    while (++dim < fabric->n_dims)
        stride *= fabric->dims[dim];
    return stride;
}

static uint32_t torus_neighbour(const struct gyre_fabric *fabric, uint32_t host, uint32_t dim,
                                bool is_forth)
{
    const uint32_t stride = torus_stride(fabric, dim), size = fabric->dims[dim];
    const uint32_t at = host / stride % size, next = (at + (is_forth ? 1 : size - 1)) % size;
    return host - at * stride + next * stride;
}

void gyre_fabric_link_name(const struct gyre_fabric *fabric, uint32_t link, char *name_out)
{
    const bool is_second = link % 2 != 0;
    if (link < 2 * fabric->n_nics) {
        const uint32_t host = host_of_nic(fabric, link / 2);
        snprintf(name_out, GYRE_FABRIC_NAME_BYTES, "%s host %u nic %u", is_second ? "to" : "from",
                 host, link / 2 - fabric->hosts[host].first_nic);
        return;
    }
    const uint32_t own = link - 2 * fabric->n_nics;
    if (fabric->kind == GYRE_FABRIC_DRAGONFLY) {
        snprintf(name_out, GYRE_FABRIC_NAME_BYTES, "group %u to group %u", own / fabric->n_leaves,
                 own % fabric->n_leaves);
        return;
    }
    if (fabric->kind == GYRE_FABRIC_TORUS) {
        const uint32_t host = own / 2 / fabric->n_dims, dim = own / 2 % fabric->n_dims;
        snprintf(name_out, GYRE_FABRIC_NAME_BYTES, "host %u to host %u", host,
                 torus_neighbour(fabric, host, dim, !is_second));
        return;
    }
    const uint32_t pair = link / 2 - fabric->n_nics;
    const uint32_t leaf = pair / fabric->n_spines, spine = pair % fabric->n_spines;
    if (is_second)
        snprintf(name_out, GYRE_FABRIC_NAME_BYTES, "spine %u to leaf %u", spine, leaf);
    else
        snprintf(name_out, GYRE_FABRIC_NAME_BYTES, "leaf %u to spine %u", leaf, spine);
}

static bool is_way(const struct gyre_fabric *fabric, uint32_t from_leaf, uint32_t to_leaf,
                   uint32_t spine)
{
    return works(fabric, gyre_fabric_uplink(fabric, from_leaf, spine, true)) &&
           works(fabric, gyre_fabric_uplink(fabric, to_leaf, spine, false));
}

/* The NIC's number, or a hash of both NICs as in switches, picks a spine that both leaves reach. */
static gyre_status find_spine(const struct gyre_fabric *fabric, uint32_t from_nic, uint32_t to_nic,
                              uint32_t *spine_out)
{
    const uint32_t from_leaf = fabric->leaf_of_nic[from_nic];
    const uint32_t to_leaf = fabric->leaf_of_nic[to_nic];
    const uint32_t from_host = host_of_nic(fabric, from_nic);
    const uint32_t ends[] = {from_nic, to_nic};
    const uint32_t rail = from_nic - fabric->hosts[from_host].first_nic;
    uint32_t n_ways = 0;
    for (uint32_t spine = 0; spine < fabric->n_spines; spine++)
        n_ways += is_way(fabric, from_leaf, to_leaf, spine) ? 1 : 0;
    if (n_ways == 0) {
        const uint32_t to_host = host_of_nic(fabric, to_nic);
        char reason[2 * GYRE_FABRIC_NAME_BYTES + 32] = "there is no spine switch";
        if (fabric->n_spines > 0) {
            char name[GYRE_FABRIC_NAME_BYTES];
            const uint32_t up = gyre_fabric_uplink(fabric, from_leaf, 0, true);
            const uint32_t down = gyre_fabric_uplink(fabric, to_leaf, 0, false);
            gyre_fabric_link_name(fabric, works(fabric, up) ? down : up, name);
            snprintf(reason, sizeof(reason), "%s is dead%s", name,
                     fabric->n_spines > 1 ? ", and every other spine is cut off likewise" : "");
        }
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "no way from host %u nic %u (leaf %u) to host %u nic %u (leaf %u): %s",
                         from_host, rail, from_leaf, to_host,
                         to_nic - fabric->hosts[to_host].first_nic, to_leaf, reason);
    }
    uint32_t left = fabric->routes_by_rail
                        ? rail % n_ways
                        : (uint32_t)(gyre_hash(GYRE_HASH_INIT, ends, sizeof(ends)) >> 20) % n_ways;
    for (uint32_t spine = 0;; spine++)
        if (is_way(fabric, from_leaf, to_leaf, spine) && left-- == 0) {
            *spine_out = spine;
            return GYRE_SUCCESS;
        }
}

uint32_t gyre_fabric_longest_route(const struct gyre_fabric *fabric)
{
    uint32_t n_links = fabric->kind == GYRE_FABRIC_LEAVES ? 4 : 3;
    for (uint32_t dim = 0; dim < fabric->n_dims; dim++)
        n_links += fabric->dims[dim] / 2;
    return n_links;
}

void gyre_fabric_route_in_leaf(const struct gyre_fabric *fabric, uint32_t from_rank,
                               uint32_t to_rank, struct gyre_fabric_route *route_out)
{
    route_out->n_links = 2;
    route_out->links[0] = gyre_fabric_nic_link(fabric->nic_of_rank[from_rank], true);
    route_out->links[1] = gyre_fabric_nic_link(fabric->nic_of_rank[to_rank], false);
    route_out->latency_ns = 2 * fabric->nic_latency_ns;
}

gyre_status gyre_fabric_route(const struct gyre_fabric *fabric, uint32_t from_rank,
                              uint32_t to_rank, struct gyre_fabric_route *route_out)
{
    const uint32_t from_nic = fabric->nic_of_rank[from_rank], to_nic = fabric->nic_of_rank[to_rank];
    const uint32_t from = fabric->leaf_of_nic[from_nic], to = fabric->leaf_of_nic[to_nic];
    uint32_t spine = 0;
    if (from == to) {
        gyre_fabric_route_in_leaf(fabric, from_rank, to_rank, route_out);
        return GYRE_SUCCESS;
    }
    if (fabric->kind == GYRE_FABRIC_LEAVES)
        GYRE_TRY(find_spine(fabric, from_nic, to_nic, &spine));
    route_out->n_links = 1;
    route_out->links[0] = gyre_fabric_nic_link(from_nic, true);
    if (fabric->kind == GYRE_FABRIC_LEAVES) {
        route_out->links[route_out->n_links++] = gyre_fabric_uplink(fabric, from, spine, true);
        route_out->links[route_out->n_links++] = gyre_fabric_uplink(fabric, to, spine, false);
    } else if (fabric->kind == GYRE_FABRIC_DRAGONFLY) {
        route_out->links[route_out->n_links++] = 2 * fabric->n_nics + from * fabric->n_leaves + to;
    } else {
        /* Of two equally long ways hosts with even coordinates go forth, the others back. */
        for (uint32_t dim = 0, host = from; dim < fabric->n_dims; dim++) {
            const uint32_t stride = torus_stride(fabric, dim), size = fabric->dims[dim];
            const uint32_t at = host / stride % size;
            const uint32_t ahead = (to / stride % size + size - at) % size;
            const bool is_forth = 2 * ahead < size || (2 * ahead == size && at % 2 == 0);
            for (uint32_t left = is_forth ? ahead : (size - ahead) % size; left > 0; left--) {
                route_out->links[route_out->n_links++] =
                    2 * (fabric->n_nics + host * fabric->n_dims + dim) + (is_forth ? 0 : 1);
                host = torus_neighbour(fabric, host, dim, is_forth);
            }
        }
    }
    route_out->latency_ns =
        2 * fabric->nic_latency_ns + (route_out->n_links - 1) * fabric->uplink_latency_ns;
    route_out->links[route_out->n_links++] = gyre_fabric_nic_link(to_nic, false);
    return GYRE_SUCCESS;
}
