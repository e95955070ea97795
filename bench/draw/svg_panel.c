/* SPDX-License-Identifier: Apache-2.0
 *
 * Bars and colours look as in the page (ranks.js).
 */
#include "bench/draw/svg.h"

#include "core/foundation/base/status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define TITLE_ROOM 14   /* for the number above a box */
#define BEND       0.18 /* of the distance */
#define ROW_BEND   0.42 /* past the ranks between */
#define PLACE_GAP  44   /* between boxes: for arrows and captions */
#define LEVEL_GAP  36
#define PLACE_ROOM 1000 /* of all columns */
#define LEVEL_BEND 0.35 /* past the levels between */

/* Okabe and Ito, "Color Universal Design", 2008, without those hard to see on white, then blue
 * to yellow. */
static const uint8_t few_colours[8][3] = {
    {0xe6, 0x9f, 0x00}, {0x56, 0xb4, 0xe9}, {0x00, 0x9e, 0x73}, {0xcc, 0x79, 0xa7},
    {0x00, 0x72, 0xb2}, {0xd5, 0x5e, 0x00}, {0xb8, 0xa8, 0x00}, {0x8a, 0x8a, 0x8a}};
static const uint8_t scale_colours[6][3] = {{48, 88, 176},   {86, 104, 140},  {120, 120, 124},
                                            {158, 145, 117}, {204, 178, 102}, {250, 220, 60}};

void bench_draw_rank_colour(uint32_t rank, uint32_t n_ranks, char text_out[8])
{
    unsigned rgb[3];
    const double at = n_ranks <= 8 ? 0 : rank * 5.0 / (n_ranks - 1);
    const unsigned low = at >= 4 ? 4 : (unsigned)at;
    for (int i = 0; i < 3; i++)
        rgb[i] = n_ranks <= 8
                     ? few_colours[rank][i]
                     : (unsigned)(scale_colours[low][i] +
                                  (scale_colours[low + 1][i] - scale_colours[low][i]) * (at - low) +
                                  0.5);
    snprintf(text_out, 8, "#%02x%02x%02x", rgb[0] & 255, rgb[1] & 255, rgb[2] & 255);
}

/* At equal distances, clockwise from the top. */
static void place_on_ellipse(struct bench_draw_layout *layout, uint32_t n_ranks, double radius_x,
                             double radius_y)
{
    enum { FINE = 4000 };
    const double turn = 2 * 3.14159265358979323846;
    double length = 0;
    for (int pass = 0; pass < 2; pass++) {
        double x = 0, y = -radius_y, done = 0;
        uint32_t rank = 0;
        for (int i = 1; i <= FINE; i++) {
            if (pass == 1)
                for (; rank < n_ranks && done >= length * rank / n_ranks; rank++) {
                    struct bench_draw_box *box = &layout->ranks[rank];
                    box->x = layout->width / 2 + x - box->width / 2;
                    box->y = (layout->height + TITLE_ROOM) / 2 + y - box->height / 2;
                }
            const double next_x = radius_x * sin(turn * i / FINE);
            const double next_y = -radius_y * cos(turn * i / FINE);
            /* hypot() is of glibc 2.35, which older systems lack. */
            done += sqrt((next_x - x) * (next_x - x) + (next_y - y) * (next_y - y));
            x = next_x;
            y = next_y;
        }
        length = done;
    }
}

