/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/model/schedule.h"

#include "core/foundation/base/status.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"
#include "core/foundation/model/types.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const gyre_dtype_names[GYRE_N_DTYPES] = {
#define NAME(id, name, bytes, is_float) [GYRE_##id] = #name,
    GYRE_DTYPE_TABLE(NAME)
#undef NAME
};

const char *const gyre_op_names[GYRE_N_OPS] = {
#define NAME(id, name) [GYRE_##id] = #name,
    GYRE_OP_TABLE(NAME)
#undef NAME
};

const char *const gyre_proto_names[GYRE_N_PROTOS] = {
#define NAME(id, name, data, line) [GYRE_PROTO_##id] = #name,
    GYRE_PROTO_TABLE(NAME)
#undef NAME
};

const struct gyre_collective_traits gyre_collectives[GYRE_N_COLLECTIVES] = {
#define TRAITS(id, name, in_blocks, out_blocks, reduces, root) \
    [GYRE_COLL_##id] = {#name, in_blocks, out_blocks, reduces, root},
    GYRE_COLLECTIVE_TABLE(TRAITS)
#undef TRAITS
};

int gyre_name_find(const char *const *names, int n_names, const char *name)
{
    for (int i = 0; i < n_names; i++)
        if (gyre_text_same(names[i], name))
            return i;
    return -1;
}

int gyre_collective_find(const char *name)
{
    for (int i = 0; i < GYRE_N_COLLECTIVES; i++)
        if (gyre_text_same(gyre_collectives[i].name, name))
            return i;
    return -1;
}

void gyre_program_free(struct gyre_program *program)
{
    if (program == NULL)
        return;
    free(program->workers);
    free(program->connections);
    free(program->steps);
    free(program->names);
    free(program);
}

static uint64_t hash_operands(uint64_t hash, const struct gyre_operand *operands, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        const uint16_t fields[] = {operands[i].kind, operands[i].is_placed, operands[i].index};
        hash = gyre_hash(hash, fields, sizeof(fields));
    }
    return hash;
}

uint64_t gyre_program_hash(const struct gyre_program *program)
{
    const uint32_t head[] = {
        (uint32_t)program->coll, program->n_ranks,   program->root,
        program->rank,           program->n_chunks,  program->n_scratch,
        program->n_lanes,        program->n_workers, program->n_connections,
        program->min_depth,      program->max_range, (uint32_t)program->n_steps};
    uint64_t hash = gyre_hash(GYRE_HASH_INIT, head, sizeof(head));
    for (unsigned i = 0; i < program->n_workers; i++) {
        const uint32_t fields[] = {program->workers[i].first_step, program->workers[i].n_steps};
        hash = gyre_hash(hash, fields, sizeof(fields));
    }
    for (unsigned i = 0; i < program->n_connections; i++) {
        const struct gyre_connection *connection = &program->connections[i];
        const uint16_t fields[] = {connection->peer, connection->lane, connection->is_send};
        hash = gyre_hash(hash, fields, sizeof(fields));
    }
    for (unsigned i = 0; i < program->n_steps; i++) {
        const struct gyre_step *step = &program->steps[i];
        const uint16_t fields[] = {step->n_ins, step->n_outs, step->flags,
                                   step->run,   step->chunk,  step->n_chunks};
        hash = gyre_hash(hash, fields, sizeof(fields));
        if (step->stride != 0)
            hash = gyre_hash(hash, &step->stride, sizeof(step->stride));
        hash = hash_operands(hash, step->ins, step->n_ins);
        hash = hash_operands(hash, step->outs, step->n_outs);
    }
    if (program->names != NULL)
        hash = gyre_hash(hash, program->names, program->n_ranks * sizeof(*program->names));
    return hash;
}

