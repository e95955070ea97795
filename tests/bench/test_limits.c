/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/limits/limits.h"
#include "bench/report/output.h"
#include "tests/support/files.h"

#include <math.h>

static const double pull = 336, push = 364, copy_engine = 390; /* GB/s */

TEST_CASE("two phases take the sum of their times")
{
    CHECK(lround(bench_ceiling_of_phases(pull, pull)) == 336);
    CHECK(lround(bench_ceiling_of_phases(pull, push)) == 349);
    CHECK(lround(bench_ceiling_of_phases(push, push)) == 364);
    CHECK(lround(bench_ceiling_of_phases(push, copy_engine)) == 377);
    CHECK(lround(bench_ceiling_of_phases(copy_engine, copy_engine)) == 390);
}

TEST_CASE("a rate that was not measured gives no ceiling")
{
    CHECK(bench_ceiling_of_phases(0, push) <= 0);
    CHECK(bench_ceiling_of_phases(push, -1) <= 0);
    CHECK(bench_ceiling_of_phases((double)NAN, push) <= 0);
    CHECK(bench_ceiling_of_phases(push, (double)INFINITY) <= 0);
}

/* A machine of 4 GPUs. In the ring of 2 GPUs only stores were measured. */
static struct bench_limits make_limits(void)
{
    struct bench_limits limits = {.n_gpus = 4, .buffer_bytes = 512 << 20, .n_rings = 2};
    for (int i = 0; i < limits.n_gpus; i++)
        limits.gpus[i] = (struct bench_limits_gpu){"a \"GPU\"", "0000:18:00.0", 90, 132};
    struct bench_limits_ring *four = &limits.rings[0], *two = &limits.rings[1];
    four->n_gpus = 4;
    four->gbytes_per_s[BENCH_LIMITS_STORE][3] = 361;
    four->gbytes_per_s[BENCH_LIMITS_STORE][1] = 334;
    four->gbytes_per_s[BENCH_LIMITS_TMA_STORE][0] = push;
    four->gbytes_per_s[BENCH_LIMITS_LOAD][4] = pull;
    four->gbytes_per_s[BENCH_LIMITS_STORE_ALL][4] = 999; /* stores to all GPUs give no ceiling */
    four->gbytes_per_s[BENCH_LIMITS_COPY][4] = copy_engine;
    two->n_gpus = 2;
    two->gbytes_per_s[BENCH_LIMITS_STORE][4] = 370;
    bench_limits_note(&limits, "NICs", "no RDMA device");
    return limits;
}

TEST_CASE("a ceiling is of the fastest path of each way")
{
    static const long expected[2][BENCH_N_CEILINGS] = {{336, 364, 390, 349, 364, 377, 390},
                                                       {0, 370, 0, 0, 370, 0, 0}};
    const struct bench_limits limits = make_limits();
    for (int ring = 0; ring < 2; ring++)
        for (int i = 0; i < BENCH_N_CEILINGS; i++) {
            const double found = bench_limits_ceiling(&limits.rings[ring], (enum bench_ceiling)i);
            CHECK_MSG(lround(found) == expected[ring][i], "ring %d, %s: %g", ring,
                      bench_ceiling_names[i], found);
        }
}

TEST_CASE("notes beyond the room are dropped")
{
    struct bench_limits limits = {0};
    for (int i = 0; i < BENCH_LIMITS_MAX_NOTES + 3; i++)
        bench_limits_note(&limits, "ring", "number %d", i);
    CHECK(limits.n_notes == BENCH_LIMITS_MAX_NOTES);
    CHECK(strcmp(limits.notes[7].why, "number 7") == 0);
}

/* Prints a run of one row into @text_out, and writes a report to @json_path unless it is NULL. */
static void run_row(const char *json_path, char *text_out, size_t text_bytes)
{
    const struct bench_options options = {.limits_path = "limits.json", .json_path = json_path};
    const struct bench_kind kind = {.name = "allgather", .coll = GYRE_COLL_ALL_GATHER};
    const struct bench_place place = {.host = "here"};
    const struct bench_machine machine = {0};
    const struct bench_setting setting = {.options = &options,
                                          .kind = &kind,
                                          .n_ranks = 1,
                                          .places = &place,
                                          .device = "cuda",
                                          .reference = "",
                                          .machine = &machine,
                                          .limit = {.gbytes_per_s = 360, .ceiling = "push"}};
    const struct bench_row row = {.what = {.coll = GYRE_COLL_ALL_GATHER},
                                  .out_of_place = {.busbw = 90},
                                  .in_place = {.busbw = 342}};
    const struct bench_summary summary = {.least_busbw = -1};
    struct bench_output *output = NULL;
    FILE *file = tmpfile();
    const int own = dup(STDOUT_FILENO);
    fflush(stdout);
    CHECK(file != NULL && dup2(fileno(file), STDOUT_FILENO) >= 0);
    CHECK_OK(bench_output_open(&setting, &output));
    CHECK_OK(bench_output_row(output, &row));
    CHECK_OK(bench_output_close(output, &summary));
    fflush(stdout);
    CHECK(dup2(own, STDOUT_FILENO) >= 0 && close(own) == 0);
    rewind(file);
    text_out[fread(text_out, 1, text_bytes - 1, file)] = '\0';
    fclose(file);
}

