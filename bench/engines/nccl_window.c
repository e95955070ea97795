/* SPDX-License-Identifier: Apache-2.0
 *
 * Both buffers are allocated before any of them is registered, and the ranks agree in between.
 * Otherwise a rank without memory would leave the other ranks waiting inside NCCL.
 */
#include "bench/engines/nccl_window.h"

#include "core/base/util.h"

#include <dlfcn.h>
#include <string.h>

/* NCCL_WIN_REQUIRED_ALIGNMENT of nccl.h; ncclMemAlloc() aligns to more. */
#define WINDOW_ALIGN_BYTES 4096

/* POSIX allows the result of dlsym() to be a function. ISO C has no cast for that, so the bytes of
 * the pointer are copied. */
static bool load_symbol(void *library, const char *name, void *function_out)
{
    void *symbol = dlsym(library, name);
    memcpy(function_out, &symbol, sizeof(symbol));
    return symbol != NULL;
}

gyre_status bench_nccl_windows_load(void *library, const char *path,
                                    struct bench_nccl_windows *windows_out)
{
    struct bench_nccl_windows windows = {.comm = NULL};
#define LOAD(member, symbol, result, parameters)                                           \
    if (!load_symbol(library, #symbol, &windows.member))                                   \
        return gyre_fail(GYRE_ERROR_UNSUPPORTED,                                           \
                         "--nccl-mode: %s has no %s (NCCL has windows since 2.27); leave " \
                         "--nccl-mode at plain",                                           \
                         path, #symbol);
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

static gyre_status add_windows(struct bench_nccl_windows *windows)
{
    void *const bases[] = {windows->buffers.send, windows->buffers.recv};
    for (int i = 0; i < 2; i++) {
        const int result = windows->add(windows->comm, bases[i], windows->buffers.n_bytes,
                                        &windows->windows[i], BENCH_NCCL_WINDOW_SYMMETRIC);
        GYRE_TRY(check_result(windows, result, "ncclCommWindowRegister", windows->buffers.n_bytes));
    }
    /* If NCCL cannot use windows, it returns success without a window. The times would then be
     * those of plain buffers under the wrong name. */
    if (windows->windows[0] == NULL || windows->windows[1] == NULL)
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
        if (windows->windows[i] != NULL)
            (void)windows->remove(windows->comm, windows->windows[i]);
    if (windows->buffers.send != NULL)
        (void)windows->free(windows->buffers.send);
    if (windows->buffers.recv != NULL)
        (void)windows->free(windows->buffers.recv);
    *windows = (struct bench_nccl_windows){.comm = NULL};
}
