/* SPDX-License-Identifier: Apache-2.0
 *
 * --predict: the time that the simulator predicts beside the time that is measured, and the choice
 * of the tuner beside the fastest of the choices that were tried.
 */
#ifndef GYRE_BENCH_PREDICT_H
#define GYRE_BENCH_PREDICT_H

#include "bench/driver/rank.h"

/** bench_predict - --predict: print for every size the predicted time, the measured time, and the
 * fastest of the other choices. Rank 0 prints. Collective. */
gyre_status bench_predict(struct bench_rank *rank);

#endif
