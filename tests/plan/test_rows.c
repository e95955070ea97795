/* SPDX-License-Identifier: Apache-2.0 */
#include "core/foundation/base/util.h"
#include "core/engine/plan/tuner/rows.h"
#include "tests/support/check.h"

#define MEASURED "measured here, 2026-11\n"

static struct gyre_rows rows;

static const struct gyre_row *parse_one(const char *text)
{
    CHECK_OK(gyre_rows_parse(text, "test.rows", &rows));
    CHECK(rows.n_rows == 1);
    return &rows.rows[0];
}

TEST_CASE("shipped rows parse, and say where they were measured")
{
    static const struct {
        const char *name;
        const struct gyre_rows_embedded *text;
        size_t n_rows;
    } files[GYRE_N_ROW_FILES] = {{"h200.rows", &gyre_rows_h200_rows, 129},
                                 {"gpu_host_memory.rows", &gyre_rows_gpu_host_memory_rows, 70},
                                 {"host.rows", &gyre_rows_host_rows, 23},
                                 {"hosts.rows", &gyre_rows_hosts_rows, 20}};
    for (int f = 0; f < GYRE_N_ROW_FILES; f++) {
        CHECK_OK(gyre_rows_parse((const char *)files[f].text->bytes, files[f].name, &rows));
        CHECK_MSG(rows.n_rows == files[f].n_rows, "%s has %zu rows", files[f].name, rows.n_rows);
        CHECK(gyre_rows_of((enum gyre_row_file)f)->n_rows == rows.n_rows);
        for (size_t i = 0; i < rows.n_rows; i++) {
            const size_t n = strcspn(rows.rows[i].measured, "\n");
            CHECK_MSG(n > 10, "%s:%u: measured %.*s", rows.file, rows.rows[i].line, (int)n,
                      rows.rows[i].measured);
            for (size_t k = 0; k < i; k++)
                CHECK_MSG(gyre_row_hash(&rows.rows[i]) != gyre_row_hash(&rows.rows[k]),
                          "%s:%u is line %u again", rows.file, rows.rows[i].line,
                          rows.rows[k].line);
        }
    }
}

TEST_CASE("words that mean nothing are refused")
{
    static const struct {
        const char *line, *words;
    } wrong[] = {
        {"wya all_reduce -> ring simple",
         "test.rows:2: \"wya\" is none of: copies fused way line path"},
        {"way all_sum -> ring simple", "\"all_sum\" is no collective"},
        {"way all_reduce nvlnk -> ring simple", "\"nvlnk\" is none of: gpus nvlink proxied"},
        {"way all_reduce bytes<=1X -> ring simple", "\"bytes<=1X\": expected a name"},
        {"way all_reduce bytes<0 -> ring simple", "\"bytes<0\": expected a name"},
        {"way all_reduce chain -> ring simple", "asked before it is known whether a call is chain"},
        {"line * lines -> ll", "asked before it is known whether a call is lines"},
        {"channels * -> slot", "rows of kind channels do not say this"},
        {"channels * -> fast", "rows of kind channels do not say this"},
        {"channels * ->", "rows of kind channels do not say this"},
        {"channels * -> 64/3", "expected a number at the end"},
        {"channels * -> block/0", "expected a number at the end"},
        {"channels * -> block/64K <4", "\"<4\" is none of: >=N <=N unit=N"},
        {"tile * -> 4", "rows of kind tile do not say this"},
        {"tile * -> block/2 unit=8", "\"unit=8\" is none of"},
        {"path broadcast -> placed", "expected \"staged\""},
        {"way all_reduce bytes= -> ring simple", "\"bytes=\": expected a name"},
        {"way all_reduce bytes<=99999999999999999999 -> ring simple", "expected a name"},
        {"way all_reduce byte<=1K -> ring simple", "\"byte<=1K\" is none of"},
        {"way all_reduce ranks=5..4 -> ring simple", "leaves no number"},
        {"way all_reduce ranks>=3 ranks<=2 -> ring simple", "leaves no number"},
        {"way all_reduce -> rings simple", "\"rings\" is no algorithm"},
        {"way all_to_all -> ring simple", "does not have this collective"},
        {"way all_reduce -> ring ll64", "\"ll64\" is none of: simple ll ll128 lamport"},
        {"way all_reduce -> ring", "expected an algorithm and a protocol"},
        {"line * -> ring simple", "expected a protocol behind"},
        {"only all_reduce -> ring simple", "expected an algorithm behind"},
        {"way all_reduce ring simple", "expected: kind, collectives"},
        {"way", "expected: kind, collectives"},
    };
    char text[256];
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(wrong); i++) {
        snprintf(text, sizeof(text), MEASURED "%s\n", wrong[i].line);
        CHECK_BAD_ARGUMENT(gyre_rows_parse(text, "test.rows", &rows), wrong[i].words);
    }
    CHECK_BAD_ARGUMENT(gyre_rows_parse("way all_reduce -> ring simple", "test.rows", &rows),
                       "no line \"measured\" stands above");
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    CHECK_BAD_ARGUMENT(gyre_rows_parse(text, "test.rows", &rows), "more than 199 letters");
}

