/* SPDX-License-Identifier: Apache-2.0
 *
 * With GYRE_FAILOVER=1, rails of the device between processes fail while calls run, and every
 * result is right in every bit. This process injects the failures.
 */
#include "core/foundation/base/util.h"
#include "core/foundation/model/connector.h"
#include "core/gyre.h"
#include "tests/nic/wire_faults.h"
#include "tests/support/calls.h"

#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { N_RANKS = 4, MAX_FAILURES = 1000 };

#define SLOW_NS 1500000000ULL
#define HOUR_NS UINT64_C(3600000000000)

static struct shared {
    uint32_t stops;
    uint32_t has_no_rail; /* no communicator is made, because a port must be active then */
    uint32_t n_wrong;
    uint32_t n_rounds;
    uint32_t phase;       /* of late bytes */
    uint32_t n_events[2]; /* of connections: failures, moves; of rank 0 */
    uint32_t n_both;      /* moves of rank 0 onto both rails */
    uint32_t n_sockets;   /* and onto sockets */
    uint32_t n_resets[2]; /* of sockets: wanted, done */
    uint64_t gap_ns;      /* the longest between two ends of calls of rank 0 */
} * shared;

static char metrics_path[80];
static bool has_sockets; /* jobs may use them; else they wait for a rail */

static void wait_ms(uint64_t ms)
{
    const struct timespec time = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000L};
    (void)nanosleep(&time, NULL);
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* Whoever puts again needs this rank's part in a later sum. */
static uint32_t put_around(const struct calls *calls, gyre_window window, const uint32_t *landed,
                           size_t count)
{
    const int next = (calls->rank + 1) % calls->n_ranks;
    const int previous = (calls->rank + calls->n_ranks - 1) % calls->n_ranks;
    const gyre_put_target target = {.peer = next, .window = window, .signal = 0};
    const gyre_signal_wait wait = {.peer = previous, .signal = 0, .count = 1};
    CHECK_OK(gyre_put(calls->in, count, GYRE_UINT32, &target, calls->comm, calls->stream));
    CHECK_OK(gyre_wait_signal(&wait, 1, calls->comm, calls->stream));
    CHECK_OK(gyre_stream_synchronize(calls->stream, test_device()));
    return calls_differ(calls, landed, previous, count);
}

/* Connections are made while rails fail. */
static uint32_t in_new_communicator(const struct calls *calls, size_t count)
{
    gyre_comm *made = NULL;
    CHECK_OK(gyre_comm_split(calls->comm, 0, calls->rank, &made, NULL));
    const uint32_t n_wrong = calls_all_reduce(calls, made, count);
    CHECK_OK(gyre_comm_destroy(made));
    return n_wrong;
}

/* The longest time between two ends of calls. */
static void note_round(uint64_t *ended_ns)
{
    const uint64_t now_ns = gyre_now_ns();
    if (now_ns - *ended_ns > shared->gap_ns)
        shared->gap_ns = now_ns - *ended_ns;
    *ended_ns = now_ns;
    gyre_store_release_u32(&shared->n_rounds, shared->n_rounds + 1);
}

TEST_RANK(call_through_failures)
{
    struct calls calls = calls_open(comm, rank, n_ranks);
    uint32_t stops = 0, has_no_rail = 0, *landed;
    const size_t landed_bytes = CALLS_MAX_COUNT * sizeof(*landed);
    gyre_window window;
    CHECK_OK(gyre_mem_alloc((void **)&landed, landed_bytes, test_device(), -1));
    CHECK_OK(gyre_window_register(comm, landed, landed_bytes, &window));
    CHECK_OK(gyre_comm_split(comm, rank % 2, rank, &calls.half, NULL));
    uint64_t ended_ns = gyre_now_ns();
    while (stops == 0 && test_n_failures == 0) {
        const size_t count = calls_fill(&calls, calls.round / 4);
        const uint32_t n_wrong = calls.round % 64 == 63 && !has_no_rail
                                     ? in_new_communicator(&calls, count)
                                 : calls.round % 4 == 1 ? calls_halves(&calls, count)
                                 : calls.round % 4 == 2 ? calls_send_around(&calls, count)
                                 : calls.round % 8 == 3 ? put_around(&calls, window, landed, count)
                                                        : calls_all_reduce(&calls, comm, count);
        gyre_fetch_add_u32(&shared->n_wrong, n_wrong);
        calls.round++;
        /* All ranks do the same. */
        calls.in[0] = gyre_load_acquire_u32(&shared->stops);
        calls.in[1] = gyre_load_acquire_u32(&shared->has_no_rail);
        CHECK_OK(gyre_broadcast(calls.in, calls.out, 2, GYRE_UINT32, 0, comm, calls.stream));
        CHECK_OK(gyre_stream_synchronize(calls.stream, test_device()));
        stops = calls.out[0];
        has_no_rail = calls.out[1];
        if (rank == 0)
            note_round(&ended_ns);
    }
    if (test_n_failures == 0)
        CHECK_OK(gyre_window_deregister(comm, window));
    calls_close(&calls);
    CHECK_OK(gyre_mem_free(landed, test_device()));
}

