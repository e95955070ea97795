/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/param.h"
#include "core/foundation/base/util.h"
#include "core/engine/plan/plan.h"
#include "tests/support/files.h"
#include "tests/support/shapes.h"

#include <math.h>

static struct gyre_tuner_facts host_facts(uint32_t n_ranks, const struct gyre_cost *cost)
{
    struct gyre_tuner_facts facts = {
        .device_kind = GYRE_DEVICE_HOST, .n_ranks = n_ranks, .n_hosts = 1, .cost = cost};
    facts.spec = gyre_tuner_fifo_spec(GYRE_DEVICE_HOST, n_ranks, false, 0, UINT32_MAX);
    facts.min_channels = 1;
    facts.max_channels = facts.spec.n_fifos;
    return facts;
}

static struct gyre_tuner_facts gpu_facts(uint32_t n_ranks)
{
    struct gyre_tuner_facts facts = host_facts(n_ranks, NULL);
    facts.device_kind = GYRE_DEVICE_CUDA;
    facts.is_ll128_safe = true;
    facts.spec = gyre_tuner_fifo_spec(GYRE_DEVICE_CUDA, n_ranks, false, 0, UINT32_MAX);
    facts.max_channels = facts.spec.n_fifos;
    return facts;
}

static struct gyre_choice choose_by(const struct gyre_tuner_facts *facts, const char *algos,
                                    const char *protos, const char *paths,
                                    enum gyre_collective coll, uint64_t n_bytes)
{
    struct gyre_choice choice = {0};
    struct gyre_filter filter;
    CHECK_OK(gyre_filter_parse(algos, protos, paths, &filter));
    CHECK_OK(gyre_tuner_choose(facts, &filter, coll, n_bytes, &choice));
    return choice;
}

static gyre_status choose(const struct gyre_tuner_facts *facts, const char *algos,
                          const char *protos, enum gyre_collective coll,
                          struct gyre_choice *choice_out)
{
    struct gyre_filter filter;
    GYRE_TRY(gyre_filter_parse(algos, protos, "", &filter));
    return gyre_tuner_choose(facts, &filter, coll, 4096, choice_out);
}

TEST_CASE("impossible choices are errors")
{
    struct gyre_choice choice;
    char no_all_reduce[256];
    int n = snprintf(no_all_reduce, sizeof(no_all_reduce),
                     "%s:", gyre_collectives[GYRE_COLL_ALL_REDUCE].name);
    const char *separator = "^";
    for (int a = 0; gyre_algorithms[a] != NULL; a++) {
        if (!gyre_algorithm_has(gyre_algorithms[a], GYRE_COLL_ALL_REDUCE))
            continue;
        n += snprintf(no_all_reduce + n, (sizeof(no_all_reduce)) - (size_t)n, "%s%s", separator,
                      gyre_algorithms[a]->name);
        separator = ",";
    }
    CHECK((size_t)n < (sizeof(no_all_reduce)));
    for (int by_prediction = 0; by_prediction < 2; by_prediction++) {
        struct gyre_tuner_facts facts = host_facts(4, by_prediction ? &gyre_cost_host : NULL);
        CHECK_BAD_USAGE(choose(&facts, "tree", "", GYRE_COLL_ALL_GATHER, &choice),
                        "can do all_gather");
        CHECK_BAD_USAGE(choose(&facts, "sendrecv", "", GYRE_COLL_ALL_REDUCE, &choice),
                        "can do all_reduce");
        CHECK_BAD_USAGE(choose(&facts, no_all_reduce, "", GYRE_COLL_ALL_REDUCE, &choice),
                        "can do all_reduce");
        CHECK_BAD_USAGE(choose(&facts, "", "ll", GYRE_COLL_ALL_REDUCE, &choice),
                        "the host device has simple only");
        CHECK_BAD_USAGE(choose(&facts, "", "^simple", GYRE_COLL_ALL_REDUCE, &choice),
                        "the host device has simple only");
        CHECK_OK(choose(&facts, "tree", "simple,ll", GYRE_COLL_ALL_REDUCE, &choice));
        CHECK(choice.algorithm == &gyre_algorithm_tree && choice.proto == GYRE_PROTO_SIMPLE);
    }
    struct gyre_tuner_facts facts = gpu_facts(4);
    facts.is_ll128_safe = false;
    CHECK_BAD_USAGE(choose(&facts, "", "ll128", GYRE_COLL_ALL_REDUCE, &choice),
                    "ll128 needs NVLink");
    facts.is_proxied = true;
    CHECK_BAD_USAGE(choose(&facts, "", "ll", GYRE_COLL_ALL_REDUCE, &choice), "a proxy serves");
}

TEST_CASE("a choice names its row")
{
    const struct gyre_tuner_facts gpus = gpu_facts(4), host = host_facts(4, NULL);
    const struct gyre_tuner_facts predicted = host_facts(4, &gyre_cost_host);
    struct gyre_choice choice;
    CHECK_OK(choose(&gpus, "", "", GYRE_COLL_BROADCAST, &choice));
    CHECK(choice.won[GYRE_WON_WAY] != NULL &&
          strcmp(choice.won[GYRE_WON_WAY]->file, "h200.rows") == 0 &&
          choice.won[GYRE_WON_WAY]->kind == GYRE_ROW_WAY &&
          choice.won[GYRE_WON_WAY]->algorithm == choice.algorithm);
    CHECK_OK(choose(&host, "", "", GYRE_COLL_ALL_TO_ALL, &choice));
    CHECK(choice.won[GYRE_WON_WAY] != NULL &&
          strcmp(choice.won[GYRE_WON_WAY]->file, "host.rows") == 0 &&
          choice.won[GYRE_WON_WAY]->algorithm == choice.algorithm);
    CHECK_OK(choose(&host, "tree", "", GYRE_COLL_ALL_REDUCE, &choice));
    CHECK(choice.won[GYRE_WON_WAY] == NULL);
    CHECK_OK(choose(&predicted, "", "", GYRE_COLL_ALL_REDUCE, &choice));
    CHECK(choice.won[GYRE_WON_WAY] == NULL);
}

