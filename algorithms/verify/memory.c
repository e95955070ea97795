/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/verify/machine.h"

#include "core/foundation/base/status.h"

#include <stdlib.h>

#define NO_CELL UINT32_MAX

/* By one worker. Steps of one time, and pieces of one step, are unordered. */
struct reading {
    int32_t time; /* 0 = never */
    uint32_t step;
    uint16_t piece;
    bool many;
};

/* Together, because a proof of many ranks touches chunks in an order that no cache foresees. */
struct cell {
    struct gyre_content content; /* no value: not written */
    int32_t time;
    uint32_t step;
    uint32_t piece;
    uint32_t worker;
    struct reading readings[];
};

struct gyre_verify_memory {
    const struct gyre_verify_network *network;
    const struct gyre_program *const *programs;
    uint32_t n_ranks;
    uint32_t n_tiles;
    uint32_t n_outs;
    bool in_place;
    char *cells;
    size_t cell_bytes;
};

gyre_status gyre_verify_memory_open(const struct gyre_verify_network *network, bool in_place,
                                    uint32_t n_tiles, struct gyre_verify_memory **memory_out)
{
    struct gyre_verify_memory *memory = calloc(1, sizeof(*memory));
    if (memory == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for the verifier");
    const struct gyre_program *const *programs = network->programs;
    memory->network = network;
    memory->programs = programs;
    memory->n_ranks = programs[0]->n_ranks;
    memory->n_tiles = n_tiles;
    memory->n_outs = gyre_program_n_parts(programs[0], GYRE_OPERAND_OUT);
    memory->in_place = in_place;
    size_t n_workers = 1;
    for (uint32_t rank = 0; rank < memory->n_ranks; rank++)
        if (programs[rank]->n_workers > n_workers)
            n_workers = programs[rank]->n_workers;
    const size_t n_cells = (size_t)memory->n_ranks * n_tiles * memory->n_outs;
    memory->cell_bytes = sizeof(struct cell) + n_workers * sizeof(struct reading);
    memory->cells = calloc(n_cells, memory->cell_bytes);
    if (memory->cells == NULL) {
        gyre_verify_memory_close(memory);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for %zu chunks of the verifier",
                         n_cells);
    }
    *memory_out = memory;
    return GYRE_SUCCESS;
}

void gyre_verify_memory_close(struct gyre_verify_memory *memory)
{
    if (memory == NULL)
        return;
    free(memory->cells);
    free(memory);
}

bool gyre_verify_owns_in(const struct gyre_program *program)
{
    switch (program->coll) {
    case GYRE_COLL_BROADCAST:
    case GYRE_COLL_SEND_RECV:
    case GYRE_COLL_SCATTER:
        return program->rank == program->root;
    default:
        return true;
    }
}

struct gyre_expectation gyre_verify_expect(const struct gyre_program *program, uint32_t chunk)
{
    const bool is_root = program->rank == program->root;
    const uint32_t in_block = chunk % program->n_chunks;
    const uint32_t own_first = gyre_program_chunk_of(program, program->rank);
    struct gyre_expectation expect = {.is_owned = true, .chunk = chunk, .source = program->root};
    switch (program->coll) {
    case GYRE_COLL_ALL_REDUCE:
        expect.from_all = true;
        break;
    case GYRE_COLL_REDUCE:
        expect.from_all = true;
        expect.is_owned = is_root;
        break;
    case GYRE_COLL_REDUCE_SCATTER:
        expect.from_all = true;
        expect.chunk = own_first + in_block;
        break;
    case GYRE_COLL_ALL_GATHER:
    case GYRE_COLL_GATHER:
        expect.is_owned = program->coll == GYRE_COLL_ALL_GATHER || is_root;
        expect.source = (uint16_t)gyre_program_block(program, chunk);
        expect.chunk = in_block;
        break;
    case GYRE_COLL_ALL_TO_ALL:
        expect.source = (uint16_t)gyre_program_block(program, chunk);
        expect.chunk = own_first + in_block;
        break;
    case GYRE_COLL_SCATTER:
        expect.chunk = own_first + in_block;
        break;
    case GYRE_COLL_SEND_RECV:
        expect.is_owned = !is_root || program->n_ranks == 1;
        break;
    default:
        break;
    }
    return expect;
}