/* ---- jobs ----------------------------------------------------------------------------------- */

/* The lower half of the ranks is on the first host. */
static void enter_host(int rank, int n_ranks)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", rank * 2 / n_ranks + 1);
    setenv("VERBS_WIRE_HOST", text, 1);
    snprintf(text, sizeof(text), "host%d", rank * 2 / n_ranks + 1);
    setenv("GYRE_HOSTID", text, 1);
}

static void start_job(int n_ranks, test_rank_fn run, pid_t *pids)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    begin_faults("failover");
    set_faults("# none\n");
    if (has_sockets)
        unsetenv("GYRE_TRANSPORT");
    else
        setenv("GYRE_TRANSPORT", "ib", 1);
    setenv("GYRE_FAILOVER", "1", 1);
    test_enter_rank = enter_host;
    test_fork_ranks(n_ranks, run, NULL, pids);
}

static bool end_job(int n_ranks, const pid_t *pids)
{
    bool is_right = true;
    set_faults("# none\n");
    gyre_store_release_u32(&shared->stops, 1);
    for (int rank = 0; rank < n_ranks; rank++)
        is_right = test_wait_rank(pids[rank]) && is_right;
    remove_faults();
    return is_right;
}

/* Until the job has made so many rounds, or for so long; false if it ends first. */
static bool wait_all_rounds_for(uint32_t n, pid_t pid, uint64_t most_ns)
{
    const uint64_t until_ns = gyre_now_ns() + most_ns;
    while (gyre_load_acquire_u32(&shared->n_rounds) < n && gyre_now_ns() < until_ns) {
        siginfo_t info = {.si_pid = 0};
        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0)
            return false;
        wait_ms(1);
    }
    return true;
}

/* So many more. */
static bool wait_rounds_for(uint32_t n, pid_t pid, uint64_t most_ns)
{
    return wait_all_rounds_for(gyre_load_acquire_u32(&shared->n_rounds) + n, pid, most_ns);
}

static bool wait_rounds(uint32_t n, pid_t pid)
{
    return wait_rounds_for(n, pid, HOUR_NS);
}

/* ---- failures ------------------------------------------------------------------------------- */

/* %h, %o: a host and the other one; %r, %s: a rail and the other one. Silent ones end calls only
 * after the time that proves them. */
static const struct failure {
    const char *text;
    bool is_silent;
} kinds[] = {
    {"%h %r down\n", false},
    {"%h %r down\n%o %r down\n", false},
    {"%h %r down\n%o %s late_ms 5\n", false},
    {"%h %r down\n%h %r destroy_ms 20\n", false},
    {"%h %r only_answer\n", true},
    {"%h %r lose_out\n", true},
    {"%h %r lose_in\n", true},
    {"%h %r lose_answers\n", true},
    {"%h 0 down\n%h 1 down\n", false}, /* this and the next: no rail is left */
    {"%h 0 down\n%o 1 down\n", false},
    {"%h 0 lose_out\n%h 1 lose_in\n", true}, /* only if there are sockets */
};

enum { N_KINDS = GYRE_ARRAY_LENGTH(kinds), N_OF_ALL_RAILS = 3 };

static void write_failure(const char *pattern, struct fuzz_rng *random, char *text)
{
    const uint64_t host = fuzz_below(random, 2), rail = fuzz_below(random, 2);
    char *at = text;
    for (const char *from = pattern; *from != '\0'; from++) {
        if (*from != '%') {
            *at++ = *from;
            continue;
        }
        from++;
        if (*from == 'h' || *from == 'o')
            at += sprintf(at, "host%d", (int)(*from == 'h' ? host : 1 - host) + 1);
        else
            *at++ = (char)('0' + (*from == 'r' ? rail : 1 - rail));
    }
    *at = '\0';
}

