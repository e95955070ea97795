/* SPDX-License-Identifier: Apache-2.0
 *
 * TCP connections that a middle box resets while calls run are connected again, and every result is
 * right in every bit.
 */
#include "tests/support/calls.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

enum { N_RANKS = 4, MAX_FDS = 1024 };

/* ---- resets --------------------------------------------------------------------------------- */

/* Both ends get ECONNRESET: connect(2) to no address sends a reset and leaves the descriptor. */
static bool reset_one(uint64_t choice)
{
    const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    int fds[MAX_FDS];
    /* Those with a limit of unsent bytes. */
    int n = 0;
    for (int fd = 3; fd < MAX_FDS; fd++) {
        struct tcp_info info;
        uint32_t lowat_bytes = 0;
        socklen_t n_info = sizeof(info), n_lowat = sizeof(lowat_bytes);
        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n_info) == 0 &&
            info.tcpi_state == TCP_ESTABLISHED &&
            getsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &lowat_bytes, &n_lowat) == 0 &&
            lowat_bytes == 262144)
            fds[n++] = fd;
    }
    return n > 0 && connect(fds[choice % (uint64_t)n], &nobody, sizeof(nobody)) == 0;
}

static struct {
    uint32_t n_resets; /* so far; by rank 0 */
    uint32_t n_wanted;
} injected;

/* ---- calls ---------------------------------------------------------------------------------- */

TEST_RANK(call_through_resets)
{
    struct calls calls = calls_open(comm, rank, n_ranks);
    struct fuzz_rng random = {7 + (uint64_t)rank};
    uint32_t n_resets = 0;
    CHECK_OK(gyre_comm_split(comm, rank % 2, rank, &calls.half, NULL));
    while (n_resets < injected.n_wanted && test_n_failures == 0) {
        const size_t count = calls_fill(&calls, calls.round);
        /* About every second round, in the middle of the others' call. */
        for (uint64_t n = fuzz_below(&random, 64); n > 0; n--)
            sched_yield();
        if (rank == 0 && reset_one(fuzz_next(&random)))
            gyre_store_release_u32(&injected.n_resets, injected.n_resets + 1);
        const uint32_t n_wrong = calls.round % 3 == 0   ? calls_all_reduce(&calls, comm, count)
                                 : calls.round % 3 == 1 ? calls_halves(&calls, count)
                                                        : calls_send_around(&calls, count);
        CHECK_MSG(n_wrong == 0, "rank %d round %llu: %u wrong elements", rank,
                  (unsigned long long)calls.round, n_wrong);
        calls.round++;
        /* All ranks stop after the same round. */
        calls.in[0] = rank == 0 ? gyre_load_acquire_u32(&injected.n_resets) : 0;
        CHECK_OK(gyre_broadcast(calls.in, calls.out, 1, GYRE_UINT32, 0, comm, calls.stream));
        CHECK_OK(gyre_stream_synchronize(calls.stream, test_device()));
        n_resets = calls.out[0];
    }
    calls_close(&calls);
}

static void set_resets(uint32_t n_wanted, const char *failover)
{
    injected.n_resets = 0;
    injected.n_wanted = n_wanted;
    test_set("GYRE_TRANSPORT=socket", "GYRE_SOCKET_NSOCKS=2", NULL);
    setenv("GYRE_FAILOVER", failover, 1);
}

TEST_CASE("hundreds of resets change no bit of sums, groups and halves of a communicator")
{
    set_resets(300, "1");
    test_on_threads(N_RANKS, call_through_resets, NULL);
    CHECK(injected.n_resets >= 300);
}

/* ---- without ------------------------------------------------------------------------------- */

TEST_RANK(fail_at_a_reset)
{
    gyre_stream stream;
    uint32_t in = 1, out = 0;
    gyre_status status = GYRE_SUCCESS;
    CHECK_OK(gyre_stream_create(&stream, test_device(), -1));
    for (uint64_t round = 0; status == GYRE_SUCCESS; round++) {
        if (rank == 0)
            (void)reset_one(round);
        status = gyre_all_reduce(&in, &out, 1, GYRE_UINT32, GYRE_SUM, comm, stream);
        if (status == GYRE_SUCCESS)
            status = gyre_stream_synchronize(stream, test_device());
    }
    CHECK_HAS(gyre_comm_last_error(comm), "was cut off");
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
}

TEST_CASE("with GYRE_FAILOVER=0 a reset ends the communicator and is named")
{
    set_resets(0, "0");
    test_on_threads(2, fail_at_a_reset, NULL);
}
