/* SPDX-License-Identifier: Apache-2.0
 *
 * The parent of the child process that copies. It reads events from a pipe, each with a deadline.
 */
#include "bench/doctor/pairs.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define END_MS 2000 /* until a child that was killed must be gone */

void bench_pair_tell(int fd, const struct bench_pair_event *event)
{
    /* An event is smaller than PIPE_BUF, so it is written whole or not at all. If the parent is
     * gone the write fails. */
    if (write(fd, event, sizeof(*event)) != (ssize_t)sizeof(*event))
        _exit(1);
}

/* Reads one whole event. Errors: TIMEOUT, REMOTE (the child ended without BENCH_PAIR_END). */
static gyre_status read_event(int fd, int timeout_ms, struct bench_pair_event *event_out)
{
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    int n_ready;
    do
        n_ready = poll(&waiting, 1, timeout_ms);
    while (n_ready < 0 && errno == EINTR);
    if (n_ready <= 0)
        return gyre_fail(GYRE_ERROR_TIMEOUT, "nothing for %d s", timeout_ms / 1000);
    if (read(fd, event_out, sizeof(*event_out)) != (ssize_t)sizeof(*event_out))
        return gyre_fail(GYRE_ERROR_REMOTE, "the process that copies has ended");
    event_out->cause[sizeof(event_out->cause) - 1] = '\0';
    return GYRE_SUCCESS;
}

static bool is_legal(const struct bench_pairs *pairs, const struct bench_pair_event *event)
{
    return event->from >= 0 && event->from < pairs->n && event->to >= 0 && event->to < pairs->n;
}

/* Takes one event. Returns false after the last one. */
static bool take(const struct bench_pair_event *event, struct bench_pairs *pairs,
                 gyre_status *status)
{
    switch ((enum bench_pair_event_kind)event->kind) {
    case BENCH_PAIR_COUNT:
        pairs->n = event->from < BENCH_MAX_PAIR_DEVICES ? event->from : BENCH_MAX_PAIR_DEVICES;
        return true;
    case BENCH_PAIR_START:
        pairs->from = event->from;
        pairs->to = event->to;
        return true;
    case BENCH_PAIR_DONE:
        if (is_legal(pairs, event)) {
            pairs->latency_us[event->from][event->to] = event->latency_us;
            pairs->gbytes_per_s[event->from][event->to] = event->gbytes_per_s;
        }
        return true;
    case BENCH_PAIR_FAILED:
        *status = gyre_fail(GYRE_ERROR_DEVICE, "%s", event->cause);
        return false;
    case BENCH_PAIR_END:
        break;
    }
    return false;
}

/* End the child. A child that hangs in a driver may not end even if it is killed; then it is left
 * alone. */
static void end_child(pid_t child)
{
    kill(child, SIGKILL);
    for (int waited_ms = 0; waited_ms < END_MS && waitpid(child, NULL, WNOHANG) == 0;
         waited_ms += 10)
        poll(NULL, 0, 10);
}

gyre_status bench_pairs_run(bench_pairs_function *measure, int kind, int timeout_ms,
                            struct bench_pairs *pairs_out)
{
    int fds[2];
    struct bench_pair_event event;
    gyre_status status = GYRE_SUCCESS;
    memset(pairs_out, 0, sizeof(*pairs_out));
    pairs_out->from = pairs_out->to = -1;
    for (int i = 0; i < BENCH_MAX_PAIR_DEVICES; i++)
        for (int j = 0; j < BENCH_MAX_PAIR_DEVICES; j++)
            pairs_out->latency_us[i][j] = pairs_out->gbytes_per_s[i][j] = NAN;
    if (pipe(fds) != 0)
        return gyre_fail_errno(errno, "pipe");
    fflush(NULL); /* otherwise the child would print the buffered text a second time */
    const pid_t child = fork();
    if (child < 0) {
        status = gyre_fail_errno(errno, "fork");
        close(fds[0]);
        close(fds[1]);
        return status;
    }
    if (child == 0) {
        close(fds[0]);
        measure(fds[1], kind);
        _exit(0);
    }
    close(fds[1]);
    do
        status = read_event(fds[0], timeout_ms, &event);
    while (status == GYRE_SUCCESS && take(&event, pairs_out, &status));
    close(fds[0]);
    end_child(child);
    return status;
}
