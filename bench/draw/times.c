/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of a simulated call, or those of a trace in the same form.
 */
#include "bench/draw/drawing.h"

#include "bench/explain/trace_reader.h"
#include "core/foundation/base/status.h"
#include "core/foundation/base/util.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of all rail programs, though one is drawn. They take about a second. */
#define MAX_SIMULATED_STEPS 1000000

struct recorder {
    struct bench_draw_times *times;
    uint32_t variant;
    uint32_t capacity;
    gyre_status status;
};

static void record(void *observer, const struct gyre_simulated_step *step)
{
    struct recorder *recorder = observer;
    struct bench_draw_times *times = recorder->times;
    if (step->variant != recorder->variant || recorder->status != GYRE_SUCCESS)
        return;
    if (times->n_steps == recorder->capacity && times->n_steps >= BENCH_DRAW_MAX_STEPS)
        recorder->status =
            gyre_fail(GYRE_ERROR_UNSUPPORTED,
                      "the call has more than %u steps: give fewer --bytes or a larger --tile",
                      BENCH_DRAW_MAX_STEPS);
    else if (!gyre_grow(&times->steps, &recorder->capacity, times->n_steps + 1ULL,
                        sizeof(*times->steps)))
        recorder->status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY,
                                     "no memory for the times of %u steps", times->n_steps + 1);
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

struct arrival {
    uint64_t id;
    double seen_us; /* 0 = did not wait */
    double ready_us;
};

