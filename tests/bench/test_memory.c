/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/launch: the memory that a run needs, and the free memory of a host.
 */
#include "bench/launch/memory.h"
#include "tests/support/check.h"

#include <sys/stat.h>

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

TEST_CASE("free memory is what the control groups leave")
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