static void place_in_frame(struct bench_draw_layout *layout, const struct bench_drawing *drawing,
                           uint32_t host, bool is_row, double scale)
{
    const struct bench_draw_box *frame = &layout->hosts[host];
    const struct gyre_grouping *grouping = drawing->grouping;
    uint32_t n_members = 0, member = 0;
    for (uint32_t rank = 0; rank < drawing->n_ranks; rank++)
        n_members += grouping->host_of[rank] == host;
    const uint32_t across =
        is_row ? n_members
               : (uint32_t)fmax(1, ceil(sqrt(n_members * frame->width / frame->height * 0.9)));
    const uint32_t down = (n_members + across - 1) / across;
    const double cell_width = (frame->width - 8) / across;
    const double cell_height = (frame->height - 16) / down;
    const double width = fmin(cell_width * 0.66, 66 * scale);
    const double height = fmin(cell_height * 0.62 - TITLE_ROOM / 2.0, 54 * scale);
    for (uint32_t rank = 0; rank < drawing->n_ranks; rank++) {
        if (grouping->host_of[rank] != host)
            continue;
        layout->ranks[rank] = (struct bench_draw_box){
            frame->x + 4 + (member % across + 0.5) * cell_width - width / 2,
            frame->y + 18 + (member / across + 0.5) * cell_height - height / 2, width, height};
        member++;
    }
}

/* A few small hosts stand above each other, each a row, so that links between hosts are upright.
 * Other shapes are grids. */
static void place_in_hosts(struct bench_draw_layout *layout, const struct bench_drawing *drawing,
                           double scale)
{
    const uint32_t n = layout->n_hosts;
    uint32_t most = 0; /* ranks of a host */
    for (uint32_t host = 0; host < n; host++) {
        uint32_t n_members = 0;
        for (uint32_t rank = 0; rank < drawing->n_ranks; rank++)
            n_members += drawing->grouping->host_of[rank] == host;
        most = n_members > most ? n_members : most;
    }
    const bool is_stacked = n <= 4 && most <= 8;
    const uint32_t columns = is_stacked ? 1 : (uint32_t)ceil(sqrt(n));
    const uint32_t rows = (n + columns - 1) / columns;
    const double gap = n > 16 ? 10 : 22 * scale;
    const double width = (layout->width - gap * (columns - 1) - 4) / columns;
    const double height = (layout->height - gap * (rows - 1) - 4) / rows;
    for (uint32_t host = 0; host < n; host++) {
        layout->hosts[host] = (struct bench_draw_box){
            2 + host % columns * (width + gap), 2 + host / columns * (height + gap), width, height};
        place_in_frame(layout, drawing, host, is_stacked, scale);
    }
}

gyre_status bench_draw_layout_open(const struct bench_drawing *drawing, double scale,
                                   struct bench_draw_layout *layout_out)
{
    const uint32_t n = drawing->n_ranks;
    struct bench_draw_layout layout = {0};
    layout.width = (n <= 8 ? 250 : fmin(820, 250 + (n - 8) * 11.0)) * scale;
    layout.height = layout.width * (n <= 8 ? 0.92 : 0.86);
    if (drawing->grouping != NULL && drawing->grouping->n_hosts > 1)
        layout.n_hosts = drawing->grouping->n_hosts;
    layout.ranks = calloc(n, sizeof(*layout.ranks));
    layout.hosts = calloc(layout.n_hosts + 1, sizeof(*layout.hosts));
    if (layout.ranks == NULL || layout.hosts == NULL) {
        bench_draw_layout_close(&layout);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to place %u ranks", n);
    }
    if (layout.n_hosts > 0) {
        place_in_hosts(&layout, drawing, scale);
    } else if (drawing->places != NULL) {
        const double gap = PLACE_GAP * scale;
        const double width = fmin(55, PLACE_ROOM / drawing->n_columns - PLACE_GAP) * scale;
        const double height = fmax(width / 1.2, 30 * scale);
        layout.step_x = width + gap;
        layout.step_y = height + TITLE_ROOM + LEVEL_GAP * scale;
        for (uint32_t rank = 0; rank < n; rank++)
            layout.ranks[rank] = (struct bench_draw_box){
                gap / 2 + drawing->places[rank].x * layout.step_x,
                LEVEL_GAP * scale / 2 + TITLE_ROOM + drawing->places[rank].y * layout.step_y, width,
                height};
        layout.width = fmax(drawing->n_columns * layout.step_x, 190 * scale);
        layout.height = drawing->n_rows * layout.step_y;
    } else {
        const double around = layout.width + layout.height;
        const double height = fmax(13 * scale, fmin(54 * scale, around / (n + 6.5)));
        const double width = n <= 8 ? height * 1.2 : height;
        for (uint32_t rank = 0; rank < n; rank++)
            layout.ranks[rank] = (struct bench_draw_box){0, 0, width, height};
        place_on_ellipse(&layout, n, (layout.width - width) / 2 - 8,
                         (layout.height - height - TITLE_ROOM) / 2 - 4);
    }
    *layout_out = layout;
    return GYRE_SUCCESS;
}

