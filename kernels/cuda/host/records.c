/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/sync.h"
#include "core/foundation/base/util.h"
#include "kernels/cuda/host/records.h"

#include <stdlib.h>

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
    /* The GPU's clock moves in steps, so the bounds can cross by less than one. */
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
    int64_t drift_ns = 0;
    if (clock->n_points == 2 && span_ns > 0)
        drift_ns = (int64_t)((double)((int64_t)(clock->host_ns[1] - clock->host_ns[0]) - span_ns) *
                             ((double)since_ns / (double)span_ns));
    return clock->host_ns[0] + (uint64_t)(since_ns + drift_ns);
}

bool gyre_cuda_span_read(const struct gyre_cuda_span *spans, uint32_t n_blocks, uint64_t work,
                         const struct gyre_cuda_clock *clock, uint64_t *begin_ns_out,
                         uint64_t *end_ns_out)
{
    const struct gyre_cuda_span *own = &spans[work % GYRE_CUDA_SPANS * n_blocks];
    uint64_t begin_ns = UINT64_MAX, end_ns = 0;
    for (uint32_t block = 0; block < n_blocks; block++) {
        if (gyre_load_acquire_u64(&own[block].call) != work + 1)
            continue;
        begin_ns = gyre_min_u64(begin_ns, gyre_load_acquire_u64(&own[block].begin_ns));
        end_ns = gyre_max_u64(end_ns, gyre_load_acquire_u64(&own[block].end_ns));
    }
    if (end_ns == 0)
        return false;
    *begin_ns_out = gyre_cuda_clock_to_host(clock, begin_ns);
    *end_ns_out = gyre_cuda_clock_to_host(clock, end_ns);
    return true;
}

struct reading {
    const struct gyre_cuda_records *records;
    struct gyre_trace_events steps;
    struct gyre_trace_events runs;
};

struct block_run {
    const struct gyre_cuda_record_program *program; /* of the block's variant, or NULL */
    const struct gyre_cuda_worker *worker;          /* likewise */
    uint64_t first;                                 /* of its first entry */
    uint64_t last;                                  /* in the run's first entry */
    uint32_t ring;
    uint32_t channel;
    uint32_t n_ends;
    uint32_t n_steps;
    uint32_t n_tiles;
    uint32_t kind;
    uint32_t slot_bytes;
    bool is_complete;            /* nothing was overwritten */
    struct gyre_trace_event run; /* in the host's time */
    uint64_t marks_ns[4];        /* likewise; 0 = not reached */
};

static const union gyre_cuda_record *entry_at(const struct gyre_cuda_records *records,
                                              uint32_t ring, uint64_t number)
{
    const struct gyre_cuda_recorder *recorder = records->recorder;
    return recorder->entries + (size_t)ring * recorder->capacity +
           (number & (recorder->capacity - 1));
}

static const struct gyre_cuda_step *step_of(const struct block_run *run, uint32_t step)
{
    const struct gyre_cuda_program *blob = run->program->lowered;
    return (const struct gyre_cuda_step *)(const void *)((const unsigned char *)blob +
                                                         blob->steps_offset) +
           run->worker->first_step + step;
}

static void add_slot(const struct reading *reading, const struct block_run *run, uint32_t tile,
                     const struct gyre_cuda_operand *operand, bool is_out,
                     struct gyre_trace_event *event)
{
    const struct gyre_cuda_program *blob = run->program->lowered;
    const struct gyre_cuda_connection *own =
        (const struct gyre_cuda_connection *)(const void *)((const unsigned char *)blob +
                                                            blob->connections_offset) +
        run->worker->first_connection + (operand->ref & (GYRE_CUDA_REF_PLACED - 1));
    const uint32_t index = own->index + run->channel * run->program->channel_stride;
    for (uint32_t i = 0; i < run->n_ends; i++) {
        const union gyre_cuda_record *entry =
            entry_at(reading->records, run->ring, run->first + i / 4);
        if (entry->ends[i % 4].index != index)
            continue;
        /* As slots_before() in device/block.cuh. */
        const uint32_t n_uses = own->n_uses;
        const uint32_t use = operand->use;
        const uint32_t n_in_flight = (uint32_t)gyre_max_u64(run->program->n_in_flight, 1);
        const uint32_t place = tile % n_in_flight, first = tile - place;
        const uint64_t number =
            (uint64_t)entry->ends[i % 4].number +
            (first * n_uses + use * gyre_min_u32(n_in_flight, run->n_tiles - first) + place);
        const struct gyre_trace_slot slot = {
            (uint16_t)(index / reading->records->ends_per_rank),
            (uint16_t)(index % reading->records->ends_per_rank / 2),
            gyre_trace_number(number, false)};
        gyre_trace_add_slot(event, &slot, is_out);
    }
}