static bool needs_no_scratch(const struct gyre_algorithm *algorithm, struct gyre_shape shape)
{
    bool has_scratch = false;
    const int n_variants = gyre_algorithm_variants(algorithm, &shape);
    for (int v = 0; v < n_variants; v++)
        for (int rank = 0; rank < shape.n_ranks; rank++) {
            struct gyre_program *program;
            shape.variant = (uint16_t)v;
            CHECK_OK(gyre_algorithm_emit(algorithm, &shape, rank, &program));
            has_scratch = has_scratch || program->n_scratch > 0;
            gyre_program_free(program);
        }
    return !has_scratch;
}

TEST_CASE("algorithms that keep sums in scratch say so")
{
    static struct gyre_grouping grouping;
    for (uint16_t n = 2; gyre_cuda_has_small_areas(n); n++)
        for (uint16_t n_hosts = 1; n_hosts <= n; n_hosts++) {
            grouping.n_hosts = n_hosts;
            for (uint16_t rank = 0; rank < n; rank++)
                grouping.host_of[rank] = (uint16_t)(rank * n_hosts / n);
            for (int a = 0; gyre_algorithms[a] != NULL; a++)
                for (int c = 0; c < GYRE_COLL_SEND_RECV; c++) {
                    const enum gyre_collective coll = (enum gyre_collective)c;
                    const struct gyre_algorithm *algorithm = gyre_algorithms[a];
                    const struct gyre_shape shape = {
                        .coll = coll, .n_ranks = n, .grouping = &grouping};
                    const struct gyre_ability can = ability_of(algorithm, c, n);
                    if (!gyre_algorithm_has(algorithm, coll) || can.keeps_sums || can.ranges)
                        continue;
                    CHECK_MSG(needs_no_scratch(algorithm, shape), "%s %s of %u ranks on %u hosts",
                              algorithm->name, gyre_collectives[c].name, n, n_hosts);
                }
        }
}

TEST_CASE("tiles on GPUs fit their scratch areas")
{
    for (uint32_t n = 4; n <= 16; n += 12) {
        struct gyre_choice choice = {0};
        struct gyre_tuner_facts facts = gpu_facts(n);
        facts.spec.slot_bytes[GYRE_PROTO_SIMPLE] = 65536;
        CHECK_OK(choose(&facts, "doubling", "simple", GYRE_COLL_ALL_REDUCE, &choice));
        CHECK_MSG((choice.tile_bytes <= GYRE_CUDA_SMALL_AREA_BYTES) == (n == 4),
                  "%u ranks: tiles of %u bytes", n, choice.tile_bytes);
    }
}

TEST_CASE("on GPUs range steps are taken by name only")
{
    for (int by_prediction = 0; by_prediction < 2; by_prediction++) {
        struct gyre_tuner_facts gpus = gpu_facts(4);
        struct gyre_tuner_facts host = host_facts(4, by_prediction ? &gyre_cost_host : NULL);
        gpus.cost = by_prediction ? &gyre_cost_h200 : NULL;
        for (int a = 0; gyre_algorithms[a] != NULL; a++)
            for (int c = 0; c < GYRE_N_COLLECTIVES; c++) {
                const enum gyre_collective coll = (enum gyre_collective)c;
                const struct gyre_algorithm *algorithm = gyre_algorithms[a];
                struct gyre_choice choice = {0};
                if (!ability_of(algorithm, c, 4).ranges)
                    continue;
                CHECK_OK(choose(&gpus, algorithm->name, "", coll, &choice));
                CHECK(choice.algorithm == algorithm);
                CHECK_OK(choose(&gpus, "", "", coll, &choice));
                CHECK(!ability_of(choice.algorithm, c, 4).ranges);
                CHECK_OK(choose(&host, algorithm->name, "", coll, &choice));
                CHECK(choice.algorithm == algorithm);
            }
        CHECK_BAD_USAGE(choose(&gpus, "halving", "", GYRE_COLL_BROADCAST, &(struct gyre_choice){0}),
                        "can do broadcast");
    }
}

TEST_CASE("the tables say who moves ranges")
{
    for (int a = 0; gyre_algorithms[a] != NULL; a++)
        for (int c = 0; c < GYRE_N_COLLECTIVES; c++) {
            const struct gyre_shape shape = {.coll = (enum gyre_collective)c,
                                             .n_ranks =
                                                 (uint16_t)(c == GYRE_COLL_SEND_RECV ? 2 : 12)};
            struct gyre_program *program = NULL;
            if (!gyre_algorithm_has(gyre_algorithms[a], shape.coll))
                continue;
            CHECK_OK(gyre_algorithm_emit(gyre_algorithms[a], &shape, 0, &program));
            CHECK(program != NULL &&
                  (program->max_range > 1) == ability_of(gyre_algorithms[a], c, 12).ranges);
            gyre_program_free(program);
        }
}

