/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/util.h"
#include "tests/fuzz/calls/calls.h"
#include "tests/fuzz/run.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void fuzz_rank_phase(struct fuzz_rank *rank, const char *phase)
{
    atomic_store(&rank->phase, phase);
    atomic_store(&fuzz_shared->progress_ns[rank->world_rank], fuzz_now_ns());
}

static void prepare(struct fuzz_rank *rank)
{
    fuzz_rank_phase(rank, "writing send buffers and guards");
    for (int i = 0; i < rank->n_calls; i++)
        fuzz_check_prepare(rank, &rank->calls[i]);
}

static void compare(struct fuzz_rank *rank)
{
    fuzz_rank_phase(rank, "comparing");
    for (int i = 0; i < rank->n_calls; i++)
        fuzz_check_compare(rank, &rank->calls[i]);
}

static bool makes_any(const struct fuzz_rank *rank)
{
    for (int i = 0; i < rank->n_calls; i++)
        if (rank->calls[i].fate != FUZZ_LEFT_OUT)
            return true;
    return false;
}

static void run_round(struct fuzz_rank *rank)
{
    struct fuzz_rng pace = {fuzz_mix((uint64_t)fuzz_options.seed * 131 + (uint64_t)rank->round) ^
                            (uint64_t)rank->world_rank << 32};
    if (!makes_any(rank))
        return;
    fuzz_issue_open(rank);
    if (rank->n_replays > 0) {
        /* Captured once and replayed, each time on buffers that were written anew. */
        const int n_streams = FUZZ_N_STREAMS - (rank->streams[FUZZ_N_STREAMS - 1] == NULL);
        void *graph = NULL;
        FUZZ_TRY_DEVICE(rank, rank->device->capture(rank->streams, n_streams));
        fuzz_issue_round(rank, &pace);
        FUZZ_TRY_DEVICE(rank, rank->device->end_capture(rank->streams, n_streams, &graph));
        for (int i = 0; i < rank->n_replays; i++) {
            prepare(rank);
            fuzz_rank_phase(rank, "launching a graph");
            FUZZ_TRY_DEVICE(rank, rank->device->launch(graph, rank->streams[0]));
            fuzz_issue_wait(rank, &pace);
            compare(rank);
        }
        FUZZ_TRY_DEVICE(rank, rank->device->destroy_graph(graph));
        atomic_fetch_add(&fuzz_shared->n_graphs, 1);
    } else {
        prepare(rank);
        fuzz_issue_round(rank, &pace);
        fuzz_issue_wait(rank, &pace);
        compare(rank);
    }
    fuzz_issue_close(rank);
}

/* @comm: the world communicator if it is made already, else NULL. */
static void run_rank(struct fuzz_rank *rank, gyre_comm *comm)
{
    fuzz_rank_phase(rank, "allocating memory and streams");
    rank->own.state = fuzz_mix((uint64_t)fuzz_options.seed ^
                               (uint64_t)(rank->world_rank + 1) * UINT64_C(0xabcdef123));
    FUZZ_TRY_DEVICE(rank, rank->device->use(rank->ordinal));
    fuzz_place_open(rank);
    /* Odd seeds leave the last stream NULL where no other rank has it too: on GPUs, ranks of one
     * process on one GPU share the default stream, and would wait for each other in a circle. */
    const int n_devices = rank->device->count();
    const bool is_shared = rank->device->kind == GYRE_DEVICE_CUDA &&
                           fuzz_options.mode == FUZZ_THREADS && fuzz_options.n_ranks > n_devices;
    const int n_streams = FUZZ_N_STREAMS - (fuzz_options.seed % 2 == 1 && !is_shared);
    for (int i = 0; i < n_streams; i++)
        FUZZ_TRY(rank, gyre_stream_create(&rank->streams[i], rank->device->kind, rank->ordinal));
    fuzz_comms_open(rank, comm);
    struct fuzz_rng rng = {fuzz_mix((uint64_t)fuzz_options.seed * 1000003 + 7)};
    long index = 0;
    for (int i = 1; i < FUZZ_N_SLOTS; i++)
        fuzz_comms_change(rank, &rng);
    while (index < fuzz_options.n_calls && index <= fuzz_options.stop_at) {
        if (fuzz_once_in(&rng, 12))
            fuzz_comms_change(rank, &rng);
        const struct fuzz_rng of_round = {fuzz_next(&rng)};
        fuzz_rank_phase(rank, "drawing a round");
        index = fuzz_draw_round(rank, of_round, index);
        run_round(rank);
        atomic_fetch_add(&rank->round, 1);
    }
    rank->n_groups = 0;
    fuzz_comms_close(rank);
    fuzz_rank_phase(rank, "destroying streams");
    for (int i = 0; i < FUZZ_N_STREAMS; i++)
        if (rank->streams[i] != NULL)
            FUZZ_TRY(rank, gyre_stream_destroy(rank->streams[i], rank->device->kind));
    atomic_store(&fuzz_shared->progress_ns[rank->world_rank], 0);
}

