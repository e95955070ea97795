/* SPDX-License-Identifier: Apache-2.0
 *
 * Microseconds with three decimals.
 */
#include "core/foundation/trace/trace_file.h"

#include "core/foundation/base/status.h"
#include "core/foundation/base/text.h"

#include <inttypes.h>
#include <string.h>

void gyre_trace_write_head(FILE *file, const char *source, const char *process)
{
    fprintf(file,
            "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"tool\":\"gyre\",\"source\":\"%s\","
            "\"process\":\"%s\"},\"traceEvents\":[",
            source, process);
}

void gyre_trace_write_foot(FILE *file, const char *communicators)
{
    static const char begin[] = "\n],\"communicators\":\"", middle[] = "\",\"footBytes\":\"";
    const size_t n_bytes =
        sizeof(begin) - 1 + strlen(communicators) + sizeof(middle) - 1 + GYRE_TRACE_FOOT_END_BYTES;
    fprintf(file, "%s%s%s%08zu\"}\n", begin, communicators, middle, n_bytes);
}

gyre_status gyre_trace_describe(const struct gyre_step *step,
                                const struct gyre_connection *connections, uint32_t n_scratch_parts,
                                struct gyre_trace_step *described_out)
{
    char text[192];
    gyre_step_to_text(step, connections, n_scratch_parts, text, sizeof(text));
    described_out->text = strdup(text);
    described_out->chunk = step->chunk;
    described_out->n_chunks = step->n_chunks;
    described_out->n_ins = step->n_ins;
    described_out->n_outs = step->n_outs;
    return described_out->text != NULL
               ? GYRE_SUCCESS
               : gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for the text of a step");
}

static uint64_t shift(const struct gyre_trace_writer *writer, uint64_t time_ns)
{
    return time_ns - (uint64_t)writer->clock_offset_ns;
}

static void put_us(FILE *file, const char *name, uint64_t time_ns)
{
    fprintf(file, ",\"%s\":%" PRIu64 ".%03u", name, time_ns / 1000, (unsigned)(time_ns % 1000));
}

static void begin_line(struct gyre_trace_writer *writer, const char *phase, const char *name,
                       uint32_t track, uint64_t time_ns)
{
    fprintf(writer->file, "%s\n{\"ph\":\"%s\",\"name\":", writer->is_continued ? "," : "", phase);
    writer->is_continued = true;
    gyre_text_put_json(writer->file, name, SIZE_MAX);
    fprintf(writer->file, ",\"pid\":%u,\"tid\":%u", writer->pid, track);
    put_us(writer->file, "ts", time_ns);
}

static void name_track(struct gyre_trace_writer *writer, uint32_t track)
{
    static const char *const names[] = {"launch", "calls", "proxy socket", "proxy ib"};
    if (writer->has_track[track] != 0)
        return;
    writer->has_track[track] = 1;
    begin_line(writer, "M", "thread_name", track, 0);
    if (track < GYRE_TRACE_TRACK_WORKERS)
        fprintf(writer->file, ",\"args\":{\"name\":\"%s\"}}", names[track]);
    else
        fprintf(writer->file, ",\"args\":{\"name\":\"channel %u worker %u\"}}",
                (track - GYRE_TRACE_TRACK_WORKERS) / GYRE_MAX_WORKERS,
                (track - GYRE_TRACE_TRACK_WORKERS) % GYRE_MAX_WORKERS);
    begin_line(writer, "M", "thread_sort_index", track, 0);
    fprintf(writer->file, ",\"args\":{\"sort_index\":%u}}", track);
}

