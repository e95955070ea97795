/* SPDX-License-Identifier: Apache-2.0
 *
 * Send and receive: every rank sends to the next rank and receives from the previous one. In
 * place, the input would be overwritten while it is sent, so only the time of that half has a
 * meaning.
 */
#include "bench/driver/bench.h"

int main(int argc, char **argv)
{
    static const struct bench_kind kind = {
        .name = "sendrecv",
        .coll = GYRE_COLL_SEND_RECV,
        .is_in_place_checkable = false,
    };
    return bench_main(argc, argv, &kind);
}
