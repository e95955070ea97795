/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/device/device.h"

#include "tests/fuzz/options.h"

#include <string.h>

static int one(void)
{
    return 1;
}

static const char *use(int ordinal)
{
    (void)ordinal;
    return NULL;
}

static const char *move(void *to, const void *from, size_t n_bytes, gyre_stream stream)
{
    (void)stream;
    memcpy(to, from, n_bytes);
    return NULL;
}

static const char *no_capture(gyre_stream *streams, int n_streams)
{
    (void)streams, (void)n_streams;
    return "the host has no graphs";
}

static const char *no_end_capture(gyre_stream *streams, int n_streams, void **graph_out)
{
    (void)graph_out;
    return no_capture(streams, n_streams);
}

static const char *no_launch(void *graph, gyre_stream stream)
{
    (void)graph, (void)stream;
    return "the host has no graphs";
}

static const char *no_destroy(void *graph)
{
    return no_launch(graph, NULL);
}

const struct fuzz_device fuzz_device_host = {
    .name = "host",
    .kind = GYRE_DEVICE_HOST,
    .has_graphs = false,
    .count = one,
    .use = use,
    .write = move,
    .read = move,
    .capture = no_capture,
    .end_capture = no_end_capture,
    .launch = no_launch,
    .destroy_graph = no_destroy,
};

const struct fuzz_device *fuzz_device_chosen(void)
{
    if (fuzz_options.device == FUZZ_ON_HOST)
        return &fuzz_device_host;
#ifdef FUZZ_WITH_CUDA
    return &fuzz_device_cuda;
#else
    return NULL;
#endif
}
