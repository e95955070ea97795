/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the options that say how a call is simulated.
 */
#include "bench/tools/predict_options.h"

#include "bench/driver/options.h"
#include "bench/tools/shape_options.h"
#include "core/foundation/base/text.h"

#define MAX_TILE_BYTES ((size_t)1 << 30)

bool bench_predict_is_option(int id)
{
    return id >= BENCH_PREDICT_COST && id <= BENCH_PREDICT_NET;
}

/* Reads a size, as 65536 or 64K. */
static bool take_tile(const char *user, const char *text, int *tile_bytes_out)
{
    size_t n_bytes;
    if (bench_parse_bytes(text, &n_bytes) != GYRE_SUCCESS || n_bytes < 1 ||
        n_bytes > MAX_TILE_BYTES) {
        fprintf(stderr, "%s: --tile %s: expected a size from 1 to 1G, such as 65536 or 64K\n", user,
                text);
        return false;
    }
    *tile_bytes_out = (int)n_bytes;
    return true;
}

bool bench_predict_net(const char *user, const char *value, enum bench_schedule_net *net_out)
{
    /* The words of GYRE_NET, in any case, as there. */
    for (enum bench_schedule_net net = BENCH_NET_IB; net <= BENCH_NET_SOCKET; net++)
        if (gyre_text_same(value, bench_net_name(net))) {
            *net_out = net;
            return true;
        }
    fprintf(stderr, "%s: --net %s: expected ib (RDMA) or socket (TCP)\n", user, value);
    return false;
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
        return take_tile(user, value, &request->tile_bytes);
    case BENCH_PREDICT_DEPTH:
        return bench_parse_number(user, "--depth", value, 1, 64, &request->depth);
    default: /* BENCH_PREDICT_NET */
        return bench_predict_net(user, value, &request->net);
    }
}
