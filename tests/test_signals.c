/* SPDX-License-Identifier: Apache-2.0
 *
 * Signals that are sent to the process go to the application's threads, however many threads
 * libgyre has: rendezvous, health, connections, proxies, the host stream's helper.
 */
#include "tests/ranks.h"

#include <signal.h>
#include <time.h>

static volatile sig_atomic_t n_handled;

static void count_signal(int number)
{
    (void)number;
    n_handled = n_handled + 1;
}

static int count_threads(void)
{
    char line[128];
    int n_threads = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && fgets(line, sizeof(line), status) != NULL)
        sscanf(line, "Threads: %d", &n_threads);
    if (status != NULL)
        fclose(status);
    return n_threads;
}

/* The only thread of the application blocks the signal: it stays, unless another thread takes it.
 */
static void send_a_signal(gyre_comm *comm, int rank, int n_ranks, void *argument)
{
    const struct sigaction action = {.sa_handler = count_signal};
    const struct timespec moment = {.tv_nsec = 100000000}, patience = {.tv_sec = 10};
    float value = (float)rank;
    sigset_t signals;
    (void)n_ranks;
    (void)argument;
    sigaction(SIGUSR1, &action, NULL);
    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    CHECK_OK(gyre_all_reduce(&value, &value, 1, GYRE_FLOAT32, GYRE_SUM, comm, NULL));
    CHECK_OK(gyre_stream_synchronize(NULL, GYRE_DEVICE_HOST));
    CHECK_MSG(count_threads() >= 4, "%d threads: has the library none?", count_threads());
    CHECK(kill(getpid(), SIGUSR1) == 0);
    nanosleep(&moment, NULL); /* whom the kernel chose takes it, if it chose one */
    CHECK(sigtimedwait(&signals, NULL, &patience) == SIGUSR1);
    CHECK(n_handled == 0);
}

static void the_library_takes_no_signals(void)
{
    if (test_device() != GYRE_DEVICE_HOST)
        return; /* CUDA's own threads may */
    setenv("GYRE_P2P_DISABLE", "1", 1);
    setenv("GYRE_SHM_DISABLE", "1", 1);
    setenv("GYRE_NET", "Socket", 1);
    test_on_processes(2, send_a_signal, NULL);
}

static const struct test_case cases[] = {
    {"the library takes no signals", the_library_takes_no_signals},
};

TEST_MAIN(cases)
