/* SPDX-License-Identifier: Apache-2.0
 *
 * Ceilings from rates, by the table in bench/limits/ceiling.h.
 */
#include "bench/limits/ceiling.h"

#include <math.h>
#include <stdbool.h>

const char *const bench_ceiling_names[BENCH_N_CEILINGS] = {
#define CEILING_NAME(name, first, second) #name,
    BENCH_CEILING_TABLE(CEILING_NAME)
#undef CEILING_NAME
};

static bool is_rate(double gbytes_per_s)
{
    return isfinite(gbytes_per_s) && gbytes_per_s > 0;
}

double bench_ceiling_of_phases(double reduce_scatter_gbytes_per_s, double all_gather_gbytes_per_s)
{
    if (!is_rate(reduce_scatter_gbytes_per_s) || !is_rate(all_gather_gbytes_per_s))
        return 0;
    return 2 / (1 / reduce_scatter_gbytes_per_s + 1 / all_gather_gbytes_per_s);
}

double bench_ceiling_of(enum bench_ceiling ceiling, const double gbytes_per_s[BENCH_N_WAYS])
{
    static const enum bench_way phases[BENCH_N_CEILINGS][2] = {
#define CEILING_PHASES(name, first, second) {BENCH_WAY_##first, BENCH_WAY_##second},
        BENCH_CEILING_TABLE(CEILING_PHASES)
#undef CEILING_PHASES
    };
    return bench_ceiling_of_phases(gbytes_per_s[phases[ceiling][0]],
                                   gbytes_per_s[phases[ceiling][1]]);
}
