/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies as the NIC process of tests/nic/verbs_wire makes them, on true GPUs: by its resident
 * kernel up to 64 KiB, by the driver beyond that. tests/gpu/with_mps build/tests/test_wire_copies
 * [--times | case]
 * --times: the cases, and then the time of a copy without the kernel and with it. One process uses
 * the GPU here, so the cases need no MPS; with MPS the times are those of ranks.
 */
#include "core/base/sync.h"
#include "core/base/util.h"
#include "tests/gpu/watch.h"
#include "tests/nic/verbs_wire/file.h"
#include "tests/nic/verbs_wire/nic/nic_copier.h"
#include "tests/nic/verbs_wire/nic/nic_gpu.h"
#include "tests/nic/verbs_wire/say.h"
#include "tests/support/check.h"

#include <sched.h>
#include <stdarg.h>
#include <sys/mman.h>

#define AREA_BYTES (2u << 20)
#define ROOM_BYTES 64 /* guarded, on both sides of a copy */
#define GUARD      0xee
#define LIMIT_NS   20000000000ULL
#define N_WARM     20
#define N_TIMED    301

#define GPU_OK(call)                                                      \
    do {                                                                  \
        const cudaError_t error_ = (call);                                \
        if (error_ != cudaSuccess) {                                      \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, \
                    cudaGetErrorString(error_));                          \
            exit(1);                                                      \
        }                                                                 \
    } while (0)

enum place { HOST, GPU, OTHER_PART, OTHER_GPU, N_PLACES };

static const struct kind {
    const char *name;
    enum place from, to;
} kinds[] = {
    {"host to GPU", HOST, GPU},
    {"GPU to host", GPU, HOST},
    {"inside a GPU", GPU, OTHER_PART},
    {"GPU to GPU", GPU, OTHER_GPU},
};
#define N_KINDS GYRE_ARRAY_LENGTH(kinds)

static const uint64_t timed_bytes[] = {8, 1024, 8192, 65536, 1u << 20};
#define N_TIMED_SIZES GYRE_ARRAY_LENGTH(timed_bytes)

static unsigned char *areas[N_PLACES]; /* AREA_BYTES each; NULL: there is no second GPU */
static cudaStream_t stream;            /* of what this test itself copies */

void wire_say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

/* ---- set-up --------------------------------------------------------------------------------- */

static bool has_second_gpu(void)
{
    int n = 0;
    int can_reach = 0;
    GPU_OK(cudaGetDeviceCount(&n));
    if (n >= 2)
        GPU_OK(cudaDeviceCanAccessPeer(&can_reach, 0, 1));
    if (can_reach == 0)
        printf("     GPU to GPU skipped: %s\n",
               n < 2 ? "there is one GPU" : "GPU 0 does not reach GPU 1");
    return can_reach != 0;
}

static void begin(const char *wish)
{
    void *area;
    setenv("VERBS_WIRE_KERNEL", wish, 1);
    areas[HOST] = aligned_alloc(4096, AREA_BYTES);
    nic_gpu_begin(areas[HOST], AREA_BYTES);
    if (has_second_gpu()) {
        GPU_OK(cudaSetDevice(1));
        GPU_OK(cudaMalloc(&area, AREA_BYTES));
        areas[OTHER_GPU] = area;
    }
    GPU_OK(cudaSetDevice(0));
    for (int place = GPU; place <= OTHER_PART; place++) {
        GPU_OK(cudaMalloc(&area, AREA_BYTES));
        areas[place] = area;
    }
    GPU_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (areas[OTHER_GPU] != NULL)
        nic_gpu_let_reach(0, 1);
    /* What the driver does at a first copy would wait for the kernels of this test. */
    for (size_t k = 0; k < N_KINDS; k++)
        if (areas[kinds[k].to] != NULL)
            CHECK(
                nic_gpu_move(0, (uintptr_t)areas[kinds[k].to], (uintptr_t)areas[kinds[k].from], 8));
}

static void end(void)
{
    nic_gpu_end();
    GPU_OK(cudaDeviceSynchronize());
}

static void transfer(void *to, const void *from, size_t n_bytes)
{
    GPU_OK(cudaMemcpyAsync(to, from, n_bytes, cudaMemcpyDefault, stream));
    GPU_OK(cudaStreamSynchronize(stream));
}

/* ---- values --------------------------------------------------------------------------------- */

static unsigned char byte_at(uint64_t i)
{
    return (unsigned char)(i * 31 % 199 + i / 4096 % 3 + 1);
}

static unsigned char pattern[AREA_BYTES];
static unsigned char guards[AREA_BYTES];
static unsigned char seen[AREA_BYTES];

