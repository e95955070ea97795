/* SPDX-License-Identifier: Apache-2.0
 *
 * What NCCL and MPI libraries would do, against public facts, and the programs that stand for it
 * against closed forms.
 */
#include "algorithms/contenders/contender.h"

#include "algorithms/library/library.h"
#include "algorithms/simulate/fabric.h"
#include "tests/support/simulated.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct gyre_contender_machine hgx_h100 = {
    .gpu = GYRE_GPU_HOPPER, .has_nvls = true, .nic_gbytes = 50, .cpu = GYRE_CPU_INTEL};

static struct gyre_contender_way choose(const struct gyre_contender_machine *machine,
                                        enum gyre_collective coll, unsigned n_ranks,
                                        unsigned n_hosts, uint64_t n_bytes)
{
    const struct gyre_contender_call call = {
        .coll = coll, .n_ranks = n_ranks, .n_hosts = n_hosts, .n_bytes = n_bytes};
    struct gyre_contender_way way = {.name = ""};
    CHECK_OK(gyre_nccl_choose(machine, &call, &way));
    return way;
}

static double estimate(unsigned n_hosts, const char *algorithm, const char *proto, uint64_t n_bytes)
{
    const struct gyre_contender_call call = {.coll = GYRE_COLL_ALL_REDUCE,
                                             .n_ranks = 8 * n_hosts,
                                             .n_hosts = n_hosts,
                                             .n_bytes = n_bytes,
                                             .algorithm = algorithm,
                                             .proto = proto};
    struct gyre_contender_way way = {.estimated_us = -1};
    CHECK_OK(gyre_nccl_choose(&hgx_h100, &call, &way));
    return way.estimated_us;
}

/* By hand from the tables of NCCL 2.30: base + 2(n-1) hops of a ring, base + 2((n/h - 1) hops +
 * log2(h) hops between hosts) of a tree. */
TEST_CASE("NCCL's estimates of latency are those of its tables")
{
    static const struct {
        unsigned n_hosts;
        const char *algorithm, *proto;
        double us;
    } expected[] = {
        {1, "ring", "simple", 56.0}, {1, "tree", "simple", 64.4},    {1, "ring", "ll", 15.0},
        {1, "tree", "ll", 15.2},     {1, "ring", "ll128", 40.6},     {1, "tree", "ll128", 31.5},
        {1, "nvls", "simple", 25.0}, {16, "ring", "simple", 1190.0}, {16, "tree", "simple", 176.4},
        {16, "ring", "ll", 311.6},   {16, "tree", "ll", 55.2},       {16, "ring", "ll128", 559.6},
        {16, "tree", "ll128", 99.5}};
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        const double us =
            estimate(expected[i].n_hosts, expected[i].algorithm, expected[i].proto, 8);
        CHECK_MSG(fabs(us - expected[i].us) < 0.01, "%u hosts, %s %s: %g us, expected %g",
                  expected[i].n_hosts, expected[i].algorithm, expected[i].proto, us,
                  expected[i].us);
    }
}

/* ml-engineering (S. Bekman), network/benchmarks, eight H100: NVLS from about 2 MiB on, LL by a
 * ring up to 1 MiB. NVIDIA/nccl-tests issue 212: 480 GB/s with NVLS, 370 without. */
TEST_CASE("eight H100 take a ring and LL up to 1 MiB, and NVLS from 2 MiB on")
{
    for (uint64_t n_bytes = 1024; n_bytes <= 1U << 30; n_bytes *= 2) {
        const struct gyre_contender_way way =
            choose(&hgx_h100, GYRE_COLL_ALL_REDUCE, 8, 1, n_bytes);
        const bool is_nvls = strcmp(way.name, "nvls") == 0;
        CHECK_MSG(is_nvls == (n_bytes >= 2U << 20), "%llu bytes: %s", (unsigned long long)n_bytes,
                  way.name);
        CHECK(is_nvls || (strcmp(way.name, "ring") == 0 && way.proto == GYRE_PROTO_LL));
        CHECK(!is_nvls || way.n_channels == 16);
    }
    const double us = estimate(1, "nvls", NULL, 1U << 30) - 25;
    const double busbw = (double)(1U << 30) * 2 * 7 / 8 / (us * 1000);
    CHECK_MSG(fabs(busbw - 476) < 1, "NVLS: %g GB/s", busbw); /* 8 x 40 x 0.85 x 7/8 x 2 */
    const struct gyre_contender_way ring =
        choose(&(struct gyre_contender_machine){.gpu = GYRE_GPU_HOPPER}, GYRE_COLL_ALL_REDUCE, 8, 1,
               1U << 30);
    CHECK(ring.n_channels == 24 && ring.algorithm == &gyre_algorithm_nccl_ring);
}

