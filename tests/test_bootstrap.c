/* SPDX-License-Identifier: Apache-2.0
 *
 * The bootstrap: one conformance suite over TCP and over threads, and what only TCP can meet:
 * processes that die, ranks that do not fit, strangers.
 */
#include "bootstrap/bootstrap_wire.h"
#include "core/base/util.h"
#include "tests/check.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static gyre_status open_tcp(const struct gyre_params *params, const gyre_unique_id *id, int n_ranks,
                            int rank, struct gyre_bootstrap **bootstrap_out)
{
    const struct gyre_bootstrap_place place = {n_ranks, rank, NULL};
    return gyre_bootstrap_tcp_open(params, id, &place, bootstrap_out);
}

#define MAX_RANKS     8
#define TIMEOUT_NS    30000000000ULL
#define EVENT_WAIT_MS 20000

static struct gyre_params params_with(const char *timeout)
{
    struct gyre_params params;
    char text[64];
    char ifname[] = "GYRE_SOCKET_IFNAME==lo";
    char family[] = "GYRE_SOCKET_FAMILY=AF_INET";
    char *environment[] = {text, ifname, family, NULL};
    snprintf(text, sizeof(text), "GYRE_BOOTSTRAP_TIMEOUT=%s", timeout);
    CHECK_OK(gyre_params_from(environment, &params));
    return params;
}

/* ---- ranks as threads ------------------------------------------------------------------- */

struct rank_run {
    pthread_t thread;
    const struct gyre_params *params;
    const gyre_unique_id *id;
    int n_ranks;
    int rank;
    struct gyre_bootstrap *bootstrap;
    gyre_status open_status;
    char open_cause[GYRE_CAUSE_MAX_BYTES];
    void (*body)(struct gyre_bootstrap *bootstrap);
};

static void *run_rank(void *context)
{
    struct rank_run *run = context;
    if (run->bootstrap == NULL)
        run->open_status = open_tcp(run->params, run->id, run->n_ranks, run->rank, &run->bootstrap);
    snprintf(run->open_cause, sizeof(run->open_cause), "%s", gyre_cause());
    if (run->bootstrap != NULL && run->body != NULL)
        run->body(run->bootstrap);
    if (run->bootstrap != NULL)
        run->bootstrap->ops->close(run->bootstrap);
    return NULL;
}

static void start_runs(struct rank_run *runs, int n)
{
    for (int i = 0; i < n; i++)
        CHECK(pthread_create(&runs[i].thread, NULL, run_rank, &runs[i]) == 0);
}

static void join_runs(struct rank_run *runs, int n)
{
    for (int i = 0; i < n; i++)
        pthread_join(runs[i].thread, NULL);
}

static void over(bool is_tcp, int n_ranks, void (*body)(struct gyre_bootstrap *bootstrap))
{
    const struct gyre_params params = params_with("30");
    struct gyre_bootstrap *locals[MAX_RANKS];
    struct rank_run runs[MAX_RANKS];
    gyre_unique_id id;
    memset(runs, 0, sizeof(runs));
    if (is_tcp)
        CHECK_OK(gyre_unique_id_create(&params, &id));
    else
        CHECK_OK(gyre_bootstrap_local_open(&params, n_ranks, locals));
    for (int rank = 0; rank < n_ranks; rank++)
        runs[rank] = (struct rank_run){.params = &params,
                                       .id = &id,
                                       .n_ranks = n_ranks,
                                       .rank = rank,
                                       .bootstrap = is_tcp ? NULL : locals[rank],
                                       .body = body};
    start_runs(runs, n_ranks);
    join_runs(runs, n_ranks);
    for (int rank = 0; rank < n_ranks; rank++)
        CHECK_MSG(runs[rank].open_status == GYRE_SUCCESS, "%s", runs[rank].open_cause);
}

static void over_both(int n_ranks, void (*body)(struct gyre_bootstrap *bootstrap))
{
    over(true, n_ranks, body);
    over(false, n_ranks, body);
}

static struct gyre_event next_event(struct gyre_bootstrap *bootstrap)
{
    struct gyre_event event;
    CHECK_OK(bootstrap->ops->poll(bootstrap, EVENT_WAIT_MS, &event));
    return event;
}