/* Memory that other ranks may have addressed. */
static void free_rank(struct fuzz_rank *rank)
{
    fuzz_place_close(rank);
}

struct fuzz_shared *fuzz_shared;

uint64_t fuzz_now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * GYRE_SECOND_NS + (uint64_t)time.tv_nsec;
}

struct thread {
    pthread_t thread;
    struct fuzz_rank *rank;
    gyre_comm *comm;
};

static void *run_thread(void *argument)
{
    struct thread *thread = argument;
    run_rank(thread->rank, thread->comm);
    return NULL;
}

static void init_all(struct fuzz_rank *ranks, int n_ranks, gyre_comm **comms)
{
    int ordinals[FUZZ_MAX_RANKS];
    gyre_config config = fuzz_comms_config(&ranks[0]);
    for (int i = 0; i < n_ranks; i++)
        ordinals[i] = ranks[i].ordinal;
    fuzz_rank_phase(&ranks[0], "gyre_comm_init_all");
    FUZZ_TRY(&ranks[0], gyre_comm_init_all(comms, n_ranks, ordinals, &config));
}

static void run_threads(const struct fuzz_device *device, int first, int n_ranks)
{
    struct fuzz_rank *ranks = calloc((size_t)n_ranks, sizeof(*ranks));
    struct thread threads[FUZZ_MAX_RANKS];
    gyre_comm *comms[FUZZ_MAX_RANKS] = {NULL};
    if (ranks == NULL)
        fuzz_fail(NULL, FUZZ_FAILED, "no memory for %d ranks", n_ranks);
    for (int i = 0; i < n_ranks; i++) {
        ranks[i].world_rank = first + i;
        ranks[i].ordinal = device->kind == GYRE_DEVICE_CUDA ? (first + i) % device->count() : -1;
        ranks[i].device = device;
        ranks[i].phase = "beginning";
    }
    fuzz_watchdog_start(ranks, n_ranks);
    if (fuzz_options.mode == FUZZ_THREADS && fuzz_options.seed % 3 == 0)
        init_all(ranks, n_ranks, comms);
    for (int i = 0; i < n_ranks; i++) {
        threads[i] = (struct thread){.rank = &ranks[i], .comm = comms[i]};
        if (pthread_create(&threads[i].thread, NULL, run_thread, &threads[i]) != 0)
            fuzz_fail(&ranks[i], FUZZ_FAILED, "no thread for the rank");
    }
    for (int i = 0; i < n_ranks; i++)
        pthread_join(threads[i].thread, NULL);
    /* Windows' memory lives until every rank has destroyed its communicators. The watchdog ends
     * this process if one never does; the parent does so if one fails. */
    atomic_fetch_add(&fuzz_shared->n_done, n_ranks);
    while (atomic_load(&fuzz_shared->n_done) < (int)fuzz_options.n_ranks)
        usleep(1000);
    for (int i = 0; i < n_ranks; i++)
        free_rank(&ranks[i]);
    atomic_fetch_sub(&fuzz_shared->n_running, 1);
    /* `ranks` stays for the watchdog until the process ends. */
}

