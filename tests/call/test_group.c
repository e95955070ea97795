/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/comm.h"
#include "tests/support/ranks.h"

/* More than a pair's FIFOs hold. */
#define N_LONG ((size_t)(test_device() == GYRE_DEVICE_HOST ? 2 : 8) << 20)

static int32_t value_of(int from, int to, size_t i)
{
    return (int32_t)(i * 31U) + from * 1000003 + to * 7919;
}

struct message {
    int32_t *out;
    int32_t *in;
    size_t n_elems;
};

static void copy(gyre_comm *comm, void *to, const void *from, size_t n_elems)
{
    CHECK_OK(comm->self.device->ops->copy(comm->self.device, to, from, n_elems * sizeof(int32_t)));
}

static gyre_stream make_stream(gyre_comm *comm)
{
    gyre_stream stream = NULL;
    CHECK_OK(gyre_stream_create(&stream, test_device(), comm->self.device_info.ordinal));
    return stream;
}

static struct message make_message(gyre_comm *comm, int rank, int to, size_t n_elems)
{
    struct message message = {.n_elems = n_elems};
    const size_t n_bytes = n_elems * sizeof(int32_t);
    const int ordinal = comm->self.device_info.ordinal;
    int32_t *values = calloc(n_elems, sizeof(*values));
    CHECK_OK(gyre_mem_alloc((void **)&message.out, n_bytes, test_device(), ordinal));
    CHECK_OK(gyre_mem_alloc((void **)&message.in, n_bytes, test_device(), ordinal));
    copy(comm, message.in, values, n_elems);
    for (size_t i = 0; i < n_elems; i++)
        values[i] = value_of(rank, to, i);
    copy(comm, message.out, values, n_elems);
    free(values);
    return message;
}

static void check_message(gyre_comm *comm, struct message *message, int from, int rank)
{
    int32_t *values = malloc(message->n_elems * sizeof(*values));
    size_t n_wrong = 0;
    copy(comm, values, message->in, message->n_elems);
    for (size_t i = 0; i < message->n_elems; i++)
        n_wrong += values[i] != value_of(from, rank, i);
    CHECK_MSG(n_wrong == 0, "%zu of %zu elements from rank %d are wrong", n_wrong, message->n_elems,
              from);
    free(values);
    CHECK_OK(gyre_mem_free(message->out, test_device()));
    CHECK_OK(gyre_mem_free(message->in, test_device()));
}

TEST_ON_THREADS("a send and a receive may be on two streams", 2)
{
    const int peer = n_ranks - 1 - rank;
    struct message message = make_message(comm, rank, peer, N_LONG);
    gyre_stream streams[2] = {make_stream(comm), make_stream(comm)};
    CHECK_OK(gyre_group_start());
    CHECK_OK(gyre_send(message.out, N_LONG, GYRE_INT32, peer, comm, streams[0]));
    CHECK_OK(gyre_recv(message.in, N_LONG, GYRE_INT32, peer, comm, streams[1]));
    CHECK_OK(gyre_group_end());
    CHECK_OK(gyre_stream_synchronize(streams[1], test_device()));
    CHECK_OK(gyre_stream_synchronize(streams[0], test_device()));
    check_message(comm, &message, peer, rank);
    for (int i = 0; i < 2; i++)
        CHECK_OK(gyre_stream_destroy(streams[i], test_device()));
}

TEST_ON_THREADS("a copy within a rank holds up the receiving stream", 2)
{
    struct message sum = make_message(comm, 0, 0, N_LONG);
    struct message message = make_message(comm, rank, rank, N_LONG);
    gyre_stream streams[2] = {make_stream(comm), make_stream(comm)};
    CHECK_OK(gyre_broadcast(sum.out, sum.in, N_LONG, GYRE_INT32, 0, comm, streams[0]));
    CHECK_OK(gyre_group_start());
    CHECK_OK(gyre_recv(message.in, N_LONG, GYRE_INT32, rank, comm, streams[1]));
    CHECK_OK(gyre_send(message.out, N_LONG, GYRE_INT32, rank, comm, streams[0]));
    CHECK_OK(gyre_group_end());
    CHECK_OK(gyre_stream_synchronize(streams[1], test_device()));
    check_message(comm, &message, rank, rank);
    check_message(comm, &sum, 0, 0);
    for (int i = 0; i < 2; i++)
        CHECK_OK(gyre_stream_destroy(streams[i], test_device()));
}

/* One thread serves both ranks, which have a stream in common: neither rank's calls may hold it up
 * before the other's wait for it. On GPUs a thread has one device current. */
