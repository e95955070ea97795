/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/bootstrap_rig.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>

static pid_t fork_rank(const struct gyre_params *params, const gyre_unique_id *id, int n_ranks,
                       int rank)
{
    const pid_t pid = fork();
    if (pid == 0) {
        struct gyre_bootstrap *bootstrap = NULL;
        char all[MAX_RANKS];
        alarm(60);
        if (open_tcp(params, id, n_ranks, rank, &bootstrap) == GYRE_SUCCESS)
            bootstrap->ops->all_gather(bootstrap, "x", 1, all);
        for (;;)
            pause();
    }
    return pid;
}

/* With rank >= 0, the child takes part in one gather and, if it leaves, says goodbye; then sits
 * until killed. */
static pid_t fork_server(const struct gyre_params *params, int n_ranks, int rank, bool leaves,
                         gyre_unique_id *id_out)
{
    int pipe_fds[2];
    CHECK(pipe(pipe_fds) == 0);
    const pid_t pid = fork();
    if (pid == 0) {
        struct gyre_bootstrap *bootstrap = NULL;
        char all[MAX_RANKS];
        alarm(60);
        if (gyre_unique_id_create(params, id_out) != GYRE_SUCCESS ||
            write(pipe_fds[1], id_out, sizeof(*id_out)) != sizeof(*id_out))
            _exit(1);
        if (rank >= 0 && open_tcp(params, id_out, n_ranks, rank, &bootstrap) == GYRE_SUCCESS)
            bootstrap->ops->all_gather(bootstrap, "x", 1, all);
        if (leaves && bootstrap != NULL)
            bootstrap->ops->leave(bootstrap);
        for (;;)
            pause();
    }
    CHECK(read(pipe_fds[0], id_out, sizeof(*id_out)) == sizeof(*id_out));
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    return pid;
}

TEST_CASE("a killed process is lost with pid and words")
{
    const struct gyre_params params = params_with("30");
    struct gyre_bootstrap *bootstrap = NULL;
    gyre_unique_id id;
    char all[2];
    char pid_text[32];
    CHECK_OK(gyre_unique_id_create(&params, &id));
    const pid_t pid = fork_rank(&params, &id, 2, 1);
    CHECK_OK(open_tcp(&params, &id, 2, 0, &bootstrap));
    CHECK_OK(bootstrap->ops->all_gather(bootstrap, "x", 1, all));
    kill(pid, SIGKILL);
    const struct gyre_event event = next_event(bootstrap);
    snprintf(pid_text, sizeof(pid_text), "pid %d on ", pid);
    CHECK(event.kind == GYRE_EVENT_LOST && event.rank == 1);
    CHECK_HAS(event.text, pid_text);
    CHECK_HAS(event.text, "exited");
    CHECK_FAILS(bootstrap->ops->all_gather(bootstrap, "x", 1, all), GYRE_ERROR_REMOTE, "rank 1");
    bootstrap->ops->close(bootstrap);
    waitpid(pid, NULL, 0);
}

TEST_CASE("the death of the server's process is the loss of its rank")
{
    const struct gyre_params params = params_with("30");
    struct gyre_bootstrap *bootstrap = NULL;
    gyre_unique_id id;
    char all[2];
    const pid_t pid = fork_server(&params, 2, 1, false, &id);
    CHECK_OK(open_tcp(&params, &id, 2, 0, &bootstrap));
    CHECK_OK(bootstrap->ops->all_gather(bootstrap, "x", 1, all));
    kill(pid, SIGKILL);
    const struct gyre_event event = next_event(bootstrap);
    CHECK_MSG(event.kind == GYRE_EVENT_LOST && event.rank == 1, "%d %d", event.kind, event.rank);
    CHECK_HAS(event.text, "carries the rendezvous");
    bootstrap->ops->close(bootstrap);
    waitpid(pid, NULL, 0);
}

TEST_CASE("the death of a server without a rank is nobody's loss")
{
    const struct gyre_params params = params_with("30");
    struct gyre_bootstrap *bootstrap = NULL;
    struct gyre_event event;
    gyre_unique_id id;
    const pid_t pid = fork_server(&params, 0, -1, false, &id);
    CHECK_OK(open_tcp(&params, &id, 1, 0, &bootstrap));
    kill(pid, SIGKILL);
    CHECK_FAILS(bootstrap->ops->poll(bootstrap, EVENT_WAIT_MS, &event), GYRE_ERROR_REMOTE,
                "carries the rendezvous");
    CHECK(event.kind == GYRE_EVENT_NONE);
    bootstrap->ops->close(bootstrap);
    waitpid(pid, NULL, 0);
}

static pid_t fork_worker(void)
{
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        for (;;)
            pause();
    }
    return pid;
}

