/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/links/links.h"

#include "core/foundation/base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_CONFIG_SETTINGS 4

/* The same on all ranks. Gathered: fixed layout. */
struct agreement {
    uint32_t version;
    uint32_t device_kind;
    int32_t config[N_CONFIG_SETTINGS];
    uint64_t algo_hash;   /* of GYRE_ALGO_FILE's programs; 0 = not set */
    uint64_t tuning_hash; /* of GYRE_TUNING_FILE's constants; 0 = not set */
    uint64_t rows_hash;
    uint64_t n_rows;
    uint64_t number; /* not compared: this process's newest communicator */
    struct {
        uint64_t hash;
        char text[24]; /* may be cut */
    } params[GYRE_N_PARAMS];
};

static const char *const config_names[N_CONFIG_SETTINGS] = {"min_channels", "max_channels",
                                                            "sm_budget", "transport"};

/* Rows beyond the last one count as zeros. */
static uint64_t hash_rows(const struct gyre_links_options *options, uint64_t n)
{
    const uint64_t none = 0;
    uint64_t hash = GYRE_HASH_INIT;
    for (uint64_t i = 0; i < n; i++)
        hash = gyre_hash(hash, i < options->n_rows ? &options->rows[i].hash : &none, sizeof(none));
    return hash;
}

static gyre_status compare_agreement(const struct agreement *first, const struct agreement *other,
                                     int other_rank)
{
    if (first->version != other->version)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "init: rank 0 runs gyre %u, rank %d runs gyre %u; load the same library "
                         "on all ranks",
                         first->version, other_rank, other->version);
    if (first->device_kind != other->device_kind)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "init: rank 0 uses the %s device, rank %d the %s device; set the same "
                         "device kind on all ranks",
                         first->device_kind == GYRE_DEVICE_CUDA ? "cuda" : "host", other_rank,
                         other->device_kind == GYRE_DEVICE_CUDA ? "cuda" : "host");
    for (int i = 0; i < N_CONFIG_SETTINGS; i++)
        if (first->config[i] != other->config[i])
            return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                             "init: config.%s differs: %d on rank 0, %d on rank %d",
                             config_names[i], first->config[i], other->config[i], other_rank);
    if (first->algo_hash != other->algo_hash)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "init: the programs in GYRE_ALGO_FILE differ: hash %016llx on rank 0, "
                         "%016llx on rank %d (0 = not set); give all ranks the same file",
                         (unsigned long long)first->algo_hash, (unsigned long long)other->algo_hash,
                         other_rank);
    if (first->tuning_hash != other->tuning_hash)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "init: the constants in GYRE_TUNING_FILE differ: hash %016llx on rank 0, "
                         "%016llx on rank %d (0 = not set); give all ranks the same file",
                         (unsigned long long)first->tuning_hash,
                         (unsigned long long)other->tuning_hash, other_rank);
    for (int id = 0; id < GYRE_N_PARAMS; id++)
        if (first->params[id].hash != other->params[id].hash)
            return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                             "init: GYRE_%s differs: \"%.23s\" on rank 0, \"%.23s\" on rank %d; "
                             "export it to all ranks",
                             gyre_param_name((enum gyre_param_id)id), first->params[id].text,
                             other->params[id].text, other_rank);
    return GYRE_SUCCESS;
}

/* By bisection, because rows are many and messages short. */
static gyre_status refuse_rows(const struct gyre_rank *self,
                               const struct gyre_links_options *options, uint64_t most_rows,
                               int other)
{
    const size_t n = (size_t)self->n_ranks;
    uint64_t n_equal = 0, n_different = most_rows;
    struct gyre_links_row mine = {.text = "no row"};
    GYRE_FREED uint64_t *hashes = calloc(n, sizeof(*hashes));
    GYRE_FREED struct gyre_links_row *rows = calloc(n, sizeof(*rows));
    while (n_different - n_equal > 1) {
        const uint64_t middle = n_equal + (n_different - n_equal) / 2;
        const uint64_t hash = hash_rows(options, middle);
        GYRE_TRY(gyre_rank_gather(self, &hash, sizeof(hash), hashes));
        *(hashes[0] == hashes[other] ? &n_equal : &n_different) = middle;
    }
    if (n_equal < options->n_rows)
        mine = options->rows[n_equal];
    GYRE_TRY(gyre_rank_gather(self, &mine, sizeof(mine), rows));
    return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                     "init: the ranks differ in measured thresholds or algorithms: \"%s\" on "
                     "rank 0, \"%s\" on rank %d; load the same library on all ranks, with the "
                     "same GYRE_TUNING_FILE and GYRE_ALGORITHMS",
                     rows[0].text, rows[other].text, other);
}

