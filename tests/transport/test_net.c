/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/ranks.h"

enum { N = 2 };

static void sum_ranks(gyre_comm *comm, int rank)
{
    float value = (float)(rank + 1);
    CHECK_OK(gyre_all_reduce(&value, &value, 1, GYRE_FLOAT32, GYRE_SUM, comm, NULL));
    CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
    CHECK(value == 3.0F);
}

static void *use_parent_and_child(void *argument)
{
    gyre_comm *comm = argument;
    gyre_comm *child = NULL;
    int rank = 0;
    CHECK_OK(gyre_comm_rank(comm, &rank));
    sum_ranks(comm, rank);
    CHECK_OK(gyre_comm_split(comm, 0, rank, &child, NULL)); /* inherits the network */
    sum_ranks(child, rank);
    CHECK_OK(gyre_comm_destroy(child));
    CHECK_OK(gyre_comm_destroy(comm));
    return NULL;
}

static void check_net(const char *net, const char *expected)
{
    gyre_comm *comms[N];
    pthread_t threads[N];
    gyre_config config = test_host_config();
    config.net = net;
    if (expected != NULL) {
        CHECK_FAILS(gyre_comm_init_all(comms, N, NULL, &config), GYRE_ERROR_UNSUPPORTED, expected);
        return;
    }
    CHECK_OK(gyre_comm_init_all(comms, N, NULL, &config));
    for (int rank = 0; rank < N; rank++)
        pthread_create(&threads[rank], NULL, use_parent_and_child, comms[rank]);
    for (int rank = 0; rank < N; rank++)
        pthread_join(threads[rank], NULL);
}

TEST_CASE("a network leaves ranks of one host alone")
{
    setenv("GYRE_IB_DISABLE", "1", 1);
    check_net("IB", NULL);
    check_net("ib", NULL);
    check_net("SOCKET", NULL);
}

TEST_CASE("a network of the config comes before the variable")
{
    test_set("GYRE_P2P_DISABLE=1", "GYRE_SHM_DISABLE=1", "GYRE_IB_DISABLE=1", "GYRE_NET=IB", NULL);
    check_net(NULL, "GYRE_NET=IB rules sockets out");
    check_net("", "GYRE_NET=IB rules sockets out");
    check_net("socket", NULL);
    setenv("GYRE_NET", "Socket", 1);
    check_net(NULL, NULL);
    check_net("ib", "config.net=IB rules sockets out");
}
