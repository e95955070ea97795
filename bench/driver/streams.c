/* SPDX-License-Identifier: Apache-2.0 */
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
    do /* open() takes the lowest free number */
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
    /* A write beyond ulimit -f then fails with a message instead of ending the process. */
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
    if (!is_lost && ferror(stdout) != 0 && exit_status == 0) { /* else reported earlier */
        /* The stream keeps no reason, so one more line finds it. */
        is_lost = true;
        why = putchar('\n') == EOF || fflush(stdout) != 0 ? strerror(errno) : "was interrupted";
    }
    if (!is_lost)
        return exit_status;
    fprintf(stderr, "%s: standard output: %s\n", program, why);
    return exit_status != 0 ? exit_status : 1;
}
