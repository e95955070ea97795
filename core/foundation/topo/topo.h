/* SPDX-License-Identifier: Apache-2.0
 *
 * The topology of one host as a graph. NUMA nodes are at the top, PCIe switches, GPUs and NICs
 * below them, and the ports of a NIC below the NIC. NVLinks connect nodes across the tree. The
 * graph comes from sysfs and NVML (gyre_topo_detect()) or from an XML file in NCCL's format
 * (gyre_topo_xml_read()). All queries are pure functions of the graph, so tests and simulations
 * need no hardware.
 */
#ifndef GYRE_TOPO_TOPO_H
#define GYRE_TOPO_TOPO_H

#include "core/foundation/base/status.h"

#define GYRE_TOPO_BUS_ID_BYTES 16
#define GYRE_TOPO_NAME_BYTES   64
#define GYRE_TOPO_TEXT_BYTES   640 /* an affinity mask of 2048 processors is 575 characters */
#define GYRE_TOPO_MAX_NODES    1024
#define GYRE_TOPO_MAX_LINKS    2048
#define GYRE_TOPO_MAX_DEPTH    16 /* of nested PCIe switches */

/* The distance between two nodes, nearest first. Words and order are NCCL's, so P2P_LEVEL and
 * NET_GDR_LEVEL have NCCL's meaning. NVB, C2C, P2C and PXN are accepted as limits everywhere. PXN
 * is a detour that a sender chooses, so no pair of nodes has this level. X(name, legacy number or
 * -1, meaning) */
#define GYRE_TOPO_LEVEL_TABLE(X)                          \
    X(LOC, 0, "same device")                              \
    X(NVL, -1, "NVLink")                                  \
    X(NVB, -1, "NVLink through another GPU")              \
    X(C2C, -1, "CPU and GPU on one package link")         \
    X(PIX, 1, "one PCIe switch")                          \
    X(PXB, 2, "several PCIe switches, no CPU")            \
    X(P2C, -1, "GPU's package link, then the CPU's PCIe") \
    X(PXN, -1, "through a GPU that is next to the NIC")   \
    X(PHB, 3, "the CPU's PCIe host bridge")               \
    X(SYS, 4, "the link between NUMA nodes")

enum gyre_topo_level {
#define GYRE_TOPO_LEVEL_ENUM(name, legacy, meaning) GYRE_TOPO_##name,
    GYRE_TOPO_LEVEL_TABLE(GYRE_TOPO_LEVEL_ENUM)
#undef GYRE_TOPO_LEVEL_ENUM
        GYRE_TOPO_N_LEVELS
};

enum gyre_topo_kind {
    GYRE_TOPO_CPU, /* a NUMA node */
    GYRE_TOPO_PCI, /* a PCIe switch, named by its upstream port, or an unknown function */
    GYRE_TOPO_GPU,
    GYRE_TOPO_NIC,     /* one PCIe function of a network adapter */
    GYRE_TOPO_NET,     /* one port of a NIC */
    GYRE_TOPO_NVSWITCH /* all NVSwitches of the host together */
};

struct gyre_topo_node {
    enum gyre_topo_kind kind;
    int32_t parent;                      /* index; -1 for CPU and NVSWITCH */
    char bus_id[GYRE_TOPO_BUS_ID_BYTES]; /* PCI GPU NIC: "0000:18:00.0"; "" if there is none */
    uint32_t pci_class;                  /* PCI GPU NIC: 0x060400; 0 = unknown */
    uint32_t link_mt_per_s; /* PCI GPU NIC, to the parent: 16000 for gen 4; 0 = unknown */
    uint32_t link_width;    /* lanes; 0 = unknown */

    /* CPU */
    int32_t numa_id;
    char arch[16];   /* "x86_64" */
    char vendor[16]; /* "GenuineIntel" */
    int32_t family;  /* x86; 0 = unknown */
    int32_t model;
    char affinity[GYRE_TOPO_TEXT_BYTES]; /* hexadecimal mask as in sysfs; "" = unknown */

    /* GPU */
    int32_t ordinal; /* NVML's, or the index in the caller's list; -1 = unknown. Also of NET */
    int32_t arch_sm; /* 90 for 9.0; 0 = unknown */
    int32_t rank;    /* only from files; -1 = none */

    /* GPU and NET */
    int32_t gdr; /* GPUDirect RDMA: 1, 0, or -1 = unknown */

    /* NET */
    char name[GYRE_TOPO_NAME_BYTES];   /* "mlx5_0"; without RDMA the interface's name */
    char netdev[GYRE_TOPO_NAME_BYTES]; /* the interface of an RDMA port; "" = unknown */
    uint64_t guid;                     /* 0 = unknown */
    uint32_t speed_mbit_per_s;         /* 0 = unknown */
    int32_t port;                      /* from 1 */
    bool is_rdma;
};