TEST_CASE("facts of one rank are refused")
{
    static const char *const local[] = {"aligned", "!in_place", "recorded", "traced", "captured"};
    char text[128];
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(local); i++) {
        snprintf(text, sizeof(text), MEASURED "way all_reduce %s -> ring simple", local[i]);
        CHECK_BAD_ARGUMENT(gyre_rows_parse(text, "test.rows", &rows),
                           "ranks would not choose alike");
    }
}

static bool finds(const struct gyre_row_call *call)
{
    return gyre_rows_find(&rows, call, NULL) != NULL;
}

TEST_CASE("all conditions of a row hold")
{
    (void)parse_one(
        "# a comment\n\n" MEASURED "  way all_reduce,reduce  ranks=3..4 hosts<=2 "
        "channels>=48 sms<133 bytes>5M bytes<=16M block<=8K nvlink !proxied -> ring ll\n");
    const struct gyre_row_call good = {.kind = GYRE_ROW_WAY,
                                       .coll = GYRE_COLL_REDUCE,
                                       .facts = 1U << GYRE_ROW_FACT_NVLINK,
                                       .ranks = 3,
                                       .hosts = 2,
                                       .channels = 48,
                                       .sms = 132,
                                       .bytes = 16 << 20,
                                       .block = 8 << 10,
                                       .protos = 1U << GYRE_PROTO_LL};
    struct gyre_row_call call = good;
    CHECK(finds(&call));
#define ONE_CHANGE(member, value, is_found) \
    call = good;                            \
    call.member = (value);                  \
    CHECK(finds(&call) == (is_found))
    ONE_CHANGE(kind, GYRE_ROW_FUSED, false);
    ONE_CHANGE(coll, GYRE_COLL_BROADCAST, false);
    ONE_CHANGE(facts, 0, false);
    ONE_CHANGE(facts, 1U << GYRE_ROW_FACT_NVLINK | 1U << GYRE_ROW_FACT_PROXIED, false);
    ONE_CHANGE(facts, 1U << GYRE_ROW_FACT_NVLINK | 1U << GYRE_ROW_FACT_PLACED, true);
    ONE_CHANGE(ranks, 2, false);
    ONE_CHANGE(ranks, 4, true);
    ONE_CHANGE(ranks, 5, false);
    ONE_CHANGE(hosts, 3, false);
    ONE_CHANGE(channels, 47, false);
    ONE_CHANGE(sms, 133, false);
    ONE_CHANGE(bytes, 5 << 20, false);
    ONE_CHANGE(bytes, (5 << 20) + 1, true);
    ONE_CHANGE(bytes, (16 << 20) + 1, false);
    ONE_CHANGE(block, (8 << 10) + 1, false);
    ONE_CHANGE(protos, 1U << GYRE_PROTO_SIMPLE, false);
    ONE_CHANGE(algorithm, &gyre_algorithm_ring, true);
    ONE_CHANGE(algorithm, &gyre_algorithm_tree, false);
#undef ONE_CHANGE
    call = good;
    call.any_size = true;
    call.bytes = call.channels = 1;
    CHECK(finds(&call));
    call.ranks = 5;
    CHECK(!finds(&call));
}

