/* SPDX-License-Identifier: Apache-2.0
 *
 * NVML with the eight GPUs of test_topo.c's NVSwitch machine: 18 lanes each to the switch, of which
 * the last is down. GPU i has an SM clock of 1001 + i MHz and a memory clock of 2001 + i MHz.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct pci_info {
    char legacy[16];
    unsigned words[5];
    char bus_id[32];
};

#define SHOWN __attribute__((visibility("default")))

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *n);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *info);
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor);
int nvmlDeviceGetNvLinkState(void *device, unsigned lane, unsigned *is_up);
int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned lane, int *type);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device);
int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz);

SHOWN int nvmlInit_v2(void)
{
    return 0;
}

SHOWN int nvmlShutdown(void)
{
    return 0;
}

SHOWN int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = 8;
    return 0;
}

SHOWN int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = (void *)(uintptr_t)(index + 1);
    return 0;
}

SHOWN int nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *info)
{
    memset(info, 0, sizeof(*info));
    snprintf(info->bus_id, sizeof(info->bus_id), "00000000:%X3:00.0", (unsigned)(uintptr_t)device);
    return 0;
}

SHOWN int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor)
{
    (void)device;
    *major = 9;
    *minor = 0;
    return 0;
}

SHOWN int nvmlDeviceGetNvLinkState(void *device, unsigned lane, unsigned *is_up)
{
    (void)device;
    *is_up = lane < 17;
    return lane < 18 ? 0 : 2;
}

SHOWN int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned lane, int *type)
{
    (void)device;
    (void)lane;
    *type = 2;
    return 0;
}

SHOWN int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device)
{
    for (unsigned i = 1; i <= 8; i++) {
        char own[32];
        snprintf(own, sizeof(own), "0000:%x3:00.0", i);
        if (strcmp(own, bus_id) != 0)
            continue;
        *device = (void *)(uintptr_t)i;
        return 0;
    }
    return 6; /* NVML_ERROR_NOT_FOUND */
}

SHOWN int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz)
{
    if (type != 1 && type != 2) /* NVML_CLOCK_SM, NVML_CLOCK_MEM */
        return 2;
    *mhz = 1000 * (unsigned)type + (unsigned)(uintptr_t)device;
    return 0;
}
