/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/comm/parts.h"
#include "tests/support/ranks.h"

#include <fcntl.h>
#include <signal.h>

#define HOST GYRE_DEVICE_HOST

enum { N = 4 };

/* Between the ranks, which are processes. */
struct shared {
    uint32_t n_there;
    uint32_t n_ended;
};

static gyre_status reduce_once(gyre_comm *comm)
{
    float data = 1.0F;
    GYRE_TRY(gyre_all_reduce(&data, &data, 1, GYRE_FLOAT32, GYRE_SUM, comm, NULL));
    return gyre_stream_synchronize(NULL, HOST);
}

static void reduce_until_lost(gyre_comm *comm, const char *words)
{
    gyre_status status = GYRE_SUCCESS;
    while (status == GYRE_SUCCESS)
        status = reduce_once(comm);
    CHECK_MSG(status == GYRE_ERROR_REMOTE, "%s", gyre_status_name(status));
    CHECK_HAS(gyre_comm_last_error(comm), words);
}

static void run_ranks(test_rank_fn run, int dead)
{
    pid_t pids[N];
    struct shared *shared = test_share(sizeof(struct shared));
    if (test_device() == HOST) {
        test_fork_ranks(N, run, shared, pids);
        for (int rank = 0; rank < N; rank++)
            CHECK_MSG(test_wait_rank(pids[rank]) == (rank != dead), "rank %d", rank);
    }
    munmap(shared, sizeof(*shared));
}

TEST_RANK(die_in_a_split)
{
    struct shared *shared = argument;
    gyre_comm *child = NULL;
    CHECK_OK(gyre_comm_split(comm, rank % 2, rank, &child, NULL));
    CHECK_OK(reduce_once(child));
    gyre_fetch_add_u32(&shared->n_there, 1);
    if (rank == 3) {
        test_await(&shared->n_there, N);
        raise(SIGKILL);
    }
    if (rank == 1)
        reduce_until_lost(child, "rank 1 of the split communicator (rank 3 of its parent, ");
    else
        reduce_until_lost(comm, "rank 3 (");
    CHECK_OK(gyre_comm_destroy(child));
}

TEST_RUNS("a death in a split communicator names the parent's rank", run_ranks(die_in_a_split, 3))

TEST_RANK(die_in_a_shrunk)
{
    const int excluded[] = {1};
    struct shared *shared = argument;
    gyre_comm *child = NULL;
    if (rank == 1) {
        test_await(&shared->n_ended, N - 2);
        return;
    }
    CHECK_OK(gyre_comm_shrink(comm, excluded, 1, GYRE_SHRINK_DEFAULT, &child, NULL));
    CHECK_OK(reduce_once(child));
    gyre_fetch_add_u32(&shared->n_there, 1);
    if (rank == 3) {
        test_await(&shared->n_there, N - 1);
        raise(SIGKILL);
    }
    reduce_until_lost(child, "rank 2 of the shrunk communicator (rank 3 of its parent, ");
    gyre_fetch_add_u32(&shared->n_ended, 1);
    CHECK_OK(gyre_comm_destroy(child));
}

TEST_RUNS("a death in a shrunk communicator names the parent's rank", run_ranks(die_in_a_shrunk, 3))

/* By the first line that this process logs in a split: after the all-gather of the parent's ranks
 * and before the child's rendezvous, which never learns of this rank. */
static bool dies_at_the_next_log_line;

int __real_gyre_descriptor_write(int fd, const void *bytes, size_t n_bytes);
int __wrap_gyre_descriptor_write(int fd, const void *bytes, size_t n_bytes);

int __wrap_gyre_descriptor_write(int fd, const void *bytes, size_t n_bytes)
{
    if (dies_at_the_next_log_line)
        raise(SIGKILL);
    return __real_gyre_descriptor_write(fd, bytes, n_bytes);
}

TEST_RANK(die_before_joining)
{
    gyre_comm *child = NULL;
    if (rank == 3)
        dies_at_the_next_log_line = true;
    if (rank % 2 == 1) {
        CHECK_FAILS(gyre_comm_split(comm, 1, rank, &child, NULL), GYRE_ERROR_REMOTE,
                    "rank 1 of the split communicator (rank 3 of its parent, ");
        CHECK(child == NULL);
    } else if (gyre_comm_split(comm, 0, rank, &child, NULL) == GYRE_SUCCESS) {
        CHECK_OK(gyre_comm_destroy(child)); /* it may have been made before anybody heard */
    } else {
        CHECK_HAS(gyre_last_error(), "rank 3 (");
    }
}

