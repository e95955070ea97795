/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/ranks.h"

#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum { N_RANKS = 3, VICTIM = 2 };

enum way { DIES, FAILS, STOPS };

struct shared {
    uint32_t is_connecting; /* the victim has come to its data sockets */
};

static struct shared *shared;
static enum way way;
static bool is_victim;

/* In place of libc's. Rank 0 carries the rendezvous, so the victim takes connections for its data
 * sockets only. */
int accept4(int fd, __SOCKADDR_ARG address, socklen_t *restrict n_address, int flags)
{
    if (is_victim && way != FAILS) {
        gyre_store_release_u32(&shared->is_connecting, 1);
        raise(way == DIES ? SIGKILL : SIGSTOP);
    }
    return (int)syscall(SYS_accept4, fd, address.__sockaddr__, n_address, flags);
}

int eventfd(unsigned int value, int flags)
{
    if (is_victim && way == FAILS && flags == EFD_CLOEXEC) { /* the reception of data sockets */
        errno = EMFILE;
        return -1;
    }
    return (int)syscall(SYS_eventfd2, value, flags);
}

static void make_shared(enum way the_way)
{
    shared = test_share(sizeof(*shared));
    way = the_way;
}

static gyre_status join(const gyre_unique_id *id, int rank, int blocking, gyre_comm **comm_out)
{
    gyre_config config = test_host_config();
    config.blocking = blocking;
    is_victim = rank == VICTIM;
    return gyre_comm_init_rank(comm_out, N_RANKS, id, rank, &config);
}

static void expect_failed_init(const gyre_unique_id *id, int rank, const char *name,
                               const char *cause)
{
    gyre_comm *comm = NULL;
    const uint64_t began_ns = gyre_now_ns();
    const gyre_status status = join(id, rank, 1, &comm);
    printf("     rank %d: init ended after %.2f s\n", rank,
           (double)(gyre_now_ns() - began_ns) / 1e9);
    CHECK_MSG(status == GYRE_ERROR_REMOTE, "rank %d: %s", rank, gyre_status_name(status));
    CHECK_MSG(strstr(gyre_last_error(), name) != NULL && strstr(gyre_last_error(), cause) != NULL,
              "rank %d: %s", rank, gyre_last_error());
}

typedef void (*body_fn)(const gyre_unique_id *id, int rank);

/* @argument: the body of each rank but the victim. */
static void run_rank(const gyre_unique_id *id, int rank, int n_ranks, void *argument)
{
    gyre_comm *comm = NULL;
    (void)n_ranks;
    if (rank == VICTIM)
        CHECK(join(id, rank, 1, &comm) != GYRE_SUCCESS);
    else
        (*(const body_fn *)argument)(id, rank);
}

static void fork_ranks(body_fn body, pid_t *pids_out)
{
    test_fork_inits(N_RANKS, run_rank, &body, pids_out);
}

static void expect_death(const gyre_unique_id *id, int rank)
{
    expect_failed_init(id, rank, "rank 2 is gone", "exited or closed its connection");
}

static void expect_report(const gyre_unique_id *id, int rank)
{
    expect_failed_init(id, rank, "rank 2 gave up", "eventfd: Too many open files");
}

static void victim_ends(enum way the_way, body_fn body)
{
    pid_t pids[N_RANKS];
    make_shared(the_way);
    fork_ranks(body, pids);
    CHECK(test_wait_rank(pids[0]));
    CHECK(test_wait_rank(pids[1]));
    CHECK(test_wait_rank(pids[VICTIM]) == (the_way == FAILS));
    munmap(shared, sizeof(*shared));
}

TEST_RUNS("a rank that dies while sockets connect ends the others' set-up",
          victim_ends(DIES, expect_death))
TEST_RUNS("a rank that fails while sockets connect ends the others' set-up",
          victim_ends(FAILS, expect_report))

static void end_stopped_victim(const pid_t *pids)
{
    int status = 0;
    kill(pids[VICTIM], SIGKILL);
    CHECK(waitpid(pids[VICTIM], &status, 0) == pids[VICTIM]);
    munmap(shared, sizeof(*shared));
}

static void expect_death_of_1(const gyre_unique_id *id, int rank)
{
    expect_failed_init(id, rank, "rank 1 is gone", "exited or closed its connection");
}

TEST_CASE("a handshake that stands still is left when a third rank dies")
{
    pid_t pids[N_RANKS];
    int status = 0;
    make_shared(STOPS);
    fork_ranks(expect_death_of_1, pids);
    test_await(&shared->is_connecting, 1);
    kill(pids[1], SIGKILL);
    CHECK(test_wait_rank(pids[0]));
    CHECK(waitpid(pids[1], &status, 0) == pids[1]);
    end_stopped_victim(pids);
}

static void abort_or_hear_of_it(const gyre_unique_id *id, int rank)
{
    gyre_comm *comm = NULL;
    if (rank == 1) {
        expect_failed_init(id, rank, "rank 0 gave up", "gave up a communicator");
        return;
    }
    CHECK(join(id, rank, 0, &comm) == GYRE_IN_PROGRESS);
    test_await(&shared->is_connecting, 1);
    CHECK_OK(gyre_comm_abort(comm));
    CHECK_OK(gyre_comm_destroy(comm)); /* waits for the thread that made it */
}

TEST_CASE("an abort ends set-up on all ranks")
{
    pid_t pids[N_RANKS];
    make_shared(STOPS);
    fork_ranks(abort_or_hear_of_it, pids);
    CHECK(test_wait_rank(pids[0]));
    CHECK(test_wait_rank(pids[1]));
    end_stopped_victim(pids);
}

TEST_BEFORE
{
    test_set("GYRE_TRANSPORT=socket", "GYRE_SOCKET_IFNAME==lo", "GYRE_BOOTSTRAP_TIMEOUT=3600",
             NULL);
}
