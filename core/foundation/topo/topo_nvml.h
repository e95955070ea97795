/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads from NVML what it knows about the GPUs: bus ids, architecture, NVLinks and clocks. NVML is
 * opened with dlopen() for each query and closed afterwards. The build needs neither its header nor
 * its library.
 */
#ifndef GYRE_TOPO_TOPO_NVML_H
#define GYRE_TOPO_TOPO_NVML_H

#include "core/foundation/topo/topo.h"

#define GYRE_NVML_MAX_LINKS 36 /* most lanes of a GPU; NVLink 4 and 5 have 18 */
#define GYRE_NVML_MAX_GPUS  256

struct gyre_nvml_link {
    bool is_switch;
    char target[GYRE_TOPO_BUS_ID_BYTES]; /* of the GPU at the other end; "" for a switch */
};

struct gyre_nvml_gpu {
    char bus_id[GYRE_TOPO_BUS_ID_BYTES];
    int32_t ordinal;
    int32_t arch_sm; /* 0 = unknown */
    uint32_t n_links;
    struct gyre_nvml_link
        links[GYRE_NVML_MAX_LINKS]; /* active ones that carry GPU-to-GPU traffic */
};

/** gyre_nvml_scan - all GPUs that NVML shows to this process. @library: its name for dlopen().
 * @gpus_out: freed by the caller; NULL with *n_gpus_out = 0 if there are none. Errors: UNSUPPORTED
 * (the library or one of its symbols is missing), DEVICE (NVML does not start). */
gyre_status gyre_nvml_scan(const char *library, struct gyre_nvml_gpu **gpus_out,
                           size_t *n_gpus_out);

/* One GPU whose clocks are read repeatedly. */
struct gyre_nvml_clocks;

/** gyre_nvml_clocks_open - start NVML for one GPU. NVML stays started until
 * gyre_nvml_clocks_close(), because starting it takes milliseconds.
 * @library: as for gyre_nvml_scan(). @bus_id: "0000:18:00.0". Errors: UNSUPPORTED (the library or
 * its function for clocks is missing), DEVICE (NVML does not start, or does not know the GPU). */
gyre_status gyre_nvml_clocks_open(const char *library, const char *bus_id,
                                  struct gyre_nvml_clocks **clocks_out);

/** gyre_nvml_clocks_read - the present clocks in MHz. Any thread. Errors: DEVICE. */
gyre_status gyre_nvml_clocks_read(const struct gyre_nvml_clocks *clocks, unsigned *sm_mhz_out,
                                  unsigned *memory_mhz_out);

/** gyre_nvml_clocks_close - NULL does nothing. */
void gyre_nvml_clocks_close(struct gyre_nvml_clocks *clocks);

#endif
