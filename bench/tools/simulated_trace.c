/* SPDX-License-Identifier: Apache-2.0
 *
 * What each step waited for follows from when steps start and end, and when slots are seen.
 */
#include "bench/tools/schedule_predict.h"

#include "core/foundation/base/file.h"
#include "core/foundation/base/util.h"
#include "core/foundation/trace/trace_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STEPS  300000
#define UNIT_BYTES 16 /* as the simulator cuts */

struct end {
    uint32_t n_slots;
    double *arrived_ns; /* sender, by slot: seen */
    uint32_t capacity;
    uint32_t partner; /* receiver: connection in the sender's program */
};

struct part {
    struct gyre_program *program;
    struct gyre_trace_steps steps;
    struct end *ends;
    double *free_ns; /* by worker: end of last step */
};

struct trace {
    const struct bench_schedule_request *request;
    struct gyre_simulation simulation;
    uint32_t n_variants;
    struct part *parts;
    struct gyre_simulated_step *seen;
    uint32_t n_seen, seen_capacity;
    gyre_status status;
};

static struct part *part_of(const struct trace *trace, uint32_t rank, uint32_t variant)
{
    return &trace->parts[(size_t)rank * trace->n_variants + variant];
}

static gyre_status out_of_memory(void)
{
    return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a trace");
}

static gyre_status pair_ends(const struct trace *trace, uint32_t rank, uint32_t variant)
{
    const struct part *part = part_of(trace, rank, variant);
    for (uint32_t i = 0; i < part->program->n_connections; i++) {
        const struct gyre_connection *own = &part->program->connections[i];
        const struct gyre_program *sender = part_of(trace, own->peer, variant)->program;
        uint32_t k = 0;
        if (own->is_send)
            continue;
        while (k < sender->n_connections &&
               (!sender->connections[k].is_send || sender->connections[k].peer != rank ||
                sender->connections[k].lane != own->lane))
            k++;
        if (k == sender->n_connections)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "rank %u receives from rank %u, which does not send to it", rank,
                             own->peer);
        part->ends[i].partner = k;
    }
    return GYRE_SUCCESS;
}

static gyre_status open_parts(struct trace *trace)
{
    const struct bench_schedule_request *request = trace->request;
    struct gyre_shape shape = request->shape;
    trace->n_variants = (uint32_t)gyre_algorithm_variants(request->algorithm, &shape);
    trace->parts =
        calloc((size_t)request->shape.n_ranks * trace->n_variants, sizeof(*trace->parts));
    if (trace->parts == NULL)
        return out_of_memory();
    struct gyre_program *uncut;
    GYRE_TRY(gyre_algorithm_emit(request->algorithm, &shape, 0, &uncut));
    shape.most_range =
        gyre_program_range_for(uncut, trace->simulation.n_bytes, trace->simulation.n_channels,
                               trace->simulation.tile_bytes);
    gyre_program_free(uncut);
    for (uint32_t variant = 0; variant < trace->n_variants; variant++) {
        shape.variant = (uint16_t)variant;
        for (uint32_t rank = 0; rank < request->shape.n_ranks; rank++) {
            struct part *part = part_of(trace, rank, variant);
            GYRE_TRY(gyre_algorithm_emit(request->algorithm, &shape, (int)rank, &part->program));
            const struct gyre_program *program = part->program;
            const uint32_t n_parts = gyre_program_n_parts(program, GYRE_OPERAND_SCRATCH);
            snprintf(part->steps.algorithm, sizeof(part->steps.algorithm), "%s",
                     program->algorithm);
            part->steps.coll = program->coll;
            part->steps.steps = calloc((size_t)program->n_steps + 1, sizeof(*part->steps.steps));
            part->ends = calloc((size_t)program->n_connections + 1, sizeof(*part->ends));
            part->free_ns = calloc((size_t)program->n_workers + 1, sizeof(*part->free_ns));
            if (part->steps.steps == NULL || part->ends == NULL || part->free_ns == NULL)
                return out_of_memory();
            for (uint32_t i = 0; i < program->n_steps; i++) {
                GYRE_TRY(gyre_trace_describe(&program->steps[i], program->connections, n_parts,
                                             &part->steps.steps[i]));
                part->steps.n_steps++;
            }
        }
        for (uint32_t rank = 0; rank < request->shape.n_ranks; rank++)
            GYRE_TRY(pair_ends(trace, rank, variant));
    }
    return GYRE_SUCCESS;
}

static void observe(void *observer, const struct gyre_simulated_step *step)
{
    struct trace *trace = observer;
    if (gyre_grow(&trace->seen, &trace->seen_capacity, trace->n_seen + 1ULL, sizeof(*trace->seen)))
        trace->seen[trace->n_seen++] = *step;
    else
        trace->status = out_of_memory();
}

