/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory regions: host memory, and GPU memory by dma-buf or by the peer-memory kernel module, each
 * proved by registering a real page of the device.
 */
#ifndef GYRE_IB_MR_H
#define GYRE_IB_MR_H

#include "core/device/device.h"
#include "transport/ib/ib_verbs.h"

/* How a NIC reaches a device's memory. */
enum gyre_ib_gdr { GYRE_IB_GDR_NONE, GYRE_IB_GDR_DMABUF, GYRE_IB_GDR_PEERMEM };

extern const char *const gyre_ib_gdr_names[];

struct gyre_ib_mr_request {
    const struct gyre_verbs *verbs;
    struct ibv_pd *pd;
    void *base;
    size_t n_bytes;
    bool remote_write;     /* the peer writes into it; else this side only reads it */
    bool remote_read;      /* this rank's fences read from it (ib_fence.c) */
    bool relaxed_ordering; /* asked for where the library has it; readiness always travels in a
                            * later message, so data may land in any order */
    enum gyre_ib_gdr gdr;  /* NONE: host memory */
};

/** gyre_ib_mr_register - Errors: OUT_OF_MEMORY explaining the memlock limit, SYSTEM with the errno
 * (EFAULT on GPU memory: the NIC's driver does not know it). */
gyre_status gyre_ib_mr_register(const struct gyre_ib_mr_request *request, struct ibv_mr **mr_out);

/** gyre_ib_gdr_probe - which way works, by a trial registration of a page of the device.
 * @why_out: "" or, if none works, why each did not. */
enum gyre_ib_gdr gyre_ib_gdr_probe(const struct gyre_verbs *verbs, struct ibv_pd *pd,
                                   struct gyre_device *device, char *why_out, size_t why_bytes);

/** gyre_ib_memlock_fail - OUT_OF_MEMORY with the memlock limit and how to raise it. */
gyre_status gyre_ib_memlock_fail(const char *what, size_t n_bytes);

#endif
