/* SPDX-License-Identifier: Apache-2.0
 *
 * A program as text, one line a step (grammar: docs/schedule.md).
 *
 *   program ring all_reduce
 *   ranks 4 rank 0 root 0 chunks 4 lanes 1 depth 2
 *   worker 0
 *     chunk 3: in 3 -> to 1
 *     chunk 2: from 3 + in 2 -> to 1
 *     chunk 0: from 3 + in 0 -> out 0, to 1 final
 *   end
 *
 * "chunks 2-5" moves four chunks, "chunks 0-11 by 8/4" runs of four that begin 8 after each other;
 * the head then has the most chunks of a step ("range 4"). A line "names 0 2 1 3" is the order of
 * blocks. "into 1" places data in rank 1's OUT, "placed 3" is what rank 3 has placed here.
 * Connections are numbered by first use, as by the builder. After # comes a comment.
 */
#include "core/foundation/model/schedule.h"

#include "core/foundation/base/status.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_BYTES 32

struct reader {
    const char *at;
    int line;
    int head_line;
    char token[TOKEN_BYTES]; /* "" = end of line */
    struct gyre_builder *builder;
    unsigned n_parts;
    unsigned n_ranks;
    unsigned n_workers;
};

#define EXPECTED(reader, what)                                                                   \
    gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "line %d: expected %s, found %s%s%s", (reader)->line, \
              (what), (reader)->token[0] == '\0' ? "" : "\"",                                    \
              (reader)->token[0] == '\0' ? "the end of the line" : (reader)->token,              \
              (reader)->token[0] == '\0' ? "" : "\"")

static size_t mark_bytes(const char *at)
{
    if (at[0] == '-' && at[1] == '>')
        return 2;
    return at[0] == ':' || at[0] == ',' || at[0] == '+' || at[0] == '/' ? 1 : 0;
}

static void next_token(struct reader *reader)
{
    while (*reader->at == ' ' || *reader->at == '\t' || *reader->at == '\r')
        reader->at++;
    if (*reader->at == '#')
        reader->at += strcspn(reader->at, "\n");
    const char *start = reader->at;
    reader->at += mark_bytes(start);
    if (reader->at == start)
        while (*reader->at != '\0' && !gyre_text_is_space(*reader->at) && *reader->at != '#' &&
               mark_bytes(reader->at) == 0)
            reader->at++;
    const size_t n_bytes = (size_t)(reader->at - start);
    snprintf(reader->token, sizeof(reader->token), "%.*s",
             (int)(n_bytes < TOKEN_BYTES ? n_bytes : TOKEN_BYTES - 1), start);
}

static bool next_line(struct reader *reader)
{
    do {
        next_token(reader);
        if (reader->token[0] != '\0')
            return true;
        if (*reader->at == '\0')
            return false;
        reader->at++;
        reader->line += reader->at[-1] == '\n';
    } while (true);
}

static bool is_token(const struct reader *reader, const char *word)
{
    return strcmp(reader->token, word) == 0;
}

static gyre_status take_word(struct reader *reader, const char *word)
{
    if (!is_token(reader, word))
        return EXPECTED(reader, word);
    next_token(reader);
    return GYRE_SUCCESS;
}

static gyre_status take_number(struct reader *reader, unsigned limit, unsigned *number_out)
{
    unsigned number = 0;
    const char *digit = reader->token;
    for (; isdigit((unsigned char)*digit) && number <= limit; digit++)
        number = number * 10 + (unsigned)(*digit - '0');
    if (digit == reader->token || *digit != '\0' || number > limit) {
        char what[48];
        snprintf(what, sizeof(what), "a number from 0 to %u", limit);
        return EXPECTED(reader, what);
    }
    next_token(reader);
    *number_out = number;
    return GYRE_SUCCESS;
}

static gyre_status take_named(struct reader *reader, const char *word, unsigned limit,
                              unsigned *number_out)
{
    GYRE_TRY(take_word(reader, word));
    return take_number(reader, limit, number_out);
}

