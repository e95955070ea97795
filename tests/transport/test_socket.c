/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/bootstrap.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"
#include "tests/support/check.h"
#include "tests/transport/transport_rig.h"
#include "transport/socket/socket.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

#define PATIENCE_NS 30000000000ULL

/* Ranks 0 and 1 as threads; the test connects them. */
struct duo {
    struct gyre_params params;
    struct gyre_peer_info infos[2];
    struct gyre_fault faults[2];
    struct gyre_transport *transports[2];
    struct socket_blob views[2];
    unsigned char blobs[2 * RIG_BLOB_BYTES];
    size_t offsets[3];
    struct gyre_connector connectors[2][2 * 4 * 2];
    gyre_status statuses[2];
    char causes[2][GYRE_CAUSE_MAX_BYTES];
    uint64_t deadline_ns;
};

static const struct gyre_fifo_spec duo_spec = {.n_fifos = 4, .depth = 4, .slot_bytes = {65536}};
static const uint16_t peers_of[2][1] = {{1}, {0}};

/* Rank 0 gives up its last connection when rank 1 has answered the hello. */
static struct duo *gives_up;
static uint32_t n_authenticated;

static gyre_status authenticate(int fd, const uint8_t *secret, bool is_server, uint64_t deadline_ns)
{
    const gyre_status status = gyre_authenticate(fd, secret, is_server, deadline_ns);
    if (is_server || status != GYRE_SUCCESS || gives_up == NULL)
        return status;
    const struct socket_transport *transport = (struct socket_transport *)gives_up->transports[0];
    const struct socket_peer *peer = &transport->peers[0];
    struct hello hello = socket_make_hello(peer, peer->n_links - 1, 0);
    if (++n_authenticated < peer->n_links)
        return status;
    gives_up = NULL;
    CHECK_OK(gyre_sock_send(fd, &hello, sizeof(hello), deadline_ns));
    CHECK_OK(gyre_sock_recv(fd, &hello, sizeof(hello), deadline_ns));
    return gyre_fail(GYRE_ERROR_TIMEOUT, "too late");
}

static void duo_open(struct duo *duo, const uint8_t *secret_of_0)
{
    memset(duo, 0, sizeof(*duo));
    rig_params(&duo->params, "=lo");
    for (int r = 0; r < 2; r++) {
        gyre_fault_init(&duo->faults[r]);
        CHECK_OK(gyre_peer_info_fill(&duo->params, rig_device(), r, &duo->infos[r]));
    }
    size_t n_bytes = 0;
    for (int r = 0; r < 2; r++) {
        const struct gyre_transport_config config = {
            .device = rig_device(),
            .params = &duo->params,
            .rank = r,
            .n_ranks = 2,
            .infos = duo->infos,
            .peers = peers_of[r],
            .n_peers = 1,
            .spec = duo_spec,
            .secret = r == 0 && secret_of_0 != NULL ? secret_of_0 : RIG_SECRET,
            .authenticate = authenticate,
            .fault = &duo->faults[r],
        };
        void *blob = NULL;
        size_t blob_bytes = 0;
        CHECK_OK(gyre_transport_socket.open(&config, &duo->transports[r], &blob, &blob_bytes));
        memcpy(duo->blobs + n_bytes, blob, blob_bytes);
        memcpy(&duo->views[r], blob, sizeof(duo->views[r]));
        free(blob);
        n_bytes += blob_bytes;
        duo->offsets[r + 1] = n_bytes;
    }
    duo->deadline_ns = gyre_now_ns() + PATIENCE_NS;
}

struct duo_rank {
    struct duo *duo;
    int rank;
};

static void *connect_one(void *argument)
{
    const struct duo_rank *self = argument;
    struct duo *duo = self->duo;
    duo->statuses[self->rank] =
        gyre_transport_socket.connect(duo->transports[self->rank], duo->blobs, duo->offsets,
                                      duo->deadline_ns, duo->connectors[self->rank]);
    snprintf(duo->causes[self->rank], GYRE_CAUSE_MAX_BYTES, "%s", gyre_cause());
    return NULL;
}

static void duo_connect(struct duo *duo)
{
    pthread_t thread;
    struct duo_rank other = {duo, 1}, self = {duo, 0};
    CHECK(pthread_create(&thread, NULL, connect_one, &other) == 0);
    connect_one(&self);
    pthread_join(thread, NULL);
}