TEST_CASE("words that mean nothing are errors")
{
    struct gyre_filter filter;
    CHECK_BAD_ARGUMENT(gyre_filter_parse("rings", "", "", &filter),
                       "GYRE_ALGO: \"rings\" is none of: ring tree direct");
    CHECK_BAD_ARGUMENT(gyre_filter_parse("", "ll64", "", &filter), "GYRE_PROTO");
    CHECK_BAD_ARGUMENT(gyre_filter_parse("all_sum:ring", "", "", &filter), "not a collective");
    CHECK_BAD_ARGUMENT(gyre_filter_parse("^", "", "", &filter), "names nothing");
}

/* NCCL_ALGO=text, and the names that are NCCL's only. */
static void nccl_algo(const char *text, struct gyre_params *params, struct gyre_filter *filter_out)
{
    char variable[200];
    snprintf(variable, sizeof(variable), "NCCL_ALGO=%s", text);
    char *environment[] = {variable, NULL};
    CHECK_OK(gyre_params_from(environment, params));
    CHECK_OK(gyre_filter_of(params, filter_out));
}

static bool notes(const struct gyre_filter *filter, const char *names)
{
    char text[128];
    gyre_filter_list_nccl_only(filter, text, sizeof(text));
    return strcmp(text, names) == 0;
}

static bool allows(const struct gyre_filter *filter, enum gyre_collective coll, const char *name)
{
    return gyre_filter_allows(filter, coll, gyre_algorithm_find(name));
}

TEST_CASE("NCCL_ALGO takes what is known and notes the rest")
{
    static struct gyre_params params;
    struct gyre_filter filter;
    nccl_algo("Ring,NVLS,CollnetDirect,nvls", &params, &filter);
    CHECK(notes(&filter, "CollnetDirect,NVLS"));
    CHECK(filter.is_forced[GYRE_COLL_ALL_REDUCE]);
    CHECK(allows(&filter, GYRE_COLL_ALL_REDUCE, "ring"));
    CHECK(!allows(&filter, GYRE_COLL_ALL_REDUCE, "tree"));
    CHECK(allows(&filter, GYRE_COLL_ALL_TO_ALL, "direct")); /* NCCL_ALGO does not mean it */

    nccl_algo("NVLS", &params, &filter);
    CHECK(notes(&filter, "NVLS") && !filter.is_forced[GYRE_COLL_ALL_REDUCE]);
    CHECK(allows(&filter, GYRE_COLL_ALL_REDUCE, "ring"));
    CHECK(allows(&filter, GYRE_COLL_ALL_REDUCE, "twoshot"));

    nccl_algo("^PAT,Tree", &params, &filter);
    CHECK(!allows(&filter, GYRE_COLL_ALL_REDUCE, "tree"));
    CHECK(allows(&filter, GYRE_COLL_ALL_REDUCE, "ring"));

    nccl_algo("allreduce:tree,collnetchain;reducescatter:pat", &params, &filter);
    CHECK(allows(&filter, GYRE_COLL_ALL_REDUCE, "tree"));
    CHECK(!allows(&filter, GYRE_COLL_ALL_REDUCE, "ring"));
    CHECK(allows(&filter, GYRE_COLL_REDUCE_SCATTER, "ring"));
    CHECK(allows(&filter, GYRE_COLL_BROADCAST, "ring"));
}

TEST_CASE("a misspelt NCCL_ALGO is ignored, and NCCL's names in GYRE_ALGO are errors")
{
    static struct gyre_params params;
    struct gyre_filter filter;
    char *misspelt[] = {"NCCL_ALGO=Rnig,NVLS", NULL};
    char *own[] = {"GYRE_ALGO=ring,nvls", NULL};
    CHECK_OK(gyre_params_from(misspelt, &params));
    CHECK_OK(gyre_filter_of(&params, &filter));
    CHECK(allows(&filter, GYRE_COLL_ALL_REDUCE, "ring") &&
          allows(&filter, GYRE_COLL_ALL_REDUCE, "tree"));
    CHECK_HAS(gyre_cause(), "NCCL_ALGO: \"Rnig\" is none of"); /* what is warned of */
    CHECK_OK(gyre_params_from(own, &params));
    CHECK_BAD_ARGUMENT(gyre_filter_of(&params, &filter), "GYRE_ALGO: \"nvls\" is none of");
}

static double best_ns(const struct gyre_tuner_facts *facts, const char *name,
                      enum gyre_collective coll, uint64_t n_bytes)
{
    const struct gyre_choice choice = choose_by(facts, name, "", "", coll, n_bytes);
    double time_ns = -1;
    CHECK_OK(gyre_tuner_predict(facts, facts->cost, coll, &choice, n_bytes, &time_ns));
    return time_ns;
}

TEST_CASE("no algorithm is predicted to be faster than the chosen one")
{
    for (uint32_t n = 2; n <= 9; n++)
        for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++)
            for (uint64_t n_bytes = 64; n_bytes <= 16 << 20 && coll != GYRE_COLL_SEND_RECV;
                 n_bytes *= 64) {
                const struct gyre_tuner_facts facts = host_facts(n, &gyre_cost_host);
                const double chosen_ns = best_ns(&facts, "", (enum gyre_collective)coll, n_bytes);
                for (int a = 0; gyre_algorithms[a] != NULL; a++) {
                    if (!suits_hosts(gyre_algorithms[a], coll, facts.n_hosts))
                        continue;
                    const double other_ns = best_ns(&facts, gyre_algorithms[a]->name,
                                                    (enum gyre_collective)coll, n_bytes);
                    CHECK_MSG(chosen_ns <= other_ns, "%s, %u ranks, %llu bytes: %g ns, by %s %g",
                              gyre_collectives[coll].name, n, (unsigned long long)n_bytes,
                              chosen_ns, gyre_algorithms[a]->name, other_ns);
                }
            }
}

