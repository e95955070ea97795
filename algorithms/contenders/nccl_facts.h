/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's cost model (2.30.7, src/graph/tuning.cc, search.cc, topo.h), in us and GB/s.
 */
#ifndef GYRE_ALGORITHMS_NCCL_FACTS_H
#define GYRE_ALGORITHMS_NCCL_FACTS_H

#include "algorithms/contenders/contender.h"

#define N_SPEEDS 14

enum algo { TREE, RING, NVLS, NVLS_TREE, PAT, N_ALGOS };
enum proto { LL, LL128, SIMPLE, N_NCCL_PROTOS };
enum hw { NVLINK, PCI, NET, N_HW };

static const char *const algo_names[N_ALGOS] = {"tree", "ring", "nvls", "nvlstree", "pat"};
static const enum gyre_proto proto_of[N_NCCL_PROTOS] = {GYRE_PROTO_LL, GYRE_PROTO_LL128,
                                                        GYRE_PROTO_SIMPLE};

/* us before the first hop */
static const double base_us[N_ALGOS][N_NCCL_PROTOS] = {
    [TREE] = {6.8, 14, 8.4}, [RING] = {6.6, 14, 8.4}, [PAT] = {8, 8, 8}};

static const double hop_us[N_HW][N_ALGOS][N_NCCL_PROTOS] = {
    [NVLINK] = {[TREE] = {0.6, 1.25, 4},
                [RING] = {0.6, 1.9, 3.4},
                [NVLS] = {0, 0, 25},
                [NVLS_TREE] = {0, 0, 25},
                [PAT] = {0, 0, 4}},
    [PCI] = {[TREE] = {1, 1.9, 4}, [RING] = {1, 2.5, 5.7}, [PAT] = {0, 0, 4}},
    [NET] = {[TREE] = {5, 8.5, 14},
             [RING] = {2.7, 4, 14},
             [NVLS] = {0, 0, 18},
             [NVLS_TREE] = {0, 0, 20.9},
             [PAT] = {0, 0, 14}}};

/* GB/s. Rows of three are for 1, 2 and more hosts. */
struct gpu_facts {
    double link; /* of a GPU */
    double ll[3];
    double ring_ll128; /* of a channel, as those below */
    double tree_ll128[3];
    double tree[3];
    double nvls_tree[3];
    double nvls_efficiency;
    double intra[N_SPEEDS]; /* that its search tries */
    double inter[N_SPEEDS];
};

/* Between hosts LL depends on the CPU: these are Ampere's (AMD) and Volta's (others). */
static const struct gpu_facts facts_of[GYRE_N_GPUS] = {
    [GYRE_GPU_VOLTA] = {.link = 120,
                        .ll = {39, 39, 20.4},
                        .ring_ll128 = 20,
                        .tree_ll128 = {20, 20, 20},
                        .tree = {26.5, 18.5, 10},
                        .intra = {40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3},
                        .inter = {48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 6, 3, 2.4, 1.2}},
    [GYRE_GPU_AMPERE] = {.link = 240,
                         .ll = {87.7, 22.5, 19},
                         .ring_ll128 = 20,
                         .tree_ll128 = {20, 20, 20},
                         .tree = {24, 23.6, 17.8},
                         .intra = {40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3},
                         .inter = {48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 6, 3, 2.4, 1.2}},
    [GYRE_GPU_HOPPER] = {.link = 370.8,
                         .ll = {141, 45, 35},
                         .ring_ll128 = 36.7,
                         .tree_ll128 = {36.7, 36.7, 29},
                         .tree = {38.7, 41.4, 36},
                         .nvls_tree = {0, 57.7, 45.5},
                         .nvls_efficiency = 0.85,
                         .intra = {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3},
                         .inter = {48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 1.2}},
    [GYRE_GPU_BLACKWELL] = {.link = 721.8,
                            .ll = {282, 90, 70},
                            .ring_ll128 = 40,
                            .tree_ll128 = {55.6, 31.67, 20},
                            .tree = {70, 42.8, 24},
                            .nvls_tree = {0, 96, 80},
                            .nvls_efficiency = 0.74,
                            .intra = {90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18},
                            .inter = {96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 12, 6, 3}},
    /* RCCL's tables were not read: protocols are Ampere's. */
    [GYRE_GPU_CDNA3] = {.link = 448,
                        .ll = {87.7, 22.5, 19},
                        .ring_ll128 = 36.7,
                        .tree_ll128 = {36.7, 36.7, 29},
                        .tree = {38.7, 41.4, 36},
                        .intra = {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3},
                        .inter = {48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 1.2}},
};

/* Percent of a tree's rate, by log2(bytes / 64). */
static const uint8_t tree_percent[N_NCCL_PROTOS][23] = {
    {100, 100, 100, 100, 90, 80, 70, 70,  70,  70,  60, 50,
     40,  40,  50,  60,  70, 80, 90, 100, 100, 100, 100},
    {100, 100, 100, 100, 100, 90, 80, 80, 80, 70,  60, 60,
     60,  60,  60,  60,  80,  90, 90, 90, 90, 100, 100},
    {90, 90, 90, 90, 90, 90, 90, 80, 70, 60, 60, 50, 50, 50, 50, 60, 70, 80, 70, 70, 80, 90, 90},
};

#endif
