/* SPDX-License-Identifier: Apache-2.0
 *
 * This rank in a communicator, filled in by core/engine/comm.
 */
#ifndef GYRE_LINKS_RANK_H
#define GYRE_LINKS_RANK_H

#include "bootstrap/bootstrap.h"
#include "core/foundation/base/param.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/device/device.h"
#include "core/foundation/trace/trace.h"
#include "core/gyre.h"

struct gyre_rank {
    int rank;
    int n_ranks;
    char name[64]; /* of the communicator */
    uint64_t job;  /* hash of the unique id: ranks of one job in one process end together. Under the
                    * registry's lock */
    uint64_t number; /* the same on all ranks, above their processes' earlier ones */
    struct gyre_params params;
    gyre_config config; /* every undefined field resolved */
    struct gyre_fault fault;
    struct gyre_trace *trace; /* NULL: not traced */
    int file_rank;            /* %r in names of files: the rank before all splits and shrinks */
    struct gyre_device *device;
    struct gyre_device_info device_info;
    struct gyre_bootstrap *bootstrap;
    uint64_t stage_ns; /* when the current stage of making it began */
    /* Of connections; set before any is made. */
    void (*tell)(void *context, const gyre_connection_event *event);
    void *tell_context;
    uint32_t has_left; /* 1: said goodbye. By the thread that leaves, release */
};

void gyre_rank_end_stage(struct gyre_rank *self, const char *stage);

/** Of a call. UINT32_MAX = any number. */
uint32_t gyre_rank_max_channels(const struct gyre_rank *self);

#endif
