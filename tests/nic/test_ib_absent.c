/* SPDX-License-Identifier: Apache-2.0
 *
 * What a build without verbs has in place of RDMA, here under another name.
 */
#define gyre_transport_ib       absent_transport
#define gyre_transport_ib_probe absent_probe
#define gyre_ib_trial_open      absent_trial_open
#define gyre_ib_trial_close     absent_trial_close
#define gyre_ib_trial_n_ports   absent_trial_n_ports
#define gyre_ib_trial_port      absent_trial_port
#define gyre_ib_trial_begin     absent_trial_begin
#define gyre_ib_trial_connect   absent_trial_connect
#define gyre_ib_trial_small     absent_trial_small
#define gyre_ib_trial_large     absent_trial_large
#define gyre_ib_trial_finish    absent_trial_finish
#include "tests/support/check.h"
#include "transport/ib/absent/ib_absent.c"

TEST_CASE("without verbs no rank can use RDMA, and all say why")
{
    struct gyre_peer_info mine = {.ib_usable = 1};
    const struct gyre_peer_info peer = {.ib_usable = 1}; /* its build has verbs */
    struct gyre_ib_trial *trial = NULL;
    char why[160] = "";
    absent_probe(NULL, &mine);
    CHECK(mine.ib_usable == 0);
    CHECK_HAS(mine.ib_reason, "built without RDMA");
    CHECK(!absent_transport.reachable(NULL, &mine, &peer, why, sizeof(why)));
    CHECK_HAS(why, "built without RDMA");
    CHECK_FAILS(absent_transport.open(NULL, NULL, NULL, NULL), GYRE_ERROR_UNSUPPORTED, why);
    CHECK_FAILS(absent_trial_open(NULL, &trial), GYRE_ERROR_UNSUPPORTED, why);
    CHECK(absent_trial_n_ports(NULL) == 0);
}
