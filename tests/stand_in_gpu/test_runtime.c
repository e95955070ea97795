/* SPDX-License-Identifier: Apache-2.0
 *
 * A kernel of these tests is a host function, of which one thread of each block does the work.
 */
#define TEST_OWN_MAIN
#include "core/foundation/base/sync.h"
#include "core/foundation/device/driver_cuda.h"
#include "tests/stand_in_gpu/block.h"
#include "tests/stand_in_gpu/launch.h"
#include "tests/support/check.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>

#define N_WORDS           1000

#define OK(call)          CHECK_MSG((call) == cudaSuccess, "%s", cudaGetErrorString(cudaGetLastError()))
#define FAILS(call, with) CHECK((call) == (with))

struct args {
    uint32_t *n_begun;
    uint32_t n_expected;
};

static void wait_for(uint32_t *word, uint32_t value)
{
    while (gyre_load_acquire_u32(word) < value)
        sched_yield();
}

static const char meet_kernel, count_kernel;

static void meet(const void *function, const void *args)
{
    const struct args *own = args;
    (void)function;
    if (stand_in_place.thread.x != 0)
        return;
    gyre_fetch_add_u32(own->n_begun, 1);
    wait_for(own->n_begun, own->n_expected);
}

static void count(const void *function, const void *args)
{
    (void)function;
    if (stand_in_place.thread.x == 0)
        gyre_fetch_add_u32(((const struct args *)args)->n_begun, 1);
}

static void add_kernels(void)
{
    stand_in_add_kernel(&meet_kernel, sizeof(struct args), meet);
    stand_in_add_kernel(&count_kernel, sizeof(struct args), count);
}

static cudaError_t start(const void *kernel, uint32_t n_blocks, struct args args,
                         cudaStream_t stream)
{
    void *params[] = {&args};
    const cudaError_t error =
        cudaLaunchKernel(kernel, (dim3){n_blocks, 1, 1}, (dim3){32, 1, 1}, params, 0, stream);
    memset(&args, 0, sizeof(args)); /* a launch has its own copy */
    return error;
}

static uint32_t n_entries;
static uint32_t entries[64];
static uint32_t gate;

static void CUDART_CB enter(void *number)
{
    entries[gyre_fetch_add_u32(&n_entries, 1) % 64] = (uint32_t)(uintptr_t)number;
}

static void CUDART_CB hold(void *word)
{
    wait_for(word, 1);
}

static void CUDART_CB nap(void *unused)
{
    const struct timespec ten_ms = {0, 10000000};
    (void)unused;
    nanosleep(&ten_ms, NULL);
}

/* Work that wrongly does not wait has the time to run. */
static void open_gate(void)
{
    nap(NULL);
    gyre_store_release_u32(&gate, 1);
}

static void log_on(cudaStream_t stream, uintptr_t number)
{
    OK(cudaLaunchHostFunc(stream, enter, (void *)number));
}

static void check_log(const char *expected)
{
    char text[64] = "";
    for (uint32_t i = 0; i < n_entries && i < sizeof(text) - 1; i++)
        text[i] = (char)('0' + entries[i]);
    CHECK_MSG(strcmp(text, expected) == 0, "%s, not %s", text, expected);
    n_entries = 0;
}

static cudaStream_t new_stream(unsigned flags)
{
    cudaStream_t stream = NULL;
    OK(cudaStreamCreateWithFlags(&stream, flags));
    return stream;
}

static cudaEvent_t new_event(void)
{
    cudaEvent_t event = NULL;
    OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
}

static void follow(cudaStream_t stream, cudaStream_t other)
{
    cudaEvent_t event = new_event();
    OK(cudaEventRecord(event, other));
    OK(cudaStreamWaitEvent(stream, event, 0));
    OK(cudaEventDestroy(event));
}

