/* SPDX-License-Identifier: Apache-2.0
 *
 * The trial's process starts a helper before CUDA, which does not survive a fork. The helper opens
 * the memory of each GPU.
 */
#include "bench/doctor/trial.h"

#include "core/foundation/base/util.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define COPY_BYTES    ((size_t)32 << 20)
#define IPC_BYTES     4096
#define DMABUF_BYTES  65536
#define N_COPIES      8
#define RANGE_DMA_BUF 1  /* CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD */
#define OUT_OF_MEMORY 2  /* CUDA_ERROR_OUT_OF_MEMORY */
#define UNAVAILABLE   46 /* CUDA_ERROR_DEVICE_UNAVAILABLE */
#define LAZY_PEER     1  /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */
#define HELPER_MS     10000

typedef unsigned long long address;

/* 64 opaque bytes, passed by value. */
struct ipc_handle {
    char bytes[64];
};

/* X(member, symbol, is required, parameters). Functions return a CUresult, 0 = success. */
#define CUDA_TABLE(X)                                                                  \
    X(init, cuInit, 1, (unsigned))                                                     \
    X(error_name, cuGetErrorName, 1, (int, const char **))                             \
    X(count, cuDeviceGetCount, 1, (int *))                                             \
    X(get, cuDeviceGet, 1, (int *, int))                                               \
    X(bus_id, cuDeviceGetPCIBusId, 1, (char *, int, int))                              \
    X(retain, cuDevicePrimaryCtxRetain, 1, (void **, int))                             \
    X(set_current, cuCtxSetCurrent, 1, (void *))                                       \
    X(alloc, cuMemAlloc_v2, 1, (address *, size_t))                                    \
    X(free, cuMemFree_v2, 1, (address))                                                \
    X(alloc_host, cuMemAllocHost_v2, 1, (void **, size_t))                             \
    X(free_host, cuMemFreeHost, 1, (void *))                                           \
    X(to_gpu, cuMemcpyHtoD_v2, 1, (address, const void *, size_t))                     \
    X(from_gpu, cuMemcpyDtoH_v2, 1, (void *, address, size_t))                         \
    X(get_handle, cuIpcGetMemHandle, 1, (struct ipc_handle *, address))                \
    X(open_handle, cuIpcOpenMemHandle_v2, 1, (address *, struct ipc_handle, unsigned)) \
    X(close_handle, cuIpcCloseMemHandle, 1, (address))                                 \
    X(export, cuMemGetHandleForAddressRange, 0, (void *, address, size_t, int, address))

struct cuda {
#define CUDA_MEMBER(member, symbol, is_required, parameters) int(*member) parameters;
    CUDA_TABLE(CUDA_MEMBER)
#undef CUDA_MEMBER
};

enum report_kind { REPORT_STARTED, REPORT_GPU, REPORT_LAST };

struct report {
    int32_t kind;
    int32_t status;
    char cause[256];
    struct bench_cuda_gpu gpu;
};

struct question {
    int32_t ordinal;
    struct ipc_handle handle;
};

struct answer {
    int32_t ordinal;
    int32_t is_right;
    char cause[160];
};

