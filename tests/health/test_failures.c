/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/comm.h"
#include "kernels/host/host_exec.h"
#include "tests/support/files.h"
#include "tests/support/ranks.h"

#include <signal.h>
#include <sys/resource.h>
#include <time.h>

#define HOST GYRE_DEVICE_HOST

/* By rank, shared with the parent. */
struct shared_counts {
    uint64_t n_calls[TEST_MAX_RANKS];  /* calls so far */
    uint64_t named_ns[TEST_MAX_RANKS]; /* when the error that names the victim came */
};

struct victim {
    struct shared_counts *shared;
    int rank;
    const char *expected; /* in the survivors' error */
};

/* The error must name the victim within two seconds. */
TEST_RANK(reduce_until_error)
{
    const struct victim *victim = argument;
    enum { COUNT = 65536 };
    void *data = NULL;
    int ordinal = -1;
    gyre_status status = GYRE_SUCCESS;
    CHECK_OK(gyre_comm_device(comm, NULL, &ordinal));
    CHECK_OK(gyre_mem_alloc(&data, COUNT * sizeof(float), test_device(), ordinal));
    while (status == GYRE_SUCCESS) {
        status = gyre_all_reduce(data, data, COUNT, GYRE_FLOAT32, GYRE_SUM, comm, NULL);
        if (status == GYRE_SUCCESS)
            status = gyre_stream_synchronize(NULL, test_device());
        if (status == GYRE_SUCCESS) /* a CUDA stream does not know of the failure */
            CHECK_OK(gyre_comm_async_error(comm, &status));
        gyre_fetch_add_u64(&victim->shared->n_calls[rank], 1);
    }
    CHECK_MSG(status == GYRE_ERROR_REMOTE, "%s", gyre_status_name(status));
    CHECK_HAS(gyre_comm_last_error(comm), victim->expected);
    gyre_store_release_u64(&victim->shared->named_ns[rank], gyre_now_ns());
    CHECK_OK(gyre_mem_free(data, test_device()));
}

static void wait_until_running(const struct shared_counts *shared, int n_ranks)
{
    for (int rank = 0; rank < n_ranks; rank++)
        test_await_u64(&shared->n_calls[rank], 10);
}

/* Report how long the slowest survivor took to name it and to end. A process on GPUs ends late. */
static void kill_each(const char *transport)
{
    const int n = test_most_ranks() < 4 ? test_most_ranks() : 4;
    setenv("GYRE_TRANSPORT", transport, 1);
    for (int dead = 0; dead < n; dead++) {
        struct shared_counts *shared = test_share(sizeof(struct shared_counts));
        char expected[32];
        pid_t pids[TEST_MAX_RANKS];
        snprintf(expected, sizeof(expected), "rank %d", dead);
        struct victim victim = {shared, dead, expected};
        test_fork_ranks(n, reduce_until_error, &victim, pids);
        wait_until_running(shared, n);
        const uint64_t killed_ns = gyre_now_ns();
        uint64_t named_ns = killed_ns;
        kill(pids[dead], SIGKILL);
        for (int rank = 0; rank < n; rank++) {
            const bool is_fine = test_wait_rank(pids[rank]);
            CHECK_MSG(is_fine == (rank != dead), "rank %d after rank %d died", rank, dead);
            named_ns = gyre_max_u64(named_ns, gyre_load_acquire_u64(&shared->named_ns[rank]));
        }
        printf("     %s: rank %d killed, named by all survivors after %.2f s, all ended after "
               "%.2f s\n",
               transport, dead, (double)(named_ns - killed_ns) / 1e9,
               (double)(gyre_now_ns() - killed_ns) / 1e9);
        munmap(shared, sizeof(*shared));
    }
    unsetenv("GYRE_TRANSPORT");
}

TEST_RUNS("survivors name the killed rank on one host",
          kill_each(test_device() == GYRE_DEVICE_HOST ? "shm" : "p2p"))
TEST_RUNS("survivors name the killed rank over sockets", kill_each("socket"))

