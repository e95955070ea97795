/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/util.h"
#include "core/engine/links/links.h"
#include "tests/support/check.h"

#include <pthread.h>

#define N_RANKS 4
#define N_ROWS  37

/* A bootstrap between threads. */
struct meeting {
    struct gyre_bootstrap base;
    int rank;
};

static pthread_barrier_t barrier;
static const void *all_mine[N_RANKS];

static gyre_status all_gather(struct gyre_bootstrap *bootstrap, const void *mine, size_t n_bytes,
                              void *all_out)
{
    all_mine[((struct meeting *)bootstrap)->rank] = mine;
    pthread_barrier_wait(&barrier);
    for (int rank = 0; rank < N_RANKS; rank++)
        memcpy((char *)all_out + (size_t)rank * n_bytes, all_mine[rank], n_bytes);
    pthread_barrier_wait(&barrier);
    return GYRE_SUCCESS;
}

static const struct gyre_bootstrap_ops ops = {.all_gather = all_gather};

struct rank {
    int number;
    uint32_t n_rows;
    struct gyre_links_row rows[N_ROWS];
    gyre_status status;
    char cause[GYRE_CAUSE_MAX_BYTES];
};

static void *agree(void *argument)
{
    struct rank *rank = argument;
    struct meeting meeting = {.base = {.ops = &ops}, .rank = rank->number};
    const struct gyre_links_options options = {.rows = rank->rows, .n_rows = rank->n_rows};
    struct gyre_rank *self = calloc(1, sizeof(*self));
    char *nothing[] = {NULL};
    self->rank = rank->number;
    self->n_ranks = N_RANKS;
    self->bootstrap = &meeting.base;
    rank->status = gyre_params_from(nothing, &self->params);
    if (rank->status == GYRE_SUCCESS)
        rank->status = gyre_links_agree(self, &options);
    snprintf(rank->cause, sizeof(rank->cause), "%s", gyre_cause());
    free(self);
    return NULL;
}

static void agree_all(struct rank *ranks)
{
    pthread_t threads[N_RANKS];
    CHECK(pthread_barrier_init(&barrier, NULL, N_RANKS) == 0);
    for (int r = 0; r < N_RANKS; r++)
        CHECK(pthread_create(&threads[r], NULL, agree, &ranks[r]) == 0);
    for (int r = 0; r < N_RANKS; r++)
        CHECK(pthread_join(threads[r], NULL) == 0);
    pthread_barrier_destroy(&barrier);
}

static void make_ranks(struct rank *ranks)
{
    memset(ranks, 0, N_RANKS * sizeof(*ranks));
    for (int r = 0; r < N_RANKS; r++) {
        ranks[r].number = r;
        ranks[r].n_rows = N_ROWS;
        for (uint32_t i = 0; i < N_ROWS; i++) {
            ranks[r].rows[i].hash = 1000 + i;
            snprintf(ranks[r].rows[i].text, sizeof(ranks[r].rows[i].text), "x.rows:%u: row", i + 1);
        }
    }
}

static void check_refused(const struct rank *ranks, const char *words)
{
    for (int r = 0; r < N_RANKS; r++)
        CHECK_MSG(ranks[r].status == GYRE_ERROR_INVALID_USAGE &&
                      strstr(ranks[r].cause, words) != NULL,
                  "rank %d: %s, not: %s", r, ranks[r].cause, words);
}

TEST_CASE("the first row that differs is named")
{
    static struct rank ranks[N_RANKS];
    for (uint32_t first = 0; first < N_ROWS; first++) {
        char words[128];
        const int other = 1 + (int)(first % (N_RANKS - 1));
        make_ranks(ranks);
        ranks[other].rows[first].hash = 1;
        snprintf(ranks[other].rows[first].text, sizeof(ranks[other].rows[first].text), "another");
        for (uint32_t i = first + 1; i < N_ROWS; i += 3)
            ranks[other].rows[i].hash = 2;
        agree_all(ranks);
        snprintf(words, sizeof(words), "\"x.rows:%u: row\" on rank 0, \"another\" on rank %d",
                 first + 1, other);
        check_refused(ranks, words);
    }
}

TEST_CASE("a rank with fewer rows is refused")
{
    static struct rank ranks[N_RANKS];
    make_ranks(ranks);
    ranks[2].n_rows = N_ROWS - 1;
    agree_all(ranks);
    check_refused(ranks, "\"x.rows:37: row\" on rank 0, \"no row\" on rank 2");
    make_ranks(ranks);
    ranks[0].n_rows = 0;
    agree_all(ranks);
    check_refused(ranks, "\"no row\" on rank 0, \"x.rows:1: row\" on rank 1");
}

TEST_CASE("ranks with the same rows agree")
{
    static struct rank ranks[N_RANKS];
    make_ranks(ranks);
    snprintf(ranks[1].rows[3].text, sizeof(ranks[1].rows[3].text), "the same on another line");
    agree_all(ranks);
    for (int r = 0; r < N_RANKS; r++)
        CHECK_MSG(ranks[r].status == GYRE_SUCCESS, "rank %d: %s", r, ranks[r].cause);
}