void bench_draw_layout_close(struct bench_draw_layout *layout)
{
    free(layout->ranks);
    free(layout->hosts);
}

/* Where the line towards a point leaves the box with its title and margin. */
static void leave_box(const struct bench_draw_box *box, const double *towards, double margin,
                      double *point_out)
{
    const double x = box->x + box->width / 2, y = box->y + box->height / 2;
    const double dx = towards[0] - x, dy = towards[1] - y;
    const double room = box->height / 2 + margin + (dy < 0 ? TITLE_ROOM - 3 : 0);
    const double share = fmin(
        1, fmin((box->width / 2 + margin) / fmax(fabs(dx), 1e-6), room / fmax(fabs(dy), 1e-6)));
    point_out[0] = x + dx * share;
    point_out[1] = y + dy * share;
}

/* The curve is bent to the left, so that both directions are visible. @curve_out: start, control
 * point and end of a quadratic curve, each x and y. */
static void find_arrow(const struct bench_draw_layout *layout, uint32_t from, uint32_t to,
                       double curve_out[6])
{
    const struct bench_draw_box *a = &layout->ranks[from], *b = &layout->ranks[to];
    const double x1 = a->x + a->width / 2, y1 = a->y + a->height / 2;
    const double x2 = b->x + b->width / 2, y2 = b->y + b->height / 2;
    const bool is_row = fabs(y1 - y2) < 1;
    double bend = layout->n_hosts > 0 && is_row ? ROW_BEND : BEND;
    if (layout->step_x > 0 && is_row && fabs(x1 - x2) > 1.5 * layout->step_x)
        bend = (a->height + TITLE_ROOM + 20) / fabs(x1 - x2); /* just past the boxes between */
    else if (layout->step_x > 0 && fabs(x1 - x2) < 1 && fabs(y1 - y2) > 1.5 * layout->step_y)
        bend = (a->width + 20) / fabs(y1 - y2);
    else if (layout->step_x > 0 && fabs(y1 - y2) > 1.5 * layout->step_y)
        bend = ((x1 + x2 < layout->width) == (y2 < y1)) ? LEVEL_BEND : -LEVEL_BEND; /* outwards */
    curve_out[2] = (x1 + x2) / 2 + bend * (y2 - y1);
    curve_out[3] = (y1 + y2) / 2 - bend * (x2 - x1);
    leave_box(a, &curve_out[2], 2, &curve_out[0]);
    leave_box(b, &curve_out[2], 3, &curve_out[4]);
}

#define MAX_CAPTIONS 160

static double gap_of(double row_height)
{
    return row_height >= 6 ? 1.6 : row_height >= 3 ? 0.8 : 0;
}

static uint32_t parts_of_column(const struct bench_drawing *drawing, bool is_out)
{
    return is_out ? gyre_program_n_parts(drawing->programs[0], GYRE_OPERAND_OUT) : drawing->n_parts;
}

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
        const bool is_done = is_out && bench_draw_is_done(drawing, rank, i, value);
        if (value == BENCH_DRAW_NOTHING)
            continue;
        fprintf(picture->file,
                "<use href=\"#v%u\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>", value,
                bar.x, bar.y, bar.width, bar.height);
        if (is_done && bar.height >= 4)
            fprintf(picture->file,
                    "<rect class=\"d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>",
                    bar.x, bar.y, bar.width, bar.height);
    }
}

