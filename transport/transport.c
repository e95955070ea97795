/* SPDX-License-Identifier: Apache-2.0
 *
 * The transports there are, best first: a pair of ranks uses the first that both allow. And what a
 * wait during set-up looks at.
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
