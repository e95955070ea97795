/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that the programs of all ranks belong together, and finds the two ends of each FIFO
 * (algorithms/verify/network.h).
 */
#include "algorithms/verify/network.h"

#include "core/foundation/base/status.h"

#include <stdlib.h>

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
    }
    return GYRE_SUCCESS;
}

/* Find the worker that uses each connection of one rank. The structural check has made sure that
 * only one worker does. */
static void find_users(const struct gyre_network *network, uint32_t rank, uint32_t *user_of)
{
    const struct gyre_program *program = network->programs[rank];
    for (uint32_t w = 0; w < program->n_workers; w++) {
        const struct gyre_worker *worker = &program->workers[w];
        for (uint32_t s = 0; s < worker->n_steps; s++) {
            const struct gyre_step *step = &program->steps[worker->first_step + s];
            for (uint32_t i = 0; i < step->n_ins; i++)
                if (step->ins[i].kind == GYRE_OPERAND_CONNECTION)
                    user_of[step->ins[i].index] = network->first_worker[rank] + w;
            for (uint32_t i = 0; i < step->n_outs; i++)
                if (step->outs[i].kind == GYRE_OPERAND_CONNECTION)
                    user_of[step->outs[i].index] = network->first_worker[rank] + w;
        }
    }
}

/* Number the sending ends of one rank, then (second pass) find each receiving end's FIFO. */
static gyre_status connect_rank(struct gyre_network *network, uint32_t rank, bool is_send,
                                uint32_t *number_of, uint32_t *user_of)
{
    const struct gyre_program *program = network->programs[rank];
    find_users(network, rank, user_of);
    for (uint32_t i = 0; i < program->n_connections; i++) {
        const struct gyre_connection *c = &program->connections[i];
        if ((c->is_send != 0) != is_send)
            continue;
        const uint32_t from = is_send ? rank : c->peer, to = is_send ? c->peer : rank;
        uint32_t *number =
            &number_of[((size_t)from * network->n_ranks + to) * program->n_lanes + c->lane];
        if (is_send) {
            struct gyre_network_fifo *fifo = &network->fifos[network->n_fifos++];
            fifo->from = (uint16_t)from;
            fifo->to = (uint16_t)to;
            fifo->lane = c->lane;
            fifo->sender = user_of[i];
            fifo->receiver = NO_WORKER;
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

static gyre_status connect_all(struct gyre_network *network)
{
    const size_t n_keys =
        (size_t)network->n_ranks * network->n_ranks * network->programs[0]->n_lanes;
    const size_t n_most = 2 * (size_t)GYRE_MAX_RANKS * GYRE_MAX_LANES; /* checked per program */
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

gyre_status gyre_network_open(const struct gyre_program *const *programs, int n_ranks,
                              struct gyre_network **network_out)
{
    GYRE_TRY(check_agreement(programs, n_ranks));
    struct gyre_network *network = calloc(1, sizeof(*network));
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
        gyre_network_close(network);
        return status;
    }
    *network_out = network;
    return GYRE_SUCCESS;
}

void gyre_network_close(struct gyre_network *network)
{
    if (network == NULL)
        return;
    free(network->fifos);
    free(network->first_worker);
    free(network->first_connection);
    free(network->fifo_of);
    free(network);
}
