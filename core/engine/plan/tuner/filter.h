/* SPDX-License-Identifier: Apache-2.0
 *
 * The algorithms, protocols and paths that GYRE_ALGO, GYRE_PROTO, GYRE_PATH or a program's options
 * leave to the tuner.
 */
#ifndef GYRE_PLAN_FILTER_H
#define GYRE_PLAN_FILTER_H

#include "algorithms/algorithm.h"
#include "core/foundation/base/status.h"

struct gyre_params;

/* How results get into OUT. X(enum suffix, word) */
#define GYRE_PATH_TABLE(X)                                                        \
    X(STAGED, staged)           /* the receiver copies from slots */              \
    X(PLACED, placed)           /* a kernel writes them into the peer's window */ \
    X(COPY_ENGINE, copy_engine) /* copy engines write them there */

enum gyre_path {
#define GYRE_PATH_ENUM(id, name) GYRE_PATH_##id,
    GYRE_PATH_TABLE(GYRE_PATH_ENUM)
#undef GYRE_PATH_ENUM
        GYRE_N_PATHS
};

extern const char *const gyre_path_names[GYRE_N_PATHS];

struct gyre_filter {
    /* Bit i = gyre_algorithms[i]. */
    uint32_t algorithms[GYRE_N_COLLECTIVES];
    uint32_t protos[GYRE_N_COLLECTIVES];     /* links without a proxy */
    uint32_t net_protos[GYRE_N_COLLECTIVES]; /* links with a proxy */
    uint32_t paths[GYRE_N_COLLECTIVES];
    bool is_forced[GYRE_N_COLLECTIVES]; /* the user named algorithms for it */
    /* For messages, such as "GYRE_ALGO". */
    const char *algo_source;
    const char *proto_source;
    const char *path_source;
    uint32_t nccl_only; /* in NCCL_ALGO, without effect */
};

/* A user's words. NULL leaves that part of a filter as it is. */
struct gyre_filter_words {
    const char *algos;
    const char *protos;
    const char *paths;
    const char *algo_source; /* sources live as long as the filter */
    const char *proto_source;
    const char *path_source;
    bool is_algos_of_nccl; /* see gyre_filter_of() */
};

/** "[^]ring,tree" or "all_reduce:ring;broadcast:^tree". Of protocols "ll,lamport/simple": for links
 * inside hosts, then with a proxy; an empty part allows every protocol. A single part counts for
 * links with a proxy as far as they have its protocols, else they go by SIMPLE. Errors:
 * INVALID_ARGUMENT with the word and the legal ones. */
gyre_status gyre_filter_parse(const char *algos, const char *protos, const char *paths,
                              struct gyre_filter *filter_out);

/** After an error (as gyre_filter_parse()) the filter is unchanged. */
gyre_status gyre_filter_override(const struct gyre_filter_words *words, struct gyre_filter *filter);

/** Refers to @params. As in NCCL, NCCL_ALGO does not restrict all_to_all, gather and scatter, made
 * of sends and receives. A list of algorithms that only NCCL has allows every algorithm. */
gyre_status gyre_filter_of(const struct gyre_params *params, struct gyre_filter *filter_out);

bool gyre_filter_allows(const struct gyre_filter *filter, enum gyre_collective coll,
                        const struct gyre_algorithm *algorithm);

/** As NCCL writes the names, with commas. */
void gyre_filter_list_nccl_only(const struct gyre_filter *filter, char *text_out,
                                size_t text_bytes);

#endif
