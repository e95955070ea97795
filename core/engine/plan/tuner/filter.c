/* SPDX-License-Identifier: Apache-2.0 */
#include "core/engine/plan/tuner/filter.h"

#include "core/foundation/base/param.h"
#include "core/foundation/base/text.h"
#include "core/foundation/base/util.h"

#include <stdio.h>
#include <string.h>

const char *const gyre_path_names[GYRE_N_PATHS] = {
#define NAME(id, name) #name,
    GYRE_PATH_TABLE(NAME)
#undef NAME
};

struct vocabulary {
    const char *const *names;
    int n_names;
    const char *variable;
    uint32_t *nccl_only; /* NULL: names that only NCCL has are errors */
};

/* Of NCCL 2.28's documentation, NCCL_ALGO. PAT too, because gyre's `pat` does not run on GPUs. */
static const char *const nccl_only_names[] = {"CollNet", "CollnetDirect", "CollnetChain",
                                              "NVLS",    "NVLSTree",      "PAT"};
#define N_NCCL_ONLY ((int)(sizeof(nccl_only_names) / sizeof(nccl_only_names[0])))

void gyre_filter_list_nccl_only(const struct gyre_filter *filter, char *text_out, size_t text_bytes)
{
    text_out[0] = '\0';
    for (int i = 0; i < N_NCCL_ONLY; i++)
        if ((filter->nccl_only >> i & 1U) != 0)
            gyre_text_append(text_out, text_bytes, "%s%s", text_out[0] != '\0' ? "," : "",
                             nccl_only_names[i]);
}

/* "[^]a,b" */
static gyre_status parse_list(const char *text, const struct vocabulary *vocabulary,
                              uint32_t *mask_out)
{
    char list[GYRE_PARAM_MAX_BYTES];
    const bool inverts = text[0] == '^';
    snprintf(list, sizeof(list), "%s", text + inverts);
    uint32_t mask = 0;
    uint32_t nccl_only = 0;
    char *rest = NULL, legal[GYRE_PARAM_MAX_BYTES] = "";
    for (int i = 0; i < vocabulary->n_names; i++)
        gyre_text_append(legal, sizeof(legal), "%s%s", i > 0 ? " " : "", vocabulary->names[i]);
    for (char *word = strtok_r(list, ", ", &rest); word != NULL;
         word = strtok_r(NULL, ", ", &rest)) {
        const int index = gyre_name_find(vocabulary->names, vocabulary->n_names, word);
        const int of_nccl = gyre_name_find(nccl_only_names, N_NCCL_ONLY, word);
        if (vocabulary->nccl_only != NULL && of_nccl >= 0)
            nccl_only |= 1U << of_nccl;
        else if (index >= 0)
            mask |= 1U << index;
        else
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: \"%s\" is none of: %s",
                             vocabulary->variable, word, legal);
    }
    if (mask == 0 && nccl_only == 0)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: \"%s\" names nothing; legal: %s",
                         vocabulary->variable, text, legal);
    if (nccl_only != 0)
        *vocabulary->nccl_only |= nccl_only;
    *mask_out = inverts || mask == 0 ? ~mask : mask;
    return GYRE_SUCCESS;
}

/* By its name in gyre or in NCCL ("allreduce"); -1 if there is none. */
static int find_collective(const char *name)
{
    for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++) {
        char joined[32] = "";
        size_t n_joined = 0;
        for (const char *at = gyre_collectives[coll].name; *at != '\0'; at++)
            if (*at != '_' && n_joined < sizeof(joined) - 1)
                joined[n_joined++] = *at;
        if (gyre_text_same(joined, name) || gyre_text_same(gyre_collectives[coll].name, name))
            return coll;
    }
    return -1;
}

struct masks {
    uint32_t *allowed;
    uint32_t *of_network; /* links with a proxy; else NULL */
    bool *is_forced;      /* NULL = it does not matter */
};

/* "list", or "all_reduce:list;broadcast:list". */
static gyre_status parse_filter(const char *text, const struct vocabulary *vocabulary,
                                const struct masks *masks_out)
{
    for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++) {
        masks_out->allowed[coll] = UINT32_MAX;
        if (masks_out->of_network != NULL)
            masks_out->of_network[coll] = UINT32_MAX;
    }
    char copy[GYRE_PARAM_MAX_BYTES];
    snprintf(copy, sizeof(copy), "%s", text);
    char *rest = NULL;
    for (char *part = strtok_r(copy, ";", &rest); part != NULL; part = strtok_r(NULL, ";", &rest)) {
        char *colon = strchr(part, ':');
        int only = -1;
        if (colon != NULL) {
            *colon = '\0';
            only = find_collective(part);
            if (only < 0)
                return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                                 "%s: \"%s\" is not a collective (all_reduce, broadcast, ...)",
                                 vocabulary->variable, part);
        }
        /* With `of_network` a list of two parts (gyre_filter_parse()). */
        char *list = colon != NULL ? colon + 1 : part;
        char *slash = masks_out->of_network != NULL ? strchr(list, '/') : NULL;
        uint32_t mask = UINT32_MAX, network_mask = UINT32_MAX;
        if (slash != NULL)
            *slash = '\0';
        if (slash == NULL || list[0] != '\0')
            GYRE_TRY(parse_list(list, vocabulary, &mask));
        if (slash == NULL)
            network_mask = mask | 1U << GYRE_PROTO_SIMPLE;
        else if (slash[1] != '\0')
            GYRE_TRY(parse_list(slash + 1, vocabulary, &network_mask));
        for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++) {
            /* A list without a collective never counts for point to point: it has one algorithm. */
            const bool is_left_out = coll == GYRE_COLL_SEND_RECV ||
                                     (vocabulary->nccl_only != NULL &&
                                      (coll == GYRE_COLL_ALL_TO_ALL || coll == GYRE_COLL_GATHER ||
                                       coll == GYRE_COLL_SCATTER));
            if (only >= 0 ? coll != only : is_left_out)
                continue;
            masks_out->allowed[coll] = mask;
            if (masks_out->of_network != NULL)
                masks_out->of_network[coll] = network_mask;
            if (masks_out->is_forced != NULL)
                masks_out->is_forced[coll] = mask != UINT32_MAX;
        }
    }
    return GYRE_SUCCESS;
}

