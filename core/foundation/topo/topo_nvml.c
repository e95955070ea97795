/* SPDX-License-Identifier: Apache-2.0
 *
 * Own declarations of NVML let machines without CUDA build the same library.
 */
#include "core/foundation/topo/topo_nvml.h"

#include "core/foundation/base/thread.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef void *nvml_device;

struct nvml_pci_info {
    char bus_id_legacy[16];
    unsigned domain;
    unsigned bus;
    unsigned device;
    unsigned pci_device_id;
    unsigned pci_subsystem_id;
    char bus_id[32];
};
_Static_assert(sizeof(struct nvml_pci_info) == 68, "layout of nvmlPciInfo_t, version 3");

enum { NVML_OK = 0, NVML_INVALID_ARGUMENT = 2 };
enum { NVML_REMOTE_IS_SWITCH = 2, NVML_CAPABILITY_P2P = 0 };
enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEMORY = 2 };

/* X(member, symbol, is required, parameters); functions return an int, 0 = success. */
#define NVML_TABLE(X)                                                                        \
    X(init, nvmlInit_v2, 1, (void))                                                          \
    X(shutdown, nvmlShutdown, 1, (void))                                                     \
    X(get_count, nvmlDeviceGetCount_v2, 1, (unsigned *))                                     \
    X(get_device, nvmlDeviceGetHandleByIndex_v2, 1, (unsigned, nvml_device *))               \
    X(get_pci, nvmlDeviceGetPciInfo_v3, 1, (nvml_device, struct nvml_pci_info *))            \
    X(get_arch, nvmlDeviceGetCudaComputeCapability, 0, (nvml_device, int *, int *))          \
    X(get_link_state, nvmlDeviceGetNvLinkState, 0, (nvml_device, unsigned, unsigned *))      \
    X(get_link_capability, nvmlDeviceGetNvLinkCapability, 0,                                 \
      (nvml_device, unsigned, int, unsigned *))                                              \
    X(get_link_pci, nvmlDeviceGetNvLinkRemotePciInfo_v2, 0,                                  \
      (nvml_device, unsigned, struct nvml_pci_info *))                                       \
    X(get_link_type, nvmlDeviceGetNvLinkRemoteDeviceType, 0, (nvml_device, unsigned, int *)) \
    X(find_device, nvmlDeviceGetHandleByPciBusId_v2, 0, (const char *, nvml_device *))       \
    X(get_clock, nvmlDeviceGetClockInfo, 0, (nvml_device, int, unsigned *))

/* NVML starts per process; unlocked, ranks that are threads saw different links. */
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

GYRE_WATCH_FORKS(&one_at_a_time, NULL)

struct nvml {
    void *library;
#define NVML_MEMBER(member, symbol, required, parameters) int(*member) parameters;
    NVML_TABLE(NVML_MEMBER)
#undef NVML_MEMBER
};

/* ISO C cannot cast to a function. */
static bool load_symbol(void *library, const char *name, void *function_out)
{
    void *symbol = dlsym(library, name);
    memcpy(function_out, &symbol, sizeof(symbol));
    return symbol != NULL;
}

