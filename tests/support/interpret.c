/* SPDX-License-Identifier: Apache-2.0
 *
 * The concrete interpreter (tests/support/interpret.h).
 */
#include "tests/support/interpret.h"

#include <stdlib.h>

#define PREMULTIPLY 0x9e3779b97f4a7c15ULL
#define FINISH      0xd1342543de82ef95ULL

struct value {
    uint64_t sum;
    uint64_t order;
};

enum { MAX_PIECES = 32 };

/* Numbers of the chunks, areas or blocks of a step's pieces. */
struct pieces {
    unsigned n;
    unsigned numbers[MAX_PIECES];
};

struct slot {
    struct value values[MAX_PIECES];
    struct pieces chunks;
    uint32_t tile;
    bool is_placed; /* its bytes are in the receiver's OUT */
};

struct fifo {
    uint32_t n_sent, n_received;
    struct slot slots[8];
};

struct worker {
    unsigned rank, index;
    uint32_t tile;
    uint32_t first;  /* of the run of steps, in the program */
    uint32_t n_run;  /* its length */
    uint32_t n_done; /* of it */
    uint32_t *order; /* in which its steps are taken */
};

struct machine {
    struct gyre_program *const *programs;
    const struct interpret_options *options;
    unsigned n_ranks, n_ins, n_outs, n_lanes, n_workers;
    uint64_t random;
    struct value *memory;  /* rank, tile, OUT chunks then IN chunks */
    struct value *scratch; /* rank, GYRE_MAX_RANKS areas at most */
    unsigned n_scratch;
    struct fifo *fifos;
    struct worker *workers;
};

uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15ULL;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
    return z ^ z >> 31;
}

static struct value raw_input(const struct machine *machine, unsigned rank, unsigned tile,
                              unsigned chunk)
{
    uint64_t state = machine->options->seed ^ (uint64_t)rank << 40 ^ (uint64_t)tile << 20 ^ chunk;
    struct value value;
    value.sum = next_random(&state);
    value.order = next_random(&state);
    return value;
}

/* Of OUT, by the words of gyre.h; -1 = none. */
static int alias(const struct gyre_program *p, unsigned chunk)
{
    const bool blocks_in = gyre_collectives[p->coll].in_blocks;
    const bool blocks_out = gyre_collectives[p->coll].out_blocks;
    const bool root_only = p->coll == GYRE_COLL_GATHER || p->coll == GYRE_COLL_SCATTER;
    if ((root_only && p->rank != p->root) || (p->coll == GYRE_COLL_ALL_TO_ALL && p->is_placed))
        return -1;                /* undefined for a placed all-to-all in place */
    if (blocks_in && !blocks_out) /* recv == send + rank * count */
        return chunk / p->n_chunks == p->rank ? (int)(chunk % p->n_chunks) : -1;
    if (blocks_out && !blocks_in) /* send == recv + rank * count */
        return p->rank * p->n_chunks + (int)chunk;
    return (int)chunk;
}

static struct value *cell(struct machine *machine, unsigned rank, unsigned tile, bool is_in,
                          unsigned chunk)
{
    struct value *base = &machine->memory[(rank * machine->options->n_tiles + tile) *
                                          (machine->n_ins + machine->n_outs)];
    if (!is_in)
        return &base[chunk];
    const int same = machine->options->in_place ? alias(machine->programs[rank], chunk) : -1;
    return same >= 0 ? &base[same] : &base[machine->n_outs + chunk];
}

/* The chunk's place: blocks may have other names. */
static unsigned place_of(const struct gyre_program *p, bool is_in, unsigned chunk)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[p->coll];
    if (p->names == NULL || !(is_in ? traits->in_blocks : traits->out_blocks))
        return chunk;
    return p->names[chunk / p->n_chunks] * p->n_chunks + chunk % p->n_chunks;
}

static bool gives_input(const struct gyre_program *p)
{
    return (p->coll != GYRE_COLL_BROADCAST && p->coll != GYRE_COLL_SCATTER &&
            p->coll != GYRE_COLL_SEND_RECV) ||
           p->rank == p->root;
}