static gyre_status take_end_of_line(struct reader *reader)
{
    return reader->token[0] == '\0' ? GYRE_SUCCESS : EXPECTED(reader, "the end of the line");
}

static gyre_status need_line(struct reader *reader)
{
    return next_line(reader) ? GYRE_SUCCESS
                             : gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                                         "line %d: the text ends before \"end\"", reader->line);
}

static gyre_status read_head(struct reader *reader)
{
    char algorithm[16];
    struct gyre_shape shape = {.grouping = NULL};
    unsigned n_ranks, rank, root, n_chunks, n_lanes, depth, max_range = 1;
    GYRE_TRY(need_line(reader));
    reader->head_line = reader->line;
    GYRE_TRY(take_word(reader, "program"));
    if (reader->token[0] == '\0' || strlen(reader->token) >= sizeof(algorithm))
        return EXPECTED(reader, "an algorithm's name of at most 15 characters");
    snprintf(algorithm, sizeof(algorithm), "%.15s", reader->token);
    next_token(reader);
    const int coll = gyre_collective_find(reader->token);
    if (coll < 0) {
        char what[192] = "a collective:";
        for (int i = 0; i < GYRE_N_COLLECTIVES; i++)
            gyre_text_append(what, sizeof(what), " %s", gyre_collectives[i].name);
        return EXPECTED(reader, what);
    }
    next_token(reader);
    GYRE_TRY(take_end_of_line(reader));

    GYRE_TRY(need_line(reader));
    GYRE_TRY(take_named(reader, "ranks", GYRE_MAX_RANKS, &n_ranks));
    GYRE_TRY(take_named(reader, "rank", GYRE_MAX_RANKS - 1, &rank));
    GYRE_TRY(take_named(reader, "root", GYRE_MAX_RANKS - 1, &root));
    GYRE_TRY(take_named(reader, "chunks", GYRE_MAX_RANKS, &n_chunks));
    GYRE_TRY(take_named(reader, "lanes", GYRE_MAX_LANES, &n_lanes));
    GYRE_TRY(take_named(reader, "depth", UINT8_MAX, &depth));
    if (is_token(reader, "range"))
        GYRE_TRY(take_named(reader, "range", GYRE_MAX_RANKS, &max_range));
    GYRE_TRY(take_end_of_line(reader));
    const bool has_blocks = gyre_collectives[coll].in_blocks || gyre_collectives[coll].out_blocks;
    reader->n_parts = has_blocks ? n_ranks * n_chunks : n_chunks;
    reader->n_ranks = n_ranks;
    shape.coll = (enum gyre_collective)coll;
    shape.n_ranks = (uint16_t)n_ranks;
    shape.root = (uint16_t)root;
    if (gyre_builder_open(algorithm, &shape, (int)rank, (int)n_chunks, &reader->builder) !=
        GYRE_SUCCESS)
        return gyre_fail_context(GYRE_ERROR_INVALID_ARGUMENT, "line %d", reader->line);
    gyre_builder_lanes(reader->builder, (int)n_lanes);
    gyre_builder_min_depth(reader->builder, (int)depth);
    gyre_builder_max_range(reader->builder, (int)max_range);
    return GYRE_SUCCESS;
}

