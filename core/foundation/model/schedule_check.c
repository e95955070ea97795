/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/status.h"
#include "core/foundation/base/util.h"
#include "core/foundation/model/connector.h"
#include "core/foundation/model/schedule.h"

#include <stdlib.h>

#define NO_WORKER UINT16_MAX

struct resource {
    uint16_t owner;
    uint32_t run;  /* 1 + first step of the last WITH_NEXT run there */
    uint32_t step; /* 1 + the last step there */
    bool was_shared;
    bool was_written;
    bool is_in; /* by that step */
    bool is_out;
    uint16_t piece;
};

struct check {
    const struct gyre_program *program;
    struct resource *resources;
    uint32_t first_of[GYRE_N_OPERAND_KINDS];
    uint32_t n_of[GYRE_N_OPERAND_KINDS];
    uint16_t worker;
    uint32_t run;
    uint32_t step;
};

static const char *const kind_names[GYRE_N_OPERAND_KINDS] = {
#define NAME(id, name) #name,
    GYRE_OPERAND_TABLE(NAME)
#undef NAME
};

#define REFUSE(check, format, ...)                                                       \
    gyre_fail(GYRE_ERROR_INTERNAL, "program %s of rank %u: worker %u, step %u: " format, \
              (check)->program->algorithm, (check)->program->rank, (check)->worker,      \
              (check)->step - (check)->program->workers[(check)->worker].first_step, __VA_ARGS__)

static gyre_status check_head(const struct gyre_program *p)
{
    const char *wrong = NULL;
    if ((unsigned)p->coll >= GYRE_N_COLLECTIVES)
        wrong = "no such collective";
    else if (p->n_ranks < 1 || p->n_ranks > GYRE_MAX_RANKS)
        wrong = "number of ranks";
    else if (p->rank >= p->n_ranks)
        wrong = "rank";
    else if (p->root >= p->n_ranks)
        wrong = "root";
    else if (p->n_chunks < 1 || p->n_chunks > GYRE_MAX_RANKS)
        wrong = "number of chunks";
    else if (gyre_program_n_parts(p, GYRE_OPERAND_SCRATCH) > GYRE_MAX_RANKS)
        wrong = "number of chunks of all blocks";
    else if (p->n_lanes < 1 || p->n_lanes > GYRE_MAX_LANES)
        wrong = "number of lanes";
    else if (p->n_workers > GYRE_MAX_WORKERS)
        wrong = "number of workers";
    else if (p->min_depth < 1 || p->min_depth > GYRE_MAX_DEPTH)
        wrong = "minimum depth";
    else if (p->max_range < 1 || p->max_range > GYRE_MAX_RANKS)
        wrong = "longest range";
    if (wrong != NULL)
        return gyre_fail(GYRE_ERROR_INTERNAL,
                         "program %s of rank %u of %u, root %u, %u chunks, %u lanes, %u workers, "
                         "%u connections, depth %u of at most %d, range %u: %s",
                         p->algorithm, p->rank, p->n_ranks, p->root, p->n_chunks, p->n_lanes,
                         p->n_workers, p->n_connections, p->min_depth, GYRE_MAX_DEPTH, p->max_range,
                         wrong);
    return GYRE_SUCCESS;
}

static gyre_status check_names(const struct gyre_program *p)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[p->coll];
    const char *wrong = NULL;
    if (p->names == NULL)
        return GYRE_SUCCESS;
    GYRE_FREED bool *seen = calloc(p->n_ranks, sizeof(*seen));
    if (seen == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to check a program");
    if (!traits->in_blocks && !traits->out_blocks)
        wrong = "its buffers have no blocks";
    for (unsigned i = 0; i < p->n_ranks && wrong == NULL; i++) {
        if (p->names[i] >= p->n_ranks || seen[p->names[i]])
            wrong = "they are no permutation of the ranks";
        else
            seen[p->names[i]] = true;
    }
    if (wrong != NULL)
        return gyre_fail(GYRE_ERROR_INTERNAL, "program %s of rank %u, names of blocks: %s",
                         p->algorithm, p->rank, wrong);
    return GYRE_SUCCESS;
}

