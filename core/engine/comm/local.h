/* SPDX-License-Identifier: Apache-2.0
 *
 * What the benches may ask of communicators besides gyre.h.
 */
#ifndef GYRE_COMM_LOCAL_H
#define GYRE_COMM_LOCAL_H

#include "core/foundation/base/status.h"

/** gyre_comm_check_local - do what making a communicator does before the ranks meet, and undo it:
 * read the environment, check the configuration, load the tuning file, open the device. A rank that
 * fails here leaves the others waiting at the rendezvous, so programs with another way to tell
 * their ranks check first. Any thread. Errors: those of gyre_comm_init_rank that do not depend on
 * other ranks. */
gyre_status gyre_comm_check_local(const gyre_config *config);

struct gyre_plan_cache;

/** gyre_comm_plans - the plans of a communicator (core/engine/plan/plan.h), as long as it lives.
 * For the thread that makes its calls. */
struct gyre_plan_cache *gyre_comm_plans(gyre_comm *comm);

#endif
