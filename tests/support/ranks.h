/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks as threads over gyre_comm_init_all, or as forked processes over a unique id.
 */
#ifndef GYRE_TESTS_RANKS_H
#define GYRE_TESTS_RANKS_H

#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"
#include "core/gyre.h"
#include "tests/support/check.h"
#include "tests/support/gpus.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/types.h>

#define TEST_MAX_RANKS 16

/** TEST_DEVICE=cuda, else the host. */
static inline gyre_device_kind test_device(void)
{
    const char *name = getenv("TEST_DEVICE");
    return name != NULL && strcmp(name, "cuda") == 0 ? GYRE_DEVICE_CUDA : GYRE_DEVICE_HOST;
}

/** One a GPU. CUDA must not be initialised before a fork. */
static inline int test_most_ranks(void)
{
    if (test_device() == GYRE_DEVICE_HOST)
        return TEST_MAX_RANKS;
    return test_n_gpus();
}

static inline gyre_config test_config(int rank)
{
    gyre_config config = GYRE_CONFIG_INIT;
    config.device_kind = (int)test_device();
    if (config.device_kind == GYRE_DEVICE_CUDA)
        config.device_ordinal = rank;
    return config;
}

/** The host's memory, whatever TEST_DEVICE says. */
static inline gyre_config test_host_config(void)
{
    gyre_config config = GYRE_CONFIG_INIT;
    config.device_kind = GYRE_DEVICE_HOST;
    return config;
}

/** Zeroed, and shared with processes that are forked later. */
static inline void *test_share(size_t n_bytes)
{
    void *shared = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared != MAP_FAILED ? shared : NULL;
}

/** Sets variables "NAME=value"; NULL ends the list. */
static inline void test_set(const char *setting, ...)
{
    va_list settings;
    va_start(settings, setting);
    for (; setting != NULL; setting = va_arg(settings, const char *)) {
        char *name = strdup(setting), *value = strchr(name, '=');
        *value++ = '\0';
        CHECK(setenv(name, value, 1) == 0);
        free(name);
    }
    va_end(settings);
}

/** Until the word is `least` or more. */
static inline void test_await(const uint32_t *word, uint32_t least)
{
    while (gyre_load_acquire_u32(word) < least)
        sched_yield();
}

static inline void test_await_u64(const uint64_t *word, uint64_t least)
{
    while (gyre_load_acquire_u64(word) < least)
        sched_yield();
}

/** Until the communicator has an error, which it returns. */
static inline gyre_status test_await_error(gyre_comm *comm)
{
    gyre_status status = GYRE_SUCCESS;
    TEST_YIELD_UNTIL(gyre_comm_async_error(comm, &status) != GYRE_SUCCESS ||
                     status != GYRE_SUCCESS);
    return status;
}

static inline void test_destroy_all(gyre_comm *const *comms, int n_ranks)
{
    for (int rank = 0; rank < n_ranks; rank++)
        CHECK_OK(gyre_comm_destroy(comms[rank]));
}

/** Finishes the stream's work. */
static inline void test_end_stream(gyre_stream stream, gyre_device_kind device)
{
    CHECK_OK(gyre_stream_synchronize(stream, device));
    CHECK_OK(gyre_stream_destroy(stream, device));
}

/* Failed checks are counted. */
typedef void (*test_rank_fn)(gyre_comm *comm, int rank, int n_ranks, void *argument);

struct test_thread {
    gyre_comm *comm;
    int rank;
    int n_ranks;
    test_rank_fn run;
    void *argument;
};

static inline void *test_thread_main(void *pointer)
{
    struct test_thread *thread = pointer;
    thread->run(thread->comm, thread->rank, thread->n_ranks, thread->argument);
    CHECK_OK(gyre_comm_destroy(thread->comm));
    return NULL;
}

/* Set once this process has had threads. */
__attribute__((weak)) bool test_had_threads;

/** A thread for each communicator, which it destroys in the end. */
static inline void test_on_comms(gyre_comm *const *comms, int n_ranks, test_rank_fn run,
                                 void *argument)
{
    struct test_thread threads[TEST_MAX_RANKS];
    for (int rank = 0; rank < n_ranks; rank++)
        threads[rank] = (struct test_thread){comms[rank], rank, n_ranks, run, argument};
    test_run_threads(test_thread_main, threads, n_ranks, sizeof(threads[0]));
}

/** Threads with a communicator handle each. */
static inline void test_on_threads(int n_ranks, test_rank_fn run, void *argument)
{
    if (n_ranks > test_most_ranks())
        return;
    test_had_threads = true;
    gyre_comm *comms[TEST_MAX_RANKS];
    const gyre_config config = test_config(0);
    const gyre_status status = gyre_comm_init_all(comms, n_ranks, NULL, &config);
    CHECK_OK(status);
    if (status == GYRE_SUCCESS)
        test_on_comms(comms, n_ranks, run, argument);
}

/* Called in each new process before it uses the library; NULL = nothing. */
__attribute__((weak)) void (*test_enter_rank)(int rank, int n_ranks);

/* Rank 0 publishes the id here. */
struct test_rendezvous {
    gyre_unique_id id;
    uint32_t is_ready;
};

typedef void (*test_init_fn)(const gyre_unique_id *id, int rank, int n_ranks, void *argument);

