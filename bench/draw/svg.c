/* SPDX-License-Identifier: Apache-2.0
 *
 * A panel for each round. Each value is defined once for all ranks that have it.
 */
#include "bench/draw/svg.h"

#include "core/foundation/base/status.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BARS     24000 /* about 1 MB */
#define MAX_COLUMNS  4
#define MARGIN       16
#define HEADER_ROOM  40
#define FOOTER_ROOM  79
#define LEAST_WIDTH  564
#define MOST_HEIGHT  1150
#define MOST_NARROW  900 /* letters of wider pictures do not grow */
#define LINE_LETTERS 150 /* at 1000 pixels */

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
    ".w{stroke:#ff8a80}.x{fill:#ff8a80}.h,.c{stroke:#15171b}}\n";
/* The query sees the image's own width. */
static const char style_of_small[] =
    "@media(max-width:480px){text{font-size:14px}.c,.s{font-size:13px}.x{font-size:12px}}\n";

static void advance(struct bench_svg *picture, uint32_t n_rounds)
{
    const struct bench_drawing *drawing = picture->drawing;
    for (; picture->n_applied < n_rounds; picture->n_applied++)
        for (uint32_t rank = 0; rank < drawing->n_ranks; rank++)
            for (uint32_t i = 0; i < drawing->programs[rank]->n_steps; i++)
                if (drawing->steps[drawing->first_step[rank] + i].round == picture->n_applied)
                    bench_draw_apply(drawing, rank, i, &picture->state);
}

static gyre_status define_values(struct bench_svg *picture)
{
    const struct bench_drawing *drawing = picture->drawing;
    const size_t n_chunks = (size_t)drawing->n_ranks * drawing->n_parts;
    const bool reduces = gyre_collectives[drawing->programs[0]->coll].reduces;
    bool *is_used = calloc(drawing->n_values + 1, sizeof(*is_used));
    if (is_used == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a picture");
    for (uint32_t panel = 0; panel < picture->n_panels; panel++) {
        advance(picture, picture->panels[panel]);
        for (size_t i = 0; i < n_chunks; i++)
            is_used[picture->state.now[i]] = is_used[picture->state.out[i]] = true;
    }
    for (uint32_t value = 1; value <= drawing->n_values; value++) {
        char colour[8];
        if (!is_used[value])
            continue;
        memset(picture->has, 0, drawing->n_ranks * sizeof(*picture->has));
        bench_draw_contributors(drawing, value, picture->has);
        fprintf(picture->file,
                "<symbol id=\"v%u\" viewBox=\"0 0 %u 1\" preserveAspectRatio=\"none\">", value,
                reduces ? drawing->n_ranks : 1);
        for (uint32_t rank = 0; rank < drawing->n_ranks; rank++) {
            if (!picture->has[rank])
                continue;
            bench_draw_rank_colour(rank, drawing->n_ranks, colour);
            fprintf(picture->file, "<rect x=\"%u\" width=\"1\" height=\"1\" fill=\"%s\"/>",
                    reduces ? rank : 0, colour);
        }
        fputs("</symbol>\n", picture->file);
    }
    free(is_used);
    bench_draw_state_close(&picture->state);
    picture->n_applied = 0;
    return bench_draw_state_open(picture->drawing, &picture->state);
}

static double panels_end(const struct bench_svg *picture)
{
    const uint32_t n_rows = (picture->n_panels + picture->n_columns - 1) / picture->n_columns;
    return HEADER_ROOM + n_rows * (picture->layout.height + BENCH_SVG_CAPTION_ROOM + MARGIN);
}

static void choose_panels(struct bench_svg *picture, int round)
{
    const struct bench_drawing *drawing = picture->drawing;
    if (round >= 0) {
        picture->panels[picture->n_panels++] = (uint32_t)round + 1;
    } else {
        const uint64_t bars = 2ULL * drawing->n_ranks * drawing->n_parts;
        const uint32_t room = gyre_clamp_u32(MAX_BARS / bars, 2, BENCH_SVG_MAX_PANELS);
        const uint32_t n_moments = drawing->n_rounds + 1;
        picture->n_panels = gyre_min_u32(room, n_moments);
        for (uint32_t i = 0; i < picture->n_panels; i++)
            picture->panels[i] =
                picture->n_panels == 1
                    ? 0
                    : (uint32_t)((uint64_t)i * (n_moments - 1) / (picture->n_panels - 1));
    }
    const double width = picture->layout.width;
    const uint32_t most = gyre_min_u32(picture->n_panels, width > 400   ? 2
                                                          : width > 250 ? 3
                                                                        : MAX_COLUMNS);
    picture->n_columns = gyre_clamp_u32((uint32_t)(LEAST_WIDTH / (width + 2 * MARGIN)), 1, most);
    while (picture->n_columns < most && panels_end(picture) + FOOTER_ROOM > MOST_HEIGHT)
        picture->n_columns++;
}

static uint32_t draw_finding(const struct bench_svg *picture, double y, size_t most_letters)
{
    const struct bench_drawing *drawing = picture->drawing;
    char text[sizeof(drawing->report.reason) + 64], line[sizeof(text)];
    uint32_t n_lines = 0;
    snprintf(text, sizeof(text), "\xe2\x9a\xa0 wrong%s: %s",
             drawing->is_wrong_in_place_only ? " in place" : "", drawing->report.reason);
    for (const char *at = text; *at != '\0';) {
        size_t n = strcspn(at, "\n");
        if (n > most_letters) {
            n = most_letters;
            while (n > 1 && at[n] != ' ')
                n--;
        }
        snprintf(line, sizeof(line), "%.*s", (int)n, at);
        fprintf(picture->file, "<text class=\"x\" x=\"%d\" y=\"%.0f\" font-size=\"12\">", MARGIN,
                y + 16 * n_lines++);
        gyre_text_put_markup(picture->file, line);
        fputs("</text>\n", picture->file);
        at += n + (at[n] == ' ' || at[n] == '\n');
    }
    return n_lines;
}

static bool leaves_out(const struct bench_svg *picture)
{
    return picture->n_panels > 1 && picture->n_panels < picture->drawing->n_rounds + 1;
}

static void draw_legend(const struct bench_svg *picture, double y, double width)
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
        "Left: what the rank works on. Right: its output; framed = complete.",
        "Arrows: slots that are sent.",
        "Some rounds are left out: draw --round R shows one of them, draw --html all."};
    for (uint32_t i = 0; i < GYRE_ARRAY_LENGTH(lines) - !leaves_out(picture); i++)
        fprintf(picture->file, "<text class=\"s\" x=\"%d\" y=\"%.0f\" font-size=\"11\">%s</text>\n",
                MARGIN, y + 17 + 15 * i, lines[i]);
}

