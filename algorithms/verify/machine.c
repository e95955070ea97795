/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds a worker that can go on, and describes the deadlock if no worker can
 * (algorithms/verify/machine.h).
 */
#include "algorithms/verify/machine.h"

#include "core/foundation/base/status.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST_HOPS 6 /* of a deadlock that are told */

struct worker {
    const struct gyre_program *program;
    const uint32_t *fifo_of; /* of the program's connections */
    uint32_t rank;
    uint32_t index; /* of the rank */
    uint32_t first; /* step of the program that is next */
    uint32_t end;   /* one past the last step that is carried out with it */
    uint32_t tile;
    uint32_t step;    /* where the wait stands: everything before is there */
    uint32_t operand; /* inputs, then outputs */
    uint32_t fifo;    /* that it waits for */
    bool is_queued;
    bool is_done;
};

struct traffic {
    uint32_t n_sent;
    uint32_t n_received;
};

struct machine {
    const struct gyre_network *network;
    const struct gyre_machine_options *options;
    struct worker *workers;
    struct traffic *traffic; /* by FIFO */
    uint32_t *queue;         /* a stack of workers that may go on */
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

/* Is every slot available that the steps need? A slot that is available stays available, so the
 * search continues where it stopped the last time. */
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

/* Move the slots and wake the workers that wait at the other ends. */
static void move_slots(struct machine *machine, const struct worker *worker)
{
    const struct gyre_network_fifo *fifos = machine->network->fifos;
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
}

/* Carry out all that one worker can do now. */
static gyre_status run_worker(struct machine *machine, struct worker *worker)
{
    const struct gyre_worker *steps = &worker->program->workers[worker->index];
    while (!worker->is_done && is_ready(machine, worker)) {
        const struct gyre_firing firing = {worker->rank, worker->index, worker->first,
                                           worker->end - worker->first, worker->tile};
        if (machine->options->fire != NULL)
            GYRE_TRY(machine->options->fire(machine->options->context, &firing));
        machine->n_steps += firing.n_steps;
        move_slots(machine, worker);
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

/* The step at which the worker waits, counted within the worker. */
static uint32_t step_of_worker(const struct worker *worker)
{
    return worker->step - worker->program->workers[worker->index].first_step;
}

/* Report the chain of waits that begins at the first worker that is not done. */
static gyre_status report_deadlock(const struct machine *machine, uint32_t number)
{
    char text[768];
    size_t at = 0;
    for (int hop = 0; hop < MOST_HOPS && at < sizeof(text); hop++) {
        const struct worker *worker = &machine->workers[number];
        const struct gyre_network_fifo *fifo = &machine->network->fifos[worker->fifo];
        const bool is_sender = fifo->sender == number;
        const int n =
            snprintf(&text[at], sizeof(text) - at,
                     "%srank %u, worker %u, step %u, tile %u waits for a %s rank %u, lane %u",
                     hop == 0 ? "" : "; ", worker->rank, worker->index, step_of_worker(worker),
                     worker->tile, is_sender ? "free slot to" : "slot from",
                     is_sender ? fifo->to : fifo->from, fifo->lane);
        at += n > 0 ? (size_t)n : 0;
        number = is_sender ? fifo->receiver : fifo->sender;
        if (machine->workers[number].is_done) {
            if (at < sizeof(text))
                snprintf(&text[at], sizeof(text) - at, ", which is done");
            break;
        }
    }
    return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "deadlock at depth %u: %s",
                     machine->options->depth, text);
}

static gyre_status check_end(const struct machine *machine, struct gyre_machine_result *result)
{
    for (uint32_t w = 0; w < machine->network->n_workers; w++)
        if (!machine->workers[w].is_done) {
            const struct worker *worker = &machine->workers[w];
            result->is_deadlock = true;
            result->place = (struct gyre_verify_place){.rank = (int32_t)worker->rank,
                                                       .worker = (int32_t)worker->index,
                                                       .step = (int32_t)step_of_worker(worker),
                                                       .tile = (int32_t)worker->tile,
                                                       .chunk = -1};
            return report_deadlock(machine, w);
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

static void open_workers(struct machine *machine)
{
    const struct gyre_network *network = machine->network;
    for (uint32_t rank = 0; rank < network->n_ranks; rank++)
        for (uint32_t w = 0; w < network->programs[rank]->n_workers; w++) {
            const uint32_t number = network->first_worker[rank] + w;
            struct worker *worker = &machine->workers[number];
            worker->program = network->programs[rank];
            worker->fifo_of = &network->fifo_of[network->first_connection[rank]];
            worker->rank = rank;
            worker->index = w;
            begin_steps(worker, worker->program->workers[w].first_step);
            wake(machine, number);
        }
}

gyre_status gyre_machine_run(const struct gyre_network *network,
                             const struct gyre_machine_options *options,
                             struct gyre_machine_result *result_out)
{
    struct machine machine = {.network = network, .options = options};
    result_out->is_deadlock = false;
    result_out->place = gyre_verify_nowhere;
    result_out->n_steps = 0;
    machine.workers = calloc(network->n_workers + 1, sizeof(*machine.workers));
    machine.queue = calloc(network->n_workers + 1, sizeof(*machine.queue));
    machine.traffic = calloc(network->n_fifos + 1, sizeof(*machine.traffic));
    gyre_status status = GYRE_SUCCESS;
    if (machine.workers == NULL || machine.queue == NULL || machine.traffic == NULL) {
        status =
            gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory to run %u workers", network->n_workers);
    } else {
        open_workers(&machine);
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
