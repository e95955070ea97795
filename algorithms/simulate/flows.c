/* SPDX-License-Identifier: Apache-2.0
 *
 * An event changes the rates of flows that share a link with its flow, with these, and so on. Only
 * this part is filled again.
 */
#include "algorithms/simulate/run.h"

#include "core/foundation/base/status.h"

#include <math.h>
#include <stdlib.h>

#define NONE UINT32_MAX

/* Rounding must not make several events of equal flows. */
#define SAME_NS   1e-6

#define SAME_PART 1e-9

enum state { IDLE, WAITS, RUNS };

struct flow {
    enum state state;
    double n_bytes;
    double n_members;
    double rate;
    double updated_ns;
    double event_ns;
    uint32_t place;
    uint32_t visit; /* last filling that saw it */
    bool is_fixed;
};

struct link {
    uint32_t first; /* flow * most_links + hop */
    uint32_t visit;
    double left;
    double n_members;
    double n_bytes;
};

struct hop {
    uint32_t next, before;
};

struct gyre_flows {
    const double *bytes_per_ns;
    const struct gyre_fabric_route *routes;
    uint32_t n_links, n_flows;
    uint32_t most_links; /* of a route */
    struct flow *flows;
    struct link *links;
    struct hop *hops;
    uint32_t *heap;
    uint32_t n_heap;
    uint32_t *part_links, *part_flows;
    uint32_t n_part_links, n_part_flows;
    uint32_t n_visits;
    double now_ns;
};

gyre_status gyre_flows_open(const double *bytes_per_ns, uint32_t n_links,
                            const struct gyre_fabric_route *routes, uint32_t n_flows,
                            struct gyre_flows **flows_out)
{
    struct gyre_flows *flows = calloc(1, sizeof(*flows));
    if (flows == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot allocate flows");
    *flows = (struct gyre_flows){
        .bytes_per_ns = bytes_per_ns, .routes = routes, .n_links = n_links, .n_flows = n_flows};
    for (uint32_t i = 0; i < n_flows; i++)
        flows->most_links =
            routes[i].n_links > flows->most_links ? routes[i].n_links : flows->most_links;
    flows->flows = calloc((size_t)n_flows + 1, sizeof(*flows->flows));
    flows->links = calloc((size_t)n_links + 1, sizeof(*flows->links));
    flows->hops = calloc((size_t)n_flows * flows->most_links + 1, sizeof(*flows->hops));
    flows->heap = calloc((size_t)n_flows + 1, sizeof(*flows->heap));
    flows->part_links = calloc((size_t)n_links + 1, sizeof(*flows->part_links));
    flows->part_flows = calloc((size_t)n_flows + 1, sizeof(*flows->part_flows));
    if (flows->flows == NULL || flows->links == NULL || flows->hops == NULL ||
        flows->heap == NULL || flows->part_links == NULL || flows->part_flows == NULL) {
        gyre_flows_close(flows);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot allocate %u flows", n_flows);
    }
    for (uint32_t i = 0; i < n_links; i++)
        flows->links[i].first = NONE;
    *flows_out = flows;
    return GYRE_SUCCESS;
}

void gyre_flows_close(struct gyre_flows *flows)
{
    if (flows == NULL)
        return;
    free(flows->flows);
    free(flows->links);
    free(flows->hops);
    free(flows->heap);
    free(flows->part_links);
    free(flows->part_flows);
    free(flows);
}

static bool is_before(const struct gyre_flows *flows, uint32_t a, uint32_t b)
{
    const double a_ns = flows->flows[a].event_ns, b_ns = flows->flows[b].event_ns;
    return a_ns < b_ns || (a_ns <= b_ns && a < b);
}

static void put(struct gyre_flows *flows, uint32_t place, uint32_t flow)
{
    flows->heap[place] = flow;
    flows->flows[flow].place = place;
}

static void sift(struct gyre_flows *flows, uint32_t i)
{
    const uint32_t flow = flows->heap[i];
    for (; i > 0 && is_before(flows, flow, flows->heap[(i - 1) / 2]); i = (i - 1) / 2)
        put(flows, i, flows->heap[(i - 1) / 2]);
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child + 1 < flows->n_heap &&
            is_before(flows, flows->heap[child + 1], flows->heap[child]))
            child++;
        if (child >= flows->n_heap || !is_before(flows, flows->heap[child], flow))
            break;
        put(flows, i, flows->heap[child]);
        i = child;
    }
    put(flows, i, flow);
}

double gyre_flows_next_ns(const struct gyre_flows *flows)
{
    return flows->n_heap == 0 ? INFINITY : flows->flows[flows->heap[0]].event_ns;
}

void gyre_flows_start(struct gyre_flows *flows, uint32_t number, double at_ns, double n_bytes,
                      double n_members)
{
    struct flow *flow = &flows->flows[number];
    const struct gyre_fabric_route *route = &flows->routes[number];
    flow->state = WAITS;
    flow->n_bytes = n_bytes;
    flow->n_members = n_members;
    flow->rate = 0;
    flow->event_ns = at_ns;
    for (uint32_t i = 0; i < route->n_links; i++)
        flows->links[route->links[i]].n_bytes += n_bytes * n_members;
    flows->heap[flows->n_heap] = number;
    sift(flows, flows->n_heap++);
}

double gyre_flows_busy_ns(const struct gyre_flows *flows, uint32_t link)
{
    return flows->links[link].n_bytes > 0 ? flows->links[link].n_bytes / flows->bytes_per_ns[link]
                                          : 0;
}

