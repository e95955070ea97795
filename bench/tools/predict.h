/* SPDX-License-Identifier: Apache-2.0
 *
 * --predict: the time that the simulator predicts beside the time that is measured, and the choice
 * of the tuner beside the fastest of the choices that were tried.
 */
#ifndef GYRE_BENCH_PREDICT_H
#define GYRE_BENCH_PREDICT_H

#include "bench/driver/rank.h"

/** bench_predict - --predict: for every size what was predicted, what was measured and what the
 * best forced choice would have given. Rank 0 prints. Collective. */
gyre_status bench_predict(struct bench_rank *rank);

#endif
