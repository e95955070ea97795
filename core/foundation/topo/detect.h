/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the detection of the topology: one file for each kind of device, and for PCIe and sysfs.
 * All paths are relative to the root of sysfs.
 */
#ifndef GYRE_TOPO_DETECT_H
#define GYRE_TOPO_DETECT_H

#include "core/foundation/topo/topo.h"

#include <dirent.h>

struct gyre_detect {
    const char *root; /* of sysfs */
    struct gyre_topo *topo;
};

/* ---- detect_files.c ------------------------------------------------------------------------- */

/** gyre_detect_read_line - the first line of root/path; false (and "") if it cannot be read. */
bool gyre_detect_read_line(const struct gyre_detect *detect, const char *path, char *text_out,
                           size_t n_bytes);

/** gyre_detect_read_number - the number in a file, in any base that C writes; `fallback` if there
 * is none. */
long gyre_detect_read_number(const struct gyre_detect *detect, const char *path, long fallback);

/** gyre_detect_list_names - the sorted names of a directory, and how many there are.
 * @names_out: freed by gyre_detect_free_names(). */
int gyre_detect_list_names(const struct gyre_detect *detect, const char *path,
                           struct dirent ***names_out);
void gyre_detect_free_names(struct dirent **names, int n_names);

/* ---- detect_cpu.c --------------------------------------------------------------------------- */

/** gyre_detect_cpus - add the NUMA nodes that have processors; at least one. */
gyre_status gyre_detect_cpus(struct gyre_detect *detect);

/** gyre_detect_find_cpu - the CPU of a device. Where the firmware does not tell, it is the first
 * one. */
gyre_status gyre_detect_find_cpu(struct gyre_detect *detect, const char *bus_id, int32_t *cpu_out);

/* ---- detect_pci.c --------------------------------------------------------------------------- */

#define GYRE_PCI_MAX_CHAIN (2 * GYRE_TOPO_MAX_DEPTH + 2) /* two ports a switch */

/* The PCI functions on the way to a device, root port first. */
struct gyre_pci_chain {
    int n;
    char bus_ids[GYRE_PCI_MAX_CHAIN][GYRE_TOPO_BUS_ID_BYTES];
};

/** gyre_detect_read_pci - the number in a file of a PCI function; 0 if there is none. */
long gyre_detect_read_pci(const struct gyre_detect *detect, const char *bus_id, const char *file);

/** gyre_detect_read_chain - the PCI functions in the real path behind root/path. Returns false if
 * it is not on PCI. */
bool gyre_detect_read_chain(const struct gyre_detect *detect, const char *path,
                            struct gyre_pci_chain *chain_out);

/** gyre_detect_add_function - add the last function of a chain and the switches above it, or find
 * the function. */
gyre_status gyre_detect_add_function(struct gyre_detect *detect, const struct gyre_pci_chain *chain,
                                     enum gyre_topo_kind kind, int32_t *index_out);

/* ---- detect_gpu.c, detect_net.c ------------------------------------------------------------- */

/** gyre_detect_gpus - add the GPUs that the options name, or all of them, and their NVLinks. */
gyre_status gyre_detect_gpus(struct gyre_detect *detect,
                             const struct gyre_topo_detect_options *options);

/** gyre_detect_nets - add RDMA ports, and the interfaces on PCI that belong to no RDMA port. */
gyre_status gyre_detect_nets(struct gyre_detect *detect);

#endif
