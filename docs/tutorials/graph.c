/* SPDX-License-Identifier: Apache-2.0
 *
 * A CUDA graph: a call is captured once and replayed without the host. One GPU is one rank.
 */
#include <cuda_runtime_api.h>
#include <gyre.h>
#include <stdio.h>
#include <stdlib.h>

#define MUST(call, good)                                       \
    if ((call) != (good)) {                                    \
        fprintf(stderr, "%s: %s\n", #call, gyre_last_error()); \
        return 1;                                              \
    }

int main(void)
{
    gyre_config config = GYRE_CONFIG_INIT;
    gyre_comm *comm;
    gyre_stream stream;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    float *number, result = 1;
    int n_gpus = 0;
    if (cudaGetDeviceCount(&n_gpus) != cudaSuccess || n_gpus == 0) {
        printf("skipped: no GPU\n");
        return 77;
    }
    config.device_kind = GYRE_DEVICE_CUDA;
    MUST(gyre_comm_init_all(&comm, 1, NULL, &config), GYRE_SUCCESS);
    MUST(gyre_mem_alloc((void **)&number, sizeof(*number), GYRE_DEVICE_CUDA, 0), GYRE_SUCCESS);
    MUST(gyre_stream_create(&stream, GYRE_DEVICE_CUDA, 0), GYRE_SUCCESS);
    MUST(cudaMemcpy(number, &result, sizeof(result), cudaMemcpyHostToDevice), cudaSuccess);
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    MUST(gyre_all_reduce(number, number, 1, GYRE_FLOAT32, GYRE_SUM, comm, stream), GYRE_SUCCESS);
    MUST(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    MUST(cudaGraphInstantiate(&ready, graph, 0), cudaSuccess);
    for (int i = 0; i < 10; i++)
        MUST(cudaGraphLaunch(ready, stream), cudaSuccess);
    MUST(cudaStreamSynchronize(stream), cudaSuccess);
    MUST(cudaMemcpy(&result, number, sizeof(result), cudaMemcpyDeviceToHost), cudaSuccess);
    printf("10 replays on 1 rank: %g\n", (double)result); /* the sum over one rank is its number */
    return result == 1 ? 0 : 1;
}
