/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/engines/compare.h"
#include "bench/engines/nccl.h"
#include "tests/nccl/fake_nccl.h"
#include "tests/support/check.h"

#include <dlfcn.h>
#include <math.h>

TEST_CASE("the fastest mode is the reference, and ratios are against it")
{
    /* three rounds: gyre, mode 0, mode 1, scratch; mode 1 has the lower median */
    double medians[] = {10, 20, 30, 40, 44, 48, 30, 25, 60, 0, 0, 0};
    struct bench_comparison comparison = {.n_rounds = 3, .n_modes = 2};
    bench_comparison_judge(medians, &comparison);
    CHECK(comparison.mode == 1 && comparison.reference_us == 30);
    CHECK(comparison.mode_us[0] == 44 && comparison.mode_us[1] == 30);
    CHECK(comparison.gyre_us == 20);
    /* The ratios of the rounds are 30/10, 25/20 and 60/30. So few rounds give no interval, so it
     * spans all of them. */
    CHECK(comparison.ratio == 2 && comparison.ratio_low == 1.25 && comparison.ratio_high == 3);
}

TEST_CASE("one mode is judged by itself")
{
    double medians[] = {10, 20, 30, 40, 44, 48, 0, 0, 0};
    struct bench_comparison comparison = {.n_rounds = 3, .n_modes = 1};
    bench_comparison_judge(medians, &comparison);
    CHECK(comparison.mode == 0 && comparison.reference_us == 44);
    CHECK_MSG(comparison.ratio == 44.0 / 20, "%g", comparison.ratio);
}

TEST_CASE("accuracy may differ by chance only")
{
    const struct bench_accuracy reference = {1e-6, 1e-7};
    CHECK(bench_is_as_accurate(&reference, &reference));
    CHECK(bench_is_as_accurate(&(struct bench_accuracy){1.2e-6, 1.01e-7}, &reference));
    CHECK(bench_is_as_accurate(&(struct bench_accuracy){0, 0}, &reference));
    CHECK(!bench_is_as_accurate(&(struct bench_accuracy){1.3e-6, 1e-7}, &reference));
    CHECK(!bench_is_as_accurate(&(struct bench_accuracy){1e-6, 1.03e-7}, &reference));
    CHECK(!bench_is_as_accurate(&(struct bench_accuracy){INFINITY, 1e-7}, &reference));
    const struct bench_accuracy exact = {0, 0};
    CHECK(!bench_is_as_accurate(&reference, &exact));
}

struct engine {
    struct bench_buffers own;
    int n_plain;
    int n_own;
    bool is_wrong; /* over its own buffers */
};

static int engine_modes(void *state, struct bench_mode *modes_out)
{
    struct engine *engine = state;
    modes_out[0] = (struct bench_mode){"plain", NULL};
    modes_out[1] = (struct bench_mode){"window", &engine->own};
    return 2;
}

static gyre_status engine_check(void *state, const struct bench_call *call)
{
    (void)state;
    (void)call;
    return GYRE_SUCCESS;
}

static gyre_status engine_run(void *state, const struct bench_call *call)
{
    struct engine *engine = state;
    const bool is_own = call->buffers == &engine->own;
    CHECK((call->recv == engine->own.recv) == is_own);
    *(is_own ? &engine->n_own : &engine->n_plain) += 1;
    if (call->recv != call->send)
        memcpy(call->recv, call->send, call->what.n_bytes);
    if (is_own && engine->is_wrong)
        ((unsigned char *)call->recv)[call->what.n_bytes - 1] ^= 0x40;
    return GYRE_SUCCESS;
}

static gyre_status engine_wait(void *state)
{
    (void)state;
    return GYRE_SUCCESS;
}

static const char *engine_wrong_value_hint(const struct bench_call *call)
{
    (void)call;
    return " (a bit is flipped)";
}

static const struct bench_engine_ops engine_ops = {
    .name = "engine",
    .is_on_stream = false,
    .modes = engine_modes,
    .check = engine_check,
    .run = engine_run,
    .wait = engine_wait,
    .wrong_value_hint = engine_wrong_value_hint,
};

/* A run of one rank on host memory. */
struct alone {
    struct bench_launcher launcher;
    struct bench_ranks ranks;
    struct bench_options options;
    gyre_comm *comm;
    struct bench_rank rank;
};

