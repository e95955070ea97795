/* SPDX-License-Identifier: Apache-2.0
 *
 * What a machine shows of itself in procfs, sysfs and /etc below a root folder, so that tests run
 * the same code on prepared folders.
 */
#ifndef GYRE_BENCH_DOCTOR_MACHINE_H
#define GYRE_BENCH_DOCTOR_MACHINE_H

#include "core/foundation/base/param.h"
#include "core/foundation/base/sock.h"
#include "transport/ib/rules/ib_gid.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- files --------------------------------------------------------------------------------- */

/* Files are not trusted. Reads are bounded and do not block. Only an absent file may count as "not
 * there". */
enum bench_read {
    BENCH_READ_OK,
    BENCH_READ_ABSENT, /* also: the kernel has no value (EINVAL) */
    BENCH_READ_DENIED,
    BENCH_READ_BROKEN /* empty, binary, or not what was expected */
};

#define BENCH_NAME_BYTES 64

/** bench_read_text - the first bytes, without blanks at the end. @path: "/proc/..." below root.
 * @text_out: "" on failure. */
enum bench_read bench_read_text(const char *root, const char *path, char *text_out,
                                size_t text_bytes);

/** bench_read_all - at most 64 MiB. @text_out: freed by the caller; NULL on failure. Reading
 * /dev/kmsg ends at the newest message. */
enum bench_read bench_read_all(const char *root, const char *path, char **text_out);

enum bench_read bench_read_number(const char *root, const char *path, int64_t *number_out);

/** bench_read_bytes - at most n_max; for PCI configuration space. */
enum bench_read bench_read_bytes(const char *root, const char *path, void *bytes_out, size_t n_max,
                                 size_t *n_out);

/** bench_read_link - the last part of the path: the name of a driver or of a PCI device. */
enum bench_read bench_read_link(const char *root, const char *path, char *name_out,
                                size_t name_bytes);

/** bench_read_program - what a command of words prints, for facts that no file has. It may take 5
 * s. Of another root it is in the file programs/COMMAND. ABSENT: also a program that fails.
 * @text_out: freed by the caller; NULL on failure. */
enum bench_read bench_read_program(const char *root, const char *command, char **text_out);

/** bench_read_names - sorted with numbers by value, without dot files. @names_out: freed by the
 * caller. An absent folder has none. Returns their number. */
int bench_read_names(const char *root, const char *path, char (**names_out)[BENCH_NAME_BYTES]);

bool bench_exists(const char *root, const char *path);

bool bench_can_open(const char *root, const char *path);

/** bench_text_to_number - decimal or 0x, with blanks around it. */
bool bench_text_to_number(const char *text, int64_t *number_out);

char *bench_next_line(char **rest);

/** bench_grow - room for item n of a list that has n items; new items are zero. NULL = no memory;
 * the list is then unchanged. */
void *bench_grow(void *list, int n, size_t item_bytes);

/** bench_cpus_overlap - of two lists, "0-15,32" and "3". -1 = not understood. */
int bench_cpus_overlap(const char *a, const char *b);

int bench_cpus_count(const char *list);

/* ---- PCI ----------------------------------------------------------------------------------- */

struct bench_pci {
    char bus_id[BENCH_NAME_BYTES]; /* "0000:18:00.0" */
    uint32_t class;                /* 0x030200 */
    uint32_t vendor;
    bool is_gpu;
    bool is_hidden; /* a GPU that CUDA_VISIBLE_DEVICES leaves out */
    bool is_nic;    /* of RDMA, and jobs use it */
};

struct bench_pci_link {
    int width; /* lanes in use */
    int most_width;
    double gt_per_s; /* 16 for generation 4 */
    double most_gt_per_s;
};

/** bench_pci_read_link - above a function. ABSENT = it has no link of its own. */
enum bench_read bench_pci_read_link(const char *root, const char *bus_id,
                                    struct bench_pci_link *link_out);

/** bench_pci_gbit_per_s - in one direction, without the encoding. */
double bench_pci_gbit_per_s(int width, double gt_per_s);

/** bench_pci_path - "/sys/bus/pci/devices/BUS_ID/FILE". @text_out: 192 bytes; returned. */
const char *bench_pci_path(const char *bus_id, const char *file, char *text_out);

/* ---- network interfaces -------------------------------------------------------------------- */

struct bench_netdev {
    char name[16];
    char kind[16];                 /* "physical", "bond", "vlan", "bridge", "loopback", "virtual" */
    char parent[16];               /* of a VLAN; "" = none or unknown */
    char master[16];               /* a bond or bridge; "" = none */
    char duplex[16];               /* "full", "half", "unknown", "" */
    char bus_id[BENCH_NAME_BYTES]; /* "" = no PCI device */
    bool is_up;
    bool has_link;      /* up, and there is a carrier */
    int64_t mtu;        /* 0 = unknown */
    int64_t mbit_per_s; /* 0 = unknown */
};

const char *bench_net_host_text(const struct gyre_sock_interface *interface, char *text_out,
                                size_t text_bytes);

/* ---- RDMA ---------------------------------------------------------------------------------- */

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
    bool is_active;
    bool is_roce;
    char why_unused[96]; /* why no job uses it; "" = it is used, or should be */
};

/** bench_rdma_path - "/sys/class/infiniband/DEVICE/ports/PORT/FILE". @text_out: 256 bytes;
 * returned. */