static int compare_times(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static void print_times(const char *what, uint64_t *times, int n)
{
    qsort(times, (size_t)n, sizeof(*times), compare_times);
    if (n > 0)
        printf("     %d failures that %s: calls stood still for %.1f ms in the median, %.1f ms at "
               "most\n",
               n, what, (double)times[n / 2] / 1e6, (double)times[n - 1] / 1e6);
}

/* With GYRE_DEBUG=WARN the log before this line says what has waited. */
static void print_if_slow(uint64_t gap_ns, const char *text)
{
    if (gap_ns >= SLOW_NS)
        printf("     calls stood still for %.1f ms: %s", (double)gap_ns / 1e6, text);
    (void)fflush(stdout);
}

static void fail_at_random(int n_failures, uint64_t seed)
{
    static uint64_t times[2][MAX_FAILURES];
    int n_times[2] = {0, 0};
    struct fuzz_rng random = {seed};
    char text[120] = "";
    pid_t pids[N_RANKS];
    setenv("GYRE_TIMEOUT", "30000", 1);
    start_job(N_RANKS, call_through_failures, pids);
    bool runs = wait_rounds(1, pids[0]);
    for (int i = 0; i < n_failures && runs; i++) {
        const bool is_of_all = has_sockets && fuzz_once_in(&random, 2);
        const uint64_t nth = is_of_all ? N_KINDS - 1 - fuzz_below(&random, N_OF_ALL_RAILS)
                                       : fuzz_below(&random, N_KINDS - (has_sockets ? 0 : 1));
        const struct failure *kind = &kinds[nth];
        write_failure(kind->text, &random, text);
        if (strstr(kind->text, " 1 ") != NULL) {
            gyre_store_release_u32(&shared->has_no_rail, 1);
            runs = wait_rounds(2, pids[0]);
        }
        wait_ms(fuzz_below(&random, 60));
        shared->gap_ns = 0;
        set_faults(text);
        /* A port may also be back before anybody has noticed. A communicator that was made while a
         * rail was down has only the other one. */
        if (kind->is_silent && strstr(text, "only_answer") == NULL)
            runs = wait_rounds_for(8, pids[0], UINT64_C(6000000000));
        else
            wait_ms(fuzz_below(&random, fuzz_once_in(&random, 2) ? 200 : 20));
        /* A rail that answers what it has lost must fail, or nobody learns of it. */
        if (strstr(text, "only_answer") != NULL) {
            memcpy(strstr(text, "only_answer"), "down       ", strlen("only_answer"));
            set_faults(text);
            wait_ms(50);
            runs = wait_rounds(8, pids[0]);
        }
        set_faults("# none\n");
        runs = runs && wait_rounds(4, pids[0]);
        gyre_store_release_u32(&shared->has_no_rail, 0);
        times[kind->is_silent][n_times[kind->is_silent]++] = shared->gap_ns;
        print_if_slow(shared->gap_ns, text);
    }
    const bool has_ended = end_job(N_RANKS, pids);
    unsetenv("GYRE_TIMEOUT");
    CHECK_MSG(runs && has_ended, "the job has failed after %d failures, the last: %s",
              n_times[0] + n_times[1], text);
    CHECK_MSG(shared->n_wrong == 0, "%u wrong elements", shared->n_wrong);
    print_times("a port reports", times[0], n_times[0]);
    print_times("nothing reports", times[1], n_times[1]);
}

TEST_CASE("random failures of rails change no bit of sums, groups, halves, sends, puts and new "
          "communicators")
{
    fail_at_random(30, 11);
}

TEST_CASE("nor of sums in two levels")
{
    setenv("GYRE_ALGO", "all_reduce:two_level_ring", 1);
    fail_at_random(getenv("TEST_LONG") != NULL ? 200 : 10, 13);
    unsetenv("GYRE_ALGO");
}

/* ---- late bytes ----------------------------------------------------------------------------- */

enum { HELD = 1, SENT, DOWN, RECEIVED, SENT_AGAIN, LANDED, ENDED };

static void go_to_phase(uint32_t phase)
{
    gyre_store_release_u32(&shared->phase, phase);
}

/* From rank 0 to rank 1, as many messages as a FIFO has slots; each fills one. */
static void move_lap(gyre_comm *comm, int rank, uint64_t lap, gyre_stream stream)
{
    uint32_t data[1024];
    for (uint64_t i = 0; i < GYRE_COMM_DEPTH; i++) {
        const uint64_t message = lap * GYRE_COMM_DEPTH + i;
        for (size_t at = 0; at < GYRE_ARRAY_LENGTH(data); at++)
            data[at] = rank == 0 ? calls_value(0, message, at) : 0;
        if (rank == 0)
            CHECK_OK(gyre_send(data, GYRE_ARRAY_LENGTH(data), GYRE_UINT32, 1, comm, stream));
        else
            CHECK_OK(gyre_recv(data, GYRE_ARRAY_LENGTH(data), GYRE_UINT32, 0, comm, stream));
        CHECK_OK(gyre_stream_synchronize(stream, test_device()));
        for (size_t at = 0; at < GYRE_ARRAY_LENGTH(data); at++)
            shared->n_wrong += data[at] != calls_value(0, message, at);
    }
}

/* A lap of messages is sent before any of it is received. */
TEST_RANK(send_two_laps)
{
    static const uint32_t may_send[] = {HELD, RECEIVED}, may_receive[] = {DOWN, LANDED};
    gyre_stream stream;
    (void)n_ranks;
    CHECK_OK(gyre_stream_create(&stream, test_device(), -1));
    for (uint32_t lap = 0; lap < 2; lap++) {
        test_await(&shared->phase, rank == 0 ? may_send[lap] : may_receive[lap]);
        move_lap(comm, rank, lap, stream);
        if (rank == 0)
            go_to_phase(lap == 0 ? SENT : SENT_AGAIN);
        else
            go_to_phase(lap == 0 ? RECEIVED : ENDED);
    }
    test_await(&shared->phase, ENDED);
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
}

/* Bytes of the first lap land when their rail has failed, their slots were sent again over the
 * other one, and the second lap waits in these slots. Returns the number of wrong elements. */
static uint32_t land_in_second_lap(const char *fence)
{
    char text[120];
    pid_t pids[2];
    start_job(2, send_two_laps, pids);
    snprintf(text, sizeof(text), "host1 0 hold\n%s", fence);
    set_faults(text);
    await_faults(text, 1);
    go_to_phase(HELD);
    test_await(&shared->phase, SENT);
    snprintf(text, sizeof(text), "host1 0 hold\n%shost1 0 down\n", fence);
    set_faults(text);
    await_faults(text, 1);
    go_to_phase(DOWN);
    test_await(&shared->phase, SENT_AGAIN);
    /* The NIC lands what it held between two texts. */
    static const char *const ends[] = {"host1 0 down\n", "host1 0 down\n# landed\n"};
    for (int i = 0; i < 2; i++) {
        set_faults(ends[i]);
        await_faults(ends[i], 1);
    }
    go_to_phase(LANDED);
    bool has_ended = true;
    for (int rank = 0; rank < 2; rank++)
        has_ended = test_wait_rank(pids[rank]) && has_ended;
    remove_faults();
    /* Without a fence the late bytes may end the job, too. */
    return shared->n_wrong + !has_ended;
}

TEST_CASE("bytes that land late are kept out by the fence, and change results without it")
{
    uint32_t n_wrong = 0;
    setenv("GYRE_PROTO", "simple", 1);
    CHECK_MSG(land_in_second_lap("") == 0, "%u wrong elements", shared->n_wrong);
    /* The second lap may arrive late, too, or never: the time limit then ends the job. */
    setenv("GYRE_TIMEOUT", "10000", 1);
    for (int i = 0; i < 10 && n_wrong == 0; i++)
        n_wrong = land_in_second_lap("host1 0 unfenced\n");
    printf("     %u elements are wrong without the fence\n", n_wrong);
    CHECK(n_wrong > 0);
    unsetenv("GYRE_TIMEOUT");
    unsetenv("GYRE_PROTO");
}

/* ---- a rank leaves -------------------------------------------------------------------------- */

/* A lap of messages. Rank 0 sends them without a rail and destroys its communicator. */
TEST_RANK(send_and_leave)
{
    gyre_stream stream;
    (void)n_ranks;
    CHECK_OK(gyre_stream_create(&stream, test_device(), -1));
    if (rank == 0)
        gyre_store_release_u32(&shared->n_rounds, 1); /* connected */
    test_await(&shared->phase, DOWN);
    move_lap(comm, rank, 0, stream);
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
    if (rank == 0)
        gyre_store_release_u32(&shared->n_rounds, 2);
}

TEST_CASE("what a rank has sent arrives when a rail is back, though the rank has left")
{
    static const char *const down = "host1 0 down\nhost1 1 down\n";
    pid_t pids[2];
    start_job(2, send_and_leave, pids);
    CHECK(wait_all_rounds_for(1, pids[0], HOUR_NS));
    set_faults(down);
    await_faults(down, 1);
    go_to_phase(DOWN);
    CHECK(wait_all_rounds_for(2, pids[0], HOUR_NS));
    /* Longer than a rank waits for one that has left, or, long, than one that leaves waits. */
    wait_ms(getenv("TEST_LONG") != NULL ? 13000 : 2500);
    CHECK(end_job(2, pids));
    CHECK_MSG(shared->n_wrong == 0, "%u wrong elements", shared->n_wrong);
}

/* ---- time ----------------------------------------------------------------------------------- */

static void *keep_no_tag(void *context, const gyre_observed_call *call)
{
    (void)context;
    (void)call;
    return NULL;
}

static void see_calls(void *context, const gyre_observed_call *calls, int n_calls)
{
    (void)context;
    (void)calls;
    (void)n_calls;
}

static void see_time(void *context, void *tag, uint64_t now_ns)
{
    (void)context;
    (void)tag;
    (void)now_ns;
}

static void see_tag(void *context, void *tag)
{
    (void)context;
    (void)tag;
}

static void see_end(void *context)
{
    (void)context;
}

static void see_connection(void *context, const gyre_connection_event *event)
{
    (void)context;
    CHECK_MSG(strstr(event->text, "wire") != NULL || shared->n_resets[0] > 0, "%s", event->text);
    CHECK(event->peer == 1);
    if (event->kind == GYRE_CONNECTION_RUNS && strstr(event->text, "sockets to ") != NULL)
        (void)gyre_fetch_add_u32(&shared->n_sockets, 1);
    else if (event->kind == GYRE_CONNECTION_RUNS && strstr(event->text, "wire0") != NULL &&
             strstr(event->text, "wire1") != NULL)
        (void)gyre_fetch_add_u32(&shared->n_both, 1);
    (void)gyre_fetch_add_u32(&shared->n_events[event->kind - 1], 1);
}

static const gyre_observer observer = {.struct_bytes = sizeof(observer),
                                       .version = GYRE_VERSION,
                                       .submitted = keep_no_tag,
                                       .launching = see_calls,
                                       .launched = see_calls,
                                       .begun = see_time,
                                       .ended = see_time,
                                       .finished = see_tag,
                                       .closed = see_end,
                                       .connection = see_connection};

/* Prometheus' number of a metric, -1 if it has none. */
static int read_metric(const char *name)
{
    char line[512];
    int value = -1;
    const size_t n = strlen(name);
    FILE *file = fopen(metrics_path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, name, n) == 0 && line[n] == '{')
            value = atoi(strrchr(line, ' '));
    if (file != NULL)
        fclose(file);
    return value;
}

