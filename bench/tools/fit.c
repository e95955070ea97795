/* SPDX-License-Identifier: Apache-2.0
 *
 * Gauss-Newton with damping (Levenberg 1944, Marquardt 1963) over the constants' logarithms,
 * derivatives by differences of simulations. Outliers, by a scheduler tick or a neighbour, get less
 * weight (Huber).
 */
#include "bench/tools/fit.h"

#include "core/foundation/base/util.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CONSTANTS  20
#define MAX_ITERATIONS 40
#define MAX_MODELS     128
#define STEP           0.01 /* of a logarithm, for derivatives */
#define FAR            0.3  /* worse rows get less weight */
#define PRIOR          1e-3 /* weight of staying near the start, a row has 1 */
#define MOST           7.0  /* of a logarithm: a factor of 1100 */
#define ENOUGH         1e-6 /* relative gain that ends the fit */

struct constant {
    size_t offsets[GYRE_N_LINKS];
    int n_offsets;
};

struct model {
    enum gyre_collective coll;
    const struct gyre_algorithm *algorithm;
    uint32_t n_ranks;
    struct gyre_simulator *simulator;
};

struct fit {
    const struct gyre_tuner_facts *facts;
    struct bench_fit_row *rows;
    size_t n_rows;
    struct model models[MAX_MODELS];
    int n_models;
    struct constant constants[MAX_CONSTANTS];
    int n_constants;
    struct gyre_cost start;
    double matrix[MAX_CONSTANTS][MAX_CONSTANTS + 1]; /* normal equations and right side */
    double *slopes;
    double *errors; /* by row: log(predicted / measured), then those of a trial */
};

static double *field_of(struct gyre_cost *cost, size_t offset)
{
    return (double *)(void *)((char *)cost + offset);
}

static void add_constant(struct fit *fit, size_t offset, size_t tied_offset)
{
    struct constant *constant = &fit->constants[fit->n_constants++];
    constant->offsets[constant->n_offsets++] = offset;
    if (tied_offset != offset)
        constant->offsets[constant->n_offsets++] = tied_offset;
    for (int i = 0; i < constant->n_offsets; i++) /* a logarithm needs a positive start */
        if (*field_of(&fit->start, constant->offsets[i]) <= 0)
            *field_of(&fit->start, constant->offsets[i]) = 100;
}

#define OFFSET(field) offsetof(struct gyre_cost, field)

static size_t hop_offset(int proto, int link)
{
    return OFFSET(hop_ns) + ((size_t)proto * GYRE_N_LINKS + (size_t)link) * sizeof(double);
}

static void choose_constants(struct fit *fit)
{
    const struct gyre_tuner_facts *facts = fit->facts;
    const bool is_all_network = facts->n_hosts == 1 && facts->is_proxied;
    const bool has_network = facts->n_hosts > 1 || is_all_network;
    const bool has_host = facts->n_ranks > facts->n_hosts && !is_all_network;
    bool is_used[GYRE_N_PROTOS] = {false};
    for (size_t i = 0; i < fit->n_rows; i++)
        is_used[fit->rows[i].choice.proto] = true;
    add_constant(fit, OFFSET(launch_ns), OFFSET(launch_ns));
    add_constant(fit, OFFSET(worker_launch_ns), OFFSET(worker_launch_ns));
    for (int proto = 0; proto < GYRE_N_PROTOS; proto++) {
        if (!is_used[proto])
            continue;
        const size_t step = OFFSET(step_ns) + (size_t)proto * sizeof(double);
        add_constant(fit, step, step);
        /* Credit uses the same links as data. */
        if (has_host)
            add_constant(fit, hop_offset(proto, GYRE_LINK_HOST),
                         proto == GYRE_PROTO_SIMPLE ? OFFSET(credit_ns)
                                                    : hop_offset(proto, GYRE_LINK_HOST));
        if (has_network)
            add_constant(fit, hop_offset(proto, GYRE_LINK_NETWORK),
                         proto == GYRE_PROTO_SIMPLE
                             ? OFFSET(credit_ns) + GYRE_LINK_NETWORK * sizeof(double)
                             : hop_offset(proto, GYRE_LINK_NETWORK));
    }
    add_constant(fit, OFFSET(worker_read_bytes_per_ns), OFFSET(worker_read_bytes_per_ns));
    add_constant(fit, OFFSET(worker_store_bytes_per_ns), OFFSET(worker_store_bytes_per_ns));
    add_constant(fit, OFFSET(worker_send_bytes_per_ns),
                 OFFSET(worker_send_bytes_per_ns) + GYRE_LINK_NETWORK * sizeof(double));
    if (fit->start.cached_bytes > 0)
        add_constant(fit, OFFSET(uncached_slowdown), OFFSET(uncached_slowdown));
    if (has_host && fit->start.egress_bytes_per_ns[GYRE_LINK_HOST] > 0)
        add_constant(fit, OFFSET(egress_bytes_per_ns), OFFSET(ingress_bytes_per_ns));
    if (has_network) {
        add_constant(fit, OFFSET(nic_bytes_per_ns), OFFSET(nic_bytes_per_ns));
        add_constant(fit, OFFSET(nic_message_ns), OFFSET(nic_message_ns));
    }
}

