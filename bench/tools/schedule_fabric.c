/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the file of a fabric for `schedule` (bench/tools/schedule_fabric.h).
 */
#include "bench/tools/schedule_fabric.h"

#include "core/foundation/base/file.h"

#include <stdlib.h>
#include <string.h>

gyre_status bench_fabric_load(const char *path, struct bench_fabric *fabric_out)
{
    char *text = NULL;
    size_t n_bytes = 0;
    fabric_out->fabric = NULL;
    if (path == NULL)
        return GYRE_SUCCESS;
    gyre_status status = gyre_file_read(path, GYRE_FABRIC_MAX_TEXT, &text, &n_bytes);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "--fabric");
    status = strlen(text) < n_bytes ? gyre_fail(GYRE_ERROR_INVALID_ARGUMENT,
                                                "it has a byte of value 0, so it is no text")
                                    : gyre_fabric_from_text(text, &fabric_out->fabric);
    free(text);
    if (status != GYRE_SUCCESS)
        return gyre_fail_context(status, "--fabric %s", path);
    gyre_fabric_group(fabric_out->fabric, &fabric_out->grouping);
    return GYRE_SUCCESS;
}

void bench_fabric_close(struct bench_fabric *fabric)
{
    gyre_fabric_free(fabric->fabric);
    fabric->fabric = NULL;
}