/* Both ends of a socket in place of rails, which alone has this time limit, get ECONNRESET. */
static bool reset_socket(void)
{
    const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    for (int fd = 3; fd < 1024; fd++) {
        uint32_t limit_ms = 0;
        socklen_t n = sizeof(limit_ms);
        if (getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, &n) == 0 && limit_ms == 10000)
            return connect(fd, &nobody, sizeof(nobody)) == 0;
    }
    return false;
}

TEST_RANK(call_in_a_loop)
{
    if (rank == 0)
        CHECK_OK(gyre_comm_observe(comm, &observer));
    struct calls calls = calls_open(comm, rank, n_ranks);
    const size_t count = 4096;
    uint64_t ended_ns = gyre_now_ns();
    for (bool stops = false; !stops && test_n_failures == 0; calls.round++) {
        for (size_t i = 0; i < count; i++)
            calls.in[i] = calls_value(rank, calls.round, i);
        if (rank == 0 && gyre_load_acquire_u32(&shared->n_resets[0]) > shared->n_resets[1] &&
            reset_socket())
            gyre_store_release_u32(&shared->n_resets[1], shared->n_resets[1] + 1);
        /* The last element counts the ranks that have been told to stop. */
        calls.in[count - 1] = gyre_load_acquire_u32(&shared->stops);
        CHECK_OK(
            gyre_all_reduce(calls.in, calls.out, count, GYRE_UINT32, GYRE_SUM, comm, calls.stream));
        CHECK_OK(gyre_stream_synchronize(calls.stream, test_device()));
        gyre_fetch_add_u32(&shared->n_wrong,
                           calls_differ_from_sums(&calls, calls.out, count - 1, 0, 1));
        stops = calls.out[count - 1] != 0;
        if (rank == 0)
            note_round(&ended_ns);
    }
    calls_close(&calls);
}

