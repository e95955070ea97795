/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that stand still: by programs that were never proved, given as text, and, on the host
 * device, connections that lose what is sent.
 */
#ifndef GYRE_TESTS_STALL_RIG_H
#define GYRE_TESTS_STALL_RIG_H

#include "core/engine/comm.h"
#include "kernels/host/host_exec.h"
#include "tests/support/check.h"
#include "tests/support/test_work.h"

/* The caller sets the buffers and the stream. */
struct stall_program {
    struct gyre_program *program;
    struct gyre_loaded *loaded;
    const float *in; /* in memory of the communicator's device */
    float *out;
    gyre_stream stream;
};

/** As the communicator's next all-reduce of `count` floats by SIMPLE, in tiles of one float. @own:
 * stays until stall_unload(). */
static inline gyre_status stall_launch_text(gyre_comm *comm, const char *text, uint64_t count,
                                            struct stall_program *own)
{
    struct gyre_executor *executor = comm->executor;
    struct gyre_record record = {
        .count = count, .coll = GYRE_COLL_ALL_REDUCE, .dtype = GYRE_FLOAT32, .root = -1};
    GYRE_TRY(gyre_program_from_lines(text, 1, &own->program));
    const struct gyre_load_config config = {.program = own->program, .n_channels = 1};
    const struct gyre_reduction reduction = {.dtype = GYRE_FLOAT32, .op = GYRE_SUM};
    GYRE_TRY(executor->ops->load(executor, &config, &own->loaded));
    const uint64_t index = gyre_call_log_post(&comm->call_log, &record);
    gyre_call_log_launched(&comm->call_log, executor->n_launched, index);
    const struct test_work work = {
        .loaded = own->loaded,
        .in = own->in,
        .out = own->out,
        .split = {count, 1, own->program->n_chunks, 1, 1},
        .reduction = reduction,
        .signature = gyre_record_signature(&record, comm->self.rank),
        .sequence = record.sequence,
    };
    return test_enqueue(executor, &work, 1, own->stream);
}

static inline void stall_unload(gyre_comm *comm, struct stall_program *own)
{
    comm->executor->ops->unload(comm->executor, own->loaded);
    gyre_program_free(own->program);
}

/* Where a connection that loses things writes them. */
struct stall_nowhere {
    struct gyre_inbox inbox;
    struct gyre_credit credit;
};

/** The peer gets no more slots from this rank (`is_send`), or no credit for those that it sends:
 * the counter that announces them is lost. Called by the rank's thread while no call runs.
 * @nowhere: outlives the communicator. */
static inline void stall_lose(gyre_comm *comm, int peer, bool is_send,
                              struct stall_nowhere *nowhere)
{
    struct gyre_host_executor *executor = (struct gyre_host_executor *)comm->executor;
    for (uint32_t i = 0; i < 2 * executor->spec.n_fifos; i++) {
        struct gyre_host_end *ends = i % 2 == 0 ? executor->ends : executor->line_ends;
        if (ends == NULL)
            continue;
        struct gyre_host_end *end =
            &ends[gyre_connector_index(&executor->spec, (uint32_t)peer, i / 2, is_send)];
        if (is_send)
            end->inbox = &nowhere->inbox;
        else
            end->credit = &nowhere->credit;
    }
}

#endif
