/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists PCI functions from sysfs, and compares lists of processors.
 */
#include "bench/doctor/pci.h"

#include "core/foundation/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VENDOR_NVIDIA 0x10de
#define MOST_CPUS     4096

const char *bench_pci_path(const char *bus_id, const char *file, char *text_out)
{
    snprintf(text_out, 192, "/sys/bus/pci/devices/%.63s/%.63s", bus_id, file);
    return text_out;
}

int bench_pci_list(const char *root, struct bench_pci **list_out)
{
    char(*names)[BENCH_NAME_BYTES];
    int n_kept = 0;
    const int n = bench_read_names(root, "/sys/bus/pci/devices", &names);
    struct bench_pci *list = calloc((size_t)(n > 0 ? n : 1), sizeof(*list));
    for (int i = 0; list != NULL && i < n; i++) {
        char path[192];
        int64_t class = 0, vendor = 0;
        struct bench_pci *device = &list[n_kept];
        if (bench_read_number(root, bench_pci_path(names[i], "class", path), &class) !=
                BENCH_READ_OK ||
            bench_read_number(root, bench_pci_path(names[i], "vendor", path), &vendor) !=
                BENCH_READ_OK)
            continue;
        memcpy(device->bus_id, names[i], sizeof(device->bus_id));
        device->class = (uint32_t) class;
        device->vendor = (uint32_t)vendor;
        device->is_gpu = vendor == VENDOR_NVIDIA && class >> 16 == 0x03;
        device->is_nic = bench_exists(root, bench_pci_path(names[i], "infiniband", path));
        n_kept++;
    }
    free(names);
    *list_out = list;
    return n_kept;
}

bool bench_pci_has_gpu(const char *root)
{
    struct bench_pci *list;
    bool is_found = false;
    const int n = bench_pci_list(root, &list);
    for (int i = 0; i < n; i++)
        is_found = is_found || list[i].is_gpu;
    free(list);
    return is_found;
}

bool bench_pci_has_nic(const char *root)
{
    struct bench_pci *list;
    bool is_found = false;
    const int n = bench_pci_list(root, &list);
    for (int i = 0; i < n; i++)
        is_found = is_found || list[i].is_nic;
    free(list);
    return is_found;
}

/* A file with a width ("16") or a speed ("16.0 GT/s PCIe"). */
static enum bench_read read_figure(const char *root, const char *bus_id, const char *file,
                                   double *figure_out)
{
    char path[192], text[64];
    char *end = NULL;
    const enum bench_read result =
        bench_read_text(root, bench_pci_path(bus_id, file, path), text, sizeof(text));
    if (result != BENCH_READ_OK)
        return result;
    if (strncmp(text, "Unknown", 7) == 0)
        return BENCH_READ_ABSENT;
    *figure_out = gyre_text_to_double(text, &end);
    return end == text || *figure_out < 0 || *figure_out > 1000 ? BENCH_READ_BROKEN : BENCH_READ_OK;
}

enum bench_read bench_pci_read_link(const char *root, const char *bus_id,
                                    struct bench_pci_link *link_out)
{
    double width = 0, most_width = 0;
    const struct {
        const char *file;
        double *figure;
    } files[] = {{"current_link_width", &width},
                 {"max_link_width", &most_width},
                 {"current_link_speed", &link_out->gt_per_s},
                 {"max_link_speed", &link_out->most_gt_per_s}};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        const enum bench_read result = read_figure(root, bus_id, files[i].file, files[i].figure);
        if (result != BENCH_READ_OK)
            return result;
    }
    link_out->width = (int)width;
    link_out->most_width = (int)most_width;
    return width == 0 || most_width > 32 ? BENCH_READ_ABSENT : BENCH_READ_OK;
}

/* PCI Express Base Specification: generations 1 and 2 send 10 bits a byte, 3 to 5 send 130 bits for
 * 128, 6 sends 242 bytes of 256. */
double bench_pci_gbit_per_s(int width, double gt_per_s)
{
    const double part = gt_per_s < 6 ? 0.8 : gt_per_s < 40 ? 128.0 / 130.0 : 242.0 / 256.0;
    return width * gt_per_s * part;
}

/* Reads "0-15,32-47" into a set. Returns the number of processors, or -1. */
static int read_cpus(const char *list, bool *set_out)
{
    int n = 0;
    memset(set_out, 0, MOST_CPUS * sizeof(*set_out));
    while (*list != '\0') {
        char *end = NULL;
        const long first = strtol(list, &end, 10);
        long last = first;
        if (end == list)
            return -1;
        if (*end == '-') {
            list = end + 1;
            last = strtol(list, &end, 10);
            if (end == list)
                return -1;
        }
        if (first < 0 || last < first || last >= MOST_CPUS || (*end != ',' && *end != '\0'))
            return -1;
        for (long cpu = first; cpu <= last; cpu++) {
            n += !set_out[cpu];
            set_out[cpu] = true;
        }
        list = end + (*end == ',');
    }
    return n;
}

int bench_cpus_count(const char *list)
{
    bool set[MOST_CPUS];
    return read_cpus(list, set);
}

int bench_cpus_overlap(const char *a, const char *b)
{
    bool first[MOST_CPUS], second[MOST_CPUS];
    if (read_cpus(a, first) < 0 || read_cpus(b, second) < 0)
        return -1;
    for (int cpu = 0; cpu < MOST_CPUS; cpu++)
        if (first[cpu] && second[cpu])
            return 1;
    return 0;
}
