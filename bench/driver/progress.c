/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/driver/rank.h"

#include "core/foundation/base/util.h"

#include <pthread.h>
#include <stdio.h>

#include <time.h>
#include <unistd.h>

struct bench_progress {
    pthread_t thread;
    pthread_mutex_t lock; /* protects the other fields */
    pthread_cond_t ended;
    bool is_ending;
    bool is_line_shown;
    const char *phase; /* NULL = none */
    size_t n_bytes;
    uint64_t started_ns;
};

static void wipe(struct bench_progress *progress)
{
    if (progress->is_line_shown)
        fputs("\r\033[K", stderr);
    progress->is_line_shown = false;
}

/* Once a second, outside timed loops. */
static void *watch(void *argument)
{
    struct bench_progress *progress = argument;
    pthread_mutex_lock(&progress->lock);
    while (!progress->is_ending) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&progress->ended, &progress->lock, &until);
        const double elapsed_s = (double)(gyre_now_ns() - progress->started_ns) / 1e9;
        if (progress->phase != NULL && elapsed_s > 1) {
            fprintf(stderr, "\r\033[K%zu bytes: %s, %.0f s", progress->n_bytes, progress->phase,
                    elapsed_s);
            progress->is_line_shown = true;
        }
    }
    wipe(progress);
    pthread_mutex_unlock(&progress->lock);
    return NULL;
}

gyre_status bench_progress_open(struct bench_progress **progress_out)
{
    *progress_out = NULL;
    if (!isatty(STDERR_FILENO))
        return GYRE_SUCCESS;
    static struct bench_progress own; /* one a process */
    struct bench_progress *progress = &own;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&progress->ended, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&progress->lock, NULL);
    const int result = pthread_create(&progress->thread, NULL, watch, progress);
    if (result != 0)
        return gyre_fail_errno(result, "cannot start the thread of the progress line");
    *progress_out = progress;
    return GYRE_SUCCESS;
}

void bench_progress_close(struct bench_progress *progress)
{
    if (progress == NULL)
        return;
    pthread_mutex_lock(&progress->lock);
    progress->is_ending = true;
    pthread_cond_signal(&progress->ended);
    pthread_mutex_unlock(&progress->lock);
    pthread_join(progress->thread, NULL);
    pthread_mutex_destroy(&progress->lock);
    pthread_cond_destroy(&progress->ended);
}

void bench_progress_begin(struct bench_progress *progress, size_t n_bytes, const char *phase)
{
    if (progress == NULL)
        return;
    pthread_mutex_lock(&progress->lock);
    if (progress->phase == NULL)
        progress->started_ns = gyre_now_ns();
    progress->n_bytes = n_bytes;
    progress->phase = phase;
    pthread_mutex_unlock(&progress->lock);
}

void bench_progress_end(struct bench_progress *progress)
{
    if (progress == NULL)
        return;
    pthread_mutex_lock(&progress->lock);
    progress->phase = NULL;
    wipe(progress);
    pthread_mutex_unlock(&progress->lock);
}
