/* SPDX-License-Identifier: Apache-2.0
 *
 * Which buffers the user registered with a communicator. Ranges may overlap; the same range again
 * is the same handle, counted. A handle is an index and a generation, never an address: one that
 * was given back, or belongs to memory that was freed and came again, is told from a live one.
 */
#ifndef GYRE_COMM_REGISTRATION_H
#define GYRE_COMM_REGISTRATION_H

#include "core/gyre.h"

#include <pthread.h>

struct gyre_registered {
    uintptr_t base;
    size_t n_bytes;
    uint32_t n_users; /* 0 = the place is free */
    uint32_t generation;
};

/* Any thread of the process: allocators register from whatever thread allocates. */
struct gyre_registrations {
    pthread_mutex_t lock;
    struct gyre_registered *ranges;
    size_t n_ranges; /* places, free ones among them */
    uint32_t generation;
};

void gyre_registrations_init(struct gyre_registrations *registrations);
void gyre_registrations_fini(struct gyre_registrations *registrations);

/** gyre_registrations_add - count a user of the range. Errors: OUT_OF_MEMORY. */
gyre_status gyre_registrations_add(struct gyre_registrations *registrations, const void *base,
                                   size_t n_bytes, gyre_registration *handle_out);

/** gyre_registrations_drop - one user less. Errors: INVALID_ARGUMENT (not a live handle of these).
 */
gyre_status gyre_registrations_drop(struct gyre_registrations *registrations,
                                    gyre_registration handle);

/** gyre_registrations_count - live ranges. */
size_t gyre_registrations_count(struct gyre_registrations *registrations);

#endif
