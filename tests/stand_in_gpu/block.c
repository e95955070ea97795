/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler of one block's fibers. The order of the warps changes with every round, so a kernel
 * that needs one order is found out. A round in which all fibers only poll gives the processor to
 * other blocks.
 */
#include "tests/stand_in_gpu/block.h"

#include "tests/stand_in_gpu/launch.h"

#include <sched.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#define STACK_BYTES      (128U * 1024)
#define SHARED_ALIGNMENT 1024
#define PATIENT_POLLS    64  /* reads of different words until a thread counts as waiting */
#define IDLE_ROUNDS      32  /* after which a block sleeps between rounds */
#define TIRED_ROUNDS     128 /* until it sleeps longer, so that many blocks can wait */
#define IDLE_NS          50000
#define TIRED_NS         500000

enum state { RUNS, AT_BARRIER, IN_WARP, ENDED };

struct fiber {
    enum state state;
    const void *polled;        /* the last since its last shuffle */
    const void *polled_before; /* and before that shuffle */
    uint32_t n_polls;
    bool is_useful;   /* its last run was more than polling */
    unsigned barrier; /* AT_BARRIER */
    uint32_t n_true;  /* the result of its last barrier */
};

struct barrier {
    uint32_t n_here;
    uint32_t n_true;
    uint32_t n_expected; /* 0 = all that have not ended */
};

struct warp {
    uint64_t values[2][STAND_IN_WARP_LANES]; /* of this shuffle and the last one */
    uint32_t n_shuffles;
    uint32_t n_here;
    uint32_t n_live;
    const char *file;
    int line;
};

struct block {
    const struct stand_in_launch *launch;
    unsigned char *stacks; /* kept for this thread's next block */
    /* Kept as well: an ended fiber begins again in its loop. */
    jmp_buf contexts[STAND_IN_MAX_THREADS];
    bool has_context[STAND_IN_MAX_THREADS];
    jmp_buf scheduler;
    uint32_t running; /* index of a fiber */
    uint32_t n_live;
    uint64_t random;
    struct fiber fibers[STAND_IN_MAX_THREADS];
    struct warp warps[STAND_IN_MAX_THREADS / STAND_IN_WARP_LANES];
    struct barrier barriers[STAND_IN_N_BARRIERS];
};

STAND_IN_THREAD_LOCAL struct stand_in_place stand_in_place;
/* What kernels see as shared_words[] (device.h). */
STAND_IN_THREAD_LOCAL void *stand_in_shared_words;
static STAND_IN_THREAD_LOCAL struct block *own;

static struct fiber *self(void)
{
    return &own->fibers[own->running];
}

/* Lets the scheduler run other fibers. */
static void leave(enum state state, bool is_useful)
{
    struct fiber *fiber = self();
    fiber->state = state;
    fiber->is_useful = is_useful;
    if (_setjmp(own->contexts[own->running]) == 0)
        _longjmp(own->scheduler, 1);
}

void stand_in_yield(void)
{
    leave(RUNS, false);
}

void stand_in_polled(const void *word)
{
    struct fiber *fiber = self();
    if (fiber->polled == word || ++fiber->n_polls % PATIENT_POLLS == 0)
        leave(RUNS, false);
    fiber->polled = word;
}

static void release(unsigned id)
{
    struct barrier *barrier = &own->barriers[id];
    for (uint32_t i = 0; i < stand_in_place.n_threads.x; i++) {
        struct fiber *fiber = &own->fibers[i];
        if (fiber->state == AT_BARRIER && fiber->barrier == id) {
            fiber->state = RUNS;
            fiber->n_true = barrier->n_true;
        }
    }
    memset(barrier, 0, sizeof(*barrier));
}

static bool is_complete(const struct barrier *barrier)
{
    return barrier->n_here > 0 &&
           barrier->n_here >= (barrier->n_expected > 0 ? barrier->n_expected : own->n_live);
}

