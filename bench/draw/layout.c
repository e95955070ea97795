/* SPDX-License-Identifier: Apache-2.0
 *
 * Boxes, arrows and colours of the SVG (bench/draw/layout.h). Those of the page are in network.js.
 */
#include "bench/draw/layout.h"

#include "core/foundation/base/status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define TITLE_ROOM 14   /* above each box, for the number of the rank */
#define BEND       0.18 /* of the distance: how far arrows are bent */
#define ROW_BEND   0.42 /* the same in a row of ranks, where arrows pass the ranks between */

/* Okabe and Ito, "Color Universal Design", 2008, without the colours that are hard to see on white;
 * then a scale from dark blue to yellow, for more ranks. */
static const uint8_t few_colours[8][3] = {
    {0xe6, 0x9f, 0x00}, {0x56, 0xb4, 0xe9}, {0x00, 0x9e, 0x73}, {0xcc, 0x79, 0xa7},
    {0x00, 0x72, 0xb2}, {0xd5, 0x5e, 0x00}, {0xb8, 0xa8, 0x00}, {0x8a, 0x8a, 0x8a}};
static const uint8_t scale_colours[6][3] = {{20, 46, 110},   {66, 78, 107},   {110, 109, 115},
                                            {155, 142, 117}, {204, 178, 102}, {250, 220, 60}};

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

/* Points at equal distances along an ellipse around the picture's middle, the first one at the top,
 * clockwise. The boxes get these as their middles. */
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
            /* Not hypot(): its symbol is of glibc 2.35, and would keep the wheel off older systems.
             */
            done += sqrt((next_x - x) * (next_x - x) + (next_y - y) * (next_y - y));
            x = next_x;
            y = next_y;
        }
        length = done;
    }
}

static void place_on_circle(struct bench_draw_layout *layout, uint32_t n_ranks, double scale)
{
    const double around = layout->width + layout->height;
    const double height = fmax(13 * scale, fmin(54 * scale, around / (n_ranks + 6.5)));
    const double width = n_ranks <= 8 ? height * 1.2 : height;
    for (uint32_t rank = 0; rank < n_ranks; rank++)
        layout->ranks[rank] = (struct bench_draw_box){0, 0, width, height};
    place_on_ellipse(layout, n_ranks, (layout->width - width) / 2 - 8,
                     (layout->height - height - TITLE_ROOM) / 2 - 4);
}

/* Place the ranks of one host in one row, or in a grid. */
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

static uint32_t most_of_a_host(const struct bench_drawing *drawing)
{
    const struct gyre_grouping *grouping = drawing->grouping;
    uint32_t most = 0;
    for (uint32_t host = 0; host < grouping->n_hosts; host++) {
        uint32_t n = 0;
        for (uint32_t rank = 0; rank < drawing->n_ranks; rank++)
            n += grouping->host_of[rank] == host;
        most = n > most ? n : most;
    }
    return most;
}

/* A few small hosts stand above each other, with their ranks in a row: links between the hosts are
 * then upright lines. Other shapes are a grid of hosts with a grid of ranks in each. */
static void place_in_hosts(struct bench_draw_layout *layout, const struct bench_drawing *drawing,
                           double scale)
{
    const uint32_t n = layout->n_hosts;
    const bool is_stacked = n <= 4 && most_of_a_host(drawing) <= 8;
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
    if (layout.n_hosts > 0)
        place_in_hosts(&layout, drawing, scale);
    else
        place_on_circle(&layout, n, scale);
    *layout_out = layout;
    return GYRE_SUCCESS;
}

void bench_draw_layout_close(struct bench_draw_layout *layout)
{
    free(layout->ranks);
    free(layout->hosts);
}

/* Where the line from the middle of a box towards a point leaves the box, the title above it, and a
 * margin around both. */
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

void bench_draw_arrow(const struct bench_draw_layout *layout, uint32_t from, uint32_t to,
                      double curve_out[6])
{
    const struct bench_draw_box *a = &layout->ranks[from], *b = &layout->ranks[to];
    const double x1 = a->x + a->width / 2, y1 = a->y + a->height / 2;
    const double x2 = b->x + b->width / 2, y2 = b->y + b->height / 2;
    const bool is_row = layout->n_hosts > 0 && fabs(y1 - y2) < 1;
    const double bend = is_row ? ROW_BEND : BEND;
    curve_out[2] = (x1 + x2) / 2 + bend * (y2 - y1);
    curve_out[3] = (y1 + y2) / 2 - bend * (x2 - x1);
    leave_box(a, &curve_out[2], 2, &curve_out[0]);
    leave_box(b, &curve_out[2], 3, &curve_out[4]);
}
