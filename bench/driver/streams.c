/* SPDX-License-Identifier: Apache-2.0
 *
 * Output that nobody can read is no success, and no peer's data.
 */
#include "bench/driver/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void bench_streams_open(void)
{
    int fd;
    do /* open() takes the lowest number that is free */
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
    /* A file that reaches ulimit -f is a failed write with its message, not a silent death. */
    (void)signal(SIGXFSZ, SIG_IGN);
}

gyre_status bench_streams_flush(void)
{
    return fflush(stdout) == 0 ? GYRE_SUCCESS : gyre_fail_errno(errno, "standard output");
}

int bench_streams_close(const char *program, int exit_status)
{
    bool is_lost = fflush(stdout) != 0;
    const char *why = strerror(errno);
    if (!is_lost && ferror(stdout) != 0 && exit_status == 0) { /* else a failure was said before */
        /* The stream does not keep why it failed earlier: an empty line more, for the reason. */
        is_lost = true;
        why = putchar('\n') == EOF || fflush(stdout) != 0 ? strerror(errno) : "was interrupted";
    }
    if (!is_lost)
        return exit_status;
    fprintf(stderr, "%s: standard output: %s\n", program, why);
    return exit_status != 0 ? exit_status : 1;
}
