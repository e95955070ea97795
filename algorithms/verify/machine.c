/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/verify/machine.h"

#include "core/foundation/base/status.h"
#include "core/foundation/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_WORKER UINT32_MAX

static gyre_status check_agreement(const struct gyre_program *const *programs, int n_ranks)
{
    if (n_ranks < 1 || n_ranks > GYRE_MAX_RANKS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%d programs (1..%d)", n_ranks,
                         GYRE_MAX_RANKS);
    const struct gyre_program *first = programs[0];
    for (int rank = 0; rank < n_ranks; rank++) {
        const struct gyre_program *p = programs[rank];
        if (gyre_program_check(p) != GYRE_SUCCESS)
            return gyre_fail_context(GYRE_ERROR_INVALID_ARGUMENT, "rank %d", rank);
        if (p->rank != rank || p->n_ranks != n_ranks)
            return gyre_fail(
                GYRE_ERROR_INVALID_ARGUMENT,
                "program %d of %d is of rank %u of %u ranks: each rank has one program, in "
                "the order of the ranks",
                rank, n_ranks, p->rank, p->n_ranks);
        if (p->coll != first->coll || p->root != first->root)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "rank %d runs %s with root %u, rank 0 runs %s with root %u", rank,
                             gyre_collectives[p->coll].name, p->root,
                             gyre_collectives[first->coll].name, first->root);
        if (p->n_chunks != first->n_chunks || p->n_lanes != first->n_lanes ||
            p->min_depth != first->min_depth || p->max_range != first->max_range)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "rank %d has %u chunks, %u lanes, depth %u, ranges up to %u, rank 0 "
                             "has %u, %u, %u, %u",
                             rank, p->n_chunks, p->n_lanes, p->min_depth, p->max_range,
                             first->n_chunks, first->n_lanes, first->min_depth, first->max_range);
        if ((p->names == NULL) != (first->names == NULL) ||
            (p->names != NULL &&
             memcmp(p->names, first->names, (size_t)n_ranks * sizeof(*p->names)) != 0))
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "rank %d and rank 0 count the blocks in different orders", rank);
    }
    return GYRE_SUCCESS;
}

static gyre_status connect_rank(struct gyre_verify_network *network, uint32_t rank, bool is_send,
                                uint32_t *number_of, uint32_t *user_of)
{
    const struct gyre_program *program = network->programs[rank];
    /* gyre_program_check() has made sure that a connection has one worker only. */
    for (uint32_t w = 0; w < program->n_workers; w++)
        for (uint32_t s = 0; s < program->workers[w].n_steps; s++) {
            const struct gyre_step *step = &program->steps[program->workers[w].first_step + s];
            for (uint32_t i = 0; i < step->n_ins; i++)
                if (step->ins[i].kind == GYRE_OPERAND_CONNECTION)
                    user_of[step->ins[i].index] = network->first_worker[rank] + w;
            for (uint32_t i = 0; i < step->n_outs; i++)
                if (step->outs[i].kind == GYRE_OPERAND_CONNECTION)
                    user_of[step->outs[i].index] = network->first_worker[rank] + w;
        }
    for (uint32_t i = 0; i < program->n_connections; i++) {
        const struct gyre_connection *c = &program->connections[i];
        if ((c->is_send != 0) != is_send)
            continue;
        const uint32_t from = is_send ? rank : c->peer, to = is_send ? c->peer : rank;
        uint32_t *number =
            &number_of[((size_t)from * network->n_ranks + to) * program->n_lanes + c->lane];
        if (is_send) {
            network->fifos[network->n_fifos++] = (struct gyre_network_fifo){.from = (uint16_t)from,
                                                                            .to = (uint16_t)to,
                                                                            .lane = c->lane,
                                                                            .sender = user_of[i],
                                                                            .receiver = NO_WORKER};
            *number = network->n_fifos;
        } else if (*number == 0) {
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "rank %u receives from rank %u on lane %u, which never sends there",
                             to, from, c->lane);
        } else {
            network->fifos[*number - 1].receiver = user_of[i];
        }
        network->fifo_of[network->first_connection[rank] + i] = *number - 1;
    }
    return GYRE_SUCCESS;
}

