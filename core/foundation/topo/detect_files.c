/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads files and lists directories of sysfs for the detection of the topology.
 */
#include "core/foundation/topo/detect.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool gyre_detect_read_line(const struct gyre_detect *detect, const char *path, char *text_out,
                           size_t n_bytes)
{
    char whole[PATH_MAX];
    text_out[0] = '\0';
    if (snprintf(whole, sizeof(whole), "%s/%s", detect->root, path) >= (int)sizeof(whole))
        return false;
    FILE *file = fopen(whole, "re");
    if (file == NULL)
        return false;
    const bool got = fgets(text_out, (int)n_bytes, file) != NULL;
    fclose(file);
    text_out[strcspn(text_out, "\n")] = '\0';
    return got && text_out[0] != '\0';
}

long gyre_detect_read_number(const struct gyre_detect *detect, const char *path, long fallback)
{
    char text[64];
    char *end = text;
    if (!gyre_detect_read_line(detect, path, text, sizeof(text)))
        return fallback;
    const long number = strtol(text, &end, 0);
    return end == text ? fallback : number;
}

/* alphasort() would sort by the caller's locale, and ranks would number their devices differently.
 */
static int compare_names(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

int gyre_detect_list_names(const struct gyre_detect *detect, const char *path,
                           struct dirent ***names_out)
{
    char whole[PATH_MAX];
    *names_out = NULL;
    if (snprintf(whole, sizeof(whole), "%s/%s", detect->root, path) >= (int)sizeof(whole))
        return 0;
    const int n_names = scandir(whole, names_out, NULL, compare_names);
    return n_names < 0 ? 0 : n_names; /* a directory that does not exist counts as an empty one */
}

void gyre_detect_free_names(struct dirent **names, int n_names)
{
    for (int i = 0; i < n_names; i++)
        free(names[i]);
    free(names);
}
