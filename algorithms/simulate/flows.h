/* SPDX-License-Identifier: Apache-2.0
 *
 * Max-min fair rates by progressive filling (Bertsekas and Gallager, "Data Networks", section
 * 6.5.2): all flows grow alike until a link is full, its flows keep their rate, and the others go
 * on.
 */
#ifndef GYRE_ALGORITHMS_SIMULATE_FLOWS_H
#define GYRE_ALGORITHMS_SIMULATE_FLOWS_H

#include "algorithms/simulate/fabric.h"

struct gyre_flows;

/** @bytes_per_ns: by link, above 0 in routes; @routes: by flow, without links for a flow that never
 * starts; both must outlive the flows. Errors: OUT_OF_MEMORY. */
gyre_status gyre_flows_open(const double *bytes_per_ns, uint32_t n_links,
                            const struct gyre_fabric_route *routes, uint32_t n_flows,
                            struct gyre_flows **flows_out);
void gyre_flows_close(struct gyre_flows *flows);

/** Not before the last event. @n_bytes: of each member. @n_members: equal flows for which this one
 * stands. */
void gyre_flows_start(struct gyre_flows *flows, uint32_t flow, double at_ns, double n_bytes,
                      double n_members);

/** INFINITY = no flow. */
double gyre_flows_next_ns(const struct gyre_flows *flows);

/** Goes to the next event. @on_end: for each flow that ends there; may start flows. */
void gyre_flows_advance(struct gyre_flows *flows,
                        void (*on_end)(void *context, uint32_t flow, double at_ns), void *context);

/** How long the link at its full rate needs for all bytes that were started. */
double gyre_flows_busy_ns(const struct gyre_flows *flows, uint32_t link);

#endif
