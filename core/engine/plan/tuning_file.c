/* SPDX-License-Identifier: Apache-2.0
 *
 * GYRE_TUNING_FILE: constants of the simulator that were measured on the machine at hand, as
 * build/bench/tune writes them.
 */
#include "core/engine/plan/tuning_file.h"

#include "core/foundation/base/file.h"
#include "core/foundation/base/util.h"

#include <stdlib.h>

#define MAX_FILE_BYTES 16383

gyre_status gyre_tuning_load(const char *path, struct gyre_tuning *tuning_out)
{
    char *text = NULL;
    struct gyre_tuning tuning = {.is_set = true};
    GYRE_TRY(gyre_file_read(path, MAX_FILE_BYTES, &text, NULL));
    const gyre_status status = gyre_cost_from_text(text, &gyre_cost_host, &tuning.cost);
    free(text);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "%s", path);
    tuning.hash = gyre_hash(GYRE_HASH_INIT, &tuning.cost, sizeof(tuning.cost));
    *tuning_out = tuning;
    return GYRE_SUCCESS;
}