static gyre_status connect_all(struct gyre_verify_network *network)
{
    const size_t n_keys =
        (size_t)network->n_ranks * network->n_ranks * network->programs[0]->n_lanes;
    const size_t n_most = 2 * (size_t)GYRE_MAX_RANKS * GYRE_MAX_LANES;
    uint32_t *number_of = calloc(n_keys, sizeof(*number_of));
    uint32_t *user_of = calloc(n_most, sizeof(*user_of));
    gyre_status status = GYRE_SUCCESS;
    if (number_of == NULL || user_of == NULL)
        status =
            gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to verify %u ranks", network->n_ranks);
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t rank = 0; rank < network->n_ranks && status == GYRE_SUCCESS; rank++)
            status = connect_rank(network, rank, pass == 0, number_of, user_of);
    free(number_of);
    free(user_of);
    for (uint32_t i = 0; i < network->n_fifos && status == GYRE_SUCCESS; i++)
        if (network->fifos[i].receiver == NO_WORKER)
            status =
                gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                          "rank %u sends to rank %u on lane %u, which never receives there",
                          network->fifos[i].from, network->fifos[i].to, network->fifos[i].lane);
    return status;
}

gyre_status gyre_verify_network_open(const struct gyre_program *const *programs, int n_ranks,
                                     struct gyre_verify_network **network_out)
{
    GYRE_TRY(check_agreement(programs, n_ranks));
    struct gyre_verify_network *network = calloc(1, sizeof(*network));
    if (network == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to verify %d ranks", n_ranks);
    network->programs = programs;
    network->n_ranks = (uint32_t)n_ranks;
    network->first_worker = calloc(network->n_ranks + 1, sizeof(uint32_t));
    network->first_connection = calloc(network->n_ranks + 1, sizeof(uint32_t));
    gyre_status status = GYRE_ERROR_OUT_OF_MEMORY;
    if (network->first_worker != NULL && network->first_connection != NULL) {
        for (int rank = 0; rank < n_ranks; rank++) {
            network->first_worker[rank + 1] =
                network->first_worker[rank] + programs[rank]->n_workers;
            network->first_connection[rank + 1] =
                network->first_connection[rank] + programs[rank]->n_connections;
        }
        network->n_workers = network->first_worker[n_ranks];
        const size_t n_connections = network->first_connection[n_ranks];
        network->fifo_of = calloc(n_connections + 1, sizeof(*network->fifo_of));
        network->fifos = calloc(n_connections + 1, sizeof(*network->fifos));
        if (network->fifo_of != NULL && network->fifos != NULL)
            status = connect_all(network);
        else
            gyre_fail(status, "no memory to verify %d ranks", n_ranks);
    }
    if (status != GYRE_SUCCESS) {
        gyre_verify_network_close(network);
        return status;
    }
    *network_out = network;
    return GYRE_SUCCESS;
}

void gyre_verify_network_close(struct gyre_verify_network *network)
{
    if (network == NULL)
        return;
    free(network->fifos);
    free(network->first_worker);
    free(network->first_connection);
    free(network->fifo_of);
    free(network);
}

#define MOST_HOPS 4 /* of a deadlock's message */

struct worker {
    const struct gyre_program *program;
    const uint32_t *fifo_of;
    uint32_t rank;
    uint32_t index;
    uint32_t first;
    uint32_t end;
    uint32_t tile;
    uint32_t step; /* first operand that is not available */
    uint32_t operand;
    uint32_t fifo;
    bool is_queued;
    bool is_done;
};

struct traffic {
    uint32_t n_sent;
    uint32_t n_received;
};

struct machine {
    const struct gyre_verify_network *network;
    const struct gyre_machine_options *options;
    struct worker *workers;
    struct traffic *traffic;
    uint32_t *queue; /* a stack of workers that may go on */
    uint32_t n_queued;
    uint64_t n_steps;
};

static void begin_steps(struct worker *worker, uint32_t first)
{
    worker->first = worker->step = first;
    worker->operand = 0;
    worker->end = first + 1;
    while ((worker->program->steps[worker->end - 1].flags & GYRE_STEP_WITH_NEXT) != 0)
        worker->end++;
}

static void wake(struct machine *machine, uint32_t number)
{
    struct worker *worker = &machine->workers[number];
    if (worker->is_queued || worker->is_done)
        return;
    worker->is_queued = true;
    machine->queue[machine->n_queued++] = number;
}

/* An available slot stays so, so the search continues where it stopped. */
static bool is_ready(const struct machine *machine, struct worker *worker)
{
    for (; worker->step < worker->end; worker->step++, worker->operand = 0) {
        const struct gyre_step *step = &worker->program->steps[worker->step];
        for (; worker->operand < (uint32_t)step->n_ins + step->n_outs; worker->operand++) {
            const bool is_in = worker->operand < step->n_ins;
            const struct gyre_operand operand =
                is_in ? step->ins[worker->operand] : step->outs[worker->operand - step->n_ins];
            if (operand.kind != GYRE_OPERAND_CONNECTION)
                continue;
            worker->fifo = worker->fifo_of[operand.index];
            const struct traffic *traffic = &machine->traffic[worker->fifo];
            const uint32_t n_filled = traffic->n_sent - traffic->n_received;
            if (is_in ? n_filled == 0 : n_filled == machine->options->depth)
                return false;
        }
    }
    return true;
}

static gyre_status run_worker(struct machine *machine, struct worker *worker)
{
    const struct gyre_worker *steps = &worker->program->workers[worker->index];
    const struct gyre_network_fifo *fifos = machine->network->fifos;
    while (!worker->is_done && is_ready(machine, worker)) {
        const struct gyre_firing firing = {worker->rank, worker->index, worker->first,
                                           worker->end - worker->first, worker->tile};
        if (machine->options->fire != NULL)
            GYRE_TRY(machine->options->fire(machine->options->context, &firing));
        machine->n_steps += firing.n_steps;
        for (uint32_t s = worker->first; s < worker->end; s++) {
            const struct gyre_step *step = &worker->program->steps[s];
            for (uint32_t i = 0; i < step->n_ins; i++)
                if (step->ins[i].kind == GYRE_OPERAND_CONNECTION) {
                    const uint32_t fifo = worker->fifo_of[step->ins[i].index];
                    machine->traffic[fifo].n_received++;
                    if (machine->workers[fifos[fifo].sender].fifo == fifo)
                        wake(machine, fifos[fifo].sender);
                }
            for (uint32_t i = 0; i < step->n_outs; i++)
                if (step->outs[i].kind == GYRE_OPERAND_CONNECTION) {
                    const uint32_t fifo = worker->fifo_of[step->outs[i].index];
                    machine->traffic[fifo].n_sent++;
                    if (machine->workers[fifos[fifo].receiver].fifo == fifo)
                        wake(machine, fifos[fifo].receiver);
                }
        }
        if (worker->end < steps->first_step + steps->n_steps) {
            begin_steps(worker, worker->end);
            continue;
        }
        begin_steps(worker, steps->first_step);
        worker->tile++;
        worker->is_done = worker->tile == machine->options->n_tiles;
    }
    return GYRE_SUCCESS;
}

static uint32_t waits_for(const struct machine *machine, uint32_t number)
{
    const struct gyre_network_fifo *fifo = &machine->network->fifos[machine->workers[number].fifo];
    return fifo->sender == number ? fifo->receiver : fifo->sender;
}

/* Waits end at a worker that is done, or in a cycle. */
static gyre_status report_deadlock(const struct machine *machine, uint32_t number,
                                   struct gyre_machine_result *result)
{
    char text[640] = "";
    uint32_t n = 0, n_followed = 0, in_cycle = number;
    while (n_followed < machine->network->n_workers && !machine->workers[in_cycle].is_done) {
        in_cycle = waits_for(machine, in_cycle);
        n_followed++;
    }
    const bool is_cycle = !machine->workers[in_cycle].is_done;
    if (is_cycle) {
        number = in_cycle;
        for (uint32_t w = waits_for(machine, in_cycle); w != in_cycle; w = waits_for(machine, w))
            number = w < number ? w : number;
    }
    const uint32_t first = number;
    do {
        const struct worker *worker = &machine->workers[number];
        const struct gyre_network_fifo *fifo = &machine->network->fifos[worker->fifo];
        const bool is_sender = fifo->sender == number;
        const uint32_t step = worker->step - worker->program->workers[worker->index].first_step;
        if (n < GYRE_MACHINE_TOLD)
            result->waits[n] = (struct gyre_verify_place){.rank = (int32_t)worker->rank,
                                                          .worker = (int32_t)worker->index,
                                                          .step = (int32_t)step,
                                                          .tile = (int32_t)worker->tile,
                                                          .chunk = -1};
        if (n++ < MOST_HOPS)
            gyre_text_append(
                text, sizeof(text),
                "%srank %u, worker %u, step %u, tile %u waits for a %s rank %u, lane %u",
                n == 1 ? "" : "; ", worker->rank, worker->index, step, worker->tile,
                is_sender ? "free slot to" : "slot from", is_sender ? fifo->to : fifo->from,
                fifo->lane);
        number = waits_for(machine, number);
    } while (number != first && !machine->workers[number].is_done);
    result->n_waits = n;
    result->place = result->waits[0];
    if (n > MOST_HOPS)
        gyre_text_append(text, sizeof(text), "; ... (%u more)", n - MOST_HOPS);
    gyre_text_append(text, sizeof(text), "%s",
                     is_cycle ? "; so they wait for each other" : ", which is done");
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "deadlock at depth %u: %s",
                     machine->options->depth, text);
}

