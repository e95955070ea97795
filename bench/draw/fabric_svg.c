/* SPDX-License-Identifier: Apache-2.0
 *
 * Switches above hosts, groups on a circle, or a torus as a grid.
 */
#include "bench/draw/drawing.h"

#include "core/foundation/base/status.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"
#include "core/gyre_model.h"

#include <math.h>
#include <stdlib.h>

#define MAX_HOSTS   1024
#define MAX_LINES   20000
#define MAX_WIDTH   2400.0
#define LEAST_WIDTH 640.0 /* the title fits */
#define MARGIN      24.0
#define TOP         64.0
#define BOX_HEIGHT  22.0
#define LEVEL_ROOM  120.0
#define GAP         8.0

static const char style[] =
    "<style>text{font:11px system-ui,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1a1c20;"
    "text-anchor:middle}.g{fill:#fff}.b{fill:#e6e8ec;stroke:#5c6370}.s{fill:#cfe3f7;"
    "stroke:#3b6ea5}.l{stroke:#5c6370;fill:none}.slow{stroke:#c77700}"
    ".dead{stroke:#b3261e;stroke-dasharray:4 3}\n"
    "@media(prefers-color-scheme:dark){text{fill:#eceef2}.g{fill:#15171b}.b{fill:#31363f}"
    ".s{fill:#24405c}.l{stroke:#a4abb8}.slow{stroke:#ffb454}.dead{stroke:#ff8a80}}\n";
static const char style_of_small[] =
    "@media(max-width:480px){text{font-size:13px}text:nth-of-type(2){font-size:11px}}\n";

struct point {
    double x, y;
};

struct picture {
    const struct gyre_fabric *fabric;
    FILE *file;
    struct point *hosts, *switches; /* leaves, then spines */
    double box_width, width, height;
};

/* @n: links side by side. @rate: of the slowest. @usual: what others have. */
static void put_line(const struct picture *picture, struct point from, struct point to, uint32_t n,
                     double rate, double usual)
{
    const char *state = rate <= 0 ? " dead" : rate < usual * 0.999 ? " slow" : "";
    fprintf(picture->file,
            "<path class=\"l%s\" stroke-width=\"%.1f\" d=\"M%.1f %.1fL%.1f %.1f\"><title>%u link%s "
            "of %g GB/s</title></path>\n",
            state, 0.8 + 0.5 * log2(n), from.x, from.y, to.x, to.y, n, n == 1 ? "" : "s", rate);
}

static void put_box(const struct picture *picture, struct point at, const char *kind,
                    const char *word, uint32_t number)
{
    const double width = kind[0] == 's' ? fmax(picture->box_width, 52) : picture->box_width;
    fprintf(picture->file,
            "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.0f\" rx=\"3\">"
            "<title>%s %u</title></rect>\n",
            kind, at.x - width / 2, at.y - BOX_HEIGHT / 2, width, BOX_HEIGHT, word, number);
    if (width >= 20)
        fprintf(picture->file, "<text x=\"%.1f\" y=\"%.1f\">%s%u</text>\n", at.x, at.y + 4,
                width >= 52 ? word : "", number);
}

static double nic_rate(const struct gyre_fabric *fabric, uint32_t nic)
{
    return fabric->bytes_per_ns[gyre_fabric_nic_link(nic, true)];
}

/* All NICs between a host and a leaf are one line, dead ones another. */
static void put_nics(const struct picture *picture, uint32_t h, double usual)
{
    const struct gyre_fabric *fabric = picture->fabric;
    const struct gyre_fabric_host *host = &fabric->hosts[h];
    for (uint32_t i = 0; i < 2 * host->n_nics; i++) {
        const uint32_t leaf = fabric->leaf_of_nic[host->first_nic + i / 2];
        const bool is_dead = i % 2 == 1;
        bool is_first = true;
        double slowest = INFINITY;
        uint32_t n = 0;
        for (uint32_t nic = 0; nic < host->n_nics; nic++) {
            const double rate = nic_rate(fabric, host->first_nic + nic);
            if (fabric->leaf_of_nic[host->first_nic + nic] != leaf || (rate <= 0) != is_dead)
                continue;
            is_first = is_first && nic >= i / 2;
            slowest = fmin(slowest, rate);
            n++;
        }
        const struct point shift = {picture->hosts[h].x + (is_dead ? 4 : 0), picture->hosts[h].y};
        if (n > 0 && is_first && (nic_rate(fabric, host->first_nic + i / 2) <= 0) == is_dead)
            put_line(picture, shift, picture->switches[leaf], n, slowest, usual);
    }
}

static double fastest(const struct gyre_fabric *fabric, uint32_t first, uint32_t end)
{
    double most = 0;
    for (uint32_t link = first; link < end; link++)
        most = fmax(most, fabric->bytes_per_ns[link]);
    return most;
}

static void put_row(struct point *points, uint32_t n, double width, double y)
{
    for (uint32_t i = 0; i < n; i++)
        points[i] = (struct point){MARGIN + (i + 0.5) * (width - 2 * MARGIN) / n, y};
}