static void fill(struct machine *machine)
{
    const unsigned n = machine->n_ins + machine->n_outs;
    const size_t n_cells = (size_t)machine->n_ranks * machine->options->n_tiles * n;
    for (size_t i = 0; i < n_cells; i++)
        machine->memory[i] =
            (struct value){next_random(&machine->random), next_random(&machine->random)};
    for (unsigned rank = 0; rank < machine->n_ranks; rank++)
        for (unsigned tile = 0; tile < machine->options->n_tiles; tile++)
            for (unsigned chunk = 0; chunk < machine->n_ins; chunk++)
                if (gives_input(machine->programs[rank]))
                    *cell(machine, rank, tile, true, chunk) = raw_input(machine, rank, tile, chunk);
}

static struct fifo *fifo_of(struct machine *machine, unsigned rank, struct gyre_operand operand)
{
    const struct gyre_connection *c = &machine->programs[rank]->connections[operand.index];
    const unsigned from = c->is_send ? rank : c->peer, to = c->is_send ? c->peer : rank;
    return &machine->fifos[(from * machine->n_ranks + to) * machine->n_lanes + c->lane];
}

static bool can_run(struct machine *machine, unsigned rank, const struct gyre_step *step)
{
    for (unsigned i = 0; i < step->n_ins; i++)
        if (step->ins[i].kind == GYRE_OPERAND_CONNECTION) {
            const struct fifo *fifo = fifo_of(machine, rank, step->ins[i]);
            if (fifo->n_sent == fifo->n_received)
                return false;
        }
    for (unsigned i = 0; i < step->n_outs; i++)
        if (step->outs[i].kind == GYRE_OPERAND_CONNECTION) {
            const struct fifo *fifo = fifo_of(machine, rank, step->outs[i]);
            if (fifo->n_sent - fifo->n_received == machine->options->depth)
                return false;
        }
    return true;
}

/* From `first` on; after the last of n_parts comes number 0. */
static struct pieces list_pieces(const struct gyre_step *step, unsigned first, unsigned n_parts)
{
    const unsigned run = step->stride == 0 ? 1 : step->run;
    const unsigned stride = step->stride == 0 ? 1 : step->stride;
    struct pieces pieces = {.n = step->n_chunks};
    unsigned start = 0, in_run = 0;
    for (unsigned i = 0; i < pieces.n; i++) {
        pieces.numbers[i] = pieces.n == 1 ? first : (first + start + in_run) % n_parts;
        if (++in_run == run) {
            in_run = 0;
            start += stride;
        }
    }
    return pieces;
}

/* Blocks, or else chunks, of IN or OUT, or the larger of both. */
static unsigned count_parts(const struct gyre_program *p, unsigned kind)
{
    const bool blocks_in = gyre_collectives[p->coll].in_blocks;
    const bool blocks_out = gyre_collectives[p->coll].out_blocks;
    const bool counts_in = blocks_in && kind != GYRE_OPERAND_OUT;
    const bool counts_out = blocks_out && kind != GYRE_OPERAND_IN;
    return (counts_in || counts_out ? p->n_ranks : 1U) * p->n_chunks;
}

static bool has_same_lengths(const struct gyre_program *program, const struct pieces *a,
                             const struct pieces *b)
{
    if (a->n != b->n)
        return false;
    for (unsigned i = 0; i < a->n; i++)
        if (a->numbers[i] % program->n_chunks != b->numbers[i] % program->n_chunks)
            return false;
    return true;
}