/* With less NIC than NVLink a host sends B by two trees, and 2(n-1)/n B by a ring. */
TEST_CASE("two hosts of four GH200 take trees for large vectors, eight H100 with eight NICs rings")
{
    const struct gyre_contender_machine alps = {
        .gpu = GYRE_GPU_HOPPER, .mesh_gpus = 4, .nic_gbytes = 25, .has_far_nics = true};
    const struct gyre_contender_machine plain = {.gpu = GYRE_GPU_HOPPER, .nic_gbytes = 50};
    const struct gyre_contender_way few = choose(&alps, GYRE_COLL_ALL_REDUCE, 8, 2, 1U << 30);
    const struct gyre_contender_way many = choose(&plain, GYRE_COLL_ALL_REDUCE, 16, 2, 1U << 30);
    CHECK(strcmp(few.name, "tree") == 0 && few.n_channels == 4); /* of both trees */
    CHECK(strcmp(many.name, "ring") == 0 && many.n_channels == 16);
    for (uint64_t n_bytes = 1024; n_bytes <= 1U << 30; n_bytes *= 4)
        CHECK(choose(&alps, GYRE_COLL_ALL_REDUCE, 8, 2, n_bytes).proto != GYRE_PROTO_LL128);
}

/* src/graph/tuning.cc and paths.cc: 2.27 is the first version with NCCL_LL128_C2C. */
TEST_CASE("LL128 passes a Grace since NCCL 2.27, and no other CPU")
{
    static const struct {
        enum gyre_cpu cpu;
        unsigned version;
        bool has_ll128;
    } expected[] = {{GYRE_CPU_GRACE, 226, false},
                    {GYRE_CPU_GRACE, 227, true},
                    {GYRE_CPU_INTEL, 227, false},
                    {GYRE_CPU_AMD, 0, false}};
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        const struct gyre_contender_machine machine = {.gpu = GYRE_GPU_HOPPER,
                                                       .nic_gbytes = 25,
                                                       .has_far_nics = true,
                                                       .cpu = expected[i].cpu,
                                                       .version = expected[i].version};
        const struct gyre_contender_call call = {.coll = GYRE_COLL_ALL_REDUCE,
                                                 .n_ranks = 8,
                                                 .n_hosts = 2,
                                                 .n_bytes = 1U << 20,
                                                 .proto = "ll128"};
        struct gyre_contender_way ways[GYRE_NCCL_MOST_WAYS];
        CHECK((gyre_nccl_list(&machine, &call, ways) > 0) == expected[i].has_ll128);
    }
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