static void connect_alone(struct duo *duo, int rank)
{
    connect_one(&(struct duo_rank){duo, rank});
}

static void duo_leave(struct duo *duo, int rank)
{
    gyre_transport_socket.close(duo->transports[rank]);
    duo->transports[rank] = NULL;
}

static void duo_close(struct duo *duo)
{
    for (int r = 0; r < 2; r++) {
        if (duo->transports[r] != NULL)
            gyre_transport_socket.close(duo->transports[r]);
        gyre_fault_fini(&duo->faults[r]);
    }
}

static bool waits_for_fault(struct gyre_fault *fault)
{
    TEST_YIELD_UNTIL(gyre_fault_is_raised(fault));
    return gyre_fault_is_raised(fault);
}

static void expect_fault(struct duo *duo, const char *words)
{
    CHECK(waits_for_fault(&duo->faults[0]));
    CHECK(duo->faults[0].status == GYRE_ERROR_REMOTE);
    CHECK_HAS(duo->faults[0].cause, words);
}

/* The ranks are opened before its body and closed after it. */
#define DUO_CASE(sentence)        DUO_CASE_AT(sentence, __LINE__)
#define DUO_CASE_AT(sentence, at) DUO_CASE_OF(sentence, at)
#define DUO_CASE_OF(sentence, at)               \
    static void duo_case_##at(struct duo *duo); \
    TEST_CASE_OF(sentence, at)                  \
    {                                           \
        static struct duo duo;                  \
        duo_open(&duo, NULL);                   \
        duo_case_##at(&duo);                    \
        duo_close(&duo);                        \
    }                                           \
    static void duo_case_##at(struct duo *duo)

static int call(const struct duo *duo, int rank)
{
    int fd = -1;
    CHECK_OK(gyre_sock_connect(&duo->views[rank].addresses[0].address, gyre_now_ns() + PATIENCE_NS,
                               &fd));
    return fd;
}

DUO_CASE("strangers do not stall set-up")
{
    enum { N = 300 }; /* more than are served at a time */
    static int fds[N];
    static const char garbage[256] = "GET / HTTP/1.1\r\n\r\n";
    for (int i = 0; i < N; i++) { /* rank 1 accepts */
        fds[i] = call(duo, 1);
        if (i % 3 == 1)
            CHECK(send(fds[i], garbage, sizeof(garbage), MSG_NOSIGNAL) > 0);
        if (i % 3 == 2) {
            gyre_sock_close(fds[i]);
            fds[i] = -1;
        }
    }
    const uint64_t began_ns = gyre_now_ns();
    duo_connect(duo);
    CHECK_MSG(duo->statuses[0] == GYRE_SUCCESS, "%s", duo->causes[0]);
    CHECK_MSG(duo->statuses[1] == GYRE_SUCCESS, "%s", duo->causes[1]);
    /* One silent stranger after the other would take 100 deadlines. */
    CHECK(gyre_now_ns() - began_ns < PATIENCE_NS);
    for (int i = 0; i < N; i++)
        if (fds[i] >= 0)
            gyre_sock_close(fds[i]);
}

DUO_CASE("a connection that was given up after the answer is made again")
{
    gives_up = duo;
    duo_connect(duo);
    CHECK(gives_up == NULL);
    CHECK_MSG(duo->statuses[0] == GYRE_SUCCESS, "%s", duo->causes[0]);
    CHECK_MSG(duo->statuses[1] == GYRE_SUCCESS, "%s", duo->causes[1]);
}

TEST_CASE("a rank with another secret is not let in")
{
    static struct duo duo;
    duo_open(&duo, (const uint8_t *)"another secret, 32 bytes long ..");
    duo.deadline_ns = gyre_now_ns() + 500000000;
    duo_connect(&duo);
    CHECK(duo.statuses[0] != GYRE_SUCCESS);
    CHECK_HAS(duo.causes[0], "rank 1");
    CHECK(duo.statuses[1] == GYRE_ERROR_TIMEOUT);
    CHECK_HAS(duo.causes[1], "no connection came to lo from rank(s) 0");
    duo_close(&duo);
}

