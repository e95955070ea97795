/* SPDX-License-Identifier: Apache-2.0
 *
 * The last check before the ranks of several processes make their communicator, and the unique id
 * that they need for it.
 */
#ifndef GYRE_BENCH_RENDEZVOUS_H
#define GYRE_BENCH_RENDEZVOUS_H

#include "bench/launch/launcher.h"

/** bench_rendezvous - check that every process can make a communicator, and hand out the unique id.
 * Each process checks its environment, @config and its device, and tells all other processes the
 * result.
 * Process 0 makes the unique id. Collective over the processes.
 * @n_local: number of ranks of each process.
 * Errors: the failure of this process if it failed, else REMOTE; both name the rank and the
 * cause. */
gyre_status bench_rendezvous(struct bench_launcher *launcher, int n_local,
                             const gyre_config *config, gyre_unique_id *id_out);

#endif