/* Nobody goes on before all are here. */
static void barrier(struct gyre_bootstrap *bootstrap)
{
    uint8_t all[MAX_RANKS];
    CHECK_OK(bootstrap->ops->all_gather(bootstrap, "b", 1, all));
}

static void gather_body(struct gyre_bootstrap *bootstrap)
{
    const int n = bootstrap->n_ranks;
    for (uint32_t round = 0; round < 50; round++) {
        uint32_t mine[3] = {round, (uint32_t)bootstrap->rank, ~round};
        uint32_t all[MAX_RANKS][3];
        CHECK_OK(bootstrap->ops->all_gather(bootstrap, mine, sizeof(mine), all));
        for (int rank = 0; rank < n; rank++)
            CHECK(all[rank][0] == round && all[rank][1] == (uint32_t)rank &&
                  all[rank][2] == ~round);
    }
    const size_t n_big = 1u << 20;
    uint8_t *big = malloc(n_big);
    uint8_t *all_big = malloc(n_big * (size_t)n);
    memset(big, bootstrap->rank + 1, n_big);
    CHECK_OK(bootstrap->ops->all_gather(bootstrap, big, n_big, all_big));
    for (int rank = 0; rank < n; rank++)
        CHECK(all_big[(size_t)rank * n_big] == rank + 1 &&
              all_big[(size_t)(rank + 1) * n_big - 1] == rank + 1);
    free(big);
    free(all_big);
    CHECK_OK(bootstrap->ops->all_gather(bootstrap, NULL, 0, NULL));
    CHECK_FAILS(bootstrap->ops->all_gather(bootstrap, "", (16u << 20) / (unsigned)n + 1, NULL),
                GYRE_ERROR_INVALID_ARGUMENT, "at most");
    barrier(bootstrap);
    bootstrap->ops->leave(bootstrap);
}

static void all_gather_brings_every_ranks_bytes(void)
{
    over_both(1, gather_body);
    over_both(5, gather_body);
}

static void gather_v_body(struct gyre_bootstrap *bootstrap)
{
    char mine[MAX_RANKS * 100];
    size_t offsets[MAX_RANKS + 1];
    void *all = NULL;
    const size_t n_mine = (size_t)bootstrap->rank * 100; /* rank 0 gives nothing */
    memset(mine, 'a' + bootstrap->rank, sizeof(mine));
    CHECK_OK(bootstrap->ops->all_gather_v(bootstrap, mine, n_mine, &all, offsets));
    for (int rank = 0; rank < bootstrap->n_ranks; rank++) {
        CHECK(offsets[rank + 1] - offsets[rank] == (size_t)rank * 100);
        for (size_t at = offsets[rank]; at < offsets[rank + 1]; at++)
            CHECK(((char *)all)[at] == 'a' + rank);
    }
    free(all);
    barrier(bootstrap);
    bootstrap->ops->leave(bootstrap);
}

static void all_gather_v_takes_a_size_per_rank(void)
{
    over_both(4, gather_v_body);
}

static void uneven_body(struct gyre_bootstrap *bootstrap)
{
    char all[MAX_RANKS * 8];
    const size_t n_mine = bootstrap->rank == 1 ? 8 : 4;
    CHECK_FAILS(bootstrap->ops->all_gather(bootstrap, "12345678", n_mine, all),
                GYRE_ERROR_INVALID_USAGE, "same step");
    barrier(bootstrap);
    bootstrap->ops->leave(bootstrap);
}

static void different_sizes_in_all_gather_are_an_error_on_every_rank(void)
{
    over_both(3, uneven_body);
}

