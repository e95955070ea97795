/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/util.h"
#include "tests/fuzz/run.h"

#include <dirent.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

const char *const fuzz_collective_names[FUZZ_N_COLLECTIVES] = {
    "all_reduce", "broadcast", "reduce",  "all_gather", "reduce_scatter",
    "all_to_all", "gather",    "scatter", "send_recv"};

static const char *const fates[] = {"", ", canceled", ", left out"};

static int describe_peers(const struct fuzz_call *call, char *text, size_t n_bytes)
{
    if (call->kind == FUZZ_SEND_RECV && call->to >= 0 && call->from >= 0)
        return snprintf(text, n_bytes, " to %d, from %d", call->to, call->from);
    if (call->kind == FUZZ_SEND_RECV)
        return snprintf(text, n_bytes, call->to >= 0 ? " to %d" : " from %d",
                        call->to >= 0 ? call->to : call->from);
    if (call->values.is_reduction && call->values.op == FUZZ_PREMUL_SUM)
        return snprintf(text, n_bytes, " premul %lld root %d", (long long)call->values.scalar,
                        call->root);
    if (call->values.is_reduction)
        return snprintf(text, n_bytes, " %s root %d", fuzz_op_names[call->values.op], call->root);
    return snprintf(text, n_bytes, " root %d", call->root);
}

void fuzz_describe(const struct fuzz_rank *rank, const struct fuzz_call *call, char *text_out,
                   size_t n_bytes)
{
    char peers[64], chain[48] = "";
    describe_peers(call, peers, sizeof(peers));
    if (call->chain >= 0)
        snprintf(chain, sizeof(chain), ", sends the result of call %ld",
                 rank->calls[call->chain].index);
    snprintf(text_out, n_bytes,
             "call %ld: %s %zu %s%s on communicator %04x (slot %d, rank %d of %d), stream %d, "
             "send +%zu, recv +%zu%s%s%s%s",
             call->index, fuzz_collective_names[call->kind], call->count,
             fuzz_types[call->values.type].name, peers, (unsigned)(call->comm->uid & 0xffff),
             call->comm->slot, call->comm->rank, call->comm->n_ranks, call->stream, call->send.data,
             call->recv.data, call->is_in_place ? ", in place" : "",
             call->is_windowed ? ", in a window" : "", chain, fates[call->fate]);
}

static void print_group(const struct fuzz_rank *rank, const struct fuzz_group *group)
{
    char text[512];
    const char *kind = group->is_canceled ? "a canceled group" : "a group";
    fprintf(stderr, "    %s%s:\n", group->is_grouped ? kind : "one by one",
            group->is_nested ? " with groups in it" : "");
    for (int i = group->first; i < group->first + group->n_calls; i++) {
        fuzz_describe(rank, &rank->calls[i], text, sizeof(text));
        fprintf(stderr, "      %s%s\n", text,
                atomic_load(&rank->issuing) == i ? "   <- issued last" : "");
    }
}

/* And its round's calls, to stderr. */
static void print_rank(const struct fuzz_rank *rank)
{
    fprintf(stderr, "  rank %d is in round %ld, %s%s\n", rank->world_rank,
            atomic_load(&rank->round), atomic_load(&rank->phase),
            rank->n_replays > 0 ? "; the round is a CUDA graph" : "");
    for (int i = 0; i < rank->n_groups; i++)
        print_group(rank, &rank->groups[i]);
}

void fuzz_print_command(void)
{
    char command[4096];
    fuzz_options_command(command, sizeof(command));
    fprintf(stderr,
            "  repeat: %s\n  cut down: add --stop-at CALL (the last call made), --only A-B\n",
            command);
}

void fuzz_fail(const struct fuzz_rank *rank, enum fuzz_exit verdict, const char *format, ...)
{
    static const char *const headings[] = {"", "WRONG DATA", "HANG", "A CALL FAILED", "CRASH"};
    char text[2048];
    va_list arguments;
    int none = 0;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (!atomic_compare_exchange_strong(&fuzz_shared->verdict, &none, (int)verdict)) {
        fprintf(stderr, "fuzz: rank %d, after the first failure: %s\n",
                rank != NULL ? rank->world_rank : -1, text);
        while (fuzz_options.mode == FUZZ_THREADS || none == FUZZ_HANG)
            pause(); /* the first failure's thread ends the process */
        _exit((int)verdict);
    }
    fprintf(stderr, "fuzz: %s: rank %d, %s: %s\n", headings[verdict],
            rank != NULL ? rank->world_rank : -1,
            rank != NULL ? atomic_load(&rank->phase) : "before its first round", text);
    fuzz_print_command();
    if (rank != NULL)
        print_rank(rank);
    _exit((int)verdict);
}

/* gyre's threads block all signals but those of faults, of which no fault raises this one without a
 * debugger. */
#define BACKTRACE_SIGNAL SIGTRAP

enum { MAX_FRAMES = 64 };

static struct fuzz_rank *watched;
static int n_watched;
static atomic_int n_answers; /* threads that have printed their backtrace */
static char command[4096];   /* a signal handler may not format text */

__attribute__((noinline)) static void print_backtrace(void)
{
    void *frames[MAX_FRAMES];
    const int n_frames = backtrace(frames, MAX_FRAMES), n_own = 2; /* this function, the handler */
    backtrace_symbols_fd(frames + n_own, n_frames > n_own ? n_frames - n_own : 0, STDERR_FILENO);
}

static void answer(int signal)
{
    (void)signal;
    print_backtrace();
    atomic_fetch_add(&n_answers, 1);
}

