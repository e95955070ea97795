/* SPDX-License-Identifier: Apache-2.0
 *
 * A job's process that the fault campaign attacks. It repeats one phase with checked values and
 * reports on standard output, a line each, "TIME RANK WORD ...":
 *
 *   ready                    the phase begins now
 *   error STATUS CALL: TEXT  a call failed, with the cause that the user would read
 *   slow CALL SECONDS        a call took over 2 s
 *   wrong TEXT               a value was not right
 *   shrunk                   the survivors' communicator works
 *   noid                     rank 0 died before it had made the next round's id
 *   done                     rank 0's time was over and everything is torn down
 *   destroyed SECONDS        everything is torn down after an error
 *
 * SIGUSR1 aborts the communicator. Options are NAME=VALUE; read_options() lists them.
 */
#include "tests/faults/victim.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SLOW_S      2.0
#define ID_GRACE_S  1.0 /* after the campaign's file "dead" has appeared */
#define MAX_THREADS 16

double victim_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void victim_say(const struct victim_rank *own, const char *format, ...)
{
    char line[2048];
    int n = snprintf(line, sizeof(line), "%.6f %d ", victim_now_s(), own->rank);
    va_list args;
    va_start(args, format);
    n += vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, args);
    va_end(args);
    n = n > (int)sizeof(line) - 2 ? (int)sizeof(line) - 2 : n;
    for (int i = 0; i < n; i++)
        line[i] = line[i] == '\n' ? ' ' : line[i];
    line[n++] = '\n';
    /* Lines of threads stay whole. */
    if (write(STDOUT_FILENO, line, (size_t)n) < 0)
        _exit(4);
}

gyre_status victim_ended(const struct victim_rank *own, const char *call, gyre_comm *comm,
                         double began_s, gyre_status status)
{
    char text[1400];
    const double took_s = victim_now_s() - began_s;
    if (took_s > SLOW_S)
        victim_say(own, "slow %s %.3f", call, took_s);
    if (status == GYRE_SUCCESS)
        return status;
    /* Asking the communicator may end the thread's own text. */
    snprintf(text, sizeof(text), "%s", gyre_last_error());
    const char *of_comm = comm != NULL ? gyre_comm_last_error(comm) : "";
    if (strcmp(own->options->misbehave, "hang") == 0)
        pause();
    if (strcmp(own->options->misbehave, "misname") == 0)
        of_comm = "rank 99 (nowhere) died: the self-test names a wrong rank";
    victim_say(own, "error %d %s: %s", (int)status, call, of_comm[0] != '\0' ? of_comm : text);
    return status;
}

static void id_path(const struct victim_rank *own, uint64_t round, const char *end, char *path_out,
                    size_t path_bytes)
{
    snprintf(path_out, path_bytes, "%s/id.%llu%s", own->options->directory,
             (unsigned long long)round, end);
}

static gyre_status write_id(const struct victim_rank *own, uint64_t round, gyre_unique_id *id_out)
{
    char path[512], draft[512];
    id_path(own, round, "", path, sizeof(path));
    id_path(own, round, ".draft", draft, sizeof(draft));
    VICTIM_TRY(own, "get_unique_id", NULL, gyre_get_unique_id(id_out));
    const int fd = open(draft, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, id_out, sizeof(*id_out)) != (ssize_t)sizeof(*id_out) ||
        rename(draft, path) != 0) {
        perror(path);
        exit(4);
    }
    close(fd);
    return GYRE_SUCCESS;
}

