/* SPDX-License-Identifier: Apache-2.0
 *
 * topo --json: the nodes and links of a topology, and the paths between GPUs and network ports.
 */
#ifndef GYRE_BENCH_TOPO_JSON_H
#define GYRE_BENCH_TOPO_JSON_H

#include "core/foundation/topo/topo.h"

/** bench_topo_name - write a node's usual name: "GPU0", "mlx5_0:1", "eth0". Pure. */
void bench_topo_name(const struct gyre_topo *topo, int32_t index, char *text_out, size_t n_bytes);

/** bench_topo_is_end - is the node a GPU or a network port, between which paths are shown? Pure. */
bool bench_topo_is_end(const struct gyre_topo *topo, int32_t index);

/** bench_topo_write_json - write the file.
 * Errors: UNSUPPORTED if the build has no json-c; OUT_OF_MEMORY; as gyre_file_replace(). */
gyre_status bench_topo_write_json(const struct gyre_topo *topo, const char *path);

#endif