TEST_CASE("choices fit the communicator")
{
    for (uint32_t n = 1; n <= 9; n++)
        for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++)
            for (uint64_t n_bytes = 0; n_bytes <= 16 << 20; n_bytes = n_bytes * 64 + 1) {
                const struct gyre_tuner_facts facts = host_facts(n, &gyre_cost_host);
                const struct gyre_choice choice =
                    choose_by(&facts, "", "", "", (enum gyre_collective)coll, n_bytes);
                CHECK(gyre_algorithm_has(choice.algorithm, (enum gyre_collective)coll));
                CHECK(choice.proto == GYRE_PROTO_SIMPLE);
                CHECK(choice.n_channels >= 1 && choice.n_channels <= facts.max_channels);
                CHECK(choice.tile_bytes >= 16 && choice.tile_bytes % 16 == 0 &&
                      choice.tile_bytes <= facts.spec.slot_bytes[GYRE_PROTO_SIMPLE]);
                const struct gyre_choice again =
                    choose_by(&facts, "", "", "", (enum gyre_collective)coll, n_bytes);
                CHECK(memcmp(&choice, &again, sizeof(choice)) == 0);
            }
}

TEST_CASE("choices on GPUs fit the communicator")
{
    static const char *const protos[] = {"", "simple", "ll", "ll128", "", "lamport"};
    for (uint32_t n = 2; n <= 9; n++)
        for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++)
            for (int p = 0; p < 12; p++)
                for (uint64_t n_bytes = 0; n_bytes <= 4ULL << 30; n_bytes = n_bytes * 4 + 2) {
                    struct gyre_tuner_facts facts = gpu_facts(n);
                    facts.in_window = p >= 6 && coll != GYRE_COLL_SEND_RECV;
                    facts.has_large_pages = facts.in_window;
                    facts.has_lamport = p % 6 >= 4;
                    if (facts.has_lamport && !gyre_collectives[coll].reduces)
                        continue;
                    const struct gyre_choice choice = choose_by(
                        &facts, "", protos[p % 6], "", (enum gyre_collective)coll, n_bytes);
                    const uint32_t most = gyre_tuner_payload_bytes(
                        &facts, choice.algorithm, (enum gyre_collective)coll, choice.proto,
                        choice.path == GYRE_PATH_PLACED);
                    CHECK_MSG(
                        choice.tile_bytes >= 16 && choice.tile_bytes % 16 == 0 &&
                            (choice.path == GYRE_PATH_COPY_ENGINE || choice.tile_bytes <= most),
                        "%s of %u ranks, %llu bytes: tiles of %u", gyre_collectives[coll].name, n,
                        (unsigned long long)n_bytes, choice.tile_bytes);
                    CHECK(choice.n_channels >= 1 && choice.n_channels <= facts.max_channels);
                    CHECK(choice.path != GYRE_PATH_COPY_ENGINE || facts.in_window);
                }
}

static bool is_same_choice(const struct gyre_choice *a, const struct gyre_choice *b)
{
    return a->algorithm == b->algorithm && a->proto == b->proto && a->n_channels == b->n_channels &&
           a->tile_bytes == b->tile_bytes;
}

TEST_CASE("lamport is for sums of floating point")
{
    static const struct {
        const char *algos, *protos;
        enum gyre_proto proto;
        const struct gyre_algorithm *algorithm; /* NULL = any */
    } rows[] = {{"", "", GYRE_PROTO_LAMPORT, NULL},
                {"ring", "lamport", GYRE_PROTO_LAMPORT, &gyre_algorithm_ring},
                {"twoshot", "", GYRE_PROTO_LAMPORT, &gyre_algorithm_twoshot},
                {"", "^ll128", GYRE_PROTO_LL, NULL}, /* its slots */
                {"", "^ll,ll128", GYRE_PROTO_SIMPLE, NULL}};
    struct gyre_tuner_facts facts = gpu_facts(4);
    struct gyre_choice choice;
    CHECK_BAD_USAGE(choose(&facts, "", "lamport", GYRE_COLL_ALL_REDUCE, &choice),
                    "lamport is for sums of floating point, of 16 bits at least");
    CHECK_OK(choose(&facts, "", "", GYRE_COLL_ALL_REDUCE, &choice));
    CHECK(choice.proto == GYRE_PROTO_LL);
    facts.has_lamport = true;
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(rows); i++) {
        CHECK_OK(choose(&facts, rows[i].algos, rows[i].protos, GYRE_COLL_ALL_REDUCE, &choice));
        CHECK_MSG(choice.proto == rows[i].proto &&
                      (rows[i].algorithm == NULL || choice.algorithm == rows[i].algorithm),
                  "row %zu", i);
    }
}

