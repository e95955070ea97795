/* SPDX-License-Identifier: Apache-2.0
 *
 * How processes that know one address meet: rank 0 listens there, and every other rank keeps one
 * connection to it. A process of another job is refused and told why. Like torchrun's own store,
 * this trusts the network.
 */
#ifndef GYRE_BASE_MEET_H
#define GYRE_BASE_MEET_H

#include "core/foundation/base/fault.h"
#include "core/foundation/base/param.h"

struct gyre_meet_place {
    int rank;
    int n_ranks;
    uint32_t number;     /* of the meeting, the same on all ranks: a rank may be ahead of others */
    const char *source;  /* the variable that names the address, for messages */
    const char *address; /* a host, or "@" and a name on this host */
    int port;
    const char *job; /* "NAME=value NAME=value": ranks of one job name no value that differs */
    uint64_t timeout_ns;
    const struct gyre_params *params; /* SOCKET_IFNAME; NULL = rank 0 listens on all addresses */
    const struct gyre_fault *fault;   /* raised: the waiting ends; NULL = never */
};

struct gyre_meet {
    int rank;
    int n_ranks;
    int n_fds; /* on rank 0: n_ranks, of which entry 0 is unused; else 1 */
    int *fds;
};

/** gyre_meet_open - wait until all ranks have come.
 * Errors: INVALID_ARGUMENT, INVALID_USAGE (another job or program listens there; the ranks' n_ranks
 * differ, told to both; a rank number twice), TIMEOUT, ABORTED, SYSTEM. */
gyre_status gyre_meet_open(const struct gyre_meet_place *place, struct gyre_meet *meet_out);
void gyre_meet_close(struct gyre_meet *meet);

/** gyre_meet_all_gather - gather n_bytes from each rank; also a barrier. @all_out: n_ranks *
 * n_bytes, by rank. Errors: REMOTE, TIMEOUT, SYSTEM. */
gyre_status gyre_meet_all_gather(struct gyre_meet *meet, const void *mine, size_t n_bytes,
                                 void *all_out, uint64_t deadline_ns);

#endif
