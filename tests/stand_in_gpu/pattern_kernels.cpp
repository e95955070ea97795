/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/check/pattern_cuda.h"
#include "tests/stand_in_gpu/add_kernel.h"

__attribute__((constructor)) static void add_kernels()
{
    for (const auto &kernels : gyre_cuda_kernels_pattern)
        for (const void *kernel : kernels)
            stand_in_add<struct gyre_cuda_args_pattern>(kernel);
}

/* For the linker, as in kernels.cpp. */
extern "C" void stand_in_kernels_of_patterns() {}
