/* SPDX-License-Identifier: Apache-2.0
 *
 * libibverbs loads providers, which must not be unloaded under open contexts.
 */
#include "transport/ib/ib_verbs.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/thread.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

struct library {
    const char *file;
    bool is_tried;
    bool is_loaded;
    char why_not[192];
};

struct symbol {
    const char *name;
    size_t offset;
    bool is_needed;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct gyre_verbs *installed;                         /* under lock; by tests */
static struct gyre_verbs loaded_verbs;                             /* written once, under lock */
static struct library verbs_library = {.file = "libibverbs.so.1"}; /* under lock */

GYRE_WATCH_FORKS(&lock, NULL)

static const struct symbol verbs_symbols[] = {
#define VERBS_SYMBOL(member, symbol, is_needed, result, parameters) \
    {symbol, offsetof(struct gyre_verbs, member), is_needed},
    GYRE_VERBS_TABLE(VERBS_SYMBOL)
#undef VERBS_SYMBOL
};

static void load(struct library *library, const struct symbol *symbols, size_t n_symbols,
                 void *table)
{
    library->is_tried = true;
    void *handle = dlopen(library->file, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *words = dlerror();
        snprintf(library->why_not, sizeof(library->why_not), "%s",
                 words != NULL ? words : "dlopen failed");
        return;
    }
    for (size_t i = 0; i < n_symbols; i++) {
        void *address = dlsym(handle, symbols[i].name);
        if (address == NULL && symbols[i].is_needed) {
            snprintf(library->why_not, sizeof(library->why_not), "%s has no %s", library->file,
                     symbols[i].name);
            dlclose(handle);
            return;
        }
        memcpy((char *)table + symbols[i].offset, &address, sizeof(address));
    }
    library->is_loaded = true;
}

gyre_status gyre_verbs_load(const struct gyre_verbs **verbs_out)
{
    gyre_status status = GYRE_SUCCESS;
    pthread_mutex_lock(&lock);
    if (installed != NULL) {
        *verbs_out = installed;
    } else {
        if (!verbs_library.is_tried) {
            load(&verbs_library, verbs_symbols, sizeof(verbs_symbols) / sizeof(verbs_symbols[0]),
                 &loaded_verbs);
            /* Before memory is registered. Without it, a fork before Linux 5.12 may give this
             * process copies of the pages that the NIC uses. */
            const int error = verbs_library.is_loaded && loaded_verbs.fork_init != NULL
                                  ? loaded_verbs.fork_init()
                                  : 0;
            if (error != 0)
                GYRE_INFO(NET,
                          "NET/IB : ibv_fork_init: errno %d; forking may break RDMA on old kernels",
                          error);
        }
        if (verbs_library.is_loaded)
            *verbs_out = &loaded_verbs;
        else
            status =
                gyre_fail(GYRE_ERROR_UNSUPPORTED, "no verbs library: %s", verbs_library.why_not);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void gyre_verbs_install(const struct gyre_verbs *verbs)
{
    pthread_mutex_lock(&lock);
    installed = verbs;
    pthread_mutex_unlock(&lock);
}

int gyre_verbs_query_port(const struct gyre_verbs *verbs, struct ibv_context *context, uint8_t port,
                          struct ibv_port_attr *attr_out)
{
    /* It fills only the first ABI's fields; gyre uses no others. */
    memset(attr_out, 0, sizeof(*attr_out));
    return verbs->query_port(context, port, (struct _compat_ibv_port_attr *)attr_out);
}

#ifdef GYRE_WITH_RDMACM

static struct gyre_rdmacm loaded_rdmacm;                           /* written once, under lock */
static struct library rdmacm_library = {.file = "librdmacm.so.1"}; /* under lock */

static const struct symbol rdmacm_symbols[] = {
#define RDMACM_SYMBOL(member, symbol, result, parameters) \
    {symbol, offsetof(struct gyre_rdmacm, member), true},
    GYRE_RDMACM_TABLE(RDMACM_SYMBOL)
#undef RDMACM_SYMBOL
};

gyre_status gyre_rdmacm_load(const struct gyre_rdmacm **rdmacm_out)
{
    gyre_status status = GYRE_SUCCESS;
    pthread_mutex_lock(&lock);
    if (!rdmacm_library.is_tried)
        load(&rdmacm_library, rdmacm_symbols, sizeof(rdmacm_symbols) / sizeof(rdmacm_symbols[0]),
             &loaded_rdmacm);
    if (rdmacm_library.is_loaded)
        *rdmacm_out = &loaded_rdmacm;
    else
        status =
            gyre_fail(GYRE_ERROR_UNSUPPORTED, "no rdma_cm library: %s", rdmacm_library.why_not);
    pthread_mutex_unlock(&lock);
    return status;
}

#endif
