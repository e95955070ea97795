/* SPDX-License-Identifier: Apache-2.0
 *
 * Defines the tables of names of core/foundation/model/types.h.
 */
#include "core/foundation/model/types.h"

#include "core/foundation/base/text.h"

const char *const gyre_dtype_names[GYRE_N_DTYPES] = {
#define NAME(id, name, bytes, is_float) [GYRE_##id] = #name,
    GYRE_DTYPE_TABLE(NAME)
#undef NAME
};

const char *const gyre_op_names[GYRE_N_OPS] = {
#define NAME(id, name) [GYRE_##id] = #name,
    GYRE_OP_TABLE(NAME)
#undef NAME
};

const char *const gyre_proto_names[GYRE_N_PROTOS] = {
#define NAME(id, name) [GYRE_PROTO_##id] = #name,
    GYRE_PROTO_TABLE(NAME)
#undef NAME
};

const struct gyre_collective_traits gyre_collectives[GYRE_N_COLLECTIVES] = {
#define TRAITS(id, name, in_blocks, out_blocks, reduces, root) \
    [GYRE_COLL_##id] = {#name, in_blocks, out_blocks, reduces, root},
    GYRE_COLLECTIVE_TABLE(TRAITS)
#undef TRAITS
};

int gyre_name_find(const char *const *names, int n_names, const char *name)
{
    for (int i = 0; i < n_names; i++)
        if (gyre_text_same(names[i], name))
            return i;
    return -1;
}

int gyre_collective_find(const char *name)
{
    for (int i = 0; i < GYRE_N_COLLECTIVES; i++)
        if (gyre_text_same(gyre_collectives[i].name, name))
            return i;
    return -1;
}
