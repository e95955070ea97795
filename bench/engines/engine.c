/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of engines that this build can compare gyre with.
 */
#include "bench/engines/engine.h"

#include <string.h>

gyre_status bench_engine_find(const char *name, const struct bench_engine_ops **ops_out)
{
    if (strcmp(name, bench_engine_old.name) == 0) {
        *ops_out = &bench_engine_old;
        return GYRE_SUCCESS;
    }
#ifdef GYRE_BENCH_WITH_MPI
    if (strcmp(name, bench_engine_mpi.name) == 0) {
        *ops_out = &bench_engine_mpi;
        return GYRE_SUCCESS;
    }
#endif
#ifdef GYRE_BENCH_WITH_NCCL
    if (strcmp(name, bench_engine_nccl.name) == 0) {
        *ops_out = &bench_engine_nccl;
        return GYRE_SUCCESS;
    }
#endif
    return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                     "--compare %s: this bench was built without it; a build %s has it", name,
                     strcmp(name, "mpi") == 0 ? "on a machine with MPI" : "with GYRE_CUDA=ON");
}
