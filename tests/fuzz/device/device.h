/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fuzzer needs of a device beyond gyre.h. All functions return NULL, or what failed.
 */
#ifndef GYRE_TESTS_FUZZ_DEVICE_H
#define GYRE_TESTS_FUZZ_DEVICE_H

#include "core/gyre.h"

struct fuzz_device {
    const char *name;
    gyre_device_kind kind;
    bool has_graphs;
    /* Without loading a driver: the caller may fork. The host: 1. */
    int (*count)(void);
    /* Make it the thread's current device. */
    const char *(*use)(int ordinal);
    /* Waits for the copy alone. */
    const char *(*write)(void *to, const void *host, size_t n_bytes, gyre_stream stream);
    const char *(*read)(void *host, const void *from, size_t n_bytes, gyre_stream stream);
    /* In one graph. The other streams are forked from the first one. */
    const char *(*capture)(gyre_stream *streams, int n_streams);
    const char *(*end_capture)(gyre_stream *streams, int n_streams, void **graph_out);
    const char *(*launch)(void *graph, gyre_stream stream);
    const char *(*destroy_graph)(void *graph);
};

extern const struct fuzz_device fuzz_device_host;
#ifdef FUZZ_WITH_CUDA
extern const struct fuzz_device fuzz_device_cuda;
#endif

/** By --device; NULL in a build without it. */
const struct fuzz_device *fuzz_device_chosen(void);

#endif
