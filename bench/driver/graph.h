/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that are captured once and then replayed. Without CUDA every function returns UNSUPPORTED.
 */
#ifndef GYRE_BENCH_GRAPH_H
#define GYRE_BENCH_GRAPH_H

#include "core/gyre.h"

struct bench_graph;

/** bench_graph_begin - until bench_graph_end() the stream records calls. Run the calls once before:
 * loading and allocating cannot be captured. */
gyre_status bench_graph_begin(gyre_stream stream);

/** bench_graph_end - call it after a failed call too: the stream cannot be used before. */
gyre_status bench_graph_end(gyre_stream stream, struct bench_graph **graph_out);

gyre_status bench_graph_launch(struct bench_graph *graph, gyre_stream stream);

/** bench_graph_close - the launches must be done. NULL does nothing. */
void bench_graph_close(struct bench_graph *graph);

#endif