TEST_CASE("survivors name the killed rank over sockets by lines")
{
    if (test_device() != GYRE_DEVICE_HOST) /* over sockets one host's GPUs have simple alone */
        return;
    setenv("GYRE_PROTO", "/ll", 1);
    kill_each("socket");
}

TEST_CASE("survivors name the killed rank over rdma")
{
    if (getenv("TEST_RDMA") != NULL)
        kill_each("ib");
}

TEST_RANK(enqueue_many_or_wait)
{
    enum { N_CALLS = 6000 };
    const struct victim *victim = argument;
    float *data = NULL;
    if (rank == victim->rank) {
        test_await_u64(&victim->shared->n_calls[0], 1);
        raise(SIGKILL);
    }
    CHECK_OK(gyre_mem_alloc((void **)&data, sizeof(*data), HOST, -1));
    for (int i = 0; i < N_CALLS; i++)
        CHECK_OK(gyre_all_reduce(data, data, 1, GYRE_FLOAT32, GYRE_SUM, comm, NULL));
    gyre_store_release_u64(&victim->shared->n_calls[0], 1);
    CHECK(test_await_error(comm) == GYRE_ERROR_REMOTE);
    CHECK_HAS(gyre_comm_last_error(comm), victim->expected);
    (void)gyre_stream_synchronize(NULL, HOST);
    CHECK_OK(gyre_mem_free(data, HOST));
}

TEST_CASE("an operation whose record is gone is told by its number")
{
    if (test_device() != GYRE_DEVICE_HOST)
        return;
    struct shared_counts *shared = test_share(sizeof(struct shared_counts));
    struct victim victim = {shared, 1, "rank 0 was in operation 1 of 6000 that were enqueued"};
    pid_t pids[2];
    test_fork_ranks(2, enqueue_many_or_wait, &victim, pids);
    CHECK(test_wait_rank(pids[0]));
    CHECK(!test_wait_rank(pids[1]));
}

/* For example for a failed queue pair; other ranks may not see it. */
TEST_RANK(fail_on_one_rank)
{
    const struct victim *victim = argument;
    if (rank != victim->rank) {
        reduce_until_error(comm, rank, n_ranks, argument);
        return;
    }
    CHECK(gyre_fault_raise(&comm->self.fault, GYRE_ERROR_SYSTEM, "E401 of this rank's proxy"));
    /* It makes no call until the others have the error. */
    for (int other = 0; other < n_ranks; other++)
        while (other != rank && gyre_load_acquire_u64(&victim->shared->n_calls[other]) == 0)
            sched_yield();
}

TEST_CASE("a failure that one proxy finds reaches all ranks")
{
    const int n = test_most_ranks() < 3 ? test_most_ranks() : 3;
    struct shared_counts *shared = test_share(sizeof(struct shared_counts));
    struct victim victim = {shared, 1, "failed: E401 of this rank's proxy"};
    pid_t pids[TEST_MAX_RANKS];
    test_fork_ranks(n, fail_on_one_rank, &victim, pids);
    for (int rank = 0; rank < n; rank++)
        CHECK(test_wait_rank(pids[rank]));
}

TEST_CASE("a stopped rank is no error")
{
    enum { N = 3 };
    if (test_most_ranks() < N)
        return;
    struct shared_counts *shared = test_share(sizeof(struct shared_counts));
    struct victim victim = {shared, 1, "rank 2"};
    pid_t pids[N];
    test_fork_ranks(N, reduce_until_error, &victim, pids);
    wait_until_running(shared, N);
    kill(pids[1], SIGSTOP);
    /* For several looks of every detector. */
    const struct timespec pause = {3, 0};
    nanosleep(&pause, NULL);
    const uint64_t before = gyre_load_acquire_u64(&shared->n_calls[0]);
    kill(pids[1], SIGCONT);
    test_await_u64(&shared->n_calls[0], before + 10);
    kill(pids[2], SIGKILL);
    CHECK(test_wait_rank(pids[0]));
    CHECK(test_wait_rank(pids[1]));
    CHECK(!test_wait_rank(pids[2]));
}

