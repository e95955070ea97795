/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"
#include "tests/support/check.h"
#include "transport/proxy.h"

#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <time.h>

#define PATIENCE_NS 20000000000ULL

static struct gyre_fault fault;
static struct gyre_proxy_client client;
static struct gyre_proxy *proxy;

static void open_with(struct gyre_proxy_client asked)
{
    client = asked;
    gyre_fault_init(&fault);
    CHECK_OK(gyre_proxy_open(&client, 0, &fault, &proxy));
}

static void end(void)
{
    gyre_proxy_close(proxy);
    gyre_fault_fini(&fault);
}

struct counter {
    uint32_t n_polls;
    uint32_t n_wanted; /* polls that claim to have moved something */
    uint32_t n_moved;
};

static bool count(void *context)
{
    struct counter *counter = context;
    gyre_fetch_add_u32(&counter->n_polls, 1);
    if (gyre_load_relaxed_u32(&counter->n_moved) >= gyre_load_acquire_u32(&counter->n_wanted))
        return false;
    gyre_fetch_add_u32(&counter->n_moved, 1);
    return true;
}

static bool reaches(const uint32_t *word, uint32_t value)
{
    TEST_YIELD_UNTIL(gyre_load_acquire_u32(word) >= value);
    return gyre_load_acquire_u32(word) >= value;
}

TEST_CASE("idle naps and wakes leave the thread usable")
{
    struct counter counter = {0};
    open_with((struct gyre_proxy_client){.poll = count, .context = &counter});
    for (uint32_t i = 1; i <= 200; i++) {
        /* A nap begins now and then, in any phase of it. */
        const struct timespec pause = {0, (long)(i * 5000)};
        if (i % 4 == 0)
            nanosleep(&pause, NULL);
        gyre_store_release_u32(&counter.n_wanted, i);
        gyre_proxy_wake(proxy);
        CHECK(reaches(&counter.n_moved, i));
    }
    end();
}

TEST_CASE("an idle thread polls rarely until its descriptor is ready")
{
    struct counter counter = {0};
    const int fd = eventfd(0, EFD_NONBLOCK);
    open_with((struct gyre_proxy_client){.poll = count, .context = &counter, .nap_fd = &fd});
    const struct timespec warm = {0, 20000000};
    nanosleep(&warm, NULL); /* past the warm phase; more does not matter */
    const uint32_t n_before = gyre_load_acquire_u32(&counter.n_polls);
    const uint64_t began_ns = gyre_now_ns();
    const struct timespec idle = {0, 100000000};
    nanosleep(&idle, NULL);
    const uint64_t idle_us = (gyre_now_ns() - began_ns) / 1000;
    const uint32_t n_idle = gyre_load_acquire_u32(&counter.n_polls) - n_before;
    CHECK_MSG(n_idle < idle_us / 50, "%u polls in %" PRIu64 " us", n_idle, idle_us);
    /* Ready for good: naps, of 1 ms by now, end at once. */
    const uint64_t one = 1;
    CHECK(write(fd, &one, sizeof(one)) == (ssize_t)sizeof(one));
    const uint64_t ready_ns = gyre_now_ns();
    CHECK(reaches(&counter.n_polls, n_before + n_idle + 10000));
    CHECK(gyre_now_ns() - ready_ns < 5000000000);
    end();
    close(fd);
}

/* It notices two polls at a time. */
struct shared_work {
    struct counter counter;
    uint32_t n_inside;
    uint32_t n_overlaps;
    uint32_t n_settled;
    bool leaves_it_to_thread;
    uint32_t leaves_it_to_helper;
    uint32_t n_helper_polls;
    pthread_t helper;
};

static bool count_alone(void *context)
{
    struct shared_work *work = context;
    if (gyre_fetch_add_u32(&work->n_inside, 1) != 0)
        gyre_fetch_add_u32(&work->n_overlaps, 1);
    const bool is_helper = pthread_equal(pthread_self(), work->helper) != 0;
    if (is_helper)
        work->n_helper_polls++;
    const bool is_mine = is_helper ? !work->leaves_it_to_thread
                                   : gyre_load_acquire_u32(&work->leaves_it_to_helper) == 0;
    const bool has_moved = is_mine && count(&work->counter);
    gyre_fetch_add_u32(&work->n_inside, UINT32_MAX); /* minus one */
    return has_moved;
}

