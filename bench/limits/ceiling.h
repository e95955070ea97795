/* SPDX-License-Identifier: Apache-2.0
 *
 * Ceilings of a collective, derived from measured rates of a link. Pure.
 */
#ifndef GYRE_BENCH_CEILING_H
#define GYRE_BENCH_CEILING_H

/* How data gets to a neighbour: its SMs load it, the sender's SMs store it, a copy engine. */
enum bench_way { BENCH_WAY_PULL, BENCH_WAY_PUSH, BENCH_WAY_COPY_ENGINE, BENCH_N_WAYS };

/* Of busbw. An all-reduce has two phases, each of which may go another way; everything else has
 * one, which is the same as two that go the same way. X(name, first phase, second phase) */
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

/** bench_ceiling_of - from the rates of the ways.
 * @gbytes_per_s: by enum bench_way, one direction of one GPU's link. Returns as
 * bench_ceiling_of_phases. */
double bench_ceiling_of(enum bench_ceiling ceiling, const double gbytes_per_s[BENCH_N_WAYS]);

/** bench_ceiling_of_phases - the busbw an all-reduce of two phases (reduce-scatter, all-gather)
 * cannot exceed. Both phases move the same bytes one after the other, so their times add up: the
 * harmonic mean of the two rates.
 * @reduce_scatter_gbytes_per_s, @all_gather_gbytes_per_s: one direction of one GPU's link.
 * Returns GB/s; 0 when a rate is not a positive finite number (not measured). */
double bench_ceiling_of_phases(double reduce_scatter_gbytes_per_s, double all_gather_gbytes_per_s);

#endif
