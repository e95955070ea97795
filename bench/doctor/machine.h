/* SPDX-License-Identifier: Apache-2.0
 *
 * What procfs, sysfs and /etc show below a root folder, so that tests run the same code on prepared
 * folders.
 */
#ifndef GYRE_BENCH_DOCTOR_MACHINE_H
#define GYRE_BENCH_DOCTOR_MACHINE_H

#include "core/foundation/base/param.h"
#include "core/foundation/base/sock.h"
#include "core/gyre_model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Files are not trusted: reads are bounded and do not block. */
enum bench_read {
    BENCH_READ_OK,
    BENCH_READ_ABSENT, /* also EINVAL: the kernel has no value */
    BENCH_READ_DENIED,
    BENCH_READ_BROKEN /* empty, binary or unexpected */
};

#define BENCH_NAME_BYTES 64

/* "" = this machine, else a folder that holds proc, sys, etc and dev. Set before anything is read.
 */
extern const char *bench_root;

/** Zeroed, at least one item, never freed. Without memory the process ends with a message. */
void *bench_keep(size_t n, size_t item_bytes);

/** Makes room for item n of n, zeroed. @list: NULL at first. */
void *bench_grow(void *list, int n, size_t item_bytes);

/** A text that is kept as by bench_keep(). */
char *bench_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** Reads the first bytes, without blanks at the end. @path: "/proc/..." below root. @text_out: ""
 * on failure. */
enum bench_read bench_read_text(const char *path, char *text_out, size_t text_bytes);

/** Reads at most 64 MiB. @text_out: NULL on failure. /dev/kmsg ends at its newest message. */
enum bench_read bench_read_all(const char *path, char **text_out);

enum bench_read bench_read_number(const char *path, int64_t *number_out);

/** Reads at most n_max bytes. @path: not below root. */
enum bench_read bench_read_bytes(const char *path, void *bytes_out, size_t n_max, size_t *n_out);

/** The last part of the link's target: a driver or PCI device. */
enum bench_read bench_read_link(const char *path, char *name_out, size_t name_bytes);

/** What a command prints within 5 s, or another root's file programs/COMMAND. ABSENT: also if the
 * program failed. @text_out: NULL on failure. */
enum bench_read bench_read_program(const char *command, char **text_out);

/** Names are sorted, numbers by value, and exclude dot files. Returns their number, 0 for an absent
 * folder. */
int bench_read_names(const char *path, char (**names_out)[BENCH_NAME_BYTES]);

bool bench_exists(const char *path);

bool bench_can_open(const char *path);

/** Accepts decimal or 0x, with blanks around it. */
bool bench_text_to_number(const char *text, int64_t *number_out);

char *bench_next_line(char **rest);

/* @text: is cut into lines, NULL = none. */
#define BENCH_EACH_LINE(text, line) \
    for (char *rest_ = (text), *line; (line = bench_next_line(&rest_)) != NULL;)

/** Do two lists such as "0-15,32" overlap? -1 = not understood. */
int bench_cpus_overlap(const char *a, const char *b);

int bench_cpus_count(const char *list);

struct bench_pci {
    char bus_id[BENCH_NAME_BYTES]; /* "0000:18:00.0" */
    uint32_t class;                /* 0x030200 */
    uint32_t vendor;
    bool is_gpu;
    bool is_hidden; /* by CUDA_VISIBLE_DEVICES */
    bool is_nic;    /* an RDMA adapter that jobs use */
};

struct bench_pci_link {
    int width; /* lanes in use */
    int most_width;
    double gt_per_s; /* 16 = generation 4 */
    double most_gt_per_s;
};

/** The link above a function. ABSENT = none of its own. */
enum bench_read bench_pci_read_link(const char *bus_id, struct bench_pci_link *link_out);

/** The rate in one direction, without the encoding. */
double bench_pci_gbit_per_s(int width, double gt_per_s);

/** "/sys/bus/pci/devices/BUS_ID/FILE". */
const char *bench_pci_path(const char *bus_id, const char *file);

struct bench_netdev {
    char name[16];
    char kind[16];                 /* "physical", "bond", "vlan", "bridge", "loopback", "virtual" */
    char parent[16];               /* of a VLAN, "" = unknown */
    char master[16];               /* bond or bridge, "" = none */
    char duplex[16];               /* "full", "half", "unknown", "" */
    char bus_id[BENCH_NAME_BYTES]; /* "" = not PCI */
    bool is_up;
    bool has_link; /* up, with a carrier */
    int64_t index;
    int64_t mtu;        /* 0 = unknown */
    int64_t mbit_per_s; /* 0 = unknown */
};

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
    char netdev[16];   /* "" = unknown */
    char firmware[64];
    char board[64];
    char bus_id[BENCH_NAME_BYTES]; /* "" = not PCI */
    bool is_soft;                  /* no hardware, as Soft-RoCE */
    bool is_active;
    bool is_roce;
    char why_unused[96]; /* "" = jobs use it, or should */
};

