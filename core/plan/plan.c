/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of one communicator. A plan chooses how a call is carried out, and turns the call into a
 * work. Only the caller's thread of the communicator runs this code.
 */
#include "core/plan/plan.h"

#include "core/base/log.h"
#include "core/base/util.h"
#include "core/links/links.h"
#include "core/plan/algo_use.h"
#include "core/plan/programs.h"
#include "core/plan/recent.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A choice that was made by prediction. It is kept, because a prediction takes too long to be
 * repeated for each call. */
struct choice_entry {
    enum gyre_collective coll;
    const struct gyre_algorithm *given; /* from a file; NULL = the choice was free */
    bool in_window;
    bool has_lamport;
    bool is_near;
    uint64_t class_bytes;
    struct gyre_choice choice;
    struct choice_entry *next;
};

struct gyre_plan_cache {
    const struct gyre_member *member;
    const struct gyre_links *links;
    const struct gyre_windows *windows;
    struct gyre_programs programs;
    struct gyre_algo_use from_file;
    struct gyre_tuner_facts facts;
    bool is_tuned; /* facts.cost is that of GYRE_TUNING_FILE */
    struct gyre_filter filter;
    struct gyre_choice forced; /* by gyre_plan_force(); zeros = by nobody */
    struct choice_entry *choices;
    struct gyre_recent recent;
};

/* Collect the facts that are the same for all calls of the communicator. */
static struct gyre_tuner_facts gather_facts(const struct gyre_plan_config *config)
{
    const struct gyre_member *member = config->member;
    const struct gyre_links *links = config->links;
    const uint32_t most =
        (uint32_t)gyre_min_u64(links->spec.n_fifos, gyre_member_max_channels(member));
    const uint64_t least =
        member->config.min_channels > 0 ? (uint64_t)member->config.min_channels : 1;
    if (least > most && member->rank == 0)
        GYRE_WARN("%d channels are wanted at least, but this communicator has room for %u",
                  member->config.min_channels, most);
    return (struct gyre_tuner_facts){
        .device_kind = (gyre_device_kind)member->device_info.kind,
        .n_ranks = (uint32_t)member->n_ranks,
        .n_hosts = links->grouping.n_hosts,
        .is_proxied = links->is_proxied,
        .is_ll128_safe = links->is_ll128_safe,
        .min_channels = (uint32_t)gyre_min_u64(least, most),
        .max_channels = most,
        .spec = links->spec,
        .grouping = &links->grouping,
    };
}

/* The limits that this communicator sets to programs from a file. */
static struct gyre_algo_terms terms_of(const struct gyre_plan_cache *cache)
{
    const bool is_cuda = cache->facts.device_kind == GYRE_DEVICE_CUDA;
    return (struct gyre_algo_terms){
        .n_ranks = cache->facts.n_ranks,
        .device_kind = cache->facts.device_kind,
        .spec = cache->facts.spec,
        .max_blocks = is_cuda ? gyre_member_max_channels(cache->member) : UINT32_MAX,
        .grouping = cache->facts.grouping,
    };
}

/* Warn about algorithms that NCCL_ALGO names and that gyre does not have. */
static void report_nccl_only(const struct gyre_filter *filter)
{
    char names[128];
    gyre_filter_list_nccl_only(filter, names, sizeof(names));
    if (names[0] != '\0')
        GYRE_WARN(
            "NCCL_ALGO: gyre does not have %s and leaves it out (GYRE_ALGO replaces NCCL_ALGO)",
            names);
}