TEST_CASE("calls go on after a port went down, and after a rail that loses all in silence")
{
    static const char *const texts[2][3] = {
        {"host1 0 down\nhost1 0 gids 4\n", "host2 1 down\n", "host1 1 down\nhost2 1 down\n"},
        {"host1 0 lose_out\n", "host2 0 lose_answers\n", "host1 1 lose_in\n"}};
    uint64_t times[2][3];
    char pattern[80];
    snprintf(metrics_path, sizeof(metrics_path), "/tmp/failover-metrics.%d.0", (int)getpid());
    snprintf(pattern, sizeof(pattern), "/tmp/failover-metrics.%d.%%r", (int)getpid());
    setenv("GYRE_METRICS_FILE", pattern, 1);
    for (int i = 0; i < 6; i++) {
        pid_t pids[2];
        start_job(2, call_in_a_loop, pids);
        bool runs = wait_rounds(100, pids[0]);
        shared->gap_ns = 0;
        set_faults(texts[i % 2][i / 2]);
        runs = runs && wait_rounds(300, pids[0]);
        times[i % 2][i / 2] = shared->gap_ns;
        runs = end_job(2, pids) && runs;
        CHECK(shared->n_events[0] >= 1 && shared->n_events[1] >= 1);
        CHECK(read_metric("gyre_connection_failures_total") == (int)shared->n_events[0]);
        CHECK(read_metric("gyre_connection_moves_total") == (int)shared->n_events[1]);
        CHECK_MSG(runs && shared->n_wrong == 0, "%s: %u wrong elements", texts[i % 2][i / 2],
                  shared->n_wrong);
    }
    unsetenv("GYRE_METRICS_FILE");
    (void)unlink(metrics_path);
    metrics_path[strlen(metrics_path) - 1] = '1';
    (void)unlink(metrics_path);
    print_times("a port reports", times[0], 3);
    print_times("nothing reports", times[1], 3);
}

