/* SPDX-License-Identifier: Apache-2.0
 *
 * The measured copies between each pair of GPUs.
 */
#include "bench/command/version.h"
#include "bench/doctor/doctor.h"
#include "bench/doctor/pairs.h"
#include "bench/doctor/pci.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define TIMEOUT_MS 30000 /* starting CUDA on eight GPUs takes several seconds */

/* Copies the measurements into the report's matrix. Returns false if there is no memory. */
static bool keep(struct bench_matrix *matrix, const struct bench_pairs *pairs)
{
    const size_t n = (size_t)pairs->n;
    matrix->names = calloc(n, sizeof(*matrix->names));
    matrix->latency_us = calloc(n * n, sizeof(double));
    matrix->gbytes_per_s = calloc(n * n, sizeof(double));
    if (matrix->names == NULL || matrix->latency_us == NULL || matrix->gbytes_per_s == NULL)
        return false;
    for (size_t i = 0; i < n; i++) {
        snprintf(matrix->names[i], sizeof(matrix->names[i]), "GPU%zu", i);
        for (size_t j = 0; j < n; j++) {
            matrix->latency_us[i * n + j] = pairs->latency_us[i][j];
            matrix->gbytes_per_s[i * n + j] = pairs->gbytes_per_s[i][j];
        }
    }
    snprintf(matrix->what, sizeof(matrix->what), "copies between GPUs");
    matrix->n = pairs->n;
    return true;
}

/* Says how the measured pairs compare. */
static void judge(struct bench_doctor *doctor, const struct bench_pairs *pairs)
{
    double slowest = INFINITY, fastest = 0;
    int from = 0, to = 0;
    for (int i = 0; i < pairs->n; i++)
        for (int j = 0; j < pairs->n; j++) {
            const double rate = pairs->gbytes_per_s[i][j];
            if (i == j || isnan(rate))
                continue;
            fastest = fmax(fastest, rate);
            if (rate < slowest) {
                slowest = rate;
                from = i;
                to = j;
            }
        }
    const bool is_slow = slowest < fastest / 2;
    bench_say(doctor, is_slow ? BENCH_WARN : BENCH_OK, NULL,
              is_slow ? "gyre topo shows how the two are joined; look at gpu.nvlink, gpu.pcie, "
                        "host.acs"
                      : NULL,
              "every pair of %d GPUs copies right; slowest: GPU%d to GPU%d, %.4g GB/s; fastest "
              "%.4g GB/s",
              pairs->n, from, to, slowest, fastest);
}

void bench_check_gpu_pairs(struct bench_doctor *doctor)
{
    const char *reason = doctor->root[0] != '\0' ? "nothing is measured with --root"
                         : !bench_pci_has_gpu(doctor->root) &&
                                 !bench_exists(doctor->root, "/proc/driver/nvidia/version")
                             ? "no NVIDIA GPU on PCI"
                         : bench_version_cuda() == 0 ? "built without CUDA"
                         : doctor->launcher.local_process != 0
                             ? "the first process of the host measures"
                             : NULL;
    if (reason != NULL) {
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "%s", reason);
        return;
    }
    struct bench_pairs *pairs = calloc(1, sizeof(*pairs));
    if (pairs == NULL)
        return;
    const gyre_status status =
        bench_pairs_run(bench_pairs_measure, GYRE_DEVICE_CUDA, TIMEOUT_MS, pairs);
    const bool is_kept = pairs->n < 2 || keep(&doctor->gpus, pairs);
    if (status != GYRE_SUCCESS && pairs->from >= 0)
        bench_say(doctor, BENCH_FAIL, NULL,
                  "look at host.acs and host.iommu; until it is mended: GYRE_P2P_DISABLE=1",
                  "GPU%d to GPU%d: %s%s", pairs->from, pairs->to,
                  status == GYRE_ERROR_TIMEOUT ? "the copy hangs: " : "", gyre_cause());
    else if (status != GYRE_SUCCESS)
        bench_say(doctor, BENCH_FAIL, NULL, "look at gpu.driver, gpu.device_files and gpu.xid",
                  "before the first copy: %s", gyre_cause());
    else if (pairs->n < 2)
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "%d GPU can be used: there is no pair",
                  pairs->n);
    else if (is_kept)
        judge(doctor, pairs);
    free(pairs);
}
