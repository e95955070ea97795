/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/runtime/state.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/sync.h"

#include <stdlib.h>
#include <sched.h>
#include <string.h>

/* Of a thread's events: a block has few of a rank's steps, in short entries. */
#define RING_SHARE 8
#define MIN_RING   64
/* A running kernel answers within 2 us. */
#define ANSWER_NS 500000000ULL
/* Then the kernel does not run yet, so the wait yields. */
#define SPIN_NS 100000ULL

/* 0 = none. */
static uint64_t await_answer(const uint64_t *answer_ns, uint64_t deadline_ns)
{
    const uint64_t yield_ns = gyre_now_ns() + SPIN_NS;
    uint64_t gpu_ns;
    while ((gpu_ns = gyre_load_acquire_u64(answer_ns)) == 0)
        if (gyre_now_ns() > deadline_ns)
            return 0;
        else if (gyre_now_ns() > yield_ns)
            sched_yield();
    return gpu_ns;
}

/* Without an answer the kernel may run later, so its words are neither reused nor freed. */
static void compare_clocks(struct gyre_cuda_executor *executor)
{
    struct gyre_cuda_recorder_state *state = &executor->recorder;
    struct gyre_cuda_clock_round rounds[GYRE_CUDA_CLOCK_ROUNDS];
    struct gyre_cuda_clock_words *words = state->words;
    void *params[] = {&words};
    uint32_t n_rounds = 0;
    if (state->is_unanswered)
        return;
    memset(words, 0, sizeof(*words));
    if (cudaLaunchKernel(gyre_cuda_kernel_clock, (dim3){1, 1, 1}, (dim3){1, 1, 1}, params, 0,
                         executor->uploader.stream) != cudaSuccess) {
        (void)cudaGetLastError();
        return;
    }
    const uint64_t deadline_ns = gyre_now_ns() + ANSWER_NS;
    while (n_rounds < GYRE_CUDA_CLOCK_ROUNDS) {
        struct gyre_cuda_clock_round *round = &rounds[n_rounds];
        round->asked_ns = gyre_now_ns();
        gyre_store_release_u32(&words->n_asked, n_rounds + 1);
        round->gpu_ns = await_answer(&words->answers_ns[n_rounds], deadline_ns);
        round->answered_ns = gyre_now_ns();
        if (round->gpu_ns == 0)
            break;
        n_rounds++;
    }
    /* A kernel that begins later ends at once. */
    gyre_store_release_u32(&words->n_asked, GYRE_CUDA_CLOCK_ROUNDS);
    state->is_unanswered = n_rounds < GYRE_CUDA_CLOCK_ROUNDS;
    gyre_cuda_clock_add(&state->clock, rounds, n_rounds);
}

