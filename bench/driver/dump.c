/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread that waits on a semaphore which the signal handler posts. While no signal comes it does
 * nothing.
 */
#include "bench/driver/dump.h"

#include "core/foundation/base/status.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Posted by the signal handler. It is not in a struct, because a process has one signal handler. */
static sem_t wishes;

struct bench_dump {
    pthread_t thread;
    pthread_mutex_t lock; /* protects the fields below */
    gyre_comm *comm;
    bool is_ending;
};

static void on_signal(int number)
{
    const int saved_errno = errno;
    (void)number;
    sem_post(&wishes);
    errno = saved_errno;
}

/* The caller holds the lock. */
static void print(const struct bench_dump *dump)
{
    if (dump->comm == NULL)
        fputs("SIGUSR1: the ranks have no communicator now\n", stderr);
    else if (gyre_comm_dump(dump->comm, STDERR_FILENO) != GYRE_SUCCESS)
        fprintf(stderr, "SIGUSR1: %s\n", gyre_cause());
}

static void *serve(void *argument)
{
    struct bench_dump *dump = argument;
    bool is_ending = false;
    while (!is_ending) {
        while (sem_wait(&wishes) != 0) /* EINTR */
            ;
        pthread_mutex_lock(&dump->lock);
        is_ending = dump->is_ending;
        if (!is_ending)
            print(dump);
        pthread_mutex_unlock(&dump->lock);
    }
    return NULL;
}

gyre_status bench_dump_open(struct bench_dump **dump_out)
{
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sigaction before;
    struct bench_dump *dump = calloc(1, sizeof(*dump));
    if (dump == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for dumps");
    sem_init(&wishes, 0, 0);
    pthread_mutex_init(&dump->lock, NULL);
    const int result = pthread_create(&dump->thread, NULL, serve, dump);
    if (result != 0) {
        free(dump);
        return gyre_fail_errno(result, "cannot start the thread that prints positions");
    }
    if (sigaction(SIGUSR1, NULL, &before) == 0 && before.sa_handler != SIG_IGN)
        sigaction(SIGUSR1, &action, NULL);
    *dump_out = dump;
    return GYRE_SUCCESS;
}

void bench_dump_set(struct bench_dump *dump, gyre_comm *comm)
{
    if (dump == NULL)
        return;
    pthread_mutex_lock(&dump->lock);
    dump->comm = comm;
    pthread_mutex_unlock(&dump->lock);
}

/* The semaphore stays, because the signal may still come. */
void bench_dump_close(struct bench_dump *dump)
{
    if (dump == NULL)
        return;
    pthread_mutex_lock(&dump->lock);
    dump->is_ending = true;
    pthread_mutex_unlock(&dump->lock);
    sem_post(&wishes);
    pthread_join(dump->thread, NULL);
    pthread_mutex_destroy(&dump->lock);
    free(dump);
}