static void arrive(unsigned id, uint32_t n_threads, bool vote)
{
    struct barrier *barrier = &own->barriers[id];
    if (barrier->n_here > 0 && barrier->n_expected != n_threads) {
        fprintf(stderr, "stand-in GPU: barrier %u of %u threads is used as one of %u\n", id,
                barrier->n_expected, n_threads);
        abort();
    }
    barrier->n_expected = n_threads;
    barrier->n_here++;
    barrier->n_true += vote;
}

uint32_t stand_in_barrier(unsigned id, uint32_t n_threads, bool vote)
{
    struct fiber *fiber = self();
    arrive(id, n_threads, vote);
    fiber->state = AT_BARRIER;
    fiber->barrier = id;
    if (is_complete(&own->barriers[id]))
        release(id);
    if (fiber->state == AT_BARRIER)
        leave(AT_BARRIER, true);
    return fiber->n_true;
}

void stand_in_barrier_arrive(unsigned id, uint32_t n_threads)
{
    arrive(id, n_threads, false);
    if (is_complete(&own->barriers[id]))
        release(id);
}

static struct warp *warp_of(uint32_t fiber)
{
    return &own->warps[fiber / STAND_IN_WARP_LANES];
}

static void end_shuffle(struct warp *warp)
{
    struct fiber *lanes = &own->fibers[(warp - own->warps) * STAND_IN_WARP_LANES];
    warp->n_here = 0;
    warp->n_shuffles++;
    for (int lane = 0; lane < STAND_IN_WARP_LANES; lane++)
        if (lanes[lane].state == IN_WARP)
            lanes[lane].state = RUNS;
}

/* All lanes go on in ascending order: what they store next is stored as if by one instruction. */
const uint64_t *stand_in_warp_shuffle(uint64_t value, const char *file, int line)
{
    struct fiber *fiber = self();
    struct warp *warp = warp_of(own->running);
    uint64_t *values = warp->values[warp->n_shuffles % 2];
    if (warp->n_here == 0) {
        memset(values, 0, sizeof(warp->values[0]));
        warp->file = file;
        warp->line = line;
    } else if (warp->line != line || strcmp(warp->file, file) != 0) {
        fprintf(stderr, "stand-in GPU: lanes of a warp meet in %s:%d and in %s:%d\n", warp->file,
                warp->line, file, line);
        abort();
    }
    values[own->running % STAND_IN_WARP_LANES] = value;
    const bool is_useful = fiber->polled == NULL || fiber->polled != fiber->polled_before;
    fiber->polled_before = fiber->polled;
    fiber->polled = NULL;
    fiber->n_polls = 0;
    fiber->state = IN_WARP;
    if (++warp->n_here == warp->n_live)
        end_shuffle(warp);
    leave(fiber->state, is_useful);
    return values;
}

/* Each pass is a thread of another block. */
static void fiber_main(void)
{
    for (;;) {
        own->launch->call(own->launch->function, own->launch->args);
        /* It has returned: nobody waits for it any more. */
        struct warp *warp = warp_of(own->running);
        self()->state = ENDED;
        self()->is_useful = true;
        own->n_live--;
        warp->n_live--;
        if (warp->n_here > 0 && warp->n_here == warp->n_live)
            end_shuffle(warp);
        for (unsigned id = 0; id < STAND_IN_N_BARRIERS; id++)
            if (own->barriers[id].n_expected == 0 && is_complete(&own->barriers[id]))
                release(id);
        if (_setjmp(own->contexts[own->running]) == 0)
            _longjmp(own->scheduler, 1);
    }
}

static void make_fiber(uint32_t index)
{
    ucontext_t context;
    own->has_context[index] = true;
    if (getcontext(&context) != 0)
        abort();
    context.uc_stack.ss_sp = own->stacks + (size_t)index * STACK_BYTES;
    context.uc_stack.ss_size = STACK_BYTES;
    context.uc_link = NULL;
    makecontext(&context, fiber_main, 0);
    (void)setcontext(&context);
    abort();
}

/* Until it waits. False if it only polled. */
static bool run_fiber(uint32_t index)
{
    own->running = index;
    stand_in_place.thread.x = index;
    own->fibers[index].state = RUNS;
    if (_setjmp(own->scheduler) == 0) {
        if (!own->has_context[index])
            make_fiber(index);
        _longjmp(own->contexts[index], 1);
    }
    return own->fibers[own->running].is_useful;
}

