/* SPDX-License-Identifier: Apache-2.0
 *
 * As in cuda.h, but with plain types.
 */
#ifndef GYRE_TESTS_FAKE_CUDA_H
#define GYRE_TESTS_FAKE_CUDA_H

#include <stddef.h>

/* A driver's first one is 0. */
#define FAKE_CUDA_DEVICE 100

/* With FAKE_CUDA_WAIT_US=N copies are done N microseconds after the wait for them has begun, so
 * what does not wait comes too early. With FAKE_CUDA_NO_PEERS=1 a GPU's memory can be opened in
 * that GPU's context only, and copies may use memory of other contexts.
 *
 * A copy whose source begins with one of these words fails: when it is started, or when its stream
 * is waited for. Then the copies behind it on the stream are not done either. Later copies are
 * done, unlike a driver's. */
#define FAKE_CUDA_FAILS_AT_START 0x6661696c73313131ULL
#define FAKE_CUDA_FAILS_AT_WAIT  0x6661696c73323232ULL

typedef unsigned long long cu_address;

struct handle {
    union {
        char bytes[64];
        struct {
            int pid, fd, device;
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