gyre_status victim_init(struct victim_rank *own)
{
    gyre_unique_id id;
    gyre_config config = GYRE_CONFIG_INIT;
    gyre_comm *comm = NULL;
    const uint64_t round = own->n_calls++;
    config.device_kind = GYRE_DEVICE_HOST;
    if (own->rank == 0) {
        const gyre_status status = write_id(own, round, &id);
        if (status != GYRE_SUCCESS)
            return status;
    } else {
        const struct timespec nap = {0, 1000000L};
        char path[512], dead[512];
        struct stat unused;
        double dead_since_s = 0;
        int fd;
        id_path(own, round, "", path, sizeof(path));
        snprintf(dead, sizeof(dead), "%s/dead", own->options->directory);
        while ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0) {
            if (dead_since_s == 0 && stat(dead, &unused) == 0)
                dead_since_s = victim_now_s();
            if (dead_since_s > 0 && victim_now_s() - dead_since_s > ID_GRACE_S) {
                victim_say(own, "noid");
                exit(0);
            }
            nanosleep(&nap, NULL);
        }
        if (read(fd, &id, sizeof(id)) != (ssize_t)sizeof(id))
            exit(4);
        close(fd);
    }
    VICTIM_TRY(own, "init", NULL,
               gyre_comm_init_rank(&comm, own->options->n_ranks, &id, own->rank, &config));
    pthread_mutex_lock(&own->lock);
    own->comm = comm;
    pthread_mutex_unlock(&own->lock);
    return GYRE_SUCCESS;
}

gyre_status victim_destroy(struct victim_rank *own)
{
    pthread_mutex_lock(&own->lock);
    gyre_comm *comm = own->comm;
    own->comm = NULL;
    pthread_mutex_unlock(&own->lock);
    if (comm != NULL)
        VICTIM_TRY(own, "destroy", NULL, gyre_comm_destroy(comm));
    return GYRE_SUCCESS;
}

static gyre_status run_phase(struct victim_rank *own)
{
    const victim_phase run = victim_find_phase(own->options->phase);
    gyre_status status = GYRE_SUCCESS;
    if (victim_makes_comm(own->options->phase)) {
        victim_say(own, "ready");
    } else if (own->comm == NULL) {
        if ((status = victim_init(own)) != GYRE_SUCCESS)
            return status;
        victim_say(own, "ready");
    }
    while (!own->is_done && status == GYRE_SUCCESS)
        status = run(own);
    return status;
}

static gyre_status go_on_without(struct victim_rank *own, int dead_rank)
{
    VICTIM_TRY(own, "shrink", own->comm,
               gyre_comm_shrink(own->comm, &dead_rank, 1, GYRE_SHRINK_ABORT, &own->second, NULL));
    const gyre_status status = victim_call(own, own->second);
    if (status == GYRE_SUCCESS)
        victim_say(own, "shrunk");
    return status;
}

static void *run_rank(void *argument)
{
    struct victim_rank *own = argument;
    const gyre_status status = run_phase(own);
    const double began_s = victim_now_s();
    /* The ranks failed at different calls; the first calls of go_on_without() must be alike. */
    own->random = own->options->seed;
    own->n_calls = 0;
    if (status != GYRE_SUCCESS) {
        /* The campaign's file "dead". */
        char path[512];
        snprintf(path, sizeof(path), "%s/dead", own->options->directory);
        const int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        if (fd >= 0)
            close(fd);
    } /* this rank makes no more ids */
    if (status != GYRE_SUCCESS && own->options->dead_rank >= 0 && own->comm != NULL)
        go_on_without(own, own->options->dead_rank);
    if (own->second != NULL)
        gyre_comm_destroy(own->second);
    victim_destroy(own);
    if (status == GYRE_SUCCESS)
        victim_say(own, "done");
    else
        victim_say(own, "destroyed %.3f", victim_now_s() - began_s);
    return NULL;
}

static void *abort_on_signal(void *argument)
{
    struct victim_rank *own = argument;
    sigset_t set;
    int number = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigwait(&set, &number);
    pthread_mutex_lock(&own->lock);
    if (own->comm != NULL)
        gyre_comm_abort(own->comm);
    pthread_mutex_unlock(&own->lock);
    return NULL;
}

static void on_alarm(int number)
{
    (void)number;
}