static gyre_status check_end(const struct machine *machine, struct gyre_machine_result *result)
{
    for (uint32_t w = 0; w < machine->network->n_workers; w++)
        if (!machine->workers[w].is_done) {
            result->is_deadlock = true;
            return report_deadlock(machine, w, result);
        }
    for (uint32_t i = 0; i < machine->network->n_fifos; i++) {
        const struct gyre_network_fifo *fifo = &machine->network->fifos[i];
        const struct traffic *traffic = &machine->traffic[i];
        if (traffic->n_sent != traffic->n_received) {
            result->place.rank = fifo->from;
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "%u of %u slots from rank %u to rank %u, lane %u are left in the FIFO",
                             traffic->n_sent - traffic->n_received, traffic->n_sent, fifo->from,
                             fifo->to, fifo->lane);
        }
    }
    return GYRE_SUCCESS;
}

gyre_status gyre_machine_run(const struct gyre_verify_network *network,
                             const struct gyre_machine_options *options,
                             struct gyre_machine_result *result_out)
{
    struct machine machine = {.network = network, .options = options};
    *result_out = (struct gyre_machine_result){.place = gyre_verify_nowhere};
    machine.workers = calloc(network->n_workers + 1, sizeof(*machine.workers));
    machine.queue = calloc(network->n_workers + 1, sizeof(*machine.queue));
    machine.traffic = calloc(network->n_fifos + 1, sizeof(*machine.traffic));
    gyre_status status = GYRE_SUCCESS;
    if (machine.workers == NULL || machine.queue == NULL || machine.traffic == NULL) {
        status =
            gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to run %u workers", network->n_workers);
    } else {
        for (uint32_t rank = 0; rank < network->n_ranks; rank++)
            for (uint32_t w = 0; w < network->programs[rank]->n_workers; w++) {
                const uint32_t number = network->first_worker[rank] + w;
                struct worker *worker = &machine.workers[number];
                worker->program = network->programs[rank];
                worker->fifo_of = &network->fifo_of[network->first_connection[rank]];
                worker->rank = rank;
                worker->index = w;
                begin_steps(worker, worker->program->workers[w].first_step);
                wake(&machine, number);
            }
        while (machine.n_queued > 0 && status == GYRE_SUCCESS) {
            struct worker *worker = &machine.workers[machine.queue[--machine.n_queued]];
            worker->is_queued = false;
            status = run_worker(&machine, worker);
        }
        if (status == GYRE_SUCCESS)
            status = check_end(&machine, result_out);
        result_out->n_steps = machine.n_steps;
    }
    free(machine.workers);
    free(machine.queue);
    free(machine.traffic);
    return status;
}
