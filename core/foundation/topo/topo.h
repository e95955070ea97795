/* SPDX-License-Identifier: Apache-2.0
 *
 * One host as a graph: NUMA nodes, below them PCIe switches, GPUs, NICs and their ports; NVLinks
 * across the tree. All queries are pure.
 */
#ifndef GYRE_TOPO_TOPO_H
#define GYRE_TOPO_TOPO_H

#include "core/foundation/base/status.h"

#define GYRE_TOPO_BUS_ID_BYTES 16
#define GYRE_TOPO_NAME_BYTES   64
#define GYRE_TOPO_TEXT_BYTES   640 /* 2048 processors' mask has 575 characters */
#define GYRE_TOPO_MAX_NODES    1024
#define GYRE_TOPO_MAX_LINKS    2048
#define GYRE_TOPO_MAX_DEPTH    16

/* Nearest first, NCCL's words and order. NVB, C2C, P2C and PXN are limits; PXN, a sender's detour,
 * holds for no pair. X(name, legacy number or -1, meaning) */
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
    GYRE_TOPO_CPU,
    GYRE_TOPO_PCI, /* named by its upstream port, or an unknown function */
    GYRE_TOPO_GPU,
    GYRE_TOPO_NIC,
    GYRE_TOPO_NET,
    GYRE_TOPO_NVSWITCH
};

struct gyre_topo_node {
    enum gyre_topo_kind kind;
    int32_t parent;                      /* -1 for CPU and NVSWITCH */
    char bus_id[GYRE_TOPO_BUS_ID_BYTES]; /* PCI GPU NIC: "0000:18:00.0"; "" = none */
    uint32_t pci_class;                  /* likewise: 0x060400; 0 = unknown */
    uint32_t link_mt_per_s;              /* likewise, to the parent: 16000 for gen 4; 0 = unknown */
    uint32_t link_width;                 /* 0 = unknown */

    int32_t numa_id; /* CPU, down to affinity */
    char arch[16];
    char vendor[16];
    int32_t family; /* x86; 0 = unknown */
    int32_t model;
    char affinity[GYRE_TOPO_TEXT_BYTES]; /* as in sysfs; "" = unknown */

    int32_t ordinal; /* GPU NET: NVML's, or in the caller's list; -1 = unknown */
    int32_t arch_sm; /* GPU: 90 for 9.0; 0 = unknown */
    int32_t rank;    /* GPU: only from files; -1 = none */

    int32_t gdr; /* GPU NET: GPUDirect RDMA: 1, 0, or -1 = unknown */

    char name[GYRE_TOPO_NAME_BYTES];   /* NET, as the rest: "mlx5_0", or the interface */
    char netdev[GYRE_TOPO_NAME_BYTES]; /* of an RDMA port; "" = unknown */
    uint64_t guid;                     /* 0 = unknown */
    uint32_t speed_mbit_per_s;         /* 0 = unknown */
    int32_t port;
    bool is_rdma;
};

enum gyre_topo_link_kind { GYRE_TOPO_NVLINK, GYRE_TOPO_C2CLINK };

/* An NVLink between GPUs is in the list twice. */
struct gyre_topo_link {
    enum gyre_topo_link_kind kind;
    int32_t from;
    int32_t to; /* NVLINK: a GPU or the NVSWITCH; C2CLINK: a CPU */
    uint32_t n_lanes;
    double bytes_per_ns;
};

struct gyre_topo {
    struct gyre_topo_node *nodes; /* parents before children */
    int32_t n_nodes;
    uint32_t nodes_capacity;
    struct gyre_topo_link *links;
    int32_t n_links;
    uint32_t links_capacity;
    char skipped[256]; /* "" = all was read */
};

struct gyre_topo_hop {
    int32_t from;
    int32_t to;
    double bytes_per_ns;
};

#define GYRE_TOPO_MAX_HOPS (2 * GYRE_TOPO_MAX_DEPTH + 8)

struct gyre_topo_path {
    enum gyre_topo_level level;
    int32_t n_hops;
    double bytes_per_ns; /* at the slowest hop; 0 to itself */
    struct gyre_topo_hop hops[GYRE_TOPO_MAX_HOPS];
};

const char *gyre_topo_level_name(enum gyre_topo_level level);

/** A word in any case, or a legacy number (0 LOC, 1 PIX, 2 PXB, 3 PHB, from 4 SYS). Errors:
 * INVALID_ARGUMENT, listing the words. */
gyre_status gyre_topo_level_parse(const char *variable, const char *text,
                                  enum gyre_topo_level *level_out);

