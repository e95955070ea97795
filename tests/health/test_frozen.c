/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/comm.h"
#include "tests/support/pace.h"
#include "tests/support/ranks.h"

#include <poll.h>
#include <signal.h>

#define HOST    GYRE_DEVICE_HOST
#define WAIT_NS 60000000000ULL /* tells "bounded" from "hangs" */

enum { N = 4, COUNT = 4096 };

/* Between the ranks and the parent. */
struct shared {
    uint64_t n_calls[N];
    uint32_t is_over; /* set by the parent: leave together */
    uint32_t sleeper; /* calls nothing after its 10th call; N = none */
    uint32_t statuses[N];
    char texts[N][GYRE_CAUSE_MAX_BYTES]; /* the communicators' errors */
    int log[2];                          /* pipe: what the ranks print */
};

static struct shared *share(void)
{
    struct shared *shared = test_share(sizeof(*shared));
    shared->sleeper = N;
    CHECK(pipe(shared->log) == 0);
    return shared;
}

static gyre_status reduce_once(gyre_comm *comm, float *data)
{
    GYRE_TRY(gyre_all_reduce(data, data, COUNT, GYRE_FLOAT32, GYRE_MAX, comm, NULL));
    return gyre_stream_synchronize(NULL, HOST);
}

TEST_RANK(reduce_on)
{
    struct shared *shared = argument;
    float *data = NULL;
    gyre_status status = GYRE_SUCCESS;
    bool leaves = false;
    dup2(shared->log[1], STDERR_FILENO);
    CHECK_OK(gyre_mem_alloc((void **)&data, COUNT * sizeof(float), HOST, -1));
    while (status == GYRE_SUCCESS && !leaves) {
        if ((uint32_t)rank == shared->sleeper && shared->n_calls[rank] == 10) {
            status = test_await_error(comm);
            break;
        }
        data[0] = gyre_load_acquire_u32(&shared->is_over) != 0 ? 1.0F : 0.0F;
        status = reduce_once(comm, data);
        leaves = data[0] > 0.0F;
        gyre_fetch_add_u64(&shared->n_calls[rank], 1);
    }
    if (status != GYRE_SUCCESS)
        CHECK_OK(gyre_comm_async_error(comm, &status));
    snprintf(shared->texts[rank], sizeof(shared->texts[rank]), "%s", gyre_comm_last_error(comm));
    shared->statuses[rank] = (uint32_t)status;
    CHECK_OK(gyre_mem_free(data, HOST));
}

static void wait_until_running(const struct shared *shared)
{
    for (int rank = 0; rank < N; rank++)
        test_await_u64(&shared->n_calls[rank], 10);
}

static bool wait_for_line(const struct shared *shared, const char *first, const char *second)
{
    char text[8192];
    size_t n_text = 0;
    const uint64_t end_ns = gyre_now_ns() + WAIT_NS;
    struct pollfd log = {.fd = shared->log[0], .events = POLLIN};
    while (gyre_now_ns() < end_ns && n_text + 1 < sizeof(text)) {
        if (poll(&log, 1, 1000) != 1)
            continue;
        const ssize_t n = read(log.fd, text + n_text, sizeof(text) - 1 - n_text);
        if (n <= 0)
            break;
        n_text += (size_t)n;
        text[n_text] = '\0';
        const char *at = strstr(text, first);
        if (at != NULL && strchr(at, '\n') != NULL) {
            const char *other = strstr(at, second);
            printf("     %.*s\n", (int)(strchr(at, '\n') - at), at);
            return other != NULL && other < strchr(at, '\n');
        }
    }
    return false;
}

static void wait_ranks(const pid_t *pids, int except)
{
    for (int rank = 0; rank < N; rank++) {
        int how = 0;
        const uint64_t end_ns = gyre_now_ns() + WAIT_NS;
        pid_t ended = 0;
        if (rank == except)
            continue;
        while ((ended = waitpid(pids[rank], &how, WNOHANG)) == 0 && gyre_now_ns() < end_ns)
            poll(NULL, 0, 10);
        if (ended == 0) {
            kill(pids[rank], SIGKILL);
            waitpid(pids[rank], &how, 0);
        }
        CHECK_MSG(how == 0, "rank %d ended with %d", rank, how);
    }
}

static void end_share(struct shared *shared)
{
    close(shared->log[0]);
    close(shared->log[1]);
    munmap(shared, sizeof(*shared));
}

static void warn_and_go_on(int frozen)
{
    pid_t pids[N];
    char name[64];
    struct shared *shared = share();
    setenv("GYRE_STALL_WARN", "1", 1);
    test_fork_ranks(N, reduce_on, shared, pids);
    wait_until_running(shared);
    kill(pids[frozen], SIGSTOP);
    snprintf(name, sizeof(name), "pid %d) does not answer for ", (int)pids[frozen]);
    CHECK_MSG(wait_for_line(shared, "makes no progress", name), "rank %d", frozen);
    const uint64_t before = gyre_load_acquire_u64(&shared->n_calls[frozen]);
    kill(pids[frozen], SIGCONT);
    test_await_u64(&shared->n_calls[frozen], before + 10);
    gyre_store_release_u32(&shared->is_over, 1);
    wait_ranks(pids, -1);
    for (int rank = 0; rank < N; rank++)
        CHECK_MSG(shared->statuses[rank] == GYRE_SUCCESS, "rank %d: %s", rank, shared->texts[rank]);
    unsetenv("GYRE_STALL_WARN");
    end_share(shared);
}

