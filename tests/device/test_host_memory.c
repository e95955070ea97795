/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/sync.h"
#include "core/foundation/device/device.h"
#include "core/foundation/device/host_memory.h"
#include "tests/support/check.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { N_BYTES = 100000 };

/* Sanitizers end the process when too much memory is asked for, unless told otherwise. */
__attribute__((visibility("default"))) const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_options(void);

const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static char *allocate(size_t n_bytes)
{
    void *ptr = NULL;
    CHECK_OK(gyre_host_memory_alloc(n_bytes, &ptr));
    CHECK((uintptr_t)ptr % 4096 == 0);
    return ptr;
}

static struct gyre_shared_file find(const void *ptr, uint64_t offset_bytes)
{
    struct gyre_shared_file file = {0};
    uint64_t found_bytes = 0;
    CHECK(gyre_host_memory_find(ptr, &file, &found_bytes));
    CHECK_MSG(found_bytes == offset_bytes, "%" PRIu64, found_bytes);
    return file;
}

static void in_child(void (*body)(void *), void *argument)
{
    int status = 0;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        body(argument);
        _exit(test_n_failures == 0 ? 0 : 1);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Of the parent; the child is forked before there is such memory. */
struct announced {
    struct gyre_shared_file file;
    uint32_t is_ready;
};

TEST_CASE("another process reads and writes the memory")
{
    struct announced *announced =
        mmap(NULL, sizeof(*announced), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status = 0;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        void *base = NULL;
        while (gyre_load_acquire_u32(&announced->is_ready) == 0)
            sched_yield();
        const struct gyre_shared_file *file = &announced->file;
        struct gyre_shared_file other = *file;
        other.token[0] ^= 1;
        CHECK_FAILS(gyre_host_memory_acquire(&other, false, &base), GYRE_ERROR_REMOTE, "token");
        other = *file;
        other.n_bytes += 4096;
        CHECK_FAILS(gyre_host_memory_acquire(&other, false, &base), GYRE_ERROR_REMOTE, "has ended");
        other = *file;
        other.fd = 1000000;
        CHECK_FAILS(gyre_host_memory_acquire(&other, false, &base), GYRE_ERROR_REMOTE, "is gone");
        CHECK_OK(gyre_host_memory_acquire(file, false, &base));
        CHECK(strcmp((char *)base + GYRE_HOST_MEMORY_OFFSET_BYTES + 5, "parent") == 0);
        strcpy((char *)base + GYRE_HOST_MEMORY_OFFSET_BYTES + N_BYTES - 6, "child");
        gyre_host_memory_release(base);
        _exit(test_n_failures == 0 ? 0 : 1);
    }
    char *ptr = allocate(N_BYTES);
    strcpy(ptr + 5, "parent");
    announced->file = find(ptr + 5, 4096 + 5);
    gyre_store_release_u32(&announced->is_ready, 1);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(strcmp(ptr + N_BYTES - 6, "child") == 0);
    CHECK_OK(gyre_host_memory_free(ptr));
}

TEST_CASE("memory lives as long as its last user")
{
    char *ptr = allocate(1);
    const struct gyre_shared_file file = find(ptr, 4096);
    void *base = NULL, *again = NULL;
    CHECK_OK(gyre_host_memory_acquire(&file, true, &base));
    CHECK((char *)base + GYRE_HOST_MEMORY_OFFSET_BYTES == ptr);
    CHECK_OK(gyre_host_memory_free(ptr));
    CHECK_BAD_ARGUMENT(gyre_host_memory_free(ptr), "freed before");
    *ptr = 7; /* still mapped */
    CHECK_OK(gyre_host_memory_acquire(&file, true, &again));
    CHECK(again == base);
    gyre_host_memory_release(again);
    gyre_host_memory_release(base);
    CHECK_FAILS(gyre_host_memory_acquire(&file, true, &base), GYRE_ERROR_REMOTE, "freed");
    CHECK_FAILS(gyre_host_memory_acquire(&file, false, &base), GYRE_ERROR_REMOTE, "is gone");
    CHECK_OK(gyre_host_memory_free(NULL));
}

TEST_CASE("memory that is not allocated is not freed")
{
    char *ptr = allocate(N_BYTES);
    char *const wrong[] = {ptr + 1, ptr + N_BYTES / 2, ptr - 1, (char *)&ptr, (char *)1};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        CHECK_BAD_ARGUMENT(gyre_host_memory_free(wrong[i]), "not allocated");
    CHECK_OK(gyre_host_memory_free(ptr));
    CHECK_BAD_ARGUMENT(gyre_host_memory_free(ptr), "freed before");
}

enum { N_DESCRIPTORS = 64 };

static void few_descriptors(void *argument)
{
    const struct rlimit limit = {N_DESCRIPTORS, N_DESCRIPTORS};
    char *all[N_DESCRIPTORS];
    int n_shared = 0;
    (void)argument;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    for (int i = 0; i < N_DESCRIPTORS; i++) {
        struct gyre_shared_file file;
        uint64_t offset_bytes;
        all[i] = allocate(N_BYTES);
        memset(all[i], i, N_BYTES);
        n_shared += gyre_host_memory_find(all[i], &file, &offset_bytes);
    }
    CHECK_MSG(n_shared > 0 && n_shared <= N_DESCRIPTORS / 2, "%d shared", n_shared);
    for (int i = 0; i < N_DESCRIPTORS; i++) {
        CHECK(all[i][N_BYTES - 1] == i);
        CHECK_OK(gyre_host_memory_free(all[i]));
    }
    char *ptr = allocate(1); /* the descriptors are free again */
    (void)find(ptr, 4096);
    CHECK_OK(gyre_host_memory_free(ptr));
}

static void short_files(void *argument)
{
    const struct rlimit limit = {N_BYTES, N_BYTES};
    struct gyre_shared_file file;
    uint64_t offset_bytes;
    (void)argument;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    char *ptr = allocate(N_BYTES);
    memset(ptr, 1, N_BYTES);
    CHECK(!gyre_host_memory_find(ptr, &file, &offset_bytes));
    CHECK_BAD_ARGUMENT(gyre_host_memory_free(ptr + 4096), "not allocated");
    CHECK_OK(gyre_host_memory_free(ptr));
    CHECK_BAD_ARGUMENT(gyre_host_memory_free(ptr), "freed before");
}

TEST_CASE("without files it is ordinary memory")
{
    in_child(few_descriptors, NULL);
    in_child(short_files, NULL);
}

TEST_CASE("more than any machine has is refused")
{
    void *ptr = NULL;
    CHECK_FAILS(gyre_host_memory_alloc(SIZE_MAX - 4, &ptr), GYRE_ERROR_OUT_OF_MEMORY, "host");
    CHECK_FAILS(gyre_host_memory_alloc(SIZE_MAX / 2, &ptr), GYRE_ERROR_OUT_OF_MEMORY, "host");
    CHECK(ptr == NULL);
}

TEST_CASE("more memory of a pool than there can be is refused")
{
    struct gyre_device *device = NULL;
    void *memory = NULL;
    CHECK_OK(gyre_device_host.open(-1, &device));
    CHECK_FAILS(device->ops->pool_alloc(device, SIZE_MAX - 1, &memory), GYRE_ERROR_OUT_OF_MEMORY,
                "cannot allocate");
    CHECK(memory == NULL);
}
