/* SPDX-License-Identifier: Apache-2.0
 *
 * A libcuda.so.1 over host memory holds the stand-in RDMA device to CUDA's rules without a GPU.
 * Memory of its "GPUs" has cu_addresses without pages, so a processor that touches it dies; copies
 * use a second mapping. Copies happen when their stream is waited for, in the device's context;
 * other processes open a handle once in each context.
 */
#include "tests/nic/verbs_wire/fake_cuda/fake_cuda.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define N_GPUS    2
#define MAX_PARTS 64

enum {
    OK = 0,
    INVALID_VALUE = 1,
    INVALID_CONTEXT = 201,
    ALREADY_MAPPED = 208,
    NO_PEER = 217,
    BAD_ADDRESS = 700
};

struct part {
    unsigned char *shown; /* no access */
    unsigned char *alias;
    size_t n_bytes;
    int fd;
    int device;
    bool is_mapping;
    struct handle handle;
};

struct copy {
    cu_address to, from;
    size_t n_bytes;
};

static __thread int current = -1; /* device of the context, as pushed */
static __thread int capture_mode;
static struct part parts[MAX_PARTS];
static struct copy copies[N_GPUS][MAX_PARTS]; /* by stream; one a device */
static int n_copies[N_GPUS];

static struct part *find(cu_address at)
{
    for (int i = 0; i < MAX_PARTS; i++)
        if (parts[i].shown != NULL && at - (uintptr_t)parts[i].shown < parts[i].n_bytes)
            return &parts[i];
    return NULL;
}

static int make_part(int fd, size_t n_bytes, struct part **part_out)
{
    struct part *part = parts;
    while (part->shown != NULL)
        part++;
    *part = (struct part){.fd = fd, .n_bytes = n_bytes, .device = current};
    part->shown = mmap(NULL, n_bytes, PROT_NONE, MAP_SHARED, fd, 0);
    part->alias = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (part->shown == MAP_FAILED || part->alias == MAP_FAILED)
        abort();
    *part_out = part;
    return OK;
}

static bool has_peers(void)
{
    return getenv("FAKE_CUDA_NO_PEERS") == NULL;
}

int cuInit(unsigned flags)
{
    return flags == 0 ? OK : INVALID_VALUE;
}

int cuGetErrorName(int error, const char **name)
{
    *name = error == INVALID_CONTEXT  ? "CUDA_ERROR_INVALID_CONTEXT"
            : error == ALREADY_MAPPED ? "CUDA_ERROR_ALREADY_MAPPED"
            : error == BAD_ADDRESS    ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : error == NO_PEER        ? "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"
                                      : "CUDA_ERROR_INVALID_VALUE";
    return OK;
}

int cuPointerGetAttribute(void *data, int attribute, cu_address at)
{
    const struct part *part = find(at);
    if (part == NULL || (attribute != 2 && attribute != 9))
        return INVALID_VALUE;
    const int value = attribute == 2 ? 2 : part->device;
    memcpy(data, &value, sizeof(value));
    return OK;
}

int cuMemGetAddressRange_v2(cu_address *base, size_t *n_bytes, cu_address at)
{
    const struct part *part = find(at);
    if (part == NULL || current < 0)
        return INVALID_VALUE;
    *base = (uintptr_t)part->shown;
    *n_bytes = part->n_bytes;
    return OK;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal + FAKE_CUDA_DEVICE; /* they must not be mixed up */
    return ordinal >= 0 && ordinal < N_GPUS ? OK : INVALID_VALUE;
}

int cuDeviceGetCount(int *n)
{
    *n = N_GPUS;
    return OK;
}

int cuDeviceGetUuid(struct uuid *uuid, int device)
{
    memset(uuid, 0, sizeof(*uuid));
    uuid->bytes[0] = (unsigned char)device;
    return device >= FAKE_CUDA_DEVICE && device < FAKE_CUDA_DEVICE + N_GPUS ? OK : INVALID_VALUE;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    *context = (void *)(intptr_t)(device + 100);
    return device >= FAKE_CUDA_DEVICE && device < FAKE_CUDA_DEVICE + N_GPUS ? OK : INVALID_VALUE;
}

int cuCtxPushCurrent_v2(void *context)
{
    if (current >= 0)
        abort(); /* one deep is enough here */
    current = (int)(intptr_t)context - 200;
    return current >= 0 && current < N_GPUS ? OK : INVALID_VALUE;
}

int cuCtxPopCurrent_v2(void **context)
{
    if (current < 0 || capture_mode != 0)
        abort();
    *context = (void *)(intptr_t)(current + 200);
    current = -1;
    return OK;
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
    const int former = capture_mode;
    capture_mode = *mode;
    *mode = former;
    return OK;
}

int cuIpcGetMemHandle(struct handle *handle, cu_address at)
{
    const struct part *part = find(at);
    if (part == NULL || part->is_mapping || at != (uintptr_t)part->shown)
        return INVALID_VALUE;
    memset(handle, 0, sizeof(*handle));
    handle->pid = (int)getpid();
    handle->fd = part->fd;
    handle->device = part->device;
    handle->n_bytes = part->n_bytes;
    return OK;
}

