/* SPDX-License-Identifier: Apache-2.0
 *
 * A GPU's memory is a mapped file in memory, which other processes open by its number in this one.
 * Freed memory is unmapped, so late accesses end the process.
 */
#include "tests/stand_in_gpu/runtime.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_BYTES 4096U

/* What a cudaIpcMemHandle_t holds. */
struct handle {
    uint64_t n_bytes;
    uint64_t inode; /* tells whether the file is still the same */
    int32_t process;
    int32_t fd;
    int32_t gpu;
};

_Static_assert(sizeof(struct handle) <= sizeof(cudaIpcMemHandle_t), "travels in a handle");

static struct stand_in_memory *memories;
static unsigned long long n_memories;

/* Or NULL. The lock is held. */
static const struct stand_in_memory *find_memory(const void *ptr)
{
    const uintptr_t address = (uintptr_t)ptr;
    for (const struct stand_in_memory *memory = memories; memory != NULL; memory = memory->next)
        if (address - (uintptr_t)memory->base < memory->n_bytes)
            return memory;
    return NULL;
}

size_t stand_in_memory_in_use(int gpu)
{
    size_t n_bytes = 0;
    for (const struct stand_in_memory *memory = memories; memory != NULL; memory = memory->next)
        if (memory->kind == STAND_IN_MEMORY_DEVICE && memory->gpu == gpu)
            n_bytes += memory->n_mapped_bytes;
    return n_bytes;
}

static void add_memory(const struct stand_in_memory *memory)
{
    struct stand_in_memory *own = stand_in_realloc(NULL, sizeof(*own));
    *own = *memory;
    own->next = memories;
    own->id = ++n_memories;
    memories = own;
}

static struct stand_in_memory **find_base(const void *base, enum stand_in_memory_kind kind)
{
    struct stand_in_memory **link = &memories;
    while (*link != NULL && ((*link)->base != base || (*link)->kind != kind))
        link = &(*link)->next;
    return link;
}

static void *map(int fd, size_t n_bytes)
{
    void *base = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return base == MAP_FAILED ? NULL : base;
}

static cudaError_t alloc(size_t n_bytes, void **ptr_out)
{
    struct stand_in_memory memory = {
        .n_bytes = n_bytes,
        .n_mapped_bytes = (n_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES,
        .kind = STAND_IN_MEMORY_DEVICE,
        .gpu = stand_in_gpu(),
    };
    if (memory.n_mapped_bytes < n_bytes ||
        memory.n_mapped_bytes > STAND_IN_GPU_MEMORY_BYTES - stand_in_memory_in_use(memory.gpu))
        return cudaErrorMemoryAllocation;
    /* Every allocation has a file. */
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
    memory.fd = memfd_create("stand-in GPU", MFD_CLOEXEC);
    if (memory.fd < 0)
        return cudaErrorMemoryAllocation;
    if (ftruncate(memory.fd, (off_t)memory.n_mapped_bytes) != 0 ||
        (memory.base = map(memory.fd, memory.n_mapped_bytes)) == NULL) {
        close(memory.fd);
        return cudaErrorMemoryAllocation;
    }
    memset(memory.base, STAND_IN_FRESH_BYTE, memory.n_mapped_bytes);
    add_memory(&memory);
    *ptr_out = memory.base;
    return cudaSuccess;
}

/* CUDA seldom waits here, and tests allocate while kernels run. */
cudaError_t cudaMalloc(void **ptr_out, size_t n_bytes)
{
    stand_in_enter();
    cudaError_t error = stand_in_capture_check();
    if (error == cudaSuccess && n_bytes == 0)
        *ptr_out = NULL;
    else if (error == cudaSuccess)
        error = alloc(n_bytes, ptr_out);
    return stand_in_leave(error);
}

/* When no task of its GPU runs any more; none of any GPU for registered memory. */
static cudaError_t free_memory(void *ptr, enum stand_in_memory_kind kind)
{
    stand_in_enter();
    cudaError_t error = stand_in_capture_check();
    if (error != cudaSuccess || ptr == NULL)
        return stand_in_leave(error);
    struct stand_in_memory **link = find_base(ptr, kind);
    if (*link == NULL)
        return stand_in_leave(cudaErrorInvalidValue);
    const int own = (*link)->gpu;
    for (int gpu = 0; gpu < (int)stand_in_n_gpus(); gpu++)
        if (gpu == own || kind == STAND_IN_MEMORY_REGISTERED)
            stand_in_gpu_wait(gpu);
    link = find_base(ptr, kind); /* the list may have changed */
    if (*link != NULL) {
        struct stand_in_memory *memory = *link;
        *link = memory->next;
        switch (memory->kind) {
        case STAND_IN_MEMORY_DEVICE:
            close(memory->fd);
            munmap(memory->base, memory->n_mapped_bytes);
            break;
        case STAND_IN_MEMORY_IMPORTED:
            munmap(memory->base, memory->n_mapped_bytes);
            break;
        case STAND_IN_MEMORY_HOST:
            free(memory->base);
            break;
        case STAND_IN_MEMORY_REGISTERED:
            break;
        }
        free(memory);
    }
    return stand_in_leave(cudaSuccess);
}

cudaError_t cudaFree(void *ptr)
{
    return free_memory(ptr, STAND_IN_MEMORY_DEVICE);
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle_out, void *ptr)
{
    stand_in_enter();
    const struct stand_in_memory *memory = find_memory(ptr);
    if (memory == NULL || memory->kind != STAND_IN_MEMORY_DEVICE)
        return stand_in_leave(cudaErrorInvalidValue);
    struct stat file;
    if (fstat(memory->fd, &file) != 0)
        return stand_in_leave(cudaErrorInvalidValue);
    const struct handle handle = {.n_bytes = memory->n_bytes,
                                  .inode = file.st_ino,
                                  .process = (int32_t)getpid(),
                                  .fd = memory->fd,
                                  .gpu = memory->gpu};
    memset(handle_out, 0, sizeof(*handle_out));
    memcpy(handle_out, &handle, sizeof(handle));
    return stand_in_leave(cudaSuccess);
}

/* -1: the memory is gone. */
static int open_file(const struct handle *handle)
{
    char path[64];
    struct stat file;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle->process, handle->fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &file) != 0 || file.st_ino != handle->inode)) {
        close(fd);
        return -1;
    }
    return fd;
}