/* The chunk of OUT that is IN(chunk)'s memory in an in-place call. An all-to-all in place has no
 * defined result (gyre.h): staged programs are right all the same, placed ones cannot be. */
static uint32_t alias_of_in(const struct gyre_program *program, uint32_t chunk)
{
    const uint32_t n_chunks = program->n_chunks;
    switch (program->coll) {
    case GYRE_COLL_ALL_GATHER:
        return gyre_program_chunk_of(program, program->rank) + chunk;
    case GYRE_COLL_GATHER:
        return program->rank == program->root
                   ? gyre_program_chunk_of(program, program->rank) + chunk
                   : NO_CELL;
    case GYRE_COLL_REDUCE_SCATTER:
    case GYRE_COLL_SCATTER:
        return gyre_program_block(program, chunk) == program->rank ? chunk % n_chunks : NO_CELL;
    case GYRE_COLL_ALL_TO_ALL:
        return program->is_placed ? NO_CELL : chunk;
    default:
        return chunk;
    }
}

static struct cell *cell_at(const struct gyre_verify_memory *memory, uint32_t rank, uint32_t tile,
                            uint32_t chunk)
{
    const size_t index = ((size_t)rank * memory->n_tiles + tile) * memory->n_outs + chunk;
    return (struct cell *)(void *)&memory->cells[index * memory->cell_bytes];
}

struct touch {
    uint32_t rank; /* plus 1; 0 = none */
    uint32_t worker;
    bool is_written;
};

/* Does another worker touch a chunk of these operands, too, and one of them writes? */
static bool note_operands(const struct gyre_verify_memory *memory, struct touch *touches,
                          const struct touch *own, const struct gyre_step *step, bool is_out)
{
    const struct gyre_program *program = memory->programs[own->rank - 1];
    const struct gyre_operand *operands = is_out ? step->outs : step->ins;
    bool is_shared = false;
    for (uint32_t i = 0; i < (is_out ? step->n_outs : step->n_ins); i++) {
        const bool is_in = operands[i].kind == GYRE_OPERAND_IN;
        is_shared = is_shared || operands[i].is_placed;
        if (is_in ? !memory->in_place : operands[i].kind != GYRE_OPERAND_OUT)
            continue;
        const uint32_t n_parts =
            gyre_program_n_parts(program, (enum gyre_operand_kind)operands[i].kind);
        for (uint32_t piece = 0; piece < step->n_chunks; piece++) {
            const uint32_t part = gyre_step_part(step, operands[i].index, piece, n_parts);
            const uint32_t chunk = is_in ? alias_of_in(program, part) : part;
            if (chunk == NO_CELL)
                continue;
            struct touch *touch = &touches[chunk];
            if (touch->rank != own->rank) {
                *touch = *own;
                continue;
            }
            touch->is_written = touch->is_written || own->is_written;
            is_shared = is_shared || (touch->worker != own->worker && touch->is_written);
        }
    }
    return is_shared;
}

bool gyre_verify_shares_chunks(const struct gyre_verify_memory *memory)
{
    struct touch *touches = calloc((size_t)memory->n_outs + 1, sizeof(*touches));
    bool is_shared = touches == NULL;
    for (uint32_t rank = 0; rank < memory->n_ranks && !is_shared; rank++) {
        const struct gyre_program *program = memory->programs[rank];
        for (uint32_t w = 0; w < program->n_workers && !is_shared; w++)
            for (uint32_t s = 0; s < program->workers[w].n_steps && !is_shared; s++) {
                const struct gyre_step *step = &program->steps[program->workers[w].first_step + s];
                struct touch own = {rank + 1, w, false};
                is_shared = note_operands(memory, touches, &own, step, false);
                own.is_written = true;
                is_shared = note_operands(memory, touches, &own, step, true) || is_shared;
            }
    }
    free(touches);
    return is_shared;
}

