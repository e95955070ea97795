/* SPDX-License-Identifier: Apache-2.0
 *
 * One plugin a process, as in NCCL.
 */
#include "core/nccl/nccl_plugin.h"

#include "core/foundation/base/text.h"
#include "core/nccl/nccl_shim.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES 4096

static struct {
    pthread_mutex_t lock; /* plugins may not expect two of loading, init and finalize at a time */
    int n_comms;
    int has_failed; /* final; atomic */
    void *library;
    const struct nccl_plugin *table;
    int version;
    int mask; /* the plugin may always write it; atomic */
} plugin = {.lock = PTHREAD_MUTEX_INITIALIZER};

void nccl_plugin_forget(void)
{
    plugin.n_comms = 0;
    pthread_mutex_init(&plugin.lock, NULL); /* a thread of the parent may hold it */
}

__attribute__((format(printf, 1, 2))) static void fail(const char *format, ...)
{
    char cause[400], text[480];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(cause, sizeof(cause), format, arguments);
    va_end(arguments);
    snprintf(text, sizeof(text), "NCCL_PROFILER_PLUGIN: %s; the job goes on without the profiler",
             cause);
    if (!__atomic_exchange_n(&plugin.has_failed, 1, __ATOMIC_RELAXED))
        gyre_log_text(true, text);
}

static void get_name(char name_out[PATH_BYTES])
{
    name_out[0] = '\0';
    if (gyre_get_variable("GYRE_PROFILER_PLUGIN", name_out, PATH_BYTES) != GYRE_SUCCESS)
        name_out[0] = '\0';
    if (gyre_text_same(name_out, "none"))
        name_out[0] = '\0';
}

bool nccl_plugin_is_asked(void)
{
    char name[PATH_BYTES];
    if (__atomic_load_n(&plugin.has_failed, __ATOMIC_RELAXED))
        return false;
    get_name(name);
    return name[0] != '\0';
}

static void take_line(int level, unsigned long flags, const char *file, int line,
                      const char *format, ...)
{
    enum { LEVEL_WARN = 2 };
    char text[1024];
    va_list arguments;
    (void)flags, (void)file, (void)line;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    gyre_log_text(level <= LEVEL_WARN, text);
}

/* "x" may mean "libnccl-profiler-x.so". */
static bool open_library(const char *name)
{
    const size_t n = strlen(name);
    const bool is_library =
        strncmp(name, "lib", 3) == 0 && n > 3 && strcmp(name + n - 3, ".so") == 0;
    char file[PATH_BYTES + 32];
    if (gyre_text_same(name, "STATIC_PLUGIN")) {
        fail("gyre loads plugins from files; STATIC_PLUGIN is not supported");
        return false;
    }
    plugin.library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (plugin.library != NULL)
        return true;
    if (strchr(name, '/') != NULL || is_library) {
        fail("%s", dlerror());
        return false;
    }
    snprintf(file, sizeof(file), "libnccl-profiler-%s.so", name);
    plugin.library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (plugin.library == NULL)
        fail("neither %s nor %s can be loaded: %s", name, file, dlerror());
    return plugin.library != NULL;
}

static void unload(void)
{
    if (plugin.library != NULL)
        dlclose(plugin.library);
    plugin.library = NULL;
    plugin.table = NULL;
    plugin.mask = 0;
}

static bool load(void)
{
    static const char *const tables[] = {"ncclProfiler_v4", "ncclProfiler_v5", "ncclProfiler_v6"};
    char name[PATH_BYTES], text[PATH_BYTES + 128];
    get_name(name);
    if (name[0] == '\0' || !open_library(name))
        return false;
    for (plugin.version = 6; plugin.version >= 4; plugin.version--) {
        plugin.table = dlsym(plugin.library, tables[plugin.version - 4]);
        if (plugin.table != NULL)
            break;
    }
    const struct nccl_plugin *table = plugin.table;
    if (table == NULL) {
        fail("%s has none of ncclProfiler_v6, _v5 and _v4, the versions that gyre knows", name);
    } else if (table->init.v4 == NULL || table->start == NULL || table->stop == NULL ||
               table->record == NULL || table->finalize == NULL) {
        fail("%s: a function of its table ncclProfiler_v%s is NULL", name,
             plugin.version > 4 ? "6 or _v5" : "4");
    } else {
        snprintf(text, sizeof(text), "NCCL_PROFILER_PLUGIN: loaded %s (%.64s, version %s)", name,
                 table->name != NULL ? table->name : "no name",
                 plugin.version > 4 ? "5 or 6" : "4");
        gyre_log_text(false, text);
        return true;
    }
    unload();
    return false;
}

bool nccl_plugin_join(const struct nccl_plugin_comm *comm, void **context_out)
{
    *context_out = NULL;
    pthread_mutex_lock(&plugin.lock);
    bool is_loaded =
        !__atomic_load_n(&plugin.has_failed, __ATOMIC_RELAXED) && (plugin.n_comms > 0 || load());
    if (is_loaded) {
        const struct nccl_plugin *table = plugin.table;
        const ncclResult_t result =
            plugin.version > 4
                ? table->init.v5(context_out, comm->id, &plugin.mask, comm->name, comm->n_hosts,
                                 comm->n_ranks, comm->rank, take_line)
                : table->init.v4(context_out, &plugin.mask, comm->name, comm->id, comm->n_hosts,
                                 comm->n_ranks, comm->rank, take_line);
        is_loaded = result == ncclSuccess;
        if (!is_loaded)
            fail("the init of the plugin returned %d (%s) on rank %d", (int)result,
                 pncclGetErrorString(result), comm->rank);
    }
    plugin.n_comms += is_loaded;
    if (plugin.n_comms == 0)
        unload();
    pthread_mutex_unlock(&plugin.lock);
    return is_loaded;
}

void nccl_plugin_leave(void *context)
{
    pthread_mutex_lock(&plugin.lock);
    if (context != NULL)
        (void)plugin.table->finalize(context);
    if (--plugin.n_comms == 0)
        unload();
    pthread_mutex_unlock(&plugin.lock);
}

int nccl_plugin_mask(void)
{
    return __atomic_load_n(&plugin.mask, __ATOMIC_RELAXED);
}

void *nccl_plugin_start(void *context, unsigned type, struct nccl_event *event, void *group)
{
    void *handle = NULL;
    event->type = type;
    if (plugin.version == 4) {
        if (type >= NCCL_EVENT_GROUP_API)
            return NULL;
        if (type == NCCL_EVENT_COLL || type == NCCL_EVENT_P2P)
            event->parent = group;
        event->type = 0;
        event->type_v4 = (uint8_t)type;
    }
    (void)plugin.table->start(context, &handle, event);
    return handle;
}

void nccl_plugin_stop(void *handle)
{
    if (handle != NULL)
        (void)plugin.table->stop(handle);
}

void nccl_plugin_record(void *handle, int state, uint64_t kernel_ch_time)
{
    union nccl_event_state args = {.kernel_ch_time = kernel_ch_time};
    if (handle != NULL)
        (void)plugin.table->record(handle, state,
                                   state == NCCL_STATE_KERNEL_CH_STOP ? &args : NULL);
}