static cudaError_t import(const struct handle *handle, void **ptr_out)
{
    struct stand_in_memory memory = {
        .n_bytes = handle->n_bytes,
        .n_mapped_bytes = (handle->n_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES,
        .kind = STAND_IN_MEMORY_IMPORTED,
        .gpu = handle->gpu,
    };
    const int fd = open_file(handle);
    if (fd < 0)
        return cudaErrorMapBufferObjectFailed;
    memory.base = map(fd, memory.n_mapped_bytes);
    close(fd);
    if (memory.base == NULL)
        return cudaErrorMapBufferObjectFailed;
    add_memory(&memory);
    *ptr_out = memory.base;
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **ptr_out, cudaIpcMemHandle_t bytes, unsigned flags)
{
    struct handle handle;
    memcpy(&handle, &bytes, sizeof(handle));
    stand_in_enter();
    cudaError_t error = stand_in_capture_check();
    if (error == cudaSuccess && flags != cudaIpcMemLazyEnablePeerAccess)
        error = cudaErrorInvalidValue;
    return stand_in_leave(error == cudaSuccess ? import(&handle, ptr_out) : error);
}

cudaError_t cudaIpcCloseMemHandle(void *ptr)
{
    return ptr == NULL ? stand_in_result(cudaErrorInvalidValue)
                       : free_memory(ptr, STAND_IN_MEMORY_IMPORTED);
}

cudaError_t cudaHostAlloc(void **ptr_out, size_t n_bytes, unsigned flags)
{
    (void)flags; /* for every thread of a GPU */
    stand_in_enter();
    if (stand_in_capture_check() != cudaSuccess)
        return stand_in_leave(cudaErrorStreamCaptureUnsupported);
    if (n_bytes > SIZE_MAX - PAGE_BYTES)
        return stand_in_leave(cudaErrorMemoryAllocation);
    struct stand_in_memory memory = {
        .n_bytes = n_bytes, .kind = STAND_IN_MEMORY_HOST, .gpu = stand_in_gpu()};
    memory.base = aligned_alloc(PAGE_BYTES, (n_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES);
    if (memory.base == NULL)
        return stand_in_leave(cudaErrorMemoryAllocation);
    memset(memory.base, STAND_IN_FRESH_BYTE, n_bytes);
    add_memory(&memory);
    *ptr_out = memory.base;
    return stand_in_leave(cudaSuccess);
}

cudaError_t cudaFreeHost(void *ptr)
{
    return free_memory(ptr, STAND_IN_MEMORY_HOST);
}

cudaError_t cudaHostRegister(void *ptr, size_t n_bytes, unsigned flags)
{
    const struct stand_in_memory memory = {
        .base = ptr, .n_bytes = n_bytes, .kind = STAND_IN_MEMORY_REGISTERED, .gpu = stand_in_gpu()};
    (void)flags;
    stand_in_enter();
    cudaError_t error = stand_in_capture_check();
    if (error == cudaSuccess && (ptr == NULL || n_bytes == 0))
        error = cudaErrorInvalidValue;
    else if (error == cudaSuccess && find_memory(ptr) != NULL)
        error = cudaErrorHostMemoryAlreadyRegistered;
    if (error == cudaSuccess)
        add_memory(&memory);
    return stand_in_leave(error);
}

cudaError_t cudaHostUnregister(void *ptr)
{
    const cudaError_t error = free_memory(ptr, STAND_IN_MEMORY_REGISTERED);
    return error == cudaErrorInvalidValue ? stand_in_result(cudaErrorHostMemoryNotRegistered)
                                          : error;
}

cudaError_t cudaHostGetDevicePointer(void **ptr_out, void *ptr, unsigned flags)
{
    (void)flags;
    stand_in_enter();
    const struct stand_in_memory *memory = find_memory(ptr);
    if (memory == NULL || memory->kind < STAND_IN_MEMORY_HOST)
        return stand_in_leave(cudaErrorInvalidValue);
    *ptr_out = ptr;
    return stand_in_leave(cudaSuccess);
}

static bool is_host(const struct stand_in_memory *memory)
{
    return memory->kind == STAND_IN_MEMORY_HOST || memory->kind == STAND_IN_MEMORY_REGISTERED;
}

/* And page-locked memory's base, as CUDA. */
static CUresult answer(const struct stand_in_memory *memory, CUpointer_attribute which, void *out)
{
    switch (which) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(CUmemorytype *)out = memory == NULL    ? 0
                               : is_host(memory) ? CU_MEMORYTYPE_HOST
                                                 : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)out = memory == NULL ? -2 : memory->gpu;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)out = memory == NULL ? 0 : (CUdeviceptr)(uintptr_t)memory->base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)out = memory == NULL ? 0 : memory->n_bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)out = memory == NULL ? 0 : memory->id;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

