/* SPDX-License-Identifier: Apache-2.0
 *
 * Before the ranks of several processes meet: may they?
 */
#ifndef GYRE_BENCH_RENDEZVOUS_H
#define GYRE_BENCH_RENDEZVOUS_H

#include "bench/launch/launcher.h"

/** bench_rendezvous - collective over the processes: each checks its environment, @config and its
 * device, all hear how it went, and process 0 names a rendezvous.
 * @n_local: ranks of each process.
 * Errors: the own failure if any, else REMOTE; both name the rank and the cause. */
gyre_status bench_rendezvous(struct bench_launcher *launcher, int n_local,
                             const gyre_config *config, gyre_unique_id *id_out);

#endif
