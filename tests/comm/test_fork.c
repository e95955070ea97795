/* SPDX-License-Identifier: Apache-2.0
 *
 * What a forked child may do while its parent's streams have work. The parent's rank enqueues an
 * all-reduce and forks, the child does one thing, and the parent compares its result with a
 * formula. In even rounds the other rank calls only after the child has ended, so the child surely
 * finds unfinished work; in odd rounds the work runs while the child does. TEST_FORKS = rounds over
 * each transport.
 */
#include "tests/support/ranks.h"

#define N_ELEMS 20000

#ifdef __SANITIZE_THREAD__ /* forbids a forked child to start threads or run exit() */
#define N_ACTIONS 3
#define LEAVE     _exit
#else
#define N_ACTIONS 8
#define LEAVE     exit
#endif

static bool is_child;

#ifdef __SANITIZE_ADDRESS__
int __lsan_is_turned_off(void);

/* Memory of the parent's other threads seems leaked in the child. */
int __lsan_is_turned_off(void)
{
    return is_child;
}
#endif

/* What the ranks share. */
struct rounds {
    uint32_t n_forked; /* by rank 1: rounds whose child has ended */
};

static void use_own(void)
{
    gyre_config config = test_config(0);
    gyre_comm *comms[2];
    gyre_stream stream;
    float data[2] = {10, 20};
    CHECK_OK(gyre_comm_init_all(comms, 2, NULL, &config));
    CHECK_OK(gyre_stream_create(&stream, GYRE_DEVICE_HOST, -1));
    if (test_n_failures > 0)
        return;
    CHECK_OK(gyre_all_reduce(&data[0], &data[0], 1, GYRE_FLOAT32, GYRE_SUM, comms[0], NULL));
    CHECK_OK(gyre_all_reduce(&data[1], &data[1], 1, GYRE_FLOAT32, GYRE_SUM, comms[1], stream));
    CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
    CHECK_OK(gyre_stream_synchronize(stream, GYRE_DEVICE_HOST));
    CHECK(data[0] == 30 && data[1] == 30);
    test_destroy_all(comms, 2);
    CHECK_OK(gyre_stream_destroy(stream, GYRE_DEVICE_HOST));
}

static void use_inherited_comm(gyre_comm *comm)
{
    float data = 1.0F;
    int n_ranks = 0;
    gyre_status status = GYRE_SUCCESS;
    CHECK_BAD_USAGE(gyre_all_reduce(&data, &data, 1, GYRE_FLOAT32, GYRE_SUM, comm, NULL), "forked");
    CHECK_BAD_USAGE(gyre_comm_count(comm, &n_ranks), "forked");
    CHECK_BAD_USAGE(gyre_comm_async_error(comm, &status), "forked");
    CHECK_BAD_USAGE(gyre_comm_finalize(comm), "forked");
    CHECK_BAD_USAGE(gyre_comm_abort(comm), "forked");
    CHECK_BAD_USAGE(gyre_comm_destroy(comm), "forked");
}

static void use_inherited_stream(gyre_comm *comm, gyre_stream stream)
{
    (void)comm;
    CHECK_BAD_USAGE(gyre_stream_synchronize(stream, GYRE_DEVICE_HOST), "forked");
    CHECK_BAD_USAGE(gyre_stream_query(stream, GYRE_DEVICE_HOST), "forked");
    CHECK_BAD_USAGE(gyre_stream_destroy(stream, GYRE_DEVICE_HOST), "forked");
}

/* @is_held: the parent's work cannot be done yet. */
static void be_child(gyre_comm *comm, gyre_stream stream, uint32_t action, bool is_held)
{
    test_n_failures = 0;
    is_child = true;
    alarm(20); /* SIGALRM ends a child that hangs */
    switch (action) {
    case 0:
        if (is_held)
            CHECK_BAD_USAGE(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST), "forked");
        else
            (void)gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST);
        break;
    case 1:
        use_inherited_stream(comm, stream);
        break;
    case 2:
        use_inherited_comm(comm);
        break;
    case 3: /* with the child's only thread its default stream ends */
        pthread_exit(NULL);
    case 4: /* destructors and handlers run */
        exit(0);
    case 5:
        use_own();
        break;
    case 6: /* the parent's group is not the child's */
        CHECK_BAD_USAGE(gyre_group_end(), "without group_start");
        use_own();
        break;
    default: { /* the child's child */
        use_own();
        fflush(NULL);
        const pid_t pid = fork();
        if (pid == 0) {
            use_inherited_comm(comm);
            use_own();
            exit(test_n_failures == 0 ? 0 : 1);
        }
        CHECK(test_wait_rank(pid));
    }
    }
    fflush(NULL);
    if (action % 2 == 0)
        LEAVE(test_n_failures == 0 ? 0 : 1);
    _exit(test_n_failures == 0 ? 0 : 1);
}

static float element(int rank, uint32_t round, uint32_t i)
{
    return (float)(((i + round) % 97 + 1) * (rank == 0 ? 1 : 3));
}