DUO_CASE("who waits in vain names the missing rank")
{
    duo->deadline_ns = gyre_now_ns() + 200000000;
    connect_alone(duo, 1);
    CHECK(duo->statuses[1] == GYRE_ERROR_TIMEOUT);
    CHECK_HAS(duo->causes[1], "from rank(s) 0");
    duo_leave(duo, 1);
    duo->deadline_ns = gyre_now_ns() + 200000000;
    connect_alone(duo, 0);
    CHECK(duo->statuses[0] != GYRE_SUCCESS);
    CHECK_HAS(duo->causes[0], "rank 1");
}

static bool starts_slowly;

struct slow_start {
    void *(*run)(void *);
    void *argument;
    uint32_t is_done;
};

static void *run_slow(void *argument)
{
    struct slow_start *slow = argument;
    void *result = slow->run(slow->argument);
    gyre_store_release_u32(&slow->is_done, 1);
    return result;
}

gyre_status __real_gyre_thread_start(pthread_t *thread_out, size_t stack_bytes,
                                     void *(*run)(void *), void *argument, const char *what);
gyre_status __wrap_gyre_thread_start(pthread_t *thread_out, size_t stack_bytes,
                                     void *(*run)(void *), void *argument, const char *what);

gyre_status __wrap_gyre_thread_start(pthread_t *thread_out, size_t stack_bytes,
                                     void *(*run)(void *), void *argument, const char *what)
{
    static struct slow_start slow;
    if (!starts_slowly || strcmp(what, "connecting to other ranks") != 0)
        return __real_gyre_thread_start(thread_out, stack_bytes, run, argument, what);
    starts_slowly = false;
    slow = (struct slow_start){.run = run, .argument = argument};
    const gyre_status status =
        __real_gyre_thread_start(thread_out, stack_bytes, run_slow, &slow, what);
    while (status == GYRE_SUCCESS && gyre_load_acquire_u32(&slow.is_done) == 0)
        sched_yield();
    return status;
}

DUO_CASE("a failure before the first look is not lost")
{
    duo_leave(duo, 1);
    duo->deadline_ns = gyre_now_ns() + 1000000;
    starts_slowly = true;
    connect_alone(duo, 0);
    CHECK(!starts_slowly); /* the thread was found by its name */
    CHECK(duo->statuses[0] != GYRE_SUCCESS);
    CHECK_HAS(duo->causes[0], "rank 1");
}

DUO_CASE("set-up ends when the fault is raised")
{
    gyre_fault_raise(&duo->faults[1], GYRE_ERROR_REMOTE, "rank 7 gave up");
    connect_alone(duo, 1);
    CHECK(duo->statuses[1] == GYRE_ERROR_REMOTE);
    CHECK_HAS(duo->causes[1], "rank 7 gave up");
}

DUO_CASE("a blob that is none is refused")
{
    duo->blobs[duo->offsets[1]] ^= 1;
    connect_alone(duo, 0);
    CHECK(duo->statuses[0] == GYRE_ERROR_REMOTE);
    CHECK_HAS(duo->causes[0], "rank 1");
}

DUO_CASE("an address that cannot be reached is passed over")
{
    struct socket_blob *blob = &duo->views[1];
    const struct gyre_sock_address reachable = blob->addresses[0].address;
    blob->n_addresses = 3;
    blob->addresses[2].address = reachable;
    blob->addresses[0].address.bytes[0] = 240; /* reserved: no host has it */
    blob->addresses[1].address.port = 1;       /* no process listens there */
    memcpy(duo->blobs + duo->offsets[1], blob, sizeof(*blob));
    duo_connect(duo);
    CHECK_MSG(duo->statuses[0] == GYRE_SUCCESS, "%s", duo->causes[0]);
    CHECK_MSG(duo->statuses[1] == GYRE_SUCCESS, "%s", duo->causes[1]);
}

DUO_CASE("loopback alone is refused between networks")
{
    duo->views[1].network_id ^= 1;
    memcpy(duo->blobs + duo->offsets[1], &duo->views[1], sizeof(duo->views[1]));
    connect_alone(duo, 0);
    CHECK(duo->statuses[0] == GYRE_ERROR_INVALID_USAGE);
    CHECK_HAS(duo->causes[0], "has only loopback addresses");
    CHECK_HAS(duo->causes[0], "lo (127.0.0.1");
}

