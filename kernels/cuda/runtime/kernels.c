/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/runtime/state.h"

#include "core/foundation/base/log.h"
#include "core/foundation/base/util.h"

/* [is_lean][type] */
static const struct gyre_cuda_kernels *const by_dtype[2][GYRE_N_DTYPES] = {
    {
#define ROW(id, name, bytes, is_float) [GYRE_##id] = &gyre_cuda_kernels_##id,
        GYRE_DTYPE_TABLE(ROW)
#undef ROW
    },
    {
#define ROW(id, name, bytes, is_float) [GYRE_##id] = &gyre_cuda_lean_kernels_##id,
        GYRE_DTYPE_TABLE(ROW)
#undef ROW
    },
};

static const struct gyre_cuda_copy_kernels *const copying[2] = {&gyre_cuda_kernels_copy,
                                                                &gyre_cuda_lean_kernels_copy};

static bool has_lean(enum gyre_proto proto)
{
    return proto != GYRE_PROTO_SIMPLE;
}

const void *gyre_cuda_interpreter_function(enum gyre_proto proto, bool copies, unsigned dtype,
                                           unsigned op, bool is_lean)
{
    const bool lean = is_lean && has_lean(proto);
    if (copies)
        return copying[lean]->one[proto];
    return dtype < GYRE_N_DTYPES && op <= GYRE_MIN ? by_dtype[lean][dtype]->by_op[proto][op] : NULL;
}

const void *gyre_cuda_copier_function(enum gyre_proto proto, uint32_t n_works, bool is_lean)
{
    const struct gyre_cuda_copy_kernels *kernels = copying[is_lean && has_lean(proto)];
    return n_works <= GYRE_CUDA_FEW_WORKS ? kernels->few[proto] : kernels->many[proto];
}

const void *gyre_cuda_mixer_function(uint32_t n_works)
{
    return n_works <= GYRE_CUDA_FEW_WORKS ? gyre_cuda_kernels_copy.mixed_few
                                          : gyre_cuda_kernels_copy.mixed;
}

const void *gyre_cuda_fused_function(const struct gyre_run *run, const struct gyre_fused_call *call,
                                     const struct gyre_reduction *reduction, bool is_lean)
{
    const struct gyre_kernel_row *row = &gyre_kernel_rows[run->row - 1];
    const bool lean = is_lean && has_lean(call->proto);
    const struct {
        uint32_t n, value;
    } axes[GYRE_N_AXES] = {
        [GYRE_AXIS_OP] = {GYRE_MIN + 1, reduction->op},
        [GYRE_AXIS_UNROLL] = {3, run->unroll == GYRE_CUDA_UNROLL        ? 0
                                 : run->unroll == GYRE_CUDA_DEEP_UNROLL ? 1
                                                                        : 2},
        [GYRE_AXIS_PEERS] = {GYRE_CUDA_PEERS_KERNELS, gyre_cuda_peers_class(call->n_peers)},
        [GYRE_AXIS_KIND] = {GYRE_CUDA_LAMPORT_KINDS,
                            call->pattern == GYRE_FUSED_TWO_SHOT   ? GYRE_CUDA_LAMPORT_GATHERS
                            : call->pattern == GYRE_FUSED_ONE_SHOT ? GYRE_CUDA_LAMPORT_SAME
                                                                   : GYRE_CUDA_LAMPORT_APART},
        [GYRE_AXIS_EXACT] = {2, run->is_exact},
        [GYRE_AXIS_PLACED] = {2, call->is_placed},
        [GYRE_AXIS_SCATTERS] = {2, call->pattern == GYRE_FUSED_ALL_TO_ALL},
    };
    const void *table =
        row->copies ? (const void *)copying[lean] : (const void *)by_dtype[lean][reduction->dtype];
    uint32_t instance = 0;
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(row->axes) && row->axes[i] != GYRE_AXIS_NONE; i++)
        instance = instance * axes[row->axes[i]].n + axes[row->axes[i]].value;
    return ((const void *const *)table)[row->first + instance];
}

/* CUDA loads a kernel when first asked about it, and then waits for running kernels, also on GPUs
 * with peer access. So all kernels are loaded before any launch. */
#define MAX_DEVICES 64 /* others load kernels again */

struct preloaded {
    uint32_t n_peers_kernels; /* of GYRE_CUDA_PEERS_KERNELS; 0 = none */
    uint32_t default_shared_bytes;
};