static bool is_fused(struct gyre_tuner_facts facts, const char *algos, const char *protos,
                     const char *paths, enum gyre_collective coll)
{
    const uint64_t n_bytes = coll == GYRE_COLL_ALL_GATHER ? (12 << 20) / facts.n_ranks : 12 << 20;
    struct gyre_filter filter;
    struct gyre_choice choice, chosen;
    facts.in_window = true;
    CHECK_OK(gyre_filter_parse(algos, protos, paths, &filter));
    CHECK_OK(gyre_tuner_choose(&facts, &filter, coll, n_bytes, &chosen));
    const bool is_one = gyre_tuner_choose_fused(&facts, &filter, coll, n_bytes, &choice);
    CHECK(!is_one || is_same_choice(&choice, &chosen));
    return is_one;
}

TEST_CASE("fused kernels of simple can be forbidden")
{
    static const enum gyre_collective colls[] = {GYRE_COLL_ALL_REDUCE, GYRE_COLL_ALL_GATHER};
    struct gyre_tuner_facts facts = gpu_facts(4);
    facts.has_lamport = facts.is_unscaled = true;
    for (int i = 0; i < 2; i++) {
        const char *own = i == 0 ? "twoshot" : "direct";
        struct gyre_tuner_facts few = facts, proxied = facts, far = facts, many = gpu_facts(9);
        struct gyre_tuner_facts host = host_facts(4, NULL);
        few.max_channels = 47;
        proxied.is_proxied = true;
        far.is_ll128_safe = false;
        many.has_lamport = many.is_unscaled = true;
        host.has_lamport = host.is_unscaled = host.is_ll128_safe = true;
        host.max_channels = 64;
        CHECK(is_fused(facts, own, "", "", colls[i]));
        CHECK(is_fused(facts, own, "simple", "placed", colls[i]));
        CHECK(is_fused(facts, own, "", "staged", colls[i]) == (i == 0));
        CHECK(is_fused(facts, "", "", "", colls[i]));
        CHECK(!is_fused(facts, "ring", "", "", colls[i]));
        CHECK(!is_fused(facts, "^direct,twoshot", "", "", colls[i]));
        CHECK(!is_fused(facts, own, "ll128", "", colls[i]));
        CHECK(!is_fused(facts, own, "^simple", "", colls[i]));
        const struct gyre_tuner_facts *const others[] = {&few, &proxied, &far, &many, &host};
        for (size_t k = 0; k < GYRE_ARRAY_LENGTH(others); k++)
            CHECK_MSG(!is_fused(*others[k], own, "", "", colls[i]), "%zu", k);
    }
}

static struct gyre_choice choice_by_path(uint32_t n_ranks, const char *paths,
                                         enum gyre_collective coll, uint64_t n_bytes)
{
    struct gyre_tuner_facts facts = gpu_facts(n_ranks);
    facts.in_window = facts.has_large_pages = true;
    return choose_by(&facts, "", "", paths, coll, n_bytes);
}

TEST_CASE("paths are chosen and forced")
{
    static const struct {
        const char *paths;
        uint32_t n_ranks;
        enum gyre_collective coll;
        uint64_t n_bytes;
        bool is_copied;
    } rows[] = {{"", 4, GYRE_COLL_ALL_REDUCE, 1ULL << 30, true},
                {"", 4, GYRE_COLL_ALL_GATHER, 1ULL << 28, true},
                {"", 4, GYRE_COLL_ALL_TO_ALL, 1ULL << 28, true},
                {"", 4, GYRE_COLL_ALL_REDUCE, 1 << 20, false},
                {"", 4, GYRE_COLL_REDUCE_SCATTER, 1ULL << 30, false},
                {"^copy_engine", 4, GYRE_COLL_ALL_REDUCE, 1ULL << 30, false},
                {"^placed", 4, GYRE_COLL_ALL_REDUCE, 1ULL << 30, true},
                {"copy_engine", 2, GYRE_COLL_BROADCAST, 64, true}};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(rows); i++)
        CHECK_MSG(
            (choice_by_path(rows[i].n_ranks, rows[i].paths, rows[i].coll, rows[i].n_bytes).path ==
             GYRE_PATH_COPY_ENGINE) == rows[i].is_copied,
            "row %zu", i);
    const struct gyre_choice gathered = choice_by_path(4, "", GYRE_COLL_ALL_GATHER, 4 << 20);
    CHECK(gathered.algorithm == &gyre_algorithm_direct && gathered.proto == GYRE_PROTO_SIMPLE &&
          gathered.n_channels == 64);
    CHECK(choice_by_path(4, "^placed", GYRE_COLL_ALL_GATHER, 4 << 20).algorithm !=
          &gyre_algorithm_direct);
    struct gyre_tuner_facts facts = gpu_facts(4);
    struct gyre_filter no_kernel;
    facts.in_window = true;
    struct gyre_choice choice; /* small pages: only where nothing else is allowed */
    CHECK_OK(gyre_filter_parse("", "", "", &no_kernel));
    CHECK_OK(gyre_tuner_choose(&facts, &no_kernel, GYRE_COLL_ALL_GATHER, 1ULL << 30, &choice));
    CHECK(choice.path != GYRE_PATH_COPY_ENGINE);
    CHECK_OK(gyre_filter_parse("", "", "^placed", &no_kernel));
    CHECK(!gyre_tuner_may_place(&facts, &no_kernel, GYRE_COLL_ALL_REDUCE, GYRE_PROTO_SIMPLE, 0));
    CHECK_OK(gyre_tuner_choose(&facts, &no_kernel, GYRE_COLL_ALL_REDUCE, 1 << 20, &choice));
    CHECK(choice.path == GYRE_PATH_STAGED);
    CHECK_OK(gyre_tuner_check_path(&facts, &no_kernel, GYRE_COLL_ALL_REDUCE, &choice));
    const struct gyre_choice placed = choice_by_path(4, "placed", GYRE_COLL_ALL_REDUCE, 64);
    CHECK(placed.proto == GYRE_PROTO_SIMPLE && placed.path == GYRE_PATH_PLACED &&
          ability_of(placed.algorithm, GYRE_COLL_ALL_REDUCE, 4).places);
    struct gyre_filter filter;
    CHECK_BAD_ARGUMENT(gyre_filter_parse("", "", "copied", &filter),
                       "GYRE_PATH: \"copied\" is none of: staged placed copy_engine");
}