#define N_SHARING 6
#define N_SMS     132
#define SMALL_GPU 7 /* has half as many */

/* What rank 0 is told. Rank r is on GPU gpu_of[r], in process process_of[r]; GYRE_SHARE_GPU as in
 * `environment`. */
static gyre_status check(const int *gpu_of, const int *process_of, char *const *environment,
                         int sm_budget, struct gyre_rank *member_out, uint32_t *n_sharers_out)
{
    struct gyre_peer_info infos[N_SHARING];
    struct gyre_links links = {.infos = infos};
    memset(infos, 0, sizeof(infos));
    memset(member_out, 0, sizeof(*member_out));
    for (int rank = 0; rank < N_SHARING; rank++) {
        infos[rank].rank = (uint32_t)rank;
        infos[rank].process_id = (uint64_t)process_of[rank];
        infos[rank].device.n_sms = gpu_of[rank] == SMALL_GPU ? N_SMS / 2 : N_SMS;
        infos[rank].device.uuid[0] = (uint8_t)(1 + gpu_of[rank]);
        snprintf(infos[rank].device.pci_bus_id, sizeof(infos[rank].device.pci_bus_id),
                 "0000:%02x:00.0", (unsigned)gpu_of[rank]);
        snprintf(infos[rank].host_name, sizeof(infos[rank].host_name), "node");
    }
    GYRE_TRY(gyre_params_from(environment, &member_out->params));
    member_out->n_ranks = N_SHARING;
    member_out->device_info.kind = GYRE_DEVICE_CUDA;
    member_out->device_info.n_sms = infos[0].device.n_sms;
    member_out->config.sm_budget = sm_budget;
    const gyre_status status = gyre_links_check_gpus(member_out, &links);
    *n_sharers_out = links.n_gpu_sharers;
    return status;
}

static const int each_its_own[N_SHARING] = {0, 1, 2, 3, 4, 5};
static const int three_on_two[N_SHARING] = {0, 1, 0, 1, 0, 1};
static const int one_process[N_SHARING] = {7, 7, 7, 7, 7, 7};
static const int process_of_gpu[N_SHARING] = {7, 8, 7, 8, 7, 8};
static const int process_of_rank[N_SHARING] = {7, 8, 9, 10, 11, 12};
static char *const unset[] = {NULL};
static char *const allowed[] = {(char *)(uintptr_t) "GYRE_SHARE_GPU=1", NULL};

TEST_CASE("two ranks on a GPU are refused by name")
{
    struct gyre_rank self;
    uint32_t n_sharers;
    CHECK_BAD_USAGE(
        check(three_on_two, one_process, unset, -1, &self, &n_sharers),
        "ranks 0 and 2 are on the same GPU (0000:00:00.0 on node); give each rank its own "
        "(LOCAL_RANK, CUDA_VISIBLE_DEVICES)");
}

TEST_CASE("ranks with GPUs of their own keep all of them")
{
    struct gyre_rank self;
    uint32_t n_sharers;
    CHECK_OK(check(each_its_own, process_of_rank, allowed, -1, &self, &n_sharers));
    CHECK(n_sharers == 1 && self.config.sm_budget == -1);
}

TEST_CASE("ranks that share a GPU get equal parts")
{
    struct gyre_rank self;
    uint32_t n_sharers;
    const int *const processes[] = {one_process, process_of_gpu, process_of_rank};
    for (int i = 0; i < 3; i++) {
        CHECK_OK(check(three_on_two, processes[i], allowed, -1, &self, &n_sharers));
        CHECK(n_sharers == 3);
        /* Three ranks with four blocks a channel fit on the GPU at the same time. */
        CHECK_MSG(self.config.sm_budget == N_SMS / 12, "%d", self.config.sm_budget);
    }
    CHECK_OK(check(three_on_two, one_process, allowed, 2, &self, &n_sharers));
    CHECK_MSG(self.config.sm_budget == 2, "%d", self.config.sm_budget);
}

TEST_CASE("the part is the same on GPUs of two sizes")
{
    static const int large_first[N_SHARING] = {0, SMALL_GPU, 0, SMALL_GPU, 0, SMALL_GPU};
    static const int small_first[N_SHARING] = {SMALL_GPU, 0, SMALL_GPU, 0, SMALL_GPU, 0};
    struct gyre_rank large, small;
    uint32_t n_sharers;
    CHECK_OK(check(large_first, one_process, allowed, -1, &large, &n_sharers));
    CHECK_OK(check(small_first, one_process, allowed, -1, &small, &n_sharers));
    CHECK_MSG(large.config.sm_budget == N_SMS / 24 && small.config.sm_budget == N_SMS / 24,
              "%d, %d", large.config.sm_budget, small.config.sm_budget);
}
