/* SPDX-License-Identifier: Apache-2.0
 *
 * Constants of measured machines and the bound.
 */
#include "algorithms/simulate/simulate.h"

#include "core/foundation/base/status.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Inside a host: fitted by `build/bench/tune --from docs/performance` of commit b7aab6a to calls of
 * 2 and 4 H200 (NVLink 4, CUDA 13.0, 2026-11). Between hosts: NCCL's model, not measured
 * (src/graph/tuning.cc, 2.28: a hop includes the cost of a step). A 400 Gbit/s NIC moves 49 GB/s
 * (perftest, 1 QP). */
const struct gyre_cost gyre_cost_h200 = {
    .launch_ns = 1270,
    .worker_launch_ns = 10.9,
    .step_ns = {[GYRE_PROTO_SIMPLE] = 1068,
                [GYRE_PROTO_LL] = 80,
                [GYRE_PROTO_LL128] = 80,
                [GYRE_PROTO_LAMPORT] = 166},
    .hop_ns = {[GYRE_PROTO_SIMPLE] = {60, 11000},
               [GYRE_PROTO_LL] = {1515, 2700},
               [GYRE_PROTO_LL128] = {1583, 4000},
               [GYRE_PROTO_LAMPORT] = {853, 4000}},
    .wire_efficiency = {[GYRE_PROTO_SIMPLE] = 1,
                        [GYRE_PROTO_LL] = 0.5,
                        [GYRE_PROTO_LL128] = 0.9375,
                        [GYRE_PROTO_LAMPORT] = 1},
    .credit_ns = {43, 2700},
    .worker_send_bytes_per_ns = {24.4, 48},
    .worker_read_bytes_per_ns = 329,
    .worker_store_bytes_per_ns = 329,
    .egress_bytes_per_ns = {352, 49},
    .ingress_bytes_per_ns = {352, 49},
    .nic_bytes_per_ns = 49,
};

/* Inside a host: fitted by `build/bench/tune -g 2` on two cores of an AMD EPYC (Zen 3, an idle
 * virtual machine, 2026-11) to calls of two threads that both have a core. A rank runs all its
 * workers on one thread. The network is TCP over 10 Gbit/s Ethernet. */
const struct gyre_cost gyre_cost_host = {
    .launch_ns = 750,
    .worker_launch_ns = 6,
    .step_ns = {[GYRE_PROTO_SIMPLE] = 53,
                [GYRE_PROTO_LL] = 48,
                [GYRE_PROTO_LL128] = 48,
                [GYRE_PROTO_LAMPORT] = 48},
    .hop_ns = {[GYRE_PROTO_SIMPLE] = {169, 20000},
               [GYRE_PROTO_LL] = {160, 20000},
               [GYRE_PROTO_LL128] = {160, 20000},
               [GYRE_PROTO_LAMPORT] = {160, 20000}},
    .wire_efficiency = {[GYRE_PROTO_SIMPLE] = 1,
                        [GYRE_PROTO_LL] = 0.5,
                        [GYRE_PROTO_LL128] = 0.9375,
                        [GYRE_PROTO_LAMPORT] = 1},
    .credit_ns = {85, 20000},
    .worker_send_bytes_per_ns = {22.8, 22.8},
    .worker_read_bytes_per_ns = 208,
    .worker_store_bytes_per_ns = 63,
    .uncached_slowdown = 1.23,
    .cached_bytes = 131072,
    .parallel_workers = 1,
    .nic_bytes_per_ns = 1.15,
};

const struct gyre_cost *gyre_cost_find(const char *name)
{
    return strcmp(name, "host") == 0   ? &gyre_cost_host
           : strcmp(name, "h200") == 0 ? &gyre_cost_h200
                                       : NULL;
}

struct key {
    const char *name;
    size_t offset;
    bool is_share; /* above 0, at most 1 */
};

#define KEY(name, field)                               \
    {                                                  \
        name, offsetof(struct gyre_cost, field), false \
    }
