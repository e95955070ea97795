/* SPDX-License-Identifier: Apache-2.0
 *
 * The geometry of a communicator's FIFOs: how many a pair of ranks has, how deep, how large.
 */
#ifndef GYRE_LINKS_FIFO_SPEC_H
#define GYRE_LINKS_FIFO_SPEC_H

#include "algorithms/algorithm.h"
#include "core/gyre.h"
#include "core/model/connector.h"

#define GYRE_FIFO_BUDGET_BYTES (64ULL << 20)
/* GPUs on several hosts: to fill eight NICs takes many FIFOs in flight, and a FIFO through a NIC
 * has slots at both ends. */
#define GYRE_FIFO_BUDGET_ACROSS_BYTES (256ULL << 20)

/** gyre_tuner_fifo_spec - how FIFOs are dimensioned for a communicator on one host: within the
 * budget of GYRE_FIFO_BUDGET_BYTES a rank (GYRE_FIFO_BUDGET_ACROSS_BYTES where proxies serve GPUs),
 * of which rings get the larger part where they gain from large slots. @buffer_bytes:
 * GYRE_BUFFSIZE, 0 = unset. @max_channels: that calls may use, UINT32_MAX = any number. Pure. */
struct gyre_fifo_spec gyre_tuner_fifo_spec(gyre_device_kind kind, uint32_t n_ranks, bool is_proxied,
                                           uint64_t buffer_bytes, uint32_t max_channels);

/** gyre_tuner_fifo_spec_across - the same for a communicator on several hosts, which proxies serve.
 * Near pairs of ranks, which large calls use, get most of the budget, and far pairs the rest.
 * @peers: how many of each kind a rank has. @is_proxied_inside: proxies serve pairs of one host,
 * too. Pure. */
struct gyre_fifo_spec gyre_tuner_fifo_spec_across(gyre_device_kind kind,
                                                  const struct gyre_peer_counts *peers,
                                                  bool is_proxied_inside, uint64_t buffer_bytes,
                                                  uint32_t max_channels);

#endif