gyre_status gyre_links_agree(struct gyre_rank *self, const struct gyre_links_options *options)
{
    struct agreement mine;
    GYRE_FREED struct agreement *all = malloc((size_t)self->n_ranks * sizeof(*all));
    uint64_t most_rows = 0;
    int other = 0; /* 0 = no rank's rows differ */
    memset(&mine, 0, sizeof(mine));
    mine.version = GYRE_VERSION;
    mine.device_kind = self->device_info.kind;
    mine.config[0] = self->config.min_channels;
    mine.config[1] = self->config.max_channels;
    mine.config[2] = self->config.sm_budget;
    if (self->config.transport != NULL)
        mine.config[3] = (int32_t)gyre_hash(GYRE_HASH_INIT, self->config.transport,
                                            strlen(self->config.transport));
    mine.algo_hash = options->algo_hash;
    mine.tuning_hash = options->tuning_hash;
    mine.rows_hash = hash_rows(options, options->n_rows);
    mine.n_rows = options->n_rows;
    mine.number = options->newest_number;
    for (int id = 0; id < GYRE_N_PARAMS; id++) {
        if ((gyre_param_flags((enum gyre_param_id)id) & GYRE_PARAM_PLAN) == 0)
            continue;
        const struct gyre_param_value *value = &self->params.values[id];
        const char *text = value->text;
        mine.params[id].hash = gyre_hash(GYRE_HASH_INIT, text, strlen(text));
        snprintf(mine.params[id].text, sizeof(mine.params[id].text), "%.*s",
                 (int)sizeof(mine.params[id].text) - 1, value->is_set ? text : "unset");
    }
    GYRE_TRY(gyre_rank_gather(self, &mine, sizeof(mine), all));
    for (int rank = 1; rank < self->n_ranks; rank++)
        GYRE_TRY(compare_agreement(&all[0], &all[rank], rank));
    for (int rank = self->n_ranks - 1; rank >= 0; rank--) {
        most_rows = gyre_max_u64(most_rows, all[rank].n_rows);
        if (all[rank].rows_hash != all[0].rows_hash || all[rank].n_rows != all[0].n_rows)
            other = rank;
    }
    if (other != 0)
        return refuse_rows(self, options, most_rows, other);
    /* A Lamport clock; communicators that are made at the same time may have the same number. */
    for (int rank = 0; rank < self->n_ranks; rank++)
        self->number = gyre_max_u64(self->number, all[rank].number);
    self->number++;
    return GYRE_SUCCESS;
}

/* of a built-in algorithm in a channel: two for each tree of a double tree */
#define WORKERS_AT_MOST 4

gyre_status gyre_links_check_gpus(struct gyre_rank *self, struct gyre_links *links)
{
    const bool may_share = gyre_param_number(&self->params, GYRE_PARAM_SHARE_GPU) != 0;
    uint32_t least_sms = UINT32_MAX;
    links->n_gpu_sharers = 1;
    links->least_sms = 0;
    if (self->device_info.kind != GYRE_DEVICE_CUDA)
        return GYRE_SUCCESS;
    for (int rank = 0; rank < self->n_ranks; rank++) {
        const struct gyre_peer_info *info = &links->infos[rank];
        uint32_t n_sharers = 1;
        least_sms = gyre_min_u32(least_sms, info->device.n_sms);
        for (int later = rank + 1; later < self->n_ranks; later++) {
            const struct gyre_peer_info *other = &links->infos[later];
            if (memcmp(info->device.uuid, other->device.uuid, sizeof(info->device.uuid)) != 0)
                continue;
            if (!may_share)
                return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                                 "init: ranks %d and %d are on the same GPU (%s on %s); give each "
                                 "rank its own (LOCAL_RANK, CUDA_VISIBLE_DEVICES)",
                                 (int)info->rank, (int)other->rank, info->device.pci_bus_id,
                                 info->host_name);
            n_sharers++;
        }
        if (n_sharers > links->n_gpu_sharers)
            links->n_gpu_sharers = n_sharers;
    }
    links->least_sms = least_sms / links->n_gpu_sharers;
    if (links->n_gpu_sharers == 1)
        return GYRE_SUCCESS;
    /* The same on all ranks, because calls depend on it. */
    const int n_channels = (int)(links->least_sms / WORKERS_AT_MOST);
    if (n_channels == 0)
        return gyre_fail(GYRE_ERROR_INVALID_USAGE,
                         "init: %u ranks share a GPU; the smallest GPU of any rank has %u "
                         "multiprocessors for each, and a rank needs %d",
                         links->n_gpu_sharers, links->least_sms, WORKERS_AT_MOST);
    if (self->config.sm_budget <= 0 || self->config.sm_budget > n_channels)
        self->config.sm_budget = n_channels;
    return GYRE_SUCCESS;
}

