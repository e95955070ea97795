/* SPDX-License-Identifier: Apache-2.0
 *
 * The geometry of a communicator's FIFOs: how many FIFOs a pair of ranks has, and how many slots of
 * which size a FIFO has.
 */
#ifndef GYRE_LINKS_FIFO_SPEC_H
#define GYRE_LINKS_FIFO_SPEC_H

#include "algorithms/algorithm.h"
#include "core/gyre.h"
#include "core/foundation/model/connector.h"

#define GYRE_FIFO_BUDGET_BYTES (64ULL << 20)
/* For GPUs that proxies serve: a FIFO through a NIC has slots at both ends, and many FIFOs must be
 * in flight to fill eight NICs. */
#define GYRE_FIFO_BUDGET_ACROSS_BYTES (256ULL << 20)

/** gyre_tuner_fifo_spec - compute the FIFOs of a communicator on one host. The slots of a rank fit
 * a budget of GYRE_FIFO_BUDGET_BYTES (GYRE_FIFO_BUDGET_ACROSS_BYTES if proxies serve GPUs). Pure.
 * @buffer_bytes: GYRE_BUFFSIZE; 0 = unset. @max_channels: the most channels that a call may use;
 *   UINT32_MAX = any number. */
struct gyre_fifo_spec gyre_tuner_fifo_spec(gyre_device_kind kind, uint32_t n_ranks, bool is_proxied,
                                           uint64_t buffer_bytes, uint32_t max_channels);

/** gyre_tuner_fifo_spec_across - compute the FIFOs of a communicator on several hosts, which
 * proxies serve. Near pairs of ranks get most of the budget, because large calls use them. Pure.
 * @peers: the number of peers of each kind. @is_proxied_inside: proxies serve pairs of ranks on one
 *   host, too. @by_rdma: hosts are connected by RDMA, not by TCP. */
struct gyre_fifo_spec gyre_tuner_fifo_spec_across(gyre_device_kind kind,
                                                  const struct gyre_peer_counts *peers,
                                                  bool is_proxied_inside, bool by_rdma,
                                                  uint64_t buffer_bytes, uint32_t max_channels);

/** gyre_net_line_bytes - the memory of one slot of LL on connections that a proxy serves. All of
 * them take a sixteenth of GYRE_FIFO_BUDGET_BYTES at most, on GPUs an eighth of
 * GYRE_FIFO_BUDGET_ACROSS_BYTES, in addition to the other slots. 0: too short to be of use. Pure.
 * @n_near, @n_far: the number of peers that a proxy serves, by the size of their FIFOs. */
uint32_t gyre_net_line_bytes(gyre_device_kind kind, const struct gyre_fifo_spec *spec,
                             uint32_t n_near, uint32_t n_far);

/** gyre_fifo_spec_add_net_lines - add slots of LL on connections that a proxy serves to the FIFOs
 * of a communicator on several hosts. All kernels of a call go by one line protocol, so nothing is
 * added if ranks that share a host have no slots of LL. Pure. */
void gyre_fifo_spec_add_net_lines(struct gyre_fifo_spec *spec, gyre_device_kind kind,
                                  const struct gyre_peer_counts *peers, bool is_proxied_inside);

#endif