static void wait_for_both_rails(uint32_t n, uint64_t most_ns)
{
    const uint64_t until_ns = gyre_now_ns() + most_ns;
    while (gyre_load_acquire_u32(&shared->n_both) < n && gyre_now_ns() < until_ns)
        wait_ms(1);
}

TEST_CASE("a rail that looks active and loses all carries data again only when it answers")
{
    pid_t pids[2];
    start_job(2, call_in_a_loop, pids);
    bool runs = wait_rounds(100, pids[0]);
    set_faults("host2 0 lose_in\n");
    runs = runs && wait_rounds(300, pids[0]);
    CHECK(gyre_load_acquire_u32(&shared->n_events[1]) == 1);
    shared->gap_ns = 0;
    /* No reason to try the black rail. */
    set_faults("host2 0 lose_in\nhost2 1 lose_answers\n");
    wait_ms(600);
    set_faults("host2 0 lose_in\n");
    runs = runs && wait_rounds(10, pids[0]);
    if (shared->gap_ns > 1100000000) { /* after 1.2 s it is one */
        (void)end_job(2, pids);
        test_skip_case("the machine is so busy that 0.6 s without answers became 1.2 s");
    }
    CHECK_MSG(shared->n_events[0] == 1, "%u failures", shared->n_events[0]);
    shared->gap_ns = 0;
    /* Longer than until the first probe has ended. */
    wait_for_both_rails(1, UINT64_C(7500000000));
    printf("     a black rail is probed: %u failures, calls stood still for %.1f ms at most\n",
           shared->n_events[0], (double)shared->gap_ns / 1e6);
    CHECK_MSG(shared->n_both == 0, "a black rail was taken again");
    set_faults("# none\n");
    const uint64_t begin_ns = gyre_now_ns();
    wait_for_both_rails(1, UINT64_C(60000000000));
    printf("     it is taken again %.1f s after it answers\n",
           (double)(gyre_now_ns() - begin_ns) / 1e9);
    runs = runs && wait_rounds(10, pids[0]);
    CHECK(end_job(2, pids) && runs);
    CHECK_MSG(shared->n_both == 1 && shared->n_wrong == 0,
              "%u moves to both rails, %u wrong elements", shared->n_both, shared->n_wrong);
}

TEST_RANK(destroy_in_probe)
{
    gyre_comm *own = NULL;
    gyre_stream stream;
    uint32_t in, out = 0;
    CHECK_OK(gyre_comm_split(comm, 0, rank, &own, NULL));
    CHECK_OK(gyre_stream_create(&stream, test_device(), -1));
    while (out == 0 && test_n_failures == 0) {
        in = gyre_load_acquire_u32(&shared->stops);
        CHECK_OK(gyre_all_reduce(&in, &out, 1, GYRE_UINT32, GYRE_SUM, own, stream));
        CHECK_OK(gyre_stream_synchronize(stream, test_device()));
        if (rank == 0)
            gyre_store_release_u32(&shared->n_rounds, shared->n_rounds + 1);
    }
    CHECK_OK(gyre_comm_destroy(own));
    wait_ms(7000); /* in which ibv_modify_qp() returns */
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
}

TEST_CASE("a communicator is destroyed while its probe waits in ibv_modify_qp")
{
    pid_t pids[4];
    start_job(4, destroy_in_probe, pids);
    CHECK(wait_rounds(100, pids[0]));
    set_faults("host2 0 lose_in\n");
    wait_ms(3000);
    set_faults("host1 0 rtr_ms 7000\nhost2 0 lose_in\n");
    wait_ms(4300);
    gyre_store_release_u32(&shared->stops, 1);
    for (int rank = 0; rank < 4; rank++)
        CHECK_MSG(test_wait_rank(pids[rank]), "rank %d", rank);
    remove_faults();
}

/* ---- no rail is left, but sockets ------------------------------------------------------------ */

static void await_sockets(uint32_t n)
{
    const uint64_t until_ns = gyre_now_ns() + UINT64_C(30000000000);
    while (gyre_load_acquire_u32(&shared->n_sockets) < n && gyre_now_ns() < until_ns)
        wait_ms(1);
    CHECK_MSG(gyre_load_acquire_u32(&shared->n_sockets) >= n, "no move to sockets");
}

