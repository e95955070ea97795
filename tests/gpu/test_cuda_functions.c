/* SPDX-License-Identifier: Apache-2.0
 *
 * Every call that fits a row of the table of fused kernels has a function in this build: a full and
 * a lean one (sends and receives: lean only). Nothing else ties the table, which is host code, to
 * the kernels. A function is only looked up, so no GPU is needed.
 */
#include "core/foundation/base/util.h"
#include "kernels/cuda/runtime/state.h"
#include "tests/support/check.h"

struct tally {
    uint32_t n_fit;
    bool has_run[32]; /* rows */
};

static enum gyre_fused_arithmetic arithmetic_of(enum gyre_fused_pattern pattern, gyre_dtype dtype,
                                                unsigned op)
{
    if (!gyre_fused_patterns[pattern].reduces)
        return GYRE_FUSED_COPY;
    return gyre_lamport_adds(dtype, (int)op) ? GYRE_FUSED_FLOAT_SUM : GYRE_FUSED_OTHER;
}

static void check_call(struct gyre_fused_call call, unsigned dtype, unsigned op,
                       struct tally *tally)
{
    static const uint64_t tile_bytes[] = {64, 8192, 10000, 65536};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(tile_bytes); i++) {
        const struct gyre_reduction reduction = {.dtype = (uint8_t)dtype, .op = (uint8_t)op};
        struct gyre_run run;
        call.step_bytes = tile_bytes[i];
        gyre_kernel_choose(&call, &run);
        tally->has_run[run.row > 0 ? run.row - 1 : 0] |= run.row > 0;
        if (run.kernel == NULL)
            return;
        const void *full = gyre_cuda_fused_function(&run, &call, &reduction, false);
        const void *lean = gyre_cuda_fused_function(&run, &call, &reduction, true);
        const bool is_lean_only = run.n_rows > 1 || gyre_fused_is_message(call.pattern);
        CHECK_MSG((full != NULL) == !is_lean_only && lean != NULL &&
                      (full == lean) == (call.proto == GYRE_PROTO_SIMPLE),
                  "%s, %s, %s of %s, %u peers, %u tiles of %" PRIu64, run.kernel,
                  gyre_fused_patterns[call.pattern].name, gyre_op_names[op],
                  gyre_dtype_names[dtype], call.n_peers, call.n_tiles, tile_bytes[i]);
        tally->n_fit++;
    }
}

static void check_type(struct gyre_fused_call call, unsigned dtype, unsigned op,
                       struct tally *tally)
{
    call.arithmetic = arithmetic_of(call.pattern, (gyre_dtype)dtype, op);
    for (call.n_peers = 1; call.n_peers <= GYRE_FUSED_MAX_PEERS; call.n_peers++)
        for (call.n_tiles = 1; call.n_tiles <= call.depth; call.n_tiles++)
            for (unsigned flags = 0; flags < 32; flags++) {
                call.is_placed = (flags & 1) != 0;
                call.is_aligned = (flags & 2) != 0;
                call.is_unscaled = (flags & 4) != 0;
                call.fits_two_rows = (flags & 8) != 0;
                call.in_host_memory = (flags & 16) != 0;
                check_call(call, dtype, op, tally);
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
    for (unsigned i = 0; i < gyre_n_kernel_rows; i++)
        CHECK_MSG(tally.has_run[i], "no call takes row %u, %s", i + 1, gyre_kernel_rows[i].name);
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
