/* SPDX-License-Identifier: Apache-2.0
 *
 * GPU memory: where it is, whether a descriptor is a dma-buf, and copies into the memory of another
 * process through CUDA's IPC mapping of the same allocation. libcuda is reached by dlopen, so that
 * the library builds and runs where there is none.
 */
#include "tests/nic/verbs_wire/wire.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_GPUS 16

/* CUDA driver API, cuda.h. */
#define MEMORY_TYPE         2
#define DEVICE_ORDINAL      9
#define TYPE_DEVICE         2
#define STREAM_NON_BLOCKING 1
#define IPC_LAZY_PEER       1
#define CAPTURE_RELAXED     2

struct ipc_handle {
    char bytes[WIRE_IPC_BYTES];
};

/* X(member, symbol, parameters); all return a CUresult, 0 = success */
#define GPU_TABLE(X)                                                                          \
    X(init, "cuInit", (unsigned))                                                             \
    X(error_name, "cuGetErrorName", (int, const char **))                                     \
    X(attribute, "cuPointerGetAttribute", (void *, int, unsigned long long))                  \
    X(range, "cuMemGetAddressRange_v2", (unsigned long long *, size_t *, unsigned long long)) \
    X(device, "cuDeviceGet", (int *, int))                                                    \
    X(retain, "cuDevicePrimaryCtxRetain", (void **, int))                                     \
    X(capture_mode, "cuThreadExchangeStreamCaptureMode", (int *))                             \
    X(push, "cuCtxPushCurrent_v2", (void *))                                                  \
    X(pop, "cuCtxPopCurrent_v2", (void **))                                                   \
    X(ipc_get, "cuIpcGetMemHandle", (struct ipc_handle *, unsigned long long))                \
    X(ipc_open, "cuIpcOpenMemHandle_v2", (unsigned long long *, struct ipc_handle, unsigned)) \
    X(ipc_close, "cuIpcCloseMemHandle", (unsigned long long))                                 \
    X(stream, "cuStreamCreate", (void **, unsigned))                                          \
    X(copy, "cuMemcpyAsync", (unsigned long long, unsigned long long, size_t, void *))        \
    X(wait, "cuStreamSynchronize", (void *))

/* Written once, under wire_lock. */
static struct {
    bool is_tried, is_loaded;
#define GPU_MEMBER(member, symbol, parameters) int(*member) parameters;
    GPU_TABLE(GPU_MEMBER)
#undef GPU_MEMBER
} cuda;

/* The primary context of a device, which the CUDA runtime uses too, and a stream in it. */
static struct {
    void *context;
    void *stream;
} gpus[MAX_GPUS]; /* under wire_lock; kept until the process ends, as libcuda is */

/* One per allocation, device and process, since a second cuIpcOpenMemHandle of the same handle
 * fails on some drivers. */
struct mapping {
    struct wire_gpu_place place;
    int ordinal;     /* of the device that copies */
    uint64_t mapped; /* address of place.allocation in this process */
    int n_domains;
    struct mapping *next;
};

static struct mapping *mappings; /* under wire_lock */

/* A domain's use of a mapping. */
struct wire_mapping {
    struct mapping *mapping;
    struct wire_mapping *next;
};

static bool load(void)
{
    if (cuda.is_tried)
        return cuda.is_loaded;
    cuda.is_tried = true;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        wire_say("GPU memory: %s", dlerror());
        return false;
    }
    void *address;
#define GPU_LOAD(member, symbol, parameters)               \
    address = dlsym(library, symbol);                      \
    if (address == NULL) {                                 \
        wire_say("GPU memory: libcuda has no %s", symbol); \
        return false;                                      \
    }                                                      \
    memcpy(&cuda.member, &address, sizeof(address));
    GPU_TABLE(GPU_LOAD)
#undef GPU_LOAD
    cuda.is_loaded = cuda.init(0) == 0;
    return cuda.is_loaded;
}

/* True for success; else says what failed. */
static bool is_fine(int result, const char *call)
{
    const char *name = NULL;
    if (result == 0)
        return true;
    if (cuda.error_name(result, &name) != 0)
        name = "unknown error";
    wire_say("%s: %s (%d)", call, name, result);
    errno = EFAULT; /* what registration answers where there is no such memory */
    return false;
}

#define CU(call, ...) is_fine(cuda.call(__VA_ARGS__), #call)

static void pop(int capture_mode)
{
    void *context;
    (void)CU(capture_mode, &capture_mode);
    (void)CU(pop, &context);
}

/* Make the device's context current until pop; its stream is made on the first use. Another thread
 * may be capturing a graph, which by default forbids calls like these in all threads. */
static bool push(int ordinal, int *capture_mode_out)
{
    int device;
    if (ordinal < 0 || ordinal >= MAX_GPUS) {
        wire_say("GPU %d of at most %d", ordinal, MAX_GPUS);
        errno = EINVAL;
        return false;
    }
    if (gpus[ordinal].context == NULL &&
        (!CU(device, &device, ordinal) || !CU(retain, &gpus[ordinal].context, device)))
        return false;
    *capture_mode_out = CAPTURE_RELAXED;
    if (!CU(push, gpus[ordinal].context))
        return false;
    (void)CU(capture_mode, capture_mode_out);
    if (gpus[ordinal].stream == NULL && !CU(stream, &gpus[ordinal].stream, STREAM_NON_BLOCKING)) {
        pop(*capture_mode_out);
        return false;
    }
    return true;
}

bool wire_gpu_takes(const char *way)
{
    const char *allowed = getenv("VERBS_WIRE_GPU");
    return strcmp(allowed != NULL ? allowed : "dmabuf", way) == 0;
}

