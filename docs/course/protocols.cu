/* SPDX-License-Identifier: Apache-2.0
 *
 * Lesson 9: the four protocols, each right and broken. A block sends messages, another one receives
 * them and counts wrong words. The same file runs on a GPU, on two, and on the stand-in GPU with
 * weak memory: nvcc -O2 -arch=native -I. -o protocols docs/course/protocols.cu
 *   build/tests/protocols
 */
#ifdef __CUDACC__
#include "kernels/cuda/device/ptx.cuh"
#define store_line_of_8_lanes store_line
static __device__ void store_weak(uint64_t *to, uint64_t value)
{
    *to = value;
}
static __device__ uint64_t load_weak(const uint64_t *from)
{
    return *from;
}
/* Unlike a fence it keeps what the L1 cache holds. */
static __device__ void store_release_sys(uint64_t *to, uint64_t value)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
#else
#include "tests/stand_in_gpu/launch.h"
#include "tests/stand_in_gpu/weak.h"
#include <pthread.h>
static void store_release_sys(uint64_t *to, uint64_t value)
{
    fence_acq_rel_sys();
    store_relaxed_sys(to, value);
}
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WORDS = 480, DEPTH = 2, THREADS = 128, LINE_WORDS = 16, LAUNCH_MESSAGES = 50 };
enum { NOISE_BLOCKS = 130, NOISE_WORDS = 1 << 20 };
enum { SENDS, RECEIVES, MAKES_NOISE };
enum { RIGHT, NO_FENCE, FLAG_FIRST, NO_ACQUIRE, FLAG_APART, LAST_LINE, NOT_CLEARED };
static const char *const broken_names[] = {"right",      "no_fence",  "flag_first", "no_acquire",
                                           "flag_apart", "last_line", "not_cleared"};

struct result {
    unsigned long long n_wrong, message, word, got; /* the first wrong one */
};

struct link {
    uint64_t
        *slots; /* of DEPTH messages, twice WORDS each; these four are in the receiver's memory */
    uint64_t *flags; /* FLAG_APART: one for each word of a message */
    uint64_t *tail;  /* the last message that was published */
    uint64_t *noise; /* blocks beyond the two write here, to keep the paths to memory busy */
    uint32_t noise_words;
    uint64_t *head; /* in the sender's memory: the last message that was read */
    struct result *result;
    uint64_t first; /* message of this launch */
    int broken;
    int roles[2]; /* of the blocks 0 and 1: SENDS, RECEIVES, or one that makes noise as the others
                     do */
};

/* Not 0, and different in each message. */
static __device__ uint64_t value(uint64_t message, uint32_t word)
{
    return message << 16 | (word + 1);
}

static __device__ void check(struct result *result, uint64_t message, uint32_t word, uint64_t got)
{
    if (got != value(message, word) && atomicAdd(&result->n_wrong, 1ULL) == 0) {
        result->message = message;
        result->word = word;
        result->got = got;
    }
}

/* ---- simple: plain data, a fence, a counter ---- */

static __device__ void simple_send(const struct link *link, uint64_t *slot, uint64_t m)
{
    if (link->broken == FLAG_FIRST && threadIdx.x == 0)
        store_relaxed_sys(link->tail, m);
    for (uint32_t i = threadIdx.x; i < WORDS; i += THREADS)
        store_weak(&slot[i], value(m, i));
    __syncthreads(); /* the stores of all threads come before what thread 0 does next */
    if (threadIdx.x == 0) {
        if (link->broken != NO_FENCE)
            fence_acq_rel_sys(); /* with the next line: a release */
        store_relaxed_sys(link->tail, m);
    }
}

static __device__ void simple_receive(const struct link *link, uint64_t *slot, uint64_t m)
{
    if (threadIdx.x == 0)
        while ((link->broken == NO_ACQUIRE ? load_relaxed_sys(link->tail)
                                           : load_acquire_sys(link->tail)) < m)
            ;
    __syncthreads(); /* what thread 0 has acquired, all may read */
    for (uint32_t i = threadIdx.x; i < WORDS; i += THREADS)
        check(link->result, m, i, load_weak(&slot[i]));
}

/* ---- ll: each 8 bytes are 4 of data and 4 of a flag ---- */

static __device__ void ll_send(const struct link *link, uint64_t *slot, uint64_t m)
{
    for (uint32_t i = threadIdx.x; i < WORDS; i += THREADS) {
        const uint64_t data = value(m, i);
        if (link->broken == FLAG_APART) {
            store_relaxed_sys(&slot[i], data);
            store_relaxed_sys(&link->flags[i], m);
        } else {
            store_line(&slot[2 * i], (data & 0xffffffff) | m << 32, data >> 32 | m << 32);
        }
    }
}