/* BENCH_DRAW_NEVER without a refused step that runs. */
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

static void draw_rank(const struct bench_svg *picture, uint32_t rank)
{
    const struct bench_drawing *drawing = picture->drawing;
    const struct bench_draw_box *box = &picture->layout.ranks[rank];
    const uint32_t round = round_of_finding(drawing);
    const bool is_wrong = !drawing->is_proved && drawing->report.place.rank == (int32_t)rank &&
                          (round == BENCH_DRAW_NEVER ? picture->n_applied == drawing->n_rounds
                                                     : picture->n_applied > round);
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

/* Returns how many there are. */
static uint32_t draw_slots(const struct bench_svg *picture, uint32_t round, bool is_caption)
{
    const struct bench_drawing *drawing = picture->drawing;
    uint32_t n_slots = 0;
    for (uint32_t rank = 0; rank < drawing->n_ranks; rank++) {
        const struct gyre_program *program = drawing->programs[rank];
        for (uint32_t number = 0; number < program->n_steps; number++) {
            const struct gyre_step *step = &program->steps[number];
            if (drawing->steps[drawing->first_step[rank] + number].round != round)
                continue;
            for (uint32_t i = 0; i < step->n_outs; i++) {
                double at[6];
                if (step->outs[i].kind != GYRE_OPERAND_CONNECTION)
                    continue;
                find_arrow(&picture->layout, rank, program->connections[step->outs[i].index].peer,
                           at);
                if (is_caption) /* at 0.4 of the curve */
                    fprintf(picture->file, "<text class=\"c\" x=\"%.0f\" y=\"%.0f\">c%u</text>",
                            at[0] * 0.36 + at[2] * 0.48 + at[4] * 0.16,
                            at[1] * 0.36 + at[3] * 0.48 + at[5] * 0.16 + 3, step->chunk);
                else
                    fprintf(picture->file,
                            "<path class=\"a\" d=\"M%.1f %.1fQ%.1f %.1f %.1f %.1f\"/>", at[0],
                            at[1], at[2], at[3], at[4], at[5]);
                n_slots++;
            }
        }
    }
    return n_slots;
}

void bench_svg_draw_panel(const struct bench_svg *picture)
{
    const uint32_t n_rounds = picture->n_applied;
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
    else if (picture->n_left_out > 0)
        fprintf(picture->file,
                "<text class=\"s\" x=\"70\" y=\"14\" font-size=\"11\">%u round%s before it left "
                "out</text>",
                picture->n_left_out, picture->n_left_out > 1 ? "s" : "");
    else if (is_end && drawing->is_stuck)
        fputs("<text class=\"x\" x=\"70\" y=\"14\" font-size=\"12\">no further step can run</text>",
              picture->file);
    fputc('\n', picture->file);
    fprintf(picture->file, "<g transform=\"translate(0 %d)\">\n", BENCH_SVG_CAPTION_ROOM);
    const struct bench_draw_layout *layout = &picture->layout;
    for (uint32_t host = 0; host < layout->n_hosts; host++)
        fprintf(picture->file,
                "<rect class=\"f\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>"
                "<text class=\"s\" x=\"%.1f\" y=\"%.1f\" font-size=\"10\">host %u</text>\n",
                layout->hosts[host].x, layout->hosts[host].y, layout->hosts[host].width,
                layout->hosts[host].height, layout->hosts[host].x + 4, layout->hosts[host].y + 11,
                host);
    for (uint32_t rank = 0; rank < picture->drawing->n_ranks; rank++)
        draw_rank(picture, rank);
    if (picture->n_applied > 0) {
        const uint32_t round = picture->n_applied - 1;
        if (draw_slots(picture, round, false) <= MAX_CAPTIONS)
            draw_slots(picture, round, true);
        fputc('\n', picture->file);
    }
    fputs("</g>\n", picture->file);
}
