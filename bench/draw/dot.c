/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes graphs for Graphviz. A graph shows either which ranks are connected, or which step waits
 * for which other step.
 */
#include "bench/draw/page.h"
#include "core/base/text.h"

#include <stdlib.h>

static uint32_t host_of(const struct bench_drawing *drawing, uint32_t rank)
{
    return drawing->grouping == NULL ? 0 : drawing->grouping->host_of[rank];
}

/* How many slots a program sends to, or receives from, one connection in a tile. */
static uint32_t count_slots(const struct gyre_program *program, uint32_t connection)
{
    uint32_t n_slots = 0;
    for (uint32_t s = 0; s < program->n_steps; s++)
        for (uint32_t i = 0; i < program->steps[s].n_outs; i++)
            n_slots += program->steps[s].outs[i].kind == GYRE_OPERAND_CONNECTION &&
                       program->steps[s].outs[i].index == connection;
    return n_slots;
}

static void write_connections(const struct bench_drawing *drawing, FILE *file)
{
    for (uint32_t rank = 0; rank < drawing->n_ranks; rank++) {
        const struct gyre_program *program = drawing->programs[rank];
        for (uint32_t i = 0; i < program->n_connections; i++) {
            const struct gyre_connection *connection = &program->connections[i];
            if (connection->is_send == 0)
                continue;
            const uint32_t n_slots = count_slots(program, i);
            fprintf(file, "  r%u -> r%u [label=\"%u\", tooltip=\"lane %u, %u slots a tile\"%s];\n",
                    rank, connection->peer, n_slots, connection->lane, n_slots,
                    host_of(drawing, rank) == host_of(drawing, connection->peer) ? ""
                                                                                 : ", style=bold");
        }
    }
}

/* The step of `program` that is the n-th to use its receiving end of a FIFO, or n_steps. */
static uint32_t find_receiver(const struct gyre_program *program, uint32_t from, uint32_t lane,
                              uint32_t n)
{
    for (uint32_t s = 0; s < program->n_steps; s++)
        for (uint32_t i = 0; i < program->steps[s].n_ins; i++) {
            const struct gyre_operand in = program->steps[s].ins[i];
            if (in.kind != GYRE_OPERAND_CONNECTION || program->connections[in.index].peer != from ||
                program->connections[in.index].lane != lane)
                continue;
            if (n-- == 0)
                return s;
        }
    return program->n_steps;
}

/* Write an edge for each slot that one rank sends. */
static void write_slots(const struct bench_drawing *drawing, uint32_t rank, FILE *file)
{
    const struct gyre_program *program = drawing->programs[rank];
    for (uint32_t c = 0; c < program->n_connections; c++) {
        const struct gyre_connection *connection = &program->connections[c];
        const struct gyre_program *peer = drawing->programs[connection->peer];
        uint32_t n_sent = 0;
        for (uint32_t s = 0; s < program->n_steps && connection->is_send != 0; s++)
            for (uint32_t i = 0; i < program->steps[s].n_outs; i++) {
                const struct gyre_operand out = program->steps[s].outs[i];
                if (out.kind != GYRE_OPERAND_CONNECTION || out.index != c)
                    continue;
                const uint32_t to = find_receiver(peer, rank, connection->lane, n_sent++);
                if (to < peer->n_steps)
                    fprintf(file, "  s%u_%u -> s%u_%u;\n", rank, s, connection->peer, to);
            }
    }
}

static bool is_wrong(const struct bench_drawing *drawing, uint32_t rank, uint32_t worker,
                     uint32_t step)
{
    const struct gyre_verify_place *place = &drawing->report.place;
    return !drawing->is_proved && place->rank == (int32_t)rank &&
           place->worker == (int32_t)worker && place->step == (int32_t)step;
}

static void write_worker(const struct bench_drawing *drawing, uint32_t rank, uint32_t w, FILE *file)
{
    const struct gyre_program *program = drawing->programs[rank];
    const struct gyre_worker *worker = &program->workers[w];
    fprintf(file, "  subgraph cluster_%u_%u { label=\"rank %u, worker %u\";\n", rank, w, rank, w);
    for (uint32_t i = 0; i < worker->n_steps; i++) {
        const uint32_t s = worker->first_step + i;
        const struct bench_draw_step *step = &drawing->steps[drawing->first_step[rank] + s];
        fprintf(file, "    s%u_%u [label=\"c%u%s\"", rank, s, program->steps[s].chunk,
                (program->steps[s].flags & GYRE_STEP_FINAL) != 0 ? "!" : "");
        if (is_wrong(drawing, rank, w, i))
            fputs(", color=red, penwidth=3, xlabel=\"wrong\"", file);
        if (step->round == BENCH_DRAW_NEVER)
            fputs(", style=dashed", file);
        fputs("];\n", file);
        if (i > 0)
            fprintf(file, "    s%u_%u -> s%u_%u [style=dotted];\n", rank, s - 1, rank, s);
    }
    fputs("  }\n", file);
}

static void write_steps(const struct bench_drawing *drawing, FILE *file)
{
    for (uint32_t rank = 0; rank < drawing->n_ranks; rank++)
        for (uint32_t w = 0; w < drawing->programs[rank]->n_workers; w++)
            write_worker(drawing, rank, w, file);
    for (uint32_t rank = 0; rank < drawing->n_ranks; rank++)
        write_slots(drawing, rank, file);
}

static void write_ranks(const struct bench_drawing *drawing, FILE *file)
{
    const uint32_t n_hosts = drawing->grouping == NULL ? 1 : drawing->grouping->n_hosts;
    for (uint32_t host = 0; host < n_hosts; host++) {
        if (n_hosts > 1)
            fprintf(file, "  subgraph cluster_%u { label=\"host %u\";\n", host, host);
        for (uint32_t rank = 0; rank < drawing->n_ranks; rank++)
            if (host_of(drawing, rank) == host)
                fprintf(file, "    r%u [label=\"rank %u\"%s];\n", rank, rank,
                        !drawing->is_proved && drawing->report.place.rank == (int32_t)rank
                            ? ", color=red, penwidth=3"
                            : "");
        fputs(n_hosts > 1 ? "  }\n" : "", file);
    }
    write_connections(drawing, file);
}

void bench_draw_dot(const struct bench_drawing *drawing, const char *title, bool has_steps,
                    FILE *file)
{
    fputs("digraph gyre {\n  label=\"", file);
    gyre_text_put_markup(file, title);
    if (!drawing->is_proved) {
        fputs("\\nwrong: ", file);
        gyre_text_put_markup(file, drawing->report.reason);
    }
    fputs("\";\n  node [shape=box, fontname=\"sans-serif\"];\n", file);
    if (has_steps)
        write_steps(drawing, file);
    else
        write_ranks(drawing, file);
    fputs("}\n", file);
}
