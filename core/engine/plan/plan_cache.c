/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/plan/plan_cache.h"

#include "core/engine/plan/plan.h"
#include "core/foundation/base/log.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Multilinear hashing (Carter and Wegman, 1979): the products do not wait for each other, and the
 * sum's top bits depend on the whole key. Loads wider than the fields just written would wait for
 * the stores, 10 ns a call. */
static struct gyre_plan **set_of(struct gyre_plan_table *table, const struct gyre_plan_key *key)
{
    const struct gyre_call_options *options = &key->options;
    const uint64_t hash =
        key->count * 0x9e3779b97f4a7c15 +
        ((uint64_t)options->algorithms << 32 | options->protos) * 0xbf58476d1ce4e5b9 +
        ((uint64_t)key->settings << 32 | (uint32_t)options->min_channels << 16 |
         (uint32_t)options->max_channels << 8 | options->prefers) *
            0x94d049bb133111eb +
        ((uint64_t)(uint32_t)key->root << 32 | (uint32_t)key->flags << 16 |
         (uint32_t)key->dtype << 8 | key->op) *
            0xd6e8feb86659fd93 +
        key->coll * 0xff51afd7ed558ccd;
    return table->sets[hash >> 55];
}

_Static_assert(GYRE_PLAN_SETS == 1 << (64 - 55), "as many as set_of() tells apart");

const struct gyre_plan *gyre_plan_table_find(struct gyre_plan_table *table,
                                             const struct gyre_plan_key *key)
{
    struct gyre_plan **set = set_of(table, key);
    for (int i = 0; i < GYRE_PLAN_PER_SET && set[i] != NULL; i++) {
        struct gyre_plan *plan = set[i];
        if (!(plan->key.count == key->count &&
              plan->key.options.algorithms == key->options.algorithms &&
              plan->key.options.protos == key->options.protos &&
              plan->key.options.min_channels == key->options.min_channels &&
              plan->key.options.max_channels == key->options.max_channels &&
              plan->key.options.prefers == key->options.prefers &&
              plan->key.settings == key->settings && plan->key.root == key->root &&
              plan->key.flags == key->flags && plan->key.coll == key->coll &&
              plan->key.dtype == key->dtype && plan->key.op == key->op))
            continue;
        for (; i > 0; i--)
            set[i] = set[i - 1];
        set[0] = plan;
        return plan;
    }
    return NULL;
}

void gyre_plan_table_add(struct gyre_plan_table *table, struct gyre_plan *plan)
{
    struct gyre_plan **set = set_of(table, &plan->key);
    struct gyre_plan *last = set[GYRE_PLAN_PER_SET - 1];
    if (last != NULL) {
        last->next = table->replaced;
        table->replaced = last;
    }
    memmove(&set[1], &set[0], (GYRE_PLAN_PER_SET - 1) * sizeof(set[0]));
    set[0] = plan;
}

static void free_plan(struct gyre_plan *plan)
{
    if (plan != NULL)
        gyre_ready_free(plan->ready);
    free(plan);
}

void gyre_plan_table_sweep(struct gyre_plan_table *table)
{
    while (table->replaced != NULL) {
        struct gyre_plan *plan = table->replaced;
        table->replaced = plan->next;
        free_plan(plan);
    }
}

void gyre_plan_table_close(struct gyre_plan_table *table)
{
    gyre_plan_table_sweep(table);
    for (size_t i = 0; i < GYRE_PLAN_SETS; i++)
        for (size_t k = 0; k < GYRE_PLAN_PER_SET; k++)
            free_plan(table->sets[i][k]);
    memset(table, 0, sizeof(*table));
}