static bool only_copies(const struct gyre_program *program, const struct gyre_step *step)
{
    /* A copy tail cannot apply the operation. */
    const bool reduces = gyre_collectives[program->coll].reduces;
    if (step->n_ins != 1 || step->n_chunks != 1 || (step->flags & GYRE_STEP_FINAL) != 0 ||
        step->ins[0].kind == GYRE_OPERAND_SCRATCH ||
        (step->ins[0].kind == GYRE_OPERAND_IN && reduces) ||
        (step->ins[0].kind == GYRE_OPERAND_CONNECTION && step->ins[0].is_placed == 0))
        return false;
    for (unsigned i = 0; i < step->n_outs; i++)
        if (step->outs[i].kind != GYRE_OPERAND_OUT && step->outs[i].is_placed == 0)
            return false;
    return true;
}

uint32_t gyre_program_copy_tail(const struct gyre_program *program)
{
    uint32_t first = program->n_steps;
    if (program->n_workers != 1 || program->is_placed == 0)
        return first;
    while (first > 0 && only_copies(program, &program->steps[first - 1]))
        first--;
    for (const struct gyre_step *step = program->steps; step < &program->steps[first]; step++) {
        for (unsigned i = 0; i < step->n_ins; i++)
            if (step->ins[i].is_placed != 0)
                return program->n_steps;
        for (unsigned i = 0; i < step->n_outs; i++)
            if (step->outs[i].is_placed != 0)
                return program->n_steps;
    }
    return first;
}

static void *copy_of(const void *bytes, size_t n_bytes)
{
    void *copy = malloc(n_bytes > 0 ? n_bytes : 1);
    if (copy != NULL && n_bytes > 0)
        memcpy(copy, bytes, n_bytes);
    return copy;
}

gyre_status gyre_program_clone(const struct gyre_program *program,
                               struct gyre_program **program_out)
{
    struct gyre_program *copy = copy_of(program, sizeof(*program));
    if (copy == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to copy a program");
    copy->workers = copy_of(program->workers, program->n_workers * sizeof(*program->workers));
    copy->connections =
        copy_of(program->connections, program->n_connections * sizeof(*program->connections));
    copy->steps = copy_of(program->steps, program->n_steps * sizeof(*program->steps));
    if (program->names != NULL)
        copy->names = copy_of(program->names, program->n_ranks * sizeof(*program->names));
    if (copy->workers == NULL || copy->connections == NULL || copy->steps == NULL ||
        (program->names != NULL && copy->names == NULL)) {
        gyre_program_free(copy);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to copy a program of %u steps",
                         program->n_steps);
    }
    *program_out = copy;
    return GYRE_SUCCESS;
}

#define NO_CONNECTION UINT16_MAX

struct kept {
    struct kept *next;
    void *memory;
};

struct gyre_builder {
    struct gyre_program *program;
    uint32_t steps_capacity;
    uint32_t connections_capacity;
    uint16_t *connection_of; /* (peer * GYRE_MAX_LANES + lane) * 2 + is_send -> connection */
    int accumulator;         /* of the worker's chains; -1 = none */
    struct kept *kept;
    gyre_status status;
    char cause[256];
};

__attribute__((format(printf, 3, 4))) static void
builder_fail(struct gyre_builder *builder, gyre_status status, const char *format, ...)
{
    if (builder->status != GYRE_SUCCESS)
        return;
    builder->status = status;
    va_list args;
    va_start(args, format);
    vsnprintf(builder->cause, sizeof(builder->cause), format, args);
    va_end(args);
}

