/* SPDX-License-Identifier: Apache-2.0
 *
 * What a machine shows of itself in procfs, sysfs and /etc below a root folder, so that tests run
 * the same code on prepared folders: files, PCI functions, network interfaces, RDMA ports and their
 * counters.
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

/* A file is never trusted. Reads are bounded and do not block. They tell apart files that are
 * absent, forbidden and not understood, because only an absent file may count as "not there". */
enum bench_read {
    BENCH_READ_OK,
    BENCH_READ_ABSENT, /* there is no such file, or the kernel has no value for it (EINVAL) */
    BENCH_READ_DENIED, /* no permission */
    BENCH_READ_BROKEN  /* empty, binary, or not what was expected */
};

#define BENCH_NAME_BYTES 64

/** bench_read_text - the first bytes of a file, without blanks at its end.
 * @path: "/proc/..."; it is looked up below root. @text_out: "" on failure. */
enum bench_read bench_read_text(const char *root, const char *path, char *text_out,
                                size_t text_bytes);

/** bench_read_all - the whole file, at most 64 MiB. @text_out: freed by the caller; NULL on
 * failure. Reading /dev/kmsg ends at the newest message. */
enum bench_read bench_read_all(const char *root, const char *path, char **text_out);

enum bench_read bench_read_number(const char *root, const char *path, int64_t *number_out);

/** bench_read_bytes - as many bytes as the file has, at most n_max; for PCI configuration space. */
enum bench_read bench_read_bytes(const char *root, const char *path, void *bytes_out, size_t n_max,
                                 size_t *n_out);

/** bench_read_link - the last part of the path that a symbolic link leads to: the name of a driver
 * or of a PCI device. */
enum bench_read bench_read_link(const char *root, const char *path, char *name_out,
                                size_t name_bytes);

/** bench_read_names - the names in a folder, sorted with numbers by value, without dot files.
 * @names_out: freed by the caller. A folder that is absent has none. Returns their number. */
int bench_read_names(const char *root, const char *path, char (**names_out)[BENCH_NAME_BYTES]);

bool bench_exists(const char *root, const char *path);

/** bench_can_open - may this process open the file for reading and writing, if it is a device? */
bool bench_can_open(const char *root, const char *path);

/** bench_text_to_number - the whole text is a decimal or 0x number, with blanks around it. */
bool bench_text_to_number(const char *text, int64_t *number_out);

char *bench_next_line(char **rest);

/** bench_grow - make room for item n of a list that has n items. The new items are zero. NULL = no
 * memory; the list is then unchanged. */
void *bench_grow(void *list, int n, size_t item_bytes);

/** bench_cpus_overlap - do two lists of processors, "0-15,32" and "3", have one in common?
 * Returns -1 if one of them is not understood. */
int bench_cpus_overlap(const char *a, const char *b);

int bench_cpus_count(const char *list);

/* ---- PCI ----------------------------------------------------------------------------------- */

struct bench_pci {
    char bus_id[BENCH_NAME_BYTES]; /* "0000:18:00.0" */
    uint32_t class;                /* 0x030200 */
    uint32_t vendor;
    bool is_gpu; /* an NVIDIA display or 3D controller */
    bool is_nic; /* has RDMA devices */
};

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

/* ---- network interfaces -------------------------------------------------------------------- */

struct bench_netdev {
    char name[16];
    char kind[16];      /* "physical", "bond", "vlan", "bridge", "loopback", "virtual" */
    char parent[16];    /* of a VLAN: the interface below it; "" = none or unknown */
    char master[16];    /* the bond or bridge that it is part of; "" = none */
    char duplex[16];    /* "full", "half", "unknown", "" */
    bool is_up;         /* the administrator has enabled it */
    bool has_link;      /* and there is a carrier */
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
    bool is_roce;        /* an Ethernet port */
    char why_unused[96]; /* why no job uses it with the variables in force; "" = it is used, or
                            should be */
};

