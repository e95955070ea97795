/* SPDX-License-Identifier: Apache-2.0
 *
 * The unique id of a run's communicator.
 */
#ifndef GYRE_BENCH_RENDEZVOUS_H
#define GYRE_BENCH_RENDEZVOUS_H

#include "bench/launch/launcher.h"

/** Processes check environment, @config and device, then process 0 makes the id. Collective over
 * processes. @n_local: ranks a process. Errors name rank and cause: this process's, else REMOTE. */
gyre_status bench_rendezvous(struct bench_launcher *launcher, int n_local,
                             const gyre_config *config, gyre_unique_id *id_out);

#endif