/* 0, or the run's status. */
static int judge(int rank, int status)
{
    int none = 0;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : FUZZ_CRASHED;
    if (status == 0)
        return 0;
    if (atomic_compare_exchange_strong(&fuzz_shared->verdict, &none, code)) {
        fprintf(stderr, "fuzz: rank %d ended by %s %d\n", rank,
                WIFSIGNALED(status) ? "signal" : "status",
                WIFSIGNALED(status) ? WTERMSIG(status) : code);
        fuzz_print_command();
    }
    return atomic_load(&fuzz_shared->verdict);
}

/* Until then the processes that are left may go on. Ranks that hang end by themselves after they
 * have printed; ranks whose peer failed have a few seconds to say so. */
static uint64_t find_end_ns(uint64_t last_event_ns)
{
    const uint64_t newest_ns = fuzz_watchdog_newest_ns();
    const uint64_t from_ns = newest_ns > last_event_ns ? newest_ns : last_event_ns;
    const int verdict = atomic_load(&fuzz_shared->verdict);
    if (verdict != 0 && verdict != FUZZ_HANG)
        return last_event_ns + 3 * GYRE_SECOND_NS;
    return from_ns + ((uint64_t)fuzz_options.timeout_s + 60) * GYRE_SECOND_NS;
}

static int wait_for_processes(pid_t *pids)
{
    int n_left = (int)fuzz_options.n_ranks, verdict = 0, status = 0;
    uint64_t last_event_ns = fuzz_now_ns();
    bool is_killed = false;
    while (n_left > 0) {
        const pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid == 0)
            usleep(2000);
        for (int rank = 0; rank < (int)fuzz_options.n_ranks; rank++) {
            if (pid <= 0 || pids[rank] != pid)
                continue;
            verdict = !is_killed && verdict == 0 ? judge(rank, status) : verdict;
            pids[rank] = 0;
            n_left--;
            last_event_ns = fuzz_now_ns();
        }
        if (is_killed || fuzz_now_ns() < find_end_ns(last_event_ns))
            continue;
        is_killed = true;
        verdict = verdict == 0 ? FUZZ_HANG : verdict;
        for (int rank = 0; rank < (int)fuzz_options.n_ranks; rank++) {
            if (pids[rank] == 0)
                continue;
            fprintf(stderr, "fuzz: rank %d did not end, and is killed\n", rank);
            kill(pids[rank], SIGKILL);
        }
    }
    return verdict;
}

int fuzz_ranks_run(void)
{
    const struct fuzz_device *device = fuzz_device_chosen();
    pid_t pids[FUZZ_MAX_RANKS];
    if (device == NULL || device->count() == 0) {
        printf("skipped: %s\n", device == NULL ? "a build without CUDA" : "no GPU");
        return FUZZ_SKIPPED;
    }
    fuzz_shared =
        mmap(NULL, sizeof(*fuzz_shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (fuzz_shared == MAP_FAILED) {
        fprintf(stderr, "fuzz: no shared memory\n");
        return FUZZ_FAILED;
    }
    if (fuzz_options.mode == FUZZ_THREADS) {
        run_threads(device, 0, (int)fuzz_options.n_ranks);
        return FUZZ_RIGHT;
    }
    const pid_t parent = getpid();
    for (int rank = 0; rank < (int)fuzz_options.n_ranks; rank++) {
        fflush(NULL);
        pids[rank] = fork();
        if (pids[rank] < 0)
            fuzz_fail(NULL, FUZZ_FAILED, "no process for rank %d", rank);
        if (pids[rank] > 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(FUZZ_FAILED);
        /* Rank r is on host r % H, and hosts reach each other by sockets only. */
        char name[32];
        if (fuzz_options.n_hosts != 0) {
            snprintf(name, sizeof(name), "fuzz%d", rank % (int)fuzz_options.n_hosts);
            setenv("GYRE_HOSTID", name, 1);
            setenv("GYRE_NET", "Socket", 1);
        }
        run_threads(device, rank, 1);
        exit(0);
    }
    return wait_for_processes(pids);
}
