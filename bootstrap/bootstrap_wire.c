/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/bootstrap_wire.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <linux/tcp.h> /* tcp_info of netinet/tcp.h counts no segments */
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELLO_MAGIC 0x31525947u /* "GYR1" */

/* Process-wide, as libcrypto's state is. Its handler of exit() frees that state while threads may
 * make proofs. This handler is registered later, so it runs first and stops proofs. A fork waits
 * for the lock, so libcrypto's locks are free in the child. */
static pthread_mutex_t proof_lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_exiting; /* under proof_lock */
static bool is_prepared;

GYRE_WATCH_FORKS(&proof_lock, NULL)

static void stop_proofs(void)
{
    pthread_mutex_lock(&proof_lock);
    is_exiting = true;
    pthread_mutex_unlock(&proof_lock);
}

void gyre_authenticate_prepare(void)
{
    pthread_mutex_lock(&proof_lock);
    if (!is_prepared) {
        OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, NULL);
        atexit(stop_proofs);
        is_prepared = true;
    }
    pthread_mutex_unlock(&proof_lock);
}

static gyre_status make_hello(struct gyre_hello *hello_out)
{
    hello_out->magic = HELLO_MAGIC;
    return gyre_random_bytes(hello_out->nonce, sizeof(hello_out->nonce));
}

static gyre_status make_proof(const uint8_t *secret, bool is_server,
                              const struct gyre_hello *client, const struct gyre_hello *server,
                              uint8_t proof_out[GYRE_PROOF_BYTES])
{
    uint8_t text[8 + 2 * GYRE_NONCE_BYTES];
    unsigned n_proof = 0;
    memcpy(text, is_server ? "server1:" : "client1:", 8);
    memcpy(text + 8, client->nonce, GYRE_NONCE_BYTES);
    memcpy(text + 8 + GYRE_NONCE_BYTES, server->nonce, GYRE_NONCE_BYTES);
    gyre_authenticate_prepare();
    pthread_mutex_lock(&proof_lock);
    const bool is_made = !is_exiting && HMAC(EVP_sha256(), secret, GYRE_SECRET_BYTES, text,
                                             sizeof(text), proof_out, &n_proof) != NULL;
    pthread_mutex_unlock(&proof_lock);
    return is_made && n_proof == GYRE_PROOF_BYTES
               ? GYRE_SUCCESS
               : gyre_fail(GYRE_ERROR_SYSTEM, "HMAC-SHA256 is not available in libcrypto");
}

gyre_status gyre_authenticate(int fd, const uint8_t secret[GYRE_SECRET_BYTES], bool is_server,
                              uint64_t deadline_ns)
{
    struct gyre_hello hello;
    struct gyre_answer answer;
    uint8_t proof[GYRE_PROOF_BYTES], expected[GYRE_PROOF_BYTES];
    GYRE_TRY(make_hello(is_server ? &hello : &answer.hello));
    if (is_server)
        GYRE_TRY(gyre_sock_send(fd, &hello, sizeof(hello), deadline_ns));
    struct gyre_hello *theirs = is_server ? &answer.hello : &hello;
    GYRE_TRY(gyre_sock_recv(fd, theirs, sizeof(*theirs), deadline_ns));
    if (theirs->magic != HELLO_MAGIC)
        return gyre_fail(GYRE_ERROR_REMOTE, "the peer does not speak gyre's protocol");
    GYRE_TRY(make_proof(secret, is_server, &answer.hello, &hello, proof));
    GYRE_TRY(make_proof(secret, !is_server, &answer.hello, &hello, expected));
    if (!is_server) {
        memcpy(answer.proof, proof, sizeof(proof));
        GYRE_TRY(gyre_sock_send(fd, &answer, sizeof(answer), deadline_ns));
    }
    GYRE_TRY(gyre_sock_recv(fd, answer.proof, sizeof(answer.proof), deadline_ns));
    if (CRYPTO_memcmp(answer.proof, expected, sizeof(expected)) != 0)
        return gyre_fail(GYRE_ERROR_REMOTE, "the peer does not know this job's secret");
    return is_server ? gyre_sock_send(fd, proof, sizeof(proof), deadline_ns) : GYRE_SUCCESS;
}

void gyre_authenticate_release(void)
{
    pthread_mutex_lock(&proof_lock);
    if (!is_exiting)
        OPENSSL_thread_stop();
    pthread_mutex_unlock(&proof_lock);
}

#define MAX_STRANGERS  256
#define EVICT_AFTER_NS 500000000ULL

