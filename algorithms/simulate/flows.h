/* SPDX-License-Identifier: Apache-2.0
 *
 * Flows that share links. The rates are max-min fair: no flow can get more without taking from a
 * flow that has as much or less. They are found by progressive filling (Bertsekas and Gallager,
 * "Data Networks", section 6.5.2): all flows grow alike until a link is full, the flows over that
 * link keep their rate, and the others go on growing.
 */
#ifndef GYRE_ALGORITHMS_SIMULATE_FLOWS_H
#define GYRE_ALGORITHMS_SIMULATE_FLOWS_H

#include "algorithms/simulate/fabric.h"

struct gyre_flows;

/** gyre_flows_open - @bytes_per_ns: by link; must outlive the flows. @routes: by flow, likewise;
 * its links have rates above 0, and a route without links belongs to a flow that never starts.
 * Errors: OUT_OF_MEMORY. */
gyre_status gyre_flows_open(const double *bytes_per_ns, uint32_t n_links,
                            const struct gyre_fabric_route *routes, uint32_t n_flows,
                            struct gyre_flows **flows_out);
void gyre_flows_close(struct gyre_flows *flows);

/** gyre_flows_start - not before the last event. @n_bytes: of each member. @n_members: the flow
 * stands for so many equal ones. */
void gyre_flows_start(struct gyre_flows *flows, uint32_t flow, double at_ns, double n_bytes,
                      double n_members);

/** gyre_flows_next_ns - INFINITY = no flow. */
double gyre_flows_next_ns(const struct gyre_flows *flows);

/** gyre_flows_advance - go to the next event. @on_end: called for each flow that ends there; it may
 * start flows. */
void gyre_flows_advance(struct gyre_flows *flows,
                        void (*on_end)(void *context, uint32_t flow, double at_ns), void *context);

/** gyre_flows_busy_ns - how long a link at its full rate needs for all bytes that were started. */
double gyre_flows_busy_ns(const struct gyre_flows *flows, uint32_t link);

#endif
