/* SPDX-License-Identifier: Apache-2.0
 *
 * One panel of a picture: the chunks that the ranks have after a round, and the slots that were
 * sent in the round. Bars look as in the page (network.js).
 */
#include "bench/draw/svg.h"

#include "algorithms/verify/memory.h"

#define MAX_CAPTIONS 160 /* slots of a panel that are labelled with their chunk */

static void draw_bar(const struct bench_svg *picture, uint32_t value,
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
void bench_svg_define_columns(const struct bench_svg *picture)
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

static void draw_column(const struct bench_svg *picture, uint32_t rank, bool is_out,
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
static bool is_wrong_now(const struct bench_svg *picture, uint32_t rank)
{
    const struct bench_drawing *drawing = picture->drawing;
    const uint32_t round = round_of_finding(drawing);
    if (drawing->is_proved || drawing->report.place.rank != (int32_t)rank)
        return false;
    return round == BENCH_DRAW_NEVER ? picture->n_applied == drawing->n_rounds
                                     : picture->n_applied > round;
}

static void draw_rank(const struct bench_svg *picture, uint32_t rank)
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
static uint32_t draw_slots(const struct bench_svg *picture, uint32_t rank, uint32_t number,
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
static uint32_t draw_slots_of_round(const struct bench_svg *picture, uint32_t round,
                                    bool is_caption)
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
static void draw_round(const struct bench_svg *picture, uint32_t round)
{
    if (draw_slots_of_round(picture, round, false) <= MAX_CAPTIONS)
        draw_slots_of_round(picture, round, true);
    fputc('\n', picture->file);
}

static void draw_caption(const struct bench_svg *picture, uint32_t n_rounds)
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

static void draw_hosts(const struct bench_svg *picture)
{
    const struct bench_draw_layout *layout = &picture->layout;
    for (uint32_t host = 0; host < layout->n_hosts; host++)
        fprintf(picture->file,
                "<rect class=\"f\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>"
                "<text class=\"s\" x=\"%.1f\" y=\"%.1f\" font-size=\"10\">host %u</text>\n",
                layout->hosts[host].x, layout->hosts[host].y, layout->hosts[host].width,
                layout->hosts[host].height, layout->hosts[host].x + 4, layout->hosts[host].y + 11,
                host);
}

void bench_svg_draw_panel(const struct bench_svg *picture)
{
    draw_caption(picture, picture->n_applied);
    fprintf(picture->file, "<g transform=\"translate(0 %d)\">\n", BENCH_SVG_CAPTION_ROOM);
    draw_hosts(picture);
    for (uint32_t rank = 0; rank < picture->drawing->n_ranks; rank++)
        draw_rank(picture, rank);
    if (picture->n_applied > 0)
        draw_round(picture, picture->n_applied - 1);
    fputs("</g>\n", picture->file);
}