static void arrive(void *observer, uint64_t step, uint32_t send, double arrived_ns)
{
    struct trace *trace = observer;
    if (step < trace->n_seen) /* unless there was no memory */
        trace->seen[step].arrived_ns[send] = arrived_ns;
}

/* By start, so each slot's sending step came before. */
static gyre_status take_slots(const struct trace *trace, const struct gyre_simulated_step *seen,
                              const struct gyre_step *step, struct gyre_trace_event *event,
                              double *data_ns)
{
    const struct part *part = part_of(trace, seen->rank, seen->variant);
    uint32_t n_sends = 0;
    for (uint32_t i = 0; i < (uint32_t)step->n_ins + step->n_outs; i++) {
        const bool is_out = i >= step->n_ins;
        const struct gyre_operand *operand = is_out ? &step->outs[i - step->n_ins] : &step->ins[i];
        if (operand->kind != GYRE_OPERAND_CONNECTION)
            continue;
        const struct gyre_connection *connection = &part->program->connections[operand->index];
        struct end *end = &part->ends[operand->index];
        const struct gyre_trace_slot slot = {
            .peer = connection->peer,
            .fifo = (uint16_t)(seen->variant * part->program->n_lanes + connection->lane),
            .number = end->n_slots,
        };
        gyre_trace_add_slot(event, &slot, is_out);
        if (is_out) {
            if (!gyre_grow(&end->arrived_ns, &end->capacity, end->n_slots + 1ULL,
                           sizeof(*end->arrived_ns)))
                return out_of_memory();
            end->arrived_ns[end->n_slots++] = seen->arrived_ns[n_sends++];
            continue;
        }
        const struct end *sender =
            &part_of(trace, connection->peer, seen->variant)->ends[end->partner];
        if (end->n_slots < sender->n_slots)
            *data_ns = fmax(*data_ns, sender->arrived_ns[end->n_slots]);
        end->n_slots++;
    }
    return GYRE_SUCCESS;
}

static uint64_t to_ns(double time_ns)
{
    return (uint64_t)llround(time_ns);
}

static gyre_status make_event(const struct trace *trace, const struct gyre_simulated_step *seen,
                              double launched_ns, struct gyre_trace_event *event)
{
    struct part *part = part_of(trace, seen->rank, seen->variant);
    const uint32_t index = part->program->workers[seen->worker].first_step + seen->step;
    const struct gyre_step *step = &part->program->steps[index];
    const double begin_ns = fmin(fmax(part->free_ns[seen->worker], launched_ns), seen->start_ns);
    double data_ns = begin_ns;
    memset(event, 0, sizeof(*event));
    GYRE_TRY(take_slots(trace, seen, step, event, &data_ns));
    event->kind = GYRE_TRACE_STEP;
    event->begin_ns = to_ns(begin_ns);
    event->data_ns = to_ns(fmin(data_ns, seen->start_ns));
    event->ready_ns = to_ns(seen->start_ns);
    event->end_ns = to_ns(seen->end_ns);
    const struct gyre_simulation *simulation = &trace->simulation;
    const struct gyre_split split = {
        .count = simulation->n_bytes,
        .n_channels = simulation->n_channels,
        .n_chunks = part->program->n_chunks,
        .tile_elems = (uint32_t)gyre_round_up(
            gyre_piece_bytes(simulation->tile_bytes, part->program->max_range), UNIT_BYTES),
        .unit_elems = UNIT_BYTES,
    };
    event->n_bytes = gyre_tile_range(&split, 0, step->chunk, seen->tile).n_elems * step->n_chunks;
    event->step = index;
    event->step_of_worker = seen->step;
    event->tile = (uint32_t)seen->tile;
    event->channel = (uint16_t)seen->variant;
    event->worker = (uint8_t)seen->worker;
    part->free_ns[seen->worker] = seen->end_ns;
    return GYRE_SUCCESS;
}

static void write_call(const struct trace *trace, struct gyre_trace_writer *writer,
                       double launched_ns, double end_ns)
{
    struct gyre_trace_event event = {.kind = GYRE_TRACE_LAUNCH,
                                     .end_ns = to_ns(launched_ns),
                                     .step = trace->request->shape.coll,
                                     .sequence = 1,
                                     .n_bytes = trace->simulation.n_bytes};
    gyre_trace_write_event(writer, &event, NULL, GYRE_TRACE_TRACK_SOCKET);
    event.kind = GYRE_TRACE_RUN;
    event.begin_ns = to_ns(launched_ns);
    event.end_ns = to_ns(end_ns);
    gyre_trace_write_event(writer, &event, &part_of(trace, writer->rank, 0)->steps,
                           GYRE_TRACE_TRACK_SOCKET);
}