static bool has_uncounted(const void *context, bool has_credit)
{
    const struct shared_work *work = context;
    (void)has_credit;
    return gyre_load_relaxed_u32(&work->counter.n_moved) <
           gyre_load_acquire_u32(&work->counter.n_wanted);
}

static bool count_settling(void *context)
{
    struct shared_work *work = context;
    gyre_fetch_add_u32(&work->n_settled, 1);
    return false;
}

TEST_CASE("help shares the clients with the thread")
{
    struct shared_work work = {.helper = pthread_self()};
    open_with((struct gyre_proxy_client){
        .poll = count_alone, .is_behind = has_uncounted, .context = &work});
    for (uint32_t i = 1; i <= 20000; i++) { /* in any order */
        gyre_store_release_u32(&work.counter.n_wanted, i);
        (void)gyre_proxy_help(proxy, false);
    }
    (void)gyre_proxy_help(proxy, true);
    CHECK(reaches(&work.counter.n_moved, 20000));
    gyre_store_release_u32(&work.leaves_it_to_helper, 1);
    gyre_store_release_u32(&work.counter.n_wanted, 20001);
    bool has_helped = false;
    TEST_YIELD_UNTIL((has_helped = gyre_proxy_help(proxy, false))); /* it may be in its round */
    CHECK(has_helped);
    end();
    CHECK(work.n_overlaps == 0);
    CHECK(work.counter.n_moved == 20001);
}

static struct gyre_proxy_client settling_client(struct shared_work *work)
{
    return (struct gyre_proxy_client){
        .poll = count_alone, .is_behind = has_uncounted, .settle = count_settling, .context = work};
}

TEST_CASE("the thread finishes what help leaves")
{
    struct shared_work work = {.helper = pthread_self(), .leaves_it_to_thread = true};
    open_with(settling_client(&work));
    CHECK(reaches(&work.n_settled, 1)); /* before its first nap */
    for (uint32_t i = 1; i <= 200; i++) {
        gyre_store_release_u32(&work.counter.n_wanted, i);
        CHECK(!gyre_proxy_help(proxy, true));
        CHECK(reaches(&work.counter.n_moved, i));
    }
    end();
    CHECK(work.n_overlaps == 0);
}

/* What help leaves may wait for room in the kernel, which only the thread's descriptors announce.
 * While an executor helps, the thread sleeps for 10 ms without them, but not after the last help.
 */
TEST_CASE("the thread watches its descriptors after the last help")
{
    const uint64_t helped_nap_ns = 10000000; /* as in transport/proxy.c */
    struct shared_work work = {
        .helper = pthread_self(), .leaves_it_to_thread = true, .leaves_it_to_helper = 1};
    open_with(settling_client(&work));
    gyre_store_release_u32(&work.counter.n_wanted, 1); /* it stays there: nobody can move it */
    /* A thread that always slept like that would have no short try. A busy machine makes tries
     * long, too. */
    const uint64_t deadline_ns = gyre_now_ns() + PATIENCE_NS;
    bool was_short = false;
    while (!was_short && gyre_now_ns() < deadline_ns) {
        const uint32_t n_helper_polls = work.n_helper_polls;
        CHECK(!gyre_proxy_help(proxy, true));
        const uint64_t began_ns = gyre_now_ns();
        /* At most once before it sees the wake. */
        CHECK(reaches(&work.n_settled, gyre_load_acquire_u32(&work.n_settled) + 2));
        const bool has_helped = work.n_helper_polls != n_helper_polls; /* else the thread polled */
        was_short = has_helped && gyre_now_ns() - began_ns < helped_nap_ns;
    }
    CHECK(was_short);
    end();
}

