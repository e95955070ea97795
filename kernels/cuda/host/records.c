/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/util.h"
#include "kernels/cuda/host/record_run.h"

#include <stdlib.h>

static uint64_t count_kept(const struct gyre_cuda_records *records, uint32_t ring)
{
    return gyre_min_u64(records->recorder->blocks[ring].n_entries, records->recorder->capacity);
}

static void find_worker(const struct gyre_cuda_records *records,
                        const union gyre_cuda_record *facts, struct gyre_cuda_block_run *run)
{
    const uint32_t first = facts->facts.program, block = facts->facts.block;
    run->program = first < records->n_programs ? &records->programs[first] : NULL;
    if (run->program == NULL || run->program->lowered == NULL || run->program->n_workers == 0)
        return;
    const unsigned char *blob = (const unsigned char *)run->program->lowered;
    uint32_t n_variants = 1; /* their numbers follow each other */
    while (first + n_variants < records->n_programs &&
           records->programs[first + n_variants].variant == n_variants)
        n_variants++;
    run->channel = block / run->program->n_workers;
    run->program += run->channel % n_variants;
    run->run.worker = (uint8_t)(block % run->program->n_workers);
    run->worker =
        (const struct gyre_cuda_worker *)(const void *)(blob +
                                                        run->program->lowered->workers_offset) +
        run->program->variant * run->program->n_workers + run->run.worker;
}

/* False: not whole. */
static bool read_run(const struct gyre_cuda_records *records, uint32_t ring, uint64_t end,
                     uint64_t oldest, struct gyre_cuda_block_run *run)
{
    const uint64_t at = end - GYRE_CUDA_RUN_ENTRIES;
    *run = (struct gyre_cuda_block_run){.ring = ring, .last = at};
    if (end < oldest + GYRE_CUDA_RUN_ENTRIES)
        return false;
    const union gyre_cuda_record *times = gyre_cuda_record_entry(records, ring, at);
    const union gyre_cuda_record *marks = gyre_cuda_record_entry(records, ring, at + 1);
    const union gyre_cuda_record *facts = gyre_cuda_record_entry(records, ring, at + 2);
    for (int i = 0; i < 4; i++)
        if (marks->marks_ns[i] != 0)
            run->marks_ns[i] = gyre_cuda_clock_to_host(&records->clock, marks->marks_ns[i]);
    run->n_ends = facts->facts.n_ends;
    run->n_steps = facts->facts.n_steps;
    run->n_tiles = facts->facts.n_tiles;
    run->kind = facts->facts.kind;
    run->slot_bytes = facts->facts.slot_bytes;
    run->run.kind = GYRE_TRACE_RUN;
    run->run.begin_ns = gyre_cuda_clock_to_host(&records->clock, times->run.begin_ns);
    run->run.end_ns = gyre_cuda_clock_to_host(&records->clock, times->run.end_ns);
    run->run.call = times->run.call;
    run->run.sequence = times->run.sequence;
    run->run.n_bytes = gyre_cuda_record_entry(records, ring, at + 3)->call.n_bytes;
    run->run.program = facts->facts.first_program;
    find_worker(records, facts, run);
    const uint64_t n_before = run->n_steps + gyre_div_round_up(run->n_ends, 4);
    run->first = at - gyre_min_u64(n_before, at);
    run->is_whole = at >= oldest + n_before;
    return true;
}

/* @closes: the sync kernel behind the copies of the call read before, or kind STEPS. */
static void add_run(struct gyre_cuda_reading *reading, const struct gyre_cuda_block_run *run,
                    struct gyre_cuda_block_run *closes)
{
    if (run->run.program >= reading->records->n_programs)
        return; /* for an observer; the trace had no room for its program */
    reading->runs.events[reading->runs.n_events++] = run->run;
    if (closes->kind == GYRE_CUDA_RUN_CLOSES && closes->run.call == run->run.call)
        gyre_cuda_add_copies(reading, run, closes);
    *closes = *run;
    if (run->worker == NULL || !run->is_whole)
        return;
    if (run->kind == GYRE_CUDA_RUN_FUSED && run->n_ends > 0) /* LAMPORT's kernels say too little */
        gyre_cuda_add_phases(reading, run);
    else if (run->kind == GYRE_CUDA_RUN_STEPS && run->worker->n_steps > 0)
        gyre_cuda_add_steps(reading, run);
}

static void read_ring(struct gyre_cuda_reading *reading, uint32_t ring)
{
    const struct gyre_cuda_records *records = reading->records;
    const uint64_t n_entries = records->recorder->blocks[ring].n_entries;
    const uint64_t oldest = n_entries - count_kept(records, ring);
    struct gyre_cuda_block_run run = {0}, closes = {0};
    uint64_t end = n_entries, complete_ns = 0;
    bool goes_on = true;
    while (end > 0 && goes_on) {
        if (!read_run(records, ring, end, oldest, &run))
            break;
        add_run(reading, &run, &closes);
        complete_ns = run.is_whole ? run.run.begin_ns : run.run.end_ns;
        end = run.first;
        goes_on = run.is_whole;
    }
    if (end == 0 && goes_on)
        return;
    reading->steps.n_lost += n_entries - gyre_min_u64(n_entries, records->recorder->capacity);
    reading->steps.complete_ns = gyre_max_u64(reading->steps.complete_ns, complete_ns);
}

static int compare_calls(const void *left, const void *right)
{
    const struct gyre_trace_event *a = left, *b = right;
    return a->call < b->call ? -1 : a->call > b->call;
}

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
    struct gyre_cuda_reading reading = {.records = records,
                                        .steps.clock_error_ns = records->clock.error_ns};
    uint64_t n_all = 0;
    for (uint32_t ring = 0; ring < records->n_blocks; ring++)
        n_all += count_kept(records, ring);
    /* A launch takes GYRE_CUDA_RUN_ENTRIES or more entries: its steps, up to three events,
     * itself. */
    reading.steps.events = malloc((n_all + 1) * sizeof(*reading.steps.events));
    reading.runs.events = malloc((n_all + 1) * sizeof(*reading.runs.events));
    if (reading.steps.events == NULL || reading.runs.events == NULL) {
        free(reading.steps.events);
        free(reading.runs.events);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %llu events",
                         (unsigned long long)n_all);
    }
    for (uint32_t ring = 0; ring < records->n_blocks; ring++)
        read_ring(&reading, ring);
    merge_runs(&reading.runs, &reading.steps);
    free(reading.runs.events);
    *events_out = reading.steps;
    return GYRE_SUCCESS;
}