static void post_body(struct gyre_bootstrap *bootstrap)
{
    const int n = bootstrap->n_ranks;
    const int next = (bootstrap->rank + 1) % n;
    int n_from_all = 0;
    char big[GYRE_MESSAGE_MAX_BYTES + 1] = "to all";
    barrier(bootstrap);
    CHECK_OK(bootstrap->ops->post(bootstrap, next, "to next", 8));
    CHECK_OK(bootstrap->ops->post(bootstrap, -1, big, GYRE_MESSAGE_MAX_BYTES));
    CHECK_FAILS(bootstrap->ops->post(bootstrap, -1, big, sizeof(big)), GYRE_ERROR_INVALID_ARGUMENT,
                "at most 2048");
    CHECK_FAILS(bootstrap->ops->post(bootstrap, n, "x", 1), GYRE_ERROR_INVALID_ARGUMENT, "rank");
    for (int i = 0; i < n; i++) {
        const struct gyre_event event = next_event(bootstrap);
        CHECK_MSG(event.kind == GYRE_EVENT_MESSAGE, "kind %d from %d", event.kind, event.rank);
        if (event.n_bytes == GYRE_MESSAGE_MAX_BYTES)
            n_from_all += strcmp((const char *)event.message, "to all") == 0;
        else
            CHECK((event.rank + 1) % n == bootstrap->rank &&
                  strcmp((const char *)event.message, "to next") == 0);
    }
    CHECK(n_from_all == n - 1);
    barrier(bootstrap);
    bootstrap->ops->leave(bootstrap);
}

static void posts_reach_one_or_all_others(void)
{
    over_both(4, post_body);
}

static void left_body(struct gyre_bootstrap *bootstrap)
{
    barrier(bootstrap);
    if (bootstrap->rank == 1) {
        bootstrap->ops->leave(bootstrap);
        return;
    }
    const struct gyre_event event = next_event(bootstrap);
    CHECK_MSG(event.kind == GYRE_EVENT_LEFT && event.rank == 1, "%d %d", event.kind, event.rank);
    char all[MAX_RANKS];
    CHECK_FAILS(bootstrap->ops->all_gather(bootstrap, "x", 1, all), GYRE_ERROR_REMOTE, "rank 1");
    bootstrap->ops->leave(bootstrap);
}

static void goodbye_is_told_and_is_no_loss(void)
{
    over_both(2, left_body);
}

static void lost_body(struct gyre_bootstrap *bootstrap)
{
    char all[MAX_RANKS];
    barrier(bootstrap);
    if (bootstrap->rank == 2)
        return; /* closed without goodbye */
    CHECK_FAILS(bootstrap->ops->all_gather(bootstrap, "x", 1, all), GYRE_ERROR_REMOTE, "rank 2");
    /* The event that came during the gather waits for the next poll. */
    struct gyre_event event = next_event(bootstrap);
    while (event.kind == GYRE_EVENT_LEFT || (event.kind == GYRE_EVENT_LOST && event.rank != 2))
        event = next_event(bootstrap);
    CHECK_MSG(event.kind == GYRE_EVENT_LOST && event.rank == 2, "%d %d", event.kind, event.rank);
    CHECK_MSG(strstr(event.text, "closed its connection") != NULL, "%s", event.text);
    bootstrap->ops->leave(bootstrap);
}

static void a_rank_that_closes_without_goodbye_is_lost(void)
{
    over_both(3, lost_body);
}

static void fail_body(struct gyre_bootstrap *bootstrap)
{
    char all[MAX_RANKS];
    barrier(bootstrap);
    if (bootstrap->rank == 0)
        bootstrap->ops->fail(bootstrap, "no GPU left");
    else
        CHECK_FAILS(bootstrap->ops->all_gather(bootstrap, "x", 1, all), GYRE_ERROR_REMOTE,
                    "rank 0 gave up: no GPU left");
    bootstrap->ops->leave(bootstrap);
}

static void giving_up_ends_the_others_wait_with_the_reason(void)
{
    over_both(2, fail_body);
}

static void *poll_until_woken(void *context)
{
    struct gyre_bootstrap *bootstrap = context;
    struct gyre_event event;
    CHECK_OK(bootstrap->ops->poll(bootstrap, 600000, &event));
    CHECK(event.kind == GYRE_EVENT_NONE);
    return NULL;
}

static void wake_body(struct gyre_bootstrap *bootstrap)
{
    pthread_t poller;
    CHECK(pthread_create(&poller, NULL, poll_until_woken, bootstrap) == 0);
    for (int i = 0; i < 20; i++)
        barrier(bootstrap); /* gathers pass while the other thread polls */
    bootstrap->ops->wake(bootstrap);
    pthread_join(poller, NULL);
    barrier(bootstrap);
    bootstrap->ops->leave(bootstrap);
}