static void check_copy(const struct kind *kind, uint64_t n_bytes, uint64_t to_offset,
                       uint64_t from_offset)
{
    unsigned char *to = areas[kind->to] + ROOM_BYTES + to_offset;
    const uint64_t window = ROOM_BYTES + to_offset + n_bytes + ROOM_BYTES;
    uint64_t n_wrong = 0;
    transfer(areas[kind->to], guards, window);
    CHECK(nic_gpu_move(0, (uintptr_t)to, (uintptr_t)(areas[kind->from] + from_offset), n_bytes));
    transfer(seen, areas[kind->to], window);
    for (uint64_t i = 0; i < window; i++) {
        const uint64_t at = i - ROOM_BYTES - to_offset; /* wraps before the copy */
        n_wrong += seen[i] != (at < n_bytes ? pattern[from_offset + at] : GUARD);
    }
    CHECK_MSG(n_wrong == 0,
              "%s, %" PRIu64 " bytes from %" PRIu64 " to %" PRIu64 ": %" PRIu64 " wrong",
              kind->name, n_bytes, from_offset, to_offset, n_wrong);
}

static const uint64_t checked_bytes[] = {
    1,     2,     3,     4,     7,     8,     9,     15,    16,     17,      31,      33,
    64,    100,   255,   1000,  1024,  2047,  4095,  4096,  8191,   8192,    8193,    10000,
    16384, 16385, 30001, 32768, 40000, 65535, 65536, 65537, 100000, 1000001, 1u << 20};

static void check_kind(const struct kind *kind)
{
    static const uint64_t offsets[][2] = {{0, 0}, {1, 1}, {0, 1},  {3, 0}, {8, 0},
                                          {4, 8}, {2, 4}, {15, 7}, {5, 21}};
    const uint64_t n_before = nic_gpu_n_by_kernel();
    uint64_t n_short = 0;
    transfer(areas[kind->from], pattern, AREA_BYTES);
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(checked_bytes); i++)
        for (size_t k = 0; k < GYRE_ARRAY_LENGTH(offsets); k++) {
            check_copy(kind, checked_bytes[i], offsets[k][0], offsets[k][1]);
            n_short += checked_bytes[i] <= NIC_COPIER_MAX_BYTES;
        }
    CHECK_MSG(nic_gpu_n_by_kernel() - n_before == n_short, "%s: %" PRIu64 " of %" PRIu64,
              kind->name, nic_gpu_n_by_kernel() - n_before, n_short);
}

static void copies_of_every_length_are_whole(void)
{
    begin("1");
    for (uint64_t i = 0; i < AREA_BYTES; i++)
        pattern[i] = byte_at(i);
    memset(guards, GUARD, AREA_BYTES);
    for (size_t k = 0; k < N_KINDS; k++)
        if (areas[kinds[k].to] != NULL)
            check_kind(&kinds[k]);
    end();
}

/* ---- order ---------------------------------------------------------------------------------- */

static bool await_seen(const struct watch_report *report, uint64_t round)
{
    const uint64_t until_ns = wire_now_ns() + LIMIT_NS;
    while (gyre_load_acquire_u64(&report->n_seen) < round)
        if (wire_now_ns() > until_ns)
            return false;
    return true;
}

/* In each round data, then a flag, are copied into GPU memory from `from`, which is filled through
 * the host's area. The kernel that watches runs on the GPU of the target. */
static void check_order(const struct kind *kind, uint64_t n_bytes, uint64_t n_rounds)
{
    const uint64_t n_words = n_bytes / 8;
    unsigned char *to = areas[kind->to];
    unsigned char *from = areas[kind->from];
    uint64_t *words = (uint64_t *)(void *)areas[HOST];
    struct watch_report *report;
    cudaStream_t watching;
    const int target = kind->to == OTHER_GPU ? 1 : 0;
    GPU_OK(cudaHostAlloc((void **)&report, sizeof(*report), cudaHostAllocPortable));
    memset(report, 0, sizeof(*report));
    memset(guards, 0, n_bytes + 8);
    transfer(to, guards, n_bytes + 8);
    GPU_OK(cudaSetDevice(target));
    GPU_OK(cudaStreamCreateWithFlags(&watching, cudaStreamNonBlocking));
    GPU_OK(watch_start(NULL, 0, NULL, 0, report, watching)); /* loads it */
    GPU_OK(cudaStreamSynchronize(watching));
    GPU_OK(watch_start((uint64_t *)(void *)to, n_words, (uint64_t *)(void *)(to + n_bytes),
                       n_rounds, report, watching));
    for (uint64_t round = 1; round <= n_rounds; round++) {
        for (uint64_t i = 0; i <= n_words; i++)
            words[i] = round;
        if (kind->from != HOST)
            CHECK(nic_gpu_move(0, (uintptr_t)from, (uintptr_t)words, n_bytes + 8));
        CHECK(nic_gpu_move(0, (uintptr_t)to, (uintptr_t)from, n_bytes));
        CHECK(nic_gpu_move(0, (uintptr_t)(to + n_bytes), (uintptr_t)(from + n_bytes), 8));
        if (!await_seen(report, round))
            break;
    }
    GPU_OK(cudaStreamSynchronize(watching));
    CHECK_MSG(report->n_seen == n_rounds && report->n_wrong == 0,
              "%s, %" PRIu64 " bytes: %" PRIu64 " of %" PRIu64 " flags, %" PRIu64 " wrong words",
              kind->name, n_bytes, report->n_seen, n_rounds, report->n_wrong);
    GPU_OK(cudaSetDevice(0));
}