gyre_status gyre_plan_cache_open(const struct gyre_plan_config *config,
                                 struct gyre_plan_cache **cache_out)
{
    const struct gyre_member *member = config->member;
    struct gyre_plan_cache *cache = calloc(1, sizeof(*cache));
    if (cache == NULL)
        return gyre_fail_errno(ENOMEM, "plan cache");
    cache->member = member;
    cache->links = config->links;
    cache->windows = config->windows;
    cache->programs.executor = config->executor;
    cache->programs.proves = gyre_param_has(&member->params, GYRE_PARAM_CHECK, GYRE_CHECK_PROGRAMS);
    cache->facts = gather_facts(config);
    gyre_status status = gyre_filter_of(&member->params, &cache->filter);
    if (status == GYRE_SUCCESS) {
        const struct gyre_algo_terms terms = terms_of(cache);
        status = gyre_algo_use_open(&cache->from_file, config->algo_file, &terms, member->rank);
    }
    if (status != GYRE_SUCCESS) {
        free(cache);
        return status;
    }
    if (member->rank == 0)
        report_nccl_only(&cache->filter);
    const bool is_host = cache->facts.device_kind == GYRE_DEVICE_HOST;
    cache->is_tuned = config->tuning->is_set && is_host;
    /* The tables were measured on one host. On several hosts the best algorithm depends on the
     * number of hosts and on the ranks and NICs of each host, so predict there. */
    if (cache->is_tuned)
        cache->facts.cost = &config->tuning->cost;
    else if (cache->facts.n_hosts > 1)
        cache->facts.cost = is_host ? &gyre_cost_host : &gyre_cost_h200;
    if (config->tuning->is_set && !is_host && member->rank == 0)
        GYRE_WARN("GYRE_TUNING_FILE has no effect on GPUs: their table was measured");
    *cache_out = cache;
    return GYRE_SUCCESS;
}

static void forget_choices(struct gyre_plan_cache *cache)
{
    while (cache->choices != NULL) {
        struct choice_entry *entry = cache->choices;
        cache->choices = entry->next;
        free(entry);
    }
}

void gyre_plan_cache_close(struct gyre_plan_cache *cache)
{
    if (cache == NULL)
        return;
    forget_choices(cache);
    gyre_programs_close(&cache->programs);
    gyre_algo_use_close(&cache->from_file);
    free(cache);
}

/* Fill in the shape of a call, this rank's number in the shape and, for point to point, the two
 * ranks of the communicator. */
static void shape_of(const struct gyre_plan_cache *cache, const struct gyre_call *call,
                     struct gyre_shape *shape_out, int *rank_out, uint16_t rank_of_out[2])
{
    const struct gyre_member *member = cache->member;
    struct gyre_shape shape = {.coll = call->coll,
                               .n_ranks = (uint16_t)member->n_ranks,
                               .root = (uint16_t)(call->root < 0 ? 0 : call->root),
                               .grouping = &cache->links->grouping};
    *rank_out = member->rank;
    if (call->coll == GYRE_COLL_SEND_RECV) {
        const bool is_self = call->root == member->rank;
        shape.n_ranks = is_self ? 1 : 2;
        shape.root = 0;
        shape.grouping = NULL;
        *rank_out = call->is_send || is_self ? 0 : 1;
        rank_of_out[*rank_out] = (uint16_t)member->rank;
        rank_of_out[1 - *rank_out] = (uint16_t)call->root;
    }
    *shape_out = shape;
}

static struct gyre_reduction reduction_of(const struct gyre_plan_cache *cache,
                                          const struct gyre_call *call)
{
    struct gyre_reduction reduction = {
        .dtype = (uint8_t)call->dtype, .op = (uint8_t)call->op, .divisor = 1};
    if (!gyre_collectives[call->coll].reduces) {
        reduction.op = GYRE_SUM;
    } else if ((int)call->op >= GYRE_FIRST_USER_OP) {
        reduction.op = GYRE_SUM;
        reduction.premultiply = 1;
        reduction.scalar = call->scalar;
    } else if (call->op == GYRE_AVG) {
        reduction.op = GYRE_SUM;
        if (gyre_dtype_is_float(call->dtype)) {
            reduction.premultiply = cache->facts.n_ranks > 1;
            reduction.scalar = gyre_premultiply_scalar(call->dtype, cache->facts.n_ranks);
        } else {
            reduction.divisor = cache->facts.n_ranks;
        }
    }
    return reduction;
}

struct gyre_tuner_facts gyre_plan_facts_of(const struct gyre_plan_cache *cache,
                                           const struct gyre_call *call)
{
    struct gyre_tuner_facts facts = cache->facts;
    const struct gyre_reduction reduction = reduction_of(cache, call);
    facts.has_lamport =
        gyre_collectives[call->coll].reduces && gyre_lamport_adds(call->dtype, reduction.op);
    facts.is_near = call->coll == GYRE_COLL_SEND_RECV && cache->links->is_far[call->root] == 0;
    facts.is_unscaled = reduction.premultiply == 0 && reduction.divisor <= 1;
    return facts;
}

