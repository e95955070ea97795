/* SPDX-License-Identifier: Apache-2.0
 *
 * TCP connections that a middle box resets while calls run are connected again, and every result is
 * right in every bit.
 */
#include "tests/fuzz/random.h"
#include "tests/support/ranks.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

enum { N_RANKS = 4, MAX_FDS = 1024, MAX_COUNT = 100000 };

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

static uint32_t value_of(int rank, uint64_t round, size_t i)
{
    return (uint32_t)((uint64_t)(rank + 1) * 2654435761u + round * 40503u + i * 97u);
}

struct call {
    gyre_comm *comm, *half; /* half: with the ranks of the same parity */
    gyre_stream stream;
    int rank, n_ranks;
    uint64_t round;
    uint32_t *in, *out;
};

static void check_sum(const struct call *call, const uint32_t *out, size_t count, int first,
                      int step)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t sum = 0;
        for (int rank = first; rank < call->n_ranks; rank += step)
            sum += value_of(rank, call->round, i);
        if (out[i] != sum) {
            CHECK_MSG(false, "rank %d round %llu element %zu: %u, not %u", call->rank,
                      (unsigned long long)call->round, i, out[i], sum);
            return;
        }
    }
}

static void send_around(const struct call *call, size_t count)
{
    const int next = (call->rank + 1) % call->n_ranks;
    const int previous = (call->rank + call->n_ranks - 1) % call->n_ranks;
    CHECK_OK(gyre_group_start());
    CHECK_OK(gyre_send(call->in, count, GYRE_UINT32, next, call->comm, call->stream));
    CHECK_OK(gyre_recv(call->out, count, GYRE_UINT32, previous, call->comm, call->stream));
    CHECK_OK(gyre_group_end());
    CHECK_OK(gyre_stream_synchronize(call->stream, test_device()));
    for (size_t i = 0; i < count; i++)
        if (call->out[i] != value_of(previous, call->round, i)) {
            CHECK_MSG(false, "rank %d round %llu element %zu from rank %d", call->rank,
                      (unsigned long long)call->round, i, previous);
            return;
        }
}

TEST_RANK(call_through_resets)
{
    static const size_t counts[] = {2, 100, 3000, MAX_COUNT};
    struct call call = {.comm = comm, .rank = rank, .n_ranks = n_ranks};
    struct fuzz_rng random = {7 + (uint64_t)rank};
    uint32_t n_resets = 0;
    call.in = calloc(MAX_COUNT, sizeof(*call.in));
    call.out = calloc(2 * MAX_COUNT, sizeof(*call.out));
    CHECK_OK(gyre_comm_split(comm, rank % 2, rank, &call.half, NULL));
    CHECK_OK(gyre_stream_create(&call.stream, test_device(), -1));
    while (n_resets < injected.n_wanted && test_n_failures == 0) {
        const size_t count = counts[call.round % GYRE_ARRAY_LENGTH(counts)];
        for (size_t i = 0; i < count; i++)
            call.in[i] = value_of(rank, call.round, i);
        /* About every second round, in the middle of the others' call. */
        for (uint64_t n = fuzz_below(&random, 64); n > 0; n--)
            sched_yield();
        if (call.rank == 0 && reset_one(fuzz_next(&random)))
            gyre_store_release_u32(&injected.n_resets, injected.n_resets + 1);
        if (call.round % 3 == 0) {
            CHECK_OK(gyre_all_reduce(call.in, call.out, count, GYRE_UINT32, GYRE_SUM, call.comm,
                                     call.stream));
            CHECK_OK(gyre_stream_synchronize(call.stream, test_device()));
            check_sum(&call, call.out, count, 0, 1);
        } else if (call.round % 3 == 1) {
            CHECK_OK(gyre_group_start());
            CHECK_OK(gyre_all_reduce(call.in, call.out, count, GYRE_UINT32, GYRE_SUM, call.half,
                                     call.stream));
            CHECK_OK(gyre_all_reduce(call.in, call.out + count, count, GYRE_UINT32, GYRE_SUM,
                                     call.comm, call.stream));
            CHECK_OK(gyre_group_end());
            CHECK_OK(gyre_stream_synchronize(call.stream, test_device()));
            check_sum(&call, call.out, count, call.rank % 2, 2);
            check_sum(&call, call.out + count, count, 0, 1);
        } else
            send_around(&call, count);
        call.round++;
        /* All ranks stop after the same round. */
        call.in[0] = rank == 0 ? gyre_load_acquire_u32(&injected.n_resets) : 0;
        CHECK_OK(gyre_broadcast(call.in, call.out, 1, GYRE_UINT32, 0, comm, call.stream));
        CHECK_OK(gyre_stream_synchronize(call.stream, test_device()));
        n_resets = call.out[0];
    }
    CHECK_OK(gyre_stream_destroy(call.stream, test_device()));
    CHECK_OK(gyre_comm_destroy(call.half));
    free(call.in);
    free(call.out);
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