TEST_CASE("a stream runs its work in order")
{
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    uint32_t *memory = NULL, values[N_WORDS], got[N_WORDS];
    for (uint32_t i = 0; i < N_WORDS; i++)
        values[i] = i;
    OK(cudaMalloc((void **)&memory, 2 * sizeof(values)));
    OK(cudaLaunchHostFunc(stream, hold, &gate));
    OK(cudaMemcpyAsync(memory, values, sizeof(values), cudaMemcpyHostToDevice, stream));
    OK(cudaMemcpyAsync(memory + N_WORDS, memory, sizeof(values), cudaMemcpyDeviceToDevice, stream));
    OK(cudaMemsetAsync(memory, 0, sizeof(values), stream));
    OK(cudaMemcpyAsync(got, memory + N_WORDS, sizeof(got), cudaMemcpyDeviceToHost, stream));
    FAILS(cudaStreamQuery(stream), cudaErrorNotReady);
    open_gate();
    OK(cudaStreamSynchronize(stream));
    (void)cudaGetLastError();
    OK(cudaStreamQuery(stream));
    CHECK(memcmp(values, got, sizeof(got)) == 0);
    OK(cudaMemcpy(got, memory, sizeof(got), cudaMemcpyDefault));
    for (uint32_t i = 0; i < N_WORDS; i++)
        CHECK(got[i] == 0);
    OK(cudaFree(memory));
    OK(cudaStreamDestroy(stream));
    FAILS(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
}

TEST_CASE("a stream waits for an event of another one")
{
    cudaStream_t first = new_stream(cudaStreamNonBlocking);
    cudaStream_t second = new_stream(cudaStreamNonBlocking);
    cudaEvent_t event = new_event();
    OK(cudaEventQuery(event));
    OK(cudaLaunchHostFunc(first, hold, &gate));
    log_on(first, 1);
    OK(cudaEventRecord(event, first));
    FAILS(cudaEventQuery(event), cudaErrorNotReady);
    log_on(second, 2); /* does not wait */
    OK(cudaStreamSynchronize(second));
    OK(cudaStreamWaitEvent(second, event, 0));
    log_on(second, 3);
    FAILS(cudaStreamQuery(second), cudaErrorNotReady);
    open_gate();
    OK(cudaStreamSynchronize(second));
    OK(cudaEventSynchronize(event));
    OK(cudaEventDestroy(event));
    check_log("213");
}

TEST_CASE("the NULL stream waits for blocking streams only")
{
    cudaStream_t blocking = new_stream(cudaStreamDefault);
    cudaStream_t other = new_stream(cudaStreamNonBlocking);
    uint32_t other_gate = 0;
    OK(cudaLaunchHostFunc(other, hold, &other_gate));
    log_on(other, 4);
    OK(cudaLaunchHostFunc(blocking, hold, &gate));
    log_on(blocking, 1);
    OK(cudaLaunchHostFunc(NULL, nap, NULL));
    log_on(NULL, 2);
    log_on(blocking, 3);
    FAILS(cudaStreamQuery(NULL), cudaErrorNotReady);
    OK(cudaSetDevice(1));
    OK(cudaStreamSynchronize(NULL)); /* of another GPU */
    OK(cudaSetDevice(0));
    open_gate();
    OK(cudaStreamSynchronize(NULL));
    OK(cudaStreamSynchronize(blocking));
    gyre_store_release_u32(&other_gate, 1);
    OK(cudaDeviceSynchronize());
    check_log("1234");
}

TEST_CASE("events measure what lies between them")
{
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    cudaEvent_t begin, end, untimed = new_event();
    float ms = 0;
    OK(cudaEventCreate(&begin));
    OK(cudaEventCreate(&end));
    OK(cudaEventRecord(begin, stream));
    OK(cudaLaunchHostFunc(stream, nap, NULL));
    OK(cudaLaunchHostFunc(stream, hold, &gate));
    OK(cudaEventRecord(end, stream));
    OK(cudaEventRecord(untimed, stream));
    FAILS(cudaEventElapsedTime(&ms, begin, end), cudaErrorNotReady);
    open_gate();
    OK(cudaEventSynchronize(end));
    OK(cudaEventElapsedTime(&ms, begin, end));
    CHECK_MSG(ms >= 10, "%g ms", (double)ms);
    FAILS(cudaEventElapsedTime(&ms, begin, untimed), cudaErrorInvalidResourceHandle);
    OK(cudaEventDestroy(begin));
    OK(cudaEventDestroy(end));
    OK(cudaEventDestroy(untimed));
}

TEST_CASE("all blocks of a kernel run at once")
{
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    uint32_t n_begun[2] = {0, 0};
    for (int i = 0; i < 2; i++)
        OK(start(&meet_kernel, 500, (struct args){&n_begun[i], 500}, stream));
    OK(start(&count_kernel, 2000, (struct args){&n_begun[0], 0}, stream));
    OK(cudaStreamSynchronize(stream));
    CHECK(n_begun[0] == 2500 && n_begun[1] == 500);
}

TEST_CASE("launches that cannot run are refused")
{
    uint32_t n = 0;
    struct args args = {&n, 0};
    void *params[] = {&args};
    const dim3 one = {1, 1, 1};
    struct cudaFuncAttributes attributes;
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    FAILS(start(&n, 1, args, stream), cudaErrorInvalidDeviceFunction);
    FAILS(start(&count_kernel, 0, args, stream), cudaErrorInvalidValue);
    FAILS(cudaLaunchKernel(&count_kernel, one, one, params, 50000, stream), cudaErrorInvalidValue);
    OK(cudaFuncSetAttribute(&count_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 50000));
    OK(cudaFuncGetAttributes(&attributes, &count_kernel));
    CHECK(attributes.maxDynamicSharedSizeBytes == 50000);
    OK(cudaLaunchKernel(&count_kernel, one, one, params, 50000, stream));
    FAILS(cudaFuncSetAttribute(&count_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 300000),
          cudaErrorInvalidValue);
    OK(cudaSetDevice(1));
    FAILS(start(&count_kernel, 1, args, stream), cudaErrorInvalidResourceHandle);
    CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
    CHECK(cudaGetLastError() == cudaSuccess);
    OK(cudaStreamSynchronize(stream));
    CHECK(n == 1);
}

TEST_CASE("a kernel that hangs ends the process")
{
    int ends[2], status = 0;
    char text[500] = "";
    CHECK(pipe(ends) == 0);
    const pid_t pid = fork();
    if (pid == 0) {
        uint32_t n_begun = 0;
        add_kernels();
        setenv("STAND_IN_LIMIT_S", "1", 1);
        dup2(ends[1], STDERR_FILENO);
        (void)start(&meet_kernel, 3, (struct args){&n_begun, 4}, NULL);
        (void)cudaDeviceSynchronize();
        _exit(0);
    }
    close(ends[1]);
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK(read(ends[0], text, sizeof(text) - 1) > 0);
    CHECK_HAS(text, "GPU 0: a kernel on stream 0 has not ended after 1 s");
    CHECK_HAS(text, "0 of 3 blocks have ended");
}

static cudaGraphExec_t end_capture(cudaStream_t stream)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    return exec;
}

