/* SPDX-License-Identifier: Apache-2.0
 *
 * The PCI devices that collectives use: NVIDIA GPUs and RDMA adapters.
 */
#ifndef GYRE_BENCH_DOCTOR_PCI_H
#define GYRE_BENCH_DOCTOR_PCI_H

#include "bench/doctor/read.h"

struct bench_pci {
    char bus_id[BENCH_NAME_BYTES]; /* "0000:18:00.0" */
    uint32_t class;                /* 0x030200 */
    uint32_t vendor;
    bool is_gpu; /* an NVIDIA display or 3D controller */
    bool is_nic; /* has RDMA devices */
};

#define BENCH_PCI_CLASS_BRIDGE 0x0604 /* the upper two bytes of the class */

/** bench_pci_list - all PCI functions that the root shows. @list_out: freed by the caller. Returns
 * their number. */
int bench_pci_list(const char *root, struct bench_pci **list_out);

/** bench_pci_has_gpu / nic - does the root show a GPU or an RDMA adapter? */
bool bench_pci_has_gpu(const char *root);
bool bench_pci_has_nic(const char *root);

/* The link above a function. */
struct bench_pci_link {
    int width; /* lanes in use */
    int most_width;
    double gt_per_s; /* 16 for generation 4 */
    double most_gt_per_s;
};

/** bench_pci_read_link - read the link above a function. Returns ABSENT if the function has no link
 * of its own. */
enum bench_read bench_pci_read_link(const char *root, const char *bus_id,
                                    struct bench_pci_link *link_out);

/** bench_pci_gbit_per_s - the data rate of a link in one direction, without its encoding. */
double bench_pci_gbit_per_s(int width, double gt_per_s);

/** bench_pci_path - "/sys/bus/pci/devices/BUS_ID/FILE". Returns text_out, of 192 bytes. */
const char *bench_pci_path(const char *bus_id, const char *file, char *text_out);

/** bench_cpus_overlap - do two lists of processors, "0-15,32" and "3", have one in common?
 * Returns -1 if one of them is not understood. */
int bench_cpus_overlap(const char *a, const char *b);

/** bench_cpus_count - the number of processors in a list, or -1. */
int bench_cpus_count(const char *list);

#endif
