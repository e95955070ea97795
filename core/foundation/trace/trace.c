/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/trace/trace.h"

#include "core/foundation/base/file.h"
#include "core/foundation/base/log.h"
#include "core/foundation/base/thread.h"
#include "core/foundation/base/util.h"
#include "core/foundation/trace/trace_file.h"

#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_PROGRAMS    4096
#define CLOSE_NS        60000000000ULL
#define PAGE_BYTES      ((size_t)4 << 10)
#define HUGE_PAGE_BYTES ((size_t)2 << 20)

struct gyre_trace {
    char path[PATH_MAX];
    bool names_rank;
    int rank;
    int n_ranks;
    uint32_t capacity;
    uint64_t close_ns;
    struct gyre_trace_file_state before;
    struct gyre_trace_buffer buffers[GYRE_TRACE_N_SOURCES];
    struct gyre_trace_events given[GYRE_TRACE_N_SOURCES];
    struct gyre_trace_identity identity;
    char communicator[64];
    pthread_mutex_t lock;
    pthread_cond_t written;
    bool is_written;
    bool is_abandoned;
    bool has_warned;
    uint32_t n_programs;
    struct gyre_trace_steps *programs;
};

static void free_trace(struct gyre_trace *trace)
{
    for (uint32_t i = 0; i < trace->n_programs; i++) {
        for (uint32_t s = 0; s < trace->programs[i].n_steps; s++)
            free(trace->programs[i].steps[s].text);
        free(trace->programs[i].steps);
    }
    for (int i = 0; i < GYRE_TRACE_N_SOURCES; i++) {
        free(trace->buffers[i].events);
        free(trace->given[i].events);
    }
    pthread_cond_destroy(&trace->written);
    pthread_mutex_destroy(&trace->lock);
    free(trace->programs);
    free(trace);
}

gyre_status gyre_trace_open(const struct gyre_trace_config *config, struct gyre_trace **trace_out)
{
    struct gyre_trace *trace = calloc(1, sizeof(*trace));
    if (trace == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a trace");
    pthread_mutex_init(&trace->lock, NULL);
    gyre_cond_init(&trace->written);
    trace->programs = calloc(MAX_PROGRAMS, sizeof(*trace->programs));
    gyre_status status = GYRE_SUCCESS;
    if (trace->programs == NULL)
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a trace");
    else if (!gyre_file_expand(config->file, config->file_rank, trace->path, sizeof(trace->path),
                               &trace->names_rank))
        status =
            gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                      "GYRE_TRACE_FILE: the file name \"%.100s...\" is too long", config->file);
    if (status != GYRE_SUCCESS) {
        free_trace(trace);
        return status;
    }
    gyre_trace_file_look(trace->path, &trace->before);
    gyre_trace_file_warn_missing_folder(trace->path, config->rank);
    trace->rank = config->rank;
    trace->n_ranks = config->n_ranks;
    trace->close_ns = config->close_ns > 0 ? config->close_ns : CLOSE_NS;
    trace->capacity = 1;
    while (trace->capacity < config->n_events)
        trace->capacity *= 2;
    *trace_out = trace;
    return GYRE_SUCCESS;
}

void gyre_trace_identify(struct gyre_trace *trace, const struct gyre_trace_identity *identity)
{
    trace->identity = *identity;
    snprintf(trace->communicator, sizeof(trace->communicator), "%s", identity->communicator);
    trace->identity.communicator = trace->communicator;
}

uint64_t gyre_trace_hash(const struct gyre_trace *trace)
{
    if (trace == NULL || trace->names_rank)
        return trace == NULL ? 0 : 1;
    const uint64_t hash = gyre_hash(GYRE_HASH_INIT, trace->path, strlen(trace->path));
    return hash > 1 ? hash : 2;
}

