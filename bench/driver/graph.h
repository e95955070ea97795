/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA graphs: calls that are captured once and then replayed. In a build without CUDA every
 * function returns UNSUPPORTED.
 */
#ifndef GYRE_BENCH_GRAPH_H
#define GYRE_BENCH_GRAPH_H

#include "core/gyre.h"

struct bench_graph;

/** bench_graph_begin - until bench_graph_end() the stream records calls instead of running them.
 * Run the calls once before: loading and allocating, which the first call may do, cannot be
 * captured. */
gyre_status bench_graph_begin(gyre_stream stream);

/** bench_graph_end - make a graph of the capture. Call it after a failed call too: the stream
 * cannot be used before. */
gyre_status bench_graph_end(gyre_stream stream, struct bench_graph **graph_out);

gyre_status bench_graph_launch(struct bench_graph *graph, gyre_stream stream);

/** bench_graph_close - the launches must be done. NULL does nothing. */
void bench_graph_close(struct bench_graph *graph);

#endif