bool wire_gpu_is_dmabuf(int fd, uint64_t n_bytes)
{
    char link[32];
    char target[64];
    struct stat status;
    if (fstat(fd, &status) != 0)
        return false; /* EBADF, as drivers answer */
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, target, sizeof(target) - 1);
    target[n > 0 ? n : 0] = '\0';
    if (strstr(target, "dmabuf") == NULL) {
        wire_say("descriptor %d is %s, not a dma-buf", fd, target);
        errno = EINVAL;
        return false;
    }
    const off_t size = lseek(fd, 0, SEEK_END);
    if (size < 0 || (uint64_t)size < n_bytes) {
        wire_say("dma-buf of %lld bytes, %llu asked for", (long long)size,
                 (unsigned long long)n_bytes);
        errno = EINVAL;
        return false;
    }
    return true;
}

bool wire_gpu_describe(uint64_t address, uint64_t n_bytes, struct wire_gpu_place *place_out,
                       int *ordinal_out)
{
    unsigned type = 0;
    unsigned long long base = 0;
    size_t size = 0;
    struct ipc_handle handle;
    int capture_mode;
    errno = EFAULT;
    if (!load() || !CU(attribute, &type, MEMORY_TYPE, address) ||
        !CU(attribute, ordinal_out, DEVICE_ORDINAL, address))
        return false;
    if (type != TYPE_DEVICE) {
        wire_say("memory at 0x%llx is of type %u, not of a GPU", (unsigned long long)address, type);
        errno = EFAULT;
        return false;
    }
    if (!push(*ordinal_out, &capture_mode))
        return false;
    const bool has_handle = CU(range, &base, &size, address) && CU(ipc_get, &handle, base);
    pop(capture_mode);
    if (!has_handle)
        return false;
    if (address - base + n_bytes > size) {
        wire_say("%llu bytes at 0x%llx leave their allocation of %zu bytes at 0x%llx",
                 (unsigned long long)n_bytes, (unsigned long long)address, size, base);
        errno = EFAULT;
        return false;
    }
    memset(place_out, 0, sizeof(*place_out));
    memcpy(place_out->ipc, handle.bytes, sizeof(place_out->ipc));
    place_out->allocation = base;
    place_out->allocation_bytes = size;
    return true;
}

static const struct mapping *find_in_domain(const struct wire_pd *pd,
                                            const struct wire_gpu_place *place)
{
    const struct wire_mapping *use = pd->mappings;
    while (use != NULL && memcmp(&use->mapping->place, place, sizeof(*place)) != 0)
        use = use->next;
    return use != NULL ? use->mapping : NULL;
}

/* Open what a peer exported; a process cannot open its own handles, and need not. */
static struct mapping *open_mapping(int ordinal, const struct wire_region_entry *region)
{
    struct ipc_handle handle;
    int capture_mode;
    unsigned long long mapped = region->gpu.allocation;
    if (gyre_load_acquire_u64(&region->owner) != wire.owner) {
        memcpy(handle.bytes, region->gpu.ipc, sizeof(handle.bytes));
        if (!push(ordinal, &capture_mode))
            return NULL;
        const bool is_open = CU(ipc_open, &mapped, handle, IPC_LAZY_PEER);
        pop(capture_mode);
        if (!is_open)
            return NULL;
    }
    struct mapping *mapping = calloc(1, sizeof(*mapping));
    *mapping = (struct mapping){
        .place = region->gpu, .ordinal = ordinal, .mapped = mapped, .next = mappings};
    mappings = mapping;
    return mapping;
}

static void close_mapping(struct mapping *mapping)
{
    struct mapping **at = &mappings;
    int capture_mode;
    while (*at != mapping)
        at = &(*at)->next;
    *at = mapping->next;
    if (mapping->mapped != mapping->place.allocation && push(mapping->ordinal, &capture_mode)) {
        (void)CU(ipc_close, mapping->mapped);
        pop(capture_mode);
    }
    free(mapping);
}

bool wire_gpu_map(struct wire_pd *pd, const struct wire_region_entry *region)
{
    struct mapping *mapping = mappings;
    if (find_in_domain(pd, &region->gpu) != NULL)
        return true;
    while (mapping != NULL && (mapping->ordinal != pd->gpu ||
                               memcmp(&mapping->place, &region->gpu, sizeof(region->gpu)) != 0))
        mapping = mapping->next;
    if (mapping == NULL)
        mapping = open_mapping(pd->gpu, region);
    if (mapping == NULL)
        return false;
    struct wire_mapping *use = calloc(1, sizeof(*use));
    mapping->n_domains++;
    *use = (struct wire_mapping){.mapping = mapping, .next = pd->mappings};
    pd->mappings = use;
    return true;
}

void wire_gpu_unmap_all(struct wire_pd *pd)
{
    while (pd->mappings != NULL) {
        struct wire_mapping *first = pd->mappings;
        pd->mappings = first->next;
        if (--first->mapping->n_domains == 0)
            close_mapping(first->mapping);
        free(first);
    }
}

bool wire_gpu_move(struct wire_pd *pd, const struct wire_gpu_copy *copy)
{
    int capture_mode;
    if (!copy->to_region->is_gpu) {
        wire_say("from GPU memory into host memory of another process: not supported, both ends "
                 "must use GPU memory");
        return false;
    }
    if (!wire_gpu_map(pd, copy->to_region))
        return false;
    const struct mapping *mapping = find_in_domain(pd, &copy->to_region->gpu);
    if (!push(pd->gpu, &capture_mode))
        return false;
    const bool is_moved =
        CU(copy, mapping->mapped + (copy->to - mapping->place.allocation),
           (unsigned long long)(uintptr_t)copy->from, copy->n_bytes, gpus[pd->gpu].stream) &&
        CU(wait, gpus[pd->gpu].stream);
    pop(capture_mode);
    return is_moved;
}
