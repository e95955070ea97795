/* SPDX-License-Identifier: Apache-2.0
 *
 * The options that say how a call is simulated. `schedule --predict` and `draw` share them.
 */
#ifndef GYRE_BENCH_TOOLS_PREDICT_OPTIONS_H
#define GYRE_BENCH_TOOLS_PREDICT_OPTIONS_H

#include "bench/tools/schedule_predict.h"

#include <stdbool.h>

enum {
    BENCH_PREDICT_COST = 1100,
    BENCH_PREDICT_PROTO,
    BENCH_PREDICT_CHANNELS,
    BENCH_PREDICT_TILE,
    BENCH_PREDICT_DEPTH,
    BENCH_PREDICT_NET
};

/* For getopt_long(): entries of the table of long options. */
/* clang-format off */
#define BENCH_PREDICT_LONG_OPTIONS                                  \
    {"cost", required_argument, NULL, BENCH_PREDICT_COST},          \
    {"proto", required_argument, NULL, BENCH_PREDICT_PROTO},        \
    {"channels", required_argument, NULL, BENCH_PREDICT_CHANNELS},  \
    {"tile", required_argument, NULL, BENCH_PREDICT_TILE},          \
    {"depth", required_argument, NULL, BENCH_PREDICT_DEPTH},        \
    {"net", required_argument, NULL, BENCH_PREDICT_NET}
/* clang-format on */

/** bench_predict_net - read the name of a network between hosts. A mistake is printed on standard
 * error; then the result is false.
 * @user: as for bench_predict_take(). */
bool bench_predict_net(const char *user, const char *value, enum bench_schedule_net *net_out);

/** bench_predict_is_option - is this the id of one of these options? */
bool bench_predict_is_option(int id);

/** bench_predict_take - read one of these options. A mistake is printed on standard error; then the
 * result is false.
 * @user: name of the tool, which messages begin with. @value: lives as long as the request. */
bool bench_predict_take(const char *user, int id, const char *value,
                        struct bench_schedule_request *request);

#endif
