/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/launch/option_agreement.h"

#include "core/foundation/base/util.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The most processes that a message lists with their values. */
#define MOST_NAMED 8

/* NUMBER, WORD and GIVEN take X(option, value); NAME takes X(option, value, table of names). Of an
 * option in GIVEN only its presence counts. */
#define AGREED_OPTION_TABLE(NUMBER, NAME, WORD, GIVEN) \
    WORD("program", kind->name)                        \
    NUMBER("-t", options->n_threads)                   \
    NUMBER("-g", options->n_gpus)                      \
    NUMBER("-b", options->min_bytes)                   \
    NUMBER("-e", options->max_bytes)                   \
    NUMBER("-i", options->step_bytes)                  \
    NUMBER("-f", options->step_factor)                 \
    NUMBER("-n", options->n_iters)                     \
    NUMBER("-w", options->n_warmup)                    \
    NUMBER("-m", options->n_aggregated)                \
    NUMBER("-N", options->n_cycles)                    \
    NUMBER("-c", options->n_checks)                    \
    NAME("-o", options->op, bench_op_names)            \
    NAME("-d", options->dtype, gyre_dtype_names)       \
    NUMBER("-r", options->root)                        \
    NUMBER("-z", options->is_blocking)                 \
    NUMBER("-y", options->is_stream_null)              \
    NUMBER("-T", options->timeout_s)                   \
    NUMBER("-G", options->n_graph_launches)            \
    NUMBER("-C", options->is_cputime)                  \
    NUMBER("-a", options->average)                     \
    NUMBER("-u", options->is_unaligned)                \
    NUMBER("-R", options->registration)                \
    GIVEN("--json", options->json_path)                \
    GIVEN("--csv", options->csv_path)                  \
    WORD("--algo", options->algo)                      \
    GIVEN("--algo-file", options->algo_file)           \
    WORD("--proto", options->proto)                    \
    WORD("--path", options->result_path)               \
    WORD("--compare-algos", options->compare_algos)    \
    WORD("--compare", options->compare)                \
    NUMBER("--rounds", options->n_rounds)              \
    NUMBER("--sweep", options->is_sweep)               \
    WORD("--channels", options->channels)              \
    NUMBER("--predict", options->is_predict)           \
    NUMBER("--accuracy", options->is_accuracy)         \
    GIVEN("--from", options->from_folder)              \
    WORD("--nccl-algo", options->nccl_algo)            \
    WORD("--nccl-proto", options->nccl_proto)          \
    NAME("--nccl-mode", options->nccl_mode, bench_nccl_mode_names)

static const char *const option_names[] = {
#define OPTION_NAME(option, ...) option,
    AGREED_OPTION_TABLE(OPTION_NAME, OPTION_NAME, OPTION_NAME, OPTION_NAME)
#undef OPTION_NAME
};

static_assert(GYRE_ARRAY_LENGTH(option_names) == BENCH_N_AGREED_OPTIONS,
              "one text for each option");

static void put_word(const char *word, char *text)
{
    if (word == NULL)
        word = "(not given)";
    if (strlen(word) < BENCH_OPTION_TEXT_BYTES)
        strcpy(text, word);
    else
        snprintf(text, BENCH_OPTION_TEXT_BYTES, "%.14s~%016llx", word,
                 (unsigned long long)gyre_hash(GYRE_HASH_INIT, word, strlen(word)));
}

/* No option takes a negative number, but BENCH_ALL stands for "all". */
static void put_number(long long number, char *text)
{
    if (number == BENCH_ALL)
        strcpy(text, "all");
    else
        snprintf(text, BENCH_OPTION_TEXT_BYTES, "%lld", number);
}

void bench_option_texts_of(const struct bench_kind *kind, const struct bench_options *options,
                           struct bench_option_texts *texts_out)
{
    struct bench_option_texts texts = {{{0}}};
    char(*text)[BENCH_OPTION_TEXT_BYTES] = texts.texts;
#define PUT_NUMBER(option, value) put_number((long long)(value), *text++);
#define PUT_NAME(option, value, names) \
    put_word((value) == BENCH_ALL ? "all" : (names)[value], *text++);
#define PUT_WORD(option, value)  put_word(value, *text++);
#define PUT_GIVEN(option, value) put_word((value) == NULL ? NULL : "given", *text++);
    AGREED_OPTION_TABLE(PUT_NUMBER, PUT_NAME, PUT_WORD, PUT_GIVEN)
#undef PUT_GIVEN
#undef PUT_WORD
#undef PUT_NAME
#undef PUT_NUMBER
    *texts_out = texts;
}

gyre_status bench_option_texts_compare(const struct bench_option_texts *all, int n_processes)
{
    for (size_t i_option = 0; i_option < BENCH_N_AGREED_OPTIONS; i_option++) {
        const char *first = all[0].texts[i_option];
        char others[512] = "";
        int n_others = 0;
        for (int i = 1; i < n_processes; i++) {
            const char *text = all[i].texts[i_option];
            if (memcmp(text, first, BENCH_OPTION_TEXT_BYTES) != 0 && n_others++ < MOST_NAMED)
                snprintf(others + strlen(others), sizeof(others) - strlen(others), ", %d has %.*s",
                         i, BENCH_OPTION_TEXT_BYTES, text);
        }
        if (n_others > 0)
            return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                             "%s: process 0 has %.*s%s%s: all need the same",
                             option_names[i_option], BENCH_OPTION_TEXT_BYTES, first, others,
                             n_others > MOST_NAMED ? " and so on" : "");
    }
    return GYRE_SUCCESS;
}

gyre_status bench_options_agree(struct bench_launcher *launcher, const struct bench_kind *kind,
                                const struct bench_options *options)
{
    struct bench_option_texts mine;
    struct bench_option_texts *all = calloc((size_t)launcher->n_processes, sizeof(*all));
    if (all == NULL)
        return gyre_fail(GYRE_ERROR_OUT_OF_MEMORY, "no memory for options of %d processes",
                         launcher->n_processes);
    bench_option_texts_of(kind, options, &mine);
    gyre_status status = launcher->ops->all_gather(launcher, &mine, sizeof(mine), all);
    if (status == GYRE_SUCCESS)
        status = bench_option_texts_compare(all, launcher->n_processes);
    free(all);
    return status;
}
