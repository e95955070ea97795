/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/interrupt.h"

#include "core/base/util.h"

#include <signal.h>
#include <stddef.h>

/* Set by the signal handler only: a process has one, hence not in a struct. */
static volatile sig_atomic_t has_come;

static void set_handler(void (*handler)(int number))
{
    static const int numbers[] = {SIGINT, SIGTERM};
    const struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(numbers); i++)
        sigaction(numbers[i], &action, NULL);
}

/* Who asks may be hours away, at the end of a long size, so the next signal is not taken. */
static void on_interrupt(int number)
{
    (void)number;
    has_come = 1;
    set_handler(SIG_DFL);
}

void bench_interrupt_open(void)
{
    if (!has_come)
        set_handler(on_interrupt);
}

void bench_interrupt_close(void)
{
    set_handler(SIG_DFL);
}

bool bench_is_interrupted(void)
{
    return has_come != 0;
}
