/* SPDX-License-Identifier: Apache-2.0
 *
 * The filter: which algorithms, protocols and paths the tuner may choose from, as GYRE_ALGO,
 * GYRE_PROTO, GYRE_PATH or a program's own options say.
 */
#ifndef GYRE_PLAN_FILTER_H
#define GYRE_PLAN_FILTER_H

#include "algorithms/algorithm.h"
#include "core/foundation/base/status.h"

struct gyre_params;

/* How results get into OUT. X(enum suffix, word) */
#define GYRE_PATH_TABLE(X)                                                          \
    X(STAGED, staged)           /* through slots, from which the receiver copies */ \
    X(PLACED, placed)           /* a kernel writes them into the peer's window */   \
    X(COPY_ENGINE, copy_engine) /* copy engines write them there */

enum gyre_path {
#define GYRE_PATH_ENUM(id, name) GYRE_PATH_##id,
    GYRE_PATH_TABLE(GYRE_PATH_ENUM)
#undef GYRE_PATH_ENUM
        GYRE_N_PATHS
};

extern const char *const gyre_path_names[GYRE_N_PATHS];

/* Which algorithms, protocols and paths the user allows (GYRE_ALGO, GYRE_PROTO, GYRE_PATH). */
struct gyre_filter {
    /* Bit i = gyre_algorithms[i] allowed, per collective. */
    uint32_t algorithms[GYRE_N_COLLECTIVES];
    uint32_t protos[GYRE_N_COLLECTIVES];     /* of links without a proxy */
    uint32_t net_protos[GYRE_N_COLLECTIVES]; /* of links that a proxy serves */
    uint32_t paths[GYRE_N_COLLECTIVES];
    bool is_forced[GYRE_N_COLLECTIVES]; /* the user named algorithms for this collective */
    /* The variable or option that messages name as the source of a word, such as "GYRE_ALGO". */
    const char *algo_source;
    const char *proto_source;
    const char *path_source;
    uint32_t nccl_only; /* algorithms named by NCCL_ALGO that only NCCL has; they have no effect */
};

/* A user's words about algorithms, protocols and paths, and how messages name each ("--algo"). A
 * NULL text leaves that part of a filter as it is. */
struct gyre_filter_words {
    const char *algos;
    const char *protos;
    const char *paths;
    const char *algo_source; /* sources live as long as the filter */
    const char *proto_source;
    const char *path_source;
    bool is_algos_of_nccl; /* algos is the value of NCCL_ALGO, see gyre_filter_of() */
};

/** gyre_filter_parse - "[^]ring,tree" or "all_reduce:ring;broadcast:^tree". A list of protocols may
 * have two parts, "ll,lamport/simple": the first part is for links inside hosts, the second one for
 * links that a proxy serves, and an empty part allows every protocol. A list of one part is for
 * links inside hosts, and for the other links as far as they have any of its protocols: they go by
 * SIMPLE if they have none. Errors: INVALID_ARGUMENT with the word and the legal ones. */
gyre_status gyre_filter_parse(const char *algos, const char *protos, const char *paths,
                              struct gyre_filter *filter_out);

/** gyre_filter_override - put the user's words in place of what the filter held before.
 * Errors: as gyre_filter_parse(), naming the source of the word; the filter is then unchanged. */
gyre_status gyre_filter_override(const struct gyre_filter_words *words, struct gyre_filter *filter);

/** gyre_filter_of - make the filter that the parameters describe. The filter refers to the
 * parameters. NCCL_ALGO is read as NCCL reads it: it does not restrict all_to_all, gather and
 * scatter, which NCCL makes of sends and receives. Names of algorithms that only NCCL has are left
 * out and noted in nccl_only; a list that has only such names allows every algorithm. */
gyre_status gyre_filter_of(const struct gyre_params *params, struct gyre_filter *filter_out);

/** gyre_filter_allows - does the filter allow the algorithm for this collective? */
bool gyre_filter_allows(const struct gyre_filter *filter, enum gyre_collective coll,
                        const struct gyre_algorithm *algorithm);

/** gyre_filter_list_nccl_only - the names of filter->nccl_only as NCCL writes them, with commas. */
void gyre_filter_list_nccl_only(const struct gyre_filter *filter, char *text_out,
                                size_t text_bytes);

#endif