TEST_CASE("a machine file says what the file that it is like does not, and lines that are wrong")
{
    char folder[] = "/tmp/gyre_machine_XXXXXX", base[64], own[64];
    struct gyre_machine_file file;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(base, sizeof(base), "%s/base.machine", folder);
    snprintf(own, sizeof(own), "%s/own.machine", folder);
    write_text(base, "name Base\nlibrary nccl\ngpu ampere A100\ninside switch reduces\n"
                     "hosts 1 gpus 8 nics 8 rate 24.3 # HDR\nlaunch_ns = 5000\nfence_ns = 7\n"
                     "host_egress_bytes_per_ns = 240\ndragonfly groups of 2 hosts\n"
                     "latency nic 10 uplink 20\n");
    write_text(own, "launch_ns = 6000   # mine\nlike base\ninside mesh\ncpu grace\n"
                    "nics behind cpu\np2p_efficiency = 0.5\nhosts 2 gpus 4 nics 2 rate 12\n"
                    "torus 2 2 rate 5\nalgorithm ring\n");
    CHECK_OK(gyre_machine_file_read(own, folder, &file));
    CHECK(file.facts.gpu == GYRE_GPU_AMPERE && file.facts.cpu == GYRE_CPU_GRACE &&
          file.facts.has_far_nics && !file.facts.has_nvls && file.facts.mesh_gpus == 4);
    CHECK(file.n_gpus == 4 && file.n_nics == 2 && strcmp(file.library, "nccl") == 0 &&
          strcmp(file.algorithm, "ring") == 0);
    CHECK(fabs(file.cost.launch_ns - 6000) < 1e-9 && fabs(file.cost.fence_ns - 7) < 1e-9 &&
          fabs(file.facts.nic_gbytes - 12) < 1e-9 && fabs(file.p2p_efficiency - 0.5) < 1e-9 &&
          fabs(file.facts.link_gbytes - 240) < 1e-9);
    struct gyre_fabric *fabric;
    CHECK_OK(gyre_machine_file_fabric(&file, 4, 1, &fabric)); /* a torus, not the base's groups */
    CHECK(fabric->kind == GYRE_FABRIC_TORUS && fabric->n_ranks == 4 && fabric->n_nics == 8 &&
          fabs(fabric->uplink_latency_ns - 20) < 1e-9);
    gyre_fabric_free(fabric);
    CHECK_BAD_ARGUMENT(gyre_machine_file_fabric(&file, 0, 0, &fabric), "no torus has 2 hosts");
    write_text(own, "inside mesh\nspeed 3\n");
    CHECK_FAILS(gyre_machine_file_read(own, folder, &file), GYRE_ERROR_INVALID_ARGUMENT, "line 2");
    write_text(own, "like own\n");
    CHECK_FAILS(gyre_machine_file_read(own, folder, &file), GYRE_ERROR_INVALID_ARGUMENT,
                "like each other");
    CHECK(remove(base) == 0 && remove(own) == 0 && remove(folder) == 0);
}

/* src/enqueue.cc: by threads alone up to 2.21; then by bytes of traffic, 16 KiB a channel, which LL
 * quadruples since 2.26, and 32 KiB since 2.29. By hand: 8, 64 / 16, 256 / 16 > 8, 256 / 32. */
TEST_CASE("versions of NCCL divide 32 KiB among 8, 4, 8 and 8 channels")
{
    static const unsigned expected[][2] = {{218, 8}, {223, 4}, {227, 8}, {229, 8}};
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        const struct gyre_contender_machine alps = {
            .gpu = GYRE_GPU_HOPPER, .mesh_gpus = 4, .nic_gbytes = 25, .version = expected[i][0]};
        const struct gyre_contender_call call = {.coll = GYRE_COLL_ALL_REDUCE,
                                                 .n_ranks = 8,
                                                 .n_hosts = 2,
                                                 .n_bytes = 32768,
                                                 .algorithm = "tree",
                                                 .proto = "ll"};
        struct gyre_contender_way way = {.n_channels = 0};
        CHECK_OK(gyre_nccl_choose(&alps, &call, &way));
        CHECK_MSG(2 * way.n_channels == expected[i][1], "%u: %u", expected[i][0], way.n_channels);
    }
}

TEST_CASE("PAT is for one GPU a host and new versions, NVLS for switches that sum")
{
    struct gyre_contender_machine machine = {.gpu = GYRE_GPU_AMPERE, .nic_gbytes = 25};
    const struct gyre_contender_call nvls = {.coll = GYRE_COLL_ALL_REDUCE,
                                             .n_ranks = 8,
                                             .n_hosts = 1,
                                             .n_bytes = 1U << 30,
                                             .algorithm = "NVLS"};
    struct gyre_contender_way way;
    CHECK(gyre_nccl_choose(&machine, &nvls, &way) == GYRE_ERROR_UNSUPPORTED);
    CHECK(strcmp(choose(&machine, GYRE_COLL_ALL_GATHER, 64, 64, 4096).name, "pat") == 0);
    CHECK(strcmp(choose(&machine, GYRE_COLL_ALL_GATHER, 64, 8, 4096).name, "ring") == 0);
    machine.version = 218;
    CHECK(strcmp(choose(&machine, GYRE_COLL_ALL_GATHER, 64, 64, 4096).name, "ring") == 0);
}