/* @given: the algorithm from a file that has to carry out the call; NULL = any. */
static gyre_status make_choice(const struct gyre_plan_cache *cache,
                               const struct gyre_tuner_facts *facts,
                               const struct gyre_algorithm *given, enum gyre_collective coll,
                               uint64_t n_bytes, struct gyre_choice *choice_out)
{
    return given != NULL
               ? gyre_tuner_choose_given(facts, &cache->filter, given, n_bytes, choice_out)
               : gyre_tuner_choose(facts, &cache->filter, coll, n_bytes, choice_out);
}

static gyre_status find_choice(struct gyre_plan_cache *cache, const struct gyre_tuner_facts *facts,
                               const struct gyre_algorithm *given, enum gyre_collective coll,
                               uint64_t n_bytes, struct gyre_choice *choice_out)
{
    if (facts->cost == NULL)
        return make_choice(cache, facts, given, coll, n_bytes, choice_out);
    const uint64_t class_bytes = gyre_tuner_size_class(n_bytes);
    struct choice_entry *entry = cache->choices;
    while (entry != NULL &&
           (entry->coll != coll || entry->given != given || entry->in_window != facts->in_window ||
            entry->has_lamport != facts->has_lamport || entry->is_near != facts->is_near ||
            entry->class_bytes != class_bytes))
        entry = entry->next;
    if (entry == NULL) {
        struct gyre_choice choice;
        GYRE_TRY(make_choice(cache, facts, given, coll, class_bytes, &choice));
        entry = calloc(1, sizeof(*entry));
        if (entry == NULL)
            return gyre_fail_errno(ENOMEM, "choice for %s", gyre_collectives[coll].name);
        *entry = (struct choice_entry){.coll = coll,
                                       .given = given,
                                       .in_window = facts->in_window,
                                       .has_lamport = facts->has_lamport,
                                       .is_near = facts->is_near,
                                       .class_bytes = class_bytes,
                                       .choice = choice,
                                       .next = cache->choices};
        cache->choices = entry;
    }
    *choice_out = entry->choice;
    return GYRE_SUCCESS;
}

/* Choose by the tables, and replace the parts of the choice that gyre_plan_force() has set. */
static gyre_status force_choice(const struct gyre_plan_cache *cache, struct gyre_tuner_facts facts,
                                enum gyre_collective coll, uint64_t n_bytes,
                                struct gyre_choice *choice_out)
{
    const struct gyre_choice *forced = &cache->forced;
    struct gyre_filter filter = cache->filter;
    facts.cost = NULL;
    if (forced->n_channels > 0)
        facts.min_channels = facts.max_channels = forced->n_channels;
    for (int i = 0; gyre_algorithms[i] != NULL; i++)
        if (gyre_algorithms[i] == forced->algorithm) {
            filter.algorithms[coll] &= 1U << i;
            filter.protos[coll] &= 1U << forced->proto;
            if (forced->path != GYRE_PATH_COPY_ENGINE)
                filter.paths[coll] &= ~(1U << GYRE_PATH_COPY_ENGINE);
        }
    GYRE_TRY(gyre_tuner_choose(&facts, &filter, coll, n_bytes, choice_out));
    if (choice_out->path == GYRE_PATH_COPY_ENGINE)
        return GYRE_SUCCESS;
    if (forced->tile_bytes > 0)
        choice_out->tile_bytes = forced->tile_bytes;
    const uint32_t most_bytes =
        gyre_tuner_payload_bytes(&facts, choice_out->algorithm, coll, choice_out->proto,
                                 choice_out->path == GYRE_PATH_PLACED);
    if (choice_out->tile_bytes > most_bytes || choice_out->tile_bytes % 16 != 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                         "tiles of %u bytes: a slot of %s holds %u, in units of 16",
                         choice_out->tile_bytes, gyre_proto_names[choice_out->proto], most_bytes);
    return GYRE_SUCCESS;
}

void gyre_plan_force(struct gyre_plan_cache *cache, const struct gyre_choice *choice)
{
    const struct gyre_choice none = {0};
    cache->forced = choice != NULL ? *choice : none;
    gyre_plan_forget(cache);
}

gyre_status gyre_plan_restrict(struct gyre_plan_cache *cache, const struct gyre_filter_words *words)
{
    GYRE_TRY(gyre_filter_override(words, &cache->filter));
    if (words->algos != NULL)
        cache->from_file.is_paused = true;
    forget_choices(cache);
    gyre_plan_forget(cache);
    return GYRE_SUCCESS;
}

