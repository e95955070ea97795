/* SPDX-License-Identifier: Apache-2.0
 *
 * Valid as C11 and as CUDA.
 */
#ifndef GYRE_MODEL_TYPES_H
#define GYRE_MODEL_TYPES_H

#include "core/gyre.h"

#ifdef __CUDACC__
#define GYRE_HOST_DEVICE __host__ __device__
#else
#define GYRE_HOST_DEVICE
#endif

/* X(enum suffix, name for users, bytes, is floating point) */
#define GYRE_DTYPE_TABLE(X)      \
    X(INT8, int8, 1, 0)          \
    X(UINT8, uint8, 1, 0)        \
    X(INT32, int32, 4, 0)        \
    X(UINT32, uint32, 4, 0)      \
    X(INT64, int64, 8, 0)        \
    X(UINT64, uint64, 8, 0)      \
    X(FLOAT16, half, 2, 1)       \
    X(FLOAT32, float, 4, 1)      \
    X(FLOAT64, double, 8, 1)     \
    X(BFLOAT16, bfloat16, 2, 1)  \
    X(FLOAT8_E4M3, f8e4m3, 1, 1) \
    X(FLOAT8_E5M2, f8e5m2, 1, 1)

#define GYRE_N_DTYPES 12

/* X(enum suffix, name). The plan makes AVG a SUM, multiplied first (floats) or divided last. */
#define GYRE_OP_TABLE(X) X(SUM, sum) X(PROD, prod) X(MAX, max) X(MIN, min) X(AVG, avg)

#define GYRE_N_OPS       5

/* X(enum suffix, name, IN has n blocks of count, OUT has, reduces, has a root) */
#define GYRE_COLLECTIVE_TABLE(X)                  \
    X(ALL_REDUCE, all_reduce, 0, 0, 1, 0)         \
    X(BROADCAST, broadcast, 0, 0, 0, 1)           \
    X(REDUCE, reduce, 0, 0, 1, 1)                 \
    X(ALL_GATHER, all_gather, 0, 1, 0, 0)         \
    X(REDUCE_SCATTER, reduce_scatter, 1, 0, 1, 0) \
    X(SEND_RECV, send_recv, 0, 0, 0, 1)           \
    X(ALL_TO_ALL, all_to_all, 1, 1, 0, 0)         \
    X(GATHER, gather, 0, 1, 0, 1)                 \
    X(SCATTER, scatter, 1, 0, 0, 1)

enum gyre_collective {
#define GYRE_COLLECTIVE_ENUM(id, name, in_blocks, out_blocks, reduces, root) GYRE_COLL_##id,
    GYRE_COLLECTIVE_TABLE(GYRE_COLLECTIVE_ENUM)
#undef GYRE_COLLECTIVE_ENUM
        GYRE_N_COLLECTIVES
};

/* X(enum suffix, name, data bytes in so many of a slot). Half of LL is flags. */
#define GYRE_PROTO_TABLE(X)   \
    X(SIMPLE, simple, 16, 16) \
    X(LL, ll, 1, 2)           \
    X(LL128, ll128, 120, 128) \
    X(LAMPORT, lamport, 16, 16)

enum gyre_proto {
#define GYRE_PROTO_ENUM(id, name, data, line) GYRE_PROTO_##id,
    GYRE_PROTO_TABLE(GYRE_PROTO_ENUM)
#undef GYRE_PROTO_ENUM
        GYRE_N_PROTOS
};

/* The other protocols share LL128's slots and counters, to leave memory for the rings' slots. */
#define GYRE_N_SLOT_PROTOS GYRE_PROTO_LAMPORT

static GYRE_HOST_DEVICE inline enum gyre_proto gyre_proto_slots(enum gyre_proto proto)
{
    return proto >= GYRE_PROTO_LAMPORT ? GYRE_PROTO_LL128 : proto;
}

static GYRE_HOST_DEVICE inline unsigned gyre_dtype_bytes(gyre_dtype dtype)
{
    switch (dtype) {
#define GYRE_DTYPE_BYTES(id, name, bytes, is_float) \
    case GYRE_##id:                                 \
        return bytes;
        GYRE_DTYPE_TABLE(GYRE_DTYPE_BYTES)
#undef GYRE_DTYPE_BYTES
    }
    return 0;
}

static GYRE_HOST_DEVICE inline bool gyre_dtype_is_float(gyre_dtype dtype)
{
    switch (dtype) {
#define GYRE_DTYPE_IS_FLOAT(id, name, bytes, is_float) \
    case GYRE_##id:                                    \
        return is_float != 0;
        GYRE_DTYPE_TABLE(GYRE_DTYPE_IS_FLOAT)
#undef GYRE_DTYPE_IS_FLOAT
    }
    return false;
}

/** LAMPORT sums floating-point types of at least two bytes. */
static GYRE_HOST_DEVICE inline bool gyre_lamport_adds(gyre_dtype dtype, int op)
{
    return op == GYRE_SUM && gyre_dtype_is_float(dtype) && gyre_dtype_bytes(dtype) > 1;
}

struct gyre_collective_traits {
    const char *name;
    bool in_blocks; /* of count elements, one a rank; else IN is a vector */
    bool out_blocks;
    bool reduces;
    bool has_root;
};

extern const char *const gyre_dtype_names[GYRE_N_DTYPES];
extern const char *const gyre_op_names[GYRE_N_OPS];
extern const char *const gyre_proto_names[GYRE_N_PROTOS];
extern const struct gyre_collective_traits gyre_collectives[GYRE_N_COLLECTIVES];

/** In any case; -1 = none. */
int gyre_name_find(const char *const *names, int n_names, const char *name);

int gyre_collective_find(const char *name);

#endif
