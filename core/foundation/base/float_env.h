/* SPDX-License-Identifier: Apache-2.0
 *
 * The library's arithmetic in the caller's thread. A program may have another rounding mode, flush
 * denormals to zero (-ffast-math), or trap exceptions, and its ranks may differ in that. Ranks must
 * get the same bits and make the same plans, so the library computes with the defaults, and then
 * gives the thread its state back, flags included.
 */
#ifndef GYRE_BASE_FLOAT_ENV_H
#define GYRE_BASE_FLOAT_ENV_H

#if defined(__x86_64__)

#include <xmmintrin.h>

struct gyre_float_env {
    unsigned mxcsr;
};

/** gyre_float_begin / gyre_float_end - compute with the default state in between. Returns the state
 * that the thread had, which gyre_float_end() restores. glibc's fegetenv() and fesetenv() would
 * also move the x87 state, which nothing here uses. */
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

#endif