struct gyre_trace_buffer *gyre_trace_use(struct gyre_trace *trace, enum gyre_trace_source source)
{
    if (trace == NULL)
        return NULL;
    struct gyre_trace_buffer *buffer = &trace->buffers[source];
    if (buffer->events != NULL)
        return buffer;
    const size_t n_bytes = gyre_round_up(trace->capacity * sizeof(*buffer->events), PAGE_BYTES);
    /* Address translations of many small pages would cost more than all else. */
    const size_t align_bytes = n_bytes < HUGE_PAGE_BYTES ? PAGE_BYTES : HUGE_PAGE_BYTES;
    buffer->events = aligned_alloc(align_bytes, gyre_round_up(n_bytes, align_bytes));
    if (buffer->events == NULL) {
        GYRE_WARN("trace: no memory for %u events; a part of rank %d is not recorded",
                  trace->capacity, trace->rank);
        return NULL;
    }
    (void)madvise(buffer->events, n_bytes, MADV_HUGEPAGE);
    memset(buffer->events, 0, n_bytes);
    buffer->capacity = trace->capacity;
    return buffer;
}

uint32_t gyre_trace_add_programs(struct gyre_trace *trace,
                                 const struct gyre_trace_program *programs, uint32_t n_programs)
{
    GYRE_LOCKED(&trace->lock);
    uint32_t first = trace->n_programs;
    gyre_status status = GYRE_SUCCESS;
    if (n_programs > MAX_PROGRAMS - trace->n_programs)
        status = gyre_fail(GYRE_ERROR_UNSUPPORTED, "the communicator has run over %d programs",
                           MAX_PROGRAMS);
    for (uint32_t i = 0; i < n_programs && status == GYRE_SUCCESS; i++) {
        const struct gyre_trace_program *program = &programs[i];
        struct gyre_trace_steps *steps = &trace->programs[trace->n_programs++];
        steps->coll = program->coll;
        snprintf(steps->algorithm, sizeof(steps->algorithm), "%s", program->algorithm);
        steps->n_steps = 0;
        steps->steps = calloc(program->n_steps > 0 ? program->n_steps : 1, sizeof(*steps->steps));
        if (steps->steps == NULL)
            status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for the trace of %u steps",
                               program->n_steps);
        for (uint32_t s = 0; s < program->n_steps && status == GYRE_SUCCESS; s++) {
            status = gyre_trace_describe(&program->steps[s], program->connections,
                                         program->n_scratch_parts, &steps->steps[s]);
            steps->n_steps += status == GYRE_SUCCESS;
        }
    }
    if (status != GYRE_SUCCESS) {
        if (!trace->has_warned)
            GYRE_WARN("GYRE_TRACE_FILE: rank %d runs further programs without recording them: %s",
                      trace->rank, gyre_cause());
        trace->has_warned = true;
        first = GYRE_TRACE_NO_PROGRAM;
    }
    return first;
}

void gyre_trace_give(struct gyre_trace *trace, enum gyre_trace_source source,
                     const struct gyre_trace_events *events)
{
    trace->given[source] = *events;
}

uint32_t gyre_trace_capacity(const struct gyre_trace *trace)
{
    return trace->capacity;
}

static void write_event(const struct gyre_trace *trace, struct gyre_trace_writer *writer,
                        int source, const struct gyre_trace_event *event)
{
    const bool has_program = (event->kind == GYRE_TRACE_STEP || event->kind == GYRE_TRACE_RUN) &&
                             event->program < trace->n_programs; /* GPU memory may hold anything */
    gyre_trace_write_event(writer, event, has_program ? &trace->programs[event->program] : NULL,
                           source == GYRE_TRACE_IB ? GYRE_TRACE_TRACK_IB : GYRE_TRACE_TRACK_SOCKET);
}

