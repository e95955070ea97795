/* SPDX-License-Identifier: Apache-2.0
 *
 * A proxy never reads a program: its client moves published slots and returns credit. When nothing
 * moves, the thread sleeps, each time longer, until it is woken.
 *
 * A waiting executor may move slots itself (gyre_proxy_help()), which saves a small message two
 * switches of threads.
 */
#ifndef GYRE_TRANSPORT_PROXY_H
#define GYRE_TRANSPORT_PROXY_H

#include "core/foundation/base/thread.h"
#include "core/foundation/device/device.h"
#include "core/foundation/model/connector.h"
#include "core/foundation/model/line.h"

/* No function blocks, and only one runs at a time. A client raises its failures on the fault
 * itself. */
struct gyre_proxy_client {
    /* True if anything moved. */
    bool (*poll)(void *context);
    /* Are published slots not sent? With has_credit, only those that the peer has room for. NULL =
     * never. */
    bool (*is_behind)(const void *context, bool has_credit);
    /* Before a sleep: let new events make nap_fd readable. True if anything moved. NULL = nothing
     * to do. */
    bool (*settle)(void *context);
    void *context;
    const int *nap_fd; /* readable: ends a sleep. NULL = none */
};

struct gyre_proxy;

/** The thread ends when the fault is raised or at gyre_proxy_close(). @client: copied. */
gyre_status gyre_proxy_open(const struct gyre_proxy_client *client, int rank,
                            struct gyre_fault *fault, struct gyre_proxy **proxy_out);

/** Does not block; any thread. */
void gyre_proxy_wake(struct gyre_proxy *proxy);

/** Poll the client once, unless the thread polls. True if anything moved. @is_last: the caller
 * will not help again soon, so the thread takes over. */
bool gyre_proxy_help(struct gyre_proxy *proxy, bool is_last);

/** gyre_proxy_pause, _resume - no thread may help meanwhile. */
void gyre_proxy_pause(struct gyre_proxy *proxy);
void gyre_proxy_resume(struct gyre_proxy *proxy);

void gyre_proxy_close(struct gyre_proxy *proxy);

/* One side of a FIFO, in host memory that the device can address; slots may be in GPU memory.
 * Sender: the executor writes slots, slot_info and tail; the proxy writes head when a slot's bytes
 * have left. Receiver: the proxy writes slots, slot_info and tail; the executor writes head. */
struct gyre_proxy_fifo {
    unsigned char *slots; /* depth * slot_bytes */
    uint32_t slot_bytes;
    uint32_t depth;
    struct gyre_inbox *inbox;
    struct gyre_credit *credit;
};

/** Whole pages, or a multiple of 256 bytes below a page. */
uint64_t gyre_proxy_slots_bytes(uint32_t depth, uint32_t slot_bytes);

/** @fifos: depth and slot_bytes are set, 0 bytes = the slots are elsewhere; the rest is filled in.
 * @memory_out: for device->ops->host_free. */
gyre_status gyre_proxy_fifos_alloc(struct gyre_device *device, struct gyre_proxy_fifo *fifos,
                                   uint32_t n, void **memory_out, size_t *n_bytes_out);

struct gyre_connector gyre_proxy_connector(const struct gyre_proxy_fifo *fifo);

/* Slots of LL (core/foundation/model/line.h). Two words are a line, each with 4 bytes of data and a
 * flag. */

struct gyre_line_slots {
    unsigned char *slots;
    uint32_t slot_bytes;
    uint32_t depth;
};

/** The slot is announced, and all its lines are there. @n_lines_out: 0 for an empty slot. */
bool gyre_lines_announced(const struct gyre_line_slots *ring, const struct gyre_inbox *inbox,
                          uint64_t number, uint32_t *n_lines_out);

/** Once in GYRE_LL_CLEAN_PERIOD slots, write the flag into the lines from n_lines on. Returns how
 * many lines have it. */
uint32_t gyre_lines_clean(const struct gyre_line_slots *ring, uint64_t number, uint32_t n_lines);

void gyre_lines_unpack(const struct gyre_line_slots *ring, uint64_t number, uint32_t n_lines,
                       unsigned char *to);

/** Stores whole words: an executor may poll them. */
void gyre_lines_pack(const struct gyre_line_slots *ring, uint64_t number, uint32_t n_lines,
                     const unsigned char *from);

#endif
