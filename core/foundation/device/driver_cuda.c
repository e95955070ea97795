/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks up the driver's functions once for the process.
 */
#include "core/foundation/device/driver_cuda.h"

#include "core/foundation/device/cuda_error.h"

#include <pthread.h>

static const struct {
    const char *name;
    unsigned version;
} functions[] = {
#define FUNCTION(name, version, parameters) {#name, version},
    GYRE_CUDA_DRIVER_TABLE(FUNCTION)
#undef FUNCTION
};

#define N_FUNCTIONS (sizeof(functions) / sizeof(functions[0]))

_Static_assert(sizeof(struct gyre_cuda_driver) == N_FUNCTIONS * sizeof(void *), "one field each");

/* Written once, by the first thread that asks. */
static struct {
    pthread_once_t once;
    union {
        struct gyre_cuda_driver driver;
        void *functions[N_FUNCTIONS];
    };
    cudaError_t error;
    const char *missing;
} found = {.once = PTHREAD_ONCE_INIT};

static void find_all(void)
{
    for (unsigned i = 0; i < N_FUNCTIONS && found.error == cudaSuccess; i++) {
        enum cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
        const char *name = functions[i].name;
        found.error = cudaGetDriverEntryPointByVersion(
            name, &found.functions[i], functions[i].version, cudaEnableDefault, &result);
        if (result != cudaDriverEntryPointSuccess || found.functions[i] == NULL)
            found.missing = name;
    }
}

gyre_status gyre_cuda_driver_find(const struct gyre_cuda_driver **driver_out)
{
    (void)pthread_once(&found.once, find_all);
    if (found.error != cudaSuccess)
        return gyre_cuda_fail(found.error, "cudaGetDriverEntryPointByVersion");
    if (found.missing != NULL)
        return gyre_fail(GYRE_ERROR_DEVICE, "the CUDA driver has no %s", found.missing);
    *driver_out = &found.driver;
    return GYRE_SUCCESS;
}
