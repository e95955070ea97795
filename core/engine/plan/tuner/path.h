/* SPDX-License-Identifier: Apache-2.0
 *
 * The path of a call, which is the way in which its results get into the output buffers.
 */
#ifndef GYRE_PLAN_PATH_H
#define GYRE_PLAN_PATH_H

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

#endif
