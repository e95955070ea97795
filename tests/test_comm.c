/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicator through gyre.h: every collective, type, operation and root; in place and not;
 * threads, one thread for all ranks, processes; groups, point to point, split.
 */
#include "core/base/util.h"
#include "core/comm/record.h"
#include "kernels/pattern.h"
#include "tests/ranks.h"

/* One call of one collective. */
struct job {
    enum gyre_collective coll;
    gyre_dtype dtype;
    gyre_op op;
    size_t count;
    int root;
    bool in_place;
    uint32_t seed;
};

struct buffers {
    void *send;
    void *recv;
    void *block; /* what to free */
};

static struct gyre_device *host_device(void)
{
    static struct gyre_device device = {&gyre_device_host, -1};
    return &device;
}

static gyre_status call(const struct job *job, const struct buffers *b, gyre_comm *comm,
                        gyre_stream stream)
{
    switch (job->coll) {
    case GYRE_COLL_ALL_REDUCE:
        return gyre_all_reduce(b->send, b->recv, job->count, job->dtype, job->op, comm, stream);
    case GYRE_COLL_BROADCAST:
        return gyre_broadcast(b->send, b->recv, job->count, job->dtype, job->root, comm, stream);
    case GYRE_COLL_REDUCE:
        return gyre_reduce(b->send, b->recv, job->count, job->dtype, job->op, job->root, comm,
                           stream);
    case GYRE_COLL_ALL_GATHER:
        return gyre_all_gather(b->send, b->recv, job->count, job->dtype, comm, stream);
    default:
        return gyre_reduce_scatter(b->send, b->recv, job->count, job->dtype, job->op, comm, stream);
    }
}

static struct gyre_pattern pattern_of(const struct job *job, int n_ranks)
{
    const bool reduces = gyre_collectives[job->coll].reduces;
    const struct gyre_pattern pattern = {job->dtype, reduces ? job->op : GYRE_SUM,
                                         (uint32_t)n_ranks, job->seed};
    return pattern;
}

/* Buffers at element alignment only, filled; in place where the job says so. */
static struct buffers make_buffers(const struct job *job, int rank, int n_ranks)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[job->coll];
    const size_t element = gyre_dtype_bytes(job->dtype);
    const size_t n_in = job->count * (traits->in_blocks ? (size_t)n_ranks : 1);
    const size_t n_out = job->count * (traits->out_blocks ? (size_t)n_ranks : 1);
    struct buffers b;
    char *memory = malloc((n_in + n_out + 64) * element);
    b.block = memory;
    b.send = memory + element;
    b.recv = memory + (n_in + 3) * element;
    memset(memory, 0x5a, (n_in + n_out + 64) * element);
    if (job->in_place && traits->out_blocks) {
        b.recv = memory + element;
        b.send = memory + element + (size_t)rank * job->count * element;
    } else if (job->in_place && traits->in_blocks) {
        b.recv = memory + element + (size_t)rank * job->count * element;
    } else if (job->in_place) {
        b.recv = b.send;
    }
    const struct gyre_pattern pattern = pattern_of(job, n_ranks);
    CHECK_OK(gyre_pattern_fill(host_device(), &pattern, (uint32_t)rank, 0, n_in, b.send));
    return b;
}