TEST_CASE("the constants decide")
{
    struct gyre_cost cost = {0};
    cost.wire_efficiency[GYRE_PROTO_SIMPLE] = 1;
    cost.hop_ns[GYRE_PROTO_SIMPLE][GYRE_LINK_HOST] = 1000;
    struct gyre_tuner_facts facts = host_facts(8, &cost);
    struct gyre_choice choice;
    CHECK_OK(choose(&facts, "", "", GYRE_COLL_ALL_REDUCE, &choice));
    CHECK(choice.algorithm == &gyre_algorithm_direct); /* fewest hops */
    CHECK(choice.n_channels == 1);                     /* no gain in more */
    cost.hop_ns[GYRE_PROTO_SIMPLE][GYRE_LINK_HOST] = 0;
    cost.egress_bytes_per_ns[GYRE_LINK_HOST] = 1;
    CHECK_OK(choose(&facts, "", "", GYRE_COLL_ALL_REDUCE, &choice));
    CHECK(choice.algorithm != &gyre_algorithm_direct); /* fewest bytes */
    cost.egress_bytes_per_ns[GYRE_LINK_HOST] = 0;
    cost.worker_send_bytes_per_ns[GYRE_LINK_HOST] = 1;
    CHECK_OK(choose(&facts, "ring", "", GYRE_COLL_ALL_REDUCE, &choice));
    CHECK(choice.n_channels == facts.max_channels); /* each worker adds its rate */
}

TEST_CASE("size classes are fine and ordered")
{
    uint64_t before = 0;
    for (uint64_t n_bytes = 0; n_bytes < 1ULL << 40; n_bytes = n_bytes * 33 / 32 + 1) {
        const uint64_t class_bytes = gyre_tuner_size_class(n_bytes);
        CHECK(class_bytes >= n_bytes && class_bytes >= before && class_bytes >= 256);
        CHECK(n_bytes <= 256 || class_bytes < n_bytes + n_bytes / 4 + 1);
        CHECK(gyre_tuner_size_class(class_bytes) == class_bytes);
        before = class_bytes;
    }
    CHECK(gyre_tuner_size_class(512) == 512 && gyre_tuner_size_class(513) == 640);
}

/* Of a file with this text, whose name the cause has. */
static gyre_status load(const char *text, struct gyre_tuning *tuning_out)
{
    const char *path = test_put(text, "constants");
    const gyre_status status = gyre_tuning_load(path, tuning_out);
    CHECK(status == GYRE_SUCCESS || strstr(gyre_cause(), path) != NULL);
    return status;
}

TEST_CASE("a file of constants counts, not its words")
{
    struct gyre_tuning tuning, other, third;
    CHECK_OK(load("launch_ns = 12.5\n", &tuning));
    CHECK_OK(load("# somewhere else\n\nlaunch_ns=1.25e1", &other));
    CHECK(tuning.is_set && tuning.hash != 0 && tuning.hash == other.hash);
    CHECK(fabs(tuning.cost.launch_ns - 12.5) < 1e-12);
    CHECK(fabs(tuning.cost.worker_read_bytes_per_ns - gyre_cost_host.worker_read_bytes_per_ns) <
          1e-12);
    CHECK_OK(load("launch_ns = 12.500000001\n", &third));
    CHECK(third.hash != tuning.hash);
}

static struct gyre_choice choose_tuned(const struct gyre_tuning *tuning, const char *algos,
                                       uint64_t n_bytes)
{
    struct gyre_tuner_facts facts = host_facts(4, tuning->is_set ? &tuning->cost : NULL);
    facts.user_rows = tuning->rows;
    return choose_by(&facts, algos, "", "", GYRE_COLL_ALL_REDUCE, n_bytes);
}