static int compare_arrivals(const void *left, const void *right)
{
    const struct arrival *a = left, *b = right;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* 0 = the call ran other programs. */
static uint32_t count_tiles(const struct bench_drawing *drawing, const struct bench_trace *trace,
                            int call)
{
    uint64_t n_steps = 0, n_expected = 0;
    uint32_t n_tiles = 0;
    for (uint32_t i = 0; i < trace->n_steps; i++) {
        const struct bench_trace_step *step = &trace->steps[i];
        if (step->call != call || step->channel != (int)drawing->variant)
            continue;
        if (step->pid < 0 || step->pid >= (int64_t)drawing->n_ranks || step->tile < 0)
            return 0;
        const struct gyre_program *program = drawing->programs[step->pid];
        if (step->worker < 0 || step->worker >= program->n_workers)
            return 0;
        const struct gyre_worker *worker = &program->workers[step->worker];
        if (step->step < 0 || (uint32_t)step->step >= worker->n_steps)
            return 0;
        const struct gyre_step *drawn = &program->steps[worker->first_step + (uint32_t)step->step];
        uint32_t n_sends = 0;
        for (uint32_t k = 0; k < drawn->n_outs; k++)
            n_sends += drawn->outs[k].kind == GYRE_OPERAND_CONNECTION;
        if (step->n_outs != n_sends)
            return 0;
        n_steps++;
        if ((uint32_t)step->tile >= n_tiles)
            n_tiles = (uint32_t)step->tile + 1;
    }
    for (uint32_t rank = 0; rank < drawing->n_ranks; rank++)
        n_expected += drawing->programs[rank]->n_steps;
    return n_steps == n_expected * n_tiles ? n_tiles : 0;
}

static gyre_status find_call(const struct bench_drawing *drawing, const struct bench_trace *trace,
                             const char *path, int *call, uint32_t *n_tiles_out)
{
    const struct bench_trace_call *seen = NULL;
    int last = -1;
    for (uint32_t i = 0; i < trace->n_calls; i++) {
        const struct bench_trace_call *own = &trace->calls[i];
        if (own->call <= last || (*call >= 0 && own->call != *call))
            continue;
        seen = own->algorithm[0] != '\0' ? own : seen;
        const uint32_t n_tiles = count_tiles(drawing, trace, own->call);
        if (n_tiles == 0)
            continue;
        last = own->call;
        *n_tiles_out = n_tiles;
    }
    if (last < 0 && seen == NULL && *call >= 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s has no steps of a call %d", path, *call);
    if (last < 0) {
        char ran[80] = "";
        if (seen != NULL)
            snprintf(ran, sizeof(ran), "; call %d ran %s %s", seen->call, seen->algorithm,
                     seen->collective);
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "%s has no %s that ran exactly these programs on all ranks%s", path,
                         *call < 0 ? "call" : "call of that number", ran);
    }
    *call = last;
    return GYRE_SUCCESS;
}

static int compare_starts(const void *left, const void *right)
{
    const struct gyre_simulated_step *a = left, *b = right;
    return a->start_ns < b->start_ns ? -1 : a->start_ns > b->start_ns;
}

static gyre_status take_times(struct bench_drawing *drawing, const struct bench_trace *trace,
                              const char *path, int call)
{
    struct bench_draw_times *times = &drawing->times;
    uint32_t n_arrivals = 0;
    double start_us = INFINITY, end_us = 0;
    GYRE_TRY(find_call(drawing, trace, path, &call, &times->n_tiles));
    GYRE_FREED struct arrival *arrivals = malloc(((size_t)trace->n_ids + 1) * sizeof(*arrivals));
    times->steps = malloc(((size_t)trace->n_steps + 1) * sizeof(*times->steps));
    if (arrivals == NULL || times->steps == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %u steps and %u slots",
                         trace->n_steps, trace->n_ids);
    for (uint32_t i = 0; i < trace->n_steps; i++) {
        const struct bench_trace_step *step = &trace->steps[i];
        for (uint32_t k = 0; k < step->n_ins; k++)
            arrivals[n_arrivals++] = (struct arrival){
                trace->ids[step->first_in + k], step->begin_us < step->data_us ? step->data_us : 0,
                step->ready_us};
    }
    qsort(arrivals, n_arrivals, sizeof(*arrivals), compare_arrivals);
    for (uint32_t i = 0; i < trace->n_calls; i++) {
        if (trace->calls[i].call != call || trace->calls[i].launch_us >= 0)
            continue;
        start_us = fmin(start_us, trace->calls[i].begin_us);
        end_us = fmax(end_us, trace->calls[i].end_us);
        times->simulation.n_bytes = (uint64_t)trace->calls[i].n_bytes;
    }
    for (uint32_t i = 0; i < trace->n_steps; i++) {
        const struct bench_trace_step *step = &trace->steps[i];
        if (step->call == call && (uint32_t)step->channel >= times->simulation.n_channels)
            times->simulation.n_channels = (uint32_t)step->channel + 1;
        if (step->call != call || step->channel != (int)drawing->variant)
            continue;
        struct gyre_simulated_step *added = &times->steps[times->n_steps++];
        *added = (struct gyre_simulated_step){
            .rank = (uint32_t)step->pid,
            .worker = (uint32_t)step->worker,
            .step = (uint32_t)step->step,
            .tile = (uint64_t)step->tile,
            .start_ns = (step->ready_us - start_us) * 1e3,
            .end_ns = (step->end_us - start_us) * 1e3,
            .n_sends = step->n_outs,
        };
        for (uint32_t k = 0; k < step->n_outs; k++) {
            const struct arrival wanted = {.id = trace->ids[step->first_out + k]};
            const struct arrival *found =
                bsearch(&wanted, arrivals, n_arrivals, sizeof(wanted), compare_arrivals);
            double seen_us = step->end_us;
            /* A slot can be used before the sender reads the clock. */
            if (found != NULL)
                seen_us = fmin(fmax(found->seen_us, seen_us), found->ready_us);
            added->arrived_ns[k] = (seen_us - start_us) * 1e3;
        }
        if (step->n_bytes > times->simulation.tile_bytes)
            times->simulation.tile_bytes = (uint32_t)step->n_bytes;
    }
    qsort(times->steps, times->n_steps, sizeof(*times->steps), compare_starts);
    times->prediction.time_ns = (end_us - start_us) * 1e3;
    times->is_measured = true;
    if (times->n_steps > BENCH_DRAW_MAX_STEPS)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "the call has %u steps; %u can be shown",
                         times->n_steps, BENCH_DRAW_MAX_STEPS);
    return GYRE_SUCCESS;
}

gyre_status bench_draw_measured_times(struct bench_drawing *drawing, const char *path, int call)
{
    struct bench_trace traces[2] = {{.n_ranks = 0}};
    bool is_simulated = false;
    gyre_status status = bench_trace_read(path, traces, &is_simulated);
    if (status == GYRE_SUCCESS)
        status = take_times(drawing, &traces[is_simulated], path, call);
    bench_trace_free(&traces[0]);
    bench_trace_free(&traces[1]);
    return status;
}
