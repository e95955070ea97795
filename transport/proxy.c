/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/proxy.h"

#include "core/foundation/base/file.h"
#include "core/foundation/base/log.h"
#include "core/foundation/base/sync.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* Longer than an executor takes for a slot, so the proxy sees the next one at once. */
#define PROXY_WARM_NS 200000
/* It yields only after this time. */
#define PROXY_SPIN_NS 2000
/* Sleeps double up to the second, the most that an operation waits if nothing wakes the proxy. */
#define PROXY_NAP_MIN_NS 50000
#define PROXY_NAP_MAX_NS 1000000
/* A helping executor wakes the thread if work is left. */
#define PROXY_HELPED_NAP_NS 10000000

enum wake_state {
    WAKE_RUNNING,
    WAKE_NAPPING, /* a wake must also write to wake_fd */
    WAKE_NOTED
};

struct gyre_proxy {
    pthread_t thread;
    pthread_mutex_t lock; /* held while clients are polled */
    uint32_t n_helps;     /* under lock */
    struct gyre_fault *fault;
    int rank;
    uint32_t stop;       /* set by close */
    uint32_t wake_state; /* enum wake_state; only compare-exchange changes it */
    int wake_fd;
    struct gyre_proxy_client client;
    struct pollfd nap_fds[2]; /* wake_fd, then the client's; only the thread uses it */
    nfds_t n_nap_fds;
};

static void nap(struct gyre_proxy *proxy, nfds_t n_fds, uint64_t nap_ns)
{
    if (!gyre_compare_exchange_u32(&proxy->wake_state, WAKE_RUNNING, WAKE_NAPPING))
        return;
    const struct timespec nap_time = {0, (long)nap_ns};
    const int n_ready = ppoll(proxy->nap_fds, n_fds, &nap_time, NULL);
    gyre_compare_exchange_u32(&proxy->wake_state, WAKE_NAPPING, WAKE_RUNNING);
    uint64_t n_wakes;
    if (n_ready > 0 && proxy->nap_fds[0].revents != 0 &&
        read(proxy->wake_fd, &n_wakes, sizeof(n_wakes)) < 0)
        GYRE_WARN("proxy: read(eventfd): errno %d", errno);
}

/* @work: the client's poll or settle; NULL does nothing. */
static bool do_locked(struct gyre_proxy *proxy, bool (*work)(void *context))
{
    pthread_mutex_lock(&proxy->lock);
    const bool has_moved = work != NULL && work(proxy->client.context);
    pthread_mutex_unlock(&proxy->lock);
    return has_moved;
}

static void *proxy_main(void *argument)
{
    struct gyre_proxy *proxy = argument;
    gyre_log_set_rank(proxy->rank);
    uint64_t moved_at_ns = gyre_now_ns();
    uint64_t nap_ns = PROXY_NAP_MIN_NS;
    uint32_t n_helps_seen = 0;
    while (gyre_load_acquire_u32(&proxy->stop) == 0 && !gyre_fault_is_raised(proxy->fault)) {
        const bool has_moved = do_locked(proxy, proxy->client.poll);
        const bool has_note =
            gyre_compare_exchange_u32(&proxy->wake_state, WAKE_NOTED, WAKE_RUNNING);
        const uint32_t n_helps = gyre_load_relaxed_u32(&proxy->n_helps);
        const uint64_t now_ns = gyre_now_ns();
        if (has_note)
            n_helps_seen = n_helps;
        if (has_note || has_moved) {
            moved_at_ns = now_ns;
            nap_ns = PROXY_NAP_MIN_NS;
        } else if (now_ns - moved_at_ns < PROXY_SPIN_NS) {
            gyre_cpu_relax();
        } else if (now_ns - moved_at_ns < PROXY_WARM_NS) {
            sched_yield();
        } else if (n_helps != n_helps_seen) {
            n_helps_seen = n_helps;
            nap(proxy, 1, PROXY_HELPED_NAP_NS);
        } else if (!do_locked(proxy, proxy->client.settle)) {
            nap(proxy, proxy->n_nap_fds, nap_ns);
            nap_ns = gyre_min_u64(2 * nap_ns, PROXY_NAP_MAX_NS);
        }
    }
    return NULL;
}

