/* SPDX-License-Identifier: Apache-2.0
 *
 * One trial serves copies over PCI, memory shared between processes, and dma-buf.
 */
#include "bench/doctor/doctor.h"

#include "bench/command/command.h"
#include "bench/doctor/trial.h"
#include "core/foundation/base/text.h"

#include <string.h>

/* Without persistence mode the driver needs seconds to start each GPU. */
static const struct bench_cuda_limits limits = {.start_ms = 60000, .gpu_ms = 20000};
#define PAIRS_MS 30000

static void say_copies(struct bench_doctor *doctor, const struct bench_cuda_gpu *gpu)
{
    const double slower = gpu->to_gbytes_per_s < gpu->from_gbytes_per_s ? gpu->to_gbytes_per_s
                                                                        : gpu->from_gbytes_per_s;
    double limit = 0; /* 0 = unknown */
    const char *of_limit = "";
    char lower[32] = "";
    struct bench_pci_link link;
    for (size_t i = 0; gpu->bus_id[i] != '\0' && i < sizeof(lower) - 1; i++)
        lower[i] = gyre_text_lower(gpu->bus_id[i]);
    if (bench_pci_read_link(lower, &link) == BENCH_READ_OK)
        limit = bench_pci_gbit_per_s(link.most_width, link.most_gt_per_s) / 8;
    if (limit > 0)
        of_limit = bench_text("; the link could carry %.4g GB/s", limit);
    if (gpu->copy_cause[0] != '\0')
        bench_fail(doctor, gpu->bus_id, "look at gpu.xid, gpu.ecc and host.iommu",
                   "copies between host memory and the GPU: %.159s", gpu->copy_cause);
    else if (slower < limit / 2)
        bench_warn(doctor, gpu->bus_id,
                   "look at gpu.link and gpu.pcie; numactl --cpunodebind on the GPU's node; seat "
                   "the GPU again",
                   "32 MiB from pinned memory at %.4g GB/s, back at %.4g GB/s%s",
                   gpu->to_gbytes_per_s, gpu->from_gbytes_per_s, of_limit);
    else
        bench_ok(
            doctor, gpu->bus_id,
            "32 MiB from pinned memory at %.4g GB/s, back at %.4g GB/s%s; every byte was checked",
            gpu->to_gbytes_per_s, gpu->from_gbytes_per_s, of_limit);
}

static void say_ipc_or_dmabuf(struct bench_doctor *doctor, const struct bench_cuda_gpu *gpu)
{
    const bool is_ipc = doctor->check == BENCH_CHECK_gpu_ipc, has_nic = doctor->machine.has_nic;
    const char *cause = is_ipc ? gpu->ipc_cause : gpu->dmabuf_cause;
    if (cause[0] == '\0')
        bench_ok(
            doctor, gpu->bus_id, "%s",
            is_ipc
                ? "a second process opened 4096 bytes of this GPU (cuIpcOpenMemHandle) and read "
                  "them right"
                : "64 KiB of this GPU were exported as a dma-buf (cuMemGetHandleForAddressRange)");
    else if (is_ipc)
        bench_warn(doctor, gpu->bus_id,
                   "containers: docker run --ipc host --pid host, and the same GPUs in both; ranks "
                   "of other processes then share host memory",
                   "a second process cannot open this GPU's memory: %.159s", cause);
    else
        bench_say(doctor, has_nic ? BENCH_WARN : BENCH_SKIPPED, gpu->bus_id,
                  "the open NVIDIA kernel driver has dma-buf: apt install nvidia-open; or modprobe "
                  "nvidia-peermem (rdma.peermem)",
                  "no dma-buf export%s: %.159s",
                  has_nic ? "" : ", which only an RDMA adapter would need", cause);
}

