/* SPDX-License-Identifier: Apache-2.0
 *
 * The RDMA ports of the root, as sysfs shows them, and the rows of their GID tables.
 */
#ifndef GYRE_BENCH_DOCTOR_RDMA_H
#define GYRE_BENCH_DOCTOR_RDMA_H

#include "bench/doctor/doctor.h"
#include "core/foundation/topo/topo.h"
#include "transport/ib/rules/ib_gid.h"

#include <limits.h>
#include <stdio.h>

#define BENCH_MAX_RDMA_PORTS 256
#define BENCH_MAX_GIDS       1024

struct bench_rdma_port {
    char device[BENCH_NAME_BYTES]; /* "mlx5_0" */
    int port;
    char name[80];     /* "mlx5_0:1" */
    char state[32];    /* "4: ACTIVE" */
    char physical[32]; /* "5: LinkUp" */
    char rate[64];     /* "200 Gb/sec (4X HDR)" */
    double gbit_per_s; /* 0 = unknown */
    int width;         /* lanes; 0 = unknown */
    char layer[32];    /* "Ethernet", "InfiniBand" */
    char netdev[16];   /* of the port; "" = unknown */
    char firmware[64];
    char board[64];
    char bus_id[BENCH_NAME_BYTES]; /* "" = no PCI device */
    bool is_soft;                  /* Soft-RoCE or another device without hardware */
};

struct bench_rdma {
    struct bench_rdma_port ports[BENCH_MAX_RDMA_PORTS];
    int n_ports;
    int n_devices;
};

/** bench_rdma_read - all ports. Freed by the caller; NULL if there is no memory. */
struct bench_rdma *bench_rdma_read(const char *root);

/** bench_rdma_is_active - may the port be used? */
bool bench_rdma_is_active(const struct bench_rdma_port *port);

/** bench_rdma_is_roce - is it an Ethernet port? */
bool bench_rdma_is_roce(const struct bench_rdma_port *port);

/** bench_rdma_path - "/sys/class/infiniband/DEVICE/ports/PORT/FILE". @text_out: 256 bytes. */
const char *bench_rdma_path(const struct bench_rdma_port *port, const char *file, char *text_out);

/** bench_rdma_netdev - as gyre_topo_port_netdev(), below the root. */
static inline bool bench_rdma_netdev(const char *root, const char *device, int port,
                                     char *netdev_out, size_t n_bytes)
{
    char sysfs[PATH_MAX];
    snprintf(sysfs, sizeof(sysfs), "%.4000s/sys", root);
    return gyre_topo_port_netdev(sysfs, device, port, netdev_out, n_bytes);
}

/** bench_rdma_gids - the rows of a port's GID table that are not empty. @rows_out: BENCH_MAX_GIDS.
 * Returns their number; -1 if a row is not understood. */
int bench_rdma_gids(const struct bench_doctor *doctor, const struct bench_rdma_port *port,
                    struct gyre_ib_gid_row *rows_out);

/** bench_rdma_skip - says "skipped" if there is no RDMA port. Returns true if it did. */
bool bench_rdma_skip(struct bench_doctor *doctor, const struct bench_rdma *rdma);

/** bench_ethtool_read - the statistics of a driver, as `ethtool -S` prints them: lines of
 * "     name: number". Of another root they are in the file ethtool/NAME. @text_out: freed by the
 * caller. */
enum bench_read bench_ethtool_read(const char *root, const char *netdev, char **text_out);

#endif
