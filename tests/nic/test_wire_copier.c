/* SPDX-License-Identifier: Apache-2.0
 *
 * The NIC process's half of its resident copy kernel, with threads in the kernel's place
 * (fake_kernel.c). tests/gpu/test_wire_copies.c tries the kernel itself.
 */
#include "core/base/sync.h"
#include "core/base/util.h"
#include "tests/nic/verbs_wire/fake_cuda/fake_cuda.h"
#include "tests/nic/verbs_wire/nic/nic_copier.h"
#include "tests/nic/verbs_wire/nic/nic_gpu.h"
#include "tests/nic/verbs_wire/say.h"
#include "tests/support/check.h"

#include <sched.h>
#include <stdarg.h>

#define HOST_BYTES (256u << 10)
#define GPU_BYTES  (256u << 10)
#define GUARD      0xee
#define LIMIT_NS   20000000000ULL

/* Whatever the fake driver takes for a kernel. */
static const unsigned char image[] = "kernel";
const unsigned char *const nic_copier_image = image;

static char said[1000];

void wire_say(const char *format, ...)
{
    const size_t n = strlen(said);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(said + n, sizeof(said) - n, format, arguments);
    va_end(arguments);
}

static unsigned char *host;
static cu_address gpu; /* on GPU 0 */

static void begin(const char *wish)
{
    setenv("VERBS_WIRE_KERNEL", wish, 1);
    host = aligned_alloc(4096, HOST_BYTES);
    nic_gpu_begin(host, HOST_BYTES);
    struct uuid uuid;
    CHECK(cuDeviceGetUuid(&uuid, 100) == 0 && nic_gpu_find(uuid.bytes) == 0);
    CHECK(nic_gpu_push(0));
    CHECK(cuMemAlloc_v2(&gpu, GPU_BYTES) == 0);
    nic_gpu_pop();
}

static unsigned char byte_at(uint64_t i)
{
    return (unsigned char)(i * 31 % 199 + 1);
}

/* Host to GPU, to another place of the GPU, and back; then what lies around each copy. */
static void go_round(uint64_t n_bytes, uint64_t offset)
{
    const cu_address first = gpu + 64 + offset;
    const cu_address second = gpu + GPU_BYTES / 2 + 3 * offset + 64;
    unsigned char *back = host + HOST_BYTES / 2 + 64 + offset;
    memset(fake_cuda_reach(gpu, GPU_BYTES), GUARD, GPU_BYTES);
    memset(host, GUARD, HOST_BYTES);
    for (uint64_t i = 0; i < n_bytes; i++)
        host[i] = byte_at(i);
    CHECK(nic_gpu_move(0, first, (uintptr_t)host, n_bytes));
    CHECK(nic_gpu_move(0, second, first, n_bytes));
    CHECK(nic_gpu_move(0, (uintptr_t)back, second, n_bytes));
    CHECK_MSG(memcmp(back, host, n_bytes) == 0, "%" PRIu64 " bytes at %" PRIu64, n_bytes, offset);
    const unsigned char *seen = fake_cuda_reach(gpu, GPU_BYTES);
    uint64_t n_written = 0;
    for (uint64_t i = 0; i < GPU_BYTES; i++)
        n_written += seen[i] != GUARD;
    for (uint64_t i = HOST_BYTES / 2; i < HOST_BYTES; i++)
        n_written += host[i] != GUARD;
    CHECK_MSG(n_written == 3 * n_bytes, "%" PRIu64 " bytes", n_written);
}

static const uint64_t sizes[] = {1, 8, 8191, 8192, 8193, 40000, 65536, 65537, 100000};

static void copies_of_every_length_are_whole(void)
{
    begin("1");
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(sizes); i++)
        for (uint64_t offset = 0; offset < 20; offset += 7)
            go_round(sizes[i], offset);
    /* Of nine lengths, seven are short: three offsets, three copies each. */
    CHECK_MSG(nic_gpu_n_by_kernel() == 7u * 3 * 3, "%" PRIu64, nic_gpu_n_by_kernel());
    CHECK_MSG(said[0] == '\0', "%s", said);
    nic_gpu_end();
}

