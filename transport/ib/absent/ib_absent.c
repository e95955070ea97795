/* SPDX-License-Identifier: Apache-2.0
 *
 * The ib transport of a build without verbs headers. It reaches no peer and reports the reason.
 */
#include "transport/transport.h"

#include <stdio.h>

static const char reason[] = "built without RDMA (libibverbs-dev was not there)";

void gyre_transport_ib_probe(const struct gyre_params *params, struct gyre_peer_info *info)
{
    (void)params;
    info->ib_usable = 0;
    snprintf(info->ib_reason, sizeof(info->ib_reason), "%s", reason);
}

static bool absent_reachable(const struct gyre_params *params, const struct gyre_peer_info *mine,
                             const struct gyre_peer_info *peer, char *why_out, size_t why_bytes)
{
    (void)params;
    (void)mine;
    (void)peer;
    snprintf(why_out, why_bytes, "%s", reason);
    return false;
}

static gyre_status absent_open(const struct gyre_transport_config *config,
                               struct gyre_transport **transport_out, void **blob_out,
                               size_t *blob_bytes_out)
{
    (void)config;
    (void)transport_out;
    (void)blob_out;
    (void)blob_bytes_out;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED, "ib: %s", reason);
}

static gyre_status absent_connect(struct gyre_transport *transport, const void *blobs,
                                  const size_t *offsets, uint64_t deadline_ns,
                                  struct gyre_connector *connectors)
{
    (void)transport;
    (void)blobs;
    (void)offsets;
    (void)deadline_ns;
    (void)connectors;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED, "ib: %s", reason);
}

static const char *absent_describe(const struct gyre_transport *transport, int peer)
{
    (void)transport;
    (void)peer;
    return "NET/IB (absent)";
}

static size_t absent_memory_bytes(const struct gyre_transport *transport)
{
    (void)transport;
    return 0;
}

/* wake and close: there is never a transport to act on. */
static void absent_nothing(struct gyre_transport *transport)
{
    (void)transport;
}

static bool absent_help(struct gyre_transport *transport, bool is_last)
{
    (void)transport;
    (void)is_last;
    return false;
}

const struct gyre_transport_ops gyre_transport_ib = {
    .name = "ib",
    .is_rdma = true,
    .is_proxied = true,
    .reachable = absent_reachable,
    .open = absent_open,
    .connect = absent_connect,
    .describe = absent_describe,
    .memory_bytes = absent_memory_bytes,
    .takes_lines = gyre_transport_no_lines,
    .measure = gyre_transport_no_wire,
    .wake = absent_nothing,
    .help = absent_help,
    .close = absent_nothing,
};
