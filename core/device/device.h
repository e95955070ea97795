/* SPDX-License-Identifier: Apache-2.0
 *
 * Where buffers and streams live: `host` and `cuda` are two rows of one ops table. Tables have no
 * NULL slot; a row that cannot do something returns UNSUPPORTED with the reason.
 */
#ifndef GYRE_DEVICE_DEVICE_H
#define GYRE_DEVICE_DEVICE_H

#include "core/model/types.h"

/* What device memory of a rank looks like to others; all ranks exchange it. */
/* Of a GPU's memory, in which allocations are mapped where they can be. */
#define GYRE_LARGE_PAGE_BYTES ((size_t)2 << 20)

struct gyre_device_info {
    uint32_t kind;       /* enum gyre_device_kind */
    int32_t ordinal;     /* in its process; -1 on the host */
    uint8_t uuid[16];    /* CUDA: the GPU's; host: zero */
    char pci_bus_id[24]; /* CUDA: "0000:18:00.0"; host: "" */
    uint32_t n_sms;      /* CUDA: multiprocessors; host: processors that this process may use */
    uint32_t arch;       /* CUDA: 90 for 9.0; host: 0 */
};

struct gyre_device_ops;

struct gyre_device {
    const struct gyre_device_ops *ops;
    int ordinal;
};

struct gyre_device_ops {
    gyre_device_kind kind;
    const char *name; /* "host", "cuda" */

    /* n_devices_out = 0 with SUCCESS and the reason as cause text where there is none. */
    gyre_status (*count)(int *n_devices_out);
    /* @ordinal: -1 = the thread's current device. Reference-counted by the back end. */
    gyre_status (*open)(int ordinal, struct gyre_device **device_out);
    void (*close)(struct gyre_device *device);
    /* Do now what the first use of the device would do and take seconds over: CUDA's context. */
    gyre_status (*start)(struct gyre_device *device);
    /* Make it this thread's device, for good. For threads of gyre's own: what is left behind is
     * GPU 0 otherwise, and putting that back makes a context there. */
    gyre_status (*attach)(struct gyre_device *device);
    gyre_status (*info)(struct gyre_device *device, struct gyre_device_info *info_out);

    /* Memory of the device; zero-filled only where said so. */
    gyre_status (*mem_alloc)(struct gyre_device *device, size_t n_bytes, void **ptr_out);
    gyre_status (*mem_free)(struct gyre_device *device, void *ptr);
    /* Memory of the device for a communicator's own use. Freeing it waits for no kernel: CUDA's
     * free does, and a kernel may wait for a rank whose thread is in that free (pool_cuda.h). */
    gyre_status (*pool_alloc)(struct gyre_device *device, size_t n_bytes, void **ptr_out);
    gyre_status (*pool_free)(struct gyre_device *device, void *ptr);
    /* Host memory that the device can address at the same address (pinned for CUDA), zeroed; freed
     * as pool_free does. */
    gyre_status (*host_alloc)(struct gyre_device *device, size_t n_bytes, void **ptr_out);
    gyre_status (*host_free)(struct gyre_device *device, void *ptr);
    /* Let the device address host memory that is mapped already (shared between processes), at the
     * same address; page aligned. Undone before it is unmapped. */
    gyre_status (*host_register)(struct gyre_device *device, void *ptr, size_t n_bytes);
    gyre_status (*host_unregister)(struct gyre_device *device, void *ptr);
    /* Synchronous copies in any direction between host memory and this device. */
    gyre_status (*copy)(struct gyre_device *device, void *to, const void *from, size_t n_bytes);
    gyre_status (*zero)(struct gyre_device *device, void *ptr, size_t n_bytes);
    /* SUCCESS if collectives on this device may use the address; else INVALID_ARGUMENT, saying
     * what kind of memory it is. Cheap enough for every call. */
    gyre_status (*check_pointer)(struct gyre_device *device, const void *ptr);

    gyre_status (*stream_create)(struct gyre_device *device, gyre_stream *stream_out);
    gyre_status (*stream_destroy)(struct gyre_device *device, gyre_stream stream);
    gyre_status (*stream_synchronize)(struct gyre_device *device, gyre_stream stream);
    gyre_status (*stream_query)(struct gyre_device *device, gyre_stream stream);
    /* What is enqueued on `stream` from now on begins after what is on `other` now. */
    gyre_status (*stream_follow)(struct gyre_device *device, gyre_stream stream, gyre_stream other);
};

extern const struct gyre_device_ops gyre_device_host;
#ifdef GYRE_WITH_CUDA
extern const struct gyre_device_ops gyre_device_cuda;
#endif

/** gyre_device_find - the ops of a kind. AUTO: CUDA if built in and a GPU is usable, else host.
 * Errors: UNSUPPORTED with the reason (built without CUDA, no driver, no GPU). */
gyre_status gyre_device_find(gyre_device_kind kind, const struct gyre_device_ops **ops_out);

#endif