static gyre_status read_operands(struct reader *reader, bool is_out, struct gyre_ref *refs,
                                 int *n_refs_out)
{
    const int most = is_out ? GYRE_STEP_MAX_OUTS : GYRE_STEP_MAX_INS;
    int n_refs = 0;
    *n_refs_out = 0;
    if (is_out && (reader->token[0] == '\0' || is_token(reader, "with_next")))
        return GYRE_SUCCESS;
    do {
        if (n_refs == most)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "line %d: more than %d %s", reader->line,
                             most, is_out ? "outputs" : "inputs");
        if (n_refs > 0)
            next_token(reader);
        unsigned index = 0, lane = 0;
        const bool is_placed = is_token(reader, is_out ? "into" : "placed");
        if (is_placed || is_token(reader, is_out ? "to" : "from")) {
            next_token(reader);
            GYRE_TRY(take_number(reader, GYRE_MAX_RANKS - 1, &index));
            if (is_token(reader, "/")) {
                next_token(reader);
                GYRE_TRY(take_number(reader, GYRE_MAX_LANES - 1, &lane));
            }
            refs[n_refs++] =
                is_placed ? gyre_placed((int)index, (int)lane) : gyre_peer((int)index, (int)lane);
            continue;
        }
        const bool is_scratch = is_token(reader, "scratch"), is_output = is_token(reader, "out");
        if (!is_scratch && !is_output && (is_out || !is_token(reader, "in")))
            return EXPECTED(reader, is_out ? "out, scratch, to or into"
                                           : "in, out, scratch, from or placed");
        next_token(reader);
        GYRE_TRY(take_number(reader, GYRE_MAX_RANKS - 1, &index));
        refs[n_refs++] = is_scratch  ? gyre_scratch((int)index)
                         : is_output ? gyre_out((int)index)
                                     : gyre_in((int)index);
    } while (is_token(reader, is_out ? "," : "+"));
    *n_refs_out = n_refs;
    return GYRE_SUCCESS;
}

static gyre_status read_chunks(struct reader *reader, struct gyre_chunks *chunks_out)
{
    struct gyre_chunks chunks = {.n = 1};
    unsigned first = 0, last = 0, run = 1, stride = 1;
    if (is_token(reader, "chunk")) {
        GYRE_TRY(take_named(reader, "chunk", GYRE_MAX_RANKS - 1, &first));
        chunks.first = (uint16_t)first;
        *chunks_out = chunks;
        return GYRE_SUCCESS;
    }
    GYRE_TRY(take_word(reader, "chunks"));
    char after[2];
    if (sscanf(reader->token, "%5u-%5u%1s", &first, &last, after) != 2 ||
        !isdigit((unsigned char)reader->token[0]) || first >= reader->n_parts ||
        last >= reader->n_parts)
        return EXPECTED(reader, "the first and the last chunk, as in 2-5");
    next_token(reader);
    if (is_token(reader, "by")) {
        next_token(reader);
        GYRE_TRY(take_number(reader, GYRE_MAX_RANKS, &stride));
        if (is_token(reader, "/")) {
            next_token(reader);
            GYRE_TRY(take_number(reader, GYRE_MAX_RANKS, &run));
        }
    }
    if (run == 0 || run > stride)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "line %d: runs of %u chunks cannot begin %u after each other",
                         reader->line, run, stride);
    const unsigned distance = (last + reader->n_parts - first) % reader->n_parts;
    const unsigned in_run = distance % stride;
    if (in_run >= run)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "line %d: chunk %u is in none of the runs that begin with chunk %u",
                         reader->line, last, first);
    chunks.first = (uint16_t)first;
    chunks.n = (uint16_t)(distance / stride * run + in_run + 1);
    chunks.run = (uint16_t)run;
    chunks.stride = (uint16_t)stride;
    *chunks_out = chunks;
    return GYRE_SUCCESS;
}

static gyre_status read_step(struct reader *reader)
{
    struct gyre_ref ins[GYRE_STEP_MAX_INS], outs[GYRE_STEP_MAX_OUTS];
    struct gyre_chunks chunks;
    int n_ins = 0, n_outs = 0;
    unsigned flags = 0;
    GYRE_TRY(read_chunks(reader, &chunks));
    GYRE_TRY(take_word(reader, ":"));
    GYRE_TRY(read_operands(reader, false, ins, &n_ins));
    GYRE_TRY(take_word(reader, "->"));
    GYRE_TRY(read_operands(reader, true, outs, &n_outs));
    if (is_token(reader, "final")) {
        flags |= GYRE_STEP_FINAL;
        next_token(reader);
    }
    if (is_token(reader, "with_next")) {
        flags |= GYRE_STEP_WITH_NEXT;
        next_token(reader);
    }
    GYRE_TRY(take_end_of_line(reader));
    gyre_builder_range_step(reader->builder, chunks, ins, n_ins, outs, n_outs, flags);
    return GYRE_SUCCESS;
}

