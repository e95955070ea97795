/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GYRE_TOPO_TOPO_NVML_H
#define GYRE_TOPO_TOPO_NVML_H

#include "core/foundation/topo/topo.h"

#define GYRE_NVML_MAX_LINKS 36 /* NVLink 5 has 18 */
#define GYRE_NVML_MAX_GPUS  256

struct gyre_nvml_link {
    bool is_switch;
    char target[GYRE_TOPO_BUS_ID_BYTES]; /* "" = a switch */
};

struct gyre_nvml_gpu {
    char bus_id[GYRE_TOPO_BUS_ID_BYTES];
    int32_t ordinal;
    int32_t arch_sm; /* 0 = unknown */
    uint32_t n_links;
    struct gyre_nvml_link links[GYRE_NVML_MAX_LINKS];
};

/** @gpus_out: freed by the caller. Errors: UNSUPPORTED (no library or symbol), DEVICE (no
 * start). */
gyre_status gyre_nvml_scan(const char *library, struct gyre_nvml_gpu **gpus_out,
                           size_t *n_gpus_out);

struct gyre_nvml_clocks;

/** NVML stays started until gyre_nvml_clocks_close(), because starting takes milliseconds. @bus_id:
 * "0000:18:00.0". Errors: as gyre_nvml_scan(), DEVICE (unknown GPU). */
gyre_status gyre_nvml_clocks_open(const char *library, const char *bus_id,
                                  struct gyre_nvml_clocks **clocks_out);

/** Any thread. Errors: DEVICE. */
gyre_status gyre_nvml_clocks_read(const struct gyre_nvml_clocks *clocks, unsigned *sm_mhz_out,
                                  unsigned *memory_mhz_out);

void gyre_nvml_clocks_close(struct gyre_nvml_clocks *clocks);

#endif
