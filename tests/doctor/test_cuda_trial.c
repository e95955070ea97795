/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/doctor/trial.h"
#include "tests/support/files.h"

static const char *make_root(void)
{
    CHECK(symlink(FAKE_CUDA_PATH, test_path("lib/libcuda.so.1")) == 0);
    return test_root();
}

static const struct bench_cuda_limits patient = {.start_ms = 60000, .gpu_ms = 60000};

TEST_CASE("a healthy GPU copies right, shares its memory and exports it")
{
    struct bench_cuda_gpu gpus[BENCH_CUDA_MAX_GPUS];
    int n = 0;
    CHECK_OK(bench_cuda_trial(make_root(), &patient, gpus, &n));
    CHECK_MSG(n == 1 && strcmp(gpus[0].bus_id, "0000:18:00.0") == 0, "%d GPUs", n);
    CHECK_MSG(gpus[0].copy_cause[0] == '\0', "%s", gpus[0].copy_cause);
    CHECK_MSG(gpus[0].ipc_cause[0] == '\0', "%s", gpus[0].ipc_cause);
    CHECK_MSG(gpus[0].dmabuf_cause[0] == '\0', "%s", gpus[0].dmabuf_cause);
    CHECK(gpus[0].to_gbytes_per_s > 0 && gpus[0].from_gbytes_per_s > 0);
}

static void expect_timeout(const char *sickness, const struct bench_cuda_limits *limits,
                           const char *words)
{
    struct bench_cuda_gpu gpus[BENCH_CUDA_MAX_GPUS];
    int n = -1;
    CHECK(setenv("FAKE_CUDA", sickness, 1) == 0);
    CHECK_FAILS(bench_cuda_trial(make_root(), limits, gpus, &n), GYRE_ERROR_TIMEOUT, words);
    CHECK(n == 0);
}

TEST_CASE("a call of CUDA that hangs ends in time")
{
    const struct bench_cuda_limits limits = {.start_ms = 600000, .gpu_ms = 300};
    expect_timeout("hang", &limits, "a call of CUDA hangs");
}

TEST_CASE("a start of CUDA that hangs ends in time")
{
    const struct bench_cuda_limits limits = {.start_ms = 300, .gpu_ms = 600000};
    expect_timeout("hang_start", &limits, "CUDA hangs while it starts");
}

TEST_CASE("a machine without CUDA says so")
{
    struct bench_cuda_gpu gpus[BENCH_CUDA_MAX_GPUS];
    int n = -1;
    CHECK_FAILS(bench_cuda_trial("/nonexistent", &patient, gpus, &n), GYRE_ERROR_UNSUPPORTED,
                "libcuda.so.1");
    CHECK(n == 0);
}