TEST_CASE("a captured fork and join replays")
{
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    cudaStream_t side = new_stream(cudaStreamNonBlocking);
    enum cudaStreamCaptureStatus status;
    unsigned long long ids[2] = {0, 1};
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    log_on(stream, 1);
    follow(side, stream);
    OK(cudaStreamGetCaptureInfo(stream, &status, &ids[0], NULL, NULL, NULL, NULL));
    OK(cudaStreamGetCaptureInfo(side, &status, &ids[1], NULL, NULL, NULL, NULL));
    CHECK(status == cudaStreamCaptureStatusActive && ids[0] == ids[1]);
    OK(cudaLaunchHostFunc(side, nap, NULL));
    log_on(side, 2);
    follow(stream, side);
    log_on(stream, 3);
    cudaGraphExec_t exec = end_capture(stream);
    OK(cudaStreamIsCapturing(side, &status));
    CHECK(status == cudaStreamCaptureStatusNone);
    check_log("");
    for (int i = 0; i < 3; i++)
        OK(cudaGraphLaunch(exec, stream));
    log_on(stream, 4);
    OK(cudaGraphExecDestroy(exec)); /* while it runs */
    OK(cudaStreamSynchronize(stream));
    check_log("1231231234");
}

TEST_CASE("replays of a graph on two streams run one after the other")
{
    cudaStream_t streams[] = {new_stream(cudaStreamNonBlocking), new_stream(cudaStreamNonBlocking)};
    OK(cudaStreamBeginCapture(streams[0], cudaStreamCaptureModeThreadLocal));
    log_on(streams[0], 1);
    OK(cudaLaunchHostFunc(streams[0], hold, &gate));
    log_on(streams[0], 2);
    cudaGraphExec_t exec = end_capture(streams[0]);
    OK(cudaGraphUpload(exec, streams[0]));
    OK(cudaGraphLaunch(exec, streams[0]));
    OK(cudaGraphLaunch(exec, streams[1]));
    wait_for(&n_entries, 1);
    open_gate();
    OK(cudaDeviceSynchronize());
    OK(cudaGraphExecDestroy(exec));
    check_log("1212");
}

