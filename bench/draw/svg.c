/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws a picture for papers and slides, with the rounds side by side. Each panel shows the chunks
 * that the ranks have after a round, and the slots that were sent in the round. Bars look as in the
 * page (network.js). Every value is defined once and used for every rank that has it.
 */
#include "algorithms/verify/memory.h"
#include "bench/draw/layout.h"
#include "bench/draw/page.h"
#include "bench/report/markup.h"
#include "core/base/status.h"
#include "core/base/util.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PANELS   12
#define MAX_BARS     24000 /* of all panels together: about a megabyte */
#define MAX_COLUMNS  4
#define MAX_CAPTIONS 160 /* slots of a panel that are labelled with their chunk */
#define CAPTION_ROOM 24
#define MARGIN       16
#define HEADER_ROOM  40
#define FOOTER_ROOM  64
#define LINE_LETTERS 150 /* of a finding, at 1000 pixels */

struct picture {
    const struct bench_drawing *drawing;
    struct bench_draw_layout layout;
    struct bench_draw_state state;
    FILE *file;
    bool *has;                   /* by rank: scratch for contributors */
    uint32_t n_applied;          /* rounds */
    uint32_t panels[MAX_PANELS]; /* how many rounds each panel is after */
    uint32_t n_panels;
    uint32_t n_columns;
    double scale;
};

static const char style[] =
    "<style>\n"
    "text{font-family:system-ui,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1a1c20}\n"
    ".b{fill:#fff}.e{fill:#e6e8ec}.f{fill:none;stroke:#9aa1ad}.s{fill:#5c6370}\n"
    ".a{stroke:#1a1c20;stroke-width:1.3;fill:none;marker-end:url(#tip)}.t{fill:#1a1c20}\n"
    ".d{fill:none;stroke:#1a1c20}.w{fill:none;stroke:#b3261e;stroke-width:2.5}.x{fill:#b3261e}\n"
    ".h,.c{stroke:#fff;stroke-width:3;paint-order:stroke;stroke-linejoin:round}\n"
    ".c{font-size:9px;text-anchor:middle}\n"
    "@media(prefers-color-scheme:dark){text{fill:#eceef2}.b{fill:#15171b}.e{fill:#31363f}\n"
    ".f{stroke:#5a6170}.s{fill:#a4abb8}.a{stroke:#eceef2}.t{fill:#eceef2}.d{stroke:#eceef2}\n"
    ".w{stroke:#ff8a80}.x{fill:#ff8a80}.h,.c{stroke:#15171b}}\n"
    "</style>\n";

/* ---- values ------------------------------------------------------------------------------- */

/* Define the symbol of a value, with a cell for each rank that contributes. */
static void define_value(const struct picture *picture, uint32_t value)
{
    const struct bench_drawing *drawing = picture->drawing;
    const bool reduces = gyre_collectives[drawing->programs[0]->coll].reduces;
    char colour[8];
    memset(picture->has, 0, drawing->n_ranks * sizeof(*picture->has));
    bench_draw_contributors(drawing, value, picture->has);
    fprintf(picture->file, "<symbol id=\"v%u\" viewBox=\"0 0 %u 1\" preserveAspectRatio=\"none\">",
            value, reduces ? drawing->n_ranks : 1);
    for (uint32_t rank = 0; rank < drawing->n_ranks; rank++) {
        if (!picture->has[rank])
            continue;
        bench_draw_rank_colour(rank, drawing->n_ranks, colour);
        fprintf(picture->file, "<rect x=\"%u\" width=\"1\" height=\"1\" fill=\"%s\"/>",
                reduces ? rank : 0, colour);
    }
    fputs("</symbol>\n", picture->file);
}

/* Advance the state to the state after so many rounds. Panels are drawn in order, so the state
 * never goes back. */
static void advance(struct picture *picture, uint32_t n_rounds)
{
    const struct bench_drawing *drawing = picture->drawing;
    for (; picture->n_applied < n_rounds; picture->n_applied++)
        for (uint32_t rank = 0; rank < drawing->n_ranks; rank++)
            for (uint32_t i = 0; i < drawing->programs[rank]->n_steps; i++)
                if (drawing->steps[drawing->first_step[rank] + i].round == picture->n_applied)
                    bench_draw_apply(drawing, rank, i, &picture->state);
}

static gyre_status rewind_state(struct picture *picture)
{
    bench_draw_state_close(&picture->state);
    picture->n_applied = 0;
    return bench_draw_state_open(picture->drawing, &picture->state);
}

