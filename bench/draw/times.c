/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps the simulator's steps (bench/draw/times.h).
 */
#include "bench/draw/times.h"

#include "core/base/status.h"

#include <stdlib.h>

struct recorder {
    struct bench_draw_times *times;
    uint32_t variant;
    uint32_t capacity;
    bool is_full;
};

static void record(void *observer, const struct gyre_simulated_step *step)
{
    struct recorder *recorder = observer;
    struct bench_draw_times *times = recorder->times;
    if (step->variant != recorder->variant || recorder->is_full)
        return;
    if (times->n_steps == recorder->capacity) {
        const uint32_t capacity = recorder->capacity == 0 ? 1024 : 2 * recorder->capacity;
        struct gyre_simulated_step *steps = NULL;
        if (times->n_steps < BENCH_DRAW_MAX_STEPS)
            steps = realloc(times->steps, capacity * sizeof(*steps));
        recorder->is_full = steps == NULL;
        if (recorder->is_full)
            return;
        times->steps = steps;
        recorder->capacity = capacity;
    }
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
    const gyre_status status =
        bench_schedule_simulate(request, n_bytes, &times->simulation, &times->prediction);
    times->simulation.observe = NULL;
    times->simulation.observer = NULL;
    if (status == GYRE_SUCCESS && recorder.is_full)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "%llu bytes have too many tiles to draw (over %u steps): give fewer "
                         "--bytes",
                         (unsigned long long)n_bytes, BENCH_DRAW_MAX_STEPS);
    return status;
}
