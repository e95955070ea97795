/* SPDX-License-Identifier: Apache-2.0
 *
 * A pool of vectors of times. A vector has one entry for each worker that sends. It is freed when
 * the last of its readers releases it. Times are stored in 16 bits where that is enough, because
 * the proof of an all-pairs program compares many of them.
 */
#ifndef GYRE_ALGORITHMS_VERIFY_SNAPSHOTS_H
#define GYRE_ALGORITHMS_VERIFY_SNAPSHOTS_H

#include "core/gyre.h"

struct gyre_snapshot {
    void *times;
    uint32_t n_readers; /* or, of a free one, the next free one */
    uint32_t entry;     /* of the worker that took it; not set for a maximum of several */
    int32_t time;       /* of the step that took it */
};

struct gyre_snapshots {
    bool is_short;     /* times have 16 bits, otherwise 32 */
    uint32_t n_vector; /* entries of a vector, some of which stay zero */
    size_t vector_bytes;
    struct gyre_snapshot *all;
    uint32_t n_all, capacity; /* number 0 is GYRE_NO_SNAPSHOT */
    uint32_t first_free;
    uint32_t n_used;
};

/** gyre_snapshots_init - an empty pool. */
void gyre_snapshots_init(struct gyre_snapshots *snapshots, uint32_t n_entries, uint64_t max_time);
void gyre_snapshots_fini(struct gyre_snapshots *snapshots);

/** gyre_snapshots_take - a new vector with the same times as `times`. Returns GYRE_NO_SNAPSHOT when
 * there is no memory. */
uint32_t gyre_snapshots_take(struct gyre_snapshots *snapshots, const void *times,
                             uint32_t n_readers);

/** gyre_snapshots_release - one reader is done. */
void gyre_snapshots_release(struct gyre_snapshots *snapshots, uint32_t snapshot);

/** gyre_times_raise - raise each entry of `times` to that of `known`, if that is greater. */
void gyre_times_raise(const struct gyre_snapshots *snapshots, const void *known, void *times);

/** gyre_times_get - one entry of a vector. */
static inline int32_t gyre_times_get(const struct gyre_snapshots *snapshots, const void *times,
                                     uint32_t entry)
{
    return snapshots->is_short ? ((const int16_t *)times)[entry] : ((const int32_t *)times)[entry];
}

/** gyre_times_set - set one entry of a vector. */
static inline void gyre_times_set(const struct gyre_snapshots *snapshots, void *times,
                                  uint32_t entry, int32_t time)
{
    if (snapshots->is_short)
        ((int16_t *)times)[entry] = (int16_t)time;
    else
        ((int32_t *)times)[entry] = time;
}

#endif