static void add_slots(const struct reading *reading, const struct block_run *run, uint32_t number,
                      uint32_t tile, bool is_out, struct gyre_trace_event *event)
{
    const struct gyre_cuda_step *step = step_of(run, number);
    const uint32_t mask = is_out ? step->send_mask : step->recv_mask;
    const struct gyre_cuda_operand *operands = is_out ? step->outs : step->ins;
    for (uint32_t i = 0; i < (is_out ? step->n_outs : step->n_ins); i++)
        if ((mask >> i & 1) != 0)
            add_slot(reading, run, tile, &operands[i], is_out, event);
}

/* Without times and slots. */
static struct gyre_trace_event step_event(const struct reading *reading,
                                          const struct block_run *run, uint32_t step, uint32_t tile)
{
    struct gyre_trace_event event = {
        .call = run->run.call,
        .sequence = run->run.sequence,
        .program = (uint32_t)(run->program - reading->records->programs),
        .step_of_worker = step,
        .tile = tile,
        .channel = (uint16_t)run->channel,
        .worker = run->run.worker,
        .kind = GYRE_TRACE_STEP,
    };
    event.step = run->worker->first_step - run->program->first_step + step;
    return event;
}

/* Sending inputs or copying the own one, reducing, and receiving results. */
enum phase { PHASE_SEND, PHASE_REDUCE, PHASE_GATHER, N_PHASES };

/* Of the phase's steps in all tiles, with as many slots as it holds. False: it has none. */
static bool phase_event(const struct reading *reading, const struct block_run *run,
                        enum phase phase, struct gyre_trace_event *event_out)
{
    uint32_t n_found = 0;
    for (int is_out = 0; is_out < 2; is_out++)
        for (uint32_t tile = 0; tile < run->n_tiles; tile++)
            for (uint32_t step = 0; step < run->worker->n_steps; step++) {
                const struct gyre_cuda_step *own = step_of(run, step);
                if (phase != (own->recv_mask == 0 ? PHASE_SEND
                              : own->n_ins > 1    ? PHASE_REDUCE
                                                  : PHASE_GATHER))
                    continue;
                if (n_found++ == 0)
                    *event_out = step_event(reading, run, step, 0);
                add_slots(reading, run, step, tile, is_out != 0, event_out);
            }
    event_out->n_bytes = run->slot_bytes;
    return n_found > 0;
}

/* A first arrival belongs to the first phase that receives. */
static void add_phases(struct reading *reading, const struct block_run *run)
{
    const uint64_t sent_ns = run->marks_ns[GYRE_CUDA_MARK_SENT];
    const uint64_t passed_on_ns = run->marks_ns[GYRE_CUDA_MARK_PASSED_ON];
    uint64_t arrived_ns = run->marks_ns[GYRE_CUDA_MARK_ARRIVED];
    uint64_t last_ns = run->run.begin_ns;
    for (enum phase phase = 0; phase < N_PHASES; phase++) {
        struct gyre_trace_event *event = &reading->steps.events[reading->steps.n_events];
        uint64_t end_ns = run->run.end_ns;
        if (!phase_event(reading, run, phase, event))
            continue;
        if (phase == PHASE_SEND && sent_ns != 0)
            end_ns = sent_ns;
        if (phase == PHASE_REDUCE && passed_on_ns != 0)
            end_ns = passed_on_ns;
        event->begin_ns = last_ns;
        event->end_ns = gyre_max_u64(gyre_min_u64(end_ns, run->run.end_ns), last_ns);
        event->data_ns = event->end_ns; /* the end of the wait was not marked */
        if (phase == PHASE_SEND)
            event->data_ns = last_ns;
        else if (arrived_ns != 0)
            event->data_ns = gyre_min_u64(gyre_max_u64(arrived_ns, last_ns), event->end_ns);
        event->ready_ns = event->data_ns;
        if (phase == PHASE_REDUCE)
            arrived_ns = run->marks_ns[GYRE_CUDA_MARK_GATHERED];
        last_ns = event->end_ns;
        reading->steps.n_events++;
    }
}