TEST_CASE("edges say which launches overlap")
{
    static uint32_t n;
    struct args args = {&n, 0};
    void *params[] = {&args};
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    cudaLaunchAttribute attribute = {.id = cudaLaunchAttributeProgrammaticStreamSerialization};
    attribute.val.programmaticStreamSerializationAllowed = 1;
    const cudaLaunchConfig_t config = {.gridDim = {1, 1, 1},
                                       .blockDim = {32, 1, 1},
                                       .stream = stream,
                                       .attrs = &attribute,
                                       .numAttrs = 1};
    enum cudaStreamCaptureStatus status;
    const cudaGraphNode_t *nodes = NULL;
    cudaGraphNode_t from[8], to[8];
    cudaGraphEdgeData edges[8];
    cudaGraph_t graph = NULL;
    size_t n_nodes = 9, n_edges = 8;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(cudaStreamGetCaptureInfo(stream, &status, NULL, NULL, &nodes, NULL, &n_nodes));
    CHECK(n_nodes == 0);
    OK(start(&count_kernel, 1, args, stream));
    OK(cudaLaunchKernelExC(&config, &count_kernel, params));
    OK(cudaStreamGetCaptureInfo(stream, &status, NULL, NULL, &nodes, NULL, &n_nodes));
    CHECK(n_nodes == 1);
    const cudaGraphNode_t second = nodes[0];
    log_on(stream, 1);
    OK(cudaLaunchKernelExC(&config, &count_kernel, params));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphGetEdges(graph, NULL, NULL, NULL, &n_edges));
    CHECK(n_edges == 3);
    OK(cudaGraphGetEdges(graph, from, to, edges, &n_edges));
    CHECK(to[0] == second && from[1] == second);
    for (size_t i = 0; i < n_edges; i++)
        CHECK((edges[i].type == cudaGraphDependencyTypeProgrammatic) == (i == 0));
    OK(cudaGraphDestroy(graph));
}

static void check_end(cudaStream_t stream, cudaError_t expected)
{
    cudaGraph_t graph = NULL;
    FAILS(cudaStreamEndCapture(stream, &graph), expected);
    CHECK(graph == NULL);
}

TEST_CASE("wrong captures fail")
{
    cudaStream_t first = new_stream(cudaStreamNonBlocking);
    cudaStream_t second = new_stream(cudaStreamNonBlocking);
    cudaEvent_t event = new_event();
    OK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
    follow(second, first);
    log_on(second, 1);
    check_end(second, cudaErrorStreamCaptureUnmatched);
    check_end(first, cudaErrorStreamCaptureUnjoined);
    OK(cudaEventRecord(event, second));
    OK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
    FAILS(cudaStreamWaitEvent(first, event, 0), cudaErrorStreamCaptureIsolation);
    check_end(first, cudaErrorStreamCaptureInvalidated);
    OK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
    FAILS(cudaStreamSynchronize(first), cudaErrorStreamCaptureUnsupported);
    FAILS(cudaLaunchHostFunc(first, enter, NULL), cudaErrorStreamCaptureInvalidated);
    check_end(first, cudaErrorStreamCaptureInvalidated);
    OK(cudaStreamBeginCapture(first, cudaStreamCaptureModeRelaxed));
    OK(cudaStreamBeginCapture(second, cudaStreamCaptureModeRelaxed));
    OK(cudaEventRecord(event, first));
    FAILS(cudaEventQuery(event), cudaErrorCapturedEvent);
    FAILS(cudaStreamWaitEvent(second, event, 0), cudaErrorStreamCaptureMerge);
    check_end(first, cudaErrorStreamCaptureInvalidated);
    check_end(second, cudaErrorStreamCaptureInvalidated);
    FAILS(cudaStreamWaitEvent(second, event, 0), cudaErrorCapturedEvent);
    FAILS(cudaStreamBeginCapture(NULL, cudaStreamCaptureModeRelaxed),
          cudaErrorStreamCaptureUnsupported);
    OK(cudaEventDestroy(event));
    OK(cudaDeviceSynchronize());
    check_log("");
}

static void *alloc_in_thread(void *error_out)
{
    void *memory = NULL;
    *(cudaError_t *)error_out = cudaMalloc(&memory, 1);
    return NULL;
}

static cudaError_t alloc_elsewhere(void)
{
    pthread_t thread;
    cudaError_t error = cudaSuccess;
    CHECK(pthread_create(&thread, NULL, alloc_in_thread, &error) == 0);
    pthread_join(thread, NULL);
    return error;
}

