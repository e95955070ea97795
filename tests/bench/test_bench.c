/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/driver/options.h"
#include "bench/driver/rank.h"
#include "bench/launch/launcher.h"
#include "bench/report/output.h"
#include "bench/report/table_file.h"
#include "bench/tools/fit.h"
#include "core/engine/comm/local.h"
#include "core/engine/plan/plan.h"
#include "tests/support/files.h"
#include "tests/support/shapes.h"

TEST_CASE("order statistics are those of the definition")
{
    double samples[200];
    for (int i = 0; i < 200; i++)
        samples[i] = (i * 73 + 11) % 200 + 1; /* 1..200, shuffled: 73 and 200 share no factor */
    const struct bench_stats stats = bench_stats_of(samples, 200);
    CHECK(stats.min == 1 && stats.max == 200);
    CHECK(stats.median == 100.5);
    CHECK(stats.p99 == 198); /* nearest rank: ceil(0.99 * 200) */
    CHECK(stats.mean > 100.499 && stats.mean < 100.501);
    double three[] = {9, 1, 5};
    CHECK(bench_median_of(three, 3) == 5);
    CHECK(bench_stats_of(three, 1).p99 == 1);
    CHECK(bench_stats_of(NULL, 0).n_samples == 0);
}

TEST_CASE("bus factors are those of nccl-tests")
{
    static const struct {
        enum gyre_collective coll;
        double factor; /* of 4 ranks */
    } expected[] = {
        {GYRE_COLL_ALL_REDUCE, 1.5},      {GYRE_COLL_BROADCAST, 1}, {GYRE_COLL_REDUCE, 1},
        {GYRE_COLL_REDUCE_SCATTER, 0.75}, {GYRE_COLL_SEND_RECV, 1}, {GYRE_COLL_ALL_GATHER, 0.75},
        {GYRE_COLL_ALL_TO_ALL, 0.75},
    };
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        const double factor = bench_bus_factor(expected[i].coll, 4);
        CHECK_MSG(factor == expected[i].factor, "%s: %g", gyre_collectives[expected[i].coll].name,
                  factor);
    }
    CHECK(bench_bus_factor(GYRE_COLL_ALL_REDUCE, 1) == 0);
}

