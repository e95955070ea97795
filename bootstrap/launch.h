/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_BOOTSTRAP_LAUNCH_H
#define GYRE_BOOTSTRAP_LAUNCH_H

#include "core/foundation/base/status.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/param.h"

/** Pure. @environment: "NAME=value", NULL at the end. @launch_out: without a launcher name is ""
 * and n_ranks 1. Errors, naming variables, values and remedy: INVALID_ARGUMENT (no number, or out
 * of range), INVALID_USAGE (launchers disagree, or one is unknown or gives no size). */
gyre_status gyre_launch_find(char *const *environment, gyre_launch *launch_out);

/** Does a PMIx server of this launch know the process? Then MPI finds the others. Pure. */
bool gyre_launch_has_pmix(char *const *environment, const gyre_launch *launch);

/* Rank 0 listens, and every other rank keeps one connection to it. Another job's process is refused
 * and told why. Like torchrun's store, this trusts the network. */

struct gyre_meet_place {
    int rank;
    int n_ranks;
    uint32_t number;     /* the same on all ranks */
    const char *source;  /* of the address: a variable */
    const char *address; /* a host, or "@" and a local name */
    int port;
    const char *job; /* "NAME=value NAME=value", the same on all ranks of a job */
    uint64_t timeout_ns;
    const struct gyre_params *params; /* SOCKET_IFNAME; NULL = listen on all addresses */
    const struct gyre_fault *fault;   /* NULL = never raised */
};

struct gyre_meet {
    int rank;
    int n_ranks;
    int n_fds; /* rank 0: n_ranks, without entry 0; else 1 */
    int *fds;
};

/** Waits for all ranks. Errors: INVALID_ARGUMENT, INVALID_USAGE (another job or program listens;
 * n_ranks differ; a rank twice), TIMEOUT, ABORTED, SYSTEM. */
gyre_status gyre_meet_open(const struct gyre_meet_place *place, struct gyre_meet *meet_out);
void gyre_meet_close(struct gyre_meet *meet);

/** Also a barrier. @all_out: by rank. Errors: REMOTE, TIMEOUT, SYSTEM. */
gyre_status gyre_meet_all_gather(struct gyre_meet *meet, const void *mine, size_t n_bytes,
                                 void *all_out, uint64_t deadline_ns);

#endif
