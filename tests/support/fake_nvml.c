/* SPDX-License-Identifier: Apache-2.0
 *
 * NVML with FAKE_NVML_GPUS GPUs, the i-th at PCI bus iB, where B is FAKE_NVML_BUS.
 *
 * Eight are those of test_topo.c's NVSwitch machine: 18 lanes each to the switch, of which the last
 * is down. GPU i has an SM clock of 1001 + i MHz and a memory clock of 2001 + i MHz.
 *
 * Of two the second is sick as FAKE_NVML says: "uncorrected=1", "corrected=5000", "pending=1",
 * "failed=1", "reasons=64", "width=8", "replays=9999", "no_clock=1", "ecc_off=1", "no_counts=1"
 * (memory errors and replays cannot be read), "no_start=1", "absent=1" (no GPU at all).
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 }; /* of NVML's errors */

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

/* Answers a question with one number that is the same for all GPUs. */
#define FAKE_NUMBER(name, type, number)       \
    FAKE(name, const void *device, type *out) \
    {                                         \
        (void)device;                         \
        *out = (number);                      \
        return 0;                             \
    }
FAKE_NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, 16)
FAKE_NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, 1)
FAKE_NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, 5)
FAKE_NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, value_of(device, "width", 16))
FAKE_NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long,
            value_of(device, "reasons", 1)) /* 1 = idle */

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
    *n = value_of(NULL, "absent", 0) != 0 ? 0 : FAKE_NVML_GPUS;
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
    snprintf(info->bus_id, sizeof(info->bus_id), "00000000:%X" FAKE_NVML_BUS ":00.0",
             (unsigned)(uintptr_t)device);
    return 0;
}

#if FAKE_NVML_GPUS == 8
FAKE(nvmlDeviceGetHandleByPciBusId_v2, const char *bus_id, void **device)
{
    for (unsigned i = 1; i <= FAKE_NVML_GPUS; i++) {
        char own[32];
        snprintf(own, sizeof(own), "0000:%x" FAKE_NVML_BUS ":00.0", i);
        if (strcmp(own, bus_id) != 0)
            continue;
        *device = (void *)(uintptr_t)i;
        return 0;
    }
    return NOT_FOUND;
}

FAKE(nvmlDeviceGetCudaComputeCapability, void *device, int *major, int *minor)
{
    (void)device;
    *major = 9;
    *minor = 0;
    return 0;
}

FAKE(nvmlDeviceGetNvLinkState, void *device, unsigned lane, unsigned *is_up)
{
    (void)device;
    *is_up = lane < 17;
    return lane < 18 ? 0 : INVALID;
}

FAKE(nvmlDeviceGetNvLinkRemoteDeviceType, void *device, unsigned lane, int *type)
{
    (void)device;
    (void)lane;
    *type = 2;
    return 0;
}
#endif

FAKE(nvmlDeviceGetEccMode, void *device, int *now, int *next)
{
    *now = *next = value_of(device, "ecc_off", 0) == 0;
    return 0;
}

FAKE(nvmlDeviceGetTotalEccErrors, void *device, int kind, int counter, unsigned long long *n)
{
    (void)counter;
    *n = value_of(device, kind == 1 ? "uncorrected" : "corrected", 0);
    return has_counts(device) ? 0 : NOT_SUPPORTED;
}

FAKE(nvmlDeviceGetRemappedRows, void *device, unsigned *corrected, unsigned *uncorrected,
     unsigned *pending, unsigned *failed)
{
    *corrected = *uncorrected = 0;
    *pending = value_of(device, "pending", 0);
    *failed = value_of(device, "failed", 0);
    return 0;
}

/* The kinds are SM (1) and memory (2). */
FAKE(nvmlDeviceGetClockInfo, void *device, int kind, unsigned *mhz)
{
    *mhz = FAKE_NVML_GPUS == 8 ? 1000 * (unsigned)kind + (unsigned)(uintptr_t)device : 345;
    if (kind != 1 && kind != 2)
        return INVALID;
    return value_of(device, "no_clock", 0) != 0 ? NOT_SUPPORTED : 0;
}

FAKE(nvmlDeviceGetMaxClockInfo, void *device, int kind, unsigned *mhz)
{
    (void)device;
    (void)kind;
    *mhz = 1980;
    return 0;
}

FAKE(nvmlDeviceGetTemperature, void *device, int kind, unsigned *celsius)
{
    (void)device;
    (void)kind;
    *celsius = 41;
    return 0;
}

FAKE(nvmlDeviceGetPcieReplayCounter, void *device, unsigned *n)
{
    *n = value_of(device, "replays", 0);
    return has_counts(device) ? 0 : NOT_SUPPORTED;
}