static void a_flag_never_comes_before_the_data(void)
{
    static const uint64_t lengths[] = {64, 8192, 57344};
    begin("1");
    for (size_t k = 0; k < N_KINDS; k++)
        for (size_t i = 0; i < GYRE_ARRAY_LENGTH(lengths); i++)
            if (areas[kinds[k].to] != NULL && kinds[k].to != HOST)
                check_order(&kinds[k], lengths[i], 2000);
    end();
}

static void a_kernel_that_has_ended_is_started_again(void)
{
    begin("1");
    for (uint64_t i = 0; i < AREA_BYTES; i++)
        pattern[i] = byte_at(i);
    memset(guards, GUARD, AREA_BYTES);
    transfer(areas[GPU], pattern, AREA_BYTES);
    for (int i = 0; i < 20; i++) {
        check_copy(&kinds[2], 40000, 0, (uint64_t)i);
        if (i % 4 == 0)
            nic_gpu_pause();
        else if (i % 4 == 2)
            usleep(110000); /* about as long as it stays when it has nothing to do */
    }
    end();
}

/* ---- times ---------------------------------------------------------------------------------- */

struct times {
    double us[2][N_KINDS][N_TIMED_SIZES]; /* without the kernel, and with it; 0 = not measured */
};

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The median. */
static double time_copy(const struct kind *kind, uint64_t n_bytes)
{
    double us[N_TIMED];
    for (int i = -N_WARM; i < N_TIMED; i++) {
        const uint64_t began_ns = wire_now_ns();
        CHECK(nic_gpu_move(0, (uintptr_t)areas[kind->to], (uintptr_t)areas[kind->from], n_bytes));
        if (i >= 0)
            us[i] = (double)(wire_now_ns() - began_ns) / 1000;
    }
    qsort(us, N_TIMED, sizeof(us[0]), compare_doubles);
    return us[N_TIMED / 2];
}

/* In a process of its own. */
static bool measure(struct times *times, int with_kernel)
{
    int status = 0;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid != 0)
        return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
    begin(with_kernel ? "1" : "0");
    for (size_t k = 0; k < N_KINDS; k++)
        for (size_t i = 0; i < N_TIMED_SIZES && areas[kinds[k].to] != NULL; i++)
            times->us[with_kernel][k][i] = time_copy(&kinds[k], timed_bytes[i]);
    end();
    exit(test_n_failures == 0 ? 0 : 1);
}

static bool print_times(void)
{
    struct times *times =
        mmap(NULL, sizeof(*times), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const bool is_measured = measure(times, 0) && measure(times, 1);
    printf("\n%-14s %8s %14s %14s   median of %d, us\n", "copy", "bytes", "driver alone",
           "with kernel", N_TIMED);
    for (size_t k = 0; k < N_KINDS; k++)
        for (size_t i = 0; i < N_TIMED_SIZES; i++)
            if (times->us[1][k][i] > 0)
                printf("%-14s %8" PRIu64 " %14.2f %14.2f\n", kinds[k].name, timed_bytes[i],
                       times->us[0][k][i], times->us[1][k][i]);
    munmap(times, sizeof(*times));
    return is_measured;
}

/* ---- main ----------------------------------------------------------------------------------- */

/* CUDA does not survive a fork, so a child looks. */
static bool has_gpu(void)
{
    int status = 1;
    const pid_t pid = fork();
    if (pid == 0) {
        int n = 0;
        const cudaError_t error = cudaGetDeviceCount(&n);
        if (error != cudaSuccess || n == 0)
            printf("skipped: no GPU: %s\n", cudaGetErrorString(error));
        fflush(stdout);
        _exit(error == cudaSuccess && n > 0 ? 0 : 1);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static const struct test_case cases[] = {
    {"copies of every length and alignment are whole, and nothing around them changes",
     copies_of_every_length_are_whole},
    {"a flag never comes before the data", a_flag_never_comes_before_the_data},
    {"a kernel that has ended is started again", a_kernel_that_has_ended_is_started_again},
};

int main(int argc, char **argv)
{
    const bool with_times = argc > 1 && strcmp(argv[1], "--times") == 0;
    if (!has_gpu())
        return TEST_SKIPPED;
    const int status = test_main(with_times ? 1 : argc, argv, cases, GYRE_ARRAY_LENGTH(cases));
    return with_times && !print_times() ? 1 : status;
}
