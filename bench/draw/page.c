/* SPDX-License-Identifier: Apache-2.0
 *
 * page.html with style, scripts and data in place of its marks. Steps in the data are lines of the
 * programs' text form, so that page and text cannot differ.
 */
#include "bench/draw/drawing.h"

#include "core/foundation/base/status.h"
#include "core/foundation/base/text.h"

#include <stdlib.h>
#include <string.h>

static void write_field(const char *name, const char *text, FILE *file)
{
    fprintf(file, "\"%s\":", name);
    gyre_text_put_json(file, text, SIZE_MAX);
    fputs(",\n", file);
}

static gyre_status write_program(const struct bench_drawing *drawing, uint32_t rank, FILE *file)
{
    const struct gyre_program *program = drawing->programs[rank];
    char *text = NULL;
    GYRE_TRY(gyre_program_to_text(program, &text));
    const char *at = text;
    fputs(rank == 0 ? "{\"workers\":[" : ",\n{\"workers\":[", file);
    for (uint32_t w = 0; w < program->n_workers; w++) {
        const struct gyre_worker *worker = &program->workers[w];
        const struct bench_draw_step *steps =
            &drawing->steps[drawing->first_step[rank] + worker->first_step];
        fputs(w == 0 ? "{\"text\":[" : ",\n{\"text\":[", file);
        for (uint32_t i = 0; i < worker->n_steps; i++) {
            const char *line = strstr(at, "\n  chunk ") + strlen("\n  ");
            const size_t n_bytes = strcspn(line, "\n");
            fputs(i == 0 ? "" : ",", file);
            gyre_text_put_json(file, line, n_bytes);
            at = line + n_bytes;
        }
        fputs("],\"rounds\":[", file);
        for (uint32_t i = 0; i < worker->n_steps; i++)
            fprintf(file, "%s%d", i == 0 ? "" : ",",
                    steps[i].round == BENCH_DRAW_NEVER ? -1 : (int)steps[i].round);
        fputs("],\"values\":[", file);
        for (uint32_t i = 0; i < worker->n_steps; i++)
            fprintf(file, "%s%u", i == 0 ? "" : ",", steps[i].value);
        fputs("]}", file);
    }
    fputs("]}", file);
    free(text);
    return GYRE_SUCCESS;
}

/* The initial state, and the wanted chunk of IN with its rank for each chunk of OUT, -1 = all
 * ranks. */
static gyre_status write_ends(const struct bench_drawing *drawing, FILE *file)
{
    struct bench_draw_state state;
    GYRE_TRY(bench_draw_state_open(drawing, &state));
    fputs("\"start\":[", file);
    for (uint32_t rank = 0; rank < drawing->n_ranks; rank++) {
        fputs(rank == 0 ? "[" : ",[", file);
        for (uint32_t i = 0; i < drawing->n_parts; i++)
            fprintf(file, "%s%u", i == 0 ? "" : ",",
                    state.now[(size_t)rank * drawing->n_parts + i]);
        fputc(']', file);
    }
    fputs("],\n\"goal\":[", file);
    for (uint32_t rank = 0; rank < drawing->n_ranks; rank++) {
        const struct gyre_program *program = drawing->programs[rank];
        fputs(rank == 0 ? "[" : ",[", file);
        for (uint32_t i = 0; i < gyre_program_n_parts(program, GYRE_OPERAND_OUT); i++) {
            const struct gyre_expectation expect = gyre_verify_expect(program, i);
            if (expect.is_owned)
                fprintf(file, "%s[%u,%d]", i == 0 ? "" : ",", expect.chunk,
                        expect.from_all ? -1 : (int)expect.source);
        }
        fputc(']', file);
    }
    fputs("],\n", file);
    bench_draw_state_close(&state);
    return GYRE_SUCCESS;
}

static void write_times(const struct bench_drawing *drawing, FILE *file)
{
    const struct bench_draw_times *times = &drawing->times;
    if (times->n_steps == 0) {
        write_field("times_missing",
                    times->missing == NULL ? "No channel runs this variant." : times->missing,
                    file);
        fputs("\"times\":null\n", file);
        return;
    }
    fprintf(file, "\"times\":{\"measured\":%s,", times->is_measured ? "true" : "false");
    if (!times->is_measured) {
        write_field("cost", times->cost, file);
        write_field("proto", gyre_proto_names[times->simulation.proto], file);
        write_field("bottleneck", gyre_resource_names[times->prediction.bottleneck], file);
    }
    fprintf(file,
            "\"bytes\":%llu,\"channels\":%u,\"tile_bytes\":%u,\"depth\":%u,\"tiles\":%u,"
            "\"time_ns\":%.0f,\n\"steps\":[",
            (unsigned long long)times->simulation.n_bytes, times->simulation.n_channels,
            times->simulation.tile_bytes, times->simulation.depth, times->n_tiles,
            times->prediction.time_ns);
    for (uint32_t i = 0; i < times->n_steps; i++) {
        const struct gyre_simulated_step *step = &times->steps[i];
        fprintf(file, "%s[%u,%u,%u,%llu,%.0f,%.0f", i == 0 ? "" : ",", step->rank, step->worker,
                step->step, (unsigned long long)step->tile, step->start_ns, step->end_ns);
        for (uint32_t k = 0; k < step->n_sends; k++)
            fprintf(file, ",%.0f", step->arrived_ns[k]);
        fputc(']', file);
    }
    fputs("]}\n", file);
}

