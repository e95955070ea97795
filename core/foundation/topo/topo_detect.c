/* SPDX-License-Identifier: Apache-2.0
 *
 * Detects the topology of this machine from sysfs: first NUMA nodes, then GPUs, then network
 * devices. Each device is put below the PCIe switches on its way to the root complex. The root of
 * sysfs is an argument, so that tests can use their own tree.
 */
#include "core/foundation/topo/topo.h"

#include "core/foundation/topo/detect.h"

gyre_status gyre_topo_detect(const struct gyre_topo_detect_options *options,
                             struct gyre_topo *topo_out)
{
    static const struct gyre_topo_detect_options defaults = {NULL, NULL, NULL, 0};
    struct gyre_topo topo;
    if (options == NULL)
        options = &defaults;
    struct gyre_detect detect = {options->sysfs_root != NULL ? options->sysfs_root : "/sys", &topo};
    gyre_status status;
    gyre_topo_init(&topo);
    GYRE_TRY_GOTO(status, gyre_detect_cpus(&detect), fail);
    GYRE_TRY_GOTO(status, gyre_detect_gpus(&detect, options), fail);
    GYRE_TRY_GOTO(status, gyre_detect_nets(&detect), fail);
    *topo_out = topo;
    return GYRE_SUCCESS;
fail:
    gyre_topo_fini(&topo);
    return gyre_fail_context(status, "topology of %s", detect.root);
}