gyre_status gyre_builder_open(const char *algorithm, const struct gyre_shape *shape, int rank,
                              int n_chunks, struct gyre_builder **builder_out)
{
    if ((unsigned)shape->coll >= GYRE_N_COLLECTIVES || shape->n_ranks < 1 ||
        shape->n_ranks > GYRE_MAX_RANKS || rank < 0 || rank >= shape->n_ranks ||
        shape->root >= shape->n_ranks)
        return gyre_fail(GYRE_ERROR_INTERNAL,
                         "program of %s for rank %d of %u, root %u: no such shape", algorithm, rank,
                         shape->n_ranks, shape->root);
    if (n_chunks < 1 || n_chunks > GYRE_MAX_RANKS)
        return gyre_fail(GYRE_ERROR_INTERNAL, "program of %s: %d chunks (1..%d)", algorithm,
                         n_chunks, GYRE_MAX_RANKS);
    const size_t n_keys = (size_t)shape->n_ranks * GYRE_MAX_LANES * 2;
    struct gyre_builder *builder = calloc(1, sizeof(*builder));
    struct gyre_program *program = calloc(1, sizeof(*program));
    uint16_t *connection_of = malloc(n_keys * sizeof(*connection_of));
    struct gyre_worker *workers = calloc(GYRE_MAX_WORKERS, sizeof(*workers));
    if (builder == NULL || program == NULL || connection_of == NULL || workers == NULL) {
        free(builder);
        free(program);
        free(connection_of);
        free(workers);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to build a program");
    }
    memset(connection_of, 0xff, n_keys * sizeof(*connection_of));
    program->coll = shape->coll;
    program->n_ranks = shape->n_ranks;
    program->root = shape->root;
    program->rank = (uint16_t)rank;
    program->n_chunks = (uint16_t)n_chunks;
    program->n_lanes = 1;
    program->min_depth = 1;
    program->max_range = 1;
    program->workers = workers;
    snprintf(program->algorithm, sizeof(program->algorithm), "%s", algorithm);
    builder->program = program;
    builder->connection_of = connection_of;
    gyre_builder_worker(builder);
    *builder_out = builder;
    return GYRE_SUCCESS;
}

void *gyre_builder_keep(struct gyre_builder *builder, void *memory)
{
    struct kept *kept = malloc(sizeof(*kept));
    if (memory == NULL || kept == NULL) {
        builder_fail(builder, GYRE_ERROR_OUT_OF_MEMORY, "no memory to build a program");
        free(memory);
        free(kept);
        return NULL;
    }
    *kept = (struct kept){builder->kept, memory};
    builder->kept = kept;
    return memory;
}

void *gyre_builder_allocate(struct gyre_builder *builder, size_t n_bytes)
{
    return gyre_builder_keep(builder, calloc(1, n_bytes));
}

void gyre_builder_worker(struct gyre_builder *builder)
{
    struct gyre_program *program = builder->program;
    if (builder->status != GYRE_SUCCESS)
        return;
    builder->accumulator = -1;
    if (program->n_workers > 0 && program->workers[program->n_workers - 1].n_steps == 0)
        return;
    if (program->n_workers == GYRE_MAX_WORKERS) {
        builder_fail(builder, GYRE_ERROR_INTERNAL, "more than %d workers", GYRE_MAX_WORKERS);
        return;
    }
    program->workers[program->n_workers++].first_step = program->n_steps;
}

void gyre_builder_min_depth(struct gyre_builder *builder, int min_depth)
{
    builder->program->min_depth = (uint16_t)min_depth;
}

void gyre_builder_max_range(struct gyre_builder *builder, int max_range)
{
    builder->program->max_range = (uint16_t)max_range;
}

void gyre_builder_names(struct gyre_builder *builder, const uint16_t *names)
{
    struct gyre_program *program = builder->program;
    free(program->names);
    program->names = copy_of(names, program->n_ranks * sizeof(*names));
    if (program->names == NULL)
        builder_fail(builder, GYRE_ERROR_OUT_OF_MEMORY, "no memory to build a program");
}

void gyre_builder_lanes(struct gyre_builder *builder, int n_lanes)
{
    builder->program->n_lanes = (uint16_t)n_lanes;
}

static bool grow(struct gyre_builder *builder, void *array, uint32_t *capacity, uint32_t n,
                 size_t item_bytes)
{
    const bool has_room = gyre_grow(array, capacity, n, item_bytes);
    if (!has_room)
        builder_fail(builder, GYRE_ERROR_OUT_OF_MEMORY, "no memory for a program's steps");
    return has_room;
}