TEST_CASE("rows of the user come first")
{
    static const char rows[] = "measured here, 2026-11\n"
                               "way all_reduce bytes=1000..2000 -> tree simple\n"
                               "channels all_reduce bytes>=1M -> 2\n";
    char text[512];
    struct gyre_tuning alone, both, other;
    CHECK_OK(load(rows, &alone));
    CHECK(!alone.is_set && alone.rows != NULL && alone.rows->n_rows == 2);
    snprintf(text, sizeof(text), "# tuned\n%s\nlaunch_ns = 12.5\n", rows);
    CHECK_OK(load(text, &both));
    CHECK(both.is_set && both.rows->n_rows == 2 && both.hash != alone.hash);
    CHECK(fabs(both.cost.launch_ns - 12.5) < 1e-12);
    CHECK_OK(load("measured elsewhere, 2026-12\n\n"
                  "  way all_reduce  bytes=1000..2000 -> tree simple\n"
                  "channels all_reduce bytes>=1024K -> 2\n",
                  &other));
    for (int i = 0; i < 2; i++) /* ranks compare these */
        CHECK(gyre_row_hash(&other.rows->rows[i]) == gyre_row_hash(&alone.rows->rows[i]));

    /* 999 B without the user's row, 1000 B with it. */
    struct gyre_choice choice = choose_tuned(&alone, "", 999);
    CHECK(choice.algorithm == &gyre_algorithm_direct);
    CHECK(strcmp(choice.won[GYRE_WON_WAY]->file, "host.rows") == 0);
    CHECK(choose_tuned(&both, "", 999).won[GYRE_WON_WAY] == NULL);
    for (int i = 0; i < 2; i++) {
        choice = choose_tuned(i == 0 ? &alone : &both, "", 1000);
        CHECK(choice.algorithm == &gyre_algorithm_tree);
        CHECK(choice.won[GYRE_WON_WAY] == &(i == 0 ? &alone : &both)->rows->rows[0]);
        CHECK(choice.won[GYRE_WON_WAY]->line == (i == 0 ? 2 : 3));
        CHECK(choose_tuned(i == 0 ? &alone : &both, "ring", 1000).algorithm ==
              &gyre_algorithm_ring);
    }
    choice = choose_tuned(&alone, "", 1 << 20);
    CHECK(choice.n_channels == 2 && choice.won[GYRE_WON_CHANNELS] == &alone.rows->rows[1]);
    CHECK(choose_tuned(&alone, "", (1 << 20) - 1).n_channels == 1);
    gyre_tuning_free(&alone);
    gyre_tuning_free(&both);
    gyre_tuning_free(&other);
}

static bool can_do_pow2(const struct gyre_shape *shape, struct gyre_ability *can_out,
                        const char **why_not)
{
    *can_out = (struct gyre_ability){.flow = GYRE_FLOW_RELAY};
    *why_not = "it needs 2^k ranks";
    return (shape->n_ranks & (shape->n_ranks - 1)) == 0;
}

TEST_CASE("an algorithm for some shapes leaves the others to the next row")
{
    static struct gyre_algorithm pow2;
    static struct gyre_why why;
    struct gyre_tuning tuning;
    struct gyre_filter any;
    int n = 0;
    pow2 = gyre_algorithm_doubling;
    pow2.name = "pow2";
    pow2.can_do = can_do_pow2;
    pow2.from = "test";
    while (gyre_algorithms[n] != NULL)
        n++;
    CHECK_BAD_ARGUMENT(gyre_algorithms_add(&gyre_algorithm_ring),
                       "ring: there is one of this name");
    CHECK_OK(gyre_algorithms_add(&pow2));
    CHECK_OK(gyre_filter_parse("", "", "", &any));
    CHECK_OK(load("measured here\nway all_reduce -> pow2 simple\nway all_reduce -> tree simple\n",
                  &tuning));
    for (uint32_t n_ranks = 3; n_ranks <= 4; n_ranks++)
        for (int by_prediction = 0; by_prediction < 2; by_prediction++) {
            struct gyre_tuner_facts facts =
                host_facts(n_ranks, by_prediction == 1 ? &gyre_cost_host : NULL);
            struct gyre_choice choice = {0};
            /* Without a row or its name nothing takes it. */
            CHECK_OK(choose(&facts, "", "", GYRE_COLL_ALL_REDUCE, &choice));
            CHECK(choice.algorithm != &pow2);
            why.n = 0;
            facts.why = &why;
            facts.user_rows = tuning.rows;
            CHECK_OK(choose(&facts, "", "", GYRE_COLL_ALL_REDUCE, &choice));
            CHECK(choice.algorithm == (n_ranks == 4 ? &pow2 : &gyre_algorithm_tree));
            CHECK(choice.won[GYRE_WON_WAY] == &tuning.rows->rows[n_ranks == 4 ? 0 : 1]);
            CHECK(n_ranks == 4 || (why.n > 0 && why.lost[0].row == &tuning.rows->rows[0] &&
                                   strcmp(why.lost[0].reason, "it needs 2^k ranks") == 0));
            if (n_ranks == 4)
                CHECK_OK(choose(&facts, "pow2", "", GYRE_COLL_ALL_REDUCE, &choice));
            else
                CHECK_FAILS(choose(&facts, "pow2", "", GYRE_COLL_ALL_REDUCE, &choice),
                            GYRE_ERROR_UNSUPPORTED,
                            "algorithm pow2 cannot do all_reduce here: it needs 2^k ranks");
            CHECK_OK(choose(&facts, "pow2,ring", "", GYRE_COLL_ALL_REDUCE, &choice));
        }
    gyre_tuning_free(&tuning);
    gyre_algorithms_drop(n);
}

TEST_CASE("bad files are named")
{
    char *text = malloc(20000);
    struct gyre_tuning tuning;
    CHECK_FAILS(gyre_tuning_load("/nonexistent/tuning", &tuning), GYRE_ERROR_SYSTEM,
                "/nonexistent/tuning: No such file");
    CHECK_BAD_ARGUMENT(gyre_tuning_load("/", &tuning), "/: ");
    CHECK_BAD_ARGUMENT(load("launch_ns = 1\nlunch_ns = 2\n", &tuning), "line 2");
    CHECK_BAD_ARGUMENT(
        load("launch_ns = 1\nmeasured here\nway all_reduce fast -> ring simple\n", &tuning),
        ":3: \"fast\"");
    memset(text, '\n', 19999);
    text[19999] = '\0';
    CHECK_BAD_ARGUMENT(load(text, &tuning), "more than");
    free(text);
}

