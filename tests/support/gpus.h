/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts GPUs without loading a driver, because the caller may fork.
 */
#ifndef GYRE_TESTS_GPUS_H
#define GYRE_TESTS_GPUS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/** Device files, or fewer in CUDA_VISIBLE_DEVICES, or stand-in GPUs. */
static inline int test_n_gpus(void)
{
#ifdef TEST_STAND_IN_GPU
    const char *n_stand_ins = getenv("STAND_IN_GPUS");
    return n_stand_ins != NULL ? atoi(n_stand_ins) : TEST_STAND_IN_GPU;
#else
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int n_gpus = 0, n_named = visible != NULL && visible[0] != '\0';
    char path[32];
    for (snprintf(path, sizeof(path), "/dev/nvidia%d", n_gpus); access(path, F_OK) == 0;
         snprintf(path, sizeof(path), "/dev/nvidia%d", n_gpus))
        n_gpus++;
    for (const char *at = visible; at != NULL && (at = strchr(at, ',')) != NULL; at++)
        n_named++;
    return visible != NULL && n_named < n_gpus ? n_named : n_gpus;
#endif
}

#endif
