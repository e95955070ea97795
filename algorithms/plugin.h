/* SPDX-License-Identifier: Apache-2.0
 *
 * Algorithms in a .so (docs/extend.md), which links nothing: it gets gyre's functions as a table.
 * Its source includes this header alone and ends with GYRE_PLUGIN(&its_algorithm, ...).
 */
#ifndef GYRE_ALGORITHMS_PLUGIN_H
#define GYRE_ALGORITHMS_PLUGIN_H

#include "algorithms/algorithm.h"

#define GYRE_PLUGIN_VERSION 1

/* Functions are appended; anything else is a new version. */
struct gyre_plugin_host {
    uint32_t version;
    const struct gyre_collective_traits *collectives;
    void *(*allocate)(struct gyre_builder *builder, size_t n_bytes);
    void (*worker)(struct gyre_builder *builder);
    void (*step)(struct gyre_builder *builder, int chunk, const struct gyre_ref *ins, int n_ins,
                 const struct gyre_ref *outs, int n_outs, unsigned flags);
    void (*range_step)(struct gyre_builder *builder, struct gyre_chunks chunks,
                       const struct gyre_ref *ins, int n_ins, const struct gyre_ref *outs,
                       int n_outs, unsigned flags);
    void (*max_range)(struct gyre_builder *builder, int max_range);
    void (*reduce)(struct gyre_builder *builder, int chunk, const struct gyre_ref *ins, int n_ins,
                   const struct gyre_ref *outs, int n_outs, unsigned flags);
    void (*scatter)(struct gyre_builder *builder, int chunk, struct gyre_ref in,
                    const struct gyre_ref *outs, int n_outs);
    void (*min_depth)(struct gyre_builder *builder, int min_depth);
    void (*lanes)(struct gyre_builder *builder, int n_lanes);
    int (*peers_from_next)(const struct gyre_shape *shape, int rank, bool is_placed,
                           struct gyre_ref *peers_out);
};

/* Sizes are those of the .so's build and must be gyre's. */
struct gyre_plugin {
    uint32_t version; /* GYRE_PLUGIN_VERSION */
    uint32_t algorithm_bytes, shape_bytes, ability_bytes, ref_bytes;
    uint32_t n_algorithms;
    const struct gyre_algorithm *const *algorithms;
};

/* Exported as gyre_algorithms_v1. NULL = this gyre will not do. */
typedef const struct gyre_plugin *gyre_plugin_entry(const struct gyre_plugin_host *host);

#ifndef GYRE_PLUGIN_HOST
static const struct gyre_plugin_host *gyre_plugin_host;
#define gyre_collectives        gyre_plugin_host->collectives
#define gyre_builder_allocate   gyre_plugin_host->allocate
#define gyre_builder_worker     gyre_plugin_host->worker
#define gyre_builder_step       gyre_plugin_host->step
#define gyre_builder_range_step gyre_plugin_host->range_step
#define gyre_builder_max_range  gyre_plugin_host->max_range
#define gyre_builder_reduce     gyre_plugin_host->reduce
#define gyre_builder_scatter    gyre_plugin_host->scatter
#define gyre_builder_min_depth  gyre_plugin_host->min_depth
#define gyre_builder_lanes      gyre_plugin_host->lanes
#define gyre_peers_from_next    gyre_plugin_host->peers_from_next

#define GYRE_PLUGIN(...)                                                                \
    extern __attribute__((visibility("default"))) gyre_plugin_entry gyre_algorithms_v1; \
    const struct gyre_plugin *gyre_algorithms_v1(const struct gyre_plugin_host *host)   \
    {                                                                                   \
        static const struct gyre_algorithm *const all[] = {__VA_ARGS__};                \
        static const struct gyre_plugin plugin = {                                      \
            .version = GYRE_PLUGIN_VERSION,                                             \
            .algorithm_bytes = sizeof(struct gyre_algorithm),                           \
            .shape_bytes = sizeof(struct gyre_shape),                                   \
            .ability_bytes = sizeof(struct gyre_ability),                               \
            .ref_bytes = sizeof(struct gyre_ref),                                       \
            .n_algorithms = sizeof(all) / sizeof(all[0]),                               \
            .algorithms = all,                                                          \
        };                                                                              \
        gyre_plugin_host = host;                                                        \
        return &plugin;                                                                 \
    }
#endif

#endif