TEST_CASE("without any rail sums go on over sockets, and over rails when they answer again")
{
    static const char *const texts[] = {"host1 0 down\nhost1 1 down\n",
                                        "host1 0 down\nhost2 1 down\n",
                                        "host2 0 lose_in\nhost2 1 lose_in\n"};
    uint64_t times[3];
    has_sockets = true;
    for (uint32_t i = 0; i < 3; i++) {
        pid_t pids[2];
        start_job(2, call_in_a_loop, pids);
        bool runs = wait_rounds(100, pids[0]);
        shared->gap_ns = 0;
        set_faults(texts[i]);
        await_sockets(1);
        runs = runs && wait_rounds(300, pids[0]);
        times[i] = shared->gap_ns;
        const uint32_t n_both = gyre_load_acquire_u32(&shared->n_both);
        set_faults("# none\n");
        const uint64_t begin_ns = gyre_now_ns();
        wait_for_both_rails(n_both + 1, UINT64_C(60000000000));
        printf("     over rails again %.1f s after they answer\n",
               (double)(gyre_now_ns() - begin_ns) / 1e9);
        runs = runs && wait_rounds(100, pids[0]);
        CHECK(end_job(2, pids) && runs);
        CHECK_MSG(shared->n_both > n_both && shared->n_wrong == 0,
                  "%s: %u moves to both rails, %u wrong elements", texts[i], shared->n_both,
                  shared->n_wrong);
    }
    has_sockets = false;
    print_times("a port of each rail reports", times, 2);
    print_times("nothing reports", times + 2, 1);
}

TEST_CASE("a socket in place of rails that is reset is made again")
{
    const uint32_t n_resets = 5;
    pid_t pids[2];
    has_sockets = true;
    start_job(2, call_in_a_loop, pids);
    bool runs = wait_rounds(10, pids[0]);
    set_faults("host1 0 down\nhost1 1 down\n");
    await_sockets(1);
    for (uint32_t i = 1; i <= n_resets && runs; i++) {
        const uint32_t n_sockets = gyre_load_acquire_u32(&shared->n_sockets);
        gyre_store_release_u32(&shared->n_resets[0], i);
        await_sockets(n_sockets + 1);
        runs = wait_rounds(20, pids[0]);
    }
    CHECK(end_job(2, pids) && runs);
    CHECK_MSG(shared->n_resets[1] == n_resets && shared->n_wrong == 0,
              "%u resets, %u wrong elements", shared->n_resets[1], shared->n_wrong);
    has_sockets = false;
}

TEST_RANK(call_when_down)
{
    if (rank == 0)
        gyre_store_release_u32(&shared->n_rounds, 1); /* connected */
    test_await(&shared->phase, DOWN);
    call_in_a_loop(comm, rank, n_ranks, argument);
}

TEST_CASE("rails that are down before the first call leave it to sockets")
{
    static const char *const down = "host2 0 down\nhost2 1 down\n";
    pid_t pids[2];
    has_sockets = true;
    start_job(2, call_when_down, pids);
    CHECK(wait_all_rounds_for(1, pids[0], HOUR_NS));
    set_faults(down);
    wait_ms(50);
    go_to_phase(DOWN);
    CHECK(wait_all_rounds_for(300, pids[0], HOUR_NS));
    gyre_store_release_u32(&shared->stops, 1); /* it ends there, too */
    for (int rank = 0; rank < 2; rank++)
        CHECK(test_wait_rank(pids[rank]));
    remove_faults();
    CHECK_MSG(shared->n_both == 0 && shared->n_wrong == 0, "%u moves, %u wrong elements",
              shared->n_both, shared->n_wrong);
    has_sockets = false;
}

/* ---- no rail is left --------------------------------------------------------------------------
 */

/* Calls until one fails; returns the communicator's error. */
static const char *call_until_failure(gyre_comm *comm, int rank)
{
    gyre_stream stream;
    uint32_t in = 1, out = 0;
    gyre_status status = GYRE_SUCCESS;
    CHECK_OK(gyre_stream_create(&stream, test_device(), -1));
    while (status == GYRE_SUCCESS) {
        status = gyre_all_reduce(&in, &out, 1, GYRE_UINT32, GYRE_SUM, comm, stream);
        if (status == GYRE_SUCCESS)
            status = gyre_stream_synchronize(stream, test_device());
        if (rank == 0)
            gyre_store_release_u32(&shared->n_rounds, shared->n_rounds + 1);
    }
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
    return gyre_comm_last_error(comm);
}

TEST_RANK(fail_without_rails)
{
    const char *error = call_until_failure(comm, rank);
    CHECK_HAS(error, "No rail carried data for ");
    CHECK_HAS(error, "(GYRE_FAILOVER_WAIT): wire0/1: ");
    CHECK_HAS(error, "; wire1/1: ");
}

