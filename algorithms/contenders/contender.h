/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of our programs other libraries would run, with which protocol, channels and slots.
 */
#ifndef GYRE_ALGORITHMS_CONTENDER_H
#define GYRE_ALGORITHMS_CONTENDER_H

#include "algorithms/algorithm.h"
#include "algorithms/simulate/simulate.h"

/* X(enum suffix, name) */
#define GYRE_GPU_TABLE(X) \
    X(VOLTA, volta)       \
    X(AMPERE, ampere) X(HOPPER, hopper) X(BLACKWELL, blackwell) X(CDNA3, cdna3)

enum gyre_gpu {
#define GYRE_GPU_ENUM(id, name) GYRE_GPU_##id,
    GYRE_GPU_TABLE(GYRE_GPU_ENUM)
#undef GYRE_GPU_ENUM
        GYRE_N_GPUS
};

extern const char *const gyre_gpu_names[GYRE_N_GPUS];

enum gyre_cpu { GYRE_CPU_AMD, GYRE_CPU_INTEL, GYRE_CPU_GRACE }; /* Grace: linked by C2C */

/* Facts on which libraries decide. Rates are GB/s in each direction. */
struct gyre_contender_machine {
    enum gyre_gpu gpu;
    double link_gbytes; /* to all others of its host; 0 = by `gpu` */
    unsigned mesh_gpus; /* connected pair by pair; 0 = a switch */
    unsigned n_rings;   /* through a mesh; 0 = as many as use all links */
    bool has_nvls;      /* the switch sums */
    bool has_far_nics;  /* behind a CPU, which may tear 128-byte stores */
    double nic_gbytes;
    unsigned n_nics; /* of a host; 0 = one a rank */
    enum gyre_cpu cpu;
    double net_latency_us; /* from the NIC's driver; NCCL adds it to its own */
    unsigned version;      /* 2.18 is 218; 0 = new */
    uint64_t eager_bytes;  /* MPI: longest message sent without asking */
};

struct gyre_machine_file {
    struct gyre_contender_machine facts; /* but for n_nics and version */
    struct gyre_cost cost;
    char library[16];
    char algorithm[16]; /* "" = the library's choice */
    bool is_mesh;
    unsigned n_hosts;             /* unless more or fewer are asked for */
    unsigned n_gpus, n_nics;      /* of a host */
    char fabric[2048];            /* the lines of its fabric but for `hosts` */
    double p2p_efficiency;        /* the part of links that sends reach */
    double p2p_worker_efficiency; /* and of the rate of a ring's warps that theirs reach */
};

/** @folder: of the files that others are `like`. Errors: INVALID_ARGUMENT with file and line,
 * SYSTEM. */
gyre_status gyre_machine_file_read(const char *path, const char *folder,
                                   struct gyre_machine_file *file_out);

/** The fabric of so many hosts of such a machine, from the lines of its file. @n_hosts, @n_gpus: 0
 * = as the file says. Errors: as gyre_fabric_from_text(). */
gyre_status gyre_machine_file_fabric(const struct gyre_machine_file *file, unsigned n_hosts,
                                     unsigned n_gpus, struct gyre_fabric **fabric_out);

struct gyre_contender_call {
    enum gyre_collective coll;
    unsigned n_ranks;
    unsigned n_hosts;      /* equally large */
    uint64_t n_bytes;      /* whole vector or all blocks */
    const char *algorithm; /* NULL = the library's choice */
    const char *proto;     /* likewise */
};

struct gyre_contender_way {
    const struct gyre_algorithm *algorithm;
    const char *name; /* the library's word */
    enum gyre_proto proto;
    uint32_t n_channels;
    uint32_t tile_bytes;
    uint32_t depth;
    double rate_factor;  /* of links: what the switch saves, or a mesh lacks */
    double store_factor; /* one store of a worker reaches several ranks */
    double estimated_us; /* by the library's model; 0 = it has none */
};

/** By the cost model of NCCL 2.30 (src/graph/tuning.cc, enqueue.cc), without CollNet. Errors:
 * UNSUPPORTED (NCCL has no such algorithm or protocol there). */
gyre_status gyre_nccl_choose(const struct gyre_contender_machine *machine,
                             const struct gyre_contender_call *call,
                             struct gyre_contender_way *way_out);

#define GYRE_NCCL_MOST_WAYS 16

/** All ways that NCCL compares, with its estimates. Returns how many; 0 = it does not compare, as
 * for all-to-all. @ways_out: GYRE_NCCL_MOST_WAYS entries. */
int gyre_nccl_list(const struct gyre_contender_machine *machine,
                   const struct gyre_contender_call *call, struct gyre_contender_way *ways_out);

#define GYRE_MPI_MOST_WAYS 8

/** The way that `algorithm` names or that Open MPI's fixed rules choose; where no rule is known,
 * all possible ones, of which the fastest counts. Returns how many; 0 = unknown, or it cannot do
 * it. */
int gyre_mpi_list(const struct gyre_contender_machine *machine,
                  const struct gyre_contender_call *call, struct gyre_contender_way *ways_out);

/** GB/s that the kernel of sends moves into a GPU, by how many warps receive. @n_local: ranks of a
 * host. @worker_gbytes: of a ring's channel. */
double gyre_nccl_p2p_rate(unsigned n_local, double worker_gbytes);

/** As gyre_mpi_list(), for vLLM's and SGLang's all-reduce. */
int gyre_one_kernel_list(const struct gyre_contender_call *call,
                         struct gyre_contender_way *ways_out);

#endif