static __device__ void ll_receive(const struct link *link, uint64_t *slot, uint64_t m)
{
    for (uint32_t i = threadIdx.x; i < WORDS; i += THREADS) {
        if (link->broken == FLAG_APART) {
            while (load_relaxed_sys(&link->flags[i]) < m)
                ;
            check(link->result, m, i, load_relaxed_sys(&slot[i]));
            continue;
        }
        ulonglong2 line = load_line(&slot[2 * i]);
        while (line.x >> 32 != m || line.y >> 32 != m)
            line = load_line(&slot[2 * i]);
        check(link->result, m, i, (line.x & 0xffffffff) | line.y << 32);
    }
}

/* ---- ll128: eight lanes store 128 bytes, 120 of data and 8 of a flag, with one instruction ----
 */

static __device__ void ll128_send(const struct link *link, uint64_t *slot, uint64_t m)
{
    const uint32_t lane = threadIdx.x % 8;
    for (uint32_t l = threadIdx.x / 8; l < WORDS / 15; l += THREADS / 8) {
        const uint64_t x = value(m, l * 15 + 2 * lane);
        const uint64_t y = lane < 7 ? value(m, l * 15 + 2 * lane + 1) : m;
        __syncwarp();
        if (link->broken == FLAG_APART) {
            store_line(&slot[l * LINE_WORDS + 2 * lane], x, y);
            if (lane == 7)
                store_relaxed_sys(&link->flags[l], m);
        } else {
            store_line_of_8_lanes(&slot[l * LINE_WORDS + 2 * lane], x, y);
        }
    }
}

static __device__ void ll128_receive(const struct link *link, uint64_t *slot, uint64_t m)
{
    const uint32_t lane = threadIdx.x % 8;
    for (uint32_t l = threadIdx.x / 8; l < WORDS / 15; l += THREADS / 8) {
        const uint64_t *flag =
            link->broken == FLAG_APART ? &link->flags[l] : &slot[l * LINE_WORDS + LINE_WORDS - 1];
        while (load_relaxed_sys(flag) < m)
            ;
        const ulonglong2 line = load_line(&slot[l * LINE_WORDS + 2 * lane]);
        check(link->result, m, l * 15 + 2 * lane, line.x);
        if (lane < 7)
            check(link->result, m, l * 15 + 2 * lane + 1, line.y);
    }
}

/* ---- lamport: data that are never 0 in memory that is 0 ---- */

static __device__ void lamport_send(const struct link *link, uint64_t *slot, uint64_t m)
{
    (void)link;
    for (uint32_t l = threadIdx.x; l < WORDS / 2; l += THREADS)
        store_line(&slot[2 * l], value(m, 2 * l), value(m, 2 * l + 1));
}

static __device__ void lamport_receive(const struct link *link, uint64_t *slot, uint64_t m)
{
    if (link->broken == LAST_LINE) { /* the last line says that the others have arrived, too */
        if (threadIdx.x == 0)
            while (load_line(&slot[WORDS - 2]).y == 0)
                ;
        __syncthreads();
    }
    for (uint32_t l = threadIdx.x; l < WORDS / 2; l += THREADS) {
        ulonglong2 line = load_line(&slot[2 * l]);
        while (link->broken != LAST_LINE && (line.x == 0 || line.y == 0))
            line = load_line(&slot[2 * l]);
        check(link->result, m, 2 * l, line.x);
        check(link->result, m, 2 * l + 1, line.y);
    }
    if (link->broken == LAST_LINE)
        __syncthreads();
    if (link->broken != NOT_CLEARED)
        for (uint32_t l = threadIdx.x; l < WORDS / 2; l += THREADS)
            store_line(&slot[2 * l], 0, 0);
}

/* ---- credit, the same for all: the slot of message m was that of message m - DEPTH ---- */

static __device__ void await_credit(const struct link *link, uint64_t m)
{
    if (threadIdx.x == 0)
        while (load_acquire_sys(link->head) + DEPTH < m)
            ;
    __syncthreads();
}

static __device__ void give_credit(const struct link *link, uint64_t m)
{
    __syncthreads();
    if (threadIdx.x == 0)
        store_release_sys(link->head, m);
}

/* A single line of noise makes one slice of the L2 cache slow: what a sender stores there arrives
 * after what it stores elsewhere. */
