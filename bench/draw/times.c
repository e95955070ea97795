/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps the simulator's steps (bench/draw/times.h).
 */
#include "bench/draw/times.h"

#include "core/foundation/base/status.h"

#include <stdlib.h>

/* The most steps that are simulated, of all variants together; they take about a second. The
 * drawing shows one variant. */
#define MAX_SIMULATED_STEPS 1000000

struct recorder {
    struct bench_draw_times *times;
    uint32_t variant;
    uint32_t capacity;
    gyre_status status;
};

static gyre_status grow(struct recorder *recorder)
{
    const uint32_t capacity = recorder->capacity == 0 ? 1024 : 2 * recorder->capacity;
    if (recorder->times->n_steps >= BENCH_DRAW_MAX_STEPS)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "the call has more than %u steps: give fewer --bytes or a larger --tile",
                         BENCH_DRAW_MAX_STEPS);
    struct gyre_simulated_step *steps = realloc(recorder->times->steps, capacity * sizeof(*steps));
    if (steps == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for the times of %u steps", capacity);
    recorder->times->steps = steps;
    recorder->capacity = capacity;
    return GYRE_SUCCESS;
}

static void record(void *observer, const struct gyre_simulated_step *step)
{
    struct recorder *recorder = observer;
    struct bench_draw_times *times = recorder->times;
    if (step->variant != recorder->variant || recorder->status != GYRE_SUCCESS)
        return;
    if (times->n_steps == recorder->capacity)
        recorder->status = grow(recorder);
    if (recorder->status != GYRE_SUCCESS)
        return;
    times->steps[times->n_steps++] = *step;
    if (step->tile >= times->n_tiles)
        times->n_tiles = (uint32_t)step->tile + 1;
}

gyre_status bench_draw_find_times(struct bench_drawing *drawing,
                                  const struct bench_schedule_request *request, uint64_t n_bytes)
{
    struct bench_draw_times *times = &drawing->times;
    struct recorder recorder = {.times = times, .variant = drawing->variant};
    times->simulation.observe = record;
    times->simulation.observer = &recorder;
    times->cost = request->cost == NULL ? "h200" : request->cost;
    const gyre_status status = bench_schedule_simulate(request, n_bytes, MAX_SIMULATED_STEPS,
                                                       &times->simulation, &times->prediction);
    times->simulation.observe = NULL;
    times->simulation.observer = NULL;
    return status == GYRE_SUCCESS ? recorder.status : status;
}
