/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/stand_in_gpu/runtime.h"

#include <stdlib.h>

#define DEFAULT_SHARED_BYTES 49152
#define MOST_THREADS         1024U
#define ARCH                 90

/* Of dynamic shared memory, set by the program. */
struct limit {
    struct limit *next;
    const void *function;
    int gpu;
    int shared_bytes;
};

#define N_BUCKETS 256
static struct limit *limits[N_BUCKETS];

/* The caller holds the lock. */
static struct limit **find_limit(const void *function, int gpu)
{
    struct limit **link = &limits[((uintptr_t)function >> 4) % N_BUCKETS];
    while (*link != NULL && ((*link)->function != function || (*link)->gpu != gpu))
        link = &(*link)->next;
    return link;
}

static int shared_limit(const void *function)
{
    stand_in_enter();
    const struct limit *limit = *find_limit(function, stand_in_gpu());
    const int shared_bytes = limit != NULL ? limit->shared_bytes : DEFAULT_SHARED_BYTES;
    (void)stand_in_leave(cudaSuccess);
    return shared_bytes;
}

static bool is_kernel(const void *function)
{
    void (*call)(const void *, const void *);
    size_t args_bytes;
    return stand_in_find_kernel(function, &args_bytes, &call);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *function)
{
    if (!is_kernel(function))
        return stand_in_result(cudaErrorInvalidDeviceFunction);
    *out = (struct cudaFuncAttributes){.maxThreadsPerBlock = MOST_THREADS,
                                       .maxDynamicSharedSizeBytes = shared_limit(function),
                                       .ptxVersion = ARCH,
                                       .binaryVersion = ARCH};
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    if (!is_kernel(function))
        return stand_in_result(cudaErrorInvalidDeviceFunction);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
        return cudaSuccess; /* the others are hints */
    if (value < 0 || value > STAND_IN_SHARED_BYTES)
        return stand_in_result(cudaErrorInvalidValue);
    stand_in_enter();
    struct limit **link = find_limit(function, stand_in_gpu());
    if (*link == NULL) {
        *link = stand_in_realloc(NULL, sizeof(**link));
        **link = (struct limit){.function = function, .gpu = stand_in_gpu()};
    }
    (*link)->shared_bytes = value;
    return stand_in_leave(cudaSuccess);
}

static bool overlaps(const cudaLaunchConfig_t *config)
{
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization &&
            config->attrs[i].val.programmaticStreamSerializationAllowed != 0)
            return true;
    return false;
}

/* CUDA permits that launches never overlap. */
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **args)
{
    struct stand_in_op op = {.kind = STAND_IN_KERNEL};
    if (!stand_in_find_kernel(function, &op.args_bytes, &op.launch.call))
        return stand_in_result(cudaErrorInvalidDeviceFunction);
    if (config->gridDim.x == 0 || config->gridDim.y == 0 || config->gridDim.z != 1 ||
        config->blockDim.x == 0 || config->blockDim.x > MOST_THREADS || config->blockDim.y != 1 ||
        config->blockDim.z != 1 || config->dynamicSmemBytes > (size_t)shared_limit(function))
        return stand_in_result(cudaErrorInvalidValue);
    op.launch.function = function;
    op.launch.args = args[0];
    op.launch.n_blocks = config->gridDim.x * config->gridDim.y;
    op.launch.n_rows = config->gridDim.y;
    op.launch.n_threads = config->blockDim.x;
    return stand_in_enqueue(config->stream, &op, overlaps(config));
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **args,
                             size_t shared_bytes, cudaStream_t stream)
{
    const cudaLaunchConfig_t config = {
        .gridDim = grid, .blockDim = block, .dynamicSmemBytes = shared_bytes, .stream = stream};
    return cudaLaunchKernelExC(&config, function, args);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    struct stand_in_op op = {.kind = STAND_IN_CALL, .function = function, .argument = argument};
    return stand_in_enqueue(stream, &op, false);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch_bytes, const void *from,
                              size_t from_pitch_bytes, size_t row_bytes, size_t n_rows,
                              enum cudaMemcpyKind kind, cudaStream_t stream)
{
    struct stand_in_op op = {.kind = STAND_IN_COPY,
                             .to = to,
                             .from = from,
                             .to_pitch_bytes = to_pitch_bytes,
                             .from_pitch_bytes = from_pitch_bytes,
                             .row_bytes = row_bytes,
                             .n_rows = n_rows};
    (void)kind; /* all memory is the host's */
    if (row_bytes > to_pitch_bytes || row_bytes > from_pitch_bytes)
        return stand_in_result(cudaErrorInvalidValue);
    return stand_in_enqueue(stream, &op, false);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n_bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    return cudaMemcpy2DAsync(to, n_bytes, from, n_bytes, n_bytes, 1, kind, stream);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t n_bytes, cudaStream_t stream)
{
    struct stand_in_op op = {.kind = STAND_IN_FILL, .to = to, .value = value, .row_bytes = n_bytes};
    return stand_in_enqueue(stream, &op, false);
}

/* In a call that is carried out at once. */
static cudaError_t check_legacy(void)
{
    stand_in_enter();
    return stand_in_leave(stand_in_capture_check());
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t n_bytes, enum cudaMemcpyKind kind)
{
    cudaError_t error = check_legacy();
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(to, from, n_bytes, kind, NULL);
    return error == cudaSuccess ? cudaStreamSynchronize(NULL) : error;
}

cudaError_t cudaMemset(void *to, int value, size_t n_bytes)
{
    const cudaError_t error = check_legacy();
    return error == cudaSuccess ? cudaMemsetAsync(to, value, n_bytes, NULL) : error;
}