static void place_leaves(struct picture *picture)
{
    const struct gyre_fabric *fabric = picture->fabric;
    const double most = fmax(fabric->n_hosts, fmax(fabric->n_leaves, fabric->n_spines) * 0.9);
    const double leaves_y = fabric->n_spines > 0 ? TOP + LEVEL_ROOM : TOP;
    picture->width = fmin(MAX_WIDTH, fmax(LEAST_WIDTH, 70 * most + 2 * MARGIN));
    picture->box_width =
        fmin(60, fmax(4, (picture->width - 2 * MARGIN) / fabric->n_hosts - GAP / 2));
    put_row(&picture->switches[fabric->n_leaves], fabric->n_spines, picture->width, TOP);
    put_row(picture->switches, fabric->n_leaves, picture->width, leaves_y);
    put_row(picture->hosts, fabric->n_hosts, picture->width, leaves_y + LEVEL_ROOM);
    picture->height = leaves_y + LEVEL_ROOM + 2 * MARGIN;
}

/* Hosts stand in a fan outside of their group. */
static void place_groups(struct picture *picture)
{
    const struct gyre_fabric *fabric = picture->fabric;
    const uint32_t n = fabric->n_leaves;
    const double inner = fmax(110, 14.0 * n), outer = inner + 110, turn = 2 * M_PI;
    uint32_t *n_of = calloc(n, 2 * sizeof(*n_of)), *seen = n_of + n;
    picture->width = fmax(LEAST_WIDTH, 2 * (outer + 60));
    picture->height = 2 * (outer + 40) + TOP;
    picture->box_width = fmin(52, fmax(4, turn * outer / fabric->n_hosts - GAP));
    const struct point middle = {picture->width / 2, TOP + outer + 20};
    for (uint32_t group = 0; group < n; group++)
        picture->switches[group] = (struct point){middle.x + inner * sin(turn * group / n),
                                                  middle.y - inner * cos(turn * group / n)};
    for (uint32_t h = 0; h < fabric->n_hosts && n_of != NULL; h++)
        n_of[fabric->leaf_of_nic[fabric->hosts[h].first_nic]]++;
    for (uint32_t h = 0; h < fabric->n_hosts && n_of != NULL; h++) {
        const uint32_t group = fabric->leaf_of_nic[fabric->hosts[h].first_nic];
        const double part = (seen[group]++ + 0.5) / n_of[group] - 0.5;
        const double angle = turn * (group + 0.85 * part) / n;
        picture->hosts[h] =
            (struct point){middle.x + outer * sin(angle), middle.y - outer * cos(angle)};
    }
    free(n_of);
}

/* The last two dimensions are a grid; the other ones put grids side by side. */
static void place_torus(struct picture *picture)
{
    const struct gyre_fabric *fabric = picture->fabric;
    const uint32_t n_columns = fabric->dims[fabric->n_dims - 1];
    const uint32_t n_rows = fabric->n_dims > 1 ? fabric->dims[fabric->n_dims - 2] : 1;
    const uint32_t n_grids = fabric->n_hosts / n_columns / n_rows;
    const double room = fmax(12, fmin(70, (MAX_WIDTH - 2 * MARGIN) / (n_columns + 1) / n_grids));
    picture->box_width = fmin(52, room * 0.7);
    for (uint32_t h = 0; h < fabric->n_hosts; h++) {
        const uint32_t column = h % n_columns, row = h / n_columns % n_rows,
                       grid = h / n_columns / n_rows;
        picture->hosts[h] =
            (struct point){MARGIN + room * (grid * (n_columns + 1.0) + column + 0.5),
                           TOP + MARGIN + (row + 0.25 * grid) * fmax(room, 2 * BOX_HEIGHT)};
    }
    picture->width = fmax(LEAST_WIDTH, 2 * MARGIN + room * n_grids * (n_columns + 1.0));
    picture->height = TOP + 4 * MARGIN + (n_rows + 0.25 * n_grids) * fmax(room, 2 * BOX_HEIGHT);
}

/* A link that wraps around leaves its grid to both sides as an arc. */
static void put_torus_links(const struct picture *picture)
{
    const struct gyre_fabric *fabric = picture->fabric;
    const double rate = fastest(fabric, 2 * fabric->n_nics, fabric->n_links);
    for (uint32_t h = 0; h < fabric->n_hosts; h++)
        for (uint32_t dim = 0, stride = fabric->n_hosts; dim < fabric->n_dims; dim++) {
            const uint32_t size = fabric->dims[dim];
            stride /= size;
            const uint32_t at = h / stride % size;
            const uint32_t next = at + 1 < size ? h + stride : h - at * stride;
            const struct point from = picture->hosts[h], to = picture->hosts[next];
            if (size == 1 || (size == 2 && at == 1)) /* both ways join the same two hosts */
                continue;
            if (at + 1 < size)
                put_line(picture, from, to, 1, rate, rate);
            else
                fprintf(picture->file,
                        "<path class=\"l\" stroke-width=\"0.8\" d=\"M%.1f %.1fQ%.1f %.1f %.1f "
                        "%.1f\"/>\n",
                        from.x, from.y, (from.x + to.x) / 2 + 0.12 * (from.y - to.y),
                        (from.y + to.y) / 2 + 0.12 * (from.x - to.x), to.x, to.y);
        }
}

