/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for libcuda with one GPU of host memory. FAKE_CUDA makes it sick: "ipc" (a second
 * process may not open memory), "damage" (copies change a byte), "hang" (the first copy never
 * ends), "hang_start" (cuInit never ends), "dmabuf" (no export), "start" (cuInit fails), "crash".
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef unsigned long long address;

struct handle {
    int pid, fd;
    size_t n_bytes;
    char rest[48];
} __attribute__((packed)); /* the callers' bytes lie at any address */
_Static_assert(sizeof(struct handle) == 64, "CUipcMemHandle");

static int memory_fd = -1; /* of the last allocation */
static size_t memory_bytes;

static int is_sick(const char *word)
{
    const char *text = getenv("FAKE_CUDA");
    return text != NULL && strcmp(text, word) == 0;
}

#define FAKE(name, ...)                                           \
    __attribute__((visibility("default"))) int name(__VA_ARGS__); \
    int name(__VA_ARGS__)

FAKE(cuInit, unsigned flags)
{
    (void)flags;
    while (is_sick("hang_start"))
        pause();
    return is_sick("start") ? 999 : 0;
}

FAKE(cuGetErrorName, int error, const char **name)
{
    *name = error == 999 ? "CUDA_ERROR_UNKNOWN"
            : error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY"
                         : "CUDA_ERROR_INVALID_VALUE";
    return 0;
}

FAKE(cuDeviceGetCount, int *n)
{
    *n = 1;
    return 0;
}

FAKE(cuDeviceGet, int *device, int ordinal)
{
    *device = ordinal;
    return ordinal == 0 ? 0 : 1;
}

FAKE(cuDeviceGetPCIBusId, char *text, int n_bytes, int device)
{
    (void)device;
    snprintf(text, (size_t)n_bytes, "0000:18:00.0");
    return 0;
}

FAKE(cuDevicePrimaryCtxRetain, void **context, int device)
{
    (void)device;
    *context = &memory_fd;
    return 0;
}

FAKE(cuCtxSetCurrent, void *context)
{
    return context == &memory_fd ? 0 : 1;
}

FAKE(cuMemAlloc_v2, address *at, size_t n_bytes)
{
    if (is_sick("busy"))
        return 2;
    memory_fd = memfd_create("fake GPU", MFD_CLOEXEC);
    memory_bytes = n_bytes;
    if (memory_fd < 0 || ftruncate(memory_fd, (off_t)n_bytes) != 0)
        return 2;
    *at = (uintptr_t)mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
    return 0;
}

FAKE(cuMemFree_v2, address at)
{
    close(memory_fd);
    return munmap((void *)(uintptr_t)at, memory_bytes);
}

FAKE(cuMemAllocHost_v2, void **at, size_t n_bytes)
{
    *at = malloc(n_bytes);
    return *at == NULL;
}

FAKE(cuMemFreeHost, void *at)
{
    free(at);
    return 0;
}

FAKE(cuMemcpyHtoD_v2, address to, const void *from, size_t n_bytes)
{
    while (is_sick("hang"))
        pause();
    if (is_sick("crash"))
        _exit(9);
    memcpy((void *)(uintptr_t)to, from, n_bytes);
    if (is_sick("damage"))
        ((unsigned char *)(uintptr_t)to)[n_bytes / 2] ^= 1;
    return 0;
}

FAKE(cuMemcpyDtoH_v2, void *to, address from, size_t n_bytes)
{
    memcpy(to, (const void *)(uintptr_t)from, n_bytes);
    return 0;
}

FAKE(cuIpcGetMemHandle, struct handle *handle, address at)
{
    (void)at;
    memset(handle, 0, sizeof(*handle));
    handle->pid = (int)getpid();
    handle->fd = memory_fd;
    handle->n_bytes = memory_bytes;
    return 0;
}

FAKE(cuIpcOpenMemHandle_v2, address *at, struct handle handle, unsigned flags)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle.pid, handle.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    /* Not in the process that made it. */
    if (fd < 0 || flags != 1 || handle.pid == (int)getpid() || is_sick("ipc"))
        return 1;
    *at = (uintptr_t)mmap(NULL, handle.n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return 0;
}

FAKE(cuIpcCloseMemHandle, address at)
{
    (void)at;
    return 0;
}

FAKE(cuMemGetHandleForAddressRange, void *fd, address at, size_t n_bytes, int type, address flags)
{
    if (is_sick("dmabuf") || type != 1 || flags != 0 || n_bytes % 65536 != 0 || at == 0)
        return 1;
    *(int *)fd = dup(memory_fd);
    return 0;
}