static void a_gather_passes_a_polling_thread_and_wake_ends_it(void)
{
    over_both(3, wake_body);
}

/* ---- only over TCP ---------------------------------------------------------------------- */

/* Child: join, take part in one gather, then sit until killed. */
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

static void a_killed_process_is_lost_with_pid_and_words(void)
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
    CHECK_MSG(strstr(event.text, pid_text) != NULL && strstr(event.text, "exited") != NULL, "%s",
              event.text);
    CHECK_FAILS(bootstrap->ops->all_gather(bootstrap, "x", 1, all), GYRE_ERROR_REMOTE, "rank 1");
    bootstrap->ops->close(bootstrap);
    waitpid(pid, NULL, 0);
}

static void the_death_of_the_hubs_process_is_the_loss_of_its_rank(void)
{
    const struct gyre_params params = params_with("30");
    struct gyre_bootstrap *bootstrap = NULL;
    gyre_unique_id id;
    char all[2];
    int pipe_fds[2];
    CHECK(pipe(pipe_fds) == 0);
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        if (gyre_unique_id_create(&params, &id) == GYRE_SUCCESS &&
            write(pipe_fds[1], &id, sizeof(id)) == sizeof(id) &&
            open_tcp(&params, &id, 2, 1, &bootstrap) == GYRE_SUCCESS)
            bootstrap->ops->all_gather(bootstrap, "x", 1, all);
        for (;;)
            pause();
    }
    CHECK(read(pipe_fds[0], &id, sizeof(id)) == sizeof(id));
    CHECK_OK(open_tcp(&params, &id, 2, 0, &bootstrap));
    CHECK_OK(bootstrap->ops->all_gather(bootstrap, "x", 1, all));
    kill(pid, SIGKILL);
    const struct gyre_event event = next_event(bootstrap);
    CHECK_MSG(event.kind == GYRE_EVENT_LOST && event.rank == 1, "%d %d", event.kind, event.rank);
    CHECK_MSG(strstr(event.text, "carries the rendezvous") != NULL, "%s", event.text);
    bootstrap->ops->close(bootstrap);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    waitpid(pid, NULL, 0);
}

/* Child: a rendezvous and no rank, until killed. */
static pid_t fork_hub(const struct gyre_params *params, gyre_unique_id *id_out)
{
    int pipe_fds[2];
    CHECK(pipe(pipe_fds) == 0);
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        if (gyre_unique_id_create(params, id_out) == GYRE_SUCCESS &&
            write(pipe_fds[1], id_out, sizeof(*id_out)) == sizeof(*id_out))
            for (;;)
                pause();
        _exit(1);
    }
    CHECK(read(pipe_fds[0], id_out, sizeof(*id_out)) == sizeof(*id_out));
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    return pid;
}

/* A launcher's hub: its end ends the communicator, but it is no rank's death. */
static void the_death_of_a_hub_without_a_rank_is_nobodys_loss(void)
{
    const struct gyre_params params = params_with("30");
    struct gyre_bootstrap *bootstrap = NULL;
    struct gyre_event event;
    gyre_unique_id id;
    const pid_t pid = fork_hub(&params, &id);
    CHECK_OK(open_tcp(&params, &id, 1, 0, &bootstrap));
    kill(pid, SIGKILL);
    CHECK_FAILS(bootstrap->ops->poll(bootstrap, EVENT_WAIT_MS, &event), GYRE_ERROR_REMOTE,
                "carries the rendezvous");
    CHECK(event.kind == GYRE_EVENT_NONE);
    bootstrap->ops->close(bootstrap);
    waitpid(pid, NULL, 0);
}

/* As a data loader's workers are, which may outlive the rank. */
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

static void a_forked_child_does_not_hide_the_death_of_its_rank(void)
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

/* A child between vfork() and exec() has all descriptors, and no handler of fork() has run. The
 * sanitizer sees a hub that follows a link which is gone. */
static void a_descriptor_elsewhere_does_not_keep_a_link_in_the_hub(void)
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

