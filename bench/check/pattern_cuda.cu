/* SPDX-License-Identifier: Apache-2.0
 *
 * Every block computes one period into shared memory, then fills or compares from there.
 */
#include "bench/check/pattern_cuda.h"

#include "core/foundation/device/cuda_error.h"

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

/* @result: NULL: fill. */
static gyre_status run(struct gyre_device *device, const struct pattern_range &range, void *buffer,
                       struct pattern_result *result)
{
    struct gyre_cuda_args_pattern args = {range, buffer, result};
    void *arguments[] = {&args};
    const unsigned elem_bytes = gyre_dtype_bytes(range.pattern.dtype);
    const unsigned size = elem_bytes == 1 ? 0 : elem_bytes == 2 ? 1 : elem_bytes == 4 ? 2 : 3;
    cudaStream_t stream;
    int previous = -1;
    GYRE_TRY(gyre_cuda_enter(device->ordinal, &previous));
    cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error == cudaSuccess) {
        error = cudaLaunchKernel(gyre_cuda_kernels_pattern[result != nullptr][size], dim3(BLOCKS),
                                 dim3(THREADS), arguments, 0, stream);
        if (error == cudaSuccess)
            error = cudaStreamSynchronize(stream);
        (void)cudaStreamDestroy(stream);
    }
    gyre_cuda_leave(device->ordinal, previous);
    return error == cudaSuccess ? GYRE_SUCCESS : gyre_cuda_fail(error, "pattern kernel");
}

gyre_status gyre_pattern_fill_cuda(struct gyre_device *device, const struct gyre_pattern *pattern,
                                   uint32_t rank, uint64_t first, uint64_t count, void *buffer)
{
    const struct pattern_range range = {*pattern, rank, first, count};
    return count == 0 ? GYRE_SUCCESS : run(device, range, buffer, nullptr);
}

gyre_status gyre_pattern_check_cuda(struct gyre_device *device, const struct gyre_pattern *pattern,
                                    uint32_t rank, uint64_t first, uint64_t count,
                                    const void *buffer, struct gyre_pattern_errors *errors_out)
{
    const struct pattern_range range = {*pattern, rank, first, count};
    const unsigned elem_bytes = gyre_dtype_bytes(pattern->dtype);
    struct pattern_result result = {0, ~0ULL};
    struct gyre_pattern_errors errors = {0, 0, 0, 0};
    void *on_device = nullptr;
    gyre_status status = GYRE_SUCCESS;
    if (count > 0) {
        GYRE_TRY(device->ops->mem_alloc(device, sizeof(result), &on_device));
        GYRE_TRY_GOTO(status, device->ops->copy(device, on_device, &result, sizeof(result)), out);
        GYRE_TRY_GOTO(
            status,
            run(device, range, const_cast<void *>(buffer), (struct pattern_result *)on_device),
            out);
        GYRE_TRY_GOTO(status, device->ops->copy(device, &result, on_device, sizeof(result)), out);
    }
    errors.n_wrong = result.n_wrong;
    if (result.n_wrong > 0) {
        const void *from = (const unsigned char *)buffer + result.first_wrong * elem_bytes;
        errors.first_wrong = first + result.first_wrong;
        errors.expected = value_of(&range, errors.first_wrong);
        GYRE_TRY_GOTO(status, device->ops->copy(device, &errors.got, from, elem_bytes), out);
    }
    *errors_out = errors;
out:
    (void)device->ops->mem_free(device, on_device);
    return status;
}