/** "/sys/class/infiniband/DEVICE/ports/PORT/FILE". */
const char *bench_rdma_path(const struct bench_rdma_port *port, const char *file);

/** As `ethtool -S` prints them, or another root's file ethtool/NAME. */
enum bench_read bench_ethtool_read(const char *netdev, char **text_out);

struct bench_machine {
    struct bench_pci *pci;
    int n_pci;
    bool has_gpu, has_nic; /* on PCI */
    bool has_gpu_driver;
    struct bench_netdev *netdevs; /* by index */
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

/** Addresses come from getifaddrs(), or another root's programs/ip -o addr show. */
void bench_machine_read(const struct gyre_params *params, struct bench_machine *machine_out);
void bench_net_read(const struct gyre_params *params, struct bench_machine *machine);
void bench_rdma_read(struct bench_machine *machine);

/** @visible: CUDA_VISIBLE_DEVICES, NULL = unset. Numbers follow PCI addresses, as CUDA's do for
 * equal GPUs. */
void bench_gpu_find_hidden(const char *visible, struct bench_machine *machine);

/** False also if the GPU is unknown. */
bool bench_gpu_is_hidden(const struct bench_machine *machine, const char *bus_id);

/** Ports that variables exclude, or that are down while others work. @n_expected: active ones that
 * should be there. -1 = unknown. */
void bench_rdma_find_unused(const struct gyre_params *params, int n_expected,
                            struct bench_machine *machine);

struct gyre_transport_ops;
struct gyre_peer_info;

/** Decides as the library does for a communicator. */
bool bench_can_reach(const struct gyre_params *params, const struct gyre_transport_ops *ops,
                     const struct gyre_peer_info *mine, const struct gyre_peer_info *peer,
                     char *why_out, size_t why_bytes);

/** The variable that keeps jobs off RDMA: "NCCL_IB_DISABLE is set". NULL = none. */
const char *bench_rdma_off(const struct gyre_params *params);

const struct bench_netdev *bench_net_find(const struct bench_machine *machine, const char *name);

/** Do jobs use the interface, over TCP or RDMA, or one that lies on it? */
bool bench_net_is_used(const struct gyre_params *params, const struct bench_machine *machine,
                       const struct bench_netdev *device);

/** NULL = there is only loopback. */
const struct bench_netdev *bench_net_first(const struct bench_machine *machine);

/** The adapter or bond most likely meant for other hosts: with a link, else enabled, else any. "" =
 * none. */
const char *bench_net_real(const struct bench_machine *machine);

/** Rows in use. Returns their number, -1 = a row is not understood. */
int bench_rdma_gids(const struct bench_machine *machine, const struct bench_rdma_port *port,
                    struct gyre_ib_gid_row **rows_out);

/* A file of a port or a name of ethtool's statistics, # = priority. Names are mlx5's and rxe's. */
struct bench_meaning {
    const char *name;
    bool is_loss;  /* else flow control worked */
    bool is_total; /* judged by rdma.counters since the driver was loaded */
    const char *meaning, *fix;
};

extern const struct bench_meaning bench_meanings[];
extern const int bench_n_meanings;

struct bench_counter {
    char
        name[128]; /* "mlx5_0:1 hw_counters/out_of_sequence", "mlx5_0:1 (ethtool) rx_prio3_pause" */
    const struct bench_rdma_port *port;
    int64_t value; /* in all, or by how much it rose */
    const struct bench_meaning *meaning;
};

struct bench_counters {
    struct bench_counter *list;
    int n;
};

/** All ports and their interfaces. @machine: outlives them. */
struct bench_counters *bench_counters_read(const struct bench_machine *machine);

/** Of ports in use: in all, and within @n_seconds. */
void bench_counters_print(const struct bench_machine *machine, int n_seconds, FILE *out);

/** Failures and moves of connections, from the files of ranks. @pattern: GYRE_METRICS_FILE, "" =
 * there are none. */
void bench_metrics_print(const char *pattern, FILE *out);

/** Lists counters that rose, losses first. Returns their number, at most n_max. */
int bench_counters_compare(const struct bench_counters *before, const struct bench_counters *after,
                           struct bench_counter *rises_out, int n_max);

#endif
