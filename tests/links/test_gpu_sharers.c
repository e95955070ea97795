/* SPDX-License-Identifier: Apache-2.0
 *
 * core/engine/links/gpu_sharers: which ranks may be on one GPU, and how much of it each gets.
 * Descriptions of ranks are made up, so no GPU is needed.
 */
#include "core/engine/links/links.h"
#include "tests/support/check.h"

#define N_RANKS   6
#define N_SMS     132
#define SMALL_GPU 7 /* has half as many */

/* What rank 0 is told. Rank r is on GPU gpu_of[r], in process process_of[r]; GYRE_SHARE_GPU as in
 * `environment`. */
static gyre_status check(const int *gpu_of, const int *process_of, char *const *environment,
                         int sm_budget, struct gyre_member *member_out, uint32_t *n_sharers_out)
{
    struct gyre_peer_info infos[N_RANKS];
    struct gyre_links links = {.infos = infos};
    memset(infos, 0, sizeof(infos));
    memset(member_out, 0, sizeof(*member_out));
    for (int rank = 0; rank < N_RANKS; rank++) {
        infos[rank].rank = (uint32_t)rank;
        infos[rank].process_id = (uint64_t)process_of[rank];
        infos[rank].device.n_sms = gpu_of[rank] == SMALL_GPU ? N_SMS / 2 : N_SMS;
        infos[rank].device.uuid[0] = (uint8_t)(1 + gpu_of[rank]);
        snprintf(infos[rank].device.pci_bus_id, sizeof(infos[rank].device.pci_bus_id),
                 "0000:%02x:00.0", (unsigned)gpu_of[rank]);
        snprintf(infos[rank].host_name, sizeof(infos[rank].host_name), "node");
    }
    GYRE_TRY(gyre_params_from(environment, &member_out->params));
    member_out->n_ranks = N_RANKS;
    member_out->device_info.kind = GYRE_DEVICE_CUDA;
    member_out->device_info.n_sms = infos[0].device.n_sms;
    member_out->config.sm_budget = sm_budget;
    const gyre_status status = gyre_links_check_gpus(member_out, &links);
    *n_sharers_out = links.n_gpu_sharers;
    return status;
}

static const int each_its_own[N_RANKS] = {0, 1, 2, 3, 4, 5};
static const int three_on_two[N_RANKS] = {0, 1, 0, 1, 0, 1};
static const int one_process[N_RANKS] = {7, 7, 7, 7, 7, 7};
static const int process_of_gpu[N_RANKS] = {7, 8, 7, 8, 7, 8};
static const int process_of_rank[N_RANKS] = {7, 8, 9, 10, 11, 12};
static char *const unset[] = {NULL};
static char *const allowed[] = {(char *)(uintptr_t) "GYRE_SHARE_GPU=1", NULL};

TEST_CASE("two ranks on a GPU are refused by name")
{
    struct gyre_member member;
    uint32_t n_sharers;
    CHECK_FAILS(check(three_on_two, one_process, unset, -1, &member, &n_sharers),
                GYRE_ERROR_INVALID_USAGE,
                "ranks 0 and 2 are on the same GPU (0000:00:00.0 on node); give each rank its own "
                "(LOCAL_RANK, CUDA_VISIBLE_DEVICES)");
}

TEST_CASE("ranks with GPUs of their own keep all of them")
{
    struct gyre_member member;
    uint32_t n_sharers;
    CHECK_OK(check(each_its_own, process_of_rank, allowed, -1, &member, &n_sharers));
    CHECK(n_sharers == 1 && member.config.sm_budget == -1);
}

TEST_CASE("ranks that share a GPU get equal parts")
{
    struct gyre_member member;
    uint32_t n_sharers;
    const int *const processes[] = {one_process, process_of_gpu, process_of_rank};
    for (int i = 0; i < 3; i++) {
        CHECK_OK(check(three_on_two, processes[i], allowed, -1, &member, &n_sharers));
        CHECK(n_sharers == 3);
        /* Three ranks with four blocks a channel fit on the GPU at the same time. */
        CHECK_MSG(member.config.sm_budget == N_SMS / 12, "%d", member.config.sm_budget);
    }
    CHECK_OK(check(three_on_two, one_process, allowed, 2, &member, &n_sharers));
    CHECK_MSG(member.config.sm_budget == 2, "%d", member.config.sm_budget);
}

TEST_CASE("the part is the same on GPUs of two sizes")
{
    static const int large_first[N_RANKS] = {0, SMALL_GPU, 0, SMALL_GPU, 0, SMALL_GPU};
    static const int small_first[N_RANKS] = {SMALL_GPU, 0, SMALL_GPU, 0, SMALL_GPU, 0};
    struct gyre_member large, small;
    uint32_t n_sharers;
    CHECK_OK(check(large_first, one_process, allowed, -1, &large, &n_sharers));
    CHECK_OK(check(small_first, one_process, allowed, -1, &small, &n_sharers));
    CHECK_MSG(large.config.sm_budget == N_SMS / 24 && small.config.sm_budget == N_SMS / 24,
              "%d, %d", large.config.sm_budget, small.config.sm_budget);
}
