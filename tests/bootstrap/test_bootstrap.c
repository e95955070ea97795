/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/bootstrap_server.h"
#include "bootstrap/meet.h"
#include "core/foundation/base/util.h"
#include "tests/support/bootstrap_rig.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>

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
    CHECK_BAD_ARGUMENT(
        bootstrap->ops->all_gather(bootstrap, "", (16u << 20) / (unsigned)n + 1, NULL), "at most");
    barrier(bootstrap);
    bootstrap->ops->leave(bootstrap);
}

TEST_CASE("all_gather brings every rank's bytes")
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

TEST_RUNS("all_gather_v takes a size per rank", over_both(4, gather_v_body))

static void uneven_body(struct gyre_bootstrap *bootstrap)
{
    char all[MAX_RANKS * 8];
    const size_t n_mine = bootstrap->rank == 1 ? 8 : 4;
    CHECK_BAD_USAGE(bootstrap->ops->all_gather(bootstrap, "12345678", n_mine, all), "same step");
    barrier(bootstrap);
    bootstrap->ops->leave(bootstrap);
}

TEST_RUNS("different sizes in all_gather are an error on every rank", over_both(3, uneven_body))

static void post_body(struct gyre_bootstrap *bootstrap)
{
    const int n = bootstrap->n_ranks;
    const int next = (bootstrap->rank + 1) % n;
    int n_from_all = 0;
    char big[GYRE_MESSAGE_MAX_BYTES + 1] = "to all";
    barrier(bootstrap);
    CHECK_OK(bootstrap->ops->post(bootstrap, next, "to next", 8));
    CHECK_OK(bootstrap->ops->post(bootstrap, -1, big, GYRE_MESSAGE_MAX_BYTES));
    CHECK_BAD_ARGUMENT(bootstrap->ops->post(bootstrap, -1, big, sizeof(big)), "at most 2048");
    CHECK_BAD_ARGUMENT(bootstrap->ops->post(bootstrap, n, "x", 1), "rank");
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
    struct gyre_event more; /* none of its own; a goodbye at most */
    CHECK_OK(bootstrap->ops->poll(bootstrap, 0, &more));
    CHECK(more.kind != GYRE_EVENT_MESSAGE);
    bootstrap->ops->leave(bootstrap);
}

TEST_RUNS("posts reach one or all others", over_both(4, post_body))

static void left_body(struct gyre_bootstrap *bootstrap)
{
    barrier(bootstrap);
    if (bootstrap->rank == 1) {
        bootstrap->ops->leave(bootstrap);
        return;
    }
    const struct gyre_event event = next_event(bootstrap);
    CHECK_MSG(event.kind == GYRE_EVENT_LEFT && event.rank == 1, "%d %d", event.kind, event.rank);
    struct gyre_event more; /* rank 1 closes meanwhile */
    CHECK_OK(bootstrap->ops->poll(bootstrap, 100, &more));
    CHECK_MSG(more.kind == GYRE_EVENT_NONE, "%d %d", more.kind, more.rank);
    char all[MAX_RANKS];
    CHECK_FAILS(bootstrap->ops->all_gather(bootstrap, "x", 1, all), GYRE_ERROR_REMOTE, "rank 1");
    bootstrap->ops->leave(bootstrap);
}

TEST_RUNS("goodbye is told and is no loss", over_both(2, left_body))

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

TEST_RUNS("giving up ends the others' wait with the reason", over_both(2, fail_body))

static void check_body(struct gyre_bootstrap *bootstrap)
{
    const uint64_t deadline_ns = gyre_now_ns() + TIMEOUT_NS;
    gyre_status status = GYRE_SUCCESS;
    CHECK_OK(bootstrap->ops->check(bootstrap));
    barrier(bootstrap);
    if (bootstrap->rank == 1) {
        bootstrap->ops->fail(bootstrap, "the switch is on fire");
        return;
    }
    while (status == GYRE_SUCCESS && gyre_now_ns() < deadline_ns) {
        status = bootstrap->ops->check(bootstrap);
        sched_yield();
    }
    CHECK_MSG(status == GYRE_ERROR_REMOTE, "%s", gyre_cause());
    CHECK_HAS(gyre_cause(), "rank 1 gave up: the switch is on fire");
}