static void open_alone(struct alone *alone)
{
    static const struct bench_kind kind = {.name = "test", .coll = GYRE_COLL_ALL_REDUCE};
    gyre_config config = GYRE_CONFIG_INIT;
    config.device_kind = GYRE_DEVICE_HOST;
    *alone = (struct alone){.launcher = {.ops = &bench_launcher_alone, .n_processes = 1},
                            .options = {.n_rounds = 3,
                                        .n_iters = 1,
                                        .n_checks = 1,
                                        .max_bytes = 4096,
                                        .device = GYRE_DEVICE_HOST}};
    CHECK_OK(bench_ranks_open(&alone->launcher, 1, &alone->ranks));
    CHECK_OK(gyre_comm_init_all(&alone->comm, 1, NULL, &config));
    alone->rank = (struct bench_rank){
        .self = {&alone->ranks, 0, 0, 1}, .options = &alone->options, .kind = &kind};
    CHECK_OK(bench_rank_open(&alone->rank, NULL, &alone->comm));
}

static void close_alone(struct alone *alone)
{
    bench_rank_close(&alone->rank);
    bench_ranks_close(&alone->ranks);
}

TEST_CASE("an engine's own buffers are filled and checked")
{
    struct alone alone;
    open_alone(&alone);
    unsigned char send[4112], recv[4112];
    struct engine engine = {.own = {send, recv, sizeof(send)}};
    const struct bench_engine reference = {&engine_ops, &engine};
    const struct bench_case what = bench_case_of(
        &(struct bench_case){.coll = GYRE_COLL_ALL_REDUCE, .n_bytes = 4096, .dtype = GYRE_FLOAT32},
        1);
    const struct bench_call call = bench_call_of(&alone.rank, &alone.rank.buffers, &what, false);
    struct bench_comparison comparison = {.is_present = false};
    CHECK_OK(bench_compare(&alone.rank, &reference, &call, &comparison));
    CHECK(comparison.is_present && comparison.n_modes == 2);
    CHECK_MSG(engine.n_plain == engine.n_own && engine.n_own > 3 * comparison.n_calls, "%d and %d",
              engine.n_plain, engine.n_own);
    CHECK(comparison.mode_us[0] >= comparison.reference_us &&
          comparison.mode_us[1] >= comparison.reference_us);
    CHECK(strcmp(comparison.mode_names[comparison.mode],
                 comparison.mode == 0 ? "plain" : "window") == 0);
    engine.is_wrong = true;
    CHECK_FAILS(bench_compare(&alone.rank, &reference, &call, &comparison), GYRE_ERROR_INTERNAL,
                "engine itself gave 1 wrong values (a bit is flipped)");
    CHECK(alone.rank.has_failed); /* and has printed the cause once */
    close_alone(&alone);
}

TEST_CASE("values that are undefined in place are not checked")
{
    static const struct bench_kind undefined = {.name = "test", .coll = GYRE_COLL_ALL_REDUCE};
    struct alone alone;
    open_alone(&alone);
    unsigned char send[4112], recv[4112];
    struct engine engine = {.own = {send, recv, sizeof(send)}, .is_wrong = true};
    const struct bench_engine reference = {&engine_ops, &engine};
    const struct bench_case what = bench_case_of(
        &(struct bench_case){.coll = GYRE_COLL_ALL_REDUCE, .n_bytes = 4096, .dtype = GYRE_FLOAT32},
        1);
    const struct bench_call call = bench_call_of(&alone.rank, &alone.rank.buffers, &what, true);
    struct bench_comparison comparison = {.is_present = false};
    alone.rank.kind = &undefined; /* as sendrecv, whose input in place may be overwritten early */
    CHECK_OK(bench_compare(&alone.rank, &reference, &call, &comparison));
    CHECK(comparison.is_present);
    static const struct bench_kind defined = {
        .name = "test", .coll = GYRE_COLL_ALL_REDUCE, .is_in_place_checkable = true};
    alone.rank.kind = &defined;
    CHECK_FAILS(bench_compare(&alone.rank, &reference, &call, &comparison), GYRE_ERROR_INTERNAL,
                "engine itself gave 1 wrong values");
    close_alone(&alone);
}

TEST_CASE("what MPI has no call for is refused")
{
#ifdef GYRE_BENCH_WITH_MPI
    struct bench_call call = {.what = {.count = 1, .dtype = GYRE_FLOAT32, .op = GYRE_SUM}};
    call.what.coll = GYRE_COLL_ALL_TO_ALL;
    CHECK_OK(bench_engine_mpi.check(NULL, &call));
    call.what = (struct bench_case){
        .coll = GYRE_COLL_ALL_REDUCE, .count = 1, .dtype = GYRE_FLOAT16, .op = GYRE_SUM};
    CHECK_FAILS(bench_engine_mpi.check(NULL, &call), GYRE_ERROR_UNSUPPORTED, "no type half");
#else
    test_skip_case("built without MPI");
#endif
}

