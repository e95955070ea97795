/* SPDX-License-Identifier: Apache-2.0
 *
 * docs/fabric.md has the text form.
 */
#ifndef GYRE_ALGORITHMS_SIMULATE_FABRIC_H
#define GYRE_ALGORITHMS_SIMULATE_FABRIC_H

#include "core/foundation/model/schedule.h"

#define GYRE_FABRIC_MAX_RANKS    GYRE_MAX_RANKS
#define GYRE_FABRIC_MAX_NICS     64
#define GYRE_FABRIC_MAX_SWITCHES 1024
#define GYRE_FABRIC_MAX_UPLINKS  65536
#define GYRE_FABRIC_MAX_TEXT     131072
#define GYRE_FABRIC_NAME_BYTES   64
#define GYRE_FABRIC_MAX_DIMS     6
#define GYRE_FABRIC_NO_LINK      UINT32_MAX

struct gyre_fabric_host {
    uint32_t first_rank;
    uint32_t n_gpus;
    uint32_t first_nic;
    uint32_t n_nics;
};

enum gyre_fabric_kind {
    GYRE_FABRIC_LEAVES,
    GYRE_FABRIC_TORUS,    /* a leaf a host, ranks along the last dimension first */
    GYRE_FABRIC_DRAGONFLY /* a leaf a group, each linked to each */
};

/* Links: from and to each NIC's host. Then by kind: up and down for each pair of a leaf and a
 * spine; forth and back of each host and dimension; from each group to each. */
struct gyre_fabric {
    enum gyre_fabric_kind kind;
    uint32_t n_hosts;
    uint32_t n_ranks;
    uint32_t n_nics;
    uint32_t n_leaves;
    uint32_t n_spines;
    uint32_t n_dims;
    uint32_t dims[GYRE_FABRIC_MAX_DIMS];
    uint32_t n_links;
    struct gyre_fabric_host *hosts;
    uint32_t *leaf_of_nic;
    uint32_t *nic_of_rank;
    uint32_t *host_of_rank;
    double *bytes_per_ns; /* by link; 0 = dead */
    double nic_latency_ns;
    double uplink_latency_ns;
    bool routes_by_rail; /* else by a hash */
};

struct gyre_fabric_route {
    uint32_t n_links;
    uint32_t *links; /* the caller's, room for gyre_fabric_longest_route() */
    double latency_ns;
};

/** @text: untrusted. Errors: INVALID_ARGUMENT with the line and the reason, OUT_OF_MEMORY. */
gyre_status gyre_fabric_from_text(const char *text, struct gyre_fabric **fabric_out);

/** Does a line of the text form begin with the word? */
bool gyre_fabric_has_word(const char *word);

void gyre_fabric_free(struct gyre_fabric *fabric);

/* Steps of gyre_fabric_from_text(). */
uint32_t gyre_fabric_n_uplinks(const struct gyre_fabric *fabric);

/** @rate: of each uplink; 0 = by what the NICs of a leaf or group carry, over
 * @oversubscription. Errors: OUT_OF_MEMORY. */
gyre_status gyre_fabric_set_uplinks(struct gyre_fabric *fabric, double rate,
                                    double oversubscription);

/** Neighbours share a NIC if there are too few. A dead NIC's ranks take the host's next one that
 * works. Errors: INVALID_ARGUMENT (all are dead). */
gyre_status gyre_fabric_assign_nics(struct gyre_fabric *fabric);

/** n_nics: working NICs of the host that has the fewest. The weak host by its NICs' rates. */
void gyre_fabric_group(const struct gyre_fabric *fabric, struct gyre_grouping *grouping_out);

/** The slowest host's NICs together, in each direction. */
double gyre_fabric_host_rate(const struct gyre_fabric *fabric);

uint32_t gyre_fabric_longest_route(const struct gyre_fabric *fabric);

/** Always the same route, which avoids dead links; in a torus the shortest one, dimension after
 * dimension. @route_out: with `links` set. Errors: UNSUPPORTED, naming both NICs and what is dead
 * or missing between them. */
gyre_status gyre_fabric_route(const struct gyre_fabric *fabric, uint32_t from_rank,
                              uint32_t to_rank, struct gyre_fabric_route *route_out);

/** The NICs have the same leaf. */
void gyre_fabric_route_in_leaf(const struct gyre_fabric *fabric, uint32_t from_rank,
                               uint32_t to_rank, struct gyre_fabric_route *route_out);

/** All hosts have as many GPUs and NICs, and the same leaves, so renumbering them changes no route
 * within a leaf. */
bool gyre_fabric_is_uniform(const struct gyre_fabric *fabric);

bool gyre_fabric_is_in_leaf(const struct gyre_fabric *fabric, uint32_t rank, uint32_t other);

/** Such as "leaf 0 to spine 1". */
void gyre_fabric_link_name(const struct gyre_fabric *fabric, uint32_t link, char *name_out);

/* @nic: among the NICs of all hosts. */
static inline uint32_t gyre_fabric_nic_link(uint32_t nic, bool is_out)
{
    return 2 * nic + (is_out ? 0 : 1);
}

static inline uint32_t gyre_fabric_uplink(const struct gyre_fabric *fabric, uint32_t leaf,
                                          uint32_t spine, bool is_up)
{
    return 2 * (fabric->n_nics + leaf * fabric->n_spines + spine) + (is_up ? 0 : 1);
}

#endif