gyre_status gyre_plan_use_file(struct gyre_plan_cache *cache, const char *path, const char *source)
{
    const struct gyre_algo_terms terms = terms_of(cache);
    GYRE_TRY(gyre_algo_use_replace(&cache->from_file, path, source, &terms, cache->member));
    forget_choices(cache);
    gyre_plan_forget(cache);
    return GYRE_SUCCESS;
}

void gyre_plan_resume_file(struct gyre_plan_cache *cache)
{
    cache->from_file.is_paused = false;
    forget_choices(cache);
    gyre_plan_forget(cache);
}

gyre_status gyre_plan_check_file(const struct gyre_plan_cache *cache, enum gyre_collective coll,
                                 bool in_window)
{
    return gyre_algo_use_check(&cache->from_file, &cache->filter, coll, in_window,
                               cache->facts.n_ranks);
}

void gyre_plan_forget(struct gyre_plan_cache *cache)
{
    gyre_recent_forget(&cache->recent);
}

static gyre_status choose_way(struct gyre_plan_cache *cache, const struct gyre_tuner_facts *facts,
                              const struct gyre_call *call, struct gyre_choice *choice_out)
{
    const enum gyre_collective coll = call->coll;
    const uint64_t n_bytes = call->count * gyre_dtype_bytes(call->dtype);
    if (cache->forced.algorithm != NULL && coll != GYRE_COLL_SEND_RECV)
        return force_choice(cache, *facts, coll, n_bytes, choice_out);
    const struct gyre_algorithm *given =
        gyre_algo_use_find(&cache->from_file, &cache->filter, coll, call->root, facts->in_window);
    return find_choice(cache, facts, given, coll, n_bytes, choice_out);
}

gyre_status gyre_plan_choice(struct gyre_plan_cache *cache, const struct gyre_call *call,
                             struct gyre_choice *choice_out)
{
    const struct gyre_tuner_facts facts = gyre_plan_facts_of(cache, call);
    return choose_way(cache, &facts, call, choice_out);
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

/* The predicted time of a call; 0 if there is no prediction. */
static double predict_us(struct gyre_plan_cache *cache, enum gyre_collective coll,
                         const struct gyre_choice *choice, uint64_t n_bytes)
{
    double time_ns;
    if (coll == GYRE_COLL_SEND_RECV || choice->path == GYRE_PATH_COPY_ENGINE ||
        gyre_tuner_predict(&cache->facts, gyre_plan_cost(cache), coll, choice, n_bytes, &time_ns) !=
            GYRE_SUCCESS)
        return 0;
    return time_ns / 1e3;
}

/* Limit the channels of a call on a GPU, because the workers of all channels run as thread blocks
 * at the same time. Programs that a built-in algorithm emits are not limited here; they keep the
 * channels that the tuner chose for that algorithm. */
static void limit_blocks(const struct gyre_plan_cache *cache, const struct gyre_variants *variants,
                         struct gyre_choice *choice)
{
    const bool is_like = choice->algorithm->given->like != NULL;
    if (cache->facts.device_kind == GYRE_DEVICE_CUDA && !is_like && variants->most_workers > 1)
        choice->n_channels =
            (uint32_t)gyre_min_u64(choice->n_channels, gyre_max_u64(1, cache->facts.max_channels /
                                                                           variants->most_workers));
}

/* Choose algorithm, protocol, channels and programs of a call. The number of channels fits the
 * programs' lanes. */
static gyre_status choose(struct gyre_plan_cache *cache, const struct gyre_call *call,
                          struct gyre_choice *choice_out, const struct gyre_variants **variants_out,
                          uint16_t rank_of_out[2])
{
    struct gyre_tuner_facts facts = gyre_plan_facts_of(cache, call);
    struct gyre_shape shape;
    int rank;
    facts.in_window = call->window != NULL;
    facts.has_large_pages = call->window != NULL && call->window->has_large_pages;
    GYRE_TRY(choose_way(cache, &facts, call, choice_out));
    GYRE_TRY(gyre_tuner_check_path(&facts, &cache->filter, call->coll, choice_out));
    shape_of(cache, call, &shape, &rank, rank_of_out);
    shape.is_placed = choice_out->path != GYRE_PATH_STAGED;
    GYRE_TRY(
        gyre_programs_find(&cache->programs, choice_out->algorithm, &shape, rank, variants_out));
    const struct gyre_program *program = (*variants_out)->programs[0];
    const struct gyre_fifo_spec *spec = &cache->links->spec;
    const uint32_t n_fifos = gyre_tuner_fifos(&facts, choice_out->algorithm, call->coll).n_fifos;
    if (program->n_lanes > n_fifos || program->min_depth > spec->depth)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "%s %s needs %u connections of depth %u a pair, this communicator has %u "
                         "of depth %u",
                         program->algorithm, gyre_collectives[call->coll].name, program->n_lanes,
                         program->min_depth, n_fifos, spec->depth);
    const bool is_short = gyre_piece_bytes(choice_out->tile_bytes, program->max_range) == 0;
    if (is_short && n_fifos != spec->n_fifos) /* far pairs: no variable makes their slots longer */
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "a step of %s %s moves up to %u chunks, 16 bytes of each in a slot at "
                         "least; between far ranks of so many hosts slots have %u bytes",
                         program->algorithm, gyre_collectives[call->coll].name, program->max_range,
                         choice_out->tile_bytes);
    if (is_short)
        return gyre_fail(
            GYRE_ERROR_UNSUPPORTED,
            "a step of %s %s moves up to %u chunks, 16 bytes of each in a slot at least; with "
            "GYRE_BUFFSIZE=%" PRIu64 " slots would be large enough, this call has %u bytes of one",
            program->algorithm, gyre_collectives[call->coll].name, program->max_range,
            (uint64_t)program->max_range * 16 * spec->depth, choice_out->tile_bytes);
    /* All sends and receives of a group run at the same time, and so do all their blocks on a GPU.
     * The limit of 64 channels for all peers together leaves room for one send and one receive with
     * every rank on a GPU of 128 multiprocessors. */
    if (call->coll == GYRE_COLL_SEND_RECV && cache->facts.device_kind == GYRE_DEVICE_CUDA)
        choice_out->n_channels = (uint32_t)gyre_min_u64(
            choice_out->n_channels, gyre_max_u64(1, 64 / (uint64_t)cache->facts.n_ranks));
    if (program->n_lanes > 0)
        choice_out->n_channels =
            (uint32_t)gyre_min_u64(choice_out->n_channels, n_fifos / program->n_lanes);
    if (choice_out->algorithm->given != NULL)
        limit_blocks(cache, *variants_out, choice_out);
    return GYRE_SUCCESS;
}

