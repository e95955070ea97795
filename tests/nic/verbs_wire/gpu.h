/* SPDX-License-Identifier: Apache-2.0
 *
 * Found by dlopen, so that clients and NIC processes run without CUDA.
 */
#ifndef GYRE_TESTS_WIRE_GPU_H
#define GYRE_TESTS_WIRE_GPU_H

#include "tests/nic/verbs_wire/protocol.h"

struct wire_ipc_handle {
    char bytes[WIRE_IPC_BYTES];
};

struct wire_uuid {
    unsigned char bytes[WIRE_UUID_BYTES];
};

/* X(member, symbol, parameters); all return a CUresult, 0 = success */
#define WIRE_GPU_TABLE(X)                                                                          \
    X(init, "cuInit", (unsigned))                                                                  \
    X(error_name, "cuGetErrorName", (int, const char **))                                          \
    X(attribute, "cuPointerGetAttribute", (void *, int, unsigned long long))                       \
    X(range, "cuMemGetAddressRange_v2", (unsigned long long *, size_t *, unsigned long long))      \
    X(count, "cuDeviceGetCount", (int *))                                                          \
    X(device, "cuDeviceGet", (int *, int))                                                         \
    X(uuid, "cuDeviceGetUuid", (struct wire_uuid *, int))                                          \
    X(retain, "cuDevicePrimaryCtxRetain", (void **, int))                                          \
    X(capture_mode, "cuThreadExchangeStreamCaptureMode", (int *))                                  \
    X(push, "cuCtxPushCurrent_v2", (void *))                                                       \
    X(pop, "cuCtxPopCurrent_v2", (void **))                                                        \
    X(ipc_get, "cuIpcGetMemHandle", (struct wire_ipc_handle *, unsigned long long))                \
    X(ipc_open, "cuIpcOpenMemHandle_v2", (unsigned long long *, struct wire_ipc_handle, unsigned)) \
    X(ipc_close, "cuIpcCloseMemHandle", (unsigned long long))                                      \
    X(stream, "cuStreamCreate", (void **, unsigned))                                               \
    X(copy, "cuMemcpyAsync", (unsigned long long, unsigned long long, size_t, void *))             \
    X(wait, "cuStreamSynchronize", (void *))

struct wire_gpu_calls {
#define WIRE_GPU_MEMBER(member, symbol, parameters) int(*member) parameters;
    WIRE_GPU_TABLE(WIRE_GPU_MEMBER)
#undef WIRE_GPU_MEMBER
};

/** NULL and says why. Not thread-safe. */
const struct wire_gpu_calls *wire_gpu_load(void);

/** Else says what failed and sets errno to EFAULT. */
bool wire_gpu_is_fine(int result, const char *call);

#define WIRE_CU(call, ...) wire_gpu_is_fine(wire_gpu_load()->call(__VA_ARGS__), #call)

#endif