TEST_RUNS("a check tells of a rank that gave up", over_both(3, check_body))

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

TEST_RUNS("a gather passes a polling thread and wake ends it", over_both(3, wake_body))

TEST_CASE("the id of a job that has ended is an error soon")
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

static void check_ends(struct rank_run *runs, int n, gyre_status status, const char *words)
{
    join_runs(runs, n);
    for (int i = 0; i < n; i++) {
        CHECK_MSG(runs[i].open_status == status, "rank %d: %s", runs[i].rank, runs[i].open_cause);
        CHECK_HAS(runs[i].open_cause, words);
    }
}

static void check_open_fails(struct rank_run *runs, int n, gyre_status status, const char *words)
{
    start_runs(runs, n);
    check_ends(runs, n, status, words);
}

TEST_CASE("a missing rank is named on all others")
{
    const struct gyre_params params = params_with("1");
    struct rank_run runs[2] = {{.params = &params, .n_ranks = 3, .rank = 0},
                               {.params = &params, .n_ranks = 3, .rank = 2}};
    gyre_unique_id id;
    CHECK_OK(gyre_unique_id_create(&params, &id));
    runs[0].id = runs[1].id = &id;
    check_open_fails(runs, 2, GYRE_ERROR_TIMEOUT, "1 of 3 ranks have not joined: 1 ");
}

TEST_CASE("a rank twice and different n_ranks are told to all")
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

TEST_CASE("a rank that fails before it joins ends the others")
{
    const struct gyre_params params = params_with("3600");
    struct rank_run runs[3] = {{.params = &params, .n_ranks = 4, .rank = 0},
                               {.params = &params, .n_ranks = 4, .rank = 3},
                               {.params = &params, .n_ranks = 4, .rank = 1}};
    const struct gyre_bootstrap_place place = {4, 2, NULL};
    gyre_unique_id id;
    CHECK_OK(gyre_unique_id_create(&params, &id));
    runs[0].id = runs[1].id = runs[2].id = &id;
    start_runs(runs, 2);
    gyre_bootstrap_tcp_give_up(&id, &place, "GYRE_X is no variable");
    check_ends(runs, 2, GYRE_ERROR_REMOTE, "rank 2 failed: GYRE_X is no variable");
    /* The rank that comes later fails too. */
    check_open_fails(runs + 2, 1, GYRE_ERROR_REMOTE, "rank 2 failed: GYRE_X is no variable");
}

static void *raise_fault(void *fault)
{
    gyre_fault_raise(fault, GYRE_ERROR_ABORTED, "given up by the test");
    return NULL;
}

TEST_CASE("a rank that is given up while it joins ends the others")
{
    const struct gyre_params params = params_with("3600");
    struct rank_run other = {.params = &params, .n_ranks = 3, .rank = 0};
    struct gyre_bootstrap *bootstrap = NULL;
    struct gyre_fault fault;
    pthread_t thread;
    gyre_unique_id id;
    CHECK_OK(gyre_unique_id_create(&params, &id));
    other.id = &id;
    start_runs(&other, 1);
    gyre_fault_init(&fault);
    const struct gyre_bootstrap_place place = {3, 1, &fault};
    CHECK(pthread_create(&thread, NULL, raise_fault, &fault) == 0);
    CHECK_FAILS(gyre_bootstrap_tcp_open(&params, &id, &place, &bootstrap), GYRE_ERROR_ABORTED,
                "given up");
    pthread_join(thread, NULL);
    check_ends(&other, 1, GYRE_ERROR_REMOTE, "rank 1 failed: init was given up");
    gyre_fault_fini(&fault);
}

TEST_CASE("lines about missing ranks become rarer")
{
    static const uint64_t expected_s[] = {10, 20, 40, 80, 140, 200};
    struct gyre_server_link *ranks[2] = {NULL, NULL};
    struct gyre_server server = {.n_ranks = 2,
                                 .ranks = ranks,
                                 .deadline_ns = UINT64_MAX,
                                 .next_progress_ns = 5000000000ULL,
                                 .progress_ns = 5000000000ULL};
    uint64_t now_s = 5;
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(expected_s); i++) {
        gyre_server_check_deadlines(&server, now_s * 1000000000ULL);
        CHECK_MSG(server.next_progress_ns == expected_s[i] * 1000000000ULL,
                  "after %llu s the next line comes at %llu ns", (unsigned long long)now_s,
                  (unsigned long long)server.next_progress_ns);
        now_s = expected_s[i];
    }
}

