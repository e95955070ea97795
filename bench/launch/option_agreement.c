/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/launch/option_agreement.h"

#include "core/foundation/base/util.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Options that one message names. */
#define MOST_NAMED 8

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

static bool is_agreed(const struct bench_option *row)
{
    return row->help != NULL && row->type != BENCH_FLAG && row->type != BENCH_IGNORED &&
           row->agreement != BENCH_OWN;
}

void bench_option_texts_of(const struct bench_kind *kind, const struct bench_options *options,
                           struct bench_option_texts *texts_out)
{
    struct bench_option_texts texts = {{{0}}};
    size_t n = 0;
    put_word(kind->name, texts.texts[n++]);
    for (const struct bench_option *row = bench_option_rows; row->name != NULL; row++)
        if (is_agreed(row)) {
            assert(n < BENCH_MAX_AGREED_OPTIONS);
            const void *field = (const char *)options + row->at;
            char *text = texts.texts[n++];
            const bool is_text = row->type == BENCH_TEXT;
            const int number = row->type == BENCH_BOOL ? *(const bool *)field
                               : is_text               ? 0
                                                       : *(const int *)field;
            if (is_text && row->agreement == BENCH_PRESENT)
                put_word(*(const char *const *)field == NULL ? NULL : "given", text);
            else if (is_text)
                put_word(*(const char *const *)field, text);
            else if (row->type == BENCH_BYTES)
                snprintf(text, BENCH_OPTION_TEXT_BYTES, "%zu", *(const size_t *)field);
            else if (number == BENCH_ALL) /* no option is negative */
                put_word("all", text);
            else if (row->type == BENCH_DTYPE || row->type == BENCH_WORD)
                put_word((row->type == BENCH_DTYPE ? gyre_dtype_names : row->words)[number], text);
            else
                snprintf(text, BENCH_OPTION_TEXT_BYTES, "%d", number);
        }
    *texts_out = texts;
}

gyre_status bench_option_texts_compare(const struct bench_option_texts *all, int n_processes)
{
    for (size_t i_option = 0; i_option < BENCH_MAX_AGREED_OPTIONS; i_option++) {
        const char *first = all[0].texts[i_option];
        char others[512] = "";
        int n_others = 0;
        for (int i = 1; i < n_processes; i++) {
            const char *text = all[i].texts[i_option];
            if (memcmp(text, first, BENCH_OPTION_TEXT_BYTES) != 0 && n_others++ < MOST_NAMED)
                snprintf(others + strlen(others), sizeof(others) - strlen(others), ", %d has %.*s",
                         i, BENCH_OPTION_TEXT_BYTES, text);
        }
        if (n_others == 0)
            continue;
        char name[64] = "program";
        const struct bench_option *row = bench_option_rows;
        for (size_t n = is_agreed(row); n < i_option; n += is_agreed(row))
            row++;
        if (i_option > 0 && row->letter != 0 && row->agreement == BENCH_SAME)
            snprintf(name, sizeof(name), "-%c", row->letter);
        else if (i_option > 0)
            snprintf(name, sizeof(name), "--%s", row->name);
        return gyre_fail(
            GYRE_ERROR_INVALID_ARGUMENT, "%s: process 0 has %.*s%s%s: all need the same", name,
            BENCH_OPTION_TEXT_BYTES, first, others, n_others > MOST_NAMED ? " and so on" : "");
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
