/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/doctor/trial.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define END_MS 2000 /* until a killed child is gone */

gyre_status bench_child_start(void (*run)(int fd, const void *argument), const void *argument,
                              struct bench_child *child_out)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        return gyre_fail_errno(errno, "pipe");
    fflush(NULL); /* else the child prints it again */
    const pid_t pid = fork();
    if (pid == 0) {
        (void)setpgid(0, 0);
        close(fds[0]);
        run(fds[1], argument);
        _exit(0);
    }
    const int error = errno;
    close(fds[1]);
    if (pid < 0) {
        close(fds[0]);
        return gyre_fail_errno(error, "fork");
    }
    (void)setpgid(pid, pid);
    *child_out = (struct bench_child){.pid = pid, .fd = fds[0]};
    return GYRE_SUCCESS;
}

ssize_t bench_child_read(const struct bench_child *child, int timeout_ms, void *bytes_out,
                         size_t n_bytes)
{
    struct pollfd waiting = {.fd = child->fd, .events = POLLIN};
    int n_ready;
    do
        n_ready = poll(&waiting, 1, timeout_ms);
    while (n_ready < 0 && errno == EINTR);
    return n_ready > 0 ? read(child->fd, bytes_out, n_bytes) : -1;
}

gyre_status bench_child_take(const struct bench_child *child, int timeout_ms, const char *silence,
                             const char *what, void *record_out, size_t record_bytes)
{
    const ssize_t n = bench_child_read(child, timeout_ms, record_out, record_bytes);
    if (n < 0)
        return gyre_fail(GYRE_ERROR_TIMEOUT, "%s for %d s", silence, timeout_ms / 1000);
    return n == (ssize_t)record_bytes
               ? GYRE_SUCCESS
               : gyre_fail(GYRE_ERROR_REMOTE, "the process that %s has ended", what);
}

void bench_child_tell(int fd, const void *record, size_t record_bytes)
{
    if (write(fd, record, record_bytes) != (ssize_t)record_bytes)
        _exit(1);
}

void bench_child_end(const struct bench_child *child)
{
    close(child->fd);
    kill(-child->pid, SIGKILL);
    for (int waited_ms = 0; waited_ms < END_MS && waitpid(child->pid, NULL, WNOHANG) == 0;
         waited_ms += 10)
        poll(NULL, 0, 10);
}