static gyre_status open_nvml(const char *library, struct nvml *nvml_out)
{
    struct nvml nvml = {.library = dlopen(library, RTLD_NOW | RTLD_LOCAL)};
    if (nvml.library == NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "no NVML: %s", dlerror());
    const char *missing = NULL;
#define NVML_LOAD(member, symbol, required, parameters)                                     \
    if (!load_symbol(nvml.library, #symbol, &nvml.member) && (required) && missing == NULL) \
        missing = #symbol;
    NVML_TABLE(NVML_LOAD)
#undef NVML_LOAD
    if (missing != NULL) {
        dlclose(nvml.library);
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "%s has no %s", library, missing);
    }
    *nvml_out = nvml;
    return GYRE_SUCCESS;
}

/* False if the lane leads to nothing that GPUs talk to. */
static bool scan_link(const struct nvml *nvml, nvml_device device, unsigned lane,
                      struct gyre_nvml_link *link_out)
{
    struct nvml_pci_info remote;
    memset(link_out, 0, sizeof(*link_out));
    memset(&remote, 0, sizeof(remote));
    if (nvml->get_link_pci == NULL || nvml->get_link_pci(device, lane, &remote) != NVML_OK)
        return false;
    remote.bus_id[sizeof(remote.bus_id) - 1] = '\0';
    return gyre_topo_bus_id_parse(remote.bus_id, link_out->target) == GYRE_SUCCESS;
}

/* Answers take up to a millisecond. If one lane goes to a switch, all do, with equal
 * capabilities. */
static void scan_links(const struct nvml *nvml, nvml_device device, struct gyre_nvml_gpu *gpu)
{
    bool is_first = true, is_switch = false;
    for (unsigned lane = 0; nvml->get_link_state != NULL && lane < GYRE_NVML_MAX_LINKS; lane++) {
        struct gyre_nvml_link *link = &gpu->links[gpu->n_links];
        unsigned is_up = 0, has_p2p = 1;
        int type = -1;
        const int rc = nvml->get_link_state(device, lane, &is_up);
        if (rc == NVML_INVALID_ARGUMENT)
            return;
        if (rc != NVML_OK || is_up == 0)
            continue;
        if (is_first && nvml->get_link_capability != NULL &&
            nvml->get_link_capability(device, lane, NVML_CAPABILITY_P2P, &has_p2p) == NVML_OK &&
            has_p2p == 0)
            return;
        if (is_first && nvml->get_link_type != NULL &&
            nvml->get_link_type(device, lane, &type) == NVML_OK)
            is_switch = type == NVML_REMOTE_IS_SWITCH;
        is_first = false;
        if (is_switch)
            *link = (struct gyre_nvml_link){.is_switch = true};
        else if (!scan_link(nvml, device, lane, link))
            continue;
        gpu->n_links++;
    }
}

static gyre_status scan_gpu(const struct nvml *nvml, unsigned index, struct gyre_nvml_gpu *gpu)
{
    nvml_device device = NULL;
    struct nvml_pci_info pci;
    memset(&pci, 0, sizeof(pci));
    int rc = nvml->get_device(index, &device);
    if (rc == NVML_OK)
        rc = nvml->get_pci(device, &pci);
    if (rc != NVML_OK)
        return gyre_fail(GYRE_ERROR_DEVICE, "NVML does not describe GPU %u (NVML error %d)", index,
                         rc);
    pci.bus_id[sizeof(pci.bus_id) - 1] = '\0';
    GYRE_TRY(gyre_topo_bus_id_parse(pci.bus_id, gpu->bus_id));
    gpu->ordinal = (int32_t)index;
    int major = 0, minor = 0;
    if (nvml->get_arch != NULL && nvml->get_arch(device, &major, &minor) == NVML_OK)
        gpu->arch_sm = 10 * major + minor;
    scan_links(nvml, device, gpu);
    return GYRE_SUCCESS;
}

static gyre_status scan_all(const struct nvml *nvml, struct gyre_nvml_gpu **gpus_out,
                            size_t *n_gpus_out)
{
    unsigned n_gpus = 0;
    const int rc = nvml->get_count(&n_gpus);
    if (rc != NVML_OK)
        return gyre_fail(GYRE_ERROR_DEVICE, "NVML does not count GPUs (NVML error %d)", rc);
    if (n_gpus > GYRE_NVML_MAX_GPUS)
        return gyre_fail(GYRE_ERROR_DEVICE, "NVML counts %u GPUs, more than %d", n_gpus,
                         GYRE_NVML_MAX_GPUS);
    struct gyre_nvml_gpu *gpus = calloc(n_gpus > 0 ? n_gpus : 1, sizeof(*gpus));
    if (gpus == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "list of %u GPUs", n_gpus);
    for (unsigned i = 0; i < n_gpus; i++) {
        const gyre_status status = scan_gpu(nvml, i, &gpus[i]);
        if (status != GYRE_SUCCESS) {
            free(gpus);
            return status;
        }
    }
    *gpus_out = gpus;
    *n_gpus_out = n_gpus;
    return GYRE_SUCCESS;
}

gyre_status gyre_nvml_scan(const char *library, struct gyre_nvml_gpu **gpus_out, size_t *n_gpus_out)
{
    struct nvml nvml = {.library = NULL};
    GYRE_TRY(open_nvml(library, &nvml));
    pthread_mutex_lock(&one_at_a_time);
    const int rc = nvml.init();
    gyre_status status = GYRE_SUCCESS;
    if (rc == NVML_OK) {
        status = scan_all(&nvml, gpus_out, n_gpus_out);
        nvml.shutdown();
    } else {
        status = gyre_fail(GYRE_ERROR_DEVICE, "NVML does not start (NVML error %d)", rc);
    }
    pthread_mutex_unlock(&one_at_a_time);
    dlclose(nvml.library);
    return status;
}

struct gyre_nvml_clocks {
    struct nvml nvml;
    nvml_device device;
};

gyre_status gyre_nvml_clocks_open(const char *library, const char *bus_id,
                                  struct gyre_nvml_clocks **clocks_out)
{
    struct gyre_nvml_clocks *clocks = calloc(1, sizeof(*clocks));
    gyre_status status = GYRE_SUCCESS;
    if (clocks == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "clocks of a GPU");
    GYRE_TRY_GOTO(status, open_nvml(library, &clocks->nvml), free_clocks);
    const struct nvml *nvml = &clocks->nvml;
    if (nvml->find_device == NULL || nvml->get_clock == NULL)
        GYRE_TRY_GOTO(status, gyre_fail(GYRE_ERROR_UNSUPPORTED, "this NVML does not tell clocks"),
                      close_library);
    pthread_mutex_lock(&one_at_a_time);
    int rc = nvml->init();
    if (rc != NVML_OK) {
        status = gyre_fail(GYRE_ERROR_DEVICE, "NVML does not start (NVML error %d)", rc);
    } else if ((rc = nvml->find_device(bus_id, &clocks->device)) != NVML_OK) {
        nvml->shutdown();
        status = gyre_fail(GYRE_ERROR_DEVICE, "NVML does not know the GPU %s (NVML error %d)",
                           bus_id, rc);
    }
    pthread_mutex_unlock(&one_at_a_time);
    if (status != GYRE_SUCCESS)
        goto close_library;
    *clocks_out = clocks;
    return GYRE_SUCCESS;
close_library:
    dlclose(clocks->nvml.library);
free_clocks:
    free(clocks);
    return status;
}

gyre_status gyre_nvml_clocks_read(const struct gyre_nvml_clocks *clocks, unsigned *sm_mhz_out,
                                  unsigned *memory_mhz_out)
{
    unsigned sm_mhz = 0, memory_mhz = 0;
    int rc = clocks->nvml.get_clock(clocks->device, NVML_CLOCK_SM, &sm_mhz);
    if (rc == NVML_OK)
        rc = clocks->nvml.get_clock(clocks->device, NVML_CLOCK_MEMORY, &memory_mhz);
    if (rc != NVML_OK)
        return gyre_fail(GYRE_ERROR_DEVICE, "NVML does not tell the clocks (NVML error %d)", rc);
    *sm_mhz_out = sm_mhz;
    *memory_mhz_out = memory_mhz;
    return GYRE_SUCCESS;
}

void gyre_nvml_clocks_close(struct gyre_nvml_clocks *clocks)
{
    if (clocks == NULL)
        return;
    pthread_mutex_lock(&one_at_a_time);
    clocks->nvml.shutdown();
    pthread_mutex_unlock(&one_at_a_time);
    dlclose(clocks->nvml.library);
    free(clocks);
}