/* No kernel sees the copies: they take the time between the sync kernels. */
static void add_copies(struct reading *reading, const struct block_run *before,
                       const struct block_run *closes)
{
    const uint32_t number = closes->run.program;
    const bool opens = before->kind == GYRE_CUDA_RUN_OPENS;
    if (number >= reading->records->n_programs)
        return;
    struct gyre_trace_event event = {
        .call = closes->run.call,
        .sequence = closes->run.sequence,
        .program = number,
        .step = reading->records->programs[number].n_kernel_steps,
        .step_of_worker = reading->records->programs[number].n_kernel_steps,
        .n_bytes = closes->slot_bytes,
        .kind = GYRE_TRACE_STEP,
    };
    event.ready_ns = before->run.end_ns; /* all peers are in the call */
    event.begin_ns = event.data_ns = opens ? before->run.begin_ns : before->run.end_ns;
    event.end_ns = gyre_max_u64(closes->run.begin_ns, event.ready_ns);
    reading->steps.events[reading->steps.n_events++] = event;
    event.begin_ns = event.end_ns;
    event.data_ns = event.ready_ns = event.end_ns = gyre_max_u64(closes->run.end_ns, event.end_ns);
    reading->steps.events[reading->steps.n_events++] = event;
}

static uint64_t count_kept(const struct gyre_cuda_records *records, uint32_t ring)
{
    return gyre_min_u64(records->recorder->blocks[ring].n_entries, records->recorder->capacity);
}

