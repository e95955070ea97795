/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes windows and gives them back (core/engine/plan/call.h).
 */
#ifndef GYRE_COMM_WINDOW_H
#define GYRE_COMM_WINDOW_H

struct gyre_comm;

/** gyre_windows_fini - give back the windows that are left. The executor is idle or aborted. */
void gyre_windows_fini(struct gyre_comm *comm);

#endif
