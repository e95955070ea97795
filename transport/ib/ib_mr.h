/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory regions. Host memory is registered as usual, GPU memory with dma-buf or with the
 * peer-memory kernel module. Which of these works is found by registering a real page of the
 * device.
 */
#ifndef GYRE_IB_MR_H
#define GYRE_IB_MR_H

#include "core/foundation/device/device.h"
#include "transport/ib/ib_verbs.h"

/* How a NIC reaches a device's memory. */
enum gyre_ib_gdr { GYRE_IB_GDR_NONE, GYRE_IB_GDR_DMABUF, GYRE_IB_GDR_PEERMEM };

extern const char *const gyre_ib_gdr_names[];

struct gyre_ib_mr_request {
    const struct gyre_verbs *verbs;
    struct ibv_pd *pd;
    void *base;
    size_t n_bytes;
    bool remote_write;     /* the peer writes into it; else only this rank's NIC reads it */
    bool remote_read;      /* this rank's fences read from it (ib_fence.c) */
    bool relaxed_ordering; /* used if the library has it. A later message always says that the data
                            * are complete, so they may arrive in any order */
    enum gyre_ib_gdr gdr;  /* NONE: host memory */
};

/** gyre_ib_mr_register - register memory. Errors: OUT_OF_MEMORY explaining the memlock limit,
 * SYSTEM with the errno (EFAULT on GPU memory means that the NIC's driver does not know this
 * memory). */
gyre_status gyre_ib_mr_register(const struct gyre_ib_mr_request *request, struct ibv_mr **mr_out);

/** gyre_ib_gdr_probe - find the way in which the NIC reaches the device's memory, by registering a
 * page of it. @why_out: "", or if no way works, the reason for each. */
enum gyre_ib_gdr gyre_ib_gdr_probe(const struct gyre_verbs *verbs, struct ibv_pd *pd,
                                   struct gyre_device *device, char *why_out, size_t why_bytes);

/** gyre_ib_memlock_fail - fail with OUT_OF_MEMORY, naming the memlock limit and how to raise it. */
gyre_status gyre_ib_memlock_fail(const char *what, size_t n_bytes);

#endif