TEST_CASE("a rank that dies before it joins a split is not waited for")
{
    char null[] = "/dev/null";
    const int own = dup(STDERR_FILENO);
    pid_t pids[N];
    if (test_device() != HOST)
        return;
    /* Other ranks' lines; their failed checks show in the exit status. */
    setenv("GYRE_DEBUG", "INFO", 1);
    const int fd = open(null, O_WRONLY | O_CLOEXEC);
    dup2(fd, STDERR_FILENO);
    test_fork_ranks(N, die_before_joining, NULL, pids);
    dup2(own, STDERR_FILENO);
    for (int rank = 0; rank < N; rank++) {
        int how = 0;
        CHECK(waitpid(pids[rank], &how, 0) == pids[rank]);
        if (rank == 3)
            CHECK_MSG(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL, "%d", how);
        else
            CHECK_MSG(how == 0, "rank %d: %d (its words: GYRE_DEBUG_FILE=/dev/stdout)", rank, how);
    }
    close(fd);
    close(own);
}

TEST_RANK(fail_to_take_part)
{
    gyre_comm *child = NULL;
    if (rank == 3)
        setenv("GYRE_BUFFSIZE", "nonsense", 1);
    const gyre_status status = gyre_comm_split(comm, rank % 2, rank, &child, NULL);
    if (rank == 3)
        unsetenv("GYRE_BUFFSIZE");
    if (rank % 2 == 0)
        CHECK_OK(status);
    else
        CHECK(status != GYRE_SUCCESS && strstr(gyre_last_error(), "GYRE_BUFFSIZE") != NULL);
    if (rank == 1)
        CHECK_MSG(strstr(gyre_last_error(), "rank 3 (") != NULL &&
                      strstr(gyre_last_error(), "of the parent") != NULL,
                  "%s", gyre_last_error());
    CHECK_OK(reduce_once(comm)); /* the parent is as it was */
    if (child != NULL)
        CHECK_OK(gyre_comm_destroy(child));
}

TEST_RUNS("a rank that cannot take part in a split tells the others",
          run_ranks(fail_to_take_part, -1))

/* It tells of a death at the third look, or never. */
struct late_word {
    struct gyre_bootstrap base;
    int n_looks;
    int n_before;
};

static gyre_status check_late(struct gyre_bootstrap *bootstrap)
{
    struct late_word *late = (struct late_word *)bootstrap;
    if (late->n_before == 0 || ++late->n_looks < late->n_before)
        return GYRE_SUCCESS;
    return gyre_fail(GYRE_ERROR_REMOTE, "rank 2 is gone: pid 77 on hostC exited");
}

static void check_blame(int n_before, gyre_status status, const char *expected)
{
    const struct gyre_bootstrap_ops ops = {.check = check_late};
    struct late_word late = {.base = {.ops = &ops, .n_ranks = 3}, .n_before = n_before};
    gyre_comm *comm = calloc(1, sizeof(*comm));
    gyre_fault_init(&comm->self.fault);
    comm->self.n_ranks = 3;
    comm->self.bootstrap = &late.base;
    gyre_fail(status, "rank 1 over shm: its process has ended");
    CHECK(gyre_origin_settle(&comm->self, NULL, status) == status);
    CHECK_MSG(strcmp(gyre_cause(), expected) == 0, "%s", gyre_cause());
    gyre_fault_fini(&comm->self.fault);
    free(comm);
}

TEST_CASE("a set-up that fails is blamed on the rank that died")
{
    check_blame(3, GYRE_ERROR_REMOTE, "rank 2 is gone: pid 77 on hostC exited");
    /* Nobody died; this rank's own cause is not waited over. */
    check_blame(0, GYRE_ERROR_REMOTE, "rank 1 over shm: its process has ended");
    check_blame(1, GYRE_ERROR_OUT_OF_MEMORY, "rank 1 over shm: its process has ended");
}

TEST_BEFORE
{
    /* Waiting for this exceeds the test's own limit. */
    setenv("GYRE_BOOTSTRAP_TIMEOUT", "3600", 1);
}
