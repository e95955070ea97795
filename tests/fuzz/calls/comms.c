/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of a new communicator follow from numbers that all ranks of its parent share, so every
 * rank knows what it must get, even if it is no communicator.
 */
#include "tests/fuzz/calls/calls.h"

#include "tests/fuzz/run.h"

#include <sched.h>
#include <string.h>

gyre_config fuzz_comms_config(const struct fuzz_rank *rank)
{
    gyre_config config = GYRE_CONFIG_INIT;
    config.device_kind = (int)rank->device->kind;
    if (rank->device->kind == GYRE_DEVICE_CUDA)
        config.device_ordinal = rank->ordinal;
    return config;
}

static bool is_pending(struct fuzz_rank *rank, gyre_comm *comm, const char *what)
{
    gyre_status status = GYRE_SUCCESS;
    if (comm == NULL)
        return false;
    FUZZ_TRY(rank, gyre_comm_async_error(comm, &status));
    if (status != GYRE_SUCCESS && status != GYRE_IN_PROGRESS)
        fuzz_fail(rank, FUZZ_FAILED, "%s in the background: %s: %s", what, gyre_status_name(status),
                  gyre_comm_last_error(comm));
    return status == GYRE_IN_PROGRESS;
}

/* For communicators that do not block. */
static void settle(struct fuzz_rank *rank, gyre_status status, gyre_comm *parent, gyre_comm *made,
                   const char *what)
{
    if (status != GYRE_IN_PROGRESS) {
        FUZZ_TRY(rank, status);
        return;
    }
    while (is_pending(rank, parent, what) || is_pending(rank, made, what))
        sched_yield();
}

/* Windows and registrations end before their communicator half of the time, else with it. */
static void drop(struct fuzz_rank *rank, int slot)
{
    struct fuzz_comm *comm = &rank->comms[slot];
    if (comm->handle == NULL)
        return;
    fuzz_rank_phase(rank, "destroying a communicator");
    if (comm->has_window && comm->uid >> 1 & 1)
        FUZZ_TRY(rank, gyre_window_deregister(comm->handle, comm->window));
    if (comm->has_registration && comm->uid >> 2 & 1)
        FUZZ_TRY(rank, gyre_comm_deregister(comm->handle, comm->registration));
    FUZZ_TRY(rank, gyre_comm_destroy(comm->handle));
    memset(comm, 0, sizeof(*comm));
}

/* Registers buffers with every second communicator. */
static void adopt(struct fuzz_rank *rank, const struct fuzz_comm *made)
{
    struct fuzz_comm *comm = &rank->comms[made->slot];
    size_t n_bytes;
    uint8_t *window = fuzz_place_window(rank, &n_bytes);
    int n_ranks = -1, own_rank = -1;
    *comm = *made;
    fuzz_rank_phase(rank, "asking a new communicator");
    FUZZ_TRY(rank, gyre_comm_count(comm->handle, &n_ranks));
    FUZZ_TRY(rank, gyre_comm_rank(comm->handle, &own_rank));
    if (n_ranks != comm->n_ranks || own_rank != comm->rank)
        fuzz_fail(rank, FUZZ_WRONG, "a new communicator says rank %d of %d, expected %d of %d",
                  own_rank, n_ranks, comm->rank, comm->n_ranks);
    atomic_fetch_add(&fuzz_shared->n_comms, 1);
    if (comm->uid >> 3 & 1) {
        fuzz_rank_phase(rank, "registering a window");
        const gyre_status status =
            gyre_window_register(comm->handle, window, n_bytes, &comm->window);
        comm->has_window = status == GYRE_SUCCESS;
        if (status != GYRE_ERROR_UNSUPPORTED)
            FUZZ_TRY(rank, status);
        atomic_fetch_add(&fuzz_shared->n_windows, comm->has_window);
    }
    if (comm->uid >> 4 & 1) {
        FUZZ_TRY(rank, gyre_comm_register(comm->handle, rank->send, rank->arena_bytes,
                                          &comm->registration));
        comm->has_registration = true;
    }
}

static gyre_comm *join_world(struct fuzz_rank *rank, long number, bool is_blocking)
{
    gyre_comm *made = NULL;
    gyre_config config = fuzz_comms_config(rank);
    gyre_unique_id *id = &fuzz_shared->ids[number % 2];
    config.blocking = is_blocking;
    if (rank->world_rank == 0) {
        FUZZ_TRY(rank, gyre_get_unique_id(id));
        atomic_store(&fuzz_shared->n_ids, number);
    }
    while (atomic_load(&fuzz_shared->n_ids) < number)
        sched_yield();
    const gyre_status status =
        gyre_comm_init_rank(&made, (int)fuzz_options.n_ranks, id, rank->world_rank, &config);
    settle(rank, status, NULL, made, "init");
    return made;
}

void fuzz_comms_open(struct fuzz_rank *rank, gyre_comm *made)
{
    const long number = ++rank->n_worlds;
    struct fuzz_comm world = {.n_ranks = (int)fuzz_options.n_ranks, .rank = rank->world_rank};
    world.uid = fuzz_mix((uint64_t)fuzz_options.seed * 31 + (uint64_t)number);
    fuzz_rank_phase(rank, "making the world communicator");
    world.handle = made != NULL ? made : join_world(rank, number, world.uid & 1);
    adopt(rank, &world);
}

void fuzz_comms_close(struct fuzz_rank *rank)
{
    for (int slot = FUZZ_N_SLOTS - 1; slot >= 0; slot--)
        drop(rank, slot);
}

