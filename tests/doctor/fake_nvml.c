/* SPDX-License-Identifier: Apache-2.0
 *
 * Two GPUs, of which the second is sick as FAKE_NVML says: "uncorrected=1", "corrected=5000",
 * "pending=1", "failed=1", "reasons=64", "width=8", "replays=9999", "no_clock=1", "ecc_off=1",
 * "no_counts=1" (memory errors and replays cannot be read), "no_start=1", "absent=1" (no GPU at
 * all).
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pci_info {
    char legacy[16];
    unsigned words[5];
    char bus_id[32];
};

/* `usual` for the first GPU and absent words. */
static unsigned value_of(const void *device, const char *word, unsigned usual)
{
    const char *text = getenv("FAKE_NVML");
    const size_t n = strlen(word);
    if (text == NULL || (uintptr_t)device == 1 || strncmp(text, word, n) != 0 || text[n] != '=')
        return usual;
    return (unsigned)strtoul(text + n + 1, NULL, 10);
}

static int has_counts(const void *device)
{
    return value_of(device, "no_counts", 0) == 0 && value_of(device, "ecc_off", 0) == 0;
}

#define FAKE(name, ...)                                           \
    __attribute__((visibility("default"))) int name(__VA_ARGS__); \
    int name(__VA_ARGS__)

FAKE(nvmlInit_v2, void)
{
    return (int)value_of(NULL, "no_start", 0);
}

FAKE(nvmlShutdown, void)
{
    return 0;
}

FAKE(nvmlDeviceGetCount_v2, unsigned *n)
{
    *n = value_of(NULL, "absent", 0) != 0 ? 0 : 2;
    return 0;
}

FAKE(nvmlDeviceGetHandleByIndex_v2, unsigned index, void **device)
{
    *device = (void *)(uintptr_t)(index + 1);
    return 0;
}

FAKE(nvmlDeviceGetPciInfo_v3, void *device, struct pci_info *info)
{
    memset(info, 0, sizeof(*info));
    snprintf(info->bus_id, sizeof(info->bus_id), "00000000:%X8:00.0", (unsigned)(uintptr_t)device);
    return 0;
}

FAKE(nvmlDeviceGetEccMode, void *device, int *now, int *next)
{
    *now = *next = value_of(device, "ecc_off", 0) == 0;
    return 0;
}

FAKE(nvmlDeviceGetTotalEccErrors, void *device, int kind, int counter, unsigned long long *n)
{
    (void)counter;
    *n = value_of(device, kind == 1 ? "uncorrected" : "corrected", 0);
    return has_counts(device) ? 0 : 3; /* NVML_ERROR_NOT_SUPPORTED */
}

FAKE(nvmlDeviceGetRemappedRows, void *device, unsigned *corrected, unsigned *uncorrected,
     unsigned *pending, unsigned *failed)
{
    *corrected = *uncorrected = 0;
    *pending = value_of(device, "pending", 0);
    *failed = value_of(device, "failed", 0);
    return 0;
}

FAKE(nvmlDeviceGetClockInfo, void *device, int kind, unsigned *mhz)
{
    (void)kind;
    *mhz = 345;
    return value_of(device, "no_clock", 0) != 0 ? 3 : 0; /* NVML_ERROR_NOT_SUPPORTED */
}

FAKE(nvmlDeviceGetMaxClockInfo, void *device, int kind, unsigned *mhz)
{
    (void)device;
    (void)kind;
    *mhz = 1980;
    return 0;
}

FAKE(nvmlDeviceGetCurrentClocksThrottleReasons, void *device, unsigned long long *reasons)
{
    *reasons = value_of(device, "reasons", 1); /* 1 = idle */
    return 0;
}

FAKE(nvmlDeviceGetTemperature, void *device, int kind, unsigned *celsius)
{
    (void)device;
    (void)kind;
    *celsius = 41;
    return 0;
}

FAKE(nvmlDeviceGetCurrPcieLinkWidth, void *device, unsigned *lanes)
{
    *lanes = value_of(device, "width", 16);
    return 0;
}

FAKE(nvmlDeviceGetMaxPcieLinkWidth, void *device, unsigned *lanes)
{
    (void)device;
    *lanes = 16;
    return 0;
}

FAKE(nvmlDeviceGetCurrPcieLinkGeneration, void *device, unsigned *generation)
{
    (void)device;
    *generation = 1;
    return 0;
}

FAKE(nvmlDeviceGetMaxPcieLinkGeneration, void *device, unsigned *generation)
{
    (void)device;
    *generation = 5;
    return 0;
}

FAKE(nvmlDeviceGetPcieReplayCounter, void *device, unsigned *n)
{
    *n = value_of(device, "replays", 0);
    return has_counts(device) ? 0 : 3;
}
