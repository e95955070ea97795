/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nic/verbs_wire/gpu.h"

#include "tests/nic/verbs_wire/say.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Written once, by the first call. */
static struct {
    bool is_tried, is_loaded;
    struct wire_gpu_calls calls;
} cuda;

const struct wire_gpu_calls *wire_gpu_load(void)
{
    if (cuda.is_tried)
        return cuda.is_loaded ? &cuda.calls : NULL;
    cuda.is_tried = true;
    const char *file = getenv("VERBS_WIRE_CUDA");
    void *library = dlopen(file != NULL ? file : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        wire_say("GPU memory: %s", dlerror());
        return NULL;
    }
    void *address;
#define GPU_LOAD(member, symbol, parameters)               \
    address = dlsym(library, symbol);                      \
    if (address == NULL) {                                 \
        wire_say("GPU memory: libcuda has no %s", symbol); \
        return NULL;                                       \
    }                                                      \
    memcpy(&cuda.calls.member, &address, sizeof(address));
    WIRE_GPU_TABLE(GPU_LOAD)
#undef GPU_LOAD
    cuda.is_loaded = cuda.calls.init(0) == 0;
    return cuda.is_loaded ? &cuda.calls : NULL;
}

bool wire_gpu_is_fine(int result, const char *call)
{
    const char *name = NULL;
    if (result == 0)
        return true;
    if (cuda.calls.error_name(result, &name) != 0)
        name = "unknown error";
    wire_say("%s: %s (%d)", call, name, result);
    errno = EFAULT; /* as registration without such memory */
    return false;
}
