/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the rings of recording kernels (records.h). A ring has the events of a launch in order:
 * its steps, then the launch. So the oldest events of a ring that was full are always steps or
 * launches whose own event comes later.
 */
#include "kernels/cuda/host/records.h"

#include "core/base/util.h"

#include <stdlib.h>

/* ---- clocks ------------------------------------------------------------------------------- */

void gyre_cuda_clock_add(struct gyre_cuda_clock *clock, const struct gyre_cuda_clock_round *rounds,
                         uint32_t n_rounds)
{
    int64_t lowest_ns = INT64_MIN, highest_ns = INT64_MAX; /* GPU minus host */
    for (uint32_t i = 0; i < n_rounds; i++) {
        const int64_t low = (int64_t)(rounds[i].gpu_ns - rounds[i].answered_ns);
        const int64_t high = (int64_t)(rounds[i].gpu_ns - rounds[i].asked_ns);
        lowest_ns = low > lowest_ns ? low : lowest_ns;
        highest_ns = high < highest_ns ? high : highest_ns;
    }
    if (n_rounds == 0)
        return;
    /* The GPU's clock moves in steps, so the bounds can cross by less than a step. */
    const int64_t width_ns =
        highest_ns > lowest_ns ? highest_ns - lowest_ns : lowest_ns - highest_ns;
    const int64_t offset_ns = (highest_ns < lowest_ns ? highest_ns : lowest_ns) + width_ns / 2;
    const uint32_t at = clock->n_points > 0;
    clock->gpu_ns[at] = rounds[n_rounds - 1].gpu_ns;
    clock->host_ns[at] = rounds[n_rounds - 1].gpu_ns - (uint64_t)offset_ns;
    clock->error_ns = gyre_max_u64(clock->error_ns, (uint64_t)width_ns / 2 + 1);
    clock->n_points = at + 1;
}

uint64_t gyre_cuda_clock_to_host(const struct gyre_cuda_clock *clock, uint64_t gpu_ns)
{
    const int64_t since_ns = (int64_t)(gpu_ns - clock->gpu_ns[0]);
    const int64_t span_ns = (int64_t)(clock->gpu_ns[1] - clock->gpu_ns[0]);
    int64_t drift_ns = 0; /* what the host's clock went more in that time */
    if (clock->n_points == 2 && span_ns > 0)
        drift_ns = (int64_t)((double)((int64_t)(clock->host_ns[1] - clock->host_ns[0]) - span_ns) *
                             ((double)since_ns / (double)span_ns));
    return clock->host_ns[0] + (uint64_t)(since_ns + drift_ns);
}

/* ---- rings -------------------------------------------------------------------------------- */

static uint64_t count_kept(const struct gyre_cuda_recorder *recorder, uint32_t block)
{
    return gyre_min_u64(recorder->blocks[block].n_events, recorder->capacity);
}

static void convert(const struct gyre_cuda_clock *clock, struct gyre_trace_event *event)
{
    event->begin_ns = gyre_cuda_clock_to_host(clock, event->begin_ns);
    event->data_ns = gyre_cuda_clock_to_host(clock, event->data_ns);
    event->ready_ns = gyre_cuda_clock_to_host(clock, event->ready_ns);
    event->end_ns = gyre_cuda_clock_to_host(clock, event->end_ns);
}

/* Makes a worker's step a step of its program. */
static void place_step(const struct gyre_cuda_records *records, struct gyre_trace_event *event)
{
    if (event->program < records->n_programs &&
        event->worker < records->programs[event->program].n_workers)
        event->step += records->programs[event->program].first_steps[event->worker];
}

/* Gives the steps of a launch its number, and lets each begin after the end of the one before. */
static void finish_steps(const struct gyre_trace_event *run, struct gyre_trace_event *steps,
                         uint64_t n_steps)
{
    uint64_t last_ns = run->begin_ns;
    for (uint64_t i = 0; i < n_steps; i++) {
        struct gyre_trace_event *step = &steps[i];
        step->call = run->call;
        step->sequence = run->sequence;
        step->begin_ns = gyre_max_u64(step->begin_ns, last_ns);
        step->data_ns = gyre_max_u64(step->data_ns, step->begin_ns);
        step->ready_ns = gyre_max_u64(step->ready_ns, step->data_ns);
        step->end_ns = gyre_max_u64(step->end_ns, step->ready_ns);
        last_ns = step->end_ns;
    }
}

/* Reads one ring: steps go to `steps`, launches to `runs`. */
static void read_ring(const struct gyre_cuda_records *records, uint32_t block,
                      struct gyre_trace_events *steps, struct gyre_trace_events *runs)
{
    const struct gyre_cuda_recorder *recorder = records->recorder;
    const struct gyre_trace_event *ring = recorder->events + (size_t)block * recorder->capacity;
    const uint64_t n_events = recorder->blocks[block].n_events;
    const uint64_t n_kept = count_kept(recorder, block);
    uint64_t n_finished = steps->n_events;
    for (uint64_t n = n_events - n_kept; n < n_events; n++) {
        struct gyre_trace_event event = ring[n & (recorder->capacity - 1)];
        convert(&records->clock, &event);
        if (n == n_events - n_kept && n > 0)
            steps->complete_ns = gyre_max_u64(steps->complete_ns, event.end_ns);
        if (event.kind == GYRE_TRACE_STEP) {
            place_step(records, &event);
            steps->events[steps->n_events++] = event;
            continue;
        }
        finish_steps(&event, steps->events + n_finished, steps->n_events - n_finished);
        n_finished = steps->n_events;
        runs->events[runs->n_events++] = event;
    }
    steps->n_lost += n_events - n_kept;
}

static int compare_calls(const void *left, const void *right)
{
    const struct gyre_trace_event *a = left, *b = right;
    return a->call < b->call ? -1 : a->call > b->call;
}

/* Makes one event of the events of all blocks, and adds it to the steps. */
static void merge_runs(struct gyre_trace_events *runs, struct gyre_trace_events *steps)
{
    if (runs->n_events > 0)
        qsort(runs->events, runs->n_events, sizeof(*runs->events), compare_calls);
    for (uint64_t i = 0; i < runs->n_events; i++) {
        const struct gyre_trace_event *run = &runs->events[i];
        struct gyre_trace_event *last =
            steps->n_events > 0 ? &steps->events[steps->n_events - 1] : NULL;
        if (i > 0 && run->call == run[-1].call && last != NULL) {
            last->begin_ns = gyre_min_u64(last->begin_ns, run->begin_ns);
            last->end_ns = gyre_max_u64(last->end_ns, run->end_ns);
            continue;
        }
        steps->events[steps->n_events++] = *run;
    }
}

gyre_status gyre_cuda_records_read(const struct gyre_cuda_records *records,
                                   struct gyre_trace_events *events_out)
{
    struct gyre_trace_events events = {.clock_error_ns = records->clock.error_ns}, runs = {0};
    uint64_t n_all = 0;
    for (uint32_t block = 0; block < records->n_blocks; block++)
        n_all += count_kept(records->recorder, block);
    events.events = malloc((n_all + 1) * sizeof(*events.events));
    runs.events = malloc((n_all + 1) * sizeof(*runs.events));
    if (events.events == NULL || runs.events == NULL) {
        free(events.events);
        free(runs.events);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %llu events",
                         (unsigned long long)n_all);
    }
    for (uint32_t block = 0; block < records->n_blocks; block++)
        read_ring(records, block, &events, &runs);
    merge_runs(&runs, &events);
    free(runs.events);
    *events_out = events;
    return GYRE_SUCCESS;
}
