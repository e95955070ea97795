/* SPDX-License-Identifier: Apache-2.0
 *
 * What GYRE_FAILOVER=1 costs: two ranks call by turns in two communicators that differ in it alone.
 * Latency and rate are given, because with measured ones the two may choose different ways.
 *
 *   chrt -f 1 build/tests/failover_cost    before other programs; it pauses for them
 */
#include "core/foundation/base/util.h"
#include "core/gyre.h"
#include "tests/support/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { N_ROUNDS = 51, MOST_BYTES = 16 << 20 };

static double ratios[N_ROUNDS];

static void enter_host(int rank, int n_ranks)
{
    static const char *const hosts[] = {"1", "2"};
    (void)n_ranks;
    CHECK(setenv("VERBS_WIRE_HOST", hosts[rank], 1) == 0);
    CHECK(setenv("GYRE_HOSTID", hosts[rank], 1) == 0);
}

static int compare(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

struct calls {
    gyre_comm *comms[2]; /* with GYRE_FAILOVER=0 and 1 */
    gyre_stream stream;
    float *in, *out;
};

static double time_calls(const struct calls *calls, int which, size_t n_bytes)
{
    const int n = n_bytes <= 65536 ? 100 : n_bytes <= 1 << 20 ? 20 : 4, n_first = 2;
    uint64_t begin_ns = 0;
    for (int i = -n_first; i < n; i++) {
        if (i == 0)
            begin_ns = gyre_now_ns();
        CHECK_OK(gyre_all_reduce(calls->in, calls->out, n_bytes / sizeof(float), GYRE_FLOAT32,
                                 GYRE_SUM, calls->comms[which], calls->stream));
        CHECK_OK(gyre_stream_synchronize(calls->stream, GYRE_DEVICE_HOST));
    }
    return (double)(gyre_now_ns() - begin_ns) / n;
}

TEST_RANK(call_by_turns)
{
    const struct timespec pause = {0, 100000000};
    struct calls calls = {.comms = {comm, NULL}};
    (void)n_ranks;
    CHECK(setenv("GYRE_FAILOVER", "1", 1) == 0);
    CHECK_OK(gyre_comm_split(comm, 0, rank, &calls.comms[1], NULL));
    CHECK_OK(gyre_stream_create(&calls.stream, GYRE_DEVICE_HOST, -1));
    calls.in = calloc(1, MOST_BYTES);
    calls.out = calloc(1, MOST_BYTES);
    for (size_t n_bytes = 4096; n_bytes <= MOST_BYTES; n_bytes *= 4) {
        double us = 0;
        for (int round = 0; round < N_ROUNDS; round++) {
            double ns[2];
            (void)nanosleep(&pause, NULL);
            for (int i = 0; i < 2; i++)
                ns[(round + i) % 2] = time_calls(&calls, (round + i) % 2, n_bytes);
            ratios[round] = ns[1] / ns[0];
            us += ns[0] / N_ROUNDS / 1e3;
        }
        qsort(ratios, N_ROUNDS, sizeof(ratios[0]), compare);
        if (rank == 0)
            printf("     %8zu bytes: %.1f us; with GYRE_FAILOVER=1 %.3f times that (quartiles %.3f "
                   "and %.3f)\n",
                   n_bytes, us, ratios[N_ROUNDS / 2], ratios[N_ROUNDS / 4],
                   ratios[3 * N_ROUNDS / 4]);
        CHECK_MSG(ratios[N_ROUNDS / 2] < 1.15, "%zu bytes: %.3f", n_bytes, ratios[N_ROUNDS / 2]);
    }
    CHECK_OK(gyre_comm_destroy(calls.comms[1]));
    CHECK_OK(gyre_stream_destroy(calls.stream, GYRE_DEVICE_HOST));
    free(calls.in);
    free(calls.out);
}

static void measure(const char *transport)
{
    pid_t pids[2];
    test_set("GYRE_FAILOVER=0", "GYRE_NET_LATENCY=4000", "GYRE_NET_RATE=100000", NULL);
    CHECK(setenv("GYRE_TRANSPORT", transport, 1) == 0);
    test_enter_rank = enter_host;
    test_fork_ranks(2, call_by_turns, NULL, pids);
    for (int rank = 0; rank < 2; rank++)
        CHECK(test_wait_rank(pids[rank]));
}

TEST_RUNS("over RDMA the median of calls with and without failover differs by less than 15 %",
          measure("ib"))

TEST_RUNS("over TCP, too", measure("socket"))