static CUresult pointer_get_attributes(unsigned n, CUpointer_attribute *which, void **data_out,
                                       CUdeviceptr pointer)
{
    CUresult result = CUDA_SUCCESS;
    stand_in_enter();
    const struct stand_in_memory *memory = find_memory((const void *)(uintptr_t)pointer);
    for (unsigned i = 0; i < n && result == CUDA_SUCCESS; i++)
        result = answer(memory, which[i], data_out[i]);
    (void)stand_in_leave(cudaSuccess);
    return result;
}

static CUresult stream_is_capturing(CUstream stream, CUstreamCaptureStatus *status_out)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(stream, &status) != cudaSuccess)
        return CUDA_ERROR_INVALID_HANDLE;
    *status_out = (CUstreamCaptureStatus)status;
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function_out,
                                             unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result_out)
{
    (void)version;
    (void)flags;
    *result_out = cudaDriverEntryPointSuccess;
    if (strcmp(name, "cuPointerGetAttributes") == 0) {
        CUresult (*function)(unsigned, CUpointer_attribute *, void **, CUdeviceptr) =
            pointer_get_attributes;
        memcpy(function_out, &function, sizeof(function));
    } else if (strcmp(name, "cuStreamIsCapturing") == 0) {
        CUresult (*function)(CUstream, CUstreamCaptureStatus *) = stream_is_capturing;
        memcpy(function_out, &function, sizeof(function));
    } else {
        *function_out = NULL;
        *result_out = cudaDriverEntryPointSymbolNotFound;
    }
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *ptr)
{
    memset(out, 0, sizeof(*out));
    stand_in_enter();
    const struct stand_in_memory *memory = find_memory(ptr);
    out->type = memory == NULL    ? cudaMemoryTypeUnregistered
                : is_host(memory) ? cudaMemoryTypeHost
                                  : cudaMemoryTypeDevice;
    out->device = memory == NULL ? -2 : memory->gpu;
    if (memory != NULL) {
        out->devicePointer = (void *)(uintptr_t)ptr;
        out->hostPointer = is_host(memory) ? (void *)(uintptr_t)ptr : NULL;
    }
    return stand_in_leave(cudaSuccess);
}