#define KIB ((uint64_t)1024)
#define MIB ((uint64_t)1024 * 1024)

static struct gyre_grouping two_hosts = {.n_hosts = 2, .host_of = {0, 1}};

TEST_CASE("two ranks on two hosts talk directly")
{
    static const enum gyre_collective colls[] = {GYRE_COLL_ALL_REDUCE, GYRE_COLL_ALL_GATHER,
                                                 GYRE_COLL_REDUCE_SCATTER};
    struct gyre_tuner_facts facts = {.device_kind = GYRE_DEVICE_CUDA,
                                     .n_ranks = 2,
                                     .n_hosts = 2,
                                     .is_proxied = true,
                                     .is_tcp = true,
                                     .min_channels = 1,
                                     .grouping = &two_hosts,
                                     .cost = &gyre_cost_h200};
    struct gyre_peer_counts peers;
    CHECK_OK(gyre_near_peers_count(&two_hosts, 2, &peers));
    facts.spec = gyre_tuner_fifo_spec_across(GYRE_DEVICE_CUDA, &peers, true, false, 0, UINT32_MAX);
    facts.max_channels = facts.spec.n_fifos;
    for (int i = 0; i < 6; i++) {
        facts.is_tcp = i < 3;
        for (uint64_t n_bytes = KIB; n_bytes <= 512 * MIB; n_bytes *= 8)
            CHECK(choose_by(&facts, "", "", "", colls[i % 3], n_bytes).algorithm ==
                  &gyre_algorithm_direct);
    }
    CHECK(choose_by(&facts, "^direct", "", "", GYRE_COLL_ALL_REDUCE, 16 * MIB).algorithm !=
          &gyre_algorithm_direct);
}

static struct gyre_choice choose_of_four(enum gyre_collective coll, double nic_bytes_per_ns,
                                         bool is_tcp)
{
    static const struct gyre_grouping grouping = {
        .n_hosts = 2, .n_nics = 2, .host_of = {0, 0, 1, 1}};
    struct gyre_cost cost = gyre_cost_host;
    struct gyre_peer_counts peers;
    CHECK_OK(gyre_near_peers_count(&grouping, 4, &peers));
    cost.nic_bytes_per_ns = nic_bytes_per_ns;
    const struct gyre_fifo_spec spec =
        gyre_tuner_fifo_spec_across(GYRE_DEVICE_HOST, &peers, false, true, 0, UINT32_MAX);
    const struct gyre_tuner_facts facts = {.device_kind = GYRE_DEVICE_HOST,
                                           .n_ranks = 4,
                                           .n_hosts = 2,
                                           .is_proxied = true,
                                           .is_tcp = is_tcp,
                                           .is_direct_inside = true,
                                           .min_channels = 1,
                                           .max_channels = spec.n_fifos,
                                           .spec = spec,
                                           .grouping = &grouping,
                                           .cost = &cost};
    return choose_by(&facts, "", "", "", coll, MIB);
}

TEST_CASE("a tile takes at most a millisecond over slow TCP")
{
    static const enum gyre_collective colls[] = {GYRE_COLL_ALL_REDUCE, GYRE_COLL_REDUCE_SCATTER,
                                                 GYRE_COLL_ALL_GATHER, GYRE_COLL_BROADCAST};
    for (int i = 0; i < 4; i++) {
        CHECK(choose_of_four(colls[i], 0.025, true).tile_bytes <= 25000);
        /* No shorter tile is tried. */
        CHECK(choose_of_four(colls[i], 0.0001, true).tile_bytes >= 4096);
        /* A slot of 128 KiB takes less than a millisecond at 10 Gbit/s. */
        CHECK(choose_of_four(colls[i], 1.15, true).tile_bytes ==
              choose_of_four(colls[i], 1.15, false).tile_bytes);
    }
    CHECK(choose_of_four(GYRE_COLL_ALL_REDUCE, 0.025, false).tile_bytes > 25000);
}

static struct gyre_grouping four_hosts = {
    .n_hosts = 4, .n_nics = 2, .host_of = {0, 0, 1, 1, 2, 2, 3, 3}};

static uint32_t count_sending_hosts(const struct gyre_algorithm *algorithm,
                                    enum gyre_collective coll)
{
    const struct gyre_shape shape = {.coll = coll, .n_ranks = 8, .grouping = &four_hosts};
    struct gyre_program *program;
    uint32_t hosts = 0;
    CHECK_OK(gyre_algorithm_emit(algorithm, &shape, 0, &program));
    for (uint32_t i = 0; i < program->n_connections; i++)
        if (program->connections[i].is_send == 0)
            hosts |= 1U << four_hosts.host_of[program->connections[i].peer];
    gyre_program_free(program);
    return (uint32_t)__builtin_popcount(hosts & ~1U);
}

TEST_CASE("two-level algorithms that fan in say so")
{
    static const enum gyre_collective colls[] = {GYRE_COLL_ALL_GATHER, GYRE_COLL_REDUCE_SCATTER};
    for (int a = 0; gyre_algorithms[a] != NULL; a++)
        for (int i = 0; i < 2; i++) {
            const struct gyre_algorithm *algorithm = gyre_algorithms[a];
            const struct gyre_ability can = ability_of(algorithm, (int)colls[i], 4);
            if (can.two_level)
                CHECK_MSG((count_sending_hosts(algorithm, colls[i]) > 1) == can.fans_in, "%s: %s",
                          algorithm->name, gyre_collectives[colls[i]].name);
        }
}