static struct gyre_tuner_facts gather_facts(const struct gyre_plan_config *config)
{
    const struct gyre_rank *self = config->self;
    const struct gyre_links *links = config->links;
    const uint32_t most = (uint32_t)gyre_min_u64(links->spec.n_fifos, gyre_rank_max_channels(self));
    const uint64_t least = self->config.min_channels > 0 ? (uint64_t)self->config.min_channels : 1;
    if (least > most && self->rank == 0)
        GYRE_WARN("%d channels are wanted at least, but this communicator has room for %u",
                  self->config.min_channels, most);
    return (struct gyre_tuner_facts){
        .device_kind = (gyre_device_kind)self->device_info.kind,
        .n_ranks = (uint32_t)self->n_ranks,
        .n_hosts = links->grouping.n_hosts,
        .is_proxied = links->is_proxied,
        .is_tcp = links->is_proxied && !links->uses_rdma,
        .in_host_memory = self->device_info.kind == GYRE_DEVICE_CUDA && self->n_ranks > 1 &&
                          !links->is_p2p && !links->is_proxied,
        .is_direct_inside = links->grouping.n_hosts > 1 &&
                            links->grouping.n_hosts < self->n_ranks && !links->is_proxied_inside,
        .is_ll128_safe = links->is_ll128_safe,
        .min_channels = (uint32_t)gyre_min_u64(least, most),
        .max_channels = most,
        .least_sms = links->least_sms,
        .spec = links->spec,
        .grouping = &links->grouping,
    };
}

static struct gyre_algo_limits limits_of(const struct gyre_plan_cache *cache)
{
    const bool is_cuda = cache->facts.device_kind == GYRE_DEVICE_CUDA;
    return (struct gyre_algo_limits){
        .n_ranks = cache->facts.n_ranks,
        .device_kind = cache->facts.device_kind,
        .spec = cache->facts.spec,
        .max_blocks = is_cuda ? gyre_rank_max_channels(cache->self) : UINT32_MAX,
        .any_order = gyre_param_number(&cache->self->params, GYRE_PARAM_ANY_ORDER) != 0,
        .grouping = cache->facts.grouping,
    };
}

static bool has_algorithm(const struct gyre_plan_cache *cache, enum gyre_collective coll)
{
    for (int i = 0; gyre_algorithms[i] != NULL; i++)
        if ((cache->filter.algorithms[coll] >> i & 1U) != 0 &&
            gyre_tuner_algorithm_obstacle(&cache->facts, gyre_algorithms[i], coll) == NULL)
            return true;
    return false;
}

static bool has_proto(const struct gyre_plan_cache *cache, enum gyre_collective coll)
{
    for (int proto = 0; proto < GYRE_N_PROTOS; proto++)
        if ((cache->filter.protos[coll] >> proto & 1U) != 0 &&
            gyre_tuner_proto_obstacle(&cache->facts, (enum gyre_proto)proto) == NULL)
            return true;
    return false;
}

/* NCCL_ALGO=Tree stands in many scripts, so an NCCL list does not count for a collective that it
 * leaves nothing. */
static void relax_nccl(struct gyre_plan_cache *cache)
{
    struct gyre_filter *filter = &cache->filter;
    const bool is_algo = strcmp(filter->algo_source, "NCCL_ALGO") == 0;
    const bool is_proto = strcmp(filter->proto_source, "NCCL_PROTO") == 0;
    char algos[160] = "", protos[160] = "";
    for (enum gyre_collective coll = 0; coll < GYRE_N_COLLECTIVES; coll++) {
        const char *name = gyre_collectives[coll].name;
        if (is_algo && filter->algorithms[coll] != UINT32_MAX && !has_algorithm(cache, coll)) {
            filter->algorithms[coll] = UINT32_MAX;
            filter->is_forced[coll] = false;
            gyre_text_append(algos, sizeof(algos), " %s", name);
        }
        if (is_proto && filter->protos[coll] != UINT32_MAX && !has_proto(cache, coll)) {
            filter->protos[coll] = UINT32_MAX;
            filter->net_protos[coll] = UINT32_MAX;
            gyre_text_append(protos, sizeof(protos), " %s", name);
        }
    }
    if (algos[0] != '\0' && cache->self->rank == 0)
        GYRE_WARN("NCCL_ALGO is ignored for%s: no algorithm of it can do them here", algos);
    if (protos[0] != '\0' && cache->self->rank == 0)
        GYRE_WARN("NCCL_PROTO is ignored for%s: no protocol of it can be used here", protos);
}