TEST_RANK(fork_in_each_round)
{
    struct rounds *rounds = argument;
    const char *asked = getenv("TEST_FORKS");
    const uint32_t n_rounds = asked != NULL ? (uint32_t)atoi(asked) : 2 * N_ACTIONS;
    float *data = calloc(2 * N_ELEMS, sizeof(*data)), *sum = data + N_ELEMS;
    gyre_stream stream = NULL;
    CHECK_OK(gyre_stream_create(&stream, GYRE_DEVICE_HOST, -1));
    for (uint32_t round = 0;
         round < n_rounds && __atomic_load_n(&test_n_failures, __ATOMIC_RELAXED) == 0; round++) {
        const uint32_t action = round / 2 % N_ACTIONS;
        const bool is_held = round % 2 == 0, is_group = rank == 1 && action == 6;
        for (uint32_t i = 0; i < N_ELEMS; i++) {
            data[i] = element(rank, round, i);
            sum[i] = -1;
        }
        while (rank == 0 && is_held && gyre_load_acquire_u32(&rounds->n_forked) <= round)
            sched_yield();
        if (is_group)
            CHECK_OK(gyre_group_start());
        CHECK_OK(gyre_all_reduce(data, sum, N_ELEMS, GYRE_FLOAT32, GYRE_SUM, comm,
                                 action == 1 ? stream : NULL));
        if (rank == 1) {
            fflush(NULL);
            const pid_t pid = fork();
            if (pid == 0)
                be_child(comm, stream, action, is_held);
            CHECK_MSG(test_wait_rank(pid), "the child of round %u, action %u", round, action);
            gyre_store_release_u32(&rounds->n_forked, round + 1);
        }
        if (is_group)
            CHECK_OK(gyre_group_end());
        CHECK_OK(gyre_stream_synchronize(action == 1 ? stream : NULL, GYRE_DEVICE_HOST));
        for (uint32_t i = 0; i < N_ELEMS; i++)
            CHECK_MSG(sum[i] == element(0, round, i) + element(1, round, i),
                      "rank %d, round %u, element %u is %g", rank, round, i, (double)sum[i]);
    }
    CHECK_OK(gyre_stream_destroy(stream, GYRE_DEVICE_HOST));
    free(data);
}

TEST_CASE("threads may fork while their streams have work")
{
    if (test_device() == GYRE_DEVICE_HOST)
        test_on_threads(2, fork_in_each_round, test_share(sizeof(struct rounds)));
}

static void processes_may_fork_over(const char *transport)
{
    if (test_device() != GYRE_DEVICE_HOST)
        return;
    setenv("GYRE_TRANSPORT", transport, 1);
    test_on_processes(2, fork_in_each_round, test_share(sizeof(struct rounds)));
}

TEST_RUNS("processes may fork over shared memory", processes_may_fork_over("shm"))
TEST_RUNS("processes may fork over sockets", processes_may_fork_over("socket"))

TEST_CASE("processes may fork over RDMA")
{
    if (getenv("TEST_RDMA") != NULL)
        processes_may_fork_over("ib");
}

TEST_CASE("a forked child is refused its parent's GPUs")
{
    const gyre_device_kind kinds[] = {GYRE_DEVICE_CUDA, GYRE_DEVICE_AUTO};
    gyre_config config = test_config(0);
    gyre_comm *comms[2];
    gyre_stream stream = NULL;
    void *memory = NULL;
    if (test_device() == GYRE_DEVICE_HOST)
        return;
    CHECK_OK(gyre_comm_init_all(comms, 1, NULL, &config));
    CHECK_OK(gyre_stream_create(&stream, GYRE_DEVICE_CUDA, 0));
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        test_n_failures = 0;
        alarm(20);
        CHECK_BAD_USAGE(gyre_comm_destroy(comms[0]), "forked");
        for (int i = 0; i < 2; i++) {
            config.device_kind = (int)kinds[i];
            CHECK_BAD_USAGE(gyre_comm_init_all(comms, 1, NULL, &config), "spawn");
            CHECK_BAD_USAGE(gyre_stream_synchronize(stream, kinds[i]), "spawn");
            CHECK_BAD_USAGE(gyre_mem_alloc(&memory, 1, kinds[i], -1), "spawn");
        }
        is_child = true;
        setenv("TEST_DEVICE", "host", 1);
        use_own();
        exit(test_n_failures == 0 ? 0 : 1);
    }
    CHECK(test_wait_rank(pid));
    CHECK_OK(gyre_stream_synchronize(stream, GYRE_DEVICE_CUDA));
    CHECK_OK(gyre_stream_destroy(stream, GYRE_DEVICE_CUDA));
    CHECK_OK(gyre_comm_destroy(comms[0]));
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
/* The sanitizers' locks do not survive such forks. */

static void *make_and_end(void *argument)
{
    const gyre_config config = test_config(0);
    while (gyre_load_acquire_u32(argument) == 0) {
        gyre_comm *comm = NULL;
        void *memory = NULL;
        CHECK_OK(gyre_comm_init_all(&comm, 1, NULL, &config));
        CHECK_OK(gyre_mem_alloc(&memory, 1, GYRE_DEVICE_HOST, -1));
        CHECK_OK(gyre_mem_free(memory, GYRE_DEVICE_HOST));
        CHECK_OK(gyre_comm_destroy(comm));
    }
    return NULL;
}

TEST_CASE("a fork beside busy threads leaves no lock taken")
{
    if (test_device() != GYRE_DEVICE_HOST)
        return;
    pthread_t threads[2];
    uint32_t is_over = 0;
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, make_and_end, &is_over);
    for (int i = 0; i < 10 && test_n_failures == 0; i++) {
        fflush(NULL);
        const pid_t pid = fork();
        if (pid == 0) {
            test_n_failures = 0;
            alarm(20);
            use_own();
            _exit(test_n_failures == 0 ? 0 : 1);
        }
        CHECK_MSG(test_wait_rank(pid), "child %d", i);
    }
    gyre_store_release_u32(&is_over, 1);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

#endif