TEST_CASE("a ring of two slices moves 2(n-1)/n of the bytes and hides all hops but the last one")
{
    for (unsigned n = 2; n <= 32; n *= 2) {
        const struct question question = {
            .algorithm = &gyre_algorithm_nccl_ring, .n_ranks = n, .n_bytes = 2 * 16384 * n};
        const struct gyre_cost cost = plain_cost(HOP_NS, BYTES_PER_NS);
        CHECK(16384 / BYTES_PER_NS > HOP_NS); /* the second slice takes longer than a hop */
        CHECK_TIME(&cost, &question,
                   2.0 * (n - 1) / n * (double)question.n_bytes / BYTES_PER_NS + HOP_NS);
    }
}

TEST_CASE("trees are chains in one host, and of logarithmic depth over hosts")
{
    const struct gyre_cost cost = plain_cost(HOP_NS, 0);
    struct gyre_grouping grouping = {.n_hosts = 16};
    for (unsigned rank = 0; rank < 16; rank++)
        grouping.host_of[rank] = (uint16_t)rank;
    struct question question = {
        .algorithm = &gyre_algorithm_nccl_tree, .n_ranks = 8, .n_bytes = 4096};
    CHECK_TIME(&cost, &question, 2 * 7 * HOP_NS);
    question.n_ranks = 16;
    question.grouping = &grouping;
    CHECK_TIME(&cost, &question, 2 * 4 * HOP_NS);
}

/* A tile's two phases overlap with other tiles': T - 1 of T run beside another. */
TEST_CASE("NVLS' all-reduce keeps a rank's link busy")
{
    const struct gyre_cost cost = plain_cost(HOP_NS, BYTES_PER_NS);
    const struct question question = {.algorithm = &gyre_algorithm_nccl_nvls,
                                      .n_ranks = 8,
                                      .n_bytes = 64U << 20,
                                      .tile_bytes = 65536};
    const double bound_ns = 2.0 * 7 / 8 * (double)question.n_bytes / BYTES_PER_NS;
    const double time_ns = time_of(&cost, &question);
    CHECK_MSG(time_ns >= bound_ns && time_ns < 1.02 * bound_ns + 4 * HOP_NS, "%g ns, bound %g",
              time_ns, bound_ns);
}

/* src/enqueue.cc: 32 channels / ranks for a peer. src/device/sendrecv.h: of a block's 20 warps 9
 * receive; of 64 ranks two share a channel, so 4 of 10 do. */
TEST_CASE("sends of 2, 4, 8 and 64 ranks are bound by the warps that receive")
{
    static const struct {
        unsigned n_ranks;
        double warps;
    } expected[] = {{2, 16 * 9}, {4, 24 * 9}, {8, 28 * 9}, {64, 32 * 8 * 63. / 64}};
    for (int i = 0; i < 4; i++)
        CHECK(fabs(gyre_nccl_p2p_rate(expected[i].n_ranks, 16) - expected[i].warps) < 1e-9);
}

TEST_CASE("all-to-all of 2.28 sends 512 KiB by LL, that of 2.29 sends 16 KiB")
{
    static const struct {
        unsigned version, n_ranks;
        uint64_t of_peer;
        enum gyre_proto proto;
        unsigned n_channels;
    } expected[] = {{228, 2, 524288, GYRE_PROTO_LL, 16},     {228, 8, 16384, GYRE_PROTO_LL, 2},
                    {228, 8, 524289, GYRE_PROTO_SIMPLE, 4},  {229, 2, 16384, GYRE_PROTO_LL, 1},
                    {229, 2, 524288, GYRE_PROTO_SIMPLE, 8},  {221, 2, 16385, GYRE_PROTO_SIMPLE, 1},
                    {229, 4, 1 << 28, GYRE_PROTO_SIMPLE, 16}}; /* of at most 16 MiB */
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        const struct gyre_contender_machine machine = {.gpu = GYRE_GPU_HOPPER,
                                                       .version = expected[i].version};
        const struct gyre_contender_way way =
            choose(&machine, GYRE_COLL_ALL_TO_ALL, expected[i].n_ranks, 1,
                   expected[i].of_peer * expected[i].n_ranks);
        CHECK_MSG(way.proto == expected[i].proto && way.n_channels == expected[i].n_channels,
                  "row %zu: %s, %u channels", i, gyre_proto_names[way.proto], way.n_channels);
    }
}

