/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/hog.h"
#include "tests/stand_in_gpu/add_kernel.h"

__attribute__((constructor)) static void add_hog()
{
    stand_in_add<struct hog_args>(hog_kernel);
}
