/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls captured once and replayed. Without CUDA all functions return UNSUPPORTED.
 */
#ifndef GYRE_BENCH_GRAPH_H
#define GYRE_BENCH_GRAPH_H

#include "core/gyre.h"

struct bench_graph;

/** Captures the stream until bench_graph_end(). Calls must have run before, since loading and
 * allocating cannot be captured. */
gyre_status bench_graph_begin(gyre_stream stream);

/** Needed after a failed call too, before the stream can be used. */
gyre_status bench_graph_end(gyre_stream stream, struct bench_graph **graph_out);

gyre_status bench_graph_launch(struct bench_graph *graph, gyre_stream stream);

/** The launches must be done. NULL does nothing. */
void bench_graph_close(struct bench_graph *graph);

#endif