bool gyre_stranger_greet(struct gyre_stranger *stranger_out, int fd)
{
    memset(stranger_out, 0, sizeof(*stranger_out));
    stranger_out->fd = fd;
    stranger_out->born_ns = gyre_now_ns();
    /* the empty socket buffer takes all or nothing */
    return make_hello(&stranger_out->hello) == GYRE_SUCCESS &&
           send(fd, &stranger_out->hello, sizeof(stranger_out->hello), MSG_NOSIGNAL) ==
               sizeof(stranger_out->hello);
}

enum gyre_stranger_state gyre_stranger_read(struct gyre_stranger *stranger,
                                            const uint8_t secret[GYRE_SECRET_BYTES])
{
    while (stranger->n_read < sizeof(stranger->answer)) {
        const ssize_t n_got = recv(stranger->fd, (uint8_t *)&stranger->answer + stranger->n_read,
                                   sizeof(stranger->answer) - stranger->n_read, 0);
        if (n_got < 0 && errno == EINTR)
            continue;
        if (n_got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return GYRE_STRANGER_WAITS;
        if (n_got <= 0)
            return GYRE_STRANGER_REFUSED;
        stranger->n_read += (size_t)n_got;
        if (stranger->n_read >= sizeof(stranger->answer.hello.magic) &&
            stranger->answer.hello.magic != HELLO_MAGIC)
            return GYRE_STRANGER_REFUSED;
    }
    uint8_t proof[GYRE_PROOF_BYTES];
    const struct gyre_hello *client = &stranger->answer.hello;
    const bool is_proved =
        make_proof(secret, false, client, &stranger->hello, proof) == GYRE_SUCCESS &&
        CRYPTO_memcmp(proof, stranger->answer.proof, sizeof(proof)) == 0 &&
        make_proof(secret, true, client, &stranger->hello, proof) == GYRE_SUCCESS &&
        send(stranger->fd, proof, sizeof(proof), MSG_NOSIGNAL) == sizeof(proof);
    return is_proved ? GYRE_STRANGER_PROVED : GYRE_STRANGER_REFUSED;
}

enum gyre_stranger_room gyre_stranger_room(int n_strangers, const struct gyre_stranger *oldest)
{
    if (n_strangers < MAX_STRANGERS)
        return GYRE_STRANGER_ROOM;
    if (oldest == NULL || gyre_now_ns() - oldest->born_ns < EVICT_AFTER_NS)
        return GYRE_STRANGER_FULL;
    return GYRE_STRANGER_EVICT;
}

/* A peer is dead when its kernel is silent, not when its process is stopped. Linux sends no
 * keepalive probes while bytes wait to be sent, and TCP_USER_TIMEOUT also ends a connection to a
 * stopped process whose window is full. So arriving segments are counted: a live kernel sends one
 * every two seconds. A reset ends the connection: a FIN would wait behind unacknowledged bytes. */
/* Keepalive's 2 s, and five probes a second apart. */
#define SILENT_NS  (7 * GYRE_SECOND_NS)
#define UNHEARD_NS (5 * GYRE_SECOND_NS)
/* TCP_CLOSE in netinet/tcp.h: only a reset leads there. */
#define STATE_CLOSED 7
/* A process that was stopped has not looked; the peer was not silent. */
#define LOOK_MAX_NS (2 * GYRE_SECOND_NS)

static bool read_info(int fd, struct tcp_info *info_out)
{
    socklen_t n_info = sizeof(*info_out);
    memset(info_out, 0, sizeof(*info_out));
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, info_out, &n_info) == 0 &&
           n_info >= offsetof(struct tcp_info, tcpi_segs_in) + sizeof(info_out->tcpi_segs_in);
}

bool gyre_wire_is_silent(int fd, struct gyre_wire_watch *watch)
{
    struct tcp_info info;
    const uint64_t now_ns = gyre_now_ns();
    if (!read_info(fd, &info))
        return false; /* not TCP, or a kernel before 4.2 */
    const uint64_t passed_ns =
        watch->looked_ns == 0 ? 0 : gyre_min_u64(now_ns - watch->looked_ns, LOOK_MAX_NS);
    const bool has_come = info.tcpi_segs_in != watch->n_segments;
    const bool is_heard = info.tcpi_bytes_acked != watch->n_acked_bytes ||
                          (info.tcpi_unacked == 0 && info.tcpi_notsent_bytes == 0);
    watch->silent_ns = has_come ? 0 : watch->silent_ns + passed_ns;
    watch->unheard_ns = is_heard ? 0 : watch->unheard_ns + passed_ns;
    watch->n_segments = info.tcpi_segs_in;
    watch->n_acked_bytes = info.tcpi_bytes_acked;
    watch->looked_ns = now_ns;
    return watch->silent_ns >= SILENT_NS;
}