static __device__ void make_noise(const struct link *link)
{
    uint64_t at = blockIdx.x * THREADS + threadIdx.x;
    while (load_relaxed_sys(link->head) + 1 < link->first + LAUNCH_MESSAGES)
        for (int i = 0; i < 64; i++) {
            at = at * 6364136223846793005U + 1442695040888963407U;
            uint64_t *word = &link->noise[(at >> 40) % link->noise_words];
            if (link->noise_words == LINE_WORDS)
                atomicAdd((unsigned long long *)word, at);
            else
                store_weak(word, at);
        }
}

#define KERNEL(protocol)                                                                       \
    static __global__ void protocol(struct link link)                                          \
    {                                                                                          \
        const int role = blockIdx.x < 2 ? link.roles[blockIdx.x] : MAKES_NOISE;                \
        if (role == MAKES_NOISE)                                                               \
            make_noise(&link);                                                                 \
        for (uint64_t m = link.first; role != MAKES_NOISE && m < link.first + LAUNCH_MESSAGES; \
             m++) {                                                                            \
            uint64_t *slot = link.slots + m % DEPTH * 2 * WORDS;                               \
            if (role == SENDS) {                                                               \
                await_credit(&link, m);                                                        \
                protocol##_send(&link, slot, m);                                               \
            } else {                                                                           \
                protocol##_receive(&link, slot, m);                                            \
                give_credit(&link, m);                                                         \
            }                                                                                  \
        }                                                                                      \
    }
KERNEL(simple)
KERNEL(ll)
KERNEL(ll128)
KERNEL(lamport)

static const struct {
    const char *name;
    void (*kernel)(struct link);
    int broken[4]; /* until 0 */
} protocols[] = {{"simple", simple, {NO_FENCE, FLAG_FIRST, NO_ACQUIRE}},
                 {"ll", ll, {FLAG_APART}},
                 {"ll128", ll128, {FLAG_APART}},
                 {"lamport", lamport, {LAST_LINE, NOT_CLEARED}}};
enum { N_PROTOCOLS = sizeof(protocols) / sizeof(protocols[0]) };

static void require(bool is_right, const char *what)
{
    if (!is_right) {
        fprintf(stderr, "protocols: %s\n", what);
        exit(2);
    }
}

/* ---- the host ---- */

static int n_gpus = 1; /* with 2, GPU 0 sends to GPU 1 */

#ifdef __CUDACC__
#define GPU(call) require((call) == cudaSuccess, #call)

static void *allocate(int gpu, size_t n_bytes)
{
    void *memory;
    GPU(cudaSetDevice(gpu));
    GPU(cudaMalloc(&memory, n_bytes));
    GPU(cudaMemset(memory, 0, n_bytes));
    GPU(cudaDeviceSynchronize());
    return memory;
}

static void run(void (*kernel)(struct link), struct link link)
{
    for (int gpu = n_gpus - 1; gpu >= 0; gpu--) {
        link.roles[0] = gpu == 0 ? SENDS : RECEIVES;
        link.roles[1] = n_gpus == 1 ? RECEIVES : MAKES_NOISE;
        GPU(cudaSetDevice(gpu));
        kernel<<<2 + NOISE_BLOCKS, THREADS>>>(link);
    }
    for (int gpu = 0; gpu < n_gpus; gpu++) {
        GPU(cudaSetDevice(gpu));
        GPU(cudaDeviceSynchronize());
    }
}

static struct result result_of(struct link link)
{
    struct result result;
    GPU(cudaMemcpy(&result, link.result, sizeof(result), cudaMemcpyDefault));
    return result;
}

static void let_gpus_reach_each_other(void)
{
    for (int gpu = 0; gpu < 2 && n_gpus == 2; gpu++) {
        GPU(cudaSetDevice(gpu));
        GPU(cudaDeviceEnablePeerAccess(1 - gpu, 0));
    }
}
#else
static void *allocate(int gpu, size_t n_bytes)
{
    void *memory = aligned_alloc(128, (n_bytes + 127) / 128 * 128);
    require(gpu == 0 && memory != NULL, "no memory");
    return memset(memory, 0, n_bytes);
}

struct block {
    struct stand_in_launch launch;
    struct link link;
    uint32_t number;
};

static void call(const void *kernel, const void *link)
{
    (*(void (*const *)(struct link))kernel)(*(const struct link *)link);
    fence_acq_rel_sys(); /* the end of a launch */
}

static void *run_block(void *argument)
{
    const struct block *block = (const struct block *)argument;
    stand_in_run_block(&block->launch, block->number);
    return NULL;
}