TEST_CASE("a forked child does not hide the death of its rank")
{
    const struct gyre_params params = params_with("30");
    struct gyre_bootstrap *bootstrap = NULL;
    gyre_unique_id id;
    char all[2];
    int pipe_fds[2];
    pid_t worker = 0;
    CHECK(pipe(pipe_fds) == 0);
    CHECK_OK(gyre_unique_id_create(&params, &id));
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        if (open_tcp(&params, &id, 2, 1, &bootstrap) != GYRE_SUCCESS ||
            bootstrap->ops->all_gather(bootstrap, "x", 1, all) != GYRE_SUCCESS)
            _exit(1);
        worker = fork_worker();
        if (write(pipe_fds[1], &worker, sizeof(worker)) == sizeof(worker))
            kill(getpid(), SIGKILL);
        _exit(1);
    }
    CHECK_OK(open_tcp(&params, &id, 2, 0, &bootstrap));
    CHECK_OK(bootstrap->ops->all_gather(bootstrap, "x", 1, all));
    CHECK(read(pipe_fds[0], &worker, sizeof(worker)) == sizeof(worker));
    const struct gyre_event event = next_event(bootstrap);
    CHECK_MSG(event.kind == GYRE_EVENT_LOST && event.rank == 1, "%d %d", event.kind, event.rank);
    CHECK(kill(worker, SIGKILL) == 0); /* it lives */
    bootstrap->ops->close(bootstrap);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    waitpid(pid, NULL, 0);
}

TEST_CASE("a descriptor elsewhere does not keep a link in the server")
{
    const struct gyre_params params = params_with("30");
    struct gyre_bootstrap *bootstrap = NULL;
    gyre_unique_id id;
    char all[3];
    CHECK_OK(gyre_unique_id_create(&params, &id));
    const pid_t first = fork_rank(&params, &id, 3, 1);
    const pid_t second = fork_rank(&params, &id, 3, 2);
    CHECK_OK(open_tcp(&params, &id, 3, 0, &bootstrap));
    CHECK_OK(bootstrap->ops->all_gather(bootstrap, "x", 1, all));
    const pid_t holder = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (holder == 0)
        for (;;)
            syscall(SYS_ppoll, NULL, 0, NULL, NULL, 0);
    kill(first, SIGKILL);
    struct gyre_event event = next_event(bootstrap);
    CHECK(event.kind == GYRE_EVENT_LOST && event.rank == 1);
    kill(second, SIGKILL);
    event = next_event(bootstrap);
    CHECK(event.kind == GYRE_EVENT_LOST && event.rank == 2);
    kill(holder, SIGKILL);
    bootstrap->ops->close(bootstrap);
    waitpid(first, NULL, 0);
    waitpid(second, NULL, 0);
    waitpid(holder, NULL, 0);
}

TEST_CASE("nobody waits for goodbyes after the server's end")
{
    const struct gyre_params params = params_with("30");
    struct gyre_bootstrap *bootstrap = NULL;
    bool has_left[3] = {false};
    gyre_unique_id id;
    char all[3];
    const pid_t server = fork_server(&params, 3, 0, true, &id);
    const pid_t silent = fork_rank(&params, &id, 3, 2); /* never says goodbye */
    CHECK_OK(open_tcp(&params, &id, 3, 1, &bootstrap));
    CHECK_OK(bootstrap->ops->all_gather(bootstrap, "x", 1, all));
    struct gyre_event event = next_event(bootstrap);
    CHECK_MSG(event.kind == GYRE_EVENT_LEFT && event.rank == 0, "%d %d", event.kind, event.rank);
    kill(server, SIGKILL);
    while (!has_left[2] && event.kind == GYRE_EVENT_LEFT) {
        event = next_event(bootstrap);
        CHECK_MSG(event.kind == GYRE_EVENT_LEFT, "%d %d", event.kind, event.rank);
        has_left[event.rank] = true;
    }
    CHECK(has_left[2]);
    bootstrap->ops->close(bootstrap);
    kill(silent, SIGKILL);
    waitpid(silent, NULL, 0);
    waitpid(server, NULL, 0);
}

static void *raise_soon(void *fault)
{
    poll(NULL, 0, 300);
    gyre_fault_raise(fault, GYRE_ERROR_ABORTED, "given up by the test");
    return NULL;
}

TEST_CASE("a stopped server does not answer, and joining it can be given up")
{
    const struct gyre_params patient = params_with("3600");
    const struct gyre_params hasty = params_with("1");
    struct gyre_bootstrap *bootstrap = NULL;
    struct gyre_fault fault;
    gyre_unique_id id;
    pthread_t thread;
    const pid_t pid = fork_server(&patient, 0, -1, false, &id);
    kill(pid, SIGSTOP);
    CHECK(waitpid(pid, NULL, WUNTRACED) == pid);
    CHECK_FAILS(open_tcp(&hasty, &id, 2, 1, &bootstrap), GYRE_ERROR_TIMEOUT, "does not answer");
    gyre_fault_init(&fault);
    const struct gyre_bootstrap_place place = {2, 1, &fault};
    CHECK(pthread_create(&thread, NULL, raise_soon, &fault) == 0);
    CHECK_FAILS(gyre_bootstrap_tcp_open(&patient, &id, &place, &bootstrap), GYRE_ERROR_ABORTED,
                "given up");
    pthread_join(thread, NULL);
    gyre_fault_fini(&fault);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

TEST_TOGETHER(8)
