/* SPDX-License-Identifier: Apache-2.0
 *
 * What NVML knows about the GPUs: bus ids, architecture and NVLinks. The library is opened for one
 * scan and closed after it; neither its header nor its library is needed to build.
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

#endif