/* False: not whole. */
static bool read_run(const struct gyre_cuda_records *records, uint32_t ring, uint64_t end,
                     uint64_t oldest, struct block_run *run)
{
    const uint64_t at = end - GYRE_CUDA_RUN_ENTRIES;
    *run = (struct block_run){.ring = ring, .last = at};
    if (end < oldest + GYRE_CUDA_RUN_ENTRIES)
        return false;
    const union gyre_cuda_record *times = entry_at(records, ring, at);
    const union gyre_cuda_record *marks = entry_at(records, ring, at + 1);
    const union gyre_cuda_record *facts = entry_at(records, ring, at + 2);
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
    run->run.n_bytes = entry_at(records, ring, at + 3)->call.n_bytes;
    run->run.program = facts->facts.first_program;
    const uint32_t first = facts->facts.program, block = facts->facts.block;
    run->program = first < records->n_programs ? &records->programs[first] : NULL;
    if (run->program != NULL && run->program->lowered != NULL && run->program->n_workers != 0) {
        const unsigned char *blob = (const unsigned char *)run->program->lowered;
        uint32_t n_variants = 1;
        /* their numbers follow each other */
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
    const uint64_t n_before = run->n_steps + gyre_div_round_up(run->n_ends, 4);
    run->first = at - gyre_min_u64(n_before, at);
    run->is_complete = at >= oldest + n_before;
    return true;
}

/* @closes: the sync kernel behind the copies of the call read before, or kind STEPS. */
static void add_run(struct reading *reading, const struct block_run *run, struct block_run *closes)
{
    if (run->run.program >= reading->records->n_programs)
        return; /* for an observer; the trace had no room for its program */
    reading->runs.events[reading->runs.n_events++] = run->run;
    if (closes->kind == GYRE_CUDA_RUN_CLOSES && closes->run.call == run->run.call)
        add_copies(reading, run, closes);
    *closes = *run;
    if (run->worker == NULL || !run->is_complete)
        return;
    if (run->kind == GYRE_CUDA_RUN_FUSED && run->n_ends > 0) /* LAMPORT's kernels say too little */
        add_phases(reading, run);
    else if (run->kind == GYRE_CUDA_RUN_STEPS && run->worker->n_steps > 0) {
        const struct gyre_cuda_clock *clock = &reading->records->clock;
        uint64_t last_ns = run->run.begin_ns;
        for (uint32_t k = 0; k < run->n_steps && k < run->n_tiles * run->worker->n_steps; k++) {
            const union gyre_cuda_record *entry =
                entry_at(reading->records, run->ring, run->last - run->n_steps + k);
            const uint64_t begin_ns = entry->step.begin_ns;
            uint32_t step, tile;
            /* As struct cursor in interpreter/simple_steps.cuh. */
            const uint32_t n_in_flight = (uint32_t)gyre_max_u64(run->program->n_in_flight, 1);
            const uint32_t first = k / (run->worker->n_steps * n_in_flight) * n_in_flight;
            const uint32_t in_group = k - first * run->worker->n_steps;
            const uint32_t n_side = gyre_min_u32(n_in_flight, run->n_tiles - first);
            step = in_group / n_side;
            tile = first + in_group % n_side;
            struct gyre_trace_event event = step_event(reading, run, step, tile);
            event.n_bytes = entry->step.n_bytes;
            event.begin_ns = gyre_max_u64(gyre_cuda_clock_to_host(clock, begin_ns), last_ns);
            event.data_ns = gyre_max_u64(
                gyre_cuda_clock_to_host(clock, begin_ns + entry->step.data_ns), event.begin_ns);
            event.ready_ns = gyre_max_u64(
                gyre_cuda_clock_to_host(clock, begin_ns + entry->step.ready_ns), event.data_ns);
            event.end_ns =
                gyre_max_u64(gyre_cuda_clock_to_host(clock, entry->step.end_ns), event.ready_ns);
            add_slots(reading, run, step, tile, false, &event);
            add_slots(reading, run, step, tile, true, &event);
            last_ns = event.end_ns;
            reading->steps.events[reading->steps.n_events++] = event;
        }
    }
}

static int compare_calls(const void *left, const void *right)
{
    const struct gyre_trace_event *a = left, *b = right;
    return a->call < b->call ? -1 : a->call > b->call;
}

gyre_status gyre_cuda_records_read(const struct gyre_cuda_records *records,
                                   struct gyre_trace_events *events_out)
{
    struct reading reading = {.records = records, .steps.clock_error_ns = records->clock.error_ns};
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
    for (uint32_t ring = 0; ring < records->n_blocks; ring++) {
        const uint64_t n_entries = records->recorder->blocks[ring].n_entries;
        const uint64_t n_lost = n_entries - count_kept(records, ring);
        struct block_run run = {0}, closes = {0};
        uint64_t end = n_entries, complete_ns = 0;
        bool goes_on = true;
        while (end > 0 && goes_on && read_run(records, ring, end, n_lost, &run)) {
            add_run(&reading, &run, &closes);
            complete_ns = run.is_complete ? run.run.begin_ns : run.run.end_ns;
            end = run.first;
            goes_on = run.is_complete;
        }
        if (end == 0 && goes_on)
            continue;
        reading.steps.n_lost += n_lost;
        reading.steps.complete_ns = gyre_max_u64(reading.steps.complete_ns, complete_ns);
    }
    if (reading.runs.n_events > 0)
        qsort(reading.runs.events, reading.runs.n_events, sizeof(*reading.runs.events),
              compare_calls);
    for (uint64_t i = 0; i < reading.runs.n_events; i++) {
        const struct gyre_trace_event *run = &reading.runs.events[i];
        struct gyre_trace_event *last =
            reading.steps.n_events > 0 ? &reading.steps.events[reading.steps.n_events - 1] : NULL;
        if (i > 0 && run->call == run[-1].call && last != NULL) {
            last->begin_ns = gyre_min_u64(last->begin_ns, run->begin_ns);
            last->end_ns = gyre_max_u64(last->end_ns, run->end_ns);
            continue;
        }
        reading.steps.events[reading.steps.n_events++] = *run;
    }
    free(reading.runs.events);
    *events_out = reading.steps;
    return GYRE_SUCCESS;
}
