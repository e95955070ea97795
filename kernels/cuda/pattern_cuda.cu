/* SPDX-License-Identifier: Apache-2.0
 *
 * Every block computes one period into shared memory, then fills or compares from there.
 */
#include "kernels/cuda/pattern_cuda.h"

#include "core/foundation/device/cuda_error.h"

extern "C" {
#include "kernels/pattern_ops.h"
}

#define THREADS 512
#define BLOCKS  256

static __host__ __device__ uint64_t value_of(const struct pattern_range *range, uint64_t element)
{
    return range->rank == GYRE_PATTERN_REDUCED
               ? gyre_pattern_reduced(&range->pattern, element)
               : gyre_pattern_value(&range->pattern, range->rank, element);
}

static __device__ uint64_t *period_words()
{
    __shared__ uint64_t words[GYRE_PATTERN_PERIOD];
    return words;
}

template <class T> static __device__ const T *compute_period(const struct pattern_range *range)
{
    T *period = (T *)period_words();
    for (uint32_t i = threadIdx.x; i < GYRE_PATTERN_PERIOD; i += blockDim.x)
        period[i] = (T)value_of(range, i);
    __syncthreads();
    return period;
}

template <class T>
static __global__ void fill_elements(const __grid_constant__ struct gyre_cuda_args_pattern args)
{
    const struct pattern_range &range = args.range;
    const T *period = compute_period<T>(&range);
    T *buffer = (T *)args.buffer;
    const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < range.count; i += stride)
        buffer[i] = period[(range.first + i) % GYRE_PATTERN_PERIOD];
}

template <class T>
static __global__ void check_elements(const __grid_constant__ struct gyre_cuda_args_pattern args)
{
    const struct pattern_range &range = args.range;
    const T *period = compute_period<T>(&range);
    const T *buffer = (const T *)args.buffer;
    const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < range.count; i += stride)
        if (buffer[i] != period[(range.first + i) % GYRE_PATTERN_PERIOD]) {
            atomicAdd(&args.result->n_wrong, 1ULL);
            atomicMin(&args.result->first_wrong, (unsigned long long)i);
        }
}

#define KERNELS_OF(name)                                                 \
    {                                                                    \
        (const void *)&name<uint8_t>, (const void *)&name<uint16_t>,     \
            (const void *)&name<uint32_t>, (const void *)&name<uint64_t> \
    }
extern "C" const void *const gyre_cuda_kernels_pattern[2][4] = {KERNELS_OF(fill_elements),
                                                                KERNELS_OF(check_elements)};

static const void *kernel_of(unsigned elem_bytes, bool checks)
{
    const unsigned size = elem_bytes == 1 ? 0 : elem_bytes == 2 ? 1 : elem_bytes == 4 ? 2 : 3;
    return gyre_cuda_kernels_pattern[checks][size];
}

static gyre_status run(const struct pattern_range &range, void *buffer,
                       struct pattern_result *result)
{
    struct gyre_cuda_args_pattern args = {range, buffer, result};
    void *arguments[] = {&args};
    cudaStream_t stream;
    GYRE_CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaError_t error =
        cudaLaunchKernel(kernel_of(gyre_dtype_bytes(range.pattern.dtype), result != nullptr),
                         dim3(BLOCKS), dim3(THREADS), arguments, 0, stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(stream);
    (void)cudaStreamDestroy(stream);
    return error == cudaSuccess ? GYRE_SUCCESS : gyre_cuda_fail(error, "pattern kernel");
}

static gyre_status run_on(struct gyre_device *device, const struct pattern_range &range,
                          void *buffer, struct pattern_result *result)
{
    int previous = -1;
    GYRE_TRY(gyre_cuda_enter(device->ordinal, &previous));
    const gyre_status status = run(range, buffer, result);
    gyre_cuda_leave(device->ordinal, previous);
    return status;
}

static gyre_status cuda_fill(struct gyre_device *device, const struct gyre_pattern *pattern,
                             uint32_t rank, uint64_t first, uint64_t count, void *buffer)
{
    const struct pattern_range range = {*pattern, rank, first, count};
    return count == 0 ? GYRE_SUCCESS : run_on(device, range, buffer, nullptr);
}

static gyre_status describe(struct gyre_device *device, const struct pattern_range &range,
                            const void *buffer, const struct pattern_result &result,
                            struct gyre_pattern_errors *errors)
{
    const unsigned elem_bytes = gyre_dtype_bytes(range.pattern.dtype);
    errors->n_wrong = result.n_wrong;
    if (result.n_wrong == 0)
        return GYRE_SUCCESS;
    errors->first_wrong = range.first + result.first_wrong;
    errors->expected = value_of(&range, errors->first_wrong);
    return device->ops->copy(device, &errors->got,
                             (const unsigned char *)buffer + result.first_wrong * elem_bytes,
                             elem_bytes);
}

static gyre_status cuda_check(struct gyre_device *device, const struct gyre_pattern *pattern,
                              uint32_t rank, uint64_t first, uint64_t count, const void *buffer,
                              struct gyre_pattern_errors *errors_out)
{
    const struct pattern_range range = {*pattern, rank, first, count};
    struct pattern_result result = {0, ~0ULL};
    struct gyre_pattern_errors errors = {0, 0, 0, 0};
    void *on_device = nullptr;
    gyre_status status = GYRE_SUCCESS;
    if (count > 0) {
        GYRE_TRY(device->ops->mem_alloc(device, sizeof(result), &on_device));
        GYRE_TRY_GOTO(status, device->ops->copy(device, on_device, &result, sizeof(result)), out);
        GYRE_TRY_GOTO(
            status,
            run_on(device, range, const_cast<void *>(buffer), (struct pattern_result *)on_device),
            out);
        GYRE_TRY_GOTO(status, device->ops->copy(device, &result, on_device, sizeof(result)), out);
    }
    GYRE_TRY_GOTO(status, describe(device, range, buffer, result, &errors), out);
    *errors_out = errors;
out:
    (void)device->ops->mem_free(device, on_device);
    return status;
}

extern "C" const struct gyre_pattern_ops gyre_pattern_cuda = {cuda_fill, cuda_check};
