/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of transports, the preferred one first, and the check that all waits of set-up make.
 */
#include "transport/transport.h"

const struct gyre_transport_ops *const gyre_transports[] = {
    &gyre_transport_p2p, &gyre_transport_shm, &gyre_transport_ib, &gyre_transport_socket, NULL,
};

gyre_status gyre_transport_check(const struct gyre_transport_config *config)
{
    GYRE_TRY(gyre_fault_status(config->fault));
    return config->check_ranks != NULL ? config->check_ranks(config->check_context) : GYRE_SUCCESS;
}

void gyre_transport_no_wire(struct gyre_transport *transport, struct gyre_wire *wire_out)
{
    (void)transport;
    *wire_out = (struct gyre_wire){.round_trip_ns = 0};
}

bool gyre_transport_no_lines(const struct gyre_transport *transport)
{
    (void)transport;
    return false;
}
