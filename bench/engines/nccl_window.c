/* SPDX-License-Identifier: Apache-2.0
 *
 * Both buffers are allocated before any of them is registered, and the ranks agree in between.
 * Otherwise a rank without memory would leave the other ranks waiting inside NCCL.
 */
#include "bench/engines/nccl_window.h"

#include "core/foundation/base/util.h"

/* NCCL_WIN_REQUIRED_ALIGNMENT of nccl.h; ncclMemAlloc() aligns to more. */
#define WINDOW_ALIGN_BYTES 4096

gyre_status bench_nccl_windows_load(void *library, const char *path,
                                    enum bench_nccl_buffer_kind kind,
                                    struct bench_nccl_windows *windows_out)
{
    struct bench_nccl_windows windows = {.kind = kind};
#define LOAD(member, symbol, result, parameters, needed_by)                                      \
    if (!bench_nccl_find(library, #symbol, &windows.member) &&                                   \
        ((needed_by) < 0 || (needed_by) == (int)kind))                                           \
        return gyre_fail(GYRE_ERROR_UNSUPPORTED, "--nccl-mode %s: %s has no %s (NCCL has %s)",   \
                         kind == BENCH_NCCL_IN_WINDOWS ? "window" : "registered", path, #symbol, \
                         kind == BENCH_NCCL_IN_WINDOWS ? "windows since 2.27"                    \
                                                       : "registration since 2.19");
    BENCH_NCCL_WINDOW_TABLE(LOAD)
#undef LOAD
    *windows_out = windows;
    return GYRE_SUCCESS;
}

static gyre_status check_result(const struct bench_nccl_windows *windows, int result,
                                const char *call, size_t n_bytes)
{
    if (result == 0)
        return GYRE_SUCCESS;
    return gyre_fail(GYRE_ERROR_DEVICE, "%s(%zu bytes): %s", call, n_bytes,
                     windows->error_text(result));
}

static gyre_status allocate(struct bench_nccl_windows *windows, size_t n_bytes)
{
    struct bench_buffers *buffers = &windows->buffers;
    buffers->n_bytes = gyre_round_up(n_bytes, WINDOW_ALIGN_BYTES);
    GYRE_TRY(check_result(windows, windows->alloc(&buffers->send, buffers->n_bytes), "ncclMemAlloc",
                          buffers->n_bytes));
    return check_result(windows, windows->alloc(&buffers->recv, buffers->n_bytes), "ncclMemAlloc",
                        buffers->n_bytes);
}

static int add(struct bench_nccl_windows *windows, void *base, void **handle_out)
{
    const size_t n_bytes = windows->buffers.n_bytes;
    if (windows->kind == BENCH_NCCL_REGISTERED)
        return windows->add_buffer(windows->comm, base, n_bytes, handle_out);
    return windows->add(windows->comm, base, n_bytes, handle_out, BENCH_NCCL_WINDOW_SYMMETRIC);
}

static gyre_status add_windows(struct bench_nccl_windows *windows)
{
    const bool is_window = windows->kind == BENCH_NCCL_IN_WINDOWS;
    const char *call = is_window ? "ncclCommWindowRegister" : "ncclCommRegister";
    void *const bases[] = {windows->buffers.send, windows->buffers.recv};
    for (int i = 0; i < 2; i++)
        GYRE_TRY(check_result(windows, add(windows, bases[i], &windows->handles[i]), call,
                              windows->buffers.n_bytes));
    /* If NCCL cannot use windows, it returns success without a window. The times would then be
     * those of plain buffers under the wrong name. */
    if (is_window && (windows->handles[0] == NULL || windows->handles[1] == NULL))
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,
                         "--nccl-mode: NCCL makes no symmetric windows here; is one of "
                         "NCCL_CUMEM_ENABLE and NCCL_WIN_ENABLE 0, or peer access off?");
    return GYRE_SUCCESS;
}

gyre_status bench_nccl_windows_open(const struct bench_member *member, void *comm, size_t n_bytes,
                                    struct bench_nccl_windows *windows)
{
    windows->comm = comm;
    GYRE_TRY(bench_ranks_agree(member, allocate(windows, n_bytes)));
    return bench_ranks_agree(member, add_windows(windows));
}

void bench_nccl_windows_close(struct bench_nccl_windows *windows, bool is_orderly)
{
    for (int i = 0; i < 2 && is_orderly; i++)
        if (windows->handles[i] != NULL && windows->kind == BENCH_NCCL_IN_WINDOWS)
            (void)windows->remove(windows->comm, windows->handles[i]);
        else if (windows->handles[i] != NULL)
            (void)windows->remove_buffer(windows->comm, windows->handles[i]);
    if (windows->buffers.send != NULL)
        (void)windows->free(windows->buffers.send);
    if (windows->buffers.recv != NULL)
        (void)windows->free(windows->buffers.recv);
    *windows = (struct bench_nccl_windows){.kind = windows->kind};
}