TEST_CASE("sizes have letters")
{
    size_t n_bytes = 0;
    CHECK_OK(bench_parse_bytes("8", &n_bytes));
    CHECK(n_bytes == 8);
    CHECK_OK(bench_parse_bytes("1.5k", &n_bytes));
    CHECK(n_bytes == 1536);
    CHECK_OK(bench_parse_bytes("2G", &n_bytes));
    CHECK(n_bytes == 2ULL << 30);
    CHECK_OK(bench_parse_bytes("2KB", &n_bytes));
    CHECK(n_bytes == 2048);
    CHECK_OK(bench_parse_bytes("1GiB", &n_bytes));
    CHECK(n_bytes == 1ULL << 30);
    CHECK_OK(bench_parse_bytes("64B", &n_bytes));
    CHECK(n_bytes == 64);
    static const char *const wrong[] = {"",    "x",    "-1",  "1T",   "1KX", "1KBB",
                                        "1iB", "1BiB", "nan", "1e99", "K"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        CHECK_BAD_ARGUMENT(bench_parse_bytes(wrong[i], &n_bytes), "is not a size");
}

TEST_CASE("blocks are multiples of 16 bytes")
{
    const struct bench_case gather = bench_case_of(
        &(struct bench_case){.coll = GYRE_COLL_ALL_GATHER, .n_bytes = 1000, .dtype = GYRE_FLOAT32},
        3);
    CHECK_MSG(gather.count == 80 && gather.n_bytes == 960, "%zu, %zu", gather.count,
              gather.n_bytes);
    const struct bench_case reduce = bench_case_of(
        &(struct bench_case){.coll = GYRE_COLL_ALL_REDUCE, .n_bytes = 1000, .dtype = GYRE_FLOAT64},
        3);
    CHECK(reduce.count == 125 && reduce.n_bytes == 1000);
}

#define MAX_ROWS 256

static size_t make_rows(const struct gyre_tuner_facts *facts, const struct gyre_cost *truth,
                        struct bench_fit_row *rows)
{
    size_t n_rows = 0;
    for (int a = 0; gyre_algorithms[a] != NULL; a++)
        for (uint32_t n_channels = 1; n_channels <= 2; n_channels++)
            for (uint64_t n_bytes = 64; n_bytes <= 4 << 20; n_bytes *= 16) {
                struct bench_fit_row *row = &rows[n_rows];
                row->choice = (struct gyre_choice){.algorithm = gyre_algorithms[a],
                                                   .proto = GYRE_PROTO_SIMPLE,
                                                   .n_channels = n_channels,
                                                   .tile_bytes = 32768};
                row->coll = GYRE_COLL_ALL_REDUCE;
                row->n_bytes = n_bytes;
                if (!suits_hosts(gyre_algorithms[a], (int)row->coll, 1))
                    continue;
                CHECK(n_rows + 1 < MAX_ROWS);
                double time_ns = 0;
                CHECK_OK(
                    gyre_tuner_predict(facts, truth, row->coll, &row->choice, n_bytes, &time_ns));
                row->us = time_ns / 1e3;
                n_rows++;
            }
    return n_rows;
}

TEST_CASE("a fit finds the machine that was measured")
{
    struct bench_fit_row rows[MAX_ROWS] = {{0}};
    struct gyre_tuner_facts facts = {
        .device_kind = GYRE_DEVICE_HOST, .n_ranks = 4, .n_hosts = 1, .max_channels = 4};
    facts.spec = gyre_tuner_fifo_spec(GYRE_DEVICE_HOST, 4, false, 0, UINT32_MAX);
    struct gyre_cost truth = gyre_cost_host;
    truth.launch_ns = 3000;
    truth.worker_launch_ns = 700;
    truth.step_ns[GYRE_PROTO_SIMPLE] = 450;
    truth.hop_ns[GYRE_PROTO_SIMPLE][GYRE_LINK_HOST] = truth.credit_ns[GYRE_LINK_HOST] = 1300;
    truth.worker_read_bytes_per_ns = 7;
    truth.worker_store_bytes_per_ns = 11;
    truth.worker_send_bytes_per_ns[GYRE_LINK_HOST] = 4;
    truth.uncached_slowdown = 2.5;
    const size_t n_rows = make_rows(&facts, &truth, rows);
    struct gyre_cost found = gyre_cost_host;
    struct bench_fit fit;
    CHECK_OK(bench_fit(&facts, rows, n_rows, &found, &fit));
    CHECK_MSG(fit.before > 0.5 && fit.error < 0.01, "error %g, before %g", fit.error, fit.before);
    CHECK_MSG(fit.n_constants == 8, "%d", fit.n_constants);
    for (size_t i = 0; i < n_rows; i++)
        CHECK_MSG(rows[i].predicted_us < rows[i].us * 1.03 &&
                      rows[i].us < rows[i].predicted_us * 1.03,
                  "row %zu: %g us, predicted %g", i, rows[i].us, rows[i].predicted_us);
    /* A call that a neighbour disturbed does not change the others. */
    rows[5].us *= 20;
    found = gyre_cost_host;
    CHECK_OK(bench_fit(&facts, rows, n_rows, &found, &fit));
    for (size_t i = 0; i < n_rows; i++)
        CHECK_MSG(i == 5 || (rows[i].predicted_us < rows[i].us * 1.1 &&
                             rows[i].us < rows[i].predicted_us * 1.1),
                  "row %zu: %g us, predicted %g", i, rows[i].us, rows[i].predicted_us);
    CHECK_BAD_ARGUMENT(bench_fit(&facts, rows, 3, &found, &fit), "3 measurements for 8 constants");
}

static const char *algorithm_of(gyre_comm *comm)
{
    static struct gyre_plan_summary summary;
    const struct gyre_call call = {
        .coll = GYRE_COLL_ALL_REDUCE, .count = 64, .dtype = GYRE_FLOAT32, .op = GYRE_SUM};
    return gyre_plan_describe(gyre_comm_plans(comm), &call, &summary) == GYRE_SUCCESS
               ? summary.algorithm
               : "";
}

TEST_CASE("an option's words replace the variables and are named in errors")
{
    gyre_comm *comms[2];
    gyre_config config = GYRE_CONFIG_INIT;
    config.device_kind = GYRE_DEVICE_HOST;
    setenv("GYRE_ALGO", "ring", 1);
    CHECK_OK(gyre_comm_init_all(comms, 2, NULL, &config));
    unsetenv("GYRE_ALGO");
    CHECK(strcmp(algorithm_of(comms[0]), "ring") == 0);

    struct bench_options options = {.algo = "tree"};
    struct gyre_filter_words words = bench_options_allowed(&options);
    CHECK_OK(gyre_plan_restrict(gyre_comm_plans(comms[0]), &words));
    CHECK(strcmp(algorithm_of(comms[0]), "tree") == 0);
    options = (struct bench_options){.result_path = "staged"}; /* leaves the algorithms alone */
    words = bench_options_allowed(&options);
    CHECK_OK(gyre_plan_restrict(gyre_comm_plans(comms[0]), &words));
    CHECK(strcmp(algorithm_of(comms[0]), "tree") == 0);
    options = (struct bench_options){.algo = "ring,twig", .is_sweep = true};
    words = bench_options_allowed(&options); /* lists of --sweep allow everything */
    CHECK(words.algos == NULL);

    options = (struct bench_options){.algo = "ring", .proto = "ll"};
    words = bench_options_allowed(&options);
    CHECK_OK(gyre_plan_restrict(gyre_comm_plans(comms[0]), &words));
    CHECK(algorithm_of(comms[0])[0] == '\0' && strstr(gyre_cause(), "--proto allows") != NULL);
    options = (struct bench_options){.algo = "tree", .result_path = "copied"};
    words = bench_options_allowed(&options);
    CHECK_BAD_ARGUMENT(gyre_plan_restrict(gyre_comm_plans(comms[0]), &words),
                       "--path: \"copied\" is none of");
    options = (struct bench_options){.proto = "simple"}; /* the refused words changed nothing */
    words = bench_options_allowed(&options);
    CHECK_OK(gyre_plan_restrict(gyre_comm_plans(comms[0]), &words));
    CHECK(strcmp(algorithm_of(comms[0]), "ring") == 0);
    for (int i = 0; i < 2; i++)
        CHECK_OK(gyre_comm_destroy(comms[i]));
}

TEST_CASE("an option's words replace choices that were predicted before")
{
    gyre_comm *comms[2];
    gyre_config config = GYRE_CONFIG_INIT;
    config.device_kind = GYRE_DEVICE_HOST;
    setenv("GYRE_TUNING_FILE", test_put("launch_ns = 3000\n", "constants"), 1);
    CHECK_OK(gyre_comm_init_all(comms, 2, NULL, &config));
    unsetenv("GYRE_TUNING_FILE");
    static const char *const names[] = {"ring", "tree", "ring"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const struct bench_options options = {.algo = names[i]};
        const struct gyre_filter_words words = bench_options_allowed(&options);
        CHECK_OK(gyre_plan_restrict(gyre_comm_plans(comms[0]), &words));
        CHECK_MSG(strcmp(algorithm_of(comms[0]), names[i]) == 0, "%s", algorithm_of(comms[0]));
    }
    for (int i = 0; i < 2; i++)
        CHECK_OK(gyre_comm_destroy(comms[i]));
}

TEST_CASE("a process joins the others over MPI or at an address")
{
    const struct bench_launcher_ops *ops = NULL;
    gyre_launch launch;
    CHECK_OK(bench_launcher_detect((char *[]){NULL}, &launch, &ops));
    CHECK(ops == &bench_launcher_alone);
    char *const torchrun[] = {
        "RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=host", "MASTER_PORT=29500", "PMIX_RANK=1", NULL};
    CHECK_OK(bench_launcher_detect(torchrun, &launch, &ops));
    CHECK(ops == &bench_launcher_meet && launch.rank == 1 && launch.n_ranks == 4);
    char *const srun[] = {"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=4", "SLURM_JOB_ID=7",
                          "SLURM_STEP_ID=0", NULL};
    CHECK_OK(bench_launcher_detect(srun, &launch, &ops));
    CHECK(ops == &bench_launcher_meet);
    char *const one_task[] = {"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1", NULL};
    CHECK_OK(bench_launcher_detect(one_task, &launch, &ops));
    CHECK(ops == &bench_launcher_alone);
    char *const mpirun[] = {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "PMIX_RANK=1",
                            "PMIX_NAMESPACE=9", NULL};
    CHECK_OK(bench_launcher_detect(mpirun, &launch, &ops));
#ifdef GYRE_BENCH_WITH_MPI
    CHECK(ops == &bench_launcher_mpi);
#else
    CHECK(ops == &bench_launcher_meet);
#endif
}

TEST_CASE("only harmless variables are reported")
{
    CHECK(bench_is_reported("GYRE_ALGO=ring"));
    CHECK(bench_is_reported("NCCL_IB_HCA=mlx5_0"));
    CHECK(bench_is_reported("CUDA_VISIBLE_DEVICES=0"));
    CHECK(!bench_is_reported("PATH=/bin"));
    CHECK(!bench_is_reported("AWS_SECRET_ACCESS_KEY=x"));
    CHECK(bench_is_secret("NCCL_my_token=x"));
    CHECK(bench_is_secret("GYRE_PASSWORD=x"));
    CHECK(!bench_is_secret("GYRE_ALGO=KEY"));
    char long_name[] = "GYRE_45678901234567890123456789012345678901234567890123456789"
                       "0123456789012345678901234567890123456789012345678901234567890123456=x";
    CHECK(strcspn(long_name, "=") == 128 && bench_is_secret(long_name));
    CHECK(!bench_is_secret(long_name + 1));
}

TEST_CASE("a sweep has every combination once")
{
    static const char *const expected[] = {"ring- -1", "ring- -16", "tree- -1", "tree- -16"};
    const struct bench_options options = {.algo = "ring,tree", .channels = "1,16"};
    struct bench_combination found;
    int n = 0;
    for (; n < 5 && bench_combination_find(&options, n, &found); n++) {
        char text[100];
        snprintf(text, sizeof(text), "%s-%s -%s", found.algo, found.proto, found.channels);
        CHECK_MSG(n < 4 && strcmp(text, expected[n]) == 0, "%d: \"%s\"", n, text);
    }
    CHECK_MSG(n == 4, "%d", n);
    CHECK(bench_combination_find(&(struct bench_options){0}, 0, &found));
    CHECK(!bench_combination_find(&(struct bench_options){0}, 1, &found));
}

TEST_CASE("reports of a sweep keep folder and extension")
{
    static const struct {
        const char *path;
        struct bench_combination combination;
        const char *expected;
    } names[] = {
        {"s.json", {"ring", "", ""}, "s.ring.json"},
        {"s.json", {"ring", "ll", "4"}, "s.ring-ll-4.json"},
        {"a.b/s.json", {"", "ll", "4"}, "a.b/s.ll-4.json"},
        {"a.b/s", {"", "", "4"}, "a.b/s.4"},
        {"a/.s", {"tree", "", ""}, "a/.s.tree"},
        {"s.t.csv", {"", "", ""}, "s.t.csv"},
    };
    char path[PATH_MAX], long_name[PATH_MAX];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        CHECK_OK(bench_combination_path(names[i].path, &names[i].combination, path));
        CHECK_MSG(strcmp(path, names[i].expected) == 0, "%s", path);
    }
    memset(long_name, 'x', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    CHECK_BAD_ARGUMENT(bench_combination_path(long_name, &names[0].combination, path), "too long");
}

#define MIB (1ULL << 20)

TEST_CASE("the buffers and the peers of all ranks are needed")
{
    const struct bench_options options = {.min_bytes = 8, .max_bytes = 32 * MIB};
    CHECK(bench_memory_needed(&options, 1, 1) == 2 * (32 * MIB + 16));
    CHECK(bench_memory_needed(&options, 8, 8) == 8 * 2 * (32 * MIB + 16) + 8 * 8 * 4096);
    CHECK(bench_memory_needed(&options, 8, 4) == 4 * 2 * (32 * MIB + 16) + 4 * 8 * 4096);
}

TEST_CASE("too little memory is refused with both figures")
{
    CHECK_OK(bench_memory_check(16, 1088 * MIB, 1088 * MIB, "free in all"));
    CHECK_OK(bench_memory_check(16, 1088 * MIB, UINT64_MAX, "free in all"));
    CHECK_FAILS(bench_memory_check(16, 1088 * MIB, 576 * MIB, "left by it"),
                GYRE_ERROR_OUT_OF_MEMORY,
                "16 ranks in host memory need 1.1 GiB at least, but 0.6 GiB are left by it");
}

TEST_CASE("free memory is what the control groups leave")
{
    const char *root = test_root(), *what = NULL;
    CHECK(bench_memory_find_free(root, &what) == UINT64_MAX);
    test_put("MemTotal: 9000 kB\nMemAvailable:    5120 kB\nSwapFree: 1024 kB\n", "proc/meminfo");
    CHECK(bench_memory_find_free(root, &what) == 6 * MIB && strcmp(what, "free in all") == 0);
    test_put("0::/a/b\n", "proc/self/cgroup");
    test_put("max\n", "sys/fs/cgroup/a/b/memory.max");
    test_put("1048576\n", "sys/fs/cgroup/a/b/memory.current");
    CHECK(bench_memory_find_free(root, &what) == 6 * MIB);
    test_put("4194304\n", "sys/fs/cgroup/a/memory.max"); /* 4 MiB, 3 in use, 1 of it cache */
    test_put("3145728\n", "sys/fs/cgroup/a/memory.current");
    test_put("anon 5\ninactive_file 1048576\n", "sys/fs/cgroup/a/memory.stat");
    CHECK(bench_memory_find_free(root, &what) == 2 * MIB && strstr(what, "control group") != NULL);
    test_put("3:cpu:/x\n2:memory:/in/docker\n", "proc/self/cgroup"); /* seen from inside */
    test_put("3145728\n", "sys/fs/cgroup/memory/memory.limit_in_bytes");
    test_put("4194304\n", "sys/fs/cgroup/memory/memory.usage_in_bytes");
    CHECK(bench_memory_find_free(root, &what) == 0);
}

static struct bench_option_texts texts_with(const char *program, const char *option,
                                            const char *value)
{
    const struct bench_kind kind = {.name = program};
    char *argv[] = {(char *)(uintptr_t)program, (char *)(uintptr_t)option, (char *)(uintptr_t)value,
                    NULL};
    struct bench_options options;
    struct bench_option_texts texts;
    CHECK_OK(bench_options_parse(option == NULL ? 1 : 3, argv, &kind, &options));
    bench_option_texts_of(&kind, &options, &texts);
    return texts;
}

TEST_CASE("processes with other options are named")
{
    static const char *const telling[][3] = {
        {"-t", "2", "process 0 has 1, 1 has 2:"},
        {"-g", "2", "process 0 has 1, 1 has 2:"},
        {"-b", "1K", "process 0 has 33554432, 1 has 1024:"},
        {"-e", "64M", "process 0 has 33554432, 1 has 67108864:"},
        {"-i", "2M", "has 2097152:"},
        {"-f", "4", "has 4:"},
        {"-n", "1", "has 1:"},
        {"-w", "1", "has 1:"},
        {"-m", "2", "has 2:"},
        {"-N", "2", "has 2:"},
        {"-c", "0", "has 0:"},
        {"-o", "all", "process 0 has sum, 1 has all:"},
        {"-d", "half", "process 0 has float, 1 has half:"},
        {"-r", "all", "process 0 has 0, 1 has all:"},
        {"-z", "1", "has 1:"},
        {"-y", "1", "has 1:"},
        {"-T", "1", "has 1:"},
        {"-G", "1", "has 1:"},
        {"-C", "1", "has 1:"},
        {"-a", "3", "has 3:"},
        {"-u", "1", "has 1:"},
        {"-R", "2", "has 2:"},
        {"--json", "x", "process 0 has (not given), 1 has given:"},
        {"--csv", "x", "has given:"},
        {"--algo", "ring", "has ring:"},
        {"--proto", "ll", "has ll:"},
        {"--path", "placed", "has placed:"},
        {"--compare", "mpi", "has mpi:"},
        {"--rounds", "1", "has 1:"},
        {"--sweep", "1", "has 1:"},
        {"--predict", "1", "has 1:"},
        {"--accuracy", "1", "has 1:"},
    };
    struct bench_option_texts all[2] = {texts_with("allreduce", NULL, NULL)};
    for (size_t i = 0; i < sizeof(telling) / sizeof(telling[0]); i++) {
        char words[100];
        snprintf(words, sizeof(words), "%s: process 0 has ", telling[i][0]);
        all[1] = texts_with("allreduce", telling[i][0], telling[i][1]);
        CHECK_BAD_ARGUMENT(bench_option_texts_compare(all, 2), words);
        CHECK_HAS(gyre_cause(), telling[i][2]);
    }
    all[1] = texts_with("reduce", NULL, NULL);
    CHECK_BAD_ARGUMENT(bench_option_texts_compare(all, 2),
                       "program: process 0 has allreduce, 1 has reduce:");
}

TEST_CASE("what rank 0 alone reads may differ")
{
    struct bench_option_texts all[2] = {texts_with("allreduce", NULL, NULL)};
    static const char *const silent[][2] = {
        {"-e", "32M"}, {"-S", "1"}, {"-p", "1"}, {"--limits", "x"}, {"--device", "host"}};
    for (size_t i = 0; i < sizeof(silent) / sizeof(silent[0]); i++) {
        all[1] = texts_with("allreduce", silent[i][0], silent[i][1]);
        CHECK_OK(bench_option_texts_compare(all, 2));
    }
    all[0] = texts_with("allreduce", "--json", "x"); /* only whether there is one */
    all[1] = texts_with("allreduce", "--json", "y");
    CHECK_OK(bench_option_texts_compare(all, 2));
}

TEST_CASE("long words differ at their ends too")
{
    struct bench_option_texts all[12];
    for (int i = 0; i < 12; i++)
        all[i] = texts_with("allreduce", "--algo", "ring,tree,direct,twoshot,spread,ring");
    CHECK_OK(bench_option_texts_compare(all, 12));
    all[11] = texts_with("allreduce", "--algo", "ring,tree,direct,twoshot,spread,tree");
    CHECK_BAD_ARGUMENT(bench_option_texts_compare(all, 12),
                       "--algo: process 0 has ring,tree,dire~");
    CHECK_HAS(gyre_cause(), ", 11 has ring,tree,dire~");
    all[0] = texts_with("allreduce", NULL, NULL); /* eleven differ */
    CHECK_BAD_ARGUMENT(bench_option_texts_compare(all, 12), " and so on: all need");
}
