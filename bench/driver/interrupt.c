/* SPDX-License-Identifier: Apache-2.0
 *
 * The signal handlers behind bench/driver/interrupt.h.
 */
#include "bench/driver/interrupt.h"

#include "core/foundation/base/util.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

/* The time in which the current size may end and the footer is printed. mpirun and schedulers send
 * SIGKILL five seconds or more after SIGTERM. */
#define GRACE_S 4

/* Set by the signal handler only. It is not in a struct, because a process has one signal handler.
 */
static volatile sig_atomic_t number_that_came;

static void set_action(int number, void (*handler)(int number))
{
    const struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct sigaction before;
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(number, &action, NULL);
}

static void set_handler(void (*handler)(int number))
{
    static const int numbers[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(numbers); i++)
        set_action(numbers[i], handler);
}

/* The signal goes to the process and not to this thread, because threads of the library block all
 * signals. */
static void end_by(int number)
{
    set_handler(SIG_DFL);
    kill(getpid(), number);
}

static void on_alarm(int number)
{
    (void)number;
    end_by(number_that_came);
}

/* The end of the current size may be hours away. Therefore a second signal ends the process, and so
 * does the alarm. */
static void on_interrupt(int number)
{
    number_that_came = number;
    set_handler(SIG_DFL);
    alarm(GRACE_S);
}

void bench_interrupt_open(void)
{
    sigset_t alarms;
    const struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    if (number_that_came != 0)
        return;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    sigaction(SIGALRM, &action, NULL);
    set_handler(on_interrupt);
}

void bench_interrupt_close(void)
{
    set_handler(SIG_DFL);
}

int bench_interrupt_number(void)
{
    return number_that_came;
}

void bench_interrupt_exit(void)
{
    if (number_that_came != 0)
        end_by(number_that_came);
}
