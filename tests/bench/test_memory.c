/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/launch: the prediction of a run's memory, and the free memory of a host.
 */
#include "bench/launch/memory.h"
#include "core/engine/plan/plan.h"
#include "tests/support/check.h"
#include "transport/slab.h"

#include <sys/stat.h>

#define MIB (1ULL << 20)

static struct bench_memory predict(enum gyre_collective coll, size_t n_bytes, uint64_t n_ranks,
                                   uint64_t n_local)
{
    const struct bench_kind kind = {.name = "x", .coll = coll};
    const struct bench_options options = {
        .min_bytes = n_bytes, .max_bytes = n_bytes, .n_iters = 20, .n_warmup = 5};
    return bench_memory_predict(&kind, &options, n_ranks, n_ranks, n_local);
}

static void memory_is_predicted_by_what_must_be_touched(void)
{
    struct bench_memory memory = predict(GYRE_COLL_ALL_REDUCE, 32 * MIB, 1, 1);
    CHECK(memory.n_ranks == 1 && memory.buffers_bytes == 2 * (32 * MIB + 16));
    CHECK(memory.comms_bytes == 0);
    memory = predict(GYRE_COLL_SEND_RECV, 100, 1024, 1024); /* two peers each */
    CHECK(memory.buffers_bytes == 1024 * 2 * 128ULL && memory.comms_bytes == 4096 * MIB);
    /* All pairs need four slots of one channel at least, and never more than the slabs. */
    memory = predict(GYRE_COLL_ALL_TO_ALL, MIB, 64, 64);
    CHECK(memory.comms_bytes >= 64 * (64 * 4096 + 63 * 4 * 4096));
    CHECK(memory.comms_bytes <= 64 * (64 * 4096 + GYRE_FIFO_BUDGET_BYTES));
    /* With fewer bytes than ranks nothing is sent. */
    memory = predict(GYRE_COLL_ALL_TO_ALL, 32, 64, 64);
    CHECK(memory.comms_bytes == 64 * 64 * 4096);
}

/* The slabs of processes are reserved as a whole. */
static void memory_of_processes_is_that_of_their_slabs(void)
{
    const struct gyre_fifo_spec spec =
        gyre_tuner_fifo_spec(GYRE_DEVICE_HOST, 48, false, 0, UINT32_MAX);
    struct gyre_slab_layout layout;
    CHECK_OK(gyre_slab_layout_make(&spec, 47, GYRE_SLAB_NO_RING_PREV, &layout));
    const struct bench_memory memory = predict(GYRE_COLL_SEND_RECV, 100, 48, 1);
    const uint64_t slab_bytes = memory.comms_bytes / 48 - 48 * 4096;
    CHECK(slab_bytes <= layout.n_bytes && slab_bytes > layout.n_bytes / 100 * 95);
}

static void too_little_memory_is_refused_with_what_fits(void)
{
    const struct bench_memory memory = {16, 16 * 64 * MIB, 64 * MIB};
    struct bench_options options = {.min_bytes = 8, .max_bytes = 32 * MIB};
    CHECK_OK(bench_memory_check(&memory, &options, 1088 * MIB, "free in all"));
    CHECK_OK(bench_memory_check(&memory, &options, UINT64_MAX, "free in all"));
    CHECK_FAILS(bench_memory_check(&memory, &options, 576 * MIB, "left by it"),
                GYRE_ERROR_OUT_OF_MEMORY,
                "16 ranks in host memory need 1.1 GiB at least (1.0 for buffers of -e 33554432 "
                "bytes, 0.1 for communicators), but 0.6 GiB are left by it: give -e 16M or less, "
                "or 8 ranks or fewer on this host");
    options.min_bytes = options.max_bytes;
    CHECK_FAILS(bench_memory_check(&memory, &options, 576 * MIB, "left by it"),
                GYRE_ERROR_OUT_OF_MEMORY,
                "give a smaller -b and -e, or 8 ranks or fewer on this host");
    CHECK_FAILS(bench_memory_check(&memory, &options, MIB, "left by it"), GYRE_ERROR_OUT_OF_MEMORY,
                "0.0 GiB are left by it: give a smaller -b and -e");
}

/* Writes a file, and the folders above it, below a folder that stands for the root. */
static void put_file(const char *root, const char *path, const char *text)
{
    char whole[256];
    snprintf(whole, sizeof(whole), "%s/%s", root, path);
    for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        (void)mkdir(whole, 0700); /* it may be there */
        *at = '/';
    }
    FILE *file = fopen(whole, "we");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void free_memory_is_what_the_control_groups_leave(void)
{
    char root[] = "/tmp/gyre_bench_XXXXXX", command[64];
    const char *what = NULL;
    CHECK(mkdtemp(root) != NULL);
    CHECK(bench_memory_find_free(root, &what) == UINT64_MAX);
    put_file(root, "proc/meminfo",
             "MemTotal: 9000 kB\nMemAvailable:    5120 kB\nSwapFree: 1024 kB\n");
    CHECK(bench_memory_find_free(root, &what) == 6 * MIB && strcmp(what, "free in all") == 0);
    put_file(root, "proc/self/cgroup", "0::/a/b\n");
    put_file(root, "sys/fs/cgroup/a/b/memory.max", "max\n");
    put_file(root, "sys/fs/cgroup/a/b/memory.current", "1048576\n");
    CHECK(bench_memory_find_free(root, &what) == 6 * MIB);
    put_file(root, "sys/fs/cgroup/a/memory.max", "4194304\n"); /* 4 MiB, 3 in use, 1 of it cache */
    put_file(root, "sys/fs/cgroup/a/memory.current", "3145728\n");
    put_file(root, "sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 1048576\n");
    CHECK(bench_memory_find_free(root, &what) == 2 * MIB && strstr(what, "control group") != NULL);
    put_file(root, "proc/self/cgroup", "3:cpu:/x\n2:memory:/in/docker\n"); /* seen from inside */
    put_file(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "3145728\n");
    put_file(root, "sys/fs/cgroup/memory/memory.usage_in_bytes", "4194304\n");
    CHECK(bench_memory_find_free(root, &what) == 0);
    snprintf(command, sizeof(command), "rm -r %s", root);
    CHECK(system(command) == 0);
}

static const struct test_case cases[] = {
    {"memory is predicted by what must be touched", memory_is_predicted_by_what_must_be_touched},
    {"memory of processes is that of their slabs", memory_of_processes_is_that_of_their_slabs},
    {"too little memory is refused with what fits", too_little_memory_is_refused_with_what_fits},
    {"free memory is what the control groups leave", free_memory_is_what_the_control_groups_leave},
};

TEST_MAIN(cases)