TEST_CASE("an orderly end is no fault")
{
    static struct duo duo;
    for (int first = 0; first < 2; first++) {
        duo_open(&duo, NULL);
        duo_connect(&duo);
        CHECK(duo.statuses[0] == GYRE_SUCCESS && duo.statuses[1] == GYRE_SUCCESS);
        gyre_transport_socket.close(duo.transports[first]);
        duo.transports[first] = NULL;
        struct socket_transport *other = (struct socket_transport *)duo.transports[1 - first];
        const uint64_t deadline_ns = gyre_now_ns() + 200000000;
        while (gyre_now_ns() < deadline_ns) {
            for (uint32_t t = 0; t < other->n_threads; t++)
                gyre_proxy_wake(other->threads[t].proxy);
            sched_yield();
        }
        CHECK_MSG(!gyre_fault_is_raised(&duo.faults[1 - first]), "%s", duo.faults[1 - first].cause);
        duo_close(&duo);
    }
}

DUO_CASE("sending to a rank that left is a fault")
{
    duo_connect(duo);
    duo_leave(duo, 1);
    /* One slot more than there is credit for. */
    struct gyre_inbox *inbox =
        duo->connectors[0][gyre_connector_index(&duo_spec, 1, 0, true)].inbox;
    gyre_store_release_u64(&inbox->tail[0], duo_spec.depth + 1);
    expect_fault(duo, "rank 1");
    expect_fault(duo, "it left");
}

static uint64_t round_trip_ns(const struct duo *duo)
{
    struct gyre_wire wire;
    gyre_transport_socket.measure(duo->transports[0], &wire);
    return wire.round_trip_ns;
}

DUO_CASE("the round trip is known after the peer has left")
{
    duo->infos[1].host_hash ^= 1; /* only round trips between hosts count */
    duo_connect(duo);
    const uint64_t first_ns = round_trip_ns(duo);
    CHECK(first_ns > 0);
    duo_leave(duo, 1);
    CHECK(round_trip_ns(duo) == first_ns);
    struct gyre_inbox *inbox =
        duo->connectors[0][gyre_connector_index(&duo_spec, 1, 0, true)].inbox;
    gyre_store_release_u64(&inbox->tail[0], duo_spec.depth + 1);
    CHECK(waits_for_fault(&duo->faults[0])); /* the link is closed now */
    CHECK(round_trip_ns(duo) == first_ns);
}

static uint64_t measured_mbit_per_s(const struct duo *duo, int rank)
{
    struct gyre_wire wire;
    gyre_transport_socket.measure(duo->transports[rank], &wire);
    return wire.mbit_per_s;
}

static void duo_open_two_hosts(struct duo *duo, uint32_t mbit_per_s, uint32_t is_virtual)
{
    duo_open(duo, NULL);
    duo->infos[1].host_hash ^= 1;
    for (int r = 0; r < 2; r++) {
        duo->infos[r].net_mbit_per_s = mbit_per_s;
        duo->infos[r].net_is_virtual = is_virtual;
    }
}

TEST_CASE("the rate is measured where no hardware tells it")
{
    static struct duo duo;
    bool is_measured[2] = {false, false};
    for (int i = 0; i < 20 && !(is_measured[0] && is_measured[1]); i++) {
        duo_open_two_hosts(&duo, i % 2 == 0 ? 0 : 10000, 1);
        duo_connect(&duo);
        for (int r = 0; r < 2; r++) {
            CHECK_OK(duo.statuses[r]);
            is_measured[r] = is_measured[r] || measured_mbit_per_s(&duo, r) > 0;
        }
        duo_close(&duo);
        for (int r = 0; r < 2; r++)
            CHECK(!gyre_fault_is_raised(&duo.faults[r])); /* no byte was left for the proxies */
    }
    CHECK(is_measured[0] && is_measured[1]);
}

TEST_CASE("a rate that is known is not measured")
{
    static struct duo duo;
    duo_open_two_hosts(&duo, 25000, 0);
    duo_connect(&duo);
    CHECK_OK(duo.statuses[0]);
    CHECK(measured_mbit_per_s(&duo, 0) == 0 && measured_mbit_per_s(&duo, 1) == 0);
    duo_close(&duo);
    duo_open_two_hosts(&duo, 0, 0);
    duo.params.values[GYRE_PARAM_NET_RATE].number = 200;
    duo_connect(&duo);
    CHECK_OK(duo.statuses[0]);
    CHECK(measured_mbit_per_s(&duo, 0) == 0 && measured_mbit_per_s(&duo, 1) == 0);
    duo_close(&duo);
}