gyre_status bench_draw_json(const struct bench_drawing *drawing, const char *title, FILE *file)
{
    const struct gyre_program *program = drawing->programs[0];
    const struct gyre_collective_traits *traits = &gyre_collectives[program->coll];
    fputs("{", file);
    write_field("title", title, file);
    write_field("algorithm", program->algorithm, file);
    write_field("collective", traits->name, file);
    fprintf(file,
            "\"ranks\":%u,\"root\":%d,\"reduces\":%s,\"parts\":%u,\"rounds\":%u,\"depth\":%u,"
            "\"stuck\":%s,\n\"hosts\":[",
            drawing->n_ranks, traits->has_root ? program->root : -1,
            traits->reduces ? "true" : "false", drawing->n_parts, drawing->n_rounds,
            program->min_depth, drawing->is_stuck ? "true" : "false");
    for (uint32_t rank = 0; rank < drawing->n_ranks; rank++)
        fprintf(file, "%s%u", rank == 0 ? "" : ",",
                drawing->grouping == NULL ? 0 : drawing->grouping->host_of[rank]);
    fputs("],\n", file);
    fputs(drawing->places == NULL ? "\"places\":null,\n" : "\"places\":[", file);
    for (uint32_t rank = 0; rank < drawing->n_ranks && drawing->places != NULL; rank++)
        fprintf(file, "[%g,%g]%s", drawing->places[rank].x, drawing->places[rank].y,
                rank + 1 < drawing->n_ranks ? "," : "],\n");
    uint32_t i = 0;
    fputs("\"inputs\":[", file);
    for (; i < drawing->n_values && drawing->values[i].n_operands == 0; i++)
        fprintf(file, "%s[%u,%u]", i == 0 ? "" : ",", drawing->values[i].rank,
                drawing->values[i].chunk);
    fputs("],\n\"results\":[", file);
    const uint32_t n_inputs = i;
    for (; i < drawing->n_values; i++) {
        const struct bench_draw_value *value = &drawing->values[i];
        fprintf(file, "%s[%d", i == n_inputs ? "" : ",", value->is_final ? 1 : 0);
        for (uint32_t k = 0; k < value->n_operands; k++)
            fprintf(file, ",%u", drawing->operands[value->first_operand + k]);
        fputc(']', file);
    }
    fputs("],\n", file);
    GYRE_TRY(write_ends(drawing, file));
    if (drawing->is_proved) {
        fprintf(file, "\"finding\":null,\n\"min_depth\":%u,\n", drawing->report.min_depth);
    } else {
        const struct gyre_verify_place *place = &drawing->report.place;
        fputs("\"finding\":{", file);
        write_field("text", drawing->report.reason, file);
        fprintf(file,
                "\"in_place_only\":%s,\"rank\":%d,\"worker\":%d,\"step\":%d,\"tile\":%d,"
                "\"chunk\":%d},\n",
                drawing->is_wrong_in_place_only ? "true" : "false", place->rank, place->worker,
                place->step, place->tile, place->chunk);
    }
    fputs("\"programs\":[\n", file);
    for (uint32_t rank = 0; rank < drawing->n_ranks; rank++)
        GYRE_TRY(write_program(drawing, rank, file));
    fputs("],\n", file);
    write_times(drawing, file);
    fputs("}", file);
    return GYRE_SUCCESS;
}

gyre_status bench_draw_page(const struct bench_drawing *drawing, const char *title, FILE *file)
{
    static const char open_mark[] = "<!--{", close_mark[] = "}-->";
    const char *at = (const char *)bench_draw_page_html.bytes; /* ends with 0 */
    for (;;) {
        const char *open = strstr(at, open_mark);
        const char *close = open == NULL ? NULL : strstr(open, close_mark);
        if (close == NULL)
            break;
        fwrite(at, 1, (size_t)(open - at), file);
        const char *mark = open + strlen(open_mark);
        const size_t n_mark = (size_t)(close - mark);
        if (strncmp(mark, "title", n_mark) == 0)
            gyre_text_put_markup(file, title);
        else if (strncmp(mark, "style", n_mark) == 0)
            fwrite(bench_draw_page_css.bytes, 1, bench_draw_page_css.n_bytes, file);
        else if (strncmp(mark, "data", n_mark) == 0)
            GYRE_TRY(bench_draw_json(drawing, title, file));
        else if (strncmp(mark, "scripts", n_mark) == 0)
            for (int i = 0; bench_draw_scripts[i] != NULL; i++)
                fwrite(bench_draw_scripts[i]->bytes, 1, bench_draw_scripts[i]->n_bytes, file);
        at = close + strlen(close_mark);
    }
    fputs(at, file);
    return GYRE_SUCCESS;
}
