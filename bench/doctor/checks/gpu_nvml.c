/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of GPUs through NVML: memory errors, clocks, and the PCI link.
 */
#include "bench/doctor/doctor.h"
#include "bench/doctor/nvml.h"
#include "bench/doctor/pci.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define TOLERATED_CORRECTED 1000 /* ECC errors that were corrected since the driver was loaded */
#define TOLERATED_REPLAYS   1000

/* Reads the GPUs. Returns their number; says why if there are none. */
static int read_gpus(struct bench_doctor *doctor, struct bench_nvml_gpu *gpus)
{
    int n = 0;
    if (!bench_pci_has_gpu(doctor->root) &&
        !bench_exists(doctor->root, "/proc/driver/nvidia/version"))
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "no NVIDIA GPU on PCI");
    else if (bench_nvml_read(doctor->root, gpus, &n) != GYRE_SUCCESS)
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "%s", gyre_cause());
    else if (n == 0)
        bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "NVML shows no GPU to this process");
    return n;
}

/* NVML tells some numbers of some GPUs only: those are -1, which no report should show. */
static const char *number_of(int64_t number, char *text_out, size_t text_bytes)
{
    if (number < 0)
        snprintf(text_out, text_bytes, "?");
    else
        snprintf(text_out, text_bytes, "%" PRId64, number);
    return text_out;
}

static void check_ecc(struct bench_doctor *doctor, const struct bench_nvml_gpu *gpu)
{
    char uncorrected[32];
    if (gpu->n_uncorrected > 0 || gpu->n_rows_failed > 0)
        bench_say(doctor, BENCH_FAIL, gpu->bus_id,
                  "nvidia-smi -q -d ECC,ROW_REMAPPER -i GPU; reset the GPU (nvidia-smi -r -i GPU); "
                  "if errors come back, have it replaced",
                  "NVML: %s memory errors that ECC could not correct%s",
                  number_of(gpu->n_uncorrected, uncorrected, sizeof(uncorrected)),
                  gpu->n_rows_failed > 0 ? "; a row could not be replaced" : "");
    else if (gpu->n_rows_pending > 0)
        bench_say(doctor, BENCH_WARN, gpu->bus_id, "nvidia-smi -r -i GPU, or reboot",
                  "NVML: bad memory rows are replaced at the next reset of the GPU");
    else if (gpu->n_corrected > TOLERATED_CORRECTED)
        bench_say(doctor, BENCH_WARN, gpu->bus_id,
                  "nvidia-smi -q -d ECC,ROW_REMAPPER -i GPU; watch whether the number grows",
                  "NVML: ECC corrected %" PRId64 " memory errors since the driver was loaded",
                  gpu->n_corrected);
    else if (gpu->has_ecc < 0)
        bench_say(doctor, BENCH_SKIPPED, gpu->bus_id, NULL, "NVML: this GPU has no ECC");
    else if (gpu->has_ecc == 0)
        bench_say(doctor, BENCH_SKIPPED, gpu->bus_id, NULL,
                  "NVML: ECC is off, so memory errors are not counted (nvidia-smi -e 1 -i GPU)");
    else if (gpu->n_corrected < 0 || gpu->n_uncorrected < 0)
        bench_say(doctor, BENCH_UNKNOWN, gpu->bus_id, "nvidia-smi -q -d ECC -i GPU",
                  "NVML: ECC is on, but the number of memory errors cannot be read");
    else
        bench_say(doctor, BENCH_OK, gpu->bus_id, NULL,
                  "NVML: ECC is on; errors since the driver was loaded: %" PRId64
                  " corrected, %" PRId64 " not",
                  gpu->n_corrected, gpu->n_uncorrected);
}

void bench_check_gpu_ecc(struct bench_doctor *doctor)
{
    struct bench_nvml_gpu gpus[BENCH_NVML_MAX_GPUS];
    const int n = read_gpus(doctor, gpus);
    for (int i = 0; i < n; i++)
        check_ecc(doctor, &gpus[i]);
}

void bench_check_gpu_clocks(struct bench_doctor *doctor)
{
    struct bench_nvml_gpu gpus[BENCH_NVML_MAX_GPUS];
    const int n = read_gpus(doctor, gpus);
    for (int i = 0; i < n; i++) {
        const struct bench_nvml_gpu *gpu = &gpus[i];
        char reasons[256], most[32], celsius[32];
        bool is_bad = false;
        bench_nvml_reasons(gpu->reasons, &is_bad, reasons, sizeof(reasons));
        const char *fix =
            is_bad ? "look at fans, air flow, power supplies and cables; nvidia-smi -q -d "
                     "PERFORMANCE,TEMPERATURE,POWER -i GPU"
                   : NULL;
        if (gpu->sm_mhz < 0 || gpu->reasons < 0)
            bench_say(doctor, BENCH_UNKNOWN, gpu->bus_id, NULL,
                      "NVML does not tell the clocks of this GPU, or why they are low");
        else
            bench_say(doctor, is_bad ? BENCH_WARN : BENCH_OK, gpu->bus_id, fix,
                      "NVML: %" PRId64 " of %s MHz, %s degrees; %s%s", gpu->sm_mhz,
                      number_of(gpu->most_sm_mhz, most, sizeof(most)),
                      number_of(gpu->celsius, celsius, sizeof(celsius)),
                      reasons[0] == '\0' ? "nothing but idleness holds the clocks down"
                                         : "the clocks are held down: ",
                      reasons);
    }
}

void bench_check_gpu_link(struct bench_doctor *doctor)
{
    struct bench_nvml_gpu gpus[BENCH_NVML_MAX_GPUS];
    const int n = read_gpus(doctor, gpus);
    for (int i = 0; i < n; i++) {
        const struct bench_nvml_gpu *gpu = &gpus[i];
        char generation[32], most_generation[32], most_width[32], replays[32];
        number_of(gpu->generation, generation, sizeof(generation));
        number_of(gpu->most_generation, most_generation, sizeof(most_generation));
        number_of(gpu->most_width, most_width, sizeof(most_width));
        number_of(gpu->n_replays, replays, sizeof(replays));
        const bool is_bad = gpu->width < gpu->most_width || gpu->n_replays > TOLERATED_REPLAYS;
        const bool is_known = gpu->most_width >= 0 && gpu->n_replays >= 0;
        if (gpu->width < 0)
            bench_say(doctor, BENCH_SKIPPED, gpu->bus_id, NULL,
                      "NVML does not tell the PCI link of this GPU");
        else
            bench_say(doctor,
                      is_bad     ? BENCH_WARN
                      : is_known ? BENCH_OK
                                 : BENCH_UNKNOWN,
                      gpu->bus_id,
                      is_bad ? "seat the GPU and its riser again; look at the slot's setting in "
                               "the firmware; dmesg | grep -i aer"
                             : NULL,
                      "NVML: generation %s of %s, x%" PRId64
                      " of x%s, %s packets were sent again%s",
                      generation, most_generation, gpu->width, most_width, replays,
                      is_known ? "" : "; NVML does not tell what stands as ?");
    }
}
