/* SPDX-License-Identifier: Apache-2.0
 *
 * A device has buffers and streams. A device that cannot do something returns UNSUPPORTED with the
 * reason.
 */
#ifndef GYRE_DEVICE_DEVICE_H
#define GYRE_DEVICE_DEVICE_H

#include "core/foundation/model/types.h"

/* With such pages the driver maps large allocations of GPU memory. */
#define GYRE_LARGE_PAGE_BYTES ((size_t)2 << 20)

/* Ranks send it to each other: fixed layout. */
struct gyre_device_info {
    uint32_t kind;       /* enum gyre_device_kind */
    int32_t ordinal;     /* in its process; -1 on the host */
    uint8_t uuid[16];    /* zero on the host */
    char pci_bus_id[24]; /* "0000:18:00.0"; "" on the host */
    uint32_t n_sms;      /* multiprocessors, or processors that this process may use */
    uint32_t arch;       /* 90 for 9.0; 0 on the host */
};

struct gyre_device_ops;

struct gyre_device {
    const struct gyre_device_ops *ops;
    int ordinal;
};

struct gyre_device_ops {
    gyre_device_kind kind;
    const char *name; /* "host", "cuda" */

    /* If there is none, the result is SUCCESS with 0 devices, and the cause text says why. Error:
     * INVALID_USAGE, if the process was forked from one that had used such devices. */
    gyre_status (*count)(int *n_devices_out);
    /* @ordinal: -1 = the thread's current device. Each open needs a close. */
    gyre_status (*open)(int ordinal, struct gyre_device **device_out);
    void (*close)(struct gyre_device *device);
    /* Do the slow part of the first use now. CUDA: make the context, which can take seconds. */
    gyre_status (*start)(struct gyre_device *device);
    /* Make this the calling thread's device until the thread ends. Only for gyre's own threads,
     * whose device is GPU 0 at first; to restore that would make a context on GPU 0. */
    gyre_status (*attach)(struct gyre_device *device);
    gyre_status (*info)(struct gyre_device *device, struct gyre_device_info *info_out);

    /* Not zeroed. */
    gyre_status (*mem_alloc)(struct gyre_device *device, size_t n_bytes, void **ptr_out);
    gyre_status (*mem_free)(struct gyre_device *device, void *ptr);
    /* Memory for a communicator's own use. pool_free does not wait for kernels. CUDA's own free
     * waits for them, and a kernel may wait for the rank whose thread is in that free. */
    gyre_status (*pool_alloc)(struct gyre_device *device, size_t n_bytes, void **ptr_out);
    gyre_status (*pool_free)(struct gyre_device *device, void *ptr);
    /* Host memory that the device can use at the same address, zeroed; pinned for CUDA. host_free
     * does not wait for kernels either. */
    gyre_status (*host_alloc)(struct gyre_device *device, size_t n_bytes, void **ptr_out);
    gyre_status (*host_free)(struct gyre_device *device, void *ptr);
    /* For host memory that is already mapped (for example shared with another process), at the same
     * address. @ptr: page aligned. Unregister before unmapping. */
    gyre_status (*host_register)(struct gyre_device *device, void *ptr, size_t n_bytes);
    gyre_status (*host_unregister)(struct gyre_device *device, void *ptr);
    /* Synchronous. */
    gyre_status (*copy)(struct gyre_device *device, void *to, const void *from, size_t n_bytes);
    gyre_status (*zero)(struct gyre_device *device, void *ptr, size_t n_bytes);
    /* SUCCESS if collectives on this device may use the address, else INVALID_ARGUMENT with the
     * kind of memory that it is. Fast enough for every call. */
    gyre_status (*check_pointer)(struct gyre_device *device, const void *ptr);

    gyre_status (*stream_create)(struct gyre_device *device, gyre_stream *stream_out);
    gyre_status (*stream_destroy)(struct gyre_device *device, gyre_stream stream);
    gyre_status (*stream_synchronize)(struct gyre_device *device, gyre_stream stream);
    gyre_status (*stream_query)(struct gyre_device *device, gyre_stream stream);
    /* Later work on `stream` begins after the work that is on `other` now. */
    gyre_status (*stream_follow)(struct gyre_device *device, gyre_stream stream, gyre_stream other);
};

extern const struct gyre_device_ops gyre_device_host;
#ifdef GYRE_WITH_CUDA
extern const struct gyre_device_ops gyre_device_cuda;
#endif

/** AUTO is CUDA if it is built in and a GPU is usable, else the host. Errors: UNSUPPORTED with the
 * reason (built without CUDA, no driver, no GPU). */
gyre_status gyre_device_find(gyre_device_kind kind, const struct gyre_device_ops **ops_out);

#endif
