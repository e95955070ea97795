/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/util.h"
#include "kernels/cuda/host/record_run.h"

static const struct gyre_cuda_step *step_of(const struct gyre_cuda_block_run *run, uint32_t step)
{
    const struct gyre_cuda_program *blob = run->program->lowered;
    return (const struct gyre_cuda_step *)(const void *)((const unsigned char *)blob +
                                                         blob->steps_offset) +
           run->worker->first_step + step;
}

/* As slots_before() in device/block.cuh. */
static uint32_t count_slots_before(const struct gyre_cuda_block_run *run, uint32_t n_uses,
                                   uint32_t tile, uint32_t use)
{
    const uint32_t n_in_flight = (uint32_t)gyre_max_u64(run->program->n_in_flight, 1);
    const uint32_t place = tile % n_in_flight, first = tile - place;
    return first * n_uses + use * gyre_min_u32(n_in_flight, run->n_tiles - first) + place;
}

static void add_slot(const struct gyre_cuda_reading *reading, const struct gyre_cuda_block_run *run,
                     uint32_t tile, const struct gyre_cuda_operand *operand, bool is_out,
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
            gyre_cuda_record_entry(reading->records, run->ring, run->first + i / 4);
        if (entry->ends[i % 4].index != index)
            continue;
        const uint64_t number = (uint64_t)entry->ends[i % 4].number +
                                count_slots_before(run, own->n_uses, tile, operand->use);
        const struct gyre_trace_slot slot = {
            (uint16_t)(index / reading->records->ends_per_rank),
            (uint16_t)(index % reading->records->ends_per_rank / 2),
            gyre_trace_number(number, false)};
        gyre_trace_add_slot(event, &slot, is_out);
    }
}

static void add_slots(const struct gyre_cuda_reading *reading,
                      const struct gyre_cuda_block_run *run, uint32_t number, uint32_t tile,
                      bool is_out, struct gyre_trace_event *event)
{
    const struct gyre_cuda_step *step = step_of(run, number);
    const uint32_t mask = is_out ? step->send_mask : step->recv_mask;
    const struct gyre_cuda_operand *operands = is_out ? step->outs : step->ins;
    for (uint32_t i = 0; i < (is_out ? step->n_outs : step->n_ins); i++)
        if ((mask >> i & 1) != 0)
            add_slot(reading, run, tile, &operands[i], is_out, event);
}

/* Without times and slots. */
static struct gyre_trace_event step_event(const struct gyre_cuda_reading *reading,
                                          const struct gyre_cuda_block_run *run, uint32_t step,
                                          uint32_t tile)
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

/* As struct cursor in interpreter/simple_steps.cuh. */
static void find_step(const struct gyre_cuda_block_run *run, uint32_t k, uint32_t *step_out,
                      uint32_t *tile_out)
{
    const uint32_t n_in_flight = (uint32_t)gyre_max_u64(run->program->n_in_flight, 1);
    const uint32_t first = k / (run->worker->n_steps * n_in_flight) * n_in_flight;
    const uint32_t in_group = k - first * run->worker->n_steps;
    const uint32_t n_side = gyre_min_u32(n_in_flight, run->n_tiles - first);
    *step_out = in_group / n_side;
    *tile_out = first + in_group % n_side;
}

void gyre_cuda_add_steps(struct gyre_cuda_reading *reading, const struct gyre_cuda_block_run *run)
{
    const struct gyre_cuda_clock *clock = &reading->records->clock;
    uint64_t last_ns = run->run.begin_ns;
    for (uint32_t k = 0; k < run->n_steps && k < run->n_tiles * run->worker->n_steps; k++) {
        const union gyre_cuda_record *entry =
            gyre_cuda_record_entry(reading->records, run->ring, run->last - run->n_steps + k);
        const uint64_t begin_ns = entry->step.begin_ns;
        uint32_t step, tile;
        find_step(run, k, &step, &tile);
        struct gyre_trace_event event = step_event(reading, run, step, tile);
        event.n_bytes = entry->step.n_bytes;
        event.begin_ns = gyre_max_u64(gyre_cuda_clock_to_host(clock, begin_ns), last_ns);
        event.data_ns = gyre_max_u64(gyre_cuda_clock_to_host(clock, begin_ns + entry->step.data_ns),
                                     event.begin_ns);
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

/* Sending inputs or copying the own one, reducing, and receiving results. */
enum phase { PHASE_SEND, PHASE_REDUCE, PHASE_GATHER, N_PHASES };

static enum phase phase_of(const struct gyre_cuda_step *step)
{
    return step->recv_mask == 0 ? PHASE_SEND : step->n_ins > 1 ? PHASE_REDUCE : PHASE_GATHER;
}

/* Of the phase's steps in all tiles, with as many slots as it holds. False: it has none. */
static bool phase_event(const struct gyre_cuda_reading *reading,
                        const struct gyre_cuda_block_run *run, enum phase phase,
                        struct gyre_trace_event *event_out)
{
    uint32_t n_found = 0;
    for (int is_out = 0; is_out < 2; is_out++)
        for (uint32_t tile = 0; tile < run->n_tiles; tile++)
            for (uint32_t step = 0; step < run->worker->n_steps; step++) {
                if (phase_of(step_of(run, step)) != phase)
                    continue;
                if (n_found++ == 0)
                    *event_out = step_event(reading, run, step, 0);
                add_slots(reading, run, step, tile, is_out != 0, event_out);
            }
    event_out->n_bytes = run->slot_bytes;
    return n_found > 0;
}

/* A first arrival belongs to the first phase that receives. */
void gyre_cuda_add_phases(struct gyre_cuda_reading *reading, const struct gyre_cuda_block_run *run)
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
void gyre_cuda_add_copies(struct gyre_cuda_reading *reading,
                          const struct gyre_cuda_block_run *before,
                          const struct gyre_cuda_block_run *closes)
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