TEST_CASE("unsafe calls end captures unless the thread allows them")
{
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    void *memory = NULL;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(alloc_elsewhere() == cudaSuccess);
    OK(cudaThreadExchangeStreamCaptureMode(&mode));
    OK(cudaMalloc(&memory, 1));
    OK(cudaThreadExchangeStreamCaptureMode(&mode));
    CHECK(mode == cudaStreamCaptureModeRelaxed);
    FAILS(cudaFree(memory), cudaErrorStreamCaptureUnsupported);
    check_end(stream, cudaErrorStreamCaptureInvalidated);
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(alloc_elsewhere() == cudaErrorStreamCaptureUnsupported);
    check_end(stream, cudaErrorStreamCaptureInvalidated);
    OK(cudaFree(memory));
}

TEST_CASE("fresh memory is aligned and not zero")
{
    unsigned char *memory = NULL, *pinned = NULL;
    size_t n_free[2], n_all;
    OK(cudaMemGetInfo(&n_free[0], &n_all));
    OK(cudaMalloc((void **)&memory, 1000));
    OK(cudaHostAlloc((void **)&pinned, 1000, cudaHostAllocMapped));
    CHECK((uintptr_t)memory % 512 == 0 && memory[0] != 0 && memory[999] != 0 && pinned[999] != 0);
    OK(cudaMemGetInfo(&n_free[1], &n_all));
    CHECK(n_free[1] < n_free[0]);
    OK(cudaFree(memory));
    OK(cudaFreeHost(pinned));
    OK(cudaFree(NULL));
    FAILS(cudaFree(memory), cudaErrorInvalidValue);
    FAILS(cudaMalloc((void **)&memory, SIZE_MAX), cudaErrorMemoryAllocation);
    OK(cudaMemGetInfo(&n_free[1], &n_all));
    CHECK(n_free[1] == n_free[0]);
}

static void *open_in_thread(void *unused)
{
    open_gate();
    return unused;
}

TEST_CASE("freeing memory waits for the GPU")
{
    cudaStream_t stream = new_stream(cudaStreamNonBlocking);
    pthread_t thread;
    void *memory = NULL;
    OK(cudaMalloc(&memory, 1));
    OK(cudaLaunchHostFunc(stream, hold, &gate));
    log_on(stream, 1);
    CHECK(pthread_create(&thread, NULL, open_in_thread, NULL) == 0);
    OK(cudaFree(memory));
    check_log("1");
    pthread_join(thread, NULL);
}

static void check_pointer(void *ptr, enum cudaMemoryType type, int gpu)
{
    const struct gyre_cuda_driver *driver = NULL;
    struct cudaPointerAttributes attributes;
    CUmemorytype seen_type = 0;
    int seen_gpu = -1;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *data[] = {&seen_type, &seen_gpu};
    CHECK_OK(gyre_cuda_driver_find(&driver));
    OK(cudaPointerGetAttributes(&attributes, ptr));
    CHECK(attributes.type == type && attributes.device == gpu);
    CHECK(driver->cuPointerGetAttributes(2, which, data, (CUdeviceptr)(uintptr_t)ptr) ==
          CUDA_SUCCESS);
    CHECK((seen_type == CU_MEMORYTYPE_DEVICE) == (type == cudaMemoryTypeDevice));
    CHECK(seen_gpu == gpu);
}

TEST_CASE("pointers are told apart")
{
    static char plain[8192];
    char *memory = NULL, *pinned = NULL;
    void *seen = NULL;
    OK(cudaSetDevice(1));
    OK(cudaMalloc((void **)&memory, 1000));
    OK(cudaHostAlloc((void **)&pinned, 1000, cudaHostAllocMapped));
    check_pointer(memory + 999, cudaMemoryTypeDevice, 1);
    check_pointer(pinned + 999, cudaMemoryTypeHost, 1);
    check_pointer(memory + 1000, cudaMemoryTypeUnregistered, -2);
    check_pointer(plain, cudaMemoryTypeUnregistered, -2);
    OK(cudaHostRegister(plain, sizeof(plain), cudaHostRegisterMapped));
    FAILS(cudaHostRegister(plain, 1, cudaHostRegisterMapped), cudaErrorHostMemoryAlreadyRegistered);
    OK(cudaHostGetDevicePointer(&seen, plain, 0));
    CHECK(seen == plain);
    check_pointer(plain + 8191, cudaMemoryTypeHost, 1);
    OK(cudaHostUnregister(plain));
    FAILS(cudaHostUnregister(plain), cudaErrorHostMemoryNotRegistered);
    check_pointer(plain, cudaMemoryTypeUnregistered, -2);
}

int main(int argc, char **argv)
{
    setenv("STAND_IN_GPUS", "2", 1);
    add_kernels();
    setenv("STAND_IN_LIMIT_S", "60", 1); /* before a case that hangs ends */
    return test_main(argc, argv);
}
