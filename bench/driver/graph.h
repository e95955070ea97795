/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls captured once and replayed: CUDA graphs. Without CUDA every entry says UNSUPPORTED.
 */
#ifndef GYRE_BENCH_GRAPH_H
#define GYRE_BENCH_GRAPH_H

#include "core/gyre.h"

struct bench_graph;

/** bench_graph_begin - from here on the stream records instead of running. Warm up before: what is
 * loaded or allocated on first use cannot be captured. */
gyre_status bench_graph_begin(gyre_stream stream);

/** bench_graph_end - stop recording. Call it after a failed call too: the stream stays unusable
 * until then. */
gyre_status bench_graph_end(gyre_stream stream, struct bench_graph **graph_out);

/** bench_graph_launch - enqueue everything recorded, once. */
gyre_status bench_graph_launch(struct bench_graph *graph, gyre_stream stream);

/** bench_graph_close - the launches must be done. NULL does nothing. */
void bench_graph_close(struct bench_graph *graph);

#endif
