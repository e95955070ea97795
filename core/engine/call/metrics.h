/* SPDX-License-Identifier: Apache-2.0
 *
 * GYRE_METRICS_FILE: the calls of one rank, counted by collective and size, as a text file that
 * Prometheus reads. On the host each launch has a task before it and one behind it on its stream,
 * which take the time. On GPUs calls and bytes are counted, and no time is taken.
 */
#ifndef GYRE_CALL_METRICS_H
#define GYRE_CALL_METRICS_H

#include "core/engine/links/links.h"
#include "core/engine/plan/call.h"

struct gyre_item;
struct gyre_metrics;
struct gyre_metrics_span;

/** gyre_metrics_open - @metrics_out: NULL if GYRE_METRICS_FILE is unset. In the file's name %h is
 * the host, %p the process, %r the rank, %n the number of the communicator in its process and %c
 * its number in the job. Errors: OUT_OF_MEMORY, INVALID_ARGUMENT (the name is too long), SYSTEM (no
 * thread). */
gyre_status gyre_metrics_open(const struct gyre_member *member, const struct gyre_links *links,
                              struct gyre_metrics **metrics_out);

/** gyre_metrics_close - write the file a last time, wait up to two seconds for that, and give the
 * metrics up.
 * @metrics: or NULL. */
void gyre_metrics_close(struct gyre_metrics *metrics);

/** gyre_metrics_begin - calls are about to be launched together on the stream.
 * @metrics: or NULL. Returns NULL if no time is taken. */
struct gyre_metrics_span *gyre_metrics_begin(struct gyre_metrics *metrics,
                                             struct gyre_item *const *items, int n_items,
                                             gyre_stream stream);

/** gyre_metrics_end - the launch has been made, or has failed. @span: or NULL. */
void gyre_metrics_end(struct gyre_metrics_span *span, bool is_launched, gyre_stream stream);

#endif