/* It can end between two of the goodbyes that it passes on. */
static void nobody_waits_for_goodbyes_after_the_hubs_end(void)
{
    const struct gyre_params params = params_with("30");
    struct gyre_bootstrap *bootstrap = NULL;
    bool has_left[3] = {false};
    gyre_unique_id id;
    char all[3];
    int pipe_fds[2];
    CHECK(pipe(pipe_fds) == 0);
    const pid_t hub = fork();
    if (hub == 0) {
        alarm(60);
        if (gyre_unique_id_create(&params, &id) == GYRE_SUCCESS &&
            write(pipe_fds[1], &id, sizeof(id)) == sizeof(id) &&
            open_tcp(&params, &id, 3, 0, &bootstrap) == GYRE_SUCCESS) {
            bootstrap->ops->all_gather(bootstrap, "x", 1, all);
            bootstrap->ops->leave(bootstrap);
        }
        for (;;)
            pause();
    }
    CHECK(read(pipe_fds[0], &id, sizeof(id)) == sizeof(id));
    const pid_t silent = fork_rank(&params, &id, 3, 2); /* never says goodbye */
    CHECK_OK(open_tcp(&params, &id, 3, 1, &bootstrap));
    CHECK_OK(bootstrap->ops->all_gather(bootstrap, "x", 1, all));
    struct gyre_event event = next_event(bootstrap);
    CHECK_MSG(event.kind == GYRE_EVENT_LEFT && event.rank == 0, "%d %d", event.kind, event.rank);
    kill(hub, SIGKILL);
    while (!has_left[2] && event.kind == GYRE_EVENT_LEFT) {
        event = next_event(bootstrap);
        CHECK_MSG(event.kind == GYRE_EVENT_LEFT, "%d %d", event.kind, event.rank);
        has_left[event.rank] = true;
    }
    CHECK(has_left[2]);
    bootstrap->ops->close(bootstrap);
    kill(silent, SIGKILL);
    waitpid(silent, NULL, 0);
    waitpid(hub, NULL, 0);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

static void a_stopped_process_is_not_lost(void)
{
    const struct gyre_params params = params_with("30");
    struct gyre_bootstrap *bootstrap = NULL;
    struct gyre_event event;
    gyre_unique_id id;
    char all[2];
    char message[GYRE_MESSAGE_MAX_BYTES] = "";
    int wait_status = 0;
    CHECK_OK(gyre_unique_id_create(&params, &id));
    const pid_t pid = fork_rank(&params, &id, 2, 1);
    CHECK_OK(open_tcp(&params, &id, 2, 0, &bootstrap));
    CHECK_OK(bootstrap->ops->all_gather(bootstrap, "x", 1, all));
    kill(pid, SIGSTOP);
    CHECK(waitpid(pid, &wait_status, WUNTRACED) == pid && WIFSTOPPED(wait_status));
    /* Far more than sockets hold: neither does posting block, nor is the stopped one given up
     * because its window is full. Longer than the 8 s after which a silent host is gone. */
    for (int i = 0; i < 8192; i++)
        CHECK_OK(bootstrap->ops->post(bootstrap, 1, message, sizeof(message)));
    CHECK_OK(bootstrap->ops->poll(bootstrap, 10000, &event));
    CHECK_MSG(event.kind == GYRE_EVENT_NONE, "%s", event.text);
    kill(pid, SIGKILL);
    event = next_event(bootstrap);
    CHECK(event.kind == GYRE_EVENT_LOST && event.rank == 1);
    bootstrap->ops->close(bootstrap);
    waitpid(pid, NULL, 0);
}

static void the_id_of_a_job_that_has_ended_is_an_error_soon(void)
{
    const struct gyre_params params = params_with("3600");
    struct gyre_bootstrap *bootstrap = NULL;
    gyre_unique_id id;
    CHECK_OK(gyre_unique_id_create(&params, &id));
    CHECK_OK(open_tcp(&params, &id, 1, 0, &bootstrap));
    CHECK_FAILS(open_tcp(&params, &id, 1, 0, &bootstrap), GYRE_ERROR_SYSTEM, "refused");
    bootstrap->ops->leave(bootstrap);
    bootstrap->ops->close(bootstrap);
}

static void *raise_soon(void *fault)
{
    poll(NULL, 0, 300);
    gyre_fault_raise(fault, GYRE_ERROR_ABORTED, "given up by the test");
    return NULL;
}

/* The kernel of a stopped process takes connections all the same. */
static void a_stopped_hub_does_not_answer_and_joining_it_can_be_given_up(void)
{
    const struct gyre_params patient = params_with("3600");
    const struct gyre_params hasty = params_with("1");
    struct gyre_bootstrap *bootstrap = NULL;
    struct gyre_fault fault;
    gyre_unique_id id;
    pthread_t thread;
    const pid_t pid = fork_hub(&patient, &id);
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

/* Every rank's open() fails with this status and words. */
static void check_open_fails(struct rank_run *runs, int n, gyre_status status, const char *words)
{
    start_runs(runs, n);
    join_runs(runs, n);
    for (int i = 0; i < n; i++) {
        CHECK_MSG(runs[i].open_status == status, "rank %d: %s", runs[i].rank, runs[i].open_cause);
        CHECK_MSG(strstr(runs[i].open_cause, words) != NULL, "%s", runs[i].open_cause);
    }
}

static void a_missing_rank_is_named_on_all_others(void)
{
    const struct gyre_params params = params_with("1");
    struct rank_run runs[2] = {{.params = &params, .n_ranks = 3, .rank = 0},
                               {.params = &params, .n_ranks = 3, .rank = 2}};
    gyre_unique_id id;
    CHECK_OK(gyre_unique_id_create(&params, &id));
    runs[0].id = runs[1].id = &id;
    check_open_fails(runs, 2, GYRE_ERROR_TIMEOUT, "1 of 3 ranks have not joined: 1 ");
}

static void a_rank_twice_and_different_n_ranks_are_told_to_all(void)
{
    const struct gyre_params params = params_with("30");
    gyre_unique_id id;
    struct rank_run twice[2] = {{.params = &params, .id = &id, .n_ranks = 3, .rank = 1},
                                {.params = &params, .id = &id, .n_ranks = 3, .rank = 1}};
    struct rank_run differ[2] = {{.params = &params, .id = &id, .n_ranks = 3, .rank = 1},
                                 {.params = &params, .id = &id, .n_ranks = 4, .rank = 0}};
    CHECK_OK(gyre_unique_id_create(&params, &id));
    check_open_fails(twice, 2, GYRE_ERROR_INVALID_USAGE, "rank 1 joined twice");
    CHECK_OK(gyre_unique_id_create(&params, &id));
    check_open_fails(differ, 2, GYRE_ERROR_INVALID_USAGE, "says n_ranks is");
}

static struct gyre_id_layout layout_of(const gyre_unique_id *id)
{
    struct gyre_id_layout layout;
    memcpy(&layout, id, sizeof(layout));
    return layout;
}

static void a_wrong_secret_or_a_mangled_id_is_refused_soon(void)
{
    const struct gyre_params params = params_with("30");
    struct gyre_bootstrap *bootstrap = NULL;
    gyre_unique_id id;
    CHECK_OK(gyre_unique_id_create(&params, &id));
    gyre_unique_id other = id;
    struct gyre_id_layout layout = layout_of(&id);
    other.bytes[40] ^= 1;
    CHECK_FAILS(open_tcp(&params, &other, 1, 0, &bootstrap), GYRE_ERROR_INVALID_ARGUMENT,
                "not a unique id");
    layout.secret[3] ^= 1;
    layout.checksum = gyre_hash(GYRE_HASH_INIT, &layout, offsetof(struct gyre_id_layout, checksum));
    memcpy(&other, &layout, sizeof(other));
    CHECK_FAILS(open_tcp(&params, &other, 1, 0, &bootstrap), GYRE_ERROR_REMOTE, "another job");
    CHECK_FAILS(open_tcp(&params, &id, 2, 2, &bootstrap), GYRE_ERROR_INVALID_ARGUMENT,
                "out of range");
    /* The rightful rank still gets in. */
    CHECK_OK(open_tcp(&params, &id, 1, 0, &bootstrap));
    bootstrap->ops->leave(bootstrap);
    bootstrap->ops->close(bootstrap);
}

static void strangers_do_not_keep_ranks_out(void)
{
    enum { N_STRANGERS = 200 };
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    static const char tls[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    const struct gyre_params params = params_with("30");
    struct rank_run runs[3];
    gyre_unique_id id;
    int fds[N_STRANGERS];
    CHECK_OK(gyre_unique_id_create(&params, &id));
    const struct gyre_id_layout layout = layout_of(&id);
    memset(runs, 0, sizeof(runs));
    for (int rank = 0; rank < 3; rank++)
        runs[rank] = (struct rank_run){
            .params = &params, .id = &id, .n_ranks = 3, .rank = rank, .body = post_body};
    start_runs(runs, 2); /* rank 2 comes last, through the crowd */
    for (int i = 0; i < N_STRANGERS; i++) {
        uint8_t garbage[256];
        CHECK_OK(gyre_sock_connect(&layout.address, gyre_now_ns() + TIMEOUT_NS, &fds[i]));
        CHECK_OK(gyre_random_bytes(garbage, sizeof(garbage)));
        if (i % 4 == 1)
            send(fds[i], http, sizeof(http), MSG_NOSIGNAL);
        else if (i % 4 == 2)
            send(fds[i], tls, sizeof(tls), MSG_NOSIGNAL);
        else if (i % 4 == 3)
            send(fds[i], garbage, sizeof(garbage), MSG_NOSIGNAL);
        /* the others only hold their connection */
    }
    start_runs(runs + 2, 1);
    join_runs(runs, 3);
    for (int rank = 0; rank < 3; rank++)
        CHECK_MSG(runs[rank].open_status == GYRE_SUCCESS, "%s", runs[rank].open_cause);
    for (int i = 0; i < N_STRANGERS; i++)
        gyre_sock_close(fds[i]);
}

/* A rank that joins by hand, so that it can misbehave. */
static int join_by_hand(const gyre_unique_id *id, int n_ranks, int rank)
{
    const struct gyre_id_layout layout = layout_of(id);
    const uint64_t deadline_ns = gyre_now_ns() + TIMEOUT_NS;
    struct gyre_frame_join who = {.wire_version = GYRE_WIRE_VERSION,
                                  .n_ranks = n_ranks,
                                  .rank = rank,
                                  .pid = 1,
                                  .host = "elsewhere"};
    const struct gyre_frame frame = {.type = GYRE_FRAME_JOIN, .n_bytes = sizeof(who)};
    int fd = -1;
    CHECK_OK(gyre_sock_connect(&layout.address, deadline_ns, &fd));
    CHECK_OK(gyre_authenticate(fd, layout.secret, false, deadline_ns));
    CHECK_OK(gyre_sock_send(fd, &frame, sizeof(frame), deadline_ns));
    CHECK_OK(gyre_sock_send(fd, &who, sizeof(who), deadline_ns));
    return fd;
}

static void check_bad_frame(uint32_t type, uint32_t n_bytes)
{
    const struct gyre_params params = params_with("30");
    const struct gyre_frame frame = {.type = type, .n_bytes = n_bytes};
    struct gyre_bootstrap *bootstrap = NULL;
    gyre_unique_id id;
    CHECK_OK(gyre_unique_id_create(&params, &id));
    const int fd = join_by_hand(&id, 2, 1);
    CHECK_OK(open_tcp(&params, &id, 2, 0, &bootstrap));
    CHECK_OK(gyre_sock_send(fd, &frame, sizeof(frame), gyre_now_ns() + TIMEOUT_NS));
    const struct gyre_event event = next_event(bootstrap);
    CHECK(event.kind == GYRE_EVENT_LOST && event.rank == 1);
    CHECK_MSG(strstr(event.text, "pid 1 on elsewhere closed its connection after a malformed") !=
                  NULL,
              "%s", event.text);
    /* The own link has not suffered. */
    CHECK_OK(bootstrap->ops->post(bootstrap, 0, "me", 3));
    CHECK(next_event(bootstrap).kind == GYRE_EVENT_MESSAGE);
    bootstrap->ops->close(bootstrap);
    gyre_sock_close(fd);
}

static void a_malformed_frame_ends_only_its_own_link(void)
{
    check_bad_frame(GYRE_FRAME_GATHER, UINT32_MAX);
    check_bad_frame(GYRE_FRAME_POST, GYRE_MESSAGE_MAX_BYTES + 1);
    check_bad_frame(GYRE_FRAME_JOINED, 0);
    check_bad_frame(12345, 4);
}

struct auth_side {
    int fd;
    const uint8_t *secret;
    bool is_server;
    gyre_status status;
};

static void *run_auth(void *context)
{
    struct auth_side *side = context;
    side->status =
        gyre_authenticate(side->fd, side->secret, side->is_server, gyre_now_ns() + TIMEOUT_NS);
    if (side->status != GYRE_SUCCESS)
        shutdown(side->fd, SHUT_RDWR);
    return NULL;
}

static void only_the_same_secret_authenticates(void)
{
    uint8_t secrets[2][GYRE_SECRET_BYTES];
    CHECK_OK(gyre_random_bytes(secrets, sizeof(secrets)));
    for (int other = 0; other < 2; other++) {
        struct auth_side sides[2];
        pthread_t threads[2];
        int fds[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
        for (int i = 0; i < 2; i++) {
            sides[i] = (struct auth_side){fds[i], secrets[i * other], i == 0, GYRE_SUCCESS};
            CHECK(pthread_create(&threads[i], NULL, run_auth, &sides[i]) == 0);
        }
        for (int i = 0; i < 2; i++) {
            pthread_join(threads[i], NULL);
            CHECK(sides[i].status == (other == 0 ? GYRE_SUCCESS : GYRE_ERROR_REMOTE));
            close(fds[i]);
        }
    }
}

static const struct test_case cases[] = {
    {"only the same secret authenticates", only_the_same_secret_authenticates},
    {"all_gather brings every rank's bytes", all_gather_brings_every_ranks_bytes},
    {"all_gather_v takes a size per rank", all_gather_v_takes_a_size_per_rank},
    {"different sizes in all_gather are an error on every rank",
     different_sizes_in_all_gather_are_an_error_on_every_rank},
    {"posts reach one or all others", posts_reach_one_or_all_others},
    {"goodbye is told and is no loss", goodbye_is_told_and_is_no_loss},
    {"a rank that closes without goodbye is lost", a_rank_that_closes_without_goodbye_is_lost},
    {"giving up ends the others' wait with the reason",
     giving_up_ends_the_others_wait_with_the_reason},
    {"a gather passes a polling thread and wake ends it",
     a_gather_passes_a_polling_thread_and_wake_ends_it},
    {"a killed process is lost with pid and words", a_killed_process_is_lost_with_pid_and_words},
    {"the death of the hub's process is the loss of its rank",
     the_death_of_the_hubs_process_is_the_loss_of_its_rank},
    {"the death of a hub without a rank is nobody's loss",
     the_death_of_a_hub_without_a_rank_is_nobodys_loss},
    {"a forked child does not hide the death of its rank",
     a_forked_child_does_not_hide_the_death_of_its_rank},
    {"a descriptor elsewhere does not keep a link in the hub",
     a_descriptor_elsewhere_does_not_keep_a_link_in_the_hub},
    {"nobody waits for goodbyes after the hub's end", nobody_waits_for_goodbyes_after_the_hubs_end},
    {"a stopped process is not lost", a_stopped_process_is_not_lost},
    {"the id of a job that has ended is an error soon",
     the_id_of_a_job_that_has_ended_is_an_error_soon},
    {"a stopped hub does not answer, and joining it can be given up",
     a_stopped_hub_does_not_answer_and_joining_it_can_be_given_up},
    {"a missing rank is named on all others", a_missing_rank_is_named_on_all_others},
    {"a rank twice and different n_ranks are told to all",
     a_rank_twice_and_different_n_ranks_are_told_to_all},
    {"a wrong secret or a mangled id is refused soon",
     a_wrong_secret_or_a_mangled_id_is_refused_soon},
    {"strangers do not keep ranks out", strangers_do_not_keep_ranks_out},
    {"a malformed frame ends only its own link", a_malformed_frame_ends_only_its_own_link},
};

TEST_MAIN(cases)