static void check_result(const struct job *job, const struct buffers *b, int rank, int n_ranks)
{
    const struct gyre_pattern pattern = pattern_of(job, n_ranks);
    struct gyre_pattern_errors errors = {0};
    struct gyre_device *device = host_device();
    const size_t block_bytes = job->count * gyre_dtype_bytes(job->dtype);
    uint64_t n_wrong = 0;
    if (job->coll == GYRE_COLL_ALL_REDUCE || (job->coll == GYRE_COLL_REDUCE && rank == job->root)) {
        gyre_pattern_check_reduced(device, &pattern, 0, job->count, b->recv, &errors);
        n_wrong = errors.n_wrong;
    } else if (job->coll == GYRE_COLL_REDUCE_SCATTER) {
        gyre_pattern_check_reduced(device, &pattern, (uint64_t)rank * job->count, job->count,
                                   b->recv, &errors);
        n_wrong = errors.n_wrong;
    } else if (job->coll == GYRE_COLL_BROADCAST) {
        gyre_pattern_check_copy(device, &pattern, (uint32_t)job->root, 0, job->count, b->recv,
                                &errors);
        n_wrong = errors.n_wrong;
    } else if (job->coll == GYRE_COLL_ALL_GATHER) {
        for (int from = 0; from < n_ranks; from++) {
            gyre_pattern_check_copy(device, &pattern, (uint32_t)from, 0, job->count,
                                    (char *)b->recv + (size_t)from * block_bytes, &errors);
            n_wrong += errors.n_wrong;
        }
    }
    CHECK_MSG(n_wrong == 0,
              "%s %s %s count %zu root %d in place %d rank %d of %d: %" PRIu64
              " wrong, first at %" PRIu64 ": %" PRIx64 " not %" PRIx64,
              gyre_collectives[job->coll].name, gyre_dtype_names[job->dtype],
              gyre_op_names[job->op], job->count, job->root, job->in_place, rank, n_ranks, n_wrong,
              errors.first_wrong, errors.got, errors.expected);
}

static void run_job(const struct job *job, gyre_comm *comm, int rank, int n_ranks,
                    gyre_stream stream)
{
    struct buffers b = make_buffers(job, rank, n_ranks);
    CHECK_OK(call(job, &b, comm, stream));
    CHECK_OK(gyre_stream_synchronize(stream, GYRE_DEVICE_HOST));
    check_result(job, &b, rank, n_ranks);
    free(b.block);
}

static const enum gyre_collective collectives[] = {GYRE_COLL_ALL_REDUCE, GYRE_COLL_BROADCAST,
                                                   GYRE_COLL_REDUCE, GYRE_COLL_ALL_GATHER,
                                                   GYRE_COLL_REDUCE_SCATTER};

/* All types and operations at small and odd sizes, then a few sizes that take many tiles. */
static void every_collective(gyre_comm *comm, int rank, int n_ranks, void *argument)
{
    (void)argument;
    gyre_stream stream;
    CHECK_OK(gyre_stream_create(&stream, GYRE_DEVICE_HOST, -1));
    struct job job = {.seed = 1};
    for (size_t c = 0; c < GYRE_ARRAY_LENGTH(collectives); c++) {
        job.coll = collectives[c];
        for (int dtype = 0; dtype < GYRE_N_DTYPES; dtype++) {
            for (int op = 0; op < GYRE_N_OPS; op++) {
                job.dtype = (gyre_dtype)dtype;
                job.op = (gyre_op)op;
                job.root = (int)(job.seed % (unsigned)n_ranks);
                job.in_place = job.seed % 2 == 1;
                job.count = (size_t)(job.seed * 37 % 1031);
                job.seed++;
                run_job(&job, comm, rank, n_ranks, stream);
                if (!gyre_collectives[job.coll].reduces)
                    break;
            }
        }
        const size_t counts[] = {0, 1, 3, 4099, 262147, 1000003};
        for (size_t i = 0; i < GYRE_ARRAY_LENGTH(counts); i++) {
            for (job.root = 0; job.root<n_ranks; job.root += n_ranks> 4 ? 3 : 1) {
                job.dtype = GYRE_FLOAT32;
                job.op = GYRE_SUM;
                job.count = counts[i];
                job.in_place = !job.in_place;
                job.seed++;
                run_job(&job, comm, rank, n_ranks, stream);
                if (!gyre_collectives[job.coll].has_root)
                    break;
            }
        }
    }
    CHECK_OK(gyre_stream_destroy(stream, GYRE_DEVICE_HOST));
}