TEST_CASE("without any rail or sockets the error names each rail after GYRE_FAILOVER_WAIT")
{
    pid_t pids[2];
    setenv("GYRE_FAILOVER_WAIT", "1", 1);
    for (int i = 0; i < 2; i++) {
        has_sockets = i == 1; /* NET=IB rules them out, too */
        setenv("GYRE_NET", i == 0 ? "" : "IB", 1);
        start_job(2, fail_without_rails, pids);
        (void)wait_rounds(10, pids[0]);
        set_faults("host1 0 down\nhost1 1 down\n");
        for (int rank = 0; rank < 2; rank++)
            CHECK(test_wait_rank(pids[rank]));
        remove_faults();
    }
    has_sockets = false;
    unsetenv("GYRE_NET");
    unsetenv("GYRE_FAILOVER_WAIT");
}

TEST_RANK(fail_when_killed)
{
    if (rank == 0)
        CHECK_OK(gyre_comm_observe(comm, &observer));
    const char *error = call_until_failure(comm, rank);
    CHECK_HAS(error, "rank 1");
}

TEST_CASE("a process that is killed while its rank uses sockets ends the other ranks' calls")
{
    pid_t pids[2];
    has_sockets = true;
    start_job(2, fail_when_killed, pids);
    (void)wait_rounds(10, pids[0]);
    set_faults("host1 0 down\nhost1 1 down\n");
    await_sockets(1);
    CHECK(wait_rounds(10, pids[0]));
    const uint64_t begin_ns = gyre_now_ns();
    CHECK(kill(pids[1], SIGKILL) == 0);
    CHECK(test_wait_rank(pids[0]));
    CHECK(gyre_now_ns() - begin_ns < UINT64_C(15000000000));
    CHECK(!test_wait_rank(pids[1]));
    remove_faults();
    has_sockets = false;
}

/* What connects to this process from now on loses segments of more than 400 bytes, as behind a
 * switch with a smaller MTU. */
static void drop_large_segments(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0), BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 400, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0), BPF_STMT(BPF_RET | BPF_K, UINT32_MAX)};
    const struct sock_fprog program = {.len = GYRE_ARRAY_LENGTH(code), .filter = code};
    for (int fd = 3; fd < 1024; fd++) {
        int listens = 0;
        socklen_t n = sizeof(listens);
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) == 0 && listens != 0)
            CHECK(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0);
    }
}

TEST_RANK(call_through_a_hole)
{
    (void)n_ranks;
    drop_large_segments();
    gyre_stream stream;
    static uint32_t in[4096], out[4096];
    gyre_status status = GYRE_SUCCESS;
    CHECK_OK(gyre_stream_create(&stream, test_device(), -1));
    while (status == GYRE_SUCCESS) {
        status = gyre_all_reduce(in, out, 4096, GYRE_UINT32, GYRE_SUM, comm, stream);
        if (status == GYRE_SUCCESS)
            status = gyre_stream_synchronize(stream, test_device());
        if (rank == 0)
            gyre_store_release_u32(&shared->n_rounds, shared->n_rounds + 1);
    }
    CHECK_HAS(gyre_comm_last_error(comm), "No rail carried data for ");
    CHECK_OK(gyre_stream_destroy(stream, test_device()));
}

TEST_CASE("sockets that carry no data end the communicator after GYRE_FAILOVER_WAIT")
{
    pid_t pids[2];
    setenv("GYRE_FAILOVER_WAIT", "5", 1);
    has_sockets = true;
    start_job(2, call_through_a_hole, pids);
    (void)wait_rounds(10, pids[0]);
    set_faults("host1 0 down\nhost1 1 down\n");
    for (int rank = 0; rank < 2; rank++)
        CHECK(test_wait_rank(pids[rank]));
    remove_faults();
    has_sockets = false;
    unsetenv("GYRE_FAILOVER_WAIT");
}

TEST_RANK(fail_without_fence)
{
    const char *error = call_until_failure(comm, rank);
    CHECK_HAS(error, "a broken connection cannot be fenced: ibv_destroy_qp has not returned for "
                     "10.");
}

TEST_CASE("a device that does not destroy a queue pair ends the communicator with that cause")
{
    pid_t pids[2];
    start_job(2, fail_without_fence, pids);
    (void)wait_rounds(10, pids[0]);
    set_faults("host1 0 down\nhost1 0 destroy_ms 30000\nhost1 1 destroy_ms 30000\n");
    for (int rank = 0; rank < 2; rank++)
        CHECK(test_wait_rank(pids[rank]));
    remove_faults();
}

TEST_CASE("random failures of all rails change no bit of calls that may go over sockets")
{
    has_sockets = true;
    fail_at_random(getenv("TEST_LONG") != NULL ? 200 : 15, 14);
    has_sockets = false;
}

TEST_CASE("a thousand random failures change no bit")
{
    if (getenv("TEST_LONG") == NULL)
        test_skip_case("only with TEST_LONG");
    fail_at_random(MAX_FAILURES, 12);
}
