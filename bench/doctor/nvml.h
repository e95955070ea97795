/* SPDX-License-Identifier: Apache-2.0
 *
 * What NVML says about the health of the GPUs: ECC errors, memory rows, clocks and why they are
 * low, and the PCI link. NVML is opened with dlopen(); the build needs neither its header nor its
 * library.
 */
#ifndef GYRE_BENCH_DOCTOR_NVML_H
#define GYRE_BENCH_DOCTOR_NVML_H

#include "core/foundation/base/status.h"

#include <stdint.h>

#define BENCH_NVML_MAX_GPUS 64

/* Numbers are -1 if NVML or the GPU does not tell them. */
struct bench_nvml_gpu {
    char bus_id[32];        /* "0000:18:00.0" */
    int64_t has_ecc;        /* 0 or 1 */
    int64_t n_corrected;    /* ECC errors since the driver was loaded */
    int64_t n_uncorrected;  /* likewise */
    int64_t n_rows_pending; /* 1 = memory rows are replaced at the next reset */
    int64_t n_rows_failed;  /* 1 = a row could not be replaced */
    int64_t sm_mhz;         /* now */
    int64_t most_sm_mhz;
    int64_t reasons; /* bits of nvmlClocksThrottleReasons */
    int64_t celsius;
    int64_t width; /* lanes of the PCI link now */
    int64_t most_width;
    int64_t generation; /* of the PCI link now */
    int64_t most_generation;
    int64_t n_replays; /* packets that the PCI link sent again since the start */
};

/** bench_nvml_read - all GPUs that NVML shows. @root: below another root the library is
 * ROOT/lib/libnvidia-ml.so.1, so that tests can have one of their own; "" = this machine's.
 * @gpus_out: BENCH_NVML_MAX_GPUS.
 * Errors: UNSUPPORTED (no library, or a symbol is missing), DEVICE (NVML does not start). */
gyre_status bench_nvml_read(const char *root, struct bench_nvml_gpu *gpus_out, int *n_out);

/** bench_nvml_reasons - the reasons why clocks are low, in words: "power brake, too hot". Idle GPUs
 * have low clocks for no bad reason, so that bit is left out. @is_bad_out: a fault of the machine
 * and no setting. Returns text_out. */
const char *bench_nvml_reasons(int64_t reasons, bool *is_bad_out, char *text_out,
                               size_t text_bytes);

#endif
