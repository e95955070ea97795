/* SPDX-License-Identifier: Apache-2.0
 *
 * Ceilings of a collective's busbw, derived from measured rates of a link. Pure.
 */
#ifndef GYRE_BENCH_CEILING_H
#define GYRE_BENCH_CEILING_H

/* How data gets to the next GPU: that GPU's SMs load it, this GPU's SMs store it, or a copy engine
 * moves it. */
enum bench_way { BENCH_WAY_PULL, BENCH_WAY_PUSH, BENCH_WAY_COPY_ENGINE, BENCH_N_WAYS };

/* Ceilings of busbw. An all-reduce has two phases, and each may move data in another way. All other
 * collectives have one phase, which has the same ceiling as two phases that move data in the same
 * way. X(name, way of the first phase, way of the second phase) */
#define BENCH_CEILING_TABLE(X)                        \
    X(pull, PULL, PULL)                               \
    X(push, PUSH, PUSH)                               \
    X(copy_engine, COPY_ENGINE, COPY_ENGINE)          \
    X(all_reduce_pull_push, PULL, PUSH)               \
    X(all_reduce_push_push, PUSH, PUSH)               \
    X(all_reduce_push_copy_engine, PUSH, COPY_ENGINE) \
    X(all_reduce_copy_engine_copy_engine, COPY_ENGINE, COPY_ENGINE)

enum bench_ceiling {
#define BENCH_CEILING_ENUM(name, first, second) BENCH_CEILING_##name,
    BENCH_CEILING_TABLE(BENCH_CEILING_ENUM)
#undef BENCH_CEILING_ENUM
        BENCH_N_CEILINGS
};

extern const char *const bench_ceiling_names[BENCH_N_CEILINGS];

/** bench_ceiling_of - a ceiling from the rates of the ways.
 * @gbytes_per_s: by enum bench_way, for one direction of one GPU's link. Returns as
 * bench_ceiling_of_phases(). */
double bench_ceiling_of(enum bench_ceiling ceiling, const double gbytes_per_s[BENCH_N_WAYS]);

/** bench_ceiling_of_phases - the busbw that an all-reduce of two phases (reduce-scatter,
 * all-gather) cannot exceed. Both phases move the same bytes one after the other, so their times
 * add up, and the result is the harmonic mean of the two rates.
 * @reduce_scatter_gbytes_per_s, @all_gather_gbytes_per_s: for one direction of one GPU's link.
 * Returns GB/s, or 0 if a rate is not a positive finite number (it was not measured). */
double bench_ceiling_of_phases(double reduce_scatter_gbytes_per_s, double all_gather_gbytes_per_s);

#endif
