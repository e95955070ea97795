/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA graphs: calls that are captured once and then replayed. In a build without CUDA every
 * function returns UNSUPPORTED.
 */
#ifndef GYRE_BENCH_GRAPH_H
#define GYRE_BENCH_GRAPH_H

#include "core/gyre.h"

struct bench_graph;

/** bench_graph_begin - start to capture the stream. Until bench_graph_end() the stream records
 * calls instead of running them. Run the calls once before: loading and allocating, which the first
 * call may do, cannot be captured. */
gyre_status bench_graph_begin(gyre_stream stream);

/** bench_graph_end - stop the capture and make a graph of it. Call it after a failed call too,
 * because the stream cannot be used before the capture has ended. */
gyre_status bench_graph_end(gyre_stream stream, struct bench_graph **graph_out);

/** bench_graph_launch - enqueue everything that was captured, once. */
gyre_status bench_graph_launch(struct bench_graph *graph, gyre_stream stream);

/** bench_graph_close - free the graph, whose launches must be done. NULL does nothing. */
void bench_graph_close(struct bench_graph *graph);

#endif
