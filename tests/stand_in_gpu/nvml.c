/* SPDX-License-Identifier: Apache-2.0
 *
 * Every stand-in GPU has NVLinks to a switch, so all protocols are allowed.
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

enum { NVML_SUCCESS = 0, NVML_INVALID_ARGUMENT = 2, NVML_NOT_FOUND = 6 };
enum { NVML_LINK_TO_SWITCH = 2, NVML_N_LINKS = 18, NVML_N_CLOCKS = 4, NVML_CLOCK_MHZ = 1000 };

struct nvml_pci_info {
    char legacy[16];
    unsigned words[5];
    char bus_id[32];
};

#define NVML(name, ...)    \
    int name(__VA_ARGS__); \
    int name(__VA_ARGS__)

/* A device points to the element of its number; nobody follows it. */
static char devices[256];

NVML(nvmlInit_v2, void)
{
    return NVML_SUCCESS;
}

NVML(nvmlShutdown, void)
{
    return NVML_SUCCESS;
}

NVML(nvmlDeviceGetCount_v2, unsigned *n_out)
{
    int n = 0;
    (void)cudaGetDeviceCount(&n);
    *n_out = (unsigned)n;
    return NVML_SUCCESS;
}

NVML(nvmlDeviceGetHandleByIndex_v2, unsigned index, void **device_out)
{
    unsigned n = 0;
    (void)nvmlDeviceGetCount_v2(&n);
    if (index >= n || index >= sizeof(devices))
        return NVML_INVALID_ARGUMENT;
    *device_out = &devices[index];
    return NVML_SUCCESS;
}

NVML(nvmlDeviceGetHandleByPciBusId_v2, const char *bus_id, void **device_out)
{
    int gpu = 0;
    if (cudaDeviceGetByPCIBusId(&gpu, bus_id) != cudaSuccess)
        return NVML_NOT_FOUND;
    return nvmlDeviceGetHandleByIndex_v2((unsigned)gpu, device_out);
}

NVML(nvmlDeviceGetPciInfo_v3, void *device, struct nvml_pci_info *info_out)
{
    memset(info_out, 0, sizeof(*info_out));
    return cudaDeviceGetPCIBusId(info_out->bus_id, (int)sizeof(info_out->bus_id),
                                 (int)((char *)device - devices)) == cudaSuccess
               ? NVML_SUCCESS
               : NVML_INVALID_ARGUMENT;
}

NVML(nvmlDeviceGetCudaComputeCapability, void *device, int *major_out, int *minor_out)
{
    (void)device;
    *major_out = 9;
    *minor_out = 0;
    return NVML_SUCCESS;
}

NVML(nvmlDeviceGetNvLinkState, void *device, unsigned link, unsigned *is_up_out)
{
    (void)device;
    *is_up_out = link < NVML_N_LINKS;
    return link < NVML_N_LINKS ? NVML_SUCCESS : NVML_INVALID_ARGUMENT;
}

NVML(nvmlDeviceGetNvLinkRemoteDeviceType, void *device, unsigned link, int *type_out)
{
    (void)device;
    *type_out = NVML_LINK_TO_SWITCH;
    return link < NVML_N_LINKS ? NVML_SUCCESS : NVML_INVALID_ARGUMENT;
}

NVML(nvmlDeviceGetClockInfo, void *device, int type, unsigned *mhz_out)
{
    (void)device;
    *mhz_out = NVML_CLOCK_MHZ;
    return type >= 0 && type < NVML_N_CLOCKS ? NVML_SUCCESS : NVML_INVALID_ARGUMENT;
}
