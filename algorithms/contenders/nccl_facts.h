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
    [GYRE_GPU_CDNA3] = {.link = 448, /* rates: rccl_ratio */
                        .intra = {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3},
                        .inter = {48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 1.2}},
};

/* RCCL 2.20 (ROCm 6.3, src/graph/tuning.cc): baseLat, and tuning_model_5, which MI300X takes.
 * Trees and rings have LL and Simple; rates are parts of all channels', on up to 2 hosts and on
 * more. */
static const double rccl_base_us[N_NCCL_PROTOS] = {12, 12, 17};
static const double rccl_hop_us[N_HW][2][N_NCCL_PROTOS] = {
    [NVLINK] = {[TREE] = {0.9, 0, 2.3}, [RING] = {0.8, 0, 2.1}},
    [PCI] = {[TREE] = {2.2, 0, 5.7}, [RING] = {2.2, 0, 5.7}},
    [NET] = {[TREE] = {10.5, 0, 25}, [RING] = {9.5, 0, 320}}};
static const double rccl_ratio[2][2][N_NCCL_PROTOS] = {
    {[TREE] = {0.06, 0, 0.11}, [RING] = {0.08, 0, 1}},
    {[TREE] = {0.06, 0, 0.59}, [RING] = {0.08, 0, 1}}};

/* Percent of these, by log2(bytes / 64); rings' only on several hosts. */
#define RCCL_SIZES 27
static const uint8_t rccl_percent[2][N_NCCL_PROTOS][RCCL_SIZES] = {
    [TREE] = {[LL] = {10,  10,  10, 10, 10, 10, 100, 100, 100, 100, 100, 60, 100, 90,
                      100, 100, 10, 10, 10, 10, 10,  10,  10,  10,  10,  10, 10},
              [SIMPLE] = {10, 10, 10,  10,  10,  10,  10,  10,  10,  10,  10,  10,  10, 10,
                          10, 70, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 80}},
    [RING] = {[LL] = {10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 100, 20, 100,
                      40, 40, 10, 20, 20, 10, 10, 10, 10, 10, 10, 10,  10},
              [SIMPLE] = {10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10,  10,  10, 10,
                          10, 10, 10, 10, 10, 10, 10, 10, 10, 80, 100, 100, 100}}};

/* Percent of a tree's rate, by log2(bytes / 64). */
static const uint8_t tree_percent[N_NCCL_PROTOS][23] = {
    {100, 100, 100, 100, 90, 80, 70, 70,  70,  70,  60, 50,
     40,  40,  50,  60,  70, 80, 90, 100, 100, 100, 100},
    {100, 100, 100, 100, 100, 90, 80, 80, 80, 70,  60, 60,
     60,  60,  60,  60,  80,  90, 90, 90, 90, 100, 100},
    {90, 90, 90, 90, 90, 90, 90, 80, 70, 60, 60, 50, 50, 50, 50, 60, 70, 80, 70, 70, 80, 90, 90},
};

#endif
