/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two sides of a regroup share. bootstrap_regroup.c opens regroup listeners and has the
 * side that joins; bootstrap_regroup_serve.c is the side of the lowest member.
 */
#ifndef GYRE_BOOTSTRAP_REGROUP_H
#define GYRE_BOOTSTRAP_REGROUP_H

#include "bootstrap/bootstrap_wire.h"

#define GYRE_REGROUP_PROOF_NS  2000000000ULL /* a rank proves itself in milliseconds */
#define GYRE_REGROUP_ANSWER_NS 5000000000ULL

struct gyre_regroup_listener {
    struct gyre_sock_listeners listeners;
};

/* A joining rank's description of itself. It is sent over the network, so its layout is fixed. */
struct gyre_regroup_claim {
    int32_t rank;
    int32_t n_members;
    uint64_t members; /* hash of the list: only ranks with equal lists regroup */
    uint32_t failure; /* not SUCCESS: the rank cannot take part, for the cause in `text` */
    char text[GYRE_TEXT_MAX_BYTES];
};

/* The lowest member's answer. Sent over the network: fixed layout. */
struct gyre_regroup_verdict {
    uint32_t status;
    char text[GYRE_TEXT_MAX_BYTES];
    gyre_unique_id id;
};

/** gyre_regroup_claim_of - what this rank says of itself. */
struct gyre_regroup_claim gyre_regroup_claim_of(const struct gyre_regroup *regroup);

/** gyre_regroup_deadline - when the lowest member stops waiting. */
uint64_t gyre_regroup_deadline(const struct gyre_regroup *regroup);

#endif