static uint16_t connection_index(struct gyre_builder *builder, struct gyre_ref ref, bool is_send)
{
    struct gyre_program *program = builder->program;
    if (ref.index >= program->n_ranks || ref.lane >= GYRE_MAX_LANES) {
        builder_fail(builder, GYRE_ERROR_INTERNAL,
                     "connection with rank %u of %u, counted from 0, lane %u", ref.index,
                     program->n_ranks, ref.lane);
        return 0;
    }
    uint16_t *known =
        &builder->connection_of[((size_t)ref.index * GYRE_MAX_LANES + ref.lane) * 2 + is_send];
    if (*known != NO_CONNECTION)
        return *known;
    if (program->n_connections == NO_CONNECTION) {
        builder_fail(builder, GYRE_ERROR_INTERNAL, "more than %d connections", NO_CONNECTION);
        return 0;
    }
    if (!grow(builder, &program->connections, &builder->connections_capacity,
              program->n_connections + 1U, sizeof(*program->connections)))
        return 0;
    program->connections[program->n_connections] =
        (struct gyre_connection){ref.index, ref.lane, is_send};
    *known = program->n_connections++;
    return *known;
}

static struct gyre_operand resolve(struct gyre_builder *builder, struct gyre_ref ref, bool is_out)
{
    struct gyre_operand operand = {(uint8_t)ref.kind, ref.is_placed, ref.index};
    builder->program->is_placed |= ref.is_placed;
    if (ref.kind == GYRE_OPERAND_CONNECTION)
        operand.index = connection_index(builder, ref, is_out);
    else if (ref.kind == GYRE_OPERAND_SCRATCH && ref.index >= GYRE_MAX_RANKS)
        builder_fail(builder, GYRE_ERROR_INTERNAL, "scratch %u (0..%d)", ref.index,
                     GYRE_MAX_RANKS - 1);
    else if (ref.kind == GYRE_OPERAND_SCRATCH && ref.index >= builder->program->n_scratch)
        builder->program->n_scratch = (uint16_t)(ref.index + 1);
    return operand;
}

void gyre_builder_step(struct gyre_builder *builder, int chunk, const struct gyre_ref *ins,
                       int n_ins, const struct gyre_ref *outs, int n_outs, unsigned flags)
{
    const struct gyre_chunks chunks = {.first = (uint16_t)chunk, .n = 1};
    gyre_builder_range_step(builder, chunks, ins, n_ins, outs, n_outs, flags);
}

void gyre_builder_range_step(struct gyre_builder *builder, struct gyre_chunks chunks,
                             const struct gyre_ref *ins, int n_ins, const struct gyre_ref *outs,
                             int n_outs, unsigned flags)
{
    struct gyre_program *program = builder->program;
    if (builder->status != GYRE_SUCCESS)
        return;
    if (n_ins < 1 || n_ins > GYRE_STEP_MAX_INS || n_outs < 0 || n_outs > GYRE_STEP_MAX_OUTS) {
        builder_fail(builder, GYRE_ERROR_INTERNAL,
                     "step %u has %d inputs (1..%d) and %d outputs (0..%d)", program->n_steps,
                     n_ins, GYRE_STEP_MAX_INS, n_outs, GYRE_STEP_MAX_OUTS);
        return;
    }
    if (!grow(builder, &program->steps, &builder->steps_capacity, program->n_steps + 1U,
              sizeof(*program->steps)))
        return;
    struct gyre_step *step = &program->steps[program->n_steps];
    memset(step, 0, sizeof(*step));
    step->n_ins = (uint8_t)n_ins;
    step->n_outs = (uint8_t)n_outs;
    step->flags = (uint8_t)flags;
    step->chunk = chunks.first;
    step->n_chunks = chunks.n;
    const uint16_t run = chunks.run == 0 ? 1 : chunks.run;
    if (chunks.stride != 0 && run != chunks.stride && chunks.n > run) {
        step->run = run;
        step->stride = chunks.stride;
    }
    for (int i = 0; i < n_ins; i++)
        step->ins[i] = resolve(builder, ins[i], false);
    for (int i = 0; i < n_outs; i++)
        step->outs[i] = resolve(builder, outs[i], true);
    bool has_scratch = false;
    for (int i = 0; i < n_ins + n_outs; i++)
        has_scratch |= (i < n_ins ? ins[i] : outs[i - n_ins]).kind == GYRE_OPERAND_SCRATCH;
    /* A range's scratch areas wrap round to 0, so all must exist. */
    const uint32_t n_parts = gyre_program_n_parts(program, GYRE_OPERAND_SCRATCH);
    if (chunks.n > 1 && has_scratch && program->n_scratch < n_parts)
        program->n_scratch = (uint16_t)n_parts;
    program->n_steps++;
    program->workers[program->n_workers - 1].n_steps++;
}