static void run(void (*kernel)(struct link), struct link link)
{
    struct block blocks[2];
    pthread_t threads[2];
    link.roles[0] = SENDS;
    link.roles[1] = RECEIVES;
    for (uint32_t i = 0; i < 2; i++) {
        blocks[i] = (struct block){{call, &kernel, &blocks[i].link, 2, 1, THREADS, 0}, link, i};
        require(pthread_create(&threads[i], NULL, run_block, &blocks[i]) == 0, "no thread");
    }
    for (int i = 0; i < 2; i++)
        (void)pthread_join(threads[i], NULL);
}

static struct result result_of(struct link link)
{
    return *link.result;
}
static void let_gpus_reach_each_other(void)
{
    require(n_gpus == 1, "two GPUs need CUDA");
}
#endif

static double now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Until a word is wrong, or the time is over. Returns whether one was. */
static bool try_one(int protocol, int broken, double seconds)
{
    const int receiver = n_gpus - 1;
    struct link link;
    struct result result = {0, 0, 0, 0};
    memset(&link, 0, sizeof(link));
    link.slots = (uint64_t *)allocate(receiver, DEPTH * 2 * WORDS * sizeof(uint64_t));
    link.flags = (uint64_t *)allocate(receiver, WORDS * sizeof(uint64_t));
    link.tail = (uint64_t *)allocate(receiver, sizeof(uint64_t));
    uint64_t *const noise = (uint64_t *)allocate(receiver, NOISE_WORDS * sizeof(uint64_t));
    link.noise_words = n_gpus == 1 ? (uint32_t)LINE_WORDS : (uint32_t)NOISE_WORDS;
    link.head = (uint64_t *)allocate(0, sizeof(uint64_t));
    link.result = (struct result *)allocate(receiver, sizeof(struct result));
    link.broken = broken;
    const double begin_s = now_s();
    for (link.first = 1; result.n_wrong == 0 && now_s() - begin_s < seconds;
         link.first += LAUNCH_MESSAGES) {
        /* Each launch slows another slice. */
        link.noise = noise + link.first / LAUNCH_MESSAGES % (NOISE_WORDS / link.noise_words) *
                                 link.noise_words;
        run(protocols[protocol].kernel, link);
        result = result_of(link);
    }
    printf("%-8s %-12s", protocols[protocol].name, broken_names[broken]);
    if (result.n_wrong == 0)
        printf("%8llu messages, 0 wrong words\n", (unsigned long long)link.first - 1);
    else
        printf("message %llu, word %llu is that of message %llu (%.2f s)\n", result.message,
               result.word, result.got >> 16, now_s() - begin_s);
    fflush(stdout);
    return result.n_wrong > 0;
}

static int usage(void)
{
    printf("usage: protocols [--seconds S] [--gpus N] [PROTOCOL [right|BROKEN]]\n"
           "Sends messages for S seconds (2; broken ones 60), or until a word is wrong. Without "
           "PROTOCOL: all of these, "
           "right and broken.\n");
    for (int i = 0; i < N_PROTOCOLS; i++) {
        printf("  %-8s", protocols[i].name);
        for (const int *broken = protocols[i].broken; *broken != RIGHT; broken++)
            printf(" %s", broken_names[*broken]);
        printf("\n");
    }
    printf("Exit status: 0 right ones had no wrong word, and broken ones had; 1 otherwise; 2 wrong "
           "usage.\n");
    return 2;
}

int main(int argc, char **argv)
{
    double seconds = 2, broken_seconds = 60;
    const char *words[2] = {NULL, NULL};
    int n_words = 0, n_tried = 0;
    bool is_right = true;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            seconds = broken_seconds = (double)atoi(argv[++i]);
        else if (strcmp(argv[i], "--gpus") == 0 && i + 1 < argc)
            n_gpus = atoi(argv[++i]);
        else if (argv[i][0] == '-' || n_words == 2)
            return usage();
        else
            words[n_words++] = argv[i];
    }
    if (n_gpus != 1 && n_gpus != 2)
        return usage();
    let_gpus_reach_each_other();
    for (int i = 0; i < N_PROTOCOLS; i++)
        for (int k = -1; k < 0 || (k < 4 && protocols[i].broken[k] != RIGHT); k++) {
            const int broken = k < 0 ? RIGHT : protocols[i].broken[k];
            if ((words[0] != NULL && strcmp(words[0], protocols[i].name) != 0) ||
                (words[1] != NULL && strcmp(words[1], broken_names[broken]) != 0))
                continue;
            n_tried++;
            is_right = try_one(i, broken, broken == RIGHT ? seconds : broken_seconds) ==
                           (broken != RIGHT) &&
                       is_right;
        }
    return n_tried == 0 ? usage() : is_right ? 0 : 1;
}
