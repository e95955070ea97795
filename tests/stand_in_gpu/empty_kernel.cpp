/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/limits/empty_launch.h"
#include "tests/stand_in_gpu/add_kernel.h"

__attribute__((constructor)) static void add_empty()
{
    stand_in_add<struct bench_empty_args>(bench_empty_kernel);
}

/* For the linker, as in kernels.cpp. */
extern "C" void stand_in_kernels_of_benches() {}
