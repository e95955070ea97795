/* SPDX-License-Identifier: Apache-2.0
 *
 * All-reduce over all GPUs of this machine, one rank each, served by one thread.
 *   nvcc gpu.c $(pkg-config --cflags --libs gyre)
 * Exit status 77: there is no GPU.
 */
#include <cuda_runtime_api.h>
#include <gyre.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_GPUS = 16, COUNT = 1 << 20 };

static void check(gyre_status status)
{
    if (status == GYRE_SUCCESS)
        return;
    fprintf(stderr, "%s: %s\n", gyre_status_name(status), gyre_last_error());
    exit(1);
}

static void check_cuda(cudaError_t error)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
    exit(1);
}

/* COUNT numbers on GPU `gpu`, all of them `value`. */
static float *make_numbers(int gpu, float value)
{
    float *on_host = malloc(COUNT * sizeof(*on_host)), *on_gpu;
    if (on_host == NULL)
        exit(1);
    for (int i = 0; i < COUNT; i++)
        on_host[i] = value;
    check(gyre_mem_alloc((void **)&on_gpu, COUNT * sizeof(*on_gpu), GYRE_DEVICE_CUDA, gpu));
    check_cuda(cudaMemcpy(on_gpu, on_host, COUNT * sizeof(*on_gpu), cudaMemcpyHostToDevice));
    free(on_host);
    return on_gpu;
}

int main(void)
{
    gyre_comm *comms[MAX_GPUS];
    gyre_stream streams[MAX_GPUS];
    float *numbers[MAX_GPUS];
    gyre_config config = GYRE_CONFIG_INIT;
    bool is_right = true;
    int n_gpus = 0;
    if (cudaGetDeviceCount(&n_gpus) != cudaSuccess || n_gpus == 0) {
        printf("skipped: no GPU\n");
        return 77;
    }
    n_gpus = n_gpus < MAX_GPUS ? n_gpus : MAX_GPUS;
    config.device_kind = GYRE_DEVICE_CUDA;
    check(gyre_comm_init_all(comms, n_gpus, NULL, &config));
    for (int i = 0; i < n_gpus; i++) { /* before the first call: allocating waits for kernels */
        numbers[i] = make_numbers(i, (float)(i + 1));
        check(gyre_stream_create(&streams[i], GYRE_DEVICE_CUDA, i));
    }
    /* One thread calls for all ranks, so that all calls must be in a group. */
    check(gyre_group_start());
    for (int i = 0; i < n_gpus; i++)
        check(gyre_all_reduce(numbers[i], numbers[i], COUNT, GYRE_FLOAT32, GYRE_SUM, comms[i],
                              streams[i]));
    check(gyre_group_end());
    for (int i = 0; i < n_gpus; i++) {
        float last;
        check(gyre_stream_synchronize(streams[i], GYRE_DEVICE_CUDA));
        check_cuda(cudaMemcpy(&last, &numbers[i][COUNT - 1], sizeof(last), cudaMemcpyDeviceToHost));
        printf("GPU %d: %g\n", i, (double)last);
        is_right = is_right && last == (float)(n_gpus * (n_gpus + 1)) / 2;
    }
    for (int i = 0; i < n_gpus; i++) {
        check(gyre_comm_destroy(comms[i]));
        check(gyre_stream_destroy(streams[i], GYRE_DEVICE_CUDA));
        check(gyre_mem_free(numbers[i], GYRE_DEVICE_CUDA));
    }
    return is_right ? 0 : 1;
}
