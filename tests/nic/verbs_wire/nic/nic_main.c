/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs_nic JOB INDEX
 *
 * Clients start it. It leaves their session, tells its parent when it is ready, works until the
 * last client of its host has ended, and removes the job's file with the last NIC.
 */
#include "tests/nic/verbs_wire/nic/nic.h"

#include "tests/nic/verbs_wire/say.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define LOOK_PERIOD_NS 20000000ULL /* between looks for clients that ended */
#define FAULTS_NS      1000000ULL  /* between looks for faults */
#define NAP_NS         50000ULL    /* a shorter wait is not worth a sleep */
#define MANY_CORES     8
#define MAX_PASSES     32 /* of a round with copies, until these are waited for */

static struct nic nic; /* one per process; the only thread's */

void wire_say(const char *format, ...)
{
    va_list arguments;
    const uint32_t n = nic.entry->n_lines;
    char *line = nic.entry->lines[n % WIRE_LINES];
    va_start(arguments, format);
    vsnprintf(line, WIRE_LINE_BYTES, format, arguments);
    va_end(arguments);
    gyre_store_release_u32(&nic.entry->n_lines, n + 1);
}

static bool has_client(bool of_any_host)
{
    for (int i = 0; i < WIRE_MAX_PROCESSES; i++) {
        const struct wire_process_entry *process = &nic.job.file->processes[i];
        const wire_owner owner = gyre_load_acquire_u64(&process->owner);
        if (owner != 0 && (of_any_host || process->nic == nic.index) && wire_is_alive(owner))
            return true;
    }
    return false;
}

static bool has_other_nic(void)
{
    for (uint32_t i = 0; i < WIRE_MAX_HOSTS; i++)
        if (i != nic.index && wire_is_alive(gyre_load_acquire_u64(&nic.job.file->nics[i].owner)))
            return true;
    return false;
}

/* Under the lock no client can join. */
static bool leave_if_unused(void)
{
    char path[128];
    if (has_client(false))
        return false;
    const int lock = wire_job_lock(&nic.job);
    const bool is_used = lock >= 0 && has_client(false);
    if (!is_used) {
        __atomic_store_n(&nic.entry->owner, 0, __ATOMIC_SEQ_CST);
        wire_job_path(&nic.job, path, sizeof(path));
        if (lock >= 0 && !has_client(true) && !has_other_nic())
            unlink(path);
    }
    if (lock >= 0)
        wire_job_unlock(lock);
    return !is_used;
}

static bool take_announced(void)
{
    bool is_any = false;
    for (uint32_t word = 0; word < WIRE_MAX_QUEUE_PAIRS / 64; word++) {
        if (gyre_load_relaxed_u64(&nic.entry->bits[word]) == 0)
            continue;
        uint64_t bits = __atomic_exchange_n(&nic.entry->bits[word], 0, __ATOMIC_SEQ_CST);
        for (; bits != 0; bits &= bits - 1) {
            struct nic_pair *pair = &nic.pairs[word * 64 + (uint32_t)__builtin_ctzll(bits)];
            pair->is_active = is_any = true;
            pair->retry_at_ns = 0;
        }
    }
    return is_any;
}

static bool is_announced(void)
{
    for (int word = 0; word < WIRE_MAX_QUEUE_PAIRS / 64; word++)
        if (__atomic_load_n(&nic.entry->bits[word], __ATOMIC_SEQ_CST) != 0)
            return true;
    return false;
}

/* Faults may end or begin to hold things up. */
static void look_at_all(void)
{
    for (uint32_t i = 0; i < WIRE_MAX_QUEUE_PAIRS; i++) {
        nic.pairs[i].is_active = nic.pairs[i].number != 0;
        nic.pairs[i].retry_at_ns = 0;
    }
}

static void finish_copies(void)
{
    uint64_t n_waits;
    const uint32_t failed = nic_gpu_finish(&n_waits);
    gyre_store_relaxed_u64(&nic.entry->n_waits, n_waits);
    for (uint32_t i = 0; i < nic.n_copying; i++)
        nic_pair_finish(&nic, nic.copying[i], (failed >> nic.copying[i]->copies.gpu & 1) != 0);
    nic.n_copying = 0;
}

/* Over the active queue pairs. Returns whether anything was done. */
static bool pass(uint64_t *next_ns_out)
{
    bool is_any = take_announced();
    *next_ns_out = NIC_FOREVER;
    for (uint32_t i = 0; i < WIRE_MAX_QUEUE_PAIRS; i++) {
        struct nic_pair *pair = &nic.pairs[i];
        uint64_t next_ns;
        if (!pair->is_active)
            continue;
        is_any = nic_pair_progress(&nic, pair, &next_ns) || is_any;
        pair->is_active = next_ns != NIC_FOREVER;
        if (next_ns < *next_ns_out)
            *next_ns_out = next_ns;
    }
    return is_any;
}

/* Returns whether anything was done. In a pass each queue pair sends one piece. Ports with a rate
 * catch up before the NIC waits for copies. */