static struct gyre_cost cost_at(const struct fit *fit, const double *moves)
{
    struct gyre_cost cost = fit->start;
    for (int i = 0; i < fit->n_constants; i++)
        for (int k = 0; k < fit->constants[i].n_offsets; k++)
            *field_of(&cost, fit->constants[i].offsets[k]) *= exp(moves[i]);
    return cost;
}

static gyre_status predict(struct fit *fit, const struct gyre_cost *cost,
                           const struct bench_fit_row *row, double *us_out)
{
    const struct gyre_tuner_facts *facts = fit->facts;
    const uint32_t n_ranks = row->n_ranks > 0 ? row->n_ranks : facts->n_ranks;
    int i = 0;
    while (i < fit->n_models &&
           (fit->models[i].coll != row->coll || fit->models[i].algorithm != row->choice.algorithm ||
            fit->models[i].n_ranks != n_ranks))
        i++;
    if (i == MAX_MODELS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "the measurements have more than %d kinds of calls", MAX_MODELS);
    if (i == fit->n_models) {
        const struct gyre_shape shape = {
            .coll = row->coll, .n_ranks = (uint16_t)n_ranks, .grouping = facts->grouping};
        const struct gyre_machine machine = {.grouping = facts->grouping,
                                             .is_all_network =
                                                 facts->is_proxied && facts->n_hosts == 1};
        struct model model = {row->coll, row->choice.algorithm, n_ranks, NULL};
        GYRE_TRY(
            gyre_simulator_open(row->choice.algorithm, &shape, &machine, false, &model.simulator));
        fit->models[fit->n_models++] = model;
    }
    const struct gyre_simulation simulation = {.cost = cost,
                                               .proto = row->choice.proto,
                                               .net_proto = row->choice.net_proto,
                                               .n_channels = row->choice.n_channels,
                                               .tile_bytes = row->choice.tile_bytes,
                                               .depth = facts->spec.depth,
                                               .n_bytes = row->n_bytes};
    struct gyre_prediction prediction;
    GYRE_TRY(gyre_simulator_run(fit->models[i].simulator, &simulation, &prediction));
    *us_out = prediction.time_ns / 1e3;
    return GYRE_SUCCESS;
}

static double weight_of(double error)
{
    return fabs(error) <= FAR ? 1 : FAR / fabs(error);
}

/* Also the weighted sum of squares. */
static gyre_status evaluate(struct fit *fit, const double *moves, double *errors, double *sum_out)
{
    const struct gyre_cost cost = cost_at(fit, moves);
    double sum = 0;
    for (size_t i = 0; i < fit->n_rows; i++) {
        double us;
        GYRE_TRY(predict(fit, &cost, &fit->rows[i], &us));
        errors[i] = log(us / fit->rows[i].us);
        sum += weight_of(errors[i]) * errors[i] * errors[i];
    }
    for (int i = 0; i < fit->n_constants; i++)
        sum += PRIOR * moves[i] * moves[i];
    *sum_out = sum;
    return GYRE_SUCCESS;
}

static gyre_status find_slopes(struct fit *fit, const double *moves)
{
    for (int k = 0; k < fit->n_constants; k++) {
        double moved[MAX_CONSTANTS];
        memcpy(moved, moves, sizeof(moved));
        moved[k] += STEP;
        const struct gyre_cost cost = cost_at(fit, moved);
        for (size_t i = 0; i < fit->n_rows; i++) {
            double us;
            GYRE_TRY(predict(fit, &cost, &fit->rows[i], &us));
            fit->slopes[i * MAX_CONSTANTS + (size_t)k] =
                (log(us / fit->rows[i].us) - fit->errors[i]) / STEP;
        }
    }
    return GYRE_SUCCESS;
}

