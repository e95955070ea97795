/* SPDX-License-Identifier: Apache-2.0
 *
 * A clock for bounds that the library promises: it counts the naps of a thread. On a busy machine
 * the library's threads and this one wake late alike, so a bound in naps takes longer.
 */
#ifndef GYRE_TESTS_PACE_H
#define GYRE_TESTS_PACE_H

#include "core/foundation/base/sync.h"
#include "tests/support/check.h"

#include <pthread.h>
#include <time.h>

#define TEST_NAP_MS 20

struct test_pace {
    pthread_t thread;
    uint32_t n_naps; /* written by the thread */
    uint32_t n_before;
    uint32_t stops;
};

static inline void *test_pace_main(void *pointer)
{
    struct test_pace *pace = pointer;
    const struct timespec nap = {0, TEST_NAP_MS * 1000000L};
    while (gyre_load_acquire_u32(&pace->stops) == 0) {
        nanosleep(&nap, NULL);
        gyre_fetch_add_u32(&pace->n_naps, 1);
    }
    return NULL;
}

static inline void test_pace_start(struct test_pace *pace)
{
    *pace = (struct test_pace){0};
    CHECK(pthread_create(&pace->thread, NULL, test_pace_main, pace) == 0);
}

static inline void test_pace_restart(struct test_pace *pace)
{
    pace->n_before = gyre_load_acquire_u32(&pace->n_naps);
}

/** In ms of an idle machine. */
static inline uint32_t test_pace_stop(struct test_pace *pace)
{
    const uint32_t n_naps = gyre_load_acquire_u32(&pace->n_naps) - pace->n_before;
    gyre_store_release_u32(&pace->stops, 1);
    pthread_join(pace->thread, NULL);
    return n_naps * TEST_NAP_MS;
}

#endif
