/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls about the library itself.
 */
#include "core/base/log.h"
#include "core/base/param.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

gyre_status gyre_get_version(int *version_out)
{
    if (version_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "get_version: version_out is NULL");
    *version_out = GYRE_VERSION;
    return GYRE_SUCCESS;
}

gyre_status gyre_get_variable(const char *name, char *text_out, size_t text_bytes)
{
    if (name == NULL || text_out == NULL)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "get_variable: a pointer is NULL");
    const char *bare = strncmp(name, "GYRE_", 5) == 0 ? name + 5 : name;
    int id = 0;
    while (id < GYRE_N_PARAMS && strcmp(gyre_param_name((enum gyre_param_id)id), bare) != 0)
        id++;
    if (id == GYRE_N_PARAMS)
        return gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "get_variable: there is no %s", name);
    struct gyre_params *params = malloc(sizeof(*params));
    if (params == NULL)
        return gyre_fail_errno(ENOMEM, "get_variable");
    gyre_status status = gyre_params_load(params);
    const char *text =
        status == GYRE_SUCCESS ? gyre_param_text(params, (enum gyre_param_id)id) : "";
    if (status == GYRE_SUCCESS && strlen(text) >= text_bytes)
        status = gyre_fail(GYRE_ERROR_INVALID_ARGUMENT, "get_variable: %s needs %zu bytes", name,
                           strlen(text) + 1);
    if (status == GYRE_SUCCESS)
        memcpy(text_out, text, strlen(text) + 1);
    free(params);
    return status;
}

const char *gyre_get_variable_name(int index)
{
    static const char *const names[] = {
#define X(id, type, flags, fallback, low, high, unit, words, help) "GYRE_" #id,
#include "core/base/param_table.h"
#undef X
    };
    return index >= 0 && index < GYRE_N_PARAMS ? names[index] : NULL;
}

void gyre_log_text(bool is_warning, const char *text)
{
    if (text != NULL)
        gyre_log(is_warning ? GYRE_LOG_WARN : GYRE_LOG_INFO, GYRE_LOG_INIT, "%s", text);
}
