/* SPDX-License-Identifier: Apache-2.0
 *
 * Point to point. There are two ranks, and the root is the sender; a single rank copies. The plan
 * maps the two ranks to ranks of the communicator. Four ranks that swap data in pairs:
 *
 *   0 -> 1    in  ->  out        program of (0, 1), and at the same time of (1, 0)
 *   2 -> 3    in  ->  out        program of (2, 3), and at the same time of (3, 2)
 *
 * Cost (B bytes): one hop, B bytes over the link.
 */
#include "algorithms/algorithm.h"

static void emit(const struct gyre_shape *shape, int rank, struct gyre_builder *builder)
{
    const bool is_sender = rank == shape->root;
    const struct gyre_ref peer = gyre_peer(1 - rank, 0);
    const struct gyre_ref in = is_sender ? gyre_in(0) : peer;
    const struct gyre_ref out = is_sender ? peer : gyre_out(0);
    gyre_builder_step(builder, 0, &in, 1, &out, 1, 0);
}

static int n_chunks(const struct gyre_shape *shape)
{
    (void)shape;
    return 1;
}

const struct gyre_algorithm gyre_algorithm_sendrecv = {
    .name = "sendrecv",
    .summary = "one rank to another",
    .collectives = 1U << GYRE_COLL_SEND_RECV,
    .emit = emit,
    .n_chunks = n_chunks,
};
