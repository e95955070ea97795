/* SPDX-License-Identifier: Apache-2.0
 *
 * How many FIFOs a pair of ranks has, and how many slots of which size a FIFO has. Pure functions
 * of agreed facts, so all ranks compute the same.
 */
#ifndef GYRE_LINKS_FIFO_SPEC_H
#define GYRE_LINKS_FIFO_SPEC_H

#include "algorithms/algorithm.h"
#include "core/gyre.h"
#include "core/foundation/model/connector.h"

#define GYRE_FIFO_BUDGET_BYTES (64ULL << 20)
/* GPUs behind proxies: slots at both ends, and many FIFOs in flight to fill eight NICs. */
#define GYRE_FIFO_BUDGET_ACROSS_BYTES (256ULL << 20)

/** On one host, within the budget of a rank. @buffer_bytes: GYRE_BUFFSIZE; 0 = unset.
 * @max_channels: of a call; UINT32_MAX = any number. */
struct gyre_fifo_spec gyre_tuner_fifo_spec(gyre_device_kind kind, uint32_t n_ranks, bool is_proxied,
                                           uint64_t buffer_bytes, uint32_t max_channels);

/** On several hosts. Large calls use near pairs, so these get most of the budget.
 * @is_proxied_inside: proxies also serve pairs on one host. @by_rdma: between hosts; else TCP. */
struct gyre_fifo_spec gyre_tuner_fifo_spec_across(gyre_device_kind kind,
                                                  const struct gyre_peer_counts *peers,
                                                  bool is_proxied_inside, bool by_rdma,
                                                  uint64_t buffer_bytes, uint32_t max_channels);

/** Of a slot of LL: all take a sixteenth of GYRE_FIFO_BUDGET_BYTES at most, on GPUs an eighth of
 * GYRE_FIFO_BUDGET_ACROSS_BYTES. 0: too short to be of use. @n_near, @n_far: proxied peers. */
uint32_t gyre_net_line_bytes(gyre_device_kind kind, const struct gyre_fifo_spec *spec,
                             uint32_t n_near, uint32_t n_far);

/** A call's kernels go by one line protocol, so nothing is added if ranks that share a host have no
 * slots of LL. */
void gyre_fifo_spec_add_net_lines(struct gyre_fifo_spec *spec, gyre_device_kind kind,
                                  const struct gyre_peer_counts *peers, bool is_proxied_inside);

#endif