/* RCCL, src/graph/tuning.cc, tuning_model_5: 12 us and 14 hops of 0.8 us. */
TEST_CASE("eight MI300X take LL for small vectors, then Simple, and never LL128")
{
    const struct gyre_contender_machine mi300x = {
        .gpu = GYRE_GPU_CDNA3, .mesh_gpus = 8, .link_gbytes = 336, .nic_gbytes = 44};
    const struct gyre_contender_way small = choose(&mi300x, GYRE_COLL_ALL_REDUCE, 8, 1, 8);
    const struct gyre_contender_way large = choose(&mi300x, GYRE_COLL_ALL_REDUCE, 8, 1, 1 << 30);
    CHECK(small.proto == GYRE_PROTO_LL && strcmp(small.name, "ring") == 0);
    CHECK_MSG(fabs(small.estimated_us - (12 + 14 * 0.8)) < 0.01, "%g", small.estimated_us);
    CHECK(large.proto == GYRE_PROTO_SIMPLE && strcmp(large.name, "ring") == 0);
    const struct gyre_contender_call ll128 = {.coll = GYRE_COLL_ALL_REDUCE,
                                              .n_ranks = 8,
                                              .n_hosts = 1,
                                              .n_bytes = 1 << 20,
                                              .proto = "ll128"};
    struct gyre_contender_way way;
    CHECK(gyre_nccl_choose(&mi300x, &ll128, &way) == GYRE_ERROR_UNSUPPORTED);
}

/* ompi/mca/coll/tuned/coll_tuned_decision_fixed.c */
TEST_CASE("Open MPI's rules choose by ranks and bytes")
{
    static const struct {
        unsigned n_ranks;
        uint64_t n_bytes;
        const struct gyre_algorithm *algorithm;
    } expected[] = {{8, 8191, &gyre_algorithm_doubling},     {8, 8192, &gyre_algorithm_halving},
                    {64, 262143, &gyre_algorithm_doubling},  {64, 262144, &gyre_algorithm_halving},
                    {512, 2048, &gyre_algorithm_doubling},   {512, 16384, &gyre_algorithm_halving},
                    {256, 4096, &gyre_algorithm_halving},    {16, 4096, &gyre_algorithm_halving},
                    {2, 65536 * 4, &gyre_algorithm_halving}, {2, 4095, &gyre_algorithm_doubling}};
    const struct gyre_contender_machine machine = {.eager_bytes = 8192};
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        struct gyre_contender_call call = {.coll = GYRE_COLL_ALL_REDUCE,
                                           .n_ranks = expected[i].n_ranks,
                                           .n_hosts = expected[i].n_ranks,
                                           .n_bytes = expected[i].n_bytes};
        struct gyre_contender_way ways[GYRE_MPI_MOST_WAYS];
        CHECK(gyre_mpi_list(&machine, &call, ways) == 1);
        CHECK_MSG(ways[0].algorithm == expected[i].algorithm, "%u ranks, %llu bytes: %s",
                  call.n_ranks, (unsigned long long)call.n_bytes, ways[0].algorithm->name);
        call.algorithm = "ring_ompi";
        CHECK(gyre_mpi_list(&machine, &call, ways) == 1 &&
              ways[0].algorithm == &gyre_algorithm_ring);
        call.coll = GYRE_COLL_ALL_GATHER; /* no rule is known: the fastest counts */
        call.algorithm = NULL;
        CHECK(gyre_mpi_list(&machine, &call, ways) > 1);
    }
}