static void write_text(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0)
        _exit(FUZZ_CRASHED);
}

static void crash(int signal)
{
    int none = 0;
    (void)signal;
    atomic_compare_exchange_strong(&fuzz_shared->verdict, &none, FUZZ_CRASHED);
    write_text("fuzz: CRASH: a rank got a signal; its thread is here:\n");
    print_backtrace();
    write_text("  repeat: ");
    write_text(command);
    write_text("\n");
    _exit(FUZZ_CRASHED);
}

/* Of /proc, without its end of line. */
static void read_line(long thread, const char *name, char *text_out, size_t n_bytes)
{
    char path[96];
    snprintf(path, sizeof(path), "/proc/self/task/%ld/%s", thread, name);
    FILE *file = fopen(path, "r");
    text_out[0] = '\0';
    if (file != NULL && fgets(text_out, (int)n_bytes, file) == NULL)
        text_out[0] = '\0';
    if (file != NULL)
        fclose(file);
    text_out[strcspn(text_out, "\n")] = '\0';
}

static void print_threads(void)
{
    DIR *folder = opendir("/proc/self/task");
    const long own = syscall(SYS_gettid);
    if (folder == NULL)
        return;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        const long thread = strtol(entry->d_name, NULL, 10);
        if (thread > 0 && thread != own) {
            char name[64], waits_in[64];
            const int n_before = atomic_load(&n_answers);
            read_line(thread, "comm", name, sizeof(name));
            read_line(thread, "wchan", waits_in, sizeof(waits_in));
            fprintf(stderr, "  thread %ld (%s, in the kernel at %s):\n", thread, name, waits_in);
            if (syscall(SYS_tgkill, (long)getpid(), thread, BACKTRACE_SIGNAL) == 0) {
                /* it has ended */
                for (int i = 0; i < 1000 && atomic_load(&n_answers) == n_before; i++)
                    usleep(1000);
                if (atomic_load(&n_answers) == n_before)
                    fprintf(stderr, "  it blocks signals, or does not leave the kernel\n");
            }
        }
    }
    closedir(folder);
}

#define WAIT_FOR(condition, seconds)                                  \
    for (uint64_t end_ns_ = fuzz_now_ns() + (seconds)*GYRE_SECOND_NS; \
         !(condition) && fuzz_now_ns() < end_ns_; usleep(1000))

/* The process that takes this idle lock prints. */
static bool may_print(void)
{
    int none = 0;
    return atomic_compare_exchange_strong(&fuzz_shared->is_printing, &none, 1);
}

/* No process ends before all have printed, because its end would change the others' state. */
_Noreturn static void report_hang(void)
{
    WAIT_FOR(may_print(), 20);
    if (atomic_fetch_add(&fuzz_shared->n_printed, 1) == 0) {
        fprintf(stderr, "fuzz: HANG: no rank went on for %ld s\n", fuzz_options.timeout_s);
        fuzz_print_command();
    }
    for (int i = 0; i < n_watched; i++)
        print_rank(&watched[i]);
    print_threads();
    atomic_store(&fuzz_shared->is_printing, 0);
    WAIT_FOR(atomic_load(&fuzz_shared->n_printed) >= atomic_load(&fuzz_shared->n_running) &&
                 atomic_load(&fuzz_shared->is_printing) == 0,
             25);
    _exit(FUZZ_HANG);
}

uint64_t fuzz_watchdog_newest_ns(void)
{
    uint64_t newest_ns = 0;
    for (int rank = 0; rank < (int)fuzz_options.n_ranks; rank++) {
        const uint64_t ns = atomic_load(&fuzz_shared->progress_ns[rank]);
        newest_ns = ns > newest_ns ? ns : newest_ns;
    }
    return newest_ns;
}

/* Counts looks: the clock also runs while a virtual machine stands still. */
static void *watch(void *unused)
{
    uint64_t seen_ns = 0;
    for (long n_looks = 0;; usleep(50000)) {
        const uint64_t newest_ns = fuzz_watchdog_newest_ns();
        int verdict = 0;
        n_looks = newest_ns == seen_ns ? n_looks + 1 : 0;
        seen_ns = newest_ns;
        if (newest_ns == 0 || n_looks < 20 * fuzz_options.timeout_s)
            continue;
        if (atomic_compare_exchange_strong(&fuzz_shared->verdict, &verdict, FUZZ_HANG) ||
            verdict == FUZZ_HANG)
            report_hang();
    }
    return unused;
}

void fuzz_watchdog_start(struct fuzz_rank *ranks, int n_ranks)
{
    pthread_t thread;
    watched = ranks;
    n_watched = n_ranks;
    /* A sanitizer's own handlers stay. */
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    struct sigaction action = {.sa_handler = answer, .sa_flags = SA_RESTART}, before;
    void *frame;
    backtrace(&frame, 1); /* the first call loads a library, which a handler may not */
    fuzz_options_command(command, sizeof(command));
    sigaction(BACKTRACE_SIGNAL, &action, NULL);
    action = (struct sigaction){.sa_handler = crash};
    for (size_t i = 0; i < sizeof(fatal) / sizeof(fatal[0]); i++)
        if (sigaction(fatal[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            sigaction(fatal[i], &action, NULL);
    atomic_fetch_add(&fuzz_shared->n_running, 1);
    if (pthread_create(&thread, NULL, watch, NULL) != 0)
        fuzz_fail(NULL, FUZZ_FAILED, "no thread for the watchdog");
    pthread_detach(thread);
}
