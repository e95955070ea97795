/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/host/lower.h"
#include "kernels/cuda/runtime/state.h"

#include <string.h>

void gyre_cuda_fill_common(struct gyre_cuda_executor *executor, enum gyre_proto proto,
                           uint32_t n_places, struct gyre_cuda_common *common)
{
    common->n_blocks = common->n_places = n_places;
    common->n_reports = proto == GYRE_PROTO_SIMPLE ? 1 : n_places;
    common->connectors = executor->device_connectors;
    common->counters =
        executor->counters + (size_t)gyre_proto_slots(proto) * gyre_cuda_n_ends(executor);
    common->simple_counters =
        executor->counters + (size_t)GYRE_PROTO_SIMPLE * gyre_cuda_n_ends(executor);
    common->control = executor->control;
    common->mailbox = executor->mailbox;
    common->slot_bytes = executor->spec.slot_bytes[gyre_proto_slots(proto)];
    common->net_line_bytes = executor->spec.net_line_bytes;
    common->ends_per_rank = executor->spec.n_fifos * 2;
    common->recording.recorder = NULL;
    common->recording.spans = NULL;
    common->recording.records_steps = 0;
}

static void fill_work(const struct gyre_cuda_executor *executor, const struct gyre_work *work,
                      struct gyre_cuda_work *to)
{
    const struct gyre_loaded *loaded = work->ready->loaded;
    to->in = work->in;
    to->out = work->out;
    to->scratch = loaded->n_areas > 0 ? executor->scratch->address : NULL;
    to->program = loaded->block->address;
    to->scalar = work->scalar;
    to->signature = work->signature;
    to->bases = work->placement != NULL ? work->placement->device_bases : NULL;
    to->out_offset_bytes = work->out_offset_bytes;
}

/* @args: of the plan or the pair, with its buffers. */
static gyre_status launch_fused(struct gyre_cuda_executor *executor,
                                const struct gyre_cuda_form *form, const struct gyre_work *works,
                                uint32_t n_works, struct gyre_cuda_args_fused *args,
                                cudaStream_t stream)
{
    const struct gyre_run *run = &form->run;
    const struct gyre_loaded *loaded = works[0].ready->loaded;
    struct gyre_cuda_start start = {
        .args = args,
        .n_blocks = run->n_blocks,
        .n_rows = run->n_rows,
        .n_threads = run->n_threads,
        .shared_bytes = run->shared_bytes,
        .n_works = n_works,
        .awaits_last = true,
    };
    gyre_cuda_fill_common(executor, loaded->proto, run->n_rows * loaded->n_channels, &args->common);
    args->common.n_blocks = start.n_rows * start.n_blocks;
    args->common.n_works = (uint16_t)n_works;
    args->common.ends_works = 1;
    args->fused.threads_per_peer = run->threads_per_peer;
    gyre_cuda_record_launch(executor, works, n_works, GYRE_CUDA_RUN_FUSED, &args->common);
    start.kernel = form->kernels[args->common.recording.recorder == NULL];
    return gyre_cuda_start(executor, &start, stream);
}

/* By the kernel, copy engines, or both one part. */
static gyre_status launch_one(struct gyre_cuda_executor *executor, const struct gyre_work *work,
                              cudaStream_t stream)
{
    struct gyre_cuda_ready *ready = gyre_cuda_own_ready(work);
    const struct gyre_loaded *loaded = ready->base.loaded;
    const struct gyre_cuda_form *form = &ready->forms[executor->recorder.recorder != NULL];
    struct gyre_cuda_args_one *args = &executor->args.one;
    if (form->run.kernel != NULL) {
        fill_work(executor, work, &ready->args.work);
        return launch_fused(executor, form, work, 1, &ready->args, stream);
    }
    if (loaded->program != NULL) {
        struct gyre_cuda_start start = {
            .args = args,
            .n_blocks = form->run.n_blocks,
            .n_threads = form->run.n_threads,
            .shared_bytes = form->run.shared_bytes,
            .n_works = 1,
            .awaits_last = true,
        };
        gyre_cuda_fill_common(executor, loaded->proto, loaded->n_channels * loaded->n_workers,
                              &args->common);
        args->common.n_blocks = start.n_blocks;
        args->common.n_works = 1;
        args->common.ends_works = loaded->copies == NULL;
        gyre_cuda_record_launch(executor, work, 1, GYRE_CUDA_RUN_STEPS, &args->common);
        start.kernel = form->kernels[args->common.recording.recorder == NULL];
        args->work = ready->args.work;
        fill_work(executor, work, &args->work);
        args->work.inline_words = loaded->inline_words;
        if (loaded->inline_words > 0)
            memcpy(args->program, loaded->program, loaded->program->n_bytes);
        GYRE_TRY(gyre_cuda_start(executor, &start, stream));
    }
    return loaded->copies == NULL
               ? GYRE_SUCCESS
               : gyre_cuda_launch_copies(executor, work, loaded->program != NULL ? 0 : 1, stream);
}

/* Works that may wait for each other run in one kernel. */