static void serve_two_ranks_on_shared_streams(void)
{
    enum { COUNT = 1000 };
    static int32_t out[2][COUNT], in[2][COUNT];
    gyre_comm *comms[2];
    gyre_stream streams[3];
    const gyre_config config = test_config(0);
    CHECK_OK(gyre_comm_init_all(comms, 2, NULL, &config));
    for (int i = 0; i < 3; i++)
        CHECK_OK(gyre_stream_create(&streams[i], GYRE_DEVICE_HOST, -1));
    CHECK_OK(gyre_group_start());
    for (int rank = 0; rank < 2; rank++) {
        for (size_t i = 0; i < COUNT; i++)
            out[rank][i] = value_of(rank, 1 - rank, i);
        CHECK_OK(gyre_send(out[rank], COUNT, GYRE_INT32, 1 - rank, comms[rank], streams[rank]));
        CHECK_OK(gyre_recv(in[rank], COUNT, GYRE_INT32, 1 - rank, comms[rank], streams[2]));
    }
    CHECK_OK(gyre_group_end());
    CHECK_OK(gyre_stream_synchronize(streams[2], GYRE_DEVICE_HOST));
    for (int rank = 0; rank < 2; rank++)
        CHECK(memcmp(in[rank], out[1 - rank], sizeof(in[rank])) == 0);
    for (int i = 0; i < 3; i++)
        CHECK_OK(gyre_stream_destroy(streams[i], GYRE_DEVICE_HOST));
    test_destroy_all(comms, 2);
}

TEST_CASE("communicators of a group may share streams")
{
    if (test_device() == GYRE_DEVICE_HOST) {
        serve_two_ranks_on_shared_streams();
        setenv("GYRE_CHECK", "calls", 1);
        serve_two_ranks_on_shared_streams();
        unsetenv("GYRE_CHECK");
    }
}

TEST_CASE("calls that are compared keep the caller's default stream")
{
    enum { COUNT = 200000 };
    static int32_t values[2][COUNT];
    gyre_comm *comms[2];
    gyre_stream streams[2] = {NULL, NULL};
    const gyre_config config = test_config(0);
    if (test_device() != GYRE_DEVICE_HOST)
        return;
    setenv("GYRE_CHECK", "calls", 1);
    CHECK_OK(gyre_comm_init_all(comms, 2, NULL, &config));
    CHECK_OK(gyre_stream_create(&streams[1], GYRE_DEVICE_HOST, -1));
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < COUNT; i++)
            values[0][i] = values[1][i] = 1;
        for (int call = 0; call < 2; call++) { /* the second reads what the first wrote */
            CHECK_OK(gyre_group_start());
            for (int rank = 0; rank < 2; rank++)
                CHECK_OK(gyre_all_reduce(values[rank], values[rank], COUNT, GYRE_INT32, GYRE_SUM,
                                         comms[rank], streams[rank]));
            CHECK_OK(gyre_group_end());
        }
        for (int rank = 0; rank < 2; rank++) {
            CHECK_OK(gyre_stream_synchronize(streams[rank], GYRE_DEVICE_HOST));
            CHECK(values[rank][COUNT - 1] == 4);
        }
    }
    CHECK_OK(gyre_stream_destroy(streams[1], GYRE_DEVICE_HOST));
    test_destroy_all(comms, 2);
}

TEST_ON_THREADS("a group may end while a split of it goes on", 2)
{
    gyre_comm *child = NULL;
    gyre_config config = test_config(rank);
    gyre_status status = GYRE_IN_PROGRESS;
    struct message message = make_message(comm, 0, 0, 1000);
    gyre_stream stream = make_stream(comm);
    config.blocking = 0;
    CHECK_OK(gyre_group_start());
    CHECK_OK(gyre_broadcast(message.out, message.in, 1000, GYRE_INT32, 0, comm, stream));
    CHECK(gyre_comm_split(comm, 0, rank, &child, &config) == GYRE_IN_PROGRESS);
    CHECK(gyre_group_end() == GYRE_IN_PROGRESS);
    while (status == GYRE_IN_PROGRESS)
        CHECK_OK(gyre_comm_async_error(child, &status));
    CHECK_OK(gyre_stream_synchronize(stream, test_device()));
    check_message(comm, &message, 0, 0);
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
    CHECK_OK(gyre_comm_destroy(child));
}

