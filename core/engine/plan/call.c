/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/plan/plan.h"

#include "core/engine/plan/tuner/tuner.h"
#include "core/foundation/base/param.h"
#include "core/foundation/base/util.h"

#include <string.h>

void gyre_window_find(const struct gyre_windows *windows, uint32_t n_ranks, struct gyre_call *call)
{
    const bool has_blocks =
        call->coll == GYRE_COLL_ALL_GATHER || call->coll == GYRE_COLL_ALL_TO_ALL;
    const uintptr_t at = (uintptr_t)call->recv;
    const struct gyre_window_entry *entry = windows->newest;
    call->window = NULL;
    call->window_offset = 0;
    if (entry == NULL ||
        (!has_blocks && call->coll != GYRE_COLL_ALL_REDUCE && call->coll != GYRE_COLL_BROADCAST))
        return;
    const uint64_t n_bytes =
        call->count * gyre_dtype_bytes(call->dtype) * (has_blocks ? (uint64_t)n_ranks : 1);
    for (; entry != NULL; entry = entry->next) {
        const uintptr_t base = (uintptr_t)entry->base;
        if (entry->is_remote || at < base || at - base > entry->n_bytes ||
            n_bytes > entry->n_bytes - (at - base))
            continue;
        call->window = entry;
        call->window_offset = at - base;
        return;
    }
}

struct gyre_reduction gyre_call_reduction(const struct gyre_call *call, uint32_t n_ranks)
{
    struct gyre_reduction reduction = {
        .dtype = (uint8_t)call->dtype, .op = (uint8_t)call->op, .divisor = 1};
    if (!gyre_collectives[call->coll].reduces) {
        reduction.op = GYRE_SUM;
    } else if ((int)call->op >= GYRE_FIRST_USER_OP) {
        reduction.op = GYRE_SUM;
        reduction.premultiply = 1;
        reduction.scalar = call->scalar;
    } else if (call->op == GYRE_AVG) {
        reduction.op = GYRE_SUM;
        if (gyre_dtype_is_float(call->dtype)) {
            reduction.premultiply = n_ranks > 1;
            reduction.scalar = gyre_premultiply_scalar(call->dtype, n_ranks);
        } else {
            reduction.divisor = n_ranks;
        }
    }
    return reduction;
}

#define MAX_CHANNELS 64

/* An empty list allows everything. It becomes 0, so that the call equals one without options. */
static uint32_t limit_of(uint32_t mask)
{
    return mask == UINT32_MAX ? 0 : mask;
}

gyre_status gyre_call_options_parse(enum gyre_collective coll, const gyre_call_args *args,
                                    struct gyre_call_options *options_out)
{
    const char *algorithm = args->algorithm, *protocol = args->protocol;
    const int least = args->min_channels, most = args->max_channels;
    struct gyre_filter filter = {.algo_source = NULL};
    struct gyre_filter_words words = {.algos = algorithm,
                                      .algo_source = "the call's algorithm",
                                      .proto_source = "the call's protocol"};
    if ((algorithm != NULL && strlen(algorithm) >= GYRE_PARAM_MAX_BYTES) ||
        (protocol != NULL && strlen(protocol) >= GYRE_PARAM_MAX_BYTES))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "the call's algorithm or protocol has more than %d letters",
                         GYRE_PARAM_MAX_BYTES - 1);
    if (protocol != NULL && strchr(protocol, '/') != NULL)
        return gyre_fail(
            GYRE_ERROR_INVALID_ARGUMENT,
            "the call's protocol \"%.40s\": one call cannot set protocols between hosts", protocol);
    if (least < 0 || least > MAX_CHANNELS || most < 0 || most > MAX_CHANNELS ||
        (most > 0 && least > most))
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "the call's channels are %d..%d, legal is 1..%d, or 0 for no limit", least,
                         most, MAX_CHANNELS);
    const gyre_status status = gyre_filter_override(&words, &filter);
    if (status != GYRE_SUCCESS && args->prefers == 0)
        return status;
    const uint32_t algorithms = status == GYRE_SUCCESS ? limit_of(filter.algorithms[coll]) : 0;
    words.algos = NULL;
    words.protos = protocol;
    GYRE_TRY(gyre_filter_override(&words, &filter));
    *options_out = (struct gyre_call_options){.algorithms = algorithms,
                                              .protos = limit_of(filter.protos[coll]),
                                              .min_channels = (uint8_t)least,
                                              .max_channels = (uint8_t)most,
                                              .prefers = args->prefers != 0 && algorithms != 0};
    return GYRE_SUCCESS;
}

uint32_t gyre_call_options_hash(const struct gyre_call_options *options)
{
    if (!gyre_call_options_any(options))
        return 0;
    const uint64_t hash = gyre_hash(GYRE_HASH_INIT, options, sizeof(*options));
    return (uint32_t)(hash ^ hash >> 32) | 1U; /* never 0 */
}

void gyre_call_options_apply(const struct gyre_call_options *options, enum gyre_collective coll,
                             struct gyre_filter *filter, struct gyre_tuner_facts *facts)
{
    if (options->algorithms != 0) {
        filter->algorithms[coll] &= options->algorithms;
        filter->is_forced[coll] = true;
        filter->algo_source = "the call's algorithm";
    }
    if (options->protos != 0) {
        filter->protos[coll] &= options->protos;
        filter->proto_source = "the call's protocol";
    }
    if (options->max_channels != 0 && options->max_channels < facts->max_channels)
        facts->max_channels = options->max_channels;
    if (options->min_channels > facts->min_channels)
        facts->min_channels = options->min_channels;
    if (facts->min_channels > facts->max_channels)
        facts->min_channels = facts->max_channels;
}
