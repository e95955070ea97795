/* SPDX-License-Identifier: Apache-2.0
 *
 * At most two readings of the clock a step. gyre_host_step_try() runs the step, so recorded
 * launches run the same code.
 */
#include "kernels/host/host_exec.h"

#include "core/foundation/base/util.h"

#include <stdlib.h>

/* Trying the step again now could run it unrecorded. */
static bool wait(struct gyre_host_runner *runner)
{
    runner->has_waited = true;
    return false;
}

/* A receiving step reads the clock itself: another thread may have run since the step before. */
static bool receives(const struct gyre_step *step)
{
    for (uint32_t i = 0; i < step->n_ins; i++)
        if (step->ins[i].kind == GYRE_OPERAND_CONNECTION)
            return true;
    return false;
}

bool gyre_host_trace_step(struct gyre_host_launch *launch, struct gyre_host_runner *runner,
                          uint64_t *n_bytes_out)
{
    struct gyre_trace_buffer *buffer = launch->executor->recorded;
    const struct gyre_step *step = &runner->steps[runner->step];
    const uint32_t n_operands = (uint32_t)step->n_ins + step->n_outs;
    uint64_t now_ns = runner->is_next && !receives(step) ? runner->begin_ns : 0;
    gyre_host_enter(runner);
    if (runner->begin_ns == 0)
        runner->begin_ns = launch->begin_ns;
    runner->is_next = false;
    if (!gyre_host_has_data(runner))
        return wait(runner);
    if (runner->data_ns == 0 && runner->has_waited)
        now_ns = gyre_now_ns();
    if (runner->data_ns == 0)
        runner->data_ns = runner->has_waited ? now_ns : runner->begin_ns;
    if (!gyre_host_has_room(step, runner->ends))
        return wait(runner);
    struct gyre_trace_event *event = gyre_trace_begin(buffer); /* kept only if the step runs */
    const struct gyre_loaded *loaded = runner->work->loaded;
    const uint32_t variant = runner->channel % loaded->n_variants;
    const struct gyre_worker *worker =
        &loaded->workers[variant * loaded->n_workers + runner->worker];
    const struct gyre_worker *first = &loaded->workers[variant * loaded->n_workers];
    event->kind = GYRE_TRACE_STEP;
    event->call = launch->first_work;
    event->program = loaded->traced + variant;
    event->step = worker->first_step - first->first_step + runner->step;
    event->step_of_worker = runner->step;
    event->tile = (uint32_t)runner->tile;
    event->channel = (uint16_t)runner->channel;
    event->worker = (uint8_t)runner->worker;
    event->n_ins = 0;
    event->n_outs = 0;
    for (uint32_t i = 0; i < (uint32_t)step->n_ins + step->n_outs; i++) {
        const bool is_out = i >= step->n_ins;
        const struct gyre_operand *operand = is_out ? &step->outs[i - step->n_ins] : &step->ins[i];
        if (operand->kind != GYRE_OPERAND_CONNECTION)
            continue;
        const struct gyre_host_end *end = runner->ends[operand->index];
        const struct gyre_trace_slot slot = {
            .peer = end->peer,
            .fifo = end->fifo,
            .number = gyre_trace_number(end->n_moved, end->proto == GYRE_PROTO_LL),
        };
        gyre_trace_add_slot(event, &slot, is_out);
    }
    event->ready_ns = now_ns != 0 ? now_ns : gyre_now_ns();
    event->begin_ns = runner->has_waited ? runner->begin_ns : event->ready_ns;
    event->data_ns = runner->has_waited ? runner->data_ns : event->ready_ns;
    if (!gyre_host_step_try(launch->executor, runner, n_bytes_out))
        return false;
    event->end_ns = launch->last_ns = gyre_now_ns();
    event->n_bytes = n_operands > 0 ? *n_bytes_out / n_operands : 0;
    gyre_trace_keep(buffer);
    runner->begin_ns = event->end_ns;
    runner->data_ns = 0;
    runner->is_next = true;
    runner->has_waited = false;
    return true;
}

void gyre_host_trace_begin(struct gyre_host_launch *launch)
{
    struct gyre_trace_buffer *buffer = launch->executor->recorded;
    launch->is_recorded = buffer != NULL;
    /* The trace may lack room for a program. */
    for (uint32_t i = 0; launch->is_recorded && i < launch->n_works; i++)
        launch->is_recorded = launch->works[i].loaded->traced != GYRE_TRACE_NO_PROGRAM;
    if (launch->is_recorded)
        launch->begin_ns = launch->last_ns = gyre_now_ns();
    else if (buffer != NULL)
        buffer->n_left_out++;
}

void gyre_host_trace_end(const struct gyre_host_launch *launch)
{
    if (!launch->is_recorded)
        return;
    const struct gyre_host_work *work = &launch->works[0];
    struct gyre_trace_event *event = gyre_trace_next(launch->executor->recorded);
    event->kind = GYRE_TRACE_RUN;
    event->begin_ns = launch->begin_ns;
    event->data_ns = launch->begin_ns;
    event->ready_ns = launch->begin_ns;
    event->end_ns = launch->last_ns;
    event->call = launch->first_work;
    event->sequence = work->work.sequence;
    event->program = work->loaded->traced;
    event->n_bytes = work->split.count * gyre_dtype_bytes((gyre_dtype)work->reduction.dtype);
    event->n_ins = 0;
    event->n_outs = 0;
}

gyre_status gyre_host_trace_load(const struct gyre_host_executor *executor,
                                 const struct gyre_load_config *config, struct gyre_loaded *loaded)
{
    uint32_t n_before = 0;
    loaded->traced = GYRE_TRACE_NO_PROGRAM;
    if (executor->recorded == NULL)
        return GYRE_SUCCESS;
    struct gyre_trace_program *traced = calloc(loaded->n_variants, sizeof(*traced));
    if (traced == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a trace");
    for (uint32_t v = 0; v < loaded->n_variants; v++) {
        const struct gyre_program *program = gyre_load_program(config, v);
        traced[v] = (struct gyre_trace_program){
            .algorithm = program->algorithm,
            .coll = program->coll,
            .steps = loaded->steps + n_before,
            .connections = loaded->connections + (size_t)v * loaded->n_connections,
            .n_steps = program->n_steps,
            .n_scratch_parts = loaded->n_parts[GYRE_OPERAND_SCRATCH],
        };
        n_before += program->n_steps;
    }
    loaded->traced = gyre_trace_add_programs(executor->trace, traced, loaded->n_variants);
    free(traced);
    return GYRE_SUCCESS;
}
