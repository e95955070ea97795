/* SPDX-License-Identifier: Apache-2.0
 *
 * Which launcher started this process, and how processes that know one address meet.
 */
#ifndef GYRE_BOOTSTRAP_LAUNCH_H
#define GYRE_BOOTSTRAP_LAUNCH_H

#include "core/foundation/base/status.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/param.h"

/** Pure. @environment: "NAME=value", NULL at the end. @launch_out: name is "" and n_ranks 1 without
 * a launcher. Errors: INVALID_ARGUMENT (a value is no number or out of range), INVALID_USAGE
 * (launchers disagree, or one is unknown or does not say how many ranks there are). Each names the
 * variables with their values, and the remedy. */
gyre_status gyre_launch_find(char *const *environment, gyre_launch *launch_out);

/** Does a PMIx server of this launch know the process, so that MPI finds the others? Pure. */
bool gyre_launch_has_pmix(char *const *environment, const gyre_launch *launch);

/* ---- ranks meet ---------------------------------------------------------------------------------
 * Rank 0 listens, and every other rank keeps one connection to it. A process of another job is
 * refused and told why. Like torchrun's own store, this trusts the network. */

struct gyre_meet_place {
    int rank;
    int n_ranks;
    uint32_t number;     /* the same on all ranks */
    const char *source;  /* the variable that names the address */
    const char *address; /* a host, or "@" and a name on this host */
    int port;
    const char *job; /* "NAME=value NAME=value": no value differs between ranks of one job */
    uint64_t timeout_ns;
    const struct gyre_params *params; /* SOCKET_IFNAME; NULL = rank 0 listens on all addresses */
    const struct gyre_fault *fault;   /* raised: waits end; NULL = never */
};

struct gyre_meet {
    int rank;
    int n_ranks;
    int n_fds; /* on rank 0: n_ranks, of which entry 0 is unused; else 1 */
    int *fds;
};

/** Waits for all ranks. Errors: INVALID_ARGUMENT, INVALID_USAGE (another job or program listens
 * there; the ranks' n_ranks differ; a rank number twice), TIMEOUT, ABORTED, SYSTEM. */
gyre_status gyre_meet_open(const struct gyre_meet_place *place, struct gyre_meet *meet_out);
void gyre_meet_close(struct gyre_meet *meet);

/** Also a barrier. @all_out: by rank. Errors: REMOTE, TIMEOUT, SYSTEM. */
gyre_status gyre_meet_all_gather(struct gyre_meet *meet, const void *mine, size_t n_bytes,
                                 void *all_out, uint64_t deadline_ns);

#endif
