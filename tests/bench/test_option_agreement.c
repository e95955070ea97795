/* SPDX-License-Identifier: Apache-2.0
 *
 * bench/launch: the check that all processes were given the same options.
 */
#include "bench/launch/option_agreement.h"
#include "tests/support/check.h"

/* The texts of the options of a program that is given one option. */
static struct bench_option_texts texts_with(const char *program, const char *option,
                                            const char *value)
{
    const struct bench_kind kind = {.name = program};
    char *argv[] = {(char *)(uintptr_t)program, (char *)(uintptr_t)option, (char *)(uintptr_t)value,
                    NULL};
    struct bench_options options;
    struct bench_option_texts texts;
    CHECK_OK(bench_options_parse(option == NULL ? 1 : 3, argv, &kind, &options));
    bench_option_texts_of(&kind, &options, &texts);
    return texts;
}

TEST_CASE("processes with other options are named")
{
    static const char *const telling[][3] = {
        {"-t", "2", "process 0 has 1, 1 has 2:"},
        {"-g", "2", "process 0 has 1, 1 has 2:"},
        {"-b", "1K", "process 0 has 33554432, 1 has 1024:"},
        {"-e", "64M", "process 0 has 33554432, 1 has 67108864:"},
        {"-i", "2M", "has 2097152:"},
        {"-f", "4", "has 4:"},
        {"-n", "1", "has 1:"},
        {"-w", "1", "has 1:"},
        {"-m", "2", "has 2:"},
        {"-N", "2", "has 2:"},
        {"-c", "0", "has 0:"},
        {"-o", "all", "process 0 has sum, 1 has all:"},
        {"-d", "half", "process 0 has float, 1 has half:"},
        {"-r", "all", "process 0 has 0, 1 has all:"},
        {"-z", "1", "has 1:"},
        {"-y", "1", "has 1:"},
        {"-T", "1", "has 1:"},
        {"-G", "1", "has 1:"},
        {"-C", "1", "has 1:"},
        {"-a", "3", "has 3:"},
        {"-u", "1", "has 1:"},
        {"-R", "2", "has 2:"},
        {"--json", "x", "process 0 has (not given), 1 has given:"},
        {"--csv", "x", "has given:"},
        {"--algo", "ring", "has ring:"},
        {"--proto", "ll", "has ll:"},
        {"--path", "placed", "has placed:"},
        {"--compare", "mpi", "has mpi:"},
        {"--rounds", "1", "has 1:"},
        {"--sweep", "1", "has 1:"},
        {"--predict", "1", "has 1:"},
        {"--accuracy", "1", "has 1:"},
    };
    struct bench_option_texts all[2] = {texts_with("allreduce", NULL, NULL)};
    for (size_t i = 0; i < sizeof(telling) / sizeof(telling[0]); i++) {
        char words[100];
        snprintf(words, sizeof(words), "%s: process 0 has ", telling[i][0]);
        all[1] = texts_with("allreduce", telling[i][0], telling[i][1]);
        CHECK_FAILS(bench_option_texts_compare(all, 2), GYRE_ERROR_INVALID_ARGUMENT, words);
        CHECK_MSG(strstr(gyre_cause(), telling[i][2]) != NULL, "%s", gyre_cause());
    }
    all[1] = texts_with("reduce", NULL, NULL);
    CHECK_FAILS(bench_option_texts_compare(all, 2), GYRE_ERROR_INVALID_ARGUMENT,
                "program: process 0 has allreduce, 1 has reduce:");
}

TEST_CASE("what rank 0 alone reads may differ")
{
    struct bench_option_texts all[2] = {texts_with("allreduce", NULL, NULL)};
    static const char *const silent[][2] = {
        {"-e", "32M"}, {"-S", "1"}, {"-p", "1"}, {"--limits", "x"}, {"--device", "host"}};
    for (size_t i = 0; i < sizeof(silent) / sizeof(silent[0]); i++) {
        all[1] = texts_with("allreduce", silent[i][0], silent[i][1]);
        CHECK_OK(bench_option_texts_compare(all, 2));
    }
    all[0] = texts_with("allreduce", "--json", "x"); /* only whether there is one */
    all[1] = texts_with("allreduce", "--json", "y");
    CHECK_OK(bench_option_texts_compare(all, 2));
}

TEST_CASE("long words differ at their ends too")
{
    struct bench_option_texts all[12];
    for (int i = 0; i < 12; i++)
        all[i] = texts_with("allreduce", "--algo", "ring,tree,direct,twoshot,spread,ring");
    CHECK_OK(bench_option_texts_compare(all, 12));
    all[11] = texts_with("allreduce", "--algo", "ring,tree,direct,twoshot,spread,tree");
    CHECK_FAILS(bench_option_texts_compare(all, 12), GYRE_ERROR_INVALID_ARGUMENT,
                "--algo: process 0 has ring,tree,dire~");
    CHECK(strstr(gyre_cause(), ", 11 has ring,tree,dire~") != NULL);
    all[0] = texts_with("allreduce", NULL, NULL); /* eleven differ */
    CHECK_FAILS(bench_option_texts_compare(all, 12), GYRE_ERROR_INVALID_ARGUMENT,
                " and so on: all need");
}
