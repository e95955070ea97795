/* SPDX-License-Identifier: Apache-2.0
 *
 * The active RDMA ports that IB_HCA allows, by PCI path: hosts of one kind have the same order, and
 * port k is usually cabled to port k of the next host.
 */
#ifndef GYRE_IB_DEVICE_H
#define GYRE_IB_DEVICE_H

#include "core/foundation/base/param.h"
#include "transport/ib/rules/ib_gid.h"
#include "transport/ib/ib_verbs.h"

#define GYRE_IB_MAX_PORTS 256
#define GYRE_IB_MAX_GIDS  1024 /* mlx5 has 256, rxe 1024 */

struct gyre_ib_port {
    struct ibv_device *device; /* valid as long as the list */
    char name[64];
    uint8_t port;
    bool is_roce;
    enum ibv_mtu active_mtu;
    uint32_t max_msg_bytes;
    uint16_t lid;
    uint32_t gbit_per_s; /* 0 = unknown */
    char pci_path[256];  /* "" = none (software devices) */
    int numa_node;       /* -1 = unknown */
};

struct gyre_ib_scan {
    const struct gyre_verbs *verbs;
    struct ibv_device **list; /* keeps the devices alive */
    struct gyre_ib_port ports[GYRE_IB_MAX_PORTS];
    int n_ports;
};

/** Errors: UNSUPPORTED (no library, no device, none active, none that IB_HCA takes),
 * INVALID_ARGUMENT (IB_HCA does not parse). @scan: 90 kB, too much for a stack. Without a list on
 * failure. */
gyre_status gyre_ib_scan_open(const struct gyre_params *params, struct gyre_ib_scan *scan);
void gyre_ib_scan_close(struct gyre_ib_scan *scan);

/** "[0]mlx5_0:1/RoCE [1]mlx5_1:1/IB". */
const char *gyre_ib_scan_to_text(const struct gyre_ib_scan *scan, char *text_out,
                                 size_t text_bytes);

/* As NET_GDR_LEVEL names and numbers them. */
enum gyre_ib_distance {
    GYRE_IB_DISTANCE_LOC, /* unknown or the same device */
    GYRE_IB_DISTANCE_PIX, /* one switch */
    GYRE_IB_DISTANCE_PXB, /* several switches, no host bridge */
    GYRE_IB_DISTANCE_PHB, /* one processor's host bridge */
    GYRE_IB_DISTANCE_SYS  /* the link between processors */
};

enum gyre_ib_distance gyre_ib_distance(const char *path_a, int numa_a, const char *path_b,
                                       int numa_b);

/** LOC PIX PXB PHB SYS (or P2C PXN: as PXB), or the legacy 0..5. Errors: INVALID_ARGUMENT. */
gyre_status gyre_ib_parse_distance(const char *text, enum gyre_ib_distance *distance_out);

extern const char *const gyre_ib_distance_names[];

void gyre_ib_pci_path(const char *bus_id, char *path_out, size_t path_bytes, int *numa_node_out);

/** Without empty rows. @rows_out: GYRE_IB_MAX_GIDS. */
gyre_status gyre_ib_gid_table(const struct gyre_verbs *verbs, struct ibv_context *context,
                              uint8_t port, struct gyre_ib_gid_row *rows_out, int *n_out);

#endif