gyre_status gyre_plan_cache_open(const struct gyre_plan_config *config,
                                 struct gyre_plan_cache *cache)
{
    const struct gyre_rank *self = config->self;
    cache->self = self;
    cache->links = config->links;
    cache->windows = config->windows;
    cache->programs.executor = config->executor;
    cache->programs.proves = gyre_param_has(&self->params, GYRE_PARAM_CHECK, GYRE_CHECK_PROGRAMS);
    cache->facts = gather_facts(config);
    cache->programs.in_host_memory = cache->facts.in_host_memory;
    uint32_t n = 0;
    for (int rank = 0; rank < self->n_ranks; rank++)
        n += config->links->grouping.host_of[rank] == config->links->grouping.host_of[self->rank];
    cache->n_ranks_inside = n;
    gyre_status status = gyre_filter_of(&self->params, &cache->filter);
    if (status == GYRE_SUCCESS) {
        const struct gyre_algo_limits limits = limits_of(cache);
        status = gyre_algo_use_open(&cache->from_file, config->algo_file, &limits, self->rank);
    }
    GYRE_TRY(status);
    if (self->rank == 0) {
        char names[128];
        gyre_filter_list_nccl_only(&cache->filter, names, sizeof(names));
        if (names[0] != '\0')
            GYRE_WARN(
                "NCCL_ALGO: gyre does not have %s and leaves it out (GYRE_ALGO replaces NCCL_ALGO)",
                names);
    }
    relax_nccl(cache);
    /* Rows were measured on one host. On several, the best algorithm depends on hosts, ranks and
     * NICs, so it is predicted. */
    const bool is_host = cache->facts.device_kind == GYRE_DEVICE_HOST;
    cache->is_tuned = config->tuning->is_set && is_host;
    cache->network_cost =
        gyre_network_cost(is_host ? &gyre_cost_host : &gyre_cost_h200, &config->links->network);
    cache->facts.user_rows = config->tuning->rows;
    if (cache->is_tuned)
        cache->facts.cost = &config->tuning->cost;
    else if (cache->facts.n_hosts > 1)
        cache->facts.cost = &cache->network_cost;
    if (config->tuning->is_set && !is_host && cache->self->rank == 0)
        GYRE_WARN("GYRE_TUNING_FILE has no effect on GPUs: their table was measured");
    return GYRE_SUCCESS;
}

void gyre_plan_cache_close(struct gyre_plan_cache *cache)
{
    gyre_plan_table_close(&cache->plans);
    gyre_plan_table_close(&cache->predicted);
    gyre_programs_close(&cache->programs);
    gyre_algo_use_close(&cache->from_file);
}

const struct gyre_tuner_facts *gyre_plan_facts(const struct gyre_plan_cache *cache)
{
    return &cache->facts;
}

const struct gyre_cost *gyre_plan_cost(const struct gyre_plan_cache *cache)
{
    const struct gyre_tuner_facts *facts = &cache->facts;
    if (facts->cost != NULL)
        return facts->cost;
    return facts->device_kind == GYRE_DEVICE_CUDA ? &gyre_cost_h200 : &gyre_cost_host;
}

static void change_settings(struct gyre_plan_cache *cache)
{
    cache->unforced = ++cache->n_settings;
    cache->settings = cache->forced.algorithm != NULL ? ++cache->n_settings : cache->unforced;
}

void gyre_plan_force(struct gyre_plan_cache *cache, const struct gyre_choice *choice)
{
    const struct gyre_choice none = {0};
    cache->forced = choice != NULL ? *choice : none;
    cache->settings = choice != NULL ? ++cache->n_settings : cache->unforced;
}

gyre_status gyre_plan_restrict(struct gyre_plan_cache *cache, const struct gyre_filter_words *words)
{
    GYRE_TRY(gyre_filter_override(words, &cache->filter));
    if (words->algos != NULL)
        cache->from_file.is_paused = true;
    change_settings(cache);
    return GYRE_SUCCESS;
}

gyre_status gyre_plan_use_file(struct gyre_plan_cache *cache, const char *path, const char *source)
{
    const struct gyre_algo_limits limits = limits_of(cache);
    GYRE_TRY(gyre_algo_use_replace(&cache->from_file, path, source, &limits, cache->self));
    change_settings(cache);
    return GYRE_SUCCESS;
}

void gyre_plan_resume_file(struct gyre_plan_cache *cache)
{
    cache->from_file.is_paused = false;
    change_settings(cache);
}

gyre_status gyre_plan_check_file(const struct gyre_plan_cache *cache, enum gyre_collective coll,
                                 bool in_window)
{
    return gyre_algo_use_check(&cache->from_file, &cache->filter, coll, in_window,
                               cache->facts.n_ranks);
}