TEST_RANK(send_unevenly)
{
    static const size_t sizes[] = {1, 1 << 20, 0, 1000003, 16411, 7};
    struct message out[TEST_MAX_RANKS], in[TEST_MAX_RANKS];
    gyre_stream stream = make_stream(comm);
    for (int peer = 0; peer < n_ranks; peer++) {
        /* Both ends know how long it is. */
        const size_t n_out = sizes[(size_t)(rank * 2 + peer) % GYRE_ARRAY_LENGTH(sizes)];
        const size_t n_in = sizes[(size_t)(peer * 2 + rank) % GYRE_ARRAY_LENGTH(sizes)];
        out[peer] = make_message(comm, rank, peer, n_out + 1);
        in[peer] = make_message(comm, rank, peer, n_in + 1);
        out[peer].n_elems = n_out;
        in[peer].n_elems = n_in;
    }
    CHECK_OK(gyre_group_start());
    for (int peer = 0; peer < n_ranks; peer++) {
        CHECK_OK(gyre_send(out[peer].out, out[peer].n_elems, GYRE_INT32, peer, comm, stream));
        CHECK_OK(gyre_recv(in[peer].in, in[peer].n_elems, GYRE_INT32, peer, comm, stream));
    }
    CHECK_OK(gyre_group_end());
    CHECK_OK(gyre_stream_synchronize(stream, test_device()));
    for (int peer = 0; peer < n_ranks; peer++) {
        check_message(comm, &in[peer], peer, rank);
        out[peer].n_elems = 0; /* nothing came there */
        check_message(comm, &out[peer], peer, rank);
    }
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
}

TEST_CASE("messages of a group may differ in size")
{
    test_on_processes(2, send_unevenly, NULL); /* forks: before there are threads */
    test_on_threads(2, send_unevenly, NULL);
    test_on_threads(4, send_unevenly, NULL);
}

TEST_ON_THREADS("a group may have a question and its answer", 2)
{
    const size_t sizes[] = {1, 3000, 400000, N_LONG};
    const size_t n_sizes = GYRE_ARRAY_LENGTH(sizes);
    gyre_stream stream = make_stream(comm);
    for (size_t i = 0; i < n_sizes * n_sizes; i++) {
        struct message question = make_message(comm, 0, 1, sizes[i / n_sizes]);
        struct message answer = make_message(comm, 1, 0, sizes[i % n_sizes]);
        if (rank == 0) {
            CHECK_OK(gyre_group_start());
            CHECK_OK(gyre_send(question.out, question.n_elems, GYRE_INT32, 1, comm, stream));
            CHECK_OK(gyre_recv(answer.in, answer.n_elems, GYRE_INT32, 1, comm, stream));
            CHECK_OK(gyre_group_end());
        } else {
            CHECK_OK(gyre_recv(question.in, question.n_elems, GYRE_INT32, 0, comm, stream));
            CHECK_OK(gyre_send(answer.out, answer.n_elems, GYRE_INT32, 0, comm, stream));
        }
        CHECK_OK(gyre_stream_synchronize(stream, test_device()));
        question.n_elems = rank == 1 ? question.n_elems : 0; /* nothing came there */
        answer.n_elems = rank == 0 ? answer.n_elems : 0;
        check_message(comm, &question, 0, 1);
        check_message(comm, &answer, 1, 0);
    }
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
}

TEST_ON_THREADS("messages do not hang behind a collective", 2)
{
    const size_t n_reduced = 3 << 20;
    const size_t sizes[] = {400000, 700000};
    gyre_stream stream = make_stream(comm);
    struct message sum = make_message(comm, 0, 0, n_reduced);
    struct message out = make_message(comm, rank, 1 - rank, sizes[rank]);
    struct message in = make_message(comm, 1 - rank, rank, sizes[1 - rank]);
    CHECK_OK(gyre_all_reduce(sum.out, sum.in, n_reduced, GYRE_FLOAT32, GYRE_SUM, comm, stream));
    CHECK_OK(gyre_group_start());
    CHECK_OK(gyre_send(out.out, out.n_elems, GYRE_INT32, 1 - rank, comm, stream));
    CHECK_OK(gyre_recv(in.in, in.n_elems, GYRE_INT32, 1 - rank, comm, stream));
    CHECK_OK(gyre_group_end());
    CHECK_OK(gyre_stream_synchronize(stream, test_device()));
    sum.n_elems = out.n_elems = 0; /* they are not looked at */
    check_message(comm, &sum, 0, 0);
    check_message(comm, &out, rank, 1 - rank);
    check_message(comm, &in, 1 - rank, rank);
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
}

static gyre_status send_message(struct message *message, int to, gyre_comm *comm,
                                gyre_stream stream)
{
    return gyre_send(message->out, message->n_elems, GYRE_INT32, to, comm, stream);
}

static gyre_status receive_message(struct message *message, int from, gyre_comm *comm,
                                   gyre_stream stream)
{
    return gyre_recv(message->in, message->n_elems, GYRE_INT32, from, comm, stream);
}