gyre_status gyre_links_check_traces(const struct gyre_rank *self, const struct gyre_links *links)
{
    for (int rank = 1; rank < self->n_ranks; rank++) {
        const struct gyre_peer_info *info = &links->infos[rank];
        int first = 0;
        if (info->trace_hash <= 1)
            continue;
        while (links->infos[first].trace_hash != info->trace_hash)
            first++;
        if (links->infos[first].process_id != info->process_id)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "GYRE_TRACE_FILE: rank %d and rank %d are in different processes and "
                             "would write the same file; put %%r (the rank) into its name, for "
                             "example trace.%%r.json",
                             first, rank);
    }
    return GYRE_SUCCESS;
}

/* In every round all ranks gather one byte. A rank that has a round's bytes knows that every other
 * rank had begun it, which bounds two clocks' offset from both sides. */
#define N_ROUNDS 16

struct round_times {
    uint64_t begun_ns[N_ROUNDS];
    uint64_t ended_ns[N_ROUNDS];
};

gyre_status gyre_links_measure_clock(const struct gyre_rank *self, const struct gyre_links *links,
                                     int64_t *offset_ns_out, uint64_t *error_ns_out)
{
    const uint16_t *host_of = links->grouping.host_of;
    int64_t lowest_ns = INT64_MIN, highest_ns = INT64_MAX;
    bool is_traced = false;
    for (int rank = 0; rank < self->n_ranks; rank++)
        is_traced = is_traced || links->infos[rank].trace_hash != 0;
    *offset_ns_out = 0;
    *error_ns_out = 0;
    if (!is_traced || links->grouping.n_hosts == 1)
        return GYRE_SUCCESS;
    GYRE_FREED struct round_times *all = malloc((size_t)self->n_ranks * sizeof(*all));
    GYRE_FREED uint8_t *bytes = malloc((size_t)self->n_ranks);
    struct round_times mine;
    const uint8_t byte = 0;
    for (int i = 0; i < N_ROUNDS; i++) {
        mine.begun_ns[i] = gyre_now_ns();
        GYRE_TRY(gyre_rank_gather(self, &byte, sizeof(byte), bytes));
        mine.ended_ns[i] = gyre_now_ns();
    }
    GYRE_TRY(gyre_rank_gather(self, &mine, sizeof(mine), all));
    for (int here = 0; here < self->n_ranks; here++)
        for (int there = 0; there < self->n_ranks; there++)
            if (host_of[here] == host_of[self->rank] && host_of[there] == host_of[0]) {
                for (int i = 0; i < N_ROUNDS; i++) {
                    const int64_t low = (int64_t)(all[here].begun_ns[i] - all[there].ended_ns[i]);
                    const int64_t high = (int64_t)(all[here].ended_ns[i] - all[there].begun_ns[i]);
                    lowest_ns = low > lowest_ns ? low : lowest_ns;
                    highest_ns = high < highest_ns ? high : highest_ns;
                }
            }
    if (host_of[self->rank] == host_of[0])
        return GYRE_SUCCESS;
    *offset_ns_out = lowest_ns + (highest_ns - lowest_ns) / 2;
    *error_ns_out = (uint64_t)(highest_ns - lowest_ns + 1) / 2;
    return GYRE_SUCCESS;
}