int cuIpcOpenMemHandle_v2(cu_address *at, struct handle handle, unsigned flags)
{
    char path[64];
    struct part *part;
    if (current < 0 || handle.pid == (int)getpid() || flags != 1)
        return INVALID_CONTEXT;
    for (int i = 0; i < MAX_PARTS; i++)
        if (parts[i].is_mapping && parts[i].device == current &&
            memcmp(&parts[i].handle, &handle, sizeof(handle)) == 0)
            return ALREADY_MAPPED;
    if (handle.device != current && !has_peers())
        return NO_PEER;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle.pid, handle.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return INVALID_VALUE;
    make_part(fd, handle.n_bytes, &part);
    part->is_mapping = true;
    part->handle = handle;
    *at = (uintptr_t)part->shown;
    return OK;
}

static int drop(cu_address at, bool is_mapping)
{
    struct part *part = find(at);
    if (part == NULL || part->is_mapping != is_mapping || at != (uintptr_t)part->shown)
        return INVALID_VALUE;
    munmap(part->shown, part->n_bytes);
    munmap(part->alias, part->n_bytes);
    close(part->fd);
    memset(part, 0, sizeof(*part));
    return OK;
}

int cuIpcCloseMemHandle(cu_address at)
{
    return current < 0 ? INVALID_CONTEXT : drop(at, true);
}

int cuStreamCreate(void **stream, unsigned flags)
{
    *stream = &n_copies[current];
    return current >= 0 && flags == 1 ? OK : INVALID_VALUE;
}

/* The address that a copy uses. */
static unsigned char *reach(cu_address at, size_t n_bytes)
{
    const struct part *part = find(at);
    if (part == NULL)
        return (unsigned char *)(uintptr_t)at;
    const size_t offset = (size_t)(at - (uintptr_t)part->shown);
    return offset + n_bytes <= part->n_bytes ? part->alias + offset : NULL;
}

static bool begins_with(cu_address from, size_t n_bytes, uint64_t word)
{
    const unsigned char *bytes = reach(from, n_bytes);
    return bytes != NULL && n_bytes >= sizeof(word) && memcmp(bytes, &word, sizeof(word)) == 0;
}

/* Opened in another context? A driver copies it, but slowly. */
static bool is_foreign(cu_address at)
{
    const struct part *part = find(at);
    return part != NULL && part->is_mapping && part->device != current;
}

int cuMemcpyAsync(cu_address to, cu_address from, size_t n_bytes, void *stream)
{
    if (current < 0 || stream != &n_copies[current] || n_copies[current] == MAX_PARTS)
        return INVALID_CONTEXT;
    if (begins_with(from, n_bytes, FAKE_CUDA_FAILS_AT_START))
        return BAD_ADDRESS;
    if (has_peers() && (is_foreign(to) || is_foreign(from)))
        return INVALID_CONTEXT;
    copies[current][n_copies[current]++] = (struct copy){to, from, n_bytes};
    return OK;
}

static int carry_out(const struct copy *copy)
{
    unsigned char *to = reach(copy->to, copy->n_bytes);
    const unsigned char *from = reach(copy->from, copy->n_bytes);
    if (to == NULL || from == NULL)
        return INVALID_VALUE;
    if (begins_with(copy->from, copy->n_bytes, FAKE_CUDA_FAILS_AT_WAIT))
        return BAD_ADDRESS;
    memcpy(to, from, copy->n_bytes);
    return OK;
}

int cuStreamSynchronize(void *stream)
{
    int error = OK;
    const char *wait_us = getenv("FAKE_CUDA_WAIT_US");
    if (current < 0 || stream != &n_copies[current])
        return INVALID_CONTEXT;
    if (wait_us != NULL)
        usleep((unsigned)atoi(wait_us));
    for (int i = 0; i < n_copies[current] && error == OK; i++)
        error = carry_out(&copies[current][i]);
    n_copies[current] = 0;
    return error;
}

int cuMemAlloc_v2(cu_address *at, size_t n_bytes)
{
    struct part *part;
    /* As a dma-buf's link in /proc/self/fd does. */
    const int fd = memfd_create("dmabuf", MFD_CLOEXEC);
    if (current < 0 || fd < 0 || ftruncate(fd, (off_t)n_bytes) != 0)
        return INVALID_VALUE;
    make_part(fd, n_bytes, &part);
    *at = (uintptr_t)part->shown;
    return OK;
}

int cuMemFree_v2(cu_address at)
{
    return drop(at, false);
}

int cuMemGetHandleForAddressRange(void *fd, cu_address at, size_t n_bytes, int type,
                                  cu_address flags)
{
    const struct part *part = find(at);
    if (part == NULL || type != 1 || flags != 0 || at != (uintptr_t)part->shown ||
        n_bytes > part->n_bytes)
        return INVALID_VALUE;
    const int copy = fcntl(part->fd, F_DUPFD_CLOEXEC, 0);
    memcpy(fd, &copy, sizeof(copy));
    return OK;
}
