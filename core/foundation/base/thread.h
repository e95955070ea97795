/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_BASE_THREAD_H
#define GYRE_BASE_THREAD_H

#include "core/foundation/base/status.h"

#include <pthread.h>

/** Blocks the signals that the application's threads wait for; default floating-point state.
 * @stack_bytes: 0 = the default; at least 256 KiB. Errors: SYSTEM, OUT_OF_MEMORY. */
gyre_status gyre_thread_start(pthread_t *thread_out, size_t stack_bytes, void *(*run)(void *),
                              void *argument, const char *what);

/** Holds the mutex until the block ends. */
#define GYRE_LOCKED(mutex)                                                          \
    __attribute__((unused, cleanup(gyre_unlock_at_end))) pthread_mutex_t *locked_ = \
        gyre_lock_till_end(mutex)

static inline pthread_mutex_t *gyre_lock_till_end(pthread_mutex_t *lock)
{
    pthread_mutex_lock(lock);
    return lock;
}

static inline void gyre_unlock_at_end(pthread_mutex_t **lock)
{
    pthread_mutex_unlock(*lock);
}

/** Waits use CLOCK_MONOTONIC, as gyre_now_ns(). */
void gyre_cond_init(pthread_cond_t *cond);

void gyre_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns);

/* fork() runs under the lock of process-wide state, so the child finds it whole. A thread that
 * holds such a lock takes no other and waits for no rank. */
struct gyre_fork_watch {
    pthread_mutex_t *lock;  /* NULL = none */
    void (*in_child)(void); /* in the child, under the locks; NULL = nothing */
    struct gyre_fork_watch *next;
};

void gyre_fork_watch(struct gyre_fork_watch *watch);

/** Forks since loading. Threads, sockets and devices of another generation do not exist here. */
uint32_t gyre_fork_generation(void);

/** Once in a file at most. */
#define GYRE_WATCH_FORKS(lock_, in_child_)                              \
    __attribute__((constructor)) static void watch_forks(void)          \
    {                                                                   \
        static struct gyre_fork_watch watch = {lock_, in_child_, NULL}; \
        gyre_fork_watch(&watch);                                        \
    }

/* A program may change the rounding, flush denormals (-ffast-math) or trap exceptions, but all
 * ranks must get the same bits and plans. */

#if defined(__x86_64__)

#include <xmmintrin.h>

struct gyre_float_env {
    unsigned mxcsr;
};

/** glibc's fegetenv() and fesetenv() would move the unused x87 state, too. */
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

/* A communicator's first failure; later ones are dropped. The code that detects it raises the
 * fault. Every wait polls `raised`. */

struct gyre_fault {
    uint32_t raised;  /* 0 or 1, set last, with release, once, under `lock` */
    uint32_t is_told; /* 1: the other ranks know, or find out themselves. Any thread, release */
    pthread_mutex_t lock;
    gyre_status status;
    char cause[GYRE_CAUSE_MAX_BYTES];
    /* called once, by the raising thread, after `raised` is set; must not block */
    void (*on_raise)(void *context);
    void *context;
};

void gyre_fault_init(struct gyre_fault *fault);
void gyre_fault_fini(struct gyre_fault *fault);

/** NULL = none. On return the previous function is not running. */
void gyre_fault_hook(struct gyre_fault *fault, void (*on_raise)(void *context), void *context);

/** True = the first failure. */
bool gyre_fault_raise(struct gyre_fault *fault, gyre_status status, const char *cause);

bool gyre_fault_is_raised(const struct gyre_fault *fault);

/** SUCCESS, or the failure's status, whose cause becomes this thread's. */
gyre_status gyre_fault_status(struct gyre_fault *fault);

#endif
