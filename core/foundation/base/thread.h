/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads, timed waits, state of the process across fork(), the floating-point state, and the
 * failure that ends all waits of a communicator.
 */
#ifndef GYRE_BASE_THREAD_H
#define GYRE_BASE_THREAD_H

#include "core/foundation/base/status.h"

#include <pthread.h>

/** The thread blocks the signals for which the application's threads wait, and has the default
 * floating-point state. @stack_bytes: 0 = the default; at least 256 KiB in any case. @what: for
 * messages. Errors: SYSTEM, OUT_OF_MEMORY. */
gyre_status gyre_thread_start(pthread_t *thread_out, size_t stack_bytes, void *(*run)(void *),
                              void *argument, const char *what);

/** Timed waits use CLOCK_MONOTONIC, as gyre_now_ns() does. */
void gyre_cond_init(pthread_cond_t *cond);

void gyre_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns);

/* State that belongs to the process. fork() runs under its lock, so the child finds the state
 * whole. A thread that holds such a lock takes no other one and waits for no other rank. */
struct gyre_fork_watch {
    pthread_mutex_t *lock;  /* NULL = none */
    void (*in_child)(void); /* called in the child, under the locks; NULL = nothing */
    struct gyre_fork_watch *next;
};

/** For GYRE_WATCH_FORKS() only. */
void gyre_fork_watch(struct gyre_fork_watch *watch);

/** Forks between the process that loaded the library and this one. Threads, sockets and devices of
 * another generation do not exist here. */
uint32_t gyre_fork_generation(void);

/** At most once in a file. */
#define GYRE_WATCH_FORKS(lock_, in_child_)                              \
    __attribute__((constructor)) static void watch_forks(void)          \
    {                                                                   \
        static struct gyre_fork_watch watch = {lock_, in_child_, NULL}; \
        gyre_fork_watch(&watch);                                        \
    }

/* ---- floating point --------------------------------------------------------------------------
 * A program may round otherwise, flush denormals to zero (-ffast-math), or trap exceptions, but all
 * ranks must get the same bits and make the same plans. */

#if defined(__x86_64__)

#include <xmmintrin.h>

struct gyre_float_env {
    unsigned mxcsr;
};

/** glibc's fegetenv() and fesetenv() would also move the x87 state, which nothing here uses. */
static inline struct gyre_float_env gyre_float_begin(void)
{
    enum { DEFAULT = 0x1f80, FLAGS = 0x3f };
    const struct gyre_float_env callers = {_mm_getcsr()};
    if ((callers.mxcsr & ~(unsigned)FLAGS) != DEFAULT)
        _mm_setcsr(DEFAULT);
    return callers;
}

static inline void gyre_float_end(struct gyre_float_env callers)
{
    if (_mm_getcsr() != callers.mxcsr)
        _mm_setcsr(callers.mxcsr);
}

#else

#include <fenv.h>

struct gyre_float_env {
    fenv_t env;
};

static inline struct gyre_float_env gyre_float_begin(void)
{
    struct gyre_float_env callers;
    fegetenv(&callers.env);
    fesetenv(FE_DFL_ENV);
    return callers;
}

static inline void gyre_float_end(struct gyre_float_env callers)
{
    fesetenv(&callers.env);
}

#endif

/* ---- faults ----------------------------------------------------------------------------------
 * A fault is the first failure of a communicator; later ones are dropped. The code that detects a
 * failure raises the fault. Every wait of the communicator polls `raised` and ends when it is set.
 */

struct gyre_fault {
    uint32_t raised;  /* 0 or 1, set last, with release; written once, under `lock` */
    uint32_t is_told; /* 1: the other ranks know of the failure, or each finds it by itself. Any
                       * thread, release */
    pthread_mutex_t lock;
    gyre_status status;
    char cause[GYRE_CAUSE_MAX_BYTES];
    void (*on_raise)(void *context); /* called once, by the raising thread, after `raised` is set;
                                      * must not block */
    void *context;
};

void gyre_fault_init(struct gyre_fault *fault);
void gyre_fault_fini(struct gyre_fault *fault);

/** NULL = none. When this returns, no call of the previous function is running. */
void gyre_fault_hook(struct gyre_fault *fault, void (*on_raise)(void *context), void *context);

/** True if this failure is the first. */
bool gyre_fault_raise(struct gyre_fault *fault, gyre_status status, const char *cause);

bool gyre_fault_is_raised(const struct gyre_fault *fault);

/** SUCCESS, or the failure's status, whose cause becomes this thread's. */
gyre_status gyre_fault_status(struct gyre_fault *fault);

#endif
