/* SPDX-License-Identifier: Apache-2.0
 *
 * A pool of snapshots. A snapshot shows a time for each worker that sends. It either has a vector
 * of these times, or it has a parent: then it shows the time of the worker that took it, and for
 * all other workers what the parent shows. So a snapshot costs little if its worker has learned
 * nothing, or only what one other worker knows, since its last snapshot. Times are stored in 16
 * bits where that is enough, because the proof of an all-pairs program compares many vectors.
 */
#ifndef GYRE_ALGORITHMS_VERIFY_SNAPSHOTS_H
#define GYRE_ALGORITHMS_VERIFY_SNAPSHOTS_H

#include "core/gyre.h"

#define GYRE_NO_SNAPSHOT 0U         /* shows time 0 for every worker */
#define GYRE_NO_ENTRY    UINT32_MAX /* of a worker that never sends */

struct gyre_snapshot {
    void *times;        /* NULL: it has a parent instead, which can be GYRE_NO_SNAPSHOT */
    uint32_t parent;    /* GYRE_NO_SNAPSHOT if it has a vector */
    uint32_t n_links;   /* from parent to parent, until one has a vector or is GYRE_NO_SNAPSHOT */
    uint32_t n_readers; /* or, of a free one, the next free one */
    uint32_t entry;     /* of the worker that took it; GYRE_NO_ENTRY for a maximum of several */
    int32_t time;       /* of the step that took it */
    int32_t shown; /* the time that it shows for its worker; before `time` if other steps of the
                    * worker may run at the same time */
};

struct gyre_snapshots {
    bool is_short;     /* times have 16 bits, otherwise 32 */
    uint32_t n_vector; /* entries of a vector, some of which stay zero */
    size_t vector_bytes;
    struct gyre_snapshot *all;
    uint32_t n_all, capacity; /* number 0 is GYRE_NO_SNAPSHOT */
    uint32_t first_free;
    void *free_times;   /* vectors without a snapshot; each begins with the address of the next */
    uint32_t n_vectors; /* in use */
};

/** gyre_snapshots_init - an empty pool. */
void gyre_snapshots_init(struct gyre_snapshots *snapshots, uint32_t n_entries, uint64_t max_time);
void gyre_snapshots_fini(struct gyre_snapshots *snapshots);

/** gyre_snapshots_take - the snapshot of a worker, which shows for all other workers what `parent`
 * shows. It becomes a reader of the parent.
 * @own: its fields entry, time and shown are used.
 * Returns GYRE_NO_SNAPSHOT when there is no memory. */
uint32_t gyre_snapshots_take(struct gyre_snapshots *snapshots, uint32_t parent,
                             const struct gyre_snapshot *own, uint32_t n_readers);

/** gyre_snapshots_copy - a snapshot with a vector, which shows what `number` shows. It belongs to
 * no worker. Returns GYRE_NO_SNAPSHOT when there is no memory. */
uint32_t gyre_snapshots_copy(struct gyre_snapshots *snapshots, uint32_t number, uint32_t n_readers);

/** gyre_snapshots_release - one reader is done. It has no effect on GYRE_NO_SNAPSHOT. */
void gyre_snapshots_release(struct gyre_snapshots *snapshots, uint32_t number);

/** gyre_snapshots_raise_links - raise each entry of `times` to what a snapshot shows, if that is
 * greater, except for what the vector of the snapshot or of its ancestor shows. Returns the
 * snapshot that has this vector, or GYRE_NO_SNAPSHOT. */
uint32_t gyre_snapshots_raise_links(const struct gyre_snapshots *snapshots, uint32_t number,
                                    void *times);

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

/** gyre_snapshots_get - the time that a snapshot shows for a worker. Of a worker that occurs
 * several times among a snapshot and its ancestors, the first occurrence is the latest: each of
 * them knew its parent when it was taken. */
static inline int32_t gyre_snapshots_get(const struct gyre_snapshots *snapshots, uint32_t number,
                                         uint32_t entry)
{
    while (number != GYRE_NO_SNAPSHOT) {
        const struct gyre_snapshot *snapshot = &snapshots->all[number];
        if (snapshot->times != NULL)
            return gyre_times_get(snapshots, snapshot->times, entry);
        if (snapshot->entry == entry)
            return snapshot->shown;
        number = snapshot->parent;
    }
    return 0;
}

#endif
