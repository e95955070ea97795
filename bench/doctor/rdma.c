/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads RDMA ports and GID tables from sysfs, without libibverbs: a port that cannot be opened can
 * still be described.
 */
#include "bench/doctor/rdma.h"

#include "bench/doctor/net.h"
#include "core/foundation/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void read_device_file(const char *root, const char *device, const char *file, char *text_out,
                             size_t text_bytes)
{
    char path[192];
    snprintf(path, sizeof(path), "/sys/class/infiniband/%.63s/%.63s", device, file);
    (void)bench_read_text(root, path, text_out, text_bytes);
}

const char *bench_rdma_path(const struct bench_rdma_port *port, const char *file, char *text_out)
{
    snprintf(text_out, 256, "/sys/class/infiniband/%.63s/ports/%d/%.120s", port->device, port->port,
             file);
    return text_out;
}

static void read_port_file(const char *root, const struct bench_rdma_port *port, const char *file,
                           char *text_out, size_t text_bytes)
{
    char path[256];
    (void)bench_read_text(root, bench_rdma_path(port, file, path), text_out, text_bytes);
}

static void read_port(const char *root, const char *device, int number,
                      struct bench_rdma_port *port)
{
    char path[192], word[16];
    memset(port, 0, sizeof(*port));
    snprintf(port->device, sizeof(port->device), "%.63s", device);
    port->port = number;
    snprintf(port->name, sizeof(port->name), "%.63s:%d", device, number);
    read_port_file(root, port, "state", port->state, sizeof(port->state));
    read_port_file(root, port, "phys_state", port->physical, sizeof(port->physical));
    read_port_file(root, port, "rate", port->rate, sizeof(port->rate));
    read_port_file(root, port, "link_layer", port->layer, sizeof(port->layer));
    bench_rdma_netdev(root, device, number, port->netdev, sizeof(port->netdev));
    read_device_file(root, device, "fw_ver", port->firmware, sizeof(port->firmware));
    read_device_file(root, device, "board_id", port->board, sizeof(port->board));
    char *rest;
    port->gbit_per_s = gyre_text_to_double(port->rate, &rest);
    (void)sscanf(rest, " Gb/sec (%d%1[X]", &port->width, word);
    snprintf(path, sizeof(path), "/sys/class/infiniband/%.63s/device", device);
    if (bench_read_link(root, path, port->bus_id, sizeof(port->bus_id)) != BENCH_READ_OK ||
        strchr(port->bus_id, ':') == NULL)
        port->bus_id[0] = '\0';
    snprintf(path, sizeof(path), "/sys/class/infiniband/%.63s/parent", device);
    port->is_soft = port->bus_id[0] == '\0' || bench_exists(root, path);
}

struct bench_rdma *bench_rdma_read(const char *root)
{
    struct bench_rdma *rdma = calloc(1, sizeof(*rdma));
    char(*devices)[BENCH_NAME_BYTES];
    if (rdma == NULL)
        return NULL;
    rdma->n_devices = bench_read_names(root, "/sys/class/infiniband", &devices);
    for (int i = 0; i < rdma->n_devices; i++) {
        char path[192];
        char(*ports)[BENCH_NAME_BYTES];
        snprintf(path, sizeof(path), "/sys/class/infiniband/%.63s/ports", devices[i]);
        const int n = bench_read_names(root, path, &ports);
        for (int j = 0; j < n && rdma->n_ports < BENCH_MAX_RDMA_PORTS; j++) {
            int64_t number = 0;
            if (bench_text_to_number(ports[j], &number) && number > 0 && number < 256)
                read_port(root, devices[i], (int)number, &rdma->ports[rdma->n_ports++]);
        }
        free(ports);
    }
    free(devices);
    return rdma;
}

bool bench_rdma_is_active(const struct bench_rdma_port *port)
{
    return strcmp(port->state, "4: ACTIVE") == 0;
}

bool bench_rdma_is_roce(const struct bench_rdma_port *port)
{
    return strcmp(port->layer, "Ethernet") == 0;
}