TEST_CASE("a row ends with busbw of both halves in percent of the limit")
{
    char text[4096];
    run_row(NULL, text, sizeof(text));
    CHECK_HAS(text, "\n# Limit of busbw: 360.0 GB/s, push of limits.json\n");
    CHECK_HAS(text, " % of limit\n");
    CHECK_HAS(text, "    25.0   95.0\n");
}

#ifdef GYRE_BENCH_WITH_JSON

TEST_CASE("a report says what limit there was")
{
    const char *path = test_put("", "limits");
    char text[16384];
    run_row(path, text, sizeof(text));
    FILE *report = fopen(path, "r");
    CHECK(report != NULL);
    text[fread(text, 1, sizeof(text) - 1, report)] = '\0';
    fclose(report);
    CHECK_HAS(text, "\"limit\":\"push\"");
    CHECK_HAS(text, "\"limit_gbytes_per_s\":360.0");
}

TEST_CASE("what is written is read by ring and collective")
{
    const struct bench_limits limits = make_limits();
    const char *path = test_put("", "limits");
    struct bench_limit limit = {0};
    CHECK_OK(bench_limits_write(&limits, path));
    CHECK_OK(bench_limits_read(path, GYRE_COLL_ALL_REDUCE, 4, &limit));
    CHECK(lround(limit.gbytes_per_s) == 364 && strcmp(limit.ceiling, "all_reduce_push_push") == 0);
    CHECK_OK(bench_limits_read(path, GYRE_COLL_ALL_GATHER, 2, &limit));
    CHECK(lround(limit.gbytes_per_s) == 370 && strcmp(limit.ceiling, "push") == 0);
    CHECK_BAD_ARGUMENT(bench_limits_read(path, GYRE_COLL_BROADCAST, 3, &limit),
                       "has no ring of 3 GPUs, but of 4 2");
    CHECK_FAILS(bench_limits_write(&limits, "/nonexistent/x"), GYRE_ERROR_SYSTEM, "/nonexistent/x");
}

#define HEAD "{\"bench\": \"limits\", \"schema_version\": 1"

TEST_CASE("a file that says nothing is refused")
{
    static const char *const wrong[][2] = {
        {"", "is not JSON"},
        {"limits", "is not JSON"},
        {HEAD, "is not JSON"}, /* cut off */
        {"null", "is not JSON"},
        {"[]", "\"bench\" is not \"limits\""},
        {"{\"bench\": \"allreduce\", \"schema_version\": 1}", "\"bench\" is not \"limits\""},
        {"{\"bench\": \"limits\", \"schema_version\": 2}", "schema_version is not 1"},
        {HEAD "}", "has no ring of 2 GPUs, but of none"},
        {HEAD ", \"rings\": [7, {\"gpus\": \"2\"}]}", "has no ring of 2 GPUs, but of 0 0"},
        {HEAD ", \"rings\": [{\"gpus\": 2}]}", "has no ceiling push"},
        {HEAD ", \"rings\": [{\"gpus\": 2, \"ceilings_gbytes_per_s\": {\"pull\": 1}}]}",
         "has no ceiling push"},
        {HEAD ", \"rings\": [{\"gpus\": 2, \"ceilings_gbytes_per_s\": {\"push\": \"1\"}}]}",
         "push = \"1\": expected a number above 0"},
        {HEAD ", \"rings\": [{\"gpus\": 2, \"ceilings_gbytes_per_s\": {\"push\": null}}]}",
         "push = null: expected a number above 0"},
        {HEAD ", \"rings\": [{\"gpus\": 2, \"ceilings_gbytes_per_s\": {\"push\": -364.5}}]}",
         "push = -364.5: expected a number above 0"},
        {HEAD ", \"rings\": [{\"gpus\": 2, \"ceilings_gbytes_per_s\": {\"push\": NaN}}]}",
         "push = NaN: expected a number above 0"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const char *path = test_put(wrong[i][0], "limits");
        struct bench_limit limit = {.gbytes_per_s = 5};
        CHECK_BAD_ARGUMENT(bench_limits_read(path, GYRE_COLL_REDUCE, 2, &limit), wrong[i][1]);
        CHECK_HAS(gyre_cause(), path);
        CHECK(lround(limit.gbytes_per_s) == 5); /* outputs are set on success only */
    }
    struct bench_limit limit;
    CHECK_FAILS(bench_limits_read("/nonexistent/x", GYRE_COLL_REDUCE, 2, &limit), GYRE_ERROR_SYSTEM,
                "--limits: /nonexistent/x: No such file");
    CHECK_BAD_ARGUMENT(bench_limits_read("/tmp", GYRE_COLL_REDUCE, 2, &limit),
                       "--limits: /tmp: not a regular file");
}

#else

TEST_CASE("without json-c files are refused with the remedy")
{
    const struct bench_limits limits = make_limits();
    struct bench_limit limit;
    CHECK_FAILS(bench_limits_write(&limits, "/tmp/x"), GYRE_ERROR_UNSUPPORTED, "libjson-c-dev");
    CHECK_FAILS(bench_limits_read("/tmp/x", GYRE_COLL_REDUCE, 2, &limit), GYRE_ERROR_UNSUPPORTED,
                "libjson-c-dev");
}

#endif