static void log_choice(struct gyre_plan_cache *cache, const struct gyre_call *call,
                       const struct gyre_choice *choice)
{
    const uint64_t n_bytes = call->count * gyre_dtype_bytes(call->dtype);
    const double us = predict_us(cache, call->coll, choice, n_bytes);
    const struct gyre_shape shape = {.coll = call->coll,
                                     .n_ranks = (uint16_t)cache->facts.n_ranks,
                                     .grouping = cache->facts.grouping};
    const double bound_us =
        gyre_bound_ns(&shape, gyre_plan_cost(cache),
                      gyre_tuner_all_bytes(&cache->facts, call->coll, n_bytes)) /
        1e3;
    char prediction[96] = "";
    if (us > 0)
        snprintf(prediction, sizeof(prediction),
                 ", predicted %.2f us (%s constants), %.0f%% of the bound", us,
                 cache->is_tuned ? "measured" : "shipped", 100 * bound_us / us);
    const char *path_name = choice->path == GYRE_PATH_STAGED ? "" : gyre_path_names[choice->path];
    GYRE_INFO(TUNING, "%s %" PRIu64 " B: %s%s %s%s%s, %u channels, tiles of %u B%s",
              gyre_collectives[call->coll].name, n_bytes, choice->algorithm->name,
              choice->algorithm->given != NULL ? " (from the file)" : "",
              gyre_proto_names[choice->proto], path_name[0] != '\0' ? " " : "", path_name,
              choice->n_channels, choice->tile_bytes, prediction);
}

/* Make the call's choice, and load its program so that it can be launched with this reduction. */
static gyre_status make_ready(struct gyre_plan_cache *cache, const struct gyre_call *call,
                              const struct gyre_reduction *reduction,
                              struct gyre_choice *choice_out,
                              const struct gyre_variants **variants_out,
                              struct gyre_loaded **loaded_out)
{
    const bool is_p2p = call->coll == GYRE_COLL_SEND_RECV;
    uint16_t rank_of[2] = {0, 0};
    struct gyre_executor *executor = cache->programs.executor;
    GYRE_TRY(choose(cache, call, choice_out, variants_out, rank_of));
    GYRE_TRY(gyre_programs_load(&cache->programs, *variants_out, choice_out,
                                is_p2p ? rank_of : NULL, loaded_out));
    return executor->ops->prepare(executor, *loaded_out, reduction);
}