static gyre_status write_events(const struct trace *trace, struct gyre_trace_writer *writers,
                                double *ends_ns)
{
    double launched_ns = INFINITY;
    for (uint32_t i = 0; i < trace->n_seen; i++)
        launched_ns = fmin(launched_ns, trace->seen[i].start_ns);
    for (uint32_t i = 0; i < trace->n_seen; i++) {
        const struct gyre_simulated_step *seen = &trace->seen[i];
        struct gyre_trace_event event;
        struct gyre_trace_writer *writer = &writers[seen->rank];
        GYRE_TRY(make_event(trace, seen, launched_ns, &event));
        writer->is_continued = true;
        gyre_trace_write_event(writer, &event, &part_of(trace, seen->rank, seen->variant)->steps,
                               GYRE_TRACE_TRACK_SOCKET);
        ends_ns[seen->rank] = fmax(ends_ns[seen->rank], seen->end_ns);
    }
    for (uint32_t rank = 0; rank < trace->request->shape.n_ranks && trace->n_seen > 0; rank++)
        write_call(trace, &writers[rank], launched_ns, ends_ns[rank]);
    return GYRE_SUCCESS;
}

static gyre_status write_trace(const struct trace *trace, const char *path)
{
    const uint32_t n_ranks = trace->request->shape.n_ranks;
    GYRE_FREED char *text = NULL;
    size_t n_bytes = 0;
    GYRE_FREED struct gyre_trace_writer *writers = calloc(n_ranks, sizeof(*writers));
    GYRE_FREED uint8_t *has_track = calloc(n_ranks, GYRE_TRACE_N_TRACKS);
    GYRE_FREED double *ends_ns = calloc(n_ranks, sizeof(*ends_ns));
    if (writers == NULL || has_track == NULL || ends_ns == NULL)
        return out_of_memory();
    FILE *file = open_memstream(&text, &n_bytes);
    if (file == NULL)
        return out_of_memory();
    gyre_trace_write_head(file, "simulated", "none");
    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        writers[rank] = (struct gyre_trace_writer){
            .file = file,
            .flows = "simulated",
            .pid = rank,
            .rank = rank,
            .is_continued = rank > 0,
            .has_track = has_track + (size_t)rank * GYRE_TRACE_N_TRACKS,
        };
        const struct gyre_trace_rank about = {
            .n_ranks = n_ranks, .communicator = "simulated", .host = ""};
        gyre_trace_write_rank(&writers[rank], &about);
    }
    const gyre_status status = write_events(trace, writers, ends_ns);
    gyre_trace_write_foot(file, "");
    const bool is_whole = fclose(file) == 0;
    GYRE_TRY(status);
    return is_whole ? gyre_file_replace(path, text, n_bytes) : out_of_memory();
}

gyre_status bench_simulated_trace(const struct bench_schedule_request *request, uint64_t n_bytes,
                                  const struct gyre_simulation *given, const char *path)
{
    struct trace trace = {.request = request};
    struct gyre_prediction prediction;
    gyre_status status = GYRE_SUCCESS;
    if (given != NULL)
        trace.simulation = *given;
    trace.simulation.all_tiles = true;
    trace.simulation.observe = observe;
    trace.simulation.arrive = arrive;
    trace.simulation.observer = &trace;
    if (given == NULL) {
        status =
            bench_schedule_simulate(request, n_bytes, MAX_STEPS, &trace.simulation, &prediction);
    } else {
        const struct gyre_machine machine = {.grouping = request->shape.grouping,
                                             .fabric = request->fabric};
        struct gyre_simulator *simulator;
        GYRE_TRY(
            gyre_simulator_open(request->algorithm, &request->shape, &machine, true, &simulator));
        status = bench_schedule_check_steps(simulator, &trace.simulation, MAX_STEPS);
        if (status == GYRE_SUCCESS)
            status = gyre_simulator_run(simulator, &trace.simulation, &prediction);
        gyre_simulator_close(simulator);
    }
    if (status == GYRE_SUCCESS)
        status = trace.status;
    if (status == GYRE_SUCCESS)
        status = open_parts(&trace);
    if (status == GYRE_SUCCESS)
        status = write_trace(&trace, path);
    const size_t n_parts =
        trace.parts == NULL ? 0 : trace.request->shape.n_ranks * trace.n_variants;
    for (size_t i = 0; i < n_parts; i++) {
        struct part *part = &trace.parts[i];
        for (uint32_t k = 0; k < part->steps.n_steps; k++)
            free(part->steps.steps[k].text);
        for (uint32_t k = 0; part->ends != NULL && k < part->program->n_connections; k++)
            free(part->ends[k].arrived_ns);
        free(part->steps.steps);
        free(part->ends);
        free(part->free_ns);
        gyre_program_free(part->program);
    }
    free(trace.parts);
    free(trace.seen);
    return status;
}
