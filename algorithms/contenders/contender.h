/* SPDX-License-Identifier: Apache-2.0
 *
 * What other libraries would do: which of our programs is theirs, and with which protocol, channels
 * and slots. The simulator then says how long it takes on the constants of a machine.
 */
#ifndef GYRE_ALGORITHMS_CONTENDER_H
#define GYRE_ALGORITHMS_CONTENDER_H

#include "algorithms/algorithm.h"

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

/* Facts on which libraries decide. Rates are GB/s in each direction. */
struct gyre_contender_machine {
    enum gyre_gpu gpu;
    double link_gbytes;    /* of a GPU to all others of its host; 0 = by `gpu` */
    unsigned mesh_gpus;    /* of a host whose GPUs are connected pair by pair; 0 = a switch */
    unsigned n_rings;      /* of different order through a mesh; 0 = as many as use all links */
    bool has_nvls;         /* the switch sums */
    bool no_net_ll128;     /* NICs are behind a CPU, which may tear 128-byte stores */
    double nic_gbytes;     /* of one NIC */
    unsigned n_nics;       /* of a host; 0 = one for each rank */
    bool is_intel;         /* the CPUs */
    double net_latency_us; /* that the NIC's driver states; NCCL adds it to its own */
    unsigned version;      /* 2.18 is 218; 0 = a new one */
    uint64_t eager_bytes;  /* MPI: the longest message that is sent without asking */
};

struct gyre_contender_call {
    enum gyre_collective coll;
    unsigned n_ranks;
    unsigned n_hosts;      /* of equally many ranks */
    uint64_t n_bytes;      /* of the whole vector or of all blocks */
    const char *algorithm; /* NULL = the library's choice */
    const char *proto;     /* NULL = likewise */
};

struct gyre_contender_way {
    const struct gyre_algorithm *algorithm;
    const char *name; /* the library's word for it */
    enum gyre_proto proto;
    uint32_t n_channels;
    uint32_t tile_bytes;
    uint32_t depth;
    double rate_factor;  /* of the GPU's links: what the switch saves, or a mesh lacks */
    double store_factor; /* of a worker's sends in a host: one store reaches several ranks */
    double estimated_us; /* by the library's own model; 0 = it has none */
};

/** gyre_nccl_choose - by the cost model of NCCL 2.30 (src/graph/tuning.cc, enqueue.cc), which holds
 * tables and does not measure. CollNet is left out. Errors: UNSUPPORTED (NCCL has no such algorithm
 * or protocol there). */
gyre_status gyre_nccl_choose(const struct gyre_contender_machine *machine,
                             const struct gyre_contender_call *call,
                             struct gyre_contender_way *way_out);

#define GYRE_NCCL_MOST_WAYS 16

/** gyre_nccl_list - all ways that NCCL compares, with its estimates, unordered. Returns how many;
 * 0 = it does not compare, as for all-to-all. @ways_out: GYRE_NCCL_MOST_WAYS entries. */
int gyre_nccl_list(const struct gyre_contender_machine *machine,
                   const struct gyre_contender_call *call, struct gyre_contender_way *ways_out);

#define GYRE_MPI_MOST_WAYS 8

/** gyre_mpi_list - the ways of an MPI library: the one that `algorithm` names or that Open MPI's
 * fixed rules choose; where no rule is known all that are possible, of which the fastest counts.
 * One channel, whole messages. Returns how many; 0 = the algorithm is unknown, or cannot do it. */
int gyre_mpi_list(const struct gyre_contender_machine *machine,
                  const struct gyre_contender_call *call, struct gyre_contender_way *ways_out);

/** gyre_one_kernel_list - as gyre_mpi_list(), of the all-reduce of vLLM and SGLang. */
int gyre_one_kernel_list(const struct gyre_contender_call *call,
                         struct gyre_contender_way *ways_out);

#endif
