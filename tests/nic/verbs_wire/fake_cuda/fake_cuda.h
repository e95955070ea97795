/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA driver functions of fake_cuda.c and fake_kernel.c, as cuda.h has them but with plain types.
 */
#ifndef GYRE_TESTS_FAKE_CUDA_H
#define GYRE_TESTS_FAKE_CUDA_H

#include <stddef.h>

typedef unsigned long long cu_address;

enum { OK = 0, INVALID_VALUE = 1, INVALID_CONTEXT = 201, ALREADY_MAPPED = 208, NO_BINARY = 209 };

struct handle {
    union {
        char bytes[64];
        struct {
            int pid, fd;
            size_t n_bytes;
        };
    };
};

struct uuid {
    unsigned char bytes[16];
};

int cuInit(unsigned flags);
int cuGetErrorName(int error, const char **name);
int cuPointerGetAttribute(void *data, int attribute, cu_address at);
int cuMemGetAddressRange_v2(cu_address *base, size_t *n_bytes, cu_address at);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetCount(int *n);
int cuDeviceGetUuid(struct uuid *uuid, int device);
int cuCtxEnablePeerAccess(void *context, unsigned flags);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxPushCurrent_v2(void *context);
int cuCtxPopCurrent_v2(void **context);
int cuThreadExchangeStreamCaptureMode(int *mode);
int cuIpcGetMemHandle(struct handle *handle, cu_address at);
int cuIpcOpenMemHandle_v2(cu_address *at, struct handle handle, unsigned flags);
int cuIpcCloseMemHandle(cu_address at);
int cuStreamCreate(void **stream, unsigned flags);
int cuMemcpyAsync(cu_address to, cu_address from, size_t n_bytes, void *stream);
int cuStreamSynchronize(void *stream);
int cuMemAlloc_v2(cu_address *at, size_t n_bytes);
int cuMemFree_v2(cu_address at);
int cuMemGetHandleForAddressRange(void *fd, cu_address at, size_t n_bytes, int type,
                                  cu_address flags);

/* ---- fake_kernel.c: the resident copy kernel of the NIC process, as threads
 * ----------------------- */

enum fake_kernel_fault { FAKE_KERNEL_NO_FAULT, FAKE_KERNEL_NO_BINARY, FAKE_KERNEL_DEAF };

/** fake_kernel_break - from now on no module loads, or kernels make no copies. */
void fake_kernel_break(enum fake_kernel_fault fault);

/** fake_kernel_n_launches, fake_kernel_n_running - kernels so far, and threads of them now. */
unsigned fake_kernel_n_launches(void);
unsigned fake_kernel_n_running(void);

/** fake_cuda_reach - where a copy reads or writes: the second mapping of GPU memory, or host memory
 * as it is. NULL: past the end of an allocation. */
unsigned char *fake_cuda_reach(cu_address at, size_t n_bytes);

int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuMemHostAlloc(void **memory, size_t n_bytes, unsigned flags);
int cuMemFreeHost(void *memory);
int cuMemHostRegister_v2(void *memory, size_t n_bytes, unsigned flags);
int cuMemHostGetDevicePointer_v2(cu_address *at, void *memory, unsigned flags);
int cuModuleLoadData(void **module, const void *image);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   void *stream, void **arguments, void **extra);
int cuStreamQuery(void *stream);

#endif
