/* SPDX-License-Identifier: Apache-2.0
 *
 * Types are declared here, as in NVML's public API reference.
 */
#include "bench/doctor/trial.h"

#include "core/gyre_model.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef void *device;

struct pci_info {
    char bus_id_legacy[16];
    unsigned numbers[5];
    char bus_id[32];
};
_Static_assert(sizeof(struct pci_info) == 68, "layout of nvmlPciInfo_t, version 3");

enum { OK = 0, CLOCK_SM = 1, ECC_CORRECTED = 0, ECC_UNCORRECTED = 1, ECC_VOLATILE = 0 };

/* X(member, symbol, is required, parameters). Functions return an int, 0 = success. */
#define NVML_TABLE(X)                                                                            \
    X(init, nvmlInit_v2, 1, (void))                                                              \
    X(shutdown, nvmlShutdown, 1, (void))                                                         \
    X(get_count, nvmlDeviceGetCount_v2, 1, (unsigned *))                                         \
    X(get_device, nvmlDeviceGetHandleByIndex_v2, 1, (unsigned, device *))                        \
    X(get_pci, nvmlDeviceGetPciInfo_v3, 1, (device, struct pci_info *))                          \
    X(get_ecc_mode, nvmlDeviceGetEccMode, 0, (device, int *, int *))                             \
    X(get_ecc, nvmlDeviceGetTotalEccErrors, 0, (device, int, int, unsigned long long *))         \
    X(get_rows, nvmlDeviceGetRemappedRows, 0,                                                    \
      (device, unsigned *, unsigned *, unsigned *, unsigned *))                                  \
    X(get_clock, nvmlDeviceGetClockInfo, 0, (device, int, unsigned *))                           \
    X(get_most_clock, nvmlDeviceGetMaxClockInfo, 0, (device, int, unsigned *))                   \
    X(get_reasons, nvmlDeviceGetCurrentClocksThrottleReasons, 0, (device, unsigned long long *)) \
    X(get_temperature, nvmlDeviceGetTemperature, 0, (device, int, unsigned *))                   \
    X(get_width, nvmlDeviceGetCurrPcieLinkWidth, 0, (device, unsigned *))                        \
    X(get_most_width, nvmlDeviceGetMaxPcieLinkWidth, 0, (device, unsigned *))                    \
    X(get_generation, nvmlDeviceGetCurrPcieLinkGeneration, 0, (device, unsigned *))              \
    X(get_most_generation, nvmlDeviceGetMaxPcieLinkGeneration, 0, (device, unsigned *))          \
    X(get_replays, nvmlDeviceGetPcieReplayCounter, 0, (device, unsigned *))

struct nvml {
#define NVML_MEMBER(member, symbol, is_required, parameters) int(*member) parameters;
    NVML_TABLE(NVML_MEMBER)
#undef NVML_MEMBER
};

typedef int get_number(device gpu, unsigned *number);
typedef int get_of_kind(device gpu, int kind, unsigned *number);

static int64_t ask(get_number *get, device gpu)
{
    unsigned number = 0;
    return get != NULL && get(gpu, &number) == OK ? (int64_t)number : -1;
}

static int64_t ask_kind(get_of_kind *get, device gpu, int kind)
{
    unsigned number = 0;
    return get != NULL && get(gpu, kind, &number) == OK ? (int64_t)number : -1;
}

static int64_t ask_ecc(const struct nvml *nvml, device gpu, int kind)
{
    unsigned long long number = 0;
    return nvml->get_ecc != NULL && nvml->get_ecc(gpu, kind, ECC_VOLATILE, &number) == OK &&
                   number <= INT64_MAX
               ? (int64_t)number
               : -1;
}

static bool read_gpu(const struct nvml *nvml, unsigned index, struct bench_nvml_gpu *out)
{
    device gpu = NULL;
    unsigned long long reasons = 0;
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    int now = 0, next = 0;
    struct pci_info pci;
    memset(&pci, 0, sizeof(pci));
    *out = (struct bench_nvml_gpu){.has_ecc = -1, .n_rows_pending = -1, .n_rows_failed = -1};
    if (nvml->get_device(index, &gpu) != OK || nvml->get_pci(gpu, &pci) != OK)
        return false;
    pci.bus_id[sizeof(pci.bus_id) - 1] = '\0';
    if (gyre_topo_bus_id_parse(pci.bus_id, out->bus_id) != GYRE_SUCCESS)
        snprintf(out->bus_id, sizeof(out->bus_id), "GPU %u", index);
    if (nvml->get_ecc_mode != NULL && nvml->get_ecc_mode(gpu, &now, &next) == OK)
        out->has_ecc = now;
    if (nvml->get_rows != NULL &&
        nvml->get_rows(gpu, &corrected, &uncorrected, &pending, &failed) == OK) {
        out->n_rows_pending = (int64_t)pending;
        out->n_rows_failed = (int64_t)failed;
    }
    out->n_corrected = ask_ecc(nvml, gpu, ECC_CORRECTED);
    out->n_uncorrected = ask_ecc(nvml, gpu, ECC_UNCORRECTED);
    out->sm_mhz = ask_kind(nvml->get_clock, gpu, CLOCK_SM);
    out->most_sm_mhz = ask_kind(nvml->get_most_clock, gpu, CLOCK_SM);
    out->reasons = nvml->get_reasons != NULL && nvml->get_reasons(gpu, &reasons) == OK
                       ? (int64_t)(reasons & INT64_MAX)
                       : -1;
    out->celsius = ask_kind(nvml->get_temperature, gpu, 0);
    out->width = ask(nvml->get_width, gpu);
    out->most_width = ask(nvml->get_most_width, gpu);
    out->generation = ask(nvml->get_generation, gpu);
    out->most_generation = ask(nvml->get_most_generation, gpu);
    out->n_replays = ask(nvml->get_replays, gpu);
    return true;
}

gyre_status bench_nvml_read(const char *root, struct bench_nvml_gpu *gpus_out, int *n_out)
{
    char path[512] = "libnvidia-ml.so.1";
    struct nvml nvml;
    unsigned n_gpus = 0;
    int n = 0;
    if (root[0] != '\0')
        snprintf(path, sizeof(path), "%.400s/lib/libnvidia-ml.so.1", root);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "no NVML: %s", dlerror());
    const char *missing = NULL;
    void *symbol; /* ISO C has no cast to a function. */
#define NVML_LOAD(member, name, is_required, parameters)    \
    symbol = dlsym(library, #name);                         \
    memcpy(&nvml.member, &symbol, sizeof(symbol));          \
    if (symbol == NULL && (is_required) && missing == NULL) \
        missing = #name;
    NVML_TABLE(NVML_LOAD)
#undef NVML_LOAD
    gyre_status status = GYRE_SUCCESS;
    if (missing != NULL) {
        status = gyre_fail(GYRE_ERROR_UNSUPPORTED, "%s has no %s", path, missing);
    } else if (nvml.init() != OK) {
        status = gyre_fail(GYRE_ERROR_DEVICE, "nvmlInit fails: the driver is not loaded, or is of "
                                              "another version than its library (gpu.driver)");
    } else {
        if (nvml.get_count(&n_gpus) != OK)
            status = gyre_fail(GYRE_ERROR_DEVICE, "nvmlDeviceGetCount fails");
        for (unsigned i = 0; i < n_gpus && n < BENCH_NVML_MAX_GPUS; i++)
            n += read_gpu(&nvml, i, &gpus_out[n]);
        nvml.shutdown();
    }
    dlclose(library);
    if (status == GYRE_SUCCESS)
        *n_out = n;
    return status;
}