TEST_RANK(abort_or_reduce)
{
    struct victim *victim = argument;
    if (rank == victim->rank) {
        float data = 0.0F;
        CHECK_OK(gyre_comm_abort(comm));
        CHECK_FAILS(gyre_all_reduce(&data, &data, 1, GYRE_FLOAT32, GYRE_SUM, comm, NULL),
                    GYRE_ERROR_ABORTED, "aborted");
        CHECK_OK(gyre_comm_abort(comm)); /* twice is fine */
        return;
    }
    reduce_until_error(comm, rank, n_ranks, argument);
}

TEST_ON_HOST_THREADS("of the ranks that have left the first one is blamed", 3)
{
    const struct gyre_host_executor *executor = (const void *)comm->executor;
    float data = 0.0F;
    if (rank < 2) /* rank 2 leaves, then rank 1 */
        TEST_YIELD_UNTIL(gyre_load_acquire_u32(&executor->has_left[rank + 1]) != 0);
    if (rank > 0)
        return;
    CHECK_OK(gyre_all_reduce(&data, &data, 1, GYRE_FLOAT32, GYRE_SUM, comm, NULL));
    CHECK_FAILS(gyre_stream_synchronize(NULL, HOST), GYRE_ERROR_REMOTE,
                "destroyed its communicator while rank 0 waits in all_reduce");
    CHECK_HAS(gyre_cause(), "rank 2 (");
}

TEST_CASE("an abort ends all ranks")
{
    struct shared_counts *shared = test_share(sizeof(struct shared_counts));
    struct victim victim = {shared, 1, "rank 1"};
    test_on_threads(test_most_ranks() < 4 ? test_most_ranks() : 4, abort_or_reduce, &victim);
}

/* Without the abort, gyre_comm_exchange() would wait until GYRE_BOOTSTRAP_TIMEOUT. */
TEST_RANK(abort_or_gather)
{
    struct victim *victim = argument;
    char all[TEST_MAX_RANKS] = {0};
    if (rank != victim->rank) {
        CHECK_FAILS(gyre_comm_exchange(comm, &all[rank], 1, all), GYRE_ERROR_REMOTE,
                    "aborted communicator");
        gyre_store_release_u64(&victim->shared->n_calls[rank], 1);
        return;
    }
    CHECK_OK(gyre_comm_abort(comm));
    /* Until its communicator is destroyed, no rank gets a goodbye. */
    for (int other = 0; other < n_ranks; other++)
        while (other != rank && gyre_load_acquire_u64(&victim->shared->n_calls[other]) == 0)
            sched_yield();
}

TEST_CASE("an abort ends gyre_comm_exchange() of others")
{
    struct shared_counts *shared = test_share(sizeof(struct shared_counts));
    struct victim victim = {shared, 1, NULL};
    if (test_most_ranks() >= 3) {
        test_on_processes(3, abort_or_gather, &victim); /* forks: before there are threads */
        memset(shared, 0, sizeof(*shared));
        test_on_threads(3, abort_or_gather, &victim);
    }
}

TEST_RANK(gather_alone)
{
    char all[2] = {0};
    if (rank == 0)
        CHECK(gyre_comm_exchange(comm, &all[0], 1, all) != GYRE_SUCCESS);
    CHECK(test_await_error(comm) == GYRE_ERROR_REMOTE);
}

TEST_CASE("a rank that misses gyre_comm_exchange() is everybody's failure")
{
    if (test_most_ranks() < 2)
        return;
    setenv("GYRE_BOOTSTRAP_TIMEOUT", "2", 1);
    test_on_processes(2, gather_alone, NULL);
}

/* One thread compares its call with a rank that never calls; another aborts. */
static void *abort_comm(void *argument)
{
    CHECK_OK(gyre_comm_abort(argument));
    return NULL;
}

TEST_CASE("an abort ends a comparison of calls")
{
    gyre_comm *comms[2];
    float data = 0.0F;
    pthread_t thread;
    gyre_config config = test_config(0);
    if (test_device() != GYRE_DEVICE_HOST)
        return;
    setenv("GYRE_CHECK", "calls", 1);
    CHECK_OK(gyre_comm_init_all(comms, 2, NULL, &config));
    CHECK(pthread_create(&thread, NULL, abort_comm, comms[0]) == 0);
    /* Before the comparison or in it. */
    CHECK_FAILS(gyre_all_reduce(&data, &data, 1, GYRE_FLOAT32, GYRE_SUM, comms[0], NULL),
                GYRE_ERROR_ABORTED, "aborted");
    pthread_join(thread, NULL);
    test_destroy_all(comms, 2);
}