/* Process-wide, because kernels are. */
static pthread_mutex_t preloaded_lock = PTHREAD_MUTEX_INITIALIZER;
static struct preloaded preloaded[MAX_DEVICES];

/* Held while a limit is read and raised, so that no thread lowers another's. */
static pthread_mutex_t limits_lock = PTHREAD_MUTEX_INITIALIZER;

struct pass {
    uint32_t n_peers_kernels;
    uint32_t most_peers;        /* of a fused program */
    uint32_t most_shared_bytes; /* of a block */
    uint32_t n_loaded;
    uint32_t least_shared_bytes;
    size_t most_local_bytes;
};

gyre_status gyre_cuda_allow_shared(const void *kernel, uint32_t shared_bytes)
{
    struct cudaFuncAttributes attributes;
    gyre_status status = GYRE_SUCCESS;
    if (kernel == NULL)
        return GYRE_SUCCESS;
    pthread_mutex_lock(&limits_lock);
    GYRE_CUDA_TRY_GOTO(status, cudaFuncGetAttributes(&attributes, kernel), unlock);
    if ((uint32_t)attributes.maxDynamicSharedSizeBytes < shared_bytes)
        GYRE_CUDA_TRY_GOTO(status,
                           cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                (int)shared_bytes),
                           unlock);
unlock:
    pthread_mutex_unlock(&limits_lock);
    return status;
}

/* Asking for a kernel's attributes loads it. */
static gyre_status load_kernels(struct pass *pass, const void *const *kernels, size_t n_kernels)
{
    for (size_t i = 0; i < n_kernels; i++) {
        struct cudaFuncAttributes attributes;
        if (kernels[i] == NULL)
            continue;
        GYRE_CUDA_TRY(cudaFuncGetAttributes(&attributes, kernels[i]));
        pass->n_loaded++;
        pass->least_shared_bytes =
            gyre_min_u32(pass->least_shared_bytes, (uint32_t)attributes.maxDynamicSharedSizeBytes);
        if (attributes.localSizeBytes > pass->most_local_bytes)
            pass->most_local_bytes = attributes.localSizeBytes;
    }
    return GYRE_SUCCESS;
}

/* More than CUDA allows by default. Where a block cannot have it, programs are interpreted. */
static gyre_status load_line_kernel(struct pass *pass, const void *kernel, uint32_t unroll)
{
    uint32_t most_bytes = 0;
    for (uint32_t n_peers = 1; n_peers <= pass->most_peers; n_peers++) {
        const uint32_t n_threads = gyre_cuda_threads_per_peer(n_peers, GYRE_CUDA_LINE_THREADS);
        const uint32_t n_bytes = gyre_cuda_fused_shared_bytes(n_peers, n_threads, unroll);
        if (n_bytes <= pass->most_shared_bytes && n_bytes > most_bytes)
            most_bytes = n_bytes;
    }
    const uint32_t least_bytes = pass->least_shared_bytes;
    GYRE_TRY(load_kernels(pass, &kernel, 1));
    pass->least_shared_bytes = least_bytes;
    return most_bytes > 0 ? gyre_cuda_allow_shared(kernel, most_bytes) : GYRE_SUCCESS;
}

static gyre_status load_line_kernels(struct pass *pass, const void *const *kernels, unsigned n_each)
{
    static const uint32_t unrolls[GYRE_CUDA_N_LINES] = {
        [GYRE_CUDA_LINES_LL] = GYRE_CUDA_UNROLL,
        [GYRE_CUDA_LINES_LL128] = GYRE_CUDA_UNROLL,
        [GYRE_CUDA_LINES_LL128_DEEP] = GYRE_CUDA_DEEP_UNROLL,
        [GYRE_CUDA_LINES_LL128_LONG] = GYRE_CUDA_LONG_UNROLL};
    for (unsigned i = 0; i < GYRE_CUDA_N_LINES * n_each; i++)
        GYRE_TRY(load_line_kernel(pass, kernels[i], unrolls[i / n_each]));
    return GYRE_SUCCESS;
}

#define COUNT_OF(table) (sizeof(table) / sizeof(const void *))