void gyre_trace_write_rank(struct gyre_trace_writer *writer, const struct gyre_trace_rank *rank)
{
    FILE *file = writer->file;
    begin_line(writer, "M", "process_name", 0, 0);
    if (writer->pid == writer->rank)
        fprintf(file, ",\"args\":{\"name\":\"rank %u\"}}", writer->rank);
    else
        fprintf(file, ",\"args\":{\"name\":\"rank %u of %.60s\"}}", writer->rank, writer->flows);
    begin_line(writer, "M", "process_sort_index", 0, 0);
    fprintf(file, ",\"args\":{\"sort_index\":%u}}", writer->pid);
    begin_line(writer, "M", "gyre_rank", 0, 0);
    fprintf(file, ",\"args\":{\"rank\":%u,\"n_ranks\":%u,\"communicator\":", writer->rank,
            rank->n_ranks);
    gyre_text_put_json(file, rank->communicator, SIZE_MAX);
    fputs(",\"host\":", file);
    gyre_text_put_json(file, rank->host, SIZE_MAX);
    fprintf(file,
            ",\"shares_a_thread\":%s,\"lost_events\":%" PRIu64 ",\"left_out_launches\":%" PRIu64
            ",\"clock_offset_ns\":%" PRId64 ",\"clock_error_ns\":%" PRIu64,
            rank->shares_a_thread ? "true" : "false", rank->n_lost, rank->n_left_out,
            writer->clock_offset_ns, rank->clock_error_ns);
    put_us(file, "complete_from_us", rank->n_lost > 0 ? shift(writer, rank->complete_ns) : 0);
    fputs("}}", file);
}

static void put_slot(const struct gyre_trace_writer *writer, const struct gyre_trace_slot *slot,
                     bool is_out)
{
    const uint32_t from = is_out ? writer->rank : slot->peer;
    const uint32_t to = is_out ? slot->peer : writer->rank;
    fprintf(writer->file, "\"%s:%u>%u/%u#%u\"", writer->flows, from, to, slot->fifo, slot->number);
}

static void put_slots(const struct gyre_trace_writer *writer, const struct gyre_trace_event *event)
{
    fputs(",\"received\":[", writer->file);
    for (uint32_t i = 0; i < (uint32_t)event->n_ins + event->n_outs; i++) {
        if (i == event->n_ins)
            fputs("],\"sent\":[", writer->file);
        else if (i > 0)
            fputc(',', writer->file);
        put_slot(writer, &event->slots[i], i >= event->n_ins);
    }
    fputs(event->n_outs == 0 ? "],\"sent\":[]" : "]", writer->file);
}

/* From the step that sends a slot over the proxies to the step that receives it. */
static void write_flows(struct gyre_trace_writer *writer, const struct gyre_trace_event *event,
                        uint32_t track)
{
    const bool is_step = event->kind == GYRE_TRACE_STEP;
    if (event->kind == GYRE_TRACE_COMPLETE)
        return;
    for (uint32_t i = 0; i < (uint32_t)event->n_ins + event->n_outs; i++) {
        const bool is_out = i >= event->n_ins;
        /* Flow times must lie inside the slice that publishes at its end. */
        const uint64_t last_ns =
            event->end_ns > event->ready_ns ? event->end_ns - 1 : event->end_ns;
        const uint64_t time_ns = !is_step ? event->begin_ns : is_out ? last_ns : event->ready_ns;
        const char *phase = !is_step ? "t" : is_out ? "s" : "f";
        begin_line(writer, phase, "slot", track, shift(writer, time_ns));
        fputs(",\"cat\":\"slot\",\"id\":", writer->file);
        put_slot(writer, &event->slots[i], is_out);
        fputs(phase[0] == 's' ? "}" : ",\"bp\":\"e\"}", writer->file);
    }
}

static void begin_slice(struct gyre_trace_writer *writer, const char *name, uint32_t track,
                        uint64_t begin_ns, uint64_t end_ns)
{
    begin_line(writer, "X", name, track, shift(writer, begin_ns));
    put_us(writer->file, "dur", end_ns - begin_ns);
}

static void write_wait(struct gyre_trace_writer *writer, const struct gyre_trace_event *event,
                       uint32_t track, bool is_credit)
{
    const uint64_t begin_ns = is_credit ? event->data_ns : event->begin_ns;
    const uint64_t end_ns = is_credit ? event->ready_ns : event->data_ns;
    const uint32_t first = is_credit ? event->n_ins : 0;
    const uint32_t end = is_credit ? (uint32_t)event->n_ins + event->n_outs : event->n_ins;
    if (end_ns <= begin_ns || first == end)
        return;
    begin_slice(writer, is_credit ? "wait for credit" : "wait for data", track, begin_ns, end_ns);
    fprintf(writer->file,
            ",\"cat\":\"wait\",\"args\":{\"call\":%" PRIu64 ",\"step\":%u,\"peers\":[", event->call,
            event->step_of_worker);
    for (uint32_t i = first; i < end; i++)
        fprintf(writer->file, "%s%u", i == first ? "" : ",", event->slots[i].peer);
    fputs("]}}", writer->file);
}