static void die_of_deadlock(void)
{
    fprintf(stderr, "stand-in GPU: the threads of block %u, row %u wait for each other:\n",
            stand_in_place.block.x, stand_in_place.block.y);
    for (uint32_t i = 0; i < stand_in_place.n_threads.x; i++) {
        const struct fiber *fiber = &own->fibers[i];
        if (fiber->state == AT_BARRIER)
            fprintf(stderr, "  thread %u: barrier %u\n", i, fiber->barrier);
        else if (fiber->state == IN_WARP)
            fprintf(stderr, "  thread %u: %s:%d\n", i, warp_of(i)->file, warp_of(i)->line);
    }
    abort();
}

/* In ascending order. After a shuffle they all begin again in the next round. */
static void run_warp(uint32_t number, bool *has_run, bool *is_useful)
{
    struct warp *warp = &own->warps[number];
    const uint32_t n_shuffles = warp->n_shuffles;
    const uint32_t first = number * STAND_IN_WARP_LANES;
    const uint32_t last = first + STAND_IN_WARP_LANES;
    for (uint32_t i = first; i < last && i < stand_in_place.n_threads.x; i++) {
        if (own->fibers[i].state != RUNS)
            continue;
        *has_run = true;
        if (run_fiber(i))
            *is_useful = true;
        if (warp->n_shuffles != n_shuffles)
            break;
    }
}

/* Returns false if all fibers only polled. */
static bool run_round(void)
{
    const uint32_t n_warps =
        (stand_in_place.n_threads.x + STAND_IN_WARP_LANES - 1) / STAND_IN_WARP_LANES;
    bool is_useful = false, has_run = false;
    own->random = own->random * 6364136223846793005U + 1442695040888963407U;
    const uint32_t first = (uint32_t)(own->random >> 33);
    for (uint32_t w = 0; w < n_warps; w++)
        run_warp((first + w) % n_warps, &has_run, &is_useful);
    if (!has_run)
        die_of_deadlock();
    return is_useful;
}

static void pause_idle_block(int n_idle_rounds)
{
    const struct timespec pause = {.tv_nsec = n_idle_rounds > TIRED_ROUNDS ? TIRED_NS : IDLE_NS};
    if (n_idle_rounds > IDLE_ROUNDS)
        (void)nanosleep(&pause, NULL);
    else
        (void)sched_yield();
}

void stand_in_run_block(const struct stand_in_launch *launch, uint32_t block)
{
    int n_idle = 0;
    if (own == NULL) {
        void *stacks =
            mmap(NULL, (size_t)STAND_IN_MAX_THREADS * STACK_BYTES, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        own = calloc(1, sizeof(*own));
        stand_in_shared_words = aligned_alloc(SHARED_ALIGNMENT, STAND_IN_SHARED_BYTES);
        if (stacks == MAP_FAILED || own == NULL || stand_in_shared_words == NULL) {
            fprintf(stderr, "stand-in GPU: no memory for a block\n");
            abort();
        }
        own->stacks = stacks;
    }
    own->launch = launch;
    own->n_live = launch->n_threads;
    own->random += block + 1;
    memset(own->fibers, 0, launch->n_threads * sizeof(own->fibers[0]));
    memset(own->warps, 0, sizeof(own->warps));
    memset(own->barriers, 0, sizeof(own->barriers));
    for (uint32_t i = 0; i < launch->n_threads; i++)
        warp_of(i)->n_live++;
    const uint32_t n_columns = launch->n_blocks / launch->n_rows;
    stand_in_place.block = (struct stand_in_index){block % n_columns, block / n_columns};
    stand_in_place.n_blocks = (struct stand_in_index){n_columns, launch->n_rows};
    stand_in_place.n_threads = (struct stand_in_index){launch->n_threads, 1};
    while (own->n_live > 0) {
        n_idle = run_round() ? 0 : n_idle + 1;
        if (n_idle > 0)
            pause_idle_block(n_idle);
    }
}