static gyre_status define_values(struct picture *picture)
{
    const struct bench_drawing *drawing = picture->drawing;
    const size_t n_chunks = (size_t)drawing->n_ranks * drawing->n_parts;
    bool *is_used = calloc(drawing->n_values + 1, sizeof(*is_used));
    if (is_used == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a picture");
    for (uint32_t panel = 0; panel < picture->n_panels; panel++) {
        advance(picture, picture->panels[panel]);
        for (size_t i = 0; i < n_chunks; i++)
            is_used[picture->state.now[i]] = is_used[picture->state.out[i]] = true;
    }
    for (uint32_t value = 1; value <= drawing->n_values; value++)
        if (is_used[value])
            define_value(picture, value);
    free(is_used);
    return rewind_state(picture);
}

/* ---- one panel ---------------------------------------------------------------------------- */

static void draw_bar(const struct picture *picture, uint32_t value,
                     const struct bench_draw_box *box, bool is_done)
{
    if (value == BENCH_DRAW_NOTHING)
        return; /* the background of the column stays empty */
    fprintf(picture->file,
            "<use href=\"#v%u\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>", value,
            box->x, box->y, box->width, box->height);
    if (is_done && box->height >= 4)
        fprintf(picture->file,
                "<rect class=\"d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>", box->x,
                box->y, box->width, box->height);
}

/* The room between two bars. */
static double gap_of(double row_height)
{
    return row_height >= 6 ? 1.6 : row_height >= 3 ? 0.8 : 0;
}

/* The number of chunks of one of the two columns: the chunks that a rank works on, and its output.
 */
static uint32_t parts_of_column(const struct bench_drawing *drawing, bool is_out)
{
    return is_out ? gyre_program_n_parts(drawing->programs[0], GYRE_OPERAND_OUT) : drawing->n_parts;
}

/* Define the backgrounds of both columns, as symbols e0 and e1. */
static void define_columns(const struct picture *picture)
{
    const struct bench_drawing *drawing = picture->drawing;
    const double row = picture->layout.ranks[0].height / drawing->n_parts;
    const double gap = gap_of(row) / row;
    for (int is_out = 0; is_out < 2; is_out++) {
        const uint32_t n = parts_of_column(drawing, is_out == 1);
        fprintf(picture->file,
                "<symbol id=\"e%d\" viewBox=\"0 0 1 %u\" preserveAspectRatio=\"none\">", is_out,
                drawing->n_parts);
        if (gap <= 0)
            fprintf(picture->file, "<rect class=\"e\" width=\"1\" height=\"%u\"/>", n);
        for (uint32_t i = 0; i < n && gap > 0; i++)
            fprintf(picture->file, "<rect class=\"e\" y=\"%.3f\" width=\"1\" height=\"%.3f\"/>",
                    i + gap / 2, 1 - gap);
        fputs("</symbol>\n", picture->file);
    }
}

static void draw_column(const struct picture *picture, uint32_t rank, bool is_out,
                        const struct bench_draw_box *column)
{
    const struct bench_drawing *drawing = picture->drawing;
    const uint32_t *values = is_out ? picture->state.out : picture->state.now;
    const double row = column->height / drawing->n_parts;
    const double gap = gap_of(row);
    fprintf(picture->file,
            "<use href=\"#e%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>",
            is_out ? 1 : 0, column->x, column->y, column->width, column->height);
    for (uint32_t i = 0; i < parts_of_column(drawing, is_out); i++) {
        const struct bench_draw_box bar = {column->x, column->y + i * row + gap / 2, column->width,
                                           row - gap};
        const uint32_t value = values[(size_t)rank * drawing->n_parts + i];
        draw_bar(picture, value, &bar, is_out && bench_draw_is_done(drawing, rank, i, value));
    }
}

/* The round in which the step runs that the verifier refuses; BENCH_DRAW_NEVER if there is no such
 * step, or if it never runs. */
static uint32_t round_of_finding(const struct bench_drawing *drawing)
{
    const struct gyre_verify_place *place = &drawing->report.place;
    if (drawing->is_proved || place->rank < 0 || place->worker < 0 || place->step < 0)
        return BENCH_DRAW_NEVER;
    const struct gyre_worker *worker = &drawing->programs[place->rank]->workers[place->worker];
    return drawing
        ->steps[drawing->first_step[place->rank] + worker->first_step + (uint32_t)place->step]
        .round;
}

/* Is the rank marked as wrong in this panel: from the round of the finding on, or, if there is
 * none, at the end? */
static bool is_wrong_now(const struct picture *picture, uint32_t rank)
{
    const struct bench_drawing *drawing = picture->drawing;
    const uint32_t round = round_of_finding(drawing);
    if (drawing->is_proved || drawing->report.place.rank != (int32_t)rank)
        return false;
    return round == BENCH_DRAW_NEVER ? picture->n_applied == drawing->n_rounds
                                     : picture->n_applied > round;
}

static void draw_rank(const struct picture *picture, uint32_t rank)
{
    const struct bench_drawing *drawing = picture->drawing;
    const struct bench_draw_box *box = &picture->layout.ranks[rank];
    const bool is_wrong = is_wrong_now(picture, rank);
    const double width = (box->width - 2) / 2;
    char colour[8];
    bench_draw_rank_colour(rank, drawing->n_ranks, colour);
    fprintf(picture->file,
            "<rect class=\"b\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>"
            "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>",
            box->x - 2, box->y - 2, box->width + 4, box->height + 4, is_wrong ? "w" : "f",
            box->x - 2, box->y - 2, box->width + 4, box->height + 4);
    const bool is_small = box->width < 30;
    fprintf(picture->file,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"7\" height=\"7\" fill=\"%s\"/>"
            "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" font-size=\"%d\">%s%u%s</text>\n",
            box->x - 2, box->y - 10.5, colour, is_wrong ? "x" : "h", box->x + 7, box->y - 4,
            is_small ? 8 : 10, is_small ? "" : "rank ", rank, is_wrong ? " \xe2\x9a\xa0" : "");
    const struct bench_draw_box now = {box->x, box->y, width, box->height};
    const struct bench_draw_box out = {box->x + width + 2, box->y, width, box->height};
    draw_column(picture, rank, false, &now);
    if (gyre_verify_expect(drawing->programs[rank], 0).is_owned)
        draw_column(picture, rank, true, &out);
    fputc('\n', picture->file);
}

/* Draw the slots that a step sends, as arrows or as the numbers of their chunks. Returns the number
 * of slots. */
static uint32_t draw_slots(const struct picture *picture, uint32_t rank, uint32_t number,
                           bool is_caption)
{
    const struct gyre_program *program = picture->drawing->programs[rank];
    const struct gyre_step *step = &program->steps[number];
    uint32_t n_slots = 0;
    for (uint32_t i = 0; i < step->n_outs; i++) {
        double at[6];
        if (step->outs[i].kind != GYRE_OPERAND_CONNECTION)
            continue;
        const uint16_t peer = program->connections[step->outs[i].index].peer;
        bench_draw_arrow(&picture->layout, rank, peer, at);
        if (is_caption) /* at 0.4 of the curve */
            fprintf(picture->file, "<text class=\"c\" x=\"%.0f\" y=\"%.0f\">c%u</text>",
                    at[0] * 0.36 + at[2] * 0.48 + at[4] * 0.16,
                    at[1] * 0.36 + at[3] * 0.48 + at[5] * 0.16 + 3, step->chunk);
        else
            fprintf(picture->file, "<path class=\"a\" d=\"M%.1f %.1fQ%.1f %.1f %.1f %.1f\"/>",
                    at[0], at[1], at[2], at[3], at[4], at[5]);
        n_slots++;
    }
    return n_slots;
}

/* Draw all slots that are sent in a round. Returns their number. */
static uint32_t draw_slots_of_round(const struct picture *picture, uint32_t round, bool is_caption)
{
    const struct bench_drawing *drawing = picture->drawing;
    uint32_t n_slots = 0;
    for (uint32_t rank = 0; rank < drawing->n_ranks; rank++)
        for (uint32_t i = 0; i < drawing->programs[rank]->n_steps; i++)
            if (drawing->steps[drawing->first_step[rank] + i].round == round)
                n_slots += draw_slots(picture, rank, i, is_caption);
    return n_slots;
}

/* Draw a round. Arrows are drawn first, so that no arrow crosses a number. */
static void draw_round(const struct picture *picture, uint32_t round)
{
    if (draw_slots_of_round(picture, round, false) <= MAX_CAPTIONS)
        draw_slots_of_round(picture, round, true);
    fputc('\n', picture->file);
}

static void draw_caption(const struct picture *picture, uint32_t n_rounds)
{
    const struct bench_drawing *drawing = picture->drawing;
    const bool is_end = n_rounds == drawing->n_rounds;
    char text[32] = "start";
    if (n_rounds > 0)
        snprintf(text, sizeof(text), "round %u", n_rounds - 1);
    fprintf(picture->file, "<text x=\"0\" y=\"14\" font-size=\"13\" font-weight=\"600\">%s</text>",
            text);
    if (n_rounds > 0 && round_of_finding(drawing) == n_rounds - 1)
        fprintf(picture->file,
                "<text class=\"x\" x=\"70\" y=\"14\" font-size=\"12\">\xe2\x9a\xa0 rank %d, worker "
                "%d, step %d</text>",
                drawing->report.place.rank, drawing->report.place.worker,
                drawing->report.place.step);
    else if (is_end && drawing->is_stuck)
        fputs("<text class=\"x\" x=\"70\" y=\"14\" font-size=\"12\">no further step can run</text>",
              picture->file);
    fputc('\n', picture->file);
}

static void draw_panel(struct picture *picture, uint32_t panel)
{
    const struct bench_draw_layout *layout = &picture->layout;
    const uint32_t n_rounds = picture->panels[panel];
    advance(picture, n_rounds);
    fprintf(picture->file, "<g transform=\"translate(%.0f %.0f)\">\n",
            MARGIN + panel % picture->n_columns * (layout->width + 2 * MARGIN),
            HEADER_ROOM + panel / picture->n_columns * (layout->height + CAPTION_ROOM + MARGIN));
    draw_caption(picture, n_rounds);
    fprintf(picture->file, "<g transform=\"translate(0 %d)\">\n", CAPTION_ROOM);
    for (uint32_t host = 0; host < layout->n_hosts; host++)
        fprintf(picture->file,
                "<rect class=\"f\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>"
                "<text class=\"s\" x=\"%.1f\" y=\"%.1f\" font-size=\"10\">host %u</text>\n",
                layout->hosts[host].x, layout->hosts[host].y, layout->hosts[host].width,
                layout->hosts[host].height, layout->hosts[host].x + 4, layout->hosts[host].y + 11,
                host);
    for (uint32_t rank = 0; rank < picture->drawing->n_ranks; rank++)
        draw_rank(picture, rank);
    if (n_rounds > 0)
        draw_round(picture, n_rounds - 1);
    fputs("</g>\n</g>\n", picture->file);
}

/* ---- the picture -------------------------------------------------------------------------- */

/* Choose the panels: all rounds if there is room, else the first, the last, and others evenly
 * between. */
static void choose_panels(struct picture *picture, int round)
{
    const struct bench_drawing *drawing = picture->drawing;
    if (round >= 0) {
        picture->panels[picture->n_panels++] = (uint32_t)round + 1;
    } else {
        const uint64_t bars = 2ULL * drawing->n_ranks * drawing->n_parts;
        const uint32_t room = gyre_clamp_u32(MAX_BARS / bars, 2, MAX_PANELS);
        const uint32_t n_moments = drawing->n_rounds + 1;
        picture->n_panels = gyre_min_u32(room, n_moments);
        for (uint32_t i = 0; i < picture->n_panels; i++)
            picture->panels[i] =
                picture->n_panels == 1
                    ? 0
                    : (uint32_t)((uint64_t)i * (n_moments - 1) / (picture->n_panels - 1));
    }
    picture->n_columns = gyre_min_u32(picture->n_panels, MAX_COLUMNS);
    if (picture->layout.width > 400)
        picture->n_columns = gyre_min_u32(picture->n_panels, 2);
}

/* Draw the verifier's finding in lines. Returns the number of lines. */
static uint32_t draw_finding(const struct picture *picture, double y, size_t most_letters)
{
    const struct bench_drawing *drawing = picture->drawing;
    char text[sizeof(drawing->report.reason) + 64], line[sizeof(text)];
    uint32_t n_lines = 0;
    snprintf(text, sizeof(text), "\xe2\x9a\xa0 wrong%s: %s",
             drawing->is_wrong_in_place_only ? " in place" : "", drawing->report.reason);
    for (const char *at = text; *at != '\0';) {
        size_t n = strlen(at);
        if (n > most_letters) {
            n = most_letters;
            while (n > 1 && at[n] != ' ')
                n--;
        }
        snprintf(line, sizeof(line), "%.*s", (int)n, at);
        fprintf(picture->file, "<text class=\"x\" x=\"%d\" y=\"%.0f\" font-size=\"12\">", MARGIN,
                y + 16 * n_lines++);
        bench_markup_escape(line, picture->file);
        fputs("</text>\n", picture->file);
        at += n + (at[n] == ' ');
    }
    return n_lines;
}

static void draw_legend(const struct picture *picture, double y, double width)
{
    const struct bench_drawing *drawing = picture->drawing;
    const bool reduces = gyre_collectives[drawing->programs[0]->coll].reduces;
    double x = MARGIN;
    char colour[8];
    for (uint32_t rank = 0; rank < drawing->n_ranks; rank++) {
        if (drawing->n_ranks > 16 && rank % (drawing->n_ranks / 8) != 0)
            continue;
        if (x > width - 60)
            break;
        bench_draw_rank_colour(rank, drawing->n_ranks, colour);
        fprintf(picture->file,
                "<rect x=\"%.0f\" y=\"%.0f\" width=\"9\" height=\"9\" fill=\"%s\"/>"
                "<text x=\"%.0f\" y=\"%.0f\" font-size=\"11\">rank %u</text>\n",
                x, y - 8, colour, x + 13, y, rank);
        x += 62;
    }
    const char *const lines[] = {
        reduces ? "Bar: a chunk, with a cell for each rank that has contributed."
                : "Bar: a chunk, in the colour of the rank whose input it holds.",
        "Left column: what the rank works on. Right: its output; framed = complete. Arrows: slots "
        "that are sent."};
    for (uint32_t i = 0; i < GYRE_ARRAY_LENGTH(lines); i++)
        fprintf(picture->file, "<text class=\"s\" x=\"%d\" y=\"%.0f\" font-size=\"11\">%s</text>\n",
                MARGIN, y + 17 + 15 * i, lines[i]);
}

static gyre_status draw_all(struct picture *picture, const char *title)
{
    const struct bench_draw_layout *layout = &picture->layout;
    const struct bench_drawing *drawing = picture->drawing;
    const uint32_t n_rows = (picture->n_panels + picture->n_columns - 1) / picture->n_columns;
    const double width = fmax(picture->n_columns * (layout->width + 2 * MARGIN), 560);
    const double panels_end = HEADER_ROOM + n_rows * (layout->height + CAPTION_ROOM + MARGIN);
    const size_t letters = (size_t)(LINE_LETTERS * width / 1000);
    const double n_lines =
        drawing->is_proved
            ? 0
            : ceil((double)(strlen(drawing->report.reason) + 20) / (double)letters) + 1;
    const double height = panels_end + FOOTER_ROOM + 16 * n_lines;
    fprintf(picture->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
            "height=\"%.0f\" role=\"img\">\n<title>",
            width, height, width, height);
    bench_markup_escape(title, picture->file);
    fputs("</title>\n<desc>", picture->file);
    fprintf(picture->file, "%u of %u moments: the chunks of every rank after each round.",
            picture->n_panels, drawing->n_rounds + 1);
    fprintf(picture->file, "</desc>\n%s", style);
    fputs("<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"6\" "
          "markerHeight=\"6\" orient=\"auto\"><path class=\"t\" d=\"M0 0L8 4L0 8Z\"/></marker>\n",
          picture->file);
    define_columns(picture);
    GYRE_TRY(define_values(picture));
    fprintf(picture->file, "</defs>\n<rect class=\"b\" width=\"%.0f\" height=\"%.0f\"/>\n", width,
            height);
    fprintf(picture->file, "<text x=\"%d\" y=\"24\" font-size=\"17\" font-weight=\"600\">", MARGIN);
    bench_markup_escape(title, picture->file);
    fputs("</text>\n", picture->file);
    for (uint32_t panel = 0; panel < picture->n_panels; panel++)
        draw_panel(picture, panel);
    double y = panels_end + 14;
    if (!drawing->is_proved)
        y += 16 * draw_finding(picture, y, letters) + 6;
    draw_legend(picture, y, width);
    fputs("</svg>\n", picture->file);
    return GYRE_SUCCESS;
}

gyre_status bench_draw_svg(const struct bench_drawing *drawing, const char *title, int round,
                           FILE *file)
{
    struct picture picture = {.drawing = drawing, .file = file, .scale = round >= 0 ? 2 : 1};
    if (round >= 0 && (uint32_t)round >= drawing->n_rounds)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "--round %d: there are %u rounds, from 0 on",
                         round, drawing->n_rounds);
    gyre_status status = bench_draw_layout_open(drawing, picture.scale, &picture.layout);
    if (status != GYRE_SUCCESS)
        return status;
    picture.has = calloc(drawing->n_ranks, sizeof(*picture.has));
    if (picture.has == NULL)
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a picture");
    if (status == GYRE_SUCCESS)
        status = bench_draw_state_open(drawing, &picture.state);
    if (status == GYRE_SUCCESS) {
        choose_panels(&picture, round);
        status = draw_all(&picture, title);
    }
    bench_draw_state_close(&picture.state);
    bench_draw_layout_close(&picture.layout);
    free(picture.has);
    return status;
}