void gyre_builder_reduce(struct gyre_builder *builder, int chunk, const struct gyre_ref *ins,
                         int n_ins, const struct gyre_ref *outs, int n_outs, unsigned flags)
{
    struct gyre_ref group[GYRE_STEP_MAX_INS];
    for (int first = 0; first < n_ins; first += GYRE_STEP_MAX_RECVS) {
        const bool is_last = first + GYRE_STEP_MAX_RECVS >= n_ins;
        const int n_group = is_last ? n_ins - first : GYRE_STEP_MAX_RECVS;
        int n = 0;
        if (first > 0)
            group[n++] = gyre_scratch(builder->accumulator);
        memcpy(&group[n], &ins[first], (size_t)n_group * sizeof(*ins));
        n += n_group;
        if (is_last) {
            gyre_builder_step(builder, chunk, group, n, outs, n_outs, flags);
            return;
        }
        if (builder->accumulator < 0)
            builder->accumulator = builder->program->n_scratch;
        const struct gyre_ref sum = gyre_scratch(builder->accumulator);
        gyre_builder_step(builder, chunk, group, n, &sum, 1, 0);
    }
    builder_fail(builder, GYRE_ERROR_INTERNAL, "a reduction of no inputs");
}

void gyre_builder_scatter(struct gyre_builder *builder, int chunk, struct gyre_ref in,
                          const struct gyre_ref *outs, int n_outs)
{
    struct gyre_ref group[GYRE_STEP_MAX_OUTS];
    struct gyre_ref local = {GYRE_N_OPERAND_KINDS, 0, 0, false};
    int n_sends = 0, n_done = 0, n = 0;
    bool is_placed = false;
    for (int i = 0; i < n_outs; i++) {
        if (outs[i].kind == GYRE_OPERAND_CONNECTION)
            n_sends++;
        else
            local = outs[i];
        is_placed = is_placed || outs[i].is_placed;
    }
    const bool has_local = local.kind != GYRE_N_OPERAND_KINDS;
    if (n_outs - n_sends > 1)
        builder_fail(builder, GYRE_ERROR_INTERNAL, "a scatter to %d local chunks",
                     n_outs - n_sends);
    for (int i = 0; i < n_outs; i++) {
        if (outs[i].kind != GYRE_OPERAND_CONNECTION)
            continue;
        group[n++] = outs[i];
        n_done++;
        if (n < GYRE_STEP_MAX_SENDS || n_done == n_sends)
            continue;
        /* The step before must not run with the one that writes the local chunk. */
        const bool last_follows = n_sends - n_done <= GYRE_STEP_MAX_SENDS;
        const bool is_apart = is_placed || (has_local && last_follows);
        const unsigned flags = is_apart ? 0 : GYRE_STEP_WITH_NEXT;
        gyre_builder_step(builder, chunk, &in, 1, group, n, flags);
        n = 0;
    }
    if (has_local)
        group[n++] = local;
    gyre_builder_step(builder, chunk, &in, 1, group, n, 0);
}

gyre_status gyre_builder_close(struct gyre_builder *builder, struct gyre_program **program_out)
{
    struct gyre_program *program = builder->program;
    gyre_status status = builder->status;
    if (status != GYRE_SUCCESS)
        gyre_fail(status, "%s %s, rank %u of %u: %s", program->algorithm,
                  gyre_collectives[program->coll].name, program->rank, program->n_ranks,
                  builder->cause);
    if (program->n_workers > 0 && program->workers[program->n_workers - 1].n_steps == 0)
        program->n_workers--;
    while (builder->kept != NULL) {
        struct kept *kept = builder->kept;
        builder->kept = kept->next;
        free(kept->memory);
        free(kept);
    }
    free(builder->connection_of);
    free(builder);
    if (status == GYRE_SUCCESS)
        status = gyre_program_check(program);
    if (status != GYRE_SUCCESS) {
        gyre_program_free(program);
        return status;
    }
    *program_out = program;
    return GYRE_SUCCESS;
}