static uint32_t rank_of(const struct gyre_verify_memory *memory, uint32_t worker)
{
    uint32_t rank = 0;
    while (memory->network->first_worker[rank + 1] <= worker)
        rank++;
    return rank;
}

static bool is_after(const struct gyre_access *access, uint32_t worker, int32_t time)
{
    return time == 0 || gyre_view_is_after(access->clocks, &access->view, worker, time);
}

/* The last write must be over and known to this piece. */
static gyre_status check_after_write(const struct gyre_verify_memory *memory,
                                     const struct cell *cell, const struct gyre_access *access,
                                     const char *what, unsigned chunk)
{
    if (cell->time == 0)
        return GYRE_SUCCESS;
    const bool is_own = cell->worker == access->worker;
    if (is_own ? cell->time == access->time &&
                     (cell->step != access->step || cell->piece != access->piece)
               : !is_after(access, cell->worker, cell->time))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "%s chunk %u while rank %u in its step %u may write it", what, chunk,
                         rank_of(memory, cell->worker), cell->step);
    return GYRE_SUCCESS;
}

static bool is_apart(const struct reading *reading, const struct gyre_access *access)
{
    return reading->step != access->step || reading->piece != access->piece;
}

gyre_status gyre_verify_read(struct gyre_verify_memory *memory, const struct gyre_access *access,
                             struct gyre_operand operand, struct gyre_content *content_out)
{
    const struct gyre_program *program = memory->programs[access->rank];
    const bool is_in = operand.kind == GYRE_OPERAND_IN;
    uint32_t chunk = operand.index;
    *content_out = (struct gyre_content){.value = GYRE_NO_VALUE};
    if (is_in && !gyre_verify_owns_in(program))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "reads in %u, but this rank gives no input",
                         chunk);
    if (is_in)
        chunk = memory->in_place ? alias_of_in(program, chunk) : NO_CELL;
    if (chunk == NO_CELL)
        return GYRE_SUCCESS;
    struct cell *cell = cell_at(memory, access->rank, access->tile, chunk);
    GYRE_TRY(check_after_write(memory, cell, access, is_in ? "reads in place" : "reads", chunk));
    if (is_in && cell->content.value != GYRE_NO_VALUE)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "reads in %u after rank %u in its step %u overwrote it in place",
                         operand.index, rank_of(memory, cell->worker), cell->step);
    if (!is_in && cell->content.value == GYRE_NO_VALUE)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "reads out %u before it is written", chunk);
    struct reading *reading =
        &cell->readings[access->worker - memory->network->first_worker[access->rank]];
    reading->many = reading->time == access->time && (reading->many || is_apart(reading, access));
    reading->time = access->time;
    reading->step = access->step;
    reading->piece = (uint16_t)access->piece;
    if (!is_in)
        *content_out = cell->content;
    return GYRE_SUCCESS;
}

gyre_status gyre_verify_write(struct gyre_verify_memory *memory, const struct gyre_access *access,
                              uint16_t owner, uint32_t chunk, struct gyre_content content)
{
    const uint32_t first_worker = memory->network->first_worker[owner];
    if (!gyre_verify_expect(memory->programs[owner], chunk).is_owned)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "writes out %u, but rank %u gets no output",
                         chunk, owner);
    struct cell *cell = cell_at(memory, owner, access->tile, chunk);
    GYRE_TRY(check_after_write(memory, cell, access, "writes", chunk));
    for (uint32_t worker = 0; worker < memory->programs[owner]->n_workers; worker++) {
        const struct reading *reading = &cell->readings[worker];
        const bool is_own = first_worker + worker == access->worker;
        if (is_own ? reading->time == access->time && (reading->many || is_apart(reading, access))
                   : !is_after(access, first_worker + worker, reading->time))
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "writes out %u of rank %u while its worker %u, step %u may read it",
                             chunk, owner, worker, reading->step);
    }
    cell->content = content;
    cell->time = access->time;
    cell->step = access->step;
    cell->piece = access->piece;
    cell->worker = access->worker;
    return GYRE_SUCCESS;
}

