/* SPDX-License-Identifier: Apache-2.0
 *
 * Vector clocks: how far every other worker certainly is. Credits are ignored, so that a proof
 * holds at any depth. A message carries a snapshot of the sender's clock, which the slots of one
 * step share. A time counts a worker's steps in all tiles; steps that may run at the same time
 * count once.
 *
 * Comparing clocks would take most of the time, so a worker that learned nothing new refers to an
 * earlier snapshot, and first only lists what it receives: the lists of all-pairs programs are
 * nearly equal, so a part's maximum is often known.
 */
#ifndef GYRE_ALGORITHMS_VERIFY_CLOCKS_H
#define GYRE_ALGORITHMS_VERIFY_CLOCKS_H

#include "algorithms/verify/machine.h"

#define GYRE_NO_SNAPSHOT 0U         /* time 0 for every worker */
#define GYRE_NO_ENTRY    UINT32_MAX /* the worker never sends */

/* Either a vector of times by sending worker, or a parent, which shows the times of all workers but
 * its own. Times have 16 bits where that is enough, because the proof of an all-pairs program
 * compares many vectors. */
struct gyre_snapshot {
    void *times; /* NULL: it has a parent, which can be GYRE_NO_SNAPSHOT */
    uint32_t parent;
    uint32_t n_links;
    uint32_t n_readers; /* of a free one: the next free one */
    uint32_t entry;     /* GYRE_NO_ENTRY = maximum of several */
    int32_t time;
    int32_t shown; /* before `time` if other steps may run at the same time */
};

struct gyre_snapshots {
    bool is_short;
    uint32_t n_vector; /* some stay zero */
    size_t vector_bytes;
    struct gyre_snapshot *all;
    uint32_t n_all, capacity;
    uint32_t first_free;
    void *free_times; /* linked by their first bytes */
    uint32_t n_vectors;
};

void gyre_snapshots_init(struct gyre_snapshots *snapshots, uint32_t n_entries, uint64_t max_time);
void gyre_snapshots_fini(struct gyre_snapshots *snapshots);

/** The caller becomes a reader of the parent. @own: entry, time and shown are used.
 * GYRE_NO_SNAPSHOT = no memory. */
uint32_t gyre_snapshots_take(struct gyre_snapshots *snapshots, uint32_t parent,
                             const struct gyre_snapshot *own, uint32_t n_readers);

/** With a vector, without a worker. GYRE_NO_SNAPSHOT = no memory. */
uint32_t gyre_snapshots_copy(struct gyre_snapshots *snapshots, uint32_t number, uint32_t n_readers);

/** No effect on GYRE_NO_SNAPSHOT. */
void gyre_snapshots_release(struct gyre_snapshots *snapshots, uint32_t number);

/** Raise `times` to what a snapshot and its ancestors without a vector show. Returns the ancestor
 * that has a vector, or GYRE_NO_SNAPSHOT. */
uint32_t gyre_snapshots_raise_links(const struct gyre_snapshots *snapshots, uint32_t number,
                                    void *times);

void gyre_times_raise(const struct gyre_snapshots *snapshots, const void *known, void *times);

static inline int32_t gyre_times_get(const struct gyre_snapshots *snapshots, const void *times,
                                     uint32_t entry)
{
    return snapshots->is_short ? ((const int16_t *)times)[entry] : ((const int32_t *)times)[entry];
}

static inline void gyre_times_set(const struct gyre_snapshots *snapshots, void *times,
                                  uint32_t entry, int32_t time)
{
    if (snapshots->is_short)
        ((int16_t *)times)[entry] = (int16_t)time;
    else
        ((int32_t *)times)[entry] = time;
}

/** The first occurrence among the ancestors is the latest, because each knew its parent when it was
 * taken. */
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

/* Maxima of lists of snapshots that have vectors, with a place for each entry. A binary tree splits
 * the places and remembers maxima of branches, so similar lists cost one pass. */
struct gyre_joins;

/** Remembers at most `n_most` maxima. Errors: OUT_OF_MEMORY. */
gyre_status gyre_joins_open(struct gyre_snapshots *snapshots, uint32_t n_most,
                            struct gyre_joins **joins_out);
void gyre_joins_close(struct gyre_joins *joins);

/** @list: by entry: a snapshot that has a vector, or GYRE_NO_SNAPSHOT; afterwards none is set. */
void gyre_joins_add(struct gyre_joins *joins, uint32_t *list, uint32_t n_entries, void *times);

void gyre_joins_forget(struct gyre_joins *joins);

struct gyre_clocks;

/* What the worker knew before, and what the step received, which steps at the same time do not
 * learn. */
struct gyre_view {
    uint32_t worker;
    int32_t time;
    bool is_apart;
    uint32_t n_snapshots;
    uint32_t snapshots[GYRE_STEP_MAX_INS];
};

/** A worker that never sends has no entry, because no worker can know how far it is. @network: says
 * which workers send. @max_time: no clock will show more. Errors: OUT_OF_MEMORY. */
gyre_status gyre_clocks_open(const struct gyre_verify_network *network, uint64_t max_time,
                             struct gyre_clocks **clocks_out);
void gyre_clocks_close(struct gyre_clocks *clocks);

int32_t gyre_clocks_own_time(const struct gyre_clocks *clocks, uint32_t worker);

void gyre_clocks_set_time(struct gyre_clocks *clocks, uint32_t worker, int32_t time);

/** The step becomes a reader of the snapshot. False = no memory. */
bool gyre_clocks_receive(struct gyre_clocks *clocks, struct gyre_view *view, uint32_t snapshot);

/** All steps that may run at the same time are done. Call it before another worker receives. */
bool gyre_clocks_learn(struct gyre_clocks *clocks, uint32_t worker);

/** Does the step come after all that a worker did up to `time`? */
bool gyre_view_is_after(struct gyre_clocks *clocks, const struct gyre_view *view, uint32_t worker,
                        int32_t time);

/** Lives until it has been released `n_readers` times. GYRE_NO_SNAPSHOT = no memory. */
uint32_t gyre_clocks_snapshot(struct gyre_clocks *clocks, const struct gyre_view *view,
                              uint32_t n_readers);

/** @snapshot: not released by all. */
void gyre_clocks_share(struct gyre_clocks *clocks, uint32_t snapshot, uint32_t n_more);

void gyre_clocks_release(struct gyre_clocks *clocks, uint32_t snapshot);

#endif
