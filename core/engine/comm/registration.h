/* SPDX-License-Identifier: Apache-2.0
 *
 * The buffers that the user has registered with a communicator. NCCL's ABI needs no more than this:
 * a handle for a buffer, the same handle for the same range, and a refusal of handles that are not
 * in use. No plan reads the ranges.
 */
#ifndef GYRE_COMM_REGISTRATION_H
#define GYRE_COMM_REGISTRATION_H

#include "core/gyre.h"

#include <pthread.h>

struct gyre_registered;

/* Any thread of the process may register: allocators do it from the thread that allocates. */
struct gyre_registrations {
    pthread_mutex_t lock; /* guards the fields below */
    struct gyre_registered *first;
    uint64_t last_handle; /* handles count up from 1 and are never used again */
};

void gyre_registrations_init(struct gyre_registrations *registrations);
void gyre_registrations_fini(struct gyre_registrations *registrations);

/** gyre_registrations_count - how many ranges are registered. */
size_t gyre_registrations_count(struct gyre_registrations *registrations);

#endif