static struct gyre_id_layout layout_of(const gyre_unique_id *id)
{
    struct gyre_id_layout layout;
    memcpy(&layout, id, sizeof(layout));
    return layout;
}

TEST_CASE("a wrong secret or a mangled id is refused soon")
{
    const struct gyre_params params = params_with("30");
    struct gyre_bootstrap *bootstrap = NULL;
    gyre_unique_id id;
    CHECK_OK(gyre_unique_id_create(&params, &id));
    gyre_unique_id other = id;
    struct gyre_id_layout layout = layout_of(&id);
    other.bytes[40] ^= 1;
    CHECK_BAD_ARGUMENT(open_tcp(&params, &other, 1, 0, &bootstrap), "not a unique id");
    layout.secret[3] ^= 1;
    layout.checksum = gyre_hash(GYRE_HASH_INIT, &layout, offsetof(struct gyre_id_layout, checksum));
    memcpy(&other, &layout, sizeof(other));
    CHECK_FAILS(open_tcp(&params, &other, 1, 0, &bootstrap), GYRE_ERROR_REMOTE, "another job");
    CHECK_BAD_ARGUMENT(open_tcp(&params, &id, 2, 2, &bootstrap), "out of range");
    /* The rightful rank still gets in. */
    CHECK_OK(open_tcp(&params, &id, 1, 0, &bootstrap));
    bootstrap->ops->leave(bootstrap);
    bootstrap->ops->close(bootstrap);
}

