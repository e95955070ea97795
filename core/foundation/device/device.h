/* SPDX-License-Identifier: Apache-2.0
 *
 * A device has buffers and streams. What it cannot do returns UNSUPPORTED with the reason.
 */
#ifndef GYRE_DEVICE_DEVICE_H
#define GYRE_DEVICE_DEVICE_H

#include "core/foundation/model/types.h"

#define GYRE_LARGE_PAGE_BYTES ((size_t)2 << 20)

/* Ranks send it to each other: fixed layout. */
struct gyre_device_info {
    uint32_t kind;   /* enum gyre_device_kind */
    int32_t ordinal; /* in its process; -1 on the host */
    uint8_t uuid[16];
    char pci_bus_id[24];
    uint32_t n_sms; /* multiprocessors, or this process's processors */
    uint32_t arch;  /* 90 for 9.0; 0 on the host */
};

struct gyre_device_ops;

struct gyre_device {
    const struct gyre_device_ops *ops;
    int ordinal;
};

struct gyre_device_ops {
    gyre_device_kind kind;
    const char *name;

    /* Without a device SUCCESS, with the reason as cause text. Error: INVALID_USAGE, if the process
     * was forked from one that had used such devices. */
    gyre_status (*count)(int *n_devices_out);
    /* @ordinal: -1 = the thread's current one. Each open needs a close. */
    gyre_status (*open)(int ordinal, struct gyre_device **device_out);
    void (*close)(struct gyre_device *device);
    /* Does the slow part of the first use: CUDA makes the context, which can take seconds. */
    gyre_status (*start)(struct gyre_device *device);
    /* The calling thread's device until that ends. Only for gyre's own threads, which begin on GPU
     * 0; restoring that would make a context there. */
    gyre_status (*attach)(struct gyre_device *device);
    gyre_status (*info)(struct gyre_device *device, struct gyre_device_info *info_out);

    /* Not zeroed. */
    gyre_status (*mem_alloc)(struct gyre_device *device, size_t n_bytes, void **ptr_out);
    gyre_status (*mem_free)(struct gyre_device *device, void *ptr);
    /* For a communicator. pool_free does not wait for kernels, as CUDA's free does, because a
     * kernel may wait for the rank whose thread frees. */
    gyre_status (*pool_alloc)(struct gyre_device *device, size_t n_bytes, void **ptr_out);
    gyre_status (*pool_free)(struct gyre_device *device, void *ptr);
    /* Zeroed, at the same address for the device; pinned for CUDA. host_free waits for no
     * kernels. */
    gyre_status (*host_alloc)(struct gyre_device *device, size_t n_bytes, void **ptr_out);
    gyre_status (*host_free)(struct gyre_device *device, void *ptr);
    /* For mapped host memory, maybe shared. @ptr: page aligned. Unregister before unmapping. */
    gyre_status (*host_register)(struct gyre_device *device, void *ptr, size_t n_bytes);
    gyre_status (*host_unregister)(struct gyre_device *device, void *ptr);
    gyre_status (*copy)(struct gyre_device *device, void *to, const void *from, size_t n_bytes);
    gyre_status (*zero)(struct gyre_device *device, void *ptr, size_t n_bytes);
    /* May collectives use it? Else INVALID_ARGUMENT with its kind. Fast enough for every call. */
    gyre_status (*check_pointer)(struct gyre_device *device, const void *ptr);

    gyre_status (*stream_create)(struct gyre_device *device, gyre_stream *stream_out);
    gyre_status (*stream_destroy)(struct gyre_device *device, gyre_stream stream);
    gyre_status (*stream_synchronize)(struct gyre_device *device, gyre_stream stream);
    gyre_status (*stream_query)(struct gyre_device *device, gyre_stream stream);
    /* Later work on `stream` waits for the work now on `other`. */
    gyre_status (*stream_follow)(struct gyre_device *device, gyre_stream stream, gyre_stream other);
};

extern const struct gyre_device_ops gyre_device_host;
#ifdef GYRE_WITH_CUDA
extern const struct gyre_device_ops gyre_device_cuda;
#endif

/** AUTO is CUDA if it is built in and a GPU is usable. Errors: UNSUPPORTED with the reason. */
gyre_status gyre_device_find(gyre_device_kind kind, const struct gyre_device_ops **ops_out);

#endif
