/* SPDX-License-Identifier: Apache-2.0
 *
 * GYRE_TUNING_FILE: constants of the simulator that were measured on the machine at hand, as
 * build/bench/tune writes them.
 */
#include "core/comm/plan.h"

#include "core/base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_FILE_BYTES 16384

gyre_status gyre_tuning_load(const char *path, struct gyre_tuning *tuning_out)
{
    char *text = malloc(MAX_FILE_BYTES);
    if (text == NULL)
        return gyre_fail_errno(ENOMEM, "%s", path);
    FILE *file = fopen(path, "re");
    gyre_status status = file != NULL ? GYRE_SUCCESS : gyre_fail_errno(errno, "%s", path);
    size_t n_bytes = 0;
    if (status == GYRE_SUCCESS) {
        n_bytes = fread(text, 1, MAX_FILE_BYTES, file);
        if (ferror(file) != 0)
            status = gyre_fail_errno(errno, "%s", path);
        else if (n_bytes == MAX_FILE_BYTES)
            status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "%s: more than %d bytes", path,
                               MAX_FILE_BYTES - 1);
        fclose(file);
    }
    struct gyre_tuning tuning = {.is_set = true};
    if (status == GYRE_SUCCESS) {
        text[n_bytes] = '\0';
        status = gyre_cost_from_text(text, &gyre_cost_host, &tuning.cost);
        if (status != GYRE_SUCCESS)
            status = gyre_fail_context(status, "%s", path);
    }
    free(text);
    if (status == GYRE_SUCCESS) {
        tuning.hash = gyre_hash(GYRE_HASH_INIT, &tuning.cost, sizeof(tuning.cost));
        *tuning_out = tuning;
    }
    return status;
}