/* Everybody sends to everybody, itself too, twice, in one group. */
static void exchange(gyre_comm *comm, int rank, int n_ranks, void *argument)
{
    (void)argument;
    enum { COUNT = 50021 };
    int32_t *out = malloc((size_t)n_ranks * COUNT * 2 * sizeof(int32_t));
    int32_t *in = malloc((size_t)n_ranks * COUNT * 2 * sizeof(int32_t));
    for (int i = 0; i < n_ranks * COUNT * 2; i++)
        out[i] = rank * 1000003 + i;
    CHECK_OK(gyre_group_start());
    for (int turn = 0; turn < 2; turn++) {
        for (int peer = 0; peer < n_ranks; peer++) {
            if (peer == rank && turn == 1)
                continue;
            const size_t at = ((size_t)turn * (size_t)n_ranks + (size_t)peer) * COUNT;
            CHECK_OK(gyre_send(out + at, COUNT, GYRE_INT32, peer, comm, NULL));
            CHECK_OK(gyre_recv(in + at, COUNT, GYRE_INT32, peer, comm, NULL));
        }
    }
    CHECK_OK(gyre_group_end());
    CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
    int n_wrong = 0;
    for (int turn = 0; turn < 2; turn++)
        for (int peer = 0; peer < n_ranks; peer++)
            for (int i = 0; i < COUNT && !(peer == rank && turn == 1); i++)
                n_wrong += in[(turn * n_ranks + peer) * COUNT + i] !=
                           peer * 1000003 + (turn * n_ranks + rank) * COUNT + i;
    CHECK_MSG(n_wrong == 0, "%d wrong on rank %d", n_wrong, rank);
    free(out);
    free(in);
}

static void all_collectives_are_right_between_threads(void)
{
    for (int n_ranks = 1; n_ranks <= 5; n_ranks++)
        test_on_threads(n_ranks, every_collective, NULL);
}

static void all_collectives_are_right_between_processes(void)
{
    for (int n_ranks = 2; n_ranks <= 4; n_ranks++)
        test_on_processes(n_ranks, every_collective, NULL);
    test_on_processes(3, exchange, NULL);
}

static void all_collectives_are_right_with_every_algorithm(void)
{
    static const char *const algos[] = {"ring", "all_reduce:tree;broadcast:tree;reduce:tree",
                                        "direct",
                                        "all_reduce:twoshot;broadcast:twoshot;reduce:twoshot"};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(algos); i++) {
        setenv("GYRE_ALGO", algos[i], 1);
        test_on_threads(3, every_collective, NULL);
        test_on_threads(6, every_collective, NULL);
    }
    unsetenv("GYRE_ALGO");
}

static void all_collectives_are_right_over_sockets(void)
{
    setenv("GYRE_TRANSPORT", "socket", 1);
    test_on_threads(3, every_collective, NULL);
    unsetenv("GYRE_TRANSPORT");
}

static void one_thread_serves_all_ranks(void)
{
    enum { N = 4 };
    gyre_comm *comms[N];
    gyre_stream streams[N];
    struct buffers b[N];
    gyre_config config = GYRE_CONFIG_INIT;
    config.device_kind = GYRE_DEVICE_HOST;
    CHECK_OK(gyre_comm_init_all(comms, N, NULL, &config));
    const struct job job = {GYRE_COLL_ALL_REDUCE, GYRE_FLOAT32, GYRE_SUM, 100003, -1, false, 5};
    for (int rank = 0; rank < N; rank++) {
        CHECK_OK(gyre_stream_create(&streams[rank], GYRE_DEVICE_HOST, -1));
        b[rank] = make_buffers(&job, rank, N);
    }
    CHECK_OK(gyre_group_start());
    for (int rank = 0; rank < N; rank++)
        CHECK_OK(call(&job, &b[rank], comms[rank], streams[rank]));
    CHECK_OK(gyre_group_end());
    for (int rank = 0; rank < N; rank++) {
        CHECK_OK(gyre_stream_synchronize(streams[rank], GYRE_DEVICE_HOST));
        check_result(&job, &b[rank], rank, N);
        free(b[rank].block);
    }
    for (int rank = 0; rank < N; rank++) {
        CHECK_OK(gyre_stream_destroy(streams[rank], GYRE_DEVICE_HOST));
        CHECK_OK(gyre_comm_destroy(comms[rank]));
    }
}