bool gyre_filter_allows(const struct gyre_filter *filter, enum gyre_collective coll,
                        const struct gyre_algorithm *algorithm)
{
    int i = 0;
    while (gyre_algorithms[i] != algorithm)
        i++;
    return (filter->algorithms[coll] >> i & 1U) != 0;
}

gyre_status gyre_filter_override(const struct gyre_filter_words *words, struct gyre_filter *filter)
{
    struct gyre_filter changed = *filter;
    if (words->algos != NULL) {
        const char *names[GYRE_MAX_ALGORITHMS];
        int n_names = 0;
        for (; gyre_algorithms[n_names] != NULL; n_names++)
            names[n_names] = gyre_algorithms[n_names]->name;
        memset(changed.is_forced, 0, sizeof(changed.is_forced));
        changed.algo_source = words->algo_source;
        changed.nccl_only = 0;
        const struct vocabulary vocabulary = {names, n_names, words->algo_source,
                                              words->is_algos_of_nccl ? &changed.nccl_only : NULL};
        const struct masks masks = {changed.algorithms, NULL, changed.is_forced};
        GYRE_TRY(parse_filter(words->algos, &vocabulary, &masks));
    }
    if (words->protos != NULL) {
        const char *source = words->proto_source;
        const struct vocabulary vocabulary = {gyre_proto_names, GYRE_N_PROTOS, source, NULL};
        const struct masks masks = {changed.protos, changed.net_protos, NULL};
        changed.proto_source = source;
        GYRE_TRY(parse_filter(words->protos, &vocabulary, &masks));
        /* LAMPORT uses LL128's slots, so ^LL128 excludes it: NCCL_PROTO=^LL,LL128 leaves only
         * SIMPLE. */
        for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++)
            if ((changed.protos[coll] >> GYRE_PROTO_LL128 & 1U) == 0 &&
                changed.protos[coll] >> 31 != 0)
                changed.protos[coll] &= ~(1U << GYRE_PROTO_LAMPORT);
    }
    if (words->paths != NULL) {
        const struct vocabulary vocabulary = {gyre_path_names, GYRE_N_PATHS, words->path_source,
                                              NULL};
        changed.path_source = words->path_source;
        const struct masks masks = {changed.paths, NULL, NULL};
        GYRE_TRY(parse_filter(words->paths, &vocabulary, &masks));
    }
    *filter = changed;
    return GYRE_SUCCESS;
}

gyre_status gyre_filter_parse(const char *algos, const char *protos, const char *paths,
                              struct gyre_filter *filter_out)
{
    const struct gyre_filter_words words = {
        .algos = algos,
        .protos = protos,
        .paths = paths,
        .algo_source = "GYRE_ALGO",
        .proto_source = "GYRE_PROTO",
        .path_source = "GYRE_PATH",
    };
    struct gyre_filter filter = {.algo_source = NULL};
    GYRE_TRY(gyre_filter_override(&words, &filter));
    *filter_out = filter;
    return GYRE_SUCCESS;
}

gyre_status gyre_filter_of(const struct gyre_params *params, struct gyre_filter *filter_out)
{
    const char *algo_source = gyre_param_called(params, GYRE_PARAM_ALGO);
    const char *proto_source = gyre_param_called(params, GYRE_PARAM_PROTO);
    const struct gyre_filter_words algos = {
        .algos = gyre_param_text(params, GYRE_PARAM_ALGO),
        .algo_source = algo_source,
        .is_algos_of_nccl = strcmp(algo_source, "NCCL_ALGO") == 0,
    };
    const struct gyre_filter_words protos = {.protos = gyre_param_text(params, GYRE_PARAM_PROTO),
                                             .proto_source = proto_source};
    const struct gyre_filter_words paths = {.paths = gyre_param_text(params, GYRE_PARAM_PATH),
                                            .path_source = "GYRE_PATH"};
    struct gyre_filter filter;
    GYRE_TRY(gyre_filter_parse("", "", "", &filter));
    filter.algo_source = algo_source;
    filter.proto_source = proto_source;
    gyre_status status = gyre_filter_override(&algos, &filter);
    GYRE_TRY(gyre_param_forgive(params, GYRE_PARAM_ALGO, status));
    status = gyre_filter_override(&protos, &filter);
    GYRE_TRY(gyre_param_forgive(params, GYRE_PARAM_PROTO, status));
    GYRE_TRY(gyre_filter_override(&paths, &filter));
    *filter_out = filter;
    return GYRE_SUCCESS;
}