static void add_link(struct gyre_flows *flows, uint32_t link)
{
    if (flows->links[link].visit == flows->n_visits)
        return;
    flows->links[link].visit = flows->n_visits;
    flows->part_links[flows->n_part_links++] = link;
}

static void enter(struct gyre_flows *flows, uint32_t flow)
{
    const struct gyre_fabric_route *route = &flows->routes[flow];
    for (uint32_t i = 0; i < route->n_links; i++) {
        struct link *link = &flows->links[route->links[i]];
        const uint32_t hop = flow * flows->most_links + i;
        flows->hops[hop] = (struct hop){.next = link->first, .before = NONE};
        if (link->first != NONE)
            flows->hops[link->first].before = hop;
        link->first = hop;
        add_link(flows, route->links[i]);
    }
}

static void leave(struct gyre_flows *flows, uint32_t flow)
{
    const struct gyre_fabric_route *route = &flows->routes[flow];
    for (uint32_t i = 0; i < route->n_links; i++) {
        const struct hop hop = flows->hops[flow * flows->most_links + i];
        if (hop.before == NONE)
            flows->links[route->links[i]].first = hop.next;
        else
            flows->hops[hop.before].next = hop.next;
        if (hop.next != NONE)
            flows->hops[hop.next].before = hop.before;
        add_link(flows, route->links[i]);
    }
}

static void add_flows_of(struct gyre_flows *flows, uint32_t number)
{
    struct link *link = &flows->links[number];
    link->left = flows->bytes_per_ns[number];
    link->n_members = 0;
    for (uint32_t hop = link->first; hop != NONE; hop = flows->hops[hop].next) {
        const uint32_t index = hop / flows->most_links;
        struct flow *flow = &flows->flows[index];
        link->n_members += flow->n_members;
        if (flow->visit == flows->n_visits)
            continue;
        flow->visit = flows->n_visits;
        flow->is_fixed = false;
        flow->n_bytes = fmax(0, flow->n_bytes - flow->rate * (flows->now_ns - flow->updated_ns));
        flow->updated_ns = flows->now_ns;
        flows->part_flows[flows->n_part_flows++] = index;
        for (uint32_t i = 0; i < flows->routes[index].n_links; i++)
            add_link(flows, flows->routes[index].links[i]);
    }
}

/* Returns how many. */
static uint32_t fix_flows_of(struct gyre_flows *flows, const struct link *full, double rate)
{
    uint32_t n_fixed = 0;
    for (uint32_t hop = full->first; hop != NONE; hop = flows->hops[hop].next) {
        const uint32_t index = hop / flows->most_links;
        struct flow *flow = &flows->flows[index];
        if (flow->is_fixed)
            continue;
        flow->is_fixed = true;
        flow->rate = rate;
        n_fixed++;
        for (uint32_t i = 0; i < flows->routes[index].n_links; i++) {
            struct link *link = &flows->links[flows->routes[index].links[i]];
            link->left = fmax(0, link->left - rate * flow->n_members);
            link->n_members -= flow->n_members;
        }
    }
    return n_fixed;
}

static void fill(struct gyre_flows *flows)
{
    flows->n_part_flows = 0;
    for (uint32_t i = 0; i < flows->n_part_links; i++)
        add_flows_of(flows, flows->part_links[i]);
    for (uint32_t n_growing = flows->n_part_flows; n_growing > 0;) {
        double share = INFINITY;
        for (uint32_t i = 0; i < flows->n_part_links; i++) {
            const struct link *link = &flows->links[flows->part_links[i]];
            if (link->n_members > 0)
                share = fmin(share, link->left / link->n_members);
        }
        for (uint32_t i = 0; i < flows->n_part_links; i++) {
            const struct link *link = &flows->links[flows->part_links[i]];
            if (link->n_members > 0 && link->left <= share * link->n_members * (1 + SAME_PART))
                n_growing -= fix_flows_of(flows, link, share);
        }
    }
    for (uint32_t i = 0; i < flows->n_part_flows; i++) {
        struct flow *flow = &flows->flows[flows->part_flows[i]];
        flow->event_ns = flows->now_ns + (flow->n_bytes > 0 ? flow->n_bytes / flow->rate : 0);
        sift(flows, flow->place);
    }
}

void gyre_flows_advance(struct gyre_flows *flows,
                        void (*on_end)(void *context, uint32_t flow, double at_ns), void *context)
{
    flows->now_ns = fmax(flows->now_ns, gyre_flows_next_ns(flows));
    flows->n_visits++;
    flows->n_part_links = 0;
    while (gyre_flows_next_ns(flows) <= flows->now_ns + SAME_NS) {
        const uint32_t number = flows->heap[0];
        flows->heap[0] = flows->heap[--flows->n_heap];
        if (flows->n_heap > 0)
            sift(flows, 0);
        struct flow *flow = &flows->flows[number];
        if (flow->state == WAITS) {
            flow->state = RUNS;
            flow->updated_ns = flows->now_ns;
            flow->event_ns = INFINITY; /* until its rate is known */
            enter(flows, number);
            flows->heap[flows->n_heap] = number;
            sift(flows, flows->n_heap++);
        } else {
            flow->state = IDLE;
            leave(flows, number);
            on_end(context, number, flows->now_ns);
        }
    }
    if (flows->n_part_links > 0)
        fill(flows);
}
