/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking up NCCL's functions, and the configuration that NCCL takes.
 */
#include "bench/engines/nccl_api.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define CONFIG_MAGIC   0xcafebeefU /* NCCL_CONFIG_INITIALIZER of nccl.h */
#define CONFIG_VERSION 22809       /* of the nccl.h that struct bench_nccl_config follows */

/* POSIX allows the result of dlsym() to be a function. ISO C has no cast for that, so the bytes of
 * the pointer are copied. */
bool bench_nccl_find(void *library, const char *symbol, void *function_out)
{
    void *found = dlsym(library, symbol);
    memcpy(function_out, &found, sizeof(found));
    return found != NULL;
}

gyre_status bench_nccl_api_look_up(void *library, const char *path, struct bench_nccl_api *api_out)
{
    struct bench_nccl_api api = {.library = library};
#define LOOK_UP_REQUIRED(member, symbol, result, parameters) \
    if (!bench_nccl_find(library, #symbol, &api.member))     \
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "--compare nccl: %s has no %s", path, #symbol);
    BENCH_NCCL_REQUIRED_TABLE(LOOK_UP_REQUIRED)
#undef LOOK_UP_REQUIRED
#define LOOK_UP_OPTIONAL(member, symbol, result, parameters) \
    (void)bench_nccl_find(library, #symbol, &api.member);
    BENCH_NCCL_OPTIONAL_TABLE(LOOK_UP_OPTIONAL)
#undef LOOK_UP_OPTIONAL
    GYRE_TRY(bench_nccl_api_check(&api, api.get_version(&api.version), "ncclGetVersion"));
    if (api.version < BENCH_NCCL_MIN_VERSION)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "--compare nccl: %s is NCCL %d.%d.%d; 2.20 or newer is needed", path,
                         api.version / 10000, api.version / 100 % 100, api.version % 100);
    *api_out = api;
    return GYRE_SUCCESS;
}

gyre_status bench_nccl_api_load(const char *path, struct bench_nccl_api *api_out)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "--compare nccl: %s (see --nccl-lib)", dlerror());
    /* gyre's own libnccl.so.2 depends on libgyre, and dlsym() also looks into dependencies. */
    if (dlsym(library, "gyre_get_version") != NULL)
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "--compare nccl: %s is gyre itself; name NCCL's with --nccl-lib", path);
    return bench_nccl_api_look_up(library, path, api_out);
}

void bench_nccl_api_missing(const struct bench_nccl_api *api, char *text_out, size_t n_bytes)
{
    char names[64] = "";
#define ADD_MISSING(member, symbol, result, parameters)                        \
    if (api->member == NULL)                                                   \
        snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", \
                 names[0] == '\0' ? "" : ", ", #symbol);
    BENCH_NCCL_REPLACED_TABLE(ADD_MISSING)
#undef ADD_MISSING
    snprintf(text_out, n_bytes, "%s%s", names,
             names[0] == '\0' ? "" : " (since 2.28), for which sends and receives stand in");
}

gyre_status bench_nccl_api_check(const struct bench_nccl_api *api, int result, const char *call)
{
    if (result == 0)
        return GYRE_SUCCESS;
    return gyre_fail(GYRE_ERROR_DEVICE, "%s: %s", call, api->error_text(result));
}

/* The version is no newer than the library's own, because a field that the library does not know
 * must not be promised. */
struct bench_nccl_config bench_nccl_config_of(const struct bench_nccl_api *api, int cta_policy)
{
    return (struct bench_nccl_config){
        .size = sizeof(struct bench_nccl_config),
        .magic = CONFIG_MAGIC,
        .version = (unsigned)(api->version < CONFIG_VERSION ? api->version : CONFIG_VERSION),
        .blocking = INT_MIN, /* NCCL_CONFIG_UNDEF_INT */
        .cga_cluster_size = INT_MIN,
        .min_ctas = INT_MIN,
        .max_ctas = INT_MIN,
        .split_share = INT_MIN,
        .traffic_class = INT_MIN,
        .collnet_enable = INT_MIN,
        .cta_policy = cta_policy,
        .shrink_share = INT_MIN,
        .nvls_ctas = INT_MIN,
        .channels_per_net_peer = INT_MIN,
        .nvlink_centric_sched = INT_MIN,
    };
}