const char *gyre_topo_kind_name(enum gyre_topo_kind kind);

/** "18:00.0", or domains of 4 or 8 digits, to "0000:18:00.0". Errors: INVALID_ARGUMENT. */
gyre_status gyre_topo_bus_id_parse(const char *text, char bus_id_out[GYRE_TOPO_BUS_ID_BYTES]);

void gyre_topo_init(struct gyre_topo *topo);
void gyre_topo_fini(struct gyre_topo *topo);

void gyre_topo_node_init(struct gyre_topo_node *node, enum gyre_topo_kind kind, int32_t parent);

/** Copies the node. Parts of a GPU share bus id and parent. @index_out: may be NULL. Errors:
 * INVALID_ARGUMENT (too many or deep, a wrong parent, a known bus id or NUMA node),
 * OUT_OF_MEMORY. */
gyre_status gyre_topo_add_node(struct gyre_topo *topo, const struct gyre_topo_node *node,
                               int32_t *index_out);

/** Adds up lanes of the same nodes; estimates bandwidth 0. Errors: INVALID_ARGUMENT,
 * OUT_OF_MEMORY. */
gyre_status gyre_topo_add_link(struct gyre_topo *topo, const struct gyre_topo_link *link);

/** Indexes, or -1. Bus ids in any spelling; @port: 0 = any. gyre_topo_next() includes `start`. */
int32_t gyre_topo_find_bus_id(const struct gyre_topo *topo, const char *bus_id);

int32_t gyre_topo_find_numa(const struct gyre_topo *topo, int numa_id);

int32_t gyre_topo_next(const struct gyre_topo *topo, enum gyre_topo_kind kind, int32_t start);

int32_t gyre_topo_count(const struct gyre_topo *topo, enum gyre_topo_kind kind);

/** Estimated payload towards the parent. Unknown PCIe counts as gen 3 x16. */
double gyre_topo_uplink_bytes_per_ns(const struct gyre_topo_node *node);

/** Of all that plans may depend on. Equal machines have equal hashes: bus ids, names and ordinals
 * do not count. */
uint64_t gyre_topo_hash(const struct gyre_topo *topo);

/** The nearest level; the widest NVLink detour. Errors: INVALID_ARGUMENT (no such node). */
gyre_status gyre_topo_path_find(const struct gyre_topo *topo, int32_t from, int32_t to,
                                struct gyre_topo_path *path_out);

/** SYS for wrong indexes. */
enum gyre_topo_level gyre_topo_level_between(const struct gyre_topo *topo, int32_t a, int32_t b);

/** Ports at a GPU's nearest level, fastest first; GPUs with the same ports start at different ones.
 * Returns how many. */
int32_t gyre_topo_nearest_nets(const struct gyre_topo *topo, int32_t gpu, bool rdma_only,
                               int32_t n_max, int32_t *nets_out);

struct gyre_topo_detect_options {
    const char *sysfs_root;         /* NULL = "/sys" */
    const char *nvml_library;       /* NULL = "libnvidia-ml.so.1"; "" = none */
    const char *const *gpu_bus_ids; /* NULL = NVML's GPUs, else sysfs's */
    size_t n_gpu_bus_ids;
};

/** @options: NULL = defaults. Errors: INVALID_ARGUMENT (bus id), SYSTEM, OUT_OF_MEMORY. */
gyre_status gyre_topo_detect(const struct gyre_topo_detect_options *options,
                             struct gyre_topo *topo_out);

/** The first interface of the GID table, or a software device's parent. False and "" = none. */
bool gyre_topo_port_netdev(const char *sysfs_root, const char *device, int port, char *netdev_out,
                           size_t n_bytes);

/** NCCL's or AMD's form; the first host's. topo_out->skipped counts what gyre cannot use. The file
 * is untrusted: at most 4 MiB, no entities, no network. Errors: INVALID_ARGUMENT with file, line
 * and problem; SYSTEM; UNSUPPORTED (no libxml2). */
gyre_status gyre_topo_xml_read(const char *path, struct gyre_topo *topo_out);

gyre_status gyre_topo_xml_parse(const char *name, const char *bytes, size_t n_bytes,
                                struct gyre_topo *topo_out);

/** Readers see the old or the new file. Errors: INVALID_ARGUMENT (not regular), SYSTEM,
 * OUT_OF_MEMORY. */
gyre_status gyre_topo_xml_write(const struct gyre_topo *topo, const char *path);

/** The caller frees the text. */
gyre_status gyre_topo_xml_format(const struct gyre_topo *topo, char **text_out);

#endif
