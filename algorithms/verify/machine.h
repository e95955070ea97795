/* SPDX-License-Identifier: Apache-2.0
 *
 * FIFOs block and have one sending and one receiving worker, so the order of workers does not
 * matter, and one run proves all. A WITH_NEXT sequence runs when all its slots are available: if
 * that never deadlocks, no order of its steps does.
 */
#ifndef GYRE_ALGORITHMS_VERIFY_MACHINE_H
#define GYRE_ALGORITHMS_VERIFY_MACHINE_H

#include "algorithms/verify/verify.h"
#include "core/foundation/model/schedule.h"

struct gyre_network_fifo {
    uint32_t sender; /* worker */
    uint32_t receiver;
    uint16_t from; /* rank */
    uint16_t to;
    uint8_t lane;
};

struct gyre_verify_network {
    const struct gyre_program *const *programs;
    uint32_t n_ranks;
    uint32_t n_workers;
    uint32_t n_fifos;
    struct gyre_network_fifo *fifos;
    uint32_t *first_worker;     /* by rank; n_ranks + 1 entries */
    uint32_t *first_connection; /* likewise */
    uint32_t *fifo_of;          /* by first_connection[rank] + connection */
};

/** @programs: of one shape, by rank; must outlive the network. Errors: INVALID_ARGUMENT with the
 * reason, OUT_OF_MEMORY. */
gyre_status gyre_verify_network_open(const struct gyre_program *const *programs, int n_ranks,
                                     struct gyre_verify_network **network_out);
void gyre_verify_network_close(struct gyre_verify_network *network);

/* Steps of one worker that are run together. */
struct gyre_firing {
    uint32_t rank;
    uint32_t worker;
    uint32_t first_step;
    uint32_t n_steps;
    uint32_t tile;
};

struct gyre_machine_options {
    uint32_t depth;
    uint32_t n_tiles;
    gyre_status (*fire)(void *context, const struct gyre_firing *firing); /* NULL = only count */
    void *context;
};

#define GYRE_MACHINE_TOLD 8 /* waits of a deadlock */

struct gyre_machine_result {
    bool is_deadlock;
    struct gyre_verify_place place;                    /* first worker of a deadlock */
    uint32_t n_waits;                                  /* in the cycle, or in a chain that ends */
    struct gyre_verify_place waits[GYRE_MACHINE_TOLD]; /* the first ones */
    uint64_t n_steps;
};

/** A deadlock is told as a cycle of workers, or a chain up to a worker that is done. Errors:
 * INVALID_ARGUMENT with the reason (a deadlock, or slots left in a FIFO), what fire() returns,
 * OUT_OF_MEMORY. */
gyre_status gyre_machine_run(const struct gyre_verify_network *network,
                             const struct gyre_machine_options *options,
                             struct gyre_machine_result *result_out);

/* Vector clocks: how far every other worker certainly is. Credits are ignored, so that a proof
 * holds at any depth. A message carries a snapshot of the sender's clock, which the slots of one
 * step share. A time counts a worker's steps in all tiles; steps that may run at the same time
 * count once. Comparing clocks would take most of the time, so a worker that learned nothing new
 * refers to an earlier snapshot. */

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

/* A value is a rank's input, or a reduction of values in a given order. Equal expressions are
 * stored once, so equal numbers mean equal bits; where any order is allowed, equal sets of ranks.
 */

#define GYRE_NO_VALUE 0U

/* Contributions to a reduction are of one chunk and tile, and orders are few, so there are few
 * values. */
struct gyre_content {
    uint32_t value;
    uint16_t chunk;
    uint16_t tile;
};

struct gyre_value {
    uint32_t first_in;
    uint32_t set;        /* ranks that contributed; 0 = an interval: */
    uint32_t first_rank; /* its first rank; rank 0 follows the last rank */
    uint32_t n_ranks_in;
    uint16_t n_ins; /* 0 = a contribution */
    bool is_final;
};

enum gyre_value_fault {
    GYRE_VALUE_FINE,
    GYRE_VALUE_TWICE,
    GYRE_VALUE_NO_MEMORY,
};

struct gyre_values;

/** @any_order: reductions of the same ranks are one value. Errors: OUT_OF_MEMORY. */
gyre_status gyre_values_open(unsigned n_ranks, bool any_order, struct gyre_values **values_out);
void gyre_values_close(struct gyre_values *values);

static inline uint32_t gyre_values_input(unsigned rank)
{
    return rank + 1;
}

/** In this order. @is_final: the result is divided afterwards, which makes it a different value.
 * @value_out: set on GYRE_VALUE_FINE. New values are numbered one after the other. */
enum gyre_value_fault gyre_values_reduce(struct gyre_values *values, const uint32_t *ins,
                                         unsigned n_ins, bool is_final, uint32_t *value_out);