static void write_step(struct gyre_trace_writer *writer, const struct gyre_trace_event *event,
                       const struct gyre_trace_steps *program)
{
    FILE *file = writer->file;
    const struct gyre_trace_step *step = &program->steps[event->step];
    const uint32_t track = (uint32_t)GYRE_TRACE_TRACK_WORKERS +
                           event->channel * (uint32_t)GYRE_MAX_WORKERS + event->worker;
    name_track(writer, track);
    write_wait(writer, event, track, false);
    write_wait(writer, event, track, true);
    begin_slice(writer, step->n_ins > 1 ? "reduce" : "copy", track, event->ready_ns, event->end_ns);
    fprintf(file,
            ",\"cat\":\"step\",\"args\":{\"call\":%" PRIu64 ",\"channel\":%u,\"worker\":%u,"
            "\"tile\":%u,\"step\":%u,\"chunk\":%u,\"chunks\":%u,\"bytes\":%" PRIu64,
            event->call, event->channel, event->worker, event->tile, event->step_of_worker,
            step->chunk, step->n_chunks, event->n_bytes);
    put_us(file, "begin_us", shift(writer, event->begin_ns));
    put_us(file, "data_us", shift(writer, event->data_ns));
    fputs(",\"text\":", file);
    gyre_text_put_json(file, step->text, SIZE_MAX);
    put_slots(writer, event);
    fputs("}}", file);
    write_flows(writer, event, track);
}

static void write_call(struct gyre_trace_writer *writer, const struct gyre_trace_event *event,
                       const struct gyre_trace_steps *program)
{
    const bool is_run = event->kind == GYRE_TRACE_RUN;
    const uint32_t track = is_run ? GYRE_TRACE_TRACK_CALLS : GYRE_TRACE_TRACK_LAUNCH;
    const char *coll = gyre_collectives[is_run ? program->coll : event->step].name;
    name_track(writer, track);
    begin_slice(writer, is_run ? coll : "launch", track, event->begin_ns, event->end_ns);
    fprintf(writer->file,
            ",\"cat\":\"call\",\"args\":{\"call\":%" PRIu64 ",\"sequence\":%" PRIu64
            ",\"collective\":\"%s\",\"bytes\":%" PRIu64,
            event->call, event->sequence, coll, event->n_bytes);
    if (is_run) {
        fputs(",\"algorithm\":", writer->file);
        gyre_text_put_json(writer->file, program->algorithm, SIZE_MAX);
    }
    fputs("}}", writer->file);
}

void gyre_trace_write_event(struct gyre_trace_writer *writer, const struct gyre_trace_event *event,
                            const struct gyre_trace_steps *program, enum gyre_trace_track proxy)
{
    if (event->kind == GYRE_TRACE_STEP)
        write_step(writer, event, program);
    else if (event->kind == GYRE_TRACE_RUN || event->kind == GYRE_TRACE_LAUNCH)
        write_call(writer, event, program);
    else {
        const uint32_t track = (uint32_t)proxy;
        static const char *const names[GYRE_TRACE_N_KINDS] = {
#define GYRE_TRACE_KIND_NAME(id, name) name,
            GYRE_TRACE_KIND_TABLE(GYRE_TRACE_KIND_NAME)
#undef GYRE_TRACE_KIND_NAME
        };
        name_track(writer, track);
        begin_slice(writer, names[event->kind], track, event->begin_ns, event->end_ns);
        fprintf(writer->file, ",\"cat\":\"proxy\",\"args\":{\"bytes\":%" PRIu64, event->n_bytes);
        put_slots(writer, event);
        fputs("}}", writer->file);
        write_flows(writer, event, track);
    }
}