/* Returns UNSUPPORTED if the works cannot run at the same time. @start: n_works is set. @to: of the
 * kernel's arguments. @n_places_out: blocks that work. */
static gyre_status fill_works(struct gyre_cuda_executor *executor, const struct gyre_work *works,
                              struct gyre_cuda_start *start, struct gyre_cuda_work *to,
                              uint32_t *n_places_out)
{
    const uint32_t n_works = start->n_works;
    uint32_t n_places = 0;
    bool has_simple = false;
    uint64_t transferred_bytes = 0; /* of the largest work */
    if (n_works > GYRE_CUDA_MAX_WORKS)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "%u works in one launch; %d are possible", n_works,
                         GYRE_CUDA_MAX_WORKS);
    for (uint32_t i = 0; i < n_works; i++) {
        const struct gyre_cuda_ready *ready = gyre_cuda_own_ready(&works[i]);
        const struct gyre_loaded *loaded = ready->base.loaded;
        const uint32_t n_threads =
            gyre_cuda_block_threads(loaded->proto, ready->step_bytes, loaded->n_threads);
        if (!gyre_cuda_only_copies(loaded, &ready->base.reduction) ||
            loaded->proto == GYRE_PROTO_LAMPORT || loaded->copies != NULL || loaded->n_areas > 0)
            return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                             "works of one launch must only copy, without scratch and not by "
                             "lamport");
        to[i] = ready->args.work;
        fill_work(executor, &works[i], &to[i]);
        to[i].first_block = n_places;
        n_places += loaded->n_channels * loaded->n_workers;
        has_simple = has_simple || loaded->proto == GYRE_PROTO_SIMPLE;
        transferred_bytes = gyre_max_u64(transferred_bytes, ready->transferred_bytes);
        start->n_threads = start->n_threads > n_threads ? start->n_threads : n_threads;
        start->shared_bytes =
            start->shared_bytes > loaded->shared_bytes ? start->shared_bytes : loaded->shared_bytes;
    }
    if (n_places > executor->n_sms)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "%u works take %u blocks, which must all run at the same time; the GPU "
                         "has %u multiprocessors",
                         n_works, n_places, executor->n_sms);
    start->n_blocks = has_simple && n_places < executor->n_sms &&
                              transferred_bytes >= executor->block_placement_bytes
                          ? executor->n_sms
                          : n_places;
    *n_places_out = n_places;
    return GYRE_SUCCESS;
}

/* The launch is one of SIMPLE. */
static gyre_status launch_mixed(struct gyre_cuda_executor *executor, const struct gyre_work *works,
                                uint32_t n_works, cudaStream_t stream)
{
    struct gyre_cuda_args_mixed *args = &executor->args.mixed;
    struct gyre_cuda_common *simple = &args->commons[GYRE_PROTO_SIMPLE];
    struct gyre_cuda_start start = {.args = args,
                                    .n_more_commons = GYRE_N_SLOT_PROTOS - 1,
                                    .n_works = n_works,
                                    .awaits_last = true};
    uint32_t n_places = 0;
    GYRE_TRY(fill_works(executor, works, &start, args->works, &n_places));
    for (int proto = 0; proto < GYRE_N_SLOT_PROTOS; proto++) {
        struct gyre_cuda_common *common = &args->commons[proto];
        gyre_cuda_fill_common(executor, (enum gyre_proto)proto, n_places, common);
        common->n_blocks = start.n_blocks;
        common->n_reports = simple->n_reports;
        common->n_works = (uint16_t)n_works;
        common->ends_works = 1;
    }
    gyre_cuda_record_launch(executor, works, n_works, GYRE_CUDA_RUN_STEPS, simple);
    for (int proto = 1; proto < GYRE_N_SLOT_PROTOS; proto++)
        args->commons[proto].recording = simple->recording;
    for (uint32_t i = 0; i < n_works; i++)
        args->protos[i] = (uint8_t)works[i].ready->loaded->proto;
    start.kernel = gyre_cuda_mixer_function(n_works);
    return gyre_cuda_start(executor, &start, stream);
}

static gyre_status launch_together(struct gyre_cuda_executor *executor,
                                   const struct gyre_work *works, uint32_t n_works,
                                   struct gyre_cuda_pair *pair, cudaStream_t stream)
{
    if (pair != NULL) {
        const struct gyre_cuda_form *form = &pair->forms[executor->recorder.recorder != NULL];
        if (form->run.kernel != NULL) {
            fill_work(executor, &works[pair->send], &pair->args.work);
            pair->args.work.out = works[!pair->send].out;
            return launch_fused(executor, form, works, 2, &pair->args, stream);
        }
    }
    for (uint32_t i = 1; i < n_works; i++)
        if (works[i].ready->loaded->proto != works[0].ready->loaded->proto)
            return launch_mixed(executor, works, n_works, stream);
    const enum gyre_proto proto = works[0].ready->loaded->proto;
    struct gyre_cuda_args_many *args = &executor->args.many;
    struct gyre_cuda_start start = {.args = args, .n_works = n_works, .awaits_last = true};
    bool is_proxied = false;
    uint32_t n_places = 0;
    GYRE_TRY(fill_works(executor, works, &start, args->works, &n_places));
    gyre_cuda_fill_common(executor, proto, n_places, &args->common);
    args->common.n_blocks = start.n_blocks;
    args->common.n_works = (uint16_t)n_works;
    args->common.ends_works = 1;
    gyre_cuda_record_launch(executor, works, n_works, GYRE_CUDA_RUN_STEPS, &args->common);
    for (uint32_t i = 0; i < n_works; i++)
        is_proxied = is_proxied || works[i].ready->loaded->is_proxied;
    start.kernel = gyre_cuda_copier_function(
        proto, n_works, !is_proxied && args->common.recording.recorder == NULL);
    return gyre_cuda_start(executor, &start, stream);
}