/** Valid until the next value is added. */
const struct gyre_value *gyre_values_get(const struct gyre_values *values, uint32_t value);

bool gyre_values_has(const struct gyre_values *values, uint32_t value, unsigned rank);

/** Two expressions, each on a line after "rank N", and where they first differ. Sums of many ranks
 * become sets: {0-3}. */
void gyre_values_compare(const struct gyre_values *values, const uint32_t of_rank[2],
                         const unsigned ranks[2], char *text_out, size_t text_bytes);

struct gyre_access {
    uint16_t rank;
    uint32_t worker;
    uint32_t tile;
    uint32_t step;
    uint32_t piece; /* of the step's range; pieces may run in any order */
    int32_t time;   /* equal for steps that may run at the same time */
    struct gyre_clocks *clocks;
    struct gyre_view view;
};

struct gyre_expectation {
    bool is_owned; /* else no step may touch the buffer */
    uint32_t chunk;
    bool from_all; /* else from `source` */
    uint16_t source;
};

struct gyre_verify_memory;

/** @network: must outlive it. Errors: OUT_OF_MEMORY. */
gyre_status gyre_verify_memory_open(const struct gyre_verify_network *network, bool in_place,
                                    uint32_t n_tiles, struct gyre_verify_memory **memory_out);
void gyre_verify_memory_close(struct gyre_verify_memory *memory);

bool gyre_verify_owns_in(const struct gyre_program *program);

struct gyre_expectation gyre_verify_expect(const struct gyre_program *program, uint32_t chunk);

/** Does a worker write a chunk that another one touches, or are data placed? Otherwise clocks do
 * not matter. */
bool gyre_verify_shares_chunks(const struct gyre_verify_memory *memory);

/** @content_out: no value = the caller's input. Errors: INVALID_ARGUMENT with the reason. */
gyre_status gyre_verify_read(struct gyre_verify_memory *memory, const struct gyre_access *access,
                             struct gyre_operand operand, struct gyre_content *content_out);

/** @owner: access->rank, or the receiving rank of placed data. Errors: INVALID_ARGUMENT with the
 * reason. */
gyre_status gyre_verify_write(struct gyre_verify_memory *memory, const struct gyre_access *access,
                              uint16_t owner, uint32_t chunk, struct gyre_content content);

/** Every OUT must hold the expected contributions, the same on all ranks. @place_out: set on
 * failure. @orders_differ_out: set if an order is wrong. Errors: INVALID_ARGUMENT with the
 * reason. */
gyre_status gyre_verify_outputs(const struct gyre_verify_memory *memory,
                                const struct gyre_values *values,
                                struct gyre_verify_place *place_out, bool *orders_differ_out);

#define GYRE_VERIFY_REMEMBERED 2 /* credits are judged at depth 2 */

/* In flight: its chunks, as in struct gyre_step, and the sender's clock. */
struct gyre_verify_slot {
    uint32_t snapshot;
    uint16_t tile;
    uint16_t chunk;
    uint16_t n_chunks;
    uint16_t run, stride;
    bool is_placed;
    struct gyre_content contents[];
};

/* The slots follow it, because no cache foresees the order of a step's FIFOs. */
struct gyre_verify_fifo {
    uint32_t n_sent;
    uint32_t n_received;
    int32_t received_at[GYRE_VERIFY_REMEMBERED]; /* the receiver's time */
};

struct gyre_verify_scratch {
    struct gyre_content content;
    uint16_t chunk;
    uint16_t tile;
};

struct gyre_verify_run {
    const struct gyre_verify_network *network;
    uint32_t depth;
    uint32_t n_tiles;
    struct gyre_values *values;
    struct gyre_verify_memory *memory;
    struct gyre_clocks *clocks;
    char *fifos;
    size_t fifo_bytes, slot_bytes;
    struct gyre_content *results;
    uint32_t *first_scratch;
    struct gyre_verify_scratch *scratches;
    bool shares_chunks;
    bool credits_elidable;
    bool orders_differ;
    struct gyre_verify_place place;
};

struct gyre_verify_act {
    struct gyre_verify_run *run;
    const struct gyre_program *program;
    const struct gyre_step *step;
    bool is_alone;   /* no other step may run at the same time */
    uint32_t shared; /* snapshot of a sequence's steps that receive nothing */
    struct gyre_access access;
    const uint32_t *fifo_of;
    const struct gyre_content *received[GYRE_STEP_MAX_INS];
};

/** Clocks tell whether workers may touch a chunk at the same time, and whether credits can be left
 * out. */
static inline bool gyre_verify_needs_clocks(const struct gyre_verify_run *run)
{
    return run->shares_chunks || run->credits_elidable;
}

/** Errors: INVALID_ARGUMENT with the reason, OUT_OF_MEMORY. */
gyre_status gyre_verify_step(struct gyre_verify_act *act);

bool gyre_verify_receives(const struct gyre_step *step);

#endif