static void put_switch_links(const struct picture *picture)
{
    const struct gyre_fabric *fabric = picture->fabric;
    const double usual = fastest(fabric, 2 * fabric->n_nics, fabric->n_links);
    const double usual_nic = fastest(fabric, 0, 2 * fabric->n_nics);
    for (uint32_t h = 0; h < fabric->n_hosts; h++)
        put_nics(picture, h, usual_nic);
    for (uint32_t leaf = 0; leaf < fabric->n_leaves; leaf++) {
        const struct point from = picture->switches[leaf];
        for (uint32_t other = leaf + 1;
             fabric->kind == GYRE_FABRIC_DRAGONFLY && other < fabric->n_leaves; other++) {
            const uint32_t link = 2 * fabric->n_nics + leaf * fabric->n_leaves + other;
            put_line(picture, from, picture->switches[other], 1, fabric->bytes_per_ns[link], usual);
        }
        for (uint32_t spine = 0; spine < fabric->n_spines; spine++)
            put_line(picture, from, picture->switches[fabric->n_leaves + spine], 1,
                     fabric->bytes_per_ns[gyre_fabric_uplink(fabric, leaf, spine, true)], usual);
    }
}

static void put_picture(const struct picture *picture, const char *title)
{
    const struct gyre_fabric *fabric = picture->fabric;
    FILE *file = picture->file;
    const bool has_switches = fabric->kind != GYRE_FABRIC_TORUS;
    const double middle = picture->width / 2,
                 uplink = fabric->n_links > 2 * fabric->n_nics
                              ? fastest(fabric, 2 * fabric->n_nics, fabric->n_links)
                              : 0;
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
            "height=\"%.0f\" role=\"img\">\n<title>",
            picture->width, picture->height, picture->width, picture->height);
    gyre_text_put_markup(file, title);
    fprintf(file, "</title>\n%s%s</style>\n<rect class=\"g\" width=\"%.0f\" height=\"%.0f\"/>\n",
            style, picture->width <= LEAST_WIDTH ? style_of_small : "", picture->width,
            picture->height);
    fprintf(file, "<text x=\"%.0f\" y=\"22\" font-size=\"15\">", middle);
    gyre_text_put_markup(file, title);
    fprintf(file, "</text>\n<text x=\"%.0f\" y=\"38\">%u GPUs on %u hosts, NICs of %g GB/s; ",
            middle, fabric->n_ranks, fabric->n_hosts, fastest(fabric, 0, 2 * fabric->n_nics));
    if (uplink > 0)
        fprintf(file, "%s of %.4g GB/s; ",
                fabric->kind == GYRE_FABRIC_TORUS       ? "links"
                : fabric->kind == GYRE_FABRIC_DRAGONFLY ? "links between groups"
                                                        : "leaf to spine links",
                uplink);
    fputs("orange: slower, dashed: dead</text>\n", file);
    (has_switches ? put_switch_links : put_torus_links)(picture);
    for (uint32_t h = 0; h < fabric->n_hosts; h++)
        put_box(picture, picture->hosts[h], "b", "host ", h);
    for (uint32_t i = 0; i < fabric->n_leaves && has_switches; i++)
        put_box(picture, picture->switches[i], "s",
                fabric->kind == GYRE_FABRIC_DRAGONFLY ? "group " : "leaf ", i);
    for (uint32_t i = 0; i < fabric->n_spines; i++)
        put_box(picture, picture->switches[fabric->n_leaves + i], "s", "spine ", i);
    fputs("</svg>\n", file);
}

gyre_status bench_draw_fabric(const struct gyre_fabric *fabric, const char *title, FILE *file)
{
    struct picture picture = {.fabric = fabric, .file = file};
    const uint64_t n_lines = (uint64_t)fabric->n_hosts + gyre_fabric_n_uplinks(fabric) / 2;
    if (fabric->n_hosts > MAX_HOSTS || n_lines > MAX_LINES)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "%u hosts and %llu links are too many to draw (at most %d and %d)",
                         fabric->n_hosts, (unsigned long long)n_lines, MAX_HOSTS, MAX_LINES);
    GYRE_FREED struct point *points =
        calloc((size_t)fabric->n_hosts + fabric->n_leaves + fabric->n_spines, sizeof(*points));
    if (points == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a picture");
    picture.hosts = points;
    picture.switches = points + fabric->n_hosts;
    (fabric->kind == GYRE_FABRIC_TORUS       ? place_torus
     : fabric->kind == GYRE_FABRIC_DRAGONFLY ? place_groups
                                             : place_leaves)(&picture);
    put_picture(&picture, title);
    return GYRE_SUCCESS;
}