static void take_slot(struct machine *machine, const struct worker *worker,
                      const struct gyre_step *step, struct gyre_operand operand,
                      struct value *values)
{
    const struct gyre_program *program = machine->programs[worker->rank];
    const struct pieces chunks =
        list_pieces(step, step->chunk, count_parts(program, GYRE_OPERAND_SCRATCH));
    struct fifo *fifo = fifo_of(machine, worker->rank, operand);
    const struct slot *slot = &fifo->slots[fifo->n_received++ % machine->options->depth];
    const bool fits =
        slot->tile == worker->tile && has_same_lengths(program, &slot->chunks, &chunks);
    for (unsigned piece = 0; piece < step->n_chunks; piece++) {
        values[piece] = slot->values[piece];
        if (operand.is_placed != 0)
            values[piece] = *cell(machine, worker->rank, worker->tile, false,
                                  place_of(program, false, step->chunk));
        else if (slot->is_placed) /* nothing was written into it */
            values[piece].sum ^= next_random(&machine->random);
        if (!fits) /* other chunks have other lengths */
            values[piece].sum ^= next_random(&machine->random);
    }
}

static struct value *local_value(struct machine *machine, const struct worker *worker,
                                 const struct gyre_step *step, struct gyre_operand operand,
                                 unsigned piece)
{
    const struct gyre_program *program = machine->programs[worker->rank];
    const struct pieces pieces =
        list_pieces(step, operand.index, count_parts(program, operand.kind));
    if (operand.kind == GYRE_OPERAND_SCRATCH)
        return &machine->scratch[worker->rank * machine->n_scratch + pieces.numbers[piece]];
    const bool is_in = operand.kind == GYRE_OPERAND_IN;
    return cell(machine, worker->rank, worker->tile, is_in,
                place_of(program, is_in, pieces.numbers[piece]));
}

/* Into the local output. */
static struct value run_piece(struct machine *machine, const struct worker *worker,
                              const struct gyre_step *step, unsigned piece,
                              struct value (*received)[MAX_PIECES])
{
    const bool reduces = gyre_collectives[machine->programs[worker->rank]->coll].reduces;
    struct value result = {0, 0};
    for (unsigned i = 0; i < step->n_ins; i++) {
        const unsigned kind = step->ins[i].kind;
        struct value in = kind == GYRE_OPERAND_CONNECTION
                              ? received[i][piece]
                              : *local_value(machine, worker, step, step->ins[i], piece);
        if (kind == GYRE_OPERAND_IN && reduces)
            in.sum *= PREMULTIPLY;
        result.sum += in.sum;
        result.order = step->n_ins == 1 ? in.order : result.order * PREMULTIPLY + in.order;
    }
    if ((step->flags & GYRE_STEP_FINAL) != 0)
        result.sum *= FINISH;
    for (unsigned i = 0; i < step->n_outs; i++)
        if (step->outs[i].kind != GYRE_OPERAND_CONNECTION)
            *local_value(machine, worker, step, step->outs[i], piece) = result;
    return result;
}

static void send_slot(struct machine *machine, const struct worker *worker,
                      const struct gyre_step *step, struct gyre_operand out,
                      const struct value *results)
{
    const struct gyre_program *program = machine->programs[worker->rank];
    struct fifo *fifo = fifo_of(machine, worker->rank, out);
    struct slot *slot = &fifo->slots[fifo->n_sent++ % machine->options->depth];
    const unsigned peer = program->connections[out.index].peer;
    slot->chunks = list_pieces(step, step->chunk, count_parts(program, GYRE_OPERAND_SCRATCH));
    slot->tile = worker->tile;
    slot->is_placed = out.is_placed != 0;
    for (unsigned piece = 0; piece < step->n_chunks; piece++)
        slot->values[piece] = results[piece];
    if (out.is_placed != 0)
        *cell(machine, peer, worker->tile, false, place_of(program, false, step->chunk)) =
            results[0];
}