static void messages_of_a_group_do_not_wait_for_each_other(void)
{
    test_on_threads(1, exchange, NULL);
    test_on_threads(2, exchange, NULL);
    test_on_threads(4, exchange, NULL);
}

static void split_in_two(gyre_comm *comm, int rank, int n_ranks, void *argument)
{
    (void)argument;
    gyre_comm *half = NULL;
    const int color = rank == n_ranks - 1 ? GYRE_SPLIT_NOCOLOR : rank % 2;
    CHECK_OK(gyre_comm_split(comm, color, -rank, &half, NULL));
    if (color == GYRE_SPLIT_NOCOLOR) {
        CHECK(half == NULL);
        return;
    }
    int n_half = 0;
    int half_rank = -1;
    CHECK_OK(gyre_comm_count(half, &n_half));
    CHECK_OK(gyre_comm_rank(half, &half_rank));
    CHECK(n_half == (n_ranks - color) / 2);
    CHECK(half_rank == n_half - 1 - rank / 2); /* the key reverses the order */
    const int32_t mine = rank;
    int32_t sum = -1;
    int32_t expected = 0;
    for (int other = color; other < n_ranks - 1; other += 2)
        expected += other;
    CHECK_OK(gyre_all_reduce(&mine, &sum, 1, GYRE_INT32, GYRE_SUM, half, NULL));
    CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
    CHECK(sum == expected);
    CHECK_OK(gyre_comm_destroy(half));
}

static void a_split_makes_smaller_communicators(void)
{
    test_on_threads(5, split_in_two, NULL);
}

static void premultiply(gyre_comm *comm, int rank, int n_ranks, void *argument)
{
    (void)argument;
    const float scalar = (float)(rank + 1);
    gyre_op op;
    CHECK_OK(gyre_op_create_premul_sum(&op, &scalar, GYRE_FLOAT32, comm));
    float value = 2.0F;
    float expected = 0.0F;
    for (int r = 0; r < n_ranks; r++)
        expected += 2.0F * (float)(r + 1);
    CHECK_OK(gyre_all_reduce(&value, &value, 1, GYRE_FLOAT32, op, comm, NULL));
    CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
    CHECK(value == expected);
    CHECK_FAILS(gyre_all_reduce(&value, &value, 1, GYRE_FLOAT64, op, comm, NULL),
                GYRE_ERROR_INVALID_ARGUMENT, "was made for float");
    CHECK_OK(gyre_op_destroy(op, comm));
    CHECK_FAILS(gyre_all_reduce(&value, &value, 1, GYRE_FLOAT32, op, comm, NULL),
                GYRE_ERROR_INVALID_ARGUMENT, "op_create_premul_sum");
}

static void a_user_scalar_multiplies_before_the_sum(void)
{
    test_on_threads(3, premultiply, NULL);
}

static const struct test_case cases[] = {
    /* Forks first: a process with threads must not fork. */
    {"all collectives are right between processes", all_collectives_are_right_between_processes},
    {"all collectives are right between threads", all_collectives_are_right_between_threads},
    {"all collectives are right with every algorithm",
     all_collectives_are_right_with_every_algorithm},
    {"all collectives are right over sockets", all_collectives_are_right_over_sockets},
    {"one thread serves all ranks", one_thread_serves_all_ranks},
    {"messages of a group do not wait for each other",
     messages_of_a_group_do_not_wait_for_each_other},
    {"a split makes smaller communicators", a_split_makes_smaller_communicators},
    {"a user scalar multiplies before the sum", a_user_scalar_multiplies_before_the_sum},
};

TEST_MAIN(cases)