static gyre_status draw_all(struct bench_svg *picture, const char *title)
{
    const struct bench_draw_layout *layout = &picture->layout;
    const struct bench_drawing *drawing = picture->drawing;
    const double panel_width = layout->width + 2 * MARGIN;
    const double panel_height = layout->height + BENCH_SVG_CAPTION_ROOM + MARGIN;
    const double width = fmax(picture->n_columns * panel_width, LEAST_WIDTH);
    const size_t letters = (size_t)(LINE_LETTERS * width / 1000);
    double n_lines = 0;
    if (!drawing->is_proved) {
        n_lines = ceil((double)(strlen(drawing->report.reason) + 20) / (double)letters) + 1;
        for (const char *at = drawing->report.reason; (at = strchr(at, '\n')) != NULL; at++)
            n_lines++;
    }
    const double height =
        panels_end(picture) + FOOTER_ROOM + 16 * n_lines + (leaves_out(picture) ? 15 : 0);
    fprintf(picture->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
            "height=\"%.0f\" role=\"img\">\n<title>",
            width, height, width, height);
    gyre_text_put_markup(picture->file, title);
    fputs("</title>\n<desc>", picture->file);
    fprintf(picture->file, "%u of %u moments: the chunks of every rank after each round.",
            picture->n_panels, drawing->n_rounds + 1);
    fprintf(picture->file, "</desc>\n%s%s</style>\n", style,
            width <= MOST_NARROW && layout->ranks[0].width >= 30 ? style_of_small : "");
    fputs("<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"6\" "
          "markerHeight=\"6\" orient=\"auto\"><path class=\"t\" d=\"M0 0L8 4L0 8Z\"/></marker>\n",
          picture->file);
    bench_svg_define_columns(picture);
    GYRE_TRY(define_values(picture));
    fprintf(picture->file, "</defs>\n<rect class=\"b\" width=\"%.0f\" height=\"%.0f\"/>\n", width,
            height);
    fprintf(picture->file, "<text x=\"%d\" y=\"24\" font-size=\"17\" font-weight=\"600\">", MARGIN);
    gyre_text_put_markup(picture->file, title);
    fputs("</text>\n", picture->file);
    for (uint32_t panel = 0; panel < picture->n_panels; panel++) {
        const uint32_t n_applied = picture->panels[panel];
        fprintf(picture->file, "<g transform=\"translate(%.0f %.0f)\">\n",
                MARGIN + panel % picture->n_columns * panel_width,
                HEADER_ROOM + panel / picture->n_columns * panel_height);
        advance(picture, n_applied);
        picture->n_left_out = panel > 0 ? n_applied - picture->panels[panel - 1] - 1 : 0;
        bench_svg_draw_panel(picture);
        fputs("</g>\n", picture->file);
    }
    double y = panels_end(picture) + 14;
    if (!drawing->is_proved)
        y += 16 * draw_finding(picture, y, letters) + 6;
    draw_legend(picture, y, width);
    fputs("</svg>\n", picture->file);
    return GYRE_SUCCESS;
}

gyre_status bench_draw_svg(const struct bench_drawing *drawing, const char *title, int round,
                           FILE *file)
{
    struct bench_svg picture = {.drawing = drawing, .file = file, .scale = round >= 0 ? 2 : 1};
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