TEST_RUNS("a warning names a frozen rank, which then goes on", warn_and_go_on(2))
TEST_RUNS("a warning names a frozen rank that carries the rendezvous", warn_and_go_on(0))

static void check_error(const struct shared *shared, int rank, const char *words)
{
    CHECK_MSG(shared->statuses[rank] == GYRE_ERROR_TIMEOUT, "rank %d: %u: %s", rank,
              shared->statuses[rank], shared->texts[rank]);
    CHECK_MSG(strstr(shared->texts[rank], words) != NULL, "rank %d: %s", rank, shared->texts[rank]);
}

static void time_out_without(int frozen, struct shared *shared)
{
    pid_t pids[N];
    char words[96];
    setenv("GYRE_TIMEOUT", "1000", 1);
    test_fork_ranks(N, reduce_on, shared, pids);
    wait_until_running(shared);
    kill(pids[frozen], SIGSTOP);
    wait_ranks(pids, frozen);
    snprintf(words, sizeof(words), "rank %d (", frozen);
    for (int rank = 0; rank < N; rank++)
        if (rank != frozen)
            check_error(shared, rank, words);
    snprintf(words, sizeof(words), "pid %d) does not answer for ", (int)pids[frozen]);
    for (int rank = 0; rank < N; rank++)
        if (rank != frozen)
            check_error(shared, rank, words);
    kill(pids[frozen], SIGCONT);
    CHECK(test_wait_rank(pids[frozen]));
    check_error(shared, frozen, words);
    printf("     %s\n", shared->texts[frozen == 0 ? 1 : 0]);
    unsetenv("GYRE_TIMEOUT");
}

TEST_CASE("the error names a frozen rank in the same words on all")
{
    struct shared *shared = share();
    time_out_without(2, shared);
    for (int rank = 1; rank < N; rank++)
        CHECK_MSG(strcmp(shared->texts[rank], shared->texts[0]) == 0, "rank %d: %s", rank,
                  shared->texts[rank]);
    end_share(shared);
}

TEST_CASE("the error names a frozen rank that carries the rendezvous")
{
    struct shared *shared = share();
    time_out_without(0, shared);
    for (int rank = 1; rank < N; rank++)
        CHECK_MSG(strstr(shared->texts[rank], "carries the rendezvous") != NULL, "rank %d: %s",
                  rank, shared->texts[rank]);
    end_share(shared);
}

TEST_CASE("the error names a rank that is behind and its latest call")
{
    pid_t pids[N];
    struct shared *shared = share();
    shared->sleeper = 1;
    setenv("GYRE_TIMEOUT", "1000", 1);
    test_fork_ranks(N, reduce_on, shared, pids);
    wait_ranks(pids, -1);
    for (int rank = 0; rank < N; rank++) {
        check_error(shared, rank, "is behind: it has called nothing after all_reduce(");
        check_error(shared, rank, "seq 10); waiting in the same call: ranks 0, 2, 3");
        CHECK_MSG(strstr(shared->texts[rank], "does not answer") == NULL, "%s",
                  shared->texts[rank]);
    }
    unsetenv("GYRE_TIMEOUT");
    end_share(shared);
}

/* A slow rank is waited for longer, see tests/support/pace.h. */
#define LEAVE_MS 9000

TEST_RANK(reduce_then_idle)
{
    struct shared *shared = argument;
    float *data = NULL;
    CHECK_OK(gyre_mem_alloc((void **)&data, COUNT * sizeof(float), HOST, -1));
    memset(data, 0, COUNT * sizeof(float));
    for (int i = 0; i < 10; i++) {
        CHECK_OK(reduce_once(comm, data));
        gyre_fetch_add_u64(&shared->n_calls[rank], 1);
    }
    while (gyre_load_acquire_u32(&shared->is_over) == 0)
        poll(NULL, 0, 1);
    CHECK_OK(gyre_mem_free(data, HOST));
}

static void destroy_without(int frozen)
{
    pid_t pids[N];
    struct shared *shared = share();
    test_fork_ranks(N, reduce_then_idle, shared, pids);
    wait_until_running(shared);
    kill(pids[frozen], SIGSTOP);
    struct test_pace pace;
    test_pace_start(&pace);
    gyre_store_release_u32(&shared->is_over, 1);
    wait_ranks(pids, frozen);
    const uint32_t took_ms = test_pace_stop(&pace);
    printf("     the other ranks had destroyed their communicators after %.1f s\n",
           (double)took_ms / 1e3);
    CHECK_MSG(took_ms < LEAVE_MS, "rank %d", frozen);
    kill(pids[frozen], SIGCONT);
    CHECK(test_wait_rank(pids[frozen]));
    end_share(shared);
}

TEST_RUNS("destroying does not wait for a frozen rank", destroy_without(2))
TEST_RUNS("destroying does not wait for a frozen rank that carries the rendezvous",
          destroy_without(0))

TEST_TOGETHER(8)
