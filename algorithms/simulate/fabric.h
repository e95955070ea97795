/* SPDX-License-Identifier: Apache-2.0
 *
 * A fabric: hosts with GPUs and NICs, leaf switches, spine switches, and the links between them.
 * Every link has a rate and a latency, and some may be slow or dead. The simulator lets slots that
 * are on their way at the same time share these links (flows.h). docs/fabric.md has the text form.
 */
#ifndef GYRE_ALGORITHMS_SIMULATE_FABRIC_H
#define GYRE_ALGORITHMS_SIMULATE_FABRIC_H

#include "core/foundation/model/schedule.h"

#define GYRE_FABRIC_MAX_RANKS     GYRE_MAX_RANKS
#define GYRE_FABRIC_MAX_NICS      64 /* of one host */
#define GYRE_FABRIC_MAX_SWITCHES  1024
#define GYRE_FABRIC_MAX_UPLINKS   65536  /* leaves times spines */
#define GYRE_FABRIC_MAX_TEXT      131072 /* bytes of a file */
#define GYRE_FABRIC_NAME_BYTES    64
#define GYRE_FABRIC_ROUTE_N_LINKS 4
#define GYRE_FABRIC_NO_LINK       UINT32_MAX

struct gyre_fabric_host {
    uint32_t first_rank;
    uint32_t n_gpus; /* each is a rank */
    uint32_t first_nic;
    uint32_t n_nics;
};

/* Links are numbered: each NIC has one from its host and one to it, then each pair of a leaf and a
 * spine has one up and one down. */
struct gyre_fabric {
    uint32_t n_hosts;
    uint32_t n_ranks;
    uint32_t n_nics; /* of all hosts */
    uint32_t n_leaves;
    uint32_t n_spines;
    uint32_t n_links;
    struct gyre_fabric_host *hosts;
    uint32_t *leaf_of_nic;
    uint32_t *nic_of_rank; /* among the NICs of all hosts; never a dead one */
    uint32_t *host_of_rank;
    double *bytes_per_ns; /* by link; 0 = the link is dead */
    double nic_latency_ns;
    double uplink_latency_ns;
    bool routes_by_rail; /* the number of the NIC decides which spine is used; else a hash does */
};

/* The way from one rank to a rank of another host: up to the leaf and down again, or over a spine.
 */
struct gyre_fabric_route {
    uint32_t n_links;
    uint32_t links[GYRE_FABRIC_ROUTE_N_LINKS];
    double latency_ns; /* of all links together */
};

/** gyre_fabric_from_text - read a fabric. @text: untrusted.
 * Errors: INVALID_ARGUMENT with the line and the reason, OUT_OF_MEMORY. */
gyre_status gyre_fabric_from_text(const char *text, struct gyre_fabric **fabric_out);

void gyre_fabric_free(struct gyre_fabric *fabric);

/** gyre_fabric_group - the hosts as algorithms see them. n_nics is that of the host with the fewest
 * NICs that work. */
void gyre_fabric_group(const struct gyre_fabric *fabric, struct gyre_grouping *grouping_out);

/** gyre_fabric_host_rate - what the NICs of a host carry together in each direction, in bytes per
 * ns; of the host where that is least. */
double gyre_fabric_host_rate(const struct gyre_fabric *fabric);

/** gyre_fabric_route - the way from a rank to a rank of another host. It is always the same one.
 * Dead links are avoided. Errors: UNSUPPORTED, naming both ends and what is dead or missing between
 * them. */
gyre_status gyre_fabric_route(const struct gyre_fabric *fabric, uint32_t from_rank,
                              uint32_t to_rank, struct gyre_fabric_route *route_out);

/** gyre_fabric_route_in_leaf - the way from a rank to a rank whose NIC has the same leaf. */
void gyre_fabric_route_in_leaf(const struct gyre_fabric *fabric, uint32_t from_rank,
                               uint32_t to_rank, struct gyre_fabric_route *route_out);

/** gyre_fabric_is_uniform - do all hosts have the same number of GPUs and of NICs, all NICs the
 * same rate, and the NICs of all hosts the same leaves? Then renumbering the hosts changes no way
 * within a leaf. */
bool gyre_fabric_is_uniform(const struct gyre_fabric *fabric);

/** gyre_fabric_is_in_leaf - do the NICs of two ranks have the same leaf? */
bool gyre_fabric_is_in_leaf(const struct gyre_fabric *fabric, uint32_t rank, uint32_t other);

/** gyre_fabric_link_name - such as "leaf 0 to spine 1". @name_out: GYRE_FABRIC_NAME_BYTES. */
void gyre_fabric_link_name(const struct gyre_fabric *fabric, uint32_t link, char *name_out);

/* The numbers of links. A NIC is numbered among the NICs of all hosts. */
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
