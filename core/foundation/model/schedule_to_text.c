/* SPDX-License-Identifier: Apache-2.0
 *
 * The text form of a program, written. schedule_from_text.c reads it and says how it looks.
 */
#include "core/foundation/base/status.h"
#include "core/foundation/model/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_operand(FILE *file, const struct gyre_connection *connections,
                          struct gyre_operand operand)
{
    static const char *const words[] = {"in", "out", "scratch"};
    if (operand.kind != GYRE_OPERAND_CONNECTION) {
        fprintf(file, "%s %u", words[operand.kind], operand.index);
        return;
    }
    const struct gyre_connection *connection = &connections[operand.index];
    const char *word = connection->is_send ? "to" : "from";
    if (operand.is_placed != 0)
        word = connection->is_send ? "into" : "placed";
    fprintf(file, "%s %u", word, connection->peer);
    if (connection->lane != 0)
        fprintf(file, "/%u", connection->lane);
}

/* Print the chunks of a range by their first and last number. */
static void print_chunks(FILE *file, const struct gyre_step *step, uint32_t n_parts)
{
    const uint32_t log2_run = step->spacing >> 4, log2_stride = step->spacing & 15;
    if (step->n_chunks == 1) {
        fprintf(file, "chunk %u: ", step->chunk);
        return;
    }
    fprintf(file, "chunks %u-%u", step->chunk,
            gyre_step_part(step, step->chunk, step->n_chunks - 1U, n_parts));
    if (log2_stride > 0)
        fprintf(file, " by %u", 1U << log2_stride);
    if (log2_run > 0)
        fprintf(file, "/%u", 1U << log2_run);
    fputs(": ", file);
}

static void print_step(FILE *file, const struct gyre_connection *connections, uint32_t n_parts,
                       const struct gyre_step *step)
{
    print_chunks(file, step, n_parts);
    for (unsigned i = 0; i < step->n_ins; i++) {
        fputs(i == 0 ? "" : " + ", file);
        print_operand(file, connections, step->ins[i]);
    }
    fputs(" ->", file);
    for (unsigned i = 0; i < step->n_outs; i++) {
        fputs(i == 0 ? " " : ", ", file);
        print_operand(file, connections, step->outs[i]);
    }
    fputs((step->flags & GYRE_STEP_FINAL) != 0 ? " final" : "", file);
    fputs((step->flags & GYRE_STEP_WITH_NEXT) != 0 ? " with_next" : "", file);
}

void gyre_step_to_text(const struct gyre_step *step, const struct gyre_connection *connections,
                       uint32_t n_parts, char *text_out, size_t text_bytes)
{
    static const char cut[] = "...";
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *file = open_memstream(&text, &n_bytes);
    text_out[0] = '\0';
    if (file == NULL)
        return;
    print_step(file, connections, n_parts, step);
    if (fclose(file) == 0) {
        snprintf(text_out, text_bytes, "%s", text);
        if (n_bytes >= text_bytes && text_bytes > sizeof(cut))
            memcpy(text_out + text_bytes - sizeof(cut), cut, sizeof(cut));
    }
    free(text);
}

gyre_status gyre_program_to_text(const struct gyre_program *program, char **text_out)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *file = open_memstream(&text, &n_bytes);
    const uint32_t tail = gyre_program_copy_tail(program);
    const uint32_t n_parts = gyre_program_n_parts(program, GYRE_OPERAND_SCRATCH);
    if (file == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to print a program");
    fprintf(file, "program %s %s\n", program->algorithm, gyre_collectives[program->coll].name);
    fprintf(file, "ranks %u rank %u root %u chunks %u lanes %u depth %u", program->n_ranks,
            program->rank, program->root, program->n_chunks, program->n_lanes, program->min_depth);
    if (program->max_range > 1)
        fprintf(file, " range %u", program->max_range);
    fputc('\n', file);
    for (unsigned w = 0; w < program->n_workers; w++) {
        const struct gyre_worker *worker = &program->workers[w];
        fprintf(file, "worker %u\n", w);
        for (uint32_t s = 0; s < worker->n_steps; s++) {
            if (worker->first_step + s == tail)
                fputs("  # the tail: only copies, which copy engines can run\n", file);
            fputs("  ", file);
            print_step(file, program->connections, n_parts,
                       &program->steps[worker->first_step + s]);
            fputc('\n', file);
        }
    }
    fputs("end\n", file);
    const bool is_whole = ferror(file) == 0;
    if (fclose(file) != 0 || !is_whole) {
        free(text);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to print a program");
    }
    *text_out = text;
    return GYRE_SUCCESS;
}