bool gyre_proxy_help(struct gyre_proxy *proxy, bool is_last)
{
    if (pthread_mutex_trylock(&proxy->lock) != 0) {
        /* Its poll may have begun before the last slot was published. */
        if (is_last)
            gyre_proxy_wake(proxy);
        return false;
    }
    gyre_store_relaxed_u32(&proxy->n_helps, proxy->n_helps + 1);
    const struct gyre_proxy_client *client = &proxy->client;
    const bool has_moved = client->poll(client->context);
    const bool needs_thread = (has_moved || is_last) && client->is_behind != NULL &&
                              client->is_behind(client->context, !is_last);
    pthread_mutex_unlock(&proxy->lock);
    if (needs_thread)
        gyre_proxy_wake(proxy);
    return has_moved;
}

static void proxy_free(struct gyre_proxy *proxy)
{
    if (proxy->wake_fd >= 0)
        close(proxy->wake_fd);
    pthread_mutex_destroy(&proxy->lock);
    free(proxy);
}

gyre_status gyre_proxy_open(const struct gyre_proxy_client *client, int rank,
                            struct gyre_fault *fault, struct gyre_proxy **proxy_out)
{
    gyre_status status;
    struct gyre_proxy *proxy = calloc(1, sizeof(*proxy));
    if (proxy == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "proxy of rank %d", rank);
    proxy->fault = fault;
    proxy->rank = rank;
    proxy->client = *client;
    pthread_mutex_init(&proxy->lock, NULL);
    proxy->wake_fd = gyre_descriptor_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (proxy->wake_fd < 0) {
        status = gyre_fail_errno(errno, "proxy of rank %d: eventfd", rank);
        goto free_proxy;
    }
    proxy->nap_fds[proxy->n_nap_fds++] = (struct pollfd){.fd = proxy->wake_fd, .events = POLLIN};
    if (client->nap_fd != NULL)
        proxy->nap_fds[proxy->n_nap_fds++] =
            (struct pollfd){.fd = *client->nap_fd, .events = POLLIN};
    GYRE_TRY_GOTO(status, gyre_thread_start(&proxy->thread, 0, proxy_main, proxy, "a proxy"),
                  free_proxy);
    *proxy_out = proxy;
    return GYRE_SUCCESS;

free_proxy:
    proxy_free(proxy);
    return status;
}

void gyre_proxy_wake(struct gyre_proxy *proxy)
{
    while (!gyre_compare_exchange_u32(&proxy->wake_state, WAKE_RUNNING, WAKE_NOTED)) {
        /* Written again, because the proxy may be taking it now: then its next poll sees the slots
         * that the caller has published. A load does not promise that on ARM64
         * (tests/litmus/proxy_wake.litmus). */
        if (gyre_compare_exchange_u32(&proxy->wake_state, WAKE_NOTED, WAKE_NOTED))
            return;
        if (!gyre_compare_exchange_u32(&proxy->wake_state, WAKE_NAPPING, WAKE_NOTED))
            continue;
        const uint64_t one = 1;
        if (write(proxy->wake_fd, &one, sizeof(one)) < 0)
            GYRE_WARN("proxy: write(eventfd): errno %d", errno);
        return;
    }
}

void gyre_proxy_pause(struct gyre_proxy *proxy)
{
    pthread_mutex_lock(&proxy->lock);
}

void gyre_proxy_resume(struct gyre_proxy *proxy)
{
    pthread_mutex_unlock(&proxy->lock);
}

void gyre_proxy_close(struct gyre_proxy *proxy)
{
    gyre_store_release_u32(&proxy->stop, 1);
    gyre_proxy_wake(proxy);
    pthread_join(proxy->thread, NULL);
    proxy_free(proxy);
}

#define SLOT_ALIGN_BYTES       4096
#define SMALL_SLOT_ALIGN_BYTES 256

uint64_t gyre_proxy_slots_bytes(uint32_t depth, uint32_t slot_bytes)
{
    const uint64_t n_bytes = (uint64_t)depth * slot_bytes;
    return gyre_round_up(n_bytes,
                         n_bytes < SLOT_ALIGN_BYTES ? SMALL_SLOT_ALIGN_BYTES : SLOT_ALIGN_BYTES);
}