TEST_CASE("a missing rank is named")
{
    gyre_comm *comm;
    gyre_unique_id id;
    gyre_config config = test_host_config();
    setenv("GYRE_BOOTSTRAP_TIMEOUT", "1", 1);
    CHECK_OK(gyre_get_unique_id(&id));
    CHECK_FAILS(gyre_comm_init_rank(&comm, 2, &id, 0, &config), GYRE_ERROR_TIMEOUT, "1");
}

#define WAIT_NS 60000000000ULL

struct shortage {
    int victim, n_spare;
    uint32_t *n_done; /* shared */
};

/* The victim may open `n_spare` descriptors more. Both ranks learn of the limit before the time
 * limit of the rendezvous, and neither ends before that: on a busy machine the other rank may come
 * later than an exit waits for it. */
static void run_short_of_descriptors(const gyre_unique_id *id, int rank, int n_ranks,
                                     void *argument)
{
    const struct shortage *shortage = argument;
    const gyre_config config = test_host_config();
    gyre_comm *comm;
    if (rank == shortage->victim) {
        struct rlimit files;
        const int lowest = dup(STDERR_FILENO);
        CHECK(lowest >= 0 && close(lowest) == 0 && getrlimit(RLIMIT_NOFILE, &files) == 0);
        files.rlim_cur = (rlim_t)(lowest + shortage->n_spare);
        CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    }
    const gyre_status status = gyre_comm_init_rank(&comm, n_ranks, id, rank, &config);
    CHECK_MSG(status != GYRE_SUCCESS && status != GYRE_ERROR_TIMEOUT &&
                  strstr(gyre_last_error(), "Too many open files") != NULL &&
                  strstr(gyre_last_error(), "raise ulimit -n, which is") != NULL,
              "victim %d, %d spare, rank %d: %s", shortage->victim, shortage->n_spare, rank,
              gyre_last_error());
    const uint64_t begin_ns = gyre_now_ns();
    gyre_fetch_add_u32(shortage->n_done, 1);
    while (gyre_load_acquire_u32(shortage->n_done) < 2 && gyre_now_ns() - begin_ns < WAIT_NS)
        sched_yield();
}

static void check_few_descriptors(int victim, int n_spare)
{
    struct shortage shortage = {victim, n_spare, test_share(sizeof(uint32_t))};
    test_on_inits(2, run_short_of_descriptors, &shortage);
    munmap(shortage.n_done, sizeof(uint32_t));
}

TEST_CASE("both ranks learn that descriptors ran out")
{
    check_few_descriptors(0, 1); /* the rendezvous accepts nothing */
    check_few_descriptors(1, 1);
    check_few_descriptors(1, 2);
}

/* Set on rank 1; both must say `words`. */
struct difference {
    const char *variable, *value, *words;
};

static void init_with_difference(const gyre_unique_id *id, int rank, int n_ranks, void *argument)
{
    const struct difference *difference = argument;
    const gyre_config config = test_host_config();
    gyre_comm *comm;
    if (rank == 1)
        setenv(difference->variable, difference->value, 1);
    CHECK(gyre_comm_init_rank(&comm, n_ranks, id, rank, &config) != GYRE_SUCCESS);
    CHECK_HAS(gyre_last_error(), difference->words);
}

TEST_CASE("settings that differ are named")
{
    const char *path = test_put("launch_ns = 5\n", "constants");
    struct difference differences[] = {
        {"GYRE_BUFFSIZE", "64K", "GYRE_BUFFSIZE differs"},
        {"GYRE_TUNING_FILE", path, "the constants in GYRE_TUNING_FILE differ"}};
    for (int i = 0; i < 2; i++)
        test_on_inits(2, init_with_difference, &differences[i]);
}

TEST_TOGETHER(8)