#define HOP(proto_id, proto, id, l) KEY(#proto "_" #l "_hop_ns", hop_ns[proto_id][GYRE_LINK_##id]),

static const struct key keys[] = {
    KEY("launch_ns", launch_ns),
    KEY("worker_launch_ns", worker_launch_ns),
#define PROTO_KEYS(id, proto, data, line)                                                         \
    KEY(#proto "_step_ns", step_ns[GYRE_PROTO_##id]),                                             \
        {#proto "_wire_efficiency", offsetof(struct gyre_cost, wire_efficiency[GYRE_PROTO_##id]), \
         true},                                                                                   \
        HOP(GYRE_PROTO_##id, proto, HOST, host) HOP(GYRE_PROTO_##id, proto, NETWORK, network)
    GYRE_PROTO_TABLE(PROTO_KEYS)
#undef PROTO_KEYS
#define LINK_KEYS(id, link)                                                               \
    KEY(#link "_credit_ns", credit_ns[GYRE_LINK_##id]),                                   \
        KEY(#link "_worker_send_bytes_per_ns", worker_send_bytes_per_ns[GYRE_LINK_##id]), \
        KEY(#link "_egress_bytes_per_ns", egress_bytes_per_ns[GYRE_LINK_##id]),           \
        KEY(#link "_ingress_bytes_per_ns", ingress_bytes_per_ns[GYRE_LINK_##id]),
        GYRE_LINK_TABLE(LINK_KEYS)
#undef LINK_KEYS
            KEY("worker_step_bytes_per_ns", worker_step_bytes_per_ns),
    KEY("worker_read_bytes_per_ns", worker_read_bytes_per_ns),
    KEY("worker_store_bytes_per_ns", worker_store_bytes_per_ns),
    KEY("fence_ns", fence_ns),
    KEY("uncached_slowdown", uncached_slowdown),
    KEY("cached_bytes", cached_bytes),
    KEY("parallel_workers", parallel_workers),
    KEY("cores_per_host", cores_per_host),
    KEY("nic_bytes_per_ns", nic_bytes_per_ns),
    KEY("nic_message_ns", nic_message_ns),
    KEY("rendezvous_ns", rendezvous_ns),
    KEY("rendezvous_bytes", rendezvous_bytes),
};

#define N_KEYS         (sizeof(keys) / sizeof(keys[0]))
#define LINE_MAX_BYTES 128

static double *field_of(struct gyre_cost *cost, const struct key *key)
{
    return (double *)(void *)((char *)cost + key->offset);
}

static char *trim(char *text)
{
    while (gyre_text_is_space(*text))
        text++;
    size_t n = strlen(text);
    while (n > 0 && gyre_text_is_space(text[n - 1]))
        text[--n] = '\0';
    return text;
}

static gyre_status read_line(char *text, int line, struct gyre_cost *cost, bool *is_given)
{
    char *name = trim(text);
    if (name[0] == '\0')
        return GYRE_SUCCESS;
    char *equals = strchr(name, '=');
    if (equals == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "line %d: \"%.40s\" is not \"key = number\"",
                         line, name);
    *equals = '\0';
    name = trim(name);
    char *number = trim(equals + 1);
    size_t i = 0;
    char legal[1000] = "";
    for (; i < N_KEYS && strcmp(keys[i].name, name) != 0; i++)
        gyre_text_append(legal, sizeof(legal), " %s", keys[i].name);
    if (i == N_KEYS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "line %d: \"%.40s\" is none of:%s", line,
                         name, legal);
    if (is_given[i])
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "line %d: %s is given twice", line, name);
    char *end;
    const double value = gyre_text_to_double(number, &end);
    const bool in_range = keys[i].is_share ? value > 0 && value <= 1 : value >= 0;
    if (end == number || *end != '\0' || !isfinite(value) || !in_range)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "line %d: %s = \"%.40s\": expected a number %s", line, name, number,
                         keys[i].is_share ? "above 0, at most 1" : "of at least 0");
    *field_of(cost, &keys[i]) = value;
    is_given[i] = true;
    return GYRE_SUCCESS;
}

gyre_status gyre_cost_from_text(const char *text, const struct gyre_cost *base,
                                struct gyre_cost *cost_out)
{
    struct gyre_cost cost = *base;
    bool is_given[N_KEYS] = {false};
    for (int line = 1; *text != '\0'; line++) {
        char copy[LINE_MAX_BYTES];
        const size_t n_line = strcspn(text, "\n");
        const size_t n_used = strcspn(text, "#\n");
        if (n_used >= sizeof(copy))
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "line %d: longer than %zu characters",
                             line, sizeof(copy) - 1);
        memcpy(copy, text, n_used);
        copy[n_used] = '\0';
        GYRE_TRY(read_line(copy, line, &cost, is_given));
        text += n_line;
        text += *text == '\n';
    }
    *cost_out = cost;
    return GYRE_SUCCESS;
}

gyre_status gyre_cost_to_text(const struct gyre_cost *cost, char **text_out)
{
    struct gyre_cost copy = *cost;
    char *text = malloc(N_KEYS * LINE_MAX_BYTES);
    size_t used = 0;
    if (text == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot allocate the text of a cost");
    for (size_t i = 0; i < N_KEYS; i++)
        used += (size_t)gyre_text_format(&text[used], LINE_MAX_BYTES, "%s = %.17g\n", keys[i].name,
                                         *field_of(&copy, &keys[i]));
    *text_out = text;
    return GYRE_SUCCESS;
}

/* The fewest bytes that each of h hosts must send:
 *
 *  all-reduce                   2 B (h-1)/h
 *  reduce-scatter, all-gather     B (h-1)/h   (B: all blocks)
 *  broadcast, reduce              B
 *
 * For ranks, h is their number. */
static double share_of(enum gyre_collective coll, double n)
{
    switch (coll) {
    case GYRE_COLL_ALL_REDUCE:
        return 2 * (n - 1) / n;
    case GYRE_COLL_REDUCE_SCATTER:
    case GYRE_COLL_ALL_GATHER:
        return (n - 1) / n;
    case GYRE_COLL_BROADCAST:
    case GYRE_COLL_REDUCE:
        return n > 1 ? 1 : 0;
    default:
        return 0;
    }
}

double gyre_bound_ns(const struct gyre_shape *shape, const struct gyre_cost *cost, uint64_t n_bytes)
{
    const struct gyre_grouping *grouping = shape->grouping;
    const double bytes = (double)n_bytes;
    double network_ns = 0, inside_ns = 0;
    if (cost->egress_bytes_per_ns[GYRE_LINK_HOST] > 0)
        inside_ns = bytes * share_of(shape->coll, shape->n_ranks) /
                    cost->egress_bytes_per_ns[GYRE_LINK_HOST];
    if (grouping == NULL || grouping->n_hosts < 2)
        return inside_ns;
    uint16_t n_of[GYRE_MAX_RANKS] = {0};
    uint32_t fewest = shape->n_ranks; /* NICs or ranks of a host */
    for (unsigned rank = 0; rank < shape->n_ranks; rank++)
        n_of[grouping->host_of[rank]]++;
    for (unsigned host = 0; host < grouping->n_hosts; host++)
        fewest = gyre_min_u32(fewest, n_of[host]);
    if (grouping->n_nics > 0)
        fewest = gyre_min_u32(fewest, grouping->n_nics);
    double share = share_of(shape->coll, grouping->n_hosts);
    if (shape->coll == GYRE_COLL_ALL_REDUCE && grouping->weak_part > 0 &&
        grouping->n_hosts == shape->n_ranks) {
        /* The weak host sends its input once at least; beyond that all send alike long. */
        const double n_others = grouping->n_hosts - 1.0;
        share = fmax(1, 2 * n_others * grouping->weak_part / (n_others + grouping->weak_part));
    }
    if (cost->nic_bytes_per_ns > 0)
        network_ns = bytes * share / (cost->nic_bytes_per_ns * fewest);
    return network_ns > inside_ns ? network_ns : inside_ns;
}
