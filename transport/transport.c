/* SPDX-License-Identifier: Apache-2.0
 *
 * The transports there are, best first: a pair of ranks uses the first that both allow.
 */
#include "transport/transport.h"

const struct gyre_transport_ops *const gyre_transports[] = {
    &gyre_transport_p2p, &gyre_transport_shm, &gyre_transport_ib, &gyre_transport_socket, NULL,
};