TEST_CASE("the first row wins, and the search goes on behind it")
{
    CHECK_OK(gyre_rows_parse(MEASURED "way reduce bytes<=1K -> tree simple\n"
                                      "way reduce bytes<=1M -> direct simple\n"
                                      "way reduce -> ring simple\n",
                             "test.rows", &rows));
    struct gyre_row_call call = {
        .kind = GYRE_ROW_WAY, .coll = GYRE_COLL_REDUCE, .bytes = 2048, .protos = UINT32_MAX};
    const struct gyre_row *row = gyre_rows_find(&rows, &call, NULL);
    CHECK(row == &rows.rows[1] && row->algorithm == &gyre_algorithm_direct && row->line == 3);
    CHECK(gyre_rows_find(&rows, &call, row) == &rows.rows[2]);
    CHECK(gyre_rows_find(&rows, &call, &rows.rows[2]) == NULL);
}

TEST_CASE("the hash counts what a row decides")
{
    const uint64_t hash = gyre_row_hash(parse_one(MEASURED "way reduce bytes<=1K -> ring ll"));
    CHECK(gyre_row_hash(parse_one("measured elsewhere\n\nway reduce  bytes<=1024 -> ring ll")) ==
          hash);
    static const char *const others[] = {"way reduce bytes<=1025 -> ring ll",
                                         "way reduce block<=1K -> ring ll",
                                         "way reduce bytes<=1K -> ring simple",
                                         "way reduce bytes<=1K -> tree ll",
                                         "fused reduce bytes<=1K -> ring ll",
                                         "way reduce nvlink bytes<=1K -> ring ll",
                                         "way reduce !nvlink bytes<=1K -> ring ll",
                                         "way broadcast bytes<=1K -> ring ll",
                                         "channels reduce -> block/2",
                                         "channels reduce -> bytes/2",
                                         "channels reduce -> block/3",
                                         "channels reduce -> block/ranks/2",
                                         "channels reduce -> block/2 <=8",
                                         "channels reduce -> block/2 >=8",
                                         "channels reduce -> block/2 down",
                                         "channels reduce -> block/2 one_tile",
                                         "tile reduce -> block/2",
                                         "tile reduce -> block/2 unit=16"};
    char text[128];
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(others); i++) {
        snprintf(text, sizeof(text), MEASURED "%s", others[i]);
        CHECK_MSG(gyre_row_hash(parse_one(text)) != hash, "%s", others[i]);
    }
}

TEST_CASE("every machine has sizes for every call")
{
    static const enum gyre_row_file files[] = {GYRE_ROWS_H200, GYRE_ROWS_GPU_HOST_MEMORY,
                                               GYRE_ROWS_HOST};
    struct gyre_row_call call = {.protos = UINT32_MAX};
    for (size_t f = 0; f < GYRE_ARRAY_LENGTH(files); f++)
        for (uint32_t facts = 0; facts < 1U << GYRE_N_ROW_FACTS; facts++)
            for (int coll = 0; coll < GYRE_N_COLLECTIVES; coll++) {
                call.facts = facts;
                call.coll = (enum gyre_collective)coll;
                call.kind = GYRE_ROW_CHANNELS;
                CHECK(gyre_rows_find(gyre_rows_of(files[f]), &call, NULL) != NULL);
                call.kind = GYRE_ROW_TILE;
                CHECK(gyre_rows_find(gyre_rows_of(files[f]), &call, NULL) != NULL);
            }
}