/* Also of a failed launch. A graph may be launched at any time, so its memory is never reused. */
static void note_launch(struct gyre_cuda_executor *executor, const struct gyre_work *works,
                        uint32_t n_works, uint64_t launched_before)
{
    if (executor->base.n_launched != launched_before) {
        gyre_cuda_remember(executor, works, n_works, launched_before);
        return;
    }
    for (uint32_t i = 0; i < n_works; i++) {
        const struct gyre_loaded *loaded = works[i].ready->loaded;
        if (loaded->block != NULL)
            loaded->block->is_captured = true;
        if (loaded->n_areas > 0)
            executor->scratch->is_captured = true;
    }
}

gyre_status gyre_cuda_enqueue_ahead(struct gyre_cuda_executor *executor,
                                    const struct gyre_work *send, const struct gyre_work *receive,
                                    cudaStream_t stream)
{
    struct gyre_cuda_ready *ready = gyre_cuda_own_ready(send);
    const struct gyre_loaded *behind = receive->ready->loaded;
    const uint64_t before = executor->base.n_launched;
    struct gyre_cuda_args_fused *args = &executor->args.fused;
    *args = ready->args;
    args->fused = gyre_cuda_fused_before(&args->fused, &behind->fused, behind->n_channels);
    fill_work(executor, send, &args->work);
    const gyre_status status = launch_fused(executor, &ready->forms[0], send, 1, args, stream);
    note_launch(executor, send, 1, before);
    return status;
}

/* The caller holds the lock. */
static gyre_status launch(struct gyre_cuda_executor *executor, const struct gyre_work *works,
                          uint32_t n_works, cudaStream_t stream)
{
    /* On the GPU, until the launch is over. */
    const uint64_t last_work = executor->base.n_launched + n_works;
    for (uint32_t i = 0; i < n_works; i++) {
        struct gyre_loaded *loaded = works[i].ready->loaded;
        if (loaded->program == NULL)
            continue;
        if (loaded->block == NULL)
            GYRE_TRY(gyre_cuda_make_resident(executor, loaded));
        loaded->block->last_work = last_work;
        if (loaded->n_areas > 0)
            executor->scratch->last_work = last_work;
    }
    struct gyre_cuda_pair *pair = n_works == 2 ? gyre_cuda_find_pair(executor, works) : NULL;
    if (pair != NULL && pair->goes_apart && executor->recorder.recorder == NULL) {
        GYRE_TRY(gyre_cuda_enqueue_ahead(executor, &works[0], &works[1], stream));
        works++;
        n_works--;
    }
    const uint64_t before = executor->base.n_launched;
    const gyre_status status = n_works == 1
                                   ? launch_one(executor, works, stream)
                                   : launch_together(executor, works, n_works, pair, stream);
    note_launch(executor, works, n_works, before);
    return status;
}

gyre_status gyre_cuda_enqueue(struct gyre_executor *base, const struct gyre_work *works,
                              int n_works, gyre_stream stream)
{
    struct gyre_cuda_executor *executor = gyre_cuda_own(base);
    int previous;
    if (n_works <= 0)
        return GYRE_SUCCESS;
    /* A kernel would let the peers write into OUT without anything to wait for. */
    if (n_works == 1 && works[0].ready->split.count == 0)
        return GYRE_SUCCESS;
    for (int i = 0; i < n_works; i++)
        if (works[i].ready->loaded->is_placed &&
            (works[i].placement == NULL || works[i].placement->device_bases == NULL))
            return gyre_fail(GYRE_ERROR_INTERNAL, "a program that places data, and no placement");
    GYRE_TRY(gyre_cuda_enter(executor->device->ordinal, &previous));
    pthread_mutex_lock(&executor->lock);
    const uint64_t before = executor->base.n_launched;
    const gyre_status status = launch(executor, works, (uint32_t)n_works, (cudaStream_t)stream);
    executor->recorder.times_next = false;
    pthread_mutex_unlock(&executor->lock);
    /* The enqueued part can neither be taken back nor completed, so the communicator is over. */
    if (status != GYRE_SUCCESS && executor->base.n_launched != before)
        (void)gyre_fault_raise(executor->fault, status, gyre_cause());
    gyre_cuda_leave(executor->device->ordinal, previous);
    return status;
}
