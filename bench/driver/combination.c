/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of words separated by commas, and names of reports that are made of such words.
 */
#include "bench/driver/combination.h"

#include "core/foundation/base/util.h"

#include <stdio.h>
#include <string.h>

/* The number of words in a list. A list that was not given counts as one empty word. */
static int count_words(const char *list)
{
    int n = 1;
    for (const char *at = list; at != NULL && *at != '\0'; at++)
        n += *at == ',';
    return n;
}

static void copy_word(const char *list, int i, char word_out[32])
{
    const char *at = list == NULL ? "" : list;
    for (; i > 0; i--)
        at = strchr(at, ',') + 1;
    snprintf(word_out, 32, "%.*s", (int)strcspn(at, ","), at);
}

bool bench_combination_find(const struct bench_options *options, int i,
                            struct bench_combination *combination_out)
{
    const int n_protos = count_words(options->proto);
    const int n_channels = count_words(options->channels);
    if (i >= count_words(options->algo) * n_protos * n_channels)
        return false;
    copy_word(options->algo, i / n_channels / n_protos, combination_out->algo);
    copy_word(options->proto, i / n_channels % n_protos, combination_out->proto);
    copy_word(options->channels, i % n_channels, combination_out->channels);
    return true;
}

/* The position of a path's extension. A name that begins with its only dot (".x") has none. */
static size_t find_extension(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    const char *dot = strrchr(name, '.');
    return dot == NULL || dot == name ? strlen(path) : (size_t)(dot - path);
}

gyre_status bench_combination_path(const char *path, const struct bench_combination *combination,
                                   char path_out[PATH_MAX])
{
    const char *const words[] = {combination->algo, combination->proto, combination->channels};
    const size_t n_stem = find_extension(path);
    char suffix[128] = "";
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(words); i++)
        if (words[i][0] != '\0')
            snprintf(suffix + strlen(suffix), sizeof(suffix) - strlen(suffix), "%c%s",
                     suffix[0] == '\0' ? '.' : '-', words[i]);
    if (snprintf(path_out, PATH_MAX, "%.*s%s%s", (int)n_stem, path, suffix, path + n_stem) >=
        PATH_MAX)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "--sweep: the name of a report is too long");
    return GYRE_SUCCESS;
}
