/* SPDX-License-Identifier: Apache-2.0
 *
 * Built without verbs headers. The trial cannot be opened.
 */
#include "transport/ib/ib_trial.h"
#include "transport/slab.h"

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

const struct gyre_transport_ops gyre_transport_ib = {
    .name = "ib",
    .is_rdma = true,
    .is_proxied = true,
    .reachable = absent_reachable,
    .open = absent_open,
    .connect = gyre_slab_connect,
    .describe = gyre_slab_describe,
    .memory_bytes = gyre_slab_memory_bytes,
    .takes_lines = gyre_transport_no_lines,
    .measure = gyre_transport_no_wire,
    .take_state = gyre_transport_no_state,
    .wake = gyre_slab_wake,
    .help = gyre_slab_help,
    .close = gyre_slab_close,
};

gyre_status gyre_ib_trial_open(const struct gyre_params *params, struct gyre_ib_trial **trial_out)
{
    (void)params;
    (void)trial_out;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED, "built without RDMA (libibverbs-dev was not there)");
}

void gyre_ib_trial_close(struct gyre_ib_trial *trial)
{
    (void)trial;
}

int gyre_ib_trial_n_ports(const struct gyre_ib_trial *trial)
{
    (void)trial;
    return 0;
}

const struct gyre_ib_trial_port *gyre_ib_trial_port(const struct gyre_ib_trial *trial, int i)
{
    (void)trial;
    (void)i;
    return NULL;
}

static gyre_status refuse(void)
{
    return gyre_fail(GYRE_ERROR_UNSUPPORTED, "built without RDMA");
}

gyre_status gyre_ib_trial_begin(struct gyre_ib_trial *trial, int i,
                                struct gyre_ib_trial_end *end_out)
{
    (void)trial;
    (void)i;
    (void)end_out;
    return refuse();
}

gyre_status gyre_ib_trial_connect(struct gyre_ib_trial *trial,
                                  const struct gyre_ib_trial_peer *peer)
{
    (void)trial;
    (void)peer;
    return refuse();
}

gyre_status gyre_ib_trial_small(struct gyre_ib_trial *trial, double *latency_us_out)
{
    (void)trial;
    (void)latency_us_out;
    return refuse();
}

gyre_status gyre_ib_trial_large(struct gyre_ib_trial *trial, double *gbytes_per_s_out)
{
    (void)trial;
    (void)gbytes_per_s_out;
    return refuse();
}

void gyre_ib_trial_finish(struct gyre_ib_trial *trial)
{
    (void)trial;
}