static struct fake_nccl_counts *open_fake(void **library_out)
{
    *library_out = dlopen(FAKE_NCCL, RTLD_NOW | RTLD_LOCAL);
    CHECK_MSG(*library_out != NULL, "%s", dlerror());
    return *library_out == NULL ? NULL : dlsym(*library_out, "fake_nccl_counts");
}

TEST_CASE("windows are symmetric and hold both buffers")
{
    struct alone alone;
    void *library;
    struct bench_nccl_windows windows;
    struct fake_nccl_counts *counts = open_fake(&library);
    if (counts == NULL)
        return;
    open_alone(&alone);
    CHECK_OK(bench_nccl_windows_load(library, "fake", BENCH_NCCL_IN_WINDOWS, &windows));
    CHECK_OK(bench_nccl_windows_open(&alone.rank.self, &alone, 5000, &windows));
    CHECK(counts->n_windows == 2 && counts->window_flags == 1); /* NCCL_WIN_COLL_SYMMETRIC */
    CHECK(counts->n_window_bytes == 8192 && windows.buffers.n_bytes == 8192);
    memset(windows.buffers.send, 1, windows.buffers.n_bytes);
    memset(windows.buffers.recv, 2, windows.buffers.n_bytes);
    bench_nccl_windows_close(&windows, true);
    CHECK(counts->n_windows_gone == 2 && counts->n_freed == 2);
    bench_nccl_windows_close(&windows, true); /* closing twice does nothing */
    CHECK(counts->n_windows_gone == 2 && counts->n_freed == 2);

    CHECK_OK(bench_nccl_windows_load(library, "fake", BENCH_NCCL_IN_WINDOWS, &windows));
    CHECK_OK(bench_nccl_windows_open(&alone.rank.self, &alone, 1, &windows));
    bench_nccl_windows_close(&windows, false); /* the communicator was aborted */
    CHECK(counts->n_windows_gone == 2 && counts->n_freed == 4);
    close_alone(&alone);
}

TEST_CASE("registered buffers are in no window")
{
    struct alone alone;
    void *library;
    struct bench_nccl_windows buffers;
    struct fake_nccl_counts *counts = open_fake(&library);
    if (counts == NULL)
        return;
    const struct fake_nccl_counts before = *counts;
    open_alone(&alone);
    CHECK_OK(bench_nccl_windows_load(library, "fake", BENCH_NCCL_REGISTERED, &buffers));
    CHECK_OK(bench_nccl_windows_open(&alone.rank.self, &alone, 5000, &buffers));
    CHECK(counts->n_registered == 2 && counts->n_windows == before.n_windows);
    bench_nccl_windows_close(&buffers, true);
    CHECK(counts->n_registered_gone == 2 && counts->n_windows_gone == before.n_windows_gone);
    CHECK(counts->n_freed == before.n_freed + 2);
    close_alone(&alone);
}

TEST_CASE("windows that cannot be had are refused")
{
    struct alone alone;
    void *library;
    struct bench_nccl_windows windows = {.comm = NULL};
    struct fake_nccl_counts *counts = open_fake(&library);
    if (counts == NULL)
        return;
    open_alone(&alone);
    void *stranger = dlopen("libc.so.6", RTLD_NOW | RTLD_LOCAL);
    CHECK_FAILS(bench_nccl_windows_load(stranger, "old.so", BENCH_NCCL_IN_WINDOWS, &windows),
                GYRE_ERROR_UNSUPPORTED, "old.so has no ncclMemAlloc");
    bench_nccl_windows_close(&windows, true);

    CHECK_OK(bench_nccl_windows_load(library, "fake", BENCH_NCCL_IN_WINDOWS, &windows));
    counts->makes_no_windows = 1;
    CHECK_FAILS(bench_nccl_windows_open(&alone.rank.self, &alone, 1, &windows),
                GYRE_ERROR_UNSUPPORTED, "no symmetric windows");
    bench_nccl_windows_close(&windows, true);
    CHECK(counts->n_freed == 2 && counts->n_windows_gone == 0);

    CHECK_OK(bench_nccl_windows_load(library, "fake", BENCH_NCCL_IN_WINDOWS, &windows));
    counts->fails = 1;
    CHECK_FAILS(bench_nccl_windows_open(&alone.rank.self, &alone, 1, &windows), GYRE_ERROR_DEVICE,
                "ncclMemAlloc(4096 bytes): the fake's error");
    bench_nccl_windows_close(&windows, true);
    close_alone(&alone);
}
