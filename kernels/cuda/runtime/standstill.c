/* SPDX-License-Identifier: Apache-2.0
 *
 * The executor remembers its latest works and how many tiles each program has run, and so each FIFO
 * end's slots. Nothing here calls CUDA or waits for the launching thread, because either may be
 * stuck.
 */
#include "kernels/cuda/host/position.h"
#include "kernels/cuda/runtime/state.h"

#include "core/foundation/base/sync.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Waiting blocks report every 8 ms, or every 30 ms where polls take long. */
#define REPORT_NAP_NS 100000000L

gyre_status gyre_cuda_know_program(struct gyre_cuda_executor *executor,
                                   const struct gyre_load_config *config,
                                   struct gyre_loaded *loaded)
{
    loaded->programs = calloc(loaded->n_variants, sizeof(*loaded->programs));
    if (loaded->programs == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "cannot load algorithm %s",
                         config->program->algorithm);
    for (uint32_t v = 0; v < loaded->n_variants; v++)
        loaded->programs[v] = gyre_load_program(config, v);
    pthread_mutex_lock(&executor->lock);
    loaded->next = executor->first_loaded;
    executor->first_loaded = loaded;
    pthread_mutex_unlock(&executor->lock);
    return GYRE_SUCCESS;
}

static struct gyre_cuda_known_work known_work(const struct gyre_loaded *loaded)
{
    return (struct gyre_cuda_known_work){
        .lowered = loaded->program,
        .programs = loaded->programs,
        .proto = loaded->proto,
        .n_channels = loaded->n_channels,
        .n_variants = loaded->n_variants,
        .n_workers = loaded->n_workers,
        .n_in_flight = loaded->n_in_flight,
        .channel_stride = loaded->channel_stride,
    };
}

void gyre_cuda_forget_program(struct gyre_cuda_executor *executor, struct gyre_loaded *loaded)
{
    const struct gyre_cuda_known_work work = known_work(loaded);
    struct gyre_loaded **at = &executor->first_loaded;
    while (*at != NULL && *at != loaded)
        at = &(*at)->next;
    if (*at != NULL)
        *at = loaded->next;
    if (executor->slots_of_unloaded != NULL)
        gyre_cuda_count_slots(&work, loaded->n_tiles_run, gyre_cuda_n_ends(executor),
                              executor->slots_of_unloaded);
    for (uint32_t i = 0; i < GYRE_CUDA_REMEMBERED; i++)
        if (executor->remembered[i].loaded == loaded)
            executor->remembered[i].loaded = NULL;
    free(loaded->programs);
}

void gyre_cuda_remember(struct gyre_cuda_executor *executor, const struct gyre_work *works,
                        uint32_t n_works, uint64_t number)
{
    for (uint32_t i = 0; i < n_works; i++) {
        struct gyre_loaded *loaded = works[i].ready->loaded;
        const uint32_t n_tiles = (uint32_t)gyre_tile_count(&works[i].ready->split);
        loaded->n_tiles_run += n_tiles;
        executor->miscounts = executor->miscounts || loaded->copies != NULL;
        executor->remembered[(number + i) % GYRE_CUDA_REMEMBERED] = (struct gyre_cuda_remembered){
            .loaded = loaded,
            .number = number + i,
            .first = number,
            .sequence = works[i].sequence,
            .n_tiles = n_tiles,
        };
    }
}

/* Of the running launch. */
struct inquiry {
    struct gyre_cuda_standstill still;
    struct gyre_cuda_known_work works[GYRE_CUDA_MAX_WORKS];
    uint64_t *counters;
};

static const struct gyre_cuda_remembered *recall(const struct gyre_cuda_executor *executor,
                                                 uint64_t number)
{
    const struct gyre_cuda_remembered *found = &executor->remembered[number % GYRE_CUDA_REMEMBERED];
    return found->loaded != NULL && found->number == number ? found : NULL;
}

/* The caller holds the lock and frees inquiry->counters. False: the launch or a later one is not
 * remembered, or the GPU counts other works than the host, as after a capture. */
static bool inquire(const struct gyre_cuda_executor *executor, uint64_t completed,
                    struct inquiry *inquiry)
{
    const uint32_t n_ends = gyre_cuda_n_ends(executor);
    const size_t n_words = (size_t)n_ends * GYRE_N_SLOT_PROTOS;
    memset(inquiry, 0, sizeof(*inquiry));
    if (executor->last_capture != 0 || executor->miscounts || executor->slots_of_unloaded == NULL)
        return false;
    inquiry->still.works = inquiry->works;
    for (uint64_t number = completed; number < executor->base.n_launched; number++) {
        const struct gyre_cuda_remembered *found = recall(executor, number);
        if (found == NULL)
            return false;
        if (found->first != completed || inquiry->still.n_works == GYRE_CUDA_MAX_WORKS)
            continue;
        struct gyre_cuda_known_work *work = &inquiry->works[inquiry->still.n_works];
        *work = known_work(found->loaded);
        work->number = number;
        work->sequence = found->sequence;
        work->n_tiles = found->n_tiles;
        work->place = (uint16_t)inquiry->still.n_works++;
    }
    if (inquiry->still.n_works == 0)
        return false;
    /* The ends' slots before the running launch. */
    inquiry->counters = malloc((n_words + 1) * sizeof(*inquiry->counters));
    if (inquiry->counters == NULL)
        return false;
    memcpy(inquiry->counters, executor->slots_of_unloaded, n_words * sizeof(*inquiry->counters));
    for (const struct gyre_loaded *loaded = executor->first_loaded; loaded != NULL;
         loaded = loaded->next) {
        const struct gyre_cuda_known_work work = known_work(loaded);
        uint64_t n_tiles = loaded->n_tiles_run;
        for (uint64_t number = completed; number < executor->base.n_launched; number++)
            n_tiles -=
                recall(executor, number)->loaded == loaded ? recall(executor, number)->n_tiles : 0;
        gyre_cuda_count_slots(&work, n_tiles, n_ends, inquiry->counters);
    }
    inquiry->still.spec = &executor->spec;
    inquiry->still.connectors = executor->connectors;
    inquiry->still.n_ends = n_ends;
    inquiry->still.counters = inquiry->counters;
    return true;
}