void gyre_wire_reset(int fd)
{
    /* Sends a reset at once, and the descriptor stays valid for other threads. */
    const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    (void)connect(fd, &nobody, sizeof(nobody));
}

static bool find_own_fault(const struct gyre_sock_address *own, char *text_out, size_t text_bytes)
{
    struct gyre_sock_interface *all = NULL;
    char address[64];
    int n = 0, at = 0;
    if (own->family == 0 || gyre_sock_interfaces(&all, &n) != GYRE_SUCCESS)
        return false;
    while (at < n && !gyre_sock_is_same_host(&all[at].address, own))
        at++;
    const bool is_listed = at < n;
    const bool is_running = is_listed && all[at].is_running;
    if (is_listed && !is_running)
        snprintf(text_out, text_bytes, "this host's interface %s %s", all[at].name,
                 all[at].is_up ? "has no link" : "is down");
    free(all);
    if (is_listed)
        return !is_running;
    struct gyre_sock_address host = *own;
    host.port = 0;
    snprintf(text_out, text_bytes, "this host has lost its address %s",
             gyre_sock_to_text(&host, address, sizeof(address)));
    char *port = strrchr(text_out, ':');
    if (port != NULL)
        *port = '\0';
    return true;
}

const char *gyre_wire_end_text(int fd, int error_number, const struct gyre_wire_watch *watch,
                               char *text_out, size_t text_bytes)
{
    struct tcp_info info;
    char fault[128];
    const bool has_info = read_info(fd, &info);
    /* The kernel reports a reset once, maybe to a send; then reading finds an end as after a
     * FIN. */
    const bool was_reset = has_info && info.tcpi_state == STATE_CLOSED;
    if (error_number == 0 && !was_reset) {
        snprintf(text_out, text_bytes, "exited or closed its connection");
    } else if (error_number == ETIMEDOUT || error_number == EHOSTUNREACH ||
               error_number == ENETUNREACH || error_number == ENETDOWN) {
        if (find_own_fault(&watch->own, fault, sizeof(fault)))
            snprintf(text_out, text_bytes, "cannot be reached any more: %s", fault);
        else
            snprintf(text_out, text_bytes, "stopped answering: its host or network is gone");
    } else if (watch->unheard_ns >= UNHEARD_NS ||
               (has_info && info.tcpi_last_ack_recv >= UNHEARD_NS / 1000000)) {
        snprintf(text_out, text_bytes,
                 "gave this connection up: it has heard nothing from this host for some seconds "
                 "(packets to it get lost)");
    } else {
        snprintf(text_out, text_bytes, "exited or closed its connection (reset)");
    }
    return text_out;
}

void gyre_wire_watch_start(int fd, struct gyre_wire_watch *watch_out)
{
    char before[GYRE_CAUSE_MAX_BYTES];
    memset(watch_out, 0, sizeof(*watch_out));
    snprintf(before, sizeof(before), "%s", gyre_cause());
    if (gyre_sock_own_address(fd, &watch_out->own) != GYRE_SUCCESS) {
        watch_out->own.family = 0;
        gyre_set_cause(before);
    }
}

#define AWAIT_MS            100
#define MAX_QUEUED_MESSAGES 1024

gyre_status gyre_wire_await(int fd, struct gyre_wire_watch *watch, uint64_t deadline_ns,
                            bool *has_word_out)
{
    char text[160];
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    *has_word_out = poll(&entry, 1, AWAIT_MS) > 0;
    if (*has_word_out)
        return GYRE_SUCCESS;
    if (gyre_now_ns() >= deadline_ns)
        return gyre_fail(GYRE_ERROR_TIMEOUT, "no word from it in time");
    if (gyre_wire_is_silent(fd, watch))
        return gyre_fail(GYRE_ERROR_REMOTE, "it %s",
                         gyre_wire_end_text(fd, ETIMEDOUT, watch, text, sizeof(text)));
    return GYRE_SUCCESS;
}