/* The normal equations are positive definite, so they are solved without pivoting. */
static void solve(struct fit *fit, const double *moves, double damping, double *change)
{
    const int n = fit->n_constants;
    memset(fit->matrix, 0, sizeof(fit->matrix));
    for (size_t i = 0; i < fit->n_rows; i++) {
        const double *slopes = &fit->slopes[i * MAX_CONSTANTS];
        const double weight = weight_of(fit->errors[i]);
        for (int a = 0; a < n; a++) {
            for (int b = 0; b < n; b++)
                fit->matrix[a][b] += weight * slopes[a] * slopes[b];
            fit->matrix[a][MAX_CONSTANTS] -= weight * slopes[a] * fit->errors[i];
        }
    }
    for (int a = 0; a < n; a++) {
        fit->matrix[a][a] = (fit->matrix[a][a] + PRIOR) * (1 + damping);
        fit->matrix[a][MAX_CONSTANTS] -= PRIOR * moves[a];
    }
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++) {
            const double factor = fit->matrix[b][a] / fit->matrix[a][a];
            for (int k = a; k < n; k++)
                fit->matrix[b][k] -= factor * fit->matrix[a][k];
            fit->matrix[b][MAX_CONSTANTS] -= factor * fit->matrix[a][MAX_CONSTANTS];
        }
    for (int a = n - 1; a >= 0; a--) {
        change[a] = fit->matrix[a][MAX_CONSTANTS];
        for (int k = a + 1; k < n; k++)
            change[a] -= fit->matrix[a][k] * change[k];
        change[a] /= fit->matrix[a][a];
    }
}

static double mean_error(const struct fit *fit)
{
    double sum = 0;
    for (size_t i = 0; i < fit->n_rows; i++)
        sum += fit->errors[i] * fit->errors[i];
    return sqrt(sum / (double)fit->n_rows);
}

/* Until the error stops falling. @moves: in and out. */
static gyre_status descend(struct fit *fit, double *moves, struct bench_fit *result)
{
    double damping = 1e-2, sum;
    double *tried_errors = fit->errors + fit->n_rows;
    int n = 0;
    GYRE_TRY(evaluate(fit, moves, fit->errors, &sum));
    result->before = mean_error(fit);
    for (bool has_slopes = false; n < MAX_ITERATIONS && damping < 1e6; n++) {
        double change[MAX_CONSTANTS] = {0}, tried[MAX_CONSTANTS] = {0}, tried_sum;
        if (!has_slopes)
            GYRE_TRY(find_slopes(fit, moves));
        has_slopes = true;
        solve(fit, moves, damping, change);
        for (int i = 0; i < fit->n_constants; i++)
            tried[i] = fmax(-MOST, fmin(MOST, moves[i] + change[i]));
        GYRE_TRY(evaluate(fit, tried, tried_errors, &tried_sum));
        if (tried_sum >= sum) {
            damping *= 10;
            continue;
        }
        const bool is_enough = sum - tried_sum < ENOUGH * sum;
        memcpy(moves, tried, sizeof(tried));
        memcpy(fit->errors, tried_errors, fit->n_rows * sizeof(*fit->errors));
        sum = tried_sum;
        damping /= 5;
        has_slopes = false;
        if (is_enough)
            break;
    }
    result->n_iterations = n;
    result->error = mean_error(fit);
    result->n_constants = fit->n_constants;
    return GYRE_SUCCESS;
}

gyre_status bench_fit(const struct gyre_tuner_facts *facts, struct bench_fit_row *rows,
                      size_t n_rows, struct gyre_cost *cost, struct bench_fit *fit_out)
{
    GYRE_FREED struct fit *fit = calloc(1, sizeof(*fit));
    GYRE_FREED double *slopes = calloc(n_rows + 1, MAX_CONSTANTS * sizeof(*slopes));
    GYRE_FREED double *errors = calloc(n_rows + 1, 2 * sizeof(*errors));
    double moves[MAX_CONSTANTS] = {0};
    gyre_status status = GYRE_ERROR_OUT_OF_MEMORY;
    if (fit == NULL || slopes == NULL || errors == NULL)
        return gyre_fail(status, "no memory for a fit of %zu rows", n_rows);
    *fit = (struct fit){.facts = facts,
                        .rows = rows,
                        .n_rows = n_rows,
                        .start = *cost,
                        .slopes = slopes,
                        .errors = errors};
    choose_constants(fit);
    if (n_rows < (size_t)fit->n_constants)
        status =
            gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%zu measurements for %d constants are too few",
                      n_rows, fit->n_constants);
    else
        status = descend(fit, moves, fit_out);
    if (status == GYRE_SUCCESS)
        *cost = cost_at(fit, moves);
    for (size_t i = 0; i < n_rows && status == GYRE_SUCCESS; i++)
        rows[i].predicted_us = rows[i].us * exp(fit->errors[i]);
    for (int i = 0; i < fit->n_models; i++)
        gyre_simulator_close(fit->models[i].simulator);
    return status;
}