const char *bench_rdma_path(const struct bench_rdma_port *port, const char *file, char *text_out);

/** bench_ethtool_read - the statistics of a driver, as `ethtool -S` prints them: lines of
 * "     name: number". Of another root they are in the file ethtool/NAME. @text_out: freed by the
 * caller. */
enum bench_read bench_ethtool_read(const char *root, const char *netdev, char **text_out);

/* ---- the whole machine --------------------------------------------------------------------- */

struct bench_machine {
    const char *root;
    struct bench_pci *pci;
    int n_pci;
    bool has_gpu, has_nic;        /* on PCI */
    bool has_gpu_driver;          /* /proc/driver/nvidia/version exists */
    struct bench_netdev *netdevs; /* in the order of their index */
    int n_netdevs;
    struct gyre_sock_interface *addresses;
    int n_addresses;
    struct gyre_sock_interface *chosen; /* the library's choice, best first */
    int n_chosen;
    gyre_status net_status; /* of that choice */
    char net_cause[512];
    struct bench_rdma_port *ports;
    int n_ports;
    int n_used_ports;
    int n_rdma_devices;
};

/** bench_machine_read - the addresses of this machine come from getifaddrs(), those of another root
 * from its programs/ip -o addr show. Freed by bench_machine_free(), also after a failure. Errors:
 * OUT_OF_MEMORY. */
gyre_status bench_machine_read(const char *root, const struct gyre_params *params,
                               struct bench_machine *machine_out);
void bench_machine_free(struct bench_machine *machine);

/* False = no memory. */
bool bench_net_read(const struct gyre_params *params, struct bench_machine *machine);
bool bench_rdma_read(struct bench_machine *machine);

/** bench_gpu_find_hidden - @visible: CUDA_VISIBLE_DEVICES; NULL = unset. Numbers count GPUs in the
 * order of their PCI addresses, as CUDA does for GPUs of one kind. */
void bench_gpu_find_hidden(const char *visible, struct bench_machine *machine);

/** bench_gpu_is_hidden - false for one that is not known. */
bool bench_gpu_is_hidden(const struct bench_machine *machine, const char *bus_id);

/** bench_rdma_find_unused - RDMA is off, IB_HCA leaves the port out, or nobody has enabled it while
 * others work. @n_expected: active ports that should be there; then all others are unused. -1 = not
 * known. */
void bench_rdma_find_unused(const struct gyre_params *params, int n_expected,
                            struct bench_machine *machine);

struct gyre_transport_ops;
struct gyre_peer_info;

/** bench_can_reach - as the library decides when a communicator is made. @why_out: why not. */
bool bench_can_reach(const struct gyre_params *params, const struct gyre_transport_ops *ops,
                     const struct gyre_peer_info *mine, const struct gyre_peer_info *peer,
                     char *why_out, size_t why_bytes);

/** bench_rdma_off - the variable that keeps jobs off RDMA: "NCCL_IB_DISABLE is set". NULL = none.
 * @text_out: 96 bytes; returned. */
const char *bench_rdma_off(const struct gyre_params *params, char *text_out);

const struct bench_netdev *bench_net_find(const struct bench_machine *machine, const char *name);

/** bench_net_is_used - by the variables in force, over TCP or as the interface of an RDMA port; or
 * such an interface lies on it. */
bool bench_net_is_used(const struct gyre_params *params, const struct bench_machine *machine,
                       const struct bench_netdev *device);

/** bench_net_first - NULL = none but loopback. */
const struct bench_netdev *bench_net_first(const struct bench_machine *machine);

/** bench_net_real - the interface of an adapter or bond that is most likely meant for other hosts:
 * one that has a link, else one that is enabled, else any. "" = none. */
const char *bench_net_real(const struct bench_machine *machine);

/** bench_rdma_gids - the rows that are not empty. @rows_out: freed by the caller. Returns their
 * number; -1 = a row is not understood, or no memory. */
int bench_rdma_gids(const struct bench_machine *machine, const struct bench_rdma_port *port,
                    struct gyre_ib_gid_row **rows_out);

/* ---- counters of RDMA ports ---------------------------------------------------------------- */

/* A file of a port, or a name of ethtool's statistics with # for the priority. Names are those of
 * the mlx5 and rxe drivers. */
struct bench_meaning {
    const char *name;
    bool is_loss;  /* else flow control did its work */
    bool is_total; /* rdma.counters judges it since the driver was loaded */
    const char *meaning, *fix;
};

extern const struct bench_meaning bench_meanings[];
extern const int bench_n_meanings;

struct bench_counters;

struct bench_rise {
    char
        name[128]; /* "mlx5_0:1 hw_counters/out_of_sequence", "mlx5_0:1 (ethtool) rx_prio3_pause" */
    int64_t n;
    const struct bench_meaning *meaning;
    const struct bench_rdma_port *port;
};

/** bench_counters_read - of all ports and their interfaces. NULL = no memory. @machine: must
 * outlive them. */
struct bench_counters *bench_counters_read(const struct bench_machine *machine);
void bench_counters_free(struct bench_counters *counters);

int bench_counters_n(const struct bench_counters *counters);

/** bench_counters_compare - larger in `after`; losses first. Returns their number, at most n_max.
 */
int bench_counters_compare(const struct bench_counters *before, const struct bench_counters *after,
                           struct bench_rise *rises_out, int n_max);

#endif