TEST_CASE("strangers do not keep ranks out")
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
    const struct gyre_sock_address address = address_of(&layout);
    memset(runs, 0, sizeof(runs));
    for (int rank = 0; rank < 3; rank++)
        runs[rank] = (struct rank_run){
            .params = &params, .id = &id, .n_ranks = 3, .rank = rank, .body = post_body};
    start_runs(runs, 2); /* rank 2 comes last, through the crowd */
    for (int i = 0; i < N_STRANGERS; i++) {
        uint8_t garbage[256];
        CHECK_OK(gyre_sock_connect(&address, gyre_now_ns() + TIMEOUT_NS, &fds[i]));
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

/* By hand, to misbehave. */
static int join_by_hand(const gyre_unique_id *id, int n_ranks, int rank, int nap_ms)
{
    const struct gyre_id_layout layout = layout_of(id);
    const struct gyre_sock_address address = address_of(&layout);
    const uint64_t deadline_ns = gyre_now_ns() + TIMEOUT_NS;
    struct gyre_frame_join who = {.wire_version = GYRE_WIRE_VERSION,
                                  .n_ranks = n_ranks,
                                  .rank = rank,
                                  .pid = 1,
                                  .host = "elsewhere"};
    const struct gyre_frame frame = {.type = GYRE_FRAME_JOIN, .n_bytes = sizeof(who)};
    int fd = -1;
    CHECK_OK(gyre_sock_connect(&address, deadline_ns, &fd));
    CHECK_OK(gyre_authenticate(fd, layout.secret, false, deadline_ns));
    poll(NULL, 0, nap_ms);
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
    const int fd = join_by_hand(&id, 2, 1, 0);
    CHECK_OK(open_tcp(&params, &id, 2, 0, &bootstrap));
    CHECK_OK(gyre_sock_send(fd, &frame, sizeof(frame), gyre_now_ns() + TIMEOUT_NS));
    const struct gyre_event event = next_event(bootstrap);
    CHECK(event.kind == GYRE_EVENT_LOST && event.rank == 1);
    CHECK_HAS(event.text, "pid 1 on elsewhere closed its connection after a malformed");
    /* The own link has not suffered. */
    CHECK_OK(bootstrap->ops->post(bootstrap, 0, "me", 3));
    CHECK(next_event(bootstrap).kind == GYRE_EVENT_MESSAGE);
    bootstrap->ops->close(bootstrap);
    gyre_sock_close(fd);
}

/* On a busy machine. A stranger has five seconds; a rank that knows the secret is none. */
TEST_CASE("a rank that is slow after its proof still joins")
{
    const struct gyre_params params = params_with("30");
    struct gyre_bootstrap *bootstrap = NULL;
    gyre_unique_id id;
    CHECK_OK(gyre_unique_id_create(&params, &id));
    const int fd = join_by_hand(&id, 2, 1, 5200);
    CHECK_OK(open_tcp(&params, &id, 2, 0, &bootstrap));
    bootstrap->ops->close(bootstrap);
    gyre_sock_close(fd);
}

TEST_CASE("a malformed frame ends only its own link")
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

TEST_CASE("only the same secret authenticates")
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

TEST_CASE("a peer that gives a rank's own proof back is refused")
{
    uint8_t secret[GYRE_SECRET_BYTES];
    const uint64_t deadline_ns = gyre_now_ns() + TIMEOUT_NS;
    struct gyre_stranger mirror;
    pthread_t thread;
    int fds[2];
    CHECK_OK(gyre_random_bytes(secret, sizeof(secret)));
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    struct auth_side rank = {fds[0], secret, false, GYRE_SUCCESS};
    CHECK(gyre_stranger_greet(&mirror, fds[1]));
    CHECK(pthread_create(&thread, NULL, run_auth, &rank) == 0);
    CHECK_OK(gyre_sock_recv(fds[1], &mirror.answer, sizeof(mirror.answer), deadline_ns));
    CHECK_OK(gyre_sock_send(fds[1], mirror.answer.proof, GYRE_PROOF_BYTES, deadline_ns));
    pthread_join(thread, NULL);
    CHECK(rank.status == GYRE_ERROR_REMOTE);
    close(fds[0]);
    close(fds[1]);
}

TEST_CASE("the words of a reset do not depend on who saw its error")
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct linger at_once = {.l_onoff = 1};
    for (int is_reset = 0; is_reset < 2; is_reset++) {
        socklen_t n_address = sizeof(address);
        struct gyre_wire_watch watch;
        char byte = 'x';
        char text[160];
        const int listener = socket(AF_INET, SOCK_STREAM, 0);
        const int peer = socket(AF_INET, SOCK_STREAM, 0);
        address.sin_port = 0;
        CHECK(bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0);
        CHECK(listen(listener, 1) == 0);
        CHECK(getsockname(listener, (struct sockaddr *)&address, &n_address) == 0);
        CHECK(connect(peer, (struct sockaddr *)&address, sizeof(address)) == 0);
        const int fd = accept(listener, NULL, NULL);
        gyre_wire_watch_start(fd, &watch);
        if (is_reset) {
            CHECK(setsockopt(peer, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)) == 0);
            close(peer);
            CHECK(send(fd, &byte, 1, MSG_NOSIGNAL) == -1 && errno == ECONNRESET);
        } else {
            close(peer);
        }
        CHECK(recv(fd, &byte, 1, 0) == 0);
        gyre_wire_end_text(fd, 0, &watch, text, sizeof(text));
        CHECK_MSG((strstr(text, "(reset)") != NULL) == is_reset, "%s", text);
        close(fd);
        close(listener);
    }
}

TEST_CASE("ranks that make the id themselves meet at the address")
{
    static const char *const hosts[] = {"127.0.0.1", "[::1]", "localhost", "127.0.0.1"};
    char address[64];
    const int port = free_port();
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(hosts); i++) {
        snprintf(address, sizeof(address), "%s:%d", hosts[i], port);
        /* Each rank has its own id; rank 0 comes last. */
        const int n_ranks = 3 - (int)i % 3;
        gyre_comm *comms[3] = {NULL};
        uint64_t ids[3] = {0};
        gyre_config config = GYRE_CONFIG_INIT;
        config.device_kind = GYRE_DEVICE_HOST;
        setenv("NCCL_COMM_ID", address, 1);
        CHECK_OK(gyre_group_start());
        for (int rank = n_ranks - 1; rank >= 0; rank--) {
            gyre_unique_id id;
            CHECK_OK(gyre_get_unique_id(&id));
            CHECK_OK(gyre_comm_init_rank(&comms[rank], n_ranks, &id, rank, &config));
        }
        CHECK_OK(gyre_group_end());
        for (int rank = 0; rank < n_ranks; rank++) {
            gyre_properties facts = GYRE_PROPERTIES_INIT;
            CHECK_OK(gyre_comm_properties(comms[rank], &facts));
            CHECK(facts.rank == rank && facts.n_ranks == n_ranks);
            ids[rank] = facts.id;
            CHECK(ids[rank] == ids[0]);
            CHECK_OK(gyre_comm_destroy(comms[rank]));
        } /* also a communicator of one rank */
    }
}

