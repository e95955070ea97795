/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/plan/plan_describe.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/text.h"
#include "core/engine/plan/plan_choice.h"

#include <inttypes.h>
#include <stdio.h>

/* 0 if there is no prediction. */
static double predict_us(struct gyre_plan_cache *cache, enum gyre_collective coll,
                         const struct gyre_choice *choice, uint64_t n_bytes)
{
    double time_ns;
    if (coll == GYRE_COLL_SEND_RECV || choice->path == GYRE_PATH_COPY_ENGINE ||
        gyre_tuner_predict(&cache->facts, gyre_plan_cost(cache), coll, choice, n_bytes, &time_ns) !=
            GYRE_SUCCESS)
        return 0;
    return time_ns / 1e3;
}

void gyre_plan_log_choice(struct gyre_plan_cache *cache, const struct gyre_call *call,
                          const struct gyre_choice *choice, const struct gyre_run *run)
{
    const uint64_t n_bytes = call->count * gyre_dtype_bytes(call->dtype);
    const double us = predict_us(cache, call->coll, choice, n_bytes);
    const struct gyre_shape shape = {.coll = call->coll,
                                     .n_ranks = (uint16_t)cache->facts.n_ranks,
                                     .grouping = cache->facts.grouping};
    const double bound_us =
        gyre_bound_ns(&shape, gyre_plan_cost(cache),
                      gyre_tuner_all_bytes(&cache->facts, call->coll, n_bytes)) /
        1e3;
    char prediction[96] = "", share[32] = "", kernel[64] = "", won[192];
    /* unknown, as on one host without its links' rates */
    if (us > 0 && bound_us > 0)
        snprintf(share, sizeof(share), ", %.0f%% of the bound", 100 * bound_us / us);
    if (us > 0)
        gyre_text_format(prediction, sizeof(prediction), ", predicted %.2f us (%s constants)%s", us,
                         cache->is_tuned ? "measured" : "shipped", share);
    /* " (h200.rows:35,146,182)": the rows that chose. */
    const size_t text_bytes = sizeof(won);
    const char *file = NULL;
    size_t n = 0;
    won[0] = '\0';
    for (int i = 0; i < GYRE_N_WON && n < text_bytes; i++) {
        const struct gyre_row *row = choice->won[i];
        if (row == NULL)
            continue;
        const bool is_same = row->file == file;
        n += (size_t)snprintf(won + n, text_bytes - n, "%s%s%s%u",
                              is_same        ? ","
                              : file != NULL ? " "
                                             : " (",
                              is_same ? "" : row->file, is_same ? "" : ":", row->line);
        file = row->file;
    }
    if (n > 0 && n < text_bytes)
        snprintf(won + n, text_bytes - n, ")");
    if (run->kernel != NULL)
        snprintf(kernel, sizeof(kernel), ", kernel %s (kernels:%u)", run->kernel, run->row);
    const char *path_name = choice->path == GYRE_PATH_STAGED ? "" : gyre_path_names[choice->path];
    const bool is_mixed =
        call->coll != GYRE_COLL_SEND_RECV && gyre_tuner_mixes_protos(&cache->facts, choice);
    GYRE_INFO(TUNING, "%s %" PRIu64 " B: %s%s %s%s%s%s%s, %u channels, tiles of %u B%s%s%s",
              gyre_collectives[call->coll].name, n_bytes, choice->algorithm->name,
              choice->algorithm->given != NULL ? " (from the file)" : "",
              gyre_proto_names[choice->proto], is_mixed ? "/" : "",
              is_mixed ? gyre_proto_names[choice->net_proto] : "", path_name[0] != '\0' ? " " : "",
              path_name, choice->n_channels, choice->tile_bytes, prediction, won, kernel);
}

gyre_status gyre_plan_describe(struct gyre_plan_cache *cache, const struct gyre_call *call,
                               struct gyre_plan_summary *summary_out)
{
    struct gyre_call found = *call;
    struct gyre_choice choice;
    const struct gyre_variants *variants;
    uint16_t rank_of[2];
    gyre_window_find(cache->windows, cache->facts.n_ranks, &found);
    GYRE_TRY(gyre_plan_choose(cache, &found, &choice, &variants, rank_of));
    /* If copy engines carry the call, a kernel copies only this rank's own block. */
    struct gyre_plan_summary summary = {
        .n_channels = choice.n_channels,
        .slot_bytes = choice.tile_bytes,
        .n_blocks = choice.path == GYRE_PATH_COPY_ENGINE &&
                            gyre_program_copy_tail(variants->programs[0]) == 0
                        ? GYRE_COPY_BLOCKS
                        : choice.n_channels * variants->most_workers};
    summary.predicted_us =
        predict_us(cache, call->coll, &choice, call->count * gyre_dtype_bytes(call->dtype));
    snprintf(summary.algorithm, sizeof(summary.algorithm), "%s", choice.algorithm->name);
    snprintf(summary.proto, sizeof(summary.proto), "%s", gyre_proto_names[choice.proto]);
    if (cache->facts.is_proxied)
        snprintf(summary.net_proto, sizeof(summary.net_proto), "%s",
                 gyre_proto_names[choice.net_proto]);
    snprintf(summary.path, sizeof(summary.path), "%s", gyre_path_names[choice.path]);
    snprintf(summary.transports, sizeof(summary.transports), "%s", cache->links->summary);
    *summary_out = summary;
    return GYRE_SUCCESS;
}