TEST_CASE("the last help wakes the thread also while another one polls")
{
    struct counter counter = {0};
    open_with((struct gyre_proxy_client){.poll = count, .context = &counter});
    /* An idle thread polls once in 50 us at most, a woken one all the time for a while. On a busy
     * machine it may be away for that while. */
    const struct timespec idle = {0, 10000000};
    const uint64_t deadline_ns = gyre_now_ns() + PATIENCE_NS;
    bool was_woken = false;
    while (!was_woken && gyre_now_ns() < deadline_ns) {
        nanosleep(&idle, NULL);
        gyre_proxy_pause(proxy);
        const uint32_t n_before = gyre_load_acquire_u32(&counter.n_polls);
        CHECK(!gyre_proxy_help(proxy, true));
        const uint64_t began_ns = gyre_now_ns();
        gyre_proxy_resume(proxy);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        const uint32_t n_polls = gyre_load_acquire_u32(&counter.n_polls) - n_before;
        was_woken = n_polls > 10 + (gyre_now_ns() - began_ns) / 50000;
    }
    CHECK(was_woken);
    end();
}

TEST_CASE("a raised fault ends the thread")
{
    struct counter counter = {0};
    open_with((struct gyre_proxy_client){.poll = count, .context = &counter});
    CHECK(reaches(&counter.n_polls, 1));
    gyre_fault_raise(&fault, GYRE_ERROR_REMOTE, "test");
    /* Two counts a while apart are equal at last. */
    const uint64_t deadline_ns = gyre_now_ns() + PATIENCE_NS;
    const struct timespec pause = {0, 5000000};
    uint32_t before, after;
    do {
        before = gyre_load_acquire_u32(&counter.n_polls);
        nanosleep(&pause, NULL);
        after = gyre_load_acquire_u32(&counter.n_polls);
    } while (before != after && gyre_now_ns() < deadline_ns);
    CHECK(before == after);
    end();
}

TEST_CASE("proxied ends have memory of their own")
{
    enum { N = 6, DEPTH = 3 };
    static const uint32_t slot_bytes[N] = {5000, 5000, 100, 0, 100, 5000};
    static const uint64_t slots_bytes[N] = {16384, 16384, 512, 0, 512, 16384}; /* by hand */
    struct gyre_proxy_fifo fifos[N];
    struct gyre_device *device = NULL;
    void *memory = NULL;
    size_t n_bytes = 0;
    CHECK_OK(gyre_device_host.open(-1, &device));
    for (int i = 0; i < N; i++)
        fifos[i] = (struct gyre_proxy_fifo){.slot_bytes = slot_bytes[i], .depth = DEPTH};
    CHECK_OK(gyre_proxy_fifos_alloc(device, fifos, N, &memory, &n_bytes));
    const unsigned char *end = (const unsigned char *)memory + n_bytes;
    for (int i = 0; i < N; i++) {
        CHECK((uintptr_t)fifos[i].slots % 256 == 0);
        CHECK(i == 0 || fifos[i].slots == fifos[i - 1].slots + slots_bytes[i - 1]);
        CHECK((uintptr_t)fifos[i].inbox % 64 == 0 && (uintptr_t)fifos[i].credit % 64 == 0);
        CHECK(fifos[i].inbox->tail[0] == 0 && fifos[i].credit->head[0] == 0);
        CHECK(fifos[i].slots + DEPTH * slot_bytes[i] <= end);
        memset(fifos[i].slots, i, DEPTH * slot_bytes[i]);
        memset(fifos[i].inbox, i, sizeof(*fifos[i].inbox));
        memset(fifos[i].credit, i, sizeof(*fifos[i].credit));
        const struct gyre_connector connector = gyre_proxy_connector(&fifos[i]);
        CHECK(connector.slots[0] == fifos[i].slots && connector.slots[1] == NULL);
        CHECK(connector.inbox == fifos[i].inbox && connector.credit == fifos[i].credit);
        CHECK(connector.is_proxied == 1 && connector.depth == DEPTH);
        CHECK(connector.slot_bytes == slot_bytes[i]);
    }
    CHECK((uintptr_t)fifos[0].slots % 4096 == 0);
    for (int i = 0; i < N; i++) { /* no FIFO's memory was written by another FIFO */
        const uint32_t n_slots_bytes = DEPTH * slot_bytes[i];
        CHECK(n_slots_bytes == 0 ||
              (fifos[i].slots[0] == i && fifos[i].slots[n_slots_bytes - 1] == i));
        CHECK((fifos[i].inbox->slot_info[GYRE_MAX_DEPTH - 1] & 255) == (uint64_t)i);
        CHECK((fifos[i].credit->head[7] & 255) == (uint64_t)i);
    }
    device->ops->host_free(device, memory);
}