TEST_CASE("an address that is none is refused by name")
{
    static const char *const bad[] = {"host",       "host:",   ":1",    "host:0",
                                      "host:65536", "host:9x", "::1:9", "[::1]"};
    gyre_unique_id id;
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(bad); i++) {
        setenv("NCCL_COMM_ID", bad[i], 1);
        CHECK_BAD_ARGUMENT(gyre_get_unique_id(&id), "NCCL_COMM_ID=");
    }
}

TEST_CASE("failures at the address are told to all")
{
    struct gyre_params params = params_with("30");
    char address[64];
    gyre_unique_id id;
    struct rank_run differ[2] = {{.params = &params, .id = &id, .n_ranks = 2, .rank = 0},
                                 {.params = &params, .id = &id, .n_ranks = 3, .rank = 1}};
    snprintf(address, sizeof(address), "localhost:%d", free_port());
    CHECK_OK(gyre_param_override(&params, GYRE_PARAM_COMM_ID, "NCCL_COMM_ID", address));
    CHECK_OK(gyre_unique_id_at_address(&params, &id));
    check_open_fails(differ, 2, GYRE_ERROR_INVALID_USAGE, "rank 0 has n_ranks=2, rank 1 (pid ");
    const struct gyre_bootstrap_place place = {2, 1, NULL};
    struct rank_run waiting[1] = {{.params = &params, .id = &id, .n_ranks = 2, .rank = 0}};
    start_runs(waiting, 1);
    gyre_bootstrap_tcp_give_up(&id, &place, "GYRE_X is no variable");
    join_runs(waiting, 1);
    CHECK_HAS(waiting[0].open_cause, "GYRE_X is no variable");
}

static void *answer_wrongly(void *listener)
{
    const uint64_t deadline_ns = gyre_now_ns() + 30 * GYRE_SECOND_NS;
    const char noise[sizeof(struct gyre_meet_answer)] = "HTTP/1.1 400";
    int fd = -1;
    CHECK_OK(gyre_sock_accept(*(const int *)listener, deadline_ns, &fd));
    CHECK_OK(gyre_sock_send(fd, noise, sizeof(noise), deadline_ns));
    gyre_sock_close(fd);
    return NULL;
}

TEST_CASE("another program at the address is told, and costs no descriptor")
{
    struct gyre_sock_address bound, address = {.family = AF_INET, .bytes = {127, 0, 0, 1}};
    struct gyre_meet_place place = {
        .source = "NCCL_COMM_ID", .address = "127.0.0.1", .job = "", .rank = 1, .n_ranks = 2};
    struct gyre_meet_answer answer;
    pthread_t thread;
    int listener = -1, fd = -1;
    CHECK_OK(gyre_sock_listen(&address, &listener, &bound));
    place.port = bound.port;
    const int lowest = dup(STDERR_FILENO);
    close(lowest);
    CHECK(pthread_create(&thread, NULL, answer_wrongly, &listener) == 0);
    CHECK_FAILS(gyre_meet_say_hello(&place, gyre_now_ns() + 30 * GYRE_SECOND_NS, &fd, &answer),
                GYRE_ERROR_REMOTE, "another program listens there");
    pthread_join(thread, NULL);
    const int lowest_after = dup(STDERR_FILENO);
    CHECK(lowest_after == lowest);
    close(lowest_after);
    gyre_sock_close(listener);
}

TEST_TOGETHER(8)
