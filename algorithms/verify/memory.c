/* SPDX-License-Identifier: Apache-2.0
 *
 * Chunks, aliases and hazards (algorithms/verify/memory.h), and the contributions that each
 * collective requires in OUT.
 */
#include "algorithms/verify/memory.h"

#include "core/base/status.h"

#include <stdlib.h>

#define NO_CELL UINT32_MAX

/* The last read by one worker. Two steps with the same time are unordered, and so are two pieces of
 * one step. `many` says that several of them have read at this time. */
struct reading {
    uint32_t time; /* 0 = never */
    uint32_t step;
    uint32_t piece;
    bool many;
};

struct cell {
    uint32_t value; /* GYRE_NO_VALUE = not written */
    uint32_t time;  /* of the last write */
    uint32_t step;
    uint32_t piece;
    uint32_t worker; /* of the network */
};

struct gyre_verify_memory {
    const struct gyre_network *network;
    const struct gyre_program *const *programs;
    uint32_t n_ranks;
    uint32_t n_tiles;
    uint32_t n_outs;    /* chunks of OUT */
    uint32_t n_workers; /* most of any rank */
    bool in_place;
    struct cell *cells;       /* rank, tile, chunk */
    struct reading *readings; /* cell, worker of the rank */
};

gyre_status gyre_verify_memory_open(const struct gyre_network *network, bool in_place,
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
    memory->n_workers = 1;
    memory->in_place = in_place;
    for (uint32_t rank = 0; rank < memory->n_ranks; rank++)
        if (programs[rank]->n_workers > memory->n_workers)
            memory->n_workers = programs[rank]->n_workers;
    const size_t n_cells = (size_t)memory->n_ranks * n_tiles * memory->n_outs;
    memory->cells = calloc(n_cells, sizeof(*memory->cells));
    memory->readings = calloc(n_cells * memory->n_workers, sizeof(*memory->readings));
    if (memory->cells == NULL || memory->readings == NULL) {
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
    free(memory->readings);
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
        expect.chunk = program->rank;
        break;
    case GYRE_COLL_ALL_GATHER:
    case GYRE_COLL_GATHER:
        expect.is_owned = program->coll == GYRE_COLL_ALL_GATHER || is_root;
        expect.source = (uint16_t)chunk;
        expect.chunk = 0;
        break;
    case GYRE_COLL_ALL_TO_ALL:
        expect.source = (uint16_t)chunk;
        expect.chunk = program->rank;
        break;
    case GYRE_COLL_SCATTER:
        expect.chunk = program->rank;
        break;
    case GYRE_COLL_SEND_RECV:
        expect.is_owned = !is_root || program->n_ranks == 1;
        break;
    default: /* broadcast */
        break;
    }
    return expect;
}

/* The chunk of OUT that is the same memory as IN(chunk) in an in-place call, or NO_CELL. */
static uint32_t alias_of_in(const struct gyre_program *program, uint32_t chunk)
{
    switch (program->coll) {
    case GYRE_COLL_ALL_GATHER:
        return program->rank;
    case GYRE_COLL_GATHER:
        return program->rank == program->root ? program->rank : NO_CELL;
    case GYRE_COLL_REDUCE_SCATTER:
    case GYRE_COLL_SCATTER:
        return chunk == program->rank ? 0 : NO_CELL;
    default:
        return chunk;
    }
}

static size_t cell_index(const struct gyre_verify_memory *memory, uint32_t rank, uint32_t tile,
                         uint32_t chunk)
{
    return ((size_t)rank * memory->n_tiles + tile) * memory->n_outs + chunk;
}

/* The rank of a worker of the network. */
static uint32_t rank_of(const struct gyre_verify_memory *memory, uint32_t worker)
{
    uint32_t rank = 0;
    while (memory->network->first_worker[rank + 1] <= worker)
        rank++;
    return rank;
}

/* Is the cell's last write over and known to this piece of this step? */
static gyre_status check_after_write(const struct gyre_verify_memory *memory,
                                     const struct cell *cell, const struct gyre_access *access,
                                     const char *what, unsigned chunk)
{
    if (cell->time == 0)
        return GYRE_SUCCESS;
    const bool is_own = cell->worker == access->worker;
    if (is_own ? cell->time == access->time &&
                     (cell->step != access->step || cell->piece != access->piece)
               : access->known_times[cell->worker] < cell->time)
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
                             struct gyre_operand operand, uint32_t *value_out)
{
    const struct gyre_program *program = memory->programs[access->rank];
    const bool is_in = operand.kind == GYRE_OPERAND_IN;
    uint32_t chunk = operand.index;
    *value_out = GYRE_NO_VALUE;
    if (is_in && !gyre_verify_owns_in(program))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "reads in %u, but this rank gives no input",
                         chunk);
    if (is_in)
        chunk = memory->in_place ? alias_of_in(program, chunk) : NO_CELL;
    if (chunk == NO_CELL)
        return GYRE_SUCCESS; /* no step writes this memory */
    const size_t at = cell_index(memory, access->rank, access->tile, chunk);
    const struct cell *cell = &memory->cells[at];
    GYRE_TRY(check_after_write(memory, cell, access, is_in ? "reads in place" : "reads", chunk));
    if (is_in && cell->value != GYRE_NO_VALUE)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "reads in %u after rank %u in its step %u overwrote it in place",
                         operand.index, rank_of(memory, cell->worker), cell->step);
    if (!is_in && cell->value == GYRE_NO_VALUE)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "reads out %u before it is written", chunk);
    struct reading *reading = &memory->readings[at * memory->n_workers + access->worker -
                                                memory->network->first_worker[access->rank]];
    reading->many = reading->time == access->time && (reading->many || is_apart(reading, access));
    reading->time = access->time;
    reading->step = access->step;
    reading->piece = access->piece;
    *value_out = is_in ? GYRE_NO_VALUE : cell->value;
    return GYRE_SUCCESS;
}