/** bench_rdma_path - "/sys/class/infiniband/DEVICE/ports/PORT/FILE". Returns text_out, of 256
 * bytes. */
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
    bool has_gpu_driver;          /* there is /proc/driver/nvidia/version */
    struct bench_netdev *netdevs; /* in the order of their index */
    int n_netdevs;
    struct gyre_sock_interface *addresses;
    int n_addresses;
    struct gyre_sock_interface *chosen; /* the addresses that the library would take, best first */
    int n_chosen;
    gyre_status net_status; /* of that choice */
    char net_cause[512];
    struct bench_rdma_port *ports;
    int n_ports;
    int n_used_ports;
    int n_rdma_devices;
};

/** bench_machine_read - read all of it. The addresses of this machine come from getifaddrs(), those
 * of another root from proc/net: IPv4 from fib_trie and route, IPv6 from if_inet6. Freed by
 * bench_machine_free(), also after a failure. Errors: OUT_OF_MEMORY. */
gyre_status bench_machine_read(const char *root, const struct gyre_params *params,
                               struct bench_machine *machine_out);
void bench_machine_free(struct bench_machine *machine);

/* The parts of bench_machine_read(); the files net.c and rdma.c have them. Return false if there is
 * no memory. */
bool bench_net_read(const struct gyre_params *params, struct bench_machine *machine);
bool bench_rdma_read(struct bench_machine *machine);

/** bench_rdma_find_unused - find the ports that no job uses: RDMA is off, IB_HCA leaves them out,
 * or nobody has enabled them while others work. @n_expected: active ports that should be there;
 * then all others are unused. -1 = not known. */
void bench_rdma_find_unused(const struct gyre_params *params, int n_expected,
                            struct bench_machine *machine);

/** bench_rdma_off - the variable that keeps jobs off RDMA, as the ib transport obeys it:
 * "NCCL_IB_DISABLE=1". NULL = none. @text_out: 96 bytes; returned. */
const char *bench_rdma_off(const struct gyre_params *params, char *text_out);

const struct bench_netdev *bench_net_find(const struct bench_machine *machine, const char *name);

/** bench_net_first - the interface that gyre uses, or NULL if there is none but loopback. */
const struct bench_netdev *bench_net_first(const struct bench_machine *machine);

/** bench_net_real - the name of the interface of an adapter or bond that is most likely meant for
 * other hosts: one that has a link, else one that is enabled, else any. "" = there is none. */
const char *bench_net_real(const struct bench_machine *machine);

/** bench_rdma_gids - the rows of a port's GID table that are not empty. @rows_out: freed by the
 * caller. Returns their number; -1 if a row is not understood, or there is no memory. */
int bench_rdma_gids(const struct bench_machine *machine, const struct bench_rdma_port *port,
                    struct gyre_ib_gid_row **rows_out);

/* ---- counters of RDMA ports ---------------------------------------------------------------- */

/* The meaning of a counter: a file of a port, or a name of ethtool's statistics with # for the
 * priority. The names are those of the mlx5 and rxe drivers; counters of other drivers with the
 * same names mean the same. */
struct bench_meaning {
    const char *name;
    bool is_loss;  /* packets were lost, damaged or sent again; else flow control did its work */
    bool is_total; /* rdma.counters judges what it has counted since the driver was loaded */
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

/** bench_counters_read - the counters of all ports, and of their interfaces. NULL if there is no
 * memory.
 * @machine: must outlive them. */
struct bench_counters *bench_counters_read(const struct bench_machine *machine);
void bench_counters_free(struct bench_counters *counters);

int bench_counters_n(const struct bench_counters *counters);

/** bench_counters_compare - the counters that are larger in `after`; losses first. A counter that
 * only one of the two has is left out. Returns their number, at most n_max. */
int bench_counters_compare(const struct bench_counters *before, const struct bench_counters *after,
                           struct bench_rise *rises_out, int n_max);

#endif
