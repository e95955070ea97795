/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads the real library, once for the process.
 */
#include "core/nccl/nccl_fallback.h"

#include "core/gyre.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static struct {
    pthread_once_t once;
    int is_loaded;
    struct nccl_fallback functions;
    char problem[1200]; /* a path of 1023 bytes, and words */
} real = {.once = PTHREAD_ONCE_INIT};

/* Its own calls to nccl* must reach itself, although our names come first in the process. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOAD_FLAGS (RTLD_NOW | RTLD_LOCAL) /* the sanitizer refuses RTLD_DEEPBIND */
#else
#define LOAD_FLAGS (RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND)
#endif

static void load(void)
{
    char path[1024] = "";
    if (gyre_get_variable("GYRE_NCCL_FALLBACK", path, sizeof(path)) != GYRE_SUCCESS) {
        snprintf(real.problem, sizeof(real.problem), "%s", gyre_last_error());
        return;
    }
    if (path[0] == '\0')
        return;
    void *library = dlopen(path, LOAD_FLAGS);
    if (library == NULL) {
        snprintf(real.problem, sizeof(real.problem), "GYRE_NCCL_FALLBACK: %s", dlerror());
        return;
    }
#define TAKE(name, parameters)                                                                 \
    *(void **)&real.functions.name = dlsym(library, "nccl" #name);                             \
    if (real.functions.name == NULL) {                                                         \
        snprintf(real.problem, sizeof(real.problem), "GYRE_NCCL_FALLBACK: %s has no %s", path, \
                 "nccl" #name);                                                                \
        return;                                                                                \
    }
    NCCL_FALLBACK_FUNCTIONS(TAKE)
    TAKE(GetLastError, )
#undef TAKE
    real.is_loaded = 1;
}

const struct nccl_fallback *nccl_fallback_get(void)
{
    pthread_once(&real.once, load);
    return real.is_loaded ? &real.functions : NULL;
}

const char *nccl_fallback_problem(void)
{
    pthread_once(&real.once, load);
    return real.problem;
}