/** Processes that share a unique id. A case forks before it starts threads: some threads of a
 * communicator outlive it for a moment, and under ThreadSanitizer a process that was forked
 * meanwhile may start none. @pids_out: by rank. The child's exit status is 0 when none of its
 * checks failed. It ends as programs do, so that a rendezvous finishes. */
static inline void test_fork_inits(int n_ranks, test_init_fn init, void *argument, pid_t *pids_out)
{
    CHECK_MSG(!test_had_threads, "a case forks its processes before it starts threads");
    struct test_rendezvous *shared = test_share(sizeof(*shared));
    for (int rank = 0; rank < n_ranks; rank++) {
        fflush(NULL);
        pids_out[rank] = fork();
        if (pids_out[rank] != 0)
            continue;
        test_n_failures = 0;
        if (test_enter_rank != NULL)
            test_enter_rank(rank, n_ranks);
        if (rank == 0) {
            CHECK_OK(gyre_get_unique_id(&shared->id));
            gyre_store_release_u32(&shared->is_ready, 1);
        }
        const uint64_t end_ns = gyre_now_ns() + 60000000000ULL;
        while (gyre_load_acquire_u32(&shared->is_ready) == 0 && gyre_now_ns() < end_ns)
            sched_yield();
        CHECK_MSG(gyre_load_acquire_u32(&shared->is_ready) != 0, "rank 0 published no id");
        if (test_n_failures == 0)
            init(&shared->id, rank, n_ranks, argument);
        exit(test_n_failures == 0 ? 0 : 1);
    }
    munmap(shared, sizeof(*shared));
}

struct test_run {
    test_rank_fn run;
    void *argument;
};

static inline void test_init_and_run(const gyre_unique_id *id, int rank, int n_ranks,
                                     void *argument)
{
    const struct test_run *own = argument;
    const gyre_config config = test_config(rank);
    gyre_comm *comm = NULL;
    CHECK_OK(gyre_comm_init_rank(&comm, n_ranks, id, rank, &config));
    if (test_n_failures == 0)
        own->run(comm, rank, n_ranks, own->argument);
    if (comm != NULL)
        CHECK_OK(gyre_comm_destroy(comm));
    fflush(NULL);
    _exit(test_n_failures == 0 ? 0 : 1);
}

/** Processes join one communicator, as test_fork_inits(). */
static inline void test_fork_ranks(int n_ranks, test_rank_fn run, void *argument, pid_t *pids_out)
{
    test_fork_inits(n_ranks, test_init_and_run, &(struct test_run){run, argument}, pids_out);
}

/** True when it exited with 0. */
static inline bool test_wait_rank(pid_t pid)
{
    int status = 0;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/** All must succeed. */
static inline void test_on_inits(int n_ranks, test_init_fn init, void *argument)
{
    pid_t pids[TEST_MAX_RANKS];
    test_fork_inits(n_ranks, init, argument, pids);
    for (int rank = 0; rank < n_ranks; rank++)
        CHECK_MSG(test_wait_rank(pids[rank]), "rank %d", rank);
}

static inline void test_on_processes(int n_ranks, test_rank_fn run, void *argument)
{
    if (n_ranks <= test_most_ranks())
        test_on_inits(n_ranks, test_init_and_run, &(struct test_run){run, argument});
}

/** A test_rank_fn: comm, rank, n_ranks and argument are its own. */
#define TEST_RANK(name)                                                                         \
    static void name(__attribute__((unused)) gyre_comm *comm, __attribute__((unused)) int rank, \
                     __attribute__((unused)) int n_ranks, __attribute__((unused)) void *argument)

/* Each rank runs the body: comm, rank and n_ranks are its own. _WITH: variables "NAME=value". */
#define TEST_ON_THREADS(sentence, n)   TEST_ON(test_on_threads, true, sentence, n, __LINE__, NULL)
#define TEST_ON_PROCESSES(sentence, n) TEST_ON(test_on_processes, true, sentence, n, __LINE__, NULL)
#define TEST_ON_HOST_THREADS(sentence, n) \
    TEST_ON(test_on_threads, test_device() == GYRE_DEVICE_HOST, sentence, n, __LINE__, NULL)
#define TEST_ON_HOST_PROCESSES(sentence, n) \
    TEST_ON(test_on_processes, test_device() == GYRE_DEVICE_HOST, sentence, n, __LINE__, NULL)
#define TEST_ON_THREADS_WITH(sentence, n, ...) \
    TEST_ON(test_on_threads, true, sentence, n, __LINE__, __VA_ARGS__, NULL)
#define TEST_ON_PROCESSES_WITH(sentence, n, ...) \
    TEST_ON(test_on_processes, true, sentence, n, __LINE__, __VA_ARGS__, NULL)
#define TEST_ON(run, is_fit, sentence, n, at, ...) \
    TEST_ON_RANKS(run, is_fit, sentence, n, at, __VA_ARGS__)
#define TEST_ON_RANKS(run, is_fit, sentence, n, at, ...)                                \
    static void test_rank_##at(gyre_comm *comm, int rank, int n_ranks, void *argument); \
    TEST_CASE_OF(sentence, at)                                                          \
    {                                                                                   \
        test_set(__VA_ARGS__);                                                          \
        if (is_fit)                                                                     \
            run(n, test_rank_##at, NULL);                                               \
    }                                                                                   \
    TEST_RANK(test_rank_##at)

#endif
