/* SPDX-License-Identifier: Apache-2.0
 *
 * Every call that fits a row of the table of fused kernels has a function in this build: a full and
 * a lean one, but sends and receives, whose kernels are lean only. The table is pure host code, so
 * nothing but this test ties it to the kernels. No GPU is needed: a function is only looked up.
 */
#include "core/foundation/base/util.h"
#include "kernels/cuda/runtime/kernels.h"
#include "tests/support/check.h"

/* All calls of one protocol and pattern, by type, operation, peers, tiles and alignment. */
struct tally {
    uint32_t n_fit;
    bool has_run[GYRE_CUDA_N_FUSED];
};

static enum gyre_fused_arithmetic arithmetic_of(enum gyre_fused_pattern pattern, gyre_dtype dtype,
                                                unsigned op)
{
    if (!gyre_fused_patterns[pattern].reduces)
        return GYRE_FUSED_COPY;
    return gyre_lamport_adds(dtype, (int)op) ? GYRE_FUSED_FLOAT_SUM : GYRE_FUSED_OTHER;
}

static void check_call(const struct gyre_fused_call *call, unsigned dtype, unsigned op,
                       struct tally *tally)
{
    static const uint64_t tile_bytes[] = {64, 8192, 10000, 65536};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(tile_bytes); i++) {
        struct gyre_cuda_fused_launch launch;
        gyre_cuda_fused_plan(call, tile_bytes[i], &launch);
        if (launch.kernel == NULL)
            return;
        struct gyre_cuda_fused_instance instance = {.pattern = call->pattern,
                                                    .is_placed = call->is_placed,
                                                    .n_peers = call->n_peers,
                                                    .dtype = dtype,
                                                    .op = op};
        const void *full = gyre_cuda_fused_function(&launch, &instance);
        instance.is_lean = true;
        const void *lean = gyre_cuda_fused_function(&launch, &instance);
        const bool is_lean_only = gyre_cuda_is_exchange(call->pattern, launch.n_rows);
        CHECK_MSG((full != NULL) == !is_lean_only && lean != NULL &&
                      (full == lean) == (call->proto == GYRE_PROTO_SIMPLE),
                  "%s, %s, %s of %s, %u peers, %u tiles of %" PRIu64, launch.kernel->name,
                  gyre_fused_patterns[call->pattern].name, gyre_op_names[op],
                  gyre_dtype_names[dtype], call->n_peers, call->n_tiles, tile_bytes[i]);
        tally->n_fit++;
        tally->has_run[launch.kernel - gyre_cuda_fused_kernels] = true;
    }
}

static void check_type(struct gyre_fused_call call, unsigned dtype, unsigned op,
                       struct tally *tally)
{
    call.arithmetic = arithmetic_of(call.pattern, (gyre_dtype)dtype, op);
    for (call.n_peers = 1; call.n_peers <= GYRE_FUSED_MAX_PEERS; call.n_peers++)
        for (call.n_tiles = 1; call.n_tiles <= call.depth; call.n_tiles++)
            for (unsigned flags = 0; flags < 16; flags++) {
                call.is_placed = (flags & 1) != 0;
                call.is_aligned = (flags & 2) != 0;
                call.is_unscaled = (flags & 4) != 0;
                call.fits_two_rows = (flags & 8) != 0;
                check_call(&call, dtype, op, tally);
            }
}

TEST_CASE("every call that fits has a function")
{
    struct tally tally = {0, {false}};
    for (int proto = 0; proto < GYRE_N_PROTOS; proto++)
        for (int pattern = 0; pattern < GYRE_N_FUSED_PATTERNS; pattern++)
            for (unsigned dtype = 0; dtype < GYRE_N_DTYPES; dtype++)
                for (unsigned op = 0; op <= GYRE_MIN; op++) {
                    const struct gyre_fused_call call = {.proto = (enum gyre_proto)proto,
                                                         .pattern =
                                                             (enum gyre_fused_pattern)pattern,
                                                         .depth = 4,
                                                         .n_threads = 512,
                                                         .most_shared_bytes = UINT32_MAX};
                    check_type(call, dtype, op, &tally);
                }
    CHECK(tally.n_fit > 0);
    for (unsigned i = 0; i < GYRE_CUDA_N_FUSED; i++)
        CHECK_MSG(tally.has_run[i], "no call takes %s", gyre_cuda_fused_kernels[i].name);
}

TEST_CASE("every type and operation has an interpreter")
{
    for (int proto = 0; proto < GYRE_N_PROTOS; proto++)
        for (unsigned dtype = 0; dtype < GYRE_N_DTYPES; dtype++)
            for (unsigned op = 0; op <= GYRE_MIN; op++) {
                const bool adds = gyre_lamport_adds((gyre_dtype)dtype, (int)op);
                const void *full =
                    gyre_cuda_interpreter_function((enum gyre_proto)proto, false, dtype, op, false);
                const void *lean =
                    gyre_cuda_interpreter_function((enum gyre_proto)proto, false, dtype, op, true);
                const bool has = proto != GYRE_PROTO_LAMPORT || adds;
                CHECK_MSG((full != NULL) == has && (lean != NULL) == has &&
                              (!has || (full == lean) == (proto == GYRE_PROTO_SIMPLE)),
                          "%s, %s of %s", gyre_proto_names[proto], gyre_op_names[op],
                          gyre_dtype_names[dtype]);
            }
}

TEST_CASE("works of one launch have a kernel")
{
    for (int proto = 0; proto < GYRE_N_PROTOS; proto++)
        for (int is_lean = 0; is_lean < 2; is_lean++) {
            const void *few = gyre_cuda_copier_function((enum gyre_proto)proto, GYRE_CUDA_FEW_WORKS,
                                                        is_lean != 0);
            const void *many = gyre_cuda_copier_function((enum gyre_proto)proto,
                                                         GYRE_CUDA_FEW_WORKS + 1, is_lean != 0);
            const bool copies = proto != GYRE_PROTO_LAMPORT;
            CHECK((few != NULL) == copies && (many != NULL) == copies);
            CHECK(few != many || !copies);
        }
    const void *few = gyre_cuda_mixer_function(GYRE_CUDA_FEW_WORKS);
    const void *many = gyre_cuda_mixer_function(GYRE_CUDA_FEW_WORKS + 1);
    CHECK(few != NULL && many != NULL && few != many);
}