void gyre_events_push(struct gyre_event_queue *queue, enum gyre_event_kind kind, int rank,
                      const void *bytes, size_t n_bytes)
{
    if (kind == GYRE_EVENT_MESSAGE && queue->n_messages >= MAX_QUEUED_MESSAGES) {
        GYRE_INFO(BOOTSTRAP, "a message of rank %d is dropped: %d wait already", rank,
                  queue->n_messages);
        return;
    }
    struct gyre_event_node *node = calloc(1, sizeof(*node));
    if (node == NULL)
        return;
    struct gyre_event *event = &node->event;
    event->kind = kind;
    event->rank = rank;
    const size_t room =
        kind == GYRE_EVENT_MESSAGE ? sizeof(event->message) : sizeof(event->text) - 1;
    event->n_bytes = (uint32_t)gyre_min_u64(n_bytes, room);
    if (event->n_bytes > 0)
        memcpy(event->message, bytes, event->n_bytes);
    queue->n_messages += kind == GYRE_EVENT_MESSAGE;
    if (queue->last != NULL)
        queue->last->next = node;
    else
        queue->first = node;
    queue->last = node;
}

bool gyre_events_pop(struct gyre_event_queue *queue, struct gyre_event *event_out)
{
    struct gyre_event_node *node = queue->first;
    if (node == NULL)
        return false;
    *event_out = node->event;
    queue->n_messages -= node->event.kind == GYRE_EVENT_MESSAGE;
    queue->first = node->next;
    if (queue->first == NULL)
        queue->last = NULL;
    free(node);
    return true;
}

void gyre_events_clear(struct gyre_event_queue *queue)
{
    struct gyre_event event;
    while (gyre_events_pop(queue, &event))
        continue;
}

size_t gyre_gather_cap(int n_ranks)
{
    const size_t share = GYRE_GATHER_MAX_BYTES / (size_t)n_ranks;
    return share > GYRE_GATHER_V_MAX_BYTES ? share : GYRE_GATHER_V_MAX_BYTES;
}

gyre_status gyre_gather_check(int n_ranks, size_t n_bytes, bool is_fixed)
{
    const size_t cap =
        is_fixed ? GYRE_GATHER_MAX_BYTES / (size_t)n_ranks : gyre_gather_cap(n_ranks);
    if (n_bytes > cap)
        return gyre_fail(
            GYRE_ERROR_INVALID_ARGUMENT, "%s of %zu bytes%s; at most %zu with %d ranks",
            is_fixed ? "all_gather" : "gather", n_bytes, is_fixed ? "" : " a rank", cap, n_ranks);
    return GYRE_SUCCESS;
}

gyre_status gyre_post_check(int n_ranks, int rank, size_t n_bytes)
{
    if (n_bytes > GYRE_MESSAGE_MAX_BYTES || rank < -1 || rank >= n_ranks)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "post of %zu bytes to rank %d: at most %d bytes, ranks -1..%d", n_bytes,
                         rank, GYRE_MESSAGE_MAX_BYTES, n_ranks - 1);
    return GYRE_SUCCESS;
}

gyre_status gyre_gathered_check(const void *payload, size_t n_payload, int n_ranks)
{
    const uint32_t *sizes = payload;
    uint64_t n_total = (uint64_t)n_ranks * sizeof(*sizes);
    if (n_payload >= n_total) {
        for (int rank = 0; rank < n_ranks; rank++)
            n_total += sizes[rank];
        if (n_total == n_payload)
            return GYRE_SUCCESS;
    }
    return gyre_fail(GYRE_ERROR_REMOTE, "a gathered result of %zu bytes does not fit %d ranks",
                     n_payload, n_ranks);
}

gyre_status gyre_gathered_fixed(const void *payload, int n_ranks, size_t n_bytes, void *all_out)
{
    const uint32_t *sizes = payload;
    for (int rank = 0; rank < n_ranks; rank++) {
        if (sizes[rank] != n_bytes)
            return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                             "all_gather of %zu bytes here, but of %u bytes on rank %d: the ranks "
                             "are not in the same step of set-up",
                             n_bytes, sizes[rank], rank);
    }
    if (n_bytes > 0)
        memcpy(all_out, sizes + n_ranks, (size_t)n_ranks * n_bytes);
    return GYRE_SUCCESS;
}

gyre_status gyre_gathered_v(const void *payload, int n_ranks, void **all_out, size_t *offsets_out)
{
    const uint32_t *sizes = payload;
    size_t n_total = 0;
    for (int rank = 0; rank < n_ranks; rank++) {
        offsets_out[rank] = n_total;
        n_total += sizes[rank];
    }
    offsets_out[n_ranks] = n_total;
    void *all = malloc(n_total > 0 ? n_total : 1);
    if (all == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%zu bytes of a gathered result", n_total);
    memcpy(all, sizes + n_ranks, n_total);
    *all_out = all;
    return GYRE_SUCCESS;
}
