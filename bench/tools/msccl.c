/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds the programs of an MSCCL algorithm from the moves that msccl_order.c has found, and proves
 * them.
 */
#include "bench/tools/msccl.h"

#include "algorithms/verify/verify.h"
#include "core/foundation/base/status.h"
#include "core/foundation/model/connector.h"

#include <stdlib.h>
#include <string.h>

static gyre_status build_program(const struct bench_msccl *algo,
                                 const struct bench_msccl_order *order, int rank,
                                 struct gyre_program **program_out)
{
    const struct gyre_collective_traits *traits = &gyre_collectives[algo->coll];
    const struct gyre_shape shape = {
        .coll = algo->coll, .n_ranks = (uint16_t)algo->n_gpus, .root = (uint16_t)algo->root};
    const int n_chunks = traits->in_blocks || traits->out_blocks ? 1 : algo->n_chunks;
    struct gyre_builder *builder;
    GYRE_TRY(gyre_builder_open(algo->name, &shape, rank, n_chunks, &builder));
    gyre_builder_lanes(builder, order->n_lanes);
    gyre_builder_min_depth(builder, GYRE_MAX_DEPTH); /* prove() writes the real depth */
    for (int w = 0; w < GYRE_MAX_WORKERS; w++) {
        const struct bench_msccl_worker *worker = &order->workers[rank][w];
        if (worker->n_moves == 0)
            continue;
        gyre_builder_worker(builder);
        for (int i = 0; i < worker->n_moves; i++) {
            const struct bench_msccl_move *move = &worker->moves[i];
            gyre_builder_step(builder, move->chunk, move->ins, move->n_ins, move->outs,
                              move->n_outs, move->flags);
        }
    }
    return gyre_builder_close(builder, program_out);
}

/* Proves the programs, and writes the depth that they need into them. */
static gyre_status prove(const struct bench_msccl *algo, struct gyre_program **programs)
{
    struct gyre_verify_report report;
    for (int in_place = 0; in_place < 2; in_place++) {
        const struct gyre_verify_options options = {.in_place = in_place == 1};
        const gyre_status status = gyre_verify((const struct gyre_program *const *)programs,
                                               algo->n_gpus, &options, &report);
        if (status != GYRE_SUCCESS)
            return gyre_fail(status, "%s: the programs are wrong %s: %s", algo->path,
                             in_place == 1 ? "in place, which gyre's always have to be"
                                           : "out of place",
                             report.reason);
    }
    for (int rank = 0; rank < algo->n_gpus; rank++)
        programs[rank]->min_depth = (uint16_t)report.min_depth;
    return GYRE_SUCCESS;
}

static gyre_status build(const struct bench_msccl *algo, struct gyre_program_file *file)
{
    struct bench_msccl_order order;
    GYRE_TRY(bench_msccl_order(algo, &order));
    gyre_status status = GYRE_SUCCESS;
    file->programs = calloc((size_t)algo->n_gpus, sizeof(struct gyre_program *));
    file->sets = calloc(1, sizeof(*file->sets));
    if (file->programs == NULL || file->sets == NULL)
        status = gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "%s: out of memory", algo->path);
    for (int rank = 0; rank < algo->n_gpus && status == GYRE_SUCCESS; rank++) {
        status = build_program(algo, &order, rank, &file->programs[rank]);
        if (status != GYRE_SUCCESS)
            status = gyre_fail_context(status, "%s: gpu %d", algo->path, rank);
        else
            file->n_programs++;
    }
    bench_msccl_order_free(&order);
    if (status == GYRE_SUCCESS)
        status = prove(algo, file->programs);
    file->n_sets = 1;
    if (file->sets != NULL)
        file->sets[0] = (struct gyre_program_set){.first = 0, .n_programs = file->n_programs};
    return status;
}

gyre_status bench_msccl_load(const char *path, struct gyre_program_file *file_out)
{
    struct gyre_program_file file = {0};
    struct bench_msccl algo;
    GYRE_TRY(bench_msccl_read(path, &algo));
    const gyre_status status = build(&algo, &file);
    bench_msccl_free(&algo);
    if (status == GYRE_SUCCESS)
        *file_out = file;
    else
        gyre_program_file_free(&file);
    return status;
}