static void write_rank(const void *context, struct gyre_trace_writer *writer)
{
    const struct gyre_trace *trace = context;
    char host[65] = "";
    gethostname(host, sizeof(host) - 1);
    struct gyre_trace_rank rank = {.n_ranks = (uint32_t)trace->n_ranks,
                                   .communicator = trace->communicator,
                                   .host = host,
                                   .shares_a_thread = trace->identity.shares_a_thread,
                                   .clock_error_ns = trace->identity.clock_error_ns};
    uint64_t clock_error_ns = 0;
    for (int i = 0; i < GYRE_TRACE_N_SOURCES; i++) {
        const struct gyre_trace_buffer *buffer = &trace->buffers[i];
        const struct gyre_trace_events *given = &trace->given[i];
        rank.n_lost += given->n_lost;
        rank.n_left_out += buffer->n_left_out + given->n_left_out;
        rank.complete_ns = gyre_max_u64(rank.complete_ns, given->complete_ns);
        clock_error_ns = gyre_max_u64(clock_error_ns, given->clock_error_ns);
        if (buffer->n_events < buffer->capacity || buffer->capacity == 0)
            continue;
        const uint64_t n_lost = buffer->n_events - (buffer->capacity - 1);
        const struct gyre_trace_event *oldest = &buffer->events[n_lost & (buffer->capacity - 1)];
        rank.n_lost += n_lost;
        rank.complete_ns = gyre_max_u64(rank.complete_ns, oldest->end_ns);
    }
    rank.clock_error_ns += clock_error_ns;
    if (rank.n_lost > 0)
        GYRE_WARN("trace: rank %d has lost its %" PRIu64 " oldest events; a larger "
                  "GYRE_TRACE_EVENTS than %u keeps them",
                  trace->rank, rank.n_lost, trace->capacity);
    gyre_trace_write_rank(writer, &rank);
    for (int i = 0; i < GYRE_TRACE_N_SOURCES; i++) {
        const struct gyre_trace_buffer *buffer = &trace->buffers[i];
        const uint64_t most = buffer->capacity > 0 ? buffer->capacity - 1 : 0;
        for (uint64_t n = buffer->n_events - gyre_min_u64(buffer->n_events, most);
             n < buffer->n_events; n++)
            write_event(trace, writer, i, &buffer->events[n & (buffer->capacity - 1)]);
        for (uint64_t n = 0; n < trace->given[i].n_events; n++)
            write_event(trace, writer, i, &trace->given[i].events[n]);
    }
}

/* A write to a lost network file system never returns, so a thread writes. It frees an abandoned
 * trace. */
static void *write_and_tell(void *argument)
{
    struct gyre_trace *trace = argument;
    const struct gyre_trace_part part = {
        .path = trace->path,
        .rank = (uint32_t)trace->rank,
        .process_id = trace->identity.process_id,
        .job = trace->identity.job,
        .number = trace->identity.number,
        .clock_offset_ns = trace->identity.clock_offset_ns,
        .before = trace->before,
        .write = write_rank,
        .context = trace,
    };
    gyre_log_set_rank(trace->rank);
    if (gyre_trace_file_add(&part) != GYRE_SUCCESS)
        GYRE_WARN("GYRE_TRACE_FILE: rank %d cannot write %s: %s", trace->rank, trace->path,
                  gyre_cause());
    pthread_mutex_lock(&trace->lock);
    trace->is_written = true;
    const bool is_abandoned = trace->is_abandoned;
    pthread_cond_broadcast(&trace->written);
    pthread_mutex_unlock(&trace->lock);
    if (is_abandoned)
        free_trace(trace);
    return NULL;
}

void gyre_trace_close(struct gyre_trace *trace)
{
    pthread_t writer;
    if (trace == NULL)
        return;
    if (trace->identity.communicator == NULL) {
        free_trace(trace);
        return;
    }
    if (gyre_thread_start(&writer, 0, write_and_tell, trace, "trace") != GYRE_SUCCESS) {
        GYRE_WARN("GYRE_TRACE_FILE: rank %d does not write %s: %s", trace->rank, trace->path,
                  gyre_cause());
        free_trace(trace);
        return;
    }
    const uint64_t deadline_ns = gyre_now_ns() + trace->close_ns;
    pthread_mutex_lock(&trace->lock);
    while (!trace->is_written && gyre_now_ns() < deadline_ns)
        gyre_cond_wait_until(&trace->written, &trace->lock, deadline_ns);
    const bool is_written = trace->is_written;
    trace->is_abandoned = !is_written; /* then the writer owns the trace */
    if (!is_written)
        GYRE_WARN("GYRE_TRACE_FILE: rank %d has not written %s after %.0f s. The end of the "
                  "communicator does not wait for it; is the file system reachable?",
                  trace->rank, trace->path, (double)trace->close_ns * 1e-9);
    pthread_mutex_unlock(&trace->lock);
    if (!is_written) {
        pthread_detach(writer);
        return;
    }
    pthread_join(writer, NULL);
    free_trace(trace);
}