static gyre_status open_rings(struct gyre_cuda_executor *executor)
{
    struct gyre_cuda_recorder_state *state = &executor->recorder;
    struct gyre_device *device = executor->device;
    const size_t head_bytes = (size_t)gyre_round_up(sizeof(struct gyre_cuda_recorder), 256);
    const size_t ring_bytes = state->capacity * sizeof(union gyre_cuda_record);
    void *memory = NULL, *words = NULL;
    GYRE_TRY(device->ops->pool_alloc(device, head_bytes + state->n_blocks * ring_bytes, &memory));
    state->recorder = memory;
    GYRE_TRY(device->ops->host_alloc(device, sizeof(*state->words), &words));
    state->words = words;
    struct gyre_cuda_recorder *head = calloc(1, sizeof(*head));
    if (head == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a trace");
    head->entries = (void *)((unsigned char *)memory + head_bytes);
    head->capacity = state->capacity;
    const gyre_status status =
        gyre_cuda_upload(&executor->uploader, executor->fault, memory, head, sizeof(*head));
    free(head);
    return status;
}

void gyre_cuda_recorder_free(struct gyre_cuda_executor *executor)
{
    struct gyre_cuda_recorder_state *state = &executor->recorder;
    struct gyre_device *device = executor->device;
    if (state->recorder != NULL)
        (void)device->ops->pool_free(device, state->recorder);
    if (state->words != NULL && !state->is_unanswered)
        (void)device->ops->host_free(device, state->words);
    if (state->spans != NULL)
        (void)device->ops->host_free(device, state->spans);
    for (uint32_t i = 0; i < state->n_programs; i++)
        if (state->programs[i].variant == 0) /* its variants share it */
            free(state->programs[i].lowered);
    free(state->programs);
    memset(state, 0, sizeof(*state));
}

void gyre_cuda_recorder_open(struct gyre_cuda_executor *executor, struct gyre_trace *trace)
{
    struct gyre_cuda_recorder_state *state = &executor->recorder;
    if (trace == NULL)
        return;
    state->trace = trace;
    state->n_blocks = executor->n_sms;
    state->capacity = gyre_trace_capacity(trace) / RING_SHARE;
    state->capacity = state->capacity > MIN_RING ? state->capacity : MIN_RING;
    if (open_rings(executor) == GYRE_SUCCESS) {
        compare_clocks(executor);
        if (state->clock.n_points > 0)
            return;
        gyre_set_cause("the GPU does not tell its time");
    }
    GYRE_WARN("trace: the steps of rank %d are not recorded: %s", executor->rank, gyre_cause());
    gyre_cuda_recorder_free(executor);
}

void gyre_cuda_recorder_close(struct gyre_cuda_executor *executor, bool has_ended)
{
    struct gyre_cuda_recorder_state *state = &executor->recorder;
    struct gyre_trace_events events = {0};
    gyre_status status = gyre_fail(GYRE_ERROR_TIMEOUT, "a launch has not ended");
    if (has_ended && state->trace != NULL) {
        compare_clocks(executor);
        struct gyre_device *device = executor->device;
        const size_t ring_entries = state->capacity;
        struct gyre_cuda_recorder *head = calloc(1, sizeof(*head));
        union gyre_cuda_record *rings = malloc(state->n_blocks * ring_entries * sizeof(*rings));
        status = head != NULL && rings != NULL
                     ? device->ops->copy(device, head, state->recorder, sizeof(*head))
                     : gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a trace");
        for (uint32_t block = 0; block < state->n_blocks && status == GYRE_SUCCESS; block++) {
            const uint64_t n_kept = gyre_min_u64(head->blocks[block].n_entries, ring_entries);
            if (n_kept > 0)
                status = device->ops->copy(device, rings + block * ring_entries,
                                           head->entries + block * ring_entries,
                                           n_kept * sizeof(*rings));
        }
        if (status == GYRE_SUCCESS) {
            head->entries = rings;
            const struct gyre_cuda_records records = {.recorder = head,
                                                      .n_blocks = state->n_blocks,
                                                      .ends_per_rank = executor->spec.n_fifos * 2,
                                                      .clock = state->clock,
                                                      .programs = state->programs,
                                                      .n_programs = state->n_programs};
            status = gyre_cuda_records_read(&records, &events);
        }
        free(head);
        free(rings);
    }
    events.n_left_out = state->n_left_out;
    if (status == GYRE_SUCCESS)
        gyre_trace_give(state->trace, GYRE_TRACE_EXECUTOR, &events);
    else if (state->trace != NULL)
        GYRE_WARN("trace: the steps of rank %d are lost: %s", executor->rank, gyre_cause());
    gyre_cuda_recorder_free(executor);
}

/* The caller holds the lock. */
static gyre_status keep_programs(struct gyre_cuda_recorder_state *state,
                                 const struct gyre_load_config *config,
                                 const struct gyre_loaded *loaded)
{
    const uint32_t first = loaded->traced;
    const uint32_t n_all = (uint32_t)gyre_max_u64(state->n_programs, first + loaded->n_variants);
    struct gyre_cuda_program *lowered =
        loaded->program != NULL ? malloc(loaded->program->n_bytes) : NULL;
    struct gyre_cuda_record_program *more = realloc(state->programs, n_all * sizeof(*more));
    if (more != NULL)
        state->programs = more;
    if (more == NULL || (loaded->program != NULL && lowered == NULL)) {
        free(lowered);
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a trace");
    }
    if (lowered != NULL)
        memcpy(lowered, loaded->program, loaded->program->n_bytes);
    if (n_all > state->n_programs)
        memset(more + state->n_programs, 0, (n_all - state->n_programs) * sizeof(*more));
    state->n_programs = n_all;
    uint32_t first_step = 0;
    for (uint32_t v = 0; v < loaded->n_variants; v++) {
        const struct gyre_program *program = gyre_load_program(config, v);
        more[first + v] = (struct gyre_cuda_record_program){
            .lowered = lowered,
            .variant = v,
            .first_step = first_step,
            .n_workers = loaded->n_workers,
            .n_in_flight = loaded->n_in_flight,
            .channel_stride = loaded->channel_stride,
            .n_kernel_steps = loaded->copies != NULL ? gyre_program_copy_tail(program) : 0,
        };
        first_step += program->n_steps;
    }
    return GYRE_SUCCESS;
}

gyre_status gyre_cuda_record_program(struct gyre_cuda_executor *executor,
                                     const struct gyre_load_config *config,
                                     struct gyre_loaded *loaded)
{
    const uint32_t n_each = loaded->n_connections > 0 ? loaded->n_connections : 1;
    loaded->traced = GYRE_TRACE_NO_PROGRAM;
    if (executor->recorder.trace == NULL)
        return GYRE_SUCCESS;
    struct gyre_trace_program *traced = calloc(loaded->n_variants, sizeof(*traced));
    struct gyre_connection *connections =
        calloc((size_t)loaded->n_variants * n_each, sizeof(*connections));
    gyre_status status = traced != NULL && connections != NULL
                             ? GYRE_SUCCESS
                             : gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for a trace");
    for (uint32_t v = 0; v < loaded->n_variants && status == GYRE_SUCCESS; v++) {
        const struct gyre_program *program = gyre_load_program(config, v);
        struct gyre_connection *own = connections + (size_t)v * n_each;
        for (uint32_t i = 0; i < program->n_connections; i++) {
            own[i] = program->connections[i];
            if (config->rank_of != NULL)
                own[i].peer = config->rank_of[own[i].peer];
        }
        traced[v] = (struct gyre_trace_program){
            .algorithm = program->algorithm,
            .coll = program->coll,
            .steps = program->steps,
            .connections = own,
            .n_steps = program->n_steps,
            .n_scratch_parts = gyre_program_n_parts(program, GYRE_OPERAND_SCRATCH),
        };
    }
    if (status == GYRE_SUCCESS)
        loaded->traced =
            gyre_trace_add_programs(executor->recorder.trace, traced, loaded->n_variants);
    if (status == GYRE_SUCCESS && loaded->traced != GYRE_TRACE_NO_PROGRAM) {
        pthread_mutex_lock(&executor->lock);
        status = keep_programs(&executor->recorder, config, loaded);
        pthread_mutex_unlock(&executor->lock);
    }
    free(connections);
    free(traced);
    return status;
}

void gyre_cuda_record_launch(struct gyre_cuda_executor *executor, const struct gyre_work *works,
                             uint32_t n_works, enum gyre_cuda_run kind,
                             struct gyre_cuda_common *common)
{
    struct gyre_cuda_recorder_state *state = &executor->recorder;
    const struct gyre_cuda_ready *ready = gyre_cuda_own_ready(&works[0]);
    bool is_traced = state->trace != NULL;
    if (state->recorder == NULL)
        return;
    for (uint32_t i = 0; i < n_works && is_traced; i++) {
        is_traced = works[i].ready->loaded->traced != GYRE_TRACE_NO_PROGRAM;
        /* The launch behind copies belongs to a counted one. */
        state->n_left_out += !is_traced && kind != GYRE_CUDA_RUN_CLOSES;
    }
    if (!is_traced && !state->times_next)
        return;
    common->recording = (struct gyre_cuda_recording){
        .recorder = state->recorder,
        .spans = state->times_next ? state->spans : NULL,
        .n_span_blocks = state->n_blocks,
        .records_steps = is_traced,
        .sequence = works[0].sequence,
        .n_bytes =
            ready->base.split.count * gyre_dtype_bytes((gyre_dtype)ready->base.reduction.dtype),
        .program = is_traced ? ready->base.loaded->traced : GYRE_TRACE_NO_PROGRAM,
        .slot_bytes = (uint32_t)gyre_min_u64(ready->step_bytes, UINT32_MAX),
        .kind = (uint16_t)kind,
    };
}

static gyre_status open_spans(struct gyre_cuda_executor *executor)
{
    struct gyre_cuda_recorder_state *state = &executor->recorder;
    struct gyre_device *device = executor->device;
    const bool is_new = state->recorder == NULL;
    void *spans = NULL;
    if (is_new) {
        state->n_blocks = executor->n_sms;
        state->capacity = MIN_RING;
        GYRE_TRY(open_rings(executor));
        compare_clocks(executor);
    }
    if (state->clock.n_points == 0)
        return gyre_fail(GYRE_ERROR_DEVICE, "the GPU does not tell its time");
    GYRE_TRY(device->ops->host_alloc(
        device, (size_t)GYRE_CUDA_SPANS * state->n_blocks * sizeof(*state->spans), &spans));
    state->spans = spans;
    return GYRE_SUCCESS;
}

gyre_status gyre_cuda_time_works(struct gyre_executor *base)
{
    struct gyre_cuda_executor *executor = gyre_cuda_own(base);
    struct gyre_cuda_apart apart = {0};
    GYRE_TRY(gyre_cuda_enter_apart(executor->device->ordinal, &apart));
    pthread_mutex_lock(&executor->lock);
    const gyre_status status = open_spans(executor);
    if (status != GYRE_SUCCESS && executor->recorder.trace == NULL)
        gyre_cuda_recorder_free(executor);
    pthread_mutex_unlock(&executor->lock);
    gyre_cuda_leave_apart(&apart);
    return status;
}

/* After a capture the GPU counts other works. Launches that move nothing leave `times_next`. */
bool gyre_cuda_time_next(struct gyre_executor *base, gyre_stream stream)
{
    struct gyre_cuda_executor *executor = gyre_cuda_own(base);
    CUstreamCaptureStatus is_captured;
    const bool is_eager =
        executor->driver->cuStreamIsCapturing((CUstream)stream, &is_captured) == CUDA_SUCCESS &&
        is_captured == CU_STREAM_CAPTURE_STATUS_NONE;
    pthread_mutex_lock(&executor->lock);
    const bool is_timed =
        is_eager && executor->recorder.spans != NULL && executor->last_capture == 0;
    executor->recorder.times_next = is_timed;
    pthread_mutex_unlock(&executor->lock);
    return is_timed;
}

bool gyre_cuda_span_of(struct gyre_executor *base, uint64_t work, struct gyre_launch_span *span_out)
{
    const struct gyre_cuda_recorder_state *state = &gyre_cuda_own(base)->recorder;
    return state->spans != NULL &&
           gyre_cuda_span_read(state->spans, state->n_blocks, work, &state->clock,
                               &span_out->begin_ns, &span_out->end_ns);
}
