/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/driver/signals.h"

#include "core/foundation/base/status.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

/* mpirun and schedulers send SIGKILL five or more seconds after SIGTERM. */
#define GRACE_S 4

volatile sig_atomic_t bench_interrupt_number;

/* Signals that were ignored at the start stay ignored. */
static void set_action(int number, void (*handler)(int number))
{
    const struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct sigaction before;
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(number, &action, NULL);
}

static void set_handler(void (*handler)(int number))
{
    set_action(SIGINT, handler);
    set_action(SIGTERM, handler);
}

/* To the process: the library's threads block all signals. */
static void end_by(int number)
{
    set_handler(SIG_DFL);
    kill(getpid(), number);
}

static void on_alarm(int number)
{
    (void)number;
    end_by(bench_interrupt_number);
}

/* The current size may last hours. */
static void on_interrupt(int number)
{
    bench_interrupt_number = number;
    set_handler(SIG_DFL);
    alarm(GRACE_S);
}

void bench_interrupt_open(void)
{
    sigset_t alarms;
    const struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    if (bench_interrupt_number != 0)
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

void bench_interrupt_exit(void)
{
    if (bench_interrupt_number != 0)
        end_by(bench_interrupt_number);
}

/* Posted by the signal handler. */
static sem_t wishes;

static struct {
    pthread_t thread;
    pthread_mutex_t lock; /* protects the fields below */
    gyre_comm *comm;
    bool is_ending;
} dump = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void on_user_signal(int number)
{
    const int saved_errno = errno;
    (void)number;
    sem_post(&wishes);
    errno = saved_errno;
}

static void *serve(void *argument)
{
    bool is_ending = false;
    (void)argument;
    while (!is_ending) {
        while (sem_wait(&wishes) != 0) /* EINTR */
            ;
        pthread_mutex_lock(&dump.lock);
        is_ending = dump.is_ending;
        if (!is_ending && dump.comm == NULL)
            fputs("SIGUSR1: the ranks have no communicator now\n", stderr);
        else if (!is_ending && gyre_comm_dump(dump.comm, STDERR_FILENO) != GYRE_SUCCESS)
            fprintf(stderr, "SIGUSR1: %s\n", gyre_cause());
        pthread_mutex_unlock(&dump.lock);
    }
    return NULL;
}

gyre_status bench_dump_open(void)
{
    sem_init(&wishes, 0, 0);
    const int result = pthread_create(&dump.thread, NULL, serve, NULL);
    if (result != 0)
        return gyre_fail_errno(result, "cannot start the thread that prints positions");
    set_action(SIGUSR1, on_user_signal);
    return GYRE_SUCCESS;
}

void bench_dump_set(gyre_comm *comm)
{
    pthread_mutex_lock(&dump.lock);
    dump.comm = comm;
    pthread_mutex_unlock(&dump.lock);
}

/* The semaphore stays, as signals may still come. */
void bench_dump_close(void)
{
    pthread_mutex_lock(&dump.lock);
    dump.is_ending = true;
    pthread_mutex_unlock(&dump.lock);
    sem_post(&wishes);
    pthread_join(dump.thread, NULL);
}
