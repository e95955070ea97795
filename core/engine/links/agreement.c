/* SPDX-License-Identifier: Apache-2.0
 *
 * All ranks check that they agree on all settings that a plan depends on, and give the communicator
 * its number.
 */
#include "core/engine/links/links.h"

#include "core/foundation/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_CONFIG_SETTINGS 4

/* The settings that must be equal on all ranks. Ranks all-gather them, so the layout is fixed. */
struct agreement {
    uint32_t version;
    uint32_t device_kind;
    int32_t config[N_CONFIG_SETTINGS];
    uint64_t algo_hash;   /* of the programs in GYRE_ALGO_FILE; 0 = not set */
    uint64_t tuning_hash; /* of the constants in GYRE_TUNING_FILE; 0 = not set */
    uint64_t rows_hash;   /* of all rows; n_rows of them */
    uint64_t n_rows;
    uint64_t number; /* not compared: the newest communicator's of this process */
    struct {
        uint64_t hash;
        char text[24]; /* for the message; may be cut */
    } params[GYRE_N_PARAMS];
};

static const char *const config_names[N_CONFIG_SETTINGS] = {"min_channels", "max_channels",
                                                            "sm_budget", "transport"};

/* The hash of the first `n` rows. Rows beyond the last one count as zeros. */
static uint64_t hash_rows(const struct gyre_links_terms *terms, uint64_t n)
{
    const uint64_t none = 0;
    uint64_t hash = GYRE_HASH_INIT;
    for (uint64_t i = 0; i < n; i++)
        hash = gyre_hash(hash, i < terms->n_rows ? &terms->rows[i].hash : &none, sizeof(none));
    return hash;
}

static void fill_agreement(const struct gyre_member *member, const struct gyre_links_terms *terms,
                           struct agreement *mine)
{
    memset(mine, 0, sizeof(*mine));
    mine->version = GYRE_VERSION;
    mine->device_kind = member->device_info.kind;
    mine->config[0] = member->config.min_channels;
    mine->config[1] = member->config.max_channels;
    mine->config[2] = member->config.sm_budget;
    if (member->config.transport != NULL)
        mine->config[3] = (int32_t)gyre_hash(GYRE_HASH_INIT, member->config.transport,
                                             strlen(member->config.transport));
    mine->algo_hash = terms->algo_hash;
    mine->tuning_hash = terms->tuning_hash;
    mine->rows_hash = hash_rows(terms, terms->n_rows);
    mine->n_rows = terms->n_rows;
    mine->number = terms->newest_number;
    for (int id = 0; id < GYRE_N_PARAMS; id++) {
        if ((gyre_param_flags((enum gyre_param_id)id) & GYRE_PARAM_PLAN) == 0)
            continue;
        const struct gyre_param_value *value = &member->params.values[id];
        const char *text = value->text;
        mine->params[id].hash = gyre_hash(GYRE_HASH_INIT, text, strlen(text));
        snprintf(mine->params[id].text, sizeof(mine->params[id].text), "%.*s",
                 (int)sizeof(mine->params[id].text) - 1, value->is_set ? text : "unset");
    }
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

/* Give the communicator its number, by a Lamport clock. The number is the same on all ranks and
 * greater than the number of every earlier communicator of these processes. Two communicators that
 * are made at the same time may get the same number. */
static void take_number(struct gyre_member *member, const struct agreement *all)
{
    for (int rank = 0; rank < member->n_ranks; rank++)
        if (member->number < all[rank].number)
            member->number = all[rank].number;
    member->number++;
}

/* Name the first row in which rank 0 and another rank differ, which all ranks call together. The
 * number of equal rows at the beginning is found by bisection, because rows are many and a message
 * of each rank may be short. */
static gyre_status refuse_rows(const struct gyre_member *member,
                               const struct gyre_links_terms *terms, uint64_t most_rows, int other)
{
    const size_t n = (size_t)member->n_ranks;
    struct gyre_bootstrap *bootstrap = member->bootstrap;
    uint64_t n_equal = 0, n_different = most_rows; /* the first rows that are all equal, or not */
    struct gyre_links_row mine = {.text = "no row"};
    uint64_t *hashes = calloc(n, sizeof(*hashes));
    struct gyre_links_row *rows = calloc(n, sizeof(*rows));
    gyre_status status =
        hashes == NULL || rows == NULL ? gyre_fail_errno(ENOMEM, "init") : GYRE_SUCCESS;
    while (status == GYRE_SUCCESS && n_different - n_equal > 1) {
        const uint64_t middle = n_equal + (n_different - n_equal) / 2;
        const uint64_t hash = hash_rows(terms, middle);
        status = bootstrap->ops->all_gather(bootstrap, &hash, sizeof(hash), hashes);
        *(hashes[0] == hashes[other] ? &n_equal : &n_different) = middle;
    }
    if (n_equal < terms->n_rows)
        mine = terms->rows[n_equal];
    if (status == GYRE_SUCCESS)
        status = bootstrap->ops->all_gather(bootstrap, &mine, sizeof(mine), rows);
    if (status == GYRE_SUCCESS)
        status = gyre_fail(GYRE_ERROR_INVALID_USAGE,
                           "init: the libraries differ in measured thresholds: \"%s\" on rank 0, "
                           "\"%s\" on rank %d; load the same library on all ranks",
                           rows[0].text, rows[other].text, other);
    free(hashes);
    free(rows);
    return status;
}

/* All ranks have the same @all. */
static gyre_status compare_rows(const struct gyre_member *member,
                                const struct gyre_links_terms *terms, const struct agreement *all)
{
    uint64_t most_rows = 0;
    int other = 0;
    for (int rank = member->n_ranks - 1; rank >= 0; rank--) {
        most_rows = gyre_max_u64(most_rows, all[rank].n_rows);
        if (all[rank].rows_hash != all[0].rows_hash || all[rank].n_rows != all[0].n_rows)
            other = rank;
    }
    return other == 0 ? GYRE_SUCCESS : refuse_rows(member, terms, most_rows, other);
}

gyre_status gyre_links_agree(struct gyre_member *member, const struct gyre_links_terms *terms)
{
    struct agreement mine;
    struct agreement *all = malloc((size_t)member->n_ranks * sizeof(*all));
    if (all == NULL)
        return gyre_fail_errno(ENOMEM, "init");
    fill_agreement(member, terms, &mine);
    gyre_status status =
        member->bootstrap->ops->all_gather(member->bootstrap, &mine, sizeof(mine), all);
    for (int rank = 1; rank < member->n_ranks && status == GYRE_SUCCESS; rank++)
        status = compare_agreement(&all[0], &all[rank], rank);
    if (status == GYRE_SUCCESS)
        status = compare_rows(member, terms, all);
    if (status == GYRE_SUCCESS)
        take_number(member, all);
    free(all);
    return status;
}
