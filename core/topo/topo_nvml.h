/* SPDX-License-Identifier: Apache-2.0
 *
 * What NVML knows about the GPUs: bus ids, architecture, NVLinks and clocks. The library is opened
 * when it is asked and closed after it; neither its header nor its library is needed to build.
 */
#ifndef GYRE_TOPO_TOPO_NVML_H
#define GYRE_TOPO_TOPO_NVML_H

#include "core/topo/topo.h"

#define GYRE_NVML_MAX_LINKS 36 /* lanes that are asked for; NVLink 4 and 5 have 18 */
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

/** gyre_nvml_scan - all GPUs that NVML shows to this process. @library: what dlopen() is given.
 * @gpus_out: freed by the caller; NULL with *n_gpus_out = 0 if there are none. Errors: UNSUPPORTED
 * (no library, or one without the symbols), DEVICE (NVML does not start). */
gyre_status gyre_nvml_scan(const char *library, struct gyre_nvml_gpu **gpus_out,
                           size_t *n_gpus_out);

/* One GPU, to be asked for its clocks over and over. */
struct gyre_nvml_clocks;

/** gyre_nvml_clocks_open - keeps NVML started until it is closed: starting it takes milliseconds.
 * @library: as above; @bus_id: "0000:18:00.0". Errors: UNSUPPORTED (no library, or one that does
 * not tell clocks), DEVICE (NVML does not start, or does not know the GPU). */
gyre_status gyre_nvml_clocks_open(const char *library, const char *bus_id,
                                  struct gyre_nvml_clocks **clocks_out);

/** gyre_nvml_clocks_read - what the clocks are now, in MHz. Any thread. Errors: DEVICE. */
gyre_status gyre_nvml_clocks_read(const struct gyre_nvml_clocks *clocks, unsigned *sm_mhz_out,
                                  unsigned *memory_mhz_out);

/** gyre_nvml_clocks_close - NULL does nothing. */
void gyre_nvml_clocks_close(struct gyre_nvml_clocks *clocks);

#endif
