/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside of doors: bootstrap_door.c opens them and knocks, bootstrap_door_serve.c is the side that
 * answers.
 */
#ifndef GYRE_BOOTSTRAP_DOOR_H
#define GYRE_BOOTSTRAP_DOOR_H

#include "bootstrap/bootstrap_wire.h"

#define GYRE_DOOR_PROOF_NS  2000000000ULL /* a rank proves itself in milliseconds */
#define GYRE_DOOR_ANSWER_NS 5000000000ULL

struct gyre_door {
    struct gyre_sock_listeners listeners;
};

/* Who knocks. Exchanged: fixed layout. */
struct gyre_door_claim {
    int32_t rank;
    int32_t n_members;
    uint64_t members; /* hash of the list: only equal lists meet */
};

/* Exchanged likewise. */
struct gyre_door_verdict {
    uint32_t status;
    char text[GYRE_TEXT_MAX_BYTES];
    gyre_unique_id id;
};

/** gyre_door_claim_of - this rank's own. */
struct gyre_door_claim gyre_door_claim_of(const struct gyre_regroup *regroup);

/** gyre_door_deadline - when the lowest member stops waiting. */
uint64_t gyre_door_deadline(const struct gyre_regroup *regroup);

#endif
