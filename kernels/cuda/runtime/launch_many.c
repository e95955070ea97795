/* SPDX-License-Identifier: Apache-2.0
 *
 * One kernel, which only copies, runs several works that may wait for each other, such as a send
 * and a receive, also of different protocols.
 */
#include "kernels/cuda/runtime/kernels.h"
#include "kernels/cuda/runtime/state.h"

/* Fills in the works and what their blocks need. Returns UNSUPPORTED if they cannot run at the
 * same time. @launch: n_works is set. @to: of the kernel's arguments.
 * @n_places_out: the blocks that work. */
static gyre_status fill_works(struct gyre_cuda_executor *executor, const struct gyre_work *works,
                              struct gyre_cuda_start *launch, struct gyre_cuda_work *to,
                              uint32_t *n_places_out)
{
    const uint32_t n_works = launch->n_works;
    uint32_t n_places = 0;
    if (n_works > GYRE_CUDA_MAX_WORKS)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "%u works in one launch; %d are possible", n_works,
                         GYRE_CUDA_MAX_WORKS);
    for (uint32_t i = 0; i < n_works; i++) {
        const struct gyre_loaded *loaded = works[i].loaded;
        if (!gyre_cuda_only_copies(loaded, &works[i].reduction) ||
            loaded->proto == GYRE_PROTO_LAMPORT || loaded->copies != NULL || loaded->n_areas > 0)
            return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                             "works of one launch must only copy, without scratch and not by "
                             "lamport");
        gyre_cuda_fill_work(executor, &works[i], n_places, &to[i]);
        n_places += loaded->n_channels * loaded->n_workers;
        launch->n_threads =
            (uint32_t)gyre_max_u64(launch->n_threads, gyre_cuda_work_threads(&works[i]));
        launch->shared_bytes = (uint32_t)gyre_max_u64(launch->shared_bytes, loaded->shared_bytes);
    }
    if (n_places > executor->n_sms)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "%u works take %u blocks, which must all run at the same time; the GPU "
                         "has %u multiprocessors",
                         n_works, n_places, executor->n_sms);
    *n_places_out = n_places;
    return GYRE_SUCCESS;
}

static gyre_status launch_alike(struct gyre_cuda_executor *executor, const struct gyre_work *works,
                                uint32_t n_works, cudaStream_t stream)
{
    const enum gyre_proto proto = works[0].loaded->proto;
    struct gyre_cuda_args_many *args = &executor->args.many;
    struct gyre_cuda_start launch = {.args = args, .n_works = n_works, .awaits_last = true};
    uint32_t n_places = 0;
    GYRE_TRY(fill_works(executor, works, &launch, args->works, &n_places));
    launch.n_blocks =
        gyre_cuda_places_blocks(executor, works, n_works, n_places) ? executor->n_sms : n_places;
    gyre_cuda_fill_common(executor, proto, n_places, &args->common);
    args->common.n_blocks = launch.n_blocks;
    args->common.n_works = (uint16_t)n_works;
    args->common.ends_works = 1;
    gyre_cuda_record_launch(executor, works, n_works, GYRE_CUDA_RUN_STEPS, &args->common);
    launch.kernel =
        gyre_cuda_copier_function(proto, n_works, gyre_cuda_is_lean(works, n_works, &args->common));
    return gyre_cuda_start(executor, &launch, stream);
}

/* The launch is one of SIMPLE. */
static gyre_status launch_mixed(struct gyre_cuda_executor *executor, const struct gyre_work *works,
                                uint32_t n_works, cudaStream_t stream)
{
    struct gyre_cuda_args_mixed *args = &executor->args.mixed;
    struct gyre_cuda_common *simple = &args->commons[GYRE_PROTO_SIMPLE];
    struct gyre_cuda_start launch = {.args = args,
                                     .n_more_commons = GYRE_N_SLOT_PROTOS - 1,
                                     .n_works = n_works,
                                     .awaits_last = true};
    uint32_t n_places = 0;
    GYRE_TRY(fill_works(executor, works, &launch, args->works, &n_places));
    launch.n_blocks =
        gyre_cuda_places_blocks(executor, works, n_works, n_places) ? executor->n_sms : n_places;
    for (int proto = 0; proto < GYRE_N_SLOT_PROTOS; proto++) {
        struct gyre_cuda_common *common = &args->commons[proto];
        gyre_cuda_fill_common(executor, (enum gyre_proto)proto, n_places, common);
        common->n_blocks = launch.n_blocks;
        common->n_reports = simple->n_reports;
        common->n_works = (uint16_t)n_works;
        common->ends_works = 1;
    }
    gyre_cuda_record_launch(executor, works, n_works, GYRE_CUDA_RUN_STEPS, simple);
    for (int proto = 1; proto < GYRE_N_SLOT_PROTOS; proto++)
        args->commons[proto].recording = simple->recording;
    for (uint32_t i = 0; i < n_works; i++)
        args->protos[i] = (uint8_t)works[i].loaded->proto;
    launch.kernel = gyre_cuda_mixer_function(n_works);
    return gyre_cuda_start(executor, &launch, stream);
}

gyre_status gyre_cuda_launch_many(struct gyre_cuda_executor *executor,
                                  const struct gyre_work *works, uint32_t n_works,
                                  cudaStream_t stream)
{
    struct gyre_run fused;
    gyre_cuda_find_fused(executor, works, n_works, &fused);
    if (fused.kernel != NULL)
        return gyre_cuda_launch_fused(executor, &fused, works, n_works, stream);
    for (uint32_t i = 1; i < n_works; i++)
        if (works[i].loaded->proto != works[0].loaded->proto)
            return launch_mixed(executor, works, n_works, stream);
    return launch_alike(executor, works, n_works, stream);
}