struct splitting {
    int colors[FUZZ_MAX_RANKS], keys[FUZZ_MAX_RANKS];
};

/* That the split must give this rank; without its handle. */
static struct fuzz_comm expect(const struct fuzz_comm *parent, uint64_t salt,
                               const struct splitting *split)
{
    const int color = split->colors[parent->rank], key = split->keys[parent->rank];
    struct fuzz_comm made = {.uid = fuzz_mix(parent->uid ^ salt ^ (uint64_t)(color + 1) * 77)};
    for (int i = 0; i < parent->n_ranks; i++) {
        if (split->colors[i] != color)
            continue;
        const bool is_before = split->keys[i] < key || (split->keys[i] == key && i < parent->rank);
        made.n_ranks++;
        made.rank += is_before;
    }
    return made;
}

/* The configuration is the parent's or drawn; every fourth does not block. */
static gyre_status start_split(struct fuzz_rank *rank, const struct fuzz_comm *parent,
                               uint64_t salt, const struct splitting *split, gyre_comm **made_out)
{
    gyre_config config = fuzz_comms_config(rank);
    const int color = split->colors[parent->rank], key = split->keys[parent->rank];
    config.blocking = (salt >> 8) % 4 != 0;
    if ((salt >> 16) % 4 == 0)
        config.max_channels = 1 + (int)((salt >> 24) % 8);
    return gyre_comm_split(parent->handle, color, key, made_out,
                           (salt >> 32) % 4 == 0 ? NULL : &config);
}

static void split(struct fuzz_rank *rank, const struct fuzz_comm *parent, int slot, uint64_t salt)
{
    const bool is_grouped = (salt >> 40) % 4 == 0;
    struct splitting drawn;
    const uint64_t n_colors = 1 + salt % 3;
    for (int i = 0; i < parent->n_ranks; i++) {
        const uint64_t hash =
            fuzz_mix(parent->uid ^ salt ^ (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15));
        drawn.colors[i] = hash % 8 == 0 ? GYRE_SPLIT_NOCOLOR : (int)((hash >> 8) % n_colors);
        drawn.keys[i] = (int)((hash >> 20) % 5) - 2;
    }
    struct fuzz_comm made = expect(parent, salt, &drawn);
    made.slot = slot;
    fuzz_rank_phase(rank, is_grouped ? "splitting in a group" : "splitting");
    if (is_grouped)
        FUZZ_TRY(rank, gyre_group_start());
    gyre_status status = start_split(rank, parent, salt, &drawn, &made.handle);
    if (is_grouped) {
        if (status != GYRE_IN_PROGRESS)
            FUZZ_TRY(rank, status);
        status = gyre_group_end();
    }
    settle(rank, status, parent->handle, made.handle, "split");
    const int color = drawn.colors[parent->rank];
    if ((made.handle == NULL) != (color == GYRE_SPLIT_NOCOLOR))
        fuzz_fail(rank, FUZZ_WRONG, "a split with color %d gave %s", color,
                  made.handle == NULL ? "no communicator" : "a communicator");
    if (made.handle != NULL)
        adopt(rank, &made);
}

/* At most all but one leave; the parent ends on all of them. */
static void shrink(struct fuzz_rank *rank, int slot, uint64_t salt)
{
    const struct fuzz_comm parent = rank->comms[slot];
    struct fuzz_comm made = {.slot = slot, .uid = fuzz_mix(parent.uid ^ salt)};
    int excluded[FUZZ_MAX_RANKS], n_excluded = 0;
    bool is_excluded = false;
    gyre_config config = fuzz_comms_config(rank);
    for (int i = 0; i < parent.n_ranks; i++) {
        const bool leaves =
            fuzz_mix(parent.uid ^ salt ^ (uint64_t)i) % 3 == 0 && n_excluded < parent.n_ranks - 1;
        if (leaves)
            excluded[n_excluded++] = i;
        else
            made.rank += i < parent.rank;
        is_excluded = is_excluded || (leaves && i == parent.rank);
    }
    made.n_ranks = parent.n_ranks - n_excluded;
    fuzz_rank_phase(rank, "shrinking");
    if (!is_excluded) {
        config.blocking = salt >> 8 & 1;
        const gyre_status status =
            gyre_comm_shrink(parent.handle, excluded, n_excluded, GYRE_SHRINK_DEFAULT, &made.handle,
                             salt >> 9 & 1 ? NULL : &config);
        settle(rank, status, parent.handle, made.handle, "shrink");
    }
    drop(rank, slot);
    if (!is_excluded)
        adopt(rank, &made);
}

/* All ranks draw the same, even without part in it. */
void fuzz_comms_change(struct fuzz_rank *rank, struct fuzz_rng *rng)
{
    const uint64_t what = fuzz_below(rng, 12), salt = fuzz_next(rng);
    const int other = (int)fuzz_below(rng, FUZZ_N_SLOTS);
    const int parent = fuzz_once_in(rng, 2) ? 0 : other;
    const int slot = 1 + (int)fuzz_below(rng, FUZZ_N_SLOTS - 1);
    if (what == 0) {
        drop(rank, 0);
        fuzz_comms_open(rank, NULL);
    } else if (what == 1 && rank->comms[slot].n_ranks > 1) {
        shrink(rank, slot, salt);
    } else if (what == 2) {
        drop(rank, slot);
    } else if (what > 2 && parent != slot) {
        drop(rank, slot);
        if (rank->comms[parent].handle != NULL)
            split(rank, &rank->comms[parent], slot, salt);
    }
}