static gyre_status check_connections(const struct gyre_program *p)
{
    const size_t n_keys = (size_t)p->n_ranks * GYRE_MAX_LANES * 2;
    GYRE_FREED bool *seen = calloc(n_keys, sizeof(*seen));
    if (seen == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to check a program");
    for (unsigned i = 0; i < p->n_connections; i++) {
        const struct gyre_connection *c = &p->connections[i];
        const char *wrong = NULL;
        if (c->peer >= p->n_ranks)
            wrong = "no such rank";
        else if (c->peer == p->rank)
            wrong = "a rank has no connection with itself";
        else if (c->lane >= p->n_lanes)
            wrong = "no such lane";
        else if (c->is_send > 1)
            wrong = "direction";
        else if (seen[((size_t)c->peer * GYRE_MAX_LANES + c->lane) * 2 + c->is_send])
            wrong = "twice";
        else
            seen[((size_t)c->peer * GYRE_MAX_LANES + c->lane) * 2 + c->is_send] = true;
        if (wrong != NULL)
            return gyre_fail(GYRE_ERROR_INTERNAL,
                             "program %s of rank %u: connection %u %s rank %u of %u, lane %u of "
                             "%u, counted from 0: %s",
                             p->algorithm, p->rank, i, c->is_send ? "to" : "from", c->peer,
                             p->n_ranks, c->lane, p->n_lanes, wrong);
    }
    return GYRE_SUCCESS;
}

/* No hazard inside a step, or a run of steps that may run together. */
static gyre_status touch(struct check *check, unsigned kind, uint32_t index, uint32_t piece,
                         bool is_out)
{
    struct resource *resource = &check->resources[check->first_of[kind] + index];
    const char *name = kind_names[kind];
    if (kind >= GYRE_OPERAND_SCRATCH) {
        if (resource->owner == NO_WORKER)
            resource->owner = check->worker;
        else if (resource->owner != check->worker)
            return REFUSE(check, "%s %u belongs to worker %u", name, index, resource->owner);
    }
    if (resource->step != check->step + 1) {
        resource->was_shared = resource->run == check->run + 1;
        resource->was_written = resource->was_shared && resource->was_written;
        resource->is_in = resource->is_out = false;
        resource->piece = (uint16_t)piece;
    }
    if (is_out ? resource->is_out : resource->is_in)
        return REFUSE(check, "%s %s %u twice", is_out ? "output" : "input", name, index);
    if (is_out && resource->piece != piece)
        return REFUSE(check, "writes %s %u for another chunk than it reads it for", name, index);
    if (resource->was_shared &&
        (kind == GYRE_OPERAND_CONNECTION || is_out || resource->was_written))
        return REFUSE(check, "%s %u is also touched by a step that may run at the same time", name,
                      index);
    resource->run = check->run + 1;
    resource->step = check->step + 1;
    resource->was_written |= is_out;
    resource->is_in |= !is_out;
    resource->is_out |= is_out;
    return GYRE_SUCCESS;
}

static gyre_status check_operand(struct check *check, struct gyre_operand operand, bool is_out)
{
    const struct gyre_program *p = check->program;
    const char *role = is_out ? "output" : "input";
    if (operand.kind >= GYRE_N_OPERAND_KINDS)
        return REFUSE(check, "%s of unknown kind %u", role, operand.kind);
    const char *kind = kind_names[operand.kind];
    if (operand.index >= check->n_of[operand.kind])
        return REFUSE(check, "%s: there is no %s %u: there are %u, counted from 0", role, kind,
                      operand.index, check->n_of[operand.kind]);
    const bool is_connection = operand.kind == GYRE_OPERAND_CONNECTION;
    if (operand.is_placed > 1 || (operand.is_placed != 0 && !is_connection))
        return REFUSE(check, "%s %s %u is placed", role, kind, operand.index);
    if (is_out && operand.kind == GYRE_OPERAND_IN)
        return REFUSE(check, "writes in %u", operand.index);
    if (is_connection && (p->connections[operand.index].is_send != 0) != is_out)
        return REFUSE(check, "connection %u used as %s", operand.index, role);
    const struct gyre_step *step = &p->steps[check->step];
    if (operand.kind <= GYRE_OPERAND_OUT && p->n_chunks > 1 &&
        operand.index % p->n_chunks != step->chunk % p->n_chunks)
        return REFUSE(check, "%s %u in a step that moves chunk %u", kind, operand.index,
                      step->chunk);
    if (is_connection)
        return touch(check, operand.kind, operand.index, 0, is_out);
    const uint32_t n_parts = gyre_program_n_parts(p, (enum gyre_operand_kind)operand.kind);
    if (step->n_chunks > 1 && (gyre_step_distance(step, step->n_chunks - 1U) >= n_parts ||
                               operand.index >= n_parts || n_parts > check->n_of[operand.kind]))
        return REFUSE(check, "a range of %u pieces from %s %u on, of %u", step->n_chunks, kind,
                      operand.index, check->n_of[operand.kind]);
    for (uint32_t i = 0; i < step->n_chunks; i++)
        GYRE_TRY(
            touch(check, operand.kind, gyre_step_part(step, operand.index, i, n_parts), i, is_out));
    return GYRE_SUCCESS;
}

/* Placed data lie in OUT at the step's chunk. A reduction would need them elsewhere, so they are
 * the only input. The step must not write the chunk again. */
static gyre_status check_placed(struct check *check, const struct gyre_step *step)
{
    bool has_placed = false;
    for (unsigned i = 0; i < step->n_outs; i++)
        has_placed = has_placed || step->outs[i].is_placed != 0;
    for (unsigned i = 0; i < step->n_ins; i++) {
        if (step->ins[i].is_placed == 0)
            continue;
        if (step->n_ins > 1)
            return REFUSE(check, "%s", "reduces what is placed");
        has_placed = true;
        for (unsigned k = 0; k < step->n_outs; k++)
            if (step->outs[k].kind == GYRE_OPERAND_OUT)
                return REFUSE(check, "writes out %u, where its input is placed",
                              step->outs[k].index);
    }
    if (has_placed && step->chunk >= check->n_of[GYRE_OPERAND_OUT])
        return REFUSE(check, "places chunk %u of %u", step->chunk, check->n_of[GYRE_OPERAND_OUT]);
    if (has_placed && step->n_chunks > 1)
        return REFUSE(check, "places a range of %u chunks", step->n_chunks);
    if (has_placed && check->program->is_placed != 1)
        return REFUSE(check, "%s", "is placed, the program says that nothing is");
    return GYRE_SUCCESS;
}

static gyre_status check_step(struct check *check)
{
    const struct gyre_program *p = check->program;
    const struct gyre_step *step = &p->steps[check->step];
    if (step->n_ins < 1 || step->n_ins > GYRE_STEP_MAX_INS || step->n_outs > GYRE_STEP_MAX_OUTS)
        return REFUSE(check, "%u inputs (1..%d), %u outputs (0..%d)", step->n_ins,
                      GYRE_STEP_MAX_INS, step->n_outs, GYRE_STEP_MAX_OUTS);
    if (step->n_outs == 0 && step->ins[0].is_placed == 0)
        return REFUSE(check, "%s", "no output, and nothing placed to wait for");
    const uint32_t n_in_parts = check->n_of[GYRE_OPERAND_IN];
    const uint32_t n_out_parts = check->n_of[GYRE_OPERAND_OUT];
    const uint32_t n_chunks = n_in_parts > n_out_parts ? n_in_parts : n_out_parts;
    if (step->chunk >= n_chunks)
        return REFUSE(check, "there is no chunk %u: there are %u, counted from 0", step->chunk,
                      n_chunks);
    if (step->n_chunks < 1 || step->n_chunks > check->program->max_range)
        return REFUSE(check, "moves %u chunks (1..%u)", step->n_chunks, check->program->max_range);
    if (step->stride == 0
            ? step->run != 0
            : step->run == 0 || step->run >= step->stride || step->n_chunks <= step->run)
        return REFUSE(check, "%u chunks in runs of %u, %u apart", step->n_chunks, step->run,
                      step->stride);
    if (gyre_step_distance(step, step->n_chunks - 1U) >= n_chunks)
        return REFUSE(check, "moves %u chunks of %u", step->n_chunks, n_chunks);
    if ((step->flags & ~(GYRE_STEP_WITH_NEXT | GYRE_STEP_FINAL)) != 0)
        return REFUSE(check, "unknown flags 0x%x", step->flags);
    if ((step->flags & GYRE_STEP_FINAL) != 0 && !gyre_collectives[p->coll].reduces)
        return REFUSE(check, "final in %s, which does not reduce", gyre_collectives[p->coll].name);
    const struct gyre_worker *worker = &p->workers[check->worker];
    if ((step->flags & GYRE_STEP_WITH_NEXT) != 0 &&
        check->step + 1 == worker->first_step + worker->n_steps)
        return REFUSE(check, "%s", "with next, but it is the worker's last");

    int n_local_ins = 0, n_local_outs = 0;
    for (unsigned i = 0; i < step->n_ins; i++) {
        GYRE_TRY(check_operand(check, step->ins[i], false));
        n_local_ins += step->ins[i].kind != GYRE_OPERAND_CONNECTION;
    }
    for (unsigned i = 0; i < step->n_outs; i++) {
        GYRE_TRY(check_operand(check, step->outs[i], true));
        n_local_outs += step->outs[i].kind != GYRE_OPERAND_CONNECTION;
    }
    GYRE_TRY(check_placed(check, step));
    if (n_local_ins > GYRE_STEP_MAX_LOCAL_INS || step->n_ins - n_local_ins > GYRE_STEP_MAX_RECVS)
        return REFUSE(check, "%d local inputs (0..%d), %d received (0..%d)", n_local_ins,
                      GYRE_STEP_MAX_LOCAL_INS, step->n_ins - n_local_ins, GYRE_STEP_MAX_RECVS);
    if (n_local_outs > 1 || step->n_outs - n_local_outs > GYRE_STEP_MAX_SENDS)
        return REFUSE(check, "%d local outputs (0..1), %d sent (0..%d)", n_local_outs,
                      step->n_outs - n_local_outs, GYRE_STEP_MAX_SENDS);
    return GYRE_SUCCESS;
}

static gyre_status check_steps(struct check *check)
{
    const struct gyre_program *p = check->program;
    for (unsigned w = 0; w < p->n_workers; w++) {
        check->worker = (uint16_t)w;
        const struct gyre_worker *worker = &p->workers[w];
        for (uint32_t i = 0; i < worker->n_steps; i++) {
            check->step = worker->first_step + i;
            if (i == 0 || (p->steps[check->step - 1].flags & GYRE_STEP_WITH_NEXT) == 0)
                check->run = check->step;
            GYRE_TRY(check_step(check));
        }
    }
    /* One area a chunk: some may be unused. */
    const bool has_areas = p->n_scratch == gyre_program_n_parts(p, GYRE_OPERAND_SCRATCH);
    for (unsigned kind = has_areas ? GYRE_OPERAND_CONNECTION : GYRE_OPERAND_SCRATCH;
         kind <= GYRE_OPERAND_CONNECTION; kind++)
        for (unsigned i = 0; i < check->n_of[kind]; i++)
            if (check->resources[check->first_of[kind] + i].owner == NO_WORKER)
                return gyre_fail(GYRE_ERROR_INTERNAL, "program %s of rank %u: no step uses %s %u",
                                 p->algorithm, p->rank, kind_names[kind], i);
    return GYRE_SUCCESS;
}

gyre_status gyre_program_check(const struct gyre_program *program)
{
    GYRE_TRY(check_head(program));
    GYRE_TRY(check_names(program));
    uint64_t next = 0;
    for (unsigned w = 0; w < program->n_workers; w++) {
        if (program->workers[w].first_step != next || program->workers[w].n_steps == 0)
            return gyre_fail(GYRE_ERROR_INTERNAL,
                             "program %s of rank %u: worker %u has %u steps from %u, expected at "
                             "least one from %u",
                             program->algorithm, program->rank, w, program->workers[w].n_steps,
                             program->workers[w].first_step, (unsigned)next);
        next += program->workers[w].n_steps;
    }
    if (next != program->n_steps)
        return gyre_fail(GYRE_ERROR_INTERNAL, "program %s of rank %u: workers hold %u steps of %u",
                         program->algorithm, program->rank, (unsigned)next, program->n_steps);
    GYRE_TRY(check_connections(program));
    struct check check = {.program = program};
    check.n_of[GYRE_OPERAND_IN] = gyre_program_n_parts(program, GYRE_OPERAND_IN);
    check.n_of[GYRE_OPERAND_OUT] = gyre_program_n_parts(program, GYRE_OPERAND_OUT);
    check.n_of[GYRE_OPERAND_SCRATCH] = program->n_scratch;
    check.n_of[GYRE_OPERAND_CONNECTION] = program->n_connections;
    uint32_t n_resources = 0;
    for (int kind = 0; kind < GYRE_N_OPERAND_KINDS; kind++) {
        check.first_of[kind] = n_resources;
        n_resources += check.n_of[kind];
    }
    GYRE_FREED struct resource *resources = calloc(n_resources, sizeof(*resources));
    if (resources == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to check a program");
    for (uint32_t i = 0; i < n_resources; i++)
        resources[i].owner = NO_WORKER;
    check.resources = resources;
    return check_steps(&check);
}
