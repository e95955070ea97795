/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of ib_cm.c in a build with verbs headers and without those of rdma_cm. The
 * connection manager cannot be opened, so no lane is ever added.
 */
#include "transport/ib/ib_transport.h"

uint32_t gyre_ib_cm_port(const struct gyre_ib_cm *cm)
{
    (void)cm;
    return 0;
}

gyre_status gyre_ib_cm_open(struct gyre_ib_transport *ib, struct gyre_ib_cm **cm_out)
{
    (void)ib;
    (void)cm_out;
    return gyre_fail(GYRE_ERROR_UNSUPPORTED, "GYRE_IB_CONNECT=rdmacm: built without rdma_cm "
                                             "(librdmacm-dev was not there)");
}

void gyre_ib_cm_close(struct gyre_ib_cm *cm)
{
    (void)cm;
}

gyre_status gyre_ib_cm_add(struct gyre_ib_cm *cm, struct gyre_ib_lane *lane, uint32_t port,
                           const uint8_t *token)
{
    (void)cm;
    (void)lane;
    (void)port;
    (void)token;
    return GYRE_ERROR_INTERNAL;
}

gyre_status gyre_ib_cm_connect(struct gyre_ib_cm *cm, uint64_t deadline_ns)
{
    (void)cm;
    (void)deadline_ns;
    return GYRE_ERROR_INTERNAL;
}