gyre_status gyre_verify_write(struct gyre_verify_memory *memory, const struct gyre_access *access,
                              uint16_t owner, uint32_t chunk, uint32_t value)
{
    const uint32_t first_worker = memory->network->first_worker[owner];
    if (!gyre_verify_expect(memory->programs[owner], chunk).is_owned)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "writes out %u, but rank %u gets no output",
                         chunk, owner);
    const size_t at = cell_index(memory, owner, access->tile, chunk);
    struct cell *cell = &memory->cells[at];
    GYRE_TRY(check_after_write(memory, cell, access, "writes", chunk));
    for (uint32_t worker = 0; worker < memory->programs[owner]->n_workers; worker++) {
        const struct reading *reading = &memory->readings[at * memory->n_workers + worker];
        const bool is_own = first_worker + worker == access->worker;
        if (is_own ? reading->time == access->time && (reading->many || is_apart(reading, access))
                   : access->known_times[first_worker + worker] < reading->time)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "writes out %u of rank %u while its worker %u, step %u may read it",
                             chunk, owner, worker, reading->step);
    }
    cell->value = value;
    cell->time = access->time;
    cell->step = access->step;
    cell->piece = access->piece;
    cell->worker = access->worker;
    return GYRE_SUCCESS;
}

/* One chunk of OUT at one tile. */
static gyre_status check_output(const struct gyre_verify_memory *memory,
                                const struct gyre_values *values, uint32_t rank, uint32_t tile,
                                uint32_t chunk)
{
    const struct gyre_program *program = memory->programs[rank];
    const struct gyre_expectation expect = gyre_verify_expect(program, chunk);
    const struct cell *cell = &memory->cells[cell_index(memory, rank, tile, chunk)];
    if (!expect.is_owned)
        return GYRE_SUCCESS; /* gyre_verify_write() refuses to touch it */
    if (cell->value == GYRE_NO_VALUE) {
        /* In an in-place call a step need not write a chunk of OUT that holds the right input. */
        const bool stays = memory->in_place && !expect.from_all && expect.source == rank &&
                           gyre_verify_owns_in(program) &&
                           alias_of_in(program, expect.chunk) == chunk;
        return stays ? GYRE_SUCCESS
                     : gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                                 "rank %u, tile %u: out %u was never written", rank, tile, chunk);
    }
    const struct gyre_value *value = gyre_values_get(values, cell->value);
    if (value->chunk != expect.chunk || value->tile != tile)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "rank %u, tile %u: out %u holds in %u of tile %u, expected in %u", rank,
                         tile, chunk, value->chunk, value->tile, expect.chunk);
    if (value->n_ranks_in != (expect.from_all ? memory->n_ranks : 1))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "rank %u, tile %u: out %u holds the contributions of %u ranks, expected "
                         "%u",
                         rank, tile, chunk, value->n_ranks_in,
                         expect.from_all ? memory->n_ranks : 1);
    if (!expect.from_all && !gyre_values_has(values, cell->value, expect.source))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "rank %u, tile %u: out %u does not hold the input of rank %u", rank, tile,
                         chunk, expect.source);
    if (value->is_final != gyre_collectives[program->coll].reduces)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "rank %u, tile %u: out %u is not a finished reduction", rank, tile, chunk);
    if (program->coll == GYRE_COLL_ALL_REDUCE &&
        cell->value != memory->cells[cell_index(memory, 0, tile, chunk)].value)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "tile %u: out %u of rank %u was reduced in another order than on rank 0",
                         tile, chunk, rank);
    return GYRE_SUCCESS;
}

gyre_status gyre_verify_outputs(const struct gyre_verify_memory *memory,
                                const struct gyre_values *values,
                                struct gyre_verify_place *place_out)
{
    for (uint32_t rank = 0; rank < memory->n_ranks; rank++)
        for (uint32_t tile = 0; tile < memory->n_tiles; tile++)
            for (uint32_t chunk = 0; chunk < memory->n_outs; chunk++) {
                const gyre_status status = check_output(memory, values, rank, tile, chunk);
                if (status == GYRE_SUCCESS)
                    continue;
                *place_out = (struct gyre_verify_place){(int32_t)rank, -1, -1, (int32_t)tile,
                                                        (int32_t)chunk};
                return status;
            }
    return GYRE_SUCCESS;
}
