/* SPDX-License-Identifier: Apache-2.0
 *
 * bench: the pure parts of the driver.
 */
#include "bench/options.h"
#include "bench/output.h"
#include "bench/rank.h"
#include "bench/stats.h"
#include "bench/world.h"
#include "tests/check.h"

static void order_statistics_are_those_of_the_definition(void)
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

static void sizes_have_letters(void)
{
    size_t n_bytes = 0;
    CHECK_OK(bench_parse_bytes("8", &n_bytes));
    CHECK(n_bytes == 8);
    CHECK_OK(bench_parse_bytes("1.5k", &n_bytes));
    CHECK(n_bytes == 1536);
    CHECK_OK(bench_parse_bytes("2G", &n_bytes));
    CHECK(n_bytes == 2ULL << 30);
    static const char *const wrong[] = {"", "x", "-1", "1T", "1KB", "nan", "1e99"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        CHECK_FAILS(bench_parse_bytes(wrong[i], &n_bytes), GYRE_ERROR_INVALID_ARGUMENT,
                    "is not a size");
}

static void blocks_are_multiples_of_16_bytes(void)
{
    const struct bench_case gather =
        bench_case_of(GYRE_COLL_ALL_GATHER, 3, 1000, GYRE_FLOAT32, GYRE_SUM, 0);
    CHECK_MSG(gather.count == 80 && gather.n_bytes == 960, "%zu, %zu", gather.count,
              gather.n_bytes);
    const struct bench_case reduce =
        bench_case_of(GYRE_COLL_ALL_REDUCE, 3, 1000, GYRE_FLOAT64, GYRE_SUM, 0);
    CHECK(reduce.count == 125 && reduce.n_bytes == 1000);
}

/* An environment for bench_world_detect(): NAME, value, ..., NULL. */
static const char *const *variables;

static char *lookup(const char *name)
{
    static char value[64];
    for (const char *const *at = variables; *at != NULL; at += 2)
        if (strcmp(at[0], name) == 0) {
            snprintf(value, sizeof(value), "%s", at[1]);
            return value;
        }
    return NULL;
}

static void each_launcher_is_recognised(void)
{
    const struct bench_world_ops *ops = NULL;
    static const char *const none[] = {NULL};
    variables = none;
    CHECK_OK(bench_world_detect(lookup, &ops));
    CHECK(ops == &bench_world_alone);

    static const char *const torchrun[] = {"RANK",        "1",    "WORLD_SIZE",  "4",
                                           "MASTER_ADDR", "host", "MASTER_PORT", "29500",
                                           "PMI_SIZE",    "4",    NULL};
    variables = torchrun;
    CHECK_OK(bench_world_detect(lookup, &ops));
    CHECK(ops == &bench_world_environment);

    static const char *const slurm[] = {"SLURM_STEP_NUM_TASKS", "8", NULL};
    variables = slurm;
    CHECK_FAILS(bench_world_detect(lookup, &ops), GYRE_ERROR_UNSUPPORTED, "8 processes");

    static const char *const one_task[] = {"SLURM_STEP_NUM_TASKS", "1", NULL};
    variables = one_task;
    CHECK_OK(bench_world_detect(lookup, &ops));
    CHECK(ops == &bench_world_alone);

    static const char *const mpirun[] = {"OMPI_COMM_WORLD_SIZE", "2", NULL};
    variables = mpirun;
#ifdef GYRE_BENCH_WITH_MPI
    CHECK_OK(bench_world_detect(lookup, &ops));
    CHECK(ops == &bench_world_mpi);
#else
    CHECK_FAILS(bench_world_detect(lookup, &ops), GYRE_ERROR_UNSUPPORTED, "without MPI");
#endif
}

static void only_harmless_variables_are_reported(void)
{
    CHECK(bench_is_reported("GYRE_ALGO=ring"));
    CHECK(bench_is_reported("NCCL_IB_HCA=mlx5_0"));
    CHECK(bench_is_reported("CUDA_VISIBLE_DEVICES=0"));
    CHECK(!bench_is_reported("PATH=/bin"));
    CHECK(!bench_is_reported("AWS_SECRET_ACCESS_KEY=x"));
    CHECK(bench_is_secret("NCCL_my_token=x"));
    CHECK(bench_is_secret("GYRE_PASSWORD=x"));
    CHECK(!bench_is_secret("GYRE_ALGO=KEY"));
}

static const struct test_case cases[] = {
    {"order statistics are those of the definition", order_statistics_are_those_of_the_definition},
    {"sizes have letters", sizes_have_letters},
    {"blocks are multiples of 16 bytes", blocks_are_multiples_of_16_bytes},
    {"each launcher is recognised", each_launcher_is_recognised},
    {"only harmless variables are reported", only_harmless_variables_are_reported},
};

TEST_MAIN(cases)
