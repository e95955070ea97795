/* SPDX-License-Identifier: Apache-2.0
 *
 * The unique id of a run's communicator.
 */
#ifndef GYRE_BENCH_RENDEZVOUS_H
#define GYRE_BENCH_RENDEZVOUS_H

#include "bench/launch/launcher.h"

/** bench_rendezvous - each process checks its environment, @config and its device, and process 0
 * makes the unique id. Collective over the processes. @n_local: ranks of each process. Errors,
 * which name the rank and the cause: that of this process, else REMOTE. */
gyre_status bench_rendezvous(struct bench_launcher *launcher, int n_local,
                             const gyre_config *config, gyre_unique_id *id_out);

#endif
