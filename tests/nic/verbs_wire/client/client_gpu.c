/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nic/verbs_wire/client/client.h"

#include "tests/nic/verbs_wire/gpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_GPUS 16

/* CUDA driver API, cuda.h. */
#define MEMORY_TYPE     2
#define DEVICE_ORDINAL  9
#define TYPE_DEVICE     2
#define CAPTURE_RELAXED 2

/* Primary, as the CUDA runtime's. */
static struct {
    void *context;
} gpus[MAX_GPUS]; /* under wire_lock; kept until the process ends */

static void pop(int capture_mode)
{
    void *context;
    (void)WIRE_CU(capture_mode, &capture_mode);
    (void)WIRE_CU(pop, &context);
}

/* Until pop. Another thread may be capturing a graph, which by default forbids such calls in all
 * threads. */
static bool push(int ordinal, int *capture_mode_out)
{
    int device;
    if (ordinal < 0 || ordinal >= MAX_GPUS) {
        wire_say("GPU %d of at most %d", ordinal, MAX_GPUS);
        errno = EINVAL;
        return false;
    }
    if (gpus[ordinal].context == NULL &&
        (!WIRE_CU(device, &device, ordinal) || !WIRE_CU(retain, &gpus[ordinal].context, device)))
        return false;
    *capture_mode_out = CAPTURE_RELAXED;
    if (!WIRE_CU(push, gpus[ordinal].context))
        return false;
    (void)WIRE_CU(capture_mode, capture_mode_out);
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

bool wire_gpu_describe(uint64_t address, uint64_t n_bytes, struct wire_gpu_place *place_out)
{
    unsigned type = 0;
    unsigned long long base = 0;
    size_t size = 0;
    struct wire_ipc_handle handle;
    struct wire_uuid uuid;
    int ordinal = 0;
    int device = 0;
    int capture_mode;
    errno = EFAULT;
    if (wire_gpu_load() == NULL || !WIRE_CU(attribute, &type, MEMORY_TYPE, address) ||
        !WIRE_CU(attribute, &ordinal, DEVICE_ORDINAL, address))
        return false;
    if (type != TYPE_DEVICE) {
        wire_say("memory at 0x%llx is of type %u, not of a GPU", (unsigned long long)address, type);
        errno = EFAULT;
        return false;
    }
    if (!push(ordinal, &capture_mode))
        return false;
    const bool has_handle = WIRE_CU(range, &base, &size, address) &&
                            WIRE_CU(ipc_get, &handle, base) && WIRE_CU(device, &device, ordinal) &&
                            WIRE_CU(uuid, &uuid, device);
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
    memcpy(place_out->uuid, uuid.bytes, sizeof(place_out->uuid));
    place_out->allocation = base;
    place_out->allocation_bytes = size;
    return true;
}
