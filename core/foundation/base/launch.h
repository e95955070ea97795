/* SPDX-License-Identifier: Apache-2.0
 *
 * Which launcher started this process, and what it says: one table of launchers (launch.c), read by
 * the benches, by gyre_get_launch() and so by the Python package.
 */
#ifndef GYRE_BASE_LAUNCH_H
#define GYRE_BASE_LAUNCH_H

#include "core/foundation/base/status.h"

/** gyre_launch_find - the decision. Pure.
 * @environment: a list of "NAME=value" that ends with NULL.
 * @launch_out: name is "" if no launcher's variables are there; n_ranks is 1 then.
 * Errors: INVALID_ARGUMENT (a value is no number or out of range), INVALID_USAGE (launchers
 * disagree, a launcher does not say how many ranks there are, or it is none of the table). Each
 * names the variables with their values, and the remedy. */
gyre_status gyre_launch_find(char *const *environment, gyre_launch *launch_out);

/** gyre_launch_has_pmix - does a PMIx server of this launch know the process, so that MPI finds the
 * other processes? Pure. */
bool gyre_launch_has_pmix(char *const *environment, const gyre_launch *launch);

#endif