gyre_status gyre_plan_prepare(struct gyre_plan_cache *cache, const struct gyre_call *call)
{
    const struct gyre_reduction reduction = reduction_of(cache, call);
    const struct gyre_variants *variants;
    struct gyre_choice choice;
    struct gyre_loaded *loaded = NULL;
    if (gyre_recent_find(&cache->recent, call) != NULL)
        return GYRE_SUCCESS;
    return make_ready(cache, call, &reduction, &choice, &variants, &loaded);
}

static gyre_status make_work(struct gyre_plan_cache *cache, const struct gyre_call *call,
                             struct gyre_work *work_out)
{
    const struct gyre_reduction reduction = reduction_of(cache, call);
    const uint32_t element = gyre_dtype_bytes(call->dtype);
    const struct gyre_variants *variants;
    struct gyre_choice choice;
    struct gyre_loaded *loaded = NULL;
    GYRE_TRY(make_ready(cache, call, &reduction, &choice, &variants, &loaded));
    const struct gyre_program *program = variants->programs[0];
    *work_out = (struct gyre_work){
        .loaded = loaded,
        .in = call->send,
        .out = call->recv,
        .split = {.count = call->count,
                  .n_channels = choice.n_channels,
                  .n_chunks = program->n_chunks,
                  .tile_elems = gyre_piece_bytes(choice.tile_bytes, program->max_range) / element,
                  .unit_elems = 16 / element},
        .reduction = reduction,
    };
    if (program->is_placed) {
        work_out->placement = &call->window->placement;
        work_out->out_offset_bytes = call->window_offset;
    }
    if (gyre_log_enabled(GYRE_LOG_INFO, GYRE_LOG_TUNING))
        log_choice(cache, call, &choice);
    return GYRE_SUCCESS;
}

gyre_status gyre_plan_work(struct gyre_plan_cache *cache, const struct gyre_call *call,
                           struct gyre_work *work_out)
{
    struct gyre_recent *recent = &cache->recent;
    const bool tells = gyre_log_enabled(GYRE_LOG_INFO, GYRE_LOG_TUNING); /* each call's choice */
    const struct gyre_work *known = tells ? NULL : gyre_recent_find(recent, call);
    if (known != NULL) {
        *work_out = *known;
        return GYRE_SUCCESS;
    }
    GYRE_TRY(make_work(cache, call, work_out));
    gyre_recent_keep(recent, call, work_out);
    return GYRE_SUCCESS;
}

/* The number of thread blocks of a call. If copy engines carry the whole call, a kernel copies only
 * this rank's own block. */
static unsigned n_blocks_of(const struct gyre_choice *choice, const struct gyre_variants *variants)
{
    return choice->path == GYRE_PATH_COPY_ENGINE &&
                   gyre_program_copy_tail(variants->programs[0]) == 0
               ? GYRE_COPY_BLOCKS
               : choice->n_channels * variants->most_workers;
}

gyre_status gyre_plan_describe(struct gyre_plan_cache *cache, const struct gyre_call *call,
                               struct gyre_plan_summary *summary_out)
{
    struct gyre_call found = *call;
    struct gyre_choice choice;
    const struct gyre_variants *variants;
    uint16_t rank_of[2];
    gyre_window_find(cache->windows, cache->facts.n_ranks, &found);
    GYRE_TRY(choose(cache, &found, &choice, &variants, rank_of));
    struct gyre_plan_summary summary = {.n_channels = choice.n_channels,
                                        .slot_bytes = choice.tile_bytes,
                                        .n_blocks = n_blocks_of(&choice, variants)};
    summary.predicted_us =
        predict_us(cache, call->coll, &choice, call->count * gyre_dtype_bytes(call->dtype));
    snprintf(summary.algorithm, sizeof(summary.algorithm), "%s", choice.algorithm->name);
    snprintf(summary.proto, sizeof(summary.proto), "%s", gyre_proto_names[choice.proto]);
    snprintf(summary.path, sizeof(summary.path), "%s", gyre_path_names[choice.path]);
    snprintf(summary.transports, sizeof(summary.transports), "%s", cache->links->summary);
    *summary_out = summary;
    return GYRE_SUCCESS;
}