static gyre_status load_copies(struct pass *pass, const struct gyre_cuda_copy_kernels *copies)
{
    GYRE_TRY(load_line_kernels(pass, (const void *const *)copies->fused, 2));
    GYRE_TRY(load_kernels(pass, copies->message, COUNT_OF(copies->message)));
    GYRE_TRY(load_kernels(pass, copies->in_rows, COUNT_OF(copies->in_rows)));
    GYRE_TRY(load_kernels(pass, copies->one, COUNT_OF(copies->one)));
    GYRE_TRY(load_kernels(pass, copies->few, COUNT_OF(copies->few)));
    GYRE_TRY(load_kernels(pass, &copies->mixed_few, 1));
    GYRE_TRY(load_kernels(pass, &copies->mixed, 1));
    GYRE_TRY(load_kernels(pass, &copies->placed, 1));
    return load_kernels(pass, copies->many, COUNT_OF(copies->many));
}

static gyre_status load_all(struct pass *pass)
{
    static const struct gyre_cuda_kernels *const types[] = {
#define TYPE(id, name, bytes, is_float) &gyre_cuda_kernels_##id, &gyre_cuda_lean_kernels_##id,
        GYRE_DTYPE_TABLE(TYPE)
#undef TYPE
    };
    const void *const singles[] = {gyre_cuda_kernel_sync, gyre_cuda_kernel_copy_within,
                                   gyre_cuda_kernel_signal, gyre_cuda_kernel_await};
    for (size_t i = 0; i < GYRE_ARRAY_LENGTH(types); i++) {
        const struct gyre_cuda_kernels *kernels = types[i];
        for (unsigned op = 0; op <= GYRE_MIN; op++)
            GYRE_TRY(load_line_kernel(pass, kernels->one_shot[op], GYRE_CUDA_UNROLL));
        GYRE_TRY(load_line_kernels(pass, kernels->fused, 1));
        for (unsigned k = 0; k < pass->n_peers_kernels; k++) {
            GYRE_TRY(load_kernels(pass, kernels->twoshot[k], COUNT_OF(kernels->twoshot[k])));
            GYRE_TRY(load_kernels(pass, (const void *const *)kernels->lamport[k],
                                  COUNT_OF(kernels->lamport[k])));
        }
        GYRE_TRY(load_kernels(pass, (const void *const *)kernels->by_op, COUNT_OF(kernels->by_op)));
    }
    GYRE_TRY(load_copies(pass, &gyre_cuda_kernels_copy));
    GYRE_TRY(load_copies(pass, &gyre_cuda_lean_kernels_copy));
    return load_kernels(pass, singles, COUNT_OF(singles));
}

gyre_status gyre_cuda_preload(const struct gyre_cuda_executor *executor,
                              uint32_t *default_shared_bytes_out)
{
    const int ordinal = executor->device->ordinal;
    const uint32_t n_peers = (uint32_t)executor->n_ranks - 1;
    struct preloaded now = {0};
    pthread_mutex_lock(&preloaded_lock);
    if (ordinal < MAX_DEVICES)
        now = preloaded[ordinal];
    pthread_mutex_unlock(&preloaded_lock);
    /* Kernels exist for 1, 3 and 7 peers; a program may have fewer. */
    struct pass pass = {
        .n_peers_kernels = n_peers <= 1   ? 1
                           : n_peers <= 3 ? 2
                                          : GYRE_CUDA_PEERS_KERNELS,
        .most_shared_bytes = executor->most_shared_bytes,
        .least_shared_bytes = UINT32_MAX,
    };
    static const uint32_t most_peers[] = {0, 1, 3, GYRE_CUDA_MAX_PEERS};
    pass.most_peers = most_peers[pass.n_peers_kernels];
    if (now.n_peers_kernels < pass.n_peers_kernels) {
        const uint64_t start_ns = gyre_now_ns();
        GYRE_TRY(load_all(&pass));
        now = (struct preloaded){pass.n_peers_kernels, pass.least_shared_bytes};
        pthread_mutex_lock(&preloaded_lock);
        if (ordinal < MAX_DEVICES && preloaded[ordinal].n_peers_kernels < now.n_peers_kernels)
            preloaded[ordinal] = now;
        pthread_mutex_unlock(&preloaded_lock);
        GYRE_INFO(INIT, "GPU %d: %u kernels loaded in %.1f ms, local memory up to %zu bytes",
                  ordinal, pass.n_loaded, (double)(gyre_now_ns() - start_ns) / 1e6,
                  pass.most_local_bytes);
    }
    *default_shared_bytes_out = now.default_shared_bytes;
    return GYRE_SUCCESS;
}