static gyre_status check_output(const struct gyre_verify_memory *memory,
                                const struct gyre_values *values, uint32_t rank, uint32_t tile,
                                uint32_t chunk, bool *orders_differ_out)
{
    const struct gyre_program *program = memory->programs[rank];
    const struct gyre_expectation expect = gyre_verify_expect(program, chunk);
    const struct cell *cell = cell_at(memory, rank, tile, chunk);
    if (!expect.is_owned)
        return GYRE_SUCCESS; /* gyre_verify_write() refuses to touch it */
    if (cell->content.value == GYRE_NO_VALUE) {
        /* In place, a step need not write a chunk of OUT that holds the right input. */
        const bool stays = memory->in_place && !expect.from_all && expect.source == rank &&
                           gyre_verify_owns_in(program) &&
                           alias_of_in(program, expect.chunk) == chunk;
        return stays ? GYRE_SUCCESS
                     : gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                                 "rank %u, tile %u: out %u was never written", rank, tile, chunk);
    }
    const struct gyre_value *value = gyre_values_get(values, cell->content.value);
    if (cell->content.chunk != expect.chunk || cell->content.tile != tile)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "rank %u, tile %u: out %u holds in %u of tile %u, expected in %u", rank,
                         tile, chunk, cell->content.chunk, cell->content.tile, expect.chunk);
    if (value->n_ranks_in != (expect.from_all ? memory->n_ranks : 1))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "rank %u, tile %u: out %u holds the contributions of %u ranks, expected "
                         "%u",
                         rank, tile, chunk, value->n_ranks_in,
                         expect.from_all ? memory->n_ranks : 1);
    if (!expect.from_all && !gyre_values_has(values, cell->content.value, expect.source))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "rank %u, tile %u: out %u does not hold the input of rank %u", rank, tile,
                         chunk, expect.source);
    if (value->is_final != gyre_collectives[program->coll].reduces)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "rank %u, tile %u: out %u is not a finished reduction", rank, tile, chunk);
    if (program->coll == GYRE_COLL_ALL_REDUCE &&
        cell->content.value != cell_at(memory, 0, tile, chunk)->content.value) {
        const unsigned ranks[] = {0, rank};
        const uint32_t of_rank[] = {cell_at(memory, 0, tile, chunk)->content.value,
                                    cell->content.value};
        char orders[512];
        *orders_differ_out = true;
        gyre_values_compare(values, of_rank, ranks, orders, sizeof(orders));
        return gyre_fail(
            GYRE_ERROR_INVALID_ARGUMENT,
            "tile %u: out %u of rank %u was reduced in another order than on rank 0%s\n"
            "  add the sum of the lower ranks first on all ranks, or allow any order "
            "(--any-order, GYRE_ANY_ORDER=1)",
            tile, chunk, rank, orders);
    }
    return GYRE_SUCCESS;
}

gyre_status gyre_verify_outputs(const struct gyre_verify_memory *memory,
                                const struct gyre_values *values,
                                struct gyre_verify_place *place_out, bool *orders_differ_out)
{
    for (uint32_t rank = 0; rank < memory->n_ranks; rank++)
        for (uint32_t tile = 0; tile < memory->n_tiles; tile++)
            for (uint32_t chunk = 0; chunk < memory->n_outs; chunk++) {
                const gyre_status status =
                    check_output(memory, values, rank, tile, chunk, orders_differ_out);
                if (status == GYRE_SUCCESS)
                    continue;
                *place_out = (struct gyre_verify_place){(int32_t)rank, -1, -1, (int32_t)tile,
                                                        (int32_t)chunk};
                return status;
            }
    return GYRE_SUCCESS;
}