static void await_end_of_kernel(void)
{
    const uint64_t until_ns = gyre_now_ns() + LIMIT_NS;
    while (fake_kernel_n_running() != 0 && gyre_now_ns() < until_ns)
        sched_yield();
    CHECK(fake_kernel_n_running() == 0);
}

static void a_kernel_that_was_idle_is_started_again(void)
{
    begin("1");
    for (unsigned i = 1; i <= 3; i++) {
        go_round(65536, 0);
        CHECK(fake_kernel_n_launches() == i);
        await_end_of_kernel();
    }
    nic_gpu_end();
}

static void a_kernel_that_was_paused_is_started_again(void)
{
    begin("1");
    for (unsigned i = 1; i <= 3; i++) {
        go_round(20000, 1);
        nic_gpu_pause();
        CHECK(fake_kernel_n_running() == 0 && fake_kernel_n_launches() == i);
    }
}

static void without_mps_the_driver_makes_all_copies(void)
{
    begin("auto");
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    go_round(8, 0);
    CHECK(nic_gpu_n_by_kernel() == 0 && fake_kernel_n_launches() == 0);
}

static void the_control_pipe_of_mps_is_recognised(void)
{
    char folder[] = "/tmp/wire_copier.XXXXXX";
    char pipe[64];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(pipe, sizeof(pipe), "%s/control", folder);
    begin("auto");
    setenv("CUDA_MPS_PIPE_DIRECTORY", folder, 1);
    CHECK(!nic_copier_is_wanted(100));
    fclose(fopen(pipe, "w"));
    CHECK(nic_copier_is_wanted(100));
    setenv("VERBS_WIRE_KERNEL", "0", 1);
    CHECK(!nic_copier_is_wanted(100));
    unlink(pipe);
    rmdir(folder);
}

static void a_kernel_that_cannot_run_is_done_without(void)
{
    begin("1");
    fake_kernel_break(FAKE_KERNEL_NO_BINARY);
    go_round(8, 0);
    CHECK(nic_gpu_n_by_kernel() == 0);
    CHECK_MSG(strstr(said, "CUDA_ERROR_NO_BINARY_FOR_GPU") != NULL, "%s", said);
    CHECK_MSG(strstr(said, "no resident copy kernel") != NULL, "%s", said);
}

static void a_copy_that_is_never_made_fails_with_the_cause(void)
{
    void *context;
    begin("0");
    fake_kernel_break(FAKE_KERNEL_DEAF);
    CHECK(cuDevicePrimaryCtxRetain(&context, 100) == 0);
    struct nic_copier *copier = nic_copier_open(&(struct nic_copier_config){.context = context,
                                                                            .device = 100,
                                                                            .memory = host,
                                                                            .n_bytes = HOST_BYTES,
                                                                            .limit_ns = 50000000});
    CHECK(copier != NULL);
    CHECK(!nic_copier_copy(copier, gpu, (uintptr_t)host, 8));
    CHECK_MSG(strstr(said, "did not copy within 50 ms") != NULL, "%s", said);
    nic_copier_close(copier);
    CHECK(fake_kernel_n_running() == 0);
}

static const struct test_case cases[] = {
    {"copies of every length are whole, and nothing around them changes",
     copies_of_every_length_are_whole},
    {"a kernel that ended when it was idle is started again",
     a_kernel_that_was_idle_is_started_again},
    {"a kernel that was paused is started again", a_kernel_that_was_paused_is_started_again},
    {"without MPS the driver makes all copies", without_mps_the_driver_makes_all_copies},
    {"the control pipe of MPS is recognised", the_control_pipe_of_mps_is_recognised},
    {"a kernel that cannot run is done without, and why is said",
     a_kernel_that_cannot_run_is_done_without},
    {"a copy that is never made fails with the cause",
     a_copy_that_is_never_made_fails_with_the_cause},
};
TEST_MAIN(cases)