gyre_status gyre_proxy_fifos_alloc(struct gyre_device *device, struct gyre_proxy_fifo *fifos,
                                   uint32_t n, void **memory_out, size_t *n_bytes_out)
{
    const uint64_t words_bytes = gyre_round_up(
        (uint64_t)n * (sizeof(struct gyre_inbox) + sizeof(struct gyre_credit)), SLOT_ALIGN_BYTES);
    uint64_t n_bytes = words_bytes + SLOT_ALIGN_BYTES;
    for (uint32_t i = 0; i < n; i++)
        if (__builtin_add_overflow(
                n_bytes, gyre_proxy_slots_bytes(fifos[i].depth, fifos[i].slot_bytes), &n_bytes))
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "slots of %u FIFOs do not fit in memory",
                             n);
    void *memory;
    GYRE_TRY(device->ops->host_alloc(device, n_bytes, &memory));

    unsigned char *words =
        (unsigned char *)(uintptr_t)gyre_round_up((uintptr_t)memory, SLOT_ALIGN_BYTES);
    struct gyre_inbox *inboxes = (struct gyre_inbox *)(void *)words;
    struct gyre_credit *credits = (struct gyre_credit *)(void *)(inboxes + n);
    unsigned char *slots = words + words_bytes;
    for (uint32_t i = 0; i < n; i++) {
        fifos[i].slots = slots;
        fifos[i].inbox = &inboxes[i];
        fifos[i].credit = &credits[i];
        slots += gyre_proxy_slots_bytes(fifos[i].depth, fifos[i].slot_bytes);
    }
    *memory_out = memory;
    *n_bytes_out = n_bytes;
    return GYRE_SUCCESS;
}

struct gyre_connector gyre_proxy_connector(const struct gyre_proxy_fifo *fifo)
{
    return (struct gyre_connector){
        .slots = {[GYRE_PROTO_SIMPLE] = fifo->slots},
        .inbox = fifo->inbox,
        .credit = fifo->credit,
        .slot_bytes = fifo->slot_bytes,
        .depth = (uint16_t)fifo->depth,
        .is_proxied = 1,
    };
}

/* Divisions take long. */
static uint64_t slot_of(const struct gyre_line_slots *ring, uint64_t number)
{
    const uint32_t mask = ring->depth - 1;
    return (ring->depth & mask) == 0 ? number & mask : number % ring->depth;
}

static uint64_t *words_of(const struct gyre_line_slots *ring, uint64_t number)
{
    return (uint64_t *)(void *)(ring->slots + slot_of(ring, number) * ring->slot_bytes);
}

static uint64_t flag_of(uint64_t number)
{
    return (uint64_t)gyre_ll_flag(number) << 32;
}

bool gyre_lines_announced(const struct gyre_line_slots *ring, const struct gyre_inbox *inbox,
                          uint64_t number, uint32_t *n_lines_out)
{
    const uint64_t announcement =
        gyre_load_acquire_u64(&inbox->slot_info[GYRE_FIRST_LINE_INFO + slot_of(ring, number)]);
    const uint64_t *words = words_of(ring, number);
    *n_lines_out = (uint32_t)announcement;
    if (!gyre_ll_is_announced(announcement, number))
        return false;
    /* The last line usually arrives last. */
    for (uint32_t i = 2 * *n_lines_out; i > 0; i--)
        if (gyre_load_relaxed_u64(&words[i - 1]) >> 32 != flag_of(number) >> 32)
            return false;
    return true;
}

uint32_t gyre_lines_clean(const struct gyre_line_slots *ring, uint64_t number, uint32_t n_lines)
{
    const uint32_t n_all = ring->slot_bytes / GYRE_LL_LINE_BYTES;
    uint64_t *words = words_of(ring, number);
    if (number < ring->depth || !gyre_ll_cleans(number, ring->depth))
        return n_lines;
    for (uint32_t i = 2 * n_lines; i < 2 * n_all; i++)
        gyre_store_relaxed_u64(&words[i], flag_of(number));
    return n_all;
}

void gyre_lines_unpack(const struct gyre_line_slots *ring, uint64_t number, uint32_t n_lines,
                       unsigned char *to)
{
    const uint64_t *words = words_of(ring, number);
    for (uint32_t i = 0; i < 2 * n_lines; i++) {
        const uint32_t data = (uint32_t)gyre_load_relaxed_u64(&words[i]);
        memcpy(to + i * sizeof(data), &data, sizeof(data));
    }
}

void gyre_lines_pack(const struct gyre_line_slots *ring, uint64_t number, uint32_t n_lines,
                     const unsigned char *from)
{
    uint64_t *words = words_of(ring, number);
    for (uint32_t i = 0; i < 2 * n_lines; i++) {
        uint32_t data;
        memcpy(&data, from + i * sizeof(data), sizeof(data));
        gyre_store_relaxed_u64(&words[i], flag_of(number) | data);
    }
}