static bool go_round(uint64_t *next_ns_out)
{
    const bool is_any = pass(next_ns_out);
    bool goes_on = is_any;
    for (int n = 1; n < MAX_PASSES && goes_on && nic.n_copying > 0; n++)
        goes_on = pass(next_ns_out);
    if (nic.n_copying > 0)
        finish_copies();
    return is_any;
}

static void sleep_until(uint64_t until_ns)
{
    (void)wire_exchange(&nic.entry->is_asleep, 1);
    const uint64_t now_ns = wire_now_ns();
    if (!is_announced() && until_ns > now_ns)
        wire_futex_wait(&nic.entry->is_asleep, 1, until_ns - now_ns);
    (void)wire_exchange(&nic.entry->is_asleep, 0);
}

/* While this process yielded in its loop, it waited for up to 2.7 s for a processor that others
 * wanted (two cores, load 15, Linux 6.18, 2026-11), and nobody's requests were answered. */
static void give_way(bool has_many_cores)
{
    const struct timespec moment = {0, 1000};
    if (has_many_cores)
        sched_yield();
    else
        (void)nanosleep(&moment, NULL);
}

static void work(void)
{
    const bool has_many_cores = sysconf(_SC_NPROCESSORS_ONLN) >= MANY_CORES;
    const uint64_t patience_ns = has_many_cores ? 1000000 : 20000;
    uint64_t busy_at_ns = wire_now_ns();
    uint64_t look_at_ns = 0;
    uint64_t faults_at_ns = getenv("VERBS_WIRE_FAULTS") != NULL ? 0 : NIC_FOREVER;
    uint32_t n_unregistered = 0;
    for (;;) {
        uint64_t next_ns;
        const bool is_any = go_round(&next_ns);
        const uint64_t now_ns = wire_now_ns();
        const uint64_t late_ns = nic_land_late(&nic);
        if (now_ns >= faults_at_ns) {
            if (nic_look_for_faults(&nic))
                look_at_all();
            faults_at_ns = now_ns + FAULTS_NS;
        }
        if (late_ns < next_ns)
            next_ns = late_ns;
        if (faults_at_ns < next_ns)
            next_ns = faults_at_ns;
        if (now_ns >= look_at_ns) {
            if (leave_if_unused())
                return;
            look_at_ns = wire_now_ns() + LOOK_PERIOD_NS;
        }
        if (n_unregistered != wire_load(&nic.job.file->n_unregistered)) {
            n_unregistered = wire_load(&nic.job.file->n_unregistered);
            nic_gpu_close_unused(nic.job.file);
        }
        if (is_any) {
            busy_at_ns = now_ns;
            continue;
        }
        const uint64_t until_ns = next_ns < look_at_ns ? next_ns : look_at_ns;
        if (until_ns < now_ns + NAP_NS || now_ns < busy_at_ns + patience_ns)
            give_way(has_many_cores);
        else
            sleep_until(until_ns);
    }
}

/* The parent ends at the child's word, so that no client has a child that it does not know. Returns
 * in the child only. */
static int become_daemon(void)
{
    int ready[2];
    char word = 0;
    if (pipe2(ready, O_CLOEXEC) != 0)
        exit(1);
    const pid_t pid = fork();
    if (pid < 0)
        exit(1);
    if (pid > 0) {
        close(ready[1]);
        exit(read(ready[0], &word, 1) == 1 ? 0 : 1);
    }
    close(ready[0]);
    /* Clients' pipes end with the clients, whatever a terminal sends. */
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3; fd++)
        (void)dup2(nothing, fd);
    (void)setsid();
    (void)!chdir("/");
    (void)prctl(PR_SET_NAME, "verbs_nic", 0, 0, 0);
    (void)prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    return ready[1];
}

int main(int argc, char **argv)
{
    const long index = argc == 3 ? strtol(argv[2], NULL, 10) : -1;
    if (index < 0 || index >= WIRE_MAX_HOSTS || strlen(argv[1]) >= sizeof(nic.job.name)) {
        fprintf(stderr, "usage: %s JOB INDEX (programs start it by opening a device)\n", argv[0]);
        return 2;
    }
    static struct wire_nic_entry none;
    nic.entry = &none; /* loses what is said until the file is mapped */
    memcpy(nic.job.name, argv[1], strlen(argv[1]));
    nic.index = (uint32_t)index;
    nic.bounce = malloc(NIC_BOUNCE_BYTES);
    const int ready = become_daemon();
    if (nic.bounce == NULL || !wire_job_map(&nic.job, NULL))
        return 1;
    nic.entry = &nic.job.file->nics[index];
    nic.began_ns = wire_now_ns();
    for (uint32_t i = 0; i < WIRE_MAX_QUEUE_PAIRS; i++)
        nic.pairs[i].entry = &nic.job.file->pairs[i];
    __atomic_store_n(&nic.entry->owner, nic.job.owner, __ATOMIC_SEQ_CST);
    if (write(ready, "r", 1) != 1)
        return 1;
    close(ready);
    work();
    return 0;
}
