/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA driver functions of fake_cuda.c, as cuda.h has them but with plain types.
 */
#ifndef GYRE_TESTS_FAKE_CUDA_H
#define GYRE_TESTS_FAKE_CUDA_H

#include <stddef.h>

typedef unsigned long long cu_address;

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

#endif