static uint32_t has_closed; /* rank 1 has closed its connections */

static void *connect_and_leave(void *argument)
{
    struct duo *duo = ((struct duo_rank *)argument)->duo;
    connect_one(argument);
    duo_leave(duo, 1);
    gyre_store_release_u32(&has_closed, 1);
    return NULL;
}

static gyre_status check_after_close(void *context)
{
    (void)context;
    return gyre_load_acquire_u32(&has_closed) == 0
               ? GYRE_SUCCESS
               : gyre_fail(GYRE_ERROR_REMOTE, "rank 1 has no descriptors left");
}

TEST_CASE("a rank that leaves while the network is measured is named, or its cause is told")
{
    for (int is_told = 0; is_told < 2; is_told++) {
        static struct duo duo;
        duo_open_two_hosts(&duo, 0, 0);
        gyre_store_release_u32(&has_closed, 0);
        if (is_told)
            ((struct socket_transport *)duo.transports[0])->config.check_ranks = check_after_close;
        struct gyre_peer_info known[2] = {duo.infos[0], duo.infos[1]};
        known[0].net_mbit_per_s = known[1].net_mbit_per_s = 25000;
        ((struct socket_transport *)duo.transports[1])->config.infos = known;
        struct duo_rank other = {&duo, 1}, self = {&duo, 0};
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, connect_and_leave, &other) == 0);
        connect_one(&self);
        pthread_join(thread, NULL);
        CHECK_OK(duo.statuses[1]);
        CHECK(duo.statuses[0] == GYRE_ERROR_REMOTE);
        CHECK_HAS(duo.causes[0], is_told ? "rank 1 has no descriptors left" : "rank 1");
        CHECK_HAS(duo.causes[0], is_told ? "rank 1" : "measuring the network");
        duo_close(&duo);
    }
}

DUO_CASE("a rank that failed passes its cause on")
{
    duo_connect(duo);
    gyre_fault_raise(&duo->faults[1], GYRE_ERROR_REMOTE, "rank 1: peer rank 7 died");
    duo_leave(duo, 1);
    CHECK(waits_for_fault(&duo->faults[0]));
    CHECK(duo->faults[0].status == GYRE_ERROR_REMOTE);
    CHECK_MSG(strcmp(duo->faults[0].cause, "rank 1: peer rank 7 died") == 0, "%s",
              duo->faults[0].cause);
}

DUO_CASE("a cause is told also when no time is left")
{
    duo_connect(duo);
    struct socket_transport *teller = (struct socket_transport *)duo->transports[1];
    for (uint32_t t = 0; t < teller->n_threads; t++) {
        gyre_proxy_close(teller->threads[t].proxy);
        teller->threads[t].proxy = NULL;
    }
    socket_say_bye(&teller->peers[0].links[0], "rank 1: peer rank 7 died", gyre_now_ns());
    CHECK(waits_for_fault(&duo->faults[0]));
    CHECK_MSG(strcmp(duo->faults[0].cause, "rank 1: peer rank 7 died") == 0, "%s",
              duo->faults[0].cause);
}

/* The other ranks must name it. */
static void die_in_the_middle(struct gyre_transport *transport, struct gyre_connector *connectors,
                              int rank, void *context)
{
    struct rig_rank *self = context;
    (void)transport;
    rig_barrier(self);
    if (rank == 1)
        kill(getpid(), SIGKILL);
    CHECK(!rig_traffic(self, connectors));
    CHECK(waits_for_fault(&self->fault));
    CHECK(self->fault.status == GYRE_ERROR_REMOTE);
    CHECK_HAS(self->fault.cause, "peer rank 1 (");
    CHECK_HAS(self->fault.cause, "over socket lo");
}

TEST_CASE("a killed peer is named")
{
    rig_run(&(struct rig_options){.ops = &gyre_transport_socket,
                                  .spec = duo_spec,
                                  .n_ranks = 3,
                                  .use_processes = true,
                                  .n_slots = 1000000,
                                  .ifname = "=lo",
                                  .body = die_in_the_middle});
}