/* Rank 0 has all of its messages in one group, the others none. Rank 2 sends to rank 0 only after
 * rank 1 has received both messages of rank 0. */
TEST_RANK(pass_on_in_a_circle)
{
    const int next = (rank + 1) % n_ranks, before = (rank + n_ranks - 1) % n_ranks;
    struct message messages[2];
    gyre_stream stream = make_stream(comm);
    for (int i = 0; i < 2; i++)
        messages[i] = make_message(comm, rank, next, N_LONG);
    if (rank == 0)
        CHECK_OK(gyre_group_start());
    for (int i = 0; i < 2 && rank == 0; i++)
        CHECK_OK(send_message(&messages[i], next, comm, stream));
    for (int i = 0; i < 2; i++)
        CHECK_OK(receive_message(&messages[i], before, comm, stream));
    for (int i = 0; i < 2 && rank != 0; i++)
        CHECK_OK(send_message(&messages[i], next, comm, stream));
    if (rank == 0)
        CHECK_OK(gyre_group_end());
    CHECK_OK(gyre_stream_synchronize(stream, test_device()));
    for (int i = 0; i < 2; i++)
        check_message(comm, &messages[i], before, rank);
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
}

TEST_CASE("messages of a group wait for no other peer's messages")
{
    if (test_device() != GYRE_DEVICE_HOST)
        return; /* GPUs launch a pair's second messages last */
    setenv("GYRE_TIMEOUT", "20000", 1);
    test_on_processes(3, pass_on_in_a_circle, NULL); /* forks: before there are threads */
    test_on_threads(3, pass_on_in_a_circle, NULL);
}

TEST_ON_THREADS_WITH("a group may name messages and collectives in any order", 2,
                     "GYRE_TIMEOUT=20000")
{
    const int peer = n_ranks - 1 - rank;
    struct message message = make_message(comm, rank, peer, N_LONG);
    struct message root = make_message(comm, 0, 0, N_LONG);
    gyre_stream stream = make_stream(comm);
    CHECK_OK(gyre_group_start());
    if (rank == 0)
        CHECK_OK(send_message(&message, peer, comm, stream));
    CHECK_OK(gyre_broadcast(root.out, root.in, N_LONG, GYRE_INT32, 0, comm, stream));
    CHECK_OK(receive_message(&message, peer, comm, stream));
    if (rank != 0)
        CHECK_OK(send_message(&message, peer, comm, stream));
    CHECK_OK(gyre_group_end());
    CHECK_OK(gyre_stream_synchronize(stream, test_device()));
    check_message(comm, &message, peer, rank);
    check_message(comm, &root, 0, 0);
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
}

static void send_very_many(void)
{
    enum { N_MESSAGES = 30000 };
    static int32_t out[2][N_MESSAGES], in[2][N_MESSAGES];
    gyre_comm *comms[2];
    gyre_stream streams[2];
    const gyre_config config = test_config(0);
    CHECK_OK(gyre_comm_init_all(comms, 2, NULL, &config));
    for (int rank = 0; rank < 2; rank++)
        CHECK_OK(gyre_stream_create(&streams[rank], GYRE_DEVICE_HOST, -1));
    CHECK_OK(gyre_group_start());
    for (int rank = 0; rank < 2; rank++) {
        for (int i = 0; i < N_MESSAGES; i++) { /* every third one to this rank itself */
            const int peer = i % 3 == 0 ? rank : 1 - rank;
            out[rank][i] = value_of(rank, peer, (size_t)i);
            CHECK_OK(gyre_recv(&in[rank][i], 1, GYRE_INT32, peer, comms[rank], streams[rank]));
            CHECK_OK(gyre_send(&out[rank][i], 1, GYRE_INT32, peer, comms[rank], streams[rank]));
        }
    }
    CHECK_OK(gyre_group_end());
    size_t n_wrong = 0;
    for (int rank = 0; rank < 2; rank++) {
        CHECK_OK(gyre_stream_synchronize(streams[rank], GYRE_DEVICE_HOST));
        for (int i = 0; i < N_MESSAGES; i++)
            n_wrong += in[rank][i] != value_of(i % 3 == 0 ? rank : 1 - rank, rank, (size_t)i);
    }
    CHECK_MSG(n_wrong == 0, "%zu messages are wrong", n_wrong);
    for (int rank = 0; rank < 2; rank++) {
        CHECK_OK(gyre_comm_destroy(comms[rank]));
        CHECK_OK(gyre_stream_destroy(streams[rank], GYRE_DEVICE_HOST));
    }
}

TEST_CASE("very many messages of a group keep their order")
{
    if (test_device() == GYRE_DEVICE_HOST)
        send_very_many();
}
