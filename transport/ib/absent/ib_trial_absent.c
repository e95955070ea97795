/* SPDX-License-Identifier: Apache-2.0
 *
 * The trial of a build without verbs headers. It cannot be opened, so the other functions are never
 * called with a trial.
 */
#include "transport/ib/ib_trial.h"

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
