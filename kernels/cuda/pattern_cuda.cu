/* SPDX-License-Identifier: Apache-2.0
 *
 * Patterns in GPU memory: every block computes one period into shared memory, then fills or
 * compares from there.
 */
#include "core/device/cuda_error.h"
#include "kernels/pattern_values.h"

extern "C" {
#include "kernels/pattern_ops.h"
}

#define THREADS 512
#define BLOCKS  256

struct pattern_range {
    struct gyre_pattern pattern;
    uint32_t rank; /* GYRE_PATTERN_REDUCED: the reduction */
    uint64_t first;
    uint64_t count;
};

/* Device memory, zeroed but for first_wrong. */
struct pattern_result {
    unsigned long long n_wrong;
    unsigned long long first_wrong; /* from `first`; the largest number = none */
};

static __host__ __device__ uint64_t value_of(const struct pattern_range *range, uint64_t element)
{
    return range->rank == GYRE_PATTERN_REDUCED
               ? gyre_pattern_reduced(&range->pattern, element)
               : gyre_pattern_value(&range->pattern, range->rank, element);
}

/* @period: GYRE_PATTERN_PERIOD values from element 0 on. */
template <class T>
static __device__ void compute_period(const struct pattern_range *range, T *period)
{
    for (uint32_t i = threadIdx.x; i < GYRE_PATTERN_PERIOD; i += blockDim.x)
        period[i] = (T)value_of(range, i);
    __syncthreads();
}

template <class T>
static __global__ void fill_elements(const __grid_constant__ struct pattern_range range, T *buffer)
{
    __shared__ T period[GYRE_PATTERN_PERIOD];
    compute_period(&range, period);
    const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < range.count; i += stride)
        buffer[i] = period[(range.first + i) % GYRE_PATTERN_PERIOD];
}

template <class T>
static __global__ void check_elements(const __grid_constant__ struct pattern_range range,
                                      const T *buffer, struct pattern_result *result)
{
    __shared__ T period[GYRE_PATTERN_PERIOD];
    compute_period(&range, period);
    const uint64_t stride = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < range.count; i += stride)
        if (buffer[i] != period[(range.first + i) % GYRE_PATTERN_PERIOD]) {
            atomicAdd(&result->n_wrong, 1ULL);
            atomicMin(&result->first_wrong, (unsigned long long)i);
        }
}

template <class T>
static void start(const struct pattern_range &range, void *buffer, struct pattern_result *result,
                  cudaStream_t stream)
{
    if (result == nullptr)
        fill_elements<T><<<BLOCKS, THREADS, 0, stream>>>(range, (T *)buffer);
    else
        check_elements<T><<<BLOCKS, THREADS, 0, stream>>>(range, (const T *)buffer, result);
}

/* Fill (result NULL) or check, on a stream of its own, to the end. */
static gyre_status run(const struct pattern_range &range, void *buffer,
                       struct pattern_result *result)
{
    cudaStream_t stream;
    GYRE_CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    switch (gyre_dtype_bytes(range.pattern.dtype)) {
    case 1:
        start<uint8_t>(range, buffer, result, stream);
        break;
    case 2:
        start<uint16_t>(range, buffer, result, stream);
        break;
    case 4:
        start<uint32_t>(range, buffer, result, stream);
        break;
    default:
        start<uint64_t>(range, buffer, result, stream);
        break;
    }
    cudaError_t error = cudaGetLastError();
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

/* What the first wrong element is and should be. */
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