enum gyre_topo_link_kind { GYRE_TOPO_NVLINK, GYRE_TOPO_C2CLINK };

/* A link that is not part of the tree. An NVLink between two GPUs is in the list twice, because
 * both GPUs report it. */
struct gyre_topo_link {
    enum gyre_topo_link_kind kind;
    int32_t from; /* a GPU */
    int32_t to;   /* NVLINK: a GPU or the NVSWITCH; C2CLINK: a CPU */
    uint32_t n_lanes;
    double bytes_per_ns; /* of all lanes, in one direction */
};

struct gyre_topo {
    struct gyre_topo_node *nodes; /* a parent stands before its children */
    int32_t n_nodes;
    int32_t n_nodes_allocated;
    struct gyre_topo_link *links;
    int32_t n_links;
    int32_t n_links_allocated;
    char skipped[256]; /* what a file has that was not read: "2 elements of unknown names"; "" */
};

struct gyre_topo_hop {
    int32_t from;
    int32_t to;
    double bytes_per_ns; /* in one direction; paths with a common hop share it */
};

#define GYRE_TOPO_MAX_HOPS (2 * GYRE_TOPO_MAX_DEPTH + 8)

struct gyre_topo_path {
    enum gyre_topo_level level;
    int32_t n_hops;
    double bytes_per_ns; /* of the slowest hop; 0 from a node to itself */
    struct gyre_topo_hop hops[GYRE_TOPO_MAX_HOPS];
};

/* ---- words --------------------------------------------------------------------------------- */

/** gyre_topo_level_name - "LOC" ... "SYS". */
const char *gyre_topo_level_name(enum gyre_topo_level level);

/** gyre_topo_level_parse - parse a level word, in upper or lower case, or a legacy number (0 LOC, 1
 * PIX, 2 PXB, 3 PHB, 4 and above SYS). @variable: its name stands in the error. Errors:
 * INVALID_ARGUMENT, listing the legal words. */
gyre_status gyre_topo_level_parse(const char *variable, const char *text,
                                  enum gyre_topo_level *level_out);

/** gyre_topo_kind_name - "CPU", "PCI", "GPU", "NIC", "NET", "NVSWITCH". */
const char *gyre_topo_kind_name(enum gyre_topo_kind kind);

/** gyre_topo_bus_id_parse - convert "18:00.0", "0000:18:00.0" or "00000000:18:00.0" to the form of
 * sysfs, "0000:18:00.0". Errors: INVALID_ARGUMENT. */
gyre_status gyre_topo_bus_id_parse(const char *text, char bus_id_out[GYRE_TOPO_BUS_ID_BYTES]);

/* ---- the graph ----------------------------------------------------------------------------- */

/** gyre_topo_init - make an empty graph. gyre_topo_fini() frees the nodes; the graph is empty
 * again.
 */
void gyre_topo_init(struct gyre_topo *topo);
void gyre_topo_fini(struct gyre_topo *topo);

/** gyre_topo_node_init - make a node whose other fields all are unknown. */
void gyre_topo_node_init(struct gyre_topo_node *node, enum gyre_topo_kind kind, int32_t parent);

/** gyre_topo_add_node - add a copy of a node. The parts of a partitioned GPU share their bus id and
 * parent. @index_out: may be NULL. Errors: INVALID_ARGUMENT (too many nodes, nested too deeply, a
 * parent of the wrong kind, a bus id or NUMA node that exists already), OUT_OF_MEMORY. */
gyre_status gyre_topo_add_node(struct gyre_topo *topo, const struct gyre_topo_node *node,
                               int32_t *index_out);

/** gyre_topo_add_link - add lanes from a GPU. Lanes between the same two nodes are added up. The
 * bandwidth, link->bytes_per_ns, is estimated if it is 0: for an NVLink from the GPU's
 * architecture. Errors: INVALID_ARGUMENT (ends of the wrong kind, too many
 * links), OUT_OF_MEMORY. */
gyre_status gyre_topo_add_link(struct gyre_topo *topo, const struct gyre_topo_link *link);

/** gyre_topo_find_bus_id - index of the node with this bus id (any spelling), or -1. */
int32_t gyre_topo_find_bus_id(const struct gyre_topo *topo, const char *bus_id);

/** gyre_topo_find_net - index of a port by device name and port number (0 = any), or -1. */
int32_t gyre_topo_find_net(const struct gyre_topo *topo, const char *name, int port);

/** gyre_topo_find_numa - index of a NUMA node, or -1. */
int32_t gyre_topo_find_numa(const struct gyre_topo *topo, int numa_id);

