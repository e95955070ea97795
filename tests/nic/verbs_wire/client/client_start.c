/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nic/verbs_wire/client/client.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOK_PERIOD_NS 100000000ULL /* between looks at the NIC process */
#define TICK_NS        1000000ULL   /* of the helper thread */
#define MAX_VARIABLES  512

struct wire wire = {.job = {.event_fd = -1}};
pthread_mutex_t wire_lock = PTHREAD_MUTEX_INITIALIZER;

extern char **environ;

void wire_say(const char *format, ...)
{
    char text[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    fprintf(stderr, "verbs_wire %d: %s\n", (int)getpid(), text);
}

void wire_print_lines(void)
{
    const uint32_t n_lines = wire.nic != NULL ? gyre_load_acquire_u32(&wire.nic->n_lines) : 0;
    if (n_lines - wire.n_lines > WIRE_LINES)
        wire.n_lines = n_lines - WIRE_LINES;
    for (; wire.n_lines != n_lines; wire.n_lines++)
        wire_say("NIC process %d: %.*s", (int)wire_pid_of(wire.nic->owner), WIRE_LINE_BYTES - 1,
                 wire.nic->lines[wire.n_lines % WIRE_LINES]);
}

bool wire_is_nic_alive(void)
{
    const uint64_t now_ns = wire_now_ns();
    if (now_ns - wire.nic_looked_at_ns < LOOK_PERIOD_NS)
        return true;
    wire.nic_looked_at_ns = now_ns;
    return wire_is_alive(gyre_load_acquire_u64(&wire.nic->owner));
}

/* Programs that know no host ids differ in VERBS_WIRE_HOST. */
static void name_host(char *name_out, size_t name_bytes)
{
    char machine[40] = "";
    const char *host = getenv("GYRE_HOSTID");
    const char *number = getenv("VERBS_WIRE_HOST");
    if (host == NULL)
        host = getenv("NCCL_HOSTID");
    if (host == NULL && gethostname(machine, sizeof(machine) - 1) == 0)
        host = machine;
    snprintf(name_out, name_bytes, "%.40s/%.8s", host != NULL ? host : "",
             number != NULL ? number : "1");
}

/* Or a free one. Under the lock of the file. */
static int find_nic(const char *host, bool *is_running_out)
{
    int free_index = -1;
    for (int i = 0; i < WIRE_MAX_HOSTS; i++) {
        struct wire_nic_entry *nic = &wire.job.file->nics[i];
        const bool is_running = wire_is_alive(gyre_load_acquire_u64(&nic->owner));
        if (is_running && strcmp(nic->host, host) == 0) {
            *is_running_out = true;
            return i;
        }
        if (!is_running && free_index < 0)
            free_index = i;
    }
    *is_running_out = false;
    if (free_index >= 0) {
        struct wire_nic_entry *nic = &wire.job.file->nics[free_index];
        memset(nic, 0, sizeof(*nic));
        snprintf(nic->host, sizeof(nic->host), "%s", host);
    }
    return free_index;
}

static bool is_for_client_only(const char *variable)
{
    /* Libraries preloaded into programs, and their GPUs. */
    return strncmp(variable, "LD_PRELOAD=", 11) == 0 ||
           strncmp(variable, "CUDA_VISIBLE_DEVICES=", 21) == 0;
}

/* Returns when it is ready. */
static bool start_nic(int index)
{
    char path[PATH_MAX];
    char number[16];
    Dl_info info;
    char *variables[MAX_VARIABLES];
    size_t n = 0;
    int status = 0;
    pid_t pid;
    if (dladdr((void *)&wire, &info) == 0 || strlen(info.dli_fname) > PATH_MAX - 16)
        return false;
    const char *slash = strrchr(info.dli_fname, '/');
    snprintf(path, sizeof(path), "%.*sverbs_nic",
             slash != NULL ? (int)(slash - info.dli_fname + 1) : 0, info.dli_fname);
    snprintf(number, sizeof(number), "%d", index);
    for (char **variable = environ; *variable != NULL && n < MAX_VARIABLES - 1; variable++)
        if (!is_for_client_only(*variable))
            variables[n++] = *variable;
    variables[n] = NULL;
    char *const words[] = {path, wire.job.name, number, NULL};
    const int error = posix_spawn(&pid, path, NULL, NULL, words, variables);
    if (error != 0) {
        wire_say("cannot start the NIC process %s: %s", path, strerror(error));
        return false;
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    /* A program that waits for all its children may take the status. */
    if (wire_is_alive(gyre_load_acquire_u64(&wire.job.file->nics[index].owner)))
        return true;
    wire_say("the NIC process %s ended with status 0x%x", path, status);
    return false;
}

/* If this process is closed to NICs, carries payload while the program sleeps or computes. */
static void *help(void *argument)
{
    uint32_t *is_closed = &wire.process->is_closed;
    (void)argument;
    for (;;) {
        while (wire_load(is_closed) == 0)
            wire_futex_wait(is_closed, 0, UINT64_C(3600000000000));
        pthread_mutex_lock(&wire_lock);
        for (struct wire_pair *pair = wire.pairs; pair != NULL; pair = pair->next) {
            wire_stage(pair);
            (void)wire_take(pair, 0, NULL);
        }
        pthread_mutex_unlock(&wire_lock);
        const struct timespec tick = {0, TICK_NS};
        (void)nanosleep(&tick, NULL);
    }
    return NULL;
}

static void name_job(void)
{
    const char *job = getenv("VERBS_WIRE_JOB");
    if (job != NULL && job[0] != '\0' && strchr(job, '/') == NULL)
        snprintf(wire.job.name, sizeof(wire.job.name), "%s", job);
    else
        snprintf(wire.job.name, sizeof(wire.job.name), "parent-%d", (int)getppid());
}

/* Under the file's lock, so one client of a host starts the NIC, and no NIC ends meanwhile. */
static bool join(void)
{
    char host[64];
    bool is_running = false;
    uint32_t first = 0;
    const char *way = getenv("VERBS_WIRE_MOVE");
    struct wire_file *file = wire.job.file;
    name_host(host, sizeof(host));
    const int index = find_nic(host, &is_running);
    const int process = wire_claim(&wire.job, file->processes, sizeof(file->processes[0]),
                                   WIRE_MAX_PROCESSES, &first);
    if (index < 0 || process < 0) {
        wire_say("cannot join job %s: more than %d processes or %d hosts", wire.job.name,
                 WIRE_MAX_PROCESSES, WIRE_MAX_HOSTS);
        return false;
    }
    wire.nic = &file->nics[index];
    wire.process = &file->processes[process];
    wire.process->nic = (uint32_t)index;
    memset(wire.process->stats, 0, sizeof(wire.process->stats));
    (void)wire_exchange(&wire.process->is_closed, way != NULL && strcmp(way, "ring") == 0);
    wire.n_lines = gyre_load_acquire_u32(&wire.nic->n_lines);
    return is_running || start_nic(index);
}

bool wire_start(void)
{
    pthread_t thread;
    int lock = -1;
    if (wire.process != NULL)
        return true;
    name_job();
    /* Lets NICs in. With Yama only parents may; without Yama this fails with EINVAL. */
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    if (!wire_job_map(&wire.job, &lock))
        return false;
    bool is_fine = join();
    wire_job_unlock(lock);
    is_fine = is_fine && pthread_create(&thread, NULL, help, NULL) == 0 && wire_watch_faults();
    if (is_fine)
        (void)pthread_detach(thread);
    else
        wire.process = NULL;
    return is_fine;
}

/* A forked child joins as another process and can use nothing of its parent's. */
static void lock_for_fork(void)
{
    pthread_mutex_lock(&wire_lock);
}

static void unlock_after_fork(void)
{
    pthread_mutex_unlock(&wire_lock);
}

static void forget_parent(void)
{
    wire = (struct wire){.job = {.event_fd = -1}};
    pthread_mutex_unlock(&wire_lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
    (void)pthread_atfork(lock_for_fork, unlock_after_fork, forget_parent);
}

__attribute__((destructor)) static void leave(void)
{
    if (wire.process == NULL)
        return;
    pthread_mutex_lock(&wire_lock);
    wire_print_lines();
    pthread_mutex_unlock(&wire_lock);
    /* A program may end without closing its last device. */
    wire_print_stats();
    __atomic_store_n(&wire.process->owner, 0, __ATOMIC_SEQ_CST);
    wire_wake(wire.nic);
}