/* In a random order: a program may not rely on any. */
static void run_step(struct machine *machine, const struct worker *worker,
                     const struct gyre_step *step)
{
    struct value received[GYRE_STEP_MAX_INS][MAX_PIECES], results[MAX_PIECES];
    unsigned order[MAX_PIECES];
    for (unsigned i = 0; i < step->n_ins; i++)
        if (step->ins[i].kind == GYRE_OPERAND_CONNECTION)
            take_slot(machine, worker, step, step->ins[i], received[i]);
    for (unsigned i = 0; i < step->n_chunks; i++) {
        const unsigned j = (unsigned)(next_random(&machine->random) % (i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    for (unsigned i = 0; i < step->n_chunks; i++)
        results[order[i]] = run_piece(machine, worker, step, order[i], received);
    for (unsigned i = 0; i < step->n_outs; i++)
        if (step->outs[i].kind == GYRE_OPERAND_CONNECTION)
            send_slot(machine, worker, step, step->outs[i], results);
}

/* In a random order. */
static void begin_run(struct machine *machine, struct worker *worker, uint32_t first)
{
    const struct gyre_program *program = machine->programs[worker->rank];
    worker->first = first;
    worker->n_run = 1;
    worker->n_done = 0;
    while ((program->steps[first + worker->n_run - 1].flags & GYRE_STEP_WITH_NEXT) != 0)
        worker->n_run++;
    for (uint32_t i = 0; i < worker->n_run; i++) {
        const uint32_t j = (uint32_t)(next_random(&machine->random) % (i + 1));
        worker->order[i] = worker->order[j];
        worker->order[j] = first + i;
    }
}

/* One step, if the worker's next can run. */
static bool advance(struct machine *machine, struct worker *worker)
{
    const struct gyre_program *program = machine->programs[worker->rank];
    const struct gyre_worker *own = &program->workers[worker->index];
    if (worker->tile == machine->options->n_tiles)
        return false;
    const struct gyre_step *step = &program->steps[worker->order[worker->n_done]];
    if (!can_run(machine, worker->rank, step))
        return false;
    run_step(machine, worker, step);
    if (++worker->n_done < worker->n_run)
        return true;
    const uint32_t next = worker->first + worker->n_run;
    if (next == own->first_step + own->n_steps)
        worker->tile++;
    begin_run(machine, worker, next == own->first_step + own->n_steps ? own->first_step : next);
    return true;
}

static enum interpret_result run_all(struct machine *machine)
{
    bool moved = true;
    while (moved && machine->n_workers > 0) {
        const unsigned start = (unsigned)(next_random(&machine->random) % machine->n_workers);
        moved = false;
        for (unsigned i = 0; i < machine->n_workers && !moved; i++)
            moved = advance(machine, &machine->workers[(start + i) % machine->n_workers]);
    }
    for (unsigned i = 0; i < machine->n_workers; i++)
        if (machine->workers[i].tile != machine->options->n_tiles)
            return INTERPRET_HANGS;
    for (size_t i = 0; i < (size_t)machine->n_ranks * machine->n_ranks * machine->n_lanes; i++)
        if (machine->fifos[i].n_sent != machine->fifos[i].n_received)
            return INTERPRET_LEFTOVER;
    return INTERPRET_RIGHT;
}

/* By the collective's formula. False: the rank has no such output. */
static bool expected_sum(const struct machine *machine, const struct gyre_program *p, unsigned tile,
                         unsigned chunk, uint64_t *sum_out)
{
    const unsigned k = p->n_chunks, own = p->rank * k + chunk % k;
    uint64_t sum = 0;
    switch (p->coll) {
    case GYRE_COLL_ALL_REDUCE:
    case GYRE_COLL_REDUCE:
    case GYRE_COLL_REDUCE_SCATTER:
        for (unsigned rank = 0; rank < machine->n_ranks; rank++)
            sum += raw_input(machine, rank, tile, p->coll == GYRE_COLL_REDUCE_SCATTER ? own : chunk)
                       .sum;
        *sum_out = sum * PREMULTIPLY * FINISH;
        return p->coll != GYRE_COLL_REDUCE || p->rank == p->root;
    case GYRE_COLL_ALL_GATHER:
    case GYRE_COLL_GATHER:
        *sum_out = raw_input(machine, chunk / k, tile, chunk % k).sum;
        return p->coll == GYRE_COLL_ALL_GATHER || p->rank == p->root;
    case GYRE_COLL_ALL_TO_ALL:
        *sum_out = raw_input(machine, chunk / k, tile, own).sum;
        return true;
    case GYRE_COLL_SCATTER:
        *sum_out = raw_input(machine, p->root, tile, own).sum;
        return true;
    case GYRE_COLL_SEND_RECV:
        *sum_out = raw_input(machine, p->root, tile, chunk).sum;
        return p->rank != p->root || p->n_ranks == 1;
    default:
        *sum_out = raw_input(machine, p->root, tile, chunk).sum;
        return true;
    }
}

/* `before`: OUT of ranks that must not touch it. */
static enum interpret_result compare(struct machine *machine, const struct value *before)
{
    const unsigned n = machine->n_ins + machine->n_outs;
    for (unsigned rank = 0; rank < machine->n_ranks; rank++)
        for (unsigned tile = 0; tile < machine->options->n_tiles; tile++)
            for (unsigned chunk = 0; chunk < machine->n_outs; chunk++) {
                const struct gyre_program *p = machine->programs[rank];
                const struct value *out = cell(machine, rank, tile, false, chunk);
                uint64_t expected;
                if (!expected_sum(machine, p, tile, chunk, &expected))
                    expected = before[(rank * machine->options->n_tiles + tile) * n + chunk].sum;
                if (out->sum != expected)
                    return INTERPRET_WRONG;
                if (p->coll == GYRE_COLL_ALL_REDUCE &&
                    out->order != cell(machine, 0, tile, false, chunk)->order)
                    return INTERPRET_WRONG;
            }
    return INTERPRET_RIGHT;
}

static void open_machine(struct machine *machine)
{
    for (unsigned rank = 0; rank < machine->n_ranks; rank++) {
        const struct gyre_program *p = machine->programs[rank];
        machine->n_workers += p->n_workers;
        machine->n_scratch = p->n_scratch > machine->n_scratch ? p->n_scratch : machine->n_scratch;
    }
    machine->workers = calloc(machine->n_workers + 1, sizeof(*machine->workers));
    machine->scratch =
        calloc((size_t)machine->n_ranks * machine->n_scratch + 1, sizeof(*machine->scratch));
    machine->fifos = calloc((size_t)machine->n_ranks * machine->n_ranks * machine->n_lanes,
                            sizeof(*machine->fifos));
    unsigned at = 0;
    for (unsigned rank = 0; rank < machine->n_ranks; rank++)
        for (unsigned w = 0; w < machine->programs[rank]->n_workers; w++) {
            struct worker *worker = &machine->workers[at++];
            worker->rank = rank;
            worker->index = w;
            worker->order = calloc(machine->programs[rank]->n_steps, sizeof(*worker->order));
            begin_run(machine, worker, machine->programs[rank]->workers[w].first_step);
        }
    for (size_t i = 0; i < (size_t)machine->n_ranks * machine->n_scratch; i++)
        machine->scratch[i].sum = next_random(&machine->random);
}

enum interpret_result interpret(struct gyre_program *const *programs,
                                const struct interpret_options *options)
{
    struct machine machine = {.programs = programs, .options = options, .random = options->seed};
    machine.n_ranks = programs[0]->n_ranks;
    machine.n_lanes = programs[0]->n_lanes;
    machine.n_ins = gyre_program_n_parts(programs[0], GYRE_OPERAND_IN);
    machine.n_outs = gyre_program_n_parts(programs[0], GYRE_OPERAND_OUT);
    const size_t n_cells =
        (size_t)machine.n_ranks * options->n_tiles * (machine.n_ins + machine.n_outs);
    machine.memory = calloc(n_cells, sizeof(*machine.memory));
    struct value *before = calloc(n_cells, sizeof(*before));
    open_machine(&machine);
    fill(&machine);
    for (size_t i = 0; i < n_cells; i++)
        before[i] = machine.memory[i];
    enum interpret_result result = run_all(&machine);
    if (result == INTERPRET_RIGHT)
        result = compare(&machine, before);
    for (unsigned i = 0; i < machine.n_workers; i++)
        free(machine.workers[i].order);
    free(machine.workers);
    free(machine.scratch);
    free(machine.fifos);
    free(machine.memory);
    free(before);
    return result;
}