static gyre_status read_body(struct reader *reader)
{
    for (;;) {
        GYRE_TRY(need_line(reader));
        if (is_token(reader, "end")) {
            next_token(reader);
            GYRE_TRY(take_end_of_line(reader));
            const int line = reader->line;
            if (next_line(reader))
                return EXPECTED(reader, "nothing after \"end\"");
            reader->line = line;
            return GYRE_SUCCESS;
        }
        if (reader->n_workers == 0 && is_token(reader, "names")) {
            uint16_t *names =
                gyre_builder_allocate(reader->builder, reader->n_ranks * sizeof(*names));
            GYRE_TRY(take_word(reader, "names"));
            for (unsigned i = 0; i < reader->n_ranks; i++) {
                unsigned block = 0;
                GYRE_TRY(take_number(reader, reader->n_ranks - 1, &block));
                if (names != NULL) /* else the builder has the error */
                    names[i] = (uint16_t)block;
            }
            if (names != NULL)
                gyre_builder_names(reader->builder, names);
            GYRE_TRY(take_end_of_line(reader));
        } else if (is_token(reader, "worker")) {
            unsigned number;
            GYRE_TRY(take_named(reader, "worker", GYRE_MAX_WORKERS - 1, &number));
            GYRE_TRY(take_end_of_line(reader));
            if (number != reader->n_workers)
                return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                                 "line %d: expected worker %u, found worker %u", reader->line,
                                 reader->n_workers, number);
            reader->n_workers++;
            gyre_builder_worker(reader->builder);
        } else if (reader->n_workers == 0 ||
                   (!is_token(reader, "chunk") && !is_token(reader, "chunks"))) {
            return EXPECTED(reader, reader->n_workers == 0
                                        ? "\"worker 0\" or \"end\""
                                        : "\"chunk\", \"chunks\", \"worker\" or \"end\"");
        } else {
            GYRE_TRY(read_step(reader));
        }
    }
}

gyre_status gyre_program_from_lines(const char *text, int first_line,
                                    struct gyre_program **program_out)
{
    struct reader reader = {.at = text, .line = first_line};
    struct gyre_program *program = NULL;
    gyre_status status = read_head(&reader);
    if (status != GYRE_SUCCESS)
        return status;
    status = read_body(&reader);
    char cause[GYRE_CAUSE_MAX_BYTES];
    snprintf(cause, sizeof(cause), "%s", gyre_cause());
    const gyre_status closed = gyre_builder_close(reader.builder, &program);
    if (status != GYRE_SUCCESS) {
        gyre_program_free(closed == GYRE_SUCCESS ? program : NULL);
        gyre_set_cause(cause);
        return status;
    }
    if (closed != GYRE_SUCCESS)
        return gyre_fail_context(closed == GYRE_ERROR_INTERNAL ? GYRE_ERROR_INVALID_ARGUMENT
                                                               : closed,
                                 "lines %d to %d", reader.head_line, reader.line);
    *program_out = program;
    return GYRE_SUCCESS;
}

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

static void print_step(FILE *file, const struct gyre_connection *connections, uint32_t n_parts,
                       const struct gyre_step *step)
{
    if (step->n_chunks == 1) {
        fprintf(file, "chunk %u: ", step->chunk);
    } else {
        fprintf(file, "chunks %u-%u", step->chunk,
                gyre_step_part(step, step->chunk, step->n_chunks - 1U, n_parts));
        if (step->stride > 0)
            fprintf(file, " by %u", step->stride);
        if (step->run > 1)
            fprintf(file, "/%u", step->run);
        fputs(": ", file);
    }
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
    GYRE_FREED char *text = NULL;
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
    for (unsigned i = 0; program->names != NULL && i < program->n_ranks; i++)
        fprintf(file, "%s %u", i == 0 ? "\nnames" : "", program->names[i]);
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
    if (!gyre_text_finish(file, &text))
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to print a program");
    *text_out = text;
    return GYRE_SUCCESS;
}