/* Of waiting blocks, at most `most`. Returns their number. */
static uint32_t find_positions(const struct gyre_cuda_executor *executor,
                               const struct inquiry *inquiry, struct gyre_position *positions_out,
                               uint32_t most)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < GYRE_CUDA_MAX_BLOCKS; i++) {
        struct gyre_position position;
        uint64_t value;
        /* They change together. */
        uint64_t address, again = gyre_load_acquire_u64(&executor->mailbox->awaited[i].address);
        do {
            address = again;
            value = gyre_load_acquire_u64(&executor->mailbox->awaited[i].value);
            again = gyre_load_acquire_u64(&executor->mailbox->awaited[i].address);
        } while (again != address);
        if (address == 0 || !gyre_cuda_position(&inquiry->still, address, value, &position))
            continue;
        if (n < most)
            positions_out[n] = position;
        n++;
    }
    return n;
}

static gyre_status fail_unknown(const struct gyre_cuda_executor *executor)
{
    return gyre_fail(GYRE_ERROR_UNSUPPORTED, "rank %d: the step of the running kernel is not known",
                     executor->rank);
}

gyre_status gyre_cuda_positions(struct gyre_executor *base, struct gyre_position *positions_out,
                                uint32_t most, uint32_t *n_out)
{
    struct gyre_cuda_executor *executor = gyre_cuda_own(base);
    const struct timespec nap = {0, REPORT_NAP_NS};
    const struct gyre_progress before = base->ops->progress(base);
    uint32_t n = 0;
    if (before.activity <= before.completed) { /* no kernel runs */
        *n_out = 0;
        return GYRE_SUCCESS;
    }
    for (uint32_t i = 0; i < GYRE_CUDA_MAX_BLOCKS; i++)
        gyre_store_release_u64(&executor->mailbox->awaited[i].address, 0);
    nanosleep(&nap, NULL);
    struct inquiry *inquiry = malloc(sizeof(*inquiry));
    if (inquiry == NULL || pthread_mutex_trylock(&executor->lock) != 0) {
        free(inquiry);
        return fail_unknown(executor);
    }
    const uint64_t completed = base->ops->progress(base).completed;
    if (inquire(executor, completed, inquiry) && completed == before.completed)
        n = find_positions(executor, inquiry, positions_out, most);
    free(inquiry->counters);
    pthread_mutex_unlock(&executor->lock);
    free(inquiry);
    if (n == 0)
        return fail_unknown(executor);
    *n_out = n;
    return GYRE_SUCCESS;
}

/* From positions that blocks have reported. A rank whose works are over holds no end. */
gyre_status gyre_cuda_side_state(struct gyre_executor *base, const struct gyre_side_name *name,
                                 struct gyre_side_state *state_out)
{
    struct gyre_cuda_executor *executor = gyre_cuda_own(base);
    struct gyre_position positions[GYRE_CUDA_MAX_BLOCKS / 4];
    struct inquiry *inquiry = NULL;
    bool is_known = false;
    if (name->peer >= (uint32_t)executor->n_ranks || name->fifo >= executor->spec.n_fifos)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "rank %d has no FIFO %u with rank %u",
                         executor->rank, name->fifo, name->peer);
    const uint32_t index =
        gyre_connector_index(&executor->spec, name->peer, name->fifo, name->is_send);
    const uint64_t completed = base->ops->progress(base).completed;
    if (completed >= gyre_load_acquire_u64(&base->n_launched)) {
        *state_out = (struct gyre_side_state){0};
        return GYRE_SUCCESS;
    }
    inquiry = malloc(sizeof(*inquiry));
    if (inquiry != NULL && pthread_mutex_trylock(&executor->lock) == 0) {
        if (inquire(executor, completed, inquiry)) {
            const uint32_t most = sizeof(positions) / sizeof(positions[0]);
            const uint32_t n = find_positions(executor, inquiry, positions, most);
            is_known = gyre_cuda_end_of(&inquiry->still, index, name->is_lines, positions,
                                        gyre_min_u32(n, most), state_out);
        }
        free(inquiry->counters);
        pthread_mutex_unlock(&executor->lock);
    }
    free(inquiry);
    return is_known ? GYRE_SUCCESS : fail_unknown(executor);
}