static gyre_status load(const char *root, struct cuda *cuda_out)
{
    char path[512] = "libcuda.so.1";
    const char *missing = NULL;
    void *symbol;
    if (root[0] != '\0')
        snprintf(path, sizeof(path), "%.400s/lib/libcuda.so.1", root);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* CUDA cannot be unloaded */
    if (library == NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "no CUDA driver: %s", dlerror());
#define CUDA_LOAD(member, name, is_required, parameters)    \
    symbol = dlsym(library, #name);                         \
    memcpy(&cuda_out->member, &symbol, sizeof(symbol));     \
    if (symbol == NULL && (is_required) && missing == NULL) \
        missing = #name;
    CUDA_TABLE(CUDA_LOAD)
#undef CUDA_LOAD
    if (missing != NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "%s has no %s", path, missing);
    return GYRE_SUCCESS;
}

/* OUT_OF_MEMORY only means that other processes use the GPU. */
static gyre_status check(const struct cuda *cuda, int error, const char *call)
{
    const char *name = NULL;
    if (error == 0)
        return GYRE_SUCCESS;
    (void)cuda->error_name(error, &name);
    const bool is_in_use = error == OUT_OF_MEMORY || error == UNAVAILABLE;
    return gyre_fail(is_in_use ? GYRE_ERROR_OUT_OF_MEMORY : GYRE_ERROR_DEVICE, "%s: %s (%d)", call,
                     name == NULL ? "unknown" : name, error);
}

#define CUDA_TRY(cuda, member, ...) \
    GYRE_TRY(check((cuda), (cuda)->member(__VA_ARGS__), "cuda " #member))

static gyre_status enter(const struct cuda *cuda, int ordinal)
{
    int device = 0;
    void *context = NULL;
    CUDA_TRY(cuda, get, &device, ordinal);
    CUDA_TRY(cuda, retain, &context, device);
    CUDA_TRY(cuda, set_current, context);
    return GYRE_SUCCESS;
}

static unsigned char byte_of(size_t i, int ordinal)
{
    return (unsigned char)(i * 131 + i / 257 + (size_t)ordinal * 17 + 1);
}

static gyre_status check_bytes(const unsigned char *bytes, size_t n, int ordinal)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != byte_of(i, ordinal))
            return gyre_fail(GYRE_ERROR_DEVICE, "byte %zu of %zu is %d and should be %d", i, n,
                             bytes[i], byte_of(i, ordinal));
    return GYRE_SUCCESS;
}

static gyre_status look(const struct cuda *cuda, const struct question *question)
{
    unsigned char bytes[IPC_BYTES];
    address at = 0;
    GYRE_TRY(enter(cuda, question->ordinal));
    CUDA_TRY(cuda, open_handle, &at, question->handle, LAZY_PEER);
    const gyre_status status =
        check(cuda, cuda->from_gpu(bytes, at, sizeof(bytes)), "copy of the other process's memory");
    (void)cuda->close_handle(at);
    GYRE_TRY(status);
    return check_bytes(bytes, sizeof(bytes), question->ordinal);
}

static void help(const struct cuda *cuda, int fd)
{
    struct question question;
    const int error = cuda->init(0);
    while (read(fd, &question, sizeof(question)) == (ssize_t)sizeof(question)) {
        struct answer answer;
        memset(&answer, 0, sizeof(answer));
        answer.ordinal = question.ordinal;
        gyre_status status = check(cuda, error, "cuInit of the second process");
        if (status == GYRE_SUCCESS)
            status = look(cuda, &question);
        answer.is_right = status == GYRE_SUCCESS;
        if (status != GYRE_SUCCESS)
            snprintf(answer.cause, sizeof(answer.cause), "%.159s", gyre_cause());
        bench_child_tell(fd, &answer, sizeof(answer));
    }
}

static gyre_status try_copies(const struct cuda *cuda, int ordinal, address gpu,
                              unsigned char *host, struct bench_cuda_gpu *out)
{
    for (size_t i = 0; i < COPY_BYTES; i++)
        host[i] = byte_of(i, ordinal);
    CUDA_TRY(cuda, to_gpu, gpu, host, COPY_BYTES);
    memset(host, 0, COPY_BYTES);
    CUDA_TRY(cuda, from_gpu, host, gpu, COPY_BYTES);
    GYRE_TRY(check_bytes(host, COPY_BYTES, ordinal));
    uint64_t start_ns = gyre_now_ns();
    for (int i = 0; i < N_COPIES; i++)
        CUDA_TRY(cuda, to_gpu, gpu, host, COPY_BYTES);
    out->to_gbytes_per_s = (double)(N_COPIES * COPY_BYTES) / (double)(gyre_now_ns() - start_ns);
    start_ns = gyre_now_ns();
    for (int i = 0; i < N_COPIES; i++)
        CUDA_TRY(cuda, from_gpu, host, gpu, COPY_BYTES);
    out->from_gbytes_per_s = (double)(N_COPIES * COPY_BYTES) / (double)(gyre_now_ns() - start_ns);
    return GYRE_SUCCESS;
}

static gyre_status try_ipc(const struct cuda *cuda, int ordinal, address gpu, int helper)
{
    struct question question = {.ordinal = ordinal};
    CUDA_TRY(cuda, get_handle, &question.handle, gpu);
    struct answer answer;
    struct pollfd waiting = {.fd = helper, .events = POLLIN};
    const uint64_t deadline_ns = gyre_now_ns() + HELPER_MS * 1000000ULL;
    if (send(helper, &question, sizeof(question), MSG_NOSIGNAL) != (ssize_t)sizeof(question))
        return gyre_fail(GYRE_ERROR_REMOTE, "the second process has ended");
    do { /* skips late answers */
        const uint64_t now_ns = gyre_now_ns();
        if (now_ns >= deadline_ns ||
            poll(&waiting, 1, (int)((deadline_ns - now_ns) / 1000000) + 1) != 1)
            return gyre_fail(GYRE_ERROR_TIMEOUT, "the second process does not answer for %d s",
                             HELPER_MS / 1000);
        if (read(helper, &answer, sizeof(answer)) != (ssize_t)sizeof(answer))
            return gyre_fail(GYRE_ERROR_REMOTE, "the second process has ended");
    } while (answer.ordinal != question.ordinal);
    answer.cause[sizeof(answer.cause) - 1] = '\0';
    return answer.is_right != 0 ? GYRE_SUCCESS : gyre_fail(GYRE_ERROR_DEVICE, "%s", answer.cause);
}

static gyre_status try_dmabuf(const struct cuda *cuda, address gpu)
{
    int fd = -1;
    if (cuda->export == NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "this driver has no dma-buf export");
    CUDA_TRY(cuda, export, &fd, gpu, DMABUF_BYTES, RANGE_DMA_BUF, 0);
    close(fd);
    return GYRE_SUCCESS;
}

static void keep_cause(gyre_status status, char *cause_out)
{
    snprintf(cause_out, 160, "%.159s", status == GYRE_SUCCESS ? "" : gyre_cause());
}

static gyre_status try_gpu(const struct cuda *cuda, int ordinal, int helper,
                           struct bench_cuda_gpu *out)
{
    int device = 0;
    address gpu = 0;
    void *host = NULL;
    CUDA_TRY(cuda, get, &device, ordinal);
    CUDA_TRY(cuda, bus_id, out->bus_id, (int)sizeof(out->bus_id), device);
    gyre_status status = enter(cuda, ordinal);
    if (status == GYRE_SUCCESS)
        status = check(cuda, cuda->alloc(&gpu, COPY_BYTES), "cuda alloc");
    if (status == GYRE_ERROR_OUT_OF_MEMORY) {
        keep_cause(status, out->busy_cause);
        return GYRE_SUCCESS;
    }
    GYRE_TRY(status);
    status = check(cuda, cuda->alloc_host(&host, COPY_BYTES), "pinned host memory");
    if (status == GYRE_SUCCESS)
        status = try_copies(cuda, ordinal, gpu, host, out);
    keep_cause(status, out->copy_cause);
    if (status == GYRE_SUCCESS)
        keep_cause(try_ipc(cuda, ordinal, gpu, helper), out->ipc_cause);
    else
        snprintf(out->ipc_cause, sizeof(out->ipc_cause), "the copies failed, so it was not tried");
    keep_cause(try_dmabuf(cuda, gpu), out->dmabuf_cause);
    if (host != NULL)
        (void)cuda->free_host(host);
    (void)cuda->free(gpu);
    return GYRE_SUCCESS;
}

static gyre_status try_gpus(const struct cuda *cuda, int fd, int helper)
{
    struct report report;
    int n = 0;
    CUDA_TRY(cuda, init, 0);
    CUDA_TRY(cuda, count, &n);
    memset(&report, 0, sizeof(report));
    report.kind = REPORT_STARTED;
    bench_child_tell(fd, &report, sizeof(report));
    for (int i = 0; i < n && i < BENCH_CUDA_MAX_GPUS; i++) {
        memset(&report, 0, sizeof(report));
        report.kind = REPORT_GPU;
        const gyre_status status = try_gpu(cuda, i, helper, &report.gpu);
        if (status != GYRE_SUCCESS)
            return gyre_fail_context(status, "GPU%d", i);
        bench_child_tell(fd, &report, sizeof(report));
    }
    return GYRE_SUCCESS;
}

static void try_all(int fd, const void *root)
{
    struct cuda cuda;
    int helper[2];
    struct report last;
    memset(&last, 0, sizeof(last));
    gyre_status status = load(root, &cuda);
    if (status == GYRE_SUCCESS && socketpair(AF_UNIX, SOCK_SEQPACKET, 0, helper) != 0)
        status = gyre_fail_errno(errno, "socketpair");
    if (status == GYRE_SUCCESS) {
        const pid_t child = fork();
        if (child == 0) {
            close(helper[0]);
            close(fd);
            help(&cuda, helper[1]);
            _exit(0);
        }
        close(helper[1]);
        status = child < 0 ? gyre_fail_errno(errno, "fork") : try_gpus(&cuda, fd, helper[0]);
    }
    last.kind = REPORT_LAST;
    last.status = (int32_t)status;
    if (status != GYRE_SUCCESS)
        snprintf(last.cause, sizeof(last.cause), "%.255s", gyre_cause());
    bench_child_tell(fd, &last, sizeof(last));
}

gyre_status bench_cuda_trial(const char *root, const struct bench_cuda_limits *limits,
                             struct bench_cuda_gpu *gpus_out, int *n_out)
{
    struct bench_child child;
    struct report report = {.kind = REPORT_LAST};
    int timeout_ms = limits->start_ms;
    const char *silence = "CUDA hangs while it starts: no answer";
    gyre_status status = GYRE_SUCCESS;
    *n_out = 0;
    GYRE_TRY(bench_child_start(try_all, root, &child));
    do {
        status =
            bench_child_take(&child, timeout_ms, silence, "tries CUDA", &report, sizeof(report));
        if (status == GYRE_SUCCESS && report.kind == REPORT_GPU && *n_out < BENCH_CUDA_MAX_GPUS)
            gpus_out[(*n_out)++] = report.gpu;
        timeout_ms = limits->gpu_ms;
        silence = "a call of CUDA hangs: no answer";
    } while (status == GYRE_SUCCESS && report.kind != REPORT_LAST);
    bench_child_end(&child);
    if (status == GYRE_SUCCESS && report.status != (int32_t)GYRE_SUCCESS)
        status = gyre_fail((gyre_status)report.status, "%.255s", report.cause);
    return status;
}