bool bench_rdma_skip(struct bench_doctor *doctor, const struct bench_rdma *rdma)
{
    if (rdma == NULL || rdma->n_ports > 0)
        return rdma == NULL;
    bench_say(doctor, BENCH_SKIPPED, NULL, NULL, "no RDMA port in /sys/class/infiniband");
    return true;
}

/* Reads "fe80:0000:0000:0000:5054:00ff:fe12:3456". */
static bool parse_gid(const char *text, uint8_t raw_out[16])
{
    unsigned words[8];
    char end;
    if (sscanf(text, "%4x:%4x:%4x:%4x:%4x:%4x:%4x:%4x%c", &words[0], &words[1], &words[2],
               &words[3], &words[4], &words[5], &words[6], &words[7], &end) != 8)
        return false;
    for (int i = 0; i < 8; i++) {
        raw_out[2 * i] = (uint8_t)(words[i] >> 8);
        raw_out[2 * i + 1] = (uint8_t)words[i];
    }
    return true;
}

/* Read the type and the interface of a row. The kernel does not show them for an empty row, nor in
 * a container for a row whose interface is in another network namespace. */
static void read_row(const char *root, const struct bench_rdma_port *port,
                     const struct bench_net *net, struct gyre_ib_gid_row *row)
{
    char file[64], type[32], path[64];
    snprintf(file, sizeof(file), "gid_attrs/types/%u", row->index);
    read_port_file(root, port, file, type, sizeof(type));
    row->type = strcmp(type, "RoCE v2") == 0      ? GYRE_IB_GID_ROCE_V2
                : strcmp(type, "IB/RoCE v1") == 0 ? GYRE_IB_GID_ROCE_V1
                                                  : GYRE_IB_GID_UNREADABLE;
    snprintf(file, sizeof(file), "gid_attrs/ndevs/%u", row->index);
    read_port_file(root, port, file, row->netdev, sizeof(row->netdev));
    const struct bench_netdev *device = bench_net_find(net, row->netdev);
    row->is_netdev_down = device != NULL && !device->is_up;
    row->vlan = 0;
    snprintf(path, sizeof(path), "/proc/net/vlan/%s", row->netdev);
    char text[256];
    if (row->netdev[0] != '\0' &&
        bench_read_text(root, path, text, sizeof(text)) == BENCH_READ_OK) {
        const char *id = strstr(text, "VID:");
        row->vlan = id == NULL ? 0 : (uint16_t)strtoul(id + 4, NULL, 10);
    }
}

int bench_rdma_gids(const struct bench_doctor *doctor, const struct bench_rdma_port *port,
                    struct gyre_ib_gid_row *rows_out)
{
    char path[256], text[64];
    char(*names)[BENCH_NAME_BYTES];
    int n_rows = 0;
    struct bench_net *net = bench_net_read(doctor);
    if (net == NULL)
        return -1;
    const int n = bench_read_names(doctor->root, bench_rdma_path(port, "gids", path), &names);
    for (int i = 0; i < n && n_rows >= 0 && n_rows < BENCH_MAX_GIDS; i++) {
        struct gyre_ib_gid_row *row = &rows_out[n_rows];
        int64_t index = 0;
        char file[96];
        memset(row, 0, sizeof(*row));
        snprintf(file, sizeof(file), "gids/%s", names[i]);
        const enum bench_read result =
            bench_read_text(doctor->root, bench_rdma_path(port, file, path), text, sizeof(text));
        if (result == BENCH_READ_ABSENT)
            continue;
        if (result != BENCH_READ_OK || !bench_text_to_number(names[i], &index) ||
            !parse_gid(text, row->raw)) {
            n_rows = -1;
            break;
        }
        row->index = (uint32_t)index;
        if (gyre_ib_gid_classify(row->raw) == GYRE_IB_GID_ZERO)
            continue;
        read_row(doctor->root, port, net, row);
        n_rows++;
    }
    free(names);
    free(net);
    return n_rows;
}