static void count_threads(struct gyre_transport *transport, struct gyre_connector *connectors,
                          int rank, void *context)
{
    struct rig_rank *self = context;
    const struct socket_transport *socket = (struct socket_transport *)transport;
    CHECK_MSG(socket->n_threads == 4, "%u", socket->n_threads);
    for (uint32_t l = 0; l < 4; l++) {
        const struct socket_link *link = &socket->peers[0].links[l];
        CHECK_MSG(link->thread->index == l, "connection %u: %u", l, link->thread->index);
    }
    CHECK(rig_traffic(self, connectors));
    (void)rank;
    rig_barrier(self);
}

/* @n_threads: the variable for it, with its value */
static void have_four_threads(const char *n_threads)
{
    char *const environment[] = {(char *)(uintptr_t) "GYRE_SOCKET_IFNAME==lo",
                                 (char *)(uintptr_t) "GYRE_SOCKET_NSOCKS=4",
                                 (char *)(uintptr_t)n_threads, NULL};
    rig_run(&(struct rig_options){.ops = &gyre_transport_socket,
                                  .spec = duo_spec,
                                  .n_ranks = 3,
                                  .n_slots = 300,
                                  .environment = environment,
                                  .body = count_threads});
}

TEST_CASE("each connection may have a thread of its own")
{
    have_four_threads("GYRE_SOCKET_NTHREADS=16");
    have_four_threads("NCCL_SOCKET_NTHREADS=2"); /* in each direction */
}

TEST_CASE("a rank with one processor has one thread")
{
    static struct duo duo;
    cpu_set_t before, one;
    CHECK(sched_getaffinity(0, sizeof(before), &before) == 0);
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
    duo_open(&duo, NULL);
    CHECK(sched_setaffinity(0, sizeof(before), &before) == 0);
    const struct socket_transport *socket = (struct socket_transport *)duo.transports[0];
    CHECK_MSG(socket->n_threads == 1, "%u", socket->n_threads);
    CHECK_MSG(socket->n_links == 4, "%d", socket->n_links); /* for this few peers */
    duo_close(&duo);
}

TEST_CASE("frames that break the protocol are refused")
{
    static const struct {
        struct socket_header headers[5];
        int n_headers;
        const char *words;
    } rows[] = {
        {{{.kind = 9}}, 1, "no such kind"},
        {{{.kind = SOCKET_FRAME_DATA, .fifo = 4}}, 1, "no such FIFO"},
        {{{.kind = SOCKET_FRAME_DATA, .fifo = 1}}, 1, "no such FIFO"},
        {{{.kind = SOCKET_FRAME_DATA, .value = 65537}}, 1, "larger than a slot"},
        {{{.kind = SOCKET_FRAME_CREDIT, .value = 1}}, 1, "were not sent"},
        {{{.kind = SOCKET_FRAME_FAULT, .value = 65536}}, 1, "a cause that long"},
        {{{.kind = SOCKET_FRAME_FAULT, .value = GYRE_CAUSE_MAX_BYTES}}, 1, "a cause that long"},
        {{{.kind = SOCKET_FRAME_DATA, .n_following = SOCKET_BATCH_FRAMES}},
         1,
         "another header of its batch was due"},
        {{{.kind = SOCKET_FRAME_DATA, .n_following = 2}, {.kind = SOCKET_FRAME_DATA}},
         2,
         "another header of its batch was due"},
        {{{.kind = SOCKET_FRAME_DATA},
          {.kind = SOCKET_FRAME_DATA},
          {.kind = SOCKET_FRAME_DATA},
          {.kind = SOCKET_FRAME_DATA},
          {.kind = SOCKET_FRAME_DATA}},
         5,
         "no credit"},
    };
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(rows); i++) {
        static struct duo duo;
        duo_open(&duo, NULL);
        duo_connect(&duo);
        /* Rank 1 stays idle: its descriptor serves the test's frames. */
        const struct socket_transport *writer = (struct socket_transport *)duo.transports[1];
        const ssize_t n_bytes = rows[i].n_headers * (ssize_t)sizeof(rows[i].headers[0]);
        CHECK(send(writer->peers[0].links[0].fd, rows[i].headers, (size_t)n_bytes, MSG_NOSIGNAL) ==
              n_bytes);
        expect_fault(&duo, rows[i].words);
        duo_close(&duo);
    }
}
