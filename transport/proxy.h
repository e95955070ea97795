/* SPDX-License-Identifier: Apache-2.0
 *
 * The proxy thread of a proxied transport, and the memory of a proxied FIFO end. A proxy never
 * reads a program: it moves whatever slots an executor published and returns credit. It polls its
 * clients; when none moves anything it naps, longer and longer up to a bound, until woken.
 *
 * An executor that waits anyway can move slots itself (gyre_proxy_help): a small message then costs
 * no switch to this thread and back, which on one host is most of its time. While it does, the
 * thread keeps out of its way, and is called in when there is more than one round of work.
 */
#ifndef GYRE_TRANSPORT_PROXY_H
#define GYRE_TRANSPORT_PROXY_H

#include "core/base/fault.h"
#include "core/device/device.h"
#include "core/model/connector.h"

/* Something that the proxy thread serves. No function blocks, and one at a time is called. A
 * failure is raised on the fault by the client itself. */
struct gyre_proxy_client {
    /* One round; true if it moved anything. */
    bool (*poll)(void *context);
    /* Are there published slots that were not handed on yet? With has_credit, only those that the
     * peer has room for count. NULL = never. */
    bool (*is_behind)(const void *context, bool has_credit);
    /* A nap is next: make nap_fd tell of what comes; true if that moved anything. NULL = nothing to
     * do. */
    bool (*settle)(void *context);
    void *context;
    const int
        *nap_fd; /* a descriptor (an epoll, say) whose readiness to be read ends a nap, so that
                  * arriving data is not kept waiting; NULL = none. Outlives the proxy. */
};

struct gyre_proxy;

/** gyre_proxy_open - start the thread. @clients: copied; polled in order.
 * @rank: for log lines. The thread ends when the fault is raised or at close. */
gyre_status gyre_proxy_open(const struct gyre_proxy_client *clients, int n_clients, int rank,
                            struct gyre_fault *fault, struct gyre_proxy **proxy_out);

/** gyre_proxy_wake - end a nap. Cheap, any thread. */
void gyre_proxy_wake(struct gyre_proxy *proxy);

/** gyre_proxy_help - one round of all clients in the caller's thread, unless the proxy's is at it.
 * True if anything moved.
 * @is_last: the caller does not come back soon: what is left is the thread's. */
bool gyre_proxy_help(struct gyre_proxy *proxy, bool is_last);

/** gyre_proxy_close - stop and join the thread. */
void gyre_proxy_close(struct gyre_proxy *proxy);

/* One end of a proxied FIFO: slots, inbox and credit on this side of the wire, in host memory that
 * the device can address (slots may be replaced by GPU memory where the NIC reads and writes it).
 * Sending end: the executor writes slots, slot_info and tail; the proxy writes head, once a slot's
 * bytes have left (it may be overwritten). Receiving end: the proxy writes slots, slot_info and
 * tail; the executor writes head. */
struct gyre_proxy_fifo {
    unsigned char *slots; /* depth * slot_bytes[SIMPLE] */
    struct gyre_inbox *inbox;
    struct gyre_credit *credit;
};

/** gyre_proxy_fifos_alloc - one block of device-addressable host memory for n FIFO ends.
 * @memory_out: to be freed with device->ops->host_free. @n_bytes_out: its size. Slots are aligned
 * to 4096. */
gyre_status gyre_proxy_fifos_alloc(struct gyre_device *device, const struct gyre_fifo_spec *spec,
                                   uint32_t n, void **memory_out, size_t *n_bytes_out,
                                   struct gyre_proxy_fifo *fifos_out);

/** gyre_proxy_connector - the executor's view of such an end. */
struct gyre_connector gyre_proxy_connector(const struct gyre_proxy_fifo *fifo,
                                           const struct gyre_fifo_spec *spec);

#endif