/** gyre_topo_next - index of the first node of a kind at or after `start`, or -1. */
int32_t gyre_topo_next(const struct gyre_topo *topo, enum gyre_topo_kind kind, int32_t start);

/** gyre_topo_count - nodes of a kind. */
int32_t gyre_topo_count(const struct gyre_topo *topo, enum gyre_topo_kind kind);

/** gyre_topo_uplink_bytes_per_ns - estimated payload bandwidth from a node to its parent, one
 * direction: PCIe from speed and width (unknown counts as gen 3 x16), a port from its rate. */
double gyre_topo_uplink_bytes_per_ns(const struct gyre_topo_node *node);

/** gyre_topo_hash - a hash of everything that a plan may depend on: the GPUs (architecture, levels
 * and link bandwidths between them), the RDMA ports (rate, levels to the GPUs) and the NUMA nodes
 * of both. Bus ids, names, GUIDs, ordinals and interfaces without RDMA do not count, so equal
 * machines have equal hashes. */
uint64_t gyre_topo_hash(const struct gyre_topo *topo);

/* ---- paths --------------------------------------------------------------------------------- */

/** gyre_topo_path_find - the path with the nearest level between two nodes. Of several NVLink
 * detours it takes the one with the most bandwidth. Errors: INVALID_ARGUMENT (no such node). */
gyre_status gyre_topo_path_find(const struct gyre_topo *topo, int32_t from, int32_t to,
                                struct gyre_topo_path *path_out);

/** gyre_topo_level_between - the level of the path that gyre_topo_path_find() finds; SYS if an
 * index does not exist. */
enum gyre_topo_level gyre_topo_level_between(const struct gyre_topo *topo, int32_t a, int32_t b);

/** gyre_topo_nearest_nets - all ports at the nearest level to a GPU, the fastest first. If several
 * GPUs have the same nearest ports, their lists start at different ports, so GPUs that take their
 * first port use different ones.
 * @rdma_only: leave out ports without RDMA. @n_max: entries of nets_out. Returns how many were
 * written, which may be 0. */
int32_t gyre_topo_nearest_nets(const struct gyre_topo *topo, int32_t gpu, bool rdma_only,
                               int32_t n_max, int32_t *nets_out);

/* ---- sources of a topology ----------------------------------------------------------------- */

struct gyre_topo_detect_options {
    const char *sysfs_root;         /* NULL = "/sys" */
    const char *nvml_library;       /* NULL = "libnvidia-ml.so.1"; "" = do not use NVML */
    const char *const *gpu_bus_ids; /* NULL = the GPUs that NVML knows, else those of sysfs */
    size_t n_gpu_bus_ids;
};

/** gyre_topo_detect - the topology of this machine. A missing NVML or an empty sysfs is no error;
 * the graph then lacks what they would tell. @options: NULL = all defaults. @topo_out: to be freed
 * with gyre_topo_fini(); unchanged on failure. Errors: INVALID_ARGUMENT (a malformed bus id),
 * SYSTEM, OUT_OF_MEMORY. */
gyre_status gyre_topo_detect(const struct gyre_topo_detect_options *options,
                             struct gyre_topo *topo_out);

/** gyre_topo_port_netdev - the interface of an RDMA port: that of the first row of its GID table
 * that names one, or the parent of a software device. False, and "", if there is none.
 * @sysfs_root: as in gyre_topo_detect_options, but not NULL. */
bool gyre_topo_port_netdev(const char *sysfs_root, const char *device, int port, char *netdev_out,
                           size_t n_bytes);

/** gyre_topo_xml_read - read a file in NCCL's topology format, also in AMD's. What gyre cannot use
 * is skipped and counted: topo_out->skipped, and a line in the log. Of several hosts the first one
 * is read. The file is untrusted: at most 4 MiB, without entities, and reading it never uses the
 * network. Errors: INVALID_ARGUMENT with file, line and problem; SYSTEM; UNSUPPORTED
 * (built without libxml2). */
gyre_status gyre_topo_xml_read(const char *path, struct gyre_topo *topo_out);

/** gyre_topo_xml_parse - as gyre_topo_xml_read(), from memory. @name: for messages. */
gyre_status gyre_topo_xml_parse(const char *name, const char *bytes, size_t n_bytes,
                                struct gyre_topo *topo_out);

/** gyre_topo_xml_write - write the graph to a file in NCCL's format. Other processes see the old
 * file or the complete new one. Errors: INVALID_ARGUMENT (`path` exists and is no regular file),
 * SYSTEM, OUT_OF_MEMORY. */
gyre_status gyre_topo_xml_write(const struct gyre_topo *topo, const char *path);

/** gyre_topo_xml_format - as gyre_topo_xml_write(), to a string that the caller frees. */
gyre_status gyre_topo_xml_format(const struct gyre_topo *topo, char **text_out);

#endif
