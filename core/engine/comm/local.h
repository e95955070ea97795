/* SPDX-License-Identifier: Apache-2.0
 *
 * What the benches may ask of communicators besides gyre.h.
 */
#ifndef GYRE_COMM_LOCAL_H
#define GYRE_COMM_LOCAL_H

#include "core/foundation/base/status.h"

/** Does and undoes what comes before the ranks meet: environment, configuration, tuning file and
 * device. A rank that fails later leaves the others waiting. Any thread. Errors: those of
 * gyre_comm_init_rank that do not depend on other ranks. */
gyre_status gyre_comm_check_local(const gyre_config *config);

struct gyre_plan_cache;

/** For the thread that makes the communicator's calls, as long as it lives. */
struct gyre_plan_cache *gyre_comm_plans(gyre_comm *comm);

#endif