void bench_check_gpu_trial(struct bench_doctor *doctor)
{
    const char *reason = bench_root[0] != '\0' && !bench_exists("/lib/libcuda.so.1")
                             ? "the root has no lib/libcuda.so.1"
                         : doctor->launcher.local_process != 0
                             ? "the first process of the host tries"
                             : NULL;
    if (reason != NULL) {
        bench_skip(doctor, "%s", reason);
        return;
    }
    struct bench_cuda_results *results = doctor->cuda;
    if (results == NULL) {
        results = doctor->cuda = bench_keep(1, sizeof(*results));
        results->status =
            (int32_t)bench_cuda_trial(bench_root, &limits, results->gpus, &results->n);
        snprintf(results->cause, sizeof(results->cause), "%.255s", gyre_cause());
    }
    for (int i = 0; i < results->n; i++) {
        const struct bench_cuda_gpu *gpu = &results->gpus[i];
        if (gpu->busy_cause[0] != '\0')
            bench_unknown(doctor, gpu->bus_id,
                          "again when the GPU is free; nvidia-smi shows who uses it",
                          "not tried, because the GPU is in use: %.159s", gpu->busy_cause);
        else if (doctor->check == BENCH_CHECK_gpu_copies)
            say_copies(doctor, gpu);
        else
            say_ipc_or_dmabuf(doctor, gpu);
    }
    if (results->status == (int32_t)GYRE_ERROR_UNSUPPORTED)
        bench_skip(doctor, "%s", results->cause);
    else if (results->status != (int32_t)GYRE_SUCCESS)
        bench_fail(doctor, NULL, "look at gpu.driver, gpu.device_files and gpu.xid; nvidia-smi -q",
                   "%s (GPUs that were tried before: %d)", results->cause, results->n);
    else if (results->n == 0)
        bench_skip(doctor, "CUDA shows no GPU to this process");
}

void bench_check_gpu_pairs(struct bench_doctor *doctor)
{
    const char *reason =
        bench_root[0] != '\0' ? "nothing is measured with --root"
        : !doctor->machine.has_gpu && !doctor->machine.has_gpu_driver ? "no NVIDIA GPU on PCI"
        : bench_version_cuda() == 0                                   ? "built without CUDA"
        : doctor->launcher.local_process != 0 ? "the first process of the host measures"
                                              : NULL;
    if (reason != NULL) {
        bench_skip(doctor, "%s", reason);
        return;
    }
    struct bench_matrix *matrix = &doctor->gpus;
    struct bench_pairs *pairs = bench_keep(1, sizeof(*pairs));
    const gyre_status status =
        bench_pairs_run(bench_pairs_measure, GYRE_DEVICE_CUDA, PAIRS_MS, pairs);
    const int n = pairs->n < 2 ? 0 : pairs->n;
    bench_matrix_open(matrix, n, "copies between GPUs");
    for (int i = 0; i < n; i++) {
        snprintf(matrix->names[i], sizeof(matrix->names[i]), "GPU%d", i);
        memcpy(&matrix->latency_us[i * n], pairs->latency_us[i], (size_t)n * sizeof(double));
        memcpy(&matrix->gbytes_per_s[i * n], pairs->gbytes_per_s[i], (size_t)n * sizeof(double));
    }
    matrix->n = n;
    const struct bench_matrix_rates rates = bench_matrix_rates(matrix);
    if (status != GYRE_SUCCESS && pairs->from >= 0)
        bench_fail(doctor, NULL,
                   "look at host.acs and host.iommu; until it is mended: GYRE_P2P_DISABLE=1",
                   "GPU%d to GPU%d: %s%s", pairs->from, pairs->to,
                   status == GYRE_ERROR_TIMEOUT ? "the copy hangs: " : "", gyre_cause());
    else if (status != GYRE_SUCCESS)
        bench_fail(doctor, NULL, "look at gpu.driver, gpu.device_files and gpu.xid",
                   "before the first copy: %s", gyre_cause());
    else if (n == 0)
        bench_skip(doctor, "%d GPU can be used: there is no pair", pairs->n);
    else if (rates.slow >= 0)
        bench_say(doctor, rates.is_slow ? BENCH_WARN : BENCH_OK, NULL,
                  "gyre topo shows how the two are joined; look at gpu.nvlink, gpu.pcie, host.acs",
                  "every pair of %d GPUs copies right; slowest: GPU%d to GPU%d, %.4g GB/s; fastest "
                  "%.4g GB/s",
                  n, rates.slow / n, rates.slow % n, matrix->gbytes_per_s[rates.slow],
                  matrix->gbytes_per_s[rates.fast]);
}