static const char *option_of(int argc, char **argv, const char *name, const char *preset)
{
    const size_t n = strlen(name);
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], name, n) == 0 && argv[i][n] == '=')
            return argv[i] + n + 1;
    return preset;
}

static void prepare_rank(struct victim_rank *own, const struct victim_options *options, int rank)
{
    own->options = options;
    own->rank = rank;
    own->random = options->seed;
    own->end_s = victim_now_s() + options->run_s;
    own->in = calloc(VICTIM_MAX_ELEMS, sizeof(int32_t));
    own->out = calloc((size_t)VICTIM_MAX_ELEMS * (size_t)options->n_ranks, sizeof(int32_t));
    pthread_mutex_init(&own->lock, NULL);
    if (own->in == NULL || own->out == NULL)
        exit(4);
}

/* Threads of one process meet in memory where the phase lets them. */
static int init_all(struct victim_rank *ranks, const struct victim_options *options)
{
    gyre_config config = GYRE_CONFIG_INIT;
    gyre_comm *comms[MAX_THREADS];
    const double began_s = victim_now_s();
    config.device_kind = GYRE_DEVICE_HOST;
    if (victim_ended(&ranks[0], "init_all", NULL, began_s,
                     gyre_comm_init_all(comms, options->n_threads, NULL, &config)) != GYRE_SUCCESS)
        return 1;
    for (int i = 0; i < options->n_threads; i++)
        ranks[i].comm = comms[i];
    for (int i = 0; i < options->n_threads; i++)
        victim_say(&ranks[i], "ready");
    return 0;
}

int main(int argc, char **argv)
{
    static struct victim_rank ranks[MAX_THREADS];
    pthread_t threads[MAX_THREADS], watcher;
    sigset_t aborts;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigemptyset(&aborts);
    sigaddset(&aborts, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &aborts, NULL);
    struct victim_options options = {
        .n_ranks = atoi(option_of(argc, argv, "ranks", "1")),
        .first_rank = atoi(option_of(argc, argv, "rank", "0")),
        .n_threads = atoi(option_of(argc, argv, "threads", "1")),
        .directory = option_of(argc, argv, "directory", "."),
        .phase = option_of(argc, argv, "phase", "data"),
        .run_s = atof(option_of(argc, argv, "seconds", "1")),
        .seed = strtoull(option_of(argc, argv, "seed", "1"), NULL, 10),
        .dead_rank = atoi(option_of(argc, argv, "dead", "-1")),
        .misbehave = option_of(argc, argv, "misbehave", ""),
    };
    if (options.n_threads < 1 || options.n_threads > MAX_THREADS ||
        victim_find_phase(options.phase) == NULL) {
        fprintf(stderr, "usage: see the head of tests/faults/victim.c\n");
        exit(2);
    }
    const int n_descriptors = atoi(option_of(argc, argv, "descriptors", "0"));
    if (n_descriptors > 0) {
        const struct rlimit limit = {(rlim_t)n_descriptors, (rlim_t)n_descriptors};
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    for (int i = 0; i < options.n_threads; i++)
        prepare_rank(&ranks[i], &options, options.first_rank + i);
    if (atoi(option_of(argc, argv, "storm", "0")) != 0) {
        /* For all threads, 2000 times a second. */
        const struct sigaction action = {.sa_handler = on_alarm}; /* without SA_RESTART */
        const struct itimerval often = {{0, 500}, {0, 500}};
        sigaction(SIGALRM, &action, NULL);
        setitimer(ITIMER_REAL, &often, NULL);
    }
    if (options.n_threads > 1 && !victim_makes_comm(options.phase) &&
        init_all(ranks, &options) != 0)
        return 0;
    if (pthread_create(&watcher, NULL, abort_on_signal, &ranks[0]) != 0)
        return 4;
    pthread_detach(watcher);
    for (int i = 0; i < options.n_threads; i++)
        if (pthread_create(&threads[i], NULL, run_rank, &ranks[i]) != 0)
            return 4;
    for (int i = 0; i < options.n_threads; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
