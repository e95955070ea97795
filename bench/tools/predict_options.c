/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the options that say how a call is simulated.
 */
#include "bench/tools/predict_options.h"

#include "bench/tools/shape_options.h"

bool bench_predict_is_option(int id)
{
    return id >= BENCH_PREDICT_COST && id <= BENCH_PREDICT_DEPTH;
}

bool bench_predict_take(const char *user, int id, const char *value,
                        struct bench_schedule_request *request)
{
    switch (id) {
    case BENCH_PREDICT_COST:
        request->cost = value;
        return true;
    case BENCH_PREDICT_PROTO:
        request->proto = value;
        return true;
    case BENCH_PREDICT_CHANNELS:
        return bench_parse_number(user, "--channels", value, 1, 1024, &request->n_channels);
    case BENCH_PREDICT_TILE:
        return bench_parse_number(user, "--tile", value, 1, 1 << 30, &request->tile_bytes);
    default: /* BENCH_PREDICT_DEPTH */
        return bench_parse_number(user, "--depth", value, 1, 64, &request->depth);
    }
}
